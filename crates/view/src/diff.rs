//! What changed between two inputs.

pub mod page;

use floodmark_analyze::{Diff, Figure, FigureChange, GroupBy, GroupChange, LeakChange, Presence};
use floodmark_event::units::{format_bytes, format_count, format_duration_ns, format_elapsed_ns};
use floodmark_inspect::compare::{Compared, PerProcess, Side};

use crate::figures::counted;
use crate::flame::relative;
use crate::layout::{Layout, Lines, styled};
use crate::report::{View, caveat_sentences, loss_sentence};
use crate::table::{Cell, Column, Table, omitted, wrap_after};
use crate::usage::kinds_in_words;

impl View for Compared {
    const SCHEMA: &'static str = "floodmark.diff/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        if self.diff.is_empty() {
            text.line("nothing changed");
        }
        if let Some(per_process) = &self.per_process {
            text.line(note(&divided(per_process), layout));
        }
        text.block(figure_table(&self.diff.figures, layout));
        if let Some(sentence) = kinds_differ(self) {
            text.line(note(&sentence, layout));
        }
        if !self.diff.groups.is_empty() {
            text.blank();
            text.styled(layout.palette.title, groups_title(self.diff.by));
            text.block(group_table(&self.diff, layout));
        }
        if !self.diff.leaks.is_empty() {
            text.blank();
            text.styled(layout.palette.title, "Leaks that are new or grew");
            text.block(leak_table(&self.diff.leaks, layout));
        }
        let doubts = doubts(self);
        if !doubts.is_empty() {
            text.blank();
        }
        for doubt in doubts {
            text.line(note(&doubt, layout));
        }
        text.text()
    }
}

/// Says what the figures of jobs are.
fn divided(per_process: &PerProcess) -> String {
    let PerProcess { before, after, bounds } = per_process;
    let mut text = format!("figures are per process; the first job has {before} of them, the second {after}");
    if *bounds {
        text.push_str(
            "; the peak of a job that was not searched for is an upper bound, and its holders are not known",
        );
    }
    text
}

/// Says so where the sides are about different memory.
fn kinds_differ(compared: &Compared) -> Option<String> {
    let (before, after) = (&compared.diff.kinds_before, &compared.diff.kinds_after);
    (before != after && !before.is_empty() && !after.is_empty()).then(|| {
        format!(
            "the first is about {} memory and the second about {} memory; --kind chooses one for both",
            kinds_in_words(before),
            kinds_in_words(after)
        )
    })
}

/// What makes figures of either side less certain, in sentences.
fn doubts(compared: &Compared) -> Vec<String> {
    let of = |side: &Side, which: &str| -> Vec<String> {
        let losses = side.losses.iter().map(loss_sentence);
        caveat_sentences(&side.caveats)
            .into_iter()
            .chain(losses)
            .map(|doubt| format!("{which}: {doubt}"))
            .collect()
    };
    [of(&compared.before, "first"), of(&compared.after, "second")].concat()
}

fn note(sentence: &str, layout: &Layout) -> String {
    let lead = format!("{} ", styled(layout.palette.doubtful, "note:"));
    wrap_after(&lead, 6, sentence, layout.width)
}

fn groups_title(by: GroupBy) -> String {
    format!("Held at the peak, by {}", by.name())
}

/// What a figure is called.
fn name(figure: Figure) -> &'static str {
    match figure {
        Figure::PeakBytes => "peak",
        Figure::PeakTimeNs => "time of the peak",
        Figure::PeakBlocks => "blocks at the peak",
        Figure::LiveBytes => "live at the end",
        Figure::LeakedBytes => "leaked",
        Figure::LeakedBlocks => "leaked blocks",
        Figure::Allocations => "allocations",
        Figure::AllocatedBytes => "allocated in all",
        Figure::Failures => "failed allocations",
        Figure::DurationNs => "duration",
        Figure::PeakRssBytes => "peak RSS",
        Figure::PeakRssTimeNs => "time of the peak RSS",
        Figure::PeakPssBytes => "peak PSS",
        Figure::MedianProcessPeakBytes => "median peak of a process",
        Figure::HighestProcessPeakBytes => "highest peak of a process",
    }
}

fn value(figure: Figure, value: u64) -> String {
    match figure {
        Figure::PeakBytes
        | Figure::LiveBytes
        | Figure::LeakedBytes
        | Figure::AllocatedBytes
        | Figure::PeakRssBytes
        | Figure::PeakPssBytes
        | Figure::MedianProcessPeakBytes
        | Figure::HighestProcessPeakBytes => format_bytes(value),
        Figure::PeakBlocks | Figure::LeakedBlocks | Figure::Allocations | Figure::Failures => {
            format_count(value)
        }
        Figure::DurationNs => format_duration_ns(value),
        Figure::PeakTimeNs | Figure::PeakRssTimeNs => {
            format_elapsed_ns(i64::try_from(value).unwrap_or(i64::MAX))
        }
    }
}

/// Whether a figure is an instant, of which a percentage says nothing.
fn is_instant(figure: Figure) -> bool {
    matches!(figure, Figure::PeakTimeNs | Figure::PeakRssTimeNs)
}

/// Whether more of a figure is neither better nor worse.
fn is_time(figure: Figure) -> bool {
    is_instant(figure) || figure == Figure::DurationNs
}

/// The cells of a figure: name, before, after, change, in percent.
fn figure_cells(change: &FigureChange) -> [String; 5] {
    let FigureChange { figure, before, after, .. } = *change;
    let shown = |one: Option<u64>| one.map_or_else(|| "-".into(), |one| value(figure, one));
    let both = before.zip(after);
    let by = |by: u64| if is_time(figure) { format_duration_ns(by) } else { value(figure, by) };
    let difference = both.map_or_else(String::new, |(before, after)| match after.cmp(&before) {
        std::cmp::Ordering::Equal => "=".into(),
        std::cmp::Ordering::Greater => format!("+{}", by(after - before)),
        std::cmp::Ordering::Less => format!("−{}", by(before - after)),
    });
    let share = both
        .filter(|_| !is_instant(figure))
        .and_then(|(before, after)| relative(before, after))
        .unwrap_or_default();
    [name(figure).into(), shown(before), shown(after), difference, share]
}

fn figure_table(figures: &[FigureChange], layout: &Layout) -> String {
    let mut table = Table::new([
        Column::text(""),
        Column::figure("before"),
        Column::figure("after"),
        Column::figure("change"),
        Column::figure("").rank(1),
    ]);
    for figure in figures.iter().filter(|figure| is_worth_showing(figure)) {
        let [name, before, after, change, share] = figure_cells(figure);
        let style = match figure.change {
            Some(1..) if !is_time(figure.figure) => layout.palette.doubtful,
            _ => anstyle::Style::new(),
        };
        table.row([
            Cell::from(name),
            Cell::from(before),
            Cell::from(after),
            Cell::from(change).styled(style),
            Cell::from(share).styled(style),
        ]);
    }
    table.text(layout)
}

/// That nothing failed in either is not worth a line.
fn is_worth_showing(change: &FigureChange) -> bool {
    change.figure != Figure::Failures || change.before.max(change.after) != Some(0)
}

/// What a group is called: its place, and where it was before if the line moved.
fn group_name(group: &GroupChange, by: GroupBy) -> String {
    let key = match by {
        GroupBy::Size => group.key.parse().map_or_else(|_| group.key.clone(), format_bytes),
        _ => group.key.clone(),
    };
    match group.key_before.as_deref().and_then(line_of) {
        Some(line) => format!("{key} (was line {line})"),
        None => key,
    }
}

/// The line of a place such as `load (app.py:9)`, if it has one.
fn line_of(place: &str) -> Option<&str> {
    let line = place.strip_suffix(')')?.rsplit(':').next()?;
    (!line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())).then_some(line)
}

/// How a group changed, in a word or percent.
fn manner(presence: Presence, before: u64, after: u64) -> String {
    match presence {
        Presence::New => "new".into(),
        Presence::Gone => "gone".into(),
        Presence::Both => relative(before, after).unwrap_or_default(),
    }
}

pub(crate) fn signed(change: i64) -> String {
    let bytes = format_bytes(change.unsigned_abs());
    match change {
        0 => "=".into(),
        1.. => format!("+{bytes}"),
        ..0 => format!("−{bytes}"),
    }
}

fn group_table(diff: &Diff, layout: &Layout) -> String {
    let (shown, left) = layout.first(&diff.groups);
    let mut table = Table::new([
        Column::long(diff.by.name()),
        Column::figure("before"),
        Column::figure("after"),
        Column::figure("change"),
        Column::figure(""),
        Column::figure("blocks").rank(1),
    ]);
    for group in shown {
        let style = match group.change_bytes {
            1.. => layout.palette.doubtful,
            ..0 => layout.palette.good,
            0 => anstyle::Style::new(),
        };
        table.row([
            Cell::from(group_name(group, diff.by)),
            Cell::from(format_bytes(group.before.bytes)),
            Cell::from(format_bytes(group.after.bytes)),
            Cell::from(signed(group.change_bytes)).styled(style),
            Cell::from(manner(group.presence, group.before.bytes, group.after.bytes)).styled(style),
            Cell::from(format!(
                "{} → {}",
                format_count(group.before.blocks),
                format_count(group.after.blocks)
            )),
        ]);
    }
    let mut text = table.text(layout) + &omitted(left, layout);
    if diff.groups_unchanged > 0 {
        let line = format!("  {} the same in both", counted(diff.groups_unchanged, "group"));
        text += &styled(layout.palette.faint, line);
        text.push('\n');
    }
    text
}

fn leak_table(leaks: &[LeakChange], layout: &Layout) -> String {
    let (shown, left) = layout.first(leaks);
    let mut table = Table::new([
        Column::long("site"),
        Column::figure("before"),
        Column::figure("after"),
        Column::figure("change"),
        Column::text("").rank(1),
        Column::text("verdict").rank(2),
    ]);
    for leak in shown {
        table.row([
            Cell::from(&leak.site),
            Cell::from(format_bytes(leak.before.bytes)),
            Cell::from(format_bytes(leak.after.bytes)),
            Cell::from(signed(leak.change_bytes)).styled(layout.palette.doubtful),
            Cell::from(if leak.presence == Presence::New { "new" } else { "grew" }),
            Cell::from(leak.verdict.name()),
        ]);
    }
    table.text(layout) + &omitted(left, layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_place_was_is_told_if_its_line_is_known() {
        let name = |before: &str| {
            let group = GroupChange {
                key: "load (a.py:7)".into(),
                key_before: Some(before.into()),
                presence: Presence::Both,
                before: floodmark_analyze::Totals::default(),
                after: floodmark_analyze::Totals::default(),
                change_bytes: 0,
            };
            group_name(&group, GroupBy::Site)
        };
        assert_eq!(name("load (a.py:9)"), "load (a.py:7) (was line 9)");
        assert_eq!(name("load (a.py)"), "load (a.py:7)");
        assert_eq!(name("f(std::pair)"), "load (a.py:7)");
    }
}
