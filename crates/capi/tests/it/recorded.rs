//! What programs record comes back with every value.

use std::path::Path;
use std::process::{Command, Stdio};

use floodmark_event::tables::Frame;
use floodmark_event::{Action, CallAction, Event, Kind, NO_DEVICE, StackId, StringId, UNKNOWN_BYTES};
use floodmark_tail::Call;
use floodmark_tail::record::Record;
use floodmark_testkit::wait_for_exit;

use crate::build::{Linked, compile, source, work_directory};
use crate::tailing::Tail;

/// Compiles a program, runs it with a directory for its traces, and returns its PID.
fn record(name: &str, linked: Linked, directory: &Path) -> u64 {
    let program = compile(&source(name), linked, directory);
    std::fs::write(directory.join("file"), "").expect("can be written");
    let mut command = Command::new(program);
    command.arg(directory).arg(directory.join("file/never.flood")).stdin(Stdio::null());
    let mut child = command.spawn().expect("starts");
    let pid = u64::from(child.id());
    let status = wait_for_exit(&mut child, name);
    assert!(status.success(), "{name}: {status}");
    assert!(!directory.join("never.flood").exists(), "a refused start left a trace");
    pid
}

/// The events of `record_values` in `record.c`, with all other records of its thread.
fn expected_values(thread: u64) -> Vec<Record<'static>> {
    let (pool, outer, inner) = (StringId(1), StringId(7), StringId(8));
    let (outermost, innermost) = (StackId(1), StackId(2));
    let alloc = Event {
        thread,
        address: 0x1000,
        bytes: 100,
        device: 1,
        kind: Kind::Device,
        stream: u64::MAX,
        resource: pool,
        scope: 1,
        stack: innermost,
        ..Event::default()
    };
    let failure =
        Event { action: Action::Failure, address: 0, bytes: 1 << 40, scope: 2, stack: outermost, ..alloc };
    let none = StackId(0);
    let free = Event { action: Action::Free, bytes: UNKNOWN_BYTES, stack: none, ..alloc };
    let late = Event { time_ns: 5000, thread: 77, address: 0x2000, bytes: 200, scope: 0, ..alloc };
    let early = Event { action: Action::Free, time_ns: 3000, thread, stack: none, ..late };
    let failed = Event { action: Action::Failure, address: 0, bytes: 300, ..early };
    let unknown = Event { thread, address: 0x3000, bytes: 1, device: NO_DEVICE, ..Event::default() };
    let wrong_kind = Event { address: 0x4000, bytes: 1, kind: Kind::Unknown, stack: none, scope: 0, ..alloc };
    // The second call says that the resident bytes have not changed.
    let call = |action| Call { action, code: 2, line: 12, rss_bytes: Some(8192) };
    vec![
        Record::EnterScope { time_ns: 0, scope: 1, parent: 0, name: outer, thread },
        Record::Event(alloc),
        Record::EnterScope { time_ns: 0, scope: 2, parent: 1, name: inner, thread },
        Record::Event(failure),
        Record::ExitScope { time_ns: 0, scope: 2, thread },
        Record::Event(free),
        Record::ExitScope { time_ns: 0, scope: 1, thread },
        Record::BeginRange { time_ns: 0, scope: 3, name: outer, thread },
        Record::BeginRange { time_ns: 5000, scope: 4, name: inner, thread: 77 },
        Record::EndRange { time_ns: 0, scope: 3, thread },
        Record::EndRange { time_ns: 3000, scope: 4, thread },
        Record::Mark { time_ns: 0, name: inner, thread },
        Record::Mark { time_ns: 4000, name: outer, thread },
        Record::Event(late),
        Record::Event(early),
        Record::Event(failed),
        Record::EnterScope { time_ns: 2000, scope: 5, parent: 0, name: inner, thread },
        Record::ExitScope { time_ns: 2500, scope: 5, thread },
        Record::Call { time_ns: 0, thread, call: call(CallAction::CCall) },
        Record::Call { time_ns: 5000, thread: 77, call: call(CallAction::CReturn) },
        Record::Event(unknown),
        Record::Event(wrong_kind),
    ]
}

fn check_values(trace: &Path, thread: u64) {
    let tail = Tail::read(trace);
    let string = |id, text: &'static str| Record::String { id: StringId(id), text: text.as_bytes() };
    let frame = |id, function| {
        let (file, module) = (StringId(4), StringId(5));
        let frame = Frame { function: StringId(function), file, line: 7, module, address: 0x1234 };
        Record::Frame { id, frame }
    };
    let stack = |id, parent| Record::Stack { id: StackId(id), parent: StackId(parent), frame: id };
    let definitions = [
        string(1, "pool"),
        string(2, "not \u{fffd} UTF-8"),
        string(3, "main"),
        string(4, "main.c"),
        string(5, "record"),
        frame(1, 3),
        stack(1, 0),
        string(6, "load"),
        frame(2, 6),
        stack(2, 1),
        string(7, "outer"),
        string(8, "inner"),
        string(9, "GPU-123"),
        Record::Device { device: 1, uuid: StringId(9) },
    ];
    assert_eq!(tail.definitions(), definitions);
    let threads = tail.threads();
    let [records] = threads[..] else { panic!("{} threads", threads.len()) };
    let expected = expected_values(thread);
    for (record, expected) in records.iter().zip(&expected) {
        assert_eq!(record, expected);
    }
    assert_eq!(records.len(), expected.len());
    assert_eq!((tail.losses, &tail.disordered[..]), (0, &[1][..]));
}

/// Checks the traces of `record_from_threads`.
fn check_threads(directory: &Path) {
    let (threads, rounds) = (4, 20_000);
    let tail = Tail::read(&directory.join("threads.flood"));
    assert_eq!((tail.losses, tail.strings()), (0, vec!["worker".to_owned()]));
    let mut seen = Vec::new();
    for records in tail.threads() {
        // A thread may take over the lane of one that has ended, so a lane holds one thread or more.
        for records in records.chunk_by(|_, next| !matches!(next, Record::EnterScope { .. })) {
            let [Record::EnterScope { scope, parent: 0, name: StringId(1), thread, .. }, events @ .., last] =
                records
            else {
                panic!("{:?} ... {:?}", records.first(), records.last());
            };
            assert_eq!(*last, Record::ExitScope { time_ns: 0, scope: *scope, thread: *thread });
            let Some(Record::Event(Event { stream, .. })) = events.first() else {
                panic!("{:?}", events.first())
            };
            let expected = (0..rounds).flat_map(|round| {
                let alloc = Event {
                    thread: *thread,
                    address: stream << 32 | round,
                    bytes: round,
                    device: NO_DEVICE,
                    stream: *stream,
                    scope: u64::from(*scope),
                    ..Event::default()
                };
                [Record::Event(alloc), Record::Event(Event { action: Action::Free, ..alloc })]
            });
            assert!(events.iter().cloned().eq(expected), "thread {stream}");
            seen.push(*stream);
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=threads).collect::<Vec<_>>());

    let global = Tail::read(&directory.join("global.flood"));
    let mut addresses: Vec<u64> = global.events().iter().map(|event| event.address).collect();
    addresses.sort_unstable();
    let expected = (1..=threads).flat_map(|thread| (0..rounds).map(move |round| thread << 32 | round));
    assert!(addresses.into_iter().eq(expected));
    // Scopes belong to the recorder that they were entered with.
    assert!(global.events().iter().all(|event| event.scope == 0 && event.bytes == 1));
}

/// An event of a domain of which nothing is known.
fn plain(thread: u64, address: u64, bytes: u64, scope: u64) -> Record<'static> {
    Record::Event(Event { thread, address, bytes, scope, device: NO_DEVICE, ..Event::default() })
}

/// Checks the traces of `start_again`.
fn check_restarts(directory: &Path, thread: u64) {
    let first = Tail::read(&directory.join("first.flood"));
    let opened = vec![
        Record::EnterScope { time_ns: 0, scope: 1, parent: 0, name: StringId(1), thread },
        Record::BeginRange { time_ns: 0, scope: 2, name: StringId(0), thread },
    ];
    assert_eq!((first.threads(), first.strings()), (vec![&opened], vec!["open".to_owned()]));
    for (name, event) in
        [("second.flood", plain(thread, 0x5000, 5, 0)), ("third.flood", plain(thread, 0x6000, 6, 0))]
    {
        let tail = Tail::read(&directory.join(name));
        assert_eq!(tail.threads(), [&vec![event]], "{name}");
        assert!(tail.definitions().is_empty(), "{name}");
    }
}

/// Checks the trace of `record_from_child`.
fn check_fork(directory: &Path, thread: u64) {
    let tail = Tail::read(&directory.join("fork.flood"));
    assert_eq!(tail.processes.len(), 2);
    for (stem, pid) in &tail.processes {
        let records = &tail.lanes[&(stem.clone(), 1)];
        let pid = u64::from(*pid);
        if pid == thread {
            let name = StringId(1);
            let expected = [
                Record::EnterScope { time_ns: 0, scope: 1, parent: 0, name, thread },
                plain(thread, 0x7000, 7, 1),
                plain(thread, 0x9000, 9, 1),
                Record::ExitScope { time_ns: 0, scope: 1, thread },
            ];
            assert_eq!(records[..], expected);
        } else {
            // The scope is the parent's.
            assert_eq!(records[..], [plain(pid, 0x8000, 8, 0)]);
        }
    }
}

fn check_c(linked: Linked) {
    let directory = work_directory("c");
    let pid = record("record.c", linked, &directory);
    check_values(&directory.join("values.flood"), pid);
    check_threads(&directory);
    check_fork(&directory, pid);
    check_restarts(&directory, pid);
    assert_eq!(std::fs::read_dir(directory.join("many")).expect("traces").count(), 64);
}

#[test]
fn a_c_program_with_the_static_library_records_every_value() {
    check_c(Linked::Static);
}

#[test]
fn a_c_program_with_the_shared_library_records_every_value() {
    check_c(Linked::Shared);
}

#[test]
fn a_cpp_program_records_through_the_classes_of_the_header() {
    let directory = work_directory("cpp");
    let thread = record("record.cpp", Linked::Static, &directory);
    let tail = Tail::read(&directory.join("first.flood"));
    assert_eq!(
        (tail.losses, tail.strings()),
        (0, ["pool", "outer", "inner", "done", "worker"].map(String::from).to_vec())
    );
    let alloc = Event {
        thread,
        address: 0x1000,
        bytes: 10,
        device: 3,
        kind: Kind::Pinned,
        stream: 4,
        resource: StringId(1),
        scope: 1,
        ..Event::default()
    };
    let failure = Event { action: Action::Failure, address: 0, bytes: 11, scope: 2, ..alloc };
    let main = vec![
        Record::EnterScope { time_ns: 0, scope: 1, parent: 0, name: StringId(2), thread },
        Record::Event(alloc),
        Record::EnterScope { time_ns: 0, scope: 2, parent: 1, name: StringId(3), thread },
        Record::Event(failure),
        Record::ExitScope { time_ns: 0, scope: 2, thread },
        Record::Event(Event { action: Action::Free, bytes: UNKNOWN_BYTES, ..alloc }),
        Record::ExitScope { time_ns: 0, scope: 1, thread },
        Record::Mark { time_ns: 0, name: StringId(4), thread },
    ];
    assert_eq!(*tail.threads()[0], main);
    let workers: Vec<Event> = tail.events().into_iter().filter(|event| event.thread != thread).collect();
    let mut found: Vec<(u64, u64)> = workers.iter().map(|event| (event.address, event.bytes)).collect();
    found.sort_unstable();
    let expected = (1..=3u64).flat_map(|number| (0..1000).map(move |round| (number << 32 | round, round)));
    assert!(found.into_iter().eq(expected));
    assert!(workers.iter().all(|event| event.scope > 2 && event.kind == Kind::Pinned));

    let second = Tail::read(&directory.join("second.flood"));
    assert_eq!(second.threads(), [&vec![plain(thread, 0x2000, 20, 0), plain(thread, 0x4000, 40, 0)]]);
}
