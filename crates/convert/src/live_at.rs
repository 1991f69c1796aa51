//! What was live at one instant, added up by stack, as profiles hold it.
//!
//! A profile has no allocations and no frees. What it says was live becomes blocks of a scope `before capture`, allocated at
//! the instant of the profile: as many as it counts, of equal sizes, because it has only their sum. Blocks have
//! no addresses there and are numbered.

use floodmark_event::{Event, Kind, NO_DEVICE, StackId, StringId};

use crate::OpenProps;
use crate::ready::Ready;

/// Blocks that all stacks of a profile may have together; beyond that a stack is one block.
const BLOCKS_MAX: u64 = if cfg!(fuzzing) { 1000 } else { 1 << 20 };
/// Remark on blocks that are not told apart.
const JOINED: &str = "the profile counts more than a million blocks; those of one stack are shown as one";
/// Remark on sizes.
const AVERAGES: &str = "the profile has sums by stack: blocks of one stack are shown with their average size";

/// Makes blocks of sums.
pub(crate) struct LiveAt {
    pub(crate) ready: Ready,
    event: Event,
    blocks: u64,
}

impl LiveAt {
    pub(crate) fn new(mut ready: Ready, props: &OpenProps, resource: &str, time_ns: i64) -> Self {
        let scope = ready.before_capture(props.process, time_ns);
        let resource: StringId = ready.tables.intern(resource);
        let event = Event {
            time_ns,
            process: props.process,
            device: NO_DEVICE,
            kind: Kind::Pageable,
            resource,
            scope,
            ..Event::default()
        };
        Self { ready, event, blocks: 0 }
    }

    /// Adds what a stack held, in `count` blocks.
    pub(crate) fn add(&mut self, stack: StackId, bytes: u64, count: u64) {
        if bytes == 0 && count == 0 {
            return;
        }
        let is_joined = count > BLOCKS_MAX.saturating_sub(self.blocks);
        let count = if is_joined { 1 } else { count.max(1) };
        if is_joined {
            self.ready.losses.remark(JOINED);
        } else if !bytes.is_multiple_of(count) {
            self.ready.losses.remark(AVERAGES);
        }
        for number in 0..count {
            self.event.address += 1;
            let bytes = bytes / count + u64::from(number < bytes % count);
            self.ready.events.push(Event { stack, bytes, ..self.event });
        }
        self.blocks += count;
    }
}
