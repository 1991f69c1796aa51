//! What watching costs, and what it sees of short peaks, on this machine as it is now.
//!
//! `cargo run --release -p floodmark-sampler --example measure`; results on standard error, because
//! standard output is what a watched command's output is passed on to (send it to `/dev/null`).

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use floodmark_event::{Metric, OutputStream, Subject, SubjectEnd, SubjectId, SubjectKind};
use floodmark_sampler::{Capture, Launch, Memory, Outcome, Pace, PeakMode, Sink, WatchProps, run};

const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("floodmark-measure-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = measure(&folder);
    fs::remove_dir_all(&folder)?;
    result
}

fn measure(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stderr().lock();
    let family = compile(folder, "family.c")?;
    let saw = compile(folder, "saw.c")?;
    writeln!(out, "100 sleeping processes, 8 s: own processor time in percent of a core")?;
    let steady = |ns| Pace::Adaptive { usual_ns: ns, shortest_ns: ns, longest_ns: ns };
    let paces = [
        ("default", Pace::default()),
        ("100 Hz, still processes rest", steady(10 * MS)),
        ("100 Hz fixed", Pace::Fixed { interval_ns: 10 * MS }),
        ("1 kHz, still processes rest", steady(MS)),
        ("1 kHz fixed", Pace::Fixed { interval_ns: MS }),
    ];
    for (name, pace) in paces {
        let props = WatchProps { pace, ..WatchProps::default() };
        let outcome =
            run(&Launch::new(&family, ["sleepers", "100", "8"]), &props, &mut Nobody::default(), &mut ())?;
        writeln!(out, "  {name:<32}{}", costs(&outcome))?;
    }
    writeln!(out, "60 peaks of 5 ms, 60 to 120 ms apart: how many sweeps saw, and own processor time")?;
    let paces = [
        ("default", Pace::default(), PeakMode::Kept),
        ("10 ms", Pace::Fixed { interval_ns: 10 * MS }, PeakMode::Kept),
        ("2 ms", Pace::Fixed { interval_ns: 2 * MS }, PeakMode::Kept),
        ("1 ms", Pace::Fixed { interval_ns: MS }, PeakMode::Kept),
        ("10 ms, exact peaks", Pace::Fixed { interval_ns: 10 * MS }, PeakMode::Exact),
        ("50 ms, exact peaks", Pace::Fixed { interval_ns: 50 * MS }, PeakMode::Exact),
    ];
    for (name, pace, peaks) in paces {
        let truth = folder.join("truth");
        let props = WatchProps { pace, peaks, ..WatchProps::default() };
        let mut seen = Memory::default();
        let launch = Launch::new(
            &saw,
            ["60", "0.005", "0.06"].map(Into::into).into_iter().chain([truth.clone().into_os_string()]),
        );
        let outcome = run(&launch, &props, &mut seen, &mut ())?;
        let count = teeth(&seen, &fs::read_to_string(truth)?, peaks);
        let highest = outcome.peaks.rss.bytes / MIB;
        writeln!(out, "  {name:<32}{count:>2} of 60, peak {highest} MiB, {}", costs(&outcome))?;
    }
    writeln!(out, "2 GB of output through pipes")?;
    let mut launch = Launch::new("head", ["-c", "2000000000", "/dev/zero"]);
    launch.capture = Capture::Pipes;
    let mut seen = Nobody::default();
    let outcome = run(&launch, &WatchProps::default(), &mut seen, &mut ())?;
    let rate = seen.bytes as f64 / outcome.duration_ns as f64 * 1e3;
    writeln!(out, "  {rate:.0} MB/s, {}", costs(&outcome))?;
    Ok(())
}

fn compile(folder: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs").join(name);
    let program = folder.join(name.trim_end_matches(".c"));
    let status =
        Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).arg("-lpthread").status()?;
    if status.success() { Ok(program) } else { Err(format!("{name} does not compile").into()) }
}

fn costs(outcome: &Outcome) -> String {
    let cost = &outcome.cost;
    let share = |ns: u64| 100.0 * ns as f64 / outcome.duration_ns as f64;
    format!(
        "{:.2} % ({:.2} % for totals), {} sweeps, {} late, {} left out, longest gap {} ms",
        share(cost.own_cpu_ns),
        share(cost.totals_cpu_ns),
        cost.sweeps,
        cost.late_sweeps,
        cost.left_out_sweeps,
        cost.longest_gap_ns / MS,
    )
}

/// How many peaks are in the samples: of resident memory, or of marks where those are exact.
fn teeth(seen: &Memory, truth: &str, peaks: PeakMode) -> usize {
    let is_process =
        |one: &floodmark_sampler::sink::RecordedSubject| one.subject.kind == SubjectKind::Process;
    let process = seen.subjects.iter().position(is_process).map_or(0, |place| place as u32 + 1);
    let (metric, patience_ns) = match peaks {
        PeakMode::Kept => (Metric::Rss, 0),
        // A mark is read after the peak.
        PeakMode::Exact => (Metric::Hwm, 75 * MS),
    };
    let series = seen.series(SubjectId(process), metric);
    let mut count = 0;
    for line in truth.lines() {
        let times: Vec<u64> = line
            .split(' ')
            .filter_map(|time| time.parse::<f64>().ok())
            .map(|time| (time * 1e9) as u64)
            .collect();
        let [begin, end] = times[..] else { continue };
        // A value holds until the next.
        let last = series.iter().rposition(|(at, _)| *at <= end + patience_ns);
        let within = series.iter().filter(|(at, _)| (begin..=end + patience_ns).contains(at));
        let values = within.chain(last.map(|last| &series[last]));
        count += usize::from(values.map(|(_, value)| *value).max() > Some(170 * MIB));
    }
    count
}

/// Takes everything and keeps nothing.
#[derive(Default)]
struct Nobody {
    subjects: u32,
    bytes: u64,
}

impl Sink for Nobody {
    fn subject(&mut self, _at_ns: u64, _subject: &Subject) -> SubjectId {
        self.subjects += 1;
        SubjectId(self.subjects)
    }

    fn ended(&mut self, _at_ns: u64, _subject: SubjectId, _end: SubjectEnd) {}

    fn samples(&mut self, _at_ns: u64, _subject: SubjectId, _samples: &[(Metric, u64)]) {}

    fn output(&mut self, _at_ns: u64, _stream: OutputStream, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
    }

    fn mark(&mut self, _at_ns: u64, _name: &str) {}
}
