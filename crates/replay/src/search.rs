//! The least memory in which a log fits, found by trying.
//!
//! A try plays the script against a resource on a simulated device of some size, up to the first
//! allocation that fails. Sizes are tried upwards from the least that could be enough, in steps that
//! double, and then between the largest that failed and the smallest that did not, until the two are one
//! step apart. An allocator may fail at a size and succeed at a smaller one, since blocks then fall in
//! other places; what is found is therefore a size that is enough, one step above a size that is not.

use std::ops::ControlFlow;

use floodmark_resource::ALIGNMENT;

use crate::error::{Error, Result};
use crate::lineup::{Choice, Ground, Lineup, LineupProps};
use crate::player::{Cast, Player};
use crate::result::Enough;
use crate::script::Script;
use crate::watch::FirstFailure;

/// How finely is searched, as a part of the peak.
const FINENESS: u64 = 100_000;
/// Nobody has more memory than this.
const MOST_BYTES: u64 = 1 << 50;

/// Searches for the least memory in which `script` fits a suballocator.
///
/// # Errors
/// [`Error::Unavailable`] if there is no such resource.
pub fn search(
    script: &Script,
    choice: Choice,
    props: &LineupProps,
    report: &mut dyn FnMut(u64),
) -> Result<Enough> {
    let cast = Cast::new(script);
    let summary = script.summary();
    let step_bytes = (summary.peak_live_bytes / FINENESS).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
    let mut plays = 0;
    let mut fits = |bytes: u64| {
        plays += 1;
        fits(&cast, choice, props, bytes, report)
    };
    let least = summary.peak_rounded_bytes.max(ALIGNMENT);
    let mut found = Found { enough: None, too_little: None };
    let mut more = 0;
    loop {
        let bytes = least.saturating_add(more);
        if bytes > MOST_BYTES {
            break;
        }
        if fits(bytes)? {
            found.enough = Some(bytes);
            break;
        }
        found.too_little = Some(bytes);
        more = (more * 2).max(step_bytes);
    }
    while let Found { enough: Some(enough), too_little: Some(too_little) } = found
        && enough - too_little > step_bytes
    {
        let steps = (enough - too_little) / step_bytes;
        let middle = too_little + (steps / 2).max(1) * step_bytes;
        if fits(middle)? {
            found.enough = Some(middle);
        } else {
            found.too_little = Some(middle);
        }
    }
    let over =
        |bytes: u64| (bytes as f64 - summary.peak_live_bytes as f64) / summary.peak_live_bytes.max(1) as f64;
    Ok(Enough {
        resource: choice.name().to_owned(),
        enough_bytes: found.enough,
        too_little_bytes: found.too_little,
        overhead: found.enough.map(over),
        step_bytes,
        plays,
        reason: None,
    })
}

#[derive(Clone, Copy)]
struct Found {
    enough: Option<u64>,
    too_little: Option<u64>,
}

fn fits(
    cast: &Cast<'_>,
    choice: Choice,
    props: &LineupProps,
    bytes: u64,
    report: &mut dyn FnMut(u64),
) -> Result<bool> {
    let lineup = Lineup::new(props.filling(Ground::Simulated { bytes }));
    let stage = match lineup.stage(choice, cast.script.streams()) {
        Ok(stage) => stage,
        Err(Error::Stage { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut player = Player::new(cast, &stage);
    let end = cast.script.played().end;
    Ok(matches!(player.play(0..end, &mut FirstFailure, report), ControlFlow::Continue(())))
}
