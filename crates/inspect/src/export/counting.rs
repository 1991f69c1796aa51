//! Counts what an export writes.

use std::fmt;
use std::io::{Result, Write};

/// Passes bytes on to a writer and counts them.
pub struct CountingWriter<'a> {
    out: &'a mut dyn Write,
    bytes: &'a mut u64,
}

impl<'a> CountingWriter<'a> {
    /// Starts to add the bytes written to `out` to `bytes`.
    pub fn new(out: &'a mut dyn Write, bytes: &'a mut u64) -> Self {
        Self { out, bytes }
    }
}

impl fmt::Debug for CountingWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingWriter").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Write for CountingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let written = self.out.write(bytes)?;
        *self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }
}
