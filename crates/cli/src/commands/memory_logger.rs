//! `floodmark memory_logger`: the options of the script of that name, so that what calls it goes on.
//!
//! What the script does with a log we do with a trace beside the place where the log would be. Options
//! that have lost their meaning are accepted and do nothing; those we cannot serve are refused.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Parser as _, ValueEnum};
use floodmark_convert::Mode;
use floodmark_event::text::shell_line;
use floodmark_inspect::import::{ImportProps, import};
use floodmark_inspect::{Input, OpenProps};
use floodmark_record::{Destination, Session, Target, words};
use floodmark_sampler::stacks::Tool;
use floodmark_sampler::{Capture, Launch, StackMethod, StackProps, StackWhen};
use floodmark_store::{Overwrite, is_trace};
use floodmark_view::plain;

use crate::args::Cli;
use crate::cluster_args::ClusterArgs;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;
use crate::watching::{Next, SamplingArgs, Watch, parse_seconds};

/// Do what memory_logger.py does, with its options
///
/// Records a trace where the script would have written a log: NAME.flood instead of NAME.log. --read
/// and --plot take traces and logs of the script; --plot draws in the terminal, or into the picture
/// that --outfile names. The exit code is the command's own.
#[expect(clippy::doc_markdown, reason = "it is help, and a file's name in it")]
#[expect(clippy::struct_excessive_bools, reason = "they are another program's options")]
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, infer_long_args = true, group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct MemoryLoggerArgs {
    /// Run this command, cut into words as a shell does, and record its memory
    #[arg(long, value_name = "COMMAND", group = "what", help_heading = "What to do")]
    run: Option<String>,
    /// Print a trace or a log
    #[arg(long, value_name = "FILE", group = "what", help_heading = "What to do")]
    read: Option<PathBuf>,
    /// Draw traces or logs, all on one axis
    #[arg(long, value_name = "FILE", num_args = 1.., group = "what", help_heading = "What to do")]
    plot: Vec<PathBuf>,
    /// Write the trace here; the ending becomes .flood. With --plot: the picture, .svg, .png, .pdf or .html
    #[arg(long, value_name = "FILE", help_heading = "Recording")]
    outfile: Option<PathBuf>,
    /// Look exactly this often [default: every 10ms, faster while memory moves, slower while it rests]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Recording")]
    repeat_rate: Option<u64>,
    /// Record or show stacks
    #[arg(long, help_heading = "Recording")]
    pstack: bool,
    /// Take stacks with this debugger
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Recording")]
    debugger: Option<Debugger>,
    /// Show the command's output between the rows
    #[arg(long, help_heading = "Showing")]
    stdout: bool,
    /// Show every host by itself
    #[arg(long, help_heading = "Showing")]
    separate: bool,
    #[command(flatten)]
    picture: PictureArgs,
    #[command(flatten)]
    ignored: IgnoredArgs,
    /// Record all nodes of a job of PBS
    #[arg(long, help_heading = "Recording")]
    pbs: bool,
    /// Not supported: serve another instance of the script
    #[arg(long, num_args = 2, value_names = ["HOST", "PORT"], group = "what", help_heading = "Not supported")]
    call_back_host: Option<Vec<String>>,
}

/// Options that do nothing here.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accepted, without effect")]
struct IgnoredArgs {
    /// Wait before the first sample: there is nothing to wait for
    #[arg(long, value_name = "SECONDS")]
    sample_delay: Option<f64>,
    /// Wait before agents start
    #[arg(long, value_name = "SECONDS")]
    pbs_delay: Option<f64>,
    /// No colors in what a plot prints
    #[arg(long)]
    no_color: bool,
}

/// How a picture looks.
#[derive(Args, Debug)]
#[command(next_help_heading = "Plotting")]
struct PictureArgs {
    /// Place of the names [default: where they fit best]
    #[arg(long, value_name = "PLACE", value_parser = clap::builder::PossibleValuesParser::new(LEGENDS))]
    legend: Option<String>,
    /// Angle of lines of output, in degrees
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    rotate_text: Option<i64>,
    /// Shift of lines of output, in pixels
    #[arg(long, num_args = 2, value_names = ["X", "Y"], allow_hyphen_values = true)]
    move_text: Option<Vec<f64>>,
    /// Characters of a line of output
    #[arg(long, value_name = "N")]
    trim_text: Option<u64>,
    /// Light on dark
    #[arg(long)]
    darkmode: bool,
}

impl PictureArgs {
    /// The same as options of `floodmark plot`.
    fn typed(&self) -> Vec<OsString> {
        let mut typed: Vec<String> = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            typed.extend(value.map(|value| format!("{name}={value}")));
        };
        option("--legend", self.legend.clone());
        option("--rotate-text", self.rotate_text.map(|angle| angle.clamp(-90, 90).to_string()));
        option("--trim-text", self.trim_text.map(|length| length.min(200).to_string()));
        if let Some([x, y]) = self.move_text.as_deref() {
            typed.extend(["--move-text".to_owned(), x.to_string(), y.to_string()]);
        }
        if self.darkmode {
            typed.push("--dark".to_owned());
        }
        typed.into_iter().map(OsString::from).collect()
    }
}

/// How often the script takes a sample unless told otherwise.
const REPEAT_RATE_NS: u64 = 250_000_000;

const LEGENDS: [&str; 12] = [
    "best",
    "right",
    "left",
    "center",
    "upper left",
    "upper center",
    "upper right",
    "lower left",
    "lower center",
    "lower right",
    "center left",
    "center right",
];

const EXAMPLES: &str = "\
Examples:
  floodmark memory_logger --run \"./solver-opt -i input.i\"
  floodmark memory_logger --run \"mpiexec -n 4 ./solver-opt -i input.i\" --outfile run.log
  floodmark memory_logger --read run.log --stdout
  floodmark memory_logger --plot run.log other.log --darkmode --outfile compare.png";

/// A debugger that the script knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Debugger {
    /// The GNU debugger
    Gdb,
    /// That of LLVM
    Lldb,
}

impl MemoryLoggerArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        if self.call_back_host.is_some() {
            return Err(hinted(
                "--call-back-host is not supported: the agents of Floodmark open no connections of their own",
                "use --run ... --pbs in a job of PBS, or floodmark run --hosts",
            ));
        }
        match &self.run {
            Some(line) => {
                if self.pbs && std::env::var_os("PBS_NODEFILE").is_none() {
                    printer.warn(
                        "--pbs records on this host only: PBS_NODEFILE is not set, so this is no job of PBS; name \
                         other hosts with floodmark run --hosts",
                    );
                }
                self.record(line, printer)
            }
            None => self.show(printer),
        }
    }

    /// The script asks the debugger with every sample; we do as often as the debugger can.
    fn stacks(&self) -> Option<StackProps> {
        let tool = match self.debugger.filter(|_| self.pstack)? {
            Debugger::Gdb => Tool::Gdb,
            Debugger::Lldb => Tool::Lldb,
        };
        let interval_ns = Some(self.repeat_rate.unwrap_or(REPEAT_RATE_NS));
        let when = StackWhen { interval_ns, most_time: 1.0, ..StackWhen::default() };
        Some(StackProps { method: StackMethod::Tool(tool), when })
    }

    fn record(&self, line: &str, printer: &Printer) -> Result<ExitStatus> {
        if self.pstack && self.debugger.is_none() {
            return Err(hinted("--pstack needs a debugger", "add --debugger gdb or --debugger lldb"));
        }
        let mut words = words(line).map_err(|what| {
            hinted(format!("--run '{line}' cannot be cut into words: {what}"), "check its quotes")
        })?;
        if let Some(word) = words.iter().find(|word| word.starts_with('~')) {
            return Err(hinted(format!("'{word}' stands for no path here"), "write the path in full"));
        }
        if words.is_empty() {
            return Err(hinted("there is no command to run", "write it after --run, in quotes"));
        }
        let path = trace_path(self.outfile.as_deref(), line, &words);
        let goes_on = words.iter().any(|word| word == "--recover");
        let old_log = self.outfile.clone().unwrap_or_else(|| path.with_extension("log"));
        if goes_on && !path.exists() && old_log.is_file() {
            // The script was killed with its command, so the log may end in the middle of a row.
            let open = OpenProps { mode: Mode::Lenient, ..OpenProps::default() };
            let props = ImportProps { trace: path.clone(), overwrite: Overwrite::No, open };
            let report = import(std::slice::from_ref(&old_log), &props, &Bars::new(printer))?;
            printer.say(&format!("continues {}", plain(&old_log.display().to_string())));
            printer.lost(&report.losses);
        }
        let destination = if goes_on { Destination::Append(path) } else { Destination::Over(path) };
        let command = shell_line(&words);
        let program = words.remove(0);
        let sampling = SamplingArgs { repeat_rate: self.repeat_rate, ..SamplingArgs::default() };
        let props = sampling.props();
        let in_job = self.pbs && std::env::var_os("PBS_NODEFILE").is_some();
        let nodes = if in_job { ClusterArgs::of_pbs() } else { ClusterArgs::default() };
        let stacks = self.stacks();
        let session = Session {
            cluster: nodes.props(&command, &props, stacks.as_ref())?,
            target: Target::Command(Launch { capture: Capture::Pipes, ..Launch::new(program, words) }),
            props,
            stacks,
            destination,
            command,
            heap: None,
            gpu: None,
        };
        Watch { session, json: None, next: Next::ScriptLayout }.run(printer)
    }

    fn show(&self, printer: &Printer) -> Result<ExitStatus> {
        let is_plot = self.read.is_none();
        let mut typed = vec![OsString::from("floodmark"), if is_plot { "plot" } else { "read" }.into()];
        let switches = [
            (self.stdout, "--stdout"),
            (self.pstack, "--pstack"),
            (self.separate && !is_plot, "--separate"),
            (self.separate && is_plot, "--per=host"),
        ];
        typed.extend(switches.iter().filter(|(is_given, _)| *is_given).map(|(_, option)| option.into()));
        if is_plot {
            typed.push("--without-launchers".into());
            typed.extend(self.picture.typed());
            typed.extend(self.outfile.iter().flat_map(|file| ["-o".into(), file.into(), "--force".into()]));
        }
        let files: Vec<PathBuf> = self.read.iter().chain(&self.plot).map(|file| found(file)).collect();
        for path in files.iter().filter(|path| !is_plot && is_trace(path)) {
            if Input::open(path, &OpenProps::default())?.is_about_samples()? {
                typed.extend(["--layout".into(), "original".into()]);
            }
        }
        typed.push("--".into());
        typed.extend(files.into_iter().map(OsString::from));
        let command = Cli::try_parse_from(typed)?.command;
        command.map_or(Ok(ExitStatus::Success), |command| super::run(command, printer))
    }
}

/// Where the trace goes: where the script's log would, with another ending.
fn trace_path(outfile: Option<&Path>, line: &str, words: &[String]) -> PathBuf {
    if let Some(path) = outfile {
        return path.with_extension("flood");
    }
    let input = words.iter().position(|word| word == "-i").and_then(|at| words.get(at + 1));
    let name = match input {
        // The script takes the name up to the first character that is not of a word.
        Some(input) => {
            let name = input.rsplit('/').next().unwrap_or_default();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            format!("{}_memory", &name[..end])
        }
        None => line.trim().replace("..", "").replace('/', "").replace(char::is_whitespace, "_"),
    };
    PathBuf::from(format!("{}.flood", floodmark_record::name_of(&name)))
}

/// The file that was named, or the trace that is there instead of a log of that name.
fn found(file: &Path) -> PathBuf {
    let trace = file.with_extension("flood");
    if !file.exists() && trace.exists() { trace } else { file.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(outfile: Option<&str>, line: &str) -> String {
        let words = words(line).unwrap();
        trace_path(outfile.map(Path::new), line, &words).display().to_string()
    }

    #[test]
    fn traces_are_named_as_the_scripts_logs() {
        assert_eq!(path(None, "./moose-opt -i simple_diffusion.i"), "simple_diffusion_memory.flood");
        assert_eq!(path(None, "mpiexec -n 2 ../moose-opt -i a/b.c.i"), "b_memory.flood");
        assert_eq!(path(None, "../bin/sleep 2"), "binsleep_2.flood");
        assert_eq!(path(Some("out/run.log"), "sleep 2"), "out/run.flood");
        assert_eq!(path(Some("run"), "sleep 2"), "run.flood");
    }
}
