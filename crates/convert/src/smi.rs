//! What `nvidia-smi` prints when it is asked for memory, in all its forms.
//!
//! | asked with | a row says |
//! |---|---|
//! | `--query-gpu=… --format=csv` | memory of a device |
//! | `--query-compute-apps=… --format=csv` | memory of a process on a device |
//! | `dmon -s m`, `pmon -s m`, with or without `-o DT` and `--format csv` | the same as a table |
//!
//! Columns are found by their names, in any order; those that say nothing of memory are passed over.
//! `nounits` makes no difference, and without a header (`noheader`) the columns are told by what is in
//! them where that is possible. Several outputs may follow one another.
//!
//! | in the output | in a trace |
//! |---|---|
//! | a GPU: `index`, `uuid`, `pci.bus_id`, or the order of rows with the same time | a subject of kind `device`, with its name and UUID |
//! | `memory.used`, `fb` | `gpu_used` of the device |
//! | `memory.total` | `gpu_total` |
//! | `utilization.gpu`, `sm` | `gpu_busy` |
//! | `pid` with `used_memory` or `fb` | `gpu_used` of a subject of kind `process`, summed over its devices; 0 once it is not listed any more |
//!
//! MiB and what `dmon` and `pmon` call MB are 1,048,576 bytes. Values such as `[N/A]` and lines in which
//! `nvidia-smi` complains are counted among the losses.
//!
//! Times are local and carry no zone: see [`OpenProps::utc_offset_s`]. Rows without a date are of
//! [`OpenProps::date`]; sweeps without any time are taken to be a second apart, and counted.

mod columns;
mod sweep;

use std::io::Read;
use std::path::Path;

use self::columns::{Columns, Row};
use self::sweep::Sweeps;
use crate::OpenProps;
use crate::quote::quoted;
use crate::records::{Lines, LogReader, Out, ParseLine};
use crate::rmm::Days;
use floodmark_store::RowSource;

/// Opens what `nvidia-smi` printed; `path` is what messages call it.
pub fn open<'a>(input: impl Read + Send + 'a, path: &Path, props: &OpenProps) -> Box<dyn RowSource + 'a> {
    Box::new(reader(input, path, props))
}

pub(crate) fn reader<R: Read>(input: R, path: &Path, props: &OpenProps) -> LogReader<R, Lines<Format>> {
    let days = Days::from(props.date);
    let format = Format {
        columns: None,
        sweeps: Sweeps::default(),
        days,
        offset_s: props.utc_offset_s,
        is_said: false,
    };
    LogReader::new(input, Lines::of(format), path, props)
}

/// Lines in which nvidia-smi says that something is wrong begin so.
const COMPLAINTS: [&str; 10] = [
    "Failed to initialize NVML",
    "Unable to determine the device handle",
    "No devices were found",
    "No running processes found",
    "NVIDIA-SMI has failed",
    "NVIDIA-SMI couldn't",
    "Field \"",
    "Make sure that the latest NVIDIA driver",
    "WARNING: ",
    "Not supported on the device(s)",
];

/// Whether the beginning of a file is what `nvidia-smi` prints.
pub(crate) fn begins_log(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let mut lines = head.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    let Some(line) = lines.find(|line| !line.trim().is_empty()).map(str::trim) else { return false };
    // A table of other columns is still its output, and deserves to be told so.
    let is_complaint = COMPLAINTS[..7].iter().any(|start| line.starts_with(start));
    is_complaint || columns::is_header(line) || columns::is_bare_row(line)
}

/// Parses rows.
#[derive(Debug)]
pub(crate) struct Format {
    columns: Option<Columns>,
    sweeps: Sweeps,
    days: Days,
    offset_s: i32,
    /// Whether it was said that sweeps have no time.
    is_said: bool,
}

impl Format {
    /// When a row was printed; none where it does not say.
    fn time_ns(&mut self, row: &Row<'_>) -> Result<Option<i64>, String> {
        let Some((day, in_day_ns)) = row.time()? else { return Ok(None) };
        let day_ns = match day {
            Some(date) => date.epoch_days().checked_mul(floodmark_event::units::NS_PER_DAY),
            None => self.days.start_ns((in_day_ns / floodmark_event::units::NS_PER_S) as u32),
        };
        let offset_ns = i64::from(self.offset_s) * floodmark_event::units::NS_PER_S;
        let time_ns = day_ns.and_then(|day_ns| day_ns.checked_add(in_day_ns)?.checked_sub(offset_ns));
        time_ns.map(Some).ok_or_else(|| "the time is beyond the years a trace can hold".to_owned())
    }
}

impl ParseLine for Format {
    fn line(&mut self, line: &str, out: &mut Out) -> Result<(), String> {
        let line = line.trim();
        if columns::is_units(line) {
            return Ok(());
        }
        if columns::is_header(line) {
            self.sweeps.finish(out);
            self.columns = Some(Columns::of_header(line)?);
            return Ok(());
        }
        if COMPLAINTS.iter().any(|start| line.starts_with(start)) {
            out.losses.remark_times(1, format!("nvidia-smi said {}", quoted(line.as_bytes())));
            return Ok(());
        }
        if self.columns.is_none() {
            self.columns = Some(Columns::of_bare_row(line)?);
        }
        let columns = self.columns.as_ref().expect("set above").clone();
        let row = columns.row(line)?;
        let time_ns = self.time_ns(&row)?;
        if time_ns.is_none() && !std::mem::replace(&mut self.is_said, true) {
            out.losses.remark("the rows have no time and were taken to be a second apart");
        }
        self.sweeps.add(&row, time_ns, out)
    }

    fn end(&mut self, out: &mut Out) {
        self.sweeps.finish(out);
    }
}
