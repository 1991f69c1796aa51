//! Builds the document: interns texts and stacks, encodes columns, and asks each part for what it has.

use std::collections::HashMap;

use floodmark_analyze::{Ranges, UsagePoint};
use floodmark_event::units::format_time_ns;

use super::data::{
    Cell, CellKind, Column, Document, Finding, Head, Phrase, RangeColumns, SCHEMA, Sentence, Series,
    Severity, Table, Target,
};
use super::{Page, calls, encode, events, ranks, samples, since, story};
use crate::figures::counted;
use crate::plain;
use crate::report::loss_sentence;

/// Rows of a table that a page has room for.
pub(super) const MOST_ROWS: usize = 1000;
/// Characters of a text; what is longer is cut.
const LONGEST_TEXT: usize = 600;

/// A document that grows.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) document: Document,
    origin_ns: i64,
    columns: Vec<String>,
    string_ids: HashMap<String, u32>,
    stack_ids: HashMap<Vec<u32>, usize>,
}

/// Makes the document of a page, and the columns it points to.
pub(super) fn document(page: &Page) -> (Document, Vec<String>) {
    let mut builder = Builder::default();
    let span = span(page).map(|(first, last)| (page.origin_ns.unwrap_or(first), last));
    builder.origin_ns = span.map_or(0, |(origin, _)| origin);
    let document = &mut builder.document;
    document.schema = SCHEMA;
    document.program = concat!("floodmark ", env!("CARGO_PKG_VERSION")).into();
    document.source = plain(if page.source == "-" { "standard input" } else { &page.source }).into_owned();
    document.filters = cut(&page.filters);
    let command = page.about.iter().find(|(name, _)| name == "command");
    document.command = command.map(|(_, command)| cut(command));
    document.origin = span.map_or_else(String::new, |(origin, _)| format_time_ns(origin));
    document.span = span.map_or(0, |(origin, last)| last.saturating_sub(origin).max(0));
    if let Some(part) = &page.events {
        events::add(&mut builder, part);
    }
    if let Some(part) = &page.samples {
        samples::add(&mut builder, part);
    }
    if let Some(part) = &page.ranks {
        ranks::add(&mut builder, part);
    }
    if let Some(found) = &page.calls {
        calls::add(&mut builder, found);
    }
    if let Some(part) = page.samples.as_ref().filter(|_| page.events.is_none() && page.calls.is_none()) {
        story::how_to_find_code(&mut builder, part);
    }
    if let Some(compared) = &page.since {
        since::tell(&mut builder, compared);
    }
    ranges(&mut builder, &page.ranges);
    if page.samples.is_none() && page.events.is_none() {
        builder.tell("Nothing was recorded");
    }

    if !page.filters.is_empty() {
        builder.find(Severity::Doubtful, format!("Allocations are filtered: {}.", page.filters));
    }
    for loss in &page.losses {
        let severity = if loss.is_remark { Severity::Note } else { Severity::Doubtful };
        builder.find(severity, loss_sentence(loss));
    }
    builder.document.findings.sort_by_key(|finding| finding.level as u8);
    about(&mut builder, page);
    (builder.document, builder.columns)
}

/// First and last instant of all there is.
pub(super) fn span(page: &Page) -> Option<(i64, i64)> {
    let spans = [page.events.as_ref().and_then(events::span), page.samples.as_ref().and_then(samples::span)];
    let first = spans.into_iter().flatten().map(|(first, _)| first).min();
    first.zip(spans.into_iter().flatten().map(|(_, last)| last).max())
}

/// Scopes and ranges, as a lane under the first timeline.
fn ranges(builder: &mut Builder, ranges: &Ranges) {
    if ranges.list.is_empty() {
        return;
    }
    let names: Vec<i64> = ranges.list.iter().map(|range| i64::from(builder.string(&range.name))).collect();
    let starts: Vec<i64> = ranges.list.iter().map(|range| builder.time(range.from_ns)).collect();
    let ends: Vec<i64> = ranges.list.iter().map(|range| builder.time(range.to_ns)).collect();
    let note = match ranges.omitted {
        0 => String::new(),
        omitted => format!("{} that are shorter or nested deeper are left out.", counted(omitted, "range")),
    };
    builder.document.ranges = Some(RangeColumns {
        note,
        starts: builder.column(starts.into_iter()),
        ends: builder.column(ends.into_iter()),
        levels: builder.column(ranges.list.iter().map(|range| range.row as i64)),
        names: builder.column(names.into_iter()),
    });
}

fn about(builder: &mut Builder, page: &Page) {
    if page.about.is_empty() {
        return;
    }
    let rows = page.about.iter().map(|(name, value)| vec![name.as_str().into(), cut(value).into()]);
    let rows = rows.collect();
    let columns = heads([("what", CellKind::Text), ("value", CellKind::Code)]);
    let table = Table { id: "about", title: "About this run".into(), columns, rows, ..Table::default() };
    builder.document.tables.push(table);
}

/// Heads of columns.
pub(super) fn heads<const N: usize>(heads: [(&'static str, CellKind); N]) -> Vec<Head> {
    heads.map(|(name, kind)| Head { name, kind }).into()
}

/// A harmless text of bounded length.
pub(super) fn cut(text: &str) -> String {
    let text = plain(text);
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into_owned(),
    }
}

impl Builder {
    /// A document whose times count from an instant.
    pub(super) fn since(origin_ns: i64) -> Self {
        Self { origin_ns, ..Self::default() }
    }

    /// The columns so far.
    pub(super) fn into_columns(self) -> (Document, Vec<String>) {
        (self.document, self.columns)
    }

    /// A time as the page knows it.
    pub(super) fn time(&self, time_ns: i64) -> i64 {
        time_ns.saturating_sub(self.origin_ns)
    }

    /// A time in a table.
    pub(super) fn time_cell(&self, time_ns: Option<i64>) -> Cell {
        time_ns.map(|time_ns| self.time(time_ns)).into()
    }

    /// Index of a text.
    pub(super) fn string(&mut self, text: &str) -> u32 {
        let text = cut(text);
        let strings = &mut self.document.strings;
        *self.string_ids.entry(text).or_insert_with_key(|text| {
            strings.push(text.clone());
            strings.len() as u32 - 1
        })
    }

    /// Index of a stack.
    pub(super) fn stack(&mut self, frames: &[String]) -> usize {
        let frames: Vec<u32> = frames.iter().map(|frame| self.string(frame)).collect();
        let stacks = &mut self.document.stacks;
        *self.stack_ids.entry(frames).or_insert_with_key(|frames| {
            stacks.push(frames.clone());
            stacks.len() - 1
        })
    }

    /// Adds a column.
    pub(super) fn column(&mut self, numbers: impl ExactSizeIterator<Item = i64>) -> Column {
        let length = numbers.len();
        self.columns.push(encode::column(numbers));
        Column { column: self.columns.len() - 1, length }
    }

    /// Adds a column of sizes or counts.
    pub(super) fn whole(&mut self, numbers: impl ExactSizeIterator<Item = u64>) -> Column {
        self.column(numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX)))
    }

    /// A line of a chart, which holds its last value up to `end_ns`.
    pub(super) fn series(&mut self, name: &str, points: &[UsagePoint], end_ns: Option<i64>) -> Series {
        let mut points = points.to_vec();
        if let (Some(last), Some(end_ns)) = (points.last().copied(), end_ns)
            && end_ns > last.time_ns
        {
            points.push(UsagePoint { time_ns: end_ns, ..last });
        }
        // A log keeps the order of its lines even where its clock goes back; an axis does not.
        let mut latest = i64::MIN;
        let times: Vec<i64> = points
            .iter()
            .map(|point| {
                latest = latest.max(self.time(point.time_ns));
                latest
            })
            .collect();
        let values = points.iter().map(|point| i64::try_from(point.live_bytes).unwrap_or(i64::MAX));
        Series {
            name: cut(name),
            times: self.column(times.into_iter()),
            values: self.column(values.collect::<Vec<_>>().into_iter()),
        }
    }

    /// Says something worth looking at.
    pub(super) fn find(&mut self, level: Severity, text: impl AsRef<str>) {
        let text = cut(text.as_ref());
        self.document.findings.push(Finding { level, text });
    }

    /// Says something in the first lines.
    pub(super) fn tell(&mut self, sentence: &str) {
        self.tell_parts([(sentence, None)]);
    }

    /// Says something in the first lines; parts may lead to their evidence.
    pub(super) fn tell_parts<'a>(&mut self, parts: impl IntoIterator<Item = (&'a str, Option<Target>)>) {
        let phrase = |(text, to): (&str, Option<Target>)| Phrase { text: cut(text), to };
        let mut parts: Vec<Phrase> = parts.into_iter().map(phrase).collect();
        if parts.last().is_some_and(|last| !last.text.ends_with(['.', '…'])) {
            parts.push(Phrase { text: ".".into(), to: None });
        }
        self.document.story.push(Sentence { parts });
    }

    /// Adds a table, unless it is empty.
    pub(super) fn table(&mut self, mut table: Table) {
        if table.rows.is_empty() {
            return;
        }
        table.omitted += table.rows.len().saturating_sub(MOST_ROWS) as u64;
        table.rows.truncate(MOST_ROWS);
        if table.details.iter().all(Vec::is_empty) {
            table.details.clear();
        }
        table.details.truncate(MOST_ROWS);
        self.document.tables.push(table);
    }
}

/// How the points of lines were chosen.
pub(super) fn reduction_note(interval_ns: Option<u64>) -> String {
    use floodmark_event::units::format_duration_ns;
    match interval_ns {
        None => "Every change is drawn.".into(),
        Some(ns) => format!(
            "Reduced: of every {} the lowest, the highest and the last value are drawn; every peak is exact.",
            format_duration_ns(ns)
        ),
    }
}
