//! What the predicated interpreter computes: one formula for all operations, and how a row of its table steers it.
//!
//! Device subset. No branches: two of the registers or the operand are taken, combined, shifted, and what comes out goes to
//! the registers and flags that the row names. `cargo xtask kernels` runs this very file to find the row of every operation
//! of `instructions.rs` (`xtask/src/predicated.rs`); an operation that it cannot express is left to the other interpreter.

/// An instruction takes so many cycles: 4 bits, in the first word of a row as all up to `BRANCH`.
pub const CYCLES: u32 = 0;
/// Bytes of the instruction: 2 bits.
pub const BYTES: u32 = 4;
/// What is added to the operand: where it begins in the registers, 6 bits.
pub const INDEX: u32 = 6;
/// What is added to the stack pointer: 8 bits.
pub const MOVES: u32 = 12;
/// The other interpreter takes the instruction.
pub const SLOW: u64 = 1 << 20;
/// A cycle more where the index leaves the page.
pub const PENALTY: u64 = 1 << 21;
/// The address stands at the address.
pub const POINTER: u64 = 1 << 22;
/// Y is added to what stands there.
pub const BY_Y: u64 = 1 << 23;
/// The address is that of the stack.
pub const STACK: u64 = 1 << 24;
/// It is above the stack pointer.
pub const PULLS: u64 = 1 << 25;
/// The operand is read.
pub const READS: u64 = 1 << 26;
/// The result is written.
pub const WRITES: u64 = 1 << 27;
/// The place behind the instruction is pushed.
pub const CALLS: u64 = 1 << 28;
/// The program goes on at the address.
pub const JUMPS: u64 = 1 << 29;
/// One behind the address.
pub const RETURNS: u64 = 1 << 30;
/// Decimal mode is for the other interpreter.
pub const DECIMAL: u64 = 1 << 31;
/// Bits of the address that stay, 16 of them; of a branch its condition (`flags_of`), 18 bits.
pub const MASK: u32 = 32;
/// The flags are written, as the stack keeps them.
pub const STATUS: u64 = 1 << 61;
/// The branch is taken where none of its condition's bits is set.
pub const WHERE_NONE: u64 = 1 << 62;
/// A branch.
pub const BRANCH: u64 = 1 << 63;

/// Where the first number begins in the registers and the operand behind them: 6 bits, in the second word as all below.
pub const FIRST: u32 = 0;
/// Where the second begins.
pub const SECOND: u32 = 6;
/// The second number is inverted.
pub const INVERTS: u32 = 12;
/// Times that the bits of one of them are added: 0 or 1.
pub const ONES: u32 = 13;
/// Times that the bits of both are added: 0, 1 or 2.
pub const BOTHS: u32 = 14;
/// Carry is added.
pub const ADDS_CARRY: u32 = 16;
/// 1 is added.
pub const ADDS_ONE: u32 = 17;
/// Carry comes in at bit 8.
pub const CARRY_ABOVE: u32 = 18;
/// Places by which the sum is moved down: 0 or 1.
pub const SHIFTS: u32 = 19;
/// Bit of the sum that carry gets: 4 bits.
pub const CARRY_FROM: u32 = 20;
/// Carry is set.
pub const SETS_CARRY: u32 = 24;
/// Overflow is set,
pub const SETS_OVERFLOW: u32 = 25;
/// where the sum of numbers with a sign leaves their range,
pub const OVERFLOW_OF_SUM: u32 = 26;
/// or to bit 6 of the operand.
pub const OVERFLOW_OF_OPERAND: u32 = 27;
/// The last result is set,
pub const SETS_RESULT: u32 = 28;
/// with the sign of the operand.
pub const SIGN_OF_OPERAND: u32 = 29;
/// Decimal mode is set to bit 0 of the sum.
pub const SETS_DECIMAL: u32 = 30;
/// Bits of the registers that get the result, 32 of them.
pub const TO: u32 = 32;

/// Where registers begin in their word, the operand behind them, and nothing.
pub const A: u32 = 0;
/// X.
pub const X: u32 = 8;
/// Y.
pub const Y: u32 = 16;
/// The stack pointer.
pub const S: u32 = 24;
/// The operand.
pub const OPERAND: u32 = 32;
/// Nothing: zero.
pub const NOTHING: u32 = 40;

/// What an operation leaves.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// A, X, Y and S, the first lowest.
    pub registers: u32,
    /// The last result, as in `Cpu`.
    pub result: u32,
    /// C.
    pub carry: u32,
    /// V.
    pub overflow: u32,
    /// D.
    pub decimal: u32,
    /// What is written where the row says so.
    pub value: u32,
}

/// A bit of a row.
#[inline(always)]
fn bit(row: u64, at: u32) -> u32 {
    (row >> at) as u32 & 1
}

/// `new` where bit `at` of the row is set, else `old`.
#[inline(always)]
fn chosen(row: u64, at: u32, new: u32, old: u32) -> u32 {
    if bit(row, at) != 0 { new } else { old }
}

/// A byte of the registers, of the operand behind them, or nothing.
#[inline(always)]
pub fn byte_of(registers: u32, operand: u32, at: u32) -> u32 {
    ((registers as u64 | (operand as u64) << OPERAND) >> at) as u32 & 0xFF
}

/// What conditions of branches look at: the last result, carry and overflow.
#[inline(always)]
pub fn flags_of(result: u32, carry: u32, overflow: u32) -> u32 {
    result & 0xFFFF | carry << 16 | overflow << 17
}

/// True where a branch with this first word is taken.
#[inline(always)]
pub fn is_met(row: u64, flags: u32) -> bool {
    let found: bool = flags & (row >> MASK) as u32 & 0x3_FFFF != 0;
    found != (row & WHERE_NONE != 0)
}

/// The operation of a row's second word.
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
