//! What the RAM of one frame means, qbert to zaxxon: reward, lives, end of the game.
//!
//! Device subset.

use super::evaluate::*;
use super::*;

/// The rule of `qbert`.
pub fn qbert(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let v: i32 = byte(ram, 0x88);
    s.over = ((v == 254) || ((v == 2) && (s.aux[LAST] == -1))) as u8;
    if (s.aux[LAST] - 1) == signed(v) {
        s.lives = s.lives - 1;
    }
    s.aux[LAST] = signed(v);
    if s.over != 0 {
        s.reward = 0;
    } else {
        let score: i32 = bcd3(ram, 0xDB, 0xDA, 0xD9);
        s.reward = score - s.previous;
        s.previous = score;
    }
}

/// The rule of `riverraid`.
pub fn riverraid(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = eighth(ram, 0xD7)
        + 10 * eighth(ram, 0xD5)
        + 100 * eighth(ram, 0xD3)
        + 1000 * eighth(ram, 0xD1)
        + 10000 * eighth(ram, 0xCF)
        + 100_000 * eighth(ram, 0xCD);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xC0) == 0x58 && s.aux[LB] == 0x59) as u8;
    s.aux[LB] = byte(ram, 0xC0);
    s.lives = if s.aux[LB] == 0x58 {
        4
    } else if s.aux[LB] == 0x59 {
        1
    } else {
        s.aux[LB] / 8 + 1
    };
}

/// The rule of `road_runner`.
pub fn road_runner(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let mut score: i32 = 0;
    let mut unit: i32 = 100;
    for i in 0..4 {
        score += unit * blank_zero(byte(ram, 0xC9 + i) & 15);
        unit *= 10;
    }
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (((byte(ram, 0xC4) & 7) == 0) && ((byte(ram, 0xB9) != 0) || (byte(ram, 0xBD) != 0))) as u8;
    s.lives = (byte(ram, 0xC4) & 7) + 1;
}

/// The rule of `robotank`.
pub fn robotank(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = (12 * byte(ram, 0xB6)) + byte(ram, 0xB5);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xA8) == 0) && (byte(ram, 0xB4) == 255)) as u8;
    s.lives = (byte(ram, 0xA8) & 15) + 1;
}

/// The rule of `seaquest`.
pub fn seaquest(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xBA, 0xB9, 0xB8);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xA3) != 0) as u8;
    s.lives = byte(ram, 0xBB) + 1;
}

/// The rule of `sir_lancelot`.
pub fn sir_lancelot(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xA0, 0x9F, 0x9E);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xA9) == 0) && (byte(ram, 0xA7) == 160)) as u8;
    s.lives = byte(ram, 0xA9);
}

/// The rule of `skiing`.
pub fn skiing(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = (6000 * byte(ram, 0xE8)) + bcd2(ram, 0xEA, 0xE9);
    s.reward = s.previous - score;
    s.previous = score;
    s.over = (byte(ram, 0x91) == 255) as u8;
}

/// The rule of `solaris`.
pub fn solaris(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 10 * bcd3(ram, 0xDC, 0xDD, 0xDE);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xD9) == 0) as u8;
    s.lives = byte(ram, 0xD9) & 15;
}

/// The rule of `space_invaders`.
pub fn space_invaders(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0xE8, 0xE6);
    s.reward = if score >= s.previous { score - s.previous } else { (10000 - s.previous) + score };
    s.previous = score;
    s.lives = byte(ram, 0xC9);
    s.over = (((byte(ram, 0x98) & 128) != 0) || (s.lives == 0)) as u8;
}

/// The rule of `space_war`.
pub fn space_war(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xA7);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((score == 10) || (byte(ram, 0x80) == 0)) as u8;
}

/// The rule of `star_gunner`.
pub fn star_gunner(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100
        * (((blank_zero(byte(ram, 0x83) & 15) + (10 * blank_zero(byte(ram, 0x84) & 15)))
            + (100 * blank_zero(byte(ram, 0x85) & 15)))
            + (1000 * blank_zero(byte(ram, 0x86) & 15)));
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0x87) == 0) as u8;
    if byte(ram, 0x87) == 5 {
        s.aux[STARTED] = 1;
    }
    s.lives = if s.aux[STARTED] != 0 { byte(ram, 0x87) & 15 } else { 5 };
}

/// The rule of `superman`.
pub fn superman(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    s.over = (((byte(ram, 0x9F) & 64) != 0) && ((byte(ram, 0x80) + (256 * byte(ram, 0x81))) == 62124)) as u8;
    s.reward = if s.over != 0 { 5999 - ((60 * bcd1(ram, 0xE3)) + bcd1(ram, 0xE2)) } else { 0 };
}

/// The rule of `surround`.
pub fn surround(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xF7) - bcd1(ram, 0xF6);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((bcd1(ram, 0xF6) == 10) || (bcd1(ram, 0xF7) == 10)) as u8;
}

/// The rule of `tennis`.
pub fn tennis(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let dp: i32 = byte(ram, 0xC7) - byte(ram, 0xC8);
    let ds: i32 = byte(ram, 0xC5) - byte(ram, 0xC6);
    if dp != s.aux[PDP] {
        s.reward = dp - s.aux[PDP];
    } else if ds != s.aux[PDS] {
        s.reward = ds - s.aux[PDS];
    } else {
        s.reward = 0;
    }
    s.aux[PDP] = dp;
    s.aux[PDS] = ds;
    s.over = (((byte(ram, 0xC7) >= 6) && (dp >= 2))
        || ((byte(ram, 0xC8) >= 6) && (-dp >= 2))
        || (byte(ram, 0xC7) == 7)
        || (byte(ram, 0xC8) == 7)) as u8;
}

/// The rule of `tetris`.
pub fn tetris(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0xF1, 0xF2);
    s.reward = most(score - s.previous, 0);
    s.previous = score;
    s.over = ((byte(ram, 0xF3) & 128) != 0) as u8;
    if s.over != 0 {
        s.previous = 0;
    }
    s.lives = 0;
}

/// The rule of `tic_tac_toe_3d`.
pub fn tic_tac_toe_3d(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
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

/// The rule of `time_pilot`.
pub fn time_pilot(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100 * bcd2(ram, 0x8D, 0x8F);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xA0) != 0) as u8;
    if (byte(ram, 0x80) & 15) == 2 {
        s.lives = (byte(ram, 0x8B) & 7) + 1;
    }
}

/// The rule of `trondead`.
pub fn trondead(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xBF, 0xBE, 0xBD);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xC8) == 5) as u8;
    s.lives = 5 - byte(ram, 0xC8);
}

/// The rule of `turmoil`.
pub fn turmoil(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 10 * (bcd2(ram, 0x89, 0x8A) + byte(ram, 0xD3));
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xB9) == 0) && (byte(ram, 0xC5) == 1)) as u8;
    s.lives = byte(ram, 0xB9);
}

/// The rule of `tutankham`.
pub fn tutankham(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0x9C, 0x9A);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x9E) == 0) && (byte(ram, 0x81) != 132)) as u8;
    s.lives = byte(ram, 0x9E) & 3;
}

/// The rule of `up_n_down`.
pub fn up_n_down(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x82, 0x81, 0x80);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x94) > 64) && ((byte(ram, 0x86) & 15) == 0)) as u8;
    s.lives = (byte(ram, 0x86) & 15) + 1;
}

/// The rule of `venture`.
pub fn venture(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100 * bcd2(ram, 0xC8, 0xC7);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xC6) == 0) && (byte(ram, 0xCD) == 255) && ((byte(ram, 0xBF) & 128) != 0)) as u8;
    s.lives = (byte(ram, 0xC6) & 7) + 1;
}

/// The rule of `video_checkers`.
pub fn video_checkers(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
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

/// The rule of `video_chess`.
pub fn video_chess(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
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

/// The rule of `video_cube`.
pub fn video_cube(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let mut faces: i32 = 0;
    for f in 0..6 {
        let first: i32 = byte(ram, 0xA0 + 9 * f);
        let mut equal: bool = true;
        for i in 1..9 {
            equal = equal && byte(ram, 0xA0 + 9 * f + i) == first;
        }
        faces += equal as i32;
    }
    s.aux[T1] = s.aux[T0];
    s.aux[T0] = byte(ram, 0xDB);
    let timeout: bool = s.aux[T0] == 0 && s.aux[T1] == 255;
    s.reward = if timeout { -1 } else { faces - s.aux[PF] };
    s.aux[PF] = faces;
    s.over = (timeout || faces == 6) as u8;
}

/// The rule of `video_pinball`.
pub fn video_pinball(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xB0, 0xB2, 0xB4);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xAF) & 1) != 0) as u8;
    s.lives = (4 + (byte(ram, 0xA8) & 1)) - (byte(ram, 0x99) & 7);
}

/// The rule of `wizard_of_wor`.
pub fn wizard_of_wor(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0x86, 0x88);
    let score: i32 = 100 * (if score >= 8000 { score - 8000 } else { score });
    s.reward = score - s.previous;
    s.previous = score;
    let n: i32 = byte(ram, 0x8D) & 15;
    s.over = ((n == 0) && (byte(ram, 0xF4) == 248)) as u8;
    if (byte(ram, 0xD7) & 1) == 0 {
        s.lives = n;
    }
}

/// The rule of `word_zapper`.
pub fn word_zapper(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    if bcd1(ram, 0xCF) > 0 {
        let score: i32 = 2 - signed(byte(ram, 0xDC));
        s.reward = score - s.previous;
        s.previous = score;
        s.over = ((score == 3) || (bcd1(ram, 0xDE) == 0)) as u8;
    }
}

/// The rule of `yars_revenge`.
pub fn yars_revenge(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xE2, 0xE1, 0xE0);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x9E) >> 4) == 0) as u8;
    s.lives = byte(ram, 0x9E) >> 4;
}

/// The rule of `zaxxon`.
pub fn zaxxon(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100 * bcd2(ram, 0xE9, 0xE8);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xEA) & 7) == 0) as u8;
    s.lives = byte(ram, 0xEA) & 7;
}
