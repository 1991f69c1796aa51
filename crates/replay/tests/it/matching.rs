//! Scripts say what their log says.

use std::collections::HashMap;

use floodmark_event::units::Instant;
use floodmark_event::{Action, Event, Filter, Kind, ProcessId, StringId};
use floodmark_replay::script::Act;
use floodmark_replay::{Error, Excerpt, Pace, ReadProps, Reading, Script, choose};
use proptest::prelude::*;

use crate::events::{event, in_time, read, script};

/// A step as a person would write it: which allocation instead of which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    act: &'static str,
    /// The event that allocated the block.
    block: u64,
    bytes: u64,
    thread: u64,
    stream: u64,
    /// The event it comes from; none for what is freed after the end.
    event: Option<u64>,
}

/// Spells a script out, and checks that slots are used as promised.
fn lines(script: &Script) -> Vec<Line> {
    let mut slots: HashMap<u32, (u64, u64)> = HashMap::new();
    let mut lines = Vec::new();
    for (at, step) in script.steps().iter().enumerate() {
        let actor = script.actors()[step.actor()];
        let event = (at < script.leftovers().start).then(|| script.event_of(at));
        let (act, block) = match step.act() {
            Act::Allocate => {
                let event = event.expect("nothing is allocated after the end");
                assert!((step.slot as usize) < script.slots());
                assert_eq!(slots.insert(step.slot, (event, step.bytes)), None, "the slot is empty");
                ("alloc", event)
            }
            Act::Free => {
                let (block, bytes) = slots.remove(&step.slot).expect("the slot is full");
                assert_eq!(bytes, step.bytes, "a free is as large as its allocation");
                ("free", block)
            }
            Act::Fail => ("fail", 0),
        };
        let thread = script.threads()[actor.thread as usize];
        let stream = script.streams()[actor.stream as usize];
        lines.push(Line { act, block, bytes: step.bytes, thread, stream, event });
    }
    assert!(slots.is_empty(), "everything goes back in the end");
    lines
}

type Key = (ProcessId, i32, StringId, u64);

/// The same, the simple way: everything in maps and lists.
fn oracle(events: &[Event], window: (usize, usize)) -> HashMap<Excerpt, Vec<Line>> {
    #[derive(Clone, Copy)]
    struct Block {
        excerpt: Excerpt,
        event: u64,
        bytes: u64,
        thread: u64,
        stream: u64,
    }
    let mut live: HashMap<Key, Vec<Block>> = HashMap::new();
    let mut scripts: HashMap<Excerpt, Vec<Line>> = HashMap::new();
    let line = |act, block: &Block, event: &Event, number| Line {
        act,
        block: block.event,
        bytes: block.bytes,
        thread: event.thread,
        stream: event.stream,
        event: Some(number),
    };
    let of = |block: &Block| Event { thread: block.thread, stream: block.stream, ..Event::default() };
    let in_order = |live: &HashMap<Key, Vec<Block>>| {
        let mut blocks: Vec<Block> = live.values().flatten().copied().collect();
        blocks.sort_by_key(|block| block.event);
        blocks
    };
    for (number, event) in events.iter().enumerate().take(window.1) {
        if number == window.0 {
            for block in in_order(&live) {
                scripts.entry(block.excerpt).or_default().push(line(
                    "alloc",
                    &block,
                    &of(&block),
                    block.event,
                ));
            }
        }
        let inside = number >= window.0;
        let number = number as u64;
        let excerpt = Excerpt { process: event.process, device: event.device, kind: event.kind };
        let blocks = live.entry((event.process, event.device, event.resource, event.address)).or_default();
        match event.action {
            Action::Alloc => {
                if event.address != 0
                    && let Some(earlier) = blocks.pop()
                    && inside
                {
                    let made_up = line("free", &earlier, &of(&earlier), number);
                    scripts.entry(earlier.excerpt).or_default().push(made_up);
                }
                let Event { bytes, thread, stream, .. } = *event;
                let block = Block { excerpt, event: number, bytes, thread, stream };
                blocks.push(block);
                if inside {
                    scripts.entry(excerpt).or_default().push(line("alloc", &block, event, number));
                }
            }
            Action::Free => {
                if let Some(block) = blocks.pop()
                    && inside
                {
                    scripts.entry(block.excerpt).or_default().push(line("free", &block, event, number));
                }
            }
            Action::Failure => {
                let Event { bytes, thread, stream, .. } = *event;
                let (act, event) = ("fail", Some(number));
                let line = Line { act, block: 0, bytes, thread, stream, event };
                if inside {
                    scripts.entry(excerpt).or_default().push(line);
                }
            }
        }
    }
    for block in in_order(&live) {
        let line = Line { event: None, ..line("free", &block, &of(&block), 0) };
        scripts.entry(block.excerpt).or_default().push(line);
    }
    scripts.retain(|_, lines| lines.iter().any(|line| line.act == "alloc"));
    scripts
}

fn any_event() -> impl Strategy<Value = Event> {
    let origin = (1u32..3, 0i32..2, prop_oneof![Just(Kind::Device), Just(Kind::Pinned)], 0u32..2);
    let what = (0u8..7, 0u64..6, 0u64..4);
    (origin, what, 0u64..3, 0u64..3).prop_map(
        |((process, device, kind, resource), (action, address, size), thread, stream)| Event {
            // As many frees as allocations, and a failure now and then.
            action: [Action::Alloc, Action::Free, Action::Failure][usize::from(action.min(6) / 3)],
            address: address * 256,
            bytes: size * 100,
            thread: 100 + thread,
            stream: stream * 0x40,
            process: ProcessId(process),
            device,
            kind,
            resource: StringId(resource),
            ..Event::default()
        },
    )
}

proptest! {
    #[test]
    fn scripts_equal_those_of_a_naive_oracle(
        events in proptest::collection::vec(any_event(), 0..200),
        from in 0usize..60,
        len in 0usize..200,
    ) {
        let events = in_time(events);
        let window = (from.min(events.len()), (from + len).min(events.len()));
        let filter = Filter {
            from_ns: (from > 0).then_some(Instant::AfterStart(from as u64 * 1000)),
            to_ns: Some(Instant::AfterStart(((from + len) as u64 * 1000).saturating_sub(1))),
            ..Filter::default()
        };
        let props = ReadProps { filter, pace: Pace::Keep };
        // A window that begins after the last event, or ends before the first, has nothing to play in it.
        prop_assume!(from < events.len() && len > 0);
        let expected = oracle(&events, window);
        let scripts = read(&events, &props);
        prop_assert_eq!(scripts.len(), expected.len());
        for script in scripts {
            prop_assert_eq!(&lines(&script), &expected[&script.excerpt()]);
        }
    }
}

#[test]
fn what_a_log_lacks_is_counted_and_made_up() {
    use Action::{Alloc, Failure, Free};
    let events = in_time([
        event(Alloc, 0x100, 10, 1, 0),
        event(Free, 0x900, 64, 1, 0),
        event(Alloc, 0x100, 20, 2, 0x40),
        event(Free, 0x100, 21, 1, 0),
        event(Failure, 0, 1 << 40, 1, 0),
        event(Alloc, 0, 0, 1, 0),
        event(Free, 0, 0, 1, 0),
        event(Free, 0, 0, 1, 0),
        event(Alloc, 0x300, 500, 2, 0x40),
    ]);
    let mut reading = Reading::new(&ReadProps::default());
    let mut batch = floodmark_event::EventBatch::new();
    for event in &events {
        batch.push(event);
    }
    assert!(reading.update(&batch).unwrap().is_continue());
    let counts = reading.counts();
    assert_eq!((counts.unmatched_frees, counts.unmatched_free_bytes, counts.null_frees), (1, 64, 1));
    let script = choose(reading.finish().unwrap()).unwrap().0;
    let summary = script.summary();
    assert_eq!((summary.allocations, summary.frees, summary.failures), (4, 3, 1));
    assert_eq!((summary.replaced_blocks, summary.size_mismatches), (1, 1));
    assert_eq!((summary.peak_live_bytes, summary.peak_rounded_bytes), (500, 512));
    assert_eq!((summary.live_bytes, summary.live_blocks, summary.largest_bytes), (500, 1, 500));
    let acts: Vec<_> = lines(&script).iter().map(|line| (line.act, line.block)).collect();
    let expected = [
        ("alloc", 0),
        ("free", 0),
        ("alloc", 2),
        ("free", 2),
        ("fail", 0),
        ("alloc", 5),
        ("free", 5),
        ("alloc", 8),
        ("free", 8),
    ];
    assert_eq!(acts, expected);
}

#[test]
fn threads_and_streams_narrow_by_who_allocated() {
    use Action::{Alloc, Free};
    let events = in_time([
        event(Alloc, 0x100, 10, 1, 0),
        event(Alloc, 0x200, 20, 2, 0),
        event(Free, 0x100, 10, 2, 0),
        event(Free, 0x200, 20, 1, 0),
    ]);
    let filter = Filter { threads: Some(vec![1]), ..Filter::default() };
    let props = ReadProps { filter, ..ReadProps::default() };
    let lines = lines(&read(&events, &props)[0]);
    assert_eq!(
        lines.iter().map(|line| (line.act, line.block, line.thread)).collect::<Vec<_>>(),
        [("alloc", 0, 1), ("free", 0, 2),]
    );
}

#[test]
fn the_choice_between_excerpts_is_clear_or_left_to_the_user() {
    let on = |device: i32, kind| Event { device, kind, ..event(Action::Alloc, 0x100, 10, 1, 0) };
    assert!(matches!(choose(read(&[], &ReadProps::default())), Err(Error::Nothing)));
    let mixed = [on(0, Kind::Device), on(-1, Kind::Pinned)];
    let (script, others) = choose(read(&mixed, &ReadProps::default())).unwrap();
    assert_eq!(script.excerpt().kind, Kind::Device);
    assert_eq!(others.len(), 1);
    let two = [on(0, Kind::Device), on(1, Kind::Device)];
    let error = choose(read(&two, &ReadProps::default())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "one process, device and kind of memory is played at a time, and there are several: process 1, device 0, device memory; process 1, device 1, device memory"
    );
    assert_eq!(error.hint().unwrap(), "choose one, as in --process 1 --device 0 --kind device");
    let filter = Filter { devices: Some(vec![1]), ..Filter::default() };
    let props = ReadProps { filter, ..ReadProps::default() };
    assert_eq!(choose(read(&two, &props)).unwrap().0.excerpt().device, 1);
}

#[test]
fn sizes_that_no_machine_has_do_not_overflow() {
    let events: Vec<Event> = (1..5).map(|at| event(Action::Alloc, at * 256, u64::MAX - at, 1, 0)).collect();
    let script = script(&in_time(events));
    assert_eq!(script.summary().peak_live_bytes, u64::MAX);
    assert_eq!(script.summary().live_blocks, 4);
}
