// The kernels as host C++: every block of a launch in turn, its threads as coroutines that change at `__syncthreads`. For
// machines without a GPU: `tests/gpu.rs` loads it.
#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(threads)

struct Three {
    uint32_t x;
};
static thread_local Three blockIdx, blockDim, gridDim, threadIdx;

static inline uint32_t atomicMax(uint32_t* place, uint32_t value) {
    const uint32_t before = *place;
    if (value > before) *place = value;
    return before;
}
static inline uint32_t atomicAdd(uint32_t* place, uint32_t value) { return (*place += value) - value; }
static inline uint32_t atomicOr(uint32_t* place, uint32_t value) {
    const uint32_t before = *place;
    *place |= value;
    return before;
}
static inline uint32_t atomicAnd(uint32_t* place, uint32_t value) {
    const uint32_t before = *place;
    *place &= value;
    return before;
}

// One thread of a block.
struct Thread {
    ucontext_t here;
    std::unique_ptr<char[]> stack;
    bool over;
};
static constexpr size_t STACK_BYTES = 256 * 1024;
static thread_local std::vector<Thread> threads;
static thread_local ucontext_t scheduler;
static thread_local void (*body)();

static void __syncthreads() { swapcontext(&threads[threadIdx.x].here, &scheduler); }

static void run_thread() {
    body();
    threads[threadIdx.x].over = true;
    __syncthreads();
}

// Runs the threads of a block from one barrier to the next, until they are all over.
static void run_block() {
    while (threads.size() < blockDim.x) threads.push_back(Thread{{}, std::make_unique<char[]>(STACK_BYTES), false});
    for (uint32_t i = 0; i < blockDim.x; ++i) {
        Thread& thread = threads[i];
        thread.over = false;
        getcontext(&thread.here);
        thread.here.uc_stack.ss_sp = thread.stack.get();
        thread.here.uc_stack.ss_size = STACK_BYTES;
        thread.here.uc_link = nullptr;
        makecontext(&thread.here, run_thread, 0);
    }
    for (uint32_t left = blockDim.x; left > 0;) {
        left = 0;
        for (uint32_t i = 0; i < blockDim.x; ++i) {
            if (threads[i].over) continue;
            threadIdx.x = i;
            swapcontext(&scheduler, &threads[i].here);
            left += !threads[i].over;
        }
    }
}

#include "reset.cu"
#include "states.cu"
#include "step.cu"

static thread_local const Batch* given_batch;
static thread_local const Call* given_call;
static thread_local void (*given_kernel)(Batch, Call);
static void run_given() { given_kernel(*given_batch, *given_call); }

// Runs a kernel; 0, or 1 when there is none of that name.
extern "C" int parl_launch(const char* name, uint32_t blocks, uint32_t threads_each, const Batch* batch, const Call* call) {
    struct Entry {
        const char* name;
        void (*run)(Batch, Call);
        bool has_barriers;
    };
    const Entry all[] = {{"parl_step", parl_step, true},
                         {"parl_reset", parl_reset, true},
                         {"parl_rooms", parl_rooms, false},
                         {"parl_states", parl_states, false}};
    for (const Entry& entry : all) {
        if (std::strcmp(entry.name, name) != 0) continue;
        blockDim.x = threads_each;
        gridDim.x = blocks;
        given_batch = batch;
        given_call = call;
        given_kernel = entry.run;
        body = run_given;
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
            if (entry.has_barriers) {
                run_block();
            } else {
                for (threadIdx.x = 0; threadIdx.x < threads_each; ++threadIdx.x) entry.run(*batch, *call);
            }
        }
        return 0;
    }
    return 1;
}

// Sizes that the other side must agree on.
extern "C" uint32_t parl_size(uint32_t which) {
    const uint32_t sizes[] = {sizeof(Batch), sizeof(Call), sizeof(cule::lane::Head), PARL_OFFSET(cule::machine::Board, ram),
                              FIRST_CART, SECOND_CART};
    return which < 6 ? sizes[which] : 0;
}
