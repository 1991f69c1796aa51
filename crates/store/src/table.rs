//! The tables of a trace, each a folder of parts, and where each is defined.
//!
//! A table has one definition: the type of its rows with its columns (`columns` for events, `rows` for
//! tables with a time, `small_tables` for what ids point to). Everything else iterates over [`Table::ALL`]
//! or `ROW_TABLES`. To add a table with a time: its row and a variant of `Row` in `floodmark-event`,
//! `table_columns!` and `TableRow` in `rows`, an entry in each of the two lists here, and, if the tail has
//! records of it, a field in `TailRows`.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::Process;
use floodmark_event::{CallRow, LogRow, OutputRow, SampleRow, ScopeRow, StackSampleRow, SubjectRow};

use crate::codec::ColumnEncoding;
use crate::columns::{EVENT_ENCODINGS, event_schema};
use crate::error::Result;
use crate::merge::TailRows;
use crate::parts::PartsWriter;
use crate::registry::Registry;
use crate::row_source::{AnyRowScan, RowScan};
use crate::rows::{Columns, MergedRow, TableRow, to_records};
use crate::scan::ScanProps;
use crate::small_tables::{DeviceRow, FrameRow, StackRow, StringRow};
use crate::trace::Trace;

macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident $name:literal $definition:expr,)*) => {
        /// A table of a trace.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Table {
            $($(#[$doc])* $table,)*
        }

        impl Table {
            /// All tables.
            pub const ALL: [Self; [$(Self::$table),*].len()] = [$(Self::$table),*];

            /// Name of the table and of its folder.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$table => $name,)*
                }
            }

            /// Columns of the table.
            pub(crate) const fn definition(self) -> TableDefinition {
                match self {
                    $(Self::$table => $definition,)*
                }
            }
        }
    };
}

tables! {
    /// Allocations, frees and failed allocations.
    Event "event" TableDefinition { schema: event_schema, encodings: EVENT_ENCODINGS, rows: BATCH_ROWS },
    /// Scopes, ranges and marks.
    Scope "scope" TableDefinition::of::<ScopeRow>(),
    /// Values of metrics at an instant.
    Sample "sample" TableDefinition::of::<SampleRow>(),
    /// Output of the recorded command.
    Output "output" TableDefinition::of::<OutputRow>(),
    /// Stacks of threads, taken by another process.
    StackSample "stack_sample" TableDefinition::of::<StackSampleRow>(),
    /// Calls of functions that a tracer recorded.
    Call "call" TableDefinition::of::<CallRow>(),
    /// Messages of the tool that recorded.
    Log "log" TableDefinition::of::<LogRow>(),
    /// Processes that recorded.
    Process "process" TableDefinition::of::<Process>(),
    /// Processes, devices and groups that samples are about.
    Subject "subject" TableDefinition::of::<SubjectRow>(),
    /// Identities of devices.
    Device "device" TableDefinition::of::<DeviceRow>(),
    /// Text that ids point to.
    String "string" TableDefinition::of::<StringRow>(),
    /// Entries of stacks, and functions that were called.
    Frame "frame" TableDefinition::of::<FrameRow>(),
    /// Call stacks, each an entry and the stack of its caller.
    Stack "stack" TableDefinition::of::<StackRow>(),
}

impl Table {
    /// Returns the table with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Returns the columns of the table, as parts and record batches have them.
    pub fn schema(self) -> SchemaRef {
        (self.definition().schema)()
    }

    /// Nanoseconds that one unit of the `time` column stands for.
    pub(crate) const fn time_unit_ns(self) -> i64 {
        match self {
            Self::Call => 1000,
            _ => 1,
        }
    }

    /// Whether rows have a time. The other tables are small: ids in rows point to them.
    pub fn has_time(self) -> bool {
        self == Self::Event || ROW_TABLES.iter().any(|rows| rows.table == self)
    }
}

/// The columns of a table.
#[derive(Clone, Copy)]
pub(crate) struct TableDefinition {
    pub(crate) schema: fn() -> SchemaRef,
    /// Columns that are not stored in the default encoding.
    pub(crate) encodings: &'static [(&'static str, ColumnEncoding)],
    /// Rows to read at once.
    pub(crate) rows: usize,
}

impl TableDefinition {
    const fn of<T: Columns>() -> Self {
        Self { schema: T::schema, encodings: T::ENCODINGS, rows: T::ROWS }
    }
}

/// Tables with a time that are read row by row: all but events. Rows of the same time come in this order.
pub(crate) const ROW_TABLES: &[RowTable] = &[
    RowTable::of::<ScopeRow>(),
    RowTable::of::<SampleRow>(),
    RowTable::of::<OutputRow>(),
    RowTable::of::<StackSampleRow>(),
    RowTable::of::<LogRow>(),
    RowTable::apart::<CallRow>(),
];

/// Starts a scan of a table's rows.
type OpenScan = fn(&Trace, &ScanProps) -> Result<Box<dyn AnyRowScan>>;

/// What can be done with the rows of a table without naming their type.
#[derive(Clone, Copy)]
pub(crate) struct RowTable {
    pub(crate) table: Table,
    /// Starts a scan, if the table is read together with others.
    pub(crate) scan: Option<OpenScan>,
    /// Turns the table's rows of the tail into columns.
    pub(crate) tail_records: fn(&mut TailRows, &Registry) -> RecordBatch,
    /// Writes the table's rows of the tail to parts.
    pub(crate) write_tail: fn(&mut PartsWriter, &mut TailRows, &Registry) -> Result<()>,
}

impl RowTable {
    const fn of<T: MergedRow>() -> Self {
        let scan: OpenScan = |trace, props| Ok(Box::new(RowScan::<T>::open(trace, props)?));
        Self { scan: Some(scan), ..Self::apart::<T>() }
    }

    /// A table that is read on its own.
    const fn apart<T: TableRow>() -> Self {
        Self {
            table: T::TABLE,
            scan: None,
            tail_records: |rows, registry| to_records(T::of_tail(rows), &registry.at_rest()),
            write_tail: |writer, rows, registry| writer.tail_rows(T::of_tail(rows), registry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_name_and_columns_of_its_own() {
        for table in Table::ALL {
            assert_eq!(Table::from_name(table.name()), Some(table));
            let schema = table.schema();
            let has_time = schema.field_with_name("time").is_ok();
            assert_eq!(table.has_time(), has_time, "{}", table.name());
            for (column, _) in table.definition().encodings {
                assert!(schema.field_with_name(column).is_ok(), "{}.{column}", table.name());
            }
        }
        assert_eq!(Table::from_name("nothing"), None);
    }
}
