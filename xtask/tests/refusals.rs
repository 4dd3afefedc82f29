//! Code outside the device subset is refused, with file, line, column and reason.

#![allow(clippy::unwrap_used, reason = "a test stops where its files cannot be written")]

use std::path::PathBuf;
use xtask::device::{Refusal, translate};

/// Translates a crate of the given files and returns the refusals. The first file is the root.
fn refusals(name: &str, files: &[(&str, &str)]) -> Vec<Refusal> {
    // Each process has its own folder, as several may run these tests at once.
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("refusals-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in files {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let found = translate(&folder.join(files[0].0), &folder, "refused").err().unwrap_or_default();
    std::fs::remove_dir_all(&folder).unwrap();
    found
}

/// Items that are refused: `(line:column of the file, part of the reason, text after the marker line)`. Line 1 is the
/// marker, so the text begins on line 2.
const ITEMS: &[(&str, &str, &str)] = &[
    ("2:1", "impl block", "impl P { }"),
    ("2:1", "a trait with parameters", "trait T<A> { }"),
    ("2:1", "with supertraits", "trait T: Copy { }"),
    ("2:11", "a trait of more than methods", "trait T { type A; }"),
    ("2:11", "a method with a body", "trait T { fn f(&self) { } }"),
    ("2:11", "a method without `&self`", "trait T { fn f(self); }"),
    ("2:26", "`String` is not known", "trait T { fn f(&self, a: String); }"),
    ("2:1", "a macro", "macro_rules! m { () => {} }"),
    ("2:1", "a union", "union U { a: u8 }"),
    ("2:1", "foreign functions", "extern \"C\" { fn f(); }"),
    ("2:1", "give it a file", "mod inner { }"),
    ("2:1", "static mut", "static mut S: u8 = 0;"),
    ("2:8", "needs #[derive(Clone, Copy)]", "struct P { a: u8 }"),
    ("3:8", "needs #[repr(C)]", "#[derive(Clone, Copy)]\nstruct P { a: u8 }"),
    ("2:1", "without named fields", "#[repr(C)]\n#[derive(Clone, Copy)] struct P(u8);"),
    ("3:9", "generic struct", "#[repr(C)] #[derive(Clone, Copy)]\nstruct P<T> { a: T }"),
    ("3:12", "no fixed layout on the device", "#[repr(C)] #[derive(Clone, Copy)]\nstruct P { a: usize }"),
    ("3:12", "no fixed layout on the device", "#[repr(C)] #[derive(Clone, Copy)]\nstruct P { a: (u8, u8) }"),
    ("2:6", "needs #[repr(u8)]", "enum E { A, B }"),
    ("3:10", "with fields", "#[repr(u8)]\nenum E { A(u8) }"),
    ("2:5", "generic function", "fn f<T>(x: T) {}"),
    ("2:5", "generic function", "fn f<const N: usize>() {}"),
    ("2:19", "generic function", "trait T { } fn f  <A: T, B: T>(a: &A, b: &B) {}"),
    ("2:9", "`Copy` is not known", "fn f<A: Copy>(a: &A) {}"),
    ("2:28", "`A` is not known", "trait T { } fn f<A: T>(a:  A) {}"),
    ("2:1", "unsafe function", "unsafe fn f() {}"),
    ("2:1", "async function", "async fn f() {}"),
    ("2:6", "a method", "fn f(self) {}"),
    ("2:6", "a pattern as parameter", "fn f((a, b): (u8, u8)) {}"),
    ("2:9", "type `isize`", "fn f(a: isize) {}"),
    ("2:9", "type `u128`", "fn f(a: u128) {}"),
    ("2:9", "type `char`", "fn f(a: char) {}"),
    ("2:9", "text", "fn f(a: &str) {}"),
    ("2:9", "raw pointer", "fn f(a: *const u8) {}"),
    ("2:9", "a trait as type", "fn f(a: impl Copy) {}"),
    ("2:9", "with parameters", "fn f(a: Option<u8>) {}"),
    ("2:9", "`String` is not known", "fn f(a: String) {}"),
    ("2:10", "an array of references", "fn f(a: [&u8; 2]) {}"),
    ("2:9", "a tuple with a reference", "fn f(a: (u8, &u8)) {}"),
    ("2:9", "a reference to a reference", "fn f(a: &&u8) {}"),
    ("2:19", "a reference as result", "fn f(a: &u32) ->  &u32 { a }"),
    ("2:14", "array length 0", "fn f(a: [u8; 0]) {}"),
    ("2:7", "constant `S`", "const S: &u8 = &3;"),
    ("2:15", "a constant that needs statements", "const S: u8 = match 1 { _ => 2 };"),
    ("2:1", "only #[cfg(test)] and #[cfg(not(device))]", "#[cfg(unix)]\nfn f() {}"),
    ("2:4", "it stands for `int` in C++", "fn int_() {}"),
];

/// Statements and expressions that are refused inside `fn f(p: &mut P, a: u32, b: u8, n: usize) -> u32 {`, which is
/// line 4; the text begins on line 5, column 1.
const BODIES: &[(&str, &str, &str)] = &[
    ("5:5", "`let` without its type", "let x = 1;"),
    ("5:8", "`_` as type", "let x: _ = 1;"),
    ("5:14", "a closure", "let x: u32 = |y: u32| y;"),
    ("5:14", "unsafe code", "let x: u32 = unsafe { 1 };"),
    ("5:14", "`?`", "let x: u32 = a?;"),
    ("5:4", "`let` in a condition", "if let 1 = a {}"),
    ("5:7", "`let` in a condition", "while let 1 = a {}"),
    ("5:18", "`let ... else`", "let x: u32 = a   else { return 0 };"),
    ("5:1", "a label", "'l: loop { break 'l; }"),
    ("5:15", "`break` with a value", "loop {  break a; }"),
    ("5:10", "`for` over something else than a range", "for i in p.list {}"),
    ("5:11", "`rev` of a range with `..=`", "for i in (0..=3).rev() {}"),
    ("5:10", "a range without both ends", "for i in 0.. {}"),
    ("5:14", "a range outside of", "let x: u32 = 1..2;"),
    ("5:14", "a reference outside of", "let x: u32 = &a;"),
    ("5:1", "macro `println!`", "println!(\"{a}\");"),
    ("5:1", "macro `panic!`", "panic!();"),
    ("5:19", "method `pow` of u32", "let x: u32 = a.   pow(2);"),
    ("5:21", "method `wrapping_add` of usize", "let x: usize = n.   wrapping_add(2);"),
    ("5:16", "method `checked_add`", "let x: u32 = a.checked_add(1);"),
    ("5:18", "type u8 where u32 is wanted", "let x: u32 = a + b;"),
    ("5:14", "type u8 where u32 is wanted", "let x: u32 = b;"),
    ("5:14", "literal 300 is outside u8", "let x: u8 =  300;"),
    ("5:21", "type u32 where usize is wanted", "let x: u32 = p.list[a];"),
    ("5:14", "`g` is not known", "let x: u32 = g(a);"),
    ("5:14", "a function as a value", "let x: u32 = f;"),
    ("5:14", "takes 1 arguments, not 2", "let x: u32 = one(a, a);"),
    ("5:18", "`&` where `&mut` is wanted", "let x: u32 = one(&*p);"),
    ("5:14", "part of an array outside of", "let x: u32 = p.list[0..2];"),
    ("5:21", "an index that changes the state", "let x: u32 = p.list[index(p)];"),
    ("5:14", "`P` has no field `z`", "let x: u32 = p.z;"),
    ("5:1", "assignment to a tuple", "(p.x, p.y) = (1, 2);"),
    ("5:10", "a reference that is set again", "let mut  r: &u32 = &a;"),
    ("5:1", "`use` in a function", "use std::mem;"),
    ("5:1", "an item in a function", "fn inner() {}"),
    ("5:11", "this pattern", "match a { x @ 1..=3 => {} _ => {} }"),
    ("5:11", "this pattern", "match a { ref x => {} }"),
    ("5:7", "a match on P", "match *p { _ => {} }"),
    ("5:16", "a guard that is more than an expression", "match b { _ if index(p) == 1 => {} _ => {} }"),
    ("5:15", "a comparison of P with P", "let x: bool = *p == *p;"),
    ("5:14", "text outside of a row", "let x: u32 = \"text\";"),
    ("5:14", "a cast from P to u32", "let x: u32 = *p as u32;"),
    ("5:8", "tuple of 5", "let x: (u8, u8, u8, u8, u8) = (1, 2, 3, 4, 5);"),
    ("5:14", "a raw pointer", "let x: u32 = &raw const a;"),
    ("5:16", "`usize`, which has 32 bits", "let x: usize = usize::MAX;"),
    ("5:14", "`u32::from` of i32", "let x: u32 = u32::from(-1i32);"),
    ("5:1", "#[cfg] on a statement", "#[cfg(unix)] let x: u32 = 1;"),
    ("5:14", "`host` is for the host", "let x: u32 = host();"),
];

fn expect(name: &str, at: &str, reason: &str, found: &[Refusal]) -> Option<String> {
    let fits = |r: &Refusal| {
        format!("{}:{}", r.line, r.column) == at && r.reason.contains(reason) && r.file == "lib.rs"
    };
    if found.iter().any(fits) {
        return None;
    }
    Some(format!("{name}: wanted {at}: {reason}\n    got {found:?}"))
}

#[test]
fn items_outside_the_subset_are_refused() {
    let mut wrong: Vec<String> = Vec::new();
    for (at, reason, text) in ITEMS {
        let text = format!("//! Device subset.\n{text}\n");
        wrong.extend(expect(&text, at, reason, &refusals("item", &[("lib.rs", &text)])));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bodies_outside_the_subset_are_refused() {
    let mut wrong: Vec<String> = Vec::new();
    for (at, reason, text) in BODIES {
        let text = format!(
            "//! Device subset.\n\
             #[repr(C)] #[derive(Clone, Copy)] struct P {{ x: u32, y: u32, list: [u32; 4] }}\n\
             fn one(p: &mut P) -> u32 {{ p.x }} fn index(p: &mut P) -> usize {{ p.x += 1; 0 }} \
             #[cfg(not(device))] fn host() -> u32 {{ 1 }}\n\
             fn f(p: &mut P, a: u32, b: u8, n: usize) -> u32 {{\n{text}\n0\n}}\n"
        );
        wrong.extend(expect(&text, at, reason, &refusals("body", &[("lib.rs", &text)])));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_refusals_of_several_files_are_reported() {
    let root = "//! Device subset.\npub mod inner;\nmod host;\nfn f() -> u8 { inner::g() }\nfn bad() { let x = 1; }\n";
    let inner = "//! Device subset: all of it.\nuse super::host::helper;\n\npub fn g() -> u8 {\n    helper()\n}\n\
                 pub fn h() {\n    loop { return Vec::new(); }\n}\n";
    let host = "pub fn helper() -> u8 { String::new().len() as u8 }\n";
    let found = refusals("several", &[("lib.rs", root), ("inner.rs", inner), ("host.rs", host)]);
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "inner.rs:5:5: `helper` is for the host: its file or item is not in the device subset",
            "inner.rs:8:19: `Vec::new` is not known in the device subset",
            "lib.rs:5:16: `let` without its type",
        ]
    );
}

#[test]
fn a_crate_without_a_marker_is_refused() {
    let found = refusals("unmarked", &[("lib.rs", "//! Nothing.\npub fn f() {}\n")]);
    assert_eq!(found.len(), 1);
    assert!(found[0].reason.contains("no module doc of the crate has a line beginning with `Device subset`"));
}

#[test]
fn missing_and_broken_files_are_refused() {
    let found = refusals("missing", &[("lib.rs", "//! Device subset.\n\nmod nowhere;\n")]);
    assert_eq!(found[0].to_string(), "lib.rs:3:1: no file for module `nowhere`");
    let found = refusals("broken", &[("lib.rs", "//! Device subset.\nfn f( {}\n")]);
    assert_eq!((found[0].file.as_str(), found[0].line), ("lib.rs", 2));
    assert!(found[0].reason.starts_with("does not parse"));
}

#[test]
fn code_for_the_host_is_not_checked() {
    let text = "//! Device subset.\n#[cfg(not(device))]\nuse std::collections::HashMap;\n#[cfg(not(device))]\n\
                impl P { pub fn map(&self) -> HashMap<u8, String> { HashMap::new() } }\n\
                #[repr(C)]\n#[derive(Clone, Copy)]\npub struct P { pub a: u8 }\n\
                #[cfg(test)]\nmod tests { #[test] fn t() { assert!(true); } }\n";
    assert_eq!(refusals("host", &[("lib.rs", text)]), []);
}
