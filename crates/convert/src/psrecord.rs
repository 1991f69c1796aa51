//! Logs of `psrecord`, in both of its formats: memory of a process, or of it and its children, over time.
//!
//! | plain | csv | in a trace |
//! |---|---|---|
//! | `Elapsed time` | `elapsed_time` | seconds since midnight of [`OpenProps::date`]: the log holds no other clock |
//! | `Real (MB)` | `mem_real` | `rss` of the job, in MiB |
//! | `Virtual (MB)` | `mem_virtual` | `virtual` of the job, in MiB |
//! | | `nproc` | `processes` of the job |
//!
//! The processor's load and what was read and written are passed over: they are no memory.

use std::io::Read;
use std::path::Path;

use floodmark_event::units::NS_PER_DAY;
use floodmark_event::{Metric, SubjectKind};

use crate::OpenProps;
use crate::numbers::{float_seconds_ns, mib, whole};
use crate::quote::quoted;
use crate::records::{Lines, LogReader, Out, ParseLine, subject};
use floodmark_store::RowSource;

/// Opens a log; `path` is what messages call it.
pub fn open<'a>(input: impl Read + Send + 'a, path: &Path, props: &OpenProps) -> Box<dyn RowSource + 'a> {
    Box::new(reader(input, path, props))
}

pub(crate) fn reader<R: Read>(input: R, path: &Path, props: &OpenProps) -> LogReader<R, Lines<Format>> {
    let days = props.date.map_or(0, floodmark_event::units::Date::epoch_days);
    // A date beyond the years that nanoseconds can count is as good as none.
    let start_ns = days.checked_mul(NS_PER_DAY).unwrap_or(0);
    LogReader::new(input, Lines::of(Format { start_ns, columns: None, job: None }), path, props)
}

/// Whether the beginning of a file is a log.
pub(crate) fn begins_log(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    line.and_then(|line| str::from_utf8(line).ok()).is_some_and(|line| Columns::of_header(line).is_some())
}

/// What a column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Elapsed,
    Real,
    Virtual,
    Processes,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Columns {
    is_csv: bool,
    roles: Vec<Role>,
}

impl Columns {
    fn of_header(line: &str) -> Option<Self> {
        if let Some(titles) = line.trim().strip_prefix('#') {
            // Titles hold blanks, so they are looked for as a whole; their order has never changed.
            let mut roles = vec![Role::Elapsed, Role::Other, Role::Real, Role::Virtual];
            let is_log = ["Elapsed time", "CPU (%)", "Real (MB)", "Virtual (MB)"]
                .iter()
                .all(|title| titles.contains(title));
            roles
                .extend(["count", "bytes"].iter().flat_map(|word| titles.matches(word)).map(|_| Role::Other));
            return is_log.then_some(Self { is_csv: false, roles });
        }
        let role = |name: &str| match name.trim() {
            "elapsed_time" => Role::Elapsed,
            "mem_real" => Role::Real,
            "mem_virtual" => Role::Virtual,
            "nproc" => Role::Processes,
            _ => Role::Other,
        };
        let roles: Vec<Role> = line.split(',').map(role).collect();
        let is_log = roles.contains(&Role::Elapsed) && roles.contains(&Role::Real);
        is_log.then_some(Self { is_csv: true, roles })
    }
}

/// Parses lines.
#[derive(Debug)]
pub(crate) struct Format {
    start_ns: i64,
    columns: Option<Columns>,
    job: Option<u64>,
}

impl ParseLine for Format {
    fn line(&mut self, line: &str, out: &mut Out) -> Result<(), String> {
        if let Some(columns) = Columns::of_header(line) {
            self.columns = Some(columns);
            return Ok(());
        }
        let Some(columns) = &self.columns else {
            return Err("there is no header before this line".into());
        };
        let fields: Vec<&str> = if columns.is_csv {
            line.split(',').map(str::trim).collect()
        } else {
            line.split_whitespace().collect()
        };
        if fields.len() != columns.roles.len() {
            let (found, expected) = (fields.len(), columns.roles.len());
            return Err(format!("the row has {found} fields where the header has {expected}"));
        }
        let mut time_ns = self.start_ns;
        let mut samples = Vec::new();
        for (role, field) in columns.roles.iter().zip(fields) {
            let bad = || format!("{} is no number", quoted(field.as_bytes()));
            match role {
                Role::Elapsed => {
                    let elapsed = float_seconds_ns(field).ok_or_else(bad)?;
                    time_ns = self.start_ns.checked_add(elapsed).ok_or_else(bad)?;
                }
                Role::Real => samples.push((Metric::Rss, mib(field).ok_or_else(bad)?)),
                Role::Virtual => samples.push((Metric::Virtual, mib(field).ok_or_else(bad)?)),
                Role::Processes => samples.push((Metric::Processes, whole(field).ok_or_else(bad)?)),
                Role::Other => {}
            }
        }
        let job = *self.job.get_or_insert_with(|| {
            let name = out.log_name();
            out.subject(subject(SubjectKind::Job, 0, name))
        });
        for (metric, value) in samples {
            out.sample(time_ns, job, metric, value);
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Out) {}
}
