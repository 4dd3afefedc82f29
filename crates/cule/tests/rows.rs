//! Compares rows drawn as classes, as on a GPU, with rows drawn as bytes: machines and pictures must be
//! equal.

use cule::machine::tia::rows;
use cule::machine::tia::{self, Layout};
use cule::machine::{self, Board, Machine, cart};
use cule::random::{self, Random};

const LAYOUT: Layout = Layout { first_line: 34, height: 210, pal: 0, hmove_blanks: 1 };

fn below(random: &mut Random, n: u32) -> u32 {
    random::draw(random) % n
}

/// A frame of random writes: at the start of each line, and in `busy` of 256 lines at any time. It ends in
/// line `last`, or is left open there.
fn frame(m: &mut Machine, board: &mut Board, random: &mut Random, busy: u32, last: i32, open: bool) {
    machine::begin_step(m, board);
    let mut line = machine::lines(m);
    while m.tia.stop == 0 && line < last {
        let inside = below(random, 256) < busy;
        let writes = if inside { below(random, 6) } else { below(random, 3) };
        for _ in 0..writes {
            m.cpu.cycles += if inside { 1 + below(random, 20) } else { 3 };
            let mut register = 0x04 + below(random, 0x29);
            let mut value = below(random, 256);
            if below(random, 3) == 0 {
                // Colors and CTRLPF are written more often, because they matter most.
                register = 0x06 + below(random, 5);
            }
            if inside && below(random, 40) == 0 {
                (register, value) = (0x01, below(random, 4));
            }
            let stall = tia::write::write(m, board, m.cpu.cycles, register, value, false);
            m.cpu.cycles += stall;
        }
        let stall = tia::write::write(m, board, m.cpu.cycles, 0x02, 0, false);
        m.cpu.cycles += stall;
        line += 1;
    }
    if !open && m.tia.stop == 0 {
        m.cpu.cycles += below(random, 60);
        tia::write::write(m, board, m.cpu.cycles, 0x00, 2, false);
        m.cpu.cycles += 77 + below(random, 70);
        tia::write::write(m, board, m.cpu.cycles, 0x00, 0, false);
    }
    machine::end_step(m, board);
}

#[test]
fn classes_give_the_pixels_of_bytes() {
    let mut random = random::seeded(1977);
    let mut plain: Box<Board> = bytemuck::zeroed_box();
    let mut board: Box<Board> = bytemuck::zeroed_box();
    let mut seen: Box<Board> = bytemuck::zeroed_box();
    board.line.current_row.uses_classes = 1;
    let mut first = machine::new(cart::KIND_4K, 4096, &[0; 128], LAYOUT);
    let mut second = first;
    let mut kinds = [0u32; 4];
    for number in 0..600 {
        let busy = [0, 30, 120, 256][below(&mut random, 4) as usize];
        let last = if below(&mut random, 3) == 0 { 20 + below(&mut random, 240) } else { 250 } as i32;
        let open = below(&mut random, 8) == 0;
        let draw = u8::from(below(&mut random, 6) > 0);
        let mut twin = random;
        (first.draw, second.draw) = (draw, draw);
        frame(&mut first, &mut plain, &mut random, busy, last, open);
        frame(&mut second, &mut board, &mut twin, busy, last, open);
        assert_eq!(first, second, "frame {number}");
        *seen = *board;
        for buffer in 0..2 {
            for row in 0..210 {
                let one = &board.rows[buffer][row];
                kinds[one.kind as usize] += 1;
                rows::expand(&mut seen, buffer, row);
                let bytes = 160 * row..160 * row + 160;
                assert!(
                    seen.picture[buffer][bytes.clone()] == plain.picture[buffer][bytes],
                    "frame {number}, row {row} of picture {buffer}: {one:?}"
                );
            }
        }
    }
    assert!(kinds.iter().all(|&count| count > 1000), "rows of each kind: {kinds:?}");
}
