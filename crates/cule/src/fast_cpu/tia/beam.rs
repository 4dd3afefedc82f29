//! Advances the beam: collisions and pixels of the rows that it passes.

use super::super::pixels::{self, Scene, Span};
use super::{FastTia, Pictures};
use crate::machine::tia::beam::{BLANK_END, end_blank, is_steady, move_star, skip_to};
use crate::machine::tia::paint::playfield_only_score;
use crate::machine::tia::{CLOCKS_PER_LINE, HBLANK_CLOCKS, M0, Tia, WIDTH, hidden};

impl FastTia {
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
        if self.draw {
            self.draw_to(t, picture, goal);
        } else {
            self.advance(t, goal);
        }
        Some(())
    }

    /// Advances the beam without pixels.
    #[inline(never)]
    fn advance(&mut self, t: &mut Tia, goal: i32) {
        if cfg!(processor_alone) {
            self.collisions_final = true;
        }
        let mut from = t.beam - t.row_start;
        while t.beam < goal {
            from = self.begin_row(t, from);
            if self.collisions_final && is_steady(t) {
                skip_to(t, from, goal);
                return;
            }
            let to = (goal - t.row_start).min(CLOCKS_PER_LINE);
            if to > HBLANK_CLOCKS && !self.collisions_final {
                self.collide(t, (from - HBLANK_CLOCKS).max(0), to - HBLANK_CLOCKS);
            }
            end_row_part(t, from, to);
            from = to;
        }
    }

    /// Advances the beam and draws the pixels that it passes.
    #[inline(never)]
    fn draw_to(&mut self, t: &mut Tia, picture: &mut Pictures, goal: i32) {
        let mut from = t.beam - t.row_start;
        while t.beam < goal {
            from = self.begin_row(t, from);
            let ahead = goal - t.row_start;
            let to = ahead.min(CLOCKS_PER_LINE);
            if to > HBLANK_CLOCKS {
                let start = (from - HBLANK_CLOCKS).max(0);
                if !self.collisions_final {
                    self.collide_apart(t, start, to - HBLANK_CLOCKS);
                }
                let mut rows = 1;
                if ahead >= 2 * CLOCKS_PER_LINE && from == 0 && t.blank_pending == 0 && is_steady(t) {
                    // All collisions of a whole row have been latched, so the next rows are like it.
                    rows = ahead / CLOCKS_PER_LINE;
                }
                let blank = if t.blank_pending != 0 { BLANK_END - HBLANK_CLOCKS } else { 0 };
                let span = Span { from: start as u8, to: (to - HBLANK_CLOCKS) as u8, blank: blank as u8 };
                self.draw_rows(t, picture, rows as usize, span);
                t.row_start += CLOCKS_PER_LINE * (rows - 1);
            }
            end_row_part(t, from, to);
            from = to;
        }
    }

    /// Enters the next row if the beam is at the end of one. Returns the clock of the row.
    #[inline(always)]
    fn begin_row(&mut self, t: &mut Tia, from: i32) -> i32 {
        if from != CLOCKS_PER_LINE {
            return from;
        }
        t.row_start += CLOCKS_PER_LINE;
        if !is_steady(t) {
            self.enter_row(t);
        }
        0
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

    /// Draws `span` of this row and of the next ones, `count` rows that look alike.
    #[inline(always)]
    fn draw_rows(&mut self, t: &Tia, picture: &mut Pictures, count: usize, span: Span) {
        let at = (t.row_start / CLOCKS_PER_LINE) as u32 as usize * WIDTH;
        let Some(rows) = picture[usize::from(t.buffer & 1)].get_mut(at..at + count * WIDTH) else { return };
        if hidden(t) {
            clear(rows, span);
            return;
        }
        self.refresh(t, t.enabled);
        let scene = Scene {
            masks: &self.masks,
            colors: t.color,
            enabled: t.enabled,
            ctrlpf: t.ctrlpf,
            playfield_only_score: playfield_only_score(t),
        };
        pixels::draw(self.level, rows, span, scene);
    }
}

/// Sets `span` in each of the rows to 0.
#[inline(never)]
fn clear(rows: &mut [u8], span: Span) {
    if span.is_whole() {
        rows.fill(0);
        return;
    }
    for row in rows.chunks_exact_mut(WIDTH) {
        row[span.range()].fill(0);
    }
}

/// Moves the beam from clock `from` to `to` of its row, and ends an HMOVE blank that it passes.
#[inline(always)]
fn end_row_part(t: &mut Tia, from: i32, to: i32) {
    if t.blank_pending != 0 && from < BLANK_END && to >= BLANK_END {
        let end = t.row_start + BLANK_END;
        end_blank(t, end);
    }
    t.beam = t.row_start + to;
}
