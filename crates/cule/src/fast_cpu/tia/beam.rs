//! Advances the beam: collisions and pixels of the rows that it passes.

use super::super::pixels::{self, Scene};
use super::{FastTia, Pictures};
use crate::machine::tia::beam::{BLANK_END, end_blank, is_steady, move_star, skip_to};
use crate::machine::tia::paint::playfield_only_score;
use crate::machine::tia::{CLOCKS_PER_LINE, HBLANK_CLOCKS, M0, PICTURE_BYTES, Tia, WIDTH, hidden};

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
}
