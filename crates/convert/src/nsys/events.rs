//! The events of an export, in the order in which they happened.
//!
//! What a context held when it was torn down has no
//! rows of its own in an export; frees are made up for it, in a scope named
//! [`CONTEXT_TEARDOWN`](floodmark_event::CONTEXT_TEARDOWN).

use std::path::Path;
use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Action, Event, EventBatch, ProcessId, StackId, StringId, Tables};
use floodmark_store::{Losses, Progress, Result, Source};

use super::RECIPE;
use super::calls::{self, Teardown};
use super::chains::{self, Chains};
use super::export::Export;
use super::live::{Live, LiveBlock};
use super::memory::{Memory, MemoryRow};
use super::names::{Devices, Processes, Shared, begin_ns};
use super::ranges::{Ranges, Sweep, scope_id};
use super::report::Database;
use super::words::Words;
use crate::OpenProps;

/// Everything that was read of an export's events.
pub(crate) struct LoadedEvents {
    memory: Memory,
    begin_ns: i64,
    processes: Vec<ProcessId>,
    names: Vec<StringId>,
    devices: Devices,
    stacks: Vec<StackId>,
    /// Teardowns with the numbers of their scopes, in the order of time.
    teardowns: Vec<(Teardown, u32)>,
    ranges: Arc<Ranges>,
    tables: Tables,
    losses: Losses,
}

impl LoadedEvents {
    /// Reads everything that events need.
    pub(crate) fn load(export: &Export, shared: &Shared, props: &OpenProps) -> Result<Self> {
        let (mode, mut losses, mut tables) = (props.mode, Losses::default(), Tables::default());
        let words = Words::read(export)?;
        let read = || -> Result<_> {
            let mut memory = Memory::read(export, &words, mode, &mut losses)?;
            let found = calls::join(export, &words, &mut memory, mode, &mut losses)?;
            Ok((memory, found))
        };
        let ((memory, found), ahead) = with_chains(export.path(), read)?;
        shared.set_processes(&memory.processes);
        let chains = Chains::read(export, &found.origins, ahead, mode, &mut losses)?;
        let stacks = chains.stacks(&found.origins, &mut tables);
        drop(chains);
        let ranges = shared.ranges(export, mode, &mut losses)?;
        tell_missing(export, &memory, &mut losses);
        let processes = Processes::new(&memory.processes, props.process);
        processes.name(export, &mut tables)?;
        let ids = memory.processes.iter().map(|key| processes.id(*key).unwrap_or_default()).collect();
        let teardowns = found.teardowns.into_iter().zip(ranges.teardown_number()..);
        let is_ours = |(teardown, _): &(Teardown, u32)| processes.id(teardown.process).is_some();
        Ok(Self {
            begin_ns: begin_ns(export)?,
            processes: ids,
            names: memory.names.iter().map(|name| tables.intern(name)).collect(),
            devices: Devices::read(export)?,
            stacks,
            teardowns: teardowns.filter(is_ours).collect(),
            ranges,
            memory,
            tables,
            losses,
        })
    }
}

/// Yields the events of an export.
pub(crate) struct Events {
    /// Kept as long as it is read.
    _database: Database,
    loaded: Arc<LoadedEvents>,
    sweep: Option<Sweep>,
    next: usize,
    next_teardown: usize,
    live: Live,
    /// Frees of a teardown that are not yielded yet, the last one first.
    made_up: Vec<Event>,
}

impl Events {
    /// Starts with the first event.
    pub(crate) fn new(database: Database, loaded: Arc<LoadedEvents>) -> Self {
        let live = if loaded.teardowns.is_empty() {
            Live::default()
        } else {
            Live::with_teardowns(&loaded.memory.rows)
        };
        let sweep = (!loaded.ranges.ranges.is_empty()).then(|| Sweep::new(Arc::clone(&loaded.ranges)));
        Self { _database: database, loaded, sweep, next: 0, next_teardown: 0, live, made_up: Vec::new() }
    }
}

impl Source for Events {
    fn tables(&self) -> &Tables {
        &self.loaded.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        batch.clear();
        self.fill(batch);
        Ok(!batch.is_empty())
    }

    fn losses(&self) -> Losses {
        self.loaded.losses.clone()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.next as u64, total: Some(self.loaded.memory.rows.len() as u64) }
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
        losses
            .remark(format!("there are no stacks: the export has no table {table}; profile with: {RECIPE}"));
    }
}

impl Events {
    fn fill(&mut self, batch: &mut EventBatch) {
        while batch.len() < BATCH_ROWS {
            if let Some(event) = self.made_up.pop() {
                batch.push(&event);
                continue;
            }
            let row = self.loaded.memory.rows.get(self.next).copied();
            if let Some((teardown, number)) = self.loaded.teardowns.get(self.next_teardown).copied() {
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
            let event = self.event(&row);
            self.next += 1;
            batch.push(&event);
        }
    }

    #[inline]
    fn event(&mut self, row: &MemoryRow) -> Event {
        let key = self.loaded.memory.processes[row.process as usize];
        let process = self.loaded.processes[row.process as usize];
        let number = self.sweep.as_mut().map_or(0, |sweep| sweep.innermost(row.start_ns, (key, row.thread)));
        let (device, kind) = self.live.take(self.next, row, self.loaded.memory.kind(row));
        Event {
            time_ns: self.loaded.begin_ns.saturating_add(row.start_ns),
            process,
            thread: u64::from(row.thread),
            action: row.action,
            address: row.address,
            bytes: row.bytes,
            device: self.loaded.devices.gpu(key.pid(), device),
            stream: u64::from(row.stream),
            kind,
            resource: StringId(0),
            scope: scope_id(process.0, number),
            stack: self.loaded.stacks[row.origin as usize],
            name: self.loaded.names[row.name as usize],
        }
    }

    /// Makes up frees for what a teardown ends.
    fn tear_down(&mut self, teardown: &Teardown, number: u32) {
        let Ok(process) = self.loaded.memory.processes.binary_search(&teardown.process) else { return };
        let ended = self.live.end(process as u32, teardown.thread, teardown.reach, self.next);
        let id = self.loaded.processes[process];
        let free = |(address, block): (u64, LiveBlock)| Event {
            time_ns: self.loaded.begin_ns.saturating_add(teardown.end_ns),
            process: id,
            thread: u64::from(teardown.thread),
            action: Action::Free,
            address,
            bytes: block.bytes,
            device: self.loaded.devices.gpu(teardown.process.pid(), block.device),
            stream: u64::from(block.stream),
            kind: block.kind,
            scope: scope_id(id.0, number),
            ..Event::default()
        };
        self.made_up = ended.into_iter().rev().map(free).collect();
    }
}
