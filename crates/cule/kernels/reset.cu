// Resets that the caller asks for, and resets after the end of an episode that run the whole boot or many
// idle frames. The step kernel queues the latter; here whole warps take them from the queue, so that they do
// not delay lanes that step.
#include "layout.cuh"
#include "runner.cuh"

using cule::env::state::StepOutput;
using cule::env::state::Head;
using cule::env::state::EnvGame;

static __device__ void reset_env(const Batch& b, const Call& call, uint32_t env, const Workspace& workspace, ShowRequest& request) {
    Head head;
    load_head(b, env, head);
    StepOutput output = b.step_outputs[env];
    const EnvGame& game = b.games[b.env_games[env]];
    const cule::env::state::EnvSettings& rules = rules_of(b, env);
    if (call.mode == RESET_REQUESTED && call.mask != nullptr && call.mask[env] == 0) {
        if (head.ready == 0) fault(b, FAULT_NOT_RESET, env);
        output.push = cule::env::state::PUSH_NOTHING;
        output.clear = 0;
        b.step_outputs[env] = output;
        store_reset_figures(b, call, env, head, false);
        request = ShowRequest{env, head.newest, 0, 0, 0, output};
        return;
    }
    if (call.mode == RESET_REQUESTED && call.seeds != nullptr && call.seeds[env] >= 0) {
        cule::env::state::seed(head, b.randoms[env], static_cast<uint64_t>(call.seeds[env]), rules.noops);
    }
    uint32_t number = cule::env::reset::NO_RESET_STATE;
    if (cule::env::reset::can_copy_reset_state(head, rules, game)) {
        number = reset_from_table<Compact>(b, env, head, output, workspace);
    } else {
        Compact runner{rom_of(b, game)};
        begin_line(*workspace.board);
        const uint32_t given_up =
            cule::env::reset::reset(runner, head, output, b.randoms[env], workspace.generators[0], workspace.generators[1],
                                     *workspace.board, kept_of(b, env), boot_of(b, env), rules, game);
        if (given_up != 0) fault(b, FAULT_MODE, env);
        keep_pictures(b, env, output, workspace);
    }
    store_head(b, env, head);
    b.step_outputs[env] = output;
    store_reset_figures(b, call, env, head, call.mode == RESET_WITHIN);
    request = ShowRequest{env, head.newest, 0, 0, number, output};
}

extern "C" __global__ void __launch_bounds__(128) parl_reset(Batch b, Call call) {
    __shared__ ShowRequest requests[LANES];
    const bool asked = call.mode == RESET_REQUESTED;
    const uint32_t queued = asked ? 0 : *static_cast<volatile uint32_t*>(b.queued);
    const uint32_t groups = asked ? b.threads / LANES : (queued + b.lanes - 1) / b.lanes;
    for (uint32_t group = blockIdx.x; group < groups; group += gridDim.x) {
        if (threadIdx.x < LANES) {
            const uint32_t at = group * b.lanes + threadIdx.x;
            uint32_t env = NO_ENV;
            if (asked) env = b.order[group * LANES + threadIdx.x];
            else if (threadIdx.x < b.lanes && at < queued) env = b.queue[at];
            requests[threadIdx.x].env = NO_ENV;
            if (env != NO_ENV) reset_env(b, call, env, workspace_of(b, blockIdx.x, threadIdx.x), requests[threadIdx.x]);
        }
        __syncthreads();
        show(b, call, requests);
        __syncthreads();
    }
    // The last block empties the queue for the next step.
    if (!asked && threadIdx.x == 0 && atomicAdd(b.queued + 1, 1) == gridDim.x - 1) {
        b.queued[0] = 0;
        b.queued[1] = 0;
    }
}
