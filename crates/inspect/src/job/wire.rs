//! Jobs and answers of shards as bytes: a head, then what is inside, compressed if it is large.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `FLOODJOB` |
//! | 4 | version of this format, little-endian, as are all numbers |
//! | 1 + n | version of Floodmark that wrote it |
//! | 1 | 0 for a job, 1 for the answer of a shard |
//! | 1 | 1 if what follows is compressed with zstd |
//! | 8 | its size before |
//! | 8 | FNV-1a hash of the bytes that follow |
//!
//! What is inside changes with every version of the format, so a file of another version is refused: the machines
//! of a job run one version.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use floodmark_analyze::{Partial, PartialData, PeakSearch};
use floodmark_event::units::Instant;
use floodmark_event::{Filter, Kind, ProcessId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::{Ask, HeldParts, Job, JobInput, ShardAnswer};

const MAGIC: &[u8; 8] = b"FLOODJOB";
const VERSION: u32 = 2;
/// From this size on bytes are compressed.
const COMPRESS_FROM: usize = 64 << 10;
/// A file that says to be larger than this when it is unpacked is not believed.
const MOST_BYTES: u64 = 8 << 30;

/// What a file holds.
#[derive(Debug)]
pub enum Contents {
    /// What is known of processes.
    Job(Box<Job>),
    /// What a shard says to a question of a job.
    Answer(Box<ShardAnswer>),
}

#[derive(Serialize, Deserialize)]
struct JobData {
    inputs: Vec<JobInput>,
    partial: PartialData,
    filter: FilterData,
    search: Option<PeakSearch>,
    ask: Ask,
    held: Option<HeldParts>,
}

#[derive(Serialize, Deserialize)]
struct FilterData {
    devices: Option<Vec<i32>>,
    processes: Option<Vec<u32>>,
    threads: Option<Vec<u64>>,
    streams: Option<Vec<u64>>,
    kinds: Option<Vec<u8>>,
    from_ns: Option<(bool, i64)>,
    to_ns: Option<(bool, i64)>,
    origin_ns: Option<i64>,
}

impl FilterData {
    fn new(filter: &Filter) -> Self {
        let instant = |instant: Instant| match instant {
            Instant::At(at_ns) => (false, at_ns),
            Instant::AfterStart(after_ns) => (true, i64::try_from(after_ns).unwrap_or(i64::MAX)),
        };
        let numbers = |ids: &Vec<ProcessId>| ids.iter().map(|id| id.0).collect();
        Self {
            devices: filter.devices.clone(),
            processes: filter.processes.as_ref().map(numbers),
            threads: filter.threads.clone(),
            streams: filter.streams.clone(),
            kinds: filter.kinds.as_ref().map(|kinds| kinds.iter().map(|kind| *kind as u8).collect()),
            from_ns: filter.from_ns.map(instant),
            to_ns: filter.to_ns.map(instant),
            origin_ns: filter.origin_ns,
        }
    }

    fn filter(self) -> Filter {
        let instant = |(is_after, ns): (bool, i64)| {
            if is_after { Instant::AfterStart(ns.max(0) as u64) } else { Instant::At(ns) }
        };
        Filter {
            devices: self.devices,
            processes: self.processes.map(|ids| ids.into_iter().map(ProcessId).collect()),
            threads: self.threads,
            streams: self.streams,
            kinds: self.kinds.map(|kinds| kinds.into_iter().filter_map(Kind::from_number).collect()),
            from_ns: self.from_ns.map(instant),
            to_ns: self.to_ns.map(instant),
            origin_ns: self.origin_ns,
        }
    }
}

/// Whether a file is a partial result, by its first bytes.
pub fn is_job(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    path.is_file()
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut start).is_ok())
        && start == *MAGIC
}

impl Job {
    /// Returns the job as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let data = JobData {
            inputs: self.inputs.clone(),
            partial: self.partial.data(),
            filter: FilterData::new(&self.filter),
            search: self.search.clone(),
            ask: self.ask.clone(),
            held: self.held.clone(),
        };
        pack(0, &data)
    }

    /// Opens a file that has a job.
    ///
    /// # Errors
    /// If it cannot be read, or is something else.
    pub fn open(path: &Path) -> Result<Self> {
        match open(path)? {
            Contents::Job(job) => Ok(*job),
            Contents::Answer(_) => Err(Error::unsuitable(
                format!("{} is the answer of one shard and no partial result", path.display()),
                "merge it with the job file that it was made for: 'floodmark merge JOB ANSWER... -o FILE'",
            )),
        }
    }
}

impl ShardAnswer {
    /// Returns the answer as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        pack(1, self)
    }
}

/// Opens a file that has a job or an answer.
///
/// # Errors
/// If it cannot be read, or is damaged or of another version.
pub fn open(path: &Path) -> Result<Contents> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(floodmark_store::Error::io("reading", path))?;
    parse(&bytes, &name)
}

/// Reads a job or an answer; `name` is for errors.
///
/// # Errors
/// If the bytes are damaged or of another version.
pub fn parse(bytes: &[u8], name: &str) -> Result<Contents> {
    let (kind, inside) = unpack(bytes, name)?;
    if kind == 1 {
        return Ok(Contents::Answer(Box::new(decode(&inside, name)?)));
    }
    let JobData { inputs, partial, filter, search, ask, held } = decode(&inside, name)?;
    let partial = Partial::of(partial).map_err(|error| damaged(name, &error.to_string()))?;
    Ok(Contents::Job(Box::new(Job { inputs, partial, filter: filter.filter(), search, ask, held })))
}

fn pack(kind: u8, data: &impl Serialize) -> Vec<u8> {
    let plain = postcard::to_stdvec(data).expect("numbers, texts and lists can always be written");
    let packed = (plain.len() >= COMPRESS_FROM).then(|| zstd::bulk::compress(&plain, 3).ok()).flatten();
    let inside = packed.as_deref().unwrap_or(&plain);
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let mut bytes = Vec::with_capacity(inside.len() + 64);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.push(version.len() as u8);
    bytes.extend(version);
    bytes.extend([kind, u8::from(packed.is_some())]);
    bytes.extend((plain.len() as u64).to_le_bytes());
    bytes.extend(hash(inside).to_le_bytes());
    bytes.extend(inside);
    bytes
}

/// Takes the head off and returns what is inside, with its kind.
fn unpack(bytes: &[u8], name: &str) -> Result<(u8, Vec<u8>)> {
    let mut rest = bytes;
    if take(&mut rest, MAGIC.len()) != Some(MAGIC.as_slice()) {
        return Err(Error::unsuitable(
            format!("{name} is no partial result"),
            "'floodmark partial' writes partial results of traces",
        ));
    }
    let short = || damaged(name, "it ends within its head");
    let version = number(&mut rest, 4).ok_or_else(short)?;
    let length = number(&mut rest, 1).ok_or_else(short)?;
    let writer = take(&mut rest, length as usize).ok_or_else(short)?;
    let writer = String::from_utf8_lossy(writer).into_owned();
    if version != u64::from(VERSION) || writer != env!("CARGO_PKG_VERSION") {
        return Err(Error::unsuitable(
            format!(
                "{name} was written by Floodmark {} (partial results {version}), and this is Floodmark {} (partial \
                 results {VERSION})",
                crate::plain(&writer),
                env!("CARGO_PKG_VERSION"),
            ),
            "use one version for all of a job, or make the partial results again",
        ));
    }
    let kind = number(&mut rest, 1).ok_or_else(short)?;
    let is_packed = number(&mut rest, 1).ok_or_else(short)? == 1;
    let size = number(&mut rest, 8).filter(|size| *size <= MOST_BYTES).ok_or_else(short)?;
    let sum = number(&mut rest, 8).ok_or_else(short)?;
    if hash(rest) != sum {
        return Err(damaged(name, "its checksum does not fit; it may be cut off"));
    }
    let inside = if is_packed {
        zstd::bulk::decompress(rest, size as usize).map_err(|_| damaged(name, "it cannot be unpacked"))?
    } else {
        rest.to_vec()
    };
    Ok((kind as u8, inside))
}

fn decode<T: DeserializeOwned>(bytes: &[u8], name: &str) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|error| damaged(name, &error.to_string()))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn number(rest: &mut &[u8], count: usize) -> Option<u64> {
    let bytes = take(rest, count)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// FNV-1a, which is enough to notice a file that was cut off or changed by accident.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn damaged(name: &str, what: &str) -> Error {
    Error::unsuitable(
        format!("{name} is damaged: {what}"),
        "make the partial result again with 'floodmark partial'",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_partial_result_are_refused() {
        let bytes = pack(1, &ShardAnswer::nothing());
        assert!(matches!(parse(&bytes, "a").unwrap(), Contents::Answer(_)));
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut], "a").is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x40;
            // What it was packed with is known from its size alone.
            if let Err(error) = parse(&wrong, "a") {
                assert!(error.to_string().contains('a') && error.remedy().is_some());
            }
        }
        let mut other = bytes;
        other[8] = 9;
        let error = parse(&other, "a.part").unwrap_err().to_string();
        assert!(error.contains("partial results 9") && error.contains("a.part"), "{error}");
    }
}
