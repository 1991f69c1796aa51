//! Divides the processes of a job into shards of about the same number of rows.
//!
//! Everything that reads a job divides it in the same way: the division depends on the inputs and the number of shards
//! alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use floodmark_event::ProcessId;
use floodmark_store::{ScanProps, Table};

use crate::error::{Error, Result};
use crate::input::Input;

/// One of several parts of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the part, from 0.
    pub index: usize,
    /// Number of all parts.
    pub count: usize,
}

impl Shard {
    /// All of a job.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Reads `I/N`, as in `0/4` to `3/4`.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let numbers =
            text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index, count)) if index < count => Ok(Self { index, count }),
            _ => Err("write the number of the shard, from 0, and that of all, as in 0/4 to 3/4".to_owned()),
        }
    }
}

/// What a shard reads of one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPart {
    /// Index of the input.
    pub input: usize,
    /// Processes; all if none.
    pub processes: Option<Vec<ProcessId>>,
}

/// Returns what a shard reads of the inputs.
///
/// # Errors
/// If an input cannot be read.
pub fn plan(inputs: &[Input], shard: Shard) -> Result<Vec<ShardPart>> {
    if shard.count <= 1 {
        return Ok((0..inputs.len()).map(|input| ShardPart { input, processes: None }).collect());
    }
    let mut items: Vec<(u64, usize, Option<ProcessId>)> = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        match rows_by_process(input)? {
            Some(rows) => items.extend(rows.into_iter().map(|(id, rows)| (rows, at, Some(id)))),
            None => items.push((u64::MAX, at, None)),
        }
    }
    // The largest first, each to the shard that has least so far.
    items.sort_unstable_by_key(|(rows, input, process)| (Reverse(*rows), *input, *process));
    let mut loads = vec![0u64; shard.count];
    let mut own: BTreeMap<usize, Option<Vec<ProcessId>>> = BTreeMap::new();
    for (rows, input, process) in items {
        let least = (0..loads.len()).min_by_key(|at| loads[*at]).unwrap_or(0);
        loads[least] = loads[least].saturating_add(rows.clamp(1, u64::MAX / 1024));
        if least == shard.index {
            match process {
                None => _ = own.insert(input, None),
                Some(process) => {
                    if let Some(list) = own.entry(input).or_insert_with(|| Some(Vec::new())) {
                        list.push(process);
                    }
                }
            }
        }
    }
    Ok(own.into_iter().map(|(input, processes)| ShardPart { input, processes }).collect())
}

/// Returns the files of events that a shard reads of each input, relative to the trace; none of an input that is no
/// trace. Nothing of these files is read, so they need not be there yet.
///
/// # Errors
/// If an input cannot be read.
pub fn event_files(inputs: &[Input], shard: Shard) -> Result<Vec<Vec<String>>> {
    let mut files = vec![Vec::new(); inputs.len()];
    for part in plan(inputs, shard)? {
        let Some(trace) = inputs[part.input].trace() else { continue };
        let wanted = |id: ProcessId| part.processes.as_ref().is_none_or(|wanted| wanted.contains(&id));
        for file in trace.manifest().parts_of(Table::Event.name()) {
            if file.processes.as_ref().is_none_or(|ranges| ranges.ids().any(wanted)) {
                files[part.input].push(format!("{}/{}", Table::Event.name(), file.file));
            }
        }
    }
    Ok(files)
}

/// Rows of each process of a trace, as far as its manifest tells; none if the input cannot be divided.
fn rows_by_process(input: &Input) -> Result<Option<BTreeMap<ProcessId, u64>>> {
    let Some(trace) = input.trace() else { return Ok(None) };
    if trace.is_live() {
        return Err(Error::unsuitable(
            format!("{} is still being recorded", input.name()),
            "wait until it has ended: parts that are read at different times would not fit together",
        ));
    }
    let none = ScanProps { columns: Some(Vec::new()), ..ScanProps::default() };
    let scan = trace.scan(&none)?;
    let tables = floodmark_store::Source::tables(&scan);
    let mut rows: BTreeMap<ProcessId, u64> = tables.processes.iter().map(|process| (process.id, 0)).collect();
    for part in trace.manifest().parts_of(Table::Event.name()) {
        let Some(ranges) = &part.processes else { return Ok(None) };
        // Ranges may have ids that have no rows, but never lack one.
        let known: Vec<ProcessId> = ranges.ids().take(1 << 16).collect();
        let share = part.rows / (known.len() as u64).max(1);
        for id in known {
            *rows.entry(id).or_insert(0) += share.max(1);
        }
    }
    Ok((!rows.is_empty()).then_some(rows))
}
