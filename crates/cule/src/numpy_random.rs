//! NumPy's default generator, as far as Gymnasium's wrappers use it: `SeedSequence`, PCG64, bounded integers.
//!
//! Device subset.
//!
//! Sources: O'Neill (2014), "PCG: a family of simple fast space-efficient statistically good algorithms" (XSL
//! RR 128/64), and the seeding that NumPy documents under `SeedSequence`. The tests compare with values of
//! NumPy.

use bytemuck::{Pod, Zeroable};

const POOL: usize = 4;
/// Multiplier of the generator's step, 128 bits: high word, low word.
const MULTIPLIER: [u64; 2] = [0x2360_ED05_1FC6_5DA4, 0x4385_DF64_9FCC_F645];

/// Hashes a word for the pool of `SeedSequence`, and updates the hash constant.
fn scramble(value: u32, constant: &mut u32) -> u32 {
    let mixed: u32 = value ^ *constant;
    *constant = constant.wrapping_mul(0x931E_8875);
    let product: u32 = mixed.wrapping_mul(*constant);
    product ^ (product >> 16)
}

/// The first eight words of `SeedSequence(seed).generate_state(n)`, which are the same for all n >= 8.
pub fn seed_words(seed: u64) -> [u32; 8] {
    let entropy: [u32; POOL] = [seed as u32, (seed >> 32) as u32, 0, 0];
    let mut constant: u32 = 0x43B0_D7E5;
    let mut pool: [u32; POOL] = [0; POOL];
    for i in 0..POOL {
        pool[i] = scramble(entropy[i], &mut constant);
    }
    for from in 0..POOL {
        for to in 0..POOL {
            if from != to {
                let source: u32 = pool[from];
                let other: u32 = scramble(source, &mut constant);
                let mixed: u32 =
                    pool[to].wrapping_mul(0xCA01_F9DD).wrapping_sub(other.wrapping_mul(0x4973_F715));
                pool[to] = mixed ^ (mixed >> 16);
            }
        }
    }
    let mut words: [u32; 8] = [0; 8];
    constant = 0x8B51_F9DD;
    for i in 0..8usize {
        let mixed: u32 = pool[i % POOL] ^ constant;
        constant = constant.wrapping_mul(0x58F3_8DED);
        let product: u32 = mixed.wrapping_mul(constant);
        words[i] = product ^ (product >> 16);
    }
    words
}

/// PCG64, with the upper half of the last output if a 32-bit draw has not used it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct NumpyRandom {
    state: [u64; 2],
    increment: [u64; 2],
    kept: u32,
    has_kept: u32,
}

/// Low 128 bits of a sum: high word, low word.
fn add(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    let low: u64 = a[1].wrapping_add(b[1]);
    let carry: u64 = (low < a[1]) as u64;
    [a[0].wrapping_add(b[0]).wrapping_add(carry), low]
}

/// High word of a product.
fn high(a: u64, b: u64) -> u64 {
    let low: u64 = (a & 0xFFFF_FFFF) * (b & 0xFFFF_FFFF);
    let first: u64 = (a >> 32) * (b & 0xFFFF_FFFF) + (low >> 32);
    let second: u64 = (a & 0xFFFF_FFFF) * (b >> 32) + (first & 0xFFFF_FFFF);
    (a >> 32) * (b >> 32) + (first >> 32) + (second >> 32)
}

/// Low 128 bits of a product: high word, low word.
fn multiply(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    let outer: u64 = a[0].wrapping_mul(b[1]).wrapping_add(a[1].wrapping_mul(b[0]));
    [high(a[1], b[1]).wrapping_add(outer), a[1].wrapping_mul(b[1])]
}

/// `numpy.random.default_rng(seed)`.
pub fn seeded(seed: u64) -> NumpyRandom {
    let words: [u32; 8] = seed_words(seed);
    let mut pairs: [u64; 4] = [0; 4];
    for i in 0..4usize {
        pairs[i] = words[2 * i] as u64 | (words[2 * i + 1] as u64) << 32;
    }
    let increment: [u64; 2] = [pairs[2] << 1 | pairs[3] >> 63, pairs[3] << 1 | 1];
    let first: [u64; 2] = add(increment, [pairs[0], pairs[1]]);
    NumpyRandom { state: add(multiply(first, MULTIPLIER), increment), increment, kept: 0, has_kept: 0 }
}

fn next_u64(random: &mut NumpyRandom) -> u64 {
    let state: [u64; 2] = add(multiply(random.state, MULTIPLIER), random.increment);
    random.state = state;
    (state[0] ^ state[1]).rotate_right((state[0] >> 58) as u32)
}

fn next_u32(random: &mut NumpyRandom) -> u32 {
    if random.has_kept != 0 {
        random.has_kept = 0;
        return random.kept;
    }
    let both: u64 = next_u64(random);
    random.kept = (both >> 32) as u32;
    random.has_kept = 1;
    both as u32
}

/// `integers(low, high)`: uniform in `low..high`. Requires `low < high`.
pub fn integers(random: &mut NumpyRandom, low: u32, high: u32) -> u32 {
    let n: u32 = high - low;
    if n == 1 {
        return low;
    }
    let threshold: u32 = n.wrapping_neg() % n;
    let mut product: u64 = next_u32(random) as u64 * n as u64;
    while (product as u32) < threshold {
        product = next_u32(random) as u64 * n as u64;
    }
    low + (product >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_draws_of_numpy() {
        // numpy.random.SeedSequence(3).generate_state(2)
        assert_eq!(seed_words(3)[..2], [1_576_890_651, 2_902_887_791]);
        // The first two values of default_rng(SeedSequence(s).generate_state(2)[0]).integers(1, 31).
        for (seed, expected) in [(0, [22, 1]), (3, [25, 15]), (42, [11, 29])] {
            let mut random = seeded(u64::from(seed_words(seed)[0]));
            assert_eq!([integers(&mut random, 1, 31), integers(&mut random, 1, 31)], expected, "seed {seed}");
        }
    }
}
