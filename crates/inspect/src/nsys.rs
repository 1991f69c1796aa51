//! The analyses of the nsys scripts, on the three tables of a [`split`](floodmark_convert::nsys::split), written
//! as the scripts write them.
//!
//! Rows become events, and our folds find the answers. A free is charged to the class of the allocation that
//! it ends. Frees of unknown blocks and blocks whose address is allocated again are counted, and never end
//! the analysis.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use floodmark_analyze::{
    Block, BlockInfo, CaveatsFold, End, Fold, Level, Pass, Space, WatermarkFold, WatermarkOptions,
};
use floodmark_convert::nsys::tables::{SplitTables, TableRow};
use floodmark_event::units::Instant;
use floodmark_event::{Action, Event, EventBatch, Filter, Kind, NO_DEVICE, ProcessId, StringId, Tables};

use crate::error::Result;

/// What to find out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Analysis {
    /// Blocks live at the highest total.
    #[default]
    Watermark,
    /// Totals over time.
    Usage,
    /// Blocks live at the end.
    Leakage,
}

/// Whether the output begins with the names of its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// Names come first.
    #[default]
    Yes,
    /// Rows come first.
    No,
}

/// Bytes of each class, in the order of [`Class::ALL`](floodmark_convert::nsys::Class::ALL).
pub type ClassBytes = [u64; 3];

/// What was found out, besides what was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processed {
    /// Bytes at the highest total, or at the end.
    pub totals: ClassBytes,
    /// Time of the highest total, in nanoseconds since the capture began; of a watermark.
    pub peak_time_ns: Option<i64>,
    /// Rows written.
    pub rows: u64,
    /// Bytes whose stacks pass through MPI, among the rows written.
    pub mpi_bytes: u64,
    /// Rows of memory that may be on the host.
    pub uncertain: u64,
    /// Frees of blocks whose allocation was not recorded.
    pub unmatched_frees: u64,
    /// Blocks whose address was allocated again before they were freed.
    pub replaced: u64,
    /// Frees that state another size than their allocation.
    pub size_mismatches: u64,
}

/// Libraries of MPI that allocate.
const MPI: [&str; 2] = ["openmpi", "libToolsInjectionOpenMPI64"];
/// Rows that are folded at a time.
const BATCH: usize = 4096;

/// Returns the bytes of all classes.
pub fn sum(totals: &ClassBytes) -> u64 {
    totals.iter().fold(0, |sum, total| sum.saturating_add(*total))
}

/// Reads the tables whose names begin with `prefix` and writes the rows of `analysis` to `output`.
///
/// # Errors
/// What is wrong with a table, by its line, or with writing.
pub fn process(prefix: &Path, output: &Path, analysis: Analysis, header: Header) -> Result<Processed> {
    let mut tables = SplitTables::open(prefix)?;
    let failed = |error| floodmark_store::Error::io("writing", output)(error);
    let mut out = BufWriter::new(File::create(output).map_err(failed)?);
    let mut write = |text: &str| out.write_all(text.as_bytes()).map_err(failed);
    if header == Header::Yes {
        write(match analysis {
            Analysis::Usage => "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n",
            _ => "address\tstart_time\tbytes\tmemkind\tmem_op_type\tvar_name\ttrace_type\tstack\n",
        })?;
    }
    let mut run = Run::new(analysis);
    while let Some(row) = tables.next(|row| run.is_live(row))? {
        run.push(&row);
        if run.batch.len() == BATCH {
            run.flush();
            write(&run.take_usage())?;
        }
    }
    run.flush();
    let (text, found) = run.finish();
    write(&text)?;
    out.flush().map_err(failed)?;
    Ok(found)
}

type Folds = (Option<WatermarkFold>, Option<UsageRows>, CaveatsFold);

struct Run {
    pass: Pass<Folds>,
    batch: EventBatch,
    names: Tables,
    processes: HashMap<String, ProcessId>,
    rows: u64,
    uncertain: u64,
}

impl Run {
    fn new(analysis: Analysis) -> Self {
        // What leaks is live after everything else.
        let at = (analysis == Analysis::Leakage).then_some(Instant::At(i64::MAX));
        let watermark = || WatermarkFold::new(WatermarkOptions { at, ..WatermarkOptions::default() });
        let folds = (
            (analysis != Analysis::Usage).then(watermark),
            (analysis == Analysis::Usage).then(UsageRows::default),
            CaveatsFold::default(),
        );
        Self {
            pass: Pass::new(&Filter::default(), folds),
            batch: EventBatch::new(),
            names: Tables::default(),
            processes: HashMap::new(),
            rows: 0,
            uncertain: 0,
        }
    }

    fn process(&mut self, name: &str) -> ProcessId {
        if let Some(process) = self.processes.get(name) {
            return *process;
        }
        let process = ProcessId(self.processes.len() as u32 + 1);
        self.processes.insert(name.to_owned(), process);
        process
    }

    /// Returns whether the block of a row is live.
    fn is_live(&mut self, row: &TableRow) -> bool {
        self.flush();
        let process = self.process(&row.process);
        let space = Space { process, device: NO_DEVICE, resource: StringId(0) };
        self.pass.live().is_live(space, row.address)
    }

    /// Makes an event of a row. What the scripts write of a block is its name; its class stands in the
    /// stream, its place in the table in the thread.
    fn push(&mut self, row: &TableRow) {
        self.rows += 1;
        self.uncertain += u64::from(row.is_uncertain);
        let process = self.process(&row.process);
        self.batch.push(&Event {
            time_ns: row.time_ns,
            process,
            thread: self.rows,
            action: row.action,
            address: row.address,
            bytes: row.bytes,
            device: NO_DEVICE,
            stream: row.class as u64,
            kind: Kind::Device,
            name: if row.action == Action::Alloc { self.names.intern(&row.text) } else { StringId(0) },
            ..Event::default()
        });
    }

    fn flush(&mut self) {
        self.pass.update(&self.batch);
        self.batch.clear();
    }

    fn take_usage(&mut self) -> String {
        self.pass.fold_mut().1.as_mut().map(|usage| std::mem::take(&mut usage.text)).unwrap_or_default()
    }

    /// Returns what is left to write, and what was found.
    fn finish(mut self) -> (String, Processed) {
        let (watermark, usage, caveats) = self.pass.finish(&self.names);
        let (mut text, rows, totals) = usage.unwrap_or_default();
        let mut found = Processed {
            totals,
            rows,
            uncertain: self.uncertain,
            unmatched_frees: caveats.unmatched_frees + self.pass.live().counters().null_frees,
            replaced: caveats.replaced_blocks,
            size_mismatches: caveats.size_mismatches,
            ..Processed::default()
        };
        let Some(mut watermark) = watermark else { return (text, found) };
        found.peak_time_ns = watermark.peak_time_ns;
        watermark.blocks.sort_unstable_by_key(|block| block.thread);
        for BlockInfo { address, time_ns, bytes, stream, name, .. } in &watermark.blocks {
            let name = name.as_deref().unwrap_or("");
            let _ = writeln!(text, "{}\t{time_ns}\t{bytes}\t{name}", *address as i64);
            let add = |total: &mut u64| *total = total.saturating_add(*bytes);
            add(&mut found.totals[*stream as usize]);
            let stack = name.rsplit('\t').next().unwrap_or("");
            if MPI.iter().any(|library| stack.contains(library)) {
                add(&mut found.mpi_bytes);
            }
            found.rows += 1;
        }
        (text, found)
    }
}

/// Folds live bytes by class into a row for every time.
#[derive(Clone, Debug, Default)]
struct UsageRows {
    totals: ClassBytes,
    first_ns: i64,
    latest_ns: Option<i64>,
    text: String,
    rows: u64,
}

impl UsageRows {
    /// Writes the totals after the latest time.
    fn write(&mut self) {
        let Some(latest_ns) = self.latest_ns else { return };
        let [valid, invalid, driver] = self.totals;
        let (time, total) = (latest_ns.saturating_sub(self.first_ns), sum(&self.totals));
        let _ = writeln!(self.text, "{time}\t{total}\t{valid}\t{invalid}\t{driver}");
        self.rows += 1;
    }
}

impl Fold for UsageRows {
    /// Rows that are not written yet, the number of all, and the totals at the end.
    type Output = (String, u64, ClassBytes);

    fn start(&mut self, first_ns: i64, _origin_ns: i64) {
        self.first_ns = first_ns;
    }

    fn event(&mut self, _order: u64, time_ns: i64) {
        if self.latest_ns != Some(time_ns) {
            self.write();
        }
        self.latest_ns = Some(time_ns);
    }

    fn begins(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        let total = &mut self.totals[block.stream as usize];
        *total = total.saturating_add(block.bytes);
    }

    fn ends(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        let total = &mut self.totals[block.stream as usize];
        *total = total.saturating_sub(block.bytes);
    }

    fn finish(&self, _end: &End<'_>) -> (String, u64, ClassBytes) {
        let mut last = self.clone();
        last.write();
        (last.text, last.rows, last.totals)
    }
}
