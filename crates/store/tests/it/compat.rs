//! Every released version of the format keeps a fixture that must still open.

use std::fs;
use std::path::{Path, PathBuf};

use floodmark_event::{
    CallAction, CallRow, EventBatch, Kind, Metric, OutputRow, OutputStream, ProcessId, SampleRow,
    ScopeAction, ScopeRow, StackId, StackReason, StackSampleRow, StackSeen, StringId, Subject, SubjectEnd,
    SubjectId, SubjectKind, SubjectRow,
};
use floodmark_store::manifest::FORMAT_VERSION;
use floodmark_store::{Losses, Overwrite, Run, ScanProps, Sealer, Trace, TraceWriter};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::record::Control;
use floodmark_tail::stream::StreamItem;
use floodmark_tail::{AllocDomain, Call, RecordProps, Recorder, When};
use floodmark_testkit::TempDir;

use crate::intake::{chunk, header, received};
use crate::traces::{event, meaning, read, rows, tables};

fn fixtures(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/fixtures/v{version}"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("creates");
    for entry in fs::read_dir(from).expect("a fixture").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copies");
        }
    }
}

#[test]
fn every_version_still_opens() {
    for version in 1..=FORMAT_VERSION {
        let folder = TempDir::new(&format!("compat-{version}"));
        let fixture = fixtures(version);
        assert!(
            fixture.exists(),
            "format version {version} has no fixture; make it with\n  cargo test -p floodmark-store --test it -- --ignored write_the_fixture"
        );
        // Opening seals a tail, so copies are opened.
        copy(&fixture, folder.path());
        let tables = tables();
        let expected: Vec<_> = (0..500).map(|index| meaning(&event(index), &tables)).collect();
        assert_eq!(read(&folder.join("sealed"), &ScanProps::default()), expected);
        let events = read(&folder.join("unsealed"), &ScanProps::default());
        assert_eq!(events.len(), 600);
        for (index, (event, resource, _, stack)) in (0..).zip(events) {
            assert_eq!((event.address, event.bytes, event.kind), (index << 8, index, Kind::Pinned));
            assert_eq!((resource.as_str(), stack.len()), ("pool", 1));
        }
        assert!(!Trace::open(&folder.join("unsealed")).expect("opens").is_live());
        if version >= 2 {
            check_observed(&folder.join("sealed"), 0);
            check_observed(&folder.join("unsealed"), 1 << 32);
        }
        if version >= 3 {
            check_stamped(&folder.join("sealed"), 0);
            check_stamped(&folder.join("unsealed"), 1 << 32);
            check_received(&folder.join("received"));
        }
    }
}

/// What came with version 3: calls, ranges, identities of devices.
fn check_stamped(path: &Path, first: u64) {
    let trace = Trace::open(path).expect("opens");
    let mut scan = trace.rows::<CallRow>(&ScanProps::default()).expect("scans");
    let (mut batch, mut calls) = (Vec::new(), Vec::new());
    while scan.next(&mut batch).expect("reads") {
        for row in &batch {
            assert_eq!(row.time_ns % 1000, 0);
            let function = scan.tables().frame(row.code).function;
            calls.push((row.action, scan.tables().string(function).to_owned(), row.line, row.rss_bytes));
        }
    }
    assert!(calls.iter().all(|(_, name, ..)| *name == calls[0].1 && !name.is_empty()), "{calls:?}");
    let found: Vec<_> = calls.iter().map(|(action, _, line, rss)| (*action, *line, *rss)).collect();
    let expected = (0..80).map(|index| call(index, 1));
    let expected: Vec<_> = expected.map(|call| (call.action, call.line, call.rss_bytes)).collect();
    assert_eq!(found, expected);
    let devices: Vec<_> = scan.tables().devices.values().cloned().collect();
    assert_eq!(devices, ["GPU-1234"]);
    let spans = trace.scopes().expect("reads");
    let ranges: Vec<_> = spans.iter().filter(|span| span.name == "range").collect();
    assert_eq!(ranges.len(), 2);
    assert!(ranges.iter().all(|range| range.scope > first && range.parent == 0 && range.end_ns.is_some()));
}

/// A process whose frames were received: a mark, corrected by the offset of its host's clock.
fn check_received(path: &Path) {
    let manifest = Trace::open(path).expect("opens").manifest().clone();
    let process = &manifest.processes[0];
    assert_eq!((process.pid, process.host.as_str(), process.sealed), (7, "node-1", true));
    assert_eq!((manifest.clocks[0].offset_ns, manifest.clocks[0].error_ns), (500, Some(40)));
    let marks = rows::<ScopeRow>(path, &ScanProps::default());
    let times: Vec<i64> = marks.iter().map(|row| row.time_ns).collect();
    assert_eq!(times, [1_700_000_000_000_002_500]);
}

/// Call `index` of both traces.
fn call(index: u64, code: u32) -> Call {
    let action = CallAction::ALL[index as usize % 8];
    Call { action, code, line: index as u32, rss_bytes: (index >= 8).then_some((index / 8) << 12) }
}

/// The tables that came with version 2, for subjects numbered from `first` on.
fn check_observed(path: &Path, first: u64) {
    let everything = ScanProps::default();
    let subjects = Trace::open(path).expect("opens").subjects().expect("reads");
    let subjects: Vec<&SubjectRow> = subjects.values().collect();
    assert_eq!((subjects[0].subject, subjects[0].name.as_str()), (first + 1, "shell"));
    assert_eq!((subjects[1].parent, subjects[1].detail.as_str()), (first + 1, "worker --fast"));
    assert_eq!((subjects[1].wait_status, subjects[1].peak_rss_bytes), (Some(9), Some(1 << 30)));
    assert_eq!((subjects[0].end_ns, subjects[0].start_ns), (None, Some(1_700_000_000_000_000_000)));
    for (index, row) in (0..).zip(rows::<SampleRow>(path, &everything)) {
        assert_eq!(row, SampleRow { time_ns: row.time_ns, ..sample(index, first) });
    }
    assert_eq!(rows::<SampleRow>(path, &everything).len(), 300);
    let output = rows::<OutputRow>(path, &everything);
    assert_eq!(output.iter().map(|row| row.stream).collect::<Vec<_>>(), OutputStream::ALL);
    assert!(output.iter().all(|row| row.bytes == b"\xff\x00 output"));
    let stacks = rows::<StackSampleRow>(path, &everything);
    // The reason of threads that made their process grow came later.
    let reasons: Vec<StackReason> = stacks.iter().map(|row| row.reason).collect();
    assert_eq!(reasons, StackReason::ALL[..5]);
    assert!(stacks.iter().all(|row| row.stack != StackId(0) && row.pause_ns == 1500 && row.thread == 7));
    let mut scopes = Trace::open(path).expect("opens").scopes().expect("reads");
    scopes.retain(|scope| scope.name != "range");
    assert_eq!(scopes.len(), 1);
    assert_eq!(
        (scopes[0].name.as_str(), scopes[0].scope, scopes[0].end_ns.is_some()),
        ("step", first + 1, true)
    );
}

/// Sample `index` of both traces.
fn sample(index: u64, first: u64) -> SampleRow {
    let (metric, value) = (Metric::ALL[index as usize % 24], index * index * 4096);
    SampleRow {
        time_ns: 1_700_000_000_000_000_000 + index as i64,
        subject: first + 1 + index % 2,
        metric,
        value,
    }
}

fn subject(number: u64) -> Subject {
    let (name, detail) = [("shell", ""), ("worker", "worker --fast")][number as usize - 1];
    Subject {
        kind: SubjectKind::Process,
        number,
        start_ns: 1_700_000_000_000_000_000,
        parent: SubjectId(number as u32 - 1),
        name: name.into(),
        detail: detail.into(),
    }
}

/// Writes the tables that came with versions 2 and 3.
fn write_observed(path: &Path) {
    let mut tables = tables();
    tables.devices.insert((ProcessId(1), 0), "GPU-1234".to_owned());
    for number in 1..=2 {
        let Subject { kind, start_ns, parent, name, detail, .. } = subject(number);
        let ended = number == 2;
        let row = SubjectRow {
            subject: number,
            kind,
            number,
            start_ns: Some(start_ns),
            parent: u64::from(parent.0),
            name,
            detail,
            end_ns: ended.then_some(start_ns + 1),
            wait_status: ended.then_some(9),
            peak_rss_bytes: ended.then_some(1 << 30),
        };
        tables.subjects.insert(number, row);
    }
    let time_ns = 1_700_000_000_000_000_000;
    let samples: Vec<SampleRow> = (0..300).map(|index| sample(index, 0)).collect();
    let (process, bytes) = (ProcessId(1), b"\xff\x00 output".to_vec());
    let output = OutputStream::ALL.map(|stream| OutputRow { time_ns, process, stream, bytes: bytes.clone() });
    let (stack, thread, pause_ns) = (StackId(1), 7, 1500);
    let stacks = StackReason::ALL.map(|reason| StackSampleRow {
        time_ns,
        subject: 1,
        thread,
        stack,
        reason,
        pause_ns,
    });
    let name = tables.intern("step");
    let scopes = [(ScopeAction::Enter, name), (ScopeAction::Exit, StringId(0))];
    let scopes =
        scopes.map(|(action, name)| ScopeRow { time_ns, process, thread, action, scope: 1, parent: 0, name });
    let range = tables.intern("range");
    let ranges =
        [(ScopeAction::Begin, 2), (ScopeAction::Begin, 3), (ScopeAction::End, 2), (ScopeAction::End, 3)];
    let ranges = ranges.map(|(action, scope)| {
        let name = if action == ScopeAction::Begin { range } else { StringId(0) };
        ScopeRow { time_ns, process, thread, action, scope, parent: 0, name }
    });
    let calls: Vec<CallRow> = (0..80)
        .map(|index| {
            let Call { action, code, line, rss_bytes } = call(index, 1);
            CallRow { time_ns, process, thread, action, code, line, rss_bytes }
        })
        .collect();
    let mut writer = TraceWriter::create(path, Run::default(), Overwrite::Yes).expect("creates");
    writer.write_rows(&calls, &tables).expect("writes");
    let mut events = EventBatch::new();
    (0..500).for_each(|index| events.push(&event(index)));
    writer.write(&events, &tables).expect("writes");
    writer.write_rows(&samples, &tables).expect("writes");
    writer.write_rows(&output, &tables).expect("writes");
    writer.write_rows(&stacks, &tables).expect("writes");
    writer.write_rows(&scopes, &tables).expect("writes");
    writer.write_rows(&ranges, &tables).expect("writes");
    writer.finish(&tables, &Losses::default()).expect("finishes");
}

/// Records what came with version 2.
fn record_observed(recorder: &Recorder, stack: StackId) {
    let ids = [1, 2].map(|number| recorder.subject(&subject(number)));
    for index in 0..300 {
        let SampleRow { metric, value, .. } = sample(index, 0);
        recorder.sample(ids[index as usize % 2], metric, value, When::Now);
    }
    for stream in OutputStream::ALL {
        recorder.output(stream, b"\xff\x00 output", When::Now);
    }
    for reason in StackReason::ALL {
        recorder.stack_sample(ids[0], &StackSeen { thread: 7, stack, reason, pause_ns: 1500 }, When::Now);
    }
    recorder.exit_scope(recorder.enter_scope(recorder.intern("step")));
    recorder.subject_ended(
        ids[1],
        SubjectEnd { wait_status: Some(9), peak_rss_bytes: Some(1 << 30) },
        When::Now,
    );
}

/// Stores the frames of a process without sealing them.
fn write_received(path: &Path) {
    let clock = StreamItem::Control(Control::Clock { offset_ns: 500, error_ns: Some(40) });
    let ended = StreamItem::Control(Control::Ended { time_ns: 9000 });
    let mut sealer = Sealer::open(path, Run::default()).expect("seals");
    let items = [header("node-1-a", 1), clock, chunk(1, 0, 2000), ended];
    sealer.accept(&mut received(&items)).expect("accepts");
}

#[test]
#[ignore = "writes the fixture of a new format version into the source tree"]
fn write_the_fixture() {
    let target = fixtures(FORMAT_VERSION);
    write_observed(&target.join("sealed"));
    let unsealed = target.join("unsealed");
    let recorder = Recorder::start(RecordProps::new(&unsealed)).expect("starts");
    let function = recorder.intern("allocate");
    let frame = recorder.intern_frame(&floodmark_event::tables::Frame { function, ..Default::default() });
    let stack = recorder.intern_stack(StackId(0), frame);
    let domain =
        AllocDomain { kind: Kind::Pinned, resource: recorder.intern("pool"), ..AllocDomain::default() };
    // Every other one is recorded late.
    let start = monotonic_ns();
    for index in (0..600).map(|index| index ^ 1) {
        recorder.alloc_at(index << 8, index, &domain, stack, When::At(start + index));
    }
    record_observed(&recorder, stack);
    recorder.define_device(0, "GPU-1234");
    let ranges = [0, 1].map(|_| recorder.begin_range(recorder.intern("range")));
    for range in ranges {
        recorder.end_range(range);
    }
    for index in 0..80 {
        recorder.call(&call(index, frame));
    }
    recorder.stop();
    write_received(&target.join("received"));
    // The machine on which the fixture is made is nobody's business.
    for entry in fs::read_dir(unsealed.join("segments")).expect("segments").flatten() {
        let mut bytes = fs::read(entry.path()).expect("reads");
        bytes[152..728].fill(0);
        fs::write(unsealed.join("segments/node-1-1.ring"), bytes).expect("writes");
        fs::remove_file(entry.path()).expect("removes");
    }
}
