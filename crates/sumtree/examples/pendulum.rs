//! Simulates pendulums and writes their transitions into a replay that another process has made in shared memory.
//!
//! `pendulum NAME [--seed 0]` attaches to the replay NAME. It has the fields `obs` (3 float32: cosine and sine of
//! the angle, velocity), `action` (1 float32: torque, -2..2), `reward` (float32), `terminated` and `truncated`
//! (bool), and `autoreset = next_step`; the simulator has a pendulum for each of its environments.
//! `examples/in_situ.py` makes such a replay and learns from it while this program runs.
//!
//! Standard input has the policy: messages of little-endian numbers, each with the number of steps of all pendulums
//! that are to be made with it (u32), the standard deviation of the noise that is added to the torque, below 0 for
//! uniformly random torques (f32), and the parameters of three layers (f32): 3 to H, ReLU, H to H, ReLU, H to 1,
//! 2 tanh; of each the weights, row by row from input to output, and the biases. `--hidden H` (64) is the width. The
//! program ends when its input does.
//!
//! The pendulum is that of Gymnasium's `Pendulum-v1`: torque `u` and angle `a` from upright with
//! `a'' = 15 sin a + 3 u`, 20 steps a second, episodes of 200 steps.

use std::f32::consts::{PI, TAU};
use std::io::{ErrorKind, Read};
use std::process::ExitCode;

use sumtree::Rng;
use sumtree::replay::{Autoreset, Replay, Rows};

const USAGE: &str = "pendulum NAME [--seed 0] [--hidden 64]";
const STEP_S: f32 = 0.05;
const TORQUE_MAX: f32 = 2.0;
const VELOCITY_MAX: f32 = 8.0;
const EPISODE_STEPS: u32 = 200;
/// Name, type and bytes of each field of a row.
const FIELDS: [(&str, &str, usize); 5] = [
    ("obs", "<f4", 12),
    ("action", "<f4", 4),
    ("reward", "<f4", 4),
    ("terminated", "|b1", 1),
    ("truncated", "|b1", 1),
];

/// A number that is uniform in `low..high`.
fn uniform(rng: &mut Rng, low: f32, high: f32) -> f32 {
    low + (high - low) * rng.unit() as f32
}

/// A number of the standard normal distribution (Box and Muller, 1958).
fn normal(rng: &mut Rng) -> f32 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    (radius * (f64::from(TAU) * rng.unit()).cos()) as f32
}

/// A pendulum. Angles are from upright, in radians.
struct Pendulum {
    angle: f32,
    velocity: f32,
    /// Steps of the episode so far.
    steps: u32,
}

impl Pendulum {
    fn new(rng: &mut Rng) -> Self {
        Self { angle: uniform(rng, -PI, PI), velocity: uniform(rng, -1.0, 1.0), steps: 0 }
    }

    fn observation(&self) -> [f32; 3] {
        [self.angle.cos(), self.angle.sin(), self.velocity]
    }

    /// Makes a step with a torque; returns its reward.
    fn step(&mut self, torque: f32) -> f32 {
        let from_upright = (self.angle + PI).rem_euclid(TAU) - PI;
        let reward = -(from_upright.powi(2) + 0.1 * self.velocity.powi(2) + 0.001 * torque.powi(2));
        let velocity = self.velocity + (15.0 * self.angle.sin() + 3.0 * torque) * STEP_S;
        self.velocity = velocity.clamp(-VELOCITY_MAX, VELOCITY_MAX);
        self.angle += self.velocity * STEP_S;
        self.steps += 1;
        reward
    }
}

/// A layer: weights, row by row from input to output, and biases.
struct Layer {
    weights: Vec<f32>,
    biases: Vec<f32>,
}

impl Layer {
    fn apply(&self, inputs: &[f32]) -> Vec<f32> {
        let mut sums = self.biases.clone();
        for (input, row) in inputs.iter().zip(self.weights.chunks_exact(self.biases.len())) {
            sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += input * weight);
        }
        sums
    }
}

/// A message: a policy and the number of steps that are to be made with it.
struct Message {
    steps: u32,
    noise: f32,
    layers: [Layer; 3],
}

impl Message {
    /// Reads a message; `None` at the end of the input.
    fn read(input: &mut impl Read, hidden: usize) -> Result<Option<Self>, String> {
        let sizes = [(3, hidden), (hidden, hidden), (hidden, 1)];
        let numbers: usize = sizes.iter().map(|(inputs, outputs)| (inputs + 1) * outputs).sum();
        let mut bytes = vec![0; 4 * (2 + numbers)];
        match input.read_exact(&mut bytes[..1]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other.map_err(|error| error.to_string())?,
        }
        let size = bytes.len();
        input
            .read_exact(&mut bytes[1..])
            .map_err(|error| format!("a message of {size} bytes is not complete: {error}"))?;
        let mut words = bytes.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
        let steps = words.next().map_or(0, u32::from_le_bytes);
        let mut floats = words.map(f32::from_le_bytes);
        let noise = floats.next().unwrap_or(0.0);
        let layers = sizes.map(|(inputs, outputs)| Layer {
            weights: floats.by_ref().take(inputs * outputs).collect(),
            biases: floats.by_ref().take(outputs).collect(),
        });
        Ok(Some(Self { steps, noise, layers }))
    }

    fn torque(&self, observation: [f32; 3], rng: &mut Rng) -> f32 {
        if self.noise < 0.0 {
            return uniform(rng, -TORQUE_MAX, TORQUE_MAX);
        }
        let mut values = observation.to_vec();
        for (at, layer) in self.layers.iter().enumerate() {
            values = layer.apply(&values);
            if at < 2 {
                values.iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
        let torque = TORQUE_MAX * values[0].tanh() + self.noise * normal(rng);
        torque.clamp(-TORQUE_MAX, TORQUE_MAX)
    }
}

/// Checks that the replay has the fields of this simulator.
fn check(replay: &Replay) -> Result<(), String> {
    let settings = replay.settings();
    let found: Vec<_> =
        settings.fields.iter().map(|f| (f.name.as_str(), f.dtype.as_str(), f.row_bytes)).collect();
    if found != FIELDS {
        return Err(format!("the replay has the fields {found:?}, expected {FIELDS:?}"));
    }
    if settings.autoreset != Autoreset::NextStep {
        return Err(format!("the replay has autoreset = {}, expected next_step", settings.autoreset.name()));
    }
    Ok(())
}

/// Makes one step of all pendulums, and adds a row of each to the replay.
fn step(pendulums: &mut [Pendulum], message: &Message, replay: &Replay, rng: &mut Rng) -> Result<(), String> {
    let mut columns: [Vec<u8>; 5] = FIELDS.map(|(_, _, bytes)| Vec::with_capacity(bytes * pendulums.len()));
    for pendulum in &mut *pendulums {
        let observation = pendulum.observation();
        // The row after the last of an episode only holds the final observation.
        let resets = pendulum.steps == EPISODE_STEPS;
        let (torque, reward) = if resets {
            *pendulum = Pendulum::new(rng);
            (0.0, 0.0)
        } else {
            let torque = message.torque(observation, rng);
            (torque, pendulum.step(torque))
        };
        let [obs, action, rewards, terminated, truncated] = &mut columns;
        observation.iter().for_each(|value| obs.extend(value.to_le_bytes()));
        action.extend(torque.to_le_bytes());
        rewards.extend(reward.to_le_bytes());
        terminated.push(0);
        truncated.push(u8::from(pendulum.steps == EPISODE_STEPS));
    }
    let columns = columns.each_ref().map(Vec::as_slice);
    let rows = Rows { count: pendulums.len(), columns: &columns, envs: None, priorities: None, finals: None };
    replay.add(&rows, &mut vec![0; pendulums.len()]).map_err(|error| error.to_string())
}

fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let name = arguments.next().ok_or(USAGE)?;
    let (mut seed, mut hidden) = (0, 64);
    while let Some(option) = arguments.next() {
        let text = arguments.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"))?;
        let value: u32 = text.parse().map_err(|_| format!("{option}: {text:?} is not a number\n{USAGE}"))?;
        match option.as_str() {
            "--seed" => seed = value,
            "--hidden" if (1..=1024).contains(&value) => hidden = value as usize,
            "--hidden" => return Err(format!("--hidden {value} is outside 1..=1024")),
            _ => return Err(format!("unknown option {option}\n{USAGE}")),
        }
    }
    let replay = Replay::attach_shared(&name).map_err(|error| error.to_string())?;
    check(&replay)?;
    let mut rng = Rng::new(u64::from(seed));
    let mut pendulums: Vec<_> = (0..replay.settings().num_envs).map(|_| Pendulum::new(&mut rng)).collect();
    let mut input = std::io::stdin().lock();
    while let Some(message) = Message::read(&mut input, hidden)? {
        for _ in 0..message.steps {
            step(&mut pendulums, &message, &replay, &mut rng)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
