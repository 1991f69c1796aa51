//! Memory profiles in pprof's format, as `jax.profiler.save_device_memory_profile` writes them.
//!
//! A profile is the live set of one instant, added up by stack. Each sample of which something is in use
//! becomes one block with the bytes of all that share the stack, allocated at that instant in a scope `before capture`; a profile has
//! no addresses, so blocks are numbered. The label `device` tells the device; `kind` is `buffer` for device
//! memory and `executable` for programs, which stay as long as they are loaded.

mod wire;
mod writer;

use std::io::Read;
use std::path::Path;

use floodmark_event::tables::Frame;
use floodmark_event::{Event, Kind, NO_DEVICE, StackId, StringId};
use floodmark_store::{Error, Result};
use rustc_hash::FxHashMap;

use crate::foreign::{EventsAndRows, Parsed, both};
use crate::quote::quoted;
use crate::ready::Ready;
use crate::recognize::Candidate;
use crate::{Mode, OpenProps};

use wire::{Fields, Wire};
pub use writer::{ProfileProps, write};

/// Resource of the blocks.
pub const RESOURCE: &str = "jax";
/// A larger profile is refused. Real ones have a few megabytes.
const PROFILE_BYTES_MAX: u64 = if cfg!(fuzzing) { 1 << 16 } else { 1 << 30 };
/// Remark on stacks that are left out to save memory.
const TOO_MANY_STACKS: &str = "a stack was left out: the profile makes far more of them than it is long";
/// A stack that is deeper is cut.
const FRAMES_MAX: usize = 512;
/// Frames of all stacks together that any profile may have; a longer one may have one more a byte.
const FRAMES_ALWAYS: usize = 1 << 20;

/// Opens a profile that is not compressed any more; `path` is what messages call it.
///
/// # Errors
/// [`Error::Malformed`] names the byte, and [`Error::Io`].
pub fn open(input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    both(parse_input(input, path, props)?.as_ref())
}

/// Parses a file whole.
pub(crate) fn parse(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let (path, _, input) = candidate.into_parts();
    parse_input(input, &path, props)
}

fn parse_input(input: impl Read, path: &Path, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let mut bytes = Vec::new();
    input.take(PROFILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::io("reading", path))?;
    let malformed = |(offset, reason): (usize, String)| Error::Malformed {
        path: path.to_owned(),
        place: format!("byte {offset}"),
        reason,
    };
    if bytes.len() as u64 > PROFILE_BYTES_MAX {
        return Err(malformed((0, format!("the profile is longer than {PROFILE_BYTES_MAX} bytes"))));
    }
    let profile = Profile::parse(&bytes).map_err(malformed)?;
    let values = profile.values().map_err(|reason| malformed((0, reason)))?;
    let room = FRAMES_ALWAYS + bytes.len();
    let mut ready = Ready::new(path, props);
    let scope = ready.before_capture(props.process, profile.time_ns);
    let mut making = Making { profile, ready, props, scope, frames: FxHashMap::default(), room };
    for number in 0..making.profile.samples.len() {
        if let Err(wrong) = making.sample(number, values) {
            match props.mode {
                Mode::Strict => return Err(malformed(wrong)),
                Mode::Lenient => making.ready.losses.add(1, "malformed samples skipped"),
            }
        }
    }
    Ok(making.ready.parsed())
}

/// Whether the beginning of a file is that of a profile: its sorts of values come first.
pub(crate) fn begins_profile(head: &[u8]) -> bool {
    let [0x0a, len @ 2..=12, rest @ ..] = head else { return false };
    let len = usize::from(*len);
    let Some(sort) = rest.get(..len) else { return false };
    let is_sort = Fields::of(sort, 0)
        .all(|field| matches!(field, Ok((_, 1 | 2, Wire::Number(number))) if number < 1 << 20));
    is_sort && rest.get(len).is_some_and(|next| matches!(next, 0x0a | 0x12 | 0x1a | 0x22 | 0x2a | 0x32))
}

/// A place in a profile, and what is wrong there.
type Wrong = (usize, String);

/// A profile whose samples are still bytes.
#[derive(Debug, Default)]
struct Profile<'a> {
    /// Names of sorts of values.
    sorts: Vec<u64>,
    /// Samples and where they are.
    samples: Vec<(usize, &'a [u8])>,
    strings: Vec<&'a [u8]>,
    /// Functions by id: name and file.
    functions: FxHashMap<u64, (u64, u64)>,
    /// Files of mappings by id.
    mappings: FxHashMap<u64, u64>,
    /// Locations by id.
    locations: FxHashMap<u64, Location>,
    time_ns: i64,
}

/// A place in the program.
#[derive(Debug, Default)]
struct Location {
    mapping: u64,
    address: u64,
    /// Function and line, innermost first; none where there is nothing but the address.
    lines: Vec<(u64, u64)>,
}

impl<'a> Profile<'a> {
    fn parse(bytes: &'a [u8]) -> std::result::Result<Self, Wrong> {
        let mut profile = Self::default();
        for field in Fields::of(bytes, 0) {
            match field? {
                (at, 1, Wire::Bytes(bytes)) => {
                    let [sort, _] = numbers(bytes, at, [1, 2])?;
                    profile.sorts.push(sort);
                }
                (at, 2, Wire::Bytes(bytes)) => profile.samples.push((at, bytes)),
                (at, 3, Wire::Bytes(bytes)) => {
                    let [id, file] = numbers(bytes, at, [1, 5])?;
                    profile.mappings.insert(id, file);
                }
                (at, 4, Wire::Bytes(bytes)) => {
                    let [id, mapping, address] = numbers(bytes, at, [1, 2, 3])?;
                    let mut lines = Vec::new();
                    for field in Fields::of(bytes, at) {
                        if let (at, 4, Wire::Bytes(bytes)) = field? {
                            let [function, line] = numbers(bytes, at, [1, 2])?;
                            lines.push((function, line));
                        }
                    }
                    profile.locations.insert(id, Location { mapping, address, lines });
                }
                (at, 5, Wire::Bytes(bytes)) => {
                    let [id, name, file] = numbers(bytes, at, [1, 2, 4])?;
                    profile.functions.insert(id, (name, file));
                }
                (_, 6, Wire::Bytes(bytes)) => profile.strings.push(bytes),
                (_, 9, Wire::Number(time)) => profile.time_ns = time as i64,
                _ => {}
            }
        }
        Ok(profile)
    }

    fn text(&self, at: u64) -> std::borrow::Cow<'a, str> {
        let bytes = usize::try_from(at).ok().and_then(|at| self.strings.get(at)).copied();
        String::from_utf8_lossy(bytes.unwrap_or_default())
    }

    /// Which values of a sample tell what is live.
    fn values(&self) -> std::result::Result<Values, String> {
        let sorts: Vec<_> = self.sorts.iter().map(|sort| self.text(*sort)).collect();
        let at = sorts.iter().position(|sort| matches!(&**sort, "space" | "inuse_space"));
        let bytes = at.ok_or_else(|| {
            let sorts = quoted(sorts.join(", ").as_bytes());
            format!("it is a profile of {sorts}; one of memory has 'space' or 'inuse_space'")
        })?;
        Ok(Values { bytes, blocks: sorts.iter().position(|sort| sort == "inuse_objects") })
    }
}

/// Values of a sample by their places.
#[derive(Clone, Copy, Debug)]
struct Values {
    /// How many bytes are live.
    bytes: usize,
    /// In how many blocks, if it says so.
    blocks: Option<usize>,
}

/// The numbers of some fields of a message; 0 where there is none.
fn numbers<const N: usize>(
    bytes: &[u8],
    at: usize,
    wanted: [u64; N],
) -> std::result::Result<[u64; N], Wrong> {
    let mut found = [0; N];
    for field in Fields::of(bytes, at) {
        if let (_, number, Wire::Number(value)) = field?
            && let Some(at) = wanted.iter().position(|wanted| *wanted == number)
        {
            found[at] = value;
        }
    }
    Ok(found)
}

struct Making<'a> {
    profile: Profile<'a>,
    ready: Ready,
    props: &'a OpenProps,
    /// Scope of all blocks.
    scope: u64,
    /// Frames of locations, innermost first.
    frames: FxHashMap<u64, Vec<u32>>,
    /// Frames that further stacks may have together.
    room: usize,
}

impl Making<'_> {
    fn sample(&mut self, number: usize, of: Values) -> std::result::Result<(), Wrong> {
        let (at, bytes) = self.profile.samples[number];
        let (mut locations, mut values, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for field in Fields::of(bytes, at) {
            match field? {
                (at, 1, wire) => wire.numbers(at, &mut locations)?,
                (at, 2, wire) => wire.numbers(at, &mut values)?,
                (at, 3, Wire::Bytes(bytes)) => {
                    let [key, text] = numbers(bytes, at, [1, 2])?;
                    labels.push((self.profile.text(key), self.profile.text(text)));
                }
                _ => {}
            }
        }
        let bytes =
            values.get(of.bytes).copied().ok_or_else(|| (at, "a sample has too few values".to_owned()))?;
        let bytes =
            u64::try_from(bytes as i64).map_err(|_| (at, "a sample has less than no bytes".to_owned()))?;
        // Nothing of it is in use any more.
        if bytes == 0 && of.blocks.is_some_and(|at| values.get(at) == Some(&0)) {
            return Ok(());
        }
        let label = |key: &str| labels.iter().find(|(own, _)| own == key).map(|(_, text)| &**text);
        let device = label("device").map_or(NO_DEVICE, device_of);
        let kind = match label("kind") {
            Some("executable") => Kind::Static,
            _ if device == NO_DEVICE => Kind::Pageable,
            _ => Kind::Device,
        };
        let event = Event {
            time_ns: self.profile.time_ns,
            process: self.props.process,
            address: number as u64 + 1,
            bytes,
            device,
            kind,
            resource: self.ready.tables.intern(RESOURCE),
            scope: self.scope,
            stack: self.stack(&locations),
            ..Event::default()
        };
        self.ready.events.push(event);
        Ok(())
    }

    fn stack(&mut self, locations: &[u64]) -> StackId {
        let mut all = Vec::new();
        for location in locations {
            if !self.frames.contains_key(location) {
                let frames = self.frames_of(*location);
                self.frames.insert(*location, frames);
            }
            all.extend(self.frames[location].iter().take(FRAMES_MAX.saturating_sub(all.len())));
        }
        let Some(room) = self.room.checked_sub(all.len()) else {
            self.ready.losses.remark_times(1, TOO_MANY_STACKS);
            return StackId(0);
        };
        self.room = room;
        let tables = &mut self.ready.tables;
        all.iter().rev().fold(StackId(0), |stack, frame| tables.intern_stack(stack, *frame))
    }

    fn frames_of(&mut self, location: u64) -> Vec<u32> {
        let (profile, tables) = (&self.profile, &mut self.ready.tables);
        let Some(Location { mapping, address, lines }) = profile.locations.get(&location) else {
            return Vec::new();
        };
        let module = profile.mappings.get(mapping).copied().unwrap_or_default();
        let module = tables.intern(&profile.text(module));
        let mut frame = |function: u64, line: u64| {
            let (name, file) = profile.functions.get(&function).copied().unwrap_or_default();
            let function = tables.intern(&profile.text(name));
            // One function at several addresses is one place.
            let address = if function == StringId(0) { *address } else { 0 };
            let (file, line) = (tables.intern(&profile.text(file)), u32::try_from(line).unwrap_or(0));
            tables.intern_frame(Frame { function, file, line, module, address })
        };
        if lines.is_empty() && (*address != 0 || *mapping != 0) {
            return vec![frame(0, 0)];
        }
        lines.iter().map(|(function, line)| frame(*function, *line)).collect()
    }
}

/// The number in `cuda:0` or `CudaDevice(id=0)`; none for processors.
fn device_of(text: &str) -> i32 {
    if text.to_ascii_lowercase().contains("cpu") {
        return NO_DEVICE;
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let others = digits.trim_end_matches(|c: char| c.is_ascii_digit());
    digits[others.len()..].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_their_numbers() {
        for (text, device) in [
            ("cuda:0", 0),
            ("CudaDevice(id=12)", 12),
            ("gpu:3", 3),
            ("TFRT_CPU_0", NO_DEVICE),
            ("tpu", 0),
            ("é7", 7),
        ] {
            assert_eq!(device_of(text), device, "{text}");
        }
    }
}
