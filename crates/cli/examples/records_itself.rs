//! A program that records its own allocations, with the stack of each.
//!
//! `records_itself NAME.flood` keeps 3 MiB that `load_rows` asks for and 1 MiB that `grow_index` asks for, which
//! is inlined into `build_index`; a thread asks for 512 KiB and frees them.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use floodmark_resource::{DeviceBuffer, Host, Logging, Resource, Stream};
use floodmark_stacks::recorded_stack;
use floodmark_store::{Run, SealerThread};
use floodmark_tail::{RecordProps, Recorder};

type Failure = Box<dyn Error + Send + Sync>;

#[inline(never)]
fn load_rows(resource: &Arc<dyn Resource>) -> Result<DeviceBuffer, Failure> {
    Ok(DeviceBuffer::new(black_box(3 << 20), Stream::DEFAULT, Arc::clone(resource))?)
}

#[expect(clippy::inline_always, reason = "its block shows how inlined functions are named")]
#[inline(always)]
fn grow_index(resource: &Arc<dyn Resource>) -> Result<DeviceBuffer, Failure> {
    Ok(DeviceBuffer::new(black_box(1 << 20), Stream::DEFAULT, Arc::clone(resource))?)
}

#[inline(never)]
fn build_index(resource: &Arc<dyn Resource>) -> Result<DeviceBuffer, Failure> {
    grow_index(resource)
}

#[inline(never)]
fn sort_rows(resource: &Arc<dyn Resource>) -> Result<(), Failure> {
    drop(DeviceBuffer::new(black_box(512 << 10), Stream::DEFAULT, Arc::clone(resource))?);
    Ok(())
}

fn main() -> Result<(), Failure> {
    let path = std::env::args_os().nth(1).ok_or("name a trace to record into")?;
    let recorder = Recorder::start_global(RecordProps::new(&path))?;
    let sealer = SealerThread::spawn(path.as_ref(), Run::default())?;
    let resource: Arc<dyn Resource> = Arc::new(Logging::new(Host::new()).with_stacks(recorded_stack));
    // Both are still live when the recording ends.
    let kept = [load_rows(&resource)?, build_index(&resource)?];
    let sorter = std::thread::Builder::new().name("sorter".into()).spawn(move || sort_rows(&resource))?;
    sorter.join().map_err(|_| "the sorter panicked")??;
    recorder.stop();
    sealer.stop()?;
    drop(kept);
    Ok(())
}
