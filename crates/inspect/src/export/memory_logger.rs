//! Logs of `memory_logger.py`: memory, output and stacks of a job.

use std::io::Write;

use floodmark_convert::memory_logger::LogWriter;
use floodmark_store::{RowSource as _, ScanProps};

use crate::answer::{Loss, join_losses};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::launchers::WithoutLaunchers;
use crate::pass::each_row;
use crate::query::Query;

/// Writes samples of an input as a log of `memory_logger.py`. Launchers of MPI jobs do not count, as in logs of
/// the script.
///
/// # Errors
/// If the input has no samples of a job or cannot be read, or `out` cannot be written.
pub fn write_memory_logger(input: &Input, query: &Query<'_>, out: &mut dyn Write) -> Result<Vec<Loss>> {
    let write_error = |source| Error::System { act: "writing the log", source };
    let host = input.manifest().and_then(|manifest| manifest.processes.first().map(|one| one.host.clone()));
    let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| "localhost".into());
    let mut writer = LogWriter::new(out, &host);
    let (mut failed, mut window) = (Ok(()), None);
    let mut source = WithoutLaunchers::new(input.rows_if_any(&ScanProps::default())?);
    each_row(&mut source, input.name(), query.progress, |rows, tables| {
        for row in rows {
            let window = window.get_or_insert_with(|| query.filter.window(row.time_ns()));
            if failed.is_ok() && window.contains(row.time_ns()) {
                failed = writer.row(row, tables);
            }
        }
    })?;
    failed.map_err(write_error)?;
    if writer.finish().map_err(write_error)? == 0 {
        return Err(Error::no_content(
            format!("{} contains no samples of processes, which this format needs", input.name()),
            "'floodmark run' records them".to_owned(),
        ));
    }
    let mut lost = Vec::new();
    join_losses(&mut lost, &source.losses());
    Ok(lost)
}
