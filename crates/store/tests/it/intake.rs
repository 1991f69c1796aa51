//! Tails that travel: shipped through a pipe into another trace, they make the same trace.

use std::io::{self, Write as _};
use std::path::Path;

use floodmark_event::tables::Frame;
use floodmark_event::{
    CallAction, CallRow, Event, Metric, OutputRow, OutputStream, SampleRow, ScopeRow, StackId, StackReason,
    StackSampleRow, StackSeen, Subject, SubjectId, SubjectKind,
};
use floodmark_store::{
    Error, LocalTail, ReceivedTail, Run, ScanProps, Sealer, TailItem, TailSource, Trace, ship,
};
use floodmark_tail::clock::Anchor;
use floodmark_tail::record::{Control, ProcessHeader};
use floodmark_tail::stream::{self, ChunkFrame, StreamItem};
use floodmark_tail::{AllocDomain, Call, RecordProps, Recorder, Stamp, When};

use crate::traces::{read, rows};
use floodmark_testkit::TempDir;

/// Everything in a trace.
#[derive(Debug, PartialEq)]
struct Everything {
    events: Vec<(Event, String, String, Vec<String>)>,
    calls: Vec<CallRow>,
    scopes: Vec<(ScopeRow, String)>,
    samples: Vec<SampleRow>,
    output: Vec<OutputRow>,
    stacks: Vec<StackSampleRow>,
    subjects: Vec<floodmark_event::SubjectRow>,
    devices: Vec<(i32, String)>,
    processes: Vec<(u32, u32, String, String, i64)>,
}

impl Everything {
    fn of(path: &Path) -> Self {
        let props = ScanProps::default();
        let trace = Trace::open(path).expect("opens");
        let mut scan = trace.rows::<ScopeRow>(&props).expect("scans");
        let (mut batch, mut scopes) = (Vec::new(), Vec::new());
        while scan.next(&mut batch).expect("reads") {
            scopes.extend(batch.iter().map(|row| (*row, scan.tables().string(row.name).to_owned())));
        }
        let devices =
            scan.tables().devices.iter().map(|((_, device), uuid)| (*device, uuid.clone())).collect();
        let process = |process: &floodmark_store::manifest::ProcessEntry| {
            let (host, command) = (process.host.clone(), process.command.clone());
            (process.pid, process.parent_pid, host, command, process.start_ns)
        };
        let (mut events, mut calls) = (read(path, &props), rows::<CallRow>(path, &props));
        let (mut samples, mut output) = (rows::<SampleRow>(path, &props), rows::<OutputRow>(path, &props));
        let mut stacks = rows::<StackSampleRow>(path, &props);
        // Rows of several processes at the same nanosecond may come in either order.
        events.sort_by_key(|(event, ..)| (event.time_ns, event.process));
        calls.sort_by_key(|row| (row.time_ns, row.process));
        scopes.sort_by_key(|(row, _)| (row.time_ns, row.process));
        samples.sort_by_key(|row| (row.time_ns, row.subject >> 32));
        output.sort_by_key(|row| (row.time_ns, row.process));
        stacks.sort_by_key(|row| (row.time_ns, row.subject >> 32));
        Self {
            events,
            calls,
            scopes,
            samples,
            output,
            stacks,
            subjects: trace.subjects().expect("reads").into_values().collect(),
            devices,
            processes: trace.manifest().processes.iter().map(process).collect(),
        }
    }
}

/// Records some of everything.
fn record(recorder: &Recorder, round: u64) {
    let domain =
        AllocDomain { resource: recorder.intern("pool"), stream: round % 3, ..AllocDomain::default() };
    let function = recorder.intern(&format!("function {}", round / 10));
    let frame = recorder.intern_frame(&Frame { function, ..Frame::default() });
    let stack = recorder.intern_stack(StackId(0), frame);
    recorder.alloc(round << 8, round, &domain, stack);
    let now = floodmark_tail::clock::monotonic_ns();
    recorder.free_at(round << 8, round, &domain, Stamp::on_thread(round % 5, When::At(now - round)));
    recorder.call(&Call { action: CallAction::Call, code: frame, line: 7, rss_bytes: Some(round << 12) });
    recorder.end_range(recorder.begin_range(function));
    recorder.sample(SubjectId(1), Metric::Rss, round, When::Now);
    if round.is_multiple_of(100) {
        recorder.output(OutputStream::Stdout, format!("line {round}\n").as_bytes(), When::Now);
        let seen = StackSeen { thread: 1, stack, reason: StackReason::Peak, pause_ns: 5 };
        recorder.stack_sample(SubjectId(1), &seen, When::Now);
    }
}

#[test]
fn a_tail_shipped_through_a_pipe_makes_the_same_trace() {
    let folder = TempDir::new("shipped");
    let (here, there) = (folder.join("here.flood"), folder.join("there.flood"));
    let recorders = [0, 1].map(|_| Recorder::start(RecordProps::new(&here)).expect("starts"));
    let (reader, writer) = io::pipe().expect("a pipe");
    let receiving = std::thread::Builder::new().name("receiver".into()).spawn({
        let there = there.clone();
        move || {
            let mut sealer = Sealer::open(&there, Run::default()).expect("seals");
            // Sealed again and again in the middle of the stream.
            let mut tail = Limited { tail: ReceivedTail::new(reader), left: 0 };
            loop {
                tail.left = 7;
                if sealer.accept(&mut tail).expect("accepts") == 0 {
                    break;
                }
                sealer.seal().expect("seals");
            }
            sealer.finish().expect("seals")
        }
    });
    let receiving = receiving.expect("starts");
    let subject = Subject {
        kind: SubjectKind::Process,
        number: 7,
        start_ns: 5,
        parent: SubjectId(0),
        name: "worker".into(),
        detail: String::new(),
    };
    for recorder in &recorders {
        recorder.subject(&subject);
        recorder.define_device(0, "GPU-1234");
    }
    let mut local = LocalTail::open_exclusively(&here).expect("opens");
    let mut writer = io::BufWriter::new(writer);
    for round in 0..30_000u64 {
        record(&recorders[round as usize % 2], round);
        if round % 4000 == 0 {
            local.poll().expect("polls");
            ship(&mut local, &mut writer).expect("ships");
            // Not released: the original is to be sealed as well.
        }
    }
    drop(recorders);
    while local.poll().expect("polls") {
        ship(&mut local, &mut writer).expect("ships");
    }
    writer.flush().expect("flushes");
    drop((writer, local));
    let manifest = receiving.join().expect("the receiver ends well");
    assert!(manifest.processes.iter().all(|process| process.sealed), "their ends were received");
    let names: Vec<_> = std::fs::read_dir(there.join("segments")).expect("reads").flatten().collect();
    assert_eq!(names.len(), 1, "nothing but the lock is left: {names:?}");
    let original = Everything::of(&here);
    assert_eq!(original.events.len(), 60_000);
    assert!(!Trace::open(&there).expect("opens").is_live());
    let mut shipped = Everything::of(&there);
    // The recorder's ring ended in between; the two processes may have been met in another order.
    shipped.processes.sort_by_key(|process| process.4);
    assert_eq!(shipped, original);
}

/// Yields some items at a time.
struct Limited<S> {
    tail: S,
    left: usize,
}

impl<S: TailSource> TailSource for Limited<S> {
    fn next(&mut self) -> io::Result<Option<TailItem>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.tail.next()
    }
}

#[test]
fn an_agent_that_ships_makes_room_in_the_rings() {
    let folder = TempDir::new("released");
    let (here, there) = (folder.join("here.flood"), folder.join("there.flood"));
    // No more shared memory than the first chunk of each thread, and no disk: what finds no room is lost.
    let props = RecordProps { shared_memory_bytes: 1 << 20, ..RecordProps::new(&here) };
    let recorder = Recorder::start(props).expect("starts");
    let mut sealer = Sealer::open(&there, Run::default()).expect("seals");
    let mut local = LocalTail::open_exclusively(&here).expect("opens");
    let events = 400_000u64;
    for round in 0..events {
        recorder.alloc(round << 20, round, &AllocDomain::default(), StackId(0));
        if round % 10_000 == 0 {
            local.poll().expect("polls");
            sealer.accept(&mut local).expect("accepts");
            local.release().expect("releases");
        }
    }
    let spilled = std::fs::read_dir(here.join("segments")).expect("reads").flatten();
    let spilled = spilled.filter(|entry| entry.file_name().to_string_lossy().ends_with(".seg")).count();
    assert_eq!(spilled, 0, "the thread had to write to disk although its chunks were shipped");
    // 400,000 events are more than 60 chunks; what is remembered must not grow with the job.
    assert!(local.remembered_chunks() <= 20, "{} chunks", local.remembered_chunks());
    recorder.stop();
    local.poll().expect("polls");
    sealer.accept(&mut local).expect("accepts");
    let manifest = sealer.finish().expect("seals");
    assert!(manifest.all_losses().is_empty(), "{:?}", manifest.all_losses());
    let addresses: Vec<u64> =
        read(&there, &ScanProps::default()).iter().map(|(event, ..)| event.address).collect();
    assert_eq!(addresses, (0..events).map(|round| round << 20).collect::<Vec<_>>());
}

/// The bytes of a stream of items, as a receiver gets them.
pub(crate) fn received(items: &[StreamItem]) -> ReceivedTail<io::Cursor<Vec<u8>>> {
    let mut bytes = Vec::new();
    items.iter().try_for_each(|item| stream::write(&mut bytes, item)).expect("writes");
    ReceivedTail::new(io::Cursor::new(bytes))
}

pub(crate) fn header(stem: &str, boot: u8) -> StreamItem {
    StreamItem::Control(Control::Process(Box::new(ProcessHeader {
        stem: stem.to_owned(),
        pid: 7,
        parent_pid: 1,
        anchor: Anchor { monotonic_ns: 1000, utc_ns: 1_700_000_000_000_001_000 },
        boot_id: [boot; 16],
        host: format!("node-{boot}"),
        command: "app".into(),
        ..ProcessHeader::default()
    })))
}

/// A chunk with one mark at its base time: a thread record, then the mark.
pub(crate) fn chunk(lane: u32, sequence: u64, base_time_ns: u64) -> StreamItem {
    let payload = vec![2 << 2 | 3, 1, 0, 9, 6 << 2 | 3, 2, 0, 0, 0];
    StreamItem::Chunk(ChunkFrame {
        lane,
        sequence,
        base_time_ns,
        utc_offset_ns: 0,
        is_open: false,
        is_disordered: false,
        payload,
    })
}

#[test]
fn clocks_of_other_hosts_are_corrected_by_their_offset() {
    let folder = TempDir::new("clocks");
    let path = folder.join("a.flood");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    let clock = |offset_ns, error_ns| StreamItem::Control(Control::Clock { offset_ns, error_ns });
    let ended = || StreamItem::Control(Control::Ended { time_ns: 9000 });
    let first = [header("node-1-a", 1), clock(500, Some(40)), chunk(1, 0, 2000)];
    let second = [header("node-2-b", 2), chunk(1, 0, 2100), ended()];
    sealer.accept(&mut received(&[first, second].concat())).expect("accepts");
    sealer.seal().expect("seals");
    // Times of the first host are in parts by now: another offset comes too late.
    let items = [header("node-1-a", 1), clock(900, None), chunk(1, 1, 3000), ended()];
    sealer.accept(&mut received(&items)).expect("accepts");
    let manifest = sealer.finish().expect("seals");
    let clocks: Vec<_> =
        manifest.clocks.iter().map(|clock| (clock.host.as_str(), clock.offset_ns, clock.error_ns)).collect();
    assert_eq!(clocks, [("node-1", 500, Some(40)), ("node-2", 0, None)]);
    let times: Vec<i64> =
        rows::<ScopeRow>(&path, &ScanProps::default()).iter().map(|row| row.time_ns).collect();
    let base = 1_700_000_000_000_000_000;
    assert_eq!(times, [base + 2100, base + 2500, base + 3500]);
    let ends: Vec<_> = manifest.processes.iter().map(|process| process.end_ns).collect();
    assert_eq!(ends, [Some(base + 9500), Some(base + 9000)]);
}

#[test]
fn what_makes_no_sense_is_refused_and_what_came_before_is_kept() {
    let folder = TempDir::new("refused");
    let path = folder.join("a.flood");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    for stem in ["", "../escape", "a/b", "a.b", "a b", &"x".repeat(300)] {
        let error = sealer.accept(&mut received(&[header(stem, 1), chunk(1, 0, 5)])).expect_err("refused");
        assert!(matches!(error, Error::Received(_)), "{error}");
    }
    assert!(matches!(sealer.accept(&mut received(&[chunk(1, 0, 5)])), Err(Error::Received(_))));
    // A stream that breaks off: whole items are stored.
    let mut bytes = Vec::new();
    for item in [header("node-1-a", 1), chunk(1, 0, 2000), chunk(1, 1, 3000)] {
        stream::write(&mut bytes, &item).expect("writes");
    }
    let mut torn = ReceivedTail::new(&bytes[..bytes.len() - 1]);
    assert!(matches!(sealer.accept(&mut torn), Err(Error::Received(_))));
    sealer.seal().expect("seals");
    drop(sealer);
    assert_eq!(rows::<ScopeRow>(&path, &ScanProps::default()).len(), 1);
    // Another sealer goes on; what was sent again counts once. It is not known to have ended.
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    sealer.accept(&mut ReceivedTail::new(bytes.as_slice())).expect("accepts");
    let manifest = sealer.finish().expect("seals");
    assert!(!manifest.processes[0].sealed);
    let trace = Trace::open(&path).expect("opens");
    assert!(trace.is_live());
    assert_eq!(rows::<ScopeRow>(&path, &ScanProps::default()).len(), 2);
}

#[test]
fn a_local_tail_yields_everything_once() {
    let folder = TempDir::new("once");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let mut local = LocalTail::open(&path);
    let mut chunks = Vec::new();
    let mut headers = 0;
    for round in 0..3 {
        for address in 0..10_000 {
            recorder.alloc(address << 30 | round, 1, &AllocDomain::default(), StackId(0));
        }
        assert!(local.poll().expect("polls"));
        while let Some(item) = local.next().expect("yields") {
            match item.item {
                StreamItem::Chunk(chunk) => chunks.push((chunk.lane, chunk.sequence, chunk.is_open)),
                StreamItem::Control(Control::Process(_)) => headers += 1,
                StreamItem::Control(control) => panic!("{control:?}"),
            }
        }
        assert!(!local.poll().expect("polls"), "nothing happened since");
    }
    assert_eq!(headers, 1);
    let mut complete: Vec<_> = chunks.iter().filter(|chunk| !chunk.2).collect();
    let count = complete.len();
    complete.dedup();
    assert_eq!(complete.len(), count, "a complete chunk came twice");
    recorder.stop();
    local.poll().expect("polls");
    let mut last = None;
    while let Some(item) = local.next().expect("yields") {
        last = Some(item.item);
    }
    assert_eq!(last, Some(StreamItem::Control(Control::Ended { time_ns: 0 })));
}

#[test]
fn what_is_found_later_of_a_process_that_was_given_up_is_added_once() {
    let folder = TempDir::new("given-up");
    let (here, there) = (folder.join("here.flood"), folder.join("there.flood"));
    let recorder = Recorder::start(RecordProps::new(&here)).expect("starts");
    let (kind, start_ns, parent, detail) = (SubjectKind::Process, 5, SubjectId(0), String::new());
    let subject =
        |number| Subject { kind, number, start_ns, parent, name: "worker".into(), detail: detail.clone() };
    // Each time the receiver gets what is there, and is told that nothing more comes.
    let send = |local: &mut LocalTail| {
        local.repeat_header();
        local.poll().expect("polls");
        let mut items = Vec::new();
        while let Some(TailItem { item, .. }) = local.next().expect("yields") {
            items.push(item);
        }
        items.push(StreamItem::Control(Control::Ended { time_ns: 0 }));
        let mut sealer = Sealer::open(&there, Run::default()).expect("seals");
        sealer.accept(&mut received(&items)).expect("accepts");
        assert!(sealer.finish().expect("seals").processes[0].sealed);
        let files = std::fs::read_dir(there.join("segments")).expect("reads");
        assert_eq!(files.count(), 1, "nothing but the lock is left");
    };
    let mut local = LocalTail::open(&here);
    recorder.sample(recorder.subject(&subject(7)), Metric::Rss, 1, When::Now);
    recorder.alloc(1 << 20, 64, &AllocDomain::default(), StackId(0));
    send(&mut local);
    recorder.sample(recorder.subject(&subject(8)), Metric::Rss, 2, When::Now);
    recorder.free(1 << 20, 64, &AllocDomain::default());
    send(&mut local);
    // All of it again, as a spool that is collected twice.
    send(&mut LocalTail::open(&here));
    let subjects: Vec<u64> = Trace::open(&there)
        .expect("opens")
        .subjects()
        .expect("reads")
        .values()
        .map(|row| row.number)
        .collect();
    assert_eq!(subjects, [7, 8], "definitions in a chunk whose beginning was there");
    let values: Vec<u64> =
        rows::<SampleRow>(&there, &ScanProps::default()).iter().map(|row| row.value).collect();
    assert_eq!(values, [1, 2]);
    let events = crate::blocks::read(&there);
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].3, Some(events[0].0.div_euclid(1000)), "the block of the free is known");
    recorder.stop();
}
