//! Rules of an RL step: when it stops, what it reports, and how actions are encoded.
//!
//! Device subset. For each frame, `env::step` holds the action, runs the frame, and calls `count` and
//! `stops`.

use bytemuck::{Pod, Zeroable};

use crate::env::{self, Action, State};

/// Effect of a lost life: none.
pub const LIFE_IGNORED: u32 = 0;
/// A lost life is reported as `terminated`, and the episode continues.
pub const LIFE_REPORTS: u32 = 1;
/// A lost life stops the step and ends the episode, unless it was the last one.
pub const LIFE_ENDS: u32 = 2;
/// As `LIFE_ENDS`, including the last life.
pub const ANY_LIFE_ENDS: u32 = 3;
/// As `LIFE_ENDS`, but all frames of the step run before the episode ends.
pub const LIFE_ENDS_LATE: u32 = 4;

/// Rewards are not changed.
pub const CLIP_NONE: u32 = 0;
/// Rewards are clipped to -1..=1.
pub const CLIP_CLAMP: u32 = 1;
/// Rewards are replaced by their sign.
pub const CLIP_SIGN: u32 = 2;

/// Settings of a step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct StepRules {
    /// Probability of a sticky action, per frame.
    pub repeat_probability: f64,
    /// Frames of a game, counted in steps only, after which its episode is truncated.
    pub frame_limit: i32,
    /// Steps of a game after which its episode is truncated, 0 = no limit.
    pub step_limit: i32,
    /// One of the `LIFE_` constants.
    pub life: u32,
    /// One of the `CLIP_` constants.
    pub clip: u32,
}

/// Counters of an episode. Those of frames and steps begin with the game, which may have had earlier
/// episodes, one for each life.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Episode {
    /// Frames of the game's steps so far.
    pub frames: i32,
    /// The game's steps so far.
    pub steps: i32,
    /// Lives at the end of the last step.
    pub lives: i32,
    /// Reward of the current step before clipping.
    pub reward: i32,
    /// Sum of rewards before clipping.
    pub total: i32,
    /// After the last frame there were fewer lives than after the previous step, but at least one.
    pub lost_life: u8,
    /// After the last frame there were fewer lives than after the previous step.
    pub lost_any_life: u8,
    /// The episode has ended: the environment must be reset.
    pub ended: u8,
    /// Keeps the size a multiple of four.
    pub unused: u8,
}

/// Counters for an episode that begins with the current state.
pub fn begin_episode(state: &State) -> Episode {
    Episode {
        frames: 0,
        steps: 0,
        lives: env::lives(state),
        reward: 0,
        total: 0,
        lost_life: 0,
        lost_any_life: 0,
        ended: 0,
        unused: 0,
    }
}

/// Starts a step: to be called before its first frame.
pub fn begin_step(episode: &mut Episode) {
    episode.reward = 0;
    episode.steps += 1;
}

/// Counts one frame of a step: its reward, and whether lives were lost.
pub fn count(episode: &mut Episode, state: &State, reward: i32) {
    episode.reward = episode.reward.wrapping_add(reward);
    episode.frames += 1;
    let lives: i32 = env::lives(state);
    episode.lost_any_life = (lives < episode.lives) as u8;
    episode.lost_life = (lives < episode.lives && lives > 0) as u8;
}

/// Returns true if a lost life ends the episode.
fn life_ends(rules: &StepRules, episode: &Episode) -> bool {
    match rules.life {
        LIFE_ENDS | LIFE_ENDS_LATE => episode.lost_life != 0,
        ANY_LIFE_ENDS => episode.lost_any_life != 0,
        _ => false,
    }
}

/// Returns true if the step stops after this frame and the episode has ended.
pub fn stops(rules: &StepRules, episode: &Episode, state: &State) -> bool {
    let life: bool = rules.life != LIFE_ENDS_LATE && life_ends(rules, episode);
    env::ended(state) || limited(rules, episode) || life
}

/// Returns true if the limit on frames is reached.
fn limited(rules: &StepRules, episode: &Episode) -> bool {
    episode.frames >= rules.frame_limit
}

/// Ends a step: to be called after its last frame.
pub fn end_step(rules: &StepRules, episode: &mut Episode, state: &State) {
    episode.lives = env::lives(state);
    episode.total = episode.total.wrapping_add(episode.reward);
    let late: bool = rules.step_limit > 0 && episode.steps >= rules.step_limit;
    episode.ended = (stops(rules, episode, state) || life_ends(rules, episode) || late) as u8;
}

/// Returns true if the game is over, or if a life was lost and the rules report it or end the episode.
pub fn terminated(rules: &StepRules, episode: &Episode, state: &State) -> bool {
    let reported: bool = rules.life == LIFE_REPORTS && episode.lost_life != 0;
    state.rules.over != 0 || reported || life_ends(rules, episode)
}

/// Returns true if a limit on frames, steps or lives is reached.
pub fn truncated(rules: &StepRules, episode: &Episode, state: &State) -> bool {
    let late: bool = rules.step_limit > 0 && episode.steps >= rules.step_limit;
    limited(rules, episode) || late || env::truncated(state)
}

/// The reward after clipping.
pub fn clipped(rules: &StepRules, reward: i32) -> i32 {
    if rules.clip == CLIP_NONE {
        return reward;
    }
    // For integers, clipping to -1..=1 and the sign are the same.
    if reward > 0 {
        1
    } else if reward < 0 {
        -1
    } else {
        0
    }
}

/// Action codes of the joystick's nine directions, without and with the trigger. Rows: down, none, up.
/// Columns: left, none, right.
const DIRECTIONS: [[u32; 9]; 2] = [[9, 5, 8, 4, 0, 3, 7, 2, 6], [17, 13, 16, 12, 1, 11, 15, 10, 14]];

/// Converts a continuous action to an action code. `right` and `up` are the Cartesian coordinates of the
/// stick, `fire` is the trigger; each counts if it is above `threshold` (directions also below `-threshold`).
/// `strength` scales the movement of a paddle; 1 is full strength.
pub fn continuous_action(right: f32, up: f32, fire: f32, strength: f32, threshold: f32) -> Action {
    let mut column: usize = 1;
    if right > threshold {
        column = 2;
    } else if right < -threshold {
        column = 0;
    }
    let mut row: usize = 1;
    if up > threshold {
        row = 2;
    } else if up < -threshold {
        row = 0;
    }
    let trigger: usize = (fire > threshold) as usize;
    let push: f64 = strength as f64 * env::PADDLE_STEP as f64;
    let step: i32 = push as i32;
    Action { code: DIRECTIONS[trigger][3 * row + column], step: if step < 0 { -step } else { step } }
}

/// The action code of entry `index` of an action set, given as one bit per code; 255 if the set has fewer
/// entries.
pub fn action_code(set: u32, index: u32) -> u32 {
    let mut left: u32 = index;
    for code in 0..18 {
        if set >> code & 1 != 0 {
            if left == 0 {
                return code;
            }
            left -= 1;
        }
    }
    255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_action_sets() {
        // Pong: 0, 1, 3, 4, 11, 12.
        let codes: Vec<u32> = (0..7).map(|i| action_code(0x0181B, i)).collect();
        assert_eq!(codes, [0, 1, 3, 4, 11, 12, 255]);
    }

    #[test]
    fn stick_positions() {
        let action = |r: f32, angle: f32, fire: f32, threshold: f32| {
            continuous_action(r * angle.cos(), r * angle.sin(), fire, r, threshold).code
        };
        use std::f32::consts::PI;
        // LEFTFIRE; 0.7 cos 45 degrees = 0.495 is not above 0.5; both exactly at the threshold.
        assert_eq!(action(1.0, PI, 1.0, 0.5), 12);
        assert_eq!(action(0.7, PI / 4.0, 0.5, 0.5), 0);
        assert_eq!(action(0.2, 0.0, 0.2, 0.2), 0);
        assert_eq!(action(1.0, PI / 4.0, 0.0, 0.5), 6);
        assert_eq!(action(1.0, -PI / 4.0, 0.6, 0.5), 16);
        // 23000 x 0.7f32 = 16099.99...
        assert_eq!(continuous_action(0.0, 0.0, 0.0, -0.7, 0.5).step, 16_099);
    }
}
