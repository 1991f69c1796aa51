//! Small allocations on several streams, as RMM's `MULTI_STREAM_ALLOCATIONS_BENCH` makes them.
//!
//! For every kernel, eight bytes are allocated on the next stream, something that uses them is enqueued
//! there, and they are freed. A pool that is warm has handed out a block on every stream before. On a
//! simulated device what is enqueued is a moment that nothing runs at, so what is measured is allocating,
//! freeing and keeping streams in order.
#![expect(unsafe_code, reason = "gives back blocks that it allocated")]

use std::time::Instant;

use anyhow::Result;
use floodmark_replay::{Choice, Lineup, Stage};
use floodmark_resource::{ALIGNMENT, Stream};

use crate::measure::Samples;

/// Bytes of a block.
const BYTES: u64 = 8;
/// What is measured unless asked otherwise.
const STREAMS: [usize; 3] = [1, 2, 4];
const KERNELS: usize = 4;
/// A round is a few hundred nanoseconds: one reading of the clock is for many.
const ROUNDS: usize = 1_000;
/// Handles of streams in a log, of which a stage makes its own.
const FIRST_HANDLE: u64 = 0x1000;

/// What to measure.
pub(crate) struct MultiStreamProps {
    pub(crate) choices: Vec<Choice>,
    pub(crate) kernels: Option<usize>,
    pub(crate) streams: Option<usize>,
    pub(crate) warm: Option<Warm>,
    pub(crate) repeat: usize,
}

/// Whether a block was handed out on every stream before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Warm {
    No,
    Yes,
}

pub(crate) fn run(lineup: &Lineup, props: &MultiStreamProps) -> Result<()> {
    let kernels = props.kernels.unwrap_or(KERNELS);
    println!("µs for {kernels} kernels: median (least–most) of {}\n", props.repeat);
    println!("| streams | warm | resource | first round | later rounds |");
    println!("|---|---|---|---|---|");
    for streams in props.streams.map_or(STREAMS.to_vec(), |count| vec![count.max(1)]) {
        for warm in props.warm.map_or(vec![Warm::No, Warm::Yes], |warm| vec![warm]) {
            for choice in &props.choices {
                measure(lineup, *choice, streams, kernels, warm, props.repeat)?;
            }
        }
    }
    Ok(())
}

fn measure(
    lineup: &Lineup,
    choice: Choice,
    streams: usize,
    kernels: usize,
    warm: Warm,
    repeat: usize,
) -> Result<()> {
    let handles: Vec<u64> = (0..streams as u64).map(|number| FIRST_HANDLE + 16 * number).collect();
    let (mut first, mut later) = (Samples::default(), Samples::default());
    for _ in 0..repeat {
        let stage = lineup.stage(choice, &handles)?;
        if warm == Warm::Yes {
            for stream in stage.streams() {
                use_one(&stage, *stream)?;
            }
        }
        let begin = Instant::now();
        round(&stage, kernels)?;
        first.push(begin.elapsed().as_secs_f64() * 1e6);
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            round(&stage, kernels)?;
        }
        later.push(begin.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64);
    }
    let warm = if warm == Warm::Yes { "yes" } else { "no" };
    println!("| {streams} | {warm} | {} | {} | {} |", choice.name(), first.text(2), later.text(3));
    Ok(())
}

fn round(stage: &Stage, kernels: usize) -> Result<()> {
    for stream in stage.streams().iter().cycle().take(kernels) {
        use_one(stage, *stream)?;
    }
    stage.resource().order().synchronize_all()?;
    Ok(())
}

fn use_one(stage: &Stage, stream: Stream) -> Result<()> {
    let block = stage.resource().allocate(BYTES, ALIGNMENT, stream)?;
    if let Some(order) = stage.simulated_order() {
        order.submit(stream);
    }
    // SAFETY: allocated above with these bytes; what uses it is enqueued on the same stream.
    unsafe { stage.resource().deallocate(block, BYTES, ALIGNMENT, stream) };
    Ok(())
}
