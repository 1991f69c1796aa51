//! Frames of the tail in files and on their way.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;

use floodmark_tail::record::Control;
use floodmark_tail::segment::{self, CONTROL_LANE, FRAME_MAGIC, Frame};
use floodmark_tail::stream;

use crate::spool::Spool;

/// A part of a spool that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its position in the spool.
    pub position: u64,
    /// Bytes that are of no use: those that are damaged, and the frames behind them whose process is not known.
    pub bytes: u64,
}

/// Finds the sound frames in the bytes of a file, as pieces that each begin with the process of their frames, and the
/// damage between them. What is left at the end of a file that `may_be_torn` is none.
pub(crate) fn sound_frames(bytes: &[u8], may_be_torn: bool) -> (Vec<Range<usize>>, Vec<Damage>) {
    let (mut pieces, mut damages) = (Vec::new(), Vec::new());
    let (mut at, mut piece) = (0, None);
    // Position where damage began, if the next frame is to be one with a process.
    let mut damaged = Some(0);
    while at < bytes.len() {
        let Some(frame) = Frame::parse(&bytes[at..]) else {
            if let Some(start) = piece.take() {
                pieces.push(start..at);
            }
            damaged.get_or_insert(at);
            at += 1 + next_magic(&bytes[at + 1..]);
            continue;
        };
        if let Some(since) = damaged
            && names_process(&frame)
        {
            if since < at {
                damages.push(Damage { position: since as u64, bytes: (at - since) as u64 });
            }
            (piece, damaged) = (Some(at), None);
        }
        at += frame.file_bytes();
    }
    if let Some(start) = piece {
        pieces.push(start..bytes.len());
    }
    if let Some(since) = damaged.filter(|since| *since < bytes.len()) {
        // A torn end is short: one frame at most.
        let is_torn = may_be_torn && bytes.len() - since <= MAX_FRAME_BYTES;
        if !is_torn {
            damages.push(Damage { position: since as u64, bytes: (bytes.len() - since) as u64 });
        }
    }
    (pieces, damages)
}

/// Longest frame.
const MAX_FRAME_BYTES: usize = 64 << 10;

/// Distance to the next bytes that may be the head of a frame, or to the end.
fn next_magic(bytes: &[u8]) -> usize {
    bytes.windows(FRAME_MAGIC.len()).position(|window| window == FRAME_MAGIC).unwrap_or(bytes.len())
}

fn names_process(frame: &Frame<'_>) -> bool {
    frame.lane == CONTROL_LANE
        && stream::controls(frame.payload).iter().any(|control| matches!(control, Control::Process(_)))
}

/// Bytes that are fed by hand and read by something that wants a stream.
#[derive(Debug, Default)]
pub(crate) struct Feed(VecDeque<u8>);

impl Feed {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }
}

impl Read for Feed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read(buffer)
    }
}

/// Cuts off a frame that is not complete at the end of a spool.
pub(crate) fn cut_torn_end(spool: &Spool) -> io::Result<()> {
    let Some((_, path)) = spool.frames().pop() else { return Ok(()) };
    let file = File::options().write(true).open(&path)?;
    let bytes = fs::read(&path)?;
    let sound: usize = segment::frames(&bytes).map(|frame| frame.file_bytes()).sum();
    // Damage in the middle is for 'collect' to find: what follows it must stay.
    if bytes.len() - sound <= MAX_FRAME_BYTES { file.set_len(sound as u64) } else { Ok(()) }
}
