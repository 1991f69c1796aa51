//! Heap profiles of jemalloc and of gperftools (tcmalloc): what was live when they were written, by stack.
//!
//! | in the file | in a trace |
//! |---|---|
//! | live objects and bytes of a stack | blocks, in a scope `before capture`; a profile has no time |
//! | objects and bytes allocated in all (`[...]`) | a remark with their sum |
//! | `MAPPED_LIBRARIES` | modules: a frame is an address in one |
//! | names, if `jeprof --raw PROGRAM PROFILE` added them | functions |
//!
//! jemalloc samples (`heap_v2/524288`: on average one allocation in every 512 KiB). Its figures are scaled to estimates
//! of all allocations, as `jeprof` does it; sizes are those of jemalloc's size classes.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use floodmark_event::tables::Frame;
use floodmark_event::units::format_count;
use floodmark_event::{StackId, StringId};
use floodmark_store::{Error, Result};

use crate::foreign::{EventsAndRows, Parsed, both};
use crate::live_at::LiveAt;
use crate::ready::Ready;
use crate::recognize::Candidate;
use crate::{Mode, OpenProps};

/// Resource of blocks of jemalloc; their sizes are those of its size classes.
pub const JEMALLOC: &str = "jemalloc";
/// Resource of blocks of gperftools' allocator.
pub const TCMALLOC: &str = "tcmalloc";
/// A larger profile is refused. Real ones have a few megabytes.
const PROFILE_BYTES_MAX: u64 = if cfg!(fuzzing) { 1 << 16 } else { 1 << 30 };
/// A stack that is deeper is cut.
const FRAMES_MAX: usize = 512;

/// Opens a profile; `path` is what messages call it.
///
/// # Errors
/// [`Error::Malformed`] names the line, and [`Error::Io`].
pub fn open(input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    both(parse_input(input, path, props)?.as_ref())
}

/// Parses a file whole: modules come last.
pub(crate) fn parse(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let (path, _, input) = candidate.into_parts();
    parse_input(input, &path, props)
}

/// Whether the beginning of a file is that of a profile, or of one with names before it.
pub(crate) fn begins_file(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    [&b"heap profile:"[..], b"heap_v2/", b"--- symbol\n"].iter().any(|begin| head.starts_with(begin))
}

/// How figures are turned into estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sampling {
    /// Every allocation was counted.
    None,
    /// On average one allocation in so many bytes was.
    Bytes(u64),
}

impl Sampling {
    fn scaled(self, objects: u64, bytes: u64) -> (u64, u64) {
        let Self::Bytes(rate) = self else { return (objects, bytes) };
        if objects == 0 || bytes == 0 || rate <= 1 {
            return (objects, bytes);
        }
        // How probable it is that an allocation of this size is sampled.
        let average = bytes as f64 / objects as f64;
        let share = 1.0 - (-average / rate as f64).exp();
        ((objects as f64 / share).round() as u64, (bytes as f64 / share).round() as u64)
    }
}

/// What stacks of a profile held.
#[derive(Debug, Default)]
struct Profile<'a> {
    names: HashMap<u64, &'a str>,
    sampling: Option<Sampling>,
    /// Addresses innermost first, live objects and bytes.
    stacks: Vec<(Vec<u64>, u64, u64)>,
    /// The stack that the next line is about.
    stack: Option<Vec<u64>>,
    modules: Vec<(u64, u64, u64, &'a str)>,
    part: Part,
    is_jemalloc: bool,
    total_objects: u64,
    total_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    Names,
    #[default]
    Stacks,
    Modules,
}

type Taken = std::result::Result<(), String>;

fn parse_input(input: impl Read, path: &Path, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let mut bytes = Vec::new();
    input.take(PROFILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::io("reading", path))?;
    let malformed = |line: usize, reason: String| Error::Malformed {
        path: path.to_owned(),
        place: format!("line {line}"),
        reason,
    };
    if bytes.len() as u64 > PROFILE_BYTES_MAX {
        return Err(malformed(1, format!("the profile is longer than {PROFILE_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut ready = Ready::new(path, props);
    let mut profile = Profile::default();
    for (number, line) in text.lines().enumerate() {
        if let Err(reason) = profile.take(line) {
            match props.mode {
                Mode::Strict => return Err(malformed(number + 1, reason)),
                Mode::Lenient => ready.losses.add(1, "malformed lines skipped"),
            }
        }
    }
    Ok(profile.into_parsed(ready, props))
}

impl<'a> Profile<'a> {
    fn take(&mut self, line: &'a str) -> Taken {
        let line = line.trim();
        match line {
            "" | "---" | "--- heap" => {
                if line == "--- heap" {
                    self.part = Part::Stacks;
                }
                return Ok(());
            }
            "--- symbol" => self.part = Part::Names,
            "MAPPED_LIBRARIES:" => self.part = Part::Modules,
            _ if line.starts_with("--- ") => return Err("no heap profile follows the names".to_owned()),
            _ => match self.part {
                Part::Names => self.take_name(line)?,
                Part::Stacks => self.take_stack(line)?,
                Part::Modules => self.take_module(line),
            },
        }
        Ok(())
    }

    fn take_name(&mut self, line: &'a str) -> Taken {
        if line.starts_with("binary=") {
            return Ok(());
        }
        let (address, name) = line.split_once(' ').ok_or("an address and a name are expected")?;
        // `jeprof` appends where the function begins: `main<0000000000001327>`.
        let is_hex = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let name = match name.strip_suffix('>').and_then(|name| name.rsplit_once('<')) {
            Some((name, begin)) if is_hex(begin) => name,
            _ => name,
        };
        self.names.insert(address_of(address)?, name);
        Ok(())
    }

    fn take_stack(&mut self, line: &'a str) -> Taken {
        if let Some(rate) = line.strip_prefix("heap_v2/") {
            self.sampling = Some(sampling(rate)?);
            self.is_jemalloc = true;
        } else if let Some(rest) = line.strip_prefix("heap profile:") {
            let kind = rest.rsplit_once('@').map_or("", |(_, kind)| kind.trim());
            self.sampling = Some(match kind.strip_prefix("heap_v2/") {
                Some(rate) => sampling(rate)?,
                None if kind == "heapprofile" => Sampling::None,
                None => return Err(format!("profiles of the sort {kind:?} cannot be read")),
            });
        } else if let Some(addresses) = line.strip_prefix('@') {
            self.stack = Some(addresses_of(addresses)?);
        } else if let Some(counts) = line.strip_prefix("t*:") {
            // Those of the whole process stand before the first stack.
            if let Some(stack) = self.stack.take() {
                self.add(counts, stack)?;
            }
        } else if line.starts_with('t') {
            // The same by thread.
        } else {
            let (counts, addresses) = line.split_once('@').ok_or("counts and a stack are expected")?;
            let addresses = addresses_of(addresses)?;
            self.add(counts, addresses)?;
        }
        Ok(())
    }

    /// Adds `5: 5120 [0: 0]`: live objects and bytes, and those allocated in all.
    fn add(&mut self, counts: &str, stack: Vec<u64>) -> Taken {
        let sampling = self.sampling.ok_or("the first line of the profile is missing")?;
        let bad = || "two counts and two more in brackets are expected".to_owned();
        let (live, total) = counts.split_once('[').ok_or_else(bad)?;
        let pair = |text: &str| -> Option<(u64, u64)> {
            let (objects, bytes) = text.split_once(':')?;
            Some((objects.trim().parse().ok()?, bytes.trim().parse().ok()?))
        };
        let (objects, bytes) = pair(live).ok_or_else(bad)?;
        let (total_objects, total_bytes) = pair(total.trim_end().trim_end_matches(']')).ok_or_else(bad)?;
        let (objects, bytes) = sampling.scaled(objects, bytes);
        let (total_objects, total_bytes) = sampling.scaled(total_objects, total_bytes);
        self.total_objects = self.total_objects.saturating_add(total_objects);
        self.total_bytes = self.total_bytes.saturating_add(total_bytes);
        self.stacks.push((stack, objects, bytes));
        Ok(())
    }

    /// Takes a line as those of `/proc/self/maps`. The first mapping of a file tells where it was loaded.
    fn take_module(&mut self, line: &'a str) {
        let mut fields = line.split_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let Some((Some(start), Some(end))) = range.map(|(start, end)| (hex(start), hex(end))) else { return };
        let offset = fields.nth(1).and_then(hex).unwrap_or(0);
        let Some(path) = fields.nth(2).filter(|path| path.starts_with('/')) else { return };
        let known = self.modules.iter().find(|module| module.3 == path).map(|module| module.2);
        // A program that is not relocatable lies at the addresses that its file names.
        let bias = if start < 1 << 28 { 0 } else { start.wrapping_sub(offset) };
        self.modules.push((start, end, known.unwrap_or(bias), path));
    }

    fn into_parsed(self, mut ready: Ready, props: &OpenProps) -> Box<dyn Parsed> {
        if let Some(Sampling::Bytes(rate)) = self.sampling
            && rate > 1
        {
            let rate = format_count(rate);
            ready.losses.remark(format!("figures are estimates: one allocation in {rate} bytes was sampled"));
        }
        if self.total_objects > 0 {
            ready.losses.remark(format!(
                "the profile counts {} bytes in {} blocks in all; blocks here are those that were live at its end",
                format_count(self.total_bytes),
                format_count(self.total_objects)
            ));
        }
        let mut live = LiveAt::new(ready, props, if self.is_jemalloc { JEMALLOC } else { TCMALLOC }, 0);
        for (addresses, objects, bytes) in &self.stacks {
            let mut stack = StackId(0);
            for address in addresses.iter().take(FRAMES_MAX).rev() {
                let frame = self.frame(*address, &mut live.ready);
                stack = live.ready.tables.intern_stack(stack, frame);
            }
            live.add(stack, *bytes, *objects);
        }
        live.ready.parsed()
    }

    /// A frame of an address behind a call.
    fn frame(&self, address: u64, ready: &mut Ready) -> u32 {
        let call = address.saturating_sub(1);
        let module = self.modules.iter().find(|(start, end, ..)| (*start..*end).contains(&call));
        let name = self.names.get(&call).or_else(|| self.names.get(&address));
        let function = name.map_or(StringId(0), |name| ready.tables.intern(name));
        let own = module.map_or(call, |module| call.wrapping_sub(module.2));
        let module = module.map_or(StringId(0), |module| ready.tables.intern(module.3));
        // One function at several addresses is one place.
        let address = if name.is_some() { 0 } else { own };
        ready.tables.intern_frame(Frame { function, module, address, ..Frame::default() })
    }
}

fn sampling(rate: &str) -> std::result::Result<Sampling, String> {
    rate.trim().parse().map(Sampling::Bytes).map_err(|_| "the sampling interval is no number".to_owned())
}

fn address_of(text: &str) -> std::result::Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "an address is expected".to_owned())
}

fn addresses_of(text: &str) -> std::result::Result<Vec<u64>, String> {
    text.split_whitespace().map(address_of).collect()
}
