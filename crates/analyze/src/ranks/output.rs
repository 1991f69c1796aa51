//! Output of ranks: which of them wrote a line, and the last line of each before its peak.
//!
//! A recorder that wraps one rank knows whose output it reads. Output of a launcher is that of all its ranks, and can
//! be told apart only where the launcher was asked to label lines.

use std::collections::BTreeMap;

use floodmark_event::{OutputRow, OutputStream, ProcessId};

/// Longest beginning of a line that is kept.
const MOST_BYTES: usize = 400;
/// Bytes after which a line without an end is not waited for any longer.
const MOST_HELD: usize = 16 << 10;

/// How a launcher labels lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineLabels {
    /// Open MPI's `--tag-output`: `[1,3]<stdout>:text`.
    Tags,
    /// MPICH's `-l`, `-prepend-rank`: `[3] text`.
    Brackets,
    /// `srun -l`: `3: text`.
    Colons,
}

impl LineLabels {
    /// Returns the labels that the command line of a launcher asks for, if it does.
    pub fn of_command(command: &str) -> Option<Self> {
        let mut words = command.split_whitespace();
        let launcher = words.find_map(|word| {
            let name = word.rsplit('/').next().unwrap_or(word);
            ["mpiexec", "mpirun", "srun", "orterun", "prterun"]
                .into_iter()
                .find(|known| name.starts_with(known))
        })?;
        let has = |names: &[&str]| words.clone().any(|word| names.contains(&word));
        match launcher {
            "srun" if has(&["-l", "--label"]) => Some(Self::Colons),
            "srun" => None,
            _ if has(&["--tag-output", "-tag-output"]) => Some(Self::Tags),
            _ if has(&["-l", "-prepend-rank"]) => Some(Self::Brackets),
            _ => None,
        }
    }

    /// Cuts the label off a line; returns the rank and the rest.
    pub fn split(self, line: &str) -> Option<(u64, &str)> {
        let (rank, rest) = match self {
            Self::Tags => {
                let (label, rest) = line.strip_prefix('[')?.split_once(']')?;
                let text = rest.strip_prefix('<')?.split_once(">:")?.1;
                (label.split_once(',')?.1, text)
            }
            Self::Brackets => line.strip_prefix('[')?.split_once(']')?,
            Self::Colons => line.split_once(':')?,
        };
        Some((rank.trim().parse().ok()?, rest.trim()))
    }
}

/// Tells which rank wrote a line of output.
#[derive(Clone, Debug, Default)]
pub struct LineRanks {
    /// Rank whose output a recorder reads, by the recorder's process.
    recorders: BTreeMap<u32, u64>,
    labels: Option<LineLabels>,
}

impl LineRanks {
    /// Starts with the recorders that read one rank each, and the labels of others.
    pub fn new(recorders: BTreeMap<u32, u64>, labels: Option<LineLabels>) -> Self {
        Self { recorders, labels }
    }

    /// Learns that a recorder reads the output of one rank.
    pub fn learn(&mut self, recorder: u32, rank: u64) {
        self.recorders.insert(recorder, rank);
    }

    /// Returns the rank that wrote a line, and the line without a launcher's label; none if that is not known.
    pub fn split<'l>(&self, recorder: u32, line: &'l str) -> Option<(u64, &'l str)> {
        match self.recorders.get(&recorder) {
            Some(rank) => Some((*rank, line)),
            None => self.labels?.split(line),
        }
    }
}

/// Divides output into pieces of which each is that of one rank, if the rank is known at all.
#[derive(Clone, Debug, Default)]
pub struct RankedOutput {
    writers: LineRanks,
    /// Lines without an end so far, and the time of their first byte.
    open: BTreeMap<(ProcessId, OutputStream), (i64, Vec<u8>)>,
}

/// Output that one rank wrote; the rank is none if it is not known.
pub type RankedRow = (Option<u64>, OutputRow);

impl RankedOutput {
    /// Starts with what is known of the ranks' recorders and labels.
    pub fn new(writers: LineRanks) -> Self {
        Self { writers, open: BTreeMap::new() }
    }

    /// Learns that a recorder reads the output of one rank.
    pub fn learn(&mut self, recorder: u32, rank: u64) {
        self.writers.learn(recorder, rank);
    }

    /// Takes in output. It stays as it was read, unless the launcher labels lines: these are then returned one by one, with
    /// their labels, once they are complete.
    pub fn push(&mut self, row: &OutputRow) -> Vec<RankedRow> {
        let rank = self.writers.recorders.get(&row.process.0).copied();
        if rank.is_some() || self.writers.labels.is_none() {
            return vec![(rank, row.clone())];
        }
        let key = (row.process, row.stream);
        let mut lines = Vec::new();
        for piece in row.bytes.split_inclusive(|byte| *byte == b'\n') {
            let (_, line) = self.open.entry(key).or_insert_with(|| (row.time_ns, Vec::new()));
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") || line.len() > MOST_HELD {
                lines.extend(self.open.remove(&key).map(|(time_ns, line)| self.line(time_ns, key, line)));
            }
        }
        lines
    }

    /// Returns the lines that never ended.
    pub fn finish(&mut self) -> Vec<RankedRow> {
        let open = std::mem::take(&mut self.open).into_iter();
        open.map(|(key, (time_ns, line))| self.line(time_ns, key, line)).collect()
    }

    fn line(&self, time_ns: i64, (process, stream): (ProcessId, OutputStream), bytes: Vec<u8>) -> RankedRow {
        let rank = self.writers.split(process.0, &String::from_utf8_lossy(&bytes)).map(|(rank, _)| rank);
        (rank, OutputRow { time_ns, process, stream, bytes })
    }
}

/// Finds the last line that each rank wrote before its peak.
#[derive(Clone, Debug)]
pub struct RankOutputFold {
    /// Time of each rank's peak, and the line.
    ranks: BTreeMap<u64, (i64, Option<String>)>,
    writers: LineRanks,
    /// Lines without an end so far.
    open: BTreeMap<(u32, OutputStream), Vec<u8>>,
}

impl RankOutputFold {
    /// Starts with the instants of the ranks' peaks, the recorders that read one rank each, and the labels of others.
    pub fn new(peaks: &[(u64, i64)], recorders: BTreeMap<u32, u64>, labels: Option<LineLabels>) -> Self {
        let ranks = peaks.iter().map(|(rank, time_ns)| (*rank, (*time_ns, None))).collect();
        Self { ranks, writers: LineRanks::new(recorders, labels), open: BTreeMap::new() }
    }

    /// Takes in more output.
    pub fn update(&mut self, rows: &[OutputRow]) {
        for row in rows {
            let key = (row.process.0, row.stream);
            for piece in row.bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
                let line = self.open.entry(key).or_default();
                let room = MOST_BYTES.saturating_sub(line.len());
                line.extend(piece.iter().take(room));
                if matches!(piece.last(), Some(b'\n' | b'\r')) {
                    let line = self.open.remove(&key).unwrap_or_default();
                    self.line(row.process.0, row.time_ns, &String::from_utf8_lossy(&line));
                }
            }
        }
    }

    fn line(&mut self, recorder: u32, time_ns: i64, line: &str) {
        let Some((rank, text)) = self.writers.split(recorder, line.trim()) else { return };
        if let Some((peak_ns, last)) = self.ranks.get_mut(&rank)
            && time_ns <= *peak_ns
            && !text.is_empty()
        {
            *last = Some(text.to_owned());
        }
    }

    /// Returns the lines that were found, by rank.
    pub fn finish(self) -> BTreeMap<u64, String> {
        self.ranks.into_iter().filter_map(|(rank, (_, line))| Some((rank, line?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(time_ns: i64, process: u32, text: &str) -> OutputRow {
        let (process, stream) = (ProcessId(process), OutputStream::Stdout);
        OutputRow { time_ns, process, stream, bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn output_is_divided_where_another_rank_begins_to_write() {
        let labels = LineLabels::of_command("srun -l ./app");
        let mut output = RankedOutput::new(LineRanks::new(BTreeMap::from([(7, 5)]), labels));
        assert_eq!(output.push(&row(1, 7, "a\nb")), [(Some(5), row(1, 7, "a\nb"))]);
        let found = output.push(&row(2, 8, "0: a\n1: b\nno label\n1: c"));
        let expected = [(Some(0), "0: a\n"), (Some(1), "1: b\n"), (None, "no label\n")];
        assert_eq!(found, expected.map(|(rank, text)| (rank, row(2, 8, text))));
        assert_eq!(output.push(&row(3, 8, "d\n2: e")), [(Some(1), row(2, 8, "1: cd\n"))]);
        assert_eq!(output.finish(), [(Some(2), row(3, 8, "2: e"))]);
        let mut plain = RankedOutput::default();
        assert_eq!(plain.push(&row(1, 8, "0: a\n1: b")), [(None, row(1, 8, "0: a\n1: b"))]);
    }

    #[test]
    fn labels_are_known_by_the_launcher_that_writes_them() {
        use LineLabels::{Brackets, Colons, Tags};
        let of = LineLabels::of_command;
        assert_eq!(of("mpiexec.openmpi --tag-output -n 2 ./app -l"), Some(Tags));
        assert_eq!(of("/usr/bin/mpiexec -l -n 2 ./app"), Some(Brackets));
        assert_eq!(of("srun --label ./app"), Some(Colons));
        assert_eq!([of("srun -n 2 ./app"), of("ls -l"), of("")], [None; 3]);
        assert_eq!(Tags.split("[1,3]<stdout>:step 4"), Some((3, "step 4")));
        assert_eq!(Brackets.split("[12] done"), Some((12, "done")));
        assert_eq!(Colons.split(" 3: a: b"), Some((3, "a: b")));
        assert_eq!([Tags.split("[1] x"), Brackets.split("12"), Colons.split("note: x")], [None; 3]);
    }

    #[test]
    fn the_last_line_before_the_peak_of_its_rank_counts() {
        let recorders = BTreeMap::from([(7, 0)]);
        let mut fold = RankOutputFold::new(&[(0, 30), (1, 30)], recorders, Some(LineLabels::Colons));
        fold.update(&[
            row(10, 7, "one\ntw"),
            row(20, 7, "o\n\n"),
            row(25, 7, "three"),
            row(31, 7, "\nfour\n"),
        ]);
        fold.update(&[row(10, 8, "1: a\n"), row(20, 8, "no label\n"), row(40, 8, "1: b\n")]);
        let found = fold.finish();
        assert_eq!(found, BTreeMap::from([(0, "two".to_owned()), (1, "a".to_owned())]));
    }
}
