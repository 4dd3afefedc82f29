//! Device subset. Every operation of every integer type, on operands that keep plain arithmetic in range.

use super::mix;

/// 64 bits from the three inputs.
fn spread(a: u32, b: u32, c: u32) -> u64 {
    ((a as u64) << 32 | b as u64) ^ (c as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

pub fn case_u8(a: u32, b: u32, c: u32) -> u64 {
    let x: u8 = spread(a, b, c) as u8;
    let y: u8 = spread(b, c, a) as u8;
    let n: u32 = c % 8;
    let mut h: u64 = mix(x as u64, y as u64);
    h = mix(h, ((x >> 1) + (y >> 1)) as u64);
    h = mix(h, ((x >> 4) * (y >> 4)) as u64);
    h = mix(h, (x.max(y) - x.min(y)) as u64);
    h = mix(h, ((x >> 1) / (y | 1)) as u64);
    h = mix(h, ((x >> 1) % (y | 1)) as u64);
    h = mix(h, (x & y | !x ^ y) as u64);
    h = mix(h, (x << n) as u64);
    h = mix(h, (x >> n) as u64);
    h = mix(h, (!(x >> n) << (n / 2)) as u64);
    h = mix(h, x.wrapping_add(y) as u64);
    h = mix(h, x.wrapping_sub(y) as u64);
    h = mix(h, x.wrapping_mul(y) as u64);
    h = mix(h, x.wrapping_neg() as u64);
    h = mix(h, x.wrapping_shl(c) as u64);
    h = mix(h, x.wrapping_shr(c) as u64);
    h = mix(h, x.saturating_add(y) as u64);
    h = mix(h, x.saturating_sub(y) as u64);
    h = mix(h, x.rotate_left(c) as u64);
    h = mix(h, x.rotate_right(c) as u64);
    h = mix(h, x.reverse_bits() as u64);
    h = mix(h, x.swap_bytes() as u64);
    h = mix(h, (x.count_ones() * 3 + x.count_zeros()) as u64);
    h = mix(h, (x.leading_zeros() * 100 + x.trailing_zeros()) as u64);
    h = mix(h, ((y >> n).leading_zeros() * 100 + (y << n).trailing_zeros()) as u64);
    h = mix(h, (x.min(y) ^ x.max(y).rotate_left(3)) as u64);
    h = mix(h, x.clamp(y.min(5), y.max(5)) as u64);
    h = mix(h, (x >> 1).rem_euclid(y | 1) as u64);
    h = mix(h, u8::from_le_bytes(x.to_le_bytes()) as u64);
    h = mix(mix(mix(h, u8::MAX as u64), u8::MIN as u64), u8::BITS as u64);
    h = mix(h, (x < y) as u64 | ((x <= y) as u64) << 1 | ((x > y) as u64) << 2 | ((x >= y) as u64) << 3);
    h = mix(h, ((x == y) as u64) << 4 | ((x != y) as u64) << 5);
    h = mix(h, (y.min(9)..y.max(9)).contains(&x) as u64 | ((3..=77).contains(&x) as u64) << 1);
    h = mix(h, x.is_power_of_two() as u64 | (x.abs_diff(y) as u64) << 1);
    let mut z: u8 = x >> 2;
    z += y >> 2;
    z ^= 0x55;
    z |= x >> 1;
    z &= y;
    z >>= 1;
    z -= z / 2;
    z <<= n / 3;
    z /= 3;
    z %= 11;
    z *= 5;
    mix(h, z as u64)
}

pub fn case_u8_casts(a: u32, b: u32, c: u32) -> u64 {
    let x: u8 = spread(a, b, c) as u8;
    let mut h: u64 = mix(x as u8 as u64, x as u16 as u64);
    h = mix(h, x as u32 as u64);
    h = mix(h, x as u64);
    h = mix(h, x as i8 as u64);
    h = mix(h, x as i16 as u64);
    h = mix(h, x as i32 as u64);
    h = mix(h, x as i64 as u64);
    h = mix(h, (x & 0x7F) as usize as u64);
    h = mix(h, (x as f64 * 0.5) as i64 as u64);
    mix(h, (x != 0) as u8 as u64)
}

pub fn case_u16(a: u32, b: u32, c: u32) -> u64 {
    let x: u16 = spread(a, b, c) as u16;
    let y: u16 = spread(b, c, a) as u16;
    let n: u32 = c % 16;
    let mut h: u64 = mix(x as u64, y as u64);
    h = mix(h, ((x >> 1) + (y >> 1)) as u64);
    h = mix(h, ((x >> 8) * (y >> 8)) as u64);
    h = mix(h, (x.max(y) - x.min(y)) as u64);
    h = mix(h, ((x >> 1) / (y | 1)) as u64);
    h = mix(h, ((x >> 1) % (y | 1)) as u64);
    h = mix(h, (x & y | !x ^ y) as u64);
    h = mix(h, (x << n) as u64);
    h = mix(h, (x >> n) as u64);
    h = mix(h, (!(x >> n) << (n / 2)) as u64);
    h = mix(h, x.wrapping_add(y) as u64);
    h = mix(h, x.wrapping_sub(y) as u64);
    h = mix(h, x.wrapping_mul(y) as u64);
    h = mix(h, x.wrapping_neg() as u64);
    h = mix(h, x.wrapping_shl(c) as u64);
    h = mix(h, x.wrapping_shr(c) as u64);
    h = mix(h, x.saturating_add(y) as u64);
    h = mix(h, x.saturating_sub(y) as u64);
    h = mix(h, x.rotate_left(c) as u64);
    h = mix(h, x.rotate_right(c) as u64);
    h = mix(h, x.reverse_bits() as u64);
    h = mix(h, x.swap_bytes() as u64);
    h = mix(h, (x.count_ones() * 3 + x.count_zeros()) as u64);
    h = mix(h, (x.leading_zeros() * 100 + x.trailing_zeros()) as u64);
    h = mix(h, ((y >> n).leading_zeros() * 100 + (y << n).trailing_zeros()) as u64);
    h = mix(h, (x.min(y) ^ x.max(y).rotate_left(3)) as u64);
    h = mix(h, x.clamp(y.min(5), y.max(5)) as u64);
    h = mix(h, (x >> 1).rem_euclid(y | 1) as u64);
    h = mix(h, u16::from_le_bytes(x.to_le_bytes()) as u64);
    h = mix(mix(mix(h, u16::MAX as u64), u16::MIN as u64), u16::BITS as u64);
    h = mix(h, (x < y) as u64 | ((x <= y) as u64) << 1 | ((x > y) as u64) << 2 | ((x >= y) as u64) << 3);
    h = mix(h, ((x == y) as u64) << 4 | ((x != y) as u64) << 5);
    h = mix(h, (y.min(9)..y.max(9)).contains(&x) as u64 | ((3..=77).contains(&x) as u64) << 1);
    h = mix(h, x.is_power_of_two() as u64 | (x.abs_diff(y) as u64) << 1);
    let mut z: u16 = x >> 2;
    z += y >> 2;
    z ^= 0x55;
    z |= x >> 1;
    z &= y;
    z >>= 1;
    z -= z / 2;
    z <<= n / 3;
    z /= 3;
    z %= 11;
    z *= 5;
    mix(h, z as u64)
}

pub fn case_u16_casts(a: u32, b: u32, c: u32) -> u64 {
    let x: u16 = spread(a, b, c) as u16;
    let mut h: u64 = mix(x as u8 as u64, x as u16 as u64);
    h = mix(h, x as u32 as u64);
    h = mix(h, x as u64);
    h = mix(h, x as i8 as u64);
    h = mix(h, x as i16 as u64);
    h = mix(h, x as i32 as u64);
    h = mix(h, x as i64 as u64);
    h = mix(h, (x & 0x7F) as usize as u64);
    h = mix(h, (x as f64 * 0.5) as i64 as u64);
    mix(h, (x != 0) as u16 as u64)
}

pub fn case_u32(a: u32, b: u32, c: u32) -> u64 {
    let x: u32 = spread(a, b, c) as u32;
    let y: u32 = spread(b, c, a) as u32;
    let n: u32 = c % 32;
    let mut h: u64 = mix(x as u64, y as u64);
    h = mix(h, ((x >> 1) + (y >> 1)) as u64);
    h = mix(h, ((x >> 16) * (y >> 16)) as u64);
    h = mix(h, (x.max(y) - x.min(y)) as u64);
    h = mix(h, ((x >> 1) / (y | 1)) as u64);
    h = mix(h, ((x >> 1) % (y | 1)) as u64);
    h = mix(h, (x & y | !x ^ y) as u64);
    h = mix(h, (x << n) as u64);
    h = mix(h, (x >> n) as u64);
    h = mix(h, (!(x >> n) << (n / 2)) as u64);
    h = mix(h, x.wrapping_add(y) as u64);
    h = mix(h, x.wrapping_sub(y) as u64);
    h = mix(h, x.wrapping_mul(y) as u64);
    h = mix(h, x.wrapping_neg() as u64);
    h = mix(h, x.wrapping_shl(c) as u64);
    h = mix(h, x.wrapping_shr(c) as u64);
    h = mix(h, x.saturating_add(y) as u64);
    h = mix(h, x.saturating_sub(y) as u64);
    h = mix(h, x.rotate_left(c) as u64);
    h = mix(h, x.rotate_right(c) as u64);
    h = mix(h, x.reverse_bits() as u64);
    h = mix(h, x.swap_bytes() as u64);
    h = mix(h, (x.count_ones() * 3 + x.count_zeros()) as u64);
    h = mix(h, (x.leading_zeros() * 100 + x.trailing_zeros()) as u64);
    h = mix(h, ((y >> n).leading_zeros() * 100 + (y << n).trailing_zeros()) as u64);
    h = mix(h, (x.min(y) ^ x.max(y).rotate_left(3)) as u64);
    h = mix(h, x.clamp(y.min(5), y.max(5)) as u64);
    h = mix(h, (x >> 1).rem_euclid(y | 1) as u64);
    h = mix(h, u32::from_le_bytes(x.to_le_bytes()) as u64);
    h = mix(mix(mix(h, u32::MAX as u64), u32::MIN as u64), u32::BITS as u64);
    h = mix(h, (x < y) as u64 | ((x <= y) as u64) << 1 | ((x > y) as u64) << 2 | ((x >= y) as u64) << 3);
    h = mix(h, ((x == y) as u64) << 4 | ((x != y) as u64) << 5);
    h = mix(h, (y.min(9)..y.max(9)).contains(&x) as u64 | ((3..=77).contains(&x) as u64) << 1);
    h = mix(h, x.is_power_of_two() as u64 | (x.abs_diff(y) as u64) << 1);
    let mut z: u32 = x >> 2;
    z += y >> 2;
    z ^= 0x55;
    z |= x >> 1;
    z &= y;
    z >>= 1;
    z -= z / 2;
    z <<= n / 3;
    z /= 3;
    z %= 11;
    z *= 5;
    mix(h, z as u64)
}

pub fn case_u32_casts(a: u32, b: u32, c: u32) -> u64 {
    let x: u32 = spread(a, b, c) as u32;
    let mut h: u64 = mix(x as u8 as u64, x as u16 as u64);
    h = mix(h, x as u32 as u64);
    h = mix(h, x as u64);
    h = mix(h, x as i8 as u64);
    h = mix(h, x as i16 as u64);
    h = mix(h, x as i32 as u64);
    h = mix(h, x as i64 as u64);
    h = mix(h, (x & 0x7F) as usize as u64);
    h = mix(h, (x as f64 * 0.5) as i64 as u64);
    mix(h, (x != 0) as u32 as u64)
}

pub fn case_u64(a: u32, b: u32, c: u32) -> u64 {
    let x: u64 = spread(a, b, c) as u64;
    let y: u64 = spread(b, c, a) as u64;
    let n: u32 = c % 64;
    let mut h: u64 = mix(x as u64, y as u64);
    h = mix(h, ((x >> 1) + (y >> 1)) as u64);
    h = mix(h, ((x >> 32) * (y >> 32)) as u64);
    h = mix(h, (x.max(y) - x.min(y)) as u64);
    h = mix(h, ((x >> 1) / (y | 1)) as u64);
    h = mix(h, ((x >> 1) % (y | 1)) as u64);
    h = mix(h, (x & y | !x ^ y) as u64);
    h = mix(h, (x << n) as u64);
    h = mix(h, (x >> n) as u64);
    h = mix(h, (!(x >> n) << (n / 2)) as u64);
    h = mix(h, x.wrapping_add(y) as u64);
    h = mix(h, x.wrapping_sub(y) as u64);
    h = mix(h, x.wrapping_mul(y) as u64);
    h = mix(h, x.wrapping_neg() as u64);
    h = mix(h, x.wrapping_shl(c) as u64);
    h = mix(h, x.wrapping_shr(c) as u64);
    h = mix(h, x.saturating_add(y) as u64);
    h = mix(h, x.saturating_sub(y) as u64);
    h = mix(h, x.rotate_left(c) as u64);
    h = mix(h, x.rotate_right(c) as u64);
    h = mix(h, x.reverse_bits() as u64);
    h = mix(h, x.swap_bytes() as u64);
    h = mix(h, (x.count_ones() * 3 + x.count_zeros()) as u64);
    h = mix(h, (x.leading_zeros() * 100 + x.trailing_zeros()) as u64);
    h = mix(h, ((y >> n).leading_zeros() * 100 + (y << n).trailing_zeros()) as u64);
    h = mix(h, (x.min(y) ^ x.max(y).rotate_left(3)) as u64);
    h = mix(h, x.clamp(y.min(5), y.max(5)) as u64);
    h = mix(h, (x >> 1).rem_euclid(y | 1) as u64);
    h = mix(h, u64::from_le_bytes(x.to_le_bytes()) as u64);
    h = mix(mix(mix(h, u64::MAX as u64), u64::MIN as u64), u64::BITS as u64);
    h = mix(h, (x < y) as u64 | ((x <= y) as u64) << 1 | ((x > y) as u64) << 2 | ((x >= y) as u64) << 3);
    h = mix(h, ((x == y) as u64) << 4 | ((x != y) as u64) << 5);
    h = mix(h, (y.min(9)..y.max(9)).contains(&x) as u64 | ((3..=77).contains(&x) as u64) << 1);
    h = mix(h, x.is_power_of_two() as u64 | (x.abs_diff(y) as u64) << 1);
    let mut z: u64 = x >> 2;
    z += y >> 2;
    z ^= 0x55;
    z |= x >> 1;
    z &= y;
    z >>= 1;
    z -= z / 2;
    z <<= n / 3;
    z /= 3;
    z %= 11;
    z *= 5;
    mix(h, z as u64)
}

pub fn case_u64_casts(a: u32, b: u32, c: u32) -> u64 {
    let x: u64 = spread(a, b, c) as u64;
    let mut h: u64 = mix(x as u8 as u64, x as u16 as u64);
    h = mix(h, x as u32 as u64);
    h = mix(h, x as u64);
    h = mix(h, x as i8 as u64);
    h = mix(h, x as i16 as u64);
    h = mix(h, x as i32 as u64);
    h = mix(h, x as i64 as u64);
    h = mix(h, (x & 0x7F) as usize as u64);
    h = mix(h, (x as f64 * 0.5) as i64 as u64);
    mix(h, (x != 0) as u64 as u64)
}

pub fn case_i8(a: u32, b: u32, c: u32) -> u64 {
    let x: i8 = spread(a, b, c) as i8;
    let y: i8 = spread(b, c, a) as i8;
    let n: u32 = c % 8;
    let mut h: u64 = mix(x as u64, y as u64);
    h = mix(h, ((x >> 1) + (y >> 1)) as u64);
    h = mix(h, ((x >> 4) * (y >> 4)) as u64);
    h = mix(h, ((x >> 1) - (y >> 1)) as u64);
    h = mix(h, ((x >> 1) / (y | 1)) as u64);
    h = mix(h, ((x >> 1) % (y | 1)) as u64);
    h = mix(h, (x & y | !x ^ y) as u64);
    h = mix(h, (x << n) as u64);
    h = mix(h, (x >> n) as u64);
    h = mix(h, (!(x >> n) << (n / 2)) as u64);
    h = mix(h, x.wrapping_add(y) as u64);
    h = mix(h, x.wrapping_sub(y) as u64);
    h = mix(h, x.wrapping_mul(y) as u64);
    h = mix(h, x.wrapping_neg() as u64);
    h = mix(h, x.wrapping_shl(c) as u64);
    h = mix(h, x.wrapping_shr(c) as u64);
    h = mix(h, x.saturating_add(y) as u64);
    h = mix(h, x.saturating_sub(y) as u64);
    h = mix(h, x.rotate_left(c) as u64);
    h = mix(h, x.rotate_right(c) as u64);
    h = mix(h, x.reverse_bits() as u64);
    h = mix(h, x.swap_bytes() as u64);
    h = mix(h, (x.count_ones() * 3 + x.count_zeros()) as u64);
    h = mix(h, (x.leading_zeros() * 100 + x.trailing_zeros()) as u64);
    h = mix(h, ((y >> n).leading_zeros() * 100 + (y << n).trailing_zeros()) as u64);
    h = mix(h, (x.min(y) ^ x.max(y).rotate_left(3)) as u64);
    h = mix(h, x.clamp(y.min(5), y.max(5)) as u64);
    h = mix(h, (x >> 1).rem_euclid(y | 1) as u64);
    h = mix(h, i8::from_le_bytes(x.to_le_bytes()) as u64);
    h = mix(mix(mix(h, i8::MAX as u64), i8::MIN as u64), i8::BITS as u64);
    h = mix(h, (x < y) as u64 | ((x <= y) as u64) << 1 | ((x > y) as u64) << 2 | ((x >= y) as u64) << 3);
    h = mix(h, ((x == y) as u64) << 4 | ((x != y) as u64) << 5);
    h = mix(h, (y.min(9)..y.max(9)).contains(&x) as u64 | ((3..=77).contains(&x) as u64) << 1);
    h = mix(h, (-(x >> 1)) as u64);
    h = mix(h, ((x >> 1).abs() ^ x.signum()) as u64);
    let mut z: i8 = x >> 2;
    z += y >> 2;
    z ^= 0x55;
    z |= x >> 1;
    z &= y;
    z >>= 1;
    z -= z / 2;
    z <<= n / 3;
    z /= 3;
    z %= 11;
    z *= 5;
    mix(h, z as u64)
}

pub fn case_i8_casts(a: u32, b: u32, c: u32) -> u64 {
    let x: i8 = spread(a, b, c) as i8;
    let mut h: u64 = mix(x as u8 as u64, x as u16 as u64);
    h = mix(h, x as u32 as u64);
    h = mix(h, x as u64);
    h = mix(h, x as i8 as u64);
    h = mix(h, x as i16 as u64);
    h = mix(h, x as i32 as u64);
    h = mix(h, x as i64 as u64);
    h = mix(h, (x & 0x7F) as usize as u64);
    h = mix(h, (x as f64 * 0.5) as i64 as u64);
    mix(h, (x != 0) as i8 as u64)
}

pub fn case_i16(a: u32, b: u32, c: u32) -> u64 {
    let x: i16 = spread(a, b, c) as i16;
    let y: i16 = spread(b, c, a) as i16;
    let n: u32 = c % 16;
    let mut h: u64 = mix(x as u64, y as u64);
    h = mix(h, ((x >> 1) + (y >> 1)) as u64);
    h = mix(h, ((x >> 8) * (y >> 8)) as u64);
    h = mix(h, ((x >> 1) - (y >> 1)) as u64);
    h = mix(h, ((x >> 1) / (y | 1)) as u64);
    h = mix(h, ((x >> 1) % (y | 1)) as u64);
    h = mix(h, (x & y | !x ^ y) as u64);
    h = mix(h, (x << n) as u64);
    h = mix(h, (x >> n) as u64);
    h = mix(h, (!(x >> n) << (n / 2)) as u64);
    h = mix(h, x.wrapping_add(y) as u64);
    h = mix(h, x.wrapping_sub(y) as u64);
    h = mix(h, x.wrapping_mul(y) as u64);
    h = mix(h, x.wrapping_neg() as u64);
    h = mix(h, x.wrapping_shl(c) as u64);
    h = mix(h, x.wrapping_shr(c) as u64);
    h = mix(h, x.saturating_add(y) as u64);
    h = mix(h, x.saturating_sub(y) as u64);
    h = mix(h, x.rotate_left(c) as u64);
    h = mix(h, x.rotate_right(c) as u64);
    h = mix(h, x.reverse_bits() as u64);
    h = mix(h, x.swap_bytes() as u64);
    h = mix(h, (x.count_ones() * 3 + x.count_zeros()) as u64);
    h = mix(h, (x.leading_zeros() * 100 + x.trailing_zeros()) as u64);
    h = mix(h, ((y >> n).leading_zeros() * 100 + (y << n).trailing_zeros()) as u64);
    h = mix(h, (x.min(y) ^ x.max(y).rotate_left(3)) as u64);
    h = mix(h, x.clamp(y.min(5), y.max(5)) as u64);
    h = mix(h, (x >> 1).rem_euclid(y | 1) as u64);
    h = mix(h, i16::from_le_bytes(x.to_le_bytes()) as u64);
    h = mix(mix(mix(h, i16::MAX as u64), i16::MIN as u64), i16::BITS as u64);
    h = mix(h, (x < y) as u64 | ((x <= y) as u64) << 1 | ((x > y) as u64) << 2 | ((x >= y) as u64) << 3);
    h = mix(h, ((x == y) as u64) << 4 | ((x != y) as u64) << 5);
    h = mix(h, (y.min(9)..y.max(9)).contains(&x) as u64 | ((3..=77).contains(&x) as u64) << 1);
    h = mix(h, (-(x >> 1)) as u64);
    h = mix(h, ((x >> 1).abs() ^ x.signum()) as u64);
    let mut z: i16 = x >> 2;
    z += y >> 2;
    z ^= 0x55;
    z |= x >> 1;
    z &= y;
    z >>= 1;
    z -= z / 2;
    z <<= n / 3;
    z /= 3;
    z %= 11;
    z *= 5;
    mix(h, z as u64)
}

pub fn case_i16_casts(a: u32, b: u32, c: u32) -> u64 {
    let x: i16 = spread(a, b, c) as i16;
    let mut h: u64 = mix(x as u8 as u64, x as u16 as u64);
    h = mix(h, x as u32 as u64);
    h = mix(h, x as u64);
    h = mix(h, x as i8 as u64);
    h = mix(h, x as i16 as u64);
    h = mix(h, x as i32 as u64);
    h = mix(h, x as i64 as u64);
    h = mix(h, (x & 0x7F) as usize as u64);
    h = mix(h, (x as f64 * 0.5) as i64 as u64);
    mix(h, (x != 0) as i16 as u64)
}

pub fn case_i32(a: u32, b: u32, c: u32) -> u64 {
    let x: i32 = spread(a, b, c) as i32;
    let y: i32 = spread(b, c, a) as i32;
    let n: u32 = c % 32;
    let mut h: u64 = mix(x as u64, y as u64);
    h = mix(h, ((x >> 1) + (y >> 1)) as u64);
    h = mix(h, ((x >> 16) * (y >> 16)) as u64);
    h = mix(h, ((x >> 1) - (y >> 1)) as u64);
    h = mix(h, ((x >> 1) / (y | 1)) as u64);
    h = mix(h, ((x >> 1) % (y | 1)) as u64);
    h = mix(h, (x & y | !x ^ y) as u64);
    h = mix(h, (x << n) as u64);
    h = mix(h, (x >> n) as u64);
    h = mix(h, (!(x >> n) << (n / 2)) as u64);
    h = mix(h, x.wrapping_add(y) as u64);
    h = mix(h, x.wrapping_sub(y) as u64);
    h = mix(h, x.wrapping_mul(y) as u64);
    h = mix(h, x.wrapping_neg() as u64);
    h = mix(h, x.wrapping_shl(c) as u64);
    h = mix(h, x.wrapping_shr(c) as u64);
    h = mix(h, x.saturating_add(y) as u64);
    h = mix(h, x.saturating_sub(y) as u64);
    h = mix(h, x.rotate_left(c) as u64);
    h = mix(h, x.rotate_right(c) as u64);
    h = mix(h, x.reverse_bits() as u64);
    h = mix(h, x.swap_bytes() as u64);
    h = mix(h, (x.count_ones() * 3 + x.count_zeros()) as u64);
    h = mix(h, (x.leading_zeros() * 100 + x.trailing_zeros()) as u64);
    h = mix(h, ((y >> n).leading_zeros() * 100 + (y << n).trailing_zeros()) as u64);
    h = mix(h, (x.min(y) ^ x.max(y).rotate_left(3)) as u64);
    h = mix(h, x.clamp(y.min(5), y.max(5)) as u64);
    h = mix(h, (x >> 1).rem_euclid(y | 1) as u64);
    h = mix(h, i32::from_le_bytes(x.to_le_bytes()) as u64);
    h = mix(mix(mix(h, i32::MAX as u64), i32::MIN as u64), i32::BITS as u64);
    h = mix(h, (x < y) as u64 | ((x <= y) as u64) << 1 | ((x > y) as u64) << 2 | ((x >= y) as u64) << 3);
    h = mix(h, ((x == y) as u64) << 4 | ((x != y) as u64) << 5);
    h = mix(h, (y.min(9)..y.max(9)).contains(&x) as u64 | ((3..=77).contains(&x) as u64) << 1);
    h = mix(h, (-(x >> 1)) as u64);
    h = mix(h, ((x >> 1).abs() ^ x.signum()) as u64);
    let mut z: i32 = x >> 2;
    z += y >> 2;
    z ^= 0x55;
    z |= x >> 1;
    z &= y;
    z >>= 1;
    z -= z / 2;
    z <<= n / 3;
    z /= 3;
    z %= 11;
    z *= 5;
    mix(h, z as u64)
}

pub fn case_i32_casts(a: u32, b: u32, c: u32) -> u64 {
    let x: i32 = spread(a, b, c) as i32;
    let mut h: u64 = mix(x as u8 as u64, x as u16 as u64);
    h = mix(h, x as u32 as u64);
    h = mix(h, x as u64);
    h = mix(h, x as i8 as u64);
    h = mix(h, x as i16 as u64);
    h = mix(h, x as i32 as u64);
    h = mix(h, x as i64 as u64);
    h = mix(h, (x & 0x7F) as usize as u64);
    h = mix(h, (x as f64 * 0.5) as i64 as u64);
    mix(h, (x != 0) as i32 as u64)
}

pub fn case_i64(a: u32, b: u32, c: u32) -> u64 {
    let x: i64 = spread(a, b, c) as i64;
    let y: i64 = spread(b, c, a) as i64;
    let n: u32 = c % 64;
    let mut h: u64 = mix(x as u64, y as u64);
    h = mix(h, ((x >> 1) + (y >> 1)) as u64);
    h = mix(h, ((x >> 32) * (y >> 32)) as u64);
    h = mix(h, ((x >> 1) - (y >> 1)) as u64);
    h = mix(h, ((x >> 1) / (y | 1)) as u64);
    h = mix(h, ((x >> 1) % (y | 1)) as u64);
    h = mix(h, (x & y | !x ^ y) as u64);
    h = mix(h, (x << n) as u64);
    h = mix(h, (x >> n) as u64);
    h = mix(h, (!(x >> n) << (n / 2)) as u64);
    h = mix(h, x.wrapping_add(y) as u64);
    h = mix(h, x.wrapping_sub(y) as u64);
    h = mix(h, x.wrapping_mul(y) as u64);
    h = mix(h, x.wrapping_neg() as u64);
    h = mix(h, x.wrapping_shl(c) as u64);
    h = mix(h, x.wrapping_shr(c) as u64);
    h = mix(h, x.saturating_add(y) as u64);
    h = mix(h, x.saturating_sub(y) as u64);
    h = mix(h, x.rotate_left(c) as u64);
    h = mix(h, x.rotate_right(c) as u64);
    h = mix(h, x.reverse_bits() as u64);
    h = mix(h, x.swap_bytes() as u64);
    h = mix(h, (x.count_ones() * 3 + x.count_zeros()) as u64);
    h = mix(h, (x.leading_zeros() * 100 + x.trailing_zeros()) as u64);
    h = mix(h, ((y >> n).leading_zeros() * 100 + (y << n).trailing_zeros()) as u64);
    h = mix(h, (x.min(y) ^ x.max(y).rotate_left(3)) as u64);
    h = mix(h, x.clamp(y.min(5), y.max(5)) as u64);
    h = mix(h, (x >> 1).rem_euclid(y | 1) as u64);
    h = mix(h, i64::from_le_bytes(x.to_le_bytes()) as u64);
    h = mix(mix(mix(h, i64::MAX as u64), i64::MIN as u64), i64::BITS as u64);
    h = mix(h, (x < y) as u64 | ((x <= y) as u64) << 1 | ((x > y) as u64) << 2 | ((x >= y) as u64) << 3);
    h = mix(h, ((x == y) as u64) << 4 | ((x != y) as u64) << 5);
    h = mix(h, (y.min(9)..y.max(9)).contains(&x) as u64 | ((3..=77).contains(&x) as u64) << 1);
    h = mix(h, (-(x >> 1)) as u64);
    h = mix(h, ((x >> 1).abs() ^ x.signum()) as u64);
    let mut z: i64 = x >> 2;
    z += y >> 2;
    z ^= 0x55;
    z |= x >> 1;
    z &= y;
    z >>= 1;
    z -= z / 2;
    z <<= n / 3;
    z /= 3;
    z %= 11;
    z *= 5;
    mix(h, z as u64)
}

pub fn case_i64_casts(a: u32, b: u32, c: u32) -> u64 {
    let x: i64 = spread(a, b, c) as i64;
    let mut h: u64 = mix(x as u8 as u64, x as u16 as u64);
    h = mix(h, x as u32 as u64);
    h = mix(h, x as u64);
    h = mix(h, x as i8 as u64);
    h = mix(h, x as i16 as u64);
    h = mix(h, x as i32 as u64);
    h = mix(h, x as i64 as u64);
    h = mix(h, (x & 0x7F) as usize as u64);
    h = mix(h, (x as f64 * 0.5) as i64 as u64);
    mix(h, (x != 0) as i64 as u64)
}
