//! Decompresses gzip, zstd and LZ4 on the way, up to where a file is cut off, and stops at files that were made
//! to burst.

use std::io::{self, BufReader, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;

/// Anything may expand to this.
const FREE_BYTES: u64 = 64 << 20;

/// A compression that is undone on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
    Lz4,
}

impl Compression {
    /// Recognizes compressed data by its first bytes.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        [(&b"\x1f\x8b"[..], Self::Gzip), (b"\x28\xb5\x2f\xfd", Self::Zstd), (b"\x04\x22\x4d\x18", Self::Lz4)]
            .into_iter()
            .find_map(|(magic, compression)| head.starts_with(magic).then_some(compression))
    }

    /// How many times as long as its compressed bytes a file may be.
    fn expansion_max(self) -> u64 {
        match self {
            // Logs that repeat themselves shrink up to a hundred times; the format allows a thousand.
            Self::Gzip => 500,
            // Ten million times the same pair of events shrink to a few kilobytes.
            Self::Zstd => 100_000,
            // The format allows no more.
            Self::Lz4 => 256,
        }
    }
}

/// Reads what is compressed in `R`, all members or frames of it.
pub(crate) struct Decompress<R: Read> {
    decoder: Decoder<R>,
    compression: Compression,
    /// Compressed bytes that were read.
    packed_bytes: Arc<AtomicU64>,
    bytes: u64,
    cut: CutOff,
}

enum Decoder<R: Read> {
    Gzip(MultiGzDecoder<Counting<R>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<Counting<R>>>),
    Lz4(Box<FrameDecoder<Counting<R>>>),
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
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(room)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl<R: Read> Decompress<R> {
    /// # Errors
    /// If the decompressor cannot have its memory.
    pub(crate) fn new(compression: Compression, input: R) -> io::Result<Self> {
        let packed_bytes = Arc::new(AtomicU64::new(0));
        let input = Counting { input, bytes: Arc::clone(&packed_bytes) };
        let decoder = match compression {
            Compression::Gzip => Decoder::Gzip(MultiGzDecoder::new(input)),
            Compression::Zstd => Decoder::Zstd(zstd::stream::read::Decoder::new(input)?),
            Compression::Lz4 => Decoder::Lz4(Box::new(FrameDecoder::new(input))),
        };
        Ok(Self { decoder, compression, packed_bytes, bytes: 0, cut: CutOff::default() })
    }

    /// Returns what says whether the data was cut off.
    pub(crate) fn cut_off(&self) -> CutOff {
        self.cut.clone()
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(room),
            Self::Zstd(decoder) => decoder.read(room),
            Self::Lz4(decoder) => decoder.read(room),
        }
    }
}

impl<R: Read> Read for Decompress<R> {
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
        let expansion_max = self.compression.expansion_max();
        let packed = self.packed_bytes.load(Ordering::Relaxed);
        if self.bytes > FREE_BYTES + expansion_max.saturating_mul(packed) {
            return Err(io::Error::other(format!("it expands more than {expansion_max} times")));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};

    use super::*;

    fn gzip(bytes: &[u8], level: flate2::Compression) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), level);
        packed.write_all(bytes).expect("memory takes everything");
        packed.finish().expect("memory takes everything")
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let small_blocks = FrameInfo::new().block_size(BlockSize::Max64KB);
        let mut packed = FrameEncoder::with_frame_info(small_blocks, Vec::new());
        packed.write_all(bytes).expect("memory takes everything");
        packed.finish().expect("memory takes everything")
    }

    #[test]
    fn a_cut_off_file_is_read_up_to_the_cut() {
        let text: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        let zstd = zstd::stream::encode_all(&*text, 1).expect("memory takes everything");
        for packed in [gzip(&text, flate2::Compression::fast()), zstd, lz4(&text)] {
            let compression = Compression::of(&packed).expect("known");
            let read = |packed: &[u8]| {
                let mut decompress = Decompress::new(compression, packed).expect("memory");
                let (cut, mut read) = (decompress.cut_off(), Vec::new());
                decompress.read_to_end(&mut read).expect("what there is");
                (read, cut.is_cut())
            };
            assert_eq!(read(&packed), (text.clone(), false));
            for len in [packed.len() - 1, packed.len() - 8, packed.len() * 3 / 4, packed.len() / 2] {
                let (read, is_cut) = read(&packed[..len]);
                let is_beginning = text.starts_with(&read) && !read.is_empty();
                // LZ4's end has no data, and is not missed.
                assert!(
                    is_beginning && (is_cut || read.len() == text.len()),
                    "{compression:?} cut at {len}: {} bytes",
                    read.len()
                );
            }
        }
    }

    #[test]
    fn a_file_that_expands_a_thousand_times_is_given_up() {
        let packed = gzip(&vec![b']'; 130 << 20], flate2::Compression::best());
        let copied = Decompress::new(Compression::Gzip, &*packed)
            .and_then(|mut decompress| io::copy(&mut decompress, &mut io::sink()));
        assert!(copied.is_err_and(|error| error.to_string().contains("expands more than 500 times")));
    }
}
