//! Scanning a trace of several processes that ran at the same time, beside the same events in one process.
//!
//! Every measurement opens the trace, scans it and counts or folds, in one thread; the cost is CPU time of
//! that thread. The two traces have the same events at the same times and take turns.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;
use floodmark_analyze::{Pass, StatsFold};
use floodmark_event::tables::Process;
use floodmark_event::{Column, EventBatch, Filter, ProcessId, Tables};
use floodmark_store::columns::EVENT_COLUMNS;
use floodmark_store::{
    Losses, Overwrite, Projection, Run, ScanProps, Source as _, Table, Trace, TraceWriter,
};
use floodmark_testkit::{Workload, WorkloadProps};

use crate::measure::{Samples, thread_cpu_ns};

#[derive(Args)]
pub(crate) struct Props {
    /// Events of each trace
    #[arg(long, default_value_t = 2_000_000)]
    events: u64,
    /// Processes of the second trace
    #[arg(long, default_value_t = 8)]
    processes: u32,
}

/// Columns that `stats` reads.
const FIGURES: fn(&&str) -> bool = |column| !["stream", "stack", "scope", "name"].contains(column);

/// Writes the events as those of `processes`, each a sequence of its own.
fn write(path: &Path, events: u64, processes: u32) -> Result<()> {
    let mut writer = TraceWriter::create(path, Run::default(), Overwrite::Yes)?;
    let mut tables = Tables::default();
    for number in 0..processes {
        let id = ProcessId(number + 1);
        tables.processes.push(Process { id, ..Process::default() });
        if number > 0 {
            writer.next_sequence()?;
        }
        let mut workload = Workload::new(WorkloadProps { events, threads: 4, ..WorkloadProps::default() });
        let mut batch = EventBatch::new();
        while workload.fill(&mut batch) {
            // The address decides whose a block is, in effect by chance.
            let owner = |row: usize| {
                let mixed = batch.address.at(row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                mixed as u32 % processes == number
            };
            let own: Vec<bool> = (0..batch.len()).map(owner).collect();
            batch.retain(&own);
            batch.process = Column::Same(id);
            writer.write(&batch, &tables)?;
        }
    }
    writer.finish(&tables, &Losses::default())?;
    Ok(())
}

/// Scans the events; returns how many there are and a sum that depends on all of them.
fn scan(path: &Path, props: &ScanProps) -> Result<(u64, u64)> {
    let mut scan = Trace::open(path)?.scan(props)?;
    let (mut events, mut sum, mut batch) = (0, 0u64, EventBatch::new());
    while scan.next(&mut batch)? {
        events += batch.len() as u64;
        for row in 0..batch.len() {
            sum = sum.wrapping_add(batch.bytes.at(row) ^ batch.time_ns.at(row) as u64);
        }
    }
    Ok((events, sum))
}

/// Scans the events and runs the fold of `stats` over them.
fn stats(path: &Path, props: &ScanProps) -> Result<(u64, u64)> {
    let mut scan = Trace::open(path)?.scan(props)?;
    let (mut events, mut batch) = (0, EventBatch::new());
    let mut pass = Pass::new(&Filter::default(), StatsFold::default());
    while scan.next(&mut batch)? {
        events += batch.len() as u64;
        pass.update(&batch);
    }
    let stats = pass.finish(scan.tables());
    Ok((events, stats.frees))
}

/// Reads the events as record batches.
fn records(path: &Path) -> Result<(u64, u64)> {
    let trace = Trace::open(path)?;
    let mut events = 0;
    for records in trace.record_batches(Table::Event, &Projection::All, &ScanProps::default())? {
        events += records?.num_rows() as u64;
    }
    Ok((events, 0))
}

/// One way to read a trace.
type Way<'a> = (&'a str, Box<dyn Fn(&Path) -> Result<(u64, u64)>>);

pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    let Props { events, processes } = *props;
    let traces: [PathBuf; 2] = ["one.flood", "several.flood"].map(|name| folder.join(name));
    write(&traces[0], events, 1)?;
    write(&traces[1], events, processes)?;
    let all = ScanProps::default();
    let figures =
        ScanProps { columns: Some(EVENT_COLUMNS.into_iter().filter(FIGURES).collect()), ..all.clone() };
    let of_stats = figures.clone();
    let first = ScanProps { processes: Some(vec![ProcessId(1)]), ..figures.clone() };
    let ways: [Way<'_>; 5] = [
        ("scan, all columns", Box::new(move |path| scan(path, &all))),
        ("scan, columns of stats", Box::new(move |path| scan(path, &figures))),
        ("scan and stats", Box::new(move |path| stats(path, &of_stats))),
        ("scan of the first process, columns of stats", Box::new(move |path| scan(path, &first))),
        ("record batches", Box::new(records)),
    ];
    println!("{events} events; CPU ns per event that is read: median (least–most)\n");
    println!("| what | one process | {processes} processes | ratio |");
    println!("|---|---|---|---|");
    for (what, way) in &ways {
        let mut costs = [Samples::default(), Samples::default()];
        let mut found = [(0, 0), (0, 0)];
        for _ in 0..repeat {
            for (at, trace) in traces.iter().enumerate() {
                let begin = thread_cpu_ns();
                found[at] = way(trace)?;
                costs[at].push((thread_cpu_ns() - begin) as f64 / found[at].0.max(1) as f64);
            }
        }
        let is_whole = found[1].0 == events;
        ensure!(!is_whole || found[0] == found[1], "the traces have different events");
        let ratio = costs[1].median() / costs[0].median();
        println!("| {what} | {} | {} | ×{ratio:.2} |", costs[0].text(1), costs[1].text(1));
    }
    Ok(())
}
