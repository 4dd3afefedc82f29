//! Methods for recorded episodes: steps with resets in the same call, whole episodes from their actions, cores
//! of states, and seeds without a reset.

use super::super::outputs::Outputs;
use super::super::pool::{catch_panic, lock};
use super::super::slot::Workspace;
use super::super::{player_actions, states};
use super::{Command, CpuBatch, Shared};
use crate::CuleError;
use crate::env::Action;

impl Shared {
    /// Steps an environment with one action after the other until its episode ends; returns the number of
    /// steps, and whether it has ended.
    fn play(&self, work: &mut Workspace, id: usize, actions: &[Action]) -> Result<(usize, bool), CuleError> {
        let (mut steps, mut ended) = (0, false);
        let result = catch_panic(|| {
            let mut slot = lock(&self.slots[id]);
            let (game, rules) = (&self.games[slot.game], &self.rules[slot.game]);
            let players = self.settings.players;
            for step in 0..actions.len() / players as usize {
                slot.step(work, game, rules, player_actions(actions, players, step));
                steps += 1;
                ended = slot.has_ended();
                if ended {
                    break;
                }
            }
            Ok(())
        });
        match result {
            Ok(()) => Ok((steps, ended)),
            Err(source) => {
                lock(&self.slots[id]).mark_failed();
                Err(CuleError::Environment { env: id, source: Box::new(source) })
            }
        }
    }
}

impl CpuBatch {
    /// Steps the environments `envs`, which have one row each of the results, and begins new episodes in some
    /// of them within the same call. The others do nothing.
    ///
    /// An environment with a seed is reset with it after its step; one without a seed is reset, with its
    /// generators as they are, where its episode has ended. Reports, RAM and `final_obs` are those of the
    /// step, in every row; `obs` are those after the resets.
    ///
    /// # Errors
    /// The numbers of environments, actions and seeds differ, `envs` do not ascend, an environment does not
    /// exist, has not been reset or still has a task, or a buffer has the wrong length.
    pub fn step_and_reset(
        &mut self,
        envs: &[usize],
        actions: &[Action],
        seeds: Option<&[Option<u64>]>,
        out: Outputs<'_>,
    ) -> Result<(), CuleError> {
        let expected = envs.len();
        self.check_actions(actions, expected)?;
        if let Some(found) = seeds.map(<[_]>::len).filter(|&found| found != expected) {
            return Err(CuleError::Count { what: "seeds", found, expected });
        }
        if let Some(pair) = envs.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(CuleError::EnvState { env: pair[1], reason: "is not above the one before it" });
        }
        envs.last().map_or(Ok(()), |&env| self.check_exists(env))?;
        self.check_idle(envs)?;
        self.check_ready(envs.iter().copied())?;
        let seed = |row: usize| seeds.and_then(|seeds| seeds[row]);
        self.run(
            expected,
            |row| (envs[row], Command::StepAndReset(self.of_players(actions, row), seed(row))),
            out,
        )
    }

    /// Steps one environment with one action after the other until its episode ends, without observations.
    /// Returns the number of steps, and whether the episode has ended.
    ///
    /// # Errors
    /// The environment does not exist, has not been reset, has ended or still has a task.
    pub fn play(&mut self, env: usize, actions: &[Action]) -> Result<(usize, bool), CuleError> {
        self.check_exists(env)?;
        self.check_idle(&[env])?;
        self.check_ready(std::iter::once(env))?;
        let mut played = (0, false);
        self.pool.run(vec![std::iter::once(&mut played)], |work, played| {
            *played = self.shared.play(work, env, actions)?;
            Ok(())
        })?;
        Ok(played)
    }

    /// The core of an environment, and the words of its generator of sticky actions: what its next steps
    /// depend on if it shows neither pictures nor a stack. Valid for one version of states.
    ///
    /// # Errors
    /// The environment does not exist or still has a task.
    pub fn save_core(&self, env: usize) -> Result<(Vec<u8>, Vec<u32>), CuleError> {
        self.check_exists(env)?;
        self.check_idle(&[env])?;
        let slot = lock(&self.shared.slots[env]);
        Ok((states::save_core(&slot), slot.random.words.to_vec()))
    }

    /// Loads what [`CpuBatch::save_core`] returned. The environment has no observation until its next step.
    ///
    /// # Errors
    /// The environment does not exist, still has a task, or shows pictures or a stack; or the core is of
    /// another game or damaged.
    pub fn load_core(&mut self, env: usize, core: &[u8], words: &[u8]) -> Result<(), CuleError> {
        self.check_exists(env)?;
        self.check_idle(&[env])?;
        let mut slot = lock(&self.shared.slots[env]);
        *slot = {
            let (game, rules) = (&self.shared.games[slot.game], &self.shared.rules[slot.game]);
            states::load_core(core, words, &slot, game, rules)?
        };
        Ok(())
    }

    /// Seeds the generators of environments as a seeded reset does, without a reset.
    ///
    /// # Errors
    /// `seeds` does not have one seed per environment, or an environment does not exist or still has a task.
    pub fn reseed(&mut self, envs: &[usize], seeds: &[u64]) -> Result<(), CuleError> {
        if seeds.len() != envs.len() {
            return Err(CuleError::Count { what: "seeds", found: seeds.len(), expected: envs.len() });
        }
        envs.iter().try_for_each(|&env| self.check_exists(env))?;
        self.check_idle(envs)?;
        for (&env, &seed) in envs.iter().zip(seeds) {
            let mut slot = lock(&self.shared.slots[env]);
            let rules = &self.shared.rules[slot.game];
            slot.reseed(seed, rules);
        }
        Ok(())
    }
}
