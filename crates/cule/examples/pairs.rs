//! Counts which pairs of handlers the fast CPU executes in sequence: `pairs GAME=ROM ... >
//! xtask/data/pairs.txt`.
//!
//! Each line has opcode and operand class of both instructions, and the number of occurrences per million
//! instructions.

use std::collections::HashMap;
use std::path::Path;

use cule::fast_cpu::{Code, handlers::CLASS_NAMES};
use cule::machine::{self, INSTRUCTIONS_PER_STEP, cpu};
use cule::{Console, Options, console, rom};

const FRAMES: u32 = 1500;

/// Opcode and operand class.
type Kind = (u8, u8);
/// Number of occurrences of each pair.
type Counts<T> = HashMap<(Kind, Kind), T>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut counts: Counts<f64> = HashMap::new();
    for argument in std::env::args().skip(1) {
        let (game, path) = argument.split_once('=').ok_or("arguments have the form GAME=ROM")?;
        let rom = rom::read(Path::new(path))?;
        let kinds = Code::kinds(&rom::image(&rom), rom.scheme as u8);
        let mut console = Console::new(&rom, console::game_row(game)?, Options::default())?;
        let code = Code::new(&rom::image(&rom), rom.scheme as u8);
        let mut board: Box<machine::Board> = bytemuck::zeroed_box();
        let mut seen: Counts<u64> = HashMap::new();
        let mut total = 0u64;
        let actions = console.minimal_actions();
        for frame in 0..FRAMES {
            if console.game_over() {
                console.reset()?;
            }
            // The console plays the frame; a copy of its machine runs the same frame instruction by
            // instruction.
            let action = actions[(frame as usize / 7 * 5) % actions.len()];
            let mut m = console.state().machine;
            console.act(action);
            m.input = console.state().machine.input;
            m.draw = 0;
            machine::begin_step(&mut m, &mut board);
            let mut cpu = m.cpu;
            cpu.left = INSTRUCTIONS_PER_STEP;
            let mut before: Option<(Kind, u16)> = None;
            while cpu.left != 0 && m.tia.stop == 0 {
                cpu.left -= 1;
                let pc = cpu.pc;
                let segment = usize::from(m.cart.segment[usize::from(pc >> 10 & 3 | pc >> 11 & 4)]);
                let place = segment * 1024 + usize::from(pc & 0x3FF);
                let here = if pc & 0x1000 != 0 { kinds.get(place).copied().flatten() } else { None };
                if let (Some((first, next)), Some(second)) = (before, here)
                    && next == pc
                {
                    *seen.entry((first, second)).or_default() += 1;
                }
                cpu::execute(&mut m, &mut cpu, &mut board, code.image());
                total += 1;
                before = here.map(|kind| (kind, pc.wrapping_add(Code::length(kind.0))));
            }
        }
        for (pair, count) in seen {
            *counts.entry(pair).or_default() += count as f64 * 1e6 / total as f64;
        }
    }
    let games = std::env::args().len() as f64 - 1.0;
    let mut sorted: Vec<_> = counts.into_iter().collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for (((a, b), (c, d)), count) in sorted.into_iter().take(1000) {
        let (b, d) = (CLASS_NAMES[usize::from(b)], CLASS_NAMES[usize::from(d)]);
        println!("{a:02X} {b} {c:02X} {d} {:.0}", count / games);
    }
    Ok(())
}
