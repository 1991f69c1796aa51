//! The thread of one node.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_store::{ReceivedTail, TailItem, TailSource as _};
use floodmark_tail::reader::boot_id;
use floodmark_tail::record::Control;
use floodmark_tail::stream::StreamItem;

use super::intake::Intake;
use super::link::Link;
use super::{NodeEnd, NodeEvent, NodeReport, Progress, Shared, is_local, push};
use crate::clock::ClockMeter;
use crate::frames::Feed;
use crate::hosts::{Node, Scheduler};
use crate::launch::{AgentCommand, Launcher, job_of};
use crate::wire::{Hello, Message, Welcome};

/// Questions about the time before an agent counts as ready.
const FIRST_PINGS: u32 = 8;
/// Time between two later ones, by which the agent knows that the recorder lives.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest and longest time before a lost connection is made again.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// How long an agent, which answers every second, may be silent before its connection is made again: through streams,
/// and through files, which a network file system may show late.
const SILENCE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(30));
/// How long an agent that has delivered everything may take to end.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Records one node.
pub(super) struct NodeThread {
    shared: Arc<Shared>,
    node: Node,
    progress: Option<Sender<Progress>>,
    report: NodeReport,
    began: Instant,
    /// How much of the spool has arrived.
    position: u64,
    /// What of it is not in the trace yet.
    intake: Intake,
    /// Position at which the agent ended the spool.
    end: Option<u64>,
    tail: ReceivedTail<Feed>,
    clock: ClockMeter,
    /// Processes whose clock is in the trace.
    stems: HashSet<Arc<str>>,
    /// Those of them whose clock is not known yet.
    without_clock: Vec<Arc<str>>,
    attempt: u32,
    /// Whether the connection of an agent that was ready is lost.
    is_lost: bool,
}

/// How long to wait for a message, if nothing is being stored and if something is.
const IDLE_WAIT: Duration = Duration::from_millis(50);
const BUSY_WAIT: Duration = Duration::from_millis(2);

/// How far a conversation with an agent is.
#[derive(Default)]
struct Conversation {
    is_welcome: bool,
    is_ready: bool,
    is_stopped: bool,
    /// When the agent was asked for the time.
    pinged: Option<Instant>,
}

/// How a connection ended.
enum LinkEnd {
    /// Everything was delivered.
    Complete,
    /// It may be made again.
    Lost(String),
    /// It makes no sense to try again.
    Refused(String),
}

impl NodeThread {
    pub(super) fn new(shared: Arc<Shared>, node: Node, progress: Sender<Progress>) -> Self {
        let report = NodeReport::failed(&node.name, "it was not reached in time");
        Self {
            shared,
            node,
            progress: Some(progress),
            report,
            began: Instant::now(),
            position: 0,
            intake: Intake::default(),
            end: None,
            tail: ReceivedTail::new(Feed::default()),
            clock: ClockMeter::default(),
            stems: HashSet::new(),
            without_clock: Vec::new(),
            attempt: 0,
            is_lost: false,
        }
    }

    pub(super) fn run(mut self) -> NodeReport {
        let mut wait = RETRY.0;
        loop {
            let attempt_began = Instant::now();
            let end = self.connect();
            self.attempt += 1;
            let was_ready = self.report.ready_after.is_some();
            let (reason, may_retry) = match end {
                LinkEnd::Complete => {
                    self.report.end = NodeEnd::Complete;
                    self.report.spool = None;
                    break;
                }
                LinkEnd::Lost(reason) => (reason, was_ready),
                LinkEnd::Refused(reason) => (reason, false),
            };
            self.failed(&reason);
            if !may_retry || self.shared.give_up.load(Ordering::Acquire) {
                break;
            }
            if attempt_began.elapsed() > RETRY.1 {
                wait = RETRY.0;
            }
            if !self.sleep(wait) {
                break;
            }
            wait = (wait * 2).min(RETRY.1);
        }
        if self.report.end != NodeEnd::Complete {
            self.end_processes();
        }
        self.report.clock = self.clock.best();
        self.report
    }

    /// Notes and tells that the connection failed.
    fn failed(&mut self, reason: &str) {
        let node = self.node.name.clone();
        let is_stopping = self.shared.give_up.load(Ordering::Acquire);
        let event = if self.report.ready_after.is_some() {
            let was_lost = std::mem::replace(&mut self.is_lost, true);
            self.report.end = NodeEnd::Lost { reason: reason.to_owned() };
            (!was_lost && !is_stopping).then(|| NodeEvent::Lost { node, reason: reason.to_owned() })
        } else {
            self.report.end = NodeEnd::Failed { reason: reason.to_owned() };
            Some(NodeEvent::Failed { node, reason: reason.to_owned(), remedy: self.remedy(reason) })
        };
        if let Some(event) = event {
            (self.shared.props.on_event)(&event);
        }
        if let Some(progress) = self.progress.take() {
            let _ = progress.send(Progress::Failed);
        }
    }

    fn remedy(&self, reason: &str) -> Option<String> {
        let node = &self.node.name;
        let has = |text: &str| reason.contains(text);
        if has("Permission denied") || has("Host key verification failed") {
            Some(format!(
                "make 'ssh -o BatchMode=yes {node} true' work: keys without a passphrase, or an ssh agent"
            ))
        } else if has("not found") || has("No such file") {
            Some("Floodmark must be on every node: name its path there with --node-program, or copy it with --push".into())
        } else if has("Could not resolve") || has("Connection refused") || has("timed out") || has("No route")
        {
            Some(format!("check that 'ssh {node} true' works from here"))
        } else {
            None
        }
    }

    /// Sleeps unless agents are given up; returns whether to go on.
    fn sleep(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if self.shared.give_up.load(Ordering::Acquire) {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Starts the launcher.
    fn launch(&self) -> io::Result<Link> {
        let shared = &self.shared;
        // A scheduler's own step sees what a process of ours would not: the environment of its node.
        let is_local = is_local(&self.node.name) && shared.props.nodes.scheduler != Scheduler::Slurm;
        let launcher = shared.launcher;
        if shared.props.pushes && launcher == Launcher::Ssh && !is_local {
            let own = std::env::current_exe()?.display().to_string();
            push::push(&own, &shared.program, &self.node.name, shared.props.start_patience)
                .map_err(|error| io::Error::other(format!("copying the program failed: {error}")))?;
        }
        let own =
            if is_local { std::env::current_exe()?.display().to_string() } else { shared.program.clone() };
        let exchange = self.exchange();
        let mut command = AgentCommand {
            program: &own,
            job: job_of(&shared.props.nodes),
            attaches: shared.attaches,
            exchange: Some(&exchange).filter(|_| !is_local && !launcher.has_stdio()).map(PathBuf::as_path),
            orders: None,
        };
        if is_local {
            command.exchange = None;
            return Link::start(&command.local(&self.node));
        }
        let argv = command.argv(launcher, &self.node);
        if launcher.has_stdio() { Link::start(&argv) } else { Link::start_exchange(&argv, &exchange) }
    }

    /// Path of the files through which messages go, without extension.
    fn exchange(&self) -> PathBuf {
        // A name that was used before could be remembered by a network file system.
        let Hello { job, .. } = &self.shared.hello;
        self.shared.props.exchange.join(format!(
            "{}.{}.{}",
            self.node.name,
            &job[..job.len().min(8)],
            self.attempt
        ))
    }

    fn connect(&mut self) -> LinkEnd {
        let mut link = match self.launch() {
            Ok(link) => link,
            Err(error) => return LinkEnd::Lost(error.to_string()),
        };
        let silence = if self.shared.launcher.has_stdio() { SILENCE.0 } else { SILENCE.1 };
        let hello = Hello {
            node: self.node.name.clone(),
            position: self.position,
            silence_ns: silence.as_nanos() as u64,
            ..self.shared.hello.clone()
        };
        if link.send(Message::Hello(Box::new(hello))).is_err() {
            return LinkEnd::Lost(link.reason());
        }
        self.end = None;
        let end = self.serve(&mut link, silence);
        if matches!(end, LinkEnd::Complete) {
            link.finish(END_PATIENCE);
            let (to_agent, from_agent) = crate::exchange::paths(&self.exchange());
            for path in [to_agent, from_agent] {
                let _ = std::fs::remove_file(path);
            }
        }
        end
    }

    fn serve(&mut self, link: &mut Link, silence: Duration) -> LinkEnd {
        let (began, mut heard) = (Instant::now(), Instant::now());
        let mut progress = Conversation::default();
        loop {
            if let Err(end) = self.look_after(link, &mut progress, began) {
                return end;
            }
            if progress.is_welcome && heard.elapsed() > silence {
                let seconds = silence.as_secs();
                return LinkEnd::Lost(format!("nothing was heard of its agent for {seconds} s"));
            }
            let wait = if self.intake.is_empty() { IDLE_WAIT } else { BUSY_WAIT };
            let message = match link.messages.recv_timeout(wait) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return LinkEnd::Lost(link.reason()),
            };
            heard = Instant::now();
            let handled = match message {
                Message::Failed { text } => return LinkEnd::Refused(text),
                Message::Ended { .. } if !self.shared.stop.load(Ordering::Acquire) => {
                    // It was ended by a signal, or believed that the recorder was gone: the job still runs, so another
                    // agent goes on.
                    return LinkEnd::Lost("its agent ended before the job".to_owned());
                }
                message => self.handle(message, &mut progress),
            };
            if let Err(reason) = handled {
                return LinkEnd::Refused(reason);
            }
            if progress.is_ready && self.clock.answers() >= FIRST_PINGS {
                self.ready();
            }
        }
    }

    /// Does what is due without a message: stores, asks for the time, passes on that agents are to end.
    fn look_after(
        &mut self,
        link: &mut Link,
        progress: &mut Conversation,
        began: Instant,
    ) -> Result<(), LinkEnd> {
        let shared = Arc::clone(&self.shared);
        if self.intake.pump(&shared).map_err(LinkEnd::Refused)? {
            // A broken connection shows when the next message is read.
            let _ = link.send(Message::Ack { position: self.intake.stored });
        }
        if self.end == Some(self.intake.stored) && self.intake.is_empty() {
            // If it does not arrive, the spool is collected later and adds nothing.
            let _ = link.send(Message::Bye);
            return Err(LinkEnd::Complete);
        }
        if shared.give_up.load(Ordering::Acquire) {
            let is_unwritten = shared.is_unwritten.load(Ordering::Acquire);
            let reason = if is_unwritten {
                "the trace could not be written"
            } else {
                "it did not deliver everything in time"
            };
            return Err(LinkEnd::Lost(reason.to_owned()));
        }
        if shared.stop.load(Ordering::Acquire) && progress.is_welcome && !progress.is_stopped {
            progress.is_stopped = true;
            link.send(Message::Stop).map_err(|_| LinkEnd::Lost(link.reason()))?;
        }
        if !progress.is_ready && began.elapsed() > shared.props.start_patience {
            let seconds = shared.props.start_patience.as_secs();
            return Err(LinkEnd::Lost(format!("its agent was not ready within {seconds} s")));
        }
        let interval = if self.clock.answers() < FIRST_PINGS { PING_INTERVAL / 2 } else { PING_INTERVAL };
        if progress.is_welcome && progress.pinged.is_none_or(|pinged| pinged.elapsed() >= interval) {
            progress.pinged = Some(Instant::now());
            let number = self.clock.ask();
            link.send(Message::Ping { number }).map_err(|_| LinkEnd::Lost(link.reason()))?;
        }
        Ok(())
    }

    fn handle(&mut self, message: Message, progress: &mut Conversation) -> Result<(), String> {
        match message {
            Message::Welcome(welcome) if !progress.is_welcome => {
                progress.is_welcome = true;
                self.welcomed(&welcome)
            }
            Message::Ready => {
                progress.is_ready = true;
                Ok(())
            }
            Message::Pong { number, utc_ns } => {
                self.clock.answered(number, utc_ns);
                // The next question at once, until there are enough.
                if self.clock.answers() < FIRST_PINGS {
                    progress.pinged = None;
                }
                self.deliver_clocks();
                Ok(())
            }
            Message::Data { position, bytes } => self.take(position, &bytes),
            Message::Ended { position } if position == self.position => {
                self.end = Some(position);
                Ok(())
            }
            _ => Err("its agent sent a message that makes no sense here".to_owned()),
        }
    }

    /// Notes that the agent samples and its clock is known.
    fn ready(&mut self) {
        if self.report.ready_after.is_none() {
            self.report.ready_after = Some(self.began.elapsed());
        }
        if let Some(progress) = self.progress.take() {
            let _ = progress.send(Progress::Ready);
        }
        if std::mem::replace(&mut self.is_lost, false) {
            self.report.reconnects += 1;
            (self.shared.props.on_event)(&NodeEvent::Back { node: self.node.name.clone() });
        }
    }

    fn welcomed(&mut self, welcome: &Welcome) -> Result<(), String> {
        self.report.host = Some(welcome.host.clone());
        self.report.spool = Some(welcome.spool.clone());
        let was_ready = self.report.ready_after.is_some();
        self.report.restarts += u32::from(was_ready && !welcome.is_resumed);
        if welcome.position == self.position {
            return Ok(());
        }
        if welcome.position != 0 {
            return Err("its agent goes on at another position".to_owned());
        }
        // A new spool: the old one is gone.
        self.position = 0;
        self.intake.restart();
        self.tail = ReceivedTail::new(Feed::default());
        Ok(())
    }

    /// Takes bytes of the spool, which are confirmed once they are in the trace.
    fn take(&mut self, position: u64, bytes: &[u8]) -> Result<(), String> {
        if position != self.position {
            return Err("its agent sent bytes of another position".to_owned());
        }
        self.tail.bytes_mut().push(bytes);
        let mut items = Vec::new();
        while let Some(item) =
            self.tail.next().map_err(|error| format!("its agent sent damaged data: {error}"))?
        {
            let clock = self.clock_of(&item);
            items.push(item);
            items.extend(clock);
        }
        self.position += bytes.len() as u64;
        self.report.bytes += bytes.len() as u64;
        self.intake.push(items, self.position);
        Ok(())
    }

    /// Returns the clock of a process that is new, if it is another one than ours.
    fn clock_of(&mut self, item: &TailItem) -> Option<TailItem> {
        let StreamItem::Control(Control::Process(header)) = &item.item else { return None };
        if !self.stems.insert(Arc::clone(&item.stem)) || header.boot_id == boot_id() {
            return None;
        }
        let clock = self.clock_item(&item.stem);
        if clock.is_none() {
            self.without_clock.push(Arc::clone(&item.stem));
        }
        clock
    }

    fn clock_item(&self, stem: &Arc<str>) -> Option<TailItem> {
        let clock = self.clock.best()?;
        let control = Control::Clock { offset_ns: clock.offset_ns, error_ns: Some(clock.error_ns) };
        Some(TailItem { stem: Arc::clone(stem), item: StreamItem::Control(control) })
    }

    /// Stores clocks of processes whose data came before the first answer about the clock.
    fn deliver_clocks(&mut self) {
        if !self.without_clock.is_empty() && self.clock.best().is_some() {
            let stems = std::mem::take(&mut self.without_clock);
            let items = stems.iter().filter_map(|stem| self.clock_item(stem)).collect();
            self.intake.push(items, self.position);
        }
    }

    /// Says in the trace that the processes of a lost node record no more.
    fn end_processes(&mut self) {
        let ended = |stem: &Arc<str>| TailItem {
            stem: Arc::clone(stem),
            item: StreamItem::Control(Control::Ended { time_ns: 0 }),
        };
        let items: Vec<TailItem> = self.stems.iter().map(ended).collect();
        if !items.is_empty() {
            let _ = self.shared.inbox.deliver(items);
        }
    }
}
