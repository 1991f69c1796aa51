//! Allocating and freeing at random, as RMM's `RANDOM_ALLOCATIONS_BENCH` does, against every resource.
//!
//! Sizes are uniform from 1 byte to a maximum. Of twice as many steps as there are allocations each
//! allocates with a probability of 73 %, while that does not make more allocations than asked for nor
//! more than 16,000 MiB live, and else frees a block at random; an allocation that fails frees one instead.
//! What is drawn depends on the seed alone and is drawn beforehand, so all resources get the same.
#![expect(unsafe_code, reason = "gives back blocks that it allocated")]

use std::time::Instant;

use anyhow::{Result, bail};
use floodmark_replay::{Backing, Choice, Lineup, LineupProps, Stage};
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
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Props {
    #[command(flatten)]
    against: Against,
    /// Allocations; 1,000, 10,000 and 100,000 if not given
    #[arg(short, long)]
    numallocs: Option<usize>,
    /// Largest allocation in MiB; 1, 4, 64, 256, 1024 and 4096 if not given
    #[arg(short, long)]
    maxsize: Option<u64>,
}

/// What to measure against.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Against {
    /// Resources, separated by commas; all but `fixed` if not given
    #[arg(short, long, value_delimiter = ',')]
    resource: Vec<String>,
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// Simulated memory in GiB, even if there is a GPU; 40 where there is none
    #[arg(long)]
    simulate: Option<u64>,
}

impl Against {
    /// The resources to measure, and who makes them.
    pub(crate) fn open(&self) -> Result<(Lineup, Vec<Choice>)> {
        let on = |backing| Lineup::open(LineupProps::on(backing));
        let simulated = |gib: u64| on(Backing::Simulated { bytes: gib << 30 });
        let lineup = match self.simulate {
            Some(gib) => simulated(gib)?,
            None => on(Backing::Device { ordinal: self.device }).or_else(|_| simulated(40))?,
        };
        let (name, bytes) = lineup.backing();
        println!("Memory: {name}, {:.1} GiB", bytes as f64 / (1u64 << 30) as f64);
        let choices = self.choices(&lineup)?;
        Ok((lineup, choices))
    }

    fn choices(&self, lineup: &Lineup) -> Result<Vec<Choice>> {
        if self.resource.is_empty() {
            return Ok(lineup.available().into_iter().filter(|choice| *choice != Choice::Fixed).collect());
        }
        let known = || Choice::ALL.map(Choice::name).join(", ");
        let named = |name: &String| match Choice::from_name(name) {
            Some(choice) => Ok(choice),
            None => bail!("there is no resource {name}; take some of {}", known()),
        };
        self.resource.iter().map(named).collect()
    }
}

/// One step, drawn beforehand.
#[derive(Clone, Copy)]
struct Draw {
    allocates: bool,
    bytes: u64,
    /// Which block to free, as a part of all.
    which: u64,
}

pub(crate) fn run(props: &Props, repeat: usize) -> Result<()> {
    let (lineup, choices) = props.against.open()?;
    println!("ms for all steps, and ns per step: median (least–most) of {repeat}\n");
    println!("| allocations | up to, MiB | resource | ms | ns per step | failed |");
    println!("|---|---|---|---|---|---|");
    let allocations = props.numallocs.map_or(ALLOCATIONS.to_vec(), |count| vec![count]);
    let sizes = props.maxsize.map_or(SIZES_MIB.to_vec(), |size| vec![size.max(1)]);
    for count in allocations {
        for largest in &sizes {
            let case = Case { count, largest_mib: *largest, draws: draw(count, largest * MIB) };
            for choice in &choices {
                measure(&lineup, *choice, &case, repeat)?;
            }
        }
    }
    Ok(())
}

/// What all resources do.
struct Case {
    count: usize,
    largest_mib: u64,
    draws: Vec<Draw>,
}

fn measure(lineup: &Lineup, choice: Choice, case: &Case, repeat: usize) -> Result<()> {
    let Case { count, largest_mib, draws } = case;
    let (mut ms, mut ns) = (Samples::default(), Samples::default());
    let mut failed = 0;
    for _ in 0..repeat {
        let stage = lineup.stage(choice, &[0])?;
        let begin = Instant::now();
        let live;
        (live, failed) = play(&stage, *count, draws);
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
