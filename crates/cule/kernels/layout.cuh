// Where the environments of a batch lie in device memory, and what a launch is told. No fact about the console.
//
// The Rust side of these structs is src/batch/gpu/layout.rs; tests/gpu.rs holds their sizes against each other.
#pragma once
#include "machine.cuh"

// No environment: threads that fill up a warp, so that a warp has one game.
PARL_CONST uint32_t NOBODY = 0xFFFFFFFFu;

// What an environment does when its episode has ended, as `Call::mode` of `parl_step`.
PARL_CONST uint32_t NEXT_STEP = 0, SAME_STEP = 1, DISABLED = 2;
// Why `parl_reset` runs, as `Call::mode`: resets that are due, those due within a step, those the caller asks for.
PARL_CONST uint32_t RESET_DUE = 0, RESET_WITHIN = 1, RESET_ASKED = 2;
// What `parl_observe` writes, as `Call::mode`: all to `obs`; what ended to `final_obs` and the rest to `obs`; what was
// reset after that to `obs`.
PARL_CONST uint32_t OBSERVE_ALL = 0, OBSERVE_ENDED_APART = 1, OBSERVE_RESET = 2;
// Faults: the largest environment that met one is kept, plus one.
PARL_CONST uint32_t FAULT_ACTION = 0, FAULT_NOT_RESET = 1, FAULT_ENDED = 2, FAULT_MODE = 3;

// All environments. Word w of the head of environment e is at heads[w * count + e]: lanes of a warp read neighbours.
struct Batch {
    uint32_t* heads;
    cule::random::Random* randoms;
    uint8_t* boards;
    uint8_t* kept;
    uint8_t* planes;
    cule::machine::input::Input* inputs;
    cule::lane::Extra* extras;
    uint32_t* faults;
    const uint32_t* order;
    const uint32_t* playing;
    const cule::lane::LaneGame* games;
    const cule::lane::LaneRules* rules;
    const uint8_t* roms;
    const uint8_t* boot_pictures;
    const cule::lane::show::Reduction* reductions;
    const cule::observe::Cell* cells;
    const float* weights;
    const cule::observe::Blend* blends;
    const uint8_t* tables;
    uint32_t count;
    uint32_t threads;
    uint32_t board_bytes;
    uint32_t kept_bytes;
    uint32_t plane_bytes;
    uint32_t stack;
    uint32_t inputs_per_env;
    uint32_t boot_bytes;
    uint32_t cell_count;
    uint32_t weight_count;
    uint32_t blend_count;
    uint32_t table_bytes;
};

// One launch. What a kernel does not need is null or 0.
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
    uint32_t mode;
    uint32_t wide_actions;
    uint32_t row_count;
    uint32_t row_bytes;
    uint32_t writes;
    uint32_t unused;
};

[[maybe_unused]] static __device__ uint32_t thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

[[maybe_unused]] static __device__ uint8_t* head_byte(const Batch& b, uint32_t env, uint32_t byte) {
    const uint64_t word = static_cast<uint64_t>(byte / 4) * b.count + env;
    return reinterpret_cast<uint8_t*>(b.heads + word) + byte % 4;
}

[[maybe_unused]] static __device__ void load_head(const Batch& b, uint32_t env, cule::lane::Head& head) {
    uint32_t* words = reinterpret_cast<uint32_t*>(&head);
    for (uint32_t w = 0; w < sizeof(cule::lane::Head) / 4; ++w) {
        words[w] = b.heads[static_cast<uint64_t>(w) * b.count + env];
    }
}

[[maybe_unused]] static __device__ void store_head(const Batch& b, uint32_t env, const cule::lane::Head& head) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(&head);
    for (uint32_t w = 0; w < sizeof(cule::lane::Head) / 4; ++w) {
        b.heads[static_cast<uint64_t>(w) * b.count + env] = words[w];
    }
}

[[maybe_unused]] static __device__ cule::machine::Board& board_of(const Batch& b, uint32_t env) {
    return *reinterpret_cast<cule::machine::Board*>(b.boards + static_cast<uint64_t>(env) * b.board_bytes);
}

[[maybe_unused]] static __device__ Slice<uint8_t> kept_of(const Batch& b, uint32_t env) {
    return Slice<uint8_t>(b.kept + static_cast<uint64_t>(env) * b.kept_bytes, b.kept_bytes);
}

[[maybe_unused]] static __device__ Slice<const uint8_t> rom_of(const Batch& b, const cule::lane::LaneGame& game) {
    return Slice<const uint8_t>(b.roms + game.rom_at, game.rom_bytes);
}

[[maybe_unused]] static __device__ void fault(const Batch& b, uint32_t kind, uint32_t env) { atomicMax(b.faults + kind, env + 1); }

// Figures of environment e: number k at numbers[k * count + e], flag k at flags[k * count + e].
[[maybe_unused]] static __device__ void give_figures(const Batch& b, const Call& call, uint32_t env, const cule::lane::Figures& figures) {
    for (uint32_t k = 0; k < cule::lane::NUMBERS; ++k) {
        call.numbers[static_cast<uint64_t>(k) * b.count + env] = figures.number[k];
    }
    for (uint32_t k = 0; k < 3; ++k) call.flags[static_cast<uint64_t>(k) * b.count + env] = figures.flag[k];
}
