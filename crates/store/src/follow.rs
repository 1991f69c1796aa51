//! Events, or rows of another table, of a growing trace, as they come.
//!
//! A follower reads what is older than a moment ago, remembers the time up to which it has read, and
//! looks again. Events of different threads become visible in a slightly different order than they
//! happened; the moment is there to let them sort. An event whose thread was held up longer between
//! looking at the clock and committing is counted when the end is reached, so it is not lost silently.

use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_event::clock::Anchor;
use floodmark_event::{EventBatch, Tables};

use crate::error::Result;
use crate::rows::Row;
use crate::scan::batch::Batch;
use crate::scan::{Scan, ScanProps};
use crate::source::Losses;
use crate::trace::Trace;

/// How long rows get to sort, unless somebody says otherwise.
const SETTLE: Duration = Duration::from_millis(100);

/// What [`Follow::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Events, or rows.
    Events,
    /// Nothing new yet; look again after a while.
    Waiting,
    /// The recording has ended and everything was read.
    Ended,
}

/// Reads a growing trace: its events, unless another table is named.
pub struct Follow<B = EventBatch> {
    path: PathBuf,
    props: ScanProps,
    scan: Option<Scan<B>>,
    tables: Tables,
    settle_ns: i64,
    /// Everything up to here has been read.
    read_to_ns: Option<i64>,
    /// The scan at hand goes up to here.
    scan_to_ns: i64,
    rows: u64,
    ended: bool,
    losses: Losses,
}

impl Follow {
    /// How long to wait before looking again.
    pub const PAUSE: Duration = Duration::from_millis(100);

    /// Follows the events of the trace at `path` from the first one on.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn open(path: &Path, props: ScanProps) -> Result<Self> {
        Self::start(path, props)
    }

    /// What the ids of the latest events point to.
    pub fn tables(&self) -> &Tables {
        self.latest_tables()
    }

    /// What is known to be missing.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Replaces the rows of `batch` by the next ones, if there are any.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn next(&mut self, batch: &mut EventBatch) -> Result<Step> {
        self.step(batch)
    }
}

impl<T: Row> Follow<Vec<T>> {
    /// Follows the rows of another table of the trace at `path`, which the type of row says.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn open_rows(path: &Path, props: ScanProps) -> Result<Self> {
        Self::start(path, props)
    }

    /// Has rows held back for so long after their time, instead of a tenth of a second. A sampler whose
    /// sweeps take longer than that records samples with times that are older, and without this they
    /// would be counted as too late.
    #[must_use]
    pub fn settling(self, settle: Duration) -> Self {
        Self { settle_ns: i64::try_from(settle.as_nanos()).unwrap_or(i64::MAX), ..self }
    }

    /// What the ids of the latest rows point to.
    pub fn tables(&self) -> &Tables {
        self.latest_tables()
    }

    /// What is known to be missing.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Replaces `rows` by the next ones, if there are any.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn next(&mut self, rows: &mut Vec<T>) -> Result<Step> {
        self.step(rows)
    }
}

impl<B: Batch> Follow<B> {
    fn start(path: &Path, props: ScanProps) -> Result<Self> {
        Trace::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            props,
            scan: None,
            tables: Tables::default(),
            settle_ns: SETTLE.as_nanos() as i64,
            read_to_ns: None,
            scan_to_ns: i64::MIN,
            rows: 0,
            ended: false,
            losses: Losses::default(),
        })
    }

    fn latest_tables(&self) -> &Tables {
        self.scan.as_ref().map_or(&self.tables, Scan::registry_tables)
    }

    fn step(&mut self, batch: &mut B) -> Result<Step> {
        batch.clear();
        loop {
            if self.scan.is_none() {
                if self.ended {
                    return Ok(Step::Ended);
                }
                self.look()?;
            }
            let Some(scan) = &mut self.scan else { return Ok(Step::Waiting) };
            if scan.next_batch(batch)? {
                self.rows += batch.len() as u64;
                return Ok(Step::Events);
            }
            self.losses = scan.all_losses();
            self.tables = scan.registry_tables().clone();
            self.scan = None;
            self.read_to_ns = Some(self.scan_to_ns);
            if !self.ended {
                return Ok(Step::Waiting);
            }
            self.count_stragglers()?;
        }
    }

    /// Starts a scan of what is new.
    fn look(&mut self) -> Result<()> {
        let trace = Trace::open(&self.path)?;
        self.ended = !trace.is_live();
        self.scan_to_ns =
            if self.ended { i64::MAX } else { Anchor::now().utc_ns.saturating_sub(self.settle_ns) };
        let from_ns = self.read_to_ns.map(|time| time + 1);
        let narrowed = ScanProps {
            from_ns: self.props.from_ns.max(from_ns),
            to_ns: Some(self.props.to_ns.unwrap_or(i64::MAX).min(self.scan_to_ns)),
            ..self.props.clone()
        };
        self.scan = Some(trace.batches(&narrowed)?);
        Ok(())
    }

    /// Counts the rows that appeared at times already read.
    fn count_stragglers(&mut self) -> Result<()> {
        let everything = ScanProps { columns: Some(vec!["time"]), ..self.props.clone() };
        let mut scan = Trace::open(&self.path)?.batches::<B>(&everything)?;
        let mut batch = B::default();
        let mut rows = 0;
        while scan.next_batch(&mut batch)? {
            rows += batch.len() as u64;
        }
        if rows > self.rows {
            self.losses
                .add(rows - self.rows, "they were committed too late to be followed; the trace has them");
        }
        Ok(())
    }
}
