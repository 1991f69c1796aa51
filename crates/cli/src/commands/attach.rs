//! `floodmark attach`

use anyhow::Result;
use clap::Args;
use floodmark_event::text::shell_line;
use floodmark_event::units::parse_duration_ns;
use floodmark_record::{Session, Target};
use floodmark_sampler::WatchProps;

use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::stack_args::StackArgs;
use crate::watching::{Next, SamplingArgs, TraceArgs, Watch};

/// Record the memory of a running process and of everything it starts
///
/// Recording ends when the process and its descendants have ended, when the time is up, or at Ctrl-C; the
/// process itself goes on undisturbed. Its output is not recorded.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AttachArgs {
    /// PID of the process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Stop recording after this time, as in 30s or 5min
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration_ns, help_heading = "Sampling")]
    time: Option<u64>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    stacks: StackArgs,
    /// Refused, with the reason: a library is loaded only when a program starts
    #[arg(long, hide = true)]
    heap: bool,
    #[command(flatten)]
    trace: TraceArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark attach 4711
  floodmark attach 4711 --for 30s -o look.flood
  floodmark attach $(pgrep -n solver) --interval 100ms

Exit codes: 0 it was watched, 2 it could not be";

impl AttachArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        if self.heap {
            let hint = format!(
                "start the program under Floodmark: floodmark run --heap -- {}",
                command_of(self.pid)
            );
            return Err(hinted(
                "the heap of a running process cannot be recorded: the recording library is loaded when a program starts",
                hint,
            ));
        }
        let props = WatchProps { at_most_ns: self.time, ..self.sampling.props() };
        let destination = self.trace.destination(&format!("pid-{}", self.pid));
        let target = Target::Process(self.pid);
        let command = command_of(self.pid);
        let json = self.trace.json();
        let stacks = self.stacks.props();
        let session =
            Session { target, props, stacks, destination, command, cluster: None, heap: None, gpu: None };
        Watch { session, json, next: Next::Views }.run(printer)
    }
}

/// What the process was started as, or its number.
fn command_of(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let line = shell_line(words.map(String::from_utf8_lossy));
    if line.is_empty() { format!("process {pid}") } else { line }
}
