//! Rows of a query as a table, CSV or JSON, written as they come.

use std::fmt::Write as _;
use std::io::{self, Write};

use floodmark_inspect::sql::SqlValue;
use unicode_width::UnicodeWidthStr as _;

use crate::plain;

/// Rows that decide how wide the columns of a table are.
const ROWS_FOR_WIDTHS: usize = 1000;
/// Widest column of a table.
const WIDEST: usize = 60;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlFormat {
    /// Aligned columns, for people.
    Table,
    /// Comma-separated values with a header.
    Csv,
    /// A list of objects.
    Json,
}

/// Writes the rows of a query.
pub struct SqlWriter<'a> {
    out: &'a mut dyn Write,
    format: SqlFormat,
    names: Vec<String>,
    /// Rows of a table that wait until the widths are known, and whether each value is a number.
    waiting: Vec<Vec<(String, bool)>>,
    widths: Option<Vec<usize>>,
    rows: u64,
}

impl<'a> SqlWriter<'a> {
    /// Writes to `out`.
    pub fn new(format: SqlFormat, out: &'a mut dyn Write) -> Self {
        Self { out, format, names: Vec::new(), waiting: Vec::new(), widths: None, rows: 0 }
    }

    /// Takes the names of the columns.
    ///
    /// # Errors
    /// If writing fails.
    pub fn begin(&mut self, names: &[String]) -> io::Result<()> {
        self.names = names.to_vec();
        match self.format {
            SqlFormat::Table => Ok(()),
            SqlFormat::Csv => {
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                writeln!(self.out, "{}", names.join(","))
            }
            SqlFormat::Json => write!(self.out, "["),
        }
    }

    /// Writes a row.
    ///
    /// # Errors
    /// If writing fails.
    pub fn row(&mut self, values: &[SqlValue<'_>]) -> io::Result<()> {
        self.rows += 1;
        match self.format {
            SqlFormat::Csv => {
                let values: Vec<String> = values.iter().map(|value| quoted(&text(value))).collect();
                writeln!(self.out, "{}", values.join(","))
            }
            SqlFormat::Json => {
                let comma = if self.rows > 1 { "," } else { "" };
                write!(self.out, "{comma}\n  {{")?;
                for (at, (name, value)) in self.names.iter().zip(values).enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(self.out, "{comma}{}: {}", json_text(name), json(value))?;
                }
                write!(self.out, "}}")
            }
            SqlFormat::Table => {
                let cell = |value: &SqlValue<'_>| {
                    let is_number = matches!(value, SqlValue::Integer(_) | SqlValue::Real(_));
                    (plain(&text(value)).replace('\n', " < "), is_number)
                };
                self.waiting.push(values.iter().map(cell).collect());
                if self.widths.is_some() || self.waiting.len() == ROWS_FOR_WIDTHS {
                    self.write_waiting()?;
                }
                Ok(())
            }
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<()> {
        match self.format {
            SqlFormat::Table => self.write_waiting(),
            SqlFormat::Csv => Ok(()),
            SqlFormat::Json if self.rows == 0 => writeln!(self.out, "]"),
            SqlFormat::Json => writeln!(self.out, "\n]"),
        }
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        if self.widths.is_none() {
            let mut widths: Vec<usize> = self.names.iter().map(|name| plain(name).width()).collect();
            for row in &self.waiting {
                for (width, (cell, _)) in widths.iter_mut().zip(row) {
                    *width = (*width).max(cell.width()).min(WIDEST);
                }
            }
            let heads: Vec<(String, bool)> =
                self.names.iter().map(|name| (plain(name).into_owned(), false)).collect();
            let rules: Vec<_> = widths.iter().map(|width| ("-".repeat(*width), false)).collect();
            self.write_cells(&heads, &widths)?;
            self.write_cells(&rules, &widths)?;
            self.widths = Some(widths);
        }
        let widths = self.widths.clone().unwrap_or_default();
        for row in std::mem::take(&mut self.waiting) {
            self.write_cells(&row, &widths)?;
        }
        Ok(())
    }

    fn write_cells(&mut self, cells: &[(String, bool)], widths: &[usize]) -> io::Result<()> {
        let mut line = String::new();
        for ((cell, is_number), width) in cells.iter().zip(widths) {
            let space = " ".repeat(width.saturating_sub(cell.width()));
            if *is_number {
                line.push_str(&space);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&space);
            }
            line.push_str("  ");
        }
        writeln!(self.out, "{}", line.trim_end())
    }
}

impl std::fmt::Debug for SqlWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlWriter")
            .field("format", &self.format)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

fn text(value: &SqlValue<'_>) -> String {
    match value {
        SqlValue::Null => String::new(),
        SqlValue::Integer(number) => number.to_string(),
        SqlValue::Real(number) => number.to_string(),
        SqlValue::Text(text) => (*text).to_owned(),
        SqlValue::Blob(bytes) => bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn json(value: &SqlValue<'_>) -> String {
    match value {
        SqlValue::Integer(number) => number.to_string(),
        SqlValue::Real(number) if number.is_finite() => number.to_string(),
        // JSON has no number for infinity and for what is no number.
        SqlValue::Null | SqlValue::Real(_) => "null".to_owned(),
        SqlValue::Text(_) | SqlValue::Blob(_) => json_text(&text(value)),
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: SqlFormat) -> String {
        let mut out = Vec::new();
        let mut writer = SqlWriter::new(format, &mut out);
        writer.begin(&["site".to_owned(), "bytes".to_owned()]).unwrap();
        writer.row(&[SqlValue::Text("load, \"a\""), SqlValue::Integer(4096)]).unwrap();
        writer.row(&[SqlValue::Text("\u{1b}[2J\nx"), SqlValue::Null]).unwrap();
        writer.row(&[SqlValue::Blob(&[1, 255]), SqlValue::Real(0.5)]).unwrap();
        writer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_are_written_in_every_format() {
        assert_eq!(
            written(SqlFormat::Csv),
            "site,bytes\n\"load, \"\"a\"\"\",4096\n\"\u{1b}[2J\nx\",\n01ff,0.5\n"
        );
        let json: serde_json::Value = serde_json::from_str(&written(SqlFormat::Json)).unwrap();
        assert_eq!(json[0]["site"], "load, \"a\"");
        assert_eq!((json[1]["bytes"].is_null(), &json[2]["bytes"]), (true, &serde_json::json!(0.5)));
        let table = written(SqlFormat::Table);
        assert!(table.starts_with("site") && table.contains("4096") && !table.contains('\u{1b}'), "{table}");
    }
}
