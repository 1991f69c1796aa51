//! Environment variables that the command reads.

/// Names of the environment variables that matter, all in one place.
#[derive(Debug)]
pub(crate) struct EnvVars;

impl EnvVars {
    /// Columns to lay text out for, whatever the terminal says.
    pub(crate) const COLUMNS: &'static str = "COLUMNS";
    /// Turns colors off when it is set to anything but the empty text (<https://no-color.org>).
    pub(crate) const NO_COLOR: &'static str = "NO_COLOR";
}

/// Returns the value of a variable, if it is set to text that is not empty.
pub(crate) fn value(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
