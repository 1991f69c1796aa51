//! The tables of an export, however it is stored.
//!
//! Nothing here knows what a table means. Tables and columns are found whatever the case of their names,
//! a column that is missing reads as null, and rows come in no particular order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use floodmark_store::{Error, Result};

use super::folder::{Folder, FolderRow};
use super::sqlite::{Sqlite, SqliteRow};
use crate::quote::quoted;

/// A value of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    /// Nothing, or no such column.
    Null,
    /// A whole number; one above the highest signed one comes as a negative one.
    Int(i64),
    /// Text.
    Text(&'a [u8]),
    /// Something that no table of an export has.
    Other,
}

/// A row, as long as it is the current one.
pub(crate) enum Row<'a> {
    Sqlite(SqliteRow<'a>),
    Folder(FolderRow<'a>),
}

impl Row<'_> {
    /// Value of a column, by its place in the list that was asked for.
    #[inline]
    pub(crate) fn value(&self, column: usize) -> Value<'_> {
        match self {
            Self::Sqlite(row) => row.value(column),
            Self::Folder(row) => row.value(column),
        }
    }

    /// A number; none if there is none, or something else.
    #[inline]
    pub(crate) fn int(&self, column: usize) -> Option<i64> {
        match self.value(column) {
            Value::Int(value) => Some(value),
            _ => None,
        }
    }

    /// A text; none if there is none, or something else.
    pub(crate) fn text(&self, column: usize) -> Option<Cow<'_, str>> {
        match self.value(column) {
            Value::Text(text) => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }

    /// A number that has to be there.
    ///
    /// # Errors
    /// What is there instead.
    #[inline]
    pub(crate) fn need(&self, column: usize, name: &str) -> std::result::Result<i64, String> {
        match self.value(column) {
            Value::Int(value) => Ok(value),
            other => Err(not_a_number(name, other)),
        }
    }
}

#[cold]
fn not_a_number(name: &str, value: Value<'_>) -> String {
    let what = match value {
        Value::Text(text) => quoted(text),
        Value::Null => "missing".to_owned(),
        _ => "something else".to_owned(),
    };
    format!("{name} is {what}, not a whole number")
}

/// What an export holds.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// By name in small letters: the name as it is, and the columns likewise.
    tables: HashMap<String, (String, HashMap<String, String>)>,
}

impl Catalog {
    pub(crate) fn add(&mut self, table: &str, columns: impl IntoIterator<Item = String>) {
        let columns = columns.into_iter().map(|name| (name.to_ascii_lowercase(), name)).collect();
        self.tables.insert(table.to_ascii_lowercase(), (table.to_owned(), columns));
    }

    pub(crate) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(&table.to_ascii_lowercase())
    }

    /// Name of a table as it is.
    pub(crate) fn table(&self, table: &str) -> Option<&str> {
        self.tables.get(&table.to_ascii_lowercase()).map(|(name, _)| &**name)
    }

    /// Name of a column as it is.
    pub(crate) fn column(&self, table: &str, column: &str) -> Option<&str> {
        let (_, columns) = self.tables.get(&table.to_ascii_lowercase())?;
        columns.get(&column.to_ascii_lowercase()).map(String::as_str)
    }

    /// Names of the tables, sorted.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.tables.values().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names
    }
}

/// Takes one row; an error ends the scan.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&Row<'_>) -> Result<()>;

enum Stored {
    Sqlite(Sqlite),
    Folder(Folder),
}

/// An export.
pub(crate) struct Export {
    path: PathBuf,
    stored: Stored,
}

impl Export {
    /// Opens a database, or a folder with a file for each table.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let stored = if path.is_dir() {
            Stored::Folder(Folder::open(path)?)
        } else {
            Stored::Sqlite(Sqlite::open(path)?)
        };
        Ok(Self { path: path.to_owned(), stored })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        match &self.stored {
            Stored::Sqlite(sqlite) => sqlite.catalog(),
            Stored::Folder(folder) => folder.catalog(),
        }
    }

    pub(crate) fn has(&self, table: &str) -> bool {
        self.catalog().has(table)
    }

    pub(crate) fn has_column(&self, table: &str, column: &str) -> bool {
        self.catalog().column(table, column).is_some()
    }

    /// Hands all rows of a table to `visit`; none if there is no such table. Columns are numbered in the
    /// order of `columns`.
    pub(crate) fn scan(&self, table: &str, columns: &[&str], visit: Visit<'_>) -> Result<()> {
        if !self.has(table) {
            return Ok(());
        }
        match &self.stored {
            Stored::Sqlite(sqlite) => sqlite.scan(table, columns, None, visit),
            Stored::Folder(folder) => folder.scan(table, columns, visit),
        }
    }

    /// Hands all strings that names can be to `visit`, with their numbers. Longer ones, such as whole
    /// files and what a program printed, are left out.
    pub(crate) fn strings(&self, visit: &mut dyn FnMut(i64, &str)) -> Result<()> {
        const NAME_BYTES_MAX: usize = 64 << 10;
        let mut visit = |row: &Row<'_>| {
            if let (Value::Int(id), Value::Text(text)) = (row.value(0), row.value(1))
                && text.len() <= NAME_BYTES_MAX
            {
                visit(id, &String::from_utf8_lossy(text));
            }
            Ok(())
        };
        let (table, columns) = ("StringIds", ["id", "value"]);
        match &self.stored {
            Stored::Sqlite(sqlite) if self.has(table) => {
                sqlite.scan(table, &columns, Some(("value", NAME_BYTES_MAX)), &mut visit)
            }
            _ => self.scan(table, &columns, &mut visit),
        }
    }

    /// The error for something in a table that cannot be read.
    pub(crate) fn malformed(&self, table: &str, reason: impl Into<String>) -> Error {
        malformed(&self.path, table, reason)
    }
}

/// The error for something in a table that cannot be read.
pub(crate) fn malformed(path: &Path, table: &str, reason: impl Into<String>) -> Error {
    Error::Malformed { path: path.to_owned(), place: table.to_owned(), reason: reason.into() }
}
