// Kernels of the replay, for `parl.PrioritizedReplay(device="cuda")`.
#include "draw.cuh"

// ------------------------------------------------------------ sampling

PARL_KERNEL(SAMPLE_THREADS) parl_replay_draw(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayDraw call) {
    ReplayDrawWriter writer{replay, call};
    sample(replay.tree, call.draws, writer, at<uint64_t>(call.indices));
}

// Largest number of outputs of one gather launch.
constexpr uint32_t OUTPUTS_MAX = 24;
// Pieces that a thread copies at once, so that their loads overlap.
constexpr uint32_t PIECES = 4;
constexpr uint64_t NO_DESTINATION = ~static_cast<uint64_t>(0);

struct Output {
    uint64_t column, out;
    uint32_t row_bytes, piece_bytes;  // a piece is 1, 4 or 16 bytes
    uint32_t pieces;                  // of a row
    uint32_t table_row;               // row of the table with the slot, or the newest frame of a stack
    uint32_t frames;                  // 1 without a stack
    uint32_t first_block;             // of a tile
};

// Blocks are ordered by tiles of rows, and within a tile by outputs, so that frames shared by two outputs are read from
// the cache.
struct ReplayGather {
    Output outputs[OUTPUTS_MAX];
    uint64_t table;
    uint32_t count, outputs_count, tile_rows, tile_blocks;
};

template <class Piece>
PARL_FN void gather(const Output& output, const ReplayGather& call, uint32_t tile, uint32_t block) {
    const uint32_t units = call.tile_rows * output.frames;
    const uint32_t first = block * blockDim.x * PIECES + threadIdx.x;
    Piece pieces[PIECES];
    uint64_t to[PIECES];
    for (uint32_t k = 0; k < PIECES; ++k) {
        const uint32_t piece = first + k * blockDim.x;
        const uint32_t unit = piece / output.pieces, part = piece - unit * output.pieces;
        const uint32_t row = tile * call.tile_rows + unit / output.frames, frame = unit % output.frames;
        to[k] = NO_DESTINATION;
        pieces[k] = Piece{};
        if (unit >= units || row >= call.count) continue;
        // Stacks are oldest first, the table newest first.
        const uint64_t from = output.table_row + (output.frames - 1 - frame);
        const uint32_t slot = at<uint32_t>(call.table)[from * call.count + row];
        to[k] = (static_cast<uint64_t>(row) * output.frames + frame) * output.pieces + part;
        if (slot != NONE) pieces[k] = at<Piece>(output.column)[static_cast<uint64_t>(slot) * output.pieces + part];
    }
    for (uint32_t k = 0; k < PIECES; ++k) {
        if (to[k] != NO_DESTINATION) at<Piece>(output.out)[to[k]] = pieces[k];
    }
}

PARL_KERNEL(THREADS) parl_replay_gather(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayGather call) {
    (void)replay;
    const uint32_t tile = blockIdx.x / call.tile_blocks, block = blockIdx.x % call.tile_blocks;
    uint32_t which = 0;
    while (which + 1 < call.outputs_count && call.outputs[which + 1].first_block <= block) which += 1;
    const Output& output = call.outputs[which];
    const uint32_t mine = block - output.first_block;
    if (output.piece_bytes == 16) {
        gather<uint4>(output, call, tile, mine);
    } else if (output.piece_bytes == 4) {
        gather<uint32_t>(output, call, tile, mine);
    } else {
        gather<uint8_t>(output, call, tile, mine);
    }
}

// ------------------------------------------------------------ priorities

struct ReplayUpdate {
    uint64_t tickets;  // u64
    Reals priorities;
    uint64_t stale;  // i64, how many were dropped
    uint32_t count;
};

// The slot of a ticket if its row is still stored, else NONE. `unknown`: this replay did not issue the ticket. After
// the largest lap, counting continues at 0, so any lap may have been written.
PARL_FN uint32_t slot_of(const Replay& replay, uint64_t given, bool& unknown) {
    const Row row = row_of(replay, given);
    const uint64_t laps = words(replay.tree)[NEWEST_LAP] + 1;
    const bool is_written = laps > LAP_MASK ? row.lap <= LAP_MASK : row.lap != 0 && row.lap <= laps;
    unknown = row.slot >= replay.slots || (!is_written && given != NO_TICKET);
    return is_written && !unknown && is_open(replay, row) ? row.slot : NONE;
}

PARL_KERNEL(THREADS) parl_replay_stamp(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayUpdate call) {
    const Tree& tree = replay.tree;
    if (thread() == 0) *at<uint64_t>(call.stale) = 0;
    for (uint64_t round = 0; round < rounds(call.count); ++round) {
        const uint64_t i = round * threads() + thread();
        bool bad = false, unknown = false, saturated = false, stale = false, kept = false;
        if (i < call.count) {
            const double priority = real(call.priorities, i);
            const uint32_t slot = slot_of(replay, at<uint64_t>(call.tickets)[i], unknown);
            bad = !is_finite(priority);
            kept = !bad && slot != NONE;
            stale = !unknown && slot == NONE;
            if (!bad) update_largest(tree, weight_of(replay, priority, saturated));
            if (kept) stamp(tree, slot, static_cast<uint32_t>(i));
        }
        count_lanes(tree, BAD_PRIORITY, bad);
        count_lanes(tree, BAD_INDEX, unknown);
        count_lanes(tree, SATURATED, saturated && (call.priorities.is_scalar == 0 || i == 0));
        count_lanes(tree, STALE, stale);
        count_lanes(tree, UPDATED, kept);
    }
}

PARL_KERNEL(THREADS) parl_replay_scatter(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayUpdate call) {
    for (uint64_t round = 0; round < rounds(call.count); ++round) {
        const uint64_t i = round * threads() + thread();
        uint32_t leaf = NONE, weight = 0;
        bool unknown = false, stale = false;
        if (i < call.count) {
            const double priority = real(call.priorities, i);
            const uint32_t slot = slot_of(replay, at<uint64_t>(call.tickets)[i], unknown);
            stale = !unknown && slot == NONE;
            if (is_finite(priority) && slot != NONE && is_last_update(replay.tree, slot, static_cast<uint32_t>(i))) {
                bool saturated = false;
                weight = weight_of(replay, priority, saturated);
                uint4* cell = state(replay, slot);
                // If the row still waits for the end of its window, it gets this weight then.
                cell->z = weight;
                if ((cell->x & SAMPLEABLE) != 0) leaf = slot;
            }
        }
        const uint32_t dropped = static_cast<uint32_t>(__popc(__ballot_sync(ALL, stale)));
        if (lane() == 0 && dropped != 0) atomicAdd(at<uint64_t>(call.stale), static_cast<uint64_t>(dropped));
        set_weight(replay.tree, leaf, weight);
    }
}

// ------------------------------------------------------------ adding

struct ReplayAdd {
    uint64_t envs;        // i64, 0: row i is from environment i
    uint64_t order;       // i64, rows sorted by environment, in order within each; 0: as given, one row per environment
    Reals priorities;     // address 0 for none
    uint64_t terminated;  // bool, 0 for none, as the next two
    uint64_t truncated;
    uint64_t finals;      // 0: the call has no final observations
    Reals discounts;      // address 0 for none
    Reals rewards;        // address 0 for none
    uint64_t tickets;     // u64
    uint32_t count;
};

enum End : uint32_t { NOT_ENDED = 0, TERMINATED = 1, TRUNCATED = 2 };

PARL_FN End end_of(const ReplayAdd& call, uint64_t i) {
    if (call.terminated != 0 && at<uint8_t>(call.terminated)[i] != 0) return TERMINATED;
    return call.truncated != 0 && at<uint8_t>(call.truncated)[i] != 0 ? TRUNCATED : NOT_ENDED;
}
// True if the final observation of a row that ends an episode like this comes with this call, not in the next row.
// After termination no value is bootstrapped, so only hindsight stores it, for the goal that the last step achieved.
PARL_FN bool takes_final(const Replay& replay, End end) {
    if (replay.independent || replay.resets_next_step || !replay.rebuilds) return false;
    return end == TRUNCATED || (end == TERMINATED && replay.goal_in_next);
}

// For rows that are added in several parts: the largest priority of all of them, before the first part gets its
// weights.
PARL_KERNEL(THREADS) parl_replay_note(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayAdd call) {
    for (uint64_t i = thread(); i < call.count; i += threads()) {
        const double priority = real(call.priorities, i);
        bool saturated = false;
        if (is_finite(priority)) update_largest(replay.tree, weight_of(replay, priority, saturated));
    }
}

// In one block: numbers the final observations, and reserves the sequence numbers of the call.
PARL_KERNEL(1024) parl_replay_reserve(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayAdd call) {
    __shared__ uint32_t warp_counts[LANES];
    uint64_t* word = words(replay.tree);
    uint32_t before = 0;
    for (uint32_t start = 0; start < call.count; start += blockDim.x) {
        const uint32_t i = start + threadIdx.x;
        const bool has = i < call.count && call.finals != 0 && takes_final(replay, end_of(call, i));
        const uint32_t lanes = __ballot_sync(ALL, has), warp = threadIdx.x / LANES;
        if (lane() == 0) warp_counts[warp] = static_cast<uint32_t>(__popc(lanes));
        __syncthreads();
        const uint32_t warps = blockDim.x / LANES;
        const uint32_t upto = prefix_sum(lane() < warps ? warp_counts[lane()] : 0);
        const uint32_t earlier = __shfl_sync(ALL, upto, (warp + LANES - 1) % LANES) * (warp > 0 ? 1 : 0);
        const uint32_t all = __shfl_sync(ALL, upto, LANES - 1);
        const uint32_t below_me = static_cast<uint32_t>(__popc(lanes & ((1u << lane()) - 1)));
        if (i < call.count) at<uint32_t>(replay.final_of)[i] = has ? before + earlier + below_me : NONE;
        before += all;
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    const uint64_t first = word[RESERVED], count = call.count + before, end = first + count;
    word[FIRST] = first;
    word[COUNT] = count;
    word[RESERVED] = end;
    word[ADDED] += count;
    word[LISTED] = 0;
    // As in a ring that threads share: the chunk after the newest one is already closed.
    const uint64_t marked = end == 0 ? 0 : (end - 1) / replay.chunk + 2, chunks = replay.slots / replay.chunk;
    word[HORIZON] = (marked > chunks ? marked - chunks : 0) * replay.chunk;
    word[NEWEST_LAP] = (marked * replay.chunk == 0 ? 0 : marked * replay.chunk - 1) / replay.slots;
}

// Counts the row of a slot as closed, given the generation that this thread replaced. Returns its leaf, or NONE if it
// was closed already.
PARL_FN uint32_t close(const Replay& replay, uint32_t slot, uint32_t generation) {
    if ((generation & OPEN) == 0) return NONE;
    if ((generation & SAMPLEABLE) != 0) count(replay.tree, READY, ~static_cast<uint64_t>(0));
    return slot;
}

// Closes the rows beyond the capacity, and opens the new ones, which are not sampleable yet.
PARL_KERNEL(THREADS) parl_replay_publish(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayAdd call) {
    const Tree& tree = replay.tree;
    const uint64_t first = words(tree)[FIRST], rows = words(tree)[COUNT];
    for (uint64_t round = 0; round < rounds(2 * static_cast<uint64_t>(call.count)); ++round) {
        const uint64_t i = round * threads() + thread();
        uint32_t displaced = NONE, replaced = NONE, saturated = 0, bad = 0;
        if (i < rows && first + i >= replay.capacity) {
            const Row old = row_at(replay, first + i - replay.capacity);
            uint32_t* generation = &state(replay, old.slot)->x;
            const uint32_t seen = *generation;
            if ((seen & OPEN) != 0 && seen >> LAP_SHIFT == old.lap &&
                atomicCAS(generation, seen, seen & ~(OPEN | SAMPLEABLE)) == seen) {
                displaced = close(replay, old.slot, seen);
            }
        }
        if (i < rows) {
            const Row row = row_at(replay, first + i);
            uint4* cell = state(replay, row.slot);
            uint32_t parked = i < call.count ? LARGEST : 0;
            if (i < call.count && call.priorities.address != 0) {
                const double priority = real(call.priorities, i);
                bool beyond = false;
                bad = is_finite(priority) ? 0 : 1;
                if (!bad) {
                    parked = weight_of(replay, priority, beyond);
                    update_largest(tree, parked);
                    saturated = beyond && (call.priorities.is_scalar == 0 || i == 0) ? 1 : 0;
                }
            }
            cell->y = NO_LINK;
            cell->z = parked;
            const uint32_t old = atomicExch(&cell->x, row.lap << LAP_SHIFT | OPEN);
            // A row that was not closed yet, because it exceeds the capacity in this same call.
            replaced = close(replay, row.slot, old);
            if (i < call.count) at<uint64_t>(call.tickets)[i] = ticket_of(replay, row);
        }
        if (i < call.count && call.discounts.address != 0) {
            const double discount = real(call.discounts, i);
            if (!(discount >= 0.0 && discount <= 1.0)) count(tree, BAD_DISCOUNT, 1);
        }
        if (i < call.count && call.rewards.address != 0 && !is_finite(real(call.rewards, i))) {
            count(tree, BAD_REWARD, 1);
        }
        count_lanes(tree, SATURATED, saturated != 0);
        count_lanes(tree, BAD_PRIORITY, bad != 0);
        set_weight(tree, displaced, 0);
        set_weight(tree, replaced, 0);
    }
}

// A column of a write launch.
struct Source {
    uint64_t column, rows;  // rows of the caller, `stride` bytes apart
    uint64_t stride;
    uint32_t row_bytes, piece_bytes, pieces;
    uint32_t is_final;  // goes to the rows of final observations
    uint32_t first_block, unused;
};

struct ReplayWrite {
    Source sources[OUTPUTS_MAX];
    uint32_t count, sources_count;
};

template <class Piece>
PARL_FN void write(const Replay& replay, const Source& source, const ReplayWrite& call, uint32_t block) {
    const uint64_t* word = words(replay.tree);
    const uint32_t base = static_cast<uint32_t>(word[FIRST] % replay.slots);
    for (uint32_t k = 0; k < PIECES; ++k) {
        const uint64_t piece = static_cast<uint64_t>(block) * blockDim.x * PIECES + k * blockDim.x + threadIdx.x;
        const uint64_t row = piece / source.pieces, part = piece - row * source.pieces;
        if (row >= call.count) return;
        uint64_t offset = row;
        if (source.is_final) {
            const uint32_t number = at<uint32_t>(replay.final_of)[row];
            if (number == NONE) continue;
            offset = static_cast<uint64_t>(call.count) + number;
        }
        const uint64_t slot = (base + offset) % replay.slots;
        at<Piece>(source.column)[slot * source.pieces + part] = at<Piece>(source.rows + row * source.stride)[part];
    }
}

// Copies rows to their slots.
PARL_KERNEL(THREADS) parl_replay_write(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayWrite call) {
    uint32_t which = 0;
    while (which + 1 < call.sources_count && call.sources[which + 1].first_block <= blockIdx.x) which += 1;
    const Source& source = call.sources[which];
    const uint32_t block = blockIdx.x - source.first_block;
    if (source.piece_bytes == 16) {
        write<uint4>(replay, source, call, block);
    } else if (source.piece_bytes == 4) {
        write<uint32_t>(replay, source, call, block);
    } else {
        write<uint8_t>(replay, source, call, block);
    }
}

// The rows of an episode are counted up to about this number.
constexpr uint64_t EPISODE_ROWS_MAX = (1u << 30) - 1;

// The newest row of one environment and the rows that wait for the end of their window, as in the CPU's `tails.rs`.
struct Tail {
    const Replay& replay;
    // Number of waiting rows | index of the first << 16 | how the last row ended << 32 | rows of the episode << 34;
    // newest row; waiting rows.
    uint64_t* words_;

    __device__ Tail(const Replay& replay, uint64_t env)
        : replay(replay), words_(at<uint64_t>(replay.tails) + env * (2 + replay.window_rows)) {}

    __device__ void empty() { words_[0] = words_[1] = 0; }
    __device__ End ended() { return static_cast<End>(words_[0] >> 32 & 3); }
    __device__ void set_ended(End end) { words_[0] = (words_[0] & ~(3ull << 32)) | static_cast<uint64_t>(end) << 32; }

    // Number of rows of an episode after one more; beyond EPISODE_ROWS_MAX whole periods are subtracted.
    __device__ uint64_t next_episode_rows(uint64_t rows) {
        if (rows < EPISODE_ROWS_MAX) return rows + 1;
        return rows + 1 - replay.period * (EPISODE_ROWS_MAX / replay.period / 2);
    }

    // True if a sequence of `left` steps starts at the row `age` rows after the first of its episode. Shorter sequences
    // at the end of an episode are left out if their steps are all in the one before, or all burn-in.
    __device__ bool starts_sequence(uint64_t age, uint64_t left) {
        if (replay.period == 0) return true;
        const uint64_t overlap = age == 0 ? 0 : replay.n_step - replay.period;
        return age % replay.period == 0 && left > (overlap > replay.burn_in ? overlap : replay.burn_in);
    }

    // Adds the row after the newest. Only rows with complete stacks wait to become sampleable.
    __device__ void push(Row row, bool has_whole_stack) {
        const uint64_t waiting = words_[0] & 0xffff, first = words_[0] >> 16 & 0xffff;
        if (replay.period != 0) words_[0] = (words_[0] & 0x3ffffffffull) | next_episode_rows(words_[0] >> 34) << 34;
        words_[1] = packed(row);
        if (!has_whole_stack) return;
        words_[2 + (first + waiting) % replay.window_rows] = packed(row);
        words_[0] += 1;
    }

    // Makes the oldest waiting rows sampleable until `left` remain.
    PARL_NOINLINE_MEMBER void complete(uint64_t left) {
        uint64_t waiting = words_[0] & 0xffff, first = words_[0] >> 16 & 0xffff;
        const uint64_t rows = words_[0] >> 34;
        // Rows that only carry the final observation of a waiting row are not steps and were not pushed.
        const uint64_t beyond = replay.rebuilds != 0 && left > 0 ? 1 : 0;
        for (; waiting > left; --waiting, first = (first + 1) % replay.window_rows) {
            if (starts_sequence(rows - waiting, waiting - beyond)) make_sampleable(replay, unpacked(words_[2 + first]));
        }
        words_[0] = (words_[0] >> 32 << 32) | first << 16 | waiting;
    }

    // Makes a row sampleable, if it is still stored.
    static __device__ void make_sampleable(const Replay& replay, Row row) {
        uint4* cell = state(replay, row.slot);
        if (cell->x != (row.lap << LAP_SHIFT | OPEN)) return;
        cell->x |= SAMPLEABLE;
        const uint64_t at_place = atomicAdd(&words(replay.tree)[LISTED], static_cast<uint64_t>(1));
        at<uint32_t>(replay.listed)[at_place] = row.slot;
    }

    __device__ void set_before(Row row, uint64_t before) {
        uint32_t distance = FIRST_ROW;
        if (before != 0) {
            const Row old = unpacked(before);
            const uint64_t laps = (row.lap - old.lap) & LAP_MASK;
            const int64_t far = static_cast<int64_t>(laps * replay.slots) + row.slot - old.slot;
            distance = far > 0 && far < static_cast<int64_t>(UNREACHABLE) ? static_cast<uint32_t>(far) : UNREACHABLE;
        }
        state(replay, row.slot)->w = distance;
    }

    PARL_NOINLINE_MEMBER void append(Row row, End end, bool has_final, Row final_row, bool lacks_final) {
        set_before(row, words_[1]);
        if (has_final) set_before(final_row, packed(row));
        const Row newest = unpacked(words_[1]);
        const bool follows = words_[1] != 0 && is_open(replay, newest);
        if (follows) state(replay, newest.slot)->y = row.slot + 1;
        if (ended() != NOT_ENDED) {
            // This row only carries the final observation of the one before.
            if (follows && ended() == TRUNCATED) complete(0);
            return empty();
        }
        if (!follows) empty();
        push(row, replay.frames == 1 || has_whole_stack(replay, sequence_of(replay, row)));
        if (lacks_final) return empty();
        if (end == NOT_ENDED || (end == TRUNCATED && replay.rebuilds && replay.resets_next_step)) {
            // The rows whose window reaches the end of the episode wait for the final observation.
            complete(replay.window_rows - 1);
        } else {
            if (has_final) state(replay, row.slot)->y = final_row.slot + 1;
            complete(0);
        }
        if (end == NOT_ENDED) return;
        if (replay.resets_next_step) return set_ended(end);
        empty();
    }
};

// Links rows to those before them, and makes rows with complete windows sampleable. One thread per environment.
PARL_KERNEL(THREADS) parl_replay_append(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayAdd call) {
    const uint64_t first = words(replay.tree)[FIRST];
    const int64_t* order = at<int64_t>(call.order);
    const int64_t* envs = at<int64_t>(call.envs);
    for (uint64_t start = thread(); start < call.count; start += threads()) {
        uint64_t i = order == nullptr ? start : static_cast<uint64_t>(order[start]);
        if (replay.independent) {
            Tail::make_sampleable(replay, row_at(replay, first + i));
            continue;
        }
        const int64_t env = envs == nullptr ? static_cast<int64_t>(i) : envs[i];
        if (env < 0 || env >= static_cast<int64_t>(replay.num_envs)) {
            count(replay.tree, BAD_ENV, 1);
            continue;
        }
        if (order != nullptr && start > 0 && envs[order[start - 1]] == env) continue;
        Tail tail(replay, static_cast<uint64_t>(env));
        for (uint64_t place = start;;) {
            const uint32_t number = at<uint32_t>(replay.final_of)[i];
            const End end = end_of(call, i);
            const bool has_final = number != NONE, lacks = !has_final && end == TRUNCATED && takes_final(replay, end);
            if (lacks) count(replay.tree, NO_FINAL, 1);
            const Row final_row = has_final ? row_at(replay, first + call.count + number) : Row{0, 0};
            tail.append(row_at(replay, first + i), end, has_final, final_row, lacks);
            if (order == nullptr || ++place >= call.count) break;
            i = static_cast<uint64_t>(order[place]);
            if (envs[i] != env) break;
        }
    }
}

// Sets the weights of the rows that became sampleable.
PARL_KERNEL(THREADS) parl_replay_weigh(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayAdd call) {
    (void)call;
    const uint64_t listed = words(replay.tree)[LISTED];
    const uint32_t largest = static_cast<uint32_t>(words(replay.tree)[LARGEST_EVER]);
    for (uint64_t round = 0; round < rounds(listed); ++round) {
        const uint64_t i = round * threads() + thread();
        uint32_t slot = NONE, weight = 0;
        if (i < listed) {
            slot = at<uint32_t>(replay.listed)[i];
            const uint32_t parked = state(replay, slot)->z;
            weight = parked == LARGEST ? largest : parked;
        }
        count_lanes(replay.tree, READY, slot != NONE);
        set_weight(replay.tree, slot, weight);
    }
}

struct ReplayCut {
    uint64_t envs;  // i64
    uint32_t count;
};

// Ends the current episodes of environments.
PARL_KERNEL(THREADS) parl_replay_cut(PARL_ARGUMENT Replay replay, PARL_ARGUMENT ReplayCut call) {
    for (uint64_t i = thread(); i < call.count; i += threads()) {
        const int64_t env = at<int64_t>(call.envs)[i];
        if (env < 0 || env >= static_cast<int64_t>(replay.num_envs)) {
            count(replay.tree, BAD_ENV, 1);
        } else {
            Tail(replay, static_cast<uint64_t>(env)).empty();
        }
    }
}
