//! Accepts connections and bounds what each of them may take.
//!
//! hyper bounds the head of a request, in time ([`Limits::head_time`]) and in size ([`HEAD_BYTES`]). The kernel
//! ends a connection whose client takes nothing of its answer for [`STALLED_TIME`]. The number of connections
//! is bounded here: where one too many arrives, the oldest that has not sent the token yet is closed, so
//! that clients without it cannot keep out those that have it, however many hang in the middle of a request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Request;
use axum::response::Response;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Largest head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// Longest time for which a client may leave an answer untaken.
const STALLED_TIME: Duration = Duration::from_secs(30);

/// Bounds of all connections together and of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at the same time. Far below the 1024 files that a process usually may open.
    pub(super) connections: usize,
    /// Longest time until the head of a request is complete, counted from the last answer.
    pub(super) head_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, head_time: Duration::from_secs(5) }
    }
}

/// Remembers whether a connection has sent a request with the token.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission(Arc<AtomicBool>);

impl Admission {
    /// Marks the connection as one that knows the token.
    pub(super) fn grant(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_granted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Has the kernel end connections of `listener` whose client takes nothing for [`STALLED_TIME`].
pub(super) fn bound_stalls(listener: &TcpListener) -> io::Result<()> {
    // Linux copies the option to every connection that the socket accepts.
    SockRef::from(listener).set_tcp_user_timeout(Some(STALLED_TIME))
}

/// Accepts connections and answers their requests until the future is dropped. Connections that are open
/// then go on and end through `graceful`.
pub(super) async fn accept<A, F>(
    mut listener: TcpListener,
    limits: Limits,
    graceful: &GracefulShutdown,
    answer: A,
) -> Infallible
where
    A: Fn(Request<Incoming>, Admission) -> F + Clone + Send + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_time).max_buf_size(HEAD_BYTES);
    let mut open = Connections { limit: limits.connections, oldest_first: VecDeque::new() };
    loop {
        // Errors of accepting are retried inside, those for want of file descriptors after a pause.
        let (stream, _) = Listener::accept(&mut listener).await;
        let admission = Admission::default();
        let (answer, granted) = (answer.clone(), admission.clone());
        let service = service_fn(move |request| {
            let answered = answer(request, granted.clone());
            async move { Ok::<_, Infallible>(answered.await) }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        open.make_room();
        let task = tokio::spawn(async move {
            // A client that went away or broke the protocol concerns nothing but its own connection.
            let _ = connection.await;
        });
        open.oldest_first.push_back(Connection { task: task.abort_handle(), admission });
    }
}

struct Connection {
    task: AbortHandle,
    admission: Admission,
}

/// The open connections.
struct Connections {
    limit: usize,
    oldest_first: VecDeque<Connection>,
}

impl Connections {
    /// Closes a connection if there are as many as allowed: the oldest without the token, else the oldest.
    fn make_room(&mut self) {
        self.oldest_first.retain(|connection| !connection.task.is_finished());
        if self.oldest_first.len() >= self.limit {
            let stranger = self.oldest_first.iter().position(|open| !open.admission.is_granted());
            if let Some(closed) = self.oldest_first.remove(stranger.unwrap_or(0)) {
                closed.task.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use axum::body::Body;

    use super::*;

    /// Serves "hello" on a thread that ends with the tests; heads have all the time in the world, so what
    /// waits for one to time out waits forever.
    fn serve(connections: usize) -> SocketAddr {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::Builder::new().name("server".into());
        let _detached = server.spawn(move || {
            let limits = Limits { connections, head_time: Duration::from_hours(1) };
            let answer = |request: Request<Incoming>, admission: Admission| async move {
                if request.uri().query() == Some("token") {
                    admission.grant();
                }
                Response::new(Body::from("hello"))
            };
            runtime.block_on(accept(listener, limits, &GracefulShutdown::new(), answer))
        });
        address
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    }

    /// Sends one request with the token and reads its answer, but leaves the connection open.
    fn ask(stream: &mut TcpStream) {
        stream.write_all(b"GET /?token HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"));
    }

    fn hang(address: SocketAddr) -> TcpStream {
        let mut stream = connect(address);
        stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        stream
    }

    fn assert_closed(stream: &mut TcpStream) {
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest).map_err(|error| error.kind());
        // The kernel sends a reset if some of what was sent had not been read.
        assert!(matches!(read, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{read:?}: {rest:?}");
    }

    #[test]
    fn requests_with_the_token_are_answered_while_others_hang() {
        let address = serve(8);
        let mut early = connect(address);
        ask(&mut early);
        let mut hanging: Vec<TcpStream> = (0..40).map(|_| hang(address)).collect();
        ask(&mut connect(address));
        ask(&mut early);
        assert_closed(&mut hanging[0]);
    }

    #[test]
    fn the_oldest_connection_makes_room_where_all_sent_the_token() {
        let address = serve(2);
        let [mut first, mut second, mut third] = [(); 3].map(|()| {
            let mut stream = connect(address);
            ask(&mut stream);
            stream
        });
        ask(&mut third);
        ask(&mut second);
        assert_closed(&mut first);
    }

    #[test]
    fn accepted_connections_inherit_the_bound_of_stalls() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            bound_stalls(&listener).unwrap();
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(STALLED_TIME));
        });
    }
}
