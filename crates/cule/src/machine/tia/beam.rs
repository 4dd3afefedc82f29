//! Deferred drawing: advances the beam from its last position to a given clock with the current state.
//!
//! Device subset.

use super::write::{invalidate_may_collide, mark_moved};
use super::{
    CLOCKS_PER_LINE, FORM_NORMAL, FORM_OFF, FORM_WIDE, HBLANK_CLOCKS, M0, P0, PF, SKIP_WORD, STAR_WORD, Tia,
    VISIBLE_CLOCKS, collision, hidden, paint, word_of,
};
use crate::machine::{Board, Machine};

/// Clock of a row at which the HMOVE blank ends.
pub const BLANK_END: i32 = HBLANK_CLOCKS + 8;
/// Pixels by which the star field moves missile 0 to the left, by phase.
const STAR_STEPS: [u8; 4] = [18, 33, 0, 17];

/// Draws up to clock `target`.
pub fn catch_up(m: &mut Machine, board: &mut Board, target: i32) {
    if target < m.tia.gate {
        return;
    }
    let end: i32 = if target < m.tia.window_end { target } else { m.tia.window_end };
    let goal: i32 = end - m.tia.base;
    if m.tia.beam >= goal {
        return;
    }
    if m.access_by_access == 0 && goal <= m.tia.row_start + HBLANK_CLOCKS {
        // Horizontal blank of the current row.
        m.tia.beam = goal;
        return;
    }
    advance(m, board, goal);
}

/// Moves the beam to `goal`, in clocks after row 0.
fn advance(m: &mut Machine, board: &mut Board, goal: i32) {
    let mut from: i32 = m.tia.beam - m.tia.row_start;
    // True if the previous row was drawn as a whole in the same state: the next one can be copied.
    let mut alike: bool = false;
    while m.tia.beam < goal {
        if from == CLOCKS_PER_LINE {
            m.tia.row_start += CLOCKS_PER_LINE;
            from = 0;
            if !is_steady(&m.tia) {
                enter_row(m, board);
                alike = false;
            }
        }
        if m.draw == 0 && m.tia.collisions_final != 0 && is_steady(&m.tia) {
            skip_to(&mut m.tia, from, goal);
            return;
        }
        let rest: i32 = goal - m.tia.row_start;
        let to: i32 = if rest < CLOCKS_PER_LINE { rest } else { CLOCKS_PER_LINE };
        collide(m, board, from, to);
        if m.draw != 0 {
            if alike && from == 0 && to == CLOCKS_PER_LINE && m.tia.blank_pending == 0 {
                paint::repeat_row(m, board);
            } else if to > HBLANK_CLOCKS || m.access_by_access != 0 {
                paint::draw_clocks(m, board, from, to);
                alike = from == 0 && to == CLOCKS_PER_LINE && m.tia.blank_pending == 0;
            }
        }
        if from < BLANK_END && to >= BLANK_END && m.tia.blank_pending != 0 {
            let end: i32 = m.tia.row_start + BLANK_END;
            end_blank(&mut m.tia, end);
        }
        m.tia.beam = m.tia.row_start + to;
        from = to;
    }
}

/// True if the state does not change between rows.
pub fn is_steady(t: &Tia) -> bool {
    let skips: u32 = word_of(t, SKIP_WORD) & 0x00FF_FF00;
    let stars: u32 = (word_of(t, STAR_WORD) ^ (t.ctrlpf as u32) << 16) & 0x0001_00FF;
    skips | stars == 0
}

/// Moves the beam over clocks in which nothing can happen except the end of an HMOVE blank.
pub fn skip_to(t: &mut Tia, from: i32, goal: i32) {
    if t.blank_pending != 0 {
        // The first row whose blank has not ended, and the last one whose blank has ended at the goal.
        let first: i32 = if from < BLANK_END { t.row_start } else { t.row_start + CLOCKS_PER_LINE };
        let last: i32 =
            (goal - BLANK_END + CLOCKS_PER_LINE) / CLOCKS_PER_LINE * CLOCKS_PER_LINE - CLOCKS_PER_LINE;
        if first <= last {
            end_blank(t, last + BLANK_END);
        }
    }
    t.beam = goal;
    if goal > t.row_start + CLOCKS_PER_LINE {
        // A complete row stays the current one until the next is entered.
        t.row_start = (goal - 1) / CLOCKS_PER_LINE * CLOCKS_PER_LINE;
    }
}

/// Ends the HMOVE blank at `clock` after row 0, unless HMOVE was strobed later than that, since the beam may
/// lag behind. A strobe before the first drawn clock always counts as earlier, even if row 0 belongs to an
/// earlier time (a console reset within a frame).
pub fn end_blank(t: &mut Tia, clock: i32) {
    if t.base + clock > t.last_hmove || t.last_hmove < t.gate {
        t.blank_pending = 0;
    }
}

/// Advances the star field by one row.
pub fn move_star(t: &mut Tia) {
    let phase: u8 = (t.star_phase + 1) & 3;
    t.star_phase = phase;
    let left: i32 = STAR_STEPS[phase as usize] as i32;
    t.position[M0] = ((t.position[M0] as i32 + VISIBLE_CLOCKS - left) % VISIBLE_CLOCKS) as u8;
    t.missile0_form = match phase {
        1 => FORM_WIDE,
        2 => FORM_OFF,
        _ => FORM_NORMAL,
    };
}

/// Applies the changes between two rows.
fn enter_row(m: &mut Machine, board: &mut Board) {
    let mirror: u8 = m.tia.ctrlpf & 1;
    if mirror != m.tia.mirror {
        m.tia.mirror = mirror;
        mark_moved(m, board, PF);
        invalidate_may_collide(&mut m.tia);
    }
    for player in 0..2 {
        if m.tia.skip[player] != 0 {
            m.tia.skip[player] = 0;
            mark_moved(m, board, P0 + player);
        }
    }
    if m.tia.star_field != 0 {
        move_star(&mut m.tia);
        mark_moved(m, board, M0);
    }
}

/// Latches collisions in clocks `from..to` of the current row.
fn collide(m: &mut Machine, board: &mut Board, from: i32, to: i32) {
    if to <= HBLANK_CLOCKS || m.tia.collisions_final != 0 {
        return;
    }
    let t: &Tia = &m.tia;
    if hidden(t) || (t.may_collide_outdated == 0 && t.may_collide & t.enabled == 0) {
        m.tia.collisions_final = 1;
    } else {
        let start: i32 = if from > HBLANK_CLOCKS { from - HBLANK_CLOCKS } else { 0 };
        collision::evaluate(m, board, start, to - HBLANK_CLOCKS);
    }
}
