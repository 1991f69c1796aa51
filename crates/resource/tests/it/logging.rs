//! Events of a resource in a trace. A process records once at a time, so tests take turns.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floodmark_event::tables::Frame;
use floodmark_event::{Action, EventBatch, Kind, NO_DEVICE, ScopeAction, ScopeRow, StackId, UNKNOWN_BYTES};
use floodmark_resource::{
    Address, Callback, Host, Limiting, Logging, Memory, Resource, Simulated, Statistics, Stream,
};
use floodmark_store::{Run, ScanProps, SealerThread, Source as _, Trace};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder};
use floodmark_testkit::TempDir;

use crate::blocks::{Block, give, take, take_on, try_take};

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event as far as it does not depend on the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    action: Action,
    address: u64,
    bytes: u64,
    device: i32,
    kind: Kind,
    stream: u64,
    resource: String,
    stack: Vec<String>,
    thread: u64,
    scope: u64,
}

/// Records what `act` does, seals it and reads it.
fn record(path: &Path, act: impl FnOnce()) -> Vec<Seen> {
    let recorder = Recorder::start_global(RecordProps::new(path)).expect("no other recording is going on");
    let sealer = SealerThread::spawn(path, Run::default()).expect("seals");
    act();
    recorder.stop();
    sealer.stop().expect("seals the rest");
    let mut scan = Trace::open(path).expect("opens").scan(&ScanProps::default()).expect("scans");
    assert!(scan.losses().is_empty());
    let mut batch = EventBatch::new();
    let mut seen = Vec::new();
    while scan.next(&mut batch).expect("reads") {
        seen.extend(batch.events().map(|event| Seen {
            action: event.action,
            address: event.address,
            bytes: event.bytes,
            device: event.device,
            kind: event.kind,
            stream: event.stream,
            resource: scan.tables().string(event.resource).to_owned(),
            stack: scan.tables().stack_text(event.stack),
            thread: event.thread,
            scope: event.scope,
        }));
    }
    seen
}

#[expect(unsafe_code, reason = "asks the system for a number")]
fn thread() -> u64 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

fn seen(action: Action, block: &Block, resource: &dyn Resource) -> Seen {
    Seen {
        action,
        address: block.address.0,
        bytes: block.bytes,
        device: resource.memory().device,
        kind: resource.memory().kind,
        stream: block.stream.handle(),
        resource: resource.served_by().to_owned(),
        stack: Vec::new(),
        thread: thread(),
        scope: 0,
    }
}

#[test]
fn what_a_resource_does_is_in_the_trace_event_by_event() {
    let _turn = turn();
    let folder = TempDir::new("logging");
    let device = Logging::new(Limiting::new(Simulated::new(1 << 20), 1 << 20));
    let host = Logging::new(Host::new());
    let mut expected = Vec::new();
    let unrecorded = take(&device, 77);
    let found = record(&folder.join("a.flood"), || {
        let mut live = Vec::new();
        for round in 0..3000u64 {
            let resource: &dyn Resource = if round % 5 == 0 { &host } else { &device };
            let stream = [Stream::DEFAULT, Stream::foreign(0x7f10), Stream::PER_THREAD][round as usize % 3];
            let block = take_on(resource, round * 13 % 4000, stream);
            expected.push(seen(Action::Alloc, &block, resource));
            live.push((block, resource));
            if round % 7 == 0 {
                let failed = Block { address: Address::NULL, bytes: 1 << 40, stream: Stream::DEFAULT };
                assert!(try_take(&device, failed.bytes).is_err());
                expected.push(seen(Action::Failure, &failed, &device));
            }
            if live.len() > 50 {
                let (block, resource) = live.swap_remove(round as usize % live.len());
                expected.push(seen(Action::Free, &block, resource));
                give(resource, block);
            }
        }
        for (block, resource) in live {
            expected.push(seen(Action::Free, &block, resource));
            give(resource, block);
        }
        expected.push(seen(Action::Free, &unrecorded, &device));
        give(&device, unrecorded);
    });
    assert_eq!(found.len(), expected.len());
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "event {number}");
    }
    assert!(found.iter().all(|event| event.bytes != UNKNOWN_BYTES));
    let names = |name| found.iter().filter(|event| event.resource == name).count();
    assert_eq!(names("simulated") + names("host"), found.len());
    assert!(found.iter().any(|event| event.device == NO_DEVICE && event.kind == Kind::Pageable));
}

#[test]
fn names_are_right_in_the_next_recording_too() {
    let _turn = turn();
    let folder = TempDir::new("logging-again");
    let resource = Logging::new(Simulated::new(1 << 20));
    for (number, first) in [(0, "one"), (1, "two"), (2, "three")] {
        let found = record(&folder.join(format!("{number}.flood")), || {
            // Ids are handed out in order, so the same id is another name each time.
            for _ in 0..number {
                tail::intern(first);
                tail::intern("other");
            }
            let block = take(&resource, 8);
            give(&resource, block);
        });
        let names: Vec<&str> = found.iter().map(|event| event.resource.as_str()).collect();
        assert_eq!(names, ["simulated", "simulated"]);
    }
    // Nothing is recorded, and nothing minds.
    let block = take(&resource, 8);
    give(&resource, block);
}

#[test]
fn an_allocation_is_recorded_after_the_upstream_and_a_free_before() {
    let _turn = turn();
    let folder = TempDir::new("logging-order");
    let below = |address| move || tail::alloc(address, 0, &AllocDomain::default(), StackId(0));
    let (taken, given) = (below(1), below(2));
    let resource = Logging::new(Callback::new(
        Memory::HOST,
        move |_, _| {
            taken();
            Ok(Address(256))
        },
        move |_, _, _| given(),
    ));
    let found = record(&folder.join("a.flood"), || {
        let block = take(&resource, 10);
        give(&resource, block);
    });
    let order: Vec<_> = found.iter().map(|event| (event.action, event.address)).collect();
    let expected = [(Action::Alloc, 1), (Action::Alloc, 256), (Action::Free, 256), (Action::Alloc, 2)];
    assert_eq!(order, expected);
}

fn stack() -> StackId {
    let function = tail::intern("allocates");
    tail::intern_stack(StackId(0), tail::intern_frame(&Frame { function, line: 7, ..Frame::default() }))
}

#[test]
fn stacks_come_from_whoever_finds_them() {
    let _turn = turn();
    let folder = TempDir::new("logging-stacks");
    let resource = Logging::new(Simulated::new(4096)).with_stacks(stack);
    let found = record(&folder.join("a.flood"), || {
        let block = take(&resource, 8);
        give(&resource, block);
        assert!(try_take(&resource, 8192).is_err());
    });
    let stacks: Vec<usize> = found.iter().map(|event| event.stack.len()).collect();
    assert_eq!(stacks, [1, 0, 1]);
    assert!(found[0].stack[0].contains("allocates"));
}

#[test]
fn threads_record_whole_lives() {
    let _turn = turn();
    let folder = TempDir::new("logging-threads");
    let resource = Arc::new(Logging::new(Statistics::new(Simulated::new(32 << 10))));
    let found = record(&folder.join("a.flood"), || {
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                let resource = Arc::clone(&resource);
                scope.spawn(move || {
                    for round in 0..2000 {
                        let block = take_on(&resource, 1 + round % 2000, Stream::foreign(16 * (number + 1)));
                        give(&resource, block);
                    }
                });
            }
        });
    });
    assert_eq!(found.len(), 16_000);
    let mut threads: Vec<(u64, u64)> = found.iter().map(|event| (event.thread, event.stream)).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 4, "each thread has its stream");
    for (thread, _) in threads {
        let mine: Vec<&Seen> = found.iter().filter(|event| event.thread == thread).collect();
        assert_eq!(mine.len(), 4000);
        for pair in mine.chunks(2) {
            assert_eq!((pair[0].action, pair[1].action), (Action::Alloc, Action::Free));
            assert_eq!((pair[0].address, pair[0].bytes), (pair[1].address, pair[1].bytes));
        }
    }
    // A block is freed before it is somebody else's, so by time no address is live twice.
    let mut live = std::collections::HashSet::new();
    for event in &found {
        let fits = if event.action == Action::Alloc {
            live.insert(event.address)
        } else {
            live.remove(&event.address)
        };
        assert!(fits, "{event:?}");
    }
}

#[test]
fn scopes_of_statistics_are_scopes_of_the_recording() {
    let _turn = turn();
    let folder = TempDir::new("logging-scopes");
    let path = folder.join("a.flood");
    let (statistics, other) = (Statistics::new(Simulated::new(4096)), Statistics::new(Simulated::new(4096)));
    let resource = Logging::new(Simulated::new(4096));
    let found = record(&path, || {
        give(&resource, take(&resource, 1));
        let load = statistics.scope("load");
        give(&resource, take(&resource, 2));
        let parse = other.scope("parse");
        give(&resource, take(&resource, 3));
        // Scopes of two adaptors need not nest.
        load.finish();
        give(&resource, take(&resource, 4));
        parse.finish();
        give(&resource, take(&resource, 5));
    });
    let mut names = std::collections::HashMap::new();
    let mut scan = Trace::open(&path).expect("opens").rows::<ScopeRow>(&ScanProps::default()).expect("scans");
    let mut rows = Vec::new();
    let (mut entered, mut left) = (0, 0);
    while scan.next(&mut rows).expect("reads") {
        for row in &rows {
            match row.action {
                ScopeAction::Enter => {
                    entered += 1;
                    names.insert(row.scope, scan.tables().string(row.name).to_owned());
                }
                ScopeAction::Exit => left += 1,
                _ => {}
            }
        }
    }
    assert_eq!((entered, left), (2, 2));
    let name = |bytes: u64| {
        let event = found.iter().find(|event| event.bytes == bytes && event.action == Action::Alloc);
        names.get(&event.expect("recorded").scope).map(String::as_str)
    };
    let scopes: Vec<Option<&str>> = (1..=5).map(name).collect();
    assert_eq!(scopes, [None, Some("load"), Some("parse"), Some("parse"), None]);
}
