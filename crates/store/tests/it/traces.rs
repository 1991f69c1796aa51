//! Making and reading traces for tests.

use std::fs::File;
use std::path::Path;

use floodmark_event::tables::{Frame, Process};
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, StackId, StringId, Tables};
use floodmark_store::{Losses, Overwrite, Run, ScanProps, Source as _, Table, TableRow, Trace, TraceWriter};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader as _, SerializedFileReader};

/// Tables with two processes, some strings and two stacks.
pub(crate) fn tables() -> Tables {
    let mut tables = Tables::default();
    for id in [1, 2] {
        let (host, command) = ("node".into(), format!("app {id}"));
        let process = Process { id: ProcessId(id), pid: 100 + id, parent_pid: 1, host, command, start_ns: 5 };
        tables.processes.push(process);
    }
    for text in ["pool", "buffer", "weights"] {
        tables.intern(text);
    }
    let frame = |tables: &mut Tables, name: &str, line| {
        let (function, file) = (tables.intern(name), tables.intern("app.py"));
        tables.intern_frame(Frame { function, file, line, ..Frame::default() })
    };
    let (outer, inner) = (frame(&mut tables, "main", 3), frame(&mut tables, "load", 9));
    let outer = tables.intern_stack(StackId(0), outer);
    tables.intern_stack(outer, inner);
    tables
}

/// An event that differs from its neighbours in everything.
pub(crate) fn event(index: u64) -> Event {
    Event {
        time_ns: 1_700_000_000_000_000_000 + index as i64 * 100,
        process: ProcessId(1 + (index % 2) as u32),
        thread: 7 + index % 3,
        action: Action::ALL[index as usize % 3],
        address: 0x7f00_0000_0000 + index * 256,
        bytes: index * 10,
        device: index as i32 % 4 - 1,
        stream: index % 5,
        // As many as there were when the oldest fixture was made.
        kind: Kind::ALL[index as usize % 7],
        resource: StringId((index % 2) as u32),
        scope: index % 3,
        stack: StackId((index % 3) as u32),
        name: StringId((index % 4) as u32),
    }
}

pub(crate) fn write(path: &Path, sequences: &[Vec<Event>], tables: &Tables) {
    let mut writer = TraceWriter::create(path, Run::default(), Overwrite::Yes).expect("creates");
    for (number, events) in sequences.iter().enumerate() {
        if number > 0 {
            writer.next_sequence().expect("next sequence");
        }
        for rows in events.chunks(1000) {
            let mut batch = EventBatch::new();
            for event in rows {
                batch.push(event);
            }
            writer.write(&batch, tables).expect("writes");
        }
    }
    writer.finish(tables, &Losses::default()).expect("finishes");
}

/// An event with its ids replaced by what they stand for.
pub(crate) fn meaning(event: &Event, tables: &Tables) -> (Event, String, String, Vec<String>) {
    let plain = Event { resource: StringId(0), name: StringId(0), stack: StackId(0), ..*event };
    let text = |id| tables.string(id).to_owned();
    (plain, text(event.resource), text(event.name), tables.stack_text(event.stack))
}

pub(crate) fn read(path: &Path, props: &ScanProps) -> Vec<(Event, String, String, Vec<String>)> {
    let mut scan = Trace::open(path).expect("opens").scan(props).expect("scans");
    let mut batch = EventBatch::new();
    let mut events = Vec::new();
    while scan.next(&mut batch).expect("reads") {
        events.extend(batch.events().map(|event| meaning(&event, scan.tables())));
    }
    events
}

/// Reads all rows of a table.
pub(crate) fn rows<T: TableRow>(path: &Path, props: &ScanProps) -> Vec<T> {
    let mut scan = Trace::open(path).expect("opens").rows::<T>(props).expect("scans");
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    while scan.next(&mut rows).expect("reads") {
        all.append(&mut rows);
    }
    assert!(scan.losses().is_empty(), "{:?}", scan.losses());
    all
}

/// Bytes per row of a table's parts, and of each of its columns.
pub(crate) fn column_bytes(trace: &Trace, table: Table) -> (f64, Vec<(String, f64)>) {
    let parts: Vec<_> = trace.manifest().parts_of(table.name()).collect();
    let rows: u64 = parts.iter().map(|part| part.rows).sum();
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    let mut columns: Vec<(String, f64)> = Vec::new();
    for part in parts {
        let file = File::open(part.path(trace.path())).expect("opens");
        let reader = SerializedFileReader::new(file).expect("reads");
        for column in reader.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns) {
            let (name, each) = (column.column_path().string(), column.compressed_size() as f64 / rows as f64);
            match columns.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += each,
                None => columns.push((name, each)),
            }
        }
    }
    (bytes as f64 / rows as f64, columns)
}
