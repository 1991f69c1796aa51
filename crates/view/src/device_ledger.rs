//! The ledger of a device: items that add up to what its driver says is in use.

use floodmark_analyze::{DeviceLedger, DeviceLedgerClass, DeviceLedgerItem};
use floodmark_event::units::{format_bytes, format_elapsed_ns, format_signed_bytes};

use crate::chart::bar;
use crate::figures::{instant_exactly, percent};
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, omitted, wrap};

impl View for DeviceLedger {
    const SCHEMA: &'static str = "floodmark.device_ledger/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        for sentence in headline(self) {
            text.line(wrap(&sentence, layout.width, 2));
        }
        text.blank();
        text.block(items(self, layout));
        text.text()
    }
}

fn headline(ledger: &DeviceLedger) -> Vec<String> {
    let name = if ledger.name.is_empty() { String::new() } else { format!(" ({})", plain(&ledger.name)) };
    let total = ledger.total_bytes.map_or_else(String::new, |total| format!(" of {}", format_bytes(total)));
    let mut sentences = vec![format!(
        "device {}{name} had {}{total} in use at {}",
        ledger.device,
        format_bytes(ledger.peak_used_bytes),
        instant_exactly(ledger.peak_time_ns, Some(ledger.start_time_ns))
    )];
    if ledger.has_events {
        sentences.push(
            "allocations are taken up to that instant; samples were read when the table says".to_owned(),
        );
    } else {
        sentences.push(
            "no allocations were recorded, so what it was used for is not known (run --gpu=all)".to_owned(),
        );
    }
    if !ledger.has_process_use {
        sentences.push(
            "the driver did not say in time what each process had on this device: contexts and other processes are part of the \
             residual"
                .to_owned(),
        );
    }
    sentences
}

fn label(item: &DeviceLedgerItem) -> String {
    let name = item.name.as_deref().unwrap_or_default();
    let program = || match item.pid {
        Some(pid) => format!("{name} ({pid})"),
        None => name.to_owned(),
    };
    match item.class {
        DeviceLedgerClass::HandedOut if name == "torch" => "tensors: handed out by torch".to_owned(),
        DeviceLedgerClass::HandedOut => format!("handed out by {name}"),
        DeviceLedgerClass::CacheSlack => format!("slack of {name}"),
        DeviceLedgerClass::Library => format!("from the driver by {name}"),
        DeviceLedgerClass::Static => "variables of modules".to_owned(),
        DeviceLedgerClass::Context => format!("context and rest of {}", program()),
        DeviceLedgerClass::OtherProcess => format!("process {}, not recorded", program()),
        DeviceLedgerClass::Before => "in use before: driver, other processes".to_owned(),
        DeviceLedgerClass::Residual => "residual".to_owned(),
    }
}

fn items(ledger: &DeviceLedger, layout: &Layout) -> String {
    let (shown, left) = layout.first(&ledger.items);
    let mut table = Table::new([
        Column::long("what"),
        Column::figure("in use"),
        Column::figure("share").rank(1),
        Column::figure("read at"),
        Column::text("").rank(2),
    ]);
    let whole = ledger.peak_used_bytes.max(1);
    for item in shown {
        let size = item.bytes.unsigned_abs();
        let read = item.read_time_ns.map_or_else(String::new, |time_ns| {
            format_elapsed_ns(time_ns.saturating_sub(ledger.start_time_ns))
        });
        table.row([
            Cell::from(label(item)),
            Cell::from(format_signed_bytes(item.bytes)),
            Cell::from(percent(size as f64 / whole as f64)),
            Cell::from(read),
            Cell::from(bar(size, whole, layout.bar_width())).styled(layout.palette.bar),
        ]);
    }
    let rest = &ledger.items[shown.len()..];
    if !rest.is_empty() {
        let bytes = rest.iter().fold(0i64, |sum, item| sum.saturating_add(item.bytes));
        let empty = || Cell::from("");
        table.row([
            Cell::from("the rest"),
            Cell::from(format_signed_bytes(bytes)),
            empty(),
            empty(),
            empty(),
        ]);
    }
    table.row([
        Cell::from("sum: in use, says the driver"),
        Cell::from(format_bytes(ledger.peak_used_bytes)),
        Cell::from("100 %"),
        Cell::from(format_elapsed_ns(ledger.peak_time_ns.saturating_sub(ledger.start_time_ns))),
        Cell::from(""),
    ]);
    table.text(layout) + &omitted(left, layout)
}
