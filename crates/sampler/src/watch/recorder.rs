//! Everything that is known while watching.

use std::collections::HashSet;

use floodmark_event::{Metric, Subject, SubjectId, SubjectKind};
use floodmark_tail::clock::monotonic_ns;

use super::job::Job;
use super::processes::Held;
use super::{Births, WatchProps};
use crate::metrics::memory::Keep;
use crate::metrics::total::Totals;
use crate::outcome::{Note, ProcessCounts};
use crate::output::{SharedSink, tell};
use crate::pace::Pacer;
use crate::rank;
use crate::tree::events::Events;
use crate::tree::lastwords::{LastWord, LastWords};
use crate::tree::walk::{self, Walker};
use crate::tree::{Image, Process, Starts, Table};

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
    pub(crate) is_root_over: bool,
    pub(super) own_pid: i32,
    /// Children of ours that are none of the command's.
    pub(super) strangers: HashSet<i32>,
    /// Processes that are over, but that somebody else must reap.
    pub(super) unreaped: HashSet<i32>,
    pub(crate) table: Table,
    pub(crate) starts: Starts,
    pub(crate) events: Option<Events>,
    pub(super) last_words: Option<LastWords>,
    pub(super) words: Vec<LastWord>,
    pub(super) overruns: u64,
    pub(super) walker: Walker,
    pub(super) walked_ns: u64,
    pub(crate) job: Job,
    pub(crate) totals: Totals,
    pub(crate) pacer: Pacer,
    pub(crate) keep: Keep,
    pub(crate) page_bytes: u64,
    pub(super) unread: u64,
    pub(super) missed: u64,
    pub(super) vanished: u64,
    pub(crate) notes: Vec<Note>,
    pub(crate) gone: Vec<i32>,
    pub(crate) held: Held,
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
    pub(crate) walker: Walker,
    pub(crate) totals: Totals,
    pub(crate) keep: Keep,
    pub(crate) began_ns: u64,
    pub(crate) surroundings: super::sweep::Surroundings,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(beginning: Beginning<'a>) -> Self {
        let Beginning { props, sink, origin, root, strangers, .. } = beginning;
        let Beginning { events, last_words, walker, totals, keep, began_ns, surroundings, .. } = beginning;
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
            is_root_over: false,
            own_pid: std::process::id() as i32,
            strangers,
            unreaped: HashSet::new(),
            table: Table::default(),
            starts: Starts::now(),
            events,
            last_words,
            words: Vec::new(),
            overruns: 0,
            walker,
            walked_ns: began_ns,
            job: Job::default(),
            totals,
            pacer: Pacer::new(props.pace, began_ns),
            keep,
            page_bytes: crate::sys::clock::page_bytes(),
            unread: 0,
            missed: 0,
            vanished: 0,
            notes,
            gone: Vec::new(),
            held: Held::default(),
            surroundings,
        }
    }

    pub(crate) fn counts(&self) -> ProcessCounts {
        ProcessCounts {
            seen: self.table.seen(),
            most: self.table.most(),
            unread: self.unread,
            missed: self.missed,
            vanished: self.vanished,
            left: self.table.processes().len() as u64,
        }
    }

    /// All notes, those of counters included.
    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        let mut notes = std::mem::take(&mut self.notes);
        if self.overruns > 0 {
            notes.push(Note::EventsOverrun { times: self.overruns });
        }
        if self.vanished > 0 {
            notes.push(Note::Vanished { count: self.vanished });
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
        process.told.set_if_known(Metric::Rank, rank::of(pid).map(u64::from));
        self.held.is_stale = true;
    }
}

/// Whether something happened in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stir {
    None,
    Tree,
}
