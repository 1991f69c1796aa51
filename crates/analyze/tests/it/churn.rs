//! Temporary blocks, blocks that grow, and what an allocator adds, in traces that are short enough to count.

use floodmark_analyze::{Churn, ChurnFold, ChurnOptions, Pass, ReallocChain};
use floodmark_event::{
    Action, Event, EventBatch, Filter, Kind, NO_DEVICE, ProcessId, REALLOC, StringId, Tables, UNKNOWN_BYTES,
};

struct Trace {
    tables: Tables,
    batch: EventBatch,
    malloc: StringId,
    realloc: StringId,
}

impl Trace {
    fn new() -> Self {
        let mut tables = Tables::default();
        let (malloc, realloc) = (tables.intern("malloc"), tables.intern(REALLOC));
        Self { tables, batch: EventBatch::new(), malloc, realloc }
    }

    fn event(&mut self, thread: u64, event: Event) {
        self.batch.push(&Event {
            time_ns: self.batch.len() as i64 * 1000,
            process: ProcessId(1),
            thread,
            device: NO_DEVICE,
            kind: Kind::Pageable,
            resource: self.malloc,
            ..event
        });
    }

    fn alloc(&mut self, thread: u64, address: u64, bytes: u64) {
        self.event(thread, Event { address, bytes, ..Event::default() });
    }

    fn free(&mut self, thread: u64, address: u64) {
        let event = Event { action: Action::Free, address, bytes: UNKNOWN_BYTES, ..Event::default() };
        self.event(thread, event);
    }

    fn realloc(&mut self, thread: u64, from: u64, address: u64, bytes: u64) {
        self.free(thread, from);
        self.event(thread, Event { address, bytes, name: self.realloc, ..Event::default() });
    }

    fn churn(&self) -> Churn {
        let mut pass = Pass::new(&Filter::default(), ChurnFold::new(ChurnOptions::default()));
        pass.update(&self.batch);
        pass.finish(&self.tables)
    }
}

#[test]
fn a_block_is_temporary_if_its_thread_frees_it_next() {
    let mut trace = Trace::new();
    // Another thread is busy in between.
    trace.alloc(1, 0x10, 100);
    trace.alloc(2, 0x20, 100);
    trace.free(1, 0x10);
    // Freed by another thread.
    trace.free(1, 0x20);
    // Nested: only the inner one.
    trace.alloc(1, 0x30, 7);
    trace.alloc(1, 0x40, 8);
    trace.free(1, 0x40);
    trace.free(1, 0x30);
    let churn = trace.churn();
    assert_eq!((churn.total.allocations, churn.total.bytes), (4, 215));
    assert_eq!((churn.total.temporary, churn.total.temporary_bytes), (2, 108));
    assert_eq!((churn.duration_ns, churn.allocations_per_s), (7000, Some(4e9 / 7000.0)));
    assert!(!churn.has_reallocs && churn.longest_chain.is_none());
}

#[test]
fn a_growing_block_is_followed_from_realloc_to_realloc() {
    let mut trace = Trace::new();
    trace.alloc(1, 0x100, 64);
    trace.realloc(1, 0x100, 0x100, 128); // in place
    trace.realloc(1, 0x100, 0x200, 256); // copies 128
    trace.alloc(1, 0x300, 10); // something else
    trace.realloc(1, 0x200, 0x400, 512); // copies 256
    trace.realloc(1, 0x400, 0x500, 100); // shrinks: copies 100
    // Not by realloc: a free and an allocation.
    trace.free(1, 0x300);
    trace.alloc(1, 0x600, 20);
    let churn = trace.churn();
    assert!(churn.has_reallocs);
    assert_eq!((churn.total.reallocs, churn.total.moves, churn.total.copied_bytes), (4, 3, 484));
    let longest = ReallocChain { steps: 4, first_bytes: 64, last_bytes: 100, copied_bytes: 484 };
    assert_eq!(churn.longest_chain, Some(longest));
    // The free within realloc is the thread's own: blocks that grow at once were temporary, as heaptrack counts.
    assert_eq!(churn.total.temporary, 3);
}

#[test]
fn what_malloc_adds_is_known_at_the_peak() {
    let mut trace = Trace::new();
    trace.alloc(1, 0x10, 1000); // a chunk of 1008
    trace.alloc(1, 0x20, 25); // of 48
    trace.free(1, 0x20);
    trace.alloc(1, 0x30, 1); // of 32, below the peak
    let churn = trace.churn();
    let waste = churn.waste_at_peak.expect("malloc's rules are known");
    assert_eq!((waste.live_bytes, waste.waste_bytes), (1025, 8 + 23));
    assert_eq!(waste.allocators, ["malloc"]);
    assert_eq!(churn.total.waste_bytes, 8 + 23 + 31);
    let other = trace.tables.intern("jemalloc");
    trace.malloc = other;
    trace.batch.clear();
    trace.alloc(1, 0x10, 1000);
    assert_eq!(trace.churn().waste_at_peak, None);
}
