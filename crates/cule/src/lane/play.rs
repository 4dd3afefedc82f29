//! Frames as a lane of a GPU runs them: the order of `machine::step` and `env::emulate` with the compact interpreter.
//!
//! Device subset.

use crate::env::{self, State};
use crate::machine::{self, Board, INSTRUCTIONS_PER_STEP, Machine, compact, tia};

/// Runs until `budget` instructions are spent or a chip asks for the end of the frame. Kernels that step give a body of
/// their own (`kernels/forms.cuh`), which leaves the same machine.
#[inline(never)]
pub fn run(m: &mut Machine, board: &mut Board, rom: &[u8], budget: u32) {
    compact::run(m, board, rom, budget);
}

/// As `machine::step`.
#[inline(never)]
pub fn step(m: &mut Machine, board: &mut Board, rom: &[u8]) {
    machine::begin_step(m, board);
    let start: Machine = *m;
    run(m, board, rom, INSTRUCTIONS_PER_STEP);
    if m.draw != 0 && m.tia.stop == 0 && m.eager == 0 {
        // A frame left open shows how far the beam has come: draw it again, access by access.
        *m = start;
        m.eager = 1;
        tia::objects::refresh_cells(&m.tia, board);
        run(m, board, rom, INSTRUCTIONS_PER_STEP);
    }
    machine::end_step(m, board);
}

/// As `env::emulate`.
#[inline(never)]
pub fn emulate(state: &mut State, board: &mut Board, rom: &[u8]) {
    step(&mut state.machine, board, rom);
    env::evaluate(state);
}
