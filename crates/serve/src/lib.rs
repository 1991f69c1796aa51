//! Serves the page over a trace: live or complete, in full resolution, on loopback unless asked otherwise.
//!
//! One thread serves HTTP (`routes`, behind the `gate`), another computes (`worker`), one question at a time.
//! Nothing that is served can change anything. [`Server::start`] reads the input and listens; [`Server::run`]
//! serves until a signal ends it.
//!
//! What does *not* live here: what pages contain (`floodmark-inspect`) and how they look (`floodmark-view`).

mod error;
mod gate;
mod kept;
mod listen;
mod routes;
mod token;
mod worker;

use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::http::Request;
use floodmark_event::Filter;
use floodmark_inspect::{OpenProps, ProgressListener};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

pub use error::{Error, Result};
pub use kept::KeepProps;

use self::gate::Gate;
use self::listen::{Admission, Limits};
use self::routes::App;
use self::token::Token;
use self::worker::{Started, Worker};

/// Time for answers that are under way when a signal ends the server.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct ServeProps {
    /// Trace or foreign file.
    pub input: PathBuf,
    /// Selects events.
    pub filter: Filter,
    /// How to read a foreign file.
    pub open: OpenProps,
    /// Where pages of large inputs are kept for the next time; none to read everything anew and keep nothing.
    pub keep: Option<KeepProps>,
    /// Address to listen at; port 0 takes one that is free.
    pub address: SocketAddr,
}

/// A server that listens.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    app: Arc<App>,
    started: StartedWorker,
    local: SocketAddr,
    url: String,
}

struct StartedWorker {
    _thread: std::thread::JoinHandle<()>,
    broken: oneshot::Receiver<()>,
}

impl Server {
    /// Listens, then reads the input.
    ///
    /// # Errors
    /// If the address is taken or the input cannot be read.
    pub fn start(props: ServeProps, progress: &dyn ProgressListener) -> Result<Self> {
        let starting = |source| Error::Io { act: "starting a server", source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(starting)?;
        let ServeProps { input, filter, open, keep, address } = props;
        // A port that is taken is better known before hours of reading than after.
        let bound = runtime.block_on(TcpListener::bind(address));
        let listener = bound.map_err(|source| Error::Bind { address, source })?;
        listen::bound_stalls(&listener).map_err(starting)?;
        let local = listener.local_addr().map_err(starting)?;
        let token = Token::new()?;
        let host = host_name();
        let url = url(local, host.as_deref(), &token);
        let Started { thread, asks, broken } = Worker::start(input, &filter, open, keep.as_ref(), progress)?;
        let app = Arc::new(App::new(Gate::new(token, local.ip(), host), asks));
        let started = StartedWorker { _thread: thread, broken };
        Ok(Self { runtime, listener, app, started, local, url })
    }

    /// Address of the page, with the token that it needs.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.local
    }

    /// Serves until SIGINT or SIGTERM.
    ///
    /// # Errors
    /// [`Error::Broken`] if the thread that computes has failed.
    pub fn run(self) -> Result<()> {
        let Self { runtime, listener, app, started, .. } = self;
        match runtime.block_on(until_signal(listener, app, started.broken))? {
            Ended::BySignal => Ok(()),
            Ended::Broken => Err(Error::Broken),
        }
    }
}

/// Why serving has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    BySignal,
    /// Nothing computes any more.
    Broken,
}

async fn until_signal(
    listener: TcpListener,
    app: Arc<App>,
    mut broken: oneshot::Receiver<()>,
) -> Result<Ended> {
    let on = |kind| signal(kind).map_err(|source| Error::Io { act: "waiting for signals", source });
    let mut signals = [on(SignalKind::interrupt())?, on(SignalKind::terminate())?];
    let graceful = GracefulShutdown::new();
    let answering = Arc::clone(&app);
    let answer = move |request: Request<_>, admission: Admission| {
        routes::answer(Arc::clone(&answering), request, admission)
    };
    let mut accepting = Box::pin(listen::accept(listener, Limits::default(), &graceful, answer));
    let why = poll_fn(|cx| {
        if signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready()) {
            return Poll::Ready(Ended::BySignal);
        }
        let _accepts_forever = accepting.as_mut().poll(cx);
        // The worker ends only if it fails: the senders of its questions are alive in `app`.
        Pin::new(&mut broken).poll(cx).map(|_| Ended::Broken)
    })
    .await;
    drop(accepting);
    app.close();
    let _ = timeout(LAST_ANSWERS, graceful.shutdown()).await;
    Ok(why)
}

fn url(local: SocketAddr, host: Option<&str>, token: &Token) -> String {
    let token = token.text();
    match host.filter(|_| local.ip().is_unspecified()) {
        Some(host) => format!("http://{host}:{}/?token={token}", local.port()),
        None => format!("http://{local}/?token={token}"),
    }
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
