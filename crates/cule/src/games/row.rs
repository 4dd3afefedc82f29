//! What a row of the table of games says, and the words that rows are written with.
//!
//! Device subset.

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Game {
    /// Lower snake case.
    pub name: &'static str,
    /// For people; "" = the words of `name` with capitals.
    pub title: &'static str,
    /// Hash of the ROM, lower-case hexadecimal.
    pub md5: &'static str,
    /// The ROM's bank switching: a name of `rom::Scheme`, with 2K for `K2` and 4K for `K4`.
    pub cartridge: &'static str,
    /// The ROM is a PAL program, as a console finds out in its first frames.
    pub pal: bool,
    /// Modes, ascending; the first is the one after loading.
    pub modes: &'static [u32],
    /// Difficulties, ascending: bit 0 is the left switch at A, bit 1 the right one.
    pub difficulties: &'static [u32],
    /// Players that an episode needs.
    pub players: u32,
    /// Frame line of the first row of the picture.
    pub first_line: i16,
    /// Rows of the picture. Where it is 210, a PAL picture has 250.
    pub height: i16,
    /// Bits of the picture, the controllers and the switches, named below.
    pub flags: u16,
    /// Largest resistance of a paddle, in ohms.
    pub paddle_max: i32,
    /// Actions that do something, one bit each.
    pub minimal: u32,
    /// Actions that are let through.
    pub legal: u32,
    /// How a mode is selected.
    pub select: Select,
    /// Actions that start an episode, after the RESET switch.
    pub start: [Press; 3],
    /// The score before the first evaluation of an episode.
    pub start_score: i32,
    /// The lives then; -1 keeps those of the frame before.
    pub start_lives: i32,
    /// Where the score is.
    pub score: Score,
    /// Where the lives are.
    pub lives: Lives,
    /// The lives that a program is told.
    pub reported: Reported,
    /// When the episode ends.
    pub end: End,
    /// What of this game stands in `rules/`.
    pub special: Special,
    /// The address that ale-py's rules read last: its value stays on the data bus, where code in the TIA's addresses
    /// sees it. Unsure: $FF stands for games in which it was not measured.
    pub last_read: u8,
}

/// Games of which something stands in `rules/`, or in what boots a console.
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
/// Player A sits at the right port.
pub const SWAP_PORTS: u16 = 8;
/// Player A has the second paddle of the port.
pub const SWAP_PADDLES: u16 = 16;
/// Difficulty switches at A before the first frame of the environment.
pub const LEFT_A: u16 = 32;
pub const RIGHT_A: u16 = 64;
/// PAL without a look at the first frames.
pub const FORCED_PAL: u16 = 128;

/// What is counted as lives at the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reported {
    /// As the game counts, and 0 once the episode has ended.
    Counted,
    /// As the game counts, also after the end.
    CountedAlways,
    /// Always 1.
    One,
    /// 1 until the episode ends, then 0.
    OneUntilEnd,
}

/// How the number in a byte of RAM is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    Byte,
    /// Two decimal digits; nibbles above 9 count as they are.
    Bcd,
    /// The low or the high nibble; 10 is blank in the second of each.
    Low,
    LowOrBlank,
    High,
    HighOrBlank,
    /// Eight times a digit; $80 is blank.
    Alien,
    /// Eight times a digit; anything else is blank.
    Eighth,
}

/// A part of the score: a number of RAM times its weight.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Term {
    pub form: Form,
    pub address: u8,
    /// 0 behind the last term.
    pub weight: i32,
}

/// The score as a sum of numbers in RAM, and what of it is earned in a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Score {
    pub terms: [Term; 6],
    /// The sum counts so many times.
    pub unit: i32,
    /// Where the score starts from 0 again; 0 = it does not.
    pub wraps_at: i32,
    /// Least and largest reward of a frame.
    pub least: i32,
    pub most: i32,
    /// What is scored in the frame that ends the episode is not earned.
    pub silent_end: bool,
}

/// The lives: the bits of `mask`, moved down, and `more`. No bits: not counted.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Lives {
    pub address: u8,
    pub mask: u8,
    pub more: i32,
}

/// How a byte is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compare {
    Always,
    Never,
    Is,
    IsNot,
    Above,
}

/// A comparison of the bits of `mask`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Condition {
    pub compare: Compare,
    pub address: u8,
    pub mask: u8,
    pub value: u8,
}

/// The end of an episode: when all conditions hold, or the one behind them, or at a score.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct End {
    pub all: [Condition; 4],
    pub or: Condition,
    /// 0 = no score ends it.
    pub score: i32,
}

/// How a mode is selected: SELECT is held for `frames` per try, until RAM shows the mode.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Select {
    /// 0 = there is nothing to select.
    pub frames: u32,
    /// Frames that SELECT is held once before the tries.
    pub before: u32,
    pub address: u8,
    /// The byte less `less`, modulo 256, is `scale` times the mode and `more`.
    pub less: u8,
    pub scale: i32,
    pub more: i32,
}

/// An action for a number of frames.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Press {
    pub frames: u32,
    pub action: u8,
}

/// Action codes of the environment that start a game; `RESET` is the console's switch.
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
/// Directions and FIRE of one player, 18 codes.
pub const ALL_ACTIONS: u32 = 0x3FFFF;

/// What a row leaves out.
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

// What rows are written with.

pub const fn term(form: Form, address: u8, weight: i32) -> Term {
    Term { form, address, weight }
}

/// The sum of three terms.
pub const fn sum(a: Term, b: Term, c: Term) -> Score {
    Score { terms: [a, b, c, NO_TERM, NO_TERM, NO_TERM], ..NO_SCORE }
}

/// Two, four or six decimal digits, the low byte first.
pub const fn bcd1(low: u8) -> Score {
    sum(term(Form::Bcd, low, 1), NO_TERM, NO_TERM)
}

pub const fn bcd2(low: u8, high: u8) -> Score {
    sum(term(Form::Bcd, low, 1), term(Form::Bcd, high, 100), NO_TERM)
}

pub const fn bcd3(low: u8, middle: u8, high: u8) -> Score {
    sum(term(Form::Bcd, low, 1), term(Form::Bcd, middle, 100), term(Form::Bcd, high, 10_000))
}

/// The player's points less the opponent's.
pub const fn difference(form: Form, player: u8, opponent: u8) -> Score {
    sum(term(form, player, 1), term(form, opponent, -1), NO_TERM)
}

/// One decimal digit a byte, the lowest at `first`, the next one `step` further.
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

/// `score` counts `unit` times.
pub const fn times(unit: i32, score: Score) -> Score {
    Score { unit, ..score }
}

/// `score` starts from 0 again at `wraps_at`.
pub const fn wrapping(wraps_at: i32, score: Score) -> Score {
    Score { wraps_at, ..score }
}

/// A frame earns at least `least` and at most `most`.
pub const fn rewards(least: i32, most: i32, score: Score) -> Score {
    Score { least, most, ..score }
}

/// The frame that ends the episode earns nothing.
pub const fn silent_end(score: Score) -> Score {
    Score { silent_end: true, ..score }
}

/// The bits of `mask`, and `more`.
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

/// The bits of `mask` are `value`.
pub const fn bits(address: u8, mask: u8, value: u8) -> Condition {
    condition(Compare::Is, address, mask, value)
}

/// One of the bits of `mask` is set.
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

/// At a score, and when `or` holds.
pub const fn at_score(score: i32, or: Condition) -> End {
    End { all: [NEVER; 4], or, score }
}

/// RAM shows the mode itself. SELECT is held for `frames`.
pub const fn shown(address: u8, frames: u32) -> Select {
    scaled(address, 1, 0, frames)
}

/// RAM shows the mode counted from one.
pub const fn from_one(address: u8, frames: u32) -> Select {
    Select { frames, before: 0, address, less: 1, scale: 1, more: 0 }
}

/// RAM shows `scale` times the mode, and `more`.
pub const fn scaled(address: u8, scale: i32, more: i32, frames: u32) -> Select {
    Select { frames, before: 0, address, less: 0, scale, more }
}

/// `rules::modes` says when the mode is reached.
pub const fn held(frames: u32) -> Select {
    scaled(0, 0, 0, frames)
}

pub const fn held_before(before: u32, select: Select) -> Select {
    Select { before, ..select }
}

pub const fn press(frames: u32, action: u8) -> Press {
    Press { frames, action }
}
