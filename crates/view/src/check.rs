//! Outcomes of budgets in words: limits, what was measured, and what exceeds a limit.

use floodmark_analyze::budget::{BudgetFigure, BudgetOutcome, Limit, MAX_CULPRITS, Measured};
use floodmark_analyze::{FailedAllocation, Leaks, Watermark};
use floodmark_event::units::{format_bytes, format_count, format_time_ns};
use floodmark_inspect::Loss;
pub use floodmark_inspect::compare::growth_sentence;

use crate::blocks::{NO_SITE, block_line};
use crate::figures::{counted, instant_exactly};
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::{View, loss_sentence};
use crate::table::wrap_after;

/// Column in which sentences begin, after the verdict.
const INDENT: usize = 10;

/// Budgets that were checked against one input.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Check {
    /// Whether every budget is met.
    pub passed: bool,
    /// Outcome of each budget.
    pub rules: Vec<Outcome>,
}

/// Whether a budget is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The limit is not exceeded.
    Ok,
    /// The limit is exceeded.
    Broken,
}

/// Outcome of one budget.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Option that states the limit, such as `max-peak`.
    pub rule: String,
    /// Whether the budget is met.
    pub verdict: Verdict,
    /// Highest value that is allowed, in bytes or as a count.
    pub limit: u64,
    /// Value that was measured, in the same unit.
    pub actual: u64,
    /// Both in words: `peak 3.42 KiB (limit 20.0 GiB)`.
    pub summary: String,
    /// What exceeds the limit, most important first; empty if nothing does.
    pub culprits: Vec<String>,
}

impl Check {
    /// Describes outcomes of budgets on one input.
    pub fn new(outcomes: &[BudgetOutcome], measured: &Measured, losses: &[Loss]) -> Self {
        let rules = outcomes.iter().map(|outcome| describe(outcome, measured, losses)).collect();
        Self { passed: !outcomes.iter().any(|outcome| outcome.is_violated), rules }
    }
}

fn describe(outcome: &BudgetOutcome, measured: &Measured, losses: &[Loss]) -> Outcome {
    let (figure, actual) = (outcome.budget.figure, outcome.actual);
    let is_rss = figure == BudgetFigure::Peak && measured.peak_rss_bytes.is_some();
    let (Limit::AtMost(limit) | Limit::GrowthBy(limit) | Limit::GrowthPercentMillionths(limit)) =
        outcome.budget.limit;
    Outcome {
        rule: outcome.budget.name.clone(),
        verdict: if outcome.is_violated { Verdict::Broken } else { Verdict::Ok },
        limit,
        actual,
        summary: summary(if is_rss { BudgetFigure::Rss } else { figure }, actual, limit),
        culprits: if outcome.is_violated { culprits(figure, measured, losses) } else { Vec::new() },
    }
}

fn summary(figure: BudgetFigure, actual: u64, limit: u64) -> String {
    let (amount, most) = amounts(figure, actual, limit);
    let s = if actual == 1 { "" } else { "s" };
    let found = match figure {
        BudgetFigure::Growth | BudgetFigure::Peak => format!("peak {amount}"),
        BudgetFigure::Live | BudgetFigure::Leaked => format!("{amount} live at the end"),
        BudgetFigure::LeakedBlocks => format!("{amount} block{s} live at the end"),
        BudgetFigure::Allocations => format!("{amount} allocation{s}"),
        BudgetFigure::Failures => format!("{amount} failed allocation{s}"),
        BudgetFigure::LostEvents => format!("{amount} lost event{s}"),
        BudgetFigure::Rss => format!("peak RSS {amount}"),
    };
    format!("{found} (limit {most})")
}

/// Formats a value and its limit; to the byte where rounding would make them look the same.
fn amounts(figure: BudgetFigure, actual: u64, limit: u64) -> (String, String) {
    if !figure.is_bytes() {
        return (format_count(actual), format_count(limit));
    }
    let (amount, most) = (format_bytes(actual), format_bytes(limit));
    if limit == 0 {
        return (amount, "0".into());
    }
    if amount == most && actual != limit {
        return (counted(actual, "byte"), counted(limit, "byte"));
    }
    (amount, most)
}

fn culprits(figure: BudgetFigure, measured: &Measured, losses: &[Loss]) -> Vec<String> {
    match figure {
        BudgetFigure::Growth | BudgetFigure::Peak => {
            let watermark = measured.watermark.as_ref().filter(|_| measured.peak_rss_bytes.is_none());
            watermark.map(holders).unwrap_or_default()
        }
        BudgetFigure::Live | BudgetFigure::Leaked | BudgetFigure::LeakedBlocks => {
            measured.leaks.as_ref().map(leaked).unwrap_or_default()
        }
        BudgetFigure::Failures => {
            let first = measured.failures.as_ref().and_then(|failures| failures.first.as_ref());
            first.map(failure).into_iter().collect()
        }
        BudgetFigure::LostEvents => losses.iter().filter(|loss| !loss.is_remark).map(loss_sentence).collect(),
        BudgetFigure::Allocations | BudgetFigure::Rss => Vec::new(),
    }
}

/// Names the peak's instant, and the sites or blocks that held most.
fn holders(watermark: &Watermark) -> Vec<String> {
    let mut culprits = Vec::new();
    if let Some(time_ns) = watermark.peak_time_ns {
        let blocks = counted(watermark.reported_blocks, "block");
        culprits.push(format!(
            "reached at {} with {blocks} live",
            instant_exactly(time_ns, watermark.origin_time_ns)
        ));
    }
    let sites = watermark.groups.iter().flat_map(|grouping| &grouping.groups);
    let known: Vec<String> = sites
        .filter(|group| group.key != NO_SITE)
        .take(MAX_CULPRITS)
        .map(|group| {
            format!("{} in {} from {}", format_bytes(group.bytes), counted(group.blocks, "block"), group.key)
        })
        .collect();
    if known.is_empty() {
        culprits.extend(watermark.blocks.iter().map(block_line));
    } else {
        culprits.extend(known);
    }
    culprits
}

fn leaked(leaks: &Leaks) -> Vec<String> {
    let mut culprits: Vec<String> = leaks.blocks.iter().map(|leak| block_line(&leak.block)).collect();
    if leaks.blocks_omitted > 0 {
        culprits.push(format!("and {} more", format_count(leaks.blocks_omitted)));
    }
    culprits
}

fn failure(failure: &FailedAllocation) -> String {
    let mut text = format!(
        "first: {} at {}, thread {}, stream {:#x}",
        format_bytes(failure.bytes),
        format_time_ns(failure.time_ns),
        failure.thread,
        failure.stream
    );
    if let Some(device) = failure.device {
        text = format!("{text}, device {device}");
    }
    if let Some(site) = &failure.site {
        text = format!("{text}, in {site}");
    }
    text
}

impl View for Check {
    const SCHEMA: &'static str = "floodmark.check/1";

    fn body(&self, layout: &Layout) -> String {
        let palette = &layout.palette;
        let mut text = Lines::default();
        for outcome in &self.rules {
            let (word, style) = match outcome.verdict {
                Verdict::Ok => ("ok    ", palette.good),
                Verdict::Broken => ("BROKEN", palette.bad),
            };
            let lead = format!("  {}  ", styled(style, word));
            text.line(wrap_after(&lead, INDENT, &plain(&outcome.summary), layout.width));
            for culprit in &outcome.culprits {
                let lead = format!("{:INDENT$}", "");
                text.line(wrap_after(&lead, INDENT + 2, &plain(culprit), layout.width));
            }
        }
        text.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_states_the_value_and_its_limit() {
        assert_eq!(summary(BudgetFigure::Failures, 1, 0), "1 failed allocation (limit 0)");
        assert_eq!(summary(BudgetFigure::LostEvents, 0, 0), "0 lost events (limit 0)");
        assert_eq!(summary(BudgetFigure::Peak, 3500, 3072), "peak 3.42 KiB (limit 3.00 KiB)");
        assert_eq!(summary(BudgetFigure::Leaked, 756, 0), "756 B live at the end (limit 0)");
        assert_eq!(summary(BudgetFigure::LeakedBlocks, 2, 1), "2 blocks live at the end (limit 1)");
    }

    #[test]
    fn values_that_look_the_same_are_given_to_the_byte() {
        let limit = 20 << 30;
        assert_eq!(
            summary(BudgetFigure::Peak, limit + 1, limit),
            "peak 21,474,836,481 bytes (limit 21,474,836,480 bytes)"
        );
        assert_eq!(summary(BudgetFigure::Peak, limit, limit), "peak 20.0 GiB (limit 20.0 GiB)");
    }

    #[test]
    fn a_growth_is_described_with_both_values() {
        let outcome = BudgetOutcome {
            budget: "peak>10MiB".parse().unwrap(),
            before: Some(100 << 20),
            actual: 125 << 20,
            is_violated: true,
        };
        assert_eq!(
            growth_sentence(&outcome),
            "'peak>10MiB' is broken: the peak grew by 25.0 MiB (25.0 %), from 100.0 MiB to 125.0 MiB"
        );
    }
}
