//! Rotating media: one stream at a time, for a quantum, with anticipation. See the scheduler.

use std::collections::VecDeque;
use std::time::Instant;

use super::{DEADLINES, Next, Request, Scheduler, Stream};
use crate::class::IoClass;

/// Requests of the one stream that a rotating disk has at once, once its head is there: the next
/// one waits when one ends.
pub(super) const STREAM_DEPTH: usize = 2;

/// Streams whose ends are remembered.
pub(super) const LATELY: usize = 64;

/// A request of as many bytes is one of a stream, even the first of a file: what is written back at
/// once of a file that goes on growing. Its writer may wait for the room that its end gives.
const LONG: u64 = 4 << 20;

/// A background stream on rotating media gets this fraction of a quantum.
const BACKGROUND_QUANTUM_DIVISOR: u64 = 4;

/// The stream that a rotating disk serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    id: u64,
    class: IoClass,
    /// Bytes of this quantum.
    had: u64,
    /// Whether a request went on where another one had ended, or was long: such a stream is worth
    /// waiting for.
    continued: bool,
    /// Whether a request has ended since the disk turned to it. Until then a second one is held
    /// back: the head has to go there for one of them, and threads may be late with either.
    arrived: bool,
    in_flight: usize,
    /// Where the last request ended.
    position: u64,
    idle_since: Instant,
}

impl<T> Scheduler<T> {
    /// What to serve next on the device.
    pub(super) fn next_on_rotating(&mut self, now: Instant) -> Next<T> {
        if let Some(current) = self.current {
            let more = self.continuation(&current);
            let others = self.device.iter().map(VecDeque::len).sum::<usize>();
            let alone = others == self.queued_of(&current);
            let entitled = alone || self.may_go_on(&current);
            if entitled {
                if let Some(at) = more {
                    let background = current.class.is_background();
                    let depth = if current.arrived { STREAM_DEPTH } else { 1 };
                    if current.in_flight >= depth || (background && !self.has_room()) {
                        return Next::Nothing;
                    }
                    return self.serve_stream(now, current.class, at);
                }
                if others == 0 || current.in_flight > 0 {
                    return Next::Nothing;
                }
                let until = current.idle_since + self.policy.anticipation;
                if current.continued && now < until {
                    return Next::At(until);
                }
            } else if current.in_flight > 0 {
                return Next::Nothing;
            }
        }
        let Some(class) = self.choose(true, now) else {
            return Next::Nothing;
        };
        let class = IoClass::ALL[class];
        let at = self.elevator(class, now);
        self.serve_stream(now, class, at)
    }

    /// Whether the current stream goes on although others wait: until it had its quantum, but of
    /// the background only until a client wants the device.
    fn may_go_on(&self, current: &Current) -> bool {
        let clients = self.device.iter().enumerate();
        let clients = clients.filter(|(class, _)| !IoClass::ALL[*class].is_background());
        let yields = current.class.is_background()
            && clients.map(|(_, queue)| queue.len()).sum::<usize>() > 0;
        current.had < self.quantum_of(current.class) && !yields
    }

    fn quantum_of(&self, class: IoClass) -> u64 {
        if class.is_background() {
            self.policy.quantum / BACKGROUND_QUANTUM_DIVISOR
        } else {
            self.policy.quantum
        }
    }

    /// Requests queued of the current stream.
    fn queued_of(&self, current: &Current) -> usize {
        self.device[current.class.index()]
            .iter()
            .filter(|q| stream_id(&q.request) == current.id)
            .count()
    }

    /// The request that continues the current stream: the nearest one onward, else the lowest.
    fn continuation(&self, current: &Current) -> Option<usize> {
        let of_stream = self.device[current.class.index()]
            .iter()
            .enumerate()
            .filter(|(_, q)| stream_id(&q.request) == current.id);
        of_stream
            .min_by_key(|(_, q)| {
                let offset = q.request.stream.map_or(0, |s| s.offset);
                (offset < current.position, offset)
            })
            .map(|(at, _)| at)
    }

    /// The first request of the stream to turn to: the one whose oldest request is late, else the
    /// next in order of number.
    fn elevator(&self, class: IoClass, now: Instant) -> usize {
        let queue = &self.device[class.index()];
        let late = queue
            .front()
            .is_some_and(|q| now.saturating_duration_since(q.queued) >= DEADLINES[class.index()]);
        if late {
            return 0;
        }
        let here = self.current.map_or(0, |c| c.id);
        queue
            .iter()
            .enumerate()
            .min_by_key(|(_, q)| {
                let Stream { id, offset } = q.request.stream.unwrap_or(Stream { id: 0, offset: 0 });
                (id <= here, id, offset)
            })
            .map_or(0, |(at, _)| at)
    }

    fn serve_stream(&mut self, now: Instant, class: IoClass, at: usize) -> Next<T> {
        let Some(queued) = self.device[class.index()].remove(at) else {
            return Next::Nothing;
        };
        let Request { stream, bytes, .. } = queued.request;
        let Stream { id, offset } = stream.unwrap_or(Stream { id: 0, offset: 0 });
        let fresh = Current {
            id,
            class,
            had: 0,
            continued: bytes >= LONG || self.lately.contains(&(id, offset)),
            arrived: false,
            in_flight: 0,
            position: 0,
            idle_since: now,
        };
        let mut current = self
            .current
            .filter(|c| c.id == id && c.class == class && c.had < self.quantum_of(class))
            .unwrap_or(fresh);
        if let Some(before) = self.current.filter(|c| c.id == id && c.class == class) {
            current.in_flight = before.in_flight; // A new quantum of the same stream.
            current.continued = true;
            current.arrived = before.arrived;
        }
        current.had = current.had.saturating_add(bytes);
        current.position = offset.saturating_add(bytes);
        current.in_flight += 1;
        self.lately.retain(|(stream, _)| *stream != id);
        if self.lately.len() == LATELY {
            self.lately.pop_front();
        }
        self.lately.push_back((id, current.position));
        self.current = Some(current);
        self.device_in_flight += 1;
        self.serve(now, queued)
    }

    /// A request of `stream` has ended, having moved `bytes`: `more` than was estimated.
    pub(super) fn stream_ended(
        &mut self,
        now: Instant,
        (class, stream): (IoClass, Stream),
        (bytes, more): (u64, u64),
    ) {
        if let Some(current) = &mut self.current
            && (current.id, current.class) == (stream.id, class)
        {
            current.in_flight = current.in_flight.saturating_sub(1);
            current.arrived = true;
            current.had = current.had.saturating_add(more);
            current.idle_since = now;
            current.position = current.position.max(stream.offset.saturating_add(bytes));
        }
        // It may have been joined with others that wait where it ended.
        if more > 0
            && let Some((_, end)) = self.lately.iter_mut().find(|(id, _)| *id == stream.id)
        {
            *end = (*end).max(stream.offset.saturating_add(bytes));
        }
    }
}

pub(super) fn stream_id(request: &Request) -> u64 {
    request.stream.map_or(0, |s| s.id)
}
