//! The heaps of a run, as a library that was loaded into its processes recorded them.

use std::collections::BTreeSet;
use std::path::Path;

use floodmark_analyze::{HeapSummary, StatsFold};
use floodmark_event::{Filter, Kind, Tables};
use floodmark_store::{ScanProps, Source as _, Trace};
use floodmark_tail::heap::{HEAP_NOTE, HeapNote};

use crate::error::Result;
use crate::pass::{Columns, fold_over};
use crate::query::Query;

/// Sums up what was recorded of the heaps of processes; none if no process recorded its heap. Frames are not named,
/// which would take longer than all of this.
///
/// # Errors
/// If the trace cannot be read.
pub fn heap_summary(path: &Path) -> Result<Option<HeapSummary>> {
    let trace = Trace::open(path)?;
    let filter = Filter { kinds: Some(vec![Kind::Pageable]), ..Filter::default() };
    let source = trace.scan(&Columns::Figures.scan(&filter))?;
    let name = path.display().to_string();
    let folded = fold_over(Box::new(source), &name, &Query::new(filter, &()), StatsFold::default())?;
    let stats = folded.answer.result;
    // A scan of all columns has the frames from its beginning.
    let scan = trace.scan(&ScanProps::default())?;
    let tables = scan.tables();
    let notes = notes(tables);
    if notes.is_empty() {
        return Ok(None);
    }
    let sampled = notes.iter().find(|(note, _)| *note == HeapNote::Sampled);
    let is_remark = |note: &HeapNote| !matches!(note, HeapNote::All | HeapNote::Sampled | HeapNote::Python);
    let mut remarks: Vec<String> =
        notes.iter().filter(|(note, _)| is_remark(note)).map(|(note, _)| note.text().to_owned()).collect();
    remarks.dedup();
    // A process that replaces its program begins anew.
    let pids = tables.processes.iter().map(|process| process.pid).filter(|pid| *pid != std::process::id());
    let pids: BTreeSet<u32> = pids.collect();
    Ok(Some(HeapSummary {
        pids: pids.into_iter().collect(),
        allocations: stats.allocations,
        frees: stats.frees,
        sample_period_bytes: sampled.map(|(_, bytes)| u64::from(*bytes)),
        peak_bytes: stats.peak_bytes,
        peak_time_ns: stats.peak_time_ns,
        live_bytes: stats.live_bytes,
        live_blocks: stats.live_blocks,
        remarks,
        not_recorded: Vec::new(),
    }))
}

/// What the recorders of heaps said about themselves, in the order of [`HeapNote::ALL`], each with its number.
fn notes(tables: &Tables) -> Vec<(HeapNote, u32)> {
    let frames = (0..tables.counts().1 as u32).map(|id| tables.frame(id));
    let notes = frames.filter(|frame| tables.string(frame.function) == HEAP_NOTE);
    let notes = notes.filter_map(|frame| Some((HeapNote::from_text(tables.string(frame.file))?, frame.line)));
    let mut notes: Vec<(HeapNote, u32)> = notes.collect();
    notes.sort_by_key(|(note, line)| (*note as u8, *line));
    notes
}
