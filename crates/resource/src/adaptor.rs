//! Resources that wrap another one, add one thing to it and leave the rest as it is.
//!
//! Whatever is stacked on a layer, that layer reports the same: an adaptor passes on every call once,
//! with the sizes it was called with ([`Aligned`](crate::Aligned) and
//! [`FailureCallback`](crate::FailureCallback) excepted, whose job it is to change that).

pub(crate) mod address_map;
pub(crate) mod aligned;
pub(crate) mod callback;
pub(crate) mod csv_logging;
pub(crate) mod failure_callback;
pub(crate) mod limiting;
pub(crate) mod logging;
pub(crate) mod prefetch;
pub(crate) mod statistics;
pub(crate) mod thread_safe;
pub mod tracking;

/// What of [`Resource`](crate::Resource) an adaptor passes on to its field `upstream`.
///
/// `delegate!("limiting")` writes all of it, `delegate!("limiting", but room)` all but the room.
macro_rules! delegate {
    ($name:literal) => {
        $crate::adaptor::delegate!($name, but room);

        fn room(&self) -> $crate::resource::Room {
            self.upstream.room()
        }
    };
    ($name:literal, but room) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn memory(&self) -> $crate::resource::Memory {
            self.upstream.memory()
        }

        fn order(&self) -> std::sync::Arc<dyn $crate::stream::StreamOrder> {
            self.upstream.order()
        }

        fn upstream(&self) -> Option<&dyn $crate::resource::Resource> {
            Some(&self.upstream)
        }

        fn served_by(&self) -> &'static str {
            self.upstream.served_by()
        }
    };
}
use delegate;
