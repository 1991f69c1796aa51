//! Format of a line of the debug log.

use std::fmt::{self, Debug, Display, Write as _};

use floodmark_event::units::format_bytes;
use tracing::Event;
use tracing::field::{Field, Visit};

use crate::local_time::LocalTime;
use crate::stream::Stream;

/// Formats a stream for messages: `0x7f00`.
pub fn show_stream(stream: Stream) -> impl Display {
    fmt::from_fn(move |out| write!(out, "{:#x}", stream.handle()))
}

/// Formats a size for messages: `4.00 MiB (4194304 bytes)`.
pub fn show_bytes(bytes: u64) -> impl Display {
    fmt::from_fn(move |out| match bytes {
        0..1024 => write!(out, "{bytes} B"),
        _ => write!(out, "{} ({bytes} bytes)", format_bytes(bytes)),
    })
}

/// Formats a line, including its line end.
pub(super) fn format(event: &Event<'_>, second: i64, nanos: u32) -> String {
    let LocalTime { year, month, day, hour, minute, second } = LocalTime::of(second);
    let millis = nanos / 1_000_000;
    let mut line = String::with_capacity(160);
    let _ = write!(
        line,
        "[{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}] [{}]",
        word(*event.metadata().level())
    );
    let mut fields = Fields { line: &mut line, only_message: true };
    event.record(&mut fields);
    fields.only_message = false;
    event.record(&mut fields);
    line.push('\n');
    line
}

fn word(level: tracing::Level) -> &'static str {
    match level {
        tracing::Level::ERROR => "error",
        tracing::Level::WARN => "warn",
        tracing::Level::INFO => "info",
        tracing::Level::DEBUG => "debug",
        tracing::Level::TRACE => "trace",
    }
}

/// Writes either the message, or all other fields as `name=value`.
struct Fields<'a> {
    line: &'a mut String,
    only_message: bool,
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let is_message = field.name() == "message";
        if is_message != self.only_message {
            return;
        }
        self.line.push(' ');
        let mut out = Escaped(self.line);
        let _ = if is_message { write!(out, "{value:?}") } else { write!(out, "{}={value:?}", field.name()) };
    }
}

/// Writes text with control characters escaped.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if letter.is_control() {
                self.0.extend(letter.escape_debug());
            } else {
                self.0.push(letter);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_sizes_look_the_same_everywhere() {
        assert_eq!(show_stream(Stream::DEFAULT).to_string(), "0x0");
        assert_eq!(show_stream(Stream::foreign(0x7f00)).to_string(), "0x7f00");
        assert_eq!(show_bytes(1023).to_string(), "1023 B");
        assert_eq!(show_bytes(4 << 20).to_string(), "4.00 MiB (4194304 bytes)");
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut out = String::new();
        let _ = Escaped(&mut out).write_str("a\nb\x1b[31m\u{85}ä");
        assert_eq!(out, "a\\nb\\u{1b}[31m\\u{85}ä");
    }
}
