//! Selects the events that an analysis counts.
//!
//! Devices, processes and kinds select allocations and frees alike; the kind of a free is that of its
//! allocation. Threads and streams select by the thread and stream that *allocated* the block, whichever
//! thread frees it. A free of an unknown block has no allocation and is judged by its own thread, stream
//! and kind (an unknown kind passes, because many sources do not state it on frees).
//!
//! The window `[from_ns, to_ns]` includes both ends. Events before it build up the live blocks without
//! being counted, so the peak of a window includes blocks allocated before it. Events after it are
//! ignored, so for leaks the window's end is the end of the trace.

use crate::units::{Instant, NS_PER_S};
use crate::{Event, Kind, NO_DEVICE, ProcessId};

/// Selection of events; `None` in a field selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Devices; [`NO_DEVICE`](crate::NO_DEVICE) selects events on no device.
    pub devices: Option<Vec<i32>>,
    /// Processes.
    pub processes: Option<Vec<ProcessId>>,
    /// Threads that allocated.
    pub threads: Option<Vec<u64>>,
    /// Streams that were allocated on.
    pub streams: Option<Vec<u64>>,
    /// Kinds of memory. If given, figures are sums over these kinds; otherwise they cover the main kind.
    pub kinds: Option<Vec<Kind>>,
    /// First instant of the window.
    pub from_ns: Option<Instant>,
    /// Last instant of the window.
    pub to_ns: Option<Instant>,
    /// Instant that elapsed times count from, as in [`Instant::AfterStart`]; the first row if none.
    pub origin_ns: Option<i64>,
}

/// Returns the UTC nanoseconds of `instant` in an input whose times count from `origin_ns`.
pub fn resolve(instant: Instant, origin_ns: i64) -> i64 {
    match instant {
        Instant::At(time_ns) => time_ns,
        Instant::AfterStart(after_ns) => origin_ns.saturating_add_unsigned(after_ns),
    }
}

/// Instants of a filter, resolved for one input; both ends are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// First nanosecond since 1970-01-01 UTC; none for the beginning of the input.
    pub from_ns: Option<i64>,
    /// Last nanosecond since 1970-01-01 UTC; none for the end of the input.
    pub to_ns: Option<i64>,
}

impl Window {
    /// Returns whether an instant lies in the window.
    pub fn contains(&self, time_ns: i64) -> bool {
        !self.is_before(time_ns) && !self.is_past(time_ns)
    }

    /// Returns whether an instant lies before the window.
    pub fn is_before(&self, time_ns: i64) -> bool {
        self.from_ns.is_some_and(|from_ns| time_ns < from_ns)
    }

    /// Returns whether an instant lies after the window.
    pub fn is_past(&self, time_ns: i64) -> bool {
        self.to_ns.is_some_and(|to_ns| time_ns > to_ns)
    }
}

fn has<T: PartialEq>(list: Option<&Vec<T>>, value: &T) -> bool {
    list.is_none_or(|list| list.contains(value))
}

impl Filter {
    /// Returns the options of the command that select the same.
    pub fn words(&self) -> Vec<String> {
        fn list<T>(name: &str, values: Option<&Vec<T>>, text: impl Fn(&T) -> String) -> Option<String> {
            let values: Vec<String> = values?.iter().map(text).collect();
            Some(format!("--{name}={}", values.join(",")))
        }
        let device = |device: &i32| if *device == NO_DEVICE { "none".to_owned() } else { device.to_string() };
        let instant = |name: &str, instant: Option<Instant>| {
            Some(match instant? {
                Instant::AfterStart(ns) => format!("--{name}=+{ns}ns"),
                Instant::At(ns) if ns < 0 => return None,
                Instant::At(ns) => format!("--{name}=@{}.{:09}", ns / NS_PER_S, ns % NS_PER_S),
            })
        };
        let words = [
            list("device", self.devices.as_ref(), device),
            list("process", self.processes.as_ref(), |process| process.0.to_string()),
            list("thread", self.threads.as_ref(), u64::to_string),
            list("stream", self.streams.as_ref(), |stream| format!("{stream:#x}")),
            list("kind", self.kinds.as_ref(), |kind| kind.name().to_owned()),
            instant("from", self.from_ns),
            instant("to", self.to_ns),
        ];
        words.into_iter().flatten().collect()
    }

    /// Resolves the window for an input whose first row is at `first_ns`.
    pub fn window(&self, first_ns: i64) -> Window {
        let origin_ns = self.origin_ns.unwrap_or(first_ns);
        let resolve = |instant: Option<Instant>| instant.map(|instant| resolve(instant, origin_ns));
        Window { from_ns: resolve(self.from_ns), to_ns: resolve(self.to_ns) }
    }

    /// Returns whether the window ends before it begins, as far as that is known without the first row.
    pub fn is_reversed(&self) -> bool {
        let is_relative = |instant: &Instant| matches!(instant, Instant::AfterStart(_));
        match (&self.from_ns, &self.to_ns) {
            (Some(from), Some(to)) if is_relative(from) == is_relative(to) || self.origin_ns.is_some() => {
                let window = self.window(0);
                window.from_ns > window.to_ns
            }
            _ => false,
        }
    }

    /// Returns whether an event is selected by what it carries itself, whatever its time.
    ///
    /// Analyses judge a free by the block that it ends instead.
    pub fn selects(&self, event: &Event) -> bool {
        self.selects_memory(event.process, event.device)
            && self.selects_origin(event.thread, event.stream)
            && self.selects_kind(event.kind)
    }

    /// Returns whether events of this process and device are selected.
    pub fn selects_memory(&self, process: ProcessId, device: i32) -> bool {
        has(self.devices.as_ref(), &device) && has(self.processes.as_ref(), &process)
    }

    /// Returns whether blocks allocated by this thread on this stream are selected.
    pub fn selects_origin(&self, thread: u64, stream: u64) -> bool {
        has(self.threads.as_ref(), &thread) && has(self.streams.as_ref(), &stream)
    }

    /// Returns whether blocks of this kind are selected.
    pub fn selects_kind(&self, kind: Kind) -> bool {
        has(self.kinds.as_ref(), &kind)
    }

    /// Returns whether every event in the window is selected.
    pub fn selects_all(&self) -> bool {
        let Self { devices, processes, threads, streams, kinds, .. } = self;
        devices.is_none() && processes.is_none() && threads.is_none() && streams.is_none() && kinds.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_includes_both_ends_and_counts_from_the_origin_or_the_first_row() {
        let filter = Filter {
            from_ns: Some(Instant::AfterStart(5)),
            to_ns: Some(Instant::At(108)),
            ..Filter::default()
        };
        let window = filter.window(100);
        assert_eq!(window, Window { from_ns: Some(105), to_ns: Some(108) });
        let found: Vec<i64> = (100..112).filter(|time_ns| window.contains(*time_ns)).collect();
        assert_eq!(found, [105, 106, 107, 108]);
        assert!(window.is_before(104) && !window.is_past(104) && window.is_past(109));
        assert!(Filter::default().window(100).contains(i64::MIN));
        let of_run = Filter { origin_ns: Some(90), ..filter };
        assert_eq!(of_run.window(100), Window { from_ns: Some(95), to_ns: Some(108) });
        assert!(!of_run.is_reversed() && Filter { origin_ns: Some(104), ..of_run.clone() }.is_reversed());
        let reversed = Filter { to_ns: Some(Instant::AfterStart(4)), origin_ns: None, ..of_run.clone() };
        assert!(reversed.is_reversed() && !Filter { to_ns: None, ..reversed }.is_reversed());
        assert!(!Filter { origin_ns: None, ..of_run }.is_reversed(), "it depends on the first row");
    }

    #[test]
    fn every_list_selects_by_itself() {
        let event = Event { device: 1, thread: 7, stream: 9, kind: Kind::Pinned, ..Event::default() };
        let all = Filter::default();
        assert!(all.selects(&event) && all.selects_all());
        let lists = |is_ours: bool| {
            let other = u64::from(!is_ours);
            [
                Filter { devices: Some(vec![5, 1 + other as i32]), ..all.clone() },
                Filter { processes: Some(vec![ProcessId(other as u32)]), ..all.clone() },
                Filter { threads: Some(vec![7 + other]), ..all.clone() },
                Filter { streams: Some(vec![9 + other]), ..all.clone() },
                Filter {
                    kinds: Some(vec![if is_ours { Kind::Pinned } else { Kind::Device }]),
                    ..all.clone()
                },
            ]
        };
        for filter in lists(true) {
            assert!(filter.selects(&event) && !filter.selects_all(), "{filter:?}");
        }
        for filter in lists(false) {
            assert!(!filter.selects(&event), "{filter:?}");
        }
    }
}
