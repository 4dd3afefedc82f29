//! Execution while every access to the TIA draws (`Machine::access_by_access`): separate *watching records*,
//! whose functions leave instructions that may access the TIA to the plain interpreter, and execute all
//! others as usual.

use super::handlers::{self, HANDLERS, NONE, NUMBER};
use super::{Context, Record, slow};
use crate::machine::instructions::{INSTRUCTIONS, Mode};

/// Function of a watching record, by operand class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The regular function.
    Never,
    /// [`watch`] for class `PLAIN`: stack instructions.
    Stack,
    /// [`watch`] for class `INDEX`.
    Index,
    /// The plain interpreter.
    Always,
}

/// Returns how an instruction of this operand class is watched.
pub fn watch_of(opcode: u8, class: usize) -> Watch {
    match class {
        handlers::PLAIN
            if matches!(INSTRUCTIONS[usize::from(opcode)].name, "PHA" | "PHP" | "PLA" | "PLP") =>
        {
            Watch::Stack
        }
        handlers::INDEX => Watch::Index,
        handlers::TIA_READ | handlers::TRIGGER | handlers::STORE | handlers::WSYNC | handlers::TIA_UNUSED => {
            Watch::Always
        }
        _ => Watch::Never,
    }
}

/// True for an address of the TIA.
fn is_tia(address: u32) -> bool {
    address & 0x1080 == 0
}

/// True if the instruction with these bytes may access the TIA.
fn may_access_tia(k: &Context, bytes: [u8; 3], xy: u32, class: usize) -> bool {
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

chain! {
    /// Executes an instruction whose operand of class `C` may be in the TIA.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`); `ip` points to a watching record.
    pub unsafe fn watch[const S: bool, const C: usize](k, ip, xy, a, cn, f) {
        // SAFETY: `Code` uses this function only if the instruction's bytes are in one bank and the instruction
        // has a function of this class.
        unsafe {
            let place = (ip as usize - k.records as usize) / size_of::<Record>();
            let bytes = std::array::from_fn(|i| *k.rom.add(place + i));
            let number = *NUMBER.get_unchecked(usize::from(bytes[0])).get_unchecked(C);
            if number == NONE || may_access_tia(k, bytes, xy, C) {
                return slow::<S>(k, ip, xy, a, cn, f);
            }
            HANDLERS::<S>::TABLE.get_unchecked(usize::from(number))(k, ip, xy, a, cn, f)
        }
    }
}
