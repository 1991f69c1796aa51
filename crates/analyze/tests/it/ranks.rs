//! Ranks against sums that are computed in the most obvious way.

use std::collections::BTreeMap;

use floodmark_analyze::{Ranks, RanksFold};
use floodmark_event::{Metric, SampleRow};
use floodmark_testkit::ranks::RankJob;
use proptest::prelude::*;

fn hosts(job: &RankJob) -> BTreeMap<u32, String> {
    job.tables().processes.iter().map(|process| (process.id.0, process.host.clone())).collect()
}

fn fold(job: &RankJob, keep: impl Fn(&SampleRow) -> bool) -> RanksFold {
    let mut fold = RanksFold::new(&job.tables().subjects, &hosts(job));
    for sweep in 0..job.sweeps {
        let rows: Vec<SampleRow> = job.sweep(sweep).into_iter().filter(&keep).collect();
        fold.update(&rows);
    }
    fold
}

fn peaks(ranks: &Ranks) -> BTreeMap<u64, u64> {
    ranks.rank_list.iter().map(|rank| (rank.rank, rank.peak_rss_bytes)).collect()
}

#[test]
fn ranks_without_samples_are_named() {
    let job = RankJob { ranks: 4, ranks_per_node: 2, sweeps: 5, highest: 1 };
    let missing = job.tables().subjects.values().find(|one| one.number == 2002).unwrap().subject;
    let is_read = |row: &SampleRow| row.subject != missing || row.metric == Metric::Rank;
    let mut fold = fold(&job, is_read);
    fold.expect(0..6);
    let found = fold.finish(None);
    assert_eq!(found.ranks_without_samples, [2, 4, 5]);
    assert_eq!(found.ranks, 3);
    assert_eq!(peaks(&found).keys().copied().collect::<Vec<_>>(), [0, 1, 3]);
    let mut fold = RanksFold::new(&BTreeMap::new(), &BTreeMap::new());
    assert!(fold.is_empty());
    fold.expect([7]);
    assert!(!fold.is_empty());
    assert_eq!(fold.finish(None).ranks_without_samples, [7]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn peaks_of_ranks_and_nodes_are_those_of_their_samples(
        ranks in 1_u64..40, ranks_per_node in 1_u64..9, sweeps in 2_u64..900, highest in 0_u64..40
    ) {
        let job = RankJob { ranks, ranks_per_node, sweeps, highest };
        let fold = fold(&job, |_| true);
        let found = fold.finish(None);
        let peak = |rank| (0..sweeps).map(|sweep| job.bytes(rank, sweep)).max().unwrap();
        let expected: BTreeMap<u64, u64> = (0..ranks).map(|rank| (rank, peak(rank))).collect();
        prop_assert_eq!(&peaks(&found), &expected);
        prop_assert_eq!(found.nodes.len() as u64, job.nodes());
        for node in &found.nodes {
            let number: u64 = node.host[4..].parse().unwrap();
            let own = number * ranks_per_node..((number + 1) * ranks_per_node).min(ranks);
            let sum = |sweep| own.clone().map(|rank| job.bytes(rank, sweep)).sum::<u64>();
            prop_assert_eq!(node.peak_rss_bytes, (0..sweeps).map(sum).max().unwrap());
        }
        let map = fold.map().unwrap();
        prop_assert!(map.columns() <= 512);
        for (rank, values) in map.ranks.iter().zip(&map.values) {
            prop_assert_eq!(values.iter().flatten().max(), Some(&expected[rank]));
        }
        let highest = *expected.values().max().unwrap();
        prop_assert_eq!(map.highest_bytes(), highest);
        let mean = expected.values().sum::<u64>() as f64 / ranks as f64;
        prop_assert!((found.imbalance.highest_to_mean - highest as f64 / mean).abs() < 1e-9);
    }

    #[test]
    fn parts_of_different_nodes_merge_to_the_whole(ranks in 2_u64..40, sweeps in 2_u64..700, cut in 1_u64..5) {
        let job = RankJob { ranks, ranks_per_node: 4, sweeps, highest: 1 };
        let mut first = fold(&job, |row| row.subject >> 32 <= cut);
        let second = fold(&job, |row| row.subject >> 32 > cut);
        first.merge(second);
        let (merged, whole) = (first.finish(None), fold(&job, |_| true).finish(None));
        prop_assert_eq!(&merged.rank_list, &whole.rank_list);
        prop_assert_eq!(&merged.nodes, &whole.nodes);
        prop_assert_eq!(&merged.quantiles, &whole.quantiles);
        prop_assert_eq!(first.map(), fold(&job, |_| true).map());
    }
}
