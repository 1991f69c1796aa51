//! Selection of processes that this process did not start: those of a job on one of its nodes.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use crate::tree::walk::{self, Path};

/// Number of bytes of an environment that are searched.
const MOST_BYTES: u64 = 256 << 10;

/// Decides which processes are watched.
///
/// It is asked about processes whose parent is not watched: when they are new, and again when they have called exec.
/// Descendants of a selected process are watched without being asked about.
pub trait Select: Send {
    /// Returns whether a process belongs to what is watched.
    fn selects(&mut self, candidate: &Candidate<'_>) -> bool;
}

/// A process that may be selected.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its PID.
    pub pid: i32,
    /// PID of its parent.
    pub parent: i32,
    /// Its start in clock ticks since boot.
    pub start_ticks: u64,
    /// Its name, of at most 15 bytes.
    pub name: &'a str,
}

impl Candidate<'_> {
    /// Returns the environment that its program was started with, as `NAME=VALUE` entries that end in zeros; none if
    /// it cannot be read.
    pub fn environment(&self) -> Option<Vec<u8>> {
        let file = File::open(Path::of(self.pid, "environ").as_str()).ok()?;
        let mut environment = Vec::with_capacity(16 << 10);
        file.take(MOST_BYTES).read_to_end(&mut environment).ok()?;
        Some(environment)
    }

    /// Returns its command line.
    pub fn command(&self) -> String {
        walk::describe(self.pid, self.name).1
    }

    /// Returns the user that it runs as.
    pub fn user(&self) -> Option<u32> {
        fs::metadata(Path::of(self.pid, "stat").as_str()).ok().map(|found| found.uid())
    }
}

/// Returns a process's parent and its parents, the nearest first, up to the first process of the system.
pub fn ancestors(pid: i32) -> Vec<i32> {
    let mut ancestors = Vec::new();
    let mut next = walk::read_process(pid).map(|found| found.parent);
    // A chain cannot be longer than this unless it changes while it is read.
    while let Some(parent) = next.filter(|parent| *parent > 0 && ancestors.len() < 4096) {
        ancestors.push(parent);
        next = walk::read_process(parent).map(|found| found.parent);
    }
    ancestors
}

/// Returns the start of this process in clock ticks since boot.
pub fn own_start_ticks() -> u64 {
    walk::read_process(std::process::id() as i32).map_or(0, |found| found.start_ticks)
}
