//! Options of sampling, and a recording from its start to its summary, as shared by `run`, `attach` and `memory_logger`.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use floodmark_analyze::RunSummary;
use floodmark_event::text::shell_word;
use floodmark_event::units::{format_duration_ns, parse_duration_ns};
use floodmark_inspect::gpu::gpu_summary;
use floodmark_inspect::heap::heap_summary;
use floodmark_inspect::run::PROCESSES;
use floodmark_inspect::{Answer, Input, OpenProps, OutOfMemoryOptions, Query};
use floodmark_record::{Destination, Recorded, Session, Target, TraceShare, filled_in, is_named_by_rank};
use floodmark_sampler::{Exit, Leftover, Marks, Pace, PeakMode, WatchProps};
use floodmark_store::{Losses, Manifest};
use floodmark_view::{AnswerText as _, document, plain, suggestions};

use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::whole_file::is_standard;

/// Time before a failed allocation whose changes are reported.
const RECENT_NS: u64 = 5_000_000_000;
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
    /// Write the trace here, as in run.flood or run-%r.flood [default: the command's name and, if there is one
    /// already, a number]
    ///
    /// Ranks of an MPI job record into one trace unless the name has %r or %p. %r is the rank in an MPI job, 0 without
    /// one; %h the host, %p our process, %% a percent sign
    #[arg(short, long, value_name = "NAME.flood")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the trace if it exists
    #[arg(long, requires = "output", alias = "overwrite")]
    pub(crate) force: bool,
    /// Write the summary as JSON to this file too; '-' is standard output
    ///
    /// With %r every rank of an MPI job writes its own summary, without it the last one writes that of the job
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl TraceArgs {
    /// Where the trace of `program` goes.
    pub(crate) fn destination(&self, program: &str) -> Destination {
        Destination::of_run(self.output.as_deref(), self.force, program)
    }

    /// Where to write the summary for programs.
    pub(crate) fn json(&self) -> Option<SummaryPath> {
        let path = self.json.as_deref()?;
        Some(SummaryPath { path: filled_in(path), is_of_rank: is_named_by_rank(path) })
    }
}

/// How to watch.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Sample at this fixed interval, as in 2ms [default: every 10ms, faster while memory changes, slower
    /// while it does not]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Option<u64>,
    /// Sample at this fixed interval in seconds, as in 0.25
    #[arg(long, hide = true, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "interval")]
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
    /// Returns the options as the sampler takes them.
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
    /// Returns the options as words of a command line.
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

/// Where to write the summary for programs.
#[derive(Clone, Debug)]
pub(crate) struct SummaryPath {
    pub(crate) path: PathBuf,
    /// Whether every rank of an MPI job has a file of its own.
    is_of_rank: bool,
}

/// A recording that is to be made and summed up.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) session: Session,
    /// Where to write the summary for programs.
    pub(crate) json: Option<SummaryPath>,
    /// Commands to suggest when the trace is complete.
    pub(crate) next: Next,
}

/// Commands that are suggested at the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The page, the chart and the rows of the trace.
    Views,
    /// The trace in the layout of the `memory_logger` script.
    ScriptLayout,
}

impl Next {
    /// Returns the commands, each with what it shows.
    fn commands(self, trace: &str, has_stacks: bool, has_heap: bool) -> Vec<(String, &'static str)> {
        match self {
            Self::Views if has_heap => vec![
                (format!("floodmark watermark {trace}"), "what held memory at the peak"),
                (format!("floodmark leaks {trace}"), "what was never freed"),
                (format!("floodmark flame {trace} -o flame.html"), "the peak as a flame graph"),
                (format!("floodmark report {trace}"), "an HTML page"),
            ],
            Self::ScriptLayout => vec![(format!("floodmark memory_logger --read {trace}"), "")],
            Self::Views => vec![
                (format!("floodmark report {trace}"), "an HTML page"),
                (format!("floodmark plot {trace}"), "a chart in the terminal"),
                if has_stacks {
                    (format!("floodmark read {trace} --stacks"), "every sample, with stacks")
                } else {
                    (format!("floodmark read {trace}"), "every sample")
                },
            ],
        }
    }
}

impl Watch {
    /// Records, completes the trace and sums up. The exit code is the command's.
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        // A path that cannot be written is better known before hours of work than after.
        let is_of_rank = self.json.as_ref().is_some_and(|json| json.is_of_rank);
        let json = self.json.as_ref().map(|json| JsonFile::create(&json.path)).transpose()?;
        let next = self.next;
        let mut session = self.session;
        session.props.on_leftover = printer.speaks().then_some(say_leftover);
        let is_command = matches!(session.target, Target::Command(_));
        let recorded = match session.run() {
            Ok(recorded) => recorded,
            Err(error) => return Ok(not_started(&error, printer)),
        };
        let exit = recorded.outcome.exit.filter(|_| is_command);
        if let Err(error) = &recorded.manifest {
            printer.error(error);
        }
        // The last rank of a job speaks for all.
        let is_complete = recorded.share != TraceShare::Rank;
        let report =
            (is_complete && (json.is_some() || printer.speaks())).then(|| summary(&recorded, printer));
        if let Some(report) = &report {
            printer.say(report.text(&printer.remark_layout(PROCESS_ROWS)).trim_end());
            let trace = recorded.trace.display().to_string();
            let has_stacks = recorded.stacks.iter().any(|report| report.stacks > 0);
            if report.result.gpu.as_ref().is_some_and(|gpu| gpu.failures > 0) {
                say_why_memory_ran_out(&recorded.trace, printer);
            }
            let has_heap = report.result.heap.as_ref().is_some_and(|heap| heap.allocations > 0);
            let has_gpu = report.result.gpu.as_ref().is_some_and(|gpu| gpu.allocations > 0);
            let next = next.commands(&plain(&shell_word(&trace)), has_stacks, has_heap || has_gpu);
            printer.say(&format!("\n{}", suggestions(&next, &printer.remark_layout(PROCESS_ROWS))));
        }
        let of_rank = is_of_rank.then(|| {
            Answer::new(recorded.trace.display().to_string(), &Losses::default(), recorded.rank_summary())
        });
        if let Some((json, report)) = json.zip(of_rank.or(report))
            && let Err(error) = json.write(&document(&[report]), printer)
        {
            printer.error(error.as_ref());
        }
        Ok(exit.map_or(ExitStatus::Success, ExitStatus::External))
    }
}

/// Says that a recording goes on after the end of its command, and how to end it.
fn say_leftover(left: &Leftover) {
    // A closed stderr is no reason to stop recording.
    let _ = writeln!(std::io::stderr(), "floodmark: {}", plain(&left.to_string()));
}

/// Explains the last allocation that failed, as 'floodmark oom' does.
fn say_why_memory_ran_out(trace: &Path, printer: &Printer) {
    let options = OutOfMemoryOptions { recent_ns: RECENT_NS, ..OutOfMemoryOptions::default() };
    let explained = Input::open(trace, &OpenProps::default())
        .and_then(|input| input.out_of_memory(&Query::default(), options));
    match explained {
        Ok(answer) => {
            let text = answer.text(&printer.remark_layout(PROCESS_ROWS));
            printer.say(&format!("\n{}", text.trim_end()));
        }
        Err(error) => printer.error(&error),
    }
}

/// Sums up a recording.
fn summary(recorded: &Recorded, printer: &Printer) -> Answer<RunSummary> {
    let input = Input::open(&recorded.trace, &OpenProps::default());
    let found = input.and_then(|input| input.run_memory(Some(PROCESSES)));
    let found = found.unwrap_or_else(|error| {
        printer.error(&error);
        None
    });
    let (memory, lost) =
        found.map_or_else(|| (None, Losses::default()), |(memory, losses)| (Some(memory), losses));
    let lost = recorded.manifest.as_ref().map_or(lost, Manifest::all_losses);
    let heap = recorded.heap.as_ref().map(|_| heap_summary(&recorded.trace)).transpose();
    let heap = heap.unwrap_or_else(|error| {
        printer.error(&error);
        None
    });
    let gpu = recorded.gpu.as_ref().map(|_| gpu_summary(&recorded.trace)).transpose();
    let gpu = gpu.unwrap_or_else(|error| {
        printer.error(&error);
        None
    });
    let summary = recorded.summary(memory, heap.flatten(), gpu);
    Answer::new(recorded.trace.display().to_string(), &lost, summary)
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
pub(crate) fn not_started(error: &floodmark_record::Error, printer: &Printer) -> ExitStatus {
    printer.error(error);
    ExitStatus::External(Exit::Code(error.exit_code()))
}
