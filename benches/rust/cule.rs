//! Benchmarks of the console in one thread: microseconds per frame of each game, consoles of mixed games,
//! saved states.
//!
//! `frame/plain`, `frame/fast_cpu`: the machine alone, with the plain interpreter and with the fast CPU,
//! without pixels; `frame/drawn`: with pixels. `act/GAME`: a console with its rules, no frame read;
//! `act/mixed`: 128 consoles of eight games in alternation, so that the processor cannot predict the jumps;
//! `act/alone`: the same games one after the other. ROMs come from `ALE_ROMS_DIR` or the folder of an
//! installed ale-py; without ROMs a message is printed and nothing is timed. ale-py is compared in Python
//! (`benches/python/atari_console.py`).

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cule::console::Drawing;
use cule::{Console, Options, console, rom};
use parl_benches::{Frames, GAMES, Player, rom_folders};

/// Frames of one measurement.
const FRAMES: usize = 200;
const CONSOLES_PER_GAME: usize = 16;

/// Returns true if the ROMs were found; prints a message otherwise.
fn has_roms() -> bool {
    let missing = GAMES.iter().find_map(|game| rom::locate(game, rom_folders()).err());
    if let Some(error) = &missing {
        eprintln!("cule: NOTHING WAS TIMED, there are no ROMs: {error}");
    }
    missing.is_none()
}

fn frames(c: &mut Criterion) {
    if !has_roms() {
        return;
    }
    let mut group = c.benchmark_group("frame");
    group.throughput(Throughput::Elements(FRAMES as u64));
    for game in GAMES {
        let record = |plain| Frames::record(game, FRAMES, plain).expect("the ROM was found");
        let (mut plain, mut fast_cpu) = (record(true), record(false));
        plain.compare(&mut fast_cpu);
        group.bench_function(format!("plain/{game}"), |b| b.iter(|| black_box(plain.run(false))));
        group.bench_function(format!("fast_cpu/{game}"), |b| b.iter(|| black_box(fast_cpu.run(false))));
        group.bench_function(format!("drawn/{game}"), |b| b.iter(|| black_box(fast_cpu.run(true))));
    }
    group.finish();
}

fn acts(c: &mut Criterion) {
    if !has_roms() {
        return;
    }
    let player = |game, seed| Player::new(game, seed, Drawing::OnRequest).expect("the ROM was found");
    let mut group = c.benchmark_group("act");
    group.throughput(Throughput::Elements(1));
    for game in GAMES {
        let mut one = player(game, 0);
        group.bench_function(game, |b| b.iter(|| black_box(one.act())));
    }
    let mut players: Vec<Player> =
        (0..GAMES.len() * CONSOLES_PER_GAME).map(|i| player(GAMES[i % GAMES.len()], i as u64)).collect();
    group.throughput(Throughput::Elements(players.len() as u64));
    group.bench_function("mixed", |b| {
        b.iter(|| players.iter_mut().map(Player::act).sum::<i32>());
    });
    players.truncate(GAMES.len());
    group.bench_function("alone", |b| {
        b.iter(|| {
            let one = |player: &mut Player| (0..CONSOLES_PER_GAME).map(|_| player.act()).sum::<i32>();
            players.iter_mut().map(one).sum::<i32>()
        });
    });
    group.finish();
}

fn states(c: &mut Criterion) {
    if !has_roms() {
        return;
    }
    let mut group = c.benchmark_group("state");
    let mut console = Player::new("breakout", 0, Drawing::OnRequest).expect("the ROM was found").console;
    let state = console.save(true);
    group.bench_function("save", |b| b.iter(|| black_box(console.save(true))));
    group.bench_function("load", |b| b.iter(|| console.load(black_box(&state)).expect("its own state")));
    group.bench_function("clone", |b| b.iter(|| black_box(console.clone())));
    group.bench_function("reset", |b| b.iter(|| console.reset().expect("breakout has one mode to select")));
    let rom = rom::load("breakout", rom_folders(), false).expect("the ROM was found");
    let row = console::game_row("breakout").expect("a known game");
    let options = Options { drawing: Drawing::Predicted, ..Options::default() };
    group.bench_function("new", |b| b.iter(|| Console::new(&rom, row, options).expect("a known game")));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    targets = frames, acts, states
}
criterion_main!(benches);
