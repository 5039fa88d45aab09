//! Which request of a disk is served next. Decisions only: no threads, no clock of its own.
//!
//! **Two kinds of request.** One without a [`Stream`] does not reach the device (a copy into the
//! page cache): at most [`Policy::cached_max`] at once, in arrival order within a class. One with a
//! stream does: the media decide how.
//!
//! **Flash**: at most [`Policy::depth`] at once, in arrival order within a class; the device orders
//! them better than we could.
//!
//! **Rotating**: one stream at a time. It is served until it has had a quantum; while it has had
//! less and nothing more of it is queued, the disk waits a moment for more rather than seek away
//! (anticipation), unless it was one short request alone, such as a reader's checksums. Then the
//! next stream of the chosen class in order of its number (an inode's number follows its place on
//! the device), wrapping round at the end.
//!
//! **Classes** share by weight, in bytes; one that was idle does not save up. A request that waited
//! longer than the deadline of its class goes first, but every second choice stays with the
//! weights, so that a heap of late scans cannot hold clients up. Background classes have one
//! request under way while a client wants something, else [`Policy::background_max`]; they always
//! have some, so that they finish.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::calibrate::Media;
use crate::class::IoClass;

/// What one request costs besides its bytes, in bytes: small ones are not free.
const OVERHEAD: u64 = 64 * 1024;

/// Requests of the one stream that a rotating disk has at once: the next is there when one ends.
const STREAM_DEPTH: usize = 2;

/// Streams whose ends are remembered.
const LATELY: usize = 64;

/// A request of as many bytes is one of a stream, even the first of a file: what is written back at
/// once of a file that goes on growing. Its writer may wait for the room that its end gives.
const LONG: u64 = 4 << 20;

/// A background stream on rotating media gets this fraction of a quantum.
const BACKGROUND_QUANTUM_DIVISOR: u64 = 4;

/// Shares of a busy disk by class.
const WEIGHTS: [u64; IoClass::COUNT] = {
    let mut weights = [0; IoClass::COUNT];
    weights[IoClass::ClientWrite as usize] = 32;
    weights[IoClass::ClientRead as usize] = 32;
    weights[IoClass::Replication as usize] = 12;
    weights[IoClass::Balancer as usize] = 3;
    weights[IoClass::Scan as usize] = 1;
    weights[IoClass::Delete as usize] = 2;
    weights
};

/// After this a request of the class goes first.
pub(super) const DEADLINES: [Duration; IoClass::COUNT] = {
    let mut deadlines = [Duration::ZERO; IoClass::COUNT];
    deadlines[IoClass::ClientWrite as usize] = Duration::from_secs(1);
    deadlines[IoClass::ClientRead as usize] = Duration::from_millis(300);
    deadlines[IoClass::Replication as usize] = Duration::from_secs(3);
    deadlines[IoClass::Balancer as usize] = Duration::from_secs(10);
    deadlines[IoClass::Scan as usize] = Duration::from_secs(20);
    deadlines[IoClass::Delete as usize] = Duration::from_secs(10);
    deadlines
};

/// How a disk is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Decides between streams and a plain depth.
    pub media: Media,
    /// Bytes served to one stream before the disk turns to another. Rotating only.
    pub quantum: u64,
    /// Requests on the device at once. Flash only.
    pub depth: usize,
    /// Requests at once that do not reach the device.
    pub cached_max: usize,
    /// Requests of background classes at once, when no client wants anything.
    pub background_max: usize,
    /// How long a rotating disk waits for more of the stream it serves.
    pub anticipation: Duration,
}

/// A place in a file on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// The file; numbers near each other are near each other on the device.
    pub id: u64,
    /// Where in the file, in bytes.
    pub offset: u64,
}

/// What is known of a request before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// On whose behalf.
    pub class: IoClass,
    /// `None` when it does not reach the device.
    pub stream: Option<Stream>,
    /// An estimate of what it moves.
    pub bytes: u64,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub request: Request,
    pub queued: Instant,
    pub served: Instant,
}

/// The answer to "what next".
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// This one, now.
    Serve(Ticket, T),
    /// Nothing now; ask again at this time, or when something was queued or has ended.
    At(Instant),
    /// Nothing until something was queued or has ended.
    Nothing,
}

#[derive(Debug)]
struct Queued<T> {
    request: Request,
    queued: Instant,
    item: T,
}

/// The stream that a rotating disk serves.
#[derive(Clone, Copy, Debug)]
struct Current {
    id: u64,
    class: IoClass,
    /// Bytes of this quantum.
    had: u64,
    /// Whether a request went on where another one had ended, or was long: such a stream is worth
    /// waiting for.
    continued: bool,
    in_flight: usize,
    /// Where the last request ended.
    position: u64,
    idle_since: Instant,
}

type Queues<T> = [VecDeque<Queued<T>>; IoClass::COUNT];

/// The queues of one disk and the choice among them.
#[derive(Debug)]
pub(crate) struct Scheduler<T> {
    policy: Policy,
    cached: Queues<T>,
    device: Queues<T>,
    cached_in_flight: usize,
    device_in_flight: usize,
    by_class_in_flight: [usize; IoClass::COUNT],
    /// Bytes by weight that each class has had.
    had: [u64; IoClass::COUNT],
    /// What the class chosen last by weight had had: where a class that was idle starts.
    floor: u64,
    /// The last choice went by deadline.
    late_was_served: bool,
    current: Option<Current>,
    /// Streams served lately and where they ended, the last one at the end.
    lately: VecDeque<(u64, u64)>,
}

impl<T> Scheduler<T> {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            cached: Default::default(),
            device: Default::default(),
            cached_in_flight: 0,
            device_in_flight: 0,
            by_class_in_flight: [0; IoClass::COUNT],
            had: [0; IoClass::COUNT],
            floor: 0,
            late_was_served: false,
            current: None,
            lately: VecDeque::with_capacity(LATELY),
        }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Queued, not yet served.
    pub(crate) fn waiting(&self) -> usize {
        let count = |queues: &Queues<T>| queues.iter().map(VecDeque::len).sum::<usize>();
        count(&self.cached) + count(&self.device)
    }

    fn is_active(&self, class: usize) -> bool {
        self.by_class_in_flight[class] > 0
            || !self.cached[class].is_empty()
            || !self.device[class].is_empty()
    }

    /// Queues a request.
    pub(crate) fn push(&mut self, now: Instant, request: Request, item: T) {
        let class = request.class.index();
        if !self.is_active(class) {
            self.had[class] = self.had[class].max(self.floor);
        }
        let queues = match request.stream {
            Some(_) => &mut self.device,
            None => &mut self.cached,
        };
        queues[class].push_back(Queued {
            request,
            queued: now,
            item,
        });
    }

    /// What to serve next. The caller reports its end by [`finished`](Self::finished).
    pub(crate) fn next(&mut self, now: Instant) -> Next<T> {
        if self.cached_in_flight < self.policy.cached_max
            && let Some(class) = self.choose(false, now)
            && let Some(queued) = self.cached[class].pop_front()
        {
            self.cached_in_flight += 1;
            return self.serve(now, queued);
        }
        match self.policy.media {
            Media::Flash => self.next_on_flash(now),
            Media::Rotating => self.next_on_rotating(now),
        }
    }

    fn next_on_flash(&mut self, now: Instant) -> Next<T> {
        if self.device_in_flight < self.policy.depth
            && let Some(class) = self.choose(true, now)
            && let Some(queued) = self.device[class].pop_front()
        {
            self.device_in_flight += 1;
            return self.serve(now, queued);
        }
        Next::Nothing
    }

    fn next_on_rotating(&mut self, now: Instant) -> Next<T> {
        if let Some(current) = self.current {
            let more = self.continuation(&current);
            let others = self.device.iter().map(VecDeque::len).sum::<usize>();
            let alone = others == self.queued_of(&current);
            let entitled = alone || self.may_go_on(&current);
            if entitled {
                if let Some(at) = more {
                    let background = current.class.is_background();
                    if current.in_flight >= STREAM_DEPTH || (background && !self.has_room()) {
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

    /// Whether one more request of a background class may be under way.
    fn has_room(&self) -> bool {
        let classes = || IoClass::ALL.into_iter();
        let under_way: usize = classes()
            .filter(|class| class.is_background())
            .map(|class| self.by_class_in_flight[class.index()])
            .sum();
        let clients = classes().any(|c| !c.is_background() && self.is_active(c.index()));
        under_way
            < if clients {
                1
            } else {
                self.policy.background_max
            }
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

    /// The class whose turn it is among those with something queued; the caller serves it.
    fn choose(&mut self, on_device: bool, now: Instant) -> Option<usize> {
        let is_background = |class: &usize| IoClass::ALL[*class].is_background();
        let queues = if on_device {
            &self.device
        } else {
            &self.cached
        };
        let room = self.has_room();
        let able = || {
            (0..IoClass::COUNT)
                .filter(|class| !queues[*class].is_empty() && (room || !is_background(class)))
        };
        let late_by = |class: &usize| {
            let waited = now.saturating_duration_since(queues[*class].front()?.queued);
            waited.checked_sub(DEADLINES[*class])
        };
        let latest = able()
            .filter(|_| !self.late_was_served)
            .filter_map(|class| Some((late_by(&class)?, class)))
            .max();
        let chosen = match latest {
            Some((_, class)) => class,
            None => able().min_by_key(|class| self.had[*class])?,
        };
        self.late_was_served = latest.is_some();
        if latest.is_none() {
            self.floor = self.floor.max(self.had[chosen]);
        }
        Some(chosen)
    }

    fn serve(&mut self, now: Instant, queued: Queued<T>) -> Next<T> {
        let class = queued.request.class.index();
        self.by_class_in_flight[class] += 1;
        self.charge(class, queued.request.bytes.saturating_add(OVERHEAD));
        let ticket = Ticket {
            request: queued.request,
            queued: queued.queued,
            served: now,
        };
        Next::Serve(ticket, queued.item)
    }

    fn charge(&mut self, class: usize, bytes: u64) {
        self.had[class] = self.had[class].saturating_add(bytes / WEIGHTS[class]);
    }

    /// A served request has ended, having moved `bytes`.
    pub(crate) fn finished(&mut self, now: Instant, ticket: &Ticket, bytes: u64) {
        let Request {
            class,
            stream,
            bytes: estimate,
        } = ticket.request;
        let more = bytes.saturating_sub(estimate);
        self.charge(class.index(), more);
        self.by_class_in_flight[class.index()] -= 1;
        let Some(stream) = stream else {
            self.cached_in_flight -= 1;
            return;
        };
        self.device_in_flight -= 1;
        if let Some(current) = &mut self.current
            && (current.id, current.class) == (stream.id, class)
        {
            current.in_flight = current.in_flight.saturating_sub(1);
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

fn stream_id(request: &Request) -> u64 {
    request.stream.map_or(0, |s| s.id)
}

#[cfg(test)]
mod tests;
