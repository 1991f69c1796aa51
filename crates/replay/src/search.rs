//! The least memory in which a log fits, found by trying.
//!
//! A try plays the script against a resource on a simulated device of some size, up to the first
//! allocation that fails. Sizes are tried upwards from the least that could be enough, in steps that
//! double, and then between the largest that failed and the smallest that did not, until the two are one
//! step apart. An allocator may fail at a size and succeed at a smaller one, since blocks then fall in
//! other places; what is found is therefore a size that is enough, one step above a size that is not.

use floodmark_resource::ALIGNMENT;

use crate::error::{Error, Result};
use crate::lineup::{Choice, Lineup, LineupProps};
use crate::player::{Cast, Player};
use crate::result::Enough;
use crate::script::Script;
use crate::watch::FirstFailure;

/// How finely is searched, as a part of the peak.
const FINENESS: u64 = 100_000;
/// Upper bound of the search: no machine has more memory.
const MOST_BYTES: u64 = 1 << 50;

/// Searches for the least memory in which `script` fits a resource; `report` gets the number of steps that were
/// played since it was told last.
///
/// # Errors
/// [`Error::Unavailable`] if there is no such resource.
pub fn search(
    script: &Script,
    choice: Choice,
    props: &LineupProps,
    report: &mut dyn FnMut(u64),
) -> Result<Enough> {
    let summary = script.summary();
    let step_bytes = (summary.peak_live_bytes / FINENESS).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
    let mut trial = Trial { cast: Cast::new(script), choice, props, report, plays: 0, reason: None };
    let least = summary.peak_rounded_bytes.max(ALIGNMENT);
    let (mut enough, mut too_little) = (None, None);
    let mut more: u64 = 0;
    while enough.is_none() && least.saturating_add(more) <= MOST_BYTES {
        let bytes = least + more;
        more = (more * 2).max(step_bytes);
        if trial.fits(bytes)? {
            enough = Some(bytes);
        } else {
            too_little = Some(bytes);
        }
    }
    while let (Some(fits), Some(fails)) = (enough, too_little)
        && fits - fails > step_bytes
    {
        let steps = (fits - fails) / step_bytes;
        let middle = fails + (steps / 2).max(1) * step_bytes;
        if trial.fits(middle)? {
            enough = Some(middle);
        } else {
            too_little = Some(middle);
        }
    }
    let peak = summary.peak_live_bytes.max(1) as f64;
    Ok(Enough {
        resource: choice.name().to_owned(),
        enough_bytes: enough,
        too_little_bytes: too_little,
        overhead: enough.map(|bytes| bytes as f64 / peak - 1.0),
        step_bytes,
        plays: trial.plays,
        reason: trial.reason.filter(|_| enough.is_none()),
        command: None,
    })
}

/// Plays that tell whether a size is enough.
struct Trial<'a> {
    cast: Cast<'a>,
    choice: Choice,
    props: &'a LineupProps,
    report: &'a mut dyn FnMut(u64),
    plays: u64,
    /// Why the last size that failed did.
    reason: Option<String>,
}

impl Trial<'_> {
    fn fits(&mut self, bytes: u64) -> Result<bool> {
        self.plays += 1;
        let script = self.cast.script;
        let lineup = Lineup::open(self.props.filling(bytes))?;
        let stage = match lineup.stage(self.choice, script.streams()) {
            Ok(stage) => stage,
            Err(Error::Stage { why, .. }) => {
                self.reason = Some(why.to_string());
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let mut watch = FirstFailure::default();
        let played = Player::new(&self.cast, &stage).play(0..script.played().end, &mut watch, self.report);
        if played.is_break() {
            self.reason = watch.message;
        }
        Ok(played.is_continue())
    }
}
