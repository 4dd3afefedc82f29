//! Code for the statements of an operation.

use super::assembler::{Alu, Reg};
use super::operands::Place;
use super::operations::{Expression, Operation, Sign, Statement};
use super::{A, CONTEXT, Compiler, DECIMAL, FLAGS, Held, INTERRUPT, OPERAND, STACK_POINTER, TEMPORARY, XY};

impl Compiler<'_> {
    /// Compiles the statements of an operation.
    pub(super) fn execute(&mut self, operation: &Operation, place: Place) -> Option<()> {
        let statements = operation.statements.as_slice();
        let mut at = 0;
        while let Some(statement) = statements.get(at) {
            at += 1;
            if let Some(used) = self.flags_from_temporary(&statements[at - 1..]) {
                at += used - 1;
                continue;
            }
            match statement {
                Statement::Sum { inverted } => self.sum(*inverted, place)?,
                Statement::Assign(target, expression) => self.assign(*target, expression, place)?,
            }
        }
        Some(())
    }

    /// Carry and result from the nine bits of `t`. Returns the number of statements.
    fn flags_from_temporary(&mut self, statements: &[Statement]) -> Option<usize> {
        let [Statement::Assign('c', carry), rest @ ..] = statements else { return None };
        let is_low = |expression: &Expression| {
            matches!(expression, Expression::Binary(Sign::And, parts)
                if matches!(**parts, [Expression::Variable('t'), Expression::Number(0xFF)]))
        };
        let is_high = matches!(carry, Expression::Binary(Sign::Right, parts)
            if matches!(**parts, [Expression::Variable('t'), Expression::Number(8)]));
        if !is_high {
            return None;
        }
        match rest {
            [Statement::Assign('n', low), ..] if is_low(low) => {
                self.out.mov(FLAGS, TEMPORARY);
                self.state.result = Held::Flags;
                Some(2)
            }
            [Statement::Assign('o', low), Statement::Assign('n', Expression::Variable('o')), ..]
                if is_low(low) =>
            {
                self.out.mov(FLAGS, TEMPORARY);
                self.out.low_byte(OPERAND, TEMPORARY);
                self.state.result = Held::Flags;
                Some(3)
            }
            _ => None,
        }
    }

    /// `ADD` or `SUB`, in binary mode.
    fn sum(&mut self, inverted: bool, place: Place) -> Option<()> {
        let flip = if inverted { 0xFF } else { 0 };
        match place {
            Place::Number(value) => self.out.mov_number(OPERAND, value ^ flip),
            Place::None | Place::Accumulator | Place::Store(_) | Place::Unused => return None,
            // A modified operand is stored afterwards.
            Place::Ram(_) | Place::RamAtSi(_) | Place::Loaded => {
                self.out.mov(TEMPORARY, OPERAND);
                if inverted {
                    self.out.alu_number(Alu::Xor, TEMPORARY, 0xFF);
                }
            }
        }
        let w = if matches!(place, Place::Number(_)) { OPERAND } else { TEMPORARY };
        self.out.mov(Reg::Ax, FLAGS);
        self.out.shr(Reg::Ax, 8);
        self.out.alu_number(Alu::And, Reg::Ax, 1);
        self.out.alu(Alu::Add, Reg::Ax, A);
        self.out.alu(Alu::Add, Reg::Ax, w);
        self.out.mov(FLAGS, Reg::Ax);
        // V: both differ from the sum in bit 7.
        self.out.alu(Alu::Xor, w, Reg::Ax);
        self.out.alu(Alu::Xor, Reg::Ax, A);
        self.out.alu(Alu::And, Reg::Ax, w);
        self.out.alu_number(Alu::And, Reg::Ax, 0x80);
        self.out.shl(Reg::Ax, 9);
        self.out.alu_number(Alu::And, XY, 0xFFFF);
        self.out.alu(Alu::Or, XY, Reg::Ax);
        self.out.low_byte(A, FLAGS);
        self.state.result = Held::Flags;
        Some(())
    }

    fn assign(&mut self, target: char, expression: &Expression, place: Place) -> Option<()> {
        if target == 'n'
            && let Expression::Variable(variable @ ('a' | 'x' | 'y')) = expression
        {
            self.state.result = match variable {
                'a' => Held::A,
                'x' => Held::X,
                _ => Held::Y,
            };
            return Some(());
        }
        if let Expression::Number(value) = *expression
            && self.assign_number(target, value)
        {
            return Some(());
        }
        if matches!(target, 'x' | 'y')
            && let Some(up) = step(target, expression)
        {
            self.out.step_byte_of_dx(target == 'y', up);
            return Some(());
        }
        // SI has the address of an operand that is written.
        let free: &[Reg] = if matches!(place, Place::RamAtSi(_)) { &[] } else { &[Reg::Si] };
        let to = match target {
            'a' => A,
            'o' => OPERAND,
            't' => TEMPORARY,
            _ => Reg::Ax,
        };
        let simple = matches!(expression, Expression::Variable(_) | Expression::Number(_));
        if simple && to != Reg::Ax {
            self.evaluate(expression, to, free, place)?;
            return Some(());
        }
        self.evaluate(expression, Reg::Ax, free, place)?;
        match target {
            'a' | 'o' | 't' => self.out.mov(to, Reg::Ax),
            'x' => self.out.set_low_byte_of_dx(),
            'y' => self.out.set_second_byte_of_dx(),
            's' => self.out.store_byte(Reg::Ax, CONTEXT, STACK_POINTER),
            'd' => self.out.store_byte(Reg::Ax, CONTEXT, DECIMAL),
            'i' => self.out.store_byte(Reg::Ax, CONTEXT, INTERRUPT),
            'c' => {
                self.out.shl(Reg::Ax, 8);
                self.out.alu_number(Alu::And, FLAGS, 0x80FF);
                self.out.alu(Alu::Or, FLAGS, Reg::Ax);
            }
            'v' => {
                self.out.shl(Reg::Ax, 16);
                self.out.alu_number(Alu::And, XY, 0xFFFF);
                self.out.alu(Alu::Or, XY, Reg::Ax);
            }
            'n' => {
                self.out.alu_number(Alu::And, FLAGS, 0x100);
                self.out.alu(Alu::Or, FLAGS, Reg::Ax);
                self.state.result = Held::Flags;
            }
            _ => return None,
        }
        Some(())
    }

    /// Sets a flag to 0 or 1. False if `target` is no flag.
    fn assign_number(&mut self, target: char, value: u32) -> bool {
        match (target, value) {
            ('c', 0) => self.out.alu_number(Alu::And, FLAGS, 0x80FF),
            ('c', _) => self.out.alu_number(Alu::Or, FLAGS, 0x100),
            ('v', 0) => self.out.alu_number(Alu::And, XY, 0xFFFF),
            ('d', _) => self.out.store_byte_number(value as u8, CONTEXT, DECIMAL),
            ('i', _) => self.out.store_byte_number(value as u8, CONTEXT, INTERRUPT),
            _ => return false,
        }
        true
    }

    /// Computes an expression in `to`, with the registers `free` for parts of it.
    fn evaluate(&mut self, expression: &Expression, to: Reg, free: &[Reg], place: Place) -> Option<()> {
        match expression {
            Expression::Number(value) => self.out.mov_number(to, *value),
            Expression::Variable('o') => match place {
                Place::Number(value) => self.out.mov_number(to, value),
                _ => self.out.mov(to, OPERAND),
            },
            Expression::Variable('a') => self.out.mov(to, A),
            Expression::Variable('t') => self.out.mov(to, TEMPORARY),
            Expression::Variable('x') => self.out.low_byte(to, XY),
            Expression::Variable('y') if to == Reg::Ax || to == Reg::Si || to == A => {
                self.out.second_byte_of_dx(to)
            }
            Expression::Variable('y') => {
                self.out.second_byte_of_dx(Reg::Ax);
                self.out.mov(to, Reg::Ax);
            }
            Expression::Variable('s') => self.out.load_byte(to, CONTEXT, STACK_POINTER),
            Expression::Variable('c') => {
                self.out.mov(to, FLAGS);
                self.out.shr(to, 8);
                self.out.alu_number(Alu::And, to, 1);
            }
            Expression::Variable('v') => {
                self.out.mov(to, XY);
                self.out.shr(to, 16);
                self.out.alu_number(Alu::And, to, 1);
            }
            Expression::Variable(_) => return None,
            Expression::Binary(sign, parts) => {
                let [left, right] = &**parts;
                self.evaluate(left, to, free, place)?;
                let operation = match sign {
                    Sign::Left | Sign::Right => {
                        let Expression::Number(by) = right else { return None };
                        if *sign == Sign::Left {
                            self.out.shl(to, *by as u8);
                        } else {
                            self.out.shr(to, *by as u8);
                        }
                        return Some(());
                    }
                    Sign::Add => Alu::Add,
                    Sign::Subtract => Alu::Sub,
                    Sign::And => Alu::And,
                    Sign::Xor => Alu::Xor,
                    Sign::Or => Alu::Or,
                    Sign::Equal | Sign::Unequal => return None,
                };
                match (right, place) {
                    (&Expression::Number(value), _) | (Expression::Variable('o'), Place::Number(value)) => {
                        self.out.alu_number(operation, to, value);
                    }
                    (Expression::Variable('o'), _) => self.out.alu(operation, to, OPERAND),
                    (Expression::Variable('a'), _) => self.out.alu(operation, to, A),
                    (Expression::Variable('t'), _) => self.out.alu(operation, to, TEMPORARY),
                    _ => {
                        let (&other, rest) = free.split_first()?;
                        self.evaluate(right, other, rest, place)?;
                        self.out.alu(operation, to, other);
                    }
                }
            }
        }
        Some(())
    }
}

/// The direction if an expression adds 1 or 255 to `variable` modulo 256.
fn step(variable: char, expression: &Expression) -> Option<bool> {
    let Expression::Binary(Sign::And, parts) = expression else { return None };
    let [Expression::Binary(Sign::Add, sum), Expression::Number(0xFF)] = &**parts else { return None };
    match **sum {
        [Expression::Variable(found), Expression::Number(1)] if found == variable => Some(true),
        [Expression::Variable(found), Expression::Number(255)] if found == variable => Some(false),
        _ => None,
    }
}
