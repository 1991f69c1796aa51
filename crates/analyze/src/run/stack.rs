//! What a process was doing when memory was highest, as far as stacks were taken.
//!
//! Of the processes with stacks the one that grew most up to the peak counts, of its stacks those nearest
//! to the peak, and of the threads at that time the one that had most page faults: it made the process grow,
//! whether it waits or not. If page faults are not known, it is one that did not wait for something.
//!
//! A thread that made the process grow may rest between two allocations when its stack is taken, or it may have
//! ended: then none of several threads had page faults. Either way the last stack in which such a thread worked
//! counts, if it is one of the latest. A stack without any code of the user is replaced by that of its caller (see
//! `caller`).

use std::borrow::Cow;

use floodmark_event::{StackId, StackReason, StackSampleRow, SubjectKind, Tables};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::RunFold;
use super::caller::Callers;
use super::process::{first_rss, highest_rss};
use crate::samples::Observed;
use crate::site::SiteRules;

/// Frames that are kept of a stack.
const FRAMES: usize = 12;

/// Instants at which stacks were taken to look back on for a thread that worked and made its process grow.
const LOOK_BACK: u32 = 4;

/// Functions in which a thread waits, underscores at the beginning aside.
const WAITS: [&str; 31] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_wait",
    "futex_wait",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect",
    "pselect64",
    "pthread_join",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sched_yield",
    "select",
    "select64",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "usleep",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
];

/// Families of functions in which a thread waits, underscores at the beginning aside. The last ones are
/// idle threads of OpenMP and `OpenBLAS`, which spin for a while before they sleep.
const WAIT_PREFIXES: [&str; 14] = [
    "clock_nanosleep_",
    "futex_",
    "lll_lock_wait",
    "new_sem_wait",
    "pthread_clockjoin",
    "pthread_cond_",
    "pthread_timedjoin",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "blas_thread_server",
    "gomp_barrier_wait",
    "gomp_team_barrier_wait",
    "kmp_wait",
];

/// Functions of the C library through which system calls go.
const SYSTEM_CALLS: [&str; 5] = [
    "internal_syscall_cancel",
    "syscall",
    "syscall_cancel",
    "syscall_cancel_arch",
    "syscall_cancel_arch_end",
];

/// Functions that begin a program or a thread, and say nothing of what it does; underscores aside.
const BEGINNINGS: [&str; 5] = ["clone", "clone3", "libc_start", "start", "start_thread"];

/// What a process was doing at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakStack {
    /// The process.
    pub pid: u64,
    /// Its name.
    pub name: String,
    /// The thread.
    pub thread: u64,
    /// When the stack was taken.
    pub time_ns: i64,
    /// How long after the peak that was; negative for before it.
    pub after_peak_ns: i64,
    /// Why it was taken.
    pub reason: Cow<'static, str>,
    /// By how much the process had grown at the peak since it was first read.
    pub growth_bytes: u64,
    /// What it was doing, from the innermost frame that is the program's own.
    pub frames: Vec<String>,
    /// How many more frames there are outside of those.
    pub frames_omitted: u64,
}

/// Finds the stack at the peak.
#[derive(Clone, Debug)]
pub struct PeakStackFold {
    peak_ns: i64,
    /// Process of each subject.
    of_subject: FxHashMap<u64, Grown>,
    best: Option<Best>,
    /// Latest work of each subject.
    worked: FxHashMap<u64, Worked>,
    callers: Callers,
}

/// The stack that fits best so far.
#[derive(Clone, Copy, Debug)]
struct Best {
    rank: Rank,
    row: StackSampleRow,
    /// Number of threads whose stacks were taken with it.
    threads: u32,
    /// Stack of the thread that had worked and made the process grow then.
    worked: Option<StackSampleRow>,
    /// Stack with the user's code, if the one to show has none.
    caller: Option<StackSampleRow>,
}

/// The latest stack in which a thread worked and made its process grow.
#[derive(Clone, Copy, Debug)]
struct Worked {
    row: StackSampleRow,
    /// When stacks of the process were last taken, and how many times since.
    taken_ns: i64,
    since: u32,
}

/// A process that had memory at the peak.
#[derive(Clone, Debug)]
struct Grown {
    pid: u64,
    name: String,
    growth_bytes: u64,
}

/// How well a stack fits; less is better.
type Rank = (std::cmp::Reverse<u64>, u64, u64, bool, bool, bool, u64);

impl RunFold {
    /// Begins to look for the stack at the peak that the samples so far have; none if they have none.
    pub fn peak_stack(&self) -> Option<PeakStackFold> {
        let mut whole = self.clone();
        whole.complete();
        let peak_ns = whole.peaks.peak.time_ns?;
        let holders: FxHashMap<usize, u64> = whole.peaks.peak.holders.iter().copied().collect();
        let grown = |(subject, at): (u64, usize)| {
            let one = &whole.samples.observed()[at];
            let rss = holders.get(&at).copied().unwrap_or(0);
            let grown = Grown {
                pid: one.number,
                name: one.name.clone(),
                growth_bytes: rss.saturating_sub(first_rss(one)),
            };
            (one.kind == SubjectKind::Process).then_some((subject, grown))
        };
        let of_subject = whole.samples.subjects().filter_map(grown).collect();
        let (worked, callers) = (FxHashMap::default(), Callers::default());
        Some(PeakStackFold { peak_ns, of_subject, best: None, worked, callers })
    }
}

impl PeakStackFold {
    /// Looks for the stack of one of some processes, given by their subjects, at an instant.
    pub(crate) fn of_processes<'a>(
        peak_ns: i64,
        processes: impl Iterator<Item = (u64, &'a Observed)>,
    ) -> Self {
        let grown = |one: &Observed| Grown {
            pid: one.number,
            name: one.name.clone(),
            growth_bytes: highest_rss(one).saturating_sub(first_rss(one)),
        };
        let of_subject = processes.map(|(subject, one)| (subject, grown(one))).collect();
        let (worked, callers) = (FxHashMap::default(), Callers::default());
        Self { peak_ns, of_subject, best: None, worked, callers }
    }

    /// Takes in more stacks.
    pub fn update(&mut self, rows: &[StackSampleRow], tables: &Tables) {
        for row in rows.iter().filter(|row| row.stack != StackId(0)) {
            let Some(process) = self.of_subject.get(&row.subject) else { continue };
            let (is_faulting, is_waiting) = (row.reason == StackReason::Fault, waits(row.stack, tables));
            let rank = (
                std::cmp::Reverse(process.growth_bytes),
                process.pid,
                row.time_ns.abs_diff(self.peak_ns),
                !is_faulting,
                is_waiting,
                row.thread != process.pid,
                row.thread,
            );
            let worked = self.work_until(row, is_faulting && !is_waiting);
            self.callers.add(row, tables);
            let is_with = |best: &Best| (best.row.subject, best.row.time_ns) == (row.subject, row.time_ns);
            let together = self.best.filter(is_with).map(|best| best.threads);
            let threads = together.map_or(1, |threads| threads + 1);
            let is_best = self.best.is_none_or(|best| rank < best.rank);
            if is_best {
                self.best = Some(Best { rank, row: *row, threads, worked, caller: None });
            }
            if let Some(best) = &mut self.best
                && (is_best || together.is_some())
            {
                best.threads = threads;
                best.caller = self.callers.caller(&best.shown(), tables);
            }
        }
    }

    /// Returns the latest stack in which a thread of the process worked and made it grow, up to `row`.
    fn work_until(&mut self, row: &StackSampleRow, is_work: bool) -> Option<StackSampleRow> {
        if is_work {
            self.worked.insert(row.subject, Worked { row: *row, taken_ns: row.time_ns, since: 0 });
        }
        let worked = self.worked.get_mut(&row.subject)?;
        if std::mem::replace(&mut worked.taken_ns, row.time_ns) != row.time_ns {
            worked.since += 1;
        }
        (worked.since < LOOK_BACK).then_some(worked.row)
    }

    /// The stack, if there was one.
    pub fn finish(&self, tables: &Tables) -> Option<PeakStack> {
        let best = self.best?;
        let row = best.caller.unwrap_or_else(|| best.shown());
        let process = self.of_subject.get(&row.subject)?;
        let site = SiteRules::default().frame_of(row.stack, tables);
        let mut frames: Vec<_> =
            tables.frames_of(row.stack).skip_while(|frame| Some(*frame) != site).collect();
        let is_beginning = |function: &str| {
            let name = bare(function);
            BEGINNINGS.contains(&name) || name.starts_with("libc_start")
        };
        while frames.len() > 1
            && frames.last().is_some_and(|frame| is_beginning(tables.string(frame.function)))
        {
            frames.pop();
        }
        let frames_omitted = frames.len().saturating_sub(FRAMES) as u64;
        frames.truncate(FRAMES);
        Some(PeakStack {
            pid: process.pid,
            name: process.name.clone(),
            thread: row.thread,
            time_ns: row.time_ns,
            after_peak_ns: row.time_ns.saturating_sub(self.peak_ns),
            reason: row.reason.name().into(),
            growth_bytes: process.growth_bytes,
            frames: frames.iter().map(|frame| tables.frame_text(frame)).collect(),
            frames_omitted,
        })
    }
}

impl Best {
    /// Returns the stack to show: where the thread that made the process grow rests or has ended, the one in which
    /// it worked.
    fn shown(&self) -> StackSampleRow {
        let is_shown = |worked: &StackSampleRow| match self.row.reason {
            StackReason::Fault => worked.thread == self.row.thread,
            // None of these threads made the process grow, or it would be marked. One thread is never marked.
            StackReason::Peak | StackReason::Growth | StackReason::Limit => self.threads > 1,
            _ => false,
        };
        self.worked.filter(is_shown).unwrap_or(self.row)
    }
}

/// Returns whether the thread of a stack waits for something rather than works.
pub fn waits(stack: StackId, tables: &Tables) -> bool {
    let names = tables.frames_of(stack).map(|frame| bare(tables.string(frame.function)));
    let mut names = names.skip_while(|name| SYSTEM_CALLS.contains(name));
    names.next().is_some_and(|name| {
        WAITS.contains(&name) || WAIT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    })
}

/// The name of a function without its namespaces, and without what the authors of the C library put
/// before it.
fn bare(function: &str) -> &str {
    let name = function.rsplit("::").next().unwrap_or(function).trim_start_matches('_');
    name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use floodmark_event::tables::Frame;
    use floodmark_event::{Metric, SampleRow, SubjectRow};

    use super::*;

    fn subjects() -> BTreeMap<u64, SubjectRow> {
        let process = |subject: u64, name: &str| SubjectRow {
            start_ns: Some(subject as i64),
            ..SubjectRow::new(subject, SubjectKind::Process, subject * 10, name)
        };
        [(1, process(1, "large")), (2, process(2, "grows"))].into()
    }

    fn stack(tables: &mut Tables, functions: &[&str]) -> StackId {
        functions.iter().rev().fold(StackId(0), |parent, function| {
            let frame = Frame { function: tables.intern(function), ..Frame::default() };
            let frame = tables.intern_frame(frame);
            tables.intern_stack(parent, frame)
        })
    }

    fn row(time_ns: i64, subject: u64, thread: u64, stack: StackId) -> StackSampleRow {
        StackSampleRow { time_ns, subject, thread, stack, reason: StackReason::Peak, pause_ns: 0 }
    }

    /// One process has much from the start, the other grows to the peak at 50.
    fn fold() -> RunFold {
        let sample = |time_ns, subject, value| SampleRow { time_ns, subject, metric: Metric::Rss, value };
        let mut fold = RunFold::new(&subjects(), Vec::new());
        fold.update(&[
            sample(10, 1, 1000),
            sample(10, 2, 10),
            sample(50, 2, 500),
            sample(90, 1, 400),
            sample(90, 2, 20),
        ]);
        fold
    }

    /// A stack that a page fault of the process that grows took.
    fn faults(time_ns: i64, thread: u64, stack: StackId) -> StackSampleRow {
        StackSampleRow { reason: StackReason::Fault, ..row(time_ns, 2, thread, stack) }
    }

    /// The stack at the peak.
    fn found(rows: &[StackSampleRow], tables: &Tables) -> PeakStack {
        let mut stacks = fold().peak_stack().expect("there is a peak");
        stacks.update(rows, tables);
        stacks.finish(tables).expect("stacks were taken")
    }

    #[test]
    fn the_nearest_working_thread_of_the_process_that_grew_most_counts() {
        let mut tables = Tables::default();
        let work = stack(&mut tables, &["memset", "grow", "main", "__libc_start_main_impl", "_start"]);
        let rests = stack(&mut tables, &["__futex_abstimed_wait_common", "pool", "start_thread"]);
        let other = stack(&mut tables, &["other", "main"]);
        let mut stacks = fold().peak_stack().expect("there is a peak");
        assert_eq!(stacks.finish(&tables), None);
        stacks.update(&[row(50, 1, 10, other), row(20, 2, 20, other), row(45, 2, 20, rests)], &tables);
        stacks.update(&[row(45, 2, 21, work), row(70, 2, 20, other), row(50, 9, 1, other)], &tables);
        let found = stacks.finish(&tables).expect("stacks were taken");
        assert_eq!((found.pid, found.name.as_str(), found.thread), (20, "grows", 21));
        assert_eq!((found.time_ns, found.after_peak_ns, found.growth_bytes), (45, -5, 490));
        assert_eq!((found.reason.as_ref(), found.frames_omitted), ("peak", 0));
        assert_eq!(found.frames, ["memset", "grow", "main"]);
    }

    #[test]
    fn a_thread_that_rests_between_allocations_is_shown_where_it_worked() {
        let mut tables = Tables::default();
        let work = stack(&mut tables, &["memset", "grow", "main"]);
        let rests = stack(&mut tables, &["clock_nanosleep", "main"]);
        let other = stack(&mut tables, &["spin", "main"]);
        let found = |rows: &[StackSampleRow]| {
            let found = found(rows, &tables);
            (found.time_ns, found.thread, found.frames[0].clone())
        };
        let resting = [46, 47, 48, 49].map(|time_ns| faults(time_ns, 21, rests));
        let since =
            |rests: &[StackSampleRow]| [&[faults(40, 21, work)], rests, &[row(49, 2, 22, other)]].concat();
        assert_eq!(found(&since(&resting[1..])), (40, 21, "memset".into()));
        assert_eq!(found(&since(&resting)), (49, 21, "clock_nanosleep".into()), "it was too long ago");
        let of_another = [faults(40, 22, work), faults(49, 21, rests)];
        assert_eq!(found(&of_another), (49, 21, "clock_nanosleep".into()), "another thread worked");
    }

    #[test]
    fn threads_of_a_library_are_shown_as_the_code_that_called_it() {
        let mut tables = Tables::default();
        let mut stack = |frames: &[(&str, &str, &str)]| {
            frames.iter().rev().fold(StackId(0), |parent, (function, file, module)| {
                let (function, file) = (tables.intern(function), tables.intern(file));
                let frame = Frame { function, file, module: tables.intern(module), ..Frame::default() };
                let frame = tables.intern_frame(frame);
                tables.intern_stack(parent, frame)
            })
        };
        let blas = |function| (function, "", "/env/lib/python3.11/site-packages/numpy.libs/libopenblas.so");
        let helper = stack(&[blas("dgemm_beta"), blas("blas_thread_server")]);
        let caller = stack(&[blas("exec_blas"), ("load", "work.py", ""), ("<module>", "work.py", "")]);
        let without_python = stack(&[blas("dgemm_kernel")]);
        let other = stack(&[("spin", "other.py", "")]);
        let found = |rows: &[StackSampleRow]| {
            let found = found(rows, &tables);
            (found.time_ns, found.thread, found.frames[0].clone())
        };
        let load = |time_ns| (time_ns, 20, "load (work.py)".to_owned());
        // The thread that faulted comes first.
        let together = [faults(50, 21, helper), row(50, 2, 19, other), row(50, 2, 20, caller)];
        assert_eq!(found(&together), load(50));
        let earlier = [faults(40, 20, caller), row(40, 2, 19, other), faults(50, 20, without_python)];
        assert_eq!(found(&earlier), load(40), "its frames of Python could not be read at the peak");
        let unrelated = [faults(50, 21, helper), row(50, 2, 19, other)];
        assert_eq!(found(&unrelated).1, 21, "no code of the user is in that library");
        let empty = [42, 43, 44, 45].map(|time_ns| faults(time_ns, 20, without_python));
        let long_ago = [&[faults(40, 20, caller)], &empty[..]].concat();
        assert_eq!(found(&long_ago).0, 45, "it was too long ago");
    }

    #[test]
    fn a_thread_that_has_ended_is_shown_if_no_other_made_the_process_grow() {
        let mut tables = Tables::default();
        let work = stack(&mut tables, &["memset", "grow", "main"]);
        let other = stack(&mut tables, &["spin", "main"]);
        let ended = StackSampleRow { reason: StackReason::Fault, ..row(40, 2, 21, work) };
        let thread = |rows: &[StackSampleRow]| found(rows, &tables).thread;
        assert_eq!(thread(&[ended, row(50, 2, 20, other), row(50, 2, 22, other)]), 21);
        assert_eq!(thread(&[row(40, 2, 21, work), row(50, 2, 20, other), row(50, 2, 22, other)]), 20);
        assert_eq!(thread(&[ended, row(50, 2, 20, other)]), 20, "its faults are not compared with others");
        let asked = [20, 22]
            .map(|thread| StackSampleRow { reason: StackReason::Interval, ..row(50, 2, thread, other) });
        assert_eq!(thread(&[ended, asked[0], asked[1]]), 20, "faults are not read without growth");
    }

    #[test]
    fn functions_that_only_sound_like_waiting_work() {
        let mut tables = Tables::default();
        for (functions, is_waiting) in [
            (&["__futex_abstimed_wait_common64", "worker"][..], true),
            (&["__syscall_cancel_arch", "__internal_syscall_cancel", "__poll", "main"], true),
            (&["syscall", "std::sys::pal::unix::futex::futex_wait", "main"], true),
            (&["gomp_team_barrier_wait_end", "gomp_thread_start"], true),
            (&["select_rows", "main"], false),
            (&["poll_queue", "main"], false),
            (&["syscall", "grow", "main"], false),
        ] {
            let stack = stack(&mut tables, functions);
            assert_eq!(waits(stack, &tables), is_waiting, "{functions:?}");
        }
    }

    #[test]
    fn a_deep_stack_is_cut_outside() {
        let mut tables = Tables::default();
        let names: Vec<String> = (0..40).map(|depth| format!("level{depth}")).collect();
        let deep: Vec<&str> = std::iter::once("malloc").chain(names.iter().map(String::as_str)).collect();
        let deep = stack(&mut tables, &deep);
        let found = found(&[row(50, 2, 20, deep)], &tables);
        assert_eq!((found.frames.len(), found.frames_omitted), (FRAMES, 28));
        assert_eq!(found.frames[0], "level0");
    }
}
