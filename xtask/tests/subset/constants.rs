//! Device subset. Constants, tables and constant functions.

use super::mix;
use super::places::{Mode, Point};

pub const WIDTH: usize = 8;
const BYTE: u8 = 0xF0;
const NEGATIVE: i32 = -12;
const LEAST: i32 = i32::MIN;
const LEAST_LONG: i64 = i64::MIN;
const WIDE: u64 = 0xFFFF_FFFF_0000_0001;
const SUM: i32 = (NEGATIVE * 3 + 100) >> 1;
const FLAGS: u8 = bit(1) | bit(3) | !0xFE;
const ON: bool = true;
const HALF: f64 = 0.5;
const MODE: Mode = Mode::Second;
static STATIC_TABLE: [i16; 3] = [-1, 0, 300];
const TABLE: [u8; WIDTH] = [1, 2, 3, 4, 5, 6, 7, BYTE];
const NESTED: [[i32; 2]; 3] = [[1, -2], [3, -4], [5, SUM]];
const PAIRS: [(usize, u8); 3] = [(2, 7), (0, bit(5)), (1, 0)];
const SQUARES: [u32; 16] = squares();
const REPEATED: [u8; 5] = [7; 5];
const ORIGIN: Point = Point { x: 1, y: -1, tags: [9; 4] };
const CORNERS: [Point; 2] = [ORIGIN, Point { x: 5, y: 6, tags: [0; 4] }];
const BOTH: (u8, i32) = (3, -3);
const BYTE_LITERAL: u8 = b'A';

const fn bit(n: u32) -> u8 {
    1 << n
}

const fn squares() -> [u32; 16] {
    let mut table: [u32; 16] = [0; 16];
    let mut i: usize = 0;
    while i < 16 {
        table[i] = (i * i) as u32;
        if i % 3 == 0 {
            table[i] = table[i].reverse_bits().count_ones() + table[i].leading_zeros();
        }
        i += 1;
    }
    table
}

/// A row whose text and list are for the host only.
#[derive(Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    pub years: &'static [u32],
    pub speed: i32,
    pub lives: u8,
    pub at: Point,
}

const fn row(name: &'static str, speed: i32, lives: u8) -> Row {
    Row { name, speed, lives, ..LIKE }
}

/// What a row leaves out.
const LIKE: Row = Row { name: "", years: &[], speed: 7, lives: 2, at: ORIGIN };
const ROWS: [Row; 4] = [
    row("slow", -5, 3),
    Row { name: "fast", years: &[1977, 1982], speed: 50, lives: 4, at: CORNERS[1] },
    Row { name: "plain", at: Point { y: -6, ..ORIGIN }, ..LIKE },
    Row { lives: 1 + 8, ..LIKE },
];

#[cfg(not(device))]
pub fn names() -> Vec<&'static str> {
    ROWS.iter().filter(|row| row.years.len() < 9).map(|row| row.name).collect()
}

pub fn case_scalars(a: u32, b: u32, c: u32) -> u64 {
    const LOCAL: u32 = 17;
    let mut h: u64 = mix(WIDE, (BYTE as u32 ^ a) as u64);
    h = mix(mix(mix(h, NEGATIVE as u64), LEAST as u64), LEAST_LONG as u64);
    h = mix(h, (SUM + (b & 0xFF) as i32) as u64);
    h = mix(h, (FLAGS ^ c as u8) as u64);
    h = mix(h, (HALF * a as f64) as u64);
    h = mix(h, (ON && a & 1 == 0) as u64 + (MODE as u8) as u64 + BYTE_LITERAL as u64);
    mix(h, (LOCAL + bit(a & 7) as u32) as u64)
}

pub fn case_tables(a: u32, b: u32, c: u32) -> u64 {
    let mut h: u64 = mix(TABLE[(a & 7) as usize] as u64, NESTED[(b % 3) as usize][(c & 1) as usize] as u64);
    let (place, mask): (usize, u8) = PAIRS[(a % 3) as usize];
    h = mix(h, (place as u64) << 8 | mask as u64);
    h = mix(h, PAIRS[(b % 3) as usize].1 as u64);
    h = mix(h, SQUARES[(c & 15) as usize] as u64);
    h = mix(h, STATIC_TABLE[(a % 3) as usize] as u64);
    h = mix(h, (ROWS[(b & 3) as usize].speed + ROWS[(a & 3) as usize].lives as i32) as u64);
    h = mix(h, (ROWS[(c & 3) as usize].at.x + 5 * ROWS[(a & 3) as usize].at.y) as u64);
    h = mix(h, (CORNERS[(c & 1) as usize].x + ORIGIN.y + REPEATED[2] as i32) as u64);
    let copied: [u8; WIDTH] = TABLE;
    let whole: Point = ORIGIN;
    h = mix(h, (copied[(c & 7) as usize] as i32 + whole.tags[3] as i32 + BOTH.1 + BOTH.0 as i32) as u64);
    mix(h, TABLE.len() as u64)
}
