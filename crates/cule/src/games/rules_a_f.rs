//! What the RAM of one frame means, adventure to freeway: reward, lives, end of the game.
//!
//! Device subset.

use super::evaluate::*;
use super::*;

/// The rule of `adventure`.
pub fn adventure(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    if byte(ram, 0xB9) == 18 {
        s.reward = 1;
    }
    s.over = ((byte(ram, 0xE0) == 2) || (byte(ram, 0xB9) == 18)) as u8;
}

/// The rule of `air_raid`.
pub fn air_raid(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xAA, 0xA9, 0xA8);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xA7) == 255) as u8;
}

/// The rule of `alien`.
pub fn alien(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 10
        * ((((alien_digit(ram, 0x8B) + (10 * alien_digit(ram, 0x89))) + (100 * alien_digit(ram, 0x87)))
            + (1000 * alien_digit(ram, 0x85)))
            + (10000 * alien_digit(ram, 0x83)));
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xC0) & 15) == 0) as u8;
    s.lives = byte(ram, 0xC0) & 15;
}

/// The rule of `amidar`.
pub fn amidar(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xD9, 0xDA, 0xDB);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xD6) == 128) as u8;
    s.lives = byte(ram, 0xD6) & 15;
}

/// The rule of `assault`.
pub fn assault(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x82, 0x81, 0x80);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xE5) == 0) as u8;
    s.lives = byte(ram, 0xE5);
}

/// The rule of `asterix`.
pub fn asterix(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xE0, 0xDF, 0xDE);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xC7) == 1) && ((byte(ram, 0xD3) & 15) == 1)) as u8;
    s.lives = byte(ram, 0xD3) & 15;
}

/// The rule of `asteroids`.
pub fn asteroids(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 10 * bcd2(ram, 0xBE, 0xBD);
    s.reward = if score >= s.previous { score - s.previous } else { (score - s.previous) + 100000 };
    s.previous = score;
    s.over = ((byte(ram, 0xBC) >> 4) == 0) as u8;
    s.lives = byte(ram, 0xBC) >> 4;
}

/// The rule of `atlantis`.
pub fn atlantis(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    s.lives = byte(ram, 0xF1);
    s.over = (s.lives == 255) as u8;
    let score: i32 = 100 * bcd3(ram, 0xA2, 0xA3, 0xA1);
    if s.over != 0 {
        s.reward = 0;
    } else {
        s.reward = score - s.previous;
        s.previous = score;
    }
}

/// The rule of `atlantis2`.
pub fn atlantis2(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    s.lives = byte(ram, 0xF1);
    s.over = (s.lives == 255) as u8;
    if s.over != 0 {
        s.reward = 0;
    } else {
        let score: i32 = bcd3(ram, 0xA1, 0xA2, 0xA3);
        s.reward = score - s.previous;
        s.previous = score;
    }
}

/// The rule of `backgammon`.
pub fn backgammon(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    // Stones per point, the player's negative; all sums wrap to 8 bits.
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

/// The rule of `bank_heist`.
pub fn bank_heist(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xDA, 0xD9, 0xD8);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xCE) == 1) && (byte(ram, 0xD5) == 0)) as u8;
    s.lives = byte(ram, 0xD5);
}

/// The rule of `basic_math`.
pub fn basic_math(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0x84);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (bcd1(ram, 0x86) != 0) as u8;
}

/// The rule of `battle_zone`.
pub fn battle_zone(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 1000
        * ((blank_zero(byte(ram, 0x9D) >> 4) + (10 * blank_zero(byte(ram, 0x9E) & 15)))
            + (100 * blank_zero(byte(ram, 0x9E) >> 4)));
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xBA) & 15) == 0) as u8;
    s.lives = byte(ram, 0xBA) & 15;
}

/// The rule of `beam_rider`.
pub fn beam_rider(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x89, 0x8A, 0x8B);
    s.reward = score - s.previous;
    s.previous = score;
    let n: i32 = byte(ram, 0x85) + 1;
    if n == (s.lives - 1) {
        if byte(ram, 0x8C) == 1 {
            s.lives = n;
        }
    } else {
        s.lives = n;
    }
    s.over = (byte(ram, 0x85) == 255) as u8;
}

/// The rule of `berzerk`.
pub fn berzerk(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xDF, 0xDE, 0xDD);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xDA) == 255) as u8;
    s.lives = byte(ram, 0xDA) + 1;
}

/// The rule of `blackjack`.
pub fn blackjack(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let bust: bool = (byte(ram, 0x86) == 11) && (byte(ram, 0x89) == 187);
    let score: i32 = if bust { 0 } else { bcd2(ram, 0x89, 0x86) };
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (bust || (score >= 1000)) as u8;
}

/// The rule of `bowling`.
pub fn bowling(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0xA1, 0xA6);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xA4) > 16) as u8;
}

/// The rule of `boxing`.
pub fn boxing(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let me: i32 = if byte(ram, 0x92) == 192 { 100 } else { bcd1(ram, 0x92) };
    let op: i32 = if byte(ram, 0x93) == 192 { 100 } else { bcd1(ram, 0x93) };
    let score: i32 = me - op;
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((me == 100) || (op == 100) || (((byte(ram, 0x90) >> 4) == 0) && (bcd1(ram, 0x91) == 0))) as u8;
}

/// The rule of `breakout`.
pub fn breakout(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 =
        ((byte(ram, 0xCD) & 15) + (10 * (byte(ram, 0xCD) >> 4))) + (100 * (byte(ram, 0xCC) & 15));
    s.reward = score - s.previous;
    s.previous = score;
    if byte(ram, 0xB9) == 5 {
        s.aux[STARTED] = 1;
    }
    s.over = (s.aux[STARTED] != 0 && (byte(ram, 0xB9) == 0)) as u8;
    s.lives = byte(ram, 0xB9);
}

/// The rule of `carnival`.
pub fn carnival(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 10 * bcd2(ram, 0xAE, 0xAD);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0x83) == 0) as u8;
}

/// The rule of `casino`.
pub fn casino(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd2(ram, 0x95, 0x8C);
    if byte(ram, 0xD4) == 3 {
        s.reward = score - s.previous;
        s.over = ((score > 0) && (byte(ram, 0x9E) == 170)) as u8;
    } else {
        let dis: bool = (byte(ram, 0xD3) & 128) != 0;
        if !dis {
            s.reward = score - s.previous;
        }
        s.over = ((score == 0) || ((bcd1(ram, 0x9E) > 0) && dis)) as u8;
    }
    s.previous = score;
}

/// The rule of `centipede`.
pub fn centipede(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xF6, 0xF5, 0xF4);
    s.reward = most(score - s.previous, 0);
    s.previous = score;
    s.lives = ((byte(ram, 0xED) >> 4) & 7) + 1;
    s.over = ((byte(ram, 0xA6) & 64) != 0) as u8;
}

/// The rule of `chopper_command`.
pub fn chopper_command(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100 * bcd2(ram, 0xEE, 0xEC);
    s.reward = score - s.previous;
    s.previous = score;
    s.lives = byte(ram, 0xE4) & 15;
    if (byte(ram, 0xC2) & 1) != 0 {
        s.aux[STARTED] = 1;
    }
    s.over = (s.aux[STARTED] != 0 && (s.lives == 0)) as u8;
}

/// The rule of `crazy_climber`.
pub fn crazy_climber(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100
        * (((byte(ram, 0x82) + (10 * byte(ram, 0x83))) + (100 * byte(ram, 0x84))) + (1000 * byte(ram, 0x85)));
    s.reward = most(score - s.previous, 0);
    s.previous = score;
    s.over = (byte(ram, 0xAA) == 0) as u8;
    s.lives = byte(ram, 0xAA);
}

/// The rule of `crossbow`.
pub fn crossbow(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x8D, 0x8C, 0x8B);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xE7) == 130) as u8;
}

/// The rule of `darkchambers`.
pub fn darkchambers(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    s.reward = 0;
    let lv: i32 = byte(ram, 0xD5);
    if lv < s.aux[LEVEL] {
        s.over = 1;
    } else {
        s.aux[LEVEL] = lv;
        let score: i32 = 10 * bcd2(ram, 0xCC, 0xCF);
        if score < s.previous {
            s.over = 1;
        } else {
            s.reward = score - s.previous;
            s.previous = score;
        }
        let health: i32 = byte(ram, 0xCA) & 31;
        if health == 0 {
            s.over = 1;
        }
    }
}

/// The rule of `defender`.
pub fn defender(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let mut score: i32 = 0;
    let mut unit: i32 = 1;
    for i in 0..6 {
        score += unit * blank_zero(byte(ram, 0x9C + i) & 15);
        unit *= 10;
    }
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xC2) == 0) as u8;
    s.lives = byte(ram, 0xC2);
}

/// The rule of `demon_attack`.
pub fn demon_attack(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = if byte(ram, 0x81) == 171 && byte(ram, 0x83) == 205 && byte(ram, 0x85) == 234 {
        0
    } else {
        bcd3(ram, 0x85, 0x83, 0x81)
    };
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xF2) == 0) && (byte(ram, 0xF1) == 189) && !(s.aux[CHANGED] != 0)) as u8;
    s.lives = byte(ram, 0xF2) + 1;
    s.aux[CHANGED] = 0;
}

/// The rule of `donkey_kong`.
pub fn donkey_kong(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = 100 * bcd2(ram, 0x88, 0x87);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xA3) == 0) && (byte(ram, 0x8F) == 3) && (byte(ram, 0x8B) == 31)) as u8;
    s.lives = byte(ram, 0xA3);
}

/// The rule of `double_dunk`.
pub fn double_dunk(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xF6) - bcd1(ram, 0xF7);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (((bcd1(ram, 0xF6) >= 24) || (bcd1(ram, 0xF7) >= 24)) && (byte(ram, 0xFE) == 231)) as u8;
}

/// The rule of `earthworld`.
pub fn earthworld(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xA7);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (score == 10) as u8;
}

/// The rule of `elevator_action`.
pub fn elevator_action(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0x89, 0x88, 0x87);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0x83) == 0) && (byte(ram, 0x81) != 0)) as u8;
    s.lives = byte(ram, 0x83);
}

/// The rule of `enduro`.
pub fn enduro(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let lv: i32 = byte(ram, 0xAD);
    let left: i32 = bcd2(ram, 0xAB, 0xAC);
    let score: i32 =
        if lv == 0 { 0 } else { if lv == 1 { 200 - left } else { ((200 + (300 * (lv - 2))) + 300) - left } };
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (byte(ram, 0xAF) == 255) as u8;
}

/// The rule of `entombed`.
pub fn entombed(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = byte(ram, 0xE3);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xC7) & 3) == 0) as u8;
}

/// The rule of `et`.
pub fn et(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd3(ram, 0xE1, 0xE0, 0xDF);
    s.reward = score - s.previous;
    s.previous = score;
    s.lives = signed(byte(ram, 0xE5) + 1);
    s.over = ((s.lives == 0) && (byte(ram, 0x80) == 8)) as u8;
}

/// The rule of `fishing_derby`.
pub fn fishing_derby(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xBD) - bcd1(ram, 0xBE);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = ((byte(ram, 0xBD) == 153) || (byte(ram, 0xBE) == 153)) as u8;
}

/// The rule of `flag_capture`.
pub fn flag_capture(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xEA);
    s.reward = score - s.previous;
    s.previous = score;
    s.over = (bcd1(ram, 0xEB) == 0) as u8;
}

/// The rule of `freeway`.
pub fn freeway(s: &mut Rules, ram: &[u8; 128], _: &[u8; 128]) {
    let score: i32 = bcd1(ram, 0xE7);
    s.reward = least(most(score - s.previous, 0), 1);
    s.previous = score;
    s.over = (byte(ram, 0x96) == 1) as u8;
}
