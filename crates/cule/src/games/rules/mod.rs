//! What the table of games cannot say, by kind: formulas of scores, ends and lives of their own, games without a
//! running score, and what shows a mode.

pub mod boards;
pub mod contests;
pub mod ends;
pub mod lives;
pub mod modes;
pub mod quests;
pub mod scores;
