//! Traces in the format of Chrome's trace events, which Perfetto and `chrome://tracing` show.
//!
//! Everything is written as it comes. Times are microseconds after a start that the file tells, because
//! readers keep them as floating point. A scope is a pair of `B` and `E`, which readers match by order
//! and not by name: a scope that is left before those inside of it ends when they have, and scopes still
//! open at the end are closed there. So the pairs always match.

use std::fmt::Write as _;
use std::io::{self, Write};

use floodmark_event::{Event, Kind, NO_DEVICE, ScopeAction, ScopeRow, StackId, Tables, UNKNOWN_BYTES};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::json_text::json_string;

/// Writes a trace.
pub struct ChromeWriter<'a> {
    out: &'a mut dyn Write,
    start_ns: i64,
    last_ns: i64,
    is_empty: bool,
    /// Open scopes of every process and thread, the innermost last, and whether they were left.
    open: FxHashMap<(u64, u64), Vec<(u64, bool)>>,
    /// Stacks that events refer to.
    stacks: FxHashSet<StackId>,
    unmatched: u64,
}

impl<'a> ChromeWriter<'a> {
    /// Begins; times are written as what has passed since `start_ns`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn begin(out: &'a mut dyn Write, start_ns: i64) -> io::Result<Self> {
        write!(
            out,
            "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"exporter\":\"floodmark@{}\",\"start_time_ns\":\"{start_ns}\"}},\
             \"traceEvents\":[",
            env!("CARGO_PKG_VERSION")
        )?;
        Ok(Self {
            out,
            start_ns,
            last_ns: start_ns,
            is_empty: true,
            open: FxHashMap::default(),
            stacks: FxHashSet::default(),
            unmatched: 0,
        })
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.out.write_all(if self.is_empty { b"\n" } else { b",\n" })?;
        self.is_empty = false;
        self.out.write_all(line.as_bytes())
    }

    fn time(&mut self, time_ns: i64) -> String {
        self.last_ns = self.last_ns.max(time_ns);
        let ns = i128::from(time_ns) - i128::from(self.start_ns);
        let sign = if ns < 0 { "-" } else { "" };
        let ns = ns.unsigned_abs();
        format!("{sign}{}.{:03}", ns / 1000, ns % 1000)
    }

    /// Names a process.
    ///
    /// # Errors
    /// Those of what it writes to, as of all below.
    pub fn process(&mut self, pid: u64, name: &str) -> io::Result<()> {
        let name = json_string(name);
        self.line(&format!(
            "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"tid\":0,\"args\":{{\"name\":{name}}}}}"
        ))
    }

    /// A counter has a value from an instant on.
    ///
    /// # Errors
    /// Those of what it writes to.
    pub fn counter(&mut self, pid: u64, name: &str, time_ns: i64, value: u64) -> io::Result<()> {
        let (time, name) = (self.time(time_ns), json_string(name));
        self.line(&format!(
            "{{\"ph\":\"C\",\"name\":{name},\"pid\":{pid},\"tid\":0,\"ts\":{time},\"args\":{{\"bytes\":{value}}}}}"
        ))
    }

    /// A scope is entered or left, or a mark is made.
    ///
    /// # Errors
    /// Those of what it writes to.
    pub fn scope(&mut self, pid: u64, row: &ScopeRow, name: &str) -> io::Result<()> {
        let at = (pid, row.thread);
        match row.action {
            ScopeAction::Mark => {
                let (time, name, tid) = (self.time(row.time_ns), json_string(name), row.thread);
                self.line(&format!(
                    "{{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"mark\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{time}}}"
                ))
            }
            ScopeAction::Enter => {
                self.open.entry(at).or_default().push((row.scope, false));
                let (time, name, tid) = (self.time(row.time_ns), json_string(name), row.thread);
                self.line(&format!(
                    "{{\"ph\":\"B\",\"cat\":\"scope\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{time}}}"
                ))
            }
            ScopeAction::Exit => {
                // It may be left by another thread than that which entered it.
                let mut threads = self.open.iter_mut().filter(|((of, _), _)| *of == pid);
                let found = threads.find_map(|(at, open)| {
                    let scope = open.iter_mut().find(|(scope, _)| *scope == row.scope)?;
                    scope.1 = true;
                    Some(*at)
                });
                let Some(at) = found else {
                    self.unmatched += 1;
                    return Ok(());
                };
                self.close(at, row.time_ns)
            }
        }
    }

    /// Ends the innermost scopes that were left.
    fn close(&mut self, at: (u64, u64), time_ns: i64) -> io::Result<()> {
        while let Some((_, true)) = self.open.get(&at).and_then(|open| open.last()) {
            if let Some(open) = self.open.get_mut(&at) {
                open.pop();
            }
            let time = self.time(time_ns);
            let (pid, tid) = at;
            self.line(&format!("{{\"ph\":\"E\",\"pid\":{pid},\"tid\":{tid},\"ts\":{time}}}"))?;
        }
        Ok(())
    }

    /// An allocation, a free or a failure.
    ///
    /// # Errors
    /// Those of what it writes to.
    pub fn event(&mut self, pid: u64, event: &Event, tables: &Tables) -> io::Result<()> {
        let time = self.time(event.time_ns);
        let mut args = format!("\"address\":\"{:#x}\"", event.address);
        if event.bytes != UNKNOWN_BYTES {
            let _ = write!(args, ",\"bytes\":{}", event.bytes);
        }
        if event.device != NO_DEVICE {
            let _ = write!(args, ",\"device\":{}", event.device);
        }
        if event.kind != Kind::Unknown {
            let _ = write!(args, ",\"kind\":\"{}\"", event.kind.name());
        }
        if event.stream != 0 {
            let _ = write!(args, ",\"stream\":\"{:#x}\"", event.stream);
        }
        let name = tables.string(event.name);
        if !name.is_empty() {
            let _ = write!(args, ",\"name\":{}", json_string(name));
        }
        let mut stack = String::new();
        if event.stack.0 != 0 {
            self.stacks.insert(event.stack);
            stack = format!(",\"sf\":{}", event.stack.0);
        }
        let (action, tid) = (event.action.name(), event.thread);
        self.line(&format!(
            "{{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"memory\",\"name\":\"{action}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{time}{stack},\
             \"args\":{{{args}}}}}"
        ))
    }

    /// Ends; returns how many scopes were left that had not been entered.
    ///
    /// # Errors
    /// Those of what it writes to.
    pub fn finish(mut self, tables: &Tables) -> io::Result<u64> {
        let last_ns = self.last_ns;
        let mut threads: Vec<(u64, u64)> = self.open.keys().copied().collect();
        threads.sort_unstable();
        for at in threads {
            for open in self.open.get_mut(&at).into_iter().flatten() {
                open.1 = true;
            }
            self.close(at, last_ns)?;
        }
        self.out.write_all(b"]")?;
        self.stack_frames(tables)?;
        self.out.write_all(b"}\n")?;
        Ok(self.unmatched)
    }

    /// The stacks that events refer to, with all that called them.
    fn stack_frames(&mut self, tables: &Tables) -> io::Result<()> {
        let mut all: Vec<StackId> = Vec::new();
        let mut known: FxHashSet<StackId> = FxHashSet::default();
        for stack in &self.stacks {
            let mut at = *stack;
            while let Some((parent, _)) = tables.stack(at).filter(|_| known.insert(at)) {
                all.push(at);
                at = parent;
            }
        }
        all.sort_unstable();
        if all.is_empty() {
            return Ok(());
        }
        self.out.write_all(b",\n\"stackFrames\":{")?;
        for (number, at) in all.into_iter().enumerate() {
            let Some((parent, frame)) = tables.stack(at) else { continue };
            let name = json_string(&tables.frame_text(&tables.frame(frame)));
            let parent = if parent.0 == 0 { String::new() } else { format!(",\"parent\":\"{}\"", parent.0) };
            let comma = if number == 0 { "\n" } else { ",\n" };
            write!(self.out, "{comma}\"{}\":{{\"category\":\"call\",\"name\":{name}{parent}}}", at.0)?;
        }
        self.out.write_all(b"}")
    }
}
