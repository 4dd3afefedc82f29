//! Contests without a plain score: casino, miniature golf, tennis.
//!
//! Device subset.

use crate::games::evaluate::{BASE, GAMES_AHEAD, HITS, LEVEL, PAR, POINTS_AHEAD, STATUS};
use crate::games::{Rules, bcd1, bcd2, byte};

/// Casino: the player's money, evaluated between hands in poker and at any time in the other games.
pub fn casino(s: &mut Rules, ram: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0x95, 0x8C);
    if byte(ram, 0xD4) == 3 {
        s.reward = score - s.previous;
        s.over = (score > 0 && byte(ram, 0x9E) == 170) as u8;
    } else {
        let hidden: bool = byte(ram, 0xD3) & 128 != 0;
        if !hidden {
            s.reward = score - s.previous;
        }
        s.over = (score == 0 || bcd1(ram, 0x9E) > 0 && hidden) as u8;
    }
    s.previous = score;
}

/// Miniature golf: par minus strokes, after each hole.
pub fn miniature_golf(s: &mut Rules, ram: &[u8; 128]) {
    s.reward = 0;
    let left: i32 = bcd1(ram, 0x87);
    let right: i32 = bcd1(ram, 0x88);
    let hole: i32 = bcd1(ram, 0xAF);
    if hole != s.aux[LEVEL] {
        let strokes: i32 = s.aux[STATUS] + s.aux[HITS] - s.aux[BASE];
        if strokes > 0 {
            s.reward = s.aux[PAR] - strokes;
        }
        if hole == 0 {
            s.over = 1;
        }
        s.aux[LEVEL] = hole;
        s.aux[HITS] = 0;
        s.aux[BASE] = s.aux[STATUS];
    }
    // The numbers on the screen: hole and par while the right one is shown, else strokes, which restart from
    // 0.
    if right != 0 {
        s.aux[PAR] = right;
    } else {
        if left < s.aux[STATUS] {
            s.aux[HITS] += s.aux[STATUS];
        }
        s.aux[STATUS] = left;
    }
}

/// Tennis: the difference in points, or in games when a game ends.
pub fn tennis(s: &mut Rules, ram: &[u8; 128]) {
    let player: i32 = byte(ram, 0xC7);
    let opponent: i32 = byte(ram, 0xC8);
    let games: i32 = player - opponent;
    let points: i32 = byte(ram, 0xC5) - byte(ram, 0xC6);
    if games != s.aux[GAMES_AHEAD] {
        s.reward = games - s.aux[GAMES_AHEAD];
    } else {
        s.reward = points - s.aux[POINTS_AHEAD];
    }
    s.aux[GAMES_AHEAD] = games;
    s.aux[POINTS_AHEAD] = points;
    s.over =
        (player >= 6 && games >= 2 || opponent >= 6 && -games >= 2 || player == 7 || opponent == 7) as u8;
}
