//! Which instant of an input is 0.

use floodmark_event::units::NS_PER_DAY;
use regex::Regex;

use super::{Gathered, Role, Series};
use crate::error::{Error, Result};
use crate::input::Input;

/// Which instants of inputs are put above each other.
#[derive(Clone, Debug)]
pub enum Align {
    /// Their origins: the start of a run, the first event of a log.
    Start,
    /// Those of the same time.
    Clock,
    /// The first mark or line of output that matches.
    Mark(Regex),
}

impl PartialEq for Align {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mark(one), Self::Mark(other)) => one.as_str() == other.as_str(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Parses `start`, `clock` or `mark:PATTERN`.
///
/// # Errors
/// What is wrong with `text`.
pub fn parse_align(text: &str) -> std::result::Result<Align, String> {
    match (text, text.strip_prefix("mark:")) {
        ("start", _) => Ok(Align::Start),
        ("clock", _) => Ok(Align::Clock),
        (_, Some(pattern)) => Regex::new(pattern).map(Align::Mark).map_err(|error| {
            // The last of several lines; those above show the pattern.
            error.to_string().lines().last().unwrap_or_default().to_owned()
        }),
        _ => Err("write start, clock or mark:PATTERN".into()),
    }
}

impl Align {
    /// The instant that becomes 0.
    pub(super) fn zero_ns(&self, one: &Gathered, input: &Input) -> Result<i64> {
        match self {
            Self::Clock => Ok(0),
            Self::Start => Ok(one.origin_ns.or_else(|| one.first_ns()).unwrap_or(0)),
            Self::Mark(pattern) => {
                let all = one.marks.iter().chain(&one.output);
                let matches = all.filter(|marked| marked.lines.iter().any(|line| pattern.is_match(line)));
                matches.map(|marked| marked.time_ns).min().ok_or_else(|| {
                    Error::no_content(
                        format!("{} contains no mark and no output that matches '{pattern}'", input.name()),
                        format!("'floodmark read --stdout {}' shows both", input.name()),
                    )
                })
            }
        }
    }
}

/// Puts what another tool reported onto the time of an input; returns what has to be said about that.
///
/// Logs without dates have the time of day only; then the other's day is taken away. Where the two never
/// meet, clocks are of no use, and both begin at once.
pub(super) fn put_beside(others: &mut [Series], span: Option<(i64, i64)>) -> Option<String> {
    let (from_ns, to_ns) = span?;
    let start = |others: &[Series]| others.iter().filter_map(|s| s.points.first()).map(|p| p.time_ns).min();
    let first_ns = start(others)?;
    let mut by_ns = 0;
    if from_ns < 31 * NS_PER_DAY && first_ns >= 31 * NS_PER_DAY {
        by_ns = first_ns.div_euclid(NS_PER_DAY) * NS_PER_DAY - from_ns.div_euclid(NS_PER_DAY) * NS_PER_DAY;
    }
    let last_ns = others.iter().map(|series| series.end_ns).max()?;
    let earlier = |time_ns: i64, by_ns: i64| time_ns.saturating_sub(by_ns);
    let meets = earlier(first_ns, by_ns) <= to_ns && earlier(last_ns, by_ns) >= from_ns;
    if !meets {
        by_ns = earlier(first_ns, from_ns);
    }
    for series in others {
        series.role = Role::Beside;
        for point in &mut series.points {
            point.time_ns = earlier(point.time_ns, by_ns);
        }
        series.end_ns = earlier(series.end_ns, by_ns);
        // What it saw long before and after would make the rest small.
        let around = earlier(to_ns, from_ns) / 10;
        clip(series, from_ns.saturating_sub(around), to_ns.saturating_add(around));
    }
    (!meets).then(|| {
        "times of nvidia-smi do not meet those of the input; both begin at the start (see --utc-offset)"
            .into()
    })
}

/// Keeps what lies between two instants.
fn clip(series: &mut Series, from_ns: i64, to_ns: i64) {
    let before = series.points.iter().rev().find(|point| point.time_ns < from_ns).copied();
    series.points.retain(|point| (from_ns..=to_ns).contains(&point.time_ns));
    if let Some(mut point) = before {
        point.time_ns = from_ns;
        series.points.insert(0, point);
    }
    series.end_ns = series.end_ns.min(to_ns);
}
