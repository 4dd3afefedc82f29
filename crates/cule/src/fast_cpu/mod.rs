//! The fast CPU: predecoded records, and one function per opcode and operand class. The functions form a
//! chain of tail calls.
//!
//! A *record* is sixteen bytes per ROM address: the address of a function and its operand. A function executes
//! its instruction, reads the next record and calls the function of that record in tail position with the
//! same six arguments, all in registers; the compiler makes this call a jump. Rare cases (devices, hotspots,
//! decimal mode, code outside ROM and RAM) take the slow path: the plain interpreter of `machine::cpu` executes
//! this one instruction. Iterations of waiting loops are skipped if their end is known. On some systems most instructions
//! are compiled to machine code, in functions of the same form (`compiled`).
//!
//! The functions are generated (`handlers`); this module contains the code that they use. Rust does not
//! guarantee that tail calls become jumps: without optimization the chain ends at every taken jump (`check`
//! in the generator), and `tests/fast_cpu.rs` runs frames on a small stack. Cartridges that respond to
//! addresses below $1000 or have windows of RAM are run by the plain interpreter only. Instructions in the
//! console's RAM are decoded each time that they are executed (`ram_code`).

#![allow(
    unsafe_code,
    reason = "the speed of this interpreter depends on function addresses in records and on unchecked indices"
)]

/// Defines a function of the chain, with the arguments that all of them have; see [`Handler`]. Its generic parameters are in
/// square brackets. On x86-64 they have the System V calling convention everywhere: compiled code uses it, and Windows' own
/// passes two of the arguments on the stack, where a call cannot become a jump.
macro_rules! chain {
    (
        $(#[$attribute:meta])*
        $visibility:vis unsafe fn $name:ident[$($generic:tt)*](
            $k:ident, $ip:ident, $xy:ident, $a:ident, $cn:ident, $f:ident
        ) $body:block
    ) => {
        #[cfg(not(target_arch = "x86_64"))]
        $(#[$attribute])*
        $visibility unsafe fn $name<$($generic)*>(
            $k: &mut Context, $ip: *const Record, $xy: u32, $a: u32, $cn: u64, $f: u32
        ) $body
        #[cfg(target_arch = "x86_64")]
        $(#[$attribute])*
        #[allow(improper_ctypes_definitions)]
        $visibility unsafe extern "sysv64-unwind" fn $name<$($generic)*>(
            $k: &mut Context, $ip: *const Record, $xy: u32, $a: u32, $cn: u64, $f: u32
        ) $body
    };
}

mod cells;
mod code;
mod compiled;
mod dpc_display;
#[rustfmt::skip]
pub mod handlers;
mod latches;
mod masks;
mod pixels;
mod ram_code;
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
#[cfg(not(target_arch = "x86_64"))]
pub type Handler = unsafe fn(&mut Context, *const Record, u32, u32, u64, u32);
/// As above, with the calling convention that `chain` gives the functions.
#[cfg(target_arch = "x86_64")]
pub type Handler = unsafe extern "sysv64-unwind" fn(&mut Context, *const Record, u32, u32, u64, u32);

/// Minimum of the chain's instruction counter when a jump is taken. The counter exceeds the true number of
/// remaining instructions by `RESERVE` minus `Code::reserve`: more instructions must remain than there are up
/// to the next jump, and that number depends on the image.
pub const RESERVE: u16 = 4500;
/// Not a value of a register: a write must be executed.
const UNKNOWN: u16 = 0x100;

/// State that the functions of the chain share.
pub struct Context {
    /// The machine, while the chain runs; its registers and time are arguments.
    pub m: Machine,
    /// For each TIA register, a value whose write changes nothing.
    pub shadow: [u16; 64],
    /// Start of the mapped bank (`S` = false).
    window: *const u8,
    window_records: *const Record,
    /// The image and its records.
    rom: *const u8,
    records: *const Record,
    board: *mut Board,
    image: *const [u8],
    /// Minimum number of remaining instructions at a taken jump.
    reserve: u32,
    /// The records are those for drawing access by access (see `watch`).
    watching: bool,
    /// The chain executes instructions in RAM: no bank is switched by an access to it or by PC.
    runs_ram: bool,
    /// Records of instructions in RAM, none before the first (see `ram_code`).
    ram_records: Vec<Record>,
    /// High bits of PC (`S` = false), or PC minus the index of its record (`S` = true).
    pc_base: u32,
    /// First address of plain ROM.
    pub plain_low: u32,
    /// Number of addresses of plain ROM.
    pub plain_span: u32,
    /// First cycle at which a write exceeds the maximum number of lines, times 2^16.
    pub limit: u64,
    /// Cycle at which line 0 began.
    pub origin_cycles: u32,
    tia: FastTia,
    /// The TIA has changed since `update_board`: the plain interpreter's data on the board are out of date.
    board_outdated: bool,
    /// The cells of the board belong to another time, or to another machine.
    cells_outdated: bool,
    /// Clock of the last write that changed the TIA.
    tia_changed_at: i32,
    /// Writes to the TIA, recorded instead of executed.
    #[cfg(processor_alone)]
    writes: [u32; WRITES],
    #[cfg(processor_alone)]
    written: u32,
}

/// Capacity of the list of writes.
#[cfg(processor_alone)]
const WRITES: usize = 1024;

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Record {
    function: Handler,
    /// What the function needs of the bytes after the opcode: an immediate value, an address, an offset in the RAM
    /// (constant addresses and pointers in it), or the distance of a branch in bytes of records.
    operand: u32,
    /// Additional cycles of a taken branch, times 2^16.
    extra: u32,
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
            runs_ram: !code.is_segmented() && m.cart.claims == 0,
            ram_records: vec![],
            pc_base: 0,
            plain_low: 0x1000 + u32::from(m.cart.plain_low),
            plain_span: u32::from(m.cart.plain_high - m.cart.plain_low),
            limit: u64::from((m.tia.limit + 2) as u32 / 3) << 16,
            origin_cycles: (m.tia.origin / 3) as u32,
            tia: FastTia::new(&m.tia, m.draw != 0),
            board_outdated: false,
            cells_outdated: true,
            tia_changed_at: i32::MIN,
            #[cfg(processor_alone)]
            writes: [0; WRITES],
            #[cfg(processor_alone)]
            written: 0,
        };
        stores::fill_shadow(&mut k);
        k
    }

    /// Reads a byte of plain ROM.
    #[inline(always)]
    unsafe fn rom<const S: bool>(&self, at: u32) -> u32 {
        // SAFETY: segments are within the image, and `window` is a whole bank of it.
        unsafe {
            if S {
                let segment = self.m.cart.segment.get_unchecked((at >> 10 & 3 | at >> 11 & 4) as usize);
                u32::from(*self.rom.add(usize::from(*segment) * 1024 + (at & 0x3FF) as usize))
            } else {
                u32::from(*self.window.add((at & 0xFFF) as usize))
            }
        }
    }

    /// Two bytes of the RIOT's RAM, the low one first, which is not the last of the RAM.
    #[inline(always)]
    unsafe fn ram_word(&self, at: u32) -> u32 {
        debug_assert!(at < 0x7F);
        // SAFETY: both bytes are in the RAM.
        unsafe {
            let bytes = self.m.riot.ram.as_ptr().add(at as usize).cast::<[u8; 2]>().read();
            u32::from(u16::from_le_bytes(bytes))
        }
    }

    /// Writes two bytes as `ram_word` reads them.
    #[inline(always)]
    unsafe fn set_ram_word(&mut self, at: u32, value: u32) {
        debug_assert!(at < 0x7F);
        // SAFETY: both bytes are in the RAM.
        unsafe {
            let bytes = self.m.riot.ram.as_mut_ptr().add(at as usize).cast::<[u8; 2]>();
            bytes.write((value as u16).to_le_bytes());
        }
    }

    /// Returns the record of a ROM address.
    #[inline(always)]
    unsafe fn jump<const S: bool>(&mut self, to: u32) -> *const Record {
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

    /// PC of a record.
    #[inline(always)]
    fn pc<const S: bool>(&self, ip: *const Record) -> u32 {
        let base = if S { self.records } else { self.window_records };
        let place = (ip as usize).wrapping_sub(base as usize) / size_of::<Record>();
        (place as u32).wrapping_add(self.pc_base)
    }

    /// The status register P as pushed.
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

    /// Sets D and I from a pulled P. Returns result and carry; V is bit 6 of `p`.
    #[inline(always)]
    fn set_status(&mut self, p: u32) -> u32 {
        self.m.cpu.decimal = (p >> 3 & 1) as u8;
        self.m.cpu.interrupt = (p >> 2 & 1) as u8;
        (p & 0x80) << 8 | (p >> 1 & 1 ^ 1) | (p & 1) << 8
    }

    /// Advances the TIA to `clock`.
    #[inline(never)]
    fn advance_tia(&mut self, clock: i32) {
        // SAFETY: the board outlives the run (`run` borrows it).
        let board = unsafe { &mut *self.board };
        let _ = self.tia.catch_up::<false>(&mut self.m.tia, &mut board.picture, clock);
        self.board_outdated = true;
    }

    /// Reads a TIA register; equal to `tia::read`. The beam stays where it is if no collision can follow.
    #[inline(always)]
    fn tia_value(&mut self, address: u32, cycles: u32) -> u32 {
        let register = address & 15;
        if self.m.access_by_access != 0 || register >= 8 {
            if self.m.access_by_access != 0 {
                self.update_board();
            }
            // SAFETY: the board outlives the run (`run` borrows it).
            return machine::tia::read(&mut self.m, unsafe { &mut *self.board }, address, cycles);
        }
        if !self.tia.collisions_are_final(&self.m.tia) {
            self.advance_tia(machine::tia::clock_of(cycles));
        }
        (u32::from(self.m.tia.collisions) >> (2 * register) & 3) << 6 | self.m.bus & 0x3F
    }

    /// Updates the TIA for use by the plain interpreter, except for the cells of the board.
    #[inline(always)]
    fn update_tia(&mut self) {
        if self.board_outdated {
            self.board_outdated = false;
            self.cells_outdated = true;
            self.m.tia.dirty = machine::tia::ALL_OBJECTS;
            self.m.tia.collisions_final = 0;
            machine::tia::write::invalidate_may_collide(&mut self.m.tia);
        }
    }

    /// Updates TIA and board for use by the plain interpreter.
    #[inline(never)]
    fn update_board(&mut self) {
        self.update_tia();
        if self.cells_outdated {
            self.cells_outdated = false;
            // SAFETY: the board outlives the run (`run` borrows it).
            machine::tia::objects::refresh_cells(&self.m.tia, unsafe { &mut *self.board });
        }
    }

    /// True if the instruction at PC may read or write the TIA.
    fn may_access_tia(&self) -> bool {
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
            // The stack, pointers, and the remaining modes.
            Mode::Imp | Mode::Abs => !(0x84..0xFC).contains(&cpu.s),
            _ => true,
        }
    }

    /// Reads a TIA register. The last byte of the instruction is on the bus.
    #[inline(never)]
    unsafe fn read_tia(&mut self, address: u32, absolute: bool, cycles: u32) -> u32 {
        self.m.bus = if absolute { address >> 8 } else { address };
        self.tia_value(address, cycles)
    }

    /// Reads a device at `address`, with `bus` on the data bus, if this needs no function call: a paddle or trigger,
    /// or display data of a DPC cartridge. Otherwise returns 0x100. Equal to `load_device`.
    #[inline(always)]
    fn load_simple_device(&mut self, address: u32, bus: u32, cycles: u32) -> u32 {
        if address & 0x1088 == 0x0008 {
            self.m.bus = bus;
            let driven = match address & 7 {
                pot @ 0..4 => machine::tia::read_pot(&self.m, pot as usize, cycles),
                4 => u32::from(self.m.input.trigger[0]),
                5 => u32::from(self.m.input.trigger[1]),
                _ => 0,
            };
            return driven | bus & 0x3F;
        }
        let offset = address & 0xFFF;
        if self.m.cart.kind == cart::KIND_DPC && address & 0x1000 != 0 && offset < 0x40 {
            return self.read_display(offset);
        }
        0x100
    }

    /// Reads display data of a DPC cartridge at an offset below $40. Returns 0x100 if it is the music.
    #[inline(always)]
    fn read_display(&mut self, offset: u32) -> u32 {
        // SAFETY: the image outlives the run (`run` borrows the code).
        dpc_display::read(&mut self.m.cart, unsafe { &*self.image }, offset)
    }

    /// Reads a DPC cartridge at an offset below $40.
    #[inline(never)]
    fn read_fetcher(&mut self, offset: u32, cycles: u32) -> u32 {
        // SAFETY: as above.
        dpc::read(&mut self.m.cart, unsafe { &*self.image }, offset, cycles)
    }

    /// Reads a device at `address`, with `bus` on the data bus. Returns 0x100 if the slow path must execute
    /// the read, since banks could switch.
    #[inline(never)]
    fn load_device(&mut self, address: u32, bus: u32, cycles: u32) -> u32 {
        if address & 0x1080 == 0 {
            self.m.bus = bus;
            return self.tia_value(address, cycles);
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

    /// Writes to a device at `address`. Returns false if the slow path must execute the write.
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

    /// As `pull_tia`, or 0x100, as `load_simple_device`.
    #[inline(always)]
    fn pull_simple_device(&mut self, s: u32, cycles: u32) -> u32 {
        let before = s.wrapping_sub(1) & 0xFF;
        let bus = if before & 0x80 != 0 {
            u32::from(self.m.riot.ram[(before & 0x7F) as usize])
        } else {
            self.load_simple_device(before, 0x68, cycles)
        };
        if bus > 0xFF { bus } else { self.load_simple_device(s, bus, cycles) }
    }

    /// Pulls a byte while the stack pointer is in the TIA. The value of the dummy read stays on the bus.
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

    /// Packs the machine's registers into arguments of the chain.
    #[inline(always)]
    fn registers(&self) -> (u32, u32, u64, u32) {
        let cpu = &self.m.cpu;
        let xy = u32::from(cpu.x) | u32::from(cpu.y) << 8 | u32::from(cpu.overflow) << 16;
        let cn = u64::from(cpu.cycles) << 16 | u64::from(cpu.left + u32::from(RESERVE) - self.reserve);
        (xy, u32::from(cpu.a), cn, cpu.result & 0x80FF | u32::from(cpu.carry) << 8)
    }

    /// Unpacks arguments of the chain into the machine's registers, except PC.
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

    /// True if the chain can continue at PC.
    #[inline(always)]
    fn can_run(&self) -> bool {
        self.m.cpu.left > self.reserve
            && (self.m.cpu.pc & 0x1000 != 0 || self.can_run_ram())
            && (self.m.access_by_access != 0) == self.watching
            && self.m.tia.stop == 0
    }

    /// True if PC is in RAM and the chain can continue there.
    fn can_run_ram(&self) -> bool {
        self.runs_ram && !self.watching && ram_code::ADDRESSES.contains(&u32::from(self.m.cpu.pc))
    }

    /// Maps the bank that the cartridge has selected. Returns the record of PC.
    #[inline(always)]
    unsafe fn enter<const S: bool>(&mut self) -> *const Record {
        if !S {
            let block = usize::from(self.m.cart.segment[0]) * 1024;
            // SAFETY: the image contains a whole bank from every possible first segment on.
            unsafe {
                self.window = self.rom.add(block);
                self.window_records = self.records.add(block);
            }
        }
        let pc = u32::from(self.m.cpu.pc);
        if pc & 0x1000 == 0 {
            return self.ram_record(pc);
        }
        // SAFETY: `can_run` has checked that PC is in the ROM window or in RAM.
        unsafe { self.jump::<S>(pc) }
    }

    /// Switches to the records for drawing access by access.
    #[cold]
    fn start_watching(&mut self, code: &Code) {
        self.update_board();
        self.watching = true;
        self.records = code.watching_records().as_ptr();
        self.window_records = self.records;
    }

    /// Runs the remaining instructions with the plain interpreter.
    unsafe fn finish(&mut self) {
        self.finish_picture();
        self.update_board();
        let left = self.m.cpu.left;
        // SAFETY: board and image outlive the run (`run` borrows them).
        let (board, image) = unsafe { (&mut *self.board, &*self.image) };
        cpu::run(&mut self.m, board, image, left);
    }

    /// Moves the beam to the end of the picture if the TIA was changed after that.
    fn finish_picture(&mut self) {
        let end = self.m.tia.window_end;
        if self.m.access_by_access == 0 && self.tia_changed_at >= end {
            self.advance_tia(end);
        }
    }

    /// Executes one instruction with the plain interpreter, on the machine's registers.
    unsafe fn execute(&mut self) {
        let meets = self.m.access_by_access == 0 && self.may_access_tia();
        if meets {
            self.update_board();
        }
        let mut cpu: Cpu = self.m.cpu;
        cpu.left = cpu.left.wrapping_sub(1);
        // SAFETY: board and image outlive the run (`run` borrows them).
        let (board, image) = unsafe { (&mut *self.board, &*self.image) };
        let opcode = cpu::execute(&mut self.m, &mut cpu, board, image);
        self.m.cpu = cpu;
        if meets && self.m.access_by_access == 0 {
            self.tia.invalidate(&self.m.tia);
            if instructions::writes(opcode as usize) {
                stores::fill_shadow(self);
            }
        }
    }
}

chain! {
    /// Ends the chain before the instruction at `ip`.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`).
    #[cold]
    #[inline(never)]
    unsafe fn leave[const S: bool](k, ip, xy, a, cn, f) {
        k.m.cpu.pc = k.pc::<S>(ip) as u16;
        k.store_registers(xy, a, cn, f);
    }
}

chain! {
    /// Executes the instruction at `ip` with the plain interpreter, and continues the chain if possible.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`).
    #[cold]
    #[inline(never)]
    unsafe fn slow[const S: bool](k, ip, xy, a, cn, f) {
        k.m.cpu.pc = k.pc::<S>(ip) as u16;
        k.store_registers(xy, a, cn, f);
        // SAFETY: guaranteed by the caller.
        unsafe {
            k.execute();
            if !k.can_run() || cfg!(debug_assertions) {
                return;
            }
            let ip = k.enter::<S>();
            let (xy, a, cn, f) = k.registers();
            ((*ip).function)(k, ip, xy, a, cn, f)
        }
    }
}

/// Runs until `budget` instructions are executed or a chip requests the end of the frame. Equal to
/// `cpu::run`, except that the cells of the board need not be up to date, before and after.
pub fn run(m: &mut Machine, board: &mut Board, code: &Code, budget: u32) {
    if !code.has_records() {
        machine::tia::objects::refresh_cells(&m.tia, board);
        cpu::run(m, board, code.image(), budget);
        return;
    }
    let mut k = Context::new(m, board, code);
    k.m.cpu.left = if m.cpu.jammed != 0 { 0 } else { budget };
    // SAFETY: `k` was created for this code; board and code are borrowed until the end of this function.
    unsafe { if code.is_segmented() { drive::<true>(&mut k, code) } else { drive::<false>(&mut k, code) } }
    k.update_tia();
    *m = k.m;
}

/// True if the beam has passed the last row: no access draws anything before the next frame.
pub fn is_complete(m: &Machine) -> bool {
    m.tia.beam >= m.tia.window_end - m.tia.base
}

/// Runs one step of the machine. Equal to `machine::step`.
pub fn step(m: &mut Machine, board: &mut Board, code: &Code) {
    let begins_open = m.unfinished != 0;
    machine::begin_step_of_machine(m);
    if m.draw != 0 && begins_open && !is_complete(m) {
        // The frame will probably not end in this step either.
        m.access_by_access = 1;
        run(m, board, code, INSTRUCTIONS_PER_STEP);
    } else if m.draw != 0 {
        let start = *m;
        run(m, board, code, INSTRUCTIONS_PER_STEP);
        if m.tia.stop == 0 && m.access_by_access == 0 && !is_complete(m) {
            // The visible part of an unfinished frame depends on every access.
            *m = start;
            m.access_by_access = 1;
            run(m, board, code, INSTRUCTIONS_PER_STEP);
        }
    } else {
        run(m, board, code, INSTRUCTIONS_PER_STEP);
    }
    machine::end_step(m, board);
}

/// Alternates between the chain and single instructions until the frame or the budget ends.
unsafe fn drive<const S: bool>(k: &mut Context, code: &Code) {
    // SAFETY: `run`, the only caller, fulfills the conditions of the chain.
    unsafe {
        while k.m.cpu.left != 0 && k.m.tia.stop == 0 {
            if k.m.access_by_access != 0 && !k.watching {
                k.start_watching(code);
            }
            if k.can_run() {
                let ip = k.enter::<S>();
                let (xy, a, cn, f) = k.registers();
                ((*ip).function)(k, ip, xy, a, cn, f);
                if k.m.cpu.left == 0 || k.m.tia.stop != 0 {
                    break;
                }
                if k.can_run() {
                    continue;
                }
            }
            if k.m.cpu.left <= k.reserve {
                // Too few instructions remain for the chain.
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

/// Number of iterations of `LDA INTIM; BNE` (or BPL) at `now` that can be skipped, at most `most`.
#[inline(never)]
fn waiting_rounds(k: &Context, now: u32, period: u32, until_zero: bool, most: u32) -> u32 {
    riot::waiting_reads(&k.m.riot, now.wrapping_add(4), period, until_zero).min(most)
}

chain! {
    /// A loop that waits for the timer. `B` is the index of the function of its read; `Z`: the loop ends at zero.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`).
    pub(crate) unsafe fn poll[const S: bool, const B: usize, const Z: bool](k, ip, xy, a, cn, f) {
        // SAFETY: `Code` uses this function only if a branch record follows the three bytes of the read.
        unsafe {
            let left = cn as u32 & 0xFFFF;
            // Cycles of the read, the branch, and the taken branch's penalty.
            let period = 4 + 2 + ((*ip.add(3)).extra >> 16);
            let mut cn = cn;
            if left > 6000 {
                let rounds = waiting_rounds(k, (cn >> 16) as u32, period, Z, (left - 5000) / 2);
                cn = cn + (u64::from(rounds * period) << 16) - u64::from(2 * rounds);
            }
            handlers::HANDLERS::<S>::TABLE[B](k, ip, xy, a, cn, f)
        }
    }
}

chain! {
    /// A loop that decrements X (`SHIFT` = 0) or Y (8) until it is zero (`Z`) or negative. `B` is the index of
    /// the function of DEX or DEY.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`).
    pub(crate) unsafe fn count[const S: bool, const B: usize, const SHIFT: u32, const Z: bool](k, ip, xy, a, cn, f) {
        // SAFETY: `Code` uses this function only if a branch record follows the byte of the decrement.
        unsafe {
            let left = cn as u32 & 0xFFFF;
            let period = 2 + 2 + ((*ip.add(1)).extra >> 16);
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
}

const _: () = assert!(size_of::<Record>() == 16, "the position of a record is found with a shift");
