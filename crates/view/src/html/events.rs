//! What allocations and frees tell, as the page shows it.

use floodmark_analyze::fragmentation::{AddressSpaceReport, Basis, Occupancy};
use floodmark_analyze::{
    BlockInfo, ExcludeReason, GroupBy, PoolUse, Usage, UsagePoint, Verdict, active_part,
};
use floodmark_event::Kind;
use floodmark_event::units::{format_bytes, format_count, format_duration_ns};

use super::build::{Builder, cut, heads, reduction_note};
use super::data::{Cell, CellKind, Chart, Detail, Part, PeakAt, Severity, Table};
use super::{EventsPart, snapshots, story};
use crate::blocks::NO_SITE;
use crate::figures::{bytes_exactly, counted, mean_bytes};
use crate::report::caveat_sentences;

/// Lines of places that are drawn.
const PLACES: usize = 10;
/// Sites that are findings of their own.
const LEAKS_TOLD: usize = 5;

/// First and last instant.
pub(super) fn span(part: &EventsPart) -> Option<(i64, i64)> {
    let first = part.stats.first_time_ns?;
    Some((first, part.usage.end_time_ns.or(part.stats.last_time_ns)?.max(first)))
}

/// Adds all of it.
pub(super) fn add(builder: &mut Builder, part: &EventsPart) {
    story::of_events(builder, part);
    findings(builder, part);
    chart(builder, &part.usage);
    places(builder, part);
    fragmentation(builder, part);
    snapshots::add(builder, &part.snapshots);
    sites(builder, part);
    blocks(builder, part);
    snapshots::functions(builder, &part.snapshots);
    groups(builder, part);
    pools(builder, part);
    reported(builder, part);
    leaks(builder, part);
    churn(builder, part);
    sizes(builder, part);
    ledgers(builder, part);
    facts(builder, part);
}

fn findings(builder: &mut Builder, part: &EventsPart) {
    let stats = &part.stats;
    if stats.failures > 0 {
        builder.find(
            Severity::Bad,
            format!(
                "{} failed; the largest asked for {}.",
                counted(stats.failures, "allocation"),
                format_bytes(stats.largest_failure_bytes)
            ),
        );
    }
    let groups = part.leaks.iter().flat_map(|leaks| &leaks.groups);
    let proven = groups.filter(|group| group.verdict == Verdict::Leak);
    for group in proven.take(LEAKS_TOLD) {
        let blocks = counted(group.blocks, "block");
        let bytes = format_bytes(group.bytes);
        builder.find(Severity::Bad, format!("{} leaks {bytes} in {blocks}: {}.", group.site, group.reason));
    }
    for excluded in part.leaks.iter().flat_map(|leaks| &leaks.excluded) {
        builder.find(Severity::Note, format!("{} in {}.", format_bytes(excluded.bytes), excluded.why));
    }
    let excluded = |kind: Kind| {
        let mut reasons = part.leaks.iter().flat_map(|leaks| &leaks.excluded).map(|excluded| excluded.reason);
        match kind {
            Kind::Static => reasons.any(|reason| reason == ExcludeReason::Static),
            Kind::Reserved => reasons.any(|reason| reason == ExcludeReason::Reserved),
            _ => false,
        }
    };
    for other in stats.others.iter().filter(|other| !excluded(other.kind)) {
        builder.find(
            Severity::Note,
            format!(
                "The figures do not include {} memory: peak {}, {} live at the end.",
                other.kind.name(),
                format_bytes(other.peak_bytes),
                format_bytes(other.live_bytes)
            ),
        );
    }
    for sentence in caveat_sentences(&part.caveats) {
        builder.find(Severity::Doubtful, sentence);
    }
}

/// Live bytes over time.
pub(super) fn chart(builder: &mut Builder, usage: &Usage) {
    let names: Vec<&str> = usage.kinds.iter().map(|kind| kind.name()).collect();
    let name = if names.is_empty() { "live bytes".to_owned() } else { names.join(" + ") };
    let mut series = vec![builder.series(&name, &usage.points, usage.end_time_ns)];
    for other in usage.others.iter().filter(|other| !other.points.is_empty()) {
        series.push(builder.series(other.kind.name(), &other.points, usage.end_time_ns));
    }
    // Where the line has it: a clock may go back, an axis does not.
    let before = usage.points.iter().take_while(|point| point.live_bytes < usage.peak_bytes);
    let latest = before.map(|point| point.time_ns).max();
    let peak = usage.peak_time_ns.map(|at| PeakAt {
        time: builder.time(latest.map_or(at, |latest| latest.max(at))),
        bytes: usage.peak_bytes,
    });
    let note = reduction_note(usage.interval_ns);
    builder.document.active = active(builder, usage);
    builder.document.charts.push(Chart {
        title: "Live bytes".into(),
        note,
        series,
        peak,
        ..Chart::default()
    });
}

/// The part in which something happens.
fn active(builder: &Builder, usage: &Usage) -> Option<Part> {
    let (from, to) = active_part(&usage.points, usage.end_time_ns?)?;
    Some(Part { from: builder.time(from), to: builder.time(to) })
}

fn sites(builder: &mut Builder, part: &EventsPart) {
    let mut table = Table {
        id: "sites",
        title: "Who held memory at the peak".into(),
        note: "By site: the innermost place in the program's own code. A row opens to its stacks.".into(),
        still: true,
        columns: heads([
            ("site", CellKind::Code),
            ("bytes", CellKind::Bytes),
            ("share", CellKind::Share),
            ("blocks", CellKind::Count),
            ("stacks", CellKind::Count),
        ]),
        ..Table::default()
    };
    for site in &part.holders {
        let stacks = site.stacks.len() as u64 + site.stacks_omitted;
        let details = site.stacks.iter().map(|stack| Detail {
            text: format!("{} in {}", format_bytes(stack.bytes), counted(stack.blocks, "block")),
            stack: builder.stack(&stack.stack),
        });
        table.details.push(details.collect());
        table.rows.push(vec![
            cut(&site.site).into(),
            site.bytes.into(),
            site.share.into(),
            site.blocks.into(),
            stacks.into(),
        ]);
    }
    builder.table(table);
}

fn groups(builder: &mut Builder, part: &EventsPart) {
    for grouping in &part.watermark.groups {
        // One group says nothing that the peak itself does not.
        if grouping.groups.len() < 2 {
            continue;
        }
        let (id, title) = match grouping.by {
            GroupBy::Thread => ("threads", "The peak by thread"),
            GroupBy::Stream => ("streams", "The peak by stream"),
            GroupBy::Size => ("block-sizes", "The peak by size of block"),
            GroupBy::Device => ("devices", "The peak by device"),
            GroupBy::Process => ("processes-held", "The peak by process"),
            GroupBy::Name => ("names", "The peak by name"),
            _ => continue,
        };
        let by_size = grouping.by == GroupBy::Size;
        let kind = if by_size { CellKind::Bytes } else { CellKind::Code };
        let rows = grouping.groups.iter().map(|group| {
            let key = match group.key.parse::<u64>() {
                Ok(bytes) if by_size => Cell::from(bytes),
                _ => cut(&group.key).into(),
            };
            vec![key, group.bytes.into(), group.share.into(), group.blocks.into()]
        });
        let rows = rows.collect();
        let columns = heads([
            (grouping.by.name(), kind),
            ("bytes", CellKind::Bytes),
            ("share", CellKind::Share),
            ("blocks", CellKind::Count),
        ]);
        builder.table(Table { id, title: title.into(), columns, rows, ..Table::default() });
    }
}

/// What pools of stream-ordered allocation reserved at the peak, beside what was in use.
fn pools(builder: &mut Builder, part: &EventsPart) {
    let pools = &part.watermark.pools;
    if pools.is_empty() {
        return;
    }
    let sum = |bytes: fn(&PoolUse) -> u64| pools.iter().map(bytes).fold(0, u64::saturating_add);
    let (reserved, used) = (sum(|pool| pool.reserved_bytes), sum(|pool| pool.used_bytes));
    if reserved > 0 {
        let (reserved, used) = (format_bytes(reserved), format_bytes(used));
        let pools = counted(pools.iter().filter(|pool| pool.reserved_bytes > 0).count() as u64, "pool");
        let note = format!("At the peak {pools} reserved {reserved}, of which {used} was in use.");
        builder.find(Severity::Note, note);
    }
    let row = |pool: &PoolUse| {
        vec![
            cut(&pool.name).into(),
            cut(&pool.process).into(),
            pool.reserved_bytes.into(),
            pool.used_bytes.into(),
            pool.reserved_bytes.saturating_sub(pool.used_bytes).into(),
            pool.peak_reserved_bytes.into(),
            pool.peak_used_bytes.into(),
        ]
    };
    let rows = pools.iter().map(row).collect();
    let columns = heads([
        ("pool", CellKind::Code),
        ("process", CellKind::Code),
        ("reserved", CellKind::Bytes),
        ("in use", CellKind::Bytes),
        ("not in use", CellKind::Bytes),
        ("most reserved", CellKind::Bytes),
        ("most in use", CellKind::Bytes),
    ]);
    let title = "Pools".into();
    let note = "What they reserved and what of it was in use, at the peak and at most.".into();
    builder.table(Table { id: "pools", title, note, columns, rows, ..Table::default() });
}

/// What devices reported when most was tracked on them.
fn reported(builder: &mut Builder, part: &EventsPart) {
    let Some(overlay) = part.overlay.as_ref().filter(|overlay| !overlay.devices.is_empty()) else { return };
    for device in &overlay.devices {
        let at = &device.at_peak;
        let not_tracked = u64::try_from(at.residual_bytes).unwrap_or(0);
        builder.find(
            Severity::Note,
            format!(
                "With {} tracked on device {}, {} was in use there: {} is not tracked ({}).",
                format_bytes(at.tracked_bytes),
                device.device,
                format_bytes(at.used_bytes),
                format_bytes(not_tracked),
                overlay.residual
            ),
        );
    }
    let rows = overlay.devices.iter().map(|device| {
        let at = &device.at_peak;
        vec![
            i64::from(device.device).into(),
            builder.time_cell(Some(at.time_ns)),
            at.tracked_bytes.into(),
            at.used_bytes.into(),
            at.residual_bytes.into(),
        ]
    });
    let rows = rows.collect();
    let columns = heads([
        ("device", CellKind::Number),
        ("at", CellKind::Time),
        ("tracked", CellKind::Bytes),
        ("reported", CellKind::Bytes),
        ("not tracked", CellKind::Bytes),
    ]);
    let title = "What devices reported when most was tracked".into();
    let note = "From the log of nvidia-smi that was given with --smi.".into();
    builder.table(Table { id: "reported", title, note, columns, rows, ..Table::default() });
}

fn blocks(builder: &mut Builder, part: &EventsPart) {
    let mut table = Table {
        id: "blocks",
        title: "Largest blocks at the peak".into(),
        still: true,
        columns: heads([
            ("bytes", CellKind::Bytes),
            ("address", CellKind::Code),
            ("allocated", CellKind::Time),
            ("thread", CellKind::Number),
            ("stream", CellKind::Code),
            ("site or name", CellKind::Code),
        ]),
        omitted: part.watermark.blocks_omitted,
        ..Table::default()
    };
    // A column of nothing says nothing.
    let is_placed = |block: &BlockInfo| block.site != NO_SITE || block.name.is_some();
    let has_places = part.watermark.blocks.iter().any(is_placed);
    if !has_places {
        table.columns.pop();
    }
    for block in &part.watermark.blocks {
        table.details.push(details(builder, block));
        let site = match &block.name {
            Some(name) if block.site == NO_SITE => name,
            _ => &block.site,
        };
        let mut row: Vec<Cell> = vec![
            block.bytes.into(),
            format!("{:#x}", block.address).into(),
            builder.time_cell(Some(block.time_ns)),
            block.thread.into(),
            format!("{:#x}", block.stream).into(),
        ];
        row.extend(has_places.then(|| cut(site).into()));
        table.rows.push(row);
    }
    builder.table(table);
}

fn details(builder: &mut Builder, block: &BlockInfo) -> Vec<Detail> {
    if block.stack.is_empty() {
        return Vec::new();
    }
    vec![Detail { text: format_bytes(block.bytes), stack: builder.stack(&block.stack) }]
}

fn leaks(builder: &mut Builder, part: &EventsPart) {
    let Some(leaks) = &part.leaks else { return };
    let mut table = Table {
        id: "leaks",
        title: if leaks.is_live_snapshot { "Live at the snapshot" } else { "Never freed" }.into(),
        note: "A leak is what a site kept that frees most of its blocks; a candidate is what was live at the \
               end, and nothing says that it would have been freed. A row opens to the stack of its largest block."
            .into(),
        columns: heads([
            ("site", CellKind::Code),
            ("verdict", CellKind::Text),
            ("bytes", CellKind::Bytes),
            ("share", CellKind::Share),
            ("blocks", CellKind::Count),
            ("oldest", CellKind::Duration),
            ("why", CellKind::Text),
        ]),
        ..Table::default()
    };
    for group in &leaks.groups {
        let largest = leaks.blocks.iter().find(|leaked| leaked.block.site == group.site);
        table.details.push(largest.map_or_else(Vec::new, |leaked| details(builder, &leaked.block)));
        table.rows.push(vec![
            cut(&group.site).into(),
            group.verdict.name().into(),
            group.bytes.into(),
            group.share.into(),
            group.blocks.into(),
            group.oldest_age_ns.into(),
            group.reason.as_str().into(),
        ]);
    }
    builder.table(table);
}

/// Live bytes of every process and device by itself, where there are several.
fn places(builder: &mut Builder, part: &EventsPart) {
    if part.by_domain.len() < 2 {
        return;
    }
    let series = part
        .by_domain
        .iter()
        .take(PLACES)
        .map(|(name, points)| builder.series(name, points, part.usage.end_time_ns))
        .collect();
    let more = part.by_domain.len().saturating_sub(PLACES) as u64;
    let note = match more {
        0 => String::new(),
        more => format!("{} with less are left out.", counted(more, "place")),
    };
    let title = "Live bytes by process, device and kind".into();
    builder.document.charts.push(Chart { title, note, series, ..Chart::default() });
}

fn churn(builder: &mut Builder, part: &EventsPart) {
    let lifetimes = &part.lifetimes;
    if lifetimes.churned_blocks == 0 {
        return;
    }
    let shown = lifetimes.sites.iter().filter(|site| site.churned_blocks > 0);
    let rows = shown.map(|site| {
        vec![
            cut(&site.site).into(),
            site.churned_blocks.into(),
            site.churned_bytes.into(),
            site.churn.into(),
            site.blocks.into(),
            site.bytes.into(),
            site.median_ns.into(),
        ]
    });
    let rows = rows.collect();
    builder.table(Table {
        id: "churn",
        title: "Churn".into(),
        note: format!(
            "Blocks that lived shorter than {}: {} in {}. Reusing them would save allocations.",
            format_duration_ns(lifetimes.threshold_ns),
            format_bytes(lifetimes.churned_bytes),
            counted(lifetimes.churned_blocks, "block"),
        ),
        columns: heads([
            ("site", CellKind::Code),
            ("churned blocks", CellKind::Count),
            ("churned bytes", CellKind::Bytes),
            ("share", CellKind::Share),
            ("blocks", CellKind::Count),
            ("bytes", CellKind::Bytes),
            ("median life, about", CellKind::Duration),
        ]),
        rows,
        omitted: lifetimes.sites_omitted,
        ..Table::default()
    });
}

/// Free bytes between live blocks over time, of the address space with the highest live bytes.
fn fragmentation(builder: &mut Builder, part: &EventsPart) {
    // Gaps between blocks that the driver placed belong to no allocator and say nothing.
    let is_owned = |space: &&AddressSpaceReport| space.basis == Basis::Segments || space.resource.is_some();
    let Some(space) = part.fragmentation.address_spaces.first().filter(is_owned) else { return };
    if space.timeline.len() < 2 {
        return;
    }
    let line = |bytes: fn(&Occupancy) -> u64| -> Vec<UsagePoint> {
        let points = space.timeline.iter();
        points.map(|at| UsagePoint { time_ns: at.time_ns, live_bytes: bytes(at) }).collect()
    };
    let series = [("free", line(|at| at.free_bytes)), ("largest gap", line(|at| at.largest_gap_bytes))];
    let series = series.map(|(name, points)| builder.series(name, &points, Some(space.end_time_ns))).into();
    let known = match space.basis {
        Basis::Segments => "of the segments that the allocator held",
        Basis::Inferred => "of the addresses that blocks had covered so far",
    };
    builder.document.charts.push(Chart {
        title: "Free bytes between live blocks".into(),
        note: format!(
            "Free bytes {known}, and the largest gap among them: a larger request does not fit. Of every \
             interval the instant with most free bytes outside the largest gap is drawn."
        ),
        series,
        ..Chart::default()
    });
}

fn sizes(builder: &mut Builder, part: &EventsPart) {
    let stats = &part.stats;
    let all = stats.size.count.max(1) as f64;
    let rows = stats.histogram.iter().map(|bar| {
        vec![
            bar.from_bytes.into(),
            bar.to_bytes.into(),
            bar.count.into(),
            (bar.count as f64 / all).into(),
            bar.bytes.into(),
        ]
    });
    let size = &stats.size;
    let whole = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), format_bytes);
    builder.table(Table {
        id: "sizes",
        title: "Sizes of allocations".into(),
        note: format!(
            "Smallest {}, median {}, mean {}, largest {}.",
            whole(size.min),
            mean_bytes(size.p50),
            mean_bytes(size.mean),
            whole(size.max)
        ),
        columns: heads([
            ("from", CellKind::Bytes),
            ("below", CellKind::Bytes),
            ("allocations", CellKind::Count),
            ("share", CellKind::Share),
            ("bytes", CellKind::Bytes),
        ]),
        rows: rows.collect(),
        ..Table::default()
    });
}

fn ledgers(builder: &mut Builder, part: &EventsPart) {
    if part.stats.ledgers.len() < 2 {
        return;
    }
    let rows = part.stats.ledgers.iter().map(|ledger| {
        vec![
            u64::from(ledger.process).into(),
            ledger.device.map(i64::from).into(),
            ledger.kind.name().into(),
            ledger.resource.as_deref().into(),
            ledger.peak_bytes.into(),
            ledger.live_bytes.into(),
            ledger.allocations.into(),
            ledger.failures.into(),
        ]
    });
    let rows = rows.collect();
    builder.table(Table {
        id: "ledgers",
        title: "By process, device, kind and resource".into(),
        columns: heads([
            ("process", CellKind::Number),
            ("device", CellKind::Number),
            ("kind", CellKind::Text),
            ("resource", CellKind::Code),
            ("peak", CellKind::Bytes),
            ("live at the end", CellKind::Bytes),
            ("allocations", CellKind::Count),
            ("failures", CellKind::Count),
        ]),
        rows,
        ..Table::default()
    });
}

fn facts(builder: &mut Builder, part: &EventsPart) {
    let stats = &part.stats;
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut fact = |name: &str, value: String| rows.push(vec![name.into(), value.into()]);
    fact("peak", bytes_exactly(stats.peak_bytes));
    fact("blocks at the peak", format_count(stats.peak_blocks));
    fact("most blocks at once", format_count(stats.most_blocks));
    fact(
        "live at the end",
        format!("{} in {}", bytes_exactly(stats.live_bytes), counted(stats.live_blocks, "block")),
    );
    fact("allocated in all", bytes_exactly(stats.total_bytes));
    fact("allocations", format_count(stats.allocations));
    fact("frees", format_count(stats.frees));
    fact("failures", format_count(stats.failures));
    if stats.cross_thread_frees > 0 {
        fact("frees by another thread", format_count(stats.cross_thread_frees));
    }
    if stats.address_reuses > 0 {
        fact("allocations at a re-used address", format_count(stats.address_reuses));
    }
    let columns = heads([("what", CellKind::Text), ("value", CellKind::Text)]);
    builder.table(Table { id: "facts", title: "Figures".into(), columns, rows, ..Table::default() });
}
