//! Which changes can cause a collision, by cells that objects share, and the collisions themselves.

use super::super::cells::{cells, cells_at, field_cells, is_elsewhere};
use super::super::latches::{FIELD_LATCH, LATCHES_WITH, pair};
use super::super::masks::span;
use super::{FastTia, MOVABLE, OBJECT_SLOTS, Pictures, STALE};
use crate::machine::tia::beam::is_steady;
use crate::machine::tia::collision::{LATCHES_BETWEEN, LATCHES_OF};
use crate::machine::tia::objects;
use crate::machine::tia::paint::{BACKGROUND, PLAYFIELD, SCORE};
use crate::machine::tia::{ALL_OBJECTS, BL, M0, P0, PF, Tia, WIDTH, bit, hidden};

impl FastTia {
    /// Advances the beam to `target` before `object` changes its appearance, if the change can be visible.
    #[inline(always)]
    pub(super) fn catch_up_for<const Q: bool>(
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
    pub(super) fn catch_up_if_visible<const Q: bool>(
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
        if objects & MOVABLE & !bit(object) != 0 {
            return self.can_collide_with::<Q>(t, object, objects);
        }
        self.renew_cells::<Q>(t, bit(object))?;
        let open = !t.collisions >> FIELD_LATCH[object] & 1 != 0;
        Some(open && self.cells[object] & self.cells[PF] != 0)
    }

    /// True if `object` shares a cell with one of `objects` with which it has not collided yet.
    #[inline(always)]
    fn can_collide_with<const Q: bool>(&mut self, t: &Tia, object: usize, objects: u8) -> Option<bool> {
        self.renew_near::<Q>(t, objects)?;
        let open = LATCHES_OF[object] & !t.collisions;
        let near = self.near & open & LATCHES_BETWEEN[usize::from(objects & ALL_OBJECTS)];
        let field = 0u64.wrapping_sub(u64::from(open >> FIELD_LATCH[object] & 1));
        Some(near != 0 || self.cells[object] & self.cells[PF] & field != 0)
    }

    /// True if no change of the players and the ball in `changing` is visible or could change a collision. May
    /// be false without need. `None` if it is not known.
    #[inline(always)]
    pub(super) fn is_quiet(&self, t: &Tia, changing: u8) -> Option<bool> {
        if hidden(t) {
            return Some(true);
        }
        let objects = t.enabled | changing;
        if self.draw || self.stale as u8 & objects != 0 {
            return None;
        }
        let mut field = 0;
        for object in [P0, P0 + 1, BL] {
            field |= self.cells[object] & 0u64.wrapping_sub(u64::from(changing >> object & 1));
        }
        let near = self.near & !t.collisions & LATCHES_BETWEEN[usize::from(objects & ALL_OBJECTS)];
        Some(near == 0 && field & self.cells[PF] == 0)
    }

    /// Recomputes the cells of those `objects` that have moved.
    #[inline(always)]
    pub(super) fn renew_cells<const Q: bool>(&mut self, t: &Tia, objects: u8) -> Option<()> {
        if (self.stale >> 8) as u8 & objects != 0 {
            if Q {
                return None;
            }
            self.renew_stale_cells(t, objects);
        }
        Some(())
    }

    /// Recomputes cells and near objects of those `objects` that have moved.
    #[inline(always)]
    fn renew_near<const Q: bool>(&mut self, t: &Tia, objects: u8) -> Option<()> {
        if self.stale as u8 & objects != 0 {
            if Q {
                return None;
            }
            self.renew_stale_cells(t, objects);
        }
        Some(())
    }

    #[inline(never)]
    fn renew_stale_cells(&mut self, t: &Tia, objects: u8) {
        let mut stale = self.stale as u8 & objects;
        self.stale &= !(STALE * u16::from(objects));
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

    /// True if the beam can latch no collision before a change of the chip's state.
    #[inline(always)]
    pub fn collisions_are_final(&self, t: &Tia) -> bool {
        self.collisions_final && is_steady(t)
    }

    /// Cells of the objects with which a change of the playfield could change a collision.
    #[inline(always)]
    pub(super) fn refresh_field_partners<const Q: bool>(&mut self, t: &Tia) -> Option<()> {
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
    pub(super) fn colored_cells(&self, t: &Tia, index: usize) -> u64 {
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
    pub(super) fn mark_moved(&mut self, object: usize) {
        self.mark_moved_unseen(object);
        self.collisions_final = false;
    }

    /// As `mark_moved`, for an object that is disabled.
    #[inline(always)]
    pub(super) fn mark_moved_unseen(&mut self, object: usize) {
        self.dirty |= bit(object);
        self.stale |= STALE << object;
    }

    /// As `mark_moved`, for an object that covers `cells` now. No other movable object is enabled.
    #[inline(always)]
    pub(super) fn mark_moved_alone(&mut self, object: usize, cells: u64) {
        self.dirty |= bit(object);
        self.stale = self.stale & !(STALE << object) | 1 << object;
        self.cells[object] = cells;
        self.field_partners_key = u32::MAX;
        self.collisions_final &= cells & self.cells[PF] == 0;
    }

    /// True if `object`, which is enabled or one of two that change, can cause no collision or pixel between the beam and `target`, where it is and with the cells
    /// `next`: no pixels are drawn, no other movable object is enabled, and the playfield is elsewhere. May be false
    /// without need.
    #[inline(always)]
    pub(super) fn is_apart(&self, t: &Tia, target: i32, object: usize, next: u64) -> bool {
        if self.draw || t.enabled & MOVABLE & !bit(object) != 0 {
            return false;
        }
        let moved = self.stale >> 8 >> object & 1 != 0;
        let present = if moved { cells(t, object) } else { self.cells[object] };
        let shared = (present | next) & self.cells[PF];
        shared == 0 || is_elsewhere(t, target, shared)
    }

    /// Records that the playfield has changed.
    #[inline(always)]
    pub(super) fn field_changed(&mut self, t: &Tia) {
        self.dirty |= bit(PF);
        self.cells[PF] = field_cells(t);
    }

    /// Moves `object` at `target`, if its position changes.
    #[inline(always)]
    pub(super) fn move_object<const Q: bool>(
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
            self.mark_moved_unseen(object);
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
        let near = self.can_collide_with::<false>(t, object, t.enabled) == Some(true);
        let cells = cells_at(t, object, new);
        let around = self.latches_near(object, cells);
        let open = LATCHES_OF[object] & !t.collisions;
        let field = open >> FIELD_LATCH[object] & 1 != 0;
        let meets = around & open & LATCHES_BETWEEN[usize::from(t.enabled & ALL_OBJECTS)] != 0
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
    pub(super) fn show_copies(&mut self, t: &mut Tia, player: usize) {
        t.skip[player] = 0;
        self.dirty |= bit(P0 + player);
        self.collisions_final = false;
    }

    /// As `collide`, but a function of its own.
    #[inline(never)]
    pub(super) fn collide_apart(&mut self, t: &mut Tia, from: i32, to: i32) {
        self.collide(t, from, to);
    }

    /// Computes the collisions in pixels `from..to` of the current row.
    #[inline(always)]
    pub(super) fn collide(&mut self, t: &mut Tia, from: i32, to: i32) {
        self.collisions_final = true;
        let possible = LATCHES_BETWEEN[usize::from(t.enabled & ALL_OBJECTS)] & !t.collisions;
        if hidden(t) || possible == 0 {
            return;
        }
        // Pairs that share a cell.
        let mut close = 0;
        if possible & !LATCHES_OF[PF] != 0 {
            let _ = self.renew_near::<false>(t, t.enabled);
            close = self.near & !LATCHES_OF[PF];
        } else {
            let _ = self.renew_cells::<false>(t, t.enabled);
        }
        if possible & LATCHES_OF[PF] != 0 {
            let field = self.cells[PF];
            for (object, latch) in FIELD_LATCH.iter().enumerate().take(PF) {
                close |= u16::from(self.cells[object] & field != 0) << latch;
            }
        }
        close &= possible;
        if close != 0 {
            if to - from < WIDTH as i32 && !self.shares_cell(close, from, to) {
                // A collision is possible in another part of the row.
                self.collisions_final = false;
                return;
            }
            self.latch(t, close, from, to);
        }
    }

    /// True if one of the pairs of `close` shares a cell in pixels `from..to`, of which there is at least one.
    #[inline(always)]
    fn shares_cell(&self, close: u16, from: i32, to: i32) -> bool {
        let within = (2u64 << ((to - 1) >> 2)) - (1u64 << (from >> 2));
        let (mut left, mut shared) = (close, 0);
        while left != 0 {
            let (a, b) = pair(left.trailing_zeros() as usize);
            left &= left - 1;
            shared |= self.cells[a] & self.cells[b];
        }
        shared & within != 0
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
}
