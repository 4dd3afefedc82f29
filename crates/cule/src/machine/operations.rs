//! Building blocks of the 6507's instructions: fetching, indexing, the stack, decimal arithmetic. The
//! generated interpreters (`cpu.rs`, `compact.rs`) call them.
//!
//! Device subset.

use bytemuck::{Pod, Zeroable};

use super::bus::{read, write};
use super::{Board, Machine, cart};

/// Registers and time. Registers hold plain numbers, flags are 0 or 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Cpu {
    /// CPU cycles since the frame began.
    pub cycles: u32,
    /// Instructions left in this step; 0 stops the run loop.
    pub left: u32,
    /// The last result: zero when bits 7-0 are zero, negative when bit 7 or 15 is set.
    pub result: u32,
    /// Program counter, 16 bits.
    pub pc: u16,
    /// Accumulator.
    pub a: u8,
    /// Index register X.
    pub x: u8,
    /// Index register Y.
    pub y: u8,
    /// Stack pointer.
    pub s: u8,
    /// C.
    pub carry: u8,
    /// V.
    pub overflow: u8,
    /// D.
    pub decimal: u8,
    /// I.
    pub interrupt: u8,
    /// An undefined opcode has stopped the processor.
    pub jammed: u8,
    /// Keeps the size a multiple of four.
    pub unused: u8,
}

/// Returns the registers before the first console reset.
pub fn new() -> Cpu {
    Cpu {
        cycles: 0,
        left: 0,
        result: 1,
        pc: 0,
        a: 0,
        x: 0,
        y: 0,
        s: 0xFF,
        carry: 0,
        overflow: 0,
        decimal: 0,
        interrupt: 0,
        jammed: 0,
        unused: 0,
    }
}

/// Resets the processor: clears the registers and loads PC from $FFFC. The cycle counter is kept.
pub fn reset(m: &mut Machine, board: &mut Board, rom: &[u8]) {
    let mut cpu: Cpu = new();
    cpu.cycles = m.cpu.cycles;
    let low: u32 = read(m, &mut cpu, board, rom, 0xFFFC);
    let high: u32 = read(m, &mut cpu, board, rom, 0xFFFD);
    cpu.pc = (low | high << 8) as u16;
    m.cpu = cpu;
}

/// Fetches the byte at PC and increments PC.
pub fn fetch(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) -> u32 {
    let at: u32 = cpu.pc as u32;
    cpu.pc = cpu.pc.wrapping_add(1);
    if at & 0x1080 == 0 {
        // Code in the TIA's registers reads collisions directly after writes whose effect is delayed: no draw
        // may be deferred.
        m.access_by_access = 1;
    }
    if at & 0x1000 != 0 && cart::is_plain(&m.cart, at & 0xFFF) {
        m.bus = cart::read_segment(&m.cart, rom, at);
        return m.bus;
    }
    read(m, cpu, board, rom, at)
}

/// Fetches two bytes at PC, low byte first.
pub fn fetch_word(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) -> u32 {
    let low: u32 = fetch(m, cpu, board, rom);
    let high: u32 = fetch(m, cpu, board, rom);
    low | high << 8
}

/// Returns `base + index`. `reads`: an address on another page costs one extra cycle.
pub fn index(cpu: &mut Cpu, base: u32, index: u8, reads: bool) -> u32 {
    let address: u32 = (base + index as u32) & 0xFFFF;
    if reads && (base ^ address) & 0xFF00 != 0 {
        cpu.cycles = cpu.cycles.wrapping_add(1);
    }
    address
}

/// Reads the pointer at `at` in page zero. At $FF its high byte comes from $0100.
pub fn pointer(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8], at: u32) -> u32 {
    let low: u32 = read(m, cpu, board, rom, at);
    let high: u32 = read(m, cpu, board, rom, at + 1);
    low | high << 8
}

/// Returns the status register P as pushed, with bits 5 and 4 set.
pub fn status(cpu: &Cpu) -> u32 {
    let mut p: u32 = 0x30 | (cpu.overflow as u32) << 6;
    p |= (cpu.decimal as u32) << 3 | (cpu.interrupt as u32) << 2 | cpu.carry as u32;
    if cpu.result & 0x8080 != 0 {
        p |= 0x80;
    }
    if cpu.result & 0xFF == 0 {
        p |= 0x02;
    }
    p
}

/// Sets the flags from a pulled status register P.
pub fn set_status(cpu: &mut Cpu, p: u32) {
    cpu.overflow = (p >> 6 & 1) as u8;
    cpu.decimal = (p >> 3 & 1) as u8;
    cpu.interrupt = (p >> 2 & 1) as u8;
    cpu.carry = (p & 1) as u8;
    cpu.result = (p & 0x80) << 8 | (p >> 1 & 1 ^ 1);
}

/// Pushes a byte.
pub fn push(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, value: u32, after_write: bool) {
    let at: u32 = 0x100 | cpu.s as u32;
    cpu.s = cpu.s.wrapping_sub(1);
    write(m, cpu, board, at, value, after_write);
}

/// The dummy read at S with which JSR and all pulls start.
pub fn peek(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) {
    let at: u32 = 0x100 | cpu.s as u32;
    read(m, cpu, board, rom, at);
}

/// Pulls a byte.
pub fn pull(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) -> u32 {
    cpu.s = cpu.s.wrapping_add(1);
    let at: u32 = 0x100 | cpu.s as u32;
    read(m, cpu, board, rom, at)
}

/// Takes a branch: one extra cycle, two if the target is on another page. PC is the address after the branch.
pub fn branch(cpu: &mut Cpu, distance: u32) {
    let target: u16 = cpu.pc.wrapping_add(distance as u8 as i8 as u16);
    let mut cycles: u32 = 1;
    if (target ^ cpu.pc) & 0xFF00 != 0 {
        cycles = 2;
    }
    cpu.cycles = cpu.cycles.wrapping_add(cycles);
    cpu.pc = target;
}

/// BRK, after the opcode fetch.
pub fn brk(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) {
    fetch(m, cpu, board, rom);
    let pc: u32 = cpu.pc as u32;
    push(m, cpu, board, pc >> 8, false);
    push(m, cpu, board, pc & 0xFF, true);
    let p: u32 = status(cpu);
    push(m, cpu, board, p, true);
    cpu.interrupt = 1;
    let low: u32 = read(m, cpu, board, rom, 0xFFFE);
    let high: u32 = read(m, cpu, board, rom, 0xFFFF);
    cpu.pc = (low | high << 8) as u16;
}

/// JSR: the high byte of the target is fetched last.
pub fn jsr(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) {
    let low: u32 = fetch(m, cpu, board, rom);
    peek(m, cpu, board, rom);
    let pc: u32 = cpu.pc as u32;
    push(m, cpu, board, pc >> 8, false);
    push(m, cpu, board, pc & 0xFF, true);
    let high: u32 = fetch(m, cpu, board, rom);
    cpu.pc = (low | high << 8) as u16;
}

/// RTS.
pub fn rts(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) {
    peek(m, cpu, board, rom);
    let low: u32 = pull(m, cpu, board, rom);
    let high: u32 = pull(m, cpu, board, rom);
    cpu.pc = (low | high << 8) as u16;
    fetch(m, cpu, board, rom);
}

/// RTI.
pub fn rti(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) {
    peek(m, cpu, board, rom);
    let p: u32 = pull(m, cpu, board, rom);
    set_status(cpu, p);
    let low: u32 = pull(m, cpu, board, rom);
    let high: u32 = pull(m, cpu, board, rom);
    cpu.pc = (low | high << 8) as u16;
}

/// JMP through the pointer at `at`. The pointer's high byte is read from the same page.
pub fn jump_indirect(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8], at: u32) {
    let low: u32 = read(m, cpu, board, rom, at);
    let next: u32 = at & 0xFF00 | (at + 1) & 0xFF;
    let high: u32 = read(m, cpu, board, rom, next);
    cpu.pc = (low | high << 8) as u16;
}

/// Value of two decimal digits, as ale-py computes it: 0 to 165.
fn binary(x: u32) -> u32 {
    10 * (x >> 4) + (x & 15)
}

/// Packs a number into two decimal digits; hundreds are dropped.
fn packed(t: u32) -> u32 {
    (t % 100 / 10) << 4 | t % 10
}

/// The overflow flag of decimal arithmetic.
fn decimal_overflow(a: u32, result: u32, operand: u32) -> u8 {
    (((a ^ result) & (result ^ operand)) >> 7 & 1) as u8
}

/// ADC in decimal mode.
pub fn add_decimal(cpu: &mut Cpu, operand: u32) {
    let a: u32 = cpu.a as u32;
    let t: u32 = binary(a) + binary(operand) + cpu.carry as u32;
    let result: u32 = packed(t & 0xFF);
    cpu.carry = (t > 99) as u8;
    cpu.overflow = decimal_overflow(a, result, operand);
    cpu.a = result as u8;
    cpu.result = result;
}

/// SBC in decimal mode.
pub fn subtract_decimal(cpu: &mut Cpu, operand: u32) {
    let a: u32 = cpu.a as u32;
    let borrow: u32 = 1 - cpu.carry as u32;
    let mut t: i32 = binary(a) as i32 - binary(operand) as i32 - borrow as i32;
    if t < 0 {
        t += 100;
    }
    let mut result: u32 = 0;
    if t >= 0 {
        result = packed(t as u32);
    } else {
        result = binary((256 + t) as u32 & 0xFF) & 0xFF;
    }
    cpu.carry = (a >= operand + borrow) as u8;
    cpu.overflow = decimal_overflow(a, result, operand);
    cpu.a = result as u8;
    cpu.result = result;
}

/// ARR.
pub fn arr(cpu: &mut Cpu, operand: u32) {
    let w: u32 = cpu.a as u32 & operand;
    let r: u32 = w >> 1 | (cpu.carry as u32) << 7;
    cpu.result = r;
    if cpu.decimal == 0 {
        cpu.a = r as u8;
        cpu.carry = (r >> 6 & 1) as u8;
        cpu.overflow = ((r >> 6 ^ r >> 5) & 1) as u8;
        return;
    }
    // N is the old carry, which is also bit 7 of r.
    cpu.overflow = ((w ^ r) >> 6 & 1) as u8;
    let mut a: u32 = r;
    if (w & 15) + (w & 1) > 5 {
        a = a & 0xF0 | (a + 6) & 15;
    }
    cpu.carry = 0;
    if (w & 0xF0) + (w & 0x10) > 0x50 {
        cpu.carry = 1;
        a += 0x60;
    }
    cpu.a = a as u8;
}
