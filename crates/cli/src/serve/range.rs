//! Lines between two instants and blocks of any instant in full detail, read anew: what was live then is
//! known only to who has read all before.

use std::path::Path;

use anyhow::Result;
use floodmark_analyze::{
    Moments, MomentsOptions, MomentsPass, Narrow, Pass, SeriesFold, Usage, UsageFold, UsageMode,
};
use floodmark_convert::{OpenProps, Seen, open_samples};
use floodmark_event::EventBatch;
use floodmark_event::units::Instant;
use floodmark_store::{ScanProps, is_trace};
use floodmark_view::SamplesPart;

use crate::pass::Columns;
use crate::scopes;

/// Blocks that are listed of an instant.
const BLOCKS: usize = 1000;

/// Which range is asked for, in nanoseconds since the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RangeQuery {
    pub(super) from: i64,
    pub(super) to: i64,
    /// Points of a line; if there are no more changes than that, all of them.
    pub(super) points: usize,
}

/// A range in the times of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
    pub(super) points: usize,
}

impl RangeQuery {
    /// The same where times count from 1970.
    pub(super) fn since(self, origin_ns: i64) -> Window {
        let at = |time: i64| origin_ns.saturating_add(time);
        Window { from_ns: at(self.from), to_ns: at(self.to), points: self.points }
    }
}

/// Whether somebody still waits for the answer.
pub(super) type StillWanted<'a> = &'a dyn Fn() -> bool;

/// Live bytes within a window; none if nobody wants it any more.
pub(super) fn usage(
    path: &Path,
    narrow: &Narrow,
    props: &OpenProps,
    window: Window,
    wanted: StillWanted<'_>,
) -> Result<Option<Usage>> {
    let narrow = Narrow {
        from_ns: Some(Instant::At(window.from_ns)),
        to_ns: Some(Instant::At(window.to_ns)),
        ..narrow.clone()
    };
    let to_ns = is_trace(path).then_some(window.to_ns);
    let scan = ScanProps { to_ns, ..Columns::Figures.props(&narrow) };
    let mut source = floodmark_convert::open(path, &OpenProps { scan, ..props.clone() })?;
    let mut pass = Pass::new(&narrow, UsageFold::new(UsageMode::Reduced(window.points)));
    let mut batch = EventBatch::new();
    while !pass.is_past_window() && source.next(&mut batch)? {
        if !wanted() {
            return Ok(None);
        }
        pass.update(&batch);
    }
    Ok(Some(pass.finish(source.tables())))
}

/// Lines of samples within a window; none if nobody wants them any more.
pub(super) fn samples(
    path: &Path,
    props: &OpenProps,
    window: Window,
    wanted: StillWanted<'_>,
) -> Result<Option<SamplesPart>> {
    let mut source = open_samples(path, props)?;
    let mut subjects = source.tables().subjects.clone();
    let mut series = SeriesFold::new(&subjects, window.points).within(window.from_ns, window.to_ns);
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
            Seen::Sample(row) => Some(*row),
            _ => None,
        }));
        series.update(&samples);
    }
    Ok(Some(SamplesPart { subjects, series: series.finish(), ..SamplesPart::default() }))
}

/// What was live at instants, of one sum; none if nobody wants it any more.
pub(super) fn moments(
    path: &Path,
    narrow: &Narrow,
    props: &OpenProps,
    (tally, times): (u8, Vec<i64>),
    wanted: StillWanted<'_>,
) -> Result<Option<Moments>> {
    let to_ns = times.iter().max().copied().filter(|_| is_trace(path));
    let options = MomentsOptions {
        blocks: Some(BLOCKS),
        scopes: scopes::paths(path, props)?,
        ..MomentsOptions::default()
    };
    let mut pass = MomentsPass::at(narrow, tally, times, options, None);
    let scan = ScanProps { to_ns, ..Columns::All.props(narrow) };
    let mut source = floodmark_convert::open(path, &OpenProps { scan, ..props.clone() })?;
    let mut batch = EventBatch::new();
    while !pass.is_done() && source.next(&mut batch)? {
        if !wanted() {
            return Ok(None);
        }
        pass.update(&batch);
    }
    Ok(Some(pass.finish(source.tables())))
}
