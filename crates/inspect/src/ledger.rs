//! The ledger of a process: what its resident memory consisted of at the peak.

use floodmark_analyze::{LedgerFold, LiveHeapFold, ProcessLedger};
use floodmark_event::{Filter, Kind, NO_DEVICE, ProcessId, Row};
use floodmark_store::ScanProps;

use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::Columns;
use crate::query::Query;

impl Input {
    /// Returns what the resident memory of a process consisted of at its peak: of the process with this PID, or of the
    /// one with the highest peak.
    ///
    /// # Errors
    /// If no process was sampled, it is read from a pipe, or it cannot be read.
    pub fn ledger(&self, query: &Query<'_>, pid: Option<u64>) -> Result<Answer<ProcessLedger>> {
        self.need_rewind("a ledger needs samples and then events")?;
        let mut fold = LedgerFold::default();
        let source = self.each_row(query.progress, |rows, tables| {
            for row in rows {
                if let Row::Sample(row) = row {
                    fold.sample(row, &tables.subjects);
                }
            }
        })?;
        let subjects = &source.tables().subjects;
        let Some((process, others)) = fold.finish(pid, subjects) else {
            return Err(self.not_sampled(pid));
        };
        let own = subjects.get(&process.subject).map_or(0, |subject| subject.number);
        let mut losses = source.losses();
        let mut live = None;
        if self.contents().has_events {
            // Heap blocks are pageable memory on no device; other kinds are not part of a heap.
            let filter = Filter {
                processes: self.recording_process(own, process.instant())?.map(|process| vec![process]),
                kinds: Some(vec![Kind::Pageable]),
                devices: Some(vec![NO_DEVICE]),
                ..Filter::default()
            };
            let query = Query::new(filter, query.progress);
            let folded = self.fold_any(&query, Columns::Figures, LiveHeapFold::new(process.instants()))?;
            losses.extend(&folded.source.losses());
            let is_recorded = folded.pass.live().counters().first_time_ns.is_some();
            live = is_recorded.then_some(folded.answer.result);
        }
        let ledger = process.ledger(live.as_ref(), subjects, others);
        Ok(Answer::new(self.name(), &losses, ledger))
    }

    /// The process of the events of a PID at an instant; none if there is but one, which may not know its PID.
    fn recording_process(&self, pid: u64, time_ns: i64) -> Result<Option<ProcessId>> {
        let source = self.events(&ScanProps::default())?;
        let processes = &source.tables().processes;
        let with_pid = processes.iter().filter(|process| pid != 0 && u64::from(process.pid) == pid);
        // A process that replaced its program records once per program: the last one that had begun is running.
        let own = with_pid.max_by_key(|process| {
            let has_begun = process.start_ns <= time_ns;
            (has_begun, if has_begun { process.start_ns } else { process.start_ns.saturating_neg() })
        });
        // Another process must not be taken for one that recorded nothing.
        Ok(own.map(|process| process.id).or_else(|| (processes.len() > 1).then_some(ProcessId(u32::MAX))))
    }

    fn not_sampled(&self, pid: Option<u64>) -> Error {
        let name = self.name();
        let (message, remedy) = match pid {
            Some(pid) => (
                format!("{name} has no samples of the resident memory of process {pid}"),
                format!("'floodmark info {name}' lists the processes that were sampled"),
            ),
            None => (
                format!("{name} has no samples of the resident memory of a process, which a ledger needs"),
                "'floodmark run -- COMMAND' records them".to_owned(),
            ),
        };
        Error::no_content(message, remedy)
    }
}
