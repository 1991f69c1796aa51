//! Rows become lines, in whatever form was asked for.

use std::collections::HashMap;
use std::ops::ControlFlow;

use anyhow::Result;
use floodmark_analyze::{LineLabels, LineRanks, RankedOutput, SeriesKey, SweepFold, SweepTotal};
use floodmark_convert::Format;
use floodmark_event::filter::Window;
use floodmark_event::{Filter, Metric, Row, SampleRow, StackSampleRow, SubjectKind, Tables};
use floodmark_inspect::Input;
use floodmark_inspect::plot::Show;
use floodmark_inspect::subjects::subject_name;
use floodmark_view::samples::{MemoryAt, Reported, series_title, stack_lines};
use floodmark_view::{
    CompactLayout, CompactProps, Layout, OriginalLayout, OriginalProps, SampleCsv, SampleJson,
};

use super::{Extent, LayoutName, SampleForm, SampleProps};
use crate::error::hinted;
use crate::printer::Printer;

/// Turns rows into lines.
pub(super) struct Lines<'a> {
    props: &'a SampleProps,
    layout: Layout,
    sweeps: Option<SweepFold>,
    /// Subjects that the sweeps know.
    known: usize,
    form: Written,
    text: String,
    /// What has the time of the sweep at hand and stands behind its line.
    held: String,
    /// Lines that may still be written.
    left: Option<usize>,
    /// Time of the first row.
    start_ns: Option<i64>,
    /// Rows that are shown.
    window: Option<Window>,
    /// Ranks of processes in an MPI job.
    ranks: HashMap<u64, u64>,
}

enum Written {
    Original(Box<OriginalLayout>),
    Compact(Box<CompactLayout>),
    Csv,
    Json(RankedOutput),
}

/// Whether the samples come from `memory_logger`, whose readers are used to its layout.
fn is_original(input: &Input) -> bool {
    let name = Format::MemoryLogger.name();
    input.run().imported_format.as_deref() == Some(name) || input.format_name() == name
}

/// What is known of the ranks that wrote output before the first row.
fn line_ranks(input: &Input) -> LineRanks {
    LineRanks::new([].into(), input.run().command.as_deref().and_then(LineLabels::of_command))
}

fn compact(input: &Input, extent: Option<Extent>, props: &SampleProps) -> Box<CompactLayout> {
    let line_ranks = line_ranks(input);
    let title = extent.map_or_else(String::new, |extent| series_title(extent.key));
    let (highest_bytes, separate) = (extent.map(|extent| extent.highest), props.separate);
    Box::new(CompactLayout::new(CompactProps { title, highest_bytes, separate, line_ranks }))
}

fn original(extent: Extent, props: &SampleProps, layout: &Layout) -> Written {
    let (highest_bytes, hosts, separate) = (extent.highest, extent.reporters, props.separate);
    Written::Original(Box::new(OriginalLayout::new(OriginalProps { highest_bytes, hosts, separate }, layout)))
}

impl<'a> Lines<'a> {
    /// Begins; `extent` is what is known of everything that will come.
    pub(super) fn new(
        input: &Input,
        extent: Option<Extent>,
        props: &'a SampleProps,
        printer: &Printer,
    ) -> Result<Self> {
        let layout = printer.layout(None);
        let form = match (props.form, extent) {
            (SampleForm::Csv, _) => Written::Csv,
            (SampleForm::Json, _) => Written::Json(RankedOutput::new(line_ranks(input))),
            (SampleForm::Text(Some(LayoutName::Original)), None) => {
                return Err(hinted(
                    "the original layout needs samples, and the highest total before the first line",
                    "take --layout compact, or read a file that is complete and holds samples",
                ));
            }
            (SampleForm::Text(Some(LayoutName::Compact)), _) | (SampleForm::Text(None), None) => {
                Written::Compact(compact(input, extent, props))
            }
            (SampleForm::Text(Some(LayoutName::Original)), Some(extent)) => original(extent, props, &layout),
            (SampleForm::Text(None), Some(extent))
                if extent.key.kind == SubjectKind::Job && is_original(input) =>
            {
                original(extent, props, &layout)
            }
            (SampleForm::Text(None), Some(_)) => Written::Compact(compact(input, extent, props)),
        };
        let window = Filter { from_ns: props.from, to_ns: props.to, ..Filter::default() };
        Ok(Self {
            props,
            layout,
            sweeps: extent.map(|extent| SweepFold::new(extent.key)),
            known: 0,
            form,
            text: String::new(),
            held: String::new(),
            left: props.limit,
            start_ns: input.anchored(&window)?.origin_ns,
            window: None,
            ranks: HashMap::new(),
        })
    }

    /// What stands before the first row.
    pub(super) fn begin(&self) -> String {
        match &self.form {
            Written::Original(original) => original.header(),
            Written::Csv => SampleCsv::HEADER.to_owned(),
            Written::Compact(_) | Written::Json(_) => String::new(),
        }
    }

    /// Learns what is known of subjects before the rows of a batch come.
    pub(super) fn learn(&mut self, tables: &Tables) {
        // Ends become known while a trace grows.
        if let Some(sweeps) = &mut self.sweeps
            && (self.props.follow == Show::Yes || self.known != tables.subjects.len())
        {
            self.known = tables.subjects.len();
            sweeps.learn(&tables.subjects);
        }
    }

    /// Takes what has been written since the last time.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Writes the lines of a row; breaks when there are as many as were asked for.
    pub(super) fn row(&mut self, row: &Row, tables: &Tables) -> ControlFlow<()> {
        if self.left == Some(0) {
            return ControlFlow::Break(());
        }
        let start_ns = *self.start_ns.get_or_insert(row.time_ns());
        let filter = Filter { from_ns: self.props.from, to_ns: self.props.to, ..Filter::default() };
        let window = *self.window.get_or_insert_with(|| filter.window(start_ns));
        match &self.form {
            Written::Csv | Written::Json(_) => {
                if let Row::Sample(row) = row {
                    self.learn_rank(row, tables);
                }
                if window.contains(row.time_ns()) {
                    self.data(row, tables);
                }
            }
            Written::Original(_) | Written::Compact(_) => {
                // A sweep that is over belongs before whatever comes after it.
                let total = match row {
                    Row::Sample(row) => self.sample(row, tables),
                    _ => self.sweeps.as_mut().and_then(|sweeps| sweeps.before(row.time_ns())),
                };
                self.memory(total, tables);
                if self.left != Some(0) && window.contains(row.time_ns()) {
                    self.beside(row, tables);
                }
            }
        }
        if self.left == Some(0) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Writes what is left when all rows have come.
    pub(super) fn end(&mut self, tables: &Tables) {
        if self.left != Some(0) {
            let total = self.sweeps.as_mut().and_then(SweepFold::finish);
            self.memory(total, tables);
        }
        match &mut self.form {
            Written::Original(original) => {
                self.text += &original.kept();
                self.text += &original.header();
            }
            Written::Compact(compact) => self.text += &compact.finish(&self.layout),
            Written::Json(output) => {
                for (rank, row) in output.finish() {
                    self.text += &SampleJson.output(&row, rank);
                }
            }
            Written::Csv => {}
        }
    }

    fn count(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    /// Learns the rank of a process, or of the job whose output one recorder reads.
    fn learn_rank(&mut self, row: &SampleRow, tables: &Tables) {
        if row.metric != Metric::Rank {
            return;
        }
        self.ranks.insert(row.subject, row.value);
        let is_job = tables.subjects.get(&row.subject).is_some_and(|one| one.kind == SubjectKind::Job);
        let recorder = (row.subject >> 32) as u32;
        match &mut self.form {
            Written::Compact(compact) if is_job => compact.learn_rank(recorder, row.value),
            Written::Json(output) if is_job => output.learn(recorder, row.value),
            _ => {}
        }
    }

    /// Takes a sample; returns the total of the sweep before, if that is over.
    fn sample(&mut self, row: &SampleRow, tables: &Tables) -> Option<SweepTotal> {
        self.learn_rank(row, tables);
        let (props, form) = (self.props, &mut self.form);
        let sweeps = self.sweeps.get_or_insert_with(|| {
            let key = SeriesKey::guess(row, tables, props.metric);
            if let Written::Compact(compact) = form {
                compact.set_title(series_title(key));
            }
            let mut sweeps = SweepFold::new(key);
            sweeps.learn(&tables.subjects);
            sweeps
        });
        sweeps.push(row)
    }

    /// Writes a line of memory.
    fn memory(&mut self, total: Option<SweepTotal>, tables: &Tables) {
        let Some(SweepTotal { time_ns, total, reports }) = total else { return };
        if self.window.is_some_and(|window| !window.contains(time_ns)) {
            return;
        }
        let report =
            |(subject, bytes): (u64, u64)| Reported { name: named(subject, &self.ranks, tables), bytes };
        let reports = reports.into_iter().map(report).collect();
        let memory = MemoryAt { time_ns, total_bytes: total, reports };
        match &mut self.form {
            Written::Original(original) => self.text += &original.text(&memory),
            Written::Compact(compact) => {
                compact.begin(self.start_ns.unwrap_or(time_ns));
                self.text += &compact.memory(&memory, &self.layout);
                self.text.push_str(&std::mem::take(&mut self.held));
            }
            Written::Csv | Written::Json(_) => return,
        }
        self.count();
    }

    /// Writes or keeps what stands beside memory.
    fn beside(&mut self, row: &Row, tables: &Tables) {
        let (props, layout, start_ns) = (self.props, self.layout, self.start_ns);
        match &mut self.form {
            Written::Original(original) => match row {
                Row::Output(row) if props.output == Show::Yes => original.output(&row.bytes),
                Row::Stack(row) if props.stacks == Show::Yes => original.stack(stack_lines(row, tables)),
                _ => {}
            },
            Written::Compact(compact) => {
                compact.begin(start_ns.unwrap_or(row.time_ns()));
                let is_held = self.sweeps.as_ref().is_some_and(|sweeps| sweeps.is_open_at(row.time_ns()));
                let text = if is_held { &mut self.held } else { &mut self.text };
                *text += &match row {
                    Row::Scope(row) => compact.scope(row, tables, &layout),
                    Row::Output(row) if props.output == Show::Yes => compact.output(row, &layout),
                    Row::Log(row) => compact.log(row, tables, &layout),
                    Row::Stack(row) if props.stacks == Show::Yes => {
                        let whose = whose(row, &self.ranks, tables);
                        compact.stack(row.time_ns, &whose, &stack_lines(row, tables), &layout)
                    }
                    _ => String::new(),
                };
            }
            Written::Csv | Written::Json(_) => {}
        }
    }

    /// Writes a row for programs.
    fn data(&mut self, row: &Row, tables: &Tables) {
        let line = match (&mut self.form, row) {
            (Written::Csv, Row::Sample(row)) => SampleCsv.text(row, tables),
            (Written::Json(_), Row::Sample(row)) => SampleJson.sample(row, tables),
            (Written::Json(output), Row::Output(row)) => {
                let rows = output.push(row).into_iter();
                rows.map(|(rank, row)| SampleJson.output(&row, rank)).collect()
            }
            (Written::Json(_), Row::Stack(row)) => SampleJson.stack(row, tables),
            (Written::Json(_), Row::Scope(row)) => SampleJson.scope(row, tables),
            (Written::Json(_), Row::Log(row)) => SampleJson.log(row, tables),
            _ => return,
        };
        self.text += &line;
        self.count();
    }
}

/// Name of a subject, with its rank if it has one.
fn named(subject: u64, ranks: &HashMap<u64, u64>, tables: &Tables) -> String {
    let name = tables.subjects.get(&subject).map_or_else(String::new, subject_name);
    ranks.get(&subject).map_or_else(|| name.clone(), |rank| format!("{name} rank {rank}"))
}

/// Whose stack it is, and why it was taken.
fn whose(row: &StackSampleRow, ranks: &HashMap<u64, u64>, tables: &Tables) -> String {
    let subject = named(row.subject, ranks, tables);
    let thread = if row.thread == 0 { String::new() } else { format!(", thread {}", row.thread) };
    format!("{subject}{thread} ({})", row.reason.name())
}
