// Kernels of the tree alone, for `parl.SumTree(device="cuda")`.
#include "sample.cuh"

// `round(priority * units)`; a positive priority never becomes weight 0.
PARL_FN uint32_t weight_of(const Tree& tree, double priority, bool& saturated) {
    const double scaled = multiply_rn(priority, tree.units), most = MAX_WEIGHT;
    saturated = scaled > most;
    const uint32_t rounded = static_cast<uint32_t>(add_rn(saturated ? most : scaled, 0.5));
    return rounded == 0 && priority > 0.0 ? 1 : rounded;
}

struct TreeUpdate {
    uint64_t indices;  // i64
    Reals priorities;
    uint32_t count;
};

// First launch of an update: counts invalid items, and finds the item that counts for each leaf.
PARL_KERNEL(THREADS) parl_tree_stamp(PARL_ARGUMENT Tree tree, PARL_ARGUMENT TreeUpdate call) {
    for (uint64_t round = 0; round < rounds(call.count); ++round) {
        const uint64_t i = round * threads() + thread();
        const bool has = i < call.count;
        const double priority = has ? real(call.priorities, i) : 0.0;
        const int64_t index = has ? at<int64_t>(call.indices)[i] : 0;
        const bool bad = !(is_finite(priority) && priority >= 0.0);
        const bool outside = index < 0 || index >= static_cast<int64_t>(tree.capacity);
        bool saturated = false;
        if (has && !bad && !outside) {
            const uint32_t weight = weight_of(tree, priority, saturated);
            if (weight > words(tree)[LARGEST_EVER]) {
                atomicMax(&words(tree)[LARGEST_EVER], static_cast<uint64_t>(weight));
            }
            stamp(tree, static_cast<uint32_t>(index), static_cast<uint32_t>(i));
        }
        count_lanes(tree, BAD_PRIORITY, has && bad);
        count_lanes(tree, BAD_INDEX, has && outside);
        count_lanes(tree, SATURATED, saturated && (!call.priorities.is_scalar || i == 0));
    }
}

// Second launch: stores the weights of these items, and adds to the sums above.
PARL_KERNEL(THREADS) parl_tree_scatter(PARL_ARGUMENT Tree tree, PARL_ARGUMENT TreeUpdate call) {
    for (uint64_t round = 0; round < rounds(call.count); ++round) {
        const uint64_t i = round * threads() + thread();
        uint32_t leaf = NONE, weight = 0;
        if (i < call.count) {
            const double priority = real(call.priorities, i);
            const int64_t index = at<int64_t>(call.indices)[i];
            const bool fine = is_finite(priority) && priority >= 0.0 && index >= 0 &&
                              index < static_cast<int64_t>(tree.capacity);
            bool saturated = false;
            if (fine && is_last_update(tree, static_cast<uint32_t>(index), static_cast<uint32_t>(i))) {
                leaf = static_cast<uint32_t>(index);
                weight = weight_of(tree, priority, saturated);
            }
        }
        set_weight(tree, leaf, weight);
    }
}

struct TreeSample {
    Draws draws;
    uint64_t indices;     // i64
    uint64_t priorities;  // f64
};

struct TreeDrawWriter {
    const Tree& tree;
    const TreeSample& call;

    __device__ bool store_draw(uint32_t i, const Drawn& drawn) {
        if (lane() == 0) {
            at<int64_t>(call.indices)[i] = drawn.leaf;
            at<double>(call.priorities)[i] = divide_rn(drawn.weight, tree.units);
        }
        return true;
    }
    __device__ bool is_lost(uint32_t) { return false; }
    __device__ bool draws_later() { return false; }
    __device__ void store_empty(uint32_t i) {
        if (lane() == 0) at<int64_t>(call.indices)[i] = 0;
        if (lane() == 0) at<double>(call.priorities)[i] = 0.0;
    }
    __device__ void finish(uint64_t) {}
};

PARL_KERNEL(SAMPLE_THREADS) parl_tree_sample(PARL_ARGUMENT Tree tree, PARL_ARGUMENT TreeSample call) {
    TreeDrawWriter writer{tree, call};
    sample(tree, call.draws, writer, at<uint64_t>(call.priorities));
}

struct TreeFind {
    uint64_t prefixes;  // f64, in units of priority
    uint64_t indices;   // i64
    double total;       // total that the prefix sums refer to, negative for none
    uint32_t count;
};

PARL_KERNEL(THREADS) parl_tree_find(PARL_ARGUMENT Tree tree, PARL_ARGUMENT TreeFind call) {
    uint64_t seen, prefix;
    const uint64_t total = read_top(tree, seen, prefix);
    for (uint64_t i = thread() / LANES; i < call.count; i += threads() / LANES) {
        const double asked = at<double>(call.prefixes)[i], all = static_cast<double>(total);
        double scaled = multiply_rn(asked, tree.units);
        bool fine = scaled >= 0.0 && scaled < all;
        if (call.total >= 0.0) {
            fine = asked >= 0.0 && asked < call.total && total > 0;
            scaled = multiply_rn(divide_rn(asked, call.total), all);
        }
        if (!fine && lane() == 0) count(tree, BAD_INDEX, 1);
        uint64_t target = fine ? static_cast<uint64_t>(scaled) : 0;
        if (target >= total) target = total == 0 ? 0 : total - 1;
        const Drawn drawn = descend(tree, target, seen, prefix);
        if (lane() == 0) at<int64_t>(call.indices)[i] = fine ? static_cast<int64_t>(drawn.leaf) : -1;
    }
}
