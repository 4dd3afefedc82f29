//! Where the results of a batch go: a row of each array per environment. Host only.

use super::Report;
use super::cpu::Command;
use crate::CuleError;

/// Bytes of a console's RAM.
pub(super) const RAM_BYTES: usize = 128;

/// Output buffers of a batch. Each has one row per environment.
pub struct Outputs<'a> {
    /// Observations.
    pub obs: &'a mut [u8],
    /// The last observation of each episode that ended in this step; other rows are not written.
    pub final_obs: Option<&'a mut [u8]>,
    /// Console RAM, 128 bytes per environment.
    pub ram: Option<&'a mut [u8]>,
    /// Sound of the last frames, `CpuBatch::audio_bytes` per environment.
    pub audio: Option<&'a mut [u8]>,
    /// Rewards, flags and figures.
    pub reports: &'a mut [Report],
}

/// The row of one environment in [`Outputs`], without its report.
pub(super) struct Row<'a> {
    pub obs: &'a mut [u8],
    pub final_obs: Option<&'a mut [u8]>,
    pub ram: Option<&'a mut [u8]>,
    pub audio: Option<&'a mut [u8]>,
}

/// What one environment is to do, and where its results go.
pub(super) struct Job<'a> {
    pub id: usize,
    pub command: Command,
    pub row: Row<'a>,
    pub report: &'a mut Report,
}

impl<'a> Outputs<'a> {
    /// Splits off the rows of the next `count` environments. `size` is the bytes of an observation and of a
    /// sound.
    pub(super) fn take(&mut self, count: usize, size: (usize, usize)) -> Outputs<'a> {
        Outputs {
            obs: front(&mut self.obs, count * size.0),
            final_obs: self.final_obs.as_mut().map(|rest| front(rest, count * size.0)),
            ram: self.ram.as_mut().map(|rest| front(rest, count * RAM_BYTES)),
            audio: self.audio.as_mut().map(|rest| front(rest, count * size.1)),
            reports: front(&mut self.reports, count),
        }
    }

    /// One job per row, the first of which is row `first` of the whole. `task` says for each row the number
    /// of its environment and what this is to do.
    pub(super) fn jobs<T: Fn(usize) -> (usize, Command)>(
        mut self,
        first: usize,
        size: (usize, usize),
        task: T,
    ) -> impl Iterator<Item = Job<'a>> + use<'a, T> {
        (first..first + self.reports.len()).filter_map(move |row| {
            let Outputs { obs, final_obs, ram, audio, reports } = self.take(1, size);
            let report = reports.first_mut()?;
            let (id, command) = task(row);
            Some(Job { id, command, row: Row { obs, final_obs, ram, audio }, report })
        })
    }
}

/// Splits off the first `length` elements.
pub(super) fn front<'a, T>(rest: &mut &'a mut [T], length: usize) -> &'a mut [T] {
    let (front, left) = std::mem::take(rest).split_at_mut(length);
    *rest = left;
    front
}

/// Checks the length of a buffer.
pub(super) fn check_length(what: &'static str, found: usize, expected: usize) -> Result<(), CuleError> {
    if found == expected { Ok(()) } else { Err(CuleError::BufferLength { what, expected, found }) }
}
