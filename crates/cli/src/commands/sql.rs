//! `floodmark sql`

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_inspect::sql::{Sql, SqlRows, SqlValue, duckdb_views};
use floodmark_inspect::{Input, OpenProps};
use floodmark_view::sql::{SqlFormat, SqlWriter};

use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::whole_file::{Overwrite, fill, is_standard, refuse_existing};

/// Answer a question in SQL
///
/// Runs one SELECT of SQLite's language on a trace. Tables: events, blocks, samples, calls, output, scopes, processes,
/// peaks, leaks; and `raw_event`, `raw_sample` ... with the columns of FORMAT.md. Times are nanoseconds since 1970.
/// Conditions on the time and the process are used to read less of the trace.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SqlArgs {
    /// Trace to query
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
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
}

const EXAMPLES: &str = "\
Examples:
  floodmark sql run.flood 'select count(*) from events'
  floodmark sql run.flood \"select site, sum(bytes) from blocks where live group by site order by 2 desc limit 5\"
  floodmark sql run.flood 'select * from peaks' --format csv -o peaks.csv
  floodmark sql run.flood --views | duckdb";

/// Writes rows as they come.
struct Rows<'a>(SqlWriter<'a>);

impl SqlRows for Rows<'_> {
    type Error = anyhow::Error;

    fn begin(&mut self, names: &[String]) -> Result<()> {
        Ok(self.0.begin(names)?)
    }
    fn row(&mut self, values: &[SqlValue<'_>]) -> Result<()> {
        Ok(self.0.row(values)?)
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
}

impl SqlArgs {
    fn format(&self) -> SqlFormat {
        let extension = self.output.extension().and_then(|extension| extension.to_str());
        match (self.format, extension) {
            (Some(Format::Csv), _) | (None, Some("csv")) => SqlFormat::Csv,
            (Some(Format::Json), _) | (None, Some("json")) => SqlFormat::Json,
            (Some(Format::Table) | None, _) => SqlFormat::Table,
        }
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let overwrite = Overwrite::forced(self.force);
        refuse_existing(&self.output, overwrite)?;
        let input = Input::open(&self.trace, &OpenProps::default())?;
        if self.views {
            printer.data(&duckdb_views(&input)?)?;
            return Ok(ExitStatus::Success);
        }
        let query = self.text()?;
        let sql = Sql::open(&input, &query)?;
        fill(&self.output, overwrite, |out| {
            let mut rows = Rows(SqlWriter::new(self.format(), out));
            sql.query(&query, &mut rows)?;
            Ok(rows.0.finish()?)
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
