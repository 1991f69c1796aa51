//! `floodmark sql`

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_inspect::Input;
use floodmark_inspect::sql::{ParquetRows, Queried, Sql, SqlRows, SqlValue, duckdb_views};
use floodmark_view::sql::{SqlFormat, SqlWriter};

use crate::args::ReadingArgs;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;
use crate::whole_file::{Overwrite, fill, is_standard, refuse_existing};

/// Answer a question in SQL
///
/// Runs one SELECT of SQLite's language on a trace, or on a log or export, which is imported into a folder for temporary
/// files first. Tables: events, blocks, samples, calls, output, scopes, processes,
/// peaks, leaks; and `raw_event`, `raw_sample` ... with the columns of FORMAT.md. Times are nanoseconds since 1970.
/// Conditions on the time and the process are used to read less of the trace.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SqlArgs {
    /// Trace or log to query
    #[arg(value_name = "INPUT", help_heading = None)]
    input: PathBuf,
    /// The query; '-' reads it from standard input
    #[arg(value_name = "SELECT", required_unless_present = "views")]
    query: Option<String>,
    /// Print statements that create the views in DuckDB instead
    #[arg(long, conflicts_with = "query")]
    views: bool,
    /// Output format; overrides the file extension [default: table]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to this file; '-' is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Replace a file that exists already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark sql run.flood 'select count(*) from events'
  floodmark sql run.flood \"select site, sum(bytes) from blocks where live group by site order by 2 desc limit 5\"
  floodmark sql run.flood 'select * from peaks' --format csv -o peaks.csv
  floodmark sql memory_log.csv 'select * from blocks' -o blocks.parquet
  floodmark sql run.flood --views | duckdb";

/// Writes rows as they come.
enum Rows<'a> {
    Text(SqlWriter<'a>),
    Parquet(Box<ParquetRows<'a>>),
}

impl Rows<'_> {
    fn finish(self) -> Result<()> {
        match self {
            Self::Text(writer) => Ok(writer.finish()?),
            Self::Parquet(writer) => Ok(writer.finish()?),
        }
    }
}

impl SqlRows for Rows<'_> {
    type Error = anyhow::Error;

    fn begin(&mut self, names: &[String]) -> Result<()> {
        match self {
            Self::Text(writer) => writer.begin(names)?,
            Self::Parquet(writer) => writer.begin(names),
        }
        Ok(())
    }
    fn row(&mut self, values: &[SqlValue<'_>]) -> Result<()> {
        match self {
            Self::Text(writer) => writer.row(values)?,
            Self::Parquet(writer) => writer.row(values)?,
        }
        Ok(())
    }
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns, for people
    Table,
    /// Comma-separated values
    Csv,
    /// A list of objects
    Json,
    /// A Parquet file
    Parquet,
}

impl SqlArgs {
    fn format(&self) -> Format {
        let extension = self.output.extension().and_then(|extension| extension.to_str());
        self.format.unwrap_or(match extension {
            Some("csv") => Format::Csv,
            Some("json") => Format::Json,
            Some("parquet") => Format::Parquet,
            _ => Format::Table,
        })
    }

    fn rows<'a>(&self, out: &'a mut dyn Write) -> Rows<'a> {
        match self.format() {
            Format::Table => Rows::Text(SqlWriter::new(SqlFormat::Table, out)),
            Format::Csv => Rows::Text(SqlWriter::new(SqlFormat::Csv, out)),
            Format::Json => Rows::Text(SqlWriter::new(SqlFormat::Json, out)),
            Format::Parquet => Rows::Parquet(Box::new(ParquetRows::new(out))),
        }
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let overwrite = Overwrite::forced(self.force);
        refuse_existing(&self.output, overwrite)?;
        let open = self.reading.props();
        if self.views {
            printer.data(&duckdb_views(&Input::open(&self.input, &open)?)?)?;
            return Ok(ExitStatus::Success);
        }
        if self.format() == Format::Parquet && is_standard(&self.output) && std::io::stdout().is_terminal() {
            return Err(hinted("Parquet is no text", "write it to a file: -o rows.parquet"));
        }
        let query = self.text()?;
        let queried = Queried::open(&self.input, &open, &Bars::new(printer))?;
        printer.lost(&queried.losses);
        let sql = Sql::open(&queried.input, &query)?;
        fill(&self.output, overwrite, |out| {
            let mut rows = self.rows(out);
            sql.query(&query, &mut rows)?;
            rows.finish()
        })?;
        Ok(ExitStatus::Success)
    }

    fn text(&self) -> Result<String> {
        let query = self.query.clone().unwrap_or_default();
        if !is_standard(Path::new(&query)) {
            return Ok(query);
        }
        std::io::read_to_string(std::io::stdin())
            .map_err(|error| hinted(format!("reading the query: {error}"), "give it as an argument"))
    }
}
