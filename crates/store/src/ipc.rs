//! Tables as streams of Arrow IPC, the form in which other processes take them over.

use std::io::{self, Write};

use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;

use crate::error::{Error, Result};
use crate::records::RecordBatches;
use crate::source::Losses;

impl RecordBatches {
    /// Writes all batches as one stream of Arrow IPC, each as it is read; returns what is known to be missing from it.
    ///
    /// # Errors
    /// [`Error::Output`] if `out` cannot be written, or what is wrong with the trace's files.
    pub fn write_ipc(mut self, out: &mut dyn Write) -> Result<Losses> {
        let mut writer = StreamWriter::try_new(out, &self.schema()).map_err(output)?;
        while let Some(records) = self.next().transpose()? {
            writer.write(&records).map_err(output)?;
        }
        writer.finish().map_err(output)?;
        Ok(self.losses())
    }
}

fn output(error: ArrowError) -> Error {
    Error::Output(match error {
        ArrowError::IoError(_, source) => source,
        other => io::Error::other(other),
    })
}
