//! MT19937 with 32-bit outputs, seeded with one integer in the standard way.
//!
//! Device subset.

use bytemuck::{Pod, Zeroable};

/// Number of state words.
pub const STATE_WORDS: usize = 624;
const MIDDLE: usize = 397;

/// State of the generator: the words and the index of the next output.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Random {
    /// The current words.
    pub words: [u32; STATE_WORDS],
    /// Index of the word for the next output.
    pub position: u32,
}

/// Returns a generator seeded with one integer.
pub fn seeded(seed: u32) -> Random {
    let mut random: Random = Random { words: [0; STATE_WORDS], position: STATE_WORDS as u32 };
    self::seed(&mut random, seed);
    random
}

/// Seeds a generator with one integer.
#[inline(never)]
pub fn seed(random: &mut Random, seed: u32) {
    random.words[0] = seed;
    for i in 1..STATE_WORDS {
        let previous: u32 = random.words[i - 1];
        random.words[i] = 1_812_433_253_u32.wrapping_mul(previous ^ (previous >> 30)).wrapping_add(i as u32);
    }
    random.position = STATE_WORDS as u32;
}

/// The word that follows a word, given its next one and the one [`MIDDLE`] places later.
#[inline(always)]
fn twisted(word: u32, next: u32, later: u32) -> u32 {
    let y: u32 = (word & 0x8000_0000) | (next & 0x7FFF_FFFF);
    let low: u32 = y & 1;
    later ^ (y >> 1) ^ (0x9908_B0DF & low.wrapping_neg())
}

#[inline(always)]
fn tempered(word: u32) -> u32 {
    let mut y: u32 = word;
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C_5680;
    y ^= (y << 15) & 0xEFC6_0000;
    y ^ (y >> 18)
}

#[inline(never)]
fn refill(random: &mut Random) {
    for i in 0..STATE_WORDS {
        random.words[i] = twisted(
            random.words[i],
            random.words[(i + 1) % STATE_WORDS],
            random.words[(i + MIDDLE) % STATE_WORDS],
        );
    }
    random.position = 0;
}

/// The number of outputs that [`early_draw`] knows.
pub const EARLY_DRAWS: u32 = (STATE_WORDS - MIDDLE) as u32;

/// Output number `number` of a generator that was seeded with `seed`; it must be less than [`EARLY_DRAWS`]. Needs no state: it
/// computes 398 to 624 words of the first one, and keeps three.
#[inline(never)]
pub fn early_draw(seed: u32, number: u32) -> u32 {
    let mut word: u32 = seed;
    let mut first: u32 = seed;
    let mut second: u32 = 0;
    for i in 1..number + MIDDLE as u32 + 1 {
        word = 1_812_433_253_u32.wrapping_mul(word ^ (word >> 30)).wrapping_add(i);
        if i == number {
            first = word;
        }
        if i == number + 1 {
            second = word;
        }
    }
    tempered(twisted(first, second, word))
}

/// Returns the next output.
pub fn draw(random: &mut Random) -> u32 {
    if random.position as usize >= STATE_WORDS {
        refill(random);
    }
    let word: u32 = random.words[random.position as usize];
    random.position += 1;
    tempered(word)
}

/// Skips `count` outputs, in a tenth of the time of drawing them.
#[inline(never)]
pub fn skip(random: &mut Random, count: u32) {
    let mut place: u64 = random.position as u64 + count as u64;
    while place > STATE_WORDS as u64 {
        refill(random);
        place -= STATE_WORDS as u64;
    }
    random.position = place as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_outputs() {
        let mut random = seeded(4_753_849);
        for expected in [0xBF11_AEB8, 0xA68B_E096, 0xFC86_C4C0, 0x7A04_1249] {
            assert_eq!(draw(&mut random), expected);
        }
        let mut random = seeded(42);
        assert_eq!(draw(&mut random), 1_608_637_542);
    }

    #[test]
    fn early_outputs_need_no_state() {
        for seed in [0, 42, 4_753_849, u32::MAX] {
            let mut random = seeded(seed);
            for number in 0..EARLY_DRAWS {
                assert_eq!(early_draw(seed, number), draw(&mut random), "seed {seed}, output {number}");
            }
        }
    }

    #[test]
    fn skipping_is_drawing() {
        for (first, count) in [(0, 0), (0, 1), (3, 620), (3, 621), (3, 622), (700, 5000), (0, 624), (0, 1248)]
        {
            let (mut a, mut b) = (seeded(7), seeded(7));
            for _ in 0..first {
                draw(&mut a);
                draw(&mut b);
            }
            for _ in 0..count {
                draw(&mut a);
            }
            skip(&mut b, count);
            assert_eq!(draw(&mut a), draw(&mut b), "{first} draws, {count} skipped");
        }
    }
}
