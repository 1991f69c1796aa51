//! Totals of MPI jobs without their launchers, as `memory_logger.py` counts them.
//!
//! The script adds up processes whose command line contains the name of the program, and leaves out those
//! that contain `mpiexec` or `mpirun`: what starts the ranks never counts. A trace has the total of all
//! processes, and each process by itself.

use std::collections::VecDeque;

use floodmark_analyze::SampleState;
use floodmark_event::{Metric, Row, SampleRow, SubjectKind, Tables};
use floodmark_store::{Losses, Progress, RowSource};

/// Programs that start ranks, apart from `mpiexec`, `mpirun` and those of Hydra.
const LAUNCHERS: [&str; 9] =
    ["orterun", "orted", "prte", "prted", "prterun", "prun", "srun", "aprun", "jsrun"];
/// What names of further launchers begin with: `mpiexec.openmpi`, `mpirun_rsh`, `hydra_pmi_proxy`.
const LAUNCHER_PREFIXES: [&str; 3] = ["mpiexec", "mpirun", "hydra_"];

/// Returns whether a program of this name starts ranks and is none.
fn is_launcher(name: &str) -> bool {
    LAUNCHERS.contains(&name) || LAUNCHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Rows of a source in which the resident memory of jobs does not contain that of MPI launchers.
pub struct WithoutLaunchers {
    source: Box<dyn RowSource>,
    /// Resident memory of processes.
    processes: SampleState,
    /// Indexes of launchers in `processes`.
    launchers: Vec<usize>,
    /// Subjects that `processes` knows.
    known: usize,
    /// Rows of the latest time, which may go on in the next batch.
    held: VecDeque<Row>,
    is_over: bool,
}

impl std::fmt::Debug for WithoutLaunchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithoutLaunchers").field("launchers", &self.launchers).finish_non_exhaustive()
    }
}

impl WithoutLaunchers {
    /// Leaves launchers out of the totals of `source`.
    pub fn new(source: Box<dyn RowSource>) -> Self {
        Self {
            source,
            processes: SampleState::default(),
            launchers: Vec::new(),
            known: 0,
            held: VecDeque::new(),
            is_over: false,
        }
    }

    fn learn(&mut self) {
        let subjects = &self.source.tables().subjects;
        if self.known == subjects.len() {
            return;
        }
        self.known = subjects.len();
        self.processes.learn(subjects);
        let observed = self.processes.observed().iter().enumerate();
        let launchers =
            observed.filter(|(_, one)| one.kind == SubjectKind::Process && is_launcher(&one.name));
        self.launchers = launchers.map(|(at, _)| at).collect();
    }

    fn kind(&self, row: &SampleRow) -> Option<SubjectKind> {
        self.source.tables().subjects.get(&row.subject).map(|subject| subject.kind)
    }

    /// Resident bytes of the launchers that have not ended by `time_ns`. A process that a sweep finds gone ends
    /// at the time of that sweep, and the total does not contain it.
    fn launcher_bytes(&self, time_ns: i64) -> u64 {
        let launchers = self.launchers.iter().map(|at| &self.processes.observed()[*at]);
        let running = launchers.filter(|one| one.end_ns.is_none_or(|end_ns| end_ns > time_ns));
        running.fold(0, |sum, one| sum.saturating_add(one.last(Metric::Rss)))
    }

    /// Moves the held rows, all of one time, to `rows`.
    fn release(&mut self, rows: &mut Vec<Row>) {
        let resident = |row: &Row| match row {
            Row::Sample(row) if row.metric == Metric::Rss => Some(*row),
            _ => None,
        };
        let is_process = |row: &SampleRow| self.kind(row) == Some(SubjectKind::Process);
        let samples: Vec<SampleRow> = self.held.iter().filter_map(resident).filter(is_process).collect();
        for row in &samples {
            self.processes.push(row, &mut ());
        }
        for mut row in std::mem::take(&mut self.held) {
            if let Row::Sample(row) = &mut row
                && row.metric == Metric::Rss
                && self.kind(row) == Some(SubjectKind::Job)
            {
                row.value = row.value.saturating_sub(self.launcher_bytes(row.time_ns));
            }
            rows.push(row);
        }
    }
}

impl RowSource for WithoutLaunchers {
    fn tables(&self) -> &Tables {
        self.source.tables()
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> floodmark_store::Result<bool> {
        let mut batch = Vec::new();
        rows.clear();
        while rows.is_empty() && !self.is_over {
            self.is_over = !self.source.next(&mut batch)?;
            self.learn();
            for row in batch.drain(..) {
                if self.held.front().is_some_and(|first| first.time_ns() != row.time_ns()) {
                    self.release(rows);
                }
                self.held.push_back(row);
            }
            if self.is_over {
                self.release(rows);
            }
        }
        Ok(!rows.is_empty())
    }

    fn losses(&self) -> Losses {
        self.source.losses()
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::SubjectRow;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Batches of rows.
    struct Batches(Tables, VecDeque<Vec<Row>>);

    impl RowSource for Batches {
        fn tables(&self) -> &Tables {
            &self.0
        }

        fn next(&mut self, rows: &mut Vec<Row>) -> floodmark_store::Result<bool> {
            *rows = self.1.pop_front().unwrap_or_default();
            Ok(!rows.is_empty())
        }

        fn losses(&self) -> Losses {
            Losses::default()
        }
    }

    #[test]
    fn launchers_count_neither_while_they_run_nor_after_their_end() {
        let mut tables = Tables::default();
        let process = |subject, name: &str, end_ns| SubjectRow {
            start_ns: Some(0),
            end_ns,
            ..SubjectRow::new(subject, SubjectKind::Process, subject, name)
        };
        // A child of the launcher becomes a rank: another program of the same process.
        let forked = SubjectRow { number: 3, ..process(3, "mpiexec.hydra", None) };
        let rank = SubjectRow { number: 3, ..process(4, "solver", Some(50)) };
        let job = SubjectRow::new(1, SubjectKind::Job, 0, "mpiexec");
        for row in [job, process(2, "mpiexec.hydra", Some(40)), forked, rank] {
            tables.subjects.insert(row.subject, row);
        }
        let row = |time_ns, subject, mib| {
            Row::Sample(SampleRow { time_ns, subject, metric: Metric::Rss, value: mib * MIB })
        };
        // The second sweep is cut by the end of a batch; the job comes before or after the processes.
        let batches = [
            vec![row(10, 2, 5), row(10, 1, 5), row(20, 1, 17)],
            vec![row(20, 2, 6), row(20, 3, 11), row(30, 4, 100), row(30, 1, 106)],
            vec![row(40, 1, 100), row(45, 1, 99)],
        ];
        let mut source = WithoutLaunchers::new(Box::new(Batches(tables, batches.into())));
        let (mut rows, mut totals, mut count) = (Vec::new(), Vec::new(), 0);
        while source.next(&mut rows).unwrap() {
            count += rows.len();
            totals.extend(rows.iter().filter_map(|row| match row {
                Row::Sample(row) if row.subject == 1 => Some((row.time_ns, row.value / MIB)),
                _ => None,
            }));
        }
        assert_eq!(totals, [(10, 0), (20, 11), (30, 100), (40, 100), (45, 99)]);
        assert_eq!(count, 9);
    }

    #[test]
    fn programs_that_start_ranks_are_known_by_their_names() {
        let launchers = ["mpiexec", "mpiexec.openmpi", "mpirun.mpich", "hydra_pmi_proxy", "orted", "srun"];
        assert!(launchers.into_iter().all(is_launcher));
        assert!(
            ["solver", "mpi_solver", "srun_test", "python3", ""].into_iter().all(|name| !is_launcher(name))
        );
    }
}
