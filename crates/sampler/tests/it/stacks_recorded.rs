//! Stacks in a recording.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use floodmark_event::tables::Frame;
use floodmark_event::{StackReason, SubjectId};
use floodmark_sampler::stacks::{End, NamedFrame, TakenStack};
use floodmark_sampler::{RecordedStacks, StackSink as _};
use floodmark_tail::reader::RingReader;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::{RecordProps, Recorder};

use crate::programs::WatchTest;

/// What of a recording is about stacks.
#[derive(Default)]
struct Found {
    strings: HashMap<u32, String>,
    frames: HashMap<u32, Frame>,
    stacks: HashMap<u32, (u32, u32)>,
    samples: Vec<(u64, SubjectId, floodmark_event::StackSeen)>,
}

impl Found {
    fn read(ring: &std::path::Path) -> Self {
        let mut found = Self::default();
        let reader = RingReader::new(File::open(ring).expect("a ring")).expect("a ring");
        let (mut chunks, _) = reader.chunks().expect("chunks");
        chunks.sort_by_key(|chunk| (chunk.lane, chunk.sequence));
        for chunk in chunks {
            let mut decoder = Decoder::new(chunk.base_time_ns);
            while let Some(record) = decoder.next(&chunk.payload).expect("sound records") {
                found.add(&record);
            }
        }
        found
    }

    fn add(&mut self, record: &Record<'_>) {
        match record {
            Record::String { id, text } => {
                self.strings.insert(id.0, String::from_utf8(text.to_vec()).expect("text"));
            }
            Record::Frame { id, frame } => {
                self.frames.insert(*id, *frame);
            }
            Record::Stack { id, parent, frame } => {
                self.stacks.insert(id.0, (parent.0, *frame));
            }
            Record::StackSample { time_ns, subject, seen } => self.samples.push((*time_ns, *subject, *seen)),
            _ => {}
        }
    }

    /// Frames of a stack, innermost first.
    fn frames_of(&self, mut stack: u32) -> Vec<NamedFrame> {
        let mut frames = Vec::new();
        let text = |id: u32| self.strings.get(&id).cloned().unwrap_or_default();
        while let Some((parent, frame)) = self.stacks.get(&stack) {
            let Frame { function, file, line, module, address } = self.frames[frame];
            let (function, file, module) = (text(function.0), text(file.0), text(module.0));
            frames.push(NamedFrame { function, file, line, module, address });
            stack = *parent;
        }
        frames
    }
}

#[test]
fn stacks_are_recorded_from_the_innermost_frame_to_the_outermost() {
    let test = WatchTest::new("recorded");
    let trace = test.join("run.flood");
    let recorder = Recorder::start_global(RecordProps::new(&trace)).expect("starts");
    let frame = |function: &str, line| {
        let (file, module) = ("app.c".to_owned(), "/bin/app".to_owned());
        Arc::new(NamedFrame {
            function: function.to_owned(),
            file,
            line,
            module,
            address: 0x1000 + u64::from(line),
        })
    };
    let (leaf, main) = (frame("leaf", 7), frame("main", 20));
    let stack = |at_ns, frames: &[&Arc<NamedFrame>]| TakenStack {
        at_ns,
        subject: SubjectId(3),
        process: 42,
        thread: 43,
        reason: StackReason::Peak,
        pause_ns: 20_000,
        frames: frames.iter().copied().cloned().collect(),
        end: End::Outermost,
    };
    let stacks = [stack(2_000, &[&leaf, &main]), stack(1_000, &[&main]), stack(3_000, &[&leaf, &main])];
    let mut sink = RecordedStacks::default();
    for stack in stacks.clone() {
        sink.stack(stack);
    }
    let rings = std::fs::read_dir(trace.join("segments")).unwrap();
    let ring = rings.map(|entry| entry.unwrap().path()).find(|path| path.extension().unwrap() == "ring");
    let ring = ring.expect("a ring");
    let found = Found::read(&ring);
    recorder.stop();
    let _ = std::fs::read_link(&ring).map(std::fs::remove_file);
    assert_eq!(found.samples.len(), 3);
    for (stack, (time_ns, subject, seen)) in stacks.iter().zip(&found.samples) {
        assert_eq!((*time_ns, *subject), (stack.at_ns, stack.subject));
        assert_eq!((seen.thread, seen.reason, seen.pause_ns), (43, StackReason::Peak, 20_000));
        let frames: Vec<NamedFrame> = stack.frames.iter().map(|frame| NamedFrame::clone(frame)).collect();
        assert_eq!(found.frames_of(seen.stack.0), frames);
    }
    assert_eq!(found.samples[0].2.stack, found.samples[2].2.stack, "the same stack is stored once");
}
