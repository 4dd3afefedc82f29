// Only the jump-table interpreter: small enough to compile to machine code for every family of GPUs.
#include "cpu_brx.cuh"

extern "C" __global__ void block(cule::brx::Registers* all, const cule::machine::Machine* start, cule::brx::Program program,
                                 uint32_t cycles, uint32_t until) {
    __shared__ cule::machine::Machine machines[32];
    machines[threadIdx.x] = *start;
    const uint32_t machine = static_cast<uint32_t>(__cvta_generic_to_shared(machines + threadIdx.x));
    cule::brx::Registers r = all[threadIdx.x];
    cule::brx::run(r, machine, cycles, until, program);
    all[threadIdx.x] = r;
}
