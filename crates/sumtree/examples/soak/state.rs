//! The counts of a soak, kept in a small text file over several runs.

use std::path::PathBuf;
use std::time::Instant;

use crate::rows::Counts;
use crate::{Plan, WRITE_EVERY};

/// Counts of all runs so far.
pub struct State {
    file: Option<PathBuf>,
    mode: String,
    pub counts: Counts,
    pub runs: u64,
    /// Number of processes killed, and how often that left sums to be repaired.
    pub killed: u64,
    pub mended: u64,
    pub seconds: f64,
}

impl State {
    /// Writes the counts at intervals and at the end of the soak. Returns true at the end. `last` is the time
    /// of the last write.
    pub fn save_if_due(&mut self, plan: &Plan, begun: Instant, last: &mut Instant) -> Result<bool, String> {
        let over = self.counts.operations() >= plan.operations
            || begun.elapsed().as_secs_f64() >= plan.seconds
            || !self.counts.is_clean();
        if over || last.elapsed() >= WRITE_EVERY {
            self.seconds += last.elapsed().as_secs_f64();
            *last = Instant::now();
            self.write()?;
        }
        Ok(over)
    }

    /// Reads the counts of a soak of this mode from `file`; zeros if there is no file.
    pub fn open(mode: &str, file: Option<PathBuf>) -> Result<Self, String> {
        let mut state = Self {
            file,
            mode: mode.to_owned(),
            counts: Counts::default(),
            runs: 0,
            killed: 0,
            mended: 0,
            seconds: 0.0,
        };
        if let Some(path) = state.file.clone().filter(|path| path.exists()) {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            state.parse(&text).ok_or_else(|| format!("{} holds no counts of soak {mode}", path.display()))?;
        }
        state.runs += 1;
        Ok(state)
    }

    fn parse(&mut self, text: &str) -> Option<()> {
        let get = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        if get("mode")? != self.mode {
            return None;
        }
        let mut parts = [0; 7];
        for (part, name) in parts.iter_mut().zip(Counts::NAMES) {
            *part = get(name)?.parse().ok()?;
        }
        self.counts = Counts::from_parts(parts);
        self.runs = get("runs")?.parse().ok()?;
        self.killed = get("killed")?.parse().ok()?;
        self.mended = get("mended")?.parse().ok()?;
        self.seconds = get("seconds")?.parse().ok()?;
        Some(())
    }

    pub fn add(&mut self, news: Counts) {
        self.counts = self.counts.plus(news);
    }

    pub fn text(&self) -> String {
        let mut text = format!(
            "mode {}\nruns {}\nseconds {:.1}\noperations {}\n",
            self.mode,
            self.runs,
            self.seconds,
            self.counts.operations()
        );
        for (name, value) in Counts::NAMES.iter().zip(self.counts.parts()) {
            text += &format!("{name} {value}\n");
        }
        text + &format!("killed {}\nmended {}\n", self.killed, self.mended)
    }

    /// Writes the counts to the file, atomically.
    pub fn write(&self) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let part = file.with_extension("part");
        std::fs::write(&part, self.text())
            .and_then(|()| std::fs::rename(&part, file))
            .map_err(|e| format!("{}: {e}", file.display()))
    }
}
