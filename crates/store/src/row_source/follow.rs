//! Follows the events and rows of a growing trace.
//!
//! All tables are read in the same polls of the trace, so what comes of one poll is later than what came
//! of the polls before, events and rows alike. Of one poll events come first: a long tail has hardly
//! anything else, so a live view shows something at once, and chunks that hold nothing but events are not
//! decoded again for other tables. Ids of a scan are good for one poll only; they are translated to tables
//! that only grow, so a fold can go on from poll to poll.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use floodmark_event::{EventBatch, Row, Tables};

use super::RowSource;
use super::id_map::IdMap;
use super::trace::{RowCounts, TraceRows, join};
use crate::error::Result;
use crate::follow::Step;
use crate::frame_names::NameFrames;
use crate::poller::GrowthPoller;
use crate::scan::{Scan, ScanProps};
use crate::source::{Losses, Source as _};
use crate::table::Table;
use crate::trace::Trace;

/// How long rows may take to be recorded after their time; a slow sweep takes that long.
const SETTLE: Duration = Duration::from_millis(250);

/// Which tables are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    EventsAndRows,
    Rows,
}

/// Reads a growing trace without waiting for it: events, samples, output, stacks and scopes.
pub struct TraceFollower {
    poller: GrowthPoller,
    wanted: Wanted,
    poll: Option<Poll>,
    tables: Tables,
    events: u64,
    rows: RowCounts,
    losses: Losses,
}

/// What one poll of the trace has to offer.
enum Poll {
    Events(Box<Events>),
    /// Rows, and what is missing from the events before.
    Rows(Box<TraceRows>, Losses),
}

struct Events {
    /// For the rows.
    trace: Trace,
    props: ScanProps,
    scan: Scan,
    ids: IdMap,
}

impl TraceFollower {
    /// How long to wait between two polls.
    pub const PAUSE: Duration = GrowthPoller::PAUSE;

    /// Follows the events and rows of the trace at `path` from the first ones on.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn open(path: &Path, props: &ScanProps) -> Result<Self> {
        Self::start(path, props, Wanted::EventsAndRows)
    }

    /// Names frames that were recorded as addresses with `names`.
    #[must_use]
    pub fn with_frame_names(self, names: Arc<dyn NameFrames>) -> Self {
        Self { poller: self.poller.with_frame_names(names), ..self }
    }

    fn start(path: &Path, props: &ScanProps, wanted: Wanted) -> Result<Self> {
        Ok(Self {
            poller: GrowthPoller::open(path, props.clone())?.settling(SETTLE),
            wanted,
            poll: None,
            tables: Tables::default(),
            events: 0,
            rows: RowCounts::default(),
            losses: Losses::default(),
        })
    }

    /// What all ids of events and rows that were read point to, and the subjects as they were at the
    /// latest poll. Only grows.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What is known to be missing from what was read so far.
    pub fn losses(&self) -> Losses {
        self.poll.as_ref().map_or_else(|| self.losses.clone(), Poll::losses)
    }

    /// Replaces `events` and `rows` by the next ones, each in order; one of them is empty. Nothing
    /// that comes after [`Step::Waiting`] is earlier than what came before it.
    ///
    /// # Errors
    /// What is wrong with the trace's files; what came before stays good.
    pub fn next(&mut self, events: &mut EventBatch, rows: &mut Vec<Row>) -> Result<Step> {
        events.clear();
        rows.clear();
        let mut poll = match self.poll.take() {
            Some(poll) => poll,
            None => {
                let Some((trace, new)) = self.poller.again()? else { return Ok(Step::Ended) };
                Poll::open(trace, new, self.wanted, &mut self.tables)?
            }
        };
        let has_more = poll.next(events, rows, &mut self.tables)?;
        self.events += events.len() as u64;
        if has_more {
            self.poll = Some(poll);
            return Ok(Step::Events);
        }
        self.losses = poll.losses();
        if let Poll::Rows(read, _) = poll {
            self.rows.add(&read.counts());
        }
        if !self.poller.is_last() {
            return Ok(Step::Waiting);
        }
        if self.wanted == Wanted::EventsAndRows {
            self.poller.count_late(Table::Event, self.events, &mut self.losses)?;
        }
        self.rows.count_late(&self.poller, &mut self.losses)?;
        Ok(Step::Ended)
    }
}

impl Poll {
    fn open(trace: Trace, props: ScanProps, wanted: Wanted, tables: &mut Tables) -> Result<Self> {
        if wanted == Wanted::Rows {
            return Ok(Self::Rows(Box::new(TraceRows::open(&trace, &props, tables)?), Losses::default()));
        }
        let scan = trace.scan(&props)?;
        IdMap::merge_names(scan.tables(), tables);
        Ok(Self::Events(Box::new(Events { trace, props, scan, ids: IdMap::default() })))
    }

    /// Replaces `events` or, after the last of them, `rows` by the next ones; `false` at the end.
    fn next(&mut self, events: &mut EventBatch, rows: &mut Vec<Row>, tables: &mut Tables) -> Result<bool> {
        if let Self::Events(read) = self {
            if read.scan.next(events)? {
                read.ids.remap_events(events, read.scan.tables(), tables);
                return Ok(true);
            }
            let event_chunks = Some(Arc::new(read.scan.event_chunks().clone()));
            let props = ScanProps { event_chunks, ..read.props.clone() };
            let opened = TraceRows::open(&read.trace, &props, tables)?;
            *self = Self::Rows(Box::new(opened), read.scan.losses());
        }
        match self {
            Self::Rows(read, _) => read.next(rows, tables),
            Self::Events(_) => Ok(false),
        }
    }

    fn losses(&self) -> Losses {
        match self {
            Self::Events(read) => read.scan.losses(),
            Self::Rows(read, of_events) => {
                let mut losses = read.losses();
                join(&mut losses, of_events);
                losses
            }
        }
    }
}

/// Follows the rows of the trace at `path` from the first one on; `names` are for frames that were recorded as
/// addresses. The source waits for new rows, and ends when the recording has ended.
///
/// # Errors
/// What is wrong with the trace's files.
pub fn follow_rows(
    path: &Path,
    props: &ScanProps,
    names: Option<Arc<dyn NameFrames>>,
) -> Result<Box<dyn RowSource>> {
    let mut follower = TraceFollower::start(path, props, Wanted::Rows)?;
    if let Some(names) = names {
        follower = follower.with_frame_names(names);
    }
    Ok(Box::new(Waiting(follower)))
}

/// Waits for rows.
struct Waiting(TraceFollower);

impl RowSource for Waiting {
    fn tables(&self) -> &Tables {
        self.0.tables()
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        let mut events = EventBatch::new();
        loop {
            match self.0.next(&mut events, rows)? {
                Step::Events => return Ok(true),
                Step::Waiting => std::thread::sleep(TraceFollower::PAUSE),
                Step::Ended => return Ok(false),
            }
        }
    }

    fn losses(&self) -> Losses {
        self.0.losses()
    }
}
