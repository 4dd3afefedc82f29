//! Adding rows: reserve slots, write rows without a lock, publish them, link them, make them sampleable.
#![allow(unsafe_code)] // Writes into columns under a reservation.

use super::columns::Column;
use super::compress::{Blobs, Compression};
use super::settings::{Autoreset, Field};
use super::slots::{LARGEST, Reservation, Row};
use super::tails::{End, Step};
use super::{Replay, ReplayError, TreeWeights, counter};
use crate::SumTreeError;
use crate::memory::{reserve, vec_of_zeros, vec_with_capacity};
use crate::sync::Ordering;

/// Minimum capacity for the rows that become complete in one call, which include rows of earlier calls.
const COMPLETE_MIN: usize = 16;

/// Priorities, in the precision of the caller.
#[derive(Debug, Clone, Copy)]
pub enum Priorities<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
}

impl Priorities<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(p) => p.len(),
            Self::F64(p) => p.len(),
        }
    }
}

/// Final observations passed with the rows of [`Replay::add`], for environments that reset in the same step.
#[derive(Debug, Clone, Copy)]
pub struct Finals<'a> {
    /// One byte per row, nonzero if the row has a final observation.
    pub has_final: &'a [u8],
    /// One array of [`Rows::count`] rows per field of [`Replay::final_fields`], in that order.
    pub columns: &'a [&'a [u8]],
}

/// Rows to add: one array of bytes per field, in the order of the settings.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Number of rows.
    pub count: usize,
    /// Bytes of each field, `count` rows each.
    pub columns: &'a [&'a [u8]],
    /// Environment of each row; `None`: row i is from environment i.
    pub envs: Option<&'a [i64]>,
    /// Priority of each row; `None`: the largest so far.
    pub priorities: Option<Priorities<'a>>,
    /// Final observations of truncated rows, and with hindsight of terminated ones too, as far as they are given.
    pub finals: Option<Finals<'a>>,
}

impl Replay {
    /// Adds rows and writes a ticket for each to `tickets`. A row becomes sampleable when its window is complete.
    ///
    /// # Errors
    /// [`ReplayError::RowBytes`], [`ReplayError::Env`], [`ReplayError::Reward`], [`ReplayError::Discount`],
    /// [`ReplayError::FinalObservation`], [`ReplayError::Closed`]; [`ReplayError::Tree`] for a priority that
    /// is not finite, a wrong length, or memory that cannot be allocated. Nothing is added then, with one
    /// exception: more rows than half the capacity are added in parts, and if memory for the compressed rows
    /// of a part cannot be allocated, the parts before it stay added.
    pub fn add(&self, rows: &Rows<'_>, tickets: &mut [u64]) -> Result<(), ReplayError> {
        self.check_rows(rows, tickets)?;
        let (mut parked, mut largest): (Vec<u32>, u32) = (Vec::new(), 0);
        if let Some(priorities) = rows.priorities {
            parked = vec_of_zeros(rows.count)?;
            largest = self.weights_of(priorities, &mut parked)?;
        }
        let ends = self.ends(rows)?;
        let envs = self.envs(rows)?;
        // A reservation has at most `capacity` rows, and each row may have a final observation.
        let piece = (self.settings.capacity / 2).max(1);
        let piece_rows = rows.count.min(piece);
        let finals = if self.takes_finals() { piece_rows } else { 0 };
        // Allocated before anything is added.
        let mut finals = vec_with_capacity(finals)?;
        let mut complete = vec_with_capacity(piece_rows.max(COMPLETE_MIN))?;
        // Sorted environments are locked in the given order, without a copy.
        let is_sorted = envs.is_sorted_by(|a, b| a < b);
        let mut locked = vec_with_capacity(if is_sorted { 0 } else { envs.len().min(piece) })?;
        self.update_largest(largest);
        self.repair()?;
        for start in (0..rows.count).step_by(piece) {
            let end = (start + piece).min(rows.count);
            finals.clear();
            finals.extend((start..end).filter(|i| self.has_final(rows, *i, ends.get(*i))));
            let piece = Piece {
                rows,
                start,
                end,
                finals: &finals,
                parked: parked.get(start..end),
                ends: ends.get(start..end),
                envs: envs.get(start..end),
            };
            self.add_piece(
                &piece,
                ((!is_sorted).then_some(&mut locked), &mut complete),
                &mut tickets[start..end],
            )?;
        }
        Ok(())
    }

    /// Names of the observation fields for which a truncated row needs a final observation, unless
    /// environments reset in the next step ([`Autoreset::NextStep`]).
    #[must_use]
    pub fn final_fields(&self) -> Vec<&str> {
        self.roles.rebuilt.iter().map(|i| self.settings.fields[*i].name.as_str()).collect()
    }

    /// Ends the current episodes of `envs` without another row, for example after an environment was lost.
    /// The next row of each environment starts a new episode. Rows whose window is not complete never become
    /// sampleable.
    ///
    /// # Errors
    /// [`ReplayError::Env`], [`ReplayError::Closed`].
    pub fn cut(&self, envs: &[i64]) -> Result<(), ReplayError> {
        let mut envs = self.checked_envs(envs)?;
        envs.sort_unstable();
        envs.dedup();
        let operation = self.slots.enter()?;
        let locks = self.tails.lock(&envs, &self.slots.processes, operation.tag());
        let _operation = operation.begin_changes();
        self.mark_dirty();
        self.tails.cut(&locks);
        Ok(())
    }

    /// Returns true if rows do not depend on the rows before or after them.
    fn has_independent_rows(&self) -> bool {
        !self.roles.steps()
            || (self.window.rows == 1
                && self.window.autoreset != Autoreset::NextStep
                && self.settings.sequence.is_none()
                && self.settings.hindsight.is_none())
    }

    /// Returns true if final observations are passed with the last rows of episodes, not in the next row.
    fn takes_finals(&self) -> bool {
        self.window.needs_final && self.window.autoreset != Autoreset::NextStep
    }

    /// Returns true if row `position` of a call is stored with its final observation. After termination no
    /// value is bootstrapped, so only hindsight needs it, for the goal that the last step achieved.
    fn has_final(&self, rows: &Rows<'_>, position: usize, end: Option<&End>) -> bool {
        let is_given = || rows.finals.is_some_and(|finals| finals.has_final[position] != 0);
        match end {
            Some(End::Truncated) => self.takes_finals(),
            Some(End::Terminated) => self.takes_finals() && self.draws_from_next_rows() && is_given(),
            _ => false,
        }
    }

    /// Adds the rows of one piece. The two vectors are scratch memory.
    fn add_piece(
        &self,
        piece: &Piece<'_>,
        (unsorted, complete): (Option<&mut Vec<u32>>, &mut Vec<Row>),
        tickets: &mut [u64],
    ) -> Result<(), ReplayError> {
        let count = piece.end - piece.start;
        // Compressed before other threads can have to wait for this one.
        let packed = self.pack(piece)?;
        complete.clear();
        let mut locked = piece.envs.unwrap_or_default();
        if let Some(unsorted) = unsorted {
            unsorted.clear();
            unsorted.extend_from_slice(locked);
            unsorted.sort_unstable();
            unsorted.dedup();
            locked = unsorted;
        }
        let operation = self.slots.enter()?;
        let locks = self.tails.lock(locked, &self.slots.processes, operation.tag());
        // Waiting rows of earlier calls may become complete too.
        let most = count + locks.waiting();
        if most > complete.capacity() {
            reserve(complete, most)?;
        }
        let operation = operation.begin_changes();
        self.mark_dirty();
        let reservation = self.slots.reserve(operation, count + piece.finals.len());
        self.write(piece, packed, &reservation);
        let pin = reservation.pin();
        let tag = self.ticket_tag();
        // Final observations first, then the rows in order, so that links only lead to published rows.
        let mut finals = reservation.rows().skip(count);
        reservation.rows().skip(count).for_each(|row| reservation.publish(row, 0));
        for (i, row) in reservation.rows().take(count).enumerate() {
            tickets[i] = row.ticket() ^ tag;
            reservation.publish(row, piece.parked.map_or(LARGEST, |parked| parked[i]));
            match (piece.ends, piece.envs) {
                (Some(ends), Some(envs)) => {
                    let last = self.has_final(piece.rows, piece.start + i, Some(&ends[i]));
                    let last = last.then(|| finals.next()).flatten();
                    let step = Step { row, end: ends[i], last };
                    self.tails.append(&pin, envs[i], &self.window, step, |row| complete.push(row));
                }
                _ => complete.push(row),
            }
        }
        pin.make_ready(complete, self.counters[counter::LARGEST].load(Ordering::Relaxed) as u32);
        reservation.close_displaced_since_reserved(&pin);
        drop(pin);
        drop(reservation);
        self.count(counter::ADDED, (count + piece.finals.len()) as u64);
        Ok(())
    }

    /// Compresses the rows of the compressed columns, followed by their final observations.
    fn pack(&self, piece: &Piece<'_>) -> Result<Vec<Option<Blobs>>, ReplayError> {
        if self.settings.compression == Compression::None {
            return Ok(Vec::new());
        }
        let one = |(i, column): (usize, &Column)| {
            let Some(packed) = &column.packed else { return Ok(None) };
            let row = |i: usize| i * column.row_bytes..(i + 1) * column.row_bytes;
            let rows = (piece.start..piece.end).map(|k| &piece.rows.columns[i][row(k)]);
            let rebuilt = self.roles.rebuilt.iter().position(|field| *field == i);
            let finals = rebuilt.zip(piece.rows.finals).map(|(at, finals)| finals.columns[at]);
            let last = finals.into_iter().flat_map(|bytes| piece.finals.iter().map(move |k| &bytes[row(*k)]));
            // Fields without a final observation leave the slots of final observations unchanged.
            packed.pack(piece.end - piece.start + piece.finals.len(), rows.chain(last)).map(Some)
        };
        self.columns.iter().enumerate().map(one).collect()
    }

    fn write(
        &self,
        piece: &Piece<'_>,
        packed: Vec<Option<Blobs>>,
        reservation: &Reservation<'_, TreeWeights>,
    ) {
        let count = piece.end - piece.start;
        let first = reservation.row(0).slot;
        for (column, blobs) in self.columns.iter().zip(packed) {
            if let (Some(to), Some(blobs)) = (&column.packed, blobs) {
                let slots = reservation.rows().map(|row| row.slot);
                // SAFETY: these slots are reserved and not yet published.
                unsafe { to.write(slots, blobs) };
            }
        }
        // The run may wrap around the end of the ring.
        let before_end = count.min(self.layout.ring.slots - first);
        let plain = |column: &Column| column.packed.is_none();
        for (column, bytes) in self.columns.iter().zip(piece.rows.columns).filter(|(c, _)| plain(c)) {
            let bytes = &bytes[piece.start * column.row_bytes..piece.end * column.row_bytes];
            let (head, rest) = bytes.split_at(before_end * column.row_bytes);
            // SAFETY: slots `first..first + count`, modulo the ring, are reserved and not yet published.
            unsafe {
                column.write(first, head);
                column.write(0, rest);
            }
        }
        let Some(finals) = piece.rows.finals else { return };
        for (field, bytes) in self.roles.rebuilt.iter().zip(finals.columns) {
            let column = &self.columns[*field];
            for (k, i) in piece.finals.iter().enumerate().filter(|_| plain(column)) {
                let row = &bytes[i * column.row_bytes..(i + 1) * column.row_bytes];
                // SAFETY: the slots after those of the rows are reserved for final observations, not yet published.
                unsafe { column.write(reservation.row(count + k).slot, row) };
            }
        }
    }

    fn check_rows(&self, rows: &Rows<'_>, tickets: &[u64]) -> Result<(), ReplayError> {
        let length = |what, got, expected| {
            if got == expected { Ok(()) } else { Err(SumTreeError::Length { what, got, expected }) }
        };
        length("columns", rows.columns.len(), self.columns.len())?;
        length("tickets", tickets.len(), rows.count)?;
        if let Some(priorities) = rows.priorities {
            length("priorities", priorities.len(), rows.count)?;
        }
        for (field, bytes) in self.settings.fields.iter().zip(rows.columns) {
            self.check_bytes(&field.name, field.row_bytes, rows.count, bytes)?;
        }
        self.check_rewards(rows)?;
        self.check_discounts(rows)?;
        if let Some(finals) = rows.finals {
            length("final observation mask", finals.has_final.len(), rows.count)?;
            length("final observations", finals.columns.len(), self.roles.rebuilt.len())?;
            for (field, bytes) in self.roles.rebuilt.iter().zip(finals.columns) {
                let field = &self.settings.fields[*field];
                self.check_bytes(&field.name, field.row_bytes, rows.count, bytes)?;
            }
        }
        Ok(())
    }

    fn check_rewards(&self, rows: &Rows<'_>) -> Result<(), ReplayError> {
        let Some(field) = self.roles.reward else { return Ok(()) };
        match reals(&self.settings.fields[field], rows.columns[field]).find(|(_, reward)| !reward.is_finite())
        {
            Some((position, reward)) => Err(ReplayError::Reward { reward, position }),
            None => Ok(()),
        }
    }

    fn check_discounts(&self, rows: &Rows<'_>) -> Result<(), ReplayError> {
        let Some(field) = self.roles.discount else { return Ok(()) };
        let mut discounts = reals(&self.settings.fields[field], rows.columns[field]);
        match discounts.find(|(_, discount)| !(0.0..=1.0).contains(discount)) {
            Some((position, discount)) => Err(ReplayError::Discount { discount, position }),
            None => Ok(()),
        }
    }

    fn check_bytes(
        &self,
        name: &str,
        row_bytes: usize,
        rows: usize,
        bytes: &[u8],
    ) -> Result<(), ReplayError> {
        self.check_row_bytes(name, row_bytes, rows, bytes.len())
    }

    pub(super) fn check_row_bytes(
        &self,
        name: &str,
        row_bytes: usize,
        rows: usize,
        got: usize,
    ) -> Result<(), ReplayError> {
        let expected = rows.saturating_mul(row_bytes);
        if got == expected {
            return Ok(());
        }
        Err(ReplayError::RowBytes { name: name.to_owned(), got, expected, rows })
    }

    /// How the episode ended with each row, if it did. Empty if rows are independent.
    fn ends(&self, rows: &Rows<'_>) -> Result<Vec<End>, ReplayError> {
        let (false, Some(terminated)) = (self.has_independent_rows(), self.roles.terminated) else {
            return Ok(Vec::new());
        };
        let truncated = self.roles.truncated.map(|field| rows.columns[field]);
        let mut ends = vec_with_capacity(rows.count)?;
        ends.extend((0..rows.count).map(|i| {
            match (rows.columns[terminated][i] != 0, truncated.is_some_and(|t| t[i] != 0)) {
                (true, _) => End::Terminated,
                (_, true) => End::Truncated,
                _ => End::None,
            }
        }));
        for (position, end) in ends.iter().enumerate() {
            let is_missing = rows.finals.is_none_or(|finals| finals.has_final[position] == 0);
            if *end == End::Truncated && self.takes_finals() && is_missing {
                let env = rows.envs.map_or(position, |envs| envs[position] as usize);
                let autoreset = self.settings.autoreset.name();
                return Err(ReplayError::FinalObservation { position, env, autoreset });
            }
        }
        Ok(ends)
    }

    /// Environment of each row. Empty if rows are independent.
    fn envs(&self, rows: &Rows<'_>) -> Result<Vec<u32>, ReplayError> {
        if let Some(envs) = rows.envs {
            if envs.len() != rows.count {
                let (got, expected) = (envs.len(), rows.count);
                return Err(SumTreeError::Length { what: "env_id", got, expected }.into());
            }
            let envs = self.checked_envs(envs)?;
            return Ok(if self.has_independent_rows() { Vec::new() } else { envs });
        }
        if self.has_independent_rows() {
            return Ok(Vec::new());
        }
        if rows.count > self.settings.num_envs {
            let (env, num_envs) = (self.settings.num_envs as i64, self.settings.num_envs);
            return Err(ReplayError::Env { env, position: num_envs, num_envs });
        }
        let mut envs = vec_with_capacity(rows.count)?;
        envs.extend(0..rows.count as u32);
        Ok(envs)
    }

    fn checked_envs(&self, envs: &[i64]) -> Result<Vec<u32>, ReplayError> {
        let num_envs = self.settings.num_envs;
        let bad = |env: &i64| !(0..num_envs as i64).contains(env);
        if let Some(position) = envs.iter().position(bad) {
            return Err(ReplayError::Env { env: envs[position], position, num_envs });
        }
        let mut checked = vec_with_capacity(envs.len())?;
        checked.extend(envs.iter().map(|env| *env as u32));
        Ok(checked)
    }

    /// Converts priorities to weights, `(|priority| + epsilon) ** alpha` in units of the scale, and returns
    /// the largest weight. Priorities that are too large for a weight are counted.
    pub(super) fn weights_of(
        &self,
        priorities: Priorities<'_>,
        weights: &mut [u32],
    ) -> Result<u32, ReplayError> {
        if priorities.len() != weights.len() {
            let (got, expected) = (priorities.len(), weights.len());
            return Err(SumTreeError::Length { what: "priorities", got, expected }.into());
        }
        let (alpha, epsilon) = (self.settings.alpha as f32, self.settings.epsilon as f32);
        let max = self.scale.max_weight() as f32;
        let units = self.scale.units() as f32;
        let (mut largest, mut saturated) = (0, 0u64);
        let mut convert = |position: usize, priority: f64| {
            if !priority.is_finite() {
                return Err(SumTreeError::Priority { priority, position });
            }
            let base = priority.abs() as f32 + epsilon;
            // A positive priority never becomes 0, not even one that is too small for `f32`.
            let least = u32::from(priority != 0.0 || epsilon > 0.0);
            // The power takes most of the time here, and is not needed for alpha 0 and 1.
            let scaled = match alpha {
                0.0 => units,
                1.0 => base * units,
                _ => base.powf(alpha) * units,
            };
            saturated += u64::from(scaled > max);
            // Rounds half up. `as` saturates, so the result is clamped again.
            let weight = ((scaled.min(max) + 0.5) as u32).clamp(least, self.scale.max_weight());
            largest = largest.max(weight);
            Ok(weight)
        };
        match priorities {
            Priorities::F32(p) => {
                for (i, (weight, p)) in weights.iter_mut().zip(p).enumerate() {
                    *weight = convert(i, f64::from(*p))?;
                }
            }
            Priorities::F64(p) => {
                for (i, (weight, p)) in weights.iter_mut().zip(p).enumerate() {
                    *weight = convert(i, *p)?;
                }
            }
        }
        self.count(counter::SATURATED, saturated);
        Ok(largest)
    }
}

/// A part of the rows of one call, small enough for one reservation.
struct Piece<'a> {
    rows: &'a Rows<'a>,
    start: usize,
    end: usize,
    /// Indices of the rows with a final observation, counted in the whole call.
    finals: &'a [usize],
    parked: Option<&'a [u32]>,
    ends: Option<&'a [End]>,
    envs: Option<&'a [u32]>,
}

/// The values of a float32 or float64 field, each with the index of its row. Empty for fields of other types.
fn reals<'a>(field: &Field, bytes: &'a [u8]) -> impl Iterator<Item = (usize, f64)> + use<'a> {
    let width = match field.dtype.as_str() {
        "<f4" => 4,
        "<f8" => 8,
        _ => 0,
    };
    let per_row = field.row_bytes.checked_div(width).map_or(1, |count| count.max(1));
    let bytes = if width == 0 { &[] } else { bytes };
    bytes.chunks_exact(width.max(1)).enumerate().map(move |(i, number)| {
        let number = match *number {
            [a, b, c, d] => f64::from(f32::from_ne_bytes([a, b, c, d])),
            _ => f64::from_ne_bytes(number.try_into().unwrap_or_default()),
        };
        (i / per_row, number)
    })
}
