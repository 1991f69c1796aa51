//! Recorded text cannot act on a terminal, whatever it holds.

use floodmark_event::tables::{Frame, Process};
use floodmark_event::{Event, EventBatch, Kind, ProcessId, StackId, Tables};
use floodmark_store::{Losses, Overwrite, Run, TraceWriter};

use crate::cli_test::CliTest;
use crate::terminal::assert_fits;

const HOSTILE: &str = "evil\x1b[2J\x1b]0;owned\x07\n\r\0\u{9b}31m\u{202e}txt.\u{2066}exe\u{200b}";

fn is_inert(text: &str) -> bool {
    let acts = |c: char| c.is_control() || HOSTILE.contains(c) && !c.is_ascii();
    text.chars().all(|c| c == '\n' || !acts(c))
}

/// Writes a trace in which every text is hostile and long.
pub(crate) fn hostile_trace(test: &CliTest, hostile: &str) {
    let mut tables = Tables::default();
    let text = format!("{hostile}{}", "very/long/".repeat(30));
    tables.processes.push(Process {
        id: ProcessId(1),
        pid: 7,
        host: text.clone(),
        command: text.clone(),
        ..Process::default()
    });
    let name = tables.intern(&text);
    let frame = Frame { function: name, file: name, line: 3, module: name, address: 9 };
    let frame = tables.intern_frame(frame);
    let outer = tables.intern_stack(StackId(0), frame);
    let stack = tables.intern_stack(outer, frame);
    let mut batch = EventBatch::new();
    for at in 0..3 {
        batch.push(&Event {
            time_ns: at,
            process: ProcessId(1),
            thread: 1,
            address: 0x1000 + at as u64,
            bytes: 64,
            device: 0,
            kind: Kind::Device,
            resource: name,
            name,
            stack,
            ..Event::default()
        });
    }
    let run =
        Run { command: Some(text.clone()), host: Some(text.clone()), user: Some(text), ..Run::default() };
    let mut writer = TraceWriter::create(&test.path("h.flood"), run, Overwrite::No).unwrap();
    writer.write(&batch, &tables).unwrap();
    let mut losses = Losses::default();
    losses.add(1, hostile);
    writer.finish(&tables, &losses).unwrap();
}

#[test]
fn text_of_a_trace_is_inert_and_fits_in_every_command() {
    let test = CliTest::new();
    hostile_trace(&test, HOSTILE);
    for args in [
        &["stats", "h.flood"][..],
        &["watermark", "h.flood"],
        &["watermark", "h.flood", "--by", "stack,name,process,resource,site"],
        &["usage", "h.flood"],
        &["leaks", "h.flood"],
        &["lifetimes", "h.flood"],
        &["info", "h.flood"],
        &["read", "h.flood"],
        &["diff", "h.flood", "empty.csv"],
        &["diff", "empty.csv", "h.flood", "--by", "stack"],
        &["check", "h.flood", "--max-peak", "1", "--max-leak", "0", "--no-losses"],
    ] {
        for columns in [60, 100] {
            let output = test.command(args).env("COLUMNS", columns.to_string()).output().unwrap();
            assert_fits(&output.stdout, columns, args[0]);
            let seen = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(is_inert(&seen), "{args:?}: {seen:?}");
            assert!(seen.contains("evil") || args[0] == "usage", "{args:?}: {seen}");
        }
        let json = test.run(&[args, &["--json"]].concat()).stdout;
        assert!(is_inert(&json), "{args:?}: {json:?}");
    }
    let csv = test.run(&["read", "h.flood", "--csv"]);
    assert!(is_inert(&csv.stdout), "{:?}", csv.stdout);
}

#[test]
fn pictures_pages_and_exports_of_a_hostile_trace_are_inert() {
    let test = CliTest::new();
    let name = format!("{HOSTILE}</title><script>alert(1)</script>\" onload=\"x;y{}", "x".repeat(10_000));
    hostile_trace(&test, &name);
    for columns in [40, 100] {
        let mut command = test.command(&["flame", "h.flood"]);
        let output = command.env("COLUMNS", columns.to_string()).output().unwrap();
        assert_fits(&output.stdout, columns, "flame");
        assert!(is_inert(&String::from_utf8(output.stdout).unwrap()));
    }
    for format in ["svg", "html", "folded"] {
        let text =
            test.run(&["flame", "h.flood", "-o", "-", "--format", format, "--all-frames", "-q"]).ok().stdout;
        assert!(is_inert(&text) && text.contains("evil"), "{format}");
        let scripts = text.matches("<script").count();
        assert!(format == "folded" || scripts == 1 && !text.contains("\" onload"), "{format}");
    }
    test.run(&["diff", "h.flood", "empty.csv", "--html", "d.html", "-q"]).ok();
    let page = test.read("d.html");
    assert!(is_inert(&page) && page.matches("<script").count() == 1 && !page.contains("\" onload"));
    for format in ["chrome", "speedscope", "folded", "csv-events", "csv-timeline", "csv-blocks"] {
        let text = test.run(&["export", "h.flood", "-o", "-", "--format", format, "-q"]).ok().stdout;
        assert!(is_inert(&text), "{format}");
        if matches!(format, "chrome" | "speedscope") {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(value.is_object());
        }
        if format == "folded" {
            let (path, bytes) = text.trim_end().rsplit_once(' ').unwrap();
            assert_eq!((text.lines().count(), path.split(';').count(), bytes), (1, 2, "192"));
        }
    }
}

#[test]
fn json_keeps_the_text_as_it_was_recorded() {
    let test = CliTest::new();
    hostile_trace(&test, HOSTILE);
    let leaks = test.run(&["leaks", "h.flood", "--json"]).json();
    assert!(leaks["blocks"][0]["name"].as_str().unwrap().starts_with(HOSTILE));
    assert_eq!(leaks["losses"][0]["reason"], HOSTILE);
}

#[test]
fn names_of_files_are_inert_too() {
    let test = CliTest::new();
    let name = HOSTILE.replace('\0', "") + ".csv";
    test.write(&name, test.read("golden.csv"));
    for args in [
        &["stats", &name][..],
        &["read", &name, "-v"],
        &["import", &name],
        &["import", &name],
        &["export", &name, "-o", "\x1b[31mout.csv"],
        &["stats", "\x1b[31mmissing\u{202e}"],
        &["stats", &name, "--json"],
    ] {
        let ran = test.run(args);
        assert!(
            is_inert(&ran.stdout) && is_inert(&ran.stderr),
            "{args:?}: {:?} {:?}",
            ran.stdout,
            ran.stderr
        );
    }
}
