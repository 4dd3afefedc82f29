//! Serializes an environment to bytes: everything its future depends on, portable between processes and runs.
//! Host only.
//!
//! A row is a header, the fixed part, the generator of sticky actions, the planes of the stack and, for the
//! few environments that have them, two or three kept pictures. All numbers are little-endian. Rows of one
//! array have the length of the longest; the others are padded with zeros, which the checksum does not cover.
//! As in ale-py, sound is not part of a state: an environment that loads one goes on with its own.

use std::mem::offset_of;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::game::Game;
use super::pictures::Pictures;
use super::slot::Slot;
use crate::CuleError;
use crate::env::State;
use crate::env::state::{EnvSettings, Head, LastFrames};
use crate::machine::{self, input};
use crate::random::{self, Random};

const MAGIC: [u8; 8] = *b"parl-env";
/// Format version. Incremented whenever the layout after the header changes.
pub const VERSION: u32 = 4;
/// Bytes of the part that all rows have, after the header.
const FIXED: usize = size_of::<Head>() + size_of::<Random>();
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
    /// Checksum of the header, with this field 0, and of what follows it, without the padding.
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
    row_bytes_without_pictures(slot) + picture_bytes(slot)
}

/// Bytes of a row for an environment of these settings that keeps no pictures, without padding.
pub(super) fn row_bytes_without_pictures(slot: &Slot) -> usize {
    size_of::<Header>() + FIXED + slot.planes.len()
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
    let padding = rest.len();
    header.checksum = checksum([bytemuck::bytes_of(&header), &body[..body.len() - padding]]);
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
    let sound = like.sound.clone();
    let slot = Slot { game: like.game, head, random, planes, pictures: None, sound, second_reward: 0 };
    slot.check(game, rules).map_err(bad)?;
    Ok(slot)
}

/// True if a row is of this game, with its mode, difficulty and changes; false if the row is too short.
pub(super) fn is_of(row: &[u8], game: &Game) -> bool {
    let Some((header, body)) = row.split_at_checked(size_of::<Header>()) else { return false };
    let Some(state) = body.get(..size_of::<State>()) else { return false };
    let state: State = bytemuck::pod_read_unaligned(state);
    let key = |state: &State| (state.rules.mode, state.env.difficulty, state.variation);
    bytemuck::pod_read_unaligned::<Header>(header).game as usize == game.row
        && key(&state) == key(&game.env_game.boot)
}

/// The header of a row, and what follows it without the padding.
fn content(row: &[u8]) -> Result<(Header, &[u8]), CuleError> {
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
    let length = FIXED + header.planes as usize + header.pictures as usize;
    if body.len() < length {
        return Err(bad(format!("{} bytes follow the header, expected {length}", body.len())));
    }
    let (content, padding) = body.split_at(length);
    let sum = |body| checksum([bytemuck::bytes_of(&Header { checksum: 0, ..header }), body]);
    let found = sum(content);
    // Rows of earlier versions of parl have the checksum of content and padding.
    if found != header.checksum && (padding.is_empty() || sum(body) != header.checksum) {
        return Err(bad(format!("its checksum is {found:016x}, expected {:016x}: damaged", header.checksum)));
    }
    if let Some(byte) = padding.iter().find(|&&byte| byte != 0) {
        return Err(bad(format!("a byte of its padding is {byte}, expected 0: damaged")));
    }
    Ok((header, content))
}

fn bad(reason: String) -> CuleError {
    CuleError::State { reason }
}

/// Reads a row of `game`, whose index in the batch is `index`, into a new slot, which has no sound.
pub(super) fn load(row: &[u8], index: usize, game: &Game, rules: &EnvSettings) -> Result<Slot, CuleError> {
    let (header, content) = content(row)?;
    if header.game != game.row as u32 {
        let name =
            crate::games::table::GAMES.get(header.game as usize).map_or("an unknown game", |row| row.name);
        return Err(bad(format!("it is of {name}, expected {}", game.name())));
    }
    let planes = rules.stack as usize * game.screen.size_bytes();
    if header.planes as usize != planes {
        let (found, expected) = (header.planes, planes);
        return Err(bad(format!("its observation has {found} bytes, expected {expected}: other settings")));
    }
    let pictures = header.pictures as usize;
    let buffers = game.boot_pictures.len();
    if ![0, buffers, buffers + buffers / 2].contains(&pictures) {
        return Err(bad(format!("its pictures have {pictures} bytes, expected 0, {buffers} or 3/2 of that")));
    }
    let (head, rest) = content.split_at(size_of::<Head>());
    let (random, rest) = rest.split_at(size_of::<Random>());
    let (planes, pictures) = rest.split_at(planes);
    let slot = Slot {
        game: index,
        head: bytemuck::pod_read_unaligned(head),
        random: Box::new(bytemuck::pod_read_unaligned(random)),
        planes: planes.into(),
        pictures: (!pictures.is_empty()).then(|| Box::new(Pictures::from_bytes(pictures))),
        sound: None,
        second_reward: 0,
    };
    slot.check(game, rules).map_err(bad)?;
    Ok(slot)
}

/// The console and the rules of a row, with everything cleared on which neither frames nor rewards under
/// given actions depend: inputs of the last frame, held actions, frame counters, and draws of generators.
/// Two rows with the same bytes continue alike without sticky actions, apart from limits on frames and steps.
///
/// # Errors
/// [`CuleError::State`] if the row is damaged or no row of an environment.
pub fn console_bytes(row: &[u8]) -> Result<Vec<u8>, CuleError> {
    let (header, content) = content(row)?;
    let head: Head = bytemuck::pod_read_unaligned(&content[..size_of::<Head>()]);
    let mut state = head.state;
    state.machine = machine::canonical_state(&state.machine);
    state.machine.input = input::idle();
    state.machine.tia.buffer = 0;
    state.machine.draws = 0;
    state.rules.reward = 0;
    state.env.frame_number = 0;
    state.env.episode_frame_number = 0;
    state.env.held = [0, 0];
    state.env.held_step = [0, 0];
    state.second_return = 0;
    let flags = [head.ready, head.episode.ended, head.continues, 0];
    Ok([&header.game.to_le_bytes(), &flags[..], bytemuck::bytes_of(&state)].concat())
}
