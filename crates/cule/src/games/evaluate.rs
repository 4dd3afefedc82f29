//! Which rule belongs to which game, and what its variables are when an episode begins.
//!
//! Device subset.

use super::rows::*;
use super::{Rules, rules_a_f, rules_g_p, rules_p_z};

// Places of the rule variables that only some games have.
pub const STARTED: usize = 0;
pub const LEVEL: usize = 1;
pub const CHANGED: usize = 2;
pub const IDLE: usize = 3;
pub const PP: usize = 4;
pub const PC: usize = 5;
pub const T0: usize = 6;
pub const T1: usize = 7;
pub const MATCHES: usize = 8;
pub const PAR: usize = 9;
pub const HITS: usize = 10;
pub const STATUS: usize = 11;
pub const BASE: usize = 12;
pub const LAST: usize = 13;
pub const LB: usize = 14;
pub const PDP: usize = 15;
pub const PDS: usize = 16;
pub const CUBE: usize = 17;
pub const PF: usize = 18;
/// How many there are.
pub const AUX_COUNT: usize = 19;

/// Rule variables at the start of an episode; what a game does not name keeps its value.
pub fn start_values(s: &mut Rules, game: usize) {
    match game {
        ADVENTURE => {
            s.reward = 0;
            s.over = 0;
        }
        AIR_RAID => {
            s.previous = 0;
        }
        ALIEN => {
            s.previous = 0;
            s.lives = 3;
        }
        AMIDAR => {
            s.previous = 0;
            s.lives = 3;
        }
        ASSAULT => {
            s.previous = 0;
            s.lives = 4;
        }
        ASTERIX => {
            s.previous = 0;
            s.lives = 3;
        }
        ASTEROIDS => {
            s.previous = 0;
            s.lives = 4;
        }
        ATLANTIS => {
            s.previous = 0;
            s.lives = 6;
        }
        ATLANTIS2 => {
            s.previous = 0;
        }
        BACKGAMMON => {
            s.reward = 0;
            s.over = 0;
        }
        BANK_HEIST => {
            s.previous = 0;
            s.lives = 5;
        }
        BASIC_MATH => {
            s.previous = 0;
        }
        BATTLE_ZONE => {
            s.previous = 0;
            s.lives = 5;
        }
        BEAM_RIDER => {
            s.previous = 0;
            s.lives = 3;
        }
        BERZERK => {
            s.previous = 0;
            s.lives = 3;
        }
        BLACKJACK => {
            s.previous = 0;
        }
        BOWLING => {
            s.previous = 0;
        }
        BOXING => {
            s.previous = 0;
        }
        BREAKOUT => {
            s.previous = 0;
            s.lives = 5;
            s.aux[STARTED] = 0;
        }
        CARNIVAL => {
            s.previous = 0;
        }
        CASINO => {
            s.reward = 0;
            s.previous = 0;
        }
        CENTIPEDE => {
            s.previous = 0;
            s.lives = 3;
        }
        CHOPPER_COMMAND => {
            s.previous = 0;
            s.lives = 3;
            s.aux[STARTED] = 0;
        }
        CRAZY_CLIMBER => {
            s.previous = 0;
            s.lives = 5;
        }
        CROSSBOW => {
            s.previous = 0;
        }
        DARKCHAMBERS => {
            s.reward = 0;
            s.over = 0;
            s.aux[LEVEL] = 0;
            s.previous = 0;
        }
        DEFENDER => {
            s.previous = 0;
            s.lives = 3;
        }
        DEMON_ATTACK => {
            s.previous = 0;
            s.lives = 4;
            s.aux[CHANGED] = 0;
        }
        DONKEY_KONG => {
            s.previous = 0;
            s.lives = 2;
        }
        DOUBLE_DUNK => {
            s.previous = 0;
        }
        EARTHWORLD => {
            s.previous = 0;
        }
        ELEVATOR_ACTION => {
            s.previous = 0;
            s.lives = 4;
        }
        ENDURO => {
            s.previous = 0;
        }
        ENTOMBED => {
            s.previous = 0;
        }
        ET => {
            s.previous = 0;
            s.lives = 0;
        }
        FISHING_DERBY => {
            s.previous = 0;
        }
        FLAG_CAPTURE => {
            s.previous = 0;
        }
        FREEWAY => {
            s.previous = 0;
        }
        FROGGER => {
            s.previous = 0;
            s.lives = 4;
        }
        FROSTBITE => {
            s.previous = 0;
            s.lives = 4;
        }
        GALAXIAN => {
            s.previous = 0;
            s.lives = 3;
        }
        GOPHER => {
            s.previous = 0;
            s.lives = 3;
        }
        GRAVITAR => {
            s.previous = 0;
            s.lives = 6;
        }
        HANGMAN => {
            s.aux[PC] = 0;
            s.aux[PP] = 0;
            s.aux[T0] = -1;
            s.aux[T1] = -1;
        }
        HAUNTED_HOUSE => {
            s.aux[MATCHES] = 0;
            s.lives = 9;
        }
        HERO => {
            s.previous = 0;
            s.lives = 4;
        }
        HUMAN_CANNONBALL => {
            s.previous = 0;
        }
        ICE_HOCKEY => {
            s.previous = 0;
        }
        JAMESBOND => {
            s.previous = 0;
            s.lives = 6;
        }
        JOURNEY_ESCAPE => {
            s.previous = 0;
        }
        KABOOM => {
            s.previous = 0;
        }
        KANGAROO => {
            s.previous = 0;
            s.lives = 3;
        }
        KEYSTONE_KAPERS => {
            s.previous = 0;
            s.lives = 3;
        }
        KING_KONG => {
            s.previous = 0;
            s.lives = 3;
        }
        KLAX => {
            s.previous = 0;
        }
        KOOLAID => {
            s.previous = 0;
        }
        KRULL => {
            s.previous = 0;
            s.lives = 3;
        }
        KUNG_FU_MASTER => {
            s.previous = 0;
            s.lives = 4;
        }
        LASER_GATES => {
            s.previous = 0;
        }
        LOST_LUGGAGE => {
            s.previous = 0;
            s.lives = 3;
        }
        MARIO_BROS => {
            s.previous = 0;
            s.lives = 0;
        }
        MINIATURE_GOLF => {
            s.reward = 0;
            s.over = 0;
            s.aux[LEVEL] = 0;
            s.aux[PAR] = 0;
            s.aux[HITS] = 0;
            s.aux[STATUS] = 0;
            s.aux[BASE] = 0;
        }
        MONTEZUMA_REVENGE => {
            s.previous = 0;
            s.lives = 6;
        }
        MR_DO => {
            s.previous = 0;
            s.lives = 4;
        }
        MS_PACMAN => {
            s.previous = 0;
            s.lives = 3;
        }
        NAME_THIS_GAME => {
            s.previous = 0;
            s.lives = 3;
        }
        OTHELLO => {
            s.previous = 0;
            s.aux[IDLE] = 0;
        }
        PACMAN => {
            s.previous = 0;
            s.lives = 4;
        }
        PHOENIX => {
            s.previous = 0;
            s.lives = 5;
        }
        PITFALL => {
            s.previous = 2000;
            s.lives = 3;
        }
        PITFALL2 => {
            s.previous = 4000;
            s.lives = 1;
        }
        PONG => {
            s.previous = 0;
        }
        POOYAN => {
            s.previous = 0;
            s.lives = 3;
        }
        PRIVATE_EYE => {
            s.previous = 1000;
        }
        QBERT => {
            s.previous = 0;
            s.aux[LAST] = 2;
            s.lives = 4;
        }
        RIVERRAID => {
            s.previous = 0;
            s.aux[LB] = 88;
        }
        ROAD_RUNNER => {
            s.previous = 0;
            s.lives = 3;
        }
        ROBOTANK => {
            s.previous = 0;
            s.lives = 4;
        }
        SEAQUEST => {
            s.previous = 0;
            s.lives = 4;
        }
        SIR_LANCELOT => {
            s.previous = 0;
            s.lives = 3;
        }
        SKIING => {
            s.previous = 0;
        }
        SOLARIS => {
            s.previous = 0;
            s.lives = 3;
        }
        SPACE_INVADERS => {
            s.previous = 0;
            s.lives = 3;
        }
        SPACE_WAR => {
            s.previous = 0;
        }
        STAR_GUNNER => {
            s.previous = 0;
            s.lives = 5;
            s.aux[STARTED] = 0;
        }
        SUPERMAN => {
            s.reward = 0;
        }
        SURROUND => {
            s.previous = 0;
        }
        TENNIS => {
            s.aux[PDP] = 0;
            s.aux[PDS] = 0;
        }
        TETRIS => {
            s.previous = 0;
        }
        TIC_TAC_TOE_3D => {
            s.reward = 0;
            s.over = 0;
        }
        TIME_PILOT => {
            s.previous = 0;
            s.lives = 5;
        }
        TRONDEAD => {
            s.previous = 0;
            s.lives = 5;
        }
        TURMOIL => {
            s.previous = 0;
            s.lives = 4;
        }
        TUTANKHAM => {
            s.previous = 0;
            s.lives = 3;
        }
        UP_N_DOWN => {
            s.previous = 0;
            s.lives = 5;
        }
        VENTURE => {
            s.previous = 0;
            s.lives = 4;
        }
        VIDEO_CHECKERS => {
            s.reward = 0;
            s.over = 0;
        }
        VIDEO_CHESS => {
            s.reward = 0;
            s.over = 0;
        }
        VIDEO_CUBE => {
            s.aux[CUBE] = 1;
            s.aux[PF] = 0;
        }
        VIDEO_PINBALL => {
            s.previous = 0;
            s.lives = 3;
        }
        WIZARD_OF_WOR => {
            s.previous = 0;
            s.lives = 3;
        }
        WORD_ZAPPER => {
            s.reward = 0;
            s.previous = 0;
            s.over = 0;
        }
        YARS_REVENGE => {
            s.previous = 0;
            s.lives = 4;
        }
        ZAXXON => {
            s.previous = 0;
            s.lives = 5;
        }
        _ => {}
    }
}

/// The rule of `game` on the RAM of one frame. A ROM without rules earns nothing and never ends.
pub fn evaluate(s: &mut Rules, game: usize, ram: &[u8; 128], cart_ram: &[u8; 128]) {
    match game {
        ADVENTURE => {
            rules_a_f::adventure(s, ram, cart_ram);
        }
        AIR_RAID => {
            rules_a_f::air_raid(s, ram, cart_ram);
        }
        ALIEN => {
            rules_a_f::alien(s, ram, cart_ram);
        }
        AMIDAR => {
            rules_a_f::amidar(s, ram, cart_ram);
        }
        ASSAULT => {
            rules_a_f::assault(s, ram, cart_ram);
        }
        ASTERIX => {
            rules_a_f::asterix(s, ram, cart_ram);
        }
        ASTEROIDS => {
            rules_a_f::asteroids(s, ram, cart_ram);
        }
        ATLANTIS => {
            rules_a_f::atlantis(s, ram, cart_ram);
        }
        ATLANTIS2 => {
            rules_a_f::atlantis2(s, ram, cart_ram);
        }
        BACKGAMMON => {
            rules_a_f::backgammon(s, ram, cart_ram);
        }
        BANK_HEIST => {
            rules_a_f::bank_heist(s, ram, cart_ram);
        }
        BASIC_MATH => {
            rules_a_f::basic_math(s, ram, cart_ram);
        }
        BATTLE_ZONE => {
            rules_a_f::battle_zone(s, ram, cart_ram);
        }
        BEAM_RIDER => {
            rules_a_f::beam_rider(s, ram, cart_ram);
        }
        BERZERK => {
            rules_a_f::berzerk(s, ram, cart_ram);
        }
        BLACKJACK => {
            rules_a_f::blackjack(s, ram, cart_ram);
        }
        BOWLING => {
            rules_a_f::bowling(s, ram, cart_ram);
        }
        BOXING => {
            rules_a_f::boxing(s, ram, cart_ram);
        }
        BREAKOUT => {
            rules_a_f::breakout(s, ram, cart_ram);
        }
        CARNIVAL => {
            rules_a_f::carnival(s, ram, cart_ram);
        }
        CASINO => {
            rules_a_f::casino(s, ram, cart_ram);
        }
        CENTIPEDE => {
            rules_a_f::centipede(s, ram, cart_ram);
        }
        CHOPPER_COMMAND => {
            rules_a_f::chopper_command(s, ram, cart_ram);
        }
        CRAZY_CLIMBER => {
            rules_a_f::crazy_climber(s, ram, cart_ram);
        }
        CROSSBOW => {
            rules_a_f::crossbow(s, ram, cart_ram);
        }
        DARKCHAMBERS => {
            rules_a_f::darkchambers(s, ram, cart_ram);
        }
        DEFENDER => {
            rules_a_f::defender(s, ram, cart_ram);
        }
        DEMON_ATTACK => {
            rules_a_f::demon_attack(s, ram, cart_ram);
        }
        DONKEY_KONG => {
            rules_a_f::donkey_kong(s, ram, cart_ram);
        }
        DOUBLE_DUNK => {
            rules_a_f::double_dunk(s, ram, cart_ram);
        }
        EARTHWORLD => {
            rules_a_f::earthworld(s, ram, cart_ram);
        }
        ELEVATOR_ACTION => {
            rules_a_f::elevator_action(s, ram, cart_ram);
        }
        ENDURO => {
            rules_a_f::enduro(s, ram, cart_ram);
        }
        ENTOMBED => {
            rules_a_f::entombed(s, ram, cart_ram);
        }
        ET => {
            rules_a_f::et(s, ram, cart_ram);
        }
        FISHING_DERBY => {
            rules_a_f::fishing_derby(s, ram, cart_ram);
        }
        FLAG_CAPTURE => {
            rules_a_f::flag_capture(s, ram, cart_ram);
        }
        FREEWAY => {
            rules_a_f::freeway(s, ram, cart_ram);
        }
        FROGGER => {
            rules_g_p::frogger(s, ram, cart_ram);
        }
        FROSTBITE => {
            rules_g_p::frostbite(s, ram, cart_ram);
        }
        GALAXIAN => {
            rules_g_p::galaxian(s, ram, cart_ram);
        }
        GOPHER => {
            rules_g_p::gopher(s, ram, cart_ram);
        }
        GRAVITAR => {
            rules_g_p::gravitar(s, ram, cart_ram);
        }
        HANGMAN => {
            rules_g_p::hangman(s, ram, cart_ram);
        }
        HAUNTED_HOUSE => {
            rules_g_p::haunted_house(s, ram, cart_ram);
        }
        HERO => {
            rules_g_p::hero(s, ram, cart_ram);
        }
        HUMAN_CANNONBALL => {
            rules_g_p::human_cannonball(s, ram, cart_ram);
        }
        ICE_HOCKEY => {
            rules_g_p::ice_hockey(s, ram, cart_ram);
        }
        JAMESBOND => {
            rules_g_p::jamesbond(s, ram, cart_ram);
        }
        JOURNEY_ESCAPE => {
            rules_g_p::journey_escape(s, ram, cart_ram);
        }
        KABOOM => {
            rules_g_p::kaboom(s, ram, cart_ram);
        }
        KANGAROO => {
            rules_g_p::kangaroo(s, ram, cart_ram);
        }
        KEYSTONE_KAPERS => {
            rules_g_p::keystone_kapers(s, ram, cart_ram);
        }
        KING_KONG => {
            rules_g_p::king_kong(s, ram, cart_ram);
        }
        KLAX => {
            rules_g_p::klax(s, ram, cart_ram);
        }
        KOOLAID => {
            rules_g_p::koolaid(s, ram, cart_ram);
        }
        KRULL => {
            rules_g_p::krull(s, ram, cart_ram);
        }
        KUNG_FU_MASTER => {
            rules_g_p::kung_fu_master(s, ram, cart_ram);
        }
        LASER_GATES => {
            rules_g_p::laser_gates(s, ram, cart_ram);
        }
        LOST_LUGGAGE => {
            rules_g_p::lost_luggage(s, ram, cart_ram);
        }
        MARIO_BROS => {
            rules_g_p::mario_bros(s, ram, cart_ram);
        }
        MINIATURE_GOLF => {
            rules_g_p::miniature_golf(s, ram, cart_ram);
        }
        MONTEZUMA_REVENGE => {
            rules_g_p::montezuma_revenge(s, ram, cart_ram);
        }
        MR_DO => {
            rules_g_p::mr_do(s, ram, cart_ram);
        }
        MS_PACMAN => {
            rules_g_p::ms_pacman(s, ram, cart_ram);
        }
        NAME_THIS_GAME => {
            rules_g_p::name_this_game(s, ram, cart_ram);
        }
        OTHELLO => {
            rules_g_p::othello(s, ram, cart_ram);
        }
        PACMAN => {
            rules_g_p::pacman(s, ram, cart_ram);
        }
        PHOENIX => {
            rules_g_p::phoenix(s, ram, cart_ram);
        }
        PITFALL => {
            rules_g_p::pitfall(s, ram, cart_ram);
        }
        PITFALL2 => {
            rules_g_p::pitfall2(s, ram, cart_ram);
        }
        PONG => {
            rules_g_p::pong(s, ram, cart_ram);
        }
        POOYAN => {
            rules_g_p::pooyan(s, ram, cart_ram);
        }
        PRIVATE_EYE => {
            rules_g_p::private_eye(s, ram, cart_ram);
        }
        QBERT => {
            rules_p_z::qbert(s, ram, cart_ram);
        }
        RIVERRAID => {
            rules_p_z::riverraid(s, ram, cart_ram);
        }
        ROAD_RUNNER => {
            rules_p_z::road_runner(s, ram, cart_ram);
        }
        ROBOTANK => {
            rules_p_z::robotank(s, ram, cart_ram);
        }
        SEAQUEST => {
            rules_p_z::seaquest(s, ram, cart_ram);
        }
        SIR_LANCELOT => {
            rules_p_z::sir_lancelot(s, ram, cart_ram);
        }
        SKIING => {
            rules_p_z::skiing(s, ram, cart_ram);
        }
        SOLARIS => {
            rules_p_z::solaris(s, ram, cart_ram);
        }
        SPACE_INVADERS => {
            rules_p_z::space_invaders(s, ram, cart_ram);
        }
        SPACE_WAR => {
            rules_p_z::space_war(s, ram, cart_ram);
        }
        STAR_GUNNER => {
            rules_p_z::star_gunner(s, ram, cart_ram);
        }
        SUPERMAN => {
            rules_p_z::superman(s, ram, cart_ram);
        }
        SURROUND => {
            rules_p_z::surround(s, ram, cart_ram);
        }
        TENNIS => {
            rules_p_z::tennis(s, ram, cart_ram);
        }
        TETRIS => {
            rules_p_z::tetris(s, ram, cart_ram);
        }
        TIC_TAC_TOE_3D => {
            rules_p_z::tic_tac_toe_3d(s, ram, cart_ram);
        }
        TIME_PILOT => {
            rules_p_z::time_pilot(s, ram, cart_ram);
        }
        TRONDEAD => {
            rules_p_z::trondead(s, ram, cart_ram);
        }
        TURMOIL => {
            rules_p_z::turmoil(s, ram, cart_ram);
        }
        TUTANKHAM => {
            rules_p_z::tutankham(s, ram, cart_ram);
        }
        UP_N_DOWN => {
            rules_p_z::up_n_down(s, ram, cart_ram);
        }
        VENTURE => {
            rules_p_z::venture(s, ram, cart_ram);
        }
        VIDEO_CHECKERS => {
            rules_p_z::video_checkers(s, ram, cart_ram);
        }
        VIDEO_CHESS => {
            rules_p_z::video_chess(s, ram, cart_ram);
        }
        VIDEO_CUBE => {
            rules_p_z::video_cube(s, ram, cart_ram);
        }
        VIDEO_PINBALL => {
            rules_p_z::video_pinball(s, ram, cart_ram);
        }
        WIZARD_OF_WOR => {
            rules_p_z::wizard_of_wor(s, ram, cart_ram);
        }
        WORD_ZAPPER => {
            rules_p_z::word_zapper(s, ram, cart_ram);
        }
        YARS_REVENGE => {
            rules_p_z::yars_revenge(s, ram, cart_ram);
        }
        ZAXXON => {
            rules_p_z::zaxxon(s, ram, cart_ram);
        }
        _ => {}
    }
}
