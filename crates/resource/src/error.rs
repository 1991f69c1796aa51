//! Why there is no memory.

use std::fmt;

use floodmark_event::units::format_bytes;

/// What allocating gives.
pub type Result<T, E = AllocError> = std::result::Result<T, E>;

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AllocError {
    /// There is not enough memory.
    OutOfMemory(Box<OutOfMemory>),
    /// No resource could serve this request.
    Invalid {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        alignment: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The device, its driver or the system failed at something else than finding memory.
    Device {
        /// What was being done, as in "recording an event".
        act: &'static str,
        /// What it said.
        message: String,
    },
    /// A function of the program refused.
    Refused {
        /// The reason that it gave.
        message: String,
    },
}

impl AllocError {
    /// Returns whether freeing other memory could help.
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }

    /// Returns the error for a requester of `bytes`, where another size was passed on.
    pub(crate) fn asked_for(mut self, bytes: u64) -> Self {
        match &mut self {
            Self::OutOfMemory(details) => details.request_bytes = bytes,
            Self::Invalid { bytes: request_bytes, .. } => *request_bytes = bytes,
            Self::Device { .. } | Self::Refused { .. } => {}
        }
        self
    }

    /// Details, where this is a lack of memory.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Self::OutOfMemory(details) => Some(details),
            _ => None,
        }
    }
}

impl From<OutOfMemory> for AllocError {
    fn from(details: OutOfMemory) -> Self {
        Self::OutOfMemory(Box::new(details))
    }
}

/// A request that there was no memory for, and how things stood.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutOfMemory {
    /// The resource that had none.
    pub resource: &'static str,
    /// Bytes asked for.
    pub request_bytes: u64,
    /// Why.
    pub cause: Cause,
    /// The most the resource will hold, where it knows.
    pub limit_bytes: Option<u64>,
    /// What the resource holds, live or not.
    pub reserved_bytes: u64,
    /// What of it is handed out.
    pub live_bytes: u64,
    /// The largest block it could have handed out, where it knows.
    pub largest_free_bytes: Option<u64>,
    /// Holders of most live bytes, where that is recorded; most first.
    pub holders: Vec<Holder>,
    /// What the resource below said, where it was asked.
    pub upstream: Option<Box<AllocError>>,
}

/// Why there was not enough memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Less is left than was asked for.
    #[default]
    Exhausted,
    /// Enough is free, but not in one piece.
    Fragmented,
    /// A configured limit is reached.
    Limit,
    /// Larger than this resource ever hands out, however empty it is.
    TooLarge,
}

impl Cause {
    /// One word for it, in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Fragmented => "fragmented",
            Self::Limit => "limit",
            Self::TooLarge => "too_large",
        }
    }
}

/// A scope or stack that holds memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Scope or stack by which it was allocated.
    pub who: String,
    /// Bytes it holds.
    pub bytes: u64,
    /// Number of its live blocks.
    pub blocks: u64,
}

impl fmt::Display for AllocError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(details) => details.fmt(out),
            Self::Invalid { bytes, alignment, why } => {
                write!(out, "cannot allocate {bytes} bytes aligned to {alignment}: {why}")
            }
            Self::Device { act, message } => write!(out, "{act}: {message}"),
            Self::Refused { message } => out.write_str(message),
        }
    }
}

impl std::error::Error for AllocError {}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, request_bytes, .. } = self;
        write!(out, "out of memory: {resource} cannot allocate {}: ", exact(*request_bytes))?;
        match (self.cause, self.limit_bytes) {
            (Cause::Exhausted, _) => out.write_str("not enough is left")?,
            (Cause::Fragmented, _) => out.write_str("enough is free, but not in one piece")?,
            (Cause::Limit, Some(limit)) => write!(out, "its limit is {}", format_bytes(limit))?,
            (Cause::Limit, None) => out.write_str("its limit is reached")?,
            (Cause::TooLarge, Some(limit)) => write!(out, "it hands out at most {}", format_bytes(limit))?,
            (Cause::TooLarge, None) => out.write_str("that is more than it ever hands out")?,
        }
        write!(out, "; live {}", format_bytes(self.live_bytes))?;
        write!(out, ", reserved {}", format_bytes(self.reserved_bytes))?;
        if let (Some(limit), Cause::Exhausted | Cause::Fragmented) = (self.limit_bytes, self.cause) {
            write!(out, " of at most {}", format_bytes(limit))?;
        }
        if let Some(largest) = self.largest_free_bytes {
            write!(out, ", largest free block {}", format_bytes(largest))?;
        }
        if let Some(upstream) = &self.upstream {
            write!(out, "\n  upstream: {upstream}")?;
        }
        for Holder { who, bytes, blocks } in &self.holders {
            write!(out, "\n  {} in {blocks} block{} held by {who}", format_bytes(*bytes), plural(*blocks))?;
        }
        Ok(())
    }
}

impl std::error::Error for OutOfMemory {}

/// Readable and to the byte.
fn exact(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { format!("{} ({bytes} bytes)", format_bytes(bytes)) }
}

const fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_says_why_and_who() {
        let error = AllocError::from(OutOfMemory {
            resource: "pool",
            request_bytes: 4 << 20,
            cause: Cause::Fragmented,
            limit_bytes: Some(16 << 20),
            reserved_bytes: 16 << 20,
            live_bytes: 9 << 20,
            largest_free_bytes: Some(3 << 20),
            holders: vec![Holder { who: "load".into(), bytes: 9 << 20, blocks: 1 }],
            upstream: None,
        });
        assert_eq!(
            error.to_string(),
            "out of memory: pool cannot allocate 4.00 MiB (4194304 bytes): enough is free, but not in one piece; \
             live 9.00 MiB, reserved 16.0 MiB of at most 16.0 MiB, largest free block 3.00 MiB\n  \
             9.00 MiB in 1 block held by load"
        );
    }
}
