//! What was recorded of the heaps of a run, in sentences.

use floodmark_analyze::HeapSummary;
use floodmark_event::units::{format_bytes, format_count};

use super::after;
use crate::figures::counted;

/// How high the heaps of a run rose.
pub(super) fn heap_peak(heap: &HeapSummary, start_ns: Option<i64>) -> String {
    if heap.allocations == 0 {
        return "nothing was recorded".to_owned();
    }
    let about = if heap.sample_period_bytes.is_some() { "about " } else { "" };
    format!(
        "{about}{} at most{}, {about}{} in {} at the end",
        format_bytes(heap.peak_bytes),
        after(heap.peak_time_ns, start_ns),
        format_bytes(heap.live_bytes),
        counted(heap.live_blocks, "block")
    )
}

/// What was recorded of the heaps of a run.
pub(super) fn heap_events(heap: &HeapSummary) -> String {
    let allocations = counted(heap.allocations, "allocation");
    let frees = counted(heap.frees, "free");
    let processes = match heap.pids.len() {
        1 => "1 process".to_owned(),
        count => format!("{} processes", format_count(count as u64)),
    };
    let sample = heap.sample_period_bytes.map(|bytes| format!(", one in about {}", format_bytes(bytes)));
    format!("{allocations} and {frees} of {processes}{}", sample.unwrap_or_default())
}

/// What was not recorded of the heaps of a run, a sentence each.
pub(super) fn heap_notes(heap: &HeapSummary) -> impl Iterator<Item = String> {
    let programs = heap.not_recorded.iter().map(|one| {
        let count = match one.processes {
            1 => String::new(),
            count => format!(" ({} processes)", format_count(count)),
        };
        format!("the heap of {}{count} was not recorded: {}", one.program, one.reason)
    });
    heap.remarks.iter().cloned().chain(programs)
}

#[cfg(test)]
mod tests {
    use floodmark_analyze::{NotRecorded, RunSummary};

    use super::*;
    use crate::layout::Layout;
    use crate::report::View as _;

    #[test]
    fn a_summary_says_what_was_recorded_of_heaps_and_what_was_not() {
        let not_recorded = |program: &str, processes| NotRecorded {
            program: program.to_owned(),
            reason: "statically linked".to_owned(),
            processes,
        };
        let heap = HeapSummary {
            pids: vec![7, 8],
            allocations: 1000,
            frees: 999,
            peak_bytes: 3 << 20,
            live_bytes: 100,
            live_blocks: 1,
            not_recorded: vec![not_recorded("busybox", 1), not_recorded("go", 3)],
            ..HeapSummary::default()
        };
        let mut summary = RunSummary { heap: Some(heap), ..RunSummary::default() };
        let text = summary.body(&Layout::default());
        for line in [
            "  heap         3.00 MiB at most, 100 B in 1 block at the end\n",
            "  recorded     1,000 allocations and 999 frees of 2 processes\n",
            "note: the heap of busybox was not recorded: statically linked\n",
            "note: the heap of go (3 processes) was not recorded: statically linked",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        summary.heap.as_mut().unwrap().sample_period_bytes = Some(512 << 10);
        let text = summary.body(&Layout::default());
        assert!(
            text.contains("about 3.00 MiB at most, about 100 B") && text.contains("one in about 512.0 KiB"),
            "{text}"
        );
        summary.heap = Some(HeapSummary::default());
        assert!(summary.body(&Layout::default()).contains("  heap         nothing was recorded\n"));
    }
}
