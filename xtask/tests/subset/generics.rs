//! Device subset. A trait, functions with a parameter of it, and one that implements it: on a device, a struct in C++.

use super::mix;

pub type Line = [u32; 4];

/// Adds numbers up.
pub trait Adder {
    fn add(&mut self, value: u32) -> u32;
    fn total(&self, line: &Line) -> u64;
    fn put(&mut self, line: &mut Line, at: usize);
}

fn twice<A: Adder>(adder: &mut A, value: u32) -> u64 {
    let first: u32 = adder.add(value);
    // What is read before a call that writes is read before it.
    mix(first as u64, adder.add(first ^ value) as u64)
}

#[inline(never)]
pub fn sum<A: Adder>(adder: &mut A, a: u32, b: u32, c: u32) -> u64 {
    let mut line: Line = [a, b, c, 1];
    let mut hash: u64 = adder.total(&line);
    for i in 0..4usize {
        hash = mix(hash, twice(adder, line[i]));
        adder.put(&mut line, i);
        hash = mix(adder.total(&line), (line[i] ^ adder.add(c)) as u64 ^ hash);
    }
    hash
}

#[cfg(not(device))]
struct Kept {
    now: u32,
}

#[cfg(not(device))]
impl Adder for Kept {
    fn add(&mut self, value: u32) -> u32 {
        self.now = self.now.wrapping_mul(3).wrapping_add(value);
        self.now
    }

    fn total(&self, line: &Line) -> u64 {
        u64::from(self.now) << 1 ^ u64::from(line[2])
    }

    fn put(&mut self, line: &mut Line, at: usize) {
        line[at] = self.now;
        self.now ^= 1;
    }
}

#[cfg(not(device))]
pub fn case_sum(a: u32, b: u32, c: u32) -> u64 {
    sum(&mut Kept { now: b }, a, b, c)
}
