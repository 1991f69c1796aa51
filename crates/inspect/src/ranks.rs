//! The ranks of a job side by side, and their memory over time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;

use floodmark_analyze::{LineLabels, RankMap, RankMemory, RankOutputFold, Ranks, RanksFold};
use floodmark_event::{OutputRow, SampleRow, StackSampleRow, SubjectKind};
use floodmark_store::{Losses, ScanProps, Trace};

use crate::answer::{Answer, Loss};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::plot::label;

/// Longest text that is read of the file which lists the ranks of a job.
const MOST_BYTES: u64 = 16 << 20;

/// The memory of ranks over time, to be drawn.
#[derive(Clone, Debug)]
pub struct RankPlot {
    /// The command that was recorded.
    pub title: String,
    /// What the rows are.
    pub rows: RankRows,
    /// The ranks over time; times count from `origin_ns`.
    pub map: RankMap,
    /// The rank that [`Input::ranks`] finds highest, with peaks between samples that the kernel knows.
    pub highest: Option<RankMemory>,
    /// Instant that times count from.
    pub origin_ns: i64,
    /// What is known to be missing.
    pub losses: Vec<Loss>,
}

/// What the rows of a [`RankPlot`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankRows {
    /// Ranks, with their resident memory.
    Ranks,
    /// Processes of a job, with their live bytes.
    Processes,
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
        let highest = fold.finish(Some(1)).rank_list.pop();
        Ok(RankPlot {
            title: label(&command),
            rows: RankRows::Ranks,
            map,
            highest,
            origin_ns,
            losses: losses.gaps,
        })
    }

    /// Returns the ranks of a job and their memory over time; none if there are fewer than two.
    pub(crate) fn several_ranks(&self, limit: usize) -> Result<Option<(Ranks, RankMap)>> {
        let Some(trace) = self.trace() else { return Ok(None) };
        let (fold, _) = match self.rank_fold(trace) {
            Ok(fold) => fold,
            Err(Error::NoContent { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let ranks = fold.finish(Some(limit));
        Ok(fold.map().filter(|map| map.ranks.len() > 1).map(|map| (ranks, map)))
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
        fold.expect(listed_ranks(trace));
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

/// Ranks that have recorded into a trace which they share, by `segments/job` and, until it is complete, `N.rank`.
fn listed_ranks(trace: &Trace) -> Vec<u64> {
    let segments = trace.path().join("segments");
    let mut text = String::new();
    if let Ok(file) = File::open(segments.join("job")) {
        // Text that cannot be read lists no ranks.
        let _ = file.take(MOST_BYTES).read_to_string(&mut text);
    }
    let listed = text.lines().nth(1).unwrap_or("").split(' ').filter_map(|rank| rank.parse().ok());
    let entries = std::fs::read_dir(segments).into_iter().flatten().flatten();
    let joined = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".rank")?.parse().ok());
    listed.chain(joined).collect()
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
