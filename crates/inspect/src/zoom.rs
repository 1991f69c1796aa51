//! Windows and instants of an input in full detail.
//!
//! Finding what was live at an instant means replaying every earlier event; a trace starts from a checkpoint.

use floodmark_analyze::usage::index::{IndexedWindow, UsageIndex};
use floodmark_analyze::{
    KeptLive, Pass, ScopePaths, SnapshotOptions, SnapshotPass, Snapshots, SubjectSeriesFold, Usage,
    UsageFold, UsageMode,
};
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_event::units::Instant;
use floodmark_event::{EventBatch, Tables};
use floodmark_store::{ScanProps, Source};

use crate::checkpoints::{Checkpoints, Started};
use crate::error::Result;
use crate::input::Input;
use crate::page::SamplesPart;
use crate::pass::Columns;

/// Blocks that are listed of an instant.
const BLOCKS: usize = 1000;

/// A window in nanoseconds since the origin of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeQuery {
    /// Where it begins.
    pub from: i64,
    /// Where it ends.
    pub to: i64,
    /// Points of a time series; if there are no more changes than that, all of them.
    pub points: usize,
}

/// A window in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// First instant, in nanoseconds since the Unix epoch.
    pub from_ns: i64,
    /// Last instant.
    pub to_ns: i64,
    /// Points of a series.
    pub points: usize,
}

impl RangeQuery {
    /// Returns the window in nanoseconds since the Unix epoch.
    pub fn since(self, origin_ns: i64) -> Window {
        let at = |time: i64| origin_ns.saturating_add(time);
        Window { from_ns: at(self.from), to_ns: at(self.to), points: self.points }
    }
}

/// Returns whether the answer is still wanted.
pub type StillWanted<'a> = &'a dyn Fn() -> bool;

/// What a zoom is about.
pub struct Zoom<'a> {
    /// The input.
    pub input: &'a Input,
    /// Selects events.
    pub filter: &'a Filter,
    /// Where reading can start.
    pub checkpoints: &'a mut Checkpoints,
}

/// Events from a checkpoint on, or all of them.
enum Events<'a> {
    Placed(Box<Started<'a>>),
    Whole(Box<dyn Source>),
}

impl<'a> Events<'a> {
    /// Starts so that all events at `from_ns` and later, or after `end`, come; none if the answer is not wanted
    /// any more.
    fn from(
        zoom: Zoom<'a>,
        columns: Columns,
        (from_ns, end): (i64, Option<Instant>),
        wanted: StillWanted<'_>,
    ) -> Result<Option<Self>> {
        let Zoom { input, filter, checkpoints } = zoom;
        let scan = columns.scan(filter);
        if input.trace().is_some() {
            let started = checkpoints.start(from_ns, end, &scan, wanted)?;
            return Ok(started.map(|started| Self::Placed(Box::new(started))));
        }
        Ok(Some(Self::Whole(input.events(&scan)?)))
    }

    /// Returns what was live before the first of them.
    fn kept(&self) -> Option<&KeptLive> {
        match self {
            Self::Placed(started) => started.kept,
            Self::Whole(_) => None,
        }
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        Ok(match self {
            Self::Placed(started) => started.events.next(batch, started.tables)?,
            Self::Whole(source) => source.next(batch)?,
        })
    }

    fn tables(&self) -> &Tables {
        match self {
            Self::Placed(started) => started.tables,
            Self::Whole(source) => source.tables(),
        }
    }
}

/// Returns live bytes within a window; none if the answer is not wanted any more.
///
/// # Errors
/// If the input is damaged.
pub fn usage(zoom: Zoom<'_>, window: Window, wanted: StillWanted<'_>) -> Result<Option<Usage>> {
    let filter = Filter {
        from_ns: Some(Instant::At(window.from_ns)),
        to_ns: Some(Instant::At(window.to_ns)),
        ..zoom.filter.clone()
    };
    let Some(mut events) = Events::from(zoom, Columns::Figures, (window.from_ns, None), wanted)? else {
        return Ok(None);
    };
    let fold = UsageFold::new(UsageMode::Reduced(window.points));
    let mut pass = match events.kept() {
        None => Pass::new(&filter, fold),
        Some(kept) => Pass::resume(&filter, fold, kept),
    };
    let mut batch = EventBatch::new();
    while !pass.is_past_window() && events.next(&mut batch)? {
        if !wanted() {
            return Ok(None);
        }
        pass.update(&batch);
    }
    Ok(Some(pass.finish(events.tables())))
}

/// Returns live bytes within a window of an input with an index, which is that of all its events; none if the index is
/// not enough, or if the answer is not wanted any more.
///
/// # Errors
/// If the input is damaged.
pub fn indexed_usage(
    input: &Input,
    index: &UsageIndex,
    window: Window,
    wanted: StillWanted<'_>,
) -> Result<Option<Usage>> {
    let (from_ns, live_bytes) = match index.window(window.from_ns, window.to_ns, window.points) {
        IndexedWindow::Known(usage) => return Ok(Some(usage)),
        IndexedWindow::Read { from_ns, live_bytes } => (from_ns, live_bytes),
    };
    // A file has to be read from its beginning anyway.
    if !index.is_plain() || input.trace().is_none() {
        return Ok(None);
    }
    let columns = Some(vec!["time", "action", "bytes"]);
    let (from, to) = (Some(from_ns), Some(window.to_ns));
    let mut events =
        input.events(&ScanProps { columns, from_ns: from, to_ns: to, ..ScanProps::default() })?;
    let mut rows = index.rows(window.from_ns, live_bytes, window.points);
    let mut batch = EventBatch::new();
    while events.next(&mut batch)? {
        if !wanted() {
            return Ok(None);
        }
        rows.update(&batch);
    }
    Ok(Some(rows.finish(window.to_ns)))
}

/// Returns time series of samples within a window; none if the answer is not wanted any more.
///
/// # Errors
/// If the input is damaged.
pub fn samples(input: &Input, window: Window, wanted: StillWanted<'_>) -> Result<Option<SamplesPart>> {
    let mut source = input.rows(&ScanProps::default())?;
    let mut subjects = source.tables().subjects.clone();
    let mut series = SubjectSeriesFold::new(&subjects, window.points).within(window.from_ns, window.to_ns);
    let (mut rows, mut samples) = (Vec::new(), Vec::new());
    // To the end, because it is the highest of all lines that are drawn.
    while source.next(&mut rows)? {
        if !wanted() {
            return Ok(None);
        }
        if source.tables().subjects != subjects {
            subjects.clone_from(&source.tables().subjects);
            series.learn(&subjects);
        }
        samples.clear();
        samples.extend(rows.iter().filter_map(|row| match row {
            Row::Sample(row) => Some(*row),
            _ => None,
        }));
        series.update(&samples);
    }
    Ok(Some(SamplesPart { subjects, series: series.finish(), ..SamplesPart::default() }))
}

/// Returns what was live at instants, for one tally; none if the answer is not wanted any more.
///
/// # Errors
/// If the input is damaged.
pub fn snapshots(
    zoom: Zoom<'_>,
    (tally, times): (u8, Vec<i64>),
    scopes: ScopePaths,
    wanted: StillWanted<'_>,
) -> Result<Option<Snapshots>> {
    let options = SnapshotOptions { blocks: Some(BLOCKS), scopes, ..SnapshotOptions::default() };
    let filter = zoom.filter.clone();
    let from_ns = times.iter().min().map_or(i64::MIN, |first_ns| first_ns.saturating_add(1));
    // Nothing that is live changes after the window.
    let from = (from_ns, filter.to_ns);
    let Some(mut events) = Events::from(zoom, Columns::All, from, wanted)? else { return Ok(None) };
    let mut pass = SnapshotPass::at(&filter, tally, times, options, events.kept());
    let mut batch = EventBatch::new();
    while !pass.is_done() && events.next(&mut batch)? {
        if !wanted() {
            return Ok(None);
        }
        pass.update(&batch);
    }
    Ok(Some(pass.finish(events.tables())))
}
