//! Every log of samples that the fixtures hold, and ways to read them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use floodmark_convert::{
    Format, Mode, OpenProps, memory_logger, mprof, open, psrecord, pymemtrace, recognize, smi,
};
use floodmark_event::Row;
use floodmark_event::units::{Date, format_time_ns};
use floodmark_event::{Metric, OutputStream, ScopeAction, SubjectKind, Tables};
use floodmark_store::Losses;
use floodmark_store::RowSource;

use crate::logs::gaps;

/// A log of samples in the fixtures.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Formats of samples, with the folder of their fixtures and of the fuzzer's seeds.
pub(crate) const FORMATS: [(&str, Format); 5] = [
    ("memory_logger", Format::MemoryLogger),
    ("smi", Format::Smi),
    ("mprof", Format::Mprof),
    ("psrecord", Format::Psrecord),
    ("pymemtrace", Format::Pymemtrace),
];

/// Opens any bytes as a format.
pub(crate) fn source<'a>(
    format: Format,
    input: impl Read + Send + 'a,
    props: &OpenProps,
) -> Box<dyn RowSource + 'a> {
    let path = Path::new("log");
    match format {
        Format::MemoryLogger => memory_logger::open(input, path, props),
        Format::Smi => smi::open(input, path, props),
        Format::Mprof => mprof::open(input, path, props),
        Format::Psrecord => psrecord::open(input, path, props),
        Format::Pymemtrace => pymemtrace::open(input, path, props),
        _ => panic!("no format of samples"),
    }
}

/// Everything that was read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) rows: Vec<Row>,
    pub(crate) tables: Tables,
    pub(crate) losses: Losses,
    pub(crate) error: Option<String>,
}

impl Reading {
    /// `TIME KIND NUMBER NAME METRIC VALUE` of all samples.
    pub(crate) fn samples(&self) -> Vec<String> {
        let line = |row: &Row| {
            let Row::Sample(row) = row else { return None };
            let subject = &self.tables.subjects[&row.subject];
            let (kind, metric) = (subject.kind.name(), row.metric.name());
            let time = format_time_ns(row.time_ns);
            Some(format!("{time} {kind} {} {} {metric} {}", subject.number, subject.name, row.value))
        };
        self.rows.iter().filter_map(line).collect()
    }

    fn series(&self, kind: SubjectKind, metric: Metric) -> Vec<u64> {
        let is_asked = |row: &&Row| matches!(row, Row::Sample(row) if row.metric == metric && self.tables.subjects[&row.subject].kind == kind);
        let value = |row: &Row| if let Row::Sample(row) = row { row.value } else { 0 };
        self.rows.iter().filter(is_asked).map(value).collect()
    }

    fn output(&self) -> String {
        let bytes = self.rows.iter().filter_map(|row| match row {
            Row::Output(row) => {
                assert_eq!(row.stream, OutputStream::Stdout);
                Some(row.bytes.as_slice())
            }
            _ => None,
        });
        String::from_utf8(bytes.collect::<Vec<_>>().concat()).expect("text")
    }

    fn stacks(&self) -> Vec<Vec<String>> {
        let stacks = self.rows.iter().filter_map(|row| match row {
            Row::Stack(row) => Some(self.tables.stack_text(row.stack)),
            _ => None,
        });
        stacks.collect()
    }
}

/// Reads a source to its end.
pub(crate) fn drain(mut source: Box<dyn RowSource + '_>) -> Reading {
    let (mut all, mut rows) = (Vec::new(), Vec::new());
    let error = loop {
        match source.next(&mut rows) {
            Ok(true) => {
                assert!(!rows.is_empty(), "a batch between others is never empty");
                all.append(&mut rows);
            }
            Ok(false) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    assert!(rows.is_empty());
    Reading { rows: all, tables: source.tables().clone(), losses: source.losses(), error }
}

/// Reads a fixture that must be good.
pub(crate) fn read(name: &str) -> Reading {
    read_with(name, &OpenProps::default())
}

fn read_with(name: &str, props: &OpenProps) -> Reading {
    let read = drain(open(&fixture(name), props).and_then(|log| log.rows()).expect("a log of samples"));
    assert_eq!(read.error, None, "{name}");
    read
}

pub(crate) fn lenient() -> OpenProps {
    OpenProps { mode: Mode::Lenient, ..OpenProps::default() }
}

/// All fixtures that hold samples.
pub(crate) fn all() -> Vec<(PathBuf, Format)> {
    let mut files = Vec::new();
    for (folder, format) in FORMATS {
        for entry in fs::read_dir(fixture(folder)).expect("fixtures") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if !(name.starts_with('.') || name == "README.md" || name.contains(".read_")) {
                files.push((path, format));
            }
        }
    }
    assert!(files.len() > 20);
    files
}

#[test]
fn every_fixture_is_recognized_and_read() {
    for (path, format) in all() {
        assert_eq!(recognize(&path).ok(), Some(format), "{}", path.display());
        let read = drain(open(&path, &OpenProps::default()).and_then(|log| log.rows()).expect("recognized"));
        assert_eq!(read.error, None, "{}", path.display());
        if !path.ends_with("bogus_field.txt") {
            assert!(!read.rows.is_empty(), "{}", path.display());
        }
        let log = open(&path, &OpenProps::default()).expect("recognized");
        assert!(log.has_rows() && !log.has_events());
        let refusal = log.events().err().expect("no events").to_string();
        assert!(refusal.contains("it has samples but no allocations"), "{refusal}");
    }
}

#[test]
fn a_log_of_events_holds_no_samples() {
    let log = open(&fixture("rmm/golden.csv"), &OpenProps::default()).expect("a log");
    let error = log.rows().err().expect("no samples");
    assert!(error.to_string().contains("it has allocations but no samples"), "{error}");
}

#[test]
fn a_log_of_one_host_has_a_job_a_host_and_output() {
    let read = read("memory_logger/single_node.log");
    assert_eq!(
        &read.samples()[..3],
        [
            "2026-11-15 06:28:50.446520 job 0 single_node.log rss 53981184",
            "2026-11-15 06:28:50.446520 host 0 vm rss 53981184",
            "2026-11-15 06:28:50.708461 job 0 single_node.log rss 106414080",
        ]
    );
    let totals = [52716, 103_920, 103_920, 155_124, 161_684, 206_328, 0].map(|kib| kib * 1024);
    assert_eq!(read.series(SubjectKind::Job, Metric::Rss), totals);
    assert_eq!(read.series(SubjectKind::Host, Metric::Rss), totals);
    assert_eq!(read.output(), "step 0\nstep 1\nstep 2\nstep 3\n");
    assert!(read.losses.is_empty() && read.stacks().is_empty());
    let subjects: Vec<_> = read.tables.subjects.values().collect();
    assert_eq!(subjects[1].parent, subjects[0].subject);
}

#[test]
fn hosts_of_a_job_are_told_apart() {
    let read = read("memory_logger/pbs_two_nodes.log");
    let hosts: Vec<_> = read.tables.subjects.values().map(|row| (row.kind.name(), &*row.name)).collect();
    assert_eq!(hosts, [("job", "pbs_two_nodes.log"), ("host", "nodeA"), ("host", "nodeB")]);
    assert_eq!(read.series(SubjectKind::Job, Metric::Rss).into_iter().max(), Some(266_648 * 1024));
    assert!(read.output().contains("rank 1@nodeB step 0\nrank 0@nodeA step 1\n"));
}

#[test]
fn stacks_of_a_debugger_become_frames_and_what_is_left_out_is_counted() {
    let read = read("memory_logger/gdb_pstack.log");
    let stacks = read.stacks();
    assert_eq!(
        stacks[0],
        [
            "clock_gettime",
            "__GI___clock_gettime (../sysdeps/unix/sysv/linux/clock_gettime.c:42)",
            "now (spin.c:6)",
            "work (spin.c:7)",
            "assemble (spin.c:8)",
            "main (spin.c:9)",
        ]
    );
    assert_eq!(stacks[1], ["work (spin.c:7)", "assemble (spin.c:8)", "main (spin.c:9)"]);
    assert!(stacks.iter().all(|stack| stack.last().is_some_and(|frame| frame.starts_with("main"))));
    assert_eq!(
        gaps(&read.losses),
        [(0, "arguments of functions in stacks are not kept"), (2, "the debugger gave no stack")]
    );
    assert!(read.losses.is_empty(), "nothing is lost");
}

#[test]
fn backslashes_and_doubled_quotes_in_output_are_what_was_written() {
    let read = read("memory_logger/stdout_special_chars.log");
    assert_eq!(read.output(), "a|b,c\\d\n");
}

#[test]
fn devices_are_read_in_all_forms_of_nvidia_smi() {
    let all = read("smi/query_gpu_all.csv");
    assert_eq!(
        &all.samples()[..3],
        [
            "2026-11-15 13:12:45.927000 device 0 NVIDIA H200 gpu_used 2700083200",
            "2026-11-15 13:12:45.927000 device 0 NVIDIA H200 gpu_total 150754820096",
            "2026-11-15 13:12:45.927000 device 0 NVIDIA H200 gpu_busy 0",
        ]
    );
    let device = all.tables.subjects.values().next().expect("one");
    assert_eq!(device.detail, "GPU-522f2c73-9473-526c-5713-b699b27f5466");
    assert!(all.losses.is_empty(), "columns that are not read need no value");
    let used = |name: &str| {
        let read = read(name);
        read.series(SubjectKind::Device, Metric::GpuUsed).iter().map(|bytes| bytes >> 20).collect::<Vec<_>>()
    };
    assert_eq!(used("smi/query_gpu.csv"), [2575]);
    assert_eq!(used("smi/query_gpu_bare.csv"), [5647, 5647, 6671, 6671, 6671, 7695, 7695]);
    assert_eq!(used("smi/query_gpu_nounits.csv"), [7695]);
    assert_eq!(used("smi/dmon.txt"), [7695, 8719]);
    assert_eq!(used("smi/dmon_dt.txt"), [8719, 9743]);
    assert_eq!(used("smi/dmon_csv.txt"), [9743]);
    assert_eq!(
        read("smi/dmon_dt.txt").samples()[0],
        "2026-11-15 13:12:52.000000 device 0  gpu_used 9142534144"
    );
    let dated = OpenProps { date: Date::parse("2026-11-15"), ..OpenProps::default() };
    assert_eq!(read_with("smi/dmon_csv.txt", &dated).samples().len(), 1);
    assert!(read_with("smi/dmon_csv.txt", &dated).samples()[0].starts_with("2026-11-15 13:12:53.000000 "));
    let untimed = read("smi/dmon.txt");
    assert!(untimed.samples()[1].starts_with("00:00:01.000000 "));
    assert_eq!(gaps(&untimed.losses), [(0, "the rows have no time and were taken to be a second apart")]);
}

#[test]
fn processes_on_devices_are_read() {
    for (name, sample) in [
        ("smi/apps.csv", "2026-11-15 13:12:51.118000 process 413 python3 gpu_used 8059355136"),
        ("smi/apps_bare.csv", "2026-11-15 13:12:51.144000 process 413  gpu_used 8059355136"),
        ("smi/pmon.txt", "00:00:00.000000 process 413 python3 gpu_used 10206838784"),
        ("smi/pmon_dt.txt", "2026-11-15 13:12:54.000000 process 413 python3 gpu_used 12354322432"),
    ] {
        assert_eq!(read(name).samples()[0], sample, "{name}");
    }
}

#[test]
fn devices_without_a_number_are_told_apart_by_rows_of_the_same_time() {
    let read = read("smi/two_gpus.csv");
    assert_eq!(
        read.samples(),
        [
            "2026-11-15 13:00:00.100000 device 0 NVIDIA H200 gpu_used 104857600",
            "2026-11-15 13:00:00.100000 device 0 NVIDIA H200 gpu_busy 1",
            "2026-11-15 13:00:00.100000 device 1 NVIDIA H200 gpu_used 209715200",
            "2026-11-15 13:00:01.100000 device 0 NVIDIA H200 gpu_used 314572800",
            "2026-11-15 13:00:01.100000 device 0 NVIDIA H200 gpu_busy 7",
            "2026-11-15 13:00:01.100000 device 1 NVIDIA H200 gpu_busy 8",
        ]
    );
    assert_eq!(
        gaps(&read.losses),
        [
            (2, "nvidia-smi could not read a value"),
            (1, "nvidia-smi said 'Failed to initialize NVML: Driver/library version mismatch'"),
        ]
    );
}

#[test]
fn a_device_is_the_same_in_outputs_of_several_queries() {
    let log = "timestamp, index, uuid, pci.bus_id, memory.used [MiB]\n\
               2026/11/15 10:00:00.000, 4, GPU-a, 00000000:3B:00.0, 1 MiB\n\
               2026/11/15 10:00:00.001, 5, GPU-b, 00000000:5E:00.0, 2 MiB\n\
               timestamp, uuid, memory.used [MiB]\n\
               2026/11/15 10:00:01.000, GPU-b, 3 MiB\n\
               timestamp, pci.bus_id, memory.used [MiB]\n\
               2026/11/15 10:00:02.000, 00000000:3B:00.0, 4 MiB\n";
    let read = drain(source(Format::Smi, log.as_bytes(), &OpenProps::default()));
    assert_eq!(
        read.samples(),
        [
            "2026-11-15 10:00:00.000000 device 4  gpu_used 1048576",
            "2026-11-15 10:00:00.001000 device 5  gpu_used 2097152",
            "2026-11-15 10:00:01.000000 device 5  gpu_used 3145728",
            "2026-11-15 10:00:02.000000 device 4  gpu_used 4194304",
        ]
    );
}

#[test]
fn two_samples_at_one_time_make_no_second_device() {
    let log = "timestamp, memory.used [MiB]\n\
               2026/11/15 10:00:00.000, 1 MiB\n2026/11/15 10:00:00.010, 2 MiB\n\
               2026/11/15 10:00:00.010, 3 MiB\n2026/11/15 10:00:00.020, 4 MiB\n";
    let read = drain(source(Format::Smi, log.as_bytes(), &OpenProps::default()));
    assert_eq!(read.series(SubjectKind::Device, Metric::GpuUsed), [1, 2, 3, 4].map(|mib| mib << 20));
    assert!(read.samples().iter().all(|sample| sample.contains(" device 0 ")), "{:?}", read.samples());
}

#[test]
fn a_process_is_the_sum_of_its_devices_and_nothing_once_it_is_gone() {
    let log = "timestamp, pid, used_memory [MiB], gpu_uuid\n\
               2026/11/15 10:00:00.000, 7, 1 MiB, GPU-a\n\
               2026/11/15 10:00:00.001, 7, 2 MiB, GPU-b\n\
               2026/11/15 10:00:00.001, 8, 4 MiB, GPU-b\n\
               2026/11/15 10:00:01.000, 8, 5 MiB, GPU-b\n\
               2026/11/15 10:00:02.000, 8, [N/A], GPU-b\n";
    let props = OpenProps { utc_offset_s: 3600, ..OpenProps::default() };
    let read = drain(source(Format::Smi, log.as_bytes(), &props));
    assert_eq!(read.error, None);
    assert_eq!(
        read.samples(),
        [
            "2026-11-15 09:00:00.000000 process 7  gpu_used 3145728",
            "2026-11-15 09:00:00.000000 process 8  gpu_used 4194304",
            "2026-11-15 09:00:01.000000 process 7  gpu_used 0",
            "2026-11-15 09:00:01.000000 process 8  gpu_used 5242880",
        ]
    );
    assert_eq!(gaps(&read.losses), [(1, "nvidia-smi could not read a value")]);
}

#[test]
fn a_process_and_its_children_add_up_to_the_job() {
    let read = read("mprof/multiprocess.dat");
    let command = |kind| {
        let row = read.tables.subjects.values().find(|row| row.kind == kind).expect("one");
        (&*row.name, &*row.detail)
    };
    assert_eq!(command(SubjectKind::Job), ("python", "python app.py"));
    assert_eq!(command(SubjectKind::Process), ("python", "python app.py"));
    assert_eq!(
        &read.samples()[..5],
        [
            "2026-11-15 13:13:20.547100 process 0 python rss 241664",
            "2026-11-15 13:13:20.547100 job 0 python rss 241664",
            "2026-11-15 13:13:20.649200 process 0 python rss 32399360",
            "2026-11-15 13:13:20.650800 process 9546  rss 40337408",
            "2026-11-15 13:13:20.650800 job 0 python rss 72736768",
        ]
    );
    assert_eq!(read.series(SubjectKind::Job, Metric::Rss).len(), 13);
}

#[test]
fn a_child_that_is_gone_has_nothing() {
    let log = "MEM 1 10.5\nCHLD 0 2 10.6\nMEM 1 11.5\nMEM 1 12.5\n";
    let read = drain(source(Format::Mprof, log.as_bytes(), &OpenProps::default()));
    assert_eq!(read.series(SubjectKind::Job, Metric::Rss), [3 << 20, 1 << 20, 1 << 20]);
    assert_eq!(read.samples()[4], "00:00:11.500000 process 0  rss 0");
    assert_eq!(read.tables.subjects.values().last().and_then(|row| row.end_ns), Some(11_500_000_000));
}

#[test]
fn functions_are_scopes_in_the_order_of_their_times() {
    use ScopeAction::{Enter, Exit};
    let read = read("mprof/functions.dat");
    let scopes: Vec<_> = read
        .rows
        .iter()
        .filter_map(|row| match row {
            Row::Scope(row) => {
                Some((row.action, row.scope as u32, row.parent as u32, read.tables.string(row.name)))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        scopes,
        [
            (Enter, 1, 0, "__main__.outer"),
            (Enter, 2, 1, "__main__.load"),
            (Exit, 2, 0, ""),
            (Enter, 3, 1, "__main__.load"),
            (Exit, 3, 0, ""),
            (Exit, 1, 0, ""),
            (Enter, 4, 0, "__main__.load"),
            (Exit, 4, 0, ""),
        ]
    );
    let times: Vec<_> = read.rows.iter().map(Row::time_ns).collect();
    assert!(times.is_sorted(), "scopes lie between the samples of their times");
    // From standard input they come last, and are the same.
    let bytes = fs::read(fixture("mprof/functions.dat")).expect("a file");
    let piped = drain(source(Format::Mprof, &*bytes, &OpenProps::default()));
    assert_eq!(piped.samples(), read.samples());
    assert!(matches!(piped.rows.last(), Some(Row::Scope(_))));
    assert_eq!(piped.rows.len(), read.rows.len());
}

#[test]
fn both_formats_of_psrecord_are_read() {
    let read_plain = read("psrecord/children.txt");
    assert_eq!(
        &read_plain.samples()[..3],
        [
            "00:00:00.000000 job 0 children.txt rss 11493376",
            "00:00:00.000000 job 0 children.txt virtual 15708160",
            "00:00:00.211000 job 0 children.txt rss 74457088",
        ]
    );
    assert_eq!(read("psrecord/io.txt").series(SubjectKind::Job, Metric::Rss).len(), 7);
    let csv = read("psrecord/children.csv");
    assert_eq!(
        &csv.samples()[..3],
        [
            "00:00:00.000062227 job 0 children.csv processes 2",
            "00:00:00.000062227 job 0 children.csv rss 11571200",
            "00:00:00.000062227 job 0 children.csv virtual 15843328",
        ]
    );
}

#[test]
fn a_written_log_of_memory_logger_is_read_back() {
    for name in ["single_node.log", "pbs_two_nodes.log", "gdb_pstack.log", "stdout_special_chars.log"] {
        let read = read(&format!("memory_logger/{name}"));
        let mut text = Vec::new();
        let mut writer = memory_logger::LogWriter::new(&mut text, "unknown");
        read.rows.iter().for_each(|row| writer.row(row, &read.tables).unwrap());
        assert!(writer.finish().unwrap() > 0);
        let again = drain(source(Format::MemoryLogger, text.as_slice(), &OpenProps::default()));
        assert_eq!(again.error, None, "{name}");
        for kind in [SubjectKind::Job, SubjectKind::Host] {
            let values = |reading: &Reading| reading.series(kind, Metric::Rss);
            assert_eq!(values(&again), values(&read), "{name}");
        }
        let times = |reading: &Reading| {
            let times = reading.rows.iter().filter(|row| matches!(row, Row::Sample(_))).map(Row::time_ns);
            times.collect::<Vec<_>>()
        };
        assert_eq!(times(&again), times(&read), "{name}");
        assert_eq!(again.output(), read.output(), "{name}");
        assert_eq!(again.stacks(), read.stacks(), "{name}");
    }
}
