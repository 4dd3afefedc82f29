//! Pictures that an environment must keep, as runs of one colour: a fortieth of their pixels in most games. Host only.
//!
//! A row is a count of runs and the runs, each a length and a colour; or `SAME` and how many rows, up to 255, are like
//! the row above; or `PLAIN` and its pixels.

use crate::machine::tia;

const WIDTH: usize = tia::WIDTH;
const SAME: u8 = 0;
const PLAIN: u8 = 255;
/// More runs than this take more room than the pixels.
const MOST_RUNS: usize = WIDTH / 2 - 1;

/// Two picture buffers, as high as the game's picture; behind them, where it is in neither, the picture of the last
/// frame but one.
#[derive(Clone, Default)]
pub(super) struct Pictures {
    code: Box<[u8]>,
    rows: usize,
}

impl Pictures {
    pub(super) fn take(buffers: &[[u8; tia::PICTURE_BYTES]; 2], height: usize) -> Self {
        Self::encoded(buffers.iter().flat_map(|buffer| buffer[..height * WIDTH].chunks_exact(WIDTH)))
    }

    /// Of whole rows of pixels.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self::encoded(bytes.chunks_exact(WIDTH))
    }

    fn encoded<'a>(rows: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut code: Vec<u8> = Vec::with_capacity(4096);
        let mut above: &[u8] = &[];
        // Where the count of rows like the one above stands, if the last row was one.
        let mut same: Option<usize> = None;
        let mut count = 0;
        for row in rows {
            count += 1;
            if row == above {
                match same.filter(|&at| code[at] < u8::MAX) {
                    Some(at) => code[at] += 1,
                    None => {
                        code.extend([SAME, 1]);
                        same = Some(code.len() - 1);
                    }
                }
                continue;
            }
            (above, same) = (row, None);
            let start = code.len();
            code.push(0);
            for run in row.chunk_by(|a, b| a == b) {
                code.extend([run.len() as u8, run[0]]);
            }
            let runs = (code.len() - start) / 2;
            if runs <= MOST_RUNS {
                code[start] = runs as u8;
            } else {
                code.truncate(start);
                code.push(PLAIN);
                code.extend_from_slice(row);
            }
        }
        Self { code: code.into(), rows: count }
    }

    /// Writes the rows one after the other into what `place` gives for each.
    fn decode<'a>(&self, mut place: impl Iterator<Item = &'a mut [u8]>) {
        let mut above = [0; WIDTH];
        let mut code = &self.code[..];
        while let [kind, rest @ ..] = code {
            let copies = match *kind {
                SAME => {
                    code = &rest[1..];
                    rest[0]
                }
                PLAIN => {
                    above.copy_from_slice(&rest[..WIDTH]);
                    code = &rest[WIDTH..];
                    1
                }
                runs => {
                    let (runs, left) = rest.split_at(2 * runs as usize);
                    let mut x = 0;
                    for run in runs.chunks_exact(2) {
                        above[x..x + run[0] as usize].fill(run[1]);
                        x += run[0] as usize;
                    }
                    code = left;
                    1
                }
            };
            for _ in 0..copies {
                if let Some(row) = place.next() {
                    row.copy_from_slice(&above);
                }
            }
        }
    }

    /// Puts the two buffers back.
    pub(super) fn put(&self, buffers: &mut [[u8; tia::PICTURE_BYTES]; 2], height: usize) {
        self.decode(buffers.iter_mut().flat_map(|buffer| buffer[..height * WIDTH].chunks_exact_mut(WIDTH)));
    }

    /// Adds the picture of the last frame but one.
    pub(super) fn add(&mut self, picture: &[u8]) {
        let mut bytes = self.bytes();
        bytes.extend_from_slice(picture);
        *self = Self::from_bytes(&bytes);
    }

    /// What [`Pictures::add`] added.
    pub(super) fn added(&self, height: usize) -> Option<Vec<u8>> {
        (self.rows > 2 * height).then(|| self.bytes().split_off(2 * height * WIDTH))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size_bytes()];
        self.decode(bytes.chunks_exact_mut(WIDTH));
        bytes
    }

    /// How many there are of [`Pictures::bytes`].
    pub(super) fn size_bytes(&self) -> usize {
        self.rows * WIDTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_come_back_as_they_were() {
        let mut random = crate::random::seeded(1);
        for height in [1, 7, 210, 250] {
            // From blank rows to rows in which no two neighbours are alike.
            for most in [1, 2, 10, 160] {
                let mut buffers = [[0; tia::PICTURE_BYTES]; 2];
                let mut third = vec![0; height * WIDTH];
                let rows =
                    buffers.iter_mut().flat_map(|buffer| buffer[..height * WIDTH].chunks_exact_mut(WIDTH));
                for row in rows.chain(third.chunks_exact_mut(WIDTH)) {
                    for x in 0..WIDTH {
                        let change = crate::random::draw(&mut random) % 160 < most - 1;
                        row[x] = if change { x as u8 } else { row[x.saturating_sub(1)] };
                    }
                }
                let mut pictures = Pictures::take(&buffers, height);
                assert_eq!(pictures.added(height), None);
                pictures.add(&third);
                let mut again = [[255; tia::PICTURE_BYTES]; 2];
                pictures.put(&mut again, height);
                for (buffer, other) in buffers.iter().zip(&again) {
                    assert!(buffer[..height * WIDTH] == other[..height * WIDTH], "{height} rows, {most}");
                    assert!(other[height * WIDTH..].iter().all(|&pixel| pixel == 255));
                }
                assert!(pictures.added(height) == Some(third), "{height} rows, {most}");
                assert!(Pictures::from_bytes(&pictures.bytes()).bytes() == pictures.bytes());
            }
        }
    }

    #[test]
    fn alike_rows_take_no_room() {
        let buffers = [[7; tia::PICTURE_BYTES]; 2];
        // One row of one run, then 255 and 164 rows like it.
        assert_eq!(Pictures::take(&buffers, 210).code[..], [1, 160, 7, SAME, 255, SAME, 164]);
    }
}
