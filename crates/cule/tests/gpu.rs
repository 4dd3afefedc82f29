//! Tests the GPU batch without a GPU: the host code that launches kernels on a device launches them compiled
//! as host C++ (`kernels/host.cpp`). Observations, figures and saved states must equal those of the CPU
//! batch, byte for byte.

#![allow(clippy::unwrap_used, reason = "a test fails if its program cannot be run")]
#![allow(unsafe_code, reason = "calls functions of a library that was compiled here")]

use std::cell::{RefCell, UnsafeCell};
use std::rc::Rc;
use std::sync::OnceLock;

use cule::batch::cuda::{
    Actions, CART_AT, Call, Choice, CudaBatch, Device, Form, Plan, SHARED_BYTES, Shape, Targets, WINDOWS,
    calibrate::{self, Effort},
};
use cule::batch::{
    Autoreset, Batch, BatchConfig, Boot, ChannelOrder, CpuBatch, Noops, ObsType, Outputs, Padding, Report,
    Settings, Variation,
};
use cule::env::full_strength;
use cule::env::rules::{self, StepRules};
use cule::env::state::{FLAGS, Head, NUMBERS};
use cule::games::table::{GAMES, UNKNOWN};
use cule::machine::Board;
use cule::{CuleError, console, rom};
use libloading::Library;

#[path = "support/compiled.rs"]
mod compiled;
#[path = "support/roms.rs"]
mod roms;

/// The kernels as a library of the host, loaded once for all tests.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let file = compiled::kernels();
        // SAFETY: the library was compiled above and runs no code when it is loaded.
        unsafe { Library::new(file) }.unwrap()
    })
}

type Launch = unsafe extern "C" fn(*const std::ffi::c_char, u32, u32, *const Plan, *const Call) -> i32;

/// The host as a device: its memory is that of the process. `warps` is the number of resident warps, `lanes` the
/// number of environments of a warp.
struct Host {
    warps: u32,
    lanes: u32,
    launched: Rc<RefCell<Vec<String>>>,
}

/// Memory that kernels write to through its address.
struct Bytes(UnsafeCell<Vec<u64>>, usize);

impl Device for Host {
    type Memory = Bytes;

    fn resident_warps(&self) -> u32 {
        self.warps
    }

    fn lanes(&self) -> Option<u32> {
        Some(self.lanes)
    }

    fn stack_bytes(&self) -> usize {
        0
    }

    fn allocate(&self, bytes: usize) -> Result<Bytes, CuleError> {
        Ok(Bytes(UnsafeCell::new(vec![0; bytes.div_ceil(8)]), bytes))
    }

    fn address(&self, memory: &Bytes) -> u64 {
        // SAFETY: there is no reference to the words.
        unsafe { (*memory.0.get()).as_mut_ptr() as u64 }
    }

    fn write(&self, memory: &mut Bytes, bytes: &[u8], _: u64) -> Result<(), CuleError> {
        assert!(bytes.len() <= memory.1);
        bytemuck::cast_slice_mut(memory.0.get_mut())[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, memory: &Bytes, bytes: &mut [u8], _: u64) -> Result<(), CuleError> {
        // SAFETY: no kernel runs between launches, and there is no reference to the words.
        let words: &[u64] = unsafe { &*memory.0.get() };
        bytes.copy_from_slice(&bytemuck::cast_slice(words)[..bytes.len()]);
        Ok(())
    }

    fn launch(&self, kernel: &str, shape: Shape, plan: &Plan, call: &Call, _: u64) -> Result<(), CuleError> {
        self.launched.borrow_mut().push(kernel.into());
        let name = std::ffi::CString::new(kernel).unwrap();
        // SAFETY: the function has this type (`kernels/host.cpp`), and the addresses point to memory that is
        // alive.
        let status = unsafe {
            let launch = library().get::<Launch>(b"parl_launch").unwrap();
            launch(name.as_ptr(), shape.blocks, shape.threads, plan, call)
        };
        assert_eq!(status, 0, "no kernel {kernel}");
        Ok(())
    }
}

/// Output buffers of one batch.
struct Results {
    obs: Vec<u8>,
    final_obs: Vec<u8>,
    ram: Vec<u8>,
}

impl Results {
    fn new(envs: usize, obs_bytes: usize) -> Self {
        Self {
            obs: vec![1; envs * obs_bytes],
            final_obs: vec![0; envs * obs_bytes],
            ram: vec![2; envs * 128],
        }
    }
}

/// A CPU batch and a GPU batch with the same games and settings.
struct Pair {
    cpu: CpuBatch,
    gpu: CudaBatch<Host>,
    envs: usize,
    cpu_results: Results,
    gpu_results: Results,
    /// Offset of the device's observations in its buffer.
    obs_at: usize,
    reports: Vec<Report>,
    numbers: Vec<i32>,
    flags: Vec<u8>,
    draws: u64,
    ended: usize,
    launched: Rc<RefCell<Vec<String>>>,
}

/// ROMs of games, and their rows in the table.
fn loaded(names: &[&str]) -> Vec<(rom::Rom, usize)> {
    let one = |name: &&str| (rom::load(name, &[], false).unwrap(), console::game_row(name).unwrap());
    names.iter().map(one).collect()
}

impl Pair {
    /// Environment i plays game i modulo the number of games. Returns `None` if there are no ROMs.
    fn new(names: &[&str], envs: usize, settings: &Settings) -> Option<Self> {
        if !roms::are_there(&rom::folders(&[])) {
            return None;
        }
        Some(Self::of(&loaded(names), envs, settings))
    }

    fn of(games: &[(rom::Rom, usize)], envs: usize, settings: &Settings) -> Self {
        Self::with_lanes(32, games, envs, settings)
    }

    fn with_lanes(lanes: u32, games: &[(rom::Rom, usize)], envs: usize, settings: &Settings) -> Self {
        let assignment: Vec<usize> = (0..envs).map(|env| env % games.len()).collect();
        let config = BatchConfig {
            games,
            assignment: &assignment,
            threads: 1,
            affinity: None,
            batch_size: envs,
            ordered: true,
            wants_ram: true,
            entropy: 77,
        };
        Self::with_config(lanes, &config, settings)
    }

    fn with_config(lanes: u32, config: &BatchConfig<'_>, settings: &Settings) -> Self {
        let (games, envs) = (config.games, config.assignment.len());
        let cpu = CpuBatch::new(config, settings.clone()).unwrap();
        // With one game, additional warps help to write observations; with several, two warps run the groups
        // in turn.
        let launched = Rc::new(RefCell::new(vec![]));
        let host = Host { warps: if games.len() > 1 { 2 } else { 3 }, lanes, launched: launched.clone() };
        let gpu = CudaBatch::new(host, config, settings.clone()).unwrap();
        assert_eq!((cpu.obs_shape(), cpu.actions()), (gpu.obs_shape(), gpu.actions()));
        let bytes = cpu.obs_bytes();
        Self {
            cpu,
            gpu,
            envs,
            cpu_results: Results::new(envs, bytes),
            gpu_results: Results::new(envs, bytes),
            obs_at: 0,
            reports: vec![Report::default(); envs],
            numbers: vec![0; NUMBERS * envs],
            flags: vec![0; FLAGS * envs],
            draws: 1,
            ended: 0,
            launched,
        }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.draws =
            self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33) % below
    }

    fn targets(&mut self) -> Targets {
        let results = &mut self.gpu_results;
        Targets {
            obs: results.obs[self.obs_at..].as_mut_ptr() as u64,
            final_obs: results.final_obs.as_mut_ptr() as u64,
            ram: results.ram.as_mut_ptr() as u64,
            numbers: self.numbers.as_mut_ptr() as u64,
            flags: self.flags.as_mut_ptr() as u64,
            ..Targets::default()
        }
    }

    fn reset(&mut self, seeds: Option<Vec<i64>>, mask: Option<Vec<bool>>, what: &str) {
        let given: Option<Vec<Option<i64>>> =
            seeds.as_ref().map(|all| all.iter().map(|&one| Some(one)).collect());
        let out = Outputs {
            obs: &mut self.cpu_results.obs,
            final_obs: None,
            ram: Some(&mut self.cpu_results.ram),
            audio: None,
            reports: &mut self.reports,
        };
        self.cpu.reset(given.as_deref(), mask.as_deref(), out).unwrap();
        let targets = self.targets();
        let at = |address: Option<u64>| address.unwrap_or(0);
        let bytes: Option<Vec<u8>> = mask.map(|all| all.iter().map(|&one| u8::from(one)).collect());
        self.gpu
            .reset(
                at(seeds.as_ref().map(|all| all.as_ptr() as u64)),
                at(bytes.as_ref().map(|all| all.as_ptr() as u64)),
                &targets,
                0,
            )
            .unwrap();
        self.compare(what);
    }

    fn step(&mut self, what: &str) {
        let codes = self.cpu.actions();
        let indices: Vec<i32> = (0..self.envs).map(|_| self.next(codes.len() as u64) as i32).collect();
        let actions: Vec<_> =
            indices.iter().map(|&index| full_strength(u32::from(codes[index as usize]))).collect();
        let out = Outputs {
            obs: &mut self.cpu_results.obs,
            final_obs: Some(&mut self.cpu_results.final_obs),
            ram: Some(&mut self.cpu_results.ram),
            audio: None,
            reports: &mut self.reports,
        };
        self.cpu.step(&actions, out).unwrap();
        let targets = self.targets();
        if self.next(2) == 0 {
            self.gpu.step(Actions::Narrow(indices.as_ptr() as u64), &targets, 0).unwrap();
        } else {
            let wide: Vec<i64> = indices.iter().map(|&index| i64::from(index)).collect();
            self.gpu.step(Actions::Wide(wide.as_ptr() as u64), &targets, 0).unwrap();
        }
        self.compare(what);
    }

    fn compare(&mut self, what: &str) {
        for (env, report) in self.reports.iter().enumerate() {
            let r = report;
            let expected = [
                r.reward,
                r.raw_reward,
                r.lives,
                r.frame_number,
                r.episode_frame_number,
                r.env_id as i32,
                r.final_lives,
                r.final_frame_number,
                r.final_episode_frame_number,
                r.episode_return,
                r.episode_length,
                r.game_return,
            ];
            let found: Vec<i32> = (0..NUMBERS).map(|k| self.numbers[k * self.envs + env]).collect();
            assert_eq!(found, expected, "{what}: figures of environment {env}");
            let flags: Vec<bool> = (0..FLAGS).map(|k| self.flags[k * self.envs + env] != 0).collect();
            let expected = [r.terminated, r.truncated, r.ended, r.game_over];
            assert_eq!(flags, expected, "{what}: flags of environment {env}");
            self.ended += usize::from(r.ended);
        }
        let bytes = self.cpu_results.obs.len() / self.envs;
        let found = &self.gpu_results.obs[self.obs_at..];
        let pairs = [
            (&self.cpu_results.obs[..], found),
            (&self.cpu_results.final_obs[..], &self.gpu_results.final_obs[..]),
        ];
        for (name, (cpu, gpu)) in ["observations", "last observations"].iter().zip(pairs) {
            if let Some(at) = cpu.iter().zip(gpu).position(|(a, b)| a != b) {
                let (env, byte) = (at / bytes, at % bytes);
                panic!(
                    "{what}: {name} of environment {env}: byte {byte} of {bytes} is {}, expected {}",
                    gpu[at], cpu[at]
                );
            }
        }
        assert!(self.cpu_results.ram == self.gpu_results.ram, "{what}: RAM");
    }

    fn compare_states(&mut self, what: &str) {
        let envs: Vec<usize> = (0..self.envs).collect();
        let size = self.cpu.state_bytes(&envs);
        let mut rows = vec![0; size * self.envs];
        self.cpu.save(&envs, &mut rows).unwrap();
        let (found, found_size) = self.gpu.save(&envs, 0).unwrap();
        assert_eq!(found_size, size, "{what}: bytes of a state");
        for (env, (cpu, gpu)) in rows.chunks_exact(size).zip(found.chunks_exact(size)).enumerate() {
            // After the header, which ends with the checksum.
            if let Some(at) = (32..size).find(|&at| cpu[at] != gpu[at]) {
                panic!(
                    "{what}: byte {at} of the state of environment {env} is {}, expected {}",
                    gpu[at], cpu[at]
                );
            }
            assert!(cpu == gpu, "{what}: header of the state of environment {env}");
        }
    }

    fn run(&mut self, steps: usize, what: &str) {
        let seeds = (0..self.envs as i64).map(|env| 5 * env + 3).collect();
        self.reset(Some(seeds), None, &format!("{what}, reset"));
        self.compare_states(&format!("{what}, after the reset"));
        for step in 0..steps {
            self.step(&format!("{what}, step {step}"));
            if step % 40 == 39 {
                self.compare_states(&format!("{what}, after step {step}"));
            }
        }
    }
}

#[test]
fn the_structs_of_a_launch_agree() {
    let [first, second] = CART_AT;
    let sizes = [
        size_of::<Plan>(),
        size_of::<Call>(),
        size_of::<Head>(),
        std::mem::offset_of!(Board, ram),
        first,
        second,
        SHARED_BYTES as usize,
    ];
    for (which, size) in sizes.into_iter().enumerate() {
        // SAFETY: the function has this type (`kernels/host.cpp`).
        let found = unsafe {
            let size: libloading::Symbol<'_, unsafe extern "C" fn(u32) -> u32> =
                library().get(b"parl_size").unwrap();
            size(which as u32)
        };
        assert_eq!(found as usize, size, "number {which}");
    }
}

#[test]
fn a_game_with_sticky_actions() {
    let Some(mut pair) = Pair::new(&["breakout"], 5, &Settings::default()) else { return };
    pair.run(240, "breakout");
    assert!(pair.ended > 0, "no episode ended");
}

/// Sets which waiting lanes `__activemask` returns: all (0), or a subset drawn from the seed `split`. Returns
/// the number of turns of groups since the last call, and the sum of the lanes in them.
fn lanes(split: u64) -> (u64, u64) {
    let mut counts = [0u64; 2];
    // SAFETY: the function has this type (`kernels/host.cpp`) and writes two numbers.
    unsafe {
        let lanes: libloading::Symbol<'_, unsafe extern "C" fn(u64, *mut u64)> =
            library().get(b"parl_lanes").unwrap();
        lanes(split, counts.as_mut_ptr());
    }
    (counts[0], counts[1])
}

#[test]
fn every_form_gives_the_same_numbers() {
    let Some(mut pair) = Pair::new(&["seaquest", "pong", "pitfall2"], 9, &Settings::default()) else {
        return;
    };
    pair.run(3, "before the forms");
    for (number, choice) in Choice::all().into_iter().enumerate() {
        let others = Choice { form: Form::Plain, window: 0 };
        pair.gpu.choose(&[choice, others, choice], 0).unwrap();
        for step in 0..4 {
            pair.step(&format!("{choice:?}, step {step}"));
        }
        pair.compare_states(&format!("after {choice:?}"));
        // The last choice is the plain one: no lane waits for another.
        let (turns, _) = lanes(0);
        assert_eq!(turns > 0, choice.form != Form::Plain, "{turns} turns of form {number}");
    }
    let error = pair.gpu.choose(&[Choice::default()], 0).unwrap_err();
    assert!(error.to_string().contains("choices, one per game"), "{error}");
}

/// On a device `__activemask` may return any subset of the waiting lanes.
#[test]
fn it_does_not_matter_who_meets() {
    let Some(mut pair) = Pair::new(&["breakout"], 7, &Settings::default()) else { return };
    pair.run(2, "before the lanes are split");
    for split in [0x5EED, 0xBEEF] {
        lanes(split);
        for step in 0..6 {
            pair.step(&format!("lanes split by {split:#x}, step {step}"));
        }
    }
    lanes(0);
    pair.compare_states("after the lanes were split");
}

/// Lanes at the same instruction run together, in windows of 16 rows more than three per turn.
/// `PARL_GPU_STEPS` measures every window, after that many steps.
#[test]
fn lanes_of_a_warp_share_their_instructions() {
    let long = steps(0) > 0;
    let windows = if long { &WINDOWS[..] } else { &WINDOWS[2..3] };
    let games = ["pong", "breakout", "ms_pacman", "solaris"];
    for game in &games[..if long { 4 } else { 1 }] {
        let Some(mut pair) = Pair::new(&[game], 32, &Settings::default()) else { return };
        pair.run(steps(4), game);
        for &window in windows {
            pair.gpu.choose(&[Choice { form: Form::Grouped, window }], 0).unwrap();
            lanes(0);
            pair.step(&format!("{game}, window {window}"));
            let (turns, turning) = lanes(0);
            let shared = turning as f64 / turns as f64;
            println!("{game}, windows of {} rows: {shared:.1} lanes in a turn", 1 << window);
            // With the whole picture as window, games such as Solaris share less.
            let least = if window == Choice::default().window { 3.0 } else { 1.0 };
            assert!(shared > least, "{game}, window {window}: {shared} lanes in a turn");
        }
    }
}

/// Measures two choices, and parses the fastest one from the text that is saved.
#[test]
fn a_calibration_measures_what_there_is() {
    let Some(mut pair) = Pair::new(&["pong"], 2, &Settings::default()) else { return };
    let choices = [Choice::default(), Choice { form: Form::Plain, window: 0 }];
    let effort = Effort { warmup_steps: 1, steps: 2, rounds: 2 };
    let found = pair.gpu.measure(&choices, effort, 0).unwrap();
    assert_eq!(found.iter().map(|(choice, _)| *choice).collect::<Vec<_>>(), choices);
    assert!(found.iter().all(|(_, seconds)| *seconds > 0.0 && *seconds < 60.0), "{found:?}");
    let steps = pair.launched.borrow().iter().filter(|kernel| *kernel == "parl_step").count();
    assert_eq!(steps, 1 + 2 * 2 * 2);
    let chosen = calibrate::fastest(&found).unwrap();
    assert_eq!(calibrate::from_text(&calibrate::to_text(&found)), Some(chosen));
    assert!(pair.gpu.measure(&[], effort, 0).is_err());
    // After a measurement the environments can be reset and stepped as usual.
    pair.gpu.choose(&[chosen], 0).unwrap();
    pair.reset(Some(vec![5, 6]), None, "the reset after the calibration");
    pair.step("after the calibration");
}

/// Environments whose episodes end in a measurement go on, also where only the caller resets them.
#[test]
fn a_calibration_goes_on_without_autoreset() {
    let mut given = Settings { autoreset: Autoreset::Disabled, ..Settings::default() };
    given.rules.frame_limit = 20;
    let Some(mut pair) = Pair::new(&["pong"], 2, &given) else { return };
    let effort = Effort { warmup_steps: 12, steps: 1, rounds: 1 };
    pair.gpu.measure(&[Choice::default()], effort, 0).unwrap();
    pair.reset(Some(vec![5, 6]), None, "the reset after the calibration");
    pair.step("after the calibration");
}

#[test]
fn games_mixed_within_a_batch() {
    let games = ["pong", "seaquest", "pitfall2", "freeway", "asteroids"];
    let given = Settings { autoreset: Autoreset::SameStep, ..Settings::default() };
    let Some(mut pair) = Pair::new(&games, 7, &given) else { return };
    pair.run(120, "mixed");
}

/// Small batches have fewer than 32 environments in a warp. They run in steps, in resets that are requested, and
/// in those of the queue.
#[test]
fn environments_of_several_variations() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    let vary = |mode, difficulty, repeat_probability, frame_skip, ram: &[(u8, u8)]| Variation {
        mode: Some(mode),
        difficulty: Some(difficulty),
        repeat_probability,
        frame_skip,
        ram: ram.to_vec(),
        hold: vec![],
    };
    let variations = vec![
        vary(0, 0, 0.25, (4, 4), &[]),
        vary(4, 1, 0.0, (2, 5), &[]),
        vary(24, 0, 0.9, (1, 1), &[(57, 2)]),
        vary(0, 0, 0.25, (4, 4), &[]),
    ];
    let mut games = loaded(&["breakout"; 4]);
    games[3].0 = rom::patched(&games[3].0, &[(None, 0xF07D, 0x10)]).unwrap();
    for boot in [Boot::Exact, Boot::Snapshot] {
        // On a device RAM is changed with boot states only.
        let mut variations = variations.clone();
        if boot == Boot::Exact {
            variations[2].ram.clear();
        }
        let settings = Settings { boot, variations, autoreset: Autoreset::SameStep, ..Settings::default() };
        let assignment = [0, 1, 2, 1, 1];
        let config = BatchConfig {
            games: &games,
            assignment: &assignment,
            threads: 2,
            affinity: None,
            batch_size: 5,
            ordered: true,
            wants_ram: true,
            entropy: 77,
        };
        let mut pair = Pair::with_config(2, &config, &settings);
        pair.run(steps(25), "variations");
        for assignment in [[1, 2, 2, 0, 3], [3, 2, 1, 0, 2]] {
            pair.cpu.assign(&assignment).unwrap();
            pair.gpu.assign(&assignment, 0).unwrap();
            pair.reset(None, None, "other variations");
            pair.run(steps(10), "other variations");
        }
        // Of environments with other settings, states are refused.
        let mut row = vec![0; pair.cpu.state_bytes(&[0])];
        pair.cpu.save(&[0], &mut row).unwrap();
        for (env, message) in [(1, "mode 0 and difficulty 0"), (3, "other changes")] {
            let error = pair.cpu.load(&[env], &row).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert_eq!(error, pair.gpu.load(&[env], &row, 0).unwrap_err().to_string());
        }
    }
}

#[test]
fn changes_of_ram_that_a_device_cannot_make_are_refused() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    let games = loaded(&["breakout"]);
    let config = BatchConfig {
        games: &games,
        assignment: &[0],
        threads: 1,
        affinity: None,
        batch_size: 1,
        ordered: true,
        wants_ram: true,
        entropy: 77,
    };
    for (boot, hold, name) in [(Boot::Snapshot, true, "hold"), (Boot::Exact, false, "ram")] {
        let one = Variation {
            mode: None,
            difficulty: None,
            repeat_probability: 0.0,
            frame_skip: (4, 4),
            ram: vec![(57, 5)],
            hold: if hold { vec![(57, 5)] } else { vec![] },
        };
        let settings = Settings { boot, variations: vec![one], ..Settings::default() };
        let host = Host { warps: 1, lanes: 1, launched: Rc::default() };
        let error = CudaBatch::new(host, &config, settings).err().unwrap().to_string();
        assert!(error.starts_with(name) && error.contains("device=\"cpu\""), "{error}");
    }
}

#[test]
fn any_number_of_environments_in_a_warp() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    let games = loaded(&["pong", "breakout"]);
    for lanes in [1, 2, 3, 8] {
        let rules = StepRules { frame_limit: 27, ..Settings::default().rules };
        for boot in [Boot::Snapshot, Boot::Exact] {
            let given = Settings { boot, rules, ..Settings::default() };
            let mut pair = Pair::with_lanes(lanes, &games, 13, &given);
            pair.run(16, &format!("{lanes} environments of a warp, {boot:?}"));
            assert!(pair.ended > 13, "{} episodes ended", pair.ended);
        }
    }
}

/// Number of steps of a test: `few`, or the value of `PARL_GPU_STEPS`.
fn steps(few: usize) -> usize {
    std::env::var("PARL_GPU_STEPS").map_or(few, |steps| steps.parse().unwrap())
}

fn vary(name: &str, games: &[&str], change: impl FnOnce(&mut Settings)) {
    vary_at(0, name, games, change);
}

/// As `vary`, with the device's observations `obs_at` bytes after an aligned address.
fn vary_at(obs_at: usize, name: &str, games: &[&str], change: impl FnOnce(&mut Settings)) {
    let mut given = Settings::default();
    change(&mut given);
    let Some(mut pair) = Pair::new(games, 3, &given) else { return };
    pair.gpu_results.obs.resize(pair.gpu_results.obs.len() + obs_at, 0);
    pair.obs_at = obs_at;
    pair.run(steps(24), name);
    // The caller resets two of three, one with a seed and one without.
    pair.reset(Some(vec![-1, 9, -1]), Some(vec![true, true, false]), &format!("{name}, reset of two"));
    pair.step(&format!("{name}, after the reset of two"));
}

#[test]
fn pictures_of_every_kind() {
    vary("rgb", &["seaquest"], |s| {
        (s.obs_type, s.size) = (ObsType::Rgb, Some((64, 70)));
    });
    vary("rgb, channels first, growing", &["pong"], |s| {
        (s.obs_type, s.channel_order, s.size, s.stack) =
            (ObsType::Rgb, ChannelOrder::First, Some((220, 100)), 2);
    });
    vary("blocks", &["pong"], |s| (s.size, s.stack) = (Some((105, 80)), 1));
    vary("native", &["pong"], |s| (s.size, s.maxpool) = (None, false));
    vary("indices", &["seaquest"], |s| (s.obs_type, s.size) = (ObsType::Index, None));
    vary("ram", &["seaquest"], |s| (s.obs_type, s.size, s.stack) = (ObsType::Ram, None, 3));
    vary("84 x 84 in colors", &["pong"], |s| s.obs_type = ObsType::Rgb);
    vary("no number of words", &["breakout"], |s| (s.size, s.stack) = (Some((85, 83)), 3));
    vary_at(1, "no place of words", &["breakout"], |s| s.padding = Padding::First);
}

#[test]
fn ends_of_every_kind() {
    vary("short episodes, the last frame shown", &["breakout"], |s| {
        (s.rules.frame_limit, s.show_last_frame, s.autoreset) = (30, true, Autoreset::SameStep);
    });
    vary("short episodes, the last frame not shown", &["seaquest"], |s| {
        (s.rules.frame_limit, s.both_ends) = (27, true);
    });
    vary("lost lives end", &["ms_pacman"], |s| {
        (s.rules.life, s.autoreset, s.padding) = (rules::LIFE_ENDS, Autoreset::SameStep, Padding::First);
    });
    vary("lost lives end and the game goes on", &["breakout"], |s| {
        (s.rules.life, s.life_continues, s.noops) = (rules::LIFE_ENDS_LATE, true, Noops::Numpy);
        (s.rules.frame_limit, s.autoreset) = (50, Autoreset::SameStep);
    });
    vary("steps are counted, frames vary", &["pong"], |s| {
        (s.rules.step_limit, s.frame_skip, s.noops) = (7, (2, 5), Noops::BeforeFire);
        s.rules.clip = rules::CLIP_NONE;
    });
    vary("one frame a step", &["pong"], |s| (s.frame_skip, s.console_frame_limit) = ((1, 1), 500));
}

#[test]
fn boots_of_every_kind() {
    vary("exact boots", &["breakout"], |s| {
        (s.boot, s.rules.frame_limit, s.autoreset) = (Boot::Exact, 40, Autoreset::SameStep);
    });
    // Mode selections: a menu, presses of random length, cubes turned with the stick, presses after twenty
    // frames.
    for (game, mode) in
        [("double_dunk", Some(2)), ("adventure", Some(1)), ("video_cube", Some(201)), ("berzerk", None)]
    {
        vary(game, &[game], |s| {
            (s.mode, s.noop_max, s.rules.frame_limit, s.boot) = (mode, 4, 60, Boot::Exact)
        });
    }
}

/// The console's frame limit ends an episode during the idle frames of its reset. The observation must show
/// the last of these frames, not older pictures of the board.
#[test]
fn a_limit_within_the_idle_frames() {
    vary("a limit of 7 frames", &["breakout"], |settings| {
        settings.console_frame_limit = 7;
        settings.noops = Noops::BeforeFire;
    });
}

/// Runs every game that has a ROM. Every second game uses `Autoreset::SameStep`, and the games use all choices
/// in turn. Short runs have short episodes. `PARL_GPU_STEPS=2000 PARL_GPU_GAMES=0/4` runs a quarter of the
/// games for 2000 steps, in whole episodes.
#[test]
fn every_game() {
    let part = std::env::var("PARL_GPU_GAMES").unwrap_or("0/1".into());
    let (first, parts) = part.split_once('/').unwrap();
    let (first, parts): (usize, usize) = (first.parse().unwrap(), parts.parse().unwrap());
    let (mut found, choices) = (0, Choice::all());
    for name in GAMES.iter().map(|row| row.name).filter(|name| rom::load(name, &[], false).is_ok()) {
        found += 1;
        if found % parts != first {
            continue;
        }
        let choice = choices[found % choices.len()];
        let mut given = Settings::default();
        given.rules.frame_limit = if steps(8) > 100 { 108_000 } else { 27 };
        given.autoreset = if found % 2 == 0 { Autoreset::NextStep } else { Autoreset::SameStep };
        let mut pair = Pair::new(&[name], 3, &given).unwrap();
        pair.gpu.choose(&[choice], 0).unwrap();
        pair.run(steps(8), name);
        if steps(8) > 100 {
            println!("{name}: {} steps of 3 environments, {} ends, {choice:?}", steps(8), pair.ended);
        }
    }
    assert!(found > 0 || rom::folders(&[]).is_empty(), "no game has a ROM in {:?}", rom::folders(&[]));
    eprintln!("{found} games, {} steps each", steps(8));
}

/// Games with frames that do not reach the last row, so that older pictures stay visible.
#[test]
fn frames_that_are_not_whole() {
    for game in ["elevator_action", "air_raid", "klax", "pitfall2"] {
        vary(game, &[game], |s| s.rules.frame_limit = 61);
    }
}

/// A program of 4 KiB that begins at $F000.
fn program(text: &[u8]) -> rom::Rom {
    let mut bytes = vec![0xEA; 4096];
    bytes[..text.len()].copy_from_slice(text);
    bytes[0xFFC..].copy_from_slice(&[0x00, 0xF0, 0x00, 0xF0]);
    rom::from_bytes(bytes).unwrap()
}

/// A program that draws lines in different colors in each frame, then runs about 512 * `count` instructions
/// without writes to the TIA and ends the frame. A frame with more than 25,000 instructions is left open.
fn painter(count: u8) -> rom::Rom {
    program(&[
        0xA2, 0xFF, 0x9A, // LDX #255, TXS
        0xA0, 0x60, 0xE6, 0x82, 0xA6, 0x82, // LDY #96, INC $82, LDX $82
        0x85, 0x02, 0x86, 0x09, 0xE8, 0x86, 0x0E, 0x86, 0x1B, 0x88, 0xD0,
        0xF4, // WSYNC, COLUBK, PF1, GRP0; DEY, BNE
        0xA9, 0x00, 0x85, 0x81, // LDA #0, STA $81
        0xE6, 0x80, 0xD0, 0xFC, 0xE6, 0x81, 0xA5, 0x81, 0xC9, count, 0xD0,
        0xF4, // INC $80, BNE; INC $81, CMP, BNE
        0xA9, 0x02, 0x85, 0x00, 0x85, 0x02, 0x85, 0x02, 0x85, 0x02, 0xA9, 0x00, 0x85, 0x00, // VSYNC
        0x4C, 0x03, 0xF0,
    ])
}

/// A program that draws lines as [`painter`] does, then waits for the timer, `count` times 1,024 cycles.
fn waiter(count: u8) -> rom::Rom {
    program(&[
        0xA2, 0xFF, 0x9A, // LDX #255, TXS
        0xA0, 0x60, 0xE6, 0x82, 0xA6, 0x82, // LDY #96, INC $82, LDX $82
        0x85, 0x02, 0x86, 0x09, 0xE8, 0x86, 0x0E, 0x88, 0xD0, 0xF6, // WSYNC, COLUBK, PF1; DEY, BNE
        0xA9, count, 0x8D, 0x97, 0x02, // LDA #count, STA T1024T
        0xAD, 0x84, 0x02, 0xD0, 0xFB, // LDA INTIM, BNE
        0x86, 0x09, 0xA9, 0x02, 0x85, 0x00, 0x85, 0x02, 0xA9, 0x00, 0x85, 0x00, // COLUBK; VSYNC
        0x4C, 0x03, 0xF0,
    ])
}

/// A program in a cartridge of 8 KiB whose bank is selected by a store to $3F, an address of the TIA too. Each line
/// has the color that the bank says.
fn switcher() -> rom::Rom {
    let mut bytes = vec![0xEA; 8192];
    for bank in 0..4 {
        bytes[2048 * bank] = 0x1E + 0x20 * bank as u8;
    }
    // Two such stores are the signature of these cartridges.
    bytes[100..102].copy_from_slice(&[0x85, 0x3F]);
    let text = [
        0xA2, 0xFF, 0x9A, // LDX #255, TXS
        0xA0, 0x60, 0xE6, 0x82, // LDY #96, INC $82
        0xA5, 0x82, 0x29, 0x03, 0x85, 0x3F, // LDA $82, AND #3, STA $3F
        0xAD, 0x00, 0xF0, 0x85, 0x02, 0x85, 0x09, // LDA $F000; WSYNC, COLUBK
        0xE6, 0x82, 0x88, 0xD0, 0xEE, // INC $82, DEY, BNE
        0xA9, 0x02, 0x85, 0x00, 0x85, 0x02, 0x85, 0x02, 0x85, 0x02, 0xA9, 0x00, 0x85, 0x00, // VSYNC
        0x4C, 0x03, 0xF8,
    ];
    bytes[6144..6144 + text.len()].copy_from_slice(&text);
    bytes[8188..].copy_from_slice(&[0x00, 0xF8, 0x00, 0xF8]);
    rom::from_bytes(bytes).unwrap()
}

/// Stores to the TIA reach cartridges that respond to the same address.
#[test]
fn banks_that_stores_to_the_tia_select() {
    let given = Settings { noop_max: 0, ..Settings::default() };
    let rom = switcher();
    assert_eq!(rom.scheme, rom::Scheme::T3F);
    let mut pair = Pair::of(&[(rom, UNKNOWN)], 2, &given);
    pair.run(8, "banks selected by stores to $3F");
    // Two banks in the pictures, at least.
    let shown: std::collections::HashSet<u8> = pair.cpu_results.obs.iter().copied().collect();
    assert!(shown.len() > 2, "{shown:?}");
}

/// Iterations that wait for the timer are skipped, and count as instructions of the frame.
#[test]
fn waits_for_the_timer() {
    // 4: a wait that ends within the picture; 90: more than 25,000 instructions, so that the frame is left open.
    for count in [4, 90] {
        let given = Settings { noop_max: 0, ..Settings::default() };
        let mut pair = Pair::of(&[(waiter(count), UNKNOWN)], 2, &given);
        pair.run(8, &format!("waiter {count}"));
    }
}

/// Maze Craze draws its maze in open frames; they begin in the middle of the picture. The program with more kinds
/// of open frames needs no ROMs.
#[test]
fn frames_that_are_left_open() {
    vary("maze_craze", &["maze_craze"], |_| ());
    let row = UNKNOWN;
    // 2: short frames; 60: open frames.
    for count in [2, 60] {
        for (frame_limit, show_last_frame, life_continues) in
            [(27, true, false), (27, false, true), (28, false, false), (28, false, true)]
        {
            let given = Settings { show_last_frame, life_continues, noop_max: 0, ..Settings::default() };
            let rules = StepRules { frame_limit, ..given.rules };
            let mut pair = Pair::of(&[(painter(count), row)], 2, &Settings { rules, ..given });
            pair.run(8, &format!("painter {count}, {frame_limit}, {show_last_frame}, {life_continues}"));
        }
    }
}

/// A reset from the boot state runs within the step's launch; only whole boots have a separate launch.
#[test]
fn a_step_is_one_launch() {
    for (boot, autoreset, expected) in [
        (Boot::Snapshot, Autoreset::NextStep, &["parl_step"][..]),
        (Boot::Snapshot, Autoreset::SameStep, &["parl_step"]),
        (Boot::Exact, Autoreset::NextStep, &["parl_step", "parl_reset"]),
    ] {
        let rules = StepRules { frame_limit: 15, ..Settings::default().rules };
        let given = Settings { boot, autoreset, rules, ..Settings::default() };
        let Some(mut pair) = Pair::new(&["breakout"], 2, &given) else { return };
        pair.run(3, "before the launches are counted");
        for step in 0..12 {
            pair.launched.borrow_mut().clear();
            pair.step(&format!("step {step}, {boot:?}, {autoreset:?}"));
            assert_eq!(*pair.launched.borrow(), expected);
        }
        assert!(pair.ended > 4, "{} episodes ended", pair.ended);
    }
}

/// Without its observation and the generator of sticky actions, an environment takes less than a kilobyte.
/// Pictures belong to the resident warps.
#[test]
fn an_environment_has_less_than_a_kilobyte() {
    let bytes = |envs: usize| {
        let pair = Pair::new(&["breakout"], envs, &Settings::default())?;
        let shown = envs * (pair.gpu.obs_bytes() + 2500);
        Some(pair.gpu.device_bytes() - shown)
    };
    // Both batches have the same number of lanes that draw. One environment in fifteen keeps three pictures.
    let (Some(few), Some(many)) = (bytes(1120), bytes(1600)) else { return };
    // 32 places, and one word for their bits.
    let kept = 480 / 15 * 3 * 210 * 160 + 4;
    // Head 984 bytes, `StepOutput` 8; place of its pictures, entry of the queue, game and order 4 each.
    assert_eq!(many - few, 480 * 1008 + kept);
}

/// A loaded state with kept pictures gets a place for them in its new environment.
#[test]
fn kept_pictures_move_with_their_states() {
    let given = Settings { noop_max: 0, ..Settings::default() };
    let mut pair = Pair::of(&[(painter(2), UNKNOWN)], 2, &given);
    pair.run(4, "painter");
    let (kept, size) = pair.gpu.save(&[0, 1], 0).unwrap();
    let shown = pair.gpu.obs_bytes();
    assert!(size > size_of::<Head>() + shown + 2 * 210 * 160, "{size} bytes hold no pictures");
    for step in 0..3 {
        pair.step(&format!("step {step} on the way"));
    }
    pair.cpu.load(&[0, 1], &kept).unwrap();
    pair.gpu.load(&[0, 1], &kept, 0).unwrap();
    pair.compare_states("after the pictures moved");
    for step in 0..4 {
        pair.step(&format!("step {step} after the pictures moved"));
    }
    // A reset by the caller frees the place, and the next state takes it again.
    pair.reset(Some(vec![4, 5]), None, "reset");
    pair.cpu.load(&[1, 0], &kept).unwrap();
    pair.gpu.load(&[1, 0], &kept, 0).unwrap();
    pair.step("after the second load");
}

#[test]
fn states_move_both_ways() {
    let Some(mut pair) = Pair::new(&["seaquest", "breakout"], 4, &Settings::default()) else { return };
    pair.run(20, "before the states move");
    let envs: Vec<usize> = (0..4).collect();
    let (rows, _) = pair.gpu.save(&envs, 0).unwrap();
    for step in 0..10 {
        pair.step(&format!("step {step} on the way"));
    }
    // From the device to the CPU, and from the CPU back to the device.
    pair.cpu.load(&envs, &rows).unwrap();
    let mut again = vec![0; rows.len()];
    pair.cpu.save(&envs, &mut again).unwrap();
    pair.gpu.load(&envs, &again, 0).unwrap();
    pair.compare_states("after the states moved");
    for step in 0..10 {
        pair.step(&format!("step {step} after the states moved"));
    }
    // One state for several environments of its game.
    let size = rows.len() / 4;
    let copies = [&rows[..size], &rows[..size]].concat();
    pair.gpu.load(&[0, 2], &copies, 0).unwrap();
    pair.cpu.load(&[0, 2], &copies).unwrap();
    for step in 0..5 {
        pair.step(&format!("step {step} of a copied state"));
    }
    let mut damaged = rows.clone();
    damaged[100] ^= 1;
    let error = pair.gpu.load(&envs, &damaged, 0).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn faults_are_named_at_the_next_look() {
    let given = Settings { autoreset: Autoreset::Disabled, ..Settings::default() };
    let Some(mut pair) = Pair::new(&["pong"], 3, &given) else { return };
    let targets = pair.targets();
    let actions = [0i32, 6, 0];
    pair.gpu.step(Actions::Narrow(actions.as_ptr() as u64), &targets, 0).unwrap();
    let error = pair.gpu.check_faults(0).unwrap_err().to_string();
    assert!(error.contains("environment 2 has not been reset"), "{error}");
    pair.reset(None, None, "reset");
    pair.gpu.step(Actions::Narrow(actions.as_ptr() as u64), &targets, 0).unwrap();
    let error = pair.gpu.save(&[0], 0).unwrap_err().to_string();
    assert_eq!(error, "an action of environment 1 was outside 0..6; it did nothing");
    pair.gpu.check_faults(0).unwrap();
}
