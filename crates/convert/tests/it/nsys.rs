//! Exports of Nsight Systems: a real one, and both generations of the schema.

use std::collections::BTreeMap;

use floodmark_convert::nsys::Class::{Driver, Invalid, Valid};
use floodmark_convert::nsys::{Class, DRIVER_MODULE};
use floodmark_convert::{Format, Mode, OpenProps, open, recognize};
use floodmark_event::Action::{Alloc, Free};
use floodmark_event::Row;
use floodmark_event::{
    Action, CONTEXT_TEARDOWN, Event, Kind, LogLevel, Metric, ProcessId, ScopeAction, StackId, SubjectKind,
    Tables,
};

use crate::nsys_db::{Db, Generation, PID, Read, TID, good, minimal, read, totals};
use crate::sample_logs::fixture;

const MIB: u64 = 1 << 20;

/// Returns the class of an event by its stack.
fn class_of(tables: &Tables, stack: StackId) -> Class {
    let mut frames = tables.frames_of(stack);
    match (frames.next(), frames.next()) {
        (None, _) => Invalid,
        (Some(frame), None) if tables.string(frame.module) == DRIVER_MODULE => Driver,
        _ => Valid,
    }
}

fn classes(read: &Read) -> Vec<Class> {
    read.events.iter().map(|event| class_of(&read.tables, event.stack)).collect()
}

#[test]
fn a_real_export_tells_what_its_program_did() {
    let path = fixture("nsys/small_2025.3.sqlite");
    assert_eq!(recognize(&path).ok(), Some(Format::Nsys));
    let read = good(&path);
    assert_eq!(read.events.len(), 22);
    assert!(read.losses.is_empty(), "{:?}", read.losses);
    let (peak, at, left) = totals(&read.events, Kind::Device);
    assert_eq!((peak, left), (5 * 3 * MIB + 64 * MIB, 5 * 3 * MIB));
    assert_eq!(at, 1_794_724_089_568_622_046 + 561_763_489);
    for kind in [Kind::Pinned, Kind::Managed] {
        assert_eq!((totals(&read.events, kind).0, totals(&read.events, kind).2), (MIB, 0));
    }
    let statics: Vec<&Event> = read.events.iter().filter(|event| event.kind == Kind::Static).collect();
    assert_eq!((statics.len(), statics[0].bytes), (1, 4 * MIB));
    assert_eq!(read.tables.string(statics[0].name), "big");
    assert_eq!(class_of(&read.tables, statics[0].stack), Class::Invalid);
    let leaks: Vec<&Event> = read.events.iter().filter(|event| event.bytes == 3 * MIB).collect();
    assert_eq!(leaks.len(), 5);
    for event in leaks {
        let stack = read.stack(event);
        assert!(stack.contains(&"leak()") && stack.contains(&"main"), "{stack:?}");
        assert!(
            stack.iter().position(|name| *name == "cudaMalloc")
                < stack.iter().position(|name| *name == "leak()")
        );
        assert_eq!(class_of(&read.tables, event.stack), Class::Valid);
        assert_eq!((event.process, event.device, event.thread), (ProcessId(1), 0, 539));
    }
    // What nsys could not resolve has an address and no name.
    assert_eq!(read.stack(&read.events[0])[0], "");
    let pooled = read.events.iter().find(|event| event.bytes == 5 * MIB).expect("cudaMallocAsync");
    assert_eq!((pooled.stream, class_of(&read.tables, pooled.stack)), (13, Class::Invalid));
    assert_eq!((read.tables.processes[0].pid, &*read.tables.processes[0].command), (539, "./t"));
    assert!(read.tables.threads.iter().any(|thread| thread.thread == 539));
}

#[test]
fn a_real_export_has_devices_pools_and_messages() {
    let read = good(&fixture("nsys/small_2025.3.sqlite"));
    let subjects: Vec<_> = read.seen_tables.subjects.values().collect();
    assert_eq!((subjects[0].kind, &*subjects[0].name), (SubjectKind::Device, "NVIDIA H200"));
    assert_eq!(subjects[0].detail, "GPU-f3f707f7-9f01-e048-20a7-afae5f35d3c3");
    assert_eq!((subjects[1].kind, &*subjects[1].name), (SubjectKind::Pool, "pool 0x302000000 of device 0"));
    let samples: Vec<_> = read
        .seen
        .iter()
        .filter_map(|row| if let Row::Sample(row) = row { Some((row.metric, row.value)) } else { None })
        .collect();
    assert_eq!(
        samples,
        [
            (Metric::GpuTotal, 150_109_880_320),
            (Metric::Reserved, 32 * MIB),
            (Metric::Live, 0),
            // What the allocation and the free say.
            (Metric::Reserved, 32 * MIB),
            (Metric::Live, 5 * MIB),
            (Metric::Reserved, 32 * MIB),
            (Metric::Live, 5 * MIB),
            (Metric::Reserved, 0),
            (Metric::Live, 0)
        ]
    );
    let logs: Vec<_> =
        read.seen.iter().filter_map(|row| if let Row::Log(row) = row { Some(row) } else { None }).collect();
    assert_eq!(logs.len(), 15);
    assert!(logs.iter().all(|log| log.level == LogLevel::Info));
    let injected = logs.iter().find(|log| log.text.starts_with("CUDA injection")).expect("a message");
    assert_eq!((injected.process, read.seen_tables.string(injected.source)), (ProcessId(1), "Injection"));
    assert!(read.seen.is_sorted_by_key(Row::time_ns));
}

#[test]
fn every_generation_gives_the_same_events() {
    let mut readings = Vec::new();
    for generation in [Generation::A, Generation::A2, Generation::B] {
        let read = good(&minimal("generation", generation).path);
        assert_eq!(classes(&read), [Valid, Driver, Invalid, Invalid]);
        assert_eq!(totals(&read.events, Kind::Device), (3_146_240, 1_000_405, 2_097_664));
        assert_eq!(read.stack(&read.events[0]), ["cudaMalloc", "load(int)", "main"]);
        assert_eq!(read.stack(&read.events[1]), ["cuMemAlloc_v2"]);
        assert!(read.events.iter().all(|event| event.thread == 7 && event.process == ProcessId(1)));
        assert_eq!((read.tables.processes[0].pid, read.events[3].action), (19163, Action::Free));
        readings.push(read.events);
    }
    assert_eq!(readings[0], readings[1]);
    assert_eq!(readings[0], readings[2]);
}

#[test]
fn the_order_of_rows_does_not_matter() {
    let in_order = good(&minimal("ordered", Generation::B).path);
    let db = minimal("shuffled", Generation::B);
    for table in ["CUDA_GPU_MEMORY_USAGE_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUDA_CALLCHAINS"] {
        db.sql(&format!(
            "CREATE TABLE other AS SELECT * FROM {table} ORDER BY (rowid * 7919) % 13 DESC;
             DELETE FROM {table}; INSERT INTO {table} SELECT * FROM other; DROP TABLE other;"
        ));
    }
    let shuffled = good(&db.path);
    let plain = |read: &Read| -> Vec<Event> {
        read.events.iter().map(|event| Event { stack: StackId(0), ..*event }).collect()
    };
    assert_eq!(plain(&shuffled), plain(&in_order));
    let stacks =
        |read: &Read| read.events.iter().map(|event| read.stack(event).join(" ")).collect::<Vec<_>>();
    assert_eq!(stacks(&shuffled), stacks(&in_order));
}

#[test]
fn an_unknown_kind_is_kept_and_counted() {
    let db = minimal("kind9", Generation::A);
    db.usage(&[
        (600, PID, 0x9000, 64, 9, 0, 0),
        (610, PID, 0x9100, 64, 10, 0, 0),
        (620, PID, 0x9200, 64, 6, 0, 0),
    ]);
    db.sql("INSERT INTO ENUM_CUDA_MEM_KIND VALUES (10, 'CUDA_MEMOPR_MEMORY_KIND_X', 'Pinned')");
    let read = good(&db.path);
    assert_eq!(read.events.len(), 7);
    let kinds: Vec<Kind> = read.events[4..].iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Kind::Unknown, Kind::Pinned, Kind::Static]);
    assert_eq!(read.gaps(), ["memKind 9 has no known meaning; such an event has kind unknown"]);
    assert_eq!(read.losses.gaps[0].count, 1);
    assert!(read.losses.is_empty(), "nothing is lost");
}

#[test]
fn an_unknown_operation_is_counted() {
    let db = minimal("operation", Generation::A);
    db.usage(&[(600, PID, 0x9000, 64, 2, 5, 0)]);
    let read = good(&db.path);
    assert_eq!((read.events.len(), read.losses.gaps[0].count), (4, 1));
    assert!(read.gaps()[0].contains("neither an allocation nor a free"));
}

#[test]
fn processes_share_addresses_and_global_ids_may_be_negative() {
    let other = (1_i64 << 48) | (77 << 24);
    let negative = i64::MIN | (78 << 24);
    let db = minimal("pids", Generation::B);
    db.usage(&[(160, other, 0x1000, 100, 2, 0, 10), (170, negative, 0x1000, 200, 2, 0, 10)]);
    db.calls(&[(165, 175, 67, negative | 3, 10, 1, None)]);
    db.sql(&format!("INSERT INTO PROCESSES VALUES ({other}, 77, 'rank 1'), ({negative}, 78, 'rank 2')"));
    let read = good(&db.path);
    let pids: BTreeMap<u64, u32> = read
        .events
        .iter()
        .filter(|event| event.action == Action::Alloc && event.address == 0x1000)
        .map(|event| (event.bytes, read.tables.process(event.process).expect("a process").pid))
        .collect();
    assert_eq!(pids, BTreeMap::from([(100, 77), (200, 78), (MIB, 19163)]));
    let event = read.events.iter().find(|event| event.bytes == 200).expect("an event");
    assert_eq!((event.thread, read.stack(event)), (3, vec!["cudaMalloc"]));
    assert_eq!(
        class_of(&read.tables, event.stack),
        Class::Valid,
        "its chain is null, and it has one all the same"
    );
    let first = read.events.iter().find(|event| event.bytes == 100).expect("an event");
    assert_eq!((first.thread, first.stack.0), (0, 0), "the call of another process is none of its own");
}

#[test]
fn without_chains_or_calls_events_are_there_all_the_same() {
    let db = minimal("chains", Generation::B);
    db.sql("DROP TABLE CUDA_CALLCHAINS");
    let read = good(&db.path);
    assert_eq!(read.stack(&read.events[0]), ["cudaMalloc"]);
    let frame = read.tables.frames_of(read.events[0].stack).next().expect("a frame");
    assert_eq!(read.tables.string(frame.module), "CUDA runtime");
    assert!(read.gaps()[0].contains("no table CUDA_CALLCHAINS"), "{:?}", read.gaps());
    db.sql("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME");
    let read = good(&db.path);
    assert_eq!(classes(&read), [Class::Invalid; 4]);
    assert!(read.gaps()[0].contains("no table CUPTI_ACTIVITY_KIND_RUNTIME"), "{:?}", read.gaps());
    assert_eq!(totals(&read.events, Kind::Device), (3_146_240, 1_000_405, 2_097_664));
}

#[test]
fn at_equal_times_a_reused_address_is_freed_first_and_a_new_one_allocated_first() {
    let db = Db::new("ties", Generation::A);
    db.usage(&[
        (10, PID, 0x1000, 5, 2, 0, 0),
        (20, PID, 0x1000, 7, 2, 0, 0),
        (20, PID, 0x1000, 5, 2, 1, 0),
        (20, PID, 0x2000, 9, 2, 1, 0),
        (20, PID, 0x2000, 9, 2, 0, 0),
        (30, PID, 0x1000, 7, 2, 1, 0),
    ]);
    let read = good(&db.path);
    assert_eq!(totals(&read.events, Kind::Device).2, 0);
    let at_20: Vec<_> = read.events[1..5].iter().map(|event| (event.address, event.action)).collect();
    assert_eq!(at_20, [(0x1000, Free), (0x2000, Alloc), (0x2000, Free), (0x1000, Alloc)]);
}

#[test]
fn a_call_with_a_stack_wins_over_one_of_the_driver() {
    let db = minimal("precedence", Generation::B);
    db.calls(&[
        (120, 180, 1, TID, 10, 3, None),
        (300, 310, 0, TID, 11, 2, None),
        (900, 910, 67, TID, 12, 1, Some(5)),
    ]);
    let read = good(&db.path);
    assert_eq!(
        classes(&read),
        [Valid, Driver, Invalid, Invalid],
        "a call at another time is no call of an event"
    );
}

#[test]
fn chain_0_loses_against_another_and_is_read_where_it_exists() {
    let db = minimal("chain0", Generation::B);
    db.calls(&[(98, 202, 67, TID, 10, 1, Some(0)), (399, 411, 67, TID, 12, 1, Some(0))]);
    let read = good(&db.path);
    assert_eq!(read.stack(&read.events[0]), ["cudaMalloc", "load(int)", "main"]);
    assert_eq!(read.stack(&read.events[2]), ["cudaMalloc"], "it has a name at least");
    db.chain(0, &[(1, 8), (6, 7)]);
    let read = good(&db.path);
    assert_eq!(read.stack(&read.events[0]), ["cudaMalloc", "load(int)", "main"]);
    assert_eq!(read.stack(&read.events[2]), ["cudaMalloc", "main"]);
}

#[test]
fn calls_of_the_driver_may_be_in_a_table_of_their_own() {
    let db = minimal("driver", Generation::A);
    db.sql(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER (start, end, globalTid, correlationId, nameId, returnValue)",
    );
    db.sql(&format!("INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER VALUES (400, 410, {TID}, 12, 3, 0)"));
    assert_eq!(classes(&good(&db.path))[2], Class::Driver);
}

#[test]
fn ranges_are_scopes_and_events_know_the_innermost() {
    let db = minimal("nvtx", Generation::B);
    db.string(50, "step");
    db.sql(&format!(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid) VALUES
           (90, 450, 59, NULL, 50, {TID}), (140, 160, 59, 'inner', NULL, {TID}), (95, 600, 60, 'apart', NULL, {TID}),
           (300, 320, 59, 'of another thread', NULL, {TID} + 1), (130, NULL, 34, 'mark', NULL, {TID}),
           (131, NULL, 34, NULL, NULL, {TID}), (132, NULL, 34, '', NULL, {TID}), (133, NULL, 34, NULL, 51, {TID})"
    ));
    db.string(51, " ");
    let read = good(&db.path);
    let marks = |row: &&Row| matches!(row, Row::Scope(row) if row.action == ScopeAction::Mark);
    assert_eq!(read.seen.iter().filter(marks).count(), 1, "a mark without a name says nothing");
    let mut names = BTreeMap::new();
    let mut open = Vec::new();
    for row in &read.seen {
        let Row::Scope(row) = row else { continue };
        match row.action {
            ScopeAction::Enter | ScopeAction::Begin => {
                let name = read.seen_tables.string(row.name);
                assert_eq!(
                    row.action == ScopeAction::Begin,
                    name == "apart",
                    "ranges with a start and an end"
                );
                names.insert(row.scope, name);
                open.push((row.scope, row.parent));
            }
            ScopeAction::Exit | ScopeAction::End => open.retain(|(scope, _)| *scope != row.scope),
            ScopeAction::Mark => assert_eq!(read.seen_tables.string(row.name), "mark"),
        }
    }
    assert!(open.is_empty());
    let scopes: Vec<_> = read.events.iter().map(|event| names.get(&event.scope).copied()).collect();
    assert_eq!(scopes, [Some("inner"), Some("step"), Some("step"), Some("apart")]);
    assert!(read.seen.is_sorted_by_key(Row::time_ns));
}

#[test]
fn what_a_context_held_is_freed_when_it_is_torn_down() {
    let db = minimal("teardown", Generation::B);
    db.string(60, "cudaDeviceReset_v3020");
    db.calls(&[(700, 800, 0, TID, 20, 60, None)]);
    db.usage(&[(900, PID, 0x20_0000, 64, 2, 0, 0)]);
    let read = good(&db.path);
    assert_eq!(totals(&read.events, Kind::Device).2, 64);
    let made_up = &read.events[4..6];
    assert!(made_up.iter().all(|event| event.action == Action::Free && event.time_ns == 1_000_800));
    assert_eq!(made_up.iter().map(|event| event.bytes).sum::<u64>(), 2_097_664);
    let scope = read.seen.iter().find_map(|row| match row {
        Row::Scope(row) if row.action == ScopeAction::Enter => Some((row.scope, row.name)),
        _ => None,
    });
    let (scope, name) = scope.expect("a scope");
    assert_eq!((read.seen_tables.string(name), made_up[0].scope), (CONTEXT_TEARDOWN, scope));
    // One that failed tears nothing down.
    db.sql("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = 46 WHERE nameId = 60");
    assert_eq!(good(&db.path).events.len(), 5);
}

#[test]
fn a_teardown_ends_the_context_its_thread_used_last() {
    let db = minimal("contexts", Generation::B);
    db.string(60, "cuCtxDestroy_v2");
    db.usage(&[(600, PID, 0x77_0000, 4096, 2, 0, 21)]);
    db.calls(&[(590, 610, 0, TID + 1, 21, 2, None), (700, 800, 1, TID + 1, 20, 60, None)]);
    db.sql("UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET contextId = 2 WHERE start = 600");
    let read = good(&db.path);
    let last = read.events.last().expect("events");
    assert_eq!((read.events.len(), last.action, last.address), (6, Action::Free, 0x77_0000));
}

#[test]
fn a_device_is_the_gpu_it_is_on_the_machine() {
    let db = minimal("visible", Generation::B);
    db.sql("INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid) VALUES (3, 0, 19163)");
    assert!(good(&db.path).events.iter().all(|event| event.device == 3));
}

#[test]
fn what_is_missing_is_explained() {
    let db = minimal("missing", Generation::B);
    db.sql("ALTER TABLE CUDA_GPU_MEMORY_USAGE_EVENTS RENAME COLUMN bytes TO size");
    let error = read(&db.path, Mode::Strict).err().expect("no such column");
    assert!(error.contains("CUDA_GPU_MEMORY_USAGE_EVENTS: it has no column bytes"), "{error}");
    db.sql("DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS");
    let error = read(&db.path, Mode::Strict).err().expect("no such table");
    assert!(error.contains("--cuda-memory-usage=true"), "{error}");
    let other = Db::new("other", Generation::A2);
    for table in
        ["StringIds", "EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME", "CUDA_GPU_MEMORY_USAGE_EVENTS"]
    {
        other.sql(&format!("DROP TABLE {table}"));
    }
    let error = read(&other.path, Mode::Strict).err().expect("another database");
    assert!(error.contains("no export of Nsight Systems; its tables: 'CUDA_CALLCHAINS'"), "{error}");
}

#[test]
fn columns_are_found_whatever_their_case_and_nothing_is_written_beside() {
    let db = minimal("case", Generation::A);
    db.sql("ALTER TABLE CUDA_GPU_MEMORY_USAGE_EVENTS RENAME COLUMN memKind TO MEMKIND");
    assert_eq!(good(&db.path).events.len(), 4);
    let name = db.path.file_name().expect("a name").to_string_lossy().into_owned();
    let beside = std::fs::read_dir(db.path.parent().expect("a folder")).expect("a folder");
    let names = beside.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.filter(|other| other.starts_with(&name)).collect::<Vec<_>>(), [name]);
}

#[test]
fn only_a_file_can_be_read_and_a_report_needs_nsys() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("nsys");
    std::fs::create_dir_all(&folder).expect("a folder");
    let report = folder.join("a report.nsys-rep");
    std::fs::write(&report, b"\x01\x02opaque").expect("a file");
    assert_eq!(recognize(&report).ok(), Some(Format::Nsys));
    let error = open(&report, &OpenProps::default()).err().expect("no nsys here").to_string();
    assert!(error.contains("which only nsys can read, and nsys is not installed"), "{error}");
}
