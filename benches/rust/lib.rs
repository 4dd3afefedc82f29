//! Code that the benchmarks share: games that are played with seeded random actions.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use cule::batch::{BatchConfig, CpuBatch, Outputs, Report, Settings};
use cule::console::{self, Drawing};
use cule::env::full_strength;
use cule::fast_cpu::{self, Code};
use cule::machine::input::Input;
use cule::machine::{self, Board, INSTRUCTIONS_PER_STEP, Machine, cpu};
use cule::{Console, CuleError, Options, rom};

/// Eight games of 2, 4 and 8 KiB that the emulator is timed with.
pub const GAMES: [&str; 8] =
    ["breakout", "enduro", "freeway", "ms_pacman", "pong", "qbert", "seaquest", "space_invaders"];

/// Probability of keeping the previous action, in 256ths.
const KEEP: u64 = 205;

/// Folders with ROMs besides those that environment variables name: the folder of an ale-py installed for
/// `PYTHON`, or for the `python3` on the path. ale-py is located, never imported.
pub fn rom_folders() -> &'static [PathBuf] {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        const LOCATE: &str = "import importlib.util as u, pathlib; \
            print(pathlib.Path(u.find_spec('ale_py').origin).parent / 'roms')";
        let named = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        let Ok(output) = Command::new(named).args(["-c", LOCATE]).output() else { return vec![] };
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && !text.is_empty() { vec![text.into()] } else { vec![] }
    })
}

/// Plays a game: with the same actions in every run, and from the start again when the game is over.
pub struct Player {
    /// The console that is played.
    pub console: Console,
    actions: Vec<u8>,
    action: u8,
    random: u64,
    start: Vec<u8>,
}

impl Player {
    /// Creates a console with a game. `seed` determines the actions.
    ///
    /// # Errors
    /// The ROM is in none of the folders.
    pub fn new(game: &str, seed: u64, drawing: Drawing) -> Result<Self, CuleError> {
        let rom = rom::load(game, rom_folders(), false)?;
        let options = Options { drawing, ..Options::default() };
        let mut console = Console::new(&rom, console::game_row(game)?, options)?;
        let (actions, start) = (console.minimal_actions(), console.save(true));
        let random = 0x9E37_79B9_7F4A_7C15 ^ seed.wrapping_add(1).wrapping_mul(0xD134_2543_DE82_EF95);
        Ok(Self { console, actions, action: 0, random, start })
    }

    /// Plays one act and returns its reward.
    ///
    /// # Panics
    /// If the console cannot load its own state.
    pub fn act(&mut self) -> i32 {
        // Xorshift, 64 bits.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if self.random >> 56 >= KEEP {
            self.action = self.actions[(self.random >> 32) as u32 as usize % self.actions.len()];
        }
        if self.console.game_over() {
            self.console.load(&self.start).expect("a state of this console");
        }
        self.console.act(self.action)
    }
}

/// Environments of one game on one thread, stepped with the same random actions in every run.
pub struct Vector {
    batch: CpuBatch,
    actions: Vec<u8>,
    obs: Vec<u8>,
    reports: Vec<Report>,
    random: u64,
}

impl Vector {
    /// Makes and resets environments, with the default settings.
    ///
    /// # Errors
    /// As [`Player::new`].
    pub fn new(game: &str, envs: usize) -> Result<Self, CuleError> {
        let rom = rom::load(game, rom_folders(), false)?;
        let config = BatchConfig {
            games: &[(rom, console::game_row(game)?)],
            assignment: &vec![0; envs],
            threads: 1,
            affinity: None,
            batch_size: envs,
            ordered: true,
            wants_ram: false,
            entropy: 0,
        };
        let mut batch = CpuBatch::new(&config, Settings::default())?;
        let mut obs = vec![0; envs * batch.obs_bytes()];
        let mut reports = vec![Report::default(); envs];
        let seeds: Vec<Option<i64>> = (0..envs as i64).map(Some).collect();
        batch.reset(Some(&seeds), None, outputs(&mut obs, &mut reports))?;
        let actions = batch.actions();
        Ok(Self { batch, actions, obs, reports, random: 0x9E37_79B9_7F4A_7C15 })
    }

    /// Steps every environment by a random action.
    ///
    /// # Panics
    /// If the batch refuses the step.
    pub fn step(&mut self) {
        let mut actions = vec![full_strength(0); self.reports.len()];
        for action in &mut actions {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let number = (self.random >> 32) as u32 as usize % self.actions.len();
            *action = full_strength(u32::from(self.actions[number]));
        }
        self.batch.step(&actions, outputs(&mut self.obs, &mut self.reports)).expect("they were reset");
    }
}

/// Buffers for observations and reports alone.
fn outputs<'a>(obs: &'a mut [u8], reports: &'a mut [Report]) -> Outputs<'a> {
    Outputs { obs, final_obs: None, ram: None, audio: None, reports }
}

/// Recorded frames of a game for the machine alone: the state at the start, and the inputs of each frame.
pub struct Frames {
    start: Machine,
    inputs: Vec<Input>,
    board: Box<Board>,
    code: Code,
}

impl Frames {
    /// Records `count` frames of a game, to be run by the plain interpreter or the fast CPU.
    ///
    /// # Errors
    /// As [`Player::new`].
    pub fn record(game: &str, count: usize, plain: bool) -> Result<Self, CuleError> {
        let mut player = Player::new(game, 0, Drawing::OnRequest)?;
        let start = player.console.state().machine;
        let inputs = (0..count)
            .map(|_| {
                player.act();
                player.console.state().machine.input
            })
            .collect();
        let rom = rom::load(game, rom_folders(), false)?;
        let image = rom::image(&rom);
        let code = if plain { Code::plain(&image) } else { Code::new(&image, rom.scheme as u8) };
        Ok(Self { start, inputs, board: bytemuck::zeroed_box(), code })
    }

    /// Runs all frames, with or without pixels. Returns the machine after them.
    pub fn run(&mut self, draw: bool) -> Machine {
        let mut m = self.start;
        for &input in &self.inputs {
            m.input = input;
            m.draw = u8::from(draw);
            fast_cpu::step(&mut m, &mut self.board, &self.code);
        }
        m
    }

    /// Number of instructions per frame, including those of waiting loops. Runs the same frames one
    /// instruction at a time.
    pub fn instructions(&mut self) -> f64 {
        let mut m = self.start;
        let mut total = 0u64;
        for &input in &self.inputs {
            m.input = input;
            m.draw = 0;
            machine::begin_step(&mut m, &mut self.board);
            let mut cpu = m.cpu;
            cpu.left = INSTRUCTIONS_PER_STEP;
            while cpu.left != 0 && m.tia.stop == 0 {
                cpu.left -= 1;
                if cfg!(processor_alone) {
                    m.tia.collisions = 0;
                }
                cpu::execute(&mut m, &mut cpu, &mut self.board, self.code.image());
                total += 1;
            }
            m.cpu = cpu;
            machine::end_step(&mut m, &mut self.board);
        }
        total as f64 / self.inputs.len() as f64
    }

    /// Checks that another interpreter produces the same RAM.
    ///
    /// # Panics
    /// If the RAM differs.
    pub fn compare(&mut self, other: &mut Self) {
        let (a, b) =
            (machine::canonical_state(&self.run(false)), machine::canonical_state(&other.run(false)));
        assert_eq!(a.riot.ram, b.riot.ram, "two interpreters differ");
    }
}
