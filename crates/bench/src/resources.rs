//! What an allocation costs, resource by resource, beside RMM's.
//!
//! The same four loops as `peers/rmm.cpp`, with the same random numbers: pairs of 1 KiB, a random
//! working set of at most 1,000 and of at most 10,000 blocks of 256 B to 1 MiB, and the first of these on
//! four threads with a stream each. On a machine with a GPU the memory is the device's, else simulated.
//!
//! What an adaptor adds is measured by turns with a pool that has none: on a machine whose speed changes from
//! minute to minute two rows of a table cannot be subtracted from each other.
#![expect(unsafe_code, reason = "gives back blocks that it allocated")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use floodmark_resource::{
    ALIGNMENT, Address, Arena, ArenaProps, Blocking, Cuda, CudaAsync, CudaDevice, CudaMemory, CudaStream,
    Logging, Pool, PoolProps, Resource, Simulated, SimulatedStream, Statistics, Stream, Tracking,
};
use floodmark_store::{Run, SealerThread};
use floodmark_tail::{RecordProps, Recorder};
use floodmark_testkit::Random;

use crate::measure::Samples;

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Props {
    /// Operations per measurement
    #[arg(long, default_value_t = 400_000)]
    operations: usize,
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// Measure on simulated memory even if there is a GPU
    #[arg(long)]
    simulate: bool,
    /// `peers/rmm.cpp`, compiled: RMM in the same run
    #[arg(long)]
    rmm: Option<PathBuf>,
}

const THREADS: usize = 4;
/// What pools and arenas have.
const BYTES: u64 = 40 << 30;
const COLUMNS: [&str; 4] = ["pair of 1 KiB", "≤ 1,000 live", "≤ 10,000 live", "4 threads"];

/// Repeated measurements, by column.
type Row = [Samples; 4];

/// Measures every resource and prints a table.
pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    let peers = props.rmm.as_deref().map(|program| rmm(program, props.operations, repeat)).transpose()?;
    let mut bench =
        Bench { props, repeat, peers: peers.unwrap_or_default(), streams: Streams::Simulated(Vec::new()) };
    println!(
        "ns per operation: median (least–most) of {repeat}; RMM's median where it was measured, and how many times ours"
    );
    println!("| resource | {} |", COLUMNS.join(" | "));
    println!("|---|---|---|---|---|");
    let device = if props.simulate { None } else { Cuda::open().ok() };
    match device {
        Some(cuda) => {
            let device = cuda.device(props.device)?;
            bench.streams = Streams::cuda(&device)?;
            bench.row("cuda", &CudaMemory::new(&device), props.operations / 100)?;
            bench.row("cuda_async", &CudaAsync::new(&device)?, props.operations / 4)?;
            bench.all(folder, || CudaMemory::new(&device))?;
            println!("\nOn {}, memory from cuMemAlloc.", device.name());
        }
        None => {
            let device = Arc::new(Simulated::new(2 * BYTES));
            bench.streams = Streams::Simulated((0..=THREADS).map(|_| device.streams().create()).collect());
            bench.all(folder, || Arc::clone(&device))?;
            println!("\nOn simulated memory.");
        }
    }
    Ok(())
}

/// One stream for one thread, then one for each of many.
enum Streams {
    Cuda(Vec<CudaStream>),
    Simulated(Vec<SimulatedStream>),
}

impl Streams {
    fn cuda(device: &CudaDevice) -> Result<Self> {
        let streams: Result<_, _> = (0..=THREADS).map(|_| CudaStream::create(device, Blocking::No)).collect();
        Ok(Self::Cuda(streams?))
    }

    fn list(&self) -> Vec<Stream> {
        match self {
            Self::Cuda(streams) => streams.iter().map(CudaStream::stream).collect(),
            Self::Simulated(streams) => streams.iter().map(SimulatedStream::stream).collect(),
        }
    }
}

struct Bench<'a> {
    props: &'a Props,
    repeat: usize,
    peers: BTreeMap<String, Row>,
    streams: Streams,
}

impl Bench<'_> {
    /// Measures what has memory of `upstream`, one after the other.
    fn all<R: Resource>(&self, folder: &Path, upstream: impl Fn() -> R) -> Result<()> {
        let operations = self.props.operations;
        let pool = || Pool::new(upstream(), PoolProps { initial_bytes: BYTES, maximum_bytes: None });
        self.row("pool", &pool()?, operations)?;
        let foreign: Vec<Stream> =
            self.streams.list().iter().map(|stream| Stream::foreign(stream.handle())).collect();
        self.row_on("pool, streams of others", &pool()?, operations, &foreign)?;
        self.row("arena", &Arena::new(upstream(), ArenaProps::new(BYTES))?, operations)?;
        let bare = pool()?;
        // One after the other: two pools of that size are as much as a device has room for.
        let mut added = Vec::new();
        added.push(self.adaptor("statistics(pool)", &Statistics::new(pool()?), &bare, operations)?);
        added.push(self.adaptor("tracking(pool)", &Tracking::new(pool()?), &bare, operations)?);
        let tracking = Tracking::with_stacks(pool()?);
        added.push(self.adaptor("tracking with stacks(pool)", &tracking, &bare, operations / 10)?);
        drop(tracking);
        let trace = folder.join("resources.flood");
        let _ = std::fs::remove_dir_all(&trace);
        let recorder = Recorder::start_global(RecordProps::new(&trace))?;
        let sealer = SealerThread::spawn(recorder.trace(), Run::default())?;
        added.push(self.adaptor("logging(pool)", &Logging::new(pool()?), &bare, operations)?);
        recorder.stop();
        sealer.stop()?;
        println!(
            "\nns that an adaptor adds to a pool, measured by turns; reading the clock alone takes {}",
            clock()
        );
        println!("| adaptor | {} |", COLUMNS.join(" | "));
        println!("|---|---|---|---|---|");
        for line in added {
            println!("{line}");
        }
        Ok(())
    }

    /// Measures an adaptor over a pool by turns with a bare pool; returns a line of what it adds.
    fn adaptor<R: Resource, P: Resource>(
        &self,
        name: &str,
        resource: &R,
        bare: &P,
        operations: usize,
    ) -> Result<String> {
        let streams = self.streams.list();
        let (mut row, mut added) = (Row::default(), Row::default());
        for at in 0..=self.repeat {
            let without = once(bare, &streams, operations)?;
            let with = once(resource, &streams, operations)?;
            // The first time warms up.
            for column in (0..COLUMNS.len()).filter(|_| at > 0) {
                row[column].push(with[column]);
                added[column].push(with[column] - without[column]);
            }
        }
        self.print(name, &row);
        let cells = added.iter().map(|samples| samples.text(1));
        Ok(format!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | ")))
    }

    fn row<R: Resource>(&self, name: &str, resource: &R, operations: usize) -> Result<()> {
        self.row_on(name, resource, operations, &self.streams.list())
    }

    fn row_on<R: Resource>(
        &self,
        name: &str,
        resource: &R,
        operations: usize,
        streams: &[Stream],
    ) -> Result<()> {
        let mut row = Row::default();
        pairs(resource, streams[0], operations / 10 + 10)?;
        for _ in 0..self.repeat {
            for (samples, ns) in row.iter_mut().zip(once(resource, streams, operations)?) {
                samples.push(ns);
            }
        }
        self.print(name, &row);
        Ok(())
    }

    fn print(&self, name: &str, row: &Row) {
        let cells = row.iter().enumerate().map(|(column, samples)| {
            let ours = samples.text(1);
            self.peers.get(name).map_or(ours.clone(), |peer| {
                let theirs = peer[column].median();
                format!("{ours}; {theirs:.0}, ×{:.1}", theirs / samples.median())
            })
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

/// All columns, measured once.
fn once<R: Resource>(resource: &R, streams: &[Stream], operations: usize) -> Result<[f64; COLUMNS.len()]> {
    Ok([
        pairs(resource, streams[0], operations)?,
        random(resource, streams[0], operations, 1_000, 7)?,
        random(resource, streams[0], operations, 10_000, 7)?,
        threads(resource, &streams[1..], operations)?,
    ])
}

/// What it costs to read the clock.
fn clock() -> String {
    let mut samples = Samples::default();
    for _ in 0..9 {
        let begin = Instant::now();
        for _ in 0..100_000 {
            std::hint::black_box(floodmark_tail::clock::monotonic_ns());
        }
        samples.push(begin.elapsed().as_nanos() as f64 / 100_000.0);
    }
    samples.text(1)
}

/// Runs the same loops on RMM.
fn rmm(program: &Path, operations: usize, repeat: usize) -> Result<BTreeMap<String, Row>> {
    let output = Command::new(program)
        .args([operations.to_string(), repeat.to_string()])
        .output()
        .with_context(|| format!("starting {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {errors}", program.display());
    let text = String::from_utf8(output.stdout)?;
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for line in text.lines() {
        let mut cells = line.split('\t');
        let name = cells.next().unwrap_or_default().to_owned();
        for (samples, cell) in rows.entry(name).or_default().iter_mut().zip(cells) {
            samples.push(cell.parse().with_context(|| format!("reading {line:?}"))?);
        }
    }
    Ok(rows)
}

fn pairs<R: Resource>(resource: &R, stream: Stream, operations: usize) -> Result<f64> {
    let begin = Instant::now();
    for _ in 0..operations {
        let block = resource.allocate(1024, ALIGNMENT, stream)?;
        // SAFETY: allocated above.
        unsafe { resource.deallocate(block, 1024, ALIGNMENT, stream) };
    }
    Ok(begin.elapsed().as_nanos() as f64 / (2 * operations) as f64)
}

fn random<R: Resource>(
    resource: &R,
    stream: Stream,
    operations: usize,
    most: usize,
    seed: u64,
) -> Result<f64> {
    let mut random = Random::new(seed);
    let numbers: Vec<(u64, u64)> = (0..operations).map(|_| (random.next_u64(), random.next_u64())).collect();
    let mut live: Vec<(Address, u64)> = Vec::with_capacity(most);
    let begin = Instant::now();
    for (choice, number) in numbers {
        if live.len() < most && (live.is_empty() || choice & 1 == 1) {
            let bytes = 256 + number % (1 << 20);
            live.push((resource.allocate(bytes, ALIGNMENT, stream)?, bytes));
        } else {
            let (block, bytes) = live.swap_remove((number % live.len() as u64) as usize);
            // SAFETY: allocated above and forgotten now.
            unsafe { resource.deallocate(block, bytes, ALIGNMENT, stream) };
        }
    }
    let ns = begin.elapsed().as_nanos() as f64 / operations as f64;
    for (block, bytes) in live {
        // SAFETY: as above.
        unsafe { resource.deallocate(block, bytes, ALIGNMENT, stream) };
    }
    Ok(ns)
}

fn threads<R: Resource>(resource: &R, streams: &[Stream], operations: usize) -> Result<f64> {
    let begin = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = streams
            .iter()
            .zip(11..)
            .map(|(stream, seed)| scope.spawn(move || random(resource, *stream, operations, 1_000, seed)))
            .collect();
        for worker in workers {
            worker.join().expect("no panic in the loop")?;
        }
        Ok(())
    })?;
    Ok(begin.elapsed().as_nanos() as f64 / (streams.len() * operations) as f64)
}
