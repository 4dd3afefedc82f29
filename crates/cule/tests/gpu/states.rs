//! States of environments on both devices.

use cule::batch::Settings;
use cule::env::state::Head;
use cule::games::table::UNKNOWN;

use crate::pair::Pair;
use crate::programs::painter;

/// A loaded state with kept pictures gets a place for them in its new environment.
#[test]
fn kept_pictures_move_with_their_states() {
    let given = Settings { noop_max: 0, ..Settings::default() };
    let mut pair = Pair::of(&[(painter(2), UNKNOWN)], 2, &given);
    pair.run(4, "painter");
    let (kept, size) = pair.gpu.save(&[0, 1], 0).unwrap();
    let shown = pair.gpu.obs_bytes();
    assert!(size > size_of::<Head>() + shown + 2 * 210 * 160, "{size} bytes hold no pictures");
    for step in 0..3 {
        pair.step(&format!("step {step} on the way"));
    }
    pair.cpu.load(&[0, 1], &kept).unwrap();
    pair.gpu.load(&[0, 1], &kept, 0).unwrap();
    pair.compare_states("after the pictures moved");
    for step in 0..4 {
        pair.step(&format!("step {step} after the pictures moved"));
    }
    // A reset by the caller frees the place, and the next state takes it again.
    pair.reset(Some(vec![4, 5]), None, "reset");
    pair.cpu.load(&[1, 0], &kept).unwrap();
    pair.gpu.load(&[1, 0], &kept, 0).unwrap();
    pair.step("after the second load");
}

#[test]
fn states_move_both_ways() {
    let Some(mut pair) = Pair::new(&["seaquest", "breakout"], 4, &Settings::default()) else { return };
    pair.run(20, "before the states move");
    let envs: Vec<usize> = (0..4).collect();
    let (rows, _) = pair.gpu.save(&envs, 0).unwrap();
    for step in 0..10 {
        pair.step(&format!("step {step} on the way"));
    }
    // From the device to the CPU, and from the CPU back to the device.
    pair.cpu.load(&envs, &rows).unwrap();
    let mut again = vec![0; rows.len()];
    pair.cpu.save(&envs, &mut again).unwrap();
    pair.gpu.load(&envs, &again, 0).unwrap();
    pair.compare_states("after the states moved");
    for step in 0..10 {
        pair.step(&format!("step {step} after the states moved"));
    }
    // One state for several environments of its game.
    let size = rows.len() / 4;
    let copies = [&rows[..size], &rows[..size]].concat();
    pair.gpu.load(&[0, 2], &copies, 0).unwrap();
    pair.cpu.load(&[0, 2], &copies).unwrap();
    for step in 0..5 {
        pair.step(&format!("step {step} of a copied state"));
    }
    let mut damaged = rows.clone();
    damaged[100] ^= 1;
    let error = pair.gpu.load(&envs, &damaged, 0).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}
