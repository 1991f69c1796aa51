//! Usage: live bytes over time, as a chart or as data.

use std::fmt::Write as _;

use floodmark_analyze::{Usage, UsagePoint};
use floodmark_event::Kind;
use floodmark_event::units::{format_bytes, format_duration_ns, format_time_ns};
use unicode_width::UnicodeWidthStr as _;

use crate::chart::{Glyphs, area, spans};
use crate::figures::{bytes_exactly, counted, instant_exactly};
use crate::layout::{Layout, Lines, styled};
use crate::report::{OtherKind, View};

const HEIGHT: usize = 10;
const NARROWEST: usize = 10;

impl View for Usage {
    const SCHEMA: &'static str = "floodmark.usage/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.headline(&headline(self), &format_bytes(self.peak_bytes), layout);
        if !self.points.is_empty() {
            text.blank();
            text.block(chart(self, layout));
        }
        text.text()
    }

    fn others(&self) -> Vec<OtherKind> {
        self.others.iter().map(OtherKind::from).collect()
    }
}

fn headline(usage: &Usage) -> String {
    let Some(peak_time_ns) = usage.peak_time_ns else {
        return "no memory was allocated".into();
    };
    format!(
        "Peak {} at {}, {} live at the end, {}",
        bytes_exactly(usage.peak_bytes),
        instant_exactly(peak_time_ns, usage.origin_time_ns),
        format_bytes(usage.live_bytes),
        counted(usage.changes, "change"),
    )
}

/// A filled curve with the height of the peak; time runs from the first event to the end.
fn chart(usage: &Usage, layout: &Layout) -> String {
    let (Some(first), Some(last)) = (usage.points.first(), usage.points.last()) else {
        return String::new();
    };
    let from = usage.first_time_ns.unwrap_or(first.time_ns).min(first.time_ns);
    let to = usage.end_time_ns.unwrap_or(last.time_ns).max(last.time_ns);
    let labels: Vec<String> = (0..HEIGHT)
        .map(|line| match line {
            0 => format_bytes(usage.peak_bytes),
            line if line == HEIGHT / 2 => format_bytes(usage.peak_bytes / 2),
            _ => String::new(),
        })
        .collect();
    let margin = labels.iter().map(|label| label.width()).max().unwrap_or(0).max(3);
    let columns = layout.width.saturating_sub(margin + 4).clamp(NARROWEST, 120);
    let points: Vec<(i64, u64)> =
        usage.points.iter().map(|point| (point.time_ns, point.live_bytes)).collect();
    let palette = &layout.palette;
    let mut text = Lines::default();
    let lines = area(&spans(&points, from, to, columns), usage.peak_bytes, HEIGHT, Glyphs::Blocks);
    for (line, label) in lines.iter().zip(&labels) {
        let axis = if label.is_empty() { "│" } else { "┤" };
        let axis = styled(palette.faint, format!("{label:>margin$} {axis}"));
        text.line(format!("  {axis}{}", styled(palette.bar, line)));
    }
    let axis = format!("{:>margin$} └{}", "0 B", "─".repeat(columns));
    text.line(format!("  {}", styled(palette.faint, axis)));
    let span = format!("+{}", format_duration_ns(to.saturating_sub(from) as u64));
    let start = format_time_ns(from);
    let room = columns.saturating_sub(start.width() + span.width());
    let scale = if room > 0 { format!("{start}{:room$}{span}", "") } else { format!("{span:>columns$}") };
    text.line(format!("  {}", styled(palette.faint, format!("{:margin$}  {scale}", ""))));
    text.text()
}

/// The first line of a table of points.
pub const CSV_HEADER: &str = "time_ns,kind,live_bytes\n";

/// Writes one point as a line of CSV. Without a kind the point is the sum of `chosen`.
pub fn csv_line(kind: Option<Kind>, chosen: &str, point: UsagePoint) -> String {
    let kind = kind.map_or(chosen, |kind| kind.name());
    format!("{},{kind},{}\n", point.time_ns, point.live_bytes)
}

/// Writes all points as CSV, those of kinds that are not covered last.
pub fn csv(usage: &Usage) -> String {
    let mut text = CSV_HEADER.to_owned();
    let chosen = kinds_text(&usage.kinds);
    for point in &usage.points {
        text += &csv_line(None, &chosen, *point);
    }
    for series in &usage.others {
        for point in &series.points {
            let _ = write!(text, "{}", csv_line(Some(series.kind), "", *point));
        }
    }
    text
}

/// Kinds as one word: `device`, `device+managed`.
pub fn kinds_text(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join("+")
}

/// Names of kinds within a sentence.
pub fn kinds_in_words(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" and ")
}
