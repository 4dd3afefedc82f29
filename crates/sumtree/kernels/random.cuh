// The CPU's random number generator (`src/rng.rs`), from any position of its sequence, so that the same seed gives the
// same draws.
//
// SplitMix64: number i of a sequence is a function of its seed and of i. Source: Steele, Lea & Flood, "Fast splittable
// pseudorandom number generators" (2014); Lemire, "Fast random integer generation in an interval" (2019) for `below`.
#pragma once
#include "tree.cuh"

struct Random {
    uint64_t state;
};

PARL_FN uint64_t next(Random& random) {
    random.state += 0x9e3779b97f4a7c15ull;
    uint64_t z = random.state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// The generator after `count` more numbers.
PARL_FN Random skipped(const Random& random, uint64_t count) {
    return Random{random.state + count * 0x9e3779b97f4a7c15ull};
}

// Number i of a sequence.
PARL_FN uint64_t number_of(uint64_t seed, uint64_t i) {
    Random random = skipped(Random{seed}, i);
    return next(random);
}

// True if Lemire's method rejects the number for `bound`; another one is drawn then.
PARL_NOINLINE bool is_rejected(uint64_t number, uint64_t bound) {
    const uint64_t low = number * bound;
    return low < bound && low < (0 - bound) % bound;
}

PARL_FN uint64_t below(Random& random, uint64_t bound) {
    uint64_t number = next(random);
    while (is_rejected(number, bound)) number = next(random);
    return __umul64hi(number, bound);
}

// ------------------------------------------------------------ targets

// How the draws of a batch depend on each other; numbers as in `structs.py`.
enum Mode : uint32_t { INDEPENDENT = 0, STRATIFIED = 1, SYSTEMATIC = 2 };

struct Draws {
    uint32_t mode;
    uint32_t count;  // of the batch
    uint32_t rank;   // the first stratum; `learners` is the distance to the next
    uint32_t learners;
};

// (high * 2^64 + low) / by, the quotient below 2^64.
PARL_NOINLINE uint64_t divide(uint64_t high, uint64_t low, uint64_t by) {
    if (high == 0) return low / by;
    uint64_t quotient = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < 64; ++i) {
        const bool carry = (high >> 63) != 0;
        high = high << 1 | low >> 63;
        low <<= 1;
        quotient <<= 1;
        if (carry || high >= by) {
            high -= by;
            quotient |= 1;
        }
    }
    return quotient;
}

// The target of draw `i`, from its offset below the total. Stratum j of S contains the points j * total..(j + 1) *
// total of a scale S times as fine as the weights, so each unit of weight has exactly S points.
PARL_FN uint64_t target_of(const Draws& draws, uint32_t i, uint64_t offset, uint64_t total) {
    if (draws.mode == INDEPENDENT) return offset;
    const uint64_t stratum = draws.rank + static_cast<uint64_t>(i) * draws.learners;
    const uint64_t strata = static_cast<uint64_t>(draws.count) * draws.learners;
    const uint64_t low = stratum * total;
    uint64_t high = __umul64hi(stratum, total);
    const uint64_t point = low + offset;
    high += point < low ? 1 : 0;
    return divide(high, point, strata);
}
