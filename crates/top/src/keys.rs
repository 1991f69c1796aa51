//! Keys as a terminal sends them.
//!
//! Read here rather than by the library that draws: that waits in a read for the rest of a key, and turns in
//! circles when the terminal is gone. Bytes that are no key we know are passed over.
#![expect(unsafe_code, reason = "poll is a C function")]

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The keyboard.
pub(crate) struct Keys {
    terminal: File,
    /// Bytes that may be the begin of a key.
    pending: Vec<u8>,
}

/// What waiting for keys came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Keys(Vec<KeyEvent>),
    /// There is no terminal any more.
    Gone,
}

impl Keys {
    /// Opens the terminal that standard input is, or else the one we belong to.
    pub(crate) fn open() -> io::Result<Self> {
        let input = io::stdin();
        let terminal = if input.is_terminal() {
            let copy: OwnedFd = input.as_fd().try_clone_to_owned()?;
            copy.into()
        } else {
            File::open("/dev/tty")?
        };
        Ok(Self { terminal, pending: Vec::new() })
    }

    /// Waits for keys, but not longer than this, nor than until `output` takes something.
    pub(crate) fn wait(&mut self, most: Duration, output: Option<BorrowedFd>) -> io::Result<Typed> {
        // Of a descriptor below zero nothing is asked.
        let output = output.map_or(-1, |output| output.as_raw_fd());
        let mut asked = [
            libc::pollfd { fd: self.terminal.as_raw_fd(), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: output, events: libc::POLLOUT, revents: 0 },
        ];
        let ms = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: `asked` is two valid records.
        let ready = unsafe { libc::poll(asked.as_mut_ptr(), 2, ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            // A signal, which the loop takes next.
            let is_signal = error.kind() == io::ErrorKind::Interrupted;
            return if is_signal { Ok(Typed::Keys(Vec::new())) } else { Err(error) };
        }
        if ready == 0 {
            // Nothing followed: an escape was the key of that name.
            return Ok(Typed::Keys(parse(&std::mem::take(&mut self.pending), Rest::IsAll).0));
        }
        if asked[0].revents == 0 {
            return Ok(Typed::Keys(Vec::new()));
        }
        let mut bytes = [0; 512];
        match self.terminal.read(&mut bytes) {
            Ok(0) => Ok(Typed::Gone),
            Ok(length) => {
                self.pending.extend_from_slice(&bytes[..length]);
                let (keys, used) = parse(&self.pending, Rest::MayCome);
                self.pending.drain(..used);
                Ok(Typed::Keys(keys))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Typed::Keys(Vec::new())),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(Typed::Gone),
            Err(error) => Err(error),
        }
    }
}

/// Whether bytes may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    MayCome,
    IsAll,
}

/// Finds the keys in `bytes`, and how many bytes they take.
fn parse(bytes: &[u8], rest: Rest) -> (Vec<KeyEvent>, usize) {
    let (mut keys, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let Some((key, length)) = first(&bytes[at..], rest) else { break };
        keys.extend(key);
        at += length;
    }
    (keys, at)
}

/// The first key, if it is one we know, and its length; none if more bytes may belong to it.
fn first(bytes: &[u8], rest: Rest) -> Option<(Option<KeyEvent>, usize)> {
    let plain = |code| Some(KeyEvent::new(code, KeyModifiers::NONE));
    match bytes {
        [0x1b, b'[' | b'O', after @ ..] => {
            let Some(end) = after.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
                // No key is that long.
                let is_cut = rest == Rest::MayCome && after.len() < 16;
                return (!is_cut).then_some((None, bytes.len()));
            };
            Some((sequence(&after[..end], after[end]), end + 3))
        }
        [0x1b] if rest == Rest::MayCome => None,
        [0x1b, ..] => Some((plain(KeyCode::Esc), 1)),
        [b'\t', ..] => Some((plain(KeyCode::Tab), 1)),
        [b'\r' | b'\n', ..] => Some((plain(KeyCode::Enter), 1)),
        [byte @ 1..=26, ..] => {
            let letter = char::from(byte + b'a' - 1);
            Some((Some(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)), 1))
        }
        [byte @ 0x20..=0x7e, ..] => Some((plain(KeyCode::Char(char::from(*byte))), 1)),
        _ => Some((None, 1)),
    }
}

/// The key of a sequence: its numbers and its last byte.
fn sequence(numbers: &[u8], last: u8) -> Option<KeyEvent> {
    let text = str::from_utf8(numbers).ok()?;
    let mut numbers = text.split(';').map(|number| number.parse::<u8>().unwrap_or(1));
    let (number, modifier) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
    let code = match (last, number) {
        (b'A', _) => KeyCode::Up,
        (b'B', _) => KeyCode::Down,
        (b'C', _) => KeyCode::Right,
        (b'D', _) => KeyCode::Left,
        (b'H', _) | (b'~', 1 | 7) => KeyCode::Home,
        (b'F', _) | (b'~', 4 | 8) => KeyCode::End,
        (b'~', 5) => KeyCode::PageUp,
        (b'~', 6) => KeyCode::PageDown,
        (b'Z', _) => KeyCode::BackTab,
        _ => return None,
    };
    let is_shifted = modifier.wrapping_sub(1) & 1 == 1;
    Some(KeyEvent::new(code, if is_shifted { KeyModifiers::SHIFT } else { KeyModifiers::NONE }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(bytes: &[u8], rest: Rest) -> (Vec<KeyCode>, usize) {
        let (keys, used) = parse(bytes, rest);
        (keys.into_iter().map(|key| key.code).collect(), used)
    }

    #[test]
    fn keys_are_told_apart_however_a_terminal_writes_them() {
        use KeyCode::{BackTab, Char, Down, End, Home, Left, PageDown, PageUp, Right, Tab, Up};
        let typed = b"q\x1b[A\x1bOB\x1b[C\x1bOD\x1b[H\x1b[1~\x1b[F\x1b[8~\x1b[5~\x1b[6~\t\x1b[Z?";
        let keys = [
            Char('q'),
            Up,
            Down,
            Right,
            Left,
            Home,
            Home,
            End,
            End,
            PageUp,
            PageDown,
            Tab,
            BackTab,
            Char('?'),
        ];
        assert_eq!(codes(typed, Rest::MayCome), (keys.to_vec(), typed.len()));
        let (keys, _) = parse(b"\x1b[1;2C\x03\x1a", Rest::MayCome);
        assert_eq!(keys[0], KeyEvent::new(Right, KeyModifiers::SHIFT));
        assert_eq!(keys[1], KeyEvent::new(Char('c'), KeyModifiers::CONTROL));
        assert_eq!(keys[2], KeyEvent::new(Char('z'), KeyModifiers::CONTROL));
    }

    #[test]
    fn a_key_that_is_cut_waits_for_its_rest_and_an_escape_alone_is_a_key() {
        assert_eq!(codes(b"a\x1b", Rest::MayCome), (vec![KeyCode::Char('a')], 1));
        assert_eq!(codes(b"\x1b[1;", Rest::MayCome), (vec![], 0));
        assert_eq!(codes(b"\x1b", Rest::IsAll), (vec![KeyCode::Esc], 1));
        assert_eq!(codes(b"\x1b\x1b", Rest::IsAll), (vec![KeyCode::Esc; 2], 2));
    }

    #[test]
    fn what_is_no_key_is_passed_over() {
        let strange = b"\x1b[200~\xff\x80\x00\x1b[<0;1;2M\x1bOP\x1b[99999999;99Rq";
        assert_eq!(codes(strange, Rest::MayCome).0, [KeyCode::Char('q')]);
        let endless = [b"\x1b[".as_slice(), &[b'1'; 100]].concat();
        assert_eq!(codes(&endless, Rest::MayCome), (vec![], 102));
    }
}
