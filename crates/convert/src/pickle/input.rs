//! Bytes of a pickle, and how many have been read.

use std::io::{ErrorKind, Read};

use super::machine::Fault;

/// How much is read at a time. The fuzzer has small limits, so that it is fast and meets them.
const BLOCK_BYTES: usize = if cfg!(fuzzing) { 64 } else { 256 << 10 };
/// A longer line, number or text is refused.
pub(super) const TEXT_BYTES_MAX: u64 = if cfg!(fuzzing) { 4096 } else { 64 << 20 };

/// Reads bytes in blocks.
#[derive(Debug)]
pub(crate) struct Input<R> {
    inner: R,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Bytes before the buffer.
    before: u64,
    /// What did not fit in the buffer.
    long: Vec<u8>,
}

impl<R: Read> Input<R> {
    pub(crate) fn of(inner: R) -> Self {
        Self { inner, buffer: vec![0; BLOCK_BYTES], at: 0, end: 0, before: 0, long: Vec::new() }
    }

    /// How many bytes have been taken.
    pub(crate) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Reads the next block; the one at hand is used up.
    fn fill(&mut self) -> Result<(), Fault> {
        self.before += self.end as u64;
        (self.at, self.end) = (0, 0);
        loop {
            match self.inner.read(&mut self.buffer) {
                Ok(0) => return Err(Fault::End),
                Ok(count) => {
                    self.end = count.min(self.buffer.len());
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Io(error)),
            }
        }
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Fault> {
        if self.at == self.end {
            self.fill()?;
        }
        self.at += 1;
        Ok(self.buffer[self.at - 1])
    }

    /// The next `N` bytes.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        if self.end - self.at >= N {
            array.copy_from_slice(&self.buffer[self.at..self.at + N]);
            self.at += N;
        } else {
            for byte in &mut array {
                *byte = self.byte()?;
            }
        }
        Ok(array)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: u64) -> Result<&[u8], Fault> {
        if len > TEXT_BYTES_MAX {
            return Err(Fault::bad(format!("its {len} bytes are more than {TEXT_BYTES_MAX}")));
        }
        let len = len as usize;
        if self.end - self.at >= len {
            self.at += len;
            return Ok(&self.buffer[self.at - len..self.at]);
        }
        self.long.clear();
        // Grows with what comes, not with what is promised.
        while self.long.len() < len {
            if self.at == self.end {
                self.fill()?;
            }
            let count = (self.end - self.at).min(len - self.long.len());
            self.long.extend_from_slice(&self.buffer[self.at..self.at + count]);
            self.at += count;
        }
        Ok(&self.long)
    }

    /// Passes over `len` bytes.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), Fault> {
        while len > 0 {
            if self.at == self.end {
                self.fill()?;
            }
            let count = ((self.end - self.at) as u64).min(len);
            self.at += count as usize;
            len -= count;
        }
        Ok(())
    }

    /// Bytes up to the end of the line, which is left out.
    pub(super) fn line(&mut self) -> Result<&[u8], Fault> {
        self.long.clear();
        loop {
            if self.at == self.end {
                self.fill()?;
            }
            let rest = &self.buffer[self.at..self.end];
            let end = memchr::memchr(b'\n', rest);
            self.long.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
            self.at += end.map_or(rest.len(), |at| at + 1);
            if end.is_some() {
                return Ok(&self.long);
            }
            if self.long.len() as u64 > TEXT_BYTES_MAX {
                return Err(Fault::bad(format!("a line is longer than {TEXT_BYTES_MAX} bytes")));
            }
        }
    }
}
