//! Why something cannot be played.

use floodmark_resource::AllocError;

use crate::script::Excerpt;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A script is kept in memory, and this one does not fit.
    #[error("{events} events are more than there is memory for")]
    TooLong {
        /// Events up to there.
        events: u64,
    },
    /// No allocation is selected.
    #[error("there is no allocation to play")]
    Nothing,
    /// One excerpt is played at a time, and there are several of them.
    #[error("one process, device and kind of memory is played at a time, and there are several: {}", list(.0))]
    Several(Vec<Excerpt>),
    /// More threads than this machine should start.
    #[error("{threads} threads are too many to play at once, at most {most}")]
    Threads {
        /// Threads of the log.
        threads: usize,
        /// How many can be.
        most: usize,
    },
    /// A thread could not be started.
    #[error("starting a thread")]
    Start(#[source] std::io::Error),
    /// This machine has no such resource.
    #[error("there is no resource {resource} here: {why}")]
    Unavailable {
        /// Its name.
        resource: &'static str,
        /// What it lacks.
        why: String,
    },
    /// A device cannot be used.
    #[error("the GPU cannot be used: {why}")]
    Device {
        /// Why.
        why: Box<AllocError>,
    },
    /// A resource could not be made ready.
    #[error("{resource} cannot be made ready: {why}")]
    Stage {
        /// Its name.
        resource: &'static str,
        /// Why.
        why: Box<AllocError>,
    },
}

impl Error {
    /// A remedy, if we know one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TooLong { .. } => Some("play a part of it with --from and --to".into()),
            Self::Several(excerpts) => {
                let first = excerpts.first()?;
                Some(format!("choose one, as in {}", first.options()))
            }
            Self::Threads { .. } => Some("leave --concurrent away, or choose some with --thread".into()),
            Self::Unavailable { .. } => Some("--resource takes others, --simulate SIZE needs no GPU".into()),
            Self::Stage { .. } => Some(
                "take more memory (--simulate) or have it reserve less at first (--pool-initial, …)".into(),
            ),
            Self::Device { .. } => Some("--simulate SIZE needs none".into()),
            Self::Nothing => {
                Some("check --device, --process, --thread, --stream, --kind, --from and --to".into())
            }
            Self::Start(_) => None,
        }
    }
}

/// The first of many, and how many more there are.
fn list(excerpts: &[Excerpt]) -> String {
    const SHOWN: usize = 8;
    let mut texts: Vec<String> = excerpts.iter().take(SHOWN).map(Excerpt::to_string).collect();
    if excerpts.len() > SHOWN {
        texts.push(format!("and {} more", excerpts.len() - SHOWN));
    }
    texts.join("; ")
}
