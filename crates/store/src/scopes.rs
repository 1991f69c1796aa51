//! Scopes and ranges from beginning to end.
//!
//! The scope table has a row for each beginning and each end; this puts the two together. For a trace with
//! more scopes than memory, read the rows with [`Trace::rows`].

use std::collections::HashMap;

use floodmark_event::{ProcessId, ScopeAction, ScopeRow};

use crate::error::Result;
use crate::scan::ScanProps;
use crate::trace::Trace;

/// A scope, a range or a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeSpan {
    /// Its number, with the process in the upper half; 0 for a mark.
    pub scope: u64,
    /// The scope around it; 0 for none.
    pub parent: u64,
    /// Its name.
    pub name: String,
    /// Process in which it was entered.
    pub process: ProcessId,
    /// Operating system's number of the thread.
    pub thread: u64,
    /// When it was entered.
    pub start_ns: i64,
    /// When it was left, as far as it was; a mark ends as it begins.
    pub end_ns: Option<i64>,
}

impl Trace {
    /// Returns all scopes and marks, in the order in which they began.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn scopes(&self) -> Result<Vec<ScopeSpan>> {
        let mut scan = self.rows::<ScopeRow>(&ScanProps::default())?;
        let mut spans: Vec<ScopeSpan> = Vec::new();
        let mut open: HashMap<u64, usize> = HashMap::new();
        let mut rows = Vec::new();
        while scan.next(&mut rows)? {
            for row in &rows {
                if matches!(row.action, ScopeAction::Exit | ScopeAction::End) {
                    if let Some(index) = open.remove(&row.scope) {
                        spans[index].end_ns = Some(row.time_ns);
                    }
                    continue;
                }
                if matches!(row.action, ScopeAction::Enter | ScopeAction::Begin) {
                    open.insert(row.scope, spans.len());
                }
                spans.push(ScopeSpan {
                    scope: row.scope,
                    parent: row.parent,
                    name: scan.tables().string(row.name).to_owned(),
                    process: row.process,
                    thread: row.thread,
                    start_ns: row.time_ns,
                    end_ns: (row.action == ScopeAction::Mark).then_some(row.time_ns),
                });
            }
        }
        Ok(spans)
    }
}
