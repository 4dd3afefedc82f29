//! Loading and resets: power-on, detection of the television, then the boot shared with all environments
//! (`env::boot`).

use bytemuck::Zeroable;

use super::rom_cache::{self, CachedBoot, CachedRom};
use super::undrawn::{CpuRunner, SoundRunner, UndrawnFrames};
use super::{Console, Drawing, Options, ReadPredictor};
use crate::CuleError;
use crate::env::boot::{self, BOOT_FRAMES, BootRules};
use crate::env::{self, State};
use crate::games;
use crate::games::row::FORCED_PAL;
use crate::games::table::GAMES;
use crate::machine;
use crate::random;
use crate::rom::Rom;
use crate::sound::Sound;

/// A frame with more lines than this counts as PAL in the detection.
const LONG_LINES: i32 = 285;
/// Draws of the core generator at power-on: 128 for RAM, and one that is discarded.
const POWER_ON_DRAWS: u32 = 129;
/// No boot with its first reset takes as many frames.
const LONGEST_BOOT: u32 = 10_000;

impl Console {
    /// Returns a console after loading and the first reset. A boot that the process has kept is not run
    /// again.
    pub(super) fn booted(cached: &CachedRom, game: usize, options: Options) -> Result<Self, CuleError> {
        let mut console = Self::powered(cached, game, options);
        // A smaller limit can end the first reset: such a boot is neither kept nor taken from the cache.
        let limit = options.max_num_frames_per_episode;
        let cacheable = limit == 0 || limit > LONGEST_BOOT;
        let known = cached.boot(game, options.system_seed, options.sound).filter(|_| cacheable);
        if let Some(boot) = &known {
            boot.restore(&mut console);
        } else {
            console.choose_television(game);
            if cacheable {
                cached.add_boot(CachedBoot::of_console(&console, false));
            }
        }
        if known.is_none_or(|boot| !boot.complete) {
            console.reset_console();
            console.reset()?;
            // If the environment's generator was not used, the boot is the same for all consoles.
            let unused = console.env_random == random::seeded(options.random_seed);
            if cacheable && console.undrawn.blank && unused {
                cached.add_boot(CachedBoot::of_console(&console, true));
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

    /// Returns the state and the sound of a console after loading, before the first reset.
    pub(crate) fn loaded(rom: &Rom, game: usize, options: Options) -> (State, Option<Box<Sound>>) {
        let mut console = Self::powered(&rom_cache::get(rom), game, options);
        console.choose_television(game);
        (console.state, console.copy_sound())
    }

    /// Returns a console after power-on; nothing is drawn until requested.
    fn powered(cached: &CachedRom, game: usize, options: Options) -> Self {
        let mut core_random = random::seeded(options.system_seed);
        let mut ram = [0; 128];
        for byte in &mut ram {
            *byte = random::draw(&mut core_random) as u8;
        }
        random::draw(&mut core_random);
        let row = &GAMES[game];
        let layout = env::layout(game as u32, row.flags & FORCED_PAL != 0);
        let mut state: State = Zeroable::zeroed();
        state.machine = machine::new(cached.scheme as u8, cached.code.rom_bytes(), &ram, layout);
        state.machine.draws = POWER_ON_DRAWS;
        state.machine.input = env::first_inputs(game as u32);
        state.rules = games::new(row.modes[0]);
        state.env = env::new(game as u32);
        state.env.frame_limit = options.max_num_frames_per_episode as i32;
        Self {
            state,
            board: bytemuck::zeroed_box(),
            code: cached.code(options.sound),
            options: Options { drawing: Drawing::OnRequest, ..options },
            core_random,
            core_draws: POWER_ON_DRAWS,
            env_random: random::seeded(options.random_seed),
            undrawn: UndrawnFrames::new(),
            read_predictor: ReadPredictor::default(),
            sound: options.sound.then(|| Box::new(Sound::new(1))),
            fingerprint: cached.fingerprint,
        }
    }

    fn choose_television(&mut self, game: usize) {
        if GAMES[game].flags & FORCED_PAL == 0 {
            self.reset_console();
            if self.detect_pal() {
                self.state.machine.tia.layout = env::layout(game as u32, true);
            }
        }
    }

    /// Advances the core generator to `Machine::draws`.
    fn advance_core_random(&mut self) {
        if self.core_draws != self.state.machine.draws {
            self.core_random = random::seeded(self.options.system_seed);
            random::skip(&mut self.core_random, self.state.machine.draws);
        }
    }

    fn reset_console(&mut self) {
        self.advance_core_random();
        let (code, undrawn) = (&self.code, &mut self.undrawn);
        let mut runner = CpuRunner { code, undrawn, keeps_undrawn: true, sound: None };
        let (state, random) = (&mut self.state, &mut self.core_random);
        boot::reset_console(&mut runner, state, random, &mut self.board, false);
        self.core_draws = self.state.machine.draws;
    }

    /// True if at least half of the last 30 of 60 frames without input are longer than NTSC frames.
    fn detect_pal(&mut self) -> bool {
        let mut long_frames = 0;
        for i in 0..BOOT_FRAMES {
            self.undrawn.step(&mut self.state.machine, &mut self.board, &self.code);
            if i >= 30 && machine::lines(&self.state.machine) > LONG_LINES {
                long_frames += 1;
            }
        }
        long_frames >= 15
    }

    /// Starts an episode: boot, RESET switch, mode selection, starting actions.
    ///
    /// # Errors
    /// The mode is never reached: the ROM is of another game.
    pub fn reset(&mut self) -> Result<(), CuleError> {
        self.advance_core_random();
        let rules = BootRules {
            repeat_probability: f64::from(self.options.repeat_action_probability),
            frame_skip: self.options.frame_skip,
            draws: u32::from(self.options.drawing == Drawing::EveryFrame),
        };
        let (code, undrawn) = (&self.code, &mut self.undrawn);
        let sound = self.sound.as_deref_mut().map(|sound| SoundRunner::new(sound, None));
        let mut runner = CpuRunner { code, undrawn, keeps_undrawn: true, sound };
        let (state, random, core) = (&mut self.state, &mut self.env_random, &mut self.core_random);
        let frames = boot::restart(&mut runner, state, random, core, &mut self.board, &rules);
        self.core_draws = self.state.machine.draws;
        if frames == 0 {
            return Ok(());
        }
        let (game, mode) = (self.game_name(), self.state.rules.mode);
        Err(CuleError::ModeSelection { game, mode, frames })
    }
}
