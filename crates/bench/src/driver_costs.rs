//! What single calls of the CUDA driver cost the thread that makes them.
//!
//! Calls are timed in batches; the device is idle before each. Except where it says so, a call
//! includes asking which context is current, as every call of a resource does.
#![expect(unsafe_code, reason = "frees memory of the device")]

use std::time::Instant;

use anyhow::Result;
use floodmark_resource::{
    ALIGNMENT, Cuda, CudaAsync, CudaManaged, CudaMemory, CudaPinned, Resource, Stream, StreamOrder as _,
};

use crate::measure::Samples;

/// Prints a line per call.
pub(crate) fn run(ordinal: i32, repeat: usize) -> Result<()> {
    let cuda = Cuda::open()?;
    let device = cuda.device(ordinal)?;
    println!("{} {}, driver for CUDA {}", device.name(), device.uuid(), cuda.version());
    println!("ns per call, median (least–most) of {repeat} batches");
    let order = device.order();
    let (one, two) = (device.stream()?, device.stream()?);
    let marker = order.marker()?;
    let time = |name: &str, calls: u32, call: &dyn Fn() -> Result<()>| -> Result<()> {
        let mut samples = Samples::default();
        for batch in 0..=repeat {
            order.synchronize_all()?;
            let begin = Instant::now();
            for _ in 0..calls {
                call()?;
            }
            let ns = begin.elapsed().as_nanos() as f64 / f64::from(calls);
            if batch > 0 {
                samples.push(ns); // the first one warms up
            }
        }
        println!("{name:<52} {:>30}", samples.text(0));
        Ok(())
    };
    let record = || Ok(order.record(marker, one.stream())?);
    time("cuEventRecord, no context current (set, set back)", 200, &record)?;
    device.make_current()?;
    time("cuCtxGetCurrent alone", 1000, &|| Ok(cuda.current_context().map(drop)?))?;
    time("cuStreamGetId alone", 1000, &|| {
        std::hint::black_box(order.identity(one.foreign()));
        Ok(())
    })?;
    time("cuEventRecord, a stream", 200, &record)?;
    time("cuEventRecord, the default stream", 200, &|| Ok(order.record(marker, Stream::DEFAULT)?))?;
    time("cuEventRecord, the thread's default stream", 200, &|| {
        Ok(order.record(marker, Stream::PER_THREAD)?)
    })?;
    record()?;
    time("cuStreamWaitEvent", 200, &|| Ok(order.wait(two.stream(), marker)?))?;
    time("cuEventRecord + cuStreamWaitEvent", 200, &|| {
        order.record(marker, one.stream())?;
        Ok(order.wait(two.stream(), marker)?)
    })?;
    time("cuEventQuery", 1000, &|| Ok(order.has_run(marker).map(drop)?))?;
    time("cuEventCreate + cuEventDestroy", 200, &|| {
        order.discard(order.marker()?);
        Ok(())
    })?;
    time("cuStreamSynchronize, idle", 1000, &|| Ok(order.synchronize(one.stream())?))?;
    time("cuMemGetInfo", 50, &|| Ok(device.memory_info().map(drop)?))?;
    let pair = |name: &str, resource: &dyn Resource, bytes: u64, calls: u32| -> Result<()> {
        time(name, calls, &|| {
            let block = resource.allocate(bytes, ALIGNMENT, one.stream())?;
            // SAFETY: allocated a line ago, and used by nobody.
            unsafe { resource.deallocate(block, bytes, ALIGNMENT, one.stream()) };
            Ok(())
        })
    };
    let memory = CudaMemory::new(&device);
    pair("cuMemAlloc + cuMemFree, 256 B", &memory, 256, 50)?;
    pair("cuMemAlloc + cuMemFree, 1 MiB", &memory, 1 << 20, 50)?;
    pair("cuMemAlloc + cuMemFree, 64 MiB", &memory, 64 << 20, 20)?;
    pair("cuMemAllocManaged + cuMemFree, 1 MiB", &CudaManaged::new(&device), 1 << 20, 20)?;
    pair("cuMemHostAlloc + cuMemFreeHost, 1 MiB", &CudaPinned::new(&device), 1 << 20, 20)?;
    let pool = CudaAsync::new(&device)?;
    pair("cuMemAllocFromPoolAsync + cuMemFreeAsync, 256 B", &pool, 256, 1000)?;
    pair("cuMemAllocFromPoolAsync + cuMemFreeAsync, 1 MiB", &pool, 1 << 20, 1000)?;
    pair("cuMemAllocFromPoolAsync + cuMemFreeAsync, 64 MiB", &pool, 64 << 20, 200)?;
    order.discard(marker);
    Ok(())
}
