//! The instruction set of the descents: the fastest that the machine supports, or an explicit choice.

use std::sync::OnceLock;

use crate::SumTreeError;

/// Instruction set of the descents. All paths return the same draws for the same seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// Integer instructions, on every machine: the code of [`Path::Neon`] with arrays in place of registers.
    Scalar,
    /// 128-bit vectors (AArch64).
    Neon,
    /// 256-bit vectors (x86-64).
    Avx2,
    /// 512-bit vectors (x86-64 with AVX-512 F, BW, DQ and VL).
    Avx512,
}

/// Environment variable that fixes the path of all trees: `scalar`, `neon`, `avx2` or `avx512`.
pub const PATH_VARIABLE: &str = "SUMTREE_PATH";

impl Path {
    /// Every path, slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Neon, Self::Avx2, Self::Avx512];

    /// Returns true if this machine has the instructions.
    #[must_use]
    pub fn is_supported(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Neon => cfg!(all(target_arch = "aarch64", not(loom))),
            #[cfg(all(target_arch = "x86_64", not(loom)))]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(all(target_arch = "x86_64", not(loom)))]
            Self::Avx512 => {
                Self::Avx2.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(all(target_arch = "x86_64", not(loom))))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The name by which [`PATH_VARIABLE`] chooses the path.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The fastest path that this machine has.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|path| path.is_supported()).unwrap_or(Self::Scalar)
    }

    /// The path that [`PATH_VARIABLE`] names, or [`Path::best`] if it is not set. Read once per process.
    ///
    /// # Errors
    /// [`SumTreeError::Path`] if the variable names an unknown path or one that this machine does not
    /// support.
    pub fn from_environment() -> Result<Self, SumTreeError> {
        static CHOSEN: OnceLock<Result<Path, SumTreeError>> = OnceLock::new();
        let asked = || std::env::var_os(PATH_VARIABLE).map(|name| name.to_string_lossy().into_owned());
        CHOSEN.get_or_init(|| asked().map_or_else(|| Ok(Self::best()), |name| Self::parse(&name))).clone()
    }

    fn parse(name: &str) -> Result<Self, SumTreeError> {
        let path = Self::ALL.into_iter().find(|path| path.name() == name);
        let Some(path) = path else {
            return Err(SumTreeError::Path { name: name.to_owned(), reason: "unknown to this machine" });
        };
        path.check()
    }

    pub(crate) fn check(self) -> Result<Self, SumTreeError> {
        let lacking =
            || SumTreeError::Path { name: self.name().to_owned(), reason: "not supported by this machine" };
        if self.is_supported() { Ok(self) } else { Err(lacking()) }
    }
}

/// The names of the paths that this machine has, for an error message.
pub(crate) fn supported_names() -> String {
    let names: Vec<&str> = Path::ALL.into_iter().filter(|path| path.is_supported()).map(Path::name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(Path::parse("scalar"), Ok(Path::Scalar));
        for name in ["", "AVX2", "arrays"] {
            assert_eq!(
                Path::parse(name),
                Err(SumTreeError::Path { name: name.into(), reason: "unknown to this machine" })
            );
        }
        for (name, path) in [("neon", Path::Neon), ("avx2", Path::Avx2), ("avx512", Path::Avx512)] {
            assert_eq!(Path::parse(name).is_ok(), path.is_supported());
        }
        assert!(Path::best().is_supported());
        let message = Path::parse("arrays").unwrap_err().to_string();
        assert!(message.contains("\"arrays\" is unknown to this machine; it has scalar"), "{message}");
        assert!(
            Path::ALL
                .iter()
                .all(|path| message.contains(&format!(" {}", path.name())) == path.is_supported())
        );
    }
}
