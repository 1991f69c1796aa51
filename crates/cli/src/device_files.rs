//! Writes one RMM log per device, named as RMM for Python names them.
//!
//! Files appear under their names only once they are complete: until then they have others, which
//! go if anything fails. A log has no column for device and process, so events of several devices
//! never share a file and events of several processes are refused.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use floodmark_convert::rmm::{Dialect, Writer};
use floodmark_event::{EventBatch, ProcessId};
use floodmark_store::{Error, Losses};

use crate::error::hinted;
use crate::whole_file::{Overwrite, Unfinished, is_special, is_standard, refuse_existing};

/// A log that is being written.
struct Log {
    writer: Writer<Box<dyn Write>>,
    /// Where it is until it is complete; none for standard output.
    unfinished: Option<Unfinished>,
    events: u64,
}

/// A log that was written.
#[derive(Debug)]
pub(crate) struct Written {
    /// File, or none for standard output.
    pub(crate) path: Option<PathBuf>,
    /// Events in it.
    pub(crate) events: u64,
    /// What could not be written as it is.
    pub(crate) losses: Losses,
}

/// The logs of all devices.
pub(crate) struct DeviceFiles {
    output: PathBuf,
    dialect: Dialect,
    overwrite: Overwrite,
    process: Option<ProcessId>,
    logs: BTreeMap<i32, Log>,
}

impl DeviceFiles {
    /// Prepares to write to `output`; `-` is standard output.
    pub(crate) fn create(output: &Path, dialect: Dialect, overwrite: Overwrite) -> Result<Self> {
        refuse_existing(output, overwrite)?;
        if is_special(output) {
            return Err(hinted(
                format!("{} is no file, and a log may become several", output.display()),
                "write to a file, or with -o - to standard output",
            ));
        }
        Ok(Self { output: output.to_owned(), dialect, overwrite, process: None, logs: BTreeMap::new() })
    }

    /// Writes events, each to the log of its device.
    pub(crate) fn write(&mut self, batch: &EventBatch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        for event in batch.events() {
            if *self.process.get_or_insert(event.process) != event.process {
                return Err(hinted(
                    "a log cannot tell processes apart, and these events are of several",
                    "choose one, as in --process 1",
                ));
            }
        }
        if let Some(device) = batch.device.same() {
            return self.append(device, batch);
        }
        let mut by_device: BTreeMap<i32, EventBatch> = BTreeMap::new();
        batch.events().for_each(|event| by_device.entry(event.device).or_default().push(&event));
        by_device.iter().try_for_each(|(device, batch)| self.append(*device, batch))
    }

    fn append(&mut self, device: i32, batch: &EventBatch) -> Result<()> {
        if !self.logs.contains_key(&device) {
            let log = self.begin(device)?;
            self.logs.insert(device, log);
        }
        let Some(log) = self.logs.get_mut(&device) else { return Ok(()) };
        log.events += batch.len() as u64;
        Ok(log.writer.write(batch)?)
    }

    fn begin(&self, device: i32) -> Result<Log> {
        if is_standard(&self.output) {
            if !self.logs.is_empty() {
                return Err(hinted(
                    "standard output takes the log of one device, and these events are of several",
                    "choose one, as in --device 0, or write to a file",
                ));
            }
            let writer = Writer::new(Box::new(io::stdout()) as Box<dyn Write>, &self.output, self.dialect);
            return Ok(Log { writer, unfinished: None, events: 0 });
        }
        let unfinished = Unfinished::beside(&self.output, &format!(".{device}"));
        let path = unfinished.path();
        let file = File::create_new(path).map_err(Error::io("creating", path))?;
        let writer = Writer::new(Box::new(file) as Box<dyn Write>, path, self.dialect);
        Ok(Log { writer, unfinished: Some(unfinished), events: 0 })
    }

    /// Completes the logs and gives them their names.
    pub(crate) fn finish(mut self) -> Result<Vec<Written>> {
        if self.logs.is_empty() {
            // A log without events is a header.
            let log = self.begin(0)?;
            self.logs.insert(0, log);
        }
        let several = self.logs.len() > 1;
        let mut written = Vec::new();
        while let Some((device, log)) = self.logs.pop_first() {
            let Log { writer, unfinished, events } = log;
            let path = match &unfinished {
                Some(_) if several => Some(with_device(&self.output, device)),
                Some(_) => Some(self.output.clone()),
                None => None,
            };
            let losses = writer.finish()?;
            if let Some((unfinished, path)) = unfinished.zip(path.as_ref()) {
                unfinished.finish(path, self.overwrite)?;
            }
            written.push(Written { path, events, losses });
        }
        Ok(written)
    }
}

/// Puts `.devN` before the extension of a file.
fn with_device(path: &Path, device: i32) -> PathBuf {
    let mut name = path.file_stem().map_or_else(OsString::new, OsString::from);
    name.push(format!(".dev{device}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_go_where_rmm_puts_them() {
        for (path, named) in
            [("a/log.csv", "a/log.dev1.csv"), ("log", "log.dev1"), ("a.tar.gz", "a.tar.dev1.gz")]
        {
            let named_path = with_device(Path::new(path), 1);
            assert_eq!(named_path, Path::new(named));
            assert_eq!(floodmark_convert::device_of(&named_path), Some(1));
        }
    }
}
