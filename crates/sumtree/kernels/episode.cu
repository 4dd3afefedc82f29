// What a batch contains besides the drawn rows: the steps of sequences, and goals that an episode achieved.
#include "draw.cuh"

// ------------------------------------------------------------ sequences

struct ReplaySteps {
    uint64_t table;      // after the walk of T + 1 rows: T rows for the steps only, then the frames of all T + 1 stacks
    uint64_t discounts;  // f32 (T, B)
    uint64_t mask;       // bool (T, B)
    uint32_t count;      // B
};

// Computes from the walks of a batch, one thread per step: the slots of steps (NONE beyond the end), their frames,
// discounts, mask.
PARL_KERNEL(THREADS) parl_replay_steps(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplaySteps call) {
    const uint64_t count = call.count, all = (replay.n_step + 1) * count;
    uint32_t* table = at<uint32_t>(call.table);
    uint32_t* walk = table + WALK * count;
    uint32_t* steps = walk + all;
    uint32_t* frames = steps + replay.n_step * count;
    for (uint64_t k = thread(); k < all; k += threads()) {
        const uint64_t step = k / count, i = k - step * count;
        const uint64_t length = table[LENGTH * count + i];
        if (step > length) walk[k] = NONE;
        const uint32_t slot = walk[k];
        if (replay.frames > 1) {
            const uint32_t own = table[OWN * count + i];
            uint64_t sequence = 0;
            if (slot != NONE) {
                const Row row{own, state(replay, own)->x >> LAP_SHIFT};
                sequence = later_sequence(replay, sequence_of(replay, row), slot);
            }
            store_stack_slots(replay, frames + k, all, sequence, slot == NONE);
        }
        if (step == replay.n_step) continue;
        const bool is_there = step < length;
        double discount = 0.0;
        if (is_there && !flag(replay.terminated, slot)) discount = multiply_rn(replay.gamma, row_discount(replay, slot));
        steps[k] = is_there ? slot : NONE;
        at<float>(call.discounts)[k] = static_cast<float>(discount);
        at<uint8_t>(call.mask)[k] = is_there ? 1 : 0;
    }
}

// ------------------------------------------------------------ goals

// Numbers as in `structs.py`.
enum Strategy : uint32_t { FUTURE = 1, FINAL = 2, EPISODE = 3 };

struct ReplayGoals {
    uint64_t table;       // after the frames one more row: the number of goals, then the chosen one, then its slot
    uint64_t drawn;       // u32 weights, 0 for draws without a row
    uint64_t relabelled;  // bool
    uint32_t count;
};

PARL_FN uint32_t* goals_of(const Replay& replay, const ReplayGoals& call) {
    return at<uint32_t>(call.table) + static_cast<uint64_t>(FRAMES + 2 * replay.frames) * call.count;
}

// Goes through the rows with goals that the episode of the row in `slot` achieved: those before it (backwards), then
// those from it on. Returns the slot of number `which`, or how many there are if `which` is NONE. The same order as the
// CPU's `hindsight.rs`.
PARL_NOINLINE uint32_t goal_row(const Replay& replay, uint32_t slot, uint32_t which) {
    uint32_t found = 0;
    if (replay.strategy == EPISODE) {
        uint64_t here = sequence_of(replay, Row{slot, state(replay, slot)->x >> LAP_SHIFT}), earlier = 0;
        for (; find_previous(replay, here, earlier) == STORED; here = earlier, ++found) {
            if (found == which) return static_cast<uint32_t>((replay.goal_in_next ? here : earlier) % replay.slots);
        }
    }
    for (;; ++found) {
        // The row after the last step only carries the final observation.
        const bool is_last = !replay.goal_in_next && (flag(replay.terminated, slot) || flag(replay.truncated, slot));
        const uint32_t link = state(replay, slot)->y;
        if (replay.goal_in_next) {
            if (link == NO_LINK) return found;
            slot = link - 1;
        }
        if (found == which) return slot;
        if (replay.goal_in_next) continue;
        if (is_last || link == NO_LINK) return found + 1;
        slot = link - 1;
    }
}

// Counts the goals of each drawn row, one thread per row. Then the first warp of the last block chooses, row by row,
// with the numbers that follow those of the draws, as the CPU does.
PARL_KERNEL(THREADS) parl_replay_reach(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayGoals call) {
    uint32_t* goals = goals_of(replay, call);
    const uint32_t* table = at<uint32_t>(call.table);
    const uint64_t count = call.count;
    for (uint64_t i = thread(); i < count; i += threads()) {
        // Without the observation after it, it is unknown what the step achieved.
        const bool lacks = replay.goal_in_next && table[LAST * count + i] == table[NEXT * count + i];
        const bool is_drawn = at<uint32_t>(call.drawn)[i] != 0;
        goals[i] = is_drawn && !lacks ? goal_row(replay, table[OWN * count + i], NONE) : 0;
    }
    if (!is_last_block(replay.tree)) return;
    if (threadIdx.x == 0) words(replay.tree)[DONE] = 0;
    if (threadIdx.x >= LANES) return;
    Random random = load_rng(replay.tree);
    for (uint64_t start = 0; start < count; start += LANES) {
        const uint64_t i = start + lane();
        const uint32_t mine = i < count ? goals[i] : 0;
        uint32_t chosen = NONE;
        for (uint32_t k = 0; k < LANES && start + k < count; ++k) {
            const uint32_t there = __shfl_sync(ALL, mine, k);
            const double unit = static_cast<double>(next(random) >> 11) / 9007199254740992.0;
            if (unit >= replay.share || there == 0) continue;
            const uint32_t one = replay.strategy == FINAL ? there - 1 : static_cast<uint32_t>(below(random, there));
            if (lane() == k) chosen = one;
        }
        if (i < count) goals[i] = chosen;
    }
}

// Finds the slots of the chosen goals.
PARL_KERNEL(THREADS) parl_replay_goals(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayGoals call) {
    uint32_t* goals = goals_of(replay, call);
    for (uint64_t i = thread(); i < call.count; i += threads()) {
        const uint32_t chosen = goals[i];
        if (chosen != NONE) goals[i] = goal_row(replay, at<uint32_t>(call.table)[i], chosen);
        at<uint8_t>(call.relabelled)[i] = chosen != NONE ? 1 : 0;
    }
}
