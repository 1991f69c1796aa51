//! Small allocations on several streams, as RMM's `MULTI_STREAM_ALLOCATIONS_BENCH` makes them.
//!
//! For every kernel, eight bytes are allocated on the next stream, something that uses them is enqueued
//! there, and they are freed; a round ends when all of it has run. A pool that is warm has handed out a
//! block on every stream before. On a device kernels on different streams should run side by side: four
//! on four streams take as long as one. On a simulated device what is enqueued is a moment that nothing
//! runs at, so what is measured is allocating, freeing and keeping streams in order.
#![expect(unsafe_code, reason = "gives back blocks that it allocated")]

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use floodmark_replay::{Choice, Lineup, Stage};
use floodmark_resource::{ALIGNMENT, CudaKernel, SimulatedOrder, Stream};

use crate::gpu_check::SPIN;
use crate::measure::Samples;
use crate::random::Against;

/// Bytes of a block.
const BYTES: u64 = 8;
/// What is measured unless asked otherwise.
const STREAMS: [usize; 3] = [1, 2, 4];
const KERNELS: usize = 4;
/// A simulated round is a few hundred nanoseconds: one reading of the clock is for many.
const ROUNDS: usize = 1_000;
const ROUNDS_ON_DEVICE: usize = 20;
/// How long a kernel runs: about a million clocks of a device.
const SPIN_NS: u64 = 600_000;
/// Handles of streams in a log, of which a stage makes its own.
const FIRST_HANDLE: u64 = 0x1000;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Props {
    #[command(flatten)]
    against: Against,
    /// Kernels in a round; 4 if not given
    #[arg(short, long)]
    kernels: Option<usize>,
    /// Streams; 1, 2 and 4 if not given
    #[arg(short, long)]
    streams: Option<usize>,
    /// Only with blocks handed out on every stream before; with and without if not given
    #[arg(short, long)]
    warm: bool,
}

/// Whether a block was handed out on every stream before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Warm {
    No,
    Yes,
}

pub(crate) fn run(props: &Props, repeat: usize) -> Result<()> {
    let (lineup, choices) = props.against.open()?;
    let kernels = props.kernels.unwrap_or(KERNELS);
    println!("µs for {kernels} kernels: median (least–most) of {repeat}\n");
    println!("| streams | warm | resource | first round | later rounds |");
    println!("|---|---|---|---|---|");
    for streams in props.streams.map_or(STREAMS.to_vec(), |count| vec![count.max(1)]) {
        let warms = if props.warm { &[Warm::Yes][..] } else { &[Warm::No, Warm::Yes] };
        for warm in warms {
            for choice in &choices {
                measure(&lineup, *choice, &Case { streams, kernels, warm: *warm }, repeat)?;
            }
        }
    }
    Ok(())
}

/// What all resources do.
struct Case {
    streams: usize,
    kernels: usize,
    warm: Warm,
}

fn measure(lineup: &Lineup, choice: Choice, case: &Case, repeat: usize) -> Result<()> {
    let Case { streams, kernels, warm } = *case;
    let handles: Vec<u64> = (0..streams as u64).map(|number| FIRST_HANDLE + 16 * number).collect();
    let (mut first, mut later) = (Samples::default(), Samples::default());
    for _ in 0..repeat {
        let stage = lineup.stage(choice, &handles)?;
        let work = Work::on(&stage)?;
        if warm == Warm::Yes {
            for stream in stage.streams() {
                use_one(&stage, &work, *stream)?;
            }
        }
        let begin = Instant::now();
        round(&stage, &work, kernels)?;
        first.push(begin.elapsed().as_secs_f64() * 1e6);
        let begin = Instant::now();
        let rounds = if matches!(work, Work::Kernel(_)) { ROUNDS_ON_DEVICE } else { ROUNDS };
        for _ in 0..rounds {
            round(&stage, &work, kernels)?;
        }
        later.push(begin.elapsed().as_secs_f64() * 1e6 / rounds as f64);
    }
    let warm = if warm == Warm::Yes { "yes" } else { "no" };
    println!("| {streams} | {warm} | {} | {} | {} |", choice.name(), first.text(2), later.text(3));
    Ok(())
}

fn round(stage: &Stage, work: &Work, kernels: usize) -> Result<()> {
    for stream in stage.streams().iter().cycle().take(kernels) {
        use_one(stage, work, *stream)?;
    }
    stage.resource().order().synchronize_all()?;
    Ok(())
}

fn use_one(stage: &Stage, work: &Work, stream: Stream) -> Result<()> {
    let block = stage.resource().allocate(BYTES, ALIGNMENT, stream)?;
    work.enqueue(stream)?;
    // SAFETY: allocated above with these bytes; what uses it is enqueued on the same stream.
    unsafe { stage.resource().deallocate(block, BYTES, ALIGNMENT, stream) };
    Ok(())
}

/// What is enqueued on streams.
enum Work {
    /// A moment of a simulated stream.
    Moment(Arc<SimulatedOrder>),
    /// A kernel that keeps the device busy for a while.
    Kernel(CudaKernel),
    /// Nothing: the memory is the host's.
    Nothing,
}

impl Work {
    fn on(stage: &Stage) -> Result<Self> {
        if let Some(device) = stage.device() {
            device.make_current()?;
            return Ok(Self::Kernel(CudaKernel::load(device, SPIN, "spin")?));
        }
        Ok(stage.simulated_order().map_or(Self::Nothing, |order| Self::Moment(Arc::clone(order))))
    }

    fn enqueue(&self, stream: Stream) -> Result<()> {
        match self {
            Self::Moment(order) => {
                order.submit(stream);
            }
            // SAFETY: the kernel takes one number and touches no memory.
            Self::Kernel(kernel) => unsafe { kernel.launch(1, 1, stream, &[SPIN_NS]) }?,
            Self::Nothing => {}
        }
        Ok(())
    }
}
