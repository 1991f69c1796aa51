//! The tables and analyses of the scripts that came first, beside what those scripts do.
//!
//! The oracle of the tables is SQL that says what the scripts' queries say; the oracle of the analyses is
//! their algorithm in its plainest form, defects included. Where a file has what triggers no defect both
//! have to agree to the byte.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use floodmark_convert::Mode;
use floodmark_convert::nsys::Class;
use floodmark_convert::nsys::split::{HEADER, split, table_path};
use floodmark_inspect::nsys::{Analysis, Header, Processed, process};

use crate::nsys_db::{Db, Generation, PID, TID, minimal};

/// Rows of one of the scripts' queries.
fn original_table(db: &Db, class: Class) -> String {
    let matches = "c.correlationId = e.correlationId AND c.globalTid >> 24 = e.globalPid >> 24
        AND e.start BETWEEN c.start AND c.end";
    let (join, stack) = match class {
        Class::Valid => (
            format!("JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON {matches} AND c.eventClass = 67"),
            "(SELECT group_concat(text, ' -> ') FROM (SELECT s.value || '(' || m.value || ')' AS text
                FROM CUDA_CALLCHAINS f JOIN StringIds s ON s.id = f.symbol JOIN StringIds m ON m.id = f.module
                WHERE f.id = c.callchainId ORDER BY f.stackDepth))"
                .to_owned(),
        ),
        Class::Driver => (
            format!("JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON {matches} AND c.eventClass = 1"),
            "(SELECT value FROM StringIds WHERE id = c.nameId)".to_owned(),
        ),
        Class::Invalid => (
            format!("LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON {matches} AND c.eventClass IN (1, 67)"),
            "'STACK_NOT_FOUND'".to_owned(),
        ),
    };
    let only = if class == Class::Invalid { "WHERE c.start IS NULL" } else { "" };
    let sql = format!(
        "SELECT e.globalPid || char(9) || e.address || char(9) || e.start || char(9) || e.bytes || char(9) || k.name
           || char(9) || o.name || char(9) || coalesce(e.name, '') || char(9) || {stack}
         FROM CUDA_GPU_MEMORY_USAGE_EVENTS e JOIN ENUM_CUDA_MEM_KIND k ON k.id = e.memKind
         JOIN ENUM_CUDA_DEV_MEM_EVENT_OPER o ON o.id = e.memoryOperationType {join} {only} ORDER BY e.start"
    );
    let mut statement = db.connection().prepare(&sql).expect("the query");
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    let mut text = format!("{HEADER}\n");
    for row in rows {
        let _ = writeln!(text, "{}", row.expect("a row"));
    }
    text
}

/// What the script does with the three tables; none where it would stop with an assertion.
fn original_analysis(prefix: &Path, analysis: Analysis) -> Option<String> {
    let mut rows: Vec<(i64, usize, Vec<String>)> = Vec::new();
    for (at, class) in Class::ALL.into_iter().enumerate() {
        let text = fs::read_to_string(table_path(prefix, class)).expect("a table");
        for line in text.lines().skip(1) {
            let fields: Vec<String> = line.trim().split('\t').map(str::to_owned).collect();
            if fields.len() != 8 {
                return None;
            }
            rows.push((fields[2].parse().ok()?, at, fields));
        }
    }
    rows.sort_by_key(|(time, at, _)| (*time, *at));
    rows.retain(|(_, _, fields)| !fields[4].ends_with("_PINNED") && !fields[4].ends_with("_PAGEABLE"));
    let first = rows.first().map_or(0, |row| row.0);
    let mut totals = [0_i64; 3];
    let mut live: Vec<(String, usize, Vec<String>)> = Vec::new();
    let (mut peak, mut at_peak, mut usage) = (0, Vec::new(), String::new());
    let mut latest = None;
    for (time, at, fields) in rows {
        if latest.is_some_and(|latest| latest != time) {
            let [valid, invalid, driver] = totals;
            let sum: i64 = totals.iter().sum();
            let _ = writeln!(usage, "{}\t{sum}\t{valid}\t{invalid}\t{driver}", latest.unwrap_or(0) - first);
        }
        latest = Some(time);
        let key = format!("{}_{}_{}", fields[0], fields[1], fields[4]);
        let bytes: i64 = fields[3].parse().ok()?;
        let place = live.iter().position(|(known, ..)| *known == key);
        if fields[5].ends_with("DEALLOCATION") {
            // To the class of the free, whatever that of the allocation.
            totals[at] -= bytes;
            if analysis != Analysis::Usage {
                let (_, _, known) = live.remove(place?);
                if known[3] != fields[3] {
                    return None;
                }
            }
        } else {
            if analysis != Analysis::Usage && place.is_some() {
                return None;
            }
            totals[at] += bytes;
            live.push((key, at, fields));
            if totals.iter().sum::<i64>() > peak {
                peak = totals.iter().sum();
                at_peak.clone_from(&live);
            }
        }
    }
    let rows = match analysis {
        Analysis::Usage => {
            return Some(format!("time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n{usage}"));
        }
        Analysis::Watermark => at_peak,
        Analysis::Leakage => live,
    };
    let mut text =
        "address\tstart_time\tbytes\tmemkind\tmem_op_type\tvar_name\ttrace_type\tstack\n".to_owned();
    for (_, at, fields) in rows {
        let _ = writeln!(text, "{}\t{at}\t{}", fields[1..7].join("\t"), fields[7]);
    }
    Some(text)
}

/// An export in which every free is of the class of its allocation, and its last time repeats nothing.
fn harmless(name: &str) -> Db {
    let db = minimal(name, Generation::A);
    db.sql("DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS; DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME");
    let mut random = 1_u64;
    let mut live: Vec<(i64, i64, i64)> = Vec::new();
    for at in 1..400_i64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let choice = (random >> 33) as i64;
        let (time, correlation) = (at * 10, 1000 + at);
        let is_free = live.len() > 20 || (choice % 3 == 0 && !live.is_empty());
        let (address, bytes, class) = if is_free {
            live.swap_remove(choice as usize % live.len())
        } else {
            let block = (0x1000 * (at + 1), 256 * (choice % 999 + 1), [67, 1, 0][choice as usize / 3 % 3]);
            live.push(block);
            block
        };
        let (call, chain) = (if class == 1 { 3 } else { 1 }, (class == 67).then_some(5));
        db.calls(&[(time - 2, time + 2, class, TID, correlation, call, chain)]);
        db.usage(&[(time, PID, address, bytes, 2, i64::from(is_free), correlation)]);
    }
    db
}

fn prefix_of(db: &Db) -> PathBuf {
    db.path.with_extension("out")
}

fn ours(prefix: &Path, analysis: Analysis) -> (String, Processed) {
    let output = prefix.with_extension(format!("{analysis:?}.txt"));
    let found = process(prefix, &output, analysis, Header::Yes).expect("good tables");
    (fs::read_to_string(&output).expect("the output"), found)
}

const ANALYSES: [Analysis; 3] = [Analysis::Watermark, Analysis::Usage, Analysis::Leakage];

#[test]
fn tables_and_analyses_agree_with_the_scripts_to_the_byte() {
    let db = harmless("harmless");
    let prefix = prefix_of(&db);
    let done = split(&db.path, &prefix, Mode::Strict).expect("a good export");
    assert!(done.files.iter().all(|(_, rows)| *rows > 20), "{done:?}");
    for class in Class::ALL {
        let text = fs::read_to_string(table_path(&prefix, class)).expect("a table");
        assert_eq!(text, original_table(&db, class), "{class:?}");
    }
    for analysis in ANALYSES {
        let (text, _) = ours(&prefix, analysis);
        let original = original_analysis(&prefix, analysis).expect("the script gets through");
        // The script never writes its last row of usage.
        let last = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
        let comparable = if analysis == Analysis::Usage { &text[..last] } else { &text };
        assert_eq!(comparable, original, "{analysis:?}");
    }
}

#[test]
fn the_smallest_export_is_charged_to_where_it_was_allocated() {
    let db = minimal("charged", Generation::B);
    let prefix = prefix_of(&db);
    split(&db.path, &prefix, Mode::Strict).expect("a good export");
    let (usage, found) = ours(&prefix, Analysis::Usage);
    assert_eq!(
        usage.lines().skip(1).collect::<Vec<_>>(),
        [
            "0\t1048576\t1048576\t0\t0",
            "155\t3145728\t1048576\t0\t2097152",
            "255\t3146240\t1048576\t512\t2097152",
            "360\t2097664\t0\t512\t2097152"
        ]
    );
    assert_eq!(found.totals, [0, 512, 2 << 20]);
    // The script charges the free, and one class becomes negative.
    let original = original_analysis(&prefix, Analysis::Usage).expect("it gets through");
    assert_eq!(original.lines().count(), 4, "and its last row is missing");
    let (peak, found) = ours(&prefix, Analysis::Watermark);
    assert_eq!((found.totals, found.peak_time_ns, found.rows), ([1 << 20, 512, 2 << 20], Some(405), 3));
    assert_eq!(
        peak.lines().nth(1),
        Some(
            "4096\t150\t1048576\tCUDA_MEMOPR_MEMORY_KIND_DEVICE\tCUDA_DEV_MEM_EVENT_OPR_ALLOCATION\t\t0\t\
             cudaMalloc(/lib/libcudart.so.12) -> load(int)(/opt/app) -> main(/opt/app)"
        )
    );
    let (_, found) = ours(&prefix, Analysis::Leakage);
    assert_eq!((found.rows, found.totals), (2, [0, 512, 2 << 20]));
}

#[test]
fn what_stops_the_scripts_is_counted_here() {
    let db = minimal("defects", Generation::B);
    // Two calls for one event, a chain that is missing, a free of nothing, an address that is reused
    // without a free, another size, kinds of either side, and one nobody knows.
    db.calls(&[(120, 180, 1, TID, 10, 3, None), (600, 620, 67, TID, 14, 1, Some(99))]);
    db.usage(&[
        (610, PID, 0x9000, 64, 2, 0, 14),
        (620, PID, 0xdead, 64, 2, 1, 0),
        (630, PID, 0x9000, 32, 2, 0, 0),
        (640, PID, 0x9000, 16, 2, 1, 0),
        (650, PID, 0xa000, 8, 4, 0, 0),
        (660, PID, 0xb000, 8, 1, 0, 0),
        (670, PID, 0xc000, 8, 9, 0, 0),
    ]);
    let prefix = prefix_of(&db);
    let done = split(&db.path, &prefix, Mode::Strict).expect("a good export");
    let rows: HashMap<_, _> = Class::ALL.into_iter().zip(done.files.iter().map(|(_, rows)| *rows)).collect();
    assert_eq!((rows[&Class::Valid], rows[&Class::Driver], rows[&Class::Invalid]), (2, 1, 8));
    assert_eq!(original_analysis(&prefix, Analysis::Watermark), None, "the script stops");
    let valid = fs::read_to_string(table_path(&prefix, Class::Valid)).expect("a table");
    assert!(valid.lines().nth(2).is_some_and(|line| line.ends_with("\tcudaMalloc(CUDA runtime)")), "{valid}");
    let (_, found) = ours(&prefix, Analysis::Leakage);
    assert_eq!(
        (found.unmatched_frees, found.replaced, found.size_mismatches, found.uncertain),
        (1, 1, 1, 2),
        "pinned memory is passed over"
    );
    assert_eq!(found.totals, [0, 512 + 16, 2 << 20]);
}

#[test]
fn at_equal_times_a_live_block_is_freed_before_its_address_is_reused() {
    let db = minimal("tie", Generation::A);
    db.sql("DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS; DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME");
    // The free is in the second table, the next allocation in the first.
    db.calls(&[
        (40, 60, 67, TID, 1, 1, Some(5)),
        (90, 110, 0, TID, 2, 4, None),
        (90, 110, 67, TID, 3, 1, Some(5)),
    ]);
    db.usage(&[
        (50, PID, 0x1000, 100, 2, 0, 1),
        (100, PID, 0x1000, 100, 2, 1, 2),
        (100, PID, 0x1000, 300, 2, 0, 3),
    ]);
    let prefix = prefix_of(&db);
    split(&db.path, &prefix, Mode::Strict).expect("a good export");
    let (_, found) = ours(&prefix, Analysis::Leakage);
    assert_eq!((found.totals, found.replaced, found.unmatched_frees), ([300, 0, 0], 0, 0));
    assert_eq!((found.rows, found.size_mismatches), (1, 0));
}

#[test]
fn tables_that_are_damaged_are_named_with_their_lines() {
    let db = minimal("tables", Generation::A);
    let prefix = prefix_of(&db);
    split(&db.path, &prefix, Mode::Strict).expect("a good export");
    let path = table_path(&prefix, Class::Driver);
    let good = fs::read_to_string(&path).expect("a table");
    let output = prefix.with_extension("txt");
    for (text, message) in [
        (format!("{good}1\t2\n"), "line 3: the line has 2 fields, not 8"),
        (good.replace("\t305\t", "\tsoon\t"), "line 2: start_time is 'soon', not a whole number"),
        (
            format!("{good}{}", good.lines().nth(1).unwrap().replace("\t305\t", "\t3\t")),
            "line 3: it is earlier",
        ),
    ] {
        fs::write(&path, &text).expect("a table");
        let error = process(&prefix, &output, Analysis::Usage, Header::No).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    }
    fs::write(&path, good).expect("a table");
    process(&prefix, &output, Analysis::Usage, Header::No).expect("good tables");
    assert!(fs::read_to_string(&output).expect("the output").starts_with("0\t1048576\t"));
    fs::remove_file(path).expect("a table");
    assert!(process(&prefix, &output, Analysis::Usage, Header::No).is_err());
}
