//! Memory that was sampled: of the job, of processes, hosts, devices and kinds.

use std::cmp::Reverse;

use floodmark_analyze::{
    SeriesKey, SeriesMember, SeriesSet, StackedPoint, SubjectSeriesFold, UsagePoint, waits,
};
use floodmark_event::filter::Window;
use floodmark_event::{Metric, OutputRow, Row, ScopeAction, SubjectKind, Tables};
use floodmark_store::{RowSource, ScanProps};

use super::parts::{MOST_PARTS, SMALLEST, few, part_lines, parts, points, total};
use super::{Gathered, Layer, Marked, Peak, Per, PlotProps, Role, Series, Show, Stack, label};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::overlay::DeviceIds;
use crate::subjects::subject_name;

/// Lines of output, and stacks, that are kept.
const MOST_MARKED: usize = 20_000;
/// Frames that are kept of a stack.
const MOST_FRAMES: usize = 40;

/// Metrics that are shown by themselves.
const MAIN: [Metric; 2] = [Metric::Rss, Metric::CgroupUsage];

/// Metrics that are shown beside the main one.
const BESIDE: [Metric; 4] = [Metric::Pss, Metric::GpuUsed, Metric::Reserved, Metric::Live];

/// Resident memory by origin.
const RSS_KINDS: [(Metric, &str); 3] = [
    (Metric::RssAnon, "heap, stacks and other private memory"),
    (Metric::RssFile, "files"),
    (Metric::RssShmem, "shared memory"),
];

/// The sum over [`RSS_KINDS`] of all processes.
const RSS_BY_KIND: SeriesKey = SeriesKey { kind: SubjectKind::Process, metric: Metric::RssAnon };

type SampledSeries = SeriesSet<SeriesMember>;

/// Collects rows while they are read.
struct Collector<'a> {
    props: &'a PlotProps,
    samples: SubjectSeriesFold<StackedPoint>,
    /// Subjects that the fold knows.
    known: usize,
    first_ns: Option<i64>,
    window: Window,
    gathered: Gathered,
    /// Whether the latest stack is that of a thread that waits.
    shown_waits: bool,
    left_out: u64,
}

impl<'a> Collector<'a> {
    fn new(props: &'a PlotProps) -> Self {
        let samples = SubjectSeriesFold::new(&Tables::default().subjects, props.points);
        let samples = if props.per == Some(Per::Kind) {
            samples.of_metrics(&RSS_KINDS.map(|(metric, _)| metric)).joined()
        } else {
            let mut metrics = [&MAIN[..], &BESIDE, &[Metric::Rank]].concat();
            metrics.extend(props.metric);
            samples.of_metrics(&metrics)
        };
        Self {
            props,
            samples,
            known: 0,
            first_ns: None,
            window: Window::default(),
            gathered: Gathered::default(),
            shown_waits: false,
            left_out: 0,
        }
    }

    /// Resolves the window, which may count from the first row.
    fn begin(&mut self, first_ns: i64) {
        self.first_ns = Some(first_ns);
        self.window = self.props.filter.window(first_ns);
        let Window { from_ns, to_ns } = self.window;
        self.samples.set_window(from_ns.unwrap_or(i64::MIN), to_ns.unwrap_or(i64::MAX));
    }

    fn rows(&mut self, rows: &[Row], tables: &Tables) {
        if self.known != tables.subjects.len() {
            self.known = tables.subjects.len();
            self.samples.learn(&tables.subjects);
        }
        for row in rows {
            if self.first_ns.is_none() {
                self.begin(row.time_ns());
            }
            if !self.window.is_past(row.time_ns()) {
                self.row(row, tables);
            }
        }
    }

    fn row(&mut self, row: &Row, tables: &Tables) {
        if let Row::Sample(sample) = row {
            self.samples.push(sample);
            return;
        }
        let time_ns = row.time_ns();
        if self.window.is_before(time_ns) {
            return;
        }
        let gathered = &mut self.gathered;
        let (list, lines) = match row {
            Row::Scope(scope) if scope.action == ScopeAction::Mark => {
                (&mut gathered.marks, vec![label(tables.string(scope.name))])
            }
            // Kept even if not shown, because inputs may be aligned by it.
            Row::Output(output) => (&mut gathered.output, output_line(output).into_iter().collect()),
            Row::Stack(stack) if self.props.stacks == Show::Yes => {
                // One dot for a moment, of a thread that works if there is one.
                let is_waiting = waits(stack.stack, tables);
                if gathered.stacks.last().is_some_and(|last| last.time_ns == time_ns) {
                    if !self.shown_waits || is_waiting {
                        return;
                    }
                    gathered.stacks.pop();
                }
                self.shown_waits = is_waiting;
                let frames = tables.stack_text(stack.stack);
                (&mut gathered.stacks, frames.iter().take(MOST_FRAMES).map(|frame| label(frame)).collect())
            }
            _ => return,
        };
        if lines.is_empty() {
            return;
        }
        if list.len() >= MOST_MARKED {
            self.left_out += 1;
        } else {
            list.push(Marked { time_ns, lines });
        }
    }

    /// Returns what the input is about, or what was asked for.
    fn main(&self) -> Option<SeriesKey> {
        self.samples.state().main_key(self.props.metric)
    }

    fn has_ranks(&self) -> bool {
        self.samples.state().observed().iter().any(|one| one.rank().is_some())
    }

    /// Names a part by the program that it ran last.
    fn name(&self, part: &SeriesMember, tables: &Tables) -> String {
        named(self.samples.state().observed()[part.at].subject, tables)
    }
}

/// Returns the first line of output that is not empty.
fn output_line(row: &OutputRow) -> Option<String> {
    let text = String::from_utf8_lossy(&row.bytes);
    text.lines().map(label).find(|line| !line.is_empty())
}

/// Reads all of a source and makes curves of it.
pub(super) fn gather(
    source: &mut dyn RowSource,
    input: Option<&Input>,
    props: &PlotProps,
) -> Result<Gathered> {
    let mut collector = Collector::new(props);
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        collector.rows(&rows, source.tables());
    }
    collector.samples.complete();
    if let Some(metric) = props.metric
        && collector.main().is_none()
    {
        return Err(Error::no_content(
            format!("there are no samples of {}", metric.name()),
            "leave --metric out to see what there is",
        ));
    }
    if props.per == Some(Per::Rank) && !collector.has_ranks() {
        return Err(Error::no_content(
            "it does not say which process is which rank",
            "take --per process or --per host",
        ));
    }
    let mut gathered = std::mem::take(&mut collector.gathered);
    gathered.start_ns = collector.window.from_ns.max(collector.first_ns);
    gathered.origin_ns = props.filter.origin_ns.or(collector.first_ns);
    gathered.losses = source.losses().gaps;
    if collector.left_out > 0 {
        gathered.remarks.push(format!("{} more lines of output or stacks are left out", collector.left_out));
    }
    curves(&collector, source.tables(), &mut gathered);
    if let (Some(input), Some(first)) = (input, gathered.series.first_mut())
        && collector.main() == Some(SeriesKey { kind: SubjectKind::Job, metric: Metric::Rss })
        && props.per.is_none()
        // It is the peak of all processes.
        && props.launchers == Show::Yes
        && props.filter.from_ns.is_none()
        && props.filter.to_ns.is_none()
        && let Some(remark) = kernels_peak(input, first)?
    {
        gathered.remarks.push(remark);
    }
    Ok(gathered)
}

/// The kernel may know a higher peak than the samples saw.
fn kernels_peak(input: &Input, series: &mut Series) -> Result<Option<String>> {
    let Some((memory, _)) = input.run_memory(Some(1))? else { return Ok(None) };
    let seen = series.highest().map_or(0, |peak| peak.bytes);
    let Some(time_ns) = memory.peak_time_ns.filter(|_| memory.peak_rss_bytes > seen) else { return Ok(None) };
    series.peak = Some(Peak { time_ns, bytes: memory.peak_rss_bytes });
    // A few pages are no reason to explain anything.
    let is_far = memory.peak_rss_bytes - seen > memory.peak_rss_bytes / 50;
    Ok(is_far.then(|| "the peak lies between two samples; it is the kernel's high-water mark".to_owned()))
}

/// Returns the values that parts are drawn of, and what they measure.
fn parts_of(collector: &Collector<'_>, per: Per) -> Option<(SampledSeries, String)> {
    let (kind, metric) = match per {
        Per::Kind => {
            return Some((collector.samples.series(RSS_BY_KIND)?, "resident memory by kind (RSS)".into()));
        }
        Per::Device => (SubjectKind::Device, Metric::GpuUsed),
        Per::Host => (SubjectKind::Host, Metric::Rss),
        Per::Process | Per::Rank => (SubjectKind::Process, Metric::Rss),
    };
    let key = SeriesKey { kind, metric: collector.props.metric.unwrap_or(metric) };
    Some((collector.samples.series(key)?, of_all(key)))
}

fn curves(collector: &Collector<'_>, tables: &Tables, gathered: &mut Gathered) {
    let props = collector.props;
    let Some(per) = props.per else { return totals(collector, tables, gathered) };
    let Some((series, measure)) = parts_of(collector, per) else { return };
    let Some(end_ns) = series.end_ns else { return };
    gathered.measure = measure;
    let times_ns: Vec<i64> = series.points.iter().map(|point| point.total.time_ns).collect();
    let observed = collector.samples.state().observed();
    let parts = parts(&series, |at, part| match per {
        Per::Kind => {
            let kind = RSS_KINDS.iter().position(|(metric, _)| *metric == part.metric).unwrap_or(0);
            (kind, RSS_KINDS[kind].1.to_owned())
        }
        Per::Rank => match observed[part.at].rank() {
            Some(rank) => (rank as usize, format!("rank {rank}")),
            None => (usize::MAX, "processes without a rank".to_owned()),
        },
        _ => (at, collector.name(part, tables)),
    });
    let mut layers: Vec<Layer> =
        parts.into_iter().map(|((_, name), values)| Layer { name, values }).collect();
    if collector.window.from_ns.is_some() {
        // What ended before the window.
        layers.retain(|layer| layer.values.iter().any(|value| *value > 0));
    }
    let (layers, remark) = few(layers);
    gathered.remarks.extend(remark);
    let stack = Stack { times_ns, layers, end_ns };
    if props.stacks_parts() {
        gathered.series.push(total("total".into(), &series, end_ns));
        gathered.stack = Some(stack);
    } else if matches!(per, Per::Kind | Per::Rank) {
        gathered.series = part_lines(&stack);
    } else {
        lines(collector, &series, tables, gathered);
    }
}

/// Adds a curve for every part, with all of its own peaks.
fn lines(collector: &Collector<'_>, series: &SampledSeries, tables: &Tables, gathered: &mut Gathered) {
    let ends_ns = |part: &SeriesMember| collector.samples.state().observed()[part.at].end_ns;
    let is_shown =
        |part: &SeriesMember| ends_ns(part).is_none_or(|end_ns| !collector.window.is_before(end_ns));
    let groups = series.groups.iter().filter(|group| is_shown(&group.group));
    let mut lines: Vec<Series> = groups
        .map(|group| Series {
            name: collector.name(&group.group, tables),
            points: points(&group.points),
            end_ns: ends_ns(&group.group).or(series.end_ns).unwrap_or(0),
            ..Series::default()
        })
        .collect();
    let highest = |series: &Series| series.highest().map_or(0, |peak| peak.bytes);
    lines.sort_by_key(|series| Reverse(highest(series)));
    let least = lines.first().map_or(0, highest) / SMALLEST;
    let all = lines.len();
    if all > MOST_PARTS {
        lines.truncate(MOST_PARTS);
        lines.retain(|series| highest(series) >= least);
        gathered.remarks.pop_if(|remark| remark.ends_with("added up"));
        gathered.remarks.push(format!("the {} smallest are left out", all - lines.len()));
    }
    gathered.series = lines;
}

/// Sums over all subjects of a kind: what the input is about, and what stands beside it.
fn totals(collector: &Collector<'_>, tables: &Tables, gathered: &mut Gathered) {
    let Some(main) = collector.main() else { return };
    let mut all = vec![main];
    if collector.props.metric.is_none() && collector.props.is_alone {
        let beside = BESIDE.into_iter().filter_map(|metric| collector.samples.state().main_key(Some(metric)));
        all.extend(beside.filter(|key| *key != main));
    }
    gathered.measure = of_all(main);
    for (number, key) in all.into_iter().enumerate() {
        let Some(sampled) = collector.samples.series(key) else { continue };
        let Some(end_ns) = sampled.end_ns else { continue };
        let mut series = total(short(key), &sampled, end_ns);
        series.role = if number == 0 { Role::Main } else { Role::Beside };
        if let (SubjectKind::Device, [device]) = (key.kind, &sampled.groups[..]) {
            series.name = format!("{} in use", collector.name(&device.group, tables));
        }
        let highest = series.highest().map_or(0, |peak| peak.bytes);
        let main_highest = gathered.series.first().and_then(Series::highest).map_or(0, |peak| peak.bytes);
        // It is read rarely, so it is shown only where much is shared.
        let processes = SeriesKey { kind: SubjectKind::Process, metric: Metric::Rss };
        let is_worth_it = key.metric != Metric::Pss
            || collector.samples.state().reporters(processes) > 1 && highest < main_highest / 10 * 9;
        if number == 0 || (highest > 0 && is_worth_it) {
            gathered.series.push(series);
        }
    }
    if gathered.series.len() > 1 {
        gathered.measure = "memory".into();
    }
}

/// Returns the memory of every device that a log reports, or of every process if it reports only these, with at
/// most `points_kept` points each.
///
/// # Errors
/// If the log has no samples or cannot be read.
pub fn device_series(log: &Input, points_kept: usize) -> Result<Vec<Series>> {
    paired_series(log, points_kept, &DeviceIds::default())
}

/// Returns the same for the devices that `ids` knows, if both sides identify devices.
pub(super) fn paired_series(log: &Input, points_kept: usize, ids: &DeviceIds) -> Result<Vec<Series>> {
    let mut source = log.rows(&ScanProps::default())?;
    let mut fold: SubjectSeriesFold<UsagePoint> =
        SubjectSeriesFold::new(&Tables::default().subjects, points_kept).of_metrics(&[Metric::GpuUsed]);
    let (mut rows, mut known) = (Vec::new(), 0);
    while source.next(&mut rows)? {
        let subjects = &source.tables().subjects;
        if known != subjects.len() {
            known = subjects.len();
            fold.learn(subjects);
        }
        for row in &rows {
            if let Row::Sample(row) = row {
                fold.push(row);
            }
        }
    }
    fold.complete();
    let of = |kind| fold.series(SeriesKey { kind, metric: Metric::GpuUsed });
    let Some(sampled) = of(SubjectKind::Device).or_else(|| of(SubjectKind::Process)) else {
        return Ok(Vec::new());
    };
    let series = |group: &floodmark_analyze::GroupSeries<SeriesMember>| {
        let subject = fold.state().observed()[group.group.at].subject;
        let mut row = source.tables().subjects.get(&subject)?.clone();
        if row.kind == SubjectKind::Device {
            // The input may count its devices in another order.
            row.number = u64::try_from(ids.device(&row)?).ok()?;
        }
        Some(Series {
            name: format!("nvidia-smi, {}", label(&subject_name(&row))),
            points: points(&group.points),
            end_ns: sampled.end_ns.unwrap_or(0),
            role: Role::Beside,
            ..Series::default()
        })
    };
    Ok(sampled.groups.iter().filter_map(series).collect())
}

fn named(subject: u64, tables: &Tables) -> String {
    tables.subjects.get(&subject).map_or_else(|| subject.to_string(), |row| label(&subject_name(row)))
}

/// Describes a metric of all subjects of a kind.
fn of_all(key: SeriesKey) -> String {
    let SeriesKey { kind, metric } = key;
    let what = match metric {
        Metric::Rss => "resident memory (RSS)",
        Metric::Pss => "resident memory, shared pages once (PSS)",
        Metric::GpuUsed => "GPU memory in use",
        Metric::Reserved => "memory reserved by the allocator",
        Metric::Live => "memory in use",
        Metric::CgroupUsage => "memory of the control group",
        metric => return format!("{} of all {}", metric.name(), plural(kind)),
    };
    let many = match (kind, metric) {
        (SubjectKind::Job | SubjectKind::Cgroup, _) => return what.to_owned(),
        (kind, _) => plural(kind),
    };
    format!("{what} of all {many}")
}

/// Describes it in a word or two, for names beside others.
fn short(key: SeriesKey) -> String {
    match (key.kind, key.metric) {
        (_, Metric::Rss) => "RSS".into(),
        (_, Metric::Pss) => "PSS (shared pages once)".into(),
        (_, Metric::GpuUsed) => "GPU memory in use".into(),
        (_, Metric::Reserved) => "reserved".into(),
        (_, Metric::Live) => "in use".into(),
        _ => of_all(key),
    }
}

fn plural(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Process => "processes",
        SubjectKind::Device => "devices",
        SubjectKind::Host => "hosts",
        SubjectKind::Cgroup => "control groups",
        SubjectKind::Pool => "pools",
        _ => "processes of the job",
    }
}
