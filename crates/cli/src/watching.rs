//! What `run`, `attach` and `memory_logger` share: options of watching, and a watch from begin to end.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use floodmark_event::text::shell_word;
use floodmark_event::units::{format_count, format_duration_ns, parse_duration_ns};
use floodmark_sampler::{
    Exit, Launch, Marks, Observer, Outcome, Pace, PeakMode, RecordedStacks, StackProps, StackReport,
    StackTaker, TailSink, WatchProps, attach, run,
};
use floodmark_store::{Losses, Manifest, Trace};
use floodmark_tail::clock::Anchor;
use floodmark_view::{Report, RunCost, RunSummary, document, plain, signal_name};

use crate::exit::ExitStatus;
use crate::pass::losses;
use crate::printer::Printer;
use crate::recording::{Place, Recording, anchor, filled_in, name_of_run};
use crate::run_memory::{self, PROCESSES};
use crate::whole_file::is_standard;

/// Processes that a summary shows.
const PROCESS_ROWS: usize = 5;

/// Shortest interval that can be kept.
const SHORTEST_NS: u64 = 100_000;
/// Longest interval that makes sense.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Where the trace goes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Trace")]
pub(crate) struct TraceArgs {
    /// Write the trace here, as in run.flood or run-%r.flood [default: the command's name, its rank in an MPI
    /// job and, if there is one already, a number]
    ///
    /// %r is the rank in an MPI job, 0 without one; %h the host, %p our process, %% a percent sign
    #[arg(short, long, value_name = "NAME.flood")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the trace if it exists
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    /// Write the summary as JSON to this file too, which may have %r; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl TraceArgs {
    /// The same for whoever records.
    pub(crate) fn place(&self, program: &str) -> Place {
        match &self.output {
            None => Place::Numbered(name_of_run(program)),
            Some(path) if self.overwrite => Place::Over(filled_in(path)),
            Some(path) => Place::New(filled_in(path)),
        }
    }

    /// Where to write the summary for programs.
    pub(crate) fn json(&self) -> Option<PathBuf> {
        self.json.as_deref().map(filled_in)
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
    /// what the kernel says at the end of a process (`ru_maxrss`, as 'time -v' prints it) is then the peak
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

impl SamplingArgs {
    /// The same as one would type it.
    pub(crate) fn options(&self) -> Vec<OsString> {
        let interval_ns = self.interval.or(self.repeat_rate);
        let interval = interval_ns.map(|ns| ["--interval".into(), format!("{ns}ns").into()]);
        let exact = self.exact_peaks.then(|| OsString::from("--exact-peaks"));
        interval.into_iter().flatten().chain(exact).collect()
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

/// A watch that is to be made.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) target: Target,
    pub(crate) props: WatchProps,
    /// Which stacks to take.
    pub(crate) stacks: Option<StackProps>,
    pub(crate) place: Place,
    /// The command as one would type it.
    pub(crate) command: String,
    /// Where to write the summary for programs.
    pub(crate) json: Option<PathBuf>,
    /// What to type next, before the name of the trace.
    pub(crate) next: &'static str,
}

impl Watch {
    /// Watches, completes the trace and sums up. The exit code is the command's.
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        // A path that cannot be written is better known before hours of work than after.
        let json = self.json.as_ref().map(|path| JsonFile::create(path)).transpose()?;
        let next = self.next;
        let is_command = matches!(self.target, Target::Command(_));
        let watched = match self.watch() {
            Ok(watched) => watched,
            Err(error) => return Ok(not_started(&error, printer)),
        };
        let exit = watched.outcome.exit.filter(|_| is_command);
        if let Err(error) = &watched.manifest {
            printer.error(error);
        }
        if json.is_some() || printer.speaks() {
            let report = summary(&watched, printer);
            printer.say(report.text(&printer.remark_layout(PROCESS_ROWS)).trim_end());
            let trace = watched.trace.display().to_string();
            let trace = shell_word(&trace);
            printer.say(&format!("\nnext: {}", printer.literal(&format!("{next} {}", plain(&trace)))));
            if let Some(json) = json
                && let Err(error) = json.write(&document(&[report]), printer)
            {
                printer.error(&error);
            }
        }
        Ok(exit.map_or(ExitStatus::Success, ExitStatus::External))
    }

    fn watch(self) -> Result<Watched> {
        let Self { target, props, stacks, place, command, .. } = self;
        let mut stacks =
            stacks.map(|props| StackTaker::open(props, RecordedStacks::default())).transpose()?;
        let recording = Recording::start(&place, command.clone())?;
        let sink = &mut TailSink;
        let mut nobody = ();
        let observer: &mut dyn Observer = match &mut stacks {
            Some(taker) => taker,
            None => &mut nobody,
        };
        let outcome = match &target {
            Target::Command(launch) => run(launch, &props, sink, observer),
            Target::Process(pid) => attach(*pid, &props, sink, observer),
        };
        // While the recording still goes on: names of functions are found last.
        let stacks = stacks.map(|taker| taker.finish().0);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                recording.discard();
                return Err(error.into());
            }
        };
        let trace = recording.trace().to_owned();
        let manifest = recording.finish(&outcome);
        Ok(Watched { command, outcome, stacks, trace, manifest })
    }
}

/// A watch that is over.
struct Watched {
    command: String,
    outcome: Outcome,
    stacks: Option<StackReport>,
    trace: PathBuf,
    /// What the trace consists of, or why it is not complete.
    manifest: Result<Manifest>,
}

/// What there is to say of a watch.
fn summary(watched: &Watched, printer: &Printer) -> Report<RunSummary> {
    let Watched { command, outcome, stacks, trace, manifest } = watched;
    let anchor = manifest.as_ref().ok().and_then(anchor).unwrap_or_else(Anchor::now);
    let found = Trace::open(trace).map_err(anyhow::Error::new);
    let found = found.and_then(|trace| run_memory::of(&trace, Some(PROCESSES)));
    let found = found.unwrap_or_else(|error| {
        printer.error(&error);
        None
    });
    let (memory, lost) =
        found.unwrap_or_else(|| (run_memory::of_outcome(outcome, &anchor), Losses::default()));
    let lost = manifest.as_ref().map_or(lost, Manifest::all_losses);
    let summary = RunSummary {
        command: Some(command.clone()),
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
            peak_pss_error_bytes: outcome.peaks.total.map(|total| total.error_bytes),
        },
        memory: run_memory::with_outcome(memory, outcome, &anchor),
        notes: outcome
            .notes
            .iter()
            .map(ToString::to_string)
            .chain(stacks.iter().flat_map(stack_notes))
            .collect(),
    };
    Report::new(trace.display().to_string(), losses(&lost), summary)
}

/// What there is to say of stacks: how many, what they cost, what is missing.
fn stack_notes(report: &StackReport) -> Vec<String> {
    let StackReport { takings, stacks, longest_pause_ns, .. } = report;
    let taken = format!(
        "{} stacks were taken at {} moments; no thread was held up for longer than {}",
        format_count(*stacks),
        format_count(*takings),
        format_duration_ns(*longest_pause_ns)
    );
    std::iter::once(taken).chain(report.notes()).collect()
}

/// A file for the summary.
enum JsonFile {
    File(PathBuf, File),
    Stdout,
}

impl JsonFile {
    fn create(path: &Path) -> Result<Self> {
        if is_standard(path) {
            return Ok(Self::Stdout);
        }
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self::File(path.to_owned(), file))
    }

    fn write(self, text: &str, printer: &Printer) -> Result<()> {
        match self {
            Self::Stdout => printer.data(text),
            Self::File(path, mut file) => {
                file.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))
            }
        }
    }
}

/// Prints an error that kept a command from starting, and gives the exit code a shell would.
fn not_started(error: &anyhow::Error, printer: &Printer) -> ExitStatus {
    printer.error(error);
    let code =
        error.downcast_ref::<floodmark_sampler::Error>().map_or(2, floodmark_sampler::Error::exit_code);
    ExitStatus::External(Exit::Code(code))
}
