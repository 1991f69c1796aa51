//! Rows of one look at all devices or processes, put together.
//!
//! A device or process that comes again begins the next sweep. A device is known by its UUID, its address on the
//! bus or its index, whichever a row has: outputs of several queries are about the same devices. Where rows have
//! none of these, those with the same time are about one after the other, and there are as many devices as the
//! first sweep has rows.

use std::collections::{BTreeMap, HashMap, HashSet};

use floodmark_event::units::NS_PER_S;
use floodmark_event::{Metric, SubjectKind};

use super::columns::{Row, Value};
use crate::records::{Out, subject};

/// Note on missing values.
const UNAVAILABLE: &str = "nvidia-smi could not read a value";

/// What identifies a device in the output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Device {
    Index(u64),
    Uuid(String),
    Bus(String),
    /// None of these; its place in the sweep.
    Place(u64),
}

/// A process that is, or was, on some device.
#[derive(Clone, Copy, Debug)]
struct Process {
    subject: u64,
    /// Bytes it was told to have, in all.
    bytes: u64,
    /// Whether it has come in this sweep, and its bytes so far where they could be read.
    is_listed: bool,
    now: Option<u64>,
}

/// Puts rows together.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    /// Subjects by everything that identifies them.
    devices: HashMap<Device, u64>,
    /// How many devices the first sweep had, of those that only their place identifies.
    places: Option<u64>,
    device_count: u64,
    processes: BTreeMap<u64, Process>,
    /// What has come in this sweep.
    seen: HashSet<(Device, Option<u64>)>,
    time_ns: i64,
    /// How many sweeps without a time there were.
    untimed: i64,
}

impl Sweeps {
    pub(super) fn add(&mut self, row: &Row<'_>, time_ns: Option<i64>, out: &mut Out) -> Result<(), String> {
        let pid = match row.pid()? {
            Value::Known(pid) => Some(pid),
            // A device on which nothing runs.
            Value::Unavailable => return Ok(()),
            Value::Absent => None,
        };
        let (used, total, busy) = (row.used_bytes()?, row.total_bytes()?, row.busy_percent()?);
        let device = match row.index()? {
            Value::Known(index) => Device::Index(index),
            _ if !row.uuid().is_empty() => Device::Uuid(row.uuid().to_owned()),
            _ if !row.bus().is_empty() => Device::Bus(row.bus().to_owned()),
            _ if pid.is_some() => Device::Place(0),
            // Rows of one sweep have the same time, or none at all.
            _ if time_ns == Some(self.time_ns) => {
                let place = self.seen.len() as u64;
                // A second look at one device may have the time of the first.
                Device::Place(if self.places.is_some_and(|places| place >= places) { 0 } else { place })
            }
            _ => Device::Place(0),
        };
        let key = (device, pid);
        let is_next = match key.0 {
            Device::Place(place) if pid.is_none() => place == 0,
            _ => self.seen.contains(&key),
        };
        if is_next || self.seen.is_empty() {
            if matches!(key, (Device::Place(_), None)) && !self.seen.is_empty() {
                self.places.get_or_insert(self.seen.len() as u64);
            }
            self.finish(out);
            self.time_ns = time_ns.unwrap_or(self.untimed * NS_PER_S);
            self.untimed += 1;
        }
        // Rows of a sweep may be some milliseconds apart.
        let time_ns = time_ns.unwrap_or(self.time_ns);
        match pid {
            Some(pid) => {
                let process = self.process(pid, row, out);
                process.is_listed = true;
                if let Value::Known(bytes) = used {
                    process.now = Some(process.now.unwrap_or(0).saturating_add(bytes));
                } else {
                    out.losses.remark_times(1, UNAVAILABLE);
                }
            }
            None => {
                let device = self.device(&key.0, row, out);
                for (metric, value) in
                    [(Metric::GpuUsed, used), (Metric::GpuTotal, total), (Metric::GpuBusy, busy)]
                {
                    match value {
                        Value::Known(value) => out.sample(time_ns, device, metric, value),
                        Value::Unavailable => out.losses.remark_times(1, UNAVAILABLE),
                        Value::Absent => {}
                    }
                }
            }
        }
        self.seen.insert(key);
        Ok(())
    }

    fn device(&mut self, device: &Device, row: &Row<'_>, out: &mut Out) -> u64 {
        if let Some(subject) = self.devices.get(device) {
            return *subject;
        }
        let own = [(row.uuid(), Device::Uuid as fn(String) -> Device), (row.bus(), Device::Bus)];
        let own = own.into_iter().filter(|(text, _)| !text.is_empty());
        let names: Vec<Device> =
            own.map(|(text, named)| named(text.to_owned())).chain([device.clone()]).collect();
        let known = names.iter().find_map(|name| self.devices.get(name).copied());
        let subject = known.unwrap_or_else(|| {
            let number = match device {
                Device::Index(number) | Device::Place(number) => *number,
                Device::Uuid(_) | Device::Bus(_) => self.device_count,
            };
            self.device_count += 1;
            let mut new = subject(SubjectKind::Device, number, row.device_name());
            let detail = if row.uuid().is_empty() { row.bus() } else { row.uuid() };
            detail.clone_into(&mut new.detail);
            out.subject(new)
        });
        for name in names {
            self.devices.entry(name).or_insert(subject);
        }
        subject
    }

    fn process(&mut self, pid: u64, row: &Row<'_>, out: &mut Out) -> &mut Process {
        self.processes.entry(pid).or_insert_with(|| {
            let new = out.subject(subject(SubjectKind::Process, pid, row.process_name()));
            Process { subject: new, bytes: 0, is_listed: false, now: None }
        })
    }

    /// Tells what processes had in the sweep at hand; those that did not come have none.
    pub(super) fn finish(&mut self, out: &mut Out) {
        if self.seen.is_empty() {
            return;
        }
        self.seen.clear();
        for process in self.processes.values_mut() {
            let is_listed = std::mem::take(&mut process.is_listed);
            match process.now.take() {
                Some(bytes) => {
                    process.bytes = bytes;
                    out.sample(self.time_ns, process.subject, Metric::GpuUsed, bytes);
                }
                None if !is_listed && process.bytes > 0 => {
                    process.bytes = 0;
                    out.sample(self.time_ns, process.subject, Metric::GpuUsed, 0);
                }
                None => {}
            }
        }
    }
}
