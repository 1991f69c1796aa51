//! `floodmark check`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::budget::{self, Budget, BudgetFigure};
use floodmark_event::units::parse_bytes;
use floodmark_inspect::Answer;
use floodmark_inspect::compare::nothing_selected;
use floodmark_view::Check;

use crate::args::{InputArgs, JsonArgs};
use crate::ask::ask_each;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Check memory against rules; exit with 1 if one is broken
///
/// All rules are checked in one pass. A broken rule names its culprits: the sites that held the peak, the
/// blocks that are left, the allocations that failed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Maximum of live bytes, as in 512MiB or 20GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Rules")]
    max_peak: Option<u64>,
    /// Maximum of leaked bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Rules")]
    max_leak: Option<u64>,
    /// Maximum of leaked blocks
    #[arg(long, value_name = "N", help_heading = "Rules")]
    max_leaked_blocks: Option<u64>,
    /// Fail if an allocation failed (out of memory)
    #[arg(long, help_heading = "Rules")]
    no_failures: bool,
    /// Fail if events are missing from the input
    #[arg(long, help_heading = "Rules")]
    no_losses: bool,
    #[command(flatten)]
    output: JsonArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark check run.flood --max-peak 20GiB --no-failures
  floodmark check memory_log.dev0.csv --max-leak 0
  floodmark check logs/*.csv --max-peak 512MiB --json > memory.json

Exit codes: 0 every rule holds, 1 a rule is broken, 2 it could not be checked";

impl CheckArgs {
    fn budgets(&self) -> Result<Vec<Budget>> {
        let limits = [
            ("max-peak", BudgetFigure::Peak, self.max_peak),
            ("max-leak", BudgetFigure::Leaked, self.max_leak),
            ("max-leaked-blocks", BudgetFigure::LeakedBlocks, self.max_leaked_blocks),
            ("no-failures", BudgetFigure::Failures, self.no_failures.then_some(0)),
            ("no-losses", BudgetFigure::LostEvents, self.no_losses.then_some(0)),
        ];
        let budgets: Vec<Budget> = limits
            .into_iter()
            .filter_map(|(name, figure, limit)| Some(Budget::at_most(name, figure, limit?)))
            .collect();
        if budgets.is_empty() {
            return Err(hinted(
                "there is nothing to check",
                "state a rule, such as --max-peak 20GiB, --max-leak 0 or --no-failures",
            ));
        }
        Ok(budgets)
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let budgets = self.budgets()?;
        let found = ask_each(&self.input, printer, |input, query| input.measure(query, &budgets))?;
        let mut reports = Vec::new();
        for Answer { source, losses, caveats, result: measured } in found {
            let is_run = measured.peak_rss_bytes.is_some();
            let needs_events = budgets.iter().any(|budget| budget.figure.needs_events());
            if caveats.events_read == 0 && needs_events && !is_run {
                return Err(hinted(
                    format!("{source} contains no events, so the rules cannot be checked"),
                    "the program may have ended before its log was written: flush it, or end the program normally",
                ));
            }
            if budget::select_nothing(&budgets, &caveats, &measured) {
                return Err(nothing_selected(&source, &caveats).into());
            }
            let outcomes =
                budgets.iter().map(|budget| budget.check(&measured)).collect::<Result<Vec<_>, _>>()?;
            let result = Check::new(&outcomes, &measured, &losses);
            reports.push(Answer { source, losses, caveats, result });
        }
        printer.reports(&reports, self.output)?;
        let passed = reports.iter().all(|report| report.result.passed);
        Ok(if passed { ExitStatus::Success } else { ExitStatus::Broken })
    }
}
