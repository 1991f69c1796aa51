//! Machines, schedulers and their commands on one machine, for tests of whole jobs.
//!
//! A [`Machine`] is a set of namespaces: its own network, host name, processes, mounts and shared memory. [`SshHosts`]
//! are several of them on one bridge, each with an SSH server; [`SlurmBed`] is one with a controller and two nodes of
//! Slurm. All share the kernel, the clock and the file system. [`PbsStubs`] are scripts that do what the manual pages of
//! PBS's commands say, over SSH: no PBS could be had, so they show what we do and nothing about a real one.
//!
//! Everything here needs root. Nothing listens outside of its own network namespace, and no interface leads out of it.
//! What a bed started ends with its value: the first process of a PID namespace takes the others along, and is killed
//! itself if the test is.

mod hosts;
mod machine;
mod pbs;
mod slurm;

pub use hosts::{Link, SshHosts};
pub use machine::Machine;
pub use pbs::PbsStubs;
pub use slurm::SlurmBed;

use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Output, Stdio};

/// Fails unless the test can make namespaces and finds the programs it needs.
///
/// # Panics
/// If it is not run by root, or a program is missing; the message names the package.
#[track_caller]
pub fn require(programs: &[(&str, &str)]) {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    assert!(is_root, "this test makes network namespaces and needs root; run it as root or in a container");
    for (program, package) in programs {
        let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        let is_there = folders.iter().any(|folder| std::path::Path::new(folder).join(program).exists());
        assert!(is_there, "this test needs {program} (Debian: apt-get install {package})");
    }
}

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started or fails; the message has what it wrote.
#[track_caller]
pub fn succeed(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    output
}

/// Everything that a command wrote.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `ip` with arguments that contain no spaces.
#[track_caller]
fn ip(line: &str) {
    succeed(Command::new("ip").args(line.split_whitespace()));
}
