//! The TIA of the fast CPU: writes, beam, collisions and pixels.
//!
//! State, registers, times and exceptions are those of `machine::tia`, which is the reference
//! (`tests/fast_cpu.rs` compares the two). Collisions are found in another way. Masks have 64-bit words. A
//! change advances the beam to its time only if pixels are drawn, or if the object is near one with which it
//! can still collide; the set of near objects is kept between changes. A row in which nothing changes is
//! completed at once.

mod beam;
mod collisions;
mod writes;

use super::cells::field_cells;
use super::masks::{ball_mask, missile_mask, player_mask, playfield_mask};
use super::pixels::{self, Level, Wide};
use crate::machine::tia::{ALL_OBJECTS, BL, M0, M1, P0, PF, PICTURE_BYTES, Tia, bit};

/// Length of arrays over the objects: a power of two, so that indices are never out of bounds.
pub const OBJECT_SLOTS: usize = 8;
/// The movable objects.
const MOVABLE: u8 = ALL_OBJECTS & !(1 << PF);

/// Neither `near` nor `cells` of object 0 are known, in `FastTia::stale`.
const STALE: u16 = 0x0101;

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
    /// Movable objects that have moved since their `near` was computed, in the low byte, and those of them that have
    /// moved since their `cells` were computed, in the high byte.
    stale: u16,
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
            stale: STALE * u16::from(MOVABLE),
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
        self.stale = STALE * u16::from(MOVABLE);
        self.ever_enabled |= t.enabled;
    }

    /// Recomputes the masks of those `objects` that have changed.
    #[inline(always)]
    pub(super) fn refresh(&mut self, t: &Tia, objects: u8) {
        let dirty = self.dirty & objects;
        if dirty != 0 {
            self.refresh_dirty(t, dirty);
        }
    }

    #[inline(never)]
    fn refresh_dirty(&mut self, t: &Tia, dirty: u8) {
        self.dirty &= !dirty;
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
