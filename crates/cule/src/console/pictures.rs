//! Pictures of a console: when they are made, and what a program gets of them. A frame runs without pixels unless the
//! program is expected to ask for its picture; [`super::undrawn`] makes the others when they are asked for.

use super::Console;
use crate::CuleError;
use crate::machine::tia;
use crate::observe::palette;
use crate::observe::translate::translate;

/// When pixels are made. Nothing else depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    /// With every frame.
    EveryFrame,
    /// When [`Console::draw`] asks, by running the frame again.
    WhenAsked,
    /// With the last frame of an act where a look is expected after it, otherwise when asked.
    Guessed,
}

/// Guesses which acts are looked at, from the looks after the last eight: a counter for each pattern of them.
#[derive(Clone)]
pub(super) struct Looks {
    counters: [u8; 256],
    /// One bit per act, the last one lowest.
    history: u8,
    /// A picture was read since the last act.
    pub(super) seen: bool,
}

impl Default for Looks {
    fn default() -> Self {
        Self { counters: [Self::EXPECTED - 1; 256], history: 0, seen: false }
    }
}

impl Looks {
    /// A look is expected from this count on.
    const EXPECTED: u8 = 2;
    const MOST: u8 = 3;

    /// Takes in whether the last act was looked at; true when the next one probably will be.
    pub(super) fn next(&mut self) -> bool {
        let counter = &mut self.counters[usize::from(self.history)];
        *counter = if self.seen { (*counter + 1).min(Self::MOST) } else { counter.saturating_sub(1) };
        self.history = self.history << 1 | u8::from(self.seen);
        self.seen = false;
        self.counters[usize::from(self.history)] >= Self::EXPECTED
    }
}

impl Console {
    /// Runs again, with pixels, what a picture buffer does not show yet.
    fn draw_buffer(&mut self, buffer: usize) {
        self.undrawn.draw_buffer(&mut self.state.machine, &mut self.board, &self.code, buffer);
    }

    /// Brings the beam of an open frame to where it is when every frame is drawn.
    pub(super) fn follow(&mut self) {
        if self.state.machine.unfinished != 0 {
            self.draw_buffer(usize::from(self.state.machine.tia.buffer & 1));
        }
    }

    /// Makes the picture of the last frame, if it was not made yet.
    pub fn draw(&mut self) {
        self.looks.seen = true;
        self.draw_buffer(usize::from(self.state.machine.tia.buffer & 1));
    }

    /// Makes the pictures of the last two frames.
    pub(super) fn draw_both(&mut self) {
        self.undrawn.draw_both(&mut self.state.machine, &mut self.board, &self.code);
    }

    /// Whether pixels are made for every frame, or when [`Console::draw`] asks. RAM, rewards and all else do not
    /// depend on it.
    pub fn set_drawing(&mut self, drawing: bool) {
        self.options.drawing = if drawing { Drawing::EveryFrame } else { Drawing::WhenAsked };
    }

    /// Palette indices of the picture as it was last made, row by row, `height() * 160` bytes: that of the last frame
    /// where every frame is drawn, or [`Console::draw`] was called.
    pub fn screen(&self) -> &[u8] {
        &self.board.picture[self.state.machine.tia.buffer as usize][..self.height() * tia::WIDTH]
    }

    /// Brightness of the picture, one byte per pixel.
    ///
    /// # Errors
    /// [`CuleError::BufferLength`].
    pub fn screen_gray(&self, out: &mut [u8]) -> Result<(), CuleError> {
        let screen = self.screen();
        has_length("the gray picture", out, screen.len())?;
        translate(screen, &palette::GRAY[self.is_pal() as usize], out);
        Ok(())
    }

    /// Red, green and blue of the picture, three bytes per pixel.
    ///
    /// # Errors
    /// [`CuleError::BufferLength`].
    pub fn screen_rgb(&self, out: &mut [u8]) -> Result<(), CuleError> {
        let screen = self.screen();
        has_length("the RGB picture", out, 3 * screen.len())?;
        let rgb = &palette::RGB[self.is_pal() as usize];
        // Red, green, blue, and a byte that the next pixel covers.
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

    /// How many of `acts` acts were guessed wrong when act `t` is looked at where `pattern[t % length]`.
    fn wrong(pattern: &[bool], acts: usize) -> usize {
        let mut looks = Looks::default();
        let mut wrong = 0;
        for t in 0..acts {
            let look = pattern[t % pattern.len()];
            wrong += usize::from(looks.next() != look);
            looks.seen = look;
        }
        wrong
    }

    #[test]
    fn regular_looks_are_guessed() {
        // At most two wrong ones for each history that comes up.
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
        for drawing in [Drawing::Guessed, Drawing::WhenAsked, Drawing::EveryFrame] {
            let options = Options { drawing, ..Options::default() };
            let mut console = Console::new(&rom, game_row("breakout").unwrap(), options).unwrap();
            console.act(1);
            console.draw();
            // A look may be taken for the first of a rhythm.
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
