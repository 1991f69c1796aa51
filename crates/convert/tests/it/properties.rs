//! What holds for every log and for any bytes at all.

use std::fmt::Write as _;

use floodmark_convert::rmm::Dialect;
use floodmark_event::units::{NS_PER_DAY, NS_PER_S};
use floodmark_event::{Action, Event, Kind, ProcessId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::logs::{Pieces, events, lenient, read_to_end, strict};
use crate::writing::written;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// Numbers of all lengths.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift)
}

prop_compose! {
    /// An event as a log can hold it, but for its time.
    fn event()(
        thread in number(),
        action in select(&Action::ALL[..]),
        address in number(),
        bytes in number(),
        stream in prop_oneof![Just(0), Just(0x557f_c69e_af60), number()],
    ) -> Event {
        // A free of u64::MAX bytes stands for one of unknown size.
        let bytes = bytes.min(u64::MAX - 1);
        let (process, kind) = (ProcessId(1), Kind::Device);
        Event { thread, action, address, bytes, stream, device: 0, process, kind, ..Event::default() }
    }
}

/// A field as logs have it, or nearly.
fn field(role: usize) -> impl Strategy<Value = String> {
    let usual = match role {
        0 => prop_oneof![Just("687".to_owned()), "[0-9]{1,21}", "0x[0-9a-f]{1,4}"].boxed(),
        1 => prop_oneof![
            4 => "(10:00:0[01]|23:59:59|00:00:00)[.:][0-9]{6}",
            2 => "1634567890\\.[0-9]{6}",
            1 => "-?[0-9]{1,12}(\\.[0-9]{0,10})?",
            1 => "[0-2][0-9]:[0-6][0-9]:[0-6][0-9]([.:][0-9]{0,9})?",
        ]
        .boxed(),
        2 => select(vec!["allocate", "free", "deallocate", "allocate failure", "realloc"])
            .prop_map(str::to_owned)
            .boxed(),
        3 => prop_oneof![
            6 => "0x7f[0-9a-f]{10}",
            2 => "0x[0-9a-fA-F]{0,17}",
            1 => "[0-9a-g]{1,17}",
            1 => Just("(nil)".to_owned())
        ]
        .boxed(),
        4 => prop_oneof!["[0-9]{1,10}", "[0-9]{0,21}"].boxed(),
        _ => prop_oneof![Just("0".to_owned()), Just("0x557fc69eaf60".to_owned()), "(0x)?[0-9a-f]{0,17}"]
            .boxed(),
    };
    // Now and then with a byte that does not belong.
    (usual, prop::option::weighted(0.03, (any::<prop::sample::Index>(), "[ -!#-+\\--~]"))).prop_map(
        |(mut text, odd)| {
            if let Some((at, odd)) = odd {
                text.insert_str(at.index(text.len() + 1), &odd);
            }
            text
        },
    )
}

fn fields() -> impl Strategy<Value = [String; 6]> {
    (field(0), field(1), field(2), field(3), field(4), field(5))
        .prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f])
}

/// A log of lines good and bad, with all sorts of ends.
pub(crate) fn messy_log() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        20 => fields().prop_map(|fields| fields.join(",")),
        1 => Just(String::new()),
        1 => Just(HEADER.trim_end().to_owned()),
        1 => Just("Size,Pointer,Action".to_owned()),
        1 => "[ -~]{0,80}",
    ];
    vec((line, select(vec!["\n", "\n", "\n", "\r\n"])), 0..30).prop_map(|lines| {
        let body: String = lines.into_iter().flat_map(|(line, end)| [line, end.to_owned()]).collect();
        format!("{HEADER}{body}")
    })
}

proptest! {
    #[test]
    fn events_written_and_read_again_are_the_same_in_the_epoch_dialect(
        rows in vec((event(), -9_223_372_036_000_000i64..9_223_372_036_000_000), 0..50),
    ) {
        let before: Vec<_> = rows.into_iter().map(|(e, us)| Event { time_ns: us * 1000, ..e }).collect();
        prop_assert_eq!(events(&*written(&before, Dialect::RmmEpoch).0), before);
    }

    #[test]
    fn events_written_and_read_again_are_the_same_in_the_dialect_of_rmm(
        start_us in 0..NS_PER_DAY / 1000,
        rows in vec((event(), -50_000_000i64..3_600_000_000), 0..50),
    ) {
        let mut us = start_us;
        let before: Vec<_> = rows
            .into_iter()
            .map(|(e, step_us)| {
                us = (us + step_us).max(0);
                Event { time_ns: us * 1000, ..e }
            })
            .collect();
        // The log holds no date: the first row is read as one of the first day.
        let first_day_ns = before.first().map_or(0, |e| e.time_ns / NS_PER_DAY * NS_PER_DAY);
        let before: Vec<_> =
            before.into_iter().map(|e| Event { time_ns: e.time_ns - first_day_ns, ..e }).collect();
        prop_assert_eq!(events(&*written(&before, Dialect::Rmm).0), before);
    }

    #[test]
    fn a_log_reads_the_same_in_blocks_of_any_size(log in messy_log(), sizes in vec(0..70usize, 1..8)) {
        prop_assume!(sizes.iter().any(|size| *size > 0));
        for props in [strict(), lenient()] {
            let whole = read_to_end(log.as_bytes(), &props);
            prop_assert_eq!(read_to_end(Pieces::new(log.as_bytes(), sizes.clone()), &props), whole);
        }
    }

    /// The columns in another order are parsed by the code that knows all dialects, RMM's own order
    /// mostly by the code that is fast.
    #[test]
    fn rows_read_the_same_whichever_parser_takes_them(rows in vec(fields(), 0..30)) {
        let mut usual = HEADER.to_owned();
        let mut other = "Time,Action,Pointer,Size,Stream,Thread\n".to_owned();
        for [thread, rest @ ..] in rows {
            let rest = rest.join(",");
            usual += &[&*thread, ",", &rest, "\n"].concat();
            other += &[&*rest, ",", &thread, "\n"].concat();
        }
        prop_assert_eq!(read_to_end(usual.as_bytes(), &lenient()), read_to_end(other.as_bytes(), &lenient()));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..2000)) {
        read_to_end(&*bytes, &strict());
        let with_header = [HEADER.as_bytes(), &bytes].concat();
        let (events, losses, error) = read_to_end(&*with_header, &lenient());
        prop_assert_eq!(error, None);
        let lost: u64 = losses.gaps.iter().map(|gap| gap.count).sum();
        prop_assert!(events.len() as u64 + lost <= bytes.len() as u64 + 1);
    }

    #[test]
    fn times_within_a_minute_of_each_other_stay_so(
        start in 0..86_400i64,
        steps in vec(-30i64..30, 1..40),
    ) {
        let mut second = start;
        let mut text = HEADER.to_owned();
        let mut expected = Vec::new();
        for step in steps {
            second += step;
            let shown = second.rem_euclid(86_400);
            let (hour, minute) = (shown / 3600, shown / 60 % 60);
            let _ = writeln!(text, "1,{hour:02}:{minute:02}:{:02},free,0x1,1,0", shown % 60);
            expected.push(second * NS_PER_S);
        }
        let times: Vec<_> = events(text.as_bytes()).iter().map(|e| e.time_ns).collect();
        let (first, first_expected) = (times[0], expected[0]);
        let relative: Vec<_> = times.iter().map(|time| time - first).collect();
        let relative_expected: Vec<_> = expected.iter().map(|time| time - first_expected).collect();
        prop_assert_eq!(relative, relative_expected);
    }
}
