//! Exports of Nsight Systems: what a CUDA program allocated, call by call.
//!
//! An export is a database or a folder of tables that `nsys export` makes of a report. Every generation of
//! its schema is read: columns are found by name, tables may be missing, rows come in any order.
//!
//! | in the export | in a trace |
//! |---|---|
//! | `CUDA_GPU_MEMORY_USAGE_EVENTS` | events; `name` is the variable |
//! | `CUPTI_ACTIVITY_KIND_RUNTIME`, `CUDA_CALLCHAINS` | thread and stack of an event |
//! | `NVTX_EVENTS` | scopes and marks |
//! | `CUDA_GPU_MEMORY_POOL_EVENTS` | `reserved` and `live` of a subject of kind `pool` |
//! | `TARGET_INFO_GPU` | subjects of kind `device` with their UUIDs, `gpu_total` |
//! | `DIAGNOSTIC_EVENT` | messages |
//! | `PROCESSES`, `ThreadNames` | names of processes and threads |
//!
//! The [`Class`] of an event shows in its stack: none for [`Class::Invalid`], a single frame in [`DRIVER_MODULE`]
//! for [`Class::Driver`], any other for [`Class::Valid`].

mod calls;
mod chains;
mod events;
mod export;
mod folder;
mod ids;
mod live;
mod memory;
mod names;
mod ranges;
mod report;
mod rows;
pub mod split;
mod sqlite;
pub mod tables;
pub mod usage;
mod words;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floodmark_store::{Error, Losses, Result, RowSource, Source};

use self::events::{Events, LoadedEvents};
use self::export::Export;
use self::names::Shared;
use self::rows::{ExportRows, LoadedRows};
use crate::foreign::Parsed;
use crate::recognize::Candidate;
use crate::{Mode, OpenProps};

/// How to profile so that all tables are there.
pub const RECIPE: &str =
    "nsys profile --trace=cuda,nvtx --cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree";

/// Module of the one frame of an event whose call is known to have a stack that the export lacks.
pub const RUNTIME_MODULE: &str = "CUDA runtime";
/// Module of the one frame of an event that was a call of the driver.
pub const DRIVER_MODULE: &str = "CUDA driver";

/// How much is known of where an allocation came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// The call has a stack.
    Valid = 0,
    /// Nothing but that it happened.
    #[default]
    Invalid = 1,
    /// The driver was called; its function is known.
    Driver = 2,
}

impl Class {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Valid, Self::Invalid, Self::Driver];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Driver => "driver",
        }
    }
}

/// Whether `head` begins a database, a folder has tables of an export, or a file is called a report.
pub(crate) fn is_export(path: &Path, head: &[u8]) -> bool {
    head.starts_with(sqlite::MAGIC) || folder::is_export(path) || report::is_report(path)
}

/// Opens an export; its tables are read when events or rows are first asked for.
pub(crate) fn parse(candidate: &Candidate, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let path = candidate.path.as_path();
    if !path.is_dir() && candidate.total_bytes.is_none() {
        let reason = "an export of Nsight Systems is read from its file, not from a pipe".to_owned();
        return Err(Error::Unrecognized { path: path.to_owned(), reason });
    }
    let database = report::database(path)?;
    let export = Export::open(database.path())?;
    if !export.has(memory::TABLE) {
        return Err(no_memory(&export));
    }
    Ok(Box::new(ParsedExport {
        database,
        props: props.clone(),
        shared: Shared::default(),
        loading: Mutex::new(Loading { export, events: None, rows: None }),
    }))
}

/// An export that was opened, and what was read of it so far.
struct ParsedExport {
    database: report::Database,
    props: OpenProps,
    shared: Shared,
    loading: Mutex<Loading>,
}

struct Loading {
    export: Export,
    events: Option<Arc<LoadedEvents>>,
    rows: Option<Arc<LoadedRows>>,
}

impl ParsedExport {
    fn loading(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parsed for ParsedExport {
    fn events(&self) -> Result<Box<dyn Source>> {
        let mut loading = self.loading();
        let loaded = match &loading.events {
            Some(loaded) => Arc::clone(loaded),
            None => Arc::new(LoadedEvents::load(&loading.export, &self.shared, &self.props)?),
        };
        loading.events = Some(Arc::clone(&loaded));
        Ok(Box::new(Events::new(self.database.clone(), loaded)))
    }

    fn rows(&self) -> Result<Box<dyn RowSource>> {
        let mut loading = self.loading();
        let loaded = match &loading.rows {
            Some(loaded) => Arc::clone(loaded),
            None => Arc::new(LoadedRows::load(&loading.export, &self.shared, &self.props)?),
        };
        loading.rows = Some(Arc::clone(&loaded));
        Ok(Box::new(ExportRows::new(self.database.clone(), loaded)))
    }
}

/// Why an export has no memory in it.
fn no_memory(export: &Export) -> Error {
    let catalog = export.catalog();
    let of_nsys = ["StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME"];
    let path = export.path().to_owned();
    if of_nsys.iter().any(|table| catalog.has(table)) {
        let reason = format!(
            "it is an export of Nsight Systems without GPU memory: the table {} is missing, so either nothing was \
             allocated or --cuda-memory-usage=true was not given; profile with: {RECIPE}",
            memory::TABLE
        );
        return Error::Unrecognized { path, reason };
    }
    let names = catalog.names();
    let shown = names.iter().take(5).map(|name| crate::quote::quoted(name.as_bytes()));
    let shown = if names.is_empty() { "none".to_owned() } else { shown.collect::<Vec<_>>().join(", ") };
    let more = if names.len() > 5 { ", …" } else { "" };
    let reason = format!("it is a database, but no export of Nsight Systems; its tables: {shown}{more}");
    Error::Unrecognized { path, reason }
}

/// Passes over the rest of a damaged table, if that is wanted, and says so.
fn tolerate(scanned: Result<()>, mode: Mode, losses: &mut Losses) -> Result<()> {
    match scanned {
        Err(Error::Malformed { place, reason, .. }) if mode == Mode::Lenient => {
            losses.add(0, &format!("the rest of {place} cannot be read: {reason}"));
            Ok(())
        }
        other => other,
    }
}
