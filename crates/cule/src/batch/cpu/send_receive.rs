//! Batches of fewer results than environments: actions are sent, and results received as they are ready.

use std::time::Duration;

use super::super::outputs::{Outputs, RAM_BYTES, check_length};
use super::super::player_actions;
use super::{Command, CpuBatch, SYNCHRONOUS};
use crate::CuleError;
use crate::env::Action;

impl CpuBatch {
    /// Environments that the next [`CpuBatch::send`] gives actions for, in order.
    pub fn ready_envs(&self) -> &[usize] {
        &self.ready_envs
    }

    /// Queues one step for each of `envs` and returns at once.
    ///
    /// # Errors
    /// The numbers of environments and actions differ, an environment does not exist, has not been reset or
    /// still has a task, or the batch is synchronous.
    pub fn send(&mut self, envs: &[usize], actions: &[Action]) -> Result<(), CuleError> {
        self.check_actions(actions, envs.len())?;
        let mut marked = 0;
        let mut sent = Ok(());
        for &env in envs {
            match self.busy.get_mut(env) {
                None => sent = Err(CuleError::EnvState { env, reason: "does not exist" }),
                Some(true) => {
                    let reason = "is still at work: call recv before the next send";
                    sent = Err(CuleError::EnvState { env, reason });
                }
                Some(busy) => {
                    *busy = true;
                    marked += 1;
                    continue;
                }
            }
            break;
        }
        let sent = sent.and_then(|()| self.check_ready(envs.iter().copied())).and_then(|()| {
            let players = self.shared.players();
            let tasks = envs
                .iter()
                .enumerate()
                .map(|(i, &env)| (env, Command::Step(player_actions(actions, players, i))));
            self.queue.as_mut().ok_or(SYNCHRONOUS)?.send(tasks)
        });
        if let Err(error) = sent {
            envs[..marked].iter().for_each(|&env| self.busy[env] = false);
            return Err(error);
        }
        self.ready_envs.clear();
        Ok(())
    }

    /// Queues a reset of every environment. Waits for the pending results and discards them first.
    ///
    /// # Errors
    /// `seeds` does not have one entry per environment, or the batch is synchronous.
    pub fn send_reset(&mut self, seeds: Option<&[Option<i64>]>) -> Result<(), CuleError> {
        let commands = self.resets(seeds, None)?;
        self.discard_results()?;
        let queue = self.queue.as_mut().ok_or(SYNCHRONOUS)?;
        queue.send(commands.into_iter().enumerate())?;
        self.busy.fill(true);
        self.ready_envs.clear();
        Ok(())
    }

    /// Waits for the results that have not been received, and discards them.
    pub(super) fn discard_results(&mut self) -> Result<(), CuleError> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        while queue.pending() > 0 {
            if let Some(old) = queue.receive(queue.pending(), Duration::from_secs(1))? {
                queue.recycle(old);
            }
        }
        self.busy.fill(false);
        Ok(())
    }

    /// Sets the environments that the next [`CpuBatch::send`] gives actions for.
    ///
    /// # Errors
    /// An environment does not exist or still has a task.
    pub fn set_ready_envs(&mut self, ready_envs: &[usize]) -> Result<(), CuleError> {
        if let Some(&env) = ready_envs.iter().find(|&&env| env >= self.busy.len()) {
            return Err(CuleError::EnvState { env, reason: "does not exist" });
        }
        self.check_idle(ready_envs)?;
        self.ready_envs = ready_envs.to_vec();
        Ok(())
    }

    /// Takes the next `batch_size` results. Returns false if they are not ready within `timeout`.
    ///
    /// # Errors
    /// Fewer than `batch_size` results are pending, a buffer has the wrong length, or an environment failed.
    /// In the last case the results of this batch are lost; its other environments can be sent actions again.
    pub fn receive(&mut self, timeout: Duration, out: &mut Outputs<'_>) -> Result<bool, CuleError> {
        let size = self.obs_bytes();
        check_length("observations", out.obs.len(), self.batch_size * size)?;
        if let Some(audio) = &out.audio {
            check_length("sound", audio.len(), self.batch_size * self.audio_bytes())?;
        }
        let queue = self.queue.as_mut().ok_or(SYNCHRONOUS)?;
        let Some(mut outcomes) = queue.receive(self.batch_size, timeout)? else { return Ok(false) };
        let mut failure = None;
        for (i, outcome) in outcomes.iter_mut().enumerate() {
            self.busy[outcome.id] = false;
            if let Some(error) = outcome.error.take() {
                failure.get_or_insert(error);
                continue;
            }
            self.ready_envs.push(outcome.id);
            out.reports[i] = outcome.report;
            out.obs[i * size..(i + 1) * size].copy_from_slice(&outcome.obs);
            // Buffers of results are used again, so that the other rows have older observations.
            if let Some(final_obs) = &mut out.final_obs
                && outcome.report.ended
            {
                final_obs[i * size..(i + 1) * size].copy_from_slice(&outcome.final_obs);
            }
            if let Some(ram) = &mut out.ram {
                ram[i * RAM_BYTES..(i + 1) * RAM_BYTES].copy_from_slice(&outcome.ram);
            }
            if let Some(audio) = &mut out.audio {
                let size = outcome.audio.len();
                audio[i * size..(i + 1) * size].copy_from_slice(&outcome.audio);
            }
        }
        queue.recycle(outcomes);
        failure.map_or(Ok(true), Err)
    }
}
