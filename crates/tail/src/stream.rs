//! The frames of segment files over any stream of bytes, with what a ring's header says.
//!
//! A stream is a row of frames. One whose lane is [`CONTROL_LANE`] holds records about a process
//! ([`Control`]); the frames that follow a [`Control::Process`] are those of that process until the next one.
//! The same chunk may come several times, longer each time while it is open. Used by agents that ship a
//! tail to another host; nothing here is on the recording path.

use std::io::{self, Read, Write};

use crate::reader::RingProcess;
use crate::record::{Control, Decoder, ProcessHeader, Record};
use crate::segment::{CONTROL_LANE, FRAME_HEAD_BYTES, Frame};

/// A frame as it comes out of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamItem {
    /// A record about the process whose frames are being read; the first one says which it is.
    Control(Control),
    /// The committed bytes of a chunk.
    Chunk(ChunkFrame),
}

/// The committed bytes of a chunk, with where they belong. See [`Frame`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkFrame {
    /// Lane of the process.
    pub lane: u32,
    /// Number of the chunk in its lane.
    pub sequence: u64,
    /// Monotonic time at which the chunk began.
    pub base_time_ns: u64,
    /// Nanoseconds to add to its times for UTC.
    pub utc_offset_ns: i64,
    /// Whether the chunk may go on.
    pub is_open: bool,
    /// Whether times in it go back.
    pub is_disordered: bool,
    /// Its records.
    pub payload: Vec<u8>,
}

impl ChunkFrame {
    /// The frame as it is written.
    pub fn as_frame(&self) -> Frame<'_> {
        Frame {
            lane: self.lane,
            sequence: self.sequence,
            base_time_ns: self.base_time_ns,
            utc_offset_ns: self.utc_offset_ns,
            is_open: self.is_open,
            is_disordered: self.is_disordered,
            payload: &self.payload,
        }
    }

    /// Copies a frame.
    pub fn from_frame(frame: &Frame<'_>) -> Self {
        Self {
            lane: frame.lane,
            sequence: frame.sequence,
            base_time_ns: frame.base_time_ns,
            utc_offset_ns: frame.utc_offset_ns,
            is_open: frame.is_open,
            is_disordered: frame.is_disordered,
            payload: frame.payload.to_vec(),
        }
    }
}

/// Returns the bytes of a frame that holds `control`.
pub fn control_frame(control: &Control) -> Vec<u8> {
    let payload = control.encode();
    let frame = Frame {
        lane: CONTROL_LANE,
        sequence: 0,
        base_time_ns: 0,
        utc_offset_ns: 0,
        is_open: false,
        is_disordered: false,
        payload: &payload,
    };
    [frame.head().as_slice(), &payload].concat()
}

/// Decodes the control records of a frame's payload, up to the end or the first damage.
pub fn controls(payload: &[u8]) -> Vec<Control> {
    let mut decoder = Decoder::new(0);
    let mut controls = Vec::new();
    while let Ok(Some(record)) = decoder.next(payload) {
        if let Record::Control(control) = record {
            controls.push(control);
        }
    }
    controls
}

impl ProcessHeader {
    /// Returns what the ring of the process whose files are called `stem` says of it.
    pub fn from_ring(stem: &str, ring: &RingProcess) -> Self {
        Self {
            stem: stem.to_owned(),
            pid: ring.pid,
            parent_pid: ring.parent_pid,
            process_start: ring.process_start,
            pid_namespace: ring.pid_namespace,
            anchor: ring.anchor,
            boot_id: ring.boot_id,
            host: ring.host.clone(),
            command: ring.command.clone(),
        }
    }
}

/// Writes one item to a stream.
///
/// # Errors
/// What the stream says.
pub fn write(out: &mut impl Write, item: &StreamItem) -> io::Result<()> {
    match item {
        StreamItem::Control(control) => out.write_all(&control_frame(control)),
        StreamItem::Chunk(chunk) => {
            out.write_all(&chunk.as_frame().head())?;
            out.write_all(&chunk.payload)
        }
    }
}

/// Reads items from a stream.
#[derive(Debug)]
pub struct StreamReader<R> {
    bytes: R,
    /// Bytes that were read, of which those from `start` on are not used yet.
    buffer: Vec<u8>,
    start: usize,
    /// Items of a control frame that are still to come, the next one last.
    pending: Vec<Control>,
}

/// Bytes to ask a stream for at once.
const READ_BYTES: usize = 64 * 1024;

impl<R: Read> StreamReader<R> {
    /// Reads items from `bytes`, which need not be buffered.
    pub fn new(bytes: R) -> Self {
        Self { bytes, buffer: Vec::new(), start: 0, pending: Vec::new() }
    }

    /// Returns the stream that is read.
    pub fn bytes_mut(&mut self) -> &mut R {
        &mut self.bytes
    }

    /// Returns the next item; `None` at the end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if a frame is damaged, [`io::ErrorKind::UnexpectedEof`] if the stream
    /// ends within one, or what the stream says. Items before it are good. After
    /// [`io::ErrorKind::WouldBlock`] reading can go on when there is more.
    pub fn next_item(&mut self) -> io::Result<Option<StreamItem>> {
        loop {
            if let Some(control) = self.pending.pop() {
                return Ok(Some(StreamItem::Control(control)));
            }
            let available = &self.buffer[self.start..];
            if let Some(head) = available.first_chunk::<FRAME_HEAD_BYTES>() {
                let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a frame of the tail is damaged");
                let end = Frame::end(head).ok_or_else(damaged)?;
                if let Some(bytes) = available.get(..end) {
                    let frame = Frame::parse(bytes).ok_or_else(damaged)?;
                    self.start += end;
                    if frame.lane != CONTROL_LANE {
                        return Ok(Some(StreamItem::Chunk(ChunkFrame::from_frame(&frame))));
                    }
                    self.pending = controls(frame.payload);
                    self.pending.reverse();
                    continue;
                }
            }
            if !self.read_more()? {
                return Ok(None);
            }
        }
    }

    /// Reads more bytes; `false` at the end of the stream.
    fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + READ_BYTES, 0);
        let read = loop {
            match self.bytes.read(&mut self.buffer[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
        match read? {
            0 if before > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read > 0),
        }
    }
}
