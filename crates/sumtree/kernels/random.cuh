// The CPU's generator, from any place of its sequence, so that the same seed gives the same draws.
//
// xoshiro256++ 1.0, seeded through SplitMix64. Source: Blackman & Vigna, "Scrambled linear pseudorandom number
// generators" (2021); Lemire, "Fast random integer generation in an interval" (2019). Its step is linear over GF(2), so a
// jump is a product of its state with a matrix of 256 x 256 bits: `python/parl/replay/device/jump.py` makes those of
// 32 * d * 16^k steps.
#pragma once
#include "tree.cuh"

struct Random {
    uint64_t s[4];
};

PARL_FN uint64_t splitmix(uint64_t& state) {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

PARL_FN Random seeded(uint64_t seed) {
    Random random;
    for (uint32_t i = 0; i < 4; ++i) random.s[i] = splitmix(seed);
    return random;
}

PARL_FN uint64_t rotate(uint64_t word, uint32_t by) { return word << by | word >> (64 - by); }

PARL_FN uint64_t next(Random& random) {
    uint64_t* s = random.s;
    const uint64_t out = rotate(s[0] + s[3], 23) + s[0];
    const uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return out;
}

// Whether a number has one preimage too many below `bound` and is drawn again.
PARL_ONCE bool is_surplus(uint64_t number, uint64_t bound) {
    const uint64_t low = number * bound;
    return low < bound && low < (0 - bound) % bound;
}

PARL_FN uint64_t below(Random& random, uint64_t bound) {
    uint64_t number = next(random);
    while (is_surplus(number, bound)) number = next(random);
    return __umul64hi(number, bound);
}

// Digits of a jump, and matrices of each: 1 to 15 times 16^k blocks of 32 steps.
constexpr uint32_t JUMP_DIGITS = 3, JUMP_BASE = 16, MATRIX_WORDS = 256 * 8;

// Moves a warp's generator on by `blocks` times 32 steps, `blocks` below 16^3. All lanes are here and alike. Lane l makes
// bits 32 k + l of the state; a matrix lies as [k][half][lane] of four words.
PARL_ONCE Random jumped(const Tree& tree, const Random& random, uint32_t blocks) {
    uint32_t s[8];
    for (uint32_t i = 0; i < 4; ++i) {
        s[2 * i] = static_cast<uint32_t>(random.s[i]);
        s[2 * i + 1] = static_cast<uint32_t>(random.s[i] >> 32);
    }
#pragma unroll 1
    for (uint32_t digit = 0; digit < JUMP_DIGITS; ++digit, blocks /= JUMP_BASE) {
        const uint32_t times = blocks % JUMP_BASE;
        if (times == 0) continue;
        const uint32_t which = digit * (JUMP_BASE - 1) + times - 1;
        const uint4* matrix = at<uint4>(tree.jumps) + which * (MATRIX_WORDS / 4);
        uint32_t moved[8];
        for (uint32_t k = 0; k < 8; ++k) {
            const uint4 a = matrix[(2 * k) * LANES + lane()], b = matrix[(2 * k + 1) * LANES + lane()];
            const uint32_t bits = (a.x & s[0]) ^ (a.y & s[1]) ^ (a.z & s[2]) ^ (a.w & s[3]) ^ (b.x & s[4]) ^
                                  (b.y & s[5]) ^ (b.z & s[6]) ^ (b.w & s[7]);
            moved[k] = __ballot_sync(ALL, (__popc(bits) & 1) != 0);
        }
        for (uint32_t k = 0; k < 8; ++k) s[k] = moved[k];
    }
    Random out;
    for (uint32_t i = 0; i < 4; ++i) out.s[i] = s[2 * i] | static_cast<uint64_t>(s[2 * i + 1]) << 32;
    return out;
}

// Numbers 32 b to 32 b + 31 of the sequence, one to a lane.
PARL_FN uint64_t numbers(const Tree& tree, const Random& random, uint32_t block) {
    Random mine = jumped(tree, random, block);
    uint64_t number = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < LANES; ++i) {
        const uint64_t one = next(mine);
        if (lane() == i) number = one;
    }
    return number;
}

// ------------------------------------------------------------ targets

// How the draws of a batch hang together; numbers as in `structs.py`.
enum Mode : uint32_t { INDEPENDENT = 0, STRATIFIED = 1, SYSTEMATIC = 2 };

struct Draws {
    uint32_t mode;
    uint32_t count;  // of the batch
    uint32_t rank;   // the first stratum, and how many to go on by
    uint32_t learners;
};

// (high * 2^64 + low) / by, the quotient below 2^64.
PARL_ONCE uint64_t divide(uint64_t high, uint64_t low, uint64_t by) {
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

// Draw `i` from its offset below the total. Stratum j of S holds the points j * total..(j + 1) * total of a line S times as
// fine as the weights: every unit of weight is covered by exactly S points.
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
