//! The structs of XLA's FFI that a handler on the CPU reads, and what is done with their pointers.
//!
//! Written by hand from `xla/ffi/api/c_api.h`; the order of the fields is that of the header. Every struct
//! begins with its size in bytes, up to the last field that the version of the caller knows. Later versions
//! append fields, so that sizes are compared with "at least", never for equality.

#![allow(unsafe_code, reason = "structs of a C interface; each block states what the interface promises")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::slice;

/// Stage in which results are computed; earlier ones prepare a program.
pub const EXECUTE: c_int = 3;
/// Kind of the extension that asks for the metadata of a handler.
pub const METADATA: c_int = 1;
/// Kind of an attribute: a string.
pub const STRING: c_int = 4;
/// Kind of an argument or result: an array.
pub const BUFFER: c_int = 1;
/// Error code.
pub const INVALID_ARGUMENT: c_int = 3;
/// Version 0.3 of the header. Nothing that is used here differs from version 0.1.
pub const NEWEST_MINOR: c_int = 3;
/// Version before 0.2 did not say in the call for metadata which version XLA has.
const OLDEST_MINOR: c_int = 1;

/// An error that XLA owns.
#[repr(C)]
pub struct Error {
    opaque: [u8; 0],
}

#[repr(C)]
pub struct Extension {
    pub struct_size: usize,
    pub kind: c_int,
    pub next: *mut Extension,
}

#[repr(C)]
pub struct Version {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub major: c_int,
    pub minor: c_int,
}

#[repr(C)]
pub struct Metadata {
    pub struct_size: usize,
    pub version: Version,
    pub traits: u32,
}

#[repr(C)]
pub struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

#[repr(C)]
pub struct ErrorCreate {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub message: *const c_char,
    pub code: c_int,
}

/// The first entries of the table of XLA's functions; the others follow.
#[repr(C)]
pub struct Api {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub version: Version,
    pub internal: *const c_void,
    pub error_create: unsafe extern "C" fn(*mut ErrorCreate) -> *mut Error,
}

#[repr(C)]
pub struct ByteSpan {
    pub start: *const u8,
    pub length: usize,
}

/// An array.
#[repr(C)]
pub struct Buffer {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub dtype: c_int,
    pub data: *mut c_void,
    pub rank: i64,
    pub dims: *const i64,
}

/// Arguments or results.
#[repr(C)]
pub struct Buffers {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub kinds: *const c_int,
    pub items: *const *mut Buffer,
}

/// Attributes in the order of their names.
#[repr(C)]
pub struct Attributes {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub kinds: *const c_int,
    pub names: *const *const ByteSpan,
    pub items: *const *const c_void,
}

/// A call of a handler, as XLA passes it.
#[repr(C)]
pub struct CallFrame {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) api: *const Api,
    pub(crate) context: *mut c_void,
    pub(crate) stage: c_int,
    pub(crate) arguments: Buffers,
    pub(crate) results: Buffers,
    pub(crate) attributes: Attributes,
}

/// Bytes of a struct up to its last field, without the padding after it.
macro_rules! size_up_to {
    ($type:ty, $field:ident, $field_type:ty) => {
        offset_of!($type, $field) + size_of::<$field_type>()
    };
}

/// Bytes of a call's frame in version 0.1.
pub const FRAME_BYTES: usize = size_up_to!(CallFrame, attributes, Attributes);
const ERROR_BYTES: usize = size_up_to!(ErrorCreate, code, c_int);
const API_BYTES: usize = size_of::<Api>();
pub const BUFFER_BYTES: usize = size_of::<Buffer>();

/// If the call asks for the metadata of the handler, writes the version that it uses and returns true.
///
/// XLA refuses handlers with a newer version than its own, and much older ones.
///
/// # Safety
/// `frame` is a frame of XLA.
pub unsafe fn answer_version(frame: &CallFrame) -> bool {
    // SAFETY: the first extension of a frame is null or valid.
    let Some(extension) = (unsafe { frame.extension.as_ref() }) else { return false };
    if extension.kind != METADATA {
        return false;
    }
    // SAFETY: null before version 0.2, otherwise valid.
    let minor = match unsafe { frame.api.as_ref() } {
        Some(api) => api.version.minor.clamp(OLDEST_MINOR, NEWEST_MINOR),
        None => OLDEST_MINOR,
    };
    // SAFETY: the extension is of the kind that holds a pointer to metadata, which the handler writes.
    unsafe {
        let metadata = (*frame.extension.cast::<MetadataExtension>()).metadata;
        let extension = std::ptr::null_mut();
        (*metadata).version = Version { struct_size: size_of::<Version>(), extension, major: 0, minor };
        (*metadata).traits = 0;
    }
    true
}

/// Checks that this is a call that computes results, with all fields that are read.
pub fn check(frame: &CallFrame) -> Result<(), String> {
    if frame.struct_size < FRAME_BYTES {
        let found = frame.struct_size;
        return Err(format!(
            "the call's frame has {found} bytes, expected at least {FRAME_BYTES}: jaxlib is too old"
        ));
    }
    if frame.stage != EXECUTE {
        return Err(format!("the call is of stage {}, expected {EXECUTE}", frame.stage));
    }
    Ok(())
}

/// The arrays of `buffers`.
///
/// # Safety
/// `buffers` are those of a valid frame.
pub unsafe fn items(buffers: &Buffers) -> Result<Vec<&Buffer>, String> {
    let count = usize::try_from(buffers.size).unwrap_or(0);
    let item = |i: usize| {
        // SAFETY: `kinds` and `items` have `size` entries.
        let (kind, item) = unsafe { (*buffers.kinds.add(i), *buffers.items.add(i)) };
        if kind != BUFFER {
            return Err(format!("item {i} is of kind {kind}, expected an array"));
        }
        // SAFETY: items of this kind are valid pointers to arrays.
        let buffer = unsafe { &*item };
        if buffer.struct_size < BUFFER_BYTES {
            let found = buffer.struct_size;
            return Err(format!("the array of item {i} has {found} bytes, expected at least {BUFFER_BYTES}"));
        }
        Ok(buffer)
    };
    (0..count).map(item).collect()
}

/// The dimensions of an array.
///
/// # Safety
/// `buffer` is an array of a valid frame.
pub unsafe fn dims(buffer: &Buffer) -> &[i64] {
    match usize::try_from(buffer.rank) {
        // SAFETY: `dims` has `rank` entries.
        Ok(rank @ 1..) => unsafe { slice::from_raw_parts(buffer.dims, rank) },
        _ => &[],
    }
}

/// The bytes of the string attribute `name`.
pub fn text<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a [u8]> {
    let span = |span: *const ByteSpan| {
        // SAFETY: names, and items of kind string, are spans that live as long as the frame.
        unsafe {
            match (*span).length {
                0 => &[][..],
                length => slice::from_raw_parts((*span).start, length),
            }
        }
    };
    (0..usize::try_from(attributes.size).unwrap_or(0)).find_map(|i| {
        // SAFETY: `kinds`, `names` and `items` have `size` entries.
        let (kind, found, item) =
            unsafe { (*attributes.kinds.add(i), *attributes.names.add(i), *attributes.items.add(i)) };
        (kind == STRING && span(found) == name.as_bytes()).then(|| span(item.cast()))
    })
}

/// Makes an error of XLA with a message, which XLA copies.
///
/// # Safety
/// `frame` is a frame of XLA.
pub unsafe fn error(frame: &CallFrame, message: &CStr, code: c_int) -> *mut Error {
    let mut create = ErrorCreate {
        struct_size: ERROR_BYTES,
        extension: std::ptr::null_mut(),
        message: message.as_ptr(),
        code,
    };
    // SAFETY: calls that are not for metadata have a table of functions, whose first entries no version
    // moves; its first function takes this struct.
    unsafe {
        debug_assert!((*frame.api).struct_size >= API_BYTES);
        ((*frame.api).error_create)(&raw mut create)
    }
}
