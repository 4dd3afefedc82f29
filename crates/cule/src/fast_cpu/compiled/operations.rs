//! The operations of `machine::instructions` as trees, for compilation at run time.

use std::sync::OnceLock;

use crate::machine::instructions::{Access, INSTRUCTIONS, OPERATIONS};

/// An expression over the variables of an operation.
#[derive(Debug)]
pub enum Expression {
    Variable(char),
    Number(u32),
    Binary(Sign, Box<[Expression; 2]>),
}

/// An operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    Add,
    Subtract,
    Left,
    Right,
    And,
    Xor,
    Or,
    Equal,
    Unequal,
}

/// Operators with their precedence, longer ones first.
const SIGNS: [(&str, Sign, u8); 9] = [
    ("<<", Sign::Left, 4),
    (">>", Sign::Right, 4),
    ("==", Sign::Equal, 0),
    ("!=", Sign::Unequal, 0),
    ("+", Sign::Add, 5),
    ("-", Sign::Subtract, 5),
    ("&", Sign::And, 3),
    ("^", Sign::Xor, 2),
    ("|", Sign::Or, 1),
];

/// A statement of an operation.
#[derive(Debug)]
pub enum Statement {
    /// `ADD`, or `SUB` if `inverted`.
    Sum {
        inverted: bool,
    },
    Assign(char, Expression),
}

/// An operation.
#[derive(Debug)]
pub struct Operation {
    pub access: Access,
    pub statements: Vec<Statement>,
    /// The condition of a branch.
    pub condition: Option<Expression>,
}

impl Operation {
    /// The operation of an opcode; `None` if it is not a list of statements.
    pub fn of(opcode: u8) -> Option<&'static Self> {
        static ALL: OnceLock<Vec<Option<Operation>>> = OnceLock::new();
        ALL.get_or_init(|| (0..=255).map(parse).collect())[usize::from(opcode)].as_ref()
    }

    pub fn assigns(&self, variable: char) -> bool {
        self.statements.iter().any(|statement| match statement {
            Statement::Sum { .. } => matches!(variable, 'a' | 'c' | 'v' | 'n'),
            Statement::Assign(target, _) => *target == variable,
        })
    }

    pub fn has_sum(&self) -> bool {
        self.statements.iter().any(|statement| matches!(statement, Statement::Sum { .. }))
    }
}

fn parse(opcode: u8) -> Option<Operation> {
    let name = INSTRUCTIONS[usize::from(opcode)].name;
    let row = OPERATIONS.iter().find(|row| row.name == name)?;
    let mut operation = Operation { access: row.access, statements: vec![], condition: None };
    if row.access == Access::Branch {
        operation.condition = Some(Parser { text: row.text }.whole()?);
        return Some(operation);
    }
    for text in row.text.split("; ").filter(|text| !text.is_empty()) {
        operation.statements.push(match text {
            "ADD" | "SUB" => Statement::Sum { inverted: text == "SUB" },
            _ => {
                let (target, expression) = text.split_once(" = ")?;
                Statement::Assign(target.chars().next()?, Parser { text: expression }.whole()?)
            }
        });
    }
    Some(operation)
}

struct Parser<'a> {
    text: &'a str,
}

impl Parser<'_> {
    fn whole(mut self) -> Option<Expression> {
        let found = self.expression(0)?;
        self.text.trim().is_empty().then_some(found)
    }

    /// An expression of operators that bind at least as strongly as `least`.
    fn expression(&mut self, least: u8) -> Option<Expression> {
        let mut left = self.term()?;
        loop {
            self.text = self.text.trim_start();
            let found = SIGNS.iter().find(|(text, ..)| self.text.starts_with(text));
            let Some((text, sign, precedence)) = found.filter(|(.., precedence)| *precedence >= least) else {
                return Some(left);
            };
            self.text = &self.text[text.len()..];
            let right = self.expression(precedence + 1)?;
            left = Expression::Binary(*sign, Box::new([left, right]));
        }
    }

    fn term(&mut self) -> Option<Expression> {
        self.text = self.text.trim_start();
        let first = self.text.chars().next()?;
        if first == '(' {
            self.text = &self.text[1..];
            let inside = self.expression(0)?;
            self.text = self.text.trim_start().strip_prefix(')')?;
            return Some(inside);
        }
        let length = self.text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(length);
        self.text = rest;
        if first.is_ascii_digit() {
            let number = match word.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => word.parse(),
            };
            return number.ok().map(Expression::Number);
        }
        (word.len() == 1).then_some(Expression::Variable(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So a result that is held in a register is lost only when there is a new one.
    #[test]
    fn operations_that_change_a_register_give_a_result() {
        for operation in (0..=255).filter_map(Operation::of) {
            assert!(
                operation.assigns('n')
                    || !['a', 'x', 'y'].iter().any(|&register| operation.assigns(register))
            );
        }
    }

    #[test]
    fn all_operations_but_one_are_lists_of_statements() {
        for (opcode, row) in INSTRUCTIONS.iter().enumerate() {
            assert_eq!(Operation::of(opcode as u8).is_some(), row.name != "ARR", "{}", row.name);
        }
    }
}
