//! Exports of Nsight Systems: how long they take and how much memory, beside SQL and Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use rusqlite::Connection;

use crate::measure::{self, Samples};

/// What to measure with.
#[derive(Debug, clap::Args)]
pub(crate) struct Props {
    /// Events of the large export
    #[arg(long, default_value_t = 2_000_000)]
    events: u64,
    /// Stacks of the large export; the small one has as many for each event
    #[arg(long, default_value_t = 200_000)]
    stacks: u64,
    /// Events of the small export, which the peer reads too
    #[arg(long, default_value_t = 100_000)]
    small: u64,
    /// Python for the peer, which needs nothing but its standard library
    #[arg(long, default_value = "python3")]
    python: PathBuf,
}

/// Frames of a stack.
const DEPTH: u64 = 10;
/// Global id of the one process.
const PROCESS: i64 = (1 << 48) | (4242 << 24);

const SCHEMA: &str = "
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_DEV_MEM_EVENT_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device');
INSERT INTO ENUM_CUDA_DEV_MEM_EVENT_OPER VALUES (0, 'CUDA_DEV_MEM_EVENT_OPR_ALLOCATION', 'Allocation'),
  (1, 'CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION', 'Deallocation');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1794724089568622046, '', '');
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, unresolved INTEGER,
  originalIP INTEGER, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth));
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL,
  memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER, streamId INTEGER, localMemoryPoolAddress INTEGER,
  localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER,
  importedMemoryPoolAddress INTEGER, importedMemoryPoolProcessId INTEGER);
";

/// Writes an export as nsys does: a call for each event, a stack of its own for each that has one.
fn make(path: &Path, events: u64, stacks: u64) -> Result<()> {
    let note = path.with_extension("made");
    let what = format!("{events} {stacks}");
    if path.exists() && fs::read_to_string(&note).is_ok_and(|text| text == what) {
        return Ok(());
    }
    eprintln!("writing {} with {events} events …", path.display());
    let _ = fs::remove_file(path);
    let connection = Connection::open(path)?;
    connection.execute_batch(SCHEMA)?;
    connection.execute_batch("BEGIN")?;
    strings(&connection)?;
    chains(&connection, stacks)?;
    calls_and_events(&connection, events, stacks)?;
    connection.execute_batch("COMMIT")?;
    fs::write(note, what)?;
    Ok(())
}

fn strings(connection: &Connection) -> Result<()> {
    let mut insert = connection.prepare("INSERT INTO StringIds VALUES (?1, ?2)")?;
    insert.execute((1, "cudaMalloc_v3020"))?;
    insert.execute((2, "cudaFree_v3020"))?;
    for at in 0..64 {
        insert.execute((10 + at, format!("/opt/app/lib/libpart{at}.so")))?;
    }
    for at in 0..20_000 {
        insert.execute((
            100 + at,
            format!("app::part{}::Worker<float, {}>::step_{at}(int, char const*)", at % 64, at % 9),
        ))?;
    }
    Ok(())
}

fn chains(connection: &Connection, stacks: u64) -> Result<()> {
    let mut insert = connection.prepare("INSERT INTO CUDA_CALLCHAINS VALUES (?1, ?2, ?3, NULL, ?4, ?5)")?;
    for stack in 0..stacks {
        for depth in 0..DEPTH {
            // Outer frames are shared by many stacks, inner ones by few.
            let spread = 20_000 >> depth.min(12);
            let symbol = (stack.wrapping_mul(2_654_435_761 + depth) >> 3) % spread.max(1);
            let address = 0x5000_0000 + symbol * 64;
            insert.execute((
                stack as i64,
                (100 + symbol) as i64,
                (10 + symbol % 64) as i64,
                address as i64,
                depth as i64,
            ))?;
        }
    }
    Ok(())
}

fn calls_and_events(connection: &Connection, events: u64, stacks: u64) -> Result<()> {
    const LIVE: u64 = 10_000;
    let mut call = connection
        .prepare("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7)")?;
    let mut event = connection.prepare(
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
         memoryOperationType, correlationId, streamId) VALUES (?1, ?2, 0, 1, ?3, 0, ?4, 2, ?5, ?6, 7)",
    )?;
    let thread = PROCESS + 4242;
    let every = (events / stacks.max(1)).max(1);
    for at in 0..events {
        let (time, correlation) = (at as i64 * 1000, at as i64 + 1);
        // The first blocks stay, later ones are freed one after the other.
        let is_free = at >= LIVE && at % 2 == 1;
        let block = if is_free { LIVE + (at - 1 - LIVE) / 2 * 2 } else { at };
        let bytes = 256 * (block % 977 + 1);
        let name = if is_free { 2 } else { 1 };
        if at % every == 0 && at / every < stacks {
            call.execute((time - 10, time + 310, 67, thread, correlation, name, Some((at / every) as i64)))?;
        }
        call.execute((time, time + 300, 0, thread, correlation, name, None::<i64>))?;
        let address = 0x7f00_0000_0000_i64 + block as i64 * 1_048_576;
        event.execute((time + 100, PROCESS, address, bytes as i64, i64::from(is_free), correlation))?;
    }
    Ok(())
}

/// Measures `floodmark watermark` on the large export, and beside the peer on the small one.
pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name("floodmark");
    program.exists().then_some(()).context("build floodmark first: cargo build --release")?;
    let (large, small) = (folder.join("nsys.sqlite"), folder.join("nsys_small.sqlite"));
    make(&large, props.events, props.stacks)?;
    make(&small, props.small, (props.small * props.stacks / props.events.max(1)).max(1))?;
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/nsys_original.py");
    let mut commands = Vec::new();
    for (analysis, path) in [("watermark", &large), ("leaks", &large), ("watermark", &small)] {
        let mut command = Command::new(&program);
        command.args([analysis, "--json"]).arg(path);
        let size = if path == &large { props.events } else { props.small };
        commands.push((format!("floodmark {analysis}, {size} events"), command));
    }
    let mut original = Command::new(&props.python);
    original.arg(peer).arg(&small).arg(folder.join("nsys_peer"));
    commands.push((format!("sqlite3 and Python, {} events", props.small), original));
    println!("| what | seconds | CPU seconds | peak RSS, MB |");
    println!("|---|---|---|---|");
    let mut medians = Vec::new();
    for (name, command) in &mut commands {
        let [mut wall, mut cpu, mut rss]: [Samples; 3] = Default::default();
        for _ in 0..repeat {
            let usage = measure::run(command)?;
            wall.push(usage.wall_s);
            cpu.push(usage.cpu_s);
            rss.push(usage.peak_rss_mb);
        }
        println!("| {name} | {} | {} | {:.0} |", wall.text(2), cpu.text(2), rss.median());
        medians.push(wall.median());
    }
    if let [.., ours, theirs] = medians[..] {
        println!("\nOn {} events the peer takes {:.0} times as long.", props.small, theirs / ours);
    }
    Ok(())
}
