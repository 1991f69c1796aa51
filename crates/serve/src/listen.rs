//! Connections, of which there are only so many, and none that waits forever.
//!
//! Whoever connects has to send the whole head of a request within [`HEAD_TIME`], and no more than
//! [`HEAD_BYTES`] of it; and has to take what is sent. While an answer is being computed the client is
//! waited for as long as that takes: how many computations there are at once is bounded elsewhere.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections at once; more wait until one has ended.
const CONNECTIONS: usize = 64;
/// Time for the head of a request, and its size.
const HEAD_TIME: Duration = Duration::from_secs(5);
const HEAD_BYTES: usize = 16 << 10;
/// Time for nothing to happen on a connection.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Listens, but not to too many.
pub(super) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(CONNECTIONS)) }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.expect("nobody closes the semaphore");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Connection::new(stream, place), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Waiting for a request, or for the rest of an answer to be taken.
    Waiting,
    /// The head of a request is coming in: how many bytes of it, and how many of its end, are there.
    /// Empty lines may come before it; they take its time and room, but are not its end.
    Head { bytes: usize, end: usize, has_begun: bool },
    /// An answer is being made.
    Working,
}

impl Doing {
    /// What it does after these bytes came in; none if a head is too long.
    fn read(self, bytes: &[u8]) -> Option<Self> {
        let (mut count, mut end, mut has_begun) = match self {
            Self::Working => return Some(Self::Working),
            Self::Waiting if bytes.is_empty() => return Some(Self::Waiting),
            Self::Waiting => (0, 0, false),
            Self::Head { bytes, end, has_begun } => (bytes, end, has_begun),
        };
        for byte in bytes {
            count += 1;
            has_begun |= !matches!(byte, b'\r' | b'\n');
            if !has_begun {
                continue;
            }
            end = match (byte, end) {
                (b'\r', 0 | 2) | (b'\n', 1 | 3) => end + 1,
                (b'\r', _) => 1,
                _ => 0,
            };
            if end == 4 {
                return (count <= HEAD_BYTES).then_some(Self::Working);
            }
        }
        (count <= HEAD_BYTES).then_some(Self::Head { bytes: count, end, has_begun })
    }
}

/// A connection that does not wait forever.
pub(super) struct Connection {
    stream: TcpStream,
    doing: Doing,
    patience: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        Self { stream, doing: Doing::Waiting, patience: Box::pin(sleep(HEAD_TIME)), _place: place }
    }

    fn wait_for(&mut self, time: Duration) {
        self.patience.as_mut().reset(Instant::now() + time);
    }

    /// Gives up once patience has ended.
    fn lose_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.patience.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn took(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.lose_patience(cx).map(|lost| lost.map(|()| 0)),
            Poll::Ready(written) => {
                self.doing = Doing::Waiting;
                self.wait_for(IDLE_TIME);
                Poll::Ready(written)
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, room);
        let came = &room.filled()[before..];
        if read.is_pending() {
            return if self.doing == Doing::Working { Poll::Pending } else { self.lose_patience(cx) };
        }
        if self.doing == Doing::Waiting && !came.is_empty() {
            self.wait_for(HEAD_TIME);
        }
        match self.doing.read(came) {
            Some(doing) => self.doing = doing,
            None => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.begin_to_write();
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.took(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begin_to_write();
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.took(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connection {
    /// The answer is there: from now on it is the client's time that counts.
    fn begin_to_write(&mut self) {
        if self.doing == Doing::Working {
            self.doing = Doing::Waiting;
            self.wait_for(IDLE_TIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line_however_it_comes_in() {
        let head = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        for at in 0..head.len() {
            let part = Doing::Waiting.read(&head[..at]).unwrap();
            assert_ne!(part, Doing::Working, "{at}");
            assert_eq!(part.read(&head[at..]), Some(Doing::Working), "{at}");
        }
        let unfinished = Doing::Head { bytes: 8, end: 3, has_begun: true };
        assert_eq!(Doing::Waiting.read(b"a\r\r\n\n\r\n\r"), Some(unfinished));
    }

    #[test]
    fn empty_lines_before_a_head_are_not_its_end_and_take_its_room() {
        let empty = Doing::Waiting.read(b"\r\n\r\n").unwrap();
        assert_eq!(empty, Doing::Head { bytes: 4, end: 0, has_begun: false });
        assert_eq!(empty.read(b"GET / HTTP/1.1\r\n\r\n"), Some(Doing::Working));
        let mut doing = Some(Doing::Waiting);
        for _ in 0..HEAD_BYTES / 4 {
            doing = doing.and_then(|doing| doing.read(b"\r\n\r\n"));
        }
        assert_eq!(doing, Some(Doing::Head { bytes: HEAD_BYTES, end: 0, has_begun: false }));
        assert_eq!(doing.and_then(|doing| doing.read(b"\r")), None);
        assert_eq!(doing.and_then(|doing| doing.read(b"a\r\n\r\n")), None);
    }

    #[test]
    fn a_head_has_an_end() {
        let mut doing = Some(Doing::Waiting);
        for _ in 0..17 {
            doing = doing.and_then(|doing| doing.read(&[b'a'; 1024]));
        }
        assert_eq!(doing, None);
    }
}
