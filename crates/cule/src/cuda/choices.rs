//! How a game is played on a device, kept on the disk beside the kernels.
//!
//! What has been measured belongs to the ROM, the device, the driver and the kernels' sources.

use super::cache::{self, Kind};
use super::{Cuda, SOURCES};
use crate::batch::gpu::Choice;
use crate::batch::gpu::calibrate::{from_text, to_text};

fn key(cuda: &Cuda, image: &[u8]) -> String {
    let facts = &cuda.program.facts;
    let numbers = format!("{} {} {}", facts.architecture, facts.units, cuda.program.driver);
    let mut parts: Vec<&[u8]> = vec![b"choice", image, facts.name.as_bytes(), numbers.as_bytes()];
    parts.extend(SOURCES.files.iter().chain(SOURCES.headers).map(|(_, text)| text.as_bytes()));
    cache::key(&parts)
}

/// What was found to be the quickest for a ROM on this device; `None` where nothing is kept, or it is damaged.
pub fn load(cuda: &Cuda, image: &[u8]) -> Option<Choice> {
    let bytes = cache::load(&cache::folder()?, &key(cuda, image), Kind::Choice)?;
    from_text(std::str::from_utf8(&bytes).ok()?)
}

/// Keeps what was measured, seconds of each choice; false where nothing can be kept.
pub fn store(cuda: &Cuda, image: &[u8], found: &[(Choice, f64)]) -> bool {
    cache::folder().is_some_and(|folder| {
        cache::store(&folder, &key(cuda, image), Kind::Choice, to_text(found).as_bytes()).is_ok()
    })
}
