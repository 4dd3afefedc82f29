// The interface between compiled kernels and the fake driver.
#pragma once
#include <cstddef>
#include <cstdint>

struct ParlShape {
    uint32_t blocks[3];
    uint32_t threads[3];
    uint32_t shared_bytes;
};

// The symbol `parl_kernel_NAME` of the shared object that a kernel was compiled to.
struct ParlKernel {
    size_t argument_bytes;
    void (*copy)(void** from, void* to);
    void (*run)(const void* arguments, const ParlShape* shape);
};
