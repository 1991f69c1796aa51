//! `floodmark report`

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use floodmark_event::units::format_bytes;
use floodmark_store::Error;
use floodmark_view::plain;

use crate::args::{NarrowArgs, ReadingArgs};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::reporting;

/// Write a report that a browser shows
///
/// The report is one HTML file that needs nothing else: no network, no program but a browser. It has the
/// timeline to zoom into, who held memory at the peak by stack, tables to sort and to search, and, of what
/// was run, the output and the stacks that were taken.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Trace or log to report on
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Write to this file; '-' is standard output [default: report.html beside the input]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    narrow: NarrowArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark report run.flood
  floodmark report memory_log.dev0.csv -o peak.html
  floodmark report run.flood -o report.html --force --device 0 --from +10s --to +20s";

impl ReportArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        if self.input == Path::new("-") {
            return Err(hinted(
                "a report looks at its input more than once, so it cannot read standard input",
                "write it to a file first, or keep it as a trace with 'floodmark import'",
            ));
        }
        let output = self.output.clone().unwrap_or_else(|| self.input.with_file_name("report.html"));
        let to_stdout = output == Path::new("-");
        if !to_stdout && !self.force && output.exists() {
            return Err(Error::Exists { path: output }.into());
        }
        let page = reporting::page(&self.input, &self.narrow.props(), &self.reading.props(), printer)?;
        let html = page.html();
        if to_stdout {
            printer.data(&html)?;
            return Ok(ExitStatus::Success);
        }
        write(&output, &html)?;
        let name = output.display().to_string();
        printer.say(&format!("wrote {} ({})", plain(&name), format_bytes(html.len() as u64)));
        Ok(ExitStatus::Success)
    }
}

/// Writes the whole file or none of it.
fn write(path: &Path, html: &str) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = path.with_file_name(name);
    let written = File::create(&unfinished).and_then(|mut file| file.write_all(html.as_bytes()));
    let moved = written.and_then(|()| std::fs::rename(&unfinished, path));
    if moved.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    moved.with_context(|| format!("writing {}", path.display()))
}
