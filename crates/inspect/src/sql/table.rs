//! A virtual table of SQLite whose rows come from a trace.
#![expect(unsafe_code, reason = "SQLite calls virtual tables through structures of a layout that it knows")]

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::{DataType, Field, TimeUnit};
use floodmark_event::ProcessId;
use floodmark_store::{Projection, RecordBatches, ScanProps, Table, Trace};
use rusqlite::types::{Value, ValueRef};
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
    sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Result as SqlResult};

use crate::error::Result;
use crate::sql::blocks::BlockRows;
use crate::sql::totals::totals;

/// A column of a virtual table.
#[derive(Clone, Debug)]
pub(super) struct SqlColumn {
    name: String,
    declared: &'static str,
}

impl From<(&'static str, &'static str)> for SqlColumn {
    fn from((name, declared): (&'static str, &'static str)) -> Self {
        Self { name: name.to_owned(), declared }
    }
}

impl SqlColumn {
    pub(super) fn of(field: &Field) -> Self {
        let declared = match field.data_type() {
            DataType::Utf8 | DataType::Dictionary(..) => "TEXT",
            DataType::Binary => "BLOB",
            _ => "INTEGER",
        };
        Self { name: field.name().clone(), declared }
    }
}

/// Where the rows of a table come from.
#[derive(Clone)]
pub(super) enum RowsOf {
    Table(Arc<Trace>, Table),
    Blocks(Arc<Trace>),
    Totals(Arc<Trace>),
    Known(Arc<Vec<Vec<Value>>>),
}

/// What a virtual table needs to know.
#[derive(Clone)]
pub(super) struct TableSpec {
    columns: Vec<SqlColumn>,
    rows: RowsOf,
}

/// Makes a table known under a name.
pub(super) fn register(
    connection: &Connection,
    name: &str,
    columns: Vec<SqlColumn>,
    rows: RowsOf,
) -> Result<()> {
    const MODULE: Module<'_, TraceTable> = Module::eponymous_only_module();
    connection
        .create_module(name, &MODULE, Some(TableSpec { columns, rows }))
        .map_err(|error| super::failed(&error))
}

/// The table as SQLite sees it.
#[repr(C)]
struct TraceTable {
    base: sqlite3_vtab,
    spec: TableSpec,
}

// SAFETY: the structure is `repr(C)` and begins with what SQLite expects.
unsafe impl<'vtab> VTab<'vtab> for TraceTable {
    type Aux = TableSpec;
    type Cursor = TraceCursor<'vtab>;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&TableSpec>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> SqlResult<(Cow<'static, CStr>, Self)> {
        let spec = aux.expect("every table is registered with what it needs").clone();
        let columns: Vec<String> =
            spec.columns.iter().map(|column| format!("\"{}\" {}", column.name, column.declared)).collect();
        let schema = CString::new(format!("CREATE TABLE x({})", columns.join(", ")))?;
        // A view may use it.
        db.config(VTabConfig::Innocuous)?;
        Ok((Cow::Owned(schema), Self { base: sqlite3_vtab::default(), spec }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> SqlResult<bool> {
        let column = |name: &str| self.spec.columns.iter().position(|column| column.name == name);
        let time = column("time").or_else(|| column("time_ns"));
        let process = column("process");
        let mut pushed = String::new();
        let mut next = 1;
        for (constraint, mut usage) in info.constraints_and_usages() {
            if !constraint.is_usable() {
                continue;
            }
            let at = usize::try_from(constraint.column()).ok();
            let Some(letter) = (match constraint.operator() {
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE
                | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT
                    if at.is_some() && at == time =>
                {
                    Some('f')
                }
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE
                | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT
                    if at.is_some() && at == time =>
                {
                    Some('t')
                }
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ if at.is_some() && at == time => Some('i'),
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ if at.is_some() && at == process => Some('p'),
                _ => None,
            }) else {
                continue;
            };
            // SQLite checks the rows again: what is pushed down may let too many pass, and never too few.
            usage.set_argv_index(next);
            next += 1;
            pushed.push(letter);
        }
        let share = 0.3f64.powi(pushed.len() as i32);
        info.set_estimated_cost(1e6 * share);
        let used = info.col_used();
        info.set_idx_str(&format!("{used}:{pushed}"));
        Ok(true)
    }

    fn open(&'vtab mut self) -> SqlResult<TraceCursor<'vtab>> {
        Ok(TraceCursor {
            base: sqlite3_vtab_cursor::default(),
            spec: self.spec.clone(),
            rows: CursorRows::None,
            row_id: 0,
            table: PhantomData,
        })
    }
}

/// Rows of one scan of a table.
#[repr(C)]
struct TraceCursor<'vtab> {
    base: sqlite3_vtab_cursor,
    spec: TableSpec,
    rows: CursorRows,
    row_id: i64,
    table: PhantomData<&'vtab TraceTable>,
}

enum CursorRows {
    None,
    Records(Box<Records>),
    Blocks(Box<BlockRows>),
    Known(Arc<Vec<Vec<Value>>>, usize),
}

struct Records {
    batches: RecordBatches,
    /// Columns of the current batch, by their place in the table; those that are not used are missing.
    columns: Vec<Option<ArrayRef>>,
    names: Vec<(usize, String)>,
    rows: usize,
    at: usize,
}

impl Records {
    fn refill(&mut self) -> Result<bool> {
        for records in self.batches.by_ref() {
            let records = records?;
            if records.num_rows() > 0 {
                for (place, name) in &self.names {
                    self.columns[*place] = records.column_by_name(name).cloned();
                }
                (self.rows, self.at) = (records.num_rows(), 0);
                return Ok(true);
            }
        }
        self.rows = 0;
        self.at = 0;
        Ok(false)
    }
}

impl TraceCursor<'_> {
    /// Starts to read, with conditions on time and process.
    fn start(&mut self, plan: &str, values: &[Option<i64>]) -> Result<()> {
        let (used, pushed) = plan.split_once(':').unwrap_or(("0", ""));
        let used: u64 = used.parse().unwrap_or(u64::MAX);
        let mut props = ScanProps::default();
        for (letter, value) in pushed.chars().zip(values) {
            // A comparison with something that is no whole number is left to SQLite.
            let Some(value) = *value else { continue };
            match letter {
                'f' => props.from_ns = Some(props.from_ns.map_or(value, |from| from.max(value))),
                't' => props.to_ns = Some(props.to_ns.map_or(value, |to| to.min(value))),
                'i' => (props.from_ns, props.to_ns) = (Some(value), Some(value)),
                _ => {
                    let process = u32::try_from(value).ok().map(ProcessId);
                    props.processes = Some(process.into_iter().collect());
                }
            }
        }
        self.row_id = 0;
        self.rows = match &self.spec.rows {
            RowsOf::Known(rows) => CursorRows::Known(Arc::clone(rows), 0),
            RowsOf::Totals(trace) => CursorRows::Known(Arc::new(totals(trace, used, props.processes)?), 0),
            RowsOf::Blocks(trace) => CursorRows::Blocks(Box::new(BlockRows::open(trace, props.processes)?)),
            RowsOf::Table(trace, table) => {
                // From the 64th column on SQLite does not say which are used.
                let is_used = |at: usize| used >> at.min(63) & 1 == 1;
                let names: Vec<(usize, String)> = self
                    .spec
                    .columns
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| is_used(*at))
                    .map(|(at, column)| (at, column.name.clone()))
                    .collect();
                let projection = Projection::columns(names.iter().map(|(_, name)| name.clone()));
                let batches = trace.record_batches(*table, &projection, &props)?;
                let columns = vec![None; self.spec.columns.len()];
                let mut records = Records { batches, columns, names, rows: 0, at: 0 };
                records.refill()?;
                CursorRows::Records(Box::new(records))
            }
        };
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        self.row_id += 1;
        match &mut self.rows {
            CursorRows::None => {}
            CursorRows::Known(_, at) => *at += 1,
            CursorRows::Blocks(blocks) => blocks.advance()?,
            CursorRows::Records(records) => {
                records.at += 1;
                if records.at >= records.rows {
                    records.refill()?;
                }
            }
        }
        Ok(())
    }
}

fn module_error(error: &crate::error::Error) -> rusqlite::Error {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    rusqlite::Error::ModuleError(causes.join(": "))
}

// SAFETY: the structure is `repr(C)` and begins with what SQLite expects.
unsafe impl VTabCursor for TraceCursor<'_> {
    fn filter(&mut self, _number: c_int, plan: Option<&str>, args: &Filters<'_>) -> SqlResult<()> {
        let values: Vec<Option<i64>> = args
            .iter()
            .map(|value| match value {
                ValueRef::Integer(number) => Some(number),
                _ => None,
            })
            .collect();
        self.start(plan.unwrap_or_default(), &values).map_err(|error| module_error(&error))
    }

    fn next(&mut self) -> SqlResult<()> {
        self.advance().map_err(|error| module_error(&error))
    }

    fn eof(&self) -> bool {
        match &self.rows {
            CursorRows::None => true,
            CursorRows::Known(rows, at) => *at >= rows.len(),
            CursorRows::Blocks(blocks) => blocks.is_at_end(),
            CursorRows::Records(records) => records.at >= records.rows,
        }
    }

    fn column(&self, context: &mut Context, at: c_int) -> SqlResult<()> {
        let at = at as usize;
        match &self.rows {
            CursorRows::None => Ok(()),
            CursorRows::Known(rows, row) => context.set_result(&rows[*row][at]),
            CursorRows::Blocks(blocks) => context.set_result(blocks.column(at)),
            CursorRows::Records(records) => match records.columns.get(at).and_then(Option::as_ref) {
                Some(array) => set(context, array, records.at),
                None => Ok(()),
            },
        }
    }

    fn rowid(&self) -> SqlResult<i64> {
        Ok(self.row_id)
    }
}

/// Hands a value of a column to SQLite; whole numbers keep their 64 bits.
fn set(context: &mut Context, array: &ArrayRef, row: usize) -> SqlResult<()> {
    if array.is_null(row) {
        return Ok(());
    }
    match array.data_type() {
        DataType::UInt64 => context.set_result(array.as_primitive::<UInt64Type>().value(row) as i64),
        DataType::UInt32 => context.set_result(i64::from(array.as_primitive::<UInt32Type>().value(row))),
        DataType::Int32 => context.set_result(i64::from(array.as_primitive::<Int32Type>().value(row))),
        DataType::Int64 => context.set_result(array.as_primitive::<Int64Type>().value(row)),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            context.set_result(array.as_primitive::<TimestampNanosecondType>().value(row))
        }
        DataType::Timestamp(_, _) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            context.set_result(micros.saturating_mul(1000))
        }
        DataType::Utf8 => context.set_result(array.as_string::<i32>().value(row)),
        DataType::Binary => context.set_result(array.as_binary::<i32>().value(row)),
        DataType::Dictionary(..) => {
            let words = array.as_dictionary::<Int32Type>();
            let key = words.keys().value(row) as usize;
            context.set_result(words.values().as_string::<i32>().value(key))
        }
        _ => Ok(()),
    }
}
