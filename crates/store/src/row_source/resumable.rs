//! Events of a trace from a position on, with ids that outlive the scan.
//!
//! Every scan numbers texts and stacks itself. A reader that keeps blocks of one scan and goes on with
//! another reads both here, with tables of its own that only grow.

use floodmark_event::{EventBatch, Tables};

use super::id_map::IdMap;
use crate::error::Result;
use crate::scan::{Scan, ScanCursor, ScanProps};
use crate::source::Source as _;
use crate::trace::Trace;

/// Reads the events of a trace, from the beginning or from the position of an earlier reading.
pub struct ResumableEvents {
    scan: Scan,
    ids: IdMap,
}

impl ResumableEvents {
    /// Begins with the first event. Only a reading of all rows has a position.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn begin(trace: &Trace, props: &ScanProps, tables: &mut Tables) -> Result<Self> {
        Ok(Self::new(trace.scan(props)?, tables))
    }

    /// Goes on from the position of an earlier reading of this trace; none if the position is not good any
    /// more (see [`Trace::scan_from`]).
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn resume(
        trace: &Trace,
        props: &ScanProps,
        position: &ScanCursor,
        tables: &mut Tables,
    ) -> Result<Option<Self>> {
        Ok(trace.scan_from(props, position)?.map(|scan| Self::new(scan, tables)))
    }

    fn new(scan: Scan, tables: &mut Tables) -> Self {
        IdMap::merge_names(scan.tables(), tables);
        Self { scan, ids: IdMap::default() }
    }

    /// Replaces the rows of `batch` by the next ones; `false` at the end. Ids are those of `tables`, which
    /// have to be the same at every call.
    ///
    /// # Errors
    /// What is wrong with the trace's files; what came before stays good.
    pub fn next(&mut self, batch: &mut EventBatch, tables: &mut Tables) -> Result<bool> {
        let has_more = self.scan.next(batch)?;
        self.ids.remap_events(batch, self.scan.tables(), tables);
        Ok(has_more)
    }

    /// Position of the reading; see [`Scan::position`].
    pub fn position(&self) -> Option<ScanCursor> {
        self.scan.position()
    }
}
