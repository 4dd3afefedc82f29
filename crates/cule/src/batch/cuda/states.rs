//! States of environments between the device and the host: saved, loaded, and drawn as pictures. Host only.

use bytemuck::Zeroable;

use super::super::pictures::Pictures;
use super::super::slot::{Slot, Workspace};
use super::super::{NOT_RESET, states};
use super::{Call, CudaBatch, Device};
use crate::CuleError;
use crate::env::state::{self, Head, StepOutput};
use crate::random::Random;

/// Bytes of state rows per transfer. The host and the device each allocate this many.
const TRANSFER_BYTES: usize = 64 << 20;

impl<D: Device> CudaBatch<D> {
    pub(super) fn row_bytes(&self) -> usize {
        let fixed = size_of::<Head>() + size_of::<Random>() + size_of::<StepOutput>();
        fixed + self.obs_bytes() + state::KEPT_PICTURES as usize * self.picture_bytes()
    }

    /// Bytes of a kept picture.
    fn picture_bytes(&self) -> usize {
        if self.plan.saved_count == 0 { 0 } else { self.rules[0].picture_bytes as usize }
    }

    pub(super) fn transfer(
        &self,
        envs: &[usize],
        rows: &mut [u8],
        writes: bool,
        stream: u64,
    ) -> Result<(), CuleError> {
        let numbers: Vec<u32> = envs.iter().map(|&env| env as u32).collect();
        let mut list = self.device.allocate(size_of_val(&numbers[..]))?;
        self.device.write(&mut list, bytemuck::cast_slice(&numbers), stream)?;
        let mut device_rows = self.device.allocate(rows.len())?;
        if writes {
            self.device.write(&mut device_rows, rows, stream)?;
        }
        let call = Call {
            envs: self.device.address(&list),
            rows: self.device.address(&device_rows),
            row_count: envs.len() as u32,
            row_bytes: self.row_bytes() as u32,
            writes: u32::from(writes),
            ..Call::default()
        };
        if writes {
            self.launch_per_byte("parl_saved_pictures", envs.len() as u64, &call, stream)?;
        }
        self.launch_per_byte("parl_states", rows.len() as u64, &call, stream)?;
        if writes {
            // Waits: the rows must not be freed before the kernel has read them.
            self.device.read(&list, &mut [0; 4], stream)
        } else {
            self.device.read(&device_rows, rows, stream)
        }
    }

    /// Number of state rows per transfer.
    pub(super) fn rows_at_once(&self) -> usize {
        (TRANSFER_BYTES / self.row_bytes()).max(1)
    }

    pub(super) fn slots(&self, envs: &[usize], stream: u64) -> Result<Vec<Slot>, CuleError> {
        let size = self.row_bytes();
        let mut slots = Vec::with_capacity(envs.len());
        for some in envs.chunks(self.rows_at_once()) {
            let mut rows = vec![0; size * some.len()];
            self.transfer(some, &mut rows, false, stream)?;
            slots.extend(some.iter().zip(rows.chunks_exact(size)).map(|(&env, row)| self.slot(env, row)));
        }
        Ok(slots)
    }

    /// The native pictures of environments: palette indices, number of rows, and whether the television is
    /// PAL. The host draws them from the states.
    ///
    /// # Errors
    /// A fault, see [`CudaBatch::check_faults`]; an environment has not been reset; or an error of the
    /// device.
    pub fn pictures(
        &mut self,
        envs: &[usize],
        stream: u64,
    ) -> Result<Vec<(Vec<u8>, usize, bool)>, CuleError> {
        self.check_faults(stream)?;
        let slots = self.slots(envs, stream)?;
        let longest = self.settings.with_longest_steps(self.games.len());
        let mut work = Workspace::new(&longest.of_envs(&self.games));
        let mut pictures = Vec::with_capacity(envs.len());
        for (slot, &env) in slots.iter().zip(envs) {
            if slot.head.ready == 0 {
                return Err(CuleError::EnvState { env, reason: NOT_RESET });
            }
            let game = &self.games[slot.game];
            let (pixels, pal) = slot.picture(&mut work, game, &self.rules[slot.game]);
            pictures.push((pixels, game.height(), pal));
        }
        Ok(pictures)
    }

    fn slot(&self, env: usize, row: &[u8]) -> Slot {
        let (head, row) = row.split_at(size_of::<Head>());
        let (random, row) = row.split_at(size_of::<Random>());
        let (output, row) = row.split_at(size_of::<StepOutput>());
        let (planes, kept) = row.split_at(self.obs_bytes());
        let output: StepOutput = bytemuck::pod_read_unaligned(output);
        let game = self.env_games[env];
        let picture = self.picture_bytes();
        let shown = self.games[game].height() * crate::machine::tia::WIDTH;
        let pictures: Vec<u8> = kept
            .chunks_exact(picture.max(1))
            .take(usize::from(output.kept))
            .flat_map(|picture| &picture[..shown])
            .copied()
            .collect();
        Slot {
            game,
            head: bytemuck::pod_read_unaligned(head),
            random: Box::new(bytemuck::pod_read_unaligned(random)),
            planes: planes.into(),
            pictures: (output.kept > 0).then(|| Box::new(Pictures::from_bytes(&pictures))),
            sound: None,
            second_reward: 0,
        }
    }

    pub(super) fn row(&self, slot: &Slot) -> Vec<u8> {
        let shown = self.games[slot.game].height() * crate::machine::tia::WIDTH;
        let picture = self.picture_bytes();
        let pictures = slot.pictures.as_ref().map_or(vec![], |pictures| pictures.bytes());
        let output = StepOutput { kept: (pictures.len() / shown) as u8, ..StepOutput::zeroed() };
        let mut row = vec![];
        for part in [
            bytemuck::bytes_of(&slot.head),
            bytemuck::bytes_of(&*slot.random),
            bytemuck::bytes_of(&output),
            &slot.planes,
        ] {
            row.extend_from_slice(part);
        }
        for one in pictures.chunks_exact(shown) {
            let end = row.len() + picture;
            row.extend_from_slice(one);
            row.resize(end, 0);
        }
        row.resize(self.row_bytes(), 0);
        row
    }

    /// Saves the states of `envs`, one row each, and returns them with the bytes of a row. Rows equal those
    /// of a CPU batch byte for byte.
    ///
    /// # Errors
    /// A fault, see [`CudaBatch::check_faults`]; or an error of the device.
    pub fn save(&mut self, envs: &[usize], stream: u64) -> Result<(Vec<u8>, usize), CuleError> {
        self.check_faults(stream)?;
        let slots = self.slots(envs, stream)?;
        let size = slots.iter().map(states::row_bytes).max().unwrap_or(0);
        let mut rows = vec![0; size * envs.len()];
        for (row, slot) in rows.chunks_exact_mut(size.max(1)).zip(&slots) {
            states::save(slot, &self.games[slot.game], row);
        }
        Ok((rows, size))
    }

    /// Loads row i of `rows`, saved by a CPU or CUDA batch, into environment `envs[i]`. All rows are checked
    /// before the first one is loaded.
    ///
    /// # Errors
    /// A fault, see [`CudaBatch::check_faults`]; the errors of [`crate::batch::CpuBatch::load`]; or an error of
    /// the device.
    pub fn load(&mut self, envs: &[usize], rows: &[u8], stream: u64) -> Result<(), CuleError> {
        self.check_faults(stream)?;
        if envs.is_empty() {
            return Ok(());
        }
        let size = rows.len() / envs.len();
        let mut slots = Vec::with_capacity(envs.len());
        for (row, &env) in rows.chunks_exact(size).zip(envs) {
            slots.push(self.parse_state(row, env)?);
        }
        let at_once = self.rows_at_once();
        for (some, slots) in envs.chunks(at_once).zip(slots.chunks(at_once)) {
            let mut device_rows = Vec::with_capacity(some.len() * self.row_bytes());
            slots.iter().for_each(|slot| device_rows.extend(self.row(slot)));
            self.transfer(some, &mut device_rows, true, stream)?;
        }
        self.check_faults(stream)
    }

    /// Loads one row, saved by a CPU or CUDA batch, into each environment of `envs`.
    ///
    /// # Errors
    /// As [`CudaBatch::load`].
    pub fn load_same(&mut self, envs: &[usize], row: &[u8], stream: u64) -> Result<(), CuleError> {
        self.check_faults(stream)?;
        let Some(&first) = envs.first() else { return Ok(()) };
        // The row belongs to one game, so checking it against one environment per game is enough.
        for game in 0..self.games.len() {
            if let Some(&env) = envs.iter().find(|&&env| self.env_games[env] == game) {
                self.parse_state(row, env)?;
            }
        }
        let device_rows = self.row(&self.parse_state(row, first)?);
        for some in envs.chunks(self.rows_at_once()) {
            self.transfer(some, &mut device_rows.repeat(some.len()), true, stream)?;
        }
        self.check_faults(stream)
    }

    fn parse_state(&self, row: &[u8], env: usize) -> Result<Slot, CuleError> {
        let index = self.env_games[env];
        let slot = states::load(row, index, &self.games[index], &self.rules[index])?;
        let machines = [&slot.head.state.machine, &slot.head.last_frames.start];
        if self.plan.cart_ram == 0 && machines.iter().any(|machine| machine.cart.ram != [0; 128]) {
            return Err(CuleError::State { reason: "it has cartridge RAM that its cartridge lacks".into() });
        }
        Ok(slot)
    }
}
