//! Games that two players play at the same time: the modes in which both control something, and the reward of
//! the second player. Host only.

use super::evaluate::sum_of;
use super::row::*;
use super::table::GAMES;

/// A game for two players.
#[derive(Clone, Copy, Debug)]
pub struct TwoPlayers {
    /// Name of its row in the table of games.
    pub game: &'static str,
    /// Modes for two players, ascending. The first is the default.
    pub modes: &'static [u32],
    /// Reward of the second player.
    pub second: Second,
}

/// Reward of the second player.
#[derive(Clone, Copy, Debug)]
pub enum Second {
    /// The negative of the first player's reward.
    Negative,
    /// The increase of a score of its own.
    Score(Score),
}

/// The games for two players, in alphabetical order.
#[rustfmt::skip]
pub static TWO_PLAYERS: [TwoPlayers; 10] = [
    TwoPlayers { game: "boxing", modes: &[1], second: Second::Negative },
    // The games 1 to 27 of its manual.
    TwoPlayers { game: "combat", modes: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27], second: Second::Negative },
    // The modes of one player plus 16.
    TwoPlayers { game: "double_dunk", modes: &[16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31], second: Second::Negative },
    TwoPlayers { game: "fishing_derby", modes: &[1], second: Second::Negative },
    // The second player plays in the modes of one player, too.
    TwoPlayers { game: "freeway", modes: &[0, 1, 2, 3, 4, 5, 6, 7], second: Second::Score(rewards(0, i32::MAX, bcd1(0xE8))) },
    TwoPlayers { game: "ice_hockey", modes: &[1, 3], second: Second::Negative },
    TwoPlayers { game: "joust", modes: &[1, 3], second: Second::Score(rewards(0, i32::MAX, bcd3(0x88, 0x86, 0x84))) },
    TwoPlayers { game: "pong", modes: &[2, 3], second: Second::Negative },
    TwoPlayers { game: "surround", modes: &[1, 3, 4, 5, 6, 7, 8, 9, 10, 11], second: Second::Negative },
    TwoPlayers { game: "tennis", modes: &[1, 3], second: Second::Negative },
];

/// The entry of a row of the table of games; `None` if two cannot play it at the same time.
pub fn of(row: usize) -> Option<&'static TwoPlayers> {
    TWO_PLAYERS.iter().find(|entry| entry.game == GAMES[row].name)
}

/// Reward of a step in which a score grew from `before` to `after`.
pub fn earned(score: &Score, before: &[u8; 128], after: &[u8; 128]) -> i32 {
    let growth = sum_of(score, after) - sum_of(score, before);
    let growth = if growth < 0 { growth + score.wraps_at } else { growth };
    growth.clamp(score.least, score.most)
}
