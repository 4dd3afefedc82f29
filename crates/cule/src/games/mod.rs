//! Games as data: the settings of a game's cartridge, and how score, lives and the end are read from its RAM.
//!
//! Device subset.

#![allow(
    missing_docs,
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::manual_range_contains,
    clippy::manual_memcpy,
    clippy::assign_op_pattern,
    clippy::collapsible_match,
    clippy::needless_return,
    clippy::needless_late_init,
    clippy::manual_range_patterns,
    clippy::unnecessary_cast,
    clippy::nonminimal_bool,
    clippy::manual_is_multiple_of,
    clippy::too_many_arguments,
    unused_parens,
    unused_assignments,
    reason = "the device subset has no ranges, iterators or methods; constants are named as in the chips' manuals"
)]

pub mod evaluate;
pub mod row;
pub mod rules;
pub mod select;
pub mod table;
#[cfg(not(device))]
pub mod two_players;

use bytemuck::{Pod, Zeroable};

use evaluate::AUX_COUNT;
use row::Reported;
use table::GAMES;

/// The variables of a game's rules.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Rules {
    /// Reward of the last frame.
    pub reward: i32,
    /// Score at the previous evaluation.
    pub previous: i32,
    /// Lives as the game counts them.
    pub lives: i32,
    /// Mode of the following resets.
    pub mode: u32,
    /// Variables that only some games have.
    pub aux: [i32; AUX_COUNT],
    /// The episode has ended.
    pub over: u8,
    /// Keeps the size a multiple of four.
    pub unused: [u8; 3],
}

/// Returns the variables before the first evaluation.
pub fn new(mode: u32) -> Rules {
    Rules { reward: 0, previous: 0, lives: 0, mode, aux: [0; AUX_COUNT], over: 0, unused: [0, 0, 0] }
}

/// Number of lives that is reported to the caller.
pub fn lives(s: &Rules, game: usize) -> i32 {
    let alive: i32 = if s.over != 0 { 0 } else { 1 };
    match GAMES[game].reported {
        Reported::Counted => alive * s.lives,
        Reported::CountedAlways => s.lives,
        Reported::One => 1,
        Reported::OneUntilEnd => alive,
    }
}

/// Address of the last RAM byte that the game's rules read.
pub fn last_read(game: usize) -> i32 {
    GAMES[game].last_read as i32
}

/// RAM byte at bus address $80-$FF.
pub fn byte(ram: &[u8; 128], address: i32) -> i32 {
    ram[(address & 0x7F) as usize] as i32
}

/// Value of two decimal digits. Nibbles above 9 count with their value.
pub fn digits(value: u8) -> i32 {
    10 * (value >> 4) as i32 + (value & 15) as i32
}

fn bcd1(ram: &[u8; 128], low: i32) -> i32 {
    digits(byte(ram, low) as u8)
}

fn bcd2(ram: &[u8; 128], low: i32, high: i32) -> i32 {
    bcd1(ram, low) + 100 * bcd1(ram, high)
}

fn signed(value: i32) -> i32 {
    value as u8 as i8 as i32
}
