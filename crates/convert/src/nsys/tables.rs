//! Reads the three tables of a [`split`](super::split) side by side, in the order of time.
//!
//! Rows of pinned and pageable memory are passed over: the scripts count device memory. Rows of memory that
//! may be on either side are handed out and marked.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use floodmark_event::Action;
use floodmark_store::{Error, Result};

use super::Class;
use super::split::{HEADER, table_path};

const COLUMNS: usize = 8;

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// Global id of the process, as the table has it.
    pub process: String,
    /// Address of the block.
    pub address: u64,
    /// Nanoseconds since the capture began.
    pub time_ns: i64,
    /// Size.
    pub bytes: u64,
    /// Allocation or free.
    pub action: Action,
    /// Class of the table.
    pub class: Class,
    /// Whether the memory may be on the host: it is managed, or of a kind that is not known.
    pub is_uncertain: bool,
    /// Kind of memory, operation, variable, class and stack: what the scripts write behind the size.
    pub text: String,
}

/// The three tables of a split.
pub struct SplitTables {
    tables: Vec<Table>,
}

impl SplitTables {
    /// Opens the tables whose names begin with `prefix`.
    ///
    /// # Errors
    /// If a table cannot be opened, or its first row is malformed.
    pub fn open(prefix: &Path) -> Result<Self> {
        let open = |class| Table::open(table_path(prefix, class), class);
        Ok(Self { tables: Class::ALL.into_iter().map(open).collect::<Result<_>>()? })
    }

    /// Takes the next row. Of rows with equal times a free of a block that `is_live` goes first, then the
    /// tables are in the order of [`Class::ALL`].
    ///
    /// # Errors
    /// What is wrong with a table, by its line.
    pub fn next(&mut self, mut is_live: impl FnMut(&TableRow) -> bool) -> Result<Option<TableRow>> {
        let heads =
            || self.tables.iter().enumerate().filter_map(|(at, table)| Some((at, table.next.as_ref()?)));
        let Some(time_ns) = heads().map(|(_, row)| row.time_ns).min() else { return Ok(None) };
        let ties = || heads().filter(|(_, row)| row.time_ns == time_ns);
        let is_tie = ties().nth(1).is_some();
        let freed = ties().find(|(_, row)| is_tie && row.action == Action::Free && is_live(row));
        let Some((at, _)) = freed.or_else(|| ties().next()) else { return Ok(None) };
        let table = &mut self.tables[at];
        let next = table.read()?;
        Ok(std::mem::replace(&mut table.next, next))
    }
}

/// A table that is being read.
struct Table {
    path: PathBuf,
    class: Class,
    lines: BufReader<File>,
    line: u64,
    latest_ns: i64,
    next: Option<TableRow>,
}

impl Table {
    fn open(path: PathBuf, class: Class) -> Result<Self> {
        let file = File::open(&path).map_err(Error::io("opening", &path))?;
        let lines = BufReader::new(file);
        let mut table = Self { path, class, lines, line: 0, latest_ns: i64::MIN, next: None };
        table.next = table.read()?;
        Ok(table)
    }

    /// Reads the next row that counts.
    fn read(&mut self) -> Result<Option<TableRow>> {
        loop {
            let mut line = Vec::new();
            let count = self.lines.read_until(b'\n', &mut line).map_err(Error::io("reading", &self.path))?;
            if count == 0 {
                return Ok(None);
            }
            self.line += 1;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.trim().is_empty() || (self.line == 1 && line == HEADER) {
                continue;
            }
            if let Some(row) = self.row(line)? {
                return Ok(Some(row));
            }
        }
    }

    fn row(&mut self, line: &str) -> Result<Option<TableRow>> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [process, address, time, bytes, kind, operation, name, stack] = fields[..] else {
            let reason = format!("the line has {} fields, not {COLUMNS}", fields.len());
            return Err(self.malformed(&reason));
        };
        // An address is written as the signed number that the export has.
        let address = self.number::<i64>("address", address)? as u64;
        let time_ns = self.number("start_time", time)?;
        let bytes = self.number("bytes", bytes)?;
        if time_ns < self.latest_ns {
            return Err(self.malformed("it is earlier than the line before; sort the table by start_time"));
        }
        self.latest_ns = time_ns;
        let is_uncertain = match kind.strip_prefix(super::words::KIND_PREFIX).unwrap_or(kind) {
            "PINNED" | "PAGEABLE" => return Ok(None),
            "DEVICE" | "DEVICE_STATIC" | "ARRAY" => false,
            _ => true,
        };
        Ok(Some(TableRow {
            process: process.to_owned(),
            address,
            time_ns,
            bytes,
            action: if operation.ends_with("DEALLOCATION") { Action::Free } else { Action::Alloc },
            class: self.class,
            is_uncertain,
            text: format!("{kind}\t{operation}\t{name}\t{}\t{stack}", self.class as u8),
        }))
    }

    fn number<T: std::str::FromStr>(&self, name: &str, text: &str) -> Result<T> {
        text.parse().map_err(|_| {
            let text = crate::quote::quoted(text.as_bytes());
            self.malformed(&format!("{name} is {text}, not a whole number"))
        })
    }

    fn malformed(&self, reason: &str) -> Error {
        let place = format!("line {}", self.line);
        Error::Malformed { path: self.path.clone(), place, reason: reason.to_owned() }
    }
}
