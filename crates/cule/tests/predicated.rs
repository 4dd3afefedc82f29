//! Compares the predicated interpreter with the plain one: every opcode from random states, random programs
//! on many kinds of cartridges, frames of games; all bytes of the machine.

#![allow(clippy::unwrap_used, reason = "a test fails if its files cannot be read")]

use cule::machine::operations::Cpu;
use cule::machine::predicated::{self, Lane};
use cule::machine::{self, Board, Machine, cart, compact, cpu, datapath, micro};
use cule::random::{self, Random};
use cule::{Console, Options, env, rom};

#[path = "support/roms.rs"]
mod roms;

fn byte(random: &mut Random) -> u8 {
    random::draw(random) as u8
}

fn below(random: &mut Random, count: u32) -> u32 {
    random::draw(random) % count
}

/// A console within its first frame, which is not drawn.
fn console(kind: u8, rom: &[u8], board: &mut Board) -> Machine {
    let mut m = machine::new(kind, rom.len() as u32, &[0; 128], env::layout(0, false));
    machine::reset(&mut m, board, rom, 0);
    machine::begin_step(&mut m, board);
    (m.draw, m.access_by_access) = (0, 0);
    m
}

/// Randomizes registers, RAM and time; the program counter stays.
fn scramble(m: &mut Machine, random: &mut Random) {
    m.riot.ram = std::array::from_fn(|_| byte(random));
    m.bus = u32::from(byte(random));
    let c: &mut Cpu = &mut m.cpu;
    (c.a, c.x, c.y) = (byte(random), byte(random), byte(random));
    c.s = if below(random, 4) == 0 { byte(random) } else { 0x80 | byte(random) };
    (c.carry, c.overflow) = (byte(random) & 1, byte(random) & 1);
    (c.decimal, c.interrupt) = ((below(random, 8) == 0) as u8, byte(random) & 1);
    c.result = random::draw(random) & 0xFFFF;
    c.cycles = below(random, 15_000);
    c.jammed = 0;
}

/// Runs one instruction with both. Returns true if the micro-steps ran it without the other interpreter.
fn step(m: &mut Machine, boards: &mut [Box<Board>; 2], rom: &[u8], what: &str) -> bool {
    let [board, other_board] = boards;
    let mut other = *m;
    let mut plain = m.cpu;
    let mut lane: Lane = predicated::begin(m, 1001);
    plain.left = 1000;
    let opcode = cpu::execute(m, &mut plain, board, rom);
    let used_compact = predicated::step(&mut other, &mut lane, other_board, rom);
    m.cpu = plain;
    predicated::end(&mut other, &lane);
    assert_eq!(other, *m, "{what}, opcode {opcode:02X}, by compact {used_compact}");
    assert!(board.ram == other_board.ram, "{what}, opcode {opcode:02X}: cartridge RAM");
    !used_compact
}

fn boards() -> [Box<Board>; 2] {
    [bytemuck::zeroed_box(), bytemuck::zeroed_box()]
}

/// Returns true for opcodes that the formula does not express.
fn is_slow(opcode: u8) -> bool {
    micro::ROWS[usize::from(opcode)][0] & datapath::SLOW != 0
}

#[test]
fn every_opcode_from_random_states() {
    let mut random = random::seeded(6507);
    let mut boards = boards();
    let mut rom: Vec<u8> = (0..8192).map(|_| byte(&mut random)).collect();
    let start = console(cart::KIND_F8, &rom, &mut boards[0]);
    *boards[1] = *boards[0];
    for opcode in 0..=255u8 {
        let mut ran = 0;
        for round in 0..400 {
            let mut m = start;
            scramble(&mut m, &mut random);
            // Any address; the end of a KiB; the hotspots.
            let places =
                [below(&mut random, 0x1000), 0x3FC + below(&mut random, 5), 0xFF2 + below(&mut random, 14)];
            let offset = places[if round % 4 < 2 { 0 } else { round % 4 - 1 }] as usize;
            m.cpu.pc = 0xF000 | offset as u16;
            let at = 4096 + offset;
            let mut bytes = [opcode, byte(&mut random), byte(&mut random)];
            match round % 5 {
                0 => bytes[2] |= 0x10,
                1 => bytes = [opcode, 0x80 | bytes[1], 0],
                2 => bytes[2] = 0,
                3 => bytes[2] = 2,
                _ => {}
            }
            for (i, byte) in bytes.into_iter().enumerate() {
                rom[4096 + (at + i) % 4096] = byte;
            }
            ran += u32::from(step(&mut m, &mut boards, &rom, &format!("round {round}, pc {offset:03X}")));
        }
        assert_eq!(ran > 20, !is_slow(opcode), "opcode {opcode:02X} ran {ran} times");
    }
}

/// The table contains the opcodes that games use often. The others change the interrupt flag or are not
/// official.
#[test]
fn few_opcodes_are_outside_the_table() {
    let slow: Vec<u8> = (0..=255).filter(|&opcode| is_slow(opcode)).collect();
    assert_eq!(slow.len(), 68, "{slow:02X?}");
    // BRK, PLP, RTI, CLI, SEI.
    let official = [0x00, 0x28, 0x40, 0x58, 0x78];
    assert!(official.iter().all(|opcode| slow.contains(opcode)));
    for opcode in slow.into_iter().filter(|opcode| !official.contains(opcode)) {
        let odd = matches!(opcode & 0x1F, 0x02 | 0x12) || opcode & 3 == 3 || matches!(opcode, 0x9C | 0x9E);
        assert!(odd, "{opcode:02X}");
    }
}

#[test]
fn programs_on_cartridges_of_many_kinds() {
    let kinds = [
        (cart::KIND_2K, 2048),
        (cart::KIND_4K, 4096),
        (cart::KIND_F8, 8192),
        (cart::KIND_F6, 16384),
        (cart::KIND_F8SC, 8192),
        (cart::KIND_E0, 8192),
        (cart::KIND_FE, 8192),
        (cart::KIND_DPC, 10240),
        (cart::KIND_FA, 12288),
        (cart::KIND_E7, 16384),
        (cart::KIND_3F, 8192),
        (cart::KIND_3E, 8192),
        (cart::KIND_UA, 8192),
        (cart::KIND_CV, 2048),
        (cart::KIND_MB, 65536),
        (cart::KIND_0840, 8192),
    ];
    // Opcodes of frequent instructions, mixed with random bytes.
    let common =
        [0xA9, 0x85, 0xA5, 0xD0, 0xCA, 0x65, 0x29, 0xE6, 0xB5, 0x95, 0xBD, 0xB1, 0x48, 0x68, 0x20, 0x60];
    for (kind, bytes) in kinds {
        let mut random = random::seeded(u32::from(kind));
        let mut boards = boards();
        let (mut ran, mut all) = (0, 0);
        for program in 0..4 {
            let mut rom: Vec<u8> = (0..bytes)
                .map(|_| {
                    if below(&mut random, 3) > 0 {
                        common[below(&mut random, 16) as usize]
                    } else {
                        byte(&mut random)
                    }
                })
                .collect();
            for end in rom.chunks_exact_mut(1024) {
                end[1020..].copy_from_slice(&[0x00, 0xF2, 0x00, 0xF2]);
            }
            let mut m = console(kind, &rom, &mut boards[0]);
            *boards[1] = *boards[0];
            for entry in 0..4000 {
                if entry % 64 == 0 || m.cpu.jammed != 0 {
                    scramble(&mut m, &mut random);
                    m.cpu.pc = [0xF000, 0xD000, 0x1000][below(&mut random, 3) as usize]
                        | below(&mut random, 0x1000) as u16;
                }
                let what = format!("kind {kind}, program {program}, entry {entry}, pc {:04X}", m.cpu.pc);
                ran += u32::from(step(&mut m, &mut boards, &rom, &what));
                all += 1;
                m.tia.stop = 0;
            }
        }
        let least = if kind == cart::KIND_0840 { 0 } else { all / 8 };
        assert!(ran >= least, "kind {kind}: {ran} of {all} instructions");
    }
}

/// Frames of games with pictures. The other interpreter may run few of the instructions.
#[test]
fn games() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    for game in [
        "pong",
        "breakout",
        "seaquest",
        "solaris",
        "pitfall2",
        "montezuma_revenge",
        "robotank",
        "klax",
        "hero",
    ] {
        let file = rom::load(game, &[], false).unwrap();
        let row = cule::console::game_row(game).unwrap();
        let image = rom::image(&file);
        let start = Console::new(&file, row, Options::default()).unwrap();
        let mut ours = start.state().machine;
        let mut theirs = ours;
        let mut all = boards();
        let (mut used_compact, mut count) = (0, 0);
        for number in 0..40 {
            let port = (number as u8).wrapping_mul(37) | 0x0F;
            (ours.input.port_a, theirs.input.port_a) = (port, port);
            machine::begin_step(&mut theirs, &mut all[1]);
            compact::run(&mut theirs, &mut all[1], &image, machine::INSTRUCTIONS_PER_STEP);
            machine::end_step(&mut theirs, &mut all[1]);
            machine::begin_step(&mut ours, &mut all[0]);
            let mut lane = predicated::begin(&ours, machine::INSTRUCTIONS_PER_STEP);
            while lane.left != 0 {
                used_compact += u32::from(predicated::step(&mut ours, &mut lane, &mut all[0], &image));
                count += 1;
            }
            predicated::end(&mut ours, &lane);
            machine::end_step(&mut ours, &mut all[0]);
            assert_eq!(ours, theirs, "{game}, frame {number}");
            assert!(all[0].picture == all[1].picture, "{game}, picture of frame {number}");
        }
        println!("{game}: {used_compact} of {count} instructions by compact");
        assert!(used_compact * 40 < count, "{game}: {used_compact} of {count} instructions");
    }
}
