//! Agents that send nothing: they follow one file of orders in a shared directory, and write their spools there.
//!
//! The recorder takes part neither in their data nor in their connections, so it does not matter how many nodes there
//! are. `srun` and `pbsdsh` start the agents of all nodes at once; by ssh there is one process for each node. All launchers
//! share one pipe, through which agents say that they are ready.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_sampler::{Unwatched, spawn_unwatched};

use super::{NodeEnd, NodeEvent, NodeReport, Shared, is_local};
use crate::error::{Error, Result};
use crate::exchange::AppendedFile;
use crate::hosts::Node;
use crate::launch::{AgentCommand, job_of};
use crate::spool::{Spool, spools};
use crate::wire::Message;

/// Beginning of the line by which an agent says that it samples.
pub(crate) const READY_LINE: &str = "floodmark agent ready: ";
/// Time between two signs of life of the recorder.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Time between two checks whether agents are ready or have ended.
const POLL: Duration = Duration::from_millis(50);
/// Lines of launchers that are kept for a report.
const KEPT_LINES: usize = 20;

/// Agents that only write spools.
pub(super) struct Spooling {
    shared: Arc<Shared>,
    launchers: Vec<Unwatched>,
    orders: PathBuf,
    /// The file of orders, which a thread writes to as well.
    file: Arc<Mutex<AppendedFile>>,
    ends: Arc<AtomicBool>,
    ready: BTreeSet<String>,
    began: Instant,
    ready_after: Duration,
    /// What launchers and agents said last.
    words: Vec<String>,
}

impl Spooling {
    /// Starts the agents and waits until all are ready, or the time is over.
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self> {
        let directory = PathBuf::from(&shared.props.spool);
        fs::create_dir_all(&directory).map_err(Error::io(format!("creating {}", directory.display())))?;
        let orders = directory.join(format!("{}.orders", shared.hello.job));
        let failed = |act: &str| Error::io(format!("{act} {}", orders.display()));
        let mut file = AppendedFile::open(&orders).map_err(failed("creating"))?;
        Message::Hello(Box::new(shared.hello.clone())).write(&mut file).map_err(failed("writing"))?;
        let (file, ends) = (Arc::new(Mutex::new(file)), Arc::new(AtomicBool::new(false)));
        let beat = {
            let (file, ends) = (Arc::clone(&file), Arc::clone(&ends));
            move || beat(&file, &ends)
        };
        let spawn = |name: &str| thread::Builder::new().name(name.into());
        spawn("floodmark-beat").spawn(beat).map_err(Error::io("starting a thread"))?;
        let (output, input) = std::io::pipe().map_err(Error::io("making a pipe"))?;
        let mut launchers = Vec::new();
        for argv in commands(&shared, &orders)? {
            let copy = || input.try_clone().map_err(Error::io("copying a descriptor"));
            let mut command = Command::new(&argv[0]);
            command.args(&argv[1..]).stdin(Stdio::null()).stdout(copy()?).stderr(copy()?).process_group(0);
            launchers
                .push(spawn_unwatched(&mut command).map_err(Error::io(format!("starting {}", argv[0])))?);
        }
        drop(input);
        let (sender, lines) = channel();
        spawn("floodmark-ready")
            .spawn(move || read_lines(output, &sender))
            .map_err(Error::io("starting a thread"))?;
        let mut spooling = Self {
            shared,
            launchers,
            orders,
            file,
            ends,
            ready: BTreeSet::new(),
            began: Instant::now(),
            ready_after: Duration::ZERO,
            words: Vec::new(),
        };
        spooling.wait_until_ready(&lines);
        Ok(spooling)
    }

    fn wait_until_ready(&mut self, lines: &Receiver<String>) {
        let deadline = Instant::now() + self.shared.props.start_patience;
        let nodes = self.shared.props.nodes.nodes.clone();
        loop {
            let have_ended = self.launchers.iter_mut().all(|launcher| launcher.try_wait().is_some());
            while let Ok(line) = lines.recv_timeout(POLL) {
                match line.strip_prefix(READY_LINE) {
                    Some(node) => drop(self.ready.insert(short(node).to_owned())),
                    None => self.words.push(line),
                }
                self.words.drain(..self.words.len().saturating_sub(KEPT_LINES));
            }
            if !self.shared.launcher.has_stdio() {
                let is_ready = |node: &&Node| self.spool(node).is_some_and(|spool| spool.is_ready());
                let ready: Vec<&Node> = nodes.iter().filter(is_ready).collect();
                self.ready.extend(ready.iter().map(|node| short(&node.name).to_owned()));
            }
            let missing: Vec<&Node> = nodes.iter().filter(|node| !self.is_ready(node)).collect();
            self.ready_after = self.began.elapsed();
            if missing.is_empty() {
                return;
            }
            if have_ended || Instant::now() > deadline {
                let reason = self.reason();
                for node in missing {
                    let (node, reason) = (node.name.clone(), reason.clone());
                    (self.shared.props.on_event)(&NodeEvent::Failed { node, reason, remedy: None });
                }
                return;
            }
        }
    }

    fn reason(&self) -> String {
        let last = self.words.iter().rev().take(2).rev().map(String::as_str).collect::<Vec<_>>().join("; ");
        if last.is_empty() { "its agent was not ready in time".to_owned() } else { last }
    }

    fn is_ready(&self, node: &Node) -> bool {
        self.ready.contains(short(&node.name))
    }

    /// Returns how many nodes are ready.
    pub(super) fn ready(&self) -> usize {
        self.shared.props.nodes.nodes.iter().filter(|node| self.is_ready(node)).count()
    }

    /// The spool of a node, whose agent may call it by its short name.
    fn spool(&self, node: &Node) -> Option<Spool> {
        let base = spools(&self.shared.props.spool);
        let job = &self.shared.hello.job;
        let named = [node.name.as_str(), short(&node.name)].map(|name| Spool::named(&base, job, name));
        named.into_iter().find(|spool| spool.directory().is_dir())
    }

    /// Asks the agents to end, waits for them, and says what became of each node.
    pub(super) fn stop(mut self) -> Vec<NodeReport> {
        self.ends.store(true, Ordering::Release);
        let stopped = Message::Stop.write(&mut *self.file.lock().unwrap_or_else(PoisonError::into_inner));
        // Agents of many nodes look for orders less often.
        let pace = crate::exchange::pace(self.shared.hello.hosts.len());
        let deadline = Instant::now() + self.shared.props.stop_patience + 2 * pace;
        let mut have_ended = false;
        while stopped.is_ok() && !have_ended && Instant::now() < deadline {
            have_ended = self.launchers.iter_mut().all(|launcher| launcher.try_wait().is_some());
            thread::sleep(Duration::from_millis(5));
        }
        if have_ended {
            let _ = fs::remove_file(&self.orders);
        }
        let nodes = self.shared.props.nodes.nodes.clone();
        nodes.iter().map(|node| self.report(node)).collect()
    }

    fn report(&self, node: &Node) -> NodeReport {
        let spool = self.spool(node);
        let end = match &spool {
            _ if !self.is_ready(node) => NodeEnd::Failed { reason: self.reason() },
            Some(spool) if spool.is_complete() => NodeEnd::Spooled,
            _ => NodeEnd::Lost { reason: "its agent did not complete its spool in time".to_owned() },
        };
        NodeReport {
            ready_after: self.is_ready(node).then_some(self.ready_after),
            spool: spool.map(|spool| spool.directory().display().to_string()),
            end,
            ..NodeReport::failed(&node.name, "")
        }
    }
}

/// Name of a host without its domain; addresses stay as they are.
fn short(name: &str) -> &str {
    let name = name.trim();
    if name.parse::<std::net::IpAddr>().is_ok() { name } else { name.split('.').next().unwrap_or(name) }
}

/// Returns the command lines that start the agents of all nodes.
fn commands(shared: &Shared, orders: &std::path::Path) -> Result<Vec<Vec<String>>> {
    let command = AgentCommand {
        program: &shared.program,
        job: job_of(&shared.props.nodes),
        attaches: shared.attaches,
        exchange: None,
        orders: Some(orders),
    };
    let nodes = &shared.props.nodes.nodes;
    if let Some(argv) = command.all(shared.launcher, nodes.len()) {
        return Ok(vec![argv]);
    }
    let own = std::env::current_exe().map_err(Error::io("finding this program"))?.display().to_string();
    let of_node = |node: &Node| {
        if is_local(&node.name) {
            AgentCommand { program: &own, ..command.clone() }.local(node)
        } else {
            command.argv(shared.launcher, node)
        }
    };
    Ok(nodes.iter().map(of_node).collect())
}

fn read_lines(input: impl Read, lines: &Sender<String>) {
    let mut input = BufReader::new(input);
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(4096).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let line: String = String::from_utf8_lossy(&line).chars().filter(|c| !c.is_control()).collect();
        // Launchers are read to their end, so that none of them waits.
        if !line.is_empty() {
            let _ = lines.send(line);
        }
    }
}

/// Shows agents that the recorder lives, until it ends.
fn beat(file: &Mutex<AppendedFile>, ends: &AtomicBool) {
    let (mut number, mut last) = (0, Instant::now());
    while !ends.load(Ordering::Acquire) {
        thread::sleep(POLL);
        if last.elapsed() >= HEARTBEAT {
            (number, last) = (number + 1, Instant::now());
            // A full disk may have room at the next time.
            let _ = Message::Ping { number }.write(&mut *file.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
