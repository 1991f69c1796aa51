//! Repeating, medians, spreads, and what a child process used.
#![expect(unsafe_code, reason = "reads clocks and a child's resource usage")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

/// Repeated measurements of one thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
        self.0.sort_by(f64::total_cmp);
    }

    pub(crate) fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Median, least and most.
    pub(crate) fn text(&self, digits: usize) -> String {
        let (least, most) = (self.0.first(), self.0.last());
        let (least, most) = (least.copied().unwrap_or(f64::NAN), most.copied().unwrap_or(f64::NAN));
        format!("{:.digits$} ({least:.digits$}–{most:.digits$})", self.median())
    }
}

/// CPU time of the calling thread, ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The monotonic clock, which other processes read too, in seconds.
pub(crate) fn monotonic_s() -> f64 {
    clock_ns(libc::CLOCK_MONOTONIC) as f64 / 1e9
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result, and a clock every Linux has.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a child process used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) peak_rss_mb: f64,
}

/// Runs a command to its end; its output goes to a file that is read only if it fails.
pub(crate) fn run(command: &mut Command) -> Result<Usage> {
    let name = format!("{command:?}");
    let begin = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let mut status = 0;
    // SAFETY: all zeros are a valid rusage, a valid place for the result, and the child is ours and
    // not waited for elsewhere.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage);
        usage
    };
    ensure!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{name} failed");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Usage {
        wall_s: begin.elapsed().as_secs_f64(),
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_rss_mb: usage.ru_maxrss as f64 * 1024.0 / 1e6,
    })
}

/// Returns the path of the `floodmark` that was built with this program.
pub(crate) fn floodmark() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name("floodmark");
    let hint = "build it first: cargo build --release";
    program
        .exists()
        .then_some(program)
        .with_context(|| format!("there is no floodmark beside {}; {hint}", own.display()))
}
