//! What all processes use together, memory that they share counted once.
//!
//! The kernel divides shared pages among those who share them in `smaps_rollup`, and walks all page
//! tables for it: ten to twenty milliseconds per GiB. So it is read by a thread of its own, within a
//! share of a core, and where it matters most: largest doubt first. In between, a process counts as its
//! last reading and the change of its resident memory since. Memory of no file is its own, so that
//! part is certain; what may be shared is in doubt until it is read again.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::metrics::memory::TotalReading;
use crate::procfs::{self, Rollup};
use crate::sys::clock::thread_cpu_ns;
use crate::sys::signal;
use crate::tree::walk::Path;
use crate::tree::{Image, Process};

/// What may be spent at once, and what a run starts with: a few readings right at the start, because
/// until then shared memory counts once per process.
const BURST_NS: u64 = 50_000_000;
const START_NS: u64 = 20_000_000;
/// How often to look who should be read.
const ASK_NS: u64 = 4_000_000;
/// How often to look when there was nobody to be read, and nothing is new.
const IDLE_NS: u64 = 100_000_000;
/// What a reading is expected to cost before there was one.
const NS_PER_GIB: u128 = 20_000_000;
const NS_AT_LEAST: u64 = 50_000;
/// Doubt about a process below this is not worth a reading; nor is less than so much of its share of
/// the total, so that what is not read does not add up.
const LEAST_DOUBT_BYTES: u64 = 64 << 10;
const LEAST_DOUBT_SHARE: u64 = 50;
/// After this time a reading of shared memory is in doubt even if nothing seems to have changed.
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

/// What came of it.
#[derive(Debug)]
pub(crate) struct Answer {
    request: Request,
    cost_ns: u64,
    result: io::Result<Rollup>,
}

/// Reads what is asked for until nobody asks any more.
pub(crate) fn serve(requests: &Receiver<Request>, answers: &SyncSender<Answer>) {
    signal::leave_to_others();
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
    // Opened anew each time: a descriptor would keep to the program before an exec.
    let length = Path::of(pid, "smaps_rollup").open()?.read_at(&mut buffer, 0)?;
    procfs::rollup(&buffer[..length]).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The kernel counts resident pages in batches: each processor keeps up to so many to itself.
fn counter_error_bytes() -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    processors * (2 * processors).max(32) * 4096
}

/// A process's part in the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bytes: u64,
    /// How much of it may belong to others.
    pub(crate) doubt_bytes: u64,
}

/// What an answer was.
pub(crate) enum Read {
    /// A process was read.
    Done { pid: i32, rollup: Rollup },
    /// It may not be read.
    Denied { pid: i32, why: io::Error },
}

/// Who is read next, and what for.
pub(crate) struct Totals {
    requests: Option<SyncSender<Request>>,
    answers: Receiver<Answer>,
    is_reading: bool,
    /// Nanoseconds of processor time per nanosecond.
    share: f64,
    /// What may be spent now; below zero after something dear.
    purse_ns: i64,
    filled_ns: u64,
    asked_ns: u64,
    /// When nobody was worth a reading, or none could be paid: until when not to look again, unless
    /// there is news.
    idle_until_ns: u64,
    idle_news: (u64, u64),
    spent_ns: u64,
    /// How much memory that can be shared has come and gone in the whole job.
    motion: u64,
    /// How far off the kernel's counters may be.
    counter_error_bytes: u64,
}

/// The ends of the channels that belong to the reading thread.
pub(crate) type Server = (Receiver<Request>, SyncSender<Answer>);

impl Totals {
    /// Plans readings within a share of a core.
    pub(crate) fn new(share: f64, now_ns: u64) -> (Self, Server) {
        let (requests, asked) = sync_channel(1);
        let (told, answers) = sync_channel(1);
        let totals = Self {
            requests: (share > 0.0).then_some(requests),
            answers,
            is_reading: false,
            share,
            purse_ns: START_NS as i64,
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

    /// Asks no more, so that the reading thread ends.
    pub(crate) fn finish(&mut self) {
        self.requests = None;
    }

    pub(crate) fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// Memory that can be shared came or went.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.motion = self.motion.saturating_add(bytes);
    }

    /// How much memory that can be shared has come and gone.
    pub(crate) fn motion(&self) -> u64 {
        self.motion
    }

    /// What a process adds to the total.
    pub(crate) fn part(&self, process: &Process) -> Part {
        let memory = &process.memory;
        let Some(read) = &memory.total else {
            return match process.image {
                // Until it is read, all that it had at first is its parent's.
                Image::Inherited if !memory.total_denied => {
                    let bytes = memory.rss.saturating_sub(memory.first_rss);
                    let doubt = memory.shared.saturating_sub(memory.first_shared);
                    Part { bytes, doubt_bytes: doubt.min(bytes) }
                }
                Image::Inherited => Part { bytes: memory.rss, doubt_bytes: memory.rss },
                Image::Own => Part { bytes: memory.rss, doubt_bytes: memory.shared.min(memory.rss) },
            };
        };
        let bytes = (read.pss + memory.rss).saturating_sub(read.rss);
        let others = self.motion.saturating_sub(read.motion);
        let doubt = memory.shared.abs_diff(read.file_and_shmem).saturating_add(read.shared.min(others));
        Part { bytes, doubt_bytes: doubt.min(bytes) }
    }

    /// How much a reading of a process would clear up.
    fn urge(&self, process: &Process, now_ns: u64) -> u64 {
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
                self.part(process).doubt_bytes.saturating_add(stale)
            }
        }
    }

    /// Takes an answer, if there is one, and fits it to its process.
    pub(crate) fn collect(&mut self, processes: &mut [Process], now_ns: u64) -> Option<Read> {
        let answer = self.answers.try_recv().ok()?;
        self.is_reading = false;
        self.spent_ns += answer.cost_ns;
        self.purse_ns -= answer.cost_ns as i64;
        let request = answer.request;
        let same = |process: &&mut Process| process.pid == request.pid && process.born_ns == request.born_ns;
        let process = processes.iter_mut().find(same)?;
        let memory = &mut process.memory;
        match answer.result {
            Ok(rollup) => {
                // Later changes are counted from here. The kernel's counters may differ from what it
                // counts page by page, so where nothing changed in between the counters hold; and
                // where something did, what was counted, as far as the counters allow. Where they are
                // further apart than counters err, the process changed since the counters were read.
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
                    // What moved while it was read may be in it or not.
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
                // Gone or going.
                _ => None,
            },
        }
    }

    /// Has the process with the largest doubt read, if it is worth it and can be paid. `passes` is another
    /// number whenever processes came, went or became others.
    pub(crate) fn ask(&mut self, processes: &[Process], total_bytes: u64, passes: u64, now_ns: u64) {
        let earned = (now_ns.saturating_sub(self.filled_ns) as f64 * self.share) as i64;
        self.purse_ns = (self.purse_ns + earned).min(BURST_NS as i64);
        self.filled_ns = now_ns;
        let may_ask = !self.is_reading && self.purse_ns > 0 && now_ns.saturating_sub(self.asked_ns) >= ASK_NS;
        let Some(requests) = self.requests.as_ref().filter(|_| may_ask) else { return };
        let news = (self.motion, passes);
        if now_ns < self.idle_until_ns && news == self.idle_news {
            return;
        }
        self.asked_ns = now_ns;
        (self.idle_until_ns, self.idle_news) = (now_ns + IDLE_NS, news);
        let urges = processes.iter().map(|process| (self.urge(process, now_ns), process));
        let Some((urge, process)) = urges.max_by_key(|(urge, _)| *urge) else { return };
        let share_bytes = total_bytes / processes.len() as u64;
        if urge < LEAST_DOUBT_BYTES.max(share_bytes / LEAST_DOUBT_SHARE) {
            return;
        }
        let memory = &process.memory;
        let expected = match &memory.total {
            Some(read) if read.rss > 0 => {
                (u128::from(read.cost_ns) * u128::from(memory.rss) / u128::from(read.rss)) as u64
            }
            _ => ((u128::from(memory.rss) * NS_PER_GIB) >> 30) as u64,
        };
        // What is dearer than the purse is large is bought on credit, or it would never be.
        if self.purse_ns < expected.clamp(NS_AT_LEAST, BURST_NS) as i64 {
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
    fn what_may_be_shared_is_in_doubt_until_it_is_read() {
        let (mut totals, _server) = Totals::new(0.01, 0);
        let mut one = process(Image::Own, 138 * MIB, 128 * MIB);
        assert_eq!(totals.part(&one), Part { bytes: 138 * MIB, doubt_bytes: 128 * MIB });
        one.memory.total = Some(TotalReading {
            pss: 42 * MIB,
            shared: 128 * MIB,
            rss: 138 * MIB,
            file_and_shmem: 128 * MIB,
            ..TotalReading::default()
        });
        assert_eq!(totals.part(&one), Part { bytes: 42 * MIB, doubt_bytes: 0 });
        one.memory.rss += 8 * MIB;
        assert_eq!(totals.part(&one), Part { bytes: 50 * MIB, doubt_bytes: 0 }, "its own");
        totals.moved(3 * MIB);
        assert_eq!(totals.part(&one), Part { bytes: 50 * MIB, doubt_bytes: 3 * MIB }, "another's coming");
        totals.moved(300 * MIB);
        assert_eq!(totals.part(&one).doubt_bytes, 50 * MIB, "no more than it counts for");
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
        told.send(Answer { request, cost_ns: 1, result: Ok(rollup) }).expect("somebody listens");
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
        assert_eq!(totals.part(&child), Part { bytes: MIB, doubt_bytes: 0 });
        (child.memory.rss, child.memory.shared) = (104 * MIB, 12 * MIB);
        assert_eq!(totals.part(&child), Part { bytes: 4 * MIB, doubt_bytes: 2 * MIB }, "perhaps not its own");
        assert_eq!(totals.urge(&child, 0), 0, "it may call exec yet");
        assert_eq!(totals.urge(&child, crate::tree::NEWBORN_NS), 104 * MIB);
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
