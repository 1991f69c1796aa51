//! The functions that replace those of the C library.
//!
//! An allocation is recorded after it succeeded and a free before it happens, so that an address which is used again at
//! once by another thread never looks allocated twice. `realloc` may fail and leave the old block as it is; the free is
//! therefore recorded afterwards, with the time from before the call.

mod heap;
mod mapping;
mod module;
mod program;
