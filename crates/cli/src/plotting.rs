//! From inputs to one figure: gathers what each has to show, puts them on one axis of time.

mod align;
mod events;
mod parts;
mod samples;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use floodmark_convert::{OpenProps, Opened, open_any, open_samples};
use floodmark_event::Filter;
use floodmark_event::Metric;
use floodmark_store::{Trace, is_trace};
use floodmark_view::Loss;
use floodmark_view::plot::{Figure, Peak, Phase, Role, Series, Stack, TimeAxis, label};

use crate::error::hinted;
use crate::pass::opened;
use crate::printer::Printer;
use crate::reading::{Show, is_of_samples};

pub(crate) use align::{Align, parse_align};
pub(crate) use samples::device_series;

/// How far apart a line of output and the mark that it made may be.
const SAME_LINE_NS: u64 = 1_000_000;

/// What is drawn by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Per {
    /// Every process
    Process,
    /// Every rank of an MPI job
    Rank,
    /// Every host
    Host,
    /// Every device
    Device,
    /// Every kind of memory
    Kind,
}

/// How parts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Draw {
    /// As areas on top of each other
    Stack,
    /// As lines
    Lines,
}

/// What to gather.
#[derive(Clone, Debug)]
pub(crate) struct GatherProps {
    pub(crate) open: OpenProps,
    pub(crate) filter: Filter,
    pub(crate) per: Option<Per>,
    pub(crate) draw: Option<Draw>,
    pub(crate) metric: Option<Metric>,
    pub(crate) output: Show,
    pub(crate) stacks: Show,
    pub(crate) phases: Show,
    /// Points to keep of a curve.
    pub(crate) points: usize,
    /// Whether there is one input.
    pub(crate) is_alone: bool,
}

impl GatherProps {
    /// Whether parts are put on top of each other.
    pub(crate) fn stacks_parts(&self) -> bool {
        self.is_alone && self.draw != Some(Draw::Lines)
    }
}

/// A named instant, or text at one.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    pub(crate) time_ns: i64,
    pub(crate) lines: Vec<String>,
}

/// What an input has to show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    /// When it begins, which may be before its curves do.
    pub(crate) start_ns: Option<i64>,
    /// What its curves count.
    pub(crate) measure: String,
    /// Curves, the one it is about first.
    pub(crate) series: Vec<Series>,
    pub(crate) stack: Option<Stack>,
    pub(crate) marks: Vec<Marked>,
    pub(crate) output: Vec<Marked>,
    pub(crate) stacks: Vec<Marked>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) remarks: Vec<String>,
}

impl Gathered {
    fn first_ns(&self) -> Option<i64> {
        let curves = self.series.iter().filter_map(|series| series.points.first());
        let stack = self.stack.iter().filter_map(|stack| stack.times_ns.first().copied());
        self.start_ns.into_iter().chain(curves.map(|point| point.time_ns)).chain(stack).min()
    }

    fn last_ns(&self) -> Option<i64> {
        self.series.iter().map(|series| series.end_ns).max()
    }

    /// Moves everything earlier by `by_ns`.
    fn shift(&mut self, by_ns: i64) {
        let earlier = |time_ns: &mut i64| *time_ns = time_ns.saturating_sub(by_ns);
        for series in &mut self.series {
            series.points.iter_mut().for_each(|point| earlier(&mut point.time_ns));
            earlier(&mut series.end_ns);
            if let Some(Peak { time_ns, .. }) = &mut series.peak {
                earlier(time_ns);
            }
        }
        if let Some(stack) = &mut self.stack {
            stack.times_ns.iter_mut().for_each(earlier);
            earlier(&mut stack.end_ns);
        }
        let marked = self.marks.iter_mut().chain(&mut self.output).chain(&mut self.stacks);
        marked.for_each(|marked| earlier(&mut marked.time_ns));
    }
}

/// Gathers all inputs and makes one figure of them.
pub(crate) fn compose(
    inputs: &[PathBuf],
    smi: Option<&Path>,
    align: &Align,
    props: &GatherProps,
    printer: &Printer,
) -> Result<Figure> {
    let names = names(inputs);
    let mut figure = Figure { title: title(inputs, &names), ..Figure::default() };
    figure.time = match align {
        Align::Start => TimeAxis::Elapsed,
        Align::Mark(_) => TimeAxis::Marked,
        Align::Clock => TimeAxis::Clock,
    };
    for (number, (input, name)) in inputs.iter().zip(&names).enumerate() {
        let mut one = gather(input, props, printer)?;
        if one.series.is_empty() {
            return Err(hinted(
                format!("{} has nothing to draw", input.display()),
                "'floodmark info' shows what it holds; --from, --to, --metric and others may leave nothing",
            ));
        }
        let zero_ns = align.zero_ns(&one, input)?;
        figure.from_ns = figure.from_ns.or(one.first_ns().map(|first_ns| first_ns.saturating_sub(zero_ns)));
        if let Some(smi) = smi.filter(|_| number == 0) {
            add_smi(&mut one, smi, props)?;
        }
        one.shift(zero_ns);
        add(&mut figure, one, name, props, printer);
    }
    Ok(figure)
}

/// Adds what an input has to show to the figure.
fn add(figure: &mut Figure, one: Gathered, name: &str, props: &GatherProps, printer: &Printer) {
    let first = figure.series.len();
    let Gathered { measure, mut series, stack, marks, output, stacks, losses, remarks, .. } = one;
    if props.is_alone {
        figure.stack = stack;
        figure.measure = measure;
        if props.phases == Show::Yes {
            figure.phases = phases(&marks, series.iter().map(|series| series.end_ns).max().unwrap_or(0));
        }
    } else {
        series.truncate(if props.per.is_some() { usize::MAX } else { 1 });
        for series in &mut series {
            series.role = Role::Main;
            series.name =
                if props.per.is_some() { format!("{name}: {}", series.name) } else { name.to_owned() };
        }
        if !figure.measure.contains(&measure) {
            let before = std::mem::take(&mut figure.measure);
            figure.measure = if before.is_empty() { measure } else { format!("{before}; {measure}") };
        }
    }
    figure.series.append(&mut series);
    let note = |marked: Marked| floodmark_view::plot::Note {
        time_ns: marked.time_ns,
        series: first,
        text: marked.lines.into_iter().next().unwrap_or_default(),
    };
    if props.output == Show::Yes {
        // A line that began a phase stands at the top already.
        let phases = &figure.phases;
        let is_named = |output: &Marked| {
            let begins = |phase: &&Phase| phase.from_ns.abs_diff(output.time_ns) <= SAME_LINE_NS;
            let says = |phase: &Phase| output.lines.iter().any(|line| line.contains(&phase.name));
            phases.iter().filter(begins).any(says)
        };
        let output: Vec<Marked> = output.into_iter().filter(|output| !is_named(output)).collect();
        figure.notes.extend(output.into_iter().map(note));
    }
    let dot = |Marked { time_ns, lines }| floodmark_view::plot::Dot { time_ns, series: first, lines };
    figure.dots.extend(stacks.into_iter().map(dot));
    figure.remarks.extend(remarks);
    figure.remarks.extend(losses.iter().map(|loss| label(&loss.sentence())));
    printer.lost(&losses);
}

/// From each mark to the next.
fn phases(marks: &[Marked], end_ns: i64) -> Vec<Phase> {
    let ends = marks.iter().skip(1).map(|mark| mark.time_ns).chain([end_ns]);
    let phase = |(mark, to_ns): (&Marked, i64)| Phase {
        name: mark.lines.first().cloned().unwrap_or_default(),
        from_ns: mark.time_ns,
        to_ns: to_ns.max(mark.time_ns),
    };
    marks.iter().zip(ends).map(phase).collect()
}

/// Gathers what an input has to show.
fn gather(path: &Path, props: &GatherProps, printer: &Printer) -> Result<Gathered> {
    if is_trace(path) {
        let mut one = if is_of_samples(path)? {
            let trace = Trace::open(path)?;
            samples::gather(open_samples(path, &props.open)?.as_mut(), Some(&trace), props)?
        } else {
            Gathered::default()
        };
        let is_of_samples = props.metric.is_some() || matches!(props.per, Some(Per::Host | Per::Rank));
        if !is_of_samples || one.series.is_empty() {
            let source = floodmark_convert::open(path, &events::open_props(props))?;
            events::gather(source, path, props, printer)?.join(&mut one);
        }
        return Ok(one);
    }
    match opened(path, open_any(path, &events::open_props(props)))? {
        Opened::Events(source) => events::gather(source, path, props, printer),
        Opened::Samples(mut source) => samples::gather(source.as_mut(), None, props),
        Opened::Both(_, mut source) if matches!(props.per, Some(Per::Host | Per::Rank)) => {
            samples::gather(source.as_mut(), None, props)
        }
        Opened::Both(source, mut beside) => {
            let mut one = events::gather(source, path, props, printer)?;
            samples::gather(beside.as_mut(), None, props)?.join(&mut one);
            Ok(one)
        }
    }
}

impl Gathered {
    /// Puts this beside what there is already.
    fn join(mut self, there: &mut Self) {
        if there.series.is_empty() && there.stack.is_none() {
            self.start_ns = [self.start_ns, there.start_ns].into_iter().flatten().min();
            let marks = std::mem::take(&mut there.marks);
            let (output, stacks) = (std::mem::take(&mut there.output), std::mem::take(&mut there.stacks));
            let remarks = std::mem::take(&mut there.remarks);
            let losses = std::mem::take(&mut there.losses);
            *there = self;
            there.marks.splice(0..0, marks);
            there.output.splice(0..0, output);
            there.stacks.splice(0..0, stacks);
            there.remarks.splice(0..0, remarks);
            there.losses.splice(0..0, losses);
            return;
        }
        there.start_ns = [self.start_ns, there.start_ns].into_iter().flatten().min();
        self.series.iter_mut().for_each(|series| series.role = Role::Beside);
        there.series.append(&mut self.series);
        there.marks.append(&mut self.marks);
        there.output.append(&mut self.output);
        there.stacks.append(&mut self.stacks);
        there.remarks.append(&mut self.remarks);
        let known = |loss: &Loss| there.losses.iter().any(|other| other.reason == loss.reason);
        self.losses.retain(|loss| !known(loss));
        there.losses.append(&mut self.losses);
    }
}

/// Adds what `nvidia-smi` reported.
fn add_smi(one: &mut Gathered, path: &Path, props: &GatherProps) -> Result<()> {
    let mut source = open_samples(path, &props.open)?;
    let mut devices = device_series(source.as_mut(), props)?;
    if devices.is_empty() {
        return Err(hinted(
            format!("{} has no memory of devices", path.display()),
            "query memory.used, as in nvidia-smi --query-gpu=timestamp,memory.used --format=csv --loop-ms=10",
        ));
    }
    let span = one.first_ns().zip(one.last_ns());
    if let Some(remark) = align::put_beside(&mut devices, span) {
        one.remarks.push(remark);
    }
    one.series.append(&mut devices);
    Ok(())
}

/// Names of inputs that tell them apart: file names, with folders where those are equal.
fn names(inputs: &[PathBuf]) -> Vec<String> {
    let stem = |path: &PathBuf| path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let full = |path: &PathBuf| path.display().to_string();
    let is_unique = |path: &PathBuf| inputs.iter().filter(|other| stem(other) == stem(path)).count() == 1;
    let name = |path: &PathBuf| label(&if is_unique(path) { stem(path) } else { full(path) });
    let mut names: Vec<String> = Vec::new();
    for path in inputs {
        let name = name(path);
        let again =
            names.iter().filter(|other| **other == name || other.starts_with(&format!("{name} ("))).count();
        names.push(if again == 0 { name } else { format!("{name} ({})", again + 1) });
    }
    names
}

/// The command that was recorded, or what is compared.
fn title(inputs: &[PathBuf], names: &[String]) -> String {
    if let [input] = inputs {
        let command = || Trace::open(input).ok()?.manifest().run.command.clone();
        let command = if is_trace(input) { command() } else { None };
        return label(&command.unwrap_or_else(|| {
            input.file_name().unwrap_or(input.as_os_str()).to_string_lossy().into_owned()
        }));
    }
    match names {
        [first, second] => format!("{first} and {second}"),
        [first, rest @ ..] if rest.len() > 3 => format!("{first} and {} others", rest.len()),
        names => names.join(", "),
    }
}
