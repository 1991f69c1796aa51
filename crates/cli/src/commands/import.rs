//! `floodmark import`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_inspect::OpenProps;
use floodmark_inspect::import::{ImportProps, default_trace, import};
use floodmark_store::Overwrite;
use floodmark_view::{View as _, plain};

use crate::args::{JsonArgs, ReadingArgs};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;
use crate::reading::ZoneArgs;

/// Convert logs of other tools to a trace, which is smaller and faster to read
///
/// Several logs become one trace. Logs that differ only in .devN are the devices of one process; others
/// are processes of their own.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// Logs to import; '-' is standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Write the trace here [default: name of the first log, with .flood]
    #[arg(short, long, value_name = "TRACE")]
    output: Option<PathBuf>,
    /// Replace a trace that exists already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Device of logs whose names do not state one [default: 0]
    #[arg(long, value_name = "N", help_heading = "Reading", value_parser = clap::value_parser!(i32).range(0..))]
    set_device: Option<i32>,
    #[command(flatten)]
    zone: ZoneArgs,
}

const EXAMPLES: &str = "\
Formats, recognized by content:
  RMM log            CSV of RMM's logging adaptor, as every version of RMM writes it
  memory_logger log  of the memory_logger that comes with MOOSE: memory, output and stacks of a job
  nvidia-smi output  --query-gpu or --query-compute-apps as CSV, dmon -s m, pmon -s m
  mprof file         .dat of memory_profiler: memory of a process, its children and functions
  psrecord log       plain or CSV
  pymemtrace log     calls of Python functions with the resident memory at each
  Nsight Systems     .sqlite, parquetdir or arrowdir export; .nsys-rep where nsys is installed
  PyTorch snapshot   pickle of torch.cuda.memory._dump_snapshot: tensors, segments and stacks
  PyTorch profile    JSON of torch.profiler with profile_memory=True
  pprof profile      of jax.profiler.save_device_memory_profile
  heaptrack file     interpreted or raw: every allocation with its stack
  memray file        .bin of memray 1.18 to 1.20, not of --aggregate
  massif, DHAT file  of valgrind: the heap at its peak by stack
  heap profile       of jemalloc or gperftools (tcmalloc): the live heap by stack
All of them may be compressed with gzip, zstd or LZ4.

Examples:
  floodmark import memory_log.dev0.csv memory_log.dev1.csv
  floodmark import memory_log.csv -o run.flood --date 2026-07-01
  floodmark import job.log gpu.csv -o job.flood --utc-offset +02:00
  zstd -dc memory_log.csv.zst | floodmark import - -o run.flood";

impl ImportArgs {
    fn props(&self) -> Result<ImportProps> {
        Ok(ImportProps {
            trace: self.output.clone().map_or_else(|| default_trace(&self.logs[0]), Ok)?,
            overwrite: if self.force { Overwrite::Yes } else { Overwrite::No },
            open: OpenProps {
                device: self.set_device,
                utc_offset_s: self.zone.utc_offset,
                ..self.reading.props()
            },
        })
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let report = import(&self.logs, &self.props()?, &Bars::new(printer))?;
        if self.json.json {
            printer.reports(&[report], self.json)?;
            return Ok(ExitStatus::Success);
        }
        printer.say(report.result.body(&printer.layout(None)).trim_end());
        printer.lost(&report.losses);
        let command = if report.result.events > 0 { "watermark" } else { "read" };
        let next = format!("floodmark {command} {}", plain(&report.result.trace));
        printer.say(&format!("next: {}", printer.literal(&next)));
        Ok(ExitStatus::Success)
    }
}
