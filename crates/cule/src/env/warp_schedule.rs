//! The order in which the lanes of a warp run: the lanes with the smallest key run next, together.
//!
//! Device subset. The order does not affect the results. Lanes of one game reach the same instruction most
//! often if the lane whose beam is furthest behind runs first, then the lane deepest in subroutines, then the
//! lane with the lowest program counter. Of twelve keys compared over traces of twenty games, this one let
//! the most lanes run together. All blank lines before the picture are one window, and so are all lines after
//! it: they are not told apart.

use crate::machine::tia::rows::select_bytes;
use crate::machine::tia::{self, Tia};

/// Each lane runs its own instructions, independently of the others. The reference.
pub const FORM_PLAIN: u32 = 0;
/// Lanes at the same instruction run together, with the jump-table interpreter.
pub const FORM_GROUPED: u32 = 1;

/// Lanes draw finished rows together every `1 << STRETCH` rows. With fewer rows at a time, fewer of them are
/// copies of the row above.
const STRETCH: u32 = 4;
/// Position of the window in a key, in bits.
const WINDOW_AT: u32 = 24;
/// Number of the window after the picture. Only pictures after a console reset have more windows than that: the last ones
/// share a number.
const AFTER_PICTURE: u32 = 0xFF;
/// Cycles after which a lane settles its time, at most: so few that `MARGIN` instructions suffice.
const MOST_CYCLES: i32 = 4000;
/// The jump-table interpreter runs while at least so many instructions are left: more than it runs in `MOST_CYCLES` and between
/// two branches.
pub const MARGIN: u32 = 8000;

/// Number of the window at a time, as a part of keys, and the cycles until the lane must ask again: to the end of the window, or
/// to the time from which a store ends the frame. A window has `1 << window` picture rows.
pub fn window_at(t: &Tia, cycles: u32, window: u32) -> (u32, u32) {
    let clock: i32 = tia::clock_of(cycles);
    let mut number: u32 = 0;
    let mut end: i32 = t.base;
    if clock >= t.window_end {
        number = AFTER_PICTURE;
        end = t.limit;
    } else if clock >= t.base {
        let passed: u32 = ((clock - t.base) as u32 / tia::CLOCKS_PER_LINE as u32) >> window;
        number = (1 + passed).min(AFTER_PICTURE - 1);
        end = t.base + tia::CLOCKS_PER_LINE * ((passed + 1) << window) as i32;
        end = end.min(t.window_end);
    }
    let left: i32 = (end.min(t.limit) - clock + 2) / 3;
    (number << WINDOW_AT, left.clamp(0, MOST_CYCLES) as u32)
}

/// The key of a lane in window `window` (of `window_at`): window, stack pointer, place of the next instruction in the ROM of up
/// to 64 KiB, in the lowest two bytes.
pub fn key(window: u32, s: u32, place: u32) -> u32 {
    window | select_bytes(place, s, 0x5410)
}

/// The smallest key after the stretch of rows that contains `key`. A stretch is whole windows, at least 16
/// rows. `u32::MAX` after the picture.
pub fn next_stretch(key: u32, window: u32) -> u32 {
    let at: u32 = key >> WINDOW_AT;
    if at == AFTER_PICTURE {
        return u32::MAX;
    }
    let shift: u32 = if window < STRETCH { STRETCH - window } else { 0 };
    let begun: u32 = if at > 0 { at - 1 } else { 0 };
    let next: u32 = 1 + (((begun >> shift) + 1) << shift);
    (if next < AFTER_PICTURE { next } else { AFTER_PICTURE }) << WINDOW_AT
}

/// The clock up to which a lane can draw once all lanes have reached `key`, which is not before the picture.
/// Rows after its last store to the TIA in this run, in cycle `stored` (0 before the first store), are not drawn
/// yet: the picture of an open frame depends on how far its program has run.
pub fn drawable_clock(t: &Tia, key: u32, window: u32, stored: u32) -> i32 {
    let at: u32 = key >> WINDOW_AT;
    let all: i32 = (t.window_end - t.base) / tia::CLOCKS_PER_LINE;
    let passed: i32 = ((at - 1) << window) as i32;
    let rows: i32 = if at < AFTER_PICTURE && passed < all { passed } else { all };
    let seen: i32 = (tia::clock_of(stored) - t.base) / tia::CLOCKS_PER_LINE;
    t.base + tia::CLOCKS_PER_LINE * (if rows < seen { rows } else { seen })
}

#[cfg(not(device))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::env;

    /// A TIA whose picture begins 34 scanlines after the start of the frame.
    fn chip() -> Tia {
        let mut t: Tia = tia::new(env::layout(0, false));
        (t.origin, t.base, t.window_end) = (-30, 228 * 34 - 30, 228 * (34 + 210) - 30);
        t.limit = 228 * 291 - 30;
        t
    }

    fn cycles(line: i32) -> u32 {
        (228 * line / 3) as u32
    }

    fn key_at(t: &Tia, cycles: u32, s: u32, place: u32, window: u32) -> u32 {
        key(window_at(t, cycles, window).0, s, place)
    }

    #[test]
    fn the_beam_comes_first_then_the_stack_then_the_place() {
        let t: Tia = chip();
        let all = [
            // Before the picture the line does not matter: the deeper stack comes first.
            key_at(&t, cycles(30), 0xF9, 0xF800, 0),
            key_at(&t, cycles(2), 0xFD, 0xF100, 0),
            key_at(&t, cycles(2), 0xFD, 0xF101, 0),
            // Rows of the picture.
            key_at(&t, cycles(40), 0xFF, 0xF000, 0),
            key_at(&t, cycles(41), 0xFD, 0xF000, 0),
            // After the picture.
            key_at(&t, cycles(250), 0xF0, 0xF000, 0),
            key_at(&t, cycles(245), 0xFF, 0xF000, 0),
        ];
        assert!(all.is_sorted(), "{all:X?}");
        // No key equals `u32::MAX`, the key of a lane that has finished its frame.
        assert!(all.iter().all(|&one| one < u32::MAX));
    }

    #[test]
    fn a_window_holds_rows_together() {
        let t: Tia = chip();
        let keys = |window: u32| [36, 37, 40, 200].map(|line| key_at(&t, cycles(line), 0xFF, 0xF123, window));
        // Rows 2, 3, 6, 166 of the picture.
        let [a, b, c, d] = keys(0);
        assert!(a < b && b < c && c < d);
        let [a, b, c, d] = keys(2);
        assert!(a == b && b < c && c < d);
        let [a, b, c, d] = keys(9);
        assert!(a == b && b == c && c == d);
    }

    #[test]
    fn a_window_lasts_to_its_end_or_that_of_the_frame() {
        let t: Tia = chip();
        for window in [0, 2, 4, 9] {
            for cycle in 0..23_000 {
                let (number, left) = window_at(&t, cycle, window);
                assert!(left <= MOST_CYCLES as u32);
                assert_eq!(left == 0, tia::clock_of(cycle) >= t.limit, "cycle {cycle}");
                for passed in [0, left.saturating_sub(1)] {
                    let later = window_at(&t, cycle + passed, window).0;
                    assert_eq!(later, number, "cycle {cycle}, window {window}");
                    assert!(left == 0 || tia::clock_of(cycle + passed) < t.limit);
                }
            }
        }
    }

    #[test]
    fn a_stretch_is_whole_windows_and_sixteen_rows() {
        let t: Tia = chip();
        for (window, stretches) in [(0, [16, 32]), (2, [16, 32]), (4, [16, 32]), (6, [64, 128])] {
            for row in [0, stretches[0] - 1] {
                let next = next_stretch(key_at(&t, cycles(34 + row), 0xFF, 0xFFFF, window), window);
                assert!(next > key_at(&t, cycles(34 + stretches[0] - 1), 0xFF, 0xFFFF, window));
                assert!(next <= key_at(&t, cycles(34 + stretches[0]), 0, 0, window), "window {window}");
                // All rows of the stretch are complete for a lane whose last store is after them.
                let clock = |row: i32| t.base + 228 * row;
                assert_eq!(drawable_clock(&t, next, window, cycles(300)), clock(stretches[0]));
                assert_eq!(drawable_clock(&t, next, window, cycles(34 + 3) + 20), clock(3));
                assert!(drawable_clock(&t, next, window, cycles(2)) < t.gate);
                let after = next_stretch(next, window);
                assert_eq!(drawable_clock(&t, after, window, cycles(300)), clock(stretches[1]));
            }
        }
        let before = key_at(&t, cycles(3), 0xFF, 0xF000, 4);
        assert_eq!(drawable_clock(&t, next_stretch(before, 4), 4, cycles(300)), t.base + 228 * 16);
        // The last stretch ends with the picture; there is no key after it.
        let behind = key_at(&t, cycles(244), 0, 0, 9);
        assert!(next_stretch(key_at(&t, cycles(243), 0xFF, 0xF000, 9), 9) <= behind);
        assert_eq!(drawable_clock(&t, behind, 9, cycles(300)), t.window_end);
        assert_eq!(next_stretch(behind, 9), u32::MAX);
    }
}
