// Definitions that the generated header uses: integer types of fixed width, arrays as values, and Rust's
// integer operations. Compiles as CUDA C++ (NVRTC, which has no headers of its own) and as host C++17.
//
// PARL_CHECKED, host only: an index out of bounds ends the program with a message, as in Rust, and so does a
// misaligned wide access.
#pragma once

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#define PARL_OFFSET(type, field) __INTADDR__(&((type*)0)->field)
#else
#include <cstddef>
#include <cstdint>
#define PARL_OFFSET(type, field) offsetof(type, field)
#endif

#ifdef __CUDACC__
#define PARL_INTRINSICS
#define PARL_FN [[maybe_unused]] static __device__
#define PARL_INLINE [[maybe_unused]] static __device__ __forceinline__
#define PARL_NOINLINE [[maybe_unused]] static __device__ __noinline__
#define PARL_MEMBER __device__
#define PARL_CONST [[maybe_unused]] static constexpr
#define PARL_TABLE [[maybe_unused]] static __device__ constexpr
// Placed before long loops: unrolling them hundreds of times would cost compile time and not run faster.
#define PARL_ROLLED _Pragma("unroll 1")
#define PARL_UNROLLED _Pragma("unroll")
// Placed before other loops of a known length. `-DPARL_LOOPS=1`, for measurements: they stay loops.
#if PARL_LOOPS
#define PARL_SHORT _Pragma("unroll 1")
#else
#define PARL_SHORT
#endif
#else
#define PARL_FN [[maybe_unused]] static inline
#define PARL_INLINE [[maybe_unused]] static inline
#define PARL_NOINLINE [[maybe_unused]] static
#define PARL_MEMBER
#define PARL_CONST [[maybe_unused]] static constexpr
#define PARL_TABLE [[maybe_unused]] static constexpr
#define PARL_ROLLED
#define PARL_UNROLLED
#define PARL_SHORT
#endif

// The `Line` of a board. A thread of a kernel has one board, and its line is in shared memory: 32 threads that access the same
// value of theirs need one transaction there, and 32 in global memory. A line has an odd number of pairs of words, so that the same
// pair of neighboring threads lies in different banks.
PARL_CONST uint32_t LINE_PAIRS = 31;
#ifdef __CUDACC__
static __device__ void* line_of_thread() {
    __shared__ uint64_t lines[32 * LINE_PAIRS];
    return lines + threadIdx.x * LINE_PAIRS;
}
#define PARL_LINE(board) (*static_cast<::cule::machine::Line*>(line_of_thread()))
#else
#define PARL_LINE(board) ((board).line)
#endif

#ifdef PARL_CHECKED
#include <cstdio>
#include <cstdlib>
[[noreturn]] inline void parl_index_failed(uint32_t index, uint32_t length) {
    std::fprintf(stderr, "index %u is outside 0..%u\n", index, length);
    std::abort();
}
#define PARL_INDEX(index, length) ((index) < (length) ? (index) : (parl_index_failed((index), (length)), 0u))
#define PARL_ALIGNED(place, bytes) \
    if (reinterpret_cast<uintptr_t>(place) % (bytes) != 0) parl_index_failed(reinterpret_cast<uintptr_t>(place) % (bytes), 1u)
#else
#define PARL_INDEX(index, length) (index)
#define PARL_ALIGNED(place, bytes)
#endif

// `[T; N]`: a value with the layout of a plain array.
template <class T, uint32_t N> struct Array {
    T at[N];
    PARL_MEMBER constexpr T& operator[](uint32_t index) { return at[PARL_INDEX(index, N)]; }
    PARL_MEMBER constexpr const T& operator[](uint32_t index) const { return at[PARL_INDEX(index, N)]; }
};

// `&[T]` (T const) and `&mut [T]`.
template <class T> struct Slice {
    T* data;
    uint32_t length;
    PARL_MEMBER constexpr Slice(T* data, uint32_t length) : data(data), length(length) {}
    template <class U> PARL_MEMBER constexpr Slice(const Slice<U>& all) : data(all.data), length(all.length) {}
    template <class U, uint32_t N> PARL_MEMBER constexpr explicit Slice(Array<U, N>& all) : data(all.at), length(N) {}
    template <class U, uint32_t N> PARL_MEMBER constexpr explicit Slice(const Array<U, N>& all)
        : data(all.at), length(N) {}
    // `all[from..to]`
    template <class U> PARL_MEMBER constexpr Slice(const Slice<U>& all, uint32_t from, uint32_t to)
        : data(all.data + from), length(to - from) {}
    template <class U, uint32_t N> PARL_MEMBER constexpr Slice(Array<U, N>& all, uint32_t from, uint32_t to)
        : data(all.at + from), length(to - from) {}
    template <class U, uint32_t N> PARL_MEMBER constexpr Slice(const Array<U, N>& all, uint32_t from, uint32_t to)
        : data(all.at + from), length(to - from) {}
    PARL_MEMBER constexpr T& operator[](uint32_t index) const { return data[PARL_INDEX(index, length)]; }
};

template <class A, class B> struct Tuple2 {
    A _0;
    B _1;
};
template <class A, class B, class C> struct Tuple3 {
    A _0;
    B _1;
    C _2;
};
template <class A, class B, class C, class D> struct Tuple4 {
    A _0;
    B _1;
    C _2;
    D _3;
};

// Data outside of the state (ROM, pictures, tables) is passed by reference; a kernel makes the reference from
// its pointer.
template <class T> PARL_FN T& borrow(void* pointer) { return *static_cast<T*>(pointer); }
template <class T> PARL_FN const T& borrow(const void* pointer) { return *static_cast<const T*>(pointer); }

// Rust's operations. The generator always writes T explicitly, so that no operand is widened implicitly.
namespace rs {

template <class T> struct Of;  // the unsigned type of the same width, the one to compute in, bits, signedness
template <class U, class W, uint32_t B, bool S> struct Is {
    typedef U Unsigned;
    typedef W Wide;
    static constexpr uint32_t bits = B;
    static constexpr bool is_signed = S;
};
template <> struct Of<uint8_t> : Is<uint8_t, uint32_t, 8, false> {};
template <> struct Of<uint16_t> : Is<uint16_t, uint32_t, 16, false> {};
template <> struct Of<uint32_t> : Is<uint32_t, uint32_t, 32, false> {};
template <> struct Of<uint64_t> : Is<uint64_t, uint64_t, 64, false> {};
template <> struct Of<int8_t> : Is<uint8_t, uint32_t, 8, true> {};
template <> struct Of<int16_t> : Is<uint16_t, uint32_t, 16, true> {};
template <> struct Of<int32_t> : Is<uint32_t, uint32_t, 32, true> {};
template <> struct Of<int64_t> : Is<uint64_t, uint64_t, 64, true> {};

template <class T> PARL_FN constexpr typename Of<T>::Wide wide(T a) { return static_cast<typename Of<T>::Wide>(a); }
template <class T> PARL_FN constexpr typename Of<T>::Unsigned plain(T a) {
    return static_cast<typename Of<T>::Unsigned>(a);
}
template <class T> PARL_FN constexpr T least() {
    return Of<T>::is_signed ? static_cast<T>(wide<T>(1) << (Of<T>::bits - 1)) : static_cast<T>(0);
}
template <class T> PARL_FN constexpr T most() { return static_cast<T>(~least<T>()); }

template <class T> PARL_FN constexpr T add(T a, T b) { return static_cast<T>(wide<T>(a) + wide<T>(b)); }
template <class T> PARL_FN constexpr T sub(T a, T b) { return static_cast<T>(wide<T>(a) - wide<T>(b)); }
template <class T> PARL_FN constexpr T mul(T a, T b) { return static_cast<T>(wide<T>(a) * wide<T>(b)); }
template <class T> PARL_FN constexpr T neg(T a) { return static_cast<T>(0 - wide<T>(a)); }
template <class T> PARL_FN constexpr T shl(T a, uint32_t count) { return static_cast<T>(wide<T>(a) << count); }

template <class T> PARL_FN constexpr T wrapping_add(T a, T b) { return add<T>(a, b); }
template <class T> PARL_FN constexpr T wrapping_sub(T a, T b) { return sub<T>(a, b); }
template <class T> PARL_FN constexpr T wrapping_mul(T a, T b) { return mul<T>(a, b); }
template <class T> PARL_FN constexpr T wrapping_neg(T a) { return neg<T>(a); }
template <class T> PARL_FN constexpr T wrapping_shl(T a, uint32_t count) { return shl<T>(a, count & (Of<T>::bits - 1)); }
template <class T> PARL_FN constexpr T wrapping_shr(T a, uint32_t count) {
    return static_cast<T>(a >> (count & (Of<T>::bits - 1)));
}
template <class T> PARL_FN constexpr T saturating_add(T a, T b) {
    if (Of<T>::is_signed && b < 0) return a < sub<T>(least<T>(), b) ? least<T>() : add<T>(a, b);
    return a > sub<T>(most<T>(), b) ? most<T>() : add<T>(a, b);
}
template <class T> PARL_FN constexpr T saturating_sub(T a, T b) {
    if (Of<T>::is_signed && b < 0) return a > add<T>(most<T>(), b) ? most<T>() : sub<T>(a, b);
    return a < add<T>(least<T>(), b) ? least<T>() : sub<T>(a, b);
}

template <class T> PARL_FN constexpr T rotate_left(T a, uint32_t count) {
    const uint32_t n = count & (Of<T>::bits - 1);
    const typename Of<T>::Wide u = plain<T>(a);
    return n == 0 ? a : static_cast<T>((u << n) | (u >> (Of<T>::bits - n)));
}
template <class T> PARL_FN constexpr T rotate_right(T a, uint32_t count) {
    return rotate_left<T>(a, Of<T>::bits - (count & (Of<T>::bits - 1)));
}

// Byte-wise maximum of two words. The compiler's own function takes three times as many instructions.
PARL_FN uint32_t larger_bytes(uint32_t a, uint32_t b) {
    const uint32_t top = 0x80808080u;
    // Bit 7 of a byte: its lower bits in `a` are not less than those in `b`.
    const uint32_t lower = (a | top) - (b & ~top);
#ifdef __CUDACC__
    uint32_t larger, all;
    asm("lop3.b32 %0,%1,%2,%3,0xB2;" : "=r"(larger) : "r"(a), "r"(b), "r"(lower));
    asm("prmt.b32 %0,%1,0,0xBA98;" : "=r"(all) : "r"(larger));
    asm("lop3.b32 %0,%1,%2,%3,0xE4;" : "=r"(larger) : "r"(a), "r"(b), "r"(all));
    return larger;
#else
    const uint32_t all = (((a & ~b) | (~(a ^ b) & lower)) >> 7 & 0x01010101u) * 0xFFu;
    return (a & all) | (b & ~all);
#endif
}

// Bytes of two words by the lowest four digits of `digits`, which are less than 8. The compiler's own function masks the digits.
PARL_FN uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t digits) {
#ifdef __CUDACC__
    uint32_t selected;
    asm("prmt.b32 %0,%1,%2,%3;" : "=r"(selected) : "r"(low), "r"(high), "r"(digits));
    return selected;
#else
    const uint64_t both = low | static_cast<uint64_t>(high) << 32;
    uint32_t selected = 0;
    for (uint32_t i = 0; i < 4; ++i) {
        selected |= static_cast<uint32_t>(both >> (8 * (digits >> (4 * i) & 7)) & 0xFF) << (8 * i);
    }
    return selected;
#endif
}

// Two words as the halves of a number: no instruction, since a number is in two registers.
PARL_FN uint64_t two_words(uint32_t low, uint32_t high) {
#ifdef __CUDACC__
    uint64_t both;
    asm("mov.b64 %0,{%1,%2};" : "=l"(both) : "r"(low), "r"(high));
    return both;
#else
    return low | static_cast<uint64_t>(high) << 32;
#endif
}

// The device's instructions are not constant expressions, so tables that are computed at compile time use the
// loops.
PARL_FN constexpr uint32_t ones64(uint64_t x) {
#ifdef __CUDA_ARCH__
    if (!__builtin_is_constant_evaluated()) return __popcll(x);
#endif
    uint32_t n = 0;
    for (; x != 0; x &= x - 1) ++n;
    return n;
}
PARL_FN constexpr uint64_t reverse64(uint64_t x) {
#ifdef __CUDA_ARCH__
    if (!__builtin_is_constant_evaluated()) return __brevll(x);
#endif
    x = (x >> 1 & 0x5555555555555555ull) | (x & 0x5555555555555555ull) << 1;
    x = (x >> 2 & 0x3333333333333333ull) | (x & 0x3333333333333333ull) << 2;
    x = (x >> 4 & 0x0F0F0F0F0F0F0F0Full) | (x & 0x0F0F0F0F0F0F0F0Full) << 4;
    x = (x >> 8 & 0x00FF00FF00FF00FFull) | (x & 0x00FF00FF00FF00FFull) << 8;
    x = (x >> 16 & 0x0000FFFF0000FFFFull) | (x & 0x0000FFFF0000FFFFull) << 16;
    return x >> 32 | x << 32;
}
PARL_FN constexpr uint32_t leading64(uint64_t x) {
#ifdef __CUDA_ARCH__
    if (!__builtin_is_constant_evaluated()) return __clzll(static_cast<long long>(x));
#endif
    uint32_t n = 64;
    for (; x != 0; x >>= 1) --n;
    return n;
}
PARL_FN constexpr uint32_t ones32(uint32_t x) {
#ifdef __CUDA_ARCH__
    if (!__builtin_is_constant_evaluated()) return __popc(x);
#endif
    return ones64(x);
}
PARL_FN constexpr uint32_t reverse32(uint32_t x) {
#ifdef __CUDA_ARCH__
    if (!__builtin_is_constant_evaluated()) return __brev(x);
#endif
    return static_cast<uint32_t>(reverse64(x) >> 32);
}
PARL_FN constexpr uint32_t leading32(uint32_t x) {
#ifdef __CUDA_ARCH__
    if (!__builtin_is_constant_evaluated()) return __clz(static_cast<int>(x));
#endif
    return leading64(x) - 32;
}

template <class T> PARL_FN constexpr T reverse_bits(T a) {
    if constexpr (Of<T>::bits == 64) {
        return static_cast<T>(reverse64(plain<T>(a)));
    } else {
        return static_cast<T>(reverse32(plain<T>(a)) >> (32 - Of<T>::bits));
    }
}
template <class T> PARL_FN constexpr T swap_bytes(T a) {
    typename Of<T>::Wide from = plain<T>(a), to = 0;
    for (uint32_t i = 0; i < Of<T>::bits; i += 8, from >>= 8) to = to << 8 | (from & 0xFF);
    return static_cast<T>(to);
}
template <class T> PARL_FN constexpr uint32_t count_ones(T a) {
    if constexpr (Of<T>::bits == 64) {
        return ones64(plain<T>(a));
    } else {
        return ones32(plain<T>(a));
    }
}
template <class T> PARL_FN constexpr uint32_t count_zeros(T a) { return Of<T>::bits - count_ones<T>(a); }
template <class T> PARL_FN constexpr uint32_t leading_zeros(T a) {
    if constexpr (Of<T>::bits == 64) {
        return leading64(plain<T>(a));
    } else {
        return leading32(plain<T>(a)) - (32 - Of<T>::bits);
    }
}
template <class T> PARL_FN constexpr uint32_t trailing_zeros(T a) {
    return leading_zeros<typename Of<T>::Unsigned>(plain<T>(reverse_bits<T>(a)));
}
template <class T> PARL_FN constexpr bool is_power_of_two(T a) { return count_ones<T>(a) == 1; }

template <class T> PARL_FN constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T> PARL_FN constexpr T max(T a, T b) { return b < a ? a : b; }
template <class T> PARL_FN constexpr T clamp(T a, T low, T high) { return a < low ? low : a > high ? high : a; }
template <class T> PARL_FN constexpr T abs_diff(T a, T b) { return static_cast<T>(a < b ? b - a : a - b); }
template <class T> PARL_FN constexpr T abs(T a) { return a < 0 ? neg<T>(a) : a; }
template <class T> PARL_FN constexpr T signum(T a) { return static_cast<T>((a > 0) - (a < 0)); }
template <class T> PARL_FN constexpr T rem_euclid(T a, T b) {
    const T rest = static_cast<T>(a % b);
    if (Of<T>::is_signed && rest < 0) return b < 0 ? sub<T>(rest, b) : add<T>(rest, b);
    return rest;
}
template <class T> PARL_FN constexpr bool in_range(T a, T from, T to) { return from <= a && a < to; }
template <class T> PARL_FN constexpr bool in_closed(T a, T from, T to) { return from <= a && a <= to; }

template <class T> PARL_FN constexpr T from_le_bytes(Array<uint8_t, sizeof(T)> bytes) {
    typename Of<T>::Wide value = 0;
    for (uint32_t i = 0; i < sizeof(T); ++i) value |= static_cast<typename Of<T>::Wide>(bytes[i]) << (8 * i);
    return static_cast<T>(value);
}
template <class T> PARL_FN constexpr Array<uint8_t, sizeof(T)> to_le_bytes(T a) {
    Array<uint8_t, sizeof(T)> bytes{};
    const typename Of<T>::Wide value = plain<T>(a);
    for (uint32_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    return bytes;
}

// `to = from` for a struct.
typedef uint32_t __attribute__((may_alias)) Word;
template <class T> PARL_FN void put(T& to, const T& from) {
#ifdef __CUDACC__
    if constexpr (sizeof(T) >= 64 && alignof(T) >= 4) {
        Word* words = reinterpret_cast<Word*>(&to);
        const Word* others = reinterpret_cast<const Word*>(&from);
#pragma unroll 4
        for (uint32_t i = 0; i < sizeof(T) / 4; ++i) words[i] = others[i];
        return;
    }
#endif
    to = from;
}

// Loads and stores of several bytes, which must be aligned to their size.
template <class T> struct Wide {
    typedef T __attribute__((may_alias)) Word;
};
template <class T> PARL_FN T load(const uint8_t* bytes, uint32_t at) {
    PARL_ALIGNED(bytes + at, sizeof(T));
    return *reinterpret_cast<const typename Wide<T>::Word*>(bytes + at);
}
template <class T> PARL_FN void store(uint8_t* bytes, uint32_t at, T value) {
    PARL_ALIGNED(bytes + at, sizeof(T));
    *reinterpret_cast<typename Wide<T>::Word*>(bytes + at) = value;
}

// Arrays.
template <class A, class T> PARL_FN constexpr A filled(T value) {
    A array{};
    for (uint32_t i = 0; i < sizeof(array.at) / sizeof(array.at[0]); ++i) array[i] = value;
    return array;
}
template <class T> PARL_FN constexpr void fill(Slice<T> slice, T value) {
    for (uint32_t i = 0; i < slice.length; ++i) slice[i] = value;
}
template <class T> PARL_FN constexpr void copy_from_slice(Slice<T> to, Slice<const T> from) {
    for (uint32_t i = 0; i < to.length; ++i) to[i] = from[i];
}

// Floats: one rounding per operation. Host compilers need -ffp-contract=off.
#ifdef __CUDACC__
PARL_FN double fadd(double a, double b) { return __dadd_rn(a, b); }
PARL_FN double fsub(double a, double b) { return __dadd_rn(a, -b); }
PARL_FN double fmul(double a, double b) { return __dmul_rn(a, b); }
PARL_FN double fdiv(double a, double b) { return __ddiv_rn(a, b); }
PARL_FN float fadd(float a, float b) { return __fadd_rn(a, b); }
PARL_FN float fsub(float a, float b) { return __fadd_rn(a, -b); }
PARL_FN float fmul(float a, float b) { return __fmul_rn(a, b); }
PARL_FN float fdiv(float a, float b) { return __fdiv_rn(a, b); }
PARL_FN double from_bits(uint64_t a) { return __longlong_as_double(static_cast<int64_t>(a)); }
PARL_FN uint64_t to_bits(double a) { return static_cast<uint64_t>(__double_as_longlong(a)); }
#else
PARL_FN double fadd(double a, double b) { return a + b; }
PARL_FN double fsub(double a, double b) { return a - b; }
PARL_FN double fmul(double a, double b) { return a * b; }
PARL_FN double fdiv(double a, double b) { return a / b; }
PARL_FN float fadd(float a, float b) { return a + b; }
PARL_FN float fsub(float a, float b) { return a - b; }
PARL_FN float fmul(float a, float b) { return a * b; }
PARL_FN float fdiv(float a, float b) { return a / b; }
PARL_FN double from_bits(uint64_t a) {
    double value;
    __builtin_memcpy(&value, &a, sizeof(value));
    return value;
}
PARL_FN uint64_t to_bits(double a) {
    uint64_t value;
    __builtin_memcpy(&value, &a, sizeof(value));
    return value;
}
#endif
// `as`: towards zero, saturating, NaN gives 0.
template <class T, class F> PARL_FN constexpr T float_to(F a) {
    if (!(a == a)) return 0;
    if (a <= static_cast<F>(least<T>())) return least<T>();
    if (a >= static_cast<F>(most<T>())) return most<T>();
    return static_cast<T>(a);
}

[[noreturn]] PARL_FN void unreachable() { __builtin_unreachable(); }

}  // namespace rs
