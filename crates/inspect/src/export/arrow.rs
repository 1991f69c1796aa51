//! Writes a table of a trace as a stream of Arrow IPC.

use std::io::Write;

use floodmark_store::{Projection, ScanProps, Table};

use crate::answer::Loss;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::query::Query;

/// Writes a table of a trace as a stream of Arrow IPC: columns, ids and order are those of its parts.
///
/// The filter may name processes and a window of time. Memory does not grow with the table.
///
/// # Errors
/// If the input is no trace, the filter selects by anything else, or `out` cannot be written.
pub fn write_arrow(input: &Input, query: &Query<'_>, table: Table, out: &mut dyn Write) -> Result<Vec<Loss>> {
    let Some(trace) = input.trace() else {
        return Err(Error::unsuitable(
            format!("{} is no trace, and only traces have tables", input.name()),
            "turn it into one with 'floodmark import' first",
        ));
    };
    let mut filter = input.anchored(&query.filter)?;
    let window = filter.window(0);
    let processes = filter.processes.take();
    if !filter.selects_all() {
        return Err(Error::unsuitable(
            "tables are selected by process and time only",
            "leave out --device, --thread, --stream and --kind, and select in what reads the table",
        ));
    }
    let props = ScanProps { processes, from_ns: window.from_ns, to_ns: window.to_ns, ..ScanProps::default() };
    Ok(trace.record_batches(table, &Projection::All, &props)?.write_ipc(out)?.gaps)
}
