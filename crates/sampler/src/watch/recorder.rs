//! The tree as it lives: births, new programs and ends, told to the sink.

use std::collections::HashSet;

use floodmark_event::clock::monotonic_ns;
use floodmark_event::{Metric, Subject, SubjectEnd, SubjectId, SubjectKind};

use super::job::Job;
use super::{Births, WatchProps};
use crate::metrics::memory::Keep;
use crate::metrics::total::Totals;
use crate::observer::ProcessSweep;
use crate::outcome::{Note, PeakSource, ProcessCounts, ProcessPeak};
use crate::output::{SharedSink, tell};
use crate::pace::Pacer;
use crate::procfs::Life;
use crate::sys::wait::{self, Children, Reap, Reaped};
use crate::tree::events::{Event, Events, Happening, Next};
use crate::tree::lastwords::{LastWord, LastWords};
use crate::tree::walk::{self, Found, News, Walker};
use crate::tree::{Image, Known, Learned, Process, Starts, Table};

/// Time between two looks at everything: with events only to be sure, without to find what looks at
/// new numbers did not.
const WALK_WITH_EVENTS_NS: u64 = 10_000_000_000;
const WALK_WITHOUT_NS: u64 = 1_000_000_000;

/// Whose the watched process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// We started it, and adopt its orphans.
    Launched,
    /// It was there before.
    Attached,
}

/// Everything that is known while watching.
pub(crate) struct Recorder<'a> {
    pub(crate) props: &'a WatchProps,
    pub(crate) sink: &'a dyn SharedSink,
    pub(crate) origin: Origin,
    pub(crate) root: i32,
    /// How the root ended.
    pub(crate) root_status: Option<i32>,
    own_pid: i32,
    /// Children of ours that are none of the command's.
    strangers: HashSet<i32>,
    /// Processes that are over, but that somebody else must reap.
    unreaped: HashSet<i32>,
    pub(crate) table: Table,
    pub(crate) starts: Starts,
    pub(crate) events: Option<Events>,
    last_words: Option<LastWords>,
    words: Vec<LastWord>,
    overruns: u64,
    walker: Walker,
    walked_ns: u64,
    pub(crate) job: Job,
    pub(crate) totals: Totals,
    pub(crate) pacer: Pacer,
    pub(crate) keep: Keep,
    pub(crate) page_bytes: u64,
    unread: u64,
    missed: u64,
    pub(crate) notes: Vec<Note>,
    pub(crate) gone: Vec<i32>,
    pub(crate) sweeps: Vec<ProcessSweep>,
    pub(crate) surroundings: super::sweep::Surroundings,
}

/// What a recorder starts with.
pub(crate) struct Beginning<'a> {
    pub(crate) props: &'a WatchProps,
    pub(crate) sink: &'a dyn SharedSink,
    pub(crate) origin: Origin,
    pub(crate) root: i32,
    pub(crate) strangers: HashSet<i32>,
    pub(crate) events: Result<Events, String>,
    pub(crate) last_words: Option<LastWords>,
    pub(crate) totals: Totals,
    pub(crate) keep: Keep,
    pub(crate) began_ns: u64,
    pub(crate) surroundings: super::sweep::Surroundings,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(beginning: Beginning<'a>) -> Self {
        let Beginning { props, sink, origin, root, strangers, .. } = beginning;
        let Beginning { events, last_words, totals, keep, began_ns, surroundings, .. } = beginning;
        let mut notes = Vec::new();
        let events = match events {
            Ok(events) => Some(events),
            Err(why) => {
                if props.births == Births::Told {
                    notes.push(Note::NoEvents { why });
                }
                None
            }
        };
        Self {
            props,
            sink,
            origin,
            root,
            root_status: None,
            own_pid: std::process::id() as i32,
            strangers,
            unreaped: HashSet::new(),
            table: Table::default(),
            starts: Starts::now(),
            events,
            last_words,
            words: Vec::new(),
            overruns: 0,
            walker: Walker::new(),
            walked_ns: began_ns,
            job: Job::default(),
            totals,
            pacer: Pacer::new(props.pace, began_ns),
            keep,
            page_bytes: crate::sys::clock::page_bytes(),
            unread: 0,
            missed: 0,
            notes,
            gone: Vec::new(),
            sweeps: Vec::new(),
            surroundings,
        }
    }

    pub(crate) fn counts(&self) -> ProcessCounts {
        ProcessCounts {
            seen: self.table.seen(),
            most: self.table.most(),
            unread: self.unread,
            missed: self.missed,
            left: self.table.processes().len() as u64,
        }
    }

    /// All notes, those of counters included.
    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        let mut notes = std::mem::take(&mut self.notes);
        if self.overruns > 0 {
            notes.push(Note::EventsOverrun { times: self.overruns });
        }
        notes
    }

    /// Notes something, once per sort.
    pub(crate) fn note(&mut self, note: Note) {
        let is_same = |other: &Note| std::mem::discriminant(other) == std::mem::discriminant(&note);
        if !self.notes.iter().any(is_same) {
            self.notes.push(note);
        }
    }

    /// Adds the process that all others come from, with what is known of it should it be over already.
    pub(crate) fn add_root(&mut self, born_ns: u64, inherited_bytes: u64, name: &str, command: &str) {
        let mut root = Process::new(self.root, born_ns, Image::Own);
        root.inherited_bytes = inherited_bytes;
        (root.name, root.command) = (name.to_owned(), command.to_owned());
        self.table.add(root);
        self.tell_of(self.root);
    }

    // ---- births ---------------------------------------------------------------------------------

    /// Takes in what the kernel told since the last time; says whether any of it was about the tree.
    pub(crate) fn drain_events(&mut self) -> Stir {
        let mut stir = Stir::None;
        while let Some(events) = &self.events {
            match events.next() {
                Next::Nothing => break,
                Next::Event(event) => stir = stir.max(self.happened(event)),
                Next::Lost => {
                    self.overruns += 1;
                    self.walk(monotonic_ns());
                }
            }
        }
        stir
    }

    fn happened(&mut self, event: Event) -> Stir {
        let at_ns = event.at_ns;
        match event.what {
            Happening::Fork { parent, child } => {
                if parent == self.own_pid {
                    if child != self.root {
                        self.strangers.insert(child);
                    } else if let Some(root) = self.table.get_mut(child) {
                        root.born_ns = at_ns;
                    }
                    return Stir::None;
                }
                if !self.table.has(parent) {
                    return Stir::None;
                }
                match self.table.get(child) {
                    // A walk was faster.
                    Some(known) if known.born_ns >= at_ns => return Stir::None,
                    Some(_) => self.end(child, at_ns, None, None),
                    None => {}
                }
                self.born(child, parent, at_ns, Image::Inherited);
            }
            Happening::Exec { pid } => {
                if !self.table.has(pid) {
                    return Stir::None;
                }
                self.replaced(pid, at_ns);
            }
            Happening::Exit { pid, status } => match self.table.get(pid) {
                Some(process) if process.born_ns <= at_ns => self.first_thread_ended(pid, at_ns, status),
                _ => return Stir::None,
            },
        }
        Stir::Tree
    }

    fn born(&mut self, pid: i32, parent: i32, born_ns: u64, image: Image) {
        self.unreaped.remove(&pid);
        self.strangers.remove(&pid);
        // A parent is told of before its children.
        if self.table.get(parent).is_some_and(|parent| parent.subject == SubjectId(0)) {
            self.tell_of(parent);
        }
        let mut process = Process::new(pid, born_ns, image);
        if let Some(parent) = self.table.get_mut(parent) {
            parent.children += 1;
            process.parent = parent.subject;
            process.inherited_bytes = parent.memory.seen_peak.max(parent.memory.mark);
            if image == Image::Inherited {
                process.name.clone_from(&parent.name);
                process.command.clone_from(&parent.command);
            }
        }
        self.table.add(process);
    }

    /// A process replaced its program.
    fn replaced(&mut self, pid: i32, at_ns: u64) {
        let found = walk::look_at(pid);
        let Some(process) = self.table.get_mut(pid) else { return };
        self.totals.moved(process.memory.shared);
        process.memory.new_program(process.is_newborn(at_ns));
        process.image = Image::Own;
        let Some(found) = found else { return };
        let news = process.learn(&found);
        if news == Learned::News || process.subject == SubjectId(0) {
            self.tell_of(pid);
        }
        self.read_once(pid, at_ns);
    }

    /// Reads a process that may not live until the next sweep.
    fn read_once(&mut self, pid: i32, now_ns: u64) {
        let Some(process) = self.table.get_mut(pid) else { return };
        let memory = &mut process.memory;
        if memory.sweep(pid, self.page_bytes, &mut self.keep).is_some() {
            process.told.set(Metric::Rss, memory.rss);
            if let Some(status) = memory.read_status(pid, now_ns, &mut self.keep) {
                process.told.set_if_known(Metric::Hwm, status.hwm);
            }
            self.totals.moved(memory.shared);
        }
    }

    /// Tells the sink of a process, for the first time or as a new program.
    pub(crate) fn tell_of(&mut self, pid: i32) {
        let Some(process) = self.table.get_mut(pid) else { return };
        if process.start_ticks == 0
            && let Some(found) = walk::look_at(pid)
        {
            process.learn(&found);
        }
        let is_first = process.subject == SubjectId(0);
        let at_ns = if is_first { process.born_ns } else { monotonic_ns() };
        let subject = Subject {
            kind: SubjectKind::Process,
            number: u64::from(pid.unsigned_abs()),
            start_ns: self.starts.of(process),
            parent: process.parent,
            name: process.name.clone(),
            detail: process.command.clone(),
        };
        process.subject = tell(self.sink, |sink| sink.subject(at_ns, &subject));
        process.told.begin_again();
    }

    /// Looks for processes that nobody told us of.
    pub(crate) fn look(&mut self, now_ns: u64) {
        let has_events = self.events.is_some();
        let every_ns = if has_events { WALK_WITH_EVENTS_NS } else { WALK_WITHOUT_NS };
        if now_ns.saturating_sub(self.walked_ns) >= every_ns {
            self.walk(now_ns);
        } else if !has_events {
            match self.walker.news() {
                News::None => {}
                News::Unknown => self.walk(now_ns),
                News::Between(before, last) => {
                    for pid in before + 1..=last {
                        if let Some(found) = walk::look_at(pid) {
                            self.consider(&found, now_ns);
                        }
                    }
                }
            }
        }
    }

    /// Looks at everything that runs.
    pub(crate) fn walk(&mut self, now_ns: u64) {
        self.walked_ns = now_ns;
        let mut found = walk::all();
        // Parents before children, mostly; what is left over comes with the next round.
        found.sort_by_key(|found| found.start_ticks);
        loop {
            let before = self.table.seen();
            for found in &found {
                self.consider(found, now_ns);
            }
            if self.table.seen() == before {
                break;
            }
        }
    }

    /// Adds a process that was found, if it belongs to the tree.
    fn consider(&mut self, found: &Found, now_ns: u64) {
        let &Found { pid, parent, start_ticks, .. } = found;
        let is_orphan =
            self.origin == Origin::Launched && parent == self.own_pid && !self.strangers.contains(&pid);
        if !is_orphan && !self.table.has(parent) {
            return;
        }
        match self.table.knows(pid, start_ticks) {
            Known::Same => return,
            Known::Other => self.end(pid, now_ns, None, None),
            Known::No => {}
        }
        // What is over was counted when it ended, or will be when it is reaped.
        if found.life == Life::Zombie && found.threads <= 1 || !walk::is_process(pid) {
            return;
        }
        let (name, command) = walk::describe(pid, &found.name);
        let is_copy = self.table.get(parent).is_some_and(|p| p.name == name && p.command == command);
        let image = if is_copy { Image::Inherited } else { Image::Own };
        self.born(pid, parent, now_ns, image);
        if let Some(process) = self.table.get_mut(pid) {
            (process.start_ticks, process.name, process.command) = (start_ticks, name, command);
        }
        if image == Image::Own {
            self.tell_of(pid);
        }
    }

    /// Whether a process that was found by looking has a program of its own by now.
    pub(crate) fn check_program(&mut self, pid: i32, now_ns: u64) {
        let Some(found) = walk::look_at(pid) else { return };
        let (name, command) = walk::describe(pid, &found.name);
        let is_new = self.table.get(pid).is_some_and(|p| p.name != name || p.command != command);
        if is_new && found.life == Life::Alive {
            self.replaced(pid, now_ns);
        }
    }

    // ---- ends -----------------------------------------------------------------------------------

    /// Reaps children that are over.
    pub(crate) fn reap(&mut self) {
        loop {
            match wait::children() {
                Children::None | Children::Running => return,
                Children::Over(pid) if self.strangers.contains(&pid) => break,
                Children::Over(pid) => self.reap_one(pid),
            }
        }
        // A child of somebody else's is in the way, and must stay: ask for the others one by one.
        for pid in walk::children_of(self.own_pid) {
            if !self.strangers.contains(&pid) {
                self.reap_one(pid);
            }
        }
    }

    fn reap_one(&mut self, pid: i32) {
        let Reap::Over(reaped) = wait::reap(pid) else { return };
        self.is_over(pid, monotonic_ns(), reaped);
    }

    fn is_over(&mut self, pid: i32, at_ns: u64, reaped: Reaped) {
        if self.table.has(pid) {
            self.end(pid, at_ns, Some(reaped.status), Some(reaped));
        } else if !self.unreaped.remove(&pid) {
            self.missed += 1;
            self.job.process_reached(reaped.peak_rss_bytes);
        }
    }

    /// The kernel told of the end of a process's first thread.
    fn first_thread_ended(&mut self, pid: i32, at_ns: u64, status: i32) {
        match wait::reap(pid) {
            Reap::Over(reaped) => self.is_over(pid, at_ns, reaped),
            Reap::Running => self.go_on_without_first_thread(pid),
            Reap::NotOurs => match walk::look_at(pid) {
                Some(found) if found.threads > 1 => self.go_on_without_first_thread(pid),
                _ => self.end(pid, at_ns, Some(status), None),
            },
        }
    }

    fn go_on_without_first_thread(&mut self, pid: i32) {
        let Some(thread) = walk::threads_of(pid).find(|thread| *thread != pid) else { return };
        if let Some(process) = self.table.get_mut(pid) {
            process.memory.read_through(thread, &mut self.keep);
        }
    }

    /// A sweep found no memory in a process: it is over, or ending, or lost its first thread.
    pub(crate) fn check_gone(&mut self, pid: i32, now_ns: u64) {
        let Some(process) = self.table.get(pid) else { return };
        let start = process.start_ticks;
        let found = walk::look_at(pid).filter(|found| start == 0 || found.start_ticks == start);
        match found {
            Some(found) if found.life == Life::Alive => {}
            Some(found) if found.threads > 1 => self.go_on_without_first_thread(pid),
            _ => match wait::reap(pid) {
                Reap::Over(reaped) => self.is_over(pid, now_ns, reaped),
                Reap::Running => {}
                // The kernel will tell how it ended, unless it did and we were not listening.
                Reap::NotOurs => {
                    self.drain_events();
                    if self.table.has(pid) {
                        self.end(pid, now_ns, None, None);
                    }
                }
            },
        }
    }

    /// Hears what the kernel said of threads that ended, and fits it to processes. A word comes after
    /// the news of the birth, which may be unread, and before that of the end.
    pub(crate) fn hear_last_words(&mut self) {
        if self.last_words.is_some() {
            self.listen();
            self.drain_events();
            for index in 0..self.words.len() {
                self.heed(self.words[index]);
            }
            self.words.clear();
        }
    }

    fn listen(&mut self) {
        self.words.extend(self.last_words.iter().flat_map(|words| std::iter::from_fn(|| words.next())));
    }

    fn heed(&mut self, word: LastWord) {
        let Some(process) = self.table.get_mut(word.pid) else { return };
        if word.mark > 0 {
            process.memory.last_word = process.memory.last_word.max(Some(word.mark));
        }
        // A process that was gone before we could look is known by its parent's name so far.
        if word.thread == word.pid && process.start_ticks == 0 {
            process.name = word.name().into_owned();
        }
    }

    /// A process is over: the last things are told of it.
    fn end(&mut self, pid: i32, at_ns: u64, status: Option<i32>, reaped: Option<Reaped>) {
        self.listen();
        for index in 0..self.words.len() {
            if self.words[index].pid == pid {
                self.heed(self.words[index]);
            }
        }
        if self.table.get(pid).is_some_and(|process| process.subject == SubjectId(0)) {
            self.tell_of(pid);
        }
        let Some(mut process) = self.table.remove(pid) else { return };
        if pid == self.root {
            self.root_status = status;
        }
        match reaped {
            None => {
                self.unreaped.insert(pid);
            }
            Some(reaped) => {
                if reaped.peak_rss_bytes > process.inherited_bytes {
                    self.job.process_reached(reaped.peak_rss_bytes);
                    self.job.reached(reaped.peak_rss_bytes, at_ns);
                }
                if process.children == 0 {
                    process.told.set(Metric::CpuTime, reaped.cpu_ns);
                }
            }
        }
        let memory = &mut process.memory;
        let peak = memory.peak(reaped.as_ref(), process.inherited_bytes, process.children);
        if peak.1 == PeakSource::LastWord {
            let mark = memory.last_word.or(reaped.map(|reaped| reaped.peak_rss_bytes));
            process.told.set_if_known(Metric::Hwm, mark);
        }
        self.unread += u64::from(peak.0 == 0);
        self.job.last_word(peak, memory.rss, at_ns);
        self.totals.moved(memory.shared);
        memory.close(&mut self.keep);
        let peak_rss_bytes = (peak.1 != PeakSource::Seen).then_some(peak.0);
        let batch = process.told.take(at_ns);
        tell(self.sink, |sink| {
            if let Some(batch) = batch {
                sink.samples(at_ns, process.subject, batch.as_slice());
            }
            sink.ended(at_ns, process.subject, SubjectEnd { wait_status: status, peak_rss_bytes });
        });
        self.keep_largest(&process, peak);
    }

    fn keep_largest(&mut self, process: &Process, (rss_bytes, known): (u64, PeakSource)) {
        if rss_bytes > 0 {
            let name = process.name.clone();
            self.job.keep_largest(ProcessPeak { pid: process.pid, name, rss_bytes, known });
        }
    }

    /// Counts processes that are left alone in the outcome.
    pub(crate) fn keep_largest_of_the_living(&mut self) {
        let peaks: Vec<ProcessPeak> = self
            .table
            .processes()
            .iter()
            .map(|process| {
                let (rss_bytes, known) = process.memory.peak(None, 0, 0);
                ProcessPeak { pid: process.pid, name: process.name.clone(), rss_bytes, known }
            })
            .collect();
        peaks.into_iter().filter(|peak| peak.rss_bytes > 0).for_each(|peak| self.job.keep_largest(peak));
    }

    /// Whether no process of the tree is left. Orphans become our children, so while there are
    /// children there is a tree, known or not.
    pub(crate) fn is_tree_over(&mut self, now_ns: u64) -> bool {
        if !self.table.is_empty() || self.origin == Origin::Attached {
            return self.table.is_empty();
        }
        self.reap();
        let others: Vec<i32> = match wait::children() {
            Children::None => Vec::new(),
            _ => walk::children_of(self.own_pid),
        };
        let others = others.into_iter().filter(|pid| !self.strangers.contains(pid)).collect::<Vec<i32>>();
        for found in others.iter().filter_map(|pid| walk::look_at(*pid)) {
            self.consider(&found, now_ns);
        }
        others.is_empty()
    }
}

/// Whether something happened in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stir {
    None,
    Tree,
}
