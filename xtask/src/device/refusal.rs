//! Refusals: why a construct is outside the device subset, with its file, line and column.

use proc_macro2::Span;
use std::fmt;

/// A construct that the translator does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Path of the file as passed to the translator; empty until the module is known.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// The construct and, if there is one, an alternative.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.reason)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// Returns a refusal at `span`. Its file is set later.
pub(crate) fn refusal(span: Span, reason: impl Into<String>) -> Refusal {
    let start = span.start();
    Refusal { file: String::new(), line: start.line, column: start.column + 1, reason: reason.into() }
}

pub(crate) fn refuse<T>(span: Span, reason: impl Into<String>) -> Result<T> {
    Err(refusal(span, reason))
}

impl Refusal {
    /// Sets the file, unless it has been set already.
    pub(crate) fn in_file(mut self, file: &str) -> Refusal {
        if self.file.is_empty() {
            self.file = file.to_string();
        }
        self
    }
}
