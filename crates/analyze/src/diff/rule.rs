//! Rules that a comparison can break, such as `growth>5%`.
//!
//! A rule names a figure and by how much it may grow. In percent it is of the figure before: a figure
//! that was 0 and is not any more has grown by more than any percentage.

use std::fmt;
use std::str::FromStr;

use floodmark_event::units::{format_bytes, format_count, parse_bytes};
use serde::{Serialize, Serializer};

use super::{Diff, Figure};

/// The figure a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleFigure {
    /// Peak bytes of allocations; where either side has none, peak resident bytes.
    Growth,
    /// Peak bytes of allocations.
    Peak,
    /// Bytes live at the end.
    Live,
    /// Bytes live at the end that are leaks or candidates.
    Leaked,
    /// Number of allocations.
    Allocations,
    /// Peak resident bytes of all processes.
    Rss,
}

impl RuleFigure {
    const ALL: [Self; 6] = [Self::Growth, Self::Peak, Self::Live, Self::Leaked, Self::Allocations, Self::Rss];

    /// The word for it in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Growth => "growth",
            Self::Peak => "peak",
            Self::Live => "live",
            Self::Leaked => "leaked",
            Self::Allocations => "allocations",
            Self::Rss => "rss",
        }
    }

    /// What it is, in words.
    const fn words(self) -> &'static str {
        match self {
            Self::Growth | Self::Peak => "the peak",
            Self::Live => "what is live at the end",
            Self::Leaked => "what leaks",
            Self::Allocations => "the number of allocations",
            Self::Rss => "the peak of resident memory",
        }
    }

    /// Both values; none if a side does not have it.
    fn values(self, diff: &Diff) -> Option<(u64, u64)> {
        let both = |figure| diff.figure(figure).and_then(|change| change.before.zip(change.after));
        match self {
            Self::Growth => both(Figure::PeakBytes).or_else(|| both(Figure::PeakRssBytes)),
            Self::Peak => both(Figure::PeakBytes),
            Self::Live => both(Figure::LiveBytes),
            Self::Leaked => both(Figure::LeakedBytes),
            Self::Allocations => both(Figure::Allocations),
            Self::Rss => both(Figure::PeakRssBytes),
        }
    }

    fn text(self, value: u64) -> String {
        if self == Self::Allocations { format_count(value) } else { format_bytes(value) }
    }
}

/// By how much a figure may grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// By so many bytes, or allocations.
    By(u64),
    /// By so many millionths of a percent of what it was.
    PercentMillionths(u64),
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// As it was written.
    pub text: String,
    /// The figure.
    pub figure: RuleFigure,
    /// By how much it may grow.
    pub threshold: Threshold,
}

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Broken {
    /// The rule.
    pub rule: Rule,
    /// The figure before.
    pub before: u64,
    /// The figure after.
    pub after: u64,
    /// What happened, as a sentence without its period.
    pub sentence: String,
}

/// A rule is about a figure that is not known of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleError(pub Rule);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = match self.0.figure {
            RuleFigure::Rss => "resident memory is known of runs that were sampled",
            RuleFigure::Growth => "one input has allocations and the other one samples of processes",
            _ => "it is known of inputs that have allocations",
        };
        write!(f, "'{}' cannot be checked: {about}", self.0)
    }
}

impl std::error::Error for RuleError {}

const MILLION: u64 = 1_000_000;

/// A number with up to six decimals, in millionths.
fn millionths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + decimals.len() == 0 || !is_number(whole) || !is_number(decimals) || decimals.len() > 6 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let decimals: u64 = format!("{decimals:0<6}").parse().ok()?;
    whole.checked_mul(MILLION)?.checked_add(decimals)
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || RuleFigure::ALL.map(RuleFigure::name).join(", ");
        let bad = || {
            format!("write a rule such as 'growth>5%', 'peak>10MiB' or 'leaked>0'; figures are {}", names())
        };
        let (name, limit) = text.split_once('>').ok_or_else(bad)?;
        let name = name.trim();
        let figure = RuleFigure::ALL.into_iter().find(|figure| figure.name() == name).ok_or_else(bad)?;
        let limit = limit.trim();
        let threshold = if let Some(percent) = limit.strip_suffix('%') {
            Threshold::PercentMillionths(millionths(percent.trim()).ok_or_else(bad)?)
        } else if figure == RuleFigure::Allocations {
            Threshold::By(limit.replace(',', "").parse().map_err(|_| {
                "allocations are counted: write 'allocations>1000' or 'allocations>5%'".to_owned()
            })?)
        } else {
            Threshold::By(parse_bytes(limit).map_err(|_| bad())?)
        };
        Ok(Self { text: text.to_owned(), figure, threshold })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Rule {
    /// Checks a comparison; none if the rule holds.
    ///
    /// # Errors
    /// If a side does not have the figure.
    pub fn check(&self, diff: &Diff) -> Result<Option<Broken>, RuleError> {
        let (before, after) = self.figure.values(diff).ok_or_else(|| RuleError(self.clone()))?;
        let growth = after.saturating_sub(before);
        let is_broken = match self.threshold {
            Threshold::By(by) => growth > by,
            // In whole numbers, so that a growth of exactly the percentage is none too many.
            Threshold::PercentMillionths(by) => {
                u128::from(growth) * u128::from(100 * MILLION) > u128::from(by) * u128::from(before)
            }
        };
        if !is_broken {
            return Ok(None);
        }
        let shown = |value| self.figure.text(value);
        let share = if before == 0 {
            "from nothing".to_owned()
        } else {
            format!("{:.1} %", growth as f64 / before as f64 * 100.0)
        };
        let sentence = format!(
            "'{self}' is broken: {} grew by {} ({share}), from {} to {}",
            self.figure.words(),
            shown(growth),
            shown(before),
            shown(after)
        );
        Ok(Some(Broken { rule: self.clone(), before, after, sentence }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{DiffEvents, DiffSide};
    use crate::{GroupBy, Stats};

    fn diff(before: u64, after: u64) -> Diff {
        let side = |peak_bytes| {
            let stats = Stats { peak_bytes, ..Stats::default() };
            DiffSide { events: Some(DiffEvents { stats, ..DiffEvents::default() }), run: None }
        };
        Diff::new(&side(before), &side(after), GroupBy::Site)
    }

    fn breaks(rule: &str, before: u64, after: u64) -> bool {
        rule.parse::<Rule>().unwrap().check(&diff(before, after)).unwrap().is_some()
    }

    #[test]
    fn a_rule_is_broken_by_more_than_it_allows() {
        assert!(!breaks("growth>5%", 100, 105) && breaks("growth>5%", 100, 106));
        assert!(breaks("peak>5%", 0, 1) && !breaks("peak>5%", 0, 0) && !breaks("peak>0", 7, 7));
        assert!(!breaks("peak > 1KiB", 0, 1024) && breaks("peak>1KiB", 0, 1025));
        assert!(breaks("growth>0", 7, 8) && !breaks("growth>0", 8, 7));
        assert!(!breaks("growth>1000%", u64::MAX, u64::MAX));
        assert!(!breaks("growth>0.57%", 10_000, 10_057) && breaks("growth>0.57%", 10_000, 10_058));
        assert!(!breaks("growth>.000001%", 100_000_000, 100_000_001));
        assert!(breaks("growth>0%", u64::MAX - 1, u64::MAX));
    }

    #[test]
    fn a_broken_rule_says_which_and_by_how_much() {
        let rule: Rule = "peak>10MiB".parse().unwrap();
        let broken = rule.check(&diff(100 << 20, 125 << 20)).unwrap().unwrap();
        assert_eq!(
            broken.sentence,
            "'peak>10MiB' is broken: the peak grew by 25.0 MiB (25.0 %), from 100.0 MiB to 125.0 MiB"
        );
    }

    #[test]
    fn what_is_no_rule_is_refused_and_what_is_not_known_is_an_error() {
        for text in [
            "peak>1e3%",
            "peak>.%",
            "peak>0.0000001%",
            "peak>99999999999999%",
            "",
            "growth",
            "growth<5%",
            "size>5%",
            "peak>-1%",
            "peak>NaN%",
            "peak>much",
            "allocations>5MiB",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
        let rule: Rule = "rss>0".parse().unwrap();
        assert_eq!(rule.check(&diff(1, 2)), Err(RuleError(rule)));
    }
}
