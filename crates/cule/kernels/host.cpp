// The kernels as host C++: every block of a launch in turn, its threads as coroutines that change where a thread waits
// for others: at `__syncthreads`, and in what the lanes of a warp do together. For machines without a GPU: `tests/gpu.rs`
// loads it.
#undef _FORTIFY_SOURCE  // It takes a jump to another stack for an error.
#include <setjmp.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "ptx.h"

#define __global__
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(threads)
#define __noinline__ __attribute__((noinline))

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

// What a thread of a block does: runs, waits for the block, for any lanes of its warp, for certain ones; or it is over.
enum class State { runs, block, any, minimum, over };

// One thread of a block.
struct Thread {
    ucontext_t start;
    jmp_buf here;
    std::unique_ptr<char[]> stack;
    State state;
    bool begun;
    uint32_t mask;   // the lanes it waits for
    uint32_t value;  // what it brings, then what it gets
};
static constexpr size_t STACK_BYTES = 256 * 1024;
static constexpr uint32_t WARP = 32;
static thread_local std::vector<Thread> threads;
static thread_local jmp_buf scheduler;
static thread_local void (*body)();
// Where a warp's lanes meet, a device may bring any of them together: 0 takes all, another number draws.
static thread_local uint64_t splits;
// Turns of groups, and the lanes that took them.
static thread_local uint64_t turns, turning;

static __attribute__((noinline)) void leave() {
    if (_setjmp(threads[threadIdx.x].here) == 0) _longjmp(scheduler, 1);
}

static uint32_t wait(State state, uint32_t mask, uint32_t value) {
    const uint32_t me = threadIdx.x;
    threads[me].state = state;
    threads[me].mask = mask;
    threads[me].value = value;
    leave();
    return threads[me].value;
}

static void __syncthreads() { wait(State::block, 0, 0); }
[[maybe_unused]] static uint32_t __activemask() { return wait(State::any, 0, 0); }
[[maybe_unused]] static uint32_t __reduce_min_sync(uint32_t mask, uint32_t value) { return wait(State::minimum, mask, value); }

// As turns of those that say so.
[[maybe_unused]] static bool __any_sync(uint32_t mask, bool says) {
    return __reduce_min_sync(mask, says ? 0 : UINT32_MAX) != UINT32_MAX;
}

static void run_thread() {
    body();
    threads[threadIdx.x].state = State::over;
    _longjmp(scheduler, 1);
}

static __attribute__((noinline)) void enter(Thread& thread) {
    if (_setjmp(scheduler) != 0) return;
    if (thread.begun) _longjmp(thread.here, 1);
    thread.begun = true;
    setcontext(&thread.start);
}

// Lanes whose companions are all there get the smallest value; true when there were such.
static bool give_minima(Thread* warp, uint32_t lanes) {
    bool given = false;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
        if (warp[lane].state != State::minimum) continue;
        const uint32_t mask = warp[lane].mask;
        uint32_t least = UINT32_MAX, those = 0;
        bool all = true;
        for (uint32_t other = 0; other < WARP; ++other) {
            if (!(mask >> other & 1)) continue;
            all = all && other < lanes && warp[other].state == State::minimum && warp[other].mask == mask;
            if (!all) break;
            those = warp[other].value < least ? 1 : those + (warp[other].value == least);
            least = warp[other].value < least ? warp[other].value : least;
        }
        if (!all) continue;
        given = true;
        turns += least != UINT32_MAX;
        turning += least != UINT32_MAX ? those : 0;
        for (uint32_t other = 0; other < lanes; ++other) {
            if (!(mask >> other & 1)) continue;
            warp[other].value = least;
            warp[other].state = State::runs;
        }
    }
    return given;
}

// Lanes that would know who is with them: all that have come, or some of them.
static bool bring_together(Thread* warp, uint32_t lanes) {
    uint32_t here = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) here |= static_cast<uint32_t>(warp[lane].state == State::any) << lane;
    if (here == 0) return false;
    uint32_t chosen = here;
    if (splits != 0) {
        splits = splits * 6364136223846793005u + 1442695040888963407u;
        chosen = here & static_cast<uint32_t>(splits >> 32);
        if (chosen == 0) chosen = here & (~here + 1);
    }
    for (uint32_t lane = 0; lane < lanes; ++lane) {
        if (!(chosen >> lane & 1)) continue;
        warp[lane].value = chosen;
        warp[lane].state = State::runs;
    }
    return true;
}

// Runs the threads of a block until they are all over.
static void run_block() {
    const uint32_t count = blockDim.x;
    while (threads.size() < count) threads.push_back(Thread{{}, {}, std::make_unique<char[]>(STACK_BYTES), {}, {}, {}, {}});
    for (uint32_t i = 0; i < count; ++i) {
        Thread& thread = threads[i];
        thread.state = State::runs;
        thread.begun = false;
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = thread.stack.get();
        thread.start.uc_stack.ss_size = STACK_BYTES;
        thread.start.uc_link = nullptr;
        makecontext(&thread.start, run_thread, 0);
    }
    for (;;) {
        uint32_t over = 0, waiting = 0;
        for (uint32_t i = 0; i < count; ++i) {
            if (threads[i].state == State::runs) {
                threadIdx.x = i;
                enter(threads[i]);
            }
            over += threads[i].state == State::over;
            waiting += threads[i].state == State::block;
        }
        if (over == count) return;
        bool moved = false;
        for (uint32_t first = 0; first < count; first += WARP) {
            const uint32_t lanes = count - first < WARP ? count - first : WARP;
            moved = give_minima(&threads[first], lanes) || moved;
        }
        for (uint32_t first = 0; first < count && !moved; first += WARP) {
            const uint32_t lanes = count - first < WARP ? count - first : WARP;
            moved = bring_together(&threads[first], lanes) || moved;
        }
        if (moved) continue;
        if (over + waiting < count) {
            std::fprintf(stderr, "the threads of a block wait for each other for ever\n");
            std::abort();
        }
        for (uint32_t i = 0; i < count; ++i) {
            if (threads[i].state == State::block) threads[i].state = State::runs;
        }
    }
}

#include "step.cu"
// Behind the kernels that say how frames are run.
#include "reset.cu"
#include "states.cu"

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
        // A file of its own on a device: what does not step has the plain form.
        turns_of_block() = Turns{nullptr, cule::lane::turns::FORM_PLAIN, 0};
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

// How lanes are brought together from now on, and how many turns and lanes there have been since the last call.
extern "C" void parl_lanes(uint64_t split, uint64_t* turns_and_lanes) {
    splits = split;
    turns_and_lanes[0] = turns;
    turns_and_lanes[1] = turning;
    turns = turning = 0;
}

// Sizes that the other side must agree on.
extern "C" uint32_t parl_size(uint32_t which) {
    const uint32_t sizes[] = {sizeof(Batch), sizeof(Call), sizeof(cule::lane::Head), PARL_OFFSET(cule::machine::Board, ram),
                              FIRST_CART, SECOND_CART, SHARED_BYTES};
    return which < 7 ? sizes[which] : 0;
}
