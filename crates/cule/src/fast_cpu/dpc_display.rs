//! DPC cartridges: reads of the data fetchers, those that `machine::dpc::read` executes except music, and code
//! between the plain ROM and the hotspots, whose bytes clock the random register when they are fetched.

use std::ops::Range;

use super::handlers::{self, HANDLERS, NUMBER};
use super::{Code, Context, Handler, Record, slow};
use crate::machine::cart::Cart;
use crate::machine::dpc::{BOTTOM, DISPLAY, FLAG, HIGH, LOW, MUSIC, RANDOM, TOP, clock_random};
use crate::machine::instructions::{INSTRUCTIONS, Mode};

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

/// Offsets in the window, after the plain ROM and before the hotspots.
pub const CLOCKED: Range<usize> = 0xFC0..0xFF8;

/// The function of an instruction in `CLOCKED`; `None` if the plain interpreter executes it. An instruction that may
/// need the plain interpreter after its bytes were fetched has none.
pub fn clocked_function<const S: bool>(opcode: u8, class: usize) -> Option<Handler> {
    let instruction = &INSTRUCTIONS[usize::from(opcode)];
    let jumps = matches!(instruction.name, "JSR" | "RTS" | "RTI" | "BRK");
    let uses_stack = instruction.mode == Mode::Imp && instruction.cycles != 2;
    Some(match class {
        handlers::PLAIN if !jumps && !uses_stack => clocked::<S, { handlers::PLAIN }>,
        handlers::RAM => clocked::<S, { handlers::RAM }>,
        handlers::STORE => clocked::<S, { handlers::STORE }>,
        handlers::WSYNC => clocked::<S, { handlers::WSYNC }>,
        handlers::TIA_UNUSED => clocked::<S, { handlers::TIA_UNUSED }>,
        handlers::DPC => clocked::<S, { handlers::DPC }>,
        _ => return None,
    })
}

chain! {
    /// Executes an instruction in `CLOCKED` whose operand has class `C`.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`); `clocked_function` has returned this function for the opcode at
    /// `ip`.
    unsafe fn clocked[const S: bool, const C: usize](k, ip, xy, a, cn, f) {
        // More than the cycles of an instruction, times 2^16.
        const MOST: u64 = 16 << 16;
        // SAFETY: guaranteed by the caller.
        unsafe {
            // The functions of the classes take the slow path for these reasons only.
            if k.m.cpu.decimal != 0 || cn + MOST >= k.limit {
                return slow::<S>(k, ip, xy, a, cn, f);
            }
            let place = (ip as usize - k.records as usize) / size_of::<Record>();
            let opcode = *k.rom.add(place);
            for _ in 0..Code::length(opcode) {
                clock_random(&mut k.m.cart);
            }
            let number = usize::from(*NUMBER.get_unchecked(usize::from(opcode)).get_unchecked(C));
            HANDLERS::<S>::TABLE.get_unchecked(number)(k, ip, xy, a, cn, f)
        }
    }
}
