//! `floodmark top`

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use floodmark_event::text::shell_line;
use floodmark_inspect::OpenProps;
use floodmark_top::{AtEnd, Followed, Props, Record, option};

use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::watching::{SamplingArgs, TraceArgs, marks};

/// Watch memory live in the terminal
///
/// Shows memory over time with its peak, processes, devices, what holds memory at the peak or now, phases
/// and the last lines of output. A command is recorded like 'floodmark run' does; its output goes to the
/// trace only. Press ? for the keys.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// A trace, which may still be recorded, or a log of any format
    #[arg(value_name = "TRACE", required_unless_present = "command", conflicts_with = "command")]
    trace: Option<PathBuf>,
    /// A command to record and watch, after --
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
    /// Exit when the recording has ended instead of waiting for a key
    #[arg(long)]
    exit: bool,
    /// Run the command in a pseudo-terminal, so that it writes as to a terminal
    #[arg(long, requires = "command", help_heading = "Output of the command")]
    pty: bool,
    /// Start a phase at every output line that matches this regular expression; repeatable
    #[arg(long, value_name = "REGEX", requires = "command", help_heading = "Output of the command")]
    mark: Vec<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    place: TraceArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark top -- ./solver -i input.i
  floodmark top -o run.flood --mark 'Time Step [0-9]+' -- ./solver -i input.i
  floodmark top run.flood
  floodmark top memory_log.dev0.csv

Exit codes: the command's own, else 0; 127 it was not found, 126 it could not be run, 2 Floodmark
failed";

impl TopArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let at_end = if self.exit { AtEnd::Leave } else { AtEnd::Stay };
        let props = match &self.trace {
            Some(path) if path == Path::new("-") => {
                return Err(hinted("'top' does not read standard input", "write it to a file first"));
            }
            Some(path) => {
                let input = Followed { path: path.clone(), props: OpenProps::default(), command: None };
                Props { input, record: None, at_end }
            }
            None => {
                let record = self.record()?;
                let command = Some(shell_line(self.command.iter().map(|word| word.to_string_lossy())));
                let input = Followed { path: record.trace.clone(), props: OpenProps::default(), command };
                Props { input, record: Some(record), at_end }
            }
        };
        Ok(floodmark_top::run(&props, printer)?.map_or(ExitStatus::Success, ExitStatus::External))
    }

    fn record(&self) -> Result<Record> {
        marks(&self.mark)?;
        let program = self.command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        if self.place.json().is_some_and(|json| json.path == Path::new("-")) {
            return Err(hinted(
                "the summary cannot go to the screen that 'top' draws on",
                "give --json a file",
            ));
        }
        let (trace, is_replaced) = self.place.destination(&program).reserve()?;
        let mut options = Vec::new();
        options.extend(is_replaced.then(|| OsString::from("--force")));
        options.extend(self.sampling.options());
        options.extend(self.pty.then(|| OsString::from("--pty")));
        options.extend(self.mark.iter().flat_map(|mark| option("--mark", mark)));
        options.extend(self.place.json().into_iter().flat_map(|json| option("--json", json.path)));
        Ok(Record { trace, options, command: self.command.clone() })
    }
}
