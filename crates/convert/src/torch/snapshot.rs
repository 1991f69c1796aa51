//! A snapshot as it was read: traces, the state at the end, annotations and settings.

use std::path::Path;

use floodmark_event::tables::Process;
use floodmark_event::{Kind, NO_DEVICE, ProcessId, StackId, StringId, Tables};
use floodmark_store::Losses;
use rustc_hash::{FxHashMap, FxHashSet};

use super::scopes::{Annotation, Scopes};
use super::shape::{Did, Entry, Made, Shape, Word, at};
use super::{BLOCKS, HOST_BLOCKS, HOST_SEGMENTS, SEGMENTS};
use crate::OpenProps;
use crate::pickle::{NodeId, Value, Values};

/// A place in a snapshot, and what is wrong there.
type Wrong = (String, String);

/// A snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) tables: Tables,
    pub(super) process: ProcessId,
    pub(super) entries: Vec<Entry>,
    /// One per device, and one for the host if it has any.
    pub(super) places: Vec<Place>,
    pub(super) scopes: Scopes,
    pub(super) settings: Settings,
    pub(super) losses: Losses,
}

/// What happened on a device or the host, and how it stood at the end.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) device: i32,
    pub(super) kind: Kind,
    pub(super) blocks: StringId,
    pub(super) segments: StringId,
    /// Indexes of entries, in order.
    pub(super) trace: Vec<u32>,
    pub(super) state: Vec<Segment>,
    /// When the trace begins; without one, when the state is taken to be.
    pub(super) first_ns: i64,
}

/// Memory that the allocator held at the end.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
    pub(super) stack: StackId,
    pub(super) blocks: Vec<Block>,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    /// Bytes of the whole block.
    pub(super) bytes: u64,
    pub(super) requested_bytes: u64,
    pub(super) state: State,
    pub(super) stack: StackId,
}

/// How a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Live,
    /// It was freed and waits for streams that may still use it.
    PendingFree,
    Free,
}

/// Settings that say how the allocator divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Larger blocks are not divided.
    pub(super) max_split_bytes: u64,
    pub(super) is_expandable: bool,
    /// Whether sizes are rounded to more than 512 bytes.
    pub(super) rounds_to_powers: bool,
}

/// Looks up keys of the dict at a place.
struct Fields<'a> {
    items: &'a [Value],
    values: &'a Values<Made>,
    place: &'a str,
}

impl<'a> Fields<'a> {
    fn of(value: Value, values: &'a Values<Made>, place: &'a str) -> Result<Self, Wrong> {
        let items = values.dict(value).ok_or_else(|| (place.to_owned(), "it is no dict".to_owned()))?;
        Ok(Self { items, values, place })
    }

    fn wrong(&self, word: Word, what: &str) -> Wrong {
        (self.place.to_owned(), format!("{} {what}", word.text()))
    }

    fn whole(&self, word: Word) -> Result<u64, Wrong> {
        let value = at(self.items, word).ok_or_else(|| self.wrong(word, "is missing"))?;
        value.whole().ok_or_else(|| self.wrong(word, "is no whole number"))
    }

    fn whole_or(&self, word: Word, other: u64) -> Result<u64, Wrong> {
        if at(self.items, word).is_some() { self.whole(word) } else { Ok(other) }
    }

    /// The items of a list; none where there is no such key.
    fn list(&self, word: Word) -> Result<&'a [Value], Wrong> {
        let Some(value) = at(self.items, word) else { return Ok(&[]) };
        self.values.list(value).ok_or_else(|| self.wrong(word, "is no list"))
    }

    fn text(&self, word: Word) -> &'a str {
        at(self.items, word).and_then(|value| self.values.text_of(value)).unwrap_or("")
    }

    fn stack(&self) -> Option<StackId> {
        let made = self.values.made(at(self.items, Word::Frames)?)?;
        if let Made::Stack(stack) = made { Some(stack) } else { None }
    }

    fn device(&self) -> i32 {
        at(self.items, Word::Device)
            .and_then(Value::int)
            .and_then(|device| i32::try_from(device).ok())
            .filter(|device| *device >= 0)
            .unwrap_or(0)
    }

    fn stream(&self) -> u64 {
        at(self.items, Word::Stream).and_then(Value::int).map_or(0, |stream| stream as u64)
    }
}

impl Snapshot {
    /// Makes a snapshot of the value that a file holds.
    pub(super) fn of(
        root: Value,
        values: &Values<Made>,
        mut shape: Shape,
        path: &Path,
        props: &OpenProps,
    ) -> Result<Self, Wrong> {
        let fields = root_fields(root, values)?;
        let mut read = Reading {
            values,
            shape: &mut shape,
            places: Vec::new(),
            of_device: FxHashMap::default(),
            lists: FxHashSet::default(),
        };
        read.traces(&fields)?;
        read.states(&fields)?;
        let annotations = read.annotations(&fields)?;
        let mut places = read.places;
        let settings = settings(&fields);
        let Shape { mut tables, mut entries, mut losses, .. } = shape;
        time_old_entries(&mut entries, &places, &mut losses);
        let last_ns = last_time(&entries, &annotations).or_else(|| date_ns(props)).unwrap_or(0);
        for place in &mut places {
            let first = place.trace.first().and_then(|at| entries[*at as usize].time_ns);
            place.first_ns = first.unwrap_or(last_ns);
        }
        for place in &mut places {
            let is_host = place.device == NO_DEVICE;
            place.blocks = tables.intern(if is_host { HOST_BLOCKS } else { BLOCKS });
            place.segments = tables.intern(if is_host { HOST_SEGMENTS } else { SEGMENTS });
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        let command = name.to_string_lossy().into_owned();
        tables.processes.push(Process { id: props.process, command, ..Process::default() });
        let scopes = Scopes::new(annotations, props.process);
        if scopes.omitted > 0 {
            losses.remark_times(scopes.omitted, "an annotation inside a thousand others was left out");
        }
        Ok(Self { tables, process: props.process, entries, places, scopes, settings, losses })
    }
}

/// The first dict; says what else a file may be.
fn root_fields(root: Value, values: &Values<Made>) -> Result<Fields<'_>, Wrong> {
    let place = "snapshot";
    if matches!(root, Value::Other | Value::Int(_) | Value::Large(_)) {
        let reason = "the pickle holds a number; files of torch.save begin so, and are no memory snapshots";
        return Err((place.to_owned(), reason.to_owned()));
    }
    let fields = Fields::of(root, values, place)?;
    if at(fields.items, Word::Segments).is_none() && at(fields.items, Word::DeviceTraces).is_none() {
        let reason =
            "it has neither segments nor device_traces, which torch.cuda.memory._dump_snapshot writes";
        return Err((place.to_owned(), reason.to_owned()));
    }
    Ok(fields)
}

struct Reading<'a> {
    values: &'a Values<Made>,
    shape: &'a mut Shape,
    places: Vec<Place>,
    of_device: FxHashMap<i32, usize>,
    /// Lists that were taken. One that is shared would be taken again and again.
    lists: FxHashSet<NodeId>,
}

impl Reading<'_> {
    fn place(&mut self, device: i32) -> &mut Place {
        let at = *self.of_device.entry(device).or_insert(self.places.len());
        if at == self.places.len() {
            let kind = if device == NO_DEVICE { Kind::Pinned } else { Kind::Device };
            self.places.push(Place {
                device,
                kind,
                blocks: StringId(0),
                segments: StringId(0),
                trace: Vec::new(),
                state: Vec::new(),
                first_ns: 0,
            });
        }
        &mut self.places[at]
    }

    /// Whether a list is new.
    fn is_new(&mut self, value: Value, place: &str) -> Result<(), Wrong> {
        if let Value::Node(id) = value
            && !self.lists.insert(id)
        {
            return Err((place.to_owned(), "it is the same list as another one".to_owned()));
        }
        Ok(())
    }

    fn traces(&mut self, fields: &Fields<'_>) -> Result<(), Wrong> {
        for (device, trace) in fields.list(Word::DeviceTraces)?.iter().enumerate() {
            let place = format!("device_traces[{device}]");
            let device = i32::try_from(device).unwrap_or(i32::MAX);
            self.trace(device, *trace, &place)?;
        }
        let host = fields.list(Word::HostTraces)?;
        let is_flat = host.iter().any(|item| matches!(self.values.made(*item), Some(Made::Entry(_))));
        if is_flat {
            let all = at(fields.items, Word::HostTraces).unwrap_or(Value::Other);
            self.trace(NO_DEVICE, all, "host_traces")?;
        } else {
            for trace in host {
                self.trace(NO_DEVICE, *trace, "host_traces")?;
            }
        }
        Ok(())
    }

    fn trace(&mut self, device: i32, trace: Value, place: &str) -> Result<(), Wrong> {
        let wrong = |reason: &str| (place.to_owned(), reason.to_owned());
        let items = self.values.list(trace).ok_or_else(|| wrong("it is no list"))?;
        if items.is_empty() {
            return Ok(());
        }
        self.is_new(trace, place)?;
        let mut entries = Vec::with_capacity(items.len());
        for item in items {
            if let Some(Made::Entry(entry)) = self.values.made(*item) {
                entries.push(entry);
            } else if self.values.dict(*item).is_none() || self.shape.mode == crate::Mode::Strict {
                self.shape.complain("an entry has no action".to_owned()).map_err(|reason| wrong(&reason))?;
            }
        }
        self.place(device).trace.append(&mut entries);
        Ok(())
    }

    fn states(&mut self, fields: &Fields<'_>) -> Result<(), Wrong> {
        for (word, is_host) in [(Word::Segments, false), (Word::HostSegments, true)] {
            for (number, segment) in fields.list(word)?.iter().enumerate() {
                let place = format!("{}[{number}]", word.text());
                match self.segment(*segment, &place) {
                    Ok((device, segment)) => {
                        let device = if is_host { NO_DEVICE } else { device };
                        self.place(device).state.push(segment);
                    }
                    Err((place, reason)) => self.shape.complain(reason).map_err(|reason| (place, reason))?,
                }
            }
        }
        for place in &mut self.places {
            place.state.sort_by_key(|segment| segment.address);
        }
        Ok(())
    }

    fn segment(&mut self, segment: Value, place: &str) -> Result<(i32, Segment), Wrong> {
        let fields = Fields::of(segment, self.values, place)?;
        let address = fields.whole_or(Word::Address, 0)?;
        let items = fields.list(Word::Blocks)?;
        if !items.is_empty() {
            self.is_new(at(fields.items, Word::Blocks).unwrap_or(Value::Other), place)?;
        }
        let mut blocks = Vec::with_capacity(items.len());
        let mut next_address = address;
        for (number, item) in items.iter().enumerate() {
            let place = format!("{place}.blocks[{number}]");
            let block = block(&Fields::of(*item, self.values, &place)?, next_address)?;
            next_address = block.address.saturating_add(block.bytes);
            blocks.push(block);
        }
        let stack = fields.stack().unwrap_or_default();
        let bytes = fields.whole(Word::TotalSize)?;
        Ok((fields.device(), Segment { address, bytes, stream: fields.stream(), stack, blocks }))
    }

    fn annotations(&mut self, fields: &Fields<'_>) -> Result<Vec<Annotation>, Wrong> {
        let mut annotations = Vec::new();
        for (number, item) in fields.list(Word::ExternalAnnotations)?.iter().enumerate() {
            let place = format!("external_annotations[{number}]");
            let annotation = Fields::of(*item, self.values, &place).and_then(|fields| {
                let time_us = fields.whole(Word::TimeUs)?;
                let time_ns = i64::try_from(time_us).ok().and_then(|us| us.checked_mul(1000));
                let name = fields.text(Word::Name).to_owned();
                Ok(Annotation {
                    time_ns: time_ns.ok_or_else(|| fields.wrong(Word::TimeUs, "is beyond all times"))?,
                    device: fields.device(),
                    is_end: fields.text(Word::Stage) == "END",
                    name,
                })
            });
            match annotation {
                Ok(annotation) => annotations.push(annotation),
                Err((place, reason)) => self.shape.complain(reason).map_err(|reason| (place, reason))?,
            }
        }
        Ok(annotations)
    }
}

fn block(fields: &Fields<'_>, next_address: u64) -> Result<Block, Wrong> {
    let bytes = fields.whole(Word::Size)?;
    // Up to 2.0 a block has no address, and what it was asked for is in its history, the latest first.
    let history = fields.list(Word::History)?.first().copied();
    let history = history.map(|value| Fields::of(value, fields.values, fields.place)).transpose()?;
    let asked = history.as_ref().map_or(Ok(bytes), |history| history.whole_or(Word::RealSize, bytes))?;
    let stack = fields.stack().or_else(|| history.as_ref().and_then(Fields::stack));
    let state = match fields.text(Word::State) {
        "active_allocated" => State::Live,
        "active_pending_free" | "active_awaiting_free" => State::PendingFree,
        _ => State::Free,
    };
    Ok(Block {
        address: fields.whole_or(Word::Address, next_address)?,
        bytes,
        requested_bytes: fields.whole_or(Word::RequestedSize, asked)?,
        state,
        stack: stack.unwrap_or_default(),
    })
}

fn settings(fields: &Fields<'_>) -> Settings {
    let items = at(fields.items, Word::AllocatorSettings).and_then(|value| fields.values.dict(value));
    let items = items.unwrap_or(&[]);
    let divisions = at(items, Word::RoundupPower2Divisions).and_then(|value| fields.values.dict(value));
    let rounds = |pair: &[Value]| pair[1].whole().is_some_and(|divisions| divisions > 1);
    Settings {
        max_split_bytes: at(items, Word::MaxSplitSize).and_then(Value::whole).unwrap_or(u64::MAX),
        is_expandable: at(items, Word::ExpandableSegments) == Some(Value::Bool(true)),
        rounds_to_powers: divisions.is_some_and(|items| items.chunks_exact(2).any(rounds)),
    }
}

/// Gives entries of old versions, which have no times, one a microsecond.
fn time_old_entries(entries: &mut [Entry], places: &[Place], losses: &mut Losses) {
    let mut count = 0;
    for place in places {
        let mut last_ns = 0;
        for at in &place.trace {
            let entry = &mut entries[*at as usize];
            if entry.time_ns.is_none() {
                entry.time_ns = Some(last_ns + 1000);
                count += 1;
            }
            last_ns = entry.time_ns.unwrap_or(0).min(i64::MAX - 1000);
        }
    }
    if count > 0 {
        losses.remark_times(count, "an entry has no time; such entries are shown one microsecond apart");
    }
}

fn last_time(entries: &[Entry], annotations: &[Annotation]) -> Option<i64> {
    let traced = entries.iter().filter(|entry| entry.did != Did::Unknown).filter_map(|entry| entry.time_ns);
    traced.chain(annotations.iter().map(|annotation| annotation.time_ns)).max()
}

fn date_ns(props: &OpenProps) -> Option<i64> {
    props.date.and_then(|date| date.epoch_days().checked_mul(86_400_000_000_000))
}
