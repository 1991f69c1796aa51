//! Questions in SQL to a trace, beside DuckDB reading the parts and pandas.
//!
//! Every measurement is a process of its own, from its start to its answer.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::logs::make_log;
use crate::measure::{self, Samples};

/// Questions, by what the peer in pandas calls them.
const QUESTIONS: [(&str, &str); 4] = [
    ("count", "select count(*) from events"),
    (
        "group",
        "select thread, stream, count(*), sum(bytes) from events group by thread, stream order by 1, 2",
    ),
    (
        "totals",
        "select thread, stream, sum(events), sum(bytes) from totals group by thread, stream order by 1, 2",
    ),
    ("join", "select count(*), avg(lifetime_ns) from blocks"),
];

pub(crate) fn run(folder: &Path, events: u64, python: &Path, repeat: usize) -> Result<()> {
    let log = folder.join("log.csv");
    make_log(&log, events)?;
    let (program, trace) = (measure::floodmark()?, folder.join("log.flood"));
    measure::run(Command::new(&program).args(["import", "--force", "-q"]).arg(&log).arg("-o").arg(&trace))?;
    let views = Command::new(&program).arg("sql").arg(&trace).arg("--views").output().context("views")?;
    let views_file = folder.join("views.sql");
    fs::write(&views_file, &views.stdout)?;
    let manifest = floodmark_store::Trace::open(&trace)?.manifest().clone();
    let parts: Vec<_> = manifest.parts_of("event").map(|part| trace.join("event").join(&part.file)).collect();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    // `totals` is ours: the others group events.
    let of_events = QUESTIONS[1];
    let mut found: Vec<[(Samples, Samples, Samples); 3]> = Vec::new();
    for round in 0..repeat {
        for (at, (name, query)) in QUESTIONS.iter().enumerate() {
            eprintln!("round {} of {repeat}: {name}", round + 1);
            let mut ours = Command::new(&program);
            ours.arg("sql").arg(&trace).arg(query);
            let mut duckdb = Command::new(python);
            let (peer_name, peer_query) = if *name == "totals" { of_events } else { (*name, *query) };
            duckdb.arg(peers.join("sql_duckdb.py")).arg(&views_file).arg(peer_query);
            let mut pandas = Command::new(python);
            pandas.arg(peers.join("sql_pandas.py")).arg(peer_name).args(&parts);
            if round == 0 {
                found.push(Default::default());
            }
            for (command, (wall, cpu, peak)) in [ours, duckdb, pandas].iter_mut().zip(&mut found[at]) {
                let usage = measure::run(command)?;
                wall.push(usage.wall_s);
                cpu.push(usage.cpu_s);
                peak.push(usage.peak_rss_mb);
            }
        }
    }
    println!("{events} events; seconds from start to answer: median (least–most) of {repeat}\n");
    println!("| query | with | wall clock | CPU | peak RSS, MB |");
    println!("|---|---|---|---|---|");
    for ((name, _), found) in QUESTIONS.iter().zip(&found) {
        for (tool, (wall, cpu, peak)) in ["floodmark sql", "DuckDB", "pandas"].iter().zip(found) {
            println!("| {name} | {tool} | {} | {} | {:.0} |", wall.text(2), cpu.text(2), peak.median());
        }
    }
    Ok(())
}
