//! Device subset. `if`, `match`, loops, early return, as statements and as values.

use super::constants::WIDTH;
use super::mix;

const KIND_A: u8 = 3;
const KIND_B: u8 = 4;

fn classify(n: u8) -> u32 {
    match n {
        0 => 1,
        KIND_A | KIND_B => 2,
        5..=9 | 11 => {
            if n == 7 {
                return 77;
            }
            3
        }
        7 => 1000,
        0x20..0x30 => n as u32 * 2,
        0xF0.. => 5,
        _ => 6,
    }
}

pub fn case_match(a: u32, b: u32, c: u32) -> u64 {
    let mut h: u64 = mix(classify(a as u8) as u64, classify(b as u8 & 15) as u64);
    let signed: i32 = match c as i32 % 100 {
        -99..=-50 => -1,
        -49..=-1 => -2,
        0 => 0,
        i32::MIN..=-100 => 99,
        n => n * 2,
    };
    h = mix(h, signed as u64);
    match (a & 1 != 0, b & 3) {
        (true, 0) => h = mix(h, 1),
        (true, n) => h = mix(h, n as u64 + 10),
        (false, 1 | 2) => h = mix(h, 3),
        (false, _) => {
            if c & 1 == 0 {
                return h;
            }
            h = mix(h, 4);
        }
    }
    let guarded: u32 = match a & 7 {
        n if n > 5 => n,
        2 | 3 if b & 1 == 0 => 20,
        2 => 21,
        _ => 22,
    };
    h = mix(h, guarded as u64);
    let flag: u8 = match b & 1 == 0 {
        true => 8,
        false => 9,
    };
    h = mix(h, flag as u64 | (matches!(a & 15, 1 | 4..=6) as u64) << 4);
    let wide: u64 = match (a as u64) << 32 | b as u64 {
        0..=0xFFFF => 1,
        0x1_0000_0000..=0xFFFF_FFFF_FFFF_FFFF => 2,
        _ => 3,
    };
    mix(
        h,
        wide + h
            % (1 + match c & 1 {
                0 => 10,
                _ => 20,
            }),
    )
}

pub fn case_if(a: u32, b: u32, c: u32) -> u64 {
    let x: u8 = if a & 1 == 0 { b as u8 } else { 5 };
    let y: i32 = if a & 2 == 0 {
        -1
    } else if b & 2 == 0 {
        a as i32 >> 4
    } else {
        7
    };
    let mut z: u32 = 0;
    if a > b {
        z = 1;
    } else if a == b || (b > c && a & 8 != 0) {
        z = 2;
    } else if (if c & 1 == 0 { a } else { b }) & 16 != 0 {
        z = 3;
    } else if {
        let t: u32 = a ^ c;
        t & 32 != 0
    } {
        z = 4 + if z == 0 { 1 } else { 0 };
    } else {
        z += 1;
    }
    let block: u32 = {
        let t: u32 = z * 3;
        t + 1
    };
    let late: u32;
    if a & 4 != 0 {
        late = 3;
    } else {
        late = block;
    }
    let shift: u32 = if b & 1 != 0 { 3 } else { 4 } + late % 2;
    mix(mix(x as u64, y as u64), ((block << shift) ^ late) as u64)
}

pub fn case_loops(a: u32, b: u32, c: u32) -> u64 {
    let mut h: u64 = 0;
    for i in 0..WIDTH {
        h = mix(h, i as u64);
    }
    for i in (a & 3)..(b & 7) {
        if i == 4 {
            continue;
        }
        h = mix(h, i as u64);
    }
    for i in 0..=255u8 {
        if i as u32 > c & 0xFF {
            break;
        }
        h = mix(h, i as u64);
    }
    for i in (b as u8 | 0xF0)..=(c as u8 | 0xFC) {
        h = mix(h, i as u64 + 1);
    }
    for i in -3..=3 {
        let j: i32 = i * 2;
        h = mix(h, j as u64);
    }
    for i in (1..6).rev() {
        if i == 3 {
            continue;
        }
        let n: u16 = i;
        h = mix(h, n as u64);
    }
    for _ in 0..(a & 3) {
        h = mix(h, 5);
    }
    let mut n: u32 = a & 31;
    loop {
        n += 1;
        match n & 7 {
            3 => break,
            4 => continue,
            _ => h = mix(h, n as u64),
        }
        if n > 100 {
            break;
        }
    }
    let mut m: u32 = b;
    while m != 0 && {
        let low: u32 = m & 0xF;
        low != 0xF
    } {
        m >>= 1;
        h = mix(h, m as u64);
        match m & 3 {
            1 => {
                if m & 0x100 != 0 {
                    break;
                }
            }
            _ => {}
        }
    }
    mix(h, n as u64)
}

fn early(a: u32, b: u32) -> u32 {
    if a == b {
        return 1;
    }
    for i in 0..32 {
        if a >> i & 1 != 0 && b >> i & 1 != 0 {
            return i * 2;
        }
    }
    let value: u32 = match a & 3 {
        0 => return 100,
        1 => b,
        _ => a,
    };
    value | 1
}

#[inline(always)]
fn unit(h: &mut u64, a: u32) {
    if a & 1 == 0 {
        return;
    }
    *h = mix(*h, a as u64);
}

#[cold]
#[inline(never)]
fn never_inlined(a: u32) -> bool {
    debug_assert!(a != 12_345 || a == 12_345, "said in Rust only");
    match a & 3 {
        0 => true,
        1 => false,
        2 => a & 8 != 0,
        3 => a & 4 != 0,
        _ => unreachable!(),
    }
}

pub fn case_return(a: u32, b: u32, c: u32) -> u64 {
    let mut h: u64 = mix(early(a, b) as u64, early(b & 0xF0, c & 0x0F) as u64);
    unit(&mut h, a);
    unit(&mut h, c >> 1);
    let flag: bool = a & 1 == 0 && b & 1 == 0 || !(c & 1 == 0) ^ (a & 2 == 0);
    let mut both: bool = flag & (b & 4 == 0) | never_inlined(c);
    both ^= a & 16 == 0;
    h = mix(h, u64::from(both) + u64::from(flag) * 2 + u64::from(a as u8));
    h
}
