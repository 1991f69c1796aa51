//! `floodmark trace`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use floodmark_event::units::parse_bytes;
use floodmark_record::{PythonCommand, filled_in};

use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::watching::not_started;

/// Trace the calls of a Python program, with its memory at each
///
/// Records calls and returns of Python and native functions with time, thread, line and the resident size
/// of the process; 'floodmark calls' shows which functions and lines gained memory. The interpreter needs
/// the package floodmark, which does the work: this is 'python -m floodmark.trace' with the same options.
/// The program runs in the place of this command, so that exit code and signals are its own.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceCallsArgs {
    /// Python, its options, the program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
    /// Write the trace here, as in run.flood or run-%r.flood [default: named after time and process]
    ///
    /// %r is the rank in an MPI job, 0 without one; %h the host, %p our process, %% a percent sign
    #[arg(short, long, value_name = "NAME.flood", help_heading = "Trace")]
    output: Option<PathBuf>,
    /// Replace the trace if it exists
    #[arg(long, requires = "output", help_heading = "Trace")]
    force: bool,
    /// Record this mark first
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Trace")]
    message: Option<String>,
    /// Events to record: every one, those at which memory changed, these with the event before each,
    /// stacks of lines in which it changed, or stacks of code that touches new memory, without tracing
    /// calls [default: changes]
    #[arg(long, value_parser = ["every", "changes", "pairs", "lines", "faults"], help_heading = "What to record")]
    mode: Option<String>,
    /// Charge changes to lines; the same as --mode lines
    #[arg(long, conflicts_with = "mode", help_heading = "What to record")]
    lines: bool,
    /// Record an event when the resident size has changed by this much; 0 for every event [default: one page]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "What to record")]
    d_rss_trigger: Option<u64>,
    /// Take a snapshot of tracemalloc at every new peak of the resident size; the ten highest are kept in
    /// the folder tracemalloc of the trace
    #[arg(long, help_heading = "What to record")]
    tracemalloc: bool,
    /// The same, for peaks this far above the last one [default: 10 %]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "What to record")]
    tracemalloc_step: Option<u64>,
    /// Trace these modules or files only, as in mypkg.io or '*/mypkg/*'; repeatable
    #[arg(long, value_name = "PATTERN", help_heading = "What to record")]
    include: Vec<String>,
    /// Do not trace these modules or files; repeatable
    #[arg(long, value_name = "PATTERN", help_heading = "What to record")]
    exclude: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  floodmark trace -- python script.py args
  floodmark trace -o run.flood --mode every -- python -m mypkg.tool args
  floodmark trace --mode faults -- .venv/bin/python train.py        At nearly full speed
  floodmark trace --lines --include mypkg -- python script.py       Lines that gain or release
  floodmark trace --include mypkg --exclude '*/tests/*' -- python script.py
  floodmark run -- floodmark trace -- python script.py              With samples of all processes
  floodmark calls run.flood                                         Which functions gained memory

Exit codes: the program's own; 127 the interpreter was not found, 126 it could not be run, 2 it lacks
the package, or Floodmark failed before the program started";

impl TraceCallsArgs {
    pub(crate) fn run(&self, printer: &Printer) -> ExitStatus {
        let failed = match PythonCommand::parse(&self.command) {
            Ok(command) => command.trace(&self.options(!printer.speaks())),
            Err(error) => error,
        };
        not_started(&failed, printer)
    }

    /// Returns the options as `python -m floodmark.trace` takes them.
    fn options(&self, is_quiet: bool) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        // In one word, so that a value may begin with a hyphen.
        let mut add = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value);
            options.push(word);
        };
        if let Some(path) = &self.output {
            add("output", &filled_in(path));
        }
        if let Some(message) = &self.message {
            add("message", message);
        }
        if let Some(mode) = &self.mode {
            add("mode", mode);
        }
        if let Some(bytes) = self.d_rss_trigger {
            add("d-rss-trigger", &bytes.to_string());
        }
        if let Some(bytes) = self.tracemalloc_step {
            add("tracemalloc-step", &bytes.to_string());
        }
        self.include.iter().for_each(|pattern| add("include", pattern));
        self.exclude.iter().for_each(|pattern| add("exclude", pattern));
        let flags = [
            (self.force, "--force"),
            (self.lines, "--lines"),
            (self.tracemalloc, "--tracemalloc"),
            (is_quiet, "--quiet"),
        ];
        options.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into()));
        options
    }
}
