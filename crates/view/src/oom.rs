//! Out of memory: the request that failed, why, what held memory, what changed before, what would have been enough.

use floodmark_analyze::fragmentation::{Basis, FailureCause};
use floodmark_analyze::{FailedCall, FreeMemory, GroupBy, Grouping, OutOfMemory, SiteChange};
use floodmark_event::units::{format_bytes, format_count, format_duration_ns};

use crate::blocks::{NO_SITE, stream};
use crate::figures::{bytes_exactly, counted, instant_exactly, percent};
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, cut, omitted, wrap, wrap_after};
use crate::watermark::{FRAMES, group_table};

/// Sites that are named in one sentence.
const NAMED_SITES: usize = 3;

/// A stack from the function of the driver on: what it and CUPTI called inside of it tells nobody anything.
fn from_the_driver(stack: &[String]) -> &[String] {
    let is_inside = |frame: &&String| ["/libcupti.so", "/libcuda.so"].iter().any(|name| frame.contains(name));
    &stack[stack.iter().take_while(is_inside).count().saturating_sub(1)..]
}

impl View for OutOfMemory {
    const SCHEMA: &'static str = "floodmark.oom/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        let Some(failure) = &self.failure else {
            text.line(wrap(&no_failure(self), layout.width, 0));
            return text.text();
        };
        text.headline(&headline(self, failure), &format_bytes(failure.asked_bytes), layout);
        for frame in from_the_driver(&failure.stack).iter().take(FRAMES) {
            text.styled(layout.palette.faint, cut(&format!("    {}", plain(frame)), layout.width));
        }
        text.blank();
        text.styled(layout.palette.title, "Why");
        let reasons = match device(self, failure) {
            // What is free in segments is free on the device too, and only the allocator can use it.
            Some(reason) if is_of_segments(self) => vec![reason, why(self, failure)],
            Some(reason) => vec![reason],
            None => vec![why(self, failure)],
        };
        for reason in reasons {
            text.line(wrap_after("  ", 2, &reason, layout.width));
        }
        text.blank();
        let held = format!(
            "Held at that moment: {} in {}",
            bytes_exactly(self.live_bytes),
            counted(self.live_blocks, "block")
        );
        text.styled(layout.palette.title, cut(&held, layout.width));
        for grouping in informative(&self.held_by) {
            text.block(group_table(grouping, layout));
        }
        text.blank();
        text.block(recent(self, layout));
        let advice = advice(self, failure);
        if !advice.is_empty() {
            text.blank();
            text.styled(layout.palette.title, "What would have been enough");
            for sentence in advice {
                text.line(wrap_after("  - ", 4, &sentence, layout.width));
            }
        }
        text.text()
    }
}

fn no_failure(result: &OutOfMemory) -> String {
    match result.failures {
        0 => "No allocation failed".to_owned(),
        1 => "1 allocation failed, and it is not the one that was asked for: leave out --failure".to_owned(),
        count => format!(
            "{} allocations failed, fewer than the number that was asked for: choose one from 1 to {} with --failure",
            format_count(count),
            format_count(count)
        ),
    }
}

/// `A request for 2.00 GiB of device memory failed at +12.3s (…) in load (train.py:40), on device 0, stream 0x7`
fn headline(result: &OutOfMemory, failure: &FailedCall) -> String {
    let mut line = format!(
        "A request for {} of {} memory failed at {}",
        bytes_exactly(failure.asked_bytes),
        failure.kind.name(),
        instant_exactly(failure.time_ns, result.origin_time_ns)
    );
    if failure.site != NO_SITE {
        line = format!("{line} in {}", plain(&failure.site));
    }
    if let Some(device) = failure.device {
        line = format!("{line}, device {device}");
    }
    if failure.stream != 0 {
        line = format!("{line}, stream {}", stream(failure.stream));
    }
    if result.failures > 1 {
        line = format!(
            "{line}; it is number {} of {} failures (--failure N explains another)",
            format_count(failure.number),
            format_count(result.failures)
        );
    }
    line
}

fn is_of_segments(result: &OutOfMemory) -> bool {
    result.free.is_some_and(|free| free.basis == Basis::Segments)
}

/// What the device had, and how much of it was not recorded.
fn device(result: &OutOfMemory, failure: &FailedCall) -> Option<String> {
    let device = result.device_memory?;
    let used = device.total_bytes.saturating_sub(device.free_bytes);
    let (free, total) = (format_bytes(device.free_bytes), format_bytes(device.total_bytes));
    let others = used.saturating_sub(result.live_bytes);
    let verdict = match failure.asked_bytes.checked_sub(device.free_bytes) {
        Some(missing @ 1..) => format!("{} less than asked for", format_bytes(missing)),
        _ => "as much as asked for: the driver found no piece that is large enough, or a limit was reached"
            .into(),
    };
    Some(format!(
        "The device had {free} of {total} free, {verdict}. This process held {} of such memory; the other {} in use are other kinds of \
         memory, contexts and other processes.",
        format_bytes(result.live_bytes),
        format_bytes(others)
    ))
}

fn why(result: &OutOfMemory, failure: &FailedCall) -> String {
    let Some(free) = &result.free else {
        return "There are too many failures to keep the free memory of each: narrow them down with --from and --to"
            .to_owned();
    };
    let place = match free.basis {
        Basis::Segments => "in the segments that the allocator held",
        Basis::Inferred => "between blocks, in addresses that were used before",
    };
    match free.cause {
        FailureCause::Exhaustion if free.free_bytes == 0 => format!(
            "Nothing was free {place}, and the allocator could not get {} more",
            format_bytes(failure.asked_bytes)
        ),
        FailureCause::Exhaustion => format!(
            "Too little was free: {} {place}, the largest gap {}. {} were missing, and the allocator could not get more",
            format_bytes(free.free_bytes),
            format_bytes(free.largest_gap_bytes),
            format_bytes(free.missing_bytes)
        ),
        FailureCause::Fragmentation => format!(
            "Free memory was fragmented: {} were free {place}, which is enough, but the largest gap was {}, which is {} \
             too small",
            format_bytes(free.free_bytes),
            format_bytes(free.largest_gap_bytes),
            format_bytes(free.missing_bytes)
        ),
        FailureCause::Other => format!(
            "A gap of {} was free {place}, large enough for the request: it belonged to another stream or pool, or a \
             limit of the allocator was reached",
            format_bytes(free.largest_gap_bytes)
        ),
    }
}

/// The ways to group that say more than that all is one. Sites answer the question where they are known; threads, streams
/// and sizes are for logs without stacks.
fn informative(held_by: &[Grouping]) -> impl Iterator<Item = &Grouping> {
    let is_site = |grouping: &Grouping| grouping.by == GroupBy::Site;
    let knows_sites = held_by
        .iter()
        .any(|grouping| is_site(grouping) && grouping.groups.iter().any(|group| group.key != NO_SITE));
    held_by.iter().filter(move |grouping| match grouping.by {
        GroupBy::Site => knows_sites,
        GroupBy::Thread | GroupBy::Stream | GroupBy::Size => !knows_sites && grouping.groups.len() > 1,
        _ => grouping.groups.len() > 1,
    })
}

fn recent(result: &OutOfMemory, layout: &Layout) -> String {
    let recent = &result.recent;
    let mut text = Lines::default();
    let interval = format_duration_ns(recent.interval_ns);
    let title = if result.live_bytes == recent.before_bytes && recent.sites.is_empty() {
        format!("Nothing changed in the last {interval}")
    } else {
        let grown = signed(result.live_bytes, recent.before_bytes);
        let (before, then) = (format_bytes(recent.before_bytes), format_bytes(result.live_bytes));
        format!("In the last {interval}: {grown}, from {before} to {then}")
    };
    text.styled(layout.palette.title, cut(&title, layout.width));
    if recent.sites.iter().all(|change| change.site == NO_SITE) {
        return text.text();
    }
    let (shown, left) = layout.first(&recent.sites);
    let mut table = Table::new([
        Column::long("site"),
        Column::figure("before"),
        Column::figure("then"),
        Column::figure("change"),
    ]);
    for SiteChange { site, before_bytes, at_bytes } in shown {
        table.row([
            Cell::from(site),
            Cell::from(format_bytes(*before_bytes)),
            Cell::from(format_bytes(*at_bytes)),
            Cell::from(signed(*at_bytes, *before_bytes)),
        ]);
    }
    text.block(table.text(layout));
    text.block(omitted(left, layout));
    text.text()
}

/// `+1.50 GiB`, `-20 B`, or `no change`.
fn signed(after: u64, before: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Greater => format!("+{}", format_bytes(after - before)),
        std::cmp::Ordering::Less => format!("-{}", format_bytes(before - after)),
        std::cmp::Ordering::Equal => "no change".to_owned(),
    }
}

fn advice(result: &OutOfMemory, failure: &FailedCall) -> Vec<String> {
    let mut advice = Vec::new();
    let Some(free) = &result.free else { return advice };
    if let Some(sentence) = less_held(result, free) {
        advice.push(sentence);
    }
    if free.cause == FailureCause::Fragmentation {
        advice.push(
            "The same memory without fragmentation: 'floodmark replay INPUT --what-if' finds the least memory with \
             which other allocators serve the same requests, and 'floodmark fragmentation INPUT --at peak' shows the \
             blocks beside the gaps"
                .to_owned(),
        );
    }
    if free.cause != FailureCause::Other && free.largest_gap_bytes > 0 {
        advice.push(format!(
            "A request of at most {} ({} of this one): that was the largest gap",
            format_bytes(free.largest_gap_bytes),
            percent(free.largest_gap_bytes as f64 / failure.asked_bytes.max(1) as f64)
        ));
    }
    advice
}

/// The sites that held what was missing.
fn less_held(result: &OutOfMemory, free: &FreeMemory) -> Option<String> {
    let sites: Vec<String> =
        result.enough.iter().take(NAMED_SITES).map(|site| plain(site).into_owned()).collect();
    let further = result.enough.len().saturating_sub(NAMED_SITES);
    let first = sites.first()?;
    if result.enough.len() == 1 {
        let held = result.held_by.first()?.groups.iter().find(|group| group.key == result.enough[0])?;
        return Some(format!(
            "{} less held by {first}, which is {} of what it held",
            format_bytes(free.missing_bytes),
            percent(free.missing_bytes as f64 / held.bytes.max(1) as f64)
        ));
    }
    let named = sites.join(", ");
    let more =
        if further > 0 { format!(" and {}", counted(further as u64, "further site")) } else { String::new() };
    Some(format!("{} less held by {named}{more} together", format_bytes(free.missing_bytes)))
}

#[cfg(test)]
mod tests {
    use super::from_the_driver;

    #[test]
    fn what_the_driver_and_cupti_call_inside_is_not_shown() {
        let stack = |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>();
        let all = stack(&[
            "0x7d162 [/cuda/lib64/libcupti.so.13]",
            "0x340891 [/usr/lib/libcuda.so.1]",
            "cuMemAlloc_v2 [/usr/lib/libcuda.so.1]",
            "cudaMalloc [/cuda/lib64/libcudart.so.13]",
            "load (train.py:3)",
        ]);
        assert_eq!(from_the_driver(&all), &all[2..]);
        // Interposed functions have no frames of either.
        assert_eq!(from_the_driver(&all[3..]), &all[3..]);
        assert!(from_the_driver(&[]).is_empty());
    }
}
