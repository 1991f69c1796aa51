//! Writing the parts of all tables of a trace, splitting them by process and where they get long.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use floodmark_event::{Column, EventBatch, ProcessId, RowPick, Tables};
use rustc_hash::FxHashMap;

use crate::blocks::LiveBlocks;
use crate::codec::AtRest;
use crate::error::Result;
use crate::manifest::{Manifest, Part};
use crate::merge::TailRows;
use crate::part::{PART_ROWS, PartWriter, next_number};
use crate::registry::Registry;
use crate::rows::{Columns, TableRow, to_records};
use crate::small_tables::{Definitions, devices, processes};
use crate::stages::{SealStage, stage};
use crate::table::{ROW_TABLES, Table};

/// Bytes of its tail from which a process gets parts of its own: about 100,000 events. Parts of fewer
/// would be many, and reading their footers would cost more than skipping them saves.
const GROUP_BYTES: u64 = 1 << 20;
/// Most groups of one sealing: each has open files and buffers.
const GROUPS: u64 = 32;

/// Which processes share parts. The rows of a group are a sequence of their own, with an `order` of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartGroups {
    /// Groups other than the first, by process.
    groups: FxHashMap<ProcessId, u32>,
    count: u32,
}

impl PartGroups {
    /// Groups processes by the bytes that each has in the tail: one with many is a group of its own,
    /// those with few share groups, neighbours together.
    pub(crate) fn by_size(sizes: &[(ProcessId, u64)]) -> Self {
        let total = sizes.iter().fold(0, |total: u64, (_, bytes)| total.saturating_add(*bytes));
        let least = GROUP_BYTES.max(total / GROUPS);
        let mut groups = Self::default();
        let mut shared: Option<(u32, u64)> = None;
        for (process, bytes) in sizes {
            let group = match shared {
                _ if *bytes >= least => groups.add(),
                Some((group, before)) if before < least => {
                    shared = Some((group, before + bytes));
                    group
                }
                _ => {
                    let group = groups.add();
                    shared = Some((group, *bytes));
                    group
                }
            };
            groups.groups.insert(*process, group);
        }
        groups
    }

    fn add(&mut self) -> u32 {
        self.count += 1;
        self.count - 1
    }

    fn of(&self, process: ProcessId) -> u32 {
        self.groups.get(&process).copied().unwrap_or(0)
    }

    /// Number of groups, at least one.
    fn len(&self) -> u32 {
        self.count.max(1)
    }
}

/// Earliest and latest of some times.
fn span(times: impl Iterator<Item = i64>) -> (i64, i64) {
    times.fold((i64::MAX, i64::MIN), |(from, to), time| (from.min(time), to.max(time)))
}

/// Writes parts that are not listed in a manifest yet.
pub(crate) struct PartsWriter {
    trace: PathBuf,
    /// Number of the next part, by table.
    numbers: BTreeMap<Table, u32>,
    groups: PartGroups,
    /// `order` of the first group's parts; those of the others follow.
    order: u32,
    done: Vec<Part>,
    open: BTreeMap<(u32, Table), PartWriter>,
}

impl PartsWriter {
    /// Writes parts into the trace at `trace` beside those of `manifest`.
    pub(crate) fn new(trace: &Path, manifest: &Manifest, groups: PartGroups) -> Self {
        let number = |table: Table| (table, next_number(manifest.parts.iter(), table.name()));
        Self {
            trace: trace.to_owned(),
            numbers: Table::ALL.into_iter().map(number).collect(),
            groups,
            order: manifest.next_order(),
            done: Vec::new(),
            open: BTreeMap::new(),
        }
    }

    /// Starts a new sequence: what follows is merged by time with what came before.
    pub(crate) fn next_order(&mut self) -> Result<()> {
        self.finish_open()?;
        self.order += self.groups.len();
        Ok(())
    }

    fn finish_open(&mut self) -> Result<()> {
        for ((group, _), writer) in std::mem::take(&mut self.open) {
            self.done.push(writer.finish(self.order + group)?);
        }
        Ok(())
    }

    fn create(&mut self, table: Table) -> Result<PartWriter> {
        let number = self.numbers.entry(table).or_insert(1);
        let writer = PartWriter::create(&self.trace, table, *number)?;
        *number = number.saturating_add(1);
        Ok(writer)
    }

    /// Returns the part of a table that rows of a group go to, and notes whose rows they are.
    fn part(
        &mut self,
        group: u32,
        table: Table,
        processes: impl Iterator<Item = ProcessId>,
    ) -> Result<&mut PartWriter> {
        let slot = (group, table);
        if self.open.get(&slot).is_some_and(|writer| writer.rows >= PART_ROWS)
            && let Some(writer) = self.open.remove(&slot)
        {
            self.done.push(writer.finish(self.order + group)?);
        }
        if !self.open.contains_key(&slot) {
            let writer = self.create(table)?;
            self.open.insert(slot, writer);
        }
        let writer = self.open.get_mut(&slot).expect("made above");
        processes.for_each(|process| writer.add_process(process));
        Ok(writer)
    }

    fn group_events(
        &mut self,
        group: u32,
        batch: &EventBatch,
        at_rest: &AtRest<'_>,
        blocks: &mut LiveBlocks,
    ) -> Result<()> {
        let rows = if let Column::Same(_) = batch.process { 1 } else { batch.len() };
        let processes = (0..rows).map(|row| batch.process.at(row));
        let ended = stage(SealStage::Match, || blocks.resolve(batch));
        let times = span((0..batch.len()).map(|row| batch.time_ns.at(row)));
        let part = self.part(group, Table::Event, processes)?;
        stage(SealStage::Encode, || part.write_events(batch, at_rest, &ended, times))
    }

    fn group_rows<T: TableRow>(&mut self, group: u32, rows: &[T], at_rest: &AtRest<'_>) -> Result<()> {
        let times = span(rows.iter().map(T::time_ns));
        let writer = self.part(group, T::TABLE, rows.iter().map(T::process))?;
        writer.write(&to_records(rows, at_rest), Some(times))
    }

    /// Appends events, whose frees end blocks of `blocks`.
    pub(crate) fn events(
        &mut self,
        batch: &EventBatch,
        at_rest: &AtRest<'_>,
        blocks: &mut LiveBlocks,
    ) -> Result<()> {
        if batch.is_empty() { Ok(()) } else { self.group_events(0, batch, at_rest, blocks) }
    }

    /// Appends rows of another table.
    pub(crate) fn rows<T: TableRow>(&mut self, rows: &[T], at_rest: &AtRest<'_>) -> Result<()> {
        if rows.is_empty() { Ok(()) } else { self.group_rows(0, rows, at_rest) }
    }

    /// Appends rows of all tables from the tail, each to the parts of its process. Stacks have the numbers of their
    /// process.
    pub(crate) fn tail(
        &mut self,
        rows: &mut TailRows,
        registry: &Registry,
        blocks: &mut LiveBlocks,
    ) -> Result<()> {
        self.tail_events(&rows.events, registry, blocks)?;
        ROW_TABLES.iter().try_for_each(|table| (table.write_tail)(self, rows, registry))
    }

    fn tail_events(
        &mut self,
        batch: &EventBatch,
        registry: &Registry,
        blocks: &mut LiveBlocks,
    ) -> Result<()> {
        let at_rest = registry.at_rest_with_own_stacks();
        if self.groups.len() == 1 {
            return self.events(batch, &at_rest, blocks);
        }
        let mut picks: BTreeMap<u32, Vec<RowPick>> = BTreeMap::new();
        for row in 0..batch.len() {
            let group = self.groups.of(batch.process.at(row));
            picks.entry(group).or_default().push(RowPick { source: 0, row: row as u32 });
        }
        for (group, picks) in picks {
            let mut rows = EventBatch::new();
            rows.gather(&[batch], &picks);
            self.group_events(group, &rows, &at_rest, blocks)?;
        }
        Ok(())
    }

    /// Appends rows of one table from the tail, and leaves none of them.
    pub(crate) fn tail_rows<T: TableRow>(&mut self, rows: &mut Vec<T>, registry: &Registry) -> Result<()> {
        let mut groups: BTreeMap<u32, Vec<T>> = BTreeMap::new();
        for row in rows.drain(..) {
            groups.entry(self.groups.of(row.process())).or_default().push(row);
        }
        groups
            .into_iter()
            .try_for_each(|(group, rows)| self.group_rows(group, &rows, &registry.at_rest_with_own_stacks()))
    }

    /// Writes definitions, each table as a part of its own.
    pub(crate) fn definitions(&mut self, definitions: &Definitions, tables: &Tables) -> Result<()> {
        self.whole(&definitions.strings, tables)?;
        self.whole(&definitions.frames, tables)?;
        self.whole(&definitions.stacks, tables)
    }

    /// Writes rows of a small table as one part.
    fn whole<T: Columns>(&mut self, rows: &[T], tables: &Tables) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut writer = self.create(T::TABLE)?;
        writer.write(&to_records(rows, &AtRest::of_tables(tables)), None)?;
        self.done.push(writer.finish(self.order)?);
        Ok(())
    }

    /// Completes all parts. The tables of `anew`, of processes, subjects or devices, are written as a whole
    /// and replace earlier ones, whose files are deleted once they are not listed any more.
    pub(crate) fn finish(
        mut self,
        anew: &[Table],
        manifest: &mut Manifest,
        tables: &Tables,
    ) -> Result<Vec<Part>> {
        self.finish_open()?;
        for table in anew {
            match table {
                Table::Process => self.whole(&processes(manifest), tables)?,
                Table::Device => self.whole(&devices(tables), tables)?,
                _ => self.whole(&tables.subjects.values().cloned().collect::<Vec<_>>(), tables)?,
            }
            manifest.parts.retain(|part| part.table != table.name());
        }
        Ok(self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(sizes: &[u64]) -> (Vec<u32>, u32) {
        let sizes: Vec<_> = (1..).map(ProcessId).zip(sizes.iter().copied()).collect();
        let groups = PartGroups::by_size(&sizes);
        (sizes.iter().map(|(process, _)| groups.of(*process)).collect(), groups.len())
    }

    #[test]
    fn large_processes_have_groups_of_their_own_and_small_ones_share() {
        let large = 4 * GROUP_BYTES;
        assert_eq!(groups(&[]), (vec![], 1));
        assert_eq!(groups(&[10]), (vec![0], 1));
        assert_eq!(groups(&[10, large, 20, large, 30]), (vec![0, 1, 0, 2, 0], 3));
        let half = GROUP_BYTES / 2;
        assert_eq!(groups(&[half; 5]), (vec![0, 0, 1, 1, 2], 3));
    }

    #[test]
    fn the_number_of_groups_is_bounded_however_many_processes_there_are() {
        for sizes in [vec![100; 10_000], vec![GROUP_BYTES; 1_000], (0..3_000).map(|n| n * 1000).collect()] {
            let (_, count) = groups(&sizes);
            assert!(u64::from(count) <= GROUPS + 1, "{count}");
        }
    }
}
