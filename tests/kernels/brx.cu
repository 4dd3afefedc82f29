// A frame by the interpreter with the jump table: the block, and single steps where it leaves. One environment per
// thread, records and ROM in global memory, RAM in shared memory, word by word side by side for the 32 lanes of a warp.
#include "cpu_brx.cuh"

using cule::machine::Board;
using cule::machine::Machine;

extern "C" __global__ void decode(const uint8_t* rom, uint32_t rom_bytes, uint32_t plain_high, uint64_t* records) {
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < rom_bytes) records[at] = cule::machine::records::record(Slice<const uint8_t>(rom, rom_bytes), at, plain_high);
}

static __device__ void load_ram(Machine& m, const uint32_t* ram) {
    for (uint32_t i = 0; i < 128; ++i) m.riot.ram[i] = static_cast<uint8_t>(ram[32 * (i >> 2)] >> (8 * (i & 3)));
}

static __device__ void store_ram(const Machine& m, uint32_t* ram) {
    for (uint32_t i = 0; i < 128; i += 4) {
        ram[32 * (i >> 2)] = m.riot.ram[i] | m.riot.ram[i + 1] << 8 | m.riot.ram[i + 2] << 16 |
                             static_cast<uint32_t>(m.riot.ram[i + 3]) << 24;
    }
}

static __device__ uint64_t blocks(const Machine& m, uint32_t from) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < 4; ++i) all |= static_cast<uint64_t>(m.cart.segment[from + i]) << (16 * i);
    return all;
}

extern "C" __global__ void frame(Machine* machines, Board* boards, const uint8_t* rom, uint32_t rom_bytes,
                                 const uint64_t* records, uint32_t count) {
    __shared__ uint32_t shared[32 * 32];
    const uint32_t lane = blockIdx.x * 32 + threadIdx.x;
    if (lane >= count) return;
    uint32_t* ram = shared + threadIdx.x;
    const uint32_t ram_at = static_cast<uint32_t>(__cvta_generic_to_shared(ram));
    const Slice<const uint8_t> image(rom, rom_bytes);
    Machine m = machines[lane];
    Board& board = boards[lane];
    cule::machine::begin_step(m, board);
    m.eager = 0;
    store_ram(m, ram);
    uint32_t left = cule::machine::INSTRUCTIONS_PER_STEP;
    while (left != 0 && m.tia.stop == 0 && m.cpu.jammed == 0) {
        cule::machine::operations::Cpu& c = m.cpu;
        cule::brx::Registers r{c.a,      c.x,      c.y,    c.s,  c.carry, c.overflow, c.decimal,
                               c.result, c.cycles, left, c.pc, 0,       0,          0};
        const uint32_t low = m.cart.plain_low;
        const uint32_t span = m.cart.plain_high > low ? m.cart.plain_high - low : 0;
        cule::brx::run(r, ram_at, rom, records, blocks(m, 0), blocks(m, 4), low, span);
        c.a = static_cast<uint8_t>(r.a);
        c.x = static_cast<uint8_t>(r.x);
        c.y = static_cast<uint8_t>(r.y);
        c.s = static_cast<uint8_t>(r.s);
        c.carry = static_cast<uint8_t>(r.carry);
        c.overflow = static_cast<uint8_t>(r.overflow);
        c.decimal = static_cast<uint8_t>(r.decimal);
        c.result = r.result;
        c.cycles = r.cycles;
        c.pc = static_cast<uint16_t>(r.pc);
        left = r.left;
        load_ram(m, ram);
        if (r.code == 2) {
            cule::machine::bus::write(m, c, board, r.address, r.value, false);
        } else if (left != 0) {
            cule::machine::cpu::run(m, board, image, 1);
            left -= 1;
        }
        store_ram(m, ram);
    }
    cule::machine::end_step(m, board);
    machines[lane] = m;
}
