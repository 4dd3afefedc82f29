//! Mode selection and the actions that start a game, from the table of games. Exceptions are in
//! `rules::modes` and in the boot of a console.
//!
//! Device subset.

use super::Rules;
use super::row::{Game, Press, SELECTS_FOR_TWO};
use super::rules::modes;
use super::table::GAMES;

/// The game has no mode selection.
pub const NO_SELECTION: u32 = 0;
/// There is no further starting action.
pub const NO_ACTION: u8 = 255;

/// Frames for which SELECT is pressed per attempt to reach a mode, or `NO_SELECTION`.
pub fn press_frames(game: usize, mode: u32) -> u32 {
    let row: &Game = &GAMES[game];
    if mode == 0 && row.flags & SELECTS_FOR_TWO != 0 { NO_SELECTION } else { row.select.frames }
}

/// Frames for which SELECT is pressed once before the attempts.
pub fn first_press(game: usize) -> u32 {
    GAMES[game].select.before
}

/// True if RAM shows mode `m`.
pub fn reached(game: usize, m: i32, ram: &[u8; 128], cart_ram: &[u8; 128]) -> bool {
    modes::reached(&GAMES[game], m, ram, cart_ram)
}

/// Sets the rule variables after the mode has been reached.
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
