//! Reads rows of a table in order: sealed parts and unsealed tail look the same.
//!
//! A table is a set of *runs*, each in order by itself: the parts of one import, those of one group of
//! processes in one sealing, the tail. Runs are merged by time, at equal times in the order of the list.
//! Where their times do not overlap whole batches pass through untouched. Where they do, as those of
//! processes that ran at the same time, the order of some thousand rows is found by a stable sort of their
//! times, which for a few sequences that are in order is a merge without unpredictable branches, and the rows
//! are then gathered column by column. (A heap of the runs' next rows costs four times as much as decoding
//! them.) Within a run rows keep their order even if their times do not: the order of a log is the order
//! in which things happened.
//!
//! The event table comes by columns and is a [`Source`]; other tables come as vectors of rows, and all
//! of them as Arrow record batches ([`Trace::record_batches`](crate::Trace::record_batches)).

pub(crate) mod batch;
mod cursor;
mod part_run;

mod props;
mod run;

use std::cmp::Reverse;
use std::sync::Arc;

use floodmark_event::{EventBatch, Tables};
use rustc_hash::FxHashMap;

use self::batch::Batch;
pub use self::cursor::ScanCursor;
use self::cursor::ScanPlan;
use self::part_run::{PartRow, PartRun, ReadContext, Tally};

pub use self::props::ScanProps;
use self::run::{Rows, Run};
use crate::error::{Error, Result};
use crate::manifest::{Manifest, Part};
use crate::merge::{EventChunks, TailMerge, TailRows};
use crate::part::PartFiles;
use crate::planned::Planned;
use crate::registry::Registry;
use crate::rows::TableRow;
use crate::source::{Losses, Progress, Source};

/// Reason for rows that a later version wrote.
const UNKNOWN_WORDS: &str = "they have words that this version of Floodmark does not know";

/// Rows that are planned at once, as a multiple of a full batch.
const PLANNED_BATCHES: usize = 4;
/// Share of a full batch that is handed out as it is, without more being gathered.
const WHOLE_SHARE: usize = 8;

/// The rows of a table of a trace, in order: its events, unless another table is named.
pub struct Scan<B: Batch = EventBatch> {
    layout: B::Layout,
    runs: Vec<Run<B>>,
    /// Runs that were not read from, the next one last: the earliest time of its rows, and its index.
    waiting: Vec<(i64, usize)>,
    /// Runs that are being read, in the order of their indexes.
    open: Vec<usize>,
    /// Rows of the open runs that come next.
    planned: Planned,
    /// What went wrong after rows that were handed out.
    failure: Option<Error>,
    registry: Registry,
    props: ScanProps,
    losses: Losses,
    tally: Tally,
    total: u64,
    plan: ScanPlan,
    event_chunks: EventChunks,
}

/// What a scan reads at one moment.
pub(crate) struct ScanInput {
    pub(crate) files: PartFiles,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) registry: Registry,
    pub(crate) tail: Option<TailMerge>,
}

impl<B: Batch> Scan<B> {
    /// Reads from the beginning, or from a position; `None` if that does not fit.
    pub(crate) fn new(
        input: ScanInput,
        layout: B::Layout,
        props: ScanProps,
        from: Option<&ScanCursor>,
    ) -> Option<Self> {
        let ScanInput { files, manifest, registry, tail } = input;
        let mut orders: Vec<(u32, Vec<&Part>)> = Vec::new();
        let mut at: FxHashMap<u32, usize> = FxHashMap::default();
        for part in manifest.parts_of(B::table(&layout).name()) {
            let at = *at.entry(part.order).or_insert(orders.len());
            if at == orders.len() {
                orders.push((part.order, Vec::new()));
            }
            orders[at].1.push(part);
        }
        let wanted = || orders.iter().flat_map(|(_, parts)| parts).filter(|part| props.wants_part(part));
        let total = wanted().fold(0u64, |rows, part| rows.saturating_add(part.rows));
        let plan = ScanPlan::new(&orders, from)?;
        let mut runs: Vec<Run<B>> = Vec::new();
        for (of, (_, parts)) in orders.into_iter().enumerate() {
            let cursor = from.and_then(|from| from.run(of));
            let is_wanted = parts.iter().any(|part| props.wants_part(part));
            if !is_wanted || cursor.is_some_and(|cursor| cursor.is_ended) {
                continue;
            }
            // Rows of an import may come before its first row in time, but are read after it.
            let earliest_ns = parts.iter().map(|part| part.min_time_ns).min().unwrap_or(i64::MIN);
            let (next, sorts_ns) =
                cursor.map_or((PartRow::default(), earliest_ns), |cursor| (cursor.next, cursor.sorts_ns));
            let parts = parts.into_iter().cloned().collect();
            let rows = Rows::Parts(Box::new(PartRun::new(files.clone(), parts, next)));
            runs.push(Run::new(rows, Some(of), next, sorts_ns));
        }
        if let Some(tail) = tail {
            let rows = Rows::Tail(Box::new((tail, TailRows::default())));
            runs.push(Run::new(rows, None, PartRow::default(), i64::MIN));
        }
        let mut waiting: Vec<(i64, usize)> =
            runs.iter().enumerate().map(|(index, run)| (run.next_ns(), index)).collect();
        waiting.sort_unstable_by_key(|head| Reverse(*head));
        Some(Self {
            layout,
            runs,
            waiting,
            open: Vec::new(),
            planned: Planned::default(),
            failure: None,
            registry,
            props,
            losses: manifest.all_losses(),
            tally: Tally::default(),
            total,
            plan,
            event_chunks: EventChunks::default(),
        })
    }

    /// Reads the next batch of a run; `false` at its end.
    fn refill(&mut self, index: usize) -> Result<bool> {
        let run = &mut self.runs[index];
        let mut context = ReadContext {
            layout: &self.layout,
            props: &self.props,
            registry: &mut self.registry,
            tally: &mut self.tally,
        };
        if run.refill(&mut context)? {
            return Ok(true);
        }
        if let Rows::Tail(tail) = &mut run.rows {
            self.losses.extend(&tail.0.losses);
            self.event_chunks = tail.0.event_chunks();
        }
        self.plan.end(run.of, run.cursor());
        run.batch = B::default();
        Ok(false)
    }

    /// Starts to read a run.
    fn open_run(&mut self, index: usize) {
        let at = self.open.partition_point(|open| *open < index);
        self.open.insert(at, index);
    }

    /// Time at which the next row of an open run sorts, and the run's index.
    fn head(&self, index: usize) -> (i64, usize) {
        (self.runs[index].next_ns(), index)
    }

    /// Sees to it that every open run has rows, and opens those that may have the next one.
    fn fill(&mut self) -> Result<()> {
        loop {
            let mut at = 0;
            while let Some(index) = self.open.get(at).copied() {
                if !self.runs[index].is_empty() {
                    at += 1;
                } else if !self.refill(index)? {
                    self.open.remove(at);
                }
            }
            let first = self.open.iter().map(|index| self.head(*index)).min();
            match self.waiting.last() {
                Some(head) if first.is_none_or(|first| *head < first) => {
                    let index = head.1;
                    self.waiting.pop();
                    self.open_run(index);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Plans rows of the open runs, all of which have some.
    fn plan_rows(&mut self) {
        let most = (PLANNED_BATCHES * B::full_rows(&self.layout) / self.open.len()).max(1);
        let Some((from_ns, _)) = self.open.iter().map(|index| self.head(*index)).min() else { return };
        let last_ns = self.planned.begin(self.open.len(), most, from_ns);
        // Up to here all rows are known. Equal times go in the order of the runs.
        let bounds = self.open.iter().map(|index| (self.runs[*index].bound_ns(most), *index));
        let bounds = bounds.chain(self.waiting.last().copied()).chain([(last_ns, usize::MAX)]);
        let Some(bound) = bounds.min() else { return };
        for index in &self.open {
            let (start, sorts_ns) = self.runs[*index].pass(most, |sorts_ns| (sorts_ns, *index) <= bound);
            self.planned.add(*index, start, sorts_ns);
        }
        self.planned.sort();
    }

    /// Appends planned rows to `out` until it is full.
    fn hand_out(&mut self, out: &mut B, full: usize) {
        let Some((picks, last_ns)) = self.planned.take(full - out.len()) else { return };
        let sources = self.planned.runs();
        let tail = sources.iter().position(|index| self.runs[*index].of.is_none());
        let has_tail_rows = tail.is_some_and(|tail| picks.iter().any(|pick| pick.source as usize == tail));
        let batches: Vec<&B> = sources.iter().map(|index| &self.runs[*index].batch).collect();
        out.gather(&batches, &picks);
        self.plan.hand_out(picks.len(), last_ns, has_tail_rows);
        self.planned.reuse(picks);
    }

    /// Replaces the rows of `out` by the next ones; `false` at the end.
    pub(crate) fn next_batch(&mut self, out: &mut B) -> Result<bool> {
        out.clear();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let full = B::full_rows(&self.layout);
        loop {
            self.hand_out(out, full);
            if out.len() >= full {
                return Ok(true);
            }
            match self.fill() {
                Err(failure) if out.len() > 0 => {
                    self.failure = Some(failure);
                    return Ok(true);
                }
                filled => filled?,
            }
            let Some((_, first)) = self.open.iter().map(|index| self.head(*index)).min() else {
                return Ok(out.len() > 0);
            };
            let others = self.open.iter().filter(|index| **index != first).map(|index| self.head(*index));
            let second = others.chain(self.waiting.last().copied()).min();
            let run = &mut self.runs[first];
            let last_ns = run.bound_ns(usize::MAX);
            if run.has_whole(full / WHOLE_SHARE) && second.is_none_or(|second| (last_ns, first) < second) {
                // What was gathered goes out before, so that the batch need not be copied.
                if out.len() == 0 {
                    run.pass_whole(out);
                    self.plan.hand_out(out.len(), last_ns, run.of.is_none());
                }
                return Ok(true);
            }
            self.plan_rows();
        }
    }

    pub(crate) fn registry_tables(&self) -> &Tables {
        &self.registry.tables
    }

    pub(crate) fn all_losses(&self) -> Losses {
        let mut losses = self.losses.clone();
        losses.extend(self.registry.remarks());
        if self.tally.unknown > 0 {
            losses.add(self.tally.unknown, UNKNOWN_WORDS);
        }
        losses
    }

    fn rows_read(&self) -> Progress {
        Progress { done: self.tally.done, total: Some(self.total) }
    }
}

impl Scan {
    /// Which chunks of the tail hold nothing but events. Known at the end.
    pub fn event_chunks(&self) -> &EventChunks {
        &self.event_chunks
    }
}

impl Source for Scan {
    fn tables(&self) -> &Tables {
        self.registry_tables()
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        self.next_batch(batch)
    }

    fn losses(&self) -> Losses {
        self.all_losses()
    }

    fn progress(&self) -> Progress {
        self.rows_read()
    }
}

impl<T: TableRow> Scan<Vec<T>> {
    /// What ids in the rows point to. Grows while rows are read.
    pub fn tables(&self) -> &Tables {
        self.registry_tables()
    }

    /// Replaces `rows` by the next ones; `false` at the end, with `rows` empty.
    ///
    /// # Errors
    /// If the trace cannot be read on; what came before stays good.
    pub fn next(&mut self, rows: &mut Vec<T>) -> Result<bool> {
        self.next_batch(rows)
    }

    /// What is known to be missing from the rows so far.
    pub fn losses(&self) -> Losses {
        self.all_losses()
    }

    /// How far reading has come.
    pub fn progress(&self) -> Progress {
        self.rows_read()
    }
}
