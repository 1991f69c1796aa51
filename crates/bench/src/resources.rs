//! What an allocation costs, resource by resource, beside RMM's.
//!
//! The same four loops as `peers/rmm.cpp`: pairs of 1 KiB, a random working set of at most 1,000 and of
//! at most 10,000 blocks of 256 B to 1 MiB, and the first of these on four threads with a stream each.
#![expect(unsafe_code, reason = "gives back blocks that it allocated")]

use std::time::Instant;

use anyhow::Result;
use floodmark_resource::{
    ALIGNMENT, Address, Arena, ArenaProps, Pool, PoolProps, Resource, Simulated, Stream,
};
use floodmark_testkit::Random;

use crate::measure::Samples;

const THREADS: usize = 4;
const COLUMNS: [&str; 4] = ["pair of 1 KiB", "random, ≤ 1,000 live", "random, ≤ 10,000 live", "4 threads"];

/// Measures every resource and prints a table.
pub(crate) fn run(operations: usize, repeat: usize) -> Result<()> {
    println!("ns per operation, {operations} operations, median (least–most) of {repeat}");
    let device = || Simulated::new(64 << 30);
    let size = 40 << 30;
    let pool = || -> Result<Pool<Simulated>> {
        Ok(Pool::new(device(), PoolProps { initial_bytes: size, maximum_bytes: None })?)
    };
    row("simulated", &device(), operations, repeat)?;
    row("pool", &pool()?, operations, repeat)?;
    row("arena", &Arena::new(device(), ArenaProps::new(size))?, operations, repeat)?;
    Ok(())
}

fn row<R: Resource>(name: &str, resource: &R, operations: usize, repeat: usize) -> Result<()> {
    let streams: Vec<Stream> =
        (0..=THREADS as u64).map(|number| Stream::lasting(0x1000 + 16 * number)).collect();
    let mut samples: [Samples; 4] = Default::default();
    pairs(resource, streams[0], operations / 10 + 10)?;
    for _ in 0..repeat {
        samples[0].push(pairs(resource, streams[0], operations)?);
        samples[1].push(random(resource, streams[0], operations, 1_000, 7)?);
        samples[2].push(random(resource, streams[0], operations, 10_000, 7)?);
        samples[3].push(threads(resource, &streams[1..], operations)?);
    }
    println!("{name}");
    for (column, samples) in COLUMNS.iter().zip(&samples) {
        println!("    {column:24} {}", samples.text(1));
    }
    Ok(())
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
