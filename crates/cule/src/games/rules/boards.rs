//! Board games and puzzles: the winner is read from the state of the board.
//!
//! Device subset.

use crate::games::evaluate::{FACES, OPPONENT, PLAYER, TIME, TIME_BEFORE};
use crate::games::{Rules, bcd1, byte, signed};

/// Backgammon: RAM holds the stones per point, the player's as negative numbers. All sums wrap to 8 bits.
pub fn backgammon(s: &mut Rules, ram: &[u8; 128]) {
    let player_out: i8 = (ram[0x00] as i8).wrapping_neg();
    let other_out: i8 = ram[0x0E] as i8;
    let mut player_in: i8 = 0;
    let mut other_in: i8 = 0;
    for i in 0x01..0x1C {
        if i != 0x0E {
            let stones: i8 = ram[i] as i8;
            if stones < 0 {
                player_in = player_in.wrapping_sub(stones);
            } else {
                other_in = other_in.wrapping_add(stones);
            }
        }
    }
    if other_in.wrapping_add(other_out) == 15 && player_in.wrapping_add(player_out) == 15 {
        if player_out == 15 {
            s.over = 1;
            s.reward = 1;
        } else if other_out == 15 {
            s.over = 1;
            s.reward = -1;
        }
    }
}

/// Updates a clock. Returns true if it has run out.
fn runs_out(s: &mut Rules, time: i32) -> bool {
    s.aux[TIME_BEFORE] = s.aux[TIME];
    s.aux[TIME] = time;
    time == 0 && s.aux[TIME_BEFORE] == 255
}

/// Hangman: an episode is one word.
pub fn hangman(s: &mut Rules, ram: &[u8; 128]) {
    let opponent: i32 = bcd1(ram, 0xEC);
    let player: i32 = bcd1(ram, 0xEB);
    s.reward = (player - s.aux[PLAYER]) - (opponent - s.aux[OPPONENT]);
    s.aux[OPPONENT] = opponent;
    s.aux[PLAYER] = player;
    let late: bool = runs_out(s, byte(ram, 0xF1));
    s.over = (s.reward != 0 || late) as u8;
}

/// 3-D tic-tac-toe: ends when a row is complete or the board is full.
pub fn tic_tac_toe_3d(s: &mut Rules, ram: &[u8; 128]) {
    s.reward = 0;
    if byte(ram, 0xFF) == 0xF3 && byte(ram, 0xFE) == 0x10 {
        s.reward = if byte(ram, 0xE1) == 8 { 1 } else { -1 };
        s.over = 1;
    }
    let mut full: bool = true;
    for a in 0x9A..0xDA {
        full = full && byte(ram, a) != 0;
    }
    if full {
        s.over = 1;
    }
}

/// Video Checkers: ends when a side has no pieces. In modes from 11 on, the side without pieces wins.
pub fn video_checkers(s: &mut Rules, ram: &[u8; 128]) {
    let mut black: i32 = 0;
    let mut white: i32 = 0;
    for i in 0..32 {
        // Four rows of eight cells, one byte between the rows.
        let v: i32 = byte(ram, 0x80 + i + i / 8);
        black += (v == 0x10 || v == 0x20) as i32;
        white += (v == 0x90 || v == 0xA0) as i32;
    }
    let win: i32 = if s.mode >= 11 { -1 } else { 1 };
    if black == 0 {
        s.reward = -win;
        s.over = 1;
    } else if white == 0 {
        s.reward = win;
        s.over = 1;
    }
}

/// Video Chess: RAM shows a mate and its winner.
pub fn video_chess(s: &mut Rules, ram: &[u8; 128]) {
    s.reward = 0;
    if byte(ram, 0xE1) == 130 {
        if byte(ram, 0xEE) == 0 {
            s.reward = 1;
            s.over = 1;
        } else if byte(ram, 0xEE) == 1 {
            s.reward = -1;
            s.over = 1;
        }
    }
}

/// Video Cube: one point per face of a single color.
pub fn video_cube(s: &mut Rules, ram: &[u8; 128]) {
    let mut faces: i32 = 0;
    for f in 0..6 {
        let first: i32 = byte(ram, 0xA0 + 9 * f);
        let mut equal: bool = true;
        for i in 1..9 {
            equal = equal && byte(ram, 0xA0 + 9 * f + i) == first;
        }
        faces += equal as i32;
    }
    let late: bool = runs_out(s, byte(ram, 0xDB));
    s.reward = if late { -1 } else { faces - s.aux[FACES] };
    s.aux[FACES] = faces;
    s.over = (late || faces == 6) as u8;
}

/// Word Zapper: the score is the number of words completed, of three; evaluated while the clock runs.
pub fn word_zapper(s: &mut Rules, ram: &[u8; 128]) {
    if bcd1(ram, 0xCF) > 0 {
        let score: i32 = 2 - signed(byte(ram, 0xDC));
        s.reward = score - s.previous;
        s.previous = score;
        s.over = (score == 3 || bcd1(ram, 0xDE) == 0) as u8;
    }
}
