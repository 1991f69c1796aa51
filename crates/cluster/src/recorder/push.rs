//! Copying this program to a node that lacks it.

use std::fs::{self, File};
use std::io;
use std::process::{Command, Stdio};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_sampler::spawn_unwatched;
use floodmark_tail::segment::checksum;

use super::link::keep_last;
use crate::error::{Error, Result};
use crate::launch::{push_line, pushed_line, ssh};
use crate::spool::own_user;

/// Returns the path that this program gets on other nodes. It has a checksum of the program, so a program that is
/// there is the same.
pub(super) fn remote_path(program: &str) -> Result<String> {
    let bytes = fs::read(program).map_err(Error::io(format!("reading {program}")))?;
    Ok(format!("/tmp/floodmark-{}-bin/floodmark-{:016x}", own_user(), checksum(0, &bytes)))
}

/// Copies the program at `own` to `remote` on a host by ssh, unless it is there. Returns the reason if that fails, or
/// takes longer than `patience`.
pub(super) fn push(own: &str, remote: &str, host: &str, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    let directory = remote.rsplit_once('/').map_or(".", |(directory, _)| directory);
    if run(host, &pushed_line(directory, remote), None, deadline)?.is_ok() {
        return Ok(());
    }
    run(host, &push_line(directory, remote), Some(File::open(own)?), deadline)?.map_err(io::Error::other)
}

/// Runs a line of a shell on a host; the inner result has what it wrote to stderr.
fn run(
    host: &str,
    line: &str,
    input: Option<File>,
    deadline: Instant,
) -> io::Result<std::result::Result<(), String>> {
    let argv = ssh(host, line);
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).stdout(Stdio::null()).stderr(Stdio::piped());
    command.stdin(input.map_or_else(Stdio::null, Stdio::from));
    let mut child = spawn_unwatched(&mut command)?;
    let words = Arc::default();
    if let Some(stderr) = child.child_mut().stderr.take() {
        keep_last(stderr, &words);
    }
    let status = loop {
        match child.try_wait() {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                // Dropping it kills it.
                return Err(io::Error::new(io::ErrorKind::TimedOut, "ssh did not end in time"));
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    thread::sleep(Duration::from_millis(5));
    let words = words.lock().unwrap_or_else(PoisonError::into_inner);
    let words = String::from_utf8_lossy(&words).trim().to_owned();
    Ok(if status.success() { Ok(()) } else { Err(format!("{words} ({status})")) })
}
