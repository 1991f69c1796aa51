//! What a trace or a log is, without analyzing it.

use floodmark_analyze::signal_name;
use floodmark_event::Metric;
use floodmark_event::units::{format_bytes, format_count, format_duration_ns, format_time_ns};

use floodmark_inspect::info::{
    Info, MessageInfo, MetricInfo, ProcessInfo, RunInfo, SeenInfo, SubjectInfo, TableInfo,
};

use crate::figures::counted;
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::View;
use crate::run::memory_text;
use crate::table::{Cell, Column, Table, omitted, wrap, wrap_after};

impl View for Info {
    const SCHEMA: &'static str = "floodmark.info/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.line(wrap(&headline(self), layout.width, 2));
        let last_ns = self.memory.as_ref().and_then(|memory| memory.last_time_ns);
        let run = facts(&self.run, last_ns.filter(|_| self.unfinished), layout);
        if !run.is_empty() {
            text.blank();
            text.block(run);
        }
        if self.processes.len() > 1 || self.processes.iter().any(|process| process.pid.is_some()) {
            text.blank();
            text.block(processes(&self.processes, layout));
        }
        if let Some(memory) = &self.memory {
            text.blank();
            text.block(memory_text(memory, memory.origin_time_ns.or(memory.first_time_ns), layout));
        }
        if let Some(seen) = self.seen.as_ref().filter(|seen| !seen.subjects.is_empty()) {
            text.blank();
            text.block(subjects(&seen.subjects, layout));
        }
        if !self.messages.is_empty() {
            text.blank();
            text.block(messages(&self.messages, layout));
        }
        if !self.tables.is_empty() {
            text.blank();
            text.block(tables(&self.tables, layout));
        }
        text.text()
    }
}

fn headline(info: &Info) -> String {
    let version = info.version.map_or_else(String::new, |version| format!(", format {version}"));
    let mut parts = vec![format!("{}{version}", info.format)];
    if info.live {
        parts.push("being recorded".into());
    }
    if info.unfinished {
        parts.push("not completed: its recorder was killed, or the disk was full".into());
    }
    let what = info.seen.as_ref().map_or_else(|| counted(info.events, "event"), contents);
    parts.push(match (info.first_time_ns, info.last_time_ns) {
        (Some(first), Some(last)) => {
            let span = format_duration_ns(last.saturating_sub(first).max(0) as u64);
            format!("{what} in {span} from {}", format_time_ns(first))
        }
        _ if info.memory.is_some() => {
            let samples =
                info.tables.iter().find(|table| table.table == "sample").map_or(0, |table| table.rows);
            match samples {
                0 => "no events, samples not sealed yet".into(),
                _ => format!("no events, {}", counted(samples, "sample")),
            }
        }
        _ => what,
    });
    if let Some(bytes) = info.bytes {
        parts.push(format_bytes(bytes));
        if info.events > 0 {
            parts.push(format!("{} bytes an event", ratio(bytes, info.events)));
        }
    }
    parts.join(", ")
}

/// How much of what a log of samples has.
fn contents(seen: &SeenInfo) -> String {
    let SeenInfo { samples, outputs, stack_samples, scopes, calls, .. } = *seen;
    let others =
        [(calls, "call or return"), (outputs, "piece"), (stack_samples, "stack"), (scopes, "scope or mark")];
    let others = others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| match what {
        "piece" => format!("{} of output", counted(count, what)),
        "scope or mark" => format!("{} scopes and marks", format_count(count)),
        "call or return" => format!("{} calls and returns", format_count(count)),
        _ => counted(count, what),
    });
    let samples = (samples > 0 || calls == 0).then(|| counted(samples, "sample"));
    samples.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

fn subjects(subjects: &[SubjectInfo], layout: &Layout) -> String {
    let rows: Vec<(&SubjectInfo, &MetricInfo)> = subjects
        .iter()
        .flat_map(|subject| subject.metrics.iter().map(move |metric| (subject, metric)))
        .collect();
    let (shown, left) = layout.first(&rows);
    let mut table = Table::new([
        Column::text("kind"),
        Column::figure("number").rank(1),
        Column::long("name"),
        Column::text("metric"),
        Column::figure("samples"),
        Column::figure("lowest").rank(2),
        Column::figure("highest"),
        Column::figure("last").rank(3),
    ]);
    for (subject, metric) in shown {
        let value = |value: u64| Cell::from(value_text(metric.metric, value));
        table.row([
            Cell::from(subject.kind),
            Cell::from(if subject.number == 0 && subject.kind != "device" {
                "-".into()
            } else {
                subject.number.to_string()
            }),
            Cell::from(if subject.name.is_empty() { "-" } else { &subject.name }),
            Cell::from(metric.metric.name()),
            Cell::from(format_count(metric.samples)),
            value(metric.lowest),
            value(metric.highest),
            value(metric.last),
        ]);
    }
    table.text(layout) + &omitted(left, layout)
}

/// A value with its unit.
fn value_text(metric: Metric, value: u64) -> String {
    match metric {
        Metric::Threads | Metric::Processes | Metric::LateSweeps | Metric::MissedProcesses => {
            format_count(value)
        }
        Metric::GpuBusy => format!("{value} %"),
        Metric::CpuTime | Metric::OwnCpuTime | Metric::Interval => format_duration_ns(value),
        _ => format_bytes(value),
    }
}

fn ratio(bytes: u64, rows: u64) -> String {
    let ratio = bytes as f64 / rows as f64;
    if ratio < 100.0 { format!("{ratio:.1}") } else { format_count(ratio.round() as u64) }
}

/// Facts about the run. `last_sample_ns` is the time of the last sample of a recording that was not completed.
fn facts(run: &RunInfo, last_sample_ns: Option<i64>, layout: &Layout) -> String {
    const NAME_WIDTH: usize = 13;
    let mut text = Lines::default();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let lead = format!("  {name:NAME_WIDTH$}  ");
            text.line(wrap_after(&lead, NAME_WIDTH + 4, &plain(&value), layout.width));
        }
    };
    fact("command", run.command.clone());
    fact("host", run.host.clone());
    fact("user", run.user.clone());
    fact("began", run.start_time_ns.map(format_time_ns));
    let lasted = run.start_time_ns.zip(run.end_time_ns).map(|(from, to)| to.saturating_sub(from).max(0));
    let recorded = run.start_time_ns.zip(last_sample_ns).map(|(from, to)| to.saturating_sub(from).max(0));
    let recorded = recorded.map(|ns| format!("≥ {}, until the last sample", format_duration_ns(ns as u64)));
    fact("lasted", lasted.map(|ns| format_duration_ns(ns as u64)).or(recorded));
    fact("exit status", run.exit_status.map(exit_status));
    fact("imported from", run.imported_format.clone());
    fact("files", (!run.imported_files.is_empty()).then(|| run.imported_files.join(" ")));
    text.text()
}

fn exit_status(status: i32) -> String {
    match status {
        129..=159 => format!("{status} ({})", signal_name(status - 128)),
        _ => status.to_string(),
    }
}

fn processes(processes: &[ProcessInfo], layout: &Layout) -> String {
    let (shown, left) = layout.first(processes);
    let mut table = Table::new([
        Column::figure("process"),
        Column::figure("pid"),
        Column::long("host").rank(1),
        Column::long("command"),
    ]);
    for process in shown {
        table.row([
            Cell::from(process.process.to_string()),
            Cell::from(process.pid.map_or_else(|| "-".into(), |pid| pid.to_string())),
            Cell::from(process.host.as_deref().unwrap_or("-")),
            Cell::from(process.command.as_deref().unwrap_or("-")),
        ]);
    }
    table.text(layout) + &omitted(left, layout)
}

/// Messages that matter, and how many others there are.
fn messages(messages: &[MessageInfo], layout: &Layout) -> String {
    let matters = |message: &&MessageInfo| message.level == "error" || message.level == "warning";
    let listed: Vec<&MessageInfo> = messages.iter().filter(matters).collect();
    let (shown, left) = layout.first(&listed);
    let mut text = Lines::default();
    let told = format!(
        "{} of the tool that recorded, {} of them warnings or errors; 'floodmark read --samples' shows all",
        counted(messages.len() as u64, "message"),
        format_count(listed.len() as u64),
    );
    text.line(wrap(&told, layout.width, 2));
    for message in shown {
        let lead = format!("  {:7}  ", message.level);
        text.line(wrap_after(&lead, 11, &plain(&message.text), layout.width));
    }
    text.text() + &omitted(left, layout)
}

fn tables(tables: &[TableInfo], layout: &Layout) -> String {
    let mut table = Table::new([
        Column::text("table"),
        Column::figure("parts"),
        Column::figure("rows"),
        Column::figure("bytes"),
        Column::figure("bytes a row").rank(1),
    ]);
    for info in tables {
        table.row([
            Cell::from(&info.table),
            Cell::from(format_count(info.parts)),
            Cell::from(format_count(info.rows)),
            Cell::from(format_bytes(info.bytes)),
            Cell::from(if info.rows == 0 { "-".into() } else { ratio(info.bytes, info.rows) }),
        ]);
    }
    table.text(layout)
}
