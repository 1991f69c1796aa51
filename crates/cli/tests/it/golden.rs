//! Every command on the golden log: what people see.

use insta::assert_snapshot;

use crate::cli_test::CliTest;

#[test]
fn every_analysis_of_the_golden_log_reads_well() {
    let test = CliTest::new();
    for command in ["stats", "watermark", "usage", "leaks", "lifetimes", "read", "info"] {
        assert_snapshot!(command, test.run(&[command, "golden.csv"]).seen());
    }
}

#[test]
fn the_watermark_answers_in_other_ways_when_asked() {
    let test = CliTest::new();
    let ran = test.run(&[
        "watermark",
        "golden.csv",
        "--by",
        "stream,size",
        "--at",
        "10:00:00.000006",
        "--limit",
        "1",
    ]);
    assert_snapshot!("watermark_at", ran.seen());
}

#[test]
fn devices_of_one_process_are_told_apart_in_its_trace() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "pair.dev0.csv", "pair.dev1.csv", "-q"]).code, 0);
    assert_snapshot!("stats_of_two_devices", test.run(&["stats", "pair.flood"]).seen());
}

#[test]
fn doubts_are_told_under_the_report() {
    let test = CliTest::new();
    assert_snapshot!("stats_with_doubts", test.run(&["stats", "duplicate.csv"]).seen());
    assert_snapshot!("leaks_with_losses", test.run(&["leaks", "truncated.csv"]).seen());
    assert_snapshot!("stats_of_nothing", test.run(&["stats", "empty.csv"]).seen());
    assert_snapshot!("stats_of_nothing_selected", test.run(&["stats", "golden.csv", "--device", "3"]).seen());
}

#[test]
fn events_are_written_as_csv_and_as_lines_of_json() {
    let test = CliTest::new();
    assert_snapshot!("read_csv", test.run(&["read", "golden.csv", "--csv", "--thread", "202"]).seen());
    assert_snapshot!("read_json", test.run(&["read", "golden.csv", "--json", "--limit", "2"]).seen());
}

#[test]
fn usage_is_written_as_csv_exact_or_reduced() {
    let test = CliTest::new();
    let exact = test.run(&["usage", "golden.csv", "--csv", "--exact"]).ok().stdout;
    assert_eq!(
        exact,
        "time_ns,kind,live_bytes\n\
         36000000001000,device,1000\n\
         36000000002000,device,3000\n\
         36000000003000,device,3500\n\
         36000000004000,device,2500\n\
         36000000006000,device,2756\n\
         36000000007000,device,756\n"
    );
    // Few changes need no reduction.
    assert_eq!(test.run(&["usage", "golden.csv", "--csv"]).ok().stdout, exact);
    let chosen =
        test.run(&["usage", "golden.csv", "--csv", "--exact", "--kind", "device,pinned"]).ok().stdout;
    assert_eq!(chosen, exact.replace("device", "device+pinned"));
}
