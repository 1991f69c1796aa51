//! What was seen from outside, as the page shows it.

use std::cmp::Reverse;

use floodmark_analyze::{ProcessMemory, SubjectSeries};
use floodmark_event::units::{format_bytes, format_count};
use floodmark_event::{Metric, SubjectKind};

use floodmark_inspect::page::{OutputLine, ThreadStack};

use super::build::{Builder, cut, heads, reduction_note};
use super::data::{
    Ceiling, Cell, CellKind, Chart, Detail, Dot, DotThread, MarkAt, Output, Parts, PeakAt, Severity, Table,
};
use super::{SamplesPart, story};
use crate::figures::{counted, percent};
use crate::run::{ending, phase_name};

/// Lines of single processes in a chart.
const LINES: usize = 8;
/// Most marks that a page has room for.
const MARKS: usize = 1000;

/// First and last instant.
pub(super) fn span(part: &SamplesPart) -> Option<(i64, i64)> {
    let points =
        part.series.iter().flat_map(|series| series.points.first().into_iter().chain(series.points.last()));
    let times = || {
        let memory = [part.memory.first_time_ns, part.memory.last_time_ns].into_iter().flatten();
        let output = part.output.lines().map(|line| line.time_ns);
        memory.chain(points.clone().map(|point| point.time_ns)).chain(output)
    };
    Some((times().min()?, times().max()?))
}

/// Adds all of it.
pub(super) fn add(builder: &mut Builder, part: &SamplesPart) {
    story::of_samples(builder, part);
    findings(builder, part);
    charts(builder, part);
    marks(builder, part);
    dots(builder, part);
    processes(builder, part);
    phases(builder, part);
    devices(builder, part);
    output(builder, part);
}

/// Lines over time.
pub(super) fn charts(builder: &mut Builder, part: &SamplesPart) {
    resident(builder, part);
    device_chart(builder, part);
    other_charts(builder, part);
}

fn findings(builder: &mut Builder, part: &SamplesPart) {
    let memory = &part.memory;
    if let Some(status) = memory.wait_status.filter(|status| *status != 0) {
        builder.find(Severity::Bad, format!("The command ended with {}.", ending(status)));
    }
    for group in &memory.cgroups {
        let Some(limit) = group.limit_bytes else { continue };
        let used = group.peak_usage_bytes.or(group.peak_bytes).unwrap_or(0);
        let share = used as f64 / limit.max(1) as f64;
        let level = if share > 0.9 { Severity::Bad } else { Severity::Note };
        let (share, limit) = (percent(share), format_bytes(limit));
        builder.find(level, format!("cgroup {} used {share} of its limit of {limit}.", group.path));
    }
    if memory.peak_rss_bytes > memory.peak_seen_bytes && memory.peak_seen_bytes > 0 {
        builder.find(
            Severity::Note,
            format!(
                "The kernel says that memory rose to {} between two samples; the highest sum seen was {}.",
                format_bytes(memory.peak_rss_bytes),
                format_bytes(memory.peak_seen_bytes)
            ),
        );
    }
    if let Some(missed) = memory.missed_processes.filter(|missed| *missed > 0) {
        let missed =
            if missed == 1 { "1 process".into() } else { format!("{} processes", format_count(missed)) };
        builder.find(Severity::Doubtful, format!("{missed} ended before anybody could look."));
    }
}

/// Lines of one metric and kind of subject, highest first.
fn lines(part: &SamplesPart, metric: Metric, kind: SubjectKind) -> Vec<&SubjectSeries> {
    let is_ours = |series: &&SubjectSeries| {
        let subject = series.subject.and_then(|subject| part.subjects.get(&subject));
        series.metric == metric && subject.is_some_and(|subject| subject.kind == kind)
    };
    let mut lines: Vec<&SubjectSeries> = part.series.iter().filter(is_ours).collect();
    lines.sort_by_key(|series| Reverse(series.peak_bytes));
    lines
}

fn name(part: &SamplesPart, series: &SubjectSeries) -> String {
    let subject = series.subject.and_then(|subject| part.subjects.get(&subject));
    subject.map_or_else(String::new, |subject| match subject.kind {
        SubjectKind::Process => format!("{} {}", subject.name, subject.number),
        SubjectKind::Device => format!("device {} {}", subject.number, subject.name).trim_end().to_owned(),
        kind if subject.name.is_empty() => kind.name().to_owned(),
        _ => subject.name.clone(),
    })
}

/// Puts lines into a chart; none if there is nothing to draw.
fn draw(builder: &mut Builder, chart: &str, drawn: &[(String, &SubjectSeries)]) -> Option<usize> {
    if drawn.is_empty() {
        return None;
    }
    let series = drawn.iter().map(|(name, series)| builder.series(name, &series.points, None)).collect();
    let note = reduction_note(drawn.iter().filter_map(|(_, series)| series.interval_ns).max());
    builder.document.charts.push(Chart { title: chart.into(), note, series, ..Chart::default() });
    Some(builder.document.charts.len() - 1)
}

fn resident(builder: &mut Builder, part: &SamplesPart) {
    let sum = |metric| part.series.iter().find(|series| series.subject.is_none() && series.metric == metric);
    let mut drawn: Vec<(String, &SubjectSeries)> = Vec::new();
    drawn.extend(sum(Metric::Rss).map(|series| ("total (RSS)".to_owned(), series)));
    drawn.extend(sum(Metric::Pss).map(|series| ("shared memory counted once (PSS)".to_owned(), series)));
    let parts = [SubjectKind::Process, SubjectKind::Host].map(|kind| lines(part, Metric::Rss, kind));
    let mut divided = None;
    for (lines, by) in parts.iter().zip(["process", "host"]).filter(|(lines, _)| lines.len() > 1) {
        divided.get_or_insert(Parts { by, from: drawn.len() });
        drawn.extend(lines.iter().take(LINES).map(|series| (name(part, series), *series)));
    }
    // Lines of processes and of hosts would count everything twice.
    let divided = divided.filter(|_| parts.iter().filter(|lines| lines.len() > 1).count() == 1);
    if let Some(at) = draw(builder, "Resident memory", &drawn) {
        let memory = &part.memory;
        let peak = memory.peak_time_ns;
        builder.document.charts[at].peak =
            peak.map(|peak_ns| PeakAt { time: builder.time(peak_ns), bytes: memory.peak_rss_bytes });
        builder.document.charts[at].dots = true;
        builder.document.charts[at].parts = divided;
        builder.document.charts[at].ceilings = limits(part);
    }
}

fn device_chart(builder: &mut Builder, part: &SamplesPart) {
    let of_devices = lines(part, Metric::GpuUsed, SubjectKind::Device);
    let mut drawn: Vec<_> =
        of_devices.into_iter().take(LINES).map(|series| (name(part, series), series)).collect();
    let of_processes = lines(part, Metric::GpuUsed, SubjectKind::Process);
    drawn.extend(of_processes.into_iter().take(LINES).map(|series| (name(part, series), series)));
    let sizes = part.memory.devices.iter().filter_map(|device| {
        Some(Ceiling { name: format!("device {}", device.device), bytes: device.total_bytes? })
    });
    if let Some(at) = draw(builder, "Device memory in use", &drawn) {
        builder.document.charts[at].ceilings = sizes.collect();
    }
}

/// Levels that an allocator states itself, and those of control groups.
fn other_charts(builder: &mut Builder, part: &SamplesPart) {
    let of = |metrics: &[Metric]| -> Vec<(String, &SubjectSeries)> {
        let is_drawn = |series: &&SubjectSeries| series.subject.is_some() && metrics.contains(&series.metric);
        let named =
            |series| (format!("{} {}", name(part, series), series.metric.name().replace('_', " ")), series);
        part.series.iter().filter(is_drawn).take(LINES).map(named).collect()
    };
    let mut levels = of(&[Metric::Live, Metric::Reserved]);
    if builder.document.charts.is_empty() {
        draw(builder, "As the allocator counts", &levels);
    } else {
        // Events tell the same of other allocators, in more detail.
        let kind = |series: &SubjectSeries| Some(part.subjects.get(&series.subject?)?.kind);
        levels.retain(|(_, series)| kind(series) == Some(SubjectKind::Pool));
        draw(builder, "Pools: reserved and in use", &levels);
    }
    if let Some(at) = draw(builder, "Memory of the cgroup", &of(&[Metric::CgroupUsage])) {
        builder.document.charts[at].ceilings = limits(part);
    }
}

/// Limits of control groups.
fn limits(part: &SamplesPart) -> Vec<Ceiling> {
    let groups = part.memory.cgroups.iter();
    groups.filter_map(|group| Some(Ceiling { name: "limit".into(), bytes: group.limit_bytes? })).collect()
}

fn marks(builder: &mut Builder, part: &SamplesPart) {
    for mark in part.marks.iter().take(MARKS) {
        let (time, name) = (builder.time(mark.time_ns), cut(&mark.name));
        builder.document.marks.push(MarkAt { time, name });
    }
    if part.marks.len() > MARKS {
        let omitted = format_count((part.marks.len() - MARKS) as u64);
        builder.find(Severity::Note, format!("{omitted} marks more than fit here are left out."));
    }
}

fn dots(builder: &mut Builder, part: &SamplesPart) {
    let mut table = Table {
        id: "stacks",
        title: "Stack samples".into(),
        note: "Dots in the timeline. A row opens to the stacks of all threads; waiting ones come last."
            .into(),
        columns: heads([
            ("time", CellKind::Time),
            ("process", CellKind::Code),
            ("thread", CellKind::Number),
            ("threads", CellKind::Count),
            ("reason", CellKind::Text),
            ("innermost frame", CellKind::Code),
        ]),
        omitted: part.stacks_omitted,
        ..Table::default()
    };
    for taken in &part.stacks {
        let Some(first) = taken.threads.first() else { continue };
        let time = builder.time(taken.time_ns);
        table.rows.push(vec![
            time.into(),
            cut(&process_of(first)).into(),
            thread_of(first).into(),
            (taken.threads.len() as u64 + taken.threads_omitted).into(),
            taken.reason.into(),
            first.frames.first().map(|frame| cut(frame)).into(),
        ]);
        let mut threads = Vec::new();
        for one in &taken.threads {
            let process = process_of(one);
            let who = thread_of(one).map_or_else(|| process.clone(), |id| format!("{process} thread {id}"));
            threads.push(DotThread {
                who: cut(&who),
                stack: builder.stack(&one.frames),
                waits: one.is_waiting,
            });
        }
        let detail = |thread: &DotThread| {
            let text = if thread.waits { format!("{} (waiting)", thread.who) } else { thread.who.clone() };
            Detail { text, stack: thread.stack }
        };
        table.details.push(threads.iter().map(detail).collect());
        let omitted = taken.threads_omitted;
        builder.document.dots.push(Dot { time, reason: taken.reason, threads, omitted });
    }
    builder.table(table);
}

fn process_of(one: &ThreadStack) -> String {
    if one.pid == 0 { one.process.clone() } else { format!("{} {}", one.process, one.pid) }
}

fn thread_of(one: &ThreadStack) -> Option<u64> {
    (one.thread != 0).then_some(one.thread)
}

fn processes(builder: &mut Builder, part: &SamplesPart) {
    let list = &part.memory.process_list;
    let has_rank = list.iter().any(|process| process.rank.is_some());
    let has_gpu = list.iter().any(|process| process.peak_gpu_bytes.is_some());
    let row = |process: &ProcessMemory| {
        let mut row: Vec<Cell> = vec![process.name.as_str().into(), process.pid.into()];
        if has_rank {
            row.push(process.rank.into());
        }
        row.extend([
            process.peak_rss_bytes.into(),
            process.rss_at_peak_bytes.into(),
            process.peak_pss_bytes.into(),
        ]);
        if has_gpu {
            row.push(process.peak_gpu_bytes.into());
        }
        row.extend([
            process.most_threads.into(),
            process.cpu_ns.into(),
            builder.time_cell(process.start_time_ns),
            process.wait_status.map(ending).into(),
            cut(&process.command).into(),
        ]);
        row
    };
    let rows = list.iter().map(row).collect();
    let mut columns = heads([("process", CellKind::Code), ("pid", CellKind::Number)]);
    if has_rank {
        columns.extend(heads([("rank", CellKind::Number)]));
    }
    columns.extend(heads([
        ("peak RSS", CellKind::Bytes),
        ("at the peak", CellKind::Bytes),
        ("PSS", CellKind::Bytes),
    ]));
    if has_gpu {
        columns.extend(heads([("GPU", CellKind::Bytes)]));
    }
    columns.extend(heads([
        ("threads", CellKind::Count),
        ("CPU", CellKind::Duration),
        ("began", CellKind::Time),
        ("ended", CellKind::Text),
        ("command", CellKind::Code),
    ]));
    builder.table(Table {
        id: "processes",
        title: "Processes".into(),
        columns,
        rows,
        omitted: part.memory.processes_omitted,
        ..Table::default()
    });
}

fn phases(builder: &mut Builder, part: &SamplesPart) {
    let rows = part.memory.phases.iter().map(|phase| {
        // With the last process everything is given back; that is no finding.
        let is_last = phase.end_time_ns.is_none() && phase.end_rss_bytes == 0;
        vec![
            cut(phase_name(phase)).into(),
            builder.time_cell(phase.start_time_ns),
            phase.peak_rss_bytes.into(),
            builder.time_cell(phase.peak_time_ns),
            phase.start_rss_bytes.into(),
            phase.end_rss_bytes.into(),
            (!is_last).then(|| phase.growth_bytes()).into(),
        ]
    });
    let rows = rows.collect();
    builder.table(Table {
        id: "phases",
        title: "Phases".into(),
        note: "A phase begins at a mark and ends at the next.".into(),
        columns: heads([
            ("phase", CellKind::Code),
            ("from", CellKind::Time),
            ("peak RSS", CellKind::Bytes),
            ("peak at", CellKind::Time),
            ("at its start", CellKind::Bytes),
            ("at its end", CellKind::Bytes),
            ("growth", CellKind::Bytes),
        ]),
        rows,
        ..Table::default()
    });
}

fn devices(builder: &mut Builder, part: &SamplesPart) {
    let rows = part.memory.devices.iter().map(|device| {
        vec![
            device.device.into(),
            device.name.as_str().into(),
            device.peak_bytes.into(),
            builder.time_cell(device.peak_time_ns),
            device.total_bytes.into(),
        ]
    });
    let rows = rows.collect();
    builder.table(Table {
        id: "device-memory",
        title: "Devices".into(),
        columns: heads([
            ("device", CellKind::Number),
            ("name", CellKind::Code),
            ("most in use", CellKind::Bytes),
            ("at", CellKind::Time),
            ("size", CellKind::Bytes),
        ]),
        rows,
        ..Table::default()
    });
}

/// A line of output that names its rank as `floodmark read` does.
fn ranked(line: &OutputLine) -> String {
    line.rank.map_or_else(|| line.text.clone(), |rank| format!("rank {rank}: {}", line.text))
}

fn output(builder: &mut Builder, part: &SamplesPart) {
    let lines: Vec<_> = part.output.lines().collect();
    if lines.is_empty() {
        return;
    }
    let omitted = part.output.omitted();
    let times: Vec<i64> = lines.iter().map(|line| builder.time(line.time_ns)).collect();
    let streams: Vec<i64> = lines.iter().map(|line| i64::from(line.stream as u8)).collect();
    builder.document.output = Some(Output {
        note: omitted.map_or_else(
            || counted(lines.len() as u64, "line") + ".",
            |(count, _)| {
                format!("The first and the last lines; {} between them are left out.", counted(count, "line"))
            },
        ),
        times: builder.column(times.into_iter()),
        streams: builder.column(streams.into_iter()),
        lines: lines.iter().map(|line| ranked(line)).collect(),
        gap: omitted.map(|(_, at)| at),
    });
}
