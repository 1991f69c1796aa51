//! Stack samples of a page, one entry for each moment at which they were taken.

use floodmark_analyze::{PeakStack, waits};
use floodmark_event::{StackSampleRow, Tables};

use super::{MOST_STACKS, MOST_THREADS, StacksAt, ThreadStack};
use crate::plain::plain;

/// Moments with stacks, evenly chosen where there are too many.
///
/// If it is not known how many there are, every other one is dropped when there is no room for more.
pub(super) struct Moments {
    every: u64,
    seen: u64,
    latest_ns: Option<i64>,
    /// Whether the latest moment is kept.
    keeps_latest: bool,
    kept: Vec<StacksAt>,
}

impl Moments {
    /// Makes room for `count` moments; 0 if their number is not known.
    pub(super) fn new(count: u64) -> Self {
        let every = count.div_ceil(MOST_STACKS as u64).max(1);
        Self { every, seen: 0, latest_ns: None, keeps_latest: false, kept: Vec::new() }
    }

    /// Takes in the stack of one thread; those of one moment follow each other.
    pub(super) fn add(&mut self, row: &StackSampleRow, tables: &Tables) {
        if self.latest_ns.replace(row.time_ns) != Some(row.time_ns) {
            self.keeps_latest = self.begin(row);
        }
        if !self.keeps_latest {
            return;
        }
        let Some(moment) = self.kept.last_mut() else { return };
        let is_waiting = waits(row.stack, tables);
        if moment.threads.len() == MOST_THREADS {
            moment.threads_omitted += 1;
            let waiting = moment.threads.iter().rposition(|thread| thread.is_waiting);
            match waiting.filter(|_| !is_waiting) {
                Some(at) => drop(moment.threads.remove(at)),
                None => return,
            }
        }
        let subject = tables.subjects.get(&row.subject);
        moment.threads.push(ThreadStack {
            process: subject.map_or_else(|| "process".into(), |subject| plain(&subject.name).into_owned()),
            pid: subject.map_or(0, |subject| subject.number),
            thread: row.thread,
            is_waiting,
            frames: tables.stack_text(row.stack),
        });
    }

    /// Begins a moment; returns whether it is kept.
    fn begin(&mut self, row: &StackSampleRow) -> bool {
        self.seen += 1;
        if !(self.seen - 1).is_multiple_of(self.every) {
            return false;
        }
        if self.kept.len() == MOST_STACKS {
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.every *= 2;
            if !(self.seen - 1).is_multiple_of(self.every) {
                return false;
            }
        }
        self.kept.push(StacksAt { time_ns: row.time_ns, reason: row.reason.name(), ..StacksAt::default() });
        true
    }

    /// Returns the moments so far, and the number of those that are left out.
    ///
    /// The thread that the run names at its peak comes first; of the others those that work come before those
    /// that wait, and the first thread of a process before its others.
    pub(super) fn finish(&self, peak: Option<&PeakStack>) -> (Vec<StacksAt>, u64) {
        let mut kept = self.kept.clone();
        for moment in &mut kept {
            let is_peak = |thread: &ThreadStack| {
                peak.is_some_and(|peak| {
                    (peak.time_ns, peak.pid, peak.thread) == (moment.time_ns, thread.pid, thread.thread)
                })
            };
            moment.threads.sort_by_key(|thread| {
                (!is_peak(thread), thread.is_waiting, thread.thread != thread.pid, thread.pid, thread.thread)
            });
        }
        (kept, self.seen - self.kept.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::tables::Frame;
    use floodmark_event::{StackId, StackReason, SubjectKind, SubjectRow};

    use super::*;

    fn tables() -> (Tables, StackId, StackId) {
        let mut tables = Tables::default();
        let process = SubjectRow::new(1, SubjectKind::Process, 70, "solver");
        tables.subjects.insert(1, process);
        let mut stack = |function: &str| {
            let frame = Frame { function: tables.intern(function), ..Frame::default() };
            let frame = tables.intern_frame(frame);
            tables.intern_stack(StackId(0), frame)
        };
        let (works, rests) = (stack("assemble"), stack("futex_wait"));
        (tables, works, rests)
    }

    fn row(time_ns: i64, thread: u64, stack: StackId) -> StackSampleRow {
        StackSampleRow { time_ns, subject: 1, thread, stack, reason: StackReason::Peak, pause_ns: 0 }
    }

    #[test]
    fn threads_of_one_moment_are_together_and_those_that_work_come_first() {
        let (tables, works, rests) = tables();
        let mut moments = Moments::new(2);
        for row in [row(5, 70, rests), row(5, 72, works), row(5, 71, works), row(9, 71, works)] {
            moments.add(&row, &tables);
        }
        let threads = |peak: Option<&PeakStack>| -> Vec<Vec<(u64, bool)>> {
            let (kept, omitted) = moments.finish(peak);
            assert_eq!(omitted, 0);
            let of =
                |moment: &StacksAt| moment.threads.iter().map(|one| (one.thread, one.is_waiting)).collect();
            kept.iter().map(of).collect()
        };
        assert_eq!(threads(None), [vec![(71, false), (72, false), (70, true)], vec![(71, false)]]);
        let peak = PeakStack {
            pid: 70,
            name: String::new(),
            thread: 70,
            time_ns: 5,
            after_peak_ns: 0,
            reason: "peak".into(),
            growth_bytes: 0,
            frames: Vec::new(),
            frames_omitted: 0,
        };
        assert_eq!(threads(Some(&peak))[0], [(70, true), (71, false), (72, false)]);
    }

    #[test]
    fn of_many_threads_those_that_wait_are_left_out() {
        let (tables, works, rests) = tables();
        let mut moments = Moments::new(0);
        let waiting = (0..40).map(|thread| row(5, 100 + thread, rests));
        for row in waiting.chain((0..3).map(|thread| row(5, 200 + thread, works))) {
            moments.add(&row, &tables);
        }
        let (kept, _) = moments.finish(None);
        assert_eq!((kept.len(), kept[0].threads.len(), kept[0].threads_omitted), (1, MOST_THREADS, 11));
        let first: Vec<u64> = kept[0].threads.iter().map(|thread| thread.thread).take(4).collect();
        assert_eq!(first, [200, 201, 202, 100]);
    }

    #[test]
    fn moments_stay_even_where_there_are_too_many() {
        let (tables, works, _) = tables();
        let (mut known, mut growing) = (Moments::new(1000), Moments::new(0));
        for at in 0..1000 {
            for thread in [70, 71] {
                known.add(&row(at, thread, works), &tables);
                growing.add(&row(at, thread, works), &tables);
            }
        }
        for moments in [known, growing] {
            let (kept, omitted) = moments.finish(None);
            assert!(kept.len() <= MOST_STACKS && kept.len() as u64 + omitted == 1000, "{}", kept.len());
            let step = kept[1].time_ns;
            assert!(kept.iter().zip(0..).all(|(one, at)| one.time_ns == at * step && one.threads.len() == 2));
        }
    }
}
