//! What samplers record is read back the same from the tail, from parts, and from both together.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use floodmark_event::tables::Frame;
use floodmark_event::{
    Metric, OutputRow, OutputStream, ProcessId, SampleRow, ScopeRow, StackId, StackReason, StackSampleRow,
    StackSeen, Subject, SubjectEnd, SubjectId, SubjectKind, SubjectRow, Tables,
};
use floodmark_store::{Losses, Overwrite, Run, ScanProps, Sealer, Table, Trace, TraceWriter, repair};
use floodmark_tail::{RecordProps, Recorder, When};
use floodmark_testkit::TempDir;
use proptest::prelude::*;

use crate::traces::{rows, tables};

/// One call of a sampler, a moment after the one before.
#[derive(Clone, Debug)]
enum Call {
    Samples(u32, Vec<(usize, u64)>),
    Output(usize, usize),
    Stack(u32, u32),
    Seal,
}

fn call() -> impl Strategy<Value = Call> {
    let values = proptest::collection::vec((0..Metric::ALL.len(), 0u64..1 << 40), 1..10);
    prop_oneof![
        10 => (1u32..40, values).prop_map(|(subject, values)| Call::Samples(subject, values)),
        4 => (0usize..3, 0usize..300).prop_map(|(stream, length)| Call::Output(stream, length)),
        1 => (0usize..3, 0usize..150_000).prop_map(|(stream, length)| Call::Output(stream, length)),
        4 => (1u32..40, 0u32..3).prop_map(|(subject, stack)| Call::Stack(subject, stack)),
        1 => Just(Call::Seal),
    ]
}

/// What must be read back. Subjects are numbers of the first process.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    samples: Vec<SampleRow>,
    output: BTreeMap<&'static str, Vec<u8>>,
    stacks: Vec<(i64, u64, Vec<String>, u64)>,
}

const FIRST: u64 = 1 << 32;

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + length) as u8).collect()
}

impl Expected {
    fn call(
        &mut self,
        recorder: &Recorder,
        call: &Call,
        index: u64,
        time_ns: u64,
        offset_ns: i64,
        stacks: &[StackId],
    ) {
        let (when, utc_ns) = (When::At(time_ns), time_ns as i64 + offset_ns);
        match call {
            Call::Samples(subject, values) => {
                let values: Vec<(Metric, u64)> =
                    values.iter().map(|(metric, value)| (Metric::ALL[*metric], *value)).collect();
                recorder.samples(SubjectId(*subject), &values, when);
                let subject = FIRST + u64::from(*subject);
                let row = |(metric, value): &_| SampleRow {
                    time_ns: utc_ns,
                    subject,
                    metric: *metric,
                    value: *value,
                };
                self.samples.extend(values.iter().map(row));
            }
            Call::Output(stream, length) => {
                let (stream, bytes) = (OutputStream::ALL[*stream], text(*length));
                recorder.output(stream, &bytes, when);
                self.output.entry(stream.name()).or_default().extend(bytes);
            }
            Call::Stack(subject, stack) => {
                let reason = StackReason::ALL[index as usize % 5];
                let seen =
                    StackSeen { thread: index, stack: stacks[*stack as usize], reason, pause_ns: index * 3 };
                recorder.stack_sample(SubjectId(*subject), &seen, when);
                let names = [vec![], vec!["main"], vec!["load", "main"]][*stack as usize].clone();
                let names = names.into_iter().map(str::to_owned).collect();
                self.stacks.push((utc_ns, FIRST + u64::from(*subject), names, index * 3));
            }
            Call::Seal => {}
        }
    }

    /// Reads everything there is now.
    fn read(path: &Path) -> Self {
        let samples = rows::<SampleRow>(path, &ScanProps::default());
        let mut output: BTreeMap<&'static str, Vec<u8>> = BTreeMap::new();
        for row in rows::<OutputRow>(path, &ScanProps::default()) {
            output.entry(row.stream.name()).or_default().extend(row.bytes);
        }
        let mut scan =
            Trace::open(path).expect("opens").rows::<StackSampleRow>(&ScanProps::default()).expect("scans");
        let (mut batch, mut stacks) = (Vec::new(), Vec::new());
        while scan.next(&mut batch).expect("reads") {
            for row in &batch {
                assert_eq!(row.reason, StackReason::ALL[row.thread as usize % 5]);
                let names = scan.tables().stack_text(row.stack);
                stacks.push((row.time_ns, row.subject, names, row.pause_ns));
            }
        }
        Self { samples, output, stacks }
    }
}

/// Two stacks, and none.
fn stacks(recorder: &Recorder) -> [StackId; 3] {
    let frame = |name: &str| {
        let function = recorder.intern(name);
        recorder.intern_frame(&Frame { function, ..Frame::default() })
    };
    let outer = recorder.intern_stack(StackId(0), frame("main"));
    [StackId(0), outer, recorder.intern_stack(outer, frame("load"))]
}

/// What to add to monotonic times, as the trace says.
fn offset_ns(path: &Path) -> i64 {
    let trace = Trace::open(path).expect("opens");
    let clock = &trace.manifest().clocks[0];
    clock.utc_ns - clock.monotonic_ns as i64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn whatever_is_observed_is_read_back_in_order(
        calls in proptest::collection::vec(call(), 1..120),
        steps in proptest::collection::vec(0u64..3_000_000, 120),
    ) {
        let folder = TempDir::new("observed");
        let path = folder.join("a.flood");
        let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
        let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
        sealer.seal().expect("seals");
        let (offset_ns, stacks) = (offset_ns(&path), stacks(&recorder));
        let mut expected = Expected::default();
        let mut time_ns = floodmark_tail::clock::monotonic_ns();
        for ((index, call), step) in (0..).zip(&calls).zip(steps) {
            time_ns += step;
            expected.call(&recorder, call, index, time_ns, offset_ns, &stacks);
            if matches!(call, Call::Seal) {
                sealer.seal().expect("seals");
            }
        }
        expected.output.retain(|_, bytes| !bytes.is_empty());
        // From the tail and whatever parts there are, as it is live; from parts alone.
        prop_assert!(Trace::open(&path).expect("opens").is_live());
        prop_assert_eq!(&Expected::read(&path), &expected);
        recorder.stop();
        sealer.finish().expect("seals");
        prop_assert!(!Trace::open(&path).expect("opens").is_live());
        prop_assert_eq!(&Expected::read(&path), &expected);
    }
}

#[test]
fn rows_of_several_threads_are_merged_by_time_while_the_trace_is_sealed() {
    let folder = TempDir::new("threads");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    let (threads, count) = (3, 30_000);
    std::thread::scope(|scope| {
        for thread in 1..=threads {
            let recorder = &recorder;
            scope.spawn(move || {
                for value in 0..count {
                    recorder.sample(SubjectId(thread), Metric::Live, value, When::Now);
                }
            });
        }
        for _ in 0..5 {
            sealer.seal().expect("seals");
        }
    });
    recorder.stop();
    sealer.finish().expect("seals");
    let found = rows::<SampleRow>(&path, &ScanProps::default());
    assert!(found.is_sorted_by_key(|row| row.time_ns));
    for thread in 1..=u64::from(threads) {
        let own = found.iter().filter(|row| row.subject == FIRST + thread);
        assert!(own.map(|row| row.value).eq(0..count), "thread {thread}");
    }
}

fn process(number: u64, parent: SubjectId) -> Subject {
    let (name, detail) = ("worker".to_owned(), format!("worker --number {number}"));
    Subject { kind: SubjectKind::Process, number, start_ns: 5_000 + number as i64, parent, name, detail }
}

#[test]
fn a_subject_is_one_row_however_late_it_ends() {
    let folder = TempDir::new("subjects");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    let parent = recorder.subject(&process(10, SubjectId(0)));
    let child = recorder.subject(&process(11, parent));
    let read = || Trace::open(&path).expect("opens").subjects().expect("reads");
    assert_eq!(read().len(), 2, "from the tail");
    sealer.seal().expect("seals");
    let offset_ns = offset_ns(&path);
    let end = SubjectEnd { wait_status: Some(9), peak_rss_bytes: Some(1 << 30) };
    recorder.subject_ended(child, end, When::At(777));
    let expected = SubjectRow {
        start_ns: Some(5_011),
        parent: FIRST + 1,
        detail: "worker --number 11".into(),
        end_ns: Some(777 + offset_ns),
        wait_status: Some(9),
        peak_rss_bytes: Some(1 << 30),
        ..SubjectRow::new(FIRST + 2, SubjectKind::Process, 11, "worker")
    };
    assert_eq!(read()[&(FIRST + 2)], expected, "defined in a part, ended in the tail");
    // A later subject with a name that was sealed long ago.
    let late = recorder.subject(&process(12, child));
    recorder.sample(late, Metric::Rss, 1, When::Now);
    assert_eq!(read()[&(FIRST + 3)].name, "worker");
    recorder.stop();
    let manifest = sealer.finish().expect("seals");
    assert_eq!(read()[&(FIRST + 2)], expected);
    assert_eq!((read()[&(FIRST + 1)].end_ns, read()[&(FIRST + 1)].parent), (None, 0));
    assert_eq!(manifest.rows_of(Table::Subject), 3);
    // Whoever reads the folder sees each subject once.
    let files: Vec<_> = fs::read_dir(path.join("subject")).expect("a folder").flatten().collect();
    assert_eq!(files.len(), 1);
}

#[test]
fn times_that_go_back_are_kept_and_rows_stay_in_the_order_of_recording() {
    let folder = TempDir::new("back");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let now = floodmark_tail::clock::monotonic_ns();
    let times = [now, now + 500, now + 100, now + 100, now + 700, now];
    for (value, time) in (0..).zip(times) {
        recorder.sample(SubjectId(1), Metric::Live, value, When::At(time));
    }
    let check = || {
        let found = rows::<SampleRow>(&path, &ScanProps::default());
        assert_eq!(found.iter().map(|row| row.value).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        let elapsed: Vec<i64> = found.iter().map(|row| row.time_ns - found[0].time_ns).collect();
        assert_eq!(elapsed, [0, 500, 100, 100, 700, 0]);
        let props = ScanProps { from_ns: Some(found[2].time_ns), ..ScanProps::default() };
        let later: Vec<u64> = rows::<SampleRow>(&path, &props).iter().map(|row| row.value).collect();
        assert_eq!(later, [1, 2, 3, 4]);
    };
    check();
    recorder.stop();
    check();
}

#[test]
fn rows_narrow_by_time_subject_and_process() {
    let folder = TempDir::new("narrow-rows");
    let path = folder.join("a.flood");
    let row = |index: u64| SampleRow {
        time_ns: 1_000 + index as i64,
        subject: (1 + index % 2) << 32 | (index % 5),
        metric: Metric::ALL[index as usize % 24],
        value: index,
    };
    let all: Vec<SampleRow> = (0..30_000).map(row).collect();
    let mut writer = TraceWriter::create(&path, Run::default(), Overwrite::No).expect("creates");
    for part in all.chunks(7_000) {
        writer.write_rows(part, &tables()).expect("writes");
    }
    let manifest = writer.finish(&tables(), &Losses::default()).expect("finishes");
    assert_eq!((manifest.rows_of(Table::Sample), manifest.rows_of(Table::Event)), (30_000, 0));
    assert_eq!((manifest.run.start_ns, manifest.run.end_ns), (Some(1_000), Some(30_999)));
    let check = |props: &ScanProps, wanted: &dyn Fn(&&SampleRow) -> bool| {
        let expected: Vec<SampleRow> = all.iter().filter(wanted).copied().collect();
        assert!(!expected.is_empty());
        assert_eq!(rows::<SampleRow>(&path, props), expected);
    };
    check(&ScanProps::default(), &|_| true);
    let subjects = vec![1 << 32 | 3, 2 << 32 | 4];
    let props = ScanProps { subjects: Some(subjects.clone()), ..ScanProps::default() };
    check(&props, &|row| subjects.contains(&row.subject));
    let props = ScanProps { processes: Some(vec![ProcessId(2)]), ..ScanProps::default() };
    check(&props, &|row| row.subject >> 32 == 2);
    let props = ScanProps { from_ns: Some(5_000), to_ns: Some(20_000), ..ScanProps::default() };
    check(&props, &|row| (5_000..=20_000).contains(&row.time_ns));
}

#[test]
fn every_table_can_be_written_and_read_without_a_recording() {
    let folder = TempDir::new("imported");
    let path = folder.join("a.flood");
    let mut tables = tables();
    let subject = SubjectRow {
        detail: "/sys/fs/cgroup/job".into(),
        ..SubjectRow::new(7, SubjectKind::Cgroup, 0, "job")
    };
    tables.subjects.insert(7, subject.clone());
    let sample = |time_ns, value| SampleRow { time_ns, subject: 7, metric: Metric::CgroupUsage, value };
    let output = |time_ns, bytes: &[u8]| OutputRow {
        time_ns,
        process: ProcessId(1),
        stream: OutputStream::Stderr,
        bytes: bytes.into(),
    };
    let stack = StackSampleRow {
        time_ns: 5,
        subject: 7,
        thread: 12,
        stack: StackId(2),
        reason: StackReason::Limit,
        pause_ns: 99,
    };
    let scope = |time_ns, action, name: &str, tables: &mut Tables| ScopeRow {
        time_ns,
        process: ProcessId(2),
        thread: 4,
        action,
        scope: 3,
        parent: 0,
        name: tables.intern(name),
    };
    let scopes = [
        scope(1, floodmark_event::ScopeAction::Enter, "step", &mut tables),
        scope(9, floodmark_event::ScopeAction::Exit, "", &mut tables),
    ];
    let mut writer = TraceWriter::create(&path, Run::default(), Overwrite::No).expect("creates");
    writer.write_rows(&[sample(10, 1), sample(30, 3)], &tables).expect("writes");
    writer.write_rows(&[output(10, b"\xff\x00 not text"), output(11, b"")], &tables).expect("writes");
    writer.next_sequence().expect("next sequence");
    writer.write_rows(&[sample(20, 2), sample(40, 4)], &tables).expect("writes");
    writer.write_rows(&[stack], &tables).expect("writes");
    writer.write_rows(&scopes, &tables).expect("writes");
    writer.finish(&tables, &Losses::default()).expect("finishes");
    let trace = Trace::open(&path).expect("opens");
    let everything = ScanProps::default();
    assert_eq!(
        rows::<SampleRow>(&path, &everything),
        [sample(10, 1), sample(20, 2), sample(30, 3), sample(40, 4)]
    );
    assert_eq!(rows::<OutputRow>(&path, &everything), [output(10, b"\xff\x00 not text"), output(11, b"")]);
    assert_eq!(trace.subjects().expect("reads"), BTreeMap::from([(7, subject)]));
    let mut scan = trace.rows::<StackSampleRow>(&everything).expect("scans");
    let mut found = Vec::new();
    assert!(scan.next(&mut found).expect("reads"));
    assert_eq!(scan.tables().stack_text(found[0].stack), ["load (app.py:9)", "main (app.py:3)"]);
    assert_eq!(StackSampleRow { stack: StackId(2), ..found[0] }, stack);
    let spans = trace.scopes().expect("reads");
    assert_eq!(spans.len(), 1);
    assert_eq!((spans[0].name.as_str(), spans[0].start_ns, spans[0].end_ns), ("step", 1, Some(9)));
    assert_eq!((spans[0].process, spans[0].thread), (ProcessId(2), 4));
}

#[test]
fn scopes_are_read_from_entering_to_leaving() {
    let folder = TempDir::new("scopes");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let outside = recorder.enter_scope(recorder.intern("epoch"));
    let outer = recorder.enter_scope(recorder.intern("batch"));
    recorder.mark(recorder.intern("half-way"));
    recorder.exit_scope(outer);
    let check = |ended: bool| {
        let spans = Trace::open(&path).expect("opens").scopes().expect("reads");
        let seen: Vec<_> =
            spans.iter().map(|span| (span.name.as_str(), span.parent, span.end_ns.is_some())).collect();
        assert_eq!(seen, [("epoch", 0, ended), ("batch", FIRST + 1, true), ("half-way", 0, true)]);
        assert!(spans.iter().all(|span| span.process == ProcessId(1) && span.thread != 0));
        assert!(spans[1].start_ns >= spans[0].start_ns && spans[1].end_ns >= Some(spans[1].start_ns));
    };
    check(false);
    recorder.exit_scope(outside);
    recorder.stop();
    check(true);
}

#[test]
fn a_damaged_part_of_samples_is_set_aside_and_counted() {
    let folder = TempDir::new("repair-samples");
    let path = folder.join("a.flood");
    let row = |time_ns| SampleRow { time_ns, subject: 1, metric: Metric::Rss, value: 1 };
    let mut writer = TraceWriter::create(&path, Run::default(), Overwrite::No).expect("creates");
    writer.write_rows(&(0..100).map(row).collect::<Vec<_>>(), &tables()).expect("writes");
    writer.next_sequence().expect("next sequence");
    writer.write_rows(&(100..150).map(row).collect::<Vec<_>>(), &tables()).expect("writes");
    writer.finish(&tables(), &Losses::default()).expect("finishes");
    let part = path.join("sample/part-000001.parquet");
    let bytes = fs::read(&part).expect("reads");
    fs::write(&part, &bytes[..bytes.len() / 2]).expect("writes");
    let report = repair(&path).expect("repairs");
    assert_eq!((report.set_aside.len(), report.lost_events), (1, 0));
    let trace = Trace::open(&path).expect("opens");
    assert_eq!(trace.manifest().rows_of(Table::Sample), 50);
    let losses = trace.manifest().all_losses();
    assert!(losses.gaps.iter().any(|gap| gap.count == 100 && gap.reason.contains("sample")), "{losses:?}");
}

/// Output of which each line says its number.
fn line(number: u64) -> String {
    format!("line {number:08} {}\n", "x".repeat(number as usize % 300))
}

#[test]
fn a_segment_cut_anywhere_costs_what_was_behind_the_cut_and_says_so() {
    let folder = TempDir::new("cut");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let count = 12_000;
    for number in 0..count {
        recorder.output(OutputStream::Stdout, line(number).as_bytes(), When::At(1_000 + number));
        recorder.sample(SubjectId(1), Metric::Live, number, When::At(1_000 + number));
    }
    recorder.stop();
    let segments: Vec<_> = fs::read_dir(path.join("segments")).expect("a tail").flatten().collect();
    let segment =
        segments.iter().map(fs::DirEntry::path).find(|path| path.extension().is_some_and(|end| end == "seg"));
    let segment = segment.expect("more than fits the lane's chunks");
    let whole = fs::read(&segment).expect("reads");
    for cut in [0, 1, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
        let copy = folder.join(format!("{cut}.flood"));
        fs::create_dir_all(copy.join("segments")).expect("creates");
        for entry in &segments {
            fs::copy(entry.path(), copy.join("segments").join(entry.file_name())).expect("copies");
        }
        let segment = copy.join("segments").join(segment.file_name().expect("a name"));
        fs::write(&segment, &whole[..cut]).expect("cuts");
        let trace = Trace::open(&copy).expect("opens");
        assert!(!trace.manifest().all_losses().is_empty(), "a loss is said");
        let mut scan = trace.rows::<SampleRow>(&ScanProps::default()).expect("scans");
        let (mut batch, mut values) = (Vec::new(), Vec::new());
        while scan.next(&mut batch).expect("reads") {
            values.extend(batch.iter().map(|row| row.value));
        }
        // The beginning, and after one hole the end.
        let holes = values.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert!(values.is_sorted() && holes <= 1, "cut at {cut}: {holes} holes");
        assert_eq!(values.last(), Some(&(count - 1)));
        assert!((values.len() as u64) < count);
        let mut scan = trace.rows::<OutputRow>(&ScanProps::default()).expect("scans");
        let (mut batch, mut output) = (Vec::new(), Vec::new());
        while scan.next(&mut batch).expect("reads") {
            output.extend(batch.iter().flat_map(|row| row.bytes.clone()));
        }
        let last = line(count - 1);
        assert!(output.ends_with(last.as_bytes()));
    }
}

const CHILD: &str = "FLOODMARK_TEST_OBSERVER";
const SWEEP: u64 = 20;

/// Records sweeps, output and stacks until it is killed, and says what is committed.
#[test]
#[ignore = "is started and killed by another test"]
fn observer() {
    let Ok(trace) = std::env::var(CHILD) else { return };
    let recorder = Recorder::start(RecordProps::new(&trace)).expect("starts");
    let sealed = trace.ends_with("sealed.flood");
    let mut sealer = sealed.then(|| Sealer::open(Path::new(&trace), Run::default()).expect("sealing starts"));
    let ids: Vec<SubjectId> =
        (0..SWEEP).map(|number| recorder.subject(&process(number, SubjectId(0)))).collect();
    let stack = stacks(&recorder)[2];
    for sweep in 0.. {
        let when = When::At(floodmark_tail::clock::monotonic_ns());
        for id in &ids {
            recorder.samples(*id, &[(Metric::Rss, sweep * 4096), (Metric::Threads, 3)], when);
        }
        recorder.output(OutputStream::Stdout, line(sweep).as_bytes(), when);
        let seen = StackSeen { thread: sweep, stack, reason: StackReason::Interval, pause_ns: 0 };
        recorder.stack_sample(ids[0], &seen, when);
        if sweep == 10 {
            recorder.subject_ended(ids[1], SubjectEnd { wait_status: Some(0), peak_rss_bytes: None }, when);
        }
        if let Some(sealer) = &mut sealer
            && sweep % 300 == 299
        {
            sealer.seal().expect("seals");
        }
        // What is said here is committed: a program's own output is not buffered by us.
        let mut out = std::io::stdout();
        let _ = writeln!(out, "swept {sweep}").and_then(|()| out.flush());
    }
}

#[test]
fn a_killed_observer_loses_nothing_it_had_recorded() {
    let folder = TempDir::new("killed");
    for (run, name) in ["1.flood", "2.sealed.flood", "3.flood", "4.sealed.flood"].into_iter().enumerate() {
        let path = folder.join(name);
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "observing::observer", "--ignored", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut committed = 0;
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let mut lines = out.lines().map_while(Result::ok);
        while committed < 2_000 * (run as u64 + 1) {
            let line = lines.next().expect("the observer goes on");
            if let Some(sweep) = line.rsplit("swept ").next().and_then(|number| number.parse::<u64>().ok()) {
                committed = sweep + 1;
            }
        }
        child.kill().expect("can be killed");
        child.wait().expect("ends");
        check_observed(&path, committed);
    }
}

fn check_observed(path: &Path, committed: u64) {
    let samples = rows::<SampleRow>(path, &ScanProps::default());
    assert!(samples.len() as u64 >= committed * SWEEP * 2, "{} of {committed} sweeps", samples.len());
    for (index, row) in (0..).zip(&samples) {
        let (sweep, subject) = (index / (SWEEP * 2), index / 2 % SWEEP);
        let (metric, value) = [(Metric::Rss, sweep * 4096), (Metric::Threads, 3)][index as usize % 2];
        assert_eq!((row.subject, row.metric, row.value), (FIRST + 1 + subject, metric, value));
    }
    let output: Vec<u8> =
        rows::<OutputRow>(path, &ScanProps::default()).into_iter().flat_map(|row| row.bytes).collect();
    let output = String::from_utf8(output).expect("text");
    let lines: Vec<String> = output.split_inclusive('\n').map(str::to_owned).collect();
    assert!(lines.len() as u64 >= committed);
    assert!((0..).zip(&lines).all(|(number, found)| *found == line(number)));
    let stacks = rows::<StackSampleRow>(path, &ScanProps::default());
    assert!(stacks.len() as u64 >= committed);
    assert!((0..).zip(&stacks).all(|(sweep, row)| row.thread == sweep && row.stack != StackId(0)));
    let subjects = Trace::open(path).expect("opens").subjects().expect("reads");
    assert_eq!(subjects.len() as u64, SWEEP);
    assert_eq!(subjects[&(FIRST + 2)].wait_status, Some(0));
}
