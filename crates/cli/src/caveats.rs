//! Refuses to check rules on an input of which the filters select nothing.

pub(crate) use floodmark_analyze::CaveatsFold;
use floodmark_event::units::format_count;
use floodmark_view::{Caveats, plain};

use crate::error::hinted;

/// Returns the error for rules that no selected event can be checked against.
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
