// Resets: one thread per environment. A file of its own: machine code for it takes longer than for steps.
#include "layout.cuh"

using cule::lane::Extra;
using cule::lane::Figures;
using cule::lane::Head;
using cule::lane::LaneGame;
using cule::lane::LaneRules;

// Resets: those that are due, or those the caller asks for, with their seeds.
extern "C" __global__ void parl_reset(Batch b, Call call) {
    const uint32_t thread = thread_number();
    if (thread >= b.threads) return;
    const uint32_t env = b.order[thread];
    if (env == NOBODY) return;
    Extra extra = b.extras[env];
    if (call.mode != RESET_ASKED && extra.due == 0) return;
    Head head;
    load_head(b, env, head);
    const LaneRules& rules = *b.rules;
    const LaneGame& game = b.games[b.playing[env]];
    if (call.mode == RESET_ASKED && call.mask != nullptr && call.mask[env] == 0) {
        if (head.ready == 0) fault(b, FAULT_NOT_RESET, env);
        b.extras[env].push = cule::lane::PUSH_NOTHING;
        give_figures(b, call, env, cule::lane::figures(head, env));
        return;
    }
    if (call.mode == RESET_ASKED && call.seeds != nullptr && call.seeds[env] >= 0) {
        cule::lane::seed(head, b.randoms[env], static_cast<uint64_t>(call.seeds[env]), rules.noops);
    }
    Slice<const uint8_t> boot(b.boot_pictures + static_cast<uint64_t>(b.playing[env]) * b.boot_bytes, b.boot_bytes);
    cule::lane::reset::reset(head, extra, b.randoms[env], board_of(b, env), kept_of(b, env), boot, rom_of(b, game),
                             rules, game);
    if (extra.failed != 0) fault(b, FAULT_MODE, env);
    store_head(b, env, head);
    b.extras[env] = extra;
    const Figures figures = cule::lane::figures(head, env);
    if (call.mode != RESET_WITHIN) {
        give_figures(b, call, env, figures);
        return;
    }
    // Lives, frame number and episode frame number are those after the reset.
    for (uint32_t k = 2; k < 5; ++k) call.numbers[static_cast<uint64_t>(k) * b.count + env] = figures.number[k];
}
