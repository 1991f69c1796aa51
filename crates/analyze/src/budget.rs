//! Budgets: limits on figures of one input, or on how much figures grow from one input to another.
//!
//! A budget names a figure and a limit. Reaching the limit exactly is within the budget. Text about
//! outcomes belongs to the view.

mod parse;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::block::GroupBy;
use crate::caveats::Caveats;
use crate::diff::{Diff, Figure};
use crate::failures::{Failures, FailuresFold};
use crate::leaks::{Leaks, LeaksFold, LeaksOptions};
use crate::scopes::ScopeRoles;
use crate::watermark::{Watermark, WatermarkFold, WatermarkOptions};

/// Blocks and sites that are kept to explain a violation.
pub const MAX_CULPRITS: usize = 3;

const MILLION: u64 = 1_000_000;

/// Figure that a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetFigure {
    /// Peak bytes of allocations; where either side of a comparison has none, peak resident bytes.
    Growth,
    /// Peak bytes of allocations; peak resident bytes of runs without allocations.
    Peak,
    /// Bytes live at the end.
    Live,
    /// Bytes live at the end that are leaks or leak candidates.
    Leaked,
    /// Blocks live at the end that are leaks or leak candidates.
    LeakedBlocks,
    /// Number of allocations.
    Allocations,
    /// Number of failed allocations.
    Failures,
    /// Number of events known to be missing.
    LostEvents,
    /// Peak resident bytes of all processes.
    Rss,
}

impl BudgetFigure {
    /// Returns whether the figure counts bytes.
    pub const fn is_bytes(self) -> bool {
        !matches!(self, Self::LeakedBlocks | Self::Allocations | Self::Failures | Self::LostEvents)
    }

    /// Returns whether the figure is computed from allocation events.
    pub const fn needs_events(self) -> bool {
        !matches!(self, Self::Rss | Self::LostEvents)
    }

    /// Returns both values in a comparison; none if a side does not have the figure.
    fn compared(self, diff: &Diff) -> Option<(u64, u64)> {
        let both = |figure| diff.figure(figure).and_then(|change| change.before.zip(change.after));
        match self {
            Self::Growth | Self::Peak => both(Figure::PeakBytes).or_else(|| both(Figure::PeakRssBytes)),
            Self::Live => both(Figure::LiveBytes),
            Self::Leaked => both(Figure::LeakedBytes),
            Self::LeakedBlocks => both(Figure::LeakedBlocks),
            Self::Allocations => both(Figure::Allocations),
            Self::Rss => both(Figure::PeakRssBytes),
            Self::Failures | Self::LostEvents => None,
        }
    }

    /// Returns the value in one input; none if it was not measured.
    fn measured(self, measured: &Measured) -> Option<u64> {
        let Measured { watermark, leaks, failures, lost_events, peak_rss_bytes } = measured;
        match self {
            Self::Peak => peak_rss_bytes.or(watermark.as_ref().map(|watermark| watermark.peak_bytes)),
            Self::Leaked => leaks.as_ref().map(|leaks| leaks.leaked_bytes),
            Self::LeakedBlocks => leaks.as_ref().map(|leaks| leaks.leaked_blocks),
            Self::Failures => failures.as_ref().map(|failures| failures.count),
            Self::LostEvents => Some(*lost_events),
            Self::Growth | Self::Live | Self::Allocations | Self::Rss => None,
        }
    }
}

/// Highest value or growth that a budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The figure itself, in bytes or as a count.
    AtMost(u64),
    /// Growth from the first input to the second, in bytes or as a count.
    GrowthBy(u64),
    /// Growth in millionths of a percent of the first input's figure. A figure that was 0 and is not any
    /// more exceeds every percentage.
    GrowthPercentMillionths(u64),
}

/// Limit on a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// How the user stated it: an option such as `max-peak`, or a rule such as `growth>5%`.
    pub name: String,
    /// Figure that is limited.
    pub figure: BudgetFigure,
    /// Highest value or growth that is within the budget.
    pub limit: Limit,
}

/// Result of checking one budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetOutcome {
    /// The budget.
    pub budget: Budget,
    /// The figure in the first of two inputs that are compared.
    pub before: Option<u64>,
    /// The figure in the only or second input.
    pub actual: u64,
    /// Whether the limit is exceeded.
    pub is_violated: bool,
}

/// A budget limits a figure that an input does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFigure(pub Budget);

impl fmt::Display for MissingFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = match self.0.figure {
            BudgetFigure::Rss => "resident memory is known of runs that were sampled",
            BudgetFigure::Growth | BudgetFigure::Peak => {
                "one input has allocations and the other one samples of processes"
            }
            _ => "it is known of inputs that have allocations",
        };
        write!(f, "'{}' cannot be checked: {about}", self.0.name)
    }
}

impl std::error::Error for MissingFigure {}

/// Folds that measure what budgets limit; only those that are needed are there.
pub type BudgetFolds = (Option<WatermarkFold>, Option<LeaksFold>, Option<FailuresFold>);

/// Results of [`BudgetFolds`].
pub type BudgetResults = (Option<Watermark>, Option<Leaks>, Option<Failures>);

/// Figures of one input that budgets are checked against.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The watermark, if a budget limits the peak.
    pub watermark: Option<Watermark>,
    /// The leaks, if a budget limits them.
    pub leaks: Option<Leaks>,
    /// The failed allocations, if a budget limits them.
    pub failures: Option<Failures>,
    /// Number of events known to be missing.
    pub lost_events: u64,
    /// Peak resident bytes of a run without allocations.
    pub peak_rss_bytes: Option<u64>,
}

impl Measured {
    /// Joins the results of a pass with the number of lost events, which no fold sees.
    pub fn new((watermark, leaks, failures): BudgetResults, lost_events: u64) -> Self {
        Self { watermark, leaks, failures, lost_events, peak_rss_bytes: None }
    }
}

/// Returns the folds that measure what `budgets` limit, and nothing else.
pub fn folds(budgets: &[Budget], scopes: ScopeRoles) -> BudgetFolds {
    let limits = |figures: &[BudgetFigure]| budgets.iter().any(|budget| figures.contains(&budget.figure));
    let watermark = WatermarkOptions {
        group_by: vec![GroupBy::Site],
        limit: Some(MAX_CULPRITS),
        ..WatermarkOptions::default()
    };
    let leaks = LeaksOptions { limit: Some(MAX_CULPRITS), scopes, ..LeaksOptions::default() };
    (
        limits(&[BudgetFigure::Peak]).then(|| WatermarkFold::new(watermark)),
        limits(&[BudgetFigure::Leaked, BudgetFigure::LeakedBlocks]).then(|| LeaksFold::new(leaks)),
        limits(&[BudgetFigure::Failures]).then(FailuresFold::default),
    )
}

/// Returns whether an input has events and the filters leave none of them that `budgets` limit: a budget
/// that is met then proves nothing.
pub fn select_nothing(budgets: &[Budget], caveats: &Caveats, measured: &Measured) -> bool {
    let need_events = budgets.iter().any(|budget| budget.figure.needs_events());
    // Blocks may be live in a window in which nothing happened.
    let is_held = measured.watermark.as_ref().is_some_and(|watermark| watermark.peak_bytes > 0)
        || measured.leaks.as_ref().is_some_and(|leaks| leaks.leaked_blocks > 0);
    need_events && caveats.events_read > 0 && caveats.events_selected == 0 && !is_held
}

impl Budget {
    /// Returns a budget that limits a figure itself.
    pub fn at_most(name: &str, figure: BudgetFigure, limit: u64) -> Self {
        Self { name: name.to_owned(), figure, limit: Limit::AtMost(limit) }
    }

    /// Checks one input.
    ///
    /// # Errors
    /// If the figure was not measured, or the budget limits a growth.
    pub fn check(&self, measured: &Measured) -> Result<BudgetOutcome, MissingFigure> {
        let actual = self.figure.measured(measured);
        match (self.limit, actual) {
            (Limit::AtMost(_), Some(actual)) => Ok(self.outcome(None, actual)),
            _ => Err(MissingFigure(self.clone())),
        }
    }

    /// Checks a comparison of two inputs.
    ///
    /// # Errors
    /// If a side does not have the figure.
    pub fn check_growth(&self, diff: &Diff) -> Result<BudgetOutcome, MissingFigure> {
        let (before, after) = self.figure.compared(diff).ok_or_else(|| MissingFigure(self.clone()))?;
        Ok(self.outcome(Some(before), after))
    }

    fn outcome(&self, before: Option<u64>, actual: u64) -> BudgetOutcome {
        let base = before.unwrap_or(0);
        let growth = actual.saturating_sub(base);
        let is_violated = match self.limit {
            Limit::AtMost(limit) => actual > limit,
            Limit::GrowthBy(limit) => growth > limit,
            // In whole numbers, so that growth by exactly the percentage is within the budget.
            Limit::GrowthPercentMillionths(limit) => {
                u128::from(growth) * u128::from(100 * MILLION) > u128::from(limit) * u128::from(base)
            }
        };
        BudgetOutcome { budget: self.clone(), before, actual, is_violated }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::Tables;

    use super::*;
    use crate::diff::{DiffEvents, DiffParts, DiffSide};
    use crate::{OriginTotals, PathRules, Stats};

    fn diff(before: u64, after: u64) -> Diff {
        let side = |peak_bytes| {
            let stats = Stats { peak_bytes, ..Stats::default() };
            let parts = DiffParts {
                stats: &stats,
                weights: &OriginTotals::default(),
                watermark: &Watermark::default(),
                leaks: &Leaks::default(),
                tables: &Tables::default(),
            };
            let events = DiffEvents::new(parts, GroupBy::Site, &PathRules::default());
            DiffSide { events: Some(events), run: None, process_peaks: None }
        };
        Diff::new(&side(before), &side(after), GroupBy::Site)
    }

    fn violates(rule: &str, before: u64, after: u64) -> bool {
        rule.parse::<Budget>().unwrap().check_growth(&diff(before, after)).unwrap().is_violated
    }

    #[test]
    fn growth_beyond_the_limit_violates_a_budget() {
        assert!(!violates("growth>5%", 100, 105) && violates("growth>5%", 100, 106));
        assert!(violates("peak>5%", 0, 1) && !violates("peak>5%", 0, 0) && !violates("peak>0", 7, 7));
        assert!(!violates("peak > 1KiB", 0, 1024) && violates("peak>1KiB", 0, 1025));
        assert!(violates("growth>0", 7, 8) && !violates("growth>0", 8, 7));
        assert!(!violates("growth>1000%", u64::MAX, u64::MAX));
        assert!(!violates("growth>0.57%", 10_000, 10_057) && violates("growth>0.57%", 10_000, 10_058));
        assert!(!violates("growth>.000001%", 100_000_000, 100_000_001));
        assert!(violates("growth>0%", u64::MAX - 1, u64::MAX));
    }

    #[test]
    fn a_value_beyond_the_limit_violates_a_budget() {
        let measured = Measured {
            failures: Some(Failures { count: 2, first: None }),
            lost_events: 1,
            ..Measured::default()
        };
        let check = |figure, limit| Budget::at_most("x", figure, limit).check(&measured);
        assert!(check(BudgetFigure::Failures, 1).unwrap().is_violated);
        assert!(!check(BudgetFigure::Failures, 2).unwrap().is_violated);
        assert_eq!(check(BudgetFigure::LostEvents, 0).unwrap().actual, 1);
        assert!(check(BudgetFigure::Peak, 0).is_err(), "no watermark was measured");
        let growth: Budget = "peak>1KiB".parse().unwrap();
        assert!(growth.check(&measured).is_err(), "one input does not grow");
    }

    #[test]
    fn a_figure_that_a_side_does_not_have_is_an_error() {
        let budget: Budget = "rss>0".parse().unwrap();
        assert_eq!(budget.check_growth(&diff(1, 2)), Err(MissingFigure(budget)));
    }

    #[test]
    fn only_what_is_limited_is_measured() {
        let budgets = [Budget::at_most("x", BudgetFigure::LeakedBlocks, 0)];
        let (watermark, leaks, failures) = folds(&budgets, ScopeRoles::default());
        assert!(watermark.is_none() && leaks.is_some() && failures.is_none());
    }
}
