//! Single events: a table for people, CSV and lines of JSON for programs.
//!
//! All three are written as events arrive, so a trace may be longer than memory and still growing.

use std::fmt::Write as _;

use floodmark_analyze::SiteRules;
use floodmark_event::units::{format_bytes, format_time_ns};
use floodmark_event::{Action, Event, EventBatch, NO_DEVICE, Tables, UNKNOWN_BYTES};
use serde::Serialize;

use crate::blocks::stream;
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::json_line;
use crate::table::{cut, shorten};

/// Name and version of a line of JSON.
pub const SCHEMA: &str = "floodmark.event/1";

/// Lays events out in columns whose widths are settled by the first batch.
#[derive(Clone, Debug, Default)]
pub struct EventTable {
    columns: Option<Vec<(Field, usize)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Time,
    Process,
    Thread,
    Action,
    Address,
    Bytes,
    Stream,
    Device,
    Kind,
    Name,
    Site,
}

const FIELDS: [Field; 11] = [
    Field::Time,
    Field::Process,
    Field::Thread,
    Field::Action,
    Field::Address,
    Field::Bytes,
    Field::Stream,
    Field::Device,
    Field::Kind,
    Field::Name,
    Field::Site,
];

/// What is left out first when room is short.
const LEAST_FIRST: [Field; 7] =
    [Field::Kind, Field::Process, Field::Name, Field::Device, Field::Stream, Field::Thread, Field::Site];
const SHORTEST_SITE: usize = 24;
const GAP: usize = 2;

impl Field {
    fn title(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Action => "action",
            Self::Address => "address",
            Self::Bytes => "bytes",
            Self::Stream => "stream",
            Self::Device => "device",
            Self::Kind => "kind",
            Self::Name => "name",
            Self::Site => "site",
        }
    }

    fn is_figure(self) -> bool {
        matches!(self, Self::Process | Self::Thread | Self::Bytes | Self::Device)
    }

    /// Whether the column says the same of all events and may be left out.
    fn is_dull(self, batch: &EventBatch) -> bool {
        match self {
            Self::Time | Self::Action | Self::Address | Self::Bytes => false,
            Self::Process => batch.process.same().is_some(),
            Self::Thread => batch.thread.same() == Some(0),
            Self::Stream => batch.stream.same() == Some(0),
            Self::Device => batch.device.same().is_some(),
            Self::Kind => batch.kind.same().is_some(),
            Self::Name => batch.name.same().is_some_and(|name| name.0 == 0),
            Self::Site => batch.stack.same().is_some_and(|stack| stack.0 == 0),
        }
    }

    fn text(self, event: &Event, tables: &Tables) -> String {
        match self {
            Self::Time => format_time_ns(event.time_ns),
            Self::Process => event.process.0.to_string(),
            Self::Thread => event.thread.to_string(),
            Self::Action => event.action.name().to_owned(),
            Self::Address if event.action == Action::Failure => "-".to_owned(),
            Self::Address => format!("{:#x}", event.address),
            Self::Bytes if event.bytes == UNKNOWN_BYTES => "?".to_owned(),
            Self::Bytes => format_bytes(event.bytes),
            Self::Stream => stream(event.stream),
            Self::Device if event.device == NO_DEVICE => "-".to_owned(),
            Self::Device => event.device.to_string(),
            Self::Kind => event.kind.name().to_owned(),
            Self::Name => plain(tables.string(event.name)).into_owned(),
            Self::Site => {
                let frame = SiteRules::default().frame_of(event.stack, tables);
                frame.map_or_else(String::new, |frame| plain(&tables.frame_text(&frame)).into_owned())
            }
        }
    }
}

impl EventTable {
    /// Lays out the rows of a batch; the titles come before the first.
    pub fn text(&mut self, batch: &EventBatch, tables: &Tables, layout: &Layout) -> String {
        let mut text = Lines::default();
        let columns = self.columns.get_or_insert_with(|| {
            let columns = settle(batch, tables, layout.width);
            let titles = columns.iter().map(|(field, width)| padded(field.title(), *width, *field));
            let titles = titles.collect::<Vec<_>>().join("  ");
            let titles = cut(titles.trim_end(), layout.width);
            text.styled(layout.palette.faint, titles);
            columns
        });
        for event in batch.events() {
            let cells =
                columns.iter().map(|(field, width)| padded(&field.text(&event, tables), *width, *field));
            let line = cells.collect::<Vec<_>>().join("  ");
            let line = cut(line.trim_end(), layout.width);
            let style = match event.action {
                Action::Failure => layout.palette.bad,
                Action::Free => layout.palette.faint,
                Action::Alloc => anstyle::Style::new(),
            };
            text.styled(style, line);
        }
        text.text()
    }
}

fn settle(batch: &EventBatch, tables: &Tables, room: usize) -> Vec<(Field, usize)> {
    let shown = FIELDS.into_iter().filter(|field| !field.is_dull(batch));
    let width = |field: Field| {
        let cells = batch.events().map(|event| field.text(&event, tables).chars().count());
        cells.max().unwrap_or(0).max(field.title().len())
    };
    let mut columns: Vec<(Field, usize)> = shown.map(|field| (field, width(field))).collect();
    let room_for = |columns: &[(Field, usize)]| {
        let width =
            |(field, width): &(Field, usize)| if *field == Field::Site { SHORTEST_SITE } else { *width };
        columns.iter().map(|column| width(column) + GAP).sum::<usize>().saturating_sub(GAP)
    };
    for field in LEAST_FIRST {
        if room_for(&columns) > room {
            columns.retain(|(shown, _)| *shown != field);
        }
    }
    // The place is the longest by far and stands last: it gets what is left.
    if let Some((Field::Site, _)) = columns.last() {
        let before: usize = columns[..columns.len() - 1].iter().map(|(_, width)| width + GAP).sum();
        let last = columns.len() - 1;
        columns[last].1 = columns[last].1.min(room.saturating_sub(before).max(SHORTEST_SITE));
    }
    columns
}

fn padded(text: &str, width: usize, field: Field) -> String {
    let text = if field == Field::Site { shorten(text, width) } else { text.to_owned() };
    if field.is_figure() { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

/// Writes events as CSV with a header.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventCsv {
    headed: bool,
}

impl EventCsv {
    /// Writes the rows of a batch; the header comes before the first.
    pub fn text(&mut self, batch: &EventBatch, tables: &Tables) -> String {
        let mut text = String::new();
        if !self.headed {
            self.headed = true;
            text += "time_ns,process,thread,action,address,bytes,device,stream,kind,resource,name,stack\n";
        }
        for event in batch.events() {
            let bytes = if event.bytes == UNKNOWN_BYTES { String::new() } else { event.bytes.to_string() };
            let device = if event.device == NO_DEVICE { String::new() } else { event.device.to_string() };
            let _ = writeln!(
                text,
                "{},{},{},{},{:#x},{bytes},{device},{:#x},{},{},{},{}",
                event.time_ns,
                event.process.0,
                event.thread,
                event.action.name(),
                event.address,
                event.stream,
                event.kind.name(),
                quoted(tables.string(event.resource)),
                quoted(tables.string(event.name)),
                quoted(&tables.stack_text(event.stack).join(";")),
            );
        }
        text
    }
}

/// Text as a field of CSV, without characters that act on a terminal.
pub(crate) fn quoted(text: &str) -> String {
    let text = plain(text);
    if text.contains([',', '"', ';']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into_owned()
    }
}

/// Writes events as lines of JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventJson;

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    time_ns: i64,
    process: u32,
    thread: u64,
    action: &'static str,
    address: String,
    bytes: Option<u64>,
    device: Option<i32>,
    stream: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    stack: Vec<String>,
}

impl EventJson {
    /// Writes the rows of a batch.
    pub fn text(self, batch: &EventBatch, tables: &Tables) -> String {
        batch.events().map(|event| line(&event, tables)).collect()
    }
}

fn line(event: &Event, tables: &Tables) -> String {
    json_line(&Line {
        schema: SCHEMA,
        time_ns: event.time_ns,
        process: event.process.0,
        thread: event.thread,
        action: event.action.name(),
        address: format!("{:#x}", event.address),
        bytes: (event.bytes != UNKNOWN_BYTES).then_some(event.bytes),
        device: (event.device != NO_DEVICE).then_some(event.device),
        stream: format!("{:#x}", event.stream),
        kind: event.kind.name(),
        resource: tables.string(event.resource),
        name: tables.string(event.name),
        stack: tables.stack_text(event.stack),
    })
}
