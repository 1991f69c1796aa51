//! What resources tell while they work, as it stands in the file of the debug log.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use floodmark_resource::debug_log::install;
use floodmark_resource::{
    Address, Aligned, AllocError, Arena, ArenaProps, Binning, Callback, CsvLogging, CudaMemory,
    FailureCallback, Flush, Host, Limiting, Logging, Memory, Pool, PoolProps, Prefetch, Resource, Retry,
    Simulated, Statistics, Stream, ThreadSafe, Tracking, current,
};
use floodmark_testkit::TempDir;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::blocks::{Block, MIB, give, take, take_on, try_take};
use crate::csv::in_another_process;
use crate::stub::Stub;

const PART: &str = "FLOODMARK_TEST_LOG_FILE";

/// Runs a part of a test where the debug log goes to a file; returns its lines without their times.
fn lines(test: &str, level: &str) -> Vec<String> {
    let folder = TempDir::new(&test.replace("::", "-"));
    let file = folder.join("debug.log");
    let mut command = in_another_process(test, PART, "1");
    command.env("FLOODMARK_DEBUG_LOG_FILE", &file).env("FLOODMARK_DEBUG_LOG", level);
    let output = command.output().expect("this program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(file).expect("the log");
    text.lines().map(|line| line[26..].to_owned()).collect()
}

fn is_part() -> bool {
    std::env::var_os(PART).inspect(|_| install().expect("nothing is in the way")).is_some()
}

/// What a pool and what is on it go through, step by step.
fn work() {
    let device = Arc::new(Simulated::new(8 * MIB));
    let props = PoolProps { initial_bytes: MIB, maximum_bytes: Some(4 * MIB) };
    let pool = Pool::new(Arc::clone(&device), props).expect("there is room");
    let tries = AtomicU64::new(0);
    let retry = move |_: u64, _: &AllocError| {
        if tries.fetch_add(1, Ordering::Relaxed) == 0 { Retry::Again } else { Retry::GiveUp }
    };
    let resource: Arc<dyn Resource> =
        Arc::new(FailureCallback::new(Statistics::new(Limiting::new(pool, 3 * MIB)), retry));
    current::set_current(0, Arc::clone(&resource));
    let [one, two] = [0, 1].map(|_| device.streams().create());
    give(&resource, take_on(&resource, MIB, one.stream()));
    let block = take_on(&resource, MIB, two.stream());
    take_on(&resource, MIB + 1000, two.stream());
    try_take(&resource, 2 * MIB).expect_err("the limit is 3 MiB");
    give(&resource, Block { address: Address(block.address.0 + 256), ..block });
    current::reset(0);
}

const WORK: [&str; 24] = [
    "[info] simulated memory created: 8.00 MiB",
    "[trace] simulated: 1.00 MiB (1048576 bytes) at 0x100000000 for stream 0x0",
    "[debug] pool: grew by 1.00 MiB to 1.00 MiB",
    "[info] pool created over simulated: 1.00 MiB now, 4.00 MiB at most",
    "[info] limiting created over pool: 3.00 MiB (3145728 bytes) at most",
    "[info] statistics created over limiting",
    "[info] failure_callback created over statistics",
    "[info] device 0: the current resource is now failure_callback, was none",
    "[trace] pool: 1.00 MiB (1048576 bytes) at 0x100000000 for stream 0x1000",
    "[trace] pool: 1.00 MiB (1048576 bytes) at 0x100000000 back from stream 0x1000",
    "[debug] stream 0x1010 waits for stream 0x1000",
    "[trace] pool: 1.00 MiB (1048576 bytes) at 0x100000000 for stream 0x1010",
    "[trace] simulated: 1.50 MiB (1572864 bytes) at 0x100100000 for stream 0x1010",
    "[debug] pool: grew by 1.50 MiB to 2.50 MiB",
    "[trace] pool: 1.00 MiB (1049576 bytes) at 0x100100000 for stream 0x1010",
    "[debug] out of memory: limiting cannot allocate 2.00 MiB (2097152 bytes): its limit is 3.00 MiB; \
     live 2.00 MiB, reserved 2.00 MiB",
    "[debug] failure_callback: try 2 of 2.00 MiB (2097152 bytes)",
    "[debug] out of memory: limiting cannot allocate 2.00 MiB (2097152 bytes): its limit is 3.00 MiB; \
     live 2.00 MiB, reserved 2.00 MiB",
    "[debug] failure_callback: gave up on 2.00 MiB (2097152 bytes) after try 2: out of memory: limiting cannot \
     allocate 2.00 MiB (2097152 bytes): its limit is 3.00 MiB; live 2.00 MiB, reserved 2.00 MiB",
    "[trace] pool: 1.00 MiB (1048576 bytes) at 0x100000100 back from stream 0x1010",
    "[error] pool: a block at 0x100000100 was given back that is not live (1048576 bytes)",
    "[info] device 0: the current resource is the first one again, was failure_callback",
    "[warn] pool: ends with 2.00 MiB in 2 blocks still live",
    "[info] pool ended, 2.50 MiB given back to simulated",
];

#[test]
fn every_level_has_its_part_of_what_happens() {
    if is_part() {
        return work();
    }
    let words = ["error", "warn", "info", "debug", "trace"];
    for (place, level) in words.into_iter().enumerate() {
        let is_told = |line: &&str| words[..=place].iter().any(|word| line.starts_with(&format!("[{word}]")));
        let expected: Vec<&str> = WORK.into_iter().filter(is_told).collect();
        let mut found = lines("log_file::every_level_has_its_part_of_what_happens", level);
        // The device gets its regions back in between, at the end.
        found.retain(|line| !line.starts_with("[trace] simulated:") || !line.contains("back from"));
        assert_eq!(found, expected, "{level}");
    }
}

/// Uses the second device, then again after the first was made current.
fn use_devices() {
    let stub = Stub::build(&["STUB_DEVICES=2"]);
    let cuda = stub.open().expect("a driver");
    let [first, second] = [0, 1].map(|number| cuda.device(number).expect("a device"));
    let memory = CudaMemory::new(&second);
    give(&memory, take(&memory, 1000));
    first.make_current().expect("a device");
    for _ in 0..2 {
        give(&memory, take(&memory, 1000));
    }
    try_take(&memory, 1 << 40).expect_err("more than there is");
}

#[test]
fn devices_and_switches_between_them_are_told_once() {
    if is_part() {
        return use_devices();
    }
    let found = lines("log_file::devices_and_switches_between_them_are_told_once", "debug");
    assert!(found[0].starts_with("[info] cuda: ") && found[0].ends_with(" serves CUDA 13000"), "{found:?}");
    let expected = [
        "[info] cuda: device 0 is Stand-in, 67108864 bytes",
        "[info] cuda: device 1 is Stand-in, 67108864 bytes",
        "[info] cuda: memory of device 1 (Stand-in)",
        "[debug] cuda: this thread uses device 1 and has no current context",
        "[debug] cuda: device 0 is current in this thread from now on",
        "[debug] cuda: this thread uses device 1; another context is current in it",
        "[debug] cuda: no 1099511627776 bytes on device 1: allocating device memory: \
         CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ];
    assert_eq!(found[1..], expected);
}

fn create_all() {
    let folder = TempDir::new("log-file-csv");
    let csv = CsvLogging::create(Host::new(), folder.join("log.csv"), Flush::Buffered).expect("a file");
    let writers = CsvLogging::to_writers(csv, vec![Box::new(io::sink())], Flush::Buffered);
    let below = Tracking::with_stacks(Tracking::new(Logging::new(writers)));
    let adapted = Prefetch::new(ThreadSafe::new(Aligned::new(below, 4096, 65536).expect("a power")), None);
    let binning = Binning::with_powers(adapted, 10, 10).expect("128 KiB");
    try_take(&binning, u64::MAX).expect_err("more than there is");
    let arena = Arena::new(Simulated::new(2 * MIB), ArenaProps::new(MIB)).expect("1 MiB");
    try_take(&arena, 4 * MIB).expect_err("more than it has");
    let refuse = |_: u64, _: Stream| Err(AllocError::Refused { message: "not today".into() });
    try_take(&Callback::new(Memory::HOST, refuse, |_, _, _| {}), 8).expect_err("it refuses");
}

#[test]
fn every_resource_tells_that_it_is_created_and_why_it_refuses() {
    if is_part() {
        return create_all();
    }
    let mut found = lines("log_file::every_resource_tells_that_it_is_created_and_why_it_refuses", "debug");
    assert!(found[1].starts_with("[info] csv_logging created over host: into /"), "{}", found[1]);
    assert!(found.remove(1).ends_with("/log.csv"));
    let expected = [
        "[info] host memory created",
        "[info] csv_logging created over csv_logging: into 1 writer",
        "[info] logging created over csv_logging",
        "[info] tracking created over logging: without call stacks",
        "[info] tracking created over tracking: with call stacks",
        "[info] aligned created over tracking: to 4096, blocks from 64.0 KiB (65536 bytes) on",
        "[info] thread_safe created over aligned",
        "[info] prefetch created over thread_safe; this memory cannot be prefetched",
        "[info] binning created over prefetch",
        "[debug] fixed_size: grew by 128.0 KiB to 128.0 KiB",
        "[info] fixed_size created over prefetch: 128.0 KiB now, no limit at most",
        "[info] binning: up to 1.00 KiB from fixed_size",
        "[debug] out of memory: aligned cannot allocate 16.0 EiB (18446744073709551615 bytes): that is more than \
         it ever hands out; live 131.8 KiB, reserved 131.8 KiB",
        "[info] simulated memory created: 2.00 MiB",
        "[debug] arena: grew by 1.00 MiB to 1.00 MiB",
        "[info] arena created over simulated: 1.00 MiB now, 1.00 MiB at most",
        "[debug] out of memory: arena cannot allocate 4.00 MiB (4194304 bytes): it hands out at most 1.00 MiB; \
         live 0 B, reserved 1.00 MiB, largest free block 1.00 MiB",
        "[info] callback created: pageable memory that functions hand out",
        "[debug] callback: the function refused 8 bytes: not today",
        "[info] arena ended, 1.00 MiB given back to simulated",
        "[info] fixed_size ended, 128.0 KiB given back to prefetch",
    ];
    assert_eq!(found, expected);
}

/// Asks the resource whose words it hears for memory, each time.
#[derive(Clone, Default)]
struct Greedy {
    resource: Arc<OnceLock<Arc<dyn Resource>>>,
    served: Arc<AtomicU64>,
}

impl Subscriber for Greedy {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let Some(resource) = self.resource.get() else { return };
        give(resource, take(resource, 100));
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A disk that takes nothing.
struct Full;

impl io::Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn whoever_listens_may_allocate_from_the_one_who_speaks() {
    let give_up = |_: u64, _: &AllocError| Retry::GiveUp;
    let makers: [fn(Simulated) -> Arc<dyn Resource>; 7] = [
        |device| Arc::new(device),
        |device| Arc::new(ThreadSafe::new(device)),
        |device| Arc::new(Aligned::new(device, 4096, 0).expect("a power of two")),
        |device| Arc::new(Limiting::new(Statistics::new(device), MIB)),
        |device| Arc::new(Tracking::new(device)),
        |device| Arc::new(CsvLogging::to_writers(device, vec![Box::new(Full)], Flush::EveryRow)),
        |device| Arc::new(Prefetch::new(Logging::new(device), None)),
    ];
    for make in makers {
        let greedy = Greedy::default();
        tracing::subscriber::with_default(greedy.clone(), || {
            let resource: Arc<dyn Resource> =
                Arc::new(FailureCallback::new(ThreadSafe::new(make(Simulated::new(MIB))), give_up));
            assert!(greedy.resource.set(Arc::clone(&resource)).is_ok());
            let block = take(&resource, 1000);
            try_take(&resource, 2 * MIB).expect_err("more than there is");
            // What is wrong is told, too: a block that is not live, and one with another size.
            give(&resource, Block { address: Address(0x5000), ..block });
            give(&resource, Block { bytes: 500, ..block });
            assert_eq!(resource.room().live_blocks, 0, "{}", resource.name());
        });
        assert!(greedy.served.load(Ordering::Relaxed) >= 5);
    }
}
