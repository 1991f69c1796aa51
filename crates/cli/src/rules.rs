//! The rules of `check`: one pass finds out about all of them, then each is judged.

use floodmark_analyze::{
    End, Failure, Fold, GroupBy, Leaks, LeaksFold, LeaksOptions, ScopeRoles, SiteRules, Watermark,
    WatermarkFold, WatermarkOptions,
};
use floodmark_event::units::{format_bytes, format_count, format_time_ns};
use floodmark_event::{NO_DEVICE, StringId};
use floodmark_view::blocks::block_line;
use floodmark_view::{Check, Loss, Outcome, Report, Verdict};

/// How many blocks and sites to name.
const CULPRITS: usize = 3;

/// How much is allowed at most; `None` means any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Highest live bytes.
    pub(crate) peak_bytes: Option<u64>,
    /// Bytes live at the end.
    pub(crate) leaked_bytes: Option<u64>,
    /// Blocks live at the end.
    pub(crate) leaked_blocks: Option<u64>,
    /// Failed allocations.
    pub(crate) failures: Option<u64>,
    /// Events known to be missing.
    pub(crate) losses: Option<u64>,
}

/// What was found out about what rules are about.
pub(crate) type Found = (Option<Watermark>, Option<Leaks>, Option<Failures>);

impl Rules {
    /// Starts to find out about what the rules are about, and nothing else.
    pub(crate) fn fold(
        &self,
        scopes: ScopeRoles,
    ) -> (Option<WatermarkFold>, Option<LeaksFold>, Option<FailuresFold>) {
        let watermark = WatermarkOptions {
            group_by: vec![GroupBy::Site],
            limit: Some(CULPRITS),
            ..WatermarkOptions::default()
        };
        let leaks = LeaksOptions { limit: Some(CULPRITS), scopes, ..LeaksOptions::default() };
        (
            self.peak_bytes.map(|_| WatermarkFold::new(watermark)),
            self.leaked_bytes.or(self.leaked_blocks).map(|_| LeaksFold::new(leaks)),
            self.failures.map(|_| FailuresFold::default()),
        )
    }

    /// Whether there are events and none of them is what these rules are about: a rule that holds then says
    /// nothing.
    pub(crate) fn see_nothing(&self, report: &Report<Found>) -> bool {
        let Report { caveats, result: (watermark, leaks, _), .. } = report;
        let is_about_events = *self != Self { losses: self.losses, ..Self::default() };
        // Blocks may be live in a window in which nothing happened.
        let is_held = watermark.as_ref().is_some_and(|watermark| watermark.peak_bytes > 0)
            || leaks.as_ref().is_some_and(|leaks| leaks.leaked_blocks > 0);
        is_about_events && caveats.events_read > 0 && caveats.events_selected == 0 && !is_held
    }

    /// Judges what was found.
    pub(crate) fn judge(&self, (watermark, leaks, failures): Found, losses: &[Loss]) -> Check {
        let mut rules = Vec::new();
        if let (Some(limit), Some(watermark)) = (self.peak_bytes, &watermark) {
            rules.push(peak(limit, watermark));
        }
        if let (Some(limit), Some(leaks)) = (self.leaked_bytes, &leaks) {
            rules.push(leak(limit, leaks));
        }
        if let (Some(limit), Some(leaks)) = (self.leaked_blocks, &leaks) {
            rules.push(leaked_blocks(limit, leaks));
        }
        if let (Some(limit), Some(failures)) = (self.failures, &failures) {
            rules.push(failed(limit, failures));
        }
        if let Some(limit) = self.losses {
            rules.push(lost(limit, losses));
        }
        Check { passed: rules.iter().all(|rule| rule.verdict == Verdict::Ok), rules }
    }
}

/// A limit and what there is, in words made by `amount`.
fn outcome(rule: &str, what: &str, limit: u64, actual: u64, amount: fn(u64) -> String) -> Outcome {
    let verdict = if actual <= limit { Verdict::Ok } else { Verdict::Broken };
    let allowed =
        if limit == 0 { "none is allowed".to_owned() } else { format!("{} allowed", amount(limit)) };
    Outcome {
        rule: rule.to_owned(),
        verdict,
        limit,
        actual,
        summary: format!("{what} {}, {allowed}", amount(actual)),
        culprits: Vec::new(),
    }
}

/// Names who breaks a rule, if it is broken.
fn blame(mut outcome: Outcome, culprits: impl FnOnce() -> Vec<String>) -> Outcome {
    if outcome.verdict == Verdict::Broken {
        outcome.culprits = culprits();
    }
    outcome
}

fn peak(limit: u64, watermark: &Watermark) -> Outcome {
    let outcome = outcome("max-peak", "peak", limit, watermark.peak_bytes, exact_bytes);
    blame(outcome, || {
        let mut culprits = Vec::new();
        if let Some(time_ns) = watermark.peak_time_ns {
            culprits.push(format!(
                "reached at {} with {} live",
                format_time_ns(time_ns),
                blocks(watermark.reported_blocks)
            ));
        }
        let sites = watermark.groups.iter().flat_map(|grouping| &grouping.groups);
        let known: Vec<String> = sites
            .filter(|group| group.key != floodmark_analyze::site::NO_SITE)
            .take(CULPRITS)
            .map(|group| {
                format!("{} in {} from {}", format_bytes(group.bytes), blocks(group.blocks), group.key)
            })
            .collect();
        if known.is_empty() {
            culprits.extend(watermark.blocks.iter().map(block_line));
        } else {
            culprits.extend(known);
        }
        culprits
    })
}

fn leak(limit: u64, leaks: &Leaks) -> Outcome {
    let outcome = outcome("max-leak", "live at the end", limit, leaks.leaked_bytes, exact_bytes);
    blame(outcome, || leaked(leaks))
}

fn leaked_blocks(limit: u64, leaks: &Leaks) -> Outcome {
    let outcome =
        outcome("max-leaked-blocks", "blocks live at the end:", limit, leaks.leaked_blocks, format_count);
    blame(outcome, || leaked(leaks))
}

fn leaked(leaks: &Leaks) -> Vec<String> {
    let mut culprits: Vec<String> = leaks.blocks.iter().map(|leak| block_line(&leak.block)).collect();
    if leaks.blocks_omitted > 0 {
        culprits.push(format!("and {} more", format_count(leaks.blocks_omitted)));
    }
    culprits
}

fn failed(limit: u64, failures: &Failures) -> Outcome {
    let outcome = outcome("no-failures", "failed allocations:", limit, failures.count, format_count);
    blame(outcome, || failures.first.iter().cloned().collect())
}

fn lost(limit: u64, losses: &[Loss]) -> Outcome {
    // An unknown number is at least one.
    let count = losses.iter().map(|loss| loss.count.max(1)).sum();
    let outcome = outcome("no-losses", "events lost:", limit, count, format_count);
    blame(outcome, || losses.iter().map(Loss::sentence).collect())
}

fn blocks(count: u64) -> String {
    if count == 1 { "1 block".into() } else { format!("{} blocks", format_count(count)) }
}

fn exact_bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format_bytes(bytes);
    }
    format!("{} ({} bytes)", format_bytes(bytes), format_count(bytes))
}

/// Failed allocations: how many, and the first in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    count: u64,
    first: Option<String>,
}

/// Folds events into [`Failures`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FailuresFold {
    count: u64,
    first: Option<Failure>,
}

impl Fold for FailuresFold {
    type Output = Failures;

    fn failure(&mut self, failure: &Failure) {
        self.count += 1;
        self.first.get_or_insert(*failure);
    }

    fn finish(&self, end: &End<'_>) -> Failures {
        let first = self.first.map(|failure| {
            let mut text = format!(
                "first: {} at {}, thread {}, stream {:#x}",
                format_bytes(failure.bytes),
                format_time_ns(failure.time_ns),
                failure.thread,
                failure.stream
            );
            let device = end.live.space(failure.space).device;
            if device != NO_DEVICE {
                text = format!("{text}, device {device}");
            }
            if failure.stack.0 != 0 {
                let site = SiteRules::default().site(failure.stack, StringId::default(), end.tables);
                text = format!("{text}, in {site}");
            }
            text
        });
        Failures { count: self.count, first }
    }
}
