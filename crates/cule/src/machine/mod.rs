//! The console: one plain value, and the order in which its chips move.
//!
//! Everything here is written in the device subset of Rust, so that the same lines run as Rust and as CUDA. Times are
//! CPU cycles (`cycles`, u32) or color clocks (`clock`, i32, three per cycle), counted from the start of the frame.
//! All bus accesses of an instruction carry the time of its end.
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
pub mod datapath;
pub mod dpc;
pub mod input;
pub mod instructions;
pub mod micro;
pub mod operations;
pub mod predicated;
pub mod records;
pub mod riot;
pub mod tia;

use bytemuck::{Pod, Zeroable};

use cart::Cart;
use input::Input;
use operations::Cpu;
use riot::Riot;
use tia::{Layout, Tia};

/// A frame runs at most this many instructions.
pub const INSTRUCTIONS_PER_STEP: u32 = 25_000;
/// Bytes of cartridge RAM that does not fit into the machine.
pub const LARGE_RAM_BYTES: usize = 32_768;

/// Draws of the core generator that a state from outside may have behind it: some hundred million resets. They are
/// repeated when a console goes on from it, in less than a second.
#[cfg(not(device))]
const MOST_DRAWS: u32 = 1 << 28;

/// A value of `Machine::draw`: pixels are made, but what an open frame has not reached is left as it is.
pub const DRAW_UNDIMMED: u8 = 2;

/// Everything that makes the future of a console, except ROM, board and random generators. Flags are 0 or 1.
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
    /// What is plugged in and pressed.
    pub input: Input,
    /// The byte last seen on the data bus.
    pub bus: u32,
    /// Outputs of the core generator used so far; its seed is one for all.
    pub draws: u32,
    /// The last step ended without a frame end.
    pub unfinished: u8,
    /// The reference has dimmed the picture of an unfinished frame.
    pub dimmed: u8,
    /// The picture is wanted: pixels are made. Nothing else depends on it.
    pub draw: u8,
    /// Every chip access draws up to its own time, so that the left-overs of an early frame end are exact.
    pub eager: u8,
}

#[cfg(not(device))]
const _: () = assert!(size_of::<Machine>() < 512);

/// What stands beside the state of a console: pixels and what can be made anew, and the RAM of large cartridges.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Board {
    /// Two buffers of palette indices that alternate from frame to frame.
    pub picture: [[u8; tia::PICTURE_BYTES]; 2],
    /// The same rows as classes, where they are that and not bytes.
    pub rows: [[tia::rows::Row; tia::MAX_ROWS]; 2],
    /// The row of classes that is not complete.
    pub front: tia::rows::Front,
    /// The six objects of the present row; `Tia::dirty` says which are out of date.
    pub masks: [tia::Mask; 6],
    /// The cells of four pixels that each object can cover.
    pub cells: [u64; 6],
    /// Cells in which a change of the playfield could cause a collision, and those of all other objects.
    pub playfield_partners: u64,
    /// Cells of all objects but the playfield.
    pub any_cells: u64,
    /// Cartridge RAM of the schemes that have more than `Cart` holds.
    pub ram: [u8; LARGE_RAM_BYTES],
}

/// A console whose cartridge has just been plugged in; `ram` is the power-on RAM.
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
        eager: 0,
    }
}

/// Console reset. `timer_draw` is one draw of the core generator; cartridge RAM has been drawn before the call.
pub fn reset(m: &mut Machine, board: &mut Board, rom: &[u8], timer_draw: u32) {
    rebase(m);
    riot::reset(&mut m.riot, timer_draw);
    let unfinished: bool = m.unfinished != 0;
    tia::reset(&mut m.tia, unfinished);
    for i in 0..tia::PICTURE_BYTES {
        board.picture[0][i] = 0;
        board.picture[1][i] = 0;
    }
    if board.front.on != 0 {
        tia::rows::forget(board);
    }
    cart::reset(&mut m.cart, board, rom);
    operations::reset(m, board, rom);
}

/// Makes the present time zero; stamps keep their distances.
fn rebase(m: &mut Machine) {
    let cycles: u32 = m.cpu.cycles;
    m.cpu.cycles = 0;
    riot::rebase(&mut m.riot, cycles);
    tia::rebase(&mut m.tia, cycles);
    cart::rebase(&mut m.cart, cycles);
}

/// Scanlines since the frame began.
pub fn lines(m: &Machine) -> i32 {
    let clock: i32 = tia::clock_of(m.cpu.cycles);
    clock.wrapping_sub(m.tia.origin) / tia::CLOCKS_PER_LINE
}

/// Starts a frame, unless the last one is still open.
pub fn begin_step(m: &mut Machine, board: &mut Board) {
    if m.unfinished == 0 {
        let phase: i32 = tia::line_clock(&m.tia, tia::clock_of(m.cpu.cycles));
        rebase(m);
        tia::new_frame(&mut m.tia, phase);
        m.dimmed = 0;
    }
    m.unfinished = 1;
    m.tia.stop = 0;
    // What lies on the board is made anew, so that a machine can come from anywhere.
    m.tia.dirty = tia::ALL_OBJECTS;
    tia::write::unsettle(&mut m.tia);
    tia::objects::refresh_cells(&m.tia, board);
    // A step that may have to be run again must find its RAM as it was: large RAM is not part of the machine.
    let once: bool = cart::large_ram_bytes(&m.cart) != 0;
    m.eager = (m.draw != 0 && (once || tia::is_armed(&m.tia))) as u8;
}

/// Closes what `begin_step` began: counts lines, dims what an open frame has not reached.
pub fn end_step(m: &mut Machine, board: &mut Board) {
    let lines: i32 = lines(m);
    tia::rows::close(board);
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

/// What runs the instructions of a frame: one of the interpreters.
pub trait Processor {
    /// Runs until `budget` instructions are spent, or a chip asks for the end of the frame.
    fn run(&mut self, m: &mut Machine, board: &mut Board, budget: u32);
}

/// The plain interpreter, on the bytes of a ROM.
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

/// One STEP: runs until the program ends the frame, or the instruction budget is spent.
#[inline(never)]
pub fn step<P: Processor>(processor: &mut P, m: &mut Machine, board: &mut Board) {
    begin_step(m, board);
    let start: Machine = *m;
    processor.run(m, board, INSTRUCTIONS_PER_STEP);
    if m.draw != 0 && m.tia.stop == 0 && m.eager == 0 {
        // A frame left open shows how far the beam has come: draw it again, access by access.
        *m = start;
        m.eager = 1;
        tia::objects::refresh_cells(&m.tia, board);
        processor.run(m, board, INSTRUCTIONS_PER_STEP);
    }
    end_step(m, board);
}

/// A machine between two frames without what only says how its beam was followed, and by which way it came there:
/// machines with one future become equal, whether they were drawn or not.
#[cfg(not(device))]
pub fn essence(m: &Machine) -> Machine {
    let mut plain: Machine = *m;
    plain.draw = 0;
    plain.eager = 0;
    plain.cpu.left = 0;
    plain.tia.dirty = 0;
    plain.tia.near = 0;
    plain.tia.near_stale = 0;
    plain.tia.near_loose = 0;
    plain.tia.guard = 0;
    plain.tia.settled = 0;
    if plain.unfinished == 0 {
        plain.tia.beam = 0;
        plain.tia.row_start = 0;
    }
    plain
}

/// Looks whether `m` can be a state of the console that `model` is a state of: what comes from outside must not lead
/// out of any table.
///
/// # Errors
/// What does not fit, with its value.
#[cfg(not(device))]
pub fn check(m: &Machine, model: &Machine) -> Result<(), String> {
    let cart: &Cart = &m.cart;
    if cart.kind != model.cart.kind || cart.rom_bytes != model.cart.rom_bytes {
        return Err(format!("cartridge {} of {} bytes", cart.kind, cart.rom_bytes));
    }
    let mut plain: Cart = cart::new(cart.kind, cart.rom_bytes);
    plain.segment = model.cart.segment;
    let same_bounds: bool =
        (plain.plain_low, plain.plain_high, plain.claims) == (cart.plain_low, cart.plain_high, cart.claims);
    let blocks: u32 = cart.rom_bytes / cart::SEGMENT_BYTES;
    if !same_bounds || cart.segment.iter().any(|&block| u32::from(block) >= blocks) {
        return Err(format!("banks {:?} of {blocks}", cart.segment));
    }
    if cart.ram_bank > 32 || cart.ram_page > 3 {
        return Err(format!("cartridge RAM bank {}, page {}", cart.ram_bank, cart.ram_page));
    }
    if m.riot.shift > 10 {
        return Err(format!("timer shift {}", m.riot.shift));
    }
    let most: u32 = if model.draws > MOST_DRAWS { model.draws } else { MOST_DRAWS };
    if m.draws > most {
        return Err(format!("{} draws of the core generator, expected at most {most}", m.draws));
    }
    let t: &Tia = &m.tia;
    if t.layout != model.tia.layout {
        return Err(format!("picture {:?}, expected {:?}", t.layout, model.tia.layout));
    }
    if t.position.iter().any(|&position| position >= tia::WIDTH as u8) {
        return Err(format!("positions {:?}, expected 0 to 159", t.position));
    }
    if t.star_phase > 3 || t.buffer > 1 || t.playfield >> 20 != 0 || t.motion.iter().any(|&n| n > 15) {
        return Err(format!("registers {t:?}"));
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
        return Err(format!("beam at {} in a row from {}, frame from {}", t.beam, t.row_start, t.origin));
    }
    Ok(())
}
