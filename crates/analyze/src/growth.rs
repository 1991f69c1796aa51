//! Growth: whether the memory of a site rises from iteration to iteration.
//!
//! An iteration is one entry of a scope, such as the NVTX range `step`; what counts is how much each
//! site holds when it ends. A line is fitted to that by least squares. How sure its slope is follows
//! from how far the iterations lie from the line, as a 95 % interval by Student's t. Memory at the end of
//! one iteration resembles that of the one before, which would make the interval too narrow; so the
//! number of iterations is reduced for the correlation `r` of one residual with the next, to
//! `n (1 - r) / (1 + r)`, and never below 3.
//!
//! Only running sums are kept per call stack, whatever the number of iterations, and an iteration in which
//! a stack changes nothing costs nothing. Several stacks lead to one site: their slopes add up, and so
//! do their intervals, which is the widest that the interval of the sum can be.
//!
//! Blocks of a process are counted at the ends of its own iterations.

mod fit;
pub(crate) mod partial;

use std::borrow::Cow;
use std::collections::BTreeMap;

use floodmark_event::units::Instant;
use floodmark_event::{Kind, ProcessId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::change::{Block, Space};
use crate::describe::{Describe, Origin};
use crate::fold::{End, Fold};
use crate::growth::fit::{Line, Sums};
use crate::level::Level;
use crate::site::SiteRules;
use floodmark_event::filter::resolve;

/// How to look for growth.
#[derive(Clone, Debug, Default)]
pub struct GrowthOptions {
    /// What an iteration is called.
    pub per: String,
    /// When the iterations of each process end, in any order.
    pub ends_ns: BTreeMap<ProcessId, Vec<i64>>,
    /// Iterations of each process to pass over at first.
    pub warm_up: u64,
    /// First and last instant of the window.
    pub window: (Option<Instant>, Option<Instant>),
    /// How many sites to list; all if none.
    pub limit: Option<usize>,
    /// Which frames cannot be sites.
    pub sites: SiteRules,
}

/// Which way memory goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// The whole interval is above zero.
    Grows,
    /// Zero is in the interval.
    #[default]
    Steady,
    /// The whole interval is below zero.
    Shrinks,
}

impl Trend {
    /// The word for it in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grows => "grows",
            Self::Steady => "steady",
            Self::Shrinks => "shrinks",
        }
    }
}

/// Growth from iteration to iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Kinds the figures cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// What an iteration is called.
    pub per: String,
    /// Iterations that were looked at, of all processes.
    pub iterations: u64,
    /// Iterations of each process that were passed over.
    pub warm_up: u64,
    /// How the slope and its interval are found.
    pub method: Cow<'static, str>,
    /// All memory of each process.
    pub totals: Vec<SiteGrowth>,
    /// Sites, those that grow fastest first.
    pub sites: Vec<SiteGrowth>,
    /// Sites that are not listed because of the limit.
    pub sites_omitted: u64,
    /// Sites that grow, listed or not.
    pub growing: u64,
}

/// How one site grows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteGrowth {
    /// Id of the process in the trace.
    pub process: u32,
    /// Place in the program that allocates; `(all)` for all.
    pub site: String,
    /// Which way it goes.
    pub trend: Trend,
    /// The slope.
    pub bytes_per_iteration: f64,
    /// Lower end of its 95 % interval; none with fewer than three iterations.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// What a thousand iterations would add at that slope.
    pub bytes_per_thousand: f64,
    /// Live bytes at the end of the first iteration.
    pub first_bytes: u64,
    /// Live bytes at the end of the last.
    pub last_bytes: u64,
}

/// How slopes are computed, in words for reports.
const METHOD: &str =
    "least squares; 95 % interval by Student's t, iterations reduced for lag-1 autocorrelation of residuals";

/// What stands for the site of all memory.
const ALL: &str = "(all)";

/// The iterations of a process.
#[derive(Clone, Debug, Default)]
struct Iterations {
    ends_ns: Vec<i64>,
    /// Those that have ended.
    ended: usize,
}

/// Live bytes of something, and what they were at the ends of iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Series {
    live: u64,
    counted: usize,
    sums: Sums,
}

impl Series {
    /// Counts the live bytes of all iterations up to `ended`.
    #[inline]
    fn settle(&mut self, ended: usize, warm_up: usize) {
        let from = self.counted.max(warm_up);
        if ended > from {
            self.sums.add(self.live, (ended - from) as u64);
        }
        self.counted = self.counted.max(ended);
    }
}

/// Folds events into [`Growth`].
#[derive(Clone, Debug, Default)]
pub struct GrowthFold {
    options: GrowthOptions,
    warm_up: usize,
    /// Index of the process of each space.
    of_space: Vec<usize>,
    processes: Vec<(ProcessId, Iterations)>,
    series: FxHashMap<(usize, Origin), Series>,
    totals: FxHashMap<(usize, u8), Series>,
}

impl GrowthFold {
    /// Starts to look for growth.
    pub fn new(options: GrowthOptions) -> Self {
        let warm_up = usize::try_from(options.warm_up).unwrap_or(usize::MAX);
        Self { options, warm_up, ..Self::default() }
    }

    fn change(&mut self, block: &Block, time_ns: i64, by: impl Fn(u64) -> u64) {
        if block.kind == Kind::Static {
            return;
        }
        let at = self.of_space[block.space as usize];
        let (_, iterations) = &mut self.processes[at];
        while iterations.ends_ns.get(iterations.ended).is_some_and(|end_ns| *end_ns < time_ns) {
            iterations.ended += 1;
        }
        let ended = iterations.ended;
        let one = self.series.entry((at, Origin::of(block))).or_default();
        one.settle(ended, self.warm_up);
        one.live = by(one.live);
        let all = self.totals.entry((at, block.tally)).or_default();
        all.settle(ended, self.warm_up);
        all.live = by(all.live);
    }

    fn ended(&self, mut series: Series, process: usize) -> Series {
        series.settle(self.processes[process].1.ends_ns.len(), self.warm_up);
        series
    }
}

/// Adds what one stack says of its site.
fn join(site: &mut SiteGrowth, series: &Series) {
    let line = series.sums.line();
    let Line { slope, half_width } = line;
    let (low, high) = (site.low.unwrap_or(0.0), site.high.unwrap_or(0.0));
    site.bytes_per_iteration += slope;
    site.low = half_width.map(|half| low + slope - half);
    site.high = half_width.map(|half| high + slope + half);
    let (first, last) = series.sums.ends();
    site.first_bytes = site.first_bytes.saturating_add(first);
    site.last_bytes = site.last_bytes.saturating_add(last);
}

/// Judges a site whose stacks have all been joined.
fn judge(site: &mut SiteGrowth) {
    site.bytes_per_thousand = site.bytes_per_iteration * 1000.0;
    site.trend = match (site.low, site.high) {
        (Some(low), _) if low > 0.0 => Trend::Grows,
        (_, Some(high)) if high < 0.0 => Trend::Shrinks,
        _ => Trend::Steady,
    };
}

impl Fold for GrowthFold {
    type Output = Growth;

    fn start(&mut self, _first_ns: i64, origin_ns: i64) {
        let (from, to) = self.options.window;
        let from_ns = from.map_or(i64::MIN, |from| resolve(from, origin_ns));
        let to_ns = to.map_or(i64::MAX, |to| resolve(to, origin_ns));
        for ends_ns in self.options.ends_ns.values_mut() {
            ends_ns.retain(|end_ns| (from_ns..=to_ns).contains(end_ns));
            ends_ns.sort_unstable();
        }
    }

    fn space(&mut self, _index: u32, space: Space) {
        let known = self.processes.iter().position(|(process, _)| *process == space.process);
        let at = known.unwrap_or_else(|| {
            let ends_ns = self.options.ends_ns.get(&space.process).cloned().unwrap_or_default();
            self.processes.push((space.process, Iterations { ends_ns, ended: 0 }));
            self.processes.len() - 1
        });
        self.of_space.push(at);
    }

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, |live| live.saturating_add(block.bytes));
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, |live| live.saturating_sub(block.bytes));
    }

    fn finish(&self, end: &End<'_>) -> Growth {
        let tallies = end.live.tallies();
        let main = tallies.main();
        let mut describe = Describe::new(end, &self.options.sites);
        let mut sites: BTreeMap<(usize, u32), SiteGrowth> = BTreeMap::new();
        let begin = |process: usize, site: &str| SiteGrowth {
            process: self.processes[process].0.0,
            site: site.to_owned(),
            ..SiteGrowth::default()
        };
        let mut series: Vec<(usize, Origin, Series)> = Vec::new();
        for ((process, origin), one) in self.series.iter().filter(|((_, origin), _)| origin.tally == main) {
            let one = self.ended(*one, *process);
            // What holds nothing whenever an iteration ends is of no interest here.
            if !one.sums.is_zero() {
                series.push((*process, *origin, one));
            }
        }
        // Sums of fractions depend on the order in which they are added up, which must not depend on ids.
        series.sort_by_cached_key(|(_, _, one)| one.sums.key());
        for (process, origin, one) in &series {
            let id = describe.site_id(origin.stack, origin.name);
            let site = sites.entry((*process, id)).or_insert_with(|| begin(*process, describe.site(id)));
            join(site, one);
        }
        let mut sites: Vec<SiteGrowth> = sites.into_values().collect();
        sites.iter_mut().for_each(judge);
        // What surely grows comes first, then by slope.
        sites.sort_by(|a, b| {
            let grows = |site: &SiteGrowth| site.trend == Trend::Grows;
            let slopes = b.bytes_per_iteration.total_cmp(&a.bytes_per_iteration);
            grows(b).cmp(&grows(a)).then(slopes).then_with(|| (a.process, &a.site).cmp(&(b.process, &b.site)))
        });
        let growing = sites.iter().filter(|site| site.trend == Trend::Grows).count() as u64;
        let listed = sites.len().min(self.options.limit.unwrap_or(usize::MAX));
        let sites_omitted = (sites.len() - listed) as u64;
        sites.truncate(listed);
        let mut totals: Vec<SiteGrowth> = Vec::new();
        let mut iterations = 0;
        for (at, (_, known)) in
            self.processes.iter().enumerate().filter(|(_, (_, known))| !known.ends_ns.is_empty())
        {
            let mut total = begin(at, ALL);
            let series = self.totals.get(&(at, main)).copied().unwrap_or_default();
            join(&mut total, &self.ended(series, at));
            judge(&mut total);
            totals.push(total);
            iterations += known.ends_ns.len().saturating_sub(self.warm_up) as u64;
        }
        totals.sort_by_key(|total| total.process);
        Growth {
            kinds: tallies.main_kinds(),
            per: self.options.per.clone(),
            iterations,
            warm_up: self.options.warm_up,
            method: METHOD.into(),
            totals,
            sites,
            sites_omitted,
            growing,
        }
    }
}
