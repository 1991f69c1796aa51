//! Memory that was sampled: of the job, of processes, hosts, devices and kinds.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use floodmark_analyze::{SeriesFold, SeriesSet, UsagePoint};
use floodmark_event::Row;
use floodmark_event::filter::resolve;
use floodmark_event::units::Instant;
use floodmark_event::{Metric, OutputRow, SampleRow, ScopeAction, SubjectKind, SubjectRow, Tables};
use floodmark_store::{RowSource, ScanProps};

use super::parts::{MOST_PARTS, SMALLEST, few, part_lines, parts, points, total};
use super::{Gathered, Layer, Marked, Peak, Per, PlotProps, Role, Series, Show, Stack, label};
use crate::error::{Error, Result};
use crate::input::Input;

/// Lines of output, and stacks, that are kept.
const MOST_MARKED: usize = 20_000;
/// Frames that are kept of a stack.
const MOST_FRAMES: usize = 40;

/// What an input is about: the first of these that it has.
const USUAL: [(SubjectKind, Metric); 6] = [
    (SubjectKind::Job, Metric::Rss),
    (SubjectKind::Device, Metric::GpuUsed),
    (SubjectKind::Process, Metric::GpuUsed),
    (SubjectKind::Host, Metric::Rss),
    (SubjectKind::Process, Metric::Rss),
    (SubjectKind::Cgroup, Metric::CgroupUsage),
];

/// Kinds of subjects, those first that stand for most.
const KINDS: [SubjectKind; 5] =
    [SubjectKind::Job, SubjectKind::Device, SubjectKind::Host, SubjectKind::Process, SubjectKind::Cgroup];

/// What is shown beside it.
const BESIDE: [Metric; 4] = [Metric::Pss, Metric::GpuUsed, Metric::Reserved, Metric::Live];

/// Resident memory by where it comes from.
const SORTS: [(Metric, &str); 3] = [
    (Metric::RssAnon, "heap, stacks and other private memory"),
    (Metric::RssFile, "files"),
    (Metric::RssShmem, "shared memory"),
];

/// The metric that tells a process's rank, where whoever recorded knew it.
const RANK: &str = "rank";

/// A subject, and what was read of it.
type Part = (Metric, u64);

/// Collects samples while they are read.
struct Collector<'a> {
    props: &'a PlotProps,
    courses: BTreeMap<SubjectKind, BTreeMap<Metric, SeriesFold<Part>>>,
    /// By kind of memory, where that is asked for.
    sorts: Option<SeriesFold<Part>>,
    /// Processes by number and start: the first subject that stands for one, and the latest.
    processes: BTreeMap<(u64, Option<i64>), (u64, u64)>,
    /// Ranks of processes in an MPI job.
    ranks: BTreeMap<u64, u64>,
    first_ns: Option<i64>,
    gathered: Gathered,
    left_out: u64,
}

impl<'a> Collector<'a> {
    fn new(props: &'a PlotProps) -> Self {
        Self {
            props,
            courses: BTreeMap::new(),
            sorts: None,
            processes: BTreeMap::new(),
            ranks: BTreeMap::new(),
            first_ns: None,
            gathered: Gathered::default(),
            left_out: 0,
        }
    }

    fn resolve(&self, instant: Option<Instant>) -> Option<i64> {
        match instant? {
            Instant::At(time_ns) => Some(time_ns),
            after @ Instant::AfterStart(_) => Some(resolve(after, self.first_ns?)),
        }
    }

    fn row(&mut self, row: &Row, tables: &Tables) {
        let time_ns = row.time_ns();
        self.first_ns.get_or_insert(time_ns);
        if self.resolve(self.props.filter.to_ns).is_some_and(|to_ns| time_ns > to_ns) {
            return;
        }
        let from_ns = self.resolve(self.props.filter.from_ns);
        if let Row::Sample(sample) = row {
            self.sample(sample, from_ns.unwrap_or(i64::MIN), tables);
            return;
        }
        if from_ns.is_some_and(|from_ns| time_ns < from_ns) {
            return;
        }
        let gathered = &mut self.gathered;
        let (list, lines) = match row {
            Row::Scope(scope) if scope.action == ScopeAction::Mark => {
                (&mut gathered.marks, vec![label(tables.string(scope.name))])
            }
            // Kept even if not shown, for those who align by it.
            Row::Output(output) => (&mut gathered.output, output_line(output).into_iter().collect()),
            Row::Stack(stack) if self.props.stacks == Show::Yes => {
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

    /// Takes a sample; those before `from_ns` tell what holds then.
    fn sample(&mut self, row: &SampleRow, from_ns: i64, tables: &Tables) {
        let Some(subject) = tables.subjects.get(&row.subject) else { return };
        // A sweep may tell of a process that ended while it was made.
        if subject.end_ns.is_some_and(|end_ns| end_ns < row.time_ns.max(from_ns)) {
            return;
        }
        let part = (row.metric, self.same(subject));
        if row.metric.name() == RANK {
            self.ranks.insert(part.1, row.value);
        }
        let points = self.props.points;
        let start = || SeriesFold::new(points).within(from_ns, i64::MAX);
        let fold = if self.props.per == Some(Per::Kind) {
            let is_sort = SORTS.iter().any(|(metric, _)| *metric == row.metric);
            if !is_sort || subject.kind != SubjectKind::Process {
                return;
            }
            self.sorts.get_or_insert_with(start)
        } else {
            let metrics = self.courses.entry(subject.kind).or_default();
            let is_wanted = self.props.metric == Some(row.metric)
                || matches!(row.metric, Metric::Rss | Metric::CgroupUsage)
                || BESIDE.contains(&row.metric);
            if !is_wanted {
                return;
            }
            metrics.entry(row.metric).or_insert_with(start)
        };
        fold.set(&part, row.time_ns, row.value);
        if let Some(end_ns) = subject.end_ns {
            fold.end(&[part], end_ns);
        }
    }

    /// The subject that stands for a process. One that runs another program becomes another subject.
    fn same(&mut self, subject: &SubjectRow) -> u64 {
        if subject.kind != SubjectKind::Process || subject.number == 0 {
            return subject.subject;
        }
        let same = self.processes.entry((subject.number, subject.start_ns));
        let (first, latest) = same.or_insert((subject.subject, subject.subject));
        *latest = subject.subject;
        *first
    }

    /// What a part is called, by the program it ran last.
    fn name(&self, subject: u64, tables: &Tables) -> String {
        let latest = self.processes.values().find(|(first, _)| *first == subject);
        subject_name(latest.map_or(subject, |(_, latest)| *latest), tables)
    }

    fn fold(&self, kind: SubjectKind, metric: Metric) -> Option<&SeriesFold<Part>> {
        self.courses.get(&kind)?.get(&metric)
    }

    /// What it is about, or what was asked for.
    fn main(&self) -> Option<(SubjectKind, Metric)> {
        let has = |(kind, metric): &(SubjectKind, Metric)| self.fold(*kind, *metric).is_some();
        match self.props.metric {
            Some(metric) => KINDS.map(|kind| (kind, metric)).into_iter().find(has),
            None => USUAL.into_iter().find(has),
        }
    }
}

/// The first line of output that says something.
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
        for row in &rows {
            collector.row(row, source.tables());
        }
    }
    if let Some(metric) = props.metric
        && collector.main().is_none()
    {
        return Err(Error::no_content(
            format!("there are no samples of {}", metric.name()),
            "leave --metric out to see what there is",
        ));
    }
    if props.per == Some(Per::Rank) && collector.ranks.is_empty() {
        return Err(Error::no_content(
            "it does not say which process is which rank",
            "take --per process or --per host",
        ));
    }
    let mut gathered = std::mem::take(&mut collector.gathered);
    let from_ns = collector.resolve(props.filter.from_ns);
    gathered.start_ns = from_ns.max(collector.first_ns);
    gathered.losses = source.losses().gaps;
    if collector.left_out > 0 {
        gathered.remarks.push(format!("{} more lines of output or stacks are left out", collector.left_out));
    }
    curves(&collector, source.tables(), &mut gathered);
    if let (Some(input), Some(first)) = (input, gathered.series.first_mut())
        && collector.main() == Some((SubjectKind::Job, Metric::Rss))
        && props.per.is_none()
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

fn curves(collector: &Collector<'_>, tables: &Tables, gathered: &mut Gathered) {
    let props = collector.props;
    let (courses, measure): (SeriesSet<Part>, String) = match props.per {
        None => return totals(collector, tables, gathered),
        Some(Per::Kind) => {
            let Some(fold) = &collector.sorts else { return };
            (fold.finish(), "resident memory by kind (RSS)".into())
        }
        Some(per) => {
            let (kind, metric) = match per {
                Per::Device => (SubjectKind::Device, Metric::GpuUsed),
                Per::Host => (SubjectKind::Host, Metric::Rss),
                _ => (SubjectKind::Process, Metric::Rss),
            };
            let metric = props.metric.unwrap_or(metric);
            let Some(fold) = collector.fold(kind, metric) else {
                return;
            };
            (fold.finish(), of_all(kind, metric))
        }
    };
    let Some(end_ns) = courses.end_ns else { return };
    gathered.measure = measure;
    let times_ns: Vec<i64> = courses.moments.iter().map(|moment| moment.total.time_ns).collect();
    let parts =
        parts(&courses, |at, (metric, subject)| match SORTS.iter().position(|(sort, _)| sort == metric) {
            Some(sort) if props.per == Some(Per::Kind) => (sort, SORTS[sort].1.to_owned()),
            _ if props.per == Some(Per::Rank) => match collector.ranks.get(subject) {
                Some(rank) => (*rank as usize, format!("rank {rank}")),
                None => (usize::MAX, "processes without a rank".to_owned()),
            },
            _ => (at, collector.name(*subject, tables)),
        });
    let layers = parts.into_iter().map(|((_, name), values)| Layer { name, values }).collect();
    let (layers, remark) = few(layers);
    gathered.remarks.extend(remark);
    let stack = Stack { times_ns, layers, end_ns };
    if props.stacks_parts() {
        gathered.series.push(total("total".into(), &courses, end_ns));
        gathered.stack = Some(stack);
    } else if matches!(props.per, Some(Per::Kind | Per::Rank)) {
        gathered.series = part_lines(&stack);
    } else {
        // Each by itself, with every peak of its own.
        let mut lines: Vec<Series> = courses
            .groups
            .iter()
            .map(|group| {
                let end_ns =
                    tables.subjects.get(&group.group.1).and_then(|subject| subject.end_ns).unwrap_or(end_ns);
                let points = points(&group.points);
                Series { name: collector.name(group.group.1, tables), points, end_ns, ..Series::default() }
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
}

/// Sums over all subjects of a kind: what the input is about, and what stands beside it.
fn totals(collector: &Collector<'_>, tables: &Tables, gathered: &mut Gathered) {
    let Some(main) = collector.main() else { return };
    let mut all = vec![main];
    if collector.props.metric.is_none() && collector.props.is_alone {
        for metric in BESIDE {
            let kind = KINDS.into_iter().find(|kind| collector.fold(*kind, metric).is_some());
            all.extend(kind.map(|kind| (kind, metric)).filter(|one| *one != main));
        }
    }
    gathered.measure = of_all(main.0, main.1);
    for (number, (kind, metric)) in all.into_iter().enumerate() {
        let Some(fold) = collector.fold(kind, metric) else { continue };
        let courses = fold.finish();
        let Some(end_ns) = courses.end_ns else { continue };
        let role = if number == 0 { Role::Main } else { Role::Beside };
        let mut series = total(short(kind, metric), &courses, end_ns);
        series.role = role;
        if kind == SubjectKind::Device && courses.groups.len() == 1 {
            let subject = courses.groups.first().map_or(0, |group| group.group.1);
            series.name = format!("{} in use", subject_name(subject, tables));
        }
        let highest = series.highest().map_or(0, |peak| peak.bytes);
        let main_highest = gathered.series.first().and_then(Series::highest).map_or(0, |peak| peak.bytes);
        // It is read rarely, so it says something only where much is shared.
        let is_told =
            metric != Metric::Pss || collector.processes.len() > 1 && highest < main_highest / 10 * 9;
        if number == 0 || (highest > 0 && is_told) {
            gathered.series.push(series);
        }
    }
    if gathered.series.len() > 1 {
        gathered.measure = "memory".into();
    }
}

/// Returns the memory of every device that a log reports, with at most `points_kept` points each.
///
/// # Errors
/// If the log has no samples or cannot be read.
pub fn device_series(log: &Input, points_kept: usize) -> Result<Vec<Series>> {
    let mut source = log.rows(&ScanProps::default())?;
    let mut fold: SeriesFold<u64, UsagePoint> = SeriesFold::new(points_kept);
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        for row in &rows {
            let Row::Sample(row) = row else { continue };
            let subject = source.tables().subjects.get(&row.subject);
            let is_device = subject.is_some_and(|subject| subject.kind == SubjectKind::Device);
            if is_device && row.metric == Metric::GpuUsed {
                fold.set(&row.subject, row.time_ns, row.value);
            }
        }
    }
    let courses = fold.finish();
    let end_ns = courses.end_ns.unwrap_or(0);
    let series = |group: &floodmark_analyze::GroupSeries<u64>| Series {
        name: format!("nvidia-smi, {}", subject_name(group.group, source.tables())),
        points: points(&group.points),
        end_ns,
        role: Role::Beside,
        ..Series::default()
    };
    Ok(courses.groups.iter().map(series).collect())
}

fn subject_name(subject: u64, tables: &Tables) -> String {
    let Some(row) = tables.subjects.get(&subject) else { return format!("{subject}") };
    let name = label(&row.name);
    match (row.kind, name.is_empty()) {
        (SubjectKind::Process, false) => format!("{name} ({})", row.number),
        (SubjectKind::Device, true) => format!("GPU {}", row.number),
        (SubjectKind::Device, false) => format!("GPU {} {name}", row.number),
        (_, false) => name,
        (kind, true) => format!("{} {}", kind.name(), row.number),
    }
}

/// What a metric of all subjects of a kind is.
fn of_all(kind: SubjectKind, metric: Metric) -> String {
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

/// The same in a word or two, for names beside others.
fn short(kind: SubjectKind, metric: Metric) -> String {
    match (kind, metric) {
        (_, Metric::Rss) => "RSS".into(),
        (_, Metric::Pss) => "PSS (shared pages once)".into(),
        (_, Metric::GpuUsed) => "GPU memory in use".into(),
        (_, Metric::Reserved) => "reserved".into(),
        (_, Metric::Live) => "in use".into(),
        (kind, metric) => of_all(kind, metric),
    }
}

fn plural(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Process => "processes",
        SubjectKind::Device => "devices",
        SubjectKind::Host => "hosts",
        SubjectKind::Cgroup => "control groups",
        _ => "processes of the job",
    }
}
