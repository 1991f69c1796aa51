//! Options for stacks, the same for all commands that watch processes.

use clap::{Args, ValueEnum};
use floodmark_event::units::{parse_bytes, parse_duration_ns};
use floodmark_sampler::stacks::Tool;
use floodmark_sampler::{StackMethod, StackProps, StackWhen};

/// Stacks to take.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Stacks")]
pub(crate) struct StackArgs {
    /// Take stacks of all threads of the processes that grew, at every new peak and near a limit; Python shows its own functions
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "python")]
    stacks: Option<How>,
    /// Count a peak as new if it is so much above the last one with stacks [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    stack_peak: Option<f64>,
    /// Take stacks also when memory grew by so much since they were last taken
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    stack_growth: Option<f64>,
    /// Take stacks of all processes also every so often, as in 500ms or 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    stack_interval: Option<u64>,
    /// Take stacks when so much of a limit is in use [default: 90%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    stack_limit: Option<f64>,
    /// Memory limit of the job, in addition to the cgroup's
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// Maximum share of time spent taking stacks (exceeded only near a limit or after a 50 % jump) [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    stack_time: Option<f64>,
    /// Take stacks with a debugger; the same as --stacks gdb
    #[arg(long, conflicts_with = "stacks")]
    pstack: bool,
    /// Choose the debugger for --pstack
    #[arg(long, value_enum, value_name = "PROGRAM", requires = "pstack")]
    debugger: Option<Debugger>,
}

/// How stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// Hold each thread up for some microseconds, and unwind a copy of its stack later
    Native,
    /// The same, with functions of Python in processes that run it, which holds their threads up for one or two milliseconds (default)
    Python,
    /// Call gdb, which stops a process for a quarter of a second or longer
    Gdb,
    /// Call lldb, which takes as long
    Lldb,
    /// Call eu-stack of elfutils
    EuStack,
}

/// A debugger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Debugger {
    /// The GNU debugger
    Gdb,
    /// The debugger of LLVM
    Lldb,
}

impl StackArgs {
    /// What to take, if anything.
    pub(crate) fn props(&self) -> Option<StackProps> {
        let method = match (self.stacks, self.pstack) {
            (Some(How::Native), _) => StackMethod::Native,
            (Some(How::Python), _) => StackMethod::Python,
            (Some(How::Gdb), _) => StackMethod::Tool(Tool::Gdb),
            (Some(How::Lldb), _) => StackMethod::Tool(Tool::Lldb),
            (Some(How::EuStack), _) => StackMethod::Tool(Tool::EuStack),
            (None, true) => StackMethod::Tool(match self.debugger {
                None | Some(Debugger::Gdb) => Tool::Gdb,
                Some(Debugger::Lldb) => Tool::Lldb,
            }),
            // Who says when wants them.
            (None, false) if self.says_when() => StackMethod::default(),
            (None, false) => return None,
        };
        let usual = StackWhen::default();
        let when = StackWhen {
            peak_share: self.stack_peak.or(usual.peak_share),
            growth_share: self.stack_growth,
            interval_ns: self.stack_interval,
            limit_share: self.stack_limit.or(usual.limit_share),
            limit_bytes: self.memory_limit,
            most_time: self.stack_time.unwrap_or(usual.most_time),
        };
        Some(StackProps { method, when })
    }

    fn says_when(&self) -> bool {
        let shares = [self.stack_peak, self.stack_growth, self.stack_limit, self.stack_time];
        shares.iter().any(Option::is_some) || self.stack_interval.is_some()
    }
}

/// Reads `5%` or `0.05`.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().map(|number| number / whole);
    let share = share.ok().filter(|share| share.is_finite() && *share >= 0.0);
    share.ok_or_else(|| "a share is expected, as in 5% or 0.05".to_owned())
}

#[cfg(test)]
#[path = "../tests/unit/stack_args.rs"]
mod tests;
