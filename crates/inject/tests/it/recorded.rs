//! What programs do is in the trace.

use floodmark_event::{Action, Event, Kind, REALLOC};
use floodmark_tail::heap::HeapNote;

use crate::build::{compile, finish, recording, work_directory};
use crate::heap_tail::HeapTail;

#[test]
fn every_function_of_the_family_is_recorded() {
    let directory = work_directory("inject-api");
    let program = compile("api.c", &[], &directory);
    let trace = directory.join("api.flood");
    let child = recording(&program, &trace, "all").spawn().expect("starts");
    let output = finish(child, "api");
    assert!(output.status.success(), "{output:?}");
    let live: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    let tail = HeapTail::read(&trace);
    assert_eq!(tail.live_bytes(Kind::Pageable), live);
    assert_eq!(tail.live(Kind::Pageable).1, 0);
    assert_eq!(tail.count(Action::Failure, Kind::Pageable), 4);
    assert_eq!(tail.losses, 0);
    assert_eq!(tail.notes(), [(HeapNote::All, 0)]);
    // Blocks that grew out of others say so, and follow the free of those.
    let is_named = |event: &Event| tail.strings.get(&event.name.0).is_some_and(|name| name == REALLOC);
    let grown: Vec<(usize, &Event)> =
        tail.events.iter().enumerate().filter(|(_, event)| is_named(event)).collect();
    assert_eq!(grown.iter().map(|(_, event)| event.bytes).collect::<Vec<_>>(), [300_000, 2100]);
    for (at, event) in grown {
        assert_eq!(event.action, Action::Alloc);
        assert_eq!(tail.events[at - 1].action, Action::Free);
    }
}
