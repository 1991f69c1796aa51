//! A chart of what the nsys scripts call usage: device memory by what is known of its origin.
//!
//! *Valid* are bytes whose call stack is known, *invalid* those without one, *driver* those that the driver
//! manages.

use crate::plot::model::{Figure, Layer, Point, Role, Series, Stack};

/// Device memory over time, a row per change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NsysUsage {
    /// Nanoseconds of each row, in the file's own time.
    pub times_ns: Vec<i64>,
    /// Total, valid, invalid and driver bytes at each of the times.
    pub bytes: Vec<[u64; 4]>,
}

impl NsysUsage {
    /// Makes a figure, time since the first row; `smi` is what devices reported meanwhile, from their own
    /// start on.
    pub fn figure(&self, title: String, smi: Vec<Series>) -> Figure {
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
        series.extend(smi.into_iter().map(|smi| Series { role: Role::Beside, ..smi }));
        series[0].peak = series[0].highest();
        Figure { title, measure: "allocated device memory".into(), series, stack, ..Figure::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::model::Peak;

    #[test]
    fn a_usage_file_becomes_a_stack_of_what_is_in_it() {
        let usage = NsysUsage {
            times_ns: vec![1000, 3000, 5000],
            bytes: vec![[512, 512, 0, 0], [1536, 512, 0, 1024], [1024, 0, 0, 1024]],
        };
        let figure = usage.figure("run".into(), Vec::new());
        let stack = figure.stack.unwrap();
        let names: Vec<&str> = stack.layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(
            (names, stack.times_ns),
            (vec!["with a call stack", "of the driver"], vec![0, 2000, 4000])
        );
        assert_eq!(figure.series[0].peak, Some(Peak { time_ns: 2000, bytes: 1536 }));
    }
}
