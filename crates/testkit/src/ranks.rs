//! Samples of an MPI job of any size, as recorders on its nodes would write them.

use floodmark_event::tables::Process;
use floodmark_event::{Metric, ProcessId, SampleRow, SubjectKind, SubjectRow, Tables};

use crate::random::Random;

const MIB: u64 = 1 << 20;
const START_NS: i64 = 1_700_000_000_000_000_000;

/// A job in which every rank grows to about 1 GiB and some ranks to more.
#[derive(Clone, Copy, Debug)]
pub struct RankJob {
    /// Number of ranks.
    pub ranks: u64,
    /// Ranks of a node.
    pub ranks_per_node: u64,
    /// Number of sweeps, 100 ms apart.
    pub sweeps: u64,
    /// Rank that grows to twice as much as the others.
    pub highest: u64,
}

impl RankJob {
    /// Processes and subjects: for every node a recorder, a job and a process per rank.
    pub fn tables(&self) -> Tables {
        let mut tables = Tables::default();
        for node in 0..self.nodes() {
            let id = ProcessId(node as u32 + 1);
            tables.processes.push(Process {
                id,
                pid: 1000,
                host: format!("node{node:03}"),
                command: "floodmark agent".to_owned(),
                start_ns: START_NS,
                ..Process::default()
            });
            let mut add = |subject: SubjectRow| tables.subjects.insert(subject.subject, subject);
            add(SubjectRow::new(Self::job(node), SubjectKind::Job, 0, "solver"));
            for rank in self.ranks_of(node) {
                let process =
                    SubjectRow::new(self.subject(rank), SubjectKind::Process, 2000 + rank, "solver");
                add(SubjectRow { start_ns: Some(START_NS), ..process });
            }
        }
        tables
    }

    /// Yields the samples of one sweep.
    pub fn sweep(&self, number: u64) -> Vec<SampleRow> {
        let time_ns = START_NS + number as i64 * 100_000_000;
        let mut rows = Vec::new();
        for node in 0..self.nodes() {
            let mut total = 0;
            for rank in self.ranks_of(node) {
                let subject = self.subject(rank);
                if number == 0 {
                    rows.push(SampleRow { time_ns, subject, metric: Metric::Rank, value: rank });
                }
                let value = self.bytes(rank, number);
                total += value;
                rows.push(SampleRow { time_ns, subject, metric: Metric::Rss, value });
            }
            // A tenth of it is shared, and counts once.
            let value = total - total / 10;
            rows.push(SampleRow { time_ns, subject: Self::job(node), metric: Metric::Pss, value });
        }
        rows
    }

    /// Resident bytes of a rank in a sweep: it grows until three quarters of the run, and then shrinks.
    pub fn bytes(&self, rank: u64, sweep: u64) -> u64 {
        let mut random = Random::new(rank * 7919 + 1);
        let most = 1000 * MIB + random.below(48) * MIB + if rank == self.highest { 1024 * MIB } else { 0 };
        let turn = (self.sweeps * 3 / 4).max(1);
        if sweep <= turn {
            return 50 * MIB + (most - 50 * MIB) / turn * sweep;
        }
        most - most / 4 * (sweep - turn) / (self.sweeps - turn).max(1)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        self.ranks.div_ceil(self.ranks_per_node)
    }

    fn ranks_of(&self, node: u64) -> std::ops::Range<u64> {
        node * self.ranks_per_node..((node + 1) * self.ranks_per_node).min(self.ranks)
    }

    fn job(node: u64) -> u64 {
        (node + 1) << 32 | 1
    }

    fn subject(&self, rank: u64) -> u64 {
        let node = rank / self.ranks_per_node;
        (node + 1) << 32 | (2 + rank % self.ranks_per_node)
    }
}
