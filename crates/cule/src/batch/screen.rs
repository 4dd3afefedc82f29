//! Makes the planes of one observation from up to three native pictures. Host only; the arithmetic is in
//! `observe`.

use crate::CuleError;
use crate::observe::reduce::{Plane, Reducer, Workspace};
use crate::observe::{WIDTH, palette, translate};

/// What an observation shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObsType {
    /// Brightness, resized.
    Gray,
    /// Red, green, blue, each resized.
    Rgb,
    /// Palette indices of the last frame at the native size.
    Index,
    /// The 128 bytes of console RAM.
    Ram,
}

/// Position of the channel axis of [`ObsType::Rgb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelOrder {
    /// (rows, columns, 3).
    Last,
    /// (3, rows, columns).
    First,
}

/// Converts pictures of one height and television standard to observations.
#[derive(Clone, Debug)]
pub struct Screen {
    obs_type: ObsType,
    order: ChannelOrder,
    reducer: Reducer,
    /// One brightness or color table per plane.
    tables: Vec<[u8; 256]>,
}

/// Buffers for making observations; one per thread.
#[derive(Clone, Debug, Default)]
pub struct Canvas {
    pooled: Vec<u8>,
    rows: Vec<u32>,
    plane: Vec<u8>,
    work: Workspace,
}

impl Canvas {
    /// The pooled pixels, row after row. `pooled` itself has equal rows only once.
    fn pixels(&self) -> Vec<u8> {
        self.rows.iter().flat_map(|&at| &self.pooled[at as usize..at as usize + WIDTH]).copied().collect()
    }
}

impl Screen {
    /// Prepares the conversion of pictures with `height` rows to observations of `size` (rows, columns);
    /// `None` is the native size.
    ///
    /// # Errors
    /// A side is out of bounds, or palette indices are requested in a size other than the native one.
    pub fn new(
        obs_type: ObsType,
        order: ChannelOrder,
        pal: bool,
        height: usize,
        size: Option<(usize, usize)>,
    ) -> Result<Self, CuleError> {
        let (rows, columns) = size.unwrap_or((height, WIDTH));
        if obs_type == ObsType::Index && (rows, columns) != (height, WIDTH) {
            let value = format!("{rows} x {columns}");
            return Err(CuleError::Setting {
                name: "the size of obs_type \"index\"",
                value,
                bound: "the native size: indices cannot be averaged",
            });
        }
        let television = if pal { palette::PAL } else { palette::NTSC };
        let tables = match obs_type {
            ObsType::Gray => vec![palette::GRAY[television]],
            ObsType::Rgb => [16, 8, 0]
                .map(|shift| std::array::from_fn(|i| (palette::RGB[television][i] >> shift) as u8))
                .to_vec(),
            ObsType::Index => vec![std::array::from_fn(|i| i as u8)],
            ObsType::Ram => vec![],
        };
        Ok(Self { obs_type, order, reducer: Reducer::new(height, rows, columns)?, tables })
    }

    /// The resizing of planes.
    pub fn reducer(&self) -> &Reducer {
        &self.reducer
    }

    /// Per channel, the value of each palette index. Empty for [`ObsType::Ram`].
    pub fn tables(&self) -> &[[u8; 256]] {
        &self.tables
    }

    /// Dimensions of one observation.
    pub fn shape(&self) -> Vec<usize> {
        let (rows, columns) = self.reducer.target();
        match (self.obs_type, self.order) {
            (ObsType::Ram, _) => vec![128],
            (ObsType::Rgb, ChannelOrder::Last) => vec![rows, columns, 3],
            (ObsType::Rgb, ChannelOrder::First) => vec![3, rows, columns],
            _ => vec![rows, columns],
        }
    }

    /// Bytes of one observation.
    pub fn size_bytes(&self) -> usize {
        self.shape().iter().product()
    }

    /// Draws the pixelwise maximum of one to three pictures of palette indices into `out`, plane by plane.
    pub fn draw(&self, pictures: &[&[u8]], canvas: &mut Canvas, out: &mut [u8]) {
        for channel in 0..self.tables.len() {
            self.pool(channel, pictures[0], pictures.get(1).copied(), canvas);
            if let Some(third) = pictures.get(2) {
                let two = canvas.pixels();
                self.pool(channel, third, None, canvas);
                canvas.pooled = canvas.pixels().into_iter().zip(two).map(|(a, b)| a.max(b)).collect();
                canvas.rows = (0..canvas.pooled.len() as u32).step_by(WIDTH).collect();
            }
            self.put(channel, canvas, out);
        }
    }

    /// Translates indices to values and takes the maximum of both pictures. Rows that equal the row above in
    /// both pictures are made once.
    fn pool(&self, channel: usize, last: &[u8], before: Option<&[u8]>, canvas: &mut Canvas) {
        let height = self.reducer.source_rows();
        let size = height * WIDTH;
        canvas.pooled.resize(size, 0);
        canvas.rows.resize(height, 0);
        let before = before.map(|before| &before[..size]);
        translate::pool(&last[..size], before, &self.tables[channel], &mut canvas.pooled, &mut canvas.rows);
    }

    fn put(&self, channel: usize, canvas: &mut Canvas, out: &mut [u8]) {
        let plane = Plane { pixels: &canvas.pooled, rows: &canvas.rows };
        let size = self.reducer.size_bytes();
        if self.tables.len() == 1 {
            self.reducer.reduce(plane, &mut canvas.work, out);
        } else if self.order == ChannelOrder::First {
            self.reducer.reduce(plane, &mut canvas.work, &mut out[channel * size..(channel + 1) * size]);
        } else {
            canvas.plane.resize(size, 0);
            self.reducer.reduce(plane, &mut canvas.work, &mut canvas.plane);
            for (pixel, &value) in out[channel..].iter_mut().step_by(3).zip(&canvas.plane) {
                *pixel = value;
            }
        }
    }
}
