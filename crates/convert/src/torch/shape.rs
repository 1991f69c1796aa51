//! Makes small records of the containers of a snapshot as they come: frames, stacks and entries of traces.
//!
//! Nearly all of a snapshot is stacks. A frame becomes a row of the tables, a list of frames a stack, and
//! an entry of a trace 56 bytes, as soon as they are part of something else.

use floodmark_event::tables::Frame;
use floodmark_event::{StackId, StringId, Tables};
use floodmark_store::Losses;
use rustc_hash::FxHashMap;

use crate::Mode;
use crate::pickle::{Build, Node, NodeId, TextId, Value, Values};
use crate::quote::quoted;

macro_rules! words {
    ($count:literal: $($name:ident $word:literal,)*) => {
        /// Words that snapshots use as keys; [`TextId`]s of [`Word`]s are known beforehand.
        pub(super) const WORDS: [&str; $count] = [$($word,)*];

        /// A word that snapshots use as a key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(super) enum Word {
            $($name,)*
        }
    };
}

words! { 30:
    Action "action",
    Addr "addr",
    Address "address",
    AllocatorSettings "allocator_settings",
    Blocks "blocks",
    CompileContext "compile_context",
    Device "device",
    DeviceFree "device_free",
    DeviceTraces "device_traces",
    ExpandableSegments "expandable_segments",
    ExternalAnnotations "external_annotations",
    Filename "filename",
    Frames "frames",
    History "history",
    HostSegments "host_segments",
    HostTraces "host_traces",
    Line "line",
    MaxSplitSize "max_split_size",
    Name "name",
    RealSize "real_size",
    RequestedSize "requested_size",
    RoundupPower2Divisions "roundup_power2_divisions",
    Segments "segments",
    Size "size",
    Stage "stage",
    State "state",
    Stream "stream",
    TimeUs "time_us",
    TotalSize "total_size",
    UserMetadata "user_metadata",
}

impl Word {
    pub(super) const fn text(self) -> &'static str {
        WORDS[self as usize]
    }
}

/// Looks up keys of a dict.
pub(super) fn at(items: &[Value], word: Word) -> Option<Value> {
    Values::<Made>::at(items, TextId(word as u32))
}

/// What containers become.
#[derive(Clone, Copy, Debug)]
pub(super) enum Made {
    Frame(u32),
    Stack(StackId),
    /// Index of an [`Entry`].
    Entry(u32),
}

/// What an entry of a trace says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    Snapshot,
    OutOfMemory,
    Annotate,
    Unknown,
}

impl Did {
    fn of(word: &str) -> Self {
        match word {
            "alloc" => Self::Alloc,
            "free_requested" | "free" => Self::FreeRequested,
            "free_completed" => Self::FreeCompleted,
            "segment_alloc" | "segment_map" => Self::SegmentAlloc,
            "segment_free" | "segment_unmap" => Self::SegmentFree,
            "snapshot" => Self::Snapshot,
            "oom" => Self::OutOfMemory,
            "annotate" => Self::Annotate,
            _ => Self::Unknown,
        }
    }
}

/// An entry of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// None in snapshots of old versions.
    pub(super) time_ns: Option<i64>,
    /// What the device had free where memory ran out.
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
    pub(super) stack: StackId,
    pub(super) name: StringId,
    pub(super) did: Did,
    /// Whether memory was mapped into an expandable segment, or unmapped.
    pub(super) is_mapping: bool,
}

/// Makes records.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) mode: Mode,
    pub(super) tables: Tables,
    pub(super) entries: Vec<Entry>,
    pub(super) losses: Losses,
    stacks: FxHashMap<(StackId, u32), StackId>,
}

/// Frames and entries have fewer keys and values than this.
const DICT_ITEMS_MAX: usize = 64;
/// What a stack costs in the tables.
const STACK_BYTES: u64 = 80;

impl Shape {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            tables: Tables::default(),
            entries: Vec::new(),
            losses: Losses::default(),
            stacks: FxHashMap::default(),
        }
    }

    /// Counts something that cannot be read, or makes it an error.
    pub(super) fn complain(&mut self, reason: String) -> Result<(), String> {
        match self.mode {
            Mode::Lenient => {
                self.losses.add(1, "malformed parts of the snapshot skipped");
                Ok(())
            }
            Mode::Strict => Err(reason),
        }
    }

    fn frame(&mut self, items: &[Value], values: &Values<Made>) -> u32 {
        let text = |word| at(items, word).and_then(|value| values.text_of(value)).unwrap_or("");
        let (function, file) = (text(Word::Name), text(Word::Filename));
        let line = at(items, Word::Line).and_then(Value::whole).and_then(|line| u32::try_from(line).ok());
        let frame = Frame {
            function: self.tables.intern(function),
            file: self.tables.intern(if file == "??" { "" } else { file }),
            line: line.unwrap_or(0),
            ..Frame::default()
        };
        self.tables.intern_frame(frame)
    }

    /// The stack of a list of frames, innermost first.
    fn stack(&mut self, items: &[Value], values: &Values<Made>) -> Result<StackId, String> {
        let mut stack = StackId(0);
        for item in items.iter().rev() {
            let Some(Made::Frame(frame)) = values.made(*item) else {
                self.complain("frames hold something that is no frame".to_owned())?;
                continue;
            };
            let tables = &mut self.tables;
            stack = *self.stacks.entry((stack, frame)).or_insert_with(|| tables.intern_stack(stack, frame));
        }
        Ok(stack)
    }

    fn entry(&mut self, items: &[Value], values: &Values<Made>) -> Result<Option<Entry>, String> {
        let text = |word| at(items, word).and_then(|value| values.text_of(value));
        let whole = |word| match at(items, word) {
            None => Ok(0),
            Some(value) => value.whole().ok_or_else(|| format!("{} is no whole number", Word::text(word))),
        };
        let numbers = || Ok::<_, String>([whole(Word::Addr)?, whole(Word::Size)?, whole(Word::DeviceFree)?]);
        let [address, bytes, free_bytes] = match numbers() {
            Ok(numbers) => numbers,
            Err(reason) => return self.complain(format!("in a trace, {reason}")).map(|()| None),
        };
        let time_ns = at(items, Word::TimeUs).and_then(Value::int).and_then(|us| us.checked_mul(1000));
        let action = text(Word::Action).unwrap_or("");
        let did = Did::of(action);
        if did == Did::Unknown {
            self.losses
                .add(1, &format!("entries of traces say {}, which is not known", quoted(action.as_bytes())));
        }
        let metadata = text(Word::UserMetadata).filter(|text| !text.is_empty());
        let context = || text(Word::CompileContext).filter(|text| !matches!(*text, "" | "N/A"));
        let name = metadata.or_else(context).unwrap_or("");
        let stack = at(items, Word::Frames).and_then(|value| values.made(value));
        Ok(Some(Entry {
            time_ns,
            address: if did == Did::OutOfMemory { free_bytes } else { address },
            bytes,
            stream: at(items, Word::Stream).map_or(0, |value| value.int().map_or(0, |stream| stream as u64)),
            stack: if let Some(Made::Stack(stack)) = stack { stack } else { StackId(0) },
            name: self.tables.intern(name),
            did,
            is_mapping: matches!(action, "segment_map" | "segment_unmap"),
        }))
    }

    fn take_dict(&mut self, id: NodeId, values: &mut Values<Made>) -> Result<(), String> {
        let Some(items) = values.dict(Value::Node(id)) else { return Ok(()) };
        // A large one that is shared a million times must not be searched as often.
        if items.len() > DICT_ITEMS_MAX {
            return Ok(());
        }
        if at(items, Word::Filename).is_some() && at(items, Word::Name).is_some() {
            let frame = self.frame(items, values);
            values.replace(id, Made::Frame(frame));
        } else if at(items, Word::Action).is_some() {
            let entry = self.entry(items, values)?;
            if let Some(entry) = entry {
                self.entries.push(entry);
                values.hold(size_of::<Entry>() as u64);
                values.replace(id, Made::Entry(self.entries.len() as u32 - 1));
            }
        }
        Ok(())
    }
}

impl Build for Shape {
    type Made = Made;

    #[inline]
    fn consume(
        &mut self,
        key: Option<TextId>,
        value: Value,
        values: &mut Values<Made>,
    ) -> Result<(), String> {
        let Value::Node(id) = value else { return Ok(()) };
        match values.node(id) {
            Some(Node::List(items)) if key == Some(TextId(Word::Frames as u32)) => {
                let before = self.stacks.len();
                let stack = self.stack(items, values)?;
                values.hold(STACK_BYTES * (self.stacks.len() - before) as u64);
                values.replace(id, Made::Stack(stack));
                Ok(())
            }
            Some(Node::Dict(_)) => self.take_dict(id, values),
            _ => Ok(()),
        }
    }
}
