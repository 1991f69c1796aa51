//! The sampling half of an agent: fills the spool until it is asked to stop, or has been without a recorder for too long.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use floodmark_sampler::{
    Observer, Pace, PeakMode, RecordedStacks, StackTaker, Sweep, TailSink, WatchProps, observe,
};
use floodmark_store::{LocalTail, TailSource as _};
use floodmark_tail::reader::boot_id;
use floodmark_tail::record::Control;
use floodmark_tail::stream::{self, StreamItem};
use floodmark_tail::{RecordProps, Recorder, end_chunk};

use super::{STEADY_POLL, TOUCH, own_host, skew_ns};
use crate::error::{Error, Result};
use crate::select::{Addresses, JobProcesses};
use crate::spool::{FILE_BYTES, RECORDERS_CLOCK, Spool, SpoolLock};
use crate::wire::Hello;

/// Time between two moves of samples into the spool. What is in the spool or on its way there survives the agent; of a node
/// that never comes back, so much is missing at most besides what was not sent. Each move looks at the files of all processes
/// that record on the node, which costs as much as some dozen samples.
const SPOOL_INTERVAL: Duration = Duration::from_millis(400);
/// Bytes after which the header of a process is repeated: frames behind damage are of use from the next one on.
const HEADER_BYTES: usize = 64 << 10;
/// Time after which a chunk that still grows is put into the spool although it will come again.
const CHUNK_PATIENCE: Duration = Duration::from_secs(1);
/// How long names of hosts may take to look up before the agent is ready without them.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(3);
/// Time without a recorder after which an agent ends, if the recorder does not say.
const USUAL_LINGER: Duration = Duration::from_secs(8);
/// The least such time: the sampling half learns only that often that a recorder is connected.
const LEAST_LINGER: Duration = TOUCH.saturating_add(STEADY_POLL).saturating_add(SPOOL_INTERVAL);

/// The sampling half of an agent, in threads of its own.
pub(super) struct Sampling {
    thread: JoinHandle<Result<()>>,
    flags: Arc<Flags>,
}

/// What the sampling half does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It makes its first sweep.
    Starts,
    /// It samples, or has ended as it should.
    Samples,
    /// It has failed: nothing more is sampled.
    Failed,
}

#[derive(Default)]
struct Flags {
    /// Whether a sweep was made.
    is_ready: AtomicBool,
    /// Whether sampling has failed.
    has_failed: AtomicBool,
    /// Whether the sampler is to stop.
    stop: AtomicBool,
    /// Whether the sampler has stopped and the rest is to be moved into the spool.
    finish: AtomicBool,
}

impl Sampling {
    /// Starts to fill a spool.
    pub(super) fn start(spool: Spool, lock: SpoolLock, hello: &Hello) -> Result<Self> {
        let flags = Arc::new(Flags::default());
        let of_thread = Arc::clone(&flags);
        let hello = hello.clone();
        let thread = thread::Builder::new()
            .name("floodmark-node".into())
            .spawn(move || {
                let failure = SetOnDrop(&of_thread.has_failed);
                let sampled = sample(&spool, &hello, &of_thread);
                if sampled.is_ok() {
                    std::mem::forget(failure);
                }
                drop(lock);
                sampled
            })
            .map_err(Error::io("starting a thread"))?;
        Ok(Self { thread, flags })
    }

    /// Returns what it does.
    pub(super) fn state(&self) -> State {
        if self.flags.has_failed.load(Ordering::Acquire) {
            State::Failed
        } else if self.flags.is_ready.load(Ordering::Acquire) {
            State::Samples
        } else {
            State::Starts
        }
    }

    /// Whether it has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end.
    pub(super) fn join(self) -> Result<()> {
        let panicked = || Error::refused("the agent's sampler failed", "please report this");
        self.thread.join().unwrap_or_else(|_| Err(panicked()))
    }
}

/// Notes a failure, even one by a panic, unless it is forgotten.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Marks the agent as ready after the first sweep, and ends chunks so that they can be shipped.
struct Shipper<'a> {
    flags: &'a Flags,
    ended: Instant,
    stacks: Option<StackTaker<RecordedStacks>>,
}

impl Observer for Shipper<'_> {
    fn swept(&mut self, sweep: &Sweep<'_>) {
        if let Some(stacks) = &mut self.stacks {
            stacks.swept(sweep);
        }
        self.flags.is_ready.store(true, Ordering::Release);
        if self.ended.elapsed() >= SPOOL_INTERVAL {
            self.ended = Instant::now();
            end_chunk();
        }
    }
}

fn sample(spool: &Spool, hello: &Hello, flags: &Arc<Flags>) -> Result<()> {
    spool.reopen();
    let name = node_name().map(|name| format!("name: {name}\n")).unwrap_or_default();
    let has_recorders_clock = boot_id() == hello.recorder_boot && skew_ns() == 0;
    let clock = if has_recorders_clock { format!("clock: {RECORDERS_CLOCK}\n") } else { String::new() };
    let about =
        format!("job: {}\nnode: {}\n{name}{clock}command: {}\n", hello.job, hello.node, hello.command);
    spool.describe(&about, &own_host());
    let trace = spool.trace();
    fs::create_dir_all(&trace).map_err(Error::io(format!("creating {}", trace.display())))?;
    let tail = LocalTail::open_exclusively(&trace)?;
    let mut writer = SpoolWriter::open(spool, tail)?;
    let recorder = Recorder::start_global(RecordProps::new(&trace))?;
    let addresses = addresses(hello);
    let (of_spooler, linger) = (Arc::clone(flags), linger(hello));
    let spooler = thread::Builder::new()
        .name("floodmark-spool".into())
        .spawn(move || writer.run(&of_spooler, linger))
        .map_err(Error::io("starting a thread"))?;
    let is_recorders_host = own_host() == hello.recorder_host && boot_id() == hello.recorder_boot;
    let recorder_pid = (is_recorders_host && hello.recorder_pid > 0).then_some(hello.recorder_pid as i32);
    let select = JobProcesses::new(&hello.job, hello.variables.clone(), addresses, recorder_pid);
    let props = WatchProps {
        pace: match hello.interval_ns {
            0 => Pace::default(),
            interval_ns => Pace::Fixed { interval_ns },
        },
        peaks: if hello.exact_peaks { PeakMode::Exact } else { PeakMode::Kept },
        // Half of what a recorder allows itself, for mappings too: a node's processors belong to the job.
        totals_share: WatchProps::default().totals_share / 2.0,
        // The recorder samples the devices and the cgroup of its own host.
        cgroup_root: is_recorders_host.then(|| "/dev/null".into()),
        gpu_library: WatchProps::default().gpu_library.filter(|_| !is_recorders_host),
        ..WatchProps::default()
    };
    let stacks = crate::stack_order::decode(&hello.stacks)
        .map(|props| StackTaker::open(props, RecordedStacks::default()))
        .transpose()?;
    let mut shipper = Shipper { flags, ended: Instant::now(), stacks };
    let label = (hello.node.as_str(), hello.command.as_str());
    let observed = observe(Box::new(select), label, &props, &flags.stop, &mut TailSink, &mut shipper);
    if let Some(stacks) = shipper.stacks {
        // Names of functions are found last.
        let _ = stacks.finish();
    }
    recorder.stop();
    flags.finish.store(true, Ordering::Release);
    spooler.thread().unpark();
    let spooled = spooler.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
    spooled.map_err(Error::io(format!("writing to {}", spool.directory().display())))?;
    observed?;
    Ok(())
}

fn linger(hello: &Hello) -> Duration {
    let asked = if hello.linger_ns == 0 { USUAL_LINGER } else { Duration::from_nanos(hello.linger_ns) };
    asked.max(LEAST_LINGER)
}

/// Looks up from where processes of the job may be started.
fn addresses(hello: &Hello) -> Addresses {
    let addresses = Addresses::default();
    addresses.add_own_client();
    let (of_thread, hosts) = (addresses.clone(), hello.hosts.clone());
    let look_up = move || of_thread.look_up(&hosts);
    // Without the thread, processes are known by their variables alone.
    let Ok(looking) = thread::Builder::new().name("floodmark-names".into()).spawn(look_up) else {
        return addresses;
    };
    let deadline = Instant::now() + LOOK_UP_PATIENCE;
    // A name server that does not answer must not keep the command from starting.
    while !looking.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
    addresses
}

/// Moves the tail of the node's processes into the spool.
struct SpoolWriter {
    spool: Spool,
    tail: LocalTail,
    file: File,
    /// Where the file begins.
    start: u64,
    /// Bytes since a header was repeated.
    since_header: usize,
    /// Encoded items that could not be written yet.
    pending: Vec<u8>,
    /// Name of the node for traces, where that is not the host's.
    node_name: Option<String>,
    skew_ns: i64,
}

impl SpoolWriter {
    fn open(spool: &Spool, tail: LocalTail) -> Result<Self> {
        let start = spool.frames().last().map_or(0, |(start, _)| *start);
        let path = spool.frames_at(start);
        let file = append_to(&path).map_err(Error::io(format!("creating {}", path.display())))?;
        let node_name = node_name();
        let mut writer = Self {
            spool: spool.clone(),
            tail,
            file,
            start,
            since_header: 0,
            pending: Vec::new(),
            node_name,
            skew_ns: skew_ns(),
        };
        // What an agent before this one had sampled and not moved.
        writer.move_items().map_err(Error::io(format!("writing {}", path.display())))?;
        writer.tail.set_patience(CHUNK_PATIENCE);
        Ok(writer)
    }

    fn run(&mut self, flags: &Flags, linger: Duration) -> io::Result<()> {
        let mut attached = (self.spool.attached(), Instant::now());
        let mut written = Ok(());
        while !flags.finish.load(Ordering::Acquire) {
            thread::park_timeout(SPOOL_INTERVAL);
            // A full disk may have room later; the tail holds what it can until then.
            written = self.move_items();
            let is_alone = is_alone(&mut attached, self.spool.attached(), linger);
            if is_alone || self.spool.is_stopping() {
                flags.stop.store(true, Ordering::Release);
            }
        }
        self.tail.set_patience(Duration::ZERO);
        written.and(self.move_items())?;
        self.file.sync_data()?;
        self.spool.set_complete()
    }

    /// Begins the next file, if the present one is long enough.
    fn turn_over(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length < FILE_BYTES {
            return Ok(());
        }
        self.file.sync_data()?;
        self.start += length;
        self.file = append_to(&self.spool.frames_at(self.start))?;
        self.tail.repeat_header();
        Ok(())
    }

    fn move_items(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            self.turn_over()?;
            if self.since_header > HEADER_BYTES {
                self.since_header = 0;
                self.tail.repeat_header();
            }
            self.tail.poll().map_err(io::Error::other)?;
            while let Some(mut item) = self.tail.next()? {
                self.adjust(&mut item.item);
                stream::write(&mut self.pending, &item.item)?;
            }
        }
        if !self.pending.is_empty() {
            let start = self.file.metadata()?.len();
            if let Err(error) = self.file.write_all(&self.pending) {
                let _ = self.file.set_len(start);
                return Err(error);
            }
            self.since_header += self.pending.len();
            self.pending.clear();
        }
        self.tail.release().map_err(io::Error::other)
    }

    /// Changes what names the host and its clock, where that is to be something else.
    fn adjust(&self, item: &mut StreamItem) {
        match item {
            StreamItem::Control(Control::Process(header)) => {
                if let Some(name) = &self.node_name {
                    header.host.clone_from(name);
                }
                if self.skew_ns != 0 {
                    header.anchor.utc_ns = header.anchor.utc_ns.wrapping_add(self.skew_ns);
                    // A clock of its own needs a boot of its own.
                    header.boot_id[0] ^=
                        header.host.bytes().fold(1, |sum: u8, byte| sum.wrapping_mul(31) ^ byte) | 1;
                }
            }
            StreamItem::Chunk(chunk) => {
                chunk.utc_offset_ns = chunk.utc_offset_ns.wrapping_add(self.skew_ns);
            }
            StreamItem::Control(_) => {}
        }
    }
}

/// Name of the node for traces, where that is not the host's: several nodes of Slurm can be one host.
fn node_name() -> Option<String> {
    std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty())
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// Whether no recorder was connected for `linger`; remembers when the time of the last connection changed, because the
/// wall clock may be set.
fn is_alone(known: &mut (Option<SystemTime>, Instant), now: Option<SystemTime>, linger: Duration) -> bool {
    if known.0 != now {
        *known = (now, Instant::now());
    }
    known.1.elapsed() > linger
}
