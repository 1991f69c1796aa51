//! Reads rows of a table in order: sealed parts and unsealed tail look the same.
//!
//! A table is a set of *runs*, each in order by itself: the parts of one import, those of one group of
//! processes in one sealing, the tail. Runs are merged by time, at equal times in the order of the list.
//! Where their times do not overlap whole batches pass through untouched; where they do, as those of
//! processes that ran at the same time, batches are filled from all of them, column by column. Within a
//! run rows keep their order even if their times do not: the order of a log is the order in which things
//! happened.
//!
//! The event table comes by columns and is a [`Source`]; other tables come as vectors of rows, and all
//! of them as Arrow record batches ([`Trace::record_batches`](crate::Trace::record_batches)).

pub(crate) mod batch;
mod cursor;
mod part_run;
mod props;
mod run;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use floodmark_event::{EventBatch, RowRange, Tables};
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
use crate::registry::Registry;
use crate::rows::TableRow;
use crate::source::{Losses, Progress, Source};

/// Reason for rows that a later version wrote.
const UNKNOWN_WORDS: &str = "they have words that this version of Floodmark does not know";

/// The rows of a table of a trace, in order: its events, unless another table is named.
pub struct Scan<B: Batch = EventBatch> {
    layout: B::Layout,
    runs: Vec<Run<B>>,
    /// Runs that may have more rows: the time at which the next row sorts, and the run's index.
    heads: BinaryHeap<Reverse<(i64, usize)>>,
    /// Rows of the runs' batches that come next and were not copied yet.
    picked: Picked,
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

/// Rows of several batches, in order.
#[derive(Default)]
struct Picked {
    ranges: Vec<RowRange>,
    rows: usize,
    /// Runs that the ranges are of.
    runs: Vec<usize>,
    /// Index in `runs`, plus one, of every run.
    sources: Vec<u32>,
}

impl Picked {
    fn new(runs: usize) -> Self {
        Self { sources: vec![0; runs], ..Self::default() }
    }

    fn add(&mut self, run: usize, start: usize, len: usize) {
        if self.sources[run] == 0 {
            self.runs.push(run);
            self.sources[run] = self.runs.len() as u32;
        }
        let source = self.sources[run] - 1;
        self.ranges.push(RowRange { source, start: start as u32, len: len as u32 });
        self.rows += len;
    }

    fn clear(&mut self) {
        self.ranges.clear();
        self.runs.drain(..).for_each(|run| self.sources[run] = 0);
        self.rows = 0;
    }
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
        for (of, (order, parts)) in orders.into_iter().enumerate() {
            let cursor = from.and_then(|from| from.run(order));
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
        let picked = Picked::new(runs.len());
        let heads = runs.iter().enumerate().map(|(index, run)| Reverse((run.key_ns(), index))).collect();
        Some(Self {
            layout,
            runs,
            heads,
            picked,
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

    /// Time and index of the head that comes after the first.
    fn second_head(&self) -> Option<(i64, usize)> {
        // The two below the top of a binary heap.
        self.heads.as_slice().iter().skip(1).take(2).map(|Reverse(head)| *head).min()
    }

    /// Copies the picked rows to `out`.
    fn copy_picked(&mut self, out: &mut B) {
        if self.picked.rows > 0 {
            let sources: Vec<&B> = self.picked.runs.iter().map(|run| &self.runs[*run].batch).collect();
            out.append_rows(&sources, &self.picked.ranges);
            self.picked.clear();
        }
    }

    /// Replaces the rows of `out` by the next ones; `false` at the end.
    pub(crate) fn next_batch(&mut self, out: &mut B) -> Result<bool> {
        out.clear();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let full = B::full_rows(&self.layout);
        while let Some(Reverse((_, first))) = self.heads.peek().copied() {
            if self.runs[first].is_empty() {
                // Picked rows are of batches that are replaced now.
                self.copy_picked(out);
                match self.refill(first) {
                    Ok(true) => self.set_first_head(first),
                    Ok(false) => drop(self.heads.pop()),
                    Err(failure) if out.len() > 0 => {
                        self.failure = Some(failure);
                        return Ok(true);
                    }
                    Err(failure) => return Err(failure),
                }
                continue;
            }
            // Equal times go in the order of the runs.
            let second = self.second_head();
            let comes_first = |time_ns| second.is_none_or(|second| (time_ns, first) < second);
            let run = &mut self.runs[first];
            let rows = out.len() + self.picked.rows;
            let whole_ns = run.whole_ns().filter(|_| run.batch.len() >= full / 2);
            if let Some(last_ns) = whole_ns.filter(|last_ns| comes_first(*last_ns)) {
                if rows > 0 {
                    break;
                }
                run.pass_whole(out);
                self.plan.hand_out(run.of, out.len(), last_ns);
                self.set_first_head(first);
                return Ok(true);
            }
            let (start, count, last_ns) = run.pass(full - rows, comes_first);
            self.plan.hand_out(run.of, count, last_ns);
            self.picked.add(first, start, count);
            self.set_first_head(first);
            if rows + count >= full {
                break;
            }
        }
        self.copy_picked(out);
        Ok(out.len() > 0)
    }

    /// Gives the first head, which is of the run `first`, the time at which the next row sorts.
    fn set_first_head(&mut self, first: usize) {
        if let Some(mut head) = self.heads.peek_mut() {
            *head = Reverse((self.runs[first].key_ns(), first));
        }
    }

    pub(crate) fn registry_tables(&self) -> &Tables {
        &self.registry.tables
    }

    pub(crate) fn all_losses(&self) -> Losses {
        let mut losses = self.losses.clone();
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
