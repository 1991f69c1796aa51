//! Writes inputs in formats of other tools.

mod arrow;
mod chrome;
mod counting;
mod memory_logger;

use std::io::Write;

use floodmark_analyze::{
    FlameOf, FrameChoice, OriginRow, OriginTotals, OriginTotalsFold, PathRules, SplitBy, Totals,
};
use floodmark_convert::{StackTotals, folded, pprof, speedscope};
use floodmark_event::Tables;
use floodmark_event::units::{Instant, format_time_ns};

pub use arrow::write_arrow;
pub use chrome::{EveryEvent, write_chrome};
pub use counting::CountingWriter;
pub use memory_logger::write_memory_logger;

use crate::answer::Loss;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::{Columns, Folded};
use crate::plain::plain;
use crate::query::Query;

/// Format of a profile: stacks with bytes and blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileFormat {
    /// For speedscope: stacks at the peak, at the end and of all allocations.
    Speedscope,
    /// For pprof: stacks with what is in use at the peak and what was allocated.
    Pprof,
    /// Lines `a;b;c bytes`.
    Folded(FlameOf),
}

/// Writes the stacks of an input's allocations; `at` is an instant to look at instead of the peak.
///
/// # Errors
/// If the input has no events, cannot be read, or `out` cannot be written.
pub fn write_profile(
    input: &Input,
    query: &Query<'_>,
    (format, at): (ProfileFormat, Option<Instant>),
    out: &mut dyn Write,
) -> Result<Vec<Loss>> {
    let fold = OriginTotalsFold::new(at, SplitBy::Nothing);
    let Folded { answer, pass, source } = input.fold(query, Columns::All, fold)?;
    let (totals, tables) = (answer.result, source.tables());
    let what = if at.is_some() { "live at the time asked for" } else { "live at the peak" };
    let held = format!("{what}{}", at_text(&totals));
    let written = match format {
        ProfileFormat::Pprof => {
            let counters = pass.live().counters();
            let span = counters.first_time_ns.zip(counters.last_time_ns);
            let duration_ns = span.map_or(0, |(from, to)| to.saturating_sub(from).max(0) as u64);
            let comment = format!("inuse: {held}");
            let props =
                pprof::ProfileProps { time_ns: totals.marked_time_ns, duration_ns, comment: &comment };
            pprof::write(out, &props, &stacks(&totals, tables), tables)
        }
        ProfileFormat::Folded(of) => write_folded(&totals, of, tables, out),
        ProfileFormat::Speedscope => {
            let file = input.path().file_name().and_then(|name| name.to_str()).unwrap_or("floodmark");
            let names = speedscope::Names { file, held: &held };
            speedscope::write(out, names, &stacks(&totals, tables), tables)
        }
    };
    written.map_err(|source| Error::System { act: "writing the profile", source })?;
    Ok(answer.losses)
}

fn write_folded(
    totals: &OriginTotals,
    of: FlameOf,
    tables: &Tables,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let rules = PathRules { frames: FrameChoice::All, ..PathRules::default() };
    for row in &totals.rows {
        let value = of.value(of.weight(row));
        if value > 0 {
            let path = rules.path(&row.origin, tables);
            folded::write_line(out, path.iter().map(|step| plain(step.text())), value)?;
        }
    }
    Ok(())
}

fn at_text(totals: &OriginTotals) -> String {
    totals.marked_time_ns.map_or_else(String::new, |time_ns| format!(" ({})", format_time_ns(time_ns)))
}

fn stacks(totals: &OriginTotals, tables: &Tables) -> Vec<StackTotals> {
    totals.rows.iter().map(|row| stack_totals(row, tables)).collect()
}

fn stack_totals(row: &OriginRow, tables: &Tables) -> StackTotals {
    let steps = if row.origin.stack.0 == 0 {
        PathRules::default().path(&row.origin, tables).iter().map(|step| step.text().to_owned()).collect()
    } else {
        Vec::new()
    };
    let both = |totals: Totals| [totals.bytes, totals.blocks];
    StackTotals {
        stack: row.origin.stack,
        steps,
        held: both(row.marked),
        left: both(row.end),
        allocated: both(row.allocated),
    }
}
