//! Who is who in an export: processes, threads, devices, and when it all began.
//!
//! Both halves of an export number processes alike: those that have memory first, by their global ids,
//! then others. The half that comes to it first tells the other.

use std::sync::{Arc, Mutex, PoisonError};

use floodmark_event::tables::{Process, Thread};
use floodmark_event::{ProcessId, Tables};
use floodmark_store::{Losses, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::export::Export;
use super::ids::{ProcessKey, thread_of};
use super::memory;
use super::ranges::Ranges;
use crate::Mode;

/// What one half has found out and the other need not.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Processes that have memory, by their global ids.
    processes: Mutex<Option<Vec<ProcessKey>>>,
    /// NVTX ranges, and what of them could not be read.
    ranges: Mutex<Option<(Arc<Ranges>, Losses)>>,
}

impl Shared {
    /// Reads the NVTX ranges, unless they were read already.
    pub(crate) fn ranges(&self, export: &Export, mode: Mode, losses: &mut Losses) -> Result<Arc<Ranges>> {
        let mut known = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let mut lost = Losses::default();
            let ranges = Arc::new(Ranges::read(export, mode, &mut lost)?);
            *known = Some((ranges, lost));
        }
        let Some((ranges, lost)) = &*known else { return Ok(Arc::default()) };
        losses.extend(lost);
        Ok(Arc::clone(ranges))
    }

    /// Remembers the processes that have memory.
    pub(crate) fn set_processes(&self, processes: &[ProcessKey]) {
        *self.processes.lock().unwrap_or_else(PoisonError::into_inner) = Some(processes.to_vec());
    }

    /// Processes that have memory.
    pub(crate) fn processes(&self, export: &Export) -> Result<Vec<ProcessKey>> {
        let mut known = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(processes) = &*known {
            return Ok(processes.clone());
        }
        let mut processes = FxHashSet::default();
        export.scan(memory::TABLE, &["globalPid"], &mut |row| {
            processes.extend(row.int(0).map(ProcessKey::of));
            Ok(())
        })?;
        let mut processes: Vec<ProcessKey> = processes.into_iter().collect();
        processes.sort_unstable();
        *known = Some(processes.clone());
        Ok(processes)
    }
}

/// Processes of a trace by their global ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    ids: FxHashMap<ProcessKey, ProcessId>,
    keys: Vec<ProcessKey>,
    first: u32,
}

impl Processes {
    /// Numbers processes from `first` on.
    pub(crate) fn new(keys: &[ProcessKey], first: ProcessId) -> Self {
        let mut processes = Self { first: first.0, ..Self::default() };
        processes.extend(keys);
        processes
    }

    /// Adds processes that have no number yet.
    pub(crate) fn extend(&mut self, keys: &[ProcessKey]) {
        for key in keys {
            if !self.ids.contains_key(key) {
                self.ids.insert(*key, ProcessId(self.first + self.keys.len() as u32));
                self.keys.push(*key);
            }
        }
    }

    pub(crate) fn id(&self, key: ProcessKey) -> Option<ProcessId> {
        self.ids.get(&key).copied()
    }

    /// Adds processes and threads with their names to `tables`.
    pub(crate) fn name(&self, export: &Export, tables: &mut Tables) -> Result<()> {
        let mut commands: FxHashMap<ProcessKey, String> = FxHashMap::default();
        export.scan("PROCESSES", &["globalPid", "name"], &mut |row| {
            if let Some((key, name)) = row.int(0).map(ProcessKey::of).zip(row.text(1))
                && self.ids.contains_key(&key)
            {
                commands.insert(key, name.into_owned());
            }
            Ok(())
        })?;
        let mut threads: Vec<(ProcessKey, u32, i64)> = Vec::new();
        export.scan("ThreadNames", &["globalTid", "nameId"], &mut |row| {
            if let (Some(global), Some(name)) = (row.int(0), row.int(1))
                && self.ids.contains_key(&ProcessKey::of(global))
            {
                threads.push((ProcessKey::of(global), thread_of(global), name));
            }
            Ok(())
        })?;
        threads.sort_unstable();
        threads.dedup_by_key(|(process, thread, _)| (*process, *thread));
        let wanted: FxHashSet<i64> = threads.iter().map(|(_, _, name)| *name).collect();
        let names = strings(export, &wanted)?;
        for (key, thread, name) in threads {
            let (Some(process), Some(name)) = (self.id(key), names.get(&name)) else { continue };
            if thread == key.pid() {
                // Old exports name processes by their first threads alone.
                commands.entry(key).or_insert_with(|| name.clone());
            }
            tables.threads.push(Thread { process, thread: u64::from(thread), name: name.clone() });
        }
        for key in &self.keys {
            let command = commands.remove(key).unwrap_or_default();
            let id = self.ids[key];
            tables.processes.push(Process { id, pid: key.pid(), command, ..Process::default() });
        }
        Ok(())
    }
}

/// Texts of strings by their numbers.
pub(crate) fn strings(export: &Export, wanted: &FxHashSet<i64>) -> Result<FxHashMap<i64, String>> {
    let mut found = FxHashMap::default();
    if !wanted.is_empty() {
        export.strings(&mut |id, text| {
            if wanted.contains(&id) {
                found.insert(id, text.to_owned());
            }
        })?;
    }
    Ok(found)
}

/// When the capture began, in nanoseconds since 1970-01-01 UTC; 0 if the export does not tell.
pub(crate) fn begin_ns(export: &Export) -> Result<i64> {
    let mut begin_ns = None;
    export.scan("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], &mut |row| {
        begin_ns = begin_ns.or(row.int(0));
        Ok(())
    })?;
    Ok(begin_ns.unwrap_or(0))
}

/// Which GPU is a process's device number N.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices(FxHashMap<(u32, i32), i32>);

impl Devices {
    pub(crate) fn read(export: &Export) -> Result<Self> {
        let mut devices = FxHashMap::default();
        export.scan("TARGET_INFO_CUDA_DEVICE", &["pid", "cudaId", "gpuId"], &mut |row| {
            let number = |column| row.int(column).and_then(|value| i32::try_from(value).ok());
            if let (Some(pid), Some(cuda), Some(gpu)) = (number(0), number(1), number(2)) {
                devices.entry((pid as u32, cuda)).or_insert(gpu);
            }
            Ok(())
        })?;
        Ok(Self(devices))
    }

    /// Number of the GPU; the process's own where the export does not tell.
    #[inline]
    pub(crate) fn gpu(&self, pid: u32, device: i32) -> i32 {
        if self.0.is_empty() { device } else { self.0.get(&(pid, device)).copied().unwrap_or(device) }
    }
}
