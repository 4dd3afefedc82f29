//! RESPx, RESMx, RESBL and RESMPx: the position that a strobe gives an object.
//!
//! Device subset.

use super::objects::{COPIES, cells_at};
use super::write::{catch_up_for_move, mark_moved, mark_moved_to, show_missile};
use super::{BL, FORM_NORMAL, HBLANK_CLOCKS, M0, P0, Tia, VISIBLE_CLOCKS, beam, line_clock};
use crate::machine::{Board, Machine};

/// Clocks for which the old image of a player continues when the strobe occurs while a copy is drawn.
pub const DISPLAY_TAIL: i32 = 11;

/// Effect of a RESPx strobe.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strobe {
    /// New position of the player.
    pub new: i32,
    /// The position does not change.
    pub same: bool,
    /// A copy is being drawn.
    pub display: bool,
    /// A copy is about to be drawn.
    pub delay: bool,
}

/// Effect of a RESPx strobe at clock `h` of a line.
pub fn player_strobe(t: &Tia, h: i32, player: usize) -> Strobe {
    let new: i32 = if h < HBLANK_CLOCKS { 3 } else { (h - 63) % VISIBLE_CLOCKS };
    let distance: i32 = (new - t.position[player] as i32 + VISIBLE_CLOCKS) % VISIBLE_CLOCKS;
    let mode: usize = (t.nusiz[player] & 7) as usize;
    let mut width: i32 = 8;
    if mode == 5 {
        width = 16;
    }
    if mode == 7 {
        width = 32;
    }
    let mut display: bool = false;
    let mut delay: bool = false;
    for i in 0..3 {
        let offset: i32 = COPIES[mode][i] as i32;
        if i == 0 || offset != 0 {
            let d: i32 = distance - offset;
            if d >= 4 && d < 4 + width {
                display = true;
            }
            if d >= 0 && d < 4 {
                delay = true;
            }
        }
    }
    Strobe { new, same: distance == 0, display, delay }
}

/// RESP0, RESP1.
pub fn strobe_player(m: &mut Machine, board: &mut Board, clock: i32, player: usize) {
    let h: i32 = line_clock(&m.tia, clock);
    let found: Strobe = player_strobe(&m.tia, h, player);
    beam::catch_up(m, board, clock);
    if found.same && found.delay && !found.display && m.tia.skip[player] == 0 {
        return;
    }
    if found.display {
        beam::catch_up(m, board, clock.wrapping_add(DISPLAY_TAIL));
    }
    m.tia.position[player] = found.new as u8;
    m.tia.skip[player] = 1;
    if found.delay && !found.display {
        m.tia.skip[player] = 0;
    }
    mark_moved(m, board, P0 + player);
}

/// Position after a missile or ball strobe, without the exceptions.
fn usual_position(h: i32) -> i32 {
    if h < HBLANK_CLOCKS { 2 } else { (h - 64) % VISIBLE_CLOCKS }
}

/// Moves an object at `target` if its position changes.
fn move_object(m: &mut Machine, board: &mut Board, target: i32, object: usize, new: i32) {
    if m.access_by_access == 0 && new == m.tia.position[object] as i32 {
        return;
    }
    let covered: u64 = cells_at(&m.tia, object, new as u8);
    catch_up_for_move(m, board, target, object, covered);
    m.tia.position[object] = new as u8;
    mark_moved_to(m, board, object, covered);
}

/// True if the star field has changed missile 0.
pub fn is_star(t: &Tia, missile: usize) -> bool {
    missile == 0 && (t.star_field != 0 || t.missile0_form != FORM_NORMAL)
}

/// Position that a RESMx strobe at clock `h` of a line gives the missile.
pub fn missile_strobe(missile: usize, h: i32, since_hmove: i32) -> i32 {
    let mut new: i32 = usual_position(h);
    if missile == 0 && since_hmove == 60 && h == 69 {
        new = 8;
    }
    if missile == 1 && since_hmove == 9 && h == 18 {
        new = 3;
    }
    new
}

/// RESM0, RESM1.
pub fn strobe_missile(m: &mut Machine, board: &mut Board, clock: i32, missile: usize) {
    let h: i32 = line_clock(&m.tia, clock);
    let since_hmove: i32 = clock.wrapping_sub(m.tia.last_hmove);
    let new: i32 = missile_strobe(missile, h, since_hmove);
    let target: i32 = clock.wrapping_add(8);
    if is_star(&m.tia, missile) {
        beam::catch_up(m, board, target);
        m.tia.missile0_form = FORM_NORMAL;
        m.tia.position[M0] = new as u8;
        mark_moved(m, board, M0);
    } else {
        move_object(m, board, target, M0 + missile, new);
    }
}

/// Position that a RESBL strobe at clock `h` of a line gives the ball.
pub fn ball_strobe(h: i32, since_hmove: i32) -> i32 {
    let mut new: i32 = usual_position(h);
    if since_hmove == 54 && (h == 60 || h == 69) {
        new = 10;
    }
    if since_hmove == 9 && h == 18 {
        new = 3;
    }
    if since_hmove == 21 && h == 30 {
        new = 6;
    }
    if since_hmove == 18 && h == 27 {
        new = 5;
    }
    new
}

/// RESBL.
pub fn strobe_ball(m: &mut Machine, board: &mut Board, clock: i32) {
    let h: i32 = line_clock(&m.tia, clock);
    let since_hmove: i32 = clock.wrapping_sub(m.tia.last_hmove);
    let new: i32 = ball_strobe(h, since_hmove);
    move_object(m, board, clock, BL, new);
}

/// Position of a missile when it is released from its player.
pub fn released_position(t: &Tia, missile: usize) -> u8 {
    let mode: u8 = t.nusiz[missile] & 7;
    let mut middle: i32 = 4;
    if mode == 5 {
        middle = 8;
    }
    if mode == 7 {
        middle = 16;
    }
    ((t.position[P0 + missile] as i32 + middle) % VISIBLE_CLOCKS) as u8
}

/// RESMP0, RESMP1: while set, the missile is hidden. On release it is at the center of its player.
pub fn write_resmp(m: &mut Machine, board: &mut Board, clock: i32, missile: usize, value: u32) {
    let on: u8 = (value >> 1 & 1) as u8;
    if on == m.tia.resmp[missile] {
        if m.access_by_access != 0 {
            beam::catch_up(m, board, clock);
        }
        return;
    }
    beam::catch_up(m, board, clock);
    m.tia.resmp[missile] = on;
    if on == 0 {
        m.tia.position[M0 + missile] = released_position(&m.tia, missile);
        if missile == 0 {
            m.tia.missile0_form = FORM_NORMAL;
        }
    }
    mark_moved(m, board, M0 + missile);
    show_missile(&mut m.tia, board, missile);
}
