// The kernels as host C++, for machines without a GPU. Blocks run one at a time, and their threads are coroutines that
// switch at every operation of a warp or block. The tests of `tests/replay` load it in place of a device.
//
// A launch in which not all threads reach a barrier aborts the program with a message.
#include <math.h>
#include <setjmp.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
struct Dim3 {
    uint32_t x;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
static Dim3 blockIdx, blockDim, threadIdx, gridDim;

namespace emulation {

constexpr uint32_t WARP = 32, THREADS_MAX = 1024, STACK_BYTES = 128 << 10;

struct Warp {
    uint64_t values[2][WARP];
    uint32_t arrived, phase;
};
struct Fiber {
    jmp_buf place;
    ucontext_t start;
    std::unique_ptr<char[]> stack;
    bool is_done;
    const uint32_t* phase;  // waits until this value changes
    uint32_t seen;
};

static Fiber fibers[THREADS_MAX];
static Warp warps[THREADS_MAX / WARP];
static uint32_t arrived, phase, running;
// 1: runs blocks and threads from the last to the first.
static int backwards;
static jmp_buf launcher;
static void (*kernel)(void**);
static void** arguments;

static void run(uint32_t i) {
    running = i;
    threadIdx.x = i;
    _longjmp(fibers[i].place, 1);
}

// Switches to the next coroutine that can run, of `count` from `first` on, if there is one.
static void switch_to_next(uint32_t first, uint32_t count) {
    const uint32_t from = running - first;
    for (uint32_t step = 1; step <= count; ++step) {
        const uint32_t i = first + (backwards ? from + count - step : from + step) % count;
        Fiber& fiber = fibers[i];
        if (fiber.is_done || (fiber.phase != nullptr && *fiber.phase == fiber.seen)) continue;
        fiber.phase = nullptr;
        run(i);
    }
}

// Switches to another coroutine: of the same warp, or else of the block.
static void yield() {
    const uint32_t n = blockDim.x;
    switch_to_next(running / WARP * WARP, WARP);
    switch_to_next(0, n);
    for (uint32_t i = 0; i < n; ++i) {
        if (!fibers[i].is_done) {
            std::fprintf(stderr, "thread %u of block %u waits at a barrier that others do not reach\n", i, blockIdx.x);
            std::abort();
        }
    }
    _longjmp(launcher, 1);
}

static void wait(const uint32_t& until) {
    Fiber& fiber = fibers[running];
    fiber.phase = &until;
    fiber.seen = until;
    if (_setjmp(fiber.place) == 0) yield();
}

static void barrier(uint32_t& count, uint32_t& turn, uint32_t all) {
    if (++count == all) {
        count = 0;
        ++turn;
        return;
    }
    wait(turn);
}

static void body() {
    for (;;) {
        kernel(arguments);
        fibers[running].is_done = true;
        if (_setjmp(fibers[running].place) == 0) yield();
    }
}

static void launch(uint32_t blocks, uint32_t threads) {
    // Static, because variables that live across a jump must not be in registers.
    static uint32_t i, number;
    blockDim.x = threads;
    gridDim.x = blocks;
    for (i = 0; i < threads; ++i) {
        Fiber& fiber = fibers[i];
        if (fiber.stack != nullptr) continue;
        fiber.stack = std::make_unique<char[]>(STACK_BYTES);
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = fiber.stack.get();
        fiber.start.uc_stack.ss_size = STACK_BYTES;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, reinterpret_cast<void (*)()>(+[] {
                        // The first time it only records where it continues.
                        if (_setjmp(fibers[running].place) == 0) _longjmp(launcher, 1);
                        body();
                    }),
                    0);
        running = i;
        if (_setjmp(launcher) == 0) setcontext(&fiber.start);
    }
    for (number = 0; number < blocks; ++number) {
        blockIdx.x = backwards ? blocks - 1 - number : number;
        for (i = 0; i < threads; ++i) {
            fibers[i].is_done = false;
            fibers[i].phase = nullptr;
        }
        std::memset(warps, 0, sizeof(warps));
        arrived = phase = 0;
        if (_setjmp(launcher) == 0) run(backwards ? threads - 1 : 0);
    }
}

// Returns the values of all lanes of a warp, once all have arrived.
static const uint64_t* exchange(uint64_t value) {
    Warp& warp = warps[threadIdx.x / WARP];
    const uint32_t turn = warp.phase;
    warp.values[turn & 1][threadIdx.x % WARP] = value;
    barrier(warp.arrived, warp.phase, WARP);
    return warps[threadIdx.x / WARP].values[turn & 1];
}

}  // namespace emulation

template <class T> static T __shfl_sync(uint32_t, T value, uint32_t from) {
    return static_cast<T>(emulation::exchange(static_cast<uint64_t>(value))[from % emulation::WARP]);
}
template <class T> static T __shfl_up_sync(uint32_t, T value, uint32_t by) {
    const uint64_t* all = emulation::exchange(static_cast<uint64_t>(value));
    const uint32_t lane = threadIdx.x % emulation::WARP;
    return static_cast<T>(all[lane >= by ? lane - by : lane]);
}
template <class T> static T __shfl_xor_sync(uint32_t, T value, uint32_t mask) {
    const uint64_t* all = emulation::exchange(static_cast<uint64_t>(value));
    return static_cast<T>(all[(threadIdx.x % emulation::WARP) ^ mask]);
}
static uint32_t __ballot_sync(uint32_t, bool is) {
    const uint64_t* all = emulation::exchange(is);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < emulation::WARP; ++i) bits |= static_cast<uint32_t>(all[i]) << i;
    return bits;
}
template <class T> static uint32_t __match_any_sync(uint32_t, T value) {
    const uint64_t* all = emulation::exchange(static_cast<uint64_t>(value));
    uint32_t bits = 0;
    for (uint32_t i = 0; i < emulation::WARP; ++i) bits |= static_cast<uint32_t>(all[i] == value) << i;
    return bits;
}
static bool __all_sync(uint32_t mask, bool is) { return __ballot_sync(mask, is) == 0xffffffffu; }
static void __syncthreads() { emulation::barrier(emulation::arrived, emulation::phase, blockDim.x); }
static void __threadfence() {}
static int __ffs(int bits) { return __builtin_ffs(bits); }
static int __popc(uint32_t bits) { return __builtin_popcount(bits); }
static int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<uint32_t>(bits)); }
static uint64_t __umul64hi(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
template <class T> static T atomicAdd(T* place, T value) {
    const T before = *place;
    *place = before + value;
    return before;
}
template <class T> static T atomicMax(T* place, T value) {
    const T before = *place;
    if (value > before) *place = value;
    return before;
}
template <class T> static T atomicMin(T* place, T value) {
    const T before = *place;
    if (value < before) *place = value;
    return before;
}
template <class T> static T atomicExch(T* place, T value) {
    const T before = *place;
    *place = value;
    return before;
}
template <class T> static T atomicCAS(T* place, T expected, T value) {
    const T before = *place;
    if (before == expected) *place = value;
    return before;
}

#include "episode.cu"
#include "replay.cu"
#include "select.cu"
#include "tree.cu"

extern "C" void parl_backwards(int is) { emulation::backwards = is; }

// Runs a kernel. Returns 0, or 1 if there is no kernel of that name.
extern "C" int parl_launch(const char* name, uint32_t blocks, uint32_t threads, void** arguments) {
    struct Entry {
        const char* name;
        void (*run)(void**);
    };
#define KERNEL(kernel, Plan, Call) \
    {#kernel, [](void** given) { kernel(*static_cast<const Plan*>(given[0]), *static_cast<const Call*>(given[1])); }}
    const Entry all[] = {
        KERNEL(parl_tree_stamp, Tree, TreeUpdate),      KERNEL(parl_tree_scatter, Tree, TreeUpdate),
        KERNEL(parl_tree_sample, Tree, TreeSample),     KERNEL(parl_tree_find, Tree, TreeFind),
        KERNEL(parl_replay_draw, Replay, ReplayDraw),   KERNEL(parl_replay_gather, Replay, ReplayGather),
        KERNEL(parl_replay_stamp, Replay, ReplayUpdate), KERNEL(parl_replay_scatter, Replay, ReplayUpdate),
        KERNEL(parl_replay_reserve, Replay, ReplayAdd), KERNEL(parl_replay_publish, Replay, ReplayAdd),
        KERNEL(parl_replay_write, Replay, ReplayWrite), KERNEL(parl_replay_append, Replay, ReplayAdd),
        KERNEL(parl_replay_weigh, Replay, ReplayAdd),   KERNEL(parl_replay_cut, Replay, ReplayCut),
        KERNEL(parl_replay_note, Replay, ReplayAdd),    KERNEL(parl_replay_keys, Replay, ReplayKeys),
        KERNEL(parl_replay_evict, Replay, ReplayEvict), KERNEL(parl_replay_share, Replay, ReplaySelect),
        KERNEL(parl_replay_select, Replay, ReplaySelect), KERNEL(parl_replay_steps, Replay, ReplaySteps),
        KERNEL(parl_replay_reach, Replay, ReplayGoals), KERNEL(parl_replay_goals, Replay, ReplayGoals)};
    for (const Entry& entry : all) {
        if (std::strcmp(entry.name, name) != 0) continue;
        emulation::kernel = entry.run;
        emulation::arguments = arguments;
        if (blocks > 0) emulation::launch(blocks, threads);
        return 0;
    }
    return 1;
}

// Size in bytes of a struct that the caller fills.
extern "C" uint32_t parl_size(const char* name) {
    struct Entry {
        const char* name;
        uint32_t bytes;
    };
#define SIZE(Struct) {#Struct, sizeof(Struct)}
    const Entry all[] = {SIZE(Tree),         SIZE(TreeUpdate), SIZE(TreeSample), SIZE(TreeFind),   SIZE(Replay),
                         SIZE(ReplayDraw),   SIZE(ReplayGather), SIZE(ReplayUpdate), SIZE(ReplayAdd), SIZE(ReplayWrite),
                         SIZE(ReplayCut),    SIZE(ReplayKeys), SIZE(ReplayEvict),  SIZE(ReplaySelect),
                         SIZE(ReplaySteps),  SIZE(ReplayGoals)};
    for (const Entry& entry : all) {
        if (std::strcmp(entry.name, name) == 0) return entry.bytes;
    }
    return 0;
}
