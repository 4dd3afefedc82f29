//! Generates the functions of the fast CPU: one per opcode and operand class, each ending in a tail call of
//! the next one, which the compiler makes a jump; and functions for frequent pairs of them. A function that
//! calls another one before that would save the registers of the chain even when it does not reach the call, so
//! an instruction that may access a device has two more: one that reads simple devices without calls (`d` instead
//! of `h`), and one that makes the calls (`e`).
//!
//! The definitions that the generated functions use (`Context`, the slow path) are in
//! `crates/cule/src/fast_cpu/mod.rs`.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::interpreter::instructions::{Access, INSTRUCTIONS, Instruction, Mode, Operation};
use crate::interpreter::{assigns, mentions, operation, rename};

/// Operand classes, each with functions of its own.
pub const CLASSES: [&str; 15] = [
    "PLAIN",
    "RAM",
    "TIA_READ",
    "TRIGGER",
    "STORE",
    "WSYNC",
    "TIA_UNUSED",
    "CONSTANT",
    "TIMER",
    "PORT",
    "RIOT_WRITE",
    "INDEX",
    "ROM_INDEXED",
    "SUPERCHIP",
    "DPC",
];

/// Candidates for functions of two instructions, most frequent first: `opcode class opcode class` per line.
const PAIRS: &str = include_str!("../data/pairs.txt");
/// Number of pairs that are generated.
const PAIR_COUNT: usize = 600;

/// The statements of an operation, on the variables of a function; `None` if it needs the slow path.
fn statements(text: &str) -> Option<String> {
    let value = |expression: &str| {
        rename(expression, |word| match word {
            "c" => Some("cf".into()),
            "s" => Some("(k.m.cpu.s as u32)".into()),
            "d" => Some("(k.m.cpu.decimal as u32)".into()),
            "i" => Some("(k.m.cpu.interrupt as u32)".into()),
            "h" => Some("(at >> 8)".into()),
            _ => None,
        })
    };
    let mut out = String::new();
    for statement in text.split("; ").filter(|statement| !statement.is_empty()) {
        match statement {
            "ADD" | "SUB" => {
                let operand = if statement == "ADD" { "o" } else { "(o ^ 0xFF)" };
                let _ = write!(
                    out,
                    "let w: u32 = {operand}; let t: u32 = a + w + cf; \
                     v = ((a ^ t) & (w ^ t)) >> 7 & 1; cf = t >> 8; a = t & 0xFF; n = a; "
                );
            }
            "ARR" => return None,
            _ => {
                let (target, expression) = statement.split_once(" = ").expect("an assignment");
                let expression = value(expression);
                let _ = match target {
                    "c" => write!(out, "cf = {expression}; "),
                    "s" => write!(out, "k.m.cpu.s = ({expression}) as u8; "),
                    "d" => write!(out, "k.m.cpu.decimal = {expression}; "),
                    "i" => write!(out, "k.m.cpu.interrupt = {expression}; "),
                    "t" => write!(out, "let t: u32 = {expression}; "),
                    _ => write!(out, "{target} = {expression}; "),
                };
            }
        }
    }
    Some(out)
}

/// Code that unpacks the registers which a text reads, and packs those which it changes.
struct Frame {
    open: String,
    close: String,
}

fn frame(text: &str) -> Frame {
    let sums = ["ADD", "SUB"].iter().any(|sum| mentions(text, sum));
    let uses = |name: &str| mentions(text, name) || (sums && ["a", "v", "c", "n"].contains(&name));
    let sets = |name: &str| assigns(text, name) || (sums && ["a", "v", "c", "n"].contains(&name));
    let mut open = String::new();
    if sums {
        // Not after a read, which the slow path would repeat.
        open.push_str("if k.m.cpu.decimal != 0 { slow!() } ");
    }
    let mut close = String::new();
    for (name, unpack) in [
        ("x", "let mut x: u32 = xy & 0xFF; "),
        ("y", "let mut y: u32 = xy >> 8 & 0xFF; "),
        ("v", "let mut v: u32 = xy >> 16 & 1; "),
        ("n", "let mut n: u32 = f & 0x80FF; "),
    ] {
        if uses(name) {
            open.push_str(unpack);
        }
    }
    if uses("c") {
        open.push_str("let mut cf: u32 = f >> 8 & 1; ");
    }
    for (name, pack) in [
        ("x", "xy = xy & 0xFF_FF00 | x; "),
        ("y", "xy = xy & 0xFF_00FF | y << 8; "),
        ("v", "xy = xy & 0x00_FFFF | v << 16; "),
    ] {
        if sets(name) {
            close.push_str(pack);
        }
    }
    close.push_str(match (sets("n"), sets("c")) {
        (true, true) => "f = n | cf << 8; ",
        (true, false) => "f = f & 0x100 | n; ",
        (false, true) => "f = f & 0x80FF | cf << 8; ",
        (false, false) => "",
    });
    Frame { open, close }
}

fn length(instruction: &Instruction) -> u32 {
    match instruction.mode {
        Mode::Imp | Mode::Acc => 1,
        Mode::Abs | Mode::Absx | Mode::Absy | Mode::Ind => 3,
        _ => 2,
    }
}

/// Code that computes the address of an operand of class `INDEX`. It may take the slow path.
fn indexed(instruction: &Instruction) -> Option<String> {
    let cross = |index: &str| {
        if instruction.page_penalty {
            format!("let at: u32 = base + ({index}) & 0xFFFF; cn += (((base ^ at) & 0x100) << 8) as u64; ")
        } else {
            format!("let at: u32 = base + ({index}) & 0xFFFF; ")
        }
    };
    Some(match instruction.mode {
        Mode::Abs => "let at: u32 = opr; ".into(),
        Mode::Zpx => "let at: u32 = opr + (xy & 0xFF) & 0xFF; ".into(),
        Mode::Zpy => "let at: u32 = opr + (xy >> 8 & 0xFF) & 0xFF; ".into(),
        Mode::Absx => format!("let base: u32 = opr; {}", cross("xy & 0xFF")),
        Mode::Absy => format!("let base: u32 = opr; {}", cross("xy >> 8 & 0xFF")),
        Mode::Indy => format!("let base: u32 = pointer_here!(); {}", cross("xy >> 8 & 0xFF")),
        Mode::Indx => {
            "let p: u32 = opr + (xy & 0xFF) & 0xFF; if p.wrapping_sub(0x80) > 0x7E { slow!() } let at: u32 = pointer!(p); "
                .into()
        }
        _ => return None,
    })
}

/// The body of one function. Before it, the cycles are counted; `opr` is the operand of the record, and `ip`
/// is after the instruction.
fn body(instruction: &Instruction, class: &str) -> Option<String> {
    let Operation { access, text, name } = *operation(instruction);
    let mode = instruction.mode;
    if access == Access::Special {
        return special(name, mode, class);
    }
    if access == Access::Branch {
        if class != "PLAIN" {
            return None;
        }
        let Frame { open, .. } = frame(text);
        let condition = statements(&format!("o = {text}"))?;
        let condition = condition.trim_start_matches("o = ").trim_end_matches("; ");
        return Some(format!(
            "{open}if {condition} {{ cn += (*ip0).extra as u64; ip = ip.byte_offset(opr as i32 as isize); check!(); }} "
        ));
    }
    let operation = statements(text)?;
    let Frame { open, close } = frame(text);
    let run = |get: &str, put: &str| Some(format!("{open}{get}{operation}{close}{put}"));
    match (mode, class) {
        (Mode::Imp, "PLAIN") => return run("", ""),
        (Mode::Acc, "PLAIN") => return Some(format!("{open}let mut o: u32 = a; {operation}a = o; {close}")),
        (Mode::Imm, "PLAIN") => return run("let o: u32 = opr; ", ""),
        (Mode::Imp | Mode::Acc | Mode::Imm, _) => return None,
        _ => {}
    }
    let constant = matches!(mode, Mode::Zp | Mode::Abs);
    let high = mode == Mode::Abs;
    match (class, access) {
        ("RAM", Access::Read) if constant => run("let o: u32 = ram_here!(); ", ""),
        ("RAM", Access::Write) if constant => run("let o: u32; ", "set_ram_here!(o); "),
        ("RAM", Access::Modify) if constant => run("let mut o: u32 = ram_here!(); ", "set_ram_here!(o); "),
        ("TIA_READ", Access::Read) if constant => {
            run(&format!("let o: u32 = k.read_tia(opr, {high}, cycles!()); "), "")
        }
        ("TRIGGER", Access::Read) if constant => {
            let noise = if high { "opr >> 8" } else { "opr" };
            run(&format!("let o: u32 = k.m.input.trigger[(opr & 1) as usize] as u32 | {noise} & 0x3F; "), "")
        }
        ("STORE", Access::Write) if constant => run("let o: u32; ", "store!(opr, o); "),
        ("WSYNC", Access::Write) if constant => run("let o: u32; ", "let _ = o; wsync!(); "),
        ("TIA_UNUSED", Access::Write) if constant => run("let o: u32; ", "let _ = o; limit!(); "),
        ("CONSTANT", Access::Read) if high => run("let o: u32 = opr; ", ""),
        ("TIMER", Access::Read) if high => run("let o: u32 = timer!(); ", ""),
        ("PORT", Access::Read) if high => run("let o: u32 = k.read_port(opr, cycles!()); ", ""),
        ("RIOT_WRITE", Access::Write) if high => run("let o: u32; ", "k.write_riot(opr, o, cycles!()); "),
        ("SUPERCHIP", Access::Read) if high => run("let o: u32 = superchip!(opr); ", ""),
        ("SUPERCHIP", Access::Write) if high => run("let o: u32; ", "set_superchip!(opr, o); "),
        ("DPC", Access::Read) if high => run("let o: u32 = fetcher!(opr); ", ""),
        ("ROM_INDEXED", Access::Read) if matches!(mode, Mode::Absx | Mode::Absy) => {
            run(&format!("{}let o: u32 = rom!(at); ", indexed(instruction)?), "")
        }
        ("INDEX", _) => {
            let find = indexed(instruction)?;
            let zero_page = matches!(mode, Mode::Zpx | Mode::Zpy);
            match access {
                Access::Read if zero_page => {
                    let o = "if at & 0x80 == 0 { device!(at, opr) } else { ram!(at) }";
                    run(&format!("{find}let o: u32 = {o}; "), "")
                }
                // The last byte read before the access stays on the bus: of the operand or of the pointer.
                Access::Read if matches!(mode, Mode::Indx | Mode::Indy) => {
                    let high = if mode == Mode::Indx { "at >> 8" } else { "base >> 8" };
                    run(&format!("{find}let o: u32 = load!(at, {high}); "), "")
                }
                Access::Read => run(&format!("{find}let o: u32 = load!(at, opr >> 8); "), ""),
                Access::Write if zero_page => run(
                    &format!("{find}let o: u32; "),
                    "if at & 0x80 == 0 { store!(at & 0x3F, o); } else { set_ram!(at, o); } ",
                ),
                // SHS changes S before it is known whether the store can be executed here.
                Access::Write if name != "SHS" => run(&format!("{find}let o: u32; "), "put!(at, o); "),
                Access::Modify => {
                    let test = if zero_page { "at & 0x80 == 0" } else { "at & 0x1280 != 0x0080" };
                    run(
                        &format!("{find}if {test} {{ slow!() }} let mut o: u32 = ram!(at); "),
                        "set_ram!(at, o); ",
                    )
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn special(name: &str, mode: Mode, class: &str) -> Option<String> {
    if (name, mode, class) == ("JMP", Mode::Ind, "INDEX") {
        return Some(
            "let low: u32 = memory!(opr); let high: u32 = memory!(opr & 0xFF00 | opr + 1 & 0xFF); \
             let to: u32 = low | high << 8; if to & 0x1000 == 0 { slow!() } jump!(to); check!(); "
                .into(),
        );
    }
    if class != "PLAIN" {
        return None;
    }
    Some(
        match (name, mode) {
            ("JMP", Mode::Abs) => "jump!(opr); check!(); ",
            ("JSR", _) => "call!(); check!(); ",
            ("RTS", _) => "back!(); check!(); ",
            ("PHA", _) => "let o: u32 = a; push!(o); ",
            ("PHP", _) => "let o: u32 = k.status(xy, f); push!(o); ",
            ("PLA", _) => "let o: u32 = pull!(); a = o; f = f & 0x100 | o; ",
            ("PLP", _) => {
                "let o: u32 = pull!(); f = k.set_status(o); xy = xy & 0x00_FFFF | (o >> 6 & 1) << 16; "
            }
            _ => return None,
        }
        .into(),
    )
}

/// True if the next instruction may not be the next record.
fn ends(instruction: &Instruction) -> bool {
    operation(instruction).access == Access::Branch || matches!(instruction.name, "JMP" | "JSR" | "RTS")
}

const PROLOGUE: &str = "let (mut ip, mut xy, mut a, mut cn, mut f) = (ip_, xy_, a_, cn_, f_); ";

/// How a function accesses devices.
#[derive(Clone, Copy)]
enum Devices {
    /// It jumps to function `d` of this number, without a change of the registers.
    Left(usize),
    /// It reads simple devices itself, and otherwise jumps to function `e` of this number.
    Simple(usize),
    /// It calls functions.
    Called,
}

/// A body with the prologue and epilogue of every body.
fn block(instruction: &Instruction, body: &str, devices: Devices) -> String {
    format!(
        "{{ let (ip0, xy0, a0, cn0, f0) = (ip, xy, a, cn, f); let opr: u32 = (*ip).operand; \
         cn = cn.wrapping_add({}); ip = ip.add({}); {}}} ",
        (u64::from(instruction.cycles) << 16) - 1,
        length(instruction),
        expand(body, devices)
    )
}

/// Macros of the bodies and their expansions; `$0` and `$1` are arguments.
const WORDS: [(&str, &str); 29] = [
    ("slow", "return slow::<S>(k, ip0, xy0, a0, cn0, f0);"),
    ("cycles", "((cn >> 16) as u32)"),
    ("ram", "(*k.m.riot.ram.get_unchecked((($0) & 0x7F) as usize) as u32)"),
    ("set_ram", "*k.m.riot.ram.get_unchecked_mut((($0) & 0x7F) as usize) = ($1) as u8"),
    // The operand is the offset in RAM.
    ("ram_here", "(*k.m.riot.ram.get_unchecked(opr as usize) as u32)"),
    ("set_ram_here", "*k.m.riot.ram.get_unchecked_mut(opr as usize) = ($0) as u8"),
    ("pointer_here", "k.ram_word(opr)"),
    ("superchip", "(*k.m.cart.ram.get_unchecked((($0) & 0x7F) as usize) as u32)"),
    ("set_superchip", "*k.m.cart.ram.get_unchecked_mut((($0) & 0x7F) as usize) = ($1) as u8"),
    ("limit", "if cn >= k.limit { slow!() }"),
    (
        "store",
        "limit!(); let r: usize = ($0) as usize; if *k.shadow.get_unchecked(r) != ($1) as u16 { \
         return (*Stores::<S>::TABLE.get_unchecked(r))(k, ip, xy | ($1) << 24, a, cn, f); }",
    ),
    (
        "wsync",
        "limit!(); let phase: u32 = cycles!().wrapping_sub(k.origin_cycles) % 76; \
         if phase != 0 { cn += ((76 - phase) as u64) << 16; }",
    ),
    (
        "timer",
        "{ let passed: u32 = cycles!().wrapping_sub(k.m.riot.set_at).wrapping_sub(1) >> (k.m.riot.shift & 15); \
         let left: i32 = u32::from(k.m.riot.timer).wrapping_sub(passed).wrapping_sub(1) as i32; \
         if left < 0 { slow!() } left as u32 }",
    ),
    ("rom", "k.rom::<S>($0)"),
    (
        "load",
        "if (($0) & 0x1FFF).wrapping_sub(k.plain_low) < k.plain_span { rom!($0) } \
         else if ($0) & 0x1280 == 0x0080 { ram!($0) } \
         else { device!($0, $1) }",
    ),
    (
        "memory",
        "if (($0) & 0x1FFF).wrapping_sub(k.plain_low) < k.plain_span { rom!($0) } \
         else if ($0) & 0x1280 == 0x0080 { ram!($0) } else { slow!() }",
    ),
    (
        "put",
        "if ($0) & 0x1280 == 0x0080 { set_ram!($0, $1); } \
         else if ($0) & 0x1080 == 0 { store!(($0) & 0x3F, $1); } \
         else { put_device!($0, $1) }",
    ),
    // The two bytes are adjacent in RAM: the first is not the last of it.
    ("pointer", "k.ram_word(($0) & 0x7F)"),
    ("jump", "ip = k.jump::<S>($0)"),
    (
        "call",
        "let s: u32 = k.m.cpu.s as u32; if s < 0x81 { slow!() } let pc: u32 = k.pc::<S>(ip) - 1; \
         k.set_ram_word(s - 1 & 0x7F, pc); k.m.cpu.s = (s - 2) as u8; jump!(opr)",
    ),
    (
        "back",
        "let s: u32 = k.m.cpu.s as u32; if s.wrapping_sub(0x7F) > 0x7E { slow!() } \
         let pc: u32 = pointer!(s + 1); \
         if (pc & 0x1FFF).wrapping_sub(k.plain_low) >= k.plain_span - 1 { slow!() } \
         k.m.cpu.s = (s + 2) as u8; jump!(pc + 1)",
    ),
    (
        "push",
        "let s: u32 = k.m.cpu.s as u32; if s & 0x80 == 0 { limit!(); k.m.cpu.s = s.wrapping_sub(1) as u8; \
         store!(s & 0x3F, $0); } else { set_ram!(s, $0); k.m.cpu.s = (s - 1) as u8; }",
    ),
    (
        "pull",
        "{ let s: u32 = k.m.cpu.s.wrapping_add(1) as u32; \
         let o: u32 = if s & 0x80 == 0 { pull_device!(s) } else { ram!(s) }; k.m.cpu.s = s as u8; o }",
    ),
    ("device", "{ let o: u32 = k.load_device($0, $1, cycles!()); if o > 0xFF { slow!() } o }"),
    ("put_device", "if !k.store_device($0, $1, cycles!()) { slow!() }"),
    ("pull_device", "k.pull_tia($0, cycles!())"),
    ("fetcher", "k.read_fetcher($0, cycles!())"),
    (
        "check",
        "if cfg!(debug_assertions) || (cn as u16) < RESERVE { return leave::<S>(k, ip, xy, a, cn, f); }",
    ),
    ("next", "((*ip).function)(k, ip, xy, a, cn, f)"),
];

/// Words that call a function and then continue.
const DEVICES: [&str; 3] = ["device", "put_device", "pull_device"];

/// Expands all occurrences of `word!(arguments)`, those of `DEVICES` as `devices` demands.
fn expand(text: &str, devices: Devices) -> String {
    let mut text = text.to_string();
    while let Some(bang) = text.find("!(") {
        let start =
            text[..bang].rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let name = &text[start..bang];
        let mut depth = 0;
        let mut arguments = vec![String::new()];
        let mut end = bang + 2;
        for c in text[bang + 2..].chars() {
            end += c.len_utf8();
            match c {
                ')' if depth == 0 => break,
                ',' if depth == 0 => {
                    arguments.push(String::new());
                    continue;
                }
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if let Some(last) = arguments.last_mut() {
                last.push(c);
            }
        }
        if name == "cfg" {
            // Not a macro of the bodies: hidden until the end.
            text.replace_range(bang..=bang, "\u{1}");
            continue;
        }
        let (_, meaning) = WORDS.iter().find(|(word, _)| *word == name).expect("a word of the bodies");
        let jump = |letter: char, number: usize| {
            format!("{{ return {letter}{number}::<S>(k, ip0, xy0, a0, cn0, f0); }}")
        };
        let mut meaning = match devices {
            Devices::Left(number) if DEVICES.contains(&name) => jump('d', number),
            Devices::Left(number) if name == "fetcher" => {
                format!("{{ let o: u32 = k.read_display($0); if o > 0xFF {} o }}", jump('d', number))
            }
            Devices::Simple(number) if name == "device" => format!(
                "{{ let o: u32 = k.load_simple_device($0, $1, cycles!()); if o > 0xFF {} o }}",
                jump('e', number)
            ),
            Devices::Simple(number) if name == "pull_device" => format!(
                "{{ let o: u32 = k.pull_simple_device($0, cycles!()); if o > 0xFF {} o }}",
                jump('e', number)
            ),
            Devices::Simple(number) if name == "put_device" => jump('e', number),
            _ => (*meaning).to_string(),
        };
        for (i, argument) in arguments.iter().enumerate() {
            meaning = meaning.replace(&format!("${i}"), argument.trim());
        }
        text.replace_range(start..end, &meaning);
    }
    text.replace('\u{1}', "!")
}

/// A generated function.
struct Handler {
    opcode: usize,
    class: &'static str,
    /// Without calls, so that no register is saved.
    body: String,
    /// With accesses of simple devices, and with calls that access all of them, if the instruction may do so; one
    /// body if they are equal.
    with_devices: Vec<String>,
}

fn handlers() -> Vec<Handler> {
    let mut all = vec![];
    for (opcode, instruction) in INSTRUCTIONS.iter().enumerate() {
        for class in CLASSES {
            if let Some(body) = body(instruction, class) {
                let number = all.len();
                let [left, simple, called] =
                    [Devices::Left(number), Devices::Simple(number), Devices::Called]
                        .map(|devices| block(instruction, &body, devices));
                let mut with_devices = if called != left { vec![simple, called] } else { vec![] };
                with_devices.dedup();
                let body = left;
                all.push(Handler { opcode, class, body, with_devices });
            }
        }
    }
    all
}

const SIGNATURE: &str = "[const S: bool](k, ip_, xy_, a_, cn_, f_)";

/// Returns the text of `fast_cpu/handlers.rs`.
pub fn handlers_file() -> String {
    let handlers = handlers();
    let index: HashMap<(usize, &str), usize> =
        handlers.iter().enumerate().map(|(i, handler)| ((handler.opcode, handler.class), i)).collect();
    let mut pairs = vec![];
    for line in PAIRS.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [first, class_1, second, class_2, ..] = words.as_slice() else { continue };
        let opcode = |text: &str| usize::from_str_radix(text, 16).expect("an opcode in hexadecimal");
        let known = |text: &str| *CLASSES.iter().find(|class| **class == text).expect("a known class");
        let (one, two) =
            (index.get(&(opcode(first), known(class_1))), index.get(&(opcode(second), known(class_2))));
        if let (Some(&one), Some(&two)) = (one, two)
            && !ends(&INSTRUCTIONS[handlers[one].opcode])
            && pairs.len() < PAIR_COUNT
        {
            pairs.push((one, two));
        }
    }
    // Sorted by index, for binary search.
    pairs.sort_unstable();
    let mut out = String::from(
        "//! GENERATED by `cargo xtask kernels` from `machine/instructions.rs`: one function per opcode and operand class.
//!
//! SAFETY: the functions may only be called as `fast_cpu::run` does: `ip` points to a record of the code that `k`
//! was created for, and the pointers in `k` are those of that code and of a live board.

#![allow(
    clippy::all,
    unused,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    reason = \"generated: all functions have the same prologue, and some do not use all of it\"
)]

use super::{Context, Handler, RESERVE, Record, leave, slow};
use super::stores::Stores;

",
    );
    let _ = writeln!(out, "/// Operand classes.");
    for (i, class) in CLASSES.iter().enumerate() {
        let _ = writeln!(out, "pub const {class}: usize = {i};");
    }
    let _ = writeln!(out, "/// Names of the classes.\npub const CLASS_NAMES: [&str; CLASSES] = {CLASSES:?};");
    let _ = writeln!(out, "pub const CLASSES: usize = {};", CLASSES.len());
    let _ = writeln!(out, "/// No function (slow path).\npub const NONE: u16 = 0xFFFF;");
    let _ = writeln!(out, "/// Index of the function for an opcode and an operand class, or `NONE`.");
    let _ = writeln!(out, "#[rustfmt::skip]\npub const NUMBER: [[u16; CLASSES]; 256] = [");
    for opcode in 0..256 {
        let row: Vec<String> = CLASSES
            .iter()
            .map(|class| index.get(&(opcode, *class)).map_or("NONE".into(), ToString::to_string))
            .collect();
        let _ = writeln!(out, "    [{}],", row.join(", "));
    }
    let _ = writeln!(out, "];");
    let next = expand("next!()", Devices::Called);
    for (i, Handler { opcode, class, body, with_devices }) in handlers.iter().enumerate() {
        let name = INSTRUCTIONS[*opcode].name;
        let _ = writeln!(out, "/// {name} {:?} {class}\n#[rustfmt::skip]", INSTRUCTIONS[*opcode].mode);
        let _ = writeln!(out, "chain! {{ unsafe fn h{i}{SIGNATURE} {{ {PROLOGUE}{body}{next} }} }}");
        for (letter, body) in ["d", "e"].iter().zip(with_devices) {
            let _ = writeln!(
                out,
                "#[rustfmt::skip]\nchain! {{ #[cold] #[inline(never)] unsafe fn {letter}{i}{SIGNATURE} {{ {PROLOGUE}{body}{next} }} }}"
            );
        }
    }
    for (one, two) in &pairs {
        let _ = writeln!(out, "#[rustfmt::skip]");
        let _ = writeln!(
            out,
            "chain! {{ unsafe fn p{one}_{two}{SIGNATURE} {{ {PROLOGUE}{}{}{next} }} }}",
            handlers[*one].body, handlers[*two].body,
        );
    }
    let names: Vec<String> = (0..handlers.len()).map(|i| format!("h{i}::<S>")).collect();
    let _ = writeln!(out, "/// All functions, indexed by `NUMBER`.\npub struct HANDLERS<const S: bool>;");
    let _ = writeln!(
        out,
        "#[rustfmt::skip]\nimpl<const S: bool> HANDLERS<S> {{\n    pub const TABLE: [Handler; {}] = [{}];\n    /// Functions \
         for two instructions, sorted by the indices of their functions.\n    pub const PAIRS: &'static [(u16, u16, Handler); {}] = &[{}];\n}}",
        names.len(),
        names.join(", "),
        pairs.len(),
        pairs.iter().map(|(a, b)| format!("({a}, {b}, p{a}_{b}::<S>)")).collect::<Vec<_>>().join(", ")
    );
    out
}
