//! Functions by the resident memory that they gained, from the calls that a tracer recorded.
//!
//! A change between two events of a process happened in the function that the thread of the later event was in before
//! that event: in the one that returns, or in the one that calls. Its callers have the change too, in their cumulative
//! figure, each once however often it calls itself.
//!
//! A row without a function says that events of the thread were left out, so its callers are not known from there on. Then
//! a change belongs to the function of the event alone.
//!
//! A tracer may record changes of memory only ([`Recorded::Changes`]): each event then stands alone, or with the one
//! right before it, which has no change. A change at an event that enters a function belongs to the caller, which has
//! no name then: it is listed as "caller of" that function, with its file and line if the function is native. Or it
//! records the stack of whatever touches new memory ([`Recorded::Faults`]), which needs no calls at all.

mod answer;
mod list;
mod timeline;
mod tree;

use floodmark_event::tables::Frame;
use floodmark_event::{CallAction, CallRow, ProcessId, StackId, StackSampleRow, StringId, Tables};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::flame::{Direction, Flame, FlameOf};
use crate::origins::Totals;
use crate::paths::Step;

pub use answer::{
    CallNode, CallPeriod, CallSite, Calls, FunctionGain, LargestStep, RssPoint, TracedFunction, TracedLine,
};
use list::{Named, cut};
use timeline::Timeline;

/// More paths than these are not told apart; what is below them counts for the deepest one that is known.
const MAX_PATHS: usize = 1 << 20;
const ROOT: u32 = u32::MAX;
/// The site of a function whose caller is not known.
const NO_SITE: u32 = u32::MAX;
/// Set in the number of a function for the function that called it, where only changes are recorded: a tracer does not
/// name that one then.
const CALLER: u32 = 1 << 31;
/// The same for the caller of a native function, whose file is known.
const NATIVE_CALLER: u32 = 1 << 30;
/// The file that runs programs for `python -m floodmark.trace`.
const TRACER: &str = "floodmark/trace/__main__.py";

/// What the functions are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOrder {
    /// What they gained themselves.
    #[default]
    Own,
    /// What they and the functions they called gained.
    Cumulative,
    /// How often they were called.
    Calls,
}

impl CallOrder {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Own, Self::Cumulative, Self::Calls];

    /// The word for it on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Cumulative => "cumulative",
            Self::Calls => "calls",
        }
    }
}

/// Which events a tracer recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recorded {
    /// Every call and return.
    #[default]
    Every,
    /// Events at which resident memory changed, maybe with the one before each.
    Changes,
    /// No calls, but stacks of code that touched new memory.
    Faults,
}

impl Recorded {
    /// Reads the mark with which a tracer begins; none if it is another mark.
    pub fn from_mark(name: &str) -> Option<Self> {
        let (mode, _) = name.strip_prefix("call trace begins: mode=")?.split_once(' ')?;
        Some(match mode {
            "changes" | "pairs" => Self::Changes,
            "faults" => Self::Faults,
            _ => Self::Every,
        })
    }
}

/// What to find out about calls.
#[derive(Clone, Copy, Debug)]
pub struct CallsOptions {
    /// Order of the functions.
    pub order: CallOrder,
    /// Functions, lines and call sites to list.
    pub limit: Option<usize>,
    /// Levels of the call tree; no tree if 0.
    pub tree_depth: usize,
    /// Calls of the tree to list.
    pub tree_rows: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Change {
    gained: u64,
    released: u64,
}

impl Change {
    fn add(&mut self, delta: i64) {
        if delta > 0 {
            self.gained += delta.unsigned_abs();
        } else {
            self.released += delta.unsigned_abs();
        }
    }

    fn join(&mut self, other: Self) {
        self.gained += other.gained;
        self.released += other.released;
    }

    fn net(self) -> i64 {
        self.gained.cast_signed().wrapping_sub(self.released.cast_signed())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    is_native: bool,
    calls: u64,
    own: Change,
    cumulative: i64,
    /// The change that was counted last.
    stamp: u64,
}

/// A function that has not returned.
#[derive(Clone, Copy, Debug)]
struct Active {
    code: u32,
    /// Line that was last seen in it.
    line: u32,
    /// Its path.
    path: u32,
    /// Where it was called.
    site: u32,
}

/// A function as called by all functions around it.
#[derive(Clone, Copy, Debug)]
struct Path {
    parent: u32,
    code: u32,
    calls: u64,
    own: Change,
    /// Number of increases.
    steps: u64,
}

/// What happened in a function that was called on a line of another one, and below.
#[derive(Clone, Copy, Debug, Default)]
struct SiteFigures {
    calls: u64,
    change: Change,
    /// The change that was counted last.
    stamp: u64,
}

/// Resident bytes of a process, and when it was first and last seen.
#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    first: u64,
    last: u64,
    first_ns: i64,
    last_ns: i64,
}

/// Follows calls in the order of time.
#[derive(Debug, Default)]
pub struct CallsFold {
    recorded: Recorded,
    /// Functions by name and file: entries of stacks differ by their line, too.
    functions_of: FxHashMap<(StringId, StringId), u32>,
    threads: FxHashMap<(ProcessId, u64), Vec<Active>>,
    resident: FxHashMap<ProcessId, Resident>,
    /// Numbers of observed processes, where stacks were recorded.
    subjects: FxHashMap<u64, u32>,
    figures: FxHashMap<u32, Figures>,
    /// By function, line, and the native function that the line called.
    lines: FxHashMap<(u32, u32, u32), Change>,
    paths: Vec<Path>,
    known_paths: FxHashMap<(u32, u32), u32>,
    sites: Vec<SiteFigures>,
    /// By the function that calls, its line if known, and the function that is called.
    known_sites: FxHashMap<(u32, u32, u32), u32>,
    timeline: Timeline,
    /// Threads whose last event had no change and so belongs to the next one, where only changes are recorded.
    pairs: FxHashMap<(ProcessId, u64), bool>,
    total: Change,
    largest: Option<(u32, u64, i64)>,
    stamp: u64,
    result: Calls,
}

/// Whether an action enters or leaves a function.
const fn is_leave(action: CallAction) -> bool {
    use CallAction::{CException, CReturn, Exception, Return, Yield};
    matches!(action, Return | Yield | Exception | CReturn | CException)
}

const fn is_native(action: CallAction) -> bool {
    matches!(action, CallAction::CCall | CallAction::CReturn | CallAction::CException)
}

impl CallsFold {
    /// Follows what a tracer recorded.
    pub fn new(recorded: Recorded) -> Self {
        Self { recorded, ..Self::default() }
    }

    /// Takes the resident bytes of a subject while nothing that is traced runs: when a trace begins and ends.
    pub fn resident_at(&mut self, subject: u64, rss_bytes: u64, time_ns: i64) {
        let process = self.process_of(subject);
        let delta = self.resident(process, rss_bytes, time_ns);
        self.add_to_total(time_ns, delta, None);
    }

    /// Returns a number for a process that is observed, whichever process recorded it.
    fn process_of(&mut self, subject: u64) -> ProcessId {
        let next = self.subjects.len() as u32;
        ProcessId(*self.subjects.entry(subject).or_insert(next))
    }

    /// Takes the stack of code that touched new memory, at which the process had `rss_bytes`.
    pub fn fault(&mut self, row: &StackSampleRow, rss_bytes: u64, tables: &Tables) {
        let process = self.process_of(row.subject);
        let delta = self.resident(process, rss_bytes, row.time_ns);
        self.result.events += 1;
        self.result.origin_time_ns.get_or_insert(row.time_ns);
        self.result.last_time_ns = Some(row.time_ns);
        self.threads.entry((process, row.thread)).or_default();
        let (mut frames, mut at) = (Vec::new(), row.stack);
        while let Some((caller, frame)) = tables.stack(at) {
            frames.push(frame);
            // Callers come first; an entry that breaks that would make the walk endless.
            at = if caller.0 < at.0 { caller } else { StackId(0) };
        }
        // What is around the program is the tracer that runs it.
        let is_tracer = |frame: &u32| tables.string(tables.frame(*frame).file).ends_with(TRACER);
        if let Some(at) = frames.iter().position(is_tracer) {
            frames.truncate(at);
        }
        let mut stack = Vec::with_capacity(frames.len());
        for frame in frames.into_iter().rev() {
            let Frame { function, file, line, .. } = tables.frame(frame);
            let code = *self.functions_of.entry((function, file)).or_insert(frame);
            self.figures.entry(code).or_default();
            let called_at = stack.last().map_or(0, |caller: &Active| caller.line);
            self.enter(&mut stack, code, line, called_at);
        }
        self.change(&stack, row.time_ns, delta);
    }

    /// Takes the next rows.
    pub fn push(&mut self, rows: &[CallRow]) {
        for row in rows {
            self.row(row);
        }
    }

    fn row(&mut self, row: &CallRow) {
        let mut stack = std::mem::take(self.threads.entry((row.process, row.thread)).or_default());
        let is_known = self.resident.contains_key(&row.process);
        let delta = row.rss_bytes.map_or(0, |rss| self.resident(row.process, rss, row.time_ns));
        let is_pair = delta == 0 && is_known;
        if self.recorded == Recorded::Changes
            && !self.pairs.insert((row.process, row.thread), is_pair).unwrap_or(false)
        {
            stack.clear();
        }
        if row.code == 0 {
            self.result.gaps += 1;
            self.result.unbalanced += stack.len() as u64;
            stack.clear();
            self.add_to_total(row.time_ns, delta, None);
        } else {
            self.count(row);
            if is_leave(row.action) {
                self.find(&mut stack, row);
                self.change(&stack, row.time_ns, delta);
                stack.pop();
            } else {
                // The caller of a native function is on the line of the call; that of another one is not known.
                let called_at = if is_native(row.action) { row.line } else { 0 };
                if stack.is_empty() && self.recorded == Recorded::Changes && row.code < NATIVE_CALLER {
                    if delta != 0 {
                        // The function is about to begin: the change is its caller's.
                        let native = if is_native(row.action) { NATIVE_CALLER } else { 0 };
                        let mut caller = Vec::new();
                        self.enter(&mut caller, row.code | CALLER | native, called_at, 0);
                        self.change(&caller, row.time_ns, delta);
                    }
                    self.enter(&mut stack, row.code, row.line, called_at);
                } else if stack.is_empty() {
                    self.enter(&mut stack, row.code, row.line, called_at);
                    self.change(&stack, row.time_ns, delta);
                } else {
                    if let (true, Some(caller)) = (called_at != 0, stack.last_mut()) {
                        caller.line = called_at;
                    }
                    self.change(&stack, row.time_ns, delta);
                    self.enter(&mut stack, row.code, row.line, called_at);
                }
                if matches!(row.action, CallAction::Call | CallAction::CCall) {
                    self.count_call(&stack);
                }
            }
        }
        self.threads.insert((row.process, row.thread), stack);
    }

    /// Counts an event of a function.
    fn count(&mut self, row: &CallRow) {
        self.result.events += 1;
        self.result.origin_time_ns.get_or_insert(row.time_ns);
        self.result.last_time_ns = Some(row.time_ns);
        let figures = self.figures.entry(row.code).or_default();
        figures.is_native = is_native(row.action);
        match row.action {
            CallAction::Call => {
                figures.calls += 1;
                self.result.calls += 1;
            }
            CallAction::CCall => {
                figures.calls += 1;
                self.result.native_calls += 1;
            }
            CallAction::Exception | CallAction::CException => self.result.exceptions += 1,
            _ => {}
        }
    }

    /// Counts a call of the innermost function where it was called.
    fn count_call(&mut self, stack: &[Active]) {
        let Some(inner) = stack.last() else { return };
        if let Some(path) = self.paths.get_mut(inner.path as usize) {
            path.calls += 1;
        }
        if let Some(site) = self.sites.get_mut(inner.site as usize) {
            site.calls += 1;
        }
    }

    /// Notes the resident bytes; returns by how much they changed since the last event of the process.
    fn resident(&mut self, process: ProcessId, rss: u64, time_ns: i64) -> i64 {
        if rss > self.result.peak_rss_bytes {
            self.result.peak_rss_bytes = rss;
            self.result.peak_time_ns = Some(time_ns);
        }
        let mut before = None;
        let resident = self
            .resident
            .entry(process)
            .and_modify(|resident| before = Some(resident.last))
            .or_insert(Resident { first: rss, last: rss, first_ns: time_ns, last_ns: time_ns });
        let delta = rss.wrapping_sub(resident.last).cast_signed();
        (resident.last, resident.last_ns) = (rss, resident.last_ns.max(time_ns));
        if before != Some(rss) {
            self.timeline.resident(process, time_ns, before, rss);
        }
        delta
    }

    fn add_to_total(&mut self, time_ns: i64, delta: i64, code: Option<u32>) {
        self.total.add(delta);
        if delta != 0 {
            self.timeline.change(time_ns, delta, code);
        }
    }

    /// Makes the function that is left the innermost one.
    fn find(&mut self, stack: &mut Vec<Active>, row: &CallRow) {
        match stack.iter().rposition(|active| active.code == row.code) {
            Some(at) => {
                self.result.unbalanced += (stack.len() - 1 - at) as u64;
                stack.truncate(at + 1);
                let line_of = if is_native(row.action) { at.checked_sub(1) } else { Some(at) };
                if let (Some(at), true) = (line_of, row.line != 0) {
                    stack[at].line = row.line;
                }
            }
            None => {
                self.result.unbalanced += 1;
                self.enter(stack, row.code, row.line, 0);
            }
        }
    }

    /// Makes a function the innermost one; `called_at` is the line of its caller that called it, 0 if not known.
    fn enter(&mut self, stack: &mut Vec<Active>, code: u32, line: u32, called_at: u32) {
        let parent = stack.last().map_or(ROOT, |active| active.path);
        let site = stack.last().map_or(NO_SITE, |caller| self.site(caller.code, called_at, code));
        let paths = &mut self.paths;
        let path = if paths.len() < MAX_PATHS {
            *self.known_paths.entry((parent, code)).or_insert_with(|| {
                paths.push(Path { parent, code, calls: 0, own: Change::default(), steps: 0 });
                paths.len() as u32 - 1
            })
        } else {
            self.known_paths.get(&(parent, code)).copied().unwrap_or(parent)
        };
        stack.push(Active { code, line, path, site });
    }

    fn site(&mut self, caller: u32, line: u32, code: u32) -> u32 {
        let sites = &mut self.sites;
        if sites.len() >= MAX_PATHS {
            return self.known_sites.get(&(caller, line, code)).copied().unwrap_or(NO_SITE);
        }
        *self.known_sites.entry((caller, line, code)).or_insert_with(|| {
            sites.push(SiteFigures::default());
            sites.len() as u32 - 1
        })
    }

    /// Books a change on the innermost function and its callers.
    fn change(&mut self, stack: &[Active], time_ns: i64, delta: i64) {
        self.add_to_total(time_ns, delta, stack.last().map(|inner| inner.code));
        let Some(inner) = stack.last().filter(|_| delta != 0) else { return };
        self.stamp += 1;
        for active in stack {
            let figures = self.figures.entry(active.code).or_default();
            if figures.stamp != self.stamp {
                figures.stamp = self.stamp;
                figures.cumulative += delta;
            }
            if let Some(site) =
                self.sites.get_mut(active.site as usize).filter(|site| site.stamp != self.stamp)
            {
                site.stamp = self.stamp;
                site.change.add(delta);
            }
        }
        let figures = self.figures.entry(inner.code).or_default();
        figures.own.add(delta);
        let line = match stack.len().checked_sub(2).map(|at| stack[at]) {
            Some(caller) if figures.is_native => (caller.code, caller.line, inner.code),
            _ => (inner.code, inner.line, 0),
        };
        self.lines.entry(line).or_default().add(delta);
        if let Some(path) = self.paths.get_mut(inner.path as usize) {
            path.own.add(delta);
            path.steps += u64::from(delta > 0);
        }
        if delta > 0 {
            let bytes = delta.unsigned_abs();
            if self.largest.is_none_or(|(_, most, _)| bytes > most) {
                self.largest = Some((inner.code, bytes, time_ns));
            }
        }
    }

    /// Returns what the functions gained.
    pub fn finish(mut self, tables: &Tables, options: &CallsOptions) -> Calls {
        let Change { gained, released } = self.total;
        let mut calls = std::mem::take(&mut self.result);
        calls.unbalanced += self.threads.values().map(|stack| stack.len() as u64).sum::<u64>();
        if self.recorded != Recorded::Every {
            calls.unbalanced = 0;
        }
        calls.recorded = self.recorded;
        calls.processes =
            self.threads.keys().map(|(process, _)| *process).collect::<std::collections::BTreeSet<_>>().len()
                as u64;
        calls.threads = self.threads.len() as u64;
        calls.first_rss_bytes = self.resident.values().map(|resident| resident.first).sum();
        calls.last_rss_bytes = self.resident.values().map(|resident| resident.last).sum();
        (calls.gained_bytes, calls.released_bytes) = (gained, released);
        calls.largest_step = self.largest.map(|(code, bytes, time_ns)| LargestStep {
            function: Named::of(code, tables).function,
            bytes,
            time_ns,
        });
        calls.order = options.order;
        calls.functions = self.functions(tables, options.order);
        calls.lines = self.lines(tables);
        calls.call_sites = self.call_sites(tables);
        calls.functions_omitted = cut(&mut calls.functions, options.limit);
        calls.lines_omitted = cut(&mut calls.lines, options.limit);
        calls.call_sites_omitted = cut(&mut calls.call_sites, options.limit);
        (calls.rss_points, calls.periods) =
            std::mem::take(&mut self.timeline).finish(&self.resident, calls.last_time_ns, tables);
        if options.tree_depth > 0 {
            calls.tree = self.tree(tables, options);
        }
        calls
    }

    /// Returns the increases as a flame graph.
    pub fn flame(&self, tables: &Tables, direction: Direction) -> Flame {
        let grown = self.paths.iter().filter(|path| path.steps > 0);
        let paths = grown.map(|path| {
            let (mut steps, mut at) = (Vec::new(), Some(path));
            while let Some(path) = at {
                steps.push(Step::Call(self.named(path.code, tables).text()));
                at = self.paths.get(path.parent as usize);
            }
            if direction == Direction::FromCaller {
                steps.reverse();
            }
            (steps, Totals { bytes: path.own.gained, blocks: path.steps })
        });
        Flame { has_stacks: true, ..Flame::of_paths(paths, FlameOf::Gained) }
    }
}
