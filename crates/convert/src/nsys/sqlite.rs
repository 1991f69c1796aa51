//! An export as an SQLite database, which is untrusted input.
//!
//! The file is opened read-only and as immutable, so nothing is ever written beside it.
//! Only plain tables are read, row by row in the order in which they are stored: no view, no trigger, no
//! computed column and no index of the file takes part, so a scan costs what the table holds. What a
//! damaged or cunning file could still do, such as handing out one page for ever, ends at limits that
//! follow from its length.

use std::cell::Cell;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_store::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::export::{Catalog, Row, Value, Visit, malformed};

/// How every such file begins.
pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";
/// The longest row or value that is read.
const ROW_BYTES_MAX: i32 = 64 << 20;
/// Tables that are looked at; exports have about a hundred.
const TABLES_MAX: usize = 4096;
/// Columns of a scan.
const COLUMNS_MAX: usize = 24;
/// Steps of SQLite's machine between two looks at how many there were.
const STEPS: u64 = 1 << 20;

/// A database.
pub(crate) struct Sqlite {
    connection: Connection,
    path: PathBuf,
    catalog: Catalog,
    /// More rows than this have no room in the file.
    rows_max: u64,
    /// Looks at the steps in a row that a scan may still take.
    looks_left: Arc<AtomicU64>,
    looks_max: u64,
}

/// The current row of a scan.
pub(crate) struct SqliteRow<'a> {
    row: &'a rusqlite::Row<'a>,
    /// Where columns that were asked for are in the result.
    places: &'a [Option<usize>; COLUMNS_MAX],
}

impl SqliteRow<'_> {
    #[inline]
    pub(super) fn value(&self, column: usize) -> Value<'_> {
        let Some(Some(place)) = self.places.get(column) else { return Value::Null };
        match self.row.get_ref(*place) {
            Ok(ValueRef::Integer(value)) => Value::Int(value),
            Ok(ValueRef::Text(text)) => Value::Text(text),
            Ok(ValueRef::Null) => Value::Null,
            // SQLite stores whole numbers so in columns of another type.
            Ok(ValueRef::Real(value)) if value.fract() == 0.0 && value.abs() < 9e15 => {
                Value::Int(value as i64)
            }
            _ => Value::Other,
        }
    }
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = std::fs::metadata(path).map_err(Error::io("opening", path))?.len();
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection =
            Connection::open_with_flags(uri(path), flags).map_err(|error| damaged(path, "file", &error))?;
        let looks_max = bytes.saturating_mul(16) / STEPS + 100;
        let mut sqlite = Self {
            connection,
            path: path.to_owned(),
            catalog: Catalog::default(),
            // The smallest row takes three bytes, and two for its place in the page.
            rows_max: bytes / 5 + 1,
            looks_left: Arc::new(AtomicU64::new(looks_max)),
            looks_max,
        };
        sqlite.confine().map_err(|error| damaged(path, "file", &error))?;
        sqlite.catalog = sqlite.read_catalog().map_err(|error| damaged(path, "schema", &error))?;
        Ok(sqlite)
    }

    /// Takes everything away that reading tables does not need.
    fn confine(&mut self) -> rusqlite::Result<()> {
        let connection = &mut self.connection;
        for (config, value) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        ] {
            connection.set_db_config(config, value)?;
        }
        for (limit, value) in [
            (Limit::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX),
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
            (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        ] {
            connection.set_limit(limit, value)?;
        }
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "query_only", true)?;
        let left = Arc::clone(&self.looks_left);
        let is_enough = move || {
            let now = left.load(Ordering::Relaxed);
            left.store(now.saturating_sub(1), Ordering::Relaxed);
            now == 0
        };
        connection.progress_handler(STEPS as i32, Some(is_enough))
    }

    fn read_catalog(&self) -> rusqlite::Result<Catalog> {
        let mut catalog = Catalog::default();
        // A virtual table has no page of its own.
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0";
        let mut statement = self.connection.prepare(sql)?;
        let names = statement.query_map([], |row| row.get::<_, String>(0))?;
        // A table whose columns were made up by the file is found by `table_xinfo` alone.
        let mut columns = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        for name in names.take(TABLES_MAX) {
            let name = name?;
            let columns = columns.query_map([&name], |row| row.get::<_, String>(0))?;
            let columns = columns.take(1024).collect::<rusqlite::Result<Vec<_>>>()?;
            catalog.add(&name, columns);
        }
        Ok(catalog)
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Reads a table of the catalog; of rows with a longer text than `text_max` says, nothing.
    pub(super) fn scan(
        &self,
        table: &str,
        columns: &[&str],
        text_max: Option<(&str, usize)>,
        visit: Visit<'_>,
    ) -> Result<()> {
        let Some(name) = self.catalog.table(table) else { return Ok(()) };
        let mut places = [None; COLUMNS_MAX];
        let mut found = 0;
        let mut sql = String::from("SELECT ");
        for (place, column) in places.iter_mut().zip(columns) {
            let Some(column) = self.catalog.column(table, column) else { continue };
            let comma = if found == 0 { "" } else { ", " };
            let _ = write!(sql, "{comma}{}", identifier(column));
            *place = Some(found);
            found += 1;
        }
        if found == 0 {
            sql += "NULL";
        }
        // An index of the file could say something else than the table, and in another order.
        let _ = write!(sql, " FROM main.{} NOT INDEXED", identifier(name));
        if let Some((column, bytes)) = text_max
            && let Some(column) = self.catalog.column(table, column)
        {
            // Without reading the text.
            let _ = write!(sql, " WHERE octet_length({}) <= {bytes}", identifier(column));
        }
        self.looks_left.store(self.looks_max, Ordering::Relaxed);
        let broken = |error: rusqlite::Error| damaged(&self.path, table, &error);
        let mut statement = self.connection.prepare(&sql).map_err(broken)?;
        let mut rows = statement.query([]).map_err(broken)?;
        let count = Cell::new(0);
        while let Some(row) = rows.next().map_err(broken)? {
            count.set(count.get() + 1);
            if count.get() > self.rows_max {
                let reason = "it goes on after more rows than the file has room for; it is damaged";
                return Err(malformed(&self.path, table, reason));
            }
            visit(&Row::Sqlite(SqliteRow { row, places: &places }))?;
        }
        Ok(())
    }
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A path as SQLite takes it with options. `immutable`: neither locks nor journals, which would have to be
/// written beside the file.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                uri.push(char::from(*byte));
            }
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri + "?mode=ro&immutable=1"
}

fn damaged(path: &Path, place: &str, error: &rusqlite::Error) -> Error {
    let reason = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::OperationInterrupted) => {
            "reading it takes longer than its length explains; it is damaged".to_owned()
        }
        Some(rusqlite::ErrorCode::NotADatabase) => "it begins like an SQLite database and is none".to_owned(),
        // Names in it are the file's.
        _ => format!("SQLite says: {}; export the report again if you can", error.to_string().escape_debug()),
    };
    malformed(path, place, reason)
}
