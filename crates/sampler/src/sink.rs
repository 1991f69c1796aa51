//! Receivers of samples, output and marks.
//!
//! A value holds until its next sample: it is sent when it differs from the one sent before, and otherwise
//! once a second. Output is sent by threads of its own, so calls may be slightly out of the order of their
//! times.

use floodmark_event::{Metric, OutputStream, Subject, SubjectEnd, SubjectId};
use floodmark_tail as tail;
use floodmark_tail::clock::When;

/// Receives samples, output and marks. Times are monotonic nanoseconds, of
/// [`floodmark_tail::clock::monotonic_ns`].
pub trait Sink: Send {
    /// Adds a subject, and returns the id that stands for it in later calls.
    ///
    /// Called again for a process that called exec, with the same PID and start; later calls use the id that
    /// was returned last.
    fn subject(&mut self, at_ns: u64, subject: &Subject) -> SubjectId;

    /// Records the end of a subject.
    fn ended(&mut self, at_ns: u64, subject: SubjectId, end: SubjectEnd);

    /// Records values of metrics.
    fn samples(&mut self, at_ns: u64, subject: SubjectId, samples: &[(Metric, u64)]);

    /// Records output of the command. A call may begin or end within a line or a character.
    fn output(&mut self, at_ns: u64, stream: OutputStream, bytes: &[u8]);

    /// Records a mark: a line of the output that matched a pattern.
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

/// Records everything into the trace that this process records into, if any.
///
/// A mark has the time at which it is recorded, which is shortly after that of its line.
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

/// Keeps everything in memory: for tests, and for programs that analyze a short run at once.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Subjects in the order they were added; the id of each is its index plus one.
    pub subjects: Vec<RecordedSubject>,
    /// All samples, in the order of calls.
    pub samples: Vec<Sample>,
    /// Output: time, stream and bytes.
    pub output: Vec<(u64, OutputStream, Vec<u8>)>,
    /// Marks: time and name.
    pub marks: Vec<(u64, String)>,
}

/// A subject and its end.
#[derive(Clone, Debug)]
pub struct RecordedSubject {
    /// Time at which it was added.
    pub at_ns: u64,
    /// The subject.
    pub subject: Subject,
    /// Time and kind of its end, if it has ended.
    pub end: Option<(u64, SubjectEnd)>,
}

/// One value of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of the reading.
    pub at_ns: u64,
    /// The subject.
    pub subject: SubjectId,
    /// The metric.
    pub metric: Metric,
    /// The value.
    pub value: u64,
}

impl Memory {
    /// All bytes that were written to a stream.
    pub fn written(&self, stream: OutputStream) -> Vec<u8> {
        let chunks = self.output.iter().filter(|(_, of, _)| *of == stream);
        chunks.flat_map(|(_, _, bytes)| bytes.iter().copied()).collect()
    }

    /// Times and values of one metric of one subject.
    pub fn series(&self, subject: SubjectId, metric: Metric) -> Vec<(u64, u64)> {
        let samples =
            self.samples.iter().filter(|sample| sample.subject == subject && sample.metric == metric);
        samples.map(|sample| (sample.at_ns, sample.value)).collect()
    }
}

impl Sink for Memory {
    fn subject(&mut self, at_ns: u64, subject: &Subject) -> SubjectId {
        self.subjects.push(RecordedSubject { at_ns, subject: subject.clone(), end: None });
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
