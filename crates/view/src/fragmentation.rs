//! Fragmentation: free memory between live blocks, and a map of addresses.

use floodmark_analyze::Fragmentation;
use floodmark_analyze::fragmentation::{
    AddressMap, AddressSpaceReport, Basis, FailureCause, GapInfo, MapSegment, Occupancy, RequestAnswer,
};
use floodmark_event::units::{format_bytes, format_count, format_duration_ns};
use unicode_width::UnicodeWidthStr as _;

use crate::blocks::NO_SITE;
use crate::figures::{Clock, bytes_exactly, counted, percent};
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, cut, omitted, wrap};

const HEIGHT: usize = 8;
/// Address spaces that are shown in full.
const SPACES: usize = 3;

impl View for Fragmentation {
    const SCHEMA: &'static str = "floodmark.fragmentation/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        let shown = layout.rows.map_or(self.address_spaces.len(), |_| self.address_spaces.len().min(SPACES));
        if self.address_spaces.is_empty() {
            text.line(wrap("no block has an address, so there are no gaps to look at", layout.width, 2));
        }
        for (at, space) in self.address_spaces[..shown].iter().enumerate() {
            if at > 0 {
                text.blank();
            }
            if self.address_spaces.len() > 1 {
                text.styled(layout.palette.title, cut(&name(space), layout.width));
            }
            text.headline(&headline(space), &percent(space.peak.fragmentation), layout);
            text.blank();
            text.block(instants(space, layout));
            text.block(chart(space, layout));
            if let Some(request) = &space.request {
                text.blank();
                text.block(answer(request, space, layout));
            }
        }
        text.block(omitted((self.address_spaces.len() - shown) as u64, layout));
        if !self.failures.is_empty() {
            text.blank();
            text.block(failures(self, layout));
        }
        if let Some(map) = &self.map {
            text.blank();
            text.block(address_map(map, &self.address_spaces, layout));
        }
        for note in notes(self) {
            text.blank();
            text.line(wrap(&note, layout.width, 0));
        }
        text.text()
    }
}

/// What an address space is called: `device 0, torch segments`.
fn name(space: &AddressSpaceReport) -> String {
    let mut name = match space.device {
        Some(device) => format!("Device {device}"),
        None => "No device".to_owned(),
    };
    if let Some(resource) = &space.resource {
        name = format!("{name}, {}", plain(resource));
    }
    if space.basis == Basis::Inferred {
        name = format!("{name}, {} memory", space.kind.name());
    }
    format!("{name}, process {}", space.process)
}

fn headline(space: &AddressSpaceReport) -> String {
    let peak = &space.peak;
    let held = match space.basis {
        Basis::Segments => "held in segments",
        Basis::Inferred => "of addresses used so far",
    };
    let fill = format!(
        "At the peak {} of {} {held} were live",
        bytes_exactly(peak.live_bytes),
        format_bytes(peak.footprint_bytes)
    );
    if peak.free_bytes == 0 {
        return format!("{fill}; nothing was free");
    }
    format!(
        "{fill}; {} were free in {}, the largest of {}: {} fragmented",
        format_bytes(peak.free_bytes),
        counted(peak.gaps, "gap"),
        format_bytes(peak.largest_gap_bytes),
        percent(peak.fragmentation),
    )
}

fn instants(space: &AddressSpaceReport, layout: &Layout) -> String {
    let clock = Clock::of([space.peak.time_ns, space.worst.time_ns, space.end.time_ns]);
    let mut table = Table::new([
        Column::text(""),
        Column::text("time").rank(2),
        Column::figure("live"),
        Column::figure("blocks").rank(3),
        Column::figure("footprint").rank(1),
        Column::figure("free"),
        Column::figure("gaps"),
        Column::figure("largest"),
        Column::figure("fragmented"),
    ]);
    let mut row = |what: &str, at: &Occupancy| {
        table.row([
            Cell::from(what),
            Cell::from(clock.time(at.time_ns)),
            Cell::from(format_bytes(at.live_bytes)),
            Cell::from(format_count(at.live_blocks)),
            Cell::from(format_bytes(at.footprint_bytes)),
            Cell::from(format_bytes(at.free_bytes)),
            Cell::from(format_count(at.gaps)),
            Cell::from(format_bytes(at.largest_gap_bytes)),
            Cell::from(percent(at.fragmentation)),
        ]);
    };
    row("at the peak", &space.peak);
    if space.worst.scattered_bytes() > 0 {
        row("at its worst", &space.worst);
    }
    row("at the end", &space.end);
    let mean = format!("mean over time: {} fragmented", percent(space.mean_fragmentation));
    table.text(layout) + &format!("  {}\n", styled(layout.palette.faint, cut(&mean, layout.width - 2)))
}

/// Draws free bytes over time: solid up to the largest gap, light for the other gaps.
fn chart(space: &AddressSpaceReport, layout: &Layout) -> String {
    let top = space.timeline.iter().map(|point| point.free_bytes).max().unwrap_or(0);
    if space.worst.scattered_bytes() == 0 || space.timeline.len() < 3 {
        return String::new();
    }
    let label = format_bytes(top);
    let margin = label.width().max(3);
    let columns = layout.width.saturating_sub(margin + 4).clamp(10, 120);
    let instants = columns_of(space, columns);
    let palette = &layout.palette;
    let mut text = Lines::default();
    text.blank();
    let title = "Free bytes over time: solid is the largest gap, light what is strewn beside it";
    text.styled(palette.title, cut(title, layout.width));
    for (at, line) in curve(&instants, top).iter().enumerate() {
        let (label, axis) = if at == 0 { (label.as_str(), "┤") } else { ("", "│") };
        let axis = styled(palette.faint, format!("{label:>margin$} {axis}"));
        text.line(format!("  {axis}{}", styled(palette.bar, line)));
    }
    let axis = format!("{:>margin$} └{}", "0 B", "─".repeat(columns));
    text.line(format!("  {}", styled(palette.faint, axis)));
    let span_ns = space.end_time_ns.abs_diff(space.first_time_ns);
    let span = format!("+{}", format_duration_ns(span_ns));
    let clock = Clock::of([space.first_time_ns, space.end_time_ns]);
    let start = clock.time(space.first_time_ns);
    let room = columns.saturating_sub(start.width() + span.width());
    text.line(format!("  {}", styled(palette.faint, format!("{:margin$}  {start}{:room$}{span}", "", ""))));
    text.text()
}

/// Draws free bytes, top line first: solid up to the largest gap, light above.
fn curve(instants: &[Option<Occupancy>], top: u64) -> Vec<String> {
    let lines = |bytes: u64| bytes as f64 / top as f64 * HEIGHT as f64;
    let cell = |line: usize, at: &Option<Occupancy>| {
        let Some(at) = at else { return ' ' };
        let (largest, free) = (lines(at.largest_gap_bytes), lines(at.free_bytes));
        match line as f64 + 0.5 {
            middle if largest >= middle => '█',
            middle if free >= middle => '░',
            _ if line == 0 && at.free_bytes > 0 => '▁',
            _ => ' ',
        }
    };
    let line = |line: usize| {
        let text: String = instants.iter().map(|at| cell(line, at)).collect();
        text.trim_end().to_owned()
    };
    (0..HEIGHT).rev().map(line).collect()
}

/// Of every column the instant with most scattered bytes; a state holds until the next.
fn columns_of(space: &AddressSpaceReport, columns: usize) -> Vec<Option<Occupancy>> {
    let from = space.first_time_ns;
    let length = u128::from(space.end_time_ns.abs_diff(from)) + 1;
    let column = |time_ns: i64| {
        ((u128::from(time_ns.abs_diff(from)) * columns as u128 / length) as usize).min(columns - 1)
    };
    let mut instants: Vec<Option<Occupancy>> = vec![None; columns];
    for (at, point) in space.timeline.iter().enumerate() {
        let first = column(point.time_ns);
        // In the column of the next one that one tells.
        let end = space.timeline.get(at + 1).map_or(columns, |next| column(next.time_ns)).max(first + 1);
        for instant in &mut instants[first..end] {
            if instant.is_none_or(|other| point.scattered_bytes() >= other.scattered_bytes()) {
                *instant = Some(*point);
            }
        }
    }
    instants
}

fn answer(request: &RequestAnswer, space: &AddressSpaceReport, layout: &Layout) -> String {
    let asked = bytes_exactly(request.bytes);
    let times = request.longest_misfits.iter().flat_map(|spell| [spell.from_ns, spell.to_ns]);
    let clock =
        Clock::of(times.chain(request.first_misfit_ns).chain([space.first_time_ns, space.end_time_ns]));
    let otherwise = match space.basis {
        Basis::Segments => "a new segment",
        Basis::Inferred => "memory that had not been handed out before",
    };
    let mut text = Lines::default();
    let mut sentence = format!(
        "A request of {asked} would have fitted into a gap {} of the time",
        percent(request.fitted_share)
    );
    if request.misfits == 0 {
        sentence += ", whenever it had come.";
    } else {
        let at_peak = if request.fits_at_peak { "would" } else { "would not" };
        sentence = format!("{sentence}, and {at_peak} at the peak; else it would have needed {otherwise}.");
    }
    text.headline(&sentence, &asked, layout);
    if request.misfits > 0 {
        let first = request.first_misfit_ns.map_or_else(String::new, |first| clock.time(first));
        let sentence = match request.misfits {
            1 => "There was one spell in which it did not fit:".to_owned(),
            many => format!(
                "There were {} spells in which it did not fit, the first from {first}; the longest:",
                format_count(many)
            ),
        };
        text.line(wrap(&sentence, layout.width, 2));
        let mut table = Table::new([Column::text("from"), Column::text("to"), Column::figure("for")]);
        let mut spells = request.longest_misfits.clone();
        spells.sort_by_key(|spell| std::cmp::Reverse(spell.to_ns.abs_diff(spell.from_ns)));
        spells.truncate(layout.rows.unwrap_or(usize::MAX));
        spells.sort_by_key(|spell| spell.from_ns);
        for spell in &spells {
            table.row([
                Cell::from(clock.time(spell.from_ns)),
                Cell::from(clock.time(spell.to_ns)),
                Cell::from(format_duration_ns(spell.to_ns.abs_diff(spell.from_ns))),
            ]);
        }
        text.block(table.text(layout));
    }
    text.text()
}

fn failures(result: &Fragmentation, layout: &Layout) -> String {
    let (shown, left) = layout.first(&result.failures);
    let clock = Clock::of(shown.iter().map(|failure| failure.time_ns));
    let mut table = Table::new([
        Column::text("time").rank(1),
        Column::figure("asked"),
        Column::figure("free"),
        Column::figure("largest gap"),
        Column::text("cause"),
        Column::long("site"),
    ]);
    for failure in shown {
        let palette = &layout.palette;
        let style = if failure.cause == FailureCause::Fragmentation { palette.bad } else { palette.doubtful };
        table.row([
            Cell::from(clock.time(failure.time_ns)),
            Cell::from(format_bytes(failure.asked_bytes)),
            Cell::from(format_bytes(failure.free_bytes)),
            Cell::from(format_bytes(failure.largest_gap_bytes)),
            Cell::from(failure.cause.name()).styled(style),
            Cell::from(&failure.site),
        ]);
    }
    let any_site = shown.iter().any(|failure| failure.site != NO_SITE);
    table.keep(&[true, true, true, true, true, any_site]);
    let mut text = Lines::default();
    let total = result.failures.len() as u64 + result.failures_omitted;
    let title = format!(
        "{} failed: {} by fragmentation, {} by exhaustion",
        counted(total, "allocation"),
        format_count(result.failed_by_fragmentation),
        format_count(result.failed_by_exhaustion),
    );
    text.styled(layout.palette.title, cut(&title, layout.width));
    text.block(table.text(layout));
    text.block(omitted(left + result.failures_omitted, layout));
    text.text()
}

fn address_map(map: &AddressMap, address_spaces: &[AddressSpaceReport], layout: &Layout) -> String {
    let clock = Clock::of([]);
    let mut text = Lines::default();
    text.styled(
        layout.palette.title,
        cut(&format!("Addresses at {}", clock.time(map.time_ns)), layout.width),
    );
    text.line(wrap("█ live, ▓ ▒ ░ live in part, · free", layout.width, 0));
    let mut segments: Vec<&MapSegment> = map.segments.iter().collect();
    segments
        .sort_by_key(|segment| (segment.address_space, std::cmp::Reverse(segment.bytes), segment.address));
    let (shown, left) = layout.first(&segments);
    let mut shown = shown.to_vec();
    shown.sort_by_key(|segment| (segment.address_space, segment.address));
    for segment in &shown {
        let address = format!("{:#x}", segment.address);
        let room = layout.width.saturating_sub(address.width() + 4).clamp(10, 120);
        let bar = cells(segment, room);
        text.line(format!("  {address}  {}", styled(layout.palette.bar, bar)));
    }
    text.blank();
    let all_inferred = address_spaces.iter().all(|space| space.basis == Basis::Inferred);
    let title = if all_inferred { "region" } else { "segment" };
    text.block(segment_table(title, &shown, layout));
    text.block(omitted(left, layout));
    if !map.largest_gaps.is_empty() {
        text.blank();
        text.styled(layout.palette.title, "Largest gaps");
        text.block(gap_table(&map.largest_gaps, layout));
    }
    text.text()
}

/// A character per slice of a segment, by how much of it is live.
fn cells(segment: &MapSegment, width: usize) -> String {
    const SHADES: [char; 3] = ['░', '▒', '▓'];
    let edge = |at: usize| segment.address + (u128::from(segment.bytes) * at as u128 / width as u128) as u64;
    let cell = |at: usize| {
        let (from, to) = (edge(at), edge(at + 1));
        if from == to {
            // Fewer bytes than cells: the byte that is here tells.
            let free = segment.gaps.iter().any(|gap| (gap.address..gap.address + gap.bytes).contains(&from));
            return if free { '·' } else { '█' };
        }
        let first = segment.gaps.partition_point(|gap| gap.address + gap.bytes <= from);
        let within = segment.gaps[first..].iter().take_while(|gap| gap.address < to);
        let free: u64 = within.map(|gap| (gap.address + gap.bytes).min(to) - gap.address.max(from)).sum();
        let live = (to - from) - free;
        match live {
            0 => '·',
            _ if free == 0 => '█',
            _ => SHADES[((live as f64 / (to - from) as f64 * 3.0) as usize).min(2)],
        }
    };
    (0..width).map(cell).collect()
}

fn segment_table(title: &str, segments: &[&MapSegment], layout: &Layout) -> String {
    let mut table = Table::new([
        Column::text(title),
        Column::figure("bytes"),
        Column::figure("live"),
        Column::figure("blocks").rank(1),
        Column::figure("free"),
        Column::figure("gaps"),
        Column::figure("largest"),
    ]);
    for segment in segments {
        let largest = segment.gaps.iter().map(|gap| gap.bytes).max().unwrap_or(0);
        table.row([
            Cell::from(format!("{:#x}", segment.address)),
            Cell::from(format_bytes(segment.bytes)),
            Cell::from(format_bytes(segment.live_bytes)),
            Cell::from(format_count(segment.live_blocks)),
            Cell::from(format_bytes(segment.bytes - segment.live_bytes)),
            Cell::from(format_count(segment.gaps.len() as u64)),
            Cell::from(format_bytes(largest)),
        ]);
    }
    table.text(layout)
}

fn gap_table(gaps: &[GapInfo], layout: &Layout) -> String {
    let (shown, _) = layout.first(gaps);
    let mut table = Table::new([
        Column::text("gap"),
        Column::figure("bytes"),
        Column::long("after"),
        Column::long("before"),
    ]);
    let beside = |block: &Option<floodmark_analyze::BlockInfo>, edge: &str| match block {
        None => edge.to_owned(),
        Some(block) if block.site == NO_SITE => {
            format!("{} of thread {}", format_bytes(block.bytes), block.thread)
        }
        Some(block) => format!("{} {}", format_bytes(block.bytes), block.site),
    };
    for gap in shown {
        table.row([
            Cell::from(format!("{:#x}", gap.gap.address)),
            Cell::from(format_bytes(gap.gap.bytes)),
            Cell::from(beside(&gap.before, "(start)")),
            Cell::from(beside(&gap.after, "(end)")),
        ]);
    }
    table.text(layout)
}

fn notes(result: &Fragmentation) -> Vec<String> {
    let mut notes = Vec::new();
    if result.address_spaces.iter().any(|space| space.basis == Basis::Inferred) {
        notes.push(format!(
            "The source does not say which memory its allocator holds. The footprint is what blocks have covered so \
             far, with holes up to {} between them; what was free beyond that is not known.",
            format_bytes(result.join_bytes)
        ));
    }
    let bad = [
        (result.overlapping_blocks, "block", "overlap live ones or the end of their segment"),
        (result.overlapping_segments, "segment", "overlap others"),
        (result.orphaned_blocks, "block", "outlived their segment"),
    ];
    let left_out = bad.iter().filter(|(count, ..)| *count > 0);
    notes.extend(left_out.map(|(count, what, why)| {
        let verb = if *count == 1 {
            why.replacen("overlap", "overlaps", 1).replacen("their", "its", 1)
        } else {
            (*why).to_owned()
        };
        format!("{} {verb} and {} left out.", counted(*count, what), if *count == 1 { "was" } else { "were" })
    }));
    notes
}
