//! The display processor of the DPC scheme: eight data fetchers, three of which can produce music, and a
//! random number register.
//!
//! Its registers are stored in `Cart::ram`, since a DPC cartridge has no RAM. A console reset does not change
//! them.
//!
//! Device subset.

use super::cart::{Cart, access_hotspot, read_segment};

pub const TOP: usize = 0;
pub const BOTTOM: usize = 8;
pub const FLAG: usize = 16;
/// Low and high bytes of the 11-bit counters.
pub const LOW: usize = 24;
pub const HIGH: usize = 32;
/// Nonzero if a fetcher is in music mode.
pub const MUSIC: usize = 40;
pub const RANDOM: usize = 48;
/// Offset of the display data in the image.
pub const DISPLAY: usize = 8192;
/// Frequencies of the music clock and of the processor, in Hz.
const MUSIC_HZ: f64 = 15750.0;
const CPU_HZ: f64 = 1_193_191.666_666_67;
/// Amplitude for each combination of the three voices.
const AMPLITUDE: [u32; 8] = [0, 4, 5, 9, 6, 10, 11, 15];

/// Initializes the registers when the ROM is loaded.
pub fn power_on(cart: &mut Cart) {
    cart.ram[RANDOM] = 1;
}

/// Clocks the random register. Every access that reaches the chip does.
pub fn clock_random(cart: &mut Cart) {
    let r: u32 = cart.ram[RANDOM] as u32;
    let bit: u32 = ((r >> 7) ^ (r >> 5) ^ (r >> 4) ^ (r >> 3) ^ 1) & 1;
    cart.ram[RANDOM] = (r << 1 | bit) as u8;
}

/// Reads an address outside `Cart::plain_low..plain_high`.
pub fn read(cart: &mut Cart, rom: &[u8], address: u32, now: u32) -> u32 {
    let offset: u32 = address & 0xFFF;
    clock_random(cart);
    if offset >= 0x040 {
        access_hotspot(cart, offset);
        return read_segment(cart, rom, address);
    }
    let f: usize = (offset & 7) as usize;
    if cart.ram[LOW + f] == cart.ram[TOP + f] {
        cart.ram[FLAG + f] = 0xFF;
    } else if cart.ram[LOW + f] == cart.ram[BOTTOM + f] {
        cart.ram[FLAG + f] = 0;
    }
    let counter: u32 = cart.ram[LOW + f] as u32 | (cart.ram[HIGH + f] as u32 & 7) << 8;
    let display: u32 = rom[DISPLAY + 2047 - counter as usize] as u32;
    let flag: u32 = cart.ram[FLAG + f] as u32;
    let mut value: u32 = 0;
    match offset >> 3 & 7 {
        0 => {
            if f < 4 {
                value = cart.ram[RANDOM] as u32;
            } else {
                update_music(cart, now);
                value = amplitude(cart);
            }
        }
        1 => {
            value = display;
        }
        2 => {
            value = display & flag;
        }
        7 => {
            value = flag;
        }
        _ => {}
    }
    if f < 5 || cart.ram[MUSIC + f] == 0 {
        // `update_music` may have changed the low byte of other fetchers, but not of this one.
        let next: u32 = counter.wrapping_sub(1) & 0x7FF;
        cart.ram[LOW + f] = next as u8;
        cart.ram[HIGH + f] = (next >> 8) as u8;
    }
    value
}

/// Writes to an address of the cartridge window.
pub fn write(cart: &mut Cart, offset: u32, value: u32, _now: u32) {
    clock_random(cart);
    if offset < 0x040 || offset >= 0x080 {
        access_hotspot(cart, offset);
        return;
    }
    let f: usize = (offset & 7) as usize;
    match offset >> 3 & 7 {
        0 => {
            cart.ram[TOP + f] = value as u8;
            cart.ram[FLAG + f] = 0;
        }
        1 => {
            cart.ram[BOTTOM + f] = value as u8;
        }
        2 => {
            if f >= 5 && cart.ram[MUSIC + f] != 0 {
                cart.ram[LOW + f] = cart.ram[TOP + f];
            } else {
                cart.ram[LOW + f] = value as u8;
            }
        }
        3 => {
            cart.ram[HIGH + f] = (value & 7) as u8;
            if f >= 5 {
                cart.ram[MUSIC + f] = (value >> 4 & 1) as u8;
            }
        }
        6 => {
            cart.ram[RANDOM] = 1;
        }
        _ => {}
    }
}

fn amplitude(cart: &Cart) -> u32 {
    let mut index: usize = 0;
    for i in 0..3 {
        if cart.ram[MUSIC + 5 + i] != 0 && cart.ram[FLAG + 5 + i] != 0 {
            index |= 1 << i;
        }
    }
    AMPLITUDE[index]
}

/// Advances the music counters to `now`. Double precision, evaluated from left to right: programs can read
/// the result.
fn update_music(cart: &mut Cart, now: u32) {
    let cycles: i32 = now.wrapping_sub(cart.music_at) as i32;
    cart.music_at = now;
    let kept: u64 = cart.fraction[0] as u64 | (cart.fraction[1] as u64) << 32;
    let fraction: f64 = f64::from_bits(kept);
    let clocks: f64 = MUSIC_HZ * cycles as f64 / CPU_HZ + fraction;
    let whole: i32 = clocks as i32;
    let rest: u64 = (clocks - whole as f64).to_bits();
    cart.fraction = [rest as u32, (rest >> 32) as u32];
    if whole <= 0 {
        return;
    }
    for f in 5..8 {
        if cart.ram[MUSIC + f] != 0 {
            let top: i32 = cart.ram[TOP + f] as i32;
            let mut low: i32 = 0;
            if top != 0 {
                low = cart.ram[LOW + f] as i32 - whole % (top + 1);
                if low < 0 {
                    low += top + 1;
                }
            }
            if low <= cart.ram[BOTTOM + f] as i32 {
                cart.ram[FLAG + f] = 0;
            } else if low <= top {
                cart.ram[FLAG + f] = 0xFF;
            }
            cart.ram[LOW + f] = low as u8;
        }
    }
}
