// Only the jump-table interpreter: small enough to compile to machine code for every family of GPUs.
#include "cpu_brx.cuh"

extern "C" __global__ void block(cule::brx::Registers* all, const uint8_t* rom, const uint64_t* records, uint64_t low,
                                 uint64_t high, uint32_t plain_low, uint32_t plain_span) {
    __shared__ uint8_t ram[32 * 128];
    const uint32_t ram_at = static_cast<uint32_t>(__cvta_generic_to_shared(ram)) + 128 * threadIdx.x;
    cule::brx::Registers r = all[threadIdx.x];
    cule::brx::run(r, ram_at, rom, records, low, high, plain_low, plain_span);
    all[threadIdx.x] = r;
}
