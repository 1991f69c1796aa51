//! The live tail of a trace: how events leave a process without waiting for anything.
//!
//! This crate is linked into other people's processes. It depends on `libc` and the vocabulary alone; the
//! recording path allocates nothing, takes no shared lock, never panics and never prints.
//!
//! Each thread has a *lane*: a few chunks of shared memory that it alone writes. An event exists
//! once its chunk's commit word covers it. Chunks live in a *ring* file in shared memory, so what
//! they hold survives SIGKILL of the process; the sealer (a thread of the process, another process, or the
//! first open after a crash) reads them there.
//!
//! ```text
//! thread ── lane ──► chunk ──full──► sealer copies it to a segment file, marks it free ──► reused, warm
//!                      │
//!                      └─ none free? further chunks up to a bound, then the thread itself appends the
//!                         full chunk to a segment file; no disk left? new events are counted as a gap
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`record`] | how records are encoded in a chunk, and decoded |
//! | `ring` | the shared memory file: header, chunks, mapping |
//! | `protocol` | the steps by which threads, the sealer and readers share chunks; checked by `tests/loom.rs` |
//! | `atomic` | the atomics and barriers under it |
//! | `lane` | a thread's writing end: the recording path itself |
//! | [`recorder`] | starting and stopping recordings |
//! | [`writer`] | what threads call to record, and how they get their lanes |
//! | `stamped` | scopes, ranges, marks and calls; events with a time or thread of their own |
//! | `observe` | what samplers record |
//! | [`perf`] | performance events of the kernel, which captures use |
//! | `global` | the global writer as free functions |
//! | [`heap`] | how the recorder of the heap is told what to record, and what it leaves in the trace |
//! | [`gpu`] | the same for the recorder of CUDA memory |
//! | `thread_lane` | scopes and room of code that keeps its lane itself |
//! | `ticks` | the processor's tick counter as a clock, for recorders of millions of calls or allocations a second |
//! | `values` | how samples are made small: differences to earlier values |
//! | `session` | a process's part in a recording: its ring, its lanes, its files |
//! | `intern` | strings, frames and stacks that records refer to |
//! | [`segment`] | files of chunks that left the ring |
//! | [`stream`] | the same frames over any stream of bytes, with what a ring's header says |
//! | `abandoned` | removes rings whose trace was deleted |
//! | [`reader`] | reading rings and segments, of a live process or a dead one |

mod abandoned;
mod atomic;
pub mod clock;
mod global;
pub mod gpu;
pub mod heap;
mod intern;
mod lane;
mod observe;
pub mod perf;
mod protocol;
pub mod reader;
pub mod record;
pub mod recorder;
mod ring;
pub mod segment;
mod session;
mod stamped;
pub mod stream;
mod thread_lane;
mod ticks;
mod values;
pub mod writer;

pub use abandoned::{KEPT_FOR, SHARED_MEMORY, remove_abandoned_rings};
pub use clock::{Stamp, When};
pub use global::{alloc, end_chunk, enter_scope, exit_scope, failure, free, mark};
pub use global::{intern, intern_frame, intern_stack, is_recording, recording, traced_call};
pub use global::{output, sample, samples, stack_sample, subject, subject_ended};
pub use record::{AllocDomain, BlockEvent, Call, TracedCall};
pub use recorder::{RecordProps, Recorder, StartError, stop_global};
pub use stamped::RangeId;
pub use thread_lane::{enter_scope_on, exit_scope_on, is_nearly_full, make_room_on};
pub use ticks::{calibrate, calibrate_later, ticks, ticks_in};
pub use writer::{MAX_RECORDERS, ThreadLane, Writer, event_on, global, plain_event_on, traced_call_on};
