//! `floodmark serve`

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Args;
use floodmark_serve::{KeepProps, ServeProps, Server};
use floodmark_view::plain;

use crate::args::{FilterArgs, ReadingArgs};
use crate::ask::refuse_stdin;
use crate::env::{self, EnvVars};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;

/// Serve the report page, live while recording
///
/// Serves the page of 'floodmark report' at the address it prints. The page follows a trace that is being
/// recorded, and zooms down to single events. Only this machine can reach the page, and only with the token
/// in the printed address.
///
/// The page of a recording with a million events or more is kept in the cache directory of this user
/// (~/.cache/floodmark, at most 1 GiB), so that it opens at once the next time.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Trace or log to show
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Port to listen on [default: one that is free]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Address to listen on; any other than loopback can be reached over the network
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Read everything anew, and keep nothing for the next time
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

/// Events from which on a page is kept: reading fewer takes less than a second.
const LEAST_EVENTS: u64 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  floodmark serve run.flood
  floodmark serve run.flood --open
  floodmark serve memory_log.dev0.csv --port 8080";

impl ServeArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        refuse_stdin(&self.input, "a page reads its input more than once")?;
        let props = ServeProps {
            input: self.input.clone(),
            filter: self.filter.props(),
            open: self.reading.props(),
            keep: keep().filter(|_| !self.no_cache),
            address: (self.bind, self.port).into(),
        };
        let server = Server::start(props, &Bars::new(printer))?;
        printer.data(&format!("{}\n", server.url()))?;
        let source = self.input.display().to_string();
        let source = plain(&source);
        if !server.address().ip().is_loopback() {
            printer.warn(&format!(
                "{} can be reached over the network: anyone who learns this address reads all of {source}, and \
                 nothing on the way is encrypted; 'ssh -L' to a server without --bind is safer",
                server.address(),
            ));
        }
        printer.say(&format!("serving {source}; Ctrl-C ends it"));
        if self.open {
            open_browser(server.url(), printer);
        }
        server.run()?;
        Ok(ExitStatus::Success)
    }
}

/// Where pages of large inputs are kept; none without a home directory.
fn keep() -> Option<KeepProps> {
    let absolute = |name| env::value(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache =
        absolute(EnvVars::CACHE_HOME).or_else(|| absolute(EnvVars::HOME).map(|home| home.join(".cache")))?;
    Some(KeepProps { folder: cache.join("floodmark"), least_events: LEAST_EVENTS })
}

/// Starts a browser; that it cannot be started is no reason to fail.
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
