//! Options that name the nodes of a job and the means to start agents there.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_cluster::{ClusterProps, DeliveryMode, Launcher, NodeEvent, NodeSource, new_job};
use floodmark_event::units::parse_duration_ns;
use floodmark_sampler::{Pace, PeakMode, StackProps, WatchProps};
use floodmark_view::plain;

/// Nodes of a job that are recorded too.
#[expect(clippy::struct_excessive_bools, reason = "they are options")]
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Nodes of a job")]
pub(crate) struct ClusterArgs {
    /// Record all nodes of this job of PBS
    #[arg(long, group = "nodes")]
    pub(crate) pbs: bool,
    /// Record all nodes of this job of Slurm
    #[arg(long, group = "nodes")]
    slurm: bool,
    /// Record these hosts by ssh, as in a,b,c or n[1-4]
    #[arg(long, group = "nodes", value_name = "HOSTS")]
    hosts: Option<String>,
    /// Record the hosts that this file names, one in each line
    #[arg(long, group = "nodes", value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// Find the scheduler whose job this is
    #[arg(long, group = "nodes", value_name = "HOW")]
    cluster: Option<ClusterChoice>,
    /// Start agents by these means [default: srun in a job of Slurm, else ssh]
    #[arg(long, value_name = "MEANS", requires = "nodes")]
    launcher: Option<LauncherChoice>,
    /// Path of Floodmark on the nodes [default: the same as here]
    #[arg(long, value_name = "PATH", requires = "nodes")]
    node_program: Option<String>,
    /// Copy Floodmark by ssh to nodes that lack it
    #[arg(long, requires = "nodes", conflicts_with = "node_program")]
    push: bool,
    /// Directory on the nodes for what is not delivered yet [default: /tmp]
    #[arg(long, value_name = "DIR", requires = "nodes")]
    spool: Option<String>,
    /// Let agents write to DIR, which all nodes share, and send nothing; 'floodmark collect' adds it to the trace
    #[arg(long, value_name = "DIR", requires = "nodes", conflicts_with_all = ["spool", "push"])]
    spool_only: Option<PathBuf>,
    /// Do not start the command unless all nodes can be recorded
    #[arg(long, requires = "nodes")]
    require_nodes: bool,
    /// Wait at most this long for agents before the command starts [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, requires = "nodes")]
    agent_timeout: Option<u64>,
}

/// How to find the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClusterChoice {
    /// By the environment that PBS or Slurm set
    Auto,
}

/// Means to start agents.
#[expect(clippy::doc_markdown, reason = "it is help, with names of programs in it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LauncherChoice {
    /// ssh, with pbs_attach in a job of PBS that has it
    Ssh,
    /// srun --overlap
    Srun,
    /// pbs_tmrsh, with messages through files beside the trace
    #[value(name = "pbs_tmrsh")]
    PbsTmrsh,
    /// pbsdsh, with messages through files beside the trace
    Pbsdsh,
}

/// How long agents may take to deliver the rest after the command has ended.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

impl ClusterArgs {
    /// The nodes of the job of PBS that this runs in, if it does.
    pub(crate) fn of_pbs() -> Self {
        Self { pbs: true, ..Self::default() }
    }

    fn source(&self) -> Option<NodeSource> {
        Some(match (&self.hosts, &self.hostfile) {
            (Some(hosts), _) => NodeSource::Hosts(vec![hosts.clone()]),
            (_, Some(file)) => NodeSource::Hostfile(file.clone()),
            _ if self.pbs => NodeSource::Pbs,
            _ if self.slurm => NodeSource::Slurm,
            _ => self.cluster.map(|ClusterChoice::Auto| NodeSource::Auto)?,
        })
    }

    /// Returns how to record the nodes; none if there are none.
    pub(crate) fn props(
        &self,
        command: &str,
        watch: &WatchProps,
        stacks: Option<&StackProps>,
    ) -> Result<Option<ClusterProps>> {
        let Some(source) = self.source() else { return Ok(None) };
        let nodes = source.nodes(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
        let launcher = self.launcher.map(|launcher| match launcher {
            LauncherChoice::Ssh => Launcher::Ssh,
            LauncherChoice::Srun => Launcher::Srun,
            LauncherChoice::PbsTmrsh => Launcher::PbsTmrsh,
            LauncherChoice::Pbsdsh => Launcher::Pbsdsh,
        });
        Ok(Some(ClusterProps {
            nodes,
            launcher,
            program: self.node_program.clone(),
            pushes: self.push,
            spool: match &self.spool_only {
                Some(directory) => std::path::absolute(directory)?.display().to_string(),
                None => self.spool.clone().unwrap_or_default(),
            },
            delivery: if self.spool_only.is_some() { DeliveryMode::Kept } else { DeliveryMode::Sent },
            // Known once the trace has its name.
            exchange: PathBuf::new(),
            interval_ns: match watch.pace {
                Pace::Fixed { interval_ns } => interval_ns,
                Pace::Adaptive { .. } => 0,
            },
            exact_peaks: watch.peaks == PeakMode::Exact,
            stacks: stacks.cloned(),
            job: new_job()?,
            command: command.to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            start_patience: Duration::from_nanos(self.agent_timeout.unwrap_or(30_000_000_000)),
            stop_patience: STOP_PATIENCE,
            requires_all: self.require_nodes,
            on_event: report,
        }))
    }
}

/// Tells what happened to a node while the command runs.
fn report(event: &NodeEvent) {
    let text = match event {
        NodeEvent::Failed { node, reason, remedy } => {
            let remedy = remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
            format!("node {node} is not recorded: {reason}{remedy}")
        }
        NodeEvent::Lost { node, reason } => {
            format!("node {node} is lost: {reason}; recording of the other nodes goes on")
        }
        NodeEvent::Back { node } => format!("node {node} is back"),
        NodeEvent::Unwritten { reason } => {
            format!("what nodes send cannot be stored: {reason}; agents keep it, and it is tried again")
        }
        NodeEvent::Written => "what nodes send is stored again".to_owned(),
    };
    // A closed stderr is no reason to stop recording.
    let _ = writeln!(std::io::stderr(), "floodmark: {}", plain(&text));
}
