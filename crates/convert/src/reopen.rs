//! Formats that have both events and rows and are read as a stream: the file is read once for either.
//!
//! A file is opened again for every pass, so memory does not grow with it. A pipe cannot be, and is held in
//! memory as it was decompressed.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floodmark_store::{Error, Result, RowSource, Source};

use crate::OpenProps;
use crate::cut_off::{CutEvents, CutRows};
use crate::foreign::{EventsAndRows, Parsed, both};
use crate::recognize::Candidate;

/// The decompressed bytes of a file.
pub(crate) struct StreamInput {
    pub(crate) input: Box<dyn Read + Send>,
    /// Path as the user named it.
    pub(crate) path: PathBuf,
    /// Length of the file if it is not compressed.
    pub(crate) total_bytes: Option<u64>,
}

/// How a format yields its events and its rows.
#[derive(Clone, Copy)]
pub(crate) struct Streams {
    pub(crate) events: fn(StreamInput, &OpenProps) -> Result<Box<dyn Source>>,
    pub(crate) rows: fn(StreamInput, &OpenProps) -> Result<Box<dyn RowSource>>,
}

impl Streams {
    /// Opens a recognized file. What is wrong with its beginning is noticed here.
    pub(crate) fn parse(self, candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Parsed>> {
        let path = candidate.path.clone();
        let bytes = if candidate.is_file {
            None
        } else {
            let (_, _, input) = candidate.into_parts();
            Some(all_of(input, &path)?)
        };
        let reopened = Reopened { path, bytes, props: props.clone(), streams: self };
        reopened.events()?;
        Ok(Box::new(reopened))
    }

    /// Reads decompressed bytes; messages call them `path`.
    pub(crate) fn open(self, input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
        let bytes = Some(all_of(input, path)?);
        both(&Reopened { path: path.to_owned(), bytes, props: props.clone(), streams: self })
    }
}

fn all_of(mut input: impl Read, path: &Path) -> Result<Arc<[u8]>> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(Error::io("reading", path))?;
    Ok(bytes.into())
}

struct Reopened {
    path: PathBuf,
    /// What came through a pipe.
    bytes: Option<Arc<[u8]>>,
    props: OpenProps,
    streams: Streams,
}

impl Parsed for Reopened {
    fn events(&self) -> Result<Box<dyn Source>> {
        let Some(bytes) = &self.bytes else {
            let (input, cut_off) = reopen(&self.path)?;
            return Ok(CutEvents::over((self.streams.events)(input, &self.props)?, cut_off));
        };
        (self.streams.events)(held(bytes, &self.path), &self.props)
    }

    fn rows(&self) -> Result<Box<dyn RowSource>> {
        let Some(bytes) = &self.bytes else {
            let (input, cut_off) = reopen(&self.path)?;
            return Ok(CutRows::over((self.streams.rows)(input, &self.props)?, cut_off));
        };
        (self.streams.rows)(held(bytes, &self.path), &self.props)
    }
}

fn reopen(path: &Path) -> Result<(StreamInput, Option<crate::decompress::CutOff>)> {
    let candidate = Candidate::at(path)?;
    let cut_off = candidate.cut_off.clone();
    let (path, total_bytes, input) = candidate.into_parts();
    Ok((StreamInput { input: Box::new(input), path, total_bytes }, cut_off))
}

fn held(bytes: &Arc<[u8]>, path: &Path) -> StreamInput {
    let total_bytes = Some(bytes.len() as u64);
    StreamInput { input: Box::new(Cursor::new(Arc::clone(bytes))), path: path.to_owned(), total_bytes }
}
