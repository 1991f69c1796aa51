//! Growth from iteration to iteration: known slopes, noise, and agreement with a textbook.

use std::collections::BTreeMap;

use floodmark_analyze::{Growth, GrowthFold, GrowthOptions, SiteGrowth, Trend};
use floodmark_event::Filter;
use floodmark_event::{Action, Event, Kind, ProcessId, StackId};
use floodmark_testkit::{Random, line};
use proptest::prelude::*;

use crate::random::fold;

/// Time from the end of one iteration to that of the next.
const STEP_NS: i64 = 1000;

/// A program whose sites hold so many bytes when iterations end: one list of values per stack.
fn program(sites: &[(StackId, Vec<u64>)]) -> (Vec<Event>, BTreeMap<ProcessId, Vec<i64>>) {
    let iterations = sites.first().map_or(0, |(_, values)| values.len());
    let mut events = Vec::new();
    let mut address = 0x1000;
    let mut held: Vec<Option<u64>> = vec![None; sites.len()];
    for iteration in 0..iterations {
        for (at, (stack, values)) in sites.iter().enumerate() {
            let time_ns = iteration as i64 * STEP_NS + at as i64 + 1;
            let event = Event {
                time_ns,
                stack: *stack,
                process: ProcessId(1),
                kind: Kind::Device,
                ..Event::default()
            };
            if iteration > 0 && values[iteration] == values[iteration - 1] {
                continue;
            }
            if let Some(address) = held[at].take() {
                events.push(Event { action: Action::Free, address, ..event });
            }
            address += 0x1000;
            events.push(Event { address, bytes: values[iteration], ..event });
            held[at] = Some(address);
        }
        // Work of the iteration that leaves nothing behind.
        address += 0x1000;
        let time_ns = iteration as i64 * STEP_NS + 500;
        let work = Event {
            time_ns,
            address,
            bytes: 1 << 20,
            process: ProcessId(1),
            kind: Kind::Device,
            ..Event::default()
        };
        events.push(Event { stack: StackId(1), ..work });
        events.push(Event { action: Action::Free, time_ns: time_ns + 1, ..work });
    }
    let ends = (1..=iterations as i64).map(|iteration| iteration * STEP_NS).collect();
    (events, BTreeMap::from([(ProcessId(1), ends)]))
}

fn growth(sites: &[(StackId, Vec<u64>)], warm_up: u64) -> Growth {
    let (events, ends_ns) = program(sites);
    let options = GrowthOptions { per: "step".into(), ends_ns, warm_up, ..GrowthOptions::default() };
    fold(&events, &Filter::default(), 7, GrowthFold::new(options))
}

fn site<'a>(growth: &'a Growth, name: &str) -> &'a SiteGrowth {
    growth.sites.iter().find(|site| site.site.starts_with(name)).unwrap()
}

#[test]
fn the_site_that_leaks_is_found_among_noise() {
    let mut random = Random::new(7);
    let mut noise = |level: u64| level + random.below(20_000);
    let leaking: Vec<u64> = (0..200).map(|step| noise(100_000) + step * 1024).collect();
    let steady: Vec<u64> = (0..200).map(|_| noise(500_000)).collect();
    let found = growth(&[(StackId(2), leaking), (StackId(3), steady)], 0);
    assert_eq!((found.iterations, found.growing), (200, 1));
    let (leak, other) = (site(&found, "load"), site(&found, "train"));
    assert_eq!((leak.trend, other.trend), (Trend::Grows, Trend::Steady));
    assert_eq!(found.sites[0], *leak);
    assert!(leak.low.unwrap() < 1024.0 && 1024.0 < leak.high.unwrap(), "{leak:?}");
    assert!((leak.bytes_per_thousand - 1024e3).abs() < 30e3, "{leak:?}");
    assert_eq!(found.totals[0].trend, Trend::Grows);
}

#[test]
fn filling_a_cache_is_no_growth_once_it_is_warm() {
    let cache: Vec<u64> = (0..100).map(|step: u64| step.min(20) * 4096).collect();
    assert_eq!(site(&growth(&[(StackId(2), cache.clone())], 20), "load").trend, Trend::Steady);
    assert_eq!(site(&growth(&[(StackId(2), cache)], 0), "load").last_bytes, 20 * 4096);
    // A single step up proves nothing either.
    let step: Vec<u64> = (0..100).map(|step| if step < 50 { 0 } else { 1 << 20 }).collect();
    assert_eq!(site(&growth(&[(StackId(2), step)], 0), "load").trend, Trend::Steady);
}

#[test]
fn a_leak_now_and_then_grows() {
    let leaking: Vec<u64> = (0..100).map(|step: u64| step / 10 * 10_240).collect();
    let found = growth(&[(StackId(2), leaking)], 0);
    assert_eq!(site(&found, "load").trend, Trend::Grows);
    let freeing: Vec<u64> = (0..100).map(|step: u64| (100 - step) * 1000).collect();
    assert_eq!(site(&growth(&[(StackId(2), freeing)], 0), "load").trend, Trend::Shrinks);
}

#[test]
fn too_few_iterations_give_no_verdict() {
    let found = growth(&[(StackId(2), vec![100, 5000])], 0);
    assert_eq!((site(&found, "load").low, site(&found, "load").trend), (None, Trend::Steady));
    assert_eq!(growth(&[(StackId(2), vec![100, 200, 300])], 9).iterations, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn slopes_and_intervals_agree_with_a_textbook(
        values in proptest::collection::vec(1..1_000_000u64, 4..60),
        trend in 0..20_000u64,
        warm_up in 0..3usize,
    ) {
        let values: Vec<u64> =
            values.iter().enumerate().map(|(at, value)| (1 << 40) + value + at as u64 * trend).collect();
        let found = growth(&[(StackId(2), values.clone())], warm_up as u64);
        let counted: Vec<f64> = values[warm_up..].iter().map(|value| *value as f64).collect();
        prop_assume!(counted.len() >= 4);
        let (slope, half_width) = line::fit(&counted);
        let found = site(&found, "load");
        prop_assert!((found.bytes_per_iteration - slope).abs() <= 1e-3 + slope.abs() * 1e-6);
        let found_half = (found.high.unwrap() - found.low.unwrap()) / 2.0;
        prop_assert!((found_half - half_width).abs() <= 1.0 + half_width * 0.03, "{} {}", found_half, half_width);
    }
}
