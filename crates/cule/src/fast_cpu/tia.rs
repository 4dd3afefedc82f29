//! The TIA of the fast CPU: writes, beam, collisions and pixels.
//!
//! State, registers, times and exceptions are those of `machine::tia`, which is the reference
//! (`tests/fast_cpu.rs` compares the two). Collisions are found in another way. Masks have 64-bit words. A
//! change advances the beam to its time only if pixels are drawn, or if the object is near one with which it
//! can still collide; the set of near objects is kept between changes. A row in which nothing changes is
//! completed at once.

use super::cells::{cells, cells_at, field_cells, is_elsewhere};
use super::latches::{FIELD_LATCH, LATCHES_AMONG, LATCHES_WITH, pair};
use super::masks::{ball_mask, missile_mask, player_mask, playfield_mask, span};
use super::pixels::{self, Level, Scene, Wide};
use super::strobe::{DISPLAYS, STARTS, strobe};
use crate::machine::tia::beam::{BLANK_END, end_blank, is_steady, move_star, skip_to};
use crate::machine::tia::collision::LATCHES_OF;
use crate::machine::tia::objects::playfield_cells;
use crate::machine::tia::paint::{BACKGROUND, PLAYFIELD, SCORE, playfield_only_score};
use crate::machine::tia::position::{self, DISPLAY_TAIL, ball_strobe, is_star, missile_strobe};
use crate::machine::tia::write::{MIRROR_CLOCKS, PLAYFIELD_DELAY, next_playfield};
use crate::machine::tia::{
    ALL_OBJECTS, BL, CLOCKS_PER_LINE, FORM_NORMAL, HBLANK_CLOCKS, M0, M1, P0, PF, PICTURE_BYTES, Tia, WIDTH,
    bit, hidden, line_clock,
};
use crate::machine::tia::{hmove, objects};

/// Length of arrays over the objects: a power of two, so that indices are never out of bounds.
pub const OBJECT_SLOTS: usize = 8;
/// The movable objects.
const MOVABLE: u8 = ALL_OBJECTS & !(1 << PF);

type Pictures = [[u8; PICTURE_BYTES]; 2];

/// Data of the beam in addition to the state of the chip.
pub struct FastTia {
    /// Masks of the objects, enabled or not.
    masks: [Wide; OBJECT_SLOTS],
    /// Objects whose masks must be recomputed.
    dirty: u8,
    /// All collisions that the present state can cause have been latched.
    collisions_final: bool,
    /// Cells that the objects can cover.
    cells: [u64; OBJECT_SLOTS],
    /// Movable objects that have moved since their `cells` and `near` were computed.
    stale: u8,
    /// Latches between movable objects that share a cell.
    near: u16,
    /// Objects that have been enabled since the run began.
    ever_enabled: u8,
    /// Cells of movable objects that have been enabled and can still collide with the playfield; may contain
    /// more. Valid for `field_partners_key`.
    field_partners: u64,
    field_partners_key: u32,
    draw: bool,
    level: Level,
}

impl FastTia {
    pub fn new(t: &Tia, draw: bool) -> Self {
        Self {
            masks: [[0; 3]; OBJECT_SLOTS],
            dirty: ALL_OBJECTS,
            collisions_final: false,
            cells: [0, 0, 0, 0, 0, field_cells(t), 0, 0],
            stale: MOVABLE,
            near: 0,
            ever_enabled: t.enabled,
            field_partners: 0,
            field_partners_key: u32::MAX,
            draw,
            level: pixels::level(),
        }
    }

    /// True if pixels are drawn.
    #[inline(always)]
    pub fn draws(&self) -> bool {
        self.draw
    }

    /// Recomputes everything after the chip was changed by other code.
    pub fn invalidate(&mut self, t: &Tia) {
        self.dirty = ALL_OBJECTS;
        self.collisions_final = false;
        self.cells[PF] = field_cells(t);
        self.stale = MOVABLE;
        self.ever_enabled |= t.enabled;
    }

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
                let old = t.playfield;
                let new = next_playfield(old, register - 0x0D, u32::from(value));
                if new != old {
                    self.write_playfield::<Q>(t, picture, clock, new)?;
                }
            }
            0x10 | 0x11 => {
                if Q {
                    return None;
                }
                self.strobe_player(t, picture, clock, (register - 0x10) as usize);
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

    // ------------------------------------------------------------ possible collisions

    /// Advances the beam to `target` before `object` changes its appearance, if the change can be visible.
    #[inline(always)]
    fn catch_up_for<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        target: i32,
        object: usize,
    ) -> Option<()> {
        let near = self.catch_up_if_visible::<Q>(t, picture, target, object, bit(object))?;
        // A collision may be possible after the change. Nothing is evaluated in between.
        self.collisions_final &= !near;
        Some(())
    }

    /// As `catch_up_for`, for one of the simultaneous changes of the objects `changing`. Returns true if
    /// `collisions_final` must be cleared after the last.
    #[inline(always)]
    fn catch_up_if_visible<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        target: i32,
        object: usize,
        changing: u8,
    ) -> Option<bool> {
        let near = self.can_collide::<Q>(t, object, changing)?;
        if Q {
            // Without the cells: with them, this would need more registers than there are.
            if near || self.draw {
                self.catch_up::<Q>(t, picture, target)?;
            }
        } else if (near || self.draw && !hidden(t)) && !is_elsewhere(t, target, self.cells[object]) {
            self.catch_up::<Q>(t, picture, target)?;
        }
        Some(near)
    }

    /// True if a change of `object` within its cells could change a collision: it shares a cell with an enabled
    /// object with which it has not collided yet. An object that is disabled now causes no collision before it is
    /// enabled, which is a change of its own, or one of the simultaneous changes of the objects `changing`.
    #[inline(always)]
    fn can_collide<const Q: bool>(&mut self, t: &Tia, object: usize, changing: u8) -> Option<bool> {
        if hidden(t) {
            return Some(false);
        }
        let objects = t.enabled | changing;
        self.renew_cells::<Q>(t, objects)?;
        let open = LATCHES_OF[object] & !t.collisions;
        let near = self.near & open & LATCHES_AMONG[usize::from(objects & ALL_OBJECTS)];
        let field = 0u64.wrapping_sub(u64::from(open >> FIELD_LATCH[object] & 1));
        Some(near != 0 || self.cells[object] & self.cells[PF] & field != 0)
    }

    /// True if no change of the players and the ball in `changing` is visible or could change a collision. May
    /// be false without need. `None` if it is not known.
    #[inline(always)]
    fn is_quiet(&self, t: &Tia, changing: u8) -> Option<bool> {
        if hidden(t) {
            return Some(true);
        }
        let objects = t.enabled | changing;
        if self.draw || self.stale & objects != 0 {
            return None;
        }
        let mut field = 0;
        for object in [P0, P0 + 1, BL] {
            field |= self.cells[object] & 0u64.wrapping_sub(u64::from(changing >> object & 1));
        }
        let near = self.near & !t.collisions & LATCHES_AMONG[usize::from(objects & ALL_OBJECTS)];
        Some(near == 0 && field & self.cells[PF] == 0)
    }

    /// Recomputes cells and near objects of those `objects` that have moved.
    #[inline(always)]
    fn renew_cells<const Q: bool>(&mut self, t: &Tia, objects: u8) -> Option<()> {
        if self.stale & objects != 0 {
            if Q {
                return None;
            }
            self.renew_stale_cells(t, objects);
        }
        Some(())
    }

    #[inline(never)]
    fn renew_stale_cells(&mut self, t: &Tia, objects: u8) {
        let mut stale = self.stale & objects;
        self.stale &= !objects;
        self.field_partners_key = u32::MAX;
        while stale != 0 {
            let object = stale.trailing_zeros() as usize % OBJECT_SLOTS;
            stale &= stale - 1;
            if object > BL {
                // No movable object.
                continue;
            }
            let cells = cells(t, object);
            self.cells[object] = cells;
            self.near = self.near & !LATCHES_OF[object] | self.latches_near(object, cells);
        }
    }

    /// Latches between `object`, if it covered `cells`, and the movable objects that share a cell with it.
    #[inline(always)]
    fn latches_near(&self, object: usize, cells: u64) -> u16 {
        let mut met = 0;
        for other in 0..5 {
            met |= usize::from(self.cells[other] & cells != 0) << other;
        }
        LATCHES_WITH[object][met & 31]
    }

    /// Cells of the objects with which a change of the playfield could change a collision.
    #[inline(always)]
    fn refresh_field_partners<const Q: bool>(&mut self, t: &Tia) -> Option<()> {
        let key = u32::from(self.ever_enabled) << 16 | u32::from(t.collisions);
        if key != self.field_partners_key {
            if Q {
                return None;
            }
            self.field_partners_key = key;
            self.field_partners = 0;
            for (object, latch) in FIELD_LATCH.iter().enumerate().take(PF) {
                let open = self.ever_enabled >> object & 1 & (!t.collisions >> latch) as u8;
                self.field_partners |= self.cells[object] & 0u64.wrapping_sub(u64::from(open & 1));
            }
        }
        Some(())
    }

    /// Cells in which a color can be visible.
    fn colored_cells(&self, t: &Tia, index: usize) -> u64 {
        let objects = match index {
            BACKGROUND => return objects::ALL_CELLS,
            PLAYFIELD => bit(PF) | bit(BL),
            player => {
                let field = if t.ctrlpf & SCORE != 0 { bit(PF) } else { 0 };
                bit(P0 + player) | bit(M0 + player) | field
            }
        };
        let shown = t.enabled & objects;
        let mut cells = self.cells[PF] & 0u64.wrapping_sub(u64::from(shown >> PF & 1));
        for object in 0..5 {
            cells |= self.cells[object] & 0u64.wrapping_sub(u64::from(shown >> object & 1));
        }
        cells
    }

    /// Records that a movable object moved or changed its size.
    #[inline(always)]
    fn mark_moved(&mut self, object: usize) {
        self.dirty |= bit(object);
        self.stale |= bit(object);
        self.collisions_final = false;
    }

    /// Records that the playfield has changed.
    #[inline(always)]
    fn field_changed(&mut self, t: &Tia) {
        self.dirty |= bit(PF);
        self.cells[PF] = field_cells(t);
    }

    /// Moves `object` at `target`, if its position changes.
    #[inline(always)]
    fn move_object<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        target: i32,
        object: usize,
        new: u8,
    ) -> Option<()> {
        if new == t.position[object] {
            return Some(());
        }
        if t.enabled & bit(object) == 0 || hidden(t) {
            t.position[object] = new;
            self.dirty |= bit(object);
            self.stale |= bit(object);
            return Some(());
        }
        if Q {
            return None;
        }
        self.move_shown(t, picture, target, object, new);
        Some(())
    }

    /// Moves an enabled object at `target`.
    #[inline(never)]
    fn move_shown(&mut self, t: &mut Tia, picture: &mut Pictures, target: i32, object: usize, new: u8) {
        let near = self.can_collide::<false>(t, object, 0) == Some(true);
        let cells = cells_at(t, object, new);
        let around = self.latches_near(object, cells);
        let open = LATCHES_OF[object] & !t.collisions;
        let field = open >> FIELD_LATCH[object] & 1 != 0;
        let meets = around & open & LATCHES_AMONG[usize::from(t.enabled & ALL_OBJECTS)] != 0
            || field && self.cells[PF] & cells != 0;
        if (near || meets || self.draw) && !is_elsewhere(t, target, self.cells[object] | cells) {
            let _ = self.catch_up::<false>(t, picture, target);
        }
        t.position[object] = new;
        self.dirty |= bit(object);
        self.cells[object] = cells;
        self.near = self.near & !LATCHES_OF[object] | around;
        self.field_partners |= if field { cells } else { 0 };
        self.collisions_final &= !(near || meets);
    }

    /// Shows all copies of a player again. Its cells do not change.
    fn show_copies(&mut self, t: &mut Tia, player: usize) {
        t.skip[player] = 0;
        self.dirty |= bit(P0 + player);
        self.collisions_final = false;
    }

    // ------------------------------------------------------------ registers

    #[inline(always)]
    fn write_playfield<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        clock: i32,
        new: u32,
    ) -> Option<()> {
        self.ever_enabled |= bit(PF);
        let turns = t.mirror != t.ctrlpf & 1;
        let changes = if turns { objects::ALL_CELLS } else { playfield_cells(t.playfield ^ new, t.mirror) };
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

    fn strobe_player(&mut self, t: &mut Tia, picture: &mut Pictures, clock: i32, player: usize) {
        let found = strobe(t, line_clock(t, clock), player);
        let skips = found.kind != STARTS;
        if found.same && !skips && t.skip[player] == 0 {
            return;
        }
        // The suppressed copy belongs to the row of the strobe, so the beam must be in that row.
        let tail = if found.kind == DISPLAYS { DISPLAY_TAIL } else { 0 };
        let _ = self.catch_up::<false>(t, picture, clock.wrapping_add(tail));
        t.position[player] = found.new;
        t.skip[player] = u8::from(skips);
        self.mark_moved(P0 + player);
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
        if special || sized && t.enabled & both != 0 {
            self.catch_up::<Q>(t, picture, clock.wrapping_add(8))?;
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
        if t.motion != [0; 5] || !(cycle <= 12 || cycle == 75) {
            for object in 0..5 {
                let right = hmove::motion(t.motion[object], cycle);
                if right != 0 {
                    let to = i32::from(t.position[object]) + right;
                    let width = WIDTH as i32;
                    let new = if to < 0 { to + width } else { to % width } as u8;
                    let _ = self.move_object::<false>(t, picture, clock, object, new);
                }
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

    // ------------------------------------------------------------ the beam

    /// Advances the beam to clock `target`; equal to `beam::catch_up`.
    #[inline(always)]
    pub fn catch_up<const Q: bool>(
        &mut self,
        t: &mut Tia,
        picture: &mut Pictures,
        target: i32,
    ) -> Option<()> {
        if target < t.gate {
            return Some(());
        }
        let goal = target.min(t.window_end) - t.base;
        if t.beam >= goal {
            return Some(());
        }
        if goal <= t.row_start + HBLANK_CLOCKS {
            // Horizontal blank of the current row.
            t.beam = goal;
            return Some(());
        }
        if Q {
            return None;
        }
        self.advance(t, picture, goal);
        Some(())
    }

    #[inline(never)]
    fn advance(&mut self, t: &mut Tia, picture: &mut Pictures, goal: i32) {
        if cfg!(processor_alone) {
            self.collisions_final = true;
        }
        let mut from = t.beam - t.row_start;
        // True if the previous row was drawn as a whole in the same state: the next one can be copied.
        let mut alike = false;
        while t.beam < goal {
            if from == CLOCKS_PER_LINE {
                t.row_start += CLOCKS_PER_LINE;
                from = 0;
                if !is_steady(t) {
                    self.enter_row(t);
                    alike = false;
                }
            }
            if !self.draw && self.collisions_final && is_steady(t) {
                skip_to(t, from, goal);
                return;
            }
            let to = (goal - t.row_start).min(CLOCKS_PER_LINE);
            if to > HBLANK_CLOCKS {
                let (a, b) = ((from - HBLANK_CLOCKS).max(0), to - HBLANK_CLOCKS);
                if !self.collisions_final {
                    self.collide(t, a, b);
                }
                if self.draw {
                    let whole = from == 0 && to == CLOCKS_PER_LINE && t.blank_pending == 0;
                    self.draw_span(t, picture, a, b, alike && whole);
                    alike = whole;
                }
            }
            if t.blank_pending != 0 && from < BLANK_END && to >= BLANK_END {
                let end = t.row_start + BLANK_END;
                end_blank(t, end);
            }
            t.beam = t.row_start + to;
            from = to;
        }
    }

    /// Applies the changes between two rows.
    #[cold]
    fn enter_row(&mut self, t: &mut Tia) {
        let mirror = t.ctrlpf & 1;
        if mirror != t.mirror {
            t.mirror = mirror;
            self.field_changed(t);
            self.collisions_final = false;
        }
        for player in 0..2 {
            if t.skip[player] != 0 {
                self.show_copies(t, player);
            }
        }
        if t.star_field != 0 {
            move_star(t);
            self.mark_moved(M0);
        }
    }

    /// Computes the collisions in pixels `from..to` of the current row.
    fn collide(&mut self, t: &mut Tia, from: i32, to: i32) {
        self.collisions_final = true;
        let possible = LATCHES_AMONG[usize::from(t.enabled & ALL_OBJECTS)] & !t.collisions;
        if hidden(t) || possible == 0 {
            return;
        }
        let _ = self.renew_cells::<false>(t, t.enabled);
        // Pairs that share a cell.
        let mut close = self.near;
        let field = self.cells[PF];
        for (object, latch) in FIELD_LATCH.iter().enumerate().take(PF) {
            close |= u16::from(self.cells[object] & field != 0) << latch;
        }
        close &= possible;
        if close != 0 {
            self.latch(t, close, from, to);
        }
    }

    /// Latches the collisions in pixels `from..to`, among the pairs of `close`.
    #[inline(always)]
    fn latch(&mut self, t: &mut Tia, close: u16, from: i32, to: i32) {
        if self.dirty & t.enabled != 0 {
            let (mut left, mut objects) = (close, 0u8);
            while left != 0 {
                let (a, b) = pair(left.trailing_zeros() as usize);
                left &= left - 1;
                objects |= 1 << a | 1 << b;
            }
            self.refresh(t, objects);
        }
        let (mut left, mut found) = (close, 0u16);
        while left != 0 {
            let latch = left.trailing_zeros() as usize;
            left &= left - 1;
            let (a, b) = pair(latch);
            let (a, b) = (&self.masks[a], &self.masks[b]);
            let meet = a[0] & b[0] | a[1] & b[1] | a[2] & b[2];
            found |= u16::from(meet != 0) << latch;
        }
        if found != 0 {
            self.latch_within(t, found, from, to);
        }
    }

    /// Latches the collisions in pixels `from..to`, among pairs that overlap anywhere in the row.
    #[inline(never)]
    fn latch_within(&mut self, t: &mut Tia, found: u16, from: i32, to: i32) {
        let span = span(from, to);
        let mut left = found;
        let mut latched = 0;
        while left != 0 {
            let latch = left.trailing_zeros() as usize;
            left &= left - 1;
            let (a, b) = pair(latch);
            let (a, b) = (&self.masks[a], &self.masks[b]);
            let meet = a[0] & b[0] & span[0] | a[1] & b[1] & span[1] | a[2] & b[2] & span[2];
            latched |= u16::from(meet != 0) << latch;
        }
        t.collisions |= latched;
        // Pairs that overlap elsewhere may collide later in the row.
        self.collisions_final = found == latched;
    }

    // ------------------------------------------------------------ pixels

    fn draw_span(&mut self, t: &mut Tia, picture: &mut Pictures, from: i32, to: i32, as_above: bool) {
        let at = (t.row_start / CLOCKS_PER_LINE) as usize * WIDTH;
        let buffer = &mut picture[usize::from(t.buffer & 1)];
        if as_above && (WIDTH..PICTURE_BYTES).contains(&at) {
            let (above, below) = buffer.split_at_mut(at);
            if let (Some(above), Some(row)) = (above.last_chunk::<WIDTH>(), below.first_chunk_mut::<WIDTH>())
            {
                *row = *above;
            }
            return;
        }
        let Some(row) = buffer.get_mut(at..).and_then(|rows| rows.first_chunk_mut::<WIDTH>()) else { return };
        if hidden(t) {
            row[from as usize..to as usize].fill(0);
        } else {
            self.refresh(t, t.enabled);
            let scene = Scene {
                masks: &self.masks,
                enabled: t.enabled,
                ctrlpf: t.ctrlpf,
                playfield_only_score: playfield_only_score(t),
                colors: t.color,
            };
            pixels::draw(self.level, row, from as usize, to as usize, &scene);
        }
        let blank = BLANK_END - HBLANK_CLOCKS;
        if t.blank_pending != 0 && from < blank {
            row[from as usize..blank.min(to) as usize].fill(0);
        }
    }

    // ------------------------------------------------------------ masks

    /// Recomputes the masks of those `objects` that have changed.
    #[inline(always)]
    fn refresh(&mut self, t: &Tia, objects: u8) {
        let dirty = self.dirty & objects;
        if dirty == 0 {
            return;
        }
        self.dirty &= !objects;
        for player in 0..2 {
            if dirty & bit(P0 + player) != 0 {
                player_mask(t, player, &mut self.masks[P0 + player]);
            }
        }
        if dirty & bit(PF) != 0 {
            playfield_mask(t, &mut self.masks[PF]);
        }
        if dirty & (bit(M0) | bit(M1) | bit(BL)) != 0 {
            for missile in 0..2 {
                if dirty & bit(M0 + missile) != 0 {
                    missile_mask(t, missile, &mut self.masks[M0 + missile]);
                }
            }
            if dirty & bit(BL) != 0 {
                ball_mask(t, &mut self.masks[BL]);
            }
        }
    }
}
