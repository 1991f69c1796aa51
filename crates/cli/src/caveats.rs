//! Counts what makes any figure less certain, in the same pass as the analysis it belongs to.

use floodmark_analyze::{Block, End, Ending, Fold, Level, UnmatchedFree};
use floodmark_event::UNKNOWN_BYTES;
use floodmark_event::units::format_count;
use floodmark_view::{Caveats, plain};

use crate::error::hinted;

/// Folds events into [`Caveats`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CaveatsFold {
    caveats: Caveats,
}

impl Fold for CaveatsFold {
    type Output = Caveats;

    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        self.caveats.size_mismatches +=
            u64::from(ending.bytes != block.bytes && ending.bytes != UNKNOWN_BYTES);
    }

    fn replaced(&mut self, _block: &Block, _time_ns: i64, _level: &Level) {
        self.caveats.replaced_blocks += 1;
    }

    fn unmatched_free(&mut self, free: &UnmatchedFree) {
        self.caveats.unmatched_frees += 1;
        if free.bytes != UNKNOWN_BYTES {
            self.caveats.unmatched_free_bytes = self.caveats.unmatched_free_bytes.saturating_add(free.bytes);
        }
    }

    fn finish(&self, end: &End<'_>) -> Caveats {
        Caveats { events_selected: end.live.events(), ..self.caveats }
    }
}

/// Says that rules were given and that options leave nothing they could be checked on.
pub(crate) fn nothing_selected(source: &str, caveats: &Caveats) -> anyhow::Error {
    let source = if source == "-" { "standard input".into() } else { plain(source) };
    hinted(
        format!(
            "{source}: none of its {} events is selected, so there is nothing to check",
            format_count(caveats.events_read)
        ),
        "correct --device, --process, --thread, --stream, --kind, --from or --to; 'floodmark info' says what \
         an input holds",
    )
}
