// The step kernel. Each lane of a block's first warp runs all frames of one environment's step, and a reset
// if one is due. Then all threads of the block write the observations. How lanes share instructions is in
// forms.cuh.
#include "forms.cuh"
#include "layout.cuh"

using cule::env::state::StepOutput;
using cule::env::state::Head;
using cule::env::state::EnvGame;
using cule::env::state::EnvSettings;

// The action of an environment: an index of 32 or 64 bits, or a continuous action of four floats
// (`call.wide_actions`). An invalid action is a fault and counts as NOOP.
static __device__ cule::env::Action action_of(const Batch& b, const Call& call, uint32_t env, const EnvGame& game) {
    if (call.wide_actions == STICKS) {
        const float* stick = static_cast<const float*>(call.actions) + 4 * static_cast<uint64_t>(env);
        // x - x is 0 unless x is infinite or NaN.
        for (uint32_t i = 0; i < 4; ++i) {
            if (stick[i] - stick[i] != 0.0f) {
                fault(b, FAULT_STICK, env);
                return cule::env::full_strength(cule::env::NOOP);
            }
        }
        return cule::env::rules::continuous_action(stick[0], stick[1], stick[2], stick[3], call.threshold);
    }
    const int64_t index = call.wide_actions == WIDE ? static_cast<const int64_t*>(call.actions)[env]
                                                    : static_cast<const int32_t*>(call.actions)[env];
    uint32_t code = 255;
    if (index >= 0 && index < 18) code = cule::env::rules::action_code(game.actions, static_cast<uint32_t>(index));
    if (code == 255) {
        fault(b, FAULT_ACTION, env);
        code = cule::env::NOOP;
    }
    return cule::env::full_strength(code);
}

// Runs one step, or the reset after the end of an episode.
static __device__ void step_env(const Batch& b, const Call& call, uint32_t env, const Workspace& workspace, ShowRequest& request) {
    StepOutput output = b.step_outputs[env];
    output.push = cule::env::state::PUSH_NOTHING;
    output.clear = 0;
    output.reset_due = 0;
    Head head;
    load_head(b, env, head);
    const EnvSettings& rules = rules_of(b, env);
    const EnvGame& game = b.games[b.env_games[env]];
    bool shows = true;
    uint16_t stack_moved = 0;
    uint32_t reset_state = 0;
    if (head.ready == 0) {
        fault(b, FAULT_NOT_RESET, env);
    } else if (head.episode.ended != 0 && call.mode == DISABLED) {
        fault(b, FAULT_ENDED, env);
    } else if (head.episode.ended != 0 && call.mode == NEXT_STEP) {
        if (cule::env::reset::can_copy_reset_state(head, rules, game)) {
            reset_state = reset_from_table<FormRunner>(b, env, head, output, workspace);
            store_head(b, env, head);
            store_reset_figures(b, call, env, head, false);
        } else {
            b.queue[atomicAdd(b.queued, 1)] = env;
            shows = false;
        }
    } else {
        Slice<cule::machine::input::Input> inputs(reinterpret_cast<cule::machine::input::Input*>(workspace.inputs), b.inputs_per_env);
        FormRunner runner{rom_of(b, game)};
        begin_line(*workspace.board);
        cule::env::step::step(runner, head, output, b.randoms[env], *workspace.board, work_of(b, workspace), kept_of(b, env),
                                     inputs, rules, game, action_of(b, call, env, game), cule::env::full_strength(cule::env::NOOP));
        keep_pictures(b, env, output, workspace);
        store_figures(b, call, env, cule::env::step::report(head, env, rules));
        output.reset_due = head.episode.ended != 0 && call.mode == SAME_STEP;
        stack_moved = 1;
        store_head(b, env, head);
    }
    b.step_outputs[env] = output;
    if (shows) request = ShowRequest{env, head.newest, output.reset_due, stack_moved, reset_state, output};
}

// Runs the reset within a step (SAME_STEP), after the last observation of the episode has been written.
static __device__ void reset_within_step(const Batch& b, const Call& call, uint32_t env, const Workspace& workspace, ShowRequest& request) {
    StepOutput output = b.step_outputs[env];
    if (output.reset_due == 0) return;
    Head head;
    load_head(b, env, head);
    if (!cule::env::reset::can_copy_reset_state(head, rules_of(b, env), b.games[b.env_games[env]])) {
        b.queue[atomicAdd(b.queued, 1)] = env;
        return;
    }
    const uint32_t reset_state = reset_from_table<FormRunner>(b, env, head, output, workspace);
    store_head(b, env, head);
    b.step_outputs[env] = output;
    store_reset_figures(b, call, env, head, true);
    request = ShowRequest{env, head.newest, 0, 0, reset_state, output};
}

// More than the number of times that a warp meets others in a step.
PARL_CONST uint32_t GROUP_PHASES = 1 << 12;

// Blocks of 128 threads whose registers fit into a multiprocessor.
#ifndef STEP_BLOCKS
#define STEP_BLOCKS 2
#endif

// Steps every environment. Each block runs several groups of environments, one after the other.
extern "C" __global__ void __launch_bounds__(128, STEP_BLOCKS) parl_step(Batch b, Call call) {
    __shared__ ShowRequest requests[LANES];
    for (uint32_t group = blockIdx.x; group < b.threads / LANES; group += gridDim.x) {
        const uint32_t env = threadIdx.x < LANES ? b.order[group * LANES + threadIdx.x] : NO_ENV;
        // All environments of a group play the same game, and the first lane always has an environment.
        if (threadIdx.x == 0) {
            const uint32_t game = b.env_games[env];
            schedule_of_block() = WarpSchedule{b.records + b.games[game].rom_at, b.choices[2 * game], b.choices[2 * game + 1]};
        }
        // Each group begins with phases after all of those before.
        if (threadIdx.x == 0) set_phase(1 + group / gridDim.x * GROUP_PHASES);
        __syncthreads();
        if (threadIdx.x < LANES) requests[threadIdx.x].env = NO_ENV;
        if (env != NO_ENV) step_env(b, call, env, workspace_of(b, blockIdx.x, threadIdx.x), requests[threadIdx.x]);
        __syncthreads();
        if (threadIdx.x == 0) set_phase(0);
        show(b, call, requests);
        __syncthreads();
        if (call.mode != SAME_STEP) continue;
        if (threadIdx.x < LANES) requests[threadIdx.x].env = NO_ENV;
        if (env != NO_ENV) reset_within_step(b, call, env, workspace_of(b, blockIdx.x, threadIdx.x), requests[threadIdx.x]);
        __syncthreads();
        show(b, call, requests);
        __syncthreads();
    }
}
