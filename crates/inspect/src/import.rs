//! Imports foreign files into a trace.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use floodmark_convert::{OpenProps, device_of, group_devices};
use floodmark_event::{
    CallRow, LogRow, OutputRow, ProcessId, Row, SampleRow, ScopeRow, StackId, StackSampleRow, Tables,
};
use floodmark_store::{IdMap, Losses, Overwrite, RowSource, Run, ScanProps, TraceWriter, is_trace};
use serde::Serialize;

use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::info::file_bytes;
use crate::input::{Input, is_stdin};
use crate::pass::each_batch;
use crate::progress::ProgressListener;

/// What became of files that were imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The trace.
    pub trace: String,
    /// Events in it.
    pub events: u64,
    /// Samples in it.
    pub samples: u64,
    /// Calls and returns in it.
    pub calls: u64,
    /// Processes they belong to.
    pub processes: u64,
    /// Bytes of the imported files; none if one is a pipe.
    pub bytes_in: Option<u64>,
    /// Bytes of the trace.
    pub bytes_out: u64,
    /// The imported files.
    pub files: Vec<String>,
}

/// How to import.
#[derive(Debug)]
pub struct ImportProps {
    /// Path of the trace.
    pub trace: PathBuf,
    /// Whether an existing trace may be replaced.
    pub overwrite: Overwrite,
    /// How to read the files.
    pub open: OpenProps,
}

/// Imports `files` into one trace. Nothing is left behind if that fails.
///
/// # Errors
/// If a file is a trace already or cannot be read, or the trace cannot be written.
pub fn import(
    files: &[PathBuf],
    props: &ImportProps,
    progress: &dyn ProgressListener,
) -> Result<Answer<Imported>> {
    if let Some(trace) = files.iter().find(|file| is_trace(file)) {
        let message = format!("{} is a trace already", trace.display());
        return Err(Error::unsuitable(message, "every command takes it as it is"));
    }
    let mut importer: Option<Importer<'_>> = None;
    let mut numbers = ProcessNumbers::default();
    for (file, group) in files.iter().zip(group_devices(files)) {
        let process = match &importer {
            None => numbers.first_of(group, &Tables::default()),
            Some(importer) => numbers.first_of(group, &importer.tables),
        };
        let input = Input::open(file, &OpenProps { process, ..props.open.clone() })?;
        match &mut importer {
            Some(importer) => importer.writer.next_sequence()?,
            None => importer = Some(Importer::create(files, &input, props, progress)?),
        }
        if let Some(importer) = &mut importer {
            importer.add(&input)?;
        }
    }
    match importer {
        Some(importer) => importer.finish(files, props),
        None => Err(Error::unsuitable("there is nothing to import", "name a file")),
    }
}

/// A trace that is being written.
struct Importer<'a> {
    writer: TraceWriter,
    tables: Tables,
    losses: Losses,
    events: u64,
    samples: u64,
    calls: u64,
    progress: &'a dyn ProgressListener,
}

impl<'a> Importer<'a> {
    fn create(
        files: &[PathBuf],
        first: &Input,
        props: &ImportProps,
        progress: &'a dyn ProgressListener,
    ) -> Result<Self> {
        let format = file_bytes(first.path()).map(|_| first.format_name().to_owned());
        let run = Run {
            imported_format: format,
            imported_files: files.iter().map(|file| file.display().to_string()).collect(),
            ..Run::default()
        };
        Ok(Self {
            writer: TraceWriter::create(&props.trace, run, props.overwrite)?,
            tables: Tables::default(),
            losses: Losses::default(),
            events: 0,
            samples: 0,
            calls: 0,
            progress,
        })
    }

    fn add(&mut self, input: &Input) -> Result<()> {
        let contents = input.contents();
        if contents.has_events {
            let mut source = input.events(&ScanProps::default())?;
            let mut ids = IdMap::default();
            let Self { writer, tables, events, .. } = self;
            each_batch(source.as_mut(), input.name(), self.progress, |batch, own| {
                *events += batch.len() as u64;
                if batch.stack.same() == Some(StackId(0)) {
                    writer.write(batch, own)?;
                } else {
                    let mut batch = batch.clone();
                    ids.remap_stacks(&mut batch, own, tables);
                    writer.write(&batch, own)?;
                }
                Ok::<_, Error>(ControlFlow::Continue(()))
            })?;
            self.losses.extend(&source.losses());
            IdMap::merge_names(source.tables(), &mut self.tables);
        }
        if contents.has_rows {
            let mut source = input.rows(&ScanProps::default())?;
            self.add_rows(source.as_mut(), input.name())?;
            self.losses.extend(&source.losses());
        }
        Ok(())
    }

    fn add_rows(&mut self, source: &mut dyn RowSource, name: &str) -> Result<()> {
        self.progress.started(name);
        let (mut rows, mut ids) = (Vec::new(), IdMap::default());
        while source.next(&mut rows)? {
            self.progress.advanced(name, source.progress());
            let mut by_table = RowsByTable::default();
            for mut row in rows.drain(..) {
                ids.remap_row(&mut row, source.tables(), &mut self.tables);
                match row {
                    Row::Scope(row) => by_table.scopes.push(row),
                    Row::Sample(row) => by_table.samples.push(row),
                    Row::Output(row) => by_table.output.push(row),
                    Row::Stack(row) => by_table.stacks.push(row),
                    Row::Log(row) => by_table.logs.push(row),
                    Row::Call(row) => by_table.calls.push(row),
                }
            }
            self.samples += by_table.samples.len() as u64;
            self.calls += by_table.calls.len() as u64;
            self.writer.write_rows(&by_table.scopes, &self.tables)?;
            self.writer.write_rows(&by_table.samples, &self.tables)?;
            self.writer.write_rows(&by_table.output, &self.tables)?;
            self.writer.write_rows(&by_table.stacks, &self.tables)?;
            self.writer.write_rows(&by_table.logs, &self.tables)?;
            self.writer.write_rows(&by_table.calls, &self.tables)?;
        }
        IdMap::merge_names(source.tables(), &mut self.tables);
        Ok(())
    }

    fn finish(self, files: &[PathBuf], props: &ImportProps) -> Result<Answer<Imported>> {
        let Self { writer, tables, losses, events, samples, calls, .. } = self;
        let trace = props.trace.display().to_string();
        let manifest = writer.finish(&tables, &losses)?;
        let imported = Imported {
            trace: trace.clone(),
            events,
            samples,
            calls,
            processes: manifest.processes.len() as u64,
            bytes_in: files.iter().map(|file| file_bytes(file)).sum(),
            bytes_out: manifest.parts.iter().map(|part| part.bytes).sum(),
            files: manifest.run.imported_files,
        };
        Ok(Answer::new(trace, &losses, imported))
    }
}

/// Numbers of processes: a file may hold several, and files of one group share theirs.
#[derive(Default)]
struct ProcessNumbers(HashMap<ProcessId, ProcessId>);

impl ProcessNumbers {
    /// Number of a group's first process; `tables` has the processes of all files so far.
    fn first_of(&mut self, group: ProcessId, tables: &Tables) -> ProcessId {
        let taken = tables.processes.iter().map(|process| process.id.0).max().unwrap_or(0);
        *self.0.entry(group).or_insert(ProcessId(taken + 1))
    }
}

/// Rows sorted into the tables they belong to.
#[derive(Default)]
struct RowsByTable {
    scopes: Vec<ScopeRow>,
    samples: Vec<SampleRow>,
    output: Vec<OutputRow>,
    stacks: Vec<StackSampleRow>,
    logs: Vec<LogRow>,
    calls: Vec<CallRow>,
}

/// Returns where the trace of a file goes unless the user says otherwise: beside the file.
///
/// # Errors
/// If the file is standard input, which has no name.
pub fn default_trace(file: &Path) -> Result<PathBuf> {
    if is_stdin(file) {
        return Err(Error::unsuitable(
            "standard input has no name to call the trace by",
            "add -o NAME.flood",
        ));
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let device = device_of(file).map_or_else(String::new, |device| format!(".dev{device}"));
    let stem = stem.strip_suffix(&device).filter(|stem| !stem.is_empty()).unwrap_or(&stem);
    Ok(file.with_file_name(format!("{stem}.flood")))
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
