//! Decompresses gzip on the way, up to where a file is cut off, and stops at files that were made to burst.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    cut: CutOff,
}

/// Says whether compressed data ended too early, once it has been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct CutOff(Arc<AtomicBool>);

impl CutOff {
    pub(crate) fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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
        let decoder = MultiGzDecoder::new(Counting { input, bytes: 0 });
        Self { decoder, bytes: 0, cut: CutOff::default() }
    }

    /// Returns what says whether the data was cut off.
    pub(crate) fn cut_off(&self) -> CutOff {
        self.cut.clone()
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.cut.is_cut() {
            return Ok(0);
        }
        let count = match self.decoder.read(room) {
            // The writer died or the copy is not whole: what was compressed before is good.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.bytes > 0 => {
                self.cut.0.store(true, Ordering::Relaxed);
                return Ok(0);
            }
            result => result?,
        };
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
    fn a_cut_off_file_is_read_up_to_the_cut() {
        let text: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&text).expect("memory takes everything");
        let packed = packed.finish().expect("memory takes everything");
        let read = |packed: &[u8]| {
            let (mut gunzip, mut read) = (Gunzip::new(packed), Vec::new());
            let cut = gunzip.cut_off();
            gunzip.read_to_end(&mut read).expect("what there is");
            (read, cut.is_cut())
        };
        assert_eq!(read(&packed), (text.clone(), false));
        for len in [packed.len() - 1, packed.len() - 8, packed.len() / 2, packed.len() / 10] {
            let (read, is_cut) = read(&packed[..len]);
            assert!(is_cut && text.starts_with(&read) && !read.is_empty(), "cut at {len}");
        }
    }

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
