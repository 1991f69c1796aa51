//! The examples that people copy compile and record.

use std::path::Path;
use std::process::Command;

use floodmark_event::{Action, Event, Kind, NO_DEVICE, StringId};

use crate::build::{Linked, compile, crate_directory, run, work_directory};
use crate::tailing::Tail;

/// Compiles and runs an example that records into `run.flood`, and checks what it records.
fn check(text: &str, extension: &str) {
    let directory = work_directory("example");
    let source = directory.join(format!("example.{extension}"));
    std::fs::write(&source, text).expect("can be written");
    let program = compile(&source, Linked::Shared, &directory);
    run(Command::new(program).current_dir(&directory));
    let tail = Tail::read(&directory.join("run.flood"));
    assert_eq!(tail.strings(), ["my allocator", "load"]);
    let events = tail.events();
    let [alloc, free] = events[..] else { panic!("{events:?}") };
    let expected = Event {
        action: Action::Alloc,
        bytes: 1_000_000,
        device: NO_DEVICE,
        kind: Kind::Pageable,
        resource: StringId(1),
        scope: 1,
        thread: alloc.thread,
        address: alloc.address,
        ..Event::default()
    };
    assert_eq!(alloc, expected);
    assert_eq!(free, Event { action: Action::Free, scope: 0, ..expected });
}

#[test]
fn the_example_at_the_top_of_the_header_works() {
    let header = std::fs::read_to_string(crate_directory().join("include/floodmark.h")).expect("the header");
    let example = header.split(" * Example:\n").nth(1).expect("an example");
    let example = example.split(" * Then: ").next().expect("an end");
    let lines: Vec<&str> = example.lines().map(|line| line.strip_prefix(" *     ").unwrap_or("")).collect();
    check(&lines.join("\n"), "c");
}

#[test]
fn the_examples_of_the_guide_work() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/c.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    for extension in ["c", "cpp"] {
        let example = guide.split(&format!("```{extension}\n")).nth(1).expect("an example");
        check(example.split("```").next().expect("an end"), extension);
    }
}
