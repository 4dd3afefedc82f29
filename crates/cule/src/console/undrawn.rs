//! Frames that ran without pixels, kept so that their pictures can still be made.
//!
//! When an undrawn frame is looked at, its step is run again from its start on the picture buffer; so are the steps before
//! it whose pixels still show there. What the buffer then holds equals what drawing every frame would have left.

use crate::env::FrameRunner;
use crate::fast_cpu::{self, Code};
use crate::machine::tia::{self, Tia};
use crate::machine::{self, Board, Machine, cart};

/// Steps that a buffer may be behind before it is drawn: frames can be short for long.
const UNDRAWN_STEPS: usize = 256;

/// A step whose pixels were not made.
#[derive(Clone, Copy)]
struct Undrawn {
    start: Machine,
    /// The chip after it, whose beam lags where no pixels were made.
    end: Tia,
    /// Clocks of the window that its beam has passed.
    reach: i32,
    /// It may have drawn beyond its reach, or stands for a part of a frame.
    open: bool,
}

/// What each picture buffer should show and does not.
#[derive(Clone)]
pub(crate) struct UndrawnFrames {
    /// Where the frames began, per buffer.
    steps: [Vec<Undrawn>; 2],
    /// No pixel was made since the last reset: both buffers are black.
    pub(super) blank: bool,
}

impl UndrawnFrames {
    /// Of a console that has just been reset.
    pub(crate) fn new() -> Self {
        Self { steps: [vec![], vec![]], blank: true }
    }

    /// The board has been drawn otherwise: there is nothing to draw later.
    pub(super) fn forget(&mut self, blank: bool) {
        self.steps.iter_mut().for_each(Vec::clear);
        self.blank = blank;
    }

    /// One STEP of the machine, with pixels where `Machine::draw` says so.
    ///
    /// A frame that does not reach its last row leaves older ones of its buffer in sight. When such frames were not
    /// drawn, they are run again, and then the step.
    pub(super) fn step(&mut self, m: &mut Machine, board: &mut Board, code: &Code) {
        // Large cartridge RAM is not part of the machine: such a step cannot be run again.
        let drawing = m.draw != 0 || cart::large_ram_bytes(&m.cart) != 0;
        self.blank &= !drawing;
        let start = *m;
        if start.unfinished != 0 && start.dimmed != 0 && fast_cpu::is_complete(&start) {
            // The frame goes on behind its picture.
            m.draw = 0;
            fast_cpu::step(m, board, code);
            m.draw = u8::from(drawing);
            if drawing {
                self.draw_buffer(m, board, code, usize::from(start.tia.buffer & 1));
            }
            return;
        }
        // Where older steps are still to be drawn below this one, it is drawn again after them: dimming what an open
        // frame has not reached must wait until then.
        let next = usize::from(m.tia.buffer & 1) ^ usize::from(m.unfinished == 0);
        m.draw =
            if drawing && !self.steps[next].is_empty() { machine::DRAW_UNDIMMED } else { u8::from(drawing) };
        fast_cpu::step(m, board, code);
        m.draw = u8::from(drawing);
        let whole = start.unfinished == 0 && is_whole(m);
        let buffer = usize::from(m.tia.buffer & 1);
        let reach = reach(m);
        if start.unfinished == 0 && m.unfinished == 0 {
            // What this frame covers need not be drawn before it. An open one says nothing: its beam lags.
            self.steps[buffer].retain(|older| !whole && (older.reach > reach || older.open));
        }
        // A frame that ends in the picture, or under a blank that waits, leaves pixels ahead of its beam.
        let ragged = reach % tia::CLOCKS_PER_LINE != tia::HBLANK_CLOCKS || m.tia.blank_pending != 0;
        let open = ragged || start.unfinished != 0 || m.unfinished != 0;
        let step = Undrawn { start, end: m.tia, reach, open };
        if !drawing {
            self.steps[buffer].push(step);
            if self.steps[buffer].len() > UNDRAWN_STEPS {
                self.draw_buffer(m, board, code, buffer);
            }
        } else if !self.steps[buffer].is_empty() {
            self.steps[buffer].push(step);
            self.draw_buffer(m, board, code, buffer);
        }
    }

    /// Runs again, with pixels, what a picture buffer does not show yet.
    ///
    /// A step that goes on with an open frame goes on from where the beam really was: colors may have changed since.
    pub(super) fn draw_buffer(&mut self, m: &mut Machine, board: &mut Board, code: &Code, buffer: usize) {
        // Its memory is used again.
        let mut steps = std::mem::take(&mut self.steps[buffer]);
        let mut last: Option<(Tia, Tia)> = None;
        for step in steps.drain(..) {
            self.blank = false;
            let mut again = step.start;
            if let Some((_, followed)) =
                last.filter(|(lagging, _)| again.unfinished != 0 && again.tia == *lagging)
            {
                again.tia = followed;
            }
            again.draw = 1;
            fast_cpu::step(&mut again, board, code);
            last = Some((step.end, again.tia));
        }
        self.steps[buffer] = steps;
        if let Some((_, followed)) = last.filter(|(lagging, _)| m.unfinished != 0 && m.tia == *lagging) {
            m.tia = followed;
        }
    }

    /// Makes the pictures of the last two frames.
    pub(super) fn draw_both(&mut self, m: &mut Machine, board: &mut Board, code: &Code) {
        self.draw_buffer(m, board, code, 0);
        self.draw_buffer(m, board, code, 1);
    }
}

/// The fast interpreter of the CPU.
pub(crate) struct CpuRunner<'a> {
    pub code: &'a Code,
    pub undrawn: &'a mut UndrawnFrames,
    /// Frames without pixels are kept, so that they can be drawn later: those of a boot, of which two at most are shown,
    /// and all of a console that is drawn when asked.
    pub keeps: bool,
}

impl FrameRunner for CpuRunner<'_> {
    #[inline]
    fn run_frame(&mut self, m: &mut Machine, board: &mut Board) {
        if self.keeps {
            self.undrawn.step(m, board, self.code);
        } else {
            fast_cpu::step(m, board, self.code);
        }
    }

    fn begin_boot(&mut self, m: &mut Machine, board: &mut Board, timer_draw: u32, _: bool) {
        self.undrawn.forget(true);
        self.keeps = true;
        m.draw = 0;
        machine::reset(m, board, self.code.image(), timer_draw);
    }

    fn end_boot(&mut self, m: &mut Machine, board: &mut Board, draws: bool) {
        if draws {
            self.undrawn.draw_both(m, board, self.code);
        }
        self.keeps = false;
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
