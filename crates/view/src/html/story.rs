//! The story of a recording: what the peak was, what held it, what was not freed and what to try, each with a link to
//! its evidence.

use floodmark_analyze::trend::grew_steadily;
use floodmark_analyze::{Band, Breakdown, BreakdownBy, LeakGroup, Verdict};
use floodmark_event::units::{format_bytes, format_count, format_duration_ns};
use floodmark_event::{Kind, Metric};

use floodmark_inspect::page::ThreadStack;

use super::build::Builder;
use super::data::{Part, Target, TargetTime};
use super::{EventsPart, SamplesPart};
use crate::blocks::NO_SITE;
use crate::figures::{counted, percent};
use crate::names::short_name;
use crate::plain::plain;
use crate::run::phase_name;

/// A site that would lower the peak by less than this share is not worth a try.
const WORTH_TRYING: f64 = 0.05;
/// A leak of a smaller share of the peak is in the findings only.
const LEAK_WORTH_TELLING: f64 = 0.001;
/// Fewer blocks that were kept are no trend.
const KEPT_BLOCKS: u64 = 10;
/// Fewer short-lived blocks, or a smaller share of all, are not worth a sentence.
const CHURN_BLOCKS: u64 = 1000;
const CHURN_SHARE: f64 = 0.25;
/// A second holder of less than this share is left out.
const SECOND: f64 = 0.1;

/// Tells what allocations and frees say.
pub(super) fn of_events(builder: &mut Builder, part: &EventsPart) {
    let stats = &part.stats;
    let (Some(first), Some(last)) = (stats.first_time_ns, stats.last_time_ns) else {
        let read = part.caveats.events_read;
        builder.tell(if read == 0 { "No events were recorded" } else { "No event is selected" });
        return;
    };
    peak(builder, part);
    if grew_steadily(&part.usage.points) {
        let kept = if part.usage.live_bytes >= stats.peak_bytes / 2 {
            ""
        } else {
            ", and most was freed only after that"
        };
        builder.tell(&format!("It grew all the time until then{kept}"));
    }
    holders(builder, part);
    not_freed(builder, part);
    what_to_try(builder, part);
    leak_to_try(builder, part);
    churn(builder, part);
    how_to_find_allocations(builder, part);
    let others = stats.events.saturating_sub(stats.allocations + stats.frees + stats.failures);
    let others =
        if others > 0 { format!(", {} of other kinds", format_count(others)) } else { String::new() };
    builder.tell(&format!(
        "{} in {}: {}, {}, {}{others}",
        counted(stats.events, "event"),
        format_duration_ns(last.saturating_sub(first).max(0) as u64),
        counted(stats.allocations, "allocation"),
        counted(stats.frees, "free"),
        counted(stats.failures, "failure"),
    ));
}

/// A time since the origin that is easy to read.
fn after(time_ns: i64) -> String {
    format!("{}{}", if time_ns < 0 { '-' } else { '+' }, format_duration_ns(time_ns.unsigned_abs()))
}

fn at_peak(find: &str) -> Target {
    Target { at: Some(TargetTime::Name("peak")), find: plain(find).into_owned(), ..Target::default() }
}

fn tab(tab: &'static str) -> Target {
    Target { tab, ..Target::default() }
}

fn peak(builder: &mut Builder, part: &EventsPart) {
    let stats = &part.stats;
    let Some(peak_ns) = stats.peak_time_ns else {
        builder.tell("No memory was allocated");
        return;
    };
    let bound = if stats.peak_exact { "" } else { "at most " };
    let (bytes, blocks) = (format_bytes(stats.peak_bytes), counted(stats.peak_blocks, "block"));
    let when = after(builder.time(peak_ns));
    builder.tell_parts([
        (format!("Memory rose to {bound}").as_str(), None),
        (format!("{bytes} in {blocks} at {when}").as_str(), Some(at_peak(""))),
    ]);
}

fn holders(builder: &mut Builder, part: &EventsPart) {
    let named: Vec<_> = part.holders.iter().filter(|site| site.site != NO_SITE).take(2).collect();
    let Some(first) = named.first() else {
        by_band(builder, part);
        return;
    };
    let held = format!("{} of it ({}) was allocated by ", percent(first.share), format_bytes(first.bytes));
    let name = short_name(&first.site);
    let mut parts = vec![(held, None), (name, Some(at_peak(&first.site)))];
    if let Some(second) = named.get(1).filter(|site| site.share >= SECOND) {
        parts.push((format!(", {} by ", percent(second.share)), None));
        parts.push((short_name(&second.site), Some(at_peak(&second.site))));
    }
    builder.tell_parts(parts.iter().map(|(text, to)| (text.as_str(), to.clone())));
}

/// Tells what held most where no stacks were recorded.
fn by_band(builder: &mut Builder, part: &EventsPart) {
    let snapshots = &part.snapshots;
    let Some(peak) = snapshots.peak.and_then(|at| Some((at, snapshots.snapshots.get(at)?.bytes))) else {
        return;
    };
    let wanted = [BreakdownBy::Size, BreakdownBy::Stream, BreakdownBy::Thread];
    let largest = |breakdown: &Breakdown| {
        let bands = breakdown.bands.iter().map(|band| (at(band, peak.0), band.name.clone()));
        bands.max_by_key(|(bytes, _)| *bytes)
    };
    let found = wanted.iter().filter_map(|by| {
        let (bytes, name) = largest(snapshots.breakdowns.iter().find(|one| one.by == *by)?)?;
        Some((*by, bytes as f64 / peak.1.max(1) as f64, name))
    });
    let found: Vec<_> = found.collect();
    let Some((by, share, name)) = found.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        builder.tell("No stacks were recorded, so the code is not known");
        return;
    };
    let what = if *by == BreakdownBy::Size { "blocks of " } else { "" };
    builder.tell_parts([
        (format!("No stacks were recorded; {} of it was in ", percent(*share)).as_str(), None),
        (format!("{what}{name}").as_str(), Some(Target { tab: "blocks", ..at_peak("") })),
    ]);
}

/// Bytes of a band at an instant.
fn at(band: &Band, snapshot: usize) -> u64 {
    band.held.iter().take_while(|held| held.snapshot <= snapshot).last().map_or(0, |held| held.bytes)
}

fn not_freed(builder: &mut Builder, part: &EventsPart) {
    let stats = &part.stats;
    let Some(leaks) = &part.leaks else {
        let (live, blocks) = (format_bytes(stats.live_bytes), counted(stats.live_blocks, "block"));
        builder.tell(&format!("{live} in {blocks} is live now"));
        return;
    };
    if leaks.leaked_blocks == 0 {
        if stats.allocations > 0 {
            builder.tell("Nothing leaked");
        }
        return;
    }
    let amount = format!("{} in {}", format_bytes(leaks.leaked_bytes), counted(leaks.leaked_blocks, "block"));
    let what = if leaks.is_live_snapshot { " is still live at the snapshot" } else { " was never freed" };
    let mut parts = vec![(amount, Some(tab("leaks"))), (what.to_owned(), None)];
    if let Some(group) = leaks.groups.first().filter(|group| group.site != NO_SITE) {
        let most =
            if leaks.groups.len() > 1 { format!(", {} of it", percent(group.share)) } else { ",".into() };
        parts.push((format!("{most} from "), None));
        let target = Target {
            at: leaks.end_time_ns.map(|end| TargetTime::Time(builder.time(end))),
            find: plain(&group.site).into_owned(),
            ..Target::default()
        };
        parts.push((short_name(&group.site), Some(target)));
    }
    builder.tell_parts(parts.iter().map(|(text, to)| (text.as_str(), to.clone())));
}

/// Tells how many blocks lived so shortly that reusing them would be cheaper.
fn churn(builder: &mut Builder, part: &EventsPart) {
    let (lifetimes, allocations) = (&part.lifetimes, part.stats.allocations);
    let share = lifetimes.churned_blocks as f64 / allocations.max(1) as f64;
    if lifetimes.churned_blocks < CHURN_BLOCKS || share < CHURN_SHARE {
        return;
    }
    let blocks = format!("{} of {}", format_count(lifetimes.churned_blocks), counted(allocations, "block"));
    let lived = format!(
        " ({} in all) lived shorter than {}",
        format_bytes(lifetimes.churned_bytes),
        format_duration_ns(lifetimes.threshold_ns)
    );
    let mut parts = vec![(blocks, Some(tab("details"))), (lived, None)];
    let most = lifetimes.sites.iter().max_by_key(|site| site.churned_blocks);
    if let Some(site) = most.filter(|site| site.site != NO_SITE && site.churned_blocks > 0) {
        let share = site.churned_blocks as f64 / lifetimes.churned_blocks as f64;
        // Without stacks it is a range of sizes.
        let from = if has_code(part) { "from " } else { "" };
        parts.push((format!(", {} of them {from}{}", percent(share), short_name(&site.site)), None));
    }
    parts.push((": reusing them would save that many allocations".into(), None));
    builder.tell_parts(parts.iter().map(|(text, to)| (text.as_str(), to.clone())));
}

/// Names the band that would lower the peak most if it held nothing: the peak may then be at another instant.
///
/// Bands are sites or, where no stacks were recorded, sizes of blocks.
fn what_to_try(builder: &mut Builder, part: &EventsPart) {
    let snapshots = &part.snapshots;
    let totals: Vec<u64> = snapshots.snapshots.iter().map(|snapshot| snapshot.bytes).collect();
    let peak = part.stats.peak_bytes;
    let best = |by: BreakdownBy| {
        let bands = snapshots.breakdowns.iter().find(|one| one.by == by)?;
        let own = bands.bands.iter().take(bands.bands.len() - usize::from(bands.has_others));
        let named = own.filter(|band| band.name != NO_SITE);
        named
            .map(|band| (peak.saturating_sub(bands.peak_without(band, &totals)), band))
            .max_by_key(|best| best.0)
    };
    let is_worth = |saved: u64| saved as f64 / peak.max(1) as f64 >= WORTH_TRYING;
    let bound = if snapshots.exact { "" } else { "up to " };
    let lower = |saved: u64| {
        let share = percent(saved as f64 / peak.max(1) as f64);
        format!("the peak would be {bound}{} lower ({share})", format_bytes(saved))
    };
    if let Some((saved, band)) = best(BreakdownBy::Site).filter(|(saved, _)| is_worth(*saved)) {
        builder.tell_parts([
            ("To try: free or shrink what ", None),
            (short_name(&band.name).as_str(), Some(at_peak(&band.name))),
            (format!(" holds. Without it {}", lower(saved)).as_str(), None),
        ]);
    } else if let Some((saved, band)) =
        best(BreakdownBy::Size).filter(|(saved, _)| !has_code(part) && is_worth(*saved))
    {
        builder.tell_parts([
            ("To try: free earlier, or make smaller, ", None),
            (format!("blocks of {}", band.name).as_str(), Some(Target { tab: "blocks", ..at_peak("") })),
            (format!(". Without them {}", lower(saved)).as_str(), None),
        ]);
    }
}

/// Whether any site is known by name.
fn has_code(part: &EventsPart) -> bool {
    part.holders.iter().any(|site| site.site != NO_SITE)
}

/// Names the largest leak: a site that frees most of its blocks, or one that kept blocks from all of the recording.
fn leak_to_try(builder: &mut Builder, part: &EventsPart) {
    let Some(leaks) = part.leaks.as_ref().filter(|leaks| !leaks.is_live_snapshot) else { return };
    let (first, last) = (part.stats.first_time_ns.unwrap_or(0), part.stats.last_time_ns.unwrap_or(0));
    let span_ns = last.saturating_sub(first).unsigned_abs();
    let of_peak = |group: &LeakGroup| group.bytes as f64 / part.stats.peak_bytes.max(1) as f64;
    let is_leak = |group: &&LeakGroup| match group.verdict {
        Verdict::Leak => of_peak(group) >= LEAK_WORTH_TELLING,
        Verdict::Candidate => {
            let ages_ns = group.oldest_age_ns.saturating_sub(group.youngest_age_ns);
            of_peak(group) >= WORTH_TRYING && group.blocks >= KEPT_BLOCKS && ages_ns > span_ns / 2
        }
        Verdict::Live => false,
    };
    let found = leaks.groups.iter().filter(|group| group.site != NO_SITE).filter(is_leak);
    let Some(group) = found.max_by_key(|group| group.bytes) else { return };
    let act =
        if group.verdict == Verdict::Leak { "free all" } else { "free some, or bound the number, of the" };
    builder.tell_parts([
        (format!("To try: {act} blocks of ").as_str(), None),
        (short_name(&group.site).as_str(), Some(tab("leaks"))),
        (
            format!(
                ". It freed {} of {} and kept {}",
                format_count(group.freed_blocks),
                counted(group.allocated_blocks, "block"),
                format_bytes(group.bytes)
            )
            .as_str(),
            None,
        ),
    ]);
}

/// Tells how to record with stacks what was recorded without.
fn how_to_find_allocations(builder: &mut Builder, part: &EventsPart) {
    if has_code(part) || part.stats.allocations == 0 || part.leaks.is_none() {
        return;
    }
    let on_device = part.usage.kinds.iter().any(|kind| !matches!(kind, Kind::Pageable | Kind::Mapped));
    let way = if on_device {
        "'floodmark run --gpu -- COMMAND' records CUDA allocations with their stacks; 'floodmark.record()' in \
         Python and floodmark_rmm.hpp in C++ record those of RMM"
    } else {
        "'floodmark run --heap -- COMMAND' records allocations with their stacks"
    };
    builder.tell(&format!("To find the code: {way}"));
}

/// Tells what was seen from outside.
pub(super) fn of_samples(builder: &mut Builder, part: &SamplesPart) {
    let memory = &part.memory;
    let (first, last) = (memory.first_time_ns, memory.last_time_ns);
    let span_ns = first.zip(last).map_or(0, |(first, last)| last.saturating_sub(first).max(0));
    peak_of_run(builder, part, span_ns);
    let total = part.series.iter().find(|series| series.subject.is_none() && series.metric == Metric::Rss);
    if total.is_some_and(|series| grew_steadily(&series.points)) {
        builder.tell("It grew all the time until then");
    }
    if let Some(stack) = &memory.peak_stack {
        let frame =
            stack.frames.first().map_or_else(|| "an unknown place".to_owned(), |frame| short_name(frame));
        let (times, moments) = times_at(part, stack.frames.first().map(String::as_str));
        let more = if times > 1 {
            format!(
                ", as in {} of {} at which stacks were taken",
                format_count(times),
                counted(moments, "moment")
            )
        } else {
            String::new()
        };
        builder.tell_parts([
            (format!("Near the peak {} ({}) was in ", stack.name, stack.pid).as_str(), None),
            (frame.as_str(), Some(tab("stacks"))),
            (more.as_str(), None),
        ]);
    }
    if let Some(process) = memory.process_list.first().filter(|_| memory.processes > 1) {
        builder.tell_parts([
            ("The largest process was ", None),
            (format!("{} ({})", process.name, process.pid).as_str(), Some(tab("processes"))),
            (format!(" with {}", format_bytes(process.peak_rss_bytes)).as_str(), None),
        ]);
    }
    largest_growth(builder, part);
    devices(builder, part);
    if let Some(pss) = memory.peak_pss_bytes.filter(|pss| is_far(*pss, memory.peak_rss_bytes)) {
        let pss = format_bytes(pss);
        builder.tell(&format!("At most {pss} where memory that processes share counts once"));
    }
    if memory.processes > 0 && span_ns > 0 {
        let most = memory.most_processes.filter(|_| memory.processes > 1);
        let most = most.map(|most| format!(", at most {} at once", format_count(most)));
        let noun = if memory.processes == 1 { "process" } else { "processes" };
        let (count, span) = (format_count(memory.processes), format_duration_ns(span_ns.unsigned_abs()));
        builder.tell(&format!("{count} {noun}{} in {span}", most.unwrap_or_default()));
    }
}

/// Returns at how many moments a thread that did not wait was in a function, and how many moments there are.
fn times_at(part: &SamplesPart, frame: Option<&str>) -> (u64, u64) {
    let is_there =
        |thread: &ThreadStack| !thread.is_waiting && thread.frames.first().map(String::as_str) == frame;
    let times = part.stacks.iter().filter(|moment| moment.threads.iter().any(is_there)).count();
    (times as u64, part.stacks.len() as u64)
}

/// Tells how to find the code that holds memory, where only sizes of processes were recorded.
pub(super) fn how_to_find_code(builder: &mut Builder, part: &SamplesPart) {
    let memory = &part.memory;
    if let Some(frame) = memory.peak_stack.as_ref().and_then(|stack| stack.frames.first()) {
        let command = builder.document.command.clone().unwrap_or_else(|| "COMMAND".to_owned());
        let way = format!(" allocates or keeps. 'floodmark run --heap -- {command}' shows how much that is");
        builder.tell_parts([
            ("To try: look at what ", None),
            (short_name(frame).as_str(), Some(tab("stacks"))),
            (way.as_str(), None),
        ]);
    }
    if part.stacks.is_empty() && memory.peak_stack.is_none() && memory.peak_rss_bytes > 0 {
        let command = builder.document.command.clone().unwrap_or_else(|| "COMMAND".to_owned());
        builder.tell(&format!(
            "To find the code: 'floodmark run --heap -- {command}' shows which code holds the memory, and with --stacks \
             in place of --heap which code runs at the peak. No stacks were recorded"
        ));
    }
}

/// Whether a figure differs from another one by more than a fiftieth.
fn is_far(figure: u64, other: u64) -> bool {
    figure.abs_diff(other) > other / 50
}

/// Tells the highest resident memory and its phase.
fn peak_of_run(builder: &mut Builder, part: &SamplesPart, span_ns: i64) {
    let memory = &part.memory;
    if memory.peak_rss_bytes == 0 {
        return;
    }
    let bound = match (memory.peak_is_bound, memory.peak_is_lower_bound) {
        (true, _) => "at most ",
        (false, true) => "at least ",
        (false, false) => "",
    };
    let around = |peak_ns: i64| {
        let (at, margin) = (builder.time(peak_ns), (span_ns / 40).max(1));
        Target {
            span: Some(Part { from: at.saturating_sub(margin).max(0), to: at + margin }),
            ..Target::default()
        }
    };
    let when = memory.peak_time_ns.map_or_else(String::new, |ns| format!(" at {}", after(builder.time(ns))));
    let target = memory.peak_time_ns.map(around);
    let phase =
        memory.peak_phase.and_then(|at| memory.phases.get(at)).map(|phase| phase_name(phase).to_owned());
    let mut parts = vec![
        (format!("Resident memory rose to {bound}"), None),
        (format!("{}{when}", format_bytes(memory.peak_rss_bytes)), target),
    ];
    if let Some(phase) = phase {
        parts.push((", in phase ".into(), None));
        parts.push((phase, Some(tab("phases"))));
    }
    builder.tell_parts(parts.iter().map(|(text, to)| (text.as_str(), to.clone())));
}

/// Tells which phase kept most.
fn largest_growth(builder: &mut Builder, part: &SamplesPart) {
    let phases = part.memory.phases.iter().filter(|phase| phase.end_time_ns.is_some());
    let most = phases.max_by_key(|phase| phase.growth_bytes());
    let Some(phase) = most.filter(|phase| phase.growth_bytes() > 0) else { return };
    let bytes = format_bytes(phase.growth_bytes().unsigned_abs());
    builder.tell_parts([
        ("Phase ", None),
        (phase_name(phase), Some(tab("phases"))),
        (format!(" kept most: {bytes} more at its end than at its start").as_str(), None),
    ]);
}

fn devices(builder: &mut Builder, part: &SamplesPart) {
    let memory = &part.memory;
    for device in &memory.devices {
        let of = device.total_bytes.map(|bytes| format!(" of {}", format_bytes(bytes))).unwrap_or_default();
        let name = if device.name.is_empty() { String::new() } else { format!(" ({})", device.name) };
        let peak = format_bytes(device.peak_bytes);
        builder.tell(&format!("Device {}{name} had {peak}{of} in use at most", device.device));
    }
    let on_devices = memory.process_list.iter().filter_map(|one| Some((one, one.peak_gpu_bytes?)));
    if let Some((process, bytes)) = on_devices.max_by_key(|(_, bytes)| *bytes) {
        let (name, pid, bytes) = (&process.name, process.pid, format_bytes(bytes));
        builder.tell(&format!("{name} ({pid}) had {bytes} of a device's memory at most"));
    }
}
