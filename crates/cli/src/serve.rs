//! Serves a page over a trace: the runtime, and what is said of it.
//!
//! One thread serves (`routes`, behind the `gate`), another computes (`worker`), one thing at a time.
//! Nothing that is served can change anything.

mod checkpoints;
mod gate;
mod growing;
mod listen;
mod peak;
mod range;
mod routes;
mod token;
mod worker;

use std::future::{Future as _, IntoFuture as _, poll_fn};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use floodmark_convert::OpenProps;
use floodmark_event::Filter;
use floodmark_view::plain;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::gate::Gate;
use self::listen::Bounded;
use self::routes::App;
use self::token::Token;
use self::worker::{BROKEN, Started, Worker};
use crate::error::hinted;
use crate::printer::Printer;

/// How long answers that are under way get when the end comes.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// What to serve, and where.
pub(crate) struct ServeProps {
    pub(crate) input: PathBuf,
    pub(crate) filter: Filter,
    pub(crate) open: OpenProps,
    pub(crate) address: SocketAddr,
    pub(crate) browser: Browser,
}

/// Whether to open a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Browser {
    /// Leave that to the user.
    Leave,
    /// Open it.
    Open,
}

/// Serves until a signal ends it.
pub(crate) fn serve(props: ServeProps, printer: &Printer) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("starting a server")?;
    let ServeProps { input, filter, open, address, browser } = props;
    // A port that is taken is better known before hours of reading than after.
    let listener =
        runtime.block_on(TcpListener::bind(address)).map_err(|error| cannot_bind(address, &error))?;
    let local = listener.local_addr().context("starting a server")?;
    let token = Token::new()?;
    let host = machine_name();
    let url = url(local, host.as_deref(), &token);
    let source = input.display().to_string();
    let Started { thread: worker, asks, broken } = Worker::start(input, filter, open, printer)?;
    let gate = Gate::new(token, local.ip(), host);
    let app = Arc::new(App::new(gate, asks));
    printer.data(&format!("{url}\n"))?;
    if !local.ip().is_loopback() {
        printer.warn(&format!(
            "{local} can be reached over the network: whoever learns this address reads all of {}, and \
             nothing on the way is encrypted; 'ssh -L' to a server without --bind is safer",
            plain(&source)
        ));
    }
    printer.say(&format!("serving {}; Ctrl-C ends it", plain(&source)));
    if browser == Browser::Open {
        open_browser(&url, printer);
    }
    let ended = runtime.block_on(until_signal(listener, app, broken))?;
    drop(worker);
    match ended {
        Ended::BySignal => Ok(()),
        Ended::Broken => bail!(BROKEN),
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
    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let (end, ended) = oneshot::channel::<()>();
    let server = axum::serve(Bounded::new(listener), routes::router(Arc::clone(&app)));
    let server = server.with_graceful_shutdown(async move {
        let _ = ended.await;
    });
    let server = tokio::spawn(server.into_future());
    let why = poll_fn(|cx| {
        if signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready()) {
            return Poll::Ready(Ended::BySignal);
        }
        // All who could ask are here, so it does not end in any other way.
        Pin::new(&mut broken).poll(cx).map(|_| Ended::Broken)
    })
    .await;
    app.close();
    let _ = end.send(());
    let _ = timeout(LAST_ANSWERS, server).await;
    Ok(why)
}

fn cannot_bind(address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "choose another --port, or leave it out to get one that is free",
        ErrorKind::PermissionDenied => "ports below 1024 belong to the system; choose a higher --port",
        _ => "--bind takes an address of this machine; leave it out to use 127.0.0.1",
    };
    hinted(format!("cannot listen at {address}: {error}"), hint)
}

fn url(local: SocketAddr, host: Option<&str>, token: &Token) -> String {
    let token = token.text();
    match host.filter(|_| local.ip().is_unspecified()) {
        Some(host) => format!("http://{host}:{}/?token={token}", local.port()),
        None => format!("http://{local}/?token={token}"),
    }
}

fn machine_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Starts a browser, which is no reason to fail.
fn open_browser(url: &str, printer: &Printer) {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It may become the browser, which Ctrl-C here is not meant for.
    command.process_group(0);
    match command.spawn() {
        Ok(mut child) => {
            let wait = std::thread::Builder::new().name("floodmark-open".into());
            let _ = wait.spawn(move || child.wait());
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            printer.warn("there is no xdg-open here that could open a browser; paste the address into one");
        }
        Err(error) => printer.warn(&format!("cannot start xdg-open ({error}); paste the address")),
    }
}
