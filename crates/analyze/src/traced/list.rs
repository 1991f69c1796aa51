//! Lists of functions, lines and call sites.

use std::cmp::Reverse;

use floodmark_event::Tables;

use super::answer::{CallSite, TracedFunction, TracedLine};
use super::{CALLER, CallOrder, CallsFold, Change, NATIVE_CALLER, Recorded};

impl CallsFold {
    /// Returns all functions in an order.
    pub(super) fn functions(&self, tables: &Tables, order: CallOrder) -> Vec<TracedFunction> {
        let mut functions: Vec<TracedFunction> = self
            .figures
            .iter()
            .map(|(code, figures)| {
                let Named { function, file, line } = self.named(*code, tables);
                TracedFunction {
                    function,
                    file,
                    line,
                    is_native: figures.is_native,
                    calls: figures.calls,
                    gained_bytes: figures.own.gained,
                    released_bytes: figures.own.released,
                    own_bytes: figures.own.net(),
                    cumulative_bytes: figures.cumulative,
                }
            })
            .collect();
        functions.sort_by(|one, other| {
            let key = |function: &TracedFunction| match order {
                CallOrder::Own => (function.own_bytes, function.cumulative_bytes),
                CallOrder::Cumulative => (function.cumulative_bytes, function.own_bytes),
                CallOrder::Calls => (function.calls.cast_signed(), function.own_bytes),
            };
            key(other).cmp(&key(one)).then_with(|| {
                (&one.function, &one.file, one.line).cmp(&(&other.function, &other.file, other.line))
            })
        });
        functions
    }

    /// Returns all lines, those that gained most first.
    pub(super) fn lines(&self, tables: &Tables) -> Vec<TracedLine> {
        let mut lines: Vec<TracedLine> = self
            .lines
            .iter()
            .map(|((code, line, native), change)| {
                let Named { function, file, .. } = Named::of(*code, tables);
                let function = if *native == 0 {
                    function
                } else {
                    format!("{function} → {}", Named::of(*native, tables).function)
                };
                let Change { gained, released } = *change;
                TracedLine { function, file, line: *line, gained_bytes: gained, released_bytes: released }
            })
            .collect();
        lines.sort_by(|one, other| {
            let key = |line: &TracedLine| (Reverse(line.gained_bytes), Reverse(line.released_bytes));
            key(one).cmp(&key(other)).then_with(|| {
                (&one.file, one.line, &one.function).cmp(&(&other.file, other.line, &other.function))
            })
        });
        lines
    }

    /// Returns the call sites with a change, those that gained most first.
    pub(super) fn call_sites(&self, tables: &Tables) -> Vec<CallSite> {
        let sites = self.known_sites.iter().map(|(key, site)| (key, self.sites[*site as usize]));
        let mut sites: Vec<CallSite> = sites
            .filter(|(_, site)| site.change.gained + site.change.released > 0)
            .map(|((caller, line, code), site)| {
                let Named { function: caller, file, .. } = Named::of(*caller, tables);
                let Change { gained, released } = site.change;
                CallSite {
                    caller,
                    file,
                    line: *line,
                    function: Named::of(*code, tables).function,
                    calls: site.calls,
                    gained_bytes: gained,
                    released_bytes: released,
                    cumulative_bytes: site.change.net(),
                }
            })
            .collect();
        sites.sort_by(|one, other| {
            let figures = |site: &CallSite| (Reverse(site.gained_bytes), Reverse(site.released_bytes));
            figures(one).cmp(&figures(other)).then_with(|| {
                (&one.file, one.line, &one.caller, &one.function).cmp(&(
                    &other.file,
                    other.line,
                    &other.caller,
                    &other.function,
                ))
            })
        });
        sites
    }

    /// Names a function with the line where it begins.
    pub(super) fn named(&self, code: u32, tables: &Tables) -> Named {
        let named = Named::of(code, tables);
        // An entry of a stack has the line that ran, not the one where its function begins.
        let line = if self.recorded == Recorded::Faults { 0 } else { named.line };
        Named { line, ..named }
    }
}

/// Cuts a list; returns how many entries were left out.
pub(super) fn cut<T>(list: &mut Vec<T>, limit: Option<usize>) -> u64 {
    let limit = limit.unwrap_or(list.len());
    let omitted = list.len().saturating_sub(limit);
    list.truncate(limit);
    omitted as u64
}

/// Returns the number of a function without what tells that its caller is meant.
pub(super) const fn function_of(code: u32) -> u32 {
    if code & CALLER == 0 { code } else { code & !(CALLER | NATIVE_CALLER) }
}

/// A function's name, file and line.
pub(super) struct Named {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: u32,
}

impl Named {
    pub(super) fn of(code: u32, tables: &Tables) -> Self {
        let frame = tables.frame(function_of(code));
        let function = tables.string(frame.function);
        let function = if function.is_empty() { "(unknown)" } else { function };
        let file = tables.string(frame.file).to_owned();
        if function_of(code) == code {
            return Self { function: function.to_owned(), file, line: frame.line };
        }
        // The file of a native function is that of the call; that of a Python function is its own.
        let file = if code & NATIVE_CALLER == 0 { String::new() } else { file };
        Self { function: format!("caller of {function}"), file, line: 0 }
    }

    pub(super) fn text(&self) -> String {
        match (self.file.as_str(), self.line) {
            ("", _) => self.function.clone(),
            (file, 0) => format!("{} ({file})", self.function),
            (file, line) => format!("{} ({file}:{line})", self.function),
        }
    }
}
