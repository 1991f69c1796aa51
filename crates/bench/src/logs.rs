//! The analyses on an RMM log and on a trace of the same events, beside pandas and Polars.
//!
//! Every measurement is a process of its own, as a person would run it; what it used is what the
//! kernel says: by the clock with all cores there are, and per core by CPU time.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use floodmark_convert::rmm::{Dialect, Writer};
use floodmark_event::EventBatch;
use floodmark_testkit::{SizeMix, Workload, WorkloadProps};

use crate::measure::{self, Samples};

/// Writes the log that is analysed, unless it is there from an earlier run.
pub(crate) fn make_log(path: &Path, events: u64) -> Result<u64> {
    let note = path.with_extension("events");
    if fs::read_to_string(&note).is_ok_and(|text| text == events.to_string()) {
        return Ok(fs::metadata(path)?.len());
    }
    eprintln!("writing {} with {events} rows …", path.display());
    let props = WorkloadProps {
        events,
        threads: 4,
        streams: 8,
        live: 1000,
        sizes: SizeMix::Steady,
        leak_rate: 0.0001,
        failure_rate: 0.00001,
        ..WorkloadProps::default()
    };
    let mut workload = Workload::new(props);
    let output = BufWriter::new(File::create(path)?);
    let mut writer = Writer::new(output, path, Dialect::Rmm);
    let mut batch = EventBatch::new();
    while workload.fill(&mut batch) {
        writer.write(&batch)?;
    }
    writer.finish()?;
    fs::write(note, events.to_string())?;
    Ok(fs::metadata(path)?.len())
}

struct Row {
    name: String,
    wall: Samples,
    cpu: Samples,
    peak_rss_mb: Samples,
}

pub(crate) fn run(folder: &Path, events: u64, python: Option<&Path>, repeat: usize) -> Result<()> {
    let log = folder.join("log.csv");
    let log_bytes = make_log(&log, events)?;
    let program = measure::floodmark()?;
    let trace = folder.join("log.flood");
    let import = measure::run(
        Command::new(&program).args(["import", "--force", "-q"]).arg(&log).arg("-o").arg(&trace),
    )?;
    let mut commands: Vec<(String, Command)> = Vec::new();
    for (input, name) in [(&log, "CSV"), (&trace, "trace")] {
        for analysis in ["stats", "watermark", "leaks"] {
            let mut command = Command::new(&program);
            command.args([analysis, "--json"]).arg(input);
            commands.push((format!("floodmark {analysis}, {name}"), command));
        }
    }
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    for peer in ["pandas", "polars"] {
        let Some(python) = python else { continue };
        let mut command = Command::new(python);
        command.arg(peers.join(format!("with_{peer}.py"))).arg(&log);
        commands.push((format!("{peer}, CSV"), command));
    }
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..repeat {
        for (index, (name, command)) in commands.iter_mut().enumerate() {
            eprintln!("round {} of {repeat}: {name}", round + 1);
            let usage = measure::run(command)?;
            if round == 0 {
                let [wall, cpu, peak_rss_mb] = Default::default();
                rows.push(Row { name: name.clone(), wall, cpu, peak_rss_mb });
            }
            rows[index].wall.push(events as f64 / usage.wall_s / 1e6);
            rows[index].cpu.push(events as f64 / usage.cpu_s / 1e6);
            rows[index].peak_rss_mb.push(usage.peak_rss_mb);
        }
    }
    report(&rows, events, log_bytes, python.is_none());
    let at_rest: u64 = parts_bytes(&trace)?;
    println!(
        "\nThe log has {:.1} bytes per event, the trace {:.2}; importing took {:.1} s of CPU, {:.1} M events/s, {:.0} MB.",
        log_bytes as f64 / events as f64,
        at_rest as f64 / events as f64,
        import.cpu_s,
        events as f64 / import.cpu_s / 1e6,
        import.peak_rss_mb,
    );
    Ok(())
}

fn report(rows: &[Row], events: u64, log_bytes: u64, no_peers: bool) {
    let ours = rows.first().map_or((f64::NAN, f64::NAN), |row| (row.wall.median(), row.cpu.median()));
    let gigabytes = log_bytes as f64 / 1e9;
    println!("{events} events, {gigabytes:.2} GB of CSV; million events per second: median (least–most)\n");
    println!("| what | by the clock | per core | floodmark stats, CSV, is | in CPU time | peak RSS, MB |");
    println!("|---|---|---|---|---|---|");
    for row in rows {
        let (ratio, cpu_ratio) = (ours.0 / row.wall.median(), ours.1 / row.cpu.median());
        let (wall, cpu) = (row.wall.text(1), row.cpu.text(1));
        let (name, peak) = (&row.name, row.peak_rss_mb.median());
        println!("| {name} | {wall} | {cpu} | ×{ratio:.1} | ×{cpu_ratio:.1} | {peak:.0} |");
    }
    if no_peers {
        println!("\npandas and Polars were left out: name a Python that has them with --python");
    }
}

fn parts_bytes(trace: &Path) -> Result<u64> {
    let manifest = floodmark_store::Trace::open(trace)?.manifest().clone();
    Ok(manifest.parts_of("event").map(|part| part.bytes).sum())
}
