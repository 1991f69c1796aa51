//! The library that is loaded into a command to record its heap (`malloc` and its like, and mappings) and its CUDA memory.
//!
//! It runs inside other people's programs, in their allocator. Hence: it calls the hooked functions for nothing of its own
//! (`own_memory`); it keeps no descriptor; a panic in it never reaches the program (`fence`); it records into a ring of
//! the running trace as every other recorder does, and a kill of the program loses nothing that was recorded.
//!
//! | module | what lives there |
//! |---|---|
//! | `config` | reading the environment; the protocol itself is [`floodmark_tail::heap`] |
//! | `exec` | programs that the library must not be preloaded into |
//! | `hooks` | the functions that replace those of the C library |
//! | `entry` | their first instructions |
//! | `next` | the functions that they replace |
//! | `capture` | from a hook to a record: guard, start, thread's lane, stack |
//! | `sample`, `tracked` | which allocations a sample takes; the blocks of which frees are recorded |
//! | `mappings` | the mappings that the program made |
//! | `cuda` | CUDA memory: callbacks of CUPTI, or functions in place of the driver's; ranges of NVTX |
//! | `python` | objects and frames of `CPython` |
//! | `thread` | what each thread keeps, found without a call |
//! | `cold` | the memory of a thread, and a stack for what needs more of it |
//! | `bounds` | where the thread's own stack is |
//! | `fence` | panics and the off-switch |
//! | `versions` | keeps out what only new versions of the C library have |
//! | `own_memory`, `pid_lock` | the allocator of the library itself; its locks |
#![expect(unsafe_code, reason = "replaces functions of the C library")]

mod bounds;
mod capture;
mod cold;
mod config;
mod cuda;
mod entry;
mod exec;
mod fence;
mod hooks;
mod mappings;
mod next;
mod own_memory;
mod pid_lock;
mod python;
mod sample;
mod thread;
mod tracked;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod versions;

#[global_allocator]
static OWN_MEMORY: own_memory::OwnMemory = own_memory::OwnMemory::new();
