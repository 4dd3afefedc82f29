//! Runs a script of actions on a console and prints a trace of its frames, for comparison with another
//! implementation; or measures the speed.
//!
//! `trace ROM GAME [mode=M] [difficulty=D] [seed=S] [sticky=P] [draw=all|none|FRACTION] SCRIPT`
//!
//! SCRIPT is a file with two bytes per frame: the action code, and an operation before it: 1 = reset, 2 =
//! save a state, 3 = load the saved state, 16-19 = difficulty 0-3. One line is printed per frame: reward,
//! lives, game over, frame numbers, CRC-32 of RAM and of the screen; with `ram=1` the RAM itself. A reset
//! precedes the script unless `first=0`. With `speed=N` the script is run N times and only the time per frame
//! is printed.
//!
//! `way=plain` uses the plain interpreter. `poke=FRAME:INDEX:VALUE` writes a byte of RAM after a frame.
//! `dump=PREFIX` writes the picture after the last frame, as palette indices and as RGB, and the machine's
//! registers to `PREFIX.screen`, `PREFIX.rgb` and `PREFIX.txt`. `state=FILE` prints the registers of a saved
//! state and runs nothing.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use cule::{Console, Options, console, games, rom};

fn crc32(bytes: &[u8], table: &[u32; 256]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| table[((crc ^ u32::from(byte)) & 255) as usize] ^ crc >> 8)
}

fn crc_table() -> [u32; 256] {
    std::array::from_fn(|i| {
        (0..8).fold(i as u32, |c, _| if c & 1 != 0 { 0xEDB8_8320 ^ c >> 1 } else { c >> 1 })
    })
}

struct Job {
    console: Console,
    script: Vec<u8>,
    drawn: u32,
    speed: u32,
    gray: bool,
    hex: bool,
    first: bool,
    poke: Option<(usize, usize, u8)>,
    dump: Option<String>,
    state: Option<String>,
}

fn parse() -> Result<Job, Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, game, more @ ..] = arguments.as_slice() else {
        return Err("usage: trace ROM GAME [NAME=VALUE ...] SCRIPT".into());
    };
    let mut options = Options::default();
    let (mut plain, mut poke, mut dump, mut state) = (false, None, None, None);
    let (mut mode, mut difficulty, mut drawn, mut speed, mut gray, mut hex, mut first, mut script) =
        (None, None, 4, 0, false, false, true, vec![]);
    for argument in more {
        match argument.split_once('=') {
            Some(("mode", value)) => mode = Some(value.parse()?),
            Some(("difficulty", value)) => difficulty = Some(value.parse()?),
            Some(("seed", value)) => options.random_seed = value.parse()?,
            Some(("system_seed", value)) => options.system_seed = value.parse()?,
            Some(("sticky", value)) => options.repeat_action_probability = value.parse()?,
            Some(("skip", value)) => options.frame_skip = value.parse()?,
            Some(("limit", value)) => options.max_num_frames_per_episode = value.parse()?,
            Some(("draw", "all")) => drawn = 4,
            Some(("draw", "none")) => drawn = 0,
            Some(("draw", value)) => drawn = value.parse()?,
            Some(("speed", value)) => speed = value.parse()?,
            Some(("gray", value)) => gray = value == "1",
            Some(("first", value)) => first = value == "1",
            Some(("ram", value)) => hex = value == "1",
            Some(("way", value)) => plain = value == "plain",
            Some(("poke", value)) => poke = Some(parse_poke(value)?),
            Some(("dump", value)) => dump = Some(value.to_owned()),
            Some(("state", value)) => state = Some(value.to_owned()),
            Some((name, _)) => return Err(format!("unknown setting {name}").into()),
            None => script = std::fs::read(argument)?,
        }
    }
    let rom = rom::read(Path::new(path))?;
    let row = if game == "unknown" { games::table::UNKNOWN } else { console::game_row(game)? };
    let mut console = Console::new(&rom, row, options)?;
    if plain {
        console.use_plain_interpreter();
    }
    console.set_drawing(drawn > 0);
    if let Some(mode) = mode {
        console.set_mode(mode)?;
    }
    if let Some(difficulty) = difficulty {
        console.set_difficulty(difficulty)?;
    }
    Ok(Job { console, script, drawn, speed, gray, hex, first, poke, dump, state })
}

fn parse_poke(text: &str) -> Result<(usize, usize, u8), Box<dyn std::error::Error>> {
    let parts: Vec<&str> = text.split(':').collect();
    let [frame, index, value] = parts.as_slice() else {
        return Err(format!("poke={text}: expected FRAME:INDEX:VALUE").into());
    };
    Ok((frame.parse()?, index.parse()?, value.parse()?))
}

/// Runs the script, and returns to the start state whenever a game ends, for timing without resets.
fn play_on(job: &mut Job) -> Result<(), cule::CuleError> {
    let start = job.console.save(true);
    let mut gray = vec![0; job.console.height() * 160];
    for (t, step) in job.script.chunks_exact(2).enumerate() {
        let drawn = t as u32 % 4 >= 4 - job.drawn;
        job.console.set_drawing(drawn);
        if job.console.game_over() {
            job.console.load(&start)?;
        }
        job.console.act(step[0]);
        if drawn && job.gray {
            job.console.screen_gray(&mut gray)?;
        }
    }
    Ok(())
}

fn play(job: &mut Job, mut each: impl FnMut(&mut Console, i32)) -> Result<(), cule::CuleError> {
    let mut saved = vec![];
    for (t, step) in job.script.chunks_exact(2).enumerate() {
        if job.drawn > 0 && job.drawn < 4 {
            job.console.set_drawing(t as u32 % 4 >= 4 - job.drawn);
        }
        match step[1] {
            1 => job.console.reset()?,
            2 => saved = job.console.save(true),
            3 => job.console.load(&saved)?,
            code @ 16..=19 => job.console.set_difficulty(u32::from(code) - 16)?,
            _ => {}
        }
        let reward = job.console.act(step[0]);
        if let Some((_, index, value)) = job.poke.filter(|&(frame, ..)| frame == t) {
            job.console.set_ram(index, value)?;
        }
        if job.drawn > 0 && t as u32 % 4 >= 4 - job.drawn {
            job.console.draw();
        }
        each(&mut job.console, reward);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut job = parse()?;
    if let Some(path) = &job.state {
        job.console.load(&std::fs::read(path)?)?;
        println!("{:#?}", job.console.state().machine);
        return Ok(());
    }
    if job.speed > 0 {
        let frames = job.script.len() / 2;
        for _ in 0..job.speed {
            job.console.reset()?;
            let start = Instant::now();
            play_on(&mut job)?;
            println!("{:.3} us/frame", start.elapsed().as_secs_f64() * 1e6 / frames as f64);
        }
        return Ok(());
    }
    let table = crc_table();
    let hex = job.hex;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut line = |console: &mut Console, reward: i32| {
        let screen = crc32(console.screen(), &table);
        let ram = if hex {
            console.ram().iter().map(|byte| format!("{byte:02x}")).collect()
        } else {
            format!("{:08x}", crc32(console.ram(), &table))
        };
        writeln!(
            out,
            "{reward} {} {} {} {} {ram} {screen:08x}",
            console.lives(),
            u8::from(console.game_over()),
            console.frame_number(),
            console.episode_frame_number()
        )
    };
    line(&mut job.console, 0)?;
    if job.first {
        job.console.reset()?;
        line(&mut job.console, 0)?;
    }
    let mut failed = Ok(());
    play(&mut job, |console, reward| {
        if failed.is_ok() {
            failed = line(console, reward);
        }
    })?;
    failed?;
    if let Some(prefix) = &job.dump {
        job.console.draw();
        std::fs::write(format!("{prefix}.screen"), job.console.screen())?;
        let mut rgb = vec![0; 3 * job.console.screen().len()];
        job.console.screen_rgb(&mut rgb)?;
        std::fs::write(format!("{prefix}.rgb"), rgb)?;
        std::fs::write(format!("{prefix}.txt"), format!("{:#?}\n", job.console.state().machine))?;
    }
    Ok(())
}
