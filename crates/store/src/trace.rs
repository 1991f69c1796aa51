//! Opening a trace, recovering it if its recording ended badly, and writing one from scratch.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use floodmark_event::{EventBatch, SubjectRow, Tables};

use crate::blocks::LiveBlocks;
use crate::codec::AtRest;
use crate::dir;
use crate::error::{Error, Result};
use crate::frame_names::NameFrames;
use crate::manifest::{MANIFEST_FILE, Manifest, Part, ProcessEntry, Run};
use crate::merge::{TailMerge, TailWanted};
use crate::part::PartFiles;
use crate::parts::{PartGroups, PartsWriter};
use crate::registry::{Needs, Registry};
use crate::row_source::{RowSource, open_rows};
use crate::rows::TableRow;
use crate::scan::batch::Batch;
use crate::scan::{Scan, ScanCursor, ScanInput, ScanProps};
use crate::seal::{self, Sealer};
use crate::small_tables::Definitions;
use crate::source::Losses;
use crate::table::Table;
use crate::tail::{self, RemoteWriters, SEGMENTS, TailSnapshot, parse_name};

/// How often reading a live trace starts over because it was being sealed meanwhile.
const ATTEMPTS: usize = 100;

/// A trace opened for reading.
///
/// Clones share what was loaded: the small tables of a trace that is not live are read once.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) manifest: Arc<Manifest>,
    tail: TailState,
    pub(crate) files: PartFiles,
    /// Small tables, unless the trace is live.
    registry: Arc<Mutex<Registry>>,
    /// Names frames that were recorded as addresses.
    names: Option<Arc<dyn NameFrames>>,
}

/// What is in the tail of a trace that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailState {
    /// Nothing: everything is in parts.
    Sealed,
    /// Records of processes that have ended. They are read where they are, because the trace cannot be
    /// written to, or is another user's.
    Ended,
    /// Records of processes that may write more.
    Growing,
}

/// Whether there is a trace at `path`.
pub fn is_trace(path: &Path) -> bool {
    path.join(MANIFEST_FILE).is_file() || path.join(SEGMENTS).is_dir()
}

/// Whether there are files that look like parts.
pub(crate) fn has_parts(trace: &Path) -> bool {
    let is_part = |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".parquet");
    Table::ALL.iter().any(|table| dir::entries(&trace.join(table.name())).any(is_part))
}

/// The error for a trace with parts and nothing that lists them.
pub(crate) fn manifest_is_missing(trace: &Path) -> Error {
    Error::Corrupt { path: trace.join(MANIFEST_FILE), what: "it is missing, but the trace has parts".into() }
}

fn has_tail(trace: &Path) -> Result<bool> {
    Ok(tail::names(trace)?.iter().any(|name| parse_name(name).is_some()))
}

impl Trace {
    /// Opens the trace at `path`. If its recording ended without sealing, it is sealed now; if it is
    /// going on, or the trace is another user's or cannot be written, the tail is read where it is.
    ///
    /// # Errors
    /// [`Error::Unrecognized`] if there is no trace, or what is wrong with its files.
    pub fn open(path: &Path) -> Result<Self> {
        if !is_trace(path) {
            fs::metadata(path).map_err(Error::io("opening", path))?;
            let reason = format!("it has neither {MANIFEST_FILE} nor {SEGMENTS}/, so it is no trace");
            return Err(Error::Unrecognized { path: path.to_owned(), reason });
        }
        let mut tail = TailState::Sealed;
        if has_tail(path)? {
            match recover(path)? {
                Recovered::Sealed(manifest) => return Ok(Self::with_manifest(path, *manifest)),
                Recovered::Unsealed(state) if has_tail(path)? => tail = state,
                Recovered::Unsealed(_) => {}
            }
        }
        // Loaded after the tail was listed: what left it meanwhile is in the manifest by then.
        match Manifest::load(path)? {
            Some(manifest) => Ok(Self { tail, ..Self::with_manifest(path, manifest) }),
            None if has_parts(path) => Err(manifest_is_missing(path)),
            None => Ok(Self { tail, ..Self::with_manifest(path, Manifest::new(Run::default())) }),
        }
    }

    /// Returns a trace of which only the parts are read.
    pub(crate) fn with_manifest(path: &Path, manifest: Manifest) -> Self {
        let files = PartFiles::new(path);
        let (tail, registry) = (TailState::Sealed, Arc::default());
        Self { manifest: Arc::new(manifest), tail, files, registry, names: None }
    }

    /// Names frames that were recorded as addresses with `names`.
    #[must_use]
    pub fn with_frame_names(self, names: Arc<dyn NameFrames>) -> Self {
        let registry = Arc::new(Mutex::new(Registry::named_by(Some(Arc::clone(&names)))));
        Self { registry, names: Some(names), ..self }
    }

    /// Directory of the trace.
    pub fn path(&self) -> &Path {
        self.files.trace()
    }

    /// What the trace consists of, without its tail.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether the trace is being recorded: its tail may grow.
    pub fn is_live(&self) -> bool {
        self.tail == TailState::Growing
    }

    /// Whether part of the trace is not in parts, because it is being recorded, or ended badly and cannot be
    /// sealed by this user.
    pub fn has_tail(&self) -> bool {
        self.tail != TailState::Sealed
    }

    /// Returns how often parts of a table were opened through this value and its clones, for tests of how
    /// much a reader reads.
    pub fn opens(&self, table: Table) -> u64 {
        self.files.opens(table)
    }

    /// Reads events: parts and tail as they are now.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn scan(&self, props: &ScanProps) -> Result<Scan> {
        self.batches((), props)
    }

    /// Reads events from the position of another scan of this trace. None if something that was added since
    /// does not belong behind it, if parts are not what they were, or if `props` does not want all rows.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn scan_from(&self, props: &ScanProps, position: &ScanCursor) -> Result<Option<Scan>> {
        if !props.wants_all_rows() {
            return Ok(None);
        }
        let wanted = TailWanted { only: Some(Table::Event), ..TailWanted::default() };
        let snapshot = self.snapshot(Needs::Everything, &wanted)?;
        let scan = Scan::new(snapshot.input(&self.files), (), props.clone(), Some(position));
        let Some(mut scan) = scan else { return Ok(None) };
        Ok(scan.tail_fits()?.then_some(scan))
    }

    /// Reads the rows of another table, which the type of row names: [`SampleRow`], [`OutputRow`],
    /// [`StackSampleRow`], [`LogRow`], [`ScopeRow`] or [`CallRow`].
    ///
    /// [`SampleRow`]: floodmark_event::SampleRow
    /// [`OutputRow`]: floodmark_event::OutputRow
    /// [`StackSampleRow`]: floodmark_event::StackSampleRow
    /// [`LogRow`]: floodmark_event::LogRow
    /// [`ScopeRow`]: floodmark_event::ScopeRow
    /// [`CallRow`]: floodmark_event::CallRow
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn rows<T: TableRow>(&self, props: &ScanProps) -> Result<Scan<Vec<T>>> {
        self.batches((), props)
    }

    /// Reads the rows of every table but the events, in the order of time, as they are now.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn all_rows(&self, props: &ScanProps) -> Result<Box<dyn RowSource>> {
        open_rows(self, props)
    }

    /// Returns what was observed, with how it ended as far as that is known now.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn subjects(&self) -> Result<BTreeMap<u64, SubjectRow>> {
        Ok(self.snapshot(Needs::Names, &TailWanted::definitions())?.registry.tables.subjects)
    }

    pub(crate) fn batches<B: Batch>(&self, layout: B::Layout, props: &ScanProps) -> Result<Scan<B>> {
        let wanted = TailWanted {
            from_ns: props.from_ns,
            only: Some(B::table(&layout)),
            event_chunks: props.event_chunks.clone(),
        };
        // Naming the frames of all stacks takes longer than a scan that does not read them. Chunks of a tail name
        // what they need themselves.
        let reads_stacks = B::table(&layout) != Table::Event || props.wants("stack") || self.has_tail();
        let needs = if reads_stacks { B::needs(&layout) } else { B::needs(&layout).min(Needs::Names) };
        let snapshot = self.snapshot(needs, &wanted)?;
        let scan = Scan::new(snapshot.input(&self.files), layout, props.clone(), None);
        Ok(scan.expect("the beginning always fits"))
    }

    /// Returns the small tables of a trace that is not live. Each is read the first time it is needed.
    fn registry(&self, needs: Needs) -> Result<Registry> {
        let mut shared = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.has(needs) {
            // Taken out: one that was loaded half is not kept.
            let empty = Registry::named_by(self.names.clone());
            let mut registry = std::mem::replace(&mut *shared, empty);
            registry.load(&self.files, &self.manifest, needs)?;
            registry.share();
            *shared = registry;
        }
        Ok(shared.clone())
    }

    /// Collects what the trace consists of at one moment. Of the tail it may leave out what is not wanted.
    pub(crate) fn snapshot(&self, needs: Needs, wanted: &TailWanted) -> Result<TraceSnapshot> {
        if !self.has_tail() {
            let registry = self.registry(needs)?;
            return Ok(TraceSnapshot { manifest: Arc::clone(&self.manifest), registry, tail: None });
        }
        let mut attempts = 0;
        loop {
            let before = Manifest::load(self.path())?.unwrap_or_else(|| Manifest::new(Run::default()));
            let snapshot = TailSnapshot::collect(self.path(), &before, RemoteWriters::AssumeRunning)?;
            let after = Manifest::load(self.path())?.map_or(0, |manifest| manifest.revision);
            attempts += 1;
            // What was sealed in between would be in neither or in both.
            if before.revision != after && attempts < ATTEMPTS {
                continue;
            }
            let mut manifest = before;
            snapshot.adopt(&mut manifest);
            let mut registry = Registry::named_by(self.names.clone());
            match registry.load(&self.files, &manifest, needs) {
                // Likewise a part that was replaced while its table was read.
                Err(Error::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && attempts < ATTEMPTS =>
                {
                    continue;
                }
                loaded => loaded?,
            }
            let tail = Some(TailMerge::new(snapshot, &manifest, &mut registry, wanted));
            return Ok(TraceSnapshot { manifest: Arc::new(manifest), registry, tail });
        }
    }
}

/// What a trace consists of at one moment.
pub(crate) struct TraceSnapshot {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) registry: Registry,
    pub(crate) tail: Option<TailMerge>,
}

impl TraceSnapshot {
    fn input(self, files: &PartFiles) -> ScanInput {
        let Self { manifest, registry, tail } = self;
        ScanInput { files: files.clone(), manifest, registry, tail }
    }
}

/// What became of a trace that has a tail.
enum Recovered {
    /// It was sealed.
    Sealed(Box<Manifest>),
    /// This process should not or cannot seal it: its tail is read where it is.
    Unsealed(TailState),
}

/// Seals the tail of a trace whose recording has ended.
fn recover(trace: &Path) -> Result<Recovered> {
    // A trace of another user is not touched: what it would make us write is that user's choice. The lock is a
    // file too.
    let lock = if dir::is_own(trace) { seal::lock(trace) } else { Ok(None) };
    let lock = match lock {
        Ok(lock) => lock,
        // We may read the trace but not write it.
        Err(Error::Io { .. }) => None,
        Err(error) => return Err(error),
    };
    let manifest = Manifest::load(trace)?.unwrap_or_else(|| Manifest::new(Run::default()));
    if !TailSnapshot::collect(trace, &manifest, RemoteWriters::AssumeRunning)?.all_ended() {
        return Ok(Recovered::Unsealed(TailState::Growing));
    }
    // Another process may be sealing it.
    let Some(lock) = lock else { return Ok(Recovered::Unsealed(TailState::Ended)) };
    match seal_all(trace, lock, RemoteWriters::AssumeRunning) {
        Ok(manifest) => Ok(Recovered::Sealed(Box::new(manifest))),
        // A full or read-only disk: the tail is as good where it is.
        Err(Error::Io { .. }) => Ok(Recovered::Unsealed(TailState::Ended)),
        Err(error) => Err(error),
    }
}

fn seal_all(trace: &Path, lock: File, elsewhere: RemoteWriters) -> Result<Manifest> {
    Sealer::with_lock(trace, Run::default(), lock, elsewhere)?.finish()
}

/// Deletes files that look like parts but are not listed: what a crash left half done.
pub(crate) fn sweep(trace: &Path, manifest: &Manifest) {
    for table in Table::ALL.map(Table::name) {
        for entry in dir::entries(&trace.join(table)) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let listed = manifest.parts_of(table).any(|part| part.file == name);
            // What repair set aside has another ending and stays.
            let ours = name.ends_with(".parquet") || name.ends_with(".parquet.tmp");
            if name.starts_with("part-") && ours && !listed {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// What [`repair`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Events that can be read now.
    pub events: u64,
    /// Parts that could not be read and were set aside, with the reason.
    pub set_aside: Vec<(PathBuf, String)>,
    /// Events those parts held.
    pub lost_events: u64,
    /// Events moved from the tail into parts.
    pub recovered_events: u64,
    /// Whether the manifest was damaged and was made anew from the parts.
    pub manifest_rebuilt: bool,
}

/// Makes the trace at `path` readable: seals its tail even if its processes cannot be told to have
/// ended, sets unreadable parts aside (renamed, never deleted) and counts what they held, and rebuilds
/// a damaged manifest from the parts.
///
/// # Errors
/// [`Error::Locked`] if the trace is being recorded, [`Error::NotOwn`] if it is another user's,
/// [`Error::Io`] if it cannot be written.
pub fn repair(path: &Path) -> Result<RepairReport> {
    if !is_trace(path) {
        return Trace::open(path).map(|_| RepairReport::default());
    }
    if !dir::is_own(path) {
        return Err(Error::NotOwn { path: path.to_owned() });
    }
    let mut report = RepairReport::default();
    let Some(lock) = seal::lock(path)? else { return Err(Error::Locked { path: path.to_owned() }) };
    let mut manifest = match Manifest::load(path) {
        Ok(Some(manifest)) => manifest,
        Ok(None) if !has_parts(path) => Manifest::new(Run::default()),
        Ok(None) | Err(Error::Corrupt { .. }) => {
            report.manifest_rebuilt = true;
            rebuild(path)?
        }
        Err(error) => return Err(error),
    };
    let files = PartFiles::new(path);
    let (good, bad): (Vec<_>, Vec<_>) = manifest
        .parts
        .drain(..)
        .map(|part| (read_through(&files, &part), part))
        .partition(|(check, _)| check.is_ok());
    manifest.parts = good.into_iter().map(|(_, part)| part).collect();
    for (check, part) in bad {
        let file = part.path(path);
        let aside = file.with_extension("parquet.damaged");
        let _ = fs::rename(&file, &aside);
        if part.table == "event" {
            report.lost_events = report.lost_events.saturating_add(part.rows);
            manifest.losses.add(part.rows, "their part was damaged and set aside by repair");
        } else {
            let reason = format!("a part of the {} table was damaged and set aside by repair", part.table);
            manifest.losses.add(part.rows, &reason);
        }
        report.set_aside.push((aside, check.err().map(|error| error.to_string()).unwrap_or_default()));
    }
    let before = manifest.rows_of(Table::Event);
    manifest.save(path)?;
    let manifest = seal_all(path, lock, RemoteWriters::AssumeEnded)?;
    report.events = manifest.rows_of(Table::Event);
    report.recovered_events = report.events.saturating_sub(before);
    Ok(report)
}

/// Reads every row of a part.
fn read_through(files: &PartFiles, listed: &Part) -> Result<()> {
    let mut rows = 0;
    files.read_all(listed, |records| {
        rows += records.num_rows() as u64;
        Some(())
    })?;
    if rows == listed.rows {
        return Ok(());
    }
    let what = format!("it has {rows} rows where the manifest says {}", listed.rows);
    Err(Error::corrupt(listed.path(files.trace()), what))
}

/// Makes a manifest from the parts that are there.
fn rebuild(trace: &Path) -> Result<Manifest> {
    let mut manifest = Manifest::new(Run::default());
    let files = PartFiles::new(trace);
    for table in Table::ALL.map(Table::name) {
        let entries = dir::entries(&trace.join(table));
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name.ends_with(".parquet")).collect();
        names.sort();
        for (order, file) in (0..).zip(names) {
            let mut part = Part {
                table: table.into(),
                file,
                rows: 0,
                bytes: 0,
                min_time_ns: i64::MIN,
                max_time_ns: i64::MAX,
                order,
                processes: None,
            };
            let path = part.path(trace);
            part.bytes = fs::metadata(&path).map_err(Error::io("reading", &path))?.len();
            let mut rows = 0;
            let _ = files.read_all(&part, |records| {
                rows += records.num_rows() as u64;
                Some(())
            });
            part.rows = rows;
            manifest.parts.push(part);
        }
    }
    // The processes are in their table, but how far their tails were sealed is not known any more:
    // what is left of a tail is read from its start, and may repeat what is in parts.
    manifest.losses.add(0, "the manifest was damaged and made anew from the parts");
    Ok(manifest)
}

/// Whether an existing trace may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// No: an existing one is an error.
    No,
    /// Yes, but nothing that is not a trace.
    Yes,
}

/// Writes a trace that is complete once it is there: under another name until [`Self::finish`].
pub struct TraceWriter {
    path: PathBuf,
    temporary: PathBuf,
    manifest: Manifest,
    parts: Option<PartsWriter>,
    overwrite: Overwrite,
    span: Option<(i64, i64)>,
    blocks: LiveBlocks,
}

/// Creates a directory that did not exist, with the first name that is free. An existing one could be another
/// user's link, and files would be created where it leads.
fn create_temporary(name: impl Fn(u32) -> PathBuf) -> Result<PathBuf> {
    let mut number = 0;
    loop {
        let path = name(number);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map_or(Ok(()), fs::create_dir_all).map_err(Error::io("creating", &path))?;
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => return Err(Error::io("creating", &path)(error)),
        }
    }
}

impl TraceWriter {
    /// Starts a trace that will be at `path`.
    ///
    /// # Errors
    /// [`Error::Exists`] or [`Error::Io`].
    pub fn create(path: &Path, run: Run, overwrite: Overwrite) -> Result<Self> {
        if path.exists() && (overwrite == Overwrite::No || !is_trace(path)) {
            return Err(Error::Exists { path: path.to_owned() });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = create_temporary(|number| {
            path.with_file_name(format!(".{name}.{}-{number}.tmp", std::process::id()))
        })?;
        let segments = temporary.join(SEGMENTS);
        fs::create_dir(&segments).map_err(Error::io("creating", &segments))?;
        let manifest = Manifest::new(run);
        let parts = Some(PartsWriter::new(&temporary, &manifest, PartGroups::default()));
        let blocks = LiveBlocks::default();
        Ok(Self { path: path.to_owned(), temporary, manifest, parts, overwrite, span: None, blocks })
    }

    /// Appends events, which come after those of earlier calls.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&mut self, batch: &EventBatch, tables: &Tables) -> Result<()> {
        self.cover((0..batch.len()).map(|row| batch.time_ns.at(row)));
        let parts = self.parts.as_mut().expect("present until finished");
        parts.events(batch, &AtRest::of_tables(tables), &mut self.blocks)
    }

    /// Appends rows of another table, which come after those of earlier calls. Subjects are written
    /// with the tables at the end.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_rows<T: TableRow>(&mut self, rows: &[T], tables: &Tables) -> Result<()> {
        // What a recorder says about itself may be before all that it recorded.
        if T::TABLE != Table::Log {
            self.cover(rows.iter().map(T::time_ns));
        }
        let parts = self.parts.as_mut().expect("present until finished");
        // A row of output can be long, and what is turned into columns at once is in memory twice.
        rows.chunks(T::ROWS).try_for_each(|rows| parts.rows(rows, &AtRest::of_tables(tables)))
    }

    fn cover(&mut self, times: impl Iterator<Item = i64>) {
        let start = self.span.unwrap_or((i64::MAX, i64::MIN));
        let span = times.fold(start, |(from, to), time| (from.min(time), to.max(time)));
        self.span = Some(span).filter(|(from, to)| from <= to);
    }

    /// Starts a sequence of its own: rows written from now on are merged by time with the earlier.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn next_sequence(&mut self) -> Result<()> {
        self.parts.as_mut().expect("present until finished").next_order()
    }

    /// Completes the trace. `tables` is what the ids of all rows written point to.
    ///
    /// # Errors
    /// [`Error::Io`]; then there is no trace.
    pub fn finish(mut self, tables: &Tables, losses: &Losses) -> Result<Manifest> {
        let entry = |process: &floodmark_event::tables::Process| ProcessEntry {
            id: process.id.0,
            stem: String::new(),
            pid: process.pid,
            parent_pid: process.parent_pid,
            host: process.host.clone(),
            command: process.command.clone(),
            start_ns: process.start_ns,
            boot: String::new(),
            lanes: BTreeMap::new(),
            losses: Losses::default(),
            sealed: true,
            end_ns: None,
        };
        let mut manifest = self.manifest.clone();
        manifest.processes = tables.processes.iter().map(entry).collect();
        manifest.losses = losses.clone();
        if let Some((from, to)) = self.span {
            manifest.run.start_ns.get_or_insert(from);
            manifest.run.end_ns.get_or_insert(to);
        }
        let mut parts = self.parts.take().expect("present until finished");
        let definitions = Definitions::of_tables(tables);
        parts.definitions(&definitions, tables)?;
        let anew = definitions.rewritten([Table::Process]);
        let parts = parts.finish(&anew, &mut manifest, tables)?;
        manifest.parts = parts;
        manifest.save(&self.temporary)?;
        if self.overwrite == Overwrite::Yes && self.path.exists() {
            fs::remove_dir_all(&self.path).map_err(Error::io("replacing", &self.path))?;
        }
        fs::rename(&self.temporary, &self.path).map_err(Error::io("creating", &self.path))?;
        crate::dir::sync_parent(&self.path);
        Ok(manifest)
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        // Gone already after `finish`; otherwise nothing half-written stays behind.
        drop(self.parts.take());
        let _ = fs::remove_dir_all(&self.temporary);
    }
}
