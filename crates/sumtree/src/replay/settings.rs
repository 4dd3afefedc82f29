//! What a replay is made of: fields, window, environments. Written as text into shared memory and files.

use super::ReplayError;
use super::layout::MAX_CAPACITY;

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
    /// Seed of the draws.
    pub seed: u64,
}

/// The meanings that names have, as indices of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Roles {
    pub reward: Option<usize>,
    pub terminated: Option<usize>,
    pub truncated: Option<usize>,
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

fn is_observation(name: &str) -> bool {
    name == "obs" || name.starts_with("obs_")
}

impl Settings {
    /// Rows of one environment that must be stored, from a row on, before that row can be sampled.
    pub(super) fn window_rows(&self, roles: &Roles) -> usize {
        self.n_step + usize::from(!roles.rebuilt.is_empty())
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
            if ["discount", "indices", "weights", "tickets"].contains(&name.as_str()) {
                return Err(field_error(name, "has a name that batches use themselves"));
            }
            if field.row_bytes == 0 || field.row_bytes > 1 << 40 {
                return Err(field_error(
                    name,
                    format!("has {} bytes per row, outside 1..=2^40", field.row_bytes),
                ));
            }
        }
        let roles = Roles {
            reward: find("reward"),
            terminated: find("terminated"),
            truncated: find("truncated"),
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
        for (role, need) in
            [(roles.terminated, "|b1"), (roles.truncated, "|b1"), (roles.reward, "<f4 or <f8")]
        {
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
            for (name, there) in [("n_step", self.n_step > 1), ("truncated", roles.truncated.is_some())] {
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
            if is_observation(&field.name) {
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
        Ok(roles)
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
        for f in &self.fields {
            let shape: Vec<_> = f.shape.iter().map(ToString::to_string).collect();
            text += &format!("field {}\t{}\t{}\t{}\n", f.name, f.dtype, shape.join(","), f.row_bytes);
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
            Some(Field { name, dtype, shape, row_bytes: parts.next()?.parse().ok()? })
        });
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
            seed: get("seed")?.parse().ok()?,
        })
    }
}
