//! Environments whose states are rows of the caller give the results of `CpuBatch`.

#![allow(clippy::unwrap_used, reason = "a test fails if environments cannot be made or stepped")]

#[path = "support/roms.rs"]
mod roms;

use cule::batch::{
    Autoreset, BatchConfig, CpuBatch, Outputs, Report, RowBatch, RowInputs, RowOutputs, Settings,
};
use cule::env::full_strength;
use cule::env::rules::StepRules;
use cule::{console, rom};

const ENVS: usize = 3;
const SEEDS: [u32; ENVS] = [5, 6, 7];
/// Bytes of a row for kept pictures.
const PICTURE_BYTES: usize = 12 << 10;

/// Both kinds of environments with the same game and settings, and what they return.
struct Pair {
    model: CpuBatch,
    rows: RowBatch,
    states: Vec<u8>,
    obs: [Vec<u8>; 2],
    final_obs: [Vec<u8>; 2],
    reports: [Vec<Report>; 2],
}

impl Pair {
    /// `None` if there are no ROMs.
    fn new(game: &str, settings: &Settings) -> Option<Self> {
        if !roms::are_there(&rom::folders(&[])) {
            return None;
        }
        let games = [(rom::load(game, &[], false).unwrap(), console::game_row(game).unwrap())];
        let config = BatchConfig {
            games: &games,
            assignment: &[0; ENVS],
            threads: 2,
            affinity: None,
            batch_size: ENVS,
            ordered: true,
            wants_ram: false,
            entropy: 1,
        };
        let model = CpuBatch::new(&config, settings.clone()).unwrap();
        let rows = RowBatch::new(&config, settings.clone(), PICTURE_BYTES).unwrap();
        let images = || [(); 2].map(|()| vec![0; ENVS * rows.obs_bytes()]);
        Some(Self {
            states: vec![0; ENVS * rows.row_bytes()],
            obs: images(),
            final_obs: images(),
            reports: [(); 2].map(|()| vec![Report::default(); ENVS]),
            model,
            rows,
        })
    }

    fn reset(&mut self) {
        let [reports, others] = &mut self.reports;
        let [obs, other_obs] = &mut self.obs;
        let seeds = SEEDS.map(|seed| Some(i64::from(seed)));
        let out = Outputs { obs, final_obs: None, ram: None, audio: None, reports };
        self.model.reset(Some(&seeds), None, out).unwrap();
        let out = RowOutputs {
            rows: &mut self.states,
            obs: other_obs,
            final_obs: None,
            ram: None,
            reports: others,
        };
        self.rows.reset(&SEEDS, out).unwrap();
        self.compare("reset");
    }

    /// Steps both; the states are changed in place, or `apart` from those before. Returns whether an episode ended.
    fn step(&mut self, at: usize, apart: bool) -> bool {
        let codes = self.rows.actions();
        let actions: Vec<_> =
            (0..ENVS).map(|env| full_strength(codes[(at * 7 / 5 + env) % codes.len()].into())).collect();
        let [reports, others] = &mut self.reports;
        let [obs, other_obs] = &mut self.obs;
        let [final_obs, other_final_obs] = &mut self.final_obs;
        final_obs.fill(0);
        let out = Outputs { obs, final_obs: Some(final_obs), ram: None, audio: None, reports };
        self.model.step(&actions, out).unwrap();
        let (states, shown) = (self.states.clone(), other_obs.clone());
        let before = RowInputs { rows: apart.then_some(&states), obs: apart.then_some(&shown) };
        if apart {
            self.states.fill(0xEE);
            other_obs.fill(0xEE);
        }
        let out = RowOutputs {
            rows: &mut self.states,
            obs: other_obs,
            final_obs: Some(other_final_obs),
            ram: None,
            reports: others,
        };
        self.rows.step(&actions, before, out).unwrap();
        self.compare(&format!("step {at}"));
        self.reports[0].iter().any(|report| report.ended)
    }

    fn compare(&self, when: &str) {
        assert_eq!(self.reports[1], self.reports[0], "{when}");
        assert!(self.obs[1] == self.obs[0], "observations differ, {when}");
        assert!(self.final_obs[1] == self.final_obs[0], "last observations differ, {when}");
    }
}

fn settings(autoreset: Autoreset, repeat_probability: f64) -> Settings {
    let rules = StepRules { repeat_probability, frame_limit: 160, ..Settings::default().rules };
    Settings { rules, autoreset, ..Settings::default() }
}

#[test]
fn results_are_those_of_a_batch() {
    for (game, autoreset, sticky) in
        [("pong", Autoreset::NextStep, 0.0), ("breakout", Autoreset::SameStep, 0.25)]
    {
        let Some(mut pair) = Pair::new(game, &settings(autoreset, sticky)) else { return };
        pair.reset();
        let ended = (0..90).filter(|&at| pair.step(at, at % 3 == 0)).count();
        assert!(ended > 0, "no episode of {game} ended");
    }
}

#[test]
fn a_damaged_row_is_refused() {
    let Some(mut pair) = Pair::new("pong", &settings(Autoreset::NextStep, 0.0)) else { return };
    pair.reset();
    let row_bytes = pair.rows.row_bytes();
    pair.states[row_bytes] ^= 1;
    let states = pair.states.clone();
    let actions = [full_strength(0); ENVS];
    let out = RowOutputs {
        rows: &mut pair.states,
        obs: &mut pair.obs[1],
        final_obs: None,
        ram: None,
        reports: &mut pair.reports[1],
    };
    let error = pair.rows.step(&actions, RowInputs { rows: Some(&states), obs: None }, out).unwrap_err();
    assert!(error.to_string().contains("row 1"), "{error}");
}
