//! Workloads of the tree and of the replay core, for benchmarks and instruction counts.
//!
//! `measure serve MS` reads one workload per line, runs it for about `MS` milliseconds and prints nanoseconds
//! per item (wall clock, and processor time of the thread), so that a benchmark in another language can
//! alternate with it. `measure count WORKLOAD` runs it a fixed number of times inside [`counted`], for
//! callgrind. `measure list` names the workloads; `SUMTREE_PATH=scalar` (avx2, avx512) chooses the
//! instruction set.

mod workloads;

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use workloads::{Threads, Workload};

const USAGE: &str = "measure serve [MS] | count WORKLOAD [CALLS] | list";
/// The workloads: operation, log2 of the capacity, items per call, and threads if more than one. The threads
/// share one tree or replay, except in workloads that end in `-apart`, where each thread has its own.
const WORKLOADS: &str = "sample:20:256 sample-independent:20:256 update:20:256 update-exclusive:20:256 append:20:256 \
    replay-add:20:64 replay-sample:20:32 replay-update:20:32 \
    mixed-tree:20:256:2 mixed-exclusive:20:256:2 mixed-replay:20:256:2 updates:20:256:2 updates-exclusive:20:256:2 samples:20:256:2 \
    mixed-replay-apart:20:256:2 mixed-tree-apart:20:256:2";

/// The function that is counted, together with all that it calls.
#[inline(never)]
fn counted(workload: &mut Workload, calls: usize) {
    for _ in 0..calls {
        black_box(workload.call());
    }
}

/// Processor time of this thread.
#[cfg(unix)]
fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[allow(unsafe_code)] // One system call.
    // SAFETY: `now` is a timespec that the call fills.
    unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now);
    }
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Time since the first call: Windows counts processor time too coarsely.
#[cfg(not(unix))]
fn thread_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Pins this thread to the `nth` of the cores that the process may use, if there are enough. Does nothing on other systems
/// than Linux.
fn pin_to_core(nth: usize) {
    #[cfg(not(target_os = "linux"))]
    let _ = nth;
    #[cfg(target_os = "linux")]
    #[allow(unsafe_code)] // System calls and their set of cores.
    // SAFETY: the set is plain data, zeroed or filled by the call, and of the size that is passed; `core` is inside it.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed);
        let cores = libc::CPU_SETSIZE as usize;
        if let Some(core) = (0..cores).filter(|core| libc::CPU_ISSET(*core, &allowed)).nth(nth) {
            libc::CPU_SET(core, &mut one);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one);
        }
    }
}

/// Nanoseconds per item: wall clock, and processor time.
fn time(workload: &mut Workload, length: Duration) -> (f64, f64) {
    // Warm up: what ran before has filled the caches with other data.
    let warm = Instant::now();
    while warm.elapsed() < length / 3 {
        black_box(workload.call());
    }
    let (start, busy) = (Instant::now(), thread_time());
    let mut items = 0;
    // At least once: the thread may lose its core here for longer than `length`.
    loop {
        for _ in 0..8 {
            items += black_box(workload.call());
        }
        if start.elapsed() >= length {
            break;
        }
    }
    let per = |time: Duration| time.as_secs_f64() * 1e9 / items as f64;
    (per(start.elapsed()), per(thread_time() - busy))
}

fn serve(length: Duration) -> Result<(), String> {
    let mut kept = std::collections::HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let name = line.trim();
        if !kept.contains_key(name) {
            kept.insert(
                name.to_owned(),
                (Workload::new(name).map_err(|e| format!("{name}: {e}\n{WORKLOADS}"))?, None),
            );
        }
        let (workload, threads) = kept.get_mut(name).ok_or("a workload just kept")?;
        let (wall, busy) = match workload.threads() {
            1 => time(workload, length),
            _ => {
                if threads.is_none() {
                    *threads = Some(Threads::new(workload)?);
                }
                threads.as_mut().ok_or("threads just made")?.time(length)?
            }
        };
        println!("{wall:.4} {busy:.4}");
        std::io::stdout().flush().map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text:?} is not a number\n{USAGE}"));
    match arguments.as_slice() {
        ["serve"] => serve(Duration::from_millis(2)),
        ["serve", length] => serve(Duration::from_millis(number(length)? as u64)),
        ["list"] => {
            WORKLOADS.split_ascii_whitespace().for_each(|workload| println!("{workload}"));
            Ok(())
        }
        ["count", name, rest @ ..] => {
            let calls = rest.first().map_or(Ok(100), |text| number(text))?;
            let mut workload = Workload::new(name)?;
            counted(&mut workload, calls);
            Ok(())
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}
