// Layout of a batch in device memory, arguments of a launch, and how a block writes observations. Nothing
// here depends on how the console works.
//
// The Rust side of these structs is src/batch/cuda/layout.rs; tests/gpu compares the sizes.
#pragma once
#include "machine.cuh"

// Marks a thread without an environment. Such threads pad warps, so that each warp has one game.
PARL_CONST uint32_t NO_ENV = 0xFFFFFFFFu;

// Values of `Call::mode` for `parl_step`: the autoreset mode.
PARL_CONST uint32_t NEXT_STEP = 0, SAME_STEP = 1, DISABLED = 2;
// Values of `Call::mode` for `parl_reset`: queued resets in a step of their own (NEXT_STEP), queued resets
// within a step (SAME_STEP), resets that the caller asks for.
PARL_CONST uint32_t RESET_DUE = 0, RESET_WITHIN = 1, RESET_REQUESTED = 2;
// Kinds of faults. For each kind `Batch::faults` holds the largest number of an environment that had it, plus
// one; 0 if none.
PARL_CONST uint32_t FAULT_ACTION = 0, FAULT_NOT_RESET = 1, FAULT_ENDED = 2, FAULT_MODE = 3, FAULT_SAVED_PICTURES = 4, FAULT_STICK = 5;
// Marks an environment without saved pictures.
PARL_CONST uint32_t NO_SAVED_PICTURES = 0xFFFFFFFFu;
// Environments that a block can run at a time: one per lane of its first warp. Its other warps help to write
// observations. Small batches have fewer per block (`Batch::lanes`).
PARL_CONST uint32_t LANES = 32;
// Values of `Call::wide_actions`, the type of actions: 0 for int32 indices, WIDE for int64 indices, STICKS
// for continuous actions, four floats each: x to the right, y up, trigger, strength.
PARL_CONST uint32_t WIDE = 1, STICKS = 2;

// All environments. Word w of the head of environment e is at heads[w * count + e], so that the lanes of a
// warp read adjacent words. Boards and work pictures belong to the resident lanes, each of which runs several
// environments one after the other. The kept pictures of an environment are in one of `saved_count` places
// for saved pictures.
struct Batch {
    uint32_t* heads;
    cule::random::Random* randoms;
    cule::env::state::StepOutput* step_outputs;
    uint8_t* planes;
    uint32_t* saved_pictures;  // per environment, the place of its kept pictures or NO_SAVED_PICTURES
    uint32_t* taken;       // one bit per place
    uint8_t* kept;
    uint8_t* scratch;
    uint32_t* queue;       // environments whose reset runs in a launch of its own
    uint32_t* queued;      // the length of the queue, and the number of blocks that have finished it
    uint32_t* faults;
    const uint32_t* order;
    const uint32_t* env_games;
    const cule::env::state::EnvGame* games;
    const cule::env::state::EnvSettings* rules;  // per game
    const cule::env::state::ResetState* reset_states;
    const uint8_t* reset_planes;  // per reset state, what an observation shows of it
    const uint8_t* roms;
    const uint64_t* records;   // one record of the jump-table interpreter per ROM byte
    const uint32_t* choices;   // per game: form and window
    const uint8_t* boot_pictures;
    const cule::observe::plane::Reduction* reductions;
    const cule::observe::Cell* cells;
    const float* weights;
    const cule::observe::Blend* blends;
    const uint8_t* tables;
    uint32_t count;
    uint32_t threads;
    uint32_t board_bytes;
    uint32_t scratch_bytes;
    uint32_t saved_count;
    uint32_t reset_state_count;
    uint32_t plane_bytes;
    uint32_t stack;
    uint32_t inputs_per_env;
    uint32_t boot_bytes;
    uint32_t cell_count;
    uint32_t weight_count;
    uint32_t blend_count;
    uint32_t table_bytes;
    uint32_t cart_ram;     // heads include cartridge RAM
    uint32_t lanes;        // most environments of a group: lanes of a warp that have one
};

// Arguments of one launch. Fields that a kernel does not use are null or 0.
struct Call {
    uint8_t* obs;
    uint8_t* final_obs;
    uint8_t* ram;
    int32_t* numbers;
    uint8_t* flags;
    const void* actions;
    const int64_t* seeds;
    const uint8_t* mask;
    const uint32_t* envs;
    uint8_t* rows;
    uint64_t obs_stride;   // bytes from one environment's observation to the next one's; 0: contiguous
    uint32_t mode;
    uint32_t wide_actions;
    uint32_t row_count;
    uint32_t row_bytes;
    uint32_t writes;
    float threshold;
    uint32_t slides;       // the older planes are in place already, for stacks that moved on by one plane
    uint32_t unused;
};

// First words of the cartridge RAM in a head: that of the console, and that of its copy. Not stored if no
// game has any.
PARL_CONST uint32_t CART_WORDS = sizeof(cule::machine::cart::Cart::ram) / 4;
PARL_CONST uint32_t CART_AT = PARL_OFFSET(cule::machine::Machine, cart) + PARL_OFFSET(cule::machine::cart::Cart, ram);
PARL_CONST uint32_t FIRST_CART = (PARL_OFFSET(cule::env::state::Head, state) + PARL_OFFSET(cule::env::State, machine) + CART_AT) / 4;
PARL_CONST uint32_t SECOND_CART = (PARL_OFFSET(cule::env::state::Head, last_frames) + PARL_OFFSET(cule::env::state::LastFrames, start) + CART_AT) / 4;
PARL_CONST uint32_t HEAD_WORDS = sizeof(cule::env::state::Head) / 4;

// Position of word w of a head among the stored words; NO_ENV if it is not stored.
[[maybe_unused]] static __device__ uint32_t stored_word(const Batch& b, uint32_t w) {
    if (b.cart_ram != 0 || w < FIRST_CART) return w;
    if (w < FIRST_CART + CART_WORDS) return NO_ENV;
    if (w < SECOND_CART) return w - CART_WORDS;
    return w < SECOND_CART + CART_WORDS ? NO_ENV : w - 2 * CART_WORDS;
}

// Pointer to a byte of a head; null if the byte is not stored, which means that it is 0.
[[maybe_unused]] static __device__ uint8_t* head_byte(const Batch& b, uint32_t env, uint32_t byte) {
    const uint32_t word = stored_word(b, byte / 4);
    if (word == NO_ENV) return nullptr;
    return reinterpret_cast<uint8_t*>(b.heads + static_cast<uint64_t>(word) * b.count + env) + byte % 4;
}

[[maybe_unused]] static __device__ void load_head(const Batch& b, uint32_t env, cule::env::state::Head& head) {
    uint32_t* words = reinterpret_cast<uint32_t*>(&head);
    for (uint32_t w = 0; w < HEAD_WORDS; ++w) {
        const uint32_t at = stored_word(b, w);
        words[w] = at == NO_ENV ? 0 : b.heads[static_cast<uint64_t>(at) * b.count + env];
    }
}

[[maybe_unused]] static __device__ void store_head(const Batch& b, uint32_t env, const cule::env::state::Head& head) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(&head);
    for (uint32_t w = 0; w < HEAD_WORDS; ++w) {
        const uint32_t at = stored_word(b, w);
        if (at != NO_ENV) b.heads[static_cast<uint64_t>(at) * b.count + env] = words[w];
    }
}

static_assert(sizeof(cule::machine::Line) <= 8 * LINE_PAIRS && LINE_PAIRS % 2 == 1, "a line fits");

// Makes the line of a board ready for frames, which recompute everything in it but the current row.
[[maybe_unused]] static __device__ void begin_line(cule::machine::Board& board) {
    cule::machine::tia::rows::CurrentRow& row = PARL_LINE(board).current_row;
    row.number = 0;
    row.uses_classes = 1;
}

// Buffers of a lane.
struct Workspace {
    cule::machine::Board* board;
    uint8_t* pictures;
    uint8_t* inputs;
    cule::random::Random* generators;  // two
};

[[maybe_unused]] static __device__ Workspace workspace_of(const Batch& b, uint32_t block, uint32_t lane) {
    uint8_t* at = b.scratch + static_cast<uint64_t>(block * b.lanes + lane) * b.scratch_bytes;
    const uint32_t work = cule::env::state::WORK_PICTURES * b.rules->picture_bytes;
    uint8_t* inputs = at + b.board_bytes + work;
    uint8_t* generators = inputs + b.inputs_per_env * sizeof(cule::machine::input::Input);
    return Workspace{reinterpret_cast<cule::machine::Board*>(at), at + b.board_bytes, inputs,
                reinterpret_cast<cule::random::Random*>(generators)};
}

[[maybe_unused]] static __device__ Slice<uint8_t> work_of(const Batch& b, const Workspace& workspace) {
    return Slice<uint8_t>(workspace.pictures, cule::env::state::WORK_PICTURES * b.rules->picture_bytes);
}

[[maybe_unused]] static __device__ uint32_t saved_bytes(const Batch& b) {
    return cule::env::state::KEPT_PICTURES * b.rules->picture_bytes;
}

[[maybe_unused]] static __device__ uint8_t* saved_pictures_at(const Batch& b, uint32_t place) {
    return b.kept + static_cast<uint64_t>(place) * saved_bytes(b);
}

// The kept pictures of an environment; empty if it has none.
[[maybe_unused]] static __device__ Slice<const uint8_t> kept_of(const Batch& b, uint32_t env) {
    const uint32_t place = b.saved_pictures[env];
    if (place == NO_SAVED_PICTURES) return Slice<const uint8_t>(b.kept, 0u);
    return Slice<const uint8_t>(saved_pictures_at(b, place), saved_bytes(b));
}

// Reserves a place for saved pictures, unless the environment has one. Returns false if all places are taken.
[[maybe_unused]] static __device__ bool reserve_saved_pictures(const Batch& b, uint32_t env) {
    if (b.saved_pictures[env] != NO_SAVED_PICTURES) return true;
    const uint32_t words = (b.saved_count + 31) / 32;
    for (uint32_t i = 0; i < words; ++i) {
        // Environments start their search at different words.
        const uint32_t word = (env / 32 + i) % words;
        const uint32_t rest = b.saved_count - 32 * word;
        const uint32_t places = rest >= 32 ? 0xFFFFFFFFu : (1u << rest) - 1;
        // An atomic read: a plain load may return an older value from a cache.
        uint32_t taken = atomicOr(b.taken + word, 0u);
        while ((~taken & places) != 0) {
            const uint32_t free = ~taken & places, lowest = free & (0u - free);
            taken = atomicOr(b.taken + word, lowest);
            if ((taken & lowest) == 0) {
                // The reads of the environment that freed the place come before the writes of this one.
                __threadfence();
                b.saved_pictures[env] = 32 * word + __popc(lowest - 1);
                return true;
            }
        }
    }
    return false;
}

[[maybe_unused]] static __device__ void free_saved_pictures(const Batch& b, uint32_t env) {
    const uint32_t place = b.saved_pictures[env];
    if (place == NO_SAVED_PICTURES) return;
    b.saved_pictures[env] = NO_SAVED_PICTURES;
    __threadfence();
    atomicAnd(b.taken + place / 32, ~(1u << place % 32));
}

[[maybe_unused]] static __device__ void fault(const Batch& b, uint32_t kind, uint32_t env) { atomicMax(b.faults + kind, env + 1); }

// Copies the pictures that a step or reset asks to be kept to their place, or frees the place if there are
// none.
[[maybe_unused]] static __device__ void keep_pictures(const Batch& b, uint32_t env, cule::env::state::StepOutput& output, const Workspace& workspace) {
    if (output.kept == 0) {
        free_saved_pictures(b, env);
        return;
    }
    if ((output.kept & cule::env::state::KEPT_FRESH) == 0) return;
    output.kept &= static_cast<uint8_t>(~cule::env::state::KEPT_FRESH);
    if (!reserve_saved_pictures(b, env)) {
        output.kept = 0;
        fault(b, FAULT_SAVED_PICTURES, env);
        return;
    }
    const uint32_t size = b.rules->picture_bytes;
    uint8_t* place = saved_pictures_at(b, b.saved_pictures[env]);
    for (uint32_t i = 0; i < 2; ++i) cule::machine::tia::rows::expand_all(*workspace.board, i, size / cule::machine::tia::WIDTH);
    for (uint32_t i = 0; i < output.kept; ++i) {
        const uint8_t* from = i < 2 ? workspace.board->picture[i].at : workspace.pictures;
        for (uint32_t byte = 0; byte < size; ++byte) place[i * size + byte] = from[byte];
    }
}

// The settings of an environment: those of its game.
[[maybe_unused]] static __device__ const cule::env::state::EnvSettings& rules_of(const Batch& b, uint32_t env) { return b.rules[b.env_games[env]]; }

[[maybe_unused]] static __device__ Slice<const uint8_t> rom_of(const Batch& b, const cule::env::state::EnvGame& game) {
    return Slice<const uint8_t>(b.roms + game.rom_at, game.rom_bytes);
}

// Writes the figures of environment e: number k to numbers[k * count + e], flag k to flags[k * count + e].
[[maybe_unused]] static __device__ void store_figures(const Batch& b, const Call& call, uint32_t env, const cule::env::state::Figures& figures) {
    for (uint32_t k = 0; k < cule::env::state::NUMBERS; ++k) {
        call.numbers[static_cast<uint64_t>(k) * b.count + env] = figures.number[k];
    }
    for (uint32_t k = 0; k < cule::env::state::FLAGS; ++k) call.flags[static_cast<uint64_t>(k) * b.count + env] = figures.flag[k];
}

// What the block has to show for one lane.
struct ShowRequest {
    uint32_t env;      // NO_ENV: nothing
    uint32_t newest;
    uint16_t to_final_obs;  // the observation goes to `final_obs`
    uint16_t stack_moved;   // the stack has moved on by one plane
    uint32_t reset_state;   // the state whose plane is added, for PUSH_RESET_PLANE
    cule::env::state::StepOutput output;
};

PARL_CONST uint32_t RAM_AT = PARL_OFFSET(cule::env::State, machine) + PARL_OFFSET(cule::machine::Machine, riot) +
                             PARL_OFFSET(cule::machine::riot::Riot, ram);
PARL_CONST uint32_t RAM_BYTES = 128;

// Shared words of a block while it shows planes of 84 x 84: the brightness and the sums of a strip, the table of a game, which
// picture rows and which pairs of rows of the plane are distinct, and two lists with their lengths: parts of rows that need more
// than one picture's classes, and pixels that lie between two values.
PARL_CONST uint32_t TABLE_BYTES = 256;
PARL_CONST uint32_t TIES = 64;
PARL_CONST uint32_t DISTINCT_WORDS = (cule::observe::plane::ROWS_84 + 31) / 32;
PARL_CONST uint32_t PAIRS = cule::observe::plane::ROWS_84 / 5;
PARL_CONST uint32_t PAIR_WORDS = (PAIRS + 31) / 32;
PARL_CONST uint32_t STRIP_PARTS = cule::observe::plane::STRIP_ROWS * cule::observe::plane::ROW_PARTS;
// A row's first part in the list of parts: a power of two, which is cheap to divide by.
PARL_CONST uint32_t PART_STEP = 8;
static_assert(cule::observe::plane::ROW_PARTS <= PART_STEP, "a row's parts come before those of the next row");
// (i * UNIT_SCALE) >> 16 is i / UNITS_ACROSS for all units of a plane.
PARL_CONST uint32_t UNIT_SCALE = (1 << 16) / cule::observe::plane::UNITS_ACROSS + 1;
static_assert(PAIRS * cule::observe::plane::UNITS_ACROSS * (UNIT_SCALE * cule::observe::plane::UNITS_ACROSS - (1 << 16)) < 1 << 16, "exact");
PARL_CONST uint32_t SHOW_WORDS = cule::observe::plane::STRIP_WORDS + cule::observe::plane::STRIP_SUM_WORDS + TABLE_BYTES / 4 +
                                 DISTINCT_WORDS + PAIR_WORDS + 2 * cule::observe::plane::ROWS_84 + PAIRS + 1 + 2 + STRIP_PARTS + TIES;
#ifndef PARL_BLOCK_WORDS
[[maybe_unused]] static __device__ uint32_t* block_words() {
    alignas(16) __shared__ uint32_t words[SHOW_WORDS];
    return words;
}
#else
static_assert(SHOW_WORDS <= PARL_BLOCK_WORDS, "what is shown fits where machines were");
#endif

// The environment that is being shown, and its destination.
struct ShowTarget {
    const Batch& b;
    const ShowRequest& s;
    Workspace workspace;
    uint8_t* planes;
    uint8_t* obs;    // null: not written
    uint32_t from;   // planes before this one are in place already
    bool by_words;   // planes begin at multiples of four

    [[maybe_unused]] __device__ cule::observe::plane::PictureSet picture_set() const {
        return cule::observe::plane::PictureSet{s.output.picture, b.rules->picture_bytes};
    }
    [[maybe_unused]] __device__ Slice<const uint8_t> boards() const {
        return Slice<const uint8_t>(reinterpret_cast<const uint8_t*>(workspace.board), 2 * cule::machine::tia::PICTURE_BYTES);
    }
    [[maybe_unused]] __device__ const cule::observe::plane::Reduction& reduction() const { return b.reductions[b.env_games[s.env]]; }
};

// Byte `byte` of the plane that is added to the ring of planes.
[[maybe_unused]] static __device__ uint8_t new_byte(const ShowTarget& w, uint32_t byte) {
    const Batch& b = w.b;
    const ShowRequest& s = w.s;
    if (s.output.push == cule::env::state::PUSH_COPY) {
        return w.planes[static_cast<uint64_t>((s.newest + b.stack - 1) % b.stack) * b.plane_bytes + byte];
    }
    if (s.output.push == cule::env::state::PUSH_RAM) return *head_byte(b, s.env, RAM_AT + byte);
    const Slice<const uint8_t> boards = w.boards();
    return cule::observe::plane::pixel(
        w.reduction(), w.picture_set(), boards, work_of(b, w.workspace), Slice<const cule::observe::Cell>(b.cells, b.cell_count),
        Slice<const float>(b.weights, b.weight_count), Slice<const cule::observe::Blend>(b.blends, b.blend_count),
        Slice<const uint8_t>(b.tables, b.table_bytes), byte);
}

// Stores `value` at byte `at` of the newest plane.
template <class Unit> static __device__ void store_unit(const ShowTarget& w, uint32_t at, Unit value) {
    rs::store<Unit>(w.planes + static_cast<uint64_t>(w.s.newest) * w.b.plane_bytes, at, value);
}

// The threads of the block copy a plane, or fill it with zeros if `from` is null.
template <class Unit> static __device__ void copy_units(uint8_t* to, const uint8_t* from, uint32_t bytes) {
    for (uint32_t at = sizeof(Unit) * threadIdx.x; at < bytes; at += sizeof(Unit) * blockDim.x) {
        rs::store<Unit>(to, at, from == nullptr ? Unit{} : rs::load<Unit>(from, at));
    }
}

// 16 bytes, at multiples of 16.
struct alignas(16) Sixteen {
    uint64_t __attribute__((may_alias)) low, high;
};

// As `copy_units`, 16 bytes at a time; both addresses are multiples of that.
[[maybe_unused]] static __device__ void copy_sixteens(uint8_t* to, const uint8_t* from, uint32_t bytes) {
    Sixteen* places = reinterpret_cast<Sixteen*>(to);
    const uint32_t count = bytes / 16, threads = blockDim.x;
    if (from == nullptr) {
        for (uint32_t i = threadIdx.x; i < count; i += threads) places[i] = Sixteen{};
        return;
    }
    const Sixteen* others = reinterpret_cast<const Sixteen*>(from);
    uint32_t i = threadIdx.x;
    for (; i + 3 * threads < count; i += 4 * threads) {
        const Sixteen a = others[i], b = others[i + threads], c = others[i + 2 * threads], d = others[i + 3 * threads];
        places[i] = a;
        places[i + threads] = b;
        places[i + 2 * threads] = c;
        places[i + 3 * threads] = d;
    }
    for (; i < count; i += threads) places[i] = others[i];
}

[[maybe_unused]] static __device__ void copy_plane(uint8_t* to, const uint8_t* from, uint32_t bytes) {
    const uint32_t all = bytes | static_cast<uint32_t>(reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from));
    if (all % 16 == 0) copy_sixteens(to, from, bytes);
    else if (all % 4 == 0) copy_units<uint32_t>(to, from, bytes);
    else copy_units<uint8_t>(to, from, bytes);
}

// After the newest plane has been stored: clears the older ones if the step asks for it, and copies the planes to the
// observation, oldest first.
[[maybe_unused]] static __device__ void write_stack(const ShowTarget& w) {
    const ShowRequest& s = w.s;
    const uint32_t stack = w.b.stack, bytes = w.b.plane_bytes;
    const bool pushes = s.output.push != cule::env::state::PUSH_NOTHING;
    __syncthreads();
    if (pushes && s.output.clear != 0) {
        const uint8_t* newest = w.planes + static_cast<uint64_t>(s.newest) * bytes;
        const uint8_t* from = s.output.clear == cule::env::state::CLEAR_FIRST ? newest : nullptr;
        for (uint32_t k = 0; k < stack; ++k) {
            if (k != s.newest) copy_plane(w.planes + static_cast<uint64_t>(k) * bytes, from, bytes);
        }
        __syncthreads();
    }
    if (w.obs == nullptr) return;
    for (uint32_t k = w.from; k < stack; ++k) {
        const uint64_t plane = (s.newest + 1 + k) % stack;
        copy_plane(w.obs + static_cast<uint64_t>(k) * bytes, w.planes + plane * bytes, bytes);
    }
}

// The shared words of a block while it shows planes of 84 x 84.
struct Strip {
    uint32_t* pixels;
    uint32_t* sums;
    uint32_t* table;
    uint32_t* distinct;   // a bit per picture row: it differs from the row above
    uint32_t* ranks;      // per picture row, the number of distinct rows up to it
    uint32_t* rows;       // the distinct rows
    uint32_t* new_pairs;  // a bit per pair of rows of the plane: they are not both equal to the row above
    uint32_t* pairs;      // these pairs, and at the end the number of all pairs
    uint32_t* counts;     // lengths of the two lists
    uint32_t* parts;
    uint32_t* ties;
};

[[maybe_unused]] static __device__ Strip strip_of_block() {
    namespace show = cule::observe::plane;
    uint32_t* sums = block_words() + show::STRIP_WORDS;
    uint32_t* table = sums + show::STRIP_SUM_WORDS;
    uint32_t* distinct = table + TABLE_BYTES / 4;
    uint32_t* ranks = distinct + DISTINCT_WORDS;
    uint32_t* rows = ranks + show::ROWS_84;
    uint32_t* new_pairs = rows + show::ROWS_84;
    uint32_t* pairs = new_pairs + PAIR_WORDS;
    uint32_t* counts = pairs + PAIRS + 1;
    uint32_t* parts = counts + 2;
    return Strip{block_words(), sums, table, distinct, ranks, rows, new_pairs, pairs, counts, parts, parts + STRIP_PARTS};
}

// The number of bits that are set in `words` up to bit `at`.
[[maybe_unused]] static __device__ uint32_t rank_of(const uint32_t* words, uint32_t at) {
    uint32_t rank = __popc(words[at / 32] & 0xFFFFFFFFu >> (31 - at % 32));
    for (uint32_t k = 0; k < at / 32; ++k) rank += __popc(words[k]);
    return rank;
}

// Finds the distinct picture rows: those that differ from the row above in one of the pictures. Then finds the pairs of rows of the
// plane, made of five picture rows, that are not both equal to the row of the plane above.
[[maybe_unused]] static __device__ void find_distinct_rows(const ShowTarget& w, const Strip& strip) {
    namespace show = cule::observe::plane;
    PARL_CONST uint32_t TOGETHER = show::ROWS_TOGETHER;
    static_assert(show::ROWS_84 % TOGETHER == 0, "no rows are left over");
    for (uint32_t first = TOGETHER * threadIdx.x; first < show::ROWS_84; first += TOGETHER * blockDim.x) {
        const uint32_t found = show::distinct_rows(w.picture_set(), *w.workspace.board, first), bit = first % 32;
        atomicOr(strip.distinct + first / 32, found << bit);
        if (bit > 32 - TOGETHER) atomicOr(strip.distinct + first / 32 + 1, found >> (32 - bit));
    }
    __syncthreads();
    for (uint32_t first = TOGETHER * threadIdx.x; first < show::ROWS_84; first += TOGETHER * blockDim.x) {
        uint32_t rank = first == 0 ? 0 : rank_of(strip.distinct, first - 1);
        for (uint32_t row = first; row < first + TOGETHER; ++row) {
            if ((strip.distinct[row / 32] >> row % 32 & 1) != 0) strip.rows[rank++] = row;
            strip.ranks[row] = rank;
        }
    }
    __syncthreads();
    for (uint32_t pair = threadIdx.x; pair < PAIRS; pair += blockDim.x) {
        // Rows that show one distinct picture row are equal, in spite of their weights. The row above shows the three rows before.
        const bool is_new = pair == 0 || strip.ranks[5 * pair - 3] != strip.ranks[5 * pair + 4];
        if (is_new) atomicOr(strip.new_pairs + pair / 32, 1u << pair % 32);
    }
    __syncthreads();
    for (uint32_t pair = threadIdx.x; pair < PAIRS; pair += blockDim.x) {
        if ((strip.new_pairs[pair / 32] >> pair % 32 & 1) != 0) strip.pairs[rank_of(strip.new_pairs, pair) - 1] = pair;
    }
    if (threadIdx.x == 0) strip.pairs[rank_of(strip.new_pairs, PAIRS - 1)] = PAIRS;
    __syncthreads();
}

// Shows a plane of 84 x 84, strip by strip: the block computes the brightness of each distinct row once, then sums across it, then
// sums of five rows, which are two rows of the plane and those below that are equal. Few pixels lie between two values; all threads
// compute them together.
[[maybe_unused]] static __device__ void show_84(const ShowTarget& w) {
    namespace show = cule::observe::plane;
    const Batch& b = w.b;
    const show::Reduction& reduction = w.reduction();
    const show::PictureSet picture_set = w.picture_set();
    const Strip strip = strip_of_block();
    const Slice<const uint8_t> values(reinterpret_cast<const uint8_t*>(strip.table), TABLE_BYTES);
    const Slice<const cule::observe::Cell> cells(b.cells, b.cell_count);
    const Slice<const float> weights(b.weights, b.weight_count);
    const Slice<const uint32_t> ranks(strip.ranks, show::ROWS_84);
    const Slice<uint32_t> pixels(strip.pixels, show::STRIP_WORDS);
    const Slice<uint32_t> sums(strip.sums, show::STRIP_SUM_WORDS);
    uint8_t* plane = w.planes + static_cast<uint64_t>(w.s.newest) * b.plane_bytes;
    for (uint32_t i = threadIdx.x; i < TABLE_BYTES / 4; i += blockDim.x) {
        strip.table[i] = rs::load<uint32_t>(b.tables + reduction.table, 4 * i);
    }
    for (uint32_t i = threadIdx.x; i < DISTINCT_WORDS; i += blockDim.x) strip.distinct[i] = 0;
    for (uint32_t i = threadIdx.x; i < PAIR_WORDS; i += blockDim.x) strip.new_pairs[i] = 0;
    if (threadIdx.x == 0) strip.counts[0] = 0;
    __syncthreads();
    find_distinct_rows(w, strip);
    uint32_t pairs = 0;
    for (uint32_t from = 0; from < show::ROWS_84;) {
        const uint32_t before = strip.ranks[from] - 1;
        // As many distinct rows as fit, of whole pairs of rows of the plane: each of these shows five picture rows.
        const uint32_t after = before + show::STRIP_ROWS;
        const uint32_t to = after < strip.ranks[show::ROWS_84 - 1] ? strip.rows[after] / 5 * 5 : show::ROWS_84;
        const uint32_t count = strip.ranks[to - 1] - before;
        for (uint32_t place = threadIdx.x; place < count; place += blockDim.x) {
            uint32_t parts = show::brighten_row(picture_set, *w.workspace.board, values, strip.rows[before + place], place, pixels);
            uint32_t at = atomicAdd(strip.counts, __popc(parts));
            for (uint32_t word = 0; parts != 0; ++word, parts >>= 1) {
                if ((parts & 1) != 0) strip.parts[at++] = place * PART_STEP + word;
            }
        }
        if (threadIdx.x == 0) strip.counts[1] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < strip.counts[0]; i += blockDim.x) {
            const uint32_t place = strip.parts[i] / PART_STEP, part = strip.parts[i] % PART_STEP;
            show::brighten_part(picture_set, *w.workspace.board, work_of(b, w.workspace), values, strip.rows[before + place], part,
                                place, pixels);
        }
        __syncthreads();
        for (uint32_t place = threadIdx.x; place < count; place += blockDim.x) {
            show::sum_row_84(Slice<const uint32_t>(pixels), place, sums);
        }
        if (threadIdx.x == 0) strip.counts[0] = 0;
        __syncthreads();
        const auto pixel_of = [&](uint32_t byte) {
            return show::area_84(Slice<const uint32_t>(pixels), ranks, before, reduction, cells, weights, byte / 84, byte % 84);
        };
        const uint32_t pairs_before = pairs;
        pairs = rank_of(strip.new_pairs, to / 5 - 1);
        for (uint32_t i = threadIdx.x; i < (pairs - pairs_before) * show::UNITS_ACROSS; i += blockDim.x) {
            const uint32_t down = i * UNIT_SCALE >> 16, unit = i - down * show::UNITS_ACROSS, place = pairs_before + down;
            const uint32_t pair = strip.pairs[place], equal = 2 * (strip.pairs[place + 1] - pair) - 1;
            Array<Array<uint32_t, show::QUADS>, 2> found;
            uint32_t ties = show::round_unit_84(Slice<const uint32_t>(sums), ranks, before, 5 * pair, unit, found);
            const uint32_t first = 2 * pair * 84 + unit * show::UNIT_COLUMNS;
            uint8_t* line = plane + first;
            for (uint32_t quad = 0; quad < show::QUADS; ++quad) rs::store<uint32_t>(line, 4 * quad, found[0][quad]);
            // The lower row, and those below that are equal to it.
            for (uint32_t left = equal; left != 0; --left) {
                line += 84;
                for (uint32_t quad = 0; quad < show::QUADS; ++quad) rs::store<uint32_t>(line, 4 * quad, found[1][quad]);
            }
            for (; ties != 0; ties &= ties - 1) {
                const uint32_t bit = __popc((ties & (0u - ties)) - 1), quad = bit % 8;
                const bool upper = quad < show::QUADS;
                uint32_t byte = first + 4 * quad + bit / 8 + (upper ? 0 : 84 - show::UNIT_COLUMNS);
                uint32_t left = upper ? 1 : equal, at = atomicAdd(strip.counts + 1, left);
                for (; left != 0; --left, ++at, byte += 84) {
                    // Those for which there is no place are computed at once.
                    if (at < TIES) {
                        strip.ties[at] = byte;
                    } else {
                        plane[byte] = pixel_of(byte);
                    }
                }
            }
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < TIES && i < strip.counts[1]; i += blockDim.x) plane[strip.ties[i]] = pixel_of(strip.ties[i]);
        __syncthreads();
        from = to;
    }
}

// Shows a plane of any other kind, or no new plane: one or four bytes at a time. The shown rows of the board
// are converted to bytes first.
[[maybe_unused]] static __device__ void show_plane(const ShowTarget& w) {
    const bool pushes = w.s.output.push != cule::env::state::PUSH_NOTHING;
    if (w.s.output.push == cule::env::state::PUSH_PICTURES) {
        const uint32_t rows = w.b.games[w.b.env_games[w.s.env]].height;
        for (uint32_t i = 0; i < 3; ++i) {
            const uint32_t picture = w.s.output.picture[i];
            for (uint32_t row = threadIdx.x; picture < cule::env::state::FIRST_WORK_PICTURE && row < rows; row += blockDim.x) {
                cule::machine::tia::rows::expand_complete(*w.workspace.board, picture, row);
            }
        }
        __syncthreads();
    }
    const uint32_t unit = w.by_words ? 4 : 1;
    for (uint32_t at = unit * threadIdx.x; pushes && at < w.b.plane_bytes; at += unit * blockDim.x) {
        uint32_t value = 0;
        for (uint32_t i = 0; i < unit; ++i) value |= static_cast<uint32_t>(new_byte(w, at + i)) << (8 * i);
        if (w.by_words) {
            store_unit<uint32_t>(w, at, value);
        } else {
            store_unit<uint8_t>(w, at, static_cast<uint8_t>(value));
        }
    }
}

// All threads of the block show the environments of its lanes: they add the new plane to the ring and write
// the stack to the observation, oldest plane first.
[[maybe_unused]] static __device__ __noinline__ void show(const Batch& b, const Call& call, const ShowRequest* requests) {
    const uint64_t stack_bytes = static_cast<uint64_t>(b.stack) * b.plane_bytes;
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const ShowRequest s = requests[lane];
        if (s.env == NO_ENV) continue;
        const bool to_final_obs = s.to_final_obs != 0;
        uint8_t* obs = to_final_obs ? call.final_obs : call.obs;
        if (obs != nullptr) obs += s.env * (to_final_obs || call.obs_stride == 0 ? stack_bytes : call.obs_stride);
        const uint32_t from = call.slides != 0 && s.stack_moved != 0 && !to_final_obs ? b.stack - 1 : 0;
        const ShowTarget w{b, s, workspace_of(b, blockIdx.x, lane), b.planes + s.env * stack_bytes, obs, from, b.plane_bytes % 4 == 0};
        const uint8_t push = s.output.push;
        const bool draws = push == cule::env::state::PUSH_PICTURES;
        if (push == cule::env::state::PUSH_RESET_PLANE) {
            copy_plane(w.planes + static_cast<uint64_t>(s.newest) * b.plane_bytes,
                       b.reset_planes + static_cast<uint64_t>(s.reset_state) * b.plane_bytes, b.plane_bytes);
        } else if (draws && w.reduction().kind == cule::observe::plane::REDUCE_84 && w.reduction().channels == 1) {
            show_84(w);
        } else {
            show_plane(w);
        }
        write_stack(w);
        if (call.ram == nullptr || to_final_obs) continue;
        for (uint32_t i = threadIdx.x; i < RAM_BYTES; i += blockDim.x) {
            call.ram[static_cast<uint64_t>(s.env) * RAM_BYTES + i] = *head_byte(b, s.env, RAM_AT + i);
        }
    }
}

// The last two pictures of the boot of an environment's game.
[[maybe_unused]] static __device__ Slice<const uint8_t> boot_of(const Batch& b, uint32_t env) {
    return Slice<const uint8_t>(b.boot_pictures + static_cast<uint64_t>(b.env_games[env]) * b.boot_bytes, b.boot_bytes);
}

// Resets with `env::reset::copy_reset_state`: copies a reset state and returns its number.
template <class Runs>
[[maybe_unused]] static __device__ uint32_t reset_from_table(const Batch& b, uint32_t env, cule::env::state::Head& head, cule::env::state::StepOutput& output,
                                                      const Workspace& workspace) {
    const cule::env::state::EnvGame& game = b.games[b.env_games[env]];
    Runs runner{rom_of(b, game)};
    begin_line(*workspace.board);
    const uint32_t number = cule::env::reset::copy_reset_state(runner, head, output, b.randoms[env], workspace.generators[0], *workspace.board, boot_of(b, env),
                             Slice<const cule::env::state::ResetState>(b.reset_states, b.reset_state_count), rules_of(b, env), game);
    keep_pictures(b, env, output, workspace);
    return number;
}

// Writes the figures after a reset. `within` a step, which has written its own, only lives, frame number and
// episode frame number are replaced.
[[maybe_unused]] static __device__ void store_reset_figures(const Batch& b, const Call& call, uint32_t env, const cule::env::state::Head& head, bool within) {
    const cule::env::state::Figures figures = cule::env::state::figures(head, env);
    if (!within) {
        store_figures(b, call, env, figures);
        return;
    }
    for (uint32_t k = 2; k < 5; ++k) call.numbers[static_cast<uint64_t>(k) * b.count + env] = figures.number[k];
}
