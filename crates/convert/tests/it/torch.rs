//! Memory snapshots of PyTorch: one that it wrote, and small ones that show one thing each.

use std::path::{Path, PathBuf};

use floodmark_convert::{Format, OpenProps, open, recognize};
use floodmark_event::{Action, Kind, Metric, NO_DEVICE, ScopeAction};

use crate::logs::gaps;
use crate::snapshots::{Read, drain, pickled, read};

const MIB: u64 = 1 << 20;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/torch/snapshot_torch2.11.pickle.gz")
}

fn read_fixture() -> Read {
    let snapshot = open(&fixture(), &OpenProps::default()).expect("a snapshot");
    drain((snapshot.events().expect("events"), snapshot.rows().expect("rows")))
}

#[test]
fn a_real_snapshot_gives_the_figures_that_pytorch_gave() {
    assert_eq!(recognize(&fixture()).ok(), Some(Format::Torch));
    let read = read_fixture();
    assert_eq!(read.level(Kind::Device, 0), (1_047_300_120, 301_420_548), "requested");
    assert_eq!(read.level(Kind::Reserved, 0), (1_342_177_280, 1_342_177_280), "reserved");
    let whole = read.samples(Metric::Live);
    assert_eq!(
        (whole.iter().max(), whole.last()),
        (Some(&1_054_117_376), Some(&302_469_632)),
        "whole blocks"
    );
    assert_eq!(read.samples(Metric::Reserved).last(), Some(&1_342_177_280));
    assert_eq!((gaps(&read.losses), gaps(&read.row_losses)), (vec![], vec![]));
    assert_eq!(read.events.len(), 2814 + 2593 + 79);
    assert!(read.events.is_sorted_by_key(|event| event.time_ns));
    assert_eq!(read.events[0].time_ns, 1_794_724_185_662_263_000);
    let scopes = read.scopes();
    assert_eq!(scopes.iter().filter(|(_, name)| *name == "Optimizer.step#AdamW.step").count(), 5);
    assert!(read.events.iter().any(|event| event.scope > (1 << 32) + 1), "allocations know their scope");
}

#[test]
fn stacks_of_a_real_snapshot_are_shared_and_read_innermost_first() {
    let read = read_fixture();
    let stack = read.tables.stack_text(read.events[0].stack);
    assert_eq!((stack.len(), &*stack[0]), (50, "torch::unwind::unwind()"));
    let python = stack.iter().find(|frame| frame.contains(".py:")).expect("a frame of Python");
    assert!(python.ends_with(')'), "{python}");
    let (strings, frames, stacks) = read.tables.counts();
    assert!(strings < 2000 && frames < 2000 && stacks < 6000, "{strings} {frames} {stacks}");
}

#[test]
fn every_protocol_of_pickle_reads_the_same() {
    let expression = "snap([[e('segment_alloc', 4096, 2*M, 0), e('alloc', 4096, 100, 1), \
                      e('oom', 0, 9*M, 2, device_free=M)]], [s(4096, 2*M, [b(4096, 512, 100), \
                      b(4608, 2*M-512, 0, 'inactive')])], big=1<<70, neg=-5, x=(1.5, None, {3}, b'raw'), t=True)";
    let newest = read(&pickled(expression, 5));
    assert_eq!(newest.level(Kind::Device, 0), (100, 100));
    assert_eq!(newest.samples(Metric::Live), [512]);
    assert_eq!(
        newest.tables.stack_text(newest.events[1].stack),
        ["step (/app/train.py:10)", "main (/app/train.py:20)"]
    );
    for protocol in 0..5 {
        // The set and the bytes are objects of a class before protocols 3 and 4.
        let plain = expression.replace(", {3}, b'raw'", "");
        let other = read(&pickled(&plain, protocol));
        assert_eq!((other.events, other.rows), (newest.events.clone(), newest.rows.clone()), "{protocol}");
    }
}

#[test]
fn expandable_segments_shrink_in_parts() {
    let bytes = pickled(
        "snap([[e('segment_map', 0x10000000, 6*M, 0), e('segment_map', 0x10000000+6*M, 2*M, 1), \
         e('alloc', 0x10000000, 5*M, 2), e('segment_unmap', 0x10000000+5*M, 2*M, 3)]], \
         [s(0x10000000, 5*M, [b(0x10000000, 5*M, 5*M)]), s(0x10000000+7*M, M, [b(0x10000000+7*M, M, 0, 'inactive')])], \
         allocator_settings={'expandable_segments': True})",
        4,
    );
    let read = read(&bytes);
    let at = |mib: u64| 0x1000_0000 + mib * MIB;
    let segments: Vec<_> = read.plain().into_iter().filter(|event| event.1 == Kind::Reserved).collect();
    assert_eq!(
        segments[2..],
        [
            (Action::Free, Kind::Reserved, at(0), 6 * MIB),
            (Action::Alloc, Kind::Reserved, at(0), 5 * MIB),
            (Action::Free, Kind::Reserved, at(6), 2 * MIB),
            (Action::Alloc, Kind::Reserved, at(7), MIB),
        ]
    );
    assert_eq!(read.level(Kind::Reserved, 0), (8 * MIB, 6 * MIB));
    assert_eq!(read.samples(Metric::Reserved), [6 * MIB, 8 * MIB, 6 * MIB]);
    assert_eq!(read.samples(Metric::Live), [5 * MIB]);
    assert_eq!((gaps(&read.losses), gaps(&read.row_losses)), (vec![], vec![]));
}

#[test]
fn what_a_truncated_trace_frees_was_there_before_it() {
    // A block and a segment that go, and a block and a segment that stay.
    let bytes = pickled(
        "snap([[e('free_requested', 4096, 100, 0), e('free_completed', 4096, 100, 1), \
         e('segment_free', 4096, 2*M, 2), e('alloc', 0x800200, 700, 3)]], \
         [s(0x800000, 2*M, [b(0x800000, 512, 500), b(0x800200, 1024, 700), b(0x800600, 2*M-1536, 0, 'inactive')])])",
        4,
    );
    let read = read(&bytes);
    assert_eq!(
        read.plain()[..4],
        [
            (Action::Alloc, Kind::Reserved, 4096, 2 * MIB),
            (Action::Alloc, Kind::Reserved, 0x80_0000, 2 * MIB),
            (Action::Alloc, Kind::Device, 4096, 100),
            (Action::Alloc, Kind::Device, 0x80_0000, 500),
        ]
    );
    assert!(read.events[..4].iter().all(|event| event.scope == (1 << 32) + 1 && event.time_ns == 1_000_000));
    assert_eq!(read.scopes()[0], (ScopeAction::Enter, floodmark_event::BEFORE_CAPTURE));
    assert!(read.events[4..].iter().all(|event| event.scope == 0));
    assert_eq!(read.level(Kind::Device, 0), (1200, 1200));
    assert_eq!(read.level(Kind::Reserved, 0), (4 * MIB, 2 * MIB));
    assert!(read.losses.is_empty());
    // How large the block was that went nobody knows; at the end all is known.
    assert_eq!(read.samples(Metric::Live), [1536]);
    assert_eq!(gaps(&read.row_losses), [(0, "how large whole blocks were is known only at the end")]);
}

#[test]
fn a_block_ends_when_its_free_is_requested_and_its_memory_when_that_is_done() {
    let bytes = pickled(
        "snap([[e('segment_alloc', 4096, 2*M, 0), e('alloc', 4096, 1000, 1), e('free_requested', 4096, 1000, 2), \
         e('alloc', 5120, 2000, 3), e('free_requested', 5120, 2000, 4)]], \
         [s(4096, 2*M, [b(4096, 1024, 1000, 'active_pending_free'), b(5120, 2048, 2000, 'active_awaiting_free'), \
         b(7168, 2*M-3072, 0, 'inactive')])])",
        2,
    );
    let read = read(&bytes);
    assert_eq!(read.level(Kind::Device, 0), (2000, 0));
    assert_eq!(read.samples(Metric::Live), [1024, 0, 2048, 0]);
    assert!(read.losses.is_empty());
}

#[test]
fn devices_are_merged_by_time_and_kept_apart() {
    let bytes = pickled(
        "snap([[e('alloc', 4096, 100, 5)], [], [e('alloc', 4096, 300, 1), e('alloc', 8192, 1, 9)]], \
         [s(4096, 2*M, [b(4096, 512, 100)]), s(4096, 2*M, [b(4096, 512, 300), b(8192, 512, 1)], device=2)])",
        4,
    );
    let read = read(&bytes);
    let blocks = read.events.iter().filter(|event| event.kind == Kind::Device);
    assert_eq!(
        blocks.map(|event| (event.device, event.bytes)).collect::<Vec<_>>(),
        [(2, 300), (0, 100), (2, 1)]
    );
    assert_eq!(read.level(Kind::Reserved, 2), (2 * MIB, 2 * MIB));
    assert!(read.losses.is_empty());
}

#[test]
fn running_out_of_memory_is_a_failure_and_a_mark() {
    let trace = "[e('alloc', 4096, 10, 0, user_metadata='weights'), e('oom', 0, 3<<30, 1, device_free=5*M), \
                 e('snapshot', 0, 0, 2), e('annotate', 0, 0, 3, user_metadata='epoch 2')]";
    let trace = trace.replace("e('oom', 0,", "e('oom', 4096,");
    let read = read(&pickled(&format!("snap([{trace}], [s(4096, 2*M, [b(4096, 512, 10)])])"), 4));
    let failure = read.events.iter().find(|event| event.action == Action::Failure).expect("a failure");
    assert_eq!((failure.bytes, failure.address, failure.kind), (3 << 30, 0, Kind::Device));
    let named = read.events.iter().find(|event| event.name.0 != 0).expect("a name");
    assert_eq!(read.tables.string(named.name), "weights");
    let marks: Vec<_> =
        read.scopes().into_iter().filter(|(action, _)| *action == ScopeAction::Mark).collect();
    let text = "out of memory: device 0 was asked for 3.00 GiB and had 5.00 MiB free";
    assert_eq!(
        marks,
        [(ScopeAction::Mark, text), (ScopeAction::Mark, "snapshot"), (ScopeAction::Mark, "epoch 2")]
    );
}

#[test]
fn a_snapshot_without_traces_is_the_live_set_of_one_instant() {
    let state = "[s(4096, 2*M, [b(4096, 512, 10), b(4608, 2*M-512, 0, 'inactive')])]";
    let read = read(&pickled(&format!("snap([], {state})"), 4));
    assert_eq!(read.plain().len(), 2);
    assert_eq!((read.level(Kind::Device, 0), read.level(Kind::Reserved, 0)), ((10, 10), (2 * MIB, 2 * MIB)));
    assert_eq!(read.tables.stack_text(read.events[1].stack)[0], "step (/app/train.py:10)");
    assert!(read.events.iter().all(|event| event.scope == (1 << 32) + 1));
    assert_eq!((read.samples(Metric::Live), gaps(&read.row_losses)), (vec![512], vec![]));
}

#[test]
fn blocks_of_old_versions_have_a_history_and_no_address() {
    let blocks = "[{'size': 1024, 'state': 'inactive'}, {'size': 512, 'state': 'active_allocated', \
                  'history': [{'addr': 5120, 'real_size': 77, 'frames': F}, {'addr': 5120, 'real_size': 5, 'frames': []}]}]";
    let trace = "[dict(action='alloc', addr=5120, size=77, stream=0, frames=F)]";
    let segment =
        format!("{{'device': 0, 'address': 4096, 'total_size': 2*M, 'stream': 0, 'blocks': {blocks}}}");
    let state = read(&pickled(&format!("snap([], [{segment}])"), 2));
    assert_eq!(state.plain()[1], (Action::Alloc, Kind::Device, 5120, 77));
    assert_eq!(state.tables.stack_text(state.events[1].stack).len(), 2);
    let traced = read(&pickled(&format!("snap([{trace}], [{segment}])"), 2));
    assert_eq!(traced.level(Kind::Device, 0), (77, 77));
    assert_eq!(
        gaps(&traced.losses),
        [(1, "an entry has no time; such entries are shown one microsecond apart")]
    );
}

#[test]
fn pinned_memory_of_the_host_is_a_place_of_its_own() {
    let bytes = pickled(
        "snap([], [], host_traces=[[e('segment_alloc', 4096, 8192, 1), e('alloc', 4096, 5000, 2)]], \
         host_segments=[s(4096, 8192, [b(4096, 8192, 5000)])])",
        4,
    );
    let read = read(&bytes);
    assert_eq!(read.level(Kind::Pinned, NO_DEVICE), (5000, 5000));
    assert_eq!(read.level(Kind::Reserved, NO_DEVICE), (8192, 8192));
    assert_eq!(read.tables.string(read.events[1].resource), "torch host");
}

#[test]
fn what_trace_and_state_disagree_about_is_counted() {
    let bytes = pickled(
        "snap([[e('segment_alloc', 4096, 2*M, 0), e('alloc', 4096, 10, 1), e('alloc', 8192, 20, 2), \
         e('free_requested', 8192, 20, 3), e('alloc', 16384, 30, 4), e('segment_alloc', 0x900000, 2*M, 5), \
         e('swapped', 1, 1, 6)]], \
         [s(4096, 2*M, [b(8192, 512, 20), b(16384, 512, 31)])])",
        4,
    );
    let read = read(&bytes);
    assert_eq!(
        gaps(&read.losses),
        [
            (1, "entries of traces say 'swapped', which is not known"),
            (1, "frees of blocks that the state at the end does not have any more"),
            (1, "allocations of blocks that the state at the end has and the trace has not"),
            (1, "a block has another size in the state at the end than in the trace"),
            (1, "ends of segments that the state at the end does not have any more"),
        ]
    );
}
