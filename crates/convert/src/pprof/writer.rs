//! Writes profiles that pprof reads: gzip of protocol buffers.
//!
//! A sample has four values, named as Go names those of its heap: allocated objects and bytes, and those
//! in use at the instant the profile is about. Functions are known already, and mappings say so, so that
//! readers do not symbolize again. Strings come last: they are numbered as they are met.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use floodmark_event::Tables;
use floodmark_event::text::is_active;
use rustc_hash::FxHashMap;

use crate::weighed::{Entry, StackTotals};

/// What a profile is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProfileProps<'a> {
    /// When it was taken; nothing if not known.
    pub time_ns: Option<i64>,
    /// How long was recorded.
    pub duration_ns: u64,
    /// What has to be known about it.
    pub comment: &'a str,
}

/// Writes a profile.
///
/// # Errors
/// Those of `out`.
pub fn write(
    out: &mut dyn Write,
    props: &ProfileProps<'_>,
    stacks: &[StackTotals],
    tables: &Tables,
) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    let mut strings = Strings::default();
    strings.id("");
    for (sort, unit) in [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ] {
        let sort = value_type(&mut strings, sort, unit);
        message(&mut out, 1, &sort)?;
    }
    let mut places = Places::default();
    let mut path = Vec::new();
    for stack in stacks {
        stack.path(tables, &mut path);
        let mut locations = Vec::new();
        for entry in path.iter().rev() {
            locations.push(places.location(*entry, tables, &mut strings, &mut out)?);
        }
        let [bytes, blocks] = stack.held;
        let [allocated_bytes, allocated_blocks] = stack.allocated;
        let mut sample = Vec::new();
        packed(&mut sample, 1, &locations);
        packed(&mut sample, 2, &[allocated_blocks, allocated_bytes, blocks, bytes].map(whole));
        message(&mut out, 2, &sample)?;
    }
    let mut rest = Vec::new();
    number(&mut rest, 9, props.time_ns.unwrap_or(0) as u64);
    number(&mut rest, 10, props.duration_ns);
    let period = value_type(&mut strings, "space", "bytes");
    message(&mut rest, 11, &period)?;
    number(&mut rest, 12, 1);
    number(&mut rest, 13, strings.id(props.comment));
    number(&mut rest, 14, strings.id("inuse_space"));
    out.write_all(&rest)?;
    for text in &strings.texts {
        message(&mut out, 6, text.as_bytes())?;
    }
    out.finish()?;
    Ok(())
}

/// Values have a sign there.
fn whole(value: u64) -> u64 {
    value.min(i64::MAX as u64)
}

fn value_type(strings: &mut Strings, sort: &str, unit: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    number(&mut bytes, 1, strings.id(sort));
    number(&mut bytes, 2, strings.id(unit));
    bytes
}

#[derive(Default)]
struct Strings {
    texts: Vec<String>,
    ids: FxHashMap<String, u64>,
}

impl Strings {
    /// The number of a text, which becomes one without what would act on a terminal.
    fn id(&mut self, text: &str) -> u64 {
        if text.contains(is_active) {
            return self.id(&text.replace(is_active, " "));
        }
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// What was written already, numbered from 1.
#[derive(Default)]
struct Places<'a> {
    locations: FxHashMap<Entry<'a>, u64>,
    /// By name and file.
    functions: FxHashMap<(u64, u64), u64>,
    /// By name.
    mappings: FxHashMap<u64, u64>,
}

impl<'a> Places<'a> {
    /// The location of an entry; written, with its function and mapping, when it is new.
    fn location(
        &mut self,
        entry: Entry<'a>,
        tables: &Tables,
        strings: &mut Strings,
        out: &mut dyn Write,
    ) -> io::Result<u64> {
        if let Some(id) = self.locations.get(&entry) {
            return Ok(*id);
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(entry, id);
        let (name, file, line, module, address) = match entry {
            Entry::Step(text) => (text, "", 0, "", 0),
            Entry::Frame(frame) => {
                let [name, file, module] =
                    [frame.function, frame.file, frame.module].map(|text| tables.string(text));
                (name, file, frame.line, module, frame.address)
            }
        };
        let mapping = if module.is_empty() { 0 } else { self.mapping(strings.id(module), out)? };
        let mut bytes = Vec::new();
        for (field, value) in [(1, id), (2, mapping), (3, address)] {
            number(&mut bytes, field, value);
        }
        // A place of which nothing is known but its address has no line: what reads it names it by that.
        if !(name.is_empty() && file.is_empty()) {
            let (name, file) = (strings.id(name), strings.id(file));
            let mut lines = Vec::new();
            number(&mut lines, 1, self.function(name, file, out)?);
            number(&mut lines, 2, u64::from(line));
            message(&mut bytes, 4, &lines)?;
        }
        message(out, 4, &bytes)?;
        Ok(id)
    }

    fn function(&mut self, name: u64, file: u64, out: &mut dyn Write) -> io::Result<u64> {
        let next = self.functions.len() as u64 + 1;
        let function = *self.functions.entry((name, file)).or_insert(next);
        if function == next {
            let mut bytes = Vec::new();
            // Without a name of the system pprof leaves ours alone: it would cut `<module>` out of it.
            for (field, value) in [(1, function), (2, name), (4, file)] {
                number(&mut bytes, field, value);
            }
            message(out, 5, &bytes)?;
        }
        Ok(function)
    }

    fn mapping(&mut self, name: u64, out: &mut dyn Write) -> io::Result<u64> {
        let next = self.mappings.len() as u64 + 1;
        let mapping = *self.mappings.entry(name).or_insert(next);
        if mapping == next {
            let mut bytes = Vec::new();
            // The last four: functions, files, lines and inlined frames are known.
            for (field, value) in [(1, mapping), (5, name), (7, 1), (8, 1), (9, 1), (10, 1)] {
                number(&mut bytes, field, value);
            }
            message(out, 3, &bytes)?;
        }
        Ok(mapping)
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field with a number; 0 is what is there without it.
fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        varint(out, field << 3);
        varint(out, value);
    }
}

fn message(out: &mut (impl Write + ?Sized), field: u64, bytes: &[u8]) -> io::Result<()> {
    let mut head = Vec::new();
    varint(&mut head, field << 3 | 2);
    varint(&mut head, bytes.len() as u64);
    out.write_all(&head)?;
    out.write_all(bytes)
}

fn packed(out: &mut Vec<u8>, field: u64, values: &[u64]) {
    let mut bytes = Vec::new();
    for value in values {
        varint(&mut bytes, *value);
    }
    varint(out, field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}
