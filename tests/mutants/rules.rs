//! Prints checksums of the games' rules for recorded RAM and for random RAM, two lines per game:
//! `rules FOLDER FRAMES`.
//!
//! Compiled by `game_mutants.py` together with a mutated copy of `crates/cule/src/games` and with
//! `crates/cule/tests/drawn`, without the rest of the crate: this takes a second instead of a minute.
#![allow(dead_code)]

mod drawn;
mod games;

use drawn::link;
use games::evaluate::{evaluate, start_values};
use games::select;
use games::table::GAMES;

const FRAME_BYTES: usize = 129;
const CART_RAM: [u8; 128] = [0; 128];

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(folder), Some(frames)) = (words.next(), words.next()) else { panic!("usage: rules FOLDER FRAMES") };
    let frames: usize = frames.parse().expect("FRAMES is a number");
    for (game, row) in GAMES.iter().enumerate() {
        let name = row.name;
        let Ok(bytes) = std::fs::read(format!("{folder}/{name}.ram")) else { continue };
        let mut chain = 0xcbf2_9ce4_8422_2325;
        for value in [select::press_frames(game), select::first_press(game)] {
            chain = link(chain, i64::from(value));
        }
        for i in 0..600 {
            chain = link(chain, i64::from(select::start_action(game, i)));
        }
        let mut rules = games::new(row.modes[0]);
        for frame in bytes.chunks_exact(FRAME_BYTES).take(frames) {
            let ram: &[u8; 128] = frame[1..].try_into().expect("128 bytes");
            if frame[0] == 1 {
                start_values(&mut rules, game);
                rules.over = 0;
                for mode in 0..64 {
                    chain = link(chain, i64::from(select::reached(game, mode, ram, &CART_RAM)));
                }
                select::on_reached(&mut rules, game, true, ram);
            }
            evaluate(&mut rules, game, ram, &CART_RAM);
            let seen = [rules.reward, games::lives(&rules, game), i32::from(rules.over)];
            chain = seen.iter().fold(chain, |chain, value| link(chain, i64::from(*value)));
        }
        println!("{name}, played {chain:016x}");
        println!("{name}, drawn {:016x}", drawn::chain(game, game as u64));
    }
}
