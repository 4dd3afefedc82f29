//! Generates the interpreter of the 6507 for GPUs from `crates/cule/src/machine/instructions.rs`: one block
//! of inline PTX whose handlers are reached by `brx.idx`, a jump table (NVRTC compiles a C++ `switch` to
//! comparisons).
//!
//! The block executes instructions that access RAM, plain ROM or the running timer only, and stores to the TIA that change
//! nothing. It ends before any other instruction (code 2: `machine::compact` executes it), after a branch or jump (code 0), where
//! lanes of a warp that have diverged can converge (`kernels/forms.cuh`), and at a store to the TIA that changes something: it
//! has executed everything except the store (code 3: `machine::bus` writes `value` to `address`), or another lane stops there
//! (code 1: the lane goes on where it is). It also ends at a load from the TIA (code 4): the caller reads `address` and runs the
//! block again with code 5 and the value, for the same instruction.
//!
//! Decoded instructions are in records of 8 bytes per ROM address, created once per ROM by `machine/records.rs`. The program
//! counter is the place of a record plus an offset that only jumps change. Cycles and instructions are counted in one register.

mod header;
mod records;
mod tia;

pub use header::header;
pub use records::tables;

use crate::interpreter::instructions::{Access, INSTRUCTIONS, Instruction, Mode, Operation};
use crate::interpreter::{mentions, operation};

/// ADC without decimal mode, of `a` and `u`.
pub const ADD: &str = "t = a + u + c; v = ((a ^ t) & (u ^ t)) >> 7 & 1; c = t >> 8; n = t & 0xFF; a = n";
/// Position of the cycles in `spent`; below it are the instructions.
pub const CYCLES_AT: u32 = 13;
/// Index of the handler that ends the block.
const SLOW: usize = 0;

/// Registers of the block that are kept after it, in the order of `header::FIELDS`. `at` is the ROM offset of the next instruction, `off`
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
    pub const BUS: u32 = 460;
    pub const DRAW: u32 = 470;
}

/// C++ expressions of these offsets.
const ASSERTED: [(&str, u32); 28] = [
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
    ("bus", field::BUS),
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
    /// TIA, read only, at an address that the instruction contains.
    TiaRead,
    /// As `TiaRead`, in an instruction of three bytes.
    TiaReadAbsolute,
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
    // Other loads from the TIA are rare.
    let loads = ["LDA", "LDX", "LDY", "BIT", "AND", "ORA", "EOR", "CMP"].contains(&instruction.name)
        && (instruction.mode == Mode::Zp || matches!(instruction.name, "LDA" | "LDX" | "LDY" | "BIT"));
    let tia = |form: Form, other: Form| match () {
        () if writes => form,
        () if loads => other,
        () => Form::Slow,
    };
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
        (Mode::Zp, _) => two(Form::Ram, tia(Form::Tia, Form::TiaRead)),
        (Mode::Abs, _) if reads => {
            [Form::RamAbsolute, tia(Form::Slow, Form::TiaReadAbsolute), Form::Bank, Form::Window, Form::Timer]
        }
        (Mode::Abs, _) => two(Form::RamAbsolute, tia(Form::TiaAbsolute, Form::Slow)),
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
        Form::TiaReadAbsolute | Form::Bank | Form::Window | Form::Timer | Form::IndexX | Form::IndexY => 3,
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

/// Takes back the count of the current instruction, whose record is at `dn`, and leaves it in `t0`.
const UNCOUNT: &str = "ld.global.nc.v2.u32 {t0,t1},[dn]; shr.u32 t0,t0,16; sub.u32 acc,acc,t0";
/// Ends the block at a turn.
const TURN: &str = "mov.u32 code,0; bra LEND";

/// Begins the completion of an instruction for which the caller has read the TIA: it has been counted before.
fn take_value() -> String {
    format!("mov.u32 code,0; {UNCOUNT}")
}

/// Instructions after a handler that reads address `q` of the TIA with `bus` on the bus, and go on at `C` with the value in `o`.
fn read_tia(number: usize, bus: &str) -> String {
    format!(
        "setp.eq.u32 p,code,5; @p bra V{number}; {bus}; bra LREAD; V{number}:; {}; bra C{number}",
        take_value()
    )
}

/// Reads address `q` into `o`, from plain ROM, RAM or the TIA; other addresses end the block. `number` is that of the handler.
/// Returns instructions that follow the handler.
fn read_any(w: &mut Writer, number: usize) -> String {
    w.puts(&format!(
        "{}; {}; {LOAD_ROM}; C{number}:",
        check_plain("q", "flat", &format!("R{number}")),
        place_in_bank("t0", "q")
    ));
    format!(
        "R{number}:; {}; {}; {LOAD_ROM}; bra C{number}; \
         S{number}:; and.b32 t0,q,0x1280; setp.ne.u32 p,t0,0x80; @p bra A{number}; {}; ld.shared.u8 o,{}; bra C{number}; \
         A{number}:; and.b32 t0,q,0x1080; xor.b32 t1,w,q; and.b32 t1,t1,0xFF00; or.b32 t0,t0,t1; setp.ne.u32 p,t0,0; \
         @p bra LSLOW; {}",
        check_plain("q", "span", &format!("S{number}")),
        place_in_segment("t0", "q"),
        ram_place("t0", "q"),
        ram("t0", 0),
        // Another page would cost a cycle before the access.
        read_tia(number, "shr.u32 t1,w,8")
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

/// Loads the pointer at place `t0` of RAM into `w`.
fn load_pointer(w: &mut Writer) {
    w.puts(&format!("ld.shared.u8 w,{}; ld.shared.u8 q,{}", ram("t0", 0), ram("t0", 1)));
    w.put("mad.lo.u32 w,q,0x100,w");
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

/// Goes on to the instruction after one of this form, whose record has been loaded.
fn next(w: &mut Writer, form: Form) {
    w.puts(&format!("add.u32 at,at,{}; mad.wide.u32 dn,at,8,dec; bra LNEXT", bytes_of(form)));
}

/// Loads the record of the instruction after one of this form, of whose record nothing is needed any more.
fn load_next(w: &mut Writer, form: Form) {
    w.put(format!("ld.global.nc.v2.u32 {{e0,e1}},[dn+{}]", 8 * bytes_of(form)));
}

/// Sets `to` to the present cycle.
fn now(to: &str) -> String {
    format!("mad.hi.u32 {to},acc,{},cyc", 1u32 << (32 - CYCLES_AT))
}

/// Sets `to` to the sum of the operand in the record, which is the lower half of a word, and `other`.
fn add_operand(to: &str, other: &str) -> String {
    format!("dp2a.lo.u32.u32 {to},e0,1,{other}")
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
    let (reads, writes) = (access == Access::Read, access == Access::Write);
    match form {
        Form::Slow => {}
        Form::Implied => load_next(w, form),
        Form::Accumulator => {
            load_next(w, form);
            w.put("mov.u32 o,a");
        }
        Form::Immediate | Form::Bank => {
            w.put("and.b32 o,e0,0xFFFF");
            load_next(w, form);
        }
        Form::Ram => {
            w.put(add_operand("q", "m"));
            load_next(w, form);
        }
        Form::RamAbsolute => {
            let number = number_of(name, Form::Ram);
            return w.puts(&format!("add.u32 at,at,1; mad.wide.u32 dn,at,8,dec; bra H{number}"));
        }
        Form::Tia => {
            w.operation(text);
            return w.puts("and.b32 q,e0,0xFFFF; add.u32 at,at,2; bra LTIA");
        }
        Form::TiaRead | Form::TiaReadAbsolute => {
            w.put("and.b32 q,e0,0xFFFF");
            load_next(w, form);
            w.put(if form == Form::TiaRead { "mov.u32 t1,q" } else { "shr.u32 t1,q,8" });
            w.puts(&format!("setp.ne.u32 p,code,5; @p bra LREAD; {}", take_value()));
        }
        Form::TiaAbsolute => return w.puts(&format!("add.u32 at,at,1; bra H{}", number_of(name, Form::Tia))),
        Form::Window => {
            w.put(OPERAND);
            load_next(w, form);
            w.puts(&format!(
                "{}; {}; {LOAD_ROM}",
                check_plain("w", "span", "LSLOW"),
                place_in_segment("t0", "w")
            ));
        }
        Form::Timer => {
            load_next(w, form);
            // As `machine::riot::read_timer`, before the timer has expired.
            w.puts(&format!(
                "ld.shared.u32 t1,[m+{}]; ld.shared.u8 t2,[m+{}]",
                field::TIMER_SET_AT,
                field::TIMER_SHIFT
            ));
            w.puts(&format!("{}; sub.u32 t1,t0,t1; sub.u32 t1,t1,1", now("t0")));
            w.puts(&format!("shr.u32 t1,t1,t2; ld.shared.u8 o,[m+{}]", field::TIMER));
            w.puts("setp.ge.u32 p,t1,o; @p bra LSLOW; sub.u32 o,o,t1; sub.u32 o,o,1");
        }
        Form::ZeroX | Form::ZeroY => {
            let index = if form == Form::ZeroX { "x" } else { "y" };
            // For a load from the TIA.
            if reads {
                w.put(OPERAND);
            }
            w.put(add_operand("q", index));
            load_next(w, form);
            w.put("and.b32 q,q,0xFF");
            if !writes {
                let otherwise = if reads { format!("S{number}") } else { "LSLOW".into() };
                w.puts(&format!("setp.lt.u32 p,q,128; @p bra {otherwise}"));
                w.puts(&ram_place("q", "q"));
            }
        }
        Form::IndexX | Form::IndexY => {
            let index = if form == Form::IndexX { "x" } else { "y" };
            w.put(OPERAND);
            load_next(w, form);
            w.puts(&format!("add.u32 q,w,{index}; and.b32 q,q,0xFFFF"));
        }
        Form::Pointer => {
            w.put(add_operand("t0", "m"));
            load_next(w, form);
            load_pointer(w);
            w.puts("add.u32 q,w,y; and.b32 q,q,0xFFFF");
        }
        Form::PointerX => {
            // Both bytes of the pointer are in RAM.
            w.put(add_operand("t1", "x"));
            load_next(w, form);
            w.puts("and.b32 t1,t1,0xFF; sub.u32 t1,t1,0x80; setp.ge.u32 p,t1,0x7F");
            w.puts("@p bra LSLOW; add.u32 t0,t1,m");
            load_pointer(w);
            w.put("mov.u32 q,w");
        }
        Form::Indirect => {
            w.put(add_operand("t0", "m"));
            load_pointer(w);
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
    let indexed = reads && matches!(form, Form::ZeroX | Form::ZeroY);
    let after = match () {
        () if any => read_any(w, number),
        () if indexed => format!("S{number}:; {}", read_tia(number, "mov.u32 t1,w")),
        () => String::new(),
    };
    if any && form != Form::PointerX && has_penalty(name, form) {
        w.puts(&penalty("w"));
    }
    let in_ram = matches!(form, Form::Ram | Form::ZeroX | Form::ZeroY);
    if in_ram && access != Access::Write {
        w.put(format!("ld.shared.u8 o,{}", ram("q", 0)));
    }
    if indexed {
        w.put(format!("C{number}:"));
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
    w.puts(&format!("@p add.u32 acc,acc,{}; {TURN}", cycles << CYCLES_AT));
}

/// Pushes `o`, to RAM or to the TIA. The instruction has one byte.
fn push_any(w: &mut Writer, number: usize) {
    w.puts("mov.u32 q,s; sub.u32 s,s,1; and.b32 s,s,0xFF; add.u32 at,at,1");
    w.puts(&format!("setp.lt.u32 p,q,0x80; @p bra R{number}"));
    w.puts(&format!("add.u32 t0,q,m; st.shared.u8 {},o; bra LTOP", ram("t0", -0x80)));
    w.puts(&format!("R{number}:; or.b32 q,q,0x100; bra LTIA"));
}

/// Goes to the address in the record, which is in the bank of the jump.
const JUMP_IN_BANK: &str = "xor.b32 t0,e0,at; and.b32 t0,t0,bank; xor.b32 at,at,t0; and.b32 t0,e0,0xFFFF; sub.u32 off,t0,at; mov.u32 code,0; bra LEND";

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

/// Returns the whole block.
pub fn block() -> Block {
    let (handlers, _) = numbering();
    let mut w = Writer { lines: Vec::new(), temporaries: 0 };
    w.put("LTOP:");
    w.puts("mad.wide.u32 dn,at,8,dec; ld.global.nc.v2.u32 {e0,e1},[dn]; LNEXT:");
    // Adds the upper half of the record's first word.
    w.put("mad.hi.u32 acc,e0,0x10000,acc");
    let names: Vec<String> = (0..handlers.len()).map(|number| format!("H{number}")).collect();
    w.put(format!("TBL: .branchtargets {}", names.join(",")));
    w.put("brx.idx e1,TBL");
    for (number, (name, form)) in handlers.iter().enumerate() {
        w.put(format!("H{number}:"));
        handler(&mut w, name, *form, number);
    }
    tia::stores(&mut w);
    // If a store of one lane changes something, all lanes that are here stop, so that they stay together.
    w.put("LCHECK:");
    w.puts("setp.ne.u32 p,t0,0; activemask.b32 t1; vote.sync.any.pred p2,p,t1; @!p2 bra LTOP");
    w.puts("selp.u32 code,3,1,p; bra LEND");
    // What was on the bus before is in `t1`; the upper bytes of the field are 0. The caller may want to undo the count.
    w.put("LREAD:");
    w.puts(&format!("st.shared.u8 [m+{}],t1; ld.global.nc.v2.u32 {{o,t0}},[dn]", field::BUS));
    w.puts("shr.u32 o,o,16; mov.u32 code,4; bra LEND");
    w.put("LJUMP:");
    w.puts(&check_plain("q", "span", "LNOWHERE"));
    w.puts(&format!("{}; sub.u32 off,q,at; {TURN}", place_in_segment("at", "q")));
    w.puts(&format!("LNOWHERE:; mov.u32 at,none; sub.u32 off,q,at; {TURN}"));
    w.puts(&format!("LSLOW:; {UNCOUNT}; mov.u32 code,2; bra LEND"));
    w.puts("LSTORE:; mov.u32 code,3");
    w.put("LEND:");
    Block { lines: w.lines, handlers }
}

/// Length of an instruction in bytes.
pub fn length(mode: Mode) -> u32 {
    match mode {
        Mode::Imp | Mode::Acc => 1,
        Mode::Abs | Mode::Absx | Mode::Absy | Mode::Ind => 3,
        _ => 2,
    }
}
