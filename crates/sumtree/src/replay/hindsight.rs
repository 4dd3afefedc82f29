//! Hindsight: whose achieved goal a row that was drawn gets as its desired one.
//!
//! Source: Andrychowicz et al. (2017), "Hindsight Experience Replay", section 4.5 for the strategies.

use super::draw::Transition;
use super::frames::Before;
use super::settings::Strategy;
use super::slots::Pin;
use super::{Leaves, Replay};
use crate::Rng;

impl Replay {
    /// The field that goals are copied from: the achieved goal of the observation after a step, if rows hold that, else
    /// the one of the observation itself.
    pub(super) fn goal_column(&self, achieved: usize) -> usize {
        let next = format!("next_{}", self.settings.fields[achieved].name);
        self.settings.fields.iter().position(|field| field.name == next).unwrap_or(achieved)
    }

    /// Per transition the slot of the row whose goal it gets, for the share of them that are relabelled.
    pub(super) fn goals(
        &self,
        pin: &Pin<'_, Leaves>,
        rng: &mut Rng,
        transitions: &[Transition],
    ) -> Vec<Option<usize>> {
        let (Some(hindsight), Some(achieved)) = (&self.settings.hindsight, self.roles.achieved) else {
            return Vec::new();
        };
        let in_next_row = self.goal_column(achieved) == achieved;
        let mut candidates = Vec::new();
        let one = |t: &Transition| {
            // What the step achieved is not known where the observation after it is not there.
            if rng.unit() >= hindsight.share || (in_next_row && t.next == t.last) {
                return None;
            }
            candidates.clear();
            if hindsight.strategy == Strategy::Episode {
                self.earlier(pin, t, in_next_row, &mut candidates);
            }
            self.later(pin, t, in_next_row, &mut candidates);
            match hindsight.strategy {
                _ if candidates.is_empty() => None,
                Strategy::Final => candidates.last().copied(),
                _ => Some(candidates[rng.below(candidates.len() as u64) as usize]),
            }
        };
        transitions.iter().map(one).collect()
    }

    /// Rows of the episode from that of `t` on that hold a goal achieved by a step from `t` on.
    fn later(&self, pin: &Pin<'_, Leaves>, t: &Transition, in_next_row: bool, slots: &mut Vec<usize>) {
        let mut slot = t.row.slot;
        loop {
            if !in_next_row {
                slots.push(slot);
                // What follows the last step only carries the final observation.
                if self.flag(self.roles.terminated, slot) || self.flag(self.roles.truncated, slot) {
                    return;
                }
            }
            match pin.next(slot) {
                Some(next) => slot = next,
                None => return,
            }
            if in_next_row {
                slots.push(slot);
            }
        }
    }

    /// Rows before that of `t` that hold a goal achieved by a step before `t`, as far as they are still there.
    fn earlier(&self, pin: &Pin<'_, Leaves>, t: &Transition, in_next_row: bool, slots: &mut Vec<usize>) {
        let history = &self.history;
        let horizon = history.ring.horizon(pin.marked());
        let slot = |sequence: u64| (sequence % history.ring.slots as u64) as usize;
        let mut at = history.sequence(pin, t.row);
        while let Before::Row(before) = history.before(horizon, at) {
            slots.push(slot(if in_next_row { at } else { before }));
            at = before;
        }
    }
}
