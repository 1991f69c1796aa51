//! Profiles for speedscope: one of what was live at an instant, one of what is left, one of all that was
//! allocated; each is a list of stacks with their bytes.

use std::fmt::Write as _;
use std::io::{self, Write};

use floodmark_event::Tables;
use rustc_hash::FxHashMap;

use crate::json_text::json_string;
use crate::weighed::{Entry, StackTotals};

/// What the file and its first profile are called.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The file.
    pub file: &'a str,
    /// What was live at an instant, such as `live at the peak`.
    pub held: &'a str,
}

/// What a profile takes of a stack.
type Weigh = fn(&StackTotals) -> u64;

/// Writes the profiles.
///
/// # Errors
/// Those of `out`.
pub fn write(
    out: &mut dyn Write,
    names: Names<'_>,
    stacks: &[StackTotals],
    tables: &Tables,
) -> io::Result<()> {
    let mut frames = FxHashMap::default();
    write!(
        out,
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"floodmark@{}\",\
         \"name\":{},\"activeProfileIndex\":0,\"shared\":{{\"frames\":[",
        env!("CARGO_PKG_VERSION"),
        json_string(names.file)
    )?;
    let mut path = Vec::new();
    for stack in stacks {
        stack.path(tables, &mut path);
        for entry in &path {
            let count = frames.len();
            if let std::collections::hash_map::Entry::Vacant(vacant) = frames.entry(*entry) {
                vacant.insert(count);
                out.write_all(if count == 0 { b"\n" } else { b",\n" })?;
                out.write_all(frame_json(entry, tables).as_bytes())?;
            }
        }
    }
    out.write_all(b"]},\n\"profiles\":[")?;
    let profiles: [(&str, Weigh); 3] = [
        (names.held, |stack| stack.held[0]),
        ("live at the end", |stack| stack.left[0]),
        ("allocated in all", |stack| stack.allocated[0]),
    ];
    for (number, (name, weight)) in profiles.into_iter().enumerate() {
        if number > 0 {
            out.write_all(b",")?;
        }
        let weighed = || stacks.iter().filter(|stack| weight(stack) > 0);
        let total = weighed().fold(0u64, |total, stack| total.saturating_add(weight(stack)));
        write!(
            out,
            "\n{{\"type\":\"sampled\",\"name\":{},\"unit\":\"bytes\",\"startValue\":0,\"endValue\":{total},\
             \"samples\":[",
            json_string(name)
        )?;
        for (at, stack) in weighed().enumerate() {
            stack.path(tables, &mut path);
            out.write_all(if at == 0 { b"\n[" } else { b",\n[" })?;
            for (at, entry) in path.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                write!(out, "{comma}{}", frames.get(entry).copied().unwrap_or(0))?;
            }
            out.write_all(b"]")?;
        }
        out.write_all(b"],\n\"weights\":[")?;
        for (at, stack) in weighed().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(out, "{comma}{}", weight(stack))?;
        }
        out.write_all(b"]}")?;
    }
    out.write_all(b"]}\n")
}

fn frame_json(entry: &Entry<'_>, tables: &Tables) -> String {
    let frame = match entry {
        Entry::Step(text) => return format!("{{\"name\":{}}}", json_string(text)),
        Entry::Frame(frame) => frame,
    };
    let function = tables.string(frame.function);
    let module = tables.string(frame.module);
    let name = if function.is_empty() { format!("{:#x}", frame.address) } else { function.to_owned() };
    let mut json = format!("{{\"name\":{}", json_string(&name));
    let file = tables.string(frame.file);
    let file = if file.is_empty() { module } else { file };
    if !file.is_empty() {
        let _ = write!(json, ",\"file\":{}", json_string(file));
    }
    if frame.line > 0 {
        let _ = write!(json, ",\"line\":{}", frame.line);
    }
    json + "}"
}
