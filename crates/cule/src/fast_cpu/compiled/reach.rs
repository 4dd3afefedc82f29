//! Which instructions of an image are compiled.

use std::collections::BTreeSet;

use super::assembler::Assembler;
use super::{Compiler, Kind, Mapping, State, length};
use crate::machine::instructions::{INSTRUCTIONS, Mode};

/// Instructions after which the next one is not at the next address.
const ENDS: [&str; 4] = ["JMP", "RTS", "RTI", "BRK"];
/// Addresses (13 bits) from which on an access may switch banks.
const HOTSPOTS: usize = 0x1FE0;
const WINDOW_BYTES: usize = 4096;
const VECTORS: [usize; 3] = [0xFFA, 0xFFC, 0xFFE];

impl Compiler<'_> {
    /// Finds the instructions that the program can reach, as far as that is visible in the image, and those that follow
    /// an unconditional jump. Returns the image offsets of those that are reached by a jump.
    pub(super) fn find(&mut self) -> BTreeSet<usize> {
        let mut heads = BTreeSet::new();
        let mut open = vec![];
        let Mapping { bank: size, .. } = self.mapping;
        for bank in (0..self.image.len()).step_by(size) {
            for vector in VECTORS {
                let vector = bank + vector % size;
                if let Some(&[low, high]) = self.image.get(vector..vector + 2) {
                    open.push(bank + (usize::from(low) | usize::from(high) << 8) % size);
                }
            }
        }
        heads.extend(open.iter().copied());
        while let Some(at) = open.pop() {
            if at >= self.image.len() || self.kinds[at] != Kind::Unknown {
                continue;
            }
            let opcode = self.image[at];
            self.kinds[at] = if self.is_supported(at) { Kind::Compiled } else { Kind::Left };
            let bank = at / size * size;
            let next = at + length(opcode);
            let (row, word) = (&INSTRUCTIONS[usize::from(opcode)], self.word(at));
            let mut head = |place: usize| {
                heads.insert(place);
                open.push(place);
            };
            if next / size * size != bank {
                continue;
            }
            if ENDS.contains(&row.name) || self.kinds[at] == Kind::Left {
                head(next);
            }
            match row.mode {
                Mode::Rel => {
                    let to = next.wrapping_add_signed(self.image[at + 1] as i8 as isize);
                    if to / size * size == bank {
                        head(to);
                    }
                }
                Mode::Abs if matches!(row.name, "JMP" | "JSR") && word & 0x1000 != 0 => match self
                    .target(at, word)
                {
                    Some(to) => head(to),
                    // Any block may be mapped there.
                    None => (0..self.image.len()).step_by(size).for_each(|other| head(other + word % size)),
                },
                Mode::Abs | Mode::Absx | Mode::Absy if word & 0x1FFF >= HOTSPOTS => {
                    for other in (0..self.image.len()).step_by(size) {
                        head(other + next % size);
                    }
                }
                _ => {}
            }
            if row.name == "JSR" {
                head(next);
            }
            open.push(next);
        }
        heads.retain(|&at| self.kinds.get(at) == Some(&Kind::Compiled));
        heads
    }

    /// The image offset that a jump at `at` to `address` leads to, if it is always the same.
    pub(super) fn target(&self, at: usize, address: usize) -> Option<usize> {
        let Mapping { bank, segmented, last_fixed } = self.mapping;
        if !segmented {
            return Some(at / bank * bank + address % bank);
        }
        let place = address % WINDOW_BYTES;
        (last_fixed && place >= WINDOW_BYTES - bank).then(|| self.image.len() - bank + place % bank)
    }

    /// The two bytes after an opcode.
    fn word(&self, at: usize) -> usize {
        let byte = |at: usize| self.image.get(at).map_or(0, |&byte| usize::from(byte));
        byte(at + 1) | byte(at + 2) << 8
    }

    /// True if the instruction can be compiled.
    fn is_supported(&mut self, at: usize) -> bool {
        let supported = self.instruction(at).is_some();
        self.out = Assembler::default();
        self.stores.clear();
        self.stubs.clear();
        self.state = State::default();
        supported
    }
}
