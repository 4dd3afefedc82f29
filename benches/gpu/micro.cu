// Kernels for `micro.py`, which measures separately: a minimum over a warp, a jump through a table, code that
// does not fit the instruction cache, and frames with the jump-table interpreter.
#include "brx.cu"

// Measures the cycles of `rounds` dependent minima over a warp, and of as many independent ones.
extern "C" __global__ void redux(uint64_t* cycles, uint32_t* sink, uint32_t rounds) {
    uint32_t value = threadIdx.x + sink[threadIdx.x];
    const uint64_t start = clock64();
    for (uint32_t i = 0; i < rounds; ++i) value = __reduce_min_sync(0xFFFFFFFFu, value + threadIdx.x);
    const uint64_t middle = clock64();
    uint32_t a = value, b = value + 1, c = value + 2, d = value + 3;
    for (uint32_t i = 0; i < rounds / 4; ++i) {
        a += __reduce_min_sync(0xFFFFFFFFu, i + threadIdx.x);
        b += __reduce_min_sync(0xFFFFFFFFu, i ^ threadIdx.x);
        c += __reduce_min_sync(0xFFFFFFFFu, i | threadIdx.x);
        d += __reduce_min_sync(0xFFFFFFFFu, i & threadIdx.x);
    }
    const uint64_t end = clock64();
    sink[threadIdx.x] = a + b + c + d;
    if (threadIdx.x == 0) {
        cycles[2 * blockIdx.x] = middle - start;
        cycles[2 * blockIdx.x + 1] = end - middle;
    }
}

#define OP(i) value = value * 1664525u + (value >> ((i) % 31 + 1)) + (i);
// The compiler's time grows faster than the length of a chain whose values it can follow, so `asm` hides them.
#define OPS_8(i) \
    OP(i) OP(i + 1) OP(i + 2) OP(i + 3) OP(i + 4) OP(i + 5) OP(i + 6) OP(i + 7) \
    asm volatile("" : "+r"(value));
#define OPS_64(i) OPS_8(i) OPS_8(i + 8) OPS_8(i + 16) OPS_8(i + 24) OPS_8(i + 32) OPS_8(i + 40) OPS_8(i + 48) OPS_8(i + 56)
#define OPS_512(i) \
    OPS_64(i) OPS_64(i + 64) OPS_64(i + 128) OPS_64(i + 192) OPS_64(i + 256) OPS_64(i + 320) OPS_64(i + 384) OPS_64(i + 448)

// A loop over straight-line code, with 3 instructions and 48 bytes per operation. SIZE selects 64, 576,
// 2,624 or 5,696 operations.
template <int SIZE> static __device__ uint32_t straight(uint32_t value, uint32_t rounds) {
    // The size of the code is measured, so the loop must not be unrolled.
#pragma unroll 1
    for (uint32_t i = 0; i < rounds; ++i) {
        OPS_64(0)
        if constexpr (SIZE >= 1) { OPS_512(64) }
        if constexpr (SIZE >= 2) { OPS_512(576) OPS_512(1088) OPS_512(1600) OPS_512(2112) }
        if constexpr (SIZE >= 3) { OPS_512(2624) OPS_512(3136) OPS_512(3648) OPS_512(4160) OPS_512(4672) OPS_512(5184) }
    }
    return value;
}

template <int SIZE> static __device__ void run_straight(uint64_t* cycles, uint32_t* sink, uint32_t rounds) {
    const uint64_t start = clock64();
    sink[blockIdx.x * blockDim.x + threadIdx.x] = straight<SIZE>(threadIdx.x + sink[threadIdx.x], rounds);
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
}
extern "C" __global__ void straight_0(uint64_t* cycles, uint32_t* sink, uint32_t rounds) { run_straight<0>(cycles, sink, rounds); }
extern "C" __global__ void straight_1(uint64_t* cycles, uint32_t* sink, uint32_t rounds) { run_straight<1>(cycles, sink, rounds); }
extern "C" __global__ void straight_2(uint64_t* cycles, uint32_t* sink, uint32_t rounds) { run_straight<2>(cycles, sink, rounds); }
extern "C" __global__ void straight_3(uint64_t* cycles, uint32_t* sink, uint32_t rounds) { run_straight<3>(cycles, sink, rounds); }

// Sizes of machine and board, and offsets of the machine in a state and of the cartridge in the machine, for
// the host.
extern "C" __global__ void sizes(uint32_t* out) {
    out[0] = sizeof(Machine);
    out[1] = sizeof(Board);
    out[2] = PARL_OFFSET(cule::env::State, machine);
    out[3] = PARL_OFFSET(Machine, cart);
}
