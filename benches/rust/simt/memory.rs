//! Memory accesses of a warp: the sectors of 32 bytes that they request, and how many of these a cache of the given
//! size would miss. The cache is a model: least recently used lines of 128 bytes, filled sector by sector.

use std::collections::HashMap;

/// Bytes of a sector.
const SECTOR: u64 = 32;
/// Bytes of a line.
pub const LINE: u64 = 128;

/// Addresses that are counted together: those in `from..to` whose distance to `from`, modulo `stride`, is in `part`.
#[derive(Clone, Debug)]
pub struct Region {
    /// Name in the output.
    pub name: &'static str,
    /// First address.
    pub from: u64,
    /// Address after the last one.
    pub to: u64,
    /// Bytes from one lane's buffers to those of the next one.
    pub stride: u64,
    /// The part of each lane's buffers.
    pub part: std::ops::Range<u64>,
}

/// Counts of a region.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Instructions of the warp.
    pub accesses: u64,
    /// Sectors that they request.
    pub sectors: u64,
    /// Sectors that are not in the cache.
    pub misses: u64,
}

/// Counts memory accesses by region; accesses elsewhere are counted as "other".
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The regions.
    pub regions: Vec<Region>,
    /// Counts of each region and, at the end, of other memory.
    pub traffic: Vec<Traffic>,
    /// Counts of each instruction: function and place in it.
    pub places: HashMap<(usize, u32), Traffic>,
    /// Lines of the cache, the number of their last use and a bit per sector.
    lines: HashMap<u64, (u64, u8)>,
    capacity: usize,
    clock: u64,
}

impl Memory {
    /// A cache of `bytes` bytes.
    pub fn new(bytes: usize, regions: Vec<Region>) -> Self {
        let traffic = vec![Traffic::default(); regions.len() + 1];
        Self { regions, traffic, capacity: bytes / LINE as usize, ..Self::default() }
    }

    /// Says which regions there are; their number stays the same while counts are added.
    pub fn set_regions(&mut self, regions: Vec<Region>) {
        self.traffic.resize(regions.len() + 1, Traffic::default());
        self.regions = regions;
    }

    fn region_of(&self, at: u64) -> usize {
        let inside = |region: &Region| {
            (region.from..region.to).contains(&at)
                && region.part.contains(&((at - region.from) % region.stride))
        };
        self.regions.iter().position(inside).unwrap_or(self.regions.len())
    }

    /// Counts an access of `bytes` bytes at the address of each lane that takes part.
    pub fn access(&mut self, place: (usize, u32), addresses: &[u64], bytes: u64) {
        let mut sectors: Vec<u64> =
            addresses.iter().flat_map(|&at| at / SECTOR..=(at + bytes - 1) / SECTOR).collect();
        sectors.sort_unstable();
        sectors.dedup();
        let Some(&first) = addresses.first() else { return };
        let mut misses = 0;
        for &sector in &sectors {
            self.clock += 1;
            let (line, bit) = (sector * SECTOR / LINE, 1 << (sector % (LINE / SECTOR)));
            if let Some((used, held)) = self.lines.get_mut(&line) {
                *used = self.clock;
                misses += u64::from(*held & bit == 0);
                *held |= bit;
                continue;
            }
            if self.lines.len() >= self.capacity {
                let oldest = self.lines.iter().min_by_key(|(_, (used, _))| *used).map(|(&line, _)| line);
                oldest.map(|line| self.lines.remove(&line));
            }
            self.lines.insert(line, (self.clock, bit));
            misses += 1;
        }
        let region = self.region_of(first);
        for traffic in [&mut self.traffic[region], self.places.entry(place).or_default()] {
            traffic.accesses += 1;
            traffic.sectors += sectors.len() as u64;
            traffic.misses += misses;
        }
    }
}
