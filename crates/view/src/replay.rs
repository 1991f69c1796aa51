//! Replays: resources side by side, what failed, what would have been enough.

use std::fmt::Write as _;

use floodmark_event::units::{format_bytes, format_count, format_duration_ns};
use floodmark_replay::result::{BackingKind, Chosen, Enough, Failure, Order, Played, Replay, Spread};

use crate::figures::{bytes_exactly, counted, percent};
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, wrap, wrap_after};

/// Where sentences about one resource begin.
const INDENT: usize = 4;

impl View for Replay {
    const SCHEMA: &'static str = "floodmark.replay/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.line(wrap(&headline(self), layout.width, 2));
        text.line(wrap(&schedule(self), layout.width, 2));
        text.blank();
        text.block(resources(self, layout));
        for played in self.resources.iter().filter(|played| played.failures > 0) {
            text.blank();
            text.block(failures(played, layout));
        }
        if !self.what_if.is_empty() {
            text.blank();
            text.styled(layout.palette.title, "Least memory that is enough");
            text.block(what_if(self, layout));
        }
        let remarks = remarks(self);
        if !remarks.is_empty() {
            text.blank();
            for remark in remarks {
                text.styled(layout.palette.faint, wrap(&plain(&remark), layout.width, 2));
            }
        }
        text.text()
    }
}

fn headline(replay: &Replay) -> String {
    let log = &replay.log;
    let mut sentence = format!(
        "{} of {} and {}, peak {} in {}",
        counted(log.events, "event"),
        counted(log.threads, "thread"),
        counted(log.streams, "stream"),
        format_bytes(log.peak_live_bytes),
        counted(log.peak_live_blocks, "block"),
    );
    if log.carried_blocks > 0 {
        let _ = write!(sentence, "; {} live before", counted(log.carried_blocks, "block"));
    }
    sentence
}

fn schedule(replay: &Replay) -> String {
    let schedule = &replay.schedule;
    let order = match schedule.order {
        Order::Log => "in the order of the log",
        Order::Concurrent => "by all its threads at once",
    };
    let pace = match schedule.speed {
        None => String::new(),
        Some(speed) if (speed - 1.0).abs() < 1e-9 => ", at its pace".into(),
        Some(speed) => format!(", at {speed} times its pace"),
    };
    let memory = &replay.memory;
    let backing = match (memory.kind, memory.chosen) {
        (BackingKind::Device, _) => format!("on {} with {}", memory.name, format_bytes(memory.bytes)),
        (BackingKind::Simulated, Chosen::Asked) => {
            format!("on simulated memory of {}", format_bytes(memory.bytes))
        }
        (BackingKind::Simulated, Chosen::ByDefault) => format!(
            "on simulated memory of {}, twice the peak in whole GiB, as there is no GPU here (--simulate SIZE takes another)",
            format_bytes(memory.bytes)
        ),
    };
    let times = if schedule.repeats == 1 { "once".into() } else { format!("{} times", schedule.repeats) };
    format!("Played {order}{pace}, {times}, {backing}")
}

fn resources(replay: &Replay, layout: &Layout) -> String {
    // Where nothing else is done, the time in calls says it all.
    let elapsed = replay.schedule.order == Order::Concurrent || replay.schedule.speed.is_some();
    let mut table = Table::new([
        Column::text("resource"),
        Column::figure("alloc p50"),
        Column::figure("p99").rank(1),
        Column::figure("free p50"),
        Column::figure("p99").rank(1),
        Column::figure("in all calls").rank(5),
        Column::figure("spread").rank(7),
        Column::figure("elapsed").rank(4),
        Column::figure("reserved"),
        Column::figure("unused").rank(2),
        Column::figure("fragmented").rank(6),
        Column::figure("waits").rank(3),
        Column::figure("failed"),
    ]);
    for played in &replay.resources {
        let failed = Cell::from(format_count(played.failures));
        table.row([
            Cell::from(&played.resource),
            Cell::from(format_duration_ns(played.allocate.median_ns.median)),
            Cell::from(format_duration_ns(played.allocate.p99_ns.median)),
            Cell::from(format_duration_ns(played.free.median_ns.median)),
            Cell::from(format_duration_ns(played.free.p99_ns.median)),
            Cell::from(format_duration_ns(played.calls_ns.median)),
            Cell::from(spread(&played.calls_ns)),
            Cell::from(format_duration_ns(played.elapsed_ns.median)),
            Cell::from(format_bytes(played.peak_reserved_bytes)),
            Cell::from(played.unused_at_peak.map_or_else(|| "-".into(), percent)),
            Cell::from(played.worst_fragmentation.map_or_else(|| "-".into(), |worst| percent(worst.share))),
            Cell::from(played.waits.map_or_else(|| "-".into(), format_count)),
            if played.failures > 0 { failed.styled(layout.palette.bad) } else { failed },
        ]);
    }
    let waits = replay.resources.iter().any(|played| played.waits.is_some_and(|waits| waits > 0));
    let cut_up = replay.resources.iter().any(|played| played.worst_fragmentation.is_some());
    let repeated = replay.schedule.repeats > 1;
    let calls = [true, true, true, true, true, true, repeated, elapsed];
    table.keep(&[&calls[..], &[true, true, cut_up, waits, true]].concat());
    table.text(layout)
}

/// How far repeated measurements lie apart: `-4 % +12 %`.
fn spread(spread: &Spread) -> String {
    if spread.median == 0 {
        return "-".into();
    }
    let off = |value: u64| (value as f64 / spread.median as f64 - 1.0) * 100.0;
    format!("{:+.0} {:+.0} %", off(spread.least), off(spread.most))
}

fn failures(played: &Played, layout: &Layout) -> String {
    let mut text = Lines::default();
    let verb = if played.failures == 1 { "fails that" } else { "fail that" };
    let sentence = format!(
        "{}: {} {verb} succeeded in the log",
        played.resource,
        counted(played.failures, "allocation")
    );
    text.styled(layout.palette.bad, wrap(&sentence, layout.width, 2));
    for failure in &played.first_failures {
        text.line(wrap_after("  ", INDENT, &plain(&failure_sentence(failure)), layout.width));
    }
    let further = played.failures - (played.first_failures.len() as u64).min(played.failures);
    if further > 0 {
        text.styled(layout.palette.faint, format!("  … and {} more", format_count(further)));
    }
    text.text()
}

fn failure_sentence(failure: &Failure) -> String {
    let place = failure.place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
    let why = match failure.cause.as_str() {
        "exhausted" => "not enough is left".into(),
        "fragmented" => "enough is free, but not in one piece".into(),
        "limit" => "its limit is reached".into(),
        "too_large" => "it never hands out that much".into(),
        _ => failure.message.clone(),
    };
    let largest = failure.largest_free_bytes.map_or_else(String::new, |largest| {
        // A block that is hardly too small should not look large enough.
        let looks_enough = format_bytes(largest) == format_bytes(failure.request_bytes);
        let text = if looks_enough { bytes_exactly(largest) } else { format_bytes(largest) };
        format!(", largest free block {text}")
    });
    format!(
        "event {}{place}: {} asked for, {} live, {} reserved{largest}: {why}",
        format_count(failure.event),
        bytes_exactly(failure.request_bytes),
        format_bytes(failure.live_bytes),
        format_bytes(failure.reserved_bytes),
    )
}

fn what_if(replay: &Replay, layout: &Layout) -> String {
    let mut table = Table::new([
        Column::text("resource"),
        Column::figure("enough"),
        Column::figure("bytes").rank(2),
        Column::figure("over the peak"),
        Column::figure("too little").rank(1),
        Column::figure("plays").rank(3),
    ]);
    for Enough { resource, enough_bytes, too_little_bytes, overhead, plays, .. } in &replay.what_if {
        let or_dash = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".into()));
        table.row([
            Cell::from(resource),
            Cell::from(enough_bytes.map_or_else(|| "never".into(), format_bytes)),
            or_dash(enough_bytes.map(format_count)),
            or_dash(overhead.map(over)),
            or_dash(too_little_bytes.map(format_count)),
            Cell::from(format_count(*plays)),
        ]);
    }
    let mut text = table.text(layout);
    let step = replay.what_if.first().map_or(0, |enough| enough.step_bytes);
    let sentence = format!(
        "Searched in steps of {} on simulated memory that the resource has from the beginning, and verified: the \
         log fits where it is enough and fails where it is too little. The peak of live bytes is {}.",
        bytes_exactly(step),
        bytes_exactly(replay.log.peak_live_bytes),
    );
    text += &styled(layout.palette.faint, wrap(&sentence, layout.width, 0));
    text.push('\n');
    let commands: Vec<String> = replay
        .what_if
        .iter()
        .filter_map(|enough| Some(plain(enough.command.as_deref()?).into_owned()))
        .collect();
    if !commands.is_empty() {
        text += "To play it with what is enough:\n";
        // The shell goes on at the next line after a backslash.
        let lines =
            |command: &String| wrap(command, layout.width.saturating_sub(4), 2).replace('\n', " \\\n  ");
        text.extend(commands.iter().map(|command| format!("  {}\n", lines(command))));
    }
    text
}

/// How much more than the peak: `+12 %`, or `×40` where that is many times as much.
fn over(overhead: f64) -> String {
    if overhead < 10.0 { format!("+{}", percent(overhead)) } else { format!("×{:.0}", overhead + 1.0) }
}

/// What else there is to say.
fn remarks(replay: &Replay) -> Vec<String> {
    let mut remarks = Vec::new();
    if replay.log.failures > 0 {
        let served = replay.resources.iter().filter(|played| played.would_fit > 0);
        let served: Vec<String> = served
            .map(|played| format!("{} by {}", format_count(played.would_fit), played.resource))
            .collect();
        let served = if served.is_empty() { "none".into() } else { served.join(", ") };
        remarks.push(format!("{} in the log; served now: {served}", counted(replay.log.failures, "failure")));
    }
    for played in &replay.resources {
        if let Some(setup) = &played.setup {
            remarks.push(format!("{}: {setup}", played.resource));
        }
    }
    for out in &replay.left_out {
        remarks.push(format!("{} was left out: {}", out.resource, out.reason));
    }
    for never in &replay.what_if {
        if let Some(reason) = &never.reason {
            remarks.push(format!("{} is never enough: {reason}", never.resource));
        }
    }
    for other in &replay.not_played {
        remarks.push(format!("Not played: {} ({} plays it)", other.excerpt, other.options));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use floodmark_replay::result::{BackingInfo, LeftOut, Log, NotPlayed, Schedule, Took};

    use super::*;

    fn exactly(ns: u64) -> Spread {
        Spread { median: ns, least: ns * 9 / 10, most: ns * 5 / 4 }
    }

    fn played(resource: &str, failures: u64) -> Played {
        let took = |ns| Took { count: 4, median_ns: exactly(ns), p99_ns: exactly(ns * 3), max_ns: ns * 9 };
        let failure = Failure {
            event: 1200,
            place: Some("line 1201".into()),
            request_bytes: 3 << 20,
            live_bytes: 5 << 20,
            reserved_bytes: 8 << 20,
            largest_free_bytes: Some(2 << 20),
            cause: "fragmented".into(),
            message: "out of memory".into(),
        };
        Played {
            resource: resource.into(),
            setup: Some("8.00 MiB at first, no limit".into()),
            allocate: took(60),
            free: took(40),
            calls_ns: exactly(4_000_000),
            elapsed_ns: exactly(9_000_000),
            peak_live_bytes: 5 << 20,
            peak_reserved_bytes: 8 << 20,
            unused_at_peak: Some(0.375),
            worst_fragmentation: None,
            failures,
            first_failures: (0..failures.min(1)).map(|_| failure.clone()).collect(),
            would_fit: 1,
            failed_again: 0,
            waits: Some(0),
        }
    }

    fn replay() -> Replay {
        let log = Log {
            process: 1,
            device: 0,
            kind: "device".into(),
            events: 2000,
            allocations: 1000,
            frees: 990,
            failures: 1,
            carried_blocks: 0,
            threads: 2,
            streams: 1,
            duration_ns: 1,
            peak_live_bytes: 5 << 20,
            peak_live_blocks: 7,
            largest_bytes: 3 << 20,
            live_bytes: 0,
            live_blocks: 0,
        };
        let enough = Enough {
            resource: "pool".into(),
            enough_bytes: Some(6 << 20),
            too_little_bytes: Some((6 << 20) - 256),
            overhead: Some(0.2),
            step_bytes: 256,
            plays: 9,
            reason: None,
            command: Some("floodmark replay log.csv --resource pool --simulate 6291456B".into()),
        };
        Replay {
            log,
            schedule: Schedule { order: Order::Log, speed: None, repeats: 3, clock_ns: 20 },
            memory: BackingInfo {
                kind: BackingKind::Simulated,
                name: "simulated".into(),
                bytes: 1 << 30,
                chosen: Chosen::Asked,
                no_device: None,
            },
            resources: vec![played("pool", 0), played("arena", 3)],
            left_out: vec![LeftOut { resource: "fixed".into(), reason: "its blocks are too small".into() }],
            not_played: vec![NotPlayed { excerpt: "process 2".into(), options: "--process 2".into() }],
            what_if: vec![enough],
        }
    }

    #[test]
    fn resources_stand_side_by_side_and_failures_say_where() {
        let text = replay().body(&Layout::default());
        assert_eq!(
            text,
            "2,000 events of 2 threads and 1 stream, peak 5.00 MiB in 7 blocks
Played in the order of the log, 3 times, on simulated memory of 1.00 GiB

  resource  alloc p50     p99  free p50     p99  in all calls     spread  reserved  unused  failed
  pool          60 ns  180 ns     40 ns  120 ns       4.00 ms  -10 +25 %  8.00 MiB    38 %       0
  arena         60 ns  180 ns     40 ns  120 ns       4.00 ms  -10 +25 %  8.00 MiB    38 %       3

arena: 3 allocations fail that succeeded in the log
  event 1,200 (line 1201): 3.00 MiB (3,145,728 bytes) asked for, 5.00 MiB live, 8.00 MiB reserved,
    largest free block 2.00 MiB: enough is free, but not in one piece
  … and 2 more

Least memory that is enough
  resource    enough      bytes  over the peak  too little  plays
  pool      6.00 MiB  6,291,456          +20 %   6,291,200      9
Searched in steps of 256 B on simulated memory that the resource has from the beginning, and
verified: the log fits where it is enough and fails where it is too little. The peak of live bytes
is 5.00 MiB (5,242,880 bytes).
To play it with what is enough:
  floodmark replay log.csv --resource pool --simulate 6291456B

1 failure in the log; served now: 1 by pool, 1 by arena
pool: 8.00 MiB at first, no limit
arena: 8.00 MiB at first, no limit
fixed was left out: its blocks are too small
Not played: process 2 (--process 2 plays it)
"
        );
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        for width in 40..150 {
            let text = replay().body(&Layout { width, ..Layout::default() });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn pace_and_memory_are_named() {
        let mut replay = replay();
        replay.schedule = Schedule { order: Order::Concurrent, speed: Some(2.0), repeats: 1, clock_ns: 0 };
        replay.memory.chosen = Chosen::ByDefault;
        assert_eq!(
            schedule(&replay),
            "Played by all its threads at once, at 2 times its pace, once, on simulated memory of 1.00 GiB, twice the \
             peak in whole GiB, as there is no GPU here (--simulate SIZE takes another)"
        );
        assert_eq!((over(0.034), over(41.2)), ("+3.4 %".into(), "×42".into()));
    }
}
