//! Which block a free ends, and what a teardown ends.

use floodmark_event::{Action, Event, Kind};

use crate::nsys_db::{Db, Generation, PID, TID, good, totals};

/// An event: time, device, context, address, bytes, operation, correlation id.
type Usage = (i64, i64, i64, i64, i64, i64, i64);

fn export(name: &str, rows: &[Usage]) -> Db {
    let db = Db::new(name, Generation::B);
    db.string(1, "cuCtxDestroy_v2");
    db.string(2, "cudaMalloc_v3020");
    db.string(3, "cudaDeviceReset_v3020");
    for (start, device, context, address, bytes, operation, correlation) in rows {
        db.sql(&format!(
            "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes,
               memKind, memoryOperationType, correlationId)
             VALUES ({start}, {PID}, {device}, {context}, {address}, 0, {bytes}, 2, {operation}, {correlation})"
        ));
    }
    db
}

/// A block on each of two devices; the second is freed in the end.
const TWO_CONTEXTS: [Usage; 3] =
    [(100, 0, 1, 0x1000, 1000, 0, 1), (200, 1, 2, 0x20_0000, 5000, 0, 2), (900, 1, 2, 0x20_0000, 5000, 1, 3)];

fn frees(db: &Db) -> Vec<(i64, u64, u64)> {
    let is_free = |event: &&Event| event.action == Action::Free;
    good(&db.path)
        .events
        .iter()
        .filter(is_free)
        .map(|event| (event.time_ns, event.address, event.bytes))
        .collect()
}

#[test]
fn a_teardown_by_a_thread_without_a_context_ends_none_that_is_in_use_later() {
    let db = export("teardown-unknown", &TWO_CONTEXTS);
    db.calls(&[
        (90, 110, 0, TID, 1, 2, None),
        (190, 210, 0, TID + 1, 2, 2, None),
        (890, 910, 0, TID + 1, 3, 2, None),
        (400, 500, 1, TID + 2, 50, 1, None),
    ]);
    assert_eq!(frees(&db), [(500, 0x1000, 1000), (900, 0x20_0000, 5000)]);
}

#[test]
fn a_teardown_ends_no_context_that_is_in_use_later() {
    let db = export("teardown-other", &TWO_CONTEXTS);
    db.calls(&[
        (90, 110, 0, TID, 1, 2, None),
        (190, 210, 0, TID, 2, 2, None),
        (890, 910, 0, TID, 3, 2, None),
        (400, 500, 1, TID, 50, 1, None),
    ]);
    assert_eq!(frees(&db), [(500, 0x1000, 1000), (900, 0x20_0000, 5000)]);
}

#[test]
fn a_block_with_a_row_for_its_free_is_not_ended_by_a_teardown() {
    let db = export(
        "teardown-freed",
        &[
            (10, 0, 1, 0x1000, 100, 0, 1),
            (20, 0, 1, 0x2000, 200, 0, 2),
            (30, 0, 1, 0x3000, 300, 0, 3),
            (70, 0, 1, 0x1000, 100, 1, 4),
            (80, 0, 1, 0x2000, 250, 0, 5),
            (90, 0, 1, 0x2000, 250, 1, 6),
        ],
    );
    db.calls(&[(50, 60, 0, TID, 9, 3, None)]);
    let expected = [(60, 0x2000, 200), (60, 0x3000, 300), (70, 0x1000, 100), (90, 0x2000, 250)];
    assert_eq!(frees(&db), expected);
}

#[test]
fn a_free_of_another_context_ends_its_block_before_a_teardown() {
    let db = export(
        "teardown-context",
        &[(10, 0, 1, 0x1000, 100, 0, 1), (20, 0, 2, 0x1000, 100, 1, 2), (30, 0, 2, 0x1000, 700, 0, 3)],
    );
    db.calls(&[(50, 60, 0, TID, 9, 3, None)]);
    assert_eq!(frees(&db), [(20, 0x1000, 100), (60, 0x1000, 700)]);
    assert_eq!(totals(&good(&db.path).events, Kind::Device).2, 0);
}

#[test]
fn a_free_has_the_device_and_kind_of_its_allocation() {
    let db = export("free-device", &[(10, 0, 1, 0x1000, 100, 0, 1), (20, 1, 2, 0x1000, 100, 1, 2)]);
    db.sql("UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET memKind = 7 WHERE memoryOperationType = 1");
    let events = good(&db.path).events;
    let found: Vec<_> = events.iter().map(|event| (event.action, event.device, event.kind)).collect();
    assert_eq!(found, [(Action::Alloc, 0, Kind::Device), (Action::Free, 0, Kind::Device)]);
}
