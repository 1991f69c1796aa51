//! Watches a command and writes a report of samples, exits and figures: the program that the tests run.
//!
//! A process can watch only one tree at a time, and the watch owns its signals and children, so tests need a
//! process of its own for each watch.
//!
//! `floodmark-watch [OPTION=VALUE ...] -- COMMAND [ARGUMENT ...]`

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, ExitCode};

use floodmark_event::units::{parse_bytes, parse_duration_ns};
use floodmark_event::{OutputStream, SubjectKind};
use floodmark_sampler::stacks::{TakenStack, Tool};
use floodmark_sampler::{
    Capture, Discovery, Exit, Launch, Memory, Observer, Outcome, Pace, PeakMode, StackMethod, StackProps,
    StackReport, StackTaker, Sweep, Until, WatchProps, attach, run,
};

/// Options of the command line.
#[derive(Default)]
struct Options {
    props: WatchProps,
    capture: Capture,
    /// Path of the report.
    report: Option<String>,
    /// Prefix of the paths to which captured output is written, by stream.
    streams: Option<String>,
    attach: Option<i32>,
    observer: TestObserver,
    /// Whether the report has samples.
    samples: bool,
    /// Properties of taking stacks, if requested.
    stacks: Option<StackProps>,
}

fn main() -> ExitCode {
    match watch() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let code = error
                .downcast_ref::<floodmark_sampler::Error>()
                .map_or(2, floodmark_sampler::Error::exit_code);
            let _ = writeln!(std::io::stderr(), "floodmark-watch: {error}");
            ExitCode::from(code)
        }
    }
}

fn watch() -> Result<u8, Box<dyn Error>> {
    let mut options = Options::default();
    let mut arguments = std::env::args_os().skip(1);
    for argument in arguments.by_ref().take_while(|argument| argument != "--") {
        let argument = argument.to_string_lossy();
        let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
        options.set(name, value)?;
    }
    if options.observer.has_children {
        options.observer.start_child("0.05")?;
    }
    let mut memory = Memory::default();
    let mut observer = std::mem::take(&mut options.observer);
    observer.stacks = options.stacks.take().map(|props| StackTaker::open(props, Vec::new())).transpose()?;
    let outcome = match options.attach {
        Some(pid) => attach(pid, &options.props, &mut memory, &mut observer)?,
        None => {
            let program = arguments.next().ok_or("which command?")?;
            let launch = Launch { capture: options.capture, ..Launch::new(program, arguments) };
            run(&launch, &options.props, &mut memory, &mut observer)?
        }
    };
    let stacks = observer.stacks.take().map(StackTaker::finish);
    if let Some(path) = &options.report {
        let mut text = report(&memory, &outcome, &observer, options.samples)?;
        if let Some((report, stacks)) = &stacks {
            report_stacks(&mut text, report, stacks)?;
        }
        fs::write(path, text)?;
    }
    if let Some(path) = &options.streams {
        for stream in OutputStream::ALL {
            fs::write(format!("{path}.{}", stream.name()), memory.written(stream))?;
        }
    }
    for child in &mut observer.children {
        child.wait().map_err(|error| format!("our own child is gone: {error}"))?;
    }
    outcome.exit.inspect(|exit| exit.reraise());
    Ok(outcome.exit.map_or(0, Exit::code))
}

impl Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), Box<dyn Error>> {
        let props = &mut self.props;
        match name {
            "interval" => props.pace = Pace::Fixed { interval_ns: parse_duration_ns(value)? },
            "steady" => {
                let interval_ns = parse_duration_ns(value)?;
                let (usual_ns, shortest_ns, longest_ns) = (interval_ns, interval_ns, interval_ns);
                props.pace = Pace::Adaptive { usual_ns, shortest_ns, longest_ns };
            }
            "exact" => props.peaks = PeakMode::Exact,
            "scan" => props.discovery = Discovery::Scan,
            "until-command" => props.until = Until::Command,
            "at-most" => props.at_most_ns = Some(parse_duration_ns(value)?),
            "totals" => props.totals_share = value.parse()?,
            "cgroup" => props.cgroup_root = Some(value.into()),
            "gpu" => props.gpu_library = Some(value.into()),
            "mark" => props.marks.add(value, None)?,
            "pipes" => self.capture = Capture::Pipes,
            "terminal" => self.capture = Capture::Terminal,
            "report" => self.report = Some(value.into()),
            "streams" => self.streams = Some(value.into()),
            "attach" => self.attach = Some(value.parse()?),
            "samples" => self.samples = true,
            "children" => self.observer.has_children = true,
            "stacks" => {
                let tool = Tool::ALL.into_iter().find(|tool| tool.program() == value);
                let method = match (value, tool) {
                    ("python", _) => StackMethod::Python,
                    (_, Some(tool)) => StackMethod::Tool(tool),
                    _ => StackMethod::Native,
                };
                self.stacks.get_or_insert_default().method = method;
            }
            "stacks-interval" => {
                let when = &mut self.stacks.get_or_insert_default().when;
                (when.interval_ns, when.most_time) = (Some(parse_duration_ns(value)?), 1.0);
            }
            "ready" => self.observer.ready = Some(value.into()),
            "sweeps" => self.observer.count = Some(value.into()),
            "ready-rss" => self.observer.ready_rss = parse_bytes(value)?,
            _ => return Err(format!("unknown option {name}").into()),
        }
        Ok(())
    }
}

/// Counts sweeps, and creates files that tests wait for.
#[derive(Default)]
struct TestObserver {
    sweeps: u64,
    highest_rss: u64,
    /// File to create when more than `ready_rss` bytes are resident and 99 % of the total is certain.
    ready: Option<String>,
    ready_rss: u64,
    /// A file that holds the number of sweeps so far.
    count: Option<String>,
    /// Whether to start children that do not belong to the command.
    has_children: bool,
    children: Vec<Child>,
    stacks: Option<StackTaker<Vec<TakenStack>>>,
}

impl TestObserver {
    fn start_child(&mut self, seconds: &str) -> std::io::Result<()> {
        self.children.push(Command::new("sleep").arg(seconds).spawn()?);
        Ok(())
    }
}

impl Observer for TestObserver {
    fn started(&mut self, root: i32) {
        if let Some(stacks) = &mut self.stacks {
            stacks.started(root);
        }
    }

    fn swept(&mut self, sweep: &Sweep<'_>) {
        if let Some(stacks) = &mut self.stacks {
            stacks.swept(sweep);
        }
        self.sweeps += 1;
        if let Some(path) = &self.count {
            let _ = fs::write(path, self.sweeps.to_string());
        }
        self.highest_rss = self.highest_rss.max(sweep.rss_bytes);
        if self.has_children && self.sweeps < 5 {
            let _ = self.start_child("0.02");
        }
        let is_certain = self.ready_rss == 0 || sweep.total.error_bytes <= sweep.total.bytes / 100;
        if sweep.rss_bytes > self.ready_rss
            && is_certain
            && let Some(path) = self.ready.take()
        {
            let _ = fs::write(path, "");
        }
    }
}

/// The report: lines of fields separated by tabs, with text quoted as by Rust.
fn report(
    memory: &Memory,
    outcome: &Outcome,
    observer: &TestObserver,
    samples: bool,
) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    for (index, one) in memory.subjects.iter().enumerate() {
        let (id, subject) = (index + 1, &one.subject);
        let (kind, number, parent) = (subject.kind.name(), subject.number, subject.parent.0);
        let (name, detail) = (&subject.name, &subject.detail);
        writeln!(out, "subject\t{id}\t{kind}\t{number}\t{parent}\t{name:?}\t{detail:?}")?;
        if let Some((at_ns, end)) = one.end {
            let status = end.wait_status.map_or("-".into(), |status| status.to_string());
            let peak = end.peak_rss_bytes.map_or("-".into(), |peak| peak.to_string());
            writeln!(out, "end\t{id}\t{}\t{status}\t{peak}", at_ns.saturating_sub(one.at_ns))?;
        }
    }
    for sample in memory.samples.iter().filter(|_| samples) {
        let (at_ns, subject) = (sample.at_ns, sample.subject.0);
        writeln!(out, "sample\t{at_ns}\t{subject}\t{}\t{}", sample.metric.name(), sample.value)?;
    }
    for (at_ns, name) in &memory.marks {
        writeln!(out, "mark\t{at_ns}\t{name:?}")?;
    }
    for one in &outcome.largest {
        writeln!(out, "peak\t{}\t{:?}\t{}\t{:?}", one.pid, one.name, one.rss_bytes, one.known)?;
    }
    for note in &outcome.notes {
        writeln!(out, "note\t{note}")?;
    }
    let (peaks, processes, cost) = (&outcome.peaks, &outcome.processes, &outcome.cost);
    let total = peaks.total.unwrap_or_default();
    let reported = memory.subjects.iter().filter(|one| one.subject.kind == SubjectKind::Process).count();
    let figures = [
        ("exit", outcome.exit.map_or(0, |exit| u64::from(exit.code()))),
        ("duration_ns", outcome.duration_ns),
        ("rss", peaks.rss.bytes),
        ("rss_seen", peaks.rss_seen.bytes),
        ("total", total.peak.bytes),
        ("total_error", total.error_bytes),
        ("largest", peaks.largest_process_bytes),
        ("seen", processes.seen),
        ("reported", reported as u64),
        ("most", processes.most),
        ("unread", processes.unread),
        ("missed", processes.missed),
        ("vanished", processes.vanished),
        ("left", processes.left),
        ("own_cpu_ns", cost.own_cpu_ns),
        ("totals_cpu_ns", cost.totals_cpu_ns),
        ("sweeps", cost.sweeps),
        ("late", cost.late_sweeps),
        ("left_out", cost.left_out_sweeps),
        ("longest_gap_ns", cost.longest_gap_ns),
        ("observed", observer.sweeps),
        ("observed_rss", observer.highest_rss),
    ];
    for (name, value) in figures {
        writeln!(out, "figure\t{name}\t{value}")?;
    }
    Ok(out)
}

/// Appends stacks to the report: process, thread, trigger, functions from the innermost outwards.
fn report_stacks(out: &mut String, report: &StackReport, stacks: &[TakenStack]) -> std::fmt::Result {
    for stack in stacks {
        let names: Vec<&str> = stack.frames.iter().map(|frame| frame.function.as_str()).collect();
        let (process, thread, reason) = (stack.process, stack.thread, stack.reason.name());
        writeln!(out, "stack\t{process}\t{thread}\t{reason}\t{}", names.join(" "))?;
    }
    for note in report.notes() {
        writeln!(out, "note\t{note}")?;
    }
    let figures = [("takings", report.takings), ("stacks", report.stacks), ("cut", report.cut)];
    figures.into_iter().try_for_each(|(name, value)| writeln!(out, "figure\t{name}\t{value}"))
}
