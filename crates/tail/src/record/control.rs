//! Records about the process itself, which travel where there is no ring: who it is, when it ended, what it
//! lost, how its host's clock compares.

use super::decode::Fields;
use super::{NOT_AN_EVENT, RecordType};
use crate::clock::Anchor;
use crate::reader::LossReason;
use crate::values::{unzigzag, zigzag};

/// Longest text of a process header that is kept.
const MAX_TEXT: usize = 4096;

/// A record about the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The process whose frames follow.
    Process(Box<ProcessHeader>),
    /// The process will record no more.
    Ended {
        /// Monotonic nanoseconds; 0 where unknown.
        time_ns: u64,
    },
    /// Events the process lost so far, by reason; counts replace earlier ones.
    Losses(Vec<(LossReason, u64)>),
    /// How the clock of the process's host compares with the reference clock of the trace.
    Clock {
        /// Nanoseconds to add to the host's UTC.
        offset_ns: i64,
        /// Nanoseconds by which the offset may be wrong; `None` where unknown.
        error_ns: Option<u64>,
    },
}

/// Identity and clock of a process, as the header of its ring has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessHeader {
    /// Name of the process's files, unique in a trace.
    pub stem: String,
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent_pid: u32,
    /// When it started, in the unit of field 22 of `/proc/PID/stat`.
    pub process_start: u64,
    /// Inode of its pid namespace.
    pub pid_namespace: u64,
    /// Its clock.
    pub anchor: Anchor,
    /// Which boot of the host that clock belongs to.
    pub boot_id: [u8; 16],
    /// Host on which it runs.
    pub host: String,
    /// Its command line.
    pub command: String,
}

/// Appends numbers and texts to a record.
struct Builder(Vec<u8>);

impl Builder {
    fn new(kind: RecordType) -> Self {
        Self(vec![(kind as u8) << 2 | NOT_AN_EVENT, 0, 0])
    }

    fn number(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_TEXT)];
        self.number(text.len() as u64).bytes(text.as_bytes())
    }

    fn finish(mut self) -> Vec<u8> {
        let len = (self.0.len() - 3) as u16;
        self.0[1..3].copy_from_slice(&len.to_le_bytes());
        self.0
    }
}

impl Control {
    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Process(header) => Builder::new(RecordType::Process)
                .number(u64::from(header.pid))
                .number(u64::from(header.parent_pid))
                .number(header.process_start)
                .number(header.pid_namespace)
                .number(header.anchor.monotonic_ns)
                .number(zigzag(header.anchor.utc_ns))
                .bytes(&header.boot_id)
                .text(&header.stem)
                .text(&header.host)
                .text(&header.command)
                .finish(),
            Self::Ended { time_ns } => Builder::new(RecordType::ProcessEnded).number(*time_ns).finish(),
            Self::Losses(losses) => {
                let builder = Builder::new(RecordType::Losses);
                let pair = |builder: Builder, (reason, count): &(LossReason, u64)| -> Builder {
                    builder.number(*reason as u64).number(*count)
                };
                losses.iter().fold(builder, pair).finish()
            }
            Self::Clock { offset_ns, error_ns } => Builder::new(RecordType::Clock)
                .number(zigzag(*offset_ns))
                .number(error_ns.map_or(0, |error| error.saturating_add(1)))
                .finish(),
        }
    }
}

/// Decodes the payload of a record of type `kind`; `None` if it is too short or of another type.
pub(super) fn decode(kind: u8, payload: &[u8]) -> Option<Control> {
    const PROCESS: u8 = RecordType::Process as u8;
    const ENDED: u8 = RecordType::ProcessEnded as u8;
    const LOSSES: u8 = RecordType::Losses as u8;
    const CLOCK: u8 = RecordType::Clock as u8;
    let mut fields = Fields { rest: payload };
    Some(match kind {
        PROCESS => Control::Process(Box::new(process(&mut fields)?)),
        ENDED => Control::Ended { time_ns: fields.number()? },
        LOSSES => {
            let mut losses = Vec::new();
            while !fields.rest.is_empty() {
                let (reason, count) = (fields.number()?, fields.number()?);
                // Reasons of a later version count as the most general one.
                let reason = LossReason::ALL.get(reason as usize).copied().unwrap_or(LossReason::NoSpace);
                losses.push((reason, count));
            }
            Control::Losses(losses)
        }
        CLOCK => Control::Clock {
            offset_ns: unzigzag(fields.number()?),
            error_ns: fields.number()?.checked_sub(1),
        },
        _ => return None,
    })
}

fn process(fields: &mut Fields<'_>) -> Option<ProcessHeader> {
    let (pid, parent_pid) = (fields.number()? as u32, fields.number()? as u32);
    let (process_start, pid_namespace) = (fields.number()?, fields.number()?);
    let anchor = Anchor { monotonic_ns: fields.number()?, utc_ns: unzigzag(fields.number()?) };
    let boot_id = *fields.bytes(16)?.first_chunk()?;
    let mut text = || {
        let len = fields.number()?;
        let bytes = fields.bytes(usize::try_from(len).ok()?)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let (stem, host, command) = (text()?, text()?, text()?);
    Some(ProcessHeader {
        stem,
        pid,
        parent_pid,
        process_start,
        pid_namespace,
        anchor,
        boot_id,
        host,
        command,
    })
}
