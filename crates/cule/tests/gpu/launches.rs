//! What is launched, the memory of a batch, and faults on the device.

use cule::batch::cuda::{Actions, CART_AT, Call, Plan, SHARED_BYTES};
use cule::batch::{Autoreset, Boot, Settings};
use cule::env::rules::StepRules;
use cule::env::state::Head;
use cule::machine::Board;

use crate::pair::{Pair, library};

#[test]
fn the_structs_of_a_launch_agree() {
    let [first, second] = CART_AT;
    let sizes = [
        size_of::<Plan>(),
        size_of::<Call>(),
        size_of::<Head>(),
        std::mem::offset_of!(Board, ram),
        first,
        second,
        SHARED_BYTES as usize,
    ];
    for (which, size) in sizes.into_iter().enumerate() {
        // SAFETY: the function has this type (`kernels/host.cpp`).
        let found = unsafe {
            let size: libloading::Symbol<'_, unsafe extern "C" fn(u32) -> u32> =
                library().get(b"parl_size").unwrap();
            size(which as u32)
        };
        assert_eq!(found as usize, size, "number {which}");
    }
}

/// A reset from the boot state runs within the step's launch; only whole boots have a separate launch.
#[test]
fn a_step_is_one_launch() {
    for (boot, autoreset, expected) in [
        (Boot::Snapshot, Autoreset::NextStep, &["parl_step"][..]),
        (Boot::Snapshot, Autoreset::SameStep, &["parl_step"]),
        (Boot::Exact, Autoreset::NextStep, &["parl_step", "parl_reset"]),
    ] {
        let rules = StepRules { frame_limit: 15, ..Settings::default().rules };
        let given = Settings { boot, autoreset, rules, ..Settings::default() };
        let Some(mut pair) = Pair::new(&["breakout"], 2, &given) else { return };
        pair.run(3, "before the launches are counted");
        for step in 0..12 {
            pair.launched.borrow_mut().clear();
            pair.step(&format!("step {step}, {boot:?}, {autoreset:?}"));
            assert_eq!(*pair.launched.borrow(), expected);
        }
        assert!(pair.ended > 4, "{} episodes ended", pair.ended);
    }
}

/// Without its observation and the generator of sticky actions, an environment takes less than a kilobyte.
/// Pictures belong to the resident warps.
#[test]
fn an_environment_has_less_than_a_kilobyte() {
    let bytes = |envs: usize| {
        let pair = Pair::new(&["breakout"], envs, &Settings::default())?;
        let shown = envs * (pair.gpu.obs_bytes() + 2500);
        Some(pair.gpu.device_bytes() - shown)
    };
    // Both batches have the same number of lanes that draw. One environment in fifteen keeps three pictures.
    let (Some(few), Some(many)) = (bytes(1120), bytes(1600)) else { return };
    // 32 places, and one word for their bits.
    let kept = 480 / 15 * 3 * 210 * 160 + 4;
    // Head 992 bytes, `StepOutput` 8; place of its pictures, entry of the queue, game and order 4 each.
    assert_eq!(many - few, 480 * 1016 + kept);
}

#[test]
fn faults_are_named_at_the_next_look() {
    let rules = StepRules { frame_limit: 4, ..Settings::default().rules };
    let given = Settings { autoreset: Autoreset::Disabled, rules, ..Settings::default() };
    let Some(mut pair) = Pair::new(&["pong"], 3, &given) else { return };
    let targets = pair.targets();
    let actions = [0i32, 6, 0];
    pair.gpu.step(Actions::Narrow(actions.as_ptr() as u64), &targets, 0).unwrap();
    let error = pair.gpu.check_faults(0).unwrap_err().to_string();
    assert!(error.contains("environment 2 has not been reset"), "{error}");
    pair.reset(None, None, "reset");
    pair.step("the last step");
    pair.reset(None, Some(vec![false, true, false]), "reset of one");
    pair.gpu.step(Actions::Narrow(actions.as_ptr() as u64), &targets, 0).unwrap();
    // Each kind is named once.
    let error = pair.gpu.save(&[0], 0).unwrap_err().to_string();
    assert_eq!(error, "an action of environment 1 was outside 0 to 5; it did nothing");
    let error = pair.gpu.check_faults(0).unwrap_err().to_string();
    assert!(error.contains("environment 2 has ended"), "{error}");
    pair.gpu.check_faults(0).unwrap();
}
