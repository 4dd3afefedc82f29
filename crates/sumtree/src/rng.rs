//! A small seeded random generator: the same draws on every platform.
//!
//! xoshiro256++ 1.0, seeded through SplitMix64. Source: Blackman & Vigna, "Scrambled linear pseudorandom number
//! generators" (2021); Lemire, "Fast random integer generation in an interval" (2019) for [`Rng::below`].

use crate::SumTreeError;

/// xoshiro256++: 256 bits of state, period 2^256 - 1. Not for cryptography.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of SplitMix64: adds the golden ratio to `state` and returns a mix of it.
pub(crate) fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// A generator whose state is the first four outputs of SplitMix64 started at `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut s = seed;
        Self { state: std::array::from_fn(|_| splitmix64(&mut s)) }
    }

    /// A generator that goes on where the one that gave this [`Rng::state`] stood.
    ///
    /// # Errors
    /// [`SumTreeError::RngState`] when all four words are zero.
    pub fn from_state(state: [u64; 4]) -> Result<Self, SumTreeError> {
        if state == [0; 4] { Err(SumTreeError::RngState) } else { Ok(Self { state }) }
    }

    /// The whole state, for a checkpoint.
    #[must_use]
    pub fn state(&self) -> [u64; 4] {
        self.state
    }

    /// 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let out = s0.wrapping_add(*s3).rotate_left(23).wrapping_add(*s0);
        let t = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= t;
        *s3 = s3.rotate_left(45);
        out
    }

    /// A uniform integer in `0..bound`, exactly uniform; 0 when `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut m = u128::from(self.next_u64()) * u128::from(bound);
        // The low half tells whether this value has one preimage too many; the division is done in that case alone.
        if (m as u64) < bound {
            let surplus = bound.wrapping_neg() % bound;
            while (m as u64) < surplus {
                m = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (m >> 64) as u64
    }

    /// A uniform number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Moves on by 2^128 draws: up to 2^128 generators made by repeated jumps from one seed never overlap.
    pub fn jump(&mut self) {
        const POLYNOMIAL: [u64; 4] =
            [0x180e_c6d3_3cfd_0aba, 0xd5a6_1266_f0c9_392c, 0xa958_2618_e03f_c9aa, 0x39ab_dc45_29b1_661c];
        let mut s = [0u64; 4];
        for word in POLYNOMIAL {
            for bit in 0..64 {
                if word >> bit & 1 == 1 {
                    s.iter_mut().zip(self.state).for_each(|(a, b)| *a ^= b);
                }
                self.next_u64();
            }
        }
        self.state = s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First outputs of xoshiro256++ from state (1, 2, 3, 4), computed by hand from its definition for the first:
    /// rotl(1 + 4, 23) + 1 = 5 * 2^23 + 1.
    #[test]
    fn first_outputs() {
        let mut rng = Rng::from_state([1, 2, 3, 4]).unwrap();
        assert_eq!(rng.next_u64(), 41_943_041);
        assert_eq!(rng.next_u64(), 58_720_359);
        assert_eq!(rng.next_u64(), 3_588_806_011_781_223);
    }

    #[test]
    fn splitmix_reference() {
        let mut s = 1_234_567;
        assert_eq!(splitmix64(&mut s), 6_457_827_717_110_365_317);
        assert_eq!(splitmix64(&mut s), 3_203_168_211_198_807_973);
    }

    #[test]
    fn state_round_trip_and_zero_state() {
        let mut a = Rng::new(7);
        a.next_u64();
        let mut b = Rng::from_state(a.state()).unwrap();
        assert_eq!(a.next_u64(), b.next_u64());
        assert_eq!(Rng::from_state([0; 4]), Err(SumTreeError::RngState));
    }

    #[test]
    fn below_is_in_range_and_hits_all() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 7];
        (0..7000).for_each(|_| seen[rng.below(7) as usize] += 1);
        assert!(seen.iter().all(|&c| (850..1150).contains(&c)), "{seen:?}");
        assert_eq!(rng.below(1), 0);
        assert_eq!(rng.below(0), 0);
        // A bound just above 2^63 rejects almost every second draw.
        assert!((0..1000).all(|_| rng.below((1 << 63) + 1) <= 1 << 63));
    }

    #[test]
    fn jump_leaves_the_stream() {
        let mut a = Rng::new(3);
        let b = a.clone();
        a.jump();
        assert_ne!(a, b);
        assert_ne!(a.state(), [0; 4]);
    }
}
