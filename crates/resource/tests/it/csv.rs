//! RMM's log: what its own tests expect, and what happens when the disk is full.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use floodmark_resource::debug_log::DebugLog;
use floodmark_resource::{
    Address, Callback, CsvError, CsvHandle, CsvLogging, Flush, Host, Resource, Simulated, Stream, find,
};
use floodmark_testkit::TempDir;

use crate::blocks::{Block, give, give_all, take, take_on, try_take};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Memory that can be looked into while it is written.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panics").clone()).expect("the log is text")
    }
}

/// Action, address and size of each line, after looking at the rest of it.
fn rows(text: &str) -> Vec<(String, String, u64)> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(HEADER));
    assert!(text.ends_with('\n'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let [thread, time, action, pointer, size, stream] = fields[..] else { panic!("{line}") };
            assert!(thread.parse::<u64>().expect("a number") > 0);
            let digits: Vec<bool> = time.bytes().map(|byte| byte.is_ascii_digit()).collect();
            assert_eq!(time.len(), 15, "{time}");
            for (at, separator) in [(2, ':'), (5, ':'), (8, '.')] {
                assert_eq!(time.chars().nth(at), Some(separator));
            }
            assert_eq!(digits.iter().filter(|digit| **digit).count(), 12);
            assert!(pointer == "(nil)" || pointer.starts_with("0x"));
            assert!(stream == "0" || stream.starts_with("0x"), "{stream}");
            (action.to_owned(), pointer.to_owned(), size.parse().expect("a number"))
        })
        .collect()
}

fn row(action: &str, block: &Block) -> (String, String, u64) {
    (action.into(), block.address.to_string(), block.bytes)
}

fn read(path: &Path) -> Vec<(String, String, u64)> {
    rows(&std::fs::read_to_string(path).expect("the log is there"))
}

#[test]
fn a_file_has_a_row_per_event() {
    let folder = TempDir::new("csv-file");
    let path = folder.join("made/on/the/way/log.csv");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "something else").unwrap();
    let log = CsvLogging::create(Host::new(), &path, Flush::Buffered).unwrap();
    let (first, second) = (take(&log, 100), take(&log, 42));
    give(&log, first);
    give(&log, second);
    log.flush().unwrap();
    let expected =
        [row("allocate", &first), row("allocate", &second), row("free", &first), row("free", &second)];
    assert_eq!(read(&path), expected);
    assert_eq!(log.file_name(), Some(path.as_path()));
    assert_eq!(CsvHandle::header(), HEADER);
}

#[test]
fn folders_are_made_and_dropping_writes_the_rest() {
    let folder = TempDir::new("csv-drop");
    let path = folder.join("a/b/log.csv");
    let log = CsvLogging::create(Host::new(), &path, Flush::Buffered).unwrap();
    let first = take(&log, 99);
    give(&log, first);
    let second = take(&log, 42);
    give(&log, second);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    drop(log);
    let expected =
        [row("allocate", &first), row("free", &first), row("allocate", &second), row("free", &second)];
    assert_eq!(read(&path), expected);
}

#[test]
fn two_writers_get_the_same() {
    let (one, other) = (Memory::default(), Memory::default());
    let log = CsvLogging::to_writers(
        Host::new(),
        vec![Box::new(one.clone()), Box::new(other.clone())],
        Flush::EveryRow,
    );
    let block = take(&log, 100);
    assert_eq!(rows(&one.text()), [row("allocate", &block)]);
    give(&log, block);
    assert_eq!(rows(&one.text()).len(), 2);
    assert_eq!(one.text(), other.text());
    assert!(one.text().lines().next() == Some(CsvHandle::header()));
}

#[test]
fn a_failure_is_in_the_file_when_the_caller_hears_of_it() {
    let folder = TempDir::new("csv-failure");
    let path = folder.join("log.csv");
    let log = CsvLogging::create(Simulated::new(1 << 20), &path, Flush::Buffered).unwrap();
    let block = take(&log, 99);
    give(&log, block);
    assert!(try_take(&log, 1 << 40).is_err());
    let failure = ("allocate failure".into(), "(nil)".into(), 1 << 40);
    assert_eq!(read(&path), [row("allocate", &block), row("free", &block), failure]);
}

#[test]
fn streams_and_blocks_of_no_bytes_look_as_in_rmm() {
    let out = Memory::default();
    let log = CsvLogging::to_writers(Simulated::new(1 << 20), vec![Box::new(out.clone())], Flush::EveryRow);
    let blocks = [
        take(&log, 0),
        take_on(&log, 8, Stream::DEFAULT),
        take_on(&log, 8, Stream::PER_THREAD),
        take_on(&log, 8, Stream::foreign(0x55_d0c0)),
    ];
    give_all(&log, blocks);
    let ends: Vec<String> =
        out.text().lines().skip(1).map(|line| line.splitn(3, ',').nth(2).unwrap().into()).collect();
    let [_, a, b, c] = blocks.map(|block| block.address);
    let expected = [
        "allocate,(nil),0,0".to_owned(),
        format!("allocate,{a},8,0"),
        format!("allocate,{b},8,0x2"),
        format!("allocate,{c},8,0x55d0c0"),
        "free,(nil),0,0".to_owned(),
        format!("free,{a},8,0"),
        format!("free,{b},8,0x2"),
        format!("free,{c},8,0x55d0c0"),
    ];
    assert_eq!(ends, expected);
}

#[test]
fn a_row_is_written_after_allocating_and_before_freeing() {
    let out = Memory::default();
    let (taken, given) = (out.clone(), out.clone());
    let below = Callback::new(
        floodmark_resource::Memory::HOST,
        move |_, _| {
            assert!(!taken.text().contains("allocate"));
            Ok(Address(256))
        },
        move |_, _, _| assert!(given.text().ends_with(",free,0x100,10,0\n")),
    );
    let log = CsvLogging::to_writers(below, vec![Box::new(out.clone())], Flush::EveryRow);
    let block = take(&log, 10);
    assert!(out.text().ends_with(",allocate,0x100,10,0\n"));
    give(&log, block);
}

/// Runs one test of this program in a process of its own, as a part of it that knows by `variable`.
pub(crate) fn in_another_process(test: &str, variable: &str, value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(variable, value);
    command
}

#[test]
fn the_environment_names_the_file() {
    const PART: &str = "FLOODMARK_TEST_CSV_ENVIRONMENT";
    match std::env::var(PART).as_deref() {
        Ok("unset") => {
            let error = CsvLogging::from_environment(Host::new(), Flush::Buffered).unwrap_err();
            assert!(matches!(error, CsvError::NoFileName) && error.to_string().contains("RMM_LOG_FILE"));
            return;
        }
        Ok(path) => {
            assert_eq!(CsvHandle::default_file_name().unwrap(), Path::new(path));
            let log = CsvLogging::from_environment(Host::new(), Flush::Buffered).unwrap();
            let block = take(&log, 100);
            give(&log, block);
            return;
        }
        Err(_) => {}
    }
    let folder = TempDir::new("csv-environment");
    let path = folder.join("log.csv");
    let test = "csv::the_environment_names_the_file";
    for value in [None, Some("")] {
        let mut command = in_another_process(test, PART, "unset");
        command.env_remove("RMM_LOG_FILE");
        if let Some(value) = value {
            command.env("RMM_LOG_FILE", value);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let mut command = in_another_process(test, PART, path.to_str().unwrap());
    // A zone that nobody lives in, to see that times are local.
    let output = command.env("RMM_LOG_FILE", &path).env("TZ", "NOW-03:30").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = std::fs::read_to_string(&path).unwrap();
    let found = rows(&text);
    assert_eq!((found[0].0.as_str(), found[1].0.as_str(), found.len()), ("allocate", "free", 2));
    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    let utc = written.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let clock = text.lines().nth(1).unwrap().split(',').nth(1).unwrap();
    let part = |at: usize| clock[at..at + 2].parse::<u64>().unwrap();
    let local = part(0) * 3600 + part(3) * 60 + part(6);
    // The row is older than the file by what lies between building and writing it.
    let behind = (utc + 12600 + 86400 - local) % 86400;
    assert!(behind < 3600, "{clock} in the zone, {utc} s in UTC");
}

#[test]
fn a_device_has_a_file_of_its_own() {
    let folder = TempDir::new("csv-device");
    let path = CsvHandle::device_file_name(&folder.join("rmm_log.csv"), 0);
    assert!(path.ends_with("rmm_log.dev0.csv"));
    drop(CsvLogging::create(Host::new(), &path, Flush::Buffered).unwrap());
    assert!(std::fs::read_to_string(&path).unwrap().contains("Time,Action,Pointer,Size,Stream"));
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_that_names_it() {
    let folder = TempDir::new("csv-error");
    std::fs::write(folder.join("file"), "").unwrap();
    let path = folder.join("file/log.csv");
    let error = CsvLogging::create(Host::new(), &path, Flush::Buffered).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_full_disk_is_told_once_counted_and_survived() {
    let _turn = crate::debug_log::turn();
    let told = Memory::default();
    tracing::subscriber::with_default(DebugLog::to_writer(Box::new(told.clone())), || {
        let log = CsvLogging::create(Simulated::new(1 << 30), "/dev/full", Flush::EveryRow).unwrap();
        for _ in 0..30 {
            let block = take(&log, 10);
            give(&log, block);
        }
        let health = log.health();
        assert_eq!((health.write_errors, health.rows_lost), (60, 0));
        assert!(health.last_error.unwrap().contains("No space left"));
        assert!(matches!(log.flush(), Err(CsvError::Io { .. })));
        // Too much to keep: lines go, and are counted.
        for _ in 0..20_000 {
            let block = take(&log, 10);
            give(&log, block);
        }
        assert!(log.health().rows_lost > 0);
    });
    let told = told.text();
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("writing /dev/full")).collect();
    assert_eq!(lines.len(), 1, "{told}");
    assert!(lines[0].contains("[error] csv_logging: writing /dev/full: No space left"), "{told}");
}

/// A disk that takes a few bytes at a time, and sometimes none.
struct Moody {
    out: Memory,
    turn: usize,
}

impl Write for Moody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.turn += 1;
        match self.turn % 5 {
            0 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            1 => Err(io::ErrorKind::Interrupted.into()),
            turn => self.out.write(&bytes[..bytes.len().min(turn * 7)]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_an_error_the_log_goes_on_where_it_stopped() {
    let (good, moody) = (Memory::default(), Memory::default());
    let log = CsvLogging::to_writers(
        Simulated::new(1 << 20),
        vec![Box::new(good.clone()), Box::new(Moody { out: moody.clone(), turn: 0 })],
        Flush::EveryRow,
    );
    for round in 0..200 {
        let block = take(&log, round);
        give(&log, block);
    }
    while log.flush().is_err() {}
    assert_eq!(rows(&moody.text()).len(), 400);
    assert_eq!(moody.text(), good.text());
    let health = log.health();
    assert!(health.write_errors > 0 && health.rows_lost == 0);
}

#[test]
fn what_waits_is_bounded() {
    let out = Memory::default();
    let log = CsvLogging::to_writers(Simulated::new(1 << 20), vec![Box::new(out.clone())], Flush::Buffered);
    let mut written = 0;
    for _ in 0..3000 {
        let block = take(&log, 10);
        give(&log, block);
        written += 2 * "1,00:00:00.000000,free,0x1,10,0\n".len();
        assert!(out.text().len() + (70 << 10) >= written);
    }
    assert!(!out.text().is_empty());
}

#[test]
fn rows_of_many_threads_are_whole_and_in_an_order_that_can_be() {
    let folder = TempDir::new("csv-threads");
    let path = folder.join("log.csv");
    let stack: Arc<dyn Resource> =
        Arc::new(CsvLogging::create(Simulated::new(16 << 10), &path, Flush::Buffered).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..1500 {
                    let block = take(&stack, 1 + round % 2048);
                    give(&stack, block);
                }
            });
        }
    });
    find::<CsvHandle>(&stack).unwrap().flush().unwrap();
    let mut live = HashSet::new();
    let rows = read(&path);
    assert_eq!(rows.len(), 12_000);
    for (action, pointer, _) in rows {
        let fits = if action == "allocate" { live.insert(pointer) } else { live.remove(&pointer) };
        assert!(fits, "an address was handed out while it was live");
    }
    assert!(live.is_empty());
    let text = std::fs::read_to_string(&path).unwrap();
    let threads: HashSet<&str> = text.lines().skip(1).map(|line| line.split_once(',').unwrap().0).collect();
    assert_eq!(threads.len(), 4);
}

/// Forks, has the child do something, and waits for it.
#[expect(unsafe_code, reason = "forks")]
fn in_a_fork(child: impl FnOnce()) {
    // SAFETY: the child writes and ends at once, without running what the parent has to run at its end.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            child();
            libc::_exit(0);
        }
        let mut status = 1;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        assert_eq!(status, 0);
    }
}

#[test]
fn a_forked_child_writes_its_own_rows_only() {
    let folder = TempDir::new("csv-fork");
    let path = folder.join("log.csv");
    let log = CsvLogging::create(Simulated::new(1 << 20), &path, Flush::Buffered).unwrap();
    let parents = take(&log, 1);
    log.flush().unwrap();
    let buffered = take(&log, 2);
    in_a_fork(|| {
        take(&log, 3);
        let _ = log.flush();
    });
    give(&log, parents);
    give(&log, buffered);
    drop(log);
    let sizes: Vec<u64> = read(&path).into_iter().map(|row| row.2).collect();
    // What the parent had buffered is written before it forks.
    assert_eq!(sizes, [1, 2, 3, 1, 2]);
    let text = std::fs::read_to_string(&path).unwrap();
    let thread = |line: usize| text.lines().nth(line).unwrap().split_once(',').unwrap().0.to_owned();
    assert_ne!(thread(1), thread(3), "the child has a number of its own");
    assert_eq!(thread(1), thread(2));
}
