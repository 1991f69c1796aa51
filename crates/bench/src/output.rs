//! A command's output on its way through us: how fast it goes, beside `cat` and `tee`.
//!
//! The command is `cat` of a file of lines, which lies in the page cache. Its output goes to this program
//! through a pipe: directly, through a second `cat`, through `tee` into a file, and through `floodmark run`,
//! which records it. All take turns, so that what else the machine does hits all alike.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use floodmark_event::OutputRow;
use floodmark_store::{ScanProps, Trace};

use crate::measure::Samples;

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Props {
    /// The `floodmark` to measure
    #[arg(long, default_value = "target/release/floodmark")]
    floodmark: PathBuf,
    /// Bytes of output
    #[arg(long, default_value_t = 1_000_000_000)]
    bytes: u64,
}

/// One way for the output to go.
struct Way {
    name: &'static str,
    script: &'static str,
    arrived: Samples,
    ended: Samples,
}

/// Runs everything and prints a table.
pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    let folder = fs::canonicalize(folder)?;
    let floodmark = fs::canonicalize(&props.floodmark)
        .with_context(|| format!("{}: build it first", props.floodmark.display()))?;
    write_lines(&folder.join("lines"), props.bytes)?;
    let way = |name, script| Way { name, script, arrived: Samples::default(), ended: Samples::default() };
    let mut ways = [
        way("cat FILE", "exec cat lines"),
        way("cat FILE | cat", "cat lines | cat"),
        way("cat FILE | tee COPY", "cat lines | tee copy"),
        way("floodmark run -- cat FILE", "exec \"$0\" run --quiet -o output.flood -- cat lines"),
    ];
    let (mut kept, mut trace_bytes) = (0, 0);
    for _ in 0..repeat {
        for way in &mut ways {
            let trace = folder.join("output.flood");
            let _ = fs::remove_dir_all(&trace);
            let _ = fs::remove_file(folder.join("copy"));
            let mut command = Command::new("sh");
            command.args(["-c", way.script]).arg(&floodmark).current_dir(&folder).stdin(Stdio::null());
            let (arrived_s, ended_s) = time(&mut command, props.bytes).context(way.name)?;
            way.arrived.push(props.bytes as f64 / 1e6 / arrived_s);
            way.ended.push(ended_s);
            if trace.exists() {
                (kept, trace_bytes) = (recorded(&trace)?, size(&trace)?);
            }
        }
    }
    println!("{} bytes of lines through a pipe: median (least–most) of {repeat}\n", props.bytes);
    println!("| way | MB/s | s until it has ended |");
    println!("|---|---|---|");
    for way in &ways {
        println!("| {} | {} | {} |", way.name, way.arrived.text(0), way.ended.text(2));
    }
    println!("\nOf the last run {kept} bytes were recorded, in a trace of {trace_bytes} bytes.");
    let _ = fs::remove_file(folder.join("lines"));
    Ok(())
}

/// Lines such as a solver prints.
fn write_lines(path: &Path, bytes: u64) -> Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let (mut left, mut step, mut residual) = (bytes, 0u64, 0x9e37_79b9_7f4a_7c15_u64);
    while left > 0 {
        residual = residual.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let line = format!("Time Step {step}, |R| = {:.6e}\n", (residual >> 11) as f64 / 1e12);
        let part = &line.as_bytes()[..line.len().min(usize::try_from(left)?)];
        out.write_all(part)?;
        (left, step) = (left - part.len() as u64, step + 1);
    }
    out.flush()?;
    Ok(())
}

/// Seconds until everything has arrived, and until the command has ended.
fn time(command: &mut Command, bytes: u64) -> Result<(f64, f64)> {
    let mut buffer = vec![0; 1 << 16];
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().context("a pipe")?;
    let (mut arrived, mut arrived_s) = (0, 0.0);
    while let length @ 1.. = output.read(&mut buffer)? {
        arrived += length as u64;
        if arrived == bytes {
            arrived_s = begin.elapsed().as_secs_f64();
        }
    }
    ensure!(child.wait()?.success() && arrived == bytes, "{arrived} of {bytes} bytes arrived");
    Ok((arrived_s, begin.elapsed().as_secs_f64()))
}

fn recorded(trace: &Path) -> Result<u64> {
    let mut scan = Trace::open(trace)?.rows::<OutputRow>(&ScanProps::default())?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while scan.next(&mut rows)? {
        bytes += rows.iter().map(|row| row.bytes.len() as u64).sum::<u64>();
    }
    Ok(bytes)
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { size(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}
