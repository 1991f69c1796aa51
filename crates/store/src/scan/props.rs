//! Which rows and columns a scan reads, and which parts and row groups it need not open.

use std::sync::Arc;

use floodmark_event::ProcessId;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use crate::manifest::Part;
use crate::merge::EventChunks;
use crate::registry::process_of;
use crate::table::Table;

/// Which rows and columns to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanProps {
    /// Names of the columns to read, of [`EVENT_COLUMNS`](crate::columns::EVENT_COLUMNS); all if
    /// `None`. Others read as "none". Other tables are always read with all columns.
    pub columns: Option<Vec<&'static str>>,
    /// Only rows recorded by these processes.
    pub processes: Option<Vec<ProcessId>>,
    /// Only rows about these subjects, in tables that are about subjects.
    pub subjects: Option<Vec<u64>>,
    /// Only rows from this time on.
    pub from_ns: Option<i64>,
    /// Only rows up to this time.
    pub to_ns: Option<i64>,
    /// Chunks of the tail in which a scan of all events found nothing else ([`Scan::event_chunks`]). Scans
    /// of other tables do not read them.
    ///
    /// [`Scan::event_chunks`]: crate::Scan::event_chunks
    pub event_chunks: Option<Arc<EventChunks>>,
}

impl ScanProps {
    /// Whether a column has to be read.
    pub(crate) fn wants(&self, column: &str) -> bool {
        // Times are needed to merge, and what is filtered by must be read.
        let filtered = self.processes.is_some() && column == "process";
        column == "time" || filtered || self.columns.as_ref().is_none_or(|columns| columns.contains(&column))
    }

    /// Whether rows are left out by time or process.
    pub(crate) fn wants_all_rows(&self) -> bool {
        let Self { columns: _, processes, subjects: _, from_ns, to_ns, event_chunks: _ } = self;
        processes.is_none() && from_ns.is_none() && to_ns.is_none()
    }

    fn overlaps(&self, from_ns: i64, to_ns: i64) -> bool {
        self.from_ns.is_none_or(|from| to_ns >= from) && self.to_ns.is_none_or(|to| from_ns <= to)
    }

    /// Whether a part can have a row that is wanted.
    pub(super) fn wants_part(&self, part: &Part) -> bool {
        let has_process = |ids: &Vec<ProcessId>| {
            part.processes.as_ref().is_none_or(|ranges| ids.iter().any(|id| ranges.contains(*id)))
        };
        self.overlaps(part.min_time_ns, part.max_time_ns) && self.processes.as_ref().is_none_or(has_process)
    }

    /// Whether a row group can have a row that is wanted.
    pub(super) fn wants_group(&self, group: &RowGroupMetaData, table: Table) -> bool {
        let time_ns = |time: i64| time.saturating_mul(table.time_unit_ns());
        group.columns().iter().all(|column| {
            let Some(statistics) = column.statistics() else { return true };
            match (column.column_path().string().as_str(), statistics) {
                ("time", Statistics::Int64(times)) => match (times.min_opt(), times.max_opt()) {
                    (Some(from), Some(to)) => self.overlaps(time_ns(*from), time_ns(*to)),
                    _ => true,
                },
                ("process", Statistics::Int32(ids)) => match (ids.min_opt(), ids.max_opt()) {
                    (Some(from), Some(to)) => {
                        self.wants_processes(ProcessId(*from as u32), ProcessId(*to as u32))
                    }
                    _ => true,
                },
                // A row about no subject is of no process; such rows are not in these statistics.
                ("subject", Statistics::Int64(subjects)) if statistics.null_count_opt() == Some(0) => {
                    match (subjects.min_opt(), subjects.max_opt()) {
                        (Some(from), Some(to)) => self.wants_subjects(*from as u64, *to as u64),
                        _ => true,
                    }
                }
                _ => true,
            }
        })
    }

    fn wants_processes(&self, from: ProcessId, to: ProcessId) -> bool {
        self.processes.as_ref().is_none_or(|ids| ids.iter().any(|id| (from..=to).contains(id)))
    }

    fn wants_subjects(&self, from: u64, to: u64) -> bool {
        self.wants_processes(process_of(from), process_of(to))
            && self.subjects.as_ref().is_none_or(|ids| ids.iter().any(|id| (from..=to).contains(id)))
    }

    /// Whether a row is wanted; one of a table that is not about subjects is not filtered by them.
    pub(crate) fn wants_row(&self, time_ns: i64, process: ProcessId, subject: Option<u64>) -> bool {
        self.overlaps(time_ns, time_ns)
            && self.processes.as_ref().is_none_or(|ids| ids.contains(&process))
            && subject.is_none_or(|subject| self.subjects.as_ref().is_none_or(|ids| ids.contains(&subject)))
    }
}

/// Returns the latest time in a row group, as far as its statistics say.
pub(super) fn latest_ns(group: &RowGroupMetaData, table: Table) -> i64 {
    let times = group.columns().iter().find(|column| column.column_path().string() == "time");
    match times.and_then(|times| times.statistics()) {
        Some(Statistics::Int64(times)) => {
            times.max_opt().map_or(i64::MIN, |time| time.saturating_mul(table.time_unit_ns()))
        }
        _ => i64::MIN,
    }
}
