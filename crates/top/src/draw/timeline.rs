//! Memory over time: one area of dots per line, all with the same axis of time.

use floodmark_event::units::format_bytes;
use floodmark_view::chart::{self, Glyphs, spans};
use floodmark_view::plot::TimeAxis;
use floodmark_view::plot::axis::{TimeProps, byte_ticks, time_ticks};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line as TextLine, Span};

use super::{Theme, frame_of, since_start, text, title_of};
use crate::picture::{Line, Picture};
use crate::state::{Pane, State};

/// Rows that a chart needs to be read.
const LEAST_ROWS: u16 = 4;
/// Charts at most.
const CHARTS: usize = 3;
/// Columns of the labels on the left.
const MARGIN: u16 = 11;
/// Marks that have a letter of their own.
const LETTERS: usize = 26;

/// Draws the charts there is room for.
pub(super) fn draw(frame: &mut Frame, area: Rect, picture: &Picture, state: &mut State, theme: &Theme) {
    let title = title(picture, state, theme);
    let block = frame_of(Pane::Timeline, title, state, theme);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let Some((from, to)) = state.shown(picture).filter(|_| !picture.lines.is_empty()) else {
        let words = TextLine::styled("memory shows here as soon as something was recorded", theme.faint);
        frame.render_widget(words.centered(), centered_row(inner));
        return;
    };
    let marks: u16 = u16::from(!picture.phases.is_empty());
    let room = inner.height.saturating_sub(1 + marks);
    let count = picture.lines.len().min(CHARTS).min(usize::from(room / (LEAST_ROWS + 2)).max(1));
    let [charts, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1 + marks)]).areas(inner);
    let plot = Plot { from, to, left: inner.x + MARGIN, columns: inner.width.saturating_sub(MARGIN + 1) };
    state.columns = plot.columns;
    let areas = Layout::vertical(vec![Constraint::Fill(1); count]).split(charts);
    let cursor = state.cursor_ns.and_then(|at| plot.column(at));
    for (number, (line, area)) in picture.lines.iter().zip(areas.iter()).enumerate() {
        let buffer = frame.buffer_mut();
        let mut area = *area;
        // The first is named by the title of the pane.
        if number > 0 {
            let value = state.cursor_ns.map_or(line.now_bytes, |at| value_at(line, at));
            let name = format!(
                "{}: {}, peak {}",
                text(&line.name),
                format_bytes(value),
                format_bytes(line.peak_bytes)
            );
            buffer.set_stringn(area.x + 1, area.y, name, usize::from(area.width) - 1, theme.title);
            (area.y, area.height) = (area.y + 1, area.height.saturating_sub(1));
        }
        draw_chart(buffer, area, line, &plot, theme);
        if let Some(column) = cursor {
            for row in area.y..area.bottom() {
                let cell = &mut buffer[(column, row)];
                let symbol = if cell.symbol() == " " { "│" } else { cell.symbol() }.to_owned();
                cell.set_symbol(&symbol).set_style(theme.cursor);
            }
        }
    }
    time_axis(frame.buffer_mut(), below, picture, &plot, theme);
}

fn centered_row(area: Rect) -> Rect {
    Rect { y: area.y + area.height / 2, height: area.height.min(1), ..area }
}

fn title<'a>(picture: &Picture, state: &State, theme: &Theme) -> TextLine<'a> {
    let mut spans = vec![title_of(Pane::Timeline, state, theme)];
    if let Some(line) = picture.lines.first() {
        spans.push(Span::raw(format!("{} ", text(&line.name))));
        if let Some(at) = state.cursor_ns {
            let value = format!("{} at {} ", format_bytes(value_at(line, at)), since_start(picture, at));
            spans.push(Span::styled(value, theme.cursor));
        }
    }
    TextLine::from(spans)
}

fn value_at(line: &Line, time_ns: i64) -> u64 {
    let after = line.points.partition_point(|(at, _)| *at <= time_ns);
    after.checked_sub(1).map_or(0, |at| line.points[at].1)
}

/// Where instants are on the screen.
struct Plot {
    from: i64,
    to: i64,
    left: u16,
    columns: u16,
}

impl Plot {
    /// The column of an instant, if it is shown.
    fn column(&self, time_ns: i64) -> Option<u16> {
        let length = i128::from(self.to) - i128::from(self.from) + 1;
        let offset = i128::from(time_ns) - i128::from(self.from);
        let is_shown = (0..length).contains(&offset) && self.columns > 0;
        is_shown.then(|| self.left + (offset * i128::from(self.columns) / length) as u16)
    }
}

/// The values that are shown, from what held when they begin.
fn shown_points(line: &Line, plot: &Plot) -> Vec<(i64, u64)> {
    let first = line.points.partition_point(|(at, _)| *at <= plot.from);
    let end = line.points.partition_point(|(at, _)| *at <= plot.to);
    let held = first.checked_sub(1).map(|at| (plot.from, line.points[at].1));
    held.into_iter().chain(line.points[first..end.max(first)].iter().copied()).collect()
}

fn draw_chart(buffer: &mut Buffer, area: Rect, line: &Line, plot: &Plot, theme: &Theme) {
    if area.height < 2 || plot.columns == 0 {
        return;
    }
    let points = shown_points(line, plot);
    let peak_column = line.peak_time_ns.and_then(|at| plot.column(at));
    let highest = points.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let top = if peak_column.is_some() { highest.max(line.peak_bytes) } else { highest }.max(1);
    // The first row is for the peak's label.
    let rows = area.height - 1;
    let columns = spans(&points, plot.from, plot.to, usize::from(plot.columns) * Glyphs::Braille.columns());
    let lines = chart::area(&columns, top, usize::from(rows), Glyphs::Braille);
    for (row, line) in (area.y + 1..).zip(lines) {
        for (column, symbol) in (plot.left..).zip(line.chars()).filter(|(_, symbol)| *symbol != ' ') {
            buffer[(column, row)].set_char(symbol).set_style(theme.area);
        }
    }
    byte_axis(buffer, Rect { y: area.y + 1, height: rows, ..area }, top, theme);
    if let Some(column) = peak_column {
        let label = format!("▼ {}", format_bytes(line.peak_bytes));
        put_beside(buffer, plot, column, area.y, &label, theme.peak);
    }
}

fn byte_axis(buffer: &mut Buffer, area: Rect, top: u64, theme: &Theme) {
    let row = |at: u64| {
        let part = at as f64 / top as f64 * f64::from(area.height);
        area.bottom() - 1 - (part as u16).min(area.height - 1)
    };
    // As many as stand at least two rows apart, so that they are read as a scale.
    let ticks = (1..=6).rev().map(|most| byte_ticks(top, most));
    let mut ticks = ticks
        .filter(|ticks| ticks.windows(2).all(|pair| row(pair[0].at).saturating_sub(row(pair[1].at)) >= 2));
    for tick in ticks.next().unwrap_or_default() {
        let label = format!("{:>9} ┤", tick.label);
        buffer.set_stringn(area.x, row(tick.at), label, usize::from(MARGIN), theme.faint);
    }
    for row in area.y..area.bottom() {
        let cell = &mut buffer[(area.x + MARGIN - 1, row)];
        if cell.symbol() == " " {
            cell.set_symbol("│").set_style(theme.faint);
        }
    }
}

/// Writes a label that begins at a column, or ends there if it would be cut.
fn put_beside(buffer: &mut Buffer, plot: &Plot, column: u16, row: u16, label: &str, style: Style) {
    let width = label.chars().count() as u16;
    let end = plot.left + plot.columns;
    if column + width <= end {
        buffer.set_stringn(column, row, label, usize::from(end - column), style);
        return;
    }
    let mut words = label.splitn(2, ' ');
    let (sign, rest) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let label = format!("{rest} {sign}");
    let start = (column + 1).saturating_sub(width).max(plot.left);
    buffer.set_stringn(start, row, label, usize::from(end - start), style);
}

fn time_axis(buffer: &mut Buffer, area: Rect, picture: &Picture, plot: &Plot, theme: &Theme) {
    let first = picture.origin_ns.or(picture.span.map(|(first, _)| first)).unwrap_or(plot.from);
    let props = TimeProps {
        from_ns: plot.from.saturating_sub(first),
        to_ns: plot.to.saturating_sub(first),
        axis: TimeAxis::Elapsed,
        // A character is as wide as six pixels of a font of ten.
        room: f64::from(plot.columns) * 6.0,
        size: 10.0,
    };
    let (ticks, _) = time_ticks(&props);
    let mut free = area.x + MARGIN - 1;
    for tick in ticks {
        let Some(column) = plot.column(tick.at.saturating_add(first)) else { continue };
        let label = format!("└{}", tick.label);
        let width = label.chars().count() as u16;
        if column >= free && column + width <= area.right() {
            buffer.set_stringn(column, area.y, &label, usize::from(width), theme.faint);
            free = column + width + 1;
        }
    }
    if area.height > 1 {
        for (phase, letter) in marks(picture) {
            if let Some(column) = phase.and_then(|at| plot.column(at)) {
                buffer[(column, area.y + 1)].set_char(letter).set_style(theme.title);
            }
        }
        buffer.set_stringn(
            area.x,
            area.y + 1,
            format!("{:>10}", "phases"),
            usize::from(MARGIN) - 1,
            theme.faint,
        );
    }
}

/// Marks with their letters, in order.
pub(super) fn marks(picture: &Picture) -> impl Iterator<Item = (Option<i64>, char)> + '_ {
    let letters = ('a'..='z').take(LETTERS).chain(std::iter::repeat('·'));
    picture.phases.iter().filter(|phase| phase.start_ns.is_some()).map(|phase| phase.start_ns).zip(letters)
}
