//! Runs the frames of a console on a CUDA device. All other functions of [`Console`] run on the host.

use std::ffi::c_void;
use std::path::PathBuf;

use bytemuck::{Pod, Zeroable};
use cuda::{Memory, Program, Sources};

use super::Console;
use crate::CuleError;
use crate::env::{Action, State};
use crate::machine::Board;
use crate::random::Random;

/// Source files of the kernel.
pub const SOURCES: Sources = Sources {
    files: &[("console.cu", include_str!("../../kernels/console.cu"))],
    headers: &[
        ("prelude.cuh", include_str!("../../kernels/prelude.cuh")),
        ("machine.cuh", include_str!("../../kernels/machine.cuh")),
        ("runner.cuh", include_str!("../../kernels/runner.cuh")),
    ],
    kernels: &[("parl_act", "console.cu")],
};

/// The arguments of a launch, as in `kernels/console.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Play {
    state: u64,
    random: u64,
    board: u64,
    rom: u64,
    reward: u64,
    repeat_probability: f64,
    a: [i32; 2],
    b: [i32; 2],
    rom_bytes: u32,
    frames: u32,
}

/// Device memory for the state of a console, and its ROM.
pub struct ConsoleDevice {
    // Dropped in this order: memory before the program that owns the context.
    state: Memory,
    random: Memory,
    board: Memory,
    rom: Memory,
    reward: Memory,
    rom_bytes: u32,
    program: Program,
    ordinal: u32,
    folders: Vec<PathBuf>,
}

impl ConsoleDevice {
    /// Loads the kernel and the ROM on device number `ordinal`. NVRTC is searched in `folders` first.
    ///
    /// # Errors
    /// As [`Program::new`], or the device is out of memory.
    pub fn new(ordinal: u32, folders: &[PathBuf], console: &Console) -> Result<Self, CuleError> {
        let program = Program::new(ordinal, folders, &SOURCES)?;
        let image = console.image();
        let rom = program.allocate(image.len())?;
        rom.write(image, 0)?;
        Ok(Self {
            state: program.allocate(size_of::<State>())?,
            random: program.allocate(size_of::<Random>())?,
            board: program.allocate(size_of::<Board>())?,
            reward: program.allocate(size_of::<i32>())?,
            rom,
            rom_bytes: image.len() as u32,
            program,
            ordinal,
            folders: folders.to_vec(),
        })
    }

    /// Allocates memory for a copy of the console on the same device.
    ///
    /// # Errors
    /// As [`ConsoleDevice::new`].
    pub fn another(&self, console: &Console) -> Result<Self, CuleError> {
        Self::new(self.ordinal, &self.folders, console)
    }

    /// As [`Console::act_two`], on the device: copies the state to the device, runs the step, and copies the
    /// state back.
    ///
    /// # Errors
    /// The error of the driver; the console is then unchanged.
    pub fn act_two(&self, console: &mut Console, a: Action, b: Action) -> Result<i32, CuleError> {
        const STREAM: u64 = 0;
        let (mut state, mut random) = (*console.state(), console.env_random);
        let mut board: Box<Board> = bytemuck::zeroed_box();
        let mut reward = 0i32;
        self.state.write(bytemuck::bytes_of(&state), STREAM)?;
        self.random.write(bytemuck::bytes_of(&random), STREAM)?;
        self.board.write(bytemuck::bytes_of(&*console.board), STREAM)?;
        let action = |action: Action| [action.code as i32, action.step];
        let mut play = Play {
            state: self.state.address(),
            random: self.random.address(),
            board: self.board.address(),
            rom: self.rom.address(),
            reward: self.reward.address(),
            repeat_probability: f64::from(console.options.repeat_action_probability),
            a: action(a),
            b: action(b),
            rom_bytes: self.rom_bytes,
            frames: console.options.frame_skip,
        };
        self.program.launch("parl_act", (1, 1), &mut [(&raw mut play).cast::<c_void>()], STREAM)?;
        self.state.read(bytemuck::bytes_of_mut(&mut state), STREAM)?;
        self.random.read(bytemuck::bytes_of_mut(&mut random), STREAM)?;
        self.board.read(bytemuck::bytes_of_mut(&mut *board), STREAM)?;
        self.reward.read(bytemuck::bytes_of_mut(&mut reward), STREAM)?;
        console.replace_state(state, random, board);
        Ok(reward)
    }
}
