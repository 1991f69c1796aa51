//! The figures of each name.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::adaptor::address_map::mix;

/// What the profiler knows of one function or code block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRecord {
    /// Number of times it ran.
    pub calls: u64,
    /// The highest of the peaks of its runs: bytes that a run allocated and that were live at once.
    pub peak_bytes: i64,
    /// Bytes that all runs allocated.
    pub total_bytes: i64,
}

impl MemoryRecord {
    /// Adds the figures of more runs.
    pub fn add(&mut self, more: Self) {
        self.calls += more.calls;
        self.peak_bytes = self.peak_bytes.max(more.peak_bytes);
        self.total_bytes = self.total_bytes.wrapping_add(more.total_bytes);
    }
}

/// The figures of each name, in the order in which the names were first recorded; clones share them.
#[derive(Clone, Default)]
pub struct ProfilerRecords {
    shared: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    rows: Vec<(Arc<str>, MemoryRecord)>,
    places: HashMap<Arc<str>, usize, BuildHasherDefault<NameHasher>>,
    /// The same by the address of the name that a row keeps: a profiled function passes its own name each time, and
    /// hashing eight bytes instead of a path and a function takes a tenth off a profiled call.
    by_address: HashMap<usize, usize, BuildHasherDefault<NameHasher>>,
}

impl Table {
    fn place(&self, name: &Arc<str>) -> Option<usize> {
        let by_address = self.by_address.get(&name.as_ptr().addr());
        by_address.or_else(|| self.places.get(&**name)).copied()
    }
}

/// Hashes names, which come from the program itself, eight bytes at a time.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = mix(number as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = mix(self.0.rotate_left(5) ^ u64::from_le_bytes(word));
        }
    }
}

static GLOBAL: LazyLock<ProfilerRecords> = LazyLock::new(ProfilerRecords::default);

impl ProfilerRecords {
    /// The records of the process that are used where a program names none.
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// Adds the figures of one or more runs of `name`.
    pub fn add(&self, name: &Arc<str>, record: MemoryRecord) {
        let mut table = self.table();
        if let Some(place) = table.place(name) {
            table.rows[place].1.add(record);
            return;
        }
        let place = table.rows.len();
        table.places.insert(Arc::clone(name), place);
        table.by_address.insert(name.as_ptr().addr(), place);
        table.rows.push((Arc::clone(name), record));
    }

    /// All names and their figures, first recorded first.
    pub fn rows(&self) -> Vec<(Arc<str>, MemoryRecord)> {
        self.table().rows.clone()
    }

    /// The figures of `name`, if it ran.
    pub fn get(&self, name: &str) -> Option<MemoryRecord> {
        let table = self.table();
        table.places.get(name).map(|place| table.rows[*place].1)
    }

    /// Forgets all names.
    pub fn clear(&self) {
        *self.table() = Table::default();
    }

    /// Identifies these records among those that are alive.
    pub(super) fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ProfilerRecords {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.rows()).finish()
    }
}
