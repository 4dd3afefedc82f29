// The basics of the kernels: types of fixed width, floating-point operations with one rounding each, sums and prefix
// sums over a warp. For NVRTC, which has no standard headers, and for host C++, where `host.cpp` defines the rest of
// CUDA.
#pragma once

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#endif

#define PARL_FN static __device__ inline
// For functions called from several places, or rarely: not inlined, which compiles faster.
#ifdef __CUDACC__
#define PARL_NOINLINE static __device__ __noinline__
#define PARL_NOINLINE_MEMBER __device__ __noinline__
#else
#define PARL_NOINLINE static
#define PARL_NOINLINE_MEMBER
#endif
// A kernel whose blocks have at most THREADS threads, by which the compiler allocates registers.
#ifdef __CUDACC__
#define PARL_KERNEL(THREADS) extern "C" __global__ void __launch_bounds__(THREADS)
#else
#define PARL_KERNEL(THREADS) extern "C" __global__ void
#endif
// A kernel argument that is read in place, also with an index.
#ifdef __CUDACC__
#define PARL_ARGUMENT const __grid_constant__
#else
#define PARL_ARGUMENT const
#endif

// Lanes of a warp, and children of a node of the tree: one child per lane.
constexpr uint32_t LANES = 32;
constexpr uint32_t ALL = 0xffffffffu;
constexpr uint32_t NONE = 0xffffffffu;
// Threads of a block in kernels with one item per thread.
constexpr uint32_t THREADS = 256;

PARL_FN uint32_t lane() { return threadIdx.x % LANES; }
PARL_FN uint64_t thread() { return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
PARL_FN uint64_t threads() { return static_cast<uint64_t>(gridDim.x) * blockDim.x; }
// Rounds of a loop in which the threads of a launch process `count` items, one item per thread and round. The same for
// all threads, so that all lanes of a warp run every round.
PARL_FN uint64_t rounds(uint64_t count) { return (count + threads() - 1) / threads(); }

template <class T> PARL_FN T* at(uint64_t address) { return reinterpret_cast<T*>(address); }

// Sum of the values of lanes 0 to this one.
template <class T> PARL_FN T prefix_sum(T value) {
    for (uint32_t step = 1; step < LANES; step *= 2) {
        const T below = __shfl_up_sync(ALL, value, step);
        if (lane() >= step) value += below;
    }
    return value;
}

// Sum over all lanes, returned in all lanes. For integers only, whose order does not matter.
template <class T> PARL_FN T sum(T value) {
    for (uint32_t step = LANES / 2; step > 0; step /= 2) value += __shfl_xor_sync(ALL, value, step);
    return value;
}

// One rounding per operation, as on the CPU.
#ifdef __CUDACC__
PARL_FN double add_rn(double a, double b) { return __dadd_rn(a, b); }
PARL_FN double multiply_rn(double a, double b) { return __dmul_rn(a, b); }
PARL_FN double divide_rn(double a, double b) { return __ddiv_rn(a, b); }
PARL_FN float add_rn(float a, float b) { return __fadd_rn(a, b); }
PARL_FN float multiply_rn(float a, float b) { return __fmul_rn(a, b); }
// In double precision, then rounded to single: the CPU's `powf` gives the same except for rare ties.
PARL_FN float power(float a, float b) { return static_cast<float>(pow(static_cast<double>(a), static_cast<double>(b))); }
PARL_FN uint64_t bits_of(double a) { return static_cast<uint64_t>(__double_as_longlong(a)); }
PARL_FN double from_bits(uint64_t a) { return __longlong_as_double(static_cast<int64_t>(a)); }
#else
PARL_FN double add_rn(double a, double b) { return a + b; }
PARL_FN double multiply_rn(double a, double b) { return a * b; }
PARL_FN double divide_rn(double a, double b) { return a / b; }
PARL_FN float add_rn(float a, float b) { return a + b; }
PARL_FN float multiply_rn(float a, float b) { return a * b; }
PARL_FN float power(float a, float b) { return powf(a, b); }
PARL_FN uint64_t bits_of(double a) {
    uint64_t bits;
    __builtin_memcpy(&bits, &a, sizeof bits);
    return bits;
}
PARL_FN double from_bits(uint64_t a) {
    double value;
    __builtin_memcpy(&value, &a, sizeof value);
    return value;
}
#endif

PARL_FN bool is_finite(double value) { return value - value == 0.0; }
