//! Environment variables that the command reads.

/// Names of the environment variables that matter, all in one place.
#[derive(Debug)]
pub(crate) struct EnvVars;

impl EnvVars {
    /// Directory for what can be made again, of the XDG Base Directory Specification.
    pub(crate) const CACHE_HOME: &'static str = "XDG_CACHE_HOME";
    /// Home directory.
    pub(crate) const HOME: &'static str = "HOME";
    /// Columns to lay text out for, whatever the terminal says.
    pub(crate) const COLUMNS: &'static str = "COLUMNS";
    /// File of the library that records heaps, in place of the embedded one.
    pub(crate) const HEAP_LIBRARY: &'static str = "FLOODMARK_HEAP_LIBRARY";
    /// Locale, in the order of precedence.
    pub(crate) const LOCALE: [&'static str; 3] = ["LC_ALL", "LC_CTYPE", "LANG"];
    /// Turns colors off when it is set to anything but the empty text (<https://no-color.org>).
    pub(crate) const NO_COLOR: &'static str = "NO_COLOR";
}

/// Returns the value of a variable, if it is set to text that is not empty.
pub(crate) fn value(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
