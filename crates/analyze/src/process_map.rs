//! Live bytes of every process of a job over time, and how far processes are apart.
//!
//! What is kept of a process depends on its own events alone, so parts of a job are put together by putting their lists
//! together. Rows get intervals of one width only when they are shown.

use floodmark_event::{Kind, ProcessId, Tables};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::change::{Block, Space};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::merge::{Merge, SpaceMap};
use crate::partial::PartialError;
use crate::partial::ids::{Expand, checked_tally};
use crate::ranks::grid::{FIRST_SHIFT, GridRow, MOST_COLUMNS};
use crate::ranks::result::{SHARES, imbalance, outliers, place};
use crate::ranks::{Imbalance, RankMap};
use crate::stats::{Ledger, Stats};

/// Folds events into the live bytes of each process over time.
#[derive(Clone, Debug, Default)]
pub struct ProcessMapFold {
    /// Where each space's process is in the list.
    of_space: Vec<usize>,
    of_process: FxHashMap<ProcessId, usize>,
    processes: Vec<ProcessSoFar>,
}

#[derive(Clone, Debug)]
struct ProcessSoFar {
    process: ProcessId,
    latest_ns: i64,
    courses: [Course; Kind::ALL.len()],
}

/// Live bytes of one process and tally.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Course {
    live: u64,
    peak_bytes: u64,
    peak_time_ns: i64,
    /// Binary logarithm of the width of an interval in nanoseconds.
    shift: u32,
    row: GridRow,
}

/// What partial results have of a [`ProcessMapFold`]: the courses of each process and tally.
pub(crate) type ProcessMapData = Vec<(u32, u8, Course)>;

impl Default for Course {
    fn default() -> Self {
        Self { live: 0, peak_bytes: 0, peak_time_ns: 0, shift: FIRST_SHIFT, row: GridRow::default() }
    }
}

impl Course {
    #[inline]
    fn set(&mut self, bytes: u64, time_ns: i64) {
        self.live = bytes;
        if bytes > self.peak_bytes {
            (self.peak_bytes, self.peak_time_ns) = (bytes, time_ns);
        }
        let mut column = time_ns >> self.shift;
        // Before the row grows: a clock may jump by years.
        while self.row.first().is_some_and(|first| column.saturating_sub(first) >= MOST_COLUMNS as i64) {
            self.row.coarsen();
            self.shift += 1;
            column = time_ns >> self.shift;
        }
        self.row.set(column, bytes);
    }

    /// Makes intervals wider, to `1 << shift` nanoseconds.
    fn widen(&mut self, shift: u32) {
        while self.shift < shift {
            self.row.coarsen();
            self.shift += 1;
        }
    }
}

impl ProcessMapFold {
    fn process(&mut self, process: ProcessId) -> &mut ProcessSoFar {
        let at = *self.of_process.entry(process).or_insert_with(|| {
            self.processes.push(ProcessSoFar { process, latest_ns: i64::MIN, courses: Default::default() });
            self.processes.len() - 1
        });
        &mut self.processes[at]
    }

    #[inline]
    fn change(&mut self, block: &Block, time_ns: i64, bytes: impl FnOnce(u64) -> u64) {
        let one = &mut self.processes[self.of_space[block.space as usize]];
        // A change whose time goes back belongs where the change before it is.
        one.latest_ns = one.latest_ns.max(time_ns);
        let course = &mut one.courses[usize::from(block.tally)];
        course.set(bytes(course.live), one.latest_ns);
    }

    pub(crate) fn data(&self) -> ProcessMapData {
        let of = |one: &ProcessSoFar| {
            let used = (0u8..).zip(one.courses.clone()).filter(|(_, course)| course.row.first().is_some());
            let process = one.process.0;
            used.map(move |(tally, course)| (process, tally, course)).collect::<Vec<_>>()
        };
        self.processes.iter().flat_map(of).collect()
    }

    /// Returns the fold that `data` is of. It takes in no more events.
    pub(crate) fn of(data: ProcessMapData, ids: &Expand) -> Result<Self, PartialError> {
        let mut fold = Self::default();
        for (process, tally, course) in data {
            if course.shift >= 63 || !course.row.is_sound() {
                return Err(PartialError::Damaged("an interval of time"));
            }
            let tally = usize::from(checked_tally(tally)?);
            fold.process(ids.process(process)?).courses[tally] = course;
        }
        Ok(fold)
    }

    /// Gives processes other numbers.
    pub(crate) fn renumber(&mut self, new: impl Fn(ProcessId) -> ProcessId) {
        self.processes.iter_mut().for_each(|one| one.process = new(one.process));
        self.processes.sort_by_key(|one| one.process);
        self.of_process = (0..).zip(&self.processes).map(|(at, one)| (one.process, at)).collect();
    }

    /// Puts the processes side by side, of which `stats` has the ledgers.
    pub(crate) fn compared(
        &self,
        tally: u8,
        stats: &Stats,
        tables: &Tables,
        limit: Option<usize>,
    ) -> JobProcesses {
        let limit = limit.unwrap_or(usize::MAX);
        let known: FxHashMap<ProcessId, _> =
            tables.processes.iter().map(|process| (process.id, process)).collect();
        let mut all: Vec<ProcessPeak> = Vec::new();
        for one in &self.processes {
            let course = &one.courses[usize::from(tally)];
            if course.peak_bytes == 0 {
                continue;
            }
            let of_process =
                |ledger: &&Ledger| ledger.process == one.process.0 && stats.kinds.contains(&ledger.kind);
            let ledgers = || stats.ledgers.iter().filter(of_process);
            let about = known.get(&one.process);
            all.push(ProcessPeak {
                process: u64::from(one.process.0),
                host: about.map(|about| about.host.clone()).unwrap_or_default(),
                pid: about.map_or(0, |about| u64::from(about.pid)),
                name: about.map(|about| about.command.clone()).unwrap_or_default(),
                peak_bytes: course.peak_bytes,
                peak_time_ns: course.peak_time_ns,
                peak_to_mean: 0.0,
                live_bytes: course.live,
                allocations: ledgers().map(|ledger| ledger.allocations).sum(),
                total_bytes: ledgers().fold(0, |sum, ledger| sum.saturating_add(ledger.total_bytes)),
            });
        }
        all.sort_by_key(|one| (one.peak_bytes, std::cmp::Reverse(one.process)));
        let sorted: Vec<u64> = all.iter().map(|one| one.peak_bytes).collect();
        let imbalance = imbalance(&sorted);
        for one in &mut all {
            one.peak_to_mean = one.peak_bytes as f64 / (imbalance.mean_bytes as f64).max(1.0);
        }
        let quantile = |share: f64| {
            let one = all.get(place(all.len(), share))?;
            Some(ProcessQuantile { share, bytes: one.peak_bytes, process: one.process })
        };
        let shown = all.len().min(limit);
        JobProcesses {
            kinds: stats.kinds.clone(),
            origin_time_ns: stats.origin_time_ns.or(stats.first_time_ns),
            processes: all.len() as u64,
            processes_without: (self.processes.len() - all.len()) as u64,
            sum_of_peaks_bytes: sorted.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            quantiles: SHARES.into_iter().filter_map(quantile).collect(),
            outliers: outliers(all.iter().map(|one| (one.process, one.peak_bytes)), &sorted),
            imbalance,
            process_list: all.iter().rev().take(limit).cloned().collect(),
            processes_omitted: (all.len() - shown) as u64,
            lowest: all.iter().take((all.len() - shown).min(limit)).cloned().collect(),
        }
    }

    /// Returns live bytes of all processes over time; none if none ever had any.
    pub(crate) fn map(&self, tally: u8) -> Option<RankMap> {
        let used = self.processes.iter().map(|one| (one.process, &one.courses[usize::from(tally)]));
        let mut rows: Vec<(ProcessId, Course)> = used
            .filter(|(_, course)| course.peak_bytes > 0)
            .map(|(process, course)| (process, course.clone()))
            .collect();
        rows.sort_by_key(|(process, _)| *process);
        let mut shift = rows.iter().map(|(_, course)| course.shift).max()?;
        let (first, end) = loop {
            for (_, course) in &mut rows {
                course.widen(shift);
            }
            let first = rows.iter().filter_map(|(_, course)| course.row.first()).min()?;
            let end = rows.iter().map(|(_, course)| course.row.end()).max()?;
            if end.saturating_sub(first) <= MOST_COLUMNS as i64 {
                break (first, end);
            }
            shift += 1;
        };
        for (_, course) in rows.iter_mut().filter(|(_, course)| course.live > 0) {
            // What was not freed holds until the end.
            course.row.hold_until(end - 1);
        }
        let values = |course: &Course| (first..end).map(|at| course.row.at(at)).collect();
        Some(RankMap {
            first_ns: first << shift,
            interval_ns: 1 << shift,
            ranks: rows.iter().map(|(process, _)| u64::from(process.0)).collect(),
            values: rows.iter().map(|(_, course)| values(course)).collect(),
        })
    }
}

impl Fold for ProcessMapFold {
    type Output = ();

    fn space(&mut self, index: u32, space: Space) {
        self.process(space.process);
        let at = self.of_process[&space.process];
        self.of_space.resize(self.of_space.len().max(index as usize + 1), 0);
        self.of_space[index as usize] = at;
    }

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, |live| live.saturating_add(block.bytes));
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, |live| live.saturating_sub(block.bytes));
    }

    fn finish(&self, _end: &End<'_>) {}
}

impl Merge for ProcessMapFold {
    fn merge(&mut self, other: Self, _spaces: &SpaceMap) {
        for one in other.processes {
            let ours = self.process(one.process);
            *ours = one;
        }
    }
}

/// The processes of a job side by side, by what they had live.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobProcesses {
    /// Kinds of memory that figures cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Instant that elapsed times count from.
    pub origin_time_ns: Option<i64>,
    /// Number of processes that had memory of these kinds.
    pub processes: u64,
    /// Number of processes with events that never had any.
    pub processes_without: u64,
    /// Sum of the peaks of processes, which the peak of the job does not exceed.
    pub sum_of_peaks_bytes: u64,
    /// How far apart the peaks of processes are.
    pub imbalance: Imbalance,
    /// Peaks that a share of the processes does not exceed.
    pub quantiles: Vec<ProcessQuantile>,
    /// The processes, highest peak first.
    pub process_list: Vec<ProcessPeak>,
    /// How many more there are.
    pub processes_omitted: u64,
    /// The processes with the lowest peaks, lowest first, of those that were left out.
    pub lowest: Vec<ProcessPeak>,
    /// Numbers of the processes whose peak is far from those of the others.
    pub outliers: Vec<u64>,
}

/// A peak that a share of the processes does not exceed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessQuantile {
    /// Share of the processes, from 0 to 1.
    pub share: f64,
    /// Their highest peak.
    pub bytes: u64,
    /// Number of a process with that peak.
    pub process: u64,
}

/// What one process of a job had live.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessPeak {
    /// Number of the process in the job.
    pub process: u64,
    /// Host that it ran on; empty if not known.
    pub host: String,
    /// PID; 0 if not known.
    pub pid: u64,
    /// Its command; empty if not known.
    pub name: String,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of these.
    pub peak_time_ns: i64,
    /// Its peak over the mean of all processes.
    pub peak_to_mean: f64,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Allocations.
    pub allocations: u64,
    /// Bytes of these.
    pub total_bytes: u64,
}
