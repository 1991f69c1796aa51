//! Exports that are a folder with a file for each table.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt8Array, UInt64Array};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use floodmark_convert::{Format, Mode, recognize};
use parquet::arrow::ArrowWriter;
use rusqlite::types::Value;

use crate::nsys_db::{Db, Generation, good, minimal, read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Parquet,
    Arrow,
    Stream,
}

/// A table of a database as columns; numbers without a sign where they have none.
fn table(db: &Db, name: &str) -> Option<RecordBatch> {
    let mut statement = db.connection().prepare(&format!("SELECT * FROM {name}")).expect("a table");
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let rows = statement.query_map([], |row| {
        (0..names.len()).map(|at| row.get::<_, Value>(at)).collect::<Result<Vec<_>, _>>()
    });
    let rows: Vec<Vec<Value>> = rows.expect("rows").map(|row| row.expect("a row")).collect();
    if rows.is_empty() {
        return None;
    }
    let column = |at: usize| -> ArrayRef {
        if rows.iter().any(|row| matches!(row[at], Value::Text(_))) {
            let text =
                |row: &Vec<Value>| if let Value::Text(text) = &row[at] { Some(text.clone()) } else { None };
            return Arc::new(rows.iter().map(text).collect::<StringArray>());
        }
        let ints: Vec<Option<i64>> = rows
            .iter()
            .map(|row| if let Value::Integer(value) = row[at] { Some(value) } else { None })
            .collect();
        match &*names[at] {
            "address" | "globalPid" | "globalTid" => Arc::new(
                ints.into_iter().map(|value| value.map(|value| value as u64)).collect::<UInt64Array>(),
            ),
            "memKind" | "eventClass" => {
                Arc::new(ints.into_iter().map(|value| value.map(|value| value as u8)).collect::<UInt8Array>())
            }
            _ => Arc::new(ints.into_iter().collect::<Int64Array>()),
        }
    };
    let columns = (0..names.len()).map(|at| {
        // Others spell them otherwise.
        let name = if names[at] == "memKind" { "memkind".to_owned() } else { names[at].clone() };
        (name, column(at), true)
    });
    Some(RecordBatch::try_from_iter_with_nullable(columns).expect("columns"))
}

fn folder(db: &Db, form: Form) -> PathBuf {
    let folder = db.path.with_extension(format!("{form:?}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let mut names =
        db.connection().prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").expect("names");
    let names = names.query_map([], |row| row.get::<_, String>(0)).expect("names");
    for name in names.map(|name| name.expect("a name")) {
        let Some(batch) = table(db, &name) else { continue };
        let ending = if form == Form::Parquet { "parquet" } else { "arrow" };
        let file = File::create(folder.join(format!("{name}.{ending}"))).expect("a file");
        match form {
            Form::Parquet => {
                let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
                writer.write(&batch).expect("rows");
                writer.close().expect("an end");
            }
            Form::Arrow => {
                let mut writer = FileWriter::try_new(file, &batch.schema()).expect("a writer");
                writer.write(&batch).expect("rows");
                writer.finish().expect("an end");
            }
            Form::Stream => {
                let mut writer = StreamWriter::try_new(file, &batch.schema()).expect("a writer");
                writer.write(&batch).expect("rows");
                writer.finish().expect("an end");
            }
        }
    }
    folder
}

#[test]
fn a_folder_of_tables_reads_like_a_database() {
    for generation in [Generation::A, Generation::B] {
        let db = minimal("folder", generation);
        db.usage(&[(600, i64::MIN | (78 << 24), -4096, 64, 5, 0, 0)]);
        let expected = good(&db.path);
        for form in [Form::Parquet, Form::Arrow, Form::Stream] {
            let folder = folder(&db, form);
            assert_eq!(recognize(&folder).ok(), Some(Format::Nsys), "{form:?}");
            let read = good(&folder);
            assert_eq!(read.events, expected.events, "{form:?}");
            assert_eq!(read.stack(&read.events[0]), expected.stack(&expected.events[0]));
            fs::remove_dir_all(folder).expect("the folder");
        }
    }
}

#[test]
fn a_damaged_table_of_a_folder_is_named() {
    let db = minimal("damaged", Generation::A);
    for form in [Form::Parquet, Form::Arrow] {
        let folder = folder(&db, form);
        let ending = if form == Form::Parquet { "parquet" } else { "arrow" };
        let path = folder.join(format!("CUDA_GPU_MEMORY_USAGE_EVENTS.{ending}"));
        let bytes = fs::read(&path).expect("a file");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("a file");
        let error = read(&folder, Mode::Strict).err().expect("half a file");
        assert!(
            error.contains("CUDA_GPU_MEMORY_USAGE_EVENTS") && error.contains("export the report again"),
            "{error}"
        );
        fs::remove_dir_all(folder).expect("the folder");
    }
}
