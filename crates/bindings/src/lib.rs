//! The extension module `parl._native`: the list of exports, nothing else.

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
