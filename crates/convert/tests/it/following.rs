//! Events and rows of a growing trace, read together while several processes record into it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use floodmark_event::Row;
use floodmark_event::tables::Frame;
use floodmark_event::{
    Event, EventBatch, Kind, Metric, OutputStream, StackId, Subject, SubjectId, SubjectKind, Tables,
};
use floodmark_store::TraceFollower;
use floodmark_store::{Follow, Overwrite, Run, ScanProps, Sealer, Step, TraceWriter};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder, When};
use floodmark_testkit::{TempDir, wait_for, wait_for_exit, wait_until};

/// Name of the variable that tells a child where to record.
const CHILD: &str = "FLOODMARK_TEST_FOLLOWED";

/// A process records into one trace at a time, so tests take turns.
pub(crate) fn recording() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records an allocation whose resource and stack say its address.
fn allocate(who: &str, number: u64) {
    let resource = tail::intern(&format!("pool {who} {number}"));
    let function = tail::intern(&format!("{who} {number}"));
    let frame = tail::intern_frame(&Frame { function, ..Frame::default() });
    let stack = tail::intern_stack(StackId(0), frame);
    tail::alloc(number, 256, &AllocDomain { kind: Kind::Device, resource, ..AllocDomain::default() }, stack);
}

/// Records an allocation for each line of its input.
#[test]
#[ignore = "is started by another test"]
fn other_process() {
    let Ok(trace) = std::env::var(CHILD) else { return };
    let recorder = Recorder::start_global(RecordProps::new(trace)).expect("starts");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        allocate("child", line.parse().expect("a number"));
        let mut out = std::io::stdout();
        writeln!(out, "recorded {line}").and_then(|()| out.flush()).expect("somebody reads");
    }
    recorder.stop();
}

struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(trace: &std::path::Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "following::other_process", "--ignored", "--nocapture"])
            .env(CHILD, trace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output: BufReader::new(output) }
    }

    fn allocate(&mut self, number: u64) {
        writeln!(self.input, "{number}").expect("it reads");
        let mut line = String::new();
        while !line.contains("recorded") {
            line.clear();
            assert!(self.output.read_line(&mut line).expect("text") > 0, "it goes on");
        }
    }

    fn end(mut self) {
        drop(self.input);
        assert!(wait_for_exit(&mut self.child, "the other process").success());
    }
}

/// Reads until `wanted` holds of what was read; the recording goes on meanwhile.
fn read_until(
    following: &mut TraceFollower,
    events: &mut Vec<Event>,
    rows: &mut Vec<Row>,
    wanted: impl Fn(&[Event], &[Row]) -> bool,
) {
    let (mut batch, mut new) = (EventBatch::new(), Vec::new());
    wait_until("the recorded events and rows", || {
        while !wanted(events, rows) {
            match following.next(&mut batch, &mut new).expect("reads") {
                Step::Events => {
                    events.extend(batch.events());
                    rows.append(&mut new);
                }
                Step::Waiting => return false,
                Step::Ended => panic!("the recording goes on"),
            }
        }
        true
    });
}

/// Ids of the stacks with this text, in two looks of a follower that does not translate.
fn first_stack(path: &std::path::Path, text: &str) -> StackId {
    let mut follow = Follow::open(path, ScanProps::default()).expect("follows");
    let mut batch = EventBatch::new();
    wait_for(&format!("an event with the stack {text}"), || {
        while follow.next(&mut batch).expect("reads") == Step::Events {
            let has_text = |stack| follow.tables().stack_text(stack).contains(&text.into());
            if let Some(event) = batch.events().find(|event| has_text(event.stack)) {
                return Some(event.stack);
            }
        }
        None
    })
}

fn check_texts(events: &[Event], tables: &Tables) {
    for event in events {
        let who = if event.address.is_multiple_of(2) { "parent" } else { "child" };
        let text = format!("{who} {}", event.address);
        assert_eq!(tables.stack_text(event.stack), [text.as_str()]);
        assert_eq!(tables.string(event.resource), format!("pool {text}"));
    }
}

#[test]
fn what_was_read_in_an_earlier_look_keeps_its_texts() {
    let _turn = recording();
    let folder = TempDir::new("looks");
    let path = folder.join("run.flood");
    let recorder = Recorder::start_global(RecordProps::new(&path)).expect("starts");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    let mut other = Other::start(&path);
    let mut following = TraceFollower::open(&path, &ScanProps::default()).expect("follows");
    let (mut events, mut rows) = (Vec::new(), Vec::new());
    allocate("parent", 2);
    other.allocate(1);
    read_until(&mut following, &mut events, &mut rows, |events, _| events.len() == 2);
    let before = first_stack(&path, "child 1");
    // What the parent defines now is numbered before what the child had defined.
    for number in [4, 6, 8] {
        allocate("parent", number);
    }
    other.allocate(3);
    read_until(&mut following, &mut events, &mut rows, |events, _| events.len() == 6);
    assert_ne!(first_stack(&path, "child 1"), before, "or there would be nothing to translate");
    check_texts(&events, following.tables());
    sealer.seal().expect("seals");
    other.allocate(5);
    allocate("parent", 10);
    other.end();
    recorder.stop();
    sealer.finish().expect("seals the rest");
    let (mut batch, mut new) = (EventBatch::new(), Vec::new());
    while following.next(&mut batch, &mut new).expect("reads") != Step::Ended {
        events.extend(batch.events());
    }
    let addresses: Vec<u64> = events.iter().map(|event| event.address).collect();
    assert_eq!(addresses, [2, 1, 4, 6, 8, 3, 5, 10]);
    check_texts(&events, following.tables());
    assert!(following.losses().is_empty(), "{:?}", following.losses());
    assert_eq!(following.tables().processes.len(), 2);
}

#[test]
fn events_and_rows_come_together_and_subjects_are_as_of_the_latest_look() {
    let _turn = recording();
    let folder = TempDir::new("together");
    let path = folder.join("run.flood");
    let recorder = Recorder::start_global(RecordProps::new(&path)).expect("starts");
    let sealer = Sealer::open(&path, Run::default()).expect("seals");
    let mut following = TraceFollower::open(&path, &ScanProps::default()).expect("follows");
    let (mut batch, mut new) = (EventBatch::new(), Vec::new());
    assert_eq!(following.next(&mut batch, &mut new).expect("reads"), Step::Waiting);
    let (mut events, mut rows) = (Vec::new(), Vec::new());
    let mut ids = Vec::new();
    for round in 1..=3u64 {
        let subject = Subject {
            kind: SubjectKind::Process,
            number: round,
            start_ns: 0,
            parent: SubjectId(0),
            name: format!("process {round}"),
            detail: String::new(),
        };
        ids.push(tail::subject(&subject));
        let when = When::At(monotonic_ns());
        tail::sample(ids[ids.len() - 1], Metric::Rss, round, when);
        tail::output(OutputStream::Stdout, b"text\n", when);
        tail::mark(tail::intern(&format!("mark {round}")));
        allocate("parent", round * 2);
        let rounds = round as usize;
        read_until(&mut following, &mut events, &mut rows, |events, rows| {
            events.len() == rounds && rows.len() == 3 * rounds
        });
        assert_eq!(following.tables().subjects.len(), rounds);
    }
    let end = floodmark_event::SubjectEnd { wait_status: Some(9), peak_rss_bytes: None };
    tail::subject_ended(ids[0], end, When::At(monotonic_ns()));
    recorder.stop();
    sealer.finish().expect("seals the rest");
    // What is left of the look before, and then the last one.
    assert_eq!(following.next(&mut batch, &mut new).expect("reads"), Step::Waiting);
    assert_eq!(following.next(&mut batch, &mut new).expect("reads"), Step::Ended);
    assert_eq!(following.next(&mut batch, &mut new).expect("reads"), Step::Ended, "and stays ended");
    check_texts(&events, following.tables());
    let marks = rows.iter().filter_map(|row| match row {
        Row::Scope(row) => Some(following.tables().string(row.name)),
        _ => None,
    });
    assert_eq!(marks.collect::<Vec<_>>(), ["mark 1", "mark 2", "mark 3"]);
    let first = following.tables().subjects.values().next().expect("three");
    assert_eq!((first.name.as_str(), first.wait_status), ("process 1", Some(9)));
    assert!(following.losses().is_empty(), "{:?}", following.losses());
}

#[test]
fn a_finished_trace_is_read_in_one_look_with_its_losses() {
    let folder = TempDir::new("finished");
    let path = folder.join("run.flood");
    let mut writer = TraceWriter::create(&path, Run::default(), Overwrite::No).expect("a trace");
    let mut batch = EventBatch::new();
    let mut tables = Tables::default();
    let resource = tables.intern("pool");
    batch.push(&Event { time_ns: 5, address: 1, resource, ..Event::default() });
    writer.write(&batch, &tables).expect("room");
    let mut losses = floodmark_store::Losses::default();
    losses.add(3, "somebody forgot");
    writer.finish(&tables, &losses).expect("a trace");
    let mut following = TraceFollower::open(&path, &ScanProps::default()).expect("follows");
    let mut rows = Vec::new();
    assert_eq!(following.next(&mut batch, &mut rows).expect("reads"), Step::Events);
    assert_eq!((batch.len(), following.tables().string(batch.event(0).resource)), (1, "pool"));
    assert_eq!(following.losses(), losses);
    assert_eq!(following.next(&mut batch, &mut rows).expect("reads"), Step::Ended);
    assert_eq!(following.losses(), losses);
}

#[test]
fn of_one_look_events_come_first_so_that_there_is_something_to_show_at_once() {
    let _turn = recording();
    let folder = TempDir::new("events-first");
    let path = folder.join("a.flood");
    let recorder = Recorder::start_global(RecordProps::new(&path)).expect("starts");
    for number in 1..=30_000u64 {
        tail::alloc(number << 8, 256, &AllocDomain::default(), StackId(0));
        if number % 10_000 == 1 {
            tail::sample(SubjectId(1), Metric::Rss, number, When::Now);
        }
    }
    recorder.stop();
    let mut following = TraceFollower::open(&path, &ScanProps::default()).expect("follows");
    let (mut events, mut rows) = (EventBatch::new(), Vec::new());
    assert_eq!(following.next(&mut events, &mut rows).expect("reads"), Step::Events);
    assert!(!events.is_empty() && events.len() < 30_000 && rows.is_empty(), "a batch of events alone");
    let (mut all_events, mut all_rows) = (events.len(), 0);
    while following.next(&mut events, &mut rows).expect("reads") == Step::Events {
        assert!(events.is_empty() || all_rows == 0, "an event after a row");
        all_events += events.len();
        all_rows += rows.len();
    }
    assert_eq!((all_events, all_rows), (30_000, 3));
    assert!(following.losses().is_empty(), "{:?}", following.losses());
}
