//! Levels of the debug log.

use floodmark_resource::debug_log::{self, Level};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

fn parse(number: u8) -> PyResult<Level> {
    Level::from_number(number).ok_or_else(|| PyValueError::new_err(format!("{number} is no level")))
}

/// Write the debug log to stderr or to the file in FLOODMARK_DEBUG_LOG_FILE or RMM_DEBUG_LOG_FILE.
#[pyfunction]
pub(crate) fn install_debug_log() -> PyResult<()> {
    debug_log::install().map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// The current level as a number from 0 (trace) to 6 (off).
#[pyfunction]
pub(crate) fn level() -> u8 {
    debug_log::level() as u8
}

/// Set the level by its number.
#[pyfunction]
pub(crate) fn set_level(number: u8) -> PyResult<()> {
    debug_log::set_level(parse(number)?);
    Ok(())
}

/// Whether messages of a level are written now.
#[pyfunction]
pub(crate) fn should_log(number: u8) -> PyResult<bool> {
    Ok(debug_log::should_log(parse(number)?))
}
