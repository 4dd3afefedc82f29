//! State of a console as a plain-data struct, and the functions that advance it frame by frame.
//!
//! All code here is in the device subset of Rust: the same source is compiled as Rust and translated to CUDA.
//! Times are CPU cycles (`cycles`, u32) or color clocks (`clock`, i32, three per cycle), counted from the
//! start of the frame. All bus accesses of an instruction use the time at which the instruction ends.
//!
//! Device subset.

#![allow(
    missing_docs,
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::manual_range_contains,
    clippy::manual_memcpy,
    clippy::assign_op_pattern,
    clippy::collapsible_match,
    clippy::needless_return,
    clippy::needless_late_init,
    clippy::manual_range_patterns,
    clippy::manual_div_ceil,
    clippy::unnecessary_cast,
    clippy::nonminimal_bool,
    clippy::manual_is_multiple_of,
    clippy::too_many_arguments,
    unused_parens,
    unused_assignments,
    reason = "the device subset has no ranges, iterators or methods; constants are named as in the chips' manuals"
)]

pub mod bus;
pub mod cart;
pub mod compact;
pub mod cpu;
pub mod dpc;
pub mod input;
pub mod instructions;
pub mod operations;
pub mod polls;
pub mod record_tables;
pub mod records;
pub mod riot;
pub mod tia;

use bytemuck::{Pod, Zeroable};

use cart::Cart;
use input::Input;
use operations::Cpu;
use riot::Riot;
use tia::{Layout, Tia};

/// Maximum number of instructions per frame.
pub const INSTRUCTIONS_PER_STEP: u32 = 25_000;
/// Bytes of cartridge RAM in `Board`, for schemes whose RAM does not fit into `Machine`.
pub const LARGE_RAM_BYTES: usize = 32_768;

/// Maximum of `Machine::draws` in a loaded state: several hundred million resets. A console that continues
/// from such a state repeats these draws, in less than a second.
#[cfg(not(device))]
const MOST_DRAWS: u32 = 1 << 28;

/// A value of `Machine::draw`: pixels are drawn, and the rows that an unfinished frame has not reached are
/// not dimmed.
pub const DRAW_UNDIMMED: u8 = 2;

/// State that determines all later frames of a console, except ROM, board and random generators. Flags are 0
/// or 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Machine {
    /// The processor.
    pub cpu: Cpu,
    /// RAM, ports and timer.
    pub riot: Riot,
    /// Video.
    pub tia: Tia,
    /// Banks and cartridge RAM.
    pub cart: Cart,
    /// Controllers and switches.
    pub input: Input,
    /// Last byte on the data bus.
    pub bus: u32,
    /// Number of outputs drawn from the core generator (`console::SYSTEM_SEED`). Its seed is not part of the
    /// state.
    pub draws: u32,
    /// The last step ended before the frame did.
    pub unfinished: u8,
    /// The picture of an unfinished frame has been dimmed, as ale-py does.
    pub dimmed: u8,
    /// Pixels are drawn. Has no effect on the rest of the state.
    pub draw: u8,
    /// Every access to a chip draws the picture up to its own time. Needed where a frame may end within the
    /// picture.
    pub access_by_access: u8,
}

#[cfg(not(device))]
const _: () = assert!(size_of::<Machine>() < 512);

/// Values of the row that is being drawn, which can be recomputed from the `Machine`. Kernels have them in shared memory
/// (`PARL_LINE` in `prelude.cuh`), since every store to the TIA reads or writes some.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Line {
    /// Cells (four pixels each) that each object can cover.
    pub cells: [u64; 6],
    /// Cells in which a change of the playfield could cause a collision, and cells of all other objects.
    pub playfield_partners: u64,
    /// Cells of all objects except the playfield.
    pub any_cells: u64,
    /// Pixels of the six objects in the current row. `Tia::dirty` has the bits of those that are out of date.
    pub masks: [tia::Mask; 6],
    /// The class row that was drawn last.
    pub current_row: tia::rows::CurrentRow,
}

/// Data beside the `Machine`: pixels, values that can be recomputed from it, and the RAM of large cartridges.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Board {
    /// Two buffers of palette indices, used in alternate frames.
    pub picture: [[u8; tia::PICTURE_BYTES]; 2],
    /// The same rows as class rows, where `Row::kind` says so.
    pub rows: [[tia::rows::Row; tia::MAX_ROWS]; 2],
    /// Values of the current row.
    pub line: Line,
    /// RAM of cartridges that have more than `Cart` holds.
    pub ram: [u8; LARGE_RAM_BYTES],
    /// Values last written to AUDC0, AUDC1, AUDF0, AUDF1, AUDV0 and AUDV1, and two bytes of padding. Sound is
    /// made from them after a frame; nothing else depends on them. The fast CPU writes them only for consoles
    /// with sound.
    pub sound: [u8; 8],
}

/// Returns a console after power-on, before its first reset. `ram` is the content of RAM at power-on.
pub fn new(kind: u8, rom_bytes: u32, ram: &[u8; 128], layout: Layout) -> Machine {
    Machine {
        cpu: operations::new(),
        riot: riot::new(ram),
        tia: tia::new(layout),
        cart: cart::new(kind, rom_bytes),
        input: input::idle(),
        bus: 0,
        draws: 0,
        unfinished: 0,
        dimmed: 0,
        draw: 1,
        access_by_access: 0,
    }
}

/// Resets the console. `timer_draw` is one draw of the core generator. The caller has filled cartridge RAM.
pub fn reset(m: &mut Machine, board: &mut Board, rom: &[u8], timer_draw: u32) {
    rebase(m);
    riot::reset(&mut m.riot, timer_draw);
    let unfinished: bool = m.unfinished != 0;
    tia::reset(&mut m.tia, unfinished);
    for i in 0..tia::PICTURE_BYTES {
        board.picture[0][i] = 0;
        board.picture[1][i] = 0;
    }
    if board.line.current_row.uses_classes != 0 {
        tia::rows::mark_all_as_bytes(board);
    }
    cart::reset(&mut m.cart, board, rom);
    operations::reset(m, board, rom);
}

/// Makes the current time 0 and shifts all stored times by the same amount.
fn rebase(m: &mut Machine) {
    let cycles: u32 = m.cpu.cycles;
    m.cpu.cycles = 0;
    riot::rebase(&mut m.riot, cycles);
    tia::rebase(&mut m.tia, cycles);
    cart::rebase(&mut m.cart, cycles);
}

/// Number of scanlines since the frame began.
pub fn lines(m: &Machine) -> i32 {
    let clock: i32 = tia::clock_of(m.cpu.cycles);
    clock.wrapping_sub(m.tia.origin) / tia::CLOCKS_PER_LINE
}

/// Starts a frame, or continues the previous one if it has not ended.
pub fn begin_step(m: &mut Machine, board: &mut Board) {
    begin_step_of_machine(m);
    // Recomputed, so that a machine can be combined with any board.
    tia::objects::refresh_cells(&m.tia, board);
}

/// As [`begin_step`], without the cells of the board.
pub fn begin_step_of_machine(m: &mut Machine) {
    if m.unfinished == 0 {
        let phase: i32 = tia::line_clock(&m.tia, tia::clock_of(m.cpu.cycles));
        rebase(m);
        tia::new_frame(&mut m.tia, phase);
        m.dimmed = 0;
    }
    m.unfinished = 1;
    m.tia.stop = 0;
    // Masks are recomputed.
    m.tia.dirty = tia::ALL_OBJECTS;
    tia::write::invalidate_may_collide(&mut m.tia);
    // A step may be run a second time (see `step`), which requires unchanged RAM. Large RAM is not part of
    // the machine.
    let once: bool = cart::large_ram_bytes(&m.cart) != 0;
    m.access_by_access = (m.draw != 0 && (once || tia::is_armed(&m.tia))) as u8;
}

/// Ends a step: counts scanlines, and dims the rows that an unfinished frame has not reached.
pub fn end_step(m: &mut Machine, board: &mut Board) {
    let lines: i32 = lines(m);
    tia::rows::expand_incomplete_row(board);
    if m.tia.stop != 0 {
        m.unfinished = 0;
        m.tia.last_lines = lines;
        m.dimmed = 0;
    } else {
        if m.dimmed == 0 && m.draw != 0 && m.draw != DRAW_UNDIMMED {
            tia::paint::dim(m, board, lines);
        }
        m.dimmed = 1;
    }
}

/// Runs the instructions of a frame. Implemented by the interpreters.
pub trait Processor {
    /// Runs until `budget` instructions are executed or a chip requests the end of the frame.
    fn run(&mut self, m: &mut Machine, board: &mut Board, budget: u32);
}

/// The plain interpreter, which decodes the bytes of the ROM.
#[cfg(not(device))]
pub struct Plain<'a> {
    /// The ROM.
    pub rom: &'a [u8],
}

#[cfg(not(device))]
impl Processor for Plain<'_> {
    fn run(&mut self, m: &mut Machine, board: &mut Board, budget: u32) {
        cpu::run(m, board, self.rom, budget);
    }
}

/// Runs one frame: until the program ends it, or until `INSTRUCTIONS_PER_STEP` are executed.
#[inline(never)]
pub fn step<P: Processor>(processor: &mut P, m: &mut Machine, board: &mut Board) {
    begin_step(m, board);
    let start: Machine = *m;
    processor.run(m, board, INSTRUCTIONS_PER_STEP);
    if m.draw != 0 && m.tia.stop == 0 && m.access_by_access == 0 {
        // The picture of an unfinished frame depends on the position of the beam: draw it again, access by
        // access.
        *m = start;
        m.access_by_access = 1;
        tia::objects::refresh_cells(&m.tia, board);
        processor.run(m, board, INSTRUCTIONS_PER_STEP);
    }
    end_step(m, board);
}

/// Returns a machine between two frames with all fields cleared that only record how it was drawn. Two
/// machines with the same future become equal, whether their frames were drawn or not.
#[cfg(not(device))]
pub fn canonical_state(m: &Machine) -> Machine {
    let mut plain: Machine = *m;
    plain.draw = 0;
    plain.access_by_access = 0;
    plain.cpu.left = 0;
    plain.tia.dirty = 0;
    plain.tia.may_collide = 0;
    plain.tia.may_collide_outdated = 0;
    plain.tia.may_collide_overestimated = 0;
    plain.tia.needs_beam = 0;
    plain.tia.collisions_final = 0;
    if plain.unfinished == 0 {
        plain.tia.beam = 0;
        plain.tia.row_start = 0;
    }
    plain
}

/// Checks that `m` can be a state of the same console as `model`, so that no value of a loaded state exceeds
/// the bounds of a table.
///
/// # Errors
/// The first value that does not fit.
#[cfg(not(device))]
pub fn check(m: &Machine, model: &Machine) -> Result<(), String> {
    let cart: &Cart = &m.cart;
    if cart.kind != model.cart.kind || cart.rom_bytes != model.cart.rom_bytes {
        return Err(format!("cartridge {} of {} bytes is not the console's", cart.kind, cart.rom_bytes));
    }
    let plain: Cart = cart::new(cart.kind, cart.rom_bytes);
    let same_bounds: bool =
        (plain.plain_low, plain.plain_high, plain.claims) == (cart.plain_low, cart.plain_high, cart.claims);
    if !same_bounds || !cart::can_map(cart) {
        let kib: u32 = cart.rom_bytes / cart::SEGMENT_BYTES;
        return Err(format!("the ROM segments {:?} do not fit this cartridge of {kib} KiB", cart.segment));
    }
    if cart.ram_bank > 32 || cart.ram_page > 3 {
        return Err(format!("RAM bank {} or page {} is out of range", cart.ram_bank, cart.ram_page));
    }
    if m.riot.shift > 10 {
        return Err(format!("timer shift {} is above 10", m.riot.shift));
    }
    let most: u32 = if model.draws > MOST_DRAWS { model.draws } else { MOST_DRAWS };
    if m.draws > most {
        return Err(format!("{} draws of the core generator, expected at most {most}", m.draws));
    }
    let t: &Tia = &m.tia;
    if t.layout != model.tia.layout {
        return Err(format!("picture layout {:?}, expected {:?}", t.layout, model.tia.layout));
    }
    if t.position.iter().any(|&position| position >= tia::WIDTH as u8) {
        return Err(format!("object positions {:?}, expected 0 to 159", t.position));
    }
    if t.star_phase > 3 || t.buffer > 1 || t.playfield >> 20 != 0 || t.motion.iter().any(|&n| n > 15) {
        return Err(format!("a register is out of range in {t:?}"));
    }
    let clocks: i32 = tia::CLOCKS_PER_LINE * tia::MAX_ROWS as i32;
    let in_picture = |clock: i32| (0..=clocks).contains(&clock);
    if !(-225..=0).contains(&t.origin)
        || !in_picture(t.beam)
        || !in_picture(t.row_start)
        || !(0..=tia::CLOCKS_PER_LINE).contains(&(t.beam - t.row_start))
        || !in_picture(t.base - t.origin)
        || !in_picture(t.window_end - t.base)
    {
        return Err(format!("beam {}, row {} or frame start {} out of range", t.beam, t.row_start, t.origin));
    }
    Ok(())
}
