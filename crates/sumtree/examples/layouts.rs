//! A plain sum tree in four memory layouts, for `benches/python/layouts.py`: with 16 children a node, each node in one
//! cache line or in two, and binary.
//!
//! `layouts LAYOUT LOG2 draws|updates COUNT` fills a tree of 2^LOG2 leaves, draws or updates COUNT leaves and prints the
//! nanoseconds that each took. LAYOUT is `aligned`, `root-first`, `halves` or `binary`.
//!
//! Source of the layout with one cache line a node: Zhang, Kuppannagari and Prasanna (2021), "Parallel Actors and
//! Learners: A Framework for Generating Scalable RL Implementations".

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "layouts aligned|root-first|halves|binary LOG2 draws|updates COUNT";
const LINE_BYTES: usize = 64;
/// The largest weight of a leaf, so that the sum of 2^24 leaves fits into u32.
const WEIGHT_MAX: u64 = 255;

/// A sum tree over u32 weights. The children of a node are adjacent.
struct Tree {
    cells: Vec<u32>,
    /// First cell of each level, from the root's children to the leaves.
    levels: Vec<usize>,
    fan_out: usize,
    total: u32,
}

impl Tree {
    /// A tree with weights from `random`.
    ///
    /// The first node starts `offset` cells after the start of a cache line.
    fn new(log2: u32, fan_out: usize, offset: usize, random: &mut Random) -> Self {
        let leaves = 1usize << log2;
        let mut sizes = vec![leaves];
        while sizes[0] > fan_out {
            sizes.insert(0, sizes[0].div_ceil(fan_out).next_multiple_of(fan_out));
        }
        let mut cells = vec![0u32; sizes.iter().sum::<usize>() + 2 * LINE_BYTES / 4];
        let mut next = cells.as_ptr().align_offset(LINE_BYTES) + offset;
        let mut levels = Vec::new();
        for size in &sizes {
            levels.push(next);
            next += size;
        }
        let last = levels[levels.len() - 1];
        for cell in &mut cells[last..last + leaves] {
            *cell = 1 + random.below(WEIGHT_MAX) as u32;
        }
        for level in (1..levels.len()).rev() {
            for node in 0..sizes[level].div_ceil(fan_out) {
                let first = levels[level] + node * fan_out;
                cells[levels[level - 1] + node] = cells[first..first + fan_out].iter().sum();
            }
        }
        let total = cells[levels[0]..levels[0] + sizes[0]].iter().sum();
        Self { cells, levels, fan_out, total }
    }

    /// The leaf that contains `residual` of the sum of all weights, which must be larger.
    fn draw(&self, mut residual: u32) -> usize {
        let mut node = 0;
        for &level in &self.levels {
            let mut cell = level + node * self.fan_out;
            while residual >= self.cells[cell] {
                residual -= self.cells[cell];
                cell += 1;
            }
            node = cell - level;
        }
        node
    }

    /// Sets the weight of a leaf.
    fn update(&mut self, leaf: usize, weight: u32) {
        let mut cell = leaf;
        let difference = weight.wrapping_sub(self.cells[self.levels[self.levels.len() - 1] + leaf]);
        for &level in self.levels.iter().rev() {
            let sum = &mut self.cells[level + cell];
            *sum = sum.wrapping_add(difference);
            cell /= self.fan_out;
        }
        self.total = self.total.wrapping_add(difference);
    }
}

/// The generator SplitMix64.
struct Random(u64);

impl Random {
    /// A number below `bound`, which is at most 2^32.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z >> 32) * bound) >> 32
    }
}

/// Runs `words`; returns the nanoseconds of an operation, or None for wrong words.
fn run(words: &[String]) -> Option<f64> {
    let [layout, log2, operation, count] = words else { return None };
    let (fan_out, offset) = match layout.as_str() {
        "aligned" => (16, 0),
        // As if the root were in the first cell of a line and its children after it.
        "root-first" => (16, 1),
        // Half of each node in one line, half in the next.
        "halves" => (16, 8),
        "binary" => (2, 0),
        _ => return None,
    };
    let log2 = log2.parse().ok().filter(|log2| (4..=24).contains(log2))?;
    let count: u64 = count.parse().ok()?;
    let mut random = Random(0);
    let mut tree = Tree::new(log2, fan_out, offset, &mut random);
    let start = Instant::now();
    match operation.as_str() {
        "draws" => {
            for _ in 0..count {
                black_box(tree.draw(random.below(u64::from(tree.total)) as u32));
            }
        }
        "updates" => {
            for _ in 0..count {
                tree.update(random.below(1 << log2) as usize, 1 + random.below(WEIGHT_MAX) as u32);
            }
            black_box(tree.total);
        }
        _ => return None,
    }
    Some(start.elapsed().as_nanos() as f64 / count.max(1) as f64)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(nanoseconds) = run(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("{nanoseconds:.3}");
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws of every prefix sum reach each leaf as often as its weight, before and after updates.
    #[test]
    fn every_prefix_sum_finds_its_leaf() {
        for (fan_out, offset) in [(16, 0), (16, 1), (16, 8), (2, 0)] {
            let mut random = Random(1);
            let mut tree = Tree::new(8, fan_out, offset, &mut random);
            for _ in 0..300 {
                tree.update(random.below(256) as usize, random.below(5) as u32);
            }
            let last = tree.levels[tree.levels.len() - 1];
            let mut drawn = vec![0; 256];
            for residual in 0..tree.total {
                drawn[tree.draw(residual)] += 1;
            }
            assert_eq!(drawn, tree.cells[last..last + 256]);
        }
    }
}
