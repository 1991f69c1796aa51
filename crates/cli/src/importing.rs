//! Imports logs into a trace.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Result;
use floodmark_convert::{OpenProps, Opened, device_of, group_devices, open_any, recognize};
use floodmark_event::Row;
use floodmark_event::{LogRow, OutputRow, ProcessId, SampleRow, ScopeRow, StackId, StackSampleRow, Tables};
use floodmark_store::{IdMap, RowSource};
use floodmark_store::{Losses, Overwrite, Run, TraceWriter, is_trace};
use floodmark_view::{Imported, Report};

use crate::error::hinted;
use crate::pass::{each_batch, losses, opened};
use crate::printer::Printer;
use crate::progress::Bar;
use crate::whole_file::is_standard;

/// How to import.
#[derive(Debug)]
pub(crate) struct ImportProps {
    /// Where the trace goes.
    pub(crate) trace: PathBuf,
    /// Whether an existing one may be replaced.
    pub(crate) overwrite: Overwrite,
    /// How to read logs.
    pub(crate) reading: OpenProps,
}

/// Imports `logs` into one trace. Nothing is left behind if that fails.
pub(crate) fn import(logs: &[PathBuf], props: &ImportProps, printer: &Printer) -> Result<Report<Imported>> {
    let trace = props.trace.display().to_string();
    let mut writer = TraceWriter::create(&props.trace, origin(logs)?, props.overwrite)?;
    let mut tables = Tables::default();
    let mut lost = Losses::default();
    let (mut events, mut samples) = (0, 0);
    let mut numbers = Numbers::default();
    for (at, (log, group)) in logs.iter().zip(group_devices(logs)).enumerate() {
        if at > 0 {
            writer.next_sequence()?;
        }
        let process = numbers.of(group, &tables);
        let name = log.display().to_string();
        let opened = opened(log, open_any(log, &OpenProps { process, ..props.reading.clone() }))?;
        let (source, seen) = match opened {
            Opened::Events(source) => (Some(source), None),
            Opened::Samples(seen) => (None, Some(seen)),
            Opened::Both(source, seen) => (Some(source), Some(seen)),
        };
        if let Some(mut source) = source {
            let mut ids = IdMap::default();
            each_batch(source.as_mut(), &name, printer, |batch, own| {
                events += batch.len() as u64;
                if batch.stack.same() == Some(StackId(0)) {
                    writer.write(batch, own)?;
                } else {
                    let mut batch = batch.clone();
                    ids.remap_stacks(&mut batch, own, &mut tables);
                    writer.write(&batch, own)?;
                }
                Ok(ControlFlow::Continue(()))
            })?;
            lost.extend(&source.losses());
            IdMap::merge_names(source.tables(), &mut tables);
        }
        if let Some(mut seen) = seen {
            samples += import_samples(seen.as_mut(), &name, &mut writer, &mut tables, printer)?;
            lost.extend(&seen.losses());
        }
    }
    let manifest = writer.finish(&tables, &lost)?;
    let imported = Imported {
        trace: trace.clone(),
        events,
        samples,
        processes: manifest.processes.len() as u64,
        bytes_in: logs.iter().map(|log| file_bytes(log)).sum(),
        bytes_out: manifest.parts.iter().map(|part| part.bytes).sum(),
        files: manifest.run.imported_files,
    };
    Ok(Report::new(trace, losses(&lost), imported))
}

/// Numbers of processes: a log may hold several, and logs of one group share theirs.
#[derive(Default)]
struct Numbers(HashMap<ProcessId, ProcessId>);

impl Numbers {
    /// Number of a group's first process; `tables` has the processes of all logs so far.
    fn of(&mut self, group: ProcessId, tables: &Tables) -> ProcessId {
        let taken = tables.processes.iter().map(|process| process.id.0).max().unwrap_or(0);
        *self.0.entry(group).or_insert(ProcessId(taken + 1))
    }
}

/// Where the trace of a log goes unless the user says otherwise: beside the log.
pub(crate) fn default_trace(log: &Path) -> Result<PathBuf> {
    if is_standard(log) {
        return Err(hinted("standard input has no name to call the trace by", "add -o NAME.flood"));
    }
    let stem = log.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let device = device_of(log).map_or_else(String::new, |device| format!(".dev{device}"));
    let stem = stem.strip_suffix(&device).filter(|stem| !stem.is_empty()).unwrap_or(&stem);
    Ok(log.with_file_name(format!("{stem}.flood")))
}

/// Bytes of a file; none of what can be read only once.
pub(crate) fn file_bytes(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// What the format of a file is called; none of what can be read only once.
pub(crate) fn format_name(path: &Path) -> Result<Option<&'static str>> {
    let format = file_bytes(path).map(|_| recognize(path)).transpose()?;
    Ok(format.map(floodmark_convert::Format::name))
}

/// What the trace says of where it comes from.
fn origin(logs: &[PathBuf]) -> Result<Run> {
    if let Some(trace) = logs.iter().find(|log| is_trace(log)) {
        let message = format!("{} is a trace already", trace.display());
        return Err(hinted(message, "every command takes it as it is"));
    }
    let mut formats = logs.iter().filter_map(|log| format_name(log).transpose());
    Ok(Run {
        imported_format: formats.next().transpose()?.map(str::to_owned),
        imported_files: logs.iter().map(|log| log.display().to_string()).collect(),
        ..Run::default()
    })
}

/// Rows on their way to the tables they belong to.
#[derive(Default)]
struct Sorted {
    scopes: Vec<ScopeRow>,
    samples: Vec<SampleRow>,
    output: Vec<OutputRow>,
    stacks: Vec<StackSampleRow>,
    logs: Vec<LogRow>,
}

/// Writes all rows of `source`; returns how many samples there were.
fn import_samples(
    source: &mut dyn RowSource,
    name: &str,
    writer: &mut TraceWriter,
    tables: &mut Tables,
    printer: &Printer,
) -> Result<u64> {
    let mut bar = Bar::new(name, printer);
    let (mut rows, mut ids, mut samples) = (Vec::new(), IdMap::default(), 0);
    while source.next(&mut rows)? {
        bar.update(source.progress());
        let mut sorted = Sorted::default();
        for mut row in rows.drain(..) {
            ids.remap_row(&mut row, source.tables(), tables);
            match row {
                Row::Scope(row) => sorted.scopes.push(row),
                Row::Sample(row) => sorted.samples.push(row),
                Row::Output(row) => sorted.output.push(row),
                Row::Stack(row) => sorted.stacks.push(row),
                Row::Log(row) => sorted.logs.push(row),
            }
        }
        samples += sorted.samples.len() as u64;
        writer.write_rows(&sorted.scopes, tables)?;
        writer.write_rows(&sorted.samples, tables)?;
        writer.write_rows(&sorted.output, tables)?;
        writer.write_rows(&sorted.stacks, tables)?;
        writer.write_rows(&sorted.logs, tables)?;
    }
    IdMap::merge_names(source.tables(), tables);
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_called_after_their_first_log() {
        for (log, trace) in [
            ("a/memory_log.csv", "a/memory_log.flood"),
            ("memory_log.dev0.csv", "memory_log.flood"),
            ("log.dev12", "log.flood"),
            ("log", "log.flood"),
            (".dev0", ".dev0.flood"),
        ] {
            assert_eq!(default_trace(Path::new(log)).unwrap(), Path::new(trace), "{log}");
        }
        assert!(default_trace(Path::new("-")).is_err());
    }
}
