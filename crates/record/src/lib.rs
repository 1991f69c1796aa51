//! The life of a recording: where its trace goes, who seals it, what is sampled, and what came of it.
//!
//! ```no_run
//! use floodmark_record::{Destination, Session, Target};
//! use floodmark_sampler::Launch;
//! # fn main() -> floodmark_record::Result<()> {
//! let target = Target::Command(Launch::new("make", ["-j4"]));
//! let recorded = Session::new(target, Destination::New("make.flood".into()), "make -j4").run()?;
//! println!("{} processes", recorded.outcome.processes.seen);
//! # Ok(())
//! # }
//! ```
//!
//! What does *not* live here: sampling itself (`floodmark-sampler`), reading traces (`floodmark-inspect`),
//! options and printing (the command).

mod error;
mod gpu;
mod heap;
mod job;
mod lock;
mod memory;
mod python;
mod recording;
mod session;
mod words;

pub use error::{Error, Result};
pub use floodmark_tail::gpu::{GpuLevel, GpuOptions, GpuWay};
pub use floodmark_tail::heap::{DEFAULT_SAMPLE_BYTES, HeapMode, HeapOptions, MAX_DEPTH};
pub use gpu::{GpuProps, GpuReport};
pub use heap::{HeapProps, HeapReport, Limitation, limitation};
pub use job::{JobDestination, JobTrace};
pub use python::PythonCommand;
pub use recording::{Destination, Recording, anchor, filled_in, host, is_named_by_rank, name_of};
pub use session::{Recorded, SAMPLED_VARIABLE, Session, TRACE_VARIABLE, Target, TraceShare};
pub use words::words;
