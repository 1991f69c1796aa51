//! Answers of analyses, found in the most obvious way.
//!
//! Everything here is written for being right at a glance: plain vectors and maps, every sum added up
//! anew, every instant looked at. Nothing is shared with the analyses it is compared with, and the
//! answers are plain numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use floodmark_event::{Action, Event, Kind, StackId, StringId, UNKNOWN_BYTES};

/// Which events to look at; `None` means everything.
#[derive(Clone, Debug, Default)]
pub struct OracleFilter {
    /// Devices of events.
    pub devices: Option<Vec<i32>>,
    /// Processes of events, by number.
    pub processes: Option<Vec<u32>>,
    /// Threads that allocate.
    pub threads: Option<Vec<u64>>,
    /// Streams on which is allocated.
    pub streams: Option<Vec<u64>>,
    /// Kinds of blocks.
    pub kinds: Option<Vec<Kind>>,
    /// First instant.
    pub from_ns: Option<i64>,
    /// Last instant.
    pub to_ns: Option<i64>,
}

fn allows<T: PartialEq>(list: Option<&Vec<T>>, value: &T) -> bool {
    list.is_none_or(|list| list.contains(value))
}

impl OracleFilter {
    fn allows_place(&self, event: &Event) -> bool {
        allows(self.devices.as_ref(), &event.device) && allows(self.processes.as_ref(), &event.process.0)
    }

    fn allows_origin(&self, event: &Event) -> bool {
        allows(self.threads.as_ref(), &event.thread) && allows(self.streams.as_ref(), &event.stream)
    }

    fn allows_kind(&self, kind: Kind) -> bool {
        allows(self.kinds.as_ref(), &kind)
    }
}

/// A block from its allocation to its end, with the numbers of the rows where they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Row of the allocation.
    pub begin: usize,
    /// The allocation.
    pub alloc: Event,
    /// Row of the end, if it has ended.
    pub end: Option<usize>,
    /// The free that ended it; none if its address was allocated again instead.
    pub free: Option<Event>,
}

/// Counters that an analysis of statistics must agree with. They cover the main kinds, except
/// `events`, `unmatched_frees` and `null_frees`.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the figures they are compared with")]
pub struct Counts {
    pub events: u64,
    pub first_time_ns: Option<i64>,
    pub last_time_ns: Option<i64>,
    pub allocations: u64,
    pub frees: u64,
    pub failures: u64,
    pub failed_bytes: u64,
    pub largest_failure_bytes: u64,
    pub unmatched_frees: u64,
    pub null_frees: u64,
    pub size_mismatches: u64,
    pub replaced_blocks: u64,
    pub zero_size: u64,
    pub address_reuses: u64,
    pub cross_thread_frees: u64,
    pub carried_blocks: u64,
    pub carried_bytes: u64,
    pub total_bytes: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub most_blocks: u64,
}

/// The highest live bytes of some blocks: bytes, first instant, and the lives of the blocks live then.
pub type Peak = (u64, Option<i64>, Vec<Life>);

/// Highest live bytes, their first instant, and the live bytes at the end.
pub type Height = (u64, Option<i64>, u64);

/// What really happened in a list of events.
#[derive(Clone, Debug)]
pub struct Oracle {
    events: Vec<Event>,
    filter: OracleFilter,
    lives: Vec<Life>,
    /// Rows of frees that ended no block.
    lost_frees: Vec<usize>,
    /// Rows of the window.
    rows: std::ops::Range<usize>,
}

impl Oracle {
    /// Follows `events`, of which `filter` says what counts.
    pub fn new(events: &[Event], filter: &OracleFilter) -> Self {
        let at_or_after = |from: i64| events.iter().position(|event| event.time_ns >= from);
        let start = filter.from_ns.map_or(0, |from| at_or_after(from).unwrap_or(events.len()));
        let behind = |to: i64| events[start..].iter().position(|event| event.time_ns > to);
        let stop = filter.to_ns.and_then(behind).map_or(events.len(), |position| start + position);

        let mut lives: Vec<Life> = Vec::new();
        let mut lost_frees = Vec::new();
        let mut live_at: HashMap<(u32, i32, u32, u64), Vec<usize>> = HashMap::new();
        for (row, event) in events[..stop].iter().enumerate() {
            if !filter.allows_place(event) {
                continue;
            }
            let key = (event.process.0, event.device, event.resource.0, event.address);
            let here = live_at.entry(key).or_default();
            match event.action {
                Action::Alloc => {
                    if event.address != 0
                        && let Some(earlier) = here.pop()
                    {
                        lives[earlier].end = Some(row);
                    }
                    here.push(lives.len());
                    lives.push(Life { begin: row, alloc: *event, end: None, free: None });
                }
                Action::Free => match here.pop() {
                    Some(life) => {
                        lives[life].end = Some(row);
                        lives[life].free = Some(*event);
                    }
                    None => lost_frees.push(row),
                },
                Action::Failure => {}
            }
        }
        Self { events: events.to_vec(), filter: filter.clone(), lives, lost_frees, rows: start..stop }
    }

    /// Blocks that count, whether they live inside the window or not.
    fn selected(&self) -> impl Iterator<Item = &Life> {
        self.lives
            .iter()
            .filter(|life| self.filter.allows_origin(&life.alloc) && self.filter.allows_kind(life.alloc.kind))
    }

    /// Blocks that count and are live at some instant of the window.
    fn present(&self) -> impl Iterator<Item = &Life> {
        self.selected().filter(|life| life.end.is_none_or(|end| end >= self.rows.start))
    }

    fn is_carried(&self, life: &Life) -> bool {
        life.begin < self.rows.start
    }

    fn failures(&self) -> impl Iterator<Item = &Event> {
        self.events[self.rows.clone()].iter().filter(|event| {
            event.action == Action::Failure
                && self.filter.allows_place(event)
                && self.filter.allows_origin(event)
                && self.filter.allows_kind(event.kind)
        })
    }

    /// The kinds that figures cover: those of the filter; else device memory if there is any; else the
    /// kind of most bytes, then most blocks, then most failures, then the smallest number. Mapped address space comes
    /// after all others.
    pub fn main_kinds(&self) -> Vec<Kind> {
        if let Some(kinds) = &self.filter.kinds {
            let kinds: BTreeSet<Kind> = kinds.iter().copied().collect();
            return kinds.into_iter().collect();
        }
        if self.present().any(|life| life.alloc.kind == Kind::Device) {
            return vec![Kind::Device];
        }
        let mut best = None;
        for kind in Kind::ALL {
            let of_kind: Vec<&Life> = self.present().filter(|life| life.alloc.kind == kind).collect();
            let bytes: u64 = of_kind.iter().map(|life| life.alloc.bytes).sum();
            let failures = self.failures().filter(|event| event.kind == kind).count();
            let weight = (kind != Kind::Mapped, bytes, of_kind.len(), failures);
            let is_used = (bytes, of_kind.len(), failures) != (0, 0, 0);
            if is_used && best.is_none_or(|(heaviest, _)| weight > heaviest) {
                best = Some((weight, kind));
            }
        }
        vec![best.map_or(Kind::Device, |(_, kind)| kind)]
    }

    /// Blocks of some kinds that are live at some instant of the window.
    fn of_kinds(&self, kinds: &[Kind]) -> Vec<Life> {
        self.present().filter(|life| kinds.contains(&life.alloc.kind)).copied().collect()
    }

    /// Counters over the main kinds.
    pub fn counts(&self) -> Counts {
        let kinds = self.main_kinds();
        let lives = self.of_kinds(&kinds);
        let count = |wanted: &dyn Fn(&Life) -> bool| lives.iter().filter(|life| wanted(life)).count() as u64;
        let sum = |wanted: &dyn Fn(&Life) -> bool| -> u64 {
            lives.iter().filter(|life| wanted(life)).map(|life| life.alloc.bytes).sum()
        };
        let inside = |life: &Life| !self.is_carried(life);
        let live = |life: &Life| life.end.is_none();
        let addressed = |life: &Life| life.alloc.address != 0;
        let failures: Vec<u64> =
            self.failures().filter(|event| kinds.contains(&event.kind)).map(|event| event.bytes).collect();
        let lost: Vec<&Event> = self.lost_frees().collect();
        let times = self.counted_times();
        Counts {
            events: times.len() as u64,
            first_time_ns: times.first().copied(),
            last_time_ns: times.last().copied(),
            allocations: count(&inside),
            frees: count(&|life| life.free.is_some()),
            failures: failures.len() as u64,
            failed_bytes: failures.iter().sum(),
            largest_failure_bytes: failures.iter().copied().max().unwrap_or(0),
            unmatched_frees: lost.iter().filter(|event| event.address != 0).count() as u64,
            null_frees: lost.iter().filter(|event| event.address == 0).count() as u64,
            size_mismatches: count(&|life| {
                addressed(life)
                    && life
                        .free
                        .is_some_and(|free| free.bytes != UNKNOWN_BYTES && free.bytes != life.alloc.bytes)
            }),
            replaced_blocks: count(&|life| life.end.is_some() && life.free.is_none()),
            zero_size: count(&|life| inside(life) && life.alloc.bytes == 0),
            address_reuses: count(&|life| inside(life) && addressed(life) && self.follows_a_free(life)),
            cross_thread_frees: count(&|life| {
                addressed(life) && life.free.is_some_and(|free| free.thread != life.alloc.thread)
            }),
            carried_blocks: count(&|life| self.is_carried(life)),
            carried_bytes: sum(&|life| self.is_carried(life)),
            total_bytes: sum(&inside),
            live_bytes: sum(&live),
            live_blocks: count(&live),
            most_blocks: self.steps(&kinds).iter().map(|step| step.blocks).max().unwrap_or(0),
        }
    }

    /// Frees inside the window that ended no block and count.
    fn lost_frees(&self) -> impl Iterator<Item = &Event> {
        self.lost_frees.iter().filter(|row| self.rows.contains(row)).map(|row| &self.events[*row]).filter(
            |event| {
                self.filter.allows_origin(event)
                    && (event.kind == Kind::Unknown || self.filter.allows_kind(event.kind))
            },
        )
    }

    /// Times of all events of the window that count, whatever their kind, in order of rows.
    fn counted_times(&self) -> Vec<i64> {
        let allocs = self.present().filter(|life| !self.is_carried(life)).map(|life| life.begin);
        let frees = self.present().filter(|life| life.free.is_some()).filter_map(|life| life.end);
        let of_rows: BTreeSet<usize> = allocs.chain(frees).collect();
        let times = |row: usize| {
            let event = &self.events[row];
            let lost = self.lost_frees().any(|other| std::ptr::eq(other, event));
            let failed = self.failures().any(|other| std::ptr::eq(other, event));
            (of_rows.contains(&row) || lost || failed).then_some(event.time_ns)
        };
        self.rows.clone().filter_map(times).collect()
    }

    /// Whether the block before this one at its address was freed.
    fn follows_a_free(&self, life: &Life) -> bool {
        let same_address = |other: &&Life| {
            let place = |event: &Event| (event.process, event.device, event.resource, event.address);
            other.begin < life.begin && place(&other.alloc) == place(&life.alloc)
        };
        self.lives.iter().rfind(same_address).is_some_and(|before| before.free.is_some())
    }

    /// Sizes of all allocations of the main kinds in the window, sorted.
    pub fn sizes(&self) -> Vec<u64> {
        let lives = self.of_kinds(&self.main_kinds());
        let inside = lives.iter().filter(|life| !self.is_carried(life));
        let mut sizes: Vec<u64> = inside.map(|life| life.alloc.bytes).collect();
        sizes.sort_unstable();
        sizes
    }

    /// Live bytes after each change, in order; the first step is what is carried into the window.
    fn steps(&self, kinds: &[Kind]) -> Vec<Step> {
        self.steps_of(&self.of_kinds(kinds))
    }

    fn steps_of(&self, lives: &[Life]) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut live: Vec<Life> = lives.iter().filter(|life| self.is_carried(life)).copied().collect();
        if let Some(from_ns) = self.filter.from_ns {
            steps.push(Step::new(from_ns, &live));
        }
        for row in self.rows.clone() {
            let time_ns = self.events[row].time_ns;
            if live.iter().any(|life| life.end == Some(row)) {
                live.retain(|life| life.end != Some(row));
                steps.push(Step::new(time_ns, &live));
            }
            if let Some(life) = lives.iter().find(|life| life.begin == row) {
                live.push(*life);
                steps.push(Step::new(time_ns, &live));
            }
        }
        steps
    }

    /// The watermark of the main kinds.
    pub fn peak(&self) -> Peak {
        peak_of(self.steps(&self.main_kinds()))
    }

    /// The height of some kinds together.
    pub fn level_of(&self, kinds: &[Kind]) -> Height {
        height_of(self.steps(kinds))
    }

    /// Heights by process, device, kind and resource.
    pub fn ledgers(&self) -> BTreeMap<(u32, i32, Kind, u32), Height> {
        let place = |event: &Event| (event.process.0, event.device, event.kind, event.resource.0);
        let mut ledgers = BTreeMap::new();
        for life in self.present() {
            ledgers.entry(place(&life.alloc)).or_insert_with(|| {
                let lives: Vec<Life> = self
                    .present()
                    .filter(|other| place(&other.alloc) == place(&life.alloc))
                    .copied()
                    .collect();
                height_of(self.steps_of(&lives))
            });
        }
        for failure in self.failures() {
            ledgers.entry(place(failure)).or_insert((0, None, 0));
        }
        ledgers
    }

    /// Blocks of the main kinds that are live after the last event at or before `at_ns`; rows count up
    /// to the first that is later. None before the window.
    pub fn blocks_at(&self, at_ns: i64) -> Vec<Life> {
        if self.filter.from_ns.is_some_and(|from| from > at_ns) {
            return Vec::new();
        }
        // A row counts as later only if it changes something that counts.
        let changes = |row: &usize| {
            self.present()
                .any(|life| life.end == Some(*row) || (life.begin == *row && !self.is_carried(life)))
        };
        let later = |row: &usize| self.events[*row].time_ns > at_ns && changes(row);
        let stop = self.rows.clone().find(later).unwrap_or(self.rows.end);
        let lives = self.of_kinds(&self.main_kinds());
        let live = |life: &Life| life.begin < stop && life.end.is_none_or(|end| end >= stop);
        lives.into_iter().filter(live).collect()
    }

    /// Every change of live bytes of the main kinds; of changes at one instant that go the same way
    /// only the last.
    pub fn timeline(&self) -> Vec<(i64, u64)> {
        let mut points = vec![];
        let mut before = 0;
        for step in self.steps(&self.main_kinds()) {
            if step.bytes != before {
                points.push((step.time_ns, before, step.bytes));
            }
            before = step.bytes;
        }
        let rises = |(_, before, after): (i64, u64, u64)| after > before;
        let continues = |at: usize| {
            at + 1 < points.len()
                && points[at].0 == points[at + 1].0
                && rises(points[at]) == rises(points[at + 1])
        };
        (0..points.len()).filter(|at| !continues(*at)).map(|at| (points[at].0, points[at].2)).collect()
    }

    /// The last instant: the end of the window if events go on behind it, else that of the last event
    /// in it; the beginning of the window if it has no event.
    pub fn end_ns(&self) -> Option<i64> {
        if self.rows.end < self.events.len() {
            self.filter.to_ns
        } else if self.rows.is_empty() {
            self.filter.from_ns.filter(|_| !self.events.is_empty())
        } else {
            self.events.last().map(|event| event.time_ns)
        }
    }

    /// Blocks of the main kinds that are live at the end.
    pub fn live(&self) -> Vec<Life> {
        let live = |life: &Life| life.end.is_none();
        self.of_kinds(&self.main_kinds()).into_iter().filter(live).collect()
    }

    /// Those of them that are neither static nor held by an allocator.
    pub fn leaks(&self) -> Vec<Life> {
        let apart = |life: &Life| matches!(life.alloc.kind, Kind::Static | Kind::Reserved);
        self.live().into_iter().filter(|life| !apart(life)).collect()
    }

    /// Static blocks that are live at the end.
    pub fn statics(&self) -> Vec<Life> {
        self.of_kinds(&[Kind::Static]).into_iter().filter(|life| life.end.is_none()).collect()
    }

    /// Blocks of the main kinds that are not static, by stack, or by name without one: how many there
    /// are and how many ended.
    pub fn by_origin(&self) -> BTreeMap<(StackId, StringId), (u64, u64)> {
        let mut origins = BTreeMap::new();
        for life in self.of_kinds(&self.main_kinds()) {
            if life.alloc.kind == Kind::Static {
                continue;
            }
            let counts: &mut (u64, u64) = origins.entry(origin(&life.alloc)).or_default();
            counts.0 += 1;
            counts.1 += u64::from(life.end.is_some());
        }
        origins
    }

    /// Allocations of the main kinds in the window whose block was freed by the next thing that their thread did: how
    /// many, and their bytes. What a thread does are allocations and frees of blocks that count.
    pub fn temporary(&self) -> (u64, u64) {
        let deeds = |life: &Life| {
            let alloc =
                (!self.is_carried(life)).then_some((life.begin, life.alloc.process, life.alloc.thread));
            let free = life.free.and_then(|free| Some((life.end?, free.process, free.thread)));
            alloc.into_iter().chain(free)
        };
        let deeds: Vec<_> = self.present().flat_map(deeds).collect();
        let is_temporary = |life: &&Life| {
            let (Some(end), Some(free)) = (life.end, life.free) else { return false };
            let between = deeds.iter().any(|(row, process, thread)| {
                (life.begin + 1..end).contains(row) && (*process, *thread) == (free.process, free.thread)
            });
            !self.is_carried(life) && free.thread == life.alloc.thread && !between
        };
        let lives = self.of_kinds(&self.main_kinds());
        let temporary: Vec<u64> = lives.iter().filter(is_temporary).map(|life| life.alloc.bytes).collect();
        (temporary.len() as u64, temporary.iter().sum())
    }

    /// Bytes of all blocks that count and are live at an instant: before the first row of the window that is later.
    pub fn live_bytes_at(&self, time_ns: i64) -> u64 {
        let rows = self.rows.clone();
        let row = rows.clone().find(|row| self.events[*row].time_ns > time_ns).unwrap_or(rows.end);
        let is_live = |life: &&Life| life.begin < row && life.end.is_none_or(|end| end >= row);
        self.present().filter(is_live).map(|life| life.alloc.bytes).sum()
    }

    /// Allocations of the main kinds in the window: origin, time and bytes.
    pub fn allocated(&self) -> Vec<((StackId, StringId), i64, u64)> {
        let lives = self.of_kinds(&self.main_kinds());
        let inside = lives.iter().filter(|life| !self.is_carried(life));
        inside.map(|life| (origin(&life.alloc), life.alloc.time_ns, life.alloc.bytes)).collect()
    }

    /// Blocks of the main kinds that were freed in the window: stack, or name without one; lifetime;
    /// bytes.
    pub fn lifetimes(&self) -> Vec<((StackId, StringId), u64, u64)> {
        let ended = |life: &Life| {
            let lifetime_ns = (life.free?.time_ns - life.alloc.time_ns).max(0) as u64;
            Some((origin(&life.alloc), lifetime_ns, life.alloc.bytes))
        };
        self.of_kinds(&self.main_kinds()).iter().filter_map(ended).collect()
    }
}

fn origin(event: &Event) -> (StackId, StringId) {
    if event.stack.0 == 0 { (event.stack, event.name) } else { (event.stack, StringId(0)) }
}

/// What is live after a change.
#[derive(Clone, Debug)]
struct Step {
    time_ns: i64,
    bytes: u64,
    blocks: u64,
    live: Vec<Life>,
}

impl Step {
    fn new(time_ns: i64, live: &[Life]) -> Self {
        let bytes = live.iter().map(|life| life.alloc.bytes).sum();
        Self { time_ns, bytes, blocks: live.len() as u64, live: live.to_vec() }
    }
}

fn height_of(steps: Vec<Step>) -> Height {
    let last = steps.last().map_or(0, |step| step.bytes);
    let (bytes, time_ns, _) = peak_of(steps);
    (bytes, time_ns, last)
}

fn peak_of(steps: Vec<Step>) -> Peak {
    let mut peak: Peak = (0, None, Vec::new());
    for step in steps {
        if step.bytes > peak.0 {
            peak = (step.bytes, Some(step.time_ns), step.live);
        }
    }
    peak
}
