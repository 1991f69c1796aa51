//! Where everything that is seen goes.
//!
//! A gauge holds until its next sample: a value is told when it differs from the one told before, and
//! otherwise once a second. Output is told by threads of their own, so calls may come slightly out of
//! the order of their times.

use floodmark_event::{Metric, OutputStream, Subject, SubjectEnd, SubjectId};
use floodmark_tail as tail;
use floodmark_tail::clock::When;

/// Takes what is seen. Times are monotonic nanoseconds, as [`floodmark_tail::clock::monotonic_ns`]
/// gives them.
pub trait Sink: Send {
    /// Something to observe appeared; the number returned stands for it in all that follows.
    ///
    /// Called again for a process that replaced its program, with the same number and start: what
    /// follows is told of the number returned last.
    fn subject(&mut self, at_ns: u64, subject: &Subject) -> SubjectId;

    /// Something that was observed is over.
    fn ended(&mut self, at_ns: u64, subject: SubjectId, end: SubjectEnd);

    /// Gauges were read.
    fn samples(&mut self, at_ns: u64, subject: SubjectId, samples: &[(Metric, u64)]);

    /// The command wrote something. A call may begin or end within a line or a character.
    fn output(&mut self, at_ns: u64, stream: OutputStream, bytes: &[u8]);

    /// A line of the output matched a pattern.
    fn mark(&mut self, at_ns: u64, name: &str);
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn subject(&mut self, at_ns: u64, subject: &Subject) -> SubjectId {
        (**self).subject(at_ns, subject)
    }

    fn ended(&mut self, at_ns: u64, subject: SubjectId, end: SubjectEnd) {
        (**self).ended(at_ns, subject, end);
    }

    fn samples(&mut self, at_ns: u64, subject: SubjectId, samples: &[(Metric, u64)]) {
        (**self).samples(at_ns, subject, samples);
    }

    fn output(&mut self, at_ns: u64, stream: OutputStream, bytes: &[u8]) {
        (**self).output(at_ns, stream, bytes);
    }

    fn mark(&mut self, at_ns: u64, name: &str) {
        (**self).mark(at_ns, name);
    }
}

/// Records everything into the trace that this process records into; nothing while it records none.
///
/// A mark has the time at which it is recorded, which is a moment after that of the line it was in.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailSink;

impl Sink for TailSink {
    fn subject(&mut self, _at_ns: u64, subject: &Subject) -> SubjectId {
        tail::subject(subject)
    }

    fn ended(&mut self, at_ns: u64, subject: SubjectId, end: SubjectEnd) {
        tail::subject_ended(subject, end, When::At(at_ns));
    }

    fn samples(&mut self, at_ns: u64, subject: SubjectId, samples: &[(Metric, u64)]) {
        tail::samples(subject, samples, When::At(at_ns));
    }

    fn output(&mut self, at_ns: u64, stream: OutputStream, bytes: &[u8]) {
        tail::output(stream, bytes, When::At(at_ns));
    }

    fn mark(&mut self, _at_ns: u64, name: &str) {
        tail::mark(tail::intern(name));
    }
}

/// Keeps everything in memory: for tests and for programs that look at a short run at once.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Subjects in the order they appeared; the number of one is its index and one.
    pub subjects: Vec<Seen>,
    /// All samples, in the order they were told.
    pub samples: Vec<Sample>,
    /// Output, as it was read.
    pub output: Vec<(u64, OutputStream, Vec<u8>)>,
    /// Marks.
    pub marks: Vec<(u64, String)>,
}

/// A subject and how it went.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it was first told.
    pub at_ns: u64,
    /// What it is.
    pub subject: Subject,
    /// When and how it ended, if it did.
    pub end: Option<(u64, SubjectEnd)>,
}

/// One value of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was read.
    pub at_ns: u64,
    /// Whose it is.
    pub subject: SubjectId,
    /// What was read.
    pub metric: Metric,
    /// The value.
    pub value: u64,
}

impl Memory {
    /// All that was written to a stream.
    pub fn written(&self, stream: OutputStream) -> Vec<u8> {
        let chunks = self.output.iter().filter(|(_, of, _)| *of == stream);
        chunks.flat_map(|(_, _, bytes)| bytes.iter().copied()).collect()
    }

    /// Values of one metric of one subject with their times.
    pub fn series(&self, subject: SubjectId, metric: Metric) -> Vec<(u64, u64)> {
        let samples =
            self.samples.iter().filter(|sample| sample.subject == subject && sample.metric == metric);
        samples.map(|sample| (sample.at_ns, sample.value)).collect()
    }
}

impl Sink for Memory {
    fn subject(&mut self, at_ns: u64, subject: &Subject) -> SubjectId {
        self.subjects.push(Seen { at_ns, subject: subject.clone(), end: None });
        SubjectId(self.subjects.len() as u32)
    }

    fn ended(&mut self, at_ns: u64, subject: SubjectId, end: SubjectEnd) {
        if let Some(seen) = self.subjects.get_mut((subject.0 as usize).wrapping_sub(1)) {
            seen.end = Some((at_ns, end));
        }
    }

    fn samples(&mut self, at_ns: u64, subject: SubjectId, samples: &[(Metric, u64)]) {
        let samples = samples.iter().map(|&(metric, value)| Sample { at_ns, subject, metric, value });
        self.samples.extend(samples);
    }

    fn output(&mut self, at_ns: u64, stream: OutputStream, bytes: &[u8]) {
        self.output.push((at_ns, stream, bytes.to_vec()));
    }

    fn mark(&mut self, at_ns: u64, name: &str) {
        self.marks.push((at_ns, name.to_owned()));
    }
}
