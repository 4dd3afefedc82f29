//! Generates interpreters of the 6507 from `crates/cule/src/machine/instructions.rs`: [`reference()`] is the
//! plain interpreter in the device subset, one match arm per opcode; [`compact()`] is the same with one arm
//! per operation, which a GPU's compiler compiles in a tenth of the time.

#[path = "../../crates/cule/src/machine/instructions.rs"]
#[allow(dead_code, missing_docs, reason = "the crate that owns the table uses and documents the rest")]
pub mod instructions;

use std::fmt::Write as _;

use instructions::{Access, INSTRUCTIONS, Instruction, Mode, OPERATIONS, Operation};

/// The operation of an instruction.
///
/// # Panics
/// If the tables disagree.
pub fn operation(instruction: &Instruction) -> &'static Operation {
    OPERATIONS.iter().find(|row| row.name == instruction.name).expect("every mnemonic has an operation")
}

/// True if `text` uses variable `name`.
pub fn mentions(text: &str, name: &str) -> bool {
    words(text).any(|word| word == name)
}

/// True if `text` assigns to `name`.
pub fn assigns(text: &str, name: &str) -> bool {
    text.split("; ").any(|statement| statement.split_once(" = ").is_some_and(|(target, _)| target == name))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// Replaces every variable of `text` for which `name` returns a value by that value.
pub fn rename(text: &str, name: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        out.push_str(&name(&word).unwrap_or_else(|| word.clone()));
        word.clear();
        if c != '\n' {
            out.push(c);
        }
    }
    out
}

// ---------------------------------------------------------------- the plain interpreter

/// Registers and flags of the operations, and their fields in `Cpu`.
const REGISTERS: [(&str, &str); 8] = [
    ("a", "a"),
    ("x", "x"),
    ("y", "y"),
    ("s", "s"),
    ("c", "carry"),
    ("v", "overflow"),
    ("d", "decimal"),
    ("i", "interrupt"),
];

/// The field of `Cpu` for a register or flag.
fn field(word: &str) -> Option<&'static str> {
    REGISTERS.iter().find(|(name, _)| *name == word).map(|(_, field)| *field)
}

/// An expression over `Cpu`; `o` and `t` are local variables.
fn expression_on_cpu(text: &str) -> String {
    rename(text, |word| match (word, field(word)) {
        // The cast needs parentheses before `<<`, which would be parsed as a generic type.
        (_, Some(field)) => Some(format!("(cpu.{field} as u32)")),
        ("n", _) => Some("cpu.result".into()),
        ("h", _) => Some("(at >> 8)".into()),
        _ => None,
    })
}

/// The statements of an operation on `Cpu`.
fn on_cpu(text: &str) -> String {
    let mut out = String::new();
    for statement in text.split("; ").filter(|statement| !statement.is_empty()) {
        let statement = match statement {
            "ADD" => "add(cpu, o);".into(),
            "SUB" => "subtract(cpu, o);".into(),
            "ARR" => "operations::arr(cpu, o);".into(),
            _ => {
                let (target, expression) = statement.split_once(" = ").expect("an assignment");
                let value = expression_on_cpu(expression);
                match (target, field(target)) {
                    (_, Some(target)) => match (field(expression), expression) {
                        (Some(source), _) => format!("cpu.{target} = cpu.{source};"),
                        (_, "0" | "1") => format!("cpu.{target} = {expression};"),
                        (_, "o") => format!("cpu.{target} = o as u8;"),
                        _ => format!("cpu.{target} = ({value}) as u8;"),
                    },
                    ("n", _) => format!("cpu.result = {value};"),
                    ("t", _) => format!("let t: u32 = {value};"),
                    _ => format!("{target} = {value};"),
                }
            }
        };
        out.push_str(&statement);
        out.push(' ');
    }
    out
}

const ALL: &str = "m, cpu, board, rom";

/// Code that computes the address of an operand; `None` for modes without an address.
fn address(instruction: &Instruction) -> Option<String> {
    let reads = instruction.page_penalty;
    Some(match instruction.mode {
        Mode::Zp => format!("fetch({ALL})"),
        Mode::Zpx => format!("(fetch({ALL}) + cpu.x as u32) & 0xFF"),
        Mode::Zpy => format!("(fetch({ALL}) + cpu.y as u32) & 0xFF"),
        Mode::Abs => format!("fetch_word({ALL})"),
        Mode::Absx => format!("fetch_word({ALL}); let at: u32 = index(cpu, base, cpu.x, {reads})"),
        Mode::Absy => format!("fetch_word({ALL}); let at: u32 = index(cpu, base, cpu.y, {reads})"),
        Mode::Indx => {
            format!("(fetch({ALL}) + cpu.x as u32) & 0xFF; let at: u32 = pointer({ALL}, base)")
        }
        Mode::Indy => {
            format!(
                "fetch({ALL}); let base: u32 = pointer({ALL}, base); let at: u32 = index(cpu, base, cpu.y, {reads})"
            )
        }
        _ => return None,
    })
}

/// Code for stack instructions, jumps, and the opcodes that stop the processor.
fn special(instruction: &Instruction) -> String {
    match (instruction.name, instruction.mode) {
        ("PHA", _) => "let v: u32 = cpu.a as u32; push(m, cpu, board, v, false);".into(),
        ("PHP", _) => "let v: u32 = operations::status(cpu); push(m, cpu, board, v, false);".into(),
        ("PLA", _) => {
            format!("peek({ALL}); let v: u32 = pull({ALL}); cpu.a = v as u8; cpu.result = v;")
        }
        ("PLP", _) => format!("peek({ALL}); let v: u32 = pull({ALL}); operations::set_status(cpu, v);"),
        ("JMP", Mode::Ind) => {
            format!("let at: u32 = fetch_word({ALL}); operations::jump_indirect({ALL}, at);")
        }
        ("JMP", _) => format!("let at: u32 = fetch_word({ALL}); cpu.pc = at as u16;"),
        ("JAM", _) => "cpu.jammed = 1; cpu.left = 0;".into(),
        (name, _) => format!("operations::{}({ALL});", name.to_ascii_lowercase()),
    }
}

fn arm(instruction: &Instruction) -> String {
    let Operation { access, text, .. } = *operation(instruction);
    if access == Access::Branch {
        let condition = expression_on_cpu(text);
        return format!(
            "let distance: u32 = fetch({ALL}); if {condition} {{ operations::branch(cpu, distance); }}"
        );
    }
    let operands = on_cpu(text);
    match (access, instruction.mode) {
        (Access::Special, _) => special(instruction),
        (_, Mode::Imp) => operands,
        (_, Mode::Acc) => {
            format!("let mut o: u32 = cpu.a as u32; {operands}cpu.a = o as u8;")
        }
        (_, Mode::Imm) if text.is_empty() => format!("fetch({ALL});"),
        (_, Mode::Imm) => format!("let o: u32 = fetch({ALL}); {operands}"),
        (access, _) => {
            let address = address(instruction).expect("the mode has an address");
            let first = if address.contains("base") { "base" } else { "at" };
            let write = "write(m, cpu, board, at, o, false);";
            match access {
                Access::Read if text.is_empty() => format!("let {first}: u32 = {address}; read({ALL}, at);"),
                Access::Read => {
                    format!("let {first}: u32 = {address}; let o: u32 = read({ALL}, at); {operands}")
                }
                Access::Write => {
                    let operands = operands.replacen("o = ", "let o: u32 = ", 1);
                    format!("let {first}: u32 = {address}; {operands}{write}")
                }
                _ => format!(
                    "let {first}: u32 = {address}; let mut o: u32 = read({ALL}, at); {operands}{write}"
                ),
            }
        }
    }
}

/// Returns the text of `machine/cpu.rs`.
pub fn reference() -> String {
    let mut out = String::from(
        "//! GENERATED by `cargo xtask kernels` from `instructions.rs`: the plain interpreter, one arm per opcode.
//!
//! Device subset.

use super::bus::{read, write};
use super::operations::{
    self, Cpu, add_decimal, fetch, fetch_word, index, peek, pointer, pull, push, subtract_decimal,
};
use super::{Board, Machine};

/// ADC.
pub fn add(cpu: &mut Cpu, operand: u32) {
    if cpu.decimal != 0 {
        add_decimal(cpu, operand);
        return;
    }
    let a: u32 = cpu.a as u32;
    let sum: u32 = a + operand + cpu.carry as u32;
    cpu.overflow = (((a ^ sum) & (operand ^ sum)) >> 7 & 1) as u8;
    cpu.carry = (sum >> 8) as u8;
    cpu.result = sum & 0xFF;
    cpu.a = sum as u8;
}

/// SBC.
pub fn subtract(cpu: &mut Cpu, operand: u32) {
    if cpu.decimal != 0 {
        subtract_decimal(cpu, operand);
    } else {
        add(cpu, operand ^ 0xFF);
    }
}

/// Runs until `budget` instructions are executed or a chip requests the end of the frame.
pub fn run(m: &mut Machine, board: &mut Board, rom: &[u8], budget: u32) {
    let mut cpu: Cpu = m.cpu;
    cpu.left = if cpu.jammed != 0 { 0 } else { budget };
    while cpu.left != 0 {
        cpu.left -= 1;
        execute(m, &mut cpu, board, rom);
    }
    m.cpu = cpu;
}

/// Executes one instruction. Returns its opcode.
#[rustfmt::skip]
pub fn execute(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) -> u32 {
    let opcode: u32 = fetch(m, cpu, board, rom);
    match opcode {
",
    );
    for (opcode, instruction) in INSTRUCTIONS.iter().enumerate() {
        let mode = format!("{:?}", instruction.mode).to_ascii_lowercase();
        // The last arm matches the one remaining value.
        let pattern = if opcode == 0xFF { "_".into() } else { format!("0x{opcode:02X}") };
        let _ = writeln!(out, "        // {} {mode}", instruction.name);
        let _ = writeln!(
            out,
            "        {pattern} => {{ cpu.cycles = cpu.cycles.wrapping_add({}); {} }}",
            instruction.cycles,
            arm(instruction).trim_end()
        );
    }
    out.push_str("    }\n    opcode\n}\n");
    out
}

// ---------------------------------------------------------------- the compact interpreter

/// Flags in a row of the compact interpreter's table, which describe how the operand is accessed.
const COMPACT_FLAGS: [(&str, &str); 11] = [
    ("BYTE", "A byte follows the opcode."),
    ("WORD", "Two bytes follow the opcode."),
    ("ZERO_PAGE", "The address stays in page zero."),
    ("BY_X", "X is added to the bytes after the opcode."),
    ("BY_Y", "Y is added to the bytes after the opcode, or to the pointer."),
    ("POINTER", "The bytes after the opcode are the address of a pointer."),
    ("PENALTY", "One extra cycle if the index crosses a page."),
    ("ACCUMULATOR", "The operand is A."),
    ("READS", "The operand is read."),
    ("WRITES", "The operand is written."),
    ("BEFORE", "X is added before the pointer is read."),
];

fn compact_flags(instruction: &Instruction) -> u32 {
    let access = operation(instruction).access;
    let names: &[&str] = match (instruction.name, instruction.mode) {
        // Fetches its two bytes itself, one before and one after the pushes.
        ("JSR", _) | (_, Mode::Imp) => &[],
        (_, Mode::Acc) => &["ACCUMULATOR"],
        (_, Mode::Imm | Mode::Rel) => &["BYTE"],
        (_, Mode::Zp) => &["BYTE", "ZERO_PAGE"],
        (_, Mode::Zpx) => &["BYTE", "ZERO_PAGE", "BY_X"],
        (_, Mode::Zpy) => &["BYTE", "ZERO_PAGE", "BY_Y"],
        (_, Mode::Abs | Mode::Ind) => &["WORD"],
        (_, Mode::Absx) => &["WORD", "BY_X"],
        (_, Mode::Absy) => &["WORD", "BY_Y"],
        (_, Mode::Indx) => &["BYTE", "ZERO_PAGE", "BY_X", "BEFORE", "POINTER"],
        (_, Mode::Indy) => &["BYTE", "BY_Y", "POINTER"],
    };
    let memory = !matches!(instruction.mode, Mode::Imp | Mode::Acc | Mode::Imm | Mode::Rel);
    let mut chosen = names.to_vec();
    if instruction.page_penalty {
        chosen.push("PENALTY");
    }
    if memory && matches!(access, Access::Read | Access::Modify) {
        chosen.push("READS");
    }
    if memory && matches!(access, Access::Write | Access::Modify) {
        chosen.push("WRITES");
    }
    chosen.iter().fold(0, |all, name| all | 1 << flag_bit(name))
}

fn flag_bit(name: &str) -> usize {
    11 + COMPACT_FLAGS.iter().position(|(other, _)| *other == name).expect("a flag of the table")
}

/// Index of an instruction's arm: that of its operation, or one after all operations for the indirect jump.
fn compact_arm(instruction: &Instruction) -> usize {
    if instruction.mode == Mode::Ind {
        return OPERATIONS.len();
    }
    OPERATIONS.iter().position(|row| row.name == instruction.name).expect("every mnemonic has an operation")
}

/// Code of an operation after its operand has been fetched.
fn compact_text(row: &Operation) -> String {
    match (row.name, row.access) {
        (_, Access::Branch) => {
            format!("if {} {{ operations::branch(cpu, o); }}", expression_on_cpu(row.text))
        }
        ("JMP", _) => "cpu.pc = at as u16;".into(),
        (name, Access::Special) => {
            let instruction =
                INSTRUCTIONS.iter().find(|other| other.name == name).expect("an opcode of that name");
            special(instruction)
        }
        _ => on_cpu(row.text),
    }
}

/// Returns the text of `machine/compact.rs`.
pub fn compact() -> String {
    let mut out = String::from(
        "//! GENERATED by `cargo xtask kernels` from `instructions.rs`: the compact interpreter for GPUs, one arm
//! per operation. A table describes how each instruction accesses its operand. Lanes with different operations
//! share that code, and the text to compile is a seventh of that of `cpu`.
//!
//! Device subset.

use super::bus::{read, write};
use super::cpu::{add, subtract};
use super::operations::{self, Cpu, fetch, index, peek, pointer, pull, push};
use super::{Board, Machine};

",
    );
    for (i, (name, text)) in COMPACT_FLAGS.iter().enumerate() {
        let _ = writeln!(out, "/// {text}\nconst {name}: u32 = 1 << {};", 11 + i);
    }
    out.push_str("\n/// Per opcode: cycles in bits 0-3, the arm in bits 4-10, then the flags above.\n#[rustfmt::skip]\nconst ROWS: [u32; 256] = [\n");
    for line in INSTRUCTIONS.chunks(8) {
        out.push_str("   ");
        for instruction in line {
            let value =
                instruction.cycles | (compact_arm(instruction) << 4) as u32 | compact_flags(instruction);
            let _ = write!(out, " 0x{value:06X},");
        }
        out.push('\n');
    }
    out.push_str(
        "];

/// Runs until `budget` instructions are executed or a chip requests the end of the frame.
pub fn run(m: &mut Machine, board: &mut Board, rom: &[u8], budget: u32) {
    let mut cpu: Cpu = m.cpu;
    cpu.left = if cpu.jammed != 0 { 0 } else { budget };
    while cpu.left != 0 {
        cpu.left -= 1;
        execute(m, &mut cpu, board, rom);
    }
    m.cpu = cpu;
}

/// Executes one instruction. Returns its opcode.
#[rustfmt::skip]
#[inline(never)]
pub fn execute(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8]) -> u32 {
    let opcode: u32 = fetch(m, cpu, board, rom);
    let row: u32 = ROWS[opcode as usize];
    cpu.cycles = cpu.cycles.wrapping_add(row & 15);
    let mut o: u32 = 0;
    let mut at: u32 = 0;
    if row & (BYTE | WORD) != 0 {
        at = fetch(m, cpu, board, rom);
        if row & WORD != 0 {
            let high: u32 = fetch(m, cpu, board, rom);
            at |= high << 8;
        }
        o = at;
        if row & (BEFORE | ZERO_PAGE) != 0 {
            if row & BY_X != 0 {
                at += cpu.x as u32;
            }
            if row & BY_Y != 0 {
                at += cpu.y as u32;
            }
            at &= 0xFF;
        }
        if row & POINTER != 0 {
            at = pointer(m, cpu, board, rom, at);
        }
        if row & ZERO_PAGE == 0 && row & (BY_X | BY_Y) != 0 {
            let by: u8 = if row & BY_X != 0 { cpu.x } else { cpu.y };
            at = index(cpu, at, by, row & PENALTY != 0);
        }
        if row & READS != 0 {
            o = read(m, cpu, board, rom, at);
        }
    }
    if row & ACCUMULATOR != 0 {
        o = cpu.a as u32;
    }
    match row >> 4 & 0x7F {
",
    );
    for (number, row) in OPERATIONS.iter().enumerate() {
        let text = compact_text(row);
        let _ = writeln!(out, "        // {}", row.name);
        let _ = writeln!(out, "        {number} => {{ {} }}", text.trim_end());
    }
    out.push_str(
        "        // JMP indirect
        _ => { operations::jump_indirect(m, cpu, board, rom, at); }
    }
    if row & WRITES != 0 {
        write(m, cpu, board, at, o, false);
    }
    if row & ACCUMULATOR != 0 {
        cpu.a = o as u8;
    }
    opcode
}
",
    );
    out
}
