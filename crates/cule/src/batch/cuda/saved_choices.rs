//! The measured fastest [`Choice`] of each game on a device, saved in the cache of kernels.
//!
//! A measurement is valid for its ROM, device, driver and the sources of the kernels.

use std::collections::BTreeMap;
use std::path::Path;

use ::cuda::cache;

use super::calibrate::{from_text, to_text};
use super::device::{Cuda, SOURCES};
use super::{Choice, Form};

/// Extension of the files.
const EXTENSION: &str = "choice";

/// A short hash of the kernels' sources.
fn sources() -> String {
    let files = SOURCES.files.iter().chain(SOURCES.headers);
    let texts: Vec<&[u8]> = files.map(|(_, text)| text.as_bytes()).collect();
    cache::key(&texts)[..8].to_string()
}

fn key(cuda: &Cuda, image: &[u8]) -> String {
    let facts = &cuda.program.facts;
    let numbers = format!("{} {} {}", facts.architecture, facts.units, cuda.program.driver);
    let mut parts: Vec<&[u8]> = vec![b"choice", image, facts.name.as_bytes(), numbers.as_bytes()];
    parts.extend(SOURCES.files.iter().chain(SOURCES.headers).map(|(_, text)| text.as_bytes()));
    cache::key(&parts)
}

/// Loads the fastest choice for a ROM on this device; `None` if there is none or its file is damaged.
pub fn load(cuda: &Cuda, image: &[u8]) -> Option<Choice> {
    let bytes = cache::load(&cache::folder()?, &key(cuda, image), EXTENSION)?;
    from_text(std::str::from_utf8(&bytes).ok()?)
}

/// Saves the seconds measured for each choice of a game. Returns false if the file cannot be written.
pub fn store(cuda: &Cuda, game: &str, image: &[u8], found: &[(Choice, f64)]) -> bool {
    let facts = &cuda.program.facts;
    let text = to_text(found) + &signature(game, &facts.name, cuda.program.driver, &sources());
    cache::folder()
        .is_some_and(|folder| cache::store(&folder, &key(cuda, image), EXTENSION, text.as_bytes()).is_ok())
}

/// The last line of a file: game, device and sources, for [`report`].
fn signature(game: &str, device: &str, driver: u32, sources: &str) -> String {
    format!("{game}\t{device}, driver for CUDA {}.{}\t{sources}\n", driver / 1000, driver % 1000 / 10)
}

/// Device with driver, game and choice of a file; `None` for other sources.
fn parse_signature(text: &str, sources: &str) -> Option<(String, String, Choice)> {
    let mut parts = text.lines().last()?.split('\t');
    let (game, device, of) = (parts.next()?, parts.next()?, parts.next()?);
    (of == sources).then_some((device.into(), game.into(), from_text(text)?))
}

/// Lists the saved choices for the kernels of this build: (device and driver, choices with their games).
pub fn report(folder: &Path) -> Vec<(String, String)> {
    let sources = sources();
    let mut lines: BTreeMap<String, BTreeMap<(&str, u32), Vec<String>>> = BTreeMap::new();
    for key in cache::keys(folder, EXTENSION) {
        let kept = cache::load(folder, &key, EXTENSION).and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some((device, game, choice)) = kept.and_then(|text| parse_signature(&text, &sources)) {
            let games = lines.entry(device).or_default();
            games.entry((choice.form.name(), choice.window)).or_default().push(game);
        }
    }
    let text = |((form, window), mut games): ((&str, u32), Vec<String>)| {
        games.sort();
        let how = if form == Form::Grouped.name() { format!("{form} {window}") } else { form.to_string() };
        format!("{how}: {}", games.join(", "))
    };
    lines
        .into_iter()
        .map(|(device, games)| (device, games.into_iter().map(text).collect::<Vec<_>>().join("; ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(first: &str, game: &str, sources: &str) -> String {
        format!("{first}\nplain 0 9000\n{}", signature(game, "H200", 13_010, sources))
    }

    #[test]
    fn the_report_groups_choices_by_device() {
        let folder = std::env::temp_dir().join(format!("parl-choices-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        assert_eq!(report(&folder), []);
        let now = sources();
        for (key, text) in [
            ("a", text("grouped 4 100", "pong", &now)),
            ("b", text("grouped 4 100", "breakout", &now)),
            ("c", text("plain 0 100", "solaris", &now)),
            // Other kernels; a form that does not exist any more; an unknown form.
            ("d", text("grouped 4 100", "qbert", "01234567")),
            ("e", text("predicated 0 100", "tennis", &now)),
            ("f", text("odd 4 100", "hero", &now)),
        ] {
            cache::store(&folder, key, EXTENSION, text.as_bytes()).unwrap();
        }
        std::fs::write(folder.join("g.choice"), "damaged").unwrap();
        let device = "H200, driver for CUDA 13.1".to_string();
        let games = "grouped 4: breakout, pong; plain: solaris".to_string();
        assert_eq!(report(&folder), [(device, games)]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
