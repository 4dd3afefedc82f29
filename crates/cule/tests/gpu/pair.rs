//! A CPU batch and a GPU batch side by side, with the host as the device of the second.

use std::cell::{RefCell, UnsafeCell};
use std::rc::Rc;
use std::sync::OnceLock;

use cule::batch::cuda::{Actions, Call, CudaBatch, Device, Plan, Shape, Targets};
use cule::batch::{BatchConfig, CpuBatch, Outputs, Report, Settings};
use cule::env::full_strength;
use cule::env::state::{FLAGS, NUMBERS};
use cule::{CuleError, console, rom};
use libloading::Library;

use crate::{compiled, roms};

/// The kernels as a library of the host, loaded once for all tests.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let file = compiled::kernels();
        // SAFETY: the library was compiled above and runs no code when it is loaded.
        unsafe { Library::new(file) }.unwrap()
    })
}

pub type Launch = unsafe extern "C" fn(*const std::ffi::c_char, u32, u32, *const Plan, *const Call) -> i32;

/// The host as a device: its memory is that of the process. `warps` is the number of resident warps, `lanes` the
/// number of environments of a warp.
pub struct Host {
    pub warps: u32,
    pub lanes: u32,
    pub launched: Rc<RefCell<Vec<String>>>,
}

/// Memory that kernels write to through its address.
pub struct Bytes(UnsafeCell<Vec<u64>>, usize);

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
pub struct Results {
    pub obs: Vec<u8>,
    pub final_obs: Vec<u8>,
    pub ram: Vec<u8>,
}

impl Results {
    pub fn new(envs: usize, obs_bytes: usize) -> Self {
        Self {
            obs: vec![1; envs * obs_bytes],
            final_obs: vec![0; envs * obs_bytes],
            ram: vec![2; envs * 128],
        }
    }
}

/// A CPU batch and a GPU batch with the same games and settings.
pub struct Pair {
    pub cpu: CpuBatch,
    pub gpu: CudaBatch<Host>,
    pub envs: usize,
    pub cpu_results: Results,
    pub gpu_results: Results,
    /// Offset of the device's observations in its buffer.
    pub obs_at: usize,
    pub reports: Vec<Report>,
    pub numbers: Vec<i32>,
    pub flags: Vec<u8>,
    pub draws: u64,
    pub ended: usize,
    pub launched: Rc<RefCell<Vec<String>>>,
}

/// ROMs of games, and their rows in the table.
pub fn loaded(names: &[&str]) -> Vec<(rom::Rom, usize)> {
    let one = |name: &&str| (rom::load(name, &[], false).unwrap(), console::game_row(name).unwrap());
    names.iter().map(one).collect()
}

impl Pair {
    /// Environment i plays game i modulo the number of games. Returns `None` if there are no ROMs.
    pub fn new(names: &[&str], envs: usize, settings: &Settings) -> Option<Self> {
        if !roms::are_there(&rom::folders(&[])) {
            return None;
        }
        Some(Self::of(&loaded(names), envs, settings))
    }

    pub fn of(games: &[(rom::Rom, usize)], envs: usize, settings: &Settings) -> Self {
        Self::with_lanes(32, games, envs, settings)
    }

    pub fn with_lanes(lanes: u32, games: &[(rom::Rom, usize)], envs: usize, settings: &Settings) -> Self {
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

    pub fn with_config(lanes: u32, config: &BatchConfig<'_>, settings: &Settings) -> Self {
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

    pub fn targets(&mut self) -> Targets {
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

    pub fn reset(&mut self, seeds: Option<Vec<i64>>, mask: Option<Vec<bool>>, what: &str) {
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

    pub fn step(&mut self, what: &str) {
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

    pub fn compare_states(&mut self, what: &str) {
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

    pub fn run(&mut self, steps: usize, what: &str) {
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

/// Number of steps of a test: `few`, or the value of `PARL_GPU_STEPS`.
pub fn steps(few: usize) -> usize {
    std::env::var("PARL_GPU_STEPS").map_or(few, |steps| steps.parse().unwrap())
}

pub fn vary(name: &str, games: &[&str], change: impl FnOnce(&mut Settings)) {
    vary_at(0, name, games, change);
}

/// As `vary`, with the device's observations `obs_at` bytes after an aligned address.
pub fn vary_at(obs_at: usize, name: &str, games: &[&str], change: impl FnOnce(&mut Settings)) {
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
