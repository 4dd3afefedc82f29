//! The PTX of the GPU's interpreter, run by a small interpreter of its own and compared with the Rust interpreter:
//! every opcode, random states, random programs. No GPU needed.

#![allow(clippy::unwrap_used, reason = "a test stops where its files cannot be read")]

use std::collections::HashMap;

use cule::machine::{self, Board, Machine, Plain, bus, cart, cpu, records};
use cule::{Console, Options, env, rom};
use xtask::ptx::{Block, Form, INPUTS, RESULTS, SLACK, STATE, block};

#[path = "../../crates/cule/tests/support/roms.rs"]
mod roms;

// ---------------------------------------------------------------- a machine for the PTX that the generator uses

#[derive(Clone, Debug)]
enum Argument {
    Register(usize),
    Number(u64),
    Label(usize),
    /// Memory at the address in a register.
    At(usize),
    Pair(usize, usize),
}

#[derive(Debug)]
struct Instruction {
    guarded: bool,
    name: String,
    arguments: Vec<Argument>,
}

struct Program {
    instructions: Vec<Instruction>,
    registers: HashMap<String, usize>,
    table: Vec<usize>,
}

impl Program {
    fn new(block: &Block) -> Self {
        // Places of labels, in instructions.
        let mut labels: HashMap<&str, usize> = HashMap::new();
        let mut texts: Vec<&str> = Vec::new();
        let mut table_text: &str = "";
        for line in &block.lines {
            if let Some(targets) = line.strip_prefix("TBL: .branchtargets ") {
                table_text = targets;
            } else if let Some(label) = line.strip_suffix(':') {
                assert!(labels.insert(label, texts.len()).is_none(), "label {label} twice");
            } else {
                texts.push(line);
            }
        }
        let table = table_text.split(',').map(|label| labels[label]).collect();
        let mut program = Self { instructions: Vec::new(), registers: HashMap::new(), table };
        for text in texts {
            let (guarded, text) = text.strip_prefix("@p ").map_or((false, text), |rest| (true, rest));
            let (name, rest) = text.split_once(' ').expect("an instruction has arguments");
            let rest = match rest.strip_prefix('{') {
                Some(rest) => rest.replacen(',', "+", 1).replacen('}', "", 1),
                None => rest.to_string(),
            };
            let arguments = rest.split(',').map(|argument| program.argument(argument, &labels)).collect();
            program.instructions.push(Instruction { guarded, name: name.into(), arguments });
        }
        program
    }

    fn register(&mut self, name: &str) -> usize {
        let next = self.registers.len();
        *self.registers.entry(name.into()).or_insert(next)
    }

    fn argument(&mut self, text: &str, labels: &HashMap<&str, usize>) -> Argument {
        if let Some(hexadecimal) = text.strip_prefix("0x") {
            return Argument::Number(u64::from_str_radix(hexadecimal, 16).expect("a number"));
        }
        if let Ok(number) = text.parse() {
            return Argument::Number(number);
        }
        if let Some(place) = labels.get(text) {
            return Argument::Label(*place);
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            return Argument::At(self.register(inner));
        }
        match text.split_once('+') {
            Some((low, high)) => Argument::Pair(self.register(low), self.register(high)),
            None => Argument::Register(self.register(text)),
        }
    }

    /// Runs the block; `values` are all registers.
    fn run(&self, values: &mut [u64], shared: &mut [u8], rom: &[u8], records: &[u64]) {
        let predicate = self.registers["p"];
        let mut at = 0;
        let mut steps = 0u32;
        while at < self.instructions.len() {
            steps += 1;
            assert!(steps < 10_000_000, "the block does not end");
            let instruction = &self.instructions[at];
            at += 1;
            if instruction.guarded && values[predicate] == 0 {
                continue;
            }
            let value = |values: &[u64], i: usize| match instruction.arguments[i] {
                Argument::Register(register) => values[register],
                Argument::Number(number) => number,
                ref other => panic!("{other:?} has no value"),
            };
            let address = |values: &[u64], i: usize| match instruction.arguments[i] {
                Argument::At(register) => values[register] as usize,
                ref other => panic!("{other:?} is no address"),
            };
            let target = match instruction.arguments[0] {
                Argument::Register(register) => register,
                _ => 0,
            };
            let a = |values: &[u64]| value(values, 1) as u32;
            let b = |values: &[u64]| value(values, 2) as u32;
            let result: u64 = match instruction.name.as_str() {
                "bra" => {
                    let Argument::Label(place) = instruction.arguments[0] else {
                        panic!("a branch has a label")
                    };
                    at = place;
                    continue;
                }
                "brx.idx" => {
                    at = self.table[value(values, 0) as usize];
                    continue;
                }
                "ld.shared.u8" => u64::from(shared[address(values, 1)]),
                "st.shared.u8" => {
                    shared[address(values, 0)] = value(values, 1) as u8;
                    continue;
                }
                "ld.global.nc.u8" => u64::from(rom[address(values, 1)]),
                "ld.global.nc.v2.u32" => {
                    let Argument::Pair(low, high) = instruction.arguments[0] else { panic!("two registers") };
                    let place = address(values, 1);
                    assert_eq!(place % 8, 0);
                    values[low] = records[place / 8] & 0xFFFF_FFFF;
                    values[high] = records[place / 8] >> 32;
                    continue;
                }
                "mov.u32" => u64::from(a(values)),
                "add.u32" => u64::from(a(values).wrapping_add(b(values))),
                "sub.u32" => u64::from(a(values).wrapping_sub(b(values))),
                "and.b32" => u64::from(a(values) & b(values)),
                "or.b32" => u64::from(a(values) | b(values)),
                "xor.b32" => u64::from(a(values) ^ b(values)),
                // PTX clamps the count.
                "shl.b32" => u64::from(a(values).checked_shl(b(values)).unwrap_or(0)),
                "shr.u32" => u64::from(a(values).checked_shr(b(values)).unwrap_or(0)),
                "shr.u64" => value(values, 1).checked_shr(b(values)).unwrap_or(0),
                "bfe.u32" => {
                    let bits = value(values, 3) as u32;
                    u64::from(a(values) >> b(values) & ((1 << bits) - 1))
                }
                "add.u64" => value(values, 1).wrapping_add(value(values, 2)),
                "mul.wide.u32" => u64::from(a(values)) * u64::from(b(values)),
                "cvt.u64.u32" => u64::from(a(values)),
                "cvt.u32.u64" => value(values, 1) & 0xFFFF_FFFF,
                "selp.u32" | "selp.b64" => value(values, if value(values, 3) != 0 { 1 } else { 2 }),
                "setp.eq.u32" => u64::from(a(values) == b(values)),
                "setp.ne.u32" => u64::from(a(values) != b(values)),
                "setp.lt.u32" => u64::from(a(values) < b(values)),
                "setp.ge.u32" => u64::from(a(values) >= b(values)),
                other => panic!("PTX instruction {other}"),
            };
            values[target] = result;
        }
    }
}

// ---------------------------------------------------------------- one console on both

/// A console's place in shared memory.
const ROW: usize = 476;

struct Lane {
    program: Program,
    rom: Vec<u8>,
    records: Vec<u64>,
}

/// What one entry into the block did.
struct Done {
    instructions: u32,
    code: u64,
}

impl Lane {
    fn new(program: Program, rom: Vec<u8>, m: &Machine) -> Self {
        let mut lane = Self { program, rom, records: Vec::new() };
        lane.decode(m);
        lane
    }

    fn decode(&mut self, m: &Machine) {
        let high = u32::from(m.cart.plain_high);
        self.records = (0..self.rom.len()).map(|at| records::record(&self.rom, at, high)).collect();
    }

    /// Enters the block as a kernel would, and ends a store that it left open.
    fn enter(&self, m: &mut Machine, board: &mut Board, left: u32) -> Done {
        let mut values = vec![0u64; self.program.registers.len()];
        let place = |name: &str| self.program.registers[name];
        let c = &m.cpu;
        let state = [
            u64::from(c.a),
            c.x.into(),
            c.y.into(),
            c.s.into(),
            c.carry.into(),
            c.overflow.into(),
            c.decimal.into(),
            c.result.into(),
            c.cycles.into(),
            left.into(),
            c.pc.into(),
        ];
        for (name, value) in STATE.iter().zip(state) {
            values[place(name)] = value;
        }
        let blocks =
            |from: usize| (0..4).fold(0, |all, i| all | u64::from(m.cart.segment[from + i]) << (16 * i));
        let (low, high) = (u64::from(m.cart.plain_low), u64::from(m.cart.plain_high));
        let inputs = [ROW as u64, 0, 0, blocks(0), blocks(4), low, high.saturating_sub(low)];
        for (name, value) in INPUTS.iter().zip(inputs) {
            values[place(name)] = value;
        }
        // The neighbours' rows must stay as they are.
        let mut shared = [0xEE; 3 * ROW];
        let at = |i: usize| ROW + i;
        for i in 0..128 {
            shared[at(i)] = m.riot.ram[i];
        }
        self.program.run(&mut values, &mut shared, &self.rom, &self.records);
        for i in 0..128 {
            m.riot.ram[i] = std::mem::replace(&mut shared[at(i)], 0xEE);
        }
        assert!(shared.iter().all(|&byte| byte == 0xEE), "another lane's RAM was written");
        let get = |name: &str| u32::try_from(values[place(name)]).expect("32 bits");
        let byte = |name: &str| u8::try_from(get(name)).expect("a register of 8 bits");
        let c = &mut m.cpu;
        (c.a, c.x, c.y, c.s) = (byte("a"), byte("x"), byte("y"), byte("s"));
        (c.carry, c.overflow, c.decimal) = (byte("c"), byte("v"), byte("d"));
        (c.result, c.cycles) = (get("n"), get("cyc"));
        c.pc = u16::try_from(get("pc")).expect("16 bits");
        let code = values[place(RESULTS[0])];
        if code == 2 {
            let mut copy = m.cpu;
            bus::write(m, &mut copy, board, get("q"), get("o"), false);
            m.cpu = copy;
        }
        Done { instructions: left - get("left"), code }
    }
}

struct Draws(u64);

impl Draws {
    fn next(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(below)) as u32
    }

    fn byte(&mut self) -> u8 {
        self.next(256) as u8
    }
}

fn console(kind: u8, rom: &[u8], board: &mut Board) -> Machine {
    let mut m = machine::new(kind, rom.len() as u32, &[0; 128], env::layout(0, false));
    machine::reset(&mut m, board, rom, 0);
    machine::begin_step(&mut m, board);
    m.draw = 0;
    m
}

/// Registers and RAM of any kind; PC stays.
fn scramble(m: &mut Machine, draws: &mut Draws) {
    m.riot.ram = std::array::from_fn(|_| draws.byte());
    let c = &mut m.cpu;
    (c.a, c.x, c.y) = (draws.byte(), draws.byte(), draws.byte());
    c.s = if draws.next(4) == 0 { draws.byte() } else { 0x80 | draws.byte() };
    (c.carry, c.overflow, c.decimal) = (draws.next(2) as u8, draws.next(2) as u8, (draws.next(8) == 0) as u8);
    c.result = draws.next(0x10000);
    c.cycles = draws.next(15_000);
}

/// Both from `start`; true when the block ran at least one instruction.
fn compare(lane: &Lane, start: &Machine, board: &Board, what: &str) -> (Machine, Done) {
    let (mut ours, mut theirs) = (*start, *start);
    let (mut our_board, mut their_board) = (Box::new(*board), Box::new(*board));
    let done = lane.enter(&mut ours, &mut our_board, SLACK + 300);
    cpu::run(&mut theirs, &mut their_board, &lane.rom, done.instructions);
    // The budget is the caller's, and the block leaves the bus to the next step, which begins by setting it.
    (ours.cpu.left, ours.bus) = (theirs.cpu.left, theirs.bus);
    assert_eq!(ours, theirs, "{what}, {} instructions, code {}", done.instructions, done.code);
    (theirs, done)
}

#[test]
fn every_opcode() {
    let text = block();
    let mut board: Box<Board> = bytemuck::zeroed_box();
    let mut draws = Draws(1);
    let mut inside: Vec<u32> = vec![0; 256];
    let mut stores = 0;
    // JAM leaves the block, wherever a jump lands.
    let mut rom = vec![0x02u8; 8192];
    rom[0x1FFC..0x2000].copy_from_slice(&[0x00, 0xF2, 0x00, 0xF2]);
    let mut m = console(cart::KIND_F8, &rom, &mut board);
    let mut lane = Lane::new(Program::new(&text), rom, &m);
    for opcode in 0..=255u8 {
        for round in 0..60 {
            scramble(&mut m, &mut draws);
            let offset =
                [draws.next(0x1000), 0x3FD + draws.next(4), 0xFF4 + draws.next(12)][round % 3] as usize;
            let at = 4096 + offset % 4096;
            let mut bytes = [opcode, draws.byte(), draws.byte()];
            match round % 4 {
                0 => bytes[2] |= 0x10,
                1 => bytes = [opcode, 0x80 | bytes[1], 0],
                2 => bytes = [opcode, bytes[1], 0],
                _ => {}
            }
            let end = (at + 3).min(8192);
            let old = lane.rom[at..end].to_vec();
            lane.rom[at..end].copy_from_slice(&bytes[..end - at]);
            let from = at.saturating_sub(2);
            for place in from..end {
                lane.records[place] = records::record(&lane.rom, place, u32::from(m.cart.plain_high));
            }
            m.cpu.pc = 0xF000 | (offset % 4096) as u16;
            let (_, done) = compare(&lane, &m, &board, &format!("{bytes:02X?} at {at:#x}"));
            inside[opcode as usize] += u32::from(done.instructions > 0);
            stores += u32::from(done.code == 2);
            lane.rom[at..end].copy_from_slice(&old);
            for place in from..end {
                lane.records[place] = records::record(&lane.rom, place, u32::from(m.cart.plain_high));
            }
        }
    }
    // Every handler was reached, and only what has none always left at once.
    let without = inside.iter().filter(|&&times| times == 0).count();
    assert!(without < 90, "{without} opcodes never ran inside the block");
    assert!(stores > 50, "only {stores} stores to the TIA");
}

#[test]
fn every_handler_has_an_opcode_that_reaches_it() {
    let handlers = block().handlers;
    assert!(handlers.len() > 100, "{} handlers", handlers.len());
    let mut reached = vec![false; handlers.len()];
    for opcode in 0..=255u8 {
        for (low, high) in [(0x10, 0x00), (0x90, 0x00), (0x10, 0xF4), (0x94, 0x02)] {
            let record = records::record(&[opcode, low, high, 0], 0, 0x1000);
            reached[(record >> 32 & 0xFF) as usize] = true;
        }
    }
    for (reached, (name, form)) in reached.iter().zip(&handlers) {
        assert!(reached, "{name} {form:?}");
    }
    assert_eq!(handlers[0].1, Form::Slow);
}

#[test]
fn programs() {
    let mut instructions = 0;
    let kinds = [
        (cart::KIND_4K, 4096),
        (cart::KIND_F8, 8192),
        (cart::KIND_F6, 16384),
        (cart::KIND_E0, 8192),
        (cart::KIND_FE, 8192),
        (cart::KIND_F8SC, 8192),
        (cart::KIND_DPC, 10240),
        (cart::KIND_3F, 8192),
    ];
    for (kind, bytes) in kinds {
        for round in 0..6 {
            let mut draws = Draws(u64::from(kind) * 100 + round);
            // Bytes of frequent instructions, and any; loops come by themselves.
            let common = [
                0xA9, 0x85, 0xA5, 0xD0, 0xCA, 0x65, 0x29, 0xE6, 0xB5, 0x95, 0xBD, 0xB1, 0x48, 0x68, 0x20,
                0x60,
            ];
            let mut rom: Vec<u8> = (0..bytes)
                .map(|_| if draws.next(3) > 0 { common[draws.next(16) as usize] } else { draws.byte() })
                .collect();
            for end in rom.chunks_exact_mut(1024) {
                end[1020..].copy_from_slice(&[0x00, 0xF2, 0x00, 0xF2]);
            }
            let mut board: Box<Board> = bytemuck::zeroed_box();
            let mut m = console(kind, &rom, &mut board);
            let lane = Lane::new(Program::new(&block()), rom, &m);
            for entry in 0..1600 {
                if entry % 32 == 0 || m.cpu.jammed != 0 {
                    scramble(&mut m, &mut draws);
                    m.cpu.pc =
                        0xF000 | draws.next(0x1000) as u16 | if draws.next(4) == 0 { 0xD000 } else { 0 };
                    m.cpu.pc &= if draws.next(2) == 0 { 0xDFFF } else { 0xFFFF };
                    m.cpu.jammed = 0;
                }
                let what = format!("kind {kind}, round {round}, entry {entry}, pc {:#x}", m.cpu.pc);
                let (next, done) = compare(&lane, &m, &board, &what);
                instructions += done.instructions;
                m = next;
                if done.code == 1 && m.cpu.jammed == 0 {
                    cpu::run(&mut m, &mut board, &lane.rom, 1);
                }
                m.tia.stop = 0;
            }
        }
    }
    assert!(instructions > 20_000, "only {instructions} instructions ran inside the block");
}

/// A frame as a kernel runs it: the block, and single steps where it leaves.
fn frame(lane: &Lane, m: &mut Machine, board: &mut Board) -> (u32, u32) {
    machine::begin_step(m, board);
    m.eager = 0;
    let (mut left, mut inside, mut entries) = (machine::INSTRUCTIONS_PER_STEP, 0, 0);
    while left > 0 && m.tia.stop == 0 && m.cpu.jammed == 0 {
        let done = lane.enter(m, board, left);
        left -= done.instructions;
        inside += done.instructions;
        entries += 1;
        if done.code == 1 && left > 0 {
            cpu::run(m, board, &lane.rom, 1);
            left -= 1;
        }
    }
    machine::end_step(m, board);
    (inside, entries)
}

#[test]
fn games() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    let (mut inside, mut entries, mut frames) = (0, 0, 0);
    for game in
        ["pong", "breakout", "seaquest", "solaris", "pitfall2", "montezuma_revenge", "robotank", "klax"]
    {
        let file = rom::load(game, &[], false).unwrap();
        let row = cule::console::game_row(game).unwrap();
        let start = Console::new(&file, row, Options::default()).unwrap();
        let mut ours = start.state().machine;
        ours.draw = 0;
        let mut theirs = ours;
        let mut boards: [Box<Board>; 2] = [bytemuck::zeroed_box(), bytemuck::zeroed_box()];
        let lane = Lane::new(Program::new(&block()), rom::image(&file), &ours);
        for number in 0..60 {
            let port = (number as u8).wrapping_mul(37) | 0x0F;
            (ours.input.port_a, theirs.input.port_a) = (port, port);
            let (ran, entered) = frame(&lane, &mut ours, &mut boards[0]);
            machine::step(&mut Plain { rom: &lane.rom }, &mut theirs, &mut boards[1]);
            (ours.cpu.left, ours.bus) = (theirs.cpu.left, theirs.bus);
            assert_eq!(ours, theirs, "{game}, frame {number}");
            inside += ran;
            entries += entered;
            frames += 1;
        }
    }
    println!("{} instructions inside and {} entries a frame", inside / frames, entries / frames);
    assert!(inside / frames > 2000, "{} instructions a frame run inside the block", inside / frames);
}
