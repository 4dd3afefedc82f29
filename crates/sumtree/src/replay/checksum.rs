//! A 64-bit checksum, fast enough to keep up with a disk: four lanes of xor, multiply, rotate over 32-byte
//! blocks. It detects accidental damage, not forgery.

const PRIME: u64 = 0x9e37_79b1_85eb_ca87;
const BLOCK: usize = 32;

pub(super) struct Checksum {
    lanes: [u64; 4],
    waiting: [u8; BLOCK],
    length: u64,
}

impl Checksum {
    pub fn new() -> Self {
        Self { lanes: [1, 2, 3, 4].map(|i: u64| i.wrapping_mul(PRIME)), waiting: [0; BLOCK], length: 0 }
    }

    /// Adds bytes. The result does not depend on how they are split into calls.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let waiting = (self.length % BLOCK as u64) as usize;
        self.length += bytes.len() as u64;
        if waiting > 0 {
            let taken = bytes.len().min(BLOCK - waiting);
            self.waiting[waiting..waiting + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if waiting + taken < BLOCK {
                return;
            }
            mix(&mut self.lanes, &self.waiting);
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        blocks.iter().for_each(|block| mix(&mut self.lanes, block));
        self.waiting[..rest.len()].copy_from_slice(rest);
    }

    pub fn finish(mut self) -> u64 {
        let waiting = (self.length % BLOCK as u64) as usize;
        self.waiting[waiting..].fill(0);
        mix(&mut self.lanes, &self.waiting);
        self.lanes
            .iter()
            .fold(self.length, |sum, lane| (sum ^ lane ^ (lane >> 29)).wrapping_mul(PRIME).rotate_left(27))
    }
}

#[inline(always)]
fn mix(lanes: &mut [u64; 4], block: &[u8; BLOCK]) {
    for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
        *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME).rotate_left(31);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(parts: &[&[u8]]) -> u64 {
        let mut sum = Checksum::new();
        parts.iter().for_each(|part| sum.update(part));
        sum.finish()
    }

    #[test]
    fn cuts_make_no_difference_and_every_bit_does() {
        let bytes: Vec<u8> = (0..100u8).collect();
        let whole = sum(&[&bytes]);
        for cut in 0..=100 {
            assert_eq!(sum(&[&bytes[..cut], &bytes[cut..]]), whole);
        }
        for bit in 0..800 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum(&[&changed]), whole, "bit {bit}");
        }
        assert_ne!(sum(&[&bytes, &[0]]), whole, "a zero at the end counts");
        assert_ne!(sum(&[]), sum(&[&[0]]));
    }
}
