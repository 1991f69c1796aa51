//! Explains a failed allocation.

use floodmark_analyze::{
    FailureFold, FragmentationFold, FragmentationOptions, GroupBy, OutOfMemory, SiteRules, WatermarkFold,
    WatermarkOptions, WhichFailure,
};
use floodmark_event::units::Instant;
use floodmark_event::{Filter, NO_DEVICE, ProcessId};

use floodmark_store::{ScanProps, Source as _};

use crate::answer::Answer;
use crate::error::Result;
use crate::gpu::device_at;
use crate::input::Input;
use crate::pass::Columns;
use crate::query::Query;

/// Ways to group what held memory. Sites come first: changes are told by site.
const WAYS: [GroupBy; 7] = [
    GroupBy::Site,
    GroupBy::Scope,
    GroupBy::Resource,
    GroupBy::Module,
    GroupBy::Stream,
    GroupBy::Thread,
    GroupBy::Size,
];

/// How to explain a failed allocation.
#[derive(Clone, Debug, Default)]
pub struct OutOfMemoryOptions {
    /// Which failure to explain.
    pub which: WhichFailure,
    /// Length of the time before the failure whose changes are reported.
    pub recent_ns: u64,
    /// Which frames cannot be sites.
    pub sites: SiteRules,
}

impl Input {
    /// Returns why an allocation failed, what held memory then, and what changed shortly before.
    ///
    /// # Errors
    /// If there are no events or they cannot be read twice.
    pub fn out_of_memory(
        &self,
        query: &Query<'_>,
        options: OutOfMemoryOptions,
    ) -> Result<Answer<OutOfMemory>> {
        self.need_rewind("explaining a failure reads its input twice")?;
        let OutOfMemoryOptions { which, recent_ns, sites } = options;
        let gaps =
            FragmentationFold::new(FragmentationOptions { sites: sites.clone(), ..Default::default() });
        let first = self.ask(query, Columns::All, (FailureFold::new(which, sites.clone()), gaps))?;
        let (failures, gaps) = &first.result;
        let Some(failure) = failures.1.as_ref() else {
            let none = OutOfMemory { failures: failures.0, ..OutOfMemory::default() };
            return Ok(first.map(|_| none));
        };
        let filter = Filter {
            processes: Some(vec![ProcessId(failure.process)]),
            devices: Some(vec![failure.device.unwrap_or(NO_DEVICE)]),
            kinds: Some(vec![failure.kind]),
            ..query.filter.clone()
        };
        let scopes = self.scope_paths()?;
        let at = WatermarkFold::new(WatermarkOptions {
            at_failure: Some(failure.number_in_domain),
            group_by: WAYS.to_vec(),
            limit: Some(0),
            sites: sites.clone(),
            scopes,
            ..WatermarkOptions::default()
        });
        let before_ns = failure.time_ns.saturating_sub_unsigned(recent_ns);
        let before = WatermarkFold::new(WatermarkOptions {
            at: Some(Instant::At(before_ns)),
            group_by: vec![GroupBy::Site],
            limit: Some(0),
            sites,
            ..WatermarkOptions::default()
        });
        let second = self.ask(&Query::new(filter, query.progress), Columns::All, (at, before))?;
        let (at, before) = second.result;
        let mut result = OutOfMemory::new(failures.clone(), gaps, at, &before);
        if let Some(trace) = self.trace() {
            let scan = trace.scan(&ScanProps::default())?;
            if let Some(device) = device_at(scan.tables(), failure) {
                result.on_device(device);
            }
        }
        Ok(first.map(|_| result))
    }
}
