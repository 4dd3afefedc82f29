//! Kept pictures of an environment, run-length encoded: a fortieth of the size of their pixels in most games.
//! Host only.
//!
//! A row is encoded as the number of runs and the runs, each a length and a color; or as `PLAIN` and its
//! pixels. `SAME` and a count stand for up to 255 further rows that equal the row above.

use crate::machine::tia;

const WIDTH: usize = tia::WIDTH;
const SAME: u8 = 0;
const PLAIN: u8 = 255;
/// A row with more runs than this is larger encoded than as pixels.
const MOST_RUNS: usize = WIDTH / 2 - 1;

/// The two picture buffers, as high as the game's picture. A third picture, that of the second to last frame,
/// follows if neither buffer holds it.
#[derive(Clone, Default)]
pub(super) struct Pictures {
    code: Box<[u8]>,
    rows: usize,
}

impl Pictures {
    /// Encodes the first `height` rows of each picture.
    pub(super) fn encode<'a>(pictures: impl IntoIterator<Item = &'a [u8]>, height: usize) -> Self {
        Self::encode_rows(
            pictures.into_iter().flat_map(|picture| picture[..height * WIDTH].chunks_exact(WIDTH)),
        )
    }

    /// Encodes pixels, given as whole rows.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self::encode_rows(bytes.chunks_exact(WIDTH))
    }

    fn encode_rows<'a>(rows: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut code: Vec<u8> = Vec::with_capacity(4096);
        let mut above: &[u8] = &[];
        // Position of the count of equal rows in `code`, if the last row equaled the row above it.
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

    /// Decodes the rows in order, each into the next slice of `place`.
    fn decode_rows<'a>(&self, mut place: impl Iterator<Item = &'a mut [u8]>) {
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

    /// Number of pictures.
    pub(super) fn count(&self, height: usize) -> usize {
        self.rows / height
    }

    /// Decodes the pictures into `out`. Picture i begins at byte `i * apart`.
    pub(super) fn decode(&self, out: &mut [u8], apart: usize, height: usize) {
        self.decode_rows(
            out.chunks_exact_mut(apart).flat_map(|picture| picture[..height * WIDTH].chunks_exact_mut(WIDTH)),
        );
    }

    /// The pixels of all pictures, without gaps.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size_bytes()];
        self.decode_rows(bytes.chunks_exact_mut(WIDTH));
        bytes
    }

    /// The encoded rows.
    pub(super) fn code(&self) -> &[u8] {
        &self.code
    }

    /// Number of rows of pixels.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Pictures of what [`Pictures::code`] returned; `None` if it does not encode `rows` rows.
    pub(super) fn from_code(code: &[u8], rows: usize) -> Option<Self> {
        let (mut rest, mut found) = (code, 0);
        while let [kind, after @ ..] = rest {
            let length = match *kind {
                SAME => 1,
                PLAIN => WIDTH,
                runs => 2 * usize::from(runs),
            };
            let (row, after) = after.split_at_checked(length)?;
            let width = row.iter().step_by(2).map(|&run| usize::from(run)).sum::<usize>();
            if !matches!(*kind, SAME | PLAIN) && width != WIDTH {
                return None;
            }
            found += if *kind == SAME { usize::from(row[0]) } else { 1 };
            rest = after;
        }
        (found == rows).then(|| Self { code: code.into(), rows })
    }

    /// Length of [`Pictures::bytes`].
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
            // From blank rows to rows whose neighboring pixels all differ.
            for most in [1, 2, 10, 160] {
                let mut all = vec![0; 3 * height * WIDTH];
                for row in all.chunks_exact_mut(WIDTH) {
                    for x in 0..WIDTH {
                        let change = crate::random::draw(&mut random) % 160 < most - 1;
                        row[x] = if change { x as u8 } else { row[x.saturating_sub(1)] };
                    }
                }
                let size = height * WIDTH;
                for count in [2, 3] {
                    let pictures = Pictures::encode(all.chunks_exact(size).take(count), height);
                    assert_eq!(pictures.count(height), count);
                    // With a gap after each picture.
                    let apart = size + WIDTH;
                    let mut again = vec![255; 3 * apart];
                    pictures.decode(&mut again, apart, height);
                    for (i, other) in again.chunks_exact(apart).enumerate() {
                        let expected = if i < count { &all[i * size..][..size] } else { &vec![255; size] };
                        assert!(other[..size] == *expected, "{height} rows, {most}, picture {i} of {count}");
                        assert!(other[size..].iter().all(|&pixel| pixel == 255));
                    }
                    assert!(pictures.bytes() == all[..count * size], "{height} rows, {most}");
                    assert!(Pictures::from_bytes(&pictures.bytes()).bytes() == pictures.bytes());
                    let copy = Pictures::from_code(pictures.code(), pictures.rows()).unwrap();
                    assert!(copy.bytes() == pictures.bytes(), "{height} rows, {most}");
                }
            }
        }
    }

    #[test]
    fn damaged_code_is_refused() {
        let code = [1, 160, 7, SAME, 9, 2, 100, 1, 60, 2];
        assert!(Pictures::from_code(&code, 11).is_some());
        assert!(Pictures::from_code(&code, 10).is_none());
        assert!(Pictures::from_code(&code[..8], 11).is_none());
        let longer = [1, 160, 7, SAME, 9, 2, 100, 1, 61, 2];
        assert!(Pictures::from_code(&longer, 11).is_none());
        let plain = [&[PLAIN][..], &[3; WIDTH]].concat();
        assert!(Pictures::from_code(&plain, 1).is_some());
        assert!(Pictures::from_code(&plain[..WIDTH], 1).is_none());
    }

    #[test]
    fn alike_rows_take_no_room() {
        let buffers = [[7; tia::PICTURE_BYTES]; 2];
        // One row of one run, then 255 and 164 equal rows.
        assert_eq!(
            Pictures::encode(buffers.iter().map(|buffer| &buffer[..]), 210).code[..],
            [1, 160, 7, SAME, 255, SAME, 164]
        );
    }
}
