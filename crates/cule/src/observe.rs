//! Observations: palette colors, the pixel-wise maximum of two frames, and resizing.
//!
//! Device subset: free functions over slices and plain values. Resizing follows the arithmetic of OpenCV's
//! `INTER_AREA` (area averages in `f32` when shrinking, fixed-point bilinear interpolation with area
//! coefficients when an axis grows). All products and sums are in the same order, so that pixels are equal
//! bit for bit.

#![allow(
    clippy::needless_range_loop,
    clippy::manual_is_multiple_of,
    clippy::manual_memcpy,
    clippy::too_many_arguments,
    clippy::precedence,
    reason = "device subset: indices and plain operators"
)]

use bytemuck::{Pod, Zeroable};

pub mod palette;
pub mod plane;
pub mod reduce;
mod shrink;
pub mod translate;

/// Pixels in a row of a console's picture.
pub const WIDTH: usize = 160;

// ---------------------------------------------------------------- colors and pooling

/// Converts a row of palette indices to gray.
pub fn gray_row(indices: &[u8], gray: &[u8; 256], out: &mut [u8]) {
    for x in 0..WIDTH {
        out[x] = gray[indices[x] as usize];
    }
}

/// Pixel-wise maximum of the gray values of two rows.
pub fn pooled_row(last: &[u8], before: &[u8], gray: &[u8; 256], out: &mut [u8]) {
    for x in 0..WIDTH {
        let a: u8 = gray[last[x] as usize];
        let b: u8 = gray[before[x] as usize];
        out[x] = if a > b { a } else { b };
    }
}

// ---------------------------------------------------------------- area averages

/// One target pixel along an axis: `count` source pixels from `first` on, with weights from index `at` on.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Cell {
    /// First source pixel.
    pub first: u32,
    /// Number of source pixels.
    pub count: u32,
    /// Index of the first weight.
    pub at: u32,
}

/// Weighted sums along a row, one per cell, added in the order of the table.
pub fn area_row(source: &[u8], cells: &[Cell], weights: &[f32], out: &mut [f32]) {
    for d in 0..cells.len() {
        let cell: Cell = cells[d];
        let first: usize = cell.first as usize;
        let at: usize = cell.at as usize;
        let mut sum: f32 = source[first] as f32 * weights[at];
        for i in 1..cell.count as usize {
            sum += source[first + i] as f32 * weights[at + i];
        }
        out[d] = sum;
    }
}

/// Adds `sums * weight` to `out`; the first row replaces the content of `out`.
pub fn add_row(sums: &[f32], weight: f32, first: bool, out: &mut [f32]) {
    for d in 0..sums.len() {
        let product: f32 = sums[d] * weight;
        out[d] = if first { product } else { out[d] + product };
    }
}

/// Rounds sums to pixels, half to even.
pub fn round_row(sums: &[f32], out: &mut [u8]) {
    for d in 0..sums.len() {
        out[d] = round_pixel(sums[d]);
    }
}

/// Rounds a sum of at least 0 to a pixel, half to even. Adding 2^23 drops the fractional bits with the
/// rounding of the addition.
pub fn round_pixel(sum: f32) -> u8 {
    const TO_INTEGERS: f32 = 8_388_608.0;
    let rounded: f32 = (sum + TO_INTEGERS) - TO_INTEGERS;
    if rounded > 255.0 { 255 } else { rounded as u8 }
}

/// One pixel of the area average, equal to that of the functions above. `rows` are the offsets of the source
/// rows in `source`.
pub fn area_pixel(
    source: &[u8],
    rows: &[u32],
    x_cell: Cell,
    x_weights: &[f32],
    y_cell: Cell,
    y_weights: &[f32],
) -> u8 {
    let mut total: f32 = 0.0;
    for j in 0..y_cell.count as usize {
        let at: usize = rows[y_cell.first as usize + j] as usize + x_cell.first as usize;
        let mut sum: f32 = source[at] as f32 * x_weights[x_cell.at as usize];
        for i in 1..x_cell.count as usize {
            sum += source[at + i] as f32 * x_weights[x_cell.at as usize + i];
        }
        let product: f32 = sum * y_weights[y_cell.at as usize + j];
        total = if j == 0 { product } else { total + product };
    }
    round_pixel(total)
}

/// Average of a 2 x 2 block, rounded half up.
pub fn quarter(sum: u32) -> u8 {
    ((sum + 2) >> 2) as u8
}

/// Average of a block of any other size; `scale` is 1 / its number of pixels.
pub fn block_average(sum: u32, scale: f32) -> u8 {
    round_pixel(sum as f32 * scale)
}

// ---------------------------------------------------------------- 160 x 210 to 84 x 84

/// Bytes that `shrink_84` may write for a row of 84 pixels.
pub const ROW_84: usize = 96;
/// Total weight of a target pixel: 40ths horizontally times fifths vertically.
pub const WEIGHT_84: u32 = 200;
/// Target pixels that are computed together; the next group overwrites some of them.
const LANES: usize = 16;
/// Target pixels of a group that start at an odd source pixel.
const ODD_TARGETS: usize = 11;
/// Horizontally, 40 source pixels become 21. For target r: the weights, in 40ths, of three consecutive source
/// pixels. They start at source pixel 2 r - 1 for r up to 10 (`ACROSS[0]`), and at 2 r - 2 from r = 11 on
/// (`ACROSS[1]`).
const ACROSS: [[[u16; LANES]; 3]; 2] = [across_table(0, ODD_TARGETS), across_table(ODD_TARGETS, 21)];

const fn across_table(from: usize, to: usize) -> [[u16; LANES]; 3] {
    let mut table: [[u16; LANES]; 3] = [[0; LANES]; 3];
    let mut r: usize = from;
    while r < to {
        // Target r covers source 40 r / 21 to 40 (r + 1) / 21; a source pixel is 21 40ths of its width.
        let first: usize = if r < ODD_TARGETS { 2 * r } else { 2 * r - 1 };
        let start: usize = 21 * first - 40 * r;
        let middle: usize = if 40 - start < 21 { 40 - start } else { 21 };
        table[0][r - from] = start as u16;
        table[1][r - from] = middle as u16;
        table[2][r - from] = (40 - start - middle) as u16;
        r += 1;
    }
    table
}

/// `sum` plus the products of four pairs of bytes; a single instruction on a GPU.
pub fn dot4(a: u32, b: u32, sum: u32) -> u32 {
    let mut total: u32 = sum;
    for i in 0..4u32 {
        let product: u32 = (a >> (8 * i) & 0xFF) * (b >> (8 * i) & 0xFF);
        total = total.wrapping_add(product);
    }
    total
}

/// Per target column of 84: the first of four source pixels, and their weights in 40ths, the first in the
/// lowest byte.
pub const ACROSS_84: [[u32; 2]; 84] = across_words();

const fn across_words() -> [[u32; 2]; 84] {
    let mut table: [[u32; 2]; 84] = [[0; 2]; 84];
    let mut column: usize = 0;
    while column < 84 {
        let r: usize = column % 21;
        let half: usize = if r < ODD_TARGETS { 0 } else { 1 };
        let at: usize = r - half * ODD_TARGETS;
        let mut first: u32 = 2 * r as u32;
        let mut weights: u32 = ACROSS[half][0][at] as u32
            | (ACROSS[half][1][at] as u32) << 8
            | (ACROSS[half][2][at] as u32) << 16;
        // The four pixels must lie within the 40: a pixel of weight 0 is dropped or added in front.
        if r == 0 {
            weights >>= 8;
        } else {
            first -= 1 + half as u32;
        }
        // Where they fit, the four pixels are those of a word.
        while first > 36 || (first % 4 != 0 && weights < 1 << 24) {
            first -= 1;
            weights <<= 8;
        }
        table[column] = [column as u32 / 21 * 40 + first, weights];
        column += 1;
    }
    table
}

/// First source row of output row `d` and the weights of three source rows in fifths, for 210 rows to 84.
pub fn rows_84(d: usize) -> (usize, [u16; 3]) {
    let five: usize = d / 2 * 5;
    if d & 1 == 0 { (five, [2, 2, 1]) } else { (five + 2, [1, 2, 2]) }
}

/// Computes a row of an 84 x 84 picture from three source rows, in 200ths. `sums` receives the exact sums
/// plus 100, for columns below 84.
///
/// `even` and `odd` are scratch buffers: pixel 2 i is at `even[i]`, pixel 2 i + 1 at `odd[i + 1]`.
#[inline(always)]
pub fn shrink_84(
    first: &[u8; WIDTH],
    second: &[u8; WIDTH],
    third: &[u8; WIDTH],
    weights: [u16; 3],
    even: &mut [u16; 104],
    odd: &mut [u16; 104],
    sums: &mut [u16; ROW_84],
) {
    // Vertically first, then deinterleaved: 16-bit numbers are separated faster than bytes.
    let mut columns: [u16; WIDTH] = [0; WIDTH];
    for x in 0..WIDTH {
        columns[x] =
            first[x] as u16 * weights[0] + second[x] as u16 * weights[1] + third[x] as u16 * weights[2];
    }
    for i in 0..80 {
        even[i] = columns[2 * i];
        odd[i + 1] = columns[2 * i + 1];
    }
    for group in 0..4 {
        let source: usize = 20 * group;
        let target: usize = 21 * group;
        for r in 0..LANES {
            sums[target + r] = odd[source + r] * ACROSS[0][0][r]
                + even[source + r] * ACROSS[0][1][r]
                + odd[source + r + 1] * ACROSS[0][2][r]
                + 100;
        }
        let source: usize = source + ODD_TARGETS;
        let target: usize = target + ODD_TARGETS;
        for r in 0..LANES {
            sums[target + r] = even[source + r - 1] * ACROSS[1][0][r]
                + odd[source + r] * ACROSS[1][1][r]
                + even[source + r] * ACROSS[1][2][r]
                + 100;
        }
    }
}

/// Converts sums plus 100 to pixels. Returns true if a sum is halfway between two pixels; the caller then
/// uses `area_pixel` for it.
#[inline(always)]
pub fn round_84(sums: &[u16; ROW_84], out: &mut [u8; ROW_84]) -> bool {
    let mut ties: u16 = 0;
    for d in 0..ROW_84 {
        // x / 200 = (x / 8) / 25, and 20972 / 2^19 is 1 / 25 for all x below 43,690.
        let quotient: u16 = (((sums[d] >> 3) as u32 * 20_972) >> 16) as u16 >> 3;
        out[d] = quotient as u8;
        ties |= (sums[d] == quotient.wrapping_mul(WEIGHT_84 as u16)) as u16;
    }
    ties != 0
}

/// True if this sum, 100 included, is halfway between two pixels.
pub fn is_tie_84(sum: u16) -> bool {
    sum as u32 % WEIGHT_84 == 0
}

// ---------------------------------------------------------------- enlarging

/// One target pixel along an axis that grows: two source pixels and their weights in 2048ths.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Blend {
    /// The two source pixels.
    pub from: [u32; 2],
    /// Their weights.
    pub weight: [i32; 2],
}

/// Interpolates along a row.
pub fn blend_row(source: &[u8], blends: &[Blend], out: &mut [i32]) {
    for d in 0..blends.len() {
        let b: Blend = blends[d];
        out[d] =
            source[b.from[0] as usize] as i32 * b.weight[0] + source[b.from[1] as usize] as i32 * b.weight[1];
    }
}

/// Interpolates between two rows of sums, and converts to pixels.
pub fn blend_rows(upper: &[i32], lower: &[i32], weight: [i32; 2], out: &mut [u8]) {
    for d in 0..out.len() {
        let above: i32 = (weight[0] * (upper[d] >> 4)) >> 16;
        let below: i32 = (weight[1] * (lower[d] >> 4)) >> 16;
        let pixel: i32 = (above + below + 2) >> 2;
        out[d] = if pixel > 255 { 255 } else { pixel as u8 };
    }
}
