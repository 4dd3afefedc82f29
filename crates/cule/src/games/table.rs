//! The table of games: one row per game.
//!
//! The rows are in alphabetical order: first the games for one player, then those that require two, and last
//! the row for an unknown ROM. Fields that a row omits have the values of `GAME`. Games that need code have a
//! name in `Special` and functions in `rules/`. CONTRIBUTING.md describes how to add a game.
//!
//! Addresses are bus addresses of the console's RAM, $80 to $FF.
//!
//! Device subset.

use super::row::*;

/// Number of rows.
pub const GAME_COUNT: usize = 109;
/// Index of the row for unknown ROMs.
pub const UNKNOWN: usize = GAME_COUNT - 1;

/// One row per game.
#[rustfmt::skip]
pub static GAMES: [Game; GAME_COUNT] = [
    Game {
        name: "adventure", md5: "4b27f5397c442d25f0c418ccdacf1926", cartridge: "4K", pal: true,
        special: Special::Adventure, modes: &[0, 1, 2], difficulties: &[0, 1, 2, 3], reported: Reported::One,
        ..GAME
    },
    Game {
        name: "air_raid", md5: "35be55426c1fec32dfb503b4f0651572", cartridge: "4K", pal: true,
        modes: &[1, 2, 3, 4, 5, 6, 7, 8], minimal: 0x0181B, select: held_before(20, shown(0xAA, 10)),
        start: [press(1, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0xAA, 0xA9, 0xA8), end: when(is(0xA7, 255)),
        reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "alien", md5: "f1a0a23e6464d954e3a9579c4ccd01c8", cartridge: "4K",
        special: Special::Alien, modes: &[0, 1, 2, 3], difficulties: &[0, 1, 2, 3], select: shown(0x81, 1),
        score: times(10, places(Form::Alien, 0x8B, -2, 5)), lives: count(0xC0, 15, 0),
        end: when(bits(0xC0, 15, 0)), start_lives: 3, reported: Reported::CountedAlways,
        ..GAME
    },
    Game {
        name: "amidar", md5: "acb7750b4d0c4bd34969802a7deb2990", cartridge: "4K",
        difficulties: &[0, 3], flags: HMOVE_BLANKS | LEFT_A | RIGHT_A, minimal: 0x03C3F,
        score: bcd3(0xD9, 0xDA, 0xDB), lives: count(0xD6, 15, 0), end: when(is(0xD6, 128)), start_lives: 3,
        last_read: 0xD6,
        ..GAME
    },
    Game {
        name: "assault", md5: "de78b3a064d374390ac0710f95edde92", cartridge: "4K",
        minimal: 0x0181F, score: bcd3(0x82, 0x81, 0x80), lives: count(0xE5, 255, 0), end: when(is(0xE5, 0)),
        start_lives: 4, last_read: 0xE5,
        ..GAME
    },
    Game {
        name: "asterix", md5: "89a68746eff7f266bbf08de2483abe55", cartridge: "F8",
        minimal: 0x003FD, start: [press(1, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0xE0, 0xDF, 0xDE),
        lives: count(0xD3, 15, 0), end: when_both(is(0xC7, 1), bits(0xD3, 15, 1)), start_lives: 3, last_read: 0xC7,
        ..GAME
    },
    Game {
        name: "asteroids", md5: "ccbd36746ed4525821a8083b0d6d2c2c", cartridge: "F8",
        modes: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 128],
        difficulties: &[0, 3], flags: 0, minimal: 0x0FCFF, select: shown(0x80, 2),
        score: wrapping(100_000, times(10, bcd2(0xBE, 0xBD))), lives: count(0xBC, 0xF0, 0),
        end: when(bits(0xBC, 0xF0, 0)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "atlantis", md5: "9ad36e699ef6f45d9eb6c4cf90475c9f", cartridge: "4K",
        modes: &[0, 1, 2, 3], minimal: 0x01803, select: shown(0x8D, 2),
        score: silent_end(times(100, bcd3(0xA2, 0xA3, 0xA1))), lives: count(0xF1, 255, 0),
        end: when(is(0xF1, 255)), start_lives: 6,
        ..GAME
    },
    Game {
        name: "atlantis2", title: "Atlantis II", md5: "826481f6fc53ea47c9f272f7050eedf7", cartridge: "4K",
        minimal: 0x01803, score: silent_end(bcd3(0xA1, 0xA2, 0xA3)), lives: count(0xF1, 255, 0),
        end: when(is(0xF1, 255)), last_read: 0xA3,
        ..GAME
    },
    Game {
        name: "backgammon", md5: "8556b42aa05f94bc29ff39c39b11bff4", cartridge: "4K",
        special: Special::Backgammon, difficulties: &[3], flags: HMOVE_BLANKS | PADDLES_LEFT,
        paddle_max: 1_000_000, minimal: 0x0001A, select: scaled(0xDC, 0, 3, 1), reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "bank_heist", md5: "00ce0bdd43aed84a983bef38fe7f5ee3", cartridge: "4K",
        modes: &[0, 4, 8, 12, 16, 20, 24, 28], difficulties: &[0, 1, 2, 3], select: shown(0x80, 1),
        score: bcd3(0xDA, 0xD9, 0xD8), lives: count(0xD5, 255, 0), end: when_both(is(0xCE, 1), is(0xD5, 0)),
        start_lives: 5,
        ..GAME
    },
    Game {
        name: "basic_math", md5: "819aeeb9a2e11deb54e6de334f843894", cartridge: "2K",
        modes: &[5, 6, 7, 8], difficulties: &[0, 2, 3], minimal: 0x0003F, select: shown(0xC5, 2),
        score: bcd1(0x84), end: when(is_not(0x86, 0)), reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "battle_zone", title: "Battlezone", md5: "41f252a66c6301f1e8ab3612c19bc5d4", cartridge: "F8",
        modes: &[1, 2, 3], flags: 0, select: shown(0xA1, 2),
        score: times(1000, sum(term(Form::HighOrBlank, 0x9D, 1), term(Form::LowOrBlank, 0x9E, 10), term(Form::HighOrBlank, 0x9E, 100))),
        lives: count(0xBA, 15, 0), end: when(bits(0xBA, 15, 0)), start_lives: 5,
        ..GAME
    },
    Game {
        name: "beam_rider", title: "Beamrider", md5: "79ab4123a83dc11d468fb2108ea09e2e", cartridge: "F8",
        special: Special::BeamRider, difficulties: &[0, 1], minimal: 0x018DF,
        start: [press(1, RIGHT), NO_PRESS, NO_PRESS], score: bcd3(0x89, 0x8A, 0x8B), end: when(is(0x85, 255)),
        start_lives: 3,
        ..GAME
    },
    Game {
        name: "berzerk", md5: "136f75c4dd02c29283752b7e5799f978", cartridge: "4K",
        special: Special::Berzerk, modes: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 18], select: shown(0x80, 2),
        score: bcd3(0xDF, 0xDE, 0xDD), lives: count(0xDA, 255, 1), end: when(is(0xDA, 255)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "blackjack", md5: "0a981c03204ac2b278ba392674682560", cartridge: "2K",
        special: Special::Blackjack, difficulties: &[0, 1, 2, 3], flags: HMOVE_BLANKS | PADDLES_LEFT,
        paddle_max: 795_000, minimal: 0x00027, reported: Reported::OneUntilEnd, last_read: 0x86,
        ..GAME
    },
    Game {
        name: "bowling", md5: "c9b7afad3bfd922e006a6bfc1d4f3fe7", cartridge: "2K",
        modes: &[0, 2, 4], difficulties: &[0, 1], minimal: 0x02427, select: shown(0x82, 2),
        score: bcd2(0xA1, 0xA6), end: when(above(0xA4, 16)),
        ..GAME
    },
    Game {
        name: "boxing", md5: "c3ef5c4653212088eda54dc91d787870", cartridge: "2K",
        special: Special::Boxing, difficulties: &[0, 1, 2, 3], flags: HMOVE_BLANKS | SELECTS_FOR_TWO,
        select: scaled(0xD9, -1, 1, 2), last_read: 0x91,
        ..GAME
    },
    Game {
        name: "breakout", md5: "f34f08e5eb96e500e851a80be3277a56", cartridge: "2K",
        special: Special::Breakout, modes: &[0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44], difficulties: &[0, 1],
        flags: HMOVE_BLANKS | PADDLES_LEFT, minimal: 0x0001B, select: shown(0xB2, 1),
        score: sum(term(Form::Bcd, 0xCD, 1), term(Form::Low, 0xCC, 100), NO_TERM), lives: count(0xB9, 255, 0),
        end: when(is(0xB9, 0)), start_lives: 5,
        ..GAME
    },
    Game {
        name: "carnival", md5: "028024fb8e5e5f18ea586652f9799c96", cartridge: "4K",
        first_line: 26, height: 214, minimal: 0x0181B, score: times(10, bcd2(0xAE, 0xAD)), end: when(is(0x83, 0)),
        last_read: 0x83,
        ..GAME
    },
    Game {
        name: "casino", md5: "b816296311019ab69a21cb9e9e235d12", cartridge: "4K",
        special: Special::Casino, modes: &[0, 2, 3], difficulties: &[0, 1, 2, 3],
        flags: HMOVE_BLANKS | PADDLES_LEFT, minimal: 0x00027, select: shown(0xD4, 2),
        start: [press(60, NOOP), press(2, FIRE), NO_PRESS], reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "centipede", md5: "91c2098e88a6b13f977af8c003e0bca5", cartridge: "F8",
        modes: &[22, 86], select: shown(0xA7, 2), score: rewards(0, i32::MAX, bcd3(0xF6, 0xF5, 0xF4)),
        lives: count(0xED, 0x70, 1), end: when(any_of(0xA6, 64)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "chopper_command", md5: "c1cb228470a87beb5f36e90ac745da26", cartridge: "4K",
        special: Special::ChopperCommand, modes: &[0, 2], difficulties: &[0, 1], select: shown(0xE0, 2),
        score: times(100, bcd2(0xEE, 0xEC)), lives: count(0xE4, 15, 0), end: when(bits(0xE4, 15, 0)),
        start_lives: 3, reported: Reported::CountedAlways,
        ..GAME
    },
    Game {
        name: "crazy_climber", md5: "55ef7b65066428367844342ed59f956c", cartridge: "F8",
        modes: &[0, 1, 2, 3], difficulties: &[0, 1], minimal: 0x003FD, select: shown(0x80, 2),
        score: rewards(0, i32::MAX, times(100, places(Form::Byte, 0x82, 1, 4))), lives: count(0xAA, 255, 0),
        end: when(is(0xAA, 0)), start_lives: 5,
        ..GAME
    },
    Game {
        name: "crossbow", md5: "8cd26dcf249456fe4aeb8db42d49df74", cartridge: "F6",
        modes: &[0, 2, 4, 6], difficulties: &[0, 1], select: from_one(0x8D, 2), score: bcd3(0x8D, 0x8C, 0x8B),
        end: when(is(0xE7, 130)), reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "darkchambers", title: "Dark Chambers", md5: "106855474c69d08c8ffa308d47337269", cartridge: "F6SC",
        special: Special::Darkchambers, flags: 0, start: [press(486, NOOP), NO_PRESS, NO_PRESS],
        reported: Reported::OneUntilEnd, last_read: 0xCA,
        ..GAME
    },
    Game {
        name: "defender", md5: "0f643c34e40e3f1daafd9c524d3ffe64", cartridge: "4K",
        modes: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 16], difficulties: &[0, 1], select: shown(0x9B, 2),
        score: places(Form::LowOrBlank, 0x9C, 1, 6), lives: count(0xC2, 255, 0), end: when(is(0xC2, 0)),
        start_lives: 3,
        ..GAME
    },
    Game {
        name: "demon_attack", md5: "f0e0addc07971561ab80d9abe1b8d333", cartridge: "4K",
        special: Special::DemonAttack, modes: &[1, 3, 5, 7], difficulties: &[0, 1], minimal: 0x0181B,
        select: shown(0xEA, 1), score: bcd3(0x85, 0x83, 0x81), lives: count(0xF2, 255, 1),
        end: when_both(is(0xF2, 0), is(0xF1, 189)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "donkey_kong", md5: "36b20c427975760cb9cf4a47e41369e4", cartridge: "4K",
        score: times(100, bcd2(0x88, 0x87)), lives: count(0xA3, 255, 0),
        end: when_all(is(0xA3, 0), is(0x8F, 3), is(0x8B, 31), ALWAYS), start_lives: 2,
        ..GAME
    },
    Game {
        name: "double_dunk", md5: "368d88a6c071caba60b4f778615aae94", cartridge: "F6",
        special: Special::DoubleDunk, modes: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        start: [press(1, UPFIRE), NO_PRESS, NO_PRESS], score: difference(Form::Bcd, 0xF6, 0xF7),
        ..GAME
    },
    Game {
        name: "earthworld", title: "SwordQuest: EarthWorld", md5: "5aea9974b975a6a844e6df10d2b861c4", cartridge: "F8",
        score: bcd1(0xA7), end: at_score(10, NEVER), reported: Reported::OneUntilEnd, last_read: 0xA7,
        ..GAME
    },
    Game {
        name: "elevator_action", md5: "71f8bacfbdca019113f3f0801849057e", cartridge: "F8SC",
        start: [press(16, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0x89, 0x88, 0x87), lives: count(0x83, 255, 0),
        end: when_both(is(0x83, 0), is_not(0x81, 0)), start_lives: 4, last_read: 0x81,
        ..GAME
    },
    Game {
        name: "enduro", md5: "94b92a882f6dbaa6993a46e2dcc58402", cartridge: "4K",
        special: Special::Enduro, minimal: 0x01B3B, start: [press(1, FIRE), NO_PRESS, NO_PRESS],
        end: when(is(0xAF, 255)), last_read: 0xAF,
        ..GAME
    },
    Game {
        name: "entombed", md5: "6b683be69f92958abe0e2a9945157ad5", cartridge: "4K",
        difficulties: &[0, 2], start: [press(1, FIRE), press(5, NOOP), NO_PRESS],
        score: sum(term(Form::Byte, 0xE3, 1), NO_TERM, NO_TERM), end: when(bits(0xC7, 3, 0)),
        reported: Reported::OneUntilEnd, last_read: 0xC7,
        ..GAME
    },
    Game {
        name: "et", title: "E.T. the Extra-Terrestrial", md5: "615a3bf251a38eb6638cdc7ffbde5480", cartridge: "F8",
        special: Special::Et, modes: &[0, 1, 2], difficulties: &[0, 1, 2, 3], select: from_one(0xEA, 25),
        score: bcd3(0xE1, 0xE0, 0xDF), end: when_both(is(0xE5, 255), is(0x80, 8)), start_lives: 0,
        ..GAME
    },
    Game {
        name: "fishing_derby", md5: "b8865f05676e64f3bec72b9defdacfa7", cartridge: "2K",
        difficulties: &[0, 1, 2, 3], flags: HMOVE_BLANKS | SELECTS_FOR_TWO, select: shown(0x80, 2),
        score: difference(Form::Bcd, 0xBD, 0xBE),
        end: when_either(is(0xBD, 153), is(0xBE, 153)), last_read: 0xBE,
        ..GAME
    },
    Game {
        name: "flag_capture", md5: "30512e0e83903fc05541d2f6a6a62654", cartridge: "2K",
        modes: &[8, 9, 10], select: shown(0xD6, 2), score: bcd1(0xEA), end: when(is(0xEB, 0)),
        reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "freeway", md5: "8e0ab801b1705a740b476b7f588c6d16", cartridge: "2K",
        modes: &[0, 1, 2, 3, 4, 5, 6, 7], difficulties: &[0, 1], minimal: 0x00025, select: shown(0x80, 1),
        score: rewards(0, 1, bcd1(0xE7)), end: when(is(0x96, 1)),
        ..GAME
    },
    Game {
        name: "frogger", md5: "081e2c114c9c20b61acf25fc95c71bf4", cartridge: "4K",
        modes: &[0, 1, 2], difficulties: &[0, 1], minimal: 0x0003D, select: scaled(0xDD, 2, 1, 2),
        score: bcd2(0xCE, 0xCC), lives: count(0xD0, 255, 0), end: when(is(0xD0, 255)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "frostbite", md5: "4ca73eb959299471788f0b685c3ba0b5", cartridge: "4K",
        modes: &[0, 2], select: shown(0x80, 1), score: bcd3(0xCA, 0xC9, 0xC8), lives: count(0xCC, 15, 1),
        end: when_both(bits(0xCC, 15, 0), any_of(0xF1, 128)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "galaxian", md5: "211774f4c5739042618be8ff67351177", cartridge: "F8",
        modes: &[1, 2, 3, 4, 5, 6, 7, 8, 9], difficulties: &[0, 1], minimal: 0x0181B, select: shown(0xB3, 1),
        score: wrapping(1_000_000, bcd3(0xAE, 0xAD, 0xAC)), lives: count(0xB9, 255, 1),
        end: when(any_of(0xBF, 128)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "gopher", md5: "c16c79aad6272baffb8aae9a7fff0864", cartridge: "4K",
        special: Special::Gopher, modes: &[0, 2], difficulties: &[0, 1], minimal: 0x01C1F, select: shown(0xD3, 5),
        start: [press(1, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0xB2, 0xB1, 0xB0), end: when(bits(0xB4, 7, 0)),
        start_lives: 3,
        ..GAME
    },
    Game {
        name: "gravitar", md5: "8ac18076d01a6b63acf6e2cab4968940", cartridge: "F8",
        special: Special::Gravitar, modes: &[0, 1, 2, 3, 4], select: shown(0x80, 10),
        start: [press(16, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0x89, 0x88, 0x87), lives: count(0x84, 255, 1),
        end: when(is(0x81, 1)), start_lives: 6,
        ..GAME
    },
    Game {
        name: "hangman", md5: "f16c709df0a6c52f47ff52b9d95b7d8d", cartridge: "4K",
        special: Special::Hangman, modes: &[0, 1, 2, 3], difficulties: &[0, 1], select: shown(0xEE, 2),
        reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "haunted_house", md5: "f0a6e99f5875891246c3dbecbf2d2cea", cartridge: "4K",
        special: Special::HauntedHouse, modes: &[0, 1, 2, 3, 4, 5, 6, 7, 8], difficulties: &[0, 1],
        select: shown(0xCC, 2), start_lives: 9,
        ..GAME
    },
    Game {
        name: "hero", title: "H.E.R.O.", md5: "fca4a5be1251927027f2c24774a02160", cartridge: "F8",
        modes: &[0, 1, 2, 3, 4], select: shown(0x80, 1), score: bcd3(0xB9, 0xB8, 0xB7),
        lives: count(0xB3, 255, 0), end: when(is(0xB3, 0)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "human_cannonball", md5: "7972e5101fa548b952d852db24ad6060", cartridge: "2K",
        special: Special::HumanCannonball, modes: &[0, 1, 2, 3, 4, 5, 6, 7], difficulties: &[0, 1],
        select: held(2), score: bcd1(0xB6), end: at_score(7, is(0xB7, 7)), reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "ice_hockey", md5: "a4c08c4994eb9d24fb78be1793e82e26", cartridge: "4K",
        modes: &[0, 2], difficulties: &[0, 1, 2, 3], select: shown(0x80, 2),
        score: rewards(i32::MIN, 1, difference(Form::Bcd, 0x8A, 0x8B)), end: when_both(is(0x87, 0), is(0x86, 0)),
        ..GAME
    },
    Game {
        name: "jamesbond", title: "James Bond 007", md5: "e51030251e440cffaab1ac63438b44ae", cartridge: "E0",
        special: Special::Jamesbond, modes: &[0, 1], select: held(20), score: bcd3(0xDC, 0xDD, 0xDE),
        lives: count(0x86, 15, 1), end: when_both(bits(0x86, 15, 0), is(0x8C, 104)), start_lives: 6,
        ..GAME
    },
    Game {
        name: "journey_escape", title: "Journey Escape", md5: "718ae62c70af4e5fd8e932fee216948a", cartridge: "4K",
        special: Special::JourneyEscape, difficulties: &[0, 1], height: 230, minimal: 0x3FBFD,
        start: [press(1, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0x92, 0x91, 0x90),
        end: when_both(is(0x95, 0), is(0x96, 0)), last_read: 0x96,
        ..GAME
    },
    Game {
        name: "kaboom", title: "Kaboom!", md5: "5428cdfada281c569c74c7308c7f2c26", cartridge: "2K",
        flags: HMOVE_BLANKS | PADDLES_LEFT, minimal: 0x0001B, start: [press(1, FIRE), NO_PRESS, NO_PRESS],
        score: bcd3(0xA5, 0xA4, 0xA3), end: at_score(999_999, is(0xA1, 0)), reported: Reported::OneUntilEnd,
        last_read: 0xA1,
        ..GAME
    },
    Game {
        name: "kangaroo", md5: "4326edb70ff20d0ee5ba58fa5cb09d60", cartridge: "F8",
        special: Special::Kangaroo, modes: &[0, 1], select: held(2), score: times(100, bcd2(0xA8, 0xA7)),
        lives: count(0xAD, 7, 1), end: when(is(0xAD, 255)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "keystone_kapers", md5: "6c1f3f2e359dbf55df462ccbcdd2f6bf", cartridge: "4K", pal: true,
        minimal: 0x03FFF, start: [press(1, RESET), NO_PRESS, NO_PRESS], score: bcd2(0x9C, 0x9B),
        lives: count(0x96, 255, 0), end: when_both(is(0x96, 0), is(0x88, 0)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "king_kong", md5: "0dd4c69b5f9a7ae96a7a08329496779a", cartridge: "4K", pal: true,
        modes: &[0, 1, 2, 3], minimal: 0x0003F, select: scaled(0xEC, 2, 0, 2), score: bcd2(0x83, 0x82),
        lives: count(0xEE, 255, 0), end: when(is(0xEE, 0)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "klax", md5: "eed9eaf1a0b6a2b9bc4c8032cb43e3fb", cartridge: "F6SC", pal: true,
        special: Special::Klax, modes: &[0, 1, 2], select: held(2),
        start: [press(1, FIRE), press(1, NOOP), NO_PRESS], reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "koolaid", title: "Kool-Aid Man", md5: "534e23210dd1993c828d944c6ac4d9fb", cartridge: "4K",
        minimal: 0x003FD, score: times(100, bcd2(0x81, 0x80)), end: when(is(0xD1, 128)), last_read: 0xD1,
        ..GAME
    },
    Game {
        name: "krull", md5: "4baada22435320d185c95b7dd2bcdb24", cartridge: "F8",
        score: bcd3(0x9E, 0x9D, 0x9C), lives: count(0x9F, 7, 1),
        end: when_all(is(0x9F, 0), is(0xA2, 3), is(0x80, 128), ALWAYS), start_lives: 3, last_read: 0x80,
        ..GAME
    },
    Game {
        name: "kung_fu_master", title: "Kung-Fu Master", md5: "5b92a93b23523ff16e2789b820e2a4c5", cartridge: "F8",
        minimal: 0x3FB3D, score: bcd3(0x9A, 0x99, 0x98), lives: count(0x9D, 7, 1), end: when(is(0x9D, 255)),
        start_lives: 4, last_read: 0x9D,
        ..GAME
    },
    Game {
        name: "laser_gates", md5: "8e4cd60d93fcde8065c1a2b972a26377", cartridge: "4K", pal: true,
        start: [press(1, RESET), NO_PRESS, NO_PRESS], score: bcd3(0x82, 0x81, 0x80), end: when(is(0x83, 0)),
        last_read: 0x83,
        ..GAME
    },
    Game {
        name: "lost_luggage", md5: "2d76c5d1aad506442b9e9fb67765e051", cartridge: "4K",
        modes: &[0, 1], difficulties: &[0, 1], minimal: 0x003FD, legal: 0x003FD, select: scaled(0x94, 3, 1, 2),
        start: [press(1, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0x96, 0x95, 0x94), lives: count(0xCA, 255, 0),
        end: when_all(is(0xCA, 0), is(0xC8, 10), is(0xA5, 0), is(0xA9, 0)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "mario_bros", md5: "e908611d99890733be31733a979c62d8", cartridge: "F8",
        modes: &[0, 2, 4, 6], select: shown(0x80, 5), start: [press(10, NOOP), press(7, FIRE), NO_PRESS],
        score: times(100, bcd2(0x8A, 0x89)), lives: count(0x87, 255, 0), end: when(is(0x87, 0)), start_lives: 0,
        ..GAME
    },
    Game {
        name: "miniature_golf", md5: "df62a658496ac98a3aa4a6ee5719c251", cartridge: "2K",
        special: Special::MiniatureGolf, difficulties: &[0, 1], reported: Reported::OneUntilEnd, last_read: 0xAF,
        ..GAME
    },
    Game {
        name: "montezuma_revenge", title: "Montezuma's Revenge", md5: "3347a6dd59049b15a38394aa2dafa585", cartridge: "E0",
        score: bcd3(0x95, 0x94, 0x93), lives: count(0xBA, 7, 1), end: when_both(is(0xBA, 0), is(0xFE, 96)),
        start_lives: 6, last_read: 0xFE,
        ..GAME
    },
    Game {
        name: "mr_do", title: "Mr. Do!", md5: "aa7bb54d2c189a31bb1fa20099e42859", cartridge: "F8", pal: true,
        modes: &[0, 1, 2, 3], minimal: 0x03C3F, select: shown(0x80, 5),
        start: [press(1, FIRE), NO_PRESS, NO_PRESS], score: times(10, bcd2(0x82, 0x83)),
        lives: count(0xDB, 255, 0), end: when(is(0xDA, 64)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "ms_pacman", title: "Ms. Pac-Man", md5: "87e79cd41ce136fd4f72cc6e2c161bee", cartridge: "F8",
        special: Special::MsPacman, modes: &[0, 1, 2, 3], flags: 0, minimal: 0x003FD, select: held(10),
        score: bcd3(0xF8, 0xF9, 0xFA), lives: count(0xFB, 7, 1), end: when_both(bits(0xFB, 15, 0), is(0xA7, 83)),
        start_lives: 3,
        ..GAME
    },
    Game {
        name: "name_this_game", md5: "36306070f0c90a72461551a7a4f3a209", cartridge: "4K",
        modes: &[8, 24, 40], difficulties: &[0, 1], minimal: 0x0181B, select: shown(0xDE, 2),
        score: bcd3(0xC6, 0xC5, 0xC4), lives: count(0xC7, 7, 0), end: when(bits(0xC7, 7, 0)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "othello", md5: "113cd09c9771ac278544b7e90efe7df2", cartridge: "2K",
        special: Special::Othello, modes: &[0, 1, 2], difficulties: &[0, 2], minimal: 0x003FF,
        select: from_one(0xDE, 2), score: difference(Form::Bcd, 0xCE, 0xD0), reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "pacman", title: "Pac-Man", md5: "fc2233fc116faef0d3c31541717ca2db", cartridge: "4K", pal: true,
        special: Special::Pacman, modes: &[0, 1, 2, 3, 4, 5, 6, 7], difficulties: &[0, 1], minimal: 0x0003D,
        select: held(2), score: bcd3(0xCC, 0xCE, 0xD0), lives: count(0x98, 255, 1),
        end: when_both(is(0x98, 0), is(0xE4, 63)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "phoenix", md5: "7e52a95074a66640fcfde124fffd491a", cartridge: "F8",
        minimal: 0x0383B,
        score: times(10, sum(term(Form::High, 0xC7, 1), term(Form::Bcd, 0xC8, 10), term(Form::Bcd, 0xC9, 1000))),
        lives: count(0xCB, 7, 0), end: when(is(0xCC, 128)), start_lives: 5, last_read: 0xCB,
        ..GAME
    },
    Game {
        name: "pitfall", title: "Pitfall!", md5: "3e90cf23106f2e08b2781e41299de556", cartridge: "4K",
        special: Special::Pitfall, start: [press(1, UP), NO_PRESS, NO_PRESS], score: bcd3(0xD7, 0xD6, 0xD5),
        end: when_both(bits(0x80, 0xF0, 0), is_not(0x9E, 0)), start_score: 2_000, start_lives: 3, last_read: 0x9E,
        ..GAME
    },
    Game {
        name: "pitfall2", title: "Pitfall II", md5: "6d842c96d5a01967be9680080dd5be54", cartridge: "DPC",
        start: [press(1, UP), NO_PRESS, NO_PRESS], score: bcd3(0xC9, 0xC8, 0xC7), end: at_score(199_000, NEVER),
        start_score: 4_000, start_lives: 1, last_read: 0xC7,
        ..GAME
    },
    Game {
        name: "pong", title: "Pong (Video Olympics)", md5: "60e0ea3cbe0913d39803477945e9e5ec", cartridge: "2K",
        modes: &[0, 1], difficulties: &[0, 1, 2, 3],
        flags: HMOVE_BLANKS | PADDLES_LEFT | PADDLES_RIGHT | SWAP_PADDLES, minimal: 0x0181B,
        select: shown(0x96, 2), score: difference(Form::Byte, 0x8E, 0x8D),
        end: when_either(is(0x8D, 21), is(0x8E, 21)),
        ..GAME
    },
    Game {
        name: "pooyan", md5: "4799a40b6e889370b7ee55c17ba65141", cartridge: "4K",
        modes: &[10, 30, 50, 70], first_line: 26, height: 220, minimal: 0x02427,
        select: held_before(2, shown(0xBD, 2)), score: bcd3(0x8A, 0x89, 0x88), lives: count(0x96, 7, 1),
        end: when_both(is(0x96, 0), is(0x98, 5)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "private_eye", md5: "ef3a4f64b6494ba770862768caf04b86", cartridge: "F8",
        modes: &[0, 1, 2, 3, 4], difficulties: &[0, 1, 2, 3], select: shown(0x80, 2),
        start: [press(1, UP), NO_PRESS, NO_PRESS], score: bcd3(0xCA, 0xC9, 0xC8), end: when(above(0xC2, 1)),
        start_score: 1_000,
        ..GAME
    },
    Game {
        name: "qbert", title: "Q*bert", md5: "484b0076816a104875e00467d431c2d2", cartridge: "4K",
        special: Special::Qbert, difficulties: &[0, 1], first_line: 40, minimal: 0x0003F,
        score: silent_end(bcd3(0xDB, 0xDA, 0xD9)), start_lives: 4, last_read: 0xD9,
        ..GAME
    },
    Game {
        name: "riverraid", title: "River Raid", md5: "393948436d1f4cc3192410bb918f9724", cartridge: "4K",
        special: Special::Riverraid, difficulties: &[0, 1], score: places(Form::Eighth, 0xD7, -2, 6), last_read: 0xC0,
        ..GAME
    },
    Game {
        name: "road_runner", md5: "ce5cc62608be2cd3ed8abd844efb8919", cartridge: "F6",
        special: Special::RoadRunner, score: times(100, places(Form::LowOrBlank, 0xC9, 1, 4)),
        lives: count(0xC4, 7, 1), end: when(bits(0xC4, 7, 0)), start_lives: 3, last_read: 0xBD,
        ..GAME
    },
    Game {
        name: "robotank", title: "Robot Tank", md5: "4f618c2429138e0280969193ed6c107e", cartridge: "FE",
        score: sum(term(Form::Byte, 0xB5, 1), term(Form::Byte, 0xB6, 12), NO_TERM), lives: count(0xA8, 15, 1),
        end: when_both(is(0xA8, 0), is(0xB4, 255)), start_lives: 4, last_read: 0xA8,
        ..GAME
    },
    Game {
        name: "seaquest", md5: "240bfbac5163af4df5ae713985386f92", cartridge: "4K",
        difficulties: &[0, 1], score: bcd3(0xBA, 0xB9, 0xB8), lives: count(0xBB, 255, 1),
        end: when(is_not(0xA3, 0)), start_lives: 4, last_read: 0xBB,
        ..GAME
    },
    Game {
        name: "sir_lancelot", md5: "dd0cbe5351551a538414fb9e37fc56e8", cartridge: "F8", pal: true,
        minimal: 0x0181B, start: [press(1, RESET), press(1, LEFT), NO_PRESS], score: bcd3(0xA0, 0x9F, 0x9E),
        lives: count(0xA9, 255, 0), end: when_both(is(0xA9, 0), is(0xA7, 160)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "skiing", md5: "b76fbadc8ffb1f83e2ca08b6fb4d6c9f", cartridge: "2K",
        minimal: 0x00019, legal: 0x003FD, start: [press(16, DOWN), NO_PRESS, NO_PRESS],
        score: times(-1, sum(term(Form::Bcd, 0xEA, 1), term(Form::Bcd, 0xE9, 100), term(Form::Byte, 0xE8, 6000))),
        end: when(is(0x91, 255)), last_read: 0x91,
        ..GAME
    },
    Game {
        name: "solaris", md5: "e72eb8d4410152bdcb69e7fba327b420", cartridge: "F6",
        score: times(10, bcd3(0xDC, 0xDD, 0xDE)), lives: count(0xD9, 15, 0), end: when(is(0xD9, 0)),
        start_lives: 3, last_read: 0xD9,
        ..GAME
    },
    Game {
        name: "space_invaders", md5: "72ffbef6504b75e69ee1045af9075f66", cartridge: "4K",
        modes: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], difficulties: &[0, 1], minimal: 0x0181B,
        select: shown(0xDC, 2), score: wrapping(10_000, bcd2(0xE8, 0xE6)), lives: count(0xC9, 255, 0),
        end: when_either(any_of(0x98, 128), is(0xC9, 0)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "space_war", md5: "b702641d698c60bcdc922dbd8c9dd49c", cartridge: "2K", pal: true,
        special: Special::SpaceWar, modes: &[6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], select: held(2),
        score: bcd1(0xA7), end: at_score(10, is(0x80, 0)), reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "star_gunner", md5: "a3c1c70024d7aabb41381adbfb6d3b25", cartridge: "4K",
        special: Special::StarGunner, modes: &[0, 1, 2, 3], select: shown(0xF4, 15),
        score: times(100, places(Form::LowOrBlank, 0x83, 1, 4)), lives: count(0x87, 15, 0),
        end: when(is(0x87, 0)), start_lives: 5,
        ..GAME
    },
    Game {
        name: "superman", md5: "a9531c763077464307086ec9a1fd057d", cartridge: "4K",
        special: Special::Superman, difficulties: &[0, 1, 2, 3], reported: Reported::OneUntilEnd, last_read: 0x9F,
        ..GAME
    },
    Game {
        name: "surround", md5: "4d7517ae69f95cfbc053be01312b7dba", cartridge: "2K",
        special: Special::Surround, modes: &[0, 2], difficulties: &[0, 1, 2, 3], flags: HMOVE_BLANKS | SWAP_PORTS,
        minimal: 0x0003D, select: scaled(0xF9, 1, 1, 2), score: difference(Form::Bcd, 0xF7, 0xF6),
        reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "tennis", md5: "42cdd6a9e42a3639e190722b8ea3fc51", cartridge: "2K",
        special: Special::Tennis, modes: &[0, 2], difficulties: &[0, 1, 2, 3], select: shown(0x80, 2),
        ..GAME
    },
    Game {
        name: "tetris", md5: "b0e1ee07fbc73493eac5651a52f90f00", cartridge: "2K",
        special: Special::Tetris, minimal: 0x0003B, score: rewards(0, i32::MAX, bcd2(0xF1, 0xF2)),
        end: when(any_of(0xF3, 128)), last_read: 0xF3,
        ..GAME
    },
    Game {
        name: "tic_tac_toe_3d", title: "3-D Tic-Tac-Toe", md5: "0db4f4150fecf77e4ce72ca4d04c052f", cartridge: "2K",
        special: Special::TicTacToe3d, modes: &[0, 1, 2, 3, 4, 5, 6, 7, 8], difficulties: &[0, 2],
        minimal: 0x003FF, select: shown(0x88, 2), reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "time_pilot", md5: "fc2104dd2dadf9a6176c1c1c8f87ced9", cartridge: "F8",
        special: Special::TimePilot, difficulties: &[0, 1, 2], minimal: 0x03C3F,
        score: times(100, bcd2(0x8D, 0x8F)), lives: count(0x8B, 7, 1), end: when(is_not(0xA0, 0)), start_lives: 5,
        last_read: 0xA0,
        ..GAME
    },
    Game {
        name: "trondead", title: "TRON: Deadly Discs", md5: "fb27afe896e7c928089307b32e5642ee", cartridge: "4K",
        special: Special::Trondead, difficulties: &[0, 1], score: bcd3(0xBF, 0xBE, 0xBD), end: when(is(0xC8, 5)),
        start_lives: 5, last_read: 0xC8,
        ..GAME
    },
    Game {
        name: "turmoil", md5: "7a5463545dfb2dcfdafa6074b2f2c15e", cartridge: "4K",
        modes: &[0, 1, 2, 3, 4, 5, 6, 7, 8], minimal: 0x01BFF, select: shown(0xEA, 2),
        start: [press(1, FIRE), NO_PRESS, NO_PRESS],
        score: times(10, sum(term(Form::Bcd, 0x89, 1), term(Form::Bcd, 0x8A, 100), term(Form::Byte, 0xD3, 1))),
        lives: count(0xB9, 255, 0), end: when_both(is(0xB9, 0), is(0xC5, 1)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "tutankham", md5: "085322bae40d904f53bdcc56df0593fc", cartridge: "E0",
        modes: &[0, 4, 8, 12], minimal: 0x01C3D, select: shown(0xAB, 2), score: bcd2(0x9C, 0x9A),
        lives: count(0x9E, 3, 0), end: when_both(is(0x9E, 0), is_not(0x81, 132)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "up_n_down", title: "Up'n Down", md5: "a499d720e7ee35c62424de882a3351b6", cartridge: "F8",
        difficulties: &[0, 1, 2, 3], first_line: 30, minimal: 0x02427,
        start: [press(1, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0x82, 0x81, 0x80), lives: count(0x86, 15, 1),
        end: when_both(above(0x94, 64), bits(0x86, 15, 0)), start_lives: 5, last_read: 0x94,
        ..GAME
    },
    Game {
        name: "venture", md5: "3e899eba0ca8cd2972da1ae5479b4f0d", cartridge: "4K",
        difficulties: &[0, 1, 2, 3], score: times(100, bcd2(0xC8, 0xC7)), lives: count(0xC6, 7, 1),
        end: when_all(is(0xC6, 0), is(0xCD, 255), any_of(0xBF, 128), ALWAYS), start_lives: 4, last_read: 0xBF,
        ..GAME
    },
    Game {
        name: "video_checkers", md5: "539d26b6e9df0da8e7465f0f5ad863b7", cartridge: "4K",
        special: Special::VideoCheckers, modes: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19],
        minimal: 0x003C2, select: held(1), reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "video_chess", md5: "f0b7db930ca0e548c41a97160b9f6275", cartridge: "4K",
        special: Special::VideoChess, modes: &[0, 1, 2, 3, 4], minimal: 0x003FF, select: shown(0xEA, 1),
        reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "video_cube", md5: "3f540a30fdee0b20aed7288e4a5ea528", cartridge: "4K",
        special: Special::VideoCube, modes: VIDEO_CUBE_MODES, difficulties: &[0, 1], select: held(2),
        start: [press(61, NOOP), press(1, FIRE), press(2, NOOP)], reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "video_pinball", md5: "107cc025334211e6d29da0b6be46aec7", cartridge: "4K",
        special: Special::VideoPinball, modes: &[0, 2], difficulties: &[0, 1], minimal: 0x01C3F,
        select: shown(0xC1, 2), score: bcd3(0xB0, 0xB2, 0xB4), end: when(any_of(0xAF, 1)), start_lives: 3,
        ..GAME
    },
    Game {
        name: "wizard_of_wor", title: "Wizard of Wor", md5: "7e8aa18bc9502eb57daaf5e7c1e94da7", cartridge: "4K",
        special: Special::WizardOfWor, difficulties: &[0, 1], flags: HMOVE_BLANKS | SWAP_PORTS, minimal: 0x03C3F,
        lives: count(0x8D, 15, 0), end: when_both(bits(0x8D, 15, 0), is(0xF4, 248)), start_lives: 3, last_read: 0xD7,
        ..GAME
    },
    Game {
        name: "word_zapper", md5: "ec3beb6d8b5689e867bafb5d5f507491", cartridge: "4K",
        special: Special::WordZapper,
        modes: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
        difficulties: &[0, 1, 2, 3], select: shown(0xDB, 2),
        start: [press(486, NOOP), press(1, FIRE), press(2, NOOP)], reported: Reported::OneUntilEnd,
        ..GAME
    },
    Game {
        name: "yars_revenge", title: "Yars' Revenge", md5: "c5930d0e8cdae3e037349bfa08e871be", cartridge: "4K",
        modes: &[0, 32, 64, 96], difficulties: &[0, 1], select: held_before(2, shown(0xE3, 1)),
        start: [press(1, FIRE), NO_PRESS, NO_PRESS], score: bcd3(0xE2, 0xE1, 0xE0), lives: count(0x9E, 0xF0, 0),
        end: when(bits(0x9E, 0xF0, 0)), start_lives: 4,
        ..GAME
    },
    Game {
        name: "zaxxon", md5: "eea0da9b987d661264cce69a7c13c3bd", cartridge: "F8",
        modes: &[0, 8, 16, 24], select: shown(0x82, 10), score: times(100, bcd2(0xE9, 0xE8)),
        lives: count(0xEA, 7, 0), end: when(bits(0xEA, 7, 0)), start_lives: 5,
        ..GAME
    },
    Game {
        name: "combat", md5: "0ef64cdbecccb7049752a3de0b7ade14", cartridge: "2K",
        difficulties: &[0, 1, 2, 3], first_line: 39, height: 256, players: 2,
        flags: HMOVE_BLANKS | SELECTS_FOR_TWO | RULES_FOR_TWO, select: scaled(0x80, 1, -1, 2),
        score: difference(Form::Bcd, 0xA1, 0xA2), end: when(is(0x88, 0)),
        ..GAME
    },
    Game {
        name: "joust", md5: "3276c777cbe97cdd2b4a63ffc16b7151", cartridge: "F8",
        difficulties: &[0, 1, 2, 3], players: 2, flags: HMOVE_BLANKS | SELECTS_FOR_TWO | RULES_FOR_TWO,
        select: shown(0xF8, 2), score: rewards(0, i32::MAX, bcd3(0x87, 0x85, 0x83)),
        end: when_both(is(0x99, 255), is(0x89, 0xC0)),
        ..GAME
    },
    Game {
        name: "maze_craze", md5: "ed2218b3075d15eaa34e3356025ccca3", cartridge: "4K",
        difficulties: &[0, 1, 2, 3], flags: HMOVE_BLANKS | FORCED_PAL, players: 2,
        ..GAME
    },
    Game {
        name: "warlords", md5: "cbe5a166550a8129a5e6d374901dffad", cartridge: "4K",
        difficulties: &[0, 1, 2, 3], flags: HMOVE_BLANKS | PADDLES_LEFT | PADDLES_RIGHT, players: 2,
        ..GAME
    },
    Game {
        name: "unknown",
        difficulties: &[0, 1, 2, 3],
        ..GAME
    },
];

/// Modes of Video Cube: the variant plus 100 times the number of the cube.
#[cfg(not(device))]
#[rustfmt::skip]
const VIDEO_CUBE_MODES: &[u32] = &[0, 1, 2, 100, 101, 102, 200, 201, 202, 300, 301, 302, 400, 401, 402, 500, 501, 502, 600, 601, 602, 700, 701, 702, 800, 801, 802, 900, 901, 902, 1000, 1001, 1002, 1100, 1101, 1102, 1200, 1201, 1202, 1300, 1301, 1302, 1400, 1401, 1402, 1500, 1501, 1502, 1600, 1601, 1602, 1700, 1701, 1702, 1800, 1801, 1802, 1900, 1901, 1902, 2000, 2001, 2002, 2100, 2101, 2102, 2200, 2201, 2202, 2300, 2301, 2302, 2400, 2401, 2402, 2500, 2501, 2502, 2600, 2601, 2602, 2700, 2701, 2702, 2800, 2801, 2802, 2900, 2901, 2902, 3000, 3001, 3002, 3100, 3101, 3102, 3200, 3201, 3202, 3300, 3301, 3302, 3400, 3401, 3402, 3500, 3501, 3502, 3600, 3601, 3602, 3700, 3701, 3702, 3800, 3801, 3802, 3900, 3901, 3902, 4000, 4001, 4002, 4100, 4101, 4102, 4200, 4201, 4202, 4300, 4301, 4302, 4400, 4401, 4402, 4500, 4501, 4502, 4600, 4601, 4602, 4700, 4701, 4702, 4800, 4801, 4802, 4900, 4901, 4902, 5000, 5001, 5002];
