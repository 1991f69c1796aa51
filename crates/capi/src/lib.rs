//! The C interface of the recorder, declared in `include/floodmark.h`.
//!
//! The header is the documentation for C and C++ programs; this crate only translates. Invariants: no panic
//! leaves a function; recorders are numbers, so a stopped or invented one is recognized instead of followed;
//! strings are read up to a bound and may hold any bytes; pointers may be null; nothing that records
//! allocates or sets an error. The crate knows nothing of traces beyond their tail: `floodmark` reads them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`abi`] | structs and constants, as the header declares them |
//! | [`control`] | versions, errors, starting and stopping recordings |
//! | [`events`] | allocations, frees and failures |
//! | [`timeline`] | strings, frames, stacks, scopes, ranges, marks and calls |
//! | `last_error` | the message of the last failure, per thread |
//! | `recorders` | the numbers by which programs refer to their recorders |
//! | `text` | C strings of any content |

pub mod abi;
pub mod control;
pub mod events;
mod last_error;
mod recorders;
mod text;
pub mod timeline;
