//! Generates the interpreter of the 6507 for GPUs from `crates/cule/src/machine/instructions.rs`: one block
//! of inline PTX whose handlers are reached by `brx.idx`, a jump table (NVRTC compiles a C++ `switch` to
//! comparisons).
//!
//! The block executes instructions that access RAM, plain ROM or the running timer only, and stores to the TIA that change
//! nothing. It ends before any other instruction (code 1: `machine::compact` executes it), after a branch or jump (code 0), where
//! lanes of a warp that have diverged can converge (`kernels/forms.cuh`), and at a store to the TIA that changes something: it
//! has executed everything except the store (code 2: `machine::bus` writes `value` to `address`), or another lane stops there
//! (code 3: the lane goes on where it is).
//!
//! Decoded instructions are in records of 8 bytes per ROM address, created once per ROM by `machine/records.rs`. The program
//! counter is the place of a record plus an offset that only jumps change. Cycles and instructions are counted in one register.

use crate::interpreter::instructions::{Access, INSTRUCTIONS, Instruction, Mode, Operation};
use crate::interpreter::{mentions, operation};
use std::fmt::Write as _;

/// ADC without decimal mode, of `a` and `u`.
pub const ADD: &str = "t = a + u + c; v = ((a ^ t) & (u ^ t)) >> 7 & 1; c = t >> 8; n = t & 0xFF; a = n";
/// Position of the cycles in `spent`; below it are the instructions.
pub const CYCLES_AT: u32 = 13;
/// Index of the handler that ends the block.
const SLOW: usize = 0;

/// Registers of the block that are kept after it, in the order of `FIELDS`. `at` is the ROM offset of the next instruction, `off`
/// the difference of the program counter and `at`, `acc` cycles and instructions, `last` the same at the last store to the TIA.
pub const STATE: [&str; 12] = ["a", "x", "y", "s", "c", "v", "d", "n", "acc", "at", "off", "last"];
/// Outputs of the block.
pub const RESULTS: [&str; 3] = ["code", "q", "o"];
/// Inputs: the address in shared memory of the machine; its time when `acc` was 0; the value of `acc` from which stores to
/// the TIA end the block; ROM, records, the plain part of the window; the part of it that belongs to the bank in which `at` is
/// (0 if there are no such banks), and the bits of an offset in a bank; an offset without an instruction.
pub const INPUTS: [&str; 10] = ["m", "cyc", "until", "rom", "dec", "first", "span", "flat", "bank", "none"];

/// Offsets of fields in `machine::Machine`; the generated header asserts them.
mod field {
    pub const INTERRUPT: u32 = 21;
    pub const RAM: u32 = 24;
    pub const TIMER_SET_AT: u32 = RAM + 128;
    pub const TIMER: u32 = RAM + 136;
    pub const TIMER_SHIFT: u32 = RAM + 137;
    pub const TIA: u32 = 164;
    pub const ORIGIN: u32 = TIA;
    pub const PLAYFIELD: u32 = TIA + 44;
    pub const MOTION: u32 = TIA + 62;
    pub const VBLANK: u32 = TIA + 67;
    pub const NUSIZ: u32 = TIA + 68;
    pub const CTRLPF: u32 = TIA + 70;
    pub const COLOR: u32 = TIA + 71;
    pub const REFLECT: u32 = TIA + 75;
    pub const GRP: u32 = TIA + 77;
    pub const GRP_OLD: u32 = TIA + 79;
    pub const VDELP: u32 = TIA + 81;
    pub const ENAM: u32 = TIA + 85;
    pub const RESMP: u32 = TIA + 87;
    pub const ENABL: u32 = TIA + 89;
    pub const ENABL_OLD: u32 = TIA + 90;
    pub const VDELBL: u32 = TIA + 91;
    pub const SKIP: u32 = TIA + 93;
    pub const MISSILE0_FORM: u32 = TIA + 95;
    pub const STAR_FIELD: u32 = TIA + 96;
    pub const MIRROR: u32 = TIA + 98;
    pub const SEGMENT: u32 = 416;
    pub const DRAW: u32 = 470;
}

/// C++ expressions of these offsets.
const ASSERTED: [(&str, u32); 27] = [
    ("cpu) + PARL_OFFSET(Cpu, interrupt", field::INTERRUPT),
    ("riot) + PARL_OFFSET(Riot, ram", field::RAM),
    ("riot) + PARL_OFFSET(Riot, set_at", field::TIMER_SET_AT),
    ("riot) + PARL_OFFSET(Riot, timer", field::TIMER),
    ("riot) + PARL_OFFSET(Riot, shift", field::TIMER_SHIFT),
    ("tia) + PARL_OFFSET(Tia, origin", field::ORIGIN),
    ("tia) + PARL_OFFSET(Tia, playfield", field::PLAYFIELD),
    ("tia) + PARL_OFFSET(Tia, motion", field::MOTION),
    ("tia) + PARL_OFFSET(Tia, vblank", field::VBLANK),
    ("tia) + PARL_OFFSET(Tia, nusiz", field::NUSIZ),
    ("tia) + PARL_OFFSET(Tia, ctrlpf", field::CTRLPF),
    ("tia) + PARL_OFFSET(Tia, color", field::COLOR),
    ("tia) + PARL_OFFSET(Tia, reflect", field::REFLECT),
    ("tia) + PARL_OFFSET(Tia, grp", field::GRP),
    ("tia) + PARL_OFFSET(Tia, grp_old", field::GRP_OLD),
    ("tia) + PARL_OFFSET(Tia, vdelp", field::VDELP),
    ("tia) + PARL_OFFSET(Tia, enam", field::ENAM),
    ("tia) + PARL_OFFSET(Tia, resmp", field::RESMP),
    ("tia) + PARL_OFFSET(Tia, enabl", field::ENABL),
    ("tia) + PARL_OFFSET(Tia, enabl_old", field::ENABL_OLD),
    ("tia) + PARL_OFFSET(Tia, vdelbl", field::VDELBL),
    ("tia) + PARL_OFFSET(Tia, skip", field::SKIP),
    ("tia) + PARL_OFFSET(Tia, missile0_form", field::MISSILE0_FORM),
    ("tia) + PARL_OFFSET(Tia, star_field", field::STAR_FIELD),
    ("tia) + PARL_OFFSET(Tia, mirror", field::MIRROR),
    ("cart) + PARL_OFFSET(Cart, segment", field::SEGMENT),
    ("draw", field::DRAW),
];

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
    /// As `Ram`, in an instruction of three bytes.
    RamAbsolute,
    /// TIA, write only, at an address that the instruction contains.
    Tia,
    /// As `Tia`, in an instruction of three bytes.
    TiaAbsolute,
    /// A byte of the bank that executes, which the record contains.
    Bank,
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
    /// A branch within a page of its bank.
    Branch,
    /// A branch to another page of its bank.
    BranchAcross,
    /// A jump within its bank.
    JumpInBank,
    /// Stack instruction or jump, handled separately.
    Special,
}

/// The number of forms of an opcode.
const FORMS: usize = 5;

/// Forms of an opcode. With a memory operand: in RAM, in the TIA, in the bank that executes, anywhere in the cartridge, the
/// timer. A branch: within its page, to another. A jump: anywhere, within its bank. Any other opcode has one.
fn forms(instruction: &Instruction) -> [Form; FORMS] {
    let Operation { access, text, .. } = *operation(instruction);
    let two = |form: Form, other: Form| [form, other, Form::Slow, Form::Slow, Form::Slow];
    let one = |form: Form| two(form, Form::Slow);
    // The interrupt flag and the undocumented stores are rare.
    if text == "ARR" || mentions(text, "h") || mentions(text, "i") {
        return one(Form::Slow);
    }
    let (reads, writes) = (access == Access::Read, access == Access::Write);
    let tia = |form: Form| if writes { form } else { Form::Slow };
    match (instruction.mode, access) {
        (_, Access::Branch) => two(Form::Branch, Form::BranchAcross),
        (Mode::Abs, Access::Special) => two(Form::Special, Form::JumpInBank),
        (Mode::Ind, Access::Special) => one(Form::Indirect),
        (_, Access::Special) if matches!(instruction.name, "PHA" | "PLA" | "PHP" | "PLP" | "RTS") => {
            one(Form::Special)
        }
        (_, Access::Special) => one(Form::Slow),
        (Mode::Imp, _) => one(Form::Implied),
        (Mode::Acc, _) => one(Form::Accumulator),
        (Mode::Imm, _) => one(Form::Immediate),
        (Mode::Zp, _) => two(Form::Ram, tia(Form::Tia)),
        (Mode::Abs, _) if reads => [Form::RamAbsolute, Form::Slow, Form::Bank, Form::Window, Form::Timer],
        (Mode::Abs, _) => two(Form::RamAbsolute, tia(Form::TiaAbsolute)),
        (Mode::Zpx, _) => one(Form::ZeroX),
        (Mode::Zpy, _) => one(Form::ZeroY),
        (Mode::Absx, Access::Read | Access::Write) => one(Form::IndexX),
        (Mode::Absy, Access::Read | Access::Write) => one(Form::IndexY),
        (Mode::Indy, Access::Read | Access::Write) => one(Form::Pointer),
        (Mode::Indx, Access::Read | Access::Write) => one(Form::PointerX),
        _ => one(Form::Slow),
    }
}

/// Bytes of an instruction of this form.
fn bytes_of(form: Form) -> u32 {
    match form {
        Form::Slow | Form::Implied | Form::Accumulator => 1,
        Form::Bank | Form::Window | Form::Timer | Form::IndexX | Form::IndexY => 3,
        _ => 2,
    }
}

/// All handlers, and the handler indices of every opcode.
fn numbering() -> (Vec<(String, Form)>, Vec<[usize; FORMS]>) {
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

/// Puts the address of the machine plus the offset of the RAM byte at `from` into `to`; `[to+RAM]` is the byte.
fn ram_place(to: &str, from: &str) -> String {
    format!("and.b32 {to},{from},0x7F; add.u32 {to},{to},m")
}

/// A byte of RAM at `ram_place`, `after` it.
fn ram(place: &str, after: i32) -> String {
    format!("[{place}+{}]", field::RAM as i32 + after)
}

/// Puts the offset of address `at` from the begin of plain ROM into `t0`; branches to `otherwise` unless it is below `bytes`.
fn check_plain(at: &str, bytes: &str, otherwise: &str) -> String {
    format!("and.b32 t0,{at},0x1FFF; sub.u32 t0,t0,first; setp.ge.u32 p,t0,{bytes}; @p bra {otherwise}")
}

/// Puts the ROM offset of address `from` into `to`, which may be `at`, in the bank in which `at` is.
fn place_in_bank(to: &str, from: &str) -> String {
    format!("xor.b32 t0,{from},at; and.b32 t0,t0,bank; xor.b32 {to},at,t0")
}

/// Puts the ROM offset of address `from` into `to`, by the table of segments. Segments 0-3 are those of addresses with A13 = 0,
/// and a segment is a number of 16 bits.
fn place_in_segment(to: &str, from: &str) -> String {
    format!(
        "shr.u32 t0,{from},9; and.b32 t0,t0,6; shr.u32 t1,{from},10; and.b32 t1,t1,8; or.b32 t0,t0,t1; add.u32 t0,t0,m; \
         ld.shared.u16 t0,[t0+{}]; shl.b32 t0,t0,10; and.b32 t1,{from},0x3FF; add.u32 {to},t0,t1",
        field::SEGMENT
    )
}

/// Loads the ROM byte at offset `t0`.
const LOAD_ROM: &str = "mad.wide.u32 dd,t0,1,rom; ld.global.nc.u8 o,[dd]";

/// Reads address `q` into `o`, from plain ROM or RAM; other addresses end the block. `number` is that of the handler. Returns
/// instructions that follow the handler.
fn read_any(w: &mut Writer, number: usize) -> String {
    w.puts(&format!(
        "{}; {}; {LOAD_ROM}; C{number}:",
        check_plain("q", "flat", &format!("R{number}")),
        place_in_bank("t0", "q")
    ));
    format!(
        "R{number}:; {}; {}; {LOAD_ROM}; bra C{number}; \
         S{number}:; and.b32 t0,q,0x1280; setp.ne.u32 p,t0,0x80; @p bra LSLOW; {}; ld.shared.u8 o,{}; bra C{number}",
        check_plain("q", "span", &format!("S{number}")),
        place_in_segment("t0", "q"),
        ram_place("t0", "q"),
        ram("t0", 0)
    )
}

/// Writes the operand to address `q`, in RAM or in the TIA; other addresses end the block.
fn write_any(w: &mut Writer, text: &str, form: Form, number: usize) {
    w.puts(&format!("and.b32 t0,q,0x1280; setp.ne.u32 p,t0,0x80; @p bra R{number}"));
    w.operation(text);
    w.puts(&format!("{}; st.shared.u8 {},o", ram_place("t0", "q"), ram("t0", 0)));
    next(w, form);
    w.puts(&format!("R{number}:; and.b32 t0,q,0x1080; setp.ne.u32 p,t0,0; @p bra LSLOW"));
    w.operation(text);
    w.puts(&format!("add.u32 at,at,{}; bra LTIA", bytes_of(form)));
}

/// Loads the pointer at RAM offset `low`, which is not the last, into `w`.
fn load_pointer(w: &mut Writer, low: &str) {
    w.puts(&format!("add.u32 t0,{low},m; ld.shared.u8 w,{}; ld.shared.u8 q,{}", ram("t0", 0), ram("t0", 1)));
    w.puts("shl.b32 q,q,8; or.b32 w,w,q");
}

/// One extra cycle if `q` and `from` are on different pages.
fn penalty(from: &str) -> String {
    let cycle = 1 << CYCLES_AT;
    format!("xor.b32 t0,{from},q; and.b32 t0,t0,0xFF00; setp.ne.u32 p,t0,0; @p add.u32 acc,acc,{cycle}")
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

/// Goes on to the instruction after one of this form.
fn next(w: &mut Writer, form: Form) {
    w.puts(&format!("add.u32 at,at,{}; bra LTOP", bytes_of(form)));
}

/// The operand in the record.
const OPERAND: &str = "and.b32 w,e0,0xFFFF";

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
        Form::Immediate | Form::Bank => w.put("and.b32 o,e0,0xFFFF"),
        Form::Ram => w.puts(&format!("{OPERAND}; add.u32 q,w,m")),
        Form::RamAbsolute => return w.puts(&format!("add.u32 at,at,1; bra H{}", number_of(name, Form::Ram))),
        Form::Tia => {
            w.operation(text);
            return w.puts("and.b32 q,e0,0xFFFF; add.u32 at,at,2; bra LTIA");
        }
        Form::TiaAbsolute => return w.puts(&format!("add.u32 at,at,1; bra H{}", number_of(name, Form::Tia))),
        Form::Window => w.puts(&format!(
            "{OPERAND}; {}; {}; {LOAD_ROM}",
            check_plain("w", "span", "LSLOW"),
            place_in_segment("t0", "w")
        )),
        Form::Timer => {
            // As `machine::riot::read_timer`, before the timer has expired.
            w.puts(&format!(
                "ld.shared.u32 t1,[m+{}]; ld.shared.u8 t2,[m+{}]",
                field::TIMER_SET_AT,
                field::TIMER_SHIFT
            ));
            w.puts(&format!(
                "shr.u32 t0,acc,{CYCLES_AT}; add.u32 t0,t0,cyc; sub.u32 t1,t0,t1; sub.u32 t1,t1,1"
            ));
            w.puts(&format!("shr.u32 t1,t1,t2; ld.shared.u8 o,[m+{}]", field::TIMER));
            w.puts("setp.ge.u32 p,t1,o; @p bra LSLOW; sub.u32 o,o,t1; sub.u32 o,o,1");
        }
        Form::ZeroX | Form::ZeroY => {
            let index = if form == Form::ZeroX { "x" } else { "y" };
            w.puts(&format!("{OPERAND}; add.u32 q,w,{index}; and.b32 q,q,0xFF"));
            if !writes {
                w.puts("setp.lt.u32 p,q,128; @p bra LSLOW");
                w.puts(&ram_place("q", "q"));
            }
        }
        Form::IndexX | Form::IndexY => {
            let index = if form == Form::IndexX { "x" } else { "y" };
            w.puts(&format!("{OPERAND}; add.u32 q,w,{index}; and.b32 q,q,0xFFFF"));
        }
        Form::Pointer => {
            w.put(OPERAND);
            load_pointer(w, "w");
            w.puts("add.u32 q,w,y; and.b32 q,q,0xFFFF");
        }
        Form::PointerX => {
            // Both bytes of the pointer are in RAM.
            w.puts(&format!(
                "{OPERAND}; add.u32 t1,w,x; and.b32 t1,t1,0xFF; sub.u32 t1,t1,0x80; setp.ge.u32 p,t1,0x7F"
            ));
            w.put("@p bra LSLOW");
            load_pointer(w, "t1");
            w.put("mov.u32 q,w");
        }
        Form::Indirect => {
            w.put(OPERAND);
            load_pointer(w, "w");
            return w.puts("mov.u32 q,w; bra LJUMP");
        }
        Form::Branch => return branch(w, text, 1),
        Form::BranchAcross => return branch(w, text, 2),
        Form::JumpInBank | Form::Special => return special(w, name, form, number),
    }
    let any = matches!(form, Form::IndexX | Form::IndexY | Form::Pointer | Form::PointerX);
    if writes && (any || matches!(form, Form::ZeroX | Form::ZeroY)) {
        return write_any(w, text, form, number);
    }
    let after = if any { read_any(w, number) } else { String::new() };
    if any && form != Form::PointerX && has_penalty(name, form) {
        w.puts(&penalty("w"));
    }
    let in_ram = matches!(form, Form::Ram | Form::ZeroX | Form::ZeroY);
    if in_ram && access != Access::Write {
        w.put(format!("ld.shared.u8 o,{}", ram("q", 0)));
    }
    w.operation(text);
    if in_ram && access != Access::Read {
        w.put(format!("st.shared.u8 {},o", ram("q", 0)));
    }
    if form == Form::Accumulator {
        w.put("mov.u32 a,o");
    }
    next(w, form);
    w.puts(&after);
}

/// The number of a handler that another one continues with.
fn number_of(name: &str, form: Form) -> usize {
    let (handlers, _) = numbering();
    handlers.iter().position(|known| *known == (name.to_string(), form)).expect("a handler")
}

/// A branch; the record has the ROM offset to which it goes. `cycles` are those of the branch if it is taken.
fn branch(w: &mut Writer, text: &str, cycles: u32) {
    let (left, right, test) = match (text.split_once(" == "), text.split_once(" != ")) {
        (Some((left, right)), _) => (left, right, "eq"),
        (None, Some((left, right))) => (left, right, "ne"),
        _ => panic!("a branch compares: {text}"),
    };
    w.operation(&format!("t = {left}"));
    w.puts(&format!("setp.{test}.u32 p,t,{right}; add.u32 at,at,2; @p and.b32 at,e0,0xFFFF"));
    w.puts(&format!("@p add.u32 acc,acc,{}; bra LTURN", cycles << CYCLES_AT));
}

/// Pushes `o`, to RAM or to the TIA. The instruction has one byte.
fn push_any(w: &mut Writer, number: usize) {
    w.puts("mov.u32 q,s; sub.u32 s,s,1; and.b32 s,s,0xFF; add.u32 at,at,1");
    w.puts(&format!("setp.lt.u32 p,q,0x80; @p bra R{number}"));
    w.puts(&format!("add.u32 t0,q,m; st.shared.u8 {},o; bra LTOP", ram("t0", -0x80)));
    w.puts(&format!("R{number}:; or.b32 q,q,0x100; bra LTIA"));
}

/// Goes to the address in the record, which is in the bank of the jump.
const JUMP_IN_BANK: &str = "xor.b32 t0,e0,at; and.b32 t0,t0,bank; xor.b32 at,at,t0; and.b32 t0,e0,0xFFFF; sub.u32 off,t0,at; bra LTURN";

fn special(w: &mut Writer, name: &str, form: Form, number: usize) {
    // Checks that the stack accesses are in RAM: `s - first` is below `bytes`.
    let check_stack = |w: &mut Writer, first: u32, bytes: u32| {
        w.puts(&format!("sub.u32 t0,s,{first}; setp.ge.u32 p,t0,{bytes}; @p bra LSLOW; add.u32 t0,s,m"));
    };
    match name {
        "JMP" if form == Form::JumpInBank => w.puts(JUMP_IN_BANK),
        "JMP" => w.puts("and.b32 q,e0,0xFFFF; bra LJUMP"),
        "PHA" => {
            w.put("mov.u32 o,a");
            push_any(w, number);
        }
        "PHP" => {
            w.puts(&format!("ld.shared.u8 o,[m+{}]", field::INTERRUPT));
            w.puts("shl.b32 o,o,2; or.b32 o,o,c; or.b32 o,o,0x30; shl.b32 t0,v,6; or.b32 o,o,t0");
            w.puts("shl.b32 t0,d,3; or.b32 o,o,t0; and.b32 t0,n,0x8080; setp.ne.u32 p,t0,0; selp.u32 t0,0x80,0,p");
            w.puts("or.b32 o,o,t0; and.b32 t0,n,0xFF; setp.eq.u32 p,t0,0; selp.u32 t0,2,0,p; or.b32 o,o,t0");
            push_any(w, number);
        }
        "PLA" => {
            check_stack(w, 0x80, 0x7F);
            w.puts(&format!("ld.shared.u8 a,{}; add.u32 s,s,1; mov.u32 n,a", ram("t0", 1 - 0x80)));
            w.puts("add.u32 at,at,1; bra LTOP");
        }
        "PLP" => {
            check_stack(w, 0x80, 0x7F);
            w.puts(&format!(
                "ld.shared.u8 o,{}; add.u32 s,s,1; and.b32 c,o,1; bfe.u32 t0,o,2,1",
                ram("t0", 1 - 0x80)
            ));
            w.puts(&format!("st.shared.u8 [m+{}],t0; bfe.u32 d,o,3,1", field::INTERRUPT));
            w.puts("bfe.u32 v,o,6,1; and.b32 n,o,0x80; shl.b32 n,n,8; bfe.u32 t0,o,1,1; xor.b32 t0,t0,1; or.b32 n,n,t0");
            w.puts("add.u32 at,at,1; bra LTOP");
        }
        "JSR" => {
            check_stack(w, 0x81, 0x7F);
            w.puts("add.u32 q,at,off; add.u32 q,q,2; shr.u32 o,q,8");
            w.puts(&format!(
                "st.shared.u8 {},o; st.shared.u8 {},q; sub.u32 s,s,2",
                ram("t0", -0x80),
                ram("t0", -0x81)
            ));
            w.puts(if form == Form::JumpInBank { JUMP_IN_BANK } else { "and.b32 q,e0,0xFFFF; bra LJUMP" });
        }
        "RTS" => {
            check_stack(w, 0x80, 0x7E);
            w.puts(&format!(
                "ld.shared.u8 o,{}; ld.shared.u8 q,{}",
                ram("t0", 1 - 0x80),
                ram("t0", 2 - 0x80)
            ));
            // The byte at this address is read and discarded; it must be in plain ROM.
            w.puts(&format!("shl.b32 q,q,8; or.b32 q,q,o; {}", check_plain("q", "span", "LSLOW")));
            w.puts("add.u32 s,s,2; add.u32 q,q,1; bra LJUMP");
        }
        _ => panic!("{name} has no handler"),
    }
}

// ---------------------------------------------------------------- stores to the TIA

/// Registers of the TIA.
const TIA_REGISTERS: u32 = 64;

/// Sets `t0` to a number that is not 0 if a store of `o` to a TIA register changes something, and returns true. Else the store
/// is executed, or only `machine::bus` executes it. The conditions are those of `machine::tia::write` while pictures are
/// not drawn access by access.
fn tia_store(w: &mut Writer, register: u32) {
    let check = |w: &mut Writer, text: &str| w.puts(&format!("{text}; bra LCHECK"));
    // A flag of one bit, at bit `bit` of the value.
    let flag = |w: &mut Writer, at: u32, bit: u32| {
        w.puts(&format!("bfe.u32 t0,o,{bit},1; ld.shared.u8 t1,[m+{at}]; xor.b32 t0,t0,t1; bra LCHECK"));
    };
    match register {
        0x01 => check(w, &format!("ld.shared.u8 t0,[m+{}]; xor.b32 t0,t0,o", field::VBLANK)),
        0x02 => wait_for_line(w),
        0x04 | 0x05 => {
            let player = register - 0x04;
            w.puts(&format!("ld.shared.u8 t0,[m+{}]; xor.b32 t0,t0,o", field::NUSIZ + player));
            w.puts(&format!("ld.shared.u8 t1,[m+{}]; or.b32 t0,t0,t1", field::SKIP + player));
            if player == 0 {
                w.puts(&format!("ld.shared.u8 t1,[m+{}]; or.b32 t0,t0,t1", field::STAR_FIELD));
                w.puts(&format!("ld.shared.u8 t1,[m+{}]; or.b32 t0,t0,t1", field::MISSILE0_FORM));
            }
            w.put("bra LCHECK");
        }
        0x06..=0x09 => {
            // While nothing is drawn, a color is stored.
            let place = field::COLOR + register - 0x06;
            w.puts(&format!("ld.shared.u8 t1,[m+{place}]; xor.b32 t0,t1,o; and.b32 t0,t0,0xFE"));
            w.puts(&format!("ld.shared.u8 t2,[m+{}]; setp.eq.u32 p,t2,0; xor.b32 t1,t0,t1", field::DRAW));
            check(w, &format!("@p st.shared.u8 [m+{place}],t1; @p mov.u32 t0,0"));
        }
        0x0A => {
            w.puts(&format!("ld.shared.u8 t0,[m+{}]; xor.b32 t0,t0,o", field::CTRLPF));
            w.puts(&format!("ld.shared.u8 t1,[m+{}]; xor.b32 t1,t1,o; and.b32 t1,t1,1", field::MIRROR));
            check(w, "or.b32 t0,t0,t1");
        }
        0x0B | 0x0C => flag(w, field::REFLECT + register - 0x0B, 3),
        0x0D..=0x0F => {
            w.put(format!("ld.shared.u32 t1,[m+{}]", field::PLAYFIELD));
            let (field, wanted) = [
                ("and.b32 t1,t1,0xF", "shr.u32 t0,o,4"),
                ("bfe.u32 t1,t1,4,8", "brev.b32 t0,o; shr.u32 t0,t0,24"),
                ("shr.u32 t1,t1,12", "mov.u32 t0,o"),
            ][register as usize - 0x0D];
            check(w, &format!("{field}; {wanted}; xor.b32 t0,t0,t1"));
        }
        0x1B | 0x1C => {
            let (player, other) = (register - 0x1B, 0x1C - register);
            w.puts(&format!("ld.shared.u8 t0,[m+{}]; xor.b32 t0,t0,o", field::GRP + player));
            differ(w, field::GRP + other, field::GRP_OLD + other);
            if player == 1 {
                differ(w, field::ENABL, field::ENABL_OLD);
            }
            w.put("bra LCHECK");
        }
        0x1D | 0x1E => flag(w, field::ENAM + register - 0x1D, 1),
        0x1F => flag(w, field::ENABL, 1),
        0x22 => {
            check(w, &format!("ld.shared.u8 t1,[m+{}]; shr.u32 t0,o,4; xor.b32 t0,t0,t1", field::MOTION + 2))
        }
        0x20..=0x24 => {
            w.puts(&format!(
                "shr.u32 t0,o,4; st.shared.u8 [m+{}],t0; bra LTOP",
                field::MOTION + register - 0x20
            ));
        }
        0x25 | 0x26 => flag(w, field::VDELP + register - 0x25, 0),
        0x27 => flag(w, field::VDELBL, 0),
        0x28 | 0x29 => flag(w, field::RESMP + register - 0x28, 1),
        0x2B => {
            w.put("mov.u32 t0,0");
            (0..5).for_each(|object| w.put(format!("st.shared.u8 [m+{}],t0", field::MOTION + object)));
            w.put("bra LTOP");
        }
        0x00 | 0x10..=0x14 | 0x2A | 0x2C => w.put("bra LSTORE"),
        // Sound, which a device does not make, and addresses without a register.
        _ => w.put("bra LTOP"),
    }
}

/// Adds the difference of two bytes of the machine to `t0`.
fn differ(w: &mut Writer, one: u32, other: u32) {
    w.puts(&format!(
        "ld.shared.u8 t1,[m+{one}]; ld.shared.u8 t2,[m+{other}]; xor.b32 t1,t1,t2; or.b32 t0,t0,t1"
    ));
}

/// WSYNC: the cycles to the end of the line, which has 228 clocks. `0x011F_7048` is 2^32 / 228, rounded up: exact below 2^24.
fn wait_for_line(w: &mut Writer) {
    w.puts(&format!("shr.u32 t0,acc,{CYCLES_AT}; add.u32 t0,t0,cyc; mul.lo.u32 t0,t0,3"));
    w.puts(&format!("ld.shared.u32 t1,[m+{}]; sub.u32 t0,t0,t1", field::ORIGIN));
    w.puts(&format!(
        "mul.hi.u32 t1,t0,{}; mul.lo.u32 t1,t1,228; sub.u32 t0,t0,t1",
        (1u64 << 32).div_ceil(228)
    ));
    // A third, exact below 256.
    w.puts("mul.lo.u32 t0,t0,171; shr.u32 t0,t0,9; setp.ne.u32 p,t0,0");
    w.puts(&format!("sub.u32 t0,76,t0; shl.b32 t0,t0,{CYCLES_AT}; @p add.u32 acc,acc,t0; bra LTURN"));
}

/// Labels of the stores to the registers of the TIA: registers alike share one.
fn tia_stores(w: &mut Writer) {
    let mut texts: Vec<Vec<String>> = vec![];
    let mut labels = vec![];
    for register in 0..TIA_REGISTERS {
        let mut one = Writer { lines: vec![], temporaries: 0 };
        tia_store(&mut one, register);
        let known = texts.iter().position(|text| *text == one.lines);
        labels.push(format!("T{}", known.unwrap_or(texts.len())));
        if known.is_none() {
            texts.push(one.lines);
        }
    }
    w.put("LTIA:");
    w.puts("mov.u32 last,acc; setp.ge.u32 p,acc,until; @p bra LSTORE; and.b32 t0,q,0x3F");
    w.put(format!("TIATBL: .branchtargets {}", labels.join(",")));
    w.put("brx.idx t0,TIATBL");
    for (number, text) in texts.into_iter().enumerate() {
        w.put(format!("T{number}:"));
        w.lines.extend(text);
    }
}

/// Returns the whole block.
pub fn block() -> Block {
    let (handlers, _) = numbering();
    let mut w = Writer { lines: Vec::new(), temporaries: 0 };
    w.put("LTOP:");
    w.puts(
        "mad.wide.u32 dd,at,8,dec; ld.global.nc.v2.u32 {e0,e1},[dd]; shr.u32 t0,e0,16; add.u32 acc,acc,t0",
    );
    let names: Vec<String> = (0..handlers.len()).map(|number| format!("H{number}")).collect();
    w.put(format!("TBL: .branchtargets {}", names.join(",")));
    w.put("brx.idx e1,TBL");
    for (number, (name, form)) in handlers.iter().enumerate() {
        w.put(format!("H{number}:"));
        handler(&mut w, name, *form, number);
    }
    tia_stores(&mut w);
    // If a store of one lane changes something, all lanes that are here stop, so that they stay together.
    w.put("LCHECK:");
    w.puts("setp.ne.u32 p,t0,0; activemask.b32 t1; vote.sync.any.pred p2,p,t1; @!p2 bra LTOP");
    w.puts("selp.u32 code,2,3,p; bra LEND");
    w.put("LJUMP:");
    w.puts(&check_plain("q", "span", "LNOWHERE"));
    w.puts(&format!("{}; sub.u32 off,q,at; bra LTURN", place_in_segment("at", "q")));
    w.puts("LNOWHERE:; mov.u32 at,none; sub.u32 off,q,at");
    w.puts("LTURN:; mov.u32 code,0; bra LEND");
    w.puts("LSLOW:; shr.u32 t0,e0,16; sub.u32 acc,acc,t0; mov.u32 code,1; bra LEND");
    w.puts("LSTORE:; mov.u32 code,2");
    w.put("LEND:");
    Block { lines: w.lines, handlers }
}

// ---------------------------------------------------------------- generated files

/// Registers of `cule::brx::Registers`, in the order of the operands.
const FIELDS: [&str; 15] = [
    "a", "x", "y", "s", "carry", "overflow", "decimal", "result", "spent", "place", "offset", "stored",
    "code", "address", "value",
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
    \"{ .reg .u32 e0,e1,w,t,u,t0,t1,t2,k<8>; .reg .u64 dd; .reg .pred p,p2;\\n\" \\
",
    );
    for line in &block.lines {
        let _ = writeln!(out, "    \"{}\\n\" \\", numbered(line, &operands));
    }
    out.push_str(
        "    \"}\"

namespace cule::brx {

// Registers of one lane. `place` is the ROM offset of the next instruction, and the program counter is `place + offset`. `spent`:
// cycles and instructions since a time that the caller knows, `stored` the same at the last store to the TIA (0: none since
// then). `code` is the reason for the end of the block.
struct Registers {
    uint32_t a, x, y, s, carry, overflow, decimal, result, spent, place, offset, stored;
    uint32_t code, address, value;
};

// A branch, a jump or WSYNC.
PARL_CONST uint32_t TURN = 0;
// `machine::compact::execute` must execute the next instruction.
PARL_CONST uint32_t SLOW = 1;
// `machine::bus::write_tia` must write `value` to `address` to complete the instruction.
PARL_CONST uint32_t STORE = 2;
// Another lane must do that; this one has completed the instruction.
PARL_CONST uint32_t STORED = 3;
",
    );
    let _ = writeln!(
        out,
        "// `Registers::spent` has instructions below this bit, cycles from it on.\nPARL_CONST uint32_t CYCLES_AT = {CYCLES_AT};"
    );
    out.push_str(
        "
// The program of a cartridge. `first`, `span`: the plain part of the window, 13 bits of its first address, and its bytes. `flat`,
// `bank`: if a bank fills the window, `span` and the bits of an offset in a bank, else 0. `nowhere`: the offset of a byte at
// which no instruction can be executed.
struct Program {
    const uint8_t* rom;
    const uint64_t* records;
    uint32_t first, span, flat, bank, nowhere;
};

// Runs the block. `machine` is the address of a `Machine` in shared memory, `cycles` its time when `spent` was 0. Stores to the
// TIA end the block once `spent` is at least `until`.
PARL_INLINE void run(Registers& r, uint32_t machine, uint32_t cycles, uint32_t until, const Program& program) {
    using machine::Machine;
    using machine::cart::Cart;
    using machine::operations::Cpu;
    using machine::riot::Riot;
    using machine::tia::Tia;
",
    );
    out = out.replace("    using machine::", "    using cule::machine::");
    for (place, offset) in ASSERTED {
        let _ = writeln!(out, "    static_assert(PARL_OFFSET(Machine, {place}) == {offset});");
    }
    out.push_str("#ifdef __CUDACC__\n    asm volatile(\n        PARL_BRX_TEXT\n        : ");
    // All fields are inputs and outputs: an output could share its register with an input that is read later.
    let outputs: Vec<String> = FIELDS.iter().map(|field| format!("\"+r\"(r.{field})")).collect();
    let _ = writeln!(out, "{}", outputs.join(", "));
    let _ = write!(
        out,
        "        : \"r\"(machine), \"r\"(cycles), \"r\"(until), \"l\"(program.rom), \"l\"(program.records), \"r\"(program.first),
          \"r\"(program.span), \"r\"(program.flat), \"r\"(program.bank), \"r\"(program.nowhere)
        : \"memory\");
#else
    // The host interprets the PTX text (ptx.h).
    static const parl_ptx::Program text(PARL_BRX_TEXT);
    uint64_t all[] = {{{},
                      machine, cycles, until, reinterpret_cast<uint64_t>(program.rom), reinterpret_cast<uint64_t>(program.records),
                      program.first, program.span, program.flat, program.bank, program.nowhere}};
    text.run(all, sizeof(all) / sizeof(all[0]), machine, sizeof(Machine));
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
        .strip_prefix(['H', 'R', 'C', 'S', 'T'])
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    handler
        || word == "TBL"
        || word == "TIATBL"
        || (word.len() > 2 && word.starts_with('L') && word.bytes().all(|b| b.is_ascii_uppercase()))
}

/// Returns the text of `machine/records.rs`.
pub fn records() -> String {
    let (handlers, rows) = numbering();
    assert!(handlers.len() <= 256, "{} handlers do not fit into a byte", handlers.len());
    let mut out = String::from(
        "//! GENERATED by `cargo xtask kernels` from `instructions.rs`: records of the GPU's interpreter. A record is the
//! decoded instruction at an address of the ROM, in 8 bytes.
//!
//! Device subset.

use super::cart::{self, Cart};

",
    );
    let _ = writeln!(
        out,
        "/// Handlers of every opcode. With a memory operand: in RAM, in the TIA, in the bank that executes, anywhere in the\n\
         /// cartridge, the timer. A branch: within its page, to another. A jump: anywhere, within its bank. 0 ends the block.\n\
         #[rustfmt::skip]\nconst HANDLERS: [[u8; {FORMS}]; 256] = ["
    );
    for (row, instruction) in rows.iter().zip(&INSTRUCTIONS) {
        let mode = format!("{:?}", instruction.mode).to_ascii_lowercase();
        let numbers: Vec<String> = row.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "    [{}], // {} {mode}", numbers.join(", "), instruction.name);
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
        Mode::Abs if matches!(i.name, "JMP" | "JSR") => 6,
        Mode::Abs => 2,
        Mode::Indy => 3,
        Mode::Rel => 4,
        Mode::Ind => 5,
        _ if i.name == "RTS" => 7,
        _ => 0,
    }));
    let _ = write!(
        out,
        "
/// Position of the cycles in the upper half of a record's first word; its lowest bit counts the instruction.
const CYCLES_AT: u32 = {};
{}",
        16 + CYCLES_AT,
        RECORD
    );
    out
}

/// The functions of `machine/records.rs`.
const RECORD: &str = "
/// Returns the record of the instruction at `at`. The first word: operand, and cycles and an instruction as the block
/// counts them. The second: handler. The operand of a branch is the ROM offset to which it goes, that of a read of the
/// bank that executes is the byte there.
pub fn record(rom: &[u8], at: usize, cart: &Cart) -> u64 {
    let opcode: usize = rom[at] as usize;
    let kind: u8 = KINDS[opcode];
    let bytes: u32 = BYTES[opcode] as u32;
    let bank: u32 = cart::bank_bytes(cart.kind);
    let begin: u32 = at as u32 & !(bank - 1);
    let offset: u32 = at as u32 - begin;
    let mut end: u32 = bank;
    if (cart.plain_high as u32) < 0x1000 && (at as u32 | bank - 1) & 0xFFF == 0xFFF {
        end = cart.plain_high as u32 & (bank - 1);
    }
    let mut operand: u32 = 0;
    if bytes > 1 && at + 1 < rom.len() {
        operand = rom[at + 1] as u32;
    }
    if bytes > 2 && at + 2 < rom.len() {
        operand |= (rom[at + 2] as u32) << 8;
    }
    let mut handler: u8 = HANDLERS[opcode][0];
    match kind {
        1 => {
            if operand < 0x80 {
                handler = HANDLERS[opcode][1];
            } else {
                operand &= 0x7F;
            }
        }
        2 => {
            let fills_window: bool = bank > cart::SEGMENT_BYTES;
            if operand & 0x1000 != 0 && fills_window {
                handler = 0;
                let read_at: usize = (begin | operand & (bank - 1)) as usize;
                if cart::is_plain(cart, operand & 0xFFF) && read_at < rom.len() {
                    handler = HANDLERS[opcode][2];
                    operand = rom[read_at] as u32;
                }
            } else if operand & 0x1000 != 0 {
                handler = HANDLERS[opcode][3];
            } else if operand & 0x1280 == 0x80 {
                operand &= 0x7F;
            } else if operand & 0x80 == 0 {
                handler = HANDLERS[opcode][1];
            } else if operand & 0x1285 == 0x284 && cart.claims == 0 && !waits(rom, at) {
                handler = HANDLERS[opcode][4];
            } else {
                handler = 0;
            }
        }
        3 => {
            if operand < 0x80 || operand == 0xFF {
                handler = 0;
            }
            operand &= 0x7F;
        }
        4 => {
            let next: u32 = offset + bytes;
            let target: u32 = next.wrapping_add(operand as u8 as i8 as i32 as u32);
            if target & 0xFF00 != next & 0xFF00 {
                handler = HANDLERS[opcode][1];
            }
            operand = begin.wrapping_add(target);
            // A target below plain ROM or in another bank, or one that 16 bits do not hold.
            if target < cart.plain_low as u32 & (bank - 1) || target >= end || operand > 0xFFFF {
                handler = 0;
                operand = 0;
            }
        }
        5 => {
            if operand & 0x1280 != 0x80 || operand & 0x7F == 0x7F {
                handler = 0;
            }
            operand &= 0x7F;
        }
        6 => {
            let fills_window: bool = bank > cart::SEGMENT_BYTES;
            if fills_window && operand & 0x1000 != 0 && cart::is_plain(cart, operand & 0xFFF) {
                handler = HANDLERS[opcode][1];
            }
        }
        _ => {}
    }
    // After the last instruction of a bank, another one may follow only if that is where a jump goes.
    let jumps: bool = kind >= 5;
    if offset + bytes > end || (offset + bytes == end && !jumps) || at + 1 == rom.len() {
        handler = 0;
    }
    let first: u32 = operand | 1 << 16 | (CYCLES[opcode] as u32) << CYCLES_AT;
    (handler as u64) << 32 | first as u64
}

/// True if a branch back to the instruction of three bytes at `at` follows it: `polls` skips iterations of such loops.
fn waits(rom: &[u8], at: usize) -> bool {
    at + 4 < rom.len() && (rom[at + 3] == 0xD0 || rom[at + 3] == 0x10) && rom[at + 4] == 0xFB
}
";

/// Length of an instruction in bytes.
pub fn length(mode: Mode) -> u32 {
    match mode {
        Mode::Imp | Mode::Acc => 1,
        Mode::Abs | Mode::Absx | Mode::Absy | Mode::Ind => 3,
        _ => 2,
    }
}
