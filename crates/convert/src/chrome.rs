//! Traces in the format of Chrome's trace events, which Perfetto and `chrome://tracing` show.
//!
//! Everything is written as it comes. Times are microseconds after a start that the file tells, because
//! readers keep them as floating point. A scope is written when it is left, and readers draw those of a
//! thread inside one another. So one that is left while another one inside of it is open becomes a pair of
//! `b` and `e`, which may overlap anything; all others are an `X` each and lie within one another.
//! Scopes still open at the end are closed there.

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
    /// Open scopes by process and their number.
    open: FxHashMap<(u64, u64), OpenScope>,
    /// By process and thread.
    threads: FxHashMap<(u64, u64), ThreadScopes>,
    /// Stacks that events refer to.
    stacks: FxHashSet<StackId>,
    unmatched: u64,
}

/// A scope that was not left yet.
struct OpenScope {
    thread: u64,
    time_ns: i64,
    /// As JSON.
    name: String,
}

/// Scopes that a thread entered.
#[derive(Default)]
struct ThreadScopes {
    /// Their numbers, the innermost last; those that are not open any more go when they are met.
    entered: Vec<u64>,
    /// The latest time there: a clock that goes back would draw scopes across one another.
    last_ns: Option<i64>,
}

impl ThreadScopes {
    fn time(&mut self, time_ns: i64) -> i64 {
        let time_ns = self.last_ns.map_or(time_ns, |last| last.max(time_ns));
        self.last_ns = Some(time_ns);
        time_ns
    }
}

fn microseconds(ns: i128) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:03}", ns / 1000, ns % 1000)
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
            threads: FxHashMap::default(),
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
        microseconds(i128::from(time_ns) - i128::from(self.start_ns))
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

    /// Names a thread.
    ///
    /// # Errors
    /// Those of what it writes to.
    pub fn thread(&mut self, pid: u64, tid: u64, name: &str) -> io::Result<()> {
        let name = json_string(name);
        self.line(&format!(
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{name}}}}}"
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
        match row.action {
            ScopeAction::Mark => {
                let (time, name, tid) = (self.time(row.time_ns), json_string(name), row.thread);
                self.line(&format!(
                    "{{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"mark\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{time}}}"
                ))
            }
            ScopeAction::Enter | ScopeAction::Begin => {
                // A number that comes again is another scope.
                self.leave(pid, row.scope, row.time_ns)?;
                let thread = self.threads.entry((pid, row.thread)).or_default();
                // A range is not among the scopes that a thread is in.
                if row.action == ScopeAction::Enter {
                    thread.entered.push(row.scope);
                }
                let (thread, time_ns, name) = (row.thread, thread.time(row.time_ns), json_string(name));
                self.open.insert((pid, row.scope), OpenScope { thread, time_ns, name });
                self.last_ns = self.last_ns.max(time_ns);
                Ok(())
            }
            ScopeAction::Exit | ScopeAction::End => {
                if !self.leave(pid, row.scope, row.time_ns)? {
                    self.unmatched += 1;
                }
                Ok(())
            }
        }
    }

    /// Writes a scope that ends, by whichever thread; false if it is not open.
    fn leave(&mut self, pid: u64, scope: u64, time_ns: i64) -> io::Result<bool> {
        let Some(left) = self.open.remove(&(pid, scope)) else { return Ok(false) };
        let thread = self.threads.entry((pid, left.thread)).or_default();
        let end_ns = thread.time(time_ns);
        while thread.entered.last().is_some_and(|at| *at != scope && !self.open.contains_key(&(pid, *at))) {
            thread.entered.pop();
        }
        let is_innermost = thread.entered.pop_if(|at| *at == scope).is_some();
        let (from, to) = (self.time(left.time_ns), self.time(end_ns));
        let OpenScope { thread: tid, time_ns, name } = left;
        let head = format!("\"cat\":\"scope\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":");
        if is_innermost {
            let lasted = microseconds(i128::from(end_ns) - i128::from(time_ns));
            self.line(&format!("{{\"ph\":\"X\",{head}{from},\"dur\":{lasted}}}"))?;
        } else {
            let id = format!("\"id2\":{{\"local\":\"{scope:#x}\"}}");
            self.line(&format!("{{\"ph\":\"b\",{head}{from},{id}}}"))?;
            self.line(&format!("{{\"ph\":\"e\",{head}{to},{id}}}"))?;
        }
        Ok(true)
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
        let mut threads: Vec<_> = std::mem::take(&mut self.threads).into_iter().collect();
        threads.sort_unstable_by_key(|(at, _)| *at);
        for (at, thread) in threads {
            let entered = thread.entered.clone();
            self.threads.insert(at, thread);
            for scope in entered.into_iter().rev() {
                self.leave(at.0, scope, last_ns)?;
            }
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
