//! Loading and resets: power-on, detection of the television, boot, mode selection, starting actions.

use bytemuck::Zeroable;

use super::prepared::{self, Boot, Prepared};
use super::{Console, Drawing, Looks, Options};
use crate::CuleError;
use crate::env::{self, NOOP, PADDLE_MIN, RESET, State, full};
use crate::games::{self, names, rows, select};
use crate::lane::boot::{ADVENTURE_FRAMES, BOOT_FRAMES, MENU, RESET_FRAMES, SELECTION_FRAMES};
use crate::machine::input::{SWITCH_RESET, SWITCH_SELECT};
use crate::machine::{self, cart};
use crate::random;
use crate::rom::Rom;

/// Lines above which a frame of the first 60 counts as PAL.
const LONG_LINES: i32 = 285;
/// Frames in a row that a program may leave open, by never ending its picture, while a mode is selected.
const MOST_OPEN_FRAMES: u32 = 120;
/// Draws of the core generator at power-on: RAM, and one that is dropped.
const POWER_ON_DRAWS: u32 = 129;

impl Console {
    /// A console that has been loaded and reset. What the process has booted before is not run again.
    pub(super) fn booted(prepared: &Prepared, game: usize, options: Options) -> Result<Self, CuleError> {
        let mut console = Self::powered(prepared, game, options);
        let known = prepared.boot(game, options.system_seed);
        if let Some(boot) = &known {
            boot.restore(&mut console);
        } else {
            console.choose_television(game);
            prepared.keep(Boot::of(&console, false));
        }
        if known.is_none_or(|boot| !boot.complete) {
            console.reset_console();
            console.reset_undrawn()?;
            // Where the environment's generator was not asked, all consoles boot alike.
            if console.blank && console.env_random == random::seeded(options.random_seed) {
                prepared.keep(Boot::of(&console, true));
            }
        }
        console.options = options;
        console.state.env.frame_limit = options.max_num_frames_per_episode as i32;
        if options.truncate_on_loss_of_life {
            console.state.env.life_limit = console.lives();
        }
        if options.drawing == Drawing::EveryFrame {
            console.draw_both();
        }
        Ok(console)
    }

    /// The state of a console that has been loaded and not been reset.
    pub(crate) fn loaded(rom: &Rom, game: usize, options: Options) -> State {
        let mut console = Self::powered(&prepared::of(rom), game, options);
        console.choose_television(game);
        console.state
    }

    /// A console whose cartridge has just been plugged in; it draws nothing yet.
    fn powered(prepared: &Prepared, game: usize, options: Options) -> Self {
        let mut core_random = random::seeded(options.system_seed);
        let mut ram = [0; 128];
        for byte in &mut ram {
            *byte = random::draw(&mut core_random) as u8;
        }
        random::draw(&mut core_random);
        let row = &rows::ROWS[game];
        let layout = env::layout(game as u32, row.flags & rows::FORCED_PAL != 0);
        let mut state: State = Zeroable::zeroed();
        state.machine = machine::new(prepared.scheme as u8, prepared.code.rom_bytes(), &ram, layout);
        state.machine.draws = POWER_ON_DRAWS;
        state.machine.input = env::first_inputs(game as u32);
        state.rules = games::new(row.default_mode);
        state.env = env::new(game as u32);
        state.env.frame_limit = options.max_num_frames_per_episode as i32;
        Self {
            state,
            board: bytemuck::zeroed_box(),
            code: prepared.code.clone(),
            options: Options { drawing: Drawing::WhenAsked, ..options },
            core_random,
            core_draws: POWER_ON_DRAWS,
            env_random: random::seeded(options.random_seed),
            undrawn: [vec![], vec![]],
            blank: true,
            looks: Looks::default(),
            fingerprint: prepared.fingerprint,
        }
    }

    fn choose_television(&mut self, game: usize) {
        if rows::ROWS[game].flags & rows::FORCED_PAL == 0 {
            self.reset_console();
            if self.detect_pal() {
                self.state.machine.tia.layout = env::layout(game as u32, true);
            }
        }
    }

    /// `count` frames with an action and console switches, rules evaluated.
    fn emulate(&mut self, action: u8, count: u32, switches: u8) {
        for _ in 0..count {
            env::set_inputs(&mut self.state, full(u32::from(action)), full(u32::from(NOOP)), switches);
            self.step(false);
            env::evaluate(&mut self.state);
        }
        env::look(&mut self.state);
    }

    fn soft_reset(&mut self) {
        self.emulate(NOOP, RESET_FRAMES, SWITCH_RESET);
        self.state.env.held = [0, 0];
        self.state.env.held_step = [env::PADDLE_STEP; 2];
    }

    /// Holds SELECT for `count` frames without looking at the rules, then one frame with it released.
    fn press_select(&mut self, count: u32) {
        for _ in 0..count {
            env::set_inputs(&mut self.state, full(u32::from(NOOP)), full(u32::from(NOOP)), SWITCH_SELECT);
            self.step(false);
        }
        self.emulate(NOOP, 1, 0);
        self.state.env.frame_number += 1;
        self.state.env.episode_frame_number += 1;
    }

    fn core_draw(&mut self) -> u32 {
        if self.core_draws != self.state.machine.draws {
            self.core_random = random::seeded(self.options.system_seed);
            random::skip(&mut self.core_random, self.state.machine.draws);
            self.core_draws = self.state.machine.draws;
        }
        self.core_draws = self.core_draws.wrapping_add(1);
        self.state.machine.draws = self.core_draws;
        random::draw(&mut self.core_random)
    }

    fn reset_console(&mut self) {
        let timer_draw = self.core_draw();
        for i in 0..cart::reset_draws(&self.state.machine.cart) {
            let byte = self.core_draw() as u8;
            cart::fill(&mut self.state.machine.cart, &mut self.board, i, byte);
        }
        self.undrawn = [vec![], vec![]];
        self.blank = true;
        machine::reset(&mut self.state.machine, &mut self.board, self.code.image(), timer_draw);
    }

    /// True when most of 60 idle frames are longer than NTSC frames.
    fn detect_pal(&mut self) -> bool {
        let mut long_frames = 0;
        for i in 0..BOOT_FRAMES {
            self.step(false);
            if i >= 30 && machine::lines(&self.state.machine) > LONG_LINES {
                long_frames += 1;
            }
        }
        long_frames >= 15
    }

    /// Starts an episode: boot, RESET switch, mode selection, starting actions.
    ///
    /// # Errors
    /// The mode is never shown: the ROM is not the game's.
    pub fn reset(&mut self) -> Result<(), CuleError> {
        // Of some seventy frames two at most are ever seen.
        let drawing = std::mem::replace(&mut self.options.drawing, Drawing::WhenAsked);
        let result = self.reset_undrawn();
        self.options.drawing = drawing;
        if drawing == Drawing::EveryFrame {
            self.draw_both();
        }
        result
    }

    fn reset_undrawn(&mut self) -> Result<(), CuleError> {
        let game = self.game();
        self.state.env.episode_frame_number = 0;
        self.state.env.paddle = [(PADDLE_MIN + self.state.env.paddle_max) / 2; 2];
        self.reset_console();
        self.emulate(NOOP, BOOT_FRAMES, 0);
        self.soft_reset();
        games::evaluate::start_values(&mut self.state.rules, game);
        self.state.rules.over = 0;
        self.select_mode()?;
        self.soft_reset();
        let mut i = 0;
        while select::start_action(game, i) != select::NO_ACTION {
            self.emulate(select::start_action(game, i), 1, 0);
            i += 1;
        }
        Ok(())
    }

    fn peek(&self, address: i32) -> i32 {
        games::byte(&self.state.machine.riot.ram, address)
    }

    /// Repeats `press`, which takes about so many frames, until `reached`. A ROM that is not the game's may never get
    /// there: it is given up after [`SELECTION_FRAMES`], and sooner where its program ends no frame, since each of
    /// those takes as long as ten of a game.
    fn until(
        &mut self,
        frames: u32,
        mut reached: impl FnMut(&Self) -> bool,
        mut press: impl FnMut(&mut Self),
    ) -> Result<bool, CuleError> {
        let (mut spent, mut open) = (0, 0);
        while !reached(self) {
            if spent + frames > SELECTION_FRAMES || open > MOST_OPEN_FRAMES {
                return Err(CuleError::ModeSelection {
                    game: names::NAMES[self.game()],
                    mode: self.state.rules.mode,
                    frames: spent,
                });
            }
            press(self);
            spent += frames;
            open = if self.state.machine.unfinished == 0 { 0 } else { open + frames };
        }
        Ok(spent > 0)
    }

    fn mode_reached(&self) -> bool {
        let m = &self.state.machine;
        select::reached(self.game(), self.state.rules.mode as i32, &m.riot.ram, &m.cart.ram)
    }

    fn select_mode(&mut self) -> Result<(), CuleError> {
        let game = self.game();
        match game {
            rows::ADVENTURE => return self.select_adventure(),
            rows::DOUBLE_DUNK => return self.select_double_dunk(),
            rows::GOPHER => self.soft_reset(),
            rows::BERZERK => {
                for _ in 0..20 {
                    self.act(NOOP);
                }
            }
            _ => {}
        }
        let frames = select::press_frames(game);
        if frames == select::NO_SELECTION {
            return Ok(());
        }
        let first = select::first_press(game);
        if first > 0 {
            self.press_select(first);
        }
        let pressed = self.until(frames + 1, Self::mode_reached, |console| console.press_select(frames))?;
        select::on_reached(&mut self.state.rules, game, pressed, &self.state.machine.riot.ram);
        self.soft_reset();
        if game == rows::VIDEO_CUBE {
            let mode = self.state.rules.mode as i32;
            let cube = if mode >= 100 { mode / 100 } else { 1 };
            self.until(
                self.options.frame_skip,
                |console| games::digits(console.peek(0x9F) as u8) == cube,
                |console| {
                    console.act(3);
                },
            )?;
        }
        Ok(())
    }

    /// Adventure: presses of random length.
    fn select_adventure(&mut self) -> Result<(), CuleError> {
        let mode = self.state.rules.mode as i32;
        self.until(
            ADVENTURE_FRAMES,
            |console| (console.peek(0xDD) >> 1) & 3 == mode,
            |console| {
                let frames = 2 + random::draw(&mut console.env_random) % 256;
                console.press_select(frames);
                console.act(NOOP);
            },
        )?;
        self.soft_reset();
        Ok(())
    }

    /// Double Dunk: a menu walked with the stick.
    fn select_double_dunk(&mut self) -> Result<(), CuleError> {
        self.press_select(1);
        self.double_dunk_down()?;
        for [shown, wanted] in MENU {
            self.double_dunk_down()?;
            let on = self.state.rules.mode & wanted != 0;
            self.until(
                2 * self.options.frame_skip,
                |console| (console.peek(0x80) as u32 & shown != 0) == on,
                |console| {
                    console.act(if on { 3 } else { 4 });
                    console.act(NOOP);
                },
            )?;
        }
        self.soft_reset();
        self.act(10);
        self.act(NOOP);
        Ok(())
    }

    fn double_dunk_down(&mut self) -> Result<(), CuleError> {
        let line = self.peek(0xB0);
        self.until(
            2 * self.options.frame_skip,
            |console| console.peek(0xB0) != line,
            |console| {
                console.act(5);
                console.act(NOOP);
            },
        )?;
        Ok(())
    }
}

const _: () = assert!(RESET == select::RESET);
