//! The extension module `floodmark._native`: memory resources, buffers, statistics and the profiler for Python.
//!
//! It is a thin layer over `floodmark-resource`; what only names and combines things is written in Python, in
//! `crates/python/python/floodmark`.
//!
//! Invariant: a thread that waits for a lock of a resource while it is attached to the interpreter never waits for
//! a thread that needs the interpreter. So allocations through a stack that calls Python functions or a driver
//! detach first; all others are shorter than detaching.
//!
//! | module | what lives there |
//! |---|---|
//! | `resource` | a stack of resources as a Python object |
//! | `make` | making each kind of resource |
//! | `layers` | resources that only Python programs need |
//! | `current` | which resource a device's memory comes from |
//! | `buffer` | `DeviceBuffer` |
//! | `profiler` | records, scopes and tasks |
//! | `task_scope` | blocks of asynchronous tasks |
//! | `block` | scopes of a recording and of statistics as context managers |
//! | `vectorcall` | fast calls of classes |
//! | `with_block` | fast context managers |
//! | `native_class` | classes whose objects Python calls fast |
//! | `record` | recording into a trace, with Python stacks |
//! | `trace` | the tracer of calls |
//! | `monitor` | the thread that samples the process |
//! | `arrow` | tables for other libraries: the Arrow C stream interface |
//! | `numpy` | NumPy's memory from our resources |
//! | `pluggable` | PyTorch's memory from our resources |
//! | `foreign` | blocks of other allocators in the recording |
//! | `device` | GPUs, or the host where there is none |
//! | `debug_log` | levels of the debug log |
//! | `error` | errors as exceptions |
//! | `interpreter` | which interpreter may use the module |

mod arrow;
mod block;
mod buffer;
mod current;
mod debug_log;
mod device;
mod error;
mod foreign;
mod interpreter;
mod layers;
mod make;
mod monitor;
mod native_class;
mod numpy;
mod pluggable;
mod profiler;
mod record;
mod resource;
mod task_scope;
mod trace;
mod vectorcall;
mod with_block;

/// The extension module.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::arrow::{TraceError, arrow_stream_of_columns, arrow_stream_of_command};
    #[pymodule_export]
    use crate::block::{NamedScope, StatisticsBlock};
    #[pymodule_export]
    use crate::buffer::DeviceBuffer;
    #[pymodule_export]
    use crate::current::{current_device, get_resource, registered_devices, reset_resources};
    #[pymodule_export]
    use crate::current::{set_current_device, set_default_factory, set_resource};
    #[pymodule_export]
    use crate::debug_log::{install_debug_log, level, set_level, should_log};
    #[pymodule_export]
    use crate::device::{available_memory, devices, has_cuda};
    #[pymodule_export]
    use crate::foreign::{record_allocation, record_free};
    #[pymodule_export]
    use crate::monitor::{start_monitor, stop_monitor, wait_for_rss};
    #[pymodule_export]
    use crate::numpy::set_numpy_handler;
    #[pymodule_export]
    use crate::pluggable::pluggable_live;
    #[pymodule_export]
    use crate::profiler::{ProfilerContext, ProfilerRecords, ProfilerTask};
    #[pymodule_export]
    use crate::record::{is_recording, mark, start_recording, stop_recording};
    #[pymodule_export]
    use crate::resource::Resource;
    #[pymodule_export]
    use crate::trace::{begin_fault_trace, begin_trace, end_fault_trace, end_trace, is_tracing};
    #[pymodule_export]
    use crate::trace::{
        ignore_thread, install_profile, monitoring_callbacks, prepare_thread, profile_thread, remove_profile,
    };
    use crate::vectorcall;
    use crate::with_block;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::interpreter::require_first()?;
        let py = module.py();
        vectorcall::enable::<DeviceBuffer>(py);
        vectorcall::enable::<NamedScope>(py);
        vectorcall::enable::<ProfilerContext>(py);
        vectorcall::enable::<StatisticsBlock>(py);
        with_block::enable::<NamedScope>(py)?;
        with_block::enable::<ProfilerContext>(py)?;
        with_block::enable::<StatisticsBlock>(py)?;
        with_block::enable_bracket::<ProfilerContext>(py)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
