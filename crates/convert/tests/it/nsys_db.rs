//! Exports of Nsight Systems made for tests, in both generations of their schema.

use std::fs;
use std::path::{Path, PathBuf};

use floodmark_convert::{Mode, OpenProps, open};
use floodmark_event::Row;
use floodmark_event::{Action, Event, EventBatch, Kind, Tables};
use floodmark_store::Losses;
use rusqlite::Connection;

/// Which schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// About 2021 to 2023, with tables that explain kinds and operations.
    A,
    /// The same without.
    A2,
    /// 2024.6 to 2026.
    B,
}

const COMMON: &str = "
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, unresolved INTEGER,
  originalIP INTEGER, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth));
";
const USAGE_A: &str = "
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL,
  memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER, localMemoryPoolAddress INTEGER,
  localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER,
  importedMemoryPoolAddress INTEGER, importedMemoryPoolProcessId INTEGER);
CREATE TABLE EXPORT_META_DATA (name TEXT NOT NULL, value TEXT);
";
const ENUMS: &str = "
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_DEV_MEM_EVENT_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0,'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE','Pageable'),
  (1,'CUDA_MEMOPR_MEMORY_KIND_PINNED','Pinned'),(2,'CUDA_MEMOPR_MEMORY_KIND_DEVICE','Device'),
  (3,'CUDA_MEMOPR_MEMORY_KIND_ARRAY','Array'),(4,'CUDA_MEMOPR_MEMORY_KIND_MANAGED','Managed'),
  (5,'CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC','Device Static'),
  (6,'CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC','Managed Static'),(7,'CUDA_MEMOPR_MEMORY_KIND_UNKNOWN','Unknown');
INSERT INTO ENUM_CUDA_DEV_MEM_EVENT_OPER VALUES (0,'CUDA_DEV_MEM_EVENT_OPR_ALLOCATION','Allocation'),
  (1,'CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION','Deallocation');
";
const ONLY_B: &str = "
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL,
  memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER, streamId INTEGER, localMemoryPoolAddress INTEGER,
  localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER,
  importedMemoryPoolAddress INTEGER, importedMemoryPoolProcessId INTEGER);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE CUDA_GPU_MEMORY_POOL_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  address INTEGER NOT NULL, operationType INTEGER NOT NULL, poolType INTEGER NOT NULL, correlationId INTEGER,
  minBytesToKeep INTEGER, localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER,
  localMemoryPoolUtilizedSize INTEGER);
CREATE TABLE ENUM_NSYS_EVENT_CLASS (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, totalMemory INTEGER,
  uuid TEXT, cuDevice INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT, numMultiprocessors INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
  color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, timestampType INTEGER, source INTEGER, severity INTEGER, text TEXT,
  globalPid INTEGER);
";

/// The process of the small data set.
pub(crate) const PID: i64 = 281_796_478_500_864;
/// Its thread.
pub(crate) const TID: i64 = PID | 7;

/// A call: start, end, class, thread, correlation id, name, chain.
pub(crate) type Call = (i64, i64, i64, i64, i64, i64, Option<i64>);

/// A database that is being made.
pub(crate) struct Db {
    pub(crate) path: PathBuf,
    connection: Connection,
}

impl Db {
    pub(crate) fn new(name: &str, generation: Generation) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nsys");
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(format!("{name}-{}-{generation:?}.sqlite", std::process::id()));
        let _ = fs::remove_file(&path);
        let connection = Connection::open(&path).expect("a database");
        let db = Self { path, connection };
        db.sql("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;");
        db.sql(COMMON);
        match generation {
            Generation::A => db.sql(&format!("{USAGE_A}{ENUMS}")),
            Generation::A2 => db.sql(USAGE_A),
            Generation::B => db.sql(&format!("{ONLY_B}{ENUMS}")),
        }
        db
    }

    pub(crate) fn sql(&self, sql: &str) {
        self.connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn string(&self, id: i64, value: &str) {
        self.connection.execute("INSERT INTO StringIds VALUES (?1, ?2)", (id, value)).expect("a string");
    }

    /// Adds an event: time, process, address, bytes, kind, operation, correlation id.
    pub(crate) fn usage(&self, rows: &[(i64, i64, i64, i64, i64, i64, i64)]) {
        for row in rows {
            let sql = "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc,
                bytes, memKind, memoryOperationType, correlationId) VALUES (?1, ?2, 0, 1, ?3, 0, ?4, ?5, ?6, ?7)";
            self.connection.execute(sql, *row).expect("an event");
        }
    }

    pub(crate) fn calls(&self, rows: &[Call]) {
        for row in rows {
            let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7)";
            self.connection.execute(sql, *row).expect("a call");
        }
    }

    /// Adds a chain of symbols and modules, innermost first.
    pub(crate) fn chain(&self, id: i64, frames: &[(i64, i64)]) {
        // The other way round: exports guarantee no order.
        for (depth, (symbol, module)) in frames.iter().enumerate().rev() {
            let sql = "INSERT INTO CUDA_CALLCHAINS VALUES (?1, ?2, ?3, NULL, ?4, ?5)";
            let row = (id, symbol, module, 4096 + symbol, depth as i64);
            self.connection.execute(sql, row).expect("a frame");
        }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The smallest useful export: an allocation of each class, and a free.
pub(crate) fn minimal(name: &str, generation: Generation) -> Db {
    let db = Db::new(name, generation);
    for (id, text) in [
        (1, "cudaMalloc"),
        (2, "cudaMalloc_v3020"),
        (3, "cuMemAlloc_v2"),
        (4, "cudaFree_v3020"),
        (5, "load(int)"),
        (6, "main"),
        (7, "/opt/app"),
        (8, "/lib/libcudart.so.12"),
    ] {
        db.string(id, text);
    }
    db.sql("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1000000, '', '')");
    db.calls(&[
        (100, 200, 0, TID, 10, 2, None),
        (99, 201, 67, TID, 10, 1, Some(5)),
        (300, 310, 1, TID, 11, 3, None),
        (400, 410, 0, TID, 12, 2, None),
        (500, 520, 0, TID, 13, 4, None),
    ]);
    db.chain(5, &[(1, 8), (5, 7), (6, 7)]);
    db.usage(&[
        (150, PID, 0x1000, 1 << 20, 2, 0, 10),
        (305, PID, 0x20_0000, 2 << 20, 2, 0, 11),
        (405, PID, 0x50_0000, 512, 2, 0, 12),
        (510, PID, 0x1000, 1 << 20, 2, 1, 13),
    ]);
    db
}

/// Everything that was read.
pub(crate) struct Read {
    pub(crate) events: Vec<Event>,
    pub(crate) tables: Tables,
    pub(crate) losses: Losses,
    pub(crate) seen: Vec<Row>,
    pub(crate) seen_tables: Tables,
}

impl Read {
    /// Functions of an event's stack, innermost first.
    pub(crate) fn stack(&self, event: &Event) -> Vec<&str> {
        self.tables.frames_of(event.stack).map(|frame| self.tables.string(frame.function)).collect()
    }

    pub(crate) fn gaps(&self) -> Vec<&str> {
        self.losses.gaps.iter().map(|gap| &*gap.reason).collect()
    }
}

/// Reads both halves of an export.
pub(crate) fn read(path: &Path, mode: Mode) -> Result<Read, String> {
    let props = OpenProps { mode, ..OpenProps::default() };
    let opened = open(path, &props).map_err(|error| error.to_string())?;
    let mut source = opened.events().map_err(|error| error.to_string())?;
    let mut samples = opened.rows().map_err(|error| error.to_string())?;
    let (mut events, mut batch) = (Vec::new(), EventBatch::new());
    while source.next(&mut batch).map_err(|error| error.to_string())? {
        events.extend(batch.events());
    }
    let (mut seen, mut rows) = (Vec::new(), Vec::new());
    while samples.next(&mut rows).map_err(|error| error.to_string())? {
        seen.append(&mut rows);
    }
    let (tables, losses) = (source.tables().clone(), source.losses());
    Ok(Read { events, tables, losses, seen, seen_tables: samples.tables().clone() })
}

/// Reads an export that is good.
pub(crate) fn good(path: &Path) -> Read {
    read(path, Mode::Strict).expect("a good export")
}

/// The highest total of a kind and when, and what is live in the end, in the most obvious way.
pub(crate) fn totals(events: &[Event], kind: Kind) -> (u64, i64, u64) {
    let mut live = std::collections::HashMap::new();
    let (mut peak, mut at) = (0, 0);
    for event in events.iter().filter(|event| event.kind == kind) {
        let key = (event.process, event.device, event.address);
        if event.action == Action::Free {
            live.remove(&key);
        } else {
            live.insert(key, event.bytes);
        }
        let total: u64 = live.values().sum();
        if total > peak {
            (peak, at) = (total, event.time_ns);
        }
    }
    (peak, at, live.values().sum())
}
