// The kernels as host C++, for machines without a GPU; `tests/gpu` loads it. The blocks of a launch run
// one after the other. The threads of a block are coroutines that switch where a thread waits for others: at
// `__syncthreads`, and in operations of a whole warp.
#undef _FORTIFY_SOURCE  // It reports a jump to another stack as an error.
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
#define __launch_bounds__(...)
#define __noinline__ __attribute__((noinline))

struct Index {
    uint32_t x;
};
static thread_local Index blockIdx, blockDim, gridDim, threadIdx;

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
// All threads of the host see writes in one order.
static inline void __threadfence() {}
static inline int __popc(uint32_t value) { return __builtin_popcount(value); }

// Intrinsics in bodies of the generated functions, as in the CUDA Math API.
#define PARL_INTRINSICS
static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t count) {
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (count & 31));
}
static inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t sum) {
    for (uint32_t i = 0; i < 32; i += 8) sum += (a >> i & 0xFF) * (b >> i & 0xFF);
    return sum;
}

// State of a thread: it runs, waits for its block (`__syncthreads`), for any lanes of its warp
// (`__activemask`), for certain lanes (`__reduce_min_sync`), or has ended.
enum State { RUNS, BLOCK, ANY, MINIMUM, OVER, STATES };

// One thread of a block.
struct Thread {
    ucontext_t start;
    jmp_buf here;
    std::unique_ptr<char[]> stack;
    bool begun;
    uint32_t mask;   // the lanes that it waits for
    uint32_t value;  // its operand, then its result
};
static constexpr size_t STACK_BYTES = 256 * 1024;
static constexpr uint32_t WARP = 32;
// For each state, the lanes of a warp in that state, one bit per lane.
struct Warp {
    uint32_t lanes[STATES];

    void change_state(uint32_t mask, State from, State to) {
        lanes[from] &= ~mask;
        lanes[to] |= mask;
    }
};
static thread_local std::vector<Thread> threads;
static thread_local std::vector<Warp> warps;
static thread_local jmp_buf scheduler;
static thread_local void (*body)();
// `__activemask` of a device may return any subset of the lanes that wait there: 0 returns all, another
// number is the state of a generator that draws the subset.
static thread_local uint64_t active_mask_seed;
// Number of minima over groups of lanes, and the lanes that had the minimum, summed.
static thread_local uint64_t turns, lanes_in_turns;

static __attribute__((noinline)) void return_to_scheduler() {
    if (_setjmp(threads[threadIdx.x].here) == 0) _longjmp(scheduler, 1);
}

static uint32_t wait(State state, uint32_t mask, uint32_t value) {
    const uint32_t me = threadIdx.x;
    warps[me / WARP].change_state(1u << me % WARP, RUNS, state);
    threads[me].mask = mask;
    threads[me].value = value;
    return_to_scheduler();
    return threads[me].value;
}

static void __syncthreads() { wait(BLOCK, 0, 0); }
[[maybe_unused]] static uint32_t __activemask() { return wait(ANY, 0, 0); }
[[maybe_unused]] static uint32_t __reduce_min_sync(uint32_t mask, uint32_t value) { return wait(MINIMUM, mask, value); }


static void run_thread() {
    body();
    warps[threadIdx.x / WARP].change_state(1u << threadIdx.x % WARP, RUNS, OVER);
    _longjmp(scheduler, 1);
}

static __attribute__((noinline)) void enter(Thread& thread) {
    if (_setjmp(scheduler) != 0) return;
    if (thread.begun) _longjmp(thread.here, 1);
    thread.begun = true;
    setcontext(&thread.start);
}

// Removes the lowest lane of `lanes` and returns it.
static uint32_t take_lowest(uint32_t& lanes) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(lanes));
    lanes &= lanes - 1;
    return lane;
}

// Completes the minima for which all lanes of the mask wait. Returns true if there was one.
static bool complete_minima(Warp& warp, Thread* own) {
    bool given = false;
    for (uint32_t left = warp.lanes[MINIMUM]; left != 0;) {
        const uint32_t mask = own[__builtin_ctz(left)].mask, here = warp.lanes[MINIMUM];
        uint32_t least = UINT32_MAX, lowest_count = 0;
        bool all = (mask & here) == mask;
        for (uint32_t others = mask & here; others != 0;) {
            const Thread& other = own[take_lowest(others)];
            all = all && other.mask == mask;
            lowest_count = other.value < least ? 1 : lowest_count + (other.value == least);
            least = other.value < least ? other.value : least;
        }
        left &= left - 1;
        if (!all) continue;
        left &= ~mask;
        given = true;
        turns += least != UINT32_MAX;
        lanes_in_turns += least != UINT32_MAX ? lowest_count : 0;
        for (uint32_t others = mask; others != 0;) own[take_lowest(others)].value = least;
        warp.change_state(mask, MINIMUM, RUNS);
    }
    return given;
}

// Completes `__activemask` for all lanes that wait there, or for a drawn subset. Returns true if any lane
// waits.
static bool complete_active_masks(Warp& warp, Thread* own) {
    const uint32_t here = warp.lanes[ANY];
    if (here == 0) return false;
    uint32_t chosen = here;
    if (active_mask_seed != 0) {
        active_mask_seed = active_mask_seed * 6364136223846793005u + 1442695040888963407u;
        chosen = here & static_cast<uint32_t>(active_mask_seed >> 32);
        if (chosen == 0) chosen = here & (~here + 1);
    }
    for (uint32_t others = chosen; others != 0;) own[take_lowest(others)].value = chosen;
    warp.change_state(chosen, ANY, RUNS);
    return true;
}

// Runs the threads of a block until all have ended.
static void run_block() {
    const uint32_t count = blockDim.x;
    while (threads.size() < count) threads.push_back(Thread{{}, {}, std::make_unique<char[]>(STACK_BYTES), {}, {}, {}});
    warps.assign((count + WARP - 1) / WARP, Warp{});
    for (uint32_t i = 0; i < count; ++i) {
        Thread& thread = threads[i];
        warps[i / WARP].lanes[RUNS] |= 1u << i % WARP;
        thread.begun = false;
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = thread.stack.get();
        thread.start.uc_stack.ss_size = STACK_BYTES;
        thread.start.uc_link = nullptr;
        makecontext(&thread.start, run_thread, 0);
    }
    for (;;) {
        bool moved = false, over = true, waiting = true;
        for (uint32_t i = 0; i < warps.size(); ++i) {
            for (uint32_t left = warps[i].lanes[RUNS]; left != 0;) {
                threadIdx.x = i * WARP + take_lowest(left);
                enter(threads[threadIdx.x]);
            }
        }
        for (uint32_t i = 0; i < warps.size(); ++i) moved = complete_minima(warps[i], &threads[i * WARP]) || moved;
        for (uint32_t i = 0; i < warps.size() && !moved; ++i) moved = complete_active_masks(warps[i], &threads[i * WARP]);
        if (moved) continue;
        for (Warp& warp : warps) {
            over = over && warp.lanes[BLOCK] == 0 && warp.lanes[MINIMUM] == 0;
            waiting = waiting && warp.lanes[MINIMUM] == 0;
            warp.change_state(warp.lanes[BLOCK], BLOCK, RUNS);
        }
        if (over) return;
        if (!waiting) {
            std::fprintf(stderr, "the threads of a block wait for each other for ever\n");
            std::abort();
        }
    }
}

#include "step.cu"
// Must come after step.cu, which includes forms.cuh.
#include "reset.cu"
#include "states.cu"

static thread_local const Batch* given_batch;
static thread_local const Call* given_call;
static thread_local void (*given_kernel)(Batch, Call);
static void run_given() { given_kernel(*given_batch, *given_call); }

// Runs a kernel. Returns 0, or 1 if there is no kernel of that name.
extern "C" int parl_launch(const char* name, uint32_t blocks, uint32_t threads_each, const Batch* batch, const Call* call) {
    struct Entry {
        const char* name;
        void (*run)(Batch, Call);
        bool has_barriers;
    };
    const Entry all[] = {{"parl_step", parl_step, true},
                         {"parl_reset", parl_reset, true},
                         {"parl_saved_pictures", parl_saved_pictures, false},
                         {"parl_states", parl_states, false}};
    for (const Entry& entry : all) {
        if (std::strcmp(entry.name, name) != 0) continue;
        blockDim.x = threads_each;
        gridDim.x = blocks;
        given_batch = batch;
        given_call = call;
        given_kernel = entry.run;
        body = run_given;
        // parl_step sets its own schedule; the kernels of the other files use the plain form.
        schedule_of_block() = WarpSchedule{nullptr, cule::env::warp_schedule::FORM_PLAIN, 0};
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

// Sets `active_mask_seed`, and returns the number of minima and of their lanes since the last call.
extern "C" void parl_lanes(uint64_t seed, uint64_t* turns_and_lanes) {
    active_mask_seed = seed;
    turns_and_lanes[0] = turns;
    turns_and_lanes[1] = lanes_in_turns;
    turns = lanes_in_turns = 0;
}

// Runs the block of `cpu_brx.cuh` from `pc` until it ends, for `tests/ptx.rs`; the time is settled then. The machine is in the
// place of shared memory.
extern "C" void parl_block(cule::brx::Registers* r, cule::machine::Machine* m, uint32_t* pc, uint32_t* cycles, uint32_t* left,
                           const uint8_t* rom, const uint64_t* records, uint32_t until) {
    LaneTime time{*cycles, *left, until};
    uint32_t stored = 0;
    const cule::brx::Program program = program_of(m->cart, rom, records);
    go_to(*r, *m, *pc, cule::env::warp_schedule::MARGIN, program);
    cule::brx::run(*r, static_cast<uint32_t>(__cvta_generic_to_shared(m)), time.cycles, time.until, program);
    settle(time, *r, stored);
    *cycles = time.cycles;
    *left = time.left;
    *pc = (r->place + r->offset) & 0xFFFF;
}

// Sizes and offsets that the Rust side compares with its own.
extern "C" uint32_t parl_size(uint32_t which) {
    const uint32_t sizes[] = {sizeof(Batch), sizeof(Call), sizeof(cule::env::state::Head), PARL_OFFSET(cule::machine::Board, ram),
                              FIRST_CART, SECOND_CART, SHARED_BYTES};
    return which < 7 ? sizes[which] : 0;
}
