//! Tables of the collision latches and their objects.

use super::tia::OBJECT_SLOTS;
use crate::machine::tia::PF;
use crate::machine::tia::collision::{FIRST, LATCHES_OF, SECOND};

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
