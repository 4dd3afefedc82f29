//! Collision latches, two bits per read register: bit 2r + 1 is bit 7 of register r, bit 2r its bit 6.
//!
//! Device subset.

use super::{ALL_NEED_BEAM, ALL_OBJECTS, PF, Tia, bit, hidden, objects};
use crate::machine::{Board, Machine};

/// The two objects of each latch. Latch 12 is unused.
pub const FIRST: [u8; 16] = [2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3, 0, 4, 2, 0];
pub const SECOND: [u8; 16] = [0, 1, 1, 0, 4, 5, 4, 5, 4, 5, 4, 5, 0, 5, 3, 1];
pub const NO_LATCH: u16 = 1 << 12;
/// The latches of each object.
pub const LATCHES_OF: [u16; 6] = [0x8039, 0x80C6, 0x4303, 0x4C0C, 0x2550, 0x2AA0];

/// Latches between the objects of each set.
pub const LATCHES_BETWEEN: [u16; 64] = latches_between();

const fn latches_between() -> [u16; 64] {
    let mut all: [u16; 64] = [0; 64];
    let mut set: usize = 0;
    while set < 64 {
        let mut latches: u16 = !NO_LATCH;
        let mut object: usize = 0;
        while object < 6 {
            if set >> object & 1 == 0 {
                latches &= !LATCHES_OF[object];
            }
            object += 1;
        }
        all[set] = latches;
        set += 1;
    }
    all
}

/// Latches between objects of `set` that are not set yet.
fn unset_latches(t: &Tia, set: u32) -> u32 {
    LATCHES_BETWEEN[set as usize] as u32 & !t.collisions as u32
}

/// Recomputes `may_collide`, and the cells that changes of the playfield are compared with.
pub fn refresh_may_collide(m: &mut Machine, board: &mut Board) {
    let t: &mut Tia = &mut m.tia;
    t.may_collide_outdated = 0;
    t.may_collide_overestimated = 0;
    let mut any: u64 = 0;
    let mut partners: u64 = 0;
    for object in 0..PF {
        let cells: u64 = board.line.cells[object];
        any |= cells;
        if t.enabled & bit(object) != 0 && t.collisions >> (2 * object + 5) & 1 == 0 {
            partners |= cells;
        }
    }
    // Pairs that share a cell and have not collided yet, by latch.
    let mut pairs: u32 = 0;
    for latch in 0..16 {
        if board.line.cells[FIRST[latch] as usize] & board.line.cells[SECOND[latch] as usize] != 0 {
            pairs |= 1 << latch;
        }
    }
    let open: u16 = pairs as u16 & !NO_LATCH & !t.collisions;
    // The other object of a pair must be enabled.
    let with_enabled: u16 = open & !LATCHES_BETWEEN[(ALL_OBJECTS & !t.enabled) as usize];
    let of_enabled: u16 = open & LATCHES_BETWEEN[t.enabled as usize];
    let mut near: u32 = 0;
    for object in 0..6 {
        let found: u16 = if t.enabled & bit(object) != 0 { of_enabled } else { with_enabled };
        if found & LATCHES_OF[object] != 0 {
            near |= 1 << object;
        }
    }
    let mut may_collide: u8 = near as u8;
    if hidden(t) {
        may_collide = 0;
        partners = 0;
    }
    if t.mirror != t.ctrlpf & 1 {
        // The next row reverses the right half of the playfield: every object may collide there.
        may_collide = ALL_OBJECTS;
        partners = objects::ALL_CELLS;
    }
    t.may_collide = may_collide;
    t.needs_beam = if m.draw != 0 { ALL_NEED_BEAM } else { may_collide };
    board.line.playfield_partners = partners;
    board.line.any_cells = any;
}

/// Updates `may_collide` after `object` moved or was enabled. The result may contain too many objects.
pub fn update_may_collide(t: &mut Tia, board: &mut Board, object: usize) {
    let cells: u64 = board.line.cells[object];
    if object < PF {
        board.line.any_cells |= cells;
    }
    if t.may_collide_outdated != 0 || hidden(t) {
        return;
    }
    let mut may_collide: u8 = t.may_collide;
    if t.enabled & bit(object) == 0 {
        // A disabled object is checked when it is enabled.
        may_collide |= bit(object);
    } else {
        // Objects that were near it may now be near no other object.
        t.may_collide_overestimated |= may_collide >> object & 1;
        let mut near: u32 = 0;
        for other in 0..6 {
            if board.line.cells[other] & cells != 0 {
                near |= 1 << other;
            }
        }
        let met: u8 = near as u8 & !bit(object);
        may_collide = may_collide & !bit(object) | met;
        if met & t.enabled != 0 {
            may_collide |= bit(object);
        }
        if object < PF {
            board.line.playfield_partners |= cells;
        }
    }
    t.may_collide = may_collide;
    if t.needs_beam != ALL_NEED_BEAM {
        t.needs_beam = may_collide;
    }
}

/// The objects with which `object` has not collided yet.
pub fn partners_of(collisions: u16, object: usize) -> u8 {
    let c: u32 = !collisions as u32;
    let found: u32 = match object {
        0 => c >> 15 << 1 & 2 | c << 2 & 4 | c & 8 | c & 0x10 | c & 0x20,
        1 => c >> 15 & 1 | c << 1 & 4 | c << 1 & 8 | c >> 2 & 0x30,
        2 => c & 1 | c & 2 | c >> 14 << 3 & 8 | c >> 4 & 0x30,
        3 => c >> 3 & 1 | c >> 1 & 2 | c >> 14 << 2 & 4 | c >> 6 & 0x30,
        4 => c >> 4 & 1 | c >> 6 << 1 & 2 | c >> 8 << 2 & 4 | c >> 10 << 3 & 8 | c >> 13 << 5 & 0x20,
        _ => c >> 5 & 1 | c >> 7 << 1 & 2 | c >> 9 << 2 & 4 | c >> 11 << 3 & 8 | c >> 13 << 4 & 0x10,
    };
    found as u8
}

/// True if `object`, placed on `cells`, could cause a new collision with an enabled object.
pub fn would_collide(m: &Machine, board: &Board, object: usize, cells: u64) -> bool {
    let t: &Tia = &m.tia;
    let mut near: u32 = 0;
    for other in 0..6 {
        if board.line.cells[other] & cells != 0 {
            near |= 1 << other;
        }
    }
    let others: u8 = near as u8 & t.enabled & !bit(object);
    others != 0 && !hidden(t) && others & partners_of(t.collisions, object) != 0
}

/// Mask of the pixels `from..to` that are in word `word`.
pub fn span_word(word: usize, from: i32, to: i32) -> u32 {
    let base: i32 = 32 * word as i32;
    let mut bits: u32 = 0xFFFF_FFFF;
    if from > base {
        bits = if from >= base + 32 { 0 } else { bits << (from - base) };
    }
    if to < base + 32 {
        bits = if to <= base { 0 } else { bits & (0xFFFF_FFFF >> (base + 32 - to)) };
    }
    bits
}

/// Records that no new collision is possible in this row. `may_collide` may contain too many objects.
fn mark_collisions_final(t: &mut Tia) {
    t.collisions_final = 1;
    if t.may_collide_overestimated != 0 {
        super::write::invalidate_may_collide(t);
    }
}

/// Latches the collisions in pixels `from..to`.
pub fn evaluate(m: &mut Machine, board: &mut Board, from: i32, to: i32) {
    let t: &mut Tia = &mut m.tia;
    let enabled: u32 = t.enabled as u32;
    if unset_latches(t, enabled) == 0 {
        mark_collisions_final(t);
        return;
    }
    let mut seen: u64 = 0;
    let mut shared: u64 = 0;
    for object in 0..6 {
        if enabled >> object & 1 != 0 {
            shared |= seen & board.line.cells[object];
            seen |= board.line.cells[object];
        }
    }
    if shared == 0 {
        mark_collisions_final(t);
        return;
    }
    // Cells that two objects can cover, and those of them in the span.
    let ahead: u64 = (1u64 << ((to + 3) >> 2)) - 1;
    let behind: u64 = (1u64 << (from >> 2)) - 1;
    let here: u64 = shared & ahead & !behind;
    let all_here: bool = here == shared;
    let mut covering: u32 = 0;
    for object in 0..6 {
        if board.line.cells[object] & here != 0 {
            covering |= 1 << object;
        }
    }
    let active: u32 = covering & enabled;
    let possible: u32 = unset_latches(t, active);
    if possible == 0 {
        if all_here {
            mark_collisions_final(t);
        }
        return;
    }
    objects::refresh(t, board, active as u8);
    // The span can have overlaps in these cells only. Eight cells are the pixels of a word.
    let mut any: u32 = 0;
    let mut latched: u32 = 0;
    let mut cells: u64 = here;
    while cells != 0 {
        let w: usize = (cells.trailing_zeros() >> 3) as usize;
        cells &= !(0xFFu64 << (8 * w));
        let span: u32 = span_word(w, from, to);
        let mut left: u32 = possible;
        while left != 0 {
            let latch: usize = left.trailing_zeros() as usize;
            left &= left - 1;
            let a: usize = FIRST[latch] as usize;
            let b: usize = SECOND[latch] as usize;
            let both: u32 = board.line.masks[a][w] & board.line.masks[b][w];
            any |= both;
            if both & span != 0 {
                latched |= 1 << latch;
            }
        }
    }
    t.collisions |= latched as u16;
    if latched != 0 {
        super::write::invalidate_may_collide(t);
    }
    if all_here && (any == 0 || (from == 0 && to == 160)) {
        mark_collisions_final(t);
    }
}
