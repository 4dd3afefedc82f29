//! Tables of the collision latches and their objects.

use super::tia::OBJECT_SLOTS;
use crate::machine::tia::PF;
use crate::machine::tia::collision::{FIRST, LATCHES_OF, NO_LATCH, SECOND};

/// For each set of objects, the latches between two of them.
pub const LATCHES_AMONG: [u16; 64] = latches_among();

const fn latches_among() -> [u16; 64] {
    let mut table = [0; 64];
    let mut set = 0;
    while set < 64 {
        let mut latches = !NO_LATCH;
        let mut object = 0;
        while object < 6 {
            if set >> object & 1 == 0 {
                latches &= !LATCHES_OF[object];
            }
            object += 1;
        }
        table[set] = latches;
        set += 1;
    }
    table
}

/// The two objects of a latch, as indices below `OBJECT_SLOTS`.
#[inline(always)]
pub fn pair(latch: usize) -> (usize, usize) {
    (usize::from(FIRST[latch & 15]) % OBJECT_SLOTS, usize::from(SECOND[latch & 15]) % OBJECT_SLOTS)
}

/// For each movable object and each set of movable objects, the latches between the object and those of the set.
pub const LATCHES_WITH: [[u16; 32]; OBJECT_SLOTS] = latches_with();

const fn latches_with() -> [[u16; 32]; OBJECT_SLOTS] {
    let mut table = [[0; 32]; OBJECT_SLOTS];
    let mut object = 0;
    while object < PF {
        let mut set = 0;
        while set < 32 {
            let mut other = 0;
            while other < PF {
                if set >> other & 1 != 0 && other != object {
                    table[object][set] |= LATCHES_OF[object] & LATCHES_OF[other];
                }
                other += 1;
            }
            set += 1;
        }
        object += 1;
    }
    table
}

/// For each movable object, the number of its latch with the playfield.
pub const FIELD_LATCH: [u32; OBJECT_SLOTS] = field_latch();

const fn field_latch() -> [u32; OBJECT_SLOTS] {
    let mut table = [0; OBJECT_SLOTS];
    let mut object = 0;
    while object < PF {
        table[object] = (LATCHES_OF[object] & LATCHES_OF[PF]).trailing_zeros();
        object += 1;
    }
    table
}
