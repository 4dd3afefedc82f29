//! The order in which the lanes of a warp run: those with the smallest key run next, together.
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

/// Lanes finish rows together every 16 rows, as a shift: more often, fewer of them are copies of the row above.
const STRETCH: u32 = 4;
/// Bits of a key below its window.
const WINDOW_AT: u32 = 21;
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
    at << WINDOW_AT | (s & 0xFF) << 13 | pc & PLACES
}

/// The smallest key with which lanes that stand at `key` have left the rows of its stretch: whole windows, at least 16 rows.
pub fn next_stretch(key: u32, window: u32) -> u32 {
    let at: u32 = key >> WINDOW_AT;
    if at == BEHIND {
        return u32::MAX;
    }
    let shift: u32 = if window < STRETCH { STRETCH - window } else { 0 };
    let begun: u32 = if at > 0 { at - 1 } else { 0 };
    let next: u32 = 1 + (((begun >> shift) + 1) << shift);
    (if next < BEHIND { next } else { BEHIND }) << WINDOW_AT
}

/// The clock up to which a lane can draw when all have come to `key`, which is not before the picture. What is behind its
/// last store to the TIA, in cycle `stored`, waits: a frame that is left open shows how far its program had come.
pub fn finished(t: &Tia, key: u32, window: u32, stored: u32) -> i32 {
    let at: u32 = key >> WINDOW_AT;
    let all: i32 = (t.window_end - t.base) / tia::CLOCKS_PER_LINE;
    let passed: i32 = ((at - 1) << window) as i32;
    let rows: i32 = if at < BEHIND && passed < all { passed } else { all };
    let seen: i32 = (tia::clock_of(stored) - t.base) / tia::CLOCKS_PER_LINE;
    t.base + tia::CLOCKS_PER_LINE * (if rows < seen { rows } else { seen })
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

    #[test]
    fn a_stretch_is_whole_windows_and_sixteen_rows() {
        let t: Tia = chip();
        for (window, stretches) in [(0, [16, 32]), (2, [16, 32]), (4, [16, 32]), (6, [64, 128])] {
            for row in [0, stretches[0] - 1] {
                let next = next_stretch(key(&t, cycles(34 + row), 0xFF, 0xFFFF, window), window);
                assert!(next > key(&t, cycles(34 + stretches[0] - 1), 0xFF, 0xFFFF, window));
                assert!(next <= key(&t, cycles(34 + stretches[0]), 0, 0, window), "window {window}");
                // All of its rows are complete, for a lane that has stored behind them.
                let clock = |row: i32| t.base + 228 * row;
                assert_eq!(finished(&t, next, window, cycles(300)), clock(stretches[0]));
                assert_eq!(finished(&t, next, window, cycles(34 + 3) + 20), clock(3));
                assert!(finished(&t, next, window, cycles(2)) < t.gate);
                let after = next_stretch(next, window);
                assert_eq!(finished(&t, after, window, cycles(300)), clock(stretches[1]));
            }
        }
        let before = key(&t, cycles(3), 0xFF, 0xF000, 4);
        assert_eq!(finished(&t, next_stretch(before, 4), 4, cycles(300)), t.base + 228 * 16);
        // The last stretch ends with the picture, and nothing is behind it.
        let behind = key(&t, cycles(244), 0, 0, 9);
        assert!(next_stretch(key(&t, cycles(243), 0xFF, 0xF000, 9), 9) <= behind);
        assert_eq!(finished(&t, behind, 9, cycles(300)), t.window_end);
        assert_eq!(next_stretch(behind, 9), u32::MAX);
    }
}
