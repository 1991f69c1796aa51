//! Who held memory agrees with adding up the blocks of the peak by hand.

use std::collections::BTreeMap;

use floodmark_analyze::{HoldersFold, SiteRules};
use proptest::prelude::*;

use crate::random::{events, filter, fold, oracle, tables};

proptest! {
    #[test]
    fn every_site_holds_what_its_blocks_hold(events in events(), filter in filter()) {
        let (watermark, found) = fold(&events, &filter, 7, HoldersFold::default());
        let (peak_bytes, peak_time_ns, blocks) = oracle(&events, &filter).peak();
        prop_assert_eq!((watermark.peak_bytes, watermark.peak_time_ns), (peak_bytes, peak_time_ns));
        let (tables, rules) = (tables(), SiteRules::default());
        let mut sites: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut stacks: BTreeMap<(String, Vec<String>), (u64, u64)> = BTreeMap::new();
        for alloc in blocks.iter().map(|life| &life.alloc).filter(|alloc| alloc.stack.0 != 0 || alloc.name.0 != 0) {
            let site = rules.site(alloc.stack, alloc.name, &tables);
            let mut sums = vec![sites.entry(site.clone()).or_default()];
            if alloc.stack.0 != 0 {
                sums.push(stacks.entry((site, tables.stack_text(alloc.stack))).or_default());
            }
            for sum in sums {
                *sum = (sum.0 + alloc.bytes, sum.1 + 1);
            }
        }
        prop_assert!(found.is_sorted_by_key(|site| std::cmp::Reverse(site.bytes)));
        for site in &found {
            prop_assert!((site.share * peak_bytes as f64 - site.bytes as f64).abs() <= 1e-6 * peak_bytes as f64);
            prop_assert!(site.stacks.is_sorted_by_key(|stack| std::cmp::Reverse(stack.bytes)));
            prop_assert_eq!(site.stacks_omitted, 0);
        }
        let found_stacks = found.iter().flat_map(|site| {
            site.stacks.iter().map(|stack| ((site.site.clone(), stack.stack.to_vec()), (stack.bytes, stack.blocks)))
        });
        prop_assert_eq!(found_stacks.collect::<BTreeMap<_, _>>(), stacks);
        let found: BTreeMap<_, _> = found.iter().map(|site| (site.site.clone(), (site.bytes, site.blocks))).collect();
        prop_assert_eq!(found, sites);
    }
}
