// Steps: one thread per environment, from its first frame to its last. The plain form, and the reference of every
// other one.
#include "layout.cuh"

using cule::lane::Extra;
using cule::lane::Head;
using cule::lane::LaneGame;
using cule::lane::LaneRules;

// A step of every environment; an ended one only says that its reset is due.
extern "C" __global__ void parl_step(Batch b, Call call) {
    const uint32_t thread = thread_number();
    if (thread >= b.threads) return;
    const uint32_t env = b.order[thread];
    if (env == NOBODY) return;
    Extra extra = b.extras[env];
    extra.push = cule::lane::PUSH_NOTHING;
    extra.due = 0;
    Head head;
    load_head(b, env, head);
    const LaneRules& rules = *b.rules;
    const LaneGame& game = b.games[b.playing[env]];
    if (head.ready == 0) {
        fault(b, FAULT_NOT_RESET, env);
    } else if (head.episode.ended != 0 && call.mode == DISABLED) {
        fault(b, FAULT_ENDED, env);
    } else if (head.episode.ended != 0 && call.mode == NEXT_STEP) {
        extra.due = 1;
    } else {
        const int64_t index = call.wide_actions != 0 ? static_cast<const int64_t*>(call.actions)[env]
                                                     : static_cast<const int32_t*>(call.actions)[env];
        uint32_t code = 255;
        if (index >= 0 && index < 18) code = cule::step::action_code(game.actions, static_cast<uint32_t>(index));
        if (code == 255) {
            fault(b, FAULT_ACTION, env);
            code = cule::env::NOOP;
        }
        Slice<cule::machine::input::Input> inputs(b.inputs + static_cast<uint64_t>(env) * b.inputs_per_env,
                                                  b.inputs_per_env);
        cule::lane::advance::advance(head, extra, b.randoms[env], board_of(b, env), kept_of(b, env), inputs,
                                     rom_of(b, game), rules, game, cule::env::full(code));
        give_figures(b, call, env, cule::lane::advance::report(head, env, rules));
        extra.due = head.episode.ended != 0 && call.mode == SAME_STEP;
        store_head(b, env, head);
    }
    b.extras[env] = extra;
}
