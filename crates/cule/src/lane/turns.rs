//! In which order the lanes of a warp take their turns: those with the smallest key go on, together.
//!
//! Device subset. What a lane computes does not depend on it. Lanes that play one game come together most often where the
//! one whose beam is furthest behind goes first, of those the one deepest in subroutines, of those the one with the lowest
//! program counter (the key that shared most in a comparison of twelve, over traces of twenty games). Blank lines are one
//! window, before the picture and behind it: what happens there has no line.

use crate::machine::tia::{self, Tia};

/// Each lane runs its own instructions, whatever the others do. The reference.
pub const FORM_PLAIN: u32 = 0;
/// Lanes at the same place run together, by the jump table.
pub const FORM_GROUPED: u32 = 1;
/// All lanes run the same micro-steps, wherever they are.
pub const FORM_PREDICATED: u32 = 2;

/// The window behind the picture.
const BEHIND: u32 = 0x1FF;
/// Bits of the program counter that tell places apart: 8 KiB.
const PLACES: u32 = 0x1FFF;

/// The key of a lane. A window has `1 << window` picture rows.
pub fn key(t: &Tia, cycles: u32, s: u32, pc: u32, window: u32) -> u32 {
    let clock: i32 = tia::clock_of(cycles);
    let mut at: u32 = 0;
    if clock >= t.window_end {
        at = BEHIND;
    } else if clock >= t.base {
        at = 1 + (((clock - t.base) as u32 / tia::CLOCKS_PER_LINE as u32) >> window);
    }
    at << 21 | (s & 0xFF) << 13 | pc & PLACES
}

#[cfg(not(device))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::env;

    /// A chip whose picture begins `rows` scanlines after the frame.
    fn chip() -> Tia {
        let mut t: Tia = tia::new(env::layout(0, false));
        (t.origin, t.base, t.window_end) = (-30, 228 * 34 - 30, 228 * (34 + 210) - 30);
        t
    }

    fn cycles(line: i32) -> u32 {
        (228 * line / 3) as u32
    }

    #[test]
    fn the_beam_comes_first_then_the_stack_then_the_place() {
        let t: Tia = chip();
        let all = [
            // Before the picture lines do not count: the deeper stack goes first.
            key(&t, cycles(30), 0xF9, 0xF800, 0),
            key(&t, cycles(2), 0xFD, 0xF100, 0),
            key(&t, cycles(2), 0xFD, 0xF101, 0),
            // Rows of the picture.
            key(&t, cycles(40), 0xFF, 0xF000, 0),
            key(&t, cycles(41), 0xFD, 0xF000, 0),
            // Behind it.
            key(&t, cycles(250), 0xF0, 0xF000, 0),
            key(&t, cycles(245), 0xFF, 0xF000, 0),
        ];
        assert!(all.is_sorted(), "{all:X?}");
        // No key is that of a lane that has nothing to do.
        assert!(all.iter().all(|&one| one < u32::MAX));
    }

    #[test]
    fn a_window_holds_rows_together() {
        let t: Tia = chip();
        let keys = |window: u32| [36, 37, 40, 200].map(|line| key(&t, cycles(line), 0xFF, 0xF123, window));
        // Rows 2, 3, 6, 166 of the picture.
        let [a, b, c, d] = keys(0);
        assert!(a < b && b < c && c < d);
        let [a, b, c, d] = keys(2);
        assert!(a == b && b < c && c < d);
        let [a, b, c, d] = keys(9);
        assert!(a == b && b == c && c == d);
    }
}
