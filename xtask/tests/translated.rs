//! Runs the functions of `subset/` as Rust and as translated C++ on the same inputs, and compares the results.

#![allow(clippy::unwrap_used, reason = "a test stops where its program cannot be run")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[allow(clippy::all, dead_code, unreachable_patterns, reason = "the sources show constructs, not style")]
#[path = "subset/lib.rs"]
mod subset;

type Case = (&'static str, fn(u32, u32, u32) -> u64);

macro_rules! cases {
    ($($module:ident: $($name:ident)*;)*) => { [$($((
        concat!(stringify!($module), "::", stringify!($name)), subset::$module::$name as fn(u32, u32, u32) -> u64,
    )),*),*] };
}

const CASES: [Case; 30] = cases! {
    arithmetic: case_u8 case_u16 case_u32 case_u64 case_i8 case_i16 case_i32 case_i64
        case_u8_casts case_u16_casts case_u32_casts case_u64_casts
        case_i8_casts case_i16_casts case_i32_casts case_i64_casts;
    constants: case_scalars case_tables;
    control: case_match case_if case_loops case_return;
    generics: case_sum;
    places: case_literals case_order case_references case_tuples case_enums case_names case_floats;
};

/// The C++ struct that replaces a type parameter.
const KEPT: &str = "
struct Kept {
    uint32_t now;
    uint32_t add(uint32_t value) { return now = now * 3 + value; }
    uint64_t total(const Array<uint32_t, 4>& line) const { return static_cast<uint64_t>(now) << 1 ^ line[2]; }
    void put(Array<uint32_t, 4>& line, uint32_t at) {
        line[at] = now;
        now ^= 1;
    }
};
namespace subset::generics {
static uint64_t case_sum(uint32_t a, uint32_t b, uint32_t c) {
    Kept kept{b};
    return sum(kept, a, b, c);
}
}
";

/// Returns the inputs: limits of the types, then random numbers of every size.
fn inputs() -> Vec<[u32; 3]> {
    const CORNERS: [u32; 12] =
        [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF];
    let mut all: Vec<[u32; 3]> = Vec::new();
    for a in CORNERS {
        for b in CORNERS {
            all.push([a, b, a ^ b]);
            all.push([a, b, 5]);
        }
    }
    let mut state: u64 = 1;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 ^ (state >> 11) as u32
    };
    for _ in 0..3000 {
        let size = draw() % 33;
        all.push([0; 3].map(|_| draw().checked_shr(size).unwrap_or(0)));
    }
    all
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/subset")
}

/// Compiles the header and a program around it; warnings are errors, undefined behavior ends the program.
fn compile(header: &str, program: &str, name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("machine.cuh"), header).unwrap();
    std::fs::write(place.join("main.cpp"), program).unwrap();
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cule/kernels");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let output = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-DPARL_CHECKED"])
        .args(["-fsanitize=undefined", "-fno-sanitize-recover=all", "-o", "main", "main.cpp", "-I"])
        .arg(kernels)
        .current_dir(&place)
        .output()
        .expect("a C++ compiler: c++, or what CXX names");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place.join("main")
}

#[test]
fn every_case_gives_the_same_result_in_rust_and_cpp() {
    let translation =
        xtask::device::translate(&folder().join("lib.rs"), &folder(), "subset").unwrap_or_else(|refusals| {
            panic!("{}", refusals.iter().map(|r| format!("{r}\n")).collect::<String>())
        });
    let calls: String =
        CASES.iter().map(|(name, _)| format!("        put(subset::{name}(n[0], n[1], n[2]));\n")).collect();
    let program = format!(
        "#include \"machine.cuh\"\n#include <cstdio>\n{KEPT}\
         static void put(uint64_t x) {{ std::fwrite(&x, 8, 1, stdout); }}\n\
         int main() {{\n    uint32_t n[3];\n    while (std::fread(n, 4, 3, stdin) == 3) {{\n{calls}    }}\n}}\n"
    );
    let main = compile(&translation.header, &program, "cases");
    let inputs = inputs();
    let mut child = Command::new(main).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|n| n.to_le_bytes()).collect();
    let writer = std::thread::spawn(move || pipe.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "the C++ program failed: {}", output.status);
    assert_eq!(output.stdout.len(), inputs.len() * CASES.len() * 8);
    let mut given = output.stdout.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap()));
    for [a, b, c] in inputs {
        for (name, case) in CASES {
            assert_eq!(given.next(), Some(case(a, b, c)), "{name}({a:#x}, {b:#x}, {c:#x})");
        }
    }
}

#[test]
fn the_list_of_cases_is_complete() {
    for module in ["arithmetic", "constants", "control", "generics", "places"] {
        let text = std::fs::read_to_string(folder().join(format!("{module}.rs"))).unwrap();
        let written =
            text.lines().filter_map(|l| l.strip_prefix("pub fn case_")).filter_map(|l| l.split('(').next());
        for name in written {
            let name = format!("{module}::case_{name}");
            assert!(CASES.iter().any(|(known, _)| *known == name), "{name} is not run");
        }
    }
    assert_eq!(subset::constants::names(), ["slow", "fast", "plain", ""]);
}

#[test]
fn the_layout_is_that_of_rustc() {
    use std::mem::{align_of, offset_of, size_of};
    use subset::places::Board;
    let translation = xtask::device::translate(&folder().join("lib.rs"), &folder(), "subset").unwrap();
    let expected = [
        format!(
            "assert_eq!((size_of::<T>(), align_of::<T>()), ({}, {}));",
            size_of::<Board>(),
            align_of::<Board>()
        ),
        format!("assert_eq!(offset_of!(T, points), {});", offset_of!(Board, points)),
        format!("assert_eq!(offset_of!(T, ratio), {});", offset_of!(Board, ratio)),
        format!("assert_eq!(offset_of!(T, count), {});", offset_of!(Board, count)),
    ];
    for line in expected {
        assert!(translation.layout_test.contains(&line), "{line}\nis not in\n{}", translation.layout_test);
    }
}
