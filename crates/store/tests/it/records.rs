//! Record batches have what parts have, before sealing and after.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Int32Type, TimestampMicrosecondType, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, TimeUnit};
use floodmark_event::tables::Frame;
use floodmark_event::{
    CallAction, CallRow, Event, LogLevel, LogRow, Metric, OutputRow, OutputStream, ProcessId, SampleRow,
    ScopeAction, ScopeRow, StackId, StackReason, StackSampleRow, StackSeen, Subject, SubjectEnd, SubjectId,
    SubjectKind, SubjectRow,
};
use floodmark_store::{
    Error, Losses, Overwrite, Projection, Run, ScanProps, Sealer, Source as _, Table, Trace, TraceWriter,
};
use floodmark_tail::{AllocDomain, Call, RecordProps, Recorder, When};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use floodmark_testkit::TempDir;

use crate::traces::{event, tables};

/// A value of a column as text.
fn value(array: &dyn Array, row: usize) -> String {
    if array.is_null(row) {
        return "null".to_owned();
    }
    match array.data_type() {
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).to_string()
        }
        DataType::Timestamp(..) => array.as_primitive::<TimestampNanosecondType>().value(row).to_string(),
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        DataType::Binary => format!("{:?}", array.as_binary::<i32>().value(row)),
        DataType::Dictionary(..) => {
            let words = array.as_dictionary::<Int32Type>();
            value(words.values(), words.keys().value(row) as usize)
        }
        other => panic!("no column has the type {other}"),
    }
}

fn texts(records: &RecordBatch) -> Vec<Vec<String>> {
    let row = |row| records.columns().iter().map(|column| value(column, row)).collect();
    (0..records.num_rows()).map(row).collect()
}

/// The rows of a table, each value as text.
fn read(trace: &Trace, table: Table, projection: &Projection, props: &ScanProps) -> Vec<Vec<String>> {
    let records = trace.record_batches(table, projection, props).expect("opens");
    let schema = records.schema();
    let batch = |records: floodmark_store::Result<RecordBatch>| {
        let records = records.expect("reads");
        assert_eq!(records.schema(), schema);
        texts(&records)
    };
    records.flat_map(batch).collect()
}

fn read_all(trace: &Trace, table: Table) -> Vec<Vec<String>> {
    read(trace, table, &Projection::All, &ScanProps::default())
}

/// The rows of a table's parts, one part after the other.
fn read_parts(path: &Path, table: Table) -> Vec<Vec<String>> {
    let trace = Trace::open(path).expect("opens");
    let mut rows = Vec::new();
    for part in trace.manifest().parts_of(table.name()) {
        let file = File::open(part.path(path)).expect("opens");
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).expect("is Parquet");
        assert_eq!(builder.schema().fields(), table.schema().fields());
        for records in builder.build().expect("reads") {
            rows.extend(texts(&records.expect("reads")));
        }
    }
    rows
}

/// Writes a trace with rows in every table.
fn write_everything(path: &Path) {
    let mut tables = tables();
    let name = tables.intern("step");
    let subject = SubjectRow::new(7, SubjectKind::Cgroup, 0, "job");
    tables.subjects.insert(7, SubjectRow { end_ns: Some(99), wait_status: Some(-1), ..subject });
    let mut writer = TraceWriter::create(path, Run::default(), Overwrite::No).expect("creates");
    let events: Vec<Event> = (0..20_000).map(event).collect();
    for rows in events.chunks(5_000) {
        let mut batch = floodmark_event::EventBatch::new();
        for event in rows {
            batch.push(event);
        }
        writer.write(&batch, &tables).expect("writes");
    }
    let process = |number: i64| ProcessId(1 + number as u32 % 2);
    let samples: Vec<SampleRow> = (0..9_000)
        .map(|number| SampleRow {
            time_ns: number,
            subject: if number % 10 == 0 { 0 } else { (1 + number as u64 % 2) << 32 | 7 },
            metric: Metric::ALL[number as usize % 24],
            value: number as u64,
        })
        .collect();
    let output: Vec<OutputRow> = (0..300)
        .map(|number| OutputRow {
            time_ns: number,
            process: process(number),
            stream: OutputStream::Stderr,
            bytes: vec![0xff, number as u8],
        })
        .collect();
    let stack = StackSampleRow {
        time_ns: 5,
        subject: 7,
        thread: 12,
        stack: StackId(2),
        reason: StackReason::Limit,
        pause_ns: 99,
    };
    let scope = |time_ns, action| ScopeRow {
        time_ns,
        process: ProcessId(2),
        thread: 4,
        action,
        scope: 3,
        parent: 0,
        name,
    };
    let log = |time_ns, level, text: &str| LogRow {
        time_ns,
        process: ProcessId(1),
        level,
        source: name,
        text: text.into(),
    };
    let call = |time_ns, action| CallRow {
        time_ns,
        process: ProcessId(2),
        thread: 4,
        action,
        code: 1,
        line: 7,
        rss_bytes: Some(8192),
    };
    tables.devices.insert((ProcessId(1), 0), "GPU-1".into());
    writer
        .write_rows(&[call(1_000, CallAction::Call), call(9_000, CallAction::Return)], &tables)
        .expect("writes");
    writer.write_rows(&samples, &tables).expect("writes");
    writer.write_rows(&output, &tables).expect("writes");
    writer.write_rows(&[stack], &tables).expect("writes");
    writer.write_rows(&[scope(1, ScopeAction::Enter), scope(9, ScopeAction::Exit)], &tables).expect("writes");
    writer.write_rows(&[log(3, LogLevel::Info, "a"), log(4, LogLevel::Error, "b")], &tables).expect("writes");
    writer.finish(&tables, &Losses::default()).expect("finishes");
}

#[test]
fn record_batches_of_a_sealed_trace_are_what_its_parts_hold() {
    let folder = TempDir::new("records-sealed");
    let path = folder.join("a.flood");
    write_everything(&path);
    let trace = Trace::open(&path).expect("opens");
    for table in Table::ALL {
        let found = read_all(&trace, table);
        assert!(found == read_parts(&path, table), "{}", table.name());
        // An import has its texts in its rows.
        assert_eq!(found.is_empty(), table == Table::String, "{}", table.name());
        assert_eq!(trace.opens(table), trace.manifest().parts_of(table.name()).count() as u64);
    }
}

#[test]
fn a_stream_of_arrow_ipc_has_every_row() {
    let folder = TempDir::new("records-ipc");
    let path = folder.join("a.flood");
    write_everything(&path);
    let trace = Trace::open(&path).expect("opens");
    let records =
        |table| trace.record_batches(table, &Projection::All, &ScanProps::default()).expect("opens");
    for table in Table::ALL {
        let mut stream = Vec::new();
        records(table).write_ipc(&mut stream).expect("writes");
        let reader = StreamReader::try_new(&stream[..], None).expect("is a stream");
        assert_eq!(reader.schema().fields(), table.schema().fields());
        let found: Vec<_> = reader.flat_map(|records| texts(&records.expect("is a batch"))).collect();
        assert!(found == read_all(&trace, table), "{}", table.name());
    }
    // The error of an output that takes no more is the output's own.
    let mut little = [0; 100];
    let error = records(Table::Event).write_ipc(&mut &mut little[..]).expect_err("there is no room");
    assert!(
        matches!(&error, Error::Output(source) if source.kind() == std::io::ErrorKind::WriteZero),
        "{error:?}"
    );
}

#[test]
fn columns_are_those_asked_for_and_rows_those_of_process_subject_and_time() {
    let folder = TempDir::new("records-filter");
    let path = folder.join("a.flood");
    write_everything(&path);
    let trace = Trace::open(&path).expect("opens");
    // In another order than the table's, and without those that are filtered by.
    let columns = Projection::columns(["bytes", "action"]);
    let (from, to) = (event(5_000).time_ns, event(9_000).time_ns);
    let props = ScanProps {
        processes: Some(vec![ProcessId(2)]),
        from_ns: Some(from),
        to_ns: Some(to),
        ..ScanProps::default()
    };
    let wanted = (5_000..=9_000).map(event).filter(|event| event.process == ProcessId(2));
    let expected: Vec<Vec<String>> =
        wanted.map(|event| vec![event.bytes.to_string(), event.action.name().to_owned()]).collect();
    assert_eq!(read(&trace, Table::Event, &columns, &props), expected);
    // Of samples the process is in the number of the subject.
    let props = ScanProps { processes: Some(vec![ProcessId(2)]), ..ScanProps::default() };
    let found = read(&trace, Table::Sample, &Projection::columns(["value"]), &props);
    let expected = (0..9_000u64).filter(|number| number % 10 != 0 && number % 2 == 1);
    assert_eq!(found.concat(), expected.map(|number| number.to_string()).collect::<Vec<_>>());
    let props = ScanProps { subjects: Some(vec![0]), ..ScanProps::default() };
    assert_eq!(read(&trace, Table::Sample, &Projection::columns(["value"]), &props).len(), 900);
    // No columns are as many rows.
    let none = Projection::Columns(Vec::new());
    assert_eq!(read(&trace, Table::Output, &none, &ScanProps::default()), vec![Vec::<String>::new(); 300]);
    let error = trace.record_batches(Table::Log, &Projection::columns(["tex"]), &ScanProps::default()).err();
    let error = error.expect("there is no such column");
    assert!(matches!(&error, Error::NoColumn { table: "log", column } if column == "tex"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("level, source, text")), "{:?}", error.hint());
}

/// Records rows of every table that a tail can have.
fn record_everything(recorder: &Recorder, rounds: u64) {
    let function = recorder.intern("load");
    let frame = recorder.intern_frame(&Frame { function, line: 7, ..Frame::default() });
    let stack = recorder.intern_stack(StackId(0), frame);
    let subject = recorder.subject(&Subject {
        kind: SubjectKind::Process,
        number: 12,
        start_ns: 5,
        parent: SubjectId(0),
        name: "app".into(),
        detail: "app --fast".into(),
    });
    let scope = recorder.enter_scope(recorder.intern("epoch"));
    let domain = AllocDomain { resource: recorder.intern("pool"), ..AllocDomain::default() };
    for number in 0..rounds {
        recorder.alloc(number << 8, number, &domain, stack);
        recorder.sample(subject, Metric::Rss, number, When::Now);
        if number % 100 == 0 {
            recorder.output(OutputStream::Stdout, b"line\n", When::Now);
            let seen = StackSeen { thread: 3, stack, reason: StackReason::Peak, pause_ns: 8 };
            recorder.stack_sample(subject, &seen, When::Now);
            recorder.mark(function);
            let call = Call { action: CallAction::Call, code: frame, line: 8, rss_bytes: Some(4096) };
            recorder.call(&call);
            recorder.free(number << 8, number, &domain);
        }
    }
    recorder.define_device(0, "GPU-1");
    recorder.exit_scope(scope);
    recorder.subject_ended(subject, SubjectEnd { wait_status: Some(0), peak_rss_bytes: None }, When::Now);
}

#[test]
fn record_batches_of_a_tail_are_those_of_the_parts_it_becomes() {
    let folder = TempDir::new("records-live");
    let path = folder.join("a.flood");
    // Each recording is a process of its own: the same stacks have ids of three processes.
    for _ in 0..2 {
        let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
        record_everything(&recorder, 3_000);
        recorder.stop();
    }
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    record_everything(&recorder, 1_000);
    // Some of it is in parts already.
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    sealer.seal().expect("seals");
    drop(sealer);
    record_everything(&recorder, 1_000);
    let live = Trace::open(&path).expect("opens");
    assert!(live.is_live());
    let filter = ScanProps { processes: Some(vec![ProcessId(3)]), ..ScanProps::default() };
    let read_both = |trace: &Trace| -> BTreeMap<Table, Vec<Vec<Vec<String>>>> {
        let read = |table| {
            let mut found = vec![read_all(trace, table), read(trace, table, &Projection::All, &filter)];
            if table.has_time() {
                let times = |rows: &Vec<Vec<String>>| -> Vec<i64> {
                    rows.iter().map(|row| row[0].parse().expect("a time")).collect()
                };
                assert!(found.iter().map(times).all(|times| times.is_sorted()), "{}", table.name());
            }
            // Rows of different threads and processes may have the same time.
            for rows in &mut found {
                rows.sort();
            }
            found
        };
        Table::ALL.into_iter().map(|table| (table, read(table))).collect()
    };
    let mut before = read_both(&live);
    recorder.stop();
    let sealed = Trace::open(&path).expect("seals what is left");
    assert!(!sealed.is_live());
    let mut after = read_both(&sealed);
    // Which block a free ended is found when it is sealed.
    let mut ended = 0;
    for rows in
        [&mut before, &mut after].into_iter().flat_map(|tables| tables.get_mut(&Table::Event).unwrap())
    {
        for row in rows.iter_mut() {
            let (bytes, time) = (row.pop().unwrap(), row.pop().unwrap());
            assert_eq!(bytes, "null", "frees were given the size of their block");
            ended += usize::from(time != "null");
        }
        rows.sort();
    }
    assert!(ended >= 80 + 20, "{ended} of the frees have a block");
    for table in Table::ALL {
        assert!(before[&table] == after[&table], "{} differs", table.name());
        assert_eq!(before[&table][0].is_empty(), table == Table::Log, "{}", table.name());
    }
    assert_eq!(before[&Table::Event][0].len(), 8_080);
    assert_eq!(before[&Table::Event][1].len(), 2_020);
    // Stacks are those of the process that recorded the event.
    for row in after[&Table::Event][0].iter().filter(|row| row[11] != "null") {
        let (process, stack): (u64, u64) = (row[1].parse().unwrap(), row[11].parse().unwrap());
        assert_eq!(stack >> 32, process);
    }
}

#[test]
fn small_tables_are_loaded_once_and_parts_opened_once_per_scan() {
    let folder = TempDir::new("load-once");
    let path = folder.join("a.flood");
    write_everything(&path);
    let trace = Trace::open(&path).expect("opens");
    let parts = |table: Table| trace.manifest().parts_of(table.name()).count() as u64;
    let small = [Table::Subject, Table::String, Table::Frame, Table::Stack];
    for table in Table::ALL {
        assert_eq!(trace.opens(table), 0);
    }
    for round in 1..=3 {
        let mut batch = floodmark_event::EventBatch::new();
        let mut scan = trace.scan(&ScanProps::default()).expect("scans");
        while scan.next(&mut batch).expect("reads") {}
        let mut rows = trace.clone().all_rows(&ScanProps::default()).expect("opens");
        while rows.next(&mut Vec::new()).expect("reads") {}
        assert_eq!(trace.subjects().expect("reads").len(), 1);
        assert_eq!(trace.scopes().expect("reads").len(), 1);
        assert_eq!(trace.opens(Table::Event), round * parts(Table::Event));
        assert_eq!(trace.opens(Table::Sample), round * parts(Table::Sample));
        for table in small {
            assert_eq!(trace.opens(table), parts(table), "{}", table.name());
        }
    }
}

#[test]
fn scans_of_one_trace_agree_on_what_their_ids_mean() {
    let folder = TempDir::new("shared-ids");
    let path = folder.join("a.flood");
    write_everything(&path);
    let trace = Trace::open(&path).expect("opens");
    let names = |trace: &Trace| {
        let mut scan = trace.rows::<ScopeRow>(&ScanProps::default()).expect("scans");
        let mut rows = Vec::new();
        assert!(scan.next(&mut rows).expect("reads"));
        scan.tables().string(rows[0].name).to_owned()
    };
    // Scopes need names only, events stacks too; what one scan reads must not change what another has.
    let mut scopes = trace.rows::<ScopeRow>(&ScanProps::default()).expect("scans");
    let mut events = trace.scan(&ScanProps::default()).expect("scans");
    let mut batch = floodmark_event::EventBatch::new();
    assert!(events.next(&mut batch).expect("reads"));
    let mut rows = Vec::new();
    assert!(scopes.next(&mut rows).expect("reads"));
    assert_eq!(scopes.tables().string(rows[0].name), "step");
    assert_eq!(names(&trace), "step");
    let stack = events.tables().stack_text(batch.stack.at(2));
    assert_eq!(stack, ["load (app.py:9)", "main (app.py:3)"]);
    let again = trace.scan(&ScanProps::default()).expect("scans");
    assert_eq!(again.tables().stack_text(batch.stack.at(2)), stack);
}
