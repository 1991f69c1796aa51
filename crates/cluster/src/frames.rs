//! Frames of the tail in files and on their way.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use floodmark_tail::segment::{FRAME_HEAD_BYTES, Frame};

/// Returns the bytes of a file of frames up to the end of the last sound one.
pub(crate) fn sound_length(path: &Path) -> io::Result<u64> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let mut at = 0;
    let mut head = [0; FRAME_HEAD_BYTES];
    let mut bytes = Vec::new();
    while at + FRAME_HEAD_BYTES as u64 <= length {
        file.read_exact_at(&mut head, at)?;
        let Some(end) = Frame::end(&head).filter(|end| at + *end as u64 <= length) else { break };
        bytes.resize(end, 0);
        file.read_exact_at(&mut bytes, at)?;
        if Frame::parse(&bytes).is_none() {
            break;
        }
        at += end as u64;
    }
    Ok(at)
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

/// Cuts off a frame that is not complete at the end of a file, if there is the file.
pub(crate) fn cut_torn_end(path: &Path) -> io::Result<()> {
    let file = match File::options().write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let sound = sound_length(path)?;
    if sound < file.metadata()?.len() { file.set_len(sound) } else { Ok(()) }
}
