//! Jobs that are read in parts: partial results of some processes, merged, and the answers of the whole job.
//!
//! A job is one or more inputs. [`plan`] divides their processes into shards; [`Job::read`] reads one shard, anywhere;
//! jobs merge in any order. What merging cannot tell is asked of all shards once more ([`Job::ask`]): what changed in
//! a few intervals of time, to find the peak of the sum, and the blocks that were live then. Each shard answers with
//! [`answer`], and [`Job::take`] takes the answers in. Two such rounds are usual. A lost shard is simply read again.
//!
//! Jobs and answers are bytes of a format of their own ([`wire`]), so that engines need to know nothing of them.

use std::path::PathBuf;

mod local;
mod plan;
pub mod wire;

use floodmark_analyze::peaks::Cut;
use floodmark_analyze::{
    Growth, GrowthOptions, HeldBlocks, HeldFold, JobProcesses, Leaks, LeaksOptions, Lifetimes,
    LifetimesOptions, Look, LookFold, LookRanges, Partial, PartialError, PartialOptions, PartialSource,
    PeakSearch, PoolUse, SearchFor, Watermark, WatermarkOptions, partial_fold,
};
use floodmark_event::Filter;
use floodmark_event::units::Instant;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Loss};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::plot::label;
use crate::questions::{HeldAtPeak, LayeredStats, USUAL_WAYS, Way};
use crate::ranks::{RankPlot, RankRows};

pub use self::local::read_on_cores;
pub use self::plan::{Shard, ShardPart, event_files, plan};

/// What a job is to answer beside counters, leaks and peaks.
#[derive(Clone, Debug, Default)]
pub struct JobProps {
    /// Selects events.
    pub filter: Filter,
    /// Blocks that live shorter than this are churn.
    pub churn_ns: u64,
    /// Name of iterations for growth, and how many to pass over.
    pub growth: Option<(String, u64)>,
}

/// What is known of the processes of a job that were read.
#[derive(Debug)]
pub struct Job {
    inputs: Vec<JobInput>,
    partial: Partial,
    /// Selects events, for the rounds that follow.
    filter: Filter,
    search: Option<PeakSearch>,
    ask: Ask,
    held: Option<HeldParts>,
}

/// What was held at the peak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeldParts {
    blocks: Vec<HeldBlocks>,
    /// Pools of stream-ordered allocation, which samples tell of.
    pools: Vec<PoolUse>,
}

/// An input of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobInput {
    key: String,
    path: String,
    /// Count, reason and whether it is a remark.
    losses: Vec<(u64, String, bool)>,
}

/// What is asked of all shards next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Nothing: all is known.
    Nothing,
    /// What changed in intervals of time.
    Changes(LookRanges),
    /// The blocks of a kind of memory that were live at the peak.
    Blocks {
        /// Where the peak is.
        cut: Cut,
        /// When it is.
        at_ns: i64,
        /// Number of the kind.
        tally: u8,
    },
}

/// What a shard says to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardAnswer {
    /// Inputs, and their processes if not all of them.
    covers: Vec<(String, Option<Vec<u32>>)>,
    said: Said,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Said {
    Changes { asked: LookRanges, looks: Vec<Look> },
    Blocks { cut: Cut, held: HeldParts },
}

/// Names an input by its contents, so that all shards of one agree wherever they run.
pub(crate) fn key_of(input: &Input) -> String {
    let run = input.run();
    let name =
        input.path().file_name().map_or_else(|| input.name().to_owned(), |name| name.display().to_string());
    let start = run.start_ns.map(|start| format!(" {start}")).unwrap_or_default();
    let host = run.host.as_deref().filter(|host| !host.is_empty());
    format!("{name}{start}{}", host.map(|host| format!(" {host}")).unwrap_or_default())
}

impl Job {
    /// Reads one shard of the inputs.
    ///
    /// # Errors
    /// If an input cannot be read, or has nothing to divide.
    pub fn read(inputs: &[Input], shard: Shard, props: &JobProps) -> Result<Self> {
        let filter = anchored(inputs, &props.filter)?;
        let mut whole: Option<Self> = None;
        for part in plan(inputs, shard)? {
            let one = read_part(&inputs[part.input], &part, props, &filter)?;
            match &mut whole {
                Some(whole) => whole.merge(one)?,
                None => whole = Some(one),
            }
        }
        match whole {
            Some(whole) => Ok(whole),
            // More shards than processes: this one has nothing to say.
            None => {
                read_part(&inputs[0], &ShardPart { input: 0, processes: Some(Vec::new()) }, props, &filter)
            }
        }
    }

    /// Takes in what other shards found.
    ///
    /// # Errors
    /// If both are about the same process, or were made with different options.
    pub fn merge(&mut self, other: Self) -> Result<()> {
        self.partial.merge(&other.partial.data()).map_err(|error| refused(&error))?;
        for input in other.inputs {
            match self.inputs.iter_mut().find(|known| known.key == input.key) {
                Some(known) => {
                    let new = input.losses.into_iter().filter(|loss| !known.losses.contains(loss));
                    let new: Vec<_> = new.collect();
                    known.losses.extend(new);
                }
                None => self.inputs.push(input),
            }
        }
        (self.search, self.ask, self.held) = (None, Ask::Nothing, None);
        Ok(())
    }

    /// Finds out what has to be asked of all shards, and returns it.
    pub fn prepare(&mut self) -> &Ask {
        if self.held.is_some() || self.ask != Ask::Nothing {
            return &self.ask;
        }
        if self.search.is_none() && self.partial.peak_cut().is_none() {
            self.search = self.partial.search(SearchFor::Holders);
        }
        if let Some(search) = &mut self.search {
            let ranges = search.next_ranges();
            if !ranges.is_empty() {
                self.ask = Ask::Changes(ranges);
                return &self.ask;
            }
        }
        if let Some(search) = self.search.take() {
            self.partial.settle(search.finish());
        }
        match self.partial.peak_cut() {
            Some(cut) => {
                let (at_ns, tally) =
                    (self.partial.peak_time_ns().unwrap_or(cut.sorts_ns), self.partial.main_tally());
                self.ask = Ask::Blocks { cut, at_ns, tally };
            }
            None => self.held = Some(HeldParts::default()),
        }
        &self.ask
    }

    /// What is asked of all shards.
    pub fn ask(&self) -> &Ask {
        &self.ask
    }

    /// Takes in what all shards said.
    ///
    /// # Errors
    /// If a process has not answered, or an answer is to another question.
    pub fn take(&mut self, answers: Vec<ShardAnswer>) -> Result<()> {
        self.check_covered(&answers)?;
        match std::mem::replace(&mut self.ask, Ask::Nothing) {
            Ask::Nothing => return Err(unasked()),
            Ask::Changes(ranges) => {
                let mut all = Vec::new();
                for answer in answers {
                    match answer.said {
                        Said::Changes { asked, looks } if asked == ranges => all.extend(looks),
                        _ => return Err(unasked()),
                    }
                }
                let search = self.search.as_mut().ok_or_else(unasked)?;
                search.take(&all).map_err(|_| unasked())?;
            }
            Ask::Blocks { cut: asked, .. } => {
                let mut all = HeldParts::default();
                for answer in answers {
                    match answer.said {
                        Said::Blocks { cut, held } if cut == asked => {
                            all.blocks.extend(held.blocks);
                            all.pools.extend(held.pools);
                        }
                        _ => return Err(unasked()),
                    }
                }
                self.held = Some(all);
            }
        }
        self.prepare();
        Ok(())
    }

    /// Refuses answers that are not of all processes, or of one twice: the peak would be wrong.
    fn check_covered(&self, answers: &[ShardAnswer]) -> Result<()> {
        for (source, number) in self.partial.processes() {
            let covers = |(key, numbers): &&(String, Option<Vec<u32>>)| {
                *key == source && numbers.as_ref().is_none_or(|numbers| numbers.contains(&number))
            };
            let count = answers.iter().flat_map(|answer| &answer.covers).filter(covers).count();
            if count != 1 {
                let message =
                    format!("process {number} of {source} has answered {count} times instead of once");
                return Err(Error::unsuitable(
                    message,
                    "give one answer of every shard, made with the same --shard",
                ));
            }
        }
        Ok(())
    }

    /// Whether peak and holders are known.
    pub fn is_complete(&self) -> bool {
        self.held.is_some()
    }

    /// The lowest and highest that the peak can be.
    pub fn peak_bounds(&self) -> (u64, u64) {
        self.partial.peak_bounds()
    }

    fn answer<T>(&self, result: T) -> Result<Answer<T>> {
        let caveats = self.partial.caveats();
        if caveats.events_read == 0 {
            return Err(Error::no_content(
                format!("{} contains no allocation events, which this command needs", self.source()),
                "ask the traces: 'floodmark info' shows what they contain",
            ));
        }
        let loss = |(count, reason, is_remark): &(u64, String, bool)| Loss {
            count: *count,
            reason: reason.clone(),
            is_remark: *is_remark,
        };
        let losses = self.inputs.iter().flat_map(|input| input.losses.iter().map(loss)).collect();
        Ok(Answer { source: self.source(), losses, caveats, result })
    }

    /// The inputs as the user named them.
    fn source(&self) -> String {
        let mut paths: Vec<&str> = self.inputs.iter().map(|input| input.path.as_str()).collect();
        paths.sort_unstable();
        paths.join(", ")
    }

    fn numbered(&self) -> Partial {
        self.partial.clone().numbered()
    }

    /// Returns counters, sizes and peaks. The peak is a bound until it was searched for.
    ///
    /// # Errors
    /// If there are no events.
    pub fn stats(&self) -> Result<Answer<LayeredStats>> {
        let (stats, layers) = self.numbered().stats();
        self.answer(LayeredStats { stats, layers })
    }

    /// Puts the processes side by side by what they had live, with at most `limit` listed at either end.
    ///
    /// # Errors
    /// If there are no events.
    pub fn processes(&self, limit: Option<usize>) -> Result<Answer<JobProcesses>> {
        self.answer(self.numbered().processes_compared(limit))
    }

    /// Returns live bytes of the processes over time.
    ///
    /// # Errors
    /// If none ever had any.
    pub fn process_plot(&self) -> Result<RankPlot> {
        let known = self.numbered();
        let answer = self.answer(known.process_map())?;
        let Some(map) = answer.result else {
            return Err(Error::no_content(
                format!("no process of {} had live memory of the selected kinds", self.source()),
                "make the partial result with another --kind",
            ));
        };
        let origin_ns = known.stats().0.origin_time_ns.unwrap_or(map.first_ns);
        let title = label(&self.source());
        let rows = RankRows::Processes;
        Ok(RankPlot { title, rows, map, highest: None, origin_ns, losses: answer.losses })
    }

    /// Returns the blocks that are live at the end.
    ///
    /// # Errors
    /// If there are no events.
    pub fn leaks(&self, options: LeaksOptions) -> Result<Answer<Leaks>> {
        self.answer(self.numbered().leaks(options))
    }

    /// Returns how long blocks lived.
    ///
    /// # Errors
    /// If there are no events, or churn was counted with another limit.
    pub fn lifetimes(&self, options: LifetimesOptions) -> Result<Answer<Lifetimes>> {
        let known = self.partial.churn_ns();
        if options.threshold_ns != known {
            return Err(Error::unsuitable(
                format!("churn was counted below {known} ns when the partial result was made"),
                "leave --churn out, or make the partial result with it",
            ));
        }
        self.answer(self.numbered().lifetimes(options))
    }

    /// Returns how sites grow from iteration to iteration.
    ///
    /// # Errors
    /// If there are no events, or other iterations were looked at.
    pub fn growth(&self, options: GrowthOptions) -> Result<Answer<Growth>> {
        let is_same = self.partial.iterations() == Some((options.per.as_str(), options.warm_up));
        match self.numbered().growth(options).filter(|_| is_same) {
            Some(growth) => self.answer(growth),
            None => Err(Error::unsuitable(
                "the partial result was made without these iterations",
                "make it with the same --per and --warm-up",
            )),
        }
    }

    /// Whether a block is known by its stack or name.
    pub(crate) fn has_origins(&self) -> bool {
        self.partial.has_origins()
    }

    /// Returns the holders at the peak, if they are known.
    pub(crate) fn holders(&self, options: WatermarkOptions) -> Result<Option<Watermark>> {
        if !self.is_complete() {
            return Ok(None);
        }
        match self.watermark(options, Way::Given)?.result {
            HeldAtPeak::Blocks(watermark) => Ok(Some(*watermark)),
            HeldAtPeak::Processes(_) => Ok(None),
        }
    }

    /// Returns what held memory at the peak.
    ///
    /// # Errors
    /// If the blocks at the peak are not known, or another instant is asked for.
    pub fn watermark(&self, mut options: WatermarkOptions, way: Way) -> Result<Answer<HeldAtPeak>> {
        if options.at.is_some() {
            return Err(Error::unsuitable(
                "a partial result has the blocks at the peak alone",
                "leave --at out, or ask the trace",
            ));
        }
        if way == Way::Usual {
            options.group_by = USUAL_WAYS.to_vec();
        }
        let Some(held) = &self.held else {
            return Err(Error::unsuitable(
                "the partial result does not have the blocks at the peak yet",
                "'floodmark watermark TRACE... --job FILE' finds them, or 'floodmark partial TRACE... --job FILE' \
                 on every shard and 'floodmark merge'",
            ));
        };
        let mut watermark =
            self.numbered().watermark(&held.blocks, None, &options).map_err(|error| refused(&error))?;
        watermark.pools.clone_from(&held.pools);
        self.answer(HeldAtPeak::Blocks(Box::new(watermark)))
    }
}

impl ShardAnswer {
    #[cfg(test)]
    fn nothing() -> Self {
        let said = Said::Changes { asked: LookRanges::default(), looks: Vec::new() };
        Self { covers: Vec::new(), said }
    }
}

/// Puts files together: partial results, or a merged one and the answers of all shards.
///
/// # Errors
/// If a file cannot be read, or they do not fit together.
pub fn merge_files(paths: &[PathBuf]) -> Result<Job> {
    let (mut whole, mut answers): (Option<Job>, Vec<ShardAnswer>) = (None, Vec::new());
    for path in paths {
        match (wire::open(path)?, &mut whole) {
            (wire::Contents::Answer(answer), _) => answers.push(*answer),
            (wire::Contents::Job(job), None) => whole = Some(*job),
            (wire::Contents::Job(job), Some(whole)) => {
                whole.merge(*job).map_err(|error| match error {
                    Error::Unsuitable { message, remedy } => {
                        Error::unsuitable(format!("{}: {message}", path.display()), remedy)
                    }
                    other => other,
                })?;
            }
        }
    }
    let Some(mut job) = whole else {
        return Err(Error::unsuitable(
            "there are answers, but no merged result that asked for them",
            "give the file that 'floodmark partial --job' was run with",
        ));
    };
    if answers.is_empty() {
        job.prepare();
    } else {
        job.take(answers)?;
    }
    Ok(job)
}

/// Answers for one shard what a job asks.
///
/// # Errors
/// If an input cannot be read.
pub fn answer(inputs: &[Input], shard: Shard, job: &Job) -> Result<ShardAnswer> {
    let parts = plan(inputs, shard)?;
    let filter = &job.filter;
    let mut covers = Vec::new();
    let mut said = match &job.ask {
        Ask::Nothing => {
            return Err(Error::unsuitable("the job asks for nothing more", "its answers are complete"));
        }
        Ask::Changes(asked) => Said::Changes { asked: asked.clone(), looks: Vec::new() },
        Ask::Blocks { cut, at_ns, .. } => {
            let mut held = HeldParts::default();
            // Pools are not of one process: the first shard answers for all.
            for input in inputs.iter().filter(|_| shard.index == 0) {
                held.pools.extend(input.pools_at(*at_ns, filter)?);
            }
            Said::Blocks { cut: cut.clone(), held }
        }
    };
    for part in parts {
        let (input, key) = (&inputs[part.input], key_of(&inputs[part.input]));
        match (&job.ask, &mut said) {
            (Ask::Changes(asked), Said::Changes { looks, .. }) => {
                let fold = LookFold::new(asked.clone());
                let read = local::fold_part(input, &part, filter, fold, LookFold::is_done)?;
                looks.push(read.pass.finished(read.source.tables()).look(&key));
            }
            (Ask::Blocks { cut, tally, .. }, Said::Blocks { held, .. }) => {
                let fold = HeldFold::new(cut.clone(), &key);
                let read = local::fold_part(input, &part, filter, fold, HeldFold::is_done)?;
                held.blocks.push(HeldBlocks::new(read.pass, &key, *tally, read.source.tables()));
            }
            _ => {}
        }
        covers.push((key, part.processes.map(|ids| ids.into_iter().map(|id| id.0).collect())));
    }
    Ok(ShardAnswer { covers, said })
}

/// The filter with its times counted from the start of the job.
fn anchored(inputs: &[Input], filter: &Filter) -> Result<Filter> {
    let mut origin_ns: Option<i64> = None;
    let mut checked = filter.clone();
    for input in inputs {
        input.need_rewind("a partial result may be asked for more")?;
        checked = input.anchored(filter)?;
        let own_ns = match checked.origin_ns {
            Some(own_ns) => Some(own_ns),
            None => input.first_event_ns()?,
        };
        origin_ns = origin_ns.into_iter().chain(own_ns).min();
    }
    let origin_ns =
        origin_ns.filter(|_| inputs.len() > 1 || checked.origin_ns.is_some() || is_relative(filter));
    Ok(Filter { origin_ns: origin_ns.or(checked.origin_ns), ..checked })
}

fn is_relative(filter: &Filter) -> bool {
    [filter.from_ns, filter.to_ns].iter().any(|instant| matches!(instant, Some(Instant::AfterStart(_))))
}

fn read_part(input: &Input, part: &ShardPart, props: &JobProps, filter: &Filter) -> Result<Job> {
    let growth = match &props.growth {
        None => None,
        Some((per, warm_up)) => Some(GrowthOptions {
            per: per.clone(),
            warm_up: *warm_up,
            ends_ns: input.iteration_ends(per)?,
            window: (filter.from_ns, filter.to_ns),
            ..GrowthOptions::default()
        }),
    };
    let options = PartialOptions {
        leaks: LeaksOptions { scopes: input.scope_roles()?, ..LeaksOptions::default() },
        lifetimes: LifetimesOptions { threshold_ns: props.churn_ns, ..LifetimesOptions::default() },
        growth,
    };
    let read = local::fold_part(input, part, filter, partial_fold(options), |_| false)?;
    let key = key_of(input);
    let losses = read.source.losses().gaps.into_iter().map(|gap| (gap.count, gap.reason, gap.is_remark));
    let (tables, events_read) = (read.source.tables(), read.events_read);
    let source = PartialSource { key: &key, filter: &props.filter, tables, events_read };
    let mut partial = Partial::new(read.pass, source);
    input.add_whole_blocks(partial.layers_mut())?;
    Ok(Job {
        inputs: vec![JobInput { path: input.name().to_owned(), losses: losses.collect(), key }],
        partial,
        filter: filter.clone(),
        search: None,
        ask: Ask::Nothing,
        held: None,
    })
}

fn refused(error: &PartialError) -> Error {
    Error::unsuitable(
        format!("partial results cannot be put together: {error}"),
        "make all of them with the same options, and each process in one of them",
    )
}

fn unasked() -> Error {
    Error::unsuitable(
        "an answer is not to what the job asks for",
        "make the answers with the job file that they are merged into",
    )
}
