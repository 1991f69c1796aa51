//! The total memory of all processes, with shared memory counted once (PSS).
//!
//! In `smaps_rollup` the kernel divides shared pages among the processes that share them, and walks all page
//! tables for it: 10 to 20 ms per GiB. A thread of its own reads it, within a share of a core, for the
//! process with the largest uncertainty first. Between two readings a process counts with its last reading
//! and the change of its resident memory since, within [`bounds`].
//!
//! Readings one by one, within the share, never catch up with many processes that share memory. So when the
//! tree rests and its total is uncertain, all processes are read in one **round**: within the share if that
//! is enough, and near the highest sum from a reserve of CPU time that is refilled slowly.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::metrics::bounds::{self, Motion, Part, PartSum};
use crate::metrics::memory::TotalReading;
use crate::procfs::{self, MappedPages, Rollup};
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
/// CPU time for rounds, at the start and at most. A round that costs more is made when the reserve is full.
const RESERVE_NS: u64 = 600_000_000;
/// Time without a change of shared memory after which the tree rests, for a round that takes less than a
/// quarter of the reserve, and for any other: growth that only pauses must not use the reserve up.
const CHEAP_REST_NS: u64 = 20_000_000;
const ROUND_REST_NS: u64 = 150_000_000;
/// Shortest time between two readings of the memory of the whole system.
const SYSTEM_NS: u64 = 5_000_000;
/// Time between two rounds of a tree that never rests.
const RESTLESS_NS: u64 = 400_000_000;
/// Fraction of the total whose uncertainty is worth a round.
const ROUND_UNCERTAIN_SHARE: u64 = 50;
/// Largest number of processes in a round.
const ROUND_MOST: usize = 4096;

/// A process to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pid: i32,
    born_ns: u64,
    rss: u64,
    shared: u64,
    motion: Motion,
    /// Number of the round that it belongs to; none for a reading of one process.
    round: Option<u64>,
    purse: Purse,
}

/// The budget that pays for a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purse {
    /// The share of a core.
    Share,
    /// The reserve for rounds.
    Reserve,
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
pub(crate) fn counter_error_bytes() -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    processors * (2 * processors).max(32) * 4096
}

/// Outcome of a reading.
pub(crate) enum Read {
    /// There is no answer now.
    Nothing,
    /// The process is gone.
    Gone,
    /// A process was read.
    Done { pid: i32, rollup: Rollup },
    /// The process may not be read.
    Denied { pid: i32, why: io::Error },
}

/// The sum of a sweep, which decides about a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    /// Resident bytes, and the most that there were.
    pub(crate) rss: u64,
    pub(crate) highest_rss: u64,
    /// The total and its uncertainty.
    pub(crate) total: u64,
    pub(crate) uncertain: u64,
}

/// Chooses the processes to read, within a budget of CPU time.
pub(crate) struct Totals {
    requests: Option<SyncSender<Request>>,
    answers: Receiver<Answer>,
    /// Number of requests without an answer.
    pending: usize,
    /// CPU time for rounds; negative after an expensive one.
    reserve_ns: i64,
    /// Sum of changes when the tree was last seen at rest, and since when it rests.
    rest: (u64, u64),
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
    motion: Motion,
    /// Time of the last reading of the whole system.
    system_ns: u64,
    /// Number of rounds that were requested.
    rounds: u64,
    /// Time of the last one, and the changes and the number of processes at that time.
    round_ns: u64,
    round_news: (Motion, usize),
    /// Largest error of the kernel's counters.
    counter_error_bytes: u64,
}

/// The ends of the channels that belong to the reading thread.
pub(crate) type Server = (Receiver<Request>, SyncSender<Answer>);

impl Totals {
    /// Creates a plan of readings that take at most a share of a core.
    pub(crate) fn new(share: f64, now_ns: u64) -> (Self, Server) {
        let (requests, asked) = sync_channel(ROUND_MOST);
        let (told, answers) = sync_channel(ROUND_MOST);
        let totals = Self {
            requests: (share > 0.0).then_some(requests),
            answers,
            pending: 0,
            reserve_ns: RESERVE_NS as i64,
            rest: (0, now_ns),
            share,
            budget_ns: START_NS as i64,
            filled_ns: now_ns,
            asked_ns: 0,
            idle_until_ns: 0,
            idle_news: (0, 0),
            spent_ns: 0,
            motion: Motion::default(),
            system_ns: 0,
            rounds: 0,
            round_ns: now_ns,
            round_news: (Motion::default(), 0),
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

    /// Sums of all changes so far.
    pub(crate) fn motion(&self) -> &Motion {
        &self.motion
    }

    /// Sums of all changes so far, to be added to.
    pub(crate) fn motion_mut(&mut self) -> &mut Motion {
        &mut self.motion
    }

    /// Reads how much memory the whole system has mapped, if that may bound an uncertain total.
    pub(crate) fn mapped_pages(&mut self, parts: &PartSum, now_ns: u64) -> Option<MappedPages> {
        let most = parts.most(None);
        let is_certain = most - parts.least <= LEAST_UNCERTAIN_BYTES.max(most / ROUND_UNCERTAIN_SHARE);
        if is_certain || now_ns.saturating_sub(self.system_ns) < SYSTEM_NS {
            return None;
        }
        self.system_ns = now_ns;
        let mut buffer = [0; 4096];
        let length = File::open("/proc/meminfo").ok()?.read_at(&mut buffer, 0).ok()?;
        procfs::mapped_pages(&buffer[..length])
    }

    /// Bounds of the contribution of a process to the total.
    pub(crate) fn part(&self, process: &Process, now_ns: u64) -> Part {
        bounds::part(process, &self.motion, now_ns)
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
                bounds::drift(memory, read, &self.motion).saturating_add(stale)
            }
        }
    }

    /// Takes an answer, if there is one, and stores it in its process.
    pub(crate) fn collect(&mut self, processes: &mut [Process], now_ns: u64) -> Read {
        let Ok(answer) = self.answers.try_recv() else { return Read::Nothing };
        self.pending = self.pending.saturating_sub(1);
        self.spent_ns += answer.cost_ns;
        let request = answer.request;
        match request.purse {
            Purse::Share => self.budget_ns -= answer.cost_ns as i64,
            Purse::Reserve => self.reserve_ns -= answer.cost_ns as i64,
        }
        let same = |process: &&mut Process| process.pid == request.pid && process.born_ns == request.born_ns;
        let Some(process) = processes.iter_mut().find(same) else { return Read::Gone };
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
                // Older kernels do not divide the proportional size.
                let pss_anon = rollup.pss_anon.unwrap_or(rollup.anon).min(rollup.pss);
                let before = memory.total.map_or((0, 0), |read| read.round);
                memory.total = Some(TotalReading {
                    at_ns: now_ns,
                    pss: rollup.pss,
                    shared: rollup.rss.saturating_sub(rollup.uss),
                    rss: between(rollup.rss, request.rss, memory.rss),
                    file_and_shmem: between(shared, request.shared, memory.shared),
                    anon: rollup.anon,
                    pss_anon,
                    private_anon: rollup.uss.saturating_sub(shared).min(pss_anon),
                    round: request.round.map_or(before, |round| (round, pss_anon)),
                    // Changes during the reading may be included or not.
                    motion: request.motion,
                    cost_ns: answer.cost_ns,
                });
                self.motion.round = self.motion.round.max(request.round.unwrap_or(0));
                Read::Done { pid: request.pid, rollup }
            }
            Err(why) => match why.kind() {
                io::ErrorKind::PermissionDenied => {
                    memory.total_denied = true;
                    Read::Denied { pid: request.pid, why }
                }
                _ => Read::Gone,
            },
        }
    }

    /// Requests a round if it is due, else a reading of the process with the largest uncertainty, if it is
    /// worth it and the budget allows it. `passes` changes whenever processes were added, removed or called
    /// exec.
    pub(crate) fn ask(&mut self, processes: &[Process], level: Level, passes: u64, now_ns: u64) {
        let earned = (now_ns.saturating_sub(self.filled_ns) as f64 * self.share) as i64;
        self.budget_ns = (self.budget_ns + earned).min(BURST_NS as i64);
        self.reserve_ns = (self.reserve_ns + earned).min(RESERVE_NS as i64);
        self.filled_ns = now_ns;
        if self.pending == 0
            && let Some(purse) = self.round_due(processes, level, now_ns)
        {
            self.ask_all(processes, purse, now_ns);
            return;
        }
        let may_ask =
            self.pending == 0 && self.budget_ns > 0 && now_ns.saturating_sub(self.asked_ns) >= ASK_NS;
        let Some(requests) = self.requests.as_ref().filter(|_| may_ask) else { return };
        let news = (self.motion.shared, passes);
        if now_ns < self.idle_until_ns && news == self.idle_news {
            return;
        }
        self.asked_ns = now_ns;
        (self.idle_until_ns, self.idle_news) = (now_ns + IDLE_NS, news);
        let priorities = processes.iter().map(|process| (self.priority(process, now_ns), process));
        let Some((priority, process)) = priorities.max_by_key(|(priority, _)| *priority) else { return };
        let share_bytes = level.total / processes.len() as u64;
        if priority < LEAST_UNCERTAIN_BYTES.max(share_bytes / LEAST_UNCERTAIN_SHARE) {
            return;
        }
        // A reading that costs more than the largest budget overdraws it, or it would never be made.
        if self.budget_ns < expected_ns(process).min(BURST_NS) as i64 {
            return;
        }
        self.idle_until_ns = 0;
        self.pending = usize::from(requests.try_send(self.request(process, Purse::Share, None)).is_ok());
    }

    fn request(&self, process: &Process, purse: Purse, round: Option<u64>) -> Request {
        let (memory, motion) = (&process.memory, self.motion);
        Request {
            pid: process.pid,
            born_ns: process.born_ns,
            rss: memory.rss,
            shared: memory.shared,
            motion,
            round,
            purse,
        }
    }

    /// The budget that pays for a round, if one is due. Near the highest sum that is the reserve, otherwise
    /// the share. The tree should rest, so that all readings are of one state; one that never rests is read
    /// nevertheless, now and then.
    fn round_due(&mut self, processes: &[Process], level: Level, now_ns: u64) -> Option<Purse> {
        let moved = self.motion.shared.saturating_sub(self.rest.0);
        if moved > level.total / 200 {
            self.rest = (self.motion.shared, now_ns);
        }
        let is_uncertain = level.uncertain > LEAST_UNCERTAIN_BYTES.max(level.total / ROUND_UNCERTAIN_SHARE);
        let is_high = level.rss >= level.highest_rss - level.highest_rss / 20;
        let rests_ns = now_ns.saturating_sub(self.rest.1);
        let is_restless = now_ns.saturating_sub(self.round_ns) >= RESTLESS_NS;
        if !is_uncertain || (rests_ns < CHEAP_REST_NS && !is_restless) {
            return None;
        }
        // Nothing has changed since the last round, so another one would not say more.
        if self.round_news == (self.motion, processes.len()) {
            return None;
        }
        let expected: u64 = self.uncertain_processes(processes, now_ns).map(expected_ns).sum();
        if expected == 0 {
            return None;
        }
        if self.budget_ns >= expected as i64 {
            return Some(Purse::Share);
        }
        let is_cheap = expected <= self.reserve_ns.max(0) as u64 / 4;
        let is_affordable = self.reserve_ns > 0 && self.reserve_ns >= expected.min(RESERVE_NS) as i64;
        (is_high && is_affordable && (is_cheap || rests_ns >= ROUND_REST_NS)).then_some(Purse::Reserve)
    }

    /// The processes that a round reads: all that are uncertain, and all that share memory with copies of
    /// themselves, which have to be read together.
    fn uncertain_processes<'a>(
        &self,
        processes: &'a [Process],
        now_ns: u64,
    ) -> impl Iterator<Item = &'a Process> {
        let is_readable = move |process: &&Process| {
            !process.memory.total_denied && process.memory.was_read && !process.is_newborn(now_ns)
        };
        let worth = move |process: &&Process| {
            let gap = self.part(process, now_ns).gap();
            let copied = process.memory.total.map_or(0, |read| read.copied());
            gap.max(copied).max(self.priority(process, now_ns)) >= LEAST_UNCERTAIN_BYTES
        };
        processes.iter().filter(is_readable).filter(worth).take(ROUND_MOST)
    }

    /// Requests readings of all processes that are uncertain.
    fn ask_all(&mut self, processes: &[Process], purse: Purse, now_ns: u64) {
        let Some(requests) = &self.requests else { return };
        let round = self.rounds + 1;
        let sent = self
            .uncertain_processes(processes, now_ns)
            .take_while(|process| requests.try_send(self.request(process, purse, Some(round))).is_ok())
            .count();
        self.pending = sent;
        self.rounds = round;
        (self.round_ns, self.round_news) = (now_ns, (self.motion, processes.len()));
    }
}

/// Expected CPU time of reading a process.
fn expected_ns(process: &Process) -> u64 {
    let memory = &process.memory;
    let expected = match &memory.total {
        Some(read) if read.rss > 0 => {
            (u128::from(read.cost_ns) * u128::from(memory.rss) / u128::from(read.rss)) as u64
        }
        _ => ((u128::from(memory.rss) * NS_PER_GIB) >> 30) as u64,
    };
    expected.max(NS_AT_LEAST)
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
    fn a_process_that_shrank_while_it_was_read_does_not_count_as_nothing() {
        let (mut totals, (asked, told)) = Totals::new(0.01, 0);
        let mut processes = [process(Image::Own, 179 * MIB, 10 * MIB)];
        let now_ns = crate::tree::NEWBORN_NS + ASK_NS;
        totals.ask(&processes, still(179 * MIB), 1, now_ns);
        let request = asked.try_recv().expect("it is worth a reading");
        // Read after it gave most back, before its counters were looked at again.
        let rollup = Rollup { rss: 51 * MIB, anon: 49 * MIB, pss: 50 * MIB, uss: 49 * MIB, pss_anon: None };
        told.send(Answer { request, cost_ns: 1, result: Ok(rollup) }).expect("the receiver exists");
        assert!(matches!(totals.collect(&mut processes, now_ns + ASK_NS), Read::Done { .. }));
        (processes[0].memory.rss, processes[0].memory.shared) = (51 * MIB, 2 * MIB);
        let part = totals.part(&processes[0], now_ns);
        assert_eq!((part.least, part.anon + part.shared), (50 * MIB, 50 * MIB));
    }

    #[test]
    fn a_forked_process_is_read_once_it_will_hardly_call_exec() {
        let (totals, _server) = Totals::new(0.01, 0);
        let child = process(Image::Inherited, 104 * MIB, 12 * MIB);
        assert_eq!(totals.priority(&child, 0), 0);
        assert_eq!(totals.priority(&child, crate::tree::NEWBORN_NS), 104 * MIB);
    }

    /// A sum that makes no round due.
    fn still(total: u64) -> Level {
        Level { total, ..Level::default() }
    }

    #[test]
    fn a_tree_that_rests_at_its_peak_is_read_in_one_round() {
        let (mut totals, (asked, told)) = Totals::new(0.01, 0);
        let mut processes: Vec<Process> =
            (1..=20).map(|pid| Process { pid, ..process(Image::Own, 215 * MIB, 200 * MIB) }).collect();
        totals.motion.shared = 4000 * MIB;
        let (rss, uncertain) = (4300 * MIB, 4000 * MIB);
        let level = Level { rss, highest_rss: rss, total: rss, uncertain };
        let begin_ns = crate::tree::NEWBORN_NS;
        totals.ask(&processes, level, 1, begin_ns);
        asked.try_iter().for_each(drop);
        totals.pending = 0;
        totals.ask(&processes, level, 1, begin_ns + ROUND_REST_NS);
        let requests: Vec<Request> = asked.try_iter().collect();
        assert_eq!(requests.len(), 20, "all at once");
        totals.ask(&processes, level, 1, begin_ns + 2 * ROUND_REST_NS);
        assert!(asked.try_recv().is_err(), "one round at a time");
        let rollup = Rollup { rss: 215 * MIB, anon: 15 * MIB, pss: 25 * MIB, uss: 15 * MIB, pss_anon: None };
        for request in requests {
            told.send(Answer { request, cost_ns: 4_000_000, result: Ok(rollup) }).expect("it is received");
        }
        while !matches!(totals.collect(&mut processes, begin_ns + 3 * ROUND_REST_NS), Read::Nothing) {}
        let mut sum = PartSum::default();
        for process in &processes {
            sum.add(totals.part(process, begin_ns));
        }
        assert_eq!((sum.least, sum.most(None)), (500 * MIB, 500 * MIB));
        assert!(totals.reserve_ns < RESERVE_NS as i64 && totals.budget_ns > 0, "the reserve paid for it");
    }

    #[test]
    fn readings_stay_within_their_share() {
        let (mut totals, (asked, told)) = Totals::new(0.01, 0);
        let processes = [process(Image::Own, 1 << 30, 1 << 30)];
        let mut now_ns = 0;
        let mut readings = 0;
        while now_ns < 100_000_000_000 {
            now_ns += 10_000_000;
            totals.ask(&processes, still(1 << 30), 1, now_ns);
            if let Ok(request) = asked.try_recv() {
                readings += 1;
                let answer =
                    Answer { request, cost_ns: 20_000_000, result: Err(io::ErrorKind::NotFound.into()) };
                told.send(answer).unwrap();
                assert!(matches!(totals.collect(&mut [], now_ns), Read::Gone));
            }
        }
        // 1 % of 100 seconds, 20 ms each, and the start.
        assert!((48..=52).contains(&readings), "{readings}");
    }
}
