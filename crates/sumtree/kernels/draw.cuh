// A draw of the replay: the window that starts at a row, what a batch stores of it, and its importance weight.
#pragma once
#include "replay.cuh"

// Rows of the table that draws fill for the gather kernels, each with one u32 per draw: the slots of its row, of the
// last row of its window and of the next row; then the frames of its stack, newest first, and those of the next stack.
// For a sequence: its row and its number of steps; then the slots of its steps and of the row after them.
enum Column : uint32_t { OWN = 0, LAST = 1, NEXT = 2, FRAMES = 3, LENGTH = 1, WALK = 3 };

struct ReplayDraw {
    Draws draws;
    uint64_t table;       // u32
    uint64_t drawn;       // u32 weights
    uint64_t indices;     // i64
    uint64_t tickets;     // i64
    uint64_t weights;     // f32
    uint64_t discounts;   // f32; 0 for none
    uint64_t rewards;     // f32 or f64 as the column; 0 for none, as the next two
    uint64_t terminated;  // bool
    uint64_t truncated;   // bool
    uint64_t beta_at;     // address of an f64, 0 for `beta`
    double beta;
};

struct Transition {
    double reward, discount;
    uint32_t last, next, steps;
    bool terminated, truncated, is_lost;
};

// Follows the window of a row, in the same order of operations as the CPU's `draw.rs`. Stores the slots of its steps
// and of the row after them in `walk`, `stride` apart, unless `walk` is null.
PARL_FN Transition follow_window(const Replay& replay, uint32_t slot, uint32_t* walk = nullptr, uint64_t stride = 0) {
    Transition t{0.0, 1.0, slot, slot, 1, false, false, false};
    if (!replay.steps) return t;
    for (uint32_t step = 1;; ++step) {
        if (walk != nullptr) walk[(step - 1) * stride] = t.last;
        const double reward = column_real(replay.reward, replay.reward_is_double, t.last);
        t.reward = add_rn(t.reward, multiply_rn(t.discount, reward));
        t.discount = multiply_rn(t.discount, multiply_rn(replay.gamma, row_discount(replay, t.last)));
        t.terminated = flag(replay.terminated, t.last);
        t.truncated = flag(replay.truncated, t.last);
        const uint32_t link = state(replay, t.last)->y;
        if (t.terminated || t.truncated || step == replay.n_step) {
            // There is no bootstrap after termination; the last observation replaces the final one.
            t.next = link == NO_LINK ? t.last : link - 1;
            t.is_lost = link == NO_LINK && !t.terminated && replay.rebuilds != 0;
            if (t.terminated) t.discount = 0.0;
            t.steps = step;
            if (walk != nullptr) walk[step * stride] = t.next;
            return t;
        }
        if (link == NO_LINK) {
            t.is_lost = true;
            return t;
        }
        t.last = link - 1;
    }
}

// Stores the slots of the stack that ends in row `sequence`, newest first, `stride` apart. Frames before its episode
// are padding.
PARL_NOINLINE void store_stack_slots(const Replay& replay, uint32_t* to, uint64_t stride, uint64_t sequence,
                                     bool is_lost) {
    PreviousRow previous = is_lost ? OVERWRITTEN : STORED;
    for (uint32_t frame = 0; frame < replay.frames; ++frame, to += stride) {
        const bool is_there = previous == STORED || (replay.pads_first != 0 && !is_lost);
        *to = is_there ? static_cast<uint32_t>(sequence % replay.slots) : NONE;
        if (previous == STORED) previous = find_previous(replay, sequence, sequence);
    }
}

struct ReplayDrawWriter {
    const Replay& replay;
    const ReplayDraw& call;

    __device__ void store_slot(uint32_t row, uint32_t i, uint32_t slot) {
        *slot_address(row, i) = slot;
    }

    __device__ uint32_t* slot_address(uint32_t row, uint32_t i) {
        return at<uint32_t>(call.table) + static_cast<uint64_t>(row) * call.draws.count + i;
    }

    // True if goals are drawn after the rows, with the numbers that follow.
    __device__ bool draws_later() { return replay.strategy != 0; }

    // All lanes compute the same; the first one writes.
    PARL_NOINLINE_MEMBER bool store_draw(uint32_t i, const Drawn& drawn) {
        const uint32_t slot = drawn.leaf;
        const uint4 own = *state(replay, slot);
        const Row row{slot, own.x >> LAP_SHIFT};
        const bool is_there = (own.x & (OPEN | SAMPLEABLE)) == (OPEN | SAMPLEABLE);
        const bool is_sequence = replay.period != 0;
        uint32_t* walk = is_sequence && lane() == 0 ? slot_address(WALK, i) : nullptr;
        const Transition t = follow_window(replay, slot, walk, call.draws.count);
        const uint64_t sequence = replay.frames > 1 ? sequence_of(replay, row) : 0;
        const bool is_lost = !is_there || t.is_lost || (replay.frames > 1 && !has_whole_stack(replay, sequence));
        if (lane() == 0) {
            at<uint32_t>(call.drawn)[i] = is_lost ? 0 : drawn.weight;
            at<int64_t>(call.indices)[i] = slot;
            at<uint64_t>(call.tickets)[i] = ticket_of(replay, row);
            store_slot(OWN, i, slot);
            store_slot(LAST, i, t.last);
            store_slot(NEXT, i, t.next);
            if (is_sequence) {
                store_slot(LENGTH, i, is_lost ? 0 : t.steps);
            } else if (replay.frames > 1) {
                const uint64_t stride = call.draws.count;
                store_stack_slots(replay, slot_address(FRAMES, i), stride, sequence, is_lost);
                const uint64_t after = later_sequence(replay, sequence, t.next);
                store_stack_slots(replay, slot_address(FRAMES + replay.frames, i), stride, after, is_lost);
            }
            store_step(i, t);
        }
        return !is_lost;
    }

    __device__ void store_step(uint32_t i, const Transition& t) {
        if (call.discounts != 0) at<float>(call.discounts)[i] = static_cast<float>(t.discount);
        if (call.rewards != 0 && replay.reward_is_double) at<double>(call.rewards)[i] = t.reward;
        if (call.rewards != 0 && !replay.reward_is_double) at<float>(call.rewards)[i] = static_cast<float>(t.reward);
        if (call.terminated != 0) at<uint8_t>(call.terminated)[i] = t.terminated ? 1 : 0;
        if (call.truncated != 0) at<uint8_t>(call.truncated)[i] = t.truncated ? 1 : 0;
    }

    __device__ bool is_lost(uint32_t i) { return at<uint32_t>(call.drawn)[i] == 0; }

    // Result of a draw without a row: weight 0, `NO_TICKET`, zeros for the row.
    __device__ void store_empty(uint32_t i) {
        if (lane() != 0) return;
        at<uint32_t>(call.drawn)[i] = 0;
        at<int64_t>(call.indices)[i] = 0;
        at<uint64_t>(call.tickets)[i] = NO_TICKET;
        const uint32_t rows = replay.period != 0 ? WALK + 1 : FRAMES + 2 * replay.frames;
        for (uint32_t row = 0; row < rows; ++row) store_slot(row, i, NONE);
        if (replay.period != 0) store_slot(LENGTH, i, 0);
        store_step(i, Transition{0.0, 0.0, 0, 0, 0, false, false, false});
    }

    __device__ void finish(uint64_t total) {
        store_importance_weights();
        if (threadIdx.x == 0 && total != 0) count(replay.tree, SAMPLED, call.draws.count);
    }

    // Importance weights, by a whole block: (probability of the row / smallest probability) ** -beta. The smallest
    // probability is that of the batch, or a bound for all rows.
    __device__ void store_importance_weights() {
        __shared__ uint32_t least;
        if (threadIdx.x == 0) least = NONE;
        __syncthreads();
        const uint32_t* drawn = at<uint32_t>(call.drawn);
        uint32_t mine = NONE;
        for (uint32_t i = threadIdx.x; i < call.draws.count; i += blockDim.x) {
            if (drawn[i] != 0 && drawn[i] < mine) mine = drawn[i];
        }
        if (mine != NONE) atomicMin(&least, mine);
        __syncthreads();
        double smallest = least;
        if (replay.is_global != 0) {
            for (uint32_t size = 1; size < SIZES; ++size) {
                if (words(replay.tree)[HISTOGRAM + size] == 0) continue;
                const double bound = static_cast<double>(1ull << (size - 1));
                if (bound < smallest) smallest = bound;
                break;
            }
        }
        const double beta = call.beta_at != 0 ? *at<double>(call.beta_at) : call.beta;
        float* weights = at<float>(call.weights);
        for (uint32_t i = threadIdx.x; i < call.draws.count; i += blockDim.x) {
            weights[i] = drawn[i] == 0 ? 0.0f : static_cast<float>(pow(divide_rn(smallest, drawn[i]), beta));
        }
    }
};
