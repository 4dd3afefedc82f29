//! TIA: state, time, frames and reads. Drawing and collisions are computed in `beam`, up to the time of an
//! access.
//!
//! A write first advances the beam to its own time with the old state, then changes the state (`write`). The
//! beam may lag if the change makes no visible difference. Without pixels, a change makes a difference only
//! if the changed object is near another one; `may_collide` is computed from the 40 cells of four pixels that
//! objects cover.
//!
//! Device subset.

pub mod beam;
pub mod collision;
pub mod hmove;
pub mod objects;
pub mod paint;
pub mod position;
pub mod rows;
pub mod write;

use bytemuck::{Pod, Zeroable};

use super::{Board, Machine, input};

pub const CLOCKS_PER_LINE: i32 = 228;
pub const CYCLES_PER_LINE: u32 = 76;
pub const HBLANK_CLOCKS: i32 = 68;
pub const VISIBLE_CLOCKS: i32 = 160;
pub const WIDTH: usize = 160;
pub const MAX_ROWS: usize = 300;
pub const PICTURE_BYTES: usize = WIDTH * MAX_ROWS;

/// 160 pixels, one bit each; bit i of word w is pixel 32 w + i.
pub type Mask = [u32; 5];

/// Indices of the six objects.
pub const P0: usize = 0;
pub const P1: usize = 1;
pub const M0: usize = 2;
pub const M1: usize = 3;
pub const BL: usize = 4;
pub const PF: usize = 5;
/// One bit per object, as in `dirty`, `may_collide` and `enabled`.
pub const ALL_OBJECTS: u8 = 0x3F;
/// Value of `needs_beam` while every change must be checked.
pub const ALL_NEED_BEAM: u8 = 0xFF;

/// Value of `arm` while VSYNC is off.
const NEVER: i32 = 0x7FFF_FFFF;
/// VBLANK: the picture is blank.
const VBLANK_ON: u8 = 0x02;

/// Effect of the star field on missile 0.
pub const FORM_NORMAL: u8 = 0;
pub const FORM_WIDE: u8 = 1;
pub const FORM_OFF: u8 = 2;

/// Properties that the ROM determines: the window of drawn lines, and the television.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Layout {
    /// Frame line of the first row.
    pub first_line: i16,
    /// Number of rows.
    pub height: i16,
    /// PAL: longer frames, and color loss after a frame with an odd number of lines.
    pub pal: u8,
    /// HMOVE blanks the first eight pixels of a line.
    pub hmove_blanks: u8,
}

/// State of the chip. Clocks count from the start of the frame and are shifted with it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Tia {
    /// Clock at which line 0 began, -225..=0.
    pub origin: i32,
    /// Clock of buffer row 0.
    pub base: i32,
    /// A beam target before this clock draws nothing.
    pub gate: i32,
    /// Clock after the last row.
    pub window_end: i32,
    /// Number of clocks after `base` that have been drawn.
    pub beam: i32,
    /// Start of the beam's row, in clocks after `base`. It changes when the beam enters the next row.
    pub row_start: i32,
    /// First clock at which a write exceeds the maximum number of lines, which ends the frame.
    pub limit: i32,
    /// Clock from which clearing VSYNC ends the frame.
    pub arm: i32,
    /// Clock of the last HMOVE.
    pub last_hmove: i32,
    /// Lines of the last complete frame.
    pub last_lines: i32,
    /// Cycle at which the paddle capacitors started to charge.
    pub dump_release: i32,
    /// Playfield bits of the left half, bit 0 leftmost.
    pub playfield: u32,
    /// Window and television of the cartridge's game.
    pub layout: Layout,
    /// Collision latches, two bits per read register: bit 2r + 1 is bit 7 of register r, bit 2r its bit 6.
    pub collisions: u16,
    /// Index of the picture buffer being drawn.
    pub buffer: u8,
    /// POSP0, POSP1, POSM0, POSM1, POSBL.
    pub position: [u8; 5],
    /// HMP0, HMP1, HMM0, HMM1, HMBL: four bits each.
    pub motion: [u8; 5],
    /// VBLANK as written.
    pub vblank: u8,
    /// NUSIZ0, NUSIZ1 as written.
    pub nusiz: [u8; 2],
    /// CTRLPF as written.
    pub ctrlpf: u8,
    /// COLUP0, COLUP1, COLUPF, COLUBK.
    pub color: [u8; 4],
    /// REFP0, REFP1.
    pub reflect: [u8; 2],
    /// GRP0, GRP1.
    pub grp: [u8; 2],
    /// Delayed copies of GRP0 and GRP1.
    pub grp_old: [u8; 2],
    /// VDELP0, VDELP1.
    pub vdelp: [u8; 2],
    /// Graphics in effect (after VDELP, before REFP).
    pub graphics: [u8; 2],
    /// ENAM0, ENAM1.
    pub enam: [u8; 2],
    /// RESMP0, RESMP1.
    pub resmp: [u8; 2],
    /// ENABL.
    pub enabl: u8,
    /// Delayed copy of ENABL.
    pub enabl_old: u8,
    /// VDELBL.
    pub vdelbl: u8,
    /// The paddle capacitors are grounded.
    pub dump: u8,
    /// The first copy of the player is not shown until the next row.
    pub skip: [u8; 2],
    /// One of the `FORM_` constants.
    pub missile0_form: u8,
    /// The star field moves missile 0 from row to row.
    pub star_field: u8,
    /// Phase of the star field, 0 to 3.
    pub star_phase: u8,
    /// Reflection in use for the right half of the playfield.
    pub mirror: u8,
    /// An HMOVE blank applies to the next pixels 0-7.
    pub blank_pending: u8,
    /// Objects that are enabled, one bit each, at any position.
    pub enabled: u8,
    /// Objects whose masks must be recomputed.
    pub dirty: u8,
    /// Objects whose cells overlap those of an enabled object with which they have not collided yet.
    pub may_collide: u8,
    /// `may_collide` must be recomputed.
    pub may_collide_outdated: u8,
    /// Objects whose changes require the beam: `may_collide`, or `ALL_NEED_BEAM` while that is unknown or
    /// pixels are drawn.
    pub needs_beam: u8,
    /// All collisions that the present state can cause have been latched.
    pub collisions_final: u8,
    /// The frame ends after this instruction.
    pub stop: u8,
    /// `may_collide` may contain too many objects.
    pub may_collide_overestimated: u8,
}

/// Places of words in `Tia`, for `word_of`: the byte before COLUP0, COLUP1; one before `skip`; `star_field`, with `mirror` in
/// the third byte.
const COLOR_WORDS: [usize; 2] = [68, 72];
const SKIP_WORD: usize = 92;
const STAR_WORD: usize = 96;

#[cfg(not(device))]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Tia, color) == COLOR_WORDS[0] + 3);
    assert!(offset_of!(Tia, skip) == SKIP_WORD + 1);
    assert!(offset_of!(Tia, star_field) == STAR_WORD && offset_of!(Tia, mirror) == STAR_WORD + 2);
};

/// Four bytes of the chip, the first in the lowest byte. `at` is a multiple of four.
fn word_of(t: &Tia, at: usize) -> u32 {
    let bytes: &[u8] = bytemuck::bytes_of(t);
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Bit mask of an object.
pub fn bit(object: usize) -> u8 {
    1 << object
}

/// The clock at the end of cycle `cycles`.
pub fn clock_of(cycles: u32) -> i32 {
    cycles.wrapping_mul(3) as i32
}

/// Returns a chip before its first reset.
pub fn new(layout: Layout) -> Tia {
    let mut t: Tia = Tia {
        origin: 0,
        base: 0,
        gate: 0,
        window_end: 0,
        beam: 0,
        row_start: 0,
        limit: 0,
        arm: NEVER,
        last_hmove: 0,
        last_lines: 0,
        dump_release: 0,
        playfield: 0,
        layout,
        collisions: 0,
        buffer: 0,
        position: [0, 0, 0, 0, 0],
        motion: [0, 0, 0, 0, 0],
        vblank: 0,
        nusiz: [0, 0],
        ctrlpf: 0,
        color: [0, 0, 0, 0],
        reflect: [0, 0],
        grp: [0, 0],
        grp_old: [0, 0],
        vdelp: [0, 0],
        graphics: [0, 0],
        enam: [0, 0],
        resmp: [0, 0],
        enabl: 0,
        enabl_old: 0,
        vdelbl: 0,
        dump: 0,
        skip: [0, 0],
        missile0_form: 0,
        star_field: 0,
        star_phase: 0,
        mirror: 0,
        blank_pending: 0,
        enabled: 0,
        dirty: ALL_OBJECTS,
        may_collide: 0,
        may_collide_outdated: 1,
        needs_beam: ALL_NEED_BEAM,
        collisions_final: 0,
        stop: 0,
        may_collide_overestimated: 0,
    };
    let first_line: i32 = layout.first_line as i32;
    set_window(&mut t, first_line);
    t
}

/// Sets the window bounds of a frame whose buffer row 0 is line `row0_line`.
fn set_window(t: &mut Tia, row0_line: i32) {
    let lines: i32 = if t.layout.pal != 0 { 343 } else { 291 };
    t.base = t.origin + CLOCKS_PER_LINE * row0_line;
    t.gate = t.origin + CLOCKS_PER_LINE * t.layout.first_line as i32;
    t.window_end = t.gate + CLOCKS_PER_LINE * t.layout.height as i32;
    t.limit = t.origin + CLOCKS_PER_LINE * lines;
}

/// Console reset. After an unfinished frame, the next one is drawn from line 0 on.
pub fn reset(t: &mut Tia, unfinished: bool) {
    let layout: Layout = t.layout;
    *t = new(layout);
    if unfinished {
        set_window(t, 0);
    }
}

/// Subtracts `cycles` from every stored time.
pub fn rebase(t: &mut Tia, cycles: u32) {
    let clocks: i32 = clock_of(cycles);
    t.arm = t.arm.wrapping_sub(clocks);
    t.last_hmove = t.last_hmove.wrapping_sub(clocks);
    t.dump_release = t.dump_release.wrapping_sub(cycles as i32);
}

/// Starts a frame. The times have been shifted; `phase` is the clock within the line.
pub fn new_frame(t: &mut Tia, phase: i32) {
    t.buffer ^= 1;
    t.origin = -phase;
    let first_line: i32 = t.layout.first_line as i32;
    set_window(t, first_line);
    t.beam = 0;
    t.row_start = 0;
    if t.layout.pal != 0 {
        for i in 0..4 {
            t.color[i] = t.color[i] & 0xFE | (t.last_lines & 1) as u8;
        }
    }
}

/// True while clearing VSYNC can end the frame. Stored times decrease, so any distant time means never.
pub fn is_armed(t: &Tia) -> bool {
    t.arm < NEVER / 2
}

/// True while the vertical blank hides the picture.
pub fn hidden(t: &Tia) -> bool {
    t.vblank & VBLANK_ON != 0
}

/// Clock within the line.
pub fn line_clock(t: &Tia, clock: i32) -> i32 {
    (clock.wrapping_sub(t.origin) as u32 % CLOCKS_PER_LINE as u32) as i32
}

/// Reads register `address` mod 16; the bus latch supplies the undriven bits.
pub fn read(m: &mut Machine, board: &mut Board, address: u32, cycles: u32) -> u32 {
    let noise: u32 = m.bus & 0x3F;
    let register: u32 = address & 15;
    if m.access_by_access != 0 || register < 8 {
        beam::catch_up(m, board, clock_of(cycles));
    }
    let mut driven: u32 = 0;
    if register < 8 {
        driven = (m.tia.collisions as u32 >> (2 * register) & 3) << 6;
    } else if register < 12 {
        driven = read_pot(m, (register - 8) as usize, cycles);
    } else if register < 14 {
        driven = m.input.trigger[(register - 12) as usize] as u32;
    }
    driven | noise
}

/// INPT0..INPT3: bit 7 is set when the capacitor has been charged through the paddle's resistance.
pub fn read_pot(m: &Machine, pot: usize, cycles: u32) -> u32 {
    let resistance: i32 = m.input.resistance[pot];
    if resistance == 0 {
        return 0x80;
    }
    if resistance == input::INFINITE || m.tia.dump != 0 {
        return 0;
    }
    let charged_at: u32 = (m.tia.dump_release as u32).wrapping_add(input::charge_cycles(resistance));
    if cycles > charged_at { 0x80 } else { 0 }
}
