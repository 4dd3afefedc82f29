//! Quests: won or lost, without a running score or with one that never decreases.
//!
//! Device subset.

use crate::games::evaluate::{LEVEL, MATCHES};
use crate::games::{Rules, bcd1, bcd2, byte};

/// Adventure: won with the chalice in the castle, lost when a dragon eats the player.
pub fn adventure(s: &mut Rules, ram: &[u8; 128]) {
    let won: bool = byte(ram, 0xB9) == 18;
    if won {
        s.reward = 1;
    }
    s.over = (won || byte(ram, 0xE0) == 2) as u8;
}

/// Dark Chambers: ends when the level or the score decreases, or without health.
pub fn darkchambers(s: &mut Rules, ram: &[u8; 128]) {
    s.reward = 0;
    let level: i32 = byte(ram, 0xD5);
    if level < s.aux[LEVEL] {
        s.over = 1;
        return;
    }
    s.aux[LEVEL] = level;
    let score: i32 = 10 * bcd2(ram, 0xCC, 0xCF);
    if score < s.previous {
        s.over = 1;
    } else {
        s.reward = score - s.previous;
        s.previous = score;
    }
    if byte(ram, 0xCA) & 31 == 0 {
        s.over = 1;
    }
}

/// Haunted House: a match costs one point, the urn outside the house earns 100.
pub fn haunted_house(s: &mut Rules, ram: &[u8; 128]) {
    s.reward = 0;
    let matches: i32 = bcd1(ram, 0x82);
    if matches != s.aux[MATCHES] {
        s.reward = -1;
        s.aux[MATCHES] = matches;
    }
    s.lives = byte(ram, 0x96);
    let won: bool = byte(ram, 0x99) == 68;
    if won {
        s.reward += 100;
    }
    s.over = (s.lives == 0 || won) as u8;
}

/// Superman: the reward is the number of seconds left of 100 minutes.
pub fn superman(s: &mut Rules, ram: &[u8; 128]) {
    let won: bool = byte(ram, 0x9F) & 64 != 0 && byte(ram, 0x80) + 256 * byte(ram, 0x81) == 62124;
    s.over = won as u8;
    s.reward = if won { 5999 - (60 * bcd1(ram, 0xE3) + bcd1(ram, 0xE2)) } else { 0 };
}
