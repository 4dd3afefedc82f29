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

#[inline(never)]
fn refill(random: &mut Random) {
    for i in 0..STATE_WORDS {
        let y: u32 = (random.words[i] & 0x8000_0000) | (random.words[(i + 1) % STATE_WORDS] & 0x7FFF_FFFF);
        let mut next: u32 = random.words[(i + MIDDLE) % STATE_WORDS] ^ (y >> 1);
        if y & 1 != 0 {
            next ^= 0x9908_B0DF;
        }
        random.words[i] = next;
    }
    random.position = 0;
}

/// Returns the next output.
pub fn draw(random: &mut Random) -> u32 {
    if random.position as usize >= STATE_WORDS {
        refill(random);
    }
    let mut y: u32 = random.words[random.position as usize];
    random.position += 1;
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C_5680;
    y ^= (y << 15) & 0xEFC6_0000;
    y ^ (y >> 18)
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
