//! Events of a program that never ran: as many as wanted, always the same for the same properties.
//!
//! The program keeps about a target number of blocks live, allocates from a pool that hands out
//! freed addresses again, and works in bursts of one thread. Memory grows with live blocks, not with
//! events, and a fresh event costs some tens of nanoseconds.

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::{Frame, Process};
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, StackId, Tables};

use crate::random::Random;

/// Which sizes a program allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeMix {
    /// Fifty sizes, few of them often: multiples of 256 and small odd ones.
    Steady,
    /// Any size from 1 to this, all equally likely.
    Random {
        /// Largest size.
        max_bytes: u64,
    },
}

/// What the program is like.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadProps {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Number of events.
    pub events: u64,
    /// Threads, at least 1.
    pub threads: u32,
    /// Streams, at least 1.
    pub streams: u32,
    /// Blocks that are live at a time, about.
    pub live: usize,
    /// Sizes.
    pub sizes: SizeMix,
    /// Probability that a block is never freed.
    pub leak_rate: f64,
    /// Probability that an event is a failed allocation.
    pub failure_rate: f64,
    /// Probability that an event frees a block nobody saw allocated.
    pub unknown_free_rate: f64,
    /// Different call stacks; 0 for none at all.
    pub stacks: u32,
    /// Frames of a stack, at least 3.
    pub stack_depth: u32,
    /// Time of the first event.
    pub start_ns: i64,
    /// Shortest and longest time between events; now and then there is a pause.
    pub gap_ns: (u64, u64),
    /// Device of all events.
    pub device: i32,
    /// Kind of all events.
    pub kind: Kind,
}

impl Default for WorkloadProps {
    fn default() -> Self {
        Self {
            seed: 1,
            events: 100_000,
            threads: 1,
            streams: 1,
            live: 1000,
            sizes: SizeMix::Steady,
            leak_rate: 0.0,
            failure_rate: 0.0,
            unknown_free_rate: 0.0,
            stacks: 0,
            stack_depth: 12,
            start_ns: 1_700_000_000_000_000_000,
            gap_ns: (20, 400),
            device: 0,
            kind: Kind::Device,
        }
    }
}

/// A program that never ran.
#[derive(Clone, Debug)]
pub struct Workload {
    props: WorkloadProps,
    random: Random,
    tables: Tables,
    stacks: Vec<StackId>,
    sizes: Sizes,
    pool: Pool,
    live: Vec<Live>,
    emitted: u64,
    time_ns: i64,
    thread: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    address: u64,
    bytes: u64,
    thread: u64,
    stream: u64,
}

impl Workload {
    /// Prepares a program with these properties.
    pub fn new(props: WorkloadProps) -> Self {
        let mut random = Random::new(props.seed);
        let mut tables = Tables::default();
        tables.processes.push(Process {
            id: ProcessId(1),
            pid: 4242,
            command: "workload".into(),
            start_ns: props.start_ns,
            ..Process::default()
        });
        let stacks = (0..props.stacks).map(|number| stack(&mut tables, number, props.stack_depth)).collect();
        Self {
            sizes: Sizes::new(props.sizes, &mut random),
            random,
            tables,
            stacks,
            pool: Pool::default(),
            live: Vec::with_capacity(props.live + 1),
            emitted: 0,
            time_ns: props.start_ns,
            thread: 1000,
            props,
        }
    }

    /// What ids in the events point to.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Fills `batch` with the next events; `false` when there are no more.
    pub fn fill(&mut self, batch: &mut EventBatch) -> bool {
        batch.clear();
        while batch.len() < BATCH_ROWS {
            let Some(event) = self.next_event() else { break };
            batch.push(&event);
        }
        !batch.is_empty()
    }

    /// Yields the events one by one.
    pub fn events(mut self) -> impl Iterator<Item = Event> {
        std::iter::from_fn(move || self.next_event())
    }

    fn next_event(&mut self) -> Option<Event> {
        if self.emitted == self.props.events {
            return None;
        }
        if self.emitted > 0 {
            self.advance();
        }
        self.emitted += 1;
        let base = Event {
            time_ns: self.time_ns,
            process: ProcessId(1),
            thread: self.thread,
            device: self.props.device,
            kind: self.props.kind,
            ..Event::default()
        };
        Some(if self.random.happens(self.props.failure_rate) {
            Event { action: Action::Failure, bytes: 1 << 40, stream: self.stream(), ..base }
        } else if self.random.happens(self.props.unknown_free_rate) {
            let address = 0x6000_0000_0000 + self.random.below(1 << 20) * 256;
            Event { action: Action::Free, address, bytes: 64, stream: self.stream(), ..base }
        } else if self.live.is_empty() || self.random.happens(self.appetite()) {
            self.alloc(base)
        } else {
            self.free(base)
        })
    }

    fn advance(&mut self) {
        let (shortest, longest) = self.props.gap_ns;
        let mut gap = shortest + self.random.below(longest.max(shortest) - shortest + 1);
        if self.random.below(1000) == 0 {
            gap *= 50;
        }
        self.time_ns += gap as i64;
        if self.random.below(16) == 0 {
            self.thread = 1000 + self.random.below(u64::from(self.props.threads.max(1)));
        }
    }

    /// How likely the next event is an allocation: rises fast, then hovers around the target.
    fn appetite(&self) -> f64 {
        match self.live.len() {
            live if live * 2 < self.props.live => 0.73,
            live if live < self.props.live => 0.51,
            _ => 0.45,
        }
    }

    fn stream(&mut self) -> u64 {
        let streams = u64::from(self.props.streams.max(1));
        // Mostly a thread's own stream; the first one is the default stream.
        let number =
            if self.random.below(8) == 0 { self.random.below(streams) } else { self.thread % streams };
        if number == 0 { 0 } else { 0x557f_c69e_a000 + number * 0x40 }
    }

    fn alloc(&mut self, base: Event) -> Event {
        let bytes = self.sizes.draw(&mut self.random);
        let block =
            Live { address: self.pool.take(bytes), bytes, thread: self.thread, stream: self.stream() };
        if !self.random.happens(self.props.leak_rate) {
            self.live.push(block);
        }
        let stack = match self.stacks.len() as u64 {
            0 => StackId(0),
            // Some places allocate far more than others.
            count => self.stacks[(self.random.below(count) * self.random.below(count) / count) as usize],
        };
        Event { action: Action::Alloc, address: block.address, bytes, stream: block.stream, stack, ..base }
    }

    fn free(&mut self, base: Event) -> Event {
        // Half of all frees end one of the newest blocks, as temporaries do.
        let count = self.live.len() as u64;
        let newest = if self.random.below(2) == 0 { count.min(64) } else { count };
        let block = self.live.swap_remove((count - 1 - self.random.below(newest)) as usize);
        self.pool.give_back(block.address, block.bytes);
        let thread = if self.random.below(10) == 0 { base.thread } else { block.thread };
        Event {
            action: Action::Free,
            address: block.address,
            bytes: block.bytes,
            stream: block.stream,
            thread,
            ..base
        }
    }
}

/// Interns a stack: runtime frames innermost, then a function of its own, then shared callers.
fn stack(tables: &mut Tables, number: u32, depth: u32) -> StackId {
    let depth = depth.max(3);
    (0..depth).fold(StackId(0), |parent, level| {
        let innermost = depth - 1 - level;
        let frame = match innermost {
            0 => Frame {
                function: tables.intern("cudaMalloc"),
                module: tables.intern("/usr/local/cuda/lib64/libcudart.so.12"),
                address: 0x7f00_0010,
                ..Frame::default()
            },
            1 => Frame {
                function: tables.intern("rmm::mr::pool_memory_resource::allocate"),
                module: tables.intern("/opt/lib/librmm.so"),
                address: 0x7f00_0020,
                ..Frame::default()
            },
            2 => Frame {
                function: tables.intern(&format!("step_{number}")),
                file: tables.intern("model.py"),
                line: 10 + number,
                ..Frame::default()
            },
            _ => Frame {
                function: tables.intern(&format!("caller_{level}_{}", number % (level * 2 + 1))),
                file: tables.intern("main.py"),
                line: 100 + level,
                ..Frame::default()
            },
        };
        let frame = tables.intern_frame(frame);
        tables.intern_stack(parent, frame)
    })
}

/// Draws sizes.
#[derive(Clone, Debug)]
enum Sizes {
    /// Each entry equally likely, each size as often as it is common.
    Table(Vec<u64>),
    Uniform(u64),
}

impl Sizes {
    fn new(mix: SizeMix, random: &mut Random) -> Self {
        let SizeMix::Random { max_bytes } = mix else {
            let sizes: Vec<u64> = (0..50)
                .map(|number| match number % 5 {
                    0 | 3 => 1 + random.below(2000),
                    _ => 256 << random.below(13),
                })
                .collect();
            // The size of rank r is 1/r as common as the first one.
            let table = sizes.iter().enumerate().flat_map(|(rank, size)| vec![*size; 1024 / (rank + 1)]);
            return Self::Table(table.collect());
        };
        Self::Uniform(max_bytes.max(1))
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Self::Table(table) => table[random.below(table.len() as u64) as usize],
            Self::Uniform(max) => 1 + random.below(*max),
        }
    }
}

/// Hands out addresses: those given back last come first, for sizes of the same class.
#[derive(Clone, Debug)]
struct Pool {
    /// Addresses given back, by class.
    free: Vec<Vec<u64>>,
    top: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Self { free: vec![Vec::new(); 4 * 65], top: 0x7f00_0000_0000 }
    }
}

impl Pool {
    /// Class of a size and the bytes its blocks occupy: four steps per power of two, multiples of 256.
    fn class(bytes: u64) -> (usize, u64) {
        let units = bytes.div_ceil(256).max(1);
        let power = units.ilog2();
        let step = (1u64 << power).div_ceil(4);
        let steps = (units - (1 << power)).div_ceil(step);
        (power as usize * 4 + steps as usize, ((1 << power) + steps * step) * 256)
    }

    #[inline]
    fn take(&mut self, bytes: u64) -> u64 {
        let (class, occupied) = Self::class(bytes);
        self.free[class].pop().unwrap_or_else(|| {
            let address = self.top;
            self.top += occupied;
            address
        })
    }

    #[inline]
    fn give_back(&mut self, address: u64, bytes: u64) {
        self.free[Self::class(bytes).0].push(address);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn rich() -> WorkloadProps {
        WorkloadProps {
            events: 50_000,
            threads: 4,
            streams: 3,
            leak_rate: 0.001,
            failure_rate: 0.001,
            unknown_free_rate: 0.001,
            stacks: 40,
            ..WorkloadProps::default()
        }
    }

    #[test]
    fn the_same_properties_give_the_same_events() {
        let (first, second) = (Workload::new(rich()), Workload::new(rich()));
        assert!(first.events().eq(second.events()));
        let other = Workload::new(WorkloadProps { seed: 2, ..rich() });
        assert!(Workload::new(rich()).events().ne(other.events()));
    }

    #[test]
    fn batches_hold_what_the_iterator_yields() {
        let (mut source, mut batch, mut events) = (Workload::new(rich()), EventBatch::new(), Vec::new());
        while source.fill(&mut batch) {
            events.extend(batch.events());
        }
        assert!(events.into_iter().eq(Workload::new(rich()).events()));
    }

    #[test]
    fn live_blocks_never_overlap_and_stay_near_the_target() {
        for sizes in [SizeMix::Steady, SizeMix::Random { max_bytes: 1 << 30 }] {
            let mut live: HashMap<u64, u64> = HashMap::new();
            let props = WorkloadProps { events: 20_000, live: 300, sizes, ..rich() };
            for event in Workload::new(props).events() {
                match event.action {
                    Action::Alloc => assert_eq!(live.insert(event.address, event.bytes), None),
                    Action::Free if event.address < 0x7f00_0000_0000 => {}
                    Action::Free => assert_eq!(live.remove(&event.address), Some(event.bytes)),
                    Action::Failure => {}
                }
            }
            assert!((200..500).contains(&live.len()), "{}", live.len());
            let mut blocks: Vec<_> = live.into_iter().collect();
            blocks.sort_unstable();
            assert!(blocks.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        }
    }

    #[test]
    fn time_goes_on_and_everything_asked_for_occurs() {
        let events: Vec<Event> = Workload::new(rich()).events().collect();
        assert!(events.windows(2).all(|pair| pair[0].time_ns < pair[1].time_ns));
        let count = |wanted: fn(&&Event) -> bool| events.iter().filter(wanted).count();
        assert!((20..100).contains(&count(|event| event.action == Action::Failure)));
        assert!((20..100).contains(&count(|event| event.address >> 44 == 6)));
        let threads: std::collections::HashSet<u64> = events.iter().map(|event| event.thread).collect();
        let streams: std::collections::HashSet<u64> = events.iter().map(|event| event.stream).collect();
        assert_eq!((threads.len(), streams.len()), (4, 3));
    }
}
