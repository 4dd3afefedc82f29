//! Saved states: the state that determines a console's future, as bytes.

use bytemuck::{Pod, Zeroable};

use super::Console;
use crate::CuleError;
use crate::env::State;
use crate::machine::{self, cart};
use crate::random::{self, Random};

/// First bytes of every saved state.
const MAGIC: [u8; 8] = *b"parl2600";
/// Version of the format of saved states.
const STATE_VERSION: u32 = 2;

/// Header of a saved state; it must equal that of the console that loads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
struct Header {
    magic: [u8; 8],
    version: u32,
    image: u32,
    large_ram: u32,
    has_generator: u32,
}

/// Hash of a ROM image (FNV-1a).
pub(super) fn fingerprint(image: &[u8]) -> u32 {
    image.iter().fold(0x811C_9DC5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl Console {
    // ------------------------------------------------------------ saved states

    /// Returns the state as bytes. Equal states give equal bytes, whichever pictures were read. `generator`:
    /// include the environment's generator, so that sticky actions repeat too.
    pub fn save(&mut self, generator: bool) -> Vec<u8> {
        self.advance_open_frame();
        let large_ram = cart::large_ram_bytes(&self.state.machine.cart) as usize;
        let header = self.header(generator);
        // The index of the picture buffer belongs to the pictures, which saved states do not contain.
        let mut state = State { machine: machine::canonical_state(&self.state.machine), ..self.state };
        state.machine.tia.buffer = 0;
        let mut bytes = Vec::with_capacity(size_of::<Header>() + size_of::<State>() + large_ram);
        bytes.extend_from_slice(bytemuck::bytes_of(&header));
        bytes.extend_from_slice(bytemuck::bytes_of(&state));
        bytes.extend_from_slice(&self.board.ram[..large_ram]);
        if generator {
            bytes.extend_from_slice(bytemuck::bytes_of(&self.env_random));
        }
        bytes
    }

    fn header(&self, generator: bool) -> Header {
        Header {
            magic: MAGIC,
            version: STATE_VERSION,
            image: self.fingerprint,
            large_ram: cart::large_ram_bytes(&self.state.machine.cart),
            has_generator: u32::from(generator),
        }
    }

    /// Restores a saved state of the same ROM. The picture is unchanged until the next frame; the options are
    /// kept.
    ///
    /// # Errors
    /// [`CuleError::State`]: another ROM or version, or damaged bytes.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), CuleError> {
        let bad = |reason: String| CuleError::State { reason };
        let (head, rest) = bytes
            .split_at_checked(size_of::<Header>())
            .ok_or_else(|| bad(format!("{} bytes are less than a header", bytes.len())))?;
        let header: Header = bytemuck::pod_read_unaligned(head);
        let expected = self.header(header.has_generator == 1);
        if header != expected {
            return Err(bad(format!("its header is {header:?}, expected {expected:?}")));
        }
        let large_ram = header.large_ram as usize;
        let generator = if header.has_generator == 1 { size_of::<Random>() } else { 0 };
        let length = size_of::<State>() + large_ram + generator;
        if rest.len() != length {
            return Err(bad(format!("{} bytes follow the header, expected {length}", rest.len())));
        }
        let (state, rest) = rest.split_at(size_of::<State>());
        let (ram, random) = rest.split_at(large_ram);
        let mut state: State = bytemuck::pod_read_unaligned(state);
        machine::check(&state.machine, &self.state.machine).map_err(bad)?;
        if state.env.game != self.state.env.game {
            return Err(bad(format!("game {}, expected {}", state.env.game, self.state.env.game)));
        }
        if !self.modes().contains(&state.rules.mode) {
            return Err(bad(format!("mode {}, expected one of {:?}", state.rules.mode, self.modes())));
        }
        if generator != 0 {
            let random: Random = bytemuck::pod_read_unaligned(random);
            if random.position as usize > random::STATE_WORDS {
                return Err(bad(format!("generator position {} is out of range", random.position)));
            }
            self.env_random = random;
        }
        state.machine.tia.buffer = self.state.machine.tia.buffer;
        state.env.frame_limit = self.state.env.frame_limit;
        state.env.life_limit = self.state.env.life_limit;
        self.state = state;
        self.board.ram[..large_ram].copy_from_slice(ram);
        Ok(())
    }
}
