//! The ledger of a device: what is in use adds up, in text and in JSON.

use floodmark_event::tables::{Frame, Process};
use floodmark_event::{
    Event, EventBatch, Kind, Metric, ProcessId, SampleRow, StackId, SubjectKind, SubjectRow, Tables,
};
use floodmark_store::{Losses, Overwrite, Run, TraceWriter};
use insta::assert_snapshot;
use serde_json::Value;

use crate::cli_test::CliTest;

const START_NS: i64 = 1_782_887_341_000_000_000;
const MIB: u64 = 1 << 20;
const UUID: &str = "GPU-522f2c73-9473-526c-5713-b699b27f5466";
/// Subjects: the device of the events, another one, the recorded process, one that only used the device, a pool.
const DEVICE: u64 = 9 << 32 | 1;
const OTHER_DEVICE: u64 = 9 << 32 | 2;
const TRAINER: u64 = 9 << 32 | 3;
const VIEWER: u64 = 9 << 32 | 4;
const POOL: u64 = 1 << 32 | 1;

fn at(ms: i64) -> i64 {
    START_NS + ms * 1_000_000
}

fn called_by(tables: &mut Tables, module: &str) -> StackId {
    let frame =
        Frame { function: tables.intern("create"), module: tables.intern(module), ..Frame::default() };
    let frame = tables.intern_frame(frame);
    tables.intern_stack(StackId(0), frame)
}

/// Writes the trace of a training run whose process calls its only device 0, and which the driver calls `number`.
fn training(test: &CliTest, number: u64, has_other_device: bool) {
    let mut tables = Tables::default();
    let process = Process { id: ProcessId(1), pid: 4711, command: "train".into(), ..Process::default() };
    tables.processes.push(process);
    tables.devices.insert((ProcessId(1), 0), UUID.to_owned());
    let mut subject = |id, kind, number, name: &str, detail: &str| {
        let row = SubjectRow { detail: detail.to_owned(), ..SubjectRow::new(id, kind, number, name) };
        tables.subjects.insert(id, row);
    };
    subject(DEVICE, SubjectKind::Device, number, "NVIDIA H200", UUID);
    if has_other_device {
        subject(
            OTHER_DEVICE,
            SubjectKind::Device,
            0,
            "NVIDIA H200",
            "GPU-00000000-0000-0000-0000-000000000000",
        );
    }
    subject(TRAINER, SubjectKind::Process, 4711, "python3", "");
    subject(VIEWER, SubjectKind::Process, 4712, "viewer", "");
    subject(POOL, SubjectKind::Pool, 0, "pool 0x7f00 of device 0", "pid 4711");

    let (torch, segments) = (tables.intern("torch"), tables.intern("torch segments"));
    let (driver, pooled) = (tables.intern("cuMemAlloc"), tables.intern("cuMemAllocAsync"));
    let cublas = called_by(&mut tables, "/opt/lib/libcublas.so.13");
    let nccl = called_by(&mut tables, "/opt/lib/libnccl.so.2");
    let mut batch = EventBatch::new();
    for (ms, address, mib, kind, resource, stack) in [
        (150, 0x100_0000, 1200, Kind::Reserved, segments, StackId(0)),
        (160, 0x100_0000, 900, Kind::Device, torch, StackId(0)),
        (170, 0x9000_0000, 100, Kind::Device, driver, cublas),
        (171, 0xa000_0000, 28, Kind::Device, driver, cublas),
        (172, 0xb000_0000, 50, Kind::Device, pooled, nccl),
        (173, 0xc000_0000, 3, Kind::Static, tables.intern(""), StackId(0)),
        // Host memory, and what comes after the peak.
        (174, 0xd000_0000, 77, Kind::Pinned, driver, cublas),
        (350, 0xe000_0000, 500, Kind::Device, driver, nccl),
    ] {
        let bytes = mib * MIB;
        let event =
            Event { time_ns: at(ms), process: ProcessId(1), device: 0, thread: 9, ..Event::default() };
        batch.push(&Event { address, bytes, kind, resource, stack, ..event });
    }
    let mut rows = Vec::new();
    let mut sample = |ms, subject, metric, mib: u64| {
        rows.push(SampleRow { time_ns: at(ms), subject, metric, value: mib * MIB });
    };
    sample(0, DEVICE, Metric::GpuUsed, 615);
    sample(0, DEVICE, Metric::GpuTotal, 143_771);
    if has_other_device {
        sample(0, OTHER_DEVICE, Metric::GpuUsed, 99_000);
    }
    sample(175, POOL, Metric::Reserved, 64);
    sample(175, POOL, Metric::Live, 50);
    // The list of processes is read less often than the device: at first it is out of date.
    sample(190, TRAINER, Metric::GpuUsed, 700);
    sample(200, DEVICE, Metric::GpuUsed, 2700);
    sample(290, TRAINER, Metric::GpuUsed, 2000);
    sample(290, VIEWER, Metric::GpuUsed, 80);
    sample(300, DEVICE, Metric::GpuUsed, 2700);
    sample(400, DEVICE, Metric::GpuUsed, 2600);
    sample(410, TRAINER, Metric::GpuUsed, 900);
    let mut writer = TraceWriter::create(&test.path("gpu.flood"), Run::default(), Overwrite::No).unwrap();
    writer.write(&batch, &tables).unwrap();
    writer.write_rows(&rows, &tables).unwrap();
    writer.finish(&tables, &Losses::default()).unwrap();
}

/// Class, name, MiB and milliseconds of each item.
fn items(ledger: &Value) -> Vec<(String, String, i64, Option<i64>)> {
    let item = |item: &Value| {
        let bytes = item["bytes"].as_i64().unwrap();
        assert_eq!(bytes % MIB as i64, 0, "{item}");
        let read = item["read_time_ns"].as_i64().map(|time_ns| (time_ns - START_NS) / 1_000_000);
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        (text("class"), text("name"), bytes / MIB as i64, read)
    };
    ledger["items"].as_array().unwrap().iter().map(item).collect()
}

#[test]
fn the_ledger_of_a_device_adds_up_to_what_the_driver_says() {
    let test = CliTest::new();
    training(&test, 0, false);
    let ledger = test.run(&["ledger", "gpu.flood", "--device", "0", "--json"]).json();
    assert_eq!(ledger["schema"], "floodmark.device_ledger/1");
    let found = items(&ledger);
    let expected = [
        ("handed_out", "torch", 900, Some(200)),
        ("cache_slack", "torch segments", 300, Some(200)),
        ("cache_slack", "pool 0x7f00 of device 0", 14, Some(175)),
        ("library", "libcublas.so.13", 128, Some(200)),
        ("library", "libnccl.so.2", 50, Some(200)),
        ("static", "", 3, Some(200)),
        // 2,000 MiB of the process, of which 1,395 MiB were recorded.
        ("context", "python3", 605, Some(290)),
        ("other_process", "viewer", 80, Some(290)),
        ("before", "", 615, Some(0)),
        ("residual", "", 5, None),
    ];
    let expected = expected.map(|(class, name, mib, read)| (class.to_owned(), name.to_owned(), mib, read));
    assert_eq!(found, expected, "{ledger:#}");
    assert_eq!(found.iter().map(|item| item.2).sum::<i64>(), 2700);
    assert_eq!(ledger["peak_time_ns"].as_i64(), Some(at(200)));
    assert_snapshot!("ledger_of_a_device", test.run(&["ledger", "gpu.flood", "--device", "0"]).seen());
}

#[test]
fn devices_are_the_drivers_and_processes_are_told_only_of_a_single_one() {
    let test = CliTest::new();
    training(&test, 1, true);
    // The process calls device 1 its device 0.
    let ledger = test.run(&["ledger", "gpu.flood", "--device", "1", "--json"]).json();
    let found = items(&ledger);
    assert_eq!(found.iter().map(|item| item.2).sum::<i64>(), 2700);
    assert_eq!((found[0].0.as_str(), found[0].2), ("handed_out", 900), "{ledger:#}");
    assert_eq!(ledger["has_process_use"], false);
    assert!(!found.iter().any(|item| item.0 == "context" || item.0 == "other_process"), "{ledger:#}");
    let text = test.run(&["ledger", "gpu.flood", "--device", "1"]).ok().stdout;
    assert!(text.contains("did not say in time") && text.contains("contexts and other processes"), "{text}");

    let other = test.run(&["ledger", "gpu.flood", "--device", "0", "--json"]).json();
    assert_eq!(items(&other), [("residual".to_owned(), String::new(), 99_000, None)], "{other:#}");
    let none = test.run(&["ledger", "gpu.flood", "--device", "2"]);
    assert!(
        none.code == 2 && none.stderr.contains("no samples of the used memory of device 2"),
        "{}",
        none.stderr
    );
    for (words, said) in [
        (&["--device", "1", "--kind", "device"][..], "leave out --kind=device"),
        (&["--device", "0,1"][..], "one device at a time"),
        (&["--device", "1", "--pid", "4711"][..], "leave out --pid or --device"),
    ] {
        let refused = test.run(&[&["ledger", "gpu.flood"], words].concat());
        assert!(refused.code == 2 && refused.stderr.contains(said), "{words:?} {}", refused.stderr);
    }
    // Devices say nothing of resident memory.
    let process = test.run(&["ledger", "gpu.flood", "--device", "none"]);
    assert!(process.stderr.contains("resident memory"), "{}", process.stderr);
}

#[test]
fn a_log_of_a_device_is_all_residual() {
    let test = CliTest::new();
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/smi/query_gpu_all.csv");
    let text = test.run(&["ledger", log, "--device", "0"]).ok().stdout;
    assert!(text.contains("no allocations were recorded") && text.contains("in use before"), "{text}");
}
