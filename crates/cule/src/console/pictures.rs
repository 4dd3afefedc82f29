//! Pictures of the frames that somebody looks at.
//!
//! A frame runs without pixels unless a look is expected. When an undrawn one is looked at, its step is run again from
//! its start on the picture buffer; so are the steps before it whose pixels still show there. What the buffer then
//! holds equals what drawing every frame would have left.

use super::Console;
use crate::CuleError;
use crate::machine::tia::{self, Tia};
use crate::machine::{self, Machine, cart};
use crate::observe::palette;
use crate::observe::translate::translate;
use crate::threaded;

/// Steps that a buffer may be behind before it is drawn: frames can be short for long.
const UNDRAWN_STEPS: usize = 256;

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

/// A step whose pixels were not made.
#[derive(Clone, Copy)]
pub(super) struct Undrawn {
    start: Machine,
    /// The chip after it, whose beam lags where no pixels were made.
    end: Tia,
    /// Clocks of the window that its beam has passed.
    reach: i32,
    /// It may have drawn beyond its reach, or stands for a part of a frame.
    open: bool,
}

/// Guesses which acts are looked at, from the looks after the last eight: a counter for each pattern of them.
#[derive(Clone)]
pub(super) struct Looks {
    counters: [u8; 256],
    /// One bit per act, the last one lowest.
    history: u8,
    /// Somebody looked since the last act.
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
    /// One STEP of the machine, nothing evaluated.
    ///
    /// A frame that does not reach its last row leaves older ones of its buffer in sight. When such frames were not
    /// drawn, they are run again, and then the step.
    pub(super) fn step(&mut self, draw: bool) {
        let m = &mut self.state.machine;
        // Large cartridge RAM is not part of the machine: such a step cannot be run again.
        let drawing = draw || cart::large_ram_bytes(&m.cart) != 0;
        self.blank &= !drawing;
        let start = *m;
        if start.unfinished != 0 && start.dimmed != 0 && threaded::is_complete(&start) {
            // The frame goes on behind its picture.
            m.draw = 0;
            threaded::step(m, &mut self.board, &self.code);
            m.draw = u8::from(drawing);
            if drawing {
                self.draw_buffer(usize::from(start.tia.buffer & 1));
            }
            return;
        }
        // Where older steps are still to be drawn below this one, it is drawn again after them: dimming what an open
        // frame has not reached must wait until then.
        let next = usize::from(m.tia.buffer & 1) ^ usize::from(m.unfinished == 0);
        m.draw = if drawing && !self.undrawn[next].is_empty() {
            machine::DRAW_UNDIMMED
        } else {
            u8::from(drawing)
        };
        threaded::step(m, &mut self.board, &self.code);
        m.draw = u8::from(drawing);
        let whole = start.unfinished == 0 && is_whole(m);
        let buffer = usize::from(m.tia.buffer & 1);
        let reach = reach(m);
        if start.unfinished == 0 && m.unfinished == 0 {
            // What this frame covers need not be drawn before it. An open one says nothing: its beam lags.
            self.undrawn[buffer].retain(|older| !whole && (older.reach > reach || older.open));
        }
        // A frame that ends in the picture, or under a blank that waits, leaves pixels ahead of its beam.
        let ragged = reach % tia::CLOCKS_PER_LINE != tia::HBLANK_CLOCKS || m.tia.blank_pending != 0;
        let open = ragged || start.unfinished != 0 || m.unfinished != 0;
        let step = Undrawn { start, end: m.tia, reach, open };
        if !drawing {
            self.undrawn[buffer].push(step);
            if self.undrawn[buffer].len() > UNDRAWN_STEPS {
                self.draw_buffer(buffer);
            }
        } else if !self.undrawn[buffer].is_empty() {
            self.undrawn[buffer].push(step);
            self.draw_buffer(buffer);
        }
    }

    /// Runs again, with pixels, what a picture buffer does not show yet.
    ///
    /// A step that goes on with an open frame goes on from where the beam really was: colours may have changed since.
    fn draw_buffer(&mut self, buffer: usize) {
        // Its memory is used again.
        let mut steps = std::mem::take(&mut self.undrawn[buffer]);
        let mut last: Option<(Tia, Tia)> = None;
        for step in steps.drain(..) {
            self.blank = false;
            let mut m = step.start;
            if let Some((_, followed)) = last.filter(|(lagging, _)| m.unfinished != 0 && m.tia == *lagging) {
                m.tia = followed;
            }
            m.draw = 1;
            threaded::step(&mut m, &mut self.board, &self.code);
            last = Some((step.end, m.tia));
        }
        self.undrawn[buffer] = steps;
        let m = &mut self.state.machine;
        if let Some((_, followed)) = last.filter(|(lagging, _)| m.unfinished != 0 && m.tia == *lagging) {
            m.tia = followed;
        }
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
        self.draw_buffer(0);
        self.draw_buffer(1);
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

/// Clocks of the window that the beam has passed, counted to the last pixel.
fn reach(m: &Machine) -> i32 {
    let clock = tia::clock_of(m.cpu.cycles).clamp(m.tia.base, m.tia.window_end) - m.tia.base;
    let (row, h) = (clock / tia::CLOCKS_PER_LINE, clock % tia::CLOCKS_PER_LINE);
    row * tia::CLOCKS_PER_LINE + h.max(tia::HBLANK_CLOCKS)
}

/// True when the beam came to the end of the window before the frame ended.
fn is_whole(m: &Machine) -> bool {
    m.unfinished == 0 && tia::clock_of(m.cpu.cycles) >= m.tia.window_end
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
