//! One recording from begin to end: starts or attaches, samples, completes the trace, sums up.

use std::path::{Path, PathBuf};

use floodmark_analyze::{GpuSummary, HeapSummary, RunCost, RunMemory, RunSummary, signal_name};
use floodmark_cluster::{Cluster, ClusterProps, NodeEnd, NodeReport};
use floodmark_event::units::format_duration_ns;
use floodmark_sampler::{
    Exit, Launch, Observer, Outcome, RecordedStacks, StackProps, StackReport, StackTaker, TailSink,
    WatchProps, attach, check_address_space, own_rank, run,
};
use floodmark_store::{Manifest, Run};
use floodmark_tail::clock::Anchor;

use crate::error::Result;
use crate::gpu::{GpuCapture, GpuProps, GpuReport};
use crate::heap::{HeapCapture, HeapProps, HeapReport, HeapSink};
use crate::memory;
use crate::recording::{Destination, Recording, anchor};

/// Address space that the recorder of a trace maps for its ring and for interned texts.
const RING_BYTES: usize = 432 << 20;

/// A recorder in a process of the command records into the trace that this variable names.
pub use floodmark_tail::heap::TRACE_VARIABLE;

/// Environment variable that names the trace whose recorder samples the processes of a command, so that they need not
/// do so themselves.
pub const SAMPLED_VARIABLE: &str = "FLOODMARK_SAMPLED";

/// What is watched.
#[derive(Debug)]
pub enum Target {
    /// A command that is to be started.
    Command(Launch),
    /// A process that runs already.
    Process(i32),
}

/// A recording that is to be made.
#[derive(Debug)]
pub struct Session {
    /// What is watched.
    pub target: Target,
    /// How to sample.
    pub props: WatchProps,
    /// Which stacks to take.
    pub stacks: Option<StackProps>,
    /// Where the trace goes.
    pub destination: Destination,
    /// The command as one would type it.
    pub command: String,
    /// Other nodes of the job, if it has any.
    pub cluster: Option<ClusterProps>,
    /// How to record the heap of a command from inside, if at all.
    pub heap: Option<HeapProps>,
    /// How to record its CUDA memory from inside, if at all.
    pub gpu: Option<GpuProps>,
}

impl Session {
    /// Returns a session with the usual sampling and without stacks.
    pub fn new(target: Target, destination: Destination, command: impl Into<String>) -> Self {
        let props = WatchProps::default();
        let command = command.into();
        Self { target, props, stacks: None, destination, command, cluster: None, heap: None, gpu: None }
    }

    /// Watches the target until it ends, and completes the trace.
    ///
    /// # Errors
    /// If the trace cannot be started or the target cannot be watched; nothing is left behind then.
    pub fn run(self) -> Result<Recorded> {
        let Self { mut target, mut props, stacks, mut destination, command, cluster, heap, gpu } = self;
        if cluster.is_some() {
            // One recorder is there for all nodes, even in the shell of a step, which has a rank.
            destination = destination.unshared();
        }
        let mut stacks =
            stacks.map(|props| StackTaker::open(props, RecordedStacks::default())).transpose()?;
        let heap = heap.map(HeapCapture::prepare).transpose()?;
        let gpu = gpu.map(|props| GpuCapture::prepare(props, heap.as_ref())).transpose()?;
        let job = cluster.as_ref().map(|cluster| cluster.job.clone());
        // Before the ring is mapped: what is allocated between that and the start of the command has no error to return.
        check_address_space(RING_BYTES)?;
        let recording = Recording::start(&destination, command.clone(), job)?;
        if let Target::Command(launch) = &mut target {
            let trace =
                std::path::absolute(recording.trace()).unwrap_or_else(|_| recording.trace().to_owned());
            launch.environment.push((SAMPLED_VARIABLE.into(), trace.clone().into()));
            launch.environment.push((TRACE_VARIABLE.into(), trace.into()));
            if let Some(heap) = &heap {
                heap.add_to(launch);
            }
            if let Some(gpu) = &gpu {
                gpu.add_to(launch);
            }
        }
        // Agents sample before the command starts.
        let cluster = match cluster.map(|cluster| start_agents(cluster, &recording)).transpose() {
            Ok(cluster) => cluster,
            Err(error) => {
                recording.discard();
                return Err(error);
            }
        };
        if let (Target::Command(launch), Some(cluster)) = (&mut target, &cluster) {
            launch.environment.extend(cluster.environment());
        }
        // Devices and control groups that several ranks see would count once for each of them.
        let mut claims = Vec::new();
        if !recording.claim("devices", &mut claims) {
            props.gpu_library = None;
        }
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        if !recording.claim(&format!("group{:016x}", hash(&groups)), &mut claims) {
            props.cgroup_root = Some("/dev/null".into());
        }
        let mut sink = HeapSink { inner: &mut TailSink, seen: heap.as_ref().map(HeapCapture::seen_programs) };
        let mut no_observer = ();
        let observer: &mut dyn Observer = match &mut stacks {
            Some(taker) => taker,
            None => &mut no_observer,
        };
        let outcome = match &target {
            Target::Command(launch) => run(launch, &props, &mut sink, observer),
            Target::Process(pid) => attach(*pid, &props, &mut sink, observer),
        };
        let seen = sink.seen.unwrap_or_default();
        // While the recording still goes on: names of functions are found last.
        let stacks = stacks.map(|taker| taker.finish().0);
        let nodes = cluster.map(Cluster::stop).unwrap_or_default();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                recording.discard();
                return Err(error.into());
            }
        };
        let trace = recording.trace().to_owned();
        drop(claims);
        let heap = heap.map(|heap| heap.finish(seen, outcome.processes.left > 0));
        let gpu = gpu.map(|gpu| gpu.finish(outcome.processes.left > 0));
        let is_job = recording.is_of_job();
        let finished = recording.finish(&outcome);
        let share = match finished {
            Ok(None) => TraceShare::Rank,
            _ if is_job => TraceShare::LastRank,
            _ => TraceShare::Whole,
        };
        let manifest = finished.map(|manifest| manifest.unwrap_or_else(|| Manifest::new(Run::default())));
        Ok(Recorded { command, outcome, stacks, trace, manifest, nodes, share, heap, gpu })
    }
}

/// Starts the agents of a job, which deliver into `recording`.
fn start_agents(mut props: ClusterProps, recording: &Recording) -> Result<Cluster> {
    let trace = std::path::absolute(recording.trace()).unwrap_or_else(|_| recording.trace().to_owned());
    props.exchange = trace.with_extension("nodes");
    Ok(Cluster::start(props, recording.inbox())?)
}

/// Hash of a text that is the same in all processes.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// How much of a trace a recording was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceShare {
    /// All of it.
    Whole,
    /// One rank of a job, the last one: the trace is complete.
    LastRank,
    /// One rank of a job; others still record, and the trace is not complete.
    Rank,
}

/// A recording that is over.
#[derive(Debug)]
pub struct Recorded {
    /// The command as one would type it.
    pub command: String,
    /// What the sampler found.
    pub outcome: Outcome,
    /// What became of stacks, if they were taken.
    pub stacks: Option<StackReport>,
    /// Directory of the trace.
    pub trace: PathBuf,
    /// The completed manifest, or why the trace could not be completed.
    pub manifest: Result<Manifest>,
    /// What became of other nodes.
    pub nodes: Vec<NodeReport>,
    /// Whether the trace is complete.
    pub share: TraceShare,
    /// What became of the recording of heaps, if they were recorded.
    pub heap: Option<HeapReport>,
    /// What became of the recording of CUDA memory, if it was recorded.
    pub gpu: Option<GpuReport>,
}

impl Recorded {
    /// Where the monotonic clock stands in UTC for this recording.
    pub fn anchor(&self) -> Anchor {
        self.manifest.as_ref().ok().and_then(anchor).unwrap_or_else(Anchor::now)
    }

    /// Says which nodes were recorded, and names those that were lost.
    fn node_notes(&self) -> Vec<String> {
        if self.nodes.is_empty() {
            return Vec::new();
        }
        let is_whole = |node: &&NodeReport| matches!(node.end, NodeEnd::Complete | NodeEnd::Spooled);
        let whole = self.nodes.iter().filter(is_whole).count();
        let all = self.nodes.len();
        let slowest = self.nodes.iter().filter_map(|node| node.ready_after).max().unwrap_or_default();
        let ready = format_duration_ns(slowest.as_nanos() as u64);
        let mut notes =
            vec![format!("{whole} of {all} nodes were recorded completely; agents were ready after {ready}")];
        let others = self.nodes.iter().filter(|node| !is_whole(node) || node.reconnects > 0);
        notes.extend(others.map(ToString::to_string));
        let spooled = self.nodes.iter().find(|node| node.end == NodeEnd::Spooled);
        if let Some(spools) = spooled.and_then(|node| Path::new(node.spool.as_ref()?).parent()) {
            let (trace, spools) = (self.trace.display(), spools.display());
            notes.push(format!(
                "what nodes recorded is in their spools; add it with 'floodmark collect -o {trace} {spools}'"
            ));
        }
        notes
    }

    /// Sums up what this recorder watched, one rank of a job, by what the sampler remembers: the trace has the other
    /// ranks too.
    pub fn rank_summary(&self) -> RunSummary {
        let rank = own_rank().map(u64::from);
        let mut summary = self.summary(None, None, None);
        summary.memory.rank = rank;
        summary.memory.process_list.iter_mut().for_each(|process| process.rank = rank);
        summary
    }

    /// Sums up the job that this was the last rank of; the samples of the trace show `memory`.
    fn job_summary(&self, memory: RunMemory) -> RunSummary {
        let run = self.manifest.as_ref().map(|manifest| manifest.run.clone()).unwrap_or_default();
        let span_ns = run.start_ns.zip(run.end_ns).map(|(start, end)| end.saturating_sub(start));
        RunSummary {
            command: run.command.or_else(|| Some(self.command.clone())),
            exit_status: run.exit_status,
            signal: None,
            start_time_ns: run.start_ns,
            duration_ns: span_ns.and_then(|ns| u64::try_from(ns).ok()),
            cost: RunCost::default(),
            memory,
            heap: None,
            gpu: None,
            notes: Vec::new(),
        }
    }

    /// Sums up; `memory` is what the samples of the trace show, or none if they cannot be read, and `heap` and `gpu` what
    /// was recorded from inside.
    pub fn summary(
        &self,
        memory: Option<RunMemory>,
        heap: Option<HeapSummary>,
        gpu: Option<GpuSummary>,
    ) -> RunSummary {
        let gpu = self.gpu.as_ref().zip(gpu).map(|(report, mut gpu)| {
            gpu.remarks.extend(report.remarks());
            gpu
        });
        let heap = self.heap.as_ref().zip(heap).map(|(report, heap)| report.complete(heap));
        if let (TraceShare::LastRank, Some(memory)) = (self.share, &memory) {
            return RunSummary { heap, gpu, ..self.job_summary(memory.clone()) };
        }
        let (outcome, anchor) = (&self.outcome, self.anchor());
        let memory = memory.unwrap_or_else(|| memory::of_outcome(outcome, &anchor));
        let notes = outcome.notes.iter().map(ToString::to_string);
        let stack_notes = self.stacks.iter().flat_map(StackReport::summary);
        RunSummary {
            command: Some(self.command.clone()),
            exit_status: outcome.exit.map(|exit| i32::from(exit.code())),
            signal: match outcome.exit {
                Some(Exit::Signal { number, .. }) => Some(signal_name(i32::from(number))),
                _ => None,
            },
            start_time_ns: Some(anchor.utc_ns(outcome.began_ns)),
            duration_ns: Some(outcome.duration_ns),
            cost: RunCost {
                sweeps: Some(outcome.cost.sweeps),
                left_out_sweeps: Some(outcome.cost.left_out_sweeps),
                longest_gap_ns: Some(outcome.cost.longest_gap_ns),
                left_processes: Some(outcome.processes.left),
                peak_pss_error_bytes: outcome
                    .peaks
                    .total
                    .filter(|_| self.nodes.is_empty())
                    .map(|total| total.error_bytes),
            },
            memory: memory::with_outcome(memory, outcome, &anchor, !self.nodes.is_empty()),
            heap,
            gpu,
            notes: self.node_notes().into_iter().chain(notes).chain(stack_notes).collect(),
        }
    }
}
