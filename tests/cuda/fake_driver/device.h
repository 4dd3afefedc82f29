// The parts of CUDA C++ that our kernels use, for a CPU. Included before a kernel's source and compiled with
// it.
//
// The threads of a block run one at a time. If the source waits for other threads (PARL_FAKE_DRIVER_WAITS),
// they are fibers, so that shuffles, votes and barriers work as on a device; otherwise each thread runs to
// its end.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "../../../crates/cule/kernels/ptx.h"
#include "kernel.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

struct uint3 {
    uint32_t x, y, z;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
static thread_local uint3 blockIdx, blockDim, threadIdx, gridDim;

namespace parl_fake_driver {

constexpr uint32_t WARP = 32;
inline thread_local uint8_t* shared_memory;

#ifdef PARL_FAKE_DRIVER_WAITS
#ifdef __x86_64__
// Where a fiber resumes: its stack pointer. The callee-saved registers are on the stack below it. swapcontext
// would make a system call at each switch, which took most of the time.
typedef void* Place;
asm(R"(
.pushsection .text
parl_fake_driver_exchange:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov (%rsi), %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.popsection
)");
extern "C" __attribute__((visibility("hidden"))) void parl_fake_driver_exchange(Place* from, Place* to);
inline void exchange_places(Place& from, Place& to) { parl_fake_driver_exchange(&from, &to); }
// `body` must not return.
inline void place_at(Place& place, uint8_t* stack, size_t bytes, void (*body)()) {
    void** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15});
    *--top = nullptr;  // The return address of `body`; the stack is aligned as after a call.
    *--top = reinterpret_cast<void*>(body);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    place = top;
}
#else
}  // namespace parl_fake_driver
#include <ucontext.h>
namespace parl_fake_driver {
typedef ucontext_t Place;
inline void exchange_places(Place& from, Place& to) { swapcontext(&from, &to); }
inline void place_at(Place& place, uint8_t* stack, size_t bytes, void (*body)()) {
    getcontext(&place);
    place.uc_stack.ss_sp = stack;
    place.uc_stack.ss_size = bytes;
    place.uc_link = nullptr;
    makecontext(&place, body, 0);
}
#endif

// One thread of a block: where it resumes, and what it waits for.
struct Fiber {
    Place place;
    std::unique_ptr<uint8_t[]> stack;
    uint3 index;
    bool ended = false, waits_warp = false, waits_block = false, asks = false;
    uint32_t mask = 0;
    uint64_t given = 0;
};
inline thread_local std::vector<Fiber>* fibers;
inline thread_local uint32_t running;
inline thread_local Place scheduler;

inline void pause() {
    Fiber& me = (*fibers)[running];
    exchange_places(me.place, scheduler);
    threadIdx = me.index;
}

// Waits until all lanes of the mask that have not ended have called this with the same mask.
inline void sync_lanes(uint32_t mask) {
    const uint32_t first = running / WARP * WARP;
    Fiber& me = (*fibers)[running];
    me.waits_warp = true;
    me.mask = mask;
    bool all = true;
    for (uint32_t lane = 0; lane < WARP && first + lane < fibers->size(); ++lane) {
        const Fiber& other = (*fibers)[first + lane];
        if (mask >> lane & 1 && !other.ended) all = all && other.waits_warp && other.mask == mask;
    }
    if (!all) {
        while (me.waits_warp) pause();
        return;
    }
    for (uint32_t lane = 0; lane < WARP && first + lane < fibers->size(); ++lane) {
        if (mask >> lane & 1) (*fibers)[first + lane].waits_warp = false;
    }
}

// Every lane of the mask gives a value. Returns the result of `take`, which can read the values of all lanes.
template <class T, class Take> inline auto exchange(uint32_t mask, T value, Take take) {
    const uint32_t first = running / WARP * WARP;
    Fiber& me = (*fibers)[running];
    static_assert(sizeof(T) <= 8);
    std::memcpy(&me.given, &value, sizeof(T));
    sync_lanes(mask);
    const auto from = [&](uint32_t lane) {
        T found{};
        if (first + lane < fibers->size()) std::memcpy(&found, &(*fibers)[first + lane].given, sizeof(T));
        return found;
    };
    const auto result = take(from);
    sync_lanes(mask);
    return result;
}

inline uint32_t lane_number() { return running % WARP; }

// The lanes of the warp that wait here, once no thread of the block can run on.
inline uint32_t wait_for_active_mask() {
    Fiber& me = (*fibers)[running];
    me.asks = true;
    while (me.asks) pause();
    return me.mask;
}

}  // namespace parl_fake_driver

inline uint32_t __activemask() { return parl_fake_driver::wait_for_active_mask(); }
inline void __syncwarp(uint32_t mask = 0xFFFFFFFFu) { parl_fake_driver::sync_lanes(mask); }
inline void __syncthreads() {
    using namespace parl_fake_driver;
    Fiber& me = (*fibers)[running];
    me.waits_block = true;
    bool all = true;
    for (const Fiber& other : *fibers) all = all && (other.ended || other.waits_block);
    if (all) {
        for (Fiber& other : *fibers) other.waits_block = false;
        return;
    }
    while (me.waits_block) pause();
}
template <class T> inline T __shfl_sync(uint32_t mask, T value, int source, int width = 32) {
    const uint32_t lane = parl_fake_driver::lane_number();
    const uint32_t from = (lane / width) * width + static_cast<uint32_t>(source) % width;
    return parl_fake_driver::exchange(mask, value, [&](const auto& of) { return of(from); });
}
template <class T> inline T __shfl_up_sync(uint32_t mask, T value, uint32_t delta, int width = 32) {
    const uint32_t lane = parl_fake_driver::lane_number();
    const uint32_t from = lane % width < delta ? lane : lane - delta;
    return parl_fake_driver::exchange(mask, value, [&](const auto& of) { return of(from); });
}
template <class T> inline T __shfl_down_sync(uint32_t mask, T value, uint32_t delta, int width = 32) {
    const uint32_t lane = parl_fake_driver::lane_number();
    const uint32_t from = lane % width + delta >= static_cast<uint32_t>(width) ? lane : lane + delta;
    return parl_fake_driver::exchange(mask, value, [&](const auto& of) { return of(from); });
}
template <class T> inline T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32) {
    const uint32_t from = parl_fake_driver::lane_number() ^ static_cast<uint32_t>(bits);
    (void)width;
    return parl_fake_driver::exchange(mask, value, [&](const auto& of) { return of(from); });
}
inline uint32_t __ballot_sync(uint32_t mask, int said) {
    return parl_fake_driver::exchange(mask, static_cast<uint32_t>(said != 0), [&](const auto& of) {
        uint32_t votes = 0;
        for (uint32_t lane = 0; lane < 32; ++lane) {
            if (mask >> lane & 1) votes |= of(lane) << lane;
        }
        return votes;
    });
}
inline int __all_sync(uint32_t mask, int said) { return __ballot_sync(mask, !said) == 0; }
template <class T> inline uint32_t __match_any_sync(uint32_t mask, T value) {
    return parl_fake_driver::exchange(mask, value, [&](const auto& of) {
        uint32_t same = 0;
        for (uint32_t lane = 0; lane < 32; ++lane) same |= static_cast<uint32_t>((mask >> lane & 1) && of(lane) == value) << lane;
        return same;
    });
}
template <class T, class Join> inline T parl_reduce(uint32_t mask, T value, Join join) {
    return parl_fake_driver::exchange(mask, value, [&](const auto& of) {
        T all{};
        bool first = true;
        for (uint32_t lane = 0; lane < 32; ++lane) {
            if (!(mask >> lane & 1)) continue;
            all = first ? of(lane) : join(all, of(lane));
            first = false;
        }
        return all;
    });
}
template <class T> inline T __reduce_add_sync(uint32_t mask, T v) {
    return parl_reduce(mask, v, [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T> inline T __reduce_min_sync(uint32_t mask, T v) {
    return parl_reduce(mask, v, [](T a, T b) { return b < a ? b : a; });
}
template <class T> inline T __reduce_max_sync(uint32_t mask, T v) {
    return parl_reduce(mask, v, [](T a, T b) { return a < b ? b : a; });
}
template <class T> inline T __reduce_or_sync(uint32_t mask, T v) {
    return parl_reduce(mask, v, [](T a, T b) { return static_cast<T>(a | b); });
}
template <class T> inline T __reduce_and_sync(uint32_t mask, T v) {
    return parl_reduce(mask, v, [](T a, T b) { return static_cast<T>(a & b); });
}
namespace parl_fake_driver {

// Gives every waiting `__activemask` its result: the lanes of the warp that wait for it. Returns true if any
// lane waited.
inline bool complete_active_masks(std::vector<Fiber>& all) {
    bool asked = false;
    for (uint32_t first = 0; first < all.size(); first += WARP) {
        uint32_t here = 0;
        for (uint32_t lane = 0; lane < WARP && first + lane < all.size(); ++lane) {
            here |= static_cast<uint32_t>(all[first + lane].asks) << lane;
        }
        for (uint32_t lane = 0; lane < WARP && first + lane < all.size(); ++lane) {
            if (!(here >> lane & 1)) continue;
            all[first + lane].mask = here;
            all[first + lane].asks = false;
            asked = true;
        }
    }
    return asked;
}

inline void run_block(void (*body)(void*), void* argument) {
    constexpr size_t STACK_BYTES = 256 << 10;
    static thread_local std::vector<Fiber> all;
    all.resize(blockDim.x * blockDim.y * blockDim.z);
    fibers = &all;
    static thread_local void (*begin)(void*);
    static thread_local void* with;
    begin = body;
    with = argument;
    for (uint32_t i = 0; i < all.size(); ++i) {
        Fiber& fiber = all[i];
        if (!fiber.stack) fiber.stack.reset(new uint8_t[STACK_BYTES]);
        fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        fiber.ended = fiber.waits_warp = fiber.waits_block = fiber.asks = false;
        place_at(fiber.place, fiber.stack.get(), STACK_BYTES, +[] {
            begin(with);
            (*fibers)[running].ended = true;
            exchange_places((*fibers)[running].place, scheduler);
        });
    }
    for (size_t left = all.size(); left > 0;) {
        left = 0;
        bool moved = false;
        for (running = 0; running < all.size(); ++running) {
            Fiber& fiber = all[running];
            if (fiber.ended) continue;
            ++left;
            if (fiber.asks) continue;
            if (fiber.waits_warp) {
                // Does not wait for lanes that have ended since.
                const uint32_t first = running / WARP * WARP;
                bool here = true;
                for (uint32_t lane = 0; lane < WARP && first + lane < all.size(); ++lane) {
                    const Fiber& other = all[first + lane];
                    if (fiber.mask >> lane & 1 && !other.ended) {
                        here = here && other.waits_warp && other.mask == fiber.mask;
                    }
                }
                if (!here) continue;
                for (uint32_t lane = 0; lane < WARP && first + lane < all.size(); ++lane) {
                    if (fiber.mask >> lane & 1) all[first + lane].waits_warp = false;
                }
            }
            if (fiber.waits_block) {
                bool here = true;
                for (const Fiber& other : all) here = here && (other.ended || other.waits_block);
                if (!here) continue;
                for (Fiber& other : all) other.waits_block = false;
            }
            moved = true;
            threadIdx = fiber.index;
            exchange_places(scheduler, fiber.place);
        }
        if (left > 0 && !moved) moved = complete_active_masks(all);
        if (left > 0 && !moved) {
            std::fprintf(stderr, "the threads of a block wait for each other for ever\n");
            std::abort();
        }
    }
}
#else
inline void run_block(void (*body)(void*), void* argument) {
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z) {
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y) {
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) body(argument);
        }
    }
}
#endif

// The fake driver's view of a kernel: the type of its arguments, and how to copy them and run the kernel with
// them.
template <class... P> struct Caller {
    typedef std::tuple<P...> Arguments;
    template <size_t... I> static void copy(void** from, void* to, std::index_sequence<I...>) {
        new (to) Arguments(*static_cast<P*>(from[I])...);
    }
    static void copy(void** from, void* to) { copy(from, to, std::index_sequence_for<P...>{}); }
    template <void (*kernel)(P...)> static void run(const void* arguments, const ParlShape* shape) {
        static thread_local std::vector<uint64_t> room;
        room.assign(shape->shared_bytes / 8 + 1, 0xCDCDCDCDCDCDCDCDull);
        shared_memory = reinterpret_cast<uint8_t*>(room.data());
        gridDim = {shape->blocks[0], shape->blocks[1], shape->blocks[2]};
        blockDim = {shape->threads[0], shape->threads[1], shape->threads[2]};
        const auto body = [](void* all) { std::apply(kernel, *static_cast<const Arguments*>(all)); };
        for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z) {
            for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y) {
                for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block(body, const_cast<void*>(arguments));
            }
        }
    }
};
template <class... P> Caller<P...> caller_of(void (*)(P...));

}  // namespace parl_fake_driver

// Dynamic shared memory: PARL_DYNAMIC_SHARED(uint32_t, words) replaces `extern __shared__ uint32_t words[]`.
#define PARL_DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(parl_fake_driver::shared_memory)

#define PARL_FAKE_DRIVER_KERNEL(name)                                                              \
    extern "C" __attribute__((visibility("default"))) const ParlKernel parl_kernel_##name = { \
        sizeof(decltype(parl_fake_driver::caller_of(name))::Arguments),                            \
        [](void** from, void* to) { decltype(parl_fake_driver::caller_of(name))::copy(from, to); }, \
        decltype(parl_fake_driver::caller_of(name))::run<name>};

// One thread runs at a time, so atomic operations are plain ones.
template <class T, class V, class Join> inline T parl_atomic(T* place, V value, Join join) {
    const T before = *place;
    *place = join(before, static_cast<T>(value));
    return before;
}
template <class T, class V> inline T atomicAdd(T* p, V v) {
    return parl_atomic(p, v, [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T, class V> inline T atomicSub(T* p, V v) {
    return parl_atomic(p, v, [](T a, T b) { return static_cast<T>(a - b); });
}
template <class T, class V> inline T atomicMax(T* p, V v) {
    return parl_atomic(p, v, [](T a, T b) { return a < b ? b : a; });
}
template <class T, class V> inline T atomicMin(T* p, V v) {
    return parl_atomic(p, v, [](T a, T b) { return b < a ? b : a; });
}
template <class T, class V> inline T atomicOr(T* p, V v) {
    return parl_atomic(p, v, [](T a, T b) { return static_cast<T>(a | b); });
}
template <class T, class V> inline T atomicAnd(T* p, V v) {
    return parl_atomic(p, v, [](T a, T b) { return static_cast<T>(a & b); });
}
template <class T, class V> inline T atomicExch(T* p, V v) {
    return parl_atomic(p, v, [](T, T b) { return b; });
}
template <class T, class V> inline T atomicCAS(T* p, V expected, V value) {
    const T before = *p;
    if (before == static_cast<T>(expected)) *p = static_cast<T>(value);
    return before;
}
// Nanoseconds of a monotonic clock.
inline long long clock64() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<uint32_t>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<uint64_t>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
