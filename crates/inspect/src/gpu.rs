//! The CUDA memory of a run, as a library that was loaded into its processes recorded it.

use std::path::Path;

use floodmark_analyze::{DeviceAtFailure, FailedCall, GpuKind, GpuSummary, StatsFold};
use floodmark_event::{Filter, Kind, ProcessId, Tables};
use floodmark_store::{ScanProps, Source as _, Trace};
use floodmark_tail::gpu::{GPU_NOTE, GpuNote, GpuWay, TORCH_RESOURCE};

use crate::error::Result;
use crate::pass::{Columns, fold_over};
use crate::query::Query;

/// Kinds of memory that the driver allocates, beside that of devices.
const OTHERS: [Kind; 3] = [Kind::Managed, Kind::Pinned, Kind::Array];
/// What neither way can see.
const UNSEEN: &str = "contexts and what the driver allocates for itself are not recorded: they are the difference to what \
                      the device has in use";
/// What is not seen at the level of frameworks.
const UNSEEN_OTHERS: &str =
    "only what PyTorch's cache hands out is recorded (--gpu=all records the rest too)";
/// What interposed functions cannot see beside that.
const UNSEEN_CALLS: &str =
    "variables of modules, and calls that a library makes past dlsym and cuGetProcAddress, are not recorded";

/// Sums up what was recorded of the CUDA memory of processes. Frames are not named, which would take longer than all of
/// this.
///
/// # Errors
/// If the trace cannot be read.
pub fn gpu_summary(path: &Path) -> Result<GpuSummary> {
    let trace = Trace::open(path)?;
    let scan = trace.scan(&ScanProps::default())?;
    let notes = notes(scan.tables());
    if notes.is_empty() {
        return Ok(GpuSummary::default());
    }
    let fold = |kinds: &[Kind]| {
        let filter = Filter { kinds: Some(kinds.to_vec()), ..Filter::default() };
        let source = trace.scan(&Columns::Figures.scan(&filter))?;
        let name = path.display().to_string();
        fold_over(Box::new(source), &name, &Query::new(filter, &()), StatsFold::default())
    };
    let stats = fold(&[Kind::Device])?.answer.result;
    let others = fold(&OTHERS)?.answer.result;
    let other = |kind: Kind| {
        let of_kind = || others.ledgers.iter().filter(move |ledger| ledger.kind == kind);
        GpuKind {
            kind,
            allocations: of_kind().map(|ledger| ledger.allocations).sum(),
            live_bytes: of_kind().map(|ledger| ledger.live_bytes).sum(),
        }
    };
    let failures =
        |stats: &floodmark_analyze::Stats| stats.ledgers.iter().map(|ledger| ledger.failures).sum::<u64>();
    Ok(GpuSummary {
        ways: ways(&notes),
        allocations: stats.allocations,
        frees: stats.frees,
        failures: failures(&stats) + failures(&others),
        peak_bytes: stats.peak_bytes,
        peak_time_ns: stats.peak_time_ns,
        live_bytes: stats.live_bytes,
        live_blocks: stats.live_blocks,
        others: OTHERS.map(other).into_iter().filter(|other| other.allocations > 0).collect(),
        remarks: remarks(&notes),
    })
}

/// A note of a recorder, its number and its name.
type Note = (GpuNote, u32, String);

/// What the recorders of CUDA memory said about themselves, each once.
fn notes(tables: &Tables) -> Vec<Note> {
    let frames = (0..tables.counts().1 as u32).map(|id| tables.frame(id));
    let notes = frames.filter(|frame| tables.string(frame.function) == GPU_NOTE);
    let note = |frame: floodmark_event::tables::Frame| {
        let note = GpuNote::from_text(tables.string(frame.file))?;
        Some((note, frame.line, tables.string(frame.module).to_owned()))
    };
    let mut notes: Vec<Note> = notes.filter_map(note).collect();
    notes.sort();
    notes.dedup();
    notes
}

fn has(notes: &[Note], wanted: GpuNote) -> bool {
    notes.iter().any(|(note, _, _)| *note == wanted)
}

fn ways(notes: &[Note]) -> Vec<String> {
    let ways = [
        (GpuNote::Cupti, GpuWay::Cupti.name()),
        (GpuNote::Preload, GpuWay::Preload.name()),
        (GpuNote::Torch, TORCH_RESOURCE),
    ];
    let used = ways.into_iter().filter(|(note, _)| has(notes, *note));
    used.map(|(_, way)| way.to_owned()).collect()
}

fn remarks(notes: &[Note]) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    for (note, line, name) in notes {
        let text = match note {
            GpuNote::Cupti | GpuNote::Preload | GpuNote::Torch | GpuNote::FreeAtFailure => continue,
            GpuNote::CuptiTaken if name.is_empty() => {
                format!("{}; start the command without it, or without --gpu", note.text())
            }
            GpuNote::CuptiFailed => format!("{} ({name}, error {line})", note.text()),
            GpuNote::CallbacksMissing => format!("{} ({line} are not recorded)", note.text()),
            _ if name.is_empty() => note.text().to_owned(),
            _ => format!("{} ({name})", note.text()),
        };
        if !remarks.contains(&text) {
            remarks.push(text);
        }
    }
    if has(notes, GpuNote::Preload) {
        remarks.push(UNSEEN_CALLS.to_owned());
    }
    if has(notes, GpuNote::Cupti) || has(notes, GpuNote::Preload) {
        remarks.push(UNSEEN.to_owned());
    } else if has(notes, GpuNote::Torch) {
        remarks.push(UNSEEN_OTHERS.to_owned());
    }
    remarks
}

/// How much memory the device had when an allocation failed, as the recorder in the process asked it then.
pub(crate) fn device_at(tables: &Tables, failure: &FailedCall) -> Option<DeviceAtFailure> {
    let process = tables.process(ProcessId(failure.process))?;
    let wanted = format!("{} {} {} ", process.pid, failure.device?, failure.kind.name());
    let notes = notes(tables);
    let (_, _, name) = notes.iter().find(|(note, number, name)| {
        *note == GpuNote::FreeAtFailure
            && u64::from(*number) == failure.number_in_domain
            && name.starts_with(&wanted)
    })?;
    let (free, total) = name[wanted.len()..].split_once(' ')?;
    Some(DeviceAtFailure { free_bytes: free.parse().ok()?, total_bytes: total.parse().ok()? })
}
