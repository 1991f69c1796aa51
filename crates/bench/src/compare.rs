//! Two builds of Floodmark measured in alternation: reading a large trace, and recording an event.
//!
//! Every build reads traces that it imported itself, from the same logs: one of a single process, and one
//! of several processes that ran at the same time and have the same events among them. Builds take turns, so
//! that both meet the same load of the machine. CPU time counts where the machine is busy with other work.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use floodmark_testkit::Random;

use crate::measure::{self, Samples};

#[derive(Args)]
pub(crate) struct Props {
    /// Earlier build of `floodmark`
    #[arg(long)]
    old: PathBuf,
    /// Earlier build of `floodmark-bench`; compares recording as well
    #[arg(long)]
    old_bench: Option<PathBuf>,
    /// Events of a trace; 0 compares recording alone
    #[arg(long, default_value_t = 20_000_000)]
    events: u64,
    /// Processes of the second trace
    #[arg(long, default_value_t = 8)]
    processes: usize,
    /// Events of each measurement of recording
    #[arg(long, default_value_t = 5_000_000)]
    recorded: u64,
}

/// Microseconds between events.
const STEP_US: u64 = 5;

struct LiveBlock {
    thread: u64,
    address: u64,
    bytes: u64,
    stream: u64,
}

/// Writes all events to the first path, and each to one of the others: RMM logs of a thousand live blocks on
/// average, in waves, of four threads on eight streams, at addresses that are rarely used again.
fn write_logs(paths: &[PathBuf], events: u64) -> Result<()> {
    let create = |path: &PathBuf| Ok(BufWriter::with_capacity(1 << 20, File::create(path)?));
    let mut logs: Vec<BufWriter<File>> = paths.iter().map(create).collect::<Result<_>>()?;
    for log in &mut logs {
        writeln!(log, "Thread,Time,Action,Pointer,Size,Stream")?;
    }
    let processes = logs.len() as u64 - 1;
    let mut random = Random::new(11);
    let mut live: Vec<LiveBlock> = Vec::new();
    for at in 0..events {
        let wanted = 1000.0 + 900.0 * (at as f64 / events as f64 * 20.0).sin();
        let (action, block) = if live.len() as f64 > wanted && random.below(3) > 0 {
            let freed = random.below(live.len() as u64) as usize;
            ("free", live.swap_remove(freed))
        } else {
            let block = LiveBlock {
                thread: 100 + random.below(4),
                address: 0x7f00_0000_0000 + at % 4_000_000 * 0x40_0000,
                bytes: (1 + random.below(16)) * (256 << random.below(14)),
                stream: random.below(8),
            };
            ("allocate", block)
        };
        let (us, LiveBlock { thread, address, bytes, stream }) = (at * STEP_US, &block);
        let (seconds, us) = (us / 1_000_000, us % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let line = format!(
            "{thread},{hours:02}:{minutes:02}:{seconds:02}.{us:06},{action},{address:#x},{bytes},{stream:#x}\n"
        );
        let owner = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % processes.max(1);
        logs[0].write_all(line.as_bytes())?;
        if let Some(log) = logs.get_mut(1 + owner as usize) {
            log.write_all(line.as_bytes())?;
        }
        if action == "allocate" {
            live.push(block);
        }
    }
    logs.into_iter().try_for_each(|mut log| log.flush())?;
    Ok(())
}

/// Imports the logs with both builds, unless an earlier run did; returns the trace of one process and the trace
/// of several, each of both builds.
fn traces(programs: [&Path; 2], folder: &Path, props: &Props) -> Result<[[PathBuf; 2]; 2]> {
    let Props { events, processes, .. } = *props;
    let base = folder.join(format!("compare-{events}-{processes}"));
    fs::create_dir_all(&base)?;
    let names = (0..=processes).map(|at| if at == 0 { "all.csv".into() } else { format!("{at}.csv") });
    let logs: Vec<PathBuf> = names.map(|name| base.join(name)).collect();
    let is_written = base.join("logs-written");
    if !is_written.exists() {
        eprintln!("writing logs of {events} events to {} …", base.display());
        write_logs(&logs, events)?;
        fs::write(&is_written, "")?;
    }
    let import = |program: &Path, logs: &[PathBuf], name: &str| -> Result<PathBuf> {
        let trace = base.join(name);
        eprintln!("importing {} …", trace.display());
        let mut command = Command::new(program);
        measure::run(command.args(["import", "--force", "-q"]).args(logs).arg("-o").arg(&trace))?;
        Ok(trace)
    };
    let [old, new] = programs;
    Ok([
        [import(old, &logs[..1], "one-old.flood")?, import(new, &logs[..1], "one-new.flood")?],
        [import(old, &logs[1..], "several-old.flood")?, import(new, &logs[1..], "several-new.flood")?],
    ])
}

/// Wall and CPU seconds of both builds.
#[derive(Default)]
struct Seconds {
    wall: [Samples; 2],
    cpu: [Samples; 2],
}

pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    ensure!(props.processes > 0, "--processes must be at least 1");
    let program = measure::floodmark()?;
    if props.events > 0 {
        reading([&props.old, &program], folder, props, repeat)?;
    }
    if let Some(old) = &props.old_bench {
        recording([old, &std::env::current_exe()?], folder, props.recorded, repeat)?;
    }
    Ok(())
}

fn reading(programs: [&Path; 2], folder: &Path, props: &Props, repeat: usize) -> Result<()> {
    let traces = traces(programs, folder, props)?;
    let page = folder.join("compare.html");
    let commands = ["stats", "report"];
    let mut found: [[Seconds; 2]; 2] = Default::default();
    for round in 0..repeat {
        for (command, found) in commands.iter().zip(&mut found) {
            for (traces, found) in traces.iter().zip(found) {
                for (build, (program, trace)) in programs.iter().zip(traces).enumerate() {
                    eprintln!("round {} of {repeat}: {command} {}", round + 1, trace.display());
                    let mut run = Command::new(program);
                    run.arg(command).arg("-q").arg(trace);
                    if *command == "report" {
                        run.arg("--force").arg("-o").arg(&page);
                    }
                    let usage = measure::run(&mut run)?;
                    found.wall[build].push(usage.wall_s);
                    found.cpu[build].push(usage.cpu_s);
                }
            }
        }
    }
    println!("{} events; seconds: median (minimum–maximum) of {repeat}\n", props.events);
    println!("| command | processes | wall, old | wall, new | new / old | CPU, old | CPU, new | new / old |");
    println!("|---|---|---|---|---|---|---|---|");
    for (command, found) in commands.iter().zip(&found) {
        for (processes, Seconds { wall, cpu }) in [1, props.processes].iter().zip(found) {
            let cells = [wall, cpu].map(|[old, new]| {
                format!("{} | {} | ×{:.2}", old.text(2), new.text(2), new.median() / old.median())
            });
            println!("| {command} | {processes} | {} |", cells.join(" | "));
        }
    }
    println!();
    for (command, [one, several]) in commands.iter().zip(&found) {
        let ratio = |of: fn(&Seconds) -> &Samples| of(several).median() / of(one).median();
        let (wall, cpu) = (ratio(|seconds| &seconds.wall[1]), ratio(|seconds| &seconds.cpu[1]));
        println!(
            "{command}, {} processes / one process, new: wall ×{wall:.2}, CPU ×{cpu:.2}",
            props.processes
        );
    }
    fs::remove_file(page)?;
    Ok(())
}

/// Nanoseconds per recorded event, by shape of events and threads.
type Costs = Vec<(String, f64)>;

fn recording(benches: [&Path; 2], folder: &Path, events: u64, repeat: usize) -> Result<()> {
    let mut found: Vec<(String, [Samples; 2])> = Vec::new();
    for round in 0..repeat {
        for (build, bench) in benches.iter().enumerate() {
            eprintln!("round {} of {repeat}: {} recorder", round + 1, bench.display());
            for (at, (name, ns)) in record(bench, folder, events)?.into_iter().enumerate() {
                if at == found.len() {
                    found.push((name, Default::default()));
                }
                found[at].1[build].push(ns);
            }
        }
    }
    println!("\nCPU ns per recorded event: median (minimum–maximum) of {repeat} runs of {events} events\n");
    println!("| events, threads | old | new | new / old |");
    println!("|---|---|---|---|");
    for (name, [old, new]) in &found {
        println!("| {name} | {} | {} | ×{:.2} |", old.text(1), new.text(1), new.median() / old.median());
    }
    Ok(())
}

/// Runs the benchmark of the recorder once and reads the table that it prints.
fn record(bench: &Path, folder: &Path, events: u64) -> Result<Costs> {
    let mut command = Command::new(bench);
    command.args(["recorder", "--repeat", "1", "--events", &events.to_string(), "--folder"]).arg(folder);
    let output = command.output().with_context(|| format!("starting {}", bench.display()))?;
    ensure!(output.status.success(), "{} failed", bench.display());
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (shape, threads) = (cells.next()?, cells.next()?);
        let ns = cells.next()?.split(' ').next()?.parse().ok()?;
        Some((format!("{shape}, {threads}"), ns))
    });
    let costs: Costs = rows.collect();
    ensure!(!costs.is_empty(), "{} recorder prints no table", bench.display());
    Ok(costs)
}
