//! The instruction set of the 6507 as tables: for each of the 256 opcodes its mnemonic, addressing mode,
//! cycles and operation.
//!
//! `cargo xtask kernels` generates the interpreters from these tables. The processor model is that of ale-py:
//! all cycles are counted directly after the opcode fetch, and the only dummy accesses are those of the
//! stack. A read through an index that crosses a page takes one extra cycle.
//!
//! An operation is a list of assignments over unsigned numbers. `a x y s` are the registers; `o` is the
//! operand, which a modifying instruction writes back; `c v` are carry and overflow, 0 or 1; `n` holds the
//! last result: zero when bits 7-0 are zero, negative when bit 7 or 15 is set; `t` is a temporary; `h` is the
//! high byte of the operand's address. `d i` are the decimal and interrupt flags. `ADD`, `SUB` and `ARR` are
//! functions of `a` and `o` that depend on decimal mode. Operator precedence is that of Rust: `+ -`, then `<<
//! >>`, then `&`, `^`, `|`.

/// Addressing mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the addressing modes' own")]
pub enum Mode {
    Imp,
    Acc,
    Imm,
    Rel,
    Zp,
    Zpx,
    Zpy,
    Abs,
    Absx,
    Absy,
    Ind,
    Indx,
    Indy,
}

/// How an operation accesses its operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes `o` to it.
    Write,
    /// Reads it, then writes `o`.
    Modify,
    /// No memory operand: registers and flags only.
    None,
    /// Branches if the expression in `text` is not zero.
    Branch,
    /// Stack, jumps, and the opcodes that stop the processor. The generators handle each of them separately.
    Special,
}

/// One opcode.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Mnemonic of the operation.
    pub name: &'static str,
    /// Addressing mode.
    pub mode: Mode,
    /// Cycles without page penalty.
    pub cycles: u32,
    /// One extra cycle if the index crosses a page.
    pub page_penalty: bool,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Mnemonic.
    pub name: &'static str,
    /// How it accesses its operand.
    pub access: Access,
    /// The assignments, separated by `; `.
    pub text: &'static str,
}

use Mode::*;

const fn row(name: &'static str, mode: Mode, cycles: u32, page_penalty: bool) -> Instruction {
    Instruction { name, mode, cycles, page_penalty }
}

const fn operation(name: &'static str, access: Access, text: &'static str) -> Operation {
    Operation { name, access, text }
}

/// All operations.
#[rustfmt::skip]
pub const OPERATIONS: &[Operation] = &[
    operation("LDA", Access::Read, "a = o; n = a"),
    operation("LDX", Access::Read, "x = o; n = x"),
    operation("LDY", Access::Read, "y = o; n = y"),
    operation("ORA", Access::Read, "a = a | o; n = a"),
    operation("AND", Access::Read, "a = a & o; n = a"),
    operation("EOR", Access::Read, "a = a ^ o; n = a"),
    operation("BIT", Access::Read, "v = o >> 6 & 1; n = a & o | (o & 0x80) << 8"),
    operation("CMP", Access::Read, "t = a + 256 - o; c = t >> 8; n = t & 0xFF"),
    operation("CPX", Access::Read, "t = x + 256 - o; c = t >> 8; n = t & 0xFF"),
    operation("CPY", Access::Read, "t = y + 256 - o; c = t >> 8; n = t & 0xFF"),
    operation("ADC", Access::Read, "ADD"),
    operation("SBC", Access::Read, "SUB"),
    operation("NOP", Access::Read, ""),
    operation("STA", Access::Write, "o = a"),
    operation("STX", Access::Write, "o = x"),
    operation("STY", Access::Write, "o = y"),
    operation("ASL", Access::Modify, "t = o << 1; c = t >> 8; o = t & 0xFF; n = o"),
    operation("LSR", Access::Modify, "c = o & 1; o = o >> 1; n = o"),
    operation("ROL", Access::Modify, "t = o << 1 | c; c = t >> 8; o = t & 0xFF; n = o"),
    operation("ROR", Access::Modify, "t = o | c << 8; c = o & 1; o = t >> 1; n = o"),
    operation("INC", Access::Modify, "o = o + 1 & 0xFF; n = o"),
    operation("DEC", Access::Modify, "o = o + 255 & 0xFF; n = o"),
    operation("INX", Access::None, "x = x + 1 & 0xFF; n = x"),
    operation("INY", Access::None, "y = y + 1 & 0xFF; n = y"),
    operation("DEX", Access::None, "x = x + 255 & 0xFF; n = x"),
    operation("DEY", Access::None, "y = y + 255 & 0xFF; n = y"),
    operation("TAX", Access::None, "x = a; n = x"),
    operation("TAY", Access::None, "y = a; n = y"),
    operation("TXA", Access::None, "a = x; n = a"),
    operation("TYA", Access::None, "a = y; n = a"),
    operation("TSX", Access::None, "x = s; n = x"),
    operation("TXS", Access::None, "s = x"),
    operation("CLC", Access::None, "c = 0"),
    operation("SEC", Access::None, "c = 1"),
    operation("CLI", Access::None, "i = 0"),
    operation("SEI", Access::None, "i = 1"),
    operation("CLV", Access::None, "v = 0"),
    operation("CLD", Access::None, "d = 0"),
    operation("SED", Access::None, "d = 1"),
    operation("BPL", Access::Branch, "n & 0x8080 == 0"),
    operation("BMI", Access::Branch, "n & 0x8080 != 0"),
    operation("BVC", Access::Branch, "v == 0"),
    operation("BVS", Access::Branch, "v != 0"),
    operation("BCC", Access::Branch, "c == 0"),
    operation("BCS", Access::Branch, "c != 0"),
    operation("BNE", Access::Branch, "n & 0xFF != 0"),
    operation("BEQ", Access::Branch, "n & 0xFF == 0"),
    operation("PHA", Access::Special, ""),
    operation("PHP", Access::Special, ""),
    operation("PLA", Access::Special, ""),
    operation("PLP", Access::Special, ""),
    operation("JMP", Access::Special, ""),
    operation("JSR", Access::Special, ""),
    operation("RTS", Access::Special, ""),
    operation("RTI", Access::Special, ""),
    operation("BRK", Access::Special, ""),
    operation("JAM", Access::Special, ""),
    operation("SLO", Access::Modify, "t = o << 1; c = t >> 8; o = t & 0xFF; a = a | o; n = a"),
    operation("RLA", Access::Modify, "t = o << 1 | c; c = t >> 8; o = t & 0xFF; a = a & o; n = a"),
    operation("SRE", Access::Modify, "c = o & 1; o = o >> 1; a = a ^ o; n = a"),
    operation("RRA", Access::Modify, "t = o | c << 8; c = o & 1; o = t >> 1; ADD"),
    operation("DCP", Access::Modify, "o = o + 255 & 0xFF; t = a + 256 - o; c = t >> 8; n = t & 0xFF"),
    operation("ISB", Access::Modify, "o = o + 1 & 0xFF; SUB"),
    operation("SAX", Access::Write, "o = a & x"),
    operation("LAX", Access::Read, "a = o; x = o; n = o"),
    operation("LAS", Access::Read, "s = s & o; a = s; x = s; n = s"),
    operation("ANC", Access::Read, "a = a & o; n = a; c = a >> 7"),
    operation("ALR", Access::Read, "t = a & o; c = t & 1; a = t >> 1; n = a"),
    operation("ARR", Access::Read, "ARR"),
    operation("ANE", Access::Read, "a = (a | 0xEE) & x & o; n = a"),
    operation("LXA", Access::Read, "a = (a | 0xEE) & o; x = a; n = a"),
    operation("SBX", Access::Read, "t = (a & x) + 256 - o; c = t >> 8; x = t & 0xFF; n = x"),
    operation("SHA", Access::Write, "o = a & x & h + 1"),
    operation("SHX", Access::Write, "o = x & h + 1"),
    operation("SHY", Access::Write, "o = y & h + 1"),
    operation("SHS", Access::Write, "s = a & x; o = s & h + 1"),
];

/// All opcodes, in numerical order.
#[rustfmt::skip]
pub const INSTRUCTIONS: [Instruction; 256] = [
    row("BRK", Imp, 7, false), // 00
    row("ORA", Indx, 6, false), // 01
    row("JAM", Imp, 2, false), // 02
    row("SLO", Indx, 8, false), // 03
    row("NOP", Zp, 3, false), // 04
    row("ORA", Zp, 3, false), // 05
    row("ASL", Zp, 5, false), // 06
    row("SLO", Zp, 5, false), // 07
    row("PHP", Imp, 3, false), // 08
    row("ORA", Imm, 2, false), // 09
    row("ASL", Acc, 2, false), // 0A
    row("ANC", Imm, 2, false), // 0B
    row("NOP", Abs, 4, false), // 0C
    row("ORA", Abs, 4, false), // 0D
    row("ASL", Abs, 6, false), // 0E
    row("SLO", Abs, 6, false), // 0F
    row("BPL", Rel, 2, false), // 10
    row("ORA", Indy, 5, true), // 11
    row("JAM", Imp, 2, false), // 12
    row("SLO", Indy, 8, false), // 13
    row("NOP", Zpx, 4, false), // 14
    row("ORA", Zpx, 4, false), // 15
    row("ASL", Zpx, 6, false), // 16
    row("SLO", Zpx, 6, false), // 17
    row("CLC", Imp, 2, false), // 18
    row("ORA", Absy, 4, true), // 19
    row("NOP", Imp, 2, false), // 1A
    row("SLO", Absy, 7, false), // 1B
    row("NOP", Absx, 4, true), // 1C
    row("ORA", Absx, 4, true), // 1D
    row("ASL", Absx, 7, false), // 1E
    row("SLO", Absx, 7, false), // 1F
    row("JSR", Abs, 6, false), // 20
    row("AND", Indx, 6, false), // 21
    row("JAM", Imp, 2, false), // 22
    row("RLA", Indx, 8, false), // 23
    row("BIT", Zp, 3, false), // 24
    row("AND", Zp, 3, false), // 25
    row("ROL", Zp, 5, false), // 26
    row("RLA", Zp, 5, false), // 27
    row("PLP", Imp, 4, false), // 28
    row("AND", Imm, 2, false), // 29
    row("ROL", Acc, 2, false), // 2A
    row("ANC", Imm, 2, false), // 2B
    row("BIT", Abs, 4, false), // 2C
    row("AND", Abs, 4, false), // 2D
    row("ROL", Abs, 6, false), // 2E
    row("RLA", Abs, 6, false), // 2F
    row("BMI", Rel, 2, false), // 30
    row("AND", Indy, 5, true), // 31
    row("JAM", Imp, 2, false), // 32
    row("RLA", Indy, 8, false), // 33
    row("NOP", Zpx, 4, false), // 34
    row("AND", Zpx, 4, false), // 35
    row("ROL", Zpx, 6, false), // 36
    row("RLA", Zpx, 6, false), // 37
    row("SEC", Imp, 2, false), // 38
    row("AND", Absy, 4, true), // 39
    row("NOP", Imp, 2, false), // 3A
    row("RLA", Absy, 7, false), // 3B
    row("NOP", Absx, 4, true), // 3C
    row("AND", Absx, 4, true), // 3D
    row("ROL", Absx, 7, false), // 3E
    row("RLA", Absx, 7, false), // 3F
    row("RTI", Imp, 6, false), // 40
    row("EOR", Indx, 6, false), // 41
    row("JAM", Imp, 2, false), // 42
    row("SRE", Indx, 8, false), // 43
    row("NOP", Zp, 3, false), // 44
    row("EOR", Zp, 3, false), // 45
    row("LSR", Zp, 5, false), // 46
    row("SRE", Zp, 5, false), // 47
    row("PHA", Imp, 3, false), // 48
    row("EOR", Imm, 2, false), // 49
    row("LSR", Acc, 2, false), // 4A
    row("ALR", Imm, 2, false), // 4B
    row("JMP", Abs, 3, false), // 4C
    row("EOR", Abs, 4, false), // 4D
    row("LSR", Abs, 6, false), // 4E
    row("SRE", Abs, 6, false), // 4F
    row("BVC", Rel, 2, false), // 50
    row("EOR", Indy, 5, true), // 51
    row("JAM", Imp, 2, false), // 52
    row("SRE", Indy, 8, false), // 53
    row("NOP", Zpx, 4, false), // 54
    row("EOR", Zpx, 4, false), // 55
    row("LSR", Zpx, 6, false), // 56
    row("SRE", Zpx, 6, false), // 57
    row("CLI", Imp, 2, false), // 58
    row("EOR", Absy, 4, true), // 59
    row("NOP", Imp, 2, false), // 5A
    row("SRE", Absy, 7, false), // 5B
    row("NOP", Absx, 4, true), // 5C
    row("EOR", Absx, 4, true), // 5D
    row("LSR", Absx, 7, false), // 5E
    row("SRE", Absx, 7, false), // 5F
    row("RTS", Imp, 6, false), // 60
    row("ADC", Indx, 6, false), // 61
    row("JAM", Imp, 2, false), // 62
    row("RRA", Indx, 8, false), // 63
    row("NOP", Zp, 3, false), // 64
    row("ADC", Zp, 3, false), // 65
    row("ROR", Zp, 5, false), // 66
    row("RRA", Zp, 5, false), // 67
    row("PLA", Imp, 4, false), // 68
    row("ADC", Imm, 2, false), // 69
    row("ROR", Acc, 2, false), // 6A
    row("ARR", Imm, 2, false), // 6B
    row("JMP", Ind, 5, false), // 6C
    row("ADC", Abs, 4, false), // 6D
    row("ROR", Abs, 6, false), // 6E
    row("RRA", Abs, 6, false), // 6F
    row("BVS", Rel, 2, false), // 70
    row("ADC", Indy, 5, true), // 71
    row("JAM", Imp, 2, false), // 72
    row("RRA", Indy, 8, false), // 73
    row("NOP", Zpx, 4, false), // 74
    row("ADC", Zpx, 4, false), // 75
    row("ROR", Zpx, 6, false), // 76
    row("RRA", Zpx, 6, false), // 77
    row("SEI", Imp, 2, false), // 78
    row("ADC", Absy, 4, true), // 79
    row("NOP", Imp, 2, false), // 7A
    row("RRA", Absy, 7, false), // 7B
    row("NOP", Absx, 4, true), // 7C
    row("ADC", Absx, 4, true), // 7D
    row("ROR", Absx, 7, false), // 7E
    row("RRA", Absx, 7, false), // 7F
    row("NOP", Imm, 2, false), // 80
    row("STA", Indx, 6, false), // 81
    row("NOP", Imm, 2, false), // 82
    row("SAX", Indx, 6, false), // 83
    row("STY", Zp, 3, false), // 84
    row("STA", Zp, 3, false), // 85
    row("STX", Zp, 3, false), // 86
    row("SAX", Zp, 3, false), // 87
    row("DEY", Imp, 2, false), // 88
    row("NOP", Imm, 2, false), // 89
    row("TXA", Imp, 2, false), // 8A
    row("ANE", Imm, 2, false), // 8B
    row("STY", Abs, 4, false), // 8C
    row("STA", Abs, 4, false), // 8D
    row("STX", Abs, 4, false), // 8E
    row("SAX", Abs, 4, false), // 8F
    row("BCC", Rel, 2, false), // 90
    row("STA", Indy, 6, false), // 91
    row("JAM", Imp, 2, false), // 92
    row("SHA", Indy, 6, false), // 93
    row("STY", Zpx, 4, false), // 94
    row("STA", Zpx, 4, false), // 95
    row("STX", Zpy, 4, false), // 96
    row("SAX", Zpy, 4, false), // 97
    row("TYA", Imp, 2, false), // 98
    row("STA", Absy, 5, false), // 99
    row("TXS", Imp, 2, false), // 9A
    row("SHS", Absy, 5, false), // 9B
    row("SHY", Absx, 5, false), // 9C
    row("STA", Absx, 5, false), // 9D
    row("SHX", Absy, 5, false), // 9E
    row("SHA", Absy, 5, false), // 9F
    row("LDY", Imm, 2, false), // A0
    row("LDA", Indx, 6, false), // A1
    row("LDX", Imm, 2, false), // A2
    row("LAX", Indx, 6, false), // A3
    row("LDY", Zp, 3, false), // A4
    row("LDA", Zp, 3, false), // A5
    row("LDX", Zp, 3, false), // A6
    row("LAX", Zp, 4, false), // A7
    row("TAY", Imp, 2, false), // A8
    row("LDA", Imm, 2, false), // A9
    row("TAX", Imp, 2, false), // AA
    row("LXA", Imm, 2, false), // AB
    row("LDY", Abs, 4, false), // AC
    row("LDA", Abs, 4, false), // AD
    row("LDX", Abs, 4, false), // AE
    row("LAX", Abs, 4, false), // AF
    row("BCS", Rel, 2, false), // B0
    row("LDA", Indy, 5, true), // B1
    row("JAM", Imp, 2, false), // B2
    row("LAX", Indy, 5, true), // B3
    row("LDY", Zpx, 4, false), // B4
    row("LDA", Zpx, 4, false), // B5
    row("LDX", Zpy, 4, false), // B6
    row("LAX", Zpy, 4, false), // B7
    row("CLV", Imp, 2, false), // B8
    row("LDA", Absy, 4, true), // B9
    row("TSX", Imp, 2, false), // BA
    row("LAS", Absy, 4, true), // BB
    row("LDY", Absx, 4, true), // BC
    row("LDA", Absx, 4, true), // BD
    row("LDX", Absy, 4, true), // BE
    row("LAX", Absy, 4, true), // BF
    row("CPY", Imm, 2, false), // C0
    row("CMP", Indx, 6, false), // C1
    row("NOP", Imm, 2, false), // C2
    row("DCP", Indx, 8, false), // C3
    row("CPY", Zp, 3, false), // C4
    row("CMP", Zp, 3, false), // C5
    row("DEC", Zp, 5, false), // C6
    row("DCP", Zp, 5, false), // C7
    row("INY", Imp, 2, false), // C8
    row("CMP", Imm, 2, false), // C9
    row("DEX", Imp, 2, false), // CA
    row("SBX", Imm, 2, false), // CB
    row("CPY", Abs, 4, false), // CC
    row("CMP", Abs, 4, false), // CD
    row("DEC", Abs, 6, false), // CE
    row("DCP", Abs, 6, false), // CF
    row("BNE", Rel, 2, false), // D0
    row("CMP", Indy, 5, true), // D1
    row("JAM", Imp, 2, false), // D2
    row("DCP", Indy, 8, false), // D3
    row("NOP", Zpx, 4, false), // D4
    row("CMP", Zpx, 4, false), // D5
    row("DEC", Zpx, 6, false), // D6
    row("DCP", Zpx, 6, false), // D7
    row("CLD", Imp, 2, false), // D8
    row("CMP", Absy, 4, true), // D9
    row("NOP", Imp, 2, false), // DA
    row("DCP", Absy, 7, false), // DB
    row("NOP", Absx, 4, true), // DC
    row("CMP", Absx, 4, true), // DD
    row("DEC", Absx, 7, false), // DE
    row("DCP", Absx, 7, false), // DF
    row("CPX", Imm, 2, false), // E0
    row("SBC", Indx, 6, false), // E1
    row("NOP", Imm, 2, false), // E2
    row("ISB", Indx, 8, false), // E3
    row("CPX", Zp, 3, false), // E4
    row("SBC", Zp, 3, false), // E5
    row("INC", Zp, 5, false), // E6
    row("ISB", Zp, 5, false), // E7
    row("INX", Imp, 2, false), // E8
    row("SBC", Imm, 2, false), // E9
    row("NOP", Imp, 2, false), // EA
    row("SBC", Imm, 2, false), // EB
    row("CPX", Abs, 4, false), // EC
    row("SBC", Abs, 4, false), // ED
    row("INC", Abs, 6, false), // EE
    row("ISB", Abs, 6, false), // EF
    row("BEQ", Rel, 2, false), // F0
    row("SBC", Indy, 5, true), // F1
    row("JAM", Imp, 2, false), // F2
    row("ISB", Indy, 8, false), // F3
    row("NOP", Zpx, 4, false), // F4
    row("SBC", Zpx, 4, false), // F5
    row("INC", Zpx, 6, false), // F6
    row("ISB", Zpx, 6, false), // F7
    row("SED", Imp, 2, false), // F8
    row("SBC", Absy, 4, true), // F9
    row("NOP", Imp, 2, false), // FA
    row("ISB", Absy, 7, false), // FB
    row("NOP", Absx, 4, true), // FC
    row("SBC", Absx, 4, true), // FD
    row("INC", Absx, 7, false), // FE
    row("ISB", Absx, 7, false), // FF
];

/// True for opcodes that may write to memory or a chip.
#[cfg(not(device))]
pub const fn writes(opcode: usize) -> bool {
    WRITES[opcode]
}

#[cfg(not(device))]
const WRITES: [bool; 256] = {
    let mut table = [false; 256];
    let mut opcode = 0;
    while opcode < 256 {
        let name = INSTRUCTIONS[opcode].name.as_bytes();
        let mut i = 0;
        while i < OPERATIONS.len() {
            let row = OPERATIONS[i].name.as_bytes();
            if row[0] == name[0] && row[1] == name[1] && row[2] == name[2] {
                table[opcode] =
                    matches!(OPERATIONS[i].access, Access::Write | Access::Modify | Access::Special);
            }
            i += 1;
        }
        opcode += 1;
    }
    table
};
