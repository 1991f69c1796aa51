//! Many events and calls with one correlation id.

use proptest::prelude::*;

use crate::nsys_db::{Call, Db, Generation, PID, TID, good};

fn export(name: &str) -> Db {
    let db = Db::new(name, Generation::B);
    db.string(1, "cudaMalloc");
    db.string(2, "cuMemAlloc_v2");
    db.string(3, "/opt/app");
    for id in 0..4 {
        db.string(10 + id, &format!("f{id}"));
        db.chain(id, &[(10 + id, 3)]);
    }
    db
}

#[test]
fn as_many_calls_as_events_with_one_correlation_id_are_told_apart() {
    const COUNT: i64 = 20_000;
    let db = export("crowd-many");
    // Each call spans all events but those before its own.
    db.sql(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {COUNT})
         INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
           memoryOperationType, correlationId) SELECT i, {PID}, 0, 1, i * 4096, 0, 256, 2, 0, 7 FROM n;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {COUNT})
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT i, {COUNT}, 0, {TID}, 7, 1, 0, NULL FROM n;"
    ));
    db.calls(&[(100, 200, 1, TID + 1, 7, 2, None), (150, 160, 67, TID + 2, 7, 1, Some(1))]);
    let read = good(&db.path);
    assert_eq!(read.events.len() as i64, COUNT);
    for event in &read.events {
        let expected = match event.time_ns {
            150..=160 => (9, vec!["f1"]),
            100..=200 => (8, vec!["cuMemAlloc_v2"]),
            _ => (7, vec![]),
        };
        assert_eq!((event.thread, read.stack(event)), expected, "{}", event.time_ns);
    }
}

/// Thread and stack of the best call around a time, in the most obvious way.
fn best(calls: &[Call], time: i64) -> (u64, Vec<String>) {
    let around = calls.iter().filter(|(start, end, ..)| (*start..=*end).contains(&time));
    let goodness = |(_, _, class, _, _, _, chain): &&Call| {
        let rank = [67, 1, 0].iter().position(|known| known == class);
        // The smallest chain wins, and 0 only over none.
        (rank, chain.is_none(), *chain == Some(0), *chain)
    };
    let Some(call) = around.min_by_key(goodness) else { return (0, Vec::new()) };
    let stack = match (call.2, call.6) {
        (67, Some(chain)) => vec![format!("f{chain}")],
        (67, None) => vec!["cudaMalloc".to_owned()],
        (1, _) => vec!["cuMemAlloc_v2".to_owned()],
        _ => Vec::new(),
    };
    ((call.3 & 0xff) as u64, stack)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_event_gets_the_best_call_around_it(
        // Below and above the number from which calls are kept.
        times in prop::collection::vec(0..60_i64, 1..40),
        spans in prop::collection::vec((0..60_i64, 0..30_i64, 0..3_usize, prop::option::of(0..4_i64)), 0..40),
    ) {
        let db = export("crowd-any");
        let call = |(at, (start, length, class, chain)): (i64, &(i64, i64, usize, Option<i64>))| -> Call {
            let class = [67, 1, 0][*class];
            let name = if class == 1 { 2 } else { 1 };
            (*start, start + length, class, TID + at, 7, name, chain.filter(|_| class == 67))
        };
        let calls: Vec<Call> = (0..).zip(&spans).map(call).collect();
        db.calls(&calls);
        let rows: Vec<_> = (1..).zip(&times).map(|(at, time)| (*time, PID, at * 4096, 64, 2, 0, 7)).collect();
        db.usage(&rows);
        let read = good(&db.path);
        prop_assert_eq!(read.events.len(), times.len());
        for event in &read.events {
            let stack: Vec<String> = read.stack(event).into_iter().map(str::to_owned).collect();
            prop_assert_eq!((event.thread, stack), best(&calls, event.time_ns));
        }
    }
}
