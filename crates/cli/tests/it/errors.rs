//! What goes wrong is said once, with a remedy, and ends in 2.

use std::fs;

use insta::assert_snapshot;

use crate::cli_test::CliTest;

#[test]
fn bad_inputs_are_named_with_a_remedy() {
    let test = CliTest::new();
    fs::create_dir(test.path("folder")).unwrap();
    test.write("binary", [0x7f, b'E', b'L', b'F', 0, 1, 2]);
    test.write("letter.txt", "Dear Sir or Madam\n");
    test.write("nothing", "");
    let mut seen = String::new();
    for input in ["missing.csv", "folder", "binary", "letter.txt", "nothing", "malformed.csv"] {
        let ran = test.run(&["stats", input]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{input}");
        assert!(ran.stderr.contains("hint: "), "{input}");
        assert!(!ran.stderr.lines().any(|line| line.is_empty() || line.ends_with('.')), "{}", ran.stderr);
        seen += &ran.seen();
    }
    seen += &test.run_with_input(&["stats", "-"], b"hello\n").seen();
    assert_snapshot!("bad_inputs", seen);
}

#[test]
fn what_cannot_be_typed_ends_in_2() {
    let test = CliTest::new();
    for args in [
        &["stats"][..],
        &["stats", "golden.csv", "--kind", "cardboard"],
        &["stats", "golden.csv", "--from", "noon"],
        &["stats", "golden.csv", "--device", "-1"],
        &["watermark", "golden.csv", "--by", "weather"],
        &["usage", "golden.csv", "--points", "3"],
        &["usage", "golden.csv", "--csv", "--json"],
        &["usage", "golden.csv", "empty.csv", "--csv"],
        &["check", "golden.csv", "--max-peak", "much"],
        &["check", "golden.csv"],
        &["read", "golden.csv", "--follow"],
        &["import", "-"],
        &["dance"],
    ] {
        let ran = test.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
}

#[test]
fn whoever_stops_reading_gets_no_complaint() {
    use std::io::Read as _;
    use std::process::Stdio;

    let test = CliTest::new();
    let row = |i: u32| format!("7,10:00:00.{i:06},allocate,{:#x},64,0\n", 0x1000 * u64::from(i + 1));
    let rows: String = (0..20_000).map(row).collect();
    test.write("long.csv", format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}"));
    for args in [
        &["read", "long.csv"][..],
        &["read", "long.csv", "--json"],
        &["usage", "long.csv", "--csv", "--exact"],
        &["leaks", "long.csv", "--json"],
        &["export", "long.csv", "-o", "-"],
    ] {
        let mut command = test.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut first).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
}
