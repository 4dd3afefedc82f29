//! The games' rules give the same numbers for drawn RAM as those that were compared with ale-py for 10^7 frames.
//!
//! Play at random reaches a part of every rule. Drawn RAM reaches the rest, so that no change goes unseen. A rule that
//! changes on purpose is compared with ale-py first (`make test-games`); then `WRITE_RULES=1 cargo test -p cule --test
//! rules` writes `rules.txt`.

mod drawn;

use std::fmt::Write;
use std::path::Path;

use cule::games;
use cule::games::names::NAMES;

#[test]
fn rules_of_drawn_ram_are_those_on_record() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules.txt");
    let mut found = String::new();
    for (game, name) in NAMES.iter().enumerate() {
        writeln!(found, "{name} {:016x}", drawn::chain(game)).unwrap();
    }
    if std::env::var_os("WRITE_RULES").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found.lines().count(), recorded.lines().count());
    for (now, before) in found.lines().zip(recorded.lines()) {
        assert_eq!(now, before);
    }
}
