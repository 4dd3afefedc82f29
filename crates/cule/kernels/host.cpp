// The kernels as host C++: every thread of a launch in turn. For machines without a GPU: `tests/gpu.rs` loads it.
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
struct Three {
    uint32_t x;
};
static thread_local Three blockIdx, blockDim, threadIdx;
static inline uint32_t atomicMax(uint32_t* place, uint32_t value) {
    const uint32_t before = *place;
    if (value > before) *place = value;
    return before;
}

#include "observe.cu"
#include "reset.cu"
#include "step.cu"

// Runs a kernel; 0, or 1 when there is none of that name.
extern "C" int parl_launch(const char* name, uint32_t blocks, uint32_t threads, const Batch* batch, const Call* call) {
    struct Entry {
        const char* name;
        void (*run)(Batch, Call);
    };
    const Entry all[] = {
        {"parl_step", parl_step}, {"parl_reset", parl_reset}, {"parl_observe", parl_observe}, {"parl_states", parl_states}};
    for (const Entry& entry : all) {
        if (std::strcmp(entry.name, name) != 0) continue;
        blockDim.x = threads;
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) entry.run(*batch, *call);
        }
        return 0;
    }
    return 1;
}

// Sizes that the other side must agree on.
extern "C" uint32_t parl_size(uint32_t which) {
    const uint32_t sizes[] = {sizeof(Batch), sizeof(Call), sizeof(cule::lane::Head), PARL_OFFSET(cule::machine::Board, ram)};
    return which < 4 ? sizes[which] : 0;
}
