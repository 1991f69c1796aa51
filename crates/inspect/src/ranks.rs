//! The ranks of a job side by side, and their memory over time.

use std::collections::BTreeMap;

use floodmark_analyze::{LineLabels, RankMap, RankOutputFold, Ranks, RanksFold};
use floodmark_event::{OutputRow, SampleRow, StackSampleRow, SubjectKind};
use floodmark_store::{Losses, ScanProps, Trace};

use crate::answer::{Answer, Loss};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::plot::label;

/// The memory of ranks over time, to be drawn.
#[derive(Clone, Debug)]
pub struct RankPlot {
    /// The command that was recorded.
    pub title: String,
    /// The ranks over time; times count from `origin_ns`.
    pub map: RankMap,
    /// Instant that times count from.
    pub origin_ns: i64,
    /// What is known to be missing.
    pub losses: Vec<Loss>,
}

impl Input {
    /// Compares the ranks of an MPI job; at most `limit` are listed at either end.
    ///
    /// # Errors
    /// If there are no ranks, or the trace is damaged.
    pub fn ranks(&self, limit: Option<usize>) -> Result<Answer<Ranks>> {
        let trace = self.trace().ok_or_else(|| self.no_ranks())?;
        let (fold, losses) = self.rank_fold(trace)?;
        let mut ranks = fold.finish(limit);
        ranks.origin_time_ns = self.origin_ns().or(ranks.first_time_ns);
        let mut lines = last_lines(trace, &fold, &ranks)?;
        for rank in ranks.rank_list.iter_mut().chain(&mut ranks.lowest) {
            rank.last_output = lines.remove(&rank.rank);
        }
        if let Some(highest) = ranks.rank_list.first()
            && let Some(mut stacks) = fold.peak_stack(highest.rank, highest.peak_time_ns)
        {
            let mut scan = trace.rows::<StackSampleRow>(&ScanProps::default())?;
            let mut rows = Vec::new();
            while scan.next(&mut rows)? {
                stacks.update(&rows, scan.tables());
            }
            ranks.peak_stack = stacks.finish(scan.tables());
        }
        Ok(Answer::new(self.name(), &losses, ranks))
    }

    /// Returns the memory of ranks over time.
    ///
    /// # Errors
    /// As [`ranks`](Self::ranks).
    pub fn rank_plot(&self) -> Result<RankPlot> {
        let trace = self.trace().ok_or_else(|| self.no_ranks())?;
        let (fold, losses) = self.rank_fold(trace)?;
        let map = fold.map().ok_or_else(|| self.no_ranks())?;
        let command = self.run().command.unwrap_or_else(|| self.name().to_owned());
        let origin_ns = self.origin_ns().unwrap_or(map.first_ns);
        Ok(RankPlot { title: label(&command), map, origin_ns, losses: losses.gaps })
    }

    fn rank_fold(&self, trace: &Trace) -> Result<(RanksFold, Losses)> {
        let processes = trace.manifest().processes.iter();
        let hosts: BTreeMap<u32, String> =
            processes.map(|process| (process.id, process.host.clone())).collect();
        let mut fold = RanksFold::new(&trace.subjects()?, &hosts);
        let mut scan = trace.rows::<SampleRow>(&ScanProps::default())?;
        let mut rows = Vec::new();
        while scan.next(&mut rows)? {
            fold.update(&rows);
        }
        fold.complete();
        if fold.is_empty() {
            return Err(self.no_ranks());
        }
        Ok((fold, scan.losses()))
    }

    fn no_ranks(&self) -> Error {
        Error::no_content(
            format!("{} contains no ranks of an MPI job", self.name()),
            "record one with 'floodmark run -- mpiexec -n 4 ./app' or 'mpiexec -n 4 floodmark run -- ./app'",
        )
    }
}

/// Finds the last line that each of the listed ranks wrote before its peak.
fn last_lines(trace: &Trace, fold: &RanksFold, ranks: &Ranks) -> Result<BTreeMap<u64, String>> {
    let listed = ranks.rank_list.iter().chain(&ranks.lowest);
    let peaks: Vec<(u64, i64)> = listed.map(|rank| (rank.rank, rank.peak_time_ns)).collect();
    let subjects = trace.subjects()?;
    let mut commands = subjects.values().filter(|subject| subject.kind == SubjectKind::Job);
    let labels = commands.find_map(|job| LineLabels::of_command(&job.detail));
    let labels = labels.or_else(|| LineLabels::of_command(trace.manifest().run.command.as_deref()?));
    let mut lines = RankOutputFold::new(&peaks, fold.wrapped_ranks(), labels);
    let mut scan = trace.rows::<OutputRow>(&ScanProps::default())?;
    let mut rows = Vec::new();
    while scan.next(&mut rows)? {
        lines.update(&rows);
    }
    Ok(lines.finish())
}
