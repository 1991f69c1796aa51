//! The state of a watch.

use std::collections::{HashMap, HashSet};

use floodmark_event::{Metric, Subject, SubjectId, SubjectKind};
use floodmark_tail::clock::monotonic_ns;

use super::inexact::Inexact;
use super::job::Job;
use super::processes::Held;
use super::selection::Selection;
use super::{Discovery, WatchProps};
use crate::metrics::mappings::MappingReadings;
use crate::metrics::memory::DescriptorBudget;
use crate::metrics::total::{self, Totals};
use crate::outcome::{NoExitStats, Note, ProcessCounts};
use crate::output::{SharedSink, with_sink};
use crate::pace::Pacer;
use crate::rank;
use crate::tree::events::Events;
use crate::tree::exit_stats::{ExitStats, ThreadExit};
use crate::tree::walk::{self, Walker};
use crate::tree::{Image, Process, Starts, Table};

/// How the watched process came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This process started it, and adopts its orphans.
    Launched,
    /// It was running before.
    Attached,
    /// There is no one process: all that are selected are watched.
    Selected,
}

/// Everything that is known about the watched tree; sends samples to the sink.
pub(crate) struct Recorder<'a> {
    pub(crate) props: &'a WatchProps,
    pub(crate) sink: &'a dyn SharedSink,
    pub(crate) origin: Origin,
    pub(crate) root: i32,
    /// Wait status of the root.
    pub(crate) root_status: Option<i32>,
    pub(crate) is_root_over: bool,
    pub(super) own_pid: i32,
    /// High-water mark of this process when the root was forked, which the root had until its exec.
    pub(super) own_mark: u64,
    /// Processes that have ended and whose peaks are lower bounds.
    pub(super) inexact: Inexact,
    /// Children of this process that do not belong to the command.
    pub(super) foreign_children: HashSet<i32>,
    /// Processes that have ended, but that their own parent must reap.
    pub(super) unreaped: HashSet<i32>,
    pub(crate) table: Table,
    pub(crate) starts: Starts,
    pub(crate) events: Option<Events>,
    pub(super) exit_stats: Result<ExitStats, NoExitStats>,
    pub(super) thread_exits: Vec<ThreadExit>,
    pub(super) overruns: u64,
    pub(super) walker: Walker,
    pub(super) walked_ns: u64,
    pub(crate) job: Job,
    pub(crate) totals: Totals,
    pub(crate) mappings: MappingReadings,
    /// Files that are known to the sink, by process and path.
    pub(super) files: HashMap<(SubjectId, String), SubjectId>,
    pub(crate) pacer: Pacer,
    pub(crate) descriptors: DescriptorBudget,
    pub(crate) page_bytes: u64,
    pub(super) unread: u64,
    pub(super) missed: u64,
    pub(super) vanished: u64,
    pub(crate) notes: Vec<Note>,
    pub(crate) gone: Vec<i32>,
    pub(crate) held: Held,
    pub(crate) surroundings: super::sweep::Surroundings,
    /// What decides about processes without a watched parent.
    pub(super) selection: Option<Selection<'a>>,
}

/// Properties and parts of a new [`Recorder`].
pub(crate) struct RecorderProps<'a> {
    pub(crate) props: &'a WatchProps,
    pub(crate) sink: &'a dyn SharedSink,
    pub(crate) origin: Origin,
    pub(crate) root: i32,
    pub(crate) foreign_children: HashSet<i32>,
    pub(crate) events: Result<Events, String>,
    pub(crate) exit_stats: Result<ExitStats, NoExitStats>,
    pub(crate) walker: Walker,
    pub(crate) totals: Totals,
    pub(crate) mappings: MappingReadings,
    pub(crate) descriptors: DescriptorBudget,
    pub(crate) began_ns: u64,
    pub(crate) surroundings: super::sweep::Surroundings,
    pub(crate) selection: Option<Selection<'a>>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(parts: RecorderProps<'a>) -> Self {
        let RecorderProps { props, sink, origin, root, foreign_children, .. } = parts;
        let RecorderProps { events, exit_stats, walker, totals, descriptors, began_ns, .. } = parts;
        let RecorderProps { mappings, surroundings, selection, .. } = parts;
        let mut notes = Vec::new();
        let events = match events {
            Ok(events) => Some(events),
            Err(why) => {
                if props.discovery == Discovery::Events {
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
            own_mark: 0,
            inexact: Inexact::new(total::counter_error_bytes()),
            foreign_children,
            unreaped: HashSet::new(),
            table: Table::default(),
            starts: Starts::now(),
            events,
            exit_stats,
            thread_exits: Vec::new(),
            overruns: 0,
            walker,
            walked_ns: began_ns,
            job: Job::default(),
            totals,
            mappings,
            files: HashMap::new(),
            pacer: Pacer::new(props.pace, began_ns),
            descriptors,
            page_bytes: crate::sys::clock::page_bytes(),
            unread: 0,
            missed: 0,
            vanished: 0,
            notes,
            gone: Vec::new(),
            held: Held::default(),
            surroundings,
            selection,
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

    /// Removes all notes, and adds those about counters.
    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        let mut notes = std::mem::take(&mut self.notes);
        if self.overruns > 0 {
            notes.push(Note::EventsOverrun { times: self.overruns });
        }
        if self.vanished > 0 {
            notes.push(Note::Vanished { count: self.vanished });
        }
        let (bounds, unread) = (self.inexact.count(), self.unread + self.missed);
        if bounds + unread > 0
            && let Err(why) = &self.exit_stats
        {
            notes.push(Note::InexactPeaks { bounds, unread, why: *why });
        }
        notes
    }

    /// Adds a note, unless there is one of its kind.
    pub(crate) fn note(&mut self, note: Note) {
        let is_same = |other: &Note| std::mem::discriminant(other) == std::mem::discriminant(&note);
        if !self.notes.iter().any(is_same) {
            self.notes.push(note);
        }
    }

    /// Adds the root of the tree, with a name and command line in case that it has ended already. `own_mark`
    /// is the high-water mark of this process.
    pub(crate) fn add_root(&mut self, born_ns: u64, own_mark: u64, name: &str, command: &str) {
        self.own_mark = own_mark;
        let mut root = Process::new(self.root, born_ns, Image::Own);
        (root.name, root.command) = (name.to_owned(), command.to_owned());
        self.table.add(root);
        self.report_process(self.root);
    }

    /// Sends a process to the sink, for the first time or as a new program.
    pub(crate) fn report_process(&mut self, pid: i32) {
        let Some(process) = self.table.get_mut(pid) else { return };
        if process.start_ticks == 0
            && let Some(found) = walk::read_process(pid)
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
        process.subject = with_sink(self.sink, |sink| sink.subject(at_ns, &subject));
        process.gauges.resend_all();
        process.gauges.set_if_known(Metric::Rank, rank::of(pid).map(u64::from));
        self.held.is_stale = true;
    }
}

/// Whether events were about the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    None,
    Tree,
}
