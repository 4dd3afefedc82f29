//! Serializes an environment to bytes: everything its future depends on, portable between processes and runs.
//! Host only.
//!
//! A row is a header, the fixed part, the generator of sticky actions, the planes of the stack and, for the
//! few environments that have them, two or three kept pictures. All numbers are little-endian.

use std::mem::offset_of;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::game::Game;
use super::pictures::Pictures;
use super::slot::Slot;
use crate::CuleError;
use crate::env::state::{EnvSettings, Head, LastFrames};
use crate::machine;
use crate::random::{self, Random};

const MAGIC: [u8; 8] = *b"parl-env";
/// Format version. Incremented whenever the layout after the header changes.
pub const VERSION: u32 = 2;
const OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01B3;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
struct Header {
    magic: [u8; 8],
    version: u32,
    game: u32,
    /// Bytes of the planes.
    planes: u32,
    /// Bytes of the kept pictures, 0 without them.
    pictures: u32,
    /// Checksum of the header, with this field 0, and of everything after it.
    checksum: u64,
}

/// Checksum over eight bytes at a time, FNV-1a with a rotation; any flipped bit changes it.
fn checksum(parts: [&[u8]; 2]) -> u64 {
    let mut hash = OFFSET;
    for part in parts {
        for chunk in part.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(PRIME).rotate_left(23);
        }
    }
    hash
}

fn picture_bytes(slot: &Slot) -> usize {
    slot.pictures.as_ref().map_or(0, |pictures| pictures.size_bytes())
}

/// Bytes of a row for this environment, without padding.
pub(super) fn row_bytes(slot: &Slot) -> usize {
    size_of::<Header>() + size_of::<Head>() + size_of::<Random>() + slot.planes.len() + picture_bytes(slot)
}

/// Writes the state of `slot` into `row`; the rest of `row` is filled with zeros.
pub(super) fn save(slot: &Slot, game: &Game, row: &mut [u8]) {
    let mut header = Header {
        magic: MAGIC,
        version: VERSION,
        game: game.row as u32,
        planes: slot.planes.len() as u32,
        pictures: picture_bytes(slot) as u32,
        checksum: 0,
    };
    let (head, body) = row.split_at_mut(size_of::<Header>());
    let pictures = slot.pictures.as_ref().map_or(vec![], |pictures| pictures.bytes());
    let mut rest = &mut body[..];
    // Fields that record only how the machine was drawn are cleared: environments with equal futures give
    // equal rows.
    let mut fixed = slot.head;
    fixed.state.machine = machine::canonical_state(&fixed.state.machine);
    fixed.last_frames.start = machine::canonical_state(&fixed.last_frames.start);
    for part in [bytemuck::bytes_of(&fixed), bytemuck::bytes_of(&*slot.random), &slot.planes, &pictures] {
        let (target, left) = rest.split_at_mut(part.len());
        target.copy_from_slice(part);
        rest = left;
    }
    rest.fill(0);
    header.checksum = checksum([bytemuck::bytes_of(&header), body]);
    head.copy_from_slice(bytemuck::bytes_of(&header));
}

/// Bytes of [`LastFrames`] in [`Head`], which the next step replaces.
const FRAMES: Range<usize> =
    offset_of!(Head, last_frames)..offset_of!(Head, last_frames) + size_of::<LastFrames>();
/// Bytes of a core.
const CORE_BYTES: usize = size_of::<Head>() - size_of::<LastFrames>() + size_of::<u32>();

/// What the next steps of an environment without pictures and without a stack depend on: the fixed part
/// without its last frames, and the position of the generator of sticky actions, whose words are not
/// included. Of the current version of states.
pub(super) fn save_core(slot: &Slot) -> Vec<u8> {
    let mut fixed = slot.head;
    fixed.state.machine = machine::canonical_state(&fixed.state.machine);
    let bytes = bytemuck::bytes_of(&fixed);
    [&bytes[..FRAMES.start], &bytes[FRAMES.end..], &slot.random.position.to_le_bytes()].concat()
}

/// Makes a slot of a core and of the words of its generator. Its observation and its last frames are missing
/// until its next step.
pub(super) fn load_core(
    core: &[u8],
    words: &[u8],
    like: &Slot,
    game: &Game,
    rules: &EnvSettings,
) -> Result<Slot, CuleError> {
    let bad = |reason: String| CuleError::State { reason };
    if rules.draws != 0 || rules.stack != 1 {
        return Err(bad("its environment shows pictures or a stack".into()));
    }
    if core.len() != CORE_BYTES {
        return Err(bad(format!("{} bytes are not a core, expected {CORE_BYTES}", core.len())));
    }
    if words.len() != 4 * random::STATE_WORDS {
        let expected = 4 * random::STATE_WORDS;
        return Err(bad(format!(
            "{} bytes are not the words of a generator, expected {expected}",
            words.len()
        )));
    }
    let (core, position) = core.split_at(CORE_BYTES - size_of::<u32>());
    let (before, after) = core.split_at(FRAMES.start);
    let mut head: Head = Zeroable::zeroed();
    let bytes = bytemuck::bytes_of_mut(&mut head);
    bytes[..FRAMES.start].copy_from_slice(before);
    bytes[FRAMES.end..].copy_from_slice(after);
    let mut random = Box::new(random::seeded(0));
    bytemuck::cast_slice_mut(&mut random.words).copy_from_slice(words);
    random.position = bytemuck::pod_read_unaligned(position);
    let planes = vec![0; like.planes.len()].into();
    let slot = Slot { game: like.game, head, random, planes, pictures: None };
    slot.check(game, rules).map_err(bad)?;
    Ok(slot)
}

/// Reads a row into a new slot with the game and the plane sizes of `like`.
pub(super) fn load(row: &[u8], like: &Slot, game: &Game, rules: &EnvSettings) -> Result<Slot, CuleError> {
    let bad = |reason: String| CuleError::State { reason };
    let (head, body) = row
        .split_at_checked(size_of::<Header>())
        .ok_or_else(|| bad(format!("{} bytes are less than a header", row.len())))?;
    let header: Header = bytemuck::pod_read_unaligned(head);
    if header.magic != MAGIC {
        return Err(bad("it does not begin with the magic bytes of an environment's state".into()));
    }
    if header.version != VERSION {
        return Err(bad(format!("version {}, expected {VERSION}", header.version)));
    }
    if header.game != game.row as u32 {
        let name =
            crate::games::table::GAMES.get(header.game as usize).map_or("an unknown game", |row| row.name);
        return Err(bad(format!("it is of {name}, expected {}", game.name())));
    }
    if header.planes as usize != like.planes.len() {
        let (found, expected) = (header.planes, like.planes.len());
        return Err(bad(format!("its observation has {found} bytes, expected {expected}: other settings")));
    }
    let pictures = header.pictures as usize;
    let buffers = game.boot_pictures.len();
    if ![0, buffers, buffers + buffers / 2].contains(&pictures) {
        return Err(bad(format!("its pictures have {pictures} bytes, expected 0, {buffers} or 3/2 of that")));
    }
    let fixed = size_of::<Head>() + size_of::<Random>();
    let length = fixed + like.planes.len() + pictures;
    if body.len() < length {
        return Err(bad(format!("{} bytes follow the header, expected {length}", body.len())));
    }
    let found = checksum([bytemuck::bytes_of(&Header { checksum: 0, ..header }), body]);
    if found != header.checksum {
        return Err(bad(format!("its checksum is {found:016x}, expected {:016x}: damaged", header.checksum)));
    }
    let (head, rest) = body.split_at(size_of::<Head>());
    let (random, rest) = rest.split_at(size_of::<Random>());
    let (planes, rest) = rest.split_at(like.planes.len());
    let slot = Slot {
        game: like.game,
        head: bytemuck::pod_read_unaligned(head),
        random: Box::new(bytemuck::pod_read_unaligned(random)),
        planes: planes.into(),
        pictures: (pictures != 0).then(|| Box::new(Pictures::from_bytes(&rest[..pictures]))),
    };
    slot.check(game, rules).map_err(bad)?;
    Ok(slot)
}
