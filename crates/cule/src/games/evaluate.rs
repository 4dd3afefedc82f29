//! Evaluates the RAM of a frame by a game's rules: reward, lives, end of the episode.
//!
//! Device subset.

use super::row::*;
use super::rules::{boards, contests, ends, lives, quests, scores};
use super::table::GAMES;
use super::{Rules, byte, digits};

// Indices in `Rules::aux` of the variables that only some rules have.
pub const STARTED: usize = 0;
pub const LEVEL: usize = 1;
pub const CHANGED: usize = 2;
pub const IDLE: usize = 3;
pub const PLAYER: usize = 4;
pub const OPPONENT: usize = 5;
pub const TIME: usize = 6;
pub const TIME_BEFORE: usize = 7;
pub const MATCHES: usize = 8;
pub const PAR: usize = 9;
pub const HITS: usize = 10;
pub const STATUS: usize = 11;
pub const BASE: usize = 12;
pub const LAST: usize = 13;
pub const GAMES_AHEAD: usize = 14;
pub const POINTS_AHEAD: usize = 15;
pub const FACES: usize = 16;
/// Number of these variables.
pub const AUX_COUNT: usize = 19;

/// Sets the rule variables at the start of an episode.
pub fn start_values(s: &mut Rules, game: usize) {
    let row: &Game = &GAMES[game];
    s.reward = 0;
    s.over = 0;
    s.previous = row.start_score;
    if row.start_lives >= 0 {
        s.lives = row.start_lives;
    }
    // Video Cube's clock continues over a reset.
    let time: [i32; 2] = [s.aux[TIME], s.aux[TIME_BEFORE]];
    s.aux = [0; AUX_COUNT];
    match row.special {
        Special::Hangman => {
            s.aux[TIME] = -1;
            s.aux[TIME_BEFORE] = -1;
        }
        Special::Qbert => s.aux[LAST] = 2,
        Special::Riverraid => s.aux[LAST] = 0x58,
        Special::VideoCube => {
            s.aux[TIME] = time[0];
            s.aux[TIME_BEFORE] = time[1];
        }
        _ => {}
    }
}

/// Applies the rules of `game` to the RAM of one frame. Without rules the reward is 0 and the episode does
/// not end.
pub fn evaluate(s: &mut Rules, game: usize, ram: &[u8; 128], cart_ram: &[u8; 128]) {
    let row: &Game = &GAMES[game];
    if row.flags & RULES_FOR_TWO != 0 && s.mode == 0 {
        return;
    }
    match row.special {
        Special::Adventure => quests::adventure(s, ram),
        Special::Darkchambers => quests::darkchambers(s, ram),
        Special::HauntedHouse => quests::haunted_house(s, ram),
        Special::Superman => quests::superman(s, ram),
        Special::Backgammon => boards::backgammon(s, ram),
        Special::Hangman => boards::hangman(s, ram),
        Special::TicTacToe3d => boards::tic_tac_toe_3d(s, ram),
        Special::VideoCheckers => boards::video_checkers(s, ram),
        Special::VideoChess => boards::video_chess(s, ram),
        Special::VideoCube => boards::video_cube(s, ram),
        Special::WordZapper => boards::word_zapper(s, ram),
        Special::Casino => contests::casino(s, ram),
        Special::MiniatureGolf => contests::miniature_golf(s, ram),
        Special::Tennis => contests::tennis(s, ram),
        _ => evaluate_row(s, row, ram, cart_ram),
    }
}

/// Evaluates a game that has a score.
fn evaluate_row(s: &mut Rules, row: &Game, ram: &[u8; 128], cart_ram: &[u8; 128]) {
    let score: i32 = scores::score(row, ram, cart_ram);
    let ended: bool = ends::ended(s, row, score, ram, cart_ram);
    s.over = ended as u8;
    if ended && row.score.silent_end {
        s.reward = 0;
    } else {
        let mut earned: i32 = score - s.previous;
        if earned < 0 {
            earned += row.score.wraps_at;
        }
        s.reward = scores::earned(row, earned.clamp(row.score.least, row.score.most));
        s.previous = scores::kept(row, score, ended);
    }
    lives::count(s, row, ram);
}

/// The score that a row of the table describes.
pub fn sum_of(score: &Score, ram: &[u8; 128]) -> i32 {
    let mut sum: i32 = 0;
    for i in 0..6 {
        let weight: i32 = score.terms[i].weight;
        if weight == 0 {
            break;
        }
        sum += weight * number(score.terms[i].form, byte(ram, score.terms[i].address as i32));
    }
    score.unit * sum
}

/// Decodes the number in a byte.
fn number(form: Form, value: i32) -> i32 {
    match form {
        Form::Byte => value,
        Form::Bcd => digits(value as u8),
        Form::Low => value & 15,
        Form::LowOrBlank => blank_zero(value & 15),
        Form::High => value >> 4,
        Form::HighOrBlank => blank_zero(value >> 4),
        Form::Alien => {
            if value == 0x80 {
                0
            } else {
                value >> 3
            }
        }
        Form::Eighth => {
            if value & 7 == 0 && value <= 72 {
                value / 8
            } else {
                0
            }
        }
    }
}

fn blank_zero(digit: i32) -> i32 {
    if digit == 10 { 0 } else { digit }
}

/// True if the condition that a row of the table describes holds.
pub fn is_end(end: &End, score: i32, ram: &[u8; 128]) -> bool {
    if end.score != 0 && score == end.score {
        return true;
    }
    if holds(end.or, ram) {
        return true;
    }
    for i in 0..4 {
        if !holds(end.all[i], ram) {
            return false;
        }
    }
    true
}

fn holds(condition: Condition, ram: &[u8; 128]) -> bool {
    let value: i32 = byte(ram, condition.address as i32) & condition.mask as i32;
    match condition.compare {
        Compare::Always => true,
        Compare::Never => false,
        Compare::Is => value == condition.value as i32,
        Compare::IsNot => value != condition.value as i32,
        Compare::Above => value > condition.value as i32,
    }
}
