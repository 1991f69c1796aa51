//! What was live at a failure agrees with following the events up to it by hand.

use std::collections::BTreeMap;

use floodmark_analyze::{
    FailureFold, FragmentationFold, GroupBy, OutOfMemory, SiteRules, WatermarkFold, WatermarkOptions,
    WhichFailure,
};
use floodmark_event::units::Instant;
use floodmark_event::{Action, Filter};
use proptest::prelude::*;

use crate::random::{events, fold, oracle, tables};

/// Bytes by site.
fn by_site(lives: &[floodmark_testkit::oracle::Life]) -> BTreeMap<String, u64> {
    let (tables, rules) = (tables(), SiteRules::default());
    let mut sites = BTreeMap::new();
    for alloc in lives.iter().map(|life| &life.alloc) {
        *sites.entry(rules.site(alloc.stack, alloc.name, &tables)).or_default() += alloc.bytes;
    }
    sites
}

proptest! {
    #[test]
    fn what_is_live_at_a_failure_is_what_was_allocated_and_not_freed_before(
        events in events(),
        pick in any::<proptest::sample::Index>(),
        recent_ns in 0..200u64,
    ) {
        let rows: Vec<usize> = (0..events.len()).filter(|row| events[*row].action == Action::Failure).collect();
        let gaps = FragmentationFold::default();
        if rows.is_empty() {
            let (failures, _) = fold(&events, &Filter::default(), 7, (FailureFold::default(), gaps));
            prop_assert_eq!(failures, (0, None));
            return Ok(());
        }
        let number = pick.index(rows.len());
        let row = rows[number];
        let which = WhichFailure::Number(number as u64 + 1);
        let first = (FailureFold::new(which, SiteRules::default()), gaps);
        let (failures, gaps) = fold(&events, &Filter::default(), 7, first);
        let failure = failures.1.clone().unwrap();
        prop_assert_eq!((failures.0, failure.number), (rows.len() as u64, number as u64 + 1));
        prop_assert_eq!((failure.time_ns, failure.asked_bytes), (events[row].time_ns, events[row].bytes));

        let domain = Filter {
            processes: Some(vec![events[row].process]),
            devices: Some(vec![events[row].device]),
            kinds: Some(vec![events[row].kind]),
            ..Filter::default()
        };
        let options = |at, at_failure| WatermarkOptions { at, at_failure, group_by: vec![GroupBy::Site], ..Default::default() };
        let before_ns = failure.time_ns - recent_ns as i64;
        let at = WatermarkFold::new(options(None, Some(failure.number_in_domain)));
        let before = WatermarkFold::new(options(Some(Instant::At(before_ns)), None));
        let (at, before) = fold(&events, &domain, 7, (at, before));
        let result = OutOfMemory::new(failures, &gaps, at, &before);

        let live = oracle(&events[..row], &domain).live();
        prop_assert_eq!(result.live_bytes, live.iter().map(|life| life.alloc.bytes).sum::<u64>());
        prop_assert_eq!(result.live_blocks, live.len() as u64);
        let held: BTreeMap<_, _> =
            result.held_by[0].groups.iter().map(|group| (group.key.clone(), group.bytes)).collect();
        prop_assert_eq!(&held, &by_site(&live));
        let earlier = by_site(&oracle(&events, &domain).blocks_at(before_ns));
        for change in &result.recent.sites {
            prop_assert_eq!(change.before_bytes, earlier.get(&change.site).copied().unwrap_or(0));
            prop_assert_eq!(change.at_bytes, held.get(&change.site).copied().unwrap_or(0));
        }
        let changed = |site: &String| earlier.get(site).copied().unwrap_or(0) != held.get(site).copied().unwrap_or(0);
        let sites: std::collections::BTreeSet<_> = earlier.keys().chain(held.keys()).filter(|site| changed(site)).collect();
        prop_assert_eq!(result.recent.sites.len(), sites.len());
        if let Some(free) = result.free {
            prop_assert!(free.missing_bytes <= failure.asked_bytes);
            let named: u64 = result.enough.iter().map(|site| held[site]).sum();
            prop_assert!(result.enough.is_empty() || named >= free.missing_bytes);
        }
    }
}
