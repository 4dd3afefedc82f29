//! Forms and windows, environments of a warp, and the measurement of the fastest form.

use cule::batch::cuda::{
    Choice, Form, WINDOWS,
    calibrate::{self, Effort},
};
use cule::batch::{Autoreset, Boot, Settings};
use cule::env::rules::StepRules;
use cule::rom;

use crate::pair::{Pair, library, loaded, steps};
use crate::roms;

/// Sets which waiting lanes `__activemask` returns: all (0), or a subset drawn from the seed `split`. Returns
/// the number of turns of groups since the last call, and the sum of the lanes in them.
fn lanes(split: u64) -> (u64, u64) {
    let mut counts = [0u64; 2];
    // SAFETY: the function has this type (`kernels/host.cpp`) and writes two numbers.
    unsafe {
        let lanes: libloading::Symbol<'_, unsafe extern "C" fn(u64, *mut u64)> =
            library().get(b"parl_lanes").unwrap();
        lanes(split, counts.as_mut_ptr());
    }
    (counts[0], counts[1])
}

#[test]
fn every_form_gives_the_same_numbers() {
    let Some(mut pair) = Pair::new(&["seaquest", "pong", "pitfall2"], 9, &Settings::default()) else {
        return;
    };
    pair.run(3, "before the forms");
    for (number, choice) in Choice::all().into_iter().enumerate() {
        let others = Choice { form: Form::Plain, window: 0 };
        pair.gpu.choose(&[choice, others, choice], 0).unwrap();
        for step in 0..4 {
            pair.step(&format!("{choice:?}, step {step}"));
        }
        pair.compare_states(&format!("after {choice:?}"));
        // The last choice is the plain one: no lane waits for another.
        let (turns, _) = lanes(0);
        assert_eq!(turns > 0, choice.form != Form::Plain, "{turns} turns of form {number}");
    }
    let error = pair.gpu.choose(&[Choice::default()], 0).unwrap_err();
    assert!(error.to_string().contains("choices, one per game"), "{error}");
}

/// On a device `__activemask` may return any subset of the waiting lanes.
#[test]
fn it_does_not_matter_who_meets() {
    let Some(mut pair) = Pair::new(&["breakout"], 7, &Settings::default()) else { return };
    pair.run(2, "before the lanes are split");
    for split in [0x5EED, 0xBEEF] {
        lanes(split);
        for step in 0..6 {
            pair.step(&format!("lanes split by {split:#x}, step {step}"));
        }
    }
    lanes(0);
    pair.compare_states("after the lanes were split");
}

/// Lanes at the same instruction run together, in windows of 16 rows more than three per turn.
/// `PARL_GPU_STEPS` measures every window, after that many steps.
#[test]
fn lanes_of_a_warp_share_their_instructions() {
    let long = steps(0) > 0;
    let windows = if long { &WINDOWS[..] } else { &WINDOWS[2..3] };
    let games = ["pong", "breakout", "ms_pacman", "solaris"];
    for game in &games[..if long { 4 } else { 1 }] {
        let Some(mut pair) = Pair::new(&[game], 32, &Settings::default()) else { return };
        pair.run(steps(4), game);
        for &window in windows {
            pair.gpu.choose(&[Choice { form: Form::Grouped, window }], 0).unwrap();
            lanes(0);
            pair.step(&format!("{game}, window {window}"));
            let (turns, turning) = lanes(0);
            let shared = turning as f64 / turns as f64;
            println!("{game}, windows of {} rows: {shared:.1} lanes in a turn", 1 << window);
            // With the whole picture as window, games such as Solaris share less.
            let least = if window == Choice::default().window { 3.0 } else { 1.0 };
            assert!(shared > least, "{game}, window {window}: {shared} lanes in a turn");
        }
    }
}

/// Measures two choices, and parses the fastest one from the text that is saved.
#[test]
fn a_calibration_measures_what_there_is() {
    let Some(mut pair) = Pair::new(&["pong"], 2, &Settings::default()) else { return };
    let choices = [Choice::default(), Choice { form: Form::Plain, window: 0 }];
    let effort = Effort { warmup_steps: 1, steps: 2, rounds: 2 };
    let found = pair.gpu.measure(&choices, effort, 0).unwrap();
    assert_eq!(found.iter().map(|(choice, _)| *choice).collect::<Vec<_>>(), choices);
    assert!(found.iter().all(|(_, seconds)| *seconds > 0.0 && *seconds < 60.0), "{found:?}");
    let steps = pair.launched.borrow().iter().filter(|kernel| *kernel == "parl_step").count();
    assert_eq!(steps, 1 + 2 * 2 * 2);
    let chosen = calibrate::fastest(&found).unwrap();
    assert_eq!(calibrate::from_text(&calibrate::to_text(&found)), Some(chosen));
    assert!(pair.gpu.measure(&[], effort, 0).is_err());
    // After a measurement the environments can be reset and stepped as usual.
    pair.gpu.choose(&[chosen], 0).unwrap();
    pair.reset(Some(vec![5, 6]), None, "the reset after the calibration");
    pair.step("after the calibration");
}

/// Environments whose episodes end in a measurement go on, also where only the caller resets them.
#[test]
fn a_calibration_goes_on_without_autoreset() {
    let mut given = Settings { autoreset: Autoreset::Disabled, ..Settings::default() };
    given.rules.frame_limit = 20;
    let Some(mut pair) = Pair::new(&["pong"], 2, &given) else { return };
    let effort = Effort { warmup_steps: 12, steps: 1, rounds: 1 };
    pair.gpu.measure(&[Choice::default()], effort, 0).unwrap();
    pair.reset(Some(vec![5, 6]), None, "the reset after the calibration");
    pair.step("after the calibration");
}

/// Small batches have fewer than 32 environments in a warp. They run in steps, in resets that are requested, and
/// in those of the queue.
#[test]
fn any_number_of_environments_in_a_warp() {
    if !roms::are_there(&rom::folders(&[])) {
        return;
    }
    let games = loaded(&["pong", "breakout"]);
    for lanes in [1, 2, 3, 8] {
        let rules = StepRules { frame_limit: 27, ..Settings::default().rules };
        for boot in [Boot::Snapshot, Boot::Exact] {
            let given = Settings { boot, rules, ..Settings::default() };
            let mut pair = Pair::with_lanes(lanes, &games, 13, &given);
            pair.run(16, &format!("{lanes} environments of a warp, {boot:?}"));
            assert!(pair.ended > 13, "{} episodes ended", pair.ended);
        }
    }
}
