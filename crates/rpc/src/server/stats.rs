//! Counts of what the RPC port does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Methods that have a time of their own; calls of further ones count as `other`. Clients name
/// methods, so that what is kept needs a limit.
const METHODS_MAX: usize = 64;
const OTHER: &str = "other";

/// Counts since the start of the port. Cheap to read at any time.
#[derive(Debug, Default)]
pub struct RpcStats {
    /// Bytes of frames that came in, with their lengths.
    pub received_bytes: RpcCount,
    /// Bytes of answers.
    pub sent_bytes: RpcCount,
    /// Connections, now.
    pub open_connections: RpcCount,
    /// Connections closed because too many were open.
    pub dropped_connections: RpcCount,
    /// Callers that may connect.
    pub authorized: RpcCount,
    /// Callers that may not.
    pub refused: RpcCount,
    /// Calls that came in.
    pub requests: RpcCount,
    /// Calls that were answered without an error.
    pub successes: RpcCount,
    /// Calls that wait for a handler, now.
    pub waiting: RpcCount,
    /// Calls that run, now.
    pub running: RpcCount,
    /// Wait until the port takes a call.
    pub enqueue: CallTime,
    /// Wait for a handler.
    pub queue: CallTime,
    /// Carrying out.
    pub processing: CallTime,
    /// Handing the answer over for sending.
    pub response: CallTime,
    /// Carrying out, and all of it, by method. Calls of this port are few.
    methods: Mutex<BTreeMap<String, MethodTimes>>,
}

/// A number.
#[derive(Debug, Default)]
pub struct RpcCount(AtomicU64);

impl RpcCount {
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// One more, until what is returned is dropped: a panic leaves nothing counted.
    pub(super) fn hold(&self) -> Held<'_> {
        self.add(1);
        Held(self)
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted as going on now.
#[must_use]
pub(super) struct Held<'a>(&'a RpcCount);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How often something was done, and how long all of it took.
#[derive(Debug, Default)]
pub struct CallTime {
    count: RpcCount,
    nanos: AtomicU64,
}

impl CallTime {
    pub(super) fn add(&self, took: Duration) {
        self.count.add(1);
        self.nanos.fetch_add(nanos(took), Ordering::Relaxed);
    }

    /// How often, and nanoseconds in total.
    #[must_use]
    pub fn total(&self) -> (u64, u64) {
        (self.count.get(), self.nanos.load(Ordering::Relaxed))
    }
}

/// Calls of a method: how many, and nanoseconds in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodTimes {
    /// Calls.
    pub calls: u64,
    /// Carrying them out.
    pub processing_nanos: u64,
    /// From their arrival to the answer.
    pub overall_nanos: u64,
}

impl RpcStats {
    pub(super) fn called(&self, method: &str, processing: Duration, overall: Duration) {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = methods.len() < METHODS_MAX;
        let times = match methods.get_mut(method) {
            Some(times) => times,
            None if has_room => methods.entry(method.to_owned()).or_default(),
            None => methods.entry(OTHER.to_owned()).or_default(),
        };
        times.calls += 1;
        times.processing_nanos += nanos(processing);
        times.overall_nanos += nanos(overall);
    }

    /// Calls by method.
    #[must_use]
    pub fn methods(&self) -> BTreeMap<String, MethodTimes> {
        self.methods
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn nanos(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_clients_make_up_do_not_grow_for_ever() {
        let stats = RpcStats::default();
        let (short, long) = (Duration::from_millis(1), Duration::from_millis(2));
        for n in 0..1000 {
            stats.called(&format!("m{n}"), short, long);
        }
        let methods = stats.methods();
        assert_eq!(methods.len(), METHODS_MAX + 1);
        let other = methods.get(OTHER).copied().expect("the rest");
        assert_eq!(other.calls, 1000 - METHODS_MAX as u64);
        assert_eq!(other.overall_nanos, 2 * other.processing_nanos);
    }
}
