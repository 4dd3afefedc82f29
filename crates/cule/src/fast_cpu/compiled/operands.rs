//! Access to the operand of an instruction.

use std::mem::offset_of;

use super::assembler::{Alu, If, Label, Reg};
use super::instructions::Instruction;
use super::{A, CONTEXT, CYCLES, Compiler, OPERAND, TEMPORARY, XY};
use crate::fast_cpu::{Context, handlers};
use crate::machine::instructions::{Access, Mode};

pub const RAM: u32 = offset_of!(Context, m.riot.ram) as u32;
const TRIGGER: u32 = offset_of!(Context, m.input.trigger) as u32;
const ROM: u32 = offset_of!(Context, rom) as u32;
const SEGMENT: u32 = offset_of!(Context, m.cart.segment) as u32;
const WINDOW: u32 = offset_of!(Context, window) as u32;
const PLAIN_LOW: u32 = offset_of!(Context, plain_low) as u32;
const PLAIN_SPAN: u32 = offset_of!(Context, plain_span) as u32;

/// Where the operand of an instruction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    None,
    Accumulator,
    Number(u32),
    /// In RAM at this offset.
    Ram(u32),
    /// In RAM at SI minus this number.
    RamAtSi(u32),
    /// Only in `OPERAND`.
    Loaded,
    /// A register of the TIA.
    Store(u32),
    /// A write without effect.
    Unused,
}

impl Compiler<'_> {
    /// Finds the operand and loads it if it is read.
    pub(super) fn operand(&mut self, one: Instruction) -> Option<Place> {
        let Instruction { at, mode, class, operand, .. } = one;
        let reads = one.operation.access != Access::Write;
        Some(match (mode, class) {
            (Mode::Imp, handlers::PLAIN) => Place::None,
            (Mode::Acc, handlers::PLAIN) => {
                self.out.mov(OPERAND, A);
                Place::Accumulator
            }
            (Mode::Imm, handlers::PLAIN) | (Mode::Abs, handlers::CONSTANT) => Place::Number(operand),
            (Mode::Zp | Mode::Abs, handlers::RAM) => {
                if reads {
                    self.out.load_byte(OPERAND, CONTEXT, RAM + operand);
                }
                Place::Ram(operand)
            }
            (Mode::Zp | Mode::Abs, handlers::TRIGGER) if reads => {
                let noise = if mode == Mode::Abs { operand >> 8 } else { operand };
                self.out.load_byte(OPERAND, CONTEXT, TRIGGER + (operand & 1));
                self.out.alu_number(Alu::Or, OPERAND, noise & 0x3F);
                Place::Loaded
            }
            // Not VSYNC, which may end the frame.
            (Mode::Zp | Mode::Abs, handlers::STORE) if operand != 0 => Place::Store(operand),
            (Mode::Zp | Mode::Abs, handlers::WSYNC | handlers::TIA_UNUSED) => Place::Unused,
            (Mode::Absx | Mode::Absy, handlers::ROM_INDEXED) => {
                self.index(mode == Mode::Absx);
                if self.mapping.segmented {
                    self.out.add_to(Reg::Si, Reg::Ax, operand);
                    self.read_rom();
                    self.index(mode == Mode::Absx);
                } else {
                    self.out.load_wide(Reg::Si, CONTEXT, WINDOW);
                    self.out.load_byte_at(OPERAND, (Reg::Si, Reg::Ax), operand & 0xFFF);
                }
                if one.page_penalty && operand & 0xFF != 0 {
                    self.out.add_to(Reg::Ax, Reg::Ax, operand & 0xFF);
                    self.add_penalty();
                }
                Place::Loaded
            }
            (Mode::Zpx | Mode::Zpy, handlers::INDEX) => {
                self.index(mode == Mode::Zpx);
                self.out.add_to(Reg::Ax, Reg::Ax, operand);
                self.out.low_byte(Reg::Si, Reg::Ax);
                let exit = self.exit(at, self.state);
                self.out.test_number(Reg::Si, 0x80);
                self.out.jump_if(If::Zero, exit);
                if reads {
                    self.out.load_byte_at(OPERAND, (CONTEXT, Reg::Si), RAM.wrapping_sub(0x80));
                }
                Place::RamAtSi(0x80)
            }
            (Mode::Absx | Mode::Absy | Mode::Indy, handlers::INDEX) => {
                // The base in `TEMPORARY`, the address in SI.
                self.index(mode == Mode::Absx);
                if mode == Mode::Indy {
                    self.out.load_word(TEMPORARY, CONTEXT, RAM + operand);
                    self.out.alu(Alu::Add, Reg::Ax, TEMPORARY);
                } else {
                    self.out.mov_number(TEMPORARY, operand);
                    self.out.alu(Alu::Add, Reg::Ax, TEMPORARY);
                }
                self.out.low_word(Reg::Si, Reg::Ax);
                let exit = self.exit(at, self.state);
                if one.operation.access == Access::Read {
                    self.read_anywhere(exit);
                    if one.page_penalty {
                        self.out.mov(Reg::Ax, Reg::Si);
                        self.out.alu(Alu::Xor, Reg::Ax, TEMPORARY);
                        self.add_penalty();
                    }
                    Place::Loaded
                } else {
                    self.out.mov(Reg::Ax, Reg::Si);
                    self.out.alu_number(Alu::And, Reg::Ax, 0x1280);
                    self.out.alu_number(Alu::Cmp, Reg::Ax, 0x80);
                    self.out.jump_if(If::NotZero, exit);
                    self.out.alu_number(Alu::And, Reg::Si, 0x7F);
                    if reads {
                        self.out.load_byte_at(OPERAND, (CONTEXT, Reg::Si), RAM);
                    }
                    Place::RamAtSi(0)
                }
            }
            _ => return None,
        })
    }

    /// Loads X or Y into AX.
    fn index(&mut self, x: bool) {
        if x {
            self.out.low_byte(Reg::Ax, XY);
        } else {
            self.out.second_byte_of_dx(Reg::Ax);
        }
    }

    /// Adds a cycle if bit 8 of AX is set.
    fn add_penalty(&mut self) {
        self.out.alu_number(Alu::And, Reg::Ax, 0x100);
        self.out.shl(Reg::Ax, 8);
        self.out.alu_wide(Alu::Add, CYCLES, Reg::Ax);
    }

    /// Loads the byte of plain ROM at the address in SI. Changes AX.
    fn read_rom(&mut self) {
        self.out.mov(OPERAND, Reg::Si);
        if !self.mapping.segmented {
            self.out.alu_number(Alu::And, OPERAND, 0xFFF);
            self.out.load_wide(Reg::Ax, CONTEXT, WINDOW);
            self.out.load_byte_at(OPERAND, (Reg::Ax, OPERAND), 0);
            return;
        }
        // The number of the segment, as in `Context::rom`, times two.
        self.out.shr(OPERAND, 9);
        self.out.alu_number(Alu::And, OPERAND, 6);
        self.out.mov(Reg::Ax, Reg::Si);
        self.out.shr(Reg::Ax, 10);
        self.out.alu_number(Alu::And, Reg::Ax, 8);
        self.out.alu(Alu::Or, OPERAND, Reg::Ax);
        self.out.load_word_at(OPERAND, (CONTEXT, OPERAND), SEGMENT);
        self.out.shl(OPERAND, 10);
        self.out.mov(Reg::Ax, Reg::Si);
        self.out.alu_number(Alu::And, Reg::Ax, 0x3FF);
        self.out.alu(Alu::Or, OPERAND, Reg::Ax);
        self.out.load_wide(Reg::Ax, CONTEXT, ROM);
        self.out.load_byte_at(OPERAND, (Reg::Ax, OPERAND), 0);
    }

    /// Loads the byte at the address in SI, from plain ROM or RAM; otherwise jumps to `exit`. Changes AX.
    fn read_anywhere(&mut self, exit: Label) {
        let (ram, done) = (self.out.label(), self.out.label());
        self.out.mov(Reg::Ax, Reg::Si);
        self.out.alu_number(Alu::And, Reg::Ax, 0x1FFF);
        self.out.subtract(Reg::Ax, CONTEXT, PLAIN_LOW);
        self.out.compare(Reg::Ax, CONTEXT, PLAIN_SPAN);
        self.out.jump_if(If::AtLeast, ram);
        self.read_rom();
        self.out.jump(done);
        self.out.bind(ram);
        self.out.mov(Reg::Ax, Reg::Si);
        self.out.alu_number(Alu::And, Reg::Ax, 0x1280);
        self.out.alu_number(Alu::Cmp, Reg::Ax, 0x80);
        self.out.jump_if(If::NotZero, exit);
        self.out.mov(Reg::Ax, Reg::Si);
        self.out.alu_number(Alu::And, Reg::Ax, 0x7F);
        self.out.load_byte_at(OPERAND, (CONTEXT, Reg::Ax), RAM);
        self.out.bind(done);
    }
}
