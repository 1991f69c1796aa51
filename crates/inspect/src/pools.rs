//! Pools of stream-ordered allocation at an instant.

use floodmark_analyze::{PoolUse, PoolsFold};
use floodmark_event::{Filter, Row, SubjectKind};
use floodmark_store::ScanProps;

use crate::error::Result;
use crate::input::Input;

impl Input {
    /// Returns what pools reserved and what of it was in use at an instant. Pools are not known by device or
    /// process as blocks are, so there are none where `filter` selects some of these.
    pub(crate) fn pools_at(&self, at_ns: i64, filter: &Filter) -> Result<Vec<PoolUse>> {
        let contents = self.contents();
        let is_filtered = filter.devices.is_some() || filter.processes.is_some() || filter.kinds.is_some();
        if is_filtered || !contents.has_rows || !contents.can_rewind {
            return Ok(Vec::new());
        }
        let is_pool = |kind: SubjectKind| kind == SubjectKind::Pool;
        if let Some(trace) = self.trace()
            && !trace.subjects()?.values().any(|subject| is_pool(subject.kind))
        {
            return Ok(Vec::new());
        }
        let (mut source, mut rows) = (self.rows(&ScanProps::default())?, Vec::new());
        let mut fold = PoolsFold::new(at_ns);
        while source.next(&mut rows)? {
            let subjects = &source.tables().subjects;
            for row in &rows {
                if let Row::Sample(row) = row {
                    fold.update(row, subjects);
                }
            }
        }
        Ok(fold.finish())
    }
}
