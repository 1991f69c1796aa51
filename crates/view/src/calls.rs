//! Calls that a tracer recorded: functions and lines by the resident memory that they gained.

use floodmark_analyze::{CallOrder, Calls};
use floodmark_event::units::{format_bytes, format_count, format_signed_bytes};

use crate::figures::{bytes_exactly, counted, instant_exactly, percent};
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, omitted, wrap};

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
        text.blank();
        text.block(functions(self, layout));
        if !self.lines.is_empty() {
            text.blank();
            text.styled(layout.palette.title, "Lines");
            text.block(lines(self, layout));
        }
        text.text()
    }
}

fn summary(calls: &Calls) -> String {
    let mut parts = Vec::new();
    // Stacks of code that touches memory need no calls.
    if calls.calls + calls.native_calls > 0 {
        parts.push(counted(calls.calls, "call"));
        parts.push(format!("{} native", format_count(calls.native_calls)));
    }
    parts.push(counted(calls.threads, "thread"));
    if calls.exceptions > 0 {
        parts.push(counted(calls.exceptions, "exception"));
    }
    if calls.processes > 1 {
        parts.push(counted(calls.processes, "process"));
    }
    if calls.unbalanced > 0 && calls.gaps == 0 {
        parts.push(format!("{} of which call or return is missing", format_count(calls.unbalanced)));
    }
    let peak = calls.peak_time_ns.map_or_else(String::new, |time_ns| {
        format!(" at {}", instant_exactly(time_ns, calls.origin_time_ns))
    });
    format!(
        "Resident: {} at first, peak {}{peak}, {} at last; {}",
        format_bytes(calls.first_rss_bytes),
        format_bytes(calls.peak_rss_bytes),
        format_bytes(calls.last_rss_bytes),
        parts.join(", "),
    )
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
