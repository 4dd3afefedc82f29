// The kernels of `brx.cu` with counters: how often warps start frames and take turns, and with how many lanes.
__device__ unsigned long long lane_counts[4];

#define PARL_COUNT_LANES(point, together, counted)                             \
    {                                                                          \
        const unsigned int lanes = __ballot_sync(together, counted);           \
        if (static_cast<int>(threadIdx.x % 32) == __ffs(together) - 1) {       \
            atomicAdd(lane_counts + 2 * (point), 1ull);                        \
            atomicAdd(lane_counts + 2 * (point) + 1, 1ull * __popc(lanes));    \
        }                                                                      \
    }
#include "brx.cu"

// Reads the counters and sets them to 0: frames started by groups of lanes, their lanes, turns, their lanes.
extern "C" __global__ void counts(uint64_t* out) {
    out[threadIdx.x] = lane_counts[threadIdx.x];
    lane_counts[threadIdx.x] = 0;
}
