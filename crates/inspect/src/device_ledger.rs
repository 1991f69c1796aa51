//! The ledger of a device: what the memory consisted of that its driver said was in use at the peak.

use std::collections::{BTreeMap, BTreeSet};

use floodmark_analyze::{
    DEVICE_KINDS, DeviceIdentity, DeviceLedger, DeviceSamplesFold, SiteRules, TrackedUse, TrackedUseFold,
};
use floodmark_event::units::Instant;
use floodmark_event::{Filter, ProcessId, Row, SubjectKind, SubjectRow, Tables};

use crate::answer::{Answer, join_losses};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::overlay::device_id;
use crate::pass::Columns;
use crate::query::Query;

impl Input {
    /// Returns what the used memory of a device consisted of at its peak. Devices are numbered as the driver does; what
    /// programs number otherwise is told by the UUID.
    ///
    /// # Errors
    /// If the device was not sampled, events are selected by anything else, the input is read from a pipe, or it cannot
    /// be read.
    pub fn device_ledger(&self, query: &Query<'_>, number: i32) -> Result<Answer<DeviceLedger>> {
        self.need_rewind("a ledger needs samples and then events")?;
        refuse_others(&query.filter)?;
        let mut subject = None;
        let mut fold = DeviceSamplesFold::default();
        self.each_row(query.progress, |rows, tables| {
            for row in rows {
                let Row::Sample(row) = row else { continue };
                if subject.is_none()
                    && let Some(found) = tables.subjects.get(&row.subject)
                    && is_device(found, number)
                {
                    subject = Some(row.subject);
                    fold = DeviceSamplesFold::new(row.subject);
                }
                fold.sample(row);
            }
        })?;
        let Some(peak_ns) = fold.instant() else { return Err(self.device_not_sampled(number)) };
        let source = self.each_row(query.progress, |rows, tables| {
            for row in rows {
                if let Row::Sample(row) = row {
                    fold.sample_beside(row, &tables.subjects);
                }
            }
        })?;
        let tables = source.tables();
        let device = subject.and_then(|subject| tables.subjects.get(&subject));
        let identity = identity(number, device, tables);
        let mut losses = source.losses().gaps;
        let (mut tracked, mut first_event_ns) = (None, None);
        let mut caveats = None;
        if self.contents().has_events {
            let filter = Filter {
                kinds: Some(DEVICE_KINDS.to_vec()),
                to_ns: Some(Instant::At(peak_ns)),
                ..Filter::default()
            };
            let live = TrackedUseFold::new(identity.clone(), SiteRules::default());
            let folded = self.fold_any(&Query::new(filter, query.progress), Columns::All, live)?;
            first_event_ns = folded.pass.live().counters().first_time_ns;
            join_losses(&mut losses, &folded.source.losses());
            caveats = Some(folded.answer.caveats);
            let mut uses: Vec<TrackedUse> = folded.answer.result;
            uses.extend(fold.pool_slack(&identity, &tables.subjects));
            tracked = first_event_ns.is_some().then_some(uses);
        }
        let pids = tables.processes.iter().filter(|process| process.pid != 0);
        let pids: BTreeMap<ProcessId, u64> =
            pids.map(|process| (process.id, u64::from(process.pid))).collect();
        let ledger = fold.ledger(tracked.as_deref(), &pids, &tables.subjects, first_event_ns);
        let result = ledger.ok_or_else(|| self.device_not_sampled(number))?;
        let caveats = caveats.unwrap_or_default();
        Ok(Answer { source: self.name().to_owned(), losses, caveats, result })
    }

    fn device_not_sampled(&self, number: i32) -> Error {
        let name = self.name();
        Error::no_content(
            format!("{name} has no samples of the used memory of device {number}, which its ledger needs"),
            format!(
                "'floodmark info {name}' lists the devices that were sampled; \
                 'floodmark run --gpu=all -- COMMAND' records samples and allocations"
            ),
        )
    }
}

/// Refuses what would leave something out: the driver's figure is about everything.
fn refuse_others(filter: &Filter) -> Result<()> {
    let others = Filter { devices: None, ..filter.clone() };
    if others == Filter::default() {
        return Ok(());
    }
    let words: BTreeSet<String> = others.words().into_iter().collect();
    Err(Error::unsuitable(
        "a device's ledger is about all that is in use on it, at its peak in the whole recording".to_owned(),
        format!("leave out {}", words.into_iter().collect::<Vec<_>>().join(" ")),
    ))
}

fn is_device(subject: &SubjectRow, number: i32) -> bool {
    subject.kind == SubjectKind::Device && i32::try_from(subject.number).is_ok_and(|own| own == number)
}

/// Tells which devices of the processes this one is: those with the same UUID where both sides know it.
fn identity(number: i32, device: Option<&SubjectRow>, tables: &Tables) -> DeviceIdentity {
    let sampled = tables.subjects.values().filter(|subject| subject.kind == SubjectKind::Device);
    let sampled: BTreeSet<String> = sampled.filter_map(|subject| device_id(&subject.detail)).collect();
    let own = device.and_then(|device| device_id(&device.detail));
    let known = tables.devices.iter().filter_map(|(place, uuid)| {
        let id = device_id(uuid).filter(|id| sampled.contains(id))?;
        Some((*place, own.as_ref() == Some(&id)))
    });
    DeviceIdentity { number, known: known.collect() }
}
