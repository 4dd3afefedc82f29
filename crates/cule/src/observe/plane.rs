//! Computes single pixels of an observation: the maximum over the selected pictures, resized.
//!
//! Device subset. Sums are in the order of `observe`, so that pixels are equal bit for bit.

use bytemuck::{Pod, Zeroable};

use crate::env::state::NO_PICTURE;
use crate::machine::Board;
use crate::machine::tia::rows;
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

/// Picture rows of a strip. A strip is processed as a whole and gives `STRIP_OUT` rows of an 84 x 84 plane.
pub const STRIP_ROWS: u32 = 30;
/// Rows of an 84 x 84 plane that are computed from a strip.
pub const STRIP_OUT: u32 = 12;
/// Parts of a row of a strip, with 32 pixels each.
pub const STRIP_PARTS: u32 = 5;
/// Words of a row of a strip.
const ROW_WORDS: usize = WIDTH / 4;
/// Words of a strip, four pixels each, plus one that is read with weight 0 for the last pixel.
pub const STRIP_WORDS: u32 = STRIP_ROWS * ROW_WORDS as u32 + 1;

/// Four bytes as a word, the first in the lowest byte. `at` is a multiple of four.
fn word_at(bytes: &[u8], at: usize) -> u32 {
    let mut word: u32 = 0;
    for i in 0..4usize {
        word |= (bytes[at + i] as u32) << (8 * i);
    }
    word
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

/// As `brightest`, for 32 pixels of a row from a multiple of 32 on: writes eight words of a strip, from `to`
/// on.
#[inline(always)]
pub fn brighten(
    picture_set: &PictureSet,
    board: &Board,
    work: &[u8],
    table: &[u8],
    row: usize,
    word: usize,
    strip: &mut [u32],
    to: usize,
) {
    let at: usize = row * WIDTH + 32 * word;
    let mut most: [u32; 8] = [0; 8];
    let mut any: bool = false;
    let mut last_kind: u32 = rows::BYTES;
    let mut last_colors: u32 = 0;
    let mut last_classes: u64 = 0;
    for i in 0..3usize {
        let picture: u8 = picture_set.picture[i];
        if picture != NO_PICTURE {
            let mut kind: u32 = rows::BYTES;
            let mut colors: u32 = 0;
            let mut classes: u64 = 0;
            if picture < 2 {
                kind = board.rows[picture as usize][row].kind;
                colors = board.rows[picture as usize][row].colors;
                classes = board.rows[picture as usize][row].classes[word];
            }
            // The pictures of one step are equal in most places.
            let same: bool = kind == last_kind && colors == last_colors && classes == last_classes;
            if !rows::has_classes(kind) || !same {
                let mut fours: [u32; 8] = [0; 8];
                if !rows::has_classes(kind) {
                    for k in 0..8usize {
                        let indices: u32 = if picture < 2 {
                            word_at(&board.picture[picture as usize], at + 4 * k)
                        } else {
                            word_at(
                                work,
                                (picture as usize - 2) * picture_set.picture_bytes as usize + at + 4 * k,
                            )
                        };
                        fours[k] = four_values(table, indices);
                    }
                } else {
                    let values: u32 = four_values(table, colors);
                    let low: u32 = classes as u32;
                    let high: u32 = (classes >> 32) as u32;
                    for k in 0..8u32 {
                        fours[k as usize] = rows::four_pixels(values, low >> (4 * k), high >> (4 * k));
                    }
                    if kind == rows::BLANKED && word == 0 {
                        fours[0] = table[0] as u32 * 0x0101_0101;
                        fours[1] = fours[0];
                    }
                }
                if any {
                    for k in 0..8usize {
                        most[k] = larger_of_four(most[k], fours[k]);
                    }
                } else {
                    most = fours;
                }
            }
            last_kind = kind;
            last_colors = colors;
            last_classes = classes;
            any = true;
        }
    }
    for k in 0..8usize {
        strip[to + k] = most[k];
    }
}

/// As `area`, for an 84 x 84 plane, from a strip.
#[inline(never)]
fn area_84(
    strip: &[u32],
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
        let line: usize = (y.first as usize + j) % STRIP_ROWS as usize * ROW_WORDS;
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

/// A pixel of an 84 x 84 plane from the strip that contains it, in integers (200ths). If the sum is halfway
/// between two pixels, the float computation decides.
#[inline(always)]
pub fn pixel_84(
    strip: &[u32],
    reduction: &Reduction,
    cells: &[Cell],
    weights: &[f32],
    row: usize,
    column: usize,
) -> u8 {
    let across: [u32; 2] = ACROSS_84[column];
    let (first_row, down): (usize, [u16; 3]) = rows_84(row);
    let x: usize = across[0] as usize;
    let at: usize = first_row % STRIP_ROWS as usize * ROW_WORDS + x / 4;
    let shift: u32 = 8 * (x & 3) as u32;
    let mut sum: u32 = 100;
    for j in 0..3usize {
        let low: u32 = strip[at + j * ROW_WORDS];
        let high: u32 = strip[at + j * ROW_WORDS + 1];
        let four: u32 = ((low as u64 | (high as u64) << 32) >> shift) as u32;
        sum = dot4(four, across[1] * down[j] as u32, sum);
    }
    let whole: u32 = sum / WEIGHT_84;
    if whole * WEIGHT_84 == sum {
        area_84(strip, reduction, cells, weights, row, column)
    } else {
        whole as u8
    }
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
                if (row % STRIP_OUT as usize, column) == (0, 0) {
                    let first = row / STRIP_OUT as usize * STRIP_ROWS as usize;
                    for i in 0..(STRIP_ROWS * STRIP_PARTS) as usize {
                        brighten(&picture_set, &board, &[], &table, first + i / 5, i % 5, &mut strip, 8 * i);
                    }
                }
                let pixel = pixel_84(&strip, &whole, &cells, &weights, row, column);
                assert_eq!(pixel, one(&floats), "pixel {index} of a strip");
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
    }
}
