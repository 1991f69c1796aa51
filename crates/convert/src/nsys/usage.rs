//! Usage files of the nsys scripts: `time(ns)`, `total (B)`, `valid (B)`, `invalid (B)`, `driver (B)`.

/// A usage file: a row per change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageTable {
    /// Nanoseconds of each row, in the file's own time.
    pub times_ns: Vec<i64>,
    /// Total, valid, invalid and driver bytes of each row.
    pub bytes: Vec<[u64; 4]>,
}

const COLUMNS: [&str; 5] = ["time", "total", "valid", "invalid", "driver"];

impl UsageTable {
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
        let mut table = Self::default();
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
            table.times_ns.push(time_ns);
            table.bytes.push(bytes);
        }
        if table.times_ns.is_empty() {
            return Err("there is no row below its header".into());
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n\
                        1000\t512\t512\t0\t0\n3000\t1536\t512\t0\t1024\n5000\t1024\t0\t-1\t1024\n";

    #[test]
    fn columns_are_found_by_name_and_no_sum_is_below_zero() {
        let table = UsageTable::parse(FILE).unwrap();
        assert_eq!(table.times_ns, [1000, 3000, 5000]);
        assert_eq!(table.bytes, [[512, 512, 0, 0], [1536, 512, 0, 1024], [1024, 0, 0, 1024]]);
        let table = UsageTable::parse("total (B)\ttime(ns)\n7\t3\n").unwrap();
        assert_eq!((table.times_ns, table.bytes), (vec![3], vec![[7, 0, 0, 0]]));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        let error = |text: &str| UsageTable::parse(text).unwrap_err();
        assert!(error("").contains("empty"));
        assert!(error("a\tb\n").contains("line 1"));
        assert!(error(&format!("{FILE}x\t1\t1\t1\t1\n")).starts_with("line 5 has no time"));
        assert!(error(&format!("{FILE}7\t1\n")).starts_with("line 5 has no valid"));
        assert!(error("time(ns)\ttotal (B)\n").contains("no row"));
    }
}
