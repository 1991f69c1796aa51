//! Calls that a tracer recorded: what functions gained, as a table or a flame graph, and row by row.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use floodmark_analyze::{Calls, CallsFold, CallsOptions, Caveats, Direction, Flame, Recorded};
use floodmark_convert::Format;
use floodmark_convert::pymemtrace::CallLogs;
use floodmark_event::filter::{Window, resolve};
use floodmark_event::{CallRow, Filter, Metric, ProcessId, Row, ScopeAction, ScopeRow, StackReason, Tables};
use floodmark_store::{Losses, ScanProps, Table};

use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::plain::plain;
use crate::query::Query;

impl Input {
    /// Whether calls of functions may have been recorded; of a trace that is being recorded this is known after reading.
    pub fn has_calls(&self) -> bool {
        match self.manifest() {
            // A tracer may record stacks instead; its mark says so.
            Some(manifest) => {
                manifest.rows_of(Table::Call) > 0
                    || self.contents().is_growing
                    || self.recorded().is_ok_and(|recorded| recorded == Recorded::Faults)
            }
            None => self.format_name() == Format::Pymemtrace.name(),
        }
    }

    /// Returns what functions gained in resident memory.
    ///
    /// # Errors
    /// If no calls were recorded or they cannot be read.
    pub fn calls(&self, query: &Query<'_>, options: &CallsOptions) -> Result<Answer<Calls>> {
        self.fold_calls(query, |fold, tables| fold.finish(tables, options))
    }

    /// Returns what calls gained as a flame graph.
    ///
    /// # Errors
    /// If no calls were recorded or they cannot be read.
    pub fn flame_of_calls(&self, query: &Query<'_>, direction: Direction) -> Result<Answer<Flame>> {
        let answer = self.fold_calls(query, |fold, tables| fold.flame(tables, direction))?;
        Ok(Answer { caveats: Caveats { events_read: 1, events_selected: 1, ..Caveats::default() }, ..answer })
    }

    fn fold_calls<T>(
        &self,
        query: &Query<'_>,
        finish: impl FnOnce(CallsFold, &Tables) -> T,
    ) -> Result<Answer<T>> {
        let recorded = self.recorded()?;
        let (mut fold, mut count) = (CallsFold::new(recorded), 0);
        let (result, losses) = if recorded == Recorded::Faults {
            let (mut sizes, mut selected) = (HashMap::new(), Selected::new(&query.filter));
            let source = self.each_row(query.progress, |rows, tables| {
                for row in rows {
                    match row {
                        // Of everything that is observed: whether a tracer recorded it is known with its first stack.
                        Row::Sample(row) if row.metric == Metric::Rss => {
                            let latest = (row.time_ns, row.value);
                            let sizes = sizes.entry(row.subject).or_insert(Sizes {
                                has_begun: false,
                                before: latest,
                                latest,
                            });
                            sizes.add(latest);
                        }
                        Row::Stack(row)
                            if row.reason == StackReason::Growth
                                && selected.has(row.time_ns, process_of(row.subject), row.thread) =>
                        {
                            // A stack comes with the size that it made.
                            let Some(sizes) = sizes.get_mut(&row.subject) else { continue };
                            count += 1;
                            if !std::mem::replace(&mut sizes.has_begun, true) {
                                fold.resident_at(row.subject, sizes.before.1, sizes.before.0);
                            }
                            fold.fault(row, sizes.latest.1, tables);
                        }
                        _ => {}
                    }
                }
            })?;
            (Some(finish(fold, source.tables())), source.losses())
        } else {
            let (mut finish, mut result) = (Some(finish), None);
            let losses = self.each_call(query, |rows, tables| {
                match rows {
                    Some(rows) => {
                        count += rows.len();
                        fold.push(rows);
                    }
                    None => result = finish.take().map(|finish| finish(std::mem::take(&mut fold), tables)),
                }
                ControlFlow::Continue(())
            })?;
            (result, losses)
        };
        match result.filter(|_| count > 0) {
            Some(result) => Ok(Answer::new(self.name(), &losses, result)),
            None => Err(Error::no_content(
                format!("{} contains no calls of functions", plain(self.name())),
                "'python -m floodmark.trace script.py' records them; 'floodmark info' shows what an input contains",
            )),
        }
    }

    /// Writes the calls of every thread to a log in `folder`, named as pymemtrace names its logs, and returns their paths.
    ///
    /// Only events at which resident memory changed by `trigger_bytes` are written, with the one before each; all if 0.
    /// Files that exist are an error unless `replaces`.
    ///
    /// # Errors
    /// If the input cannot be read or a log cannot be written.
    pub fn write_call_logs(
        &self,
        query: &Query<'_>,
        folder: &Path,
        trigger_bytes: u64,
        replaces: bool,
    ) -> Result<(Vec<PathBuf>, Losses)> {
        let failed = |(path, source): (PathBuf, io::Error)| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::unsuitable(
                format!("{} exists already", plain(&path.display().to_string())),
                "--force replaces it; or choose another folder",
            ),
            _ => Error::Write { act: "writing", path, source },
        };
        let mut logs = CallLogs::create(folder, trigger_bytes, replaces)
            .map_err(|source| failed((folder.to_owned(), source)))?;
        let mut result = Ok(());
        let losses = self.each_call(query, |rows, tables| {
            if result.is_ok() {
                result = rows.unwrap_or_default().iter().try_for_each(|row| logs.row(row, tables));
            }
            if result.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        result.map_err(failed)?;
        Ok((logs.finish().map_err(failed)?, losses))
    }

    /// Returns which events the tracer of a trace recorded.
    fn recorded(&self) -> Result<Recorded> {
        let Some(trace) = self.trace() else { return Ok(Recorded::Every) };
        let (mut scan, mut rows) = (trace.rows::<ScopeRow>(&ScanProps::default())?, Vec::new());
        while scan.next(&mut rows)? {
            let marks = rows.iter().filter(|row| row.action == ScopeAction::Mark);
            let mut modes = marks.filter_map(|row| Recorded::from_mark(scan.tables().string(row.name)));
            if let Some(recorded) = modes.next() {
                return Ok(recorded);
            }
        }
        Ok(Recorded::Every)
    }

    /// Hands the calls that `query` selects to `visit` in the order of time, until it breaks off; at the end it hands
    /// out nothing, with all tables.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn each_call(
        &self,
        query: &Query<'_>,
        mut visit: impl FnMut(Option<&[CallRow]>, &Tables) -> ControlFlow<()>,
    ) -> Result<Losses> {
        let mut selected = Selected::new(&query.filter);
        query.progress.started(self.name());
        if let Some(trace) = self.trace() {
            let mut scan = trace.rows::<CallRow>(&ScanProps::default())?;
            let mut rows = Vec::new();
            while scan.next(&mut rows)? {
                query.progress.advanced(self.name(), scan.progress());
                selected.keep(&mut rows);
                if visit(Some(&rows), scan.tables()).is_break() {
                    break;
                }
            }
            let _ = visit(None, scan.tables());
            return Ok(scan.losses());
        }
        let mut source = self.rows_if_any(&ScanProps::default())?;
        let (mut rows, mut calls) = (Vec::new(), Vec::new());
        while source.next(&mut rows)? {
            query.progress.advanced(self.name(), source.progress());
            let call = |row: &Row| if let Row::Call(row) = row { Some(*row) } else { None };
            calls.clear();
            calls.extend(rows.iter().filter_map(call));
            selected.keep(&mut calls);
            if visit(Some(&calls), source.tables()).is_break() {
                break;
            }
        }
        let _ = visit(None, source.tables());
        Ok(source.losses())
    }
}

/// Resident sizes of something that is observed, with their times.
struct Sizes {
    /// Whether a stack of it was read.
    has_begun: bool,
    /// The one at which changes begin to count: that before the latest.
    before: (i64, u64),
    latest: (i64, u64),
}

impl Sizes {
    fn add(&mut self, next: (i64, u64)) {
        if next.0 != self.latest.0 {
            self.before = self.latest;
        }
        self.latest = next;
    }
}

/// The process that recorded a subject.
const fn process_of(subject: u64) -> ProcessId {
    ProcessId((subject >> 32) as u32)
}

/// Selects calls by process, thread and time.
struct Selected<'a> {
    filter: &'a Filter,
    /// Known with the first row, which elapsed times count from.
    window: Option<Window>,
}

impl<'a> Selected<'a> {
    const fn new(filter: &'a Filter) -> Self {
        Self { filter, window: None }
    }

    fn keep(&mut self, rows: &mut Vec<CallRow>) {
        rows.retain(|row| self.has(row.time_ns, row.process, row.thread));
    }

    fn has(&mut self, time_ns: i64, process: ProcessId, thread: u64) -> bool {
        let filter = self.filter;
        let window = self.window.get_or_insert_with(|| {
            let at = |instant| resolve(instant, filter.origin_ns.unwrap_or(time_ns));
            Window { from_ns: filter.from_ns.map(at), to_ns: filter.to_ns.map(at) }
        });
        window.contains(time_ns)
            && filter.processes.as_ref().is_none_or(|list| list.contains(&process))
            && filter.threads.as_ref().is_none_or(|list| list.contains(&thread))
    }
}
