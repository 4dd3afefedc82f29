//! NumPy's default generator, as far as Gymnasium's wrappers draw from it: `SeedSequence`, PCG64, bounded integers.
//!
//! Source: O'Neill (2014), "PCG: a family of simple fast space-efficient statistically good algorithms" (XSL RR 128/64),
//! and the seeding that NumPy documents under `SeedSequence`; checked against NumPy's numbers below.

use bytemuck::{Pod, Zeroable};

const POOL: usize = 4;
const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

/// Words made from a seed, as `SeedSequence(seed).generate_state(N)` gives them.
pub fn seed_words<const N: usize>(seed: u64) -> [u32; N] {
    let entropy = [seed as u32, (seed >> 32) as u32, 0, 0];
    let mut constant: u32 = 0x43B0_D7E5;
    let mut scramble = |value: u32| {
        let value = value ^ constant;
        constant = constant.wrapping_mul(0x931E_8875);
        let value = value.wrapping_mul(constant);
        value ^ (value >> 16)
    };
    let mut pool = entropy.map(&mut scramble);
    for from in 0..POOL {
        for to in 0..POOL {
            if from != to {
                let other = scramble(pool[from]);
                let mixed = pool[to].wrapping_mul(0xCA01_F9DD).wrapping_sub(other.wrapping_mul(0x4973_F715));
                pool[to] = mixed ^ (mixed >> 16);
            }
        }
    }
    let mut constant: u32 = 0x8B51_F9DD;
    std::array::from_fn(|i| {
        let value = pool[i % POOL] ^ constant;
        constant = constant.wrapping_mul(0x58F3_8DED);
        let value = value.wrapping_mul(constant);
        value ^ (value >> 16)
    })
}

/// PCG64 with the half of its last output that a 32-bit draw has left.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct NumpyRandom {
    state: [u64; 2],
    increment: [u64; 2],
    kept: u32,
    has_kept: u32,
}

fn wide(words: [u64; 2]) -> u128 {
    u128::from(words[0]) << 64 | u128::from(words[1])
}

fn narrow(value: u128) -> [u64; 2] {
    [(value >> 64) as u64, value as u64]
}

impl NumpyRandom {
    /// `numpy.random.default_rng(seed)`.
    pub fn seeded(seed: u64) -> Self {
        let words: [u32; 8] = seed_words(seed);
        let pair = |i: usize| u64::from(words[2 * i]) | u64::from(words[2 * i + 1]) << 32;
        let increment = wide([pair(2), pair(3)]) << 1 | 1;
        let state = increment.wrapping_add(wide([pair(0), pair(1)]));
        let state = state.wrapping_mul(MULTIPLIER).wrapping_add(increment);
        Self { state: narrow(state), increment: narrow(increment), kept: 0, has_kept: 0 }
    }

    fn next_u64(&mut self) -> u64 {
        let state = wide(self.state).wrapping_mul(MULTIPLIER).wrapping_add(wide(self.increment));
        self.state = narrow(state);
        (self.state[0] ^ self.state[1]).rotate_right((state >> 122) as u32)
    }

    fn next_u32(&mut self) -> u32 {
        if self.has_kept != 0 {
            self.has_kept = 0;
            return self.kept;
        }
        let both = self.next_u64();
        self.kept = (both >> 32) as u32;
        self.has_kept = 1;
        both as u32
    }

    /// `integers(low, high)`: uniform in `low..high`.
    pub fn integers(&mut self, low: u32, high: u32) -> u32 {
        let n = high - low;
        if n == 1 {
            return low;
        }
        let threshold = n.wrapping_neg() % n;
        loop {
            let product = u64::from(self.next_u32()) * u64::from(n);
            if product as u32 >= threshold {
                return low + (product >> 32) as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_draws_of_numpy() {
        // numpy.random.SeedSequence(3).generate_state(2)
        assert_eq!(seed_words::<2>(3), [1_576_890_651, 2_902_887_791]);
        // default_rng(SeedSequence(s).generate_state(2)[0]).integers(1, 31), twice.
        for (seed, expected) in [(0, [22, 1]), (3, [25, 15]), (42, [11, 29])] {
            let mut random = NumpyRandom::seeded(u64::from(seed_words::<2>(seed)[0]));
            assert_eq!([random.integers(1, 31), random.integers(1, 31)], expected, "seed {seed}");
        }
    }
}
