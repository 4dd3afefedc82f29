//! A small seeded random number generator with the same numbers on every platform and on a GPU.
//!
//! SplitMix64. It is counter-based: number `i` of a sequence is a function of the seed and of `i`, so that
//! the threads of a GPU compute their numbers independently (`kernels/random.cuh`). Reasons for the choice:
//! `docs/decisions/0006-random-numbers.md`. Source: Steele, Lea & Flood, "Fast splittable pseudorandom number
//! generators" (2014); Lemire, "Fast random integer generation in an interval" (2019) for [`Rng::below`].

/// SplitMix64: 64 bits of state, period 2^64. Not for cryptography.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

/// One step of SplitMix64: adds the golden ratio to `state` and returns a mix of it.
#[inline]
pub(crate) fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// Creates a generator from a seed. A saved [`Rng::state`] as the seed continues its sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The whole state, for a checkpoint.
    #[must_use]
    pub fn state(&self) -> u64 {
        self.state
    }

    /// 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        splitmix64(&mut self.state)
    }

    /// An exactly uniform integer in `0..bound`; 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut m = u128::from(self.next_u64()) * u128::from(bound);
        // Only if the low half is below `bound` may this value have to be rejected to avoid a bias; only then
        // is the division needed.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's reference outputs for this seed.
    #[test]
    fn first_outputs() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_state_continues_the_sequence() {
        let mut a = Rng::new(7);
        a.next_u64();
        let mut b = Rng::new(a.state());
        assert_eq!(a.next_u64(), b.next_u64());
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
}
