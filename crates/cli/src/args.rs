//! What can be typed: the commands and the options they share.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use floodmark_analyze::GroupBy;
use floodmark_convert::{Mode, OpenProps};
use floodmark_event::Filter;
use floodmark_event::units::{Date, Instant, parse_instant};
use floodmark_event::{Kind, Metric, NO_DEVICE, ProcessId};

use crate::commands;

/// Record and analyze memory: peaks, what held them, and leaks
#[derive(Debug, Parser)]
#[command(name = "floodmark", version, max_term_width = 100, after_help = EXAMPLES, subcommand_help_heading = "Commands")]
pub(crate) struct Cli {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Options of all commands
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark run -- ./solver -i input.i         Record a command
  floodmark watermark memory_log.dev0.csv      Show what held memory at the peak of an RMM log
  floodmark leaks memory_log.dev0.csv          List blocks that were never freed
  floodmark oom memory_log.dev0.csv            Explain out of memory: exhaustion or fragmentation
  floodmark flame run.flood -o peak.svg        Draw a flame graph of the peak
  floodmark diff before.flood after.flood      Show what changed between two runs
  floodmark plot run.flood -o memory.svg       Plot memory over time
  floodmark check run.csv --max-peak 20GiB     Fail in CI when memory rises too high
  floodmark replay memory_log.dev0.csv         Try other allocators on a log
  floodmark report run.flood                   Write one HTML file to mail
  floodmark import memory_log.dev0.csv         Convert a log to a trace, many times smaller

Inputs are traces or logs of other tools, recognized by their content; '-' reads standard input.";

/// Commands by what they are for, as the help lists them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Record", &["run", "trace", "attach", "top", "collect", "agent"]),
    ("Look", &["info", "read", "plot", "report", "serve"]),
    (
        "Analyze",
        &[
            "stats",
            "watermark",
            "usage",
            "leaks",
            "lifetimes",
            "churn",
            "ledger",
            "fragmentation",
            "oom",
            "calls",
            "ranks",
            "flame",
            "replay",
            "sql",
        ],
    ),
    ("Large jobs", &["partial", "merge"]),
    ("Compare and check", &["diff", "check"]),
    ("Convert", &["import", "export", "repair"]),
    ("Compatibility", &["memory_logger", "nsys", "completions"]),
];

/// Returns the command with its help, in which the subcommands are grouped.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let header = command.get_styles().get_header().to_owned();
    let literal = command.get_styles().get_literal().to_owned();
    let width = GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max().unwrap_or(0);
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(|command| command.get_about());
        let about = about.map(ToString::to_string).unwrap_or_default();
        format!("  {literal}{name}{literal:#}{:1$}  {about}\n", "", width - name.len())
    };
    let group = |(group, names): &(&str, &[&str])| {
        format!("{header}{group}:{header:#}\n{}", names.iter().map(line).collect::<String>())
    };
    let groups: Vec<String> = GROUPS.iter().map(group).collect();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n{header}Global options:{header:#}\n\
         {{options}}{{after-help}}",
        groups.join("\n")
    );
    command.help_template(template)
}

/// Options of all commands.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Choose when to use colors
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
    /// Print no progress and no remarks
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print what is being read and how long it took
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Write remarks to this file, from which another process shows them later
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

/// When to use colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals, unless `NO_COLOR` is set.
    #[value(help = "On terminals, unless NO_COLOR is set")]
    Auto,
    /// Even in files and pipes
    Always,
    /// Not at all
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(commands::run::RunArgs),
    Trace(commands::trace::TraceCallsArgs),
    Attach(commands::attach::AttachArgs),
    Top(commands::top::TopArgs),
    Collect(commands::collect::CollectArgs),
    Agent(commands::agent::AgentArgs),
    Import(commands::import::ImportArgs),
    Stats(commands::stats::StatsArgs),
    Watermark(commands::watermark::WatermarkArgs),
    Usage(commands::usage::UsageArgs),
    Leaks(commands::leaks::LeaksArgs),
    Lifetimes(commands::lifetimes::LifetimesArgs),
    Churn(commands::churn::ChurnArgs),
    Ledger(commands::ledger::LedgerArgs),
    Fragmentation(commands::fragmentation::FragmentationArgs),
    Oom(commands::oom::OomArgs),
    Check(commands::check::CheckArgs),
    Calls(commands::calls::CallsArgs),
    Ranks(commands::ranks::RanksArgs),
    Sql(commands::sql::SqlArgs),
    Partial(commands::partial::PartialArgs),
    Merge(commands::merge::MergeArgs),
    Replay(commands::replay::ReplayArgs),
    Flame(commands::flame::FlameArgs),
    Diff(commands::diff::DiffArgs),
    Plot(commands::plot::PlotArgs),
    Report(commands::report::ReportArgs),
    Serve(commands::serve::ServeArgs),
    Read(commands::read::ReadArgs),
    Export(commands::export::ExportArgs),
    Info(commands::info::InfoArgs),
    Repair(commands::repair::RepairArgs),
    #[command(name = "memory_logger")]
    MemoryLogger(commands::memory_logger::MemoryLoggerArgs),
    Nsys(commands::nsys::NsysArgs),
    Completions(commands::completions::CompletionsArgs),
}

/// What to read, and which of it.
#[derive(Args, Clone, Debug)]
pub(crate) struct InputArgs {
    /// Traces or logs to analyze, each on its own; '-' is standard input
    #[arg(required = true, value_name = "INPUT", help_heading = None)]
    pub(crate) inputs: Vec<PathBuf>,
    /// Which events to look at
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// How to read them
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// How to read logs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Reading")]
pub(crate) struct ReadingArgs {
    /// Skip lines that cannot be read and count them as lost
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Day of the first event in logs that carry no date
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = parse_date)]
    pub(crate) date: Option<Date>,
}

impl ReadingArgs {
    /// Returns the options as inputs take them.
    pub(crate) fn props(&self) -> OpenProps {
        let mode = if self.lenient { Mode::Lenient } else { Mode::Strict };
        OpenProps { mode, date: self.date, ..OpenProps::default() }
    }

    /// Returns the options as words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let date = self.date.map(|Date { year, month, day }| format!("--date={year:04}-{month:02}-{day:02}"));
        self.lenient.then(|| "--lenient".to_owned()).into_iter().chain(date).collect()
    }
}

/// Which events to look at.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters (comma-separated)")]
pub(crate) struct FilterArgs {
    /// Select devices ('none' for events on no device)
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_device)]
    device: Vec<i32>,
    /// Select processes by their number in the trace
    #[arg(long, value_name = "N", value_delimiter = ',')]
    process: Vec<u32>,
    /// Select allocations of these threads
    #[arg(long, value_name = "TID", value_delimiter = ',', value_parser = parse_number)]
    thread: Vec<u64>,
    /// Select allocations on these streams, as in 0x55d0c0
    #[arg(long, value_name = "STREAM", value_delimiter = ',', value_parser = parse_number)]
    stream: Vec<u64>,
    /// Select kinds of memory; figures are their sum
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds())]
    kind: Vec<String>,
    /// Start of the window: +1.5s after the start, 10:00:01.5, 2026-07-01T06:29:01Z or @1634567890.25
    #[arg(long, value_name = "TIME", value_parser = parse_instant, allow_hyphen_values = true)]
    from: Option<Instant>,
    /// End of the window, in the same forms: events at that time are included, blocks live then are live at the end
    #[arg(long, value_name = "TIME", value_parser = parse_instant, allow_hyphen_values = true)]
    to: Option<Instant>,
}

impl FilterArgs {
    /// Whether blocks are chosen by who allocated them.
    pub(crate) fn is_by_origin(&self) -> bool {
        !self.thread.is_empty() || !self.stream.is_empty()
    }

    /// Looks at one kind more, where kinds are chosen.
    pub(crate) fn add_kind(&mut self, kind: Kind) {
        if !self.kind.is_empty() {
            self.kind.push(kind.name().to_owned());
        }
    }

    /// The same for analyses.
    pub(crate) fn props(&self) -> Filter {
        fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
            (!list.is_empty()).then(|| list.to_vec())
        }
        let kinds: Vec<Kind> = self.kind.iter().filter_map(|name| Kind::from_name(name)).collect();
        let processes: Vec<ProcessId> = self.process.iter().copied().map(ProcessId).collect();
        Filter {
            devices: some(&self.device),
            processes: some(&processes),
            threads: some(&self.thread),
            streams: some(&self.stream),
            kinds: some(&kinds),
            from_ns: self.from,
            to_ns: self.to,
            origin_ns: None,
        }
    }
}

/// Whether to show results to a program.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to show results that have tables.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Rows of a table to show, 0 for all [default: 10, JSON: all]
    #[arg(long = "limit", alias = "rows", value_name = "N")]
    pub(crate) rows: Option<usize>,
}

/// Rows of a table unless asked otherwise.
const DEFAULT_ROWS: usize = 10;

impl OutputArgs {
    /// Rows to show in text; all if none.
    pub(crate) fn text_rows(self) -> Option<usize> {
        self.rows.map_or(Some(DEFAULT_ROWS), |rows| (rows > 0).then_some(rows))
    }

    /// Rows that a result needs to have; all if none.
    pub(crate) fn limit(self) -> Option<usize> {
        if self.json { self.rows.filter(|rows| *rows > 0) } else { self.text_rows() }
    }
}

impl From<JsonArgs> for OutputArgs {
    fn from(JsonArgs { json }: JsonArgs) -> Self {
        Self { json, rows: None }
    }
}

/// Ways to group blocks, by name.
pub(crate) fn ways() -> PossibleValuesParser {
    PossibleValuesParser::new(GroupBy::ALL.map(GroupBy::name))
}

/// Metrics, by name.
pub(crate) fn metrics() -> PossibleValuesParser {
    PossibleValuesParser::new(Metric::ALL.map(Metric::name))
}

fn kinds() -> PossibleValuesParser {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name))
}

fn parse_date(text: &str) -> Result<Date, String> {
    Date::parse(text).ok_or_else(|| "write a day such as 2026-07-01".to_owned())
}

fn parse_device(text: &str) -> Result<i32, String> {
    match text {
        "none" => Ok(NO_DEVICE),
        _ => text.parse::<u16>().map(i32::from).map_err(|_| "write a device such as 0, or none".to_owned()),
    }
}

/// Parses a number as logs show it: decimal or, after `0x`, hexadecimal.
fn parse_number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "write a number such as 23340 or 0x55d0c0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let cli = Cli::command();
        let mut all: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }
}
