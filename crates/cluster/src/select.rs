//! Which processes of a node belong to the job.
//!
//! A process belongs to the job if its parent does, or if it runs as the user of the agent and one of these holds:
//!
//! 1. `FLOODMARK_JOB` in its environment is the id of this recording.
//! 2. The scheduler's variable in its environment (`PBS_JOBID`, `SLURM_JOB_ID`) is that of this job.
//! 3. It was started after the agent, by a connection of ssh from a node of the job: launchers such as `mpiexec`
//!    start ranks that way, and ssh forwards no variables.
//!
//! A process that has one of these variables with another value belongs to another job. The recorder, what it
//! started and the shells around it are recorded by the recorder itself, and no agent is part of the job.
//!
//! Limits: by the third rule, everything that the user does in a connection of ssh from one node of the job to another
//! counts while the job runs. A program that clears its environment before it starts another one hides it, unless that
//! is its child.

use std::collections::HashSet;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};

use floodmark_sampler::select::{ancestors, own_start_ticks};
use floodmark_sampler::{Candidate, Select};

use crate::spool::own_user;

/// Variable by which processes of a recorded job are known.
pub const JOB_VARIABLE: &str = "FLOODMARK_JOB";
/// Variable that names the recorder's host, by which a process on another one knows that it is.
pub const HOST_VARIABLE: &str = "FLOODMARK_HOST";
/// Variables of schedulers that name a job.
const SCHEDULER_VARIABLES: [&str; 2] = ["PBS_JOBID", "SLURM_JOB_ID"];

/// Variable of the processes of a node of Slurm.
const NODE_VARIABLE: &str = "SLURMD_NODENAME";

/// Addresses of the nodes of a job, which are looked up in the background.
#[derive(Clone, Debug, Default)]
pub struct Addresses(Arc<Mutex<HashSet<IpAddr>>>);

impl Addresses {
    /// Adds an address in text form.
    fn add_text(&self, text: &str) {
        if let Ok(address) = text.split('%').next().unwrap_or_default().parse::<IpAddr>() {
            self.add(address);
        }
    }

    fn add(&self, address: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address.to_canonical());
    }

    fn has(&self, text: &str) -> bool {
        let address = text.split('%').next().unwrap_or_default().parse::<IpAddr>();
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        address.is_ok_and(|address| known.contains(&address.to_canonical()))
    }

    /// Adds the client of the connection that started this process, if it was ssh.
    pub fn add_own_client(&self) {
        if let Ok(connection) = std::env::var("SSH_CONNECTION") {
            self.add_text(connection.split(' ').next().unwrap_or_default());
        }
    }

    /// Looks the addresses of hosts up, which may take long.
    pub fn look_up(&self, hosts: &[String]) {
        for host in hosts {
            let name = host.rsplit('@').next().unwrap_or_default();
            if let Ok(addresses) = (name, 22).to_socket_addrs() {
                addresses.for_each(|address| self.add(address.ip()));
            }
        }
    }
}

/// Selects the processes of a job on this node.
#[derive(Debug)]
pub struct JobProcesses {
    job: String,
    variables: Vec<(String, String)>,
    addresses: Addresses,
    user: u32,
    /// The agent's own node of Slurm, of which a host can have several.
    node: Option<String>,
    /// Start of the agent in clock ticks since boot.
    since_ticks: u64,
    /// The agent, the recorder if it is on this host, and what started them.
    excluded: HashSet<i32>,
    recorder: Option<i32>,
}

/// What the environment of a process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ours,
    AnotherJob,
    /// Started by ssh from a node of the job.
    FromNode,
    Unknown,
}

impl JobProcesses {
    /// Selects the processes of `job`; `recorder` is the PID of the recorder if it runs on this host.
    pub fn new(
        job: &str,
        variables: Vec<(String, String)>,
        addresses: Addresses,
        recorder: Option<i32>,
    ) -> Self {
        let own = std::process::id() as i32;
        let mut excluded: HashSet<i32> = [own].into_iter().chain(recorder).collect();
        for pid in [Some(own), recorder].into_iter().flatten() {
            excluded.extend(ancestors(pid));
        }
        let (user, since_ticks) = (own_user(), own_start_ticks());
        let node = std::env::var(NODE_VARIABLE).ok();
        Self { job: job.to_owned(), variables, addresses, user, node, since_ticks, excluded, recorder }
    }

    fn verdict(&self, environment: &[u8]) -> Verdict {
        let (mut by_marker, mut by_scheduler) = (None, None);
        let mut is_from_node = false;
        for entry in environment.split(|byte| *byte == 0) {
            let Ok(entry) = std::str::from_utf8(entry) else { continue };
            let Some((name, value)) = entry.split_once('=') else { continue };
            match name {
                JOB_VARIABLE => by_marker = Some(value == self.job),
                // Whatever else it has, another agent of the same host records it.
                NODE_VARIABLE if self.node.as_ref().is_some_and(|node| node != value) => {
                    return Verdict::AnotherJob;
                }
                "SSH_CONNECTION" => {
                    is_from_node = self.addresses.has(value.split(' ').next().unwrap_or_default());
                }
                _ if SCHEDULER_VARIABLES.contains(&name) => {
                    let is_ours = self.variables.iter().any(|(ours, of)| ours == name && of == value);
                    // A job of one scheduler may run within one of another.
                    by_scheduler = Some(is_ours || by_scheduler == Some(true));
                }
                _ => {}
            }
        }
        match by_marker.or(by_scheduler) {
            Some(true) => Verdict::Ours,
            Some(false) => Verdict::AnotherJob,
            None if is_from_node => Verdict::FromNode,
            None => Verdict::Unknown,
        }
    }
}

impl Select for JobProcesses {
    fn selects(&mut self, candidate: &Candidate<'_>) -> bool {
        let pid = candidate.pid;
        if self.excluded.contains(&pid) || candidate.user() != Some(self.user) {
            return false;
        }
        let Some(environment) = candidate.environment() else { return false };
        let is_ours = match self.verdict(&environment) {
            Verdict::Ours => true,
            Verdict::FromNode => candidate.start_ticks >= self.since_ticks,
            Verdict::AnotherJob | Verdict::Unknown => false,
        };
        if !is_ours {
            return false;
        }
        let command = candidate.command();
        let is_agent = ["agent --stdio", "agent --exchange", "agent --follow"]
            .iter()
            .any(|words| command.contains(words));
        let is_recorders = || self.recorder.is_some_and(|recorder| ancestors(pid).contains(&recorder));
        !is_agent && !is_recorders()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(entries: &[&str]) -> Verdict {
        verdict_on(None, entries)
    }

    fn verdict_on(node: Option<&str>, entries: &[&str]) -> Verdict {
        let addresses = Addresses::default();
        addresses.add_text("10.0.0.1");
        let variables = vec![("PBS_JOBID".to_owned(), "7.server".to_owned())];
        let processes = JobProcesses::new("abc", variables, addresses, None);
        let processes = JobProcesses { node: node.map(str::to_owned), ..processes };
        processes.verdict(entries.join("\0").as_bytes())
    }

    #[test]
    fn the_environment_says_which_job_a_process_belongs_to() {
        assert_eq!(verdict(&["A=1", "FLOODMARK_JOB=abc"]), Verdict::Ours);
        assert_eq!(verdict(&["PBS_JOBID=7.server", "FLOODMARK_JOB=other"]), Verdict::AnotherJob);
        assert_eq!(verdict(&["PBS_JOBID=7.server"]), Verdict::Ours);
        assert_eq!(
            verdict(&["PBS_JOBID=8.server", "SSH_CONNECTION=10.0.0.1 5 10.0.0.2 22"]),
            Verdict::AnotherJob
        );
        assert_eq!(verdict(&["SLURM_JOB_ID=7"]), Verdict::AnotherJob);
        assert_eq!(verdict(&["SSH_CONNECTION=10.0.0.1 5 10.0.0.2 22"]), Verdict::FromNode);
        assert_eq!(verdict(&["SSH_CONNECTION=::ffff:10.0.0.1 5 x 22"]), Verdict::FromNode);
        assert_eq!(verdict(&["SSH_CONNECTION=10.0.0.9 5 10.0.0.2 22"]), Verdict::Unknown);
        assert_eq!(verdict(&["SSH_CONNECTION=garbage"]), Verdict::Unknown);
        let of_n1 = ["FLOODMARK_JOB=abc", "SLURMD_NODENAME=n1"];
        assert_eq!(verdict_on(Some("n1"), &of_n1), Verdict::Ours);
        assert_eq!(verdict_on(Some("n2"), &of_n1), Verdict::AnotherJob);
        assert_eq!(verdict(&of_n1), Verdict::Ours);
        assert_eq!(verdict(&["FLOODMARK_JOB", "XFLOODMARK_JOB=abc"]), Verdict::Unknown);
    }
}
