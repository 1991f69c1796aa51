//! What a page gets to show. `web/src/data.ts` says the same in its language; change both.
//!
//! Times are nanoseconds since the origin, because a browser's numbers cannot hold those since 1970.
//! Texts that come more than once are indices into `strings`. Long lists of figures are columns: see
//! `encode`. Nothing here is text that acts: all of it has passed through `plain`.

use serde::Serialize;

/// Name and version of the form.
pub(super) const SCHEMA: &str = "floodmark.report/5";

/// The document.
#[derive(Debug, Default, Serialize)]
pub(super) struct Document {
    pub(super) schema: &'static str,
    /// Who made it.
    pub(super) program: String,
    /// What it is about.
    pub(super) source: String,
    /// Filters as command-line options; empty without any.
    pub(super) filters: String,
    /// The command that ran, if one did.
    pub(super) command: Option<String>,
    /// The instant all times count from, and the time up to the end.
    pub(super) origin: String,
    pub(super) span: i64,
    /// What happened, in sentences.
    pub(super) story: Vec<Sentence>,
    pub(super) findings: Vec<Finding>,
    pub(super) charts: Vec<Chart>,
    /// The part of the time in which something happens, if the rest is long and quiet.
    pub(super) active: Option<Part>,
    pub(super) marks: Vec<MarkAt>,
    pub(super) snapshots: Option<Snapshots>,
    pub(super) tables: Vec<Table>,
    pub(super) dots: Vec<Dot>,
    pub(super) ranges: Option<RangeColumns>,
    pub(super) ranks: Option<RankMap>,
    pub(super) output: Option<Output>,
    /// Frames of stacks, innermost first, as indices into `strings`.
    pub(super) stacks: Vec<Vec<u32>>,
    pub(super) strings: Vec<String>,
}

/// A document and its columns, as a server sends them.
#[derive(Debug, Serialize)]
pub(super) struct Sent {
    pub(super) version: u64,
    pub(super) document: Document,
    pub(super) columns: Vec<String>,
}

/// Lines between two instants and their columns, as a server sends them.
#[derive(Debug, Serialize)]
pub(super) struct SentRange {
    pub(super) charts: Vec<Chart>,
    pub(super) columns: Vec<String>,
}

/// What was live at instants, the texts it points to and its columns, as a server sends them.
#[derive(Debug, Serialize)]
pub(super) struct SentSnapshots {
    pub(super) snapshots: Snapshots,
    pub(super) strings: Vec<String>,
    pub(super) columns: Vec<String>,
}

/// Where a column is, and how long.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Column {
    pub(super) column: usize,
    pub(super) length: usize,
}

/// A sentence of the story; its parts are joined without spaces.
#[derive(Debug, Default, Serialize)]
pub(super) struct Sentence {
    pub(super) parts: Vec<Phrase>,
}

/// A part of a sentence.
#[derive(Debug, Default, Serialize)]
pub(super) struct Phrase {
    pub(super) text: String,
    /// The view that shows the evidence.
    pub(super) to: Option<Target>,
}

/// A view of the page.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Target {
    /// The instant; the selected one if none.
    pub(super) at: Option<TargetTime>,
    /// The visible range; the one the page opens with if none.
    pub(super) span: Option<Part>,
    /// The lower tab; empty for the first.
    pub(super) tab: &'static str,
    /// Text to search in the flame graph; empty for none.
    pub(super) find: String,
}

/// An instant of a view.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum TargetTime {
    /// Nanoseconds since the origin.
    Time(i64),
    /// A name, which is "peak".
    Name(&'static str),
}

/// A part of the time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Part {
    pub(super) from: i64,
    pub(super) to: i64,
}

/// Something to look at.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) level: Severity,
    pub(super) text: String,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Something is wrong.
    Bad,
    /// Figures are less certain.
    Doubtful,
    /// Good to know.
    Note,
}

/// Lines over time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Chart {
    pub(super) title: String,
    /// How points were chosen.
    pub(super) note: String,
    pub(super) series: Vec<Series>,
    /// The highest point, as results state it: it may lie above all points.
    pub(super) peak: Option<PeakAt>,
    /// Lines that add up to the first one.
    pub(super) parts: Option<Parts>,
    /// Levels that bound it.
    pub(super) ceilings: Vec<Ceiling>,
    /// Whether stacks are dots in it.
    pub(super) dots: bool,
}

/// A step function: each value holds until the next.
#[derive(Debug, Default, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) times: Column,
    pub(super) values: Column,
}

/// Lines that add up to the first line of a chart.
#[derive(Debug, Default, Serialize)]
pub(super) struct Parts {
    /// What they are.
    pub(super) by: &'static str,
    /// Index of the first of them; the following ones are too.
    pub(super) from: usize,
}

/// A level that bounds a line, such as the size of a device.
#[derive(Debug, Default, Serialize)]
pub(super) struct Ceiling {
    pub(super) name: String,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct PeakAt {
    pub(super) time: i64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct MarkAt {
    pub(super) time: i64,
    pub(super) name: String,
}

/// Memory of ranks over time.
#[derive(Debug, Default, Serialize)]
pub(super) struct RankMap {
    /// The highest value, which a cell of 255 stands for.
    pub(super) highest: u64,
    /// First and last rank of each row.
    pub(super) rows: Vec<(u64, u64)>,
    /// Starts of the intervals.
    pub(super) times: Column,
    /// Highest value of each row, interval by interval; 0 where no rank ran.
    pub(super) cells: Column,
}

/// What was live at some instants.
#[derive(Debug, Default, Serialize)]
pub(super) struct Snapshots {
    pub(super) note: String,
    /// Whether between two instants nothing changed.
    pub(super) exact: bool,
    pub(super) times: Column,
    pub(super) bytes: Column,
    pub(super) blocks: Column,
    /// Index of the peak.
    pub(super) peak: Option<usize>,
    pub(super) forests: Vec<Forest>,
    pub(super) steps: Steps,
    /// What each group had allocated up to which instant; none if that is not known.
    pub(super) cumulative: Option<CumulativeAllocations>,
    /// The held bytes divided in several ways.
    pub(super) breakdowns: Vec<Breakdown>,
    pub(super) listed: Listed,
    /// Most blocks that are listed of an instant; all if none.
    pub(super) limit: Option<usize>,
    pub(super) maps: Vec<Map>,
}

/// What leads to groups of blocks: nodes, parents before children.
#[derive(Debug, Default, Serialize)]
pub(super) struct Forest {
    pub(super) name: &'static str,
    /// Index of the parent plus one; 0 for none.
    pub(super) parents: Column,
    pub(super) texts: Column,
    /// The node of each group, plus one.
    pub(super) leaves: Column,
}

/// What each group held from which instant on: by group, then by instant.
#[derive(Debug, Default, Serialize)]
pub(super) struct Steps {
    pub(super) groups: Column,
    pub(super) snapshots: Column,
    pub(super) bytes: Column,
    pub(super) blocks: Column,
}

/// What each group had allocated up to which instant: by group, then by instant.
#[derive(Debug, Default, Serialize)]
pub(super) struct CumulativeAllocations {
    pub(super) groups: Column,
    pub(super) snapshots: Column,
    pub(super) bytes: Column,
    pub(super) blocks: Column,
}

/// The held bytes as bands that add up.
#[derive(Debug, Default, Serialize)]
pub(super) struct Breakdown {
    pub(super) by: &'static str,
    /// Names of the bands, as indices into `strings`.
    pub(super) names: Vec<u32>,
    /// Index of the band that sums up all others.
    pub(super) others: Option<usize>,
    /// Bytes of each band from which instant on: by band, then by instant.
    pub(super) bands: Column,
    pub(super) snapshots: Column,
    pub(super) bytes: Column,
}

/// Blocks, in order of age.
#[derive(Debug, Default, Serialize)]
pub(super) struct Listed {
    /// First instant at which it was live, and the one after the last.
    pub(super) first: Column,
    pub(super) after: Column,
    pub(super) groups: Column,
    pub(super) bytes: Column,
    /// Upper and lower half of the address.
    pub(super) high: Column,
    pub(super) low: Column,
    pub(super) times: Column,
    pub(super) threads: Column,
    pub(super) streams: Column,
    pub(super) sites: Column,
}

/// Addresses over time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Map {
    pub(super) title: String,
    /// Where stretches of addresses begin, and how long they are.
    pub(super) bands: Vec<(String, u64)>,
    /// Bytes of a cell, and cells of an instant.
    pub(super) cell: u64,
    pub(super) cells: usize,
    pub(super) snapshots: Column,
    /// How much of each cell was taken, from 0 to 255, instant by instant.
    pub(super) taken: Column,
}

/// A table that can be sorted and searched.
#[derive(Debug, Default, Serialize)]
pub(super) struct Table {
    pub(super) id: &'static str,
    pub(super) title: String,
    pub(super) note: String,
    pub(super) columns: Vec<Head>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// Stacks of each row; empty if no row has any.
    pub(super) details: Vec<Vec<Detail>>,
    /// Rows that are left out.
    pub(super) omitted: u64,
    /// Whether it says what the view of instants says of the peak, and is there for those without scripts.
    pub(super) still: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Head {
    pub(super) name: &'static str,
    pub(super) kind: CellKind,
}

/// What cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CellKind {
    Text,
    /// Names of programs, functions and places.
    Code,
    Bytes,
    Count,
    /// From 0 to 1.
    Share,
    /// Nanoseconds.
    Duration,
    /// Nanoseconds since the origin.
    Time,
    /// A number that is only a name.
    Number,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Cell {
    Text(String),
    Whole(u64),
    Signed(i64),
    Real(f64),
    Nothing(()),
}

#[derive(Debug, Serialize)]
pub(super) struct Detail {
    pub(super) text: String,
    /// Index into `stacks`.
    pub(super) stack: usize,
}

/// Scopes and ranges, in order of their beginnings.
#[derive(Debug, Default, Serialize)]
pub(super) struct RangeColumns {
    /// What is left out; empty if nothing is.
    pub(super) note: String,
    /// Times at which they begin and end.
    pub(super) starts: Column,
    pub(super) ends: Column,
    /// Rows of the lane; ranges of a row do not overlap.
    pub(super) levels: Column,
    /// Names, as indices into `strings`.
    pub(super) names: Column,
}

/// Stacks that were taken at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Dot {
    pub(super) time: i64,
    pub(super) reason: &'static str,
    /// Threads: the one to look at first, those that wait last.
    pub(super) threads: Vec<DotThread>,
    /// Threads that are left out.
    pub(super) omitted: u64,
}

/// The stack of one thread.
#[derive(Debug, Serialize)]
pub(super) struct DotThread {
    pub(super) who: String,
    /// Index into `stacks`.
    pub(super) stack: usize,
    /// Whether it waited for something.
    pub(super) waits: bool,
}

/// What a command wrote.
#[derive(Debug, Default, Serialize)]
pub(super) struct Output {
    pub(super) note: String,
    pub(super) times: Column,
    /// 1 for standard output, 2 for standard error, 3 for a terminal.
    pub(super) streams: Column,
    pub(super) lines: Vec<String>,
    /// Lines are left out before this one.
    pub(super) gap: Option<usize>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(crate::plain(&text).into_owned())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(crate::plain(text).into_owned())
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(cell: Option<T>) -> Self {
        cell.map_or(Self::Nothing(()), Into::into)
    }
}
