//! What an agent sees: colors, the brighter of two frames, and the picture made smaller.
//!
//! Device subset: free functions over slices and plain values. Reduction follows the
//! arithmetic of OpenCV's `INTER_AREA` (area averages in `f32` when shrinking, fixed-point bilinear with area
//! coefficients when an axis grows), product by product and sum by sum, so that pixels are equal bit for bit.

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

/// Pixels in a row of a native picture.
pub const WIDTH: usize = 160;

// ---------------------------------------------------------------- colors and pooling

/// Brightness of a row of indices.
pub fn gray_row(indices: &[u8], gray: &[u8; 256], out: &mut [u8]) {
    for x in 0..WIDTH {
        out[x] = gray[indices[x] as usize];
    }
}

/// Brightness of the brighter of two frames, pixel by pixel.
pub fn pooled_row(last: &[u8], before: &[u8], gray: &[u8; 256], out: &mut [u8]) {
    for x in 0..WIDTH {
        let a: u8 = gray[last[x] as usize];
        let b: u8 = gray[before[x] as usize];
        out[x] = if a > b { a } else { b };
    }
}

// ---------------------------------------------------------------- area averages

/// One target cell along an axis: `count` source cells from `first` on, their weights from `at` on in the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Cell {
    /// First source cell.
    pub first: u32,
    /// Source cells that take part.
    pub count: u32,
    /// Place of the first weight.
    pub at: u32,
}

/// Averages along a row: source pixels to `cells.len()` sums, in the order of the table.
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

/// Adds a weighted row of sums; the first one replaces what is there.
pub fn add_row(sums: &[f32], weight: f32, first: bool, out: &mut [f32]) {
    for d in 0..sums.len() {
        let product: f32 = sums[d] * weight;
        out[d] = if first { product } else { out[d] + product };
    }
}

/// Rounds sums to pixels, halves to even.
pub fn round_row(sums: &[f32], out: &mut [u8]) {
    for d in 0..sums.len() {
        out[d] = round_pixel(sums[d]);
    }
}

/// A sum of at least 0 as a pixel, halves to even. Adding 2^23 leaves no bits below one, and rounds as the sum does.
pub fn round_pixel(sum: f32) -> u8 {
    const TO_INTEGERS: f32 = 8_388_608.0;
    let rounded: f32 = (sum + TO_INTEGERS) - TO_INTEGERS;
    if rounded > 255.0 { 255 } else { rounded as u8 }
}

/// One pixel of the area average, as the rows above give it. `rows` are the places of the source rows in `source`.
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

/// The average of whole blocks, 2 x 2: rounded half up.
pub fn quarter(sum: u32) -> u8 {
    ((sum + 2) >> 2) as u8
}

/// The average of whole blocks of any other size.
pub fn block_average(sum: u32, scale: f32) -> u8 {
    round_pixel(sum as f32 * scale)
}

// ---------------------------------------------------------------- 160 x 210 to 84 x 84

/// Bytes that `shrink_84` may write for a row of 84.
pub const ROW_84: usize = 96;
/// Weights of a pixel in the small picture: 40ths across times fifths down.
pub const WEIGHT_84: u32 = 200;
/// Targets that are worked out together; some of them are written over by the next ones.
const LANES: usize = 16;
/// Targets of a group that begin at an odd source pixel.
const ODD_TARGETS: usize = 11;
/// Across, 21 pixels are made of 40: for target r the weights, in 40ths, of three source pixels in a row. They begin
/// at source pixel 2 r - 1 for r up to 10 (`ACROSS[0]`), and at 2 r - 2 after that (`ACROSS[1]`, from r = 11 on).
const ACROSS: [[[u16; LANES]; 3]; 2] = [across_table(0, ODD_TARGETS), across_table(ODD_TARGETS, 21)];

const fn across_table(from: usize, to: usize) -> [[u16; LANES]; 3] {
    let mut table: [[u16; LANES]; 3] = [[0; LANES]; 3];
    let mut r: usize = from;
    while r < to {
        // Target r covers source 40 r / 21 to 40 (r + 1) / 21; in 40ths of its own width a source pixel is 21.
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

/// `sum` and the products of four pairs of bytes: one instruction of a GPU.
pub fn dot4(a: u32, b: u32, sum: u32) -> u32 {
    let mut total: u32 = sum;
    for i in 0..4u32 {
        let product: u32 = (a >> (8 * i) & 0xFF) * (b >> (8 * i) & 0xFF);
        total = total.wrapping_add(product);
    }
    total
}

/// Across, per target of 84: the first of four source pixels, and their weights in 40ths, the first lowest.
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
        // Four pixels lie within the 40: one of no weight is left out in front, or taken along.
        if r == 0 {
            weights >>= 8;
        } else {
            first -= 1 + half as u32;
        }
        while first > 36 {
            first -= 1;
            weights <<= 8;
        }
        table[column] = [column as u32 / 21 * 40 + first, weights];
        column += 1;
    }
    table
}

/// Source rows with their weights in fifths for output row `d`, 210 rows to 84.
pub fn rows_84(d: usize) -> (usize, [u16; 3]) {
    let five: usize = d / 2 * 5;
    if d & 1 == 0 { (five, [2, 2, 1]) } else { (five + 2, [1, 2, 2]) }
}

/// A row of an 84 x 84 picture from three source rows, in 200ths. `sums` gets the exact sums plus 100, for `d` below 84.
///
/// `even` and `odd` are work space: pixels 2 i at `even[i]`, pixels 2 i + 1 at `odd[i + 1]`.
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
    // Down first, then apart: interleaved 16-bit numbers are separated faster than bytes.
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

/// Sums plus 100 to pixels. True when a sum lies exactly between two pixels: the caller then asks `area_pixel`.
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

/// True when this sum, 100 included, lies exactly between two pixels.
pub fn is_tie_84(sum: u16) -> bool {
    sum as u32 % WEIGHT_84 == 0
}

// ---------------------------------------------------------------- growing

/// One target cell along an axis that grows: two source cells and their weights in 2048ths.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Blend {
    /// The two source cells.
    pub from: [u32; 2],
    /// Their weights.
    pub weight: [i32; 2],
}

/// Blends along a row.
pub fn blend_row(source: &[u8], blends: &[Blend], out: &mut [i32]) {
    for d in 0..blends.len() {
        let b: Blend = blends[d];
        out[d] =
            source[b.from[0] as usize] as i32 * b.weight[0] + source[b.from[1] as usize] as i32 * b.weight[1];
    }
}

/// Blends two rows of sums to pixels.
pub fn blend_rows(upper: &[i32], lower: &[i32], weight: [i32; 2], out: &mut [u8]) {
    for d in 0..out.len() {
        let above: i32 = (weight[0] * (upper[d] >> 4)) >> 16;
        let below: i32 = (weight[1] * (lower[d] >> 4)) >> 16;
        let pixel: i32 = (above + below + 2) >> 2;
        out[d] = if pixel > 255 { 255 } else { pixel as u8 };
    }
}
