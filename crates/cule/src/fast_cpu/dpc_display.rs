//! Reads of a DPC cartridge's data fetchers: those that `machine::dpc::read` executes, except music.

use crate::machine::cart::Cart;
use crate::machine::dpc::{BOTTOM, DISPLAY, FLAG, HIGH, LOW, MUSIC, RANDOM, TOP, clock_random};

/// Reads an offset below $40. Returns 0x100 if it is the music. Equal to `dpc::read`.
#[inline(always)]
pub fn read(cart: &mut Cart, image: &[u8], offset: u32) -> u32 {
    let (f, function) = ((offset & 7) as usize, offset >> 3 & 7);
    if function == 0 && f >= 4 {
        return 0x100;
    }
    let counter = usize::from(cart.ram[LOW + f]) | usize::from(cart.ram[HIGH + f] & 7) << 8;
    let Some(&display) = image.get(DISPLAY + 2047 - counter) else { return 0x100 };
    clock_random(cart);
    if cart.ram[LOW + f] == cart.ram[TOP + f] {
        cart.ram[FLAG + f] = 0xFF;
    } else if cart.ram[LOW + f] == cart.ram[BOTTOM + f] {
        cart.ram[FLAG + f] = 0;
    }
    if f < 5 || cart.ram[MUSIC + f] == 0 {
        let next = counter.wrapping_sub(1) & 0x7FF;
        cart.ram[LOW + f] = next as u8;
        cart.ram[HIGH + f] = (next >> 8) as u8;
    }
    u32::from(match function {
        0 => cart.ram[RANDOM],
        1 => display,
        2 => display & cart.ram[FLAG + f],
        7 => cart.ram[FLAG + f],
        _ => 0,
    })
}
