//! Reading rings, of a live process or a dead one.
//!
//! Rings are read with plain reads, never mapped: a file that is cut short while we read is an error
//! and not a SIGBUS, and the parsing works on any bytes. Invariants: a chunk that is re-used while it
//! is copied is noticed by its sequence number and read again; nothing in the file is believed
//! without a check against its length.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::ring::{
    CHUNK_BYTES, CHUNK_HEADER_BYTES, CHUNK_PAYLOAD_BYTES, HEADER_BYTES, Header, RING_MAGIC, SEGMENTS_BYTES,
    host_name, pid_namespace, process_start,
};
pub use super::ring::{LossReason, TAIL_VERSION, boot_id, is_maker_gone};
use crate::clock::Anchor;
use crate::protocol::{self, CHUNK_DISORDERED, CHUNK_FREE, ChunkHeader, ChunkSource, Contents, Wanted};

/// Where a ring's bytes come from.
pub trait ReadAt {
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// If the bytes are not there.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Number of bytes there are.
    ///
    /// # Errors
    /// If that cannot be told.
    fn byte_len(&self) -> io::Result<u64>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes =
            usize::try_from(offset).ok().and_then(|start| self.get(start..start.checked_add(buffer.len())?));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// What is known of the process that wrote a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingProcess {
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent_pid: u32,
    /// When it started, in the unit of field 22 of `/proc/PID/stat`.
    pub process_start: u64,
    /// Inode of its pid namespace.
    pub pid_namespace: u64,
    /// Host on which it runs or ran.
    pub host: String,
    /// Its command line.
    pub command: String,
    /// Its clock.
    pub anchor: Anchor,
    /// Which boot of the host that clock belongs to.
    pub boot_id: [u8; 16],
    /// Events it lost, by reason.
    pub losses: Vec<(LossReason, u64)>,
    /// Whether it will write more.
    pub life: Life,
}

/// Whether a process will write more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It said that it was done, or is gone.
    Ended,
    /// It ran on another host or in a container we cannot look into.
    Unknown,
}

/// What a chunk of a ring holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Lane of the process.
    pub lane: u32,
    /// Number of the chunk in its lane.
    pub sequence: u64,
    /// Monotonic time at which it began.
    pub base_time_ns: u64,
    /// Whether its thread is done with it.
    pub full: bool,
    /// Whether times in it go back, or go back from the lane's previous chunk to it.
    pub is_disordered: bool,
    /// The committed records.
    pub payload: Vec<u8>,
}

/// Reads a ring.
#[derive(Debug)]
pub struct RingReader<R> {
    bytes: R,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |half| u32::from_le_bytes(*half))
}

fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// A chunk of a ring, read anew with every call.
struct ChunkAt<'a, R> {
    bytes: &'a R,
    at: u64,
}

impl<R: ReadAt> ChunkAt<'_, R> {
    fn header(&self) -> io::Result<[u8; size_of::<ChunkHeader>()]> {
        let mut header = [0; size_of::<ChunkHeader>()];
        self.bytes.read_at(self.at, &mut header)?;
        Ok(header)
    }
}

impl<R: ReadAt> ChunkSource for ChunkAt<'_, R> {
    type Payload = Vec<u8>;

    fn sequence(&self) -> io::Result<u64> {
        Ok(word(&self.header()?, offset_of!(ChunkHeader, sequence)))
    }

    fn state(&self) -> io::Result<u32> {
        Ok(half(&self.header()?, offset_of!(ChunkHeader, state)))
    }

    fn committed(&self) -> io::Result<u32> {
        Ok(half(&self.header()?, offset_of!(ChunkHeader, committed)))
    }

    fn contents(&self, sequence: u64) -> io::Result<Contents> {
        let header = self.header()?;
        Ok(Contents {
            lane: half(&header, offset_of!(ChunkHeader, lane)),
            sequence,
            base_time_ns: word(&header, offset_of!(ChunkHeader, base_time_ns)),
            is_disordered: half(&header, offset_of!(ChunkHeader, flags)) & CHUNK_DISORDERED != 0,
        })
    }

    fn payload(&self, bytes: u32) -> io::Result<Vec<u8>> {
        if bytes as usize > CHUNK_PAYLOAD_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk is fuller than it can be"));
        }
        let mut payload = vec![0; bytes as usize];
        self.bytes.read_at(self.at + CHUNK_HEADER_BYTES as u64, &mut payload)?;
        Ok(payload)
    }
}

impl<R: ReadAt> RingReader<R> {
    /// Reads the header of a ring.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if this is no ring of a version we know.
    pub fn new(bytes: R) -> io::Result<Self> {
        let reader = Self { bytes };
        let header = reader.header()?;
        let sizes =
            [half(&header, offset_of!(Header, own_bytes)), half(&header, offset_of!(Header, chunk_bytes))];
        let version = half(&header, offset_of!(Header, version));
        if header[..8] != RING_MAGIC
            || !(1..=TAIL_VERSION).contains(&version)
            || sizes != [HEADER_BYTES as u32, CHUNK_BYTES as u32]
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a ring of a version this Floodmark knows",
            ));
        }
        Ok(reader)
    }

    fn header(&self) -> io::Result<Vec<u8>> {
        let mut header = vec![0; HEADER_BYTES];
        self.bytes.read_at(0, &mut header)?;
        Ok(header)
    }

    /// Says what is known of the process that wrote it.
    ///
    /// # Errors
    /// If the header cannot be read.
    pub fn process(&self) -> io::Result<RingProcess> {
        let header = self.header()?;
        let pid = half(&header, offset_of!(Header, pid));
        let mut boot = [0; 16];
        boot.copy_from_slice(&header[offset_of!(Header, boot_id)..][..16]);
        let host = text(&header[offset_of!(Header, host)..][..64]);
        let here = host.as_bytes() == host_name().split(|byte| *byte == 0).next().unwrap_or_default();
        let life = if half(&header, offset_of!(Header, closed)) != 0 {
            Life::Ended
        } else if here && boot != boot_id() {
            // The machine has been restarted since.
            Life::Ended
        } else if !here || word(&header, offset_of!(Header, pid_namespace)) != pid_namespace() {
            Life::Unknown
        } else if process_start(&pid.to_string()) == Some(word(&header, offset_of!(Header, process_start))) {
            Life::Running
        } else {
            Life::Ended
        };
        let losses = LossReason::ALL
            .map(|reason| (reason, word(&header, offset_of!(Header, losses) + 8 * reason as usize)))
            .into_iter()
            .filter(|(_, count)| *count > 0);
        Ok(RingProcess {
            pid,
            parent_pid: half(&header, offset_of!(Header, parent_pid)),
            process_start: word(&header, offset_of!(Header, process_start)),
            pid_namespace: word(&header, offset_of!(Header, pid_namespace)),
            host,
            command: text(&header[offset_of!(Header, command)..][..512]),
            anchor: Anchor {
                monotonic_ns: word(&header, offset_of!(Header, anchor_monotonic_ns)),
                utc_ns: word(&header, offset_of!(Header, anchor_utc_ns)) as i64,
            },
            boot_id: boot,
            losses: losses.collect(),
            life,
        })
    }

    /// Directory of segments of the trace that the ring was made for, where that is known. The trace may have been
    /// moved since.
    ///
    /// # Errors
    /// If the header cannot be read.
    pub fn segments_directory(&self) -> io::Result<Option<PathBuf>> {
        let header = self.header()?;
        let bytes = &header[offset_of!(Header, segments)..][..SEGMENTS_BYTES];
        let path = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let path = Path::new(OsStr::from_bytes(path));
        Ok(path.is_absolute().then(|| path.to_owned()))
    }

    /// Number of chunks the file has.
    ///
    /// # Errors
    /// If the file's length cannot be told.
    pub fn chunk_count(&self) -> io::Result<usize> {
        // A sparse file can claim any length; no recorder makes more than this.
        Ok(((self.bytes.byte_len()? as usize).saturating_sub(HEADER_BYTES) / CHUNK_BYTES).min(1 << 16))
    }

    /// Copies chunk `index`; `None` if it holds nothing that is not stored elsewhere.
    ///
    /// With `only_full` a chunk that is still written to counts as empty.
    ///
    /// # Errors
    /// If the file cannot be read, or the chunk says of itself what cannot be.
    pub fn chunk(&self, index: usize, only_full: bool) -> io::Result<Option<Chunk>> {
        let source = ChunkAt { bytes: &self.bytes, at: (HEADER_BYTES + index * CHUNK_BYTES) as u64 };
        let wanted = if only_full { Wanted::Full } else { Wanted::Any };
        Ok(protocol::copy(&source, wanted)?.map(|copy| Chunk {
            lane: copy.contents.lane,
            sequence: copy.contents.sequence,
            base_time_ns: copy.contents.base_time_ns,
            full: copy.is_full,
            is_disordered: copy.contents.is_disordered,
            payload: copy.payload,
        }))
    }

    /// Copies every chunk that holds something.
    ///
    /// # Errors
    /// If the file cannot be read. Chunks that make no sense are left out and counted.
    pub fn chunks(&self) -> io::Result<(Vec<Chunk>, u64)> {
        let mut chunks = Vec::new();
        let mut damaged = 0;
        for index in 0..self.chunk_count()? {
            match self.chunk(index, false) {
                Ok(chunk) => chunks.extend(chunk),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => damaged += 1,
                Err(error) => return Err(error),
            }
        }
        Ok((chunks, damaged))
    }
}

impl RingReader<File> {
    /// Tells the process that chunk `index`, which was full, is stored elsewhere.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn release(&self, index: usize) -> io::Result<()> {
        let at = HEADER_BYTES + index * CHUNK_BYTES + offset_of!(ChunkHeader, state);
        protocol::before_free();
        // Four aligned bytes: the process sees the old state or the new one.
        self.bytes.write_all_at(&CHUNK_FREE.to_le_bytes(), at as u64)
    }

    /// Whether the ring's file has been removed: its process moved it into the trace.
    ///
    /// # Errors
    /// If the file cannot be looked at.
    pub fn is_unlinked(&self) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(self.bytes.metadata()?.nlink() == 0)
    }
}
