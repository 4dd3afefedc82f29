// Only the jump-table interpreter: small enough to compile to machine code for every family of GPUs.
#include "cpu_brx.cuh"

extern "C" __global__ void block(cule::brx::Registers* all, const uint8_t* rom, const uint64_t* records,
                                 const uint16_t* cartridge, uint32_t first, uint32_t span) {
    __shared__ cule::machine::riot::Riot chips[32];
    __shared__ uint8_t interrupts[32];
    __shared__ uint16_t segments[8];
    const uint32_t riot = static_cast<uint32_t>(__cvta_generic_to_shared(chips + threadIdx.x));
    const uint32_t interrupt = static_cast<uint32_t>(__cvta_generic_to_shared(interrupts + threadIdx.x));
    if (threadIdx.x < 8) segments[threadIdx.x] = cartridge[threadIdx.x];
    __syncthreads();
    const uint32_t segments_at = static_cast<uint32_t>(__cvta_generic_to_shared(segments));
    cule::brx::Registers r = all[threadIdx.x];
    cule::brx::run(r, riot, segments_at, interrupt, rom, records, first, span);
    all[threadIdx.x] = r;
}
