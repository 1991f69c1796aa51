//! Decompresses gzip on the way, and stops at files that were made to burst.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

/// Logs that repeat themselves shrink up to a hundred times; the format allows a thousand.
const EXPANSION_MAX: u64 = 500;
/// Anything may expand to this.
const FREE_BYTES: u64 = 64 << 20;

/// Reads what is compressed in `R`, all members of it.
#[derive(Debug)]
pub(crate) struct Gunzip<R> {
    decoder: MultiGzDecoder<Counting<R>>,
    bytes: u64,
}

#[derive(Debug)]
struct Counting<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(room)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

impl<R: Read> Gunzip<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { decoder: MultiGzDecoder::new(Counting { input, bytes: 0 }), bytes: 0 }
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(room)?;
        self.bytes += count as u64;
        let compressed = self.decoder.get_ref().bytes;
        if self.bytes > FREE_BYTES + EXPANSION_MAX.saturating_mul(compressed) {
            return Err(io::Error::other(format!("it expands more than {EXPANSION_MAX} times")));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_that_expands_a_thousand_times_is_given_up() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..130 {
            packed.write_all(&vec![b']'; 1 << 20]).expect("memory takes everything");
        }
        let packed = packed.finish().expect("memory takes everything");
        let copied = io::copy(&mut Gunzip::new(&*packed), &mut io::sink());
        assert!(copied.is_err_and(|error| error.to_string().contains("expands more than 500 times")));
    }
}
