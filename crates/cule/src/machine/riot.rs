//! RIOT: 128 bytes of RAM, the two ports that programs read, and the interval timer.
//!
//! The state holds the time and value of the last timer write. The current value is computed when it is read.
//!
//! Device subset.

use bytemuck::{Pod, Zeroable};

use super::Machine;

/// State of the chip. Times are CPU cycles, shifted together with the cycle counter; differences wrap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Riot {
    /// The console's RAM.
    pub ram: [u8; 128],
    /// Cycle of the last timer write.
    pub set_at: u32,
    /// Cycle of the first INTIM read after expiry.
    pub latched_at: u32,
    /// Value of the last timer write.
    pub timer: u8,
    /// Log2 of the prescaler: 0, 3, 6 or 10.
    pub shift: u8,
    /// INTIM was read after expiry.
    pub latched: u8,
    /// Data direction of port A.
    pub direction_a: u8,
}

/// Returns the chip after power-on.
pub fn new(ram: &[u8; 128]) -> Riot {
    let mut riot: Riot =
        Riot { ram: [0; 128], set_at: 0, latched_at: 0, timer: 0, shift: 6, latched: 0, direction_a: 0 };
    for i in 0..128 {
        riot.ram[i] = ram[i];
    }
    riot
}

/// Console reset: the timer starts at 25 + draw mod 75 with a prescaler of 64. RAM is kept.
pub fn reset(riot: &mut Riot, draw: u32) {
    riot.timer = (25 + draw % 75) as u8;
    riot.shift = 6;
    riot.set_at = 0;
    riot.latched = 0;
    riot.direction_a = 0;
}

/// Subtracts `cycles` from every stored time.
pub fn rebase(riot: &mut Riot, cycles: u32) {
    riot.set_at = riot.set_at.wrapping_sub(cycles);
    riot.latched_at = riot.latched_at.wrapping_sub(cycles);
}

/// Reads register `address` mod 8 at time `now`.
pub fn read(m: &mut Machine, address: u32, now: u32) -> u32 {
    match address & 7 {
        0 => {
            return m.input.port_a as u32;
        }
        1 => {
            return m.riot.direction_a as u32;
        }
        2 => {
            return m.input.switches as u32;
        }
        3 => {
            return 0;
        }
        4 | 6 => {
            return read_timer(&mut m.riot, now);
        }
        _ => {
            return read_status(&m.riot, now);
        }
    }
}

/// Remaining value of the timer, negative after expiry. In the cycle of the write itself no time has passed,
/// and the subtraction of one cycle gives 2^32 - 1: expired, unless the prescaler is 1. Only code in the
/// chip's own registers can read then.
fn remaining(riot: &Riot, now: u32) -> i32 {
    let passed: u32 = now.wrapping_sub(riot.set_at).wrapping_sub(1) >> riot.shift;
    (riot.timer as u32).wrapping_sub(passed).wrapping_sub(1) as i32
}

/// Reads INTIM.
pub fn read_timer(riot: &mut Riot, now: u32) -> u32 {
    let left: i32 = remaining(riot, now);
    if left >= 0 {
        return (left & 0xFF) as u32;
    }
    let elapsed: u32 = now.wrapping_sub(riot.set_at);
    let expiry: u32 = (riot.timer as u32) << riot.shift;
    // Signed comparison: a reading more than 2^31 cycles (half an hour) after the write is not latched.
    if elapsed as i32 >= expiry.wrapping_add(2) as i32 && riot.latched == 0 {
        riot.latched = 1;
        riot.latched_at = now;
    }
    if riot.latched == 0 {
        return expiry.wrapping_sub(elapsed) & 0xFF;
    }
    let late: u32 = riot.latched_at.wrapping_sub(riot.set_at).wrapping_sub(expiry);
    (left as u32).wrapping_add(1).wrapping_sub(late) & 0xFF
}

/// Number of INTIM reads at `first`, `first + period`, ... that return neither zero nor an expired timer nor,
/// if `until_zero` is false, a value with bit 7 set. A program that polls the timer can skip these
/// iterations.
pub fn waiting_reads(riot: &Riot, first: u32, period: u32, until_zero: bool) -> u32 {
    let elapsed: u32 = first.wrapping_sub(riot.set_at);
    let start: u32 = riot.timer as u32;
    if start < 2 {
        return 0;
    }
    let last: u32 = (start - 1) << riot.shift;
    let shown: u32 = start.wrapping_sub(elapsed.wrapping_sub(1) >> riot.shift).wrapping_sub(1);
    if elapsed == 0 || elapsed > last || (!until_zero && shown >= 0x80) {
        return 0;
    }
    (last - elapsed) / period + 1
}

/// Reads INSTAT.
fn read_status(riot: &Riot, now: u32) -> u32 {
    if remaining(riot, now) >= 0 || riot.latched != 0 {
        return 0;
    }
    0x80
}

/// Writes a register at time `now`.
pub fn write(riot: &mut Riot, address: u32, value: u32, now: u32) {
    let register: u32 = address & 7;
    if register == 1 {
        riot.direction_a = value as u8;
    }
    if register >= 4 && address & 0x10 != 0 {
        riot.timer = value as u8;
        riot.shift = match register & 3 {
            0 => 0,
            1 => 3,
            2 => 6,
            _ => 10,
        };
        riot.set_at = now;
        riot.latched = 0;
    }
}

#[cfg(not(device))]
#[cfg(test)]
mod tests {
    use super::*;

    fn chip(register: u32, value: u32) -> Riot {
        let mut riot = new(&[0; 128]);
        write(&mut riot, register, value, 100);
        riot
    }

    #[test]
    fn at_the_very_cycle_of_a_write_only_prescale_1_is_not_expired() {
        // INTIM reads value x prescaler mod 256; INSTAT reads expired, unless the prescaler is 1.
        for (register, intim, instat) in
            [(0x14, 0x23, 0), (0x15, 0x18, 0x80), (0x16, 0xC0, 0x80), (0x17, 0, 0x80)]
        {
            let mut riot = chip(register, 0x23);
            assert_eq!((read_timer(&mut riot, 100), read_status(&riot, 100)), (intim, instat));
            // One cycle later the readings are the regular ones.
            assert_eq!((read_timer(&mut riot, 101), read_status(&riot, 101)), (0x22, 0));
        }
    }

    #[test]
    fn long_after_a_write_no_reading_is_kept() {
        let mut riot = chip(0x16, 1);
        let late: u32 = 100 + (1 << 31) + 64;
        assert_eq!(read_timer(&mut riot, late), 0);
        assert_eq!(read_timer(&mut riot, late + 14), 0xF2);
        assert_eq!(read_status(&riot, late + 14), 0x80);
    }
}
