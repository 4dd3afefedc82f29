//! The chain while every access of the TIA counts (`Machine::eager`): records of their own, whose functions leave an
//! instruction that may meet the TIA to the plain interpreter and do all others as ever.

use super::handlers::{self, HANDLERS, NONE, NUMBER};
use super::{Context, slow};
use crate::machine::instructions::{INSTRUCTIONS, Mode};

/// What the watching records hold for a kind of operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The function itself.
    Never,
    /// [`watch`] for plain operands: the stack.
    Stack,
    /// [`watch`] for indexed ones.
    Index,
    /// The plain interpreter.
    Always,
}

/// When an instruction of this kind meets the TIA.
pub fn when(opcode: u8, class: usize) -> Watch {
    match class {
        handlers::PLAIN
            if matches!(INSTRUCTIONS[usize::from(opcode)].name, "PHA" | "PHP" | "PLA" | "PLP") =>
        {
            Watch::Stack
        }
        handlers::INDEX => Watch::Index,
        handlers::TIA_READ | handlers::TRIGGER | handlers::STORE | handlers::WSYNC | handlers::QUIET => {
            Watch::Always
        }
        _ => Watch::Never,
    }
}

/// True for an address of the TIA.
fn is_tia(address: u32) -> bool {
    address & 0x1080 == 0
}

/// True when the instruction with these bytes may meet the TIA.
fn meets(k: &Context, bytes: [u8; 3], xy: u32, class: usize) -> bool {
    if class == handlers::PLAIN {
        return !(0x81..0xFF).contains(&k.m.cpu.s);
    }
    let [opcode, low, high] = bytes.map(u32::from);
    let word = low | high << 8;
    let (x, y) = (xy & 0xFF, xy >> 8 & 0xFF);
    let ram = |at: u32| u32::from(k.m.riot.ram[(at & 0x7F) as usize]);
    let pointer = |at: u32| (0x80..0xFF).contains(&at).then(|| ram(at) | ram(at + 1) << 8);
    let crosses = |base: u32, index: u32| {
        let at = base + index;
        is_tia(at) || is_tia(base & 0xFF00 | at & 0xFF)
    };
    match INSTRUCTIONS[opcode as usize].mode {
        Mode::Zpx => is_tia((low + x) & 0xFF),
        Mode::Zpy => is_tia((low + y) & 0xFF),
        Mode::Abs => is_tia(word),
        Mode::Absx => crosses(word, x),
        Mode::Absy => crosses(word, y),
        Mode::Indx => pointer((low + x) & 0xFF).is_none_or(is_tia),
        Mode::Indy => pointer(low).is_none_or(|base| crosses(base, y)),
        _ => true,
    }
}

/// An instruction whose operand of kind `C` may lie in the TIA.
///
/// # Safety
/// As all of the chain; `ip` stands on a watching record.
pub unsafe fn watch<const S: bool, const C: usize>(
    k: &mut Context,
    ip: *const u64,
    xy: u32,
    a: u32,
    cn: u64,
    f: u32,
) {
    // SAFETY: `Code` puts this function only where the instruction's bytes lie in one bank, and an instruction that has
    // a function of this kind.
    unsafe {
        let place = (ip as usize - k.records as usize) >> 3;
        let bytes = std::array::from_fn(|i| *k.rom.add(place + i));
        let number = *NUMBER.get_unchecked(usize::from(bytes[0])).get_unchecked(C);
        if number == NONE || meets(k, bytes, xy, C) {
            return slow::<S>(k, ip, xy, a, cn, f);
        }
        HANDLERS::<S>::TABLE.get_unchecked(usize::from(number))(k, ip, xy, a, cn, f)
    }
}
