//! Allocating and freeing at random, as RMM's `RANDOM_ALLOCATIONS_BENCH` does, against every resource.
//!
//! Sizes are uniform from 1 byte to a maximum. Of twice as many steps as there are allocations each
//! allocates with a probability of 73 %, while that does not make more allocations than asked for nor
//! more than 16,000 MiB live, and else frees a block at random; an allocation that fails frees one instead.
//! What is drawn depends on the seed alone and is drawn beforehand, so all resources get the same.
#![expect(unsafe_code, reason = "gives back blocks that it allocated")]

use std::time::Instant;

use anyhow::{Result, bail};
use floodmark_replay::{Choice, Lineup, Stage};
use floodmark_resource::{ALIGNMENT, Address, Stream};
use floodmark_testkit::Random;

use crate::measure::Samples;

const MIB: u64 = 1 << 20;
/// Bytes that are live at most.
const LIVE_BYTES_MAX: u64 = 16_000 * MIB;
/// How likely a step allocates.
const ALLOCATES: f64 = 0.73;
/// What is measured unless asked otherwise.
const ALLOCATIONS: [usize; 3] = [1_000, 10_000, 100_000];
const SIZES_MIB: [u64; 6] = [1, 4, 64, 256, 1024, 4096];

/// What to measure.
pub(crate) struct RandomProps {
    pub(crate) choices: Vec<Choice>,
    pub(crate) allocations: Option<usize>,
    pub(crate) largest_mib: Option<u64>,
    pub(crate) repeat: usize,
}

/// One step, drawn beforehand.
#[derive(Clone, Copy)]
struct Draw {
    allocates: bool,
    bytes: u64,
    /// Which block to free, as a part of all.
    which: u64,
}

pub(crate) fn run(lineup: &Lineup, props: &RandomProps) -> Result<()> {
    println!("ms for all steps, and ns per step: median (least–most) of {}\n", props.repeat);
    println!("| allocations | up to, MiB | resource | ms | ns per step | failed |");
    println!("|---|---|---|---|---|---|");
    let allocations = props.allocations.map_or(ALLOCATIONS.to_vec(), |count| vec![count]);
    let sizes = props.largest_mib.map_or(SIZES_MIB.to_vec(), |size| vec![size]);
    for count in allocations {
        for largest in &sizes {
            let draws = draw(count, largest * MIB);
            for choice in &props.choices {
                measure(lineup, *choice, count, *largest, &draws, props.repeat)?;
            }
        }
    }
    Ok(())
}

fn measure(
    lineup: &Lineup,
    choice: Choice,
    count: usize,
    largest_mib: u64,
    draws: &[Draw],
    repeat: usize,
) -> Result<()> {
    let (mut ms, mut ns) = (Samples::default(), Samples::default());
    let mut failed = 0;
    for _ in 0..repeat {
        let stage = lineup.stage(choice, &[0])?;
        let begin = Instant::now();
        let live;
        (live, failed) = play(&stage, count, draws);
        let took = begin.elapsed().as_secs_f64();
        for (block, bytes) in live {
            // SAFETY: handed out by this resource with these bytes, and not given back yet.
            unsafe { stage.resource().deallocate(block, bytes, ALIGNMENT, Stream::DEFAULT) };
        }
        ms.push(took * 1e3);
        ns.push(took * 1e9 / draws.len() as f64);
    }
    let (name, ms, ns) = (choice.name(), ms.text(2), ns.text(0));
    println!("| {count} | {largest_mib} | {name} | {ms} | {ns} | {failed} |");
    Ok(())
}

fn draw(count: usize, largest_bytes: u64) -> Vec<Draw> {
    let mut random = Random::new(1);
    let one = |_| Draw {
        allocates: random.happens(ALLOCATES),
        bytes: 1 + random.below(largest_bytes),
        which: random.next_u64(),
    };
    (0..2 * count).map(one).collect()
}

/// Plays the steps; returns what is live and how many allocations failed.
fn play(stage: &Stage, count: usize, draws: &[Draw]) -> (Vec<(Address, u64)>, u64) {
    let resource = stage.resource();
    let mut live: Vec<(Address, u64)> = Vec::with_capacity(count);
    let (mut allocated, mut live_bytes, mut failed) = (0, 0, 0);
    for Draw { allocates, bytes, which } in draws {
        let wanted = *allocates || live.is_empty();
        if wanted && allocated < count && live_bytes + bytes <= LIVE_BYTES_MAX {
            if let Ok(block) = resource.allocate(*bytes, ALIGNMENT, Stream::DEFAULT) {
                allocated += 1;
                live_bytes += bytes;
                live.push((block, *bytes));
                continue;
            }
            failed += 1;
        }
        if live.is_empty() {
            continue;
        }
        let at = ((u128::from(*which) * live.len() as u128) >> 64) as usize;
        let (block, bytes) = live.swap_remove(at);
        live_bytes -= bytes;
        // SAFETY: handed out by this resource with these bytes, and forgotten now.
        unsafe { resource.deallocate(block, bytes, ALIGNMENT, Stream::DEFAULT) };
    }
    (live, failed)
}

/// The resources with these names; all that can serve requests of any size if there are none.
pub(crate) fn choices(lineup: &Lineup, names: &[String]) -> Result<Vec<Choice>> {
    if names.is_empty() {
        return Ok(lineup.available().into_iter().filter(|choice| *choice != Choice::Fixed).collect());
    }
    names
        .iter()
        .map(|name| match Choice::from_name(name) {
            Some(choice) => Ok(choice),
            None => bail!(
                "there is no resource {name}; take some of {}",
                Choice::ALL.map(Choice::name).join(", ")
            ),
        })
        .collect()
}
