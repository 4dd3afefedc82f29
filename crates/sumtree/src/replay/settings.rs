//! Settings of a replay: fields, n-step window, environments. Stored as text in shared memory and files.

use super::ReplayError;
use super::compress::Compression;
use super::layout::MAX_CAPACITY;

/// Maximum number of frames in a stack.
pub(super) const STACK_MAX: usize = 64;

/// How environments are reset after the end of an episode. The names are those of Gymnasium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Autoreset {
    /// The next row of the environment holds the final observation, and its action was ignored.
    #[default]
    NextStep,
    /// The next row is the first of the next episode. The final observation is passed with the last row.
    SameStep,
    /// As [`Autoreset::SameStep`], but the caller resets the environment.
    Disabled,
}

impl Autoreset {
    const ALL: [Self; 3] = [Self::NextStep, Self::SameStep, Self::Disabled];

    /// Name of the variant, as used in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NextStep => "next_step",
            Self::SameStep => "same_step",
            Self::Disabled => "disabled",
        }
    }

    /// Returns the variant with this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`] if there is none.
    pub fn from_name(name: &str) -> Result<Self, ReplayError> {
        Self::ALL
            .into_iter()
            .find(|a| a.name() == name)
            .ok_or_else(|| setting("autoreset", format!("{name:?}"), "next_step, same_step or disabled"))
    }
}

/// The value by which importance weights are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightNorm {
    /// The largest weight of the batch.
    #[default]
    Batch,
    /// The largest weight that any row held could have.
    Global,
}

impl WeightNorm {
    /// Name of the variant, as used in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self == Self::Batch { "batch" } else { "global" }
    }

    /// Returns the variant with this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`] if there is none.
    pub fn from_name(name: &str) -> Result<Self, ReplayError> {
        [Self::Batch, Self::Global]
            .into_iter()
            .find(|norm| norm.name() == name)
            .ok_or_else(|| setting("weight_norm", format!("{name:?}"), "batch or global"))
    }
}

/// What fills a frame stack before the first frame of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Padding {
    /// Zeros.
    #[default]
    Zero,
    /// Copies of the first frame.
    First,
}

impl Padding {
    /// Name of the variant, as used in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self == Self::Zero { "zero" } else { "first" }
    }

    /// Returns the variant with this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`] if there is none.
    pub fn from_name(name: &str) -> Result<Self, ReplayError> {
        [Self::Zero, Self::First]
            .into_iter()
            .find(|padding| padding.name() == name)
            .ok_or_else(|| setting("stack_padding", format!("{name:?}"), "zero or first"))
    }
}

/// Settings for sampling sequences of `n_step` steps instead of transitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sequence {
    /// Number of steps from the start of one sequence of an episode to the start of the next.
    pub period: usize,
    /// Number of steps at the start of a sequence that are not learned from.
    pub burn_in: usize,
    /// The priority of a sequence is `eta * max + (1 - eta) * mean` over its steps. The caller computes it.
    pub eta: f64,
}

/// The step whose achieved goal replaces the desired goal of a sampled row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// The step of the sampled row or a later step of the episode, drawn uniformly.
    Future,
    /// The last step of the episode, or the newest step if the episode has not ended.
    Final,
    /// Any step of the episode, drawn uniformly.
    Episode,
}

impl Strategy {
    /// Name of the variant, as used in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Future => "future",
            Self::Final => "final",
            Self::Episode => "episode",
        }
    }

    /// Returns the variant with this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`] if there is none.
    pub fn from_name(name: &str) -> Result<Self, ReplayError> {
        [Self::Future, Self::Final, Self::Episode]
            .into_iter()
            .find(|strategy| strategy.name() == name)
            .ok_or_else(|| setting("strategy", format!("{name:?}"), "future, final or episode"))
    }
}

/// Hindsight experience replay: some of the sampled rows get a goal that was achieved in their episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Hindsight {
    /// Which achieved goal is used.
    pub strategy: Strategy,
    /// Share of the sampled rows that are relabeled, from 0 to 1.
    pub share: f64,
    /// Name of the observation field that holds the achieved goal.
    pub achieved: String,
}

/// One field of every row. The core copies its bytes; it reads `dtype` and `shape` of rewards and discounts
/// only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name. `reward`, `terminated`, `truncated`, `discount`, `obs`, `obs_*`, `obs/*`, and these observations
    /// with the prefix `next_`, have a meaning.
    pub name: String,
    /// Data type as a NumPy type string, such as `<f4`.
    pub dtype: String,
    /// Shape of the field in one row.
    pub shape: Vec<usize>,
    /// Bytes per row.
    pub row_bytes: usize,
    /// Number of successive rows, the sampled row being the last, that form a stack of frames; 1: no stack.
    pub stack: usize,
}

/// All settings of a replay. They determine its behavior and its memory layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Maximum number of rows that can be sampled.
    pub capacity: usize,
    /// The fields of a row.
    pub fields: Vec<Field>,
    /// Exponent of the priority.
    pub alpha: f64,
    /// Number of steps whose rewards one sampled transition sums.
    pub n_step: usize,
    /// Discount per step.
    pub gamma: f64,
    /// Added to the absolute priority before the exponent.
    pub epsilon: f64,
    /// Children per node of the tree.
    pub fan_out: usize,
    /// Number of environments. They are numbered `0..num_envs`.
    pub num_envs: usize,
    /// How environments are reset after an episode.
    pub autoreset: Autoreset,
    /// The value by which importance weights are divided.
    pub weight_norm: WeightNorm,
    /// What fills a frame stack before the first frame of an episode.
    pub stack_padding: Padding,
    /// If set, sequences of `n_step` steps are sampled instead of transitions.
    pub sequence: Option<Sequence>,
    /// If set, goals are relabeled in hindsight.
    pub hindsight: Option<Hindsight>,
    /// Compression of fields with many bytes per row.
    pub compression: Compression,
    /// Least number of rows beyond the capacity whose bytes are kept: not 0 in a replay that was converted
    /// from one with stacks of frames, whose ring it has.
    pub extra_rows: usize,
    /// Seed of the random number generator.
    pub seed: u64,
}

impl Default for Settings {
    /// A capacity of one row, no fields, and the default values of the Python package for everything else.
    fn default() -> Self {
        Self {
            capacity: 1,
            fields: Vec::new(),
            alpha: 0.6,
            n_step: 1,
            gamma: 0.99,
            epsilon: 1e-6,
            fan_out: 16,
            num_envs: 1,
            autoreset: Autoreset::NextStep,
            weight_norm: WeightNorm::Batch,
            stack_padding: Padding::Zero,
            sequence: None,
            hindsight: None,
            compression: Compression::None,
            extra_rows: 0,
            seed: 0,
        }
    }
}

/// Indices of the fields that have a meaning by their name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Roles {
    pub reward: Option<usize>,
    pub terminated: Option<usize>,
    pub truncated: Option<usize>,
    /// Discount of each step, multiplied by gamma.
    pub discount: Option<usize>,
    /// Achieved goal, whose values at other steps replace the desired goal.
    pub achieved: Option<usize>,
    /// Observations whose next observation is not stored but read from the next row.
    pub rebuilt: Vec<usize>,
    /// Fields that hold a next observation.
    pub stored_next: Vec<usize>,
}

impl Roles {
    /// Returns true if rows are steps of episodes, that is, have a field `terminated`.
    pub fn steps(&self) -> bool {
        self.terminated.is_some()
    }
}

/// A line of [`Settings::to_text`] for messages: floats as numbers.
pub(super) fn readable(line: &str) -> String {
    match line.split_once(' ') {
        Some((key @ ("alpha" | "gamma" | "epsilon" | "eta" | "relabelled_share"), bits)) => {
            let number = bits.parse().map_or(f64::NAN, f64::from_bits);
            format!("{key} {number}")
        }
        _ => line.to_owned(),
    }
}

pub(super) fn setting(what: &'static str, value: impl ToString, bound: impl ToString) -> ReplayError {
    ReplayError::Setting { what, value: value.to_string(), bound: bound.to_string() }
}

fn field_error(name: &str, reason: impl Into<String>) -> ReplayError {
    ReplayError::Field { name: name.to_owned(), reason: reason.into() }
}

/// Returns true if `name` is `role`, or begins with `role_` or `role/` (nested observations).
pub(super) fn has_role(name: &str, role: &str) -> bool {
    name.strip_prefix(role).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '/']))
}

impl Settings {
    /// Number of rows of one environment, from a row on, that are stored before that row can be sampled.
    pub(super) fn window_rows(&self, roles: &Roles) -> usize {
        self.n_step + usize::from(!roles.rebuilt.is_empty())
    }

    /// Checks that shared memory or a file can hold this: compressed rows need private memory.
    pub(super) fn check_private(&self) -> Result<(), ReplayError> {
        match self.compression {
            Compression::None => Ok(()),
            other => Err(setting("compression", other.name(), "none in shared memory and mapped files")),
        }
    }

    /// Number of rows of one environment that the largest stack of frames needs, including the newest.
    pub(super) fn stack_rows(&self) -> usize {
        self.fields.iter().map(|field| field.stack).max().unwrap_or(1).max(1)
    }

    /// Number of rows beyond the capacity whose bytes are kept as earlier frames of the oldest rows.
    pub(super) fn history_rows(&self) -> usize {
        let frames = ((self.stack_rows() - 1).saturating_mul(self.num_envs)).min(self.capacity);
        frames.max(self.extra_rows)
    }

    /// Returns true if each row stores which row precedes it in its episode.
    pub(super) fn has_history(&self) -> bool {
        self.stack_rows() > 1 || self.hindsight.as_ref().is_some_and(|h| h.strategy == Strategy::Episode)
    }

    /// Checks all settings and finds the fields that have a meaning.
    pub(super) fn roles(&self) -> Result<Roles, ReplayError> {
        if self.capacity == 0 || self.capacity > MAX_CAPACITY {
            return Err(setting("capacity", self.capacity, format!("1 to {MAX_CAPACITY}")));
        }
        for (what, value, low, high) in [
            ("alpha", self.alpha, 0.0, 16.0),
            ("gamma", self.gamma, 0.0, 1.0),
            ("epsilon", self.epsilon, 0.0, 1e6),
        ] {
            if !(low..=high).contains(&value) {
                return Err(setting(what, value, format!("{low} to {high}")));
            }
        }
        if !(1..=1024).contains(&self.n_step) {
            return Err(setting("n_step", self.n_step, "1 to 1024"));
        }
        if self.extra_rows > self.capacity {
            return Err(setting("extra_rows", self.extra_rows, format!("0 to {}", self.capacity)));
        }
        if !(1..=1 << 24).contains(&self.num_envs) {
            return Err(setting("num_envs", self.num_envs, "1 to 16777216"));
        }
        if self.fields.is_empty() || self.fields.len() > 256 {
            return Err(setting("number of fields", self.fields.len(), "1 to 256"));
        }
        let find = |name: &str| self.fields.iter().position(|f| f.name == name);
        for (i, field) in self.fields.iter().enumerate() {
            let name = &field.name;
            if name.is_empty() || name.len() > 200 || name.contains(|c: char| c.is_control()) {
                return Err(field_error(name, "is not a name of 1 to 200 bytes without control characters"));
            }
            if find(name) != Some(i) {
                return Err(field_error(name, "occurs more than once"));
            }
            let own: &[&str] = match () {
                () if self.sequence.is_some() => &["indices", "weights", "tickets", "mask"],
                () if self.hindsight.is_some() => &["indices", "weights", "tickets", "relabelled"],
                () => &["indices", "weights", "tickets"],
            };
            if own.contains(&name.as_str()) {
                return Err(field_error(name, "has a name that is reserved for an array of the batch"));
            }
            if field.row_bytes > 1 << 40 {
                return Err(field_error(
                    name,
                    format!("has {} bytes per row, more than 2^40", field.row_bytes),
                ));
            }
        }
        let roles = Roles {
            reward: find("reward"),
            terminated: find("terminated"),
            truncated: find("truncated"),
            discount: find("discount"),
            achieved: None,
            rebuilt: Vec::new(),
            stored_next: Vec::new(),
        };
        self.check_fields(roles, find)
    }

    fn check_fields(
        &self,
        mut roles: Roles,
        find: impl Fn(&str) -> Option<usize>,
    ) -> Result<Roles, ReplayError> {
        for (role, need) in [
            (roles.terminated, "|b1"),
            (roles.truncated, "|b1"),
            (roles.reward, "<f4 or <f8"),
            (roles.discount, "<f4 or <f8"),
        ] {
            if let Some(i) = role {
                let field = &self.fields[i];
                let fits = match need {
                    "|b1" => field.row_bytes == 1,
                    _ => matches!(field.dtype.as_str(), "<f4" | "<f8") && field.shape.is_empty(),
                };
                if roles.terminated.is_some() && !fits {
                    let have =
                        format!("must be one {need} per row, not {} of shape {:?}", field.dtype, field.shape);
                    return Err(field_error(&field.name, have));
                }
            }
        }
        if roles.terminated.is_none() {
            for (name, there) in [
                ("frame_stack", self.stack_rows() > 1),
                ("a sequence", self.sequence.is_some()),
                ("hindsight", self.hindsight.is_some()),
                ("n_step", self.n_step > 1),
                ("truncated", roles.truncated.is_some()),
                ("discount", roles.discount.is_some()),
            ] {
                if there {
                    return Err(field_error("terminated", format!("is missing, and {name} needs it")));
                }
            }
            return Ok(roles);
        }
        if roles.reward.is_none() {
            return Err(field_error("reward", "is missing, and terminated needs it"));
        }
        for (i, field) in self.fields.iter().enumerate() {
            if has_role(&field.name, "obs") {
                match find(&format!("next_{}", field.name)) {
                    None => roles.rebuilt.push(i),
                    Some(next) if self.fields[next].row_bytes != field.row_bytes => {
                        let reason = format!("has other bytes per row than {}", field.name);
                        return Err(field_error(&self.fields[next].name, reason));
                    }
                    Some(next) => roles.stored_next.push(next),
                }
            }
        }
        self.check_stacks_sequences_hindsight(&mut roles, find)?;
        Ok(roles)
    }

    /// Checks the settings of frame stacks, sequences and hindsight.
    fn check_stacks_sequences_hindsight(
        &self,
        roles: &mut Roles,
        find: impl Fn(&str) -> Option<usize>,
    ) -> Result<(), ReplayError> {
        for (i, field) in self.fields.iter().enumerate() {
            if !(1..=STACK_MAX).contains(&field.stack) {
                return Err(setting("frame_stack", field.stack, format!("1 to {STACK_MAX}")));
            }
            if field.stack > 1 && !roles.rebuilt.contains(&i) {
                let reason = "has frame_stack, but is not an observation without a next_ field";
                return Err(field_error(&field.name, reason));
            }
        }
        if let Some(sequence) = self.sequence {
            if !(1..=self.n_step).contains(&sequence.period) {
                let bound = format!("0 to {}, less than the length", self.n_step - 1);
                return Err(setting("overlap", self.n_step as i128 - sequence.period as i128, bound));
            }
            if !(0.0..=1.0).contains(&sequence.eta) {
                return Err(setting("eta", sequence.eta, "0 to 1"));
            }
            if sequence.burn_in >= self.n_step {
                return Err(setting(
                    "burn_in",
                    sequence.burn_in,
                    format!("0 to {}, less than the length", self.n_step - 1),
                ));
            }
        }
        if let Some(hindsight) = &self.hindsight {
            if !(0.0..=1.0).contains(&hindsight.share) {
                return Err(setting("share of relabelled rows", hindsight.share, "0 to 1"));
            }
            if self.n_step > 1 || self.sequence.is_some() {
                return Err(setting("n_step", self.n_step, "1 with hindsight"));
            }
            let achieved = find(&hindsight.achieved)
                .filter(|i| has_role(&self.fields[*i].name, "obs") && self.fields[*i].stack == 1);
            let reason = "is missing, and hindsight needs it as an observation without frame_stack";
            roles.achieved = Some(achieved.ok_or_else(|| field_error(&hindsight.achieved, reason))?);
        }
        Ok(())
    }

    /// The settings, one `key value` line each. Floats are written as their bits, so that nothing is rounded.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "capacity {}\nalpha {}\nn_step {}\ngamma {}\nepsilon {}\nfan_out {}\nnum_envs {}\nautoreset {}\n\
             weight_norm {}\nseed {}\n",
            self.capacity,
            self.alpha.to_bits(),
            self.n_step,
            self.gamma.to_bits(),
            self.epsilon.to_bits(),
            self.fan_out,
            self.num_envs,
            self.autoreset.name(),
            self.weight_norm.name(),
            self.seed,
        );
        if self.stack_rows() > 1 {
            text += &format!("stack_padding {}\n", self.stack_padding.name());
        }
        if let Some(sequence) = self.sequence {
            let Sequence { period, burn_in, eta } = sequence;
            text += &format!("sequence_period {period}\nburn_in {burn_in}\neta {}\n", eta.to_bits());
        }
        if let Some(h) = &self.hindsight {
            let share = h.share.to_bits();
            text += &format!(
                "strategy {}\nrelabelled_share {share}\nachieved {}\n",
                h.strategy.name(),
                h.achieved
            );
        }
        if self.compression != Compression::None {
            text += &format!("compression {}\n", self.compression.name());
        }
        if self.extra_rows > 0 {
            text += &format!("extra_rows {}\n", self.extra_rows);
        }
        for f in &self.fields {
            let shape: Vec<_> = f.shape.iter().map(ToString::to_string).collect();
            text += &format!("field {}\t{}\t{}\t{}", f.name, f.dtype, shape.join(","), f.row_bytes);
            text += &if f.stack == 1 { "\n".to_owned() } else { format!("\t{}\n", f.stack) };
        }
        text
    }

    /// Parses text written by [`Settings::to_text`]. Returns `None` if it is malformed.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let lines: Vec<_> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        let get = |key: &str| lines.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
        let float = |key: &str| Some(f64::from_bits(get(key)?.parse().ok()?));
        let fields = lines.iter().filter(|(key, _)| *key == "field").map(|(_, value)| {
            let mut parts = value.split('\t');
            let (name, dtype) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            let shape = parts.next()?.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().ok());
            let shape = shape.collect::<Option<Vec<_>>>()?;
            let row_bytes = parts.next()?.parse().ok()?;
            let stack = parts.next().map_or(Some(1), |stack| stack.parse().ok())?;
            Some(Field { name, dtype, shape, row_bytes, stack })
        });
        let sequence = match get("sequence_period") {
            None => None,
            Some(period) => Some(Sequence {
                period: period.parse().ok()?,
                burn_in: get("burn_in")?.parse().ok()?,
                eta: float("eta")?,
            }),
        };
        let hindsight = match get("strategy") {
            None => None,
            Some(strategy) => Some(Hindsight {
                strategy: Strategy::from_name(strategy).ok()?,
                share: float("relabelled_share")?,
                achieved: get("achieved")?.to_owned(),
            }),
        };
        Some(Self {
            capacity: get("capacity")?.parse().ok()?,
            fields: fields.collect::<Option<_>>()?,
            alpha: float("alpha")?,
            n_step: get("n_step")?.parse().ok()?,
            gamma: float("gamma")?,
            epsilon: float("epsilon")?,
            fan_out: get("fan_out")?.parse().ok()?,
            num_envs: get("num_envs")?.parse().ok()?,
            autoreset: Autoreset::from_name(get("autoreset")?).ok()?,
            weight_norm: WeightNorm::from_name(get("weight_norm")?).ok()?,
            stack_padding: Padding::from_name(get("stack_padding").unwrap_or("zero")).ok()?,
            sequence,
            hindsight,
            compression: Compression::from_name(get("compression").unwrap_or("none")).ok()?,
            extra_rows: get("extra_rows").map_or(Some(0), |rows| rows.parse().ok())?,
            seed: get("seed")?.parse().ok()?,
        })
    }
}
