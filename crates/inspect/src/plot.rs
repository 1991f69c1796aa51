//! Plots: gathers what inputs have to show and puts it on one axis of time, as a [`Figure`].

mod align;
mod calls;
mod events;
mod figure;
mod parts;
mod samples;

use std::path::PathBuf;

use floodmark_event::{Filter, Metric};
use floodmark_store::ScanProps;

pub use align::{Align, parse_align};
pub use figure::{Dot, Figure, Layer, Note, Peak, Phase, Point, Role, Series, Shape, Stack, TimeAxis, label};
pub use samples::device_series;
use samples::paired_series;

use crate::answer::Loss;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::launchers::WithoutLaunchers;
use crate::query::Query;

/// How far apart a line of output and the mark that it made may be.
const SAME_LINE_NS: u64 = 1_000_000;

/// An axis begins at the origin if the first value is within this part of it.
const NEAR_ORIGIN: i64 = 20;

/// What gets a curve of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Every process.
    Process,
    /// Every rank of an MPI job.
    Rank,
    /// Every host.
    Host,
    /// Every device.
    Device,
    /// Every kind of memory.
    Kind,
}

/// How parts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// As areas on top of each other.
    Stack,
    /// As lines.
    Lines,
}

/// Whether something is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// Leave it out.
    #[default]
    No,
    /// Show it.
    Yes,
}

impl From<bool> for Show {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// What a plot shows.
#[derive(Clone, Debug)]
pub struct PlotProps {
    /// Selects events, and the window of samples.
    pub filter: Filter,
    /// What gets a curve of its own.
    pub per: Option<Per>,
    /// How parts are drawn.
    pub draw: Option<Draw>,
    /// Metric of the samples.
    pub metric: Option<Metric>,
    /// Whether output of the command is shown.
    pub output: Show,
    /// Whether stack samples are shown.
    pub stacks: Show,
    /// Whether phases are shown.
    pub phases: Show,
    /// Points to keep of a curve.
    pub points: usize,
    /// Whether there is one input.
    pub is_alone: bool,
    /// Whether totals of MPI jobs contain what starts the ranks.
    pub launchers: Show,
}

/// A figure, and what is known to be missing from it.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// The figure.
    pub figure: Figure,
    /// Losses that concern its curves.
    pub losses: Vec<Loss>,
}

impl PlotProps {
    /// Whether parts are put on top of each other.
    fn stacks_parts(&self) -> bool {
        self.is_alone && self.draw != Some(Draw::Lines)
    }
}

/// A named instant, or text at one.
#[derive(Clone, Debug)]
struct Marked {
    time_ns: i64,
    lines: Vec<String>,
}

/// What an input has to show.
#[derive(Clone, Debug, Default)]
struct Gathered {
    /// When it begins, which may be before its curves do.
    start_ns: Option<i64>,
    /// Instant that times count from, unless inputs are aligned otherwise.
    origin_ns: Option<i64>,
    /// What its curves count.
    measure: String,
    /// Curves, the one it is about first.
    series: Vec<Series>,
    stack: Option<Stack>,
    marks: Vec<Marked>,
    output: Vec<Marked>,
    stacks: Vec<Marked>,
    losses: Vec<Loss>,
    remarks: Vec<String>,
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

/// Gathers all inputs and makes one figure of them; `smi` is a log of a device's memory to put beside them.
///
/// # Errors
/// If an input has nothing to draw or cannot be read.
pub fn plot(
    inputs: &[Input],
    smi: Option<&Input>,
    align: &Align,
    query: &Query<'_>,
    props: &PlotProps,
) -> Result<Plot> {
    let names = names(inputs);
    let mut plot = Plot::default();
    plot.figure.title = title(inputs, &names);
    plot.figure.time = match align {
        Align::Start => TimeAxis::Elapsed,
        Align::Mark(_) => TimeAxis::Marked,
        Align::Clock => TimeAxis::Clock,
    };
    for (number, (input, name)) in inputs.iter().zip(&names).enumerate() {
        let props = &PlotProps { filter: input.anchored(&props.filter)?, ..props.clone() };
        let mut one = gather(input, query, props)?;
        if one.series.is_empty() {
            return Err(Error::no_content(
                format!("{} contains nothing to draw", input.name()),
                "'floodmark info' shows what it contains; --from, --to, --metric and others may leave nothing",
            ));
        }
        let zero_ns = align.zero_ns(&one, input)?;
        let first_ns = one.first_ns().map(|first_ns| first_ns.saturating_sub(zero_ns));
        let last_ns = one.last_ns().unwrap_or(zero_ns).saturating_sub(zero_ns);
        // A short time before the first value belongs to the picture; a long one would be mostly empty.
        let is_near = |first_ns: i64| first_ns >= 0 && first_ns <= last_ns / NEAR_ORIGIN;
        let begins_at_origin = *align == Align::Start && props.filter.from_ns.is_none();
        let first_ns = first_ns.map(|first| if begins_at_origin && is_near(first) { 0 } else { first });
        plot.figure.from_ns = plot.figure.from_ns.or(first_ns);
        if let Some(smi) = smi.filter(|_| number == 0) {
            add_smi(&mut one, &inputs[0], smi, props)?;
        }
        one.shift(zero_ns);
        add(&mut plot, one, name, props);
    }
    Ok(plot)
}

/// Adds what an input has to show to the figure.
fn add(plot: &mut Plot, one: Gathered, name: &str, props: &PlotProps) {
    let figure = &mut plot.figure;
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
    let note = |marked: Marked| Note {
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
    let dot = |Marked { time_ns, lines }| Dot { time_ns, series: first, lines };
    figure.dots.extend(stacks.into_iter().map(dot));
    figure.remarks.extend(remarks);
    figure.remarks.extend(losses.iter().map(|loss| label(&loss.sentence())));
    plot.losses.extend(losses);
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
fn gather(input: &Input, query: &Query<'_>, props: &PlotProps) -> Result<Gathered> {
    let is_of_calls = props.metric.is_none_or(|metric| metric == Metric::Rss)
        && matches!(props.per, None | Some(Per::Process));
    let mut one = gather_rows(input, query, props)?;
    if one.series.is_empty() && is_of_calls && input.has_calls() {
        calls::gather(input, query, props)?.join(&mut one);
    }
    Ok(one)
}

/// Gathers samples and live bytes.
fn gather_rows(input: &Input, query: &Query<'_>, props: &PlotProps) -> Result<Gathered> {
    let contents = input.contents();
    let wants_samples = matches!(props.per, Some(Per::Host | Per::Rank));
    if input.is_about_samples()? {
        // Processes were sampled: events, if there are any, stand beside the samples.
        let mut source = input.rows(&ScanProps::default())?;
        if props.launchers == Show::No {
            source = Box::new(WithoutLaunchers::new(source));
        }
        let mut one = samples::gather(source.as_mut(), Some(input), props)?;
        let is_of_samples = props.metric.is_some() || wants_samples;
        if contents.has_events && (!is_of_samples || one.series.is_empty()) {
            events::gather(input, query, props)?.join(&mut one);
        }
        return Ok(one);
    }
    let can_show_samples = contents.has_rows && contents.can_rewind;
    if can_show_samples && (props.metric.is_some() || (wants_samples && input.trace().is_none())) {
        // Samples beside the events, such as those of pools, are what was asked for.
        let mut source = input.rows(&ScanProps::default())?;
        return samples::gather(source.as_mut(), input.trace().map(|_| input), props);
    }
    if input.trace().is_some() || !can_show_samples {
        return events::gather(input, query, props);
    }
    let mut source = input.rows(&ScanProps::default())?;
    let mut one = events::gather(input, query, props)?;
    samples::gather(source.as_mut(), None, props)?.join(&mut one);
    Ok(one)
}

impl Gathered {
    /// Puts this beside what there is already.
    fn join(mut self, there: &mut Self) {
        if there.series.is_empty() && there.stack.is_none() {
            self.start_ns = [self.start_ns, there.start_ns].into_iter().flatten().min();
            self.origin_ns = [self.origin_ns, there.origin_ns].into_iter().flatten().min();
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
        there.origin_ns = [self.origin_ns, there.origin_ns].into_iter().flatten().min();
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

/// Adds what `nvidia-smi` reported of the devices of the input.
fn add_smi(one: &mut Gathered, input: &Input, log: &Input, props: &PlotProps) -> Result<()> {
    let mut devices = paired_series(log, props.points, &input.device_ids()?)?;
    if devices.is_empty() {
        return Err(Error::no_content(
            format!("{} contains no samples of memory of a device of the input", log.name()),
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

/// Returns names of inputs that tell them apart: file names, with folders where those are equal.
fn names(inputs: &[Input]) -> Vec<String> {
    let stem = |input: &Input| {
        let path = input.path();
        path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    };
    let is_unique = |input: &Input| inputs.iter().filter(|other| stem(other) == stem(input)).count() == 1;
    let name = |input: &Input| label(&if is_unique(input) { stem(input) } else { input.name().to_owned() });
    let mut names: Vec<String> = Vec::new();
    for input in inputs {
        let name = name(input);
        let again =
            names.iter().filter(|other| **other == name || other.starts_with(&format!("{name} ("))).count();
        names.push(if again == 0 { name } else { format!("{name} ({})", again + 1) });
    }
    names
}

/// Returns the command that was recorded, or what is compared.
fn title(inputs: &[Input], names: &[String]) -> String {
    if let [input] = inputs {
        let file = || {
            let path: PathBuf = input.path().to_owned();
            path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        };
        return label(&input.run().command.unwrap_or_else(file));
    }
    match names {
        [first, second] => format!("{first} and {second}"),
        [first, rest @ ..] if rest.len() > 3 => format!("{first} and {} others", rest.len()),
        names => names.join(", "),
    }
}
