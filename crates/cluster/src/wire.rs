//! Messages between the recorder and its agents.
//!
//! A message is a head of 24 bytes, a payload of at most [`MAX_PAYLOAD_BYTES`], and a line feed, so that launchers which
//! forward output line by line forward it at once:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `FLWM` |
//! | 4 | 1 | kind of message |
//! | 5 | 1 | version of the protocol, 1 |
//! | 6 | 2 | 0 |
//! | 8 | 4 | bytes of the payload |
//! | 12 | 4 | 0 |
//! | 16 | 8 | checksum of bytes 0 to 15, continued over the payload, as in segment files |
//!
//! Numbers are little-endian, texts have their length in four bytes before them. Bytes before the first message are
//! skipped, because shells greet; later ones are an error.

use std::io::{self, Read, Write};

use floodmark_tail::segment::checksum;

/// Version of the protocol.
pub const PROTOCOL: u8 = 1;
/// Longest payload.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Bytes before the first message that are skipped.
const MAX_GREETING_BYTES: usize = 256 << 10;
/// Bytes of a message before its payload.
pub const HEAD_BYTES: usize = 24;
const MAGIC: [u8; 4] = *b"FLWM";
/// Longest text, and longest list, in a message.
const MAX_TEXT_BYTES: usize = 64 << 10;
const MAX_LIST: usize = 16 << 10;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First message of the recorder.
    Hello(Box<Hello>),
    /// First message of the agent.
    Welcome(Box<Welcome>),
    /// The agent samples.
    Ready,
    /// The recorder asks for the time.
    Ping {
        /// Number of the question.
        number: u64,
    },
    /// The agent answers with its time.
    Pong {
        /// Number of the question.
        number: u64,
        /// UTC of the agent's host in nanoseconds.
        utc_ns: i64,
    },
    /// Bytes of the agent's spool.
    Data {
        /// Their position in the spool.
        position: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The recorder has stored the spool up to here.
    Ack {
        /// Position in the spool.
        position: u64,
    },
    /// The recorder asks the agent to end.
    Stop,
    /// The agent's spool is complete and ends here.
    Ended {
        /// Length of the spool.
        position: u64,
    },
    /// The recorder has everything; the agent may delete its spool.
    Bye,
    /// The agent cannot go on.
    Failed {
        /// The reason and the remedy.
        text: String,
    },
}

/// What an agent needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Version of the recorder's program.
    pub version: String,
    /// Id of the job, which names its spools and marks its processes.
    pub job: String,
    /// Name of the node, as the recorder calls it.
    pub node: String,
    /// The command that is recorded.
    pub command: String,
    /// How much of the spool the recorder has.
    pub position: u64,
    /// Fixed interval between sweeps in nanoseconds; 0 for an adaptive one.
    pub interval_ns: u64,
    /// Whether peaks of every interval are wanted.
    pub exact_peaks: bool,
    /// Variables of a scheduler, with their values, that processes of the job have.
    pub variables: Vec<(String, String)>,
    /// Addresses and names of the nodes of the job, from which its processes are started.
    pub hosts: Vec<String>,
    /// PID of the recorder, whose processes are recorded already, if it runs on the same host; else 0.
    pub recorder_pid: u32,
    /// Name of the recorder's host, and its boot id, by which an agent knows whether it runs there.
    pub recorder_host: String,
    /// Boot id of the recorder's host.
    pub recorder_boot: [u8; 16],
    /// Directory for the spool; empty for the usual one.
    pub spool: String,
    /// How long the agent goes on without a recorder, in nanoseconds.
    pub linger_ns: u64,
    /// How long the recorder may be silent before the agent takes it for lost, in nanoseconds; 0 for the usual time.
    pub silence_ns: u64,
    /// Which stacks to take, as [`stack_order`](crate::stack_order) has them; empty for none.
    pub stacks: Vec<u64>,
}

/// What an agent says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// Version of the agent's program.
    pub version: String,
    /// Name of its host.
    pub host: String,
    /// Its PID.
    pub pid: u32,
    /// Boot id of its host.
    pub boot: [u8; 16],
    /// Directory of its spool.
    pub spool: String,
    /// Whether an agent that lost its recorder still samples.
    pub is_resumed: bool,
    /// Position from which it sends the spool.
    pub position: u64,
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Ping { .. } => 2,
            Self::Ack { .. } => 3,
            Self::Stop => 4,
            Self::Bye => 5,
            Self::Welcome(_) => 16,
            Self::Ready => 17,
            Self::Pong { .. } => 18,
            Self::Data { .. } => 19,
            Self::Ended { .. } => 20,
            Self::Failed { .. } => 21,
        }
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(vec![0; HEAD_BYTES]);
        match self {
            Self::Hello(hello) => out.hello(hello),
            Self::Welcome(welcome) => {
                out.text(&welcome.version);
                out.text(&welcome.host);
                out.number(u64::from(welcome.pid));
                out.0.extend_from_slice(&welcome.boot);
                out.text(&welcome.spool);
                out.number(u64::from(welcome.is_resumed));
                out.number(welcome.position);
            }
            Self::Ping { number } => out.number(*number),
            Self::Pong { number, utc_ns } => {
                out.number(*number);
                out.number(*utc_ns as u64);
            }
            Self::Data { position, bytes } => {
                out.number(*position);
                out.0.extend_from_slice(bytes);
            }
            Self::Ack { position } | Self::Ended { position } => out.number(*position),
            Self::Failed { text } => out.text(text),
            Self::Ready | Self::Stop | Self::Bye => {}
        }
        let mut bytes = out.0;
        let length = (bytes.len() - HEAD_BYTES) as u32;
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind();
        bytes[5] = PROTOCOL;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(checksum(0, &bytes[..16]), &bytes[HEAD_BYTES..]);
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        bytes.push(b'\n');
        bytes
    }

    /// Writes the message to a stream and flushes it.
    ///
    /// # Errors
    /// What the stream says.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.encode())?;
        out.flush()
    }
}

/// Appends numbers and texts.
struct Encoder(Vec<u8>);

impl Encoder {
    fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
        self.0.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn hello(&mut self, hello: &Hello) {
        self.text(&hello.version);
        self.text(&hello.job);
        self.text(&hello.node);
        self.text(&hello.command);
        self.number(hello.position);
        self.number(hello.interval_ns);
        self.number(u64::from(hello.exact_peaks));
        let variables = &hello.variables[..hello.variables.len().min(MAX_LIST)];
        self.number(variables.len() as u64);
        for (name, value) in variables {
            self.text(name);
            self.text(value);
        }
        let hosts = &hello.hosts[..hello.hosts.len().min(MAX_LIST)];
        self.number(hosts.len() as u64);
        for host in hosts {
            self.text(host);
        }
        self.number(u64::from(hello.recorder_pid));
        self.text(&hello.recorder_host);
        self.0.extend_from_slice(&hello.recorder_boot);
        self.text(&hello.spool);
        self.number(hello.linger_ns);
        self.number(hello.silence_ns);
        self.number(hello.stacks.len() as u64);
        hello.stacks.iter().for_each(|number| self.number(*number));
    }
}

/// Takes numbers and texts off a payload; none if it is too short.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }

    fn id(&mut self) -> Option<[u8; 16]> {
        self.bytes(16)?.first_chunk().copied()
    }

    fn text(&mut self) -> Option<String> {
        let length = u32::from_le_bytes(*self.bytes(4)?.first_chunk()?) as usize;
        if length > MAX_TEXT_BYTES {
            return None;
        }
        Some(String::from_utf8_lossy(self.bytes(length)?).into_owned())
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= MAX_LIST)?;
        // Not reserved in advance: the payload may be too short for so many.
        (0..count).map(|_| item(self)).collect()
    }

    fn hello(&mut self) -> Option<Hello> {
        Some(Hello {
            version: self.text()?,
            job: self.text()?,
            node: self.text()?,
            command: self.text()?,
            position: self.number()?,
            interval_ns: self.number()?,
            exact_peaks: self.number()? != 0,
            variables: self.list(|fields| Some((fields.text()?, fields.text()?)))?,
            hosts: self.list(Self::text)?,
            recorder_pid: self.number()? as u32,
            recorder_host: self.text()?,
            recorder_boot: self.id()?,
            spool: self.text()?,
            linger_ns: self.number()?,
            silence_ns: self.number()?,
            stacks: self.list(Self::number)?,
        })
    }

    fn welcome(&mut self) -> Option<Welcome> {
        Some(Welcome {
            version: self.text()?,
            host: self.text()?,
            pid: self.number()? as u32,
            boot: self.id()?,
            spool: self.text()?,
            is_resumed: self.number()? != 0,
            position: self.number()?,
        })
    }
}

/// Decodes a payload; none if it makes no sense. A later version may append fields, which are ignored.
fn decode(kind: u8, payload: &[u8]) -> Option<Message> {
    let mut fields = Fields(payload);
    Some(match kind {
        1 => Message::Hello(Box::new(fields.hello()?)),
        2 => Message::Ping { number: fields.number()? },
        3 => Message::Ack { position: fields.number()? },
        4 => Message::Stop,
        5 => Message::Bye,
        16 => Message::Welcome(Box::new(fields.welcome()?)),
        17 => Message::Ready,
        18 => Message::Pong { number: fields.number()?, utc_ns: fields.number()? as i64 },
        19 => Message::Data { position: fields.number()?, bytes: fields.0.to_vec() },
        20 => Message::Ended { position: fields.number()? },
        21 => Message::Failed { text: fields.text()? },
        _ => return None,
    })
}

/// Takes messages apart as their bytes arrive, in pieces of any length.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    has_begun: bool,
    skipped: Vec<u8>,
}

impl Decoder {
    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next message; none if more bytes are needed.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the bytes are no messages of this version. There is no way to go on then.
    pub fn next_message(&mut self) -> io::Result<Option<Message>> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if !self.has_begun && !self.skip_greeting()? {
            return Ok(None);
        }
        // Messages end in a line feed; a launcher may add others.
        while self.buffer.get(self.start) == Some(&b'\n') {
            self.start += 1;
        }
        let available = &self.buffer[self.start..];
        let shared = available.len().min(MAGIC.len());
        if available[..shared] != MAGIC[..shared] {
            return Err(invalid("bytes that are no message"));
        }
        let Some(head) = available.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        if head[5] != PROTOCOL {
            return Err(invalid(&format!("version {} of the protocol; this is version {PROTOCOL}", head[5])));
        }
        let length = u32::from_le_bytes(*head[8..].first_chunk().expect("within the head")) as usize;
        if length > MAX_PAYLOAD_BYTES {
            return Err(invalid("a message is too long"));
        }
        let Some(payload) = available.get(HEAD_BYTES..HEAD_BYTES + length) else { return Ok(None) };
        let sum = u64::from_le_bytes(*head[16..].first_chunk().expect("within the head"));
        if sum != checksum(checksum(0, &head[..16]), payload) {
            return Err(invalid("a message is damaged"));
        }
        let message = decode(head[4], payload).ok_or_else(|| invalid("a message that makes no sense"))?;
        self.start += HEAD_BYTES + length;
        Ok(Some(message))
    }

    /// Skips what comes before the first message; returns whether one begins.
    fn skip_greeting(&mut self) -> io::Result<bool> {
        let found = self.buffer[self.start..].windows(MAGIC.len()).position(|window| window == MAGIC);
        let skip = match found {
            Some(at) => at,
            // The last bytes may be the beginning of one.
            None => (self.buffer.len() - self.start).saturating_sub(MAGIC.len() - 1),
        };
        self.skipped.extend_from_slice(&self.buffer[self.start..self.start + skip]);
        self.start += skip;
        self.has_begun = found.is_some();
        if self.skipped.len() > MAX_GREETING_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no message among the first bytes"));
        }
        Ok(self.has_begun)
    }

    /// Returns what came before the first message, for an error that quotes it.
    pub fn greeting(&self) -> String {
        let rest = if self.has_begun { &[][..] } else { &self.buffer[self.start..] };
        String::from_utf8_lossy(&[&self.skipped, rest].concat()).trim().to_owned()
    }
}

/// Returns how many of `bytes`, which begin with a message, are complete and sound messages.
pub(crate) fn sound_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        while bytes.get(at) == Some(&b'\n') {
            at += 1;
        }
        let rest = &bytes[at..];
        let Some(head) = rest.first_chunk::<HEAD_BYTES>() else { return at };
        let length = u32::from_le_bytes(*head[8..].first_chunk().expect("within the head")) as usize;
        let sum = u64::from_le_bytes(*head[16..].first_chunk().expect("within the head"));
        let is_head = head[..4] == MAGIC && length <= MAX_PAYLOAD_BYTES;
        let payload = rest.get(HEAD_BYTES..HEAD_BYTES + length).filter(|_| is_head);
        match payload {
            Some(payload) if sum == checksum(checksum(0, &head[..16]), payload) => at += HEAD_BYTES + length,
            _ => return at,
        }
    }
}

/// Reads messages from a stream.
#[derive(Debug)]
pub struct MessageReader<R> {
    bytes: R,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl<R: Read> MessageReader<R> {
    /// Reads messages from `bytes`.
    pub fn new(bytes: R) -> Self {
        Self { bytes, decoder: Decoder::default(), buffer: vec![0; 64 << 10] }
    }

    /// Waits for the next message; none at the end of the stream.
    ///
    /// # Errors
    /// As [`Decoder::next_message`], or what the stream says.
    pub fn next_message(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(Some(message));
            }
            match self.bytes.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(read) => self.decoder.push(&self.buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns what came before the first message.
    pub fn greeting(&self) -> String {
        self.decoder.greeting()
    }
}

#[cfg(test)]
mod tests;
