//! Several games and variations in one batch.

use std::rc::Rc;

use cule::batch::cuda::CudaBatch;
use cule::batch::{Autoreset, BatchConfig, Boot, Settings, Variation};
use cule::rom;

use crate::pair::{Host, Pair, loaded, steps};
use crate::roms;

#[test]
fn games_mixed_within_a_batch() {
    let games = ["pong", "seaquest", "pitfall2", "freeway", "asteroids"];
    let given = Settings { autoreset: Autoreset::SameStep, ..Settings::default() };
    let Some(mut pair) = Pair::new(&games, 7, &given) else { return };
    pair.run(120, "mixed");
}

#[test]
fn environments_of_several_variations() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    let vary = |mode, difficulty, repeat_probability, frame_skip, ram: &[(u8, u8)]| Variation {
        mode: Some(mode),
        difficulty: Some(difficulty),
        repeat_probability,
        frame_skip,
        ram: ram.to_vec(),
        hold: vec![],
    };
    let variations = vec![
        vary(0, 0, 0.25, (4, 4), &[]),
        vary(4, 1, 0.0, (2, 5), &[]),
        vary(24, 0, 0.9, (1, 1), &[(57, 2)]),
        vary(0, 0, 0.25, (4, 4), &[]),
    ];
    let mut games = loaded(&["breakout"; 4]);
    games[3].0 = rom::patched(&games[3].0, &[(None, 0xF07D, 0x10)]).unwrap();
    for boot in [Boot::Exact, Boot::Snapshot] {
        // On a device RAM is changed with boot states only.
        let mut variations = variations.clone();
        if boot == Boot::Exact {
            variations[2].ram.clear();
        }
        let settings = Settings { boot, variations, autoreset: Autoreset::SameStep, ..Settings::default() };
        let assignment = [0, 1, 2, 1, 1];
        let config = BatchConfig {
            games: &games,
            assignment: &assignment,
            threads: 2,
            affinity: None,
            batch_size: 5,
            ordered: true,
            wants_ram: true,
            entropy: 77,
        };
        let mut pair = Pair::with_config(2, &config, &settings);
        pair.run(steps(25), "variations");
        for assignment in [[1, 2, 2, 0, 3], [3, 2, 1, 0, 2]] {
            pair.cpu.assign(&assignment).unwrap();
            pair.gpu.assign(&assignment, 0).unwrap();
            pair.reset(None, None, "other variations");
            pair.run(steps(10), "other variations");
        }
        // Of environments with other settings, states are refused.
        let mut row = vec![0; pair.cpu.state_bytes(&[0])];
        pair.cpu.save(&[0], &mut row).unwrap();
        for (env, message) in [(1, "mode 0 and difficulty 0"), (3, "other changes")] {
            let error = pair.cpu.load(&[env], &row).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert_eq!(error, pair.gpu.load(&[env], &row, 0).unwrap_err().to_string());
        }
    }
}

#[test]
fn changes_of_ram_that_a_device_cannot_make_are_refused() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    let games = loaded(&["breakout"]);
    let config = BatchConfig {
        games: &games,
        assignment: &[0],
        threads: 1,
        affinity: None,
        batch_size: 1,
        ordered: true,
        wants_ram: true,
        entropy: 77,
    };
    for (boot, hold, name) in [(Boot::Snapshot, true, "hold"), (Boot::Exact, false, "ram")] {
        let one = Variation {
            mode: None,
            difficulty: None,
            repeat_probability: 0.0,
            frame_skip: (4, 4),
            ram: vec![(57, 5)],
            hold: if hold { vec![(57, 5)] } else { vec![] },
        };
        let settings = Settings { boot, variations: vec![one], ..Settings::default() };
        let host = Host { warps: 1, lanes: 1, launched: Rc::default() };
        let error = CudaBatch::new(host, &config, settings).err().unwrap().to_string();
        assert!(error.starts_with(name) && error.contains("device=\"cpu\""), "{error}");
    }
}
