//! `parl._native.Console`, ROM files, and the table of games.
//!
//! A call that waits for the console's lock is detached from the interpreter, and releases the lock before it
//! attaches again: no thread waits for one while it holds the other.

use std::path::PathBuf;

use cule::console::{self, Drawing, Options};
use cule::games::row::{FORCED_PAL, Game};
use cule::games::table::{GAMES, UNKNOWN};
use cule::games::two_players;
use cule::observe::WIDTH;
use cule::sound::SAMPLES;
use cule::{CuleError, env, rom};
use numpy::{PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

use crate::arrays::{new_array, typed_slice_mut};
use crate::atari_config::Patch;
use crate::errors::cule_error;
use crate::locks::Inherited;

/// Largest step of a paddle in a frame. A larger step has the same effect: the paddle reaches its end.
const MAX_PADDLE_STEP: f64 = 1e6;
const RAM_BYTES: usize = 128;

/// Runs `work` while detached from the interpreter.
fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, CuleError> + Send) -> PyResult<T> {
    py.detach(work).map_err(|error| cule_error(py, error))
}

/// The fixed properties of a game.
#[pyclass(frozen, get_all, module = "parl._native")]
pub struct GameRow {
    id: &'static str,
    title: String,
    md5: &'static str,
    cartridge: &'static str,
    players: u32,
    height: i16,
    minimal_actions: Vec<u32>,
    legal_actions: Vec<u32>,
    modes: Vec<u32>,
    two_player_modes: Vec<u32>,
    difficulties: Vec<u32>,
}

fn actions(set: u32) -> Vec<u32> {
    (0..u32::from(env::ACTIONS)).filter(|&action| set >> action & 1 != 0).collect()
}

/// The display name of a game.
fn title(row: &Game) -> String {
    if !row.title.is_empty() {
        return row.title.into();
    }
    let capitalized = |word: &str| word[..1].to_uppercase() + &word[1..];
    row.name.split('_').map(capitalized).collect::<Vec<_>>().join(" ")
}

/// The games with a known ROM, in alphabetical order.
#[pyfunction]
pub fn game_rows() -> Vec<GameRow> {
    let row = |(number, row): (usize, &Game)| GameRow {
        id: row.name,
        title: title(row),
        md5: row.md5,
        cartridge: row.cartridge,
        players: row.players,
        height: env::layout(number as u32, row.pal || row.flags & FORCED_PAL != 0).height,
        minimal_actions: actions(row.minimal),
        legal_actions: actions(row.legal),
        modes: row.modes.to_vec(),
        two_player_modes: two_players::of(number).map_or_else(Vec::new, |two| two.modes.to_vec()),
        difficulties: row.difficulties.to_vec(),
    };
    let mut rows: Vec<GameRow> = rom::known().iter().enumerate().map(row).collect();
    rows.sort_by_key(|row| row.id);
    rows
}

/// A ROM image and its metadata.
#[pyclass(frozen, module = "parl._native")]
pub struct Rom {
    rom: rom::Rom,
    path: String,
}

#[pymethods]
impl Rom {
    /// Creates a ROM from an image that was read from `path`.
    #[new]
    fn new(py: Python<'_>, image: &[u8], path: String) -> PyResult<Self> {
        let image = image.to_vec();
        let rom = detached(py, || rom::from_bytes(image))?;
        Ok(Self { rom, path })
    }

    /// Loads the ROM of a game, given by name or by path, and compares it with the known ROM of that name.
    /// `folders` are searched after those that environment variables name.
    #[staticmethod]
    fn find(py: Python<'_>, game: &str, folders: Vec<PathBuf>, allow_unknown: bool) -> PyResult<Self> {
        detached(py, || {
            let path = rom::locate(game, &folders)?.to_string_lossy().into_owned();
            Ok(Self { rom: rom::load(&path, &[], allow_unknown)?, path })
        })
    }

    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    #[getter]
    fn md5(&self) -> &str {
        &self.rom.md5
    }

    /// A ROM with bytes replaced: per byte the bank, if the cartridge has several, the address and the value.
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn patched(&self, py: Python<'_>, patches: Vec<Patch>) -> PyResult<Self> {
        detached(py, || Ok(Self { rom: rom::patched(&self.rom, &patches)?, path: self.path.clone() }))
    }

    /// Name of the game with this image's hash.
    #[getter]
    fn game(&self) -> Option<&'static str> {
        rom::known_md5(&self.rom.md5).map(|known| known.name)
    }

    #[getter]
    fn cartridge(&self) -> String {
        let written = rom::known_md5(&self.rom.md5).map(|known| known.cartridge.to_owned());
        written.unwrap_or_else(|| format!("{:?}", self.rom.scheme))
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, &str) {
        (PyBytes::new(py, &self.rom.bytes), &self.path)
    }
}

/// One Atari 2600; see `parl.atari.Console`.
#[pyclass(frozen, module = "parl._native")]
pub struct Console {
    inner: Inherited<console::Console>,
}

impl Console {
    /// Acts while detached from the interpreter.
    fn play(&self, py: Python<'_>, a: env::Action, b: env::Action) -> PyResult<i32> {
        detached(py, || Ok(self.inner.lock()?.act_two(a, b)))
    }

    /// Runs a short operation: at once if the lock is free, else after waiting for it while detached from the
    /// interpreter.
    fn with_lock<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut console::Console) -> Result<T, CuleError> + Send,
    ) -> PyResult<T> {
        match self.inner.try_lock().map_err(|error| cule_error(py, error))? {
            Some(mut console) => work(&mut console).map_err(|error| cule_error(py, error)),
            None => detached(py, || work(&mut *self.inner.lock()?)),
        }
    }

    /// Fills `out`, or a new array of `shape`, with what `work` writes.
    fn fill<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
        shape: &[usize],
        work: impl FnOnce(&mut console::Console, &mut [u8]) -> Result<(), CuleError> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(out) = out else {
            let (array, bytes) = new_array::<u8>(py, shape.iter().product())?;
            detached(py, || work(&mut *self.inner.lock()?, bytes))?;
            // `new_array` creates arrays of one dimension.
            return Ok(if shape.len() == 1 { array.into_any() } else { array.reshape(shape)?.into_any() });
        };
        let array = out.cast::<PyUntypedArray>().map_err(|_| {
            PyTypeError::new_err(format!("out is a {}, expected an array of uint8", out.get_type()))
        })?;
        if array.shape() != shape {
            return Err(PyValueError::new_err(format!(
                "out has shape {:?}, expected {shape:?}",
                array.shape()
            )));
        }
        let bytes = typed_slice_mut::<u8>(array, "out")?;
        detached(py, || work(&mut *self.inner.lock()?, bytes))?;
        Ok(out)
    }

    /// Height and width of the picture: fixed by ROM and rules.
    fn picture_shape(&self, py: Python<'_>) -> PyResult<[usize; 2]> {
        Ok([self.with_lock(py, |console| Ok(console.height()))?, WIDTH])
    }
}

/// The code of an action given by number or name. Python handles names and all errors.
fn action_code(action: &Bound<'_, PyAny>) -> PyResult<u32> {
    static ACTION_NUMBER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if !action.is_instance_of::<PyString>()
        && let Ok(code) = action.extract()
        && code < u32::from(env::ACTIONS)
    {
        return Ok(code);
    }
    let number = ACTION_NUMBER.import(action.py(), "parl.atari.actions", "action_number")?;
    number.call1((action,))?.extract()
}

/// An action with the step by which it turns a paddle: 23000 times the strength, in whole units.
fn with_strength(name: &str, code: u32, strength: f32) -> PyResult<env::Action> {
    if !strength.is_finite() {
        return Err(PyValueError::new_err(format!("{name} is {strength}, expected a finite number")));
    }
    let step = f64::from(env::PADDLE_STEP) * f64::from(strength.abs());
    Ok(env::Action { code, step: step.min(MAX_PADDLE_STEP) as i32 })
}

#[pymethods]
impl Console {
    #[new]
    #[pyo3(signature = (rom, *, rules, seed, system_seed, frame_skip, repeat_action_probability,
                        max_num_frames_per_episode, truncate_on_life_loss, sound = false))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        rom: &Bound<'_, Rom>,
        rules: Option<&str>,
        seed: u32,
        system_seed: u32,
        frame_skip: u32,
        repeat_action_probability: f32,
        max_num_frames_per_episode: u32,
        truncate_on_life_loss: bool,
        sound: bool,
    ) -> PyResult<Self> {
        let rom = &rom.get().rom;
        let options = Options {
            random_seed: seed,
            system_seed,
            repeat_action_probability,
            frame_skip,
            max_num_frames_per_episode,
            truncate_on_loss_of_life: truncate_on_life_loss,
            drawing: Drawing::Predicted,
            sound,
        };
        detached(py, || {
            let row = rules.map_or(Ok(UNKNOWN), console::game_row)?;
            Ok(Self { inner: Inherited::new(console::Console::new(rom, row, options)?) })
        })
    }

    /// Returns a copy. With a seed, the copy's random generator is seeded with it.
    #[pyo3(signature = (seed = None))]
    fn clone(&self, py: Python<'_>, seed: Option<u32>) -> PyResult<Self> {
        detached(py, || {
            let mut copy = self.inner.lock()?.clone();
            if let Some(seed) = seed {
                copy.reseed(seed);
            }
            Ok(Self { inner: Inherited::new(copy) })
        })
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.inner.lock()?.reset())
    }

    #[pyo3(signature = (action, action_b = None, *, strength = 1.0, strength_b = 1.0))]
    fn act(
        &self,
        py: Python<'_>,
        action: &Bound<'_, PyAny>,
        action_b: Option<&Bound<'_, PyAny>>,
        strength: f32,
        strength_b: f32,
    ) -> PyResult<i32> {
        let a = with_strength("strength", action_code(action)?, strength)?;
        let b = action_b.map_or(Ok(u32::from(env::NOOP)), action_code)?;
        let b = with_strength("strength_b", b, strength_b)?;
        self.play(py, a, b)
    }

    /// ALE's `act`: numbers above 17 are NOOP.
    #[pyo3(signature = (action, paddle_strength = 1.0))]
    fn act_ale(&self, py: Python<'_>, action: &Bound<'_, PyAny>, paddle_strength: f32) -> PyResult<i32> {
        let code: u32 = action.extract().map_err(|_| {
            PyTypeError::new_err(format!("action is {action}, expected an integer from 0 to {}", u32::MAX))
        })?;
        let code = if code < u32::from(env::ACTIONS) { code } else { u32::from(env::NOOP) };
        let a = with_strength("paddle_strength", code, paddle_strength)?;
        self.play(py, a, env::full_strength(u32::from(env::NOOP)))
    }

    fn set_mode(&self, py: Python<'_>, mode: u32) -> PyResult<()> {
        self.with_lock(py, |console| console.set_mode(mode))
    }

    fn set_difficulty(&self, py: Python<'_>, difficulty: u32) -> PyResult<()> {
        self.with_lock(py, |console| console.set_difficulty(difficulty))
    }

    fn write_ram(&self, py: Python<'_>, index: usize, value: u8) -> PyResult<()> {
        self.with_lock(py, |console| console.set_ram(index, value))
    }

    #[pyo3(signature = (out, /))]
    fn read_ram<'py>(&self, py: Python<'py>, out: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        self.fill(py, out, &[RAM_BYTES], |console, bytes| {
            bytes.copy_from_slice(console.ram());
            Ok(())
        })
    }

    #[pyo3(signature = (out, /))]
    fn read_screen<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.fill(py, out, &self.picture_shape(py)?, |console, bytes| {
            console.draw();
            bytes.copy_from_slice(console.screen());
            Ok(())
        })
    }

    #[pyo3(signature = (out, /))]
    fn read_screen_gray<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.fill(py, out, &self.picture_shape(py)?, |console, bytes| {
            console.draw();
            console.screen_gray(bytes)
        })
    }

    #[pyo3(signature = (out, /))]
    fn read_screen_rgb<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let [height, width] = self.picture_shape(py)?;
        self.fill(py, out, &[height, width, 3], |console, bytes| {
            console.draw();
            console.screen_rgb(bytes)
        })
    }

    /// The samples of the last act, (512,).
    #[pyo3(signature = (out, /))]
    fn read_audio<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.fill(py, out, &[SAMPLES], |console, bytes| {
            bytes.copy_from_slice(console.audio().ok_or(CuleError::NoSound)?);
            Ok(())
        })
    }

    /// Draws every frame when it runs, instead of only those that are likely to be read. Nothing else
    /// changes.
    fn draw_every_frame(&self, py: Python<'_>) -> PyResult<()> {
        self.with_lock(py, |console| {
            console.set_drawing(true);
            Ok(())
        })
    }

    /// The state as bytes. Without `held`, the actions that sticky actions may repeat are left out, as in
    /// ALE's states.
    #[pyo3(signature = (generator, held=true))]
    fn save<'py>(&self, py: Python<'py>, generator: bool, held: bool) -> PyResult<Bound<'py, PyBytes>> {
        let state = self.with_lock(py, |console| {
            let actions = console.held();
            if !held {
                console.set_held([env::Action { code: 0, step: 0 }; 2]);
            }
            let state = console.save(generator);
            console.set_held(actions);
            Ok(state)
        })?;
        Ok(PyBytes::new(py, &state))
    }

    /// Loads a saved state. With `keep_repeated_action`, the console keeps its own actions that sticky
    /// actions may repeat.
    fn load(&self, py: Python<'_>, state: &[u8], keep_repeated_action: bool) -> PyResult<()> {
        let load = |console: &mut console::Console| {
            let held = console.held();
            console.load(state)?;
            if keep_repeated_action {
                console.set_held(held);
            }
            Ok(())
        };
        self.with_lock(py, load)
    }

    #[getter]
    fn players(&self, py: Python<'_>) -> PyResult<u32> {
        self.with_lock(py, |console| Ok(GAMES[console.game()].players))
    }

    #[getter]
    fn minimal_actions(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.with_lock(py, |console| Ok(actions(GAMES[console.game()].minimal)))
    }

    #[getter]
    fn legal_actions(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.with_lock(py, |console| Ok(actions(GAMES[console.game()].legal)))
    }

    #[getter]
    fn modes(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.with_lock(py, |console| Ok(console.modes().to_vec()))
    }

    #[getter]
    fn difficulties(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.with_lock(py, |console| Ok(console.difficulties().to_vec()))
    }

    #[getter]
    fn mode(&self, py: Python<'_>) -> PyResult<u32> {
        self.with_lock(py, |console| Ok(console.mode()))
    }

    #[getter]
    fn difficulty(&self, py: Python<'_>) -> PyResult<u32> {
        self.with_lock(py, |console| Ok(console.difficulty()))
    }

    #[getter]
    fn pal(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_lock(py, |console| Ok(console.is_pal()))
    }

    #[getter]
    fn screen_height(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_lock(py, |console| Ok(console.height()))
    }

    #[getter]
    fn lives(&self, py: Python<'_>) -> PyResult<i32> {
        self.with_lock(py, |console| Ok(console.lives()))
    }

    #[getter]
    fn terminated(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_lock(py, |console| Ok(console.game_over()))
    }

    #[getter]
    fn truncated(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_lock(py, |console| Ok(console.truncated()))
    }

    #[getter]
    fn game_over(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_lock(py, |console| Ok(console.game_over() || console.truncated()))
    }

    #[getter]
    fn frame_number(&self, py: Python<'_>) -> PyResult<i32> {
        self.with_lock(py, |console| Ok(console.frame_number()))
    }

    #[getter]
    fn episode_frame_number(&self, py: Python<'_>) -> PyResult<i32> {
        self.with_lock(py, |console| Ok(console.episode_frame_number()))
    }
}
