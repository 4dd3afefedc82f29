//! Resizing on the host: the tables for one pair of sizes, and the order of the passes. The arithmetic is in
//! `observe`.

#![allow(
    unsafe_code,
    reason = "the same arithmetic compiled for wider vectors, used after a check of the processor's features"
)]

#[cfg(target_arch = "x86_64")]
use super::shrink;
use super::{
    Blend, Cell, ROW_84, WIDTH, add_row, area_pixel, area_row, blend_row, blend_rows, block_average,
    is_tie_84, quarter, round_84, round_row, rows_84, shrink_84,
};
use crate::CuleError;
use crate::observe::plane::{self, Reduction};
use bytemuck::Zeroable;

/// Maximum number of pixels along one side of an observation.
pub const MAX_SIDE: usize = 4096;

/// Resizes pictures of `height` rows of 160 pixels to one target size.
#[derive(Clone, Debug)]
pub struct Reducer {
    height: usize,
    target: (usize, usize),
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Copy,
    Blocks { across: usize, down: usize },
    Area { x: Average, y: Average, small: bool },
    Blend { x: Vec<Blend>, y: Vec<Blend> },
}

/// Table of area averages along one axis.
#[derive(Clone, Debug, Default)]
struct Average {
    cells: Vec<Cell>,
    weights: Vec<f32>,
}

/// Scratch memory of resizing; one per thread.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    sums: Vec<f32>,
    total: Vec<f32>,
    blended: Vec<i32>,
}

/// A plane of pixels, row by row, that marks repeated rows: row y equals the row at offset `rows[y]`.
#[derive(Clone, Copy)]
pub struct Plane<'a> {
    /// The pixels.
    pub pixels: &'a [u8],
    /// For each row the offset of its first pixel, or of that of an equal row above it.
    pub rows: &'a [u32],
}

impl Reducer {
    /// Creates the tables for resizing from (`height`, 160) to (`rows`, `columns`).
    ///
    /// # Errors
    /// [`CuleError::Setting`] if a side is 0 or above [`MAX_SIDE`].
    pub fn new(height: usize, rows: usize, columns: usize) -> Result<Self, CuleError> {
        for (name, side) in [("img_height", rows), ("img_width", columns)] {
            if side == 0 || side > MAX_SIDE {
                return Err(CuleError::Setting { name, value: side.to_string(), bound: "1 to 4096" });
            }
        }
        let scale_x: f64 = 1.0 / (columns as f64 / WIDTH as f64);
        let scale_y: f64 = 1.0 / (rows as f64 / height as f64);
        let kind = if rows == height && columns == WIDTH {
            Kind::Copy
        } else if scale_x >= 1.0 && scale_y >= 1.0 {
            if is_whole(scale_x) && is_whole(scale_y) {
                Kind::Blocks { across: scale_x.round() as usize, down: scale_y.round() as usize }
            } else {
                let small = (height, rows, columns) == (210, 84, 84);
                Kind::Area { x: average(WIDTH, columns, scale_x), y: average(height, rows, scale_y), small }
            }
        } else {
            Kind::Blend { x: blends(WIDTH, columns, scale_x), y: blends(height, rows, scale_y) }
        };
        Ok(Self { height, target: (rows, columns), kind })
    }

    /// Returns the parameters as plain numbers, and appends the tables to `cells`, `weights` and `blends`.
    pub fn describe(
        &self,
        cells: &mut Vec<Cell>,
        weights: &mut Vec<f32>,
        blends: &mut Vec<Blend>,
    ) -> Reduction {
        let mut reduction = Reduction {
            kind: plane::REDUCE_COPY,
            rows: self.target.0 as u32,
            columns: self.target.1 as u32,
            ..Reduction::zeroed()
        };
        match &self.kind {
            Kind::Copy => {}
            Kind::Blocks { across, down } => {
                reduction.kind = plane::REDUCE_BLOCKS;
                reduction.across = *across as u32;
                reduction.down = *down as u32;
                reduction.scale = block_scale(*across, *down);
            }
            Kind::Area { x, y, small } => {
                reduction.kind = if *small { plane::REDUCE_84 } else { plane::REDUCE_AREA };
                for (i, axis) in [x, y].into_iter().enumerate() {
                    reduction.cells[i] = cells.len() as u32;
                    reduction.weights[i] = weights.len() as u32;
                    cells.extend(&axis.cells);
                    weights.extend(&axis.weights);
                }
            }
            Kind::Blend { x, y } => {
                reduction.kind = plane::REDUCE_BLEND;
                for (i, axis) in [x, y].into_iter().enumerate() {
                    reduction.blends[i] = blends.len() as u32;
                    blends.extend(axis);
                }
            }
        }
        reduction
    }

    /// Rows of the source.
    pub fn source_rows(&self) -> usize {
        self.height
    }

    /// Rows and columns of the output.
    pub fn target(&self) -> (usize, usize) {
        self.target
    }

    /// Bytes of an output plane.
    pub fn size_bytes(&self) -> usize {
        self.target.0 * self.target.1
    }

    /// Resizes one plane into `out`, which has `size_bytes` bytes.
    pub fn reduce(&self, plane: Plane<'_>, work: &mut Workspace, out: &mut [u8]) {
        let columns = self.target.1;
        match &self.kind {
            Kind::Copy => {
                for (y, row) in out.chunks_exact_mut(columns).enumerate() {
                    row.copy_from_slice(plane.row(y));
                }
            }
            Kind::Blocks { across, down } => blocks(plane, *across, *down, columns, out),
            Kind::Area { x, y, small: true } => small(plane, x, y, out),
            Kind::Area { x, y, small: false } => area(plane, self.height, x, y, work, out),
            Kind::Blend { x, y } => blend(plane, self.height, x, y, work, out),
        }
    }
}

impl<'a> Plane<'a> {
    fn row(&self, y: usize) -> &'a [u8; WIDTH] {
        let at = self.rows[y] as usize;
        self.pixels[at..at + WIDTH].try_into().expect("a row has 160 pixels")
    }
}

fn is_whole(scale: f64) -> bool {
    (scale - scale.round()).abs() < f64::EPSILON
}

fn average(source: usize, target: usize, scale: f64) -> Average {
    const LEAST: f64 = 1e-3;
    let mut table = Average::default();
    for d in 0..target {
        let start = d as f64 * scale;
        let end = start + scale;
        let width = scale.min(source as f64 - start);
        let last = (end.floor() as usize).min(source - 1);
        let inner = (start.ceil() as usize).min(last);
        let at = table.weights.len();
        let mut first = inner;
        if inner as f64 - start > LEAST {
            first = inner - 1;
            table.weights.push(((inner as f64 - start) / width) as f32);
        }
        table.weights.extend((inner..last).map(|_| (1.0 / width) as f32));
        if end - last as f64 > LEAST {
            table.weights.push(((end - last as f64).min(1.0).min(width) / width) as f32);
        }
        let count = table.weights.len() - at;
        table.cells.push(Cell { first: first as u32, count: count as u32, at: at as u32 });
    }
    table
}

fn blends(source: usize, target: usize, scale: f64) -> Vec<Blend> {
    const ONE: f32 = 2048.0;
    let inverse = target as f64 / source as f64;
    let last = source - 1;
    (0..target)
        .map(|d| {
            let mut i = (d as f64 * scale).floor() as usize;
            let mut f = ((d + 1) as f64 - (i + 1) as f64 * inverse) as f32;
            f = if f <= 0.0 { 0.0 } else { f - f.floor() };
            if i >= last {
                i = last;
                f = 0.0;
            }
            let weight = [((1.0 - f) * ONE).round_ties_even() as i32, (f * ONE).round_ties_even() as i32];
            Blend { from: [i as u32, (i + 1).min(last) as u32], weight }
        })
        .collect()
}

fn block_scale(across: usize, down: usize) -> f32 {
    (1.0 / (across * down) as f64) as f32
}

fn blocks(plane: Plane<'_>, across: usize, down: usize, columns: usize, out: &mut [u8]) {
    let scale = block_scale(across, down);
    for (d, row) in out.chunks_exact_mut(columns).enumerate() {
        for (x, pixel) in row.iter_mut().enumerate() {
            let mut sum: u32 = 0;
            for j in 0..down {
                let source = plane.row(d * down + j);
                sum += source[x * across..(x + 1) * across].iter().map(|&byte| u32::from(byte)).sum::<u32>();
            }
            *pixel = if (across, down) == (2, 2) { quarter(sum) } else { block_average(sum, scale) };
        }
    }
}

/// 210 rows to 84 x 84, with the widest vectors that the processor supports.
fn small(plane: Plane<'_>, x: &Average, y: &Average, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if shrink::is_supported() {
        // SAFETY: the processor supports the instructions.
        small_any(plane, x, y, out, |rows, weights, sums, pixels| unsafe {
            shrink::row_84(rows, weights, sums, pixels)
        });
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor supports the instructions.
        unsafe { small_avx2(plane, x, y, out) };
        return;
    }
    small_plain(plane, x, y, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn small_avx2(plane: Plane<'_>, x: &Average, y: &Average, out: &mut [u8]) {
    small_plain(plane, x, y, out);
}

#[inline(always)]
fn small_plain(plane: Plane<'_>, x: &Average, y: &Average, out: &mut [u8]) {
    let mut even: [u16; 104] = [0; 104];
    let mut odd: [u16; 104] = [0; 104];
    small_any(plane, x, y, out, |[first, second, third], weights, sums, pixels| {
        shrink_84(first, second, third, weights, &mut even, &mut odd, sums);
        round_84(sums, pixels)
    });
}

/// Resizes with exact sums in 200ths; only sums halfway between two pixels depend on the rounding of `f32`.
/// `row` computes the sums and pixels of three rows and returns true if there is such a sum.
#[inline(always)]
fn small_any(
    plane: Plane<'_>,
    x: &Average,
    y: &Average,
    out: &mut [u8],
    mut row: impl FnMut([&[u8; WIDTH]; 3], [u16; 3], &mut [u16; ROW_84], &mut [u8; ROW_84]) -> bool,
) {
    const COLUMNS: usize = 84;
    let mut sums: [u16; ROW_84] = [1; ROW_84];
    let mut pixels: [u8; ROW_84] = [0; ROW_84];
    let mut shown: Option<u32> = None;
    let mut tied = false;
    for d in 0..out.len() / COLUMNS {
        let (first, weights) = rows_84(d);
        let places = [plane.rows[first], plane.rows[first + 1], plane.rows[first + 2]];
        let alike = (places[0] == places[1] && places[1] == places[2]).then_some(places[0]);
        let target = d * COLUMNS..(d + 1) * COLUMNS;
        if alike.is_some() && alike == shown {
            // Three equal rows have the same sum for all weights, but their `f32` sums may be rounded
            // differently.
            if rows_84(d - 1).1 == weights || !tied {
                out.copy_within(target.start - COLUMNS..target.start, target.start);
                continue;
            }
        }
        shown = alike;
        tied = row([0, 1, 2].map(|i| plane.row(first + i)), weights, &mut sums, &mut pixels);
        if tied {
            for column in 0..COLUMNS {
                if is_tie_84(sums[column]) {
                    pixels[column] = area_pixel(
                        plane.pixels,
                        plane.rows,
                        x.cells[column],
                        &x.weights,
                        y.cells[d],
                        &y.weights,
                    );
                }
            }
        }
        out[target].copy_from_slice(&pixels[..COLUMNS]);
    }
}

fn area(plane: Plane<'_>, height: usize, x: &Average, y: &Average, work: &mut Workspace, out: &mut [u8]) {
    let columns = x.cells.len();
    work.sums.resize(height * columns, 0.0);
    work.total.resize(columns, 0.0);
    for row in 0..height {
        if plane.rows[row] as usize == row * WIDTH {
            area_row(
                plane.row(row),
                &x.cells,
                &x.weights,
                &mut work.sums[row * columns..(row + 1) * columns],
            );
        }
    }
    for (cell, target) in y.cells.iter().zip(out.chunks_exact_mut(columns)) {
        for j in 0..cell.count as usize {
            let at = plane.rows[cell.first as usize + j] as usize / WIDTH * columns;
            add_row(&work.sums[at..at + columns], y.weights[cell.at as usize + j], j == 0, &mut work.total);
        }
        round_row(&work.total, target);
    }
}

fn blend(plane: Plane<'_>, height: usize, x: &[Blend], y: &[Blend], work: &mut Workspace, out: &mut [u8]) {
    let columns = x.len();
    work.blended.resize(height * columns, 0);
    for row in 0..height {
        if plane.rows[row] as usize == row * WIDTH {
            blend_row(plane.row(row), x, &mut work.blended[row * columns..(row + 1) * columns]);
        }
    }
    for (b, target) in y.iter().zip(out.chunks_exact_mut(columns)) {
        let [upper, lower] = b.from.map(|row| plane.rows[row as usize] as usize / WIDTH * columns);
        blend_rows(
            &work.blended[upper..upper + columns],
            &work.blended[lower..lower + columns],
            b.weight,
            target,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRC-32 as computed by zlib.
    fn crc(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |mut c, &byte| {
            c ^= u32::from(byte);
            for _ in 0..8 {
                c = if c & 1 != 0 { 0xEDB8_8320 ^ (c >> 1) } else { c >> 1 };
            }
            c
        })
    }

    fn reduced(height: usize, rows: usize, columns: usize, offset: usize) -> Vec<u8> {
        let pixels: Vec<u8> = (0..height * WIDTH)
            .map(|i| {
                let (y, x) = (i / WIDTH, i % WIDTH);
                ((7 * x + 13 * y + x * y + offset) % 256) as u8
            })
            .collect();
        let starts: Vec<u32> = (0..height).map(|y| (y * WIDTH) as u32).collect();
        let reducer = Reducer::new(height, rows, columns).unwrap();
        let mut out = vec![0; reducer.size_bytes()];
        reducer.reduce(Plane { pixels: &pixels, rows: &starts }, &mut Workspace::default(), &mut out);
        out
    }

    #[test]
    fn pictures_of_the_specification() {
        for (height, rows, columns, expected) in [
            (210, 84, 84, 883_034_464),
            (250, 84, 84, 445_366_876),
            (210, 105, 80, 2_740_950_104),
            (210, 42, 42, 50_629_813),
            (210, 70, 80, 1_846_420_381),
            (210, 110, 84, 859_238_649),
            (210, 128, 128, 42_773_829),
            (210, 84, 160, 3_214_072_509),
            (210, 250, 200, 2_327_129_532),
            (210, 300, 161, 4_431_335),
            (210, 210, 161, 3_601_518_534),
            (210, 1, 1, 314_082_080),
        ] {
            assert_eq!(crc(&reduced(height, rows, columns, 0)), expected, "{height} to {rows} x {columns}");
        }
    }

    #[test]
    fn three_channels_are_three_planes() {
        let planes: Vec<Vec<u8>> = (0..3).map(|channel| reduced(210, 84, 84, 50 * channel)).collect();
        let mixed: Vec<u8> = (0..84 * 84 * 3).map(|i| planes[i % 3][i / 3]).collect();
        assert_eq!(crc(&mixed), 737_255_067);
    }

    #[test]
    fn the_short_way_equals_the_long_one() {
        let mut state: u32 = 1;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let long = {
            let mut reducer = Reducer::new(210, 84, 84).unwrap();
            if let Kind::Area { small, .. } = &mut reducer.kind {
                *small = false;
            }
            reducer
        };
        let short = Reducer::new(210, 84, 84).unwrap();
        for round in 0..60 {
            // Few distinct colors cause ties; some rows repeat the row above.
            let mut pixels: Vec<u8> = (0..210 * WIDTH)
                .map(|_| {
                    if round % 2 == 0 {
                        random()
                    } else {
                        [0, 36, 74, 111, 142, 170, 192, 214][(random() & 7) as usize]
                    }
                })
                .collect();
            let mut starts: Vec<u32> = (0..210).map(|y| (y * WIDTH) as u32).collect();
            for y in 1..210 {
                if round % 3 != 0 && random() > 60 {
                    let above = starts[y - 1] as usize;
                    pixels.copy_within(above..above + WIDTH, y * WIDTH);
                    starts[y] = above as u32;
                }
            }
            let plane = Plane { pixels: &pixels, rows: &starts };
            let mut work = Workspace::default();
            let (mut a, mut b) = (vec![0; 84 * 84], vec![0; 84 * 84]);
            short.reduce(plane, &mut work, &mut a);
            long.reduce(plane, &mut work, &mut b);
            assert!(a == b, "round {round}");
        }
    }

    #[test]
    fn sides_have_bounds() {
        let message = Reducer::new(210, 0, 84).unwrap_err().to_string();
        assert_eq!(message, "img_height is 0, expected 1 to 4096");
        assert!(Reducer::new(210, 84, 4097).is_err());
    }
}
