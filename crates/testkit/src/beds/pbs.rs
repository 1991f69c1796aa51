//! Commands of PBS as scripts over SSH.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::hosts::SshHosts;

/// Scripts `pbsdsh`, `pbs_tmrsh` and `pbs_attach` that behave as their manual pages say, and the environment of a job.
///
/// They log each call to `calls`. No PBS was available to compare them with.
#[derive(Clone, Debug)]
pub struct PbsStubs {
    directory: PathBuf,
    node_file: PathBuf,
}

/// Output of tasks goes to the job's files, never to the caller, and a task needs the full path of its program.
const PBS_TMRSH: &str = r#"#!/bin/bash
echo "pbs_tmrsh $*" >> "$STUBS/calls"
[ -n "$PBS_JOBID" ] || { echo "pbs_tmrsh: not in a job" >&2; exit 255; }
host=$1; shift
grep -qx "$host" "$PBS_NODEFILE" || { echo "pbs_tmrsh: host \"$host\" is not a node in job" >&2; exit 255; }
case $1 in /*) ;; *) echo "pbs_tmrsh: $1: not found" >> "$STUBS/job.e"; exit 254 ;; esac
ssh -n "$host" "$(printf '%q ' "$@")" >> "$STUBS/job.o" 2>> "$STUBS/job.e"
"#;

/// Without options one task per line of the node file; `-n` names one of the lines; `-o` does not wait.
const PBSDSH: &str = r#"#!/bin/bash
echo "pbsdsh $*" >> "$STUBS/calls"
[ -n "$PBS_JOBID" ] || { echo "pbsdsh: not in a job" >&2; exit 1; }
waits=yes; index=
while [ $# -gt 0 ]; do
    case $1 in
        -n) index=$2; shift 2 ;;
        -o) waits=no; shift ;;
        -s|-v) shift ;;
        --) shift; break ;;
        -*) echo "pbsdsh: unknown option $1" >&2; exit 1 ;;
        *) break ;;
    esac
done
mapfile -t nodes < "$PBS_NODEFILE"
code=0
for at in "${!nodes[@]}"; do
    [ -z "$index" ] || [ "$index" = "$at" ] || continue
    task="PBS_NODENUM=$at PBS_TASKNUM=$at $(printf '%q ' "$@")"
    ssh -n "${nodes[$at]}" "$task" >> "$STUBS/job.o" 2>> "$STUBS/job.e" &
    tasks+=($!)
done
[ $waits = yes ] || exit 0
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit $code
"#;

/// Attaches a session to the job and runs a command in it; returns the command's exit status.
const PBS_ATTACH: &str = r#"#!/bin/bash
echo "$(hostname) pbs_attach $*" >> "$STUBS/calls"
while [ $# -gt 0 ]; do
    case $1 in
        -j) job=$2; shift 2 ;;
        -s|-P) shift ;;
        -m|-h) shift 2 ;;
        *) break ;;
    esac
done
[ -n "$job" ] || { echo "usage: pbs_attach -j jobid [-s] command" >&2; exit 2; }
exec setsid -w "$@"
"#;

impl PbsStubs {
    /// Installs the scripts on the hosts, for a job that has `slots` on each of the first `count` of them.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn install(hosts: &SshHosts, count: usize, slots: usize) -> Self {
        let stubs = Self::without_commands(hosts, count, slots);
        for (name, body) in [("pbs_tmrsh", PBS_TMRSH), ("pbsdsh", PBSDSH), ("pbs_attach", PBS_ATTACH)] {
            let body = body.replace("$STUBS", &stubs.directory.display().to_string());
            let path = hosts.bin().join(name);
            fs::write(&path, body).expect("a script");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        stubs
    }

    /// Writes the node file alone, as on systems where only SSH starts tasks.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn without_commands(hosts: &SshHosts, count: usize, slots: usize) -> Self {
        let directory = hosts.directory().to_owned();
        let node_file = directory.join("nodes");
        let lines: String =
            hosts.names().iter().take(count).flat_map(|host| vec![format!("{host}\n"); slots]).collect();
        fs::write(&node_file, lines).expect("a node file");
        Self { directory, node_file }
    }

    /// A command on the first host, in `directory` and the environment of the job.
    pub fn command(
        &self,
        hosts: &SshHosts,
        directory: &Path,
        program: impl AsRef<std::ffi::OsStr>,
    ) -> Command {
        let mut command = hosts.command(directory, program);
        command.env("PBS_NODEFILE", &self.node_file).env("PBS_JOBID", "17.server");
        command.env("PBS_ENVIRONMENT", "PBS_BATCH").env("PBS_O_WORKDIR", &self.directory);
        command
    }

    /// The calls that were made, one per line.
    pub fn calls(&self) -> String {
        fs::read_to_string(self.directory.join("calls")).unwrap_or_default()
    }
}
