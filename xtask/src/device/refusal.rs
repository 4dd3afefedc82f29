//! Why a line is outside the device subset, and where it stands.

use proc_macro2::Span;
use std::fmt;

/// One construct that the translator does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Path of the file as given to the translator; empty until the module is known.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// The construct and, where there is one, the way to write it.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.reason)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// A refusal at `span` of a file that is filled in later.
pub(crate) fn refusal(span: Span, reason: impl Into<String>) -> Refusal {
    let start = span.start();
    Refusal { file: String::new(), line: start.line, column: start.column + 1, reason: reason.into() }
}

pub(crate) fn refuse<T>(span: Span, reason: impl Into<String>) -> Result<T> {
    Err(refusal(span, reason))
}

impl Refusal {
    /// Names the file unless a refusal from deeper down has named its own.
    pub(crate) fn in_file(mut self, file: &str) -> Refusal {
        if self.file.is_empty() {
            self.file = file.to_string();
        }
        self
    }
}
