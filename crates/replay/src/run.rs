//! Plays a script against a resource: once to verify and to look at the room, then to take the time.
//!
//! Times are taken around every call, from a clock whose own cost is measured and taken off. Looking at
//! the room would disturb them, so it has a play of its own, and every play an instance of its own.

use floodmark_tail::clock::monotonic_ns;

use crate::concurrent::{Ensemble, Parts};
use crate::error::Result;
use crate::histogram::Histogram;
use crate::lineup::{Choice, Lineup};
use crate::player::{Cast, Player};
use crate::result::{Failure, Fragmentation, Order, Played, Schedule, Spread, Took};
use crate::script::Script;
use crate::stage::Stage;
use crate::watch::{Failed, Gauge, Measure, Timing, clock_cost_ns};

/// How to play.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunProps {
    /// In which order.
    pub order: Order,
    /// How many times as fast as it happened; none for as fast as it goes.
    pub speed: Option<f64>,
    /// How often to play to take the time, at least once.
    pub repeats: u64,
}

/// Says where an event is in its file: `line 12`.
pub type Places<'a> = &'a dyn Fn(u64) -> Option<String>;

/// A script made ready to be played.
#[derive(Debug)]
pub struct Run<'a> {
    cast: Cast<'a>,
    props: RunProps,
    clock_ns: u64,
}

impl<'a> Run<'a> {
    /// Prepares to play `script`.
    pub fn new(script: &'a Script, props: RunProps) -> Self {
        let props = RunProps { repeats: props.repeats.max(1), ..props };
        Self { cast: Cast::new(script), props, clock_ns: clock_cost_ns() }
    }

    /// How it is played.
    pub fn schedule(&self) -> Schedule {
        let RunProps { order, speed, repeats } = self.props;
        Schedule { order, speed, repeats, clock_ns: self.clock_ns }
    }

    /// How many steps playing against one resource takes, for progress.
    pub fn steps(&self) -> u64 {
        self.cast.script.played().len() as u64 * (self.props.repeats + 1)
    }

    /// Plays against one resource of the lineup; `report` gets the number of steps done since it was
    /// told last.
    ///
    /// # Errors
    /// When the resource cannot be made ready or a thread cannot be started. Allocations that fail are no
    /// errors but findings.
    pub fn play(
        &self,
        lineup: &Lineup,
        choice: Choice,
        places: Places<'_>,
        report: &mut dyn FnMut(u64),
    ) -> Result<Played> {
        let parts = match self.props.order {
            Order::Log => None,
            Order::Concurrent => Some(Parts::new(&self.cast)?),
        };
        let stage = || lineup.stage(choice, self.cast.script.streams());
        let mut played = Played {
            resource: choice.name().to_owned(),
            setup: lineup.setup(choice),
            ..self.verify(&stage()?, parts.as_ref(), places, report)?
        };
        let mut times = Vec::new();
        for _ in 0..self.props.repeats {
            times.push(self.time(&stage()?, parts.as_ref(), report)?);
        }
        self.take_in(&mut played, &times);
        Ok(played)
    }

    /// Plays once and looks on.
    fn verify(
        &self,
        stage: &Stage,
        parts: Option<&Parts<'_>>,
        places: Places<'_>,
        report: &mut dyn FnMut(u64),
    ) -> Result<Played> {
        let script = self.cast.script;
        let gauge = Gauge::new(script, stage);
        let mut seen = Measure::new(&gauge);
        let last = script.played().end.saturating_sub(1);
        if let Some(parts) = parts {
            let ensemble = Ensemble::new(parts, stage);
            ensemble.begin(&mut seen);
            let outcome = ensemble.play(self.props.speed, || Measure::new(&gauge), report)?;
            outcome.watches.into_iter().for_each(|watch| seen.merge(watch));
            seen.sample(last);
            ensemble.end(&mut Timing::default());
        } else {
            let mut player = Player::new(&self.cast, stage);
            // Nothing here asks to stop.
            let _ = player.play(script.carried(), &mut seen, &mut |_| {});
            player.keep_pace(self.props.speed);
            let _ = player.play(script.played(), &mut seen, report);
            seen.sample(last);
            player.keep_pace(None);
            let _ = player.play(script.leftovers(), &mut Timing::default(), &mut |_| {});
        }
        Ok(self.played(&seen, gauge.peak_bytes(), stage, places))
    }

    /// Plays once and takes the time.
    fn time(
        &self,
        stage: &Stage,
        parts: Option<&Parts<'_>>,
        report: &mut dyn FnMut(u64),
    ) -> Result<(Timing, u64)> {
        let script = self.cast.script;
        if let Some(parts) = parts {
            let ensemble = Ensemble::new(parts, stage);
            ensemble.begin(&mut Timing::default());
            let outcome = ensemble.play(self.props.speed, Timing::default, report)?;
            ensemble.end(&mut Timing::default());
            let mut timing = Timing::default();
            outcome.watches.iter().for_each(|watch| timing.merge(watch));
            return Ok((timing, outcome.elapsed_ns));
        }
        let mut player = Player::new(&self.cast, stage);
        let mut timing = Timing::default();
        let _ = player.play(script.carried(), &mut Timing::default(), &mut |_| {});
        let begin_ns = monotonic_ns();
        player.keep_pace(self.props.speed);
        let _ = player.play(script.played(), &mut timing, report);
        let elapsed_ns = monotonic_ns() - begin_ns;
        player.keep_pace(None);
        let _ = player.play(script.leftovers(), &mut Timing::default(), &mut |_| {});
        Ok((timing, elapsed_ns))
    }

    fn played(&self, seen: &Measure<'_>, peak_live_bytes: u64, stage: &Stage, places: Places<'_>) -> Played {
        let script = self.cast.script;
        let unused = |live: u64, reserved: u64| {
            (reserved > 0).then(|| reserved.saturating_sub(live) as f64 / reserved as f64)
        };
        Played {
            resource: String::new(),
            setup: None,
            allocate: Took::default(),
            free: Took::default(),
            calls_ns: Spread::default(),
            elapsed_ns: Spread::default(),
            peak_live_bytes,
            peak_reserved_bytes: seen.peak_reserved_bytes,
            unused_at_peak: seen.at_peak.and_then(|sample| unused(sample.live_bytes, sample.reserved_bytes)),
            worst_fragmentation: seen.worst.and_then(|sample| {
                Some(Fragmentation { share: sample.fragmentation?, event: script.event_of(sample.step) + 1 })
            }),
            failures: seen.failures,
            first_failures: seen
                .first_failures
                .iter()
                .map(|failed| failure(failed, script, places))
                .collect(),
            would_fit: seen.served_now,
            failed_again: seen.failed_again,
            waits: stage.waits(),
        }
    }

    /// Sums up what the timed plays took.
    fn take_in(&self, played: &mut Played, times: &[(Timing, u64)]) {
        let net = |ns: u64| ns.saturating_sub(self.clock_ns);
        let took = |of: fn(&Timing) -> &Histogram| Took {
            count: times.first().map_or(0, |(timing, _)| of(timing).count()),
            median_ns: Spread::of(times.iter().map(|(timing, _)| net(of(timing).quantile(0.5))).collect()),
            p99_ns: Spread::of(times.iter().map(|(timing, _)| net(of(timing).quantile(0.99))).collect()),
            max_ns: times.iter().map(|(timing, _)| net(of(timing).max_ns())).max().unwrap_or(0),
        };
        played.allocate = took(|timing| &timing.allocate);
        played.free = took(|timing| &timing.free);
        let calls = times.iter().map(|(Timing { allocate, free, .. }, _)| {
            let clock_ns = (allocate.count() + free.count()) * self.clock_ns;
            (allocate.sum_ns() + free.sum_ns()).saturating_sub(clock_ns)
        });
        played.calls_ns = Spread::of(calls.collect());
        played.elapsed_ns = Spread::of(times.iter().map(|(_, elapsed_ns)| *elapsed_ns).collect());
        // Plays differ where others use the same device, or threads run beside each other.
        let most = times.iter().map(|(timing, _)| timing.failures).max().unwrap_or(0);
        played.failures = played.failures.max(most);
    }
}

fn failure(failed: &Failed, script: &Script, places: Places<'_>) -> Failure {
    let event = script.event_of(failed.step);
    Failure {
        event: event + 1,
        place: places(event),
        request_bytes: failed.request_bytes,
        live_bytes: failed.live_bytes,
        reserved_bytes: failed.reserved_bytes,
        largest_free_bytes: failed.largest_free_bytes,
        cause: failed.cause.to_owned(),
        message: failed.message.clone(),
    }
}
