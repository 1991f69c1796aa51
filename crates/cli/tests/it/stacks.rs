//! A trace with stacks, names and several kinds of memory: what logs cannot show.

use floodmark_event::tables::{Frame, Process};
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, StackId, Tables};
use floodmark_store::{Losses, Overwrite, Run, TraceWriter};
use insta::assert_snapshot;

use crate::cli_test::CliTest;

/// Interns a stack of (function, file, line), innermost first.
fn stack(tables: &mut Tables, frames: &[(&str, &str, u32)]) -> StackId {
    frames.iter().rev().fold(StackId(0), |parent, (function, file, line)| {
        let (function, file) = (tables.intern(function), tables.intern(file));
        let frame = tables.intern_frame(Frame { function, file, line: *line, ..Frame::default() });
        tables.intern_stack(parent, frame)
    })
}

/// Records a training run: weights stay, activations come and go, one batch is forgotten.
fn training(test: &CliTest) {
    let mut tables = Tables::default();
    let command = "python train.py --epochs 3".to_owned();
    let process =
        Process { id: ProcessId(1), pid: 4711, host: "node7".into(), command, ..Process::default() };
    tables.processes.push(process);
    let main = ("main", "/home/ada/project/train.py", 80);
    let model = stack(
        &mut tables,
        &[("rmm::mr::allocate", "", 0), ("Model.__init__", "/home/ada/project/model.py", 12), main],
    );
    let forward = stack(
        &mut tables,
        &[
            ("rmm::mr::allocate", "", 0),
            ("forward", "/home/ada/project/layers/attention/multi_head_with_rotary.py", 204),
            main,
        ],
    );
    let load = stack(&mut tables, &[("load_batch", "/home/ada/project/data.py", 33), main]);
    let weights = tables.intern("weights");
    let mut batch = EventBatch::new();
    let start = 1_782_887_341_000_000_000_i64;
    let mut clock = start;
    let mut event = |action, address: u64, bytes: u64, stack, kind| {
        clock += 1_500_000;
        let name = if stack == model { weights } else { floodmark_event::StringId(0) };
        let device = if kind == Kind::Device { 0 } else { floodmark_event::NO_DEVICE };
        batch.push(&Event {
            time_ns: clock,
            process: ProcessId(1),
            thread: 4711,
            action,
            address,
            bytes,
            device,
            kind,
            stack,
            name,
            stream: 0x1,
            ..Event::default()
        });
    };
    event(Action::Alloc, 0x1_0000_0000, 3 << 30, model, Kind::Device);
    for step in 0..4 {
        event(Action::Alloc, 0x7000 + step * 0x1000, 64 << 20, load, Kind::Pinned);
        event(Action::Alloc, 0x2_0000_0000 + (step << 20), 900 << 20, forward, Kind::Device);
        event(Action::Alloc, 0x3_0000_0000 + (step << 20), 450 << 20, forward, Kind::Device);
        if step != 2 {
            event(Action::Free, 0x2_0000_0000 + (step << 20), 900 << 20, forward, Kind::Device);
        }
        event(Action::Free, 0x3_0000_0000 + (step << 20), 450 << 20, forward, Kind::Device);
        event(Action::Free, 0x7000 + step * 0x1000, 64 << 20, load, Kind::Pinned);
    }
    event(Action::Failure, 0, 40 << 30, forward, Kind::Device);
    let run = Run {
        command: Some("python train.py --epochs 3".into()),
        host: Some("node7".into()),
        user: Some("ada".into()),
        exit_status: Some(1),
        ..Run::default()
    };
    let mut writer = TraceWriter::create(&test.path("training.flood"), run, Overwrite::No).unwrap();
    writer.write(&batch, &tables).unwrap();
    writer.finish(&tables, &Losses::default()).unwrap();
}

#[test]
fn sites_answer_who_and_stacks_how() {
    let test = CliTest::new();
    training(&test);
    for (name, args) in [
        ("stacks_watermark", &["watermark", "training.flood"][..]),
        ("stacks_watermark_by_stack", &["watermark", "training.flood", "--by", "stack", "--limit", "2"]),
        ("stacks_leaks", &["leaks", "training.flood"]),
        ("stacks_lifetimes", &["lifetimes", "training.flood", "--churn", "10ms"]),
        (
            "stacks_check",
            &["check", "training.flood", "--max-peak", "4GiB", "--max-leak", "3GiB", "--no-failures"],
        ),
        ("stacks_read", &["read", "training.flood", "--limit", "4"]),
        ("stacks_stats_by_kind", &["stats", "training.flood"]),
    ] {
        assert_snapshot!(name, test.run(args).seen());
    }
}

#[test]
fn kinds_are_summed_up_only_when_asked() {
    let test = CliTest::new();
    training(&test);
    let peak = |args: &[&str]| {
        test.run(&[&["watermark", "training.flood", "--json"], args].concat()).json()["peak_bytes"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(peak(&[]) >> 20, 3072 + 900 + 900 + 450);
    assert_eq!(peak(&["--kind", "pinned"]) >> 20, 64);
    assert_eq!(peak(&["--kind", "pinned,device"]) >> 20, 3072 + 900 + 900 + 450 + 64);
    let csv = test.run(&["usage", "training.flood", "--csv"]).ok().stdout;
    assert!(csv.contains(",pinned,67108864\n"), "{csv}");
}
