//! Mode selection and the actions that start a game, as the table says them. The few selections that do more are in
//! `rules::modes` and in what boots a console.
//!
//! Device subset.

use super::Rules;
use super::row::{Game, Press};
use super::rules::modes;
use super::table::GAMES;

/// No selection: the game has one mode and nothing to press.
pub const NO_SELECTION: u32 = 0;
/// There are no more starting actions.
pub const NO_ACTION: u8 = 255;

/// Frames that SELECT is held per try, or `NO_SELECTION`.
pub fn press_frames(game: usize) -> u32 {
    GAMES[game].select.frames
}

/// Frames that SELECT is held once before the tries begin.
pub fn first_press(game: usize) -> u32 {
    GAMES[game].select.before
}

/// True when RAM shows mode `m`.
pub fn reached(game: usize, m: i32, ram: &[u8; 128], cart_ram: &[u8; 128]) -> bool {
    modes::reached(&GAMES[game], m, ram, cart_ram)
}

/// What a selection does to the rule variables once the mode is reached.
pub fn on_reached(s: &mut Rules, game: usize, pressed: bool, ram: &[u8; 128]) {
    modes::on_reached(s, &GAMES[game], pressed, ram);
}

/// Starting action number `i` of a game, or `NO_ACTION`.
pub fn start_action(game: usize, i: u32) -> u8 {
    let row: &Game = &GAMES[game];
    let mut left: u32 = i;
    for part in 0..3 {
        let press: Press = row.start[part];
        if left < press.frames {
            return press.action;
        }
        left -= press.frames;
    }
    NO_ACTION
}
