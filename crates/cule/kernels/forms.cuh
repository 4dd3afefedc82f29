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
static_assert(alignof(cule::machine::Machine) <= 4, "a row begins at any word");
// Bytes of a block's shared memory: these rows, and the lines of `line_of_thread`.
PARL_CONST uint32_t SHARED_BYTES = ROW_LANES * (ROW_WORDS * 4 + LINE_PAIRS * 8);
static_assert(SHARED_BYTES <= 24 * 1024, "eight blocks share a multiprocessor");

// Shared memory of a block: these rows while frames run, and the data of `show` after that.
#define PARL_BLOCK_WORDS (ROW_LANES * ROW_WORDS)
static __device__ uint32_t* block_words() {
    alignas(16) __shared__ uint32_t words[PARL_BLOCK_WORDS];
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

// `-DSYNC_PHASES=n`, for measurements: the warps of a multiprocessor run the same part of a frame at the same time, so that they share
// the code in its cache. They meet at the start of a frame (1), and of the picture (2), and after every stretch of rows (3).
#ifndef SYNC_PHASES
#define SYNC_PHASES 0
#endif
#if SYNC_PHASES > 0 && defined(__CUDACC__)
// Cycles that a warp waits for others, at most: results must never depend on them.
constexpr long long MOST_WAIT = 4000000;
constexpr uint32_t MOST_UNITS = 256, UNIT_WARPS = 64;
// Per multiprocessor and warp of it, how many times the warp has met others; 0 while it runs no frames.
static __device__ volatile uint32_t phases[MOST_UNITS * UNIT_WARPS];

static __device__ uint32_t& phase_of_block() {
    __shared__ uint32_t phase;
    return phase;
}

static __device__ volatile uint32_t* phases_of_unit() {
    uint32_t unit;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(unit));
    return phases + unit % MOST_UNITS * UNIT_WARPS;
}

static __device__ void set_phase(uint32_t phase) {
    uint32_t warp;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    phase_of_block() = phase;
    phases_of_unit()[warp % UNIT_WARPS] = phase;
}

// The lanes in `together` wait until no other warp of the multiprocessor is behind.
static __device__ __noinline__ void meet(uint32_t together) {
    const uint32_t before = together & ((1u << threadIdx.x % 32) - 1), count = __popc(together);
    // The frames of a reset that follows the step: other warps do not wait for these.
    if (phase_of_block() == 0) return;
    __syncwarp(together);
    if (before == 0) set_phase(phase_of_block() + 1);
    __syncwarp(together);
    const uint32_t phase = phase_of_block();
    volatile uint32_t* all = phases_of_unit();
    const long long begun = clock64();
    for (;;) {
        bool behind = false;
        for (uint32_t i = __popc(before); i < UNIT_WARPS; i += count) behind |= all[i] - 1 < phase - 1;
        if (!__any_sync(together, behind) || __any_sync(together, clock64() - begun > MOST_WAIT)) break;
        __nanosleep(500);
    }
}
#else
[[maybe_unused]] static __device__ void set_phase(uint32_t) {}
[[maybe_unused]] static __device__ void meet(uint32_t) {}
#endif

// The time of a lane: cycle and instructions left when `spent` was last 0, and the value of `spent` from which the lane must ask
// for its window.
struct LaneTime {
    uint32_t cycles, left, until;
};

static __device__ uint32_t cycles_of(const LaneTime& time, const cule::brx::Registers& r) {
    return time.cycles + (r.spent >> cule::brx::CYCLES_AT);
}

// Adds what a lane has spent to its time.
static __device__ void settle(LaneTime& time, cule::brx::Registers& r, uint32_t& stored) {
    if (r.stored != 0) stored = time.cycles + (r.stored >> cule::brx::CYCLES_AT);
    time.cycles = cycles_of(time, r);
    time.left -= r.spent & ((1u << cule::brx::CYCLES_AT) - 1);
    time.until = time.until > r.spent ? time.until - r.spent : 0;
    r.spent = 0;
    r.stored = 0;
}

// Places a lane at the instruction at `pc`. Where the block cannot run, an instruction that ends it at once.
static __device__ void go_to(cule::brx::Registers& r, const cule::machine::Machine& m, uint32_t pc, uint32_t left,
                             const cule::brx::Program& program) {
    r.place = program.nowhere;
    if ((pc & 0x1FFF) - program.first < program.span && left >= cule::env::warp_schedule::MARGIN) {
        const uint32_t segment = (pc >> 10 & 3) | (pc >> 11 & 4);
        r.place = m.cart.segment[segment] * cule::machine::cart::SEGMENT_BYTES + (pc & (cule::machine::cart::SEGMENT_BYTES - 1));
    }
    r.offset = pc - r.place;
}

static __device__ void store_registers(cule::machine::operations::Cpu& c, const cule::brx::Registers& r, const LaneTime& time) {
    c.a = static_cast<uint8_t>(r.a);
    c.x = static_cast<uint8_t>(r.x);
    c.y = static_cast<uint8_t>(r.y);
    c.s = static_cast<uint8_t>(r.s);
    c.carry = static_cast<uint8_t>(r.carry);
    c.overflow = static_cast<uint8_t>(r.overflow);
    c.decimal = static_cast<uint8_t>(r.decimal);
    c.result = r.result;
    c.cycles = time.cycles;
    c.left = time.left;
    c.pc = static_cast<uint16_t>(r.place + r.offset);
}

static __device__ void load_registers(cule::brx::Registers& r, LaneTime& time, const cule::machine::Machine& m,
                                      const cule::machine::operations::Cpu& c, const cule::brx::Program& program) {
    r.a = c.a;
    r.x = c.x;
    r.y = c.y;
    r.s = c.s;
    r.carry = c.carry;
    r.overflow = c.overflow;
    r.decimal = c.decimal;
    r.result = c.result;
    time.cycles = c.cycles;
    time.left = c.left;
    go_to(r, m, c.pc, c.left, program);
}

// Runs an instruction that the PTX block has not run, with the compact interpreter. The time is settled.
static __device__ __noinline__ void execute_with_compact(cule::machine::Machine& m, cule::machine::Board& board, Slice<const uint8_t> rom,
                                                         const cule::brx::Program& program, cule::brx::Registers& r, LaneTime& time) {
    cule::machine::operations::Cpu cpu = m.cpu;
    store_registers(cpu, r, time);
    const uint32_t rounds = cule::machine::polls::waiting_rounds(m, rom, cpu.pc, cpu.cycles, cpu.left);
    const uint32_t cycles = rounds * cule::machine::polls::period(cpu.pc);
    cpu.cycles += cycles;
    cpu.left -= 2 * rounds + 1;
    const uint32_t before = cpu.cycles;
    cule::machine::compact::execute(m, cpu, board, rom);
    m.cpu.interrupt = cpu.interrupt;
    m.cpu.jammed = cpu.jammed;
    const uint32_t spent = (cpu.cycles - before + cycles) << cule::brx::CYCLES_AT;
    time.until = time.until > spent ? time.until - spent : 0;
    load_registers(r, time, m, cpu, program);
    if (time.left == 0 || m.access_by_access != 0) time.until = 0;
}

// The program of a lane's cartridge.
static __device__ cule::brx::Program program_of(const cule::machine::cart::Cart& cart, const uint8_t* rom, const uint64_t* records) {
    const uint32_t first = 0x1000u + cart.plain_low;
    const uint32_t span = cart.plain_high > cart.plain_low ? cart.plain_high - cart.plain_low : 0;
    const uint32_t bytes = cule::machine::cart::bank_bytes(cart.kind);
    const bool fills_window = bytes > cule::machine::cart::SEGMENT_BYTES;
    return cule::brx::Program{rom, records, first, span, fills_window ? span : 0, bytes - 1, cart.rom_bytes - 1};
}

// The window, and so the key, of a lane that has finished its frame.
constexpr uint32_t FINISHED = 0xFFFFFFFF;

// The window of a lane and how long it lasts. A lane that has finished its frame stays in the last one.
static __device__ uint32_t enter_window(const cule::machine::Machine& m, LaneTime& time, cule::brx::Registers& r, uint32_t& stored,
                                        uint32_t window, const cule::brx::Program& program) {
    settle(time, r, stored);
    if (time.left == 0) {
        time.until = FINISHED;
        return FINISHED;
    }
    if (time.left < cule::env::warp_schedule::MARGIN) go_to(r, m, r.place + r.offset, time.left, program);
    const Tuple2<uint32_t, uint32_t> found = cule::env::warp_schedule::window_at(m.tia, time.cycles, window);
    // Every store has to be executed there, whether it changes something or not.
    const bool whole = m.access_by_access == 0 && m.cart.claims == 0;
    time.until = whole ? found._1 << cule::brx::CYCLES_AT : 0;
    return found._0;
}

// Runs a frame of the active lanes together. Other lanes of the warp run theirs separately: the result of a
// lane does not depend on which lanes run with it.
static __device__ __noinline__ void run_grouped(cule::machine::Machine& given, cule::machine::Board& board,
                                                Slice<const uint8_t> rom, uint32_t budget) {
    namespace schedule = cule::env::warp_schedule;
    const uint32_t together = __activemask();
    PARL_COUNT_LANES(0, together, true);
    meet(together);
    const WarpSchedule chosen = schedule_of_block();
    cule::machine::Machine& m = row_of(threadIdx.x);
    rs::put(m, given);
    const uint32_t machine = static_cast<uint32_t>(__cvta_generic_to_shared(&m));
    const cule::brx::Program program = program_of(m.cart, rom.data, chosen.records);
    m.cpu.left = m.cpu.jammed != 0 ? 0 : budget;
    cule::brx::Registers r{};
    LaneTime time{};
    load_registers(r, time, m, m.cpu, program);
    uint32_t next = schedule::next_stretch(0, chosen.window);
    [[maybe_unused]] bool picture_begun = false;
    uint32_t& stored = last_store(threadIdx.x);
    // No store yet: a frame that continues an open one may begin in the middle of the picture.
    stored = 0;
    uint32_t window = enter_window(m, time, r, stored, chosen.window, program);
    uint32_t key = schedule::key(window, r.s, r.place);
    for (;;) {
        const uint32_t first = smallest_key(together, key);
        if (first >= next) {
            if (first == FINISHED) break;
            // All lanes have left a stretch of rows: all active lanes draw their completed rows together.
            if (key != FINISHED && m.draw != 0 && m.access_by_access == 0 && m.cart.claims == 0) {
                settle(time, r, stored);
                cule::machine::tia::beam::catch_up(m, board, schedule::drawable_clock(m.tia, first, chosen.window, stored));
            }
            if (SYNC_PHASES > 2 || (SYNC_PHASES > 1 && !picture_begun)) meet(together);
            picture_begun = true;
            next = schedule::next_stretch(first, chosen.window);
        }
        PARL_COUNT_LANES(1, together, key == first);
        if (key != first) continue;
        for (;;) {
            cule::brx::run(r, machine, time.cycles, time.until, program);
            // A branch, a jump, or a store of another lane.
            if (r.code < cule::brx::SLOW) break;
            if (r.code == cule::brx::READ && m.cart.claims == 0) {
                r.value = cule::machine::tia::read(m, board, r.address, cycles_of(time, r));
                m.bus = r.value;
                r.code = cule::brx::VALUE;
                continue;
            }
            if (r.code == cule::brx::STORE) {
                m.bus = r.value;
                const uint32_t stall = cule::machine::bus::write_tia(m, board, cycles_of(time, r), r.address, r.value, false);
                r.spent += stall << cule::brx::CYCLES_AT;
                if ((m.tia.stop | m.access_by_access) != 0) {
                    settle(time, r, stored);
                    if (m.tia.stop != 0) time.left = 0;
                    time.until = 0;
                }
                break;
            }
            if (r.code == cule::brx::READ) {
                r.spent -= r.value;
                r.code = cule::brx::SLOW;
            }
            settle(time, r, stored);
            // The function takes copies: a variable whose address is taken is in local memory.
            cule::brx::Registers copy = r;
            LaneTime copy_of_time = time;
            execute_with_compact(m, board, rom, program, copy, copy_of_time);
            r = copy;
            time = copy_of_time;
            break;
        }
        if (r.spent >= time.until) window = enter_window(m, time, r, stored, chosen.window, program);
        key = schedule::key(window, r.s, r.place);
    }
    settle(time, r, stored);
    store_registers(m.cpu, r, time);
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
