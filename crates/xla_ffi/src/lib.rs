//! Handlers of XLA's foreign function interface (FFI) on the CPU: a call's arrays and attributes as slices and
//! strings.
//!
//! [`handle`] turns the C call of a handler into a [`Call`], answers XLA's question for the version of the
//! interface, and turns errors and panics into errors of XLA. The structs of the interface are in `abi`.
//!
//! Source: `xla/ffi/api/c_api.h`, which jaxlib installs in `jaxlib/include`; versions 0.1 to 0.3 of it.

mod abi;
mod arrays;

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use abi::CallFrame;
pub use arrays::{Argument, Contents, Dtype, Element, Flag, Output};

/// An error that XLA has made. A handler returns it, or null.
pub type Error = abi::Error;

/// A handler, as `jax.ffi.register_ffi_target` takes it in a capsule.
pub type Handler = unsafe extern "C" fn(*mut CallFrame) -> *mut Error;

/// One call of a handler.
pub struct Call<'a> {
    /// Arguments in the order of the call. One that lies where a result lies is only in the results.
    pub arguments: Vec<Argument<'a>>,
    /// Results in the order of the call; their contents are not initialized.
    pub results: Vec<Output<'a>>,
    attributes: &'a abi::Attributes,
}

impl Call<'_> {
    /// The attribute `name`, a string.
    ///
    /// # Errors
    /// There is no such attribute, it is not a string or not UTF-8.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        let bytes =
            abi::text(self.attributes, name).ok_or_else(|| format!("there is no string attribute {name}"))?;
        std::str::from_utf8(bytes).map_err(|error| format!("the attribute {name} is not UTF-8: {error}"))
    }
}

/// Runs `work` for a call of XLA. Returns null, or an error of XLA with the message that `work` returns.
///
/// The first call of a handler asks for the version of the interface; `work` does not run then.
///
/// # Safety
/// `frame` is what XLA passed to the handler that calls this, in the same call, and nothing else reads or
/// writes the call's arrays until this function returns.
#[allow(unsafe_code)]
pub unsafe fn handle(
    frame: *mut CallFrame,
    work: impl FnOnce(&mut Call<'_>) -> Result<(), String>,
) -> *mut Error {
    // SAFETY: XLA passes a valid frame, which lives until the handler returns.
    let frame = unsafe { &*frame };
    // SAFETY: the frame is valid.
    if unsafe { abi::answer_version(frame) } {
        return std::ptr::null_mut();
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        abi::check(frame)?;
        // SAFETY: the frame is valid and of a call, as `check` has found; the caller keeps others from the
        // arrays.
        let (arguments, results) = unsafe { arrays::of_call(frame)? };
        work(&mut Call { arguments, results, attributes: &frame.attributes })
    }));
    let message = match result {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(message)) => message,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            format!("it panicked, which is a bug: {}", text.unwrap_or_else(|| "no message".into()))
        }
    };
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the frame is valid; XLA copies the message.
    unsafe { abi::error(frame, &message, abi::INVALID_ARGUMENT) }
}

#[cfg(test)]
mod tests;
