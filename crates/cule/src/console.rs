//! One console for a program to play: loading, resets, mode selection, frames, pictures, saved states. Host only.

use bytemuck::Zeroable;

use crate::CuleError;
use crate::env::{self, Action, NOOP, PADDLE_MIN, RESET, State, full};
use crate::games::{self, names, rows, select};
use crate::machine::input::{SWITCH_RESET, SWITCH_SELECT};
use crate::machine::{self, Board, Machine, cart, tia};
use crate::observe::palette;
use crate::random::{self, Random};
use crate::rom::{self, Rom, Scheme};
use crate::threaded::{self, Code};

/// Seed of the core generator: power-on RAM, timer at reset, cartridge RAM.
pub const SYSTEM_SEED: u32 = 4_753_849;

const BOOT_FRAMES: u32 = 60;
const RESET_FRAMES: u32 = 4;
/// Frames after which a mode selection is given up, some seconds. The longest one of a known game takes 2,500.
const SELECTION_FRAMES: u32 = 50_000;
/// Mean frames of a try of Adventure's.
const ADVENTURE_FRAMES: u32 = 130;
/// Lines above which a frame of the first 60 counts as PAL.
const LONG_LINES: i32 = 285;
/// Steps that a buffer may be behind before it is drawn: frames can be short for long.
const UNDRAWN_STEPS: usize = 256;
/// Begins every saved state.
const MAGIC: [u8; 8] = *b"parl2600";
/// Version of the layout of saved states.
const STATE_VERSION: u32 = 1;

/// How a console behaves; read when it is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Seed of the environment's generator (sticky actions, two of Adventure's modes).
    pub random_seed: u32,
    /// Seed of the core generator.
    pub system_seed: u32,
    /// Probability that a frame keeps the action before.
    pub repeat_action_probability: f32,
    /// Frames per act, at least 1.
    pub frame_skip: u32,
    /// Frames after which an episode is cut, 0 = never.
    pub max_num_frames_per_episode: u32,
    /// Cut the episode when fewer lives are left than after loading.
    pub truncate_on_loss_of_life: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            random_seed: 0,
            system_seed: SYSTEM_SEED,
            repeat_action_probability: 0.0,
            frame_skip: 1,
            max_num_frames_per_episode: 0,
            truncate_on_loss_of_life: false,
        }
    }
}

/// A loaded ROM with everything it needs.
#[derive(Clone)]
pub struct Console {
    // A batch lends one console to many environments, for the time of a reset or a step.
    pub(crate) state: State,
    pub(crate) board: Box<Board>,
    pub(crate) code: Code,
    pub(crate) options: Options,
    /// Follows `Machine::draws`, when somebody draws.
    core_random: Random,
    core_draws: u32,
    pub(crate) env_random: Random,
    /// Pixels are made for every frame.
    drawing: bool,
    /// For each picture buffer, where the frames began that it should show and does not.
    undrawn: [Vec<Undrawn>; 2],
}

/// A step whose pixels were not made.
#[derive(Clone, Copy)]
struct Undrawn {
    start: Machine,
    /// Clocks of the window that its beam has passed.
    reach: i32,
    /// It may have drawn beyond its reach, or stands for a part of a frame.
    open: bool,
}

/// What of the ROM a saved state must fit.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, Zeroable)]
struct Header {
    magic: [u8; 8],
    version: u32,
    image: u32,
    large_ram: u32,
    has_generator: u32,
}

/// A number that tells images apart (FNV-1a).
fn fingerprint(image: &[u8]) -> u32 {
    image.iter().fold(0x811C_9DC5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The row of a game.
///
/// # Errors
/// [`CuleError::GameUnknown`].
pub fn game_row(game: &str) -> Result<usize, CuleError> {
    let last = names::NAMES[rows::UNKNOWN - 1];
    names::NAMES[..rows::UNKNOWN].iter().position(|&name| name == game).ok_or_else(|| {
        CuleError::GameUnknown { game: game.into(), count: rows::UNKNOWN, first: names::NAMES[0], last }
    })
}

impl Console {
    /// Plugs in a ROM under the rules of a game: power-on, format detection, first reset.
    ///
    /// `game` is a row of the table of games; `rows::UNKNOWN` has no rules.
    ///
    /// # Errors
    /// An option out of range, or a mode that the ROM never shows (it is not the game's).
    pub fn new(rom: &Rom, game: usize, options: Options) -> Result<Self, CuleError> {
        check(&options)?;
        if game >= rows::ROW_COUNT {
            return Err(CuleError::Setting {
                name: "game",
                value: game.to_string(),
                bound: "a row of the games",
            });
        }
        let code = Code::new(&rom::image(rom), rom.scheme as u8);
        Self::with_code(code, rom.scheme, game, options)
    }

    /// [`Console::new`] with a ROM that has been prepared before; many consoles can share it.
    ///
    /// # Errors
    /// As [`Console::new`].
    pub fn with_code(code: Code, scheme: Scheme, game: usize, options: Options) -> Result<Self, CuleError> {
        check(&options)?;
        if game >= rows::ROW_COUNT {
            return Err(CuleError::Setting {
                name: "game",
                value: game.to_string(),
                bound: "a row of the games",
            });
        }
        let mut core_random = random::seeded(options.system_seed);
        let mut ram = [0; 128];
        for byte in &mut ram {
            *byte = random::draw(&mut core_random) as u8;
        }
        random::draw(&mut core_random);
        let row = &rows::ROWS[game];
        let forced_pal = row.flags & rows::FORCED_PAL != 0;
        let mut layout = env::layout(game as u32, false);
        let mut state: State = Zeroable::zeroed();
        if forced_pal {
            layout = env::layout(game as u32, true);
        }
        state.machine = machine::new(scheme as u8, code.rom_bytes(), &ram, layout);
        state.machine.draws = 129;
        state.machine.input = env::first_inputs(game as u32);
        state.rules = games::new(row.default_mode);
        state.env = env::new(game as u32);
        state.env.frame_limit = options.max_num_frames_per_episode as i32;
        let mut console = Self {
            state,
            board: bytemuck::zeroed_box(),
            code,
            options,
            core_random,
            core_draws: 129,
            env_random: random::seeded(options.random_seed),
            drawing: true,
            undrawn: [vec![], vec![]],
        };
        if !forced_pal {
            console.reset_console();
            if console.detect_pal() {
                console.state.machine.tia.layout = env::layout(game as u32, true);
            }
        }
        console.reset_console();
        console.reset()?;
        if options.truncate_on_loss_of_life {
            console.state.env.life_limit = console.lives();
        }
        Ok(console)
    }

    // ------------------------------------------------------------ frames

    /// One STEP of the machine, nothing evaluated.
    ///
    /// A frame that does not reach its last row leaves older ones of its buffer in sight. When such frames were not
    /// drawn, they are run again, and then the step.
    fn step(&mut self) {
        let m = &mut self.state.machine;
        // Large cartridge RAM is not part of the machine: such a step cannot be run again.
        let drawing = self.drawing || cart::large_ram_bytes(&m.cart) != 0;
        m.draw = u8::from(drawing);
        let start = *m;
        threaded::step(m, &mut self.board, &self.code);
        let whole = start.unfinished == 0 && is_whole(m);
        let buffer = usize::from(m.tia.buffer & 1);
        let reach = reach(m);
        if start.unfinished == 0 && m.unfinished == 0 {
            // What this frame covers need not be drawn before it. An open one says nothing: its beam lags.
            self.undrawn[buffer].retain(|older| !whole && (older.reach > reach || older.open));
        }
        // A frame that ends in the picture, or under a blank that waits, leaves pixels ahead of its beam.
        let ragged = reach % tia::CLOCKS_PER_LINE != tia::HBLANK_CLOCKS || m.tia.blank_pending != 0;
        let open = ragged || start.unfinished != 0 || m.unfinished != 0;
        let step = Undrawn { start, reach, open };
        if !drawing {
            self.undrawn[buffer].push(step);
            if self.undrawn[buffer].len() > UNDRAWN_STEPS {
                self.draw_buffer(buffer);
            }
        } else if !self.undrawn[buffer].is_empty() {
            self.undrawn[buffer].push(step);
            self.draw_buffer(buffer);
        }
    }

    /// Runs again, with pixels, what a picture buffer does not show yet.
    fn draw_buffer(&mut self, buffer: usize) {
        for step in std::mem::take(&mut self.undrawn[buffer]) {
            let mut m = step.start;
            m.draw = 1;
            threaded::step(&mut m, &mut self.board, &self.code);
        }
    }

    /// Makes the picture of the last frame, if it was not made yet.
    pub fn draw(&mut self) {
        self.draw_buffer(usize::from(self.state.machine.tia.buffer & 1));
    }

    /// `count` frames with an action and console switches, rules evaluated.
    fn emulate(&mut self, action: u8, count: u32, switches: u8) {
        for _ in 0..count {
            env::set_inputs(&mut self.state, full(u32::from(action)), full(u32::from(NOOP)), switches);
            self.step();
            env::evaluate(&mut self.state);
        }
        env::look(&mut self.state);
    }

    fn soft_reset(&mut self) {
        self.emulate(NOOP, RESET_FRAMES, SWITCH_RESET);
        self.state.env.held = [0, 0];
        self.state.env.held_step = [env::PADDLE_STEP; 2];
    }

    /// Holds SELECT for `count` frames without looking at the rules, then one frame with it released.
    fn press_select(&mut self, count: u32) {
        for _ in 0..count {
            env::set_inputs(&mut self.state, full(u32::from(NOOP)), full(u32::from(NOOP)), SWITCH_SELECT);
            self.step();
        }
        self.emulate(NOOP, 1, 0);
        self.state.env.frame_number += 1;
        self.state.env.episode_frame_number += 1;
    }

    fn core_draw(&mut self) -> u32 {
        if self.core_draws != self.state.machine.draws {
            self.core_random = random::seeded(self.options.system_seed);
            for _ in 0..self.state.machine.draws {
                random::draw(&mut self.core_random);
            }
            self.core_draws = self.state.machine.draws;
        }
        self.core_draws = self.core_draws.wrapping_add(1);
        self.state.machine.draws = self.core_draws;
        random::draw(&mut self.core_random)
    }

    fn reset_console(&mut self) {
        let timer_draw = self.core_draw();
        for i in 0..cart::reset_draws(&self.state.machine.cart) {
            let byte = self.core_draw() as u8;
            cart::fill(&mut self.state.machine.cart, &mut self.board, i, byte);
        }
        self.undrawn = [vec![], vec![]];
        machine::reset(&mut self.state.machine, &mut self.board, self.code.image(), timer_draw);
    }

    /// True when most of 60 idle frames are longer than NTSC frames.
    fn detect_pal(&mut self) -> bool {
        let mut long_frames = 0;
        for i in 0..BOOT_FRAMES {
            self.step();
            if i >= 30 && machine::lines(&self.state.machine) > LONG_LINES {
                long_frames += 1;
            }
        }
        long_frames >= 15
    }

    /// Plays `frame_skip` frames with an action of player A; the sum of their rewards.
    ///
    /// Codes that the game does not know do nothing. Once the episode has ended no frame runs and the reward is 0.
    pub fn act(&mut self, action: u8) -> i32 {
        self.act_two(full(u32::from(action)), full(u32::from(NOOP)))
    }

    /// [`Console::act`] for two players, with paddle movements of their own.
    pub fn act_two(&mut self, a: Action, b: Action) -> i32 {
        let keep = f64::from(self.options.repeat_action_probability);
        let mut total = 0i32;
        for _ in 0..self.options.frame_skip {
            env::hold(&mut self.state, &mut self.env_random, keep, a, b);
            if !env::ended(&self.state) {
                env::set_held_inputs(&mut self.state);
                self.step();
                env::evaluate(&mut self.state);
                total = total.wrapping_add(env::count_frame(&mut self.state));
            }
        }
        total
    }

    // ------------------------------------------------------------ resets

    /// Starts an episode: boot, RESET switch, mode selection, starting actions.
    ///
    /// # Errors
    /// The mode is never shown: the ROM is not the game's.
    pub fn reset(&mut self) -> Result<(), CuleError> {
        let game = self.game();
        self.state.env.episode_frame_number = 0;
        self.state.env.paddle = [(PADDLE_MIN + self.state.env.paddle_max) / 2; 2];
        self.reset_console();
        self.emulate(NOOP, BOOT_FRAMES, 0);
        self.soft_reset();
        games::evaluate::start_values(&mut self.state.rules, game);
        self.state.rules.over = 0;
        self.select_mode()?;
        self.soft_reset();
        let mut i = 0;
        while select::start_action(game, i) != select::NO_ACTION {
            self.emulate(select::start_action(game, i), 1, 0);
            i += 1;
        }
        Ok(())
    }

    fn peek(&self, address: i32) -> i32 {
        games::byte(&self.state.machine.riot.ram, address)
    }

    /// Repeats `press`, which takes about so many frames, until `reached`.
    fn until(
        &mut self,
        frames: u32,
        mut reached: impl FnMut(&Self) -> bool,
        mut press: impl FnMut(&mut Self),
    ) -> Result<bool, CuleError> {
        let mut pressed = false;
        let mut left = SELECTION_FRAMES / frames;
        while !reached(self) {
            if left == 0 {
                return Err(CuleError::ModeSelection {
                    game: names::NAMES[self.game()],
                    mode: self.state.rules.mode,
                    frames: SELECTION_FRAMES,
                });
            }
            left -= 1;
            press(self);
            pressed = true;
        }
        Ok(pressed)
    }

    fn mode_reached(&self) -> bool {
        let m = &self.state.machine;
        select::reached(self.game(), self.state.rules.mode as i32, &m.riot.ram, &m.cart.ram)
    }

    fn select_mode(&mut self) -> Result<(), CuleError> {
        let game = self.game();
        match game {
            rows::ADVENTURE => return self.select_adventure(),
            rows::DOUBLE_DUNK => return self.select_double_dunk(),
            rows::GOPHER => self.soft_reset(),
            rows::BERZERK => {
                for _ in 0..20 {
                    self.act(NOOP);
                }
            }
            _ => {}
        }
        let frames = select::press_frames(game);
        if frames == select::NO_SELECTION {
            return Ok(());
        }
        let first = select::first_press(game);
        if first > 0 {
            self.press_select(first);
        }
        let pressed = self.until(frames + 1, Self::mode_reached, |console| console.press_select(frames))?;
        select::on_reached(&mut self.state.rules, game, pressed, &self.state.machine.riot.ram);
        self.soft_reset();
        if game == rows::VIDEO_CUBE {
            let mode = self.state.rules.mode as i32;
            let cube = if mode >= 100 { mode / 100 } else { 1 };
            self.until(
                self.options.frame_skip,
                |console| games::digits(console.peek(0x9F) as u8) == cube,
                |console| {
                    console.act(3);
                },
            )?;
        }
        Ok(())
    }

    /// Adventure: presses of random length.
    fn select_adventure(&mut self) -> Result<(), CuleError> {
        let mode = self.state.rules.mode as i32;
        self.until(
            ADVENTURE_FRAMES,
            |console| (console.peek(0xDD) >> 1) & 3 == mode,
            |console| {
                let frames = 2 + random::draw(&mut console.env_random) % 256;
                console.press_select(frames);
                console.act(NOOP);
            },
        )?;
        self.soft_reset();
        Ok(())
    }

    /// Double Dunk: a menu walked with the stick.
    fn select_double_dunk(&mut self) -> Result<(), CuleError> {
        const MENU: [(i32, u32); 4] = [(0x08, 1), (0x10, 2), (0x04, 4), (0x20, 8)];
        self.press_select(1);
        self.double_dunk_down()?;
        for (shown, wanted) in MENU {
            self.double_dunk_down()?;
            let on = self.state.rules.mode & wanted != 0;
            self.until(
                2 * self.options.frame_skip,
                |console| (console.peek(0x80) & shown != 0) == on,
                |console| {
                    console.act(if on { 3 } else { 4 });
                    console.act(NOOP);
                },
            )?;
        }
        self.soft_reset();
        self.act(10);
        self.act(NOOP);
        Ok(())
    }

    fn double_dunk_down(&mut self) -> Result<(), CuleError> {
        let line = self.peek(0xB0);
        self.until(
            2 * self.options.frame_skip,
            |console| console.peek(0xB0) != line,
            |console| {
                console.act(5);
                console.act(NOOP);
            },
        )?;
        Ok(())
    }

    // ------------------------------------------------------------ what there is to see

    /// Row of the game.
    pub fn game(&self) -> usize {
        self.state.env.game as usize
    }

    /// Name of the game.
    pub fn game_name(&self) -> &'static str {
        names::NAMES[self.game()]
    }

    /// State of machine, rules and environment.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The 128 bytes of console RAM.
    pub fn ram(&self) -> &[u8; 128] {
        &self.state.machine.riot.ram
    }

    /// Writes a byte of console RAM.
    ///
    /// # Errors
    /// [`CuleError::RamIndex`].
    pub fn set_ram(&mut self, index: usize, value: u8) -> Result<(), CuleError> {
        *self.state.machine.riot.ram.get_mut(index).ok_or(CuleError::RamIndex { index })? = value;
        Ok(())
    }

    /// Lives left, as the game's rule reports them.
    pub fn lives(&self) -> i32 {
        env::lives(&self.state)
    }

    /// The game has ended.
    pub fn game_over(&self) -> bool {
        self.state.rules.over != 0
    }

    /// The episode was cut.
    pub fn truncated(&self) -> bool {
        env::truncated(&self.state)
    }

    /// Frames since loading.
    pub fn frame_number(&self) -> i32 {
        self.state.env.frame_number
    }

    /// Frames since the last reset.
    pub fn episode_frame_number(&self) -> i32 {
        self.state.env.episode_frame_number
    }

    /// Actions that do something, ascending.
    pub fn minimal_actions(&self) -> Vec<u8> {
        actions(rows::ROWS[self.game()].minimal)
    }

    /// Actions that the game knows, ascending.
    pub fn legal_actions(&self) -> Vec<u8> {
        actions(rows::ROWS[self.game()].legal)
    }

    /// Modes of the game, ascending.
    pub fn modes(&self) -> &'static [u32] {
        names::MODES[self.game()]
    }

    /// Difficulties of the game, ascending.
    pub fn difficulties(&self) -> &'static [u32] {
        names::DIFFICULTIES[self.game()]
    }

    /// The players' actions that go on while they stick, and how far they turn a paddle.
    pub fn held(&self) -> [Action; 2] {
        let env = &self.state.env;
        [0, 1].map(|player| Action { code: env.held[player], step: env.held_step[player] })
    }

    /// Replaces what [`Console::held`] says. The reference keeps it out of saved states, so that a restored console
    /// goes on with the action it had before.
    pub fn set_held(&mut self, actions: [Action; 2]) {
        self.state.env.held = actions.map(|action| action.code);
        self.state.env.held_step = actions.map(|action| action.step);
    }

    /// The mode of the following resets.
    pub fn mode(&self) -> u32 {
        self.state.rules.mode
    }

    /// The difficulty in effect.
    pub fn difficulty(&self) -> u32 {
        self.state.env.difficulty
    }

    /// Chooses the mode of the following resets.
    ///
    /// # Errors
    /// [`CuleError::Mode`].
    pub fn set_mode(&mut self, mode: u32) -> Result<(), CuleError> {
        if !self.modes().contains(&mode) {
            let available = self.modes().to_vec();
            return Err(CuleError::Mode { game: self.game_name(), mode, available });
        }
        self.state.rules.mode = mode;
        Ok(())
    }

    /// Sets the difficulty switches from the next frame on.
    ///
    /// # Errors
    /// [`CuleError::Difficulty`].
    pub fn set_difficulty(&mut self, difficulty: u32) -> Result<(), CuleError> {
        if !self.difficulties().contains(&difficulty) {
            let available = self.difficulties().to_vec();
            return Err(CuleError::Difficulty { game: self.game_name(), difficulty, available });
        }
        self.state.env.difficulty = difficulty;
        Ok(())
    }

    /// True for a PAL television.
    pub fn is_pal(&self) -> bool {
        self.state.machine.tia.layout.pal != 0
    }

    /// Rows of the picture; a row has 160 pixels.
    pub fn height(&self) -> usize {
        (self.state.machine.tia.layout.height as usize).max(200)
    }

    /// Whether pixels are made. RAM, rewards and all else do not depend on it.
    pub fn set_drawing(&mut self, drawing: bool) {
        self.drawing = drawing;
    }

    /// Palette indices of the picture, row by row, `height() * 160` bytes.
    pub fn screen(&self) -> &[u8] {
        &self.board.picture[self.state.machine.tia.buffer as usize][..self.height() * tia::WIDTH]
    }

    /// Brightness of the picture, one byte per pixel.
    ///
    /// # Errors
    /// [`CuleError::BufferLength`].
    pub fn screen_gray(&self, out: &mut [u8]) -> Result<(), CuleError> {
        let screen = self.screen();
        has_length("the gray picture", out, screen.len())?;
        let gray = &palette::GRAY[self.is_pal() as usize];
        // Most runs of eight pixels have one colour.
        for (pixels, indices) in out.chunks_exact_mut(8).zip(screen.chunks_exact(8)) {
            let together: u64 = bytemuck::pod_read_unaligned(indices);
            if together == u64::from(indices[0]) * 0x0101_0101_0101_0101 {
                pixels.fill(gray[usize::from(indices[0])]);
            } else {
                for (pixel, &index) in pixels.iter_mut().zip(indices) {
                    *pixel = gray[usize::from(index)];
                }
            }
        }
        Ok(())
    }

    /// Red, green and blue of the picture, three bytes per pixel.
    ///
    /// # Errors
    /// [`CuleError::BufferLength`].
    pub fn screen_rgb(&self, out: &mut [u8]) -> Result<(), CuleError> {
        let screen = self.screen();
        has_length("the RGB picture", out, 3 * screen.len())?;
        let rgb = &palette::RGB[self.is_pal() as usize];
        for (pixel, &index) in out.chunks_exact_mut(3).zip(screen) {
            let color = rgb[usize::from(index)].to_be_bytes();
            pixel.copy_from_slice(&color[1..]);
        }
        Ok(())
    }

    // ------------------------------------------------------------ saved states

    /// The state as bytes. `generator` adds the environment's generator, so that sticky actions repeat too.
    pub fn save(&self, generator: bool) -> Vec<u8> {
        let large_ram = cart::large_ram_bytes(&self.state.machine.cart) as usize;
        let header = self.header(generator);
        // Which buffer shows the picture belongs to the pictures, which no state holds.
        let mut state = self.state;
        state.machine.tia.buffer = 0;
        let mut bytes = Vec::with_capacity(size_of::<Header>() + size_of::<State>() + large_ram);
        bytes.extend_from_slice(bytemuck::bytes_of(&header));
        bytes.extend_from_slice(bytemuck::bytes_of(&state));
        bytes.extend_from_slice(&self.board.ram[..large_ram]);
        if generator {
            bytes.extend_from_slice(bytemuck::bytes_of(&self.env_random));
        }
        bytes
    }

    fn header(&self, generator: bool) -> Header {
        Header {
            magic: MAGIC,
            version: STATE_VERSION,
            image: fingerprint(self.code.image()),
            large_ram: cart::large_ram_bytes(&self.state.machine.cart),
            has_generator: u32::from(generator),
        }
    }

    /// Goes back to a saved state of the same ROM. The picture stays until the next frame; options stay as they are.
    ///
    /// # Errors
    /// [`CuleError::State`]: another ROM, another version, or damaged bytes.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), CuleError> {
        let bad = |reason: String| CuleError::State { reason };
        let (head, rest) = bytes
            .split_at_checked(size_of::<Header>())
            .ok_or_else(|| bad(format!("{} bytes are less than a header", bytes.len())))?;
        let header: Header = bytemuck::pod_read_unaligned(head);
        let expected = self.header(header.has_generator == 1);
        if header != expected {
            return Err(bad(format!("its header is {header:?}, expected {expected:?}")));
        }
        let large_ram = header.large_ram as usize;
        let generator = if header.has_generator == 1 { size_of::<Random>() } else { 0 };
        let length = size_of::<State>() + large_ram + generator;
        if rest.len() != length {
            return Err(bad(format!("{} bytes follow the header, expected {length}", rest.len())));
        }
        let (state, rest) = rest.split_at(size_of::<State>());
        let (ram, random) = rest.split_at(large_ram);
        let mut state: State = bytemuck::pod_read_unaligned(state);
        machine::check(&state.machine, &self.state.machine).map_err(bad)?;
        if state.env.game != self.state.env.game {
            return Err(bad(format!("game {}, expected {}", state.env.game, self.state.env.game)));
        }
        if !self.modes().contains(&state.rules.mode) {
            return Err(bad(format!("mode {}, expected one of {:?}", state.rules.mode, self.modes())));
        }
        if generator != 0 {
            let random: Random = bytemuck::pod_read_unaligned(random);
            if random.position as usize > random::STATE_WORDS {
                return Err(bad(format!("generator position {}", random.position)));
            }
            self.env_random = random;
        }
        state.machine.tia.buffer = self.state.machine.tia.buffer;
        state.env.frame_limit = self.state.env.frame_limit;
        state.env.life_limit = self.state.env.life_limit;
        self.undrawn = [vec![], vec![]];
        self.state = state;
        self.board.ram[..large_ram].copy_from_slice(ram);
        Ok(())
    }
}

/// Clocks of the window that the beam has passed, counted to the last pixel.
fn reach(m: &Machine) -> i32 {
    let clock = tia::clock_of(m.cpu.cycles).clamp(m.tia.base, m.tia.window_end) - m.tia.base;
    let (row, h) = (clock / tia::CLOCKS_PER_LINE, clock % tia::CLOCKS_PER_LINE);
    row * tia::CLOCKS_PER_LINE + h.max(tia::HBLANK_CLOCKS)
}

/// True when the beam came to the end of the window before the frame ended.
fn is_whole(m: &Machine) -> bool {
    m.unfinished == 0 && tia::clock_of(m.cpu.cycles) >= m.tia.window_end
}

fn has_length(what: &'static str, buffer: &[u8], expected: usize) -> Result<(), CuleError> {
    if buffer.len() != expected {
        return Err(CuleError::BufferLength { what, expected, found: buffer.len() });
    }
    Ok(())
}

fn actions(set: u32) -> Vec<u8> {
    (0..env::ACTIONS).filter(|&action| set >> action & 1 != 0).collect()
}

fn check(options: &Options) -> Result<(), CuleError> {
    let probability = options.repeat_action_probability;
    if !(0.0..=1.0).contains(&probability) {
        let value = probability.to_string();
        return Err(CuleError::Setting { name: "repeat_action_probability", value, bound: "0 to 1" });
    }
    if options.frame_skip == 0 || options.frame_skip > 1000 {
        let value = options.frame_skip.to_string();
        return Err(CuleError::Setting { name: "frame_skip", value, bound: "1 to 1000" });
    }
    if options.max_num_frames_per_episode > i32::MAX as u32 {
        let value = options.max_num_frames_per_episode.to_string();
        return Err(CuleError::Setting {
            name: "max_num_frames_per_episode",
            value,
            bound: "0 to 2147483647",
        });
    }
    Ok(())
}

const _: () = assert!(RESET == select::RESET);
