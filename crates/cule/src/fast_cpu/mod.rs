//! The fast interpreter: predecoded records, one function per opcode and kind of operand, chained by sibling calls.
//!
//! A *record* is eight bytes per ROM address: the address of a function and the operand that it needs. A function does
//! its instruction, reads the next record and calls its function in tail position with the same six arguments, all in
//! registers; the compiler makes that call a jump. What is rare (devices, hotspots, decimal mode, code outside the ROM)
//! goes the slow way: the plain interpreter of `machine::cpu` runs that one instruction. Loops that only wait are
//! counted, not run, where their end is known.
//!
//! The functions are generated (`handlers`); this module is what they stand on. Rust does not promise that tail calls
//! become jumps: without optimization the chain is cut at every jump taken (`check` in the generator), and
//! `tests/fast_cpu.rs` runs frames on a small stack. A cartridge that answers below $1000 or has windows of RAM is left
//! to the plain interpreter altogether.

#![allow(
    unsafe_code,
    reason = "function addresses in records and unchecked indices are what makes this interpreter fast"
)]

mod cells;
mod code;
#[rustfmt::skip]
pub mod handlers;
mod latches;
mod masks;
mod pixels;
mod stores;
mod strobe;
mod tia;
mod watch;

pub use code::{Code, Settings};

use tia::FastTia;

use crate::machine::INSTRUCTIONS_PER_STEP;
use crate::machine::instructions::{INSTRUCTIONS, Mode};
use crate::machine::operations::Cpu;
use crate::machine::{self, Board, Machine, cart, cpu, dpc, instructions, riot};

/// A function of the chain: context, record, X | Y << 8 | V << 16 | stored value << 24, A, cycles << 16 | instructions
/// left, result | carry << 8.
pub type Handler = unsafe fn(&mut Context, *const u64, u32, u32, u64, u32);

/// What the count of instructions left must be when a jump is taken. The chain's count is `RESERVE` less `Code::reserve`
/// higher than the true one: more must be left than there are up to the next jump, and that depends on the image.
pub const RESERVE: u16 = 4500;
/// No value of a register: the write has to be looked at.
const UNKNOWN: u16 = 0x100;

/// What the functions share.
pub struct Context {
    /// The machine, while the chain runs; its registers and time are arguments.
    pub m: Machine,
    /// For each TIA register a value whose write changes nothing.
    pub shadow: [u16; 64],
    /// Start of the bank that is shown (`S` = false).
    window: *const u8,
    window_records: *const u64,
    /// The image and its records.
    rom: *const u8,
    records: *const u64,
    board: *mut Board,
    image: *const [u8],
    /// Instructions that must be left when a jump is taken.
    reserve: u32,
    /// The records are those that watch the TIA.
    watching: bool,
    /// High bits of PC (`S` = false), or PC less the place of its record (`S` = true).
    pc_base: u32,
    /// First address of plain ROM.
    pub plain_low: u32,
    /// How many addresses are plain ROM.
    pub plain_span: u32,
    /// First cycle at which a write hits the line limit.
    pub limit: u32,
    /// Cycle at which line 0 began.
    pub origin_cycles: u32,
    tia: FastTia,
    /// The chip has changed since `hand_over`: what the plain beam keeps on the board is out of date.
    moved_on: bool,
    /// Clock of the last write that changed the chip.
    changed_at: i32,
    /// What was written to the chip, in place of the chip.
    #[cfg(processor_alone)]
    writes: [u32; WRITES],
    #[cfg(processor_alone)]
    written: u32,
}

/// Room for the writes of a frame.
#[cfg(processor_alone)]
const WRITES: usize = 1024;

/// The function of a record.
///
/// # Safety
/// `record` was made by `Code`.
#[inline(always)]
unsafe fn handler(record: u64) -> Handler {
    // SAFETY: the upper 48 bits of a record are the address of a function of this type.
    unsafe { std::mem::transmute::<usize, Handler>((record >> 16) as usize) }
}

impl Context {
    fn new(m: &Machine, board: &mut Board, code: &Code) -> Self {
        let mut k = Self {
            m: *m,
            shadow: [UNKNOWN; 64],
            window: code.image().as_ptr(),
            window_records: code.records().as_ptr(),
            rom: code.image().as_ptr(),
            records: code.records().as_ptr(),
            board,
            image: code.image(),
            reserve: code.reserve(),
            watching: false,
            pc_base: 0,
            plain_low: 0x1000 + u32::from(m.cart.plain_low),
            plain_span: u32::from(m.cart.plain_high - m.cart.plain_low),
            limit: (m.tia.limit + 2) as u32 / 3,
            origin_cycles: (m.tia.origin / 3) as u32,
            tia: FastTia::new(&m.tia, m.draw != 0),
            moved_on: false,
            changed_at: i32::MIN,
            #[cfg(processor_alone)]
            writes: [0; WRITES],
            #[cfg(processor_alone)]
            written: 0,
        };
        stores::fill_shadow(&mut k);
        k
    }

    /// A byte of plain ROM.
    #[inline(always)]
    unsafe fn rom<const S: bool>(&self, at: u32) -> u32 {
        // SAFETY: segments lie in the image, and `window` shows a whole bank of it.
        unsafe {
            if S {
                let segment = self.m.cart.segment.get_unchecked((at >> 10 & 3 | at >> 11 & 4) as usize);
                u32::from(*self.rom.add(usize::from(*segment) * 1024 + (at & 0x3FF) as usize))
            } else {
                u32::from(*self.window.add((at & 0xFFF) as usize))
            }
        }
    }

    /// The record of a ROM address.
    #[inline(always)]
    unsafe fn jump<const S: bool>(&mut self, to: u32) -> *const u64 {
        // SAFETY: as `rom`; there is a record for every byte of the image.
        unsafe {
            if S {
                let segment = *self.m.cart.segment.get_unchecked((to >> 10 & 3 | to >> 11 & 4) as usize);
                let place = u32::from(segment) * 1024 + (to & 0x3FF);
                self.pc_base = to.wrapping_sub(place);
                self.records.add(place as usize)
            } else {
                self.pc_base = to & 0xF000;
                self.window_records.add((to & 0xFFF) as usize)
            }
        }
    }

    /// PC at a record.
    #[inline(always)]
    fn pc<const S: bool>(&self, ip: *const u64) -> u32 {
        let base = if S { self.records } else { self.window_records };
        ((ip as usize).wrapping_sub(base as usize) >> 3) as u32 + self.pc_base
    }

    /// P as pushed.
    #[inline(always)]
    fn status(&self, xy: u32, f: u32) -> u32 {
        let m = &self.m.cpu;
        let mut p = 0x30 | (xy >> 16 & 1) << 6 | u32::from(m.decimal) << 3 | u32::from(m.interrupt) << 2;
        p |= f >> 8 & 1;
        if f & 0x8080 != 0 {
            p |= 0x80;
        }
        if f & 0xFF == 0 {
            p |= 0x02;
        }
        p
    }

    /// Takes D and I from a pulled P; result and carry are returned, V is bit 6.
    #[inline(always)]
    fn set_status(&mut self, p: u32) -> u32 {
        self.m.cpu.decimal = (p >> 3 & 1) as u8;
        self.m.cpu.interrupt = (p >> 2 & 1) as u8;
        (p & 0x80) << 8 | (p >> 1 & 1 ^ 1) | (p & 1) << 8
    }

    /// Brings the chip to `clock`.
    #[inline(never)]
    fn look(&mut self, clock: i32) {
        // SAFETY: the board outlives the run (`run` borrows it).
        let board = unsafe { &mut *self.board };
        self.tia.catch_up(&mut self.m.tia, &mut board.picture, clock);
        self.moved_on = true;
    }

    /// Brings the chip up to a read of a register that depends on the beam.
    #[inline(always)]
    fn look_at(&mut self, address: u32, cycles: u32) {
        if address & 15 < 8 {
            self.look(machine::tia::clock_of(cycles));
        }
    }

    /// Makes chip and board as the plain machine expects them.
    #[inline(never)]
    fn hand_over(&mut self) {
        if self.moved_on {
            self.moved_on = false;
            self.m.tia.dirty = machine::tia::ALL_OBJECTS;
            self.m.tia.settled = 0;
            machine::tia::write::unsettle(&mut self.m.tia);
            // SAFETY: the board outlives the run (`run` borrows it).
            machine::tia::objects::refresh_cells(&self.m.tia, unsafe { &mut *self.board });
        }
    }

    /// True when the instruction at PC may read or write the TIA.
    fn meets_tia(&self) -> bool {
        let cpu = &self.m.cpu;
        let pc = u32::from(cpu.pc);
        let in_ram = pc & 0x1280 == 0x0080 && pc & 0xFF <= 0xFC;
        let in_rom = (pc & 0x1FFF).wrapping_sub(self.plain_low) < self.plain_span.saturating_sub(2);
        if !in_ram && !in_rom {
            return true;
        }
        let byte = |offset: u32| {
            if in_ram {
                u32::from(self.m.riot.ram[((pc + offset) & 0x7F) as usize])
            } else {
                let at = pc + offset;
                let segment = self.m.cart.segment[(at >> 10 & 3 | at >> 11 & 4) as usize];
                // SAFETY: the image outlives the run (`run` borrows the code).
                let image = unsafe { &*self.image };
                image.get(usize::from(segment) * 1024 + (at & 0x3FF) as usize).map_or(0, |&b| u32::from(b))
            }
        };
        let instruction = &INSTRUCTIONS[byte(0) as usize];
        let is_tia = |address: u32| address & 0x1080 == 0;
        let word = byte(1) | byte(2) << 8;
        let ram = |at: u32| u32::from(self.m.riot.ram[(at & 0x7F) as usize]);
        let pointer = |at: u32| (0x80..0xFF).contains(&at).then(|| ram(at) | ram(at + 1) << 8);
        let crosses = |base: u32, index: u8| {
            let at = base + u32::from(index);
            is_tia(at) || is_tia(base & 0xFF00 | at & 0xFF)
        };
        match instruction.mode {
            Mode::Imm | Mode::Acc | Mode::Rel => false,
            Mode::Zp => byte(1) & 0x80 == 0,
            Mode::Abs if instruction.name != "JSR" => is_tia(word),
            Mode::Absx => crosses(word, cpu.x),
            Mode::Absy => crosses(word, cpu.y),
            Mode::Zpx => is_tia((byte(1) + u32::from(cpu.x)) & 0xFF),
            Mode::Zpy => is_tia((byte(1) + u32::from(cpu.y)) & 0xFF),
            Mode::Indx => pointer((byte(1) + u32::from(cpu.x)) & 0xFF).is_none_or(is_tia),
            Mode::Indy => pointer(byte(1)).is_none_or(|base| crosses(base, cpu.y)),
            Mode::Imp if matches!(instruction.cycles, 2) => false,
            // The stack, pointers, and what is left.
            Mode::Imp | Mode::Abs => !(0x84..0xFC).contains(&cpu.s),
            _ => true,
        }
    }

    /// Reads a TIA register; the last byte of the instruction is on the bus.
    #[inline(never)]
    unsafe fn read_tia(&mut self, address: u32, absolute: bool, cycles: u32) -> u32 {
        self.m.bus = if absolute { address >> 8 } else { address };
        self.look_at(address, cycles);
        // SAFETY: the board outlives the run (`run` borrows it).
        machine::tia::read(&mut self.m, unsafe { &mut *self.board }, address, cycles)
    }

    /// Reads a device at `address`, the byte `bus` being on the bus; more than a byte where banks could move.
    #[inline(never)]
    fn load_device(&mut self, address: u32, bus: u32, cycles: u32) -> u32 {
        if address & 0x1080 == 0 {
            self.m.bus = bus;
            self.look_at(address, cycles);
            // SAFETY: the board outlives the run (`run` borrows it).
            return machine::tia::read(&mut self.m, unsafe { &mut *self.board }, address, cycles);
        }
        if address & 0x1280 == 0x0280 {
            return riot::read(&mut self.m, address, cycles);
        }
        let offset = address & 0xFFF;
        if address & 0x1000 != 0 && cart::is_superchip(&self.m.cart) && (0x80..0x100).contains(&offset) {
            return u32::from(self.m.cart.ram[(offset & 0x7F) as usize]);
        }
        if address & 0x1000 != 0 && self.m.cart.kind == cart::KIND_DPC && offset < 0x40 {
            // SAFETY: the image outlives the run (`run` borrows the code).
            return dpc::read(&mut self.m.cart, unsafe { &*self.image }, address, cycles);
        }
        0x100
    }

    /// Writes a device at `address`; false where it has to be done the slow way.
    #[inline(never)]
    fn store_device(&mut self, address: u32, value: u32, cycles: u32) -> bool {
        let offset = address & 0xFFF;
        if address & 0x1280 == 0x0280 {
            riot::write(&mut self.m.riot, address, value, cycles);
            return true;
        }
        if address & 0x1000 == 0 {
            return false;
        }
        if cart::is_superchip(&self.m.cart) && offset < 0x80 {
            self.m.cart.ram[offset as usize] = value as u8;
            return true;
        }
        if self.m.cart.kind == cart::KIND_DPC && offset < 0x80 {
            dpc::write(&mut self.m.cart, offset, value, cycles);
            return true;
        }
        false
    }

    /// Pulls a byte with the stack in the TIA: what the discarded read finds stays on the bus.
    #[inline(never)]
    fn pull_tia(&mut self, s: u32, cycles: u32) -> u32 {
        let before = s.wrapping_sub(1) & 0xFF;
        self.m.bus = 0x68;
        self.m.bus = if before & 0x80 != 0 {
            u32::from(self.m.riot.ram[(before & 0x7F) as usize])
        } else {
            self.load_device(before, 0x68, cycles)
        };
        self.load_device(s, self.m.bus, cycles)
    }

    /// Reads a RIOT register.
    #[inline(never)]
    fn read_port(&mut self, address: u32, cycles: u32) -> u32 {
        riot::read(&mut self.m, address, cycles)
    }

    /// Writes a RIOT register.
    #[inline(never)]
    fn write_riot(&mut self, address: u32, value: u32, cycles: u32) {
        riot::write(&mut self.m.riot, address, value, cycles);
    }

    /// Registers from the machine's form.
    #[inline(always)]
    fn registers(&self) -> (u32, u32, u64, u32) {
        let cpu = &self.m.cpu;
        let xy = u32::from(cpu.x) | u32::from(cpu.y) << 8 | u32::from(cpu.overflow) << 16;
        let cn = u64::from(cpu.cycles) << 16 | u64::from(cpu.left + u32::from(RESERVE) - self.reserve);
        (xy, u32::from(cpu.a), cn, cpu.result & 0x80FF | u32::from(cpu.carry) << 8)
    }

    /// Registers into the machine's form; PC is left.
    #[inline(always)]
    fn store_registers(&mut self, xy: u32, a: u32, cn: u64, f: u32) {
        let cpu = &mut self.m.cpu;
        cpu.a = a as u8;
        cpu.x = xy as u8;
        cpu.y = (xy >> 8) as u8;
        cpu.overflow = (xy >> 16 & 1) as u8;
        cpu.cycles = (cn >> 16) as u32;
        cpu.left = (cn & 0xFFFF) as u32 + self.reserve - u32::from(RESERVE);
        cpu.result = f & 0x80FF;
        cpu.carry = (f >> 8 & 1) as u8;
    }

    /// True when the chain can go on from here.
    #[inline(always)]
    fn can_run(&self) -> bool {
        self.m.cpu.left > self.reserve
            && self.m.cpu.pc & 0x1000 != 0
            && (self.m.eager != 0) == self.watching
            && self.m.tia.stop == 0
    }

    /// Shows the bank that the cartridge shows, and finds the record of PC.
    #[inline(always)]
    unsafe fn enter<const S: bool>(&mut self) -> *const u64 {
        if !S {
            let block = usize::from(self.m.cart.segment[0]) * 1024;
            // SAFETY: the image holds a whole bank from every first segment on.
            unsafe {
                self.window = self.rom.add(block);
                self.window_records = self.records.add(block);
            }
        }
        let pc = u32::from(self.m.cpu.pc);
        // SAFETY: `can_run` has seen that PC is in the ROM window.
        unsafe { self.jump::<S>(pc) }
    }

    /// Takes the records that watch the TIA.
    #[cold]
    fn begin_to_watch(&mut self, code: &Code) {
        self.hand_over();
        self.watching = true;
        self.records = code.watching_records().as_ptr();
        self.window_records = self.records;
    }

    /// What is left of the run, with the plain interpreter.
    unsafe fn finish(&mut self) {
        self.pass_window();
        self.hand_over();
        let left = self.m.cpu.left;
        // SAFETY: board and image outlive the run (`run` borrows them).
        let (board, image) = unsafe { (&mut *self.board, &*self.image) };
        cpu::run(&mut self.m, board, image, left);
    }

    /// Brings the beam behind the picture if an access was.
    fn pass_window(&mut self) {
        let end = self.m.tia.window_end;
        if self.m.eager == 0 && self.changed_at >= end {
            self.look(end);
        }
    }

    /// One instruction of the plain interpreter, on the machine's registers.
    unsafe fn execute(&mut self) {
        let meets = self.m.eager == 0 && self.meets_tia();
        if meets {
            self.hand_over();
        }
        let mut cpu: Cpu = self.m.cpu;
        cpu.left = cpu.left.wrapping_sub(1);
        // SAFETY: board and image outlive the run (`run` borrows them).
        let (board, image) = unsafe { (&mut *self.board, &*self.image) };
        let opcode = cpu::execute(&mut self.m, &mut cpu, board, image);
        self.m.cpu = cpu;
        if meets && self.m.eager == 0 {
            self.tia.forget(&self.m.tia);
            if instructions::writes(opcode as usize) {
                stores::fill_shadow(self);
            }
        }
    }
}

/// Ends the chain before the instruction at `ip`.
///
/// # Safety
/// As all of the chain.
#[cold]
#[inline(never)]
unsafe fn leave<const S: bool>(k: &mut Context, ip: *const u64, xy: u32, a: u32, cn: u64, f: u32) {
    k.m.cpu.pc = k.pc::<S>(ip) as u16;
    k.store_registers(xy, a, cn, f);
}

/// Does the instruction at `ip` the plain way, and goes on with the chain if it can.
///
/// # Safety
/// As all of the chain.
#[cold]
#[inline(never)]
unsafe fn slow<const S: bool>(k: &mut Context, ip: *const u64, xy: u32, a: u32, cn: u64, f: u32) {
    k.m.cpu.pc = k.pc::<S>(ip) as u16;
    k.store_registers(xy, a, cn, f);
    // SAFETY: promised by the caller.
    unsafe {
        k.execute();
        if !k.can_run() || cfg!(debug_assertions) {
            return;
        }
        let ip = k.enter::<S>();
        let (xy, a, cn, f) = k.registers();
        handler(*ip)(k, ip, xy, a, cn, f)
    }
}

/// Runs until `budget` instructions are spent or a chip asks for the end of the frame; equal to `cpu::run`.
pub fn run(m: &mut Machine, board: &mut Board, code: &Code, budget: u32) {
    if !code.is_threaded() {
        cpu::run(m, board, code.image(), budget);
        return;
    }
    let mut k = Context::new(m, board, code);
    k.m.cpu.left = if m.cpu.jammed != 0 { 0 } else { budget };
    // SAFETY: `k` was made for this code; board and code are borrowed until the end of this function.
    unsafe { if code.is_segmented() { drive::<true>(&mut k, code) } else { drive::<false>(&mut k, code) } }
    k.hand_over();
    *m = k.m;
}

/// True when the beam is behind the last row: no access draws any more before the next frame.
pub fn is_complete(m: &Machine) -> bool {
    m.tia.beam >= m.tia.window_end - m.tia.base
}

/// One STEP of the machine; equal to `machine::step`.
pub fn step(m: &mut Machine, board: &mut Board, code: &Code) {
    let begins_open = m.unfinished != 0;
    machine::begin_step(m, board);
    if m.draw != 0 && begins_open && !is_complete(m) {
        // It will probably stay open.
        m.eager = 1;
        run(m, board, code, INSTRUCTIONS_PER_STEP);
    } else if m.draw != 0 {
        let start = *m;
        run(m, board, code, INSTRUCTIONS_PER_STEP);
        if m.tia.stop == 0 && m.eager == 0 && !is_complete(m) {
            // How far an open frame shows depends on every access.
            *m = start;
            m.eager = 1;
            machine::tia::objects::refresh_cells(&m.tia, board);
            run(m, board, code, INSTRUCTIONS_PER_STEP);
        }
    } else {
        run(m, board, code, INSTRUCTIONS_PER_STEP);
    }
    machine::end_step(m, board);
}

/// Chain and single steps in turn until the frame or the budget ends.
unsafe fn drive<const S: bool>(k: &mut Context, code: &Code) {
    // SAFETY: promised by the caller of `run`'s only block.
    unsafe {
        while k.m.cpu.left != 0 && k.m.tia.stop == 0 {
            if k.m.eager != 0 && !k.watching {
                k.begin_to_watch(code);
            }
            if k.can_run() {
                let ip = k.enter::<S>();
                let (xy, a, cn, f) = k.registers();
                handler(*ip)(k, ip, xy, a, cn, f);
                if k.m.cpu.left == 0 || k.m.tia.stop != 0 {
                    break;
                }
                if k.can_run() {
                    continue;
                }
            }
            if k.m.cpu.left <= k.reserve {
                // The chain does not come back.
                k.finish();
                break;
            }
            k.execute();
        }
    }
    if k.m.tia.stop != 0 {
        k.m.cpu.left = 0;
    }
}

/// Rounds of `LDA INTIM; BNE` (or BPL) at `now` that may be left out, of `most`.
#[inline(never)]
fn waiting_rounds(k: &Context, now: u32, period: u32, until_zero: bool, most: u32) -> u32 {
    riot::waiting_reads(&k.m.riot, now.wrapping_add(4), period, until_zero).min(most)
}

/// A loop that waits for the timer: `B` is the number of the function of its read, `Z` says that it ends at zero.
///
/// # Safety
/// As all of the chain.
pub(crate) unsafe fn poll<const S: bool, const B: usize, const Z: bool>(
    k: &mut Context,
    ip: *const u64,
    xy: u32,
    a: u32,
    cn: u64,
    f: u32,
) {
    // SAFETY: `Code` puts this function only where a branch record follows the three bytes of the read.
    unsafe {
        let left = cn as u32 & 0xFFFF;
        // Cycles of the read, the branch and its being taken.
        let period = 4 + 2 + (*ip.add(3) as u32 >> 8 & 0xFF);
        let mut cn = cn;
        if left > 6000 {
            let rounds = waiting_rounds(k, (cn >> 16) as u32, period, Z, (left - 5000) / 2);
            cn = cn + (u64::from(rounds * period) << 16) - u64::from(2 * rounds);
        }
        handlers::HANDLERS::<S>::TABLE[B](k, ip, xy, a, cn, f)
    }
}

/// A loop that counts X (`SHIFT` = 0) or Y (8) down to zero (`Z`) or below; `B` is the number of the function of DEX or DEY.
///
/// # Safety
/// As all of the chain.
pub(crate) unsafe fn count<const S: bool, const B: usize, const SHIFT: u32, const Z: bool>(
    k: &mut Context,
    ip: *const u64,
    xy: u32,
    a: u32,
    cn: u64,
    f: u32,
) {
    // SAFETY: `Code` puts this function only where a branch record follows the byte of the count.
    unsafe {
        let left = cn as u32 & 0xFFFF;
        let period = 2 + 2 + (*ip.add(1) as u32 >> 8 & 0xFF);
        let start = xy >> SHIFT & 0xFF;
        let last = u32::from(Z);
        let rounds = if Z || start < 0x80 { start.wrapping_sub(last) & 0xFF } else { 0 };
        let (mut xy, mut cn) = (xy, cn);
        if rounds != 0 && left > 2 * rounds + 5000 {
            cn = cn + (u64::from(rounds * period) << 16) - u64::from(2 * rounds);
            xy = xy & !(0xFF << SHIFT) | last << SHIFT;
        }
        handlers::HANDLERS::<S>::TABLE[B](k, ip, xy, a, cn, f)
    }
}

const _: () = assert!(size_of::<Handler>() == 8, "a record holds the address of a function in 48 bits");
