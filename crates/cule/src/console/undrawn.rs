//! Frames that ran without pixels, kept so that their pictures can be drawn later.
//!
//! When the picture of an undrawn frame is read, its step is run again from its start state on the picture
//! buffer, after the earlier steps whose pixels are still visible there. The result equals that of drawing
//! every frame.

use crate::env::FrameRunner;
use crate::fast_cpu::{self, Code};
use crate::machine::tia::{self, Tia};
use crate::machine::{self, Board, Machine, cart};
use crate::sound::Sound;

/// Maximum number of undrawn steps per buffer; then the buffer is drawn. Frames can be short for a long time.
const UNDRAWN_STEPS: usize = 256;

/// A step that ran without pixels.
#[derive(Clone, Copy)]
struct Undrawn {
    start: Machine,
    /// The TIA after the step; its beam lags, since no pixels were drawn.
    end: Tia,
    /// Clocks of the window that the beam has passed.
    reach: i32,
    /// The step may have drawn beyond its reach, or was part of a frame only.
    open: bool,
}

/// Steps whose pixels are missing in each picture buffer.
#[derive(Clone)]
pub(crate) struct UndrawnFrames {
    /// The undrawn steps, per buffer.
    steps: [Vec<Undrawn>; 2],
    /// No pixel was drawn since the last reset: both buffers are black.
    pub(super) blank: bool,
}

impl UndrawnFrames {
    /// For a console that has just been reset.
    pub(crate) fn new() -> Self {
        Self { steps: [vec![], vec![]], blank: true }
    }

    /// Drops all steps, because the console is reset.
    pub(super) fn clear(&mut self) {
        self.steps.iter_mut().for_each(Vec::clear);
        self.blank = true;
    }

    /// Runs one step of the machine, with pixels if `Machine::draw` is set.
    ///
    /// A frame that does not reach its last row leaves pixels of older frames visible in its buffer. If those
    /// frames were not drawn, they are run again, followed by this step.
    pub(super) fn step(&mut self, m: &mut Machine, board: &mut Board, code: &Code) {
        // Large cartridge RAM is not part of the machine: such a step cannot be run a second time.
        let drawing = m.draw != 0 || cart::large_ram_bytes(&m.cart) != 0;
        self.blank &= !drawing;
        let start = *m;
        if start.unfinished != 0 && start.dimmed != 0 && fast_cpu::is_complete(&start) {
            // The frame continues below its picture.
            m.draw = 0;
            fast_cpu::step(m, board, code);
            m.draw = u8::from(drawing);
            if drawing {
                self.draw_buffer(m, board, code, usize::from(start.tia.buffer & 1));
            }
            return;
        }
        // If older steps of this buffer are undrawn, this step is drawn a second time after them. Until then,
        // the rows that an unfinished frame has not reached must not be dimmed.
        let next = usize::from(m.tia.buffer & 1) ^ usize::from(m.unfinished == 0);
        m.draw =
            if drawing && !self.steps[next].is_empty() { machine::DRAW_UNDIMMED } else { u8::from(drawing) };
        fast_cpu::step(m, board, code);
        m.draw = u8::from(drawing);
        let whole = start.unfinished == 0 && is_whole(m);
        let buffer = usize::from(m.tia.buffer & 1);
        let reach = reach(m);
        if start.unfinished == 0 && m.unfinished == 0 {
            // Pixels that this frame overwrites need not be drawn. An unfinished frame proves nothing: its
            // beam lags.
            self.steps[buffer].retain(|older| !whole && (older.reach > reach || older.open));
        }
        // A frame that ends within the picture, or during a pending HMOVE blank, leaves pixels ahead of its
        // beam.
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

    /// Runs the undrawn steps of a picture buffer again, with pixels.
    ///
    /// A step that continues an unfinished frame starts from the beam position of the drawn step before:
    /// colors may have changed since. The sound registers remain those of the newest frame.
    pub(super) fn draw_buffer(&mut self, m: &mut Machine, board: &mut Board, code: &Code, buffer: usize) {
        // Keeps the allocation.
        let mut steps = std::mem::take(&mut self.steps[buffer]);
        let mut last: Option<(Tia, Tia)> = None;
        let sound = board.sound;
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
        board.sound = sound;
        if let Some((_, followed)) = last.filter(|(lagging, _)| m.unfinished != 0 && m.tia == *lagging) {
            m.tia = followed;
        }
    }

    /// Draws the pictures of the last two frames.
    pub(super) fn draw_both(&mut self, m: &mut Machine, board: &mut Board, code: &Code) {
        self.draw_buffer(m, board, code, 0);
        self.draw_buffer(m, board, code, 1);
    }
}

/// Runs frames with the fast CPU.
pub(crate) struct CpuRunner<'a> {
    pub code: &'a Code,
    pub undrawn: &'a mut UndrawnFrames,
    /// Keep frames without pixels, so that they can be drawn later: the frames of a boot, of which at most
    /// two are shown, and all frames of a console that is drawn on request.
    pub keeps_undrawn: bool,
    /// Makes the sound of acts.
    pub sound: Option<SoundRunner<'a>>,
}

/// Sound during a reset or a step.
pub(crate) struct SoundRunner<'a> {
    sound: &'a mut Sound,
    /// The sound of a console after loading, and after its boot.
    first: Option<&'a [Sound; 2]>,
    /// The sound at the start of a reset.
    start: Option<Sound>,
}

impl<'a> SoundRunner<'a> {
    pub(crate) fn new(sound: &'a mut Sound, first: Option<&'a [Sound; 2]>) -> Self {
        Self { sound, first, start: None }
    }
}

impl FrameRunner for CpuRunner<'_> {
    #[inline]
    fn run_frame(&mut self, m: &mut Machine, board: &mut Board) {
        if self.keeps_undrawn {
            self.undrawn.step(m, board, self.code);
        } else {
            fast_cpu::step(m, board, self.code);
        }
    }

    fn begin_boot(&mut self, m: &mut Machine, board: &mut Board, timer_draw: u32, _: bool) {
        self.undrawn.clear();
        self.keeps_undrawn = true;
        m.draw = 0;
        machine::reset(m, board, self.code.image(), timer_draw);
    }

    fn end_boot(&mut self, m: &mut Machine, board: &mut Board, draws: bool) {
        if draws {
            self.undrawn.draw_both(m, board, self.code);
        }
        self.keeps_undrawn = false;
    }

    fn begin_reset(&mut self, board: &mut Board, again: bool) {
        let Some(SoundRunner { sound, start, .. }) = &mut self.sound else { return };
        if let Some(start) = start.as_ref().filter(|_| again) {
            sound.clone_from(start);
            board.sound = sound.registers;
        } else {
            sound.registers = board.sound;
            *start = Some(sound.clone());
        }
    }

    fn replace_sound(&mut self, board: &mut Board, booted: bool) {
        if let Some(SoundRunner { sound, first: Some(first), .. }) = &mut self.sound {
            sound.clone_from(&first[usize::from(booted)]);
            board.sound = sound.registers;
        }
    }

    #[inline]
    fn end_act(&mut self, board: &mut Board) {
        if let Some(SoundRunner { sound, .. }) = &mut self.sound {
            sound.act(&board.sound);
        }
    }
}

/// Clocks of the window that the beam has passed, including the visible part of its row only.
fn reach(m: &Machine) -> i32 {
    let clock = tia::clock_of(m.cpu.cycles).clamp(m.tia.base, m.tia.window_end) - m.tia.base;
    let (row, h) = (clock / tia::CLOCKS_PER_LINE, clock % tia::CLOCKS_PER_LINE);
    row * tia::CLOCKS_PER_LINE + h.max(tia::HBLANK_CLOCKS)
}

/// True if the beam passed the end of the window before the frame ended.
fn is_whole(m: &Machine) -> bool {
    m.unfinished == 0 && tia::clock_of(m.cpu.cycles) >= m.tia.window_end
}
