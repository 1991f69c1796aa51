//! The list of everything a trace consists of.
//!
//! `manifest.json` is replaced atomically and is the only file of a trace that ever changes.
//! Invariants: a part is listed only once it is durable; the tail positions advance in the same
//! replacement that lists the parts holding what they passed, so every event is in exactly one
//! place; a file that is not listed does not count.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::dir;
use crate::error::{Error, Result};
use crate::process_ranges::ProcessRanges;
use crate::source::Losses;
use crate::table::Table;

/// Newest version of the format this crate reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 3;
/// Value of [`Manifest::format`].
pub const FORMAT_NAME: &str = "floodmark-trace";
/// Name of the manifest in the trace's directory.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Most bytes of a manifest that are read: a hundred times what a job of a week has.
const MAX_BYTES: u64 = 256 << 20;
/// Most parts of a trace. Every few million events make one.
const MAX_PARTS: usize = 1 << 18;

/// Everything a trace consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always [`FORMAT_NAME`].
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Grows with every replacement.
    pub revision: u64,
    /// What was recorded.
    pub run: Run,
    /// Monotonic clocks of the hosts, one per boot.
    pub clocks: Vec<Clock>,
    /// Processes, in the order of their ids.
    pub processes: Vec<ProcessEntry>,
    /// Parts, in the order in which they were written.
    pub parts: Vec<Part>,
    /// Events known to be missing, other than those counted by a process.
    pub losses: Losses,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Command that was recorded, if one was.
    pub command: Option<String>,
    /// Host, if known.
    pub host: Option<String>,
    /// User, if known.
    pub user: Option<String>,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub start_ns: Option<i64>,
    /// When it ended.
    pub end_ns: Option<i64>,
    /// How the command ended.
    pub exit_status: Option<i32>,
    /// Format the trace was imported from, if it was.
    pub imported_format: Option<String>,
    /// Files it was imported from.
    pub imported_files: Vec<String>,
    /// Id of the job whose agents recorded other nodes, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// Where a host's monotonic clock stands in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Boot of the host, hexadecimal.
    pub boot: String,
    /// Monotonic nanoseconds.
    pub monotonic_ns: u64,
    /// The same instant in UTC nanoseconds, as the host's own clock had it.
    pub utc_ns: i64,
    /// Host; empty if not known.
    #[serde(default)]
    pub host: String,
    /// Nanoseconds that times of this clock are corrected by, to agree with the reference clock of the
    /// trace. Rows have it added.
    #[serde(default)]
    pub offset_ns: i64,
    /// Nanoseconds by which the offset may be wrong; none where it was not measured.
    #[serde(default)]
    pub error_ns: Option<u64>,
}

impl Clock {
    /// Returns what to add to monotonic times for UTC on the reference clock of the trace.
    pub fn utc_offset_ns(&self) -> i64 {
        self.utc_ns.wrapping_sub(self.monotonic_ns as i64).wrapping_add(self.offset_ns)
    }
}

/// A process of the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEntry {
    /// Its id in the trace, from 1.
    pub id: u32,
    /// What the names of its tail files start with; empty if it has none.
    pub stem: String,
    /// Operating system's number; 0 if not known.
    pub pid: u32,
    /// Number of its parent; 0 if not known.
    pub parent_pid: u32,
    /// Host; empty if not known.
    pub host: String,
    /// Command line or name; empty if not known.
    pub command: String,
    /// When it began to record; 0 if not known.
    pub start_ns: i64,
    /// Boot whose clock it used; empty if its times are UTC.
    pub boot: String,
    /// How much of its tail is in parts, by lane.
    pub lanes: BTreeMap<u32, Position>,
    /// Events it could not record, by reason.
    pub losses: Losses,
    /// Whether nothing of its tail is left outside parts.
    pub sealed: bool,
    /// When it stopped to record, nanoseconds since 1970-01-01 UTC, as far as that was reported.
    #[serde(default)]
    pub end_ns: Option<i64>,
}

/// Up to where a lane is in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Chunk that is the next to read.
    pub sequence: u64,
    /// Records of that chunk which are in parts already.
    pub records: u64,
}

/// An immutable Parquet file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Table it belongs to, which is also its folder.
    pub table: String,
    /// File in that folder.
    pub file: String,
    /// Rows.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Earliest time in it; 0 for tables without time.
    pub min_time_ns: i64,
    /// Latest time in it.
    pub max_time_ns: i64,
    /// Parts with the same number follow one another in the order of this list, whatever their
    /// times; parts with different numbers are merged by time.
    pub order: u32,
    /// Processes whose rows are in it; not known if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<ProcessRanges>,
}

impl Manifest {
    /// Returns the manifest of an empty trace.
    pub fn new(run: Run) -> Self {
        Self {
            format: FORMAT_NAME.to_owned(),
            version: FORMAT_VERSION,
            revision: 0,
            run,
            clocks: Vec::new(),
            processes: Vec::new(),
            parts: Vec::new(),
            losses: Losses::default(),
        }
    }

    /// Reads the manifest of the trace at `trace`; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Incompatible`], [`Error::Corrupt`] or [`Error::Io`].
    pub fn load(trace: &Path) -> Result<Option<Self>> {
        let path = trace.join(MANIFEST_FILE);
        let file = match dir::open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("opening", &path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Error::io("reading", &path))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::corrupt(&path, format!("it has more than {} MiB", MAX_BYTES >> 20)));
        }
        Self::parse(&bytes, &path).map(Some)
    }

    /// Reads a manifest from its bytes.
    ///
    /// # Errors
    /// [`Error::Incompatible`] or [`Error::Corrupt`].
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        /// What every version has, read first so that a newer one is not called damaged.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let corrupt = |what: String| Error::Corrupt { path: path.to_owned(), what };
        let head: Head = serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
        if head.format != FORMAT_NAME {
            return Err(corrupt(format!("its format is called '{}'", head.format.escape_default())));
        }
        if head.version == 0 || head.version > FORMAT_VERSION {
            let (found, supported) = (head.version, FORMAT_VERSION);
            return Err(Error::Incompatible { path: path.to_owned(), found, supported });
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
        if manifest.parts.len() > MAX_PARTS {
            let parts = manifest.parts.len();
            return Err(corrupt(format!("it lists {parts} parts, and at most {MAX_PARTS} are allowed")));
        }
        for part in &manifest.parts {
            let plain = |name: &str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
            if !plain(&part.table) || !plain(&part.file) {
                return Err(corrupt(format!("it names the part '{}'", part.file.escape_default())));
            }
        }
        for (index, process) in manifest.processes.iter().enumerate() {
            if process.id as usize != index + 1 || process.stem.contains('/') {
                return Err(corrupt(format!("its process {} is out of place", index + 1)));
            }
        }
        Ok(manifest)
    }

    /// Writes the manifest as its file holds it.
    ///
    /// # Errors
    /// [`Error::Internal`] if it cannot be written as JSON.
    pub fn to_text(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| Error::Internal(error.to_string()))?;
        text.push(b'\n');
        Ok(text)
    }

    /// Replaces the manifest of the trace at `trace`. Whatever version it had, it has ours from now on:
    /// what is written beside it may be of tables that earlier versions do not know.
    ///
    /// # Errors
    /// [`Error::Io`]; the trace then has the manifest it had.
    pub fn save(&mut self, trace: &Path) -> Result<()> {
        let before = (self.revision, self.version);
        (self.revision, self.version) = (self.revision.wrapping_add(1), FORMAT_VERSION);
        let saved = self.to_text().and_then(|text| dir::replace(&trace.join(MANIFEST_FILE), &text));
        if saved.is_err() {
            (self.revision, self.version) = before;
        }
        saved
    }

    /// Sets how a clock compares with the reference clock, unless times of it are in parts already: then
    /// the offset stays, and only its error is taken over if the offset is the same.
    pub fn set_clock_offset(&mut self, boot: &str, offset_ns: i64, error_ns: Option<u64>) {
        let uses = |process: &ProcessEntry| process.boot == boot && !process.lanes.is_empty();
        let is_fixed = self.processes.iter().any(uses);
        if let Some(clock) = self.clocks.iter_mut().find(|clock| clock.boot == boot)
            && (!is_fixed || clock.offset_ns == offset_ns)
        {
            (clock.offset_ns, clock.error_ns) = (offset_ns, error_ns);
        }
    }

    /// Parts of one table, in order.
    pub fn parts_of<'a>(&'a self, table: &'a str) -> impl Iterator<Item = &'a Part> {
        self.parts.iter().filter(move |part| part.table == table)
    }

    /// Rows of a table that are in parts.
    pub fn rows_of(&self, table: Table) -> u64 {
        self.parts_of(table.name()).fold(0, |rows, part| rows.saturating_add(part.rows))
    }

    /// Everything known to be missing.
    pub fn all_losses(&self) -> Losses {
        let mut losses = self.losses.clone();
        for process in &self.processes {
            losses.extend(&process.losses);
        }
        losses
    }

    /// Number that no part's order has yet.
    pub fn next_order(&self) -> u32 {
        self.parts.iter().map(|part| part.order.saturating_add(1)).max().unwrap_or(0)
    }
}

impl Part {
    /// Path of the file in the trace at `trace`.
    pub fn path(&self, trace: &Path) -> PathBuf {
        trace.join(&self.table).join(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_are_incompatible_and_not_damaged() {
        let text = br#"{"format":"floodmark-trace","version":99,"shape":"new"}"#;
        let error = Manifest::parse(text, Path::new("m")).expect_err("too new");
        assert!(matches!(error, Error::Incompatible { found: 99, .. }), "{error}");
    }

    #[test]
    fn names_that_leave_the_trace_are_refused() {
        let mut manifest = Manifest::new(Run::default());
        let part = |file: &str| Part {
            table: "event".into(),
            file: file.into(),
            rows: 0,
            bytes: 0,
            min_time_ns: 0,
            max_time_ns: 0,
            order: 0,
            processes: None,
        };
        manifest.parts.push(part("part-000001.parquet"));
        let round = |manifest: &Manifest| {
            Manifest::parse(&serde_json::to_vec(manifest).expect("serializes"), Path::new("m"))
        };
        assert_eq!(round(&manifest).expect("fine"), manifest);
        manifest.parts.push(part("../../etc/passwd"));
        assert!(matches!(round(&manifest), Err(Error::Corrupt { .. })));
    }
}
