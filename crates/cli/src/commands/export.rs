//! `floodmark export`

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_convert::rmm::Dialect;
use floodmark_event::units::format_count;
use floodmark_view::plain;

use crate::args::{NarrowArgs, ReadingArgs};
use crate::device_files::{DeviceFiles, Overwrite};
use crate::exit::ExitStatus;
use crate::pass::{each_batch, losses, open};
use crate::printer::Printer;
use crate::select::Select;

/// Write events in a format of another tool
///
/// Events of several devices become one file per device, named as RMM names them: out.csv becomes
/// out.dev0.csv and out.dev1.csv.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Trace or log to export; '-' is standard input
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Write to this file; '-' is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write in this format
    #[arg(long, value_enum, default_value_t = Format::Rmm)]
    format: Format,
    /// Replace files that exist already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    narrow: NarrowArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark export run.flood -o memory_log.csv
  floodmark export run.flood -o - --format rmm-epoch --device 0 | head
  floodmark export old_log.csv -o new_log.csv        Bring an old log into today's form";

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// As RMM writes it: time of day, allocate and free
    Rmm,
    /// As RMM's documents describe it: seconds since 1970, allocate and deallocate
    RmmEpoch,
}

impl ExportArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let dialect = match self.format {
            Format::Rmm => Dialect::Rmm,
            Format::RmmEpoch => Dialect::RmmEpoch,
        };
        let overwrite = if self.force { Overwrite::Yes } else { Overwrite::No };
        let mut source = open(&self.input, &self.reading.props())?;
        let mut files = DeviceFiles::create(&self.output, dialect, overwrite)?;
        let mut select = Select::new(self.narrow.props(), None);
        each_batch(source.as_mut(), &self.input.display().to_string(), printer, |batch, _| {
            select.pass_on(batch, |batch| files.write(batch))
        })?;
        let mut lost = source.losses();
        for written in files.finish()? {
            lost.extend(&written.losses);
            if let Some(path) = written.path {
                let path = plain(&path.display().to_string()).into_owned();
                printer.say(&format!("wrote {} events to {path}", format_count(written.events)));
            }
        }
        printer.lost(&losses(&lost));
        Ok(ExitStatus::Success)
    }
}
