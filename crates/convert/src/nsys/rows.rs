//! Rows of an export other than its events: scopes, levels of pools, devices and messages.
//!
//! Everything but NVTX ranges is short and is sorted beforehand; ranges are swept in the order of time as
//! rows are asked for.

use std::borrow::Cow;
use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::units::format_count;
use floodmark_event::{
    CONTEXT_TEARDOWN, LogRow, Metric, ProcessId, SampleRow, ScopeAction, ScopeRow, StringId, SubjectKind,
    SubjectRow, Tables,
};
use floodmark_store::{Losses, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::export::Export;
use super::ids::ProcessKey;
use super::names::{Devices, Processes, Shared, begin_ns, strings};
use super::ranges::{Range, RangeKind, RangeName, Ranges, Step, Sweep, scope_id};
use super::report::Database;
use super::words::{LogWords, Words};
use super::{calls, memory};
use crate::{Mode, OpenProps};
use floodmark_event::Row;
use floodmark_store::RowSource;

const POOL_TABLE: &str = "CUDA_GPU_MEMORY_POOL_EVENTS";
const LOG_TABLE: &str = "DIAGNOSTIC_EVENT";
/// Operation of a pool that is no more.
const POOL_DESTROYED: i64 = 2;
/// Stands for an allocation from a pool or a free.
const POOL_USED: i64 = -1;
/// Time, process, device, address, operation, imported or not, bytes held, bytes in use.
type PoolRow = (i64, ProcessKey, i32, u64, i64, bool, Option<i64>, Option<i64>);

/// Everything that was read of an export beside its events.
pub(crate) struct LoadedRows {
    begin_ns: i64,
    /// Everything but ranges, in the order of time.
    others: Vec<Row>,
    ranges: Arc<Ranges>,
    names: RangeNames,
    processes: Processes,
    tables: Tables,
    losses: Losses,
}

impl LoadedRows {
    /// Reads scopes, pools, devices and messages.
    pub(crate) fn load(export: &Export, shared: &Shared, props: &OpenProps) -> Result<Self> {
        let (mode, mut losses, mut tables) = (props.mode, Losses::default(), Tables::default());
        let begin_ns = begin_ns(export)?;
        let mut processes = Processes::new(&shared.processes(export)?, props.process);
        // What is missing from ranges and calls the other half tells as well.
        let mut known = Losses::default();
        let ranges = shared.ranges(export, mode, &mut known)?;
        let words = Words::read(export)?;
        let teardowns = calls::teardowns(export, &words, mode, &mut known)?;
        let mut others: Vec<ProcessKey> = ranges.ranges.iter().map(|range| range.thread.0).collect();
        others.sort_unstable();
        others.dedup();
        processes.extend(&others);
        processes.name(export, &mut tables)?;
        let mut loading = Loading {
            export,
            begin_ns,
            processes: &processes,
            first: props.process,
            mode,
            tables: &mut tables,
            losses: &mut losses,
            rows: Vec::new(),
        };
        loading.devices()?;
        loading.pools()?;
        loading.logs()?;
        let scope = loading.tables.intern(CONTEXT_TEARDOWN);
        for (teardown, number) in teardowns.iter().zip(ranges.teardown_number()..) {
            if let Some(process) = processes.id(teardown.process) {
                let row = |time_ns: i64, action, name| {
                    let time_ns = begin_ns.saturating_add(time_ns);
                    let (thread, scope) = (u64::from(teardown.thread), scope_id(process.0, number));
                    Row::Scope(ScopeRow { time_ns, process, thread, action, scope, parent: 0, name })
                };
                loading.rows.push(row(teardown.start_ns, ScopeAction::Enter, scope));
                loading.rows.push(row(teardown.end_ns, ScopeAction::Exit, StringId(0)));
            }
        }
        let mut rows = loading.rows;
        rows.sort_by_key(Row::time_ns);
        let names = RangeNames::read(export, &ranges, &mut tables)?;
        Ok(Self { begin_ns, others: rows, ranges, names, processes, tables, losses })
    }
}

/// Yields the rows of an export.
pub(crate) struct ExportRows {
    /// Kept as long as it is read.
    _database: Database,
    loaded: Arc<LoadedRows>,
    sweep: Sweep,
    next_other: usize,
}

impl ExportRows {
    /// Starts with the first row.
    pub(crate) fn new(database: Database, loaded: Arc<LoadedRows>) -> Self {
        let sweep = Sweep::new(Arc::clone(&loaded.ranges));
        Self { _database: database, loaded, sweep, next_other: 0 }
    }

    fn next_row(&mut self) -> Option<Row> {
        let LoadedRows { begin_ns, others, ranges, names, processes, tables, .. } = &*self.loaded;
        loop {
            let other = others.get(self.next_other);
            let until_ns = other.map_or(i64::MAX, |row| row.time_ns().saturating_sub(*begin_ns));
            let Some((time_ns, at, step)) = self.sweep.step(until_ns) else {
                self.next_other += 1;
                return other.cloned();
            };
            let range = &ranges.ranges[at as usize];
            let process = processes.id(range.thread.0).unwrap_or_default();
            let nests = range.kind == RangeKind::Nested;
            let (action, parent, name, number) = match step {
                Step::Enter { parent } if nests => (ScopeAction::Enter, parent, names.of(range), at + 1),
                Step::Enter { .. } => (ScopeAction::Begin, 0, names.of(range), at + 1),
                Step::Exit if nests => (ScopeAction::Exit, 0, StringId(0), at + 1),
                Step::Exit => (ScopeAction::End, 0, StringId(0), at + 1),
                // The profiler marks instants of its own, without a name: they say nothing.
                Step::Mark if tables.string(names.of(range)).trim().is_empty() => continue,
                Step::Mark => (ScopeAction::Mark, 0, names.of(range), 0),
            };
            return Some(Row::Scope(ScopeRow {
                time_ns: begin_ns.saturating_add(time_ns),
                process,
                thread: u64::from(range.thread.1),
                action,
                scope: scope_id(process.0, number),
                parent: scope_id(process.0, parent),
                name,
            }));
        }
    }
}

impl RowSource for ExportRows {
    fn tables(&self) -> &Tables {
        &self.loaded.tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        rows.clear();
        rows.extend(std::iter::from_fn(|| self.next_row()).take(BATCH_ROWS));
        Ok(!rows.is_empty())
    }

    fn losses(&self) -> Losses {
        self.loaded.losses.clone()
    }
}

/// Names of ranges as strings of the tables.
struct RangeNames {
    own: Vec<StringId>,
    strings: FxHashMap<i64, StringId>,
}

impl RangeNames {
    fn read(export: &Export, ranges: &Ranges, tables: &mut Tables) -> Result<Self> {
        let id = |range: &Range| match range.name {
            RangeName::String(id) => Some(id),
            RangeName::Own(_) => None,
        };
        let wanted: FxHashSet<i64> = ranges.ranges.iter().filter_map(id).collect();
        let found = strings(export, &wanted)?;
        Ok(Self {
            own: ranges.names.iter().map(|name| tables.intern(name)).collect(),
            strings: found.into_iter().map(|(id, text)| (id, tables.intern(&text))).collect(),
        })
    }

    fn of(&self, range: &Range) -> StringId {
        match range.name {
            RangeName::Own(index) => self.own[index as usize],
            RangeName::String(id) => self.strings.get(&id).copied().unwrap_or_default(),
        }
    }
}

/// Reads the short tables.
struct Loading<'a> {
    export: &'a Export,
    begin_ns: i64,
    processes: &'a Processes,
    /// Process that stands for the export.
    first: ProcessId,
    mode: Mode,
    tables: &'a mut Tables,
    losses: &'a mut Losses,
    rows: Vec<Row>,
}

impl Loading<'_> {
    fn subject(&mut self, kind: SubjectKind, number: u64, name: String, detail: String) -> u64 {
        let subject = u64::from(self.first.0) << 32 | (self.tables.subjects.len() as u64 + 1);
        let row = SubjectRow { detail, ..SubjectRow::new(subject, kind, number, name) };
        self.tables.subjects.insert(subject, row);
        subject
    }

    fn sample(&mut self, time_ns: i64, subject: u64, metric: Metric, value: Option<i64>) {
        if let Some(value) = value.and_then(|value| u64::try_from(value).ok()) {
            self.rows.push(Row::Sample(SampleRow { time_ns, subject, metric, value }));
        }
    }

    fn devices(&mut self) -> Result<()> {
        type Gpu = (i64, String, String, Option<i64>);
        let mut gpus: Vec<Gpu> = Vec::new();
        self.export.scan(
            "TARGET_INFO_GPU",
            &["id", "name", "uuid", "totalMemory", "busLocation"],
            &mut |row| {
                let text = |column| row.text(column).map_or_else(String::new, Cow::into_owned);
                if let Some(id) = row.int(0).filter(|id| *id >= 0 && gpus.len() < 4096) {
                    // A UUID identifies the device; where there is none its address on the bus does.
                    let uuid = Some(text(2)).filter(|uuid| !uuid.is_empty()).unwrap_or_else(|| text(4));
                    gpus.push((id, text(1), uuid, row.int(3)));
                }
                Ok(())
            },
        )?;
        gpus.sort_unstable();
        gpus.dedup_by_key(|gpu| gpu.0);
        for (id, name, uuid, total) in gpus {
            // As nvidia-smi writes it.
            let is_bare = !uuid.is_empty() && !["GPU-", "MIG-", ":"].iter().any(|part| uuid.contains(part));
            let uuid = if is_bare { format!("GPU-{uuid}") } else { uuid };
            let subject = self.subject(SubjectKind::Device, id as u64, name, uuid);
            self.sample(self.begin_ns, subject, Metric::GpuTotal, total);
        }
        Ok(())
    }

    /// Adds the levels of pools that allocations and frees state. Where there are very many of them, only those at
    /// which a pool grew or shrank are kept.
    fn pools_of_usage(&mut self, events: &mut Vec<PoolRow>) -> Result<()> {
        const COLUMNS: [&str; 6] = [
            "start",
            "globalPid",
            "deviceId",
            "localMemoryPoolAddress",
            "localMemoryPoolSize",
            "localMemoryPoolUtilizedSize",
        ];
        const MANY: usize = if cfg!(fuzzing) { 64 } else { 1 << 20 };
        let mut sizes: FxHashMap<(i64, i64), i64> = FxHashMap::default();
        let mut left_out = 0u64;
        let scanned = self.export.scan(memory::TABLE, &COLUMNS, &mut |row| {
            let (Some(start_ns), Some(process)) = (row.int(0), row.int(1)) else { return Ok(()) };
            let Some(address) = row.int(3).filter(|address| *address != 0) else { return Ok(()) };
            let Some(size) = row.int(4) else { return Ok(()) };
            let is_same = sizes.insert((process, address), size) == Some(size);
            if is_same && events.len() >= MANY {
                left_out += 1;
                return Ok(());
            }
            let device = row.int(2).and_then(|device| i32::try_from(device).ok()).unwrap_or(-1);
            let (process, address) = (ProcessKey::of(process), address as u64);
            events.push((start_ns, process, device, address, POOL_USED, false, Some(size), row.int(5)));
            Ok(())
        });
        super::tolerate(scanned, self.mode, &mut Losses::default())?;
        if left_out > 0 {
            self.losses.remark(format!(
                "pools are sampled where they grow or shrink; {} allocations and frees that did neither are not samples",
                format_count(left_out)
            ));
        }
        Ok(())
    }

    fn pools(&mut self) -> Result<()> {
        const COLUMNS: [&str; 8] = [
            "start",
            "globalPid",
            "deviceId",
            "address",
            "operationType",
            "poolType",
            "localMemoryPoolSize",
            "localMemoryPoolUtilizedSize",
        ];
        let mut events: Vec<PoolRow> = Vec::new();
        let mut malformed = 0;
        let scanned = self.export.scan(POOL_TABLE, &COLUMNS, &mut |row| {
            let (Some(start_ns), Some(process), Some(address)) = (row.int(0), row.int(1), row.int(3)) else {
                malformed += 1;
                return Ok(());
            };
            let device = row.int(2).and_then(|device| i32::try_from(device).ok()).unwrap_or(-1);
            let (operation, is_imported) = (row.int(4).unwrap_or(0), row.int(5) == Some(2));
            let process = ProcessKey::of(process);
            let levels = (row.int(6), row.int(7));
            events.push((
                start_ns,
                process,
                device,
                address as u64,
                operation,
                is_imported,
                levels.0,
                levels.1,
            ));
            Ok(())
        });
        super::tolerate(scanned, self.mode, self.losses)?;
        if malformed > 0 {
            self.losses.add(malformed, "rows of pools without time, process or address");
        }
        self.pools_of_usage(&mut events)?;
        events.sort_unstable();
        let devices = Devices::read(self.export)?;
        let mut pools: FxHashMap<(ProcessKey, u64), u64> = FxHashMap::default();
        for (start_ns, process, device, address, operation, is_imported, size, live) in events {
            let time_ns = self.begin_ns.saturating_add(start_ns);
            let subject = match pools.get(&(process, address)) {
                Some(subject) => *subject,
                None => {
                    let gpu = devices.gpu(process.pid(), device);
                    let sort = if is_imported { "imported pool" } else { "pool" };
                    let name = format!("{sort} {address:#x} of device {gpu}");
                    let detail = format!("pid {}", process.pid());
                    let subject = self.subject(SubjectKind::Pool, 0, name, detail);
                    if let Some(row) = self.tables.subjects.get_mut(&subject) {
                        row.start_ns = Some(time_ns);
                    }
                    pools.insert((process, address), subject);
                    subject
                }
            };
            let is_gone = operation == POOL_DESTROYED;
            self.sample(time_ns, subject, Metric::Reserved, if is_gone { Some(0) } else { size });
            self.sample(time_ns, subject, Metric::Live, if is_gone { Some(0) } else { live });
            if is_gone {
                // The next one at this address is another.
                pools.remove(&(process, address));
                if let Some(row) = self.tables.subjects.get_mut(&subject) {
                    row.end_ns = Some(time_ns);
                }
            }
        }
        Ok(())
    }

    fn logs(&mut self) -> Result<()> {
        const COLUMNS: [&str; 5] = ["timestamp", "globalPid", "severity", "source", "text"];
        let words = LogWords::read(self.export)?;
        let mut logs: Vec<LogRow> = Vec::new();
        let (tables, processes, begin_ns) = (&mut *self.tables, self.processes, self.begin_ns);
        let scanned = self.export.scan(LOG_TABLE, &COLUMNS, &mut |row| {
            let Some(text) = row.text(4) else { return Ok(()) };
            let process = row.int(1).and_then(|global| processes.id(ProcessKey::of(global)));
            logs.push(LogRow {
                time_ns: begin_ns.saturating_add(row.int(0).unwrap_or(0)),
                process: process.unwrap_or_default(),
                level: words.level(row.int(2).unwrap_or(0)),
                source: tables.intern(words.source(row.int(3).unwrap_or(0))),
                text: text.into_owned(),
            });
            Ok(())
        });
        super::tolerate(scanned, self.mode, self.losses)?;
        logs.sort_by(|a, b| (a.time_ns, &a.text).cmp(&(b.time_ns, &b.text)));
        self.rows.extend(logs.into_iter().map(Row::Log));
        Ok(())
    }
}
