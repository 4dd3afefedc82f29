//! One row per game, in alphabetical order: television, controllers, lives, modes, actions. Behind the 104 games with
//! rules stand the four that need two players, and last what is assumed of an unknown ROM.
//!
//! Device subset.

/// What is fixed for a game.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GameRow {
    /// Frame line of the first row of the picture.
    pub first_line: i16,
    /// Rows before the television's format is known.
    pub height: i16,
    /// Bits named below.
    pub flags: u16,
    /// How lives are reported, one of the `LIVES_` constants.
    pub lives: u16,
    /// Largest paddle resistance.
    pub paddle_max: i32,
    /// Mode after loading.
    pub default_mode: u32,
    /// Actions that do something, one bit each.
    pub minimal: u32,
    /// Actions that are let through.
    pub legal: u32,
}

pub const HMOVE_BLANKS: u16 = 1;
pub const PADDLES_LEFT: u16 = 2;
pub const PADDLES_RIGHT: u16 = 4;
pub const SWAP_PORTS: u16 = 8;
pub const SWAP_PADDLES: u16 = 16;
/// Difficulty switches at A before the first frame of the environment.
pub const LEFT_A: u16 = 32;
pub const RIGHT_A: u16 = 64;
pub const FORCED_PAL: u16 = 128;

/// Lives are 0 once over, as counted, always 0, always 1, or 1 until over.
pub const LIVES_STD: u16 = 0;
pub const LIVES_RAW: u16 = 1;
pub const LIVES_ZERO: u16 = 2;
pub const LIVES_ONE: u16 = 3;
pub const LIVES_ALIVE: u16 = 4;

/// Games with rules.
pub const GAMES: usize = 104;
/// Rows of the table.
pub const ROW_COUNT: usize = 109;
/// The row of a ROM that is no known game.
pub const UNKNOWN: usize = 108;

/// One row per game.
#[rustfmt::skip]
pub const ROWS: [GameRow; ROW_COUNT] = [
    // adventure
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ONE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // air_raid
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 1, minimal: 0x0181B, legal: 0x3FFFF },
    // alien
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_RAW, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // amidar
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | LEFT_A | RIGHT_A, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x03C3F, legal: 0x3FFFF },
    // assault
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0181F, legal: 0x3FFFF },
    // asterix
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x003FD, legal: 0x3FFFF },
    // asteroids
    GameRow { first_line: 34, height: 210, flags: 0, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0FCFF, legal: 0x3FFFF },
    // atlantis
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x01803, legal: 0x3FFFF },
    // atlantis2
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x01803, legal: 0x3FFFF },
    // backgammon
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | PADDLES_LEFT, lives: LIVES_ALIVE, paddle_max: 1000000, default_mode: 0, minimal: 0x0001A, legal: 0x3FFFF },
    // bank_heist
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // basic_math
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 5, minimal: 0x0003F, legal: 0x3FFFF },
    // battle_zone
    GameRow { first_line: 34, height: 210, flags: 0, lives: LIVES_STD, paddle_max: 790196, default_mode: 1, minimal: 0x3FFFF, legal: 0x3FFFF },
    // beam_rider
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x018DF, legal: 0x3FFFF },
    // berzerk
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 1, minimal: 0x3FFFF, legal: 0x3FFFF },
    // blackjack
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | PADDLES_LEFT, lives: LIVES_ALIVE, paddle_max: 795000, default_mode: 0, minimal: 0x00027, legal: 0x3FFFF },
    // bowling
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x02427, legal: 0x3FFFF },
    // boxing
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // breakout
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | PADDLES_LEFT, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0001B, legal: 0x3FFFF },
    // carnival
    GameRow { first_line: 26, height: 214, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x0181B, legal: 0x3FFFF },
    // casino
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | PADDLES_LEFT, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x00027, legal: 0x3FFFF },
    // centipede
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 22, minimal: 0x3FFFF, legal: 0x3FFFF },
    // chopper_command
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_RAW, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // crazy_climber
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x003FD, legal: 0x3FFFF },
    // crossbow
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // darkchambers
    GameRow { first_line: 34, height: 210, flags: 0, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // defender
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 1, minimal: 0x3FFFF, legal: 0x3FFFF },
    // demon_attack
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 1, minimal: 0x0181B, legal: 0x3FFFF },
    // donkey_kong
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // double_dunk
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // earthworld
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // elevator_action
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // enduro
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x01B3B, legal: 0x3FFFF },
    // entombed
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // et
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // fishing_derby
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // flag_capture
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 8, minimal: 0x3FFFF, legal: 0x3FFFF },
    // freeway
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x00025, legal: 0x3FFFF },
    // frogger
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0003D, legal: 0x3FFFF },
    // frostbite
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // galaxian
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 1, minimal: 0x0181B, legal: 0x3FFFF },
    // gopher
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x01C1F, legal: 0x3FFFF },
    // gravitar
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // hangman
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // haunted_house
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // hero
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // human_cannonball
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // ice_hockey
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // jamesbond
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // journey_escape
    GameRow { first_line: 34, height: 230, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FBFD, legal: 0x3FFFF },
    // kaboom
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | PADDLES_LEFT, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x0001B, legal: 0x3FFFF },
    // kangaroo
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // keystone_kapers
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x03FFF, legal: 0x3FFFF },
    // king_kong
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0003F, legal: 0x3FFFF },
    // klax
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // koolaid
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x003FD, legal: 0x3FFFF },
    // krull
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // kung_fu_master
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FB3D, legal: 0x3FFFF },
    // laser_gates
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // lost_luggage
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x003FD, legal: 0x003FD },
    // mario_bros
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // miniature_golf
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // montezuma_revenge
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // mr_do
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x03C3F, legal: 0x3FFFF },
    // ms_pacman
    GameRow { first_line: 34, height: 210, flags: 0, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x003FD, legal: 0x3FFFF },
    // name_this_game
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 8, minimal: 0x0181B, legal: 0x3FFFF },
    // othello
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x003FF, legal: 0x3FFFF },
    // pacman
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0003D, legal: 0x3FFFF },
    // phoenix
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0383B, legal: 0x3FFFF },
    // pitfall
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // pitfall2
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // pong
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | PADDLES_LEFT | PADDLES_RIGHT | SWAP_PADDLES, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x0181B, legal: 0x3FFFF },
    // pooyan
    GameRow { first_line: 26, height: 220, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 10, minimal: 0x02427, legal: 0x3FFFF },
    // private_eye
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // qbert
    GameRow { first_line: 40, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0003F, legal: 0x3FFFF },
    // riverraid
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // road_runner
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // robotank
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // seaquest
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // sir_lancelot
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0181B, legal: 0x3FFFF },
    // skiing
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x00019, legal: 0x003FD },
    // solaris
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // space_invaders
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x0181B, legal: 0x3FFFF },
    // space_war
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 6, minimal: 0x3FFFF, legal: 0x3FFFF },
    // star_gunner
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // superman
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // surround
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | SWAP_PORTS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x0003D, legal: 0x3FFFF },
    // tennis
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // tetris
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x0003B, legal: 0x3FFFF },
    // tic_tac_toe_3d
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x003FF, legal: 0x3FFFF },
    // time_pilot
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x03C3F, legal: 0x3FFFF },
    // trondead
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // turmoil
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x01BFF, legal: 0x3FFFF },
    // tutankham
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x01C3D, legal: 0x3FFFF },
    // up_n_down
    GameRow { first_line: 30, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x02427, legal: 0x3FFFF },
    // venture
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // video_checkers
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 1, minimal: 0x003C2, legal: 0x3FFFF },
    // video_chess
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x003FF, legal: 0x3FFFF },
    // video_cube
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // video_pinball
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x01C3F, legal: 0x3FFFF },
    // wizard_of_wor
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | SWAP_PORTS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x03C3F, legal: 0x3FFFF },
    // word_zapper
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ALIVE, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // yars_revenge
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // zaxxon
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_STD, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // combat
    GameRow { first_line: 39, height: 256, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // joust
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // maze_craze
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | FORCED_PAL, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // warlords
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS | PADDLES_LEFT | PADDLES_RIGHT, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
    // unknown
    GameRow { first_line: 34, height: 210, flags: HMOVE_BLANKS, lives: LIVES_ZERO, paddle_max: 790196, default_mode: 0, minimal: 0x3FFFF, legal: 0x3FFFF },
];

pub const ADVENTURE: usize = 0;
pub const AIR_RAID: usize = 1;
pub const ALIEN: usize = 2;
pub const AMIDAR: usize = 3;
pub const ASSAULT: usize = 4;
pub const ASTERIX: usize = 5;
pub const ASTEROIDS: usize = 6;
pub const ATLANTIS: usize = 7;
pub const ATLANTIS2: usize = 8;
pub const BACKGAMMON: usize = 9;
pub const BANK_HEIST: usize = 10;
pub const BASIC_MATH: usize = 11;
pub const BATTLE_ZONE: usize = 12;
pub const BEAM_RIDER: usize = 13;
pub const BERZERK: usize = 14;
pub const BLACKJACK: usize = 15;
pub const BOWLING: usize = 16;
pub const BOXING: usize = 17;
pub const BREAKOUT: usize = 18;
pub const CARNIVAL: usize = 19;
pub const CASINO: usize = 20;
pub const CENTIPEDE: usize = 21;
pub const CHOPPER_COMMAND: usize = 22;
pub const CRAZY_CLIMBER: usize = 23;
pub const CROSSBOW: usize = 24;
pub const DARKCHAMBERS: usize = 25;
pub const DEFENDER: usize = 26;
pub const DEMON_ATTACK: usize = 27;
pub const DONKEY_KONG: usize = 28;
pub const DOUBLE_DUNK: usize = 29;
pub const EARTHWORLD: usize = 30;
pub const ELEVATOR_ACTION: usize = 31;
pub const ENDURO: usize = 32;
pub const ENTOMBED: usize = 33;
pub const ET: usize = 34;
pub const FISHING_DERBY: usize = 35;
pub const FLAG_CAPTURE: usize = 36;
pub const FREEWAY: usize = 37;
pub const FROGGER: usize = 38;
pub const FROSTBITE: usize = 39;
pub const GALAXIAN: usize = 40;
pub const GOPHER: usize = 41;
pub const GRAVITAR: usize = 42;
pub const HANGMAN: usize = 43;
pub const HAUNTED_HOUSE: usize = 44;
pub const HERO: usize = 45;
pub const HUMAN_CANNONBALL: usize = 46;
pub const ICE_HOCKEY: usize = 47;
pub const JAMESBOND: usize = 48;
pub const JOURNEY_ESCAPE: usize = 49;
pub const KABOOM: usize = 50;
pub const KANGAROO: usize = 51;
pub const KEYSTONE_KAPERS: usize = 52;
pub const KING_KONG: usize = 53;
pub const KLAX: usize = 54;
pub const KOOLAID: usize = 55;
pub const KRULL: usize = 56;
pub const KUNG_FU_MASTER: usize = 57;
pub const LASER_GATES: usize = 58;
pub const LOST_LUGGAGE: usize = 59;
pub const MARIO_BROS: usize = 60;
pub const MINIATURE_GOLF: usize = 61;
pub const MONTEZUMA_REVENGE: usize = 62;
pub const MR_DO: usize = 63;
pub const MS_PACMAN: usize = 64;
pub const NAME_THIS_GAME: usize = 65;
pub const OTHELLO: usize = 66;
pub const PACMAN: usize = 67;
pub const PHOENIX: usize = 68;
pub const PITFALL: usize = 69;
pub const PITFALL2: usize = 70;
pub const PONG: usize = 71;
pub const POOYAN: usize = 72;
pub const PRIVATE_EYE: usize = 73;
pub const QBERT: usize = 74;
pub const RIVERRAID: usize = 75;
pub const ROAD_RUNNER: usize = 76;
pub const ROBOTANK: usize = 77;
pub const SEAQUEST: usize = 78;
pub const SIR_LANCELOT: usize = 79;
pub const SKIING: usize = 80;
pub const SOLARIS: usize = 81;
pub const SPACE_INVADERS: usize = 82;
pub const SPACE_WAR: usize = 83;
pub const STAR_GUNNER: usize = 84;
pub const SUPERMAN: usize = 85;
pub const SURROUND: usize = 86;
pub const TENNIS: usize = 87;
pub const TETRIS: usize = 88;
pub const TIC_TAC_TOE_3D: usize = 89;
pub const TIME_PILOT: usize = 90;
pub const TRONDEAD: usize = 91;
pub const TURMOIL: usize = 92;
pub const TUTANKHAM: usize = 93;
pub const UP_N_DOWN: usize = 94;
pub const VENTURE: usize = 95;
pub const VIDEO_CHECKERS: usize = 96;
pub const VIDEO_CHESS: usize = 97;
pub const VIDEO_CUBE: usize = 98;
pub const VIDEO_PINBALL: usize = 99;
pub const WIZARD_OF_WOR: usize = 100;
pub const WORD_ZAPPER: usize = 101;
pub const YARS_REVENGE: usize = 102;
pub const ZAXXON: usize = 103;
pub const COMBAT: usize = 104;
pub const JOUST: usize = 105;
pub const MAZE_CRAZE: usize = 106;
pub const WARLORDS: usize = 107;
