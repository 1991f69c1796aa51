//! Questions that one fold answers.

use floodmark_analyze::budget::{self, Measured};
use floodmark_analyze::{
    Budget, BudgetFigure, Churn, ChurnFold, ChurnOptions, Fragmentation, FragmentationFold,
    FragmentationOptions, GroupBy, Growth, GrowthFold, GrowthOptions, Layer, LayersFold, Leaks, LeaksFold,
    LeaksOptions, Lifetimes, LifetimesFold, LifetimesOptions, RunWatermark, Stats, StatsFold, Watermark,
    WatermarkFold, WatermarkOptions, WholeBlocksFold,
};
use floodmark_event::{Filter, Row};
use floodmark_store::ScanProps;
use serde::Serialize;

use crate::answer::{Answer, Loss};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::Columns;
use crate::query::Query;

/// Statistics and, where a suballocator was recorded, what it holds beside the blocks made of it.
#[derive(Clone, Debug, Serialize)]
pub struct LayeredStats {
    /// Counters and sizes.
    #[serde(flatten)]
    pub stats: Stats,
    /// Allocators that divide what they hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Layer>,
}

/// What blocks are grouped by unless asked: the view shows those that say something.
pub(crate) const USUAL_WAYS: [GroupBy; 4] = [GroupBy::Site, GroupBy::Thread, GroupBy::Stream, GroupBy::Size];

/// What held memory at the peak.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum HeldAtPeak {
    /// Blocks that were allocated.
    Blocks(Box<Watermark>),
    /// Processes that were sampled.
    Processes(Box<RunWatermark>),
}

impl HeldAtPeak {
    /// Keeps the ways to group blocks that are informative.
    pub fn keep_informative(&mut self) {
        if let Self::Blocks(blocks) = self {
            blocks.keep_informative();
        }
    }
}

/// How holders of memory are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it suits the input.
    Usual,
    /// As the options say.
    Given,
}

impl Input {
    /// Returns counters, sizes, peaks and what allocators hold.
    ///
    /// # Errors
    /// If there are no events or they cannot be read.
    pub fn stats(&self, query: &Query<'_>) -> Result<Answer<LayeredStats>> {
        let fold = (StatsFold::default(), LayersFold::default());
        let answer = self.ask(query, Columns::Figures, fold)?;
        let mut answer = answer.map(|(stats, layers)| LayeredStats { stats, layers });
        self.add_whole_blocks(&mut answer.result.layers)?;
        Ok(answer)
    }

    /// Adds what was sampled of allocators to their layers.
    pub(crate) fn add_whole_blocks(&self, layers: &mut [Layer]) -> Result<()> {
        let contents = self.contents();
        if layers.is_empty() || !contents.has_rows || !contents.can_rewind {
            return Ok(());
        }
        let (mut source, mut rows) = (self.rows(&ScanProps::default())?, Vec::new());
        let mut fold = WholeBlocksFold::default();
        while source.next(&mut rows)? {
            for row in &rows {
                if let Row::Sample(row) = row {
                    fold.sample(row);
                }
            }
        }
        fold.finish(&source.tables().subjects, layers);
        Ok(())
    }

    /// Returns the peak and the blocks that were live at it.
    ///
    /// # Errors
    /// If there are no events or they cannot be read.
    pub fn watermark(&self, query: &Query<'_>, mut options: WatermarkOptions) -> Result<Answer<Watermark>> {
        if options.group_by.contains(&GroupBy::Scope) && options.scopes.is_empty() {
            options.scopes = self.scope_paths()?;
        }
        let mut answer = self.ask(query, Columns::All, WatermarkFold::new(options))?;
        self.add_pools(&mut answer.result, query)?;
        Ok(answer)
    }

    /// Returns what held memory at the peak: blocks or, where processes were only sampled from outside, processes.
    /// Those have neither sites nor other instants, so `way` must be the usual one.
    ///
    /// # Errors
    /// If there are neither events nor samples of processes, or they cannot be read.
    pub fn held_at_peak(
        &self,
        query: &Query<'_>,
        mut options: WatermarkOptions,
        way: Way,
    ) -> Result<Answer<HeldAtPeak>> {
        if way == Way::Usual {
            options.group_by = USUAL_WAYS.to_vec();
        }
        let limit = options.limit;
        let is_usual = way == Way::Usual && options.at.is_none() && query.filter == Filter::default();
        match self.watermark(query, options) {
            Err(error @ Error::NoContent { .. }) if is_usual => match self.run_memory(None)? {
                Some((memory, losses)) => {
                    let watermark = HeldAtPeak::Processes(Box::new(memory.watermark(limit)));
                    Ok(Answer::new(self.name(), &losses, watermark))
                }
                None => Err(error),
            },
            answer => Ok(answer?.map(|blocks| HeldAtPeak::Blocks(Box::new(blocks)))),
        }
    }

    /// Adds what pools reserved and used at the instant that a watermark is about.
    pub(crate) fn add_pools(&self, watermark: &mut Watermark, query: &Query<'_>) -> Result<()> {
        if let Some(at_ns) = watermark.at_ns.or(watermark.peak_time_ns) {
            watermark.pools = self.pools_at(at_ns, &query.filter)?;
        }
        Ok(())
    }

    /// Returns the blocks that are live at the end, and which of them are leak candidates.
    ///
    /// # Errors
    /// If there are no events or they cannot be read.
    pub fn leaks(&self, query: &Query<'_>, options: LeaksOptions) -> Result<Answer<Leaks>> {
        let options = LeaksOptions { scopes: self.scope_roles()?, ..options };
        self.ask(query, Columns::All, LeaksFold::new(options))
    }

    /// Measures what `budgets` limit. The peak of a run without allocations is that of its resident memory.
    ///
    /// # Errors
    /// If a budget limits something that the input does not have, or the input cannot be read.
    pub fn measure(&self, query: &Query<'_>, budgets: &[Budget]) -> Result<Answer<Measured>> {
        let folds = budget::folds(budgets, self.scope_roles()?);
        let answer = self.fold_any(query, Columns::All, folds)?.answer;
        let lost_events = answer.losses.iter().map(Loss::least_count).sum();
        let mut answer = answer.map(|result| Measured::new(result, lost_events));
        if answer.caveats.events_read > 0 {
            return Ok(answer);
        }
        let is_about_peaks =
            |budget: &Budget| matches!(budget.figure, BudgetFigure::Peak | BudgetFigure::LostEvents);
        match self.run_memory(Some(0))? {
            Some((memory, _)) if budgets.iter().all(is_about_peaks) => {
                answer.result.peak_rss_bytes = Some(memory.peak_rss_bytes);
            }
            _ => self.refuse_samples()?,
        }
        Ok(answer)
    }

    /// Returns the sites whose live bytes grow with every iteration of the scope or mark named in `options`.
    ///
    /// # Errors
    /// If nothing has that name, there are no events or they cannot be read.
    pub fn growth(&self, query: &Query<'_>, options: GrowthOptions) -> Result<Answer<Growth>> {
        let options = GrowthOptions {
            ends_ns: self.iteration_ends(&options.per)?,
            window: (query.filter.from_ns, query.filter.to_ns),
            ..options
        };
        self.ask(query, Columns::All, GrowthFold::new(options))
    }

    /// Returns how long blocks lived, and which sites free soon after they allocate.
    ///
    /// # Errors
    /// If there are no events or they cannot be read.
    pub fn lifetimes(&self, query: &Query<'_>, options: LifetimesOptions) -> Result<Answer<Lifetimes>> {
        self.ask(query, Columns::All, LifetimesFold::new(options))
    }

    /// Returns what each site allocated over time, and how much of it for nothing.
    ///
    /// # Errors
    /// If there are no events or they cannot be read.
    pub fn churn(&self, query: &Query<'_>, options: ChurnOptions) -> Result<Answer<Churn>> {
        self.ask(query, Columns::All, ChurnFold::new(options))
    }

    /// Returns how fragmented free memory is.
    ///
    /// # Errors
    /// If there are no events or they cannot be read.
    pub fn fragmentation(
        &self,
        query: &Query<'_>,
        options: FragmentationOptions,
    ) -> Result<Answer<Fragmentation>> {
        self.ask(query, Columns::All, FragmentationFold::new(options))
    }
}
