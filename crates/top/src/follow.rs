//! Reads a trace or a log in a thread of its own and hands out pictures of it.
//!
//! A picture is made at most ten times a second, and less often where it takes long to make, so that
//! looking costs little however much is recorded.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use floodmark_event::Row;
use floodmark_event::{EventBatch, Tables};
use floodmark_inspect::{Input, OpenProps};
use floodmark_sampler::Exit;
use floodmark_store::{Losses, ScanProps, Step, Trace, TraceFollower, is_trace};

use super::picture::{Gather, Origin, Picture, Progress};
#[cfg(debug_assertions)]
use crate::env::{TOP_PANIC, value};
use crate::error::{Error, Result};

/// Shortest time between two pictures.
const PICTURE_PAUSE: Duration = Duration::from_millis(100);
/// Pictures take at most this part of the time.
const PICTURE_PART: u32 = 5;
/// How often a trace is looked at that is not there yet.
const BEGIN_PAUSE: Duration = Duration::from_millis(20);

/// Longest pause between two looks. One that took long is followed by a pause as long, up to this: each goes
/// through all of the live tail, however little of it is new.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// How long one is waited for that has begun and has nothing.
const BEGIN_PATIENCE: Duration = Duration::from_secs(3);

/// What the thread has to tell.
pub(crate) enum Update {
    Picture(Box<Picture>),
    Failed(Error),
}

/// The trace or log that is shown.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Its path.
    pub path: PathBuf,
    /// How to read a foreign file.
    pub props: OpenProps,
    /// Command that is recorded into it.
    pub command: Option<String>,
}

/// How the view and the reading thread agree on the end.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// The view has ended.
    pub(crate) has_left: AtomicBool,
    /// No recording will begin any more.
    pub(crate) has_recorded: AtomicBool,
}

impl Ends {
    fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }
}

/// Reads the trace at a path that is about to be recorded, or anything that is there.
pub(crate) fn read(input: &Followed, begins: Begins, ends: &Ends, sender: &SyncSender<Update>) {
    #[cfg(debug_assertions)]
    assert_ne!(value(TOP_PANIC).as_deref(), Some("begin"), "a panic was asked for");
    let read = match begins {
        Begins::Soon if !wait_for(&input.path, ends) => Ok(()),
        Begins::Before if !is_trace(&input.path) => still(input, ends, sender),
        Begins::Soon | Begins::Before => follow(input, ends, sender),
    };
    #[cfg(debug_assertions)]
    assert_ne!(value(TOP_PANIC).as_deref(), Some("reader"), "a panic was asked for");
    // A recording that failed takes its trace along, and says itself why.
    let is_gone = begins == Begins::Soon && !is_trace(&input.path);
    if let Some(error) = read.err().filter(|_| !is_gone) {
        // The view has ended if this fails.
        let _ = sender.send(Update::Failed(error));
    }
}

/// When recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// It is there.
    Before,
    /// A process of ours is about to begin.
    Soon,
}

/// Waits for a trace that grows, or for the end of who was to record it; says whether there is one. A trace
/// that is about to be replaced does not grow.
fn wait_for(path: &Path, ends: &Ends) -> bool {
    loop {
        let is_over = ends.has_recorded.load(Ordering::Acquire);
        if is_trace(path) && (is_over || Trace::open(path).is_ok_and(|trace| trace.is_live())) {
            return true;
        }
        if is_over || ends.has_left() {
            return false;
        }
        std::thread::sleep(BEGIN_PAUSE);
    }
}

/// When to make the next picture.
struct Pace {
    next: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { next: Instant::now() }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    fn picture(&mut self, gather: &mut Gather, tables: &Tables) -> Picture {
        let began = Instant::now();
        let picture = gather.picture(tables);
        let took = began.elapsed();
        self.next = Instant::now() + PICTURE_PAUSE.max(took * PICTURE_PART);
        picture
    }
}

/// Waits a moment for a trace whose recording is just about to begin: it is empty and not complete.
fn wait_for_begin(path: &Path, ends: &Ends) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < BEGIN_PATIENCE && !ends.has_left() {
        let trace = Trace::open(path)?;
        let manifest = trace.manifest();
        if trace.is_live() || !manifest.parts.is_empty() || manifest.run.end_ns.is_some() {
            break;
        }
        std::thread::sleep(BEGIN_PAUSE);
    }
    Ok(())
}

fn follow(input: &Followed, ends: &Ends, sender: &SyncSender<Update>) -> Result<()> {
    wait_for_begin(&input.path, ends)?;
    let mut following = TraceFollower::open(&input.path, &ScanProps::default())?;
    let (mut gather, mut pace) = (Gather::new(), Pace::new());
    let (mut events, mut rows) = (EventBatch::new(), Vec::new());
    let (mut is_new, mut command) = (true, input.command.clone());
    let mut origin_ns = Trace::open(&input.path)?.manifest().run.start_ns;
    let mut looked = Instant::now();
    while !ends.has_left() {
        let step = following.next(&mut events, &mut rows)?;
        if step == Step::Events {
            gather.events(&events);
            gather.rows(&rows, following.tables());
            is_new = true;
        }
        let is_over = step == Step::Ended;
        if is_over {
            gather.learn(following.tables());
        }
        if command.is_none() {
            command.clone_from(&Trace::open(&input.path)?.manifest().run.command);
        }
        if is_over || (is_new && pace.is_due()) {
            let picture = pace.picture(&mut gather, following.tables());
            let progress = match (is_over, picture.span) {
                (true, _) => Progress::Ended,
                (false, None) => Progress::Beginning,
                (false, Some(_)) => Progress::Recording,
            };
            let mut picture = complete(picture, input, command.clone(), progress, &following.losses());
            if is_over {
                let run = Trace::open(&input.path)?.manifest().run.clone();
                origin_ns = run.start_ns;
                let status = run.exit_status.and_then(|status| u8::try_from(status).ok());
                picture.ending = status.map(|status| super::ending(Exit::Code(status)));
            }
            picture.origin_ns = origin_ns;
            match show(picture, sender) {
                Sent::ReceiverGone => return Ok(()),
                _ if is_over => return Ok(()),
                Sent::Later => {}
                Sent::Now => is_new = false,
            }
        }
        if step == Step::Waiting {
            std::thread::sleep(looked.elapsed().clamp(TraceFollower::PAUSE, LOOK_PAUSE));
            looked = Instant::now();
        }
    }
    Ok(())
}

/// Reads a log, which does not grow.
fn still(input: &Followed, ends: &Ends, sender: &SyncSender<Update>) -> Result<()> {
    let (mut gather, mut pace) = (Gather::new(), Pace::new());
    let (mut tables, mut lost) = (Tables::default(), Losses::default());
    let opened = Input::open(&input.path, &input.props)?;
    let contents = opened.contents();
    let scan = ScanProps::default();
    let samples = contents.has_rows.then(|| opened.rows(&scan)).transpose()?;
    let events = contents.has_events.then(|| opened.events(&scan)).transpose()?;
    let mut show = |gather: &mut Gather, tables: &Tables, lost: &Losses, progress| {
        let picture = complete(pace.picture(gather, tables), input, None, progress, lost);
        show(Picture { origin_ns: opened.origin_ns(), ..picture }, sender)
    };
    if let Some(mut samples) = samples {
        // Marks and ends have to be known at their time; a log may tell them last.
        let mut rows: Vec<Row> = Vec::new();
        while !ends.has_left() && samples.next(&mut rows)? {
            gather.rows(&rows, samples.tables());
        }
        gather.learn(samples.tables());
        tables = samples.tables().clone();
        lost.extend(&samples.losses());
    }
    if let Some(mut events) = events {
        let mut batch = EventBatch::new();
        let mut last = Instant::now();
        while !ends.has_left() && events.next(&mut batch)? {
            gather.events(&batch);
            // Of a long log there is something to see before its end.
            if last.elapsed() > PICTURE_PAUSE * 5 {
                show(&mut gather, events.tables(), &lost, Progress::Recording);
                last = Instant::now();
            }
        }
        tables = events.tables().clone();
        lost.extend(&events.losses());
    }
    show(&mut gather, &tables, &lost, Progress::Ended);
    Ok(())
}

/// What became of a picture that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Now,
    /// Another picture waits to be seen; this one was dropped.
    Later,
    /// The receiver has gone.
    ReceiverGone,
}

/// Hands out a picture if none waits to be seen; the last one in any case.
fn show(picture: Picture, sender: &SyncSender<Update>) -> Sent {
    let is_last = picture.progress == Progress::Ended;
    let news = Update::Picture(Box::new(picture));
    if is_last {
        return if sender.send(news).is_ok() { Sent::Now } else { Sent::ReceiverGone };
    }
    match sender.try_send(news) {
        Ok(()) => Sent::Now,
        Err(TrySendError::Full(_)) => Sent::Later,
        Err(TrySendError::Disconnected(_)) => Sent::ReceiverGone,
    }
}

fn complete(
    picture: Picture,
    input: &Followed,
    command: Option<String>,
    progress: Progress,
    lost: &Losses,
) -> Picture {
    let origin = Origin { source: input.path.display().to_string(), command };
    Picture { origin, progress, losses: lost.gaps.clone(), ..picture }
}

/// Whether a path can be shown at all; said before the terminal is taken over.
pub(crate) fn check(input: &Followed) -> Result<()> {
    if is_trace(&input.path) {
        Trace::open(&input.path)?;
        return Ok(());
    }
    // What can be read only once is for the reader.
    if std::fs::metadata(&input.path).is_ok_and(|file| !file.is_file() && !file.is_dir()) {
        return Ok(());
    }
    Input::open(&input.path, &input.props)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::{Picture, Progress, Sent, Update, show};

    #[test]
    fn one_picture_waits_to_be_seen_and_the_last_is_never_lost() {
        let (tell, hear) = sync_channel(1);
        let picture = |progress| Picture { progress, ..Picture::default() };
        assert_eq!(show(picture(Progress::Beginning), &tell), Sent::Now);
        assert_eq!(show(picture(Progress::Recording), &tell), Sent::Later);
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(show(picture(Progress::Ended), &tell), Sent::Now));
            [hear.recv().unwrap(), hear.recv().unwrap()]
        });
        let progress = seen.map(|news| match news {
            Update::Picture(picture) => picture.progress,
            Update::Failed(error) => panic!("{error}"),
        });
        assert_eq!(progress, [Progress::Beginning, Progress::Ended]);
        drop(hear);
        assert_eq!(show(picture(Progress::Recording), &tell), Sent::ReceiverGone);
        assert_eq!(show(picture(Progress::Ended), &tell), Sent::ReceiverGone);
    }
}
