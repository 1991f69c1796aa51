//! The origin of elapsed times: the one instant that every view, link and option counts from.
//!
//! Times of a recorded run count from its start, those of any other input from its first event or row. `+1.5s`
//! is then the same instant in `watermark --at`, `plot --from`, `info`, a report and its links.

use floodmark_event::{EventBatch, Filter, Row};
use floodmark_store::{ScanProps, Trace};

use crate::error::{Error, Result};
use crate::input::Input;

/// Returns the start of the run that a trace recorded, or that of what was imported; none if it does not state it.
pub(crate) fn of_trace(trace: &Trace) -> Option<i64> {
    trace.manifest().run.start_ns
}

impl Input {
    /// Returns the instant that elapsed times count from; none if it is the first event, which a pass meets
    /// anyway, or if there is nothing.
    pub fn origin_ns(&self) -> Option<i64> {
        *self.origin.get_or_init(|| {
            let known = self.trace().and_then(of_trace);
            // An input that cannot be read fails when it is asked, with the same error.
            known.or_else(|| self.first_ns().ok().flatten())
        })
    }

    /// Returns the filter with its times counted from the origin of this input.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] if the window ends before it begins.
    pub fn anchored(&self, filter: &Filter) -> Result<Filter> {
        let anchored = Filter { origin_ns: self.origin_ns(), ..filter.clone() };
        if anchored.is_reversed() {
            return Err(Error::unsuitable(
                "--from is later than --to, so that nothing lies between",
                "exchange them",
            ));
        }
        Ok(anchored)
    }

    /// Returns the time of the first event.
    pub(crate) fn first_event_ns(&self) -> Result<Option<i64>> {
        let mut source = self.events(&ScanProps { columns: Some(Vec::new()), ..ScanProps::default() })?;
        let mut batch = EventBatch::new();
        while source.next(&mut batch)? {
            if !batch.is_empty() {
                return Ok(Some(batch.time_ns.at(0)));
            }
        }
        Ok(None)
    }

    /// Returns the time of the first event or row, whichever is earlier. Messages of a recorder do not count.
    fn first_ns(&self) -> Result<Option<i64>> {
        let contents = self.contents();
        if !contents.can_rewind || !contents.has_rows {
            return Ok(None);
        }
        let mut first_ns = None;
        if contents.has_events {
            first_ns = self.first_event_ns()?;
        }
        let (mut source, mut rows) = (self.rows(&ScanProps::default())?, Vec::new());
        let mut first_row_ns = None;
        while first_row_ns.is_none() && source.next(&mut rows)? {
            let mut rows = rows.iter().filter(|row| !matches!(row, Row::Log(_)));
            first_row_ns = rows.next().map(Row::time_ns);
        }
        Ok(first_ns.into_iter().chain(first_row_ns).min())
    }
}
