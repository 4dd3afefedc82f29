//! Row type of the table of games, and the functions with which the rows are written.
//!
//! Device subset.

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Game {
    /// Name in lower snake case.
    pub name: &'static str,
    /// Display title; "" stands for the capitalized words of `name`.
    pub title: &'static str,
    /// MD5 of the ROM, lower-case hexadecimal.
    pub md5: &'static str,
    /// Bank-switching scheme of the ROM: a name of `rom::Scheme`, with 2K for `K2` and 4K for `K4`.
    pub cartridge: &'static str,
    /// The ROM is a PAL program, which a console detects in its first frames.
    pub pal: bool,
    /// Modes, ascending. The first is selected after loading.
    pub modes: &'static [u32],
    /// Difficulties, ascending: bit 0 is the left switch at A, bit 1 the right one.
    pub difficulties: &'static [u32],
    /// Number of players that an episode requires.
    pub players: u32,
    /// Frame line of the first row of the picture.
    pub first_line: i16,
    /// Number of rows of the picture. If it is 210, a PAL picture has 250.
    pub height: i16,
    /// Flags for the picture, the controllers and the switches, defined below.
    pub flags: u16,
    /// Largest resistance of a paddle, in ohms.
    pub paddle_max: i32,
    /// Minimal actions (those with an effect), one bit each.
    pub minimal: u32,
    /// Legal actions, one bit each.
    pub legal: u32,
    /// How to select a mode.
    pub select: Select,
    /// Actions that start an episode after the RESET switch.
    pub start: [Press; 3],
    /// The score before the first evaluation of an episode.
    pub start_score: i32,
    /// Lives before the first evaluation of an episode; -1 keeps those of the previous frame.
    pub start_lives: i32,
    /// How to compute the score.
    pub score: Score,
    /// How to read the lives.
    pub lives: Lives,
    /// How lives are reported to the caller.
    pub reported: Reported,
    /// When the episode ends.
    pub end: End,
    /// Special handling of this game in `rules/`.
    pub special: Special,
    /// The address that ale-py's rules read last. Its value remains on the data bus, where code in the TIA's
    /// addresses reads it. Unsure: $FF stands for games in which it was not measured.
    pub last_read: u8,
}

/// Games with special handling in `rules/` or in the boot of a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Special {
    None,
    Adventure,
    Alien,
    Backgammon,
    BeamRider,
    Berzerk,
    Blackjack,
    Boxing,
    Breakout,
    Casino,
    ChopperCommand,
    Darkchambers,
    DemonAttack,
    DoubleDunk,
    Enduro,
    Et,
    Gopher,
    Gravitar,
    Hangman,
    HauntedHouse,
    HumanCannonball,
    Jamesbond,
    JourneyEscape,
    Kangaroo,
    Klax,
    MiniatureGolf,
    MsPacman,
    Othello,
    Pacman,
    Pitfall,
    Qbert,
    Riverraid,
    RoadRunner,
    SpaceWar,
    StarGunner,
    Superman,
    Surround,
    Tennis,
    Tetris,
    TicTacToe3d,
    TimePilot,
    Trondead,
    VideoCheckers,
    VideoChess,
    VideoCube,
    VideoPinball,
    WizardOfWor,
    WordZapper,
}

/// HMOVE blanks the first 8 pixels of a line.
pub const HMOVE_BLANKS: u16 = 1;
pub const PADDLES_LEFT: u16 = 2;
pub const PADDLES_RIGHT: u16 = 4;
/// Player A uses the right port.
pub const SWAP_PORTS: u16 = 8;
/// Player A uses the second paddle of the port.
pub const SWAP_PADDLES: u16 = 16;
/// Difficulty switches that are at A before the first frame of the environment.
pub const LEFT_A: u16 = 32;
pub const RIGHT_A: u16 = 64;
/// PAL without detection in the first frames.
pub const FORCED_PAL: u16 = 128;
/// Only modes for two players are selected, and not mode 0, which ale-py does not select either.
pub const SELECTS_FOR_TWO: u16 = 256;
/// The rules are those of the modes for two players. Mode 0 has none: no score, no end.
pub const RULES_FOR_TWO: u16 = 512;

/// How lives are reported to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reported {
    /// As the game counts them, and 0 after the end of the episode.
    Counted,
    /// As the game counts them, also after the end of the episode.
    CountedAlways,
    /// Always 1.
    One,
    /// 1 until the episode ends, then 0.
    OneUntilEnd,
}

/// Encoding of a number in a byte of RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    Byte,
    /// Two decimal digits. Nibbles above 9 count with their value.
    Bcd,
    /// The low or the high nibble. 10 is a blank (0) in the `OrBlank` forms.
    Low,
    LowOrBlank,
    High,
    HighOrBlank,
    /// Eight times a digit; $80 is a blank.
    Alien,
    /// Eight times a digit; any other value is a blank.
    Eighth,
}

/// A term of the score: a number in RAM times its weight.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Term {
    pub form: Form,
    pub address: u8,
    /// 0 after the last term.
    pub weight: i32,
}

/// The score as a sum of numbers in RAM, and the limits of a frame's reward.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Score {
    pub terms: [Term; 6],
    /// Factor of the sum.
    pub unit: i32,
    /// Value at which the score restarts from 0; 0 = never.
    pub wraps_at: i32,
    /// Minimum and maximum reward of a frame.
    pub least: i32,
    pub most: i32,
    /// The frame that ends the episode has reward 0.
    pub silent_end: bool,
}

/// The lives: the bits of `mask`, shifted right, plus `more`. Without bits, lives are not counted.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Lives {
    pub address: u8,
    pub mask: u8,
    pub more: i32,
}

/// Comparison operator of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compare {
    Always,
    Never,
    Is,
    IsNot,
    Above,
}

/// A condition on the bits `mask` of a byte.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Condition {
    pub compare: Compare,
    pub address: u8,
    pub mask: u8,
    pub value: u8,
}

/// The end of an episode: when all conditions of `all` hold, or `or` holds, or the score is `score`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct End {
    pub all: [Condition; 4],
    pub or: Condition,
    /// 0 = the score does not end the episode.
    pub score: i32,
}

/// How to select a mode: SELECT is pressed for `frames` frames, repeatedly, until RAM shows the mode.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Select {
    /// 0 = no mode can be selected.
    pub frames: u32,
    /// Frames for which SELECT is pressed once before.
    pub before: u32,
    pub address: u8,
    /// The mode is reached when (byte - `less`) mod 256 = `scale` * mode + `more`.
    pub less: u8,
    pub scale: i32,
    pub more: i32,
}

/// An action that is repeated for a number of frames.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Press {
    pub frames: u32,
    pub action: u8,
}

/// Action codes that start a game. `RESET` is the console's switch.
pub const NOOP: u8 = 0;
pub const FIRE: u8 = 1;
pub const UP: u8 = 2;
pub const RIGHT: u8 = 3;
pub const LEFT: u8 = 4;
pub const DOWN: u8 = 5;
pub const UPFIRE: u8 = 10;
pub const RESET: u8 = 40;

pub const NO_TERM: Term = Term { form: Form::Byte, address: 0, weight: 0 };
pub const NO_SCORE: Score =
    Score { terms: [NO_TERM; 6], unit: 1, wraps_at: 0, least: i32::MIN, most: i32::MAX, silent_end: false };
pub const ALWAYS: Condition = Condition { compare: Compare::Always, address: 0, mask: 0, value: 0 };
pub const NEVER: Condition = Condition { compare: Compare::Never, address: 0, mask: 0, value: 0 };
pub const NO_PRESS: Press = Press { frames: 0, action: NOOP };
/// All 18 actions of one player: directions with and without FIRE.
pub const ALL_ACTIONS: u32 = 0x3FFFF;

/// Defaults of a row.
pub const GAME: Game = Game {
    name: "unknown",
    title: "",
    md5: "",
    cartridge: "",
    pal: false,
    modes: &[0],
    difficulties: &[0],
    players: 1,
    first_line: 34,
    height: 210,
    flags: HMOVE_BLANKS,
    paddle_max: 790_196,
    minimal: ALL_ACTIONS,
    legal: ALL_ACTIONS,
    select: Select { frames: 0, before: 0, address: 0, less: 0, scale: 0, more: 0 },
    start: [NO_PRESS; 3],
    start_score: 0,
    start_lives: -1,
    score: NO_SCORE,
    lives: Lives { address: 0, mask: 0, more: 0 },
    reported: Reported::Counted,
    end: End { all: [NEVER; 4], or: NEVER, score: 0 },
    special: Special::None,
    last_read: 0xFF,
};

// Functions with which rows are written.

pub const fn term(form: Form, address: u8, weight: i32) -> Term {
    Term { form, address, weight }
}

/// The sum of three terms.
pub const fn sum(a: Term, b: Term, c: Term) -> Score {
    Score { terms: [a, b, c, NO_TERM, NO_TERM, NO_TERM], ..NO_SCORE }
}

/// Two, four or six decimal digits, by the address of each byte.
pub const fn bcd1(low: u8) -> Score {
    sum(term(Form::Bcd, low, 1), NO_TERM, NO_TERM)
}

pub const fn bcd2(low: u8, high: u8) -> Score {
    sum(term(Form::Bcd, low, 1), term(Form::Bcd, high, 100), NO_TERM)
}

pub const fn bcd3(low: u8, middle: u8, high: u8) -> Score {
    sum(term(Form::Bcd, low, 1), term(Form::Bcd, middle, 100), term(Form::Bcd, high, 10_000))
}

/// The player's points minus the opponent's.
pub const fn difference(form: Form, player: u8, opponent: u8) -> Score {
    sum(term(form, player, 1), term(form, opponent, -1), NO_TERM)
}

/// One decimal digit per byte, the lowest at address `first`, the next one at `first + step`.
pub const fn places(form: Form, first: u8, step: i32, count: usize) -> Score {
    Score {
        terms: [
            place(form, first, step, count, 0),
            place(form, first, step, count, 1),
            place(form, first, step, count, 2),
            place(form, first, step, count, 3),
            place(form, first, step, count, 4),
            place(form, first, step, count, 5),
        ],
        ..NO_SCORE
    }
}

pub const fn place(form: Form, first: u8, step: i32, count: usize, at: usize) -> Term {
    let weights: [i32; 6] = [1, 10, 100, 1000, 10_000, 100_000];
    let address: u8 = (first as i32 + step * at as i32) as u8;
    if at < count { term(form, address, weights[at]) } else { NO_TERM }
}

/// `score` times `unit`.
pub const fn times(unit: i32, score: Score) -> Score {
    Score { unit, ..score }
}

/// `score`, which restarts from 0 at `wraps_at`.
pub const fn wrapping(wraps_at: i32, score: Score) -> Score {
    Score { wraps_at, ..score }
}

/// `score`, with the reward of a frame limited to `least` .. `most`.
pub const fn rewards(least: i32, most: i32, score: Score) -> Score {
    Score { least, most, ..score }
}

/// `score`, with reward 0 in the frame that ends the episode.
pub const fn silent_end(score: Score) -> Score {
    Score { silent_end: true, ..score }
}

/// Lives: the bits of `mask`, plus `more`.
pub const fn count(address: u8, mask: u8, more: i32) -> Lives {
    Lives { address, mask, more }
}

pub const fn condition(compare: Compare, address: u8, mask: u8, value: u8) -> Condition {
    Condition { compare, address, mask, value }
}

pub const fn is(address: u8, value: u8) -> Condition {
    condition(Compare::Is, address, 255, value)
}

pub const fn is_not(address: u8, value: u8) -> Condition {
    condition(Compare::IsNot, address, 255, value)
}

pub const fn above(address: u8, value: u8) -> Condition {
    condition(Compare::Above, address, 255, value)
}

/// The bits of `mask` equal `value`.
pub const fn bits(address: u8, mask: u8, value: u8) -> Condition {
    condition(Compare::Is, address, mask, value)
}

/// At least one bit of `mask` is set.
pub const fn any_of(address: u8, mask: u8) -> Condition {
    condition(Compare::IsNot, address, mask, 0)
}

pub const fn when(a: Condition) -> End {
    when_all(a, ALWAYS, ALWAYS, ALWAYS)
}

pub const fn when_both(a: Condition, b: Condition) -> End {
    when_all(a, b, ALWAYS, ALWAYS)
}

pub const fn when_all(a: Condition, b: Condition, c: Condition, d: Condition) -> End {
    End { all: [a, b, c, d], or: NEVER, score: 0 }
}

pub const fn when_either(a: Condition, b: Condition) -> End {
    End { all: [a, ALWAYS, ALWAYS, ALWAYS], or: b, score: 0 }
}

/// The episode ends at a score, or when `or` holds.
pub const fn at_score(score: i32, or: Condition) -> End {
    End { all: [NEVER; 4], or, score }
}

/// RAM shows the mode itself. SELECT is pressed for `frames` frames.
pub const fn shown(address: u8, frames: u32) -> Select {
    scaled(address, 1, 0, frames)
}

/// RAM shows the mode plus one.
pub const fn from_one(address: u8, frames: u32) -> Select {
    Select { frames, before: 0, address, less: 1, scale: 1, more: 0 }
}

/// RAM shows `scale` * mode + `more`.
pub const fn scaled(address: u8, scale: i32, more: i32, frames: u32) -> Select {
    Select { frames, before: 0, address, less: 0, scale, more }
}

/// `rules::modes` checks whether the mode is reached.
pub const fn held(frames: u32) -> Select {
    scaled(0, 0, 0, frames)
}

pub const fn held_before(before: u32, select: Select) -> Select {
    Select { before, ..select }
}

pub const fn press(frames: u32, action: u8) -> Press {
    Press { frames, action }
}
