//! Computes single pixels of an observation: the maximum over the selected pictures, resized.
//!
//! Device subset. Sums are in the order of `observe`, so that pixels are equal bit for bit.

use bytemuck::{Pod, Zeroable};

use crate::env::state::NO_PICTURE;
use crate::machine::Board;
use crate::machine::tia::rows::{self, Row};
use crate::observe::{
    ACROSS_84, Blend, Cell, WEIGHT_84, WIDTH, block_average, dot4, is_tie_84, quarter, round_pixel, rows_84,
};

/// No resizing.
pub const REDUCE_COPY: u32 = 0;
/// Averages of blocks of whole pixels.
pub const REDUCE_BLOCKS: u32 = 1;
/// Area averages.
pub const REDUCE_AREA: u32 = 2;
/// 160 x 210 to 84 x 84: area averages in integers.
pub const REDUCE_84: u32 = 4;
/// Bilinear interpolation, if a side grows.
pub const REDUCE_BLEND: u32 = 3;

/// How to resize the pictures of a game. Its tables are passed separately.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Reduction {
    /// One of the `REDUCE_` constants.
    pub kind: u32,
    /// Rows of a plane.
    pub rows: u32,
    /// Columns of a plane.
    pub columns: u32,
    /// Color channels: 1 or 3.
    pub channels: u32,
    /// Channels are the last axis (H, W, C), not the first (C, H, W).
    pub channels_last: u32,
    /// Width of a block.
    pub across: u32,
    /// Height of a block.
    pub down: u32,
    /// 1 / number of pixels of a block.
    pub scale: f32,
    /// Offsets of the columns' and the rows' entries in the cells.
    pub cells: [u32; 2],
    /// Offsets of the columns' and the rows' entries in the weights.
    pub weights: [u32; 2],
    /// Offsets of the columns' and the rows' entries in the blends.
    pub blends: [u32; 2],
    /// Offset of the first channel's table: 256 bytes per channel.
    pub table: u32,
    /// Keeps the size a multiple of eight.
    pub unused: u32,
}

/// The pictures whose maximum is computed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PictureSet {
    /// Indices of pictures, padded with `NO_PICTURE`.
    pub picture: [u8; 3],
    /// Bytes of a picture in the work buffer.
    pub picture_bytes: u32,
}

/// Maximum over the chosen pictures at one pixel. `boards` are the two pictures of the board, concatenated.
fn brightest(picture_set: &PictureSet, boards: &[u8], work: &[u8], table: &[u8], at: usize) -> u8 {
    let board_bytes: usize = boards.len() / 2;
    let mut most: u8 = 0;
    for i in 0..3usize {
        let picture: u8 = picture_set.picture[i];
        if picture != NO_PICTURE {
            let index: u8 = if picture < 2 {
                boards[picture as usize * board_bytes + at]
            } else {
                work[(picture as usize - 2) * picture_set.picture_bytes as usize + at]
            };
            let value: u8 = table[index as usize];
            if value > most {
                most = value;
            }
        }
    }
    most
}

/// A pixel of the area average in floats, equal to `observe::area_pixel`.
#[inline(never)]
fn area(
    reduction: &Reduction,
    picture_set: &PictureSet,
    boards: &[u8],
    work: &[u8],
    cells: &[Cell],
    weights: &[f32],
    table: &[u8],
    row: usize,
    column: usize,
) -> u8 {
    let x: Cell = cells[reduction.cells[0] as usize + column];
    let y: Cell = cells[reduction.cells[1] as usize + row];
    let x_at: usize = (reduction.weights[0] + x.at) as usize;
    let y_at: usize = (reduction.weights[1] + y.at) as usize;
    let mut total: f32 = 0.0;
    for j in 0..y.count as usize {
        let from: usize = (y.first as usize + j) * WIDTH + x.first as usize;
        let mut sum: f32 = brightest(picture_set, boards, work, table, from) as f32 * weights[x_at];
        for i in 1..x.count as usize {
            let value: u8 = brightest(picture_set, boards, work, table, from + i);
            sum += value as f32 * weights[x_at + i];
        }
        let product: f32 = sum * weights[y_at + j];
        total = if j == 0 { product } else { total + product };
    }
    round_pixel(total)
}

/// Rows of a picture that becomes a plane of 84 x 84.
pub const ROWS_84: u32 = 210;
/// Rows of a strip, at most: the distinct ones among the picture rows that a block computes at a time.
pub const STRIP_ROWS: u32 = 32;
/// Rows that `distinct_rows` compares at a time.
pub const ROWS_TOGETHER: u32 = 7;
/// All of them, one bit each.
const ALL_TOGETHER: u32 = (1 << ROWS_TOGETHER) - 1;
/// Words of a row of a strip, and one more: the same word of 32 rows lies in 32 banks of shared memory.
const ROW_WORDS: usize = WIDTH / 4 + 1;
/// Words of a strip, four pixels each.
pub const STRIP_WORDS: u32 = STRIP_ROWS * ROW_WORDS as u32;
/// Words of the sums of a row, two each, and one more.
const SUM_WORDS: usize = 43;
/// Words of the sums of a strip.
pub const STRIP_SUM_WORDS: u32 = STRIP_ROWS * SUM_WORDS as u32;
/// Parts of a row that `brighten_part` computes.
pub const ROW_PARTS: u32 = 5;
/// All of them, one bit each.
const ALL_PARTS: u32 = 0x1F;
/// Fours of pixels that are rounded together, in each of two rows.
pub const QUADS: usize = 3;
/// Pixels of a row of an 84 x 84 plane that are rounded together.
pub const UNIT_COLUMNS: u32 = 4 * QUADS as u32;
/// How many times that a row has.
pub const UNITS_ACROSS: u32 = 84 / UNIT_COLUMNS;

/// Four bytes as a word, the first in the lowest byte. `at` is a multiple of four.
fn word_at(bytes: &[u8], at: usize) -> u32 {
    let mut word: u32 = 0;
    for i in 0..4usize {
        word |= (bytes[at + i] as u32) << (8 * i);
    }
    word
}

/// Reads the 32 bytes from `at` on, a multiple of four, as words.
#[inline(always)]
fn eight_words(bytes: &[u8], at: usize, words: &mut [u32; 8]) {
    for k in 0..8usize {
        words[k] = word_at(bytes, at + 4 * k);
    }
}

/// Byte-wise maximum of two words.
fn larger_of_four(a: u32, b: u32) -> u32 {
    let mut larger: u32 = 0;
    for i in 0..4u32 {
        let mask: u32 = 0xFF << (8 * i);
        larger |= if a & mask > b & mask { a & mask } else { b & mask };
    }
    larger
}

/// Looks up four bytes in a table.
fn four_values(table: &[u8], four: u32) -> u32 {
    let mut values: u32 = 0;
    for k in 0..4usize {
        values |= (table[(four >> (8 * k) & 0xFF) as usize] as u32) << (8 * k);
    }
    values
}

/// Stores eight words of a strip from `to` on, or their maximum with those that are there.
#[inline(always)]
fn put_fours(strip: &mut [u32], to: usize, fours: &[u32; 8], is_first: bool) {
    for k in 0..8usize {
        strip[to + k] = if is_first { fours[k] } else { larger_of_four(strip[to + k], fours[k]) };
    }
}

/// The HMOVE blank at the begin of a row.
fn blank_fours(table: &[u8], fours: &mut [u32; 8]) {
    fours[0] = table[0] as u32 * 0x0101_0101;
    fours[1] = fours[0];
}

/// Which of the rows `first..first + ROWS_TOGETHER` are distinct, one bit each: those that differ from the row above in one of the
/// pictures or are stored as bytes there, and row 0.
#[inline(always)]
pub fn distinct_rows(picture_set: &PictureSet, board: &Board, first: usize) -> u32 {
    let is_top: u32 = (first == 0) as u32;
    let mut distinct: u32 = is_top;
    for i in 0..3usize {
        let picture: usize = picture_set.picture[i] as usize;
        if picture == NO_PICTURE as usize {
            break;
        }
        if picture >= 2 {
            return ALL_TOGETHER;
        }
        let above: usize = first - (1 - is_top) as usize;
        let mut kind: u32 = board.rows[picture][above].kind;
        let mut colors: u32 = board.rows[picture][above].colors;
        let mut classes: [u64; 5] = board.rows[picture][above].classes;
        for k in 0..ROWS_TOGETHER as usize {
            let row: usize = first + k;
            let mut differs: u64 = (board.rows[picture][row].kind ^ kind) as u64;
            differs |= (board.rows[picture][row].colors ^ colors) as u64;
            kind = board.rows[picture][row].kind;
            colors = board.rows[picture][row].colors;
            differs |= replace_classes(&board.rows[picture][row], &mut classes);
            distinct |= ((differs != 0 || !rows::has_classes(kind)) as u32) << k;
        }
    }
    distinct
}

/// Replaces `classes` by those of `row`. Returns the bits that differ in any of its words.
#[inline(always)]
fn replace_classes(row: &Row, classes: &mut [u64; 5]) -> u64 {
    let mut differs: u64 = 0;
    for word in 0..5usize {
        differs |= row.classes[word] ^ classes[word];
        classes[word] = row.classes[word];
    }
    differs
}

/// As `brightest`, for row `row`, which becomes row `place` of a strip. Returns the parts that `brighten_part` has to compute, one
/// bit each: those of rows that are stored as bytes in one of the pictures, and those in which the pictures differ.
#[inline(always)]
pub fn brighten_row(
    picture_set: &PictureSet,
    board: &Board,
    table: &[u8],
    row: usize,
    place: usize,
    strip: &mut [u32],
) -> u32 {
    let to: usize = place * ROW_WORDS;
    let first: usize = picture_set.picture[0] as usize;
    if first >= 2 || !rows::has_classes(board.rows[first][row].kind) {
        return ALL_PARTS;
    }
    let kind: u32 = board.rows[first][row].kind;
    let colors: u32 = board.rows[first][row].colors;
    brighten_words(&board.rows[first][row], four_values(table, colors), to, strip);
    if kind == rows::BLANKED {
        strip[to] = table[0] as u32 * 0x0101_0101;
        strip[to + 1] = table[0] as u32 * 0x0101_0101;
    }
    let mut parts: u32 = 0;
    for i in 1..3usize {
        let picture: usize = picture_set.picture[i] as usize;
        if picture == NO_PICTURE as usize {
            break;
        }
        if picture >= 2 || board.rows[picture][row].kind != kind || board.rows[picture][row].colors != colors
        {
            return ALL_PARTS;
        }
        // The pictures of one step are equal in most places.
        for word in 0..5usize {
            parts |= ((board.rows[picture][row].classes[word] != board.rows[first][row].classes[word])
                as u32)
                << word;
        }
    }
    parts
}

/// Brightness of the pixels of a class row, from word `to` of a strip on.
#[inline(always)]
fn brighten_words(row: &Row, values: u32, to: usize, strip: &mut [u32]) {
    for word in 0..5usize {
        let mut fours: [u32; 8] = [0; 8];
        rows::fours_of_classes(row.classes[word], values, &mut fours);
        put_fours(strip, to + 8 * word, &fours, true);
    }
}

/// As `brighten_row`, for part `word` of it, which is 32 pixels.
#[inline(always)]
pub fn brighten_part(
    picture_set: &PictureSet,
    board: &Board,
    work: &[u8],
    table: &[u8],
    row: usize,
    word: usize,
    place: usize,
    strip: &mut [u32],
) {
    let at: usize = row * WIDTH + 32 * word;
    let to: usize = place * ROW_WORDS + 8 * word;
    let mut last: [u32; 8] = [0; 8];
    let mut last_is_bytes: bool = false;
    let first: usize = picture_set.picture[0] as usize;
    // `brighten_row` has computed the first picture if it has classes there.
    let begin: usize = (first < 2 && rows::has_classes(board.rows[first][row].kind)) as usize;
    for i in begin..3usize {
        let picture: usize = picture_set.picture[i] as usize;
        if picture == NO_PICTURE as usize {
            break;
        }
        let mut fours: [u32; 8] = [0; 8];
        if picture < 2 && rows::has_classes(board.rows[picture][row].kind) {
            let values: u32 = four_values(table, board.rows[picture][row].colors);
            rows::fours_of_classes(board.rows[picture][row].classes[word], values, &mut fours);
            if board.rows[picture][row].kind == rows::BLANKED && word == 0 {
                blank_fours(table, &mut fours);
            }
            last_is_bytes = false;
        } else {
            let mut indices: [u32; 8] = [0; 8];
            if picture < 2 {
                eight_words(&board.picture[picture], at, &mut indices);
            } else {
                eight_words(work, (picture - 2) * picture_set.picture_bytes as usize + at, &mut indices);
            }
            let mut differs: u32 = 0;
            for k in 0..8usize {
                differs |= indices[k] ^ last[k];
                last[k] = indices[k];
            }
            // The pictures of one step are equal in most places.
            if last_is_bytes && differs == 0 {
                continue;
            }
            last_is_bytes = true;
            for k in 0..8usize {
                fours[k] = four_values(table, last[k]);
            }
        }
        put_fours(strip, to, &fours, i == 0);
    }
}

/// As `area`, for an 84 x 84 plane, from a strip. `ranks` has the number of distinct picture rows up to each one, and `before` of
/// them come before the strip.
#[inline(never)]
pub fn area_84(
    strip: &[u32],
    ranks: &[u32],
    before: usize,
    reduction: &Reduction,
    cells: &[Cell],
    weights: &[f32],
    row: usize,
    column: usize,
) -> u8 {
    let x: Cell = cells[reduction.cells[0] as usize + column];
    let y: Cell = cells[reduction.cells[1] as usize + row];
    let x_at: usize = (reduction.weights[0] + x.at) as usize;
    let y_at: usize = (reduction.weights[1] + y.at) as usize;
    let mut total: f32 = 0.0;
    for j in 0..y.count as usize {
        let line: usize = (ranks[y.first as usize + j] as usize - before - 1) * ROW_WORDS;
        let mut sum: f32 = 0.0;
        for i in 0..x.count as usize {
            let from: usize = x.first as usize + i;
            let value: u32 = strip[line + from / 4] >> (8 * (from & 3)) & 0xFF;
            let product: f32 = value as f32 * weights[x_at + i];
            sum = if i == 0 { product } else { sum + product };
        }
        let product: f32 = sum * weights[y_at + j];
        total = if j == 0 { product } else { total + product };
    }
    round_pixel(total)
}

/// 32 bits of two words, from bit `shift` on, which is less than 32.
fn shifted(low: u32, high: u32, shift: u32) -> u32 {
    ((low as u64 | (high as u64) << 32) >> shift) as u32
}

/// Sums across row `place` of a strip, in 80ths of a pixel, with 40 added: two in a word of `sums`, the left one in the low half.
#[inline(always)]
pub fn sum_row_84(strip: &[u32], place: usize, sums: &mut [u32]) {
    let half_words: usize = WIDTH / 8;
    for half in 0..2usize {
        let from: usize = place * ROW_WORDS + half * half_words;
        let to: usize = place * SUM_WORDS + half * 21;
        sum_half_84(strip, from, sums, to);
    }
}

/// As `sum_row_84`, for the 42 columns of half a row, from words `from` and `to` on.
#[inline(always)]
fn sum_half_84(strip: &[u32], from: usize, sums: &mut [u32], to: usize) {
    let mut words: [u32; 20] = [0; 20];
    for k in 0..20usize {
        words[k] = strip[from + k];
    }
    for pair in 0..21usize {
        let mut two: [u32; 2] = [0; 2];
        for i in 0..2usize {
            let across: [u32; 2] = ACROSS_84[2 * pair + i];
            let word: usize = (across[0] / 4) as usize;
            let shift: u32 = 8 * (across[0] & 3);
            let mut four: u32 = words[word];
            if shift != 0 {
                four = shifted(words[word], words[word + 1], shift);
            }
            two[i] = dot4(four, 2 * across[1], 40);
        }
        sums[to + pair] = rows::select_bytes(two[0], two[1], 0x5410);
    }
}

/// Pixels of two rows of an 84 x 84 plane, `UNIT_COLUMNS` each, from the sums of the five picture rows from row `first` on. `ranks`
/// has the number of distinct picture rows up to each one, and `before` of them come before the strip. `unit` counts columns. Returns
/// the pixels that are halfway between two values: bit 8 k + q for pixel 4 q + k of the upper row, bit 8 k + QUADS + q for the lower.
/// The float computation decides these. It returns some others too, of which it computes the same pixel.
#[inline(always)]
pub fn round_unit_84(
    sums: &[u32],
    ranks: &[u32],
    before: u32,
    first: usize,
    unit: u32,
    pixels: &mut [[u32; QUADS]; 2],
) -> u32 {
    let shift: u32 = (2 * QUADS as u32 * unit).wrapping_sub((before + 1) * SUM_WORDS as u32);
    let mut at: [usize; 5] = [0; 5];
    for j in 0..5usize {
        at[j] = (ranks[first + j] * SUM_WORDS as u32).wrapping_add(shift) as usize;
    }
    let mut ties: u32 = 0;
    for quad in 0..QUADS {
        let mut upper: [u32; 2] = [0; 2];
        let mut lower: [u32; 2] = [0; 2];
        for k in 0..2usize {
            // Halves are 200ths with 100 added, at most 51,100. The middle row belongs to both, with half of the weight; its sums
            // are even.
            let word: usize = 2 * quad + k;
            let middle: u32 = sums[at[2] + word] >> 1;
            upper[k] = sums[at[0] + word] + sums[at[1] + word] + middle;
            lower[k] = sums[at[3] + word] + sums[at[4] + word] + middle;
        }
        let upper_ties: u32 = round_four(&upper, &mut pixels[0][quad]);
        let lower_ties: u32 = round_four(&lower, &mut pixels[1][quad]);
        ties |= upper_ties >> (7 - quad as u32) | lower_ties >> (7 - (QUADS + quad) as u32);
    }
    ties
}

/// Divides four sums, which are halves of words, by 200. Returns a word with bit 7 of the bytes where nothing remains, and perhaps
/// of the byte after such a one.
#[inline(always)]
fn round_four(sums: &[u32; 2], pixels: &mut u32) -> u32 {
    // 2^24 / 200, rounded up: exact for all sums, up to 51,100. Of 200 q + r, the upper byte of the product is q, and its other
    // bytes are 184 q + SCALE * r: byte 2 is 0 if and only if r is.
    const SCALE: u32 = (1 << 24) / WEIGHT_84 + 1;
    let first: u32 = rows::select_bytes((sums[0] & 0xFFFF) * SCALE, (sums[0] >> 16) * SCALE, 0x6273);
    let second: u32 = rows::select_bytes((sums[1] & 0xFFFF) * SCALE, (sums[1] >> 16) * SCALE, 0x6273);
    *pixels = rows::select_bytes(first, second, 0x5410);
    let fractions: u32 = rows::select_bytes(first, second, 0x7632);
    fractions.wrapping_sub(0x0101_0101) & !fractions & 0x8080_8080
}

/// Byte `index` of a plane.
#[inline(never)]
pub fn pixel(
    reduction: &Reduction,
    picture_set: &PictureSet,
    boards: &[u8],
    work: &[u8],
    cells: &[Cell],
    weights: &[f32],
    blends: &[Blend],
    tables: &[u8],
    index: u32,
) -> u8 {
    let size: u32 = reduction.rows * reduction.columns;
    let mut channel: u32 = 0;
    let mut place: u32 = index;
    if reduction.channels > 1 {
        channel = if reduction.channels_last != 0 { index % reduction.channels } else { index / size };
        place = if reduction.channels_last != 0 { index / reduction.channels } else { index % size };
    }
    let first: usize = (reduction.table + 256 * channel) as usize;
    let table: &[u8] = &tables[first..first + 256];
    let row: usize = (place / reduction.columns) as usize;
    let column: usize = (place % reduction.columns) as usize;
    match reduction.kind {
        REDUCE_BLOCKS => {
            let mut sum: u32 = 0;
            for j in 0..reduction.down as usize {
                let from: usize =
                    (row * reduction.down as usize + j) * WIDTH + column * reduction.across as usize;
                for i in 0..reduction.across as usize {
                    sum += brightest(picture_set, boards, work, table, from + i) as u32;
                }
            }
            if reduction.across == 2 && reduction.down == 2 {
                quarter(sum)
            } else {
                block_average(sum, reduction.scale)
            }
        }
        REDUCE_84 => {
            // In integers (200ths). If the sum is halfway between two pixels, the float computation decides.
            let across: [u32; 2] = ACROSS_84[column];
            let (first_row, down): (usize, [u16; 3]) = rows_84(row);
            let first_column: usize = across[0] as usize;
            let mut sum: u32 = 100;
            for j in 0..3usize {
                let from: usize = (first_row + j) * WIDTH + first_column;
                let mut four: u32 = 0;
                for i in 0..4usize {
                    four |= (brightest(picture_set, boards, work, table, from + i) as u32) << (8 * i);
                }
                sum = dot4(four, across[1] * down[j] as u32, sum);
            }
            if is_tie_84(sum as u16) {
                area(reduction, picture_set, boards, work, cells, weights, table, row, column)
            } else {
                (sum / WEIGHT_84) as u8
            }
        }
        REDUCE_AREA => area(reduction, picture_set, boards, work, cells, weights, table, row, column),
        REDUCE_BLEND => {
            let x: Blend = blends[reduction.blends[0] as usize + column];
            let y: Blend = blends[reduction.blends[1] as usize + row];
            let mut sum: i32 = 0;
            for j in 0..2usize {
                let from: usize = y.from[j] as usize * WIDTH;
                let left: u8 = brightest(picture_set, boards, work, table, from + x.from[0] as usize);
                let right: u8 = brightest(picture_set, boards, work, table, from + x.from[1] as usize);
                let across: i32 = left as i32 * x.weight[0] + right as i32 * x.weight[1];
                sum += (y.weight[j] * (across >> 4)) >> 16;
            }
            let value: i32 = (sum + 2) >> 2;
            if value > 255 { 255 } else { value as u8 }
        }
        _ => brightest(picture_set, boards, work, table, row * WIDTH + column),
    }
}

#[cfg(not(device))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::reduce::Reducer;

    #[test]
    fn four_products_are_summed() {
        assert_eq!(dot4(0x04_03_02_01, 0x28_1E_14_0A, 5), 5 + 10 + 40 + 90 + 160);
        assert_eq!(dot4(u32::MAX, u32::MAX, 1), 1 + 4 * 255 * 255);
    }

    #[test]
    fn weights_across_are_40ths_of_pixels_that_are_there() {
        for (column, [first, weights]) in ACROSS_84.into_iter().enumerate() {
            let forty = column as u32 / 21 * 40;
            assert!((forty..=forty + 36).contains(&first), "from {first}");
            assert_eq!(dot4(weights, 0x01_01_01_01, 0), 40);
        }
    }

    #[test]
    fn rows_are_distinct_if_one_picture_differs_from_the_row_above() {
        let mut board: Box<Board> = bytemuck::zeroed_box();
        for picture in 0..2 {
            for row in 0..ROWS_84 as usize {
                board.rows[picture][row].kind = rows::CLASSES;
            }
        }
        let set = |picture| PictureSet { picture, picture_bytes: 0 };
        let distinct = |board: &Board, picture| -> Vec<usize> {
            let rows = (0..ROWS_84 as usize).step_by(ROWS_TOGETHER as usize);
            rows.flat_map(|first| {
                let found = distinct_rows(&set(picture), board, first);
                assert!(found <= ALL_TOGETHER);
                (0..ROWS_TOGETHER as usize).filter(move |k| found >> k & 1 != 0).map(move |k| first + k)
            })
            .collect()
        };
        let both = [0, 1, NO_PICTURE];
        assert_eq!(distinct(&board, both), [0]);
        board.rows[0][20].classes[4] = 1 << 63;
        board.rows[1][27].colors = 1;
        board.rows[1][28].colors = 1;
        board.rows[1][209].kind = rows::BLANKED;
        assert_eq!(distinct(&board, both), [0, 20, 21, 27, 29, 209]);
        assert_eq!(distinct(&board, [1, NO_PICTURE, NO_PICTURE]), [0, 27, 29, 209]);
        // Rows of bytes are not compared.
        board.rows[0][100].kind = rows::BYTES;
        board.rows[0][101].kind = rows::BYTES;
        assert_eq!(distinct(&board, [0, NO_PICTURE, NO_PICTURE]), [0, 20, 21, 100, 101, 102]);
        assert_eq!(distinct(&board, [0, 2, NO_PICTURE]).len(), ROWS_84 as usize);
    }

    /// Integer and float computation give equal pixels, also halfway between two values.
    #[test]
    fn whole_numbers_give_the_pixels_of_floats() {
        let (mut cells, mut weights, mut blends) = (vec![], vec![], vec![]);
        let reducer = Reducer::new(210, 84, 84).unwrap();
        let mut whole = reducer.describe(&mut cells, &mut weights, &mut blends);
        assert_eq!(whole.kind, REDUCE_84);
        whole.channels = 1;
        let floats = Reduction { kind: REDUCE_AREA, ..whole };
        let table: Vec<u8> = (0..=255).collect();
        let picture_set = PictureSet { picture: [0, 1, NO_PICTURE], picture_bytes: 0 };
        let (mut draws, mut ties) = (1u64, 0);
        let mut strip = [0xFFFF_FFFFu32; STRIP_WORDS as usize];
        let mut sums = [0xFFFF_FFFFu32; STRIP_SUM_WORDS as usize];
        let mut plane = [0u8; 84 * 84];
        // Every row of the picture is a distinct one.
        let ranks: Vec<u32> = (1..=ROWS_84).collect();
        let mut tie_count = 0;
        for few in [false, true, true] {
            let boards: Vec<u8> = (0..2 * 210 * WIDTH)
                .map(|_| {
                    draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let byte = (draws >> 56) as u8;
                    if few { byte / 52 * 50 } else { byte }
                })
                .collect();
            let mut board: Box<Board> = bytemuck::zeroed_box();
            for (picture, bytes) in board.picture.iter_mut().zip(boards.chunks_exact(210 * WIDTH)) {
                picture[..210 * WIDTH].copy_from_slice(bytes);
            }
            for index in 0..84 * 84 {
                let one = |reduction: &Reduction| {
                    pixel(reduction, &picture_set, &boards, &[], &cells, &weights, &blends, &table, index)
                };
                assert_eq!(one(&whole), one(&floats), "pixel {index}");
                let (row, column) = (index as usize / 84, index as usize % 84);
                if (row % 12, column) == (0, 0) {
                    let first = row / 12 * 30;
                    for place in 0..30 {
                        let row = first + place;
                        let parts = brighten_row(&picture_set, &board, &table, row, place, &mut strip);
                        for part in (0..ROW_PARTS as usize).filter(|part| parts >> part & 1 != 0) {
                            brighten_part(&picture_set, &board, &[], &table, row, part, place, &mut strip);
                        }
                        sum_row_84(&strip, place, &mut sums);
                    }
                    for unit in 0..6 * UNITS_ACROSS {
                        let (group, unit) = ((unit / UNITS_ACROSS) as usize, unit % UNITS_ACROSS);
                        let mut found = [[0; QUADS]; 2];
                        let ties =
                            round_unit_84(&sums, &ranks, first as u32, first + 5 * group, unit, &mut found);
                        assert_eq!(ties & !0x3F3F_3F3F, 0);
                        for k in 0..2 * UNIT_COLUMNS {
                            let (line, column) = ((k / UNIT_COLUMNS) as usize, k % UNIT_COLUMNS);
                            let (quad, byte) = ((column / 4) as usize, 8 * (column % 4));
                            let (y, x) = (row + 2 * group + line, unit * UNIT_COLUMNS + column);
                            let place = 84 * y + x as usize;
                            plane[place] = (found[line][quad] >> byte) as u8;
                            if ties >> (byte as usize + QUADS * line + quad) & 1 != 0 {
                                tie_count += 1;
                                plane[place] =
                                    area_84(&strip, &ranks, first, &whole, &cells, &weights, y, x as usize);
                            }
                        }
                    }
                }
                assert_eq!(plane[index as usize], one(&floats), "pixel {index} of a strip");
                let bright = |at: usize| u32::from(brightest(&picture_set, &boards, &[], &table, at));
                let (row, down) = rows_84(index as usize / 84);
                let [first, across] = ACROSS_84[index as usize % 84];
                let sum: u32 = (0..3)
                    .flat_map(|j| (0..4).map(move |i| (j, i)))
                    .map(|(j, i)| {
                        let at = (row + j) * WIDTH + first as usize + i;
                        bright(at) * (across >> (8 * i) & 0xFF) * u32::from(down[j])
                    })
                    .sum();
                ties += u32::from(sum % WEIGHT_84 == 100);
            }
        }
        assert!(ties > 1000, "only {ties} pixels lay between two");
        assert!(tie_count >= ties, "pixels whose integer computation may differ: {tie_count}");
    }
}
