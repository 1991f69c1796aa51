//! Ranks of a job side by side: tables, pictures and JSON, from a few ranks to thousands.

use floodmark_store::{Losses, Overwrite, Run, TraceWriter};
use floodmark_testkit::ranks::RankJob;

use crate::cli_test::CliTest;

const MIB: u64 = 1 << 20;

/// Writes the trace of a job.
fn write(test: &CliTest, name: &str, job: &RankJob) {
    let run = Run { command: Some("mpiexec -n 4096 solver".to_owned()), ..Run::default() };
    let mut writer = TraceWriter::create(&test.path(name), run, Overwrite::No).unwrap();
    let tables = job.tables();
    for sweep in 0..job.sweeps {
        writer.write_rows(&job.sweep(sweep), &tables).unwrap();
    }
    writer.finish(&tables, &Losses::default()).unwrap();
}

#[test]
fn thousands_of_ranks_are_a_page_of_text() {
    let test = CliTest::new();
    let job = RankJob { ranks: 4096, ranks_per_node: 64, sweeps: 40, highest: 1234 };
    write(&test, "job.flood", &job);
    let mut command = test.command(&["ranks", "job.flood"]);
    let output = command.env("COLUMNS", "80").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let peak = (0..job.sweeps).map(|sweep| job.bytes(1234, sweep)).max().unwrap();
    assert!(
        text.contains("Rank 1234 peaks highest: ") && text.contains("node019, 2.01 times the mean"),
        "{text}"
    );
    assert!(text.contains("4,096 on 64 nodes"), "{text}");
    assert!(text.contains("outliers") && text.contains("1: rank 1234"), "{text}");
    assert!(text.lines().count() < 50, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("ranks_of_4096", text);

    let all = test.run(&["ranks", "job.flood", "--json"]).json();
    let list = all["rank_list"].as_array().unwrap();
    assert_eq!(
        (list.len(), &list[0]["rank"], &list[0]["peak_rss_bytes"]),
        (4096, &1234.into(), &peak.into())
    );
    let mean = list.iter().map(|rank| rank["peak_rss_bytes"].as_u64().unwrap()).sum::<u64>() / 4096;
    assert_eq!(all["imbalance"]["mean_bytes"].as_u64().unwrap() / MIB, mean / MIB);
    let node = &all["nodes"][0];
    assert_eq!(
        (&node["host"], &node["ranks"], &node["highest_rank"]),
        (&"node019".into(), &64.into(), &1234.into())
    );
    // Shared memory counts once on a node.
    let sum = |sweep| (19 * 64..20 * 64).map(|rank| job.bytes(rank, sweep)).sum::<u64>();
    let highest = (0..job.sweeps).map(sum).max().unwrap();
    assert_eq!(node["peak_rss_bytes"], highest);
    assert_eq!(node["peak_pss_bytes"], highest - highest / 10);

    for format in ["svg", "png", "html", "pdf"] {
        let name = format!("ranks.{format}");
        let size = if format == "svg" { "1200x600" } else { "480x320" };
        test.run(&["plot", "job.flood", "--ranks", "-o", &name, "-q", "--size", size]).ok();
        let bytes = std::fs::metadata(test.path(&name)).unwrap().len();
        assert!((1000..4_000_000).contains(&bytes), "{name}: {bytes}");
    }
    let svg = test.read("ranks.svg");
    // The guide shows it; written again with FLOODMARK_WRITE_DOCS=1.
    let shown = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ranks.svg");
    if std::env::var_os("FLOODMARK_WRITE_DOCS").is_some() {
        std::fs::write(&shown, &svg).unwrap();
    }
    assert!(std::fs::read_to_string(shown).is_ok_and(|shown| shown == svg), "docs/ranks.svg is out of date");
    assert!(svg.contains("rank 1234 peaks highest") && svg.contains(">rank 0</text>"), "{svg}");
    let drawn = test.run(&["plot", "job.flood", "--ranks"]).ok().stdout;
    insta::assert_snapshot!("map_of_4096_ranks", drawn);
}

#[test]
fn a_few_ranks_are_all_listed() {
    let test = CliTest::new();
    let job = RankJob { ranks: 4, ranks_per_node: 2, sweeps: 8, highest: 2 };
    write(&test, "job.flood", &job);
    let text = test.run(&["ranks", "job.flood"]).ok().stdout;
    insta::assert_snapshot!("ranks_of_4", text);
}

#[test]
fn a_trace_without_ranks_says_how_to_record_some() {
    let test = CliTest::new();
    test.run(&["run", "-q", "-o", "run.flood", "--", "true"]).ok();
    let refused = test.run(&["ranks", "run.flood"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("contains no ranks") && refused.stderr.contains("mpiexec"),
        "{}",
        refused.stderr
    );
}
