//! Hindsight: chooses the achieved goal that replaces the desired goal of a sampled row.
//!
//! Source: Andrychowicz et al. (2017), "Hindsight Experience Replay", section 4.5 for the strategies.

use super::draw::Transition;
use super::frames::PreviousRow;
use super::settings::Strategy;
use super::slots::Pin;
use super::{Replay, TreeWeights};
use crate::memory::{reserve, vec_with_capacity};
use crate::{Rng, SumTreeError};

impl Replay {
    /// Index of the field that goals are copied from: the achieved goal of the observation after a step, if
    /// rows store it, otherwise the achieved goal of the observation itself.
    pub(super) fn goal_column(&self, achieved: usize) -> usize {
        let next = format!("next_{}", self.settings.fields[achieved].name);
        self.settings.fields.iter().position(|field| field.name == next).unwrap_or(achieved)
    }

    /// Returns true if goals are drawn from the row after the step that achieved them, because rows do not store
    /// the next observation.
    pub(super) fn draws_from_next_rows(&self) -> bool {
        self.roles.achieved.is_some_and(|achieved| self.roles.rebuilt.contains(&achieved))
    }

    /// For each transition, the slot of the row whose goal it gets, or `None` if it is not relabeled. Empty
    /// if the replay does not relabel goals.
    pub(super) fn goals(
        &self,
        pin: &Pin<'_, TreeWeights>,
        rng: &mut Rng,
        transitions: &[Transition],
    ) -> Result<Vec<Option<usize>>, SumTreeError> {
        let Some(hindsight) = &self.settings.hindsight else { return Ok(Vec::new()) };
        let in_next_row = self.draws_from_next_rows();
        let mut candidates = Vec::new();
        let one = |t: &Transition| {
            // Without the observation after the step, the goal that the step achieved is not known.
            if rng.unit() >= hindsight.share || (in_next_row && t.next == t.last) {
                return Ok(None);
            }
            candidates.clear();
            if hindsight.strategy == Strategy::Episode {
                self.push_earlier_goals(pin, t, in_next_row, &mut candidates)?;
            }
            self.push_later_goals(pin, t, in_next_row, &mut candidates)?;
            Ok(match hindsight.strategy {
                _ if candidates.is_empty() => None,
                Strategy::Final => candidates.last().copied(),
                _ => Some(candidates[rng.below(candidates.len() as u64) as usize]),
            })
        };
        let mut goals = vec_with_capacity(transitions.len())?;
        for goal in transitions.iter().map(one) {
            goals.push(goal?);
        }
        Ok(goals)
    }

    /// Appends the slots of the rows with the goals that were achieved by the step of `t` and by later steps
    /// of its episode.
    fn push_later_goals(
        &self,
        pin: &Pin<'_, TreeWeights>,
        t: &Transition,
        in_next_row: bool,
        slots: &mut Vec<usize>,
    ) -> Result<(), SumTreeError> {
        let mut slot = t.row.slot;
        loop {
            if !in_next_row {
                push(slots, slot)?;
                // The row after the last step only holds the final observation.
                if self.flag(self.roles.terminated, slot) || self.flag(self.roles.truncated, slot) {
                    return Ok(());
                }
            }
            match pin.next(slot) {
                Some(next) => slot = next,
                None => return Ok(()),
            }
            if in_next_row {
                push(slots, slot)?;
            }
        }
    }

    /// Appends the slots of the rows with the goals that were achieved by steps before `t`, as far as these
    /// rows are not overwritten.
    fn push_earlier_goals(
        &self,
        pin: &Pin<'_, TreeWeights>,
        t: &Transition,
        in_next_row: bool,
        slots: &mut Vec<usize>,
    ) -> Result<(), SumTreeError> {
        let history = &self.history;
        let horizon = history.ring.horizon(pin.marked());
        let slot = |sequence: u64| (sequence % history.ring.slots as u64) as usize;
        let mut at = history.sequence(pin, t.row);
        while let PreviousRow::Row(before) = history.previous(horizon, at) {
            push(slots, slot(if in_next_row { at } else { before }))?;
            at = before;
        }
        Ok(())
    }
}

fn push(slots: &mut Vec<usize>, slot: usize) -> Result<(), SumTreeError> {
    if slots.len() == slots.capacity() {
        reserve(slots, slots.len().max(16))?;
    }
    slots.push(slot);
    Ok(())
}
