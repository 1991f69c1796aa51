//! A whole replay: the resources, their backing memory, and the result of each.

use crate::backing::Backing;
use crate::error::{Error, Result};
use crate::lineup::{Choice, Lineup, LineupProps};
use crate::result;
use crate::result::{BackingKind, Chosen, LeftOut, Log, Order, Replay};
use crate::run::{Places, Run, RunProps};
use crate::script::{Excerpt, Script, Summary};
use crate::search::search;

/// Sizes that are made up are multiples of this.
const GIB: u64 = 1 << 30;
/// No simulated device is larger.
const MOST_BYTES: u64 = 1 << 60;

/// What to replay, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayProps {
    /// Resources to play against; none for all that this machine has.
    pub resources: Vec<Choice>,
    /// What lies below the resources; none for device 0, or a simulated one where there is none.
    pub backing: Option<Backing>,
    /// How resources are made; the backing is filled in.
    pub settings: LineupProps,
    /// How to play.
    pub run: RunProps,
    /// Whether to search for the least memory.
    pub what_if: WhatIf,
}

/// Whether to search for the least memory that is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhatIf {
    /// Do not search.
    Skip,
    /// Search, for every suballocator.
    Search,
}

impl Default for ReplayProps {
    fn default() -> Self {
        Self {
            resources: Vec::new(),
            backing: None,
            settings: LineupProps::on(Backing::Simulated { bytes: GIB }),
            run: RunProps { order: Order::Log, speed: None, repeats: 3 },
            what_if: WhatIf::Skip,
        }
    }
}

/// How far a replay has come, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Steps in all; not known while searching.
    pub total: Option<u64>,
}

/// Plays `script` against all resources asked for.
///
/// # Errors
/// [`Error::Unavailable`] and [`Error::Stage`] for a resource that was asked for and cannot be had;
/// [`Error::Threads`] and [`Error::Start`] for threads.
pub fn replay(
    script: &Script,
    others: Vec<Excerpt>,
    props: &ReplayProps,
    places: Places<'_>,
    report: &mut dyn FnMut(Progress),
) -> Result<Replay> {
    let (lineup, memory) = backing(props, script.summary())?;
    let (choices, mut left_out) = choose(&lineup, props, script.summary())?;
    let run = Run::new(script, props.run);
    let total = Some(run.steps() * choices.len() as u64);
    let mut done = 0;
    let mut resources = Vec::new();
    for choice in choices {
        let mut told = |steps| {
            done += steps;
            report(Progress { done, total });
        };
        match run.play(&lineup, choice, places, &mut told) {
            Ok(played) => resources.push(played),
            Err(Error::Stage { why, .. }) if props.resources.is_empty() => {
                left_out.push(LeftOut { resource: choice.name().to_owned(), reason: why.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    let what_if = match props.what_if {
        WhatIf::Skip => Vec::new(),
        WhatIf::Search => search_all(script, props, report)?,
    };
    Ok(Replay {
        log: Log::from(script),
        schedule: run.schedule(),
        memory,
        resources,
        left_out,
        not_played: others.into_iter().map(result::NotPlayed::from).collect(),
        what_if,
    })
}

/// What lies below the resources: what was asked for, else a device, else twice the peak.
fn backing(props: &ReplayProps, summary: &Summary) -> Result<(Lineup, result::BackingInfo)> {
    let chosen = if props.backing.is_some() { Chosen::Asked } else { Chosen::ByDefault };
    let first = props.backing.unwrap_or(Backing::Device { ordinal: 0 });
    let mut no_device = None;
    let mut lineup = match Lineup::open(LineupProps { backing: first, ..props.settings }) {
        Err(Error::Device { why }) if props.backing.is_none() => {
            no_device = Some(why.to_string());
            let backing = Backing::Simulated { bytes: twice_the_peak(summary) };
            Lineup::open(LineupProps { backing, ..props.settings })?
        }
        lineup => lineup?,
    };
    lineup.fit_arena(summary);
    let (name, bytes) = lineup.backing();
    let kind = if lineup.is_simulated() { BackingKind::Simulated } else { BackingKind::Device };
    Ok((lineup, result::BackingInfo { kind, name, bytes, chosen, no_device }))
}

/// Twice the peak, in whole GiB.
fn twice_the_peak(summary: &Summary) -> u64 {
    let twice = summary.peak_live_bytes.saturating_mul(2).clamp(1, MOST_BYTES);
    twice.next_multiple_of(GIB)
}

/// The resources to play against, and those of this machine that are left out.
fn choose(lineup: &Lineup, props: &ReplayProps, summary: &Summary) -> Result<(Vec<Choice>, Vec<LeftOut>)> {
    let mut left_out = Vec::new();
    if props.resources.is_empty() {
        let mut choices = lineup.available();
        choices.retain(|choice| {
            let unfit = lineup.unfit(*choice, summary);
            let resource = choice.name().to_owned();
            left_out.extend(
                unfit.iter().map(|reason| LeftOut { resource: resource.clone(), reason: reason.clone() }),
            );
            unfit.is_none()
        });
        return Ok((choices, left_out));
    }
    let mut choices = Vec::new();
    for choice in &props.resources {
        if let Some(why) = lineup.lacks(*choice) {
            return Err(Error::Unavailable { resource: choice.name(), why });
        }
        if !choices.contains(choice) {
            choices.push(*choice);
        }
    }
    Ok((choices, left_out))
}

fn search_all(
    script: &Script,
    props: &ReplayProps,
    report: &mut dyn FnMut(Progress),
) -> Result<Vec<result::Enough>> {
    let asked = |choice: &Choice| props.resources.is_empty() || props.resources.contains(choice);
    let choices = Choice::ALL.into_iter().filter(|choice| choice.is_suballocator());
    let mut done = 0;
    let mut told = |steps| {
        done += steps;
        report(Progress { done, total: None });
    };
    choices.filter(asked).map(|choice| search(script, choice, &props.settings, &mut told)).collect()
}
