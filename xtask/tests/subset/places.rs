//! Device subset. Structs, arrays, tuples, enums, references, slices, and the order in which things happen.

use super::mix;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Point {
    pub x: i32,
    pub y: i32,
    pub tags: [u8; 4],
}

#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    First,
    Second = 5,
    Third,
}

/// Fields of every kind, with holes between them, and names that C++ keeps for itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Board {
    pub signed: i8,
    pub long: i64,
    pub points: [Point; 3],
    pub grid: [[u16; 3]; 2],
    pub mode: Mode,
    pub on: bool,
    pub ratio: f64,
    pub register: u32,
    pub count: u16,
}

pub type Line = [u32; 5];

fn board(a: u32, b: u32, c: u32) -> Board {
    let point: Point = Point { y: b as i32 >> 8, x: a as i32 >> 8, tags: a.to_le_bytes() };
    Board {
        signed: a as i8,
        long: b as i64 - c as i64,
        points: [point, Point { x: 1, ..point }, Point { tags: [b as u8; 4], ..point }],
        grid: [[a as u16, b as u16, c as u16], [1, 2, 3]],
        mode: if a & 1 == 0 { Mode::First } else { Mode::Third },
        on: b & 1 != 0,
        ratio: c as f64 / 3.0,
        register: c,
        count: 0,
    }
}

fn hash(board: &Board) -> u64 {
    let mut h: u64 = mix(board.signed as u64, board.long as u64);
    for i in 0..3 {
        h = mix(h, board.points[i].x as u64);
        h = mix(h, board.points[i].y as u64);
        for j in 0..4 {
            h = mix(h, board.points[i].tags[j] as u64);
        }
    }
    for row in 0..2 {
        for column in 0..3 {
            h = mix(h, board.grid[row][column] as u64);
        }
    }
    h = mix(h, board.mode as u64 | (board.on as u64) << 8);
    h = mix(h, (board.ratio * 1000.0) as u64);
    mix(h, board.register as u64 + board.count as u64)
}

pub fn case_literals(a: u32, b: u32, c: u32) -> u64 {
    hash(&board(a, b, c))
}

/// Counts up and gives the old value: what a call with a side effect does.
fn next(board: &mut Board) -> u32 {
    board.register = board.register.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    board.count = board.count.wrapping_add(1);
    board.register >> 8
}

fn three(a: u32, b: u32, c: u32) -> u64 {
    mix(mix(a as u64, b as u64), c as u64)
}

pub fn case_order(a: u32, b: u32, c: u32) -> u64 {
    let mut m: Board = board(a, b, c);
    let mut h: u64 = three(next(&mut m), next(&mut m), next(&mut m));
    h = mix(h, three(m.register, next(&mut m), m.register));
    h = mix(h, (m.register ^ next(&mut m).rotate_left(5)) as u64);
    h = mix(h, next(&mut m).wrapping_sub(m.register) as u64);
    h = mix(h, (next(&mut m) & 0xFF) as u64 * 7 + (next(&mut m) & 0xFF) as u64 + m.count as u64);
    let list: [u32; 4] = [next(&mut m), m.register, next(&mut m), m.count as u32];
    for i in 0..4 {
        h = mix(h, list[i] as u64);
    }
    let pair: (u32, u16) = (next(&mut m), m.count);
    h = mix(h, pair.0 as u64 + pair.1 as u64);
    let mut value: u32 = 5;
    value = value.wrapping_add(next(&mut m)).wrapping_mul(m.register | 1);
    value ^= next(&mut m);
    if next(&mut m) & 1 != 0 && next(&mut m) & 1 != 0 || next(&mut m) & 2 != 0 {
        value = value.wrapping_add(1);
    }
    while next(&mut m) & 3 != 0 && m.count < 100 {
        value = value.rotate_left(1);
    }
    m.points[(value % 3) as usize].x = next(&mut m) as i32;
    m.points[(value % 3) as usize].x += (next(&mut m) & 0xFF) as i32;
    mix(mix(h, value as u64), hash(&m))
}

fn touch(point: &mut Point, by: i32) -> bool {
    point.x = point.x.wrapping_add(by);
    point.tags[0] = point.tags[0].wrapping_add(1);
    point.x & 1 == 0
}

fn swap(left: &mut Point, right: &mut Point) {
    let old: Point = *left;
    *left = *right;
    *right = old;
}

fn add_all(slice: &[u32]) -> u32 {
    let mut sum: u32 = 0;
    for i in 0..slice.len() {
        sum = sum.wrapping_add(slice[i]);
    }
    sum
}

fn double_all(slice: &mut [u32], extra: u32) {
    let mut i: usize = 0;
    while i < slice.len() {
        slice[i] = slice[i].wrapping_mul(2).wrapping_add(extra);
        i += 1;
    }
    slice[0] ^= add_all(slice);
}

fn fixed(line: &Line) -> u64 {
    (line[0] as u64) << 32 | line[4] as u64
}

fn make_line(a: u32) -> Line {
    [a, a >> 1, a << 1, !a, 5]
}

pub fn case_references(a: u32, b: u32, c: u32) -> u64 {
    let mut m: Board = board(a, b, c);
    let by: i32 = c as i32;
    let mut h: u64 = touch(&mut m.points[(a % 3) as usize], by) as u64;
    {
        let point: &mut Point = &mut m.points[1];
        point.y ^= 3;
        h = mix(h, touch(point, 2) as u64);
        let seen: &[u8; 4] = &point.tags;
        h = mix(h, seen[(b & 3) as usize] as u64);
    }
    let mut other: Point = m.points[2];
    swap(&mut m.points[0], &mut other);
    m.points[2] = Point { y: -1, ..other };
    let signed: &i8 = &m.signed;
    h = mix(h, *signed as u64);
    let mut line: Line = make_line(a);
    double_all(&mut line, b);
    double_all(&mut line[1..3], c);
    h = mix(h, add_all(&line) as u64 ^ add_all(&line[(a & 1) as usize..4]) as u64);
    line[2..4].fill(c);
    let part: [u32; 2] = [b, c];
    line[0..2].copy_from_slice(&part);
    h = mix(h, fixed(&line));
    line.fill(7);
    h = mix(h, fixed(&make_line(b)) ^ fixed(&line));
    mix(h, hash(&m))
}

fn pair(a: u32) -> (u32, bool) {
    if a & 4 != 0 { (a >> 3, true) } else { (a << 1, false) }
}

fn offsets(mode: u8) -> ([i32; 3], usize) {
    match mode {
        1 => ([0, 16, 0], 2),
        3 => ([0, 16, 32], 3),
        _ => ([0; 3], 1),
    }
}

pub fn case_tuples(a: u32, b: u32, _c: u32) -> u64 {
    let (value, odd): (u32, bool) = pair(a);
    let (mut sum, _, last): (i32, u8, i64) = (1, 2, -(b as i64));
    let (list, count): ([i32; 3], usize) = offsets(b as u8 & 3);
    for i in 0..count {
        sum += list[i];
    }
    let quad: (u8, u16, u32, u64) = (a as u8, b as u16, a, b as u64);
    mix(mix(value as u64, odd as u64), sum as u64) ^ last as u64 ^ quad.3 ^ (quad.0 as u64) << 3
}

pub fn case_enums(a: u32, b: u32, c: u32) -> u64 {
    let mut m: Board = board(a, b, c);
    if m.mode == Mode::First {
        m.mode = Mode::Second;
    }
    let n: u64 = match m.mode {
        Mode::First => 1,
        Mode::Second | Mode::Third => 2 + (m.mode != Mode::Third) as u64,
    };
    mix(n, m.mode as u64)
}

/// Local names that C++ keeps, names that shadow others, names of the prelude.
pub fn case_names(a: u32, b: u32, c: u32) -> u64 {
    let register: u32 = a & 0xFFFF;
    let new: u32 = register + 1;
    let int: u32 = if new > 5 { new - 5 } else { new };
    let value: u32 = int;
    let value: u32 = value ^ b;
    let value: u64 = if c & 1 == 0 { value as u64 + 1 } else { value as u64 * 2 };
    let value: u64 = match value & 3 {
        0 => value + 10,
        1 => value ^ 99,
        _ => value,
    };
    let t1: u64 = value;
    let add: u64 = t1 >> 1;
    let mut h: u64 = three(register, new, int);
    for value in 0..3u32 {
        h = mix(h, value as u64);
    }
    let three: u64 = mix(h, add);
    three ^ value
}

pub fn case_floats(a: u32, b: u32, c: u32) -> u64 {
    let x: f64 = a as i32 as f64 * 1.5 + b as f64 / 7.0 - 0.25;
    let y: f32 = (c & 0xFFFF) as f32 / 3.0;
    let mut h: u64 = mix(x as i32 as u64, x as u8 as u64);
    h = mix(h, x as i64 as u64 ^ (-x) as u16 as u64);
    h = mix(h, (y * 8.0) as u32 as u64 ^ (y as f64 * 3.0 + 0.5) as u64);
    let small: f64 = x / 1e9;
    h = mix(h, small.to_bits());
    h = mix(h, f64::from_bits(small.to_bits() ^ 1) as i64 as u64);
    h = mix(h, (small > 1.0) as u64 | ((small <= 0.0) as u64) << 1 | ((x as f32 == y) as u64) << 2);
    let nothing: f64 = (b & 1) as f64 / (c & 1) as f64;
    mix(h, nothing as i32 as u64)
}
