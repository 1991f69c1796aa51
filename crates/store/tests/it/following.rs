//! Following a trace while it is recorded and sealed.

use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_event::{EventBatch, Metric, Row, SampleRow, StackId, SubjectId};
use floodmark_store::{
    Error, Follow, Run, ScanProps, Sealer, SealerThread, Source as _, Step, Trace, TraceFollower,
};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::{AllocDomain, RecordProps, Recorder, When};
use floodmark_testkit::{TempDir, wait_until};

const EVENTS: u64 = 1_500_000;
/// Events after which the recording waits for the follower.
const ROUND: u64 = 300_000;

#[test]
fn a_follower_sees_every_event_once_and_in_order_while_the_trace_is_sealed() {
    let folder = TempDir::new("follow");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let sealer = SealerThread::spawn(&path, Run::default()).expect("seals");
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut follow = Follow::open(&path, ScanProps::default()).expect("follows");
            let mut batch = EventBatch::new();
            let mut next = 0;
            wait_until("the end of the trace", || {
                loop {
                    match follow.next(&mut batch).expect("reads") {
                        Step::Events => {
                            for event in batch.events() {
                                assert_eq!(event.address, next << 8);
                                next += 1;
                            }
                            seen.store(next, Ordering::Relaxed);
                        }
                        Step::Waiting => return false,
                        Step::Ended => return true,
                    }
                }
            });
            assert!(follow.losses().gaps.is_empty(), "{:?}", follow.losses());
            next
        });
        let domain = AllocDomain::default();
        for number in 0..EVENTS {
            recorder.alloc(number << 8, number, &domain, StackId(0));
            let recorded = number + 1;
            if recorded % ROUND == 0 {
                wait_until("the follower to catch up", || seen.load(Ordering::Relaxed) == recorded);
            }
        }
        recorder.stop();
        sealer.stop().expect("seals the rest");
        assert_eq!(follower.join().expect("the follower ends well"), EVENTS);
    });
    let mut scan = Trace::open(&path).expect("opens").scan(&ScanProps::default()).expect("scans");
    let mut batch = EventBatch::new();
    let mut rows = 0;
    while scan.next(&mut batch).expect("reads") {
        rows += batch.len() as u64;
    }
    assert_eq!(rows, EVENTS);
}

#[test]
fn a_follower_of_samples_sees_each_sweep_once_while_the_trace_is_sealed() {
    let folder = TempDir::new("follow-samples");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    let mut follow = TraceFollower::open(&path, &ScanProps::default()).expect("follows");
    let (mut events, mut rows, mut seen) = (EventBatch::new(), Vec::new(), Vec::new());
    for sweep in 0..60 {
        let when = When::At(monotonic_ns());
        for subject in 1..=50 {
            recorder.sample(SubjectId(subject), Metric::Rss, sweep, when);
        }
        if sweep % 10 == 9 {
            sealer.seal().expect("seals");
        }
        // At the first of these sweeps all rows are sealed, at the second the last half is in the tail.
        if sweep == 9 || sweep == 24 {
            let recorded = (sweep as usize + 1) * 50;
            wait_until("the follower to catch up", || {
                while follow.next(&mut events, &mut rows).expect("reads") == Step::Events {
                    seen.append(&mut rows);
                }
                seen.len() == recorded
            });
        }
    }
    recorder.stop();
    sealer.finish().expect("seals the rest");
    while follow.next(&mut events, &mut rows).expect("reads") != Step::Ended {
        seen.append(&mut rows);
    }
    assert!(follow.losses().gaps.is_empty(), "{:?}", follow.losses());
    let value = |row: &Row| match row {
        Row::Sample(row) => (row.value, row.subject & 0xffff_ffff),
        other => panic!("{other:?} was not recorded"),
    };
    let found: Vec<(u64, u64)> = seen.iter().map(value).collect();
    let expected: Vec<(u64, u64)> =
        (0..60).flat_map(|sweep| (1..=50).map(move |subject| (sweep, subject))).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_follower_tells_when_another_recording_takes_the_place_of_the_trace() {
    let folder = TempDir::new("follow-replaced");
    let path = folder.join("a.flood");
    let record = |address| {
        let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
        recorder.alloc(address, 1, &AllocDomain::default(), StackId(0));
        recorder
    };
    let first = record(1);
    let mut follow = Follow::open(&path, ScanProps::default()).expect("follows");
    let mut batch = EventBatch::new();
    wait_until("the first event", || follow.next(&mut batch).expect("reads") == Step::Events);
    while follow.next(&mut batch).expect("reads") != Step::Waiting {}
    first.stop();
    // The number of the directory is free for the next one unless the follower holds on to it.
    std::fs::remove_dir_all(&path).expect("removes");
    let second = record(2);
    let error = follow.next(&mut batch).expect_err("it is another trace");
    assert!(matches!(error, Error::Replaced { .. }), "{error}");
    assert!(error.to_string().contains("replaced by another recording"), "{error}");
    second.stop();
}

#[test]
fn tables_are_not_looked_for_where_there_are_only_events_and_nothing_is_missed() {
    let folder = TempDir::new("event-chunks");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let record = |thread: u64| {
        for number in 0..60_000u64 {
            recorder.alloc((thread << 32) + number + 1, number, &AllocDomain::default(), StackId(0));
            // The first thread has samples all the time, the second at one domain, the third none.
            if (thread == 0 && number % 100 == 0) || (thread == 1 && number == 30_000) {
                recorder.sample(SubjectId(1), Metric::Rss, number, When::Now);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || record(thread))).collect();
        for thread in threads {
            thread.join().expect("records");
        }
    });
    let trace = Trace::open(&path).expect("opens");
    assert!(trace.is_live());
    let mut scan = trace.scan(&ScanProps::default()).expect("scans");
    let (mut batch, mut events) = (EventBatch::new(), 0);
    while scan.next(&mut batch).expect("reads") {
        events += batch.len();
    }
    assert_eq!(events, 180_000);
    let rows = |props: &ScanProps| {
        let mut scan = trace.rows::<SampleRow>(props).expect("scans");
        let (mut rows, mut all) = (Vec::new(), Vec::new());
        while scan.next(&mut rows).expect("reads") {
            all.append(&mut rows);
        }
        assert!(scan.losses().is_empty(), "{:?}", scan.losses());
        all
    };
    let chunks = scan.event_chunks().clone();
    assert!(!chunks.is_empty());
    let all = rows(&ScanProps::default());
    assert_eq!(all.len(), 601);
    let event_chunks = Some(std::sync::Arc::new(chunks));
    assert_eq!(rows(&ScanProps { event_chunks: event_chunks.clone(), ..ScanProps::default() }), all);
    // Of events themselves nothing is left out.
    let mut scan = trace.scan(&ScanProps { event_chunks, ..ScanProps::default() }).expect("scans");
    let mut again = 0;
    while scan.next(&mut batch).expect("reads") {
        again += batch.len();
    }
    assert_eq!(again, events);
    recorder.stop();
}
