//! Environment variables that tests of the view set.

/// Makes a thread of the view panic, `begin`, `reader` or `screen`: tests check that the terminal is restored.
pub(crate) const TOP_PANIC: &str = "FLOODMARK_TOP_PANIC";

/// Returns the value of a variable, if it is set to text that is not empty.
pub(crate) fn value(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
