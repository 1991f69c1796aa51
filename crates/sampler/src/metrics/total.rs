//! The total memory of all processes, with shared memory counted once (PSS).
//!
//! In `smaps_rollup` the kernel divides shared pages among the processes that share them, and walks all page
//! tables for it: 10 to 20 ms per GiB. A thread of its own reads it, within a share of a core, for the
//! process with the largest uncertainty first. Between two readings a process counts with its last reading
//! and the change of its resident memory since. Anonymous memory is private, so that part is certain; memory
//! that may be shared is uncertain until it is read again.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::metrics::memory::TotalReading;
use crate::procfs::{self, Rollup};
use crate::sys::clock::thread_cpu_ns;
use crate::sys::signal;
use crate::tree::walk::Path;
use crate::tree::{Image, Process};

/// Largest CPU time budget, and the budget at the start: a few readings are made at once, because until then
/// shared memory counts once per process.
const BURST_NS: u64 = 50_000_000;
const START_NS: u64 = 20_000_000;
/// Time between two choices of a process to read.
const ASK_NS: u64 = 4_000_000;
/// The same if there was no process to read and nothing has changed.
const IDLE_NS: u64 = 100_000_000;
/// Expected cost of the first reading of a process.
const NS_PER_GIB: u128 = 20_000_000;
const NS_AT_LEAST: u64 = 50_000;
/// Least uncertainty of a process that is worth a reading, in bytes and as a fraction of its share of the
/// total, so that small errors do not add up.
const LEAST_UNCERTAIN_BYTES: u64 = 64 << 10;
const LEAST_UNCERTAIN_SHARE: u64 = 50;
/// Age at which a reading of shared memory becomes uncertain even if nothing seems to have changed.
const STALE_NS: u64 = 10_000_000_000;

/// A process to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pid: i32,
    born_ns: u64,
    rss: u64,
    shared: u64,
    motion: u64,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) struct Answer {
    request: Request,
    cost_ns: u64,
    result: io::Result<Rollup>,
}

/// Serves requests until the channel is closed.
pub(crate) fn serve(requests: &Receiver<Request>, answers: &SyncSender<Answer>) {
    signal::block_for_this_thread();
    while let Ok(request) = requests.recv() {
        let before = thread_cpu_ns();
        let result = read(request.pid);
        let cost_ns = thread_cpu_ns().saturating_sub(before);
        if answers.send(Answer { request, cost_ns, result }).is_err() {
            break;
        }
    }
}

fn read(pid: i32) -> io::Result<Rollup> {
    let mut buffer = [0; 2048];
    // Opened each time: a descriptor would stay with the program before an exec.
    let length = Path::of(pid, "smaps_rollup").open()?.read_at(&mut buffer, 0)?;
    procfs::rollup(&buffer[..length]).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Largest error of the kernel's counters of resident pages: each CPU counts a batch before it is added.
fn counter_error_bytes() -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    processors * (2 * processors).max(32) * 4096
}

/// Contribution of a process to the total, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bytes: u64,
    /// How much of it may be shared with others.
    pub(crate) uncertain_bytes: u64,
}

/// Outcome of a reading.
pub(crate) enum Read {
    /// A process was read.
    Done { pid: i32, rollup: Rollup },
    /// The process may not be read.
    Denied { pid: i32, why: io::Error },
}

/// Chooses the processes to read, within a budget of CPU time.
pub(crate) struct Totals {
    requests: Option<SyncSender<Request>>,
    answers: Receiver<Answer>,
    is_reading: bool,
    /// Share of a core that readings may take.
    share: f64,
    /// CPU time that may be spent now; negative after an expensive reading.
    budget_ns: i64,
    filled_ns: u64,
    asked_ns: u64,
    /// Time before which no process is chosen again unless something changes, because none was worth its
    /// cost.
    idle_until_ns: u64,
    idle_news: (u64, u64),
    spent_ns: u64,
    /// Sum of all changes of memory that may be shared, in bytes.
    motion: u64,
    /// Largest error of the kernel's counters.
    counter_error_bytes: u64,
}

/// The ends of the channels that belong to the reading thread.
pub(crate) type Server = (Receiver<Request>, SyncSender<Answer>);

impl Totals {
    /// Creates a plan of readings that take at most a share of a core.
    pub(crate) fn new(share: f64, now_ns: u64) -> (Self, Server) {
        let (requests, asked) = sync_channel(1);
        let (told, answers) = sync_channel(1);
        let totals = Self {
            requests: (share > 0.0).then_some(requests),
            answers,
            is_reading: false,
            share,
            budget_ns: START_NS as i64,
            filled_ns: now_ns,
            asked_ns: 0,
            idle_until_ns: 0,
            idle_news: (0, 0),
            spent_ns: 0,
            motion: 0,
            counter_error_bytes: counter_error_bytes(),
        };
        (totals, (asked, told))
    }

    /// Closes the channel, so that the reading thread ends.
    pub(crate) fn finish(&mut self) {
        self.requests = None;
    }

    pub(crate) fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// Notes a change of memory that may be shared.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.motion = self.motion.saturating_add(bytes);
    }

    /// Sum of all changes of memory that may be shared, in bytes.
    pub(crate) fn motion(&self) -> u64 {
        self.motion
    }

    /// Contribution of a process to the total.
    pub(crate) fn part(&self, process: &Process) -> Part {
        let memory = &process.memory;
        let Some(read) = &memory.total else {
            return match process.image {
                // Until it is read, what it had at first counts with its parent.
                Image::Inherited if !memory.total_denied => {
                    let bytes = memory.rss.saturating_sub(memory.first_rss);
                    let uncertain = memory.shared.saturating_sub(memory.first_shared);
                    Part { bytes, uncertain_bytes: uncertain.min(bytes) }
                }
                Image::Inherited => Part { bytes: memory.rss, uncertain_bytes: memory.rss },
                Image::Own => Part { bytes: memory.rss, uncertain_bytes: memory.shared.min(memory.rss) },
            };
        };
        let bytes = (read.pss + memory.rss).saturating_sub(read.rss);
        let others = self.motion.saturating_sub(read.motion);
        let uncertain = memory.shared.abs_diff(read.file_and_shmem).saturating_add(read.shared.min(others));
        Part { bytes, uncertain_bytes: uncertain.min(bytes) }
    }

    /// Bytes that a reading of a process would make certain.
    fn priority(&self, process: &Process, now_ns: u64) -> u64 {
        let memory = &process.memory;
        if memory.total_denied || !memory.was_read || process.is_newborn(now_ns) {
            return 0;
        }
        match &memory.total {
            None if process.image == Image::Inherited => memory.rss,
            None => memory.shared,
            Some(read) => {
                let age = now_ns.saturating_sub(read.at_ns);
                let stale = if age < STALE_NS { 0 } else { read.shared };
                self.part(process).uncertain_bytes.saturating_add(stale)
            }
        }
    }

    /// Takes an answer, if there is one, and stores it in its process.
    pub(crate) fn collect(&mut self, processes: &mut [Process], now_ns: u64) -> Option<Read> {
        let answer = self.answers.try_recv().ok()?;
        self.is_reading = false;
        self.spent_ns += answer.cost_ns;
        self.budget_ns -= answer.cost_ns as i64;
        let request = answer.request;
        let same = |process: &&mut Process| process.pid == request.pid && process.born_ns == request.born_ns;
        let process = processes.iter_mut().find(same)?;
        let memory = &mut process.memory;
        match answer.result {
            Ok(rollup) => {
                // Later changes are added to this reading. The kernel's counters may differ from what it
                // counts page by page. So if the counters before and after are equal they are used, otherwise
                // the counted value within their range. A larger difference than the counters' error means
                // that the process changed after the counters were read.
                let between = |counted: u64, before: u64, after: u64| {
                    let nearest = counted.clamp(before.min(after), before.max(after));
                    if nearest.abs_diff(counted) <= self.counter_error_bytes { nearest } else { counted }
                };
                let shared = rollup.rss.saturating_sub(rollup.anon);
                memory.total = Some(TotalReading {
                    at_ns: now_ns,
                    pss: rollup.pss,
                    shared: rollup.rss.saturating_sub(rollup.uss),
                    rss: between(rollup.rss, request.rss, memory.rss),
                    file_and_shmem: between(shared, request.shared, memory.shared),
                    // Changes during the reading may be included or not.
                    motion: request.motion,
                    cost_ns: answer.cost_ns,
                });
                Some(Read::Done { pid: request.pid, rollup })
            }
            Err(why) => match why.kind() {
                io::ErrorKind::PermissionDenied => {
                    memory.total_denied = true;
                    Some(Read::Denied { pid: request.pid, why })
                }
                // The process is ending or gone.
                _ => None,
            },
        }
    }

    /// Requests a reading of the process with the largest uncertainty, if it is worth it and the budget
    /// allows it. `passes` changes whenever processes were added, removed or called exec.
    pub(crate) fn ask(&mut self, processes: &[Process], total_bytes: u64, passes: u64, now_ns: u64) {
        let earned = (now_ns.saturating_sub(self.filled_ns) as f64 * self.share) as i64;
        self.budget_ns = (self.budget_ns + earned).min(BURST_NS as i64);
        self.filled_ns = now_ns;
        let may_ask =
            !self.is_reading && self.budget_ns > 0 && now_ns.saturating_sub(self.asked_ns) >= ASK_NS;
        let Some(requests) = self.requests.as_ref().filter(|_| may_ask) else { return };
        let news = (self.motion, passes);
        if now_ns < self.idle_until_ns && news == self.idle_news {
            return;
        }
        self.asked_ns = now_ns;
        (self.idle_until_ns, self.idle_news) = (now_ns + IDLE_NS, news);
        let priorities = processes.iter().map(|process| (self.priority(process, now_ns), process));
        let Some((priority, process)) = priorities.max_by_key(|(priority, _)| *priority) else { return };
        let share_bytes = total_bytes / processes.len() as u64;
        if priority < LEAST_UNCERTAIN_BYTES.max(share_bytes / LEAST_UNCERTAIN_SHARE) {
            return;
        }
        let memory = &process.memory;
        let expected = match &memory.total {
            Some(read) if read.rss > 0 => {
                (u128::from(read.cost_ns) * u128::from(memory.rss) / u128::from(read.rss)) as u64
            }
            _ => ((u128::from(memory.rss) * NS_PER_GIB) >> 30) as u64,
        };
        // A reading that costs more than the largest budget overdraws it, or it would never be made.
        if self.budget_ns < expected.clamp(NS_AT_LEAST, BURST_NS) as i64 {
            return;
        }
        let request = Request {
            pid: process.pid,
            born_ns: process.born_ns,
            rss: memory.rss,
            shared: memory.shared,
            motion: self.motion,
        };
        self.idle_until_ns = 0;
        self.is_reading = requests.try_send(request).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn process(image: Image, rss: u64, shared: u64) -> Process {
        let mut process = Process::new(1, 0, image);
        let memory = &mut process.memory;
        (memory.rss, memory.shared, memory.was_read) = (rss, shared, true);
        (memory.first_rss, memory.first_shared) = (rss, shared);
        process
    }

    #[test]
    fn memory_that_may_be_shared_is_uncertain_until_it_is_read() {
        let (mut totals, _server) = Totals::new(0.01, 0);
        let mut one = process(Image::Own, 138 * MIB, 128 * MIB);
        assert_eq!(totals.part(&one), Part { bytes: 138 * MIB, uncertain_bytes: 128 * MIB });
        one.memory.total = Some(TotalReading {
            pss: 42 * MIB,
            shared: 128 * MIB,
            rss: 138 * MIB,
            file_and_shmem: 128 * MIB,
            ..TotalReading::default()
        });
        assert_eq!(totals.part(&one), Part { bytes: 42 * MIB, uncertain_bytes: 0 });
        one.memory.rss += 8 * MIB;
        assert_eq!(totals.part(&one), Part { bytes: 50 * MIB, uncertain_bytes: 0 }, "its own");
        totals.moved(3 * MIB);
        assert_eq!(totals.part(&one), Part { bytes: 50 * MIB, uncertain_bytes: 3 * MIB }, "another's coming");
        totals.moved(300 * MIB);
        assert_eq!(totals.part(&one).uncertain_bytes, 50 * MIB, "no more than it counts for");
    }

    #[test]
    fn a_process_that_shrank_while_it_was_read_does_not_count_as_nothing() {
        let (mut totals, (asked, told)) = Totals::new(0.01, 0);
        let mut processes = [process(Image::Own, 179 * MIB, 10 * MIB)];
        let now_ns = crate::tree::NEWBORN_NS + ASK_NS;
        totals.ask(&processes, 179 * MIB, 1, now_ns);
        let request = asked.try_recv().expect("it is worth a reading");
        // Read after it gave most back, before its counters were looked at again.
        let rollup = Rollup { rss: 51 * MIB, anon: 49 * MIB, pss: 50 * MIB, uss: 49 * MIB };
        told.send(Answer { request, cost_ns: 1, result: Ok(rollup) }).expect("the receiver exists");
        assert!(totals.collect(&mut processes, now_ns + ASK_NS).is_some());
        processes[0].memory.rss = 51 * MIB;
        assert_eq!(totals.part(&processes[0]).bytes, 50 * MIB);
    }

    #[test]
    fn what_was_forked_counts_with_its_parent_until_it_is_read() {
        let (totals, _server) = Totals::new(0.01, 0);
        let mut child = process(Image::Inherited, 100 * MIB, 10 * MIB);
        assert_eq!(totals.part(&child), Part::default());
        child.memory.rss += MIB;
        assert_eq!(totals.part(&child), Part { bytes: MIB, uncertain_bytes: 0 });
        (child.memory.rss, child.memory.shared) = (104 * MIB, 12 * MIB);
        assert_eq!(
            totals.part(&child),
            Part { bytes: 4 * MIB, uncertain_bytes: 2 * MIB },
            "perhaps not its own"
        );
        assert_eq!(totals.priority(&child, 0), 0, "it may call exec yet");
        assert_eq!(totals.priority(&child, crate::tree::NEWBORN_NS), 104 * MIB);
    }

    #[test]
    fn readings_stay_within_their_share() {
        let (mut totals, (asked, told)) = Totals::new(0.01, 0);
        let processes = [process(Image::Own, 1 << 30, 1 << 30)];
        let mut now_ns = 0;
        let mut readings = 0;
        while now_ns < 100_000_000_000 {
            now_ns += 10_000_000;
            totals.ask(&processes, 1 << 30, 1, now_ns);
            if let Ok(request) = asked.try_recv() {
                readings += 1;
                let answer =
                    Answer { request, cost_ns: 20_000_000, result: Err(io::ErrorKind::NotFound.into()) };
                told.send(answer).unwrap();
                assert!(totals.collect(&mut [], now_ns).is_none());
            }
        }
        // 1 % of 100 seconds, 20 ms each, and the start.
        assert!((48..=52).contains(&readings), "{readings}");
    }
}
