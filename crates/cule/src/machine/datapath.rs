//! Data path of the predicated interpreter: one formula that computes all operations, and the layout of the
//! table rows that control it.
//!
//! Device subset. The formula has no branches: it selects two of the registers or the operand, combines and
//! shifts them, and stores the result in the registers and flags that the row names. `cargo xtask kernels`
//! runs this file to find the row of each operation of `instructions.rs` (`xtask/src/predicated.rs`).
//! Operations that the formula cannot express are executed by `compact`.

/// Cycles of the instruction: 4 bits. This and all constants up to `BRANCH` are bit positions or flags of the
/// first word of a row.
pub const CYCLES: u32 = 0;
/// Length of the instruction in bytes: 2 bits.
pub const BYTES: u32 = 4;
/// Bit position, in the packed registers, of the register that is added to the operand: 6 bits.
pub const INDEX: u32 = 6;
/// Value added to the stack pointer: 8 bits.
pub const MOVES: u32 = 12;
/// The instruction is executed by the compact interpreter.
pub const SLOW: u64 = 1 << 20;
/// One extra cycle if the indexed address is on another page.
pub const PENALTY: u64 = 1 << 21;
/// The address is read from memory (indirect addressing).
pub const POINTER: u64 = 1 << 22;
/// Y is added to the address read from memory.
pub const BY_Y: u64 = 1 << 23;
/// The address is on the stack page.
pub const STACK: u64 = 1 << 24;
/// The address is one above the stack pointer.
pub const PULLS: u64 = 1 << 25;
/// The operand is read.
pub const READS: u64 = 1 << 26;
/// The result is written.
pub const WRITES: u64 = 1 << 27;
/// The return address is pushed.
pub const CALLS: u64 = 1 << 28;
/// The program counter is set to the address.
pub const JUMPS: u64 = 1 << 29;
/// The program counter is set to the address plus one.
pub const RETURNS: u64 = 1 << 30;
/// In decimal mode the instruction is executed by the compact interpreter.
pub const DECIMAL: u64 = 1 << 31;
/// Bits of the address that are kept: 16 bits. Of a branch: its condition (`flags_of`), 18 bits.
pub const MASK: u32 = 32;
/// The value written is the status register P, as pushed.
pub const STATUS: u64 = 1 << 61;
/// The branch is taken if all bits of its condition are clear.
pub const WHERE_NONE: u64 = 1 << 62;
/// The instruction is a branch.
pub const BRANCH: u64 = 1 << 63;

/// Bit position of the first number in the registers and the operand above them: 6 bits. This and all
/// constants up to `TO` describe the second word.
pub const FIRST: u32 = 0;
/// Bit position of the second number: 6 bits.
pub const SECOND: u32 = 6;
/// The second number is inverted.
pub const INVERTS: u32 = 12;
/// Factor of the bits set in exactly one of the two numbers: 0 or 1.
pub const ONES: u32 = 13;
/// Factor of the bits set in both numbers: 0, 1 or 2.
pub const BOTHS: u32 = 14;
/// Carry is added.
pub const ADDS_CARRY: u32 = 16;
/// 1 is added.
pub const ADDS_ONE: u32 = 17;
/// Carry is inserted at bit 8.
pub const CARRY_ABOVE: u32 = 18;
/// Number of bits by which the sum is shifted right: 0 or 1.
pub const SHIFTS: u32 = 19;
/// Bit of the sum that is copied to carry: 4 bits.
pub const CARRY_FROM: u32 = 20;
/// Carry is set.
pub const SETS_CARRY: u32 = 24;
/// Overflow is set from the sources below, or cleared if there is none.
pub const SETS_OVERFLOW: u32 = 25;
/// Overflow is set if the sum of the signed numbers is out of range.
pub const OVERFLOW_OF_SUM: u32 = 26;
/// Overflow is set to bit 6 of the operand.
pub const OVERFLOW_OF_OPERAND: u32 = 27;
/// The last result is set.
pub const SETS_RESULT: u32 = 28;
/// The sign of the last result is that of the operand.
pub const SIGN_OF_OPERAND: u32 = 29;
/// Decimal mode is set to bit 0 of the sum.
pub const SETS_DECIMAL: u32 = 30;
/// Mask of the register bits that receive the result: 32 bits.
pub const TO: u32 = 32;

/// Bit position of A in the packed registers. X, Y, S and the operand follow; `NOTHING` selects zero.
pub const A: u32 = 0;
/// X.
pub const X: u32 = 8;
/// Y.
pub const Y: u32 = 16;
/// The stack pointer.
pub const S: u32 = 24;
/// The operand.
pub const OPERAND: u32 = 32;
/// Selects zero.
pub const NOTHING: u32 = 40;

/// Registers and flags before or after an operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// A, X, Y and S, with A in the lowest byte.
    pub registers: u32,
    /// The last result, as in `Cpu`.
    pub result: u32,
    /// C.
    pub carry: u32,
    /// V.
    pub overflow: u32,
    /// D.
    pub decimal: u32,
    /// The value to be written, if the row has `WRITES`.
    pub value: u32,
}

/// Bit `at` of a row.
#[inline(always)]
fn bit(row: u64, at: u32) -> u32 {
    (row >> at) as u32 & 1
}

/// `new` if bit `at` of the row is set, else `old`.
#[inline(always)]
fn chosen(row: u64, at: u32, new: u32, old: u32) -> u32 {
    if bit(row, at) != 0 { new } else { old }
}

/// The byte at bit position `at` of the registers, the operand, or zero.
#[inline(always)]
pub fn byte_of(registers: u32, operand: u32, at: u32) -> u32 {
    ((registers as u64 | (operand as u64) << OPERAND) >> at) as u32 & 0xFF
}

/// Packs the inputs of branch conditions: the last result, carry and overflow.
#[inline(always)]
pub fn flags_of(result: u32, carry: u32, overflow: u32) -> u32 {
    result & 0xFFFF | carry << 16 | overflow << 17
}

/// True if a branch with this first word is taken.
#[inline(always)]
pub fn is_met(row: u64, flags: u32) -> bool {
    let found: bool = flags & (row >> MASK) as u32 & 0x3_FFFF != 0;
    found != (row & WHERE_NONE != 0)
}

/// Executes the operation that a row's second word describes.
#[inline(always)]
pub fn operate(row: u64, before: Outcome, operand: u32) -> Outcome {
    let low: u32 = row as u32;
    let first: u32 = byte_of(before.registers, operand, low & 63);
    let inverted: u32 = 0xFF * bit(row, INVERTS);
    let second: u32 = byte_of(before.registers, operand, low >> SECOND & 63) ^ inverted;
    let mut sum: u32 = (first ^ second) * bit(row, ONES) + (first & second) * (low >> BOTHS & 3);
    sum += before.carry & bit(row, ADDS_CARRY) | bit(row, ADDS_ONE);
    sum |= (before.carry & bit(row, CARRY_ABOVE)) << 8;
    let value: u32 = sum >> bit(row, SHIFTS) & 0xFF;
    let to: u32 = (row >> TO) as u32;
    let leaves: u32 = (first ^ sum) & (second ^ sum);
    let overflow: u32 =
        leaves >> 7 & bit(row, OVERFLOW_OF_SUM) | operand >> 6 & bit(row, OVERFLOW_OF_OPERAND);
    let sign: u32 = (operand >> 7 & bit(row, SIGN_OF_OPERAND)) << 15;
    Outcome {
        registers: before.registers & !to | (value * 0x0101_0101) & to,
        result: chosen(row, SETS_RESULT, value | sign, before.result),
        carry: chosen(row, SETS_CARRY, sum >> (low >> CARRY_FROM & 15) & 1, before.carry),
        overflow: chosen(row, SETS_OVERFLOW, overflow, before.overflow),
        decimal: chosen(row, SETS_DECIMAL, sum & 1, before.decimal),
        value,
    }
}
