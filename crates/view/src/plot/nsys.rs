//! Usage files of the nsys scripts: `time(ns)`, `total (B)`, `valid (B)`, `invalid (B)`, `driver (B)`.
//!
//! *Valid* are bytes whose call stack is known, *invalid* those whose is not, *driver* those the driver
//! manages.

use crate::plot::model::{Figure, Layer, Point, Role, Series, Stack};

/// A usage file: a row per change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NsysUsage {
    /// When, in the file's own time.
    pub times_ns: Vec<i64>,
    /// Total, valid, invalid and driver bytes at each of the times.
    pub bytes: Vec<[u64; 4]>,
}

const COLUMNS: [&str; 5] = ["time", "total", "valid", "invalid", "driver"];

impl NsysUsage {
    /// Reads a usage file. Columns may be in any order, and all but time and total may be missing.
    ///
    /// # Errors
    /// A sentence that names the line and says what should be there.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let (_, header) = lines.next().ok_or("it is empty; 'usage' of process.py writes it")?;
        let name = |field: &str| field.split('(').next().unwrap_or_default().trim().to_lowercase();
        let names: Vec<String> = header.split('\t').map(name).collect();
        let places = COLUMNS.map(|column| names.iter().position(|name| name == column));
        let (Some(time), Some(_)) = (places[0], places[1]) else {
            return Err("line 1 does not name the columns 'time(ns)' and 'total (B)'".into());
        };
        let mut usage = Self::default();
        for (number, line) in lines {
            let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
            let bad = |what: &str| format!("line {number} has no {what} that is a whole number");
            let field = |place: usize| fields.get(place).copied().unwrap_or_default();
            let time_ns: i64 = field(time).parse().map_err(|_| bad("time"))?;
            let mut bytes = [0; 4];
            for (value, (place, column)) in bytes.iter_mut().zip(places.iter().zip(COLUMNS).skip(1)) {
                if let Some(place) = place {
                    // Sums of frees that were never allocated are below zero.
                    *value = field(*place).parse::<i64>().map_err(|_| bad(column))?.max(0).unsigned_abs();
                }
            }
            usage.times_ns.push(time_ns);
            usage.bytes.push(bytes);
        }
        if usage.times_ns.is_empty() {
            return Err("there is no row below its header".into());
        }
        Ok(usage)
    }

    /// Makes a figure, time since the first row; `smi` is what the device reported meanwhile, from its own
    /// start on.
    pub fn figure(&self, title: String, smi: Option<Series>) -> Figure {
        let first_ns = self.times_ns.iter().copied().min().unwrap_or(0);
        let mut order: Vec<usize> = (0..self.times_ns.len()).collect();
        order.sort_by_key(|at| self.times_ns[*at]);
        let times_ns: Vec<i64> = order.iter().map(|at| self.times_ns[*at].saturating_sub(first_ns)).collect();
        let column = |number: usize| order.iter().map(|at| self.bytes[*at][number]).collect::<Vec<u64>>();
        let total = column(0);
        let end_ns = times_ns.last().copied().unwrap_or(0);
        let points =
            times_ns.iter().zip(&total).map(|(time_ns, bytes)| Point { time_ns: *time_ns, bytes: *bytes });
        let names = ["with a call stack", "without a call stack", "of the driver"];
        let layers: Vec<Layer> = (1..)
            .zip(names)
            .map(|(number, name)| Layer { name: name.into(), values: column(number) })
            .filter(|layer| layer.values.iter().any(|value| *value > 0))
            .collect();
        let sum = |row: usize| layers.iter().map(|layer| u128::from(layer.values[row])).sum::<u128>();
        let adds_up = total.iter().enumerate().all(|(row, total)| sum(row) == u128::from(*total));
        let stack =
            (layers.len() > 1 && adds_up).then(|| Stack { times_ns: times_ns.clone(), layers, end_ns });
        let mut series =
            vec![Series { name: "total".into(), points: points.collect(), end_ns, ..Series::default() }];
        series.extend(smi.map(|smi| Series { role: Role::Beside, ..smi }));
        series[0].peak = series[0].highest();
        Figure { title, measure: "allocated device memory".into(), series, stack, ..Figure::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::model::Peak;

    const FILE: &str = "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n\
                        1000\t512\t512\t0\t0\n3000\t1536\t512\t0\t1024\n5000\t1024\t0\t0\t1024\n";

    #[test]
    fn a_usage_file_becomes_a_stack_of_what_is_in_it() {
        let usage = NsysUsage::parse(FILE).unwrap();
        let figure = usage.figure("run".into(), None);
        let stack = figure.stack.unwrap();
        let names: Vec<&str> = stack.layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(
            (names, stack.times_ns),
            (vec!["with a call stack", "of the driver"], vec![0, 2000, 4000])
        );
        assert_eq!(figure.series[0].peak, Some(Peak { time_ns: 2000, bytes: 1536 }));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        assert!(NsysUsage::parse("").unwrap_err().contains("empty"));
        assert!(NsysUsage::parse("a\tb\n").unwrap_err().contains("line 1"));
        assert!(
            NsysUsage::parse(&format!("{FILE}x\t1\t1\t1\t1\n"))
                .unwrap_err()
                .starts_with("line 5 has no time")
        );
        assert!(NsysUsage::parse(&format!("{FILE}7\t1\n")).unwrap_err().starts_with("line 5 has no valid"));
        assert!(NsysUsage::parse("time(ns)\ttotal (B)\n").unwrap_err().contains("no row"));
    }
}
