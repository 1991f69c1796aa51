//! Several recorders in one process: what each records stays its own, and each can be started again.
#![expect(unsafe_code, reason = "forks, as the programs we record do")]

use std::path::Path;
use std::sync::Barrier;

use floodmark_event::StackId;
use floodmark_tail::{self as tail, AllocDomain, MAX_RECORDERS, RecordProps, Recorder, StartError};

use crate::tailing::{Tail, TestTrace as Folder, global_turn};

fn start(folder: &Folder) -> Recorder {
    Recorder::start(RecordProps::new(&folder.path)).expect("starts")
}

fn addresses(trace: &Path) -> Vec<u64> {
    let mut addresses: Vec<u64> = Tail::read(trace).lanes.values().flatten().map(|e| e.address).collect();
    addresses.sort_unstable();
    addresses
}

#[test]
fn recorders_of_one_process_keep_apart_on_every_thread() {
    let _turn = global_turn();
    let folders = ["apart-0", "apart-1", "apart-2"].map(Folder::new);
    let global_folder = Folder::new("apart-global");
    let global = Recorder::start_global(RecordProps::new(&global_folder.path)).expect("starts");
    let recorders = folders.each_ref().map(start);
    let domains = recorders.each_ref().map(|recorder| {
        let [_, _, resource] = ["first", "second", "third"].map(|name| recorder.intern(name));
        AllocDomain { resource, ..AllocDomain::default() }
    });
    let barrier = Barrier::new(4);
    let (threads, rounds) = (4u64, 20_000u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (recorders, domains, barrier) = (&recorders, &domains, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..rounds {
                    let which = ((round ^ thread) % 3) as usize;
                    recorders[which].alloc(thread << 32 | round, 1, &domains[which], StackId(0));
                    tail::alloc(thread << 32 | round, 1, &AllocDomain::default(), StackId(0));
                }
            });
        }
    });
    // Dropping ends a recording as stopping does.
    drop(recorders);
    global.stop();
    let all = |mine: &dyn Fn(u64, u64) -> bool| -> Vec<u64> {
        let pairs = (0..threads).flat_map(|thread| (0..rounds).map(move |round| (thread, round)));
        pairs.filter(|(thread, round)| mine(*thread, *round)).map(|(t, r)| t << 32 | r).collect()
    };
    for (number, folder) in (0..).zip(&folders) {
        assert_eq!(addresses(&folder.path), all(&|thread, round| (round ^ thread) % 3 == number));
        let strings: Vec<String> = Tail::read(&folder.path).strings.into_values().collect();
        assert_eq!(strings, ["first", "second", "third"]);
    }
    assert_eq!(addresses(&global_folder.path), all(&|_, _| true));
}

#[test]
fn a_recorder_can_be_started_again_and_an_old_one_ends_nothing_new() {
    let _turn = global_turn();
    let (first, second) = (Folder::new("restart-1"), Folder::new("restart-2"));
    let domain = AllocDomain::default();
    let old = Recorder::start_global(RecordProps::new(&first.path)).expect("starts");
    tail::alloc(1, 1, &domain, StackId(0));
    tail::stop_global();
    assert!(!tail::is_recording() && !old.is_recording());
    let new = Recorder::start_global(RecordProps::new(&second.path)).expect("starts");
    let number = tail::recording();
    drop(old);
    assert_eq!(tail::recording(), number, "an ended recorder ended a recording that is not its own");
    tail::alloc(2, 1, &domain, StackId(0));
    new.stop();
    assert_eq!((addresses(&first.path), addresses(&second.path)), (vec![1], vec![2]));
}

#[test]
fn recorders_beyond_the_limit_are_refused_until_one_ends() {
    let folder = Folder::new("many");
    let path = |number: usize| folder.path.join(format!("{number}.flood"));
    // In a child, so that other tests of this process do not run out of recorders.
    // SAFETY: the child only records and leaves without running anything of this test program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let start = |number| Recorder::start(RecordProps::new(path(number)));
        // The parent may have had some at the moment of the fork.
        let mut recorders: Vec<Recorder> =
            (0..=MAX_RECORDERS).map_while(|number| start(number).ok()).collect();
        let refused = matches!(start(MAX_RECORDERS + 1), Err(StartError::TooManyRecorders));
        drop(recorders.pop());
        let again =
            start(MAX_RECORDERS + 2).map(|last| last.alloc(2, 1, &AllocDomain::default(), StackId(0)));
        let good = refused && again.is_ok();
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
    assert_eq!(addresses(&path(MAX_RECORDERS + 2)), [2]);
    for number in 0..=MAX_RECORDERS + 2 {
        // Rings of recorders that did not end are in shared memory still.
        let links = std::fs::read_dir(path(number).join("segments")).into_iter().flatten().flatten();
        for ring in links.filter_map(|link| std::fs::read_link(link.path()).ok()) {
            std::fs::remove_file(ring).expect("removes");
        }
    }
}

#[test]
fn a_forked_child_goes_on_with_every_recorder_and_ends_only_its_own_part() {
    let folders = ["fork-0", "fork-1"].map(Folder::new);
    let recorders = folders.each_ref().map(start);
    let domain = AllocDomain::default();
    for recorder in &recorders {
        recorder.alloc(1, 1, &domain, StackId(0));
    }
    // SAFETY: the child only records and leaves without running anything of this test program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        recorders[0].alloc(2, 1, &domain, StackId(0));
        // It recorded nothing into the second: dropping that leaves the parent's part alone.
        drop(recorders);
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    for recorder in &recorders {
        recorder.alloc(3, 1, &domain, StackId(0));
    }
    drop(recorders);
    assert_eq!(addresses(&folders[0].path), [1, 2, 3]);
    assert_eq!(addresses(&folders[1].path), [1, 3]);
}

/// Resident bytes of mappings whose file's name contains `name`.
fn resident(name: &str) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let (mut bytes, mut inside) = (0, false);
    for line in maps.lines() {
        if line.split_whitespace().next().is_some_and(|word| word.contains('-') && !word.ends_with(':')) {
            inside = line.contains(name);
        } else if inside && let Some(kib) = line.strip_prefix("Rss:") {
            bytes += kib.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024;
        }
    }
    bytes
}

#[test]
fn an_ended_recording_keeps_no_shared_memory() {
    let folder = Folder::new("released");
    let rings = std::env::temp_dir().join(format!("floodmark-tail-released-rings-{}", std::process::id()));
    // In shared memory, like ordinary rings: a file system that can punch holes.
    let rings = Path::new("/dev/shm").join(rings.file_name().expect("a name"));
    std::fs::create_dir_all(&rings).expect("a directory");
    let name = rings.file_name().expect("a name").to_string_lossy().into_owned();
    for round in 0..20 {
        let props = RecordProps { ring_directory: Some(rings.clone()), ..RecordProps::new(&folder.path) };
        let recorder = Recorder::start(props).expect("starts");
        for at in 0..50_000u64 {
            recorder.alloc(at << 32, at, &AllocDomain::default(), StackId(0));
        }
        let during = resident(&name);
        assert!(during > 300_000, "{during} bytes in round {round}: the test does not see the ring");
        recorder.stop();
        let after = resident(&name);
        assert!(after < 100_000, "{after} bytes stay after round {round}");
    }
    std::fs::remove_dir_all(&rings).expect("removes");
    assert_eq!(Tail::read(&folder.path).count(), 20 * 50_000);
}
