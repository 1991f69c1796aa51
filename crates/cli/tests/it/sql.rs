//! SQL over a trace: the questions of the guide, and queries that want to do harm.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli_test::CliTest;
use crate::parts::job;

fn rows(test: &CliTest, query: &str) -> Value {
    test.run(&["sql", "job.flood", query, "--format", "json"]).ok().json()
}

#[test]
fn questions_of_the_guide_are_answered() {
    let test = CliTest::new();
    job(&test, 3, 300);
    let guide = include_str!("../../../../docs/sql.md");
    let queries: Vec<&str> =
        guide.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(queries.len(), 10);
    for query in queries {
        let ran = test.run(&["sql", "job.flood", query]).ok();
        assert!(ran.stdout.lines().count() > 2, "{query}: {}", ran.stdout);
    }
}

#[test]
fn tables_say_what_the_commands_say() {
    let test = CliTest::new();
    job(&test, 3, 300);
    let stats = test.run(&["stats", "job.flood", "--json"]).ok().json();
    let leaks = test.run(&["leaks", "job.flood", "--json"]).ok().json();
    let first = |query: &str| rows(&test, query)[0].clone();
    let counts = first("select count(*) as n, sum(action = 'failure') as failures from events");
    assert_eq!(counts, json!({"n": stats["events"], "failures": stats["failures"]}));
    let blocks = first(
        "select count(*) as n, sum(ended = 'unseen') as unseen, sum(live) as live, sum(live * bytes) as bytes from blocks",
    );
    assert_eq!(blocks["n"], stats["allocations"]);
    assert_eq!((&blocks["unseen"], &blocks["live"]), (&stats["replaced_blocks"], &stats["live_blocks"]));
    assert_eq!(blocks["bytes"], stats["live_bytes"]);
    assert_eq!(first("select sum(bytes) as b from leaks")["b"], leaks["leaked_bytes"]);
    let peaks = rows(&test, "select process, peak_bytes from peaks order by process");
    for (row, ledger) in peaks.as_array().unwrap().iter().zip(stats["ledgers"].as_array().unwrap()) {
        assert_eq!((&row["process"], &row["peak_bytes"]), (&ledger["process"], &ledger["peak_bytes"]));
    }
    // Conditions that are pushed down leave nothing out.
    let middle = first("select min(time_ns) + (max(time_ns) - min(time_ns)) / 2 as t from events")["t"]
        .as_i64()
        .unwrap();
    for condition in
        ["time_ns >= T", "time_ns > T", "time_ns < T and process = 2", "time_ns = T", "process = 'x'"]
    {
        let condition = condition.replace('T', &middle.to_string());
        let pushed = first(&format!("select count(*) as n from events where {condition}"));
        let plain = condition.replace("time_ns", "+time_ns").replace("process", "+process");
        assert_eq!(pushed, first(&format!("select count(*) as n from events where {plain}")), "{condition}");
    }
    let csv = test.run(&["sql", "job.flood", "select 1 as a, 'x,y' as b", "--format", "csv"]).ok().stdout;
    assert_eq!(csv, "a,b\n1,\"x,y\"\n");
}

#[test]
fn nothing_but_a_select_runs() {
    let test = CliTest::new();
    job(&test, 1, 50);
    for query in [
        "drop view events",
        "create table x(a)",
        "insert into raw_event values (1)",
        "delete from events",
        "attach database '/tmp/x.db' as x",
        "pragma hard_heap_limit = 0",
        "vacuum into '/tmp/x.db'",
        "select load_extension('x')",
        "select 1; select 2",
        "begin",
        "",
        "select nothing from events",
        "select * from missing",
        "select zeroblob(1000000000)",
        "select randomblob(900000000)",
    ] {
        let ran = test.run(&["sql", "job.flood", query]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{query}: {}", ran.seen());
        assert!(ran.stderr.contains("hint"), "{}", ran.stderr);
    }
    assert!(!std::path::Path::new("/tmp/x.db").exists());
}

/// Folders in which queries of this process's children would leave traces.
fn temporary_traces(test: &CliTest) -> usize {
    let names = std::fs::read_dir(test.path("tmp")).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("floodmark-sql")).count()
}

#[test]
fn logs_and_exports_are_queried_as_the_traces_that_they_become() {
    let test = CliTest::new();
    job(&test, 2, 300);
    std::fs::create_dir(test.path("tmp")).unwrap();
    let query = "select action, count(*) as n, sum(bytes) as b, min(time_ns) as t from events group by action order by 1";
    test.run(&["import", "rank1.csv", "-o", "one.flood", "--date", "2026-07-01", "-q"]).ok();
    let of_trace = test.run(&["sql", "one.flood", query]).ok().stdout;
    let mut ask = test.command(&["sql", "rank1.csv", query, "--date", "2026-07-01", "-q"]);
    let of_log = ask.env("TMPDIR", test.path("tmp")).output().unwrap();
    assert_eq!(String::from_utf8(of_log.stdout).unwrap(), of_trace);
    assert_eq!(temporary_traces(&test), 0);
    let export = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/nsys/small_2025.3.sqlite");
    let stats = test.run(&["stats", export, "--json"]).ok().json();
    let counted =
        test.run(&["sql", export, "select count(*) as n from events", "--format", "json"]).ok().json();
    assert_eq!(counted[0]["n"], stats["events"]);
    let ran = test.run(&["sql", "nowhere.csv", "select 1"]);
    assert!(ran.code == 2 && ran.stderr.contains("nowhere.csv"), "{}", ran.stderr);
}

#[test]
fn rows_are_written_as_parquet() {
    let test = CliTest::new();
    job(&test, 2, 300);
    let query = "select site, bytes, lifetime_ns / 2.0 as half, live from blocks order by address";
    test.run(&["sql", "job.flood", query, "-o", "blocks.parquet"]).ok();
    let bytes = std::fs::read(test.path("blocks.parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let piped = test.command(&["sql", "job.flood", query, "--format", "parquet"]).output().unwrap();
    assert_eq!(piped.stdout, bytes);
}

#[test]
fn a_query_without_end_ends_at_ctrl_c() {
    let test = CliTest::new();
    job(&test, 1, 50);
    let endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n";
    let mut child = test.command(&["sql", "job.flood", endless]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    let asked = Instant::now();
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5));
}

#[test]
fn totals_are_those_of_grouping_events() {
    let test = CliTest::new();
    job(&test, 3, 400);
    for keys in [
        "process, thread, stream",
        "action",
        "stream, action, kind, device",
        "thread, resource, name",
        "process",
    ] {
        let of_events = format!("select {keys}, count(*) as events, total(bytes) as bytes from events");
        let of_totals = format!("select {keys}, sum(events) as events, total(bytes) as bytes from totals");
        for rest in ["", "where action = 'alloc'", "where process = 2 and stream <> 0"] {
            let rest = format!("{rest} group by {keys} order by {keys}");
            let expected = rows(&test, &format!("{of_events} {rest}"));
            assert!(!expected.as_array().unwrap().is_empty());
            assert_eq!(rows(&test, &format!("{of_totals} {rest}")), expected, "{keys} {rest}");
        }
    }
    let all = rows(&test, "select count(*) as n, sum(events) as events from totals")[0].clone();
    assert_eq!(all, json!({"n": 1, "events": 1200}));
    assert_eq!(
        rows(&test, "select site, sum(events) from totals group by site").as_array().unwrap().len(),
        1
    );
}

#[test]
fn totals_by_site_are_those_of_blocks() {
    let test = CliTest::new();
    let heap = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/heap/memray_1.20.bin");
    test.run(&["import", "-q", heap, "-o", "job.flood"]).ok();
    let blocks = rows(
        &test,
        "select site, kind, count(*) as events, sum(bytes) as bytes from blocks group by site, kind order by site, kind",
    );
    assert!(blocks.as_array().unwrap().len() > 3, "{blocks}");
    let totals = rows(
        &test,
        "select site, kind, sum(events) as events, sum(bytes) as bytes from totals where action = 'alloc' \
         group by site, kind order by site, kind",
    );
    assert_eq!(totals, blocks);
}
