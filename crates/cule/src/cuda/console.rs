//! One console whose frames run on a device; everything else of it is the host's [`Console`].

use std::ffi::c_void;
use std::path::PathBuf;

use bytemuck::{Pod, Zeroable};

use super::{Memory, Program, Sources};
use crate::CuleError;
use crate::console::Console;
use crate::env::{Action, State};
use crate::machine::Board;
use crate::random::Random;

/// The kernel of a console.
pub const SOURCES: Sources = Sources {
    files: &[("console.cu", include_str!("../../kernels/console.cu"))],
    headers: &[
        ("prelude.cuh", include_str!("../../kernels/prelude.cuh")),
        ("machine.cuh", include_str!("../../kernels/machine.cuh")),
        ("runner.cuh", include_str!("../../kernels/runner.cuh")),
    ],
    kernels: &[("parl_act", "console.cu")],
};

/// What a launch is told, as `kernels/console.cu` has it.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Play {
    state: u64,
    random: u64,
    board: u64,
    rom: u64,
    reward: u64,
    keep: f64,
    a: [i32; 2],
    b: [i32; 2],
    rom_bytes: u32,
    frames: u32,
}

/// The device's half of a console: room for its state, and its ROM.
pub struct ConsoleDevice {
    // Memory goes before the program whose context it is of.
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
    /// Room for a console on device number `ordinal`. `folders` are looked through for NVRTC first.
    ///
    /// # Errors
    /// As [`Program::new`]; there is no memory left.
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

    /// The same for a copy of the console.
    ///
    /// # Errors
    /// As [`ConsoleDevice::new`].
    pub fn another(&self, console: &Console) -> Result<Self, CuleError> {
        Self::new(self.ordinal, &self.folders, console)
    }

    /// [`Console::act_two`] on the device. The console is there for the time of it, and waits.
    ///
    /// # Errors
    /// What the driver says; the console is then as it was before.
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
            keep: f64::from(console.options.repeat_action_probability),
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
        console.take(state, random, board);
        Ok(reward)
    }
}
