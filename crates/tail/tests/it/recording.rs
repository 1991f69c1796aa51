//! What goes in comes out: places, stacks, threads that end, forks, exits, no space.
#![expect(unsafe_code, reason = "forks, as the programs we record do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_event::tables::Frame;
use floodmark_event::{Action, Event, Kind, StackId, StringId, UNKNOWN_BYTES};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder, StartError};

use crate::tailing::{Tail, TestTrace as Folder, global_turn};

#[test]
fn every_value_of_an_event_comes_back() {
    let folder = Folder::new("values");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let resource = recorder.intern("pool");
    assert_eq!(recorder.intern("pool"), resource);
    let frame = |name: &str| {
        let function = recorder.intern(name);
        recorder.intern_frame(&Frame { function, line: 7, ..Frame::default() })
    };
    let outer = recorder.intern_stack(StackId(0), frame("main"));
    let inner = recorder.intern_stack(outer, frame("load"));
    let mut expected = Vec::new();
    for round in 0..20_000u64 {
        let domain = AllocDomain {
            device: (round % 3) as i32 - 1,
            kind: Kind::ALL[round as usize % Kind::ALL.len()],
            stream: [0, 1, 0x55d0_c000_0000, u64::MAX][round as usize % 4],
            resource: if round % 2 == 0 { resource } else { StringId(0) },
            name: StringId(0),
        };
        let address = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (round % 64);
        let bytes = (1u64 << (round % 64)) - round % 2;
        let stack = [StackId(0), outer, inner][round as usize % 3];
        let action = Action::ALL[round as usize % 3];
        match action {
            Action::Alloc => recorder.alloc(address, bytes, &domain, stack),
            Action::Free => recorder.free(address, UNKNOWN_BYTES, &domain),
            Action::Failure => recorder.failure(bytes, &domain, stack),
        }
        expected.push(Event {
            action,
            address: if action == Action::Failure { 0 } else { address },
            bytes: if action == Action::Free { UNKNOWN_BYTES } else { bytes },
            stack: if action == Action::Free { StackId(0) } else { stack },
            device: domain.device,
            kind: domain.kind,
            stream: domain.stream,
            resource: domain.resource,
            ..Event::default()
        });
    }
    recorder.stop();
    let tail = Tail::read(&folder.path);
    let events: Vec<Event> = tail.lanes.values().flatten().copied().collect();
    assert!(events.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    let thread = events[0].thread;
    let plain = |event: &Event| Event { time_ns: 0, thread: 0, ..*event };
    assert!(events.iter().all(|event| event.thread == thread));
    assert_eq!(events.iter().map(plain).collect::<Vec<_>>(), expected);
    let strings: Vec<&str> = tail.strings.values().map(String::as_str).collect();
    assert_eq!(strings, ["pool", "main", "load"]);
    assert_eq!(tail.stacks.values().collect::<Vec<_>>(), [&(0, 1), &(1, 2)]);
}

#[test]
fn threads_that_end_leave_their_lane_to_the_next() {
    let folder = Folder::new("lanes");
    let recorder = Arc::new(Recorder::start(RecordProps::new(&folder.path)).expect("starts"));
    let domain = AllocDomain::default();
    for round in 0..200u64 {
        // Joined, not scoped: a scope ends before its threads have run their destructors.
        let recorder = Arc::clone(&recorder);
        let record = move || recorder.alloc(round, 1, &domain, StackId(0));
        let thread = std::thread::Builder::new().name("brief".into()).spawn(record).expect("starts");
        thread.join().expect("ends");
    }
    drop(recorder);
    let tail = Tail::read(&folder.path);
    assert_eq!(tail.count(), 200);
    assert_eq!(tail.lanes.len(), 1, "one lane for threads that never ran together");
    let mut threads: Vec<u64> = tail.lanes.values().flatten().map(|event| event.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    assert!(threads.len() > 100, "each event says which thread it was: {}", threads.len());
}

#[test]
fn scopes_nest_and_are_restated_in_later_chunks() {
    let folder = Folder::new("scopes");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let domain = AllocDomain::default();
    let outside = recorder.enter_scope(recorder.intern("outer"));
    let outer = recorder.enter_scope(recorder.intern("inner"));
    // Several chunks' worth, all of them inside both scopes.
    for round in 0..30_000 {
        recorder.alloc(round << 32, round, &domain, StackId(0));
    }
    recorder.exit_scope(outer);
    recorder.alloc(1, 1, &domain, StackId(0));
    recorder.exit_scope(outside);
    recorder.alloc(2, 1, &domain, StackId(0));
    recorder.stop();
    let tail = Tail::read(&folder.path);
    let events: Vec<&Event> = tail.lanes.values().flatten().collect();
    assert_eq!(tail.scopes, [(1, 0), (2, 1)]);
    assert!(events[..30_000].iter().all(|event| event.scope == 2));
    assert_eq!((events[30_000].scope, events[30_001].scope), (1, 0));
}

#[test]
fn a_forked_child_records_into_a_ring_of_its_own_with_the_ids_it_inherited() {
    let folder = Folder::new("fork");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let domain = AllocDomain { resource: recorder.intern("pool"), ..AllocDomain::default() };
    recorder.alloc(1, 1, &domain, StackId(0));
    // SAFETY: the child only records and leaves without running anything of this test program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        recorder.alloc(2, 2, &domain, StackId(0));
        recorder.free(1, 1, &domain);
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    recorder.free(1, 1, &domain);
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    recorder.stop();
    let tail = Tail::read(&folder.path);
    let mut counts: Vec<usize> = tail.lanes.values().map(Vec::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2]);
    assert_eq!(tail.processes.len(), 2);
    assert!(tail.processes.iter().any(|process| process.pid == child as u32));
    assert_eq!(tail.strings.values().collect::<Vec<_>>(), ["pool", "pool"]);
}

#[test]
fn a_child_that_can_write_nothing_counts_its_losses_in_its_parents_ring() {
    let folder = Folder::new("poor-child");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let domain = AllocDomain::default();
    recorder.alloc(1, 1, &domain, StackId(0));
    // SAFETY: the child only records and leaves without running anything of this test program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let nothing = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: as above; a file that grew past the limit would end the child with a signal.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const nothing) };
        for address in 0..10_000 {
            recorder.alloc(address, 1, &domain, StackId(0));
        }
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child ended by a signal");
    recorder.stop();
    let tail = Tail::read(&folder.path);
    assert_eq!(tail.count(), 1);
    let lost: u64 = tail.processes[0].losses.iter().map(|(_, count)| count).sum();
    assert_eq!(lost, 10_000);
}

#[test]
fn one_global_recording_at_a_time_and_a_new_one_after_the_end() {
    let _turn = global_turn();
    let folder = Folder::new("again");
    let domain = AllocDomain::default();
    tail::alloc(7, 7, &domain, StackId(0));
    for round in 0..3 {
        let recorder = Recorder::start_global(RecordProps::new(&folder.path)).expect("starts");
        let second = Recorder::start_global(RecordProps::new(&folder.path));
        assert!(matches!(second, Err(StartError::AlreadyRecording)));
        tail::alloc(round, 1, &domain, StackId(0));
        recorder.stop();
        tail::alloc(99, 1, &domain, StackId(0));
    }
    let tail = Tail::read(&folder.path);
    let mut addresses: Vec<u64> = tail.lanes.values().flatten().map(|event| event.address).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, [0, 1, 2]);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_not_a_recording() {
    let _turn = global_turn();
    let folder = Folder::new("refused");
    std::fs::write(&folder.path, "a file where the trace should go").expect("writes");
    let error = Recorder::start_global(RecordProps::new(&folder.path)).expect_err("cannot start");
    assert!(error.to_string().contains("creating"), "{error}");
    assert!(!tail::is_recording());
    std::fs::remove_file(&folder.path).expect("removes");
}

#[test]
fn records_made_in_a_signal_handler_are_recorded_or_counted() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: libc::c_int) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        tail::alloc(0xff_ffff_ffff, 1, &AllocDomain::default(), StackId(0));
    }
    let _turn = global_turn();
    let folder = Folder::new("signal");
    let recorder = Recorder::start_global(RecordProps::new(&folder.path)).expect("starts");
    // SAFETY: the handler does nothing but record, which is allowed anywhere; the timer is taken
    // down before the function ends.
    unsafe {
        libc::signal(libc::SIGALRM, handler as *const () as libc::sighandler_t);
        let every = libc::timeval { tv_sec: 0, tv_usec: 100 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    let domain = AllocDomain::default();
    for round in 0..2_000_000u64 {
        tail::alloc(round, 1, &domain, StackId(0));
    }
    // SAFETY: as above.
    unsafe {
        let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let timer = libc::itimerval { it_interval: never, it_value: never };
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        libc::signal(libc::SIGALRM, libc::SIG_IGN);
    }
    recorder.stop();
    let tail = Tail::read(&folder.path);
    let own: Vec<u64> = tail.lanes.values().flatten().map(|event| event.address).collect();
    let (mut next, mut handled) = (0, 0);
    for address in &own {
        if *address == next {
            next += 1;
        } else {
            assert_eq!(*address, 0xff_ffff_ffff);
            handled += 1;
        }
    }
    assert_eq!(next, 2_000_000);
    let nested = tail.processes[0].losses.iter().map(|(_, count)| count).sum::<u64>();
    let calls = CALLS.load(Ordering::Relaxed);
    assert!(calls > 0, "no signal came");
    assert_eq!(handled + nested, calls);
}
