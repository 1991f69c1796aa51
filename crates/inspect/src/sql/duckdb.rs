//! The views as statements for a user's own DuckDB, which reads the parts itself.

use std::fmt::Write as _;

use floodmark_store::Table;

use crate::error::{Error, Result};
use crate::input::Input;
use crate::sql::VIEWS;

/// Blocks by the size and time that a free's row has of the block it ended; see FORMAT.md, section 3.
const BLOCKS: &str = "\
create view blocks as
with e as (select *, row_number() over () as row from raw_event where action <> 'failure'),
n as (select *, lead(action) over w as next, lead(time) over w as next_time, lead(thread) over w as next_thread
      from e window w as (partition by process, device, resource, address order by time, row))
select process, device, kind, resource, address, bytes, time as time_ns, thread, stream, scope, name,
       case next when 'free' then next_time end as freed_ns, case next when 'free' then next_thread end as freed_by,
       next_time - time as lifetime_ns, case next when 'free' then 'freed' when 'alloc' then 'unseen' end as ended,
       (next is null)::integer as live, stack
from n where action = 'alloc';
";

/// Returns statements that create the views in DuckDB.
///
/// # Errors
/// If the input is no trace, or is still being recorded.
pub fn duckdb_views(input: &Input) -> Result<String> {
    let Some(trace) = input.trace().filter(|trace| !trace.has_tail()) else {
        return Err(Error::unsuitable(
            format!("{} is no complete trace", input.name()),
            "import a log first; end a recording, or 'floodmark repair' one that was cut off",
        ));
    };
    let folder = std::path::absolute(trace.path()).unwrap_or_else(|_| trace.path().to_owned());
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let mut out = String::new();
    for table in Table::ALL {
        let name = table.name();
        // Only parts that the manifest lists count.
        let parts = trace.manifest().parts_of(name);
        let files: Vec<String> =
            parts.map(|part| quoted(&folder.join(name).join(&part.file).display().to_string())).collect();
        let columns: Vec<String> =
            table.schema().fields().iter().map(|field| column(field, files.is_empty())).collect();
        let columns = columns.join(", ");
        let _ = if files.is_empty() {
            writeln!(out, "create view raw_{name} as select {columns} where false;")
        } else {
            let files = files.join(", ");
            writeln!(
                out,
                "create view raw_{name} as select {columns} from read_parquet([{files}], union_by_name=true);"
            )
        };
    }
    for (name, select) in VIEWS {
        let _ = writeln!(out, "create view {name} as {select};");
    }
    out.push_str(BLOCKS);
    out.push_str(
        "create view leaks as select * from blocks where live = 1 and kind not in ('static', 'reserved') and address <> 0;\n",
    );
    Ok(out)
}

/// Signed whole numbers, because `0 - bytes` of an unsigned one is an error; times in nanoseconds.
fn column(field: &arrow_schema::Field, is_missing: bool) -> String {
    use arrow_schema::{DataType, TimeUnit};
    let name = format!("\"{}\"", field.name());
    let declared = match field.data_type() {
        DataType::Utf8 | DataType::Dictionary(..) => "varchar",
        DataType::Binary => "blob",
        _ => "bigint",
    };
    match field.data_type() {
        _ if is_missing => format!("null::{declared} as {name}"),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => format!("epoch_ns({name}) as {name}"),
        DataType::Timestamp(..) => format!("epoch_us({name}) * 1000 as {name}"),
        DataType::UInt64 => format!("{name}::hugeint::bigint as {name}"),
        DataType::UInt32 | DataType::Int32 => format!("{name}::bigint as {name}"),
        DataType::Binary => format!("{name} as {name}"),
        _ => format!("{name}::varchar as {name}"),
    }
}
