//! `floodmark replay`

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use floodmark_analyze::Caveats;
use floodmark_event::text::shell_word;
use floodmark_event::units::{format_bytes, format_count, parse_bytes};
use floodmark_inspect::pass::each_batch;
use floodmark_inspect::{Answer, Input};
use floodmark_replay::script::Act;
use floodmark_replay::{
    Backing, Choice, Counts, LineupProps, Order, Pace, ReadProps, Reading, ReplayProps, RunProps, Script,
    WhatIf, choose, replay,
};
use floodmark_store::columns::EVENT_COLUMNS;
use floodmark_store::{Progress, ScanProps, Source};

use crate::args::{FilterArgs, JsonArgs, ReadingArgs};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::{Bar, Bars};

/// Replay a log against memory resources: speed, memory needed, failures
///
/// Repeats every allocation and free of the log in order, with its threads and streams, against each
/// resource in turn: on the GPU, or on simulated memory, which needs none. An allocation that succeeded in
/// the log and fails now is named with its line and ends in exit code 1.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// Trace or log to replay; '-' is standard input
    #[arg(value_name = "INPUT", required_unless_present = "file")]
    input: Option<PathBuf>,
    /// Trace or log to replay, as in RMM's replay benchmark
    #[arg(short, long, alias = "log_file", value_name = "FILE", conflicts_with = "input")]
    file: Option<PathBuf>,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    playing: PlayingArgs,
    #[command(flatten)]
    output: JsonArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

/// What to play against.
#[derive(Args, Debug)]
#[command(next_help_heading = "Resources")]
struct ResourceArgs {
    /// Resources to replay against (comma-separated) [default: all that this machine has]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = names())]
    resource: Vec<String>,
    /// Simulated memory of this size, as in 80GiB; a bare number is GiB, 0 is the GPU itself
    #[arg(short, long, alias = "size", value_name = "SIZE", value_parser = parse_simulated)]
    simulate: Option<u64>,
    /// GPU to replay on [default: 0, or simulated memory where there is none]
    #[arg(long, value_name = "N", conflicts_with = "simulate", value_parser = clap::value_parser!(i32).range(0..))]
    gpu: Option<i32>,
    /// Initial size of pools [default: half of the memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pool_initial: Option<u64>,
    /// Maximum size of pools
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pool_maximum: Option<u64>,
    /// Size of arenas [default: all of simulated memory, half of a GPU's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    arena_size: Option<u64>,
    /// Block size of the fixed-size resource
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1MiB")]
    fixed_block: u64,
    /// Blocks that the fixed-size resource reserves at a time
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..))]
    fixed_blocks: u64,
}

/// How to play.
#[derive(Args, Debug)]
#[command(next_help_heading = "Playing")]
struct PlayingArgs {
    /// Replay concurrently with the log's threads instead of in the order of the log
    #[arg(long)]
    concurrent: bool,
    /// Keep the pace of the log instead of replaying as fast as possible
    #[arg(long)]
    paced: bool,
    /// Keep the pace of the log, multiplied by this
    #[arg(long, value_name = "FACTOR", value_parser = parse_speed)]
    speed: Option<f64>,
    /// Repetitions per timing; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: u64,
    /// Search for the least memory with which each suballocator serves the log
    #[arg(long)]
    what_if: bool,
}

const EXAMPLES: &str = "\
Examples:
  floodmark replay memory_log.dev0.csv
  floodmark replay memory_log.dev0.csv -r pool,arena --simulate 80GiB
  floodmark replay memory_log.dev0.csv -r pool --pool-initial 0 --pool-maximum 20GiB -s 40
  floodmark replay memory_log.dev0.csv --concurrent --repeat 10 --json
  floodmark replay run.flood --device 0 --what-if

Exit codes: 0 everything fits, 1 an allocation that succeeded in the log fails, 2 it could not be played";

/// Events that are printed with --verbose.
const EVENTS_SHOWN: usize = 1000;

impl ReplayArgs {
    fn read_props(&self) -> ReadProps {
        let pace = if self.speed().is_some() { Pace::Keep } else { Pace::Forget };
        ReadProps { filter: self.filter.props(), pace }
    }

    fn speed(&self) -> Option<f64> {
        self.playing.speed.or(self.playing.paced.then_some(1.0))
    }

    fn replay_props(&self) -> ReplayProps {
        let ResourceArgs { resource, simulate, .. } = &self.resources;
        let gpu = self.resources.gpu.map(|ordinal| Backing::Device { ordinal });
        let usual = ReplayProps::default();
        let settings = LineupProps {
            pool_initial_bytes: self.resources.pool_initial,
            pool_maximum_bytes: self.resources.pool_maximum,
            arena_bytes: self.resources.arena_size,
            fixed_block_bytes: self.resources.fixed_block,
            fixed_blocks: self.resources.fixed_blocks,
            ..usual.settings
        };
        ReplayProps {
            resources: resource.iter().filter_map(|name| Choice::from_name(name)).collect(),
            backing: simulate.filter(|bytes| *bytes > 0).map(|bytes| Backing::Simulated { bytes }).or(gpu),
            settings,
            run: RunProps {
                order: if self.playing.concurrent { Order::Concurrent } else { Order::Log },
                speed: self.speed(),
                repeats: self.playing.repeat,
            },
            what_if: if self.playing.what_if { WhatIf::Search } else { WhatIf::Skip },
        }
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let path = self.input.as_ref().or(self.file.as_ref()).context("an input is required")?;
        let name = path.display().to_string();
        // Who allocated does not matter here.
        let columns = EVENT_COLUMNS.into_iter().filter(|column| !["stack", "scope", "name"].contains(column));
        let scan = ScanProps { columns: Some(columns.collect()), ..ScanProps::default() };
        let input = Input::open(path, &self.reading.props())?;
        let mut source = input.events(&scan)?;
        let mut reading =
            Reading::new(&ReadProps { filter: input.anchored(&self.filter.props())?, ..self.read_props() });
        each_batch(source.as_mut(), &name, &Bars::new(printer), |batch, _| {
            reading.update(batch).map_err(explained)
        })?;
        let counts = reading.counts();
        let (script, others) = choose(reading.finish().map_err(explained)?).map_err(explained)?;
        show(&script, source.as_ref(), printer);
        let mut bar = Bar::new(&name, printer);
        let mut searching = false;
        let places = |event| source.place(event);
        let mut report = |progress: floodmark_replay::Progress| {
            // How long a search takes is not known: it gets a bar of its own.
            if progress.total.is_none() && !searching {
                searching = true;
                bar = Bar::new(&name, printer);
            }
            bar.update(Progress { done: progress.done, total: progress.total });
        };
        let props = self.replay_props();
        let mut played = replay(&script, others, &props, &places, &mut report).map_err(explained)?;
        drop(bar);
        let input = [vec![name.clone()], self.filter.props().words(), self.reading.words()].concat();
        let input: Vec<String> = input.iter().map(|word| shell_word(word).into_owned()).collect();
        for enough in &mut played.what_if {
            let options = enough.replay_options(&props.settings);
            enough.command = options.map(|options| format!("floodmark replay {} {options}", input.join(" ")));
        }
        let status = if played.succeeded() { ExitStatus::Success } else { ExitStatus::Broken };
        let caveats = caveats(&script, counts);
        let report = Answer { caveats, ..Answer::new(name, &source.losses(), played) };
        printer.reports(&[report], self.output)?;
        Ok(status)
    }
}

/// Prints what will be played, for those who asked for more.
fn show(script: &Script, source: &dyn Source, printer: &Printer) {
    for at in script.played().take(EVENTS_SHOWN) {
        let step = script.steps()[at];
        let actor = script.actors()[step.actor()];
        let event = script.event_of(at);
        let place = source.place(event).map_or_else(String::new, |place| format!(" ({place})"));
        let verb = match step.act() {
            Act::Allocate => "allocates",
            Act::Free => "frees",
            Act::Fail => "fails to allocate",
        };
        printer.detail(&format!(
            "event {}{place}: thread {} {verb} {} on stream {:#x}",
            format_count(event + 1),
            script.threads()[actor.thread as usize],
            format_bytes(step.bytes),
            script.streams()[actor.stream as usize],
        ));
    }
    let further = script.played().len().saturating_sub(EVENTS_SHOWN) as u64;
    if further > 0 {
        printer.detail(&format!("… and {} more; 'floodmark read' prints all", format_count(further)));
    }
}

fn caveats(script: &Script, counts: Counts) -> Caveats {
    let summary = script.summary();
    Caveats {
        events_read: counts.events_read,
        events_selected: summary.events,
        unmatched_frees: counts.unmatched_frees,
        unmatched_free_bytes: counts.unmatched_free_bytes,
        size_mismatches: summary.size_mismatches,
        replaced_blocks: summary.replaced_blocks,
        sums_saturated: false,
    }
}

/// An error with its remedy.
fn explained(error: floodmark_replay::Error) -> anyhow::Error {
    match error.hint() {
        Some(hint) => hinted(error.to_string(), hint),
        None => error.into(),
    }
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(Choice::ALL.map(Choice::name))
}

/// Parses a size; a bare number is GiB, as in RMM's replay.
fn parse_simulated(text: &str) -> Result<u64, String> {
    let is_bare = text.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    let text = if is_bare { format!("{text}GiB") } else { text.to_owned() };
    parse_bytes(&text)
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| "write a factor such as 2 or 0.5".to_owned())
}
