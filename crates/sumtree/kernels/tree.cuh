// The tree: u32 leaves, u64 sums of 32 entries of the level below, up to one node of at most 32 sums. A warp processes
// a node.
//
// All sums are exact, because integer additions commute. README.md describes the layout, what each launch writes, and
// why there are no races. `python/parl/replay/cuda/structs.py` mirrors the structs.
#pragma once
#include "prelude.cuh"

constexpr uint32_t LEVELS_MAX = 7;  // 32^6 * 4 leaves are 2^32.
constexpr uint32_t MAX_WEIGHT = (1u << 27) - 1;  // The sum of 32 of them fits in u32.
constexpr uint32_t SIZES = 33;
// In place of a weight: the largest weight at the time when it is stored.
constexpr uint32_t LARGEST = 0xffffffffu;

// Words of 64 bits beside the tree. Counters only grow.
enum Word : uint32_t {
    CALLS = 1,      // sample calls so far
    GENERATOR = 2,  // state of the generator that seeds each call; or a number that is mixed with the call's number
    LARGEST_EVER = 6,
    SATURATED = 7,
    DONE = 8,       // blocks of a launch that have ended
    CORRECTIONS = 9,  // draws of a launch that need its last block
    BAD_PRIORITY = 10,
    BAD_INDEX = 11,
    EMPTY = 12,     // sample calls that found nothing
    HISTOGRAM = 16, // one for each size of weights
    // Of replays.
    FIRST = 49,     // sequence number of the first row of this call
    COUNT = 50,     // rows of this call, final observations included
    RESERVED = 51,  // sequence number of the next row
    HORIZON = 52,   // the oldest sequence number whose row is intact
    NEWEST_LAP = 53,
    LISTED = 54,    // rows that became sampleable in this call
    ADDED = 55,
    UPDATED = 56,
    STALE = 57,
    SAMPLED = 58,
    REDRAWN = 59,
    READY = 60,
    BAD_ENV = 61,
    NO_FINAL = 62,
    BAD_DISCOUNT = 63,
    // Of a mixture.
    NEWEST_ROWS = 64,      // rows that count as newest
    NEWEST_READY = 65,     // how many of these can be drawn
    NEWEST_DRAWS = 66,     // draws among them
    UNIFORM_DRAWS = 67,    // uniform draws among all rows
    FIRST_SEQUENCE = 68,   // sequence number of the first row ever; not 0 after a load into another capacity
    BAD_REWARD = 69,
    RNG_AFTER_DRAWS = 72,  // state of the generator after the draws of a call, for its goals
    WORDS = 76,
};

struct Tree {
    uint64_t levels[LEVELS_MAX];  // addresses, leaves first
    uint64_t words;
    uint64_t stamps;  // one u32 for each leaf, 0 between launches
    double units;     // weight per priority 1
    uint32_t depth;   // levels
    uint32_t capacity;
    uint32_t is_chained;  // each call's seed comes from a generator, not from its number
    uint32_t unused;
};

PARL_FN uint64_t* words(const Tree& tree) { return at<uint64_t>(tree.words); }

PARL_FN void count(const Tree& tree, uint32_t word, uint64_t by) {
    if (by != 0) atomicAdd(&words(tree)[word], by);
}

// Counts the lanes of a warp in which `is` is true. Called by all lanes.
PARL_NOINLINE void count_lanes(const Tree& tree, uint32_t word, bool is) {
    const uint32_t lanes = __ballot_sync(ALL, is);
    if (lane() == 0) count(tree, word, static_cast<uint64_t>(__popc(lanes)));
}

// ------------------------------------------------------------ draws

struct Drawn {
    uint32_t leaf;
    uint32_t weight;
};

// Reads the sums of the top, one per lane, and computes their prefix sums. Returns the total in all lanes.
PARL_FN uint64_t read_top(const Tree& tree, uint64_t& seen, uint64_t& prefix) {
    seen = at<uint64_t>(tree.levels[tree.depth - 1])[lane()];
    prefix = prefix_sum(seen);
    return __shfl_sync(ALL, prefix, LANES - 1);
}

// Finds the leaf that contains a prefix sum below the total. Enters the first child whose running sum is strictly above
// the residual, so never a child of sum 0.
PARL_NOINLINE Drawn descend(const Tree& tree, uint64_t target, uint64_t seen, uint64_t prefix) {
    uint32_t node = 0;
    for (uint32_t level = tree.depth - 1;; --level) {
        const uint32_t above = __ballot_sync(ALL, prefix > target);
        // Sums are exact, so there is one; without it the descent would still stay inside the tree.
        const uint32_t child = above != 0 ? static_cast<uint32_t>(__ffs(static_cast<int>(above))) - 1 : LANES - 1;
        if (level == 0) return Drawn{node * LANES + child, static_cast<uint32_t>(__shfl_sync(ALL, seen, child))};
        target -= __shfl_sync(ALL, prefix - seen, child);
        node = node * LANES + child;
        const uint64_t entry = static_cast<uint64_t>(node) * LANES + lane();
        seen = level == 1 ? at<uint32_t>(tree.levels[0])[entry] : at<uint64_t>(tree.levels[level - 1])[entry];
        prefix = prefix_sum(seen);
    }
}

// ------------------------------------------------------------ updates

// Adds `delta` to the sums above a leaf; a lane without a leaf passes `NONE`. Called by all lanes. If the leaves of a
// warp have the same parent, as neighbors do, adds once.
PARL_FN void add_path(const Tree& tree, uint32_t leaf, uint64_t delta) {
    const uint32_t with = __ballot_sync(ALL, leaf != NONE && delta != 0);
    if (with == 0) return;
    const uint32_t leader = static_cast<uint32_t>(__ffs(static_cast<int>(with))) - 1;
    const bool has = (with >> lane() & 1) != 0;
    uint32_t node = leaf;
    for (uint32_t level = 1; level < tree.depth; ++level) {
        node /= LANES;
        uint64_t* sums = at<uint64_t>(tree.levels[level]);
        const uint32_t common = __shfl_sync(ALL, node, leader);
        if (__all_sync(ALL, !has || node == common)) {
            const uint64_t all = sum<uint64_t>(has ? delta : 0);
            if (lane() == leader) atomicAdd(&sums[common], all);
        } else if (has) {
            atomicAdd(&sums[node], delta);
        }
    }
}

// Number of significant bits; 0 for 0.
PARL_FN uint32_t size_of(uint32_t weight) { return LANES - static_cast<uint32_t>(__clz(static_cast<int>(weight))); }

// Adds `by` to the counter of each lane's size, 0 for none, with one addition per distinct size. Called by all lanes.
PARL_FN void add_to_histogram(const Tree& tree, uint32_t size, int64_t by) {
    const uint32_t alike = __match_any_sync(ALL, size);
    const bool leads = static_cast<uint32_t>(__ffs(static_cast<int>(alike))) - 1 == lane();
    if (leads && size != 0) count(tree, HISTOGRAM + size, static_cast<uint64_t>(by * __popc(alike)));
}

// Sets the weight of one leaf per lane, `NONE` for none; leaves of a launch are distinct. Called by all lanes.
PARL_NOINLINE void set_weight(const Tree& tree, uint32_t leaf, uint32_t weight) {
    uint64_t delta = 0;
    uint32_t from = 0, to = 0;
    if (leaf != NONE) {
        uint32_t* cell = &at<uint32_t>(tree.levels[0])[leaf];
        const uint32_t old = *cell;
        *cell = weight;
        delta = static_cast<uint64_t>(weight) - static_cast<uint64_t>(old);
        from = size_of(old);
        to = size_of(weight);
    }
    if (!__all_sync(ALL, from == to)) {
        add_to_histogram(tree, from == to ? 0 : from, -1);
        add_to_histogram(tree, from == to ? 0 : to, 1);
    }
    add_path(tree, leaf, delta);
}

// Of several items of a launch that set the same leaf, the last one counts: each writes its position + 1, the largest
// stays.
PARL_FN void stamp(const Tree& tree, uint32_t leaf, uint32_t item) {
    atomicMax(&at<uint32_t>(tree.stamps)[leaf], item + 1);
}

// In a later launch: returns true for the item that counts for its leaf, and clears the stamp. Other items match
// neither the stamp nor 0.
PARL_FN bool is_last_update(const Tree& tree, uint32_t leaf, uint32_t item) {
    uint32_t* cell = &at<uint32_t>(tree.stamps)[leaf];
    if (*cell != item + 1) return false;
    *cell = 0;
    return true;
}

// An array of (n,) floats, f32 or f64, or one value for all.
struct Reals {
    uint64_t address;
    uint32_t is_double;
    uint32_t is_scalar;
};

PARL_FN double real(const Reals& reals, uint64_t i) {
    if (reals.is_scalar) i = 0;
    return reals.is_double ? at<double>(reals.address)[i] : static_cast<double>(at<float>(reals.address)[i]);
}
