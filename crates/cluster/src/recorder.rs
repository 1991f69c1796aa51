//! The recorder's end: one thread per node starts its agent, takes in what it sends, and goes on after a lost connection.

mod intake;
mod link;
mod node;
mod push;
pub(crate) mod spooling;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floodmark_sampler::{MoreDescriptors, StackProps};
use floodmark_store::Inbox;
use floodmark_tail::reader::boot_id;

use crate::agent::own_host;
use crate::clock::ClockOffset;
use crate::error::{Error, Result};
use crate::hosts::{Node, NodeList};
use crate::launch::{Launcher, find_program};
use crate::select::{HOST_VARIABLE, JOB_VARIABLE};
use crate::spool::SPOOL_VARIABLE;
use crate::wire::Hello;
use node::NodeThread;
use spooling::Spooling;

/// Descriptors that a node takes: three pipes to its launcher, and two files of its agent in the trace. Programs on the
/// node that record themselves take two more each.
const DESCRIPTORS_EACH: u64 = 6;
/// How long the file of orders may be without a sign of life before agents take the recorder for lost.
const KEPT_SILENCE: Duration = Duration::from_mins(1);
/// Descriptors that everything else takes.
const OTHER_DESCRIPTORS: u64 = 64;
/// How long launchers may take to be ended once they are given up.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(5);

/// How to record the nodes of a job.
#[derive(Clone, Debug)]
pub struct ClusterProps {
    /// The nodes.
    pub nodes: NodeList,
    /// How agents are started; none for the usual means of the scheduler.
    pub launcher: Option<Launcher>,
    /// The program on the nodes; none for the path of this one.
    pub program: Option<String>,
    /// Whether the program is copied to nodes.
    pub pushes: bool,
    /// Directory for spools on the nodes; empty for the usual one.
    pub spool: String,
    /// What becomes of spools while the job runs.
    pub delivery: DeliveryMode,
    /// Directory for files through which recorder and agents exchange messages, where the launcher forwards no streams.
    pub exchange: PathBuf,
    /// Fixed interval between sweeps in nanoseconds; 0 for an adaptive one.
    pub interval_ns: u64,
    /// Whether peaks of every interval are wanted.
    pub exact_peaks: bool,
    /// Which stacks agents take.
    pub stacks: Option<StackProps>,
    /// Id of the job, as [`new_job`] makes it.
    pub job: String,
    /// The command that is recorded.
    pub command: String,
    /// Version of this program.
    pub version: &'static str,
    /// How long to wait for agents before the command starts.
    pub start_patience: Duration,
    /// How long to wait for agents after the command has ended.
    pub stop_patience: Duration,
    /// Whether it is an error if an agent cannot be started.
    pub requires_all: bool,
    /// Called with what goes wrong, from other threads.
    pub on_event: fn(&NodeEvent),
}

/// What becomes of spools while a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Agents send them to the recorder.
    #[default]
    Sent,
    /// They stay in [`ClusterProps::spool`], which all nodes share, until they are collected.
    Kept,
}

/// Something that happened to a node while the job ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// Its agent could not be started.
    Failed {
        /// The node.
        node: String,
        /// The reason, as the launcher gave it.
        reason: String,
        /// What to do about it, if that is known.
        remedy: Option<String>,
    },
    /// The connection to its agent was lost.
    Lost {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
    },
    /// The connection is back.
    Back {
        /// The node.
        node: String,
    },
    /// What agents send cannot be written to the trace. They keep it, and it is tried again.
    Unwritten {
        /// The reason.
        reason: String,
    },
    /// The trace can be written again.
    Written,
}

/// What became of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The node.
    pub node: String,
    /// Name that its host has for itself, if its agent was ever ready.
    pub host: Option<String>,
    /// How it ended.
    pub end: NodeEnd,
    /// How far its clock was off.
    pub clock: Option<ClockOffset>,
    /// Time until its agent was ready.
    pub ready_after: Option<Duration>,
    /// Bytes that its agent sent.
    pub bytes: u64,
    /// How often the connection was lost and made again.
    pub reconnects: u32,
    /// How often its agent had to be started again; nothing was sampled in between.
    pub restarts: u32,
    /// Directory of its spool, if it was left there.
    pub spool: Option<String>,
}

/// How the recording of a node ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEnd {
    /// Everything that its agent sampled is in the trace.
    Complete,
    /// The connection was lost; what its agent had delivered is in the trace.
    Lost {
        /// The reason.
        reason: String,
    },
    /// Everything that its agent sampled is in its spool, to be collected.
    Spooled,
    /// Its agent was never ready.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// What a node's thread tells the one that waits for all of them.
enum Progress {
    Ready,
    Failed,
}

/// What the threads of all nodes share.
struct Shared {
    props: ClusterProps,
    hello: Hello,
    launcher: Launcher,
    program: String,
    attaches: bool,
    inbox: Inbox,
    /// Set once agents are to end.
    stop: AtomicBool,
    /// Set once agents that have not ended are given up.
    give_up: AtomicBool,
    /// Whether the trace could not be written when a node was stored last.
    is_unwritten: AtomicBool,
}

/// The agents of a job.
pub struct Cluster {
    shared: Arc<Shared>,
    threads: Vec<(String, JoinHandle<NodeReport>)>,
    /// Agents that send nothing, instead of threads that talk to them.
    spooling: Option<Spooling>,
}

impl Cluster {
    /// Starts an agent on every node, and waits until each samples or cannot be started. Nodes that could not be
    /// started are reported by [`ClusterProps::on_event`], and the others go on.
    ///
    /// # Errors
    /// If the launcher is missing, or an agent cannot be started and all are required.
    pub fn start(props: ClusterProps, inbox: Inbox) -> Result<Self> {
        let launcher = props.launcher.unwrap_or_else(|| Launcher::of(props.nodes.scheduler));
        let is_alone = props.nodes.nodes.iter().all(|node| is_local(&node.name));
        if find_program(launcher.program()).is_none() && !is_alone {
            return Err(Error::refused(
                format!("{} is not installed here, or not in PATH", launcher.program()),
                "load the module of the scheduler, or choose other means with --launcher",
            ));
        }
        if props.pushes && launcher != Launcher::Ssh {
            return Err(Error::refused(
                format!("--push copies by ssh, and agents are started by {}", launcher.program()),
                "put the program where all nodes see it and name it with --node-program, or add --launcher ssh",
            ));
        }
        let own = std::env::current_exe().map_err(Error::io("finding this program"))?;
        let own = own.display().to_string();
        let program = match (&props.program, props.pushes) {
            (Some(program), _) => program.clone(),
            (None, true) => push::remote_path(&own)?,
            (None, false) => own,
        };
        let attaches =
            props.nodes.scheduler == crate::hosts::Scheduler::Pbs && find_program("pbs_attach").is_some();
        let hello = hello(&props);
        let give_up = AtomicBool::new(false);
        let nodes = props.nodes.nodes.clone();
        let shared = Arc::new(Shared {
            props,
            hello,
            launcher,
            program,
            attaches,
            inbox,
            stop: AtomicBool::new(false),
            give_up,
            is_unwritten: AtomicBool::new(false),
        });
        if shared.props.delivery == DeliveryMode::Kept {
            let spooling = Spooling::start(Arc::clone(&shared))?;
            let (ready, all) = (spooling.ready(), shared.props.nodes.nodes.len());
            return Self { shared, threads: Vec::new(), spooling: Some(spooling) }.checked(ready, all);
        }
        let _descriptors = check_descriptors(nodes.len())?;
        let (progress, reports) = channel();
        let mut threads = Vec::new();
        for node in nodes {
            let name = node.name.clone();
            let (shared, progress) = (Arc::clone(&shared), progress.clone());
            let thread = thread::Builder::new()
                .name("floodmark-agent".into())
                .stack_size(512 << 10)
                .spawn(move || NodeThread::new(shared, node, progress).run())
                .map_err(Error::io("starting a thread"))?;
            threads.push((name, thread));
        }
        drop(progress);
        let cluster = Self { shared, threads, spooling: None };
        let ready = cluster.wait_until_ready(&reports);
        let all = cluster.threads.len();
        cluster.checked(ready, all)
    }

    /// Ends it again if all nodes are required and some are missing.
    fn checked(self, ready: usize, all: usize) -> Result<Self> {
        if ready < all && self.shared.props.requires_all {
            self.stop();
            return Err(Error::refused(
                format!("{} of {all} nodes cannot be recorded", all - ready),
                "see above for the reasons, or go on without these nodes: leave out --require-nodes",
            ));
        }
        Ok(self)
    }

    /// Waits for the agents; returns how many are ready.
    fn wait_until_ready(&self, reports: &Receiver<Progress>) -> usize {
        let deadline = Instant::now() + self.shared.props.start_patience + Duration::from_secs(1);
        let (mut ready, mut left) = (0, self.threads.len());
        while left > 0 {
            match reports.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Progress::Ready) => ready += 1,
                Ok(Progress::Failed) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
            left -= 1;
        }
        ready
    }

    /// Returns the variables that the command needs, so that its processes are known on every node, and those that record
    /// themselves find the trace of the agent there.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let hello = &self.shared.hello;
        let mut variables = vec![
            (JOB_VARIABLE.into(), hello.job.clone().into()),
            (HOST_VARIABLE.into(), hello.recorder_host.clone().into()),
        ];
        if !hello.spool.is_empty() {
            variables.push((SPOOL_VARIABLE.into(), hello.spool.clone().into()));
        }
        variables
    }

    /// Ends all agents and takes in what they still have; returns what became of each node.
    pub fn stop(self) -> Vec<NodeReport> {
        if let Some(spooling) = self.spooling {
            return spooling.stop();
        }
        self.shared.stop.store(true, Ordering::Release);
        // The sampler raised it while the command ran.
        let _descriptors = MoreDescriptors::raise();
        let deadline = Instant::now() + self.shared.props.stop_patience;
        while Instant::now() < deadline && self.threads.iter().any(|(_, thread)| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(2));
        }
        self.shared.give_up.store(true, Ordering::Release);
        let deadline = Instant::now() + GIVE_UP_PATIENCE;
        let report = |(node, thread): (String, JoinHandle<NodeReport>)| {
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            if !thread.is_finished() {
                // It waits for a system that does not answer, and ends with this process.
                return NodeReport::failed(&node, "its launcher hangs and cannot be ended");
            }
            thread.join().unwrap_or_else(|_| NodeReport::failed(&node, "a thread of the recorder panicked"))
        };
        let reports = self.threads.into_iter().map(report).collect();
        // It is there only if messages went through files, and empty unless some were left.
        let _ = std::fs::remove_dir(&self.shared.props.exchange);
        reports
    }
}

/// Raises the limit of open descriptors, and checks that it is enough for so many nodes.
fn check_descriptors(nodes: usize) -> Result<MoreDescriptors> {
    let descriptors = MoreDescriptors::raise();
    let needed = OTHER_DESCRIPTORS + nodes as u64 * DESCRIPTORS_EACH;
    if needed <= descriptors.count() {
        return Ok(descriptors);
    }
    Err(Error::refused(
        format!(
            "{nodes} nodes need about {needed} open files on this host, and the limit is {}",
            descriptors.count()
        ),
        "raise it (ulimit -Hn), or let agents write to a shared directory: add --spool-only DIR",
    ))
}

impl NodeReport {
    fn failed(node: &str, reason: &str) -> Self {
        Self {
            node: node.to_owned(),
            host: None,
            end: NodeEnd::Failed { reason: reason.to_owned() },
            clock: None,
            ready_after: None,
            bytes: 0,
            reconnects: 0,
            restarts: 0,
            spool: None,
        }
    }
}

impl std::fmt::Display for NodeReport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let node = &self.node;
        match &self.end {
            NodeEnd::Complete if self.reconnects > 0 => {
                let times = match self.reconnects {
                    1 => "once".to_owned(),
                    times => format!("{times} times"),
                };
                write!(out, "node {node}: the connection was lost {times} and made again")?;
                out.write_str(match self.restarts {
                    0 => "; nothing is missing",
                    _ => "; its agent had ended, so nothing was sampled in between",
                })
            }
            NodeEnd::Complete => write!(out, "node {node}: complete"),
            NodeEnd::Spooled => {
                write!(out, "node {node}: complete, in {}", self.spool.as_deref().unwrap_or("its spool"))
            }
            NodeEnd::Lost { reason } => {
                write!(out, "node {node} was lost: {reason}; what it had sent is in the trace")?;
                match &self.spool {
                    Some(spool) => {
                        write!(out, ", the rest is in {spool} there; get it with 'floodmark collect'")
                    }
                    None => Ok(()),
                }
            }
            NodeEnd::Failed { reason } => write!(out, "node {node} was not recorded: {reason}"),
        }
    }
}

/// Whether a node is this host.
pub(crate) fn is_local(name: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let own = own_host();
    // An address has dots, but is no name.
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    name == own || name == "localhost" || (!is_address && !own.is_empty() && short(name) == short(&own))
}

/// Returns an id for a job, which no other job has.
///
/// # Errors
/// If the system has no random numbers.
pub fn new_job() -> Result<String> {
    let mut random = [0; 16];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random));
    read.map_err(Error::io("reading /dev/urandom"))?;
    Ok(format!("{:024x}", u128::from_be_bytes(random) >> 32))
}

fn hello(props: &ClusterProps) -> Hello {
    let is_kept = props.delivery == DeliveryMode::Kept;
    let own = own_host();
    let mut hosts: Vec<String> = props.nodes.nodes.iter().map(|node: &Node| node.name.clone()).collect();
    hosts.push(own.clone());
    Hello {
        version: props.version.to_owned(),
        job: props.job.clone(),
        command: props.command.clone(),
        interval_ns: props.interval_ns,
        exact_peaks: props.exact_peaks,
        variables: props.nodes.variables.clone(),
        hosts,
        recorder_pid: std::process::id(),
        recorder_host: own,
        recorder_boot: boot_id(),
        spool: props.spool.clone(),
        // One that follows orders ends by what it reads there.
        linger_ns: if is_kept { i64::MAX as u64 } else { 0 },
        silence_ns: if is_kept { KEPT_SILENCE.as_nanos() as u64 } else { 0 },
        stacks: props.stacks.as_ref().map(crate::stack_order::encode).unwrap_or_default(),
        ..Hello::default()
    }
}
