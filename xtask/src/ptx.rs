//! Generates the interpreter of the 6507 for GPUs from `crates/cule/src/machine/instructions.rs`: one block
//! of inline PTX whose handlers are reached by `brx.idx`, a jump table (NVRTC compiles a C++ `switch` to
//! comparisons).
//!
//! The block executes instructions that access RAM, plain ROM or the running timer only. It ends before any other instruction
//! (code 1: `machine::cpu` executes it). For a store to the TIA it executes everything except the store (code
//! 2: `machine::bus` writes `value` to `address`). Decoded instructions are in records of 8 bytes per ROM
//! address, created once per ROM by `machine/records.rs`.
//!
//! The block also ends at a branch, a jump and the end of a KiB (code 0): lanes of a warp that have diverged
//! can converge there (`kernels/forms.cuh`).

use crate::interpreter::instructions::{Access, INSTRUCTIONS, Instruction, Mode, Operation};
use crate::interpreter::{mentions, operation};
use std::fmt::Write as _;

/// Maximum number of instructions between two checks of the budget: there are no more between two taken
/// branches.
pub const SLACK: u32 = 4200;
/// ADC without decimal mode, of `a` and `u`.
pub const ADD: &str = "t = a + u + c; v = ((a ^ t) & (u ^ t)) >> 7 & 1; c = t >> 8; n = t & 0xFF; a = n";
/// Offsets in `machine::riot::Riot`: cycle of the last write to the timer, its value, and its prescaler as a shift.
const TIMER_SET_AT: u32 = 128;
const TIMER: u32 = 136;
const TIMER_SHIFT: u32 = 137;
/// Index of the handler that ends the block.
const SLOW: usize = 0;

/// Registers of the block that are kept after it, in the order of `FIELDS`.
pub const STATE: [&str; 11] = ["a", "x", "y", "s", "c", "v", "d", "n", "cyc", "left", "pc"];
/// Outputs of the block.
pub const RESULTS: [&str; 3] = ["code", "q", "o"];
/// Inputs: addresses in shared memory of the RIOT, whose RAM comes first, of the cartridge's segments and of the interrupt flag;
/// ROM, records, the plain part of the window.
pub const INPUTS: [&str; 7] = ["ram", "seg", "irq", "rom", "dec", "first", "span"];

/// The block, before names are replaced by operand numbers.
pub struct Block {
    /// PTX without the braces, one instruction or label per line.
    pub lines: Vec<String>,
    /// Operation and form of each handler.
    pub handlers: Vec<(String, Form)>,
}

/// How a handler accesses its operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Ends the block.
    Slow,
    /// No operand.
    Implied,
    /// The accumulator.
    Accumulator,
    /// Immediate.
    Immediate,
    /// RAM at an offset that the instruction contains.
    Ram,
    /// TIA, write only, at an address that the instruction contains.
    Tia,
    /// Cartridge window, read only, at an address that the instruction contains.
    Window,
    /// The timer of the RIOT, read only.
    Timer,
    /// Page zero plus X.
    ZeroX,
    /// Page zero plus Y.
    ZeroY,
    /// Any address plus X.
    IndexX,
    /// Any address plus Y.
    IndexY,
    /// Through a pointer in RAM, plus Y.
    Pointer,
    /// Through a pointer in RAM at an address plus X.
    PointerX,
    /// To the address in RAM.
    Indirect,
    /// A branch.
    Branch,
    /// Stack instruction or jump, handled separately.
    Special,
}

/// Forms of an opcode: with its only operand or one in RAM; with one in the TIA; with one in the cartridge; with the timer.
fn forms(instruction: &Instruction) -> [Form; 4] {
    let Operation { access, text, .. } = *operation(instruction);
    let one = |form: Form| [form, Form::Slow, Form::Slow, Form::Slow];
    // The interrupt flag and the undocumented stores are rare.
    if text == "ARR" || mentions(text, "h") || mentions(text, "i") {
        return one(Form::Slow);
    }
    let (reads, writes) = (access == Access::Read, access == Access::Write);
    let tia = if writes { Form::Tia } else { Form::Slow };
    match (instruction.mode, access) {
        (_, Access::Branch) => one(Form::Branch),
        (Mode::Abs, Access::Special) => one(Form::Special),
        (Mode::Ind, Access::Special) => one(Form::Indirect),
        (_, Access::Special) if matches!(instruction.name, "PHA" | "PLA" | "PHP" | "PLP" | "RTS") => {
            one(Form::Special)
        }
        (_, Access::Special) => one(Form::Slow),
        (Mode::Imp, _) => one(Form::Implied),
        (Mode::Acc, _) => one(Form::Accumulator),
        (Mode::Imm, _) => one(Form::Immediate),
        (Mode::Zp, _) => [Form::Ram, tia, Form::Slow, Form::Slow],
        (Mode::Abs, _) if reads => [Form::Ram, tia, Form::Window, Form::Timer],
        (Mode::Abs, _) => [Form::Ram, tia, Form::Slow, Form::Slow],
        (Mode::Zpx, _) => one(Form::ZeroX),
        (Mode::Zpy, _) => one(Form::ZeroY),
        (Mode::Absx, Access::Read | Access::Write) => one(Form::IndexX),
        (Mode::Absy, Access::Read | Access::Write) => one(Form::IndexY),
        (Mode::Indy, Access::Read | Access::Write) => one(Form::Pointer),
        (Mode::Indx, Access::Read | Access::Write) => one(Form::PointerX),
        _ => one(Form::Slow),
    }
}

/// All handlers, and the four handler indices of every opcode.
fn numbering() -> (Vec<(String, Form)>, Vec<[usize; 4]>) {
    let mut handlers: Vec<(String, Form)> = vec![(String::new(), Form::Slow)];
    let rows = INSTRUCTIONS.iter().map(|instruction| {
        forms(instruction).map(|form| {
            if form == Form::Slow {
                return SLOW;
            }
            let wanted = (instruction.name.to_string(), form);
            handlers.iter().position(|known| *known == wanted).unwrap_or_else(|| {
                handlers.push(wanted);
                handlers.len() - 1
            })
        })
    });
    let rows = rows.collect();
    (handlers, rows)
}

// ---------------------------------------------------------------- expressions

/// Translates the text of an operation to PTX.
struct Writer {
    lines: Vec<String>,
    temporaries: usize,
}

impl Writer {
    fn put(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Appends several instructions, separated by `; `.
    fn puts(&mut self, lines: &str) {
        lines.split("; ").filter(|line| !line.is_empty()).for_each(|line| self.put(line));
    }

    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("k{}", self.temporaries - 1)
    }

    /// Appends the assignments of an operation.
    fn operation(&mut self, text: &str) {
        for statement in text.split("; ").filter(|statement| !statement.is_empty()) {
            match statement {
                "ADD" => self.operation(&format!("u = o; {ADD}")),
                "SUB" => self.operation(&format!("u = o ^ 0xFF; {ADD}")),
                _ => {
                    let (target, expression) = statement.split_once(" = ").expect("an assignment");
                    self.temporaries = 0;
                    let tokens = tokens(expression);
                    let mut at = 0;
                    let value = self.level(&tokens, &mut at, 0);
                    assert_eq!(at, tokens.len(), "{statement}");
                    self.settle(target, &value);
                }
            }
        }
    }

    /// Assigns the value to `target`: directly, if the last instruction computes the value, or by a move.
    fn settle(&mut self, target: &str, value: &str) {
        if value.starts_with('k')
            && let Some(last) = self.lines.last_mut()
            && let Some((instruction, rest)) = last.split_once(' ')
            && let Some(rest) = rest.strip_prefix(&format!("{value},"))
        {
            *last = format!("{instruction} {target},{rest}");
            return;
        }
        self.put(format!("mov.u32 {target},{value}"));
    }

    /// Translates binary operators from `level` on, the weakest first. Returns the operand that holds the
    /// value.
    fn level(&mut self, tokens: &[String], at: &mut usize, level: usize) -> String {
        const LEVELS: [&[(&str, &str)]; 5] = [
            &[("|", "or.b32")],
            &[("^", "xor.b32")],
            &[("&", "and.b32")],
            &[("<<", "shl.b32"), (">>", "shr.u32")],
            &[("+", "add.u32"), ("-", "sub.u32")],
        ];
        if level == LEVELS.len() {
            let token = &tokens[*at];
            *at += 1;
            if token == "(" {
                let value = self.level(tokens, at, 0);
                assert_eq!(tokens[*at], ")");
                *at += 1;
                return value;
            }
            return token.clone();
        }
        let mut left = self.level(tokens, at, level + 1);
        while let Some(operator) = tokens.get(*at) {
            let Some((_, instruction)) = LEVELS[level].iter().find(|(symbol, _)| symbol == operator) else {
                break;
            };
            *at += 1;
            let right = self.level(tokens, at, level + 1);
            let result = self.temporary();
            self.put(format!("{instruction} {result},{left},{right}"));
            left = result;
        }
        left
    }
}

/// Names, numbers, operators and parentheses of an expression.
pub fn tokens(text: &str) -> Vec<String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    spaced.split_whitespace().map(str::to_string).collect()
}

// ---------------------------------------------------------------- handlers

/// The address in shared memory of the RAM byte at `from`.
fn ram_place(to: &str, from: &str) -> String {
    format!("and.b32 {to},{from},0x7F; add.u32 {to},{to},ram")
}

/// Branches to `otherwise` unless address `at` is plain ROM; else puts its offset in the ROM into `to`. Segments 0-3 are those of
/// addresses with A13 = 0, and a segment is a number of 16 bits.
fn rom_offset(to: &str, at: &str, otherwise: &str) -> String {
    format!(
        "and.b32 t0,{at},0x1FFF; sub.u32 t0,t0,first; setp.ge.u32 p,t0,span; @p bra {otherwise}; \
         shr.u32 t0,{at},9; and.b32 t0,t0,6; shr.u32 t1,{at},10; and.b32 t1,t1,8; or.b32 t0,t0,t1; add.u32 t0,t0,seg; \
         ld.shared.u16 t0,[t0]; shl.b32 t0,t0,10; and.b32 t1,{at},0x3FF; add.u32 {to},t0,t1"
    )
}

/// Loads the ROM byte at address `q` into `o`. Ends the block if the address is not plain ROM.
fn read_window() -> String {
    rom_offset("t0", "q", "LSLOW") + "; " + LOAD_ROM
}

/// Loads the ROM byte at offset `t0`.
const LOAD_ROM: &str = "cvt.u64.u32 dd,t0; add.u64 dd,dd,rom; ld.global.nc.u8 o,[dd]";

/// Reads address `q` into `o`, from plain ROM or RAM; other addresses end the block. `number` is that of the handler. Returns
/// instructions that follow the handler.
fn read_any(w: &mut Writer, number: usize) -> String {
    w.puts(&rom_offset("t0", "q", &format!("R{number}")));
    w.puts(LOAD_ROM);
    w.put(format!("C{number}:"));
    format!(
        "R{number}:; and.b32 t0,q,0x1280; setp.ne.u32 p,t0,0x80; @p bra LSLOW; {}; ld.shared.u8 o,[t0]; bra C{number}",
        ram_place("t0", "q")
    )
}

/// Writes the operand to address `q`, in RAM or in the TIA; other addresses end the block.
fn write_any(w: &mut Writer, text: &str, number: usize) {
    w.puts(&format!("and.b32 t0,q,0x1280; setp.ne.u32 p,t0,0x80; @p bra R{number}"));
    w.operation(text);
    w.puts(&format!("{}; st.shared.u8 [t0],o; bra LNEXT", ram_place("t0", "q")));
    w.puts(&format!("R{number}:; and.b32 t0,q,0x1080; setp.ne.u32 p,t0,0; @p bra LSLOW"));
    w.operation(text);
    w.put("bra LSTORE");
}

/// Loads the pointer at RAM offset `low` (and `high`) into `w`.
fn load_pointer(w: &mut Writer, low: &str, high: &str) {
    w.puts(&format!("add.u32 t0,{low},ram; ld.shared.u8 w,[t0]; add.u32 t0,{high},ram; ld.shared.u8 q,[t0]"));
    w.puts("shl.b32 q,q,8; or.b32 w,w,q");
}

/// One extra cycle if `q` and `from` are on different pages; added at the end.
fn penalty(from: &str) -> String {
    format!("xor.b32 pen,{from},q; and.b32 pen,pen,0xFF00; setp.ne.u32 p,pen,0; selp.u32 pen,1,0,p")
}

/// Whether an index that crosses a page costs a cycle.
fn has_penalty(name: &str, form: Form) -> bool {
    let mode = match form {
        Form::IndexX => Mode::Absx,
        Form::IndexY => Mode::Absy,
        _ => Mode::Indy,
    };
    INSTRUCTIONS.iter().any(|i| i.name == name && i.mode == mode && i.page_penalty)
}

fn handler(w: &mut Writer, name: &str, form: Form, number: usize) {
    if form == Form::Slow {
        return w.put("bra LSLOW");
    }
    let Operation { access, text, .. } =
        *operation(INSTRUCTIONS.iter().find(|i| i.name == name).expect("a known operation"));
    if text.contains("ADD") || text.contains("SUB") {
        w.puts("setp.ne.u32 p,d,0; @p bra LSLOW");
    }
    let writes = access == Access::Write;
    match form {
        Form::Slow | Form::Implied => {}
        Form::Accumulator => w.put("mov.u32 o,a"),
        Form::Immediate => w.put("mov.u32 o,w"),
        Form::Ram => w.put("add.u32 q,w,ram"),
        Form::Tia => {
            w.operation(text);
            return w.puts("mov.u32 q,w; bra LSTORE");
        }
        Form::Window => w.puts(&format!("mov.u32 q,w; {}", read_window())),
        Form::Timer => {
            // As `machine::riot::read_timer`, before the timer has expired.
            w.puts(&format!("add.u32 t0,ram,{TIMER_SET_AT}; ld.shared.u32 t1,[t0]"));
            w.puts(&format!("add.u32 t0,ram,{TIMER_SHIFT}; ld.shared.u8 t2,[t0]"));
            w.puts("sub.u32 t1,cyc,t1; sub.u32 t1,t1,1; shr.u32 t1,t1,t2");
            w.puts(&format!("add.u32 t0,ram,{TIMER}; ld.shared.u8 o,[t0]"));
            w.puts("setp.ge.u32 p,t1,o; @p bra LSLOW; sub.u32 o,o,t1; sub.u32 o,o,1");
        }
        Form::ZeroX | Form::ZeroY => {
            let index = if form == Form::ZeroX { "x" } else { "y" };
            w.puts(&format!("add.u32 q,w,{index}; and.b32 q,q,0xFF"));
            if !writes {
                w.puts("setp.lt.u32 p,q,128; @p bra LSLOW");
                w.puts(&ram_place("q", "q"));
            }
        }
        Form::IndexX | Form::IndexY => {
            let index = if form == Form::IndexX { "x" } else { "y" };
            w.puts(&format!("add.u32 q,w,{index}; and.b32 q,q,0xFFFF"));
        }
        Form::Pointer => {
            w.put("shr.u32 t1,e1,16");
            load_pointer(w, "w", "t1");
            w.puts("add.u32 q,w,y; and.b32 q,q,0xFFFF");
        }
        Form::PointerX => {
            // Both bytes of the pointer are in RAM.
            w.puts(
                "add.u32 t1,w,x; and.b32 t1,t1,0xFF; sub.u32 t1,t1,0x80; setp.ge.u32 p,t1,0x7F; @p bra LSLOW",
            );
            w.put("add.u32 t2,t1,1");
            load_pointer(w, "t1", "t2");
            w.put("mov.u32 q,w");
        }
        Form::Indirect => {
            w.put("add.u32 t1,w,1");
            load_pointer(w, "w", "t1");
            return w.puts("mov.u32 pc,w; bra LDONE");
        }
        Form::Branch => return branch(w, text),
        Form::Special => return special(w, name, number),
    }
    let any = matches!(form, Form::IndexX | Form::IndexY | Form::Pointer | Form::PointerX);
    if writes && (any || matches!(form, Form::ZeroX | Form::ZeroY)) {
        return write_any(w, text, number);
    }
    let after = if any { read_any(w, number) } else { String::new() };
    let pays = any && form != Form::PointerX && has_penalty(name, form);
    if pays {
        w.puts(&penalty("w"));
    }
    let in_ram = matches!(form, Form::Ram | Form::ZeroX | Form::ZeroY);
    if in_ram && access != Access::Write {
        w.put("ld.shared.u8 o,[q]");
    }
    w.operation(text);
    if in_ram && access != Access::Read {
        w.put("st.shared.u8 [q],o");
    }
    if form == Form::Accumulator {
        w.put("mov.u32 a,o");
    }
    if pays {
        w.put("add.u32 cyc,cyc,pen");
    }
    w.put("bra LNEXT");
    w.puts(&after);
}

/// A branch; `w` is the distance, 16 bits.
fn branch(w: &mut Writer, text: &str) {
    let (left, right, test) = match (text.split_once(" == "), text.split_once(" != ")) {
        (Some((left, right)), _) => (left, right, "ne"),
        (None, Some((left, right))) => (left, right, "eq"),
        _ => panic!("a branch compares: {text}"),
    };
    w.operation(&format!("t = {left}"));
    w.puts(&format!("setp.{test}.u32 p,t,{right}; @p bra LDONE"));
    w.puts("add.u32 q,pc,w; and.b32 q,q,0xFFFF; and.b32 pc,pc,0xFFFF");
    w.puts(&penalty("pc"));
    w.puts("add.u32 cyc,cyc,pen; add.u32 cyc,cyc,1; mov.u32 pc,q; bra LDONE");
}

/// Pushes `o`, to RAM, or to the TIA, which ends the block.
fn push_any(w: &mut Writer, number: usize) {
    w.puts(&format!("mov.u32 q,s; sub.u32 s,s,1; and.b32 s,s,0xFF; setp.lt.u32 p,q,0x80; @p bra R{number}"));
    w.puts(&format!("{}; st.shared.u8 [t0],o; bra LNEXT", ram_place("t0", "q")));
    w.puts(&format!("R{number}:; or.b32 q,q,0x100; bra LSTORE"));
}

fn special(w: &mut Writer, name: &str, number: usize) {
    let push = |w: &mut Writer, value: &str| {
        w.puts(&format!("{}; st.shared.u8 [t0],{value}", ram_place("t0", "s")));
        w.puts("add.u32 s,s,255; and.b32 s,s,0xFF");
    };
    let pull = |w: &mut Writer, to: &str, above: u32| {
        w.puts(&format!("add.u32 t2,s,{above}; {}", ram_place("t0", "t2")));
        w.put(format!("ld.shared.u8 {to},[t0]"));
    };
    // Checks that the stack accesses are in RAM: `s - first` is below `bytes`.
    let check_stack = |w: &mut Writer, first: u32, bytes: u32| {
        w.puts(&format!("sub.u32 t0,s,{first}; setp.ge.u32 p,t0,{bytes}; @p bra LSLOW"));
    };
    match name {
        "JMP" => w.puts("mov.u32 pc,w; bra LDONE"),
        "PHA" => {
            w.put("mov.u32 o,a");
            push_any(w, number);
        }
        "PHP" => {
            w.puts("ld.shared.u8 o,[irq]; shl.b32 o,o,2; or.b32 o,o,c; or.b32 o,o,0x30; shl.b32 t0,v,6; or.b32 o,o,t0");
            w.puts("shl.b32 t0,d,3; or.b32 o,o,t0; and.b32 t0,n,0x8080; setp.ne.u32 p,t0,0; selp.u32 t0,0x80,0,p");
            w.puts("or.b32 o,o,t0; and.b32 t0,n,0xFF; setp.eq.u32 p,t0,0; selp.u32 t0,2,0,p; or.b32 o,o,t0");
            push_any(w, number);
        }
        "PLA" => {
            check_stack(w, 0x80, 0x7F);
            pull(w, "a", 1);
            w.puts("add.u32 s,s,1; mov.u32 n,a; bra LNEXT");
        }
        "PLP" => {
            check_stack(w, 0x80, 0x7F);
            pull(w, "o", 1);
            w.puts("add.u32 s,s,1; and.b32 c,o,1; bfe.u32 t0,o,2,1; st.shared.u8 [irq],t0; bfe.u32 d,o,3,1");
            w.puts("bfe.u32 v,o,6,1; and.b32 n,o,0x80; shl.b32 n,n,8; bfe.u32 t0,o,1,1; xor.b32 t0,t0,1; or.b32 n,n,t0");
            w.put("bra LNEXT");
        }
        "JSR" => {
            check_stack(w, 0x81, 0x7F);
            w.puts("add.u32 q,pc,0xFFFF; and.b32 q,q,0xFFFF; shr.u32 o,q,8");
            push(w, "o");
            w.put("and.b32 o,q,0xFF");
            push(w, "o");
            w.puts("mov.u32 pc,w; bra LDONE");
        }
        "RTS" => {
            check_stack(w, 0x80, 0x7E);
            pull(w, "u", 1);
            pull(w, "q", 2);
            // The byte at this address is read and discarded; it must be in plain ROM.
            w.puts(&format!("shl.b32 q,q,8; or.b32 q,q,u; {}", read_window()));
            w.puts("add.u32 s,s,2; add.u32 pc,q,1; bra LDONE");
        }
        _ => panic!("{name} has no handler"),
    }
}

/// Returns the whole block.
pub fn block() -> Block {
    let (handlers, _) = numbering();
    let mut w = Writer { lines: Vec::new(), temporaries: 0 };
    w.puts(&format!("and.b32 pc,pc,0xFFFF; setp.lt.u32 p,left,{SLACK}; @p bra LOUT"));
    w.puts(&rom_offset("up", "pc", "LOUT"));
    w.put("LTOP:");
    w.puts("mul.wide.u32 dd,up,8; add.u64 dd,dd,dec; ld.global.nc.v2.u32 {e0,e1},[dd]; and.b32 w,e0,0xFFFF");
    w.puts("bfe.u32 t0,e0,16,4; add.u32 cyc,cyc,t0; bfe.u32 t1,e0,20,2; add.u32 up,up,t1; add.u32 pc,pc,t1");
    w.puts("sub.u32 left,left,1; and.b32 t0,e1,0xFF");
    let names: Vec<String> = (0..handlers.len()).map(|number| format!("H{number}")).collect();
    w.put(format!("TBL: .branchtargets {}", names.join(",")));
    w.put("brx.idx t0,TBL");
    for (number, (name, form)) in handlers.iter().enumerate() {
        w.put(format!("H{number}:"));
        handler(&mut w, name, *form, number);
    }
    w.put("LNEXT:");
    w.puts("and.b32 t0,e0,0x400000; setp.eq.u32 p,t0,0; @p bra LTOP");
    w.put("LDONE:");
    w.puts("and.b32 pc,pc,0xFFFF; mov.u32 code,0; bra LEND");
    w.put("LSLOW:");
    w.puts(
        "bfe.u32 t0,e0,16,4; sub.u32 cyc,cyc,t0; bfe.u32 t0,e0,20,2; sub.u32 pc,pc,t0; add.u32 left,left,1",
    );
    w.put("LOUT:");
    w.puts("mov.u32 code,1; bra LEND");
    w.put("LSTORE:");
    w.puts("and.b32 pc,pc,0xFFFF; mov.u32 code,2");
    w.put("LEND:");
    Block { lines: w.lines, handlers }
}

// ---------------------------------------------------------------- generated files

/// Registers of `cule::brx::Registers`, in the order of the operands.
const FIELDS: [&str; 14] = [
    "a", "x", "y", "s", "carry", "overflow", "decimal", "result", "cycles", "left", "pc", "code", "address",
    "value",
];

/// Returns the text of `kernels/cpu_brx.cuh`.
pub fn header() -> String {
    let block = block();
    let operands: Vec<&str> = STATE.iter().chain(&RESULTS).chain(&INPUTS).copied().collect();
    let mut out = String::from(
        "// GENERATED by `cargo xtask kernels` from `machine/instructions.rs`: the interpreter of the 6507 for GPUs, one
// block of PTX with a jump table. xtask/src/ptx.rs describes which instructions it executes and where it ends.
#pragma once
#include \"machine.cuh\"

#define PARL_BRX_TEXT \\
    \"{ .reg .u32 e0,e1,w,t,u,t0,t1,t2,up,pen,k<8>; .reg .u64 dd; .reg .pred p;\\n\" \\
",
    );
    for line in &block.lines {
        let _ = writeln!(out, "    \"{}\\n\" \\", numbered(line, &operands));
    }
    out.push_str(
        "    \"}\"

namespace cule::brx {

// Registers of one lane. `code` is the reason for the end of the block: 0 = a branch, a jump or the end of a KiB,
// 1 = `machine::compact::execute` must execute the next instruction, 2 = `machine::bus::write` must write
// `value` to `address` to complete the current one.
struct Registers {
    uint32_t a, x, y, s, carry, overflow, decimal, result, cycles, left, pc;
    uint32_t code, address, value;
};

// `riot`, `segments`, `interrupt`: shared-memory addresses of `Riot`, `Cart::segment` and `Cpu::interrupt`. `first`, `span`: the
// plain part of the ROM: 13 bits of its first address, and its bytes.
PARL_INLINE void run(Registers& r, uint32_t riot, uint32_t segments, uint32_t interrupt, const uint8_t* rom,
                     const uint64_t* records, uint32_t first, uint32_t span) {
    using cule::machine::riot::Riot;
    static_assert(PARL_OFFSET(Riot, ram) == 0 && PARL_OFFSET(Riot, set_at) == 128 && PARL_OFFSET(Riot, timer) == 136 &&
                  PARL_OFFSET(Riot, shift) == 137);
#ifdef __CUDACC__
    asm volatile(
        PARL_BRX_TEXT
        : ",
    );
    // All fields are inputs and outputs: an output could share its register with an input that is read later.
    let outputs: Vec<String> = FIELDS.iter().map(|field| format!("\"+r\"(r.{field})")).collect();
    let _ = writeln!(out, "{}", outputs.join(", "));
    let _ = write!(
        out,
        "        : \"r\"(riot), \"r\"(segments), \"r\"(interrupt), \"l\"(rom), \"l\"(records), \"r\"(first), \"r\"(span)
        : \"memory\");
#else
    // The host interprets the PTX text (ptx.h).
    static const parl_ptx::Program program(PARL_BRX_TEXT);
    uint64_t all[] = {{{},
                      riot, segments, interrupt, reinterpret_cast<uint64_t>(rom), reinterpret_cast<uint64_t>(records), first, span}};
    program.run(all, sizeof(all) / sizeof(all[0]), riot, segments, interrupt);
",
        FIELDS.map(|field| format!("r.{field}")).join(", ")
    );
    for (number, field) in FIELDS.iter().enumerate() {
        let _ = writeln!(out, "    r.{field} = static_cast<uint32_t>(all[{number}]);");
    }
    out.push_str("#endif\n}\n\n}  // namespace cule::brx\n");
    out
}

/// A line with operand numbers instead of names, labels that are unique in every copy, and a semicolon.
fn numbered(line: &str, operands: &[&str]) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in line.chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        let after_dot = out.ends_with('.');
        match operands.iter().position(|operand| *operand == word) {
            Some(number) if !after_dot => {
                let _ = write!(out, "%{number}");
            }
            _ if is_label(&word) && !after_dot => {
                let _ = write!(out, "{word}_%=");
            }
            _ => out.push_str(&word),
        }
        word.clear();
        if c != '\n' {
            out.push(c);
        }
    }
    if out.ends_with(':') { out } else { format!("{out};") }
}

fn is_label(word: &str) -> bool {
    let handler = word
        .strip_prefix(['H', 'R', 'C'])
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    handler
        || word == "TBL"
        || (word.len() > 2 && word.starts_with('L') && word.bytes().all(|b| b.is_ascii_uppercase()))
}

/// Returns the text of `machine/records.rs`.
pub fn records() -> String {
    let (handlers, rows) = numbering();
    assert!(handlers.len() <= 256, "{} handlers do not fit into a byte", handlers.len());
    let mut out = String::from(
        "//! GENERATED by `cargo xtask kernels` from `instructions.rs`: records of the GPU's interpreter. A record is the\n\
         //! decoded instruction at an address of the ROM, in 8 bytes.\n//!\n//! Device subset.\n\n\
         /// Handlers of every opcode: operand in RAM or only operand, in the TIA, in the cartridge, the timer; 0 ends the\n\
         /// block.\n#[rustfmt::skip]\nconst HANDLERS: [[u8; 4]; 256] = [\n",
    );
    for (row, instruction) in rows.iter().zip(&INSTRUCTIONS) {
        let mode = format!("{:?}", instruction.mode).to_ascii_lowercase();
        let _ = writeln!(
            out,
            "    [{}, {}, {}, {}], // {} {mode}",
            row[0], row[1], row[2], row[3], instruction.name
        );
    }
    out.push_str("];\n");
    let table = |name: &str, doc: &str, value: &dyn Fn(&Instruction) -> u32| {
        let mut text = format!("\n/// {doc}\n#[rustfmt::skip]\nconst {name}: [u8; 256] = [\n");
        for sixteen in INSTRUCTIONS.chunks(16) {
            let values: Vec<String> = sixteen.iter().map(|i| value(i).to_string()).collect();
            let _ = writeln!(text, "    {},", values.join(", "));
        }
        text + "];\n"
    };
    out.push_str(&table("CYCLES", "Cycles without page penalty.", &|i| i.cycles));
    out.push_str(&table("BYTES", "Bytes of the instruction.", &|i| length(i.mode)));
    out.push_str(&table("KINDS", "Kind of operand, which determines the handler.", &|i| match i.mode {
        Mode::Zp => 1,
        Mode::Abs if !matches!(i.name, "JMP" | "JSR") => 2,
        Mode::Indy => 3,
        Mode::Rel => 4,
        Mode::Ind => 5,
        _ => 0,
    }));
    out.push_str(
        "
/// Returns the record of the instruction at `at`. Bits 0-22: operand, cycles, length, and a flag for the end of a
/// KiB. Bits 32-63: handler, and the RAM offset of a pointer's high byte. `plain_high` is the offset after plain ROM
/// in the window; `claims`, not 0, says that the cartridge responds to addresses of the other chips.
pub fn record(rom: &[u8], at: usize, plain_high: u32, claims: u32) -> u64 {
    let opcode: usize = rom[at] as usize;
    let bytes: u32 = BYTES[opcode] as u32;
    let offset: u32 = at as u32 & 0x3FF;
    let mut end: u32 = 0x400;
    if (at >> 10) & 3 == 3 && plain_high < 0x1000 {
        end = plain_high & 0x3FF;
    }
    let mut operand: u32 = 0;
    if bytes > 1 && at + 1 < rom.len() {
        operand = rom[at + 1] as u32;
    }
    if bytes > 2 && at + 2 < rom.len() {
        operand |= (rom[at + 2] as u32) << 8;
    }
    let mut second: u32 = 0;
    let mut handler: u8 = HANDLERS[opcode][0];
    match KINDS[opcode] {
        1 => {
            if operand < 0x80 {
                handler = HANDLERS[opcode][1];
            } else {
                operand &= 0x7F;
            }
        }
        2 => {
            if operand & 0x1000 != 0 {
                handler = HANDLERS[opcode][2];
            } else if operand & 0x1280 == 0x80 {
                operand &= 0x7F;
            } else if operand & 0x80 == 0 {
                handler = HANDLERS[opcode][1];
            } else if operand & 0x1285 == 0x284 && claims == 0 && !waits(rom, at) {
                handler = HANDLERS[opcode][3];
            } else {
                handler = 0;
            }
        }
        3 => {
            if operand < 0x80 || operand == 0xFF {
                handler = 0;
            }
            second = operand + 1 & 0x7F;
            operand &= 0x7F;
        }
        4 => operand = operand as u8 as i8 as u16 as u32,
        5 => {
            if operand & 0x1280 != 0x80 || operand & 0x7F == 0x7F {
                handler = 0;
            }
            operand &= 0x7F;
        }
        _ => {}
    }
    if offset + bytes > end {
        handler = 0;
    }
    let mut first: u32 = operand | (CYCLES[opcode] as u32) << 16 | bytes << 20;
    if offset + bytes == 0x400 {
        first |= 0x40_0000;
    }
    (handler as u64 | (second as u64) << 16) << 32 | first as u64
}

/// True if a branch back to the instruction of three bytes at `at` follows it: `polls` skips iterations of such loops.
fn waits(rom: &[u8], at: usize) -> bool {
    at + 4 < rom.len() && (rom[at + 3] == 0xD0 || rom[at + 3] == 0x10) && rom[at + 4] == 0xFB
}
",
    );
    out
}

/// Length of an instruction in bytes.
pub fn length(mode: Mode) -> u32 {
    match mode {
        Mode::Imp | Mode::Acc => 1,
        Mode::Abs | Mode::Absx | Mode::Absy | Mode::Ind => 3,
        _ => 2,
    }
}
