//! Rows of a query as a Parquet file.
//!
//! SQLite's columns have no type of their own, so the first rows decide: whole numbers, fractions, text or bytes. A
//! later row that does not fit ends the query with an error that names the column. Rows are written in groups, and
//! memory is that of one group.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, BinaryArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::error::{Error, Result};
use crate::sql::{SqlRows, SqlValue};

/// Rows of a group, which decide the types too.
const GROUP_ROWS: usize = 1 << 16;
/// Bytes of text after which a group ends even if it has fewer rows.
const GROUP_BYTES: usize = 64 << 20;

/// A value of a row that waits.
#[derive(Clone, Debug, PartialEq)]
enum Waiting {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// What the Parquet writer has written and was not passed on yet.
#[derive(Clone, Debug, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the rows of a query as Parquet.
pub struct ParquetRows<'a> {
    out: &'a mut dyn Write,
    names: Vec<String>,
    columns: Vec<Vec<Waiting>>,
    rows: usize,
    text_bytes: usize,
    written: Written,
    file: Option<(Arc<Schema>, ArrowWriter<Written>)>,
}

impl<'a> ParquetRows<'a> {
    /// Writes to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            names: Vec::new(),
            columns: Vec::new(),
            rows: 0,
            text_bytes: 0,
            written: Written::default(),
            file: None,
        }
    }

    /// Takes the names of the columns.
    pub fn begin(&mut self, names: &[String]) {
        self.names = names.to_vec();
        self.columns = vec![Vec::new(); names.len()];
    }

    /// Takes a row.
    ///
    /// # Errors
    /// If a value does not fit its column, or writing fails.
    pub fn row(&mut self, values: &[SqlValue<'_>]) -> Result<()> {
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(match *value {
                SqlValue::Null => Waiting::Null,
                SqlValue::Integer(number) => Waiting::Integer(number),
                SqlValue::Real(number) => Waiting::Real(number),
                SqlValue::Text(text) => {
                    self.text_bytes += text.len();
                    Waiting::Text(text.to_owned())
                }
                SqlValue::Blob(bytes) => {
                    self.text_bytes += bytes.len();
                    Waiting::Blob(bytes.to_vec())
                }
            });
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS || self.text_bytes > GROUP_BYTES { self.write_group() } else { Ok(()) }
    }

    /// Writes what is left, and the end of the file.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<()> {
        if self.rows > 0 || self.file.is_none() {
            self.write_group()?;
        }
        if let Some((_, writer)) = self.file.take() {
            writer.close().map_err(failed)?;
        }
        self.pass_on()
    }

    fn write_group(&mut self) -> Result<()> {
        let columns: Vec<Vec<Waiting>> = self.columns.iter_mut().map(std::mem::take).collect();
        (self.rows, self.text_bytes) = (0, 0);
        let (schema, mut writer) = match self.file.take() {
            Some(file) => file,
            None => self.begin_file(&columns)?,
        };
        let arrays = columns.iter().zip(schema.fields()).map(|(column, field)| array(column, field));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)
            .map_err(|error| Error::unsuitable(format!("writing Parquet failed: {error}"), REMEDY))?;
        writer.write(&batch).map_err(failed)?;
        writer.flush().map_err(failed)?;
        self.file = Some((schema, writer));
        self.pass_on()
    }

    fn begin_file(&self, columns: &[Vec<Waiting>]) -> Result<(Arc<Schema>, ArrowWriter<Written>)> {
        let fields = self.names.iter().zip(columns);
        let fields: Vec<Field> =
            fields.map(|(name, column)| Field::new(name, type_of(column), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let props = WriterProperties::builder().set_compression(zstd).build();
        let writer = ArrowWriter::try_new(self.written.clone(), Arc::clone(&schema), Some(props));
        Ok((schema, writer.map_err(failed)?))
    }

    /// Passes on what was written.
    fn pass_on(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut *self.written.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.out.write_all(&bytes).map_err(|source| Error::System { act: "writing Parquet", source })
    }
}

impl SqlRows for ParquetRows<'_> {
    type Error = Error;

    fn begin(&mut self, names: &[String]) -> Result<()> {
        Self::begin(self, names);
        Ok(())
    }
    fn row(&mut self, values: &[SqlValue<'_>]) -> Result<()> {
        Self::row(self, values)
    }
}

impl std::fmt::Debug for ParquetRows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetRows").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The type that holds all values of a column; text if there is none.
fn type_of(column: &[Waiting]) -> DataType {
    let has = |is: fn(&Waiting) -> bool| column.iter().any(is);
    if has(|value| matches!(value, Waiting::Blob(_))) {
        DataType::Binary
    } else if has(|value| matches!(value, Waiting::Text(_))) {
        DataType::Utf8
    } else if has(|value| matches!(value, Waiting::Real(_))) {
        DataType::Float64
    } else if has(|value| matches!(value, Waiting::Integer(_))) {
        DataType::Int64
    } else {
        DataType::Utf8
    }
}

fn array(column: &[Waiting], field: &Field) -> Result<ArrayRef> {
    let misfit = |value: &Waiting| {
        let what = match value {
            Waiting::Null => "nothing",
            Waiting::Integer(_) => "a whole number",
            Waiting::Real(_) => "a fraction",
            Waiting::Text(_) => "text",
            Waiting::Blob(_) => "bytes",
        };
        let message = format!("column {} has {what} where Parquet has {}", field.name(), field.data_type());
        Error::unsuitable(message, REMEDY)
    };
    match field.data_type() {
        DataType::Int64 => each(column, misfit, |value| match value {
            Waiting::Integer(number) => Some(*number),
            _ => None,
        })
        .map(|numbers| Arc::new(Int64Array::from(numbers)) as ArrayRef),
        DataType::Float64 => each(column, misfit, |value| match value {
            Waiting::Integer(number) => Some(*number as f64),
            Waiting::Real(number) => Some(*number),
            _ => None,
        })
        .map(|numbers| Arc::new(Float64Array::from(numbers)) as ArrayRef),
        DataType::Binary => each(column, misfit, |value| match value {
            Waiting::Text(text) => Some(text.as_bytes()),
            Waiting::Blob(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
        .map(|bytes| Arc::new(BinaryArray::from(bytes)) as ArrayRef),
        _ => each(column, misfit, |value| match value {
            Waiting::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .map(|text| Arc::new(StringArray::from(text)) as ArrayRef),
    }
}

fn each<'a, T>(
    column: &'a [Waiting],
    misfit: impl Fn(&Waiting) -> Error,
    get: impl Fn(&'a Waiting) -> Option<T>,
) -> Result<Vec<Option<T>>> {
    let one = |value| match value {
        &Waiting::Null => Ok(None),
        value => get(value).map(Some).ok_or_else(|| misfit(value)),
    };
    column.iter().map(one).collect()
}

const REMEDY: &str = "give the column one type in the query, as in cast(x as text) or cast(x as real)";

#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
fn failed(error: parquet::errors::ParquetError) -> Error {
    Error::unsuitable(format!("writing Parquet failed: {error}"), REMEDY)
}

#[cfg(test)]
mod tests {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    /// Has `rows` written, and reads them again as text.
    fn read_back(rows: &[[SqlValue<'_>; 2]]) -> Result<(Vec<DataType>, Vec<String>)> {
        let mut out = Vec::new();
        let mut parquet = ParquetRows::new(&mut out);
        parquet.begin(&["a".to_owned(), "b".to_owned()]);
        for row in rows {
            parquet.row(row)?;
        }
        parquet.finish()?;
        let path =
            std::env::temp_dir().join(format!("floodmark-parquet-{}-{}", std::process::id(), rows.len()));
        std::fs::write(&path, &out).expect("a file");
        let file = std::fs::File::open(&path).expect("the file");
        std::fs::remove_file(&path).expect("it is there");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet");
        let types = reader.schema().fields().iter().map(|field| field.data_type().clone()).collect();
        let batches =
            reader.build().expect("rows").map(|batch| format!("{:?}", batch.expect("a batch").columns()));
        Ok((types, batches.collect()))
    }

    #[test]
    fn the_first_rows_decide_the_types() {
        let rows = [
            [SqlValue::Integer(-1), SqlValue::Null],
            [SqlValue::Real(0.5), SqlValue::Text("x")],
            [SqlValue::Null, SqlValue::Text("é")],
        ];
        let (types, text) = read_back(&rows).expect("rows that fit");
        assert_eq!(types, [DataType::Float64, DataType::Utf8]);
        assert!(text[0].contains("-1.0") && text[0].contains("0.5") && text[0].contains('é'), "{text:?}");
        assert_eq!(read_back(&[]).expect("no rows").0, [DataType::Utf8, DataType::Utf8]);
    }

    #[test]
    fn a_value_that_does_not_fit_is_named() {
        let mut rows = vec![[SqlValue::Integer(1), SqlValue::Blob(&[255])]; GROUP_ROWS];
        let (types, _) = read_back(&rows).expect("rows that fit");
        assert_eq!(types, [DataType::Int64, DataType::Binary]);
        rows.push([SqlValue::Text("x"), SqlValue::Null]);
        let error = read_back(&rows).expect_err("text among numbers").to_string();
        assert!(error.contains("column a has text where Parquet has Int64"), "{error}");
    }
}
