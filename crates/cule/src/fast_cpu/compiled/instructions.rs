//! Code for one instruction.

use std::mem::{offset_of, size_of};

use super::assembler::{Alu, If, Reg};
use super::operands::{Place, RAM};
use super::operations::{Expression, Operation, Sign};
use super::{
    A, CONTEXT, CYCLES, Compiler, DECIMAL, FLAGS, Functions, Held, OPERAND, STACK_POINTER, State, XY, length,
};
use crate::fast_cpu::code::Decoded;
use crate::fast_cpu::{Context, Record, handlers};
use crate::machine::instructions::{Access, INSTRUCTIONS, Mode};
use crate::machine::tia;

const SHADOW: u32 = offset_of!(Context, shadow) as u32;
const PC_BASE: u32 = offset_of!(Context, pc_base) as u32;
const LIMIT: u32 = offset_of!(Context, limit) as u32;
const ORIGIN: u32 = offset_of!(Context, origin_cycles) as u32;

/// How control leaves an instruction.
pub enum Flow {
    Next,
    End,
}

/// A decoded instruction.
#[derive(Clone, Copy)]
pub struct Instruction {
    /// Its image offset.
    pub at: usize,
    /// The image offset after it.
    pub next: usize,
    pub name: &'static str,
    /// Operand class (`handlers`).
    pub class: usize,
    pub mode: Mode,
    /// As that of its record.
    pub operand: u32,
    /// Additional cycles of a taken branch.
    pub extra: u8,
    pub page_penalty: bool,
    /// Cycles times 2^16, less one for the instruction.
    pub cost: i32,
    pub operation: &'static Operation,
}

impl Compiler<'_> {
    /// Compiles the instruction at an image offset; `None` if it is left to the function of its record.
    pub(super) fn instruction(&mut self, at: usize) -> Option<Flow> {
        let one = self.decode(at)?;
        match one.operation.access {
            Access::Branch => {
                self.branch(one)?;
                return Some(Flow::Next);
            }
            Access::Special => return self.special(one),
            _ => {}
        }
        if one.operation.has_sum() {
            let exit = self.exit(at, self.state);
            self.out.compare_byte_number(CONTEXT, DECIMAL, 0);
            self.out.jump_if(If::NotZero, exit);
        }
        let before = self.state;
        let place = self.operand(one)?;
        self.state.pending += one.cost;
        self.execute(one.operation, place)?;
        self.put(one, place, before)?;
        if one.class == handlers::WSYNC {
            self.wait_for_line();
        }
        Some(Flow::Next)
    }

    fn decode(&self, at: usize) -> Option<Instruction> {
        let Decoded { kind: (opcode, class), handler, operand, extra } = self.decoded[at];
        if handler == handlers::NONE || !self.is_ordinary(at) {
            return None;
        }
        let row = &INSTRUCTIONS[usize::from(opcode)];
        let next = at + length(opcode);
        (next / self.mapping.bank == at / self.mapping.bank).then_some(Instruction {
            at,
            next,
            name: row.name,
            class: usize::from(class),
            mode: row.mode,
            operand,
            extra,
            page_penalty: row.page_penalty,
            cost: (row.cycles << 16) as i32 - 1,
            operation: Operation::of(opcode)?,
        })
    }

    /// True if the function of a record is that of its instruction, or of this and the next one: no loop is skipped,
    /// no jump leads to RAM, no data fetcher is clocked.
    fn is_ordinary(&self, at: usize) -> bool {
        let (function, handler) = (self.records[at].function as usize, self.decoded[at].handler);
        let Functions { table, pairs, .. } = self.functions;
        if function == table[usize::from(handler)] as usize {
            return true;
        }
        let Some(next) = self.decoded.get(at + length(self.image[at])) else { return false };
        pairs
            .binary_search_by_key(&(handler, next.handler), |pair| (pair.0, pair.1))
            .is_ok_and(|place| pairs[place].2 as usize == function)
    }

    /// A branch, by its condition.
    fn branch(&mut self, one: Instruction) -> Option<()> {
        let records = one.operand as i32 as isize / size_of::<Record>() as isize;
        let to = one.next.wrapping_add_signed(records);
        let Some(Expression::Binary(sign, parts)) = &one.operation.condition else { return None };
        let [value, Expression::Number(0)] = &**parts else { return None };
        let taken = match sign {
            Sign::Equal => If::Zero,
            Sign::Unequal => If::NotZero,
            _ => return None,
        };
        match value {
            Expression::Binary(Sign::And, parts) => {
                let [Expression::Variable('n'), Expression::Number(mask)] = **parts else { return None };
                match self.state.result {
                    Held::Flags => self.out.test_number(FLAGS, mask),
                    Held::A => self.out.test_number(A, mask & 0xFF),
                    Held::X => self.out.test_number(XY, mask & 0xFF),
                    Held::Y => self.out.test_number(XY, (mask & 0xFF) << 8),
                }
            }
            Expression::Variable('c') => self.out.test_number(FLAGS, 0x100),
            Expression::Variable('v') => self.out.test_number(XY, 0x1_0000),
            _ => return None,
        }
        self.state.pending += one.cost;
        let over = self.out.label();
        self.out.jump_if(taken.not(), over);
        let kept = self.state;
        self.state.pending += i32::from(one.extra) << 16;
        self.go(to);
        self.state = kept;
        self.out.bind(over);
        Some(())
    }

    /// A jump, or an access to the stack.
    fn special(&mut self, one: Instruction) -> Option<Flow> {
        let Instruction { at, next, name, mode, operand, cost, .. } = one;
        let before = self.state;
        match (name, mode) {
            ("JMP" | "JSR", Mode::Abs) => {
                if operand & 0x1000 == 0 {
                    return None;
                }
                let to = self.target(at, operand as usize)?;
                if name == "JSR" {
                    let exit = self.exit(at, before);
                    self.out.load_byte(Reg::Si, CONTEXT, STACK_POINTER);
                    self.out.alu_number(Alu::Cmp, Reg::Si, 0x81);
                    self.out.jump_if(If::Below, exit);
                    self.out.load(Reg::Ax, CONTEXT, PC_BASE);
                    let place = if self.mapping.segmented { next } else { next % self.mapping.bank };
                    self.out.alu_number(Alu::Add, Reg::Ax, place as u32 - 1);
                    self.out.store_word_at(Reg::Ax, (CONTEXT, Reg::Si), RAM.wrapping_sub(0x81));
                    self.out.alu_number(Alu::Sub, Reg::Si, 2);
                    self.out.store_byte(Reg::Si, CONTEXT, STACK_POINTER);
                }
                let base =
                    if self.mapping.segmented { operand.wrapping_sub(to as u32) } else { operand & 0xF000 };
                self.out.store_number(base, CONTEXT, PC_BASE);
                self.state.pending += cost;
                self.go(to);
                Some(Flow::End)
            }
            ("PHA", _) => {
                let exit = self.exit(at, before);
                self.out.load_byte(Reg::Si, CONTEXT, STACK_POINTER);
                self.out.test_number(Reg::Si, 0x80);
                self.out.jump_if(If::Zero, exit);
                self.out.store_byte_at(A, (CONTEXT, Reg::Si), RAM.wrapping_sub(0x80));
                self.out.alu_number(Alu::Sub, Reg::Si, 1);
                self.out.store_byte(Reg::Si, CONTEXT, STACK_POINTER);
                self.state.pending += cost;
                Some(Flow::Next)
            }
            ("PLA", _) => {
                let exit = self.exit(at, before);
                self.out.load_byte(Reg::Ax, CONTEXT, STACK_POINTER);
                self.out.alu_number(Alu::Add, Reg::Ax, 1);
                self.out.low_byte(Reg::Si, Reg::Ax);
                self.out.test_number(Reg::Si, 0x80);
                self.out.jump_if(If::Zero, exit);
                self.out.load_byte_at(A, (CONTEXT, Reg::Si), RAM.wrapping_sub(0x80));
                self.out.store_byte(Reg::Si, CONTEXT, STACK_POINTER);
                self.state.result = Held::A;
                self.state.pending += cost;
                Some(Flow::Next)
            }
            _ => None,
        }
    }

    /// Stores the operand of an instruction that writes it.
    fn put(&mut self, one: Instruction, place: Place, before: State) -> Option<()> {
        if matches!(one.operation.access, Access::Read | Access::None) {
            return Some(());
        }
        match place {
            Place::Accumulator => self.out.mov(A, OPERAND),
            Place::Ram(offset) => self.out.store_byte(OPERAND, CONTEXT, RAM + offset),
            Place::RamAtSi(base) => {
                self.out.store_byte_at(OPERAND, (CONTEXT, Reg::Si), RAM.wrapping_sub(base));
            }
            Place::Store(register) => {
                self.check_limit(one, before);
                let unchanged = self.out.label();
                self.out.compare_word(CONTEXT, SHADOW + 2 * register, OPERAND);
                self.out.jump_if(If::Zero, unchanged);
                self.out.shl(OPERAND, 24);
                self.out.alu(Alu::Or, XY, OPERAND);
                let out = &mut self.out;
                let label = *self.stores.entry(register).or_insert_with(|| out.label());
                self.out.call(label);
                self.out.bind(unchanged);
            }
            Place::Unused => self.check_limit(one, before),
            Place::None | Place::Number(_) | Place::Loaded => return None,
        }
        Some(())
    }

    /// Counts the instruction; jumps to the function of its record if the frame has too many lines.
    fn check_limit(&mut self, one: Instruction, before: State) {
        self.count();
        let exit = self.exit(one.at, State { pending: -one.cost, result: before.result });
        self.out.compare_wide(CYCLES, CONTEXT, LIMIT);
        self.out.jump_if(If::AtLeast, exit);
    }

    /// Adds the cycles up to the end of the line.
    fn wait_for_line(&mut self) {
        const CYCLES_PER_LINE: u32 = tia::CLOCKS_PER_LINE as u32 / 3;
        // For n / 19 with n below 2^30. A line has 4 * 19 cycles.
        const RECIPROCAL: u64 = (1_u64 << 36).div_ceil(CYCLES_PER_LINE as u64 / 4);
        let done = self.out.label();
        // SI: cycles since the origin. AX: their quotient, then the cycles of whole lines.
        self.out.mov_wide(Reg::Si, CYCLES);
        self.out.shr_wide(Reg::Si, 16);
        self.out.subtract(Reg::Si, CONTEXT, ORIGIN);
        self.out.mov(Reg::Ax, Reg::Si);
        self.out.shr(Reg::Ax, 2);
        // The reciprocal has 32 bits, which the multiplication would take as negative.
        self.out.multiply(Reg::Ax, Reg::Ax, (RECIPROCAL / 2) as i32);
        self.out.shr_wide(Reg::Ax, 35);
        self.out.multiply(Reg::Ax, Reg::Ax, CYCLES_PER_LINE as i32);
        self.out.alu(Alu::Sub, Reg::Si, Reg::Ax);
        self.out.jump_if(If::Zero, done);
        self.out.mov_number(Reg::Ax, CYCLES_PER_LINE);
        self.out.alu(Alu::Sub, Reg::Ax, Reg::Si);
        self.out.shl_wide(Reg::Ax, 16);
        self.out.alu_wide(Alu::Add, CYCLES, Reg::Ax);
        self.out.bind(done);
    }
}
