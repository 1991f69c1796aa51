//! Shows calls of functions, in the layout of pymemtrace or as lines of JSON.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Result;
use floodmark_convert::pymemtrace::CallText;
use floodmark_event::Filter;
use floodmark_inspect::{Input, Query};
use floodmark_view::{SampleJson, plain};

use crate::printer::Printer;
use crate::progress::Bars;

/// Which calls to show and how.
#[derive(Clone, Debug)]
pub(crate) struct CallProps {
    pub(crate) filter: Filter,
    pub(crate) limit: Option<usize>,
    pub(crate) is_json: bool,
    /// Show only events at which resident memory changed by so many bytes, with the event before each.
    pub(crate) trigger_bytes: u64,
    /// Write a log of each thread into this folder instead, and whether it may replace files.
    pub(crate) folder: Option<(PathBuf, bool)>,
}

/// Prints calls.
pub(crate) fn read_calls(input: &Input, props: &CallProps, printer: &Printer) -> Result<()> {
    let bars = Bars::new(printer);
    let query = Query::new(props.filter.clone(), &bars);
    if let Some((folder, replaces)) = &props.folder {
        let (paths, losses) = input.write_call_logs(&query, folder, props.trigger_bytes, *replaces)?;
        for path in paths {
            printer.say(&format!("wrote {}", plain(&path.display().to_string())));
        }
        printer.lost(&losses.gaps);
        return Ok(());
    }
    let (mut left, mut failed) = (props.limit.unwrap_or(usize::MAX), Ok(()));
    let mut layout = CallText::new(props.trigger_bytes);
    let mut text = if props.is_json { String::new() } else { layout.header() };
    let losses = input.each_call(&query, |rows, tables| {
        for row in rows.unwrap_or_default() {
            let lines = if props.is_json { SampleJson.call(row, tables) } else { layout.row(row, tables) };
            left = left.saturating_sub(lines.lines().count());
            text += &lines;
            if left == 0 {
                break;
            }
        }
        failed = printer.data(&std::mem::take(&mut text));
        if failed.is_err() || left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed?;
    if !props.is_json {
        printer.data(layout.end())?;
    }
    printer.lost(&losses.gaps);
    Ok(())
}
