//! Decoding what samplers record: subjects, samples, output, stacks.

use super::decode::Fields;
use super::{Damage, Decoder, Record, RecordType, SubjectEntry};
use crate::values::{self, Seen, unzigzag};
use floodmark_event::event::{StackId, StringId};
use floodmark_event::sample::{OutputStream, StackReason, StackSeen, SubjectEnd, SubjectId, SubjectKind};

/// What a payload turned out to be.
pub(super) enum Observed<'a> {
    Record(Record<'a>),
    /// Samples, the first of them at this offset.
    Samples {
        at: usize,
    },
    /// Of a type, or with a word, that this version does not know.
    Unknown,
    /// Cut off.
    Short,
}

impl<'a> Observed<'a> {
    fn known(record: Option<Record<'a>>) -> Self {
        record.map_or(Self::Unknown, Self::Record)
    }
}

impl Decoder {
    /// Decodes a record of a sampler.
    pub(super) fn observed<'a>(&mut self, kind: u8, payload: &'a [u8]) -> Observed<'a> {
        let mut fields = Fields { rest: payload };
        if kind == RecordType::Samples as u8 || kind == RecordType::SamplesAtOnce as u8 {
            return self
                .samples(kind, fields)
                .map_or(Observed::Short, |left| Observed::Samples { at: payload.len() - left });
        }
        let record = match kind {
            10 => subject(&mut fields),
            11 => subject_ended(&mut fields),
            12 => self.output(&mut fields),
            13 => self.stack_sample(&mut fields),
            _ => Some(Observed::Unknown),
        };
        record.unwrap_or(Observed::Short)
    }

    /// Reads what goes before the values of a record of samples; returns the bytes they take.
    fn samples(&mut self, kind: u8, mut fields: Fields<'_>) -> Option<usize> {
        if kind == RecordType::Samples as u8 {
            let time = fields.number()?;
            self.shift(time);
        }
        self.subject = SubjectId(fields.number()? as u32);
        Some(fields.rest.len())
    }

    /// Reads one value of a record of samples; `None` if its metric is not known.
    #[cold]
    pub(super) fn sample<'a>(&mut self, bytes: &[u8]) -> Result<Option<Record<'a>>, Damage> {
        let short = self.damage("a sample is cut off");
        let rest = bytes.get(self.at..self.samples_end).ok_or(short.clone())?;
        let mut fields = Fields { rest };
        let (Some(head), Some(difference)) = (fields.number(), fields.number()) else {
            return Err(short);
        };
        self.at = self.samples_end - fields.rest.len();
        let slots = self.seen.get_or_insert_with(values::boxed);
        let (metric, value) = Seen(slots).grow(self.subject, head, difference);
        let Some(metric) = metric else {
            self.skipped += 1;
            return Ok(None);
        };
        let (time_ns, subject) = (self.previous.time_ns, self.subject);
        Ok(Some(Record::Sample { time_ns, subject, metric, value }))
    }

    fn output<'a>(&mut self, fields: &mut Fields<'a>) -> Option<Observed<'a>> {
        let (time, stream) = (fields.number()?, fields.number()?);
        let time_ns = self.shift(time);
        let stream = u8::try_from(stream).ok().and_then(OutputStream::from_number);
        let bytes = fields.rest;
        let record = stream.map(|stream| Record::Output { time_ns, stream, bytes });
        Some(Observed::known(record))
    }

    fn stack_sample<'a>(&mut self, fields: &mut Fields<'a>) -> Option<Observed<'a>> {
        let (time, subject, thread) = (fields.number()?, fields.number()?, fields.number()?);
        let (stack, reason, pause_ns) = (fields.number()?, fields.number()?, fields.number()?);
        let time_ns = self.shift(time);
        let reason = u8::try_from(reason).ok().and_then(StackReason::from_number);
        let record = reason.map(|reason| Record::StackSample {
            time_ns,
            subject: SubjectId(subject as u32),
            seen: StackSeen { thread, stack: StackId(stack as u32), reason, pause_ns },
        });
        Some(Observed::known(record))
    }
}

fn subject<'a>(fields: &mut Fields<'a>) -> Option<Observed<'a>> {
    let (id, kind, number, start) = (fields.number()?, fields.number()?, fields.number()?, fields.number()?);
    let (parent, name, detail) = (fields.number()?, fields.number()?, fields.number()?);
    let kind = u8::try_from(kind).ok().and_then(SubjectKind::from_number);
    let record = kind.map(|kind| Record::Subject {
        id: SubjectId(id as u32),
        entry: SubjectEntry {
            kind,
            number,
            start_ns: unzigzag(start),
            parent: SubjectId(parent as u32),
            name: StringId(name as u32),
            detail: StringId(detail as u32),
        },
    });
    Some(Observed::known(record))
}

fn subject_ended<'a>(fields: &mut Fields<'a>) -> Option<Observed<'a>> {
    let (id, time_ns) = (SubjectId(fields.number()? as u32), fields.number()?);
    let (wait_status, peak) = (fields.number()?, fields.number()?);
    let end = SubjectEnd {
        wait_status: wait_status.checked_sub(1).map(|status| unzigzag(status) as i32),
        peak_rss_bytes: peak.checked_sub(1),
    };
    Some(Observed::Record(Record::SubjectEnded { id, time_ns, end }))
}
