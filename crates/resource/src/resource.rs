//! What every resource can do.
#![expect(unsafe_code, reason = "freeing memory is a promise that it is not used any more")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use floodmark_event::{Kind, NO_DEVICE};

use crate::error::{AllocError, Result};
use crate::stream::{Stream, StreamOrder};

/// What every block is aligned to, whatever was asked for.
pub const ALIGNMENT: u64 = 256;

/// Where a block begins. It may be memory that this process cannot touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// Where blocks of no bytes begin.
    pub const NULL: Self = Self(0);

    /// Whether this is [`NULL`](Self::NULL).
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}", self.0)
    }
}

/// What sort of memory a resource hands out, and of which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Sort of memory.
    pub kind: Kind,
    /// Number of the device, or [`NO_DEVICE`].
    pub device: i32,
}

impl Memory {
    /// Ordinary memory of the host.
    pub const HOST: Self = Self { kind: Kind::Pageable, device: NO_DEVICE };
}

/// How much room a resource has, at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The most it will ever hold, where it knows.
    pub limit_bytes: Option<u64>,
    /// What it holds of its upstream or of the system, live or not.
    pub reserved_bytes: u64,
    /// What of it is handed out, rounding included.
    pub live_bytes: u64,
    /// How many blocks that is.
    pub live_blocks: u64,
    /// The largest block it could hand out without growing, where it knows. Memory that another stream
    /// freed counts, since it can be had by waiting; there may be larger ones once pieces that streams hold
    /// apart are put together.
    pub largest_free_bytes: Option<u64>,
    /// How many blocks of its upstream it holds.
    pub upstream_blocks: u64,
}

impl Room {
    /// What is reserved and not handed out.
    pub const fn free_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.live_bytes)
    }

    /// What part of the free bytes no single block could use: 0 when all of it is in one piece.
    pub fn fragmentation(&self) -> f64 {
        match (self.largest_free_bytes, self.free_bytes()) {
            (Some(largest), free) if free > 0 => 1.0 - largest.min(free) as f64 / free as f64,
            _ => 0.0,
        }
    }
}

/// Work that may use a block without waiting after it was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Work on any stream: nothing can be using it any more.
    AnyStream,
    /// Work on the stream for which it was asked; others have to wait for that.
    RequestedStream,
}

/// Hands out memory in the order of streams.
///
/// A block that was given back on a stream may be handed out again at once on the same stream, and on
/// another one only after that has been made to wait. Blocks of no bytes are at [`Address::NULL`].
pub trait Resource: Any + Send + Sync {
    /// Hands out `bytes` bytes for work that is enqueued on `stream` from now on.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] says why there is not enough, [`AllocError::Invalid`] what is wrong
    /// with the request.
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address>;

    /// Takes a block back; work enqueued on `stream` before may still use it.
    ///
    /// Never fails: an invalid request is logged to the debug log, and counted where a resource counts
    /// them.
    ///
    /// # Safety
    /// The block came from [`allocate`](Self::allocate) of this resource with the same size and
    /// alignment, was not given back before, and nothing uses it after what is enqueued on `stream`; if
    /// that is not the stream it was allocated on, it has waited for that one since.
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream);

    /// One word for it in tables, traces and messages: `pool`.
    fn name(&self) -> &'static str;

    /// What it hands out.
    fn memory(&self) -> Memory;

    /// How much room it has.
    fn room(&self) -> Room;

    /// What orders its memory between streams.
    fn order(&self) -> Arc<dyn StreamOrder>;

    /// Returns which work may use its blocks at once. Adaptors are as ready as what they wrap; suballocators, and
    /// backends whose driver reuses memory in the order of streams, are not.
    fn readiness(&self) -> Readiness {
        self.upstream().map_or(Readiness::RequestedStream, Resource::readiness)
    }

    /// The resource below this one.
    fn upstream(&self) -> Option<&dyn Resource> {
        None
    }

    /// The name under which traces know what it hands out.
    ///
    /// An adaptor names the resource it wraps, so that memory of a pool is the pool's with whatever is
    /// stacked on it.
    fn served_by(&self) -> &'static str {
        self.name()
    }

    /// What of this layer [`find`] looks for beside the layer itself.
    ///
    /// A layer's type names all types below it (`Statistics<Pool<Simulated>>`), which code with a
    /// `dyn Resource` cannot name. A layer that wants to be found all the same shows a part of itself
    /// whose type names nothing else: `StatisticsHandle`.
    fn part(&self) -> Option<&dyn Any> {
        None
    }

    /// Gives back to the upstreams what it does not need now; returns how many bytes that was.
    fn release(&self) -> u64 {
        self.upstream().map_or(0, Resource::release)
    }
}

/// Sharing a resource is no layer of its own: it reports what the shared one reports.
macro_rules! shared {
    ($([$($generic:tt)*] $shared:ty,)*) => {$(
        impl $($generic)* Resource for $shared {
            #[inline]
            fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
                (**self).allocate(bytes, alignment, stream)
            }

            #[inline]
            unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
                // SAFETY: the caller's promise, passed on.
                unsafe { (**self).deallocate(address, bytes, alignment, stream) };
            }

            fn name(&self) -> &'static str {
                (**self).name()
            }

            fn memory(&self) -> Memory {
                (**self).memory()
            }

            fn room(&self) -> Room {
                (**self).room()
            }

            fn order(&self) -> Arc<dyn StreamOrder> {
                (**self).order()
            }

            fn readiness(&self) -> Readiness {
                (**self).readiness()
            }

            fn upstream(&self) -> Option<&dyn Resource> {
                Some(&**self)
            }

            fn served_by(&self) -> &'static str {
                (**self).served_by()
            }

            fn part(&self) -> Option<&dyn Any> {
                (**self).part()
            }

            fn release(&self) -> u64 {
                (**self).release()
            }
        }
    )*};
}
shared! {
    [<R: Resource>] Arc<R>,
    [] Arc<dyn Resource>,
    [] Box<dyn Resource>,
}

/// Finds the uppermost layer of a stack that is a `T`, or whose [`part`](Resource::part) is one.
///
/// So a stack can be asked for a backend (`find::<Simulated>(top)`) and for an adaptor whose full type
/// is not known (`find::<StatisticsHandle>(top)`), wherever in the stack it is.
pub fn find<T: Any>(top: &dyn Resource) -> Option<&T> {
    let mut layer = top;
    loop {
        let part = || layer.part().and_then(<dyn Any>::downcast_ref);
        if let Some(found) = (layer as &dyn Any).downcast_ref().or_else(part) {
            return Some(found);
        }
        layer = layer.upstream()?;
    }
}

/// Rounds up to a multiple of `alignment`, a power of two; none where that does not fit.
#[inline]
pub const fn align_up(bytes: u64, alignment: u64) -> Option<u64> {
    match bytes.checked_add(alignment - 1) {
        Some(sum) => Some(sum & !(alignment - 1)),
        None => None,
    }
}

/// Refuses alignments that backends and suballocators cannot give.
///
/// # Errors
/// [`AllocError::Invalid`] for one that is no power of two or above [`ALIGNMENT`].
#[inline]
pub const fn check_alignment(bytes: u64, alignment: u64) -> Result<()> {
    if alignment.is_power_of_two() && alignment <= ALIGNMENT {
        return Ok(());
    }
    let why = if alignment.is_power_of_two() {
        "alignments go up to 256; wrap the resource in Aligned for more"
    } else {
        "an alignment is a power of two"
    };
    Err(AllocError::Invalid { bytes, alignment, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Simulated};

    #[test]
    fn layers_are_found_through_sharing() {
        let shared: Arc<dyn Resource> = Arc::new(Arc::new(Simulated::new(1 << 20)));
        assert!(find::<Simulated>(&shared).is_some());
        assert!(find::<Host>(&shared).is_none());
        assert_eq!(shared.name(), "simulated");
    }

    /// An adaptor whose type names the one below it, with a part that does not.
    struct Labelled<R>(R, &'static str);

    impl<R: Resource> Resource for Labelled<R> {
        fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
            self.0.allocate(bytes, alignment, stream)
        }

        unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
            // SAFETY: the caller's promise, passed on.
            unsafe { self.0.deallocate(address, bytes, alignment, stream) };
        }

        fn name(&self) -> &'static str {
            "labelled"
        }

        fn memory(&self) -> Memory {
            self.0.memory()
        }

        fn room(&self) -> Room {
            self.0.room()
        }

        fn order(&self) -> Arc<dyn StreamOrder> {
            self.0.order()
        }

        fn upstream(&self) -> Option<&dyn Resource> {
            Some(&self.0)
        }

        fn part(&self) -> Option<&dyn Any> {
            Some(&self.1)
        }
    }

    #[test]
    fn a_part_is_found_without_its_layers_type_and_the_uppermost_wins() {
        let stack: Arc<dyn Resource> =
            Arc::new(Labelled(Arc::new(Labelled(Host::new(), "below")) as Arc<dyn Resource>, "above"));
        assert_eq!(find::<&'static str>(&stack), Some(&"above"));
        let below = stack.upstream().and_then(Resource::upstream).expect("the stack has two layers");
        assert_eq!(find::<&'static str>(below), Some(&"below"));
        assert!(find::<Labelled<Host>>(&stack).is_some() && find::<Host>(&stack).is_some());
        assert!(find::<String>(&stack).is_none());
    }

    #[test]
    fn alignments_beyond_the_usual_are_refused() {
        assert!(check_alignment(1, 256).is_ok());
        assert!(check_alignment(1, 512).is_err());
        assert!(check_alignment(1, 24).is_err());
        assert!(check_alignment(1, 0).is_err());
        assert_eq!(align_up(u64::MAX, 256), None);
        assert_eq!(align_up(257, 256), Some(512));
    }

    #[test]
    fn fragmentation_is_what_the_largest_block_leaves() {
        let room =
            Room { reserved_bytes: 100, live_bytes: 20, largest_free_bytes: Some(60), ..Room::default() };
        assert!((room.fragmentation() - 0.25).abs() < 1e-9);
        assert!(Room::default().fragmentation().abs() < 1e-9);
    }
}
