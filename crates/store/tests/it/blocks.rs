//! Which block a free ended, as it stands at rest.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{TimestampMicrosecondType, TimestampNanosecondType, UInt64Type};
use arrow_array::{Array as _, RecordBatch};
use floodmark_event::{Action, Event, EventBatch, ProcessId, StackId, StringId, Tables, UNKNOWN_BYTES};
use floodmark_store::{Losses, Overwrite, Run, Sealer, Table, Trace, TraceWriter};
use floodmark_tail::{AllocDomain, RecordProps, Recorder};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;

use crate::traces::tables;
use floodmark_testkit::TempDir;

/// Time and address of a row, and bytes and time in microseconds of the block it ended.
pub(crate) type Row = (i64, u64, Option<u64>, Option<i64>);

/// Reads the block columns of all events, in the order of the parts.
pub(crate) fn read(trace: &Path) -> Vec<Row> {
    let trace = Trace::open(trace).expect("opens");
    let mut rows = Vec::new();
    for part in trace.manifest().parts_of(Table::Event.name()) {
        let file = File::open(part.path(trace.path())).expect("opens");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("reads").build().expect("reads");
        for records in reader {
            rows.extend(rows_of(&records.expect("reads")));
        }
    }
    rows
}

fn rows_of(records: &RecordBatch) -> Vec<Row> {
    let column = |name: &str| records.column_by_name(name).expect("is there");
    let times = column("time").as_primitive::<TimestampNanosecondType>();
    let addresses = column("address").as_primitive::<UInt64Type>();
    let bytes = column("block_bytes").as_primitive::<UInt64Type>();
    let began = column("block_time").as_primitive::<TimestampMicrosecondType>();
    let row = |at: usize| {
        let bytes = (!bytes.is_null(at)).then(|| bytes.value(at));
        let began = (!began.is_null(at)).then(|| began.value(at));
        (times.value(at), addresses.value(at), bytes, began)
    };
    (0..records.num_rows()).map(row).collect()
}

/// Finds the block of each free in the slow and obvious way: backwards through all events.
fn oracle(events: &[Event]) -> Vec<Row> {
    let mut ended = HashMap::new();
    let mut rows = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let same = |other: &Event| {
            (other.process, other.device, other.resource, other.address)
                == (event.process, event.device, event.resource, event.address)
        };
        let mut block = None;
        if event.action == Action::Free {
            // The newest allocation there that no other free has ended; at an ordinary address, only the
            // newest at all.
            let allocs = (0..at).rev().filter(|at| same(&events[*at]) && events[*at].action == Action::Alloc);
            let newest = if event.address == 0 {
                allocs.into_iter().find(|at| !ended.contains_key(at))
            } else {
                allocs.into_iter().next().filter(|at| !ended.contains_key(at))
            };
            if let Some(alloc) = newest {
                ended.insert(alloc, at);
                block = Some(&events[alloc]);
            }
        }
        let bytes = block.map(|block| block.bytes);
        let bytes = bytes.filter(|bytes| *bytes != UNKNOWN_BYTES && *bytes != event.bytes);
        rows.push((event.time_ns, event.address, bytes, block.map(|block| block.time_ns.div_euclid(1000))));
    }
    rows
}

fn event() -> impl Strategy<Value = Event> {
    let action = prop_oneof![3 => Just(Action::Alloc), 3 => Just(Action::Free), 1 => Just(Action::Failure)];
    let bytes = prop_oneof![5 => 0u64..4, 1 => Just(UNKNOWN_BYTES)];
    // Few of everything, so that they meet.
    (action, 0u64..6, bytes, 1u32..3, -1i32..2, 0u32..2).prop_map(
        |(action, address, bytes, process, device, resource)| Event {
            action,
            address: if action == Action::Failure { 0 } else { address },
            bytes,
            process: ProcessId(process),
            device,
            resource: StringId(resource),
            ..Event::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    #[test]
    fn imported_frees_have_the_block_that_they_end(
        mut events in proptest::collection::vec(event(), 1..300),
        batch in 1usize..100,
    ) {
        for (time, event) in (1_700_000_000_000_000_000..).zip(&mut events) {
            event.time_ns = time;
        }
        let folder = TempDir::new("blocks");
        let path = folder.join("a.flood");
        let tables: Tables = tables();
        let mut writer = TraceWriter::create(&path, Run::default(), Overwrite::Yes).expect("creates");
        for events in events.chunks(batch) {
            let mut batch = EventBatch::new();
            for event in events {
                batch.push(event);
            }
            writer.write(&batch, &tables).expect("writes");
        }
        writer.finish(&tables, &Losses::default()).expect("finishes");
        prop_assert_eq!(read(&path), oracle(&events));
    }

    #[test]
    fn recorded_frees_have_their_block_across_sealings(
        // After some events everything is sealed, by the sealer that did it before or by one that takes over.
        events in proptest::collection::vec((event(), prop::option::weighted(0.05, any::<bool>())), 1..150),
    ) {
        let folder = TempDir::new("blocks-sealed");
        let path = folder.join("a.flood");
        let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
        let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
        let pools = [StringId(0), recorder.intern("pool")];
        for (event, seal) in &events {
            let resource = pools[event.resource.0 as usize];
            let domain = AllocDomain { device: event.device, resource, ..AllocDomain::default() };
            match event.action {
                Action::Alloc => recorder.alloc(event.address, event.bytes, &domain, StackId(0)),
                Action::Free => recorder.free(event.address, event.bytes, &domain),
                Action::Failure => recorder.failure(event.bytes, &domain, StackId(0)),
            }
            if let Some(takes_over) = *seal {
                if takes_over {
                    drop(sealer);
                    sealer = Sealer::open(&path, Run::default()).expect("seals");
                }
                sealer.seal().expect("seals");
            }
        }
        recorder.stop();
        sealer.finish().expect("seals");
        let found = read(&path);
        // There is one process. Times are those of the trace.
        let events: Vec<Event> = events
            .iter()
            .zip(&found)
            .map(|((event, _), (time_ns, ..))| Event {
                process: ProcessId(1),
                time_ns: *time_ns,
                ..*event
            })
            .collect();
        prop_assert_eq!(found, oracle(&events));
    }
}
