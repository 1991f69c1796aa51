//! Every row knows its line.

use std::fmt::Write as _;

use floodmark_convert::rmm::{ReadProps, Reader};
use floodmark_store::Source as _;

use crate::logs::{drain, folder, lenient, log, strict};

/// Checks the place of every row against the text: its thread, pointer and size are on that line.
fn assert_places(bytes: &[u8], props: &ReadProps) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split('\n').collect();
    let mut reader = Reader::open(bytes, "log.csv", props).expect("a log");
    let mut events = Vec::new();
    drain(&mut reader, &mut events).expect("it can be read");
    for (number, event) in events.iter().enumerate() {
        let place = reader.place(number as u64).expect("rows have lines");
        let line: usize = place.strip_prefix("line ").expect("a line").parse().expect("a number");
        let line = lines[line - 1];
        assert!(line.contains(&event.bytes.to_string()), "{place}: {line} {event:?}");
        assert!(event.address == 0 || line.contains(&format!("{:x}", event.address)), "{place}: {line}");
    }
    assert_eq!(reader.place(events.len() as u64), None, "nothing is behind the last");
    events.len()
}

#[test]
fn rows_of_every_fixture_know_their_lines() {
    let mut rows = 0;
    for entry in std::fs::read_dir(folder()).expect("the fixtures") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        if !name.ends_with(".csv") || name == "legacy_12_columns.csv" {
            continue;
        }
        rows += assert_places(&log(&name), &lenient());
    }
    assert!(rows > 8000, "{rows}");
}

#[test]
fn lines_without_rows_count_too() {
    let mut text = String::from("\nThread,Time,Action,Pointer,Size,Stream\n");
    for row in 0..30_000u64 {
        let (address, bytes) = (0x1000 * (row + 1), 100_000 + row);
        let _ = writeln!(text, "7,10:00:00.000001,allocate,{address:#x},{bytes},0");
        if row % 1000 == 3 {
            text += ["\n", "\n\n", "Thread,Time,Action,Pointer,Size,Stream\n"][row as usize / 1000 % 3];
        }
    }
    text += "7,10:00:00.000001,allocate,0xf000,99,0\r";
    assert_eq!(assert_places(text.as_bytes(), &strict()), 30_001);
    let broken = text.replace("allocate,0x5000,", "allocate 0x5000,");
    assert_eq!(assert_places(broken.as_bytes(), &lenient()), 30_000);
}
