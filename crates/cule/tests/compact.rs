//! Compares the compact interpreter, which GPUs run, with the plain one: every opcode from random states,
//! random programs.

use cule::machine::operations::Cpu;
use cule::machine::tia::Layout;
use cule::machine::{self, Board, Machine, cart, compact, cpu};
use cule::random::{self, Random};

const ROM_BYTES: usize = 4096;
const LAYOUT: Layout = Layout { first_line: 34, height: 210, pal: 0, hmove_blanks: 1 };

fn byte(random: &mut Random) -> u8 {
    random::draw(random) as u8
}

/// A console with random RAM and registers, at a random address of a random program.
fn console(random: &mut Random, board: &mut Board) -> (Machine, Vec<u8>) {
    let rom: Vec<u8> = (0..ROM_BYTES).map(|_| byte(random)).collect();
    let ram: [u8; 128] = std::array::from_fn(|_| byte(random));
    let mut m = machine::new(cart::KIND_4K, ROM_BYTES as u32, &ram, LAYOUT);
    machine::reset(&mut m, board, &rom, random::draw(random));
    machine::begin_step(&mut m, board);
    let c: &mut Cpu = &mut m.cpu;
    (c.a, c.x, c.y, c.s) = (byte(random), byte(random), byte(random), byte(random));
    (c.carry, c.overflow, c.decimal) = (byte(random) & 1, byte(random) & 1, byte(random) & 1);
    c.result = u32::from(byte(random)) << (8 * (byte(random) & 1));
    c.pc = 0xF000 | random::draw(random) as u16 & 0xFFF;
    (m, rom)
}

/// Runs one instruction with both. Returns false if the processor has jammed or the frame has ended.
fn step(m: &mut Machine, boards: &mut [Box<Board>; 2], rom: &[u8], what: &str) -> bool {
    let [board, other_board] = boards;
    let mut other = *m;
    let (mut first, mut second) = (m.cpu, m.cpu);
    (first.left, second.left) = (1, 1);
    let opcode = cpu::execute(m, &mut first, board, rom);
    assert_eq!(compact::execute(&mut other, &mut second, other_board, rom), opcode);
    assert_eq!(second, first, "{what}, opcode {opcode:02X}: registers");
    assert_eq!(other, *m, "{what}, opcode {opcode:02X}: machine");
    m.cpu = first;
    first.jammed == 0 && m.tia.stop == 0
}

#[test]
fn every_opcode_from_random_states() {
    let mut random = random::seeded(6507);
    let mut boards: [Box<Board>; 2] = [bytemuck::zeroed_box(), bytemuck::zeroed_box()];
    let (start, mut rom) = console(&mut random, &mut boards[0]);
    *boards[1] = *boards[0];
    for opcode in 0..=255u8 {
        for round in 0..200 {
            let mut m = start;
            m.riot.ram = std::array::from_fn(|_| byte(&mut random));
            let c: &mut Cpu = &mut m.cpu;
            (c.a, c.x, c.y, c.s) =
                (byte(&mut random), byte(&mut random), byte(&mut random), byte(&mut random));
            (c.carry, c.overflow) = (byte(&mut random) & 1, byte(&mut random) & 1);
            (c.decimal, c.interrupt) = (byte(&mut random) & 1, byte(&mut random) & 1);
            c.result = u32::from(byte(&mut random)) << (8 * (byte(&mut random) & 1));
            c.pc = 0xF000 | random::draw(&mut random) as u16 & 0xFFF;
            let at = usize::from(m.cpu.pc & 0xFFF);
            rom[at] = opcode;
            for i in 1..3 {
                rom[(at + i) % ROM_BYTES] = byte(&mut random);
            }
            step(&mut m, &mut boards, &rom, &format!("round {round}"));
        }
    }
}

#[test]
fn random_programs() {
    let mut random = random::seeded(2600);
    let mut boards: [Box<Board>; 2] = [bytemuck::zeroed_box(), bytemuck::zeroed_box()];
    let mut ran = 0;
    for program in 0..200 {
        let (mut m, rom) = console(&mut random, &mut boards[0]);
        *boards[1] = *boards[0];
        let mut left = 500;
        while left > 0 && step(&mut m, &mut boards, &rom, &format!("program {program}")) {
            left -= 1;
            ran += 1;
        }
    }
    assert!(ran > 2000, "{ran} instructions");
}
