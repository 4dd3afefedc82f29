//! Writes to the TIA that change something: what can be done without the beam is done here, the rest by
//! `tia::write`. `Context::shadow` keeps for each register a value whose write would change nothing.

use super::{Context, Handler, UNKNOWN, handler, leave};
use crate::machine::tia::objects::playfield_cells;
use crate::machine::tia::write::{enable, next_playfield, reshaped, write};
use crate::machine::tia::{self, BL, FORM_NORMAL, M0, PF, Tia};

const VBLANK: u32 = 0x01;
const NUSIZ0: u32 = 0x04;
const COLUP0: u32 = 0x06;
const CTRLPF: u32 = 0x0A;
const REFP0: u32 = 0x0B;
const PF0: u32 = 0x0D;
const PF2: u32 = 0x0F;
const RESP0: u32 = 0x10;
const GRP0: u32 = 0x1B;
const GRP1: u32 = 0x1C;
const ENAM0: u32 = 0x1D;
const ENABL: u32 = 0x1F;
const HMP0: u32 = 0x20;
const HMM0: u32 = 0x22;
const HMBL: u32 = 0x24;
const VDELP0: u32 = 0x25;
const VDELBL: u32 = 0x27;
const RESMP0: u32 = 0x28;
const HMOVE: u32 = 0x2A;
const HMCLR: u32 = 0x2B;

/// The value of GRP0 or GRP1 whose write changes nothing, old copies included.
fn known_graphics(t: &Tia, player: usize) -> u16 {
    let other = 1 - player;
    let moves_ball = player == 1 && t.enabl_old != t.enabl;
    if t.grp_old[other] == t.grp[other] && !moves_ball { u16::from(t.grp[player]) } else { UNKNOWN }
}

fn known_nusiz(t: &Tia, player: usize) -> u16 {
    let star = player == 0 && (t.star_field != 0 || t.missile0_form != FORM_NORMAL);
    if star || t.skip[player] != 0 { UNKNOWN } else { u16::from(t.nusiz[player]) }
}

fn known_ctrlpf(t: &Tia) -> u16 {
    if t.mirror == t.ctrlpf & 1 { u16::from(t.ctrlpf) } else { UNKNOWN }
}

/// Works out all of `shadow`.
pub fn fill_shadow(k: &mut Context) {
    let t = &k.m.tia;
    let s = &mut k.shadow;
    s[VBLANK as usize] = u16::from(t.vblank);
    s[CTRLPF as usize] = known_ctrlpf(t);
    for player in 0..2 {
        s[NUSIZ0 as usize + player] = known_nusiz(t, player);
        s[REFP0 as usize + player] = u16::from(t.reflect[player]) << 3;
        s[GRP0 as usize + player] = known_graphics(t, player);
        s[ENAM0 as usize + player] = u16::from(t.enam[player]) << 1;
        s[VDELP0 as usize + player] = u16::from(t.vdelp[player]);
        s[RESMP0 as usize + player] = u16::from(t.resmp[player]) << 1;
    }
    for i in 0..4 {
        s[COLUP0 as usize + i] = u16::from(t.color[i] & 0xFE);
    }
    s[PF0 as usize] = (t.playfield as u16 & 0xF) << 4;
    s[PF0 as usize + 1] = u16::from(((t.playfield >> 4) as u8).reverse_bits());
    s[PF2 as usize] = (t.playfield >> 12) as u16 & 0xFF;
    s[ENABL as usize] = u16::from(t.enabl) << 1;
    s[VDELBL as usize] = u16::from(t.vdelbl);
    for i in 0..5 {
        s[HMP0 as usize + i] = u16::from(t.motion[i]) << 4;
    }
}

/// Does a write that needs no beam. False: it has to go through `tia::write`.
#[inline(always)]
fn quick<const R: u32>(k: &mut Context, value: u32, cycles: u32) -> bool {
    let drawn = k.m.draw != 0;
    let t = &mut k.m.tia;
    match R {
        0x06..=0x09 => {
            if drawn {
                return false;
            }
            let loss = if t.layout.pal != 0 { t.last_lines as u8 & 1 } else { 0 };
            t.color[(R - COLUP0) as usize] = value as u8 & 0xFE | loss;
        }
        0x0B | 0x0C => {
            let player = (R - REFP0) as usize;
            if t.guard & tia::bit(player) != 0 {
                return false;
            }
            t.reflect[player] = (value >> 3 & 1) as u8;
            reshaped(t, tia::bit(player));
        }
        0x1B | 0x1C => {
            let player = (R - GRP0) as usize;
            let other = 1 - player;
            // Delayed graphics take the long way.
            if t.guard & 3 != 0 || t.vdelp[0] | t.vdelp[1] | t.vdelbl != 0 {
                return false;
            }
            if (value != 0) != (t.grp[player] != 0) {
                // SAFETY: the board outlives the run (`run` borrows it).
                enable(t, unsafe { &mut *k.board }, player, value != 0);
            }
            t.grp[player] = value as u8;
            t.graphics[player] = value as u8;
            t.grp_old[other] = t.grp[other];
            if player == 1 {
                t.enabl_old = t.enabl;
            }
            reshaped(t, tia::bit(player));
        }
        0x0D..=0x0F => {
            let old = t.playfield;
            let new = next_playfield(old, R - PF0, value);
            let changes = playfield_cells(old ^ new, t.mirror);
            // SAFETY: the board outlives the run (`run` borrows it).
            let board = unsafe { &mut *k.board };
            if drawn || t.near_stale != 0 || changes & (board.playfield_partners | board.any_cells) != 0 {
                return false;
            }
            t.playfield = new;
            board.cells[PF] ^= changes;
            t.enabled = t.enabled & !tia::bit(PF) | u8::from(new != 0) << PF;
            reshaped(t, tia::bit(PF));
        }
        0x1D | 0x1E => {
            let missile = (R - ENAM0) as usize;
            let on = value & 2 != 0;
            if t.guard & tia::bit(M0 + missile) != 0 {
                return false;
            }
            t.enam[missile] = u8::from(on);
            if t.resmp[missile] == 0 {
                // SAFETY: the board outlives the run (`run` borrows it).
                enable(t, unsafe { &mut *k.board }, M0 + missile, on);
                reshaped(t, tia::bit(M0 + missile));
            }
        }
        0x1F => {
            let on = value & 2 != 0;
            if t.guard & tia::bit(BL) != 0 {
                return false;
            }
            t.enabl = u8::from(on);
            if t.vdelbl == 0 {
                // SAFETY: the board outlives the run (`run` borrows it).
                enable(t, unsafe { &mut *k.board }, BL, on);
                reshaped(t, tia::bit(BL));
            }
        }
        0x20..=0x24 => {
            let nibble = (value >> 4) as u8;
            if R == HMM0 && t.motion[M0] == 7 && nibble == 6 {
                return false;
            }
            t.motion[(R - HMP0) as usize] = nibble;
        }
        HMOVE => {
            // Nothing moves, and no blank waits that belongs to another strobe.
            let cycle = cycles.wrapping_sub(k.origin_cycles) % tia::CYCLES_PER_LINE;
            let special = t.star_field | t.missile0_form | t.skip[0] | t.skip[1];
            if drawn || t.motion != [0; 5] || special != 0 || cycle > 12 {
                return false;
            }
            t.last_hmove = tia::clock_of(cycles);
            t.blank_pending |= t.layout.hmove_blanks;
        }
        _ => return false,
    }
    true
}

/// Brings `shadow` up to date after a write of `value`.
#[inline(always)]
fn remember<const R: u32>(k: &mut Context, value: u32) {
    let t = &k.m.tia;
    let s = &mut k.shadow;
    match R {
        VBLANK | 0x06..=0x09 | 0x0B..=0x0F | 0x1D | 0x1E | 0x20..=0x24 | 0x25..=0x29 => {
            s[R as usize] = value as u16;
            if R == HMM0 && t.star_field != 0 {
                s[NUSIZ0 as usize] = UNKNOWN;
            }
        }
        0x04 | 0x05 => {
            let known = known_nusiz(t, (R - NUSIZ0) as usize);
            s[R as usize] = if known == UNKNOWN { UNKNOWN } else { value as u16 };
        }
        CTRLPF => s[R as usize] = known_ctrlpf(t),
        0x10 | 0x11 => s[(R - RESP0 + NUSIZ0) as usize] = UNKNOWN,
        GRP0 | GRP1 | ENABL => {
            if R == ENABL {
                s[R as usize] = value as u16;
            }
            s[GRP0 as usize] = known_graphics(t, 0);
            s[GRP1 as usize] = known_graphics(t, 1);
        }
        HMCLR => s[HMP0 as usize..=HMBL as usize].fill(0),
        _ => {}
    }
}

/// A write to register `R`; the value is in bits 31-24 of `xy`, `ip` stands behind the instruction.
///
/// # Safety
/// As all of the chain.
unsafe fn store<const S: bool, const R: u32>(
    k: &mut Context,
    ip: *const u64,
    xy: u32,
    a: u32,
    cn: u64,
    f: u32,
) {
    // SAFETY: promised by the caller.
    unsafe {
        if quick::<R>(k, xy >> 24, (cn >> 16) as u32) {
            remember::<R>(k, xy >> 24);
            handler(*ip)(k, ip, xy & 0xFF_FFFF, a, cn, f)
        } else {
            full::<S, R>(k, ip, xy, a, cn, f)
        }
    }
}

/// The same through the chip.
///
/// # Safety
/// As all of the chain.
#[inline(never)]
unsafe fn full<const S: bool, const R: u32>(
    k: &mut Context,
    ip: *const u64,
    xy: u32,
    a: u32,
    cn: u64,
    f: u32,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let value = xy >> 24;
        k.m.bus = value;
        let stall = write(&mut k.m, &mut *k.board, (cn >> 16) as u32, R, value, false);
        remember::<R>(k, value);
        let cn = cn + (u64::from(stall) << 16);
        if k.m.tia.stop != 0 || k.m.eager != 0 {
            return leave::<S>(k, ip, xy & 0xFF_FFFF, a, cn, f);
        }
        handler(*ip)(k, ip, xy & 0xFF_FFFF, a, cn, f)
    }
}

/// The functions of all registers.
pub struct Stores<const S: bool>;

macro_rules! table {
    ($($r:literal)*) => { [$(store::<S, $r>),*] };
}

impl<const S: bool> Stores<S> {
    #[rustfmt::skip]
    pub const TABLE: [Handler; 64] = table![
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    ];
}
