//! Turns what a manifest lists into what views show.

use floodmark_store::Manifest;
use floodmark_store::manifest::ProcessEntry;
use floodmark_view::{Info, ProcessInfo, RunInfo, TableInfo};

/// Returns what the manifest of a sealed trace tells.
pub(crate) fn of(manifest: &Manifest) -> Info {
    let tables = tables(manifest);
    let events = manifest.parts_of("event").map(|part| part.rows).sum();
    let times = || manifest.parts_of("event").filter(|part| part.rows > 0);
    let run = &manifest.run;
    Info {
        format: "trace".into(),
        version: Some(manifest.version),
        live: false,
        events,
        bytes: Some(tables.iter().map(|table| table.bytes).sum()),
        first_time_ns: times().map(|part| part.min_time_ns).min(),
        last_time_ns: times().map(|part| part.max_time_ns).max(),
        run: RunInfo {
            command: run.command.clone(),
            host: run.host.clone(),
            user: run.user.clone(),
            start_time_ns: run.start_ns.filter(|_| run.command.is_some()),
            end_time_ns: run.end_ns.filter(|_| run.command.is_some()),
            exit_status: run.exit_status,
            imported_format: run.imported_format.clone(),
            imported_files: run.imported_files.clone(),
        },
        processes: manifest.processes.iter().map(process).collect(),
        memory: None,
        seen: None,
        messages: Vec::new(),
        tables,
    }
}

fn process(entry: &ProcessEntry) -> ProcessInfo {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ProcessInfo {
        process: entry.id,
        pid: (entry.pid != 0).then_some(entry.pid),
        host: known(&entry.host),
        command: known(&entry.command),
    }
}

/// Sums up the parts of every table, in the order in which the manifest first names them.
fn tables(manifest: &Manifest) -> Vec<TableInfo> {
    let mut tables: Vec<TableInfo> = Vec::new();
    for part in &manifest.parts {
        let at = tables.iter().position(|table| table.table == part.table).unwrap_or_else(|| {
            tables.push(TableInfo { table: part.table.clone(), ..TableInfo::default() });
            tables.len() - 1
        });
        tables[at].parts += 1;
        tables[at].rows += part.rows;
        tables[at].bytes += part.bytes;
    }
    tables
}
