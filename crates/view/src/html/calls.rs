//! What functions gained in resident memory, where their calls were recorded.

use floodmark_analyze::{Calls, Recorded, TracedFunction};
use floodmark_event::units::format_bytes;

use super::build::{Builder, cut, heads};
use super::data::{CellKind, Table, Target};
use crate::figures::counted;

/// Adds all of it.
pub(super) fn add(builder: &mut Builder, calls: &Calls) {
    if let Some(first) =
        calls.functions.iter().max_by_key(|function| function.own_bytes).filter(|one| one.own_bytes > 0)
    {
        let target = Target { tab: "calls", ..Target::default() };
        let gained = format_bytes(first.own_bytes.unsigned_abs());
        builder.tell_parts([
            ("The function that gained most by itself is ", None),
            (place(first).as_str(), Some(target)),
            (format!(": {gained} of resident memory").as_str(), None),
        ]);
    }
    // Only a trace of all calls knows how often functions were called and by whom.
    let is_complete = calls.recorded == Recorded::Every;
    let row = |function: &TracedFunction| {
        vec![
            cut(&place(function)).into(),
            function.own_bytes.into(),
            is_complete.then_some(function.cumulative_bytes).into(),
            function.gained_bytes.into(),
            function.released_bytes.into(),
            is_complete.then_some(function.calls).into(),
        ]
    };
    let rows = calls.functions.iter().map(row).collect();
    let columns = heads([
        ("function", CellKind::Code),
        ("own", CellKind::Bytes),
        ("with callees", CellKind::Bytes),
        ("increases", CellKind::Bytes),
        ("decreases", CellKind::Bytes),
        ("calls", CellKind::Count),
    ]);
    let note =
        format!("Resident memory that functions gained, from {}.", counted(calls.events, "recorded event"));
    builder.table(Table { id: "calls", title: "Calls".into(), note, columns, rows, ..Table::default() });
}

fn place(function: &TracedFunction) -> String {
    match function.file.rsplit('/').next() {
        None | Some("") => function.function.clone(),
        Some(file) if function.line == 0 => format!("{} ({file})", function.function),
        Some(file) => format!("{} ({file}:{})", function.function, function.line),
    }
}
