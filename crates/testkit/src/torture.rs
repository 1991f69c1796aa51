//! What the torture programs record, so that a test can say what a trace must hold.

use floodmark_event::{Action, Event};

/// Events after which a writer acknowledges.
pub const ACK_EVENTS: u64 = 64;

/// The event `index` of thread `number`: whether it allocates, its address and its bytes.
///
/// Every other event frees what the one before allocated; the address says thread and pair.
pub fn event_of(number: u64, index: u64) -> (bool, u64, u64) {
    let pair = index / 2;
    (index.is_multiple_of(2), number << 40 | (pair << 8), pair % 4096 + 1)
}

/// Checks that `events`, all those of thread `number` (its stream) in the order of the trace, are the
/// first ones it recorded, without a hole; returns how many.
///
/// # Panics
/// If they are not.
pub fn check_thread(number: u64, events: &[Event]) -> u64 {
    for (index, event) in (0..).zip(events) {
        let (is_alloc, address, bytes) = event_of(number, index);
        let action = if is_alloc { Action::Alloc } else { Action::Free };
        let found = (event.action, event.address, event.bytes);
        assert_eq!(found, (action, address, bytes), "event {index} of thread {number}");
    }
    events.len() as u64
}
