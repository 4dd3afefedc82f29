// Runs a frame in the form of the argument, as the step kernel does. One environment per thread, one warp per
// block, records and ROM in global memory, machines in rows of shared memory.
#include "forms.cuh"

using cule::machine::Board;
using cule::machine::Machine;

extern "C" __global__ void decode(const uint8_t* rom, uint32_t rom_bytes, const cule::machine::cart::Cart* cart,
                                  uint64_t* records) {
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < rom_bytes) records[at] = cule::machine::records::record(Slice<const uint8_t>(rom, rom_bytes), at, *cart);
}

extern "C" __global__ void frame(Machine* machines, Board* boards, const uint8_t* rom, uint32_t rom_bytes,
                                 const uint64_t* records, uint32_t count, uint32_t form, uint32_t window) {
    if (threadIdx.x == 0) schedule_of_block() = WarpSchedule{records, form, window};
    __syncthreads();
    const uint32_t lane = blockIdx.x * ROW_LANES + threadIdx.x;
    if (lane >= count) return;
    Machine m = machines[lane];
    Board& board = boards[lane];
    cule::machine::begin_step(m, board);
    m.access_by_access = 0;
    run_form(m, board, Slice<const uint8_t>(rom, rom_bytes), cule::machine::INSTRUCTIONS_PER_STEP);
    cule::machine::end_step(m, board);
    machines[lane] = m;
}
