//! Events of a trace from a place on, with ids that are good for longer than the reading.
//!
//! Every scan numbers texts and stacks itself. Who keeps blocks of one scan to go on with another one reads
//! both here, with tables of his own that only grow.

use crate::{Result, Scan, ScanCursor, ScanProps, Source as _, Trace};
use floodmark_event::{EventBatch, Tables};

use super::id_map::IdMap;

/// Reads the events of a trace, from its beginning or from where another reading stood.
pub struct ResumableEvents {
    scan: Scan,
    ids: IdMap,
}

impl ResumableEvents {
    /// Begins with the first event. Who is to stand somewhere must want all rows.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn begin(trace: &Trace, props: &ScanProps, tables: &mut Tables) -> Result<Self> {
        Ok(Self::new(trace.scan(props)?, tables))
    }

    /// Goes on from where another reading of this trace stood; none if that is no place to go on from any
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
        let is_more = self.scan.next(batch)?;
        self.ids.remap_events(batch, self.scan.tables(), tables);
        Ok(is_more)
    }

    /// Where the reading stands; see [`Scan::position`].
    pub fn position(&self) -> Option<ScanCursor> {
        self.scan.position()
    }
}
