//! What the interpreter calls at events: `sys.monitoring` from Python 3.12 on, a profile function before.

#[cfg(Py_3_12)]
mod monitoring;
#[cfg(not(Py_3_12))]
mod profile;

#[cfg(Py_3_12)]
pub(crate) use monitoring::{install_profile, monitoring_callbacks, poll, profile_thread, remove_profile};
#[cfg(not(Py_3_12))]
pub(crate) use profile::{install_profile, monitoring_callbacks, poll, profile_thread, remove_profile};
