//! Evaluates a game's rule on random RAM and hashes the results to one number.

use super::games::evaluate::{evaluate, start_values};
use super::games::table::GAMES;
use super::games::{self, select};

const STEPS: u64 = 50_000;
/// Values that rules compare with more often than with others.
const COMMON: [u8; 12] = [0, 1, 2, 3, 4, 8, 0x0F, 0x10, 0x80, 0xA0, 0xAA, 0xFF];

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Adds a number to a chain of FNV-1a hashes.
pub fn link(chain: u64, value: i64) -> u64 {
    value.to_le_bytes().iter().fold(chain, |c, byte| (c ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Changes `count` random bytes: to any value, to a common value, to two decimal digits, or by one.
fn change(ram: &mut [u8; 128], random: &mut u64, count: u64) {
    for _ in 0..count {
        let drawn = draw(random);
        let byte = &mut ram[(drawn & 127) as usize];
        let value = (drawn >> 16) as u8;
        *byte = match (drawn >> 8) & 7 {
            0 | 1 => value,
            2..=4 => COMMON[value as usize % COMMON.len()],
            5 | 6 => ((value % 10) << 4) | ((value / 10) % 10),
            _ => byte.wrapping_add(value & 2).wrapping_sub(1),
        };
    }
}

/// The chained hash over reward, lives and game over of every step, and over the results of the game's mode
/// selection. `seed` is the seed of the RAM; it does not depend on the game's row in the table.
pub fn chain(game: usize, seed: u64) -> u64 {
    let mut random = seed;
    let (mut ram, mut cart_ram) = ([0u8; 128], [0u8; 128]);
    let mut rules = games::new(0);
    let mut chain = 0xcbf2_9ce4_8422_2325;
    for value in [select::press_frames(game, GAMES[game].modes[0]), select::first_press(game)] {
        chain = link(chain, i64::from(value));
    }
    for i in 0..600 {
        chain = link(chain, i64::from(select::start_action(game, i)));
    }
    for step in 0..STEPS {
        change(&mut ram, &mut random, 6);
        change(&mut cart_ram, &mut random, 2);
        if step % 50 == 0 {
            // Clears the RAM now and then, as most programs do.
            if step % 200 == 0 {
                (ram, cart_ram) = ([0; 128], [0; 128]);
            }
            rules.mode = (draw(&mut random) % 70) as u32;
            start_values(&mut rules, game);
            rules.over = 0;
            select::on_reached(&mut rules, game, step % 100 == 0, &ram);
            chain = link(chain, i64::from(games::lives(&rules, game)));
        }
        for mode in [rules.mode as i32, i32::from(ram[(draw(&mut random) & 127) as usize])] {
            chain = link(chain, i64::from(select::reached(game, mode, &ram, &cart_ram)));
        }
        evaluate(&mut rules, game, &ram, &cart_ram);
        let seen = [rules.reward, games::lives(&rules, game), i32::from(rules.over)];
        chain = seen.iter().fold(chain, |chain, value| link(chain, i64::from(*value)));
    }
    chain
}
