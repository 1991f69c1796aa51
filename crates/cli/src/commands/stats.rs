//! `floodmark stats`

use std::path::Path;

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{LayersFold, StatsFold};
use floodmark_convert::OpenProps;
use floodmark_view::{LayeredStats, Report};

use crate::args::{InputArgs, OutputArgs};
use crate::exit::ExitStatus;
use crate::pass::{Columns, add_whole_blocks, analyze_with_rows};
use crate::printer::Printer;

/// Sum up allocations: how many, how much, how high, in which sizes
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark stats memory_log.dev0.csv
  floodmark stats memory_log.dev0.csv memory_log.dev1.csv
  floodmark stats run.flood --device 0 --from +10s --to +20s
  zstd -dc memory_log.csv.zst | floodmark stats --json - | jq .peak_bytes";

impl StatsArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let fold = |_: &Path, _: &OpenProps| Ok((StatsFold::default(), LayersFold::default()));
        let folded = analyze_with_rows(&self.input, Columns::Figures, printer, fold)?;
        let layered = folded.into_iter().map(|(report, path, rows)| {
            let (stats, mut layers) = report.result;
            add_whole_blocks(&mut layers, &path, rows)?;
            let Report { source, losses, caveats, .. } = report;
            Ok(Report { source, losses, caveats, result: LayeredStats { stats, layers } })
        });
        let reports = layered.collect::<Result<Vec<_>>>()?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
