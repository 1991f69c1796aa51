//! The ledger of a device adds up, and agrees with an oracle that looks at every block.

use std::collections::BTreeMap;

use floodmark_analyze::{
    DEVICE_KINDS, DeviceIdentity, DeviceLedgerClass, DeviceSamplesFold, Pass, SiteRules, TrackedUseFold,
};
use floodmark_event::units::Instant;
use floodmark_event::{Event, Filter, Kind, Metric, ProcessId, SampleRow, StringId, SubjectKind, SubjectRow};
use floodmark_testkit::oracle::Life;
use proptest::prelude::*;

use crate::random::{batch, events, oracle, tables};

const DEVICE: u64 = 1;
const FIRST_PROCESS: u64 = 10;

/// Samples as a recorder could have read them, in order: subject, time and value.
fn samples() -> impl Strategy<Value = Vec<(u64, i64, u64)>> {
    let subject = prop_oneof![2 => Just(DEVICE), 1 => FIRST_PROCESS..FIRST_PROCESS + 3];
    let one = (subject, 0..60i64, prop_oneof![1 => Just(0u64), 2 => 1..5000u64, 1 => Just(4000u64)]);
    proptest::collection::vec(one, 0..30).prop_map(|mut list| {
        let mut time_ns = 980;
        for sample in &mut list {
            time_ns += sample.1;
            sample.1 = time_ns;
        }
        list
    })
}

fn subjects() -> BTreeMap<u64, SubjectRow> {
    let process = |at: u64| {
        let id = FIRST_PROCESS + at;
        (id, SubjectRow::new(id, SubjectKind::Process, 100 + at, format!("program {at}")))
    };
    let device = SubjectRow::new(DEVICE, SubjectKind::Device, 0, "card");
    BTreeMap::from([(DEVICE, device), process(0), process(1), process(2)])
}

proptest! {
    #[test]
    fn items_add_up_to_what_is_used_at_the_highest_sample(
        mut events in events(),
        samples in samples(),
        known in proptest::option::of((proptest::bool::ANY, proptest::bool::ANY)),
    ) {
        let mut tables = tables();
        let segments = tables.intern("pool segments");
        for event in events.iter_mut().filter(|event| event.kind == Kind::Managed) {
            (event.kind, event.resource) = (Kind::Reserved, segments);
        }
        let subjects = subjects();
        let row = |(subject, time_ns, value): (u64, i64, u64)| {
            SampleRow { subject, time_ns, value, metric: Metric::GpuUsed }
        };
        let mut fold = DeviceSamplesFold::new(DEVICE);
        for sample in &samples {
            fold.sample(&row(*sample));
        }
        for sample in &samples {
            fold.sample_beside(&row(*sample), &subjects);
        }

        // The highest sample of the device, the first of several.
        let used = || samples.iter().filter(|(subject, ..)| *subject == DEVICE);
        let most = used().map(|(.., value)| *value).max();
        let peak = most.and_then(|most| used().find(|(.., value)| *value == most));
        prop_assert_eq!(fold.instant(), peak.map(|(_, time_ns, _)| *time_ns));
        let Some((_, peak_ns, used_bytes)) = peak.copied() else { return Ok(()) };

        // Process 2 may call another device its device 0, and this one its device 1.
        let known: BTreeMap<(ProcessId, i32), bool> = known.map_or_else(BTreeMap::new, |(zero, one)| {
            BTreeMap::from([((ProcessId(2), 0), zero), ((ProcessId(2), 1), one)])
        });
        let is_own = |event: &Event| {
            *known.get(&(event.process, event.device)).unwrap_or(&(event.device == 0))
        };
        let filter = Filter {
            kinds: Some(DEVICE_KINDS.to_vec()),
            to_ns: Some(Instant::At(peak_ns)),
            ..Filter::default()
        };
        let identity = DeviceIdentity { number: 0, known: known.clone() };
        let mut pass = Pass::new(&filter, TrackedUseFold::new(identity, SiteRules::default()));
        pass.update(&batch(&events));
        let tracked = pass.finish(&tables);
        let pids = BTreeMap::from([(ProcessId(1), 100), (ProcessId(2), 101)]);
        let ledger = fold.ledger(Some(&tracked), &pids, &subjects, None).unwrap();
        prop_assert_eq!((ledger.peak_used_bytes, ledger.peak_time_ns), (used_bytes, peak_ns));
        prop_assert_eq!(ledger.items.iter().map(|item| item.bytes).sum::<i64>(), used_bytes as i64);

        let lives: Vec<Life> = oracle(&events, &filter).live();
        let sum_of = |process: Option<u32>, is_wanted: &dyn Fn(&Event) -> bool| -> i64 {
            let own = lives.iter().map(|life| &life.alloc).filter(|event| is_own(event) && is_wanted(event));
            let own = own.filter(|event| process.is_none_or(|process| event.process.0 == process));
            own.map(|event| event.bytes as i64).sum()
        };
        let is_block = |event: &Event| matches!(event.kind, Kind::Device | Kind::Array);
        let item_sum = |class| -> i64 {
            ledger.items.iter().filter(|item| item.class == class).map(|item| item.bytes).sum()
        };
        let handed_out = |event: &Event| is_block(event) && event.resource == StringId(1);
        prop_assert_eq!(item_sum(DeviceLedgerClass::HandedOut), sum_of(None, &handed_out));
        let direct = |event: &Event| is_block(event) && event.resource == StringId(0);
        prop_assert_eq!(item_sum(DeviceLedgerClass::Library), sum_of(None, &direct));
        prop_assert_eq!(item_sum(DeviceLedgerClass::Static), sum_of(None, &|event| event.kind == Kind::Static));
        // What is held beyond what was handed out of it, in each process and for each name of what is held.
        let mut slack = 0;
        for process in [1, 2] {
            for resource in [StringId(0), StringId(1), segments] {
                let held = sum_of(Some(process), &|event| {
                    event.kind == Kind::Reserved && event.resource == resource
                });
                let divided = if resource == segments { sum_of(Some(process), &handed_out) } else { 0 };
                slack += (held - divided).max(0);
            }
        }
        prop_assert_eq!(item_sum(DeviceLedgerClass::CacheSlack), slack);
        // What the driver counts for a process is what was recorded of it and its context.
        let recorded = |process| {
            let tracked = tracked.iter().filter(|one| one.process == ProcessId(process));
            tracked.map(|one| one.bytes as i64).sum::<i64>()
        };
        for item in ledger.items.iter().filter(|item| item.class == DeviceLedgerClass::Context) {
            let subject = FIRST_PROCESS + item.pid.unwrap() - 100;
            let read_ns = item.read_time_ns.unwrap();
            prop_assert!(item.bytes >= 0, "{:?}", item);
            let bytes = item.bytes + recorded(if item.pid == Some(100) { 1 } else { 2 });
            prop_assert!(samples.contains(&(subject, read_ns, bytes as u64)), "{:?} {}", item, bytes);
        }
    }
}
