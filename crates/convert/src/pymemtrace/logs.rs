//! Writes a log for each thread, named as pymemtrace names them: `20241107_195847_0_62264_62270_P_0.log`.
//!
//! A log of pymemtrace is about one thread and does not say which, so a trace of several threads becomes several logs. Its
//! names end with the version of Python, which a trace does not have.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use floodmark_event::units::{Date, NS_PER_DAY};
use floodmark_event::{CallRow, ProcessId, Tables};

use super::write::CallText;

/// Text that is kept back until it is written, so that no file has to stay open.
const KEPT_BYTES: usize = 64 << 10;

struct CallLog {
    path: PathBuf,
    layout: CallText,
    text: String,
}

impl CallLog {
    /// Writes what was kept back.
    fn flush(&mut self) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        file.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(())
    }
}

/// Writes logs into a folder.
pub struct CallLogs {
    folder: PathBuf,
    trigger_bytes: u64,
    replaces: bool,
    logs: HashMap<(ProcessId, u64), CallLog>,
}

impl CallLogs {
    /// Makes the folder if there is none. Only events at which resident memory changed by `trigger_bytes` are written, with
    /// the one before each; all if 0. Files that exist are an error unless `replaces`.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn create(folder: &Path, trigger_bytes: u64, replaces: bool) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), trigger_bytes, replaces, logs: HashMap::new() })
    }

    /// Writes a row to the log of its thread.
    ///
    /// # Errors
    /// The file, and why it cannot be written.
    pub fn row(&mut self, row: &CallRow, tables: &Tables) -> Result<(), (PathBuf, io::Error)> {
        let number = self.logs.len();
        let log = match self.logs.entry((row.process, row.thread)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let pid = tables.process(row.process).map_or(0, |process| process.pid);
                let path = self.folder.join(name(row, number, pid));
                let mut options = OpenOptions::new();
                options.write(true).create(true).create_new(!self.replaces).truncate(true);
                options.open(&path).map_err(|error| (path.clone(), error))?;
                let layout = CallText::new(self.trigger_bytes);
                let text = layout.header();
                entry.insert(CallLog { path, layout, text })
            }
        };
        log.text += &log.layout.row(row, tables);
        if log.text.len() >= KEPT_BYTES {
            log.flush().map_err(|error| (log.path.clone(), error))?;
        }
        Ok(())
    }

    /// Ends all logs and returns their paths.
    ///
    /// # Errors
    /// The file, and why it cannot be written.
    pub fn finish(self) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let mut paths = Vec::with_capacity(self.logs.len());
        for mut log in self.logs.into_values() {
            log.text += log.layout.end();
            log.flush().map_err(|error| (log.path.clone(), error))?;
            paths.push(log.path);
        }
        paths.sort();
        Ok(paths)
    }
}

/// Name of the log that begins with a row: time in UTC, number of the log, process, thread, sort of tracer, depth.
fn name(row: &CallRow, number: usize, pid: u32) -> String {
    let Date { year, month, day } = Date::from_epoch_days(row.time_ns.div_euclid(NS_PER_DAY));
    let seconds = row.time_ns.rem_euclid(NS_PER_DAY) / 1_000_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let thread = row.thread;
    format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}_{number}_{pid}_{thread}_P_0.log")
}
