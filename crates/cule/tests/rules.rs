//! Checks that the games' rules give the recorded results for random RAM. The recorded rules were compared
//! with ale-py for 10^7 frames.
//!
//! Random play reaches only a part of every rule. Random RAM reaches the rest, so that every change is
//! detected. After an intended change of a rule, compare it with ale-py (`make test-games`); then
//! `WRITE_RULES=1 cargo test -p cule --test rules` writes `rules.txt`. The seed of a game's RAM is the number
//! of its line there. A new game gets the last line, so that the other lines do not change.

mod drawn;

use std::path::Path;

use cule::games;
use cule::games::table::GAMES;

/// Every game of the table: first the recorded games, in the order of the record, then the new ones.
fn in_order(recorded: &str) -> Vec<usize> {
    let position = |name: &str| GAMES.iter().position(|row| row.name == name);
    let mut games: Vec<usize> =
        recorded.lines().filter_map(|line| position(line.split_once(' ')?.0)).collect();
    let new: Vec<usize> = (0..GAMES.len()).filter(|game| !games.contains(game)).collect();
    games.extend(new);
    games
}

#[test]
fn rules_of_drawn_ram_are_those_on_record() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules.txt");
    let recorded = std::fs::read_to_string(&path).unwrap();
    let line = |(seed, game): (usize, usize)| {
        format!("{} {:016x}\n", GAMES[game].name, drawn::chain(game, seed as u64))
    };
    let found: String = in_order(&recorded).into_iter().enumerate().map(line).collect();
    if std::env::var_os("WRITE_RULES").is_some() {
        std::fs::write(&path, &found).unwrap();
        return;
    }
    assert_eq!(found.lines().count(), recorded.lines().count());
    for (now, before) in found.lines().zip(recorded.lines()) {
        assert_eq!(now, before);
    }
}
