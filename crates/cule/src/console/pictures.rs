//! Pictures of a console: when they are drawn, and how they are read. A frame runs without pixels unless its
//! picture is expected to be read; [`super::undrawn`] draws the others on request.

use super::Console;
use crate::CuleError;
use crate::machine::tia;
use crate::observe::palette;
use crate::observe::translate::translate;

/// When pixels are drawn. Has no effect on anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    /// In every frame.
    EveryFrame,
    /// When [`Console::draw`] is called, by running the frame again.
    OnRequest,
    /// In the last frame of an act if its picture is expected to be read, otherwise when [`Console::draw`] is
    /// called.
    Predicted,
}

/// Predicts after which acts the picture is read, from the last eight acts: a two-bit counter per pattern.
#[derive(Clone)]
pub(super) struct ReadPredictor {
    counters: [u8; 256],
    /// One bit per act, the last one lowest: its picture was read.
    history: u8,
    /// The picture was read since the last act.
    pub(super) was_read: bool,
}

impl Default for ReadPredictor {
    fn default() -> Self {
        Self { counters: [Self::EXPECTED - 1; 256], history: 0, was_read: false }
    }
}

impl ReadPredictor {
    /// A read is expected from this counter value on.
    const EXPECTED: u8 = 2;
    const MOST: u8 = 3;

    /// Records whether the picture of the last act was read. Returns true if that of the next one is expected
    /// to be.
    pub(super) fn next(&mut self) -> bool {
        let counter = &mut self.counters[usize::from(self.history)];
        *counter = if self.was_read { (*counter + 1).min(Self::MOST) } else { counter.saturating_sub(1) };
        self.history = self.history << 1 | u8::from(self.was_read);
        self.was_read = false;
        self.counters[usize::from(self.history)] >= Self::EXPECTED
    }
}

impl Console {
    /// Runs the undrawn frames of a picture buffer again, with pixels.
    fn draw_buffer(&mut self, buffer: usize) {
        self.undrawn.draw_buffer(&mut self.state.machine, &mut self.board, &self.code, buffer);
    }

    /// Moves the beam of an unfinished frame to where it is if every frame is drawn.
    pub(super) fn advance_open_frame(&mut self) {
        if self.state.machine.unfinished != 0 {
            self.draw_buffer(usize::from(self.state.machine.tia.buffer & 1));
        }
    }

    /// Draws the picture of the last frame, if it has not been drawn.
    pub fn draw(&mut self) {
        self.read_predictor.was_read = true;
        self.draw_buffer(usize::from(self.state.machine.tia.buffer & 1));
    }

    /// Draws the pictures of the last two frames.
    pub(super) fn draw_both(&mut self) {
        self.undrawn.draw_both(&mut self.state.machine, &mut self.board, &self.code);
    }

    /// Sets whether pixels are drawn in every frame, or when [`Console::draw`] is called. RAM, rewards and
    /// all other state do not depend on it.
    pub fn set_drawing(&mut self, drawing: bool) {
        self.options.drawing = if drawing { Drawing::EveryFrame } else { Drawing::OnRequest };
    }

    /// Palette indices of the last drawn picture, row by row, `height() * 160` bytes. This is the last frame
    /// if every frame is drawn, or after [`Console::draw`].
    pub fn screen(&self) -> &[u8] {
        &self.board.picture[self.state.machine.tia.buffer as usize][..self.height() * tia::WIDTH]
    }

    /// Writes the luminance of the picture to `out`: `height() * 160` bytes.
    ///
    /// # Errors
    /// [`CuleError::BufferLength`] if `out` has another length.
    pub fn screen_gray(&self, out: &mut [u8]) -> Result<(), CuleError> {
        let screen = self.screen();
        has_length("the gray picture", out, screen.len())?;
        translate(screen, &palette::GRAY[self.is_pal() as usize], out);
        Ok(())
    }

    /// Writes the picture to `out` as RGB: `height() * 160 * 3` bytes.
    ///
    /// # Errors
    /// [`CuleError::BufferLength`] if `out` has another length.
    pub fn screen_rgb(&self, out: &mut [u8]) -> Result<(), CuleError> {
        let screen = self.screen();
        has_length("the RGB picture", out, 3 * screen.len())?;
        let rgb = &palette::RGB[self.is_pal() as usize];
        // Red, green, blue, and a byte that the next pixel overwrites.
        let color = |index: u8| (rgb[usize::from(index)] << 8).to_be_bytes();
        for (pixels, indices) in out.as_chunks_mut::<24>().0.iter_mut().zip(screen.as_chunks::<8>().0) {
            let together = u64::from_ne_bytes(*indices);
            if together == u64::from(indices[0]) * 0x0101_0101_0101_0101 {
                let [r, g, b, _] = color(indices[0]);
                pixels.as_chunks_mut::<3>().0.fill([r, g, b]);
            } else {
                for (i, &index) in indices[..7].iter().enumerate() {
                    pixels[3 * i..3 * i + 4].copy_from_slice(&color(index));
                }
                pixels[21..].copy_from_slice(&color(indices[7])[..3]);
            }
        }
        Ok(())
    }
}

fn has_length(what: &'static str, buffer: &[u8], expected: usize) -> Result<(), CuleError> {
    if buffer.len() != expected {
        return Err(CuleError::BufferLength { what, expected, found: buffer.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::{Options, game_row};
    use crate::{rom, test_roms};

    /// Number of wrong predictions in `acts` acts, if the picture of act `t` is read when `pattern[t %
    /// length]` is true.
    fn wrong(pattern: &[bool], acts: usize) -> usize {
        let mut read_predictor = ReadPredictor::default();
        let mut wrong = 0;
        for t in 0..acts {
            let read = pattern[t % pattern.len()];
            wrong += usize::from(read_predictor.next() != read);
            read_predictor.was_read = read;
        }
        wrong
    }

    #[test]
    fn regular_looks_are_guessed() {
        // At most two wrong predictions for each pattern that occurs.
        assert!(wrong(&[false], 1000) == 0);
        assert!(wrong(&[true], 1000) < 20);
        assert!(wrong(&[false, false, true, true], 1000) < 20);
        assert!(wrong(&[false, false, false, true], 1000) < 20);
        assert!(wrong(&[true, false, true, false, false, false, false, true], 1000) < 40);
    }

    #[test]
    fn a_frame_that_nobody_looks_at_gets_no_pixels() {
        if !test_roms::are_there(&rom::folders(&[])) {
            return;
        }
        let rom = rom::load("breakout", &[], false).unwrap();
        for drawing in [Drawing::Predicted, Drawing::OnRequest, Drawing::EveryFrame] {
            let options = Options { drawing, ..Options::default() };
            let mut console = Console::new(&rom, game_row("breakout").unwrap(), options).unwrap();
            console.act(1);
            console.draw();
            // The one read may be predicted to repeat.
            for _ in 0..10 {
                console.act(0);
            }
            let before = console.board.picture;
            for act in 0..60 {
                console.act(2 + act / 15 % 2);
                let draws = console.board.picture != before;
                assert!(act == 0 || draws == (drawing == Drawing::EveryFrame), "{drawing:?}, act {act}");
            }
            console.draw();
            assert_ne!(console.board.picture, before, "{drawing:?}");
        }
    }
}
