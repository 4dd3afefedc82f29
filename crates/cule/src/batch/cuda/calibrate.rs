//! Calibration: times the steps of a game with each form and window, and keeps the fastest choice on disk.
//! Host only.
//!
//! A result is valid for one ROM, device, driver and set of kernel sources. If one of them changes, the game
//! is measured again. A file that is damaged or has an unknown form or window is ignored.

use std::time::Instant;

use super::choice::{Choice, Form};
use super::{Actions, CudaBatch, Device, Targets};
use crate::CuleError;
use crate::batch::Autoreset;
use crate::env::state::{FLAGS, NUMBERS};

/// Number of steps and rounds of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Steps before the first measurement. They bring the environments to different points of their episodes.
    pub warmup_steps: u32,
    /// Steps of a measurement.
    pub steps: u32,
    /// Measurements per choice; the shortest one counts. Each round measures every choice once.
    pub rounds: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { warmup_steps: 300, steps: 4, rounds: 2 }
    }
}

/// Number of prepared action arrays. Steps use them in turn.
const ACTIONS: u32 = 16;

impl<D: Device> CudaBatch<D> {
    /// Measures the seconds per step with each of `choices`, under random actions. All games use the measured
    /// choice. This resets and steps the environments; the last choice stays in use afterwards.
    ///
    /// # Errors
    /// [`CuleError::Setting`] if there is nothing to measure, or an error of the device.
    pub fn measure(
        &mut self,
        choices: &[Choice],
        effort: Effort,
        stream: u64,
    ) -> Result<Vec<(Choice, f64)>, CuleError> {
        let autoreset = self.settings.autoreset;
        if autoreset == Autoreset::Disabled {
            // Environments whose episodes end in the measurement are not reset otherwise.
            self.settings.autoreset = Autoreset::NextStep;
        }
        let found = self.measure_steps(choices, effort, stream);
        self.settings.autoreset = autoreset;
        found
    }

    fn measure_steps(
        &mut self,
        choices: &[Choice],
        effort: Effort,
        stream: u64,
    ) -> Result<Vec<(Choice, f64)>, CuleError> {
        if choices.is_empty() || effort.steps == 0 || effort.rounds == 0 {
            let (name, bound) = ("calibration", "at least one choice, step and round");
            return Err(CuleError::Setting { name, value: format!("{choices:?}, {effort:?}"), bound });
        }
        let envs = self.num_envs();
        let count = self.actions().len() as u64;
        let mut draws: u64 = 0x5EED;
        let mut codes = Vec::with_capacity(envs * ACTIONS as usize);
        for _ in 0..envs * ACTIONS as usize {
            draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            codes.push(((draws >> 33) % count) as i32);
        }
        let mut actions = self.device.allocate(size_of_val(&codes[..]))?;
        self.device.write(&mut actions, bytemuck::cast_slice(&codes), stream)?;
        let seeds: Vec<i64> = (0..envs as i64).collect();
        let mut device_seeds = self.device.allocate(size_of_val(&seeds[..]))?;
        self.device.write(&mut device_seeds, bytemuck::cast_slice(&seeds), stream)?;
        let numbers = self.device.allocate(NUMBERS * 4 * envs)?;
        let flags = self.device.allocate(FLAGS * envs)?;
        let out = Targets {
            numbers: self.device.address(&numbers),
            flags: self.device.address(&flags),
            ..Targets::default()
        };
        self.reset(self.device.address(&device_seeds), 0, &out, stream)?;
        let first = self.device.address(&actions);
        let mut next = 0u32;
        let mut run = |batch: &mut Self, steps: u32| -> Result<f64, CuleError> {
            batch.check_faults(stream)?;
            let start = Instant::now();
            for _ in 0..steps {
                let at = first + u64::from(next % ACTIONS) * 4 * envs as u64;
                next += 1;
                batch.step(Actions::Narrow(at), &out, stream)?;
            }
            // Waits for the device.
            batch.check_faults(stream)?;
            Ok(start.elapsed().as_secs_f64() / f64::from(steps.max(1)))
        };
        run(self, effort.warmup_steps)?;
        let mut found: Vec<(Choice, f64)> = choices.iter().map(|&choice| (choice, f64::INFINITY)).collect();
        for _ in 0..effort.rounds {
            for (choice, best) in &mut found {
                self.choose(&vec![*choice; self.games.len()], stream)?;
                *best = run(self, effort.steps)?.min(*best);
            }
        }
        Ok(found)
    }
}

/// The fastest measured choice; the first one if several are equal. `None` if nothing was measured.
pub fn fastest(found: &[(Choice, f64)]) -> Option<Choice> {
    let best = found.iter().map(|(_, seconds)| *seconds).min_by(f64::total_cmp)?;
    found.iter().find(|(_, seconds)| *seconds == best).map(|(choice, _)| *choice)
}

/// Formats measurements as text, one line per choice, fastest first: form, window, nanoseconds per step.
pub fn to_text(found: &[(Choice, f64)]) -> String {
    let mut sorted = found.to_vec();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let line = |(choice, seconds): &(Choice, f64)| {
        format!("{} {} {:.0}\n", choice.form.name(), choice.window, seconds * 1e9)
    };
    sorted.iter().map(line).collect()
}

/// Parses the first line of [`to_text`]: the fastest choice. `None` if it is not one of [`Choice::all`].
pub fn from_text(text: &str) -> Option<Choice> {
    let mut words = text.lines().next()?.split(' ');
    let form = Form::from_name(words.next()?)?;
    let choice = Choice { form, window: words.next()?.parse().ok()? };
    words.next()?.parse::<u64>().ok()?;
    (words.next().is_none() && Choice::all().contains(&choice)).then_some(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_comes_first_and_comes_back() {
        let all = Choice::all();
        let found: Vec<(Choice, f64)> = all
            .iter()
            .enumerate()
            .map(|(i, &choice)| (choice, 1e-3 * (1.0 + ((i + 3) % 5) as f64)))
            .collect();
        assert_eq!(fastest(&found), Some(all[2]));
        let text = to_text(&found);
        assert_eq!(text.lines().count(), all.len());
        assert!(text.starts_with("grouped 4 1000000\ngrouped 9 2000000\n"), "{text}");
        assert_eq!(from_text(&text), Some(all[2]));
        assert_eq!(fastest(&[]), None);
    }

    #[test]
    fn what_cannot_be_chosen_is_none() {
        for text in [
            "",
            "\n",
            "grouped",
            "grouped 4",
            "grouped 3 10",
            "odd 4 10",
            "grouped 4 x",
            "grouped 4 1 2",
            "plain 4 10",
            "predicated 0 10",
        ] {
            assert_eq!(from_text(text), None, "{text:?}");
        }
        assert_eq!(from_text("plain 0 10"), Some(Choice { form: Form::Plain, window: 0 }));
    }
}
