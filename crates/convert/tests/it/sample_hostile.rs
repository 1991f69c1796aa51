//! Logs of samples that somebody or something has damaged.

use std::fs;

use floodmark_convert::{Format, OpenProps};
use floodmark_event::Row;
use floodmark_event::{Metric, SubjectKind};

use crate::logs::gaps;
use crate::sample_logs::{FORMATS, Reading, all, drain, lenient, source};

fn strict(format: Format, text: &str) -> Reading {
    drain(source(format, text.as_bytes(), &OpenProps::default()))
}

fn loose(format: Format, text: &str) -> Reading {
    drain(source(format, text.as_bytes(), &lenient()))
}

const ROW: &str = "1794724130.446520,52716,|step 0\n|,,vm,52716\r\n";

#[test]
fn errors_name_the_line_and_what_is_wrong_there() {
    use Format::{MemoryLogger, Mprof, Psrecord, Smi};
    let header = "timestamp, index, memory.used [MiB]\n2026/11/15 10:00:00.000, 0, 5 MiB\n";
    let table = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n";
    for (format, before, bad, message) in [
        (
            MemoryLogger,
            ROW,
            "1794724130.x,1,,,vm,1\r\n",
            "line 3: TIMESTAMP is '1794724130.x', not seconds since 1970",
        ),
        (MemoryLogger, ROW, "1794724130.5,1k,,,vm,1\r\n", "line 3: TOTAL is '1k', not a whole number of KiB"),
        (
            MemoryLogger,
            ROW,
            "1794724130.5,1,,,vm,-1\r\n",
            "line 3: MEMORY is '-1', not a whole number of KiB",
        ),
        (
            MemoryLogger,
            ROW,
            "1794724130.5,1,,,vm,18014398509481984\r\n",
            "line 3: MEMORY is '18014398509481984'",
        ),
        (MemoryLogger, ROW, "1794724130.5,1,,vm,1\r\n", "line 3: the row has 5 fields, not 6"),
        (MemoryLogger, ROW, "1794724130.5,1,,,vm,1,2\r\n", "line 3: the row has 7 fields, not 6"),
        (Smi, header, "2026/11/15 10:00:00.000, 0\n", "line 3: the row has 2 fields where the header has 3"),
        (
            Smi,
            header,
            "2026/13/15 10:00:00.000, 0, 5 MiB\n",
            "line 3: timestamp is '2026/13/15 10:00:00.000', not as in",
        ),
        (Smi, header, "2026/11/15 10:00:00.000, 0, 5 PiB\n", "line 3: memory used is '5 PiB', not a number"),
        (Smi, header, "timestamp, name\n", "line 3: no column says how much memory is used"),
        (Smi, "", "2026/11/15 10:00:00.000, 0, 5\n", "line 1: there is no header, and the columns"),
        (Mprof, "MEM 1 10\n", "MEM 1\n", "line 2: MEM is '1', not as in MEM 30.898438 1794748400.6492"),
        (Mprof, "MEM 1 10\n", "CHLD x 1 10\n", "line 2: CHLD is 'x 1 10'"),
        (Mprof, "MEM 1 10\n", "FUNC a 1 2 3\n", "line 2: FUNC is 'a 1 2 3', not a name and two pairs"),
        (
            Mprof,
            "MEM 1 10\n",
            "\x1b[2JMEM 1 2\n",
            "line 2: '\\x1b[2JMEM' is not one of CMDLINE, MEM, CHLD and FUNC",
        ),
        (Psrecord, table, "0 1 2\n", "line 2: the row has 3 fields where the header has 4"),
        (Psrecord, table, "0 1 x 2\n", "line 2: 'x' is no number"),
        (Psrecord, "", "0 1 2 3\n", "line 1: there is no header before this line"),
    ] {
        let text = [before, bad, if before.is_empty() { "" } else { ROW }].concat();
        let text = if format == MemoryLogger { text } else { [before, bad].concat() };
        let error = strict(format, &text).error.unwrap_or_default();
        assert!(error.starts_with(&format!("log:{message}")), "{text:?}: {error}");
        assert!(error.chars().all(|c| !c.is_control()), "{error}");
        let loose = loose(format, &text);
        assert_eq!(loose.error, None);
        assert_eq!(gaps(&loose.losses), [(1, "malformed lines skipped")], "{text:?}");
        assert!(loose.rows.starts_with(&strict(format, &text).rows));
    }
}

#[test]
fn a_log_cut_anywhere_is_read_up_to_the_cut() {
    for (path, format) in all() {
        let bytes = fs::read(&path).expect("a fixture");
        let whole = drain(source(format, &*bytes, &OpenProps::default()));
        let step = (bytes.len() / 300).max(1);
        for cut in (0..bytes.len()).step_by(step) {
            let part = drain(source(format, &bytes[..cut], &OpenProps::default()));
            assert_eq!(part.error, None, "{} cut at {cut}", path.display());
            // Functions of mprof are sorted once all are known, and its last sweep is not complete.
            let is_sample = |row: &&Row| {
                matches!(row, Row::Sample(row)
                if format != Format::Mprof || part.tables.subjects[&row.subject].kind == SubjectKind::Process)
            };
            let count = part.rows.iter().filter(is_sample).count();
            let of_whole = whole.rows.iter().filter(is_sample).take(count);
            if format != Format::Smi {
                assert!(part.rows.iter().filter(is_sample).eq(of_whole), "{} cut at {cut}", path.display());
            }
        }
    }
}

#[test]
fn a_row_that_a_killed_run_left_unfinished_is_told_from_the_rows_after_it() {
    let cut = "1794724130.446520,52716,|step 0\nstep";
    let text = [cut, "\n", ROW, ROW].concat();
    let strict = strict(Format::MemoryLogger, &text);
    // Quotes pair up wrongly from there on, so the place is as near as can be told.
    assert!(strict.error.is_some_and(|error| error.starts_with("log:line ")));
    let loose = loose(Format::MemoryLogger, &text);
    assert_eq!(loose.error, None);
    let samples = loose.rows.iter().filter(|row| matches!(row, Row::Sample(_))).count();
    assert_eq!(samples, 4, "both rows after it");
    assert_eq!(gaps(&loose.losses), [(1, "malformed lines skipped")]);
}

#[test]
fn an_unfinished_last_row_is_counted_and_its_output_kept() {
    let text = [ROW, "1794724131.446520,52716,|step 1\nste"].concat();
    let read = strict(Format::MemoryLogger, &text);
    assert_eq!(read.error, None);
    assert_eq!(gaps(&read.losses), [(1, "the last row has no end and was left out")]);
    assert!(matches!(read.rows.last(), Some(Row::Output(row)) if row.bytes == b"step 1\nste"));
}

#[test]
fn output_of_any_length_comes_in_pieces_of_bounded_size() {
    let text = "x".repeat(10 << 20);
    let log = format!("{ROW}1794724131.5,7,|{text}|,,vm,7\r\n{ROW}");
    let read = strict(Format::MemoryLogger, &log);
    assert_eq!(read.error, None);
    let pieces: Vec<usize> = read
        .rows
        .iter()
        .filter_map(|row| if let Row::Output(row) = row { Some(row.bytes.len()) } else { None })
        .collect();
    assert_eq!(pieces.iter().sum::<usize>(), (10 << 20) + 14);
    assert!(pieces.iter().all(|len| *len <= 64 << 10));
    // Other fields have a limit.
    let log = format!("{ROW}1794724131.5,7,,{text},vm,7\r\n{ROW}");
    let error = strict(Format::MemoryLogger, &log).error.expect("too long");
    assert_eq!(error, "log:line 3: a field is longer than 1048576 bytes");
    assert_eq!(gaps(&loose(Format::MemoryLogger, &log).losses), [(1, "malformed lines skipped")]);
}

#[test]
fn a_long_line_is_passed_over_as_one() {
    for (format, before, after) in [
        (Format::Mprof, "MEM 1 10\n", "MEM 1 11\n"),
        (Format::Smi, "2026/11/15 10:00:00.000, 5\n", "2026/11/15 10:00:01.000, 5\n"),
    ] {
        let log = [before, &"9".repeat(1 << 20), "\n", after].concat();
        assert_eq!(
            strict(format, &log).error.as_deref(),
            Some("log:line 2: the line is longer than 65536 bytes")
        );
        let loose = loose(format, &log);
        assert_eq!((loose.error, gaps(&loose.losses)), (None, vec![(1, "malformed lines skipped")]));
    }
}

#[test]
fn bytes_that_are_no_text_are_an_error_of_their_line() {
    let log = b"MEM 1 10\n\xff\xfe\nMEM 1 11\n";
    let read = drain(source(Format::Mprof, &log[..], &OpenProps::default()));
    assert_eq!(read.error.as_deref(), Some("log:line 2: the line is not text in UTF-8"));
    // Output is in whatever encoding.
    let log = b"1794724130.5,1,|\xff\xfe|,,vm,1\r\n";
    let read = drain(source(Format::MemoryLogger, &log[..], &OpenProps::default()));
    assert!(matches!(read.rows.last(), Some(Row::Output(row)) if row.bytes == b"\xff\xfe"));
}

#[test]
fn a_million_rows_are_read_without_keeping_them() {
    for (_, format) in FORMATS {
        let (header, row): (&str, fn(u64) -> String) = match format {
            Format::MemoryLogger => ("", |n| format!("{n}.250000,{n},|line {n}\n|,,vm,{n}\r\n")),
            Format::Smi => ("timestamp, index, memory.used [MiB]\n", |n| {
                format!(
                    "2026/11/15 {:02}:{:02}:{:02}.000, {}, 5 MiB\n",
                    n / 3600 % 24,
                    n / 60 % 60,
                    n % 60,
                    n % 4
                )
            }),
            Format::Mprof => ("CMDLINE x\n", |n| format!("MEM 1.5 {n}.1\nCHLD 7 2.5 {n}.2\n")),
            Format::Pymemtrace => ("SOF\n", |n| format!("NEXT: {n} +1 {n}.5 CALL /x/y.py 12 work 4096 0\n")),
            _ => ("# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n", |n| {
                format!("{n}.0 0.0 1.0 2.0\n")
            }),
        };
        let rows = (0..100_000).map(row).collect::<Vec<_>>().concat();
        let log = [header.as_bytes().to_vec(), rows.into_bytes()].concat();
        let mut source = source(format, &*log, &OpenProps::default());
        let (mut rows, mut count, mut most) = (Vec::new(), 0, 0);
        while source.next(&mut rows).expect("good rows") {
            count += rows
                .iter()
                .filter(|row| match row {
                    Row::Sample(row) => row.metric != Metric::Virtual,
                    row => matches!(row, Row::Call(_)),
                })
                .count();
            most = most.max(rows.len());
        }
        assert!(count >= 100_000 && most < 20_000, "{count} samples, {most} at a time");
        assert!(source.tables().subjects.len() < 10);
    }
}
