// The tree: u32 leaves, u64 sums of 32 of the level below, up to one node of at most 32 sums. A warp is a node.
//
// All sums are exact: they are made of integer adds, which commute. Layout, who writes what, and why nothing races:
// README.md. `python/parl/replay/cuda/structs.py` mirrors the structs.
#pragma once
#include "prelude.cuh"

constexpr uint32_t LEVELS_MAX = 7;  // 32^6 * 4 leaves are 2^32.
constexpr uint32_t MAX_WEIGHT = (1u << 27) - 1;  // 32 of them sum within u32.
constexpr uint32_t SIZES = 33;
// Leaves a weight to "the largest so far, when it is stored".
constexpr uint32_t LARGEST = 0xffffffffu;

// Words of 64 bits beside the tree. Counters only grow.
enum Word : uint32_t {
    CALLS = 1,      // sample calls so far
    GENERATOR = 2,  // state of the generator that seeds each call; or a number that is mixed with that of the call
    LARGEST_EVER = 6,
    SATURATED = 7,
    DONE = 8,       // blocks of a launch that are done
    ODD = 9,        // draws of a launch that need its last block
    BAD_PRIORITY = 10,
    BAD_INDEX = 11,
    EMPTY = 12,     // sample calls that found nothing
    HISTOGRAM = 16, // one for each size of weights
    // Of replays.
    FIRST = 49,     // sequence number of the first row of this call
    COUNT = 50,     // rows of this call, final observations included
    RESERVED = 51,  // sequence number of the next row
    HORIZON = 52,   // the oldest sequence number whose row is whole
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
    YOUNG = 64,        // rows that count as newest
    YOUNG_READY = 65,  // of which so many can be drawn
    OF_NEWEST = 66,    // draws among them
    OF_ALL = 67,       // uniform draws among all rows
    BEGINNING = 68,    // sequence number of the first row ever; not 0 after a load into another capacity
    BAD_REWARD = 69,
    AFTER = 72,        // state of the generator after the draws of a call, for its goals
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

// Counts what is true in lanes of a warp; all lanes are here.
PARL_ONCE void count_lanes(const Tree& tree, uint32_t word, bool is) {
    const uint32_t lanes = __ballot_sync(ALL, is);
    if (lane() == 0) count(tree, word, static_cast<uint64_t>(__popc(lanes)));
}

// ------------------------------------------------------------ draws

struct Drawn {
    uint32_t leaf;
    uint32_t weight;
};

// The sums of the top, one to a lane, and their prefix; the total in all lanes.
PARL_FN uint64_t read_top(const Tree& tree, uint64_t& seen, uint64_t& prefix) {
    seen = at<uint64_t>(tree.levels[tree.depth - 1])[lane()];
    prefix = prefix_sum(seen);
    return __shfl_sync(ALL, prefix, LANES - 1);
}

// The leaf in which a prefix sum below the total falls. The first child whose running sum is above what is left, strictly:
// a child of sum 0 is never entered.
PARL_ONCE Drawn descend(const Tree& tree, uint64_t target, uint64_t seen, uint64_t prefix) {
    uint32_t node = 0;
    for (uint32_t level = tree.depth - 1;; --level) {
        const uint32_t above = __ballot_sync(ALL, prefix > target);
        // Sums are exact, so there is one; without it the walk still stays inside.
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

// Adds `delta` to the sums above a leaf; a lane without one gives `NONE`. All lanes are here. Where a warp's leaves have
// one parent in common, as neighbours do, it adds once.
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

// Significant bits: 0 for 0.
PARL_FN uint32_t size_of(uint32_t weight) { return LANES - static_cast<uint32_t>(__clz(static_cast<int>(weight))); }

// Adds `by` to the counter of each lane's size, 0 for none: once for each size that a warp has. All lanes are here.
PARL_FN void tally(const Tree& tree, uint32_t size, int64_t by) {
    const uint32_t alike = __match_any_sync(ALL, size);
    const bool leads = static_cast<uint32_t>(__ffs(static_cast<int>(alike))) - 1 == lane();
    if (leads && size != 0) count(tree, HISTOGRAM + size, static_cast<uint64_t>(by * __popc(alike)));
}

// Sets the weight of one leaf per lane, `NONE` for none; leaves of a launch are distinct. All lanes are here.
PARL_ONCE void set_weight(const Tree& tree, uint32_t leaf, uint32_t weight) {
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
        tally(tree, from == to ? 0 : from, -1);
        tally(tree, from == to ? 0 : to, 1);
    }
    add_path(tree, leaf, delta);
}

// Of several items of a launch with one leaf the last one wins: each writes its position + 1, the largest stays.
PARL_FN void stamp(const Tree& tree, uint32_t leaf, uint32_t item) {
    atomicMax(&at<uint32_t>(tree.stamps)[leaf], item + 1);
}

// In a later launch: whether an item has won its leaf. Takes the stamp away; the others do not match it either way.
PARL_FN bool has_won(const Tree& tree, uint32_t leaf, uint32_t item) {
    uint32_t* cell = &at<uint32_t>(tree.stamps)[leaf];
    if (*cell != item + 1) return false;
    *cell = 0;
    return true;
}

// A number of (n,) floats: f32, f64, or one for all.
struct Reals {
    uint64_t address;
    uint32_t is_double;
    uint32_t is_scalar;
};

PARL_FN double real(const Reals& reals, uint64_t i) {
    if (reals.is_scalar) i = 0;
    return reals.is_double ? at<double>(reals.address)[i] : static_cast<double>(at<float>(reals.address)[i]);
}
