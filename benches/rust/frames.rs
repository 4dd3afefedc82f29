//! Frames of games, for benchmarks and instruction counts.
//!
//! `frames serve [ACTS]` reads lines `GAME WHAT`, plays `ACTS` acts of each and prints microseconds of
//! processor time per act, so that a benchmark in another language can alternate with it. `frames count GAME
//! WHAT ACTS` plays them inside [`counted`], for callgrind. WHAT is `undrawn`, `drawn`, or `gray` (the screen
//! is read in gray after two of every four acts); `save` and `load` save and load states instead of acting;
//! `vector` steps eight environments instead, each four frames and an observation of 84 x 84, `vector:N` N of them.
//! `frames instructions GAME FRAMES` prints the number of 6507 instructions per frame, `frames decode GAME` how long the
//! decoding of its ROM takes, with and without compilation, and the bytes of machine code. ROMs come from
//! `ALE_ROMS_DIR` or the folder of an installed ale-py.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use cule::console::Drawing;
use cule::fast_cpu::{Code, Settings};
use cule::rom;
use parl_benches::{Frames, Player, Vector, rom_folders};

const USAGE: &str = "frames serve [ACTS] | count GAME undrawn|drawn|gray|save|load|vector[:N] [ACTS] | instructions GAME FRAMES | decode GAME";
const ACTS: usize = 500;
/// Environments of `vector`.
const ENVS: usize = 8;
/// Times that a ROM is decoded.
const DECODES: usize = 21;

/// What is done again and again with a game.
enum Workload {
    /// Acts of a console.
    Console(Box<Acts>),
    /// Steps of environments.
    Vector(Box<Vector>),
}

/// A game, and what is done with its frames or states.
struct Acts {
    player: Player,
    what: What,
    acts: usize,
}

enum What {
    Act,
    /// Act, and read the screen after two of every four acts.
    Gray(Vec<u8>),
    Save,
    Load(Vec<u8>),
}

impl Workload {
    fn new(game: &str, what: &str) -> Result<Self, String> {
        let Some(envs) = what.strip_prefix("vector") else {
            return Ok(Self::Console(Box::new(Acts::new(game, what)?)));
        };
        let envs = match envs.strip_prefix(':') {
            Some(number) => number.parse().ok().filter(|&envs| envs != 0).ok_or(USAGE)?,
            None if envs.is_empty() => ENVS,
            None => return Err(USAGE.to_owned()),
        };
        Ok(Self::Vector(Box::new(Vector::new(game, envs).map_err(|error| error.to_string())?)))
    }

    fn act(&mut self) {
        match self {
            Self::Console(acts) => acts.act(),
            Self::Vector(vector) => vector.step(),
        }
    }
}

impl Acts {
    fn new(game: &str, what: &str) -> Result<Self, String> {
        let drawing = match what {
            "undrawn" | "save" | "load" => Drawing::OnRequest,
            "drawn" => Drawing::EveryFrame,
            "gray" => Drawing::Predicted,
            _ => {
                return Err(format!(
                    "{what:?} is none of undrawn, drawn, gray, save, load, vector, vector:N\n{USAGE}"
                ));
            }
        };
        let mut player = Player::new(game, 0, drawing).map_err(|error| error.to_string())?;
        let what = match what {
            "gray" => What::Gray(vec![0; player.console.screen().len()]),
            "save" => What::Save,
            "load" => What::Load(player.console.save(true)),
            _ => What::Act,
        };
        Ok(Self { player, what, acts: 0 })
    }

    fn act(&mut self) {
        let console = &mut self.player.console;
        match &mut self.what {
            What::Save => drop(black_box(console.save(true))),
            What::Load(state) => console.load(black_box(state)).expect("its own state"),
            What::Act => _ = black_box(self.player.act()),
            What::Gray(gray) => {
                black_box(self.player.act());
                self.acts += 1;
                if self.acts % 4 >= 2 {
                    self.player.console.draw();
                    self.player.console.screen_gray(gray).expect("as long as the picture");
                }
            }
        }
    }
}

/// The function that is counted, together with all that it calls.
#[inline(never)]
fn counted(workload: &mut Workload, acts: usize) {
    for _ in 0..acts {
        workload.act();
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[allow(unsafe_code)] // One system call.
    // SAFETY: `now` is a timespec that the call fills.
    unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now);
    }
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn serve(acts: usize) -> Result<(), String> {
    let mut kept = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        if !kept.contains_key(&line) {
            let (game, what) = line.split_once(' ').ok_or(USAGE)?;
            kept.insert(line.clone(), Workload::new(game, what)?);
        }
        let workload = kept.get_mut(&line).ok_or("a workload just kept")?;
        // Warm up: what ran before has filled the caches with other data.
        counted(workload, acts / 10);
        let start = thread_time();
        counted(workload, acts);
        println!("{:.4}", (thread_time() - start).as_secs_f64() * 1e6 / acts as f64);
        std::io::stdout().flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text:?} is not a number\n{USAGE}"));
    match arguments.as_slice() {
        ["serve", rest @ ..] => serve(rest.first().map_or(Ok(ACTS), |text| number(text))?)?,
        ["count", game, what, rest @ ..] => {
            let acts = rest.first().map_or(Ok(ACTS), |text| number(text))?;
            counted(&mut Workload::new(game, what)?, acts);
        }
        ["instructions", game, count] => {
            let count = number(count)?.max(1);
            let mut frames = Frames::record(game, count, false).map_err(|error| error.to_string())?;
            println!("{:.1}", frames.instructions());
        }
        ["decode", game] => decode(game)?,
        _ => return Err(USAGE.to_owned()),
    }
    Ok(())
}

/// Prints the median time in which the ROM of a game is decoded, without and with compilation.
fn decode(game: &str) -> Result<(), String> {
    let rom = rom::load(game, rom_folders(), false).map_err(|error| error.to_string())?;
    let (image, kind) = (rom::image(&rom), rom.scheme as u8);
    for compiled in [false, true] {
        let settings = Settings { compiled, ..Settings::default() };
        let mut times: Vec<Duration> = (0..DECODES)
            .map(|_| {
                let start = thread_time();
                black_box(Code::with(&image, kind, settings));
                thread_time() - start
            })
            .collect();
        times.sort_unstable();
        let bytes = Code::with(&image, kind, settings).compiled_bytes();
        let median = times[DECODES / 2].as_secs_f64() * 1e3;
        println!("{} bytes, compiled {compiled}: {median:.2} ms, {bytes} bytes of machine code", image.len());
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}
