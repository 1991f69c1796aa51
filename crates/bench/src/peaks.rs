//! Short peaks of memory: who sees them, and at what cost.
//!
//! One program that knows its own peaks (60 of 5 ms, 128 MiB over 50 MiB), watched by `floodmark run` and
//! by what people use today, one after the other. A peak is seen if a sample of at least 150 MiB was
//! taken while it lasted; with `--exact-peaks`, if the kernel's mark of the sweep after it has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use floodmark_event::{Metric, SampleRow};
use floodmark_store::{ScanProps, Trace};
use floodmark_tail::clock::Anchor;

use crate::measure::{self, Samples};

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Props {
    /// The `floodmark` to measure
    #[arg(long, default_value = "target/release/floodmark")]
    floodmark: PathBuf,
    /// Python that has `memory_profiler` and `psrecord`; without it they are left out, and the output says so
    #[arg(long)]
    python: Option<PathBuf>,
}

const PEAKS: u32 = 60;
const HOLD_S: f64 = 0.005;
const GAP_S: f64 = 0.06;
const THRESHOLD_BYTES: u64 = 150 << 20;
/// How far a clock read by another process may be off.
const TOLERANCE_NS: i64 = 500_000;
/// A mark is read at most so long after its peak.
const MARK_NS: i64 = 40_000_000;

/// Runs everything and prints a table.
pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    let bench = Bench { props, folder: fs::canonicalize(folder)?, saw: compile(folder)? };
    let load = || fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "Peaks seen of {PEAKS}, highest value reported, times a second that memory was read, CPU of the watcher"
    );
    println!(
        "from its start to its end: median (least–most) of {repeat}. Load at the begin: {}",
        load().trim_end()
    );
    println!("| watcher | peaks seen | highest, MiB | readings a second | CPU, % of one core |");
    println!("|---|---|---|---|---|");
    for (name, options) in [
        ("floodmark run", &[][..]),
        ("floodmark run --interval 10ms", &["--interval", "10ms"]),
        ("floodmark run --interval 2ms", &["--interval", "2ms"]),
        ("floodmark run --interval 10ms --exact-peaks", &["--interval", "10ms", "--exact-peaks"]),
    ] {
        bench.row(name, repeat, || bench.floodmark(options))?;
    }
    if let Some(python) = &props.python {
        bench.row("mprof run -T 0.01", repeat, || bench.mprof(python))?;
        bench.row("psrecord --interval 0.01 --include-children", repeat, || bench.psrecord(python))?;
    } else {
        println!("\nmprof and psrecord were left out: no --python");
    }
    println!("Load at the end: {}", load().trim_end());
    Ok(())
}

fn compile(folder: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sampler/tests/it/programs/saw.c");
    let saw = fs::canonicalize(folder)?.join("saw");
    let status =
        Command::new("cc").args(["-O2", "-o"]).arg(&saw).arg(source).status().context("starting cc")?;
    ensure!(status.success(), "cc failed");
    Ok(saw)
}

/// What a watcher saw and used.
struct Row {
    /// When, in nanoseconds since 1970, and bytes.
    samples: Vec<(i64, u64)>,
    /// Marks of the kernel, in the same form, where they were reset with every sweep.
    marks: Vec<(i64, u64)>,
    highest_bytes: u64,
    /// How often memory was read.
    readings: u64,
    wall_s: f64,
    /// CPU of watcher and program.
    cpu_s: f64,
}

struct Bench<'a> {
    props: &'a Props,
    folder: PathBuf,
    saw: PathBuf,
}

impl Bench<'_> {
    fn truth(&self) -> PathBuf {
        self.folder.join("saw.truth")
    }

    /// Where the program says how much CPU it took itself.
    fn own_cpu(&self) -> PathBuf {
        self.folder.join("saw.cpu")
    }

    fn words(&self) -> [String; 6] {
        let [saw, truth, own] =
            [&self.saw, &self.truth(), &self.own_cpu()].map(|path| path.display().to_string());
        [saw, PEAKS.to_string(), HOLD_S.to_string(), GAP_S.to_string(), truth, own]
    }

    fn row(&self, name: &str, repeat: usize, watch: impl Fn() -> Result<Row>) -> Result<()> {
        let [mut peaks, mut highest, mut rate, mut cpu] = std::array::from_fn(|_| Samples::default());
        for _ in 0..repeat {
            let seen = watch().with_context(|| name.to_owned())?;
            let truth = self.read_truth()?;
            peaks.push(truth.iter().filter(|hold| seen.has(**hold)).count() as f64);
            highest.push(seen.highest_bytes as f64 / f64::from(1 << 20));
            rate.push(seen.readings as f64 / seen.wall_s);
            // Of this very run: it differs from run to run by more than a watcher takes.
            let own_cpu_s: f64 = fs::read_to_string(self.own_cpu())?.trim().parse()?;
            cpu.push((seen.cpu_s - own_cpu_s) / seen.wall_s * 100.0);
        }
        println!("| {name} | {} | {} | {} | {} |", peaks.text(0), highest.text(1), rate.text(0), cpu.text(1));
        Ok(())
    }

    /// Begin and end of each peak, in nanoseconds since 1970.
    fn read_truth(&self) -> Result<Vec<(i64, i64)>> {
        let anchor = Anchor::now();
        let text = fs::read_to_string(self.truth())?;
        let times = text.lines().map(|line| {
            let (begin, end) = line.split_once(' ').with_context(|| format!("reading {line:?}"))?;
            let utc =
                |seconds: &str| -> Result<i64> { Ok(anchor.utc_ns((seconds.parse::<f64>()? * 1e9) as u64)) };
            Ok((utc(begin)?, utc(end)?))
        });
        times.collect()
    }

    fn floodmark(&self, options: &[&str]) -> Result<Row> {
        let trace = self.folder.join("saw.flood");
        let _ = fs::remove_dir_all(&trace);
        let mut command = Command::new(&self.props.floodmark);
        let summary = self.folder.join("saw.json");
        command.args(["run", "--quiet", "--json"]).arg(&summary).arg("-o").arg(&trace).args(options);
        let usage = measure::run(command.arg("--").args(self.words()))?;
        let summary = fs::read_to_string(&summary)?;
        let readings = number_after(&summary, "\"sweeps\":").context("sweeps in the summary")?;
        let mut rows = Trace::open(&trace)?.rows::<SampleRow>(&ScanProps::default())?;
        let (mut samples, mut marks, mut highest_bytes, mut batch) = (Vec::new(), Vec::new(), 0, Vec::new());
        while rows.next(&mut batch)? {
            for SampleRow { time_ns, metric, value, .. } in batch.drain(..) {
                match metric {
                    Metric::Rss => samples.push((time_ns, value)),
                    Metric::Hwm => marks.push((time_ns, value)),
                    _ => continue,
                }
                highest_bytes = highest_bytes.max(value);
            }
        }
        if !options.contains(&"--exact-peaks") {
            marks.clear(); // they only ever rise, and say nothing about single peaks
        }
        Ok(Row { samples, marks, highest_bytes, readings, wall_s: usage.wall_s, cpu_s: usage.cpu_s })
    }

    fn mprof(&self, python: &Path) -> Result<Row> {
        let log = self.folder.join("saw.dat");
        // It would add to what is there.
        let _ = fs::remove_file(&log);
        let mut command = Command::new(python);
        command.args(["-m", "mprof", "run", "-T", "0.01", "-o"]).arg(&log).args(self.words());
        let usage = measure::run(&mut command)?;
        // MEM mebibytes seconds-since-1970
        let text = fs::read_to_string(&log)?;
        let samples = text.lines().filter_map(|line| {
            let mut words = line.strip_prefix("MEM ")?.split(' ');
            let (mebibytes, seconds): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(((seconds * 1e9) as i64, (mebibytes * f64::from(1 << 20)) as u64))
        });
        Ok(Row::of(samples.collect(), usage))
    }

    fn psrecord(&self, python: &Path) -> Result<Row> {
        let log = self.folder.join("saw.psrecord");
        let mut command = Command::new(python);
        // Its module has no way in of its own.
        command.args([
            "-c",
            "from psrecord.main import main; main()",
            "--interval",
            "0.01",
            "--include-children",
            "--log",
        ]);
        command.arg(&log).arg(self.words().join(" "));
        let begin = Anchor::now();
        let begin_ns = begin.utc_ns(floodmark_tail::clock::monotonic_ns());
        let usage = measure::run(&mut command)?;
        // seconds-since-its-own-start cpu mebibytes virtual: the start is not in the log, so the best
        // alignment over the first second is taken, in its favor.
        let text = fs::read_to_string(&log)?;
        let samples: Vec<(i64, u64)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let (seconds, _cpu, mebibytes): (f64, f64, f64) =
                    (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                Some((begin_ns + (seconds * 1e9) as i64, (mebibytes * f64::from(1 << 20)) as u64))
            })
            .collect();
        let truth = self.read_truth()?;
        let shifted = |shift: i64| -> Vec<(i64, u64)> {
            samples.iter().map(|(time, bytes)| (time + shift, *bytes)).collect()
        };
        let best = (0..1_000).map(|shift| shifted(shift * 1_000_000)).max_by_key(|samples| {
            let seen = Row::of(samples.clone(), usage);
            truth.iter().filter(|hold| seen.has(**hold)).count()
        });
        Ok(Row::of(best.unwrap_or_default(), usage))
    }
}

/// The number that follows a key of a JSON text.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let rest = text.split_once(key)?.1.trim_start();
    rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

impl Row {
    fn of(samples: Vec<(i64, u64)>, usage: measure::Usage) -> Self {
        let highest_bytes = samples.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let readings = samples.len() as u64;
        Self { samples, marks: Vec::new(), highest_bytes, readings, wall_s: usage.wall_s, cpu_s: usage.cpu_s }
    }

    fn has(&self, (begin_ns, end_ns): (i64, i64)) -> bool {
        let within = |list: &[(i64, u64)], late_ns: i64| {
            let span = begin_ns - TOLERANCE_NS..=end_ns + late_ns;
            list.iter().any(|(time_ns, bytes)| span.contains(time_ns) && *bytes >= THRESHOLD_BYTES)
        };
        within(&self.samples, TOLERANCE_NS) || within(&self.marks, MARK_NS)
    }
}
