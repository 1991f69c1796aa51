//! Checks: rules, whether they hold, and who breaks them.

use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::View;
use crate::table::wrap_after;

/// Where sentences begin: after the verdict.
const INDENT: usize = 10;

/// Rules that were checked against one input.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Check {
    /// Whether every rule holds.
    pub passed: bool,
    /// What came of each rule.
    pub rules: Vec<Outcome>,
}

/// Whether a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It holds.
    Ok,
    /// It does not.
    Broken,
}

/// What came of one rule.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// The option that states it, as in `max-peak`.
    pub rule: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// What the rule allows, in bytes or as a count.
    pub limit: u64,
    /// What there is, in the same unit.
    pub actual: u64,
    /// Both in words: `peak 3.42 KiB, limit 20.0 GiB`.
    pub summary: String,
    /// Who breaks it, most important first; empty if it holds.
    pub culprits: Vec<String>,
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
