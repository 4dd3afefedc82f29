//! Horizontal motion: the effect of an HMOVE strobe on the five movable objects, by the cycle of the strobe.
//!
//! Device subset.

use super::write::{catch_up_for_move, mark_moved, mark_moved_to};
use super::{FORM_NORMAL, M0, P0, Tia, VISIBLE_CLOCKS, beam, line_clock, objects};
use crate::machine::{Board, Machine};

/// Maximum motion to the left for strobes at cycles 4-20.
const EARLY: [i8; 17] = [6, 5, 5, 4, 3, 2, 2, 1, 0, -1, -1, -2, -3, -4, -4, -5, -6];
/// Motion that is lost for strobes at cycles 54-74.
const LATE: [i8; 21] = [15, 14, 13, 12, 12, 11, 10, 9, 9, 8, 7, 6, 6, 5, 4, 3, 3, 2, 1, 0, 0];
/// Clocks from HMOVE to the HMM0 write that starts the star field.
pub const STAR_FIELD_CLOCKS: i32 = 63;

/// Pixels to the right by which a motion nibble moves an object, for a strobe at `cycle` of the line.
pub fn motion(nibble: u8, cycle: i32) -> i32 {
    let left: i32 = if nibble > 7 { nibble as i32 - 16 } else { nibble as i32 };
    if cycle >= 4 && cycle <= 20 {
        let most: i32 = EARLY[(cycle - 4) as usize] as i32;
        return if left < most { -left } else { -most };
    }
    if cycle >= 21 && cycle <= 53 {
        return 0;
    }
    if cycle >= 54 && cycle <= 74 {
        let steps: i32 = left + 8 - LATE[(cycle - 54) as usize] as i32;
        return if steps > 0 { -steps } else { 0 };
    }
    -left
}

/// True if a strobe at `cycle` of the line blanks the next pixels 0-7.
pub fn blanks(t: &Tia, cycle: i32) -> bool {
    t.layout.hmove_blanks != 0 && (cycle <= 20 || cycle == 75)
}

/// HMOVE.
pub fn strobe(m: &mut Machine, board: &mut Board, clock: i32) {
    let cycle: i32 = line_clock(&m.tia, clock) / 3;
    let t: &Tia = &m.tia;
    let blanks: bool = blanks(t, cycle);
    let special: bool =
        t.star_field != 0 || t.missile0_form != FORM_NORMAL || t.skip[0] != 0 || t.skip[1] != 0;
    // A pending blank belongs to the previous strobe: the beam must pass it first, unless this strobe blanks
    // too.
    if m.draw != 0 || m.access_by_access != 0 || special || (t.blank_pending != 0 && !blanks) {
        beam::catch_up(m, board, clock);
    }
    m.tia.star_field = 0;
    // A strobe in the horizontal blank, as in almost all programs.
    let usual: bool = cycle < 4 || cycle > 74;
    let moves: u8 = m.tia.motion[0] | m.tia.motion[1] | m.tia.motion[2] | m.tia.motion[3] | m.tia.motion[4];
    let objects: usize = if usual && moves == 0 { 0 } else { 5 };
    for object in 0..objects {
        let nibble: u8 = m.tia.motion[object];
        if usual && nibble == 0 {
            continue;
        }
        let right: i32 = motion(nibble, cycle);
        if right != 0 {
            let to: i32 = m.tia.position[object] as i32 + right;
            let new: i32 = if to < 0 { to + VISIBLE_CLOCKS } else { to % VISIBLE_CLOCKS };
            let cells: u64 = objects::cells_at(&m.tia, object, new as u8);
            catch_up_for_move(m, board, clock, object, cells);
            m.tia.position[object] = new as u8;
            mark_moved_to(m, board, object, cells);
        }
    }
    for player in 0..2 {
        if m.tia.skip[player] != 0 {
            m.tia.skip[player] = 0;
            mark_moved(m, board, P0 + player);
        }
    }
    if m.tia.missile0_form != FORM_NORMAL {
        m.tia.missile0_form = FORM_NORMAL;
        mark_moved(m, board, M0);
    }
    m.tia.last_hmove = clock;
    if blanks {
        m.tia.blank_pending = 1;
    }
}

/// HMP0, HMP1, HMM0, HMM1, HMBL.
pub fn write_motion(m: &mut Machine, board: &mut Board, clock: i32, object: usize, value: u32) {
    let nibble: u8 = (value >> 4) as u8;
    let starts: bool = object == M0
        && clock == m.tia.last_hmove.wrapping_add(STAR_FIELD_CLOCKS)
        && m.tia.motion[M0] == 7
        && nibble == 6;
    if starts || m.access_by_access != 0 {
        beam::catch_up(m, board, clock);
    }
    if starts {
        m.tia.star_field = 1;
        m.tia.star_phase = 0;
        mark_moved(m, board, M0);
    }
    m.tia.motion[object] = nibble;
}
