//! The reset of an environment: boot or snapshot, idle frames and FIRE, and the first picture.
//!
//! Device subset.

use super::advance::{keep_pictures, put_before};
use super::boot::{self, fresh};
use super::{
    CLEAR_FIRST, CLEAR_ZERO, Extra, Head, LaneGame, LaneRules, NONE, NOOPS_AFTER_FIRE, PUSH_PICTURES,
    PUSH_RAM, Roll, UNKNOWN_DRAWS, copy_picture, frame, height_bytes, idle_frames,
};
use crate::env::{self, NOOP, full};
use crate::machine::Board;
use crate::random::{self, Random};
use crate::step;

/// The action code of FIRE.
const FIRE: u32 = 1;

/// Brings the console to the first observation of an episode. `boot_pictures` are the two of the game's boot.
#[inline(never)]
pub fn reset(
    head: &mut Head,
    extra: &mut Extra,
    random: &mut Random,
    board: &mut Board,
    kept: &mut [u8],
    boot_pictures: &[u8],
    rom: &[u8],
    settings: &LaneRules,
    game: &LaneGame,
) {
    let soft: bool = head.continues != 0 && head.unused == 0;
    let fire: u32 = game.fires;
    let idle: u32 = idle_frames(head, settings.noops, settings.noop_max, fire);
    let before: Head = *head;
    let generator: Random = *random;
    extra.failed = 0;
    begin(head, extra, random, board, kept, boot_pictures, rom, settings, game, idle, soft, false);
    if head.recent.whole < 2 && settings.draws != 0 {
        *head = before;
        *random = generator;
        begin(head, extra, random, board, kept, boot_pictures, rom, settings, game, idle, soft, true);
    }
    head.unused = 0;
    head.ready = (extra.failed == 0) as u8;
    head.continues = 0;
    head.episode = step::begin_episode(&head.state);
    head.single = 1;
    head.newest = (head.newest + 1) % settings.stack;
    extra.picture = [NONE, NONE, NONE];
    extra.push = PUSH_RAM;
    extra.clear = 0;
    if settings.draws != 0 {
        extra.picture[0] = head.state.machine.tia.buffer & 1;
        extra.push = PUSH_PICTURES;
    }
    if !soft {
        extra.clear = if settings.pads_first != 0 { CLEAR_FIRST } else { CLEAR_ZERO };
    }
}

/// Boots and plays idle frames and FIRE. Pixels are made for the last two frames, or for all with `everything`.
#[inline(never)]
fn begin(
    head: &mut Head,
    extra: &mut Extra,
    random: &mut Random,
    board: &mut Board,
    kept: &mut [u8],
    boot_pictures: &[u8],
    rom: &[u8],
    settings: &LaneRules,
    game: &LaneGame,
    idle: u32,
    soft: bool,
    everything: bool,
) {
    let snapshot: bool = head.unused != 0 || settings.snapshot != 0;
    if soft {
        if everything {
            put_before(head, extra, board, kept, rom, settings, game);
        }
    } else if snapshot && game.boot_draws != UNKNOWN_DRAWS {
        head.state = game.boot;
        random::skip(random, game.boot_draws);
        if everything {
            let bytes: usize = height_bytes(game);
            copy_picture(&mut board.picture[0], 0, boot_pictures, 0, bytes);
            copy_picture(&mut board.picture[1], 0, boot_pictures, bytes, bytes);
        }
    } else if head.unused != 0 {
        // Boot and sticky draws depend on each other: nothing is known in advance.
        extra.failed |= fresh(head, random, board, rom, game, everything) as u8;
    } else {
        extra.failed |= boot::restart(&mut head.state, random, board, rom, game, everything) as u8;
    }
    let acts: u32 = idle + game.fires;
    let fire_at: u32 = if settings.noops == NOOPS_AFTER_FIRE { 0 } else { idle };
    let mut roll: Roll = Roll { recent: settings.none, middle: head.state.machine, open: 0 };
    for i in 0..acts {
        let code: u32 = if game.fires != 0 && i == fire_at { FIRE } else { NOOP as u32 };
        env::hold(&mut head.state, random, settings.rules.keep, full(code), full(0));
        if env::ended(&head.state) {
            continue;
        }
        env::set_held_inputs(&mut head.state);
        head.state.machine.draw = (everything || i + 2 >= acts) as u8;
        frame(&mut roll, &mut head.state, board, rom);
        if head.state.rules.over != 0 {
            extra.failed |= boot::restart(&mut head.state, random, board, rom, game, everything) as u8;
            roll.recent = settings.none;
        }
    }
    head.recent = roll.recent;
    // The pictures on the board are exact only where everything was drawn.
    if head.recent.whole >= 2 || everything {
        keep_pictures(extra, board, kept, head.recent.whole, settings, game);
    }
}
