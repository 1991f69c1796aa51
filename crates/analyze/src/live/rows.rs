//! The columns of a batch, laid out for reading row by row.
//!
//! Times, actions, addresses, sizes, threads and streams are slices with a value per row. What else describes a block is
//! [`Extras`]: in three forms, because in most sources no row differs from the next in any of it, or only in its
//! process, and the loop over rows is much shorter then.

use std::borrow::Cow;
use std::ops::Range;

use floodmark_event::{Action, Column, EventBatch, Kind, ProcessId, StackId, StringId};

use crate::change::Space;

/// A column that may or may not vary, read without asking for each row which it is.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a, T> {
    values: &'a [T],
    /// All ones for a column with a value per row, 0 for one with the same value for all.
    mask: usize,
}

impl<'a, T: Copy> Reader<'a, T> {
    fn new(column: &'a Column<T>, range: &Range<usize>) -> Self {
        match column {
            Column::Same(value) => Self { values: std::slice::from_ref(value), mask: 0 },
            Column::Each(values) => Self { values: &values[range.clone()], mask: usize::MAX },
        }
    }

    #[inline]
    pub(super) fn at(&self, row: usize) -> T {
        self.values[row & self.mask]
    }
}

/// A column with a value per row.
fn each<'a, T: Copy>(column: &'a Column<T>, range: &Range<usize>) -> Cow<'a, [T]> {
    match column {
        Column::Same(value) => Cow::Owned(vec![*value; range.len()]),
        Column::Each(values) => Cow::Borrowed(&values[range.clone()]),
    }
}

/// Columns with the same value for all rows, written out; kept from batch to batch.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenOut {
    thread: Vec<u64>,
    stream: Vec<u64>,
}

fn each_kept<'a>(column: &'a Column<u64>, range: &Range<usize>, kept: &'a mut Vec<u64>) -> &'a [u64] {
    match column {
        Column::Each(values) => &values[range.clone()],
        Column::Same(value) => {
            if kept.first() != Some(value) {
                kept.clear();
            }
            if kept.len() < range.len() {
                kept.resize(range.len(), *value);
            }
            &kept[..range.len()]
        }
    }
}

/// The columns that every event has and most events differ in.
pub(super) struct Rows<'a> {
    pub(super) time_ns: Cow<'a, [i64]>,
    pub(super) action: Cow<'a, [Action]>,
    pub(super) address: Cow<'a, [u64]>,
    pub(super) bytes: Cow<'a, [u64]>,
    pub(super) thread: &'a [u64],
    pub(super) stream: &'a [u64],
}

impl<'a> Rows<'a> {
    pub(super) fn new(batch: &'a EventBatch, range: &Range<usize>, kept: &'a mut WrittenOut) -> Self {
        Self {
            time_ns: each(&batch.time_ns, range),
            action: each(&batch.action, range),
            address: each(&batch.address, range),
            bytes: each(&batch.bytes, range),
            thread: each_kept(&batch.thread, range, &mut kept.thread),
            stream: each_kept(&batch.stream, range, &mut kept.stream),
        }
    }
}

/// The columns in which many sources never differ.
pub(super) trait Extras {
    /// Whether rows differ in their space.
    fn mixes_spaces(&self) -> bool;
    fn space(&self, row: usize) -> Space;
    fn kind(&self, row: usize) -> Kind;
    fn stack(&self, row: usize) -> StackId;
    fn name(&self, row: usize) -> StringId;
    fn scope(&self, row: usize) -> u64;
}

/// [`Extras`] that are the same for all rows.
pub(super) struct SameExtras {
    space: Space,
    kind: Kind,
    stack: StackId,
    name: StringId,
    scope: u64,
}

impl SameExtras {
    /// Returns them, if the form of the columns says that no row differs.
    pub(super) fn new(batch: &EventBatch) -> Option<Self> {
        Self::with_process(batch, batch.process.same()?)
    }

    /// The same for rows of whose processes this is one.
    fn with_process(batch: &EventBatch, process: ProcessId) -> Option<Self> {
        Some(Self {
            space: Space { process, device: batch.device.same()?, resource: batch.resource.same()? },
            kind: batch.kind.same()?,
            stack: batch.stack.same()?,
            name: batch.name.same()?,
            scope: batch.scope.same()?,
        })
    }
}

impl Extras for SameExtras {
    fn mixes_spaces(&self) -> bool {
        false
    }
    fn space(&self, _row: usize) -> Space {
        self.space
    }
    fn kind(&self, _row: usize) -> Kind {
        self.kind
    }
    fn stack(&self, _row: usize) -> StackId {
        self.stack
    }
    fn name(&self, _row: usize) -> StringId {
        self.name
    }
    fn scope(&self, _row: usize) -> u64 {
        self.scope
    }
}

/// [`Extras`] of rows that differ in their process alone, as those of processes that ran at the same time do.
pub(super) struct ProcessExtras<'a> {
    same: SameExtras,
    processes: &'a [ProcessId],
}

impl<'a> ProcessExtras<'a> {
    /// Returns them, if the form of the columns says that rows differ in nothing else.
    pub(super) fn new(batch: &'a EventBatch, range: &Range<usize>) -> Option<Self> {
        let Column::Each(processes) = &batch.process else { return None };
        let processes = &processes[range.clone()];
        Some(Self { same: SameExtras::with_process(batch, *processes.first()?)?, processes })
    }
}

impl Extras for ProcessExtras<'_> {
    #[inline]
    fn mixes_spaces(&self) -> bool {
        true
    }
    #[inline]
    fn space(&self, row: usize) -> Space {
        Space { process: self.processes[row], ..self.same.space }
    }
    fn kind(&self, _row: usize) -> Kind {
        self.same.kind
    }
    fn stack(&self, _row: usize) -> StackId {
        self.same.stack
    }
    fn name(&self, _row: usize) -> StringId {
        self.same.name
    }
    fn scope(&self, _row: usize) -> u64 {
        self.same.scope
    }
}

/// [`Extras`] of which some differ from row to row.
pub(super) struct EachExtras<'a> {
    process: Reader<'a, ProcessId>,
    device: Reader<'a, i32>,
    resource: Reader<'a, StringId>,
    kind: Reader<'a, Kind>,
    stack: Reader<'a, StackId>,
    name: Reader<'a, StringId>,
    scope: Reader<'a, u64>,
}

impl<'a> EachExtras<'a> {
    pub(super) fn new(batch: &'a EventBatch, range: &Range<usize>) -> Self {
        Self {
            process: Reader::new(&batch.process, range),
            device: Reader::new(&batch.device, range),
            resource: Reader::new(&batch.resource, range),
            kind: Reader::new(&batch.kind, range),
            stack: Reader::new(&batch.stack, range),
            name: Reader::new(&batch.name, range),
            scope: Reader::new(&batch.scope, range),
        }
    }
}

impl Extras for EachExtras<'_> {
    #[inline]
    fn mixes_spaces(&self) -> bool {
        (self.process.mask | self.device.mask | self.resource.mask) != 0
    }
    #[inline]
    fn space(&self, row: usize) -> Space {
        Space { process: self.process.at(row), device: self.device.at(row), resource: self.resource.at(row) }
    }
    #[inline]
    fn kind(&self, row: usize) -> Kind {
        self.kind.at(row)
    }
    #[inline]
    fn stack(&self, row: usize) -> StackId {
        self.stack.at(row)
    }
    #[inline]
    fn name(&self, row: usize) -> StringId {
        self.name.at(row)
    }
    #[inline]
    fn scope(&self, row: usize) -> u64 {
        self.scope.at(row)
    }
}
