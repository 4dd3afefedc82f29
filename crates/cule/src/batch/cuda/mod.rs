//! The batch on a GPU: memory layout and order of kernel launches. A [`Device`] allocates, copies and
//! launches.
//!
//! Host only. A step is one launch on the caller's stream and does not wait for the device. A second launch
//! follows if resets may run the whole boot. Results are written to device addresses that the caller gives.

pub mod calibrate;
mod choice;
mod device;
mod layout;
mod reset_states;
pub mod saved_choices;
mod states;
mod tables;
mod windows;

pub use choice::{Choice, Form, WINDOWS};
pub use device::{Cuda, Device, SOURCES, Shape};
pub use layout::{CART_AT, Call, Plan, SHARED_BYTES};

use layout::{BYTE_THREADS, FAULTS, LANES, NO_SAVED_PICTURES, blocks};
use tables::Tables;

use super::game::Game;
use super::slot::Slot;
use super::{Autoreset, BatchConfig, HAS_ENDED, NOT_RESET, Settings};
use crate::env::state::{self, EnvSettings, StepOutput};
use crate::games::table::GAMES;
use crate::machine::input::Input;
use crate::machine::{Board, cart};
use crate::random::Random;
use crate::{CuleError, memory};

/// Names of the kernels, each with its source file.
pub const KERNELS: [(&str, &str); 4] = [
    ("parl_step", "step.cu"),
    ("parl_reset", "reset.cu"),
    ("parl_saved_pictures", "states.cu"),
    ("parl_states", "states.cu"),
];

/// Device addresses of the output arrays, one row per environment unless stated otherwise. 0 if an output is
/// not wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Targets {
    /// Observations.
    pub obs: u64,
    /// The last observation of each episode that ended within a step; other rows are not written.
    pub final_obs: u64,
    /// Console RAM, 128 bytes per environment.
    pub ram: u64,
    /// [`state::NUMBERS`] rows of `i32`, one column per environment.
    pub numbers: u64,
    /// [`state::FLAGS`] rows of bytes, one column per environment.
    pub flags: u64,
    /// Bytes from one observation to the next; 0 if the observations are contiguous.
    pub obs_stride: u64,
    /// `obs` is one plane after the address of the last call, and the environments have not changed since.
    /// The older planes are then already in place: only the newest one is written, except for stacks that did
    /// not move on by one plane.
    pub slides: bool,
}

/// Device address and type of the actions of a step, one row per environment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Actions {
    /// `i32` indices.
    Narrow(u64),
    /// `i64` indices.
    Wide(u64),
    /// Continuous actions, four `f32` each (x to the right, y up, trigger, strength); and the threshold of
    /// directions and trigger.
    Sticks(u64, f32),
}

/// Environments on a device.
pub struct CudaBatch<D: Device> {
    device: D,
    settings: Settings,
    /// The environments' settings, per game.
    rules: Vec<EnvSettings>,
    games: Vec<Game>,
    env_games: Vec<usize>,
    /// `env_games` and the environment of each thread on the device.
    assigned: [D::Memory; 2],
    plan: Plan,
    resident: u32,
    /// Resets after the end of an episode may need a separate launch.
    queues: bool,
    actions: u32,
    shape: Vec<usize>,
    faults: D::Memory,
    choices: D::Memory,
    /// Form and window of each game; `choices` holds the same on the device.
    chosen: Vec<Choice>,
    /// Memory that only kernels use. It must live as long as the batch.
    _memory: Vec<D::Memory>,
    bytes: usize,
}

/// Allocates the memory of a batch and counts its bytes.
struct Allocations<'a, D: Device> {
    device: &'a D,
    memory: Vec<D::Memory>,
    bytes: usize,
}

impl<D: Device> Allocations<'_, D> {
    fn allocate(&mut self, bytes: usize) -> Result<u64, CuleError> {
        let memory = self.device.allocate(bytes.max(1))?;
        let address = self.device.address(&memory);
        self.memory.push(memory);
        self.bytes += bytes;
        Ok(address)
    }

    fn upload<T: bytemuck::NoUninit>(&mut self, values: &[T]) -> Result<u64, CuleError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut memory = self.device.allocate(bytes.len().max(1))?;
        if !bytes.is_empty() {
            self.device.write(&mut memory, bytes, 0)?;
        }
        let address = self.device.address(&memory);
        self.memory.push(memory);
        self.bytes += bytes.len();
        Ok(address)
    }
}

impl<D: Device> CudaBatch<D> {
    /// Loads the games, boots one console of each on the host, and makes the environments, which must be
    /// reset before the first step.
    ///
    /// # Errors
    /// As [`super::CpuBatch::new`], or an error of the device.
    pub fn new(device: D, config: &BatchConfig<'_>, settings: Settings) -> Result<Self, CuleError> {
        super::config::check(config, &settings)?;
        let games = super::config::load_games(config, &settings)?;
        let envs = config.assignment.len();
        let all = games.iter().fold(0, |all, game| all | game.env_game.actions);
        let rules = super::config::env_settings(&settings, &games);
        let longest = settings.with_longest_steps(games.len());
        let tables = Tables::new(&games, &settings, &rules, all);
        let plane_bytes = games[0].screen.size_bytes();
        check_changes(&games, &tables, &settings)?;
        let picture = rules[0].picture_bytes as usize;
        let inputs = longest.frame_skip.1 as usize * size_of::<Input>();
        let board_bytes = std::mem::offset_of!(Board, ram).next_multiple_of(16);
        let generators = 2 * size_of::<Random>();
        let pictures = state::WORK_PICTURES as usize * picture;
        let scratch = (board_bytes + pictures + inputs + generators).next_multiple_of(16);
        let lanes = device.lanes().unwrap_or_else(|| layout::lanes(envs, device.resident_warps()));
        let order = layout::order(config.assignment, lanes);
        // Other assignments of environments to games may need more warps.
        let most_threads = layout::most_threads(envs, games.len(), lanes);
        let (groups, _) = layout::blocks_and_warps(most_threads / LANES, device.resident_warps());
        let may_be_short = |game: usize| {
            tables.has_short_frames[game] || games.len() > 1 && tables.has_short_frames.contains(&true)
        };
        let short_frame_envs = config.assignment.iter().filter(|&&game| may_be_short(game)).count();
        let saved_pictures = if rules[0].draws == 0 {
            0
        } else {
            layout::saved_pictures(envs, short_frame_envs, settings.noop_max as usize)
        };
        let cart_ram = games.iter().any(has_cart_ram);
        let (heads, randoms) = initial_states(config, &games, &rules, cart_ram)?;
        let mut allocations = Allocations { device: &device, memory: vec![], bytes: 0 };
        let assigned = [device.allocate(envs * 4)?, device.allocate(most_threads as usize * 4)?];
        allocations.bytes += (envs + most_threads as usize) * 4;
        let mut plan = Plan {
            heads: allocations.upload(&heads)?,
            randoms: allocations.upload(&randoms)?,
            step_outputs: allocations.allocate(envs * size_of::<StepOutput>())?,
            planes: allocations.allocate(envs * settings.stack * plane_bytes)?,
            saved_pictures: allocations.upload(&vec![NO_SAVED_PICTURES; envs])?,
            taken: allocations.allocate(saved_pictures.div_ceil(32) * 4)?,
            kept: allocations.allocate(saved_pictures * state::KEPT_PICTURES as usize * picture)?,
            scratch: allocations.allocate((groups * lanes) as usize * scratch)?,
            queue: allocations.allocate(envs * 4)?,
            queued: allocations.allocate(8)?,
            faults: 0,
            order: device.address(&assigned[1]),
            env_games: device.address(&assigned[0]),
            games: allocations.upload(&tables.games)?,
            rules: allocations.upload(&rules)?,
            reset_states: allocations.upload(&tables.reset_states)?,
            reset_planes: allocations.upload(&tables.reset_planes)?,
            roms: allocations.upload(&tables.roms)?,
            records: allocations.upload(&tables.records)?,
            choices: 0,
            boot_pictures: allocations.upload(&tables.boot_pictures)?,
            reductions: allocations.upload(&tables.reductions)?,
            cells: allocations.upload(&tables.cells)?,
            weights: allocations.upload(&tables.weights)?,
            blends: allocations.upload(&tables.blends)?,
            tables: allocations.upload(&tables.bytes)?,
            count: envs as u32,
            threads: order.len() as u32,
            board_bytes: board_bytes as u32,
            scratch_bytes: scratch as u32,
            saved_count: saved_pictures as u32,
            reset_state_count: tables.reset_states.len() as u32,
            plane_bytes: plane_bytes as u32,
            stack: settings.stack as u32,
            inputs_per_env: longest.frame_skip.1,
            boot_bytes: tables.boot_bytes as u32,
            cell_count: tables.cells.len() as u32,
            weight_count: tables.weights.len() as u32,
            blend_count: tables.blends.len() as u32,
            table_bytes: tables.bytes.len() as u32,
            cart_ram: u32::from(cart_ram),
            lanes,
        };
        let (memory, bytes) = (allocations.memory, allocations.bytes);
        let faults = device.allocate(FAULTS * size_of::<u32>())?;
        plan.faults = device.address(&faults);
        let mut choices = device.allocate(games.len() * size_of::<[u32; 2]>())?;
        plan.choices = device.address(&choices);
        let chosen: Vec<Choice> = games.iter().map(|game| Choice::of_game(game.name())).collect();
        let words: Vec<[u32; 2]> = chosen.iter().map(|choice| choice.words()).collect();
        device.write(&mut choices, bytemuck::cast_slice(&words), 0)?;
        let quick = tables.games.iter().all(|game| game.reset_state_frames != 0);
        let mut batch = Self {
            resident: device.resident_warps(),
            queues: !quick || settings.boot == super::Boot::Exact || settings.life_continues,
            shape: super::config::obs_shape(&games[0], &settings),
            env_games: config.assignment.to_vec(),
            assigned,
            device,
            settings,
            rules,
            games,
            plan,
            actions: all,
            faults,
            choices,
            chosen,
            _memory: memory,
            bytes,
        };
        batch.write_assignment(0)?;
        // Waits for the device, because later calls may use other streams.
        batch.check_faults(0)?;
        Ok(batch)
    }

    /// Number of environments.
    pub fn num_envs(&self) -> usize {
        self.env_games.len()
    }

    /// As [`super::CpuBatch::obs_shape`].
    pub fn obs_shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    /// Bytes of one observation.
    pub fn obs_bytes(&self) -> usize {
        (self.plan.stack * self.plan.plane_bytes) as usize
    }

    /// Action codes of the action space, ascending; the same for all environments.
    pub fn actions(&self) -> Vec<u8> {
        super::config::action_codes(self.actions)
    }

    /// Bytes of device memory, without the caller's observations and without [`CudaBatch::stack_bytes`].
    pub fn device_bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of device memory for the stacks of the kernels' threads, which all batches on a device share.
    pub fn stack_bytes(&self) -> usize {
        self.device.stack_bytes()
    }

    /// The ROM image of each game.
    pub fn images(&self) -> Vec<&[u8]> {
        self.games.iter().map(|game| game.code.image()).collect()
    }

    /// Name of the game of an environment.
    pub fn game(&self, env: usize) -> &'static str {
        GAMES[self.games[self.env_games[env]].row].name
    }

    /// Sets form and window of each game, in the order of the games. They affect the speed only.
    ///
    /// # Errors
    /// [`CuleError::BufferLength`] if there is not one choice per game, or an error of the device.
    pub fn choose(&mut self, choices: &[Choice], stream: u64) -> Result<(), CuleError> {
        if choices.len() != self.games.len() {
            let (expected, found) = (self.games.len(), choices.len());
            return Err(CuleError::BufferLength { what: "choices, one per game", expected, found });
        }
        let words: Vec<[u32; 2]> = choices.iter().map(|choice| choice.words()).collect();
        self.device.write(&mut self.choices, bytemuck::cast_slice(&words), stream)?;
        self.chosen = choices.to_vec();
        Ok(())
    }

    /// Name, form and window of each game, in the order of the games.
    pub fn choices(&self) -> Vec<(&'static str, Choice)> {
        self.games.iter().map(|game| GAMES[game.row].name).zip(self.chosen.iter().copied()).collect()
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// As [`super::CpuBatch::assign`]; waits for the device.
    ///
    /// # Errors
    /// As [`super::CpuBatch::assign`], a fault, see [`CudaBatch::check_faults`], or an error of the device.
    pub fn assign(&mut self, assignment: &[usize], stream: u64) -> Result<(), CuleError> {
        super::config::check_assignment(assignment, self.num_envs(), self.games.len())?;
        self.check_faults(stream)?;
        let changed: Vec<usize> =
            (0..assignment.len()).filter(|&env| self.env_games[env] != assignment[env]).collect();
        for some in changed.chunks(self.rows_at_once()) {
            let mut slots = self.slots(some, stream)?;
            let mut rows = Vec::with_capacity(some.len() * self.row_bytes());
            for (slot, &env) in slots.iter_mut().zip(some) {
                let (old, new) = (&self.games[slot.game], &self.games[assignment[env]]);
                slot.change_game(assignment[env], new, old.has_rom_of(new));
                rows.extend(self.row(slot));
            }
            self.transfer(some, &mut rows, true, stream)?;
        }
        self.env_games = assignment.to_vec();
        self.write_assignment(stream)
    }

    /// Writes which game each environment plays, and which environment each thread runs.
    fn write_assignment(&mut self, stream: u64) -> Result<(), CuleError> {
        let order = layout::order(&self.env_games, self.plan.lanes);
        let games: Vec<u32> = self.env_games.iter().map(|&game| game as u32).collect();
        self.device.write(&mut self.assigned[0], bytemuck::cast_slice(&games), stream)?;
        self.device.write(&mut self.assigned[1], bytemuck::cast_slice(&order), stream)?;
        self.plan.threads = order.len() as u32;
        Ok(())
    }

    // ------------------------------------------------------------ running

    /// Resets all environments, or those whose byte in `mask` is not 0. `seeds` has one `i64` per
    /// environment; a negative one does not seed. Both are device addresses, or 0 if not given.
    ///
    /// # Errors
    /// An error of the device. If the mask excludes an environment that has never been reset,
    /// [`CudaBatch::check_faults`] reports it.
    pub fn reset(&self, seeds: u64, mask: u64, out: &Targets, stream: u64) -> Result<(), CuleError> {
        let call = Call { seeds, mask, mode: RESET_REQUESTED, ..call_for(out) };
        self.play("parl_reset", &call, stream)
    }

    /// Steps every environment once.
    ///
    /// # Errors
    /// An error of the device. [`CudaBatch::check_faults`] reports invalid actions and environments that
    /// cannot step.
    pub fn step(&self, actions: Actions, out: &Targets, stream: u64) -> Result<(), CuleError> {
        let mode = match self.settings.autoreset {
            Autoreset::NextStep => NEXT_STEP,
            Autoreset::SameStep => SAME_STEP,
            Autoreset::Disabled => DISABLED,
        };
        let (actions, wide_actions, threshold) = match actions {
            Actions::Narrow(address) => (address, 0, 0.0),
            Actions::Wide(address) => (address, WIDE, 0.0),
            Actions::Sticks(address, threshold) => (address, STICKS, threshold),
        };
        let call = Call { actions, wide_actions, threshold, mode, ..call_for(out) };
        self.play("parl_step", &call, stream)?;
        let mode = match self.settings.autoreset {
            Autoreset::NextStep => RESET_DUE,
            Autoreset::SameStep => RESET_WITHIN,
            Autoreset::Disabled => return Ok(()),
        };
        if self.queues { self.play("parl_reset", &Call { mode, ..call_for(out) }, stream) } else { Ok(()) }
    }

    fn play(&self, kernel: &str, call: &Call, stream: u64) -> Result<(), CuleError> {
        let (blocks, warps) = layout::blocks_and_warps(self.plan.threads / LANES, self.resident);
        self.device.launch(kernel, Shape { blocks, threads: warps * LANES }, &self.plan, call, stream)
    }

    fn launch_per_byte(&self, kernel: &str, bytes: u64, call: &Call, stream: u64) -> Result<(), CuleError> {
        let blocks = blocks(bytes, BYTE_THREADS).ok_or_else(|| CuleError::Setting {
            name: "num_envs",
            value: self.env_games.len().to_string(),
            bound: "at most 2^39 bytes to write, the limit of one launch",
        })?;
        self.device.launch(kernel, Shape { blocks, threads: BYTE_THREADS }, &self.plan, call, stream)
    }

    /// Waits for the stream, and reports and clears one kind of faults that kernels have recorded. The next
    /// call reports the next kind.
    ///
    /// # Errors
    /// An action was outside the action space, an environment could not step, or a game did not reach its
    /// mode. Also an error of the device.
    pub fn check_faults(&mut self, stream: u64) -> Result<(), CuleError> {
        let mut found = [0u32; FAULTS];
        self.device.read(&self.faults, bytemuck::bytes_of_mut(&mut found), stream)?;
        let Some(kind) = found.iter().position(|&env| env != 0) else { return Ok(()) };
        let env = found[kind] as usize - 1;
        found[kind] = 0;
        self.device.write(&mut self.faults, bytemuck::bytes_of(&found), stream)?;
        let reason = match kind {
            0 => return Err(CuleError::Action { env, count: self.actions.count_ones() }),
            1 => NOT_RESET,
            2 => HAS_ENDED,
            3 => "did not reach its mode: does the ROM belong to the game?",
            4 => "could not keep its pictures: other environments use all places for saved pictures",
            _ => "had an action that is not finite; it did nothing",
        };
        Err(CuleError::EnvState { env, reason })
    }
}

/// `Call::wide_actions` of the kernels, as `kernels/layout.cuh` has them.
const WIDE: u32 = 1;
const STICKS: u32 = 2;
/// `Call::mode` of the kernels, as `kernels/layout.cuh` has them.
const NEXT_STEP: u32 = 0;
const SAME_STEP: u32 = 1;
const DISABLED: u32 = 2;
const RESET_DUE: u32 = 0;
const RESET_WITHIN: u32 = 1;
const RESET_REQUESTED: u32 = 2;

fn call_for(out: &Targets) -> Call {
    let Targets { obs, final_obs, ram, numbers, flags, obs_stride, slides } = *out;
    Call { obs, final_obs, ram, numbers, flags, obs_stride, slides: u32::from(slides), ..Call::default() }
}

/// Returns true if a game's cartridge has RAM, or registers that are stored in its place.
fn has_cart_ram(game: &Game) -> bool {
    let cart = &game.env_game.boot.machine.cart;
    cart::is_superchip(cart) || cart.kind == cart::KIND_DPC || cart.ram != [0; 128]
}

/// Checks that the kernels can apply the changes of RAM: as parts of boot states, which resets copy.
fn check_changes(games: &[Game], tables: &Tables, settings: &Settings) -> Result<(), CuleError> {
    for (game, env_game) in games.iter().zip(&tables.games) {
        let Some(changes) = &game.changes else { continue };
        if !changes.hold.is_empty() {
            let value = "given for environments on a CUDA device".into();
            return Err(CuleError::Setting { name: "hold", value, bound: "device=\"cpu\"" });
        }
        if env_game.reset_state_frames == 0 || settings.boot == super::Boot::Exact {
            let value = format!("given for {} on a CUDA device", game.name());
            let bound = "device=\"cpu\": its resets run the boot of the console";
            return Err(CuleError::Setting { name: "ram", value, bound });
        }
    }
    Ok(())
}

/// Initial heads, as an array (word, environment), and generators of all environments.
fn initial_states(
    config: &BatchConfig<'_>,
    games: &[Game],
    rules: &[EnvSettings],
    cart_ram: bool,
) -> Result<(Vec<u32>, Vec<Random>), CuleError> {
    let envs = config.assignment.len();
    let mut heads = memory::filled(0u32, envs.saturating_mul(layout::head_words(cart_ram)))?;
    let mut randoms = memory::reserved(envs)?;
    for (env, &game) in config.assignment.iter().enumerate() {
        let slot = Slot::new(game, &games[game], &rules[game], super::config::entropy_of(config, env))?;
        let words: &[u32] = bytemuck::cast_slice(bytemuck::bytes_of(&slot.head));
        let stored = words.iter().enumerate().filter(|&(word, _)| cart_ram || !layout::is_cart_ram(word));
        for (place, (_, &value)) in stored.enumerate() {
            heads[place * envs + env] = value;
        }
        randoms.push(*slot.random);
    }
    Ok((heads, randoms))
}
