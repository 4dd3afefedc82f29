//! What a replay is made of: fields, window, environments. Written as text into shared memory and files.

use super::ReplayError;
use super::compress::Compression;
use super::layout::MAX_CAPACITY;

/// The most frames of a stack.
pub(super) const STACK_MAX: usize = 64;

/// What happens in the environment after a row that ended an episode; the names are Gymnasium's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Autoreset {
    /// The next row of the environment carries the final observation, and its action was ignored.
    #[default]
    NextStep,
    /// The next row is the first of the next episode; the final observation comes beside the last row.
    SameStep,
    /// As [`Autoreset::SameStep`]; the caller resets.
    Disabled,
}

impl Autoreset {
    const ALL: [Self; 3] = [Self::NextStep, Self::SameStep, Self::Disabled];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NextStep => "next_step",
            Self::SameStep => "same_step",
            Self::Disabled => "disabled",
        }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`].
    pub fn of_name(name: &str) -> Result<Self, ReplayError> {
        Self::ALL
            .into_iter()
            .find(|a| a.name() == name)
            .ok_or_else(|| setting("autoreset", format!("{name:?}"), "next_step, same_step, disabled"))
    }
}

/// By what importance weights are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightNorm {
    /// The largest of the batch.
    #[default]
    Batch,
    /// The largest that any row held could have.
    Global,
}

impl WeightNorm {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self == Self::Batch { "batch" } else { "global" }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`].
    pub fn of_name(name: &str) -> Result<Self, ReplayError> {
        [Self::Batch, Self::Global]
            .into_iter()
            .find(|norm| norm.name() == name)
            .ok_or_else(|| setting("weight_norm", format!("{name:?}"), "batch, global"))
    }
}

/// What stands for the frames before the first of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Padding {
    /// Bytes of 0.
    #[default]
    Zero,
    /// The first frame.
    First,
}

impl Padding {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self == Self::Zero { "zero" } else { "first" }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`].
    pub fn of_name(name: &str) -> Result<Self, ReplayError> {
        [Self::Zero, Self::First]
            .into_iter()
            .find(|padding| padding.name() == name)
            .ok_or_else(|| setting("stack_padding", format!("{name:?}"), "zero, first"))
    }
}

/// Draw runs of `n_step` steps instead of transitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sequence {
    /// Steps from the start of one sequence of an episode to the start of the next.
    pub period: usize,
    /// Steps at the start of a sequence that nothing is learned from.
    pub burn_in: usize,
    /// Share of the largest step's priority in that of the sequence; the rest is the mean's. For the caller.
    pub eta: f64,
}

/// Whose achieved goal replaces the desired one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// That of a later step of the episode.
    Future,
    /// That of the last step of the episode, or of the newest if the episode goes on.
    Final,
    /// That of any step of the episode.
    Episode,
}

impl Strategy {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Future => "future",
            Self::Final => "final",
            Self::Episode => "episode",
        }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`].
    pub fn of_name(name: &str) -> Result<Self, ReplayError> {
        [Self::Future, Self::Final, Self::Episode]
            .into_iter()
            .find(|strategy| strategy.name() == name)
            .ok_or_else(|| setting("strategy", format!("{name:?}"), "future, final, episode"))
    }
}

/// Give some of the rows drawn a goal that was achieved later.
#[derive(Debug, Clone, PartialEq)]
pub struct Hindsight {
    /// Whose goal is taken.
    pub strategy: Strategy,
    /// Share of the rows drawn that get one.
    pub share: f64,
    /// The observation that holds the goal achieved.
    pub achieved: String,
}

/// One value that every row has. The core only knows how many bytes it takes; `dtype` and `shape` are the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name. `reward`, `terminated`, `truncated`, `obs`, `obs_*` and `next_` before those have a meaning.
    pub name: String,
    /// How the caller calls its type.
    pub dtype: String,
    /// Its shape, without the row.
    pub shape: Vec<usize>,
    /// Bytes per row.
    pub row_bytes: usize,
    /// Rows, this one the last, that are drawn together as one stack of frames; 1: just this one.
    pub stack: usize,
}

/// Everything that decides how a replay behaves and how its memory is laid out.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Rows that stay sampleable.
    pub capacity: usize,
    /// The fields of a row.
    pub fields: Vec<Field>,
    /// Exponent of the priority.
    pub alpha: f64,
    /// Steps of reward that one sampled transition sums.
    pub n_step: usize,
    /// Discount per step.
    pub gamma: f64,
    /// Added to the absolute priority before the exponent.
    pub epsilon: f64,
    /// Children per node of the tree.
    pub fan_out: usize,
    /// Environments are numbered `0..num_envs`.
    pub num_envs: usize,
    /// How environments go on after an episode.
    pub autoreset: Autoreset,
    /// By what importance weights are divided.
    pub weight_norm: WeightNorm,
    /// What stands for frames before the first of an episode.
    pub stack_padding: Padding,
    /// Draw sequences of `n_step` steps.
    pub sequence: Option<Sequence>,
    /// Relabel goals.
    pub hindsight: Option<Hindsight>,
    /// How rows of many bytes are held.
    pub compression: Compression,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Settings {
    /// One row, no fields, and what Python takes when nothing is said.
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
            seed: 0,
        }
    }
}

/// The meanings that names have, as indices of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Roles {
    pub reward: Option<usize>,
    pub terminated: Option<usize>,
    pub truncated: Option<usize>,
    /// Discount of each step, beside gamma.
    pub discount: Option<usize>,
    /// Goal achieved, whose later values replace the desired one.
    pub achieved: Option<usize>,
    /// Observations whose next value is rebuilt from the next row.
    pub rebuilt: Vec<usize>,
    /// Fields that hold a next observation.
    pub explicit: Vec<usize>,
}

impl Roles {
    /// Rows are steps of episodes, not just values.
    pub fn steps(&self) -> bool {
        self.terminated.is_some()
    }
}

pub(super) fn setting(what: &'static str, value: impl ToString, bound: impl ToString) -> ReplayError {
    ReplayError::Setting { what, value: value.to_string(), bound: bound.to_string() }
}

fn field_error(name: &str, reason: impl Into<String>) -> ReplayError {
    ReplayError::Field { name: name.to_owned(), reason: reason.into() }
}

/// Whether `name` is `role` or one of several of it: `obs`, `obs_speed`, and `obs/speed` of nested ones.
pub(super) fn plays(name: &str, role: &str) -> bool {
    name.strip_prefix(role).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '/']))
}

impl Settings {
    /// Rows of one environment that must be stored, from a row on, before that row can be sampled.
    pub(super) fn window_rows(&self, roles: &Roles) -> usize {
        self.n_step + usize::from(!roles.rebuilt.is_empty())
    }

    /// Whether memory that others see can hold this.
    pub(super) fn check_private(&self) -> Result<(), ReplayError> {
        match self.compression {
            Compression::None => Ok(()),
            other => Err(setting("compression", other.name(), "none (in shared memory and mapped files)")),
        }
    }

    /// Rows of one environment, the newest included, that a row needs for its stacks of frames.
    pub(super) fn stack_rows(&self) -> usize {
        self.fields.iter().map(|field| field.stack).max().unwrap_or(1).max(1)
    }

    /// Rows beyond the capacity whose bytes are kept, so that the oldest rows still have their earlier frames.
    pub(super) fn history_rows(&self) -> usize {
        ((self.stack_rows() - 1).saturating_mul(self.num_envs)).min(self.capacity)
    }

    /// Rows know the row before them.
    pub(super) fn has_history(&self) -> bool {
        self.stack_rows() > 1 || self.hindsight.as_ref().is_some_and(|h| h.strategy == Strategy::Episode)
    }

    /// Checks everything and finds the fields that have a meaning.
    pub(super) fn roles(&self) -> Result<Roles, ReplayError> {
        if self.capacity == 0 || self.capacity > MAX_CAPACITY {
            return Err(setting("capacity", self.capacity, format!("1..={MAX_CAPACITY}")));
        }
        for (what, value, low, high) in [
            ("alpha", self.alpha, 0.0, 16.0),
            ("gamma", self.gamma, 0.0, 1.0),
            ("epsilon", self.epsilon, 0.0, 1e6),
        ] {
            if !(low..=high).contains(&value) {
                return Err(setting(what, value, format!("{low}..={high}")));
            }
        }
        if !(1..=1024).contains(&self.n_step) {
            return Err(setting("n_step", self.n_step, "1..=1024"));
        }
        if !(1..=1 << 24).contains(&self.num_envs) {
            return Err(setting("num_envs", self.num_envs, "1..=16777216"));
        }
        if self.fields.is_empty() || self.fields.len() > 256 {
            return Err(setting("number of fields", self.fields.len(), "1..=256"));
        }
        let find = |name: &str| self.fields.iter().position(|f| f.name == name);
        for (i, field) in self.fields.iter().enumerate() {
            let name = &field.name;
            if name.is_empty() || name.len() > 200 || name.contains(|c: char| c.is_control()) {
                return Err(field_error(name, "is not a name of 1 to 200 bytes without control characters"));
            }
            if find(name) != Some(i) {
                return Err(field_error(name, "is there twice"));
            }
            let own: &[&str] = match () {
                () if self.sequence.is_some() => &["indices", "weights", "tickets", "mask"],
                () if self.hindsight.is_some() => &["indices", "weights", "tickets", "relabelled"],
                () => &["indices", "weights", "tickets"],
            };
            if own.contains(&name.as_str()) {
                return Err(field_error(name, "has a name that batches use themselves"));
            }
            if field.row_bytes > 1 << 40 {
                return Err(field_error(
                    name,
                    format!("has {} bytes per row, outside 0..=2^40", field.row_bytes),
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
            explicit: Vec::new(),
        };
        self.with_next(roles, find)
    }

    fn with_next(
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
            if plays(&field.name, "obs") {
                match find(&format!("next_{}", field.name)) {
                    None => roles.rebuilt.push(i),
                    Some(next) if self.fields[next].row_bytes != field.row_bytes => {
                        let reason = format!("has other bytes per row than {}", field.name);
                        return Err(field_error(&self.fields[next].name, reason));
                    }
                    Some(next) => roles.explicit.push(next),
                }
            }
        }
        self.with_more(&mut roles, find)?;
        Ok(roles)
    }

    /// Stacks, sequences and goals.
    fn with_more(&self, roles: &mut Roles, find: impl Fn(&str) -> Option<usize>) -> Result<(), ReplayError> {
        for (i, field) in self.fields.iter().enumerate() {
            if !(1..=STACK_MAX).contains(&field.stack) {
                return Err(setting("frame_stack", field.stack, format!("1..={STACK_MAX}")));
            }
            if field.stack > 1 && !roles.rebuilt.contains(&i) {
                let reason = "is stacked, but is no observation whose next one is rebuilt";
                return Err(field_error(&field.name, reason));
            }
        }
        if let Some(sequence) = self.sequence {
            if !(1..=self.n_step).contains(&sequence.period) {
                let bound = format!("0..{} (the length)", self.n_step);
                return Err(setting("overlap", self.n_step as i128 - sequence.period as i128, bound));
            }
            if !(0.0..=1.0).contains(&sequence.eta) {
                return Err(setting("eta", sequence.eta, "0..=1"));
            }
            if sequence.burn_in >= self.n_step {
                return Err(setting("burn_in", sequence.burn_in, format!("0..{} (the length)", self.n_step)));
            }
        }
        if let Some(hindsight) = &self.hindsight {
            if !(0.0..=1.0).contains(&hindsight.share) {
                return Err(setting("share of relabelled rows", hindsight.share, "0..=1"));
            }
            if self.n_step > 1 || self.sequence.is_some() {
                return Err(setting("n_step", self.n_step, "1..=1 (with hindsight)"));
            }
            let achieved = find(&hindsight.achieved)
                .filter(|i| plays(&self.fields[*i].name, "obs") && self.fields[*i].stack == 1);
            let reason = "is missing, and hindsight needs it as an observation without frame_stack";
            roles.achieved = Some(achieved.ok_or_else(|| field_error(&hindsight.achieved, reason))?);
        }
        Ok(())
    }

    /// One `key value` line each; floats as their bits, so that nothing is rounded.
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
        for f in &self.fields {
            let shape: Vec<_> = f.shape.iter().map(ToString::to_string).collect();
            text += &format!("field {}\t{}\t{}\t{}", f.name, f.dtype, shape.join(","), f.row_bytes);
            text += &if f.stack == 1 { "\n".to_owned() } else { format!("\t{}\n", f.stack) };
        }
        text
    }

    /// What [`Settings::to_text`] wrote; `None` if it did not.
    pub(super) fn of_text(text: &str) -> Option<Self> {
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
                strategy: Strategy::of_name(strategy).ok()?,
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
            autoreset: Autoreset::of_name(get("autoreset")?).ok()?,
            weight_norm: WeightNorm::of_name(get("weight_norm")?).ok()?,
            stack_padding: Padding::of_name(get("stack_padding").unwrap_or("zero")).ok()?,
            sequence,
            hindsight,
            compression: Compression::of_name(get("compression").unwrap_or("none")).ok()?,
            seed: get("seed")?.parse().ok()?,
        })
    }
}
