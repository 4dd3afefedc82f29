//! Observations, ends of episodes and boots of every kind, and every game.

use cule::batch::cuda::Choice;
use cule::batch::{Autoreset, Boot, ChannelOrder, Noops, ObsType, Padding, Settings};
use cule::env::rules;
use cule::games::table::GAMES;
use cule::rom;

use crate::pair::{Pair, steps, vary, vary_at};

#[test]
fn a_game_with_sticky_actions() {
    let Some(mut pair) = Pair::new(&["breakout"], 5, &Settings::default()) else { return };
    pair.run(240, "breakout");
    assert!(pair.ended > 0, "no episode ended");
}

#[test]
fn pictures_of_every_kind() {
    vary("rgb", &["seaquest"], |s| {
        (s.obs_type, s.size) = (ObsType::Rgb, Some((64, 70)));
    });
    vary("rgb, channels first, growing", &["pong"], |s| {
        (s.obs_type, s.channel_order, s.size, s.stack) =
            (ObsType::Rgb, ChannelOrder::First, Some((220, 100)), 2);
    });
    vary("blocks", &["pong"], |s| (s.size, s.stack) = (Some((105, 80)), 1));
    vary("native", &["pong"], |s| (s.size, s.maxpool) = (None, false));
    vary("indices", &["seaquest"], |s| (s.obs_type, s.size) = (ObsType::Index, None));
    vary("ram", &["seaquest"], |s| (s.obs_type, s.size, s.stack) = (ObsType::Ram, None, 3));
    vary("84 x 84 in colors", &["pong"], |s| s.obs_type = ObsType::Rgb);
    vary("no number of words", &["breakout"], |s| (s.size, s.stack) = (Some((85, 83)), 3));
    vary_at(1, "no place of words", &["breakout"], |s| s.padding = Padding::First);
}

#[test]
fn ends_of_every_kind() {
    vary("short episodes, the last frame shown", &["breakout"], |s| {
        (s.rules.frame_limit, s.show_last_frame, s.autoreset) = (30, true, Autoreset::SameStep);
    });
    vary("short episodes, the last frame not shown", &["seaquest"], |s| {
        (s.rules.frame_limit, s.both_ends) = (27, true);
    });
    vary("lost lives end", &["ms_pacman"], |s| {
        (s.rules.life, s.autoreset, s.padding) = (rules::LIFE_ENDS, Autoreset::SameStep, Padding::First);
    });
    vary("lost lives end and the game goes on", &["breakout"], |s| {
        (s.rules.life, s.life_continues, s.noops) = (rules::LIFE_ENDS_LATE, true, Noops::Numpy);
        (s.rules.frame_limit, s.autoreset) = (50, Autoreset::SameStep);
    });
    vary("steps are counted, frames vary", &["pong"], |s| {
        (s.rules.step_limit, s.frame_skip, s.noops) = (7, (2, 5), Noops::BeforeFire);
        s.rules.clip = rules::CLIP_NONE;
    });
    vary("one frame a step", &["pong"], |s| (s.frame_skip, s.console_frame_limit) = ((1, 1), 500));
}

#[test]
fn boots_of_every_kind() {
    vary("exact boots", &["breakout"], |s| {
        (s.boot, s.rules.frame_limit, s.autoreset) = (Boot::Exact, 40, Autoreset::SameStep);
    });
    // Mode selections: a menu, presses of random length, cubes turned with the stick, presses after twenty
    // frames.
    for (game, mode) in
        [("double_dunk", Some(2)), ("adventure", Some(1)), ("video_cube", Some(201)), ("berzerk", None)]
    {
        vary(game, &[game], |s| {
            (s.mode, s.noop_max, s.rules.frame_limit, s.boot) = (mode, 4, 60, Boot::Exact)
        });
    }
}

/// The console's frame limit ends an episode during the idle frames of its reset. The observation must show
/// the last of these frames, not older pictures of the board.
#[test]
fn a_limit_within_the_idle_frames() {
    vary("a limit of 7 frames", &["breakout"], |settings| {
        settings.console_frame_limit = 7;
        settings.noops = Noops::BeforeFire;
    });
}

/// Runs every game that has a ROM. Every second game uses `Autoreset::SameStep`, and the games use all choices
/// in turn. Short runs have short episodes. `PARL_GPU_STEPS=2000 PARL_GPU_GAMES=0/4` runs a quarter of the
/// games for 2000 steps, in whole episodes.
#[test]
fn every_game() {
    let part = std::env::var("PARL_GPU_GAMES").unwrap_or("0/1".into());
    let (first, parts) = part.split_once('/').unwrap();
    let (first, parts): (usize, usize) = (first.parse().unwrap(), parts.parse().unwrap());
    let (mut found, choices) = (0, Choice::all());
    for name in GAMES.iter().map(|row| row.name).filter(|name| rom::load(name, &[], false).is_ok()) {
        found += 1;
        if found % parts != first {
            continue;
        }
        let choice = choices[found % choices.len()];
        let mut given = Settings::default();
        given.rules.frame_limit = if steps(8) > 100 { 108_000 } else { 27 };
        given.autoreset = if found % 2 == 0 { Autoreset::NextStep } else { Autoreset::SameStep };
        let mut pair = Pair::new(&[name], 3, &given).unwrap();
        pair.gpu.choose(&[choice], 0).unwrap();
        pair.run(steps(8), name);
        if steps(8) > 100 {
            println!("{name}: {} steps of 3 environments, {} ends, {choice:?}", steps(8), pair.ended);
        }
    }
    assert!(found > 0 || rom::folders(&[]).is_empty(), "no game has a ROM in {:?}", rom::folders(&[]));
    eprintln!("{found} games, {} steps each", steps(8));
}

/// Games with frames that do not reach the last row, so that older pictures stay visible.
#[test]
fn frames_that_are_not_whole() {
    for game in ["elevator_action", "air_raid", "klax", "pitfall2"] {
        vary(game, &[game], |s| s.rules.frame_limit = 61);
    }
}
