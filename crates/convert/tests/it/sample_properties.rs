//! What holds for every log of samples and for any bytes at all.

use std::fmt::Write as _;

use floodmark_convert::{Format, OpenProps};
use floodmark_event::Row;
use floodmark_event::{Metric, SubjectKind};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::logs::Pieces;
use crate::sample_logs::{FORMATS, drain, lenient, source};

/// A field as Python's `csv` writes it with the options of `memory_logger`: the backslash is left alone.
fn csv_field(text: &str) -> String {
    if text.contains(['|', ',', '\n', '\r']) {
        format!("|{}|", text.replace('|', "||"))
    } else {
        text.to_owned()
    }
}

prop_compose! {
    /// A row of `memory_logger`: microseconds since the row before, KiB, output, host.
    fn row()(
        step_us in 0u64..1_000_000,
        kib in 0u64..1 << 40,
        output in "[a-z|,\\\\\r\n \u{e9}]{0,20}",
        host in select(vec!["nodeA", "nodeB", "node,|C"]),
    ) -> (u64, u64, String, &'static str) {
        (step_us, kib, output, host)
    }
}

/// Lines of all formats, good and bad.
fn messy(format: Format) -> impl Strategy<Value = Vec<u8>> {
    let (header, lines): (_, Vec<&'static str>) = match format {
        Format::MemoryLogger => (
            "",
            vec![
                "1794724130.446520,52716,|step 0\n|,,vm,52716\r\n",
                "1794724131.5,0,,,vm,0\r\n",
                "1794724131.5,7,|a||b\\|,|#0  0x1 in f (x=1) at a.c:3\n|,nodeB,7\r\n",
                "1794724132.5,7,|cut",
                "|",
                ",,,,,\r\n",
                "1794724132.5,7,\n",
            ],
        ),
        Format::Smi => (
            "timestamp, index, memory.used [MiB], memory.total [MiB]\n",
            vec![
                "2026/11/15 13:12:45.927, 0, 2575 MiB, 143771 MiB\n",
                "2026/11/15 13:12:45.928, 1, [N/A], 143771 MiB\n",
                "timestamp, pid, used_memory [MiB]\n",
                "2026/11/15 13:12:46.000, 7, 5\n",
                "# gpu     fb\n# Idx     MB\n    0   7695\n",
                "Failed to initialize NVML: Unknown Error\n",
                "#Time gpu pid fb command\n 23:59:59 0 7 5 a b\n 00:00:01 1 7 5 c\n 00:00:02 - - - -\n",
            ],
        ),
        Format::Mprof => (
            "CMDLINE python a.py\n",
            vec![
                "MEM 1.5 100.25\n",
                "CHLD 7 2.5 100.3\n",
                "FUNC a.b 1 99.5 2 101.5 0\n",
                "FUNC a.<lambda> 1 99.5 2 100.5\n",
                "MEM 2.5 101.25\n",
                "MEM x y\n",
            ],
        ),
        _ => (
            "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n",
            vec![
                "       0.211        9.700       71.008       78.781\n",
                "elapsed_time,nproc,cpu,mem_real,mem_virtual\n",
                "6.2e-05,2,0.0,11.03515625,15.109375\n",
                "1 2 3\n",
            ],
        ),
    };
    let piece = prop_oneof![
        8 => select(lines).prop_map(|line| line.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..30),
        1 => Just(b"\n".to_vec()),
    ];
    vec(piece, 0..25).prop_map(move |pieces| [header.as_bytes().to_vec(), pieces.concat()].concat())
}

proptest! {
    #[test]
    fn rows_of_a_log_are_read_as_they_were_written(rows in vec(row(), 1..40)) {
        let mut log = String::new();
        let mut time_us = 1_794_724_130_000_000;
        let (mut samples, mut output) = (Vec::new(), Vec::new());
        for (step_us, kib, text, host) in &rows {
            time_us += step_us;
            let (total, seconds, fraction) = (kib / 2, time_us / 1_000_000, time_us % 1_000_000);
            let _ = write!(log, "{seconds}.{fraction:06},{total},{},,{},{kib}\r\n", csv_field(text), csv_field(host));
            samples.push((time_us as i64 * 1000, SubjectKind::Job, total * 1024, "log"));
            samples.push((time_us as i64 * 1000, SubjectKind::Host, kib * 1024, *host));
            output.extend_from_slice(text.as_bytes());
        }
        let read = drain(source(Format::MemoryLogger, log.as_bytes(), &OpenProps::default()));
        prop_assert_eq!(&read.error, &None);
        prop_assert!(read.losses.is_empty());
        let (mut read_samples, mut read_output) = (Vec::new(), Vec::new());
        for row in &read.rows {
            match row {
                Row::Sample(row) => {
                    prop_assert_eq!(row.metric, Metric::Rss);
                    let subject = &read.tables.subjects[&row.subject];
                    read_samples.push((row.time_ns, subject.kind, row.value, &*subject.name));
                }
                Row::Output(row) => read_output.extend_from_slice(&row.bytes),
                _ => prop_assert!(false, "neither stacks nor scopes"),
            }
        }
        prop_assert_eq!(read_samples, samples);
        prop_assert_eq!(read_output, output);
    }

    #[test]
    fn a_log_reads_the_same_in_blocks_of_any_size(
        (format, log) in select(&FORMATS[..]).prop_flat_map(|(_, format)| (Just(format), messy(format))),
        sizes in vec(0..70usize, 1..8),
    ) {
        prop_assume!(sizes.iter().any(|size| *size > 0));
        for props in [OpenProps::default(), lenient()] {
            let whole = drain(source(format, &*log, &props));
            let pieces = drain(source(format, Pieces::new(&log, sizes.clone()), &props));
            prop_assert_eq!(&pieces.rows, &whole.rows);
            prop_assert_eq!((pieces.error, pieces.losses), (whole.error, whole.losses));
        }
    }

    #[test]
    fn a_lenient_reading_goes_on_where_a_strict_one_ends(
        (format, log) in select(&FORMATS[1..]).prop_flat_map(|(_, format)| (Just(format), messy(format))),
    ) {
        let strict = drain(source(format, &*log, &OpenProps::default()));
        let lenient = drain(source(format, &*log, &lenient()));
        prop_assert!(lenient.rows.starts_with(&strict.rows));
        prop_assert_eq!(lenient.error, None);
        prop_assert_eq!(strict.error.is_some(), lenient.losses.gaps.iter().any(|gap| gap.reason.contains("skipped")));
    }

    #[test]
    fn any_bytes_are_read_without_panic((_, format) in select(&FORMATS[..]), bytes in vec(any::<u8>(), 0..1500)) {
        for props in [OpenProps::default(), lenient()] {
            drain(source(format, &*bytes, &props));
        }
    }
}
