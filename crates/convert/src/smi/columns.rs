//! The columns of what `nvidia-smi` prints, and the values in a row.

use std::sync::Arc;

use floodmark_event::units::{Date, parse_time_of_day_ns};

use crate::numbers::{mib, whole};
use crate::quote::quoted;

/// What a column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// `2026/11/15 13:12:45.900`
    Timestamp,
    /// `20261115`
    Date,
    /// `13:12:52`
    Time,
    Index,
    Uuid,
    Bus,
    DeviceName,
    Used,
    Total,
    Busy,
    Pid,
    ProcessName,
    Other,
}

/// How fields are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Comma,
    Blanks,
}

/// The columns of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    separator: Separator,
    roles: Arc<[Role]>,
}

/// Names of queries that only `nvidia-smi` uses; one in the first line is enough to know it.
const QUERIES: [&str; 12] = [
    "timestamp",
    "memory.used",
    "memory.total",
    "memory.free",
    "memory.reserved",
    "used_memory",
    "used_gpu_memory",
    "gpu_uuid",
    "utilization.gpu",
    "utilization.memory",
    "pci.bus_id",
    "gpu_bus_id",
];

/// The name of a column without its unit: `memory.used` of `memory.used [MiB]`.
fn name(column: &str) -> &str {
    column.split('[').next().unwrap_or(column).trim()
}

/// Whether a line is the header of a table.
pub(super) fn is_header(line: &str) -> bool {
    if let Some(titles) = line.strip_prefix('#') {
        let mut titles = titles.split([',', ' ']).filter(|title| !title.is_empty());
        return titles.any(|title| title == "gpu") && !is_units(line);
    }
    line.split(',').any(|column| QUERIES.contains(&name(column)))
}

/// Whether a line is the second of a table's header, which has the units.
pub(super) fn is_units(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|units| units.split([',', ' ']).any(|unit| unit == "Idx"))
}

/// Whether a line is a row of a table without a header.
pub(super) fn is_bare_row(line: &str) -> bool {
    let mut fields = line.split(',').map(str::trim);
    fields.next().is_some_and(|first| parse_timestamp(first).is_some()) && fields.next().is_some()
}

fn parse_timestamp(text: &str) -> Option<(Option<Date>, i64)> {
    let (date, time) = text.split_once(' ')?;
    let date = Date::parse(&date.replace('/', "-"))?;
    Some((Some(date), parse_time_of_day_ns(time.trim())?))
}

fn parse_compact_date(text: &str) -> Option<Date> {
    let text = Some(text).filter(|text| text.len() == 8 && text.is_ascii())?;
    Date::parse(&format!("{}-{}-{}", &text[..4], &text[4..6], &text[6..]))
}

impl Columns {
    /// Parses a header.
    pub(super) fn of_header(line: &str) -> Result<Self, String> {
        let (separator, titles): (_, Vec<&str>) = match line.strip_prefix('#') {
            Some(titles) if titles.contains(',') => (Separator::Comma, titles.split(',').collect()),
            Some(titles) => (Separator::Blanks, titles.split_whitespace().collect()),
            None => (Separator::Comma, line.split(',').collect()),
        };
        let has_pid = titles.iter().any(|title| matches!(name(title), "pid"));
        let role = |title: &&str| match name(title) {
            "timestamp" => Role::Timestamp,
            "Date" => Role::Date,
            "Time" => Role::Time,
            "index" | "gpu" => Role::Index,
            "uuid" | "gpu_uuid" => Role::Uuid,
            "pci.bus_id" | "gpu_bus_id" | "gpu_pci.bus_id" => Role::Bus,
            "name" | "gpu_name" if !has_pid || name(title) == "gpu_name" => Role::DeviceName,
            "process_name" | "name" | "command" => Role::ProcessName,
            "memory.used" | "used_memory" | "used_gpu_memory" | "fb" => Role::Used,
            "memory.total" => Role::Total,
            // Of processes these are shares of their own.
            "utilization.gpu" | "sm" if !has_pid => Role::Busy,
            "pid" => Role::Pid,
            _ => Role::Other,
        };
        let roles: Arc<[Role]> = titles.iter().map(role).collect();
        let columns = Self { separator, roles };
        if columns.has(Role::Used) || columns.has(Role::Total) {
            return Ok(columns);
        }
        Err("no column says how much memory is used; ask nvidia-smi for memory.used, or dmon for -s m".into())
    }

    /// Tells the columns of a table without a header by its first row.
    pub(super) fn of_bare_row(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if !is_bare_row(line) {
            return Err(format!("{} is neither a header nor a row of nvidia-smi", quoted(line.as_bytes())));
        }
        let is_mib = |field: &&&str| field.ends_with("MiB") || is_unavailable(field);
        let is_number = |field: &&&str| whole(field).is_some();
        let (sizes, numbers) =
            (fields.iter().filter(is_mib).count(), fields.iter().filter(is_number).count());
        let has_uuid = fields.iter().any(|field| field.starts_with("GPU-") || field.starts_with("MIG-"));
        let role = |(at, field): (usize, &&str)| match *field {
            _ if at == 0 => Role::Timestamp,
            field if field.starts_with("GPU-") || field.starts_with("MIG-") => Role::Uuid,
            field if field.ends_with("MiB") || (is_unavailable(field) && sizes == 1) => Role::Used,
            field if whole(field).is_some() && sizes == 0 => Role::Used,
            field => match whole(field) {
                Some(_) if has_uuid => Role::Pid,
                // No machine has so many GPUs, and hardly a process that uses one so small a number.
                Some(number) if number >= 256 => Role::Pid,
                Some(_) => Role::Index,
                None => Role::Other,
            },
        };
        let roles: Arc<[Role]> = fields.iter().enumerate().map(role).collect();
        let is_clear = (sizes == 1 && numbers <= 1) || (sizes == 0 && numbers == 1);
        if is_clear {
            return Ok(Self { separator: Separator::Comma, roles });
        }
        Err("there is no header, and the columns cannot be told apart; run nvidia-smi without noheader, or put \
             the names of the columns in a first line, as in: timestamp, index, memory.used [MiB]"
            .into())
    }

    fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Splits a row.
    pub(super) fn row<'a>(&'a self, line: &'a str) -> Result<Row<'a>, String> {
        let mut fields: Vec<&str> = match self.separator {
            Separator::Comma => line.split(',').map(str::trim).collect(),
            Separator::Blanks => line.split_whitespace().collect(),
        };
        // A process may have commas or blanks in its name, which is last or the only text.
        let (found, expected) = (fields.len(), self.roles.len());
        if found > expected
            && let Some(name) = self.roles.iter().position(|role| *role == Role::ProcessName)
        {
            fields.drain(name + 1..=name + found - expected);
        }
        if fields.len() != expected {
            return Err(format!("the row has {found} fields where the header has {expected}"));
        }
        Ok(Row { roles: &self.roles, fields })
    }
}

/// Whether a value stands for none: `[N/A]`, `[Insufficient Permissions]`, `-`.
fn is_unavailable(value: &str) -> bool {
    value == "-" || value == "N/A" || (value.starts_with('[') && value.ends_with(']'))
}

/// A value in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// There is no such column.
    Absent,
    /// `nvidia-smi` could not tell.
    Unavailable,
    /// It is known.
    Known(u64),
}

/// A row, split.
#[derive(Debug)]
pub(super) struct Row<'a> {
    roles: &'a [Role],
    fields: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn field(&self, role: Role) -> Option<&'a str> {
        let at = self.roles.iter().position(|known| *known == role)?;
        self.fields.get(at).copied()
    }

    fn text(&self, role: Role) -> &'a str {
        self.field(role).filter(|text| !is_unavailable(text)).unwrap_or_default()
    }

    fn value(&self, role: Role, name: &str, parse: impl Fn(&str) -> Option<u64>) -> Result<Value, String> {
        match self.field(role) {
            None => Ok(Value::Absent),
            Some(text) if is_unavailable(text) => Ok(Value::Unavailable),
            Some(text) => {
                let known = parse(text).map(Value::Known);
                known.ok_or_else(|| format!("{name} is {}, not a number", quoted(text.as_bytes())))
            }
        }
    }

    /// Day, where there is one, and time of day; none where the row has no time.
    pub(super) fn time(&self) -> Result<Option<(Option<Date>, i64)>, String> {
        if let Some(text) = self.field(Role::Timestamp) {
            let bad =
                || format!("timestamp is {}, not as in 2026/11/15 13:12:45.900", quoted(text.as_bytes()));
            return parse_timestamp(text).map(Some).ok_or_else(bad);
        }
        let Some(time) = self.field(Role::Time) else { return Ok(None) };
        let bad = |what: &str, text: &str| format!("{what} is {}", quoted(text.as_bytes()));
        let in_day_ns = parse_time_of_day_ns(time).ok_or_else(|| bad("Time", time))?;
        let date = self.field(Role::Date);
        let date = date.map(|date| parse_compact_date(date).ok_or_else(|| bad("Date", date))).transpose()?;
        Ok(Some((date, in_day_ns)))
    }

    /// Number of the device, if there is one.
    pub(super) fn index(&self) -> Result<Value, String> {
        self.value(Role::Index, "index", whole)
    }

    /// UUID of the device; empty if it is not there.
    pub(super) fn uuid(&self) -> &'a str {
        self.text(Role::Uuid)
    }

    /// Address of the device on the PCI bus; empty if it is not there.
    pub(super) fn bus(&self) -> &'a str {
        self.text(Role::Bus)
    }

    pub(super) fn device_name(&self) -> &'a str {
        self.text(Role::DeviceName)
    }

    pub(super) fn process_name(&self) -> &'a str {
        self.text(Role::ProcessName)
    }

    /// Number of the process, in tables of processes.
    pub(super) fn pid(&self) -> Result<Value, String> {
        self.value(Role::Pid, "pid", whole)
    }

    pub(super) fn used_bytes(&self) -> Result<Value, String> {
        self.value(Role::Used, "memory used", bytes)
    }

    pub(super) fn total_bytes(&self) -> Result<Value, String> {
        self.value(Role::Total, "memory.total", bytes)
    }

    pub(super) fn busy_percent(&self) -> Result<Value, String> {
        self.value(Role::Busy, "utilization", |text| whole(text.trim_end_matches('%').trim_end()))
    }
}

/// `1234`, `1234 MiB` or, from some versions, `1234 KiB` and `1 GiB`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, "MiB"));
    let shift = match unit.trim() {
        "MiB" | "MB" => 20,
        "KiB" => 10,
        "GiB" => 30,
        "B" | "bytes" => 0,
        _ => return None,
    };
    if shift == 20 {
        return mib(number);
    }
    whole(number)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_rows_are_told_apart() {
        for header in [
            "timestamp, memory.used [MiB]",
            "index, memory.used [MiB]",
            "pid, used_gpu_memory [MiB]",
            "# gpu     fb   bar1   ccpm",
            "#Time, gpu, fb, bar1, ccpm",
            "#Date        Time         gpu         pid   type     fb   ccpm    command",
        ] {
            assert!(is_header(header) && !is_units(header), "{header}");
            assert!(Columns::of_header(header).is_ok(), "{header}");
        }
        for units in ["# Idx     MB     MB     MB", "#HH:MM:SS, Idx, MB, MB, MB"] {
            assert!(is_units(units) && !is_header(units), "{units}");
        }
        assert!(
            Columns::of_header("timestamp, temperature.gpu").is_err_and(|text| text.contains("memory.used"))
        );
        assert!(is_bare_row("2026/11/15 13:12:48.965, 5647"));
        assert!(!is_bare_row("2026/11/15 13:12:48.965") && !is_bare_row("5647, 7"));
    }

    #[test]
    fn columns_without_a_header_are_told_by_what_is_in_them() {
        let pid_and_used = |line: &str| {
            let columns = Columns::of_bare_row(line)?;
            let row = columns.row(line)?;
            Ok::<_, String>((row.index()?, row.pid()?, row.used_bytes()?))
        };
        let known = |number: u64| Value::Known(number);
        let time = "2026/11/15 13:12:48.965";
        let none = Value::Absent;
        assert_eq!(pid_and_used(&format!("{time}, 5647")), Ok((none, none, known(5647 << 20))));
        assert_eq!(pid_and_used(&format!("{time}, 1, 5647 MiB")), Ok((known(1), none, known(5647 << 20))));
        assert_eq!(pid_and_used(&format!("{time}, GPU-1, 41, 7 MiB")), Ok((none, known(41), known(7 << 20))));
        assert_eq!(pid_and_used(&format!("{time}, [N/A]")), Ok((none, none, Value::Unavailable)));
        for unclear in ["1, 2", "1 MiB, 2 MiB", "1, 2, 3"] {
            let error = pid_and_used(&format!("{time}, {unclear}")).expect_err("unclear");
            assert!(error.contains("noheader"), "{error}");
        }
    }

    #[test]
    fn a_name_may_hold_what_separates_fields() {
        let columns = Columns::of_header("pid, process_name, used_memory [MiB]").expect("a header");
        let row = columns.row("7, /opt/a, b/python, 5 MiB").expect("a row");
        assert_eq!((row.pid(), row.used_bytes()), (Ok(Value::Known(7)), Ok(Value::Known(5 << 20))));
        assert!(columns.row("7, 5 MiB").is_err());
    }
}
