//! The reset of an environment: boot or snapshot, idle frames and FIRE, and the first picture.
//!
//! Device subset.

use super::advance::{keep_pictures, put_before};
use super::boot::{self, fresh};
use super::{
    CLEAR_FIRST, CLEAR_ZERO, CONTINUES_LIFE, Extra, Head, LaneGame, LaneRules, NONE, NOOPS_AFTER_FIRE,
    PUSH_PICTURES, PUSH_RAM, Roll, Start, UNKNOWN_DRAWS, frame, height_bytes, idle_frames, put_pictures,
    rerun, start_number,
};
use crate::env::{self, NOOP, full};
use crate::machine::{Board, Machine};
use crate::random::{self, Random};
use crate::step;

/// The action code of FIRE.
const FIRE: u32 = 1;

/// True when [`quick`] can do the next reset: it begins with the boot state, from which all starts are known.
pub fn is_quick(head: &Head, settings: &LaneRules, game: &LaneGame) -> bool {
    let soft: bool = head.continues != 0 && head.unused == 0;
    let snapshot: bool = head.unused != 0 || settings.snapshot != 0;
    game.start_frames != 0 && snapshot && !soft
}

/// As [`reset`], where [`is_quick`]: takes the start that the draws lead to, and runs at most two frames to draw them.
#[inline(never)]
pub fn quick(
    head: &mut Head,
    extra: &mut Extra,
    random: &mut Random,
    spare: &mut Random,
    board: &mut Board,
    boot_pictures: &[u8],
    starts: &[Start],
    rom: &[u8],
    settings: &LaneRules,
    game: &LaneGame,
) {
    board.front.on = 1;
    let idle: u32 = idle_frames(head, spare, settings.noops, settings.noop_max, game.fires);
    random::skip(random, game.boot_draws);
    let acts: u32 = idle + game.fires;
    let fire_at: u32 = if settings.noops == NOOPS_AFTER_FIRE { 0 } else { idle };
    extra.failed = 0;
    extra.kept = 0;
    if acts < 2 && settings.draws != 0 {
        // What is shown goes back to the boot.
        head.state = game.boot;
        put_pictures(board, boot_pictures, height_bytes(game), game);
        let mut roll: Roll = Roll { recent: settings.none, middle: head.state.machine, open: 0 };
        for i in 0..acts {
            let code: u32 = if game.fires != 0 && i == fire_at { FIRE } else { NOOP as u32 };
            env::hold(&mut head.state, random, settings.rules.keep, full(code), full(0));
            env::set_held_inputs(&mut head.state);
            head.state.machine.draw = 1;
            frame(&mut roll, &mut head.state, board, rom);
        }
        head.recent = roll.recent;
        keep_pictures(extra, head.recent.whole);
    } else {
        let mut fired: u32 = 0;
        let mut held: bool = false;
        for i in 0..acts {
            let chance: f64 = random::draw(random) as f64 / 4_294_967_296.0;
            if chance >= settings.rules.keep {
                held = game.fires != 0 && i == fire_at;
            }
            if held {
                fired += 1;
            }
            // The second player's.
            random::draw(random);
        }
        let number: usize = (game.start_at + start_number(settings.noops, acts, fired)) as usize;
        head.state = starts[number].state;
        head.recent = starts[number].recent;
        if settings.draws != 0 {
            let mut machine: Machine = head.recent.from;
            rerun(&mut machine, &head.recent.inputs, 0, 2, board, rom);
        }
    }
    finish(head, extra, settings, false);
}

/// What the episode that begins carries on of the game's return; `soft` says that the reset goes on with the game.
pub fn carried(head: &Head, soft: bool) -> i32 {
    if soft && head.continues == CONTINUES_LIFE { head.carried.wrapping_add(head.episode.total) } else { 0 }
}

/// What is counted and shown after a reset.
fn finish(head: &mut Head, extra: &mut Extra, settings: &LaneRules, soft: bool) {
    head.unused = 0;
    head.ready = (extra.failed == 0) as u8;
    head.carried = carried(head, soft);
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

/// Brings the console to the first observation of an episode. `boot_pictures` are the two of the game's boot, `spare` and
/// `saved` room for generators.
#[inline(never)]
pub fn reset(
    head: &mut Head,
    extra: &mut Extra,
    random: &mut Random,
    spare: &mut Random,
    saved: &mut Random,
    board: &mut Board,
    kept: &[u8],
    boot_pictures: &[u8],
    rom: &[u8],
    settings: &LaneRules,
    game: &LaneGame,
) {
    let soft: bool = head.continues != 0 && head.unused == 0;
    let fire: u32 = game.fires;
    board.front.on = 1;
    let idle: u32 = idle_frames(head, spare, settings.noops, settings.noop_max, fire);
    let before: Head = *head;
    *saved = *random;
    extra.failed = 0;
    begin(head, extra, random, spare, board, kept, boot_pictures, rom, settings, game, idle, soft, false);
    if head.recent.whole < 2 && settings.draws != 0 {
        *head = before;
        *random = *saved;
        begin(head, extra, random, spare, board, kept, boot_pictures, rom, settings, game, idle, soft, true);
    }
    finish(head, extra, settings, soft);
}

/// Boots and plays idle frames and FIRE. Pixels are made for the last two frames, or for all with `everything`.
#[inline(never)]
fn begin(
    head: &mut Head,
    extra: &mut Extra,
    random: &mut Random,
    spare: &mut Random,
    board: &mut Board,
    kept: &[u8],
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
            put_pictures(board, boot_pictures, height_bytes(game), game);
        }
    } else if head.unused != 0 {
        // Boot and sticky draws depend on each other: nothing is known in advance.
        extra.failed |= fresh(head, random, spare, board, rom, game, everything) as u8;
    } else {
        extra.failed |= boot::restart(&mut head.state, random, spare, board, rom, game, everything) as u8;
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
            extra.failed |= boot::restart(&mut head.state, random, spare, board, rom, game, everything) as u8;
            roll.recent = settings.none;
        }
    }
    head.recent = roll.recent;
    // The pictures on the board are exact only where everything was drawn.
    if head.recent.whole >= 2 || everything {
        keep_pictures(extra, head.recent.whole);
    }
}
