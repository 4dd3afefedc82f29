//! Rules that the table of games cannot express: special scores, ends and lives, games without a running
//! score, and mode detection.

pub mod boards;
pub mod contests;
pub mod ends;
pub mod lives;
pub mod modes;
pub mod quests;
pub mod scores;
