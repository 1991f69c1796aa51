//! How long taking stacks holds a program up, by the program's own clock.
//!
//! One thread of the target looks at the clock all the time. Its longest gap while stacks are taken is
//! the pause, if the machine was quiet; the longest gap in as much time before, when nothing happened,
//! says how quiet it was. Where the two are of the same size, the pause is not known.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use floodmark_event::{StackReason, SubjectId};
use floodmark_sampler::stacks::{StackTarget, TakenStack, Tool};
use floodmark_sampler::{StackMethod, StackProps, StackTaker};
use floodmark_tail::clock::monotonic_ns;

/// What to measure.
#[derive(Args)]
pub(crate) struct Props {
    /// Threads of the program whose stacks are taken
    #[arg(long, default_value_t = 8)]
    threads: u32,
    /// How often stacks are taken natively; debuggers are asked a fiftieth as often
    #[arg(long, default_value_t = 500)]
    times: u32,
    /// Python that runs the program in Python
    #[arg(long, default_value = "python3")]
    python: PathBuf,
}

const SCRIPT: &str = include_str!("../programs/heartbeat.py");
const SOURCE: &str = include_str!("../programs/heartbeat.c");

/// Prints the distribution of pauses, one method after another.
pub(crate) fn run(props: &Props, folder: &Path) -> Result<()> {
    let (source, program) = (folder.join("heartbeat.c"), folder.join("heartbeat"));
    fs::write(&source, SOURCE)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-g", "-fomit-frame-pointer", "-o"]).args([&program, &source]).arg("-lpthread");
    ensure!(compiler.status().context("running cc")?.success(), "cc failed");
    let script = folder.join("heartbeat.py");
    fs::write(&script, SCRIPT)?;
    println!("pauses of programs with {} threads in us", props.threads);
    println!("{:<34} {:>9} {:>9} {:>9} {:>9} {:>9}", "", "least", "median", "90 %", "99 %", "most");
    let few = props.times.div_ceil(50);
    let native = [(StackMethod::Native, props.times), (StackMethod::Python, props.times)];
    for (method, times) in native.into_iter().chain(Tool::ALL.map(|tool| (StackMethod::Tool(tool), few))) {
        let taker = match StackTaker::open(StackProps { method, ..StackProps::default() }, Vec::new()) {
            Ok(taker) => taker,
            Err(error) => {
                println!("{method:?}: {error}");
                continue;
            }
        };
        let file = folder.join("gaps.txt");
        let mut command = match method {
            StackMethod::Python => {
                let mut command = Command::new(&props.python);
                command.arg(&script);
                command
            }
            _ => Command::new(&program),
        };
        let target = start(command.arg(props.threads.to_string()).arg(&file))?;
        measure(method, taker, times, target, &file)?;
    }
    Ok(())
}

fn start(command: &mut Command) -> Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut target = command.spawn().context("starting the target")?;
    let mut ready = [0; 6];
    target.stdout.as_mut().context("its output")?.read_exact(&mut ready)?;
    Ok(target)
}

fn measure(
    method: StackMethod,
    mut taker: StackTaker<Vec<TakenStack>>,
    times: u32,
    mut target: Child,
    file: &Path,
) -> Result<()> {
    let process = target.id() as i32;
    let mut windows: Vec<(u64, u64)> = Vec::new();
    for _ in 0..times {
        // Long enough that as much time as it takes is free of the time before.
        let last_ns = windows.last().map_or(0, |(begin, end)| end - begin);
        std::thread::sleep(Duration::from_millis(10) + Duration::from_nanos(last_ns * 2));
        let begin = monotonic_ns();
        taker.take(StackTarget { process, subject: SubjectId(1) }, begin, StackReason::Interval);
        windows.push((begin, monotonic_ns()));
    }
    let (report, stacks) = taker.finish();
    drop(target.stdin.take());
    ensure!(target.wait()?.success(), "the target failed");
    let gaps = read_gaps(file)?;
    let longest = |begin: u64, end: u64| {
        let inside = gaps.iter().filter(|(at, length)| at + length > begin && *at < end);
        inside.map(|(_, length)| *length).max().unwrap_or(0)
    };
    let during = windows.iter().map(|(begin, end)| longest(*begin, *end)).collect();
    // The same length of time, five milliseconds earlier, or right before.
    let before = windows.iter().map(|(begin, end)| {
        let end_before = begin - 5_000_000;
        longest(end_before.saturating_sub(end - begin), end_before)
    });
    let took = windows.iter().map(|(begin, end)| end - begin).collect();
    let files = stacks.iter().flat_map(|stack| &stack.frames).map(|frame| frame.file.as_str());
    let scripted = files.filter(|file| file.ends_with(".py")).count();
    ensure!((method == StackMethod::Python) == (scripted > 0), "{scripted} frames of Python");
    println!("{method:?}: {} stacks, {} cut {}", report.stacks, report.cut, report.notes().join("; "));
    print("  by the target's clock", during);
    print("  noise: the same, nothing taken", before.collect());
    print("  by our clock, each thread", stacks.iter().map(|stack| stack.pause_ns).collect());
    print("  all threads, until all is copied", took);
    Ok(())
}

fn read_gaps(file: &Path) -> Result<Vec<(u64, u64)>> {
    let text = fs::read_to_string(file)?;
    let gap = |line: &str| {
        let (begin, length) = line.split_once(' ').context("two numbers")?;
        Ok((begin.parse()?, length.parse()?))
    };
    text.lines().map(gap).collect()
}

fn print(name: &str, mut values: Vec<u64>) {
    values.sort_unstable();
    let at = |share: f64| {
        let index = (values.len() as f64 * share) as usize;
        values.get(index.min(values.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64 / 1000.0)
    };
    let shares = [0.0, 0.5, 0.9, 0.99, 1.0].map(at);
    let [least, median, most90, most99, most] = shares;
    println!("{name:<34} {least:>9.1} {median:>9.1} {most90:>9.1} {most99:>9.1} {most:>9.1}");
}
