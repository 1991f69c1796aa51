//! SQL over a trace: its tables as virtual tables of SQLite, and views that people need on top of them.
//!
//! Only `SELECT` runs: an authorizer refuses everything else, there is no file behind the connection and nothing can be
//! attached. Rows are decoded as the query goes, only the columns that it uses, and conditions on time and process
//! leave out parts and row groups. What SQLite keeps is bounded; sorting and grouping spill to temporary files.
//!
//! | table | rows |
//! |---|---|
//! | `raw_event`, `raw_sample` … | the tables of FORMAT.md as they are, times in nanoseconds |
//! | `blocks` | each allocation with its end, found by the one matcher of frees to allocations |
//! | `peaks` | highest live bytes by process, device, kind and resource |
//! | `totals` | events counted and added up by the columns that a query uses |
//! | `leaks` | the blocks that `floodmark leaks` lists |
//! | `events`, `samples`, `calls`, `output`, `scopes`, `processes` | views, see [`VIEWS`] |

mod blocks;
mod duckdb;
mod parquet;
mod table;
mod temporary;
mod totals;

use std::sync::Arc;

use floodmark_analyze::LeaksOptions;
use floodmark_store::Table;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::{Value, ValueRef};

use self::blocks::BLOCK_COLUMNS;
use self::table::{RowsOf, SqlColumn, register};
use self::totals::TOTAL_COLUMNS;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::query::Query;

pub use self::duckdb::duckdb_views;
pub use self::parquet::ParquetRows;
pub use self::temporary::Queried;

/// Most bytes that SQLite may hold in memory.
const MOST_BYTES: u64 = 1 << 30;
/// Longest text or blob that a query may make.
const LONGEST: i32 = 64 << 20;

/// Views on the tables of a trace, by name.
pub const VIEWS: [(&str, &str); 6] = [
    (
        "events",
        "select time as time_ns, process, thread, action, address, bytes, device, stream, kind, resource, scope, stack, \
         name from raw_event",
    ),
    (
        "samples",
        "with s as materialized (select subject, kind, number, name, detail from raw_subject) \
         select r.time as time_ns, r.subject, s.kind, s.number, s.name, r.metric, r.value \
         from raw_sample r left join s on s.subject = r.subject",
    ),
    (
        "calls",
        "with f as materialized (select frame, function, file from raw_frame) \
         select r.time as time_ns, r.process, r.thread, r.action, f.function, f.file, r.line, r.rss as rss_bytes \
         from raw_call r left join f on f.frame = r.frame",
    ),
    ("output", "select time as time_ns, process, stream, cast(bytes as text) as text from raw_output"),
    (
        "scopes",
        "select scope, min(case when action in ('enter', 'begin') then parent end) as parent, max(name) as name, \
         min(process) as process, min(thread) as thread, \
         min(case when action in ('enter', 'begin') then time end) as start_ns, \
         max(case when action in ('exit', 'end') then time end) as end_ns \
         from raw_scope where scope is not null group by scope",
    ),
    ("processes", "select process, pid, parent_pid, host, command, start as start_ns from raw_process"),
];

/// A connection that answers queries about one trace.
pub struct Sql {
    connection: Connection,
}

/// A value of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SqlValue<'a> {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A fraction.
    Real(f64),
    /// Text; what is no text in a trace reads as empty.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

impl<'a> From<ValueRef<'a>> for SqlValue<'a> {
    fn from(value: ValueRef<'a>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            // Output that is not UTF-8 stays bytes.
            ValueRef::Text(text) => std::str::from_utf8(text).map_or(Self::Blob(text), Self::Text),
            ValueRef::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

/// Receives the rows of a query.
pub trait SqlRows {
    /// Why it cannot go on.
    type Error: From<Error>;

    /// Takes the names of the columns.
    ///
    /// # Errors
    /// Ends the query.
    fn begin(&mut self, names: &[String]) -> std::result::Result<(), Self::Error>;
    /// Takes a row.
    ///
    /// # Errors
    /// Ends the query.
    fn row(&mut self, values: &[SqlValue<'_>]) -> std::result::Result<(), Self::Error>;
}

impl Sql {
    /// Makes the tables of a trace known that `query` may use.
    ///
    /// # Errors
    /// If the input is no trace.
    pub fn open(input: &Input, query: &str) -> Result<Self> {
        let Some(trace) = input.trace() else {
            return Err(Error::unsuitable(
                format!("{} is no trace", input.name()),
                "'floodmark import' makes a trace of a log or export",
            ));
        };
        let trace = Arc::new(trace.clone());
        let mut connection = Connection::open_in_memory().map_err(|error| failed(&error))?;
        let settings = format!(
            "pragma temp_store = file; pragma cache_size = -65536; pragma hard_heap_limit = {MOST_BYTES}; \
             pragma trusted_schema = off;"
        );
        connection.execute_batch(&settings).map_err(|error| failed(&error))?;
        for table in Table::ALL {
            let columns = table.schema().fields().iter().map(|field| SqlColumn::of(field)).collect();
            register(
                &connection,
                &format!("raw_{}", table.name()),
                columns,
                RowsOf::Table(Arc::clone(&trace), table),
            )?;
        }
        register(
            &connection,
            "blocks",
            BLOCK_COLUMNS.iter().map(|column| (*column).into()).collect(),
            RowsOf::Blocks(Arc::clone(&trace)),
        )?;
        register(
            &connection,
            "totals",
            TOTAL_COLUMNS.iter().map(|column| (*column).into()).collect(),
            RowsOf::Totals(Arc::clone(&trace)),
        )?;
        // These are answers of their own, which take a pass each; a query that uses them names them.
        let names = |table: &str| query.to_lowercase().contains(table) && input.contents().has_events;
        let peaks = if names("peaks") { peaks(input)? } else { Vec::new() };
        let leaks = if names("leaks") { leaks(input)? } else { Vec::new() };
        register(
            &connection,
            "peaks",
            PEAK_COLUMNS.iter().map(|column| (*column).into()).collect(),
            RowsOf::Known(Arc::new(peaks)),
        )?;
        register(
            &connection,
            "leaks",
            LEAK_COLUMNS.iter().map(|column| (*column).into()).collect(),
            RowsOf::Known(Arc::new(leaks)),
        )?;
        for (name, select) in VIEWS {
            connection
                .execute_batch(&format!("create temp view {name} as {select}"))
                .map_err(|error| failed(&error))?;
        }
        bound(&mut connection)?;
        Ok(Self { connection })
    }

    /// Runs a query and hands its rows to `to`.
    ///
    /// # Errors
    /// If the query is wrong or is no `SELECT`, the trace cannot be read, or what `to` returns.
    pub fn query<R: SqlRows>(&self, sql: &str, to: &mut R) -> std::result::Result<(), R::Error> {
        let fails = |error: rusqlite::Error| R::Error::from(wrong(&error));
        let mut statement = self.connection.prepare(sql).map_err(fails)?;
        if statement.column_count() == 0 || !statement.readonly() {
            return Err(Error::unsuitable("there is no query", NO_SELECT).into());
        }
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        to.begin(&names)?;
        let mut rows = statement.query([]).map_err(fails)?;
        while let Some(found) = rows.next().map_err(fails)? {
            let mut values = Vec::with_capacity(names.len());
            for at in 0..names.len() {
                values.push(found.get_ref(at).map_err(fails)?.into());
            }
            to.row(&values)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Sql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sql").finish_non_exhaustive()
    }
}

const NO_SELECT: &str = "only one SELECT runs; tables: events, totals, blocks, samples, calls, output, scopes, processes, peaks, \
                         leaks, and raw_event, raw_sample ... as in FORMAT.md";

const PEAK_COLUMNS: [(&str, &str); 12] = [
    ("process", "INTEGER"),
    ("device", "INTEGER"),
    ("kind", "TEXT"),
    ("resource", "TEXT"),
    ("peak_bytes", "INTEGER"),
    ("peak_time_ns", "INTEGER"),
    ("live_bytes", "INTEGER"),
    ("live_blocks", "INTEGER"),
    ("allocations", "INTEGER"),
    ("frees", "INTEGER"),
    ("failures", "INTEGER"),
    ("total_bytes", "INTEGER"),
];

const LEAK_COLUMNS: [(&str, &str); 10] = [
    ("process", "INTEGER"),
    ("device", "INTEGER"),
    ("kind", "TEXT"),
    ("resource", "TEXT"),
    ("address", "INTEGER"),
    ("bytes", "INTEGER"),
    ("time_ns", "INTEGER"),
    ("age_ns", "INTEGER"),
    ("thread", "INTEGER"),
    ("site", "TEXT"),
];

fn number(number: u64) -> Value {
    Value::Integer(number as i64)
}

fn text(text: Option<&String>) -> Value {
    text.map_or(Value::Null, |text| Value::Text(text.clone()))
}

fn device(device: Option<i32>) -> Value {
    device.map_or(Value::Null, |device| Value::Integer(i64::from(device)))
}

fn peaks(input: &Input) -> Result<Vec<Vec<Value>>> {
    let row = |ledger: &floodmark_analyze::Ledger| {
        vec![
            number(u64::from(ledger.process)),
            device(ledger.device),
            Value::Text(ledger.kind.name().to_owned()),
            text(ledger.resource.as_ref()),
            number(ledger.peak_bytes),
            ledger.peak_time_ns.map_or(Value::Null, Value::Integer),
            number(ledger.live_bytes),
            number(ledger.live_blocks),
            number(ledger.allocations),
            number(ledger.frees),
            number(ledger.failures),
            number(ledger.total_bytes),
        ]
    };
    match input.stats(&Query::default()) {
        Ok(stats) => Ok(stats.result.stats.ledgers.iter().map(row).collect()),
        // A trace of samples alone has none.
        Err(Error::NoContent { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn leaks(input: &Input) -> Result<Vec<Vec<Value>>> {
    let row = |leak: &floodmark_analyze::LeakedBlock| {
        let block = &leak.block;
        vec![
            number(u64::from(block.process)),
            device(block.device),
            Value::Text(block.kind.name().to_owned()),
            text(block.resource.as_ref()),
            number(block.address),
            number(block.bytes),
            Value::Integer(block.time_ns),
            number(leak.age_ns),
            number(block.thread),
            Value::Text(block.site.clone()),
        ]
    };
    match input.leaks(&Query::default(), LeaksOptions::default()) {
        Ok(leaks) => Ok(leaks.result.blocks.iter().map(row).collect()),
        Err(Error::NoContent { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Allows queries alone, and those of a size that does no harm.
fn bound(connection: &mut Connection) -> Result<()> {
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, LONGEST),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    ] {
        connection.set_limit(limit, value).map_err(|error| failed(&error))?;
    }
    let allow = |context: AuthContext<'_>| match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if function_name != "load_extension" => Authorization::Allow,
        _ => Authorization::Deny,
    };
    connection.authorizer(Some(allow)).map_err(|error| failed(&error))
}

fn failed(error: &rusqlite::Error) -> Error {
    Error::unsuitable(format!("preparing SQL failed: {error}"), "this should not happen; please report it")
}

fn wrong(error: &rusqlite::Error) -> Error {
    Error::unsuitable(format!("the query failed: {error}"), NO_SELECT)
}
