//! Damaged files: clear errors, and what repair makes of them.

use std::fs;

use floodmark_event::Event;
use floodmark_store::{Error, ScanProps, Source as _, Trace, repair};
use floodmark_testkit::TempDir;

use crate::traces::{event, read, tables, write};

#[test]
fn a_damaged_part_is_named_and_repair_keeps_the_rest() {
    let folder = TempDir::new("repair");
    let trace = folder.join("a.flood");
    let events: Vec<Event> = (0..5_000).map(event).collect();
    write(&trace, &[events[..2_000].to_vec(), events[2_000..].to_vec()], &tables());
    let part = trace.join("event/part-000001.parquet");
    let bytes = fs::read(&part).expect("reads");
    fs::write(&part, &bytes[..bytes.len() / 2]).expect("writes");
    let scanned = Trace::open(&trace).expect("opens").scan(&ScanProps::default());
    let error = scanned.and_then(|mut scan| scan.next(&mut floodmark_event::EventBatch::new()));
    let error = error.expect_err("is damaged");
    assert!(matches!(&error, Error::Corrupt { path, .. } if *path == part), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("repair")));
    let report = repair(&trace).expect("repairs");
    assert_eq!((report.events, report.lost_events, report.set_aside.len()), (3_000, 2_000, 1));
    assert_eq!(read(&trace, &ScanProps::default()).len(), 3_000);
    let losses = Trace::open(&trace).expect("opens").manifest().all_losses();
    assert_eq!(losses.gaps[0].count, 2_000);
    assert!(trace.join("event/part-000001.parquet.damaged").exists(), "set aside, not deleted");
}

#[test]
fn a_damaged_manifest_is_made_anew_from_the_parts() {
    let folder = TempDir::new("manifest");
    let trace = folder.join("a.flood");
    write(&trace, &[(0..100).map(event).collect()], &tables());
    let before = read(&trace, &ScanProps::default());
    fs::write(trace.join("manifest.json"), "{\"format\": \"floodmark-trace\", \"vers").expect("writes");
    let error = Trace::open(&trace).expect_err("is damaged");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    let report = repair(&trace).expect("repairs");
    assert!(report.manifest_rebuilt);
    assert_eq!(report.events, 100);
    assert_eq!(read(&trace, &ScanProps::default()), before);
}

#[test]
fn a_missing_manifest_costs_no_parts() {
    let folder = TempDir::new("no-manifest");
    let trace = folder.join("a.flood");
    write(&trace, &[(0..100).map(event).collect()], &tables());
    fs::remove_file(trace.join("manifest.json")).expect("removes");
    let error = Trace::open(&trace).expect_err("is incomplete");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    // Even with something in the tail that wants to be sealed.
    fs::write(trace.join("segments/other-1-1-1.0.0.seg"), "").expect("writes");
    assert!(Trace::open(&trace).is_err());
    assert_eq!(repair(&trace).expect("repairs").events, 100);
}

#[test]
fn a_link_that_leads_elsewhere_costs_nobody_a_file() {
    let folder = TempDir::new("link");
    let trace = folder.join("a.flood");
    let precious = folder.join("precious");
    fs::write(&precious, "the only copy").expect("writes");
    fs::create_dir_all(trace.join("segments")).expect("creates");
    for stem in ["x-1-1-1", "floodmark-1-1-1"] {
        std::os::unix::fs::symlink(&precious, trace.join(format!("segments/{stem}.ring"))).expect("links");
        fs::write(trace.join(format!("segments/{stem}.0.0.seg")), "").expect("writes");
    }
    let _ = Trace::open(&trace).and_then(|trace| trace.scan(&ScanProps::default()));
    let _ = repair(&trace);
    assert_eq!(fs::read_to_string(&precious).expect("reads"), "the only copy");
}

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    let folder = TempDir::new("newer");
    let trace = folder.join("a.flood");
    write(&trace, &[vec![event(1)]], &tables());
    let path = trace.join("manifest.json");
    let text = fs::read_to_string(&path).expect("reads").replace("\"version\": 3", "\"version\": 7");
    fs::write(&path, text).expect("writes");
    let error = Trace::open(&trace).expect_err("is newer");
    assert!(error.to_string().contains('7') && error.to_string().contains("up to 3"), "{error}");
    assert!(repair(&trace).is_err(), "repair does not touch what it does not know");
}

#[test]
fn parts_a_crash_left_unlisted_do_not_count() {
    let folder = TempDir::new("unlisted");
    let trace = folder.join("a.flood");
    write(&trace, &[vec![event(1), event(2)]], &tables());
    fs::copy(trace.join("event/part-000001.parquet"), trace.join("event/part-000002.parquet"))
        .expect("copies");
    fs::write(trace.join("event/part-000003.parquet.tmp"), "half").expect("writes");
    assert_eq!(read(&trace, &ScanProps::default()).len(), 2);
}
