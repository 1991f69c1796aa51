//! Streams that run nothing, but know what would have to run before what.
//!
//! Every stream has a clock that counts what was enqueued on it, and knows how much of every other
//! stream it has waited for. So a test can ask whether a block was handed on too early.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::copier::{Copier, NothingToCopy};
use crate::error::{AllocError, Result};
use crate::stream::{Marker, Stream, StreamListener, StreamOrder};
use crate::thread;

/// What of each stream is known to have run, by the stream's identity.
type Clock = HashMap<u64, u64>;

/// The streams of a simulated device.
#[derive(Default)]
pub struct SimulatedOrder {
    state: Mutex<State>,
    listeners: Mutex<Vec<Weak<dyn StreamListener>>>,
}

#[derive(Default)]
struct State {
    clocks: HashMap<u64, Clock>,
    /// What the host has waited for, and so whatever is enqueued later.
    host: Clock,
    markers: HashMap<u64, Clock>,
    /// Identities of the streams made here, by handle. A handle is used again once its stream ended.
    made: HashMap<u64, u64>,
    next: u64,
    waits: u64,
}

/// A point in the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    identity: u64,
    count: u64,
}

/// A stream of a simulated device; ends when dropped.
pub struct SimulatedStream {
    order: Arc<SimulatedOrder>,
    handle: u64,
}

/// Bit in the identities of streams that were not made here; ours count up from 0.
const FOREIGN: u64 = 1 << 62;
const PER_THREAD: u64 = 1 << 63;
/// The first handle of a stream made here.
const FIRST_HANDLE: u64 = 0x1000;

impl SimulatedOrder {
    /// Makes a stream.
    pub fn create(self: &Arc<Self>) -> SimulatedStream {
        let mut state = self.state();
        let handle = (FIRST_HANDLE..).step_by(16).find(|handle| !state.made.contains_key(handle));
        let handle = handle.expect("there are more numbers than streams");
        state.next += 1;
        let identity = state.next;
        state.made.insert(handle, identity);
        SimulatedStream { order: Arc::clone(self), handle }
    }

    /// Enqueues something on `stream` and says where.
    pub fn submit(&self, stream: Stream) -> Moment {
        let mut state = self.state();
        let identity = state.identity(stream);
        let count = state.clocks.entry(identity).or_default().entry(identity).or_default();
        *count += 1;
        Moment { identity, count: *count }
    }

    /// Whether what is enqueued on `stream` from now on runs after `moment`.
    pub fn covers(&self, stream: Stream, moment: Moment) -> bool {
        let state = self.state();
        let identity = state.identity(stream);
        let knows = |clock: &Clock| clock.get(&moment.identity) >= Some(&moment.count);
        identity == moment.identity || knows(&state.host) || state.clocks.get(&identity).is_some_and(knows)
    }

    /// How often a stream was made to wait for another.
    pub fn waits(&self) -> u64 {
        self.state().waits
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn identity(&self, stream: Stream) -> u64 {
        if stream.is_per_thread() {
            return PER_THREAD | u64::from(thread::number());
        }
        self.made.get(&stream.handle()).copied().unwrap_or(FOREIGN | stream.handle())
    }
}

fn gone(act: &'static str) -> AllocError {
    AllocError::Device { act, message: "the stream has ended, or the marker is not recorded".into() }
}

impl StreamOrder for SimulatedOrder {
    fn identity(&self, stream: Stream) -> u64 {
        self.state().identity(stream)
    }

    fn marker(&self) -> Result<Marker> {
        let mut state = self.state();
        state.next += 1;
        Ok(Marker(state.next))
    }

    fn discard(&self, marker: Marker) {
        self.state().markers.remove(&marker.0);
    }

    fn record(&self, marker: Marker, stream: Stream) -> Result<()> {
        let mut state = self.state();
        let ours = stream.handle() >= FIRST_HANDLE && stream.handle() < FOREIGN;
        if ours && stream.is_lasting() && !state.made.contains_key(&stream.handle()) {
            return Err(gone("recording a marker"));
        }
        let identity = state.identity(stream);
        let clock = state.clocks.get(&identity).cloned().unwrap_or_default();
        state.markers.insert(marker.0, clock);
        Ok(())
    }

    fn wait(&self, stream: Stream, marker: Marker) -> Result<()> {
        let mut state = self.state();
        let Some(known) = state.markers.get(&marker.0).cloned() else {
            return Err(gone("waiting for a marker"));
        };
        let identity = state.identity(stream);
        join(state.clocks.entry(identity).or_default(), &known);
        state.waits += 1;
        Ok(())
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        let mut state = self.state();
        let identity = state.identity(stream);
        let State { clocks, host, .. } = &mut *state;
        if let Some(clock) = clocks.get(&identity) {
            join(host, clock);
        }
        Ok(())
    }

    fn synchronize_all(&self) -> Result<()> {
        let State { clocks, host, .. } = &mut *self.state();
        for clock in clocks.values() {
            join(host, clock);
        }
        Ok(())
    }

    fn subscribe(&self, listener: Weak<dyn StreamListener>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    fn copier(&self) -> Option<&dyn Copier> {
        Some(&NothingToCopy)
    }
}

/// Learns all that `other` knows.
fn join(clock: &mut Clock, other: &Clock) {
    for (stream, count) in other {
        let known = clock.entry(*stream).or_default();
        *known = (*count).max(*known);
    }
}

impl SimulatedStream {
    /// The stream, for as long as this lives.
    pub fn stream(&self) -> Stream {
        Stream::lasting(self.handle)
    }

    /// Ends the stream as a foreign one ends: without a notification.
    pub fn vanish(self) {
        self.order.state().made.remove(&self.handle);
        std::mem::forget(self);
    }

    /// The same as a program that does not know us would pass it.
    pub fn foreign(&self) -> Stream {
        Stream::foreign(self.handle)
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        let listeners = self.order.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.stream_ends(self.stream());
        }
        self.order.state().made.remove(&self.handle);
    }
}

impl std::fmt::Debug for SimulatedOrder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        write!(out, "SimulatedOrder {{ streams: {}, markers: {} }}", state.made.len(), state.markers.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_covers_what_it_waited_for() {
        let order = Arc::new(SimulatedOrder::default());
        let (one, two) = (order.create(), order.create());
        let first = order.submit(one.stream());
        assert!(order.covers(one.stream(), first) && !order.covers(two.stream(), first));
        let marker = order.marker().unwrap();
        order.record(marker, one.stream()).unwrap();
        let second = order.submit(one.stream());
        order.wait(two.stream(), marker).unwrap();
        assert!(order.covers(two.stream(), first) && !order.covers(two.stream(), second));
        order.synchronize_all().unwrap();
        assert!(order.covers(two.stream(), second));
    }

    #[test]
    fn a_handle_used_again_is_another_stream() {
        let order = Arc::new(SimulatedOrder::default());
        let one = order.create();
        let (handle, first) = (one.stream().handle(), order.submit(one.stream()));
        drop(one);
        let two = order.create();
        assert_eq!(two.stream().handle(), handle);
        assert!(!order.covers(two.stream(), first));
        assert!(order.record(order.marker().unwrap(), Stream::lasting(handle + 16)).is_err());
    }
}
