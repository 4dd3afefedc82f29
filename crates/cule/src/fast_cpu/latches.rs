//! Tables of the collision latches and their objects.

use super::tia::OBJECT_SLOTS;
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
