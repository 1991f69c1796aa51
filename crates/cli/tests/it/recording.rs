//! A trace that is being recorded while it is looked at.

use std::process::Stdio;

use floodmark_event::{Kind, Metric, StackId, Subject, SubjectEnd, SubjectId, SubjectKind};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder, When};
use serde_json::json;

use crate::cli_test::CliTest;

#[test]
fn a_growing_trace_is_described_analyzed_and_followed_to_its_end() {
    let test = CliTest::new();
    let recorder = Recorder::start_global(RecordProps::new(test.path("live.flood"))).unwrap();
    let domain = AllocDomain { device: 0, kind: Kind::Device, ..AllocDomain::default() };
    for at in 1..=3 {
        tail::alloc(at << 12, 100 * at, &domain, StackId(0));
    }
    let mut follow = test.command(&["read", "live.flood", "--follow", "--csv"]);
    let follow = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    let info = test.run(&["info", "live.flood", "--json"]).json();
    assert_eq!((&info["live"], &info["events"]), (&json!(true), &json!(3)));
    let stats = test.run(&["stats", "live.flood", "--json"]).json();
    assert_eq!((&stats["live_blocks"], &stats["peak_bytes"]), (&json!(3), &json!(600)));
    let text = test.run(&["info", "live.flood"]).ok().stdout;
    assert!(text.contains("trace, format 3, being recorded, 3 events"), "{text}");

    tail::free(2 << 12, 200, &domain);
    recorder.stop();
    let followed = follow.wait_with_output().unwrap();
    assert_eq!((followed.status.code(), followed.stderr.as_slice()), (Some(0), &b""[..]));
    let rows = String::from_utf8(followed.stdout).unwrap();
    let actions: Vec<&str> = rows.lines().skip(1).filter_map(|row| row.split(',').nth(3)).collect();
    assert_eq!(actions, ["alloc", "alloc", "alloc", "free"]);
    let leaks = test.run(&["leaks", "live.flood", "--json"]).json();
    assert_eq!((&leaks["leaked_bytes"], &leaks["leaked_blocks"]), (&json!(400), &json!(2)));
    assert_eq!(test.run(&["info", "live.flood", "--json"]).json()["live"], json!(false));
}

#[test]
fn read_and_plot_find_the_same_peak_of_processes_that_come_and_go() {
    let test = CliTest::new();
    let recorder = Recorder::start_global(RecordProps::new(test.path("turns.flood"))).unwrap();
    for turn in 1..=4 {
        let process = tail::subject(&Subject {
            kind: SubjectKind::Process,
            number: 100 + turn,
            start_ns: turn as i64,
            parent: SubjectId(0),
            name: "worker".into(),
            detail: String::new(),
        });
        tail::sample(process, Metric::RssAnon, 60 << 20, When::Now);
        tail::subject_ended(process, SubjectEnd { wait_status: Some(0), peak_rss_bytes: None }, When::Now);
    }
    recorder.stop();
    let read = test.run(&["read", "turns.flood", "--metric", "rss_anon"]).ok().stdout;
    let totals: Vec<&str> = read.lines().filter(|line| line.contains(" MiB")).collect();
    assert!(totals.len() >= 4 && totals.iter().all(|line| line.contains("60.0 MiB")), "{read}");
    let plot = test.run(&["plot", "turns.flood", "--metric", "rss_anon"]).ok().stdout;
    assert!(plot.contains("rss_anon of all processes: peak 60.0 MiB"), "{plot}");
}
