//! Logs of samples brought into a trace, and the trace read back.

use std::path::Path;

use floodmark_convert::{OpenProps, open};
use floodmark_event::Row;
use floodmark_event::tables::Frame;
use floodmark_event::{
    Metric, OutputStream, ProcessId, StackId, StackReason, StackSeen, Subject, SubjectId, SubjectKind, Tables,
};
use floodmark_store::{IdMap, RowSource, follow_rows};
use floodmark_store::{Overwrite, Run, ScanProps, Sealer, Trace, TraceWriter};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::{self as tail, RecordProps, Recorder, When};
use floodmark_testkit::{TempDir, wait};

use crate::following::recording;
use crate::sample_logs::{Reading, all, drain, fixture};

/// Rows of a trace as they are now.
fn rows_of(trace: &Path) -> Box<dyn RowSource> {
    Trace::open(trace).and_then(|trace| trace.all_rows(&ScanProps::default())).expect("a trace")
}

/// Writes everything a source has, as import does.
fn write(source: &mut dyn RowSource, writer: &mut TraceWriter, tables: &mut Tables) {
    let mut ids = IdMap::default();
    let mut rows = Vec::new();
    while source.next(&mut rows).expect("good rows") {
        for mut row in rows.drain(..) {
            ids.remap_row(&mut row, source.tables(), tables);
            match row {
                Row::Scope(row) => writer.write_rows(&[row], tables),
                Row::Sample(row) => writer.write_rows(&[row], tables),
                Row::Output(row) => writer.write_rows(&[row], tables),
                Row::Stack(row) => writer.write_rows(&[row], tables),
                Row::Log(row) => writer.write_rows(&[row], tables),
                Row::Call(row) => writer.write_rows(&[row], tables),
            }
            .expect("room");
        }
    }
    IdMap::merge_names(source.tables(), tables);
}

/// Everything in words, so that ids do not matter.
fn words(read: &Reading) -> (Vec<String>, Vec<String>, Vec<String>, Vec<String>) {
    let mut others = (Vec::new(), Vec::new(), Vec::new());
    for row in &read.rows {
        match row {
            Row::Sample(_) | Row::Call(_) => {}
            Row::Output(row) => others.0.push(format!("{} {:?}", row.time_ns, row.bytes)),
            Row::Stack(row) => {
                let stack = read.tables.stack_text(row.stack).join(";");
                others.1.push(format!("{} {} {} {stack}", row.time_ns, row.subject, row.thread));
            }
            Row::Log(row) => others.0.push(format!("{} {} {}", row.time_ns, row.level.name(), row.text)),
            Row::Scope(row) => {
                let name = read.tables.string(row.name);
                others.2.push(format!(
                    "{} {} {} {} {name}",
                    row.time_ns,
                    row.action.name(),
                    row.scope,
                    row.parent
                ));
            }
        }
    }
    (read.samples(), others.0, others.1, others.2)
}

#[test]
fn every_fixture_reads_back_from_a_trace_as_it_went_in() {
    let folder = TempDir::new("back");
    for (at, (path, _)) in all().into_iter().enumerate() {
        let before = drain(open(&path, &OpenProps::default()).and_then(|log| log.rows()).expect("a log"));
        let trace = folder.join(format!("{at}.flood"));
        let mut writer = TraceWriter::create(&trace, Run::default(), Overwrite::No).expect("a trace");
        let mut tables = Tables::default();
        tables.intern("strings of another log");
        write(
            &mut *open(&path, &OpenProps::default()).and_then(|log| log.rows()).expect("a log"),
            &mut writer,
            &mut tables,
        );
        writer.finish(&tables, &before.losses).expect("a trace");
        let after = drain(rows_of(&trace));
        assert_eq!(after.error, None);
        assert_eq!(words(&after), words(&before), "{}", path.display());
        assert_eq!(after.tables.subjects, before.tables.subjects);
        assert_eq!(after.losses, before.losses);
        let times: Vec<_> = after.rows.iter().map(Row::time_ns).collect();
        assert!(times.is_sorted(), "{}", path.display());
        // A recording that has ended is followed to its end.
        let followed = drain(follow_rows(&trace, &ScanProps::default(), None).expect("a trace"));
        assert_eq!(words(&followed), words(&before), "{}", path.display());
    }
}

#[test]
fn logs_of_several_tools_share_one_trace_and_one_clock() {
    let folder = TempDir::new("shared");
    let trace = folder.join("both.flood");
    let mut writer = TraceWriter::create(&trace, Run::default(), Overwrite::No).expect("a trace");
    let mut tables = Tables::default();
    for (at, name) in
        ["mprof/functions.dat", "smi/query_gpu_all.csv", "memory_logger/gdb_pstack.log"].iter().enumerate()
    {
        let props = OpenProps { process: ProcessId(at as u32 + 1), ..OpenProps::default() };
        if at > 0 {
            writer.next_sequence().expect("room");
        }
        write(
            &mut *open(&fixture(name), &props).and_then(|log| log.rows()).expect("a log"),
            &mut writer,
            &mut tables,
        );
    }
    writer.finish(&tables, &floodmark_store::Losses::default()).expect("a trace");
    let read = drain(rows_of(&trace));
    assert_eq!(read.tables.subjects.len(), 5);
    assert!(read.rows.iter().map(Row::time_ns).collect::<Vec<_>>().is_sorted());
    let stacks =
        read.rows.iter().filter_map(|row| if let Row::Stack(row) = row { Some(row.stack) } else { None });
    assert!(
        stacks.into_iter().all(|stack| read
            .tables
            .stack_text(stack)
            .last()
            .is_some_and(|f| f.contains("main")))
    );
}

/// Records sweeps of a job with output, stacks and marks; seals after every tenth.
fn record(job: SubjectId, sweeps: std::ops::Range<u64>, sealer: &mut Sealer) {
    for sweep in sweeps {
        let when = When::At(monotonic_ns());
        tail::sample(job, Metric::Rss, sweep, when);
        tail::output(OutputStream::Stderr, format!("line {sweep}\n").as_bytes(), when);
        let function = tail::intern(&format!("function {sweep}"));
        let frame = tail::intern_frame(&Frame { function, ..Frame::default() });
        let stack = tail::intern_stack(StackId(0), frame);
        let seen = StackSeen { thread: sweep, stack, reason: StackReason::Peak, pause_ns: 1 };
        tail::stack_sample(job, &seen, when);
        tail::mark(tail::intern(&format!("mark {sweep}")));
        if sweep % 10 == 9 {
            sealer.seal().expect("seals");
        }
    }
}

#[test]
fn a_growing_trace_is_followed_in_order_and_to_its_end() {
    const SWEEPS: u64 = 60;
    let _turn = recording();
    let folder = TempDir::new("growing");
    let path = folder.join("run.flood");
    let recorder = Recorder::start_global(RecordProps::new(&path)).expect("starts");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    let job = tail::subject(&Subject {
        kind: SubjectKind::Job,
        number: 0,
        start_ns: 0,
        parent: SubjectId(0),
        name: "job".into(),
        detail: String::new(),
    });
    let (saw_rows, first_rows) = std::sync::mpsc::channel();
    let followed = std::thread::scope(|scope| {
        let mut source = follow_rows(&path, &ScanProps::default(), None).expect("follows");
        let follower = std::thread::Builder::new().name("follower".into()).spawn_scoped(scope, move || {
            let mut rows = Vec::new();
            assert!(source.next(&mut rows).expect("reads"));
            saw_rows.send(()).expect("the receiver exists");
            let mut followed = drain(source);
            followed.rows.splice(0..0, rows);
            followed
        });
        record(job, 0..SWEEPS / 2, &mut sealer);
        first_rows.recv_timeout(wait::DEADLINE).expect("the follower sees rows of a growing trace");
        record(job, SWEEPS / 2..SWEEPS, &mut sealer);
        recorder.stop();
        sealer.finish().expect("seals the rest");
        follower.expect("a thread").join().expect("no panic")
    });
    assert_eq!(followed.error, None);
    let times: Vec<_> = followed.rows.iter().map(Row::time_ns).collect();
    assert!(times.is_sorted());
    let whole = drain(rows_of(&path));
    assert_eq!(words(&followed), words(&whole));
    let (samples, output, stacks, scopes) = words(&followed);
    assert_eq!([samples.len(), output.len(), stacks.len(), scopes.len()], [SWEEPS as usize; 4]);
    assert!(stacks[59].ends_with(" 59 function 59") && scopes[59].ends_with(" mark 59"), "{}", stacks[59]);
}
