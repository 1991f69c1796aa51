//! `floodmark calls`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{CallOrder, CallsOptions};

use crate::args::{InputArgs, OutputArgs};
use crate::ask::ask_each;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show which functions gained memory, from traced calls
///
/// Lists functions, lines and call sites by the resident memory that the process gained while they ran: their
/// own, and with all that they called; and what was gained over time. 'floodmark trace' records calls; logs of
/// pymemtrace are read too. A change between two events belongs to the function that ran between them. Where
/// only changes were recorded and a function begins, that is its caller, which is listed as 'caller of' it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CallsArgs {
    /// Sort functions by this
    #[arg(long, value_name = "WHAT", value_parser = ["own", "cumulative", "calls"], default_value = "own", help_heading = "What to show")]
    by: String,
    /// Show the call tree: the paths of calls that gained most [default: 30 rows, JSON: all]
    #[arg(long, help_heading = "What to show")]
    tree: bool,
    /// Levels of the call tree
    #[arg(long, value_name = "N", default_value_t = 40, requires = "tree", help_heading = "What to show")]
    depth: usize,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

/// Calls of a tree that are shown unless asked otherwise.
const TREE_ROWS: usize = 30;

const EXAMPLES: &str = "\
Examples:
  floodmark trace -o run.flood -- python script.py
  floodmark calls run.flood
  floodmark calls run.flood --by cumulative --limit 30   Callers of what gained most
  floodmark calls run.flood --tree --limit 50            The 50 paths of calls that gained most
  floodmark calls run.flood --from +2s --to +3s          What happened in this second
  floodmark calls run.flood --json | jq '.periods[] | [.gained_bytes, .functions[0].function]'
  floodmark calls 20241107_195847_0_62264_P_0_PY3.13.0.log
  floodmark flame run.flood -o gained.svg                The same tree as a picture
  floodmark plot run.flood -o rss.svg                    Resident memory of each process";

impl CallsArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let order = CallOrder::ALL.into_iter().find(|order| order.name() == self.by).unwrap_or_default();
        let tree_depth = if self.tree { self.depth.max(1) } else { 0 };
        let limit = self.output.limit();
        let tree_rows = if self.output.rows.is_none() { limit.map(|_| TREE_ROWS) } else { limit };
        let options = CallsOptions { order, limit, tree_depth, tree_rows };
        let reports = ask_each(&self.input, printer, |input, query| input.calls(query, &options))?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
