//! The predicated interpreter: all lanes execute the same few micro-steps, whatever their instruction. A row
//! of 16 bytes per opcode (`micro.rs`, GENERATED) and one formula (`datapath.rs`) determine the effect of the
//! steps.
//!
//! Device subset. Lanes can run together at different program counters. When a lane reads or writes a chip,
//! or has an instruction without a row (executed by `compact`), the other lanes wait.

use super::bus::{self, read};
use super::datapath::{self, Outcome};
use super::operations::{self, Cpu};
use super::{Board, Machine, compact, micro};

/// Registers of a lane while the interpreter runs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Lane {
    /// A, X, Y and S, with A in the lowest byte.
    pub registers: u32,
    /// As in `Cpu`.
    pub result: u32,
    /// C.
    pub carry: u32,
    /// V.
    pub overflow: u32,
    /// D.
    pub decimal: u32,
    /// As in `Cpu`.
    pub cycles: u32,
    /// Instructions left.
    pub left: u32,
    /// Program counter.
    pub pc: u32,
    /// Last byte on the data bus.
    pub bus: u32,
}

/// A time and the remaining instruction budget.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Time {
    /// As in `Cpu`.
    pub cycles: u32,
    /// Instructions left.
    pub left: u32,
}

/// Loads the registers of a machine.
pub fn begin(m: &Machine, budget: u32) -> Lane {
    let c: Cpu = m.cpu;
    Lane {
        registers: c.a as u32 | (c.x as u32) << 8 | (c.y as u32) << 16 | (c.s as u32) << 24,
        result: c.result,
        carry: c.carry as u32,
        overflow: c.overflow as u32,
        decimal: c.decimal as u32,
        cycles: c.cycles,
        left: if c.jammed != 0 { 0 } else { budget },
        pc: c.pc as u32,
        bus: m.bus,
    }
}

/// Stores the registers back into the machine.
pub fn end(m: &mut Machine, lane: &Lane) {
    m.bus = lane.bus;
    m.cpu.a = lane.registers as u8;
    m.cpu.x = (lane.registers >> 8) as u8;
    m.cpu.y = (lane.registers >> 16) as u8;
    m.cpu.s = (lane.registers >> 24) as u8;
    m.cpu.result = lane.result;
    m.cpu.carry = lane.carry as u8;
    m.cpu.overflow = lane.overflow as u8;
    m.cpu.decimal = lane.decimal as u8;
    m.cpu.cycles = lane.cycles;
    m.cpu.left = lane.left;
    m.cpu.pc = lane.pc as u16;
}

/// Executes one instruction with `compact`: it has no row, or its bytes or pointer are not in plain memory.
#[inline(never)]
fn execute_with_compact(m: &mut Machine, given: Lane, board: &mut Board, rom: &[u8]) -> Lane {
    end(m, &given);
    let mut cpu: Cpu = m.cpu;
    compact::execute(m, &mut cpu, board, rom);
    m.cpu = cpu;
    begin(m, cpu.left)
}

/// Returns a processor of which only the time fields are valid.
fn clock(cycles: u32, left: u32) -> Cpu {
    let mut cpu: Cpu = operations::new();
    cpu.cycles = cycles;
    cpu.left = left;
    cpu
}

/// Reads an address that is neither RAM nor plain ROM.
#[inline(never)]
fn read_device(m: &mut Machine, board: &mut Board, rom: &[u8], address: u32, cycles: u32) -> u32 {
    let mut cpu: Cpu = clock(cycles, 0);
    read(m, &mut cpu, board, rom, address)
}

/// Writes to an address outside RAM.
#[inline(never)]
fn write_device(m: &mut Machine, board: &mut Board, address: u32, value: u32, time: Time) -> Time {
    let mut cpu: Cpu = clock(time.cycles, time.left);
    bus::write(m, &mut cpu, board, address, value, false);
    Time { cycles: cpu.cycles, left: cpu.left }
}

/// The status register P as pushed.
fn status(m: &Machine, lane: &Lane) -> u32 {
    let mut cpu: Cpu = m.cpu;
    cpu.result = lane.result;
    cpu.carry = lane.carry as u8;
    cpu.overflow = lane.overflow as u8;
    cpu.decimal = lane.decimal as u8;
    operations::status(&cpu)
}

/// True for an address of the console's RAM.
#[inline(always)]
fn is_ram(address: u32) -> bool {
    address & 0x1280 == 0x80
}

/// True for an address of plain ROM.
#[inline(always)]
fn is_plain(m: &Machine, address: u32) -> bool {
    let at: u32 = address & 0xFFF;
    address & 0x1000 != 0 && at >= m.cart.plain_low as u32 && at < m.cart.plain_high as u32
}

/// Offset in the ROM of an address in the cartridge window.
#[inline(always)]
fn place(m: &Machine, address: u32) -> u32 {
    let segment: u32 = address >> 10 & 3 | address >> 11 & 4;
    (m.cart.segment[segment as usize] as u32) << 10 | address & 0x3FF
}

/// Executes one instruction. Returns true if `compact` executed it.
#[inline(always)]
pub fn step(m: &mut Machine, lane: &mut Lane, board: &mut Board, rom: &[u8]) -> bool {
    lane.left -= 1;
    // The opcode and the two bytes after it, which must be in the same KiB.
    let pc: u32 = lane.pc;
    let inside: bool = is_plain(m, pc) && is_plain(m, pc + 2) && pc & 0x3FF < 0x3FE;
    let at: u32 = if inside { place(m, pc) } else { 0 };
    let opcode: u32 = rom[at as usize] as u32;
    let byte: u32 = rom[at as usize + 1] as u32;
    let access: u64 = micro::ROWS[opcode as usize][0];
    let bytes: u32 = (access >> datapath::BYTES) as u32 & 3;
    let high: u32 = if bytes == 3 { rom[at as usize + 2] as u32 } else { 0 };

    // The address.
    let mut base: u32 = byte | high << 8;
    if access & datapath::STACK != 0 {
        base = 0x100 + (access & datapath::PULLS != 0) as u32;
    }
    let s: u32 = lane.registers >> 24;
    let index: u32 = datapath::byte_of(lane.registers, 0, (access >> datapath::INDEX) as u32 & 63);
    let mut address: u32 = (base + index) & (access >> datapath::MASK) as u32 & 0xFFFF;
    let mut slow: bool = !inside || access & datapath::SLOW != 0;
    slow |= access & datapath::DECIMAL != 0 && lane.decimal != 0;
    // The bytes that pulls and calls read at the stack pointer and discard must be in RAM too.
    let lowest: u32 = 0x80 + (access & datapath::CALLS != 0) as u32;
    slow |= access & (datapath::PULLS | datapath::CALLS) != 0 && (s < lowest || !is_ram(address));
    let mut bus: u32 = if bytes == 1 {
        opcode
    } else if bytes == 2 {
        byte
    } else {
        high
    };
    if access & datapath::POINTER != 0 {
        slow |= !is_ram(address) || !is_ram(address + 1);
        bus = m.riot.ram[(address + 1 & 0x7F) as usize] as u32;
        base = m.riot.ram[(address & 0x7F) as usize] as u32 | bus << 8;
        let by: u32 = if access & datapath::BY_Y != 0 { lane.registers >> 16 & 0xFF } else { 0 };
        address = base + by & 0xFFFF;
    }
    let ram: bool = is_ram(address);
    let plain: bool = is_plain(m, address);
    slow |= access & datapath::RETURNS != 0 && !plain;
    if slow {
        *lane = execute_with_compact(m, *lane, board, rom);
        return true;
    }
    lane.cycles = lane.cycles.wrapping_add(access as u32 & 15);
    if access & datapath::PENALTY != 0 && (base ^ address) & 0xFF00 != 0 {
        lane.cycles = lane.cycles.wrapping_add(1);
    }

    // The operand.
    let mut operand: u32 = byte;
    if access & datapath::READS != 0 {
        if ram {
            operand = m.riot.ram[(address & 0x7F) as usize] as u32;
        } else if plain {
            operand = rom[place(m, address) as usize] as u32;
        } else {
            m.bus = bus;
            operand = read_device(m, board, rom, address, lane.cycles);
        }
        bus = operand;
    }

    // The operation.
    let before: Outcome = Outcome {
        registers: lane.registers,
        result: lane.result,
        carry: lane.carry,
        overflow: lane.overflow,
        decimal: lane.decimal,
        value: 0,
    };
    let after: Outcome = datapath::operate(micro::ROWS[opcode as usize][1], before, operand);
    let moves: u32 = (access >> datapath::MOVES) as u32 & 0xFF;
    lane.registers = after.registers.wrapping_add(moves << 24);
    lane.result = after.result;
    lane.carry = after.carry;
    lane.overflow = after.overflow;
    lane.decimal = after.decimal;

    // The next program counter.
    let behind: u32 = pc + bytes & 0xFFFF;
    let mut next: u32 = behind;
    let flags: u32 = datapath::flags_of(before.result, before.carry, before.overflow);
    if access & datapath::BRANCH != 0 && datapath::is_met(access, flags) {
        next = behind.wrapping_add(byte as u8 as i8 as u32) & 0xFFFF;
        lane.cycles = lane.cycles.wrapping_add(1 + ((next ^ behind) & 0xFF00 != 0) as u32);
    }
    if access & datapath::JUMPS != 0 {
        next = address + (access & datapath::RETURNS != 0) as u32 & 0xFFFF;
    }
    if access & datapath::CALLS != 0 {
        let last: u32 = behind.wrapping_sub(1);
        m.riot.ram[(s & 0x7F) as usize] = (last >> 8) as u8;
        m.riot.ram[(s - 1 & 0x7F) as usize] = last as u8;
        next = byte | high << 8;
    }
    lane.pc = next;

    // The write.
    if access & datapath::WRITES != 0 {
        bus = if access & datapath::STATUS != 0 { status(m, lane) } else { after.value };
        if ram {
            m.riot.ram[(address & 0x7F) as usize] = bus as u8;
        } else {
            let time: Time = Time { cycles: lane.cycles, left: lane.left };
            let then: Time = write_device(m, board, address, bus, time);
            lane.cycles = then.cycles;
            lane.left = then.left;
        }
    }
    lane.bus = bus;
    false
}

/// Runs until `budget` instructions are executed or a chip requests the end of the frame.
pub fn run(m: &mut Machine, board: &mut Board, rom: &[u8], budget: u32) {
    let mut lane: Lane = begin(m, budget);
    while lane.left != 0 {
        step(m, &mut lane, board, rom);
    }
    end(m, &lane);
}
