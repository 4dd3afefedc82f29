//! Compares the console in Rust with the generated C++, frame by frame: all bytes of the state, the
//! generator, the episode and the board must be equal. `lockstep.cpp` is the C++ side; it is compiled with
//! bounds checks.

#![allow(clippy::unwrap_used, reason = "a test fails if its program cannot be run")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use bytemuck::{Pod, Zeroable};
use cule::env::rules::{self, Episode, StepRules};
use cule::env::{self, Action, State};
use cule::machine::{self, Board, Plain, cart};
use cule::observe::{self, Blend, Cell, palette};
use cule::random::{self, Random};
use cule::{Console, Options, games, rom};

#[path = "support/compiled.rs"]
mod compiled;
#[path = "support/roms.rs"]
mod roms;

/// The compiled C++ side; one for all tests.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lockstep.cpp");
        compiled::compiled("lockstep", &source, &["-O1", "-DPARL_CHECKED"])
    })
}

/// The running C++ program.
struct Twin {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Twin {
    fn start() -> Self {
        let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, to, from }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.to.write_all(bytes).unwrap();
    }

    fn get(&mut self, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.from.read_exact(&mut read).expect("the twin has ended: its message is above");
        read
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        // The program ends with its input, but a test that failed may leave it waiting.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Rust side; `lockstep.cpp` has the same struct.
struct Lane {
    rom: Vec<u8>,
    state: State,
    random: Random,
    episode: Episode,
    rules: StepRules,
    board: Box<Board>,
    twin: Twin,
}

/// Result of a frame.
struct Seen {
    reward: i32,
    ended: bool,
}

fn hash(board: &Board) -> u64 {
    bytemuck::bytes_of(board).chunks_exact(8).fold(0, |h: u64, word| {
        (h.rotate_left(5) ^ u64::from_le_bytes(word.try_into().unwrap())).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

impl Lane {
    fn new(rom: Vec<u8>, rules: StepRules) -> Self {
        let mut twin = Twin::start();
        twin.put(b"R");
        twin.put(&(rom.len() as u32).to_le_bytes());
        twin.put(&rom);
        let (state, random, episode) = (Zeroable::zeroed(), random::seeded(0), Zeroable::zeroed());
        Self { rom, state, random, episode, rules, board: bytemuck::zeroed_box(), twin }
    }

    fn put_state(&mut self, state: &State, seed: u32) {
        self.state = *state;
        self.random = random::seeded(seed);
        *self.board = *bytemuck::zeroed_box::<Board>();
        self.episode = rules::begin_episode(&self.state);
        self.twin.put(b"S");
        self.twin.put(bytemuck::bytes_of(&self.state));
        self.twin.put(bytemuck::bytes_of(&self.random));
        self.twin.put(bytemuck::bytes_of(&self.rules));
    }

    fn power_on(&mut self, kind: u8, game: u32, seed: u32, what: &str) {
        self.twin.put(b"P");
        for number in [u32::from(kind), game, seed] {
            self.twin.put(&number.to_le_bytes());
        }
        self.twin.put(bytemuck::bytes_of(&self.rules));
        self.random = random::seeded(seed);
        let mut ram = [0; 128];
        for byte in &mut ram {
            *byte = random::draw(&mut self.random) as u8;
        }
        self.state = Zeroable::zeroed();
        self.state.machine = machine::new(kind, self.rom.len() as u32, &ram, env::layout(game, false));
        self.state.machine.input = env::first_inputs(game);
        self.state.rules = games::new(0);
        self.state.env = env::new(game);
        let timer = random::draw(&mut self.random);
        for i in 0..cart::reset_draws(&self.state.machine.cart) {
            let byte = random::draw(&mut self.random) as u8;
            cart::fill(&mut self.state.machine.cart, &mut self.board, i, byte);
        }
        machine::reset(&mut self.state.machine, &mut self.board, &self.rom, timer);
        games::evaluate::start_values(&mut self.state.rules, game as usize);
        self.episode = rules::begin_episode(&self.state);
        self.compare(0, &format!("{what}, power on"));
    }

    fn frame(&mut self, a: Action, b: Action, draw: bool, what: &str) -> Seen {
        self.twin.put(b"F");
        for action in [a, b] {
            self.twin.put(&action.code.to_le_bytes());
            self.twin.put(&action.step.to_le_bytes());
        }
        self.twin.put(&u32::from(draw).to_le_bytes());
        self.state.machine.draw = draw as u8;
        rules::begin_step(&mut self.episode);
        let mut runner = Plain { rom: &self.rom };
        let (state, random) = (&mut self.state, &mut self.random);
        let reward =
            env::act(&mut runner, state, random, &mut self.board, self.rules.repeat_probability, a, b);
        rules::count(&mut self.episode, &self.state, reward);
        let said = u32::from(rules::stops(&self.rules, &self.episode, &self.state))
            | u32::from(rules::terminated(&self.rules, &self.episode, &self.state)) << 1
            | u32::from(rules::truncated(&self.rules, &self.episode, &self.state)) << 2
            | ((rules::clipped(&self.rules, reward) + 1) as u32) << 3;
        rules::end_step(&self.rules, &mut self.episode, &self.state);
        self.compare(said, what);
        Seen { reward, ended: self.episode.ended != 0 }
    }

    fn compare(&mut self, said: u32, what: &str) {
        let pairs: [(&str, Vec<u8>); 5] = [
            ("state", bytemuck::bytes_of(&self.state).to_vec()),
            ("generator", bytemuck::bytes_of(&self.random).to_vec()),
            ("episode", bytemuck::bytes_of(&self.episode).to_vec()),
            ("verdicts", said.to_le_bytes().to_vec()),
            ("board", hash(&self.board).to_le_bytes().to_vec()),
        ];
        for (name, ours) in pairs {
            let theirs = self.twin.get(ours.len());
            if let Some(at) = (0..ours.len()).find(|&at| ours[at] != theirs[at]) {
                panic!("{what}: byte {at} of the {name} is {} in Rust and {} in C++", ours[at], theirs[at]);
            }
        }
    }

    /// Compares the arithmetic of observations on the current pictures.
    fn observe(&mut self, television: usize, weights: &[f32; 160], what: &str) {
        self.twin.put(b"O");
        self.twin.put(&(television as u32).to_le_bytes());
        self.twin.put(bytemuck::cast_slice(weights));
        let gray = &palette::GRAY[television];
        let mut pooled = [[0u8; 160]; 210];
        let row = |y: usize| 160 * y..160 * y + 160;
        for (y, out) in pooled.iter_mut().enumerate() {
            let [last, before] = &self.board.picture;
            observe::pooled_row(&last[row(y)], &before[row(y)], gray, out);
        }
        let mut ours: Vec<u8> = pooled.concat();
        let (mut even, mut odd, mut sums, mut pixels) = ([0; 104], [0; 104], [0; 96], [0; 96]);
        for d in 0..84 {
            let (first, share) = observe::rows_84(d);
            let [a, b, c] = [0, 1, 2].map(|i| &pooled[first + i]);
            observe::shrink_84(a, b, c, share, &mut even, &mut odd, &mut sums);
            let ties = observe::round_84(&sums, &mut pixels);
            ours.extend(pixels);
            ours.push(ties as u8);
        }
        let cells: Vec<Cell> = (0..100).map(|d| Cell { first: d, count: 1 + d % 5, at: d }).collect();
        let blends: Vec<Blend> = (0..100u32)
            .map(|d| Blend { from: [d, d + 1], weight: [20 * d as i32, 2048 - 20 * d as i32] })
            .collect();
        let (mut line, mut total, mut shown) = ([0f32; 100], [0f32; 100], [0u8; 100]);
        let (mut upper, mut lower) = ([0i32; 100], [0i32; 100]);
        for y in (0..209).step_by(7) {
            observe::area_row(&pooled[y], &cells, weights, &mut line);
            observe::add_row(&line, weights[y % 160], y % 3 == 0, &mut total);
            observe::round_row(&total, &mut shown);
            ours.extend(bytemuck::bytes_of(&line));
            ours.extend(bytemuck::bytes_of(&total));
            ours.extend(shown);
            observe::blend_row(&pooled[y], &blends, &mut upper);
            observe::blend_row(&pooled[y + 1], &blends, &mut lower);
            observe::blend_rows(&upper, &lower, blends[y % 100].weight, &mut shown);
            ours.extend(shown);
            ours.push(observe::block_average(upper[y % 100] as u32, weights[(y + 1) % 160]));
        }
        for w in weights.chunks_exact(5) {
            let action = rules::continuous_action(w[0], w[1], w[2], w[3], w[4]);
            ours.extend(action.code.to_le_bytes());
            ours.extend(action.step.to_le_bytes());
        }
        let theirs = self.twin.get(ours.len());
        let differs = (0..ours.len()).find(|&at| ours[at] != theirs[at]);
        assert_eq!(differs, None, "{what}: a byte of the observation differs");
    }
}

/// Random numbers for inputs and programs.
struct Draws(u64);

impl Draws {
    fn next(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(below)) as u32
    }

    /// Any action code, legal or not, with any movement of the paddle.
    fn action(&mut self) -> Action {
        let step = self.next(2 * env::PADDLE_STEP as u32) as i32 - env::PADDLE_STEP;
        Action { code: self.next(20), step: if self.next(3) == 0 { env::PADDLE_STEP } else { step } }
    }

    fn rules(&mut self) -> StepRules {
        StepRules {
            repeat_probability: f64::from(self.next(3)) / 4.0,
            frame_limit: 100 + self.next(400) as i32,
            step_limit: self.next(2) as i32 * 300,
            life: self.next(4),
            clip: self.next(3),
        }
    }
}

/// Random weights for averages, which keep sums positive and small.
fn weights(draws: &mut Draws) -> [f32; 160] {
    std::array::from_fn(|_| draws.next(1 << 20) as f32 / (1 << 22) as f32)
}

#[test]
fn games_of_every_cartridge() {
    const GAMES_PER_SCHEME: usize = 3;
    const FRAMES: usize = 600;
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    let mut of_scheme: HashMap<&str, usize> = HashMap::new();
    let mut rewards = 0;
    for (number, known) in rom::known().iter().enumerate() {
        let seen = of_scheme.entry(known.cartridge).or_default();
        *seen += 1;
        if *seen > GAMES_PER_SCHEME {
            continue;
        }
        let file = rom::load(known.name, &[], false).unwrap();
        let row = cule::console::game_row(known.name).unwrap();
        let start = Console::new(&file, row, Options::default()).unwrap();
        let mut draws = Draws(number as u64);
        let rules = draws.rules();
        let mut lane = Lane::new(rom::image(&file), rules);
        lane.put_state(start.state(), number as u32);
        let (mut a, mut b) = (draws.action(), draws.action());
        for frame in 0..FRAMES {
            let what = format!("{} frame {frame}", known.name);
            if frame % 12 == 0 {
                (a, b) = (draws.action(), draws.action());
            }
            let draw = draws.next(4) != 0;
            let seen = lane.frame(a, b, draw, &what);
            rewards += i32::from(seen.reward != 0);
            if frame % 50 == 49 {
                lane.observe(frame % 3, &weights(&mut draws), &what);
            }
            if seen.ended {
                lane.put_state(start.state(), frame as u32);
            }
        }
    }
    assert!(of_scheme.len() >= 9, "cartridges met: {of_scheme:?}");
    assert!(rewards > 10, "only {rewards} frames with a reward: the games do not run");
}

/// Schemes and the sizes of their ROM images.
const SCHEMES: [(u8, usize); 20] = [
    (cart::KIND_2K, 4096),
    (cart::KIND_4K, 4096),
    (cart::KIND_F8, 8192),
    (cart::KIND_F8SC, 8192),
    (cart::KIND_F6, 16384),
    (cart::KIND_F6SC, 16384),
    (cart::KIND_E0, 8192),
    (cart::KIND_FE, 8192),
    (cart::KIND_DPC, 10240),
    (cart::KIND_F4, 32768),
    (cart::KIND_F4SC, 32768),
    (cart::KIND_FA, 12288),
    (cart::KIND_E7, 16384),
    (cart::KIND_3F, 8192),
    (cart::KIND_3E, 8192),
    (cart::KIND_UA, 8192),
    (cart::KIND_CV, 4096),
    (cart::KIND_MB, 65536),
    (cart::KIND_0840, 8192),
    (cart::KIND_F8_LOW, 8192),
];

/// A program that never ends: it reads and writes the chips at random, accesses hotspots and makes frames.
/// Every block of 4 KiB has the same code, so that it does not matter which bank is selected.
fn program_text(draws: &mut Draws) -> Vec<u8> {
    let mut text: Vec<u8> = vec![0xA2, 0xFF, 0x9A];
    let mut put = |bytes: &[u8]| text.extend(bytes);
    for _ in 0..260 {
        let value = draws.next(256) as u8;
        let register = draws.next(0x2D) as u8;
        match draws.next(16) {
            // LDA #, STA TIA, in half of the cases. VSYNC and WSYNC are excluded here and used below.
            0..=6 => put(&[0xA9, value, 0x85, register.max(4)]),
            7 => put(&[0xA2, value, 0x86, 0x80 | value & 0x3F, 0xB5, 0x80]),
            8 => put(&[0xA5, register & 15, 0x05, 0x30 | register & 15, 0x95, 0x90]),
            9 => put(&[0x85, 0x02]),
            10 => put(&[0xA0, 1 + value % 20, 0x88, 0xD0, 0xFD]),
            11 => put(&[0xA9, value, 0x8D, 0x94 + draws.next(4) as u8, 0x02, 0xAD, 0x84, 0x02]),
            // An access to a hotspot or to cartridge RAM.
            12 => put(&[0xAD, 0xE0 + draws.next(27) as u8, 0x1F]),
            13 => put(&[0x8D, draws.next(256) as u8, 0x10, 0xAD, draws.next(256) as u8, 0x10]),
            14 => put(&[0x65, 0x80 | value, 0xE9, value, 0xF8 & !(value & 0x20), 0x0A, 0x66, 0xC0]),
            _ => put(&[0x48, 0x68, 0x24, 0x80 | value, 0x49, value, 0xE6, 0xD0 | value & 15]),
        }
    }
    // VSYNC on, three lines, off: a frame ends in every second loop.
    put(&[0xA5, 0xFE, 0x49, 0x02, 0x85, 0xFE, 0x85, 0x00, 0x85, 0x02, 0x85, 0x02, 0x85, 0x02]);
    put(&[0x4C, 0x00, 0xF4]);
    text
}

fn synthetic(draws: &mut Draws, bytes: usize, wild: bool) -> Vec<u8> {
    let mut image: Vec<u8> = (0..bytes).map(|_| draws.next(256) as u8).collect();
    if !wild {
        let text = program_text(draws);
        assert!(text.len() < 0xBE0, "{} bytes of program", text.len());
        for block in image.chunks_exact_mut(2048) {
            block.fill(0xEA);
        }
        for block in image.chunks_exact_mut(4096) {
            // From $F400 on, because cartridges have their RAM in the first KiB.
            block[0x400..0x400 + text.len()].copy_from_slice(&text);
        }
    }
    for block in image.chunks_exact_mut(1024) {
        block[0x3FA..0x400].copy_from_slice(&[0x00, 0xF4, 0x00, 0xF4, 0x00, 0xF4]);
    }
    image
}

#[test]
fn programs_on_every_cartridge() {
    let mut finished = 0;
    for (number, (kind, bytes)) in SCHEMES.into_iter().enumerate() {
        for round in 0..4 {
            let mut draws = Draws((100 * number + round) as u64 + 7);
            let wild = round == 3;
            let image = synthetic(&mut draws, bytes, wild);
            let mut lane = Lane::new(image, draws.rules());
            let game = draws.next(104);
            let what = format!("kind {kind}, round {round}");
            lane.power_on(kind, game, draws.next(1000), &what);
            for frame in 0..12 {
                let what = format!("{what}, frame {frame}");
                let (a, b, draw) = (draws.action(), draws.action(), draws.next(3) != 0);
                lane.frame(a, b, draw, &what);
                finished += u32::from(lane.state.machine.unfinished == 0);
            }
            lane.observe(round % 3, &weights(&mut draws), &what);
        }
    }
    assert!(finished > 200, "only {finished} frames ended by VSYNC");
}

#[test]
fn the_twin_notices_a_changed_byte() {
    let mut draws = Draws(1);
    let mut lane = Lane::new(synthetic(&mut draws, 4096, false), draws.rules());
    lane.power_on(cart::KIND_4K, 0, 1, "one byte");
    lane.state.machine.riot.ram[5] ^= 1;
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..3 {
            lane.frame(env::full_strength(0), env::full_strength(0), true, "changed");
        }
    }));
    let text = failed.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("changed: byte"), "{text}");
}

/// Types whose bytes are compared must have no padding. `Pod` guarantees this for the four.
const fn no_holes<T: Pod>() {}
const _: () = {
    no_holes::<State>();
    no_holes::<Random>();
    no_holes::<Episode>();
    no_holes::<StepRules>();
};
