//! Writes to the TIA that change something: kept as events for `raster`. `Context::shadow` keeps for each register a
//! value whose write would change nothing; what it needs to know of the chip is followed here, since the chip's own
//! state waits for the events.

use super::{Context, Handler, UNKNOWN, handler, leave, raster};
use crate::machine::tia::hmove::STAR_FIELD_CLOCKS;
use crate::machine::tia::write::{MIRROR_CLOCKS, write};
use crate::machine::tia::{self, CYCLES_PER_LINE, FORM_NORMAL, M0, Tia};

const VSYNC: u32 = 0x00;
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
const CXCLR: u32 = 0x2C;
/// Motion nibbles before and after the write of HMM0 that starts the star field.
const STAR_MOTION: (u16, u32) = (7, 6);

/// What is followed of the chip while its events wait.
#[derive(Default)]
pub struct Followed {
    vblank: u8,
    grp: [u8; 2],
    grp_old: [u8; 2],
    enabl: u8,
    enabl_old: u8,
    /// Missile 0 may be a star.
    star: bool,
    last_hmove: i32,
}

impl Followed {
    fn of(t: &Tia) -> Self {
        Self {
            vblank: t.vblank,
            grp: t.grp,
            grp_old: t.grp_old,
            enabl: t.enabl,
            enabl_old: t.enabl_old,
            star: t.star_field != 0 || t.missile0_form != FORM_NORMAL,
            last_hmove: t.last_hmove,
        }
    }

    /// The value of GRP0 or GRP1 whose write changes nothing, old copies included.
    fn known_graphics(&self, player: usize) -> u16 {
        let other = 1 - player;
        let moves_ball = player == 1 && self.enabl_old != self.enabl;
        if self.grp_old[other] == self.grp[other] && !moves_ball {
            u16::from(self.grp[player])
        } else {
            UNKNOWN
        }
    }
}

/// Works out all of `shadow`; no event waits.
pub fn fill_shadow(k: &mut Context) {
    let t = &k.m.tia;
    let s = &mut k.shadow;
    k.followed = Followed::of(t);
    s[VBLANK as usize] = u16::from(t.vblank);
    s[CTRLPF as usize] = if t.mirror == t.ctrlpf & 1 { u16::from(t.ctrlpf) } else { UNKNOWN };
    for player in 0..2 {
        let special = player == 0 && k.followed.star || t.skip[player] != 0;
        s[NUSIZ0 as usize + player] = if special { UNKNOWN } else { u16::from(t.nusiz[player]) };
        s[REFP0 as usize + player] = u16::from(t.reflect[player]) << 3;
        s[GRP0 as usize + player] = k.followed.known_graphics(player);
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

/// Brings `shadow` and what it stands on up to date with a write of `value` to register `R`.
#[inline(always)]
fn follow<const R: u32>(k: &mut Context, value: u32, cycles: u32) {
    let s = &mut k.shadow;
    let c = &mut k.followed;
    match R {
        VBLANK => {
            let t = &mut k.m.tia;
            let grounded = value as u8 & 0x80;
            if (c.vblank ^ grounded) & 0x80 != 0 {
                t.dump = grounded >> 7;
                if grounded == 0 {
                    t.dump_release = cycles as i32;
                }
            }
            c.vblank = value as u8;
            s[R as usize] = value as u16;
        }
        HMM0 => {
            let star_time = c.last_hmove.wrapping_add(STAR_FIELD_CLOCKS) == tia::clock_of(cycles);
            if star_time && (s[R as usize] >> 4, value >> 4) == STAR_MOTION {
                c.star = true;
                s[NUSIZ0 as usize] = UNKNOWN;
            }
            s[R as usize] = value as u16;
        }
        COLUP0..=0x09 | REFP0..=0x0C | PF0..=PF2 | ENAM0..=0x1E | HMP0..=HMBL | VDELP0..=0x29 => {
            s[R as usize] = value as u16;
        }
        0x04 | 0x05 => {
            s[R as usize] = if R == NUSIZ0 && c.star { UNKNOWN } else { value as u16 };
        }
        CTRLPF => {
            // Late in a line, bit 0 does not take effect before the next row.
            let phase = cycles.wrapping_sub(k.origin_cycles) % CYCLES_PER_LINE;
            let before = s[R as usize];
            let sure = before != UNKNOWN && (u32::from(before) ^ value) & 1 == 0;
            s[R as usize] = if sure || 3 * phase < MIRROR_CLOCKS as u32 { value as u16 } else { UNKNOWN };
        }
        RESP0 | 0x11 => s[(R - RESP0 + NUSIZ0) as usize] = UNKNOWN,
        GRP0 | GRP1 => {
            let player = (R - GRP0) as usize;
            let other = 1 - player;
            c.grp[player] = value as u8;
            c.grp_old[other] = c.grp[other];
            if R == GRP1 {
                c.enabl_old = c.enabl;
            }
            s[GRP0 as usize] = c.known_graphics(0);
            s[GRP1 as usize] = c.known_graphics(1);
        }
        ENABL => {
            c.enabl = (value >> 1 & 1) as u8;
            s[R as usize] = value as u16;
            s[GRP1 as usize] = c.known_graphics(1);
        }
        HMOVE => {
            c.last_hmove = tia::clock_of(cycles);
            c.star = false;
        }
        HMCLR => s[HMP0 as usize..=HMBL as usize].fill(0),
        _ => {}
    }
}

/// True for registers whose writes the beam has to know of.
const fn is_event(register: u32) -> bool {
    matches!(register, VBLANK | 0x04..=0x14 | 0x1B..=CXCLR)
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
    // SAFETY: promised by the caller; `waiting` is below `EVENTS` here.
    unsafe {
        if R <= 0x02 && R != VBLANK {
            return full::<S, R>(k, ip, xy, a, cn, f);
        }
        if is_event(R) {
            let cycles = (cn >> 16) as u32;
            let waiting = k.waiting;
            *k.events.add(waiting) = raster::event(cycles.wrapping_mul(3), R, xy >> 24);
            k.waiting = waiting + 1;
            follow::<R>(k, xy >> 24, cycles);
            if waiting + 1 == raster::EVENTS {
                return crowded::<S>(k, ip, xy, a, cn, f);
            }
        }
        handler(*ip)(k, ip, xy & 0xFF_FFFF, a, cn, f)
    }
}

/// Works off the events when no more can wait.
///
/// # Safety
/// As all of the chain.
#[cold]
#[inline(never)]
unsafe fn crowded<const S: bool>(k: &mut Context, ip: *const u64, xy: u32, a: u32, cn: u64, f: u32) {
    k.work_off();
    // SAFETY: promised by the caller.
    unsafe { handler(*ip)(k, ip, xy & 0xFF_FFFF, a, cn, f) }
}

/// A write to VSYNC, or one to WSYNC that came as data.
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
        let cycles = (cn >> 16) as u32;
        let clock = tia::clock_of(cycles);
        let mut stall = 0;
        if R == VSYNC && k.m.draw != 0 && value & 2 != 0 && clock >= k.m.tia.window_end {
            // The picture is complete wherever the frame ends now.
            k.m.tia.arm = clock.wrapping_add(tia::CLOCKS_PER_LINE);
        } else {
            let ends = R == VSYNC && value & 2 == 0 && clock >= k.m.tia.arm;
            if ends {
                k.look(clock);
            } else if R == VSYNC && k.m.draw != 0 {
                k.hand_over();
            }
            stall = write(&mut k.m, &mut *k.board, cycles, R, value, false);
        }
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

const _: () = assert!(M0 as u32 == HMM0 - HMP0, "motion registers stand in the order of the objects");
