//! What recording a job on several nodes costs: one agent on its node, and the recorder with many agents.
//!
//! The agent is a real one, with processes whose memory differs at every sweep; that it does is read back from the spool. The
//! many agents are simulated: each sends the spool of a real agent again, at the pace at which it was sampled, under a name
//! of its own. They speak to the recorder over pipes as ssh would; a script called `ssh` starts them. The recorder has one
//! core, and they have the others.
#![expect(unsafe_code, reason = "maps and unmaps memory, which a heap would keep")]

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use floodmark_cluster::spool::Spool;
use floodmark_cluster::wire::{Message, MessageReader, Welcome};
use floodmark_store::{ReceivedTail, TailItem, TailSource as _};
use floodmark_tail::clock::Anchor;
use floodmark_tail::record::Control;
use floodmark_tail::stream::{self, StreamItem};

use crate::measure::{Samples, thread_cpu_ns};

/// Pages that a process takes at every sweep: so few that its values change and nothing else does, and so many that a change
/// counts as one, which has its high-water mark read too.
const FEW_PAGES: usize = 1;
const MANY_PAGES: usize = 17;
/// Time between two sweeps.
const SWEEP: Duration = Duration::from_millis(10);

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Props {
    /// The `floodmark` to measure
    #[arg(long, default_value = "target/release/floodmark")]
    floodmark: PathBuf,
    /// Processes on the node of the one agent
    #[arg(long, default_value_t = 64)]
    processes: usize,
    /// Simulated agents
    #[arg(long, default_value_t = 64)]
    agents: usize,
    /// Processes of each simulated agent
    #[arg(long, default_value_t = 16)]
    agent_processes: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Be a simulated agent that sends this spool
    #[arg(long, hide = true, requires = "name")]
    simulate: Option<PathBuf>,
    /// Name of the simulated agent's node
    #[arg(long, hide = true)]
    name: Option<String>,
    /// Be a process that takes so many pages every 8 ms, until it is killed
    #[arg(long, hide = true)]
    load: Option<usize>,
}

/// Runs everything and prints a table.
pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    if let Some(pages) = props.load {
        load(pages * 4096);
    }
    if let (Some(frames), Some(name)) = (&props.simulate, &props.name) {
        return simulate(frames, name);
    }
    let folder = fs::canonicalize(folder)?.join("cluster");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let floodmark = fs::canonicalize(&props.floodmark)
        .with_context(|| format!("{}: build it first", props.floodmark.display()))?;
    let bench = Bench { floodmark, folder, time: Duration::from_secs(props.seconds) };
    println!("{:<52} {:>20} {:>22} {:>20}", "", "% of a core", "kB/s", "values/s each");
    for pages in [0, FEW_PAGES, MANY_PAGES] {
        let (mut costs, mut peers) = (Costs::default(), Costs::default());
        for _ in 0..repeat {
            costs.push(&bench.agent(props.processes, pages)?);
            peers.push(&bench.peer(props.processes, pages)?);
        }
        let load = format!("{} processes, +{} KiB a sweep", props.processes, 4 * pages);
        costs.print(&format!("agent, {load}"), 2);
        peers.print(&format!("their statm alone, {load}"), 2);
    }
    let sampled = bench.agent(props.agent_processes, MANY_PAGES)?;
    let frames = bench.folder.join("frames");
    let mut costs = Costs::default();
    for _ in 0..repeat {
        costs.push(&bench.recorder(props.agents, &frames)?);
    }
    costs.print(&format!("recorder, {} agents, 100 Hz x {}", props.agents, props.agent_processes), 1);
    println!(
        "The simulated agents sample {:.0} kB/s together: what is less than that was held back.",
        props.agents as f64 * sampled.bytes_per_second / 1e3
    );
    Ok(())
}

/// Costs of repeated measurements.
#[derive(Default)]
struct Costs {
    core_percent: Samples,
    kilobytes: Samples,
    values: Samples,
}

impl Costs {
    fn push(&mut self, cost: &NodeCost) {
        self.core_percent.push(cost.core_percent);
        if cost.bytes_per_second > 0.0 {
            self.kilobytes.push(cost.bytes_per_second / 1e3);
        }
        cost.values_per_second.iter().for_each(|rate| self.values.push(*rate));
    }

    fn print(&self, name: &str, digits: usize) {
        let text = |samples: &Samples, digits| {
            if samples.median().is_nan() { "-".to_owned() } else { samples.text(digits) }
        };
        let percent = self.core_percent.text(digits);
        let (kilobytes, values) = (text(&self.kilobytes, 1), text(&self.values, 0));
        println!("{name:<52} {percent:>20} {kilobytes:>22} {values:>20}");
    }
}

/// What something cost.
struct NodeCost {
    core_percent: f64,
    bytes_per_second: f64,
    /// Values of resident memory that were recorded of each process, a second.
    values_per_second: Vec<f64>,
}

struct Bench {
    floodmark: PathBuf,
    folder: PathBuf,
    time: Duration,
}

/// Kills processes at the end, whatever happens before.
struct Killed(Vec<Child>);

impl Drop for Killed {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Bench {
    /// Starts a recorder, behind a program that runs it, if one is given.
    fn start(&self, hosts: &str, path: &str, runner: &[&str]) -> Result<Killed> {
        static TRACES: AtomicU32 = AtomicU32::new(0);
        let _ = fs::remove_dir_all(self.folder.join("spool"));
        let _ = fs::remove_file(self.folder.join("job"));
        let script = "echo $$ > command; echo $FLOODMARK_JOB > job.tmp; mv job.tmp job; exec sleep 600";
        // A name of its own: a killed recorder leaves the command running, and with it a process that passes on its output.
        let trace = format!("run-{}.flood", TRACES.fetch_add(1, Ordering::Relaxed));
        let mut command = match runner {
            [] => Command::new(&self.floodmark),
            [program, words @ ..] => {
                let mut command = Command::new(program);
                command.args(words).arg(&self.floodmark);
                command
            }
        };
        command.args(["run", "-o", &trace, "--interval", "10ms", "--hosts", hosts, "--", "sh", "-c", script]);
        command.current_dir(&self.folder).env("FLOODMARK_SPOOL", self.folder.join("spool")).env("PATH", path);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.folder.join("words"))?);
        let child = Killed(vec![command.spawn()?]);
        let deadline = Instant::now() + Duration::from_mins(1);
        while !self.folder.join("job").exists() {
            ensure!(
                Instant::now() < deadline,
                "the command did not start: see {}",
                self.folder.join("words").display()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(child)
    }

    /// Ends the command, which goes on without its recorder.
    fn end_command(&self) -> Result<()> {
        let pid = fs::read_to_string(self.folder.join("command"))?;
        Command::new("kill").arg(pid.trim()).status()?;
        Ok(())
    }

    /// Measures an agent with processes of its own, and keeps its spool as `frames`.
    fn agent(&self, processes: usize, pages: usize) -> Result<NodeCost> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
        let mut recorder = self.start(&host, &std::env::var("PATH")?, &[])?;
        let job = fs::read_to_string(self.folder.join("job"))?;
        let members = members(job.trim(), processes, pages)?;
        std::thread::sleep(Duration::from_secs(1));
        let agent = child_named(recorder.0[0].id(), "agent --stdio")?;
        let spool = Spool::at(&first(&first(&self.folder.join("spool"))?)?);
        let (cpu, bytes, began) = (cpu_seconds(agent)?, spool.length(), Instant::now());
        std::thread::sleep(self.time);
        let elapsed = began.elapsed().as_secs_f64();
        let (cpu, bytes) = (cpu_seconds(agent)? - cpu, spool.length() - bytes);
        drop(members);
        // A killed recorder leaves the spool, which the agent completes when it is asked to end.
        recorder.0[0].kill()?;
        self.end_command()?;
        Command::new("kill").arg(agent.to_string()).status()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while Path::new(&format!("/proc/{agent}")).exists() {
            ensure!(Instant::now() < deadline, "the agent does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
        let files: Vec<Vec<u8>> =
            spool.frames().iter().map(|(_, path)| fs::read(path)).collect::<io::Result<_>>()?;
        fs::write(self.folder.join("frames"), files.concat())?;
        let values_per_second = self.values_per_second(spool.directory())?;
        ensure!(values_per_second.len() >= processes, "{} processes are recorded", values_per_second.len());
        Ok(NodeCost {
            core_percent: 100.0 * cpu / elapsed,
            bytes_per_second: bytes as f64 / elapsed,
            values_per_second,
        })
    }

    /// Measures a loop that reads `statm` of such processes from open files at 100 Hz, and nothing else: what no sampler can
    /// go below that reads it.
    fn peer(&self, processes: usize, pages: usize) -> Result<NodeCost> {
        let members = members("none", processes, pages)?;
        std::thread::sleep(Duration::from_secs(1));
        let open = |child: &Child| fs::File::open(format!("/proc/{}/statm", child.id()));
        let files: Vec<fs::File> = members.0.iter().map(open).collect::<io::Result<_>>()?;
        let mut buffer = [0; 128];
        let (before_ns, began) = (thread_cpu_ns(), Instant::now());
        let mut deadline = began;
        while began.elapsed() < self.time {
            for file in &files {
                ensure!(file.read_at(&mut buffer, 0)? > 0, "a process has ended");
            }
            deadline += SWEEP;
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        let core_percent = 100.0 * (thread_cpu_ns() - before_ns) as f64 / 1e9 / began.elapsed().as_secs_f64();
        Ok(NodeCost { core_percent, bytes_per_second: 0.0, values_per_second: Vec::new() })
    }

    /// Values of resident memory in a spool, a second, of each process that was there for most of the time.
    fn values_per_second(&self, spool: &Path) -> Result<Vec<f64>> {
        let trace = self.folder.join("check.flood");
        let _ = fs::remove_dir_all(&trace);
        let ran = Command::new(&self.floodmark).args(["collect", "-o"]).arg(&trace).arg(spool).output()?;
        ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let read = Command::new(&self.floodmark).arg("read").arg(&trace).arg("--csv").output()?;
        let mut times: HashMap<String, Vec<i64>> = HashMap::new();
        for line in String::from_utf8_lossy(&read.stdout).lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [time_ns, _, "process", pid, _, "rss", _] = fields[..] else { continue };
            times.entry(pid.to_owned()).or_default().push(time_ns.parse()?);
        }
        let long = times.values().filter_map(|times| {
            let seconds = (times.last()? - times.first()?) as f64 / 1e9;
            (seconds > self.time.as_secs_f64() / 2.0).then(|| (times.len() - 1) as f64 / seconds)
        });
        Ok(long.collect())
    }

    /// Measures the recorder with simulated agents.
    fn recorder(&self, agents: usize, frames: &Path) -> Result<NodeCost> {
        let bin = self.folder.join("bin");
        fs::create_dir_all(&bin)?;
        let (own, frames) = (std::env::current_exe()?, frames.display());
        let cores = std::thread::available_parallelism()?.get();
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nexec {}'{}' cluster --simulate '{frames}' --name \"$2\"\n",
            if cores > 1 { format!("taskset -c 1-{} ", cores - 1) } else { String::new() },
            own.display()
        );
        fs::write(bin.join("ssh"), script)?;
        fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755))?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
        let recorder = self.start(&format!("simulated[1-{agents}]"), &path, &["taskset", "-c", "0"])?;
        let pid = recorder.0[0].id();
        std::thread::sleep(Duration::from_secs(1));
        let sent = || (1..=agents).map(|node| sent_bytes(&self.folder, node)).sum::<u64>();
        let (cpu, bytes, began) = (cpu_seconds(pid)?, sent(), Instant::now());
        std::thread::sleep(self.time);
        let elapsed = began.elapsed().as_secs_f64();
        let (cpu, bytes) = (cpu_seconds(pid)? - cpu, sent() - bytes);
        drop(recorder);
        self.end_command()?;
        let core_percent = 100.0 * cpu / elapsed;
        Ok(NodeCost { core_percent, bytes_per_second: bytes as f64 / elapsed, values_per_second: Vec::new() })
    }
}

/// Starts the processes of a node: they belong to `job`, and each takes so many pages every 8 ms, or sleeps.
fn members(job: &str, processes: usize, pages: usize) -> Result<Killed> {
    let mut members = Killed(Vec::new());
    for _ in 0..processes {
        let mut command = if pages > 0 {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["cluster", "--load", &pages.to_string()]);
            command
        } else {
            let mut command = Command::new("sleep");
            command.arg("600");
            command
        };
        command.env("FLOODMARK_JOB", job).stdin(Stdio::null());
        members.0.push(command.spawn()?);
    }
    Ok(members)
}

fn first(folder: &Path) -> Result<PathBuf> {
    let entry = fs::read_dir(folder)?.next().with_context(|| format!("{} is empty", folder.display()))?;
    Ok(entry?.path())
}

/// CPU time of the threads of a process, without its children.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let mut total_ns = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        total_ns += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    ensure!(total_ns > 0, "/proc/{pid}/task/*/schedstat says nothing");
    Ok(total_ns as f64 / 1e9)
}

/// Finds a child whose command line has `words`.
fn child_named(parent: u32, words: &str) -> Result<u32> {
    for task in fs::read_dir(format!("/proc/{parent}/task"))?.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).replace('\0', " ").contains(words) {
                return Ok(child.parse()?);
            }
        }
    }
    bail!("the recorder has no agent")
}

/// Where a simulated agent counts what it sends.
fn count_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sent"))
}

fn sent_bytes(folder: &Path, node: usize) -> u64 {
    let text = fs::read_to_string(count_file(folder, &format!("simulated{node}"))).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Takes some bytes every 8 ms and gives all of them back after 16 times, so that its memory is never the same in two sweeps
/// that are 10 ms apart, and works a little.
fn load(bytes: usize) -> ! {
    let mut held = Vec::new();
    let mut sum = 0u64;
    loop {
        if held.len() == 16 {
            for block in held.drain(..) {
                // SAFETY: the mapping is ours, has this size and is not used any more.
                unsafe { libc::munmap(block, bytes) };
            }
        }
        let (how, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping anywhere; the result is checked before it is used.
        let block = unsafe { libc::mmap(std::ptr::null_mut(), bytes, how, kind, -1, 0) };
        if block != libc::MAP_FAILED {
            // SAFETY: the mapping has this size, and may be written.
            unsafe { std::ptr::write_bytes(block.cast::<u8>(), 1, bytes) };
            held.push(block);
        }
        sum = (0..5000).fold(sum, |sum, number| std::hint::black_box(sum.wrapping_mul(31) ^ number));
        std::thread::sleep(Duration::from_millis(8));
    }
}

/// Sends a spool again and again, at the pace at which it was sampled.
fn simulate(frames: &Path, name: &str) -> Result<()> {
    let (sender, messages) = channel();
    let read = move || {
        let mut reader = MessageReader::new(io::stdin());
        while let Ok(Some(message)) = reader.next_message() {
            if sender.send(message).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("orders".into()).spawn(read)?;
    let mut out = io::stdout();
    let welcome =
        Welcome { version: env!("CARGO_PKG_VERSION").into(), host: name.into(), ..Welcome::default() };
    Message::Welcome(Box::new(welcome)).write(&mut out)?;
    Message::Ready.write(&mut out)?;
    let bytes = fs::read(frames)?;
    let counts = count_file(frames.parent().unwrap_or(Path::new(".")), name);
    let (mut position, mut pass) = (0u64, 0);
    loop {
        let mut source = ReceivedTail::new(&bytes[..]);
        let (began, mut first_ns) = (Instant::now(), None);
        while let Some(TailItem { mut item, .. }) = source.next()? {
            match &mut item {
                StreamItem::Control(Control::Process(header)) => {
                    header.stem = format!("{name}-{pass}");
                    name.clone_into(&mut header.host);
                }
                StreamItem::Chunk(chunk) => {
                    let due_ns =
                        chunk.base_time_ns.saturating_sub(*first_ns.get_or_insert(chunk.base_time_ns));
                    let due = began + Duration::from_nanos(due_ns);
                    loop {
                        match messages.recv_timeout(due.saturating_duration_since(Instant::now())) {
                            Ok(Message::Ping { number }) => {
                                Message::Pong { number, utc_ns: Anchor::now().utc_ns }.write(&mut out)?;
                            }
                            Ok(Message::Stop) => return Ok(Message::Ended { position }.write(&mut out)?),
                            Ok(_) => {}
                            Err(RecvTimeoutError::Timeout) => break,
                            Err(RecvTimeoutError::Disconnected) => return Ok(()),
                        }
                    }
                }
                StreamItem::Control(_) => {}
            }
            let mut encoded = Vec::new();
            stream::write(&mut encoded, &item)?;
            let sent = encoded.len() as u64;
            Message::Data { position, bytes: encoded }.write(&mut out)?;
            position += sent;
            fs::File::create(&counts)?.write_all(position.to_string().as_bytes())?;
        }
        pass += 1;
    }
}
