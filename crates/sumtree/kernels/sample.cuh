// A batch of draws: 32 per block, one warp each. The caller's `DrawWriter` defines what is stored: `store_draw` stores
// draw i and returns whether it is valid, all threads of the last block call `finish` after all draws, and
// `draws_later` returns whether a later launch draws more numbers of this call.
//
// The draws are those of the CPU, which uses one number of the generator after the other. Two cases break that order,
// and the last block corrects them in order: a rejected number (probability about total / 2^64 each) shifts all later
// ones by one; and an invalid draw is redrawn after the batch.
#pragma once
#include "random.cuh"

constexpr uint32_t DRAWS_PER_BLOCK = 32;
constexpr uint32_t SAMPLE_THREADS = DRAWS_PER_BLOCK * LANES;
// Redraws before the call gives up.
constexpr uint32_t REDRAWS_MAX = 10000;

// True if this block is the last one of its launch to end; it can then read what all blocks wrote. Called by all
// threads of the block.
PARL_FN bool is_last_block(const Tree& tree) {
    __shared__ uint32_t is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint64_t before = atomicAdd(&words(tree)[DONE], static_cast<uint64_t>(1));
        is_last = before + 1 == gridDim.x ? 1 : 0;
    }
    __syncthreads();
    __threadfence();
    return is_last != 0;
}

// Seed of the generator of the current call.
PARL_FN uint64_t call_seed(const Tree& tree) {
    const uint64_t* word = words(tree);
    if (!tree.is_chained) return word[GENERATOR] ^ word[CALLS] * 0xd1342543de82ef95ull;
    return number_of(word[GENERATOR], 0);
}

// Stores the generator's state for a later launch of this call. Called by one thread.
PARL_FN void store_rng(const Tree& tree, const Random& random) {
    words(tree)[RNG_AFTER_DRAWS] = random.state;
}
PARL_FN Random load_rng(const Tree& tree) {
    return Random{words(tree)[RNG_AFTER_DRAWS]};
}

PARL_FN void end_call(const Tree& tree) {
    uint64_t* word = words(tree);
    if (tree.is_chained) word[GENERATOR] = skipped(Random{word[GENERATOR]}, 1).state;
    word[CALLS] += 1;
    word[DONE] = 0;
    word[CORRECTIONS] = 0;
}

// `CORRECTIONS` counts invalid draws in its lower half and rejected numbers in its upper half.
constexpr uint64_t REJECTED = 1ull << 32;

// In the last block: repeats all draws, one number after the other. `targets` has room for one u64 per draw.
template <class DrawWriter>
PARL_FN void draw_in_order(const Tree& tree, const Draws& draws, DrawWriter& writer, uint64_t* targets, Random& random) {
    uint64_t seen, prefix;
    const uint64_t total = read_top(tree, seen, prefix);
    for (uint32_t i = 0; i < draws.count; ++i) {
        const uint64_t offset = below(random, total);
        if (threadIdx.x == 0) targets[i] = offset;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x / LANES; i < draws.count; i += DRAWS_PER_BLOCK) {
        const uint64_t target = target_of(draws, i, targets[i], total);
        writer.store_draw(i, descend(tree, target, seen, prefix));
    }
    __syncthreads();
}

// Redraws invalid draws, in order. Called by the first warp.
template <class DrawWriter>
PARL_FN void redraw_invalid(const Tree& tree, const Draws& draws, DrawWriter& writer, Random& random) {
    uint64_t seen, prefix;
    const uint64_t total = read_top(tree, seen, prefix);
    uint32_t redrawn = 0;
    for (uint32_t i = 0; i < draws.count; ++i) {
        bool lost = writer.is_lost(i);
        while (lost && redrawn < REDRAWS_MAX) {
            redrawn += 1;
            lost = !writer.store_draw(i, descend(tree, below(random, total), seen, prefix));
        }
    }
    if (lane() == 0) count(tree, REDRAWN, redrawn);
    if (lane() == 0 && redrawn >= REDRAWS_MAX) count(tree, EMPTY, 1);
}

template <class DrawWriter>
PARL_FN void sample(const Tree& tree, const Draws& draws, DrawWriter& writer, uint64_t* targets) {
    const uint32_t warp = threadIdx.x / LANES;
    const uint32_t i = blockIdx.x * DRAWS_PER_BLOCK + warp;
    Random random{call_seed(tree)};
    uint64_t seen, prefix;
    const uint64_t total = read_top(tree, seen, prefix);
    if (total == 0) {
        if (i < draws.count) writer.store_empty(i);
    } else {
        uint64_t offset = 0;
        bool rejected = false;
        if (draws.mode == SYSTEMATIC) {
            offset = below(random, total);
        } else {
            const uint64_t number = number_of(random.state, i);
            rejected = i < draws.count && is_rejected(number, total);
            offset = __umul64hi(number, total);
        }
        if (i < draws.count) {
            const uint64_t target = target_of(draws, i, offset, total);
            const bool lost = !writer.store_draw(i, descend(tree, target, seen, prefix));
            if (lane() == 0 && (rejected || lost)) count(tree, CORRECTIONS, (rejected ? REJECTED : 0) + (lost ? 1 : 0));
        }
    }
    if (!is_last_block(tree)) return;
    const uint64_t corrections = total == 0 ? 0 : words(tree)[CORRECTIONS];
    if (corrections != 0 || writer.draws_later()) {
        // `random` is after the one number of systematic draws, and at the start for the other modes.
        if (corrections >= REJECTED) {
            draw_in_order(tree, draws, writer, targets, random);
        } else if (draws.mode != SYSTEMATIC) {
            random = skipped(random, draws.count);
        }
        if (warp == 0 && corrections != 0) redraw_invalid(tree, draws, writer, random);
        if (threadIdx.x == 0 && writer.draws_later()) store_rng(tree, random);
        __syncthreads();
    }
    writer.finish(total);
    __syncthreads();
    if (threadIdx.x == 0) {
        if (total == 0 && draws.count > 0) count(tree, EMPTY, 1);
        end_call(tree);
    }
}
