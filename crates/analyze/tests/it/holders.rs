//! Who held memory agrees with adding up the blocks of the peak by hand.

use std::collections::BTreeMap;

use floodmark_analyze::{Holders, HoldersFold};
use floodmark_event::Event;
use floodmark_event::units::format_bytes;
use proptest::prelude::*;

use crate::random::{events, fold, narrow, oracle, tables};

/// Bytes and blocks, by all texts from the outermost.
type Paths = BTreeMap<Vec<String>, (u64, u64)>;

fn path(event: &Event) -> Vec<String> {
    let tables = tables();
    if event.stack.0 != 0 {
        return tables.stack_text(event.stack).into_iter().rev().collect();
    }
    if event.name.0 != 0 {
        return vec![tables.string(event.name).to_owned()];
    }
    let size = format!("blocks of {}", format_bytes(event.bytes));
    vec![format!("thread {}", event.thread), format!("stream {:#x}", event.stream), size]
}

/// The paths of nodes; a parent must come before its children.
fn found(holders: &Holders) -> Paths {
    let mut paths: Vec<Vec<String>> = Vec::new();
    for node in &holders.nodes {
        let mut path = node.parent.map_or_else(Vec::new, |parent| paths[parent as usize].clone());
        path.push(node.text.clone());
        paths.push(path);
    }
    paths.into_iter().zip(holders.nodes.iter().map(|node| (node.bytes, node.blocks))).collect()
}

proptest! {
    #[test]
    fn every_call_holds_what_the_blocks_below_it_hold(events in events(), narrow in narrow()) {
        let (watermark, holders) = fold(&events, &narrow, 7, HoldersFold::default());
        let (peak_bytes, peak_time_ns, blocks) = oracle(&events, &narrow).peak();
        prop_assert_eq!((watermark.peak_bytes, watermark.peak_time_ns), (peak_bytes, peak_time_ns));
        let mut all = Paths::new();
        for life in &blocks {
            let path = path(&life.alloc);
            for depth in 1..=path.len() {
                let sum = all.entry(path[..depth].to_vec()).or_default();
                *sum = (sum.0 + life.alloc.bytes, sum.1 + 1);
            }
        }
        let seen: Paths = all.iter().filter(|(_, sum)| sum.0 * 4000 >= peak_bytes).map(|(path, sum)| (path.clone(), *sum)).collect();
        prop_assert_eq!(holders.nodes_omitted, (all.len() - seen.len()) as u64);
        prop_assert_eq!(found(&holders), seen);
        let known = blocks.iter().filter(|life| life.alloc.stack.0 != 0 || life.alloc.name.0 != 0);
        let (mut bytes, mut count) = (0, 0);
        for life in known {
            (bytes, count) = (bytes + life.alloc.bytes, count + 1);
        }
        let sites = holders.sites.iter().fold((0, 0), |sum, site| (sum.0 + site.bytes, sum.1 + site.blocks));
        prop_assert_eq!(sites, (bytes, count));
    }
}
