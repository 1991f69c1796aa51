//! Calls that a tracer recorded: functions and lines by the resident memory that they gained.

use std::fmt::Write as _;

use floodmark_analyze::{CallOrder, Calls, Recorded};
use floodmark_event::units::{format_bytes, format_count, format_elapsed_ns, format_signed_bytes};

use crate::chart::{Glyphs, area, spans};
use crate::figures::{bytes_exactly, counted, instant_exactly, percent};
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, cut, omitted, wrap};

/// Columns by which calls of a tree are indented at most.
const MOST_INDENT: usize = 30;

/// Columns from which on there is room for several functions in a line.
const WIDE: usize = 100;

impl View for Calls {
    const SCHEMA: &'static str = "floodmark.calls/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        let headline = format!(
            "{} gained and {} released in {}",
            bytes_exactly(self.gained_bytes),
            format_bytes(self.released_bytes),
            counted(self.events, "event"),
        );
        text.headline(&headline, &format_bytes(self.gained_bytes), layout);
        text.line(wrap(&summary(self), layout.width, 2));
        if let Some(step) = &self.largest_step {
            let at = instant_exactly(step.time_ns, self.origin_time_ns);
            let step = format!(
                "The largest step is {} in {} at {at}",
                format_bytes(step.bytes),
                plain(&step.function)
            );
            text.line(wrap(&step, layout.width, 2));
        }
        if self.gaps > 0 {
            let gaps = format!(
                "Events were left out {}: functions around them are not known there",
                counted(self.gaps, "time"),
            );
            text.line(wrap(&gaps, layout.width, 2));
        }
        if self.recorded == Recorded::Changes {
            let only = "Only events at which memory changed were recorded, so callers and numbers of calls are not known; \
                        floodmark trace --mode every records them";
            text.line(wrap(only, layout.width, 2));
        }
        if !self.tree.is_empty() {
            text.blank();
            text.block(tree(self, layout));
            return text.text();
        }
        text.blank();
        text.block(functions(self, layout));
        let lists = [
            ("Lines", self.lines.is_empty(), lines as fn(&Calls, &Layout) -> String),
            ("Call sites, with what is called there", self.call_sites.is_empty(), call_sites),
            ("Resident memory over time", self.rss_points.len() < 2, timeline),
        ];
        for (title, _, list) in lists.into_iter().filter(|(_, is_empty, _)| !is_empty) {
            text.blank();
            text.styled(layout.palette.title, title);
            text.block(list(self, layout));
        }
        text.text()
    }
}

/// Whether all calls were recorded: changes of memory, and stacks of code that touches it, say nothing about how often a
/// function was called and what it called.
fn has_calls(calls: &Calls) -> bool {
    calls.recorded == Recorded::Every && calls.calls + calls.native_calls > 0
}

fn summary(calls: &Calls) -> String {
    let mut parts = Vec::new();
    if has_calls(calls) {
        parts.push(counted(calls.calls, "call"));
        parts.push(format!("{} native", format_count(calls.native_calls)));
    }
    parts.push(counted(calls.threads, "thread"));
    if calls.exceptions > 0 {
        parts.push(counted(calls.exceptions, "exception"));
    }
    if calls.processes > 1 {
        parts.push(format!("{} processes", format_count(calls.processes)));
    }
    if calls.unbalanced > 0 && calls.gaps == 0 {
        parts.push(match calls.unbalanced {
            1 => "1 call or return without its counterpart".to_owned(),
            many => format!("{} calls or returns without their counterparts", format_count(many)),
        });
    }
    let peak = calls.peak_time_ns.map_or_else(String::new, |time_ns| {
        format!(" at {}", instant_exactly(time_ns, calls.origin_time_ns))
    });
    let (first, last) = (format_bytes(calls.first_rss_bytes), format_bytes(calls.last_rss_bytes));
    let highest = format_bytes(calls.peak_rss_bytes);
    let parts = parts.join(", ");
    if calls.processes > 1 {
        return format!(
            "Resident: peak {highest} in one process{peak}; all together {first} when each was first seen, {last} when \
             last seen; {parts}"
        );
    }
    format!("Resident: {first} at first, peak {highest}{peak}, {last} at last; {parts}")
}

fn functions(calls: &Calls, layout: &Layout) -> String {
    let (shown, left) = layout.first(&calls.functions);
    let mark = |order: CallOrder, title: &str| {
        if order == calls.order { format!("{title} ↓") } else { title.to_owned() }
    };
    let mut table = Table::new([
        Column::long("function"),
        Column::text("where").rank(1),
        Column::figure(&mark(CallOrder::Calls, "calls")),
        Column::figure(&mark(CallOrder::Own, "own")),
        Column::figure("gained").rank(3),
        Column::figure("share").rank(2),
        Column::figure(&mark(CallOrder::Cumulative, "cumulative")),
    ]);
    for function in shown {
        let share = function.gained_bytes as f64 / calls.gained_bytes.max(1) as f64;
        table.row([
            Cell::from(&function.function),
            Cell::from(place(&function.file, function.line, function.is_native)),
            Cell::from(format_count(function.calls)),
            Cell::from(signed(function.own_bytes)),
            Cell::from(format_bytes(function.gained_bytes)),
            Cell::from(percent(share)),
            Cell::from(signed(function.cumulative_bytes)),
        ]);
    }
    let has_callers = calls.recorded != Recorded::Changes;
    table.keep(&[true, true, has_calls(calls), true, true, true, has_callers]);
    table.text(layout) + &omitted(left + calls.functions_omitted, layout)
}

fn lines(calls: &Calls, layout: &Layout) -> String {
    let (shown, left) = layout.first(&calls.lines);
    let mut table = Table::new([
        Column::long("function"),
        Column::text("line"),
        Column::figure("gained"),
        Column::figure("released"),
    ]);
    for line in shown {
        table.row([
            Cell::from(&line.function),
            Cell::from(place(&line.file, line.line, false)),
            Cell::from(format_bytes(line.gained_bytes)),
            Cell::from(format_bytes(line.released_bytes)),
        ]);
    }
    table.text(layout) + &omitted(left + calls.lines_omitted, layout)
}

fn call_sites(calls: &Calls, layout: &Layout) -> String {
    let (shown, left) = layout.first(&calls.call_sites);
    let mut table = Table::new([
        Column::long("call"),
        Column::text("where").rank(1),
        Column::figure("calls").rank(2),
        Column::figure("gained"),
        Column::figure("released"),
    ]);
    for site in shown {
        table.row([
            Cell::from(format!("{} → {}", site.caller, site.function)),
            Cell::from(place(&site.file, site.line, false)),
            Cell::from(format_count(site.calls)),
            Cell::from(format_bytes(site.gained_bytes)),
            Cell::from(format_bytes(site.released_bytes)),
        ]);
    }
    table.keep(&[true, true, has_calls(calls), true, true]);
    table.text(layout) + &omitted(left + calls.call_sites_omitted, layout)
}

/// A strip of the resident memory, and what was gained in each part of the time.
fn timeline(calls: &Calls, layout: &Layout) -> String {
    let mut text = Lines::default();
    let points: Vec<(i64, u64)> =
        calls.rss_points.iter().map(|point| (point.time_ns, point.rss_bytes)).collect();
    let highest = points.iter().map(|(_, rss)| *rss).max().unwrap_or(0);
    let (from_ns, to_ns) = (points[0].0, calls.last_time_ns.unwrap_or(points[points.len() - 1].0));
    let label = format!(" {} at most", format_bytes(highest));
    let width = layout.width.saturating_sub(2 + label.len()).min(points.len());
    let spans = spans(&points, from_ns, to_ns.max(points[points.len() - 1].0), width);
    let strip = area(&spans, highest, 1, Glyphs::Blocks).concat();
    let pad = width - strip.chars().count();
    text.line(format!(
        "  {}{:pad$}{}",
        styled(layout.palette.bar, strip),
        "",
        styled(layout.palette.faint, label)
    ));
    let mut table = Table::new([
        Column::figure("from"),
        Column::figure("resident"),
        Column::figure("gained"),
        Column::figure("released").rank(1),
        Column::long("gained most in"),
    ]);
    for period in &calls.periods {
        // The size before the first event is known, too.
        let from_ns = period.from_ns.saturating_sub(calls.origin_time_ns.unwrap_or(period.from_ns)).max(0);
        let most = period.functions.iter().take(if layout.width < WIDE { 1 } else { usize::MAX });
        let most = most.map(|most| format!("{} {}", plain(&most.function), format_bytes(most.gained_bytes)));
        table.row([
            Cell::from(format_elapsed_ns(from_ns / 1000 * 1000)),
            Cell::from(format_bytes(period.peak_rss_bytes)),
            Cell::from(format_bytes(period.gained_bytes)),
            Cell::from(format_bytes(period.released_bytes)),
            Cell::from(most.collect::<Vec<_>>().join(", ")),
        ]);
    }
    text.block(table.text(layout));
    text.text()
}

/// The call tree; calls of a deep one are indented less.
fn tree(calls: &Calls, layout: &Layout) -> String {
    let mut table = Table::new([
        Column::figure("gained"),
        Column::figure("own").rank(1),
        Column::figure("released").rank(3),
        Column::figure("calls").rank(2),
        Column::long("call"),
    ]);
    let deepest = calls.tree.iter().map(|node| node.depth).max().unwrap_or(0);
    let step = if deepest > 12 { 1 } else { 2 };
    for node in &calls.tree {
        let lead = " ".repeat((node.depth as usize * step).min(MOST_INDENT));
        let place = place(&node.file, node.line, false);
        let place = if place.is_empty() { place } else { format!(" ({place})") };
        table.row([
            Cell::from(format_bytes(node.gained_bytes)),
            Cell::from(format_bytes(node.own_gained_bytes)),
            Cell::from(format_bytes(node.released_bytes)),
            Cell::from(format_count(node.calls)),
            Cell::from(format!("{lead}{}{place}", plain(&node.function))),
        ]);
    }
    table.keep(&[true, true, true, has_calls(calls), true]);
    let left_out: u64 = calls.tree.iter().map(|node| node.omitted).sum();
    let mut text = table.text(layout);
    if left_out > 0 {
        let line = format!("… and {} below these (--limit 0, --depth)", counted(left_out, "more call"));
        let _ = writeln!(text, "  {}", styled(layout.palette.faint, cut(&line, layout.width - 2)));
    }
    text
}

/// Where a function or a line is: the last two folders of its file are enough to find it.
fn place(file: &str, line: u32, is_native: bool) -> String {
    let parts: Vec<&str> = file.rsplitn(3, '/').collect();
    let short = match parts[..] {
        [name, folder, _] => format!("{folder}/{name}"),
        _ => file.to_owned(),
    };
    match (short.as_str(), line) {
        ("", _) if is_native => "native".to_owned(),
        ("", 0) => String::new(),
        ("", line) => format!("line {line}"),
        (_, 0) => short,
        (_, line) => format!("{short}:{line}"),
    }
}

fn signed(bytes: i64) -> String {
    if bytes == 0 { "0 B".to_owned() } else { format_signed_bytes(bytes) }
}
