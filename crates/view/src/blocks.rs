//! Lists of blocks, shared by the reports that name them.

use std::fmt::Write as _;

use floodmark_analyze::{BlockInfo, LeakedBlock};
use floodmark_event::units::{format_bytes, format_duration_ns};

use crate::events::quoted;
use crate::figures::Clock;
use crate::layout::Layout;
use crate::plain::plain;
use crate::table::{Cell, Column, Table, omitted};

/// What stands for the site of blocks without one.
pub(crate) const NO_SITE: &str = floodmark_analyze::site::NO_SITE;

/// Lays out blocks, largest first as given; `omitted_blocks` more exist.
pub(crate) fn block_table(blocks: &[BlockInfo], omitted_blocks: u64, layout: &Layout) -> String {
    table(&blocks.iter().map(|block| (block, None)).collect::<Vec<_>>(), omitted_blocks, layout)
}

/// Lays out blocks with their ages.
pub(crate) fn leak_table(blocks: &[LeakedBlock], omitted_blocks: u64, layout: &Layout) -> String {
    let blocks: Vec<_> = blocks.iter().map(|leak| (&leak.block, Some(leak.age_ns))).collect();
    table(&blocks, omitted_blocks, layout)
}

fn table(blocks: &[(&BlockInfo, Option<u64>)], omitted_blocks: u64, layout: &Layout) -> String {
    let (shown, left) = layout.first(blocks);
    let clock = Clock::of(shown.iter().map(|(block, _)| block.time_ns));
    let mut table = Table::new([
        Column::text("address"),
        Column::figure("bytes"),
        Column::text("allocated").rank(1),
        Column::figure("age"),
        Column::figure("thread").rank(2),
        Column::text("stream").rank(3),
        Column::figure("device").rank(4),
        Column::figure("process").rank(5),
        Column::text("kind").rank(6),
        Column::long("name"),
        Column::long("resource").rank(7),
        Column::long("site"),
    ]);
    for (block, age_ns) in shown {
        let optional = |text: &Option<String>| text.clone().unwrap_or_default();
        table.row([
            Cell::from(format!("{:#x}", block.address)),
            Cell::from(format_bytes(block.bytes)),
            Cell::from(clock.time(block.time_ns)),
            Cell::from(age_ns.map_or_else(String::new, format_duration_ns)),
            Cell::from(block.thread.to_string()),
            Cell::from(stream(block.stream)),
            Cell::from(block.device.map_or_else(|| "-".into(), |device| device.to_string())),
            Cell::from(block.process.to_string()),
            Cell::from(block.kind.name()),
            Cell::from(optional(&block.name)),
            Cell::from(optional(&block.resource)),
            Cell::from(&block.site),
        ]);
    }
    let any = |is: &dyn Fn(&BlockInfo) -> bool| shown.iter().any(|(block, _)| is(block));
    let aged = shown.iter().any(|(_, age_ns)| age_ns.is_some());
    // A column that says the same of every block says nothing.
    table.keep(&[
        true,
        true,
        true,
        aged,
        any(&|block| block.thread != 0),
        any(&|block| block.stream != 0),
        table.varies(6),
        table.varies(7),
        table.varies(8),
        any(&|block| block.name.as_ref().is_some_and(|name| *name != block.site)),
        table.varies(10),
        any(&|block| block.site != NO_SITE),
    ]);
    table.text(layout) + &omitted(omitted_blocks + left, layout)
}

/// Blocks as CSV with a header; stacks are innermost first.
pub fn csv(blocks: &[BlockInfo]) -> String {
    let mut text =
        "address,bytes,time_ns,process,thread,device,stream,kind,resource,name,scope,site,stack\n".to_owned();
    for block in blocks {
        let optional = |text: &Option<String>| quoted(text.as_deref().unwrap_or_default());
        let _ = writeln!(
            text,
            "{:#x},{},{},{},{},{},{:#x},{},{},{},{},{},{}",
            block.address,
            block.bytes,
            block.time_ns,
            block.process,
            block.thread,
            block.device.map_or_else(String::new, |device| device.to_string()),
            block.stream,
            block.kind.name(),
            optional(&block.resource),
            optional(&block.name),
            block.scope,
            quoted(if block.site == NO_SITE { "" } else { &block.site }),
            quoted(&block.stack.join(";")),
        );
    }
    text
}

/// A stream as RMM writes it: `0` for the default stream, else hexadecimal.
pub(crate) fn stream(stream: u64) -> String {
    if stream == 0 { "0".into() } else { format!("{stream:#x}") }
}

/// A block in one line: `500 B at 0x7f0000000c00 from 10:00:00.000003, thread 202, stream 0x1, device 0`.
pub fn block_line(block: &BlockInfo) -> String {
    let mut line = format!(
        "{} at {:#x} from {}",
        format_bytes(block.bytes),
        block.address,
        floodmark_event::units::format_time_ns(block.time_ns)
    );
    if block.thread != 0 {
        let _ = write!(line, ", thread {}", block.thread);
    }
    if block.stream != 0 {
        let _ = write!(line, ", stream {}", stream(block.stream));
    }
    if let Some(device) = block.device {
        let _ = write!(line, ", device {device}");
    }
    if block.site != NO_SITE {
        let _ = write!(line, ", in {}", plain(&block.site));
    }
    line
}
