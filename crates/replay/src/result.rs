//! Results of a replay: plain values for views and programs.

use serde::Serialize;

use crate::backing::aligned;
use crate::lineup::{Choice, LineupProps};
use crate::script::{Excerpt, Script};

/// A figure that was measured again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: u64,
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl Spread {
    /// Of all measurements.
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |index: usize| values.get(index).copied().unwrap_or(0);
        Self { median: at(values.len() / 2), least: at(0), most: at(values.len().saturating_sub(1)) }
    }
}

/// A log that was played.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// What there was to play.
    pub log: Log,
    /// How it was played.
    pub schedule: Schedule,
    /// The memory below the resources.
    pub memory: BackingInfo,
    /// Results, one entry for each resource.
    pub resources: Vec<Played>,
    /// Resources that were not played, and why.
    pub left_out: Vec<LeftOut>,
    /// Memory of the same log that was not played, with the options that choose it.
    pub not_played: Vec<NotPlayed>,
    /// The least memory that is enough; empty unless searched for.
    pub what_if: Vec<Enough>,
}

impl Replay {
    /// Whether every allocation that succeeded when the log was written succeeded again.
    pub fn succeeded(&self) -> bool {
        self.resources.iter().all(|played| played.failures == 0)
    }
}

/// What there was to play.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Log {
    /// Process.
    pub process: u32,
    /// Device, or -1 for none.
    pub device: i32,
    /// Sort of memory.
    pub kind: String,
    /// Events played.
    pub events: u64,
    /// Allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Allocations that failed when the log was written.
    pub failures: u64,
    /// Blocks that were live before the first event.
    pub carried_blocks: u64,
    /// Threads.
    pub threads: u64,
    /// Streams.
    pub streams: u64,
    /// Time from the first to the last event.
    pub duration_ns: u64,
    /// Highest live bytes, as asked for.
    pub peak_live_bytes: u64,
    /// Blocks live then.
    pub peak_live_blocks: u64,
    /// Largest block.
    pub largest_bytes: u64,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Live blocks at the end.
    pub live_blocks: u64,
}

impl From<&Script> for Log {
    fn from(script: &Script) -> Self {
        let Excerpt { process, device, kind } = script.excerpt();
        let summary = script.summary();
        Self {
            process: process.0,
            device,
            kind: kind.name().to_owned(),
            events: summary.events,
            allocations: summary.allocations,
            frees: summary.frees,
            failures: summary.failures,
            carried_blocks: summary.carried_blocks,
            threads: script.threads().len() as u64,
            streams: script.streams().len() as u64,
            duration_ns: summary.duration_ns,
            peak_live_bytes: summary.peak_live_bytes,
            peak_live_blocks: summary.peak_live_blocks,
            largest_bytes: summary.largest_bytes,
            live_bytes: summary.live_bytes,
            live_blocks: summary.live_blocks,
        }
    }
}

/// In which order steps are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// One after the other, as in the log.
    #[default]
    Log,
    /// Those of one thread as in the log, threads beside each other.
    Concurrent,
}

/// How a log was played.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// In which order.
    pub order: Order,
    /// How many times as fast as it happened; none for as fast as it goes.
    pub speed: Option<f64>,
    /// How often it was played to take the time.
    pub repeats: u64,
    /// What reading the clock took, ns; it is taken off every duration.
    pub clock_ns: u64,
}

/// The memory below the resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackingInfo {
    /// Whether it is simulated.
    pub kind: BackingKind,
    /// What it is called.
    pub name: String,
    /// How much there is.
    pub bytes: u64,
    /// Who chose it.
    pub chosen: Chosen,
    /// Why there is no device, where one was looked for.
    pub no_device: Option<String>,
}

/// Kind of memory below the resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BackingKind {
    /// Addresses without memory.
    Simulated,
    /// A device of this machine.
    Device,
}

/// How something was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Chosen {
    /// The caller.
    Asked,
    /// The default, because nothing was given.
    ByDefault,
}

/// Results of playing a log against one resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Played {
    /// Name of the resource.
    pub resource: String,
    /// How it was set up, where there is something to set.
    pub setup: Option<String>,
    /// What allocations took.
    pub allocate: Took,
    /// What frees took.
    pub free: Took,
    /// Time in all calls together.
    pub calls_ns: Spread,
    /// Time from the first to the last step.
    pub elapsed_ns: Spread,
    /// Highest live bytes, as asked for and served.
    pub peak_live_bytes: u64,
    /// The most it held of the memory below.
    pub peak_reserved_bytes: u64,
    /// What part of what it held was not live at the peak of live bytes, rounding included.
    pub unused_at_peak: Option<f64>,
    /// When its free memory was cut up worst, where it knows.
    pub worst_fragmentation: Option<Fragmentation>,
    /// Allocations that succeeded when the log was written and now failed.
    pub failures: u64,
    /// The first of them.
    pub first_failures: Vec<Failure>,
    /// Allocations that failed when the log was written and would now be served.
    pub would_fit: u64,
    /// Allocations that failed both times.
    pub failed_again: u64,
    /// How often a stream was made to wait for another, where that is known.
    pub waits: Option<u64>,
}

/// What calls took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Took {
    /// How many there were in one play.
    pub count: u64,
    /// Half of them took no longer.
    pub median_ns: Spread,
    /// All but one in a hundred took no longer.
    pub p99_ns: Spread,
    /// The longest of all.
    pub max_ns: u64,
}

/// A moment at which free memory was cut up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fragmentation {
    /// What part of the free bytes no single block could use.
    pub share: f64,
    /// After which event, counted from 1.
    pub event: u64,
}

/// An allocation that should have succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Which event of the log, counted from 1.
    pub event: u64,
    /// Where that is in the file, as in `line 12`.
    pub place: Option<String>,
    /// Bytes asked for.
    pub request_bytes: u64,
    /// Live bytes at that moment, as asked for.
    pub live_bytes: u64,
    /// What the resource held.
    pub reserved_bytes: u64,
    /// The largest block it could have handed out, where it knows.
    pub largest_free_bytes: Option<u64>,
    /// Why, in one word.
    pub cause: String,
    /// Why, in the resource's words.
    pub message: String,
}

/// A resource that was not played.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub resource: String,
    /// Why.
    pub reason: String,
}

/// Memory of the same log that was not played.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotPlayed {
    /// Whose it is.
    pub excerpt: String,
    /// The options that choose it.
    pub options: String,
}

impl From<Excerpt> for NotPlayed {
    fn from(excerpt: Excerpt) -> Self {
        Self { excerpt: excerpt.to_string(), options: excerpt.options() }
    }
}

/// The least memory in which a log fits a resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Enough {
    /// Name of the resource.
    pub resource: String,
    /// The least memory that was found to be enough; none if no amount is.
    pub enough_bytes: Option<u64>,
    /// The most that was found to be too little; none if the least possible is enough.
    pub too_little_bytes: Option<u64>,
    /// How much more than the peak of live bytes it takes, as a part of that.
    pub overhead: Option<f64>,
    /// How finely was searched.
    pub step_bytes: u64,
    /// How often the log was played for it.
    pub plays: u64,
    /// Why it never fits, where it does not.
    pub reason: Option<String>,
    /// Command that plays the log with `enough_bytes`; for front ends that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Enough {
    /// Returns the options of `floodmark replay` that play the log with `enough_bytes`, as the search did; none if
    /// nothing is enough.
    pub fn replay_options(&self, props: &LineupProps) -> Option<String> {
        let bytes = self.enough_bytes?;
        let name = &self.resource;
        let all = format!("{}B", aligned(bytes));
        let own = match Choice::from_name(name)? {
            Choice::Pool | Choice::Binning => format!(" --pool-initial {all} --pool-maximum {all}"),
            Choice::Arena => format!(" --arena-size {all}"),
            Choice::Fixed => {
                format!(" --fixed-block {}B --fixed-blocks {}", props.fixed_block_bytes, props.fixed_blocks)
            }
            _ => String::new(),
        };
        Some(format!("--resource {name} --simulate {bytes}B{own}"))
    }
}
