//! The events of an export, in the order in which they happened.
//!
//! Everything is read when the first batch is asked for. What a context held when it was torn down has no
//! rows of its own in an export; frees are made up for it, in a scope named
//! [`CONTEXT_TEARDOWN`](floodmark_event::CONTEXT_TEARDOWN).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, StackId, StringId, Tables};
use floodmark_store::{Losses, Progress, Result, Source};
use rustc_hash::FxHashMap;

use super::RECIPE;
use super::calls::{self, Reach, Teardown};
use super::chains::{self, Chains};
use super::export::Export;
use super::memory::{self, Memory, MemoryRow};
use super::names::{Devices, Processes, Shared, begin_ns};
use super::ranges::{Ranges, Sweep, scope_id};
use super::report::Database;
use super::words::Words;
use crate::{Mode, OpenProps};

/// The events of an export.
pub(crate) struct Events {
    /// Kept as long as it is read.
    _database: Database,
    export: Option<Export>,
    shared: Arc<Shared>,
    mode: Mode,
    first: ProcessId,
    loaded: Option<Loaded>,
    tables: Tables,
    losses: Losses,
}

impl Events {
    /// Opens an export and checks that it has memory in it.
    pub(crate) fn open(database: &Database, props: &OpenProps, shared: Arc<Shared>) -> Result<Self> {
        let export = Export::open(database.path())?;
        if !export.has(memory::TABLE) {
            return Err(super::no_memory(&export));
        }
        Ok(Self {
            _database: database.clone(),
            export: Some(export),
            shared,
            mode: props.mode,
            first: props.process,
            loaded: None,
            tables: Tables::default(),
            losses: Losses::default(),
        })
    }

    fn load(&mut self, export: &Export) -> Result<Loaded> {
        let (mode, losses) = (self.mode, &mut self.losses);
        let words = Words::read(export)?;
        let read = || -> Result<_> {
            let mut memory = Memory::read(export, &words, mode, losses)?;
            let found = calls::join(export, &words, &mut memory, mode, losses)?;
            Ok((memory, found))
        };
        let ((memory, found), ahead) = with_chains(export.path(), read)?;
        self.shared.tell(&memory.processes);
        let chains = Chains::read(export, &found.origins, ahead, mode, losses)?;
        let stacks = chains.stacks(&found.origins, &mut self.tables);
        drop(chains);
        let ranges = Arc::new(Ranges::read(export, mode, losses)?);
        tell_missing(export, &memory, losses);
        let processes = Processes::new(&memory.processes, self.first);
        processes.name(export, &mut self.tables)?;
        let ids = memory.processes.iter().map(|key| processes.id(*key).unwrap_or_default());
        let teardowns = found.teardowns.into_iter().zip(ranges.teardown_number()..);
        let is_ours = |(teardown, _): &(Teardown, u32)| processes.id(teardown.process).is_some();
        Ok(Loaded {
            begin_ns: begin_ns(export)?,
            processes: ids.collect(),
            names: memory.names.iter().map(|name| self.tables.intern(name)).collect(),
            devices: Devices::read(export)?,
            stacks,
            teardowns: teardowns.filter(is_ours).collect(),
            sweep: (!ranges.ranges.is_empty()).then(|| Sweep::new(ranges)),
            next: 0,
            next_teardown: 0,
            live: Live::default(),
            made_up: Vec::new(),
            memory,
        })
    }
}

impl Source for Events {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        batch.clear();
        if let Some(export) = self.export.take() {
            let loaded = self.load(&export)?;
            self.loaded = Some(loaded);
        }
        if let Some(loaded) = &mut self.loaded {
            loaded.fill(batch);
        }
        if batch.is_empty() {
            self.loaded = None;
        }
        Ok(!batch.is_empty())
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }

    fn progress(&self) -> Progress {
        let rows = self.loaded.as_ref().map(|loaded| (loaded.next as u64, loaded.memory.rows.len() as u64));
        rows.map_or_else(Progress::default, |(done, total)| Progress { done, total: Some(total) })
    }
}

/// Reads chains in a thread of their own beside what `read` reads.
fn with_chains<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<(T, Option<Chains>)> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("floodmark-chains".into());
        let ahead = thread.spawn_scoped(scope, || Chains::read_ahead(path));
        let read = read()?;
        // Without a thread, or with what it could not read, they are read afterwards.
        let chains = ahead.ok().and_then(|ahead| ahead.join().ok()).flatten();
        Ok((read, chains))
    })
}

/// Says which tables would tell more.
fn tell_missing(export: &Export, memory: &Memory, losses: &mut Losses) {
    if memory.rows.is_empty() {
        return;
    }
    let stackless = memory.rows.iter().any(|row| row.origin == 0);
    let missing = [calls::TABLE, chains::TABLE].into_iter().find(|table| !export.has(table));
    if let Some(table) = missing.filter(|_| stackless) {
        losses.add(
            0,
            &format!("the export has no table {table}, so stacks are missing; profile with: {RECIPE}"),
        );
    }
}

/// A block that may outlive its context.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    bytes: u64,
    device: i32,
    stream: u32,
    kind: Kind,
}

/// A context: index of its process, device, number.
type Context = (u32, i32, u32);

/// What is live, where contexts are torn down.
#[derive(Debug, Default)]
struct Live {
    blocks: BTreeMap<Context, FxHashMap<u64, LiveBlock>>,
    /// Context of the latest event of a thread.
    latest: FxHashMap<(u32, u32), Context>,
    /// The one context of a process; none once there are several.
    only: FxHashMap<u32, Option<Context>>,
}

impl Live {
    fn take(&mut self, row: &MemoryRow, kind: Kind) {
        let context = (row.process, row.device, row.context);
        // Variables are said to be of context 0.
        if row.context != 0 {
            self.latest.insert((row.process, row.thread), context);
            let only = self.only.entry(row.process).or_insert(Some(context));
            *only = only.filter(|only| *only == context);
        }
        let blocks = self.blocks.entry(context).or_default();
        if row.action == Action::Free {
            blocks.remove(&row.address);
        } else {
            let MemoryRow { bytes, device, stream, .. } = *row;
            blocks.insert(row.address, LiveBlock { bytes, device, stream, kind });
        }
    }

    /// Takes what a teardown ends, by address. Where a process has several contexts it is the one that
    /// the thread used last, as far as that is known.
    fn end(&mut self, process: u32, thread: u32, reach: Reach) -> Vec<(u64, LiveBlock)> {
        let has_several = self.only.get(&process).is_some_and(Option::is_none);
        let current = self.latest.get(&(process, thread)).filter(|_| has_several).copied();
        let (from, to) = match (current, reach) {
            (None, _) => ((process, i32::MIN, 0), (process, i32::MAX, u32::MAX)),
            (Some((_, device, _)), _) => ((process, device, 0), (process, device, u32::MAX)),
        };
        let is_ended = |context: &Context| match (current, reach) {
            (Some(current), Reach::Context) => *context == current || context.2 == 0,
            _ => true,
        };
        let ended: Vec<Context> =
            self.blocks.range(from..=to).map(|(context, _)| *context).filter(is_ended).collect();
        let blocks = ended.iter().filter_map(|context| self.blocks.remove(context)).flatten();
        let mut blocks: Vec<_> = blocks.collect();
        blocks.sort_unstable_by_key(|(address, _)| *address);
        blocks.dedup_by_key(|(address, _)| *address);
        blocks
    }
}

/// Everything that was read, and how far it has been handed out.
struct Loaded {
    memory: Memory,
    begin_ns: i64,
    processes: Vec<ProcessId>,
    names: Vec<StringId>,
    devices: Devices,
    stacks: Vec<StackId>,
    /// With the numbers of their scopes, in the order of time.
    teardowns: Vec<(Teardown, u32)>,
    sweep: Option<Sweep>,
    next: usize,
    next_teardown: usize,
    live: Live,
    /// Frees of a teardown that are not handed out yet, the last one first.
    made_up: Vec<Event>,
}

impl Loaded {
    fn fill(&mut self, batch: &mut EventBatch) {
        while batch.len() < BATCH_ROWS {
            if let Some(event) = self.made_up.pop() {
                batch.push(&event);
                continue;
            }
            let row = self.memory.rows.get(self.next).copied();
            if let Some((teardown, number)) = self.teardowns.get(self.next_teardown).copied() {
                let is_due = row.is_none_or(|row| {
                    let is_free = row.action == Action::Free;
                    teardown.end_ns < row.start_ns || (teardown.end_ns == row.start_ns && !is_free)
                });
                if is_due {
                    self.next_teardown += 1;
                    self.tear_down(&teardown, number);
                    continue;
                }
            }
            let Some(row) = row else { return };
            self.next += 1;
            let event = self.event(&row);
            batch.push(&event);
            if self.next_teardown < self.teardowns.len() {
                self.live.take(&row, event.kind);
            }
        }
    }

    #[inline]
    fn event(&mut self, row: &MemoryRow) -> Event {
        let key = self.memory.processes[row.process as usize];
        let process = self.processes[row.process as usize];
        let number = self.sweep.as_mut().map_or(0, |sweep| sweep.innermost(row.start_ns, (key, row.thread)));
        Event {
            time_ns: self.begin_ns.saturating_add(row.start_ns),
            process,
            thread: u64::from(row.thread),
            action: row.action,
            address: row.address,
            bytes: row.bytes,
            device: self.devices.gpu(key.pid(), row.device),
            stream: u64::from(row.stream),
            kind: self.memory.kind(row),
            resource: StringId(0),
            scope: scope_id(process.0, number),
            stack: self.stacks[row.origin as usize],
            name: self.names[row.name as usize],
        }
    }

    /// Makes up frees for what a teardown ends.
    fn tear_down(&mut self, teardown: &Teardown, number: u32) {
        let Ok(process) = self.memory.processes.binary_search(&teardown.process) else { return };
        let ended = self.live.end(process as u32, teardown.thread, teardown.reach);
        let id = self.processes[process];
        let free = |(address, block): (u64, LiveBlock)| Event {
            time_ns: self.begin_ns.saturating_add(teardown.end_ns),
            process: id,
            thread: u64::from(teardown.thread),
            action: Action::Free,
            address,
            bytes: block.bytes,
            device: self.devices.gpu(teardown.process.pid(), block.device),
            stream: u64::from(block.stream),
            kind: block.kind,
            scope: scope_id(id.0, number),
            ..Event::default()
        };
        self.made_up = ended.into_iter().rev().map(free).collect();
    }
}
