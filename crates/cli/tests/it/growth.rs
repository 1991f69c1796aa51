//! A trace with scopes and segments: growth per iteration, and what is no leak.

use floodmark_event::tables::{Frame, Process};
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, ScopeAction, ScopeRow, StackId, Tables};
use floodmark_store::{Losses, Overwrite, Run, TraceWriter};
use insta::assert_snapshot;

use crate::cli_test::CliTest;

const START_NS: i64 = 1_782_887_341_000_000_000;
const STEPS: u64 = 40;
/// Scopes: blocks from before, blocks at the end; steps count up from there.
const BEFORE: u64 = 1 << 32 | 1;
const TEARDOWN: u64 = 1 << 32 | 2;

fn site(tables: &mut Tables, function: &str, module: &str) -> StackId {
    let frame = Frame {
        function: tables.intern(function),
        file: tables.intern("/home/ada/train.py"),
        module: tables.intern(module),
        line: 7,
        ..Frame::default()
    };
    let frame = tables.intern_frame(frame);
    tables.intern_stack(StackId(0), frame)
}

struct Recording {
    batch: EventBatch,
    scopes: Vec<ScopeRow>,
}

impl Recording {
    fn event(&mut self, at: u64, event: Event) {
        let time_ns = START_NS + at as i64 * 1_000_000;
        let kind = if event.kind == Kind::Unknown { Kind::Device } else { event.kind };
        self.batch.push(&Event { time_ns, kind, process: ProcessId(1), device: 0, thread: 9, ..event });
    }

    fn scope(&mut self, at: u64, action: ScopeAction, scope: u64, name: floodmark_event::StringId) {
        let time_ns = START_NS + at as i64 * 1_000_000;
        self.scopes.push(ScopeRow {
            time_ns,
            process: ProcessId(1),
            thread: 9,
            action,
            scope,
            parent: 0,
            name,
        });
    }
}

/// Steps that each leave a buffer of 1 MiB behind, in a segment; weights from before; a teardown.
fn steps(test: &CliTest) {
    let mut tables = Tables::default();
    tables.processes.push(Process {
        id: ProcessId(1),
        pid: 4711,
        command: "train".into(),
        ..Process::default()
    });
    let forgetful = site(&mut tables, "remember", "/opt/lib/libapp.so");
    let honest = site(&mut tables, "forward", "/opt/lib/libmpi.so.40");
    let names =
        ["before capture", "context teardown", "step", "torch segments"].map(|name| tables.intern(name));
    let mut recording = Recording { batch: EventBatch::new(), scopes: Vec::new() };
    let mib = 1 << 20;
    recording.scope(0, ScopeAction::Enter, BEFORE, names[0]);
    let segment = Event { address: 0x1000_0000, bytes: 256 * mib, kind: Kind::Reserved, ..Event::default() };
    recording.event(0, Event { resource: names[3], ..segment });
    recording.event(1, Event { address: 0x1000_0000, bytes: 64 * mib, scope: BEFORE, ..Event::default() });
    for step in 0..STEPS {
        let (at, scope) = (10 + step * 10, 1 << 32 | (10 + step));
        recording.scope(at, ScopeAction::Enter, scope, names[2]);
        let kept = Event {
            address: 0x1400_0000 + step * 2 * mib,
            bytes: mib,
            stack: forgetful,
            scope,
            ..Event::default()
        };
        let work =
            Event { address: kept.address + mib, bytes: mib / 2 + step % 3 * 4096, stack: honest, ..kept };
        recording.event(at + 1, kept);
        recording.event(at + 2, work);
        recording.event(at + 8, Event { action: Action::Free, ..work });
        recording.scope(at + 9, ScopeAction::Exit, scope, names[2]);
    }
    recording.scope(900, ScopeAction::Enter, TEARDOWN, names[1]);
    for step in 0..STEPS / 2 {
        let address = 0x1400_0000 + step * 2 * mib;
        recording.event(901, Event { action: Action::Free, address, scope: TEARDOWN, ..Event::default() });
    }
    let mut writer = TraceWriter::create(&test.path("steps.flood"), Run::default(), Overwrite::No).unwrap();
    writer.write(&recording.batch, &tables).unwrap();
    writer.write_rows(&recording.scopes, &tables).unwrap();
    writer.finish(&tables, &Losses::default()).unwrap();
}

#[test]
fn growth_and_leaks_of_a_trace_with_scopes_read_well() {
    let test = CliTest::new();
    steps(&test);
    assert_snapshot!("growth", test.run(&["leaks", "steps.flood", "--per", "step", "--warm-up", "5"]).seen());
    assert_snapshot!("leaks_apart", test.run(&["leaks", "steps.flood", "--limit", "2"]).seen());
    assert_snapshot!(
        "fragmentation_segments",
        test.run(&["fragmentation", "steps.flood", "--at", "peak"]).seen()
    );
    let by_module = test.run(&["watermark", "steps.flood", "--by", "module", "--limit", "3"]);
    assert_snapshot!("watermark_module", by_module.seen());
}

#[test]
fn growth_is_exact_for_programs_and_names_are_offered() {
    let test = CliTest::new();
    steps(&test);
    let growth = test.run(&["leaks", "steps.flood", "--per", "^st", "--json"]).json();
    assert_eq!(
        (growth["schema"].as_str(), growth["iterations"].as_u64()),
        (Some("floodmark.growth/1"), Some(STEPS))
    );
    let site = &growth["sites"][0];
    assert_eq!(
        (site["trend"].as_str(), site["bytes_per_iteration"].as_f64()),
        (Some("grows"), Some(1_048_576.0))
    );
    let unknown = test.run(&["leaks", "steps.flood", "--per", "epoch"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("'step' (40)"), "{}", unknown.stderr);
}
