//! The thread that computes, one thing at a time: reads what is new, makes pages, looks closely.
//!
//! Pages and documents are made once for everybody who waits for them. Of close looks (ranges, instants)
//! the newest comes first, and one whose client is gone is given up.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use floodmark_analyze::Usage;
use floodmark_analyze::usage::index::UsageIndex;
use floodmark_event::{Filter, Kind};
use floodmark_inspect::checkpoints::Checkpoints;
use floodmark_inspect::page::{Growing, Page, ReadOutcome};
use floodmark_inspect::zoom::{self, RangeQuery, StillWanted, Zoom};
use floodmark_inspect::{Input, OpenProps, ProgressListener, Query};
use floodmark_store::{Error as StoreError, Identity, TraceFollower};
use floodmark_tail::clock::Anchor;
use floodmark_view::Hosting;
use floodmark_view::html::{self, Instants, Range};
use serde::Serialize;
use tokio::sync::{oneshot, watch};

use crate::error::{Error, Result};
use crate::kept::{KeepProps, KeptPage, Place};

/// Questions that wait; more are turned away.
const WAITING: usize = 32;
const REPLACED: &str = "the trace was replaced by another recording since 'floodmark serve' was started; \
                        start it again";
const CHANGED: &str = "the file has changed since 'floodmark serve' was started; start it again";

/// News come no more often than this.
const NEWS: Duration = Duration::from_secs(1);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// The page.
    Page,
    /// What it shows.
    Document,
    /// Lines between two instants.
    Range(RangeQuery),
    /// What was live at instants, in nanoseconds since the origin.
    Snapshots(Vec<i64>),
}

/// What comes back.
pub(super) type Answer = std::result::Result<Bytes, Unanswered>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Too many wait already.
    Busy,
    /// The worker has ended.
    Broken,
    /// The input is not what it was.
    Changed(&'static str),
    /// There are no events.
    NoEvents,
    /// It went wrong.
    Failed(String),
}

struct Question {
    ask: Ask,
    reply: oneshot::Sender<Answer>,
}

/// How far the input has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Counts how often there was more to show.
    version: u64,
    state: State,
    /// The instant that times in the page count from, once there is a page.
    origin_ns: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Live,
    Ended,
    /// It cannot be read on, and why.
    Failed(String),
}

impl Progress {
    /// Whether more may come.
    pub(super) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether nothing more will come, and not because the recording has ended.
    pub(super) fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// The same for the page.
    pub(super) fn json(&self) -> String {
        let (state, why) = match &self.state {
            State::Live => ("live", ""),
            State::Ended => ("ended", ""),
            State::Failed(why) => ("failed", why.as_str()),
        };
        let elapsed = self.origin_ns.map_or(0, |origin_ns| Anchor::now().utc_ns.saturating_sub(origin_ns));
        let why = floodmark_view::plain(why);
        let sent = SentProgress { version: self.version, state, elapsed, why: &why };
        serde_json::to_string(&sent).expect("keys are strings")
    }
}

/// Progress as the page receives it.
#[derive(Serialize)]
struct SentProgress<'a> {
    version: u64,
    state: &'a str,
    /// Nanoseconds since the first event.
    elapsed: i64,
    why: &'a str,
}

/// Takes questions to the thread that computes.
pub(super) struct Asks {
    questions: SyncSender<Question>,
    progress: Arc<watch::Sender<Progress>>,
    policy: String,
}

impl Asks {
    /// Asks; the answer goes to `reply`.
    pub(super) fn send(
        &self,
        ask: Ask,
        reply: oneshot::Sender<Answer>,
    ) -> std::result::Result<(), Unanswered> {
        self.questions.try_send(Question { ask, reply }).map_err(|error| match error {
            TrySendError::Full(_) => Unanswered::Busy,
            TrySendError::Disconnected(_) => Unanswered::Broken,
        })
    }

    /// Tells how far the input has come.
    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// What pages are allowed to do.
    pub(super) fn policy(&self) -> &str {
        &self.policy
    }

    /// Wakes all who wait for news, because there will be none.
    pub(super) fn close(&self) {
        self.progress.send_modify(|_| ());
    }
}

/// The thread that computes, and how to reach it.
pub(super) struct Started {
    pub(super) thread: std::thread::JoinHandle<()>,
    pub(super) asks: Asks,
    /// Tells that it has ended while it should not.
    pub(super) broken: oneshot::Receiver<()>,
}

/// Runs what computes. A bug in it must not leave a server behind that answers nothing.
fn guarded(progress: &watch::Sender<Progress>, tell_broken: oneshot::Sender<()>, run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        progress.send_modify(|progress| {
            progress.state = State::Failed(Error::Broken.to_string());
            progress.version += 1;
        });
        let _ = tell_broken.send(());
    }
}

/// What there is to show.
enum Content {
    /// All there will ever be.
    Complete(Box<Page>),
    /// The same, as an earlier server made it.
    Kept(Box<KeptPage>),
    Growing(Box<Growing>),
}

/// The thread's own state.
pub(super) struct Worker {
    path: PathBuf,
    input: Input,
    identity: Identity,
    filter: Filter,
    open: OpenProps,
    content: Content,
    checkpoints: Checkpoints,
    questions: Receiver<Question>,
    /// Close looks that wait, the newest last.
    looks: Vec<Question>,
    progress: Arc<watch::Sender<Progress>>,
    /// Whether there is more than was told, and when it was last told.
    has_news: bool,
    told: Instant,
    shown: Option<Shown>,
    /// Live bytes in fine intervals.
    index: Option<UsageIndex>,
    /// Where to keep the page, once it was handed out.
    place: Option<Place>,
}

/// A page as it was last made.
struct Shown {
    version: u64,
    /// The instant that times in it count from, if there is one.
    origin_ns: Option<i64>,
    /// The sum that live bytes are, if there are events.
    tally: Option<u8>,
    has_samples: bool,
    /// What it is made of; none if it was kept as it is.
    page: Option<Page>,
    html: Option<Bytes>,
    json: Option<Bytes>,
}

impl Shown {
    fn of(page: Page, version: u64, filter: &Filter) -> Self {
        Self {
            version,
            origin_ns: html::origin_ns(&page),
            tally: page.events.as_ref().map(|events| tally(filter, &events.usage)),
            has_samples: page.samples.is_some(),
            page: Some(page),
            html: None,
            json: None,
        }
    }

    /// A page that was kept; it is complete, so its version is the first one.
    fn kept(kept: &KeptPage, version: u64) -> Self {
        Self {
            version,
            origin_ns: kept.origin_ns,
            tally: kept.tally,
            has_samples: kept.has_samples,
            page: None,
            html: Some(kept.html.clone().into()),
            json: Some(kept.json.clone().into()),
        }
    }
}

impl Worker {
    /// Reads what there is, then goes on in a thread of its own until all senders of queries are gone.
    pub(super) fn start(
        path: PathBuf,
        filter: &Filter,
        open: OpenProps,
        keep: Option<&KeepProps>,
        progress: &dyn ProgressListener,
    ) -> Result<Started> {
        let identity = Identity::of(&path)?;
        let input = Input::open(&path, &open)?;
        let filter = input.anchored(filter)?;
        let is_live = input.contents().is_growing;
        let place = keep.filter(|_| !is_live).and_then(|keep| Place::of(keep, &path, &filter, &open));
        let kept = place.as_ref().and_then(Place::load);
        let content = if let Some(kept) = kept {
            Content::Kept(Box::new(kept))
        } else if is_live {
            let mut growing = Growing::open(&path, &filter)?;
            progress.started(input.name());
            while growing.read()? == ReadOutcome::MoreAvailable {}
            Content::Growing(Box::new(growing))
        } else {
            Content::Complete(Box::new(input.indexed_page(&Query::new(filter.clone(), progress))?))
        };
        let (index, place) = match &content {
            Content::Kept(kept) => (kept.index.clone(), None),
            Content::Complete(page) => {
                let events = page.events.as_ref();
                let read = events.map_or(0, |part| part.caveats.events_read);
                let place = place.filter(|place| read >= place.least_events);
                (events.and_then(|part| part.usage_index.clone()), place)
            }
            Content::Growing(_) => (None, None),
        };
        // It is that of all events.
        let is_whole = filter.selects_all() && filter.from_ns.is_none() && filter.to_ns.is_none();
        let index = index.filter(|_| is_whole);
        let state = if is_live { State::Live } else { State::Ended };
        let progress = Arc::new(watch::Sender::new(Progress { version: 1, state, origin_ns: None }));
        let (sender, questions) = sync_channel(WAITING);
        let policy = html::policy(Hosting::Server { version: 1 });
        let asks = Asks { questions: sender, progress: Arc::clone(&progress), policy };
        let mut worker = Self {
            checkpoints: Checkpoints::new(&path, &filter),
            path,
            input,
            identity,
            filter,
            open,
            content,
            questions,
            looks: Vec::new(),
            progress,
            has_news: false,
            told: Instant::now(),
            shown: None,
            index,
            place,
        };
        let thread = std::thread::Builder::new().name("floodmark-serve".into());
        let (tell_broken, broken) = oneshot::channel();
        let progress = Arc::clone(&asks.progress);
        let run = move || guarded(&progress, tell_broken, || worker.run());
        let thread = thread.spawn(run).map_err(|source| Error::Io { act: "starting a server", source })?;
        Ok(Started { thread, asks, broken })
    }

    fn run(&mut self) {
        loop {
            if self.looks.is_empty() {
                match self.questions.recv_timeout(self.pause()) {
                    Ok(question) => self.take(vec![question]),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            let more = self.questions.try_iter().collect();
            self.take(more);
            self.look_closely();
            self.read_on();
            self.keep();
            self.checkpoints.turn();
        }
    }

    fn pause(&self) -> Duration {
        match self.content {
            _ if self.checkpoints.is_walking() => Duration::ZERO,
            Content::Growing(_) => TraceFollower::PAUSE,
            Content::Complete(_) | Content::Kept(_) => Duration::from_hours(1),
        }
    }

    /// Answers what is answered at once, and keeps the rest.
    fn take(&mut self, questions: Vec<Question>) {
        for question in questions {
            let answer = match question.ask {
                Ask::Range(_) | Ask::Snapshots(_) => {
                    self.looks.push(question);
                    continue;
                }
                Ask::Page => self.html(),
                Ask::Document => self.json(),
            };
            let _ = question.reply.send(answer.map_err(|error| failed(&error)));
        }
        let too_many = self.looks.len().saturating_sub(WAITING);
        for question in self.looks.drain(..too_many) {
            let _ = question.reply.send(Err(Unanswered::Busy));
        }
    }

    /// Answers the newest range or snapshot query whose client still waits.
    fn look_closely(&mut self) {
        while let Some(Question { ask, reply }) = self.looks.pop() {
            let wanted = || !reply.is_closed();
            let found = match ask {
                _ if reply.is_closed() => continue,
                Ask::Range(query) => self.on_same(|worker| worker.range(query, &wanted)),
                Ask::Snapshots(times) => self.on_same(|worker| worker.snapshots(&times, &wanted)),
                Ask::Page | Ask::Document => continue,
            };
            match found {
                Ok(Some(json)) => drop(reply.send(Ok(json))),
                Ok(None) => continue,
                Err(error) => drop(reply.send(Err(self.unanswered(&error)))),
            }
            return;
        }
    }

    /// Reads the input, which has to be what the page shows.
    fn on_same<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.identity.check()?;
        let found = read(self);
        self.identity.check()?;
        found
    }

    fn unanswered(&self, error: &Error) -> Unanswered {
        use floodmark_inspect::Error as Inspect;
        match error {
            Error::NoEvents => Unanswered::NoEvents,
            Error::Inspect(Inspect::Trace(StoreError::Replaced { .. })) => {
                let is_trace = matches!(self.content, Content::Growing(_)) || self.path.is_dir();
                Unanswered::Changed(if is_trace { REPLACED } else { CHANGED })
            }
            _ => failed(error),
        }
    }

    fn range(&mut self, query: RangeQuery, wanted: StillWanted<'_>) -> Result<Option<Bytes>> {
        let shown = self.shown()?;
        let (origin_ns, tally, has_samples) = (shown.origin_ns.unwrap_or(0), shown.tally, shown.has_samples);
        let window = query.since(origin_ns);
        let mut found = Range { origin_ns, ..Range::default() };
        if tally.is_some() {
            let indexed =
                self.index.as_ref().map(|index| zoom::indexed_usage(&self.input, index, window, wanted));
            found.usage = match indexed.transpose()?.flatten() {
                Some(usage) => Some(usage),
                None => zoom::usage(self.zoom(), window, wanted)?,
            };
        }
        if has_samples && wanted() {
            found.samples = zoom::samples(&self.input, window, wanted)?;
        }
        Ok(wanted().then(|| found.json().into()))
    }

    fn snapshots(&mut self, times: &[i64], wanted: StillWanted<'_>) -> Result<Option<Bytes>> {
        let shown = self.shown()?;
        let origin_ns = shown.origin_ns.unwrap_or(0);
        let tally = shown.tally.ok_or(Error::NoEvents)?;
        let times = times.iter().map(|time| origin_ns.saturating_add(*time)).collect();
        let scopes = self.input.scope_paths()?;
        let found = zoom::snapshots(self.zoom(), (tally, times), scopes, wanted)?;
        Ok(found.map(|snapshots| Instants { origin_ns, snapshots }.json().into()))
    }

    fn zoom(&mut self) -> Zoom<'_> {
        let Self { input, filter, checkpoints, .. } = self;
        Zoom { input, filter, checkpoints }
    }

    fn html(&mut self) -> Result<Bytes> {
        let shown = self.shown()?;
        let hosting = Hosting::Server { version: shown.version };
        let make = || shown.page.as_ref().map_or_else(Bytes::new, |page| html::html(page, hosting).into());
        Ok(shown.html.get_or_insert_with(make).clone())
    }

    fn json(&mut self) -> Result<Bytes> {
        let shown = self.shown()?;
        let version = shown.version;
        let make = || shown.page.as_ref().map_or_else(Bytes::new, |page| html::json(page, version).into());
        Ok(shown.json.get_or_insert_with(make).clone())
    }

    /// The page as it is now.
    fn shown(&mut self) -> Result<&mut Shown> {
        self.tell();
        let version = self.progress.borrow().version;
        if self.shown.as_ref().is_none_or(|shown| shown.version != version) {
            let shown = match &mut self.content {
                Content::Complete(page) => Shown::of(page.as_ref().clone(), version, &self.filter),
                Content::Growing(growing) => Shown::of(growing.page()?, version, &self.filter),
                Content::Kept(kept) => Shown::kept(kept, version),
            };
            let origin_ns = shown.origin_ns;
            self.progress.send_if_modified(|progress| {
                progress.origin_ns = origin_ns;
                false
            });
            self.shown = Some(shown);
        }
        Ok(self.shown.as_mut().expect("it was just made"))
    }

    /// Reads what is new.
    fn read_on(&mut self) {
        let Content::Growing(growing) = &mut self.content else { return };
        let state = match growing.read() {
            Ok(ReadOutcome::Idle) => State::Live,
            Ok(ReadOutcome::MoreAvailable | ReadOutcome::CaughtUp) => {
                self.has_news = true;
                State::Live
            }
            // Once all is known a report may say more, of leaks for one; and what came too late is in it.
            Ok(ReadOutcome::Finished) => {
                let read = |worker: &mut Self| {
                    worker.input = Input::open(&worker.path, &worker.open)?;
                    Ok(worker.input.page(&Query::new(worker.filter.clone(), &()))?)
                };
                match self.on_same(read) {
                    Ok(page) => {
                        self.content = Content::Complete(Box::new(page));
                        State::Ended
                    }
                    Err(error) => self.give_up(&error),
                }
            }
            Err(error) => self.give_up(&error.into()),
        };
        if state != State::Live {
            self.has_news = true;
            self.told = Instant::now().checked_sub(NEWS).unwrap_or(self.told);
            self.progress.send_if_modified(|progress| {
                progress.state = state;
                false
            });
        }
        self.tell();
    }

    /// Keeps the page for the next server, once somebody has it. Without it that one only takes longer.
    fn keep(&mut self) {
        if self.shown.as_ref().is_none_or(|shown| shown.html.is_none()) {
            return;
        }
        let Some(place) = self.place.take() else { return };
        let _ = self.on_same(|worker| {
            let html = String::from_utf8(worker.html()?.to_vec()).unwrap_or_default();
            let json = String::from_utf8(worker.json()?.to_vec()).unwrap_or_default();
            let index = worker.index.clone();
            let shown = worker.shown()?;
            let (origin_ns, tally, has_samples) = (shown.origin_ns, shown.tally, shown.has_samples);
            let page = KeptPage { origin_ns, tally, has_samples, html, json, index };
            place.keep(page).map_err(|source| Error::Io { act: "keeping a page", source })
        });
    }

    /// What was read stays as it is, whatever became of the trace.
    fn give_up(&mut self, error: &Error) -> State {
        if let Content::Growing(growing) = &mut self.content {
            self.content = Content::Complete(Box::new(growing.last()));
        }
        let remedy = error.remedy().unwrap_or_else(|| "start 'floodmark serve' again".into());
        State::Failed(format!("{}; {remedy}", error.messages()))
    }

    /// Tells of news, but not all the time.
    fn tell(&mut self) {
        if !self.has_news || self.told.elapsed() < NEWS {
            return;
        }
        (self.has_news, self.told) = (false, Instant::now());
        self.progress.send_modify(|progress| progress.version += 1);
    }
}

/// The sum that figures cover: of the kinds that were chosen, or else of one.
fn tally(filter: &Filter, usage: &Usage) -> u8 {
    let kind = usage.kinds.first().copied().unwrap_or(Kind::Device);
    if filter.kinds.is_some() { 0 } else { kind as u8 }
}

fn failed(error: &Error) -> Unanswered {
    Unanswered::Failed(error.messages())
}
