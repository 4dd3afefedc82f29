//! Writes to the TIA. Those that change something are passed to `FastTia`; `Context::shadow` holds for each
//! register a value whose write changes nothing.

use super::{Context, Handler, Record, UNKNOWN, leave};
use crate::machine::tia::write::write;
use crate::machine::tia::{self, FORM_NORMAL, Tia};

const VSYNC: u32 = 0x00;
const VBLANK: u32 = 0x01;
const NUSIZ0: u32 = 0x04;
const COLUP0: u32 = 0x06;
const CTRLPF: u32 = 0x0A;
const REFP0: u32 = 0x0B;
const PF0: u32 = 0x0D;
const PF2: u32 = 0x0F;
const RESP0: u32 = 0x10;
const AUDC0: u32 = 0x15;
const AUDV1: u32 = 0x1A;
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
const CXCLR: u32 = 0x2C;

/// The value of GRP0 or GRP1 whose write changes nothing, including the delayed copies.
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

/// Recomputes all of `shadow`.
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

/// Updates `shadow` after a write of `value`.
#[cfg(not(processor_alone))]
#[inline(always)]
fn remember<const R: u32>(k: &mut Context, value: u32) {
    let t = &k.m.tia;
    let s = &mut k.shadow;
    match R {
        VBLANK | COLUP0..=0x09 | REFP0..=0x0C | PF0..=PF2 | ENAM0..=0x1E | HMP0..=HMBL | VDELP0..=0x29 => {
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
        RESP0 | 0x11 => s[(R - RESP0 + NUSIZ0) as usize] = UNKNOWN,
        GRP0 | GRP1 => {
            // The write has copied the graphics of the other player, and GRP1 also ENABL.
            s[R as usize] = value as u16;
            let other = (GRP1 - R) as usize;
            s[GRP0 as usize + other] = known_graphics(t, other);
        }
        ENABL => {
            s[R as usize] = value as u16;
            s[GRP1 as usize] = known_graphics(t, 1);
        }
        HMCLR => s[HMP0 as usize..=HMBL as usize].fill(0),
        _ => {}
    }
}

/// True for registers that `FastTia` implements. The others have no effect on the picture, except VSYNC and
/// WSYNC.
const fn is_known(register: u32) -> bool {
    matches!(register, VBLANK | 0x04..=0x14 | 0x1B..=CXCLR)
}

/// A write that changes something, in builds that measure the processor alone
/// (`benches/python/processor.py`): it is added to a list, and no collisions are computed.
#[cfg(processor_alone)]
#[inline(always)]
fn change<const R: u32, const Q: bool>(k: &mut Context, value: u32, cycles: u32) -> bool {
    k.writes[k.written as usize % super::WRITES] = cycles << 16 | R << 8 | value;
    k.written += 1;
    if R == VBLANK {
        k.m.tia.vblank = value as u8;
    }
    if matches!(R, VBLANK | 0x04..=0x0F | ENAM0..=HMBL | VDELP0..=0x29) {
        k.shadow[R as usize] = value as u16;
    }
    true
}

/// Executes a write to register `R`. With `Q`, calls no function; returns false, with no lasting change, if one is
/// needed.
#[cfg(not(processor_alone))]
#[inline(always)]
fn change<const R: u32, const Q: bool>(k: &mut Context, value: u32, cycles: u32) -> bool {
    if R == VBLANK {
        // The paddles' capacitors.
        let t = &mut k.m.tia;
        let grounded = value as u8 & 0x80;
        if (t.vblank ^ grounded) & 0x80 != 0 {
            t.dump = grounded >> 7;
            if grounded == 0 {
                t.dump_release = cycles as i32;
            }
        }
    }
    // SAFETY: the board outlives the run (`run` borrows it).
    let picture = unsafe { &mut (*k.board).picture };
    let clock = tia::clock_of(cycles);
    if k.tia.write::<Q>(&mut k.m.tia, picture, clock, R, value as u8).is_none() {
        return false;
    }
    k.board_outdated = true;
    k.tia_changed_at = clock;
    remember::<R>(k, value);
    true
}

/// True if a write to a register rarely needs a function call, in a frame that is drawn or in one that is not.
const fn is_quick(register: u32, drawn: bool) -> bool {
    match register {
        0x12..=0x14 | HMP0..=HMBL | HMCLR => true,
        0x04..=0x0F | RESP0 | 0x11 | GRP0..=ENABL | HMOVE => !drawn,
        _ => false,
    }
}

chain! {
    /// A write to register `R`. The value is in bits 31-24 of `xy`; `ip` is after the instruction.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`).
    unsafe fn store[const S: bool, const R: u32](k, ip, xy, a, cn, f) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if R <= 0x02 && R != VBLANK {
                return store_sync::<S, R>(k, ip, xy, a, cn, f);
            }
            // A function that calls another one saves the registers of the chain, so the calls are in `store_fully`.
            let quick = is_quick(R, true) || is_quick(R, false) && !k.tia.draws();
            if is_known(R) && !(quick && change::<R, true>(k, xy >> 24, (cn >> 16) as u32)) {
                return store_fully::<S, R>(k, ip, xy, a, cn, f);
            }
            if R >= AUDC0 && R <= AUDV1 {
                (*k.board).sound[(R - AUDC0) as usize] = (xy >> 24) as u8;
            }
            ((*ip).function)(k, ip, xy & 0xFF_FFFF, a, cn, f)
        }
    }
}

chain! {
    /// As `store`, for a write that may need function calls.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`).
    #[inline(never)]
    unsafe fn store_fully[const S: bool, const R: u32](k, ip, xy, a, cn, f) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            change::<R, false>(k, xy >> 24, (cn >> 16) as u32);
            ((*ip).function)(k, ip, xy & 0xFF_FFFF, a, cn, f)
        }
    }
}

chain! {
    /// A write to VSYNC, or one to WSYNC whose address was computed at execution.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`).
    #[inline(never)]
    unsafe fn store_sync[const S: bool, const R: u32](k, ip, xy, a, cn, f) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let value = xy >> 24;
            k.m.bus = value;
            let cycles = (cn >> 16) as u32;
            let clock = tia::clock_of(cycles);
            let mut stall = 0;
            if R == VSYNC && k.m.draw != 0 && value & 2 != 0 && clock >= k.m.tia.window_end {
                // The picture is complete, whenever the frame ends.
                k.m.tia.arm = clock.wrapping_add(tia::CLOCKS_PER_LINE);
            } else {
                let ends = R == VSYNC && value & 2 == 0 && clock >= k.m.tia.arm;
                if ends {
                    k.advance_tia(clock);
                } else if R == VSYNC && k.m.draw != 0 {
                    k.update_board();
                }
                stall = write(&mut k.m, &mut *k.board, cycles, R, value, false);
            }
            let cn = cn + (u64::from(stall) << 16);
            if k.m.tia.stop != 0 || k.m.access_by_access != 0 {
                return leave::<S>(k, ip, xy & 0xFF_FFFF, a, cn, f);
            }
            ((*ip).function)(k, ip, xy & 0xFF_FFFF, a, cn, f)
        }
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
