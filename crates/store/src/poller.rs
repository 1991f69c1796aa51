//! Polls a growing trace, each time for what is new.
//!
//! A poll goes up to a moment ago. Rows of different threads become visible in a slightly different
//! order than they happened; the moment is there to let them sort. A row that was committed later than
//! that is in no poll; it is counted when the end is reached, in a remark.
//!
//! Ids in rows are good for the poll they came from: the tables are read anew each time, and what a
//! process defined since then comes before what others had defined already.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use floodmark_tail::clock::Anchor;

use crate::error::Result;
use crate::frame_names::NameFrames;
use crate::identity::Identity;
use crate::records::Projection;
use crate::scan::ScanProps;
use crate::source::Losses;
use crate::table::Table;
use crate::trace::Trace;

/// How long rows get to sort by default.
const SETTLE: Duration = Duration::from_millis(100);

const TOO_LATE: &str = "a row was committed too late to be followed; the trace has it";

/// Whether the trace may have more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Growing,
    /// The only poll saw everything.
    Once,
    /// Earlier polls may have been too early for some rows.
    Ended,
}

/// Polls a growing trace.
#[derive(Clone, Debug)]
pub struct GrowthPoller {
    path: PathBuf,
    identity: Identity,
    props: ScanProps,
    settle_ns: i64,
    /// The latest poll went up to here.
    seen_to_ns: Option<i64>,
    state: State,
    /// Names frames that were recorded as addresses.
    names: Option<Arc<dyn NameFrames>>,
}

impl GrowthPoller {
    /// How long to wait between two polls.
    pub const PAUSE: Duration = Duration::from_millis(100);

    /// Polls what `props` selects of the trace at `path`, from the first row on.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn open(path: &Path, props: ScanProps) -> Result<Self> {
        let identity = Identity::of(path)?;
        Trace::open(path)?;
        let settle_ns = SETTLE.as_nanos() as i64;
        Ok(Self {
            path: path.to_owned(),
            identity,
            props,
            settle_ns,
            seen_to_ns: None,
            state: State::Growing,
            names: None,
        })
    }

    /// Names frames that were recorded as addresses with `names`.
    #[must_use]
    pub fn with_frame_names(self, names: Arc<dyn NameFrames>) -> Self {
        Self { names: Some(names), ..self }
    }

    /// Holds rows back for this long after their time, instead of a tenth of a second. A sampler whose
    /// sweeps take longer than that records samples with times that are older, and without this they
    /// would be counted as too late.
    #[must_use]
    pub fn settling(self, settle: Duration) -> Self {
        Self { settle_ns: i64::try_from(settle.as_nanos()).unwrap_or(i64::MAX), ..self }
    }

    /// Polls again: returns the trace as it is now and what of it is new; none after the last poll.
    /// What the poll before had to offer must have been read.
    ///
    /// # Errors
    /// Another recording has replaced the trace, or what is wrong with its files.
    pub fn again(&mut self) -> Result<Option<(Trace, ScanProps)>> {
        if self.is_last() {
            return Ok(None);
        }
        // Before, because it says more than what opening half a trace would; and after, to be sure.
        self.identity.check()?;
        let mut trace = Trace::open(&self.path)?;
        self.identity.check()?;
        if let Some(names) = &self.names {
            trace = trace.with_frame_names(Arc::clone(names));
        }
        let to_ns = if trace.is_live() {
            Anchor::now().utc_ns.saturating_sub(self.settle_ns)
        } else {
            self.state = if self.seen_to_ns.is_some() { State::Ended } else { State::Once };
            i64::MAX
        };
        let from_ns = self.seen_to_ns.map(|time| time + 1);
        let new = ScanProps {
            from_ns: self.props.from_ns.max(from_ns),
            to_ns: Some(self.props.to_ns.unwrap_or(i64::MAX).min(to_ns)),
            ..self.props.clone()
        };
        self.seen_to_ns = Some(to_ns);
        Ok(Some((trace, new)))
    }

    /// Whether nothing will be new after the latest poll: the recording had ended.
    pub fn is_last(&self) -> bool {
        self.state != State::Growing
    }

    /// Adds the rows of `table` that were in no poll to `losses`, when `read` of them came of all polls and
    /// the last is over.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn count_late(&self, table: Table, read: u64, losses: &mut Losses) -> Result<()> {
        if self.state != State::Ended {
            return Ok(());
        }
        let trace = Trace::open(&self.path)?;
        let selects_all = self.props.wants_all_rows() && self.props.subjects.is_none();
        let mut rows = trace.manifest().rows_of(table);
        if !selects_all || trace.has_tail() {
            rows = 0;
            for records in trace.record_batches(table, &Projection::columns(["time"]), &self.props)? {
                rows += records?.num_rows() as u64;
            }
        }
        if rows > read {
            losses.remark_times(rows - read, TOO_LATE);
        }
        Ok(())
    }
}
