//! A figure drawn with characters: one area per series, all to the same scale.
//!
//! Curves on top of each other need colors to be told apart; areas below each other do not.

use floodmark_event::units::{format_bytes, format_count};
use unicode_width::UnicodeWidthStr as _;

use crate::chart::{Glyphs, area, spans};
use crate::layout::{Layout, Lines, styled};
use crate::plot::axis::{instant, peak_instant};
use crate::plot::model::{Figure, Point, Series};
use crate::table::cut;

/// Lines of an area by itself, and of one of several.
const ALONE: usize = 12;
const TOGETHER: usize = 5;
/// Series that are drawn; for the others only peaks are listed.
const MOST: usize = 6;
/// Phases that are listed.
const MOST_PHASES: usize = 8;
const NARROWEST: usize = 10;

/// Draws a figure as text; no line is wider than the layout.
pub fn text(figure: &Figure, layout: &Layout) -> String {
    let mut text = Lines::default();
    let palette = &layout.palette;
    text.styled(palette.title, cut(&figure.title, layout.width));
    let Some((from_ns, to_ns)) = figure.span_ns() else {
        text.line("there is nothing to draw");
        return text.text();
    };
    let all = series(figure);
    let height = if all.len() == 1 { ALONE } else { TOGETHER };
    let top = figure.highest_bytes();
    let margin = format_bytes(top).width().max(format_bytes(top / 2).width());
    let columns = layout.width.saturating_sub(margin + 4).clamp(NARROWEST, 200);
    for (name, series) in all.iter().take(MOST) {
        let peak = series.highest().map_or_else(
            || "nothing".to_owned(),
            |peak| {
                let at = peak_instant(peak.time_ns, to_ns.saturating_sub(from_ns), figure.time);
                format!("peak {} at {at}", format_bytes(peak.bytes))
            },
        );
        let is_enough = !figure.measure.is_empty() && (name.is_empty() || all.len() == 1);
        let name = if is_enough { &figure.measure } else { name };
        text.blank();
        text.line(cut(&format!("{name}: {peak}"), layout.width));
        let lines = area(&columns_of(series, from_ns, to_ns, columns), top, height, Glyphs::Blocks);
        for (number, line) in lines.iter().enumerate() {
            let label = match number {
                0 => format_bytes(top),
                number if number == height / 2 && height > TOGETHER => format_bytes(top / 2),
                _ => String::new(),
            };
            let axis = if label.is_empty() { "│" } else { "┤" };
            let axis = styled(palette.faint, format!("{label:>margin$} {axis}"));
            text.line(format!("  {axis}{}", styled(palette.bar, line)));
        }
        text.styled(palette.faint, format!("  {:>margin$} └{}", "0 B", "─".repeat(columns)));
    }
    let span_ns = to_ns.saturating_sub(from_ns);
    let [start, end] = [from_ns, to_ns].map(|ns| instant(ns, span_ns, figure.time));
    let room = columns.saturating_sub(start.width() + end.width());
    text.styled(palette.faint, format!("  {:margin$}  {start}{:room$}{end}", "", ""));
    if !figure.phases.is_empty() {
        let row = phase_row(figure, from_ns, to_ns, columns);
        text.styled(palette.faint, format!("  {:margin$}  {row}", "").trim_end());
        phases(figure, layout, &mut text);
    }
    for (name, series) in all.iter().skip(MOST) {
        let peak = series.highest().map_or(0, |peak| peak.bytes);
        text.line(cut(&format!("{name}: peak {}", format_bytes(peak)), layout.width));
    }
    for remark in &figure.remarks {
        text.styled(palette.faint, cut(remark, layout.width));
    }
    text.text()
}

/// What is drawn: the curves, or the sum of a stack and its parts.
fn series(figure: &Figure) -> Vec<(String, Series)> {
    let mut all: Vec<(String, Series)> =
        figure.series.iter().map(|series| (series.name.clone(), series.clone())).collect();
    if let Some(stack) = &figure.stack {
        for layer in stack.layers.iter().rev() {
            let points = stack.times_ns.iter().zip(&layer.values);
            let points = points.map(|(time_ns, bytes)| Point { time_ns: *time_ns, bytes: *bytes }).collect();
            let series = Series { points, end_ns: stack.end_ns, ..Series::default() };
            all.push((layer.name.clone(), series));
        }
    }
    all
}

fn columns_of(series: &Series, from_ns: i64, to_ns: i64, columns: usize) -> Vec<Option<crate::chart::Span>> {
    let mut points: Vec<(i64, u64)> =
        series.points.iter().map(|point| (point.time_ns, point.bytes)).collect();
    if series.end_ns < to_ns {
        points.push((series.end_ns.saturating_add(1), 0));
    }
    spans(&points, from_ns, to_ns, columns)
}

/// A row with a letter where each phase begins.
fn phase_row(figure: &Figure, from_ns: i64, to_ns: i64, columns: usize) -> String {
    let mut row = vec![' '; columns];
    let length = (i128::from(to_ns) - i128::from(from_ns)).max(1);
    for (phase, letter) in figure.phases.iter().take(MOST_PHASES).zip('a'..) {
        let at = (i128::from(phase.from_ns) - i128::from(from_ns)) * (columns as i128 - 1) / length;
        if let Some(cell) = row.get_mut(at.max(0) as usize) {
            *cell = letter;
        }
    }
    row.into_iter().collect()
}

fn phases(figure: &Figure, layout: &Layout, text: &mut Lines) {
    for (phase, letter) in figure.phases.iter().take(MOST_PHASES).zip('a'..) {
        let name = if phase.name.is_empty() { "(no name)" } else { &phase.name };
        text.styled(layout.palette.faint, cut(&format!("  {letter} {name}"), layout.width));
    }
    let more = figure.phases.len().saturating_sub(MOST_PHASES);
    if more > 0 {
        text.styled(layout.palette.faint, format!("  and {} more phases", format_count(more as u64)));
    }
}
