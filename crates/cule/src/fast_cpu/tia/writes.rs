//! Writes to the registers of the chip: what each changes, and whether the beam must be advanced before.

use super::super::cells::{cells, cells_at, cells_of_part, field_cells, is_elsewhere, next_playfield};
use super::super::strobe::{DISPLAYS, STARTS, strobe};
use super::{FastTia, MOVABLE, OBJECT_SLOTS, Pictures};
use crate::machine::tia::hmove;
use crate::machine::tia::objects;
use crate::machine::tia::position::{self, DISPLAY_TAIL, ball_strobe, is_star, missile_strobe};
use crate::machine::tia::write::{MIRROR_CLOCKS, PLAYFIELD_DELAY};
use crate::machine::tia::{
    BL, CLOCKS_PER_LINE, FORM_NORMAL, M0, P0, PF, Tia, WIDTH, bit, hidden, line_clock,
};

/// A bit per movable object, in a byte each.
const EACH_OBJECT: u64 = 0x10_1010_1010;

/// A bit, as in `EACH_OBJECT`, for each object whose motion is not 0.
fn with_motion(motion: [u8; 5]) -> u64 {
    let [a, b, c, d, e] = motion;
    (u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]) + 0x0F_0F0F_0F0F) & EACH_OBJECT
}

impl FastTia {
    /// Executes a write of `value` to a register at `clock`; equal to `write::write`. With `Q`, calls no function:
    /// returns `None` where one is needed, after no change that the write without `Q` does not repeat.
    #[inline(always)]
    pub fn write<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        clock: i32,
        register: u32,
        value: u8,
    ) -> Option<()> {
        match register {
            0x01 => {
                if (t.vblank ^ value) & 2 != 0 {
                    self.catch_up::<Q>(t, picture, clock.wrapping_add(1))?;
                    self.collisions_final = false;
                }
                t.vblank = value;
            }
            0x04 | 0x05 => self.write_nusiz::<Q>(t, picture, clock, (register - 0x04) as usize, value)?,
            0x06..=0x09 => {
                let index = (register - 0x06) as usize;
                let loss = if t.layout.pal != 0 { t.last_lines as u8 & 1 } else { 0 };
                let color = value & 0xFE | loss;
                if self.draw && color != t.color[index] && !hidden(t) {
                    if !Q {
                        self.renew_cells::<Q>(t, t.enabled)?;
                    }
                    if Q || !is_elsewhere(t, clock, self.colored_cells(t, index)) {
                        self.catch_up::<Q>(t, picture, clock)?;
                    }
                }
                t.color[index] = color;
            }
            0x0A => self.write_ctrlpf::<Q>(t, picture, clock, value)?,
            0x0B | 0x0C => {
                let player = (register - 0x0B) as usize;
                let on = value >> 3 & 1;
                if on != t.reflect[player] {
                    if t.enabled & bit(player) != 0 {
                        self.catch_up_for::<Q>(t, picture, clock.wrapping_add(1), player)?;
                    }
                    t.reflect[player] = on;
                    self.dirty |= bit(player);
                }
            }
            0x0D..=0x0F => {
                self.write_playfield::<Q>(t, picture, clock, register - 0x0D, value)?;
            }
            0x10 | 0x11 => {
                let player = (register - 0x10) as usize;
                if Q {
                    self.strobe_player_apart(t, clock, player)?;
                } else {
                    self.strobe_player(t, picture, clock, player);
                }
            }
            0x12 | 0x13 => {
                let missile = (register - 0x12) as usize;
                let since = clock.wrapping_sub(t.last_hmove);
                let new = missile_strobe(missile, line_clock(t, clock), since) as u8;
                if is_star(t, missile) {
                    self.catch_up::<Q>(t, picture, clock.wrapping_add(8))?;
                    t.missile0_form = FORM_NORMAL;
                    t.position[M0] = new;
                    self.mark_moved(M0);
                } else {
                    self.move_object::<Q>(t, picture, clock.wrapping_add(8), M0 + missile, new)?;
                }
            }
            0x14 => {
                let since = clock.wrapping_sub(t.last_hmove);
                let new = ball_strobe(line_clock(t, clock), since) as u8;
                self.move_object::<Q>(t, picture, clock, BL, new)?;
            }
            0x1B | 0x1C => self.write_grp::<Q>(t, picture, clock, (register - 0x1B) as usize, value)?,
            0x1D | 0x1E => {
                let missile = (register - 0x1D) as usize;
                let on = value >> 1 & 1;
                if on != t.enam[missile] {
                    if t.resmp[missile] == 0 {
                        self.ever_enabled |= bit(M0 + missile);
                        self.catch_up_for::<Q>(t, picture, clock, M0 + missile)?;
                    }
                    t.enam[missile] = on;
                    self.show_missile(t, missile);
                }
            }
            0x1F => {
                let on = value >> 1 & 1;
                if t.vdelbl == 0 && t.enabl != on {
                    self.ever_enabled |= bit(BL);
                    self.catch_up_for::<Q>(t, picture, clock, BL)?;
                }
                t.enabl = on;
                self.show_ball(t);
            }
            0x20..=0x24 => {
                let object = (register - 0x20) as usize;
                let nibble = value >> 4;
                let starts = object == M0
                    && clock == t.last_hmove.wrapping_add(hmove::STAR_FIELD_CLOCKS)
                    && t.motion[M0] == 7
                    && nibble == 6;
                if starts {
                    self.catch_up::<Q>(t, picture, clock)?;
                    t.star_field = 1;
                    t.star_phase = 0;
                    self.mark_moved(M0);
                }
                t.motion[object] = nibble;
            }
            0x25 | 0x26 => {
                let player = (register - 0x25) as usize;
                let on = value & 1;
                let seen = if on != 0 { t.grp_old[player] } else { t.grp[player] };
                if seen != t.graphics[player] {
                    self.ever_enabled |= bit(player);
                    self.catch_up_for::<Q>(t, picture, clock, player)?;
                }
                t.vdelp[player] = on;
                self.show_player(t, player);
            }
            0x27 => {
                let on = value & 1;
                let seen = if on != 0 { t.enabl_old } else { t.enabl };
                if (seen != 0) != (t.enabled & bit(BL) != 0) {
                    self.ever_enabled |= bit(BL);
                    self.catch_up_for::<Q>(t, picture, clock, BL)?;
                }
                t.vdelbl = on;
                self.show_ball(t);
            }
            0x28 | 0x29 => {
                let missile = (register - 0x28) as usize;
                let on = value >> 1 & 1;
                if on != t.resmp[missile] {
                    self.catch_up::<Q>(t, picture, clock)?;
                    t.resmp[missile] = on;
                    if on == 0 {
                        t.position[M0 + missile] = position::released_position(t, missile);
                        if missile == 0 {
                            t.missile0_form = FORM_NORMAL;
                        }
                    }
                    self.ever_enabled |= bit(M0 + missile);
                    self.mark_moved(M0 + missile);
                    self.show_missile(t, missile);
                }
            }
            0x2A => self.write_hmove::<Q>(t, picture, clock)?,
            0x2B => t.motion = [0; 5],
            0x2C => {
                self.catch_up::<Q>(t, picture, clock)?;
                t.collisions = 0;
                self.collisions_final = false;
            }
            _ => {}
        }
        Some(())
    }

    #[inline(always)]
    fn write_playfield<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        clock: i32,
        part: u32,
        value: u8,
    ) -> Option<()> {
        let old = t.playfield;
        let new = next_playfield(old, part, value);
        if new == old {
            return Some(());
        }
        self.ever_enabled |= bit(PF);
        let turns = t.mirror != t.ctrlpf & 1;
        let changes = if turns { objects::ALL_CELLS } else { cells_of_part(part, old ^ new, t.mirror) };
        let mut near = false;
        if !hidden(t) {
            self.renew_cells::<Q>(t, t.enabled)?;
            self.refresh_field_partners::<Q>(t)?;
            near = changes & self.field_partners != 0;
            if near || self.draw {
                let delay = PLAYFIELD_DELAY[(line_clock(t, clock) / 3) as usize & 3];
                let target = clock.wrapping_add(delay);
                if Q || !is_elsewhere(t, target, changes) {
                    self.catch_up::<Q>(t, picture, target)?;
                }
            }
        }
        t.playfield = new;
        t.enabled = t.enabled & !bit(PF) | u8::from(new != 0) << PF;
        self.dirty |= bit(PF);
        self.cells[PF] = if turns { field_cells(t) } else { self.cells[PF] ^ changes };
        self.collisions_final &= !near;
        Some(())
    }

    /// RESPx, if the beam can stay where it is: the player is disabled or `is_apart`. Otherwise does nothing.
    #[inline(always)]
    fn strobe_player_apart(&mut self, t: &mut Tia, clock: i32, player: usize) -> Option<()> {
        let object = P0 + player;
        let shown = t.enabled & MOVABLE;
        if shown & bit(object) != 0 && shown != bit(object) {
            return None;
        }
        // The suppressed copy belongs to the row of the strobe, so the beam must be in that row.
        let within = clock.wrapping_sub(t.base).wrapping_sub(t.row_start);
        if !(0..CLOCKS_PER_LINE).contains(&within) || clock < t.gate || clock >= t.window_end {
            return None;
        }
        let found = strobe(t, within, player);
        if found.kind == DISPLAYS {
            return None;
        }
        if shown & bit(object) == 0 {
            self.mark_moved_unseen(object);
        } else {
            let cells = cells_at(t, object, found.new);
            if !self.is_apart(t, clock, object, cells) {
                return None;
            }
            self.mark_moved_alone(object, cells);
        }
        t.position[player] = found.new;
        t.skip[player] = u8::from(found.kind != STARTS);
        Some(())
    }

    #[inline(never)]
    fn strobe_player(&mut self, t: &mut Tia, picture: &mut Pictures, clock: i32, player: usize) {
        let found = strobe(t, line_clock(t, clock), player);
        let skips = found.kind != STARTS;
        if found.same && !skips && t.skip[player] == 0 {
            return;
        }
        let tail = if found.kind == DISPLAYS { DISPLAY_TAIL } else { 0 };
        let _ = self.catch_up::<false>(t, picture, clock.wrapping_add(tail));
        self.mark_moved(P0 + player);
        t.position[player] = found.new;
        t.skip[player] = u8::from(skips);
    }

    #[inline(always)]
    fn write_nusiz<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        clock: i32,
        player: usize,
        value: u8,
    ) -> Option<()> {
        let special = t.skip[player] != 0 || is_star(t, player);
        let sized = (t.nusiz[player] ^ value) & 0x37 != 0;
        let both = bit(P0 + player) | bit(M0 + player);
        let shown = t.enabled & both != 0;
        if is_star(t, player) || (special || sized) && shown {
            let target = clock.wrapping_add(8);
            // The next access is at least nine clocks later.
            if Q && t.enabled & MOVABLE == bit(P0 + player) && !is_star(t, player) {
                let before = std::mem::replace(&mut t.nusiz[player], value);
                let cells = cells(t, P0 + player);
                t.nusiz[player] = before;
                if self.is_apart(t, target, P0 + player, cells) {
                    t.nusiz[player] = value;
                    t.skip[player] = 0;
                    self.mark_moved_alone(P0 + player, cells);
                    self.mark_moved_unseen(M0 + player);
                    return Some(());
                }
            }
            self.catch_up::<Q>(t, picture, target)?;
        }
        t.nusiz[player] = value;
        if special || sized {
            t.skip[player] = 0;
            if player == 0 {
                t.missile0_form = FORM_NORMAL;
            }
            self.mark_moved(P0 + player);
            self.mark_moved(M0 + player);
        }
        Some(())
    }

    #[inline(always)]
    fn write_ctrlpf<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        clock: i32,
        value: u8,
    ) -> Option<()> {
        let mirror = value & 1;
        let changes = t.ctrlpf ^ value;
        let turned = mirror != t.mirror || changes & 1 != 0;
        let sized = changes & 0x30 != 0;
        let seen = changes != 0 && (self.draw || sized && t.enabled & bit(BL) != 0);
        if turned || seen {
            self.catch_up::<Q>(t, picture, clock)?;
        }
        t.ctrlpf = value;
        if sized {
            self.mark_moved(BL);
        }
        if turned {
            if line_clock(t, clock) < MIRROR_CLOCKS {
                t.mirror = mirror;
            }
            self.field_changed(t);
            self.collisions_final = false;
        }
        Some(())
    }

    #[inline(always)]
    fn write_grp<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        clock: i32,
        player: usize,
        value: u8,
    ) -> Option<()> {
        let other = 1 - player;
        if t.vdelp[0] | t.vdelp[1] | t.vdelbl == 0 {
            if t.grp[player] != value {
                self.ever_enabled |= bit(player);
                self.catch_up_for::<Q>(t, picture, clock.wrapping_add(1), player)?;
                t.grp[player] = value;
                t.graphics[player] = value;
                t.enabled = t.enabled & !bit(player) | u8::from(value != 0) << player;
                self.dirty |= bit(player);
            }
            t.grp_old[other] = t.grp[other];
            if player == 1 {
                t.enabl_old = t.enabl;
            }
            return Some(());
        }
        let own = t.vdelp[player] == 0 && t.grp[player] != value;
        let delayed = t.vdelp[other] != 0 && t.grp_old[other] != t.grp[other];
        let ball = player == 1 && t.vdelbl != 0 && t.enabl_old != t.enabl;
        let mut near = false;
        let changing = u8::from(own) << player | u8::from(delayed) << other | u8::from(ball) << BL;
        if Q {
            self.ever_enabled |= changing;
            if !self.is_quiet(t, changing)? {
                return None;
            }
        } else {
            if own {
                self.ever_enabled |= bit(player);
                near |= self.catch_up_if_visible::<Q>(t, picture, clock.wrapping_add(1), player, changing)?;
            }
            if delayed {
                self.ever_enabled |= bit(other);
                near |= self.catch_up_if_visible::<Q>(t, picture, clock.wrapping_add(1), other, changing)?;
            }
            if ball {
                self.ever_enabled |= bit(BL);
                near |= self.catch_up_if_visible::<Q>(t, picture, clock.wrapping_add(1), BL, changing)?;
            }
        }
        // Not earlier: advancing the beam for the last change may set `collisions_final` before the other
        // changes are applied.
        self.collisions_final &= !near;
        t.grp[player] = value;
        t.grp_old[other] = t.grp[other];
        if own {
            self.show_player(t, player);
        }
        if delayed {
            self.show_player(t, other);
        }
        if player == 1 {
            t.enabl_old = t.enabl;
            if ball {
                self.show_ball(t);
            }
        }
        Some(())
    }

    /// HMOVE. In almost all programs it is in the horizontal blank, and in many no object has a motion.
    #[inline(always)]
    fn write_hmove<const Q: bool>(&mut self, t: &mut Tia, picture: &mut Pictures, clock: i32) -> Option<()> {
        if !Q {
            self.strobe_hmove(t, picture, clock);
            return Some(());
        }
        let cycle = line_clock(t, clock) / 3;
        let special =
            t.star_field | t.missile0_form | t.skip[0] | t.skip[1] != 0 || t.layout.hmove_blanks == 0;
        if self.draw || special || cycle > 12 || t.motion != [0; 5] {
            return None;
        }
        t.last_hmove = clock;
        t.blank_pending = 1;
        Some(())
    }

    #[inline(never)]
    fn strobe_hmove(&mut self, t: &mut Tia, picture: &mut Pictures, clock: i32) {
        let cycle = line_clock(t, clock) / 3;
        let blanks = hmove::blanks(t, cycle);
        let star = t.star_field | t.missile0_form;
        if self.draw || star | t.skip[0] | t.skip[1] != 0 || t.blank_pending != 0 && !blanks {
            let _ = self.catch_up::<false>(t, picture, clock);
        }
        // At cycles 0-12 and 75, objects without motion do not move.
        let mut moving = if cycle <= 12 || cycle == 75 { with_motion(t.motion) } else { EACH_OBJECT };
        let at_once = !(4..=74).contains(&cycle);
        while moving != 0 {
            let object = moving.trailing_zeros() as usize / 8 % OBJECT_SLOTS;
            moving &= moving - 1;
            let Some(&nibble) = t.motion.get(object) else { continue };
            // For a strobe in the horizontal blank, `motion` is the nibble as a signed number, to the left.
            let right = if at_once { 8 - i32::from(nibble ^ 8) } else { hmove::motion(nibble, cycle) };
            if right != 0 {
                let width = WIDTH as i32;
                let to = i32::from(t.position[object]) + right;
                let new = if to < 0 { to + width } else { to - if to >= width { width } else { 0 } } as u8;
                let _ = self.move_object::<false>(t, picture, clock, object, new);
            }
        }
        t.last_hmove = clock;
        if blanks {
            t.blank_pending = 1;
        }
        for player in 0..2 {
            if t.skip[player] != 0 {
                self.show_copies(t, player);
            }
        }
        if star != 0 {
            t.star_field = 0;
            t.missile0_form = FORM_NORMAL;
            self.mark_moved(M0);
        }
    }

    /// Updates the graphics that a player shows.
    fn show_player(&mut self, t: &mut Tia, player: usize) {
        let seen = if t.vdelp[player] != 0 { t.grp_old[player] } else { t.grp[player] };
        if seen != t.graphics[player] {
            t.graphics[player] = seen;
            t.enabled = t.enabled & !bit(P0 + player) | u8::from(seen != 0) << (P0 + player);
            self.dirty |= bit(P0 + player);
        }
    }

    fn show_ball(&mut self, t: &mut Tia) {
        let on = if t.vdelbl != 0 { t.enabl_old } else { t.enabl };
        t.enabled = t.enabled & !bit(BL) | on << BL;
    }

    fn show_missile(&mut self, t: &mut Tia, missile: usize) {
        let on = t.enam[missile] & (t.resmp[missile] ^ 1);
        t.enabled = t.enabled & !bit(M0 + missile) | on << (M0 + missile);
    }
}
