//! Frames as XLA makes them, from memory of the test.

#![allow(unsafe_code, reason = "the test takes the part of XLA")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;

use super::*;
use crate::abi::{
    Api, Attributes, Buffer, Buffers, ByteSpan, ErrorCreate, Extension, FRAME_BYTES, Metadata,
    MetadataExtension, Version,
};

const BOOL: c_int = 1;
const I32: c_int = 4;
const F32: c_int = 11;
const U8: c_int = 6;

#[test]
fn structs_are_those_of_the_header() {
    // As a C compiler lays them out, from `c_api.h` of jaxlib 0.10.2.
    assert_eq!(FRAME_BYTES, 168);
    let frame = [
        offset_of!(CallFrame, api),
        offset_of!(CallFrame, stage),
        offset_of!(CallFrame, arguments),
        offset_of!(CallFrame, results),
        offset_of!(CallFrame, attributes),
    ];
    assert_eq!(frame, [16, 32, 40, 80, 120]);
    assert_eq!([size_of::<Buffers>(), size_of::<Attributes>(), size_of::<ByteSpan>()], [40, 48, 16]);
    let buffers = [offset_of!(Buffers, size), offset_of!(Buffers, kinds), offset_of!(Buffers, items)];
    assert_eq!(buffers, [16, 24, 32]);
    let attributes =
        [offset_of!(Attributes, kinds), offset_of!(Attributes, names), offset_of!(Attributes, items)];
    assert_eq!(attributes, [24, 32, 40]);
    let buffer = [
        offset_of!(Buffer, dtype),
        offset_of!(Buffer, data),
        offset_of!(Buffer, rank),
        offset_of!(Buffer, dims),
        size_of::<Buffer>(),
    ];
    assert_eq!(buffer, [16, 24, 32, 40, 48]);
    assert_eq!([offset_of!(ErrorCreate, message), offset_of!(ErrorCreate, code)], [16, 24]);
    assert_eq!([offset_of!(Api, version), offset_of!(Api, error_create)], [16, 48]);
    assert_eq!([offset_of!(Metadata, version), offset_of!(Metadata, traits)], [8, 32]);
    assert_eq!([offset_of!(MetadataExtension, metadata), size_of::<Version>()], [24, 24]);
}

/// XLA's function for errors: a box of the message stands for the error.
unsafe extern "C" fn error_create(create: *mut ErrorCreate) -> *mut Error {
    // SAFETY: `abi::error` passes a valid struct.
    let (message, code) = unsafe { (CStr::from_ptr((*create).message), (*create).code) };
    Box::into_raw(Box::new(format!("{code}: {}", message.to_str().unwrap()))).cast()
}

fn version(minor: c_int) -> Version {
    Version { struct_size: size_of::<Version>(), extension: null_mut(), major: 0, minor }
}

fn api(minor: c_int) -> Api {
    Api {
        struct_size: 200,
        extension: null_mut(),
        version: version(minor),
        internal: std::ptr::null(),
        error_create,
    }
}

/// An array of a test: type, address and dimensions.
type Array<'a> = (c_int, *mut u8, &'a [i64]);

fn buffer(&(dtype, data, dims): &Array<'_>) -> Buffer {
    Buffer {
        struct_size: size_of::<Buffer>(),
        extension: null_mut(),
        dtype,
        data: data.cast(),
        rank: dims.len() as i64,
        dims: dims.as_ptr(),
    }
}

/// Calls a handler with these arrays, and with the string attributes `name` and `empty`.
fn call_with(
    change: impl FnOnce(&mut CallFrame),
    arguments: &[Array<'_>],
    results: &[Array<'_>],
    work: impl FnOnce(&mut Call<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut all: Vec<Buffer> = arguments.iter().chain(results).map(buffer).collect();
    let items: Vec<*mut Buffer> = all.iter_mut().map(std::ptr::from_mut).collect();
    let kinds = vec![1; all.len().max(2)];
    let buffers = |from: usize, size: usize| Buffers {
        struct_size: size_of::<Buffers>(),
        extension: null_mut(),
        size: size as i64,
        kinds: kinds.as_ptr(),
        items: items[from..].as_ptr(),
    };
    let span = |text: &'static str| ByteSpan { start: text.as_ptr(), length: text.len() };
    let spans = [span("empty"), span("name"), ByteSpan { start: std::ptr::null(), length: 0 }, span("pong")];
    let names: [*const ByteSpan; 2] = [&raw const spans[0], &raw const spans[1]];
    let values: [*const c_void; 2] = [(&raw const spans[2]).cast(), (&raw const spans[3]).cast()];
    let table = api(3);
    let mut frame = CallFrame {
        struct_size: FRAME_BYTES,
        extension: null_mut(),
        api: &raw const table,
        context: null_mut(),
        stage: 3,
        arguments: buffers(0, arguments.len()),
        results: buffers(arguments.len(), results.len()),
        attributes: Attributes {
            struct_size: size_of::<Attributes>(),
            extension: null_mut(),
            size: 2,
            kinds: [4, 4].as_ptr(),
            names: names.as_ptr(),
            items: values.as_ptr(),
        },
    };
    change(&mut frame);
    // SAFETY: a frame like those of XLA, whose arrays the tests use only in `work`.
    let error = unsafe { handle(&raw mut frame, work) };
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: made by `error_create`.
    Err(*unsafe { Box::from_raw(error.cast::<String>()) })
}

fn call(
    arguments: &[Array<'_>],
    results: &[Array<'_>],
    work: impl FnOnce(&mut Call<'_>) -> Result<(), String>,
) -> Result<(), String> {
    call_with(|_| {}, arguments, results, work)
}

#[test]
fn arrays_and_attributes_arrive() {
    let (mut bytes, mut numbers) = ([1u8, 2, 3, 4, 5, 6], [0i32; 2]);
    let mut flags = [7u8; 2];
    let arguments = [(U8, bytes.as_mut_ptr(), &[2, 3][..]), (I32, null_mut(), &[0, 4][..])];
    let results = [(I32, numbers.as_mut_ptr().cast(), &[2][..]), (BOOL, flags.as_mut_ptr(), &[2, 1][..])];
    call(&arguments, &results, |call| {
        assert_eq!(call.text("name"), Ok("pong"));
        assert_eq!(call.text("empty"), Ok(""));
        assert!(call.text("nam").unwrap_err().contains("nam"));
        assert_eq!(call.arguments[0].shape, [2, 3]);
        assert_eq!(call.arguments[0].elements::<u8>()?, [1, 2, 3, 4, 5, 6]);
        assert!(call.arguments[1].elements::<i32>()?.is_empty());
        assert!(call.arguments[0].elements::<i32>().unwrap_err().contains("U8, expected I32"));
        call.results[0].elements::<i32>()?.copy_from_slice(&[-1, 9]);
        call.results[1].elements::<Flag>()?.copy_from_slice(&[true.into(), false.into()]);
        Ok(())
    })
    .unwrap();
    assert_eq!((numbers, flags), ([-1, 9], [1, 0]));
}

#[test]
fn an_argument_in_the_place_of_a_result_is_only_there() {
    let mut bytes = [1u8, 2, 3, 4];
    let start = bytes.as_mut_ptr();
    let whole = (U8, start, &[4][..]);
    let other = [9u8];
    call(&[whole, (U8, other.as_ptr().cast_mut(), &[1][..])], &[whole], |call| {
        assert_eq!(call.arguments[0].contents, Contents::InResult(0));
        assert_eq!(call.arguments[1].contents, Contents::Bytes(&[9]));
        assert!(call.arguments[0].elements::<u8>().unwrap_err().contains("result 0"));
        let bytes = call.results[0].elements::<u8>()?;
        bytes.reverse();
        Ok(())
    })
    .unwrap();
    assert_eq!(bytes, [4, 3, 2, 1]);
}

#[test]
fn overlaps_are_errors() {
    let mut bytes = [0u8; 8];
    let start = bytes.as_mut_ptr();
    let (front, back) = ((U8, start, &[5][..]), (U8, start.wrapping_add(4), &[4][..]));
    let never = |_: &mut Call<'_>| -> Result<(), String> { panic!("the handler ran") };
    assert_eq!(call(&[front], &[back], never), Err("3: an argument overlaps a part of result 0".into()));
    assert_eq!(call(&[], &[front, back], never), Err("3: results 0 and 1 overlap".into()));
    // Arguments may overlap each other.
    call(&[front, back], &[], |_| Ok(())).unwrap();
}

#[test]
fn errors_and_panics_become_errors_of_xla() {
    let failed = |work: fn(&mut Call<'_>) -> Result<(), String>| call(&[], &[], work).unwrap_err();
    assert_eq!(failed(|_| Err("no\0 game".into())), "3: no  game");
    assert!(failed(|_| panic!("row {}", 3)).contains("it panicked, which is a bug: row 3"));
    assert!(failed(|_| panic!("fell")).contains("fell"));
}

#[test]
fn calls_that_do_not_fit_are_errors() {
    let never = |_: &mut Call<'_>| -> Result<(), String> { panic!("the handler ran") };
    let short = call_with(|frame| frame.struct_size = 160, &[], &[], never).unwrap_err();
    assert!(short.contains("160 bytes, expected at least 168"), "{short}");
    // XLA may append fields.
    call_with(|frame| frame.struct_size = 400, &[], &[], |_| Ok(())).unwrap();
    let stage = call_with(|frame| frame.stage = 0, &[], &[], never).unwrap_err();
    assert!(stage.contains("stage 0, expected 3"), "{stage}");
    let byte = [0u8].as_mut_ptr();
    for (array, message) in [
        ((F32, byte, &[1][..]), "unknown dtype 11"),
        ((U8, byte, &[-1][..]), "the shape [-1]"),
        ((I32, byte, &[i64::MAX, 2][..]), "the shape"),
        ((U8, null_mut(), &[1][..]), "no memory"),
    ] {
        let error = call(&[array], &[], never).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn elements_must_be_aligned() {
    let mut numbers = [0i32; 2];
    let odd = numbers.as_mut_ptr().cast::<u8>().wrapping_add(1);
    call(&[], &[(I32, odd, &[1][..])], |call| {
        assert!(call.results[0].elements::<i32>().is_err());
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_version_is_the_newest_that_both_know() {
    // (minor version of XLA, or none for a call without a table of functions, answer).
    for (found, expected) in [(None, 1), (Some(1), 1), (Some(2), 2), (Some(3), 3), (Some(9), 3)] {
        let mut metadata = Metadata { struct_size: 36, version: version(77), traits: 77 };
        let base = Extension { struct_size: size_of::<Extension>(), kind: 1, next: null_mut() };
        let mut extension = MetadataExtension { base, metadata: &raw mut metadata };
        let table = found.map(api);
        let start = &raw mut extension;
        call_with(
            |frame| {
                frame.extension = start.cast();
                frame.api = table.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            },
            &[],
            &[],
            |_| panic!("the handler ran"),
        )
        .unwrap();
        assert_eq!((metadata.version.major, metadata.version.minor), (0, expected), "{found:?}");
        assert_eq!(metadata.traits, 0);
    }
}
