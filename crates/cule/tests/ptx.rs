//! Compares the PTX interpreter of the GPU with the Rust interpreter: every opcode, random states, random
//! programs, games. The host build of the kernels interprets the text of the PTX (`kernels/ptx.h`), so no GPU
//! is needed.

#![allow(clippy::unwrap_used, reason = "a test fails if its files cannot be read")]
#![allow(unsafe_code, reason = "calls a function of a library that was compiled here")]

use std::sync::OnceLock;

use cule::env::warp_schedule;
use cule::machine::{self, Board, Machine, Plain, bus, cart, cpu, records, tia};
use cule::{Console, Options, console, env, rom};
use libloading::Library;

#[path = "support/compiled.rs"]
mod compiled;
#[path = "support/roms.rs"]
mod roms;

/// `Registers::code` of an instruction, of a store to the TIA, and of a load from it, that is left to the caller; and with the
/// loaded value.
const SLOW: u32 = 2;
const STORE: u32 = 3;
const READ: u32 = 4;
const VALUE: u32 = 5;
/// Instruction budget of a test.
const BUDGET: u32 = 4500;
/// Bytes of a machine in shared memory, with the words between two of them.
const ROW: usize = 476;
/// Position of the cycles in `Registers::spent`.
const CYCLES_AT: u32 = 13;
const MACHINE: usize = size_of::<Machine>();

/// `cule::brx::Registers` in `kernels/cpu_brx.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Registers {
    a: u32,
    x: u32,
    y: u32,
    s: u32,
    carry: u32,
    overflow: u32,
    decimal: u32,
    result: u32,
    spent: u32,
    place: u32,
    offset: u32,
    stored: u32,
    code: u32,
    address: u32,
    value: u32,
}

/// `parl_block` in `kernels/host.cpp`.
type Block =
    unsafe extern "C" fn(*mut Registers, *mut u8, *mut u32, *mut u32, *mut u32, *const u8, *const u64, u32);

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let file = compiled::kernels();
        // SAFETY: the library was compiled above and runs no code when it is loaded.
        unsafe { Library::new(file) }.unwrap()
    })
}

struct Lane {
    rom: Vec<u8>,
    records: Vec<u64>,
}

/// Result of one entry into the block.
struct Done {
    instructions: u32,
    code: u32,
    /// Loads from the TIA that the block has completed.
    loads: u32,
}

impl Lane {
    fn new(rom: Vec<u8>, m: &Machine) -> Self {
        // The block loads records of next instructions before it knows whether there are any.
        let records = (0..rom.len()).map(|at| records::record(&rom, at, &m.cart)).chain([0; 4]).collect();
        Self { rom, records }
    }

    /// Replaces bytes of the ROM from `at` on, and the records that depend on them. Returns the old bytes.
    fn put(&mut self, at: usize, bytes: &[u8], m: &Machine) -> Vec<u8> {
        let end = (at + bytes.len()).min(self.rom.len());
        let old = self.rom[at..end].to_vec();
        self.rom[at..end].copy_from_slice(&bytes[..end - at]);
        // A record depends on up to five bytes, and on the byte that an instruction reads.
        for place in 0..self.rom.len() {
            self.records[place] = records::record(&self.rom, place, &m.cart);
        }
        old
    }

    /// Runs the block as a kernel does. If it stops at a store to the TIA, runs the store.
    fn enter(&self, m: &mut Machine, board: &mut Board, left: u32) -> Done {
        let c = m.cpu;
        let mut r = Registers {
            a: c.a.into(),
            x: c.x.into(),
            y: c.y.into(),
            s: c.s.into(),
            carry: c.carry.into(),
            overflow: c.overflow.into(),
            decimal: c.decimal.into(),
            result: c.result,
            ..Registers::default()
        };
        let (mut pc, mut cycles, mut rest) = (u32::from(c.pc), c.cycles, left);
        let whole = m.access_by_access == 0 && m.cart.claims == 0;
        let until = if whole { warp_schedule::window_at(&m.tia, cycles, 4).1 << CYCLES_AT } else { 0 };
        let mut loads = 0;
        loop {
            let spent = (cycles - m.cpu.cycles) << CYCLES_AT | (left - rest);
            self.run_block(m, &mut r, &mut pc, &mut cycles, &mut rest, until.saturating_sub(spent));
            if r.code != READ {
                break;
            }
            assert_eq!(r.address & 0x1080, 0, "{:#x} is no address of the TIA", r.address);
            if m.cart.claims != 0 {
                // The cartridge may answer.
                (cycles, rest, r.code) = (cycles.wrapping_sub(r.value >> CYCLES_AT), rest + 1, SLOW);
                break;
            }
            (r.value, r.code) = (tia::read(m, board, r.address, cycles), VALUE);
            loads += 1;
        }
        let byte = |value: u32| u8::try_from(value).expect("a register of 8 bits");
        let c = &mut m.cpu;
        (c.a, c.x, c.y, c.s) = (byte(r.a), byte(r.x), byte(r.y), byte(r.s));
        (c.carry, c.overflow, c.decimal) = (byte(r.carry), byte(r.overflow), byte(r.decimal));
        (c.result, c.cycles) = (r.result, cycles);
        c.pc = u16::try_from(pc).expect("16 bits");
        if r.code == STORE {
            assert_eq!(r.address & 0x1080, 0, "{:#x} is no address of the TIA", r.address);
            let mut copy = m.cpu;
            bus::write(m, &mut copy, board, r.address, r.value, false);
            m.cpu = copy;
        }
        Done { instructions: left - rest, code: r.code, loads }
    }
}

impl Lane {
    /// Runs the block once, on a copy of the machine between two that must not change.
    fn run_block(
        &self,
        m: &mut Machine,
        r: &mut Registers,
        pc: &mut u32,
        cycles: &mut u32,
        rest: &mut u32,
        until: u32,
    ) {
        let mut words = [0xEEEE_EEEEu32; 3 * ROW / 4];
        let shared: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        shared[ROW..ROW + MACHINE].copy_from_slice(bytemuck::bytes_of(m));
        // SAFETY: the library exports the function with this type.
        let block: libloading::Symbol<'_, Block> = unsafe { library().get(b"parl_block") }.unwrap();
        // SAFETY: the block reads `rom` and as many records, and accesses the machine; the host build checks the latter.
        unsafe {
            block(
                r,
                shared[ROW..].as_mut_ptr(),
                pc,
                cycles,
                rest,
                self.rom.as_ptr(),
                self.records.as_ptr(),
                until,
            );
        }
        *m = *bytemuck::from_bytes(&shared[ROW..ROW + MACHINE]);
        shared[ROW..ROW + MACHINE].fill(0xEE);
        assert!(shared.iter().all(|&byte| byte == 0xEE), "another lane's RAM was written");
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

/// Randomizes registers and RAM; the program counter stays.
fn scramble(m: &mut Machine, draws: &mut Draws) {
    m.riot.ram = std::array::from_fn(|_| draws.byte());
    let c = &mut m.cpu;
    (c.a, c.x, c.y) = (draws.byte(), draws.byte(), draws.byte());
    c.s = if draws.next(4) == 0 { draws.byte() } else { 0x80 | draws.byte() };
    (c.carry, c.overflow, c.decimal) = (draws.next(2) as u8, draws.next(2) as u8, (draws.next(8) == 0) as u8);
    c.result = draws.next(0x10000);
    c.cycles = draws.next(15_000);
}

/// Runs both interpreters from `start` and compares. Returns the machine afterwards and the result of the
/// block.
fn compare(lane: &Lane, start: &Machine, board: &Board, what: &str) -> (Machine, Done) {
    let (mut ours, mut theirs) = (*start, *start);
    let (mut our_board, mut their_board) = (Box::new(*board), Box::new(*board));
    let done = lane.enter(&mut ours, &mut our_board, BUDGET);
    cpu::run(&mut theirs, &mut their_board, &lane.rom, done.instructions);
    // The budget belongs to the caller, and the block does not update the bus: the next instruction sets it
    // first.
    (ours.cpu.left, ours.bus) = (theirs.cpu.left, theirs.bus);
    assert_eq!(ours, theirs, "{what}, {} instructions, code {}", done.instructions, done.code);
    (theirs, done)
}

/// A cartridge filled with JAM, at which the block stops, wherever a jump lands.
fn empty_lane(board: &mut Board) -> (Lane, Machine) {
    let mut rom = vec![0x02u8; 8192];
    rom[0x1FFC..0x2000].copy_from_slice(&[0x00, 0xF2, 0x00, 0xF2]);
    let m = console(cart::KIND_F8, &rom, board);
    (Lane::new(rom, &m), m)
}

/// Operands, pointers and stack at the ends of the RAM, and the timer around its expiry.
#[test]
fn edges_of_the_ram_and_of_the_timer() {
    const AT: usize = 4096 + 0x200;
    let mut board: Box<Board> = bytemuck::zeroed_box();
    let (mut lane, mut m) = empty_lane(&mut board);
    let (mut draws, mut inside) = (Draws(3), 0);
    for opcode in 0..=255u8 {
        for low in [0x00, 0x7E, 0x7F, 0x80, 0xFE, 0xFF, 0x84] {
            for high in [0x00, 0x02, 0x10] {
                lane.put(AT, &[opcode, low, high], &m);
                for index in 0..2 {
                    for s in [0x7D, 0x7E, 0x7F, 0x80, 0xFD, 0xFE, 0xFF] {
                        scramble(&mut m, &mut draws);
                        (m.cpu.x, m.cpu.y, m.cpu.s, m.cpu.decimal) = (index, index, s, 0);
                        (m.riot.timer, m.riot.shift) = (draws.next(4) as u8, [0, 3][draws.next(2) as usize]);
                        m.riot.set_at = m.cpu.cycles.wrapping_sub(draws.next(20));
                        m.cpu.pc = 0xF200;
                        let what = format!("{opcode:02X} {low:02X} {high:02X}, x and y {index}, s {s:02X}");
                        inside += compare(&lane, &m, &board, &what).1.instructions;
                    }
                }
            }
        }
    }
    assert!(inside > 40_000, "only {inside} instructions ran inside the block");
}

/// The block completes loads from the TIA in all addressing modes, unless an index leads to another page.
#[test]
fn loads_from_the_tia() {
    const AT: usize = 4096 + 0x200;
    let mut board: Box<Board> = bytemuck::zeroed_box();
    let (mut lane, mut m) = empty_lane(&mut board);
    let mut draws = Draws(5);
    for (text, loads) in [
        ([0xA5, 0x02, 0x02], 1), // LDA $02
        ([0x24, 0x0C, 0x02], 1), // BIT $0C
        ([0xAD, 0x07, 0x00], 1), // LDA $0007
        ([0xB5, 0x00, 0x02], 1), // LDA $00,X
        ([0xBD, 0x00, 0x00], 1), // LDA $0000,X
        ([0xB9, 0x30, 0x00], 1), // LDA $0030,Y
        ([0xB1, 0x90, 0x02], 1), // LDA ($90),Y
        ([0xBD, 0xFC, 0x00], 0), // LDA $00FC,X: address $0101
    ] {
        lane.put(AT, &text, &m);
        scramble(&mut m, &mut draws);
        (m.cpu.x, m.cpu.y, m.cpu.pc) = (5, 5, 0xF200);
        (m.riot.ram[0x10], m.riot.ram[0x11]) = (0x02, 0x00);
        let done = compare(&lane, &m, &board, &format!("{text:02X?}")).1;
        assert_eq!((done.loads, done.instructions), (loads, loads), "{text:02X?}");
    }
}

/// Stores of few different values to all registers of the TIA: most change nothing.
#[test]
fn stores_to_the_tia() {
    const VALUES: [u8; 8] = [0, 0, 0, 2, 8, 0x11, 0x37, 0xFF];
    let (mut inside, mut stopped) = (0, 0);
    for round in 0..300 {
        let mut draws = Draws(round);
        let mut rom = vec![0x02u8; 4096];
        for four in rom[..2048].chunks_exact_mut(4) {
            let register = if draws.next(4) == 0 { 2 } else { draws.next(64) as u8 };
            let register = if register == 0 { 0x1B } else { register };
            four.copy_from_slice(&[0xA9, VALUES[draws.next(8) as usize], 0x85, register]);
        }
        rom[0xFFC..].copy_from_slice(&[0x00, 0xF0, 0x00, 0xF0]);
        let mut board: Box<Board> = bytemuck::zeroed_box();
        let mut m = console(cart::KIND_4K, &rom, &mut board);
        (m.draw, m.access_by_access) = ((round % 2) as u8, u8::from(round % 16 == 9));
        m.cpu.cycles = draws.next(22_000);
        let lane = Lane::new(rom, &m);
        let mut theirs = m;
        let mut other = board.clone();
        while m.cpu.pc < 0xF800 {
            let done = lane.enter(&mut m, &mut board, BUDGET);
            cpu::run(&mut theirs, &mut other, &lane.rom, done.instructions);
            (m.cpu.left, m.bus) = (theirs.cpu.left, theirs.bus);
            assert_eq!(m, theirs, "round {round}, {} instructions, code {}", done.instructions, done.code);
            (inside, stopped) = (inside + done.instructions, stopped + u32::from(done.code == STORE));
        }
    }
    println!("{inside} instructions inside, {stopped} stores outside");
    assert!(inside > 4 * stopped && stopped > 5000, "{inside} instructions inside, {stopped} stores outside");
}

#[test]
fn every_opcode() {
    let mut board: Box<Board> = bytemuck::zeroed_box();
    let mut draws = Draws(1);
    let mut inside: Vec<u32> = vec![0; 256];
    let mut stores = 0;
    let (mut lane, mut m) = empty_lane(&mut board);
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
            let old = lane.put(at, &bytes, &m);
            m.cpu.pc = 0xF000 | (offset % 4096) as u16;
            let (_, done) = compare(&lane, &m, &board, &format!("{bytes:02X?} at {at:#x}"));
            inside[opcode as usize] += u32::from(done.instructions > 0);
            stores += u32::from(done.code == STORE);
            lane.put(at, &old, &m);
        }
    }
    // Every handler must have run; only opcodes without one may never run inside the block.
    let without = inside.iter().filter(|&&times| times == 0).count();
    assert!(without < 90, "{without} opcodes never ran inside the block");
    assert!(stores > 50, "only {stores} stores to the TIA");
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
            // Opcodes of frequent instructions, mixed with random bytes.
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
            let lane = Lane::new(rom, &m);
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
                if done.code == SLOW && m.cpu.jammed == 0 {
                    cpu::run(&mut m, &mut board, &lane.rom, 1);
                }
                m.tia.stop = 0;
            }
        }
    }
    assert!(instructions > 20_000, "only {instructions} instructions ran inside the block");
}

/// Runs a frame as a kernel does: the block, and single instructions where it stops.
fn frame(lane: &Lane, m: &mut Machine, board: &mut Board) -> (u32, u32) {
    machine::begin_step(m, board);
    m.access_by_access = 0;
    let (mut left, mut inside, mut entries) = (machine::INSTRUCTIONS_PER_STEP, 0, 0);
    while left > 0 && m.tia.stop == 0 && m.cpu.jammed == 0 {
        let done = lane.enter(m, board, left);
        left -= done.instructions;
        inside += done.instructions;
        entries += 1;
        if done.code == SLOW && left > 0 {
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
        let row = console::game_row(game).unwrap();
        let start = Console::new(&file, row, Options::default()).unwrap();
        let mut ours = start.state().machine;
        ours.draw = 0;
        let mut theirs = ours;
        let mut boards: [Box<Board>; 2] = [bytemuck::zeroed_box(), bytemuck::zeroed_box()];
        let lane = Lane::new(rom::image(&file), &ours);
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
