//! Runs the GPU kernels without a GPU, from the PTX that the compiler generates for them: results must equal those of the CPU,
//! and the instructions that a warp executes are counted.
//!
//! `gpu_model [--games a,b] [--envs 32] [--lanes 32] [--warm 60] [--steps 1] [--windows 4] [--forms grouped] [--functions]
//! [--memory] [--lines COUNT] [--architecture 90] [--obs-type gray]`. For each game the CPU batch makes `--warm` steps with
//! random actions, then its states are loaded into the batch whose kernels run as PTX, and both make `--steps` steps, after which
//! observations, figures and states are compared. The output has one line per game, form and window, `key=value`: warp
//! instructions per step by kind, those that draw, lines of PTX that run more than 20 times a step, turns of the grouped form,
//! mean number of lanes that share an instruction. With several blocks a line before it has their least, median and most
//! instructions. `--functions` adds each function: its instructions, accesses to local memory, lanes, lines of PTX that ran, and
//! those that ran more than 20 times a step. `--memory` adds the sectors of global memory that the warps request, what a warp's
//! share of an H200's first-level cache would miss of them, and how many lines of code caches of several sizes would miss, if a
//! line of PTX were an instruction of 16 bytes. `--lines` adds the lines of PTX that run most often, and with `--memory` those
//! that request most sectors. NVRTC is found as in parl; `PARL_NVRTC` names its file. In the folder that `PARL_KEEP_PTX` names
//! the PTX is kept. ROMs come from `ALE_ROMS_DIR` or the folder of an installed ale-py.

#![allow(unsafe_code, reason = "kernels write through addresses")]

mod simt;

use std::cell::{RefCell, UnsafeCell};
use std::collections::HashMap;
use std::mem::offset_of;
use std::process::ExitCode;
use std::rc::Rc;

use cuda::nvrtc::Nvrtc;
use cule::batch::cuda::{Actions, Call, Choice, CudaBatch, Device, KERNELS, Plan, SOURCES, Shape, Targets};
use cule::batch::{BatchConfig, CpuBatch, ObsType, Outputs, Report, Settings};
use cule::env::full_strength;
use cule::env::state::{FLAGS, NUMBERS};
use cule::machine::Board;
use cule::{CuleError, console, rom};
use simt::{Counts, Memory, Module, Region};

/// Sizes of caches of instructions.
const CODE_CACHES: [usize; 5] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// An instruction is hot if a warp executes it more often than this in a step.
const HOT: u64 = 20;
/// A warp's share of the first-level cache of an H200: 256 KiB, of which 196 are the shared memory of eight warps.
const CACHE_BYTES: usize = (60 << 10) / 8;

/// A GPU whose instructions run on the host.
struct Simulated {
    modules: Rc<HashMap<String, Module>>,
    lanes: u32,
    warps: u32,
    /// What `parl_step` has run.
    counts: Rc<RefCell<Counts>>,
}

/// Memory that kernels write to through its address.
struct Bytes(UnsafeCell<Vec<u64>>);

impl Bytes {
    /// The address of the first byte.
    fn address(&self) -> *mut u8 {
        // SAFETY: the reference ends in this function.
        unsafe { (*self.0.get()).as_mut_ptr().cast() }
    }
}

impl Device for Simulated {
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
        Ok(Bytes(UnsafeCell::new(vec![0; bytes.div_ceil(8)])))
    }

    fn address(&self, memory: &Bytes) -> u64 {
        memory.address() as u64
    }

    fn write(&self, memory: &mut Bytes, bytes: &[u8], _: u64) -> Result<(), CuleError> {
        bytemuck::cast_slice_mut(memory.0.get_mut())[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, memory: &Bytes, bytes: &mut [u8], _: u64) -> Result<(), CuleError> {
        // SAFETY: no kernel runs, and there is no other reference to the words.
        let words: &[u64] = unsafe { &*memory.0.get() };
        bytes.copy_from_slice(&bytemuck::cast_slice(words)[..bytes.len()]);
        Ok(())
    }

    fn launch(&self, kernel: &str, shape: Shape, plan: &Plan, call: &Call, _: u64) -> Result<(), CuleError> {
        let file = KERNELS.iter().find(|(name, _)| *name == kernel).map_or("", |(_, file)| file);
        let module = &self.modules[file];
        let mut parameters = bytemuck::bytes_of(plan).to_vec();
        parameters.resize(parameters.len().next_multiple_of(8), 0);
        parameters.extend_from_slice(bytemuck::bytes_of(call));
        let mut other = Counts::new(module);
        let mut counts = self.counts.borrow_mut();
        if let Some(memory) = &mut counts.memory {
            memory.set_regions(regions(plan, self.lanes));
        }
        let counts = if kernel == "parl_step" { &mut *counts } else { &mut other };
        simt::launch(module, kernel, (shape.blocks, shape.threads), &parameters, counts)
            .map_err(|reason| ::cuda::CudaError::Failed { reason }.into())
    }
}

/// What the buffers of a step hold.
fn regions(plan: &Plan, lanes: u32) -> Vec<Region> {
    let (scratch, stride) = plan.scratch();
    let (rows, rest) = (offset_of!(Board, rows) as u64, offset_of!(Board, line) as u64);
    let to = scratch + u64::from(lanes * stride);
    let parts = [("pictures", 0..rows), ("rows", rows..rest), ("scratch", rest..u64::from(stride))];
    let mut all: Vec<Region> = parts
        .into_iter()
        .map(|(name, part)| Region { name, from: scratch, to, stride: u64::from(stride), part })
        .collect();
    let (planes, bytes) = plan.planes();
    all.push(Region {
        name: "planes",
        from: planes,
        to: planes + bytes,
        stride: u64::MAX,
        part: 0..u64::MAX,
    });
    all
}

/// The same environments on the CPU and as simulated kernels.
struct Pair {
    cpu: CpuBatch,
    gpu: CudaBatch<Simulated>,
    counts: Rc<RefCell<Counts>>,
    envs: usize,
    obs: [Vec<u8>; 2],
    reports: Vec<Report>,
    numbers: Vec<i32>,
    flags: Vec<u8>,
    draws: u64,
}

impl Pair {
    fn new(modules: &Rc<HashMap<String, Module>>, game: &str, options: &Options) -> Result<Self, String> {
        let text = |error: CuleError| error.to_string();
        let row = console::game_row(game).map_err(text)?;
        let games = [(rom::load(game, &[], false).map_err(text)?, row)];
        let config = BatchConfig {
            games: &games,
            assignment: &vec![0; options.envs],
            threads: 1,
            affinity: None,
            batch_size: options.envs,
            ordered: true,
            wants_ram: false,
            entropy: 77,
        };
        let counts = Rc::new(RefCell::new(Counts::new(&modules["step.cu"])));
        let warps = options.envs.div_ceil(options.lanes as usize) as u32;
        let device =
            Simulated { modules: modules.clone(), lanes: options.lanes, warps, counts: counts.clone() };
        let settings = || Settings { obs_type: options.obs_type, ..Settings::default() };
        let cpu = CpuBatch::new(&config, settings()).map_err(text)?;
        let gpu = CudaBatch::new(device, &config, settings()).map_err(text)?;
        let bytes = options.envs * cpu.obs_bytes();
        Ok(Self {
            cpu,
            gpu,
            counts,
            envs: options.envs,
            obs: [vec![0; bytes], vec![0; bytes]],
            reports: vec![Report::default(); options.envs],
            numbers: vec![0; NUMBERS * options.envs],
            flags: vec![0; FLAGS * options.envs],
            draws: 1,
        })
    }

    fn actions(&mut self) -> Vec<i32> {
        let count = self.cpu.actions().len() as u64;
        let mut next = || {
            self.draws =
                self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.draws >> 33) % count) as i32
        };
        (0..self.envs).map(|_| next()).collect()
    }

    fn cpu_step(&mut self, indices: &[i32]) -> Result<(), CuleError> {
        let codes = self.cpu.actions();
        let actions: Vec<_> =
            indices.iter().map(|&index| full_strength(u32::from(codes[index as usize]))).collect();
        let out = Outputs {
            obs: &mut self.obs[0],
            final_obs: None,
            ram: None,
            audio: None,
            reports: &mut self.reports,
        };
        self.cpu.step(&actions, out)
    }

    /// Steps on the CPU, from a reset.
    fn warm(&mut self, steps: usize) -> Result<Vec<u8>, CuleError> {
        let seeds: Vec<Option<i64>> = (0..self.envs as i64).map(|env| Some(5 * env + 3)).collect();
        let out = Outputs {
            obs: &mut self.obs[0],
            final_obs: None,
            ram: None,
            audio: None,
            reports: &mut self.reports,
        };
        self.cpu.reset(Some(&seeds), None, out)?;
        for _ in 0..steps {
            let indices = self.actions();
            self.cpu_step(&indices)?;
        }
        self.save()
    }

    fn save(&self) -> Result<Vec<u8>, CuleError> {
        let envs: Vec<usize> = (0..self.envs).collect();
        let mut rows = vec![0; self.cpu.state_bytes(&envs) * self.envs];
        self.cpu.save(&envs, &mut rows)?;
        Ok(rows)
    }

    /// Loads states, makes steps on both and compares them.
    fn steps(&mut self, states: &[u8], steps: usize) -> Result<(), String> {
        let text = |error: CuleError| error.to_string();
        let envs: Vec<usize> = (0..self.envs).collect();
        self.cpu.load(&envs, states).map_err(text)?;
        self.gpu.load(&envs, states, 0).map_err(text)?;
        for step in 0..steps {
            let indices = self.actions();
            self.cpu_step(&indices).map_err(text)?;
            let targets = Targets {
                obs: self.obs[1].as_mut_ptr() as u64,
                numbers: self.numbers.as_mut_ptr() as u64,
                flags: self.flags.as_mut_ptr() as u64,
                ..Targets::default()
            };
            self.gpu.step(Actions::Narrow(indices.as_ptr() as u64), &targets, 0).map_err(text)?;
            self.compare(step)?;
        }
        let (found, size) = self.gpu.save(&envs, 0).map_err(text)?;
        let expected = self.save().map_err(text)?;
        match found.iter().zip(&expected).position(|(a, b)| a != b) {
            Some(at) => Err(format!(
                "after {steps} steps: byte {} of the state of environment {}",
                at % size,
                at / size
            )),
            None => Ok(()),
        }
    }

    fn compare(&self, step: usize) -> Result<(), String> {
        for (env, r) in self.reports.iter().enumerate() {
            let expected = [r.reward, r.raw_reward, r.lives, r.frame_number, r.episode_frame_number];
            let found = [0, 1, 2, 3, 4].map(|k| self.numbers[k * self.envs + env]);
            let flags = [0, 1, 2, 3].map(|k| self.flags[k * self.envs + env] != 0);
            if found != expected || flags != [r.terminated, r.truncated, r.ended, r.game_over] {
                return Err(format!(
                    "step {step}: figures of environment {env}: {found:?}, expected {expected:?}"
                ));
            }
        }
        let bytes = self.obs[0].len() / self.envs;
        match self.obs[0].iter().zip(&self.obs[1]).position(|(a, b)| a != b) {
            Some(at) => Err(format!(
                "step {step}: byte {} of the observation of environment {} is {}, expected {}",
                at % bytes,
                at / bytes,
                self.obs[1][at],
                self.obs[0][at]
            )),
            None => Ok(()),
        }
    }
}

/// The command line.
struct Options {
    games: Vec<String>,
    envs: usize,
    lanes: u32,
    warm: usize,
    steps: usize,
    windows: Vec<u32>,
    forms: Vec<String>,
    functions: bool,
    memory: bool,
    lines: usize,
    architecture: u32,
    obs_type: ObsType,
}

impl Options {
    fn parse() -> Result<Self, String> {
        let mut options = Self {
            games: vec!["pong".into(), "breakout".into()],
            envs: 32,
            lanes: 32,
            warm: 60,
            steps: 1,
            windows: vec![4],
            forms: vec!["grouped".into()],
            functions: false,
            memory: false,
            lines: 0,
            architecture: 90,
            obs_type: ObsType::Gray,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--functions" {
                options.functions = true;
                continue;
            }
            if word == "--memory" {
                options.memory = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word}: no value"))?;
            let number = || value.parse().map_err(|_| format!("{word} {value}: not a number"));
            let list = || value.split(',').map(str::to_string).collect();
            match word.as_str() {
                "--games" if value.is_empty() => options.games.clear(),
                "--games" => options.games = list(),
                "--obs-type" => {
                    options.obs_type = match value.as_str() {
                        "gray" => ObsType::Gray,
                        "rgb" => ObsType::Rgb,
                        "ram" => ObsType::Ram,
                        _ => return Err(format!("--obs-type {value}: expected gray, rgb or ram")),
                    }
                }
                "--architecture" => options.architecture = number()? as u32,
                "--forms" => options.forms = list(),
                "--envs" => options.envs = number()?,
                "--lanes" => options.lanes = number()? as u32,
                "--warm" => options.warm = number()?,
                "--steps" => options.steps = number()?,
                "--lines" => options.lines = number()?,
                "--windows" => {
                    options.windows = value
                        .split(',')
                        .map(|one| one.parse().map_err(|_| format!("{word} {one}: not a number")))
                        .collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("no option {word}")),
            }
        }
        Ok(options)
    }
}

/// Compiles the kernels to PTX, and keeps it if `PARL_KEEP_PTX` is set.
fn compile(architecture: u32) -> Result<Vec<(String, String)>, String> {
    let nvrtc = Nvrtc::find(&[]).map_err(|error| error.to_string())?;
    let images = SOURCES
        .compile(&nvrtc, &format!("compute_{architecture}"), 0, &[])
        .map_err(|error| error.to_string())?;
    let keep = |image: cuda::Image| {
        let text = String::from_utf8_lossy(&image.image).into_owned();
        if let Some(folder) = std::env::var_os("PARL_KEEP_PTX") {
            let file = std::path::Path::new(&folder).join(image.file).with_extension("ptx");
            std::fs::write(file, &text).map_err(|error| error.to_string())?;
        }
        Ok((image.file.to_string(), text))
    };
    images.into_iter().map(keep).collect()
}

/// The kernels as modules, by file.
fn modules(texts: Vec<(String, String)>) -> Result<HashMap<String, Module>, String> {
    let parse = |(file, text): (String, String)| {
        let module = simt::parse(&text).map_err(|error| format!("{file}: {error}"))?;
        Ok((file, module))
    };
    texts.into_iter().map(parse).collect()
}

/// Whether a function draws rows of pictures or shows planes.
fn draws(function: &str) -> bool {
    function == "show" || function.ends_with("::area_84") || function.contains("::rows::")
}

/// Prints what the steps of a game have cost.
fn print(head: &str, module: &Module, counts: &Counts, steps: usize, options: &Options) {
    if options.envs > options.lanes as usize {
        let mut blocks = counts.of_block.clone();
        blocks.sort_unstable();
        let [least, middle, most] = [0, blocks.len() / 2, blocks.len() - 1].map(|at| blocks[at]);
        println!("    blocks: {} of {least} to {most} instructions, median {middle}", blocks.len());
    }
    let steps = steps as u64;
    let sum = |kind: usize| counts.warp.iter().map(|all| all[kind]).sum::<u64>() / steps;
    let kinds = ["free", "arithmetic", "control", "local", "shared", "global", "sync"];
    let all: u64 = (0..kinds.len()).map(sum).sum();
    let lanes = counts.lanes.iter().sum::<u64>() as f64 / (all * steps) as f64;
    let without_free = |k: &usize| counts.warp[*k][1..].iter().sum::<u64>();
    let drawing: u64 = (0..module.functions.len())
        .filter(|&k| draws(&module.functions[k].name))
        .map(|k| without_free(&k))
        .sum();
    let hot = counts.of_line.iter().flatten().filter(|&&count| count > HOT * steps).count();
    let shown: Vec<String> = kinds.iter().enumerate().map(|(k, name)| format!("{name}={}", sum(k))).collect();
    println!(
        "{head} instructions={} drawing={} hot={hot} turns={} lanes={lanes:.1} {}",
        all - sum(0),
        drawing / steps,
        counts.turns / steps,
        shown.join(" ")
    );
    if options.functions {
        let mut order: Vec<usize> = (0..module.functions.len()).collect();
        order.sort_by_key(|k| std::cmp::Reverse(without_free(k)));
        for k in order.into_iter().filter(|k| without_free(k) * 200 > all * steps) {
            let executed = |least: u64| counts.of_line[k].iter().filter(|&&n| n > least * steps).count();
            println!(
                "    {:10} {:8} local {:5.1} lanes {:6} lines, {:5} hot  {}",
                without_free(&k) / steps,
                counts.warp[k][3] / steps,
                counts.lanes[k] as f64 / counts.warp[k].iter().sum::<u64>() as f64,
                executed(0),
                executed(HOT),
                module.functions[k].name
            );
        }
    }
    for (bytes, cache) in CODE_CACHES.iter().zip(&counts.code) {
        let traffic = &cache.traffic[0];
        let [lines, misses] = [traffic.accesses, traffic.misses].map(|count| count / steps);
        println!("    code cache of {:3} KiB: {misses:8} misses of {lines:8} lines", bytes >> 10);
    }
    if let Some(memory) = &counts.memory {
        let names = memory.regions.iter().map(|region| region.name).chain(["other"]);
        for (name, traffic) in names.zip(&memory.traffic) {
            let [accesses, sectors, misses] =
                [traffic.accesses, traffic.sectors, traffic.misses].map(|count| count / steps);
            println!("    memory {name:10} {accesses:9} accesses {sectors:9} sectors {misses:9} misses");
        }
        let mut places: Vec<_> = memory.places.iter().collect();
        places.sort_by_key(|(_, traffic)| std::cmp::Reverse(traffic.sectors));
        for ((function, at), traffic) in places.into_iter().take(options.lines) {
            let function = &module.functions[*function];
            let line = function.code[*at as usize].line;
            println!(
                "    {:9} misses {:9} sectors {:8} accesses line {line} of {}",
                traffic.misses / steps,
                traffic.sectors / steps,
                traffic.accesses / steps,
                function.name
            );
        }
    }
    let mut lines: Vec<(u64, u32, usize)> = vec![];
    for (k, function) in module.functions.iter().enumerate() {
        lines.extend(counts.of_line[k].iter().zip(&function.code).map(|(&n, i)| (n / steps, i.line, k)));
    }
    lines.sort_unstable();
    for (n, line, k) in lines.iter().rev().take(options.lines) {
        println!("    {n:10} line {line} of {}", module.functions[*k].name);
    }
}

fn run() -> Result<(), String> {
    let options = Options::parse()?;
    let texts = compile(options.architecture)?;
    if options.games.is_empty() {
        return Ok(());
    }
    let modules = Rc::new(modules(texts)?);
    for game in &options.games {
        let mut pair = Pair::new(&modules, game, &options)?;
        let states = pair.warm(options.warm).map_err(|error| error.to_string())?;
        let draws = pair.draws;
        for form in &options.forms {
            let windows = if form == "grouped" { options.windows.clone() } else { vec![0] };
            for window in windows {
                let choice = Choice::named(form, window).map_err(|error| error.to_string())?;
                pair.gpu.choose(&[choice], 0).map_err(|error| error.to_string())?;
                *pair.counts.borrow_mut() = Counts::new(&modules["step.cu"]);
                if options.memory {
                    let mut counts = pair.counts.borrow_mut();
                    counts.memory = Some(Memory::new(CACHE_BYTES, vec![]));
                    counts.code = CODE_CACHES.map(|bytes| Memory::new(bytes, vec![])).to_vec();
                }
                pair.draws = draws;
                let head = format!("game={game} envs={} form={form} window={window}", options.envs);
                pair.steps(&states, options.steps).map_err(|error| format!("{head}: {error}"))?;
                print(&head, &modules["step.cu"], &pair.counts.borrow(), options.steps, &options);
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu_model: {error}");
            ExitCode::FAILURE
        }
    }
}
