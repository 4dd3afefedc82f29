//! Every handler of the PTX interpreter is used by an opcode. `crates/cule/tests/ptx.rs` runs the interpreter.

use cule::machine::records;
use xtask::ptx::{Form, block};

#[test]
fn every_handler_has_an_opcode_that_reaches_it() {
    let handlers = block().handlers;
    assert!(handlers.len() > 100, "{} handlers", handlers.len());
    let mut reached = vec![false; handlers.len()];
    for opcode in 0..=255u8 {
        for (low, high) in [(0x10, 0x00), (0x90, 0x00), (0x10, 0xF4), (0x94, 0x02)] {
            let record = records::record(&[opcode, low, high, 0], 0, 0x1000, 0);
            reached[(record >> 32 & 0xFF) as usize] = true;
        }
    }
    for (reached, (name, form)) in reached.iter().zip(&handlers) {
        assert!(reached, "{name} {form:?}");
    }
    assert_eq!(handlers[0].1, Form::Slow);
}
