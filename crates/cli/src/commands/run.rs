//! `floodmark run`

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use floodmark_record::{Session, Target, words};
use floodmark_sampler::{Capture, Launch, WatchProps};

use crate::cluster_args::ClusterArgs;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::gpu_args::GpuArgs;
use crate::heap_args::HeapArgs;
use crate::printer::Printer;
use crate::stack_args::StackArgs;
use crate::watching::{Next, SamplingArgs, TraceArgs, Watch, marks};

/// Run a command and record its memory, output and stacks
///
/// The command runs as it would without Floodmark: same terminal, input, directory and signals. Every
/// process it starts is followed until the last one has ended. Memory, output and marks go into a trace, a
/// summary to standard error, and the exit code is the command's own. If a signal ends the command,
/// Floodmark ends by the same signal once the trace is complete.
///
/// Ranks of an MPI job that are each started under Floodmark record into one trace, through a directory that all of
/// them see.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The command and its arguments; options after it are its own
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "run",
        conflicts_with = "run",
        trailing_var_arg = true
    )]
    command: Vec<OsString>,
    /// Command as one string, split into words like a shell does; nothing else in it is interpreted
    #[arg(long, value_name = "COMMAND", help_heading = None)]
    run: Option<String>,
    /// Do not record the command's output
    #[arg(long, conflicts_with_all = ["pty", "mark"], help_heading = "Output of the command")]
    no_output: bool,
    /// Run the command in a pseudo-terminal, so that it writes as to a terminal
    #[arg(long, help_heading = "Output of the command")]
    pty: bool,
    /// Start a phase at every output line that matches this regular expression; repeatable
    #[arg(long, value_name = "REGEX", help_heading = "Output of the command")]
    mark: Vec<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    nodes: ClusterArgs,
    #[command(flatten)]
    heap: HeapArgs,
    #[command(flatten)]
    gpu: GpuArgs,
    #[command(flatten)]
    stacks: StackArgs,
    #[command(flatten)]
    trace: TraceArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark run -- ./solver -i input.i
  floodmark run -o run.flood --mark 'Time Step [0-9]+' -- ./solver -i input.i
  floodmark run --interval 2ms --json run.json -- ./solver
  floodmark run --stacks python -- python train.py
  floodmark run --heap -- ./solver -i input.i            (every malloc and free, with stacks)
  floodmark run --heap=sample -- ./server                (a sample of them, for production)
  floodmark run --gpu -- python train.py                 (every CUDA allocation, with stacks)
  floodmark run --heap --gpu -- ./solver                 (both, in one trace)
  floodmark run -- mpiexec -n 4 ./solver
  mpiexec -n 4 floodmark run -o job.flood -- ./solver
  floodmark run --cluster auto -- mpiexec ./solver       (all nodes of a job of PBS or Slurm)
  floodmark run --hosts node1,node2 -- mpiexec -host node1,node2 ./solver
  floodmark run --run \"./solver -i 'my input.i'\"

Exit codes: the command's own; 127 it was not found, 126 it could not be run, 2 Floodmark failed
before it started";

impl RunArgs {
    fn launch(&self) -> Result<Launch> {
        let mut words = match &self.run {
            None => self.command.clone(),
            Some(line) => {
                let words = words(line).map_err(|what| {
                    hinted(format!("--run '{line}' cannot be cut into words: {what}"), "check its quotes")
                })?;
                words.into_iter().map(OsString::from).collect()
            }
        };
        if words.is_empty() {
            return Err(hinted("there is no command to run", "write it after --"));
        }
        let program = words.remove(0);
        let capture = match (self.no_output, self.pty) {
            (true, _) => Capture::None,
            (false, true) => Capture::Terminal,
            (false, false) => Capture::Pipes,
        };
        Ok(Launch { capture, ..Launch::new(program, words) })
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let launch = self.launch()?;
        let props = WatchProps { marks: marks(&self.mark)?, ..self.sampling.props() };
        let destination = self.trace.destination(&launch.program.to_string_lossy());
        let command = launch.command_line();
        let target = Target::Command(launch);
        let json = self.trace.json();
        let stacks = self.stacks.props();
        let cluster = self.nodes.props(&command, &props, stacks.as_ref())?;
        let heap = self.heap.props();
        if heap.is_some() && cluster.is_some() {
            let hint = "start it on every node, as in: mpiexec floodmark run --heap -o job.flood -- ./solver";
            return Err(hinted("--heap records the processes of this host only", hint));
        }
        let gpu = self.gpu.props()?;
        if gpu.is_some() && cluster.is_some() {
            let hint = "start it on every node, as in: mpiexec floodmark run --gpu -o job.flood -- ./solver";
            return Err(hinted("--gpu records the processes of this host only", hint));
        }
        let session = Session { target, props, stacks, destination, command, cluster, heap, gpu };
        Watch { session, json, next: Next::Views }.run(printer)
    }
}
