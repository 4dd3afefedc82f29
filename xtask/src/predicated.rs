//! Generates the table of the predicated interpreter from `crates/cule/src/machine/instructions.rs`: two
//! words per opcode, which control the micro-steps of `machine/predicated.rs` and the formula of
//! `machine/datapath.rs`.
//!
//! The settings of the formula are found by search: they are tried until one gives the results of the
//! operation's text for many states. Operations without such a setting are left to the compact interpreter.

#[path = "../../crates/cule/src/machine/datapath.rs"]
#[allow(
    dead_code,
    clippy::precedence,
    reason = "the crate that owns the formula uses the rest, in its own style"
)]
pub mod datapath;

use crate::interpreter::instructions::{Access, INSTRUCTIONS, Instruction, Mode};
use crate::interpreter::{mentions, operation, rename};
use crate::ptx::{self, ADD};
use datapath::Outcome;
use std::fmt::Write as _;

/// Number of states with which an operation is tested.
const SAMPLES: usize = 400;
/// Mask of the stack's addresses.
const STACK_MASK: u64 = 0x1FF;

/// Values of a text's variables, indexed by their letter.
type Variables = [u32; 128];

/// Executes the text of an operation.
fn run(text: &str, all: &mut Variables) {
    for statement in text.split("; ").filter(|statement| !statement.is_empty()) {
        match statement {
            "ADD" => run(&format!("u = o; {ADD}"), all),
            "SUB" => run(&format!("u = o ^ 0xFF; {ADD}"), all),
            _ => {
                let (target, expression) = statement.split_once(" = ").expect("an assignment");
                all[usize::from(target.as_bytes()[0])] = value(expression, all);
            }
        }
    }
}

/// Evaluates an expression.
fn value(expression: &str, all: &Variables) -> u32 {
    let tokens = ptx::tokens(expression);
    let mut at = 0;
    let found = level(&tokens, &mut at, 0, all);
    assert_eq!(at, tokens.len(), "{expression}");
    found
}

/// Evaluates binary operators from `strength` on, the weakest first.
fn level(tokens: &[String], at: &mut usize, strength: usize, all: &Variables) -> u32 {
    const LEVELS: [&[&str]; 5] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"]];
    if strength == LEVELS.len() {
        let token = &tokens[*at];
        *at += 1;
        if token == "(" {
            let found = level(tokens, at, 0, all);
            *at += 1;
            return found;
        }
        let number = token.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16));
        return number
            .unwrap_or_else(|| token.parse())
            .unwrap_or_else(|_| all[usize::from(token.as_bytes()[0])]);
    }
    let mut left = level(tokens, at, strength + 1, all);
    while let Some(operator) = tokens.get(*at).filter(|token| LEVELS[strength].contains(&token.as_str())) {
        *at += 1;
        let right = level(tokens, at, strength + 1, all);
        left = match operator.as_str() {
            "|" => left | right,
            "^" => left ^ right,
            "&" => left & right,
            "<<" => left << right,
            ">>" => left >> right,
            "+" => left.wrapping_add(right),
            _ => left.wrapping_sub(right),
        };
    }
    left
}

/// Returns test states, the same in every run. `binary`: decimal mode is off.
fn samples(binary: bool) -> Vec<Variables> {
    let mut draws: u64 = 6507;
    let mut draw = |below: u64| {
        draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((draws >> 33) % below) as u32
    };
    let mut all = Vec::new();
    for _ in 0..SAMPLES {
        let mut one = [0; 128];
        for name in *b"axyso" {
            one[usize::from(name)] =
                if draw(8) == 0 { [0, 0x7F, 0x80, 0xFF][draw(4) as usize] } else { draw(256) };
        }
        for name in *b"cvd" {
            one[usize::from(name)] = draw(2);
        }
        one[usize::from(b'n')] = draw(0x1_0000);
        if binary {
            one[usize::from(b'd')] = 0;
        }
        all.push(one);
    }
    all
}

fn outcome(all: &Variables) -> Outcome {
    let get = |name: u8| all[usize::from(name)];
    Outcome {
        registers: get(b'a') | get(b'x') << 8 | get(b'y') << 16 | get(b's') << 24,
        result: get(b'n'),
        carry: get(b'c'),
        overflow: get(b'v'),
        decimal: get(b'd'),
        value: get(b'o'),
    }
}

/// All settings of the formula that determine the sum and the value, in search order.
fn sums() -> Vec<u64> {
    use datapath::{
        A, ADDS_CARRY, ADDS_ONE, BOTHS, CARRY_ABOVE, INVERTS, NOTHING, ONES, OPERAND, S, SHIFTS, X, Y,
    };
    let mut all = Vec::new();
    // The simplest settings come first: one number alone.
    for shift in [0, 1 << SHIFTS, 1 << SHIFTS | 1 << CARRY_ABOVE] {
        for carry in [0, 1 << ADDS_ONE, 1 << ADDS_CARRY] {
            for (ones, boths) in [(1, 0), (1, 1), (0, 1), (1, 2), (0, 2)] {
                for inverts in [0, 1] {
                    for second in [NOTHING, OPERAND, A, X, Y, S] {
                        for first in [OPERAND, A, X, Y, S, NOTHING] {
                            all.push(
                                u64::from(first | second << datapath::SECOND)
                                    | inverts << INVERTS
                                    | ones << ONES
                                    | boths << BOTHS
                                    | carry
                                    | shift,
                            );
                        }
                    }
                }
            }
        }
    }
    all
}

/// The second word of a row for this operation, if the formula can express it. `writes`: the operand is
/// written.
pub fn search(text: &str, writes: bool) -> Option<u64> {
    if mentions(text, "h") || mentions(text, "i") || mentions(text, "ARR") {
        return None;
    }
    let cases: Vec<(Outcome, u32, Outcome)> = samples(text.contains("ADD") || text.contains("SUB"))
        .into_iter()
        .map(|before| {
            let mut after = before;
            run(text, &mut after);
            (outcome(&before), before[usize::from(b'o')], outcome(&after))
        })
        .collect();
    sums().into_iter().find_map(|sum| steer(sum, writes, &cases))
}

/// Adds the bits that determine the use of a sum, for one part of the outcome after the other.
fn steer(sum: u64, writes: bool, cases: &[(Outcome, u32, Outcome)]) -> Option<u64> {
    use datapath::{
        CARRY_FROM, OVERFLOW_OF_OPERAND, OVERFLOW_OF_SUM, SETS_CARRY, SETS_DECIMAL, SETS_OVERFLOW,
        SETS_RESULT, SIGN_OF_OPERAND, TO,
    };
    let holds = |row: u64, part: &dyn Fn(&Outcome) -> u32| {
        cases
            .iter()
            .all(|(before, operand, after)| part(&datapath::operate(row, *before, *operand)) == part(after))
    };
    if writes && !holds(sum, &|one| one.value) {
        return None;
    }
    let overflow = |from: u64| 1 << SETS_OVERFLOW | from;
    let carry = |from: u64| 1 << SETS_CARRY | from << CARRY_FROM;
    let mut row = sum;
    let mut add = |choices: &[u64], part: &dyn Fn(&Outcome) -> u32| {
        let found = choices.iter().find(|&&choice| holds(sum | choice, part))?;
        row |= found;
        Some(())
    };
    for byte in 0..4 {
        let lane = 0xFF << (8 * byte);
        add(&[0, lane << TO], &|one| one.registers & lane as u32)?;
    }
    add(&[0, 1 << SETS_RESULT, 1 << SETS_RESULT | 1 << SIGN_OF_OPERAND], &|one| one.result)?;
    add(&[0, carry(0), carry(7), carry(8)], &|one| one.carry)?;
    add(&[0, overflow(0), overflow(1 << OVERFLOW_OF_SUM), overflow(1 << OVERFLOW_OF_OPERAND)], &|one| {
        one.overflow
    })?;
    add(&[0, 1 << SETS_DECIMAL], &|one| one.decimal)?;
    Some(row)
}

/// The first word of a branch: the flags in its condition.
fn branch(text: &str) -> Option<u64> {
    let (left, where_none) = match (text.split_once(" == 0"), text.split_once(" != 0")) {
        (Some((left, "")), _) => (left, datapath::WHERE_NONE),
        (None, Some((left, ""))) => (left, 0),
        _ => return None,
    };
    let states = samples(false);
    let all = |row: u64| {
        states.iter().all(|state| {
            let one = outcome(state);
            let wanted = (value(left, state) == 0) == (where_none != 0);
            datapath::is_met(row, datapath::flags_of(one.result, one.carry, one.overflow)) == wanted
        })
    };
    let rows = [0xFF, 0x8080, 1 << 16, 1 << 17]
        .map(|bits: u64| bits << datapath::MASK | where_none | datapath::BRANCH);
    rows.into_iter().find(|&row| all(row))
}

/// The bits that describe how an instruction accesses its operand; `None` if the micro-steps cannot.
fn access(instruction: &Instruction) -> Option<u64> {
    use datapath::{BY_Y, INDEX, MASK, NOTHING, POINTER, X, Y};
    let place = |index: u32, mask: u64, flags: u64| Some(u64::from(index) << INDEX | mask << MASK | flags);
    match instruction.mode {
        Mode::Imp | Mode::Acc | Mode::Imm => place(NOTHING, 0, 0),
        Mode::Zp | Mode::Abs => place(NOTHING, 0xFFFF, 0),
        Mode::Zpx => place(X, 0xFF, 0),
        Mode::Zpy => place(Y, 0xFF, 0),
        Mode::Absx => place(X, 0xFFFF, 0),
        Mode::Absy => place(Y, 0xFFFF, 0),
        Mode::Indx => place(X, 0xFF, POINTER),
        Mode::Indy => place(NOTHING, 0xFF, POINTER | BY_Y),
        Mode::Rel | Mode::Ind => None,
    }
}

/// Stack instructions and jumps: the bits of the first word, and the text for the formula.
fn special(instruction: &Instruction) -> Option<(u64, &'static str)> {
    use datapath::{
        CALLS, INDEX, JUMPS, MASK, MOVES, NOTHING, POINTER, PULLS, READS, RETURNS, S, STACK, STATUS, WRITES,
    };
    let stack = u64::from(S) << INDEX | STACK_MASK << MASK | STACK;
    let anywhere = u64::from(NOTHING) << INDEX | 0xFFFF << MASK;
    match (instruction.name, instruction.mode) {
        ("PHA", _) => Some((stack | WRITES | 0xFF << MOVES, "o = a")),
        ("PHP", _) => Some((stack | WRITES | STATUS | 0xFF << MOVES, "")),
        ("PLA", _) => Some((stack | PULLS | READS | 1 << MOVES, "a = o; n = a")),
        ("JSR", _) => Some((stack | CALLS | 0xFE << MOVES, "")),
        ("RTS", _) => Some((stack | PULLS | POINTER | READS | JUMPS | RETURNS | 2 << MOVES, "")),
        ("JMP", Mode::Abs) => Some((anywhere | JUMPS, "")),
        ("JMP", _) => Some((anywhere | POINTER | JUMPS, "")),
        _ => None,
    }
}

/// Both words of an opcode; `None` if the compact interpreter executes it.
fn row(instruction: &Instruction) -> Option<[u64; 2]> {
    use datapath::{BYTES, CYCLES, DECIMAL, INDEX, NOTHING, PENALTY, READS, WRITES};
    let kind = operation(instruction);
    let text = kind.text;
    let [mut first, second] = match kind.access {
        Access::Special => {
            let (first, text) = special(instruction)?;
            [first, search(text, text.starts_with("o = "))?]
        }
        Access::Branch => [branch(text)? | u64::from(NOTHING) << INDEX, search("", false)?],
        _ if instruction.mode == Mode::Acc => {
            let on_a = rename(text, |word| (word == "o").then(|| "a".into()));
            [access(instruction)?, search(&on_a, false)?]
        }
        kind => {
            let memory = !matches!(instruction.mode, Mode::Imp | Mode::Imm);
            let reads = memory && matches!(kind, Access::Read | Access::Modify);
            let writes = memory && matches!(kind, Access::Write | Access::Modify);
            let flags = if reads { READS } else { 0 } | if writes { WRITES } else { 0 };
            [access(instruction)? | flags, search(text, writes)?]
        }
    };
    first |= u64::from(instruction.cycles) << CYCLES | u64::from(ptx::length(instruction.mode)) << BYTES;
    if instruction.page_penalty {
        first |= PENALTY;
    }
    if text.contains("ADD") || text.contains("SUB") {
        first |= DECIMAL;
    }
    Some([first, second])
}

/// Returns the text of `machine/micro.rs`.
pub fn table() -> String {
    let mut out = String::from(
        "//! GENERATED by `cargo xtask kernels` from `instructions.rs`: control words of the predicated interpreter\n\
         //! (`predicated.rs`) for every opcode. Their bits are defined in `datapath.rs`.\n//!\n//! Device subset.\n\n\
         /// Per opcode: a word for the access to its operand, and one for its operation.\n\
         #[rustfmt::skip]\npub const ROWS: [[u64; 2]; 256] = [\n",
    );
    let mut known: Vec<(String, Option<[u64; 2]>)> = Vec::new();
    for instruction in &INSTRUCTIONS {
        let name = format!("{} {:?}", instruction.name, instruction.mode).to_ascii_lowercase();
        let key = format!("{name} {} {}", instruction.cycles, instruction.page_penalty);
        let found = known.iter().find(|(other, _)| *other == key).map(|(_, row)| *row);
        let words = found.unwrap_or_else(|| row(instruction));
        known.push((key, words));
        let [first, second] = words.unwrap_or([datapath::SLOW, 0]);
        let _ = writeln!(out, "    [0x{first:016X}, 0x{second:016X}], // {name}");
    }
    out.push_str("];\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_run_with_the_precedence_of_c() {
        let mut all: Variables = [0; 128];
        all[usize::from(b'a')] = 0xF0;
        all[usize::from(b'o')] = 0x0F;
        run("t = a + o + 1 & 0xFF | (o & 0x80) << 8; x = a ^ o & 3 << 1", &mut all);
        assert_eq!((all[usize::from(b't')], all[usize::from(b'x')]), (0, 0xF0 ^ 0x06));
        run("c = 1; SUB", &mut all);
        assert_eq!((all[usize::from(b'a')], all[usize::from(b'c')], all[usize::from(b'v')]), (0xE1, 1, 0));
    }

    #[test]
    fn what_the_formula_cannot_express_is_not_found() {
        assert_eq!(search("a = a & x & o; n = a", false), None);
        assert_eq!(search("a = o; y = x; n = a", false), None);
        assert_eq!(search("o = x & h + 1", true), None);
        assert!(search("a = o; x = o; n = o", false).is_some());
    }
}
