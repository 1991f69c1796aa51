//! Which functions are traced, by the path of their file.

/// Patterns of paths. Without patterns to include, everything is included that is not excluded.
pub(super) struct Filter {
    /// Folder of the package, whose functions are never traced.
    pub(super) package: String,
    pub(super) include: Vec<String>,
    pub(super) exclude: Vec<String>,
}

impl Filter {
    pub(super) const fn new() -> Self {
        Self { package: String::new(), include: Vec::new(), exclude: Vec::new() }
    }

    /// Whether functions in `file` are left out of the trace.
    pub(super) fn hides(&self, file: &str) -> bool {
        if !self.package.is_empty() && file.starts_with(&self.package) {
            return true;
        }
        let matches =
            |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern.as_bytes(), file.as_bytes()));
        (!self.include.is_empty() && !matches(&self.include)) || matches(&self.exclude)
    }
}

/// Whether a text matches a pattern in which `*` stands for any text and `?` for any byte.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on if the text after the last star does not match.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((after_star, start)) = retry else { return false };
                at = after_star;
                from = start + 1;
                retry = Some((after_star, from));
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
