//! Every handler of the PTX interpreter is used by an opcode. `crates/cule/tests/ptx.rs` runs the interpreter.

use cule::machine::{cart, records};
use xtask::ptx::{Form, block};

#[test]
fn every_handler_has_an_opcode_that_reaches_it() {
    let handlers = block().handlers;
    assert!(handlers.len() > 100, "{} handlers", handlers.len());
    let mut reached = vec![false; handlers.len()];
    for opcode in 0..=255u8 {
        for (low, high) in [(0x10, 0x00), (0x90, 0x00), (0x10, 0xF0), (0x94, 0x02), (0x02, 0x00)] {
            for kind in [cart::KIND_4K, cart::KIND_E0] {
                let mut rom = vec![0; 4096];
                rom[0xF0..0xF3].copy_from_slice(&[opcode, low, high]);
                let record = records::record(&rom, 0xF0, &cart::new(kind, 4096));
                reached[(record >> 32) as usize] = true;
            }
        }
    }
    for (reached, (name, form)) in reached.iter().zip(&handlers) {
        assert!(reached, "{name} {form:?}");
    }
    assert_eq!(handlers[0].1, Form::Slow);
}
