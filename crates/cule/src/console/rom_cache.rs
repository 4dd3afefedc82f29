//! Data that depends on a ROM alone, kept for further consoles with it: its records, and the states of booted
//! consoles.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::Console;
use super::states::fingerprint;
use super::undrawn::UndrawnFrames;
use crate::env::State;
use crate::fast_cpu::{Code, Settings};
use crate::random::Random;
use crate::rom::{self, Rom, Scheme};
use crate::sound::Sound;

/// Number of ROMs that are kept, about 100 KB each. The least recently used one is dropped. All known games
/// fit.
const MOST_ROMS: usize = 128;
/// Number of boots kept per ROM: combinations of game, system seed and sound.
const MOST_BOOTS: usize = 8;

static ROMS: Mutex<Vec<Arc<CachedRom>>> = Mutex::new(vec![]);

/// A ROM and the data computed from it.
pub(super) struct CachedRom {
    /// Content of the file.
    bytes: Vec<u8>,
    pub scheme: Scheme,
    /// The records of consoles without sound.
    pub code: Code,
    /// The records of consoles with sound; created on first use.
    sound_code: OnceLock<Code>,
    pub fingerprint: u32,
    boots: Mutex<Vec<Arc<CachedBoot>>>,
}

/// A booted console, without its options and the environment's generator.
pub(super) struct CachedBoot {
    game: usize,
    system_seed: u32,
    state: State,
    core_random: Random,
    core_draws: u32,
    undrawn: UndrawnFrames,
    /// The sound with its registers, if the console makes any.
    sound: Option<Box<Sound>>,
    /// The boot includes loading and the first reset, and not only the detection of the television.
    pub complete: bool,
}

impl CachedBoot {
    pub fn of_console(console: &Console, complete: bool) -> Self {
        Self {
            game: console.game(),
            system_seed: console.options.system_seed,
            state: console.state,
            core_random: console.core_random,
            core_draws: console.core_draws,
            undrawn: console.undrawn.clone(),
            sound: console.copy_sound(),
            complete,
        }
    }

    pub fn restore(&self, console: &mut Console) {
        let frame_limit = console.state.env.frame_limit; // An option, which differs between consoles.
        console.state = self.state;
        console.state.env.frame_limit = frame_limit;
        console.core_random = self.core_random;
        console.core_draws = self.core_draws;
        console.undrawn.clone_from(&self.undrawn);
        console.sound.clone_from(&self.sound);
        console.board.sound = self.sound.as_ref().map_or([0; 8], |sound| sound.registers);
    }

    /// True if consoles with these settings start from this boot.
    fn is_for(&self, game: usize, system_seed: u32, sound: bool) -> bool {
        (self.game, self.system_seed, self.sound.is_some()) == (game, system_seed, sound)
    }
}

impl CachedRom {
    /// The records, for consoles with or without sound.
    pub fn code(&self, sound: bool) -> Code {
        if !sound {
            return self.code.clone();
        }
        let new = || {
            let image = &self.code.image()[..self.code.rom_bytes() as usize];
            Code::with(image, self.scheme as u8, Settings { sound: true, ..Settings::default() })
        };
        self.sound_code.get_or_init(new).clone()
    }

    /// The last kept boot of a game with this system seed, with or without sound.
    pub fn boot(&self, game: usize, system_seed: u32, sound: bool) -> Option<Arc<CachedBoot>> {
        let boots = self.boots.lock().unwrap_or_else(PoisonError::into_inner);
        boots.iter().rev().find(|boot| boot.is_for(game, system_seed, sound)).cloned()
    }

    pub fn add_boot(&self, boot: CachedBoot) {
        let mut boots = self.boots.lock().unwrap_or_else(PoisonError::into_inner);
        boots.retain(|old| !old.is_for(boot.game, boot.system_seed, boot.sound.is_some()));
        if boots.len() == MOST_BOOTS {
            boots.remove(0);
        }
        boots.push(Arc::new(boot));
    }
}

/// Returns the data of a ROM, computed if it is not kept.
pub(super) fn get(rom: &Rom) -> Arc<CachedRom> {
    let lock = || ROMS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = |roms: &mut Vec<Arc<CachedRom>>| {
        let at = roms.iter().position(|known| known.scheme == rom.scheme && known.bytes == rom.bytes)?;
        // The list is ordered by last use.
        let found = roms.remove(at);
        roms.push(found.clone());
        Some(found)
    };
    if let Some(found) = known(&mut lock()) {
        return found;
    }
    let code = Code::new(&rom::image(rom), rom.scheme as u8);
    let cached = Arc::new(CachedRom {
        bytes: rom.bytes.clone(),
        scheme: rom.scheme,
        fingerprint: fingerprint(code.image()),
        code,
        sound_code: OnceLock::new(),
        boots: Mutex::new(vec![]),
    });
    let mut roms = lock();
    if let Some(found) = known(&mut roms) {
        return found;
    }
    if roms.len() == MOST_ROMS {
        roms.remove(0);
    }
    roms.push(cached.clone());
    cached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::{Drawing, Options, game_row};
    use crate::games::table::UNKNOWN;
    use crate::test_roms;

    fn uncached(rom: &Rom) -> CachedRom {
        let code = Code::new(&rom::image(rom), rom.scheme as u8);
        let (boots, sound_code) = (Mutex::new(vec![]), OnceLock::new());
        let fingerprint = fingerprint(code.image());
        CachedRom { bytes: vec![], scheme: rom.scheme, fingerprint, code, sound_code, boots }
    }

    /// Settings that could affect a boot that plays frames: sticky actions, another seed, several frames per
    /// act.
    const STICKY: Options = Options {
        random_seed: 9,
        system_seed: 5,
        repeat_action_probability: 0.25,
        frame_skip: 3,
        max_num_frames_per_episode: 20_000,
        truncate_on_loss_of_life: true,
        drawing: Drawing::EveryFrame,
        sound: true,
    };

    #[test]
    fn a_kept_boot_equals_a_new_one() {
        if !test_roms::are_there(&rom::folders(&[])) {
            return;
        }
        // Games with an ordinary boot, and games whose boot plays, waits, selects a mode or is PAL.
        let games = "adventure air_raid berzerk double_dunk elevator_action gopher pong seaquest video_cube";
        for name in games.split(' ') {
            let rom = rom::load(name, &[], false).unwrap();
            let game = game_row(name).unwrap();
            let used = uncached(&rom);
            let first = Options { random_seed: 1, system_seed: 5, sound: true, ..Options::default() };
            Console::booted(&used, game, first).unwrap();
            assert!(used.boot(game, 5, true).is_some());
            assert!(used.boot(game, 5, false).is_none() && used.boot(game, 6, true).is_none());
            let mut again = Console::booted(&used, game, STICKY).unwrap();
            let mut new = Console::booted(&uncached(&rom), game, STICKY).unwrap();
            for act in 0..20 {
                assert_eq!(again.state, new.state, "{name}, act {act}");
                assert_eq!(again.env_random, new.env_random, "{name}, act {act}");
                assert!(again.board.picture == new.board.picture, "{name}, act {act}");
                assert_eq!(again.copy_sound(), new.copy_sound(), "{name}, act {act}");
                assert_eq!(again.act(act % 18), new.act(act % 18));
                if act == 10 {
                    again.reset().unwrap();
                    new.reset().unwrap();
                }
            }
        }
    }

    #[test]
    fn a_frame_limit_that_ends_a_boot_does_not_affect_other_consoles() {
        if !test_roms::are_there(&rom::folders(&[])) {
            return;
        }
        let rom = rom::load("double_dunk", &[], false).unwrap();
        let (game, cached) = (game_row("double_dunk").unwrap(), uncached(&rom));
        let limited = Options { max_num_frames_per_episode: 5, ..Options::default() };
        for _ in 0..2 {
            assert!(Console::booted(&cached, game, limited).is_err());
            assert!(Console::booted(&cached, game, Options::default()).is_ok());
        }
    }

    #[test]
    fn the_oldest_goes_first() {
        let rom = rom::from_bytes(vec![2; 4096]).unwrap();
        let cached = uncached(&rom);
        for seed in 0..2 * MOST_BOOTS as u32 {
            let options = Options { system_seed: seed, ..Options::default() };
            Console::booted(&cached, UNKNOWN, options).unwrap();
        }
        let kept = |seed| cached.boot(UNKNOWN, seed, false).is_some();
        assert!(!kept(MOST_BOOTS as u32 - 1) && kept(MOST_BOOTS as u32));
        assert!(Arc::ptr_eq(&get(&rom), &get(&rom)));
    }
}
