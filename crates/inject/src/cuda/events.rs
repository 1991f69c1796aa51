//! From calls of the driver to events, whichever way the calls are seen.
//!
//! An allocation is recorded after it succeeded and a free before it happens, so that an address which is used again at
//! once by another thread never looks allocated twice. A free that fails brings its block back.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use floodmark_event::event::Action;
use floodmark_event::{CONTEXT_TEARDOWN, Kind, NO_DEVICE, StackId, StringId, UNKNOWN_BYTES};
use floodmark_tail::gpu::GpuNote;
use floodmark_tail::{AllocDomain, BlockEvent, intern};

use super::blocks::{self, Block, Space};
use super::calls::{Act, CALLS};
use super::shapes::{array_bytes, array3d_bytes, graph_alloc, mipmap_bytes};
use super::{driver, pools, shapes, statics, torch};
use crate::capture::{Caller, Entered, enter_started};
use crate::cold::run_cold;
use crate::fence::fence;
use crate::thread::SavedErrno;

/// Results of the driver.
const SUCCESS: i32 = 0;
const OUT_OF_MEMORY: i32 = 2;

/// Devices whose primary context is counted.
const DEVICES: usize = 64;

/// A call of a function of the driver.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Its index in the list of functions.
    pub(super) index: usize,
    /// Its arguments, a word each; not null.
    pub(super) arguments: *const u64,
    /// The context of the calling thread; none if it has to be asked for.
    pub(super) context: Option<u64>,
}

impl Seen {
    fn act(&self) -> Act {
        CALLS[self.index].act
    }

    fn argument(&self, at: usize) -> u64 {
        // SAFETY: callers ask for arguments that the function has.
        unsafe { self.arguments.add(at).read_unaligned() }
    }

    /// A number of 32 bits: the rest of its word may have anything.
    fn number(&self, at: usize) -> u32 {
        self.argument(at) as u32
    }

    /// What the function stored where an argument points to; none for null.
    fn stored(&self, at: usize) -> Option<u64> {
        let place = self.argument(at) as usize as *const u64;
        // SAFETY: the function stored its result there.
        (!place.is_null()).then(|| unsafe { place.read_unaligned() })
    }

    fn context(&self) -> u64 {
        self.context.unwrap_or_else(driver::current_context)
    }
}

/// Names of functions in the recording, by index.
static RESOURCES: [AtomicU32; CALLS.len()] = [const { AtomicU32::new(0) }; CALLS.len()];

/// Prepares for events, once the recording has started.
pub(super) fn prepare() {
    run_cold(&mut || {
        for (call, resource) in CALLS.iter().zip(&RESOURCES) {
            resource.store(intern(call.base).0, Ordering::Relaxed);
        }
    });
}

/// Kind of the memory that a function allocates.
const fn kind_of(act: Act) -> Kind {
    match act {
        Act::Managed => Kind::Managed,
        Act::Pinned | Act::Register => Kind::Pinned,
        Act::Array | Act::Array3d | Act::Mipmap => Kind::Array,
        Act::Device | Act::Pitched | Act::Async | Act::FromPool | Act::Create => Kind::Device,
        _ => Kind::Mapped,
    }
}

/// Where blocks of a function are kept.
const fn space_of(act: Act) -> Space {
    match act {
        Act::Create | Act::Import => Space::Physical,
        Act::Map => Space::Mapping,
        Act::Reserve => Space::Reservation,
        _ => Space::Memory,
    }
}

fn domain_of(block: &Block, stream: u64) -> AllocDomain {
    let source = usize::from(block.source);
    let (kind, resource) = match CALLS[source].act {
        // Where it is mapped it counts.
        Act::Create if block.is_segment => (Kind::Mapped, RESOURCES[source].load(Ordering::Relaxed)),
        _ if block.is_segment => (Kind::Reserved, torch::segments()),
        act => (kind_of(act), RESOURCES[source].load(Ordering::Relaxed)),
    };
    AllocDomain { device: block.device, kind, stream, resource: StringId(resource), ..AllocDomain::default() }
}

/// What happens to a block, which has no name of its own.
pub(super) const fn event_of(action: Action, address: u64, bytes: u64) -> BlockEvent {
    BlockEvent { action, address, bytes, is_named: false }
}

/// A block that a call allocates.
fn new_block(seen: &Seen, bytes: u64, stack: StackId) -> Block {
    let context = seen.context();
    Block {
        bytes,
        stream: 0,
        context,
        device: driver::device_of(context),
        stack,
        source: seen.index as u8,
        is_freed: false,
        is_segment: false,
        handles: 0,
        mappings: 0,
        owner: 0,
    }
}

/// Before a call: what it ends is recorded.
pub(super) fn before(seen: &Seen) {
    match seen.act() {
        Act::Free => free(seen.argument(0), 0, seen),
        Act::FreeAsync => free(seen.argument(0), seen.argument(1), seen),
        Act::Unmap => unmap(seen.argument(0), seen.argument(1)),
        Act::Release => release(seen.argument(0)),
        Act::GraphDestroy => {
            let graph = seen.argument(0);
            end_all("", |_, _, block| is_of_graph(block) && block.owner == graph);
        }
        Act::ContextDestroy => tear_down(seen.argument(0)),
        Act::PrimaryReset => tear_down(primary(seen.number(0)).0.swap(0, Ordering::AcqRel)),
        Act::PrimaryRelease => {
            let (context, count) = primary(seen.number(0));
            if count.fetch_sub(1, Ordering::AcqRel) == 1 {
                tear_down(context.swap(0, Ordering::AcqRel));
            }
        }
        Act::PoolDestroy => pools::ended(seen.argument(0)),
        _ => {}
    }
}

/// After a call with its result: what it began is recorded.
pub(super) fn after(seen: &Seen, result: i32, caller: Caller) {
    match result {
        SUCCESS => began(seen, caller),
        OUT_OF_MEMORY => failed(seen, caller),
        _ => {}
    }
    if result != SUCCESS && matches!(seen.act(), Act::Free | Act::FreeAsync) {
        brought_back(seen);
    }
}

fn began(seen: &Seen, caller: Caller) {
    match seen.act() {
        Act::Device | Act::Managed | Act::Pinned => allocated(seen, seen.argument(1), |_| {}, caller),
        Act::Pitched => {
            // The driver says how long its rows are.
            let bytes = seen.stored(1).unwrap_or_else(|| seen.argument(2)).saturating_mul(seen.argument(3));
            allocated(seen, bytes, |_| {}, caller);
        }
        Act::Register => allocated_at(seen, seen.argument(0), seen.argument(1), |_| {}, caller),
        Act::Async => {
            let stream = seen.argument(2);
            allocated(seen, seen.argument(1), |block| block.stream = stream, caller);
            pools::allocated(driver::device_of(seen.context()));
        }
        Act::FromPool => {
            let stream = seen.argument(3);
            allocated(seen, seen.argument(1), |block| block.stream = stream, caller);
            pools::sampled(seen.argument(2), driver::device_of(seen.context()));
        }
        Act::Free | Act::FreeAsync => freed(seen),
        Act::Create => create(seen, caller),
        Act::Import => allocated(seen, 0, |block| (block.handles, block.context) = (1, 0), caller),
        Act::Retain => {
            if let Some(handle) = seen.stored(0) {
                blocks::update(Space::Physical, handle, |block| block.handles += 1);
            }
        }
        Act::Map => map(seen, caller),
        Act::Reserve => {
            let alone = |block: &mut Block| (block.context, block.device) = (0, NO_DEVICE);
            allocated(seen, seen.argument(1), alone, caller);
        }
        Act::Array => allocated(seen, array_bytes(seen.argument(1)), |_| {}, caller),
        Act::Array3d => allocated(seen, array3d_bytes(seen.argument(1)), |_| {}, caller),
        Act::Mipmap => allocated(seen, mipmap_bytes(seen.argument(1), seen.number(2)), |_| {}, caller),
        Act::GraphAlloc => graph_node(seen, graph_alloc(seen.argument(4)), caller),
        Act::GraphNode { parameters } => {
            graph_node(seen, shapes::graph_node(seen.argument(parameters)), caller);
        }
        Act::IpcOpen | Act::PoolImport => {
            let bytes = seen.stored(0).map_or(0, driver::bytes_of);
            allocated(seen, bytes, |_| {}, caller);
        }
        Act::ExternalBuffer => {
            allocated(seen, shapes::external_bytes(seen.argument(2)), |_| {}, caller);
        }
        Act::PrimaryRetain => {
            let (context, count) = primary(seen.number(1));
            context.store(seen.stored(0).unwrap_or(0), Ordering::Release);
            count.fetch_add(1, Ordering::AcqRel);
        }
        Act::PoolCreate => {
            if let Some(pool) = seen.stored(0) {
                pools::sampled(pool, shapes::pool_device(seen.argument(1)));
            }
        }
        Act::PoolTrim => pools::trimmed(seen.argument(0)),
        _ => {}
    }
}

/// Records a block whose address is where the first argument points to.
fn allocated(seen: &Seen, bytes: u64, change: impl FnOnce(&mut Block), caller: Caller) {
    if let Some(address) = seen.stored(0).filter(|address| *address != 0) {
        allocated_at(seen, address, bytes, change, caller);
    }
}

fn allocated_at(seen: &Seen, address: u64, bytes: u64, change: impl FnOnce(&mut Block), caller: Caller) {
    let mut block = new_block(seen, bytes, StackId(0));
    change(&mut block);
    record(|entered| {
        block.stack = entered.stack(caller);
        if matches!(seen.act(), Act::Device | Act::Create) {
            block.is_segment = torch::asks(entered);
        }
        let space = space_of(seen.act());
        if let Some(missed) = blocks::insert(space, address, block) {
            // Its end was not seen, and may have another domain than the new block.
            end(entered, address, &missed, missed.stream);
        }
        begin(entered, address, &block);
    });
}

/// Calls `work` as a thread that records.
pub(super) fn record(work: impl FnOnce(&Entered)) {
    let _errno = SavedErrno::save();
    if let Some(entered) = enter_started() {
        fence(|| work(&entered));
    }
}

fn begin(entered: &Entered, address: u64, block: &Block) {
    let what = event_of(Action::Alloc, address, block.bytes);
    entered.event_in(&domain_of(block, block.stream), what, block.stack, None);
}

fn end(entered: &Entered, address: u64, block: &Block, stream: u64) {
    entered.event_in(
        &domain_of(block, stream),
        event_of(Action::Free, address, block.bytes),
        StackId(0),
        None,
    );
}

/// Where the block is kept that a function frees.
fn freed_space(seen: &Seen) -> Space {
    // Reserved addresses and those of a mapping may be the same numbers.
    if CALLS[seen.index].base == "cuMemAddressFree" { Space::Reservation } else { Space::Memory }
}

fn free(address: u64, stream: u64, seen: &Seen) {
    if address == 0 {
        return;
    }
    let space = freed_space(seen);
    record(|entered| {
        if let Some(block) = blocks::free(space, address) {
            let stream = if stream == 0 { block.stream } else { stream };
            end(entered, address, &block, stream);
        }
    });
}

/// A free has succeeded. If its block is not known, it was allocated before the recording, or by a call that was not seen.
/// Reserved addresses, of which no event would tell anything, are left out.
fn freed(seen: &Seen) {
    let address = seen.argument(0);
    if address == 0 || blocks::has_seen(freed_space(seen), address) {
        return;
    }
    let stream = if seen.act() == Act::FreeAsync { seen.argument(1) } else { 0 };
    let kind = match CALLS[seen.index].base {
        "cuMemFree" | "cuMemFreeAsync" => Kind::Device,
        "cuMemFreeHost" | "cuMemHostUnregister" => Kind::Pinned,
        "cuArrayDestroy" | "cuMipmappedArrayDestroy" => Kind::Array,
        _ => return,
    };
    let resource = StringId(RESOURCES[seen.index].load(Ordering::Relaxed));
    let domain = AllocDomain {
        device: driver::device_of(seen.context()),
        kind,
        stream,
        resource,
        ..AllocDomain::default()
    };
    record(|entered| {
        entered.event_in(&domain, event_of(Action::Free, address, UNKNOWN_BYTES), StackId(0), None);
    });
}

/// A free has failed: its block is there as before.
fn brought_back(seen: &Seen) {
    let address = seen.argument(0);
    record(|entered| {
        if let Some(block) = blocks::unfree(freed_space(seen), address) {
            begin(entered, address, &block);
        }
    });
}

/// Records that an allocation failed for lack of memory.
#[cold]
fn failed(seen: &Seen, caller: Caller) {
    let bytes = match seen.act() {
        Act::Device
        | Act::Managed
        | Act::Pinned
        | Act::Async
        | Act::FromPool
        | Act::Create
        | Act::Register
        | Act::Map
        | Act::Reserve => seen.argument(1),
        Act::Pitched => seen.argument(2).saturating_mul(seen.argument(3)),
        Act::Array => array_bytes(seen.argument(1)),
        Act::Array3d => array3d_bytes(seen.argument(1)),
        Act::Mipmap => mipmap_bytes(seen.argument(1), seen.number(2)),
        Act::GraphAlloc => graph_alloc(seen.argument(4)).map_or(0, |(_, bytes, _)| bytes),
        _ => return,
    };
    let mut block = new_block(seen, bytes, StackId(0));
    if seen.act() == Act::Create {
        block.device = shapes::create_device(seen.argument(2)).unwrap_or(block.device);
    }
    let memory = driver::memory_info();
    record(|entered| {
        let stack = entered.stack(caller);
        let mut domain = domain_of(&block, stream_of(seen));
        if matches!(seen.act(), Act::Device | Act::Create) && torch::asks(entered) {
            // The cache may give unused segments back and ask again: it tells itself what fails in the end.
            (domain.kind, domain.resource) = (Kind::Reserved, StringId(torch::segments()));
        }
        entered.event_in(&domain, event_of(Action::Failure, 0, bytes), stack, None);
        if let Some((free, total)) = memory {
            run_cold(&mut || note_free(&domain, free, total));
        }
    });
}

fn stream_of(seen: &Seen) -> u64 {
    match seen.act() {
        Act::Async => seen.argument(2),
        Act::FromPool => seen.argument(3),
        _ => 0,
    }
}

/// Says how much memory the device had free at a failure, in the order of failures of the device and the kind.
pub(super) fn note_free(domain: &AllocDomain, free: u64, total: u64) {
    static FAILURES: [AtomicU32; DEVICES * Kind::ALL.len()] =
        [const { AtomicU32::new(0) }; DEVICES * Kind::ALL.len()];
    let Some(device) = usize::try_from(domain.device).ok().filter(|device| *device < DEVICES) else { return };
    let number =
        FAILURES[device * Kind::ALL.len() + domain.kind as usize].fetch_add(1, Ordering::Relaxed) + 1;
    let what = format!("{} {} {} {free} {total}", std::process::id(), domain.device, domain.kind.name());
    super::note(GpuNote::FreeAtFailure, number, &what);
}

/// Physical memory: of a device, or of the host.
fn create(seen: &Seen, caller: Caller) {
    let device = shapes::create_device(seen.argument(2));
    let alone = |block: &mut Block| {
        // Physical memory belongs to no context.
        (block.context, block.handles) = (0, 1);
        if let Some(device) = device {
            block.device = device;
        }
    };
    allocated(seen, seen.argument(1), alone, caller);
}

fn map(seen: &Seen, caller: Caller) {
    let handle = seen.argument(3);
    let memory = blocks::update(Space::Physical, handle, |block| {
        block.mappings += 1;
        *block
    });
    let of_memory = |block: &mut Block| {
        (block.context, block.owner) = (0, handle);
        if let Some(memory) = memory {
            (block.device, block.is_segment) = (memory.device, memory.is_segment);
        }
    };
    allocated_at(seen, seen.argument(0), seen.argument(1), of_memory, caller);
}

/// Ends all mappings in a range of addresses, and the memory that is nowhere mapped and has no handle then.
fn unmap(address: u64, bytes: u64) {
    let end_address = address.saturating_add(bytes);
    let is_inside =
        |space, at: u64, _: &Block| space == Space::Mapping && (address..end_address).contains(&at);
    record(|entered| {
        for (_, at, mapping) in blocks::take_all(is_inside) {
            end(entered, at, &mapping, 0);
            unused(entered, mapping.owner, |block| {
                block.mappings = block.mappings.saturating_sub(1);
            });
        }
    });
}

fn release(handle: u64) {
    record(|entered| {
        unused(entered, handle, |block| block.handles = block.handles.saturating_sub(1));
    });
}

/// Changes physical memory and ends it if it has no handle and is nowhere mapped.
fn unused(entered: &Entered, handle: u64, change: impl FnOnce(&mut Block)) {
    let is_unused = blocks::update(Space::Physical, handle, |block| {
        change(block);
        block.handles == 0 && block.mappings == 0
    });
    if is_unused == Some(true)
        && let Some(block) = blocks::free(Space::Physical, handle)
    {
        end(entered, handle, &block, 0);
    }
}

/// Addresses of a graph's memory, which is there while the graph runs.
fn graph_node(seen: &Seen, node: Option<(u64, u64, i32)>, caller: Caller) {
    let Some((address, bytes, device)) = node.filter(|node| node.0 != 0) else { return };
    let graph = seen.argument(1);
    let of_graph = |block: &mut Block| (block.owner, block.device) = (graph, device);
    allocated_at(seen, address, bytes, of_graph, caller);
}

fn is_of_graph(block: &Block) -> bool {
    matches!(CALLS[usize::from(block.source)].act, Act::GraphAlloc | Act::GraphNode { .. })
}

/// The primary context of a device, and how often it is retained.
fn primary(device: u32) -> (&'static AtomicU64, &'static AtomicI32) {
    static CONTEXTS: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
    static COUNTS: [AtomicI32; DEVICES] = [const { AtomicI32::new(0) }; DEVICES];
    let at = device as usize % DEVICES;
    (&CONTEXTS[at], &COUNTS[at])
}

/// Ends the blocks of a context.
pub(super) fn tear_down(context: u64) {
    if context != 0 {
        driver::forget(context);
        end_all(CONTEXT_TEARDOWN, |_, _, block| block.context == context);
        record(|entered| statics::context_ends(entered, context));
    }
}

/// Ends the blocks that `is_ended` says, in a scope if it has a name.
fn end_all(scope: &str, is_ended: impl Fn(Space, u64, &Block) -> bool) {
    record(|entered| {
        let ended = blocks::take_all(is_ended);
        if ended.is_empty() {
            return;
        }
        let outer = if scope.is_empty() { None } else { entered.enter_scope(scope) };
        for (_, address, block) in &ended {
            end(entered, *address, block, block.stream);
        }
        if let Some(outer) = outer {
            entered.exit_scope(outer);
        }
    });
}
