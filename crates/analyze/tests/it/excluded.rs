//! What is live at the end and no leak, and why.

use floodmark_analyze::{ExcludeReason, Leaks, LeaksFold, LeaksOptions, ScopeRoles, Verdict};
use floodmark_event::Filter;
use floodmark_event::{Action, Event, Kind, StackId};

use crate::random::fold;

const BEFORE: u64 = 1;
const TEARDOWN: u64 = 2;

fn alloc(time_ns: i64, address: u64, bytes: u64) -> Event {
    Event { time_ns, address, bytes, kind: Kind::Device, ..Event::default() }
}

fn free(time_ns: i64, address: u64) -> Event {
    Event { action: Action::Free, ..alloc(time_ns, address, 0) }
}

fn leaks(events: &[Event]) -> Leaks {
    let mut scopes = ScopeRoles::default();
    scopes.add(BEFORE, "before capture");
    scopes.add(TEARDOWN, "context teardown");
    scopes.add(3, "step");
    fold(events, &Filter::default(), 3, LeaksFold::new(LeaksOptions { scopes, ..LeaksOptions::default() }))
}

#[test]
fn what_nobody_is_expected_to_free_is_listed_apart() {
    let events = [
        Event { kind: Kind::Static, ..alloc(0, 0x100, 8) },
        Event { kind: Kind::Reserved, ..alloc(1, 0x10000, 4096) },
        Event { scope: BEFORE, ..alloc(2, 0x200, 50) },
        Event { scope: BEFORE, ..alloc(2, 0x300, 60) },
        Event { scope: 3, stack: StackId(2), ..alloc(3, 0x400, 100) },
        alloc(4, 0x500, 200),
        free(5, 0x300),
        Event { scope: TEARDOWN, ..free(9, 0x500) },
    ];
    let found = leaks(&events);
    assert_eq!((found.leaked_blocks, found.leaked_bytes), (1, 100));
    let excluded: Vec<_> =
        found.excluded.iter().map(|excluded| (excluded.reason, excluded.blocks, excluded.bytes)).collect();
    assert_eq!(
        excluded,
        [
            (ExcludeReason::Static, 1, 8),
            (ExcludeReason::Reserved, 1, 4096),
            (ExcludeReason::BeforeCapture, 1, 50),
            (ExcludeReason::Teardown, 1, 200),
        ]
    );
    assert_eq!(found.excluded[3].listed[0].age_ns, 5);
    assert!(found.excluded.iter().all(|excluded| !excluded.why.is_empty() && excluded.groups.len() == 1));
}

#[test]
fn what_is_live_at_a_snapshot_of_a_running_program_is_no_leak() {
    let site = |time_ns, address| Event { stack: StackId(2), ..alloc(time_ns, address, 10) };
    // The site frees most of what it allocates, as optimizers do.
    let events = [site(1, 0x1000), site(2, 0x2000), site(3, 0x3000), free(4, 0x1000), free(5, 0x2000)];
    assert_eq!(leaks(&events).groups[0].verdict, Verdict::Leak);
    let mut scopes = ScopeRoles::default();
    scopes.add(7, "live snapshot");
    let options = LeaksOptions { scopes, ..LeaksOptions::default() };
    let found = fold(&events, &Filter::default(), 3, LeaksFold::new(options));
    assert_eq!((found.groups[0].verdict, found.leaked_bytes), (Verdict::Live, 10));
    assert!(found.is_live_snapshot && !leaks(&events).is_live_snapshot);
}

#[test]
fn a_verdict_says_why_and_teardown_frees_nothing() {
    let site = |time_ns, address, bytes| Event { stack: StackId(2), ..alloc(time_ns, address, bytes) };
    let mut events: Vec<Event> = (0..4).map(|at| site(at, 0x1000 * (at as u64 + 1), 10)).collect();
    events.extend((0..3).map(|at| free(10 + at, 0x1000 * (at as u64 + 1))));
    let found = leaks(&events);
    assert_eq!(
        (found.groups[0].verdict, found.groups[0].reason.as_str()),
        (Verdict::Leak, "its site freed 3 of 4 blocks")
    );
    // The same frees, by the end of the context: now they speak against nobody.
    for event in &mut events[4..] {
        event.scope = TEARDOWN;
    }
    let found = leaks(&events);
    assert_eq!(found.groups[0].verdict, Verdict::Candidate);
    assert_eq!(found.groups[0].reason, "its site freed none of 4 blocks");
    assert_eq!(found.excluded[0].blocks, 3);
}
