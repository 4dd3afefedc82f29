//! Where episodes of a game start when they begin with the boot state: the console after each number of idle frames, with
//! FIRE held in each number of them. A reset on the device copies one instead of running its frames. Host only.

use bytemuck::Zeroable;

use super::super::game::Game;
use super::super::slot::Roll;
use super::super::{ObsType, Settings};
use crate::env::{self, NOOP, State};
use crate::lane::{MOST_START_FRAMES, NOOPS_AFTER_FIRE, Start, start_number};
use crate::machine::Board;

/// The action code of FIRE.
const FIRE: u32 = 1;

/// The starts of one game.
pub(super) struct Starts {
    /// In the order of [`start_number`].
    pub all: Vec<Start>,
    /// Frames of the longest, 0 when there are none: boots that are not known in advance, starts that end an episode or
    /// show older pictures than those of their last two frames.
    pub frames: u32,
    /// A frame did not reach the last row.
    pub has_short_frames: bool,
}

/// A console on its way through a start.
#[derive(Clone)]
struct Way {
    state: State,
    roll: Roll,
}

impl Way {
    /// One more frame with an action held; false when the episode ends with it or before it.
    fn hold(&mut self, code: u32, board: &mut Board, game: &Game) -> bool {
        if env::ended(&self.state) {
            return false;
        }
        self.state.env.held = [code, u32::from(NOOP)];
        self.state.env.held_step = [env::PADDLE_STEP, env::PADDLE_STEP];
        env::set_held_inputs(&mut self.state);
        self.state.machine.draw = 0;
        self.roll.frame(&mut self.state, board, &game.code);
        self.state.rules.over == 0
    }

    fn start(&self) -> Start {
        Start { state: self.state, recent: self.roll.recent }
    }
}

impl Starts {
    pub(super) fn new(game: &Game, settings: &Settings) -> Self {
        let mut found = Self { all: vec![], frames: 0, has_short_frames: false };
        let most = settings.noop_max.max(1) + 1;
        let usable = found.fill(game, settings, most.min(MOST_START_FRAMES));
        if usable && game.boot_draws.is_some() && most <= MOST_START_FRAMES {
            found.frames = most;
        } else {
            found.all.clear();
        }
        found
    }

    /// All starts of up to `most` frames; false when one cannot be used.
    fn fill(&mut self, game: &Game, settings: &Settings, most: u32) -> bool {
        let noops = settings.noops as u32;
        let after = noops == NOOPS_AFTER_FIRE;
        let count = if after { start_number(noops, most, most) } else { start_number(noops, most, 1) };
        self.all = vec![Start::zeroed(); count as usize + 1];
        let mut board: Box<Board> = bytemuck::zeroed_box();
        let mut way = Way { state: game.boot, roll: Roll::new() };
        if !after {
            let mut usable = self.put(noops, 0, 0, &way, settings);
            for frames in 1..=most {
                let mut fired = way.clone();
                usable &= !game.fires || fired.hold(FIRE, &mut board, game);
                usable &= self.put(noops, frames, 1, &fired, settings);
                usable &= way.hold(u32::from(NOOP), &mut board, game);
                usable &= self.put(noops, frames, 0, &way, settings);
            }
            return usable;
        }
        // FIRE sticks for some frames, and then nothing is held any more. Without sticky actions it is one frame.
        let fired_at_most = if !game.fires {
            0
        } else if settings.rules.keep > 0.0 {
            most
        } else {
            1
        };
        let mut usable = true;
        for fired in 0..=fired_at_most {
            let mut idle = way.clone();
            usable &= self.put(noops, fired, fired, &idle, settings);
            for frames in fired + 1..=most {
                usable &= idle.hold(u32::from(NOOP), &mut board, game);
                usable &= self.put(noops, frames, fired, &idle, settings);
            }
            usable &= fired == fired_at_most || way.hold(FIRE, &mut board, game);
        }
        usable
    }

    /// Puts one in its place; false when its pictures are not those of its last two frames. A reset runs the frames of
    /// starts shorter than that.
    fn put(&mut self, noops: u32, frames: u32, fired: u32, way: &Way, settings: &Settings) -> bool {
        self.all[start_number(noops, frames, fired) as usize] = way.start();
        let whole = frames < 2 || way.roll.recent.whole >= 2;
        self.has_short_frames |= !whole || (frames == 1 && way.roll.recent.whole < 1);
        whole || settings.obs_type == ObsType::Ram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_a_place_of_its_own() {
        for noops in 0..3 {
            let mut seen = vec![];
            for frames in 0..=MOST_START_FRAMES {
                let most = if noops == NOOPS_AFTER_FIRE { frames } else { frames.min(1) };
                seen.extend((0..=most).map(|fired| start_number(noops, frames, fired)));
            }
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count);
            // A triangle is full; of pairs, the one of no frames has one place free.
            let free = usize::from(noops != NOOPS_AFTER_FIRE);
            assert_eq!(*seen.last().unwrap() as usize, count - 1 + free);
        }
    }
}
