//! Recording of stacks.

use std::collections::HashMap;
use std::sync::Arc;

use floodmark_event::tables::Frame;
use floodmark_event::{StackId, StackSeen};
use floodmark_tail::clock::When;
use floodmark_tail::{intern, intern_frame, intern_stack, stack_sample};

use super::{NamedFrame, StackSink, TakenStack};

/// Records stacks into the trace that this process records into.
#[derive(Debug, Default)]
pub struct RecordedStacks {
    frames: HashMap<Arc<NamedFrame>, u32>,
}

impl StackSink for RecordedStacks {
    fn stack(&mut self, stack: TakenStack) {
        let mut id = StackId(0);
        for frame in stack.frames.iter().rev() {
            let frame = *self.frames.entry(Arc::clone(frame)).or_insert_with(|| {
                intern_frame(&Frame {
                    function: intern(&frame.function),
                    file: intern(&frame.file),
                    line: frame.line,
                    module: intern(&frame.module),
                    address: frame.address,
                })
            });
            id = intern_stack(id, frame);
        }
        let (thread, reason, pause_ns) = (stack.thread, stack.reason, stack.pause_ns);
        let seen = StackSeen { thread, stack: id, reason, pause_ns };
        stack_sample(stack.subject, &seen, When::At(stack.at_ns));
    }
}
