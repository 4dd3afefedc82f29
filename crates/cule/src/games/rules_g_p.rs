//! What the RAM of one frame means, frogger to private_eye: reward, lives, end of the game.
//!
//! Device subset.

use super::evaluate::*;
use super::*;

/// The rule of `frogger`.
pub fn frogger(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0xCE, 0xCC);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xD0) == 255) as u8;
    s.lives = byte(ram, 0xD0);
}

/// The rule of `frostbite`.
pub fn frostbite(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xCA, 0xC9, 0xC8);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (((byte(ram, 0xCC) & 15) == 0) && ((byte(ram, 0xF1) & 128) != 0)) as u8;
    s.lives = (byte(ram, 0xCC) & 15) + 1;
}

/// The rule of `galaxian`.
pub fn galaxian(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xAE, 0xAD, 0xAC);
    s.reward = if score >= s.previous { score - s.previous } else { (1000000 - s.previous) + score };
    s.previous = score;
    s.over = ((byte(ram, 0xBF) & 128) != 0) as u8;
    s.lives = if s.over != 0 { 0 } else { byte(ram, 0xB9) + 1 };
}

/// The rule of `gopher`.
pub fn gopher(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xB2, 0xB1, 0xB0);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xB4) & 7) == 0) as u8;
    s.lives = ones(byte(ram, 0xB4) & 7);
}

/// The rule of `gravitar`.
pub fn gravitar(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x89, 0x88, 0x87);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0x81) == 1) as u8;
    s.lives = if byte(ram, 0x81) == 0 { 6 } else { byte(ram, 0x84) + 1 };
}

/// The rule of `hangman`.
pub fn hangman(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let c: i32 = bcd1(ram, 0xEC);
    let p: i32 = bcd1(ram, 0xEB);
    s.reward = (p - s.aux[PP]) - (c - s.aux[PC]);
    s.aux[PC] = c;
    s.aux[PP] = p;
    s.aux[T1] = s.aux[T0];
    s.aux[T0] = byte(ram, 0xF1);
    s.over = ((s.reward != 0) || ((s.aux[T0] == 0) && (s.aux[T1] == 255))) as u8;
}

/// The rule of `haunted_house`.
pub fn haunted_house(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    s.reward = 0;
    let m1: i32 = bcd1(ram, 0x82);
    if m1 != s.aux[MATCHES] {
        s.reward = -1;
        s.aux[MATCHES] = m1;
    }
    s.lives = byte(ram, 0x96);
    let won: bool = byte(ram, 0x99) == 68;
    if won {
        s.reward = s.reward + 100;
    }
    s.over = ((s.lives == 0) || won) as u8;
}

/// The rule of `hero`.
pub fn hero(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xB9, 0xB8, 0xB7);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xB3) == 0) as u8;
    s.lives = byte(ram, 0xB3);
}

/// The rule of `human_cannonball`.
pub fn human_cannonball(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xB6);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((score == 7) || (bcd1(ram, 0xB7) == 7)) as u8;
}

/// The rule of `ice_hockey`.
pub fn ice_hockey(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0x8A) - bcd1(ram, 0x8B);
    s.reward = least(score - s.previous, 1);
    s.previous = score;
    s.over = ((byte(ram, 0x87) == 0) && (byte(ram, 0x86) == 0)) as u8;
}

/// The rule of `jamesbond`.
pub fn jamesbond(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xDC, 0xDD, 0xDE);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (((byte(ram, 0x86) & 15) == 0) && (byte(ram, 0x8C) == 104)) as u8;
    s.lives = (byte(ram, 0x86) & 15) + 1;
}

/// The rule of `journey_escape`.
pub fn journey_escape(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x92, 0x91, 0x90);
    s.reward = if (score - s.previous) == 50000 { 0 } else { score - s.previous };
    s.previous = score;
    s.over = ((byte(ram, 0x95) == 0) && (byte(ram, 0x96) == 0)) as u8;
}

/// The rule of `kaboom`.
pub fn kaboom(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xA5, 0xA4, 0xA3);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xA1) == 0) || (score == 999999)) as u8;
}

/// The rule of `kangaroo`.
pub fn kangaroo(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100 * bcd2(ram, 0xA8, 0xA7);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xAD) == 255) as u8;
    s.lives = (byte(ram, 0xAD) & 7) + 1;
}

/// The rule of `keystone_kapers`.
pub fn keystone_kapers(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0x9C, 0x9B);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x96) == 0) && (byte(ram, 0x88) == 0)) as u8;
    s.lives = byte(ram, 0x96);
}

/// The rule of `king_kong`.
pub fn king_kong(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0x83, 0x82);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xEE) == 0) as u8;
    s.lives = byte(ram, 0xEE);
}

/// The rule of `klax`.
pub fn klax(s: &mut Rules, ram: &[u8; 128], cart_ram: &[u8; 128]) {
    // Score and counters are in cartridge RAM.
    let score: i32 = digits(cart_ram[0x34]) + 100 * digits(cart_ram[0x35]) + 10000 * digits(cart_ram[0x36]);
    s.reward = score - s.previous;
    s.previous = score;
    let mut filled: i32 = 0;
    for a in 0xB3..0xCC {
        let v: i32 = byte(ram, a);
        if !(v == 0 || v == 2 || v == 6 || v == 10 || v == 14) {
            filled += 1;
        }
    }
    s.over = ((cart_ram[0x69] > 0 && cart_ram[0x6E] == cart_ram[0x69])
        || (byte(ram, 0xA8) == 4 && filled == 25)
        || cart_ram[0x1D] == 0x99) as u8;
}

/// The rule of `koolaid`.
pub fn koolaid(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100 * bcd2(ram, 0x81, 0x80);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xD1) == 128) as u8;
}

/// The rule of `krull`.
pub fn krull(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x9E, 0x9D, 0x9C);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x9F) == 0) && (byte(ram, 0xA2) == 3) && (byte(ram, 0x80) == 128)) as u8;
    s.lives = (byte(ram, 0x9F) & 7) + 1;
}

/// The rule of `kung_fu_master`.
pub fn kung_fu_master(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x9A, 0x99, 0x98);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0x9D) == 255) as u8;
    s.lives = (byte(ram, 0x9D) & 7) + 1;
}

/// The rule of `laser_gates`.
pub fn laser_gates(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x82, 0x81, 0x80);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0x83) == 0) as u8;
}

/// The rule of `lost_luggage`.
pub fn lost_luggage(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x96, 0x95, 0x94);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xCA) == 0)
        && (byte(ram, 0xC8) == 10)
        && (byte(ram, 0xA5) == 0)
        && (byte(ram, 0xA9) == 0)) as u8;
    s.lives = byte(ram, 0xCA);
}

/// The rule of `mario_bros`.
pub fn mario_bros(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100 * bcd2(ram, 0x8A, 0x89);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0x87) == 0) as u8;
    s.lives = byte(ram, 0x87);
}

/// The rule of `miniature_golf`.
pub fn miniature_golf(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    s.reward = 0;
    let left: i32 = bcd1(ram, 0x87);
    let right: i32 = bcd1(ram, 0x88);
    let lv: i32 = bcd1(ram, 0xAF);
    if lv != s.aux[LEVEL] {
        let total: i32 = s.aux[STATUS] + s.aux[HITS];
        if (total - s.aux[BASE]) > 0 {
            s.reward = s.aux[PAR] - (total - s.aux[BASE]);
        }
        if lv == 0 {
            s.over = 1;
        }
        s.aux[LEVEL] = lv;
        s.aux[HITS] = 0;
        s.aux[BASE] = s.aux[STATUS];
    }
    if right != 0 {
        s.aux[PAR] = right;
    } else {
        if left < s.aux[STATUS] {
            s.aux[HITS] = s.aux[HITS] + s.aux[STATUS];
        }
        s.aux[STATUS] = left;
    }
}

/// The rule of `montezuma_revenge`.
pub fn montezuma_revenge(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x95, 0x94, 0x93);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xBA) == 0) && (byte(ram, 0xFE) == 96)) as u8;
    s.lives = (byte(ram, 0xBA) & 7) + 1;
}

/// The rule of `mr_do`.
pub fn mr_do(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 10 * bcd2(ram, 0x82, 0x83);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xDA) == 64) as u8;
    s.lives = byte(ram, 0xDB);
}

/// The rule of `ms_pacman`.
pub fn ms_pacman(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xF8, 0xF9, 0xFA);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (((byte(ram, 0xFB) & 15) == 0) && (byte(ram, 0xA7) == 83)) as u8;
    s.lives = (byte(ram, 0xFB) & 7) + 1;
}

/// The rule of `name_this_game`.
pub fn name_this_game(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xC6, 0xC5, 0xC4);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xC7) & 7) == 0) as u8;
    s.lives = byte(ram, 0xC7) & 7;
}

/// The rule of `othello`.
pub fn othello(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xCE) - bcd1(ram, 0xD0);
    s.reward = score - s.previous;
    s.previous = score;
    s.aux[IDLE] = if byte(ram, 0xC0) == 0 { s.aux[IDLE] + 1 } else { 0 };
    s.over = (s.aux[IDLE] > 50) as u8;
}

/// The rule of `pacman`.
pub fn pacman(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xCC, 0xCE, 0xD0);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x98) == 0) && (byte(ram, 0xE4) == 63)) as u8;
    s.lives = byte(ram, 0x98) + 1;
}

/// The rule of `phoenix`.
pub fn phoenix(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 10 * ((10 * bcd2(ram, 0xC8, 0xC9)) + (byte(ram, 0xC7) >> 4));
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xCC) == 128) as u8;
    s.lives = byte(ram, 0xCB) & 7;
}

/// The rule of `pitfall`.
pub fn pitfall(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xD7, 0xD6, 0xD5);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (((byte(ram, 0x80) >> 4) == 0) && (byte(ram, 0x9E) != 0)) as u8;
    s.lives = if (byte(ram, 0x80) >> 4) == 10 { 3 } else { if (byte(ram, 0x80) >> 4) == 8 { 2 } else { 1 } };
}

/// The rule of `pitfall2`.
pub fn pitfall2(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xC9, 0xC8, 0xC7);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (score == 199000) as u8;
    s.lives = 1;
}

/// The rule of `pong`.
pub fn pong(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = byte(ram, 0x8E) - byte(ram, 0x8D);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x8D) == 21) || (byte(ram, 0x8E) == 21)) as u8;
}

/// The rule of `pooyan`.
pub fn pooyan(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x8A, 0x89, 0x88);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x96) == 0) && (byte(ram, 0x98) == 5)) as u8;
    s.lives = (byte(ram, 0x96) & 7) + 1;
}

/// The rule of `private_eye`.
pub fn private_eye(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xCA, 0xC9, 0xC8);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (!(byte(ram, 0xC2) == 0 || byte(ram, 0xC2) == 1)) as u8;
}
