// Forms: how the lanes of a warp run their frames. In the plain form each lane runs its own instructions. In
// the grouped form lanes at the same instruction run together; those with the smallest key run first
// (src/env/warp_schedule.rs). Both forms give the same machine.
#pragma once
#include "cpu_brx.cuh"
#include "runner.cuh"

// Measurements (`benches/gpu/lanes.cu`) count here how often warps come to a point, and with how many lanes.
#ifndef PARL_COUNT_LANES
#define PARL_COUNT_LANES(point, together, counted)
#endif

// Form and window of a game, and the records of the jump-table interpreter: one per ROM byte.
struct WarpSchedule {
    const uint64_t* records;
    uint32_t form;    // one of FORM_
    uint32_t window;  // picture rows that are one window of the key, as a shift
};

// The schedule of the block's first warp. It is the same for all lanes, since a warp has one game.
static __device__ WarpSchedule& schedule_of_block() {
    __shared__ WarpSchedule all;
    return all;
}

// The machines of the lanes while their frames run: one row per lane, a plain struct. A row has an odd number
// of words, so that the same word of 32 rows lies in 32 banks, as in a structure of arrays.
PARL_CONST uint32_t ROW_WORDS = (sizeof(cule::machine::Machine) / 4) | 1;
PARL_CONST uint32_t ROW_LANES = 32;
PARL_CONST uint32_t SHARED_BYTES = ROW_LANES * ROW_WORDS * 4;
static_assert(alignof(cule::machine::Machine) <= 4, "a row begins at any word");
static_assert(SHARED_BYTES <= 16 * 1024, "eight blocks share a multiprocessor");

// Shared memory of a block: these rows while frames run, and the data of `show` after that.
#define PARL_BLOCK_WORDS (ROW_LANES * ROW_WORDS)
static __device__ uint32_t* block_words() {
    __shared__ uint32_t words[PARL_BLOCK_WORDS];
    return words;
}

static __device__ cule::machine::Machine& row_of(uint32_t lane) {
    return *reinterpret_cast<cule::machine::Machine*>(block_words() + lane * ROW_WORDS);
}

// The word after the machine in a row: the cycle of the lane's last store to the TIA.
static_assert(ROW_WORDS * 4 > sizeof(cule::machine::Machine), "a row has a word to spare");
static __device__ uint32_t& last_store(uint32_t lane) { return block_words()[lane * ROW_WORDS + ROW_WORDS - 1]; }

// The smallest key of the lanes in `together`. All of them must call this.
static __device__ uint32_t smallest_key(uint32_t together, uint32_t key) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __reduce_min_sync(together, key);
#else
    // Bit by bit from the top: lanes with a 1 are excluded if another lane has a 0.
    uint32_t left = together, found = 0;
    for (uint32_t bit = 32; bit-- > 0;) {
        const uint32_t zeros = __ballot_sync(together, (key >> bit & 1) == 0) & left;
        if (zeros != 0) left = zeros; else found |= 1u << bit;
    }
    return found;
#endif
}

static __device__ void store_registers(cule::machine::operations::Cpu& c, const cule::brx::Registers& r) {
    c.a = static_cast<uint8_t>(r.a);
    c.x = static_cast<uint8_t>(r.x);
    c.y = static_cast<uint8_t>(r.y);
    c.s = static_cast<uint8_t>(r.s);
    c.carry = static_cast<uint8_t>(r.carry);
    c.overflow = static_cast<uint8_t>(r.overflow);
    c.decimal = static_cast<uint8_t>(r.decimal);
    c.result = r.result;
    c.cycles = r.cycles;
    c.left = r.left;
    c.pc = static_cast<uint16_t>(r.pc);
}

static __device__ void load_registers(cule::brx::Registers& r, const cule::machine::operations::Cpu& c) {
    r.a = c.a;
    r.x = c.x;
    r.y = c.y;
    r.s = c.s;
    r.carry = c.carry;
    r.overflow = c.overflow;
    r.decimal = c.decimal;
    r.result = c.result;
    r.cycles = c.cycles;
    r.left = c.left;
    r.pc = c.pc;
}

// Runs an instruction that the PTX block has not run, with the compact interpreter.
static __device__ __noinline__ void execute_with_compact(cule::machine::Machine& m, cule::machine::Board& board, Slice<const uint8_t> rom,
                                            cule::brx::Registers& r) {
    cule::machine::operations::Cpu cpu = m.cpu;
    const uint32_t rounds = cule::machine::polls::waiting_rounds(m, rom, r.pc, r.cycles, r.left);
    r.cycles += rounds * cule::machine::polls::period(r.pc);
    r.left -= 2 * rounds;
    store_registers(cpu, r);
    cpu.left -= 1;
    cule::machine::compact::execute(m, cpu, board, rom);
    m.cpu.interrupt = cpu.interrupt;
    m.cpu.jammed = cpu.jammed;
    load_registers(r, cpu);
}

// Runs a frame of the active lanes together. Other lanes of the warp run theirs separately: the result of a
// lane does not depend on which lanes run with it.
static __device__ __noinline__ void run_grouped(cule::machine::Machine& given, cule::machine::Board& board,
                                                Slice<const uint8_t> rom, uint32_t budget) {
    const uint32_t together = __activemask();
    PARL_COUNT_LANES(0, together, true);
    const WarpSchedule schedule = schedule_of_block();
    cule::machine::Machine& m = row_of(threadIdx.x);
    rs::put(m, given);
    const uint32_t riot = static_cast<uint32_t>(__cvta_generic_to_shared(&m.riot));
    const uint32_t interrupt = static_cast<uint32_t>(__cvta_generic_to_shared(&m.cpu.interrupt));
    const uint32_t segments = static_cast<uint32_t>(__cvta_generic_to_shared(&m.cart.segment));
    const uint32_t first_plain = 0x1000u + m.cart.plain_low;
    const uint32_t span = m.cart.plain_high > m.cart.plain_low ? m.cart.plain_high - m.cart.plain_low : 0;
    cule::brx::Registers r{};
    load_registers(r, m.cpu);
    r.left = m.cpu.jammed != 0 ? 0 : budget;
    uint32_t next = cule::env::warp_schedule::next_stretch(0, schedule.window);
    uint32_t& stored = last_store(threadIdx.x);
    // No store yet: a frame that continues an open one may begin in the middle of the picture.
    stored = 0;
    for (;;) {
        const uint32_t key =
            r.left == 0 ? 0xFFFFFFFFu : cule::env::warp_schedule::key(m.tia, r.cycles, r.s, r.pc, schedule.window);
        const uint32_t first = smallest_key(together, key);
        if (first >= next) {
            if (first == 0xFFFFFFFFu) break;
            // All lanes have left a stretch of rows: all active lanes draw their completed rows together.
            if (r.left != 0 && m.draw != 0 && m.access_by_access == 0 && m.cart.claims == 0) {
                cule::machine::tia::beam::catch_up(m, board, cule::env::warp_schedule::drawable_clock(m.tia, first, schedule.window, stored));
            }
            next = cule::env::warp_schedule::next_stretch(first, schedule.window);
        }
        PARL_COUNT_LANES(1, together, key == first);
        if (key == first) {
            cule::brx::run(r, riot, segments, interrupt, rom.data, schedule.records, first_plain, span);
            // The functions take copies: a variable whose address is taken is in local memory.
            if (r.code == 1) {
                cule::brx::Registers copy = r;
                execute_with_compact(m, board, rom, copy);
                r = copy;
            }
            if (r.code == 2) {
                stored = r.cycles;
                m.bus = r.value;
                r.cycles += cule::machine::bus::write_tia(m, board, r.cycles, r.address, r.value, false);
                if (m.tia.stop != 0) r.left = 0;
            }
        }
    }
    store_registers(m.cpu, r);
    rs::put(given, m);
}

// Runs a frame in the form of the block's game.
static __device__ __noinline__ void run_form(cule::machine::Machine& m, cule::machine::Board& board, Slice<const uint8_t> rom,
                                             uint32_t budget) {
    const uint32_t form = schedule_of_block().form;
    if (form == cule::env::warp_schedule::FORM_GROUPED) {
        run_grouped(m, board, rom, budget);
    } else {
        cule::machine::compact::run(m, board, rom, budget);
    }
}

using FormRunner = Runner<run_form>;
