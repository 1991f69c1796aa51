//! Files whose texts try to act on whoever shows them are shown as text by every command.
//!
//! `fixtures/hostile/make.py` writes the files; the browser's tests use the same.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cli_test::CliTest;

/// A folder with all files of `make.py`, and a trace of its program.
fn made() -> (CliTest, Vec<PathBuf>) {
    let test = CliTest::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hostile/make.py");
    let folder = test.path("hostile");
    assert!(Command::new("python3").arg(script).arg(&folder).status().unwrap().success());
    let inner = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let files = fs::read_dir(inner).unwrap().map(|entry| entry.unwrap().path());
    let (programs, mut files): (Vec<_>, Vec<_>) =
        files.partition(|file| file.extension().is_some_and(|ending| ending == "py"));
    let trace = folder.join("run\u{1b}[31m<b>\u{202e}.flood");
    let ran =
        run(&test, &["run", "--stacks", "--mark", "phase .*", "-o"], &trace, &["--"], Some(&programs[0]));
    assert_eq!(ran.code, 0, "{}", String::from_utf8_lossy(&ran.stderr));
    files.push(trace);
    files.sort();
    assert_eq!(files.len(), 8);
    (test, files)
}

struct Shown {
    code: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Runs the program with a path, and maybe another, among its arguments.
fn run(test: &CliTest, before: &[&str], path: &Path, after: &[&str], last: Option<&Path>) -> Shown {
    let output = test.command(before).arg(path).args(after).args(last).output().unwrap();
    Shown { code: output.status.code().unwrap(), stdout: output.stdout, stderr: output.stderr }
}

/// What of a text acts instead of being shown. `sgr` says whether our own colors may be in it.
fn active(text: &[u8], sgr: Sgr) -> Option<String> {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => return Some(format!("{error}")),
    };
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c != '\n' && is_active(c)) {
        let found = &rest[at..];
        let length = colored(found);
        if sgr == Sgr::No || length == 0 {
            let around = &rest[rest[..at].char_indices().rev().nth(30).map_or(0, |(at, _)| at)..];
            return Some(around.chars().take(60).collect::<String>().escape_debug().to_string());
        }
        rest = &found[length..];
    }
    None
}

fn is_active(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sgr {
    Yes,
    No,
}

/// Bytes of the colors that a text begins with.
fn colored(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let figures = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if rest.as_bytes().get(figures) == Some(&b'm') { figures + 3 } else { 0 }
}

/// The longest pile of marks on one letter.
fn pile(text: &str) -> usize {
    text.split(|c: char| c != '\u{301}').map(|marks| marks.chars().count()).max().unwrap_or(0)
}

/// What is asked of every file: a command, and what follows the file.
const ASKED: [(&[&str], &[&str]); 17] = [
    (&["info"], &[]),
    (&["stats"], &[]),
    (&["watermark"], &[]),
    (&["watermark", "--by", "stack,name,process,resource,site"], &[]),
    (&["usage"], &[]),
    (&["leaks"], &[]),
    (&["lifetimes"], &[]),
    (&["fragmentation"], &[]),
    (&["check"], &["--max-peak", "1", "--max-leak", "0", "--no-losses"]),
    (&["read"], &[]),
    (&["read", "--events"], &[]),
    (&["read", "--samples", "--stdout", "--pstack", "--separate"], &[]),
    (&["read", "--layout", "original", "--stdout", "--pstack"], &[]),
    (&["read", "--csv"], &[]),
    (&["plot"], &[]),
    (&["plot", "--stdout", "--pstack", "--per", "process"], &[]),
    (&["replay", "--simulate", "1", "--repeat", "1", "--resource", "pool"], &[]),
];

#[test]
fn no_text_acts_on_a_terminal() {
    let (test, files) = made();
    let mut seen = 0;
    for file in &files {
        for (before, after) in ASKED {
            for (color, sgr) in [("never", Sgr::No), ("always", Sgr::Yes)] {
                let after = [after, &["--lenient", "--color", color]].concat();
                let shown = run(&test, before, file, &after, None);
                let what = format!("{before:?} {:?} {color}", file.file_name());
                // A file may have nothing to answer with; then a message says so.
                assert!([0, 1, 2].contains(&shown.code), "{what}");
                for text in [&shown.stdout, &shown.stderr] {
                    assert_eq!(active(text, sgr), None, "{what}");
                    assert!(pile(&String::from_utf8_lossy(text)) < 20, "{what}: marks pile up");
                }
                seen += usize::from(shown.stdout.windows(4).any(|bytes| bytes == b"evil"));
            }
        }
    }
    assert!(seen > 40, "hostile text was shown {seen} times only");
}

#[test]
fn json_of_hostile_files_is_json() {
    let (test, files) = made();
    for file in &files {
        for (before, after) in
            ASKED.iter().filter(|(before, _)| before[0] != "plot" && !before.contains(&"--csv"))
        {
            if before.contains(&"--layout") {
                continue;
            }
            let shown = run(&test, before, file, &[*after, &["--lenient", "--json"]].concat(), None);
            assert_eq!(active(&shown.stderr, Sgr::No), None);
            if shown.code == 2 {
                continue;
            }
            let text = String::from_utf8(shown.stdout).unwrap();
            let lines: Vec<&str> = if before[0] == "read" { text.lines().collect() } else { vec![&text] };
            for line in lines {
                let value: Result<Value, _> = serde_json::from_str(line);
                assert!(value.is_ok(), "{before:?} {file:?}: {line}");
                assert_eq!(active(line.as_bytes(), Sgr::No), None, "{before:?} {file:?}");
            }
        }
    }
}

#[test]
fn pictures_and_reports_have_no_element_but_their_own() {
    let (test, files) = made();
    for file in &files {
        for (ending, more) in [("svg", &["--dark"][..]), ("html", &[]), ("pdf", &[]), ("png", &[])] {
            let output = format!("out.{ending}");
            let after = [&["--lenient", "--stdout", "--pstack", "-q", "-o", &output], more].concat();
            let _ = fs::remove_file(test.path(&output));
            let shown = run(&test, &["plot"], file, &after, None);
            assert_eq!(shown.code, 0, "{file:?}: {}", String::from_utf8_lossy(&shown.stderr));
            let bytes = fs::read(test.path(&output)).unwrap();
            match ending {
                "svg" => {
                    let text = String::from_utf8(bytes).unwrap();
                    assert!(!text.contains("<script") && !text.contains("<img"), "{file:?}");
                    assert_eq!(active(text.as_bytes(), Sgr::No), None, "{file:?}");
                    is_xml(&test.path(&output));
                }
                "html" => {
                    let text = String::from_utf8(bytes).unwrap();
                    assert_eq!(
                        (text.matches("<script").count(), text.matches("<img").count()),
                        (2, 0),
                        "{file:?}"
                    );
                }
                "pdf" => assert!(bytes.starts_with(b"%PDF-")),
                _ => assert!(bytes.starts_with(b"\x89PNG")),
            }
        }
        let shown =
            run(&test, &["plot", "--lenient", "-o"], &test.path("\u{1b}[2J\u{202e}.svg"), &[], Some(file));
        assert_eq!(active(&[shown.stdout, shown.stderr].concat(), Sgr::No), None, "{file:?}");
        let shown = run(&test, &["report", "-o", "-"], file, &["--lenient"], None);
        assert_eq!(shown.code, 0, "{file:?}: {}", String::from_utf8_lossy(&shown.stderr));
        let html = String::from_utf8(shown.stdout).unwrap();
        let columns = html.matches("<script type=\"application/octet-stream\"").count();
        assert_eq!(html.matches("<script").count(), columns + 2, "{file:?}");
        assert_eq!(html.matches("<img").count(), 0, "{file:?}");
        let page = html.split_once("<noscript>").unwrap().1;
        assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{file:?}");
    }
}

/// Asserts that a parser that is not ours takes a document.
fn is_xml(path: &Path) {
    let code = "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])";
    let output = Command::new("python3").args(["-c", code]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_is_imported_and_exported_again_stays_harmless() {
    let (test, files) = made();
    for file in &files {
        let trace = test.path("kept\u{1b}[31m\u{202e}.flood");
        let _ = fs::remove_dir_all(&trace);
        let shown = run(&test, &["import", "--lenient", "-o"], &trace, &[], Some(file));
        assert_eq!(active(&[shown.stdout, shown.stderr].concat(), Sgr::No), None, "{file:?}");
        if shown.code != 0 {
            continue;
        }
        for before in [&["info"][..], &["watermark"], &["read"], &["export", "-o", "-"], &["repair"]] {
            let shown = run(&test, before, &trace, &[], None);
            assert_eq!(active(&[shown.stdout, shown.stderr].concat(), Sgr::No), None, "{before:?} {file:?}");
        }
    }
    let export = files.iter().find(|file| file.extension().is_some_and(|ending| ending == "sqlite")).unwrap();
    let prefix = test.path("split\u{1b}[31m");
    let shown = run(&test, &["nsys", "split", "-o"], &prefix, &[], Some(export));
    assert_eq!(active(&[shown.stdout, shown.stderr].concat(), Sgr::No), None);
    assert_eq!(shown.code, 0);
    for analysis in ["watermark", "usage", "leakage"] {
        let before = ["nsys", "process", "-a", analysis, "-o", "rows.txt", "-i"];
        let shown = run(&test, &before, &prefix, &[], None);
        assert_eq!(active(&[shown.stdout, shown.stderr].concat(), Sgr::No), None, "{analysis}");
    }
}

#[test]
fn a_name_that_is_no_text_is_taken_and_shown() {
    let (test, files) = made();
    let csv = files.iter().find(|file| file.extension().is_some_and(|ending| ending == "csv")).unwrap();
    let mut name = test.path("").as_os_str().as_bytes().to_vec();
    name.extend_from_slice(b"\xff\x1b[2J\x9b.csv");
    let path = PathBuf::from(OsString::from_vec(name));
    fs::copy(csv, &path).unwrap();
    for before in [&["info"][..], &["stats"], &["plot"], &["report", "-o", "-"]] {
        let shown = run(&test, before, &path, &[], None);
        assert_eq!(shown.code, 0, "{before:?}");
        let html = before[0] == "report";
        let text = if html { shown.stderr } else { [shown.stdout, shown.stderr].concat() };
        assert_eq!(active(&text, Sgr::No), None, "{before:?}");
    }
}
