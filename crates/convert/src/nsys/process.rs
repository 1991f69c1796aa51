//! The analyses of the scripts that came first, on the three tables of a [`split`](super::split).
//!
//! The tables are read side by side, in the order of time; only live blocks are held. Device memory is
//! counted: rows of pinned and pageable memory are passed over, and those of memory that may be on either
//! side are counted and told.
//!
//! A free is charged to the class of the allocation that it ends. A free of a block that was never seen,
//! and a block whose address is allocated again, are counted and told, and never end the analysis.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use floodmark_store::{Error, Result};

use super::Class;
use super::split::{HEADER, table_path};

/// What to find out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Analysis {
    /// What was live at the highest total.
    #[default]
    Watermark,
    /// The total over time.
    Usage,
    /// What was live at the end.
    Leakage,
}

/// Whether a table begins with the names of its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// It does.
    #[default]
    Yes,
    /// It does not.
    No,
}

/// Bytes of each class, in the order of [`Class::ALL`].
pub type Totals = [u64; 3];

/// What was found out, beside what was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processed {
    /// Totals at the highest total, or at the end.
    pub totals: Totals,
    /// When the highest total was reached, in nanoseconds since the capture began.
    pub peak_time_ns: Option<i64>,
    /// Rows written.
    pub rows: u64,
    /// Bytes whose stacks pass through MPI, among the rows written.
    pub mpi_bytes: u64,
    /// Rows of memory that may be on either side: managed, or of a kind that is not known.
    pub uncertain: u64,
    /// Frees of blocks that were never seen allocated.
    pub unmatched_frees: u64,
    /// Blocks whose address was allocated again before they were freed.
    pub replaced: u64,
    /// Frees that name another size than their allocation.
    pub size_mismatches: u64,
}

/// Libraries of MPI that allocate.
const MPI: [&str; 2] = ["openmpi", "libToolsInjectionOpenMPI64"];
const COLUMNS: usize = 8;

/// Reads the tables of `prefix` and writes the rows of `analysis` to `output`.
///
/// # Errors
/// What is wrong with a table, by its line, or with writing.
pub fn process(prefix: &Path, output: &Path, analysis: Analysis, header: Header) -> Result<Processed> {
    let mut tables = Vec::new();
    // At equal times in this order, but for frees of what is live.
    for class in Class::ALL {
        tables.push(Table::open(table_path(prefix, class), class)?);
    }
    let file = File::create(output).map_err(Error::io("writing", output))?;
    let mut run = Run {
        out: BufWriter::new(file),
        path: output,
        analysis,
        live: HashMap::new(),
        since_peak: Vec::new(),
        order: 0,
        peak_order: 0,
        totals: [0; 3],
        peak: [0; 3],
        first_ns: None,
        latest_ns: None,
        found: Processed::default(),
    };
    if header == Header::Yes {
        run.line(match analysis {
            Analysis::Usage => "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)",
            _ => "address\tstart_time\tbytes\tmemkind\tmem_op_type\tvar_name\ttrace_type\tstack",
        })?;
    }
    loop {
        let heads = || tables.iter().enumerate().filter_map(|(at, table)| Some((at, table.next.as_ref()?)));
        let Some(time_ns) = heads().map(|(_, row)| row.time_ns).min() else { break };
        let ties = || heads().filter(|(_, row)| row.time_ns == time_ns);
        let is_tie = ties().nth(1).is_some();
        let freed = ties().find(|(_, row)| is_tie && run.is_free_of_live(row));
        let Some((at, _)) = freed.or_else(|| ties().next()) else { break };
        let Some(row) = tables[at].take()? else { break };
        run.take(row)?;
    }
    run.finish()
}

/// A row of a table.
#[derive(Clone, Debug)]
struct Row {
    process: String,
    address: String,
    time_ns: i64,
    bytes: u64,
    kind: String,
    operation: String,
    name: String,
    stack: String,
    class: Class,
}

impl Row {
    /// A block is its process and address.
    fn key(&self) -> (String, String) {
        (self.process.clone(), self.address.clone())
    }

    fn is_free(&self) -> bool {
        self.operation.ends_with("DEALLOCATION")
    }
}

/// A table that is being read.
struct Table {
    path: PathBuf,
    class: Class,
    lines: BufReader<File>,
    line: u64,
    next: Option<Row>,
}

impl Table {
    fn open(path: PathBuf, class: Class) -> Result<Self> {
        let file = File::open(&path).map_err(Error::io("opening", &path))?;
        let mut table = Self { path, class, lines: BufReader::new(file), line: 0, next: None };
        table.next = table.read()?;
        Ok(table)
    }

    /// Returns the next row and reads the one behind it.
    fn take(&mut self) -> Result<Option<Row>> {
        let next = self.read()?;
        if let (Some(row), Some(next)) = (&self.next, &next)
            && next.time_ns < row.time_ns
        {
            return Err(self.malformed("it is earlier than the line before; sort the table by start_time"));
        }
        Ok(std::mem::replace(&mut self.next, next))
    }

    fn read(&mut self) -> Result<Option<Row>> {
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
            return self.row(line).map(Some);
        }
    }

    fn row(&self, line: &str) -> Result<Row> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [process, address, time, bytes, kind, operation, name, stack] = fields[..] else {
            let reason = format!("the line has {} fields, not {COLUMNS}", fields.len());
            return Err(self.malformed(&reason));
        };
        let bad = |name: &str, text: &str| {
            self.malformed(&format!(
                "{name} is {}, not a whole number",
                crate::quote::quoted(text.as_bytes())
            ))
        };
        Ok(Row {
            process: process.to_owned(),
            address: address.to_owned(),
            time_ns: time.parse().map_err(|_| bad("start_time", time))?,
            bytes: bytes.parse().map_err(|_| bad("bytes", bytes))?,
            kind: kind.to_owned(),
            operation: operation.to_owned(),
            name: name.to_owned(),
            stack: stack.to_owned(),
            class: self.class,
        })
    }

    fn malformed(&self, reason: &str) -> Error {
        let place = format!("line {}", self.line);
        Error::Malformed { path: self.path.clone(), place, reason: reason.to_owned() }
    }
}

/// A live block.
struct Block {
    order: u64,
    row: Row,
}

struct Run<'a> {
    out: BufWriter<File>,
    path: &'a Path,
    analysis: Analysis,
    live: HashMap<(String, String), Block>,
    /// Blocks that were live at the peak and have ended since.
    since_peak: Vec<Block>,
    order: u64,
    /// Order of the allocation that made the peak.
    peak_order: u64,
    totals: Totals,
    peak: Totals,
    first_ns: Option<i64>,
    latest_ns: Option<i64>,
    found: Processed,
}

impl Run<'_> {
    fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.out, "{line}").map_err(Error::io("writing", self.path))
    }

    fn is_free_of_live(&self, row: &Row) -> bool {
        row.is_free() && self.live.contains_key(&row.key())
    }

    fn take(&mut self, row: Row) -> Result<()> {
        let kind = row.kind.strip_prefix(super::words::KIND_PREFIX).unwrap_or(&row.kind);
        match kind {
            "PINNED" | "PAGEABLE" => return Ok(()),
            "DEVICE" | "DEVICE_STATIC" | "ARRAY" => {}
            _ => self.found.uncertain += 1,
        }
        self.first_ns.get_or_insert(row.time_ns);
        if self.latest_ns.is_some_and(|latest| latest != row.time_ns) {
            self.usage()?;
        }
        self.latest_ns = Some(row.time_ns);
        let key = row.key();
        if row.is_free() {
            match self.live.remove(&key) {
                Some(block) => {
                    self.found.size_mismatches += u64::from(block.row.bytes != row.bytes);
                    self.end(block);
                }
                None => self.found.unmatched_frees += 1,
            }
            return Ok(());
        }
        if let Some(block) = self.live.remove(&key) {
            self.found.replaced += 1;
            self.end(block);
        }
        let total = &mut self.totals[row.class as usize];
        *total = total.saturating_add(row.bytes);
        self.order += 1;
        let time_ns = row.time_ns;
        self.live.insert(key, Block { order: self.order, row });
        if sum(&self.totals) > sum(&self.peak) {
            self.peak = self.totals;
            self.peak_order = self.order;
            self.found.peak_time_ns = Some(time_ns);
            self.since_peak.clear();
        }
        Ok(())
    }

    fn end(&mut self, block: Block) {
        let total = &mut self.totals[block.row.class as usize];
        *total = total.saturating_sub(block.row.bytes);
        if self.analysis == Analysis::Watermark && block.order <= self.peak_order {
            self.since_peak.push(block);
        }
    }

    /// Writes the totals after the latest time.
    fn usage(&mut self) -> Result<()> {
        let (Some(first_ns), Some(latest_ns)) = (self.first_ns, self.latest_ns) else { return Ok(()) };
        if self.analysis != Analysis::Usage {
            return Ok(());
        }
        self.found.rows += 1;
        let [valid, invalid, driver] = self.totals;
        let (time, total) = (latest_ns.saturating_sub(first_ns), sum(&self.totals));
        self.line(&format!("{time}\t{total}\t{valid}\t{invalid}\t{driver}"))
    }

    fn finish(mut self) -> Result<Processed> {
        self.usage()?;
        let mut blocks = std::mem::take(&mut self.since_peak);
        blocks.extend(std::mem::take(&mut self.live).into_values());
        if self.analysis == Analysis::Watermark {
            blocks.retain(|block| block.order <= self.peak_order);
        }
        blocks.sort_unstable_by_key(|block| block.order);
        self.found.totals = if self.analysis == Analysis::Watermark { self.peak } else { self.totals };
        if self.analysis != Analysis::Usage {
            for Block { row, .. } in &blocks {
                let Row { address, time_ns, bytes, kind, operation, name, stack, class, .. } = row;
                let class = *class as u8;
                self.line(&format!(
                    "{address}\t{time_ns}\t{bytes}\t{kind}\t{operation}\t{name}\t{class}\t{stack}"
                ))?;
                self.found.rows += 1;
                if MPI.iter().any(|library| stack.contains(library)) {
                    self.found.mpi_bytes = self.found.mpi_bytes.saturating_add(*bytes);
                }
            }
        }
        self.out.flush().map_err(Error::io("writing", self.path))?;
        Ok(self.found)
    }
}

/// Bytes of all classes.
pub fn sum(totals: &Totals) -> u64 {
    totals.iter().fold(0, |sum, total| sum.saturating_add(*total))
}
