//! What `run`, `attach` and `memory_logger` share: options of watching, and a watch from begin to end.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_event::units::{format_duration_ns, parse_duration_ns};
use floodmark_sampler::{Launch, Marks, Outcome, Pace, PeakMode, WatchProps, attach, run};

use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::recording::{Place, Recording, name_of};

/// Shortest interval that can be kept.
const SHORTEST_NS: u64 = 100_000;
/// Longest interval that makes sense.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Where the trace goes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Trace")]
pub(crate) struct TraceArgs {
    /// Write the trace here, as in run.flood [default: the command's name and, if there is one already,
    /// a number]
    #[arg(short, long, value_name = "NAME.flood")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the trace if it exists
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    /// Write the summary as JSON to this file too; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl TraceArgs {
    /// The same for whoever records.
    pub(crate) fn place(&self, program: &str) -> Place {
        match &self.output {
            None => Place::Numbered(name_of(program)),
            Some(path) if self.overwrite => Place::Over(path.clone()),
            Some(path) => Place::New(path.clone()),
        }
    }
}

/// How to watch.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Look exactly this often, as in 2ms [default: every 10ms, faster while memory moves, slower
    /// while it rests]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Option<u64>,
    /// The same in seconds, as in 0.25
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "interval")]
    pub(crate) repeat_rate: Option<u64>,
    /// Find the peak of every interval, not only the highest of each process
    ///
    /// Resets the kernel's high-water mark of every process whenever memory has come down from it. So
    /// what the kernel says at the end of a process (ru_maxrss, as 'time -v' prints it) is then the peak
    /// since the last reset, and a process that is mapping memory at that moment waits for microseconds
    #[arg(long)]
    pub(crate) exact_peaks: bool,
}

impl SamplingArgs {
    /// The same for whoever watches.
    pub(crate) fn props(&self) -> WatchProps {
        let interval_ns = self.interval.or(self.repeat_rate);
        WatchProps {
            pace: interval_ns.map_or_else(Pace::default, |interval_ns| Pace::Fixed { interval_ns }),
            peaks: if self.exact_peaks { PeakMode::Exact } else { PeakMode::Kept },
            ..WatchProps::default()
        }
    }
}

fn parse_interval(text: &str) -> Result<u64, String> {
    parse_duration_ns(text).and_then(within_bounds)
}

/// Parses seconds, which may have a fraction.
pub(crate) fn parse_seconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "write seconds such as 0.25".to_owned())?;
    if !(0.0..=LONGEST_NS as f64 / 1e9).contains(&seconds) {
        return Err("write seconds such as 0.25".into());
    }
    within_bounds((seconds * 1e9) as u64)
}

fn within_bounds(ns: u64) -> Result<u64, String> {
    if (SHORTEST_NS..=LONGEST_NS).contains(&ns) {
        return Ok(ns);
    }
    let (shortest, longest) = (format_duration_ns(SHORTEST_NS), format_duration_ns(LONGEST_NS));
    Err(format!("it must be between {shortest} and {longest}"))
}

/// Turns patterns into marks.
pub(crate) fn marks(patterns: &[String]) -> Result<Marks> {
    let mut marks = Marks::new();
    patterns.iter().try_for_each(|pattern| marks.add(pattern, None))?;
    Ok(marks)
}

/// What is watched.
#[derive(Debug)]
pub(crate) enum Target {
    /// A command that is to be started.
    Command(Launch),
    /// A process that runs already.
    Process(i32),
}

/// A watch that is over.
pub(crate) struct Watched {
    pub(crate) outcome: Outcome,
    pub(crate) trace: PathBuf,
    /// Why the trace is not complete, if it is not.
    pub(crate) failed: Option<anyhow::Error>,
}

/// Watches `target` into a trace.
///
/// # Errors
/// If it could not begin; then there is no trace.
pub(crate) fn watch(target: &Target, props: &WatchProps, place: &Place, command: String) -> Result<Watched> {
    let mut recording = Recording::start(place, command)?;
    let sink = recording.sink();
    let outcome = match target {
        Target::Command(launch) => run(launch, props, sink, &mut ()),
        Target::Process(pid) => attach(*pid, props, sink, &mut ()),
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            recording.discard();
            return Err(error.into());
        }
    };
    let trace = recording.trace().to_owned();
    let failed = recording.finish(&outcome).err();
    Ok(Watched { outcome, trace, failed })
}

/// Prints an error that kept a command from starting, and gives the exit code a shell would.
pub(crate) fn not_started(error: &anyhow::Error, printer: &Printer) -> ExitStatus {
    printer.error(error);
    let code =
        error.downcast_ref::<floodmark_sampler::Error>().map_or(2, floodmark_sampler::Error::exit_code);
    ExitStatus::External(floodmark_sampler::Exit::Code(code))
}
