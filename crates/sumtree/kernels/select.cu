// Draws that are not by weight alone: distinct rows, the largest weights, uniform draws, mixtures; and eviction.
//
// Distinct rows are those with the largest keys (`parl_replay_keys`, then torch's top k). Source: Efraimidis & Spirakis
// (2006), "Weighted random sampling with a reservoir", with exponential keys.
#include "draw.cuh"

// Numbers as in `structs.py`.
enum Kind : uint32_t { DISTINCT = 0, LARGEST_FIRST = 1, EVICTION = 2, UNIFORM = 3, MIXTURE = 4 };

// A uniform number above 0 and at most 1.
PARL_FN double unit(uint64_t word) { return static_cast<double>((word >> 11) + 1) / 9007199254740992.0; }

PARL_FN uint32_t weight_in(const Replay& replay, uint64_t slot) { return at<uint32_t>(replay.tree.levels[0])[slot]; }

// ------------------------------------------------------------ distinct rows

struct ReplayKeys {
    uint64_t keys;  // i64, one per slot: the largest are taken; 0 for slots that cannot be drawn
    uint32_t kind;
};

PARL_FN bool is_drawable(const Replay& replay, uint32_t slot) {
    const uint32_t generation = state(replay, slot)->x;
    if ((generation & (OPEN | SAMPLEABLE)) != (OPEN | SAMPLEABLE)) return false;
    const Row row{slot, generation >> LAP_SHIFT};
    if (replay.frames > 1 && !has_whole_stack(replay, sequence_of(replay, row))) return false;
    return !follow_window(replay, slot).is_lost;
}

PARL_KERNEL(THREADS) parl_replay_keys(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayKeys call) {
    const uint64_t seed = call_seed(replay.tree);
    for (uint64_t slot = thread(); slot < replay.slots; slot += threads()) {
        const uint32_t weight = weight_in(replay, slot), place = static_cast<uint32_t>(slot);
        uint64_t key = 0;
        if (weight != 0 && (call.kind == EVICTION || is_drawable(replay, place))) {
            if (call.kind == LARGEST_FIRST) {
                key = static_cast<uint64_t>(weight) << 32 | (NONE - place);
            } else {
                // An exponential variable; the smallest is drawn first. The bits of positive floats have the order of
                // their values.
                const double one = -log(unit(number_of(seed, slot)));
                const double size = call.kind == EVICTION ? one * weight : one / weight;
                key = (~static_cast<uint64_t>(0) >> 1) - bits_of(size);
            }
        }
        at<uint64_t>(call.keys)[slot] = key;
    }
}

struct ReplayEvict {
    uint64_t chosen;  // i64 slots
    uint64_t keys;    // i64, of these
    uint64_t closed;  // i64, number of evicted rows; 0 before the launch
    uint32_t count;
};

PARL_KERNEL(THREADS) parl_replay_evict(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayEvict call) {
    const Tree& tree = replay.tree;
    for (uint64_t round = 0; round < rounds(call.count); ++round) {
        const uint64_t i = round * threads() + thread();
        uint32_t slot = NONE;
        if (i < call.count && at<uint64_t>(call.keys)[i] != 0) {
            slot = static_cast<uint32_t>(at<int64_t>(call.chosen)[i]);
            state(replay, slot)->x &= ~(OPEN | SAMPLEABLE);
        }
        const uint32_t closed = static_cast<uint32_t>(__popc(__ballot_sync(ALL, slot != NONE)));
        if (lane() == 0 && closed != 0) {
            count(tree, READY, ~static_cast<uint64_t>(closed) + 1);
            atomicAdd(&at<uint64_t>(call.closed)[0], static_cast<uint64_t>(closed));
        }
        set_weight(tree, slot, 0);
    }
    if (!is_last_block(tree)) return;
    if (threadIdx.x == 0) {
        if (at<uint64_t>(call.closed)[0] < call.count) count(tree, EMPTY, 1);
        end_call(tree);
    }
}

// ------------------------------------------------------------ draws

struct ReplaySelect {
    ReplayDraw draw;
    uint64_t chosen;  // i64 slots, of distinct rows and the largest
    uint64_t keys;    // i64, of these
    double uniform, newest;  // shares of a mixture
    uint32_t newest_rows;
    uint32_t kind;
};

// `share * count`, rounded up if `random`, from 0 to below 1, and the fractional part are together 1 or more, else down.
PARL_FN uint64_t rounded(uint32_t count, double share, double random) {
    const uint64_t found = static_cast<uint64_t>(share * count + random);
    return found < count ? found : count;
}

// In one block: computes how many draws of a mixture are of each kind, and which rows are the newest (twice as many
// while none of them can be drawn).
PARL_KERNEL(1024) parl_replay_share(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplaySelect call) {
    __shared__ uint32_t warp_counts[LANES];
    uint64_t* word = words(replay.tree);
    const uint64_t reserved = word[RESERVED];
    const uint64_t most = reserved < replay.capacity ? reserved : replay.capacity;
    uint64_t rows = call.newest_rows < most ? call.newest_rows : most;
    uint32_t ready = 0;
    for (;;) {
        uint32_t mine = 0;
        for (uint64_t i = threadIdx.x; i < rows; i += blockDim.x) {
            if (weight_in(replay, (reserved - 1 - i) % replay.slots) != 0) mine += 1;
        }
        const uint32_t together = sum(mine);
        if (lane() == 0) warp_counts[threadIdx.x / LANES] = together;
        __syncthreads();
        ready = sum(lane() < blockDim.x / LANES ? warp_counts[lane()] : 0);
        __syncthreads();
        if (ready != 0 || rows >= most) break;
        rows = 2 * rows < most ? 2 * rows : most;
    }
    if (threadIdx.x != 0) return;
    const uint64_t seed = call_seed(replay.tree);
    // One random number for both shares and their sum, so that each of the three parts is exact on average.
    const double random = 1.0 - unit(number_of(seed, 0));
    const uint64_t newest = rounded(call.draw.draws.count, call.newest, random);
    const uint64_t both = rounded(call.draw.draws.count, call.newest + call.uniform, random);
    word[NEWEST_ROWS] = rows;
    word[NEWEST_READY] = ready;
    word[NEWEST_DRAWS] = newest;
    word[UNIFORM_DRAWS] = both - newest;
}

// Attempts of a warp, each with one row per lane, before it reads all rows.
constexpr uint32_t UNIFORM_ATTEMPTS = 64;

// Draws one of the `among` newest slots with a weight above zero, uniformly (except for a share of among / 2^64). All
// lanes return the same.
PARL_NOINLINE Drawn draw_uniform(const Replay& replay, Random& random, uint64_t among) {
    const uint64_t newest = words(replay.tree)[RESERVED] - 1;
    for (uint32_t i = 0; i < UNIFORM_ATTEMPTS; ++i) {
        const uint64_t back = __umul64hi(number_of(next(random), lane()), among);
        const uint32_t slot = static_cast<uint32_t>((newest - back) % replay.slots), weight = weight_in(replay, slot);
        const uint32_t found = __ballot_sync(ALL, weight != 0);
        if (found == 0) continue;
        const uint32_t first = static_cast<uint32_t>(__ffs(static_cast<int>(found))) - 1;
        return Drawn{__shfl_sync(ALL, slot, first), __shfl_sync(ALL, weight, first)};
    }
    // Few rows have a weight above zero: give each of them a random word and take the largest.
    const uint64_t seed = next(random);
    uint64_t best = 0;
    uint32_t slot = 0;
    for (uint64_t back = lane(); back < among; back += LANES) {
        const uint32_t here = static_cast<uint32_t>((newest - back) % replay.slots);
        const uint64_t word = number_of(seed, back) | 1;
        if (weight_in(replay, here) == 0 || word <= best) continue;
        best = word;
        slot = here;
    }
    for (uint32_t step = LANES / 2; step > 0; step /= 2) {
        const uint64_t word = __shfl_xor_sync(ALL, best, step);
        const uint32_t other = __shfl_xor_sync(ALL, slot, step);
        if (word <= best) continue;
        best = word;
        slot = other;
    }
    slot = __shfl_sync(ALL, slot, 0);
    return Drawn{slot, __shfl_sync(ALL, best, 0) == 0 ? 0 : weight_in(replay, slot)};
}

// Takes draw i of a batch. Called by all lanes of a warp. False if no row can be drawn.
PARL_NOINLINE bool draw_one(const Replay& replay, const ReplaySelect& call, ReplayDrawWriter& writer, uint32_t i,
                            uint64_t total) {
    const Tree& tree = replay.tree;
    const uint64_t* word = words(tree);
    if (call.kind == DISTINCT || call.kind == LARGEST_FIRST) {
        if (at<uint64_t>(call.keys)[i] == 0) return false;
        const uint32_t slot = static_cast<uint32_t>(at<int64_t>(call.chosen)[i]);
        return writer.store_draw(i, Drawn{slot, weight_in(replay, slot)});
    }
    const uint32_t count = call.draw.draws.count;
    const uint64_t live = word[RESERVED] < replay.slots ? word[RESERVED] : replay.slots;
    const uint64_t newest = call.kind == MIXTURE ? word[NEWEST_DRAWS] : 0;
    const uint64_t others = call.kind == MIXTURE ? newest + word[UNIFORM_DRAWS] : count;
    uint64_t seen, prefix;
    read_top(tree, seen, prefix);
    Random random{number_of(call_seed(tree), 2 + static_cast<uint64_t>(i))};
    bool is_newest = i < newest, is_any = i < others;
    for (uint32_t tries = 0; tries < REDRAWS_MAX; ++tries) {
        Drawn drawn;
        if (is_newest) {
            drawn = draw_uniform(replay, random, word[NEWEST_ROWS]);
        } else if (is_any) {
            drawn = draw_uniform(replay, random, live);
        } else {
            const uint64_t offset = below(random, total);
            const Draws rest{STRATIFIED, static_cast<uint32_t>(count - others), 0, 1};
            const uint32_t place = static_cast<uint32_t>(i - others);
            const uint64_t target = tries == 0 && i >= others ? target_of(rest, place, offset, total) : offset;
            drawn = descend(tree, target, seen, prefix);
        }
        if (drawn.weight == 0) return false;
        if (writer.store_draw(i, drawn)) return true;
        if (lane() == 0) ::count(tree, REDRAWN, 1);
        if (call.kind != MIXTURE) continue;
        // Replaced by one draw of the mixture.
        const double fraction = unit(next(random));
        is_newest = fraction <= call.newest;
        is_any = fraction <= call.newest + call.uniform;
    }
    return false;
}

// The probability of a row in one draw of a mixture. The same order of operations as the CPU's `mixture.rs`.
struct MixtureProbabilities {
    const Replay& replay;
    const ReplaySelect& call;
    double total, live;

    __device__ double lower_bound(uint32_t weight) {
        return (1.0 - call.uniform - call.newest) * weight / total + call.uniform / (live > 1.0 ? live : 1.0);
    }
    __device__ double probability(uint64_t slot, uint32_t weight) {
        const uint64_t* word = words(replay.tree);
        double p = (1.0 - call.uniform - call.newest) * weight / total;
        if (call.uniform > 0.0) p += call.uniform / (live > 1.0 ? live : 1.0);
        const uint64_t newest = (word[RESERVED] - 1) % replay.slots;
        if (call.newest > 0.0 && (newest + replay.slots - slot) % replay.slots < word[NEWEST_ROWS]) {
            p += call.newest / static_cast<double>(word[NEWEST_READY] > 1 ? word[NEWEST_READY] : 1);
        }
        return p;
    }
};

PARL_FN void store_mixture_importance_weights(const Replay& replay, const ReplaySelect& call, uint64_t total) {
    __shared__ uint64_t least;
    uint64_t live = 0;
    const uint64_t* word = words(replay.tree);
    for (uint32_t size = 1; size < SIZES; ++size) live += word[HISTOGRAM + size];
    MixtureProbabilities probabilities{replay, call, static_cast<double>(total), static_cast<double>(live)};
    const uint32_t* drawn = at<uint32_t>(call.draw.drawn);
    const int64_t* slots = at<int64_t>(call.draw.indices);
    if (threadIdx.x == 0) least = bits_of(1e300);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < call.draw.draws.count; i += blockDim.x) {
        if (drawn[i] == 0) continue;
        atomicMin(&least, bits_of(probabilities.probability(static_cast<uint64_t>(slots[i]), drawn[i])));
    }
    __syncthreads();
    double smallest = from_bits(least);
    for (uint32_t size = 1; replay.is_global != 0 && size < SIZES; ++size) {
        if (word[HISTOGRAM + size] == 0) continue;
        const double bound = probabilities.lower_bound(1u << (size - 1));
        if (bound < smallest) smallest = bound;
        break;
    }
    const double beta = call.draw.beta_at != 0 ? *at<double>(call.draw.beta_at) : call.draw.beta;
    for (uint32_t i = threadIdx.x; i < call.draw.draws.count; i += blockDim.x) {
        const double p = drawn[i] == 0 ? 1.0 : probabilities.probability(static_cast<uint64_t>(slots[i]), drawn[i]);
        at<float>(call.draw.weights)[i] = drawn[i] == 0 ? 0.0f : static_cast<float>(pow(divide_rn(smallest, p), beta));
    }
}

PARL_KERNEL(SAMPLE_THREADS) parl_replay_select(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplaySelect call) {
    __shared__ uint32_t lacks;
    const Tree& tree = replay.tree;
    ReplayDrawWriter writer{replay, call.draw};
    const uint32_t batch = call.draw.draws.count;
    const uint32_t i = blockIdx.x * DRAWS_PER_BLOCK + threadIdx.x / LANES;
    uint64_t seen, prefix;
    const uint64_t total = read_top(tree, seen, prefix);
    if (i < batch && (total == 0 || !draw_one(replay, call, writer, i, total))) writer.store_empty(i);
    if (!is_last_block(tree)) return;
    if (threadIdx.x == 0) lacks = 0;
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < batch; j += blockDim.x) {
        if (writer.is_lost(j)) atomicMax(&lacks, 1u);
    }
    __syncthreads();
    if (call.kind == MIXTURE) {
        store_mixture_importance_weights(replay, call, total);
    } else if (call.kind == DISTINCT) {
        writer.store_importance_weights();
    } else {
        for (uint32_t j = threadIdx.x; j < batch; j += blockDim.x) {
            at<float>(call.draw.weights)[j] = writer.is_lost(j) ? 0.0f : 1.0f;
        }
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (total != 0) count(tree, SAMPLED, batch);
    if (lacks != 0) count(tree, EMPTY, 1);
    // LARGEST_FIRST takes no random numbers; the other kinds took those of a separate sequence.
    const uint64_t seed = call_seed(tree);
    store_rng(tree, Random{call.kind == LARGEST_FIRST ? seed : number_of(seed, ~static_cast<uint64_t>(0))});
    end_call(tree);
}
