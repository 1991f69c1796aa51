//! Batches say the same in every form: a column with one value, or that value written out for every row.

use floodmark_analyze::{Pass, Stats, StatsFold};
use floodmark_event::{Action, Column, Event, EventBatch, Filter, ProcessId, Tables};

fn stats(batch: &EventBatch) -> Stats {
    let mut pass = Pass::new(&Filter::default(), StatsFold::default());
    pass.update(batch);
    pass.finish(&Tables::default())
}

/// Allocations and frees of `processes`, at addresses that all of them use.
fn batch(processes: u32) -> EventBatch {
    let (mut batch, mut state) = (EventBatch::new(), 7u64);
    let mut live = vec![[false; 64]; processes as usize];
    for time_ns in 0..9_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (process, address) = (state >> 33 & 0xff, state >> 45 & 63);
        let process = process as u32 % processes;
        let is_live = &mut live[process as usize][address as usize];
        *is_live = !*is_live;
        let action = if *is_live { Action::Alloc } else { Action::Free };
        let (process, address, bytes) = (ProcessId(process + 1), (address + 1) << 8, (address + 1) * 16);
        batch.push(&Event { time_ns, action, process, address, bytes, ..Event::default() });
    }
    batch
}

#[test]
fn written_out_columns_change_no_figure() {
    for processes in [1, 2, 3, 20] {
        let plain = batch(processes);
        let is_one = plain.process.same().is_some();
        assert_eq!(is_one, processes == 1);
        assert!(plain.kind.same().is_some() && plain.device.same().is_some());
        let mut written_out = plain.clone();
        written_out.kind = Column::Each((0..plain.len()).map(|row| plain.kind.at(row)).collect());
        written_out.process = Column::Each((0..plain.len()).map(|row| plain.process.at(row)).collect());
        let found = stats(&plain);
        assert_eq!(found, stats(&written_out), "{processes} processes");
        assert!(found.frees > 3_000 && found.unmatched_frees == 0, "{found:?}");
    }
}
