//! What changed since an earlier recording, in sentences.

use floodmark_analyze::{Figure, FigureChange, GroupBy};
use floodmark_event::units::format_bytes;
use floodmark_inspect::compare::Compared;

use super::build::Builder;
use super::data::{Target, TargetTime};
use crate::blocks::NO_SITE;
use crate::figures::percent;
use crate::names::short_name;
use crate::plain::plain;

/// Tells the change of the peak, which site has most of it, and new leaks.
pub(super) fn tell(builder: &mut Builder, compared: &Compared) {
    let diff = &compared.diff;
    let earlier = plain(&compared.before.source).into_owned();
    let peak = [Figure::PeakBytes, Figure::PeakRssBytes].into_iter().find_map(|figure| {
        let change = diff.figure(figure)?;
        Some((figure, change.before?, change.after?, change.change?))
    });
    let Some((figure, before, after, change)) = peak else {
        builder.tell(&format!("{earlier} has no peak to compare with"));
        return;
    };
    let what = if figure == Figure::PeakBytes { "the peak" } else { "the peak RSS" };
    if change == 0 {
        builder.tell(&format!("Since {earlier} {what} has not changed"));
    } else {
        let verb = if change > 0 { "rose" } else { "fell" };
        let share = percent(change.unsigned_abs() as f64 / before.max(1) as f64);
        let by = format_bytes(change.unsigned_abs());
        let (before, after) = (format_bytes(before), format_bytes(after));
        builder.tell(&format!("Since {earlier} {what} {verb} by {by} ({share}), from {before} to {after}"));
    }
    if figure == Figure::PeakBytes {
        largest_change(builder, compared);
    }
    leaks(builder, compared, diff.figure(Figure::LeakedBytes));
}

/// Names the site whose share in the peak changed most.
fn largest_change(builder: &mut Builder, compared: &Compared) {
    let named = |group: &&floodmark_analyze::GroupChange| group.key != NO_SITE && group.change_bytes != 0;
    let Some(group) = compared.diff.groups.iter().find(named) else { return };
    let verb = if group.change_bytes > 0 { "more" } else { "less" };
    let bytes = format_bytes(group.change_bytes.unsigned_abs());
    let is_site = compared.diff.by == GroupBy::Site;
    let name =
        if is_site { short_name(&group.key) } else { format!("{} {}", compared.diff.by.name(), group.key) };
    // A site that holds nothing any more cannot be shown.
    let target = (is_site && group.after.bytes > 0).then(|| Target {
        at: Some(TargetTime::Name("peak")),
        find: plain(&group.key).into_owned(),
        ..Target::default()
    });
    let held = format!(" held {bytes} {verb} at the peak than before, the largest change");
    builder.tell_parts([(name.as_str(), target), (held.as_str(), None)]);
}

fn leaks(builder: &mut Builder, compared: &Compared, leaked: Option<&FigureChange>) {
    let Some(leak) = compared.diff.leaks.first() else {
        if leaked.and_then(|change| change.change).is_some_and(|change| change < 0) {
            builder.tell("Less is leaked than before");
        }
        return;
    };
    let target = Target { tab: "leaks", ..Target::default() };
    let what = if leak.before.bytes == 0 { "is a new leak of " } else { "leaks more than before, by " };
    let bytes = format_bytes(leak.change_bytes.unsigned_abs());
    let name = short_name(&leak.site);
    builder.tell_parts([(name.as_str(), Some(target)), (format!(" {what}{bytes}").as_str(), None)]);
}
