//! What the interpreter calls at events: `sys.monitoring` from Python 3.12 on, a profile function before.

#[cfg(not(Py_3_12))]
mod leaves;
#[cfg(Py_3_12)]
mod monitoring;
#[cfg(not(Py_3_12))]
mod profile;

#[cfg(not(Py_3_12))]
pub(crate) use leaves::enter_thread;
#[cfg(Py_3_12)]
pub(crate) use monitoring::{install_profile, monitoring_callbacks, poll, profile_thread, remove_profile};
#[cfg(not(Py_3_12))]
pub(crate) use profile::{install_profile, monitoring_callbacks, poll, profile_thread, remove_profile};

/// Takes note of the thread that has events from now on, which only Python 3.11 needs.
#[cfg(Py_3_12)]
pub(crate) const fn enter_thread() {}
