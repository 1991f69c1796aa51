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
use crate::pty::Pty;

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
const ASKED: [(&[&str], &[&str]); 24] = [
    (&["info"], &[]),
    (&["stats"], &[]),
    (&["watermark"], &[]),
    (&["watermark", "--by", "stack,name,process,resource,site"], &[]),
    (&["usage"], &[]),
    (&["leaks"], &[]),
    (&["lifetimes"], &[]),
    (&["churn"], &[]),
    (&["ledger"], &[]),
    (&["ledger", "--device", "0"], &[]),
    (&["fragmentation"], &[]),
    (&["oom"], &[]),
    (&["check"], &["--max-peak", "1", "--max-leak", "0", "--no-losses"]),
    (&["read"], &[]),
    (&["read", "--events"], &[]),
    (&["read", "--samples", "--stdout", "--pstack", "--separate"], &[]),
    (&["read", "--layout", "original", "--stdout", "--pstack"], &[]),
    (&["read", "--csv"], &[]),
    (&["plot"], &[]),
    (&["plot", "--stdout", "--pstack", "--per", "process"], &[]),
    (&["replay", "--simulate", "1", "--repeat", "1", "--resource", "pool"], &[]),
    (&["flame", "--all-frames"], &[]),
    (&["flame", "--of", "allocated", "--invert"], &[]),
    (&["flame", "--by", "scope", "--of", "count"], &[]),
];

/// Formats to export in that are text.
const EXPORTED: [&[&str]; 8] = [
    &["rmm"],
    &["chrome"],
    &["chrome", "--events"],
    &["speedscope"],
    &["folded", "--of", "allocated"],
    &["csv-events"],
    &["csv-timeline"],
    &["csv-blocks"],
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

#[test]
fn flame_graphs_have_no_element_but_their_own() {
    let (test, files) = made();
    let mut drawn = 0;
    for file in &files {
        for ending in ["svg", "html", "folded"] {
            let output = test.path(&format!("flame.{ending}"));
            let _ = fs::remove_file(&output);
            let before = ["flame", "--lenient", "--all-frames", "--of", "allocated", "-o"];
            let shown = run(&test, &before, &output, &[], Some(file));
            assert_eq!(active(&[shown.stdout, shown.stderr].concat(), Sgr::No), None, "{file:?} {ending}");
            // A file may have nothing to draw.
            if shown.code != 0 {
                assert!(shown.code == 2 && !output.exists(), "{file:?} {ending}");
                continue;
            }
            let text = fs::read_to_string(&output).unwrap();
            assert_eq!(active(text.as_bytes(), Sgr::No), None, "{file:?} {ending}");
            if ending == "folded" {
                assert!(pile(&text) < 20, "{file:?}: marks pile up");
                assert!(text.lines().all(ends_with_a_number), "{file:?}: {text}");
                continue;
            }
            // The one script is the program's own.
            let elements = (text.matches("<script").count(), text.matches("<img").count());
            assert_eq!(elements, (1, 0), "{file:?} {ending}");
            if ending == "svg" {
                is_xml(&output);
            }
            drawn += usize::from(text.contains("evil"));
        }
    }
    assert!(drawn > 2, "hostile text was drawn {drawn} times only");
}

fn ends_with_a_number(line: &str) -> bool {
    line.rsplit_once(' ').is_some_and(|(_, number)| number.parse::<u64>().is_ok())
}

#[test]
fn what_differs_between_hostile_files_is_text() {
    let (test, files) = made();
    let page = test.path("diff.html");
    for (before, after) in files.iter().zip(files.iter().cycle().skip(1)).chain(files.iter().zip(&files)) {
        let what = format!("{before:?} {after:?}");
        for by in ["site", "stack", "name", "scope"] {
            for (color, sgr) in [("never", Sgr::No), ("always", Sgr::Yes)] {
                let shown = run(
                    &test,
                    &["diff", "--lenient", "--by", by, "--color", color],
                    before,
                    &[],
                    Some(after),
                );
                assert!([0, 2].contains(&shown.code), "{what}");
                for text in [&shown.stdout, &shown.stderr] {
                    assert_eq!(active(text, sgr), None, "{what}");
                    assert!(pile(&String::from_utf8_lossy(text)) < 20, "{what}: marks pile up");
                }
            }
        }
        let _ = fs::remove_file(&page);
        let args = ["diff", "--lenient", "--json", "--html"];
        let output = test.command(&args).arg(&page).arg(before).arg(after).output().unwrap();
        assert_eq!(active(&output.stderr, Sgr::No), None, "{what}");
        if output.status.code() == Some(2) {
            continue;
        }
        let value: Result<Value, _> = serde_json::from_slice(&output.stdout);
        assert!(value.is_ok(), "{what}");
        assert_eq!(active(&output.stdout, Sgr::No), None, "{what}");
        let html = fs::read_to_string(&page).unwrap();
        assert_eq!(active(html.as_bytes(), Sgr::No), None, "{what}");
        // The one script is the program's own.
        assert_eq!((html.matches("<script").count(), html.matches("<img").count()), (1, 0), "{what}");
    }
}

#[test]
fn exports_in_every_format_are_harmless_text() {
    let (test, files) = made();
    let mut seen = 0;
    for file in &files {
        for format in EXPORTED {
            let before = [&["export", "--lenient", "-o", "-", "--format"], format].concat();
            let shown = run(&test, &before, file, &[], None);
            let what = format!("{format:?} {file:?}");
            assert!([0, 2].contains(&shown.code), "{what}");
            assert_eq!(active(&shown.stdout, Sgr::No), None, "{what}");
            assert_eq!(active(&shown.stderr, Sgr::No), None, "{what}");
            let text = String::from_utf8(shown.stdout).unwrap();
            if shown.code == 2 {
                continue;
            }
            match format[0] {
                // Values of JSON are exact, as with --json.
                "chrome" | "speedscope" => assert!(serde_json::from_str::<Value>(&text).is_ok(), "{what}"),
                name => {
                    assert!(pile(&text) < 20, "{what}: marks pile up");
                    assert!(name != "folded" || text.lines().all(ends_with_a_number), "{what}: {text}");
                }
            }
            seen += usize::from(text.contains("evil"));
        }
        let output = test.path("out.pb.gz");
        let _ = fs::remove_file(&output);
        let shown = run(&test, &["export", "--lenient", "--format", "pprof", "-o"], &output, &[], Some(file));
        assert_eq!(active(&[shown.stdout, shown.stderr].concat(), Sgr::No), None, "{file:?}");
        assert!([0, 2].contains(&shown.code) && output.exists() == (shown.code == 0), "{file:?}");
    }
    assert!(seen > 10, "hostile text was written {seen} times only");
}

#[test]
fn the_live_view_shows_hostile_files_as_text() {
    let (test, files) = made();
    for file in &files {
        let mut command = test.command(&["top", "--lenient", "--color", "never"]);
        command.arg(file);
        let mut pty = Pty::start(command);
        pty.wait_for("picture or error", |text| text.contains("quit") || text.contains("error"));
        let keys = "\t\t\t?qq";
        pty.type_in(keys);
        pty.wait();
        // After an error nobody takes the keys, and the terminal shows them.
        let text = pty.text().replace(keys, "");
        let mut rest = text.as_str();
        while let Some(at) = rest.find(|c: char| c != '\n' && c != '\r' && is_active(c)) {
            let length = ours(&rest[at..]);
            assert!(length > 0, "{file:?}: {:?}", rest[at..].chars().take(30).collect::<String>());
            rest = &rest[at + length..];
        }
        assert!(pile(&text) < 20, "{file:?}: marks pile up");
    }
}

/// Bytes of the sequence that a text begins with, if it is one that screens are drawn with: places, colors,
/// modes and clearing.
fn ours(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let figures = rest.bytes().take_while(|byte| byte.is_ascii_digit() || b";?".contains(byte)).count();
    if rest.as_bytes().get(figures).is_some_and(|last| b"mHJKhl".contains(last)) { figures + 3 } else { 0 }
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
