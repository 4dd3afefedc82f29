//! Checks every ROM of the table in the folder of the environment variables, and the behavior of tests
//! without ROMs.

use std::env;
use std::process::{Command, Output};

use cule::rom;

#[path = "support/roms.rs"]
mod roms;

#[test]
fn all_known_roms_are_what_the_table_says() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    for known in rom::known() {
        let rom = rom::load(known.name, &[], false).unwrap();
        assert_eq!(rom.md5, known.md5, "{}", known.name);
        let scheme = format!("{:?}", rom.scheme);
        let expected = known.cartridge.replace("2K", "K2").replace("4K", "K4");
        assert_eq!(scheme, expected, "{}", known.name);
    }
}

/// Runs the test above in a separate process without the environment variables of ROM folders.
fn without_roms(ci: &str) -> (Output, String) {
    let mut test = Command::new(env::current_exe().expect("the test itself"));
    rom::FOLDER_VARIABLES.iter().for_each(|name| {
        test.env_remove(name);
    });
    let test = test.args(["--exact", "all_known_roms_are_what_the_table_says"]).env("CI", ci);
    let output = test.output().expect("it runs");
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    (output, String::from_utf8(said).expect("text"))
}

#[test]
fn a_test_without_roms_says_that_it_is_left_out() {
    for ci in ["", "false"] {
        let (output, said) = without_roms(ci);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("left out: all_known_roms_are_what_the_table_says"), "{said}");
        assert!(said.contains("ALE_ROMS_DIR"), "{said}");
    }
}

#[test]
fn a_test_without_roms_fails_under_ci() {
    for ci in ["true", "1"] {
        let (output, said) = without_roms(ci);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("checks nothing"), "{said}");
    }
}
