//! Mode selection as data: which RAM says that a mode is reached, how long SELECT is held per try, what comes first;
//! and the actions that start a game. The few selections that do more are in `console::boot` and `lane::boot`.
//!
//! Device subset.

use super::evaluate::CHANGED;
use super::rows::*;
use super::{Rules, byte, digits};

/// No selection: the game has one mode and nothing to press.
pub const NO_SELECTION: u32 = 0;

/// Frames that SELECT is held per try, 0 = the game has no mode selection.
pub fn press_frames(game: usize) -> u32 {
    match game {
        ALIEN | BACKGAMMON | BANK_HEIST | BREAKOUT | DEMON_ATTACK | FREEWAY | FROSTBITE | GALAXIAN | HERO
        | VIDEO_CHECKERS | VIDEO_CHESS | YARS_REVENGE => 1,
        ASTEROIDS | ATLANTIS | BASIC_MATH | BATTLE_ZONE | BERZERK | BOWLING | CASINO | CENTIPEDE
        | CHOPPER_COMMAND | CRAZY_CLIMBER | CROSSBOW | DEFENDER | FLAG_CAPTURE | FROGGER | HANGMAN
        | HAUNTED_HOUSE | HUMAN_CANNONBALL | ICE_HOCKEY | KANGAROO | KING_KONG | KLAX | LOST_LUGGAGE
        | NAME_THIS_GAME | OTHELLO | PACMAN | PONG | POOYAN | PRIVATE_EYE | SPACE_INVADERS | SPACE_WAR
        | SURROUND | TENNIS | TIC_TAC_TOE_3D | TURMOIL | TUTANKHAM | VIDEO_CUBE | VIDEO_PINBALL
        | WORD_ZAPPER => 2,
        GOPHER | MARIO_BROS | MR_DO => 5,
        AIR_RAID | GRAVITAR | MS_PACMAN | ZAXXON => 10,
        STAR_GUNNER => 15,
        JAMESBOND => 20,
        ET => 25,
        _ => NO_SELECTION,
    }
}

/// Frames that SELECT is held once before the tries begin.
pub fn first_press(game: usize) -> u32 {
    match game {
        AIR_RAID => 20,
        POOYAN | YARS_REVENGE => 2,
        _ => 0,
    }
}

/// True when RAM shows mode `m`.
pub fn reached(game: usize, m: i32, ram: &[u8; 128], cart_ram: &[u8; 128]) -> bool {
    match game {
        AIR_RAID => byte(ram, 0xAA) == m,
        ALIEN => byte(ram, 0x81) == m,
        ASTEROIDS | BANK_HEIST | BERZERK | CRAZY_CLIMBER | FREEWAY | FROSTBITE | GRAVITAR | HERO
        | ICE_HOCKEY | MARIO_BROS | MR_DO | PRIVATE_EYE | TENNIS => byte(ram, 0x80) == m,
        ATLANTIS => byte(ram, 0x8D) == m,
        BACKGAMMON => byte(ram, 0xDC) == 3,
        BASIC_MATH => byte(ram, 0xC5) == m,
        BATTLE_ZONE => byte(ram, 0xA1) == m,
        BOWLING | ZAXXON => byte(ram, 0x82) == m,
        BREAKOUT => byte(ram, 0xB2) == m,
        CASINO => byte(ram, 0xD4) == m,
        CENTIPEDE => byte(ram, 0xA7) == m,
        CHOPPER_COMMAND => byte(ram, 0xE0) == m,
        CROSSBOW => (byte(ram, 0x8D) - 1) & 0xFF == m,
        DEFENDER => byte(ram, 0x9B) == m,
        DEMON_ATTACK | TURMOIL | VIDEO_CHESS => byte(ram, 0xEA) == m,
        ET => (byte(ram, 0xEA) - 1) & 0xFF == m,
        FLAG_CAPTURE => byte(ram, 0xD6) == m,
        FROGGER => byte(ram, 0xDD) == 1 + 2 * m,
        GALAXIAN => byte(ram, 0xB3) == m,
        GOPHER => byte(ram, 0xD3) == m,
        HANGMAN => byte(ram, 0xEE) == m,
        HAUNTED_HOUSE => byte(ram, 0xCC) == m,
        HUMAN_CANNONBALL => (byte(ram, 0xB6) - 1) & 0xFF == m && byte(ram, 0xB7) == 1,
        JAMESBOND => byte(ram, 0x8C) == m || byte(ram, 0x8C) == m + 0x48,
        KANGAROO => byte(ram, 0xBA) == m || byte(ram, 0xBA) == m + 0x80,
        KING_KONG => byte(ram, 0xEC) == 2 * m,
        KLAX => cart_ram[0x6A] as i32 == m,
        LOST_LUGGAGE => byte(ram, 0x94) == 1 + 3 * m,
        MS_PACMAN => byte(ram, 0x99) == if m == 0 { 1 } else { m } && byte(ram, 0xA1) == (m == 0) as i32,
        NAME_THIS_GAME => byte(ram, 0xDE) == m,
        OTHELLO => (byte(ram, 0xDE) - 1) & 0xFF == m,
        PACMAN => (byte(ram, 0xCC) - 1) & 0xFF == m && byte(ram, 0xE6) == 0,
        PONG => byte(ram, 0x96) == m,
        POOYAN => byte(ram, 0xBD) == m,
        SPACE_INVADERS => byte(ram, 0xDC) == m,
        SPACE_WAR => digits(byte(ram, 0xA7) as u8) == m,
        STAR_GUNNER => byte(ram, 0xF4) == m,
        SURROUND => byte(ram, 0xF9) == m + 1,
        TIC_TAC_TOE_3D => byte(ram, 0x88) == m,
        TUTANKHAM => byte(ram, 0xAB) == m,
        VIDEO_CHECKERS => byte(ram, 0xF6) == if m >= 11 { m + 6 } else { m },
        VIDEO_CUBE => byte(ram, 0xFB) & 0x1F == cube_variant(m),
        VIDEO_PINBALL => byte(ram, 0xC1) == m,
        WORD_ZAPPER => byte(ram, 0xDB) == m,
        YARS_REVENGE => byte(ram, 0xE3) == m,
        _ => true,
    }
}

/// Video Cube: the game number that stands for variant m mod 100.
fn cube_variant(m: i32) -> i32 {
    match m % 100 {
        0 => 0,
        1 => 2,
        _ => 8,
    }
}

/// What a selection does to the rule variables once the mode is reached.
pub fn on_reached(s: &mut Rules, game: usize, pressed: bool, ram: &[u8; 128]) {
    match game {
        ALIEN => s.lives = byte(ram, 0xC0) & 15,
        GRAVITAR => {
            s.lives = match s.mode {
                1 => 15,
                3 => 100,
                4 => 25,
                _ => 6,
            };
        }
        DEMON_ATTACK => {
            if pressed {
                s.aux[CHANGED] = 1;
            }
        }
        _ => {}
    }
}

/// The console RESET switch as a starting action.
pub const RESET: u8 = 40;

/// There are no more starting actions.
pub const NO_ACTION: u8 = 255;

/// Starting action number `i` of a game, or `NO_ACTION`.
pub fn start_action(game: usize, i: u32) -> u8 {
    const NONE: u8 = NO_ACTION;
    let (count, action): (u32, u8) = match game {
        AIR_RAID | ASTERIX | ENDURO | GOPHER | JOURNEY_ESCAPE | KABOOM | LOST_LUGGAGE | MR_DO | TURMOIL
        | UP_N_DOWN | YARS_REVENGE => (1, 1),
        BEAM_RIDER => (1, 3),
        CASINO => return scripted(i, 60, 0, [1, 1, NONE, NONE]),
        DARKCHAMBERS => (486, 0),
        DOUBLE_DUNK => (1, 10),
        ELEVATOR_ACTION | GRAVITAR => (16, 1),
        ENTOMBED => {
            return if i == 0 {
                1
            } else if i < 6 {
                0
            } else {
                NONE
            };
        }
        KEYSTONE_KAPERS | LASER_GATES => (1, RESET),
        KLAX => return scripted(i, 0, 0, [1, 0, NONE, NONE]),
        MARIO_BROS => {
            return if i < 10 {
                0
            } else if i < 17 {
                1
            } else {
                NONE
            };
        }
        PITFALL | PITFALL2 | PRIVATE_EYE => (1, 2),
        SIR_LANCELOT => return scripted(i, 0, 0, [RESET, 4, NONE, NONE]),
        SKIING => (16, 5),
        VIDEO_CUBE => return scripted(i, 61, 0, [1, 0, 0, NONE]),
        WORD_ZAPPER => return scripted(i, 486, 0, [1, 0, 0, NONE]),
        _ => (0, 0),
    };
    if i < count { action } else { NONE }
}

/// `count` times `action`, then the tail.
fn scripted(i: u32, count: u32, action: u8, tail: [u8; 4]) -> u8 {
    if i < count { action } else { tail[if i - count < 4 { i - count } else { 3 } as usize] }
}
