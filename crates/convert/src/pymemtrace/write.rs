//! Writes calls in the layout of `pymemtrace`'s newest logs, for people and tools that read those.
//!
//! A `PREV` row is the event right before the one that follows; in the original's logs it repeats an older row.

use std::collections::HashMap;
use std::fmt::Write as _;

use floodmark_event::{CallAction, CallRow, ProcessId, Tables};

/// Turns rows into lines.
#[derive(Debug)]
pub struct CallText {
    /// Changes of resident memory of at least so many bytes are written; all events if 0.
    trigger_bytes: u64,
    start_ns: Option<i64>,
    number: u64,
    last_written: u64,
    reported_rss: u64,
    rss: u64,
    previous: Option<CallRow>,
    /// Functions that have not returned, without native ones, by thread.
    active: HashMap<(ProcessId, u64), Vec<u32>>,
}

impl CallText {
    /// Writes events at which resident memory changed by `trigger_bytes` since the last one written; all if 0.
    pub fn new(trigger_bytes: u64) -> Self {
        Self {
            trigger_bytes,
            start_ns: None,
            number: 0,
            last_written: 0,
            reported_rss: 0,
            rss: 0,
            previous: None,
            active: HashMap::new(),
        }
    }

    /// The lines before the first row.
    pub fn header(&self) -> String {
        format!(
            "SOF\nHDR: {:<12} {:<6}  {:<12} {:<8} {:<80} {:>4} {:<32} {:>12} {:>12}\n",
            "Event", "dEvent", "Clock", "What", "File", "Line", "Function", "RSS", "dRSS"
        )
    }

    /// The line after the last row.
    pub const fn end(&self) -> &'static str {
        "EOF\n"
    }

    /// The lines of a row: none, one, or two with the event before.
    pub fn row(&mut self, row: &CallRow, tables: &Tables) -> String {
        let mut text = String::new();
        if row.code == 0 {
            // Events are missing here, so the one before is not the previous one.
            self.previous = None;
            self.active.remove(&(row.process, row.thread));
            return text;
        }
        self.follow(row);
        let before = self.rss;
        self.rss = row.rss_bytes.unwrap_or(self.rss);
        let is_first = self.start_ns.is_none();
        self.start_ns.get_or_insert(row.time_ns);
        if is_first || self.rss.abs_diff(self.reported_rss) >= self.trigger_bytes {
            if let Some(previous) = self.previous.filter(|_| self.number > self.last_written + 1) {
                self.line(&mut text, "PREV", &previous, self.number - 1, before, tables);
            }
            let prefix = if is_first { "FRST" } else { "NEXT" };
            self.line(&mut text, prefix, row, self.number, self.rss, tables);
            (self.last_written, self.reported_rss) = (self.number, self.rss);
        }
        self.previous = Some(*row);
        self.number += 1;
        text
    }

    /// Notes which function is called or left.
    fn follow(&mut self, row: &CallRow) {
        let active = self.active.entry((row.process, row.thread)).or_default();
        match row.action {
            CallAction::Call | CallAction::Resume => active.push(row.code),
            CallAction::Return | CallAction::Yield | CallAction::Exception => {
                let at = active.iter().rposition(|code| *code == row.code);
                active.truncate(at.unwrap_or(0));
            }
            _ => {}
        }
    }

    /// The file of a function; of a native one it is that of the function that calls it.
    fn file<'a>(&self, row: &CallRow, tables: &'a Tables) -> &'a str {
        let file = tables.string(tables.frame(row.code).file);
        let caller = self.active.get(&(row.process, row.thread)).and_then(|active| active.last());
        match caller {
            Some(caller) if file.is_empty() => tables.string(tables.frame(*caller).file),
            _ => file,
        }
    }

    fn line(&self, text: &mut String, prefix: &str, row: &CallRow, number: u64, rss: u64, tables: &Tables) {
        let frame = tables.frame(row.code);
        let elapsed_ns = row.time_ns.saturating_sub(self.start_ns.unwrap_or(row.time_ns));
        let change = rss.wrapping_sub(self.reported_rss).cast_signed();
        let _ = writeln!(
            text,
            "{prefix}: {number:<12} +{:<6} {:<12.6} {:<8} {:<80} {:>4} {:<32} {rss:>12} {change:>12}",
            number - self.last_written,
            elapsed_ns as f64 / 1e9,
            what(row.action),
            plain(self.file(row, tables)),
            if row.line == 0 { frame.line } else { row.line },
            plain(tables.string(frame.function)),
        );
    }
}

/// The original's word. It has none for generators: they return and are called again.
const fn what(action: CallAction) -> &'static str {
    match action {
        CallAction::Call | CallAction::Resume => "CALL",
        CallAction::Return | CallAction::Yield | CallAction::Exception => "RETURN",
        CallAction::CCall => "C_CALL",
        CallAction::CReturn => "C_RETURN",
        CallAction::CException => "C_EXCEPT",
        _ => "UNKNOWN",
    }
}

/// A text in which nothing ends the line or acts on a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if floodmark_event::text::is_active(c) { '?' } else { c }).collect()
}
