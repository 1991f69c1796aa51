//! How long single allocations and frees take, the slow ones among them, when blocks change streams.
//!
//! Each step is on a stream at random and allocates a block or frees any that is live, so that most blocks are
//! freed on another stream than the one they were allocated on. Every step is timed by itself, with two
//! readings of the clock.
#![expect(unsafe_code, reason = "gives back blocks that it allocated")]

use anyhow::Result;
use floodmark_replay::{Choice, Lineup, Stage};
use floodmark_resource::{ALIGNMENT, Address};
use floodmark_tail::clock::monotonic_ns;
use floodmark_testkit::Random;

use crate::measure::Samples;
use crate::random::Against;

/// What is measured unless asked otherwise.
const STREAMS: [usize; 2] = [1, 16];
/// How likely a step allocates while there is room for another block.
const ALLOCATES: f64 = 0.52;
/// Handles of streams in a log, of which a stage makes its own.
const FIRST_HANDLE: u64 = 0x1000;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Props {
    #[command(flatten)]
    against: Against,
    /// Allocations and frees
    #[arg(long, default_value_t = 1_000_000)]
    steps: usize,
    /// Largest allocation in bytes
    #[arg(long, default_value_t = 1_000_000)]
    largest: u64,
    /// Blocks that are live at most
    #[arg(long, default_value_t = 10_000)]
    live: usize,
    /// Streams; 1 and 16 if not given
    #[arg(short, long)]
    streams: Option<usize>,
}

pub(crate) fn run(props: &Props, repeat: usize) -> Result<()> {
    let (lineup, choices) = props.against.open()?;
    println!("ns of single steps, of which reading the clock is a part: median (least–most) of {repeat}\n");
    println!("| streams | resource | step | 50 % | 99 % | 99.9 % |");
    println!("|---|---|---|---|---|---|");
    for streams in props.streams.map_or(STREAMS.to_vec(), |count| vec![count.max(1)]) {
        for choice in &choices {
            measure(&lineup, *choice, streams, props, repeat)?;
        }
    }
    Ok(())
}

fn measure(lineup: &Lineup, choice: Choice, streams: usize, props: &Props, repeat: usize) -> Result<()> {
    let handles: Vec<u64> = (0..streams as u64).map(|number| FIRST_HANDLE + 16 * number).collect();
    // By step, then by share.
    let mut figures: [[Samples; 3]; 2] = Default::default();
    for _ in 0..repeat {
        let stage = lineup.stage(choice, &handles)?;
        for (figures, mut took_ns) in figures.iter_mut().zip(play(&stage, props)?) {
            took_ns.sort_unstable();
            for (figure, share) in figures.iter_mut().zip([0.5, 0.99, 0.999]) {
                let at = (took_ns.len().saturating_sub(1) as f64 * share) as usize;
                figure.push(took_ns.get(at).copied().unwrap_or(0) as f64);
            }
        }
    }
    for (step, [half, most, nearly_all]) in ["alloc", "free"].iter().zip(figures) {
        let (half, most, nearly_all) = (half.text(0), most.text(0), nearly_all.text(0));
        println!("| {streams} | {} | {step} | {half} | {most} | {nearly_all} |", choice.name());
    }
    Ok(())
}

/// Plays the steps; returns how long each allocation and each free took.
fn play(stage: &Stage, props: &Props) -> Result<[Vec<u64>; 2]> {
    let (resource, mut random) = (stage.resource(), Random::new(7));
    let mut live: Vec<(Address, u64)> = Vec::with_capacity(props.live);
    let (mut alloc_ns, mut free_ns) = (Vec::new(), Vec::new());
    for _ in 0..props.steps {
        let stream = stage.streams()[random.below(stage.streams().len() as u64) as usize];
        if live.is_empty() || (live.len() < props.live && random.happens(ALLOCATES)) {
            let bytes = 1 + random.below(props.largest.max(1));
            let begin_ns = monotonic_ns();
            let block = resource.allocate(bytes, ALIGNMENT, stream)?;
            alloc_ns.push(monotonic_ns() - begin_ns);
            live.push((block, bytes));
        } else {
            let (block, bytes) = live.swap_remove(random.below(live.len() as u64) as usize);
            let begin_ns = monotonic_ns();
            // SAFETY: handed out by this resource with these bytes, and not given back yet; nothing uses it.
            unsafe { resource.deallocate(block, bytes, ALIGNMENT, stream) };
            free_ns.push(monotonic_ns() - begin_ns);
        }
    }
    for (block, bytes) in live {
        // SAFETY: as above.
        unsafe { resource.deallocate(block, bytes, ALIGNMENT, stage.streams()[0]) };
    }
    Ok([alloc_ns, free_ns])
}
