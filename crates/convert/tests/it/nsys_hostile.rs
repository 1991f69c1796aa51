//! Exports that somebody or something has damaged, or that were never meant well.

use std::fs;
use std::path::{Path, PathBuf};

use floodmark_convert::Mode;
use proptest::prelude::*;

use crate::nsys_db::{Generation, PID, good, minimal, read};
use crate::sample_logs::fixture;

/// Writes bytes as an export, reads it both ways, and removes it.
fn try_bytes(name: &str, bytes: &[u8]) -> [Result<usize, String>; 2] {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nsys");
    fs::create_dir_all(&folder).expect("a folder");
    let path: PathBuf = folder.join(format!("{name}-{}.sqlite", std::process::id()));
    fs::write(&path, bytes).expect("a file");
    let results = [Mode::Strict, Mode::Lenient].map(|mode| read(&path, mode).map(|read| read.events.len()));
    fs::remove_file(path).expect("the file");
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(error.chars().all(|c| !c.is_control()), "{error:?}");
    }
    results
}

#[test]
fn an_export_cut_anywhere_is_an_error_or_fewer_events() {
    let bytes = fs::read(fixture("nsys/small_2025.3.sqlite")).expect("the fixture");
    for cut in (16..bytes.len()).step_by(bytes.len() / 60) {
        let [strict, lenient] = try_bytes("cut", &bytes[..cut]);
        assert!(strict.as_ref().map_or(0, |events| *events) <= 22, "cut at {cut}");
        assert!(strict.is_err() || lenient.is_ok(), "cut at {cut}: {lenient:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn flipped_bytes_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..40),
        near in any::<prop::sample::Index>(),
    ) {
        let mut bytes = fs::read(fixture("nsys/small_2025.3.sqlite")).expect("the fixture");
        // Half of them close together, so that single pages are damaged badly.
        let page = near.index(bytes.len() / 4096) * 4096;
        for (at, (index, flip)) in flips.iter().enumerate() {
            let place = if at % 2 == 0 { index.index(bytes.len()) } else { page + index.index(4096) };
            let place = place.min(bytes.len() - 1);
            if place >= 16 {
                bytes[place] ^= flip;
            }
        }
        let _ = try_bytes("flip", &bytes);
    }
}

#[test]
fn every_seed_of_the_fuzzer_is_read_without_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/nsys");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the seeds") {
        let _ = try_bytes("seed", &fs::read(entry.expect("an entry").path()).expect("a seed"));
        count += 1;
    }
    assert!(count > 3);
}

#[test]
fn values_of_the_wrong_type_are_named_or_counted() {
    for (sql, message) in [
        ("UPDATE t SET bytes = 'many' WHERE start = 305", "row 2: bytes is 'many', not a whole number"),
        (
            "UPDATE t SET start = x'00ff' WHERE start = 405",
            "row 3: start is something else, not a whole number",
        ),
        (
            "UPDATE t SET address = 1.5 WHERE start = 405",
            "row 3: address is something else, not a whole number",
        ),
        (
            "UPDATE t SET bytes = -9223372036854775808 WHERE start = 150",
            "row 1: bytes is -9223372036854775808, more",
        ),
    ] {
        let db = minimal("types", Generation::A);
        db.sql(&sql.replace(" t ", " CUDA_GPU_MEMORY_USAGE_EVENTS "));
        let error = read(&db.path, Mode::Strict).err().expect(message);
        assert!(error.contains(message), "{error}");
        let read = read(&db.path, Mode::Lenient).expect("the others");
        assert_eq!((read.events.len(), read.gaps()), (3, vec!["malformed rows skipped"]), "{sql}");
    }
}

#[test]
fn high_addresses_are_no_negative_ones() {
    let db = minimal("high", Generation::A);
    db.usage(&[(600, PID, -4096, 64, 2, 0, 0)]);
    assert_eq!(good(&db.path).events[4].address, 0xffff_ffff_ffff_f000);
}

#[test]
fn views_and_computed_columns_are_no_tables() {
    let db = minimal("views", Generation::B);
    db.sql(
        "DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS;
         CREATE VIEW CUDA_GPU_MEMORY_USAGE_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n)
           SELECT start, 1 AS globalPid, 1 AS address, 1 AS bytes, 2 AS memKind, 0 AS memoryOperationType FROM n;",
    );
    let error = read(&db.path, Mode::Strict).err().expect("a view");
    assert!(error.contains("the table CUDA_GPU_MEMORY_USAGE_EVENTS is missing"), "{error}");
    let db = minimal("computed", Generation::B);
    db.sql(
        "DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS;
         CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (x, start AS (length(hex(zeroblob(1000000 * x)))), globalPid, address,
           bytes, memKind, memoryOperationType);
         INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (x, globalPid) VALUES (1, 1);",
    );
    let error = read(&db.path, Mode::Strict).err().expect("a computed column");
    assert!(error.contains("it has no column start"), "{error}");
}

#[test]
fn a_table_that_leads_back_to_itself_ends() {
    let db = minimal("cycle", Generation::A);
    // Enough rows for a second level of pages.
    db.sql(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
         INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
           memoryOperationType) SELECT 1000 + i, {PID}, 0, 1, i * 4096, 0, 64, 2, 0 FROM n"
    ));
    let root: i64 = db
        .connection()
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'CUDA_GPU_MEMORY_USAGE_EVENTS'",
            [],
            |row| row.get(0),
        )
        .expect("a root");
    let mut bytes = fs::read(&db.path).expect("the file");
    let page = (root as usize - 1) * 4096;
    assert_eq!(bytes[page], 5, "an inner page");
    let cells = usize::from(u16::from_be_bytes([bytes[page + 3], bytes[page + 4]]));
    // Every child is the page itself.
    for cell in 0..cells {
        let at = page + 12 + cell * 2;
        let place = page + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        bytes[place..place + 4].copy_from_slice(&(root as u32).to_be_bytes());
    }
    let [strict, _] = try_bytes("cycle2", &bytes);
    let error = strict.expect_err("it has no end");
    assert!(error.contains("CUDA_GPU_MEMORY_USAGE_EVENTS"), "{error}");
    // Every child is one and the same leaf: more rows than the file has room for, or just that leaf often.
    let leaf = bytes[page + 8..page + 12].to_vec();
    for cell in 0..cells {
        let at = page + 12 + cell * 2;
        let place = page + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        bytes[place..place + 4].copy_from_slice(&leaf);
    }
    let [_, lenient] = try_bytes("cycle3", &bytes);
    assert!(lenient.is_ok_and(|events| events < bytes.len()), "bounded");
}

#[test]
fn ranges_that_never_end_or_cross_do_no_harm() {
    let db = minimal("ranges", Generation::B);
    let tid = crate::nsys_db::TID;
    db.sql(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid)
           SELECT i, CASE WHEN i % 3 THEN 30000 + i END, 59 + i % 2, 'range ' || i % 7, {tid} FROM n;
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (9, 3, 59, 'backwards', {tid}),
           (-9223372036854775808, 9223372036854775807, 59, 'for ever', {tid});"
    ));
    let read = good(&db.path);
    assert_eq!(read.events.len(), 4);
    assert!(read.events.iter().all(|event| event.scope != 0));
    assert!(read.seen.len() > 30_000);
}
