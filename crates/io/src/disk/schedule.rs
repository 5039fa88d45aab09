//! Which request of a disk is served next. Decisions only: no threads, no clock of its own.
//!
//! - `request`: what the scheduler is told of a disk and of a request, and what it answers
//! - `rotating`: rotating media: one stream at a time, for a quantum, with anticipation
//!
//! **Two kinds of request.** One without a [`Stream`] does not reach the device (a copy into the
//! page cache): at most [`Policy::cached_max`] at once, in arrival order within a class. One with a
//! stream does: the media decide how.
//!
//! **Flash**: at most [`Policy::depth`] at once, in arrival order within a class; the device orders
//! them better than we could.
//!
//! **Rotating**: one stream at a time. It is served until it has had a quantum. While it has had
//! less and nothing more of it is queued, the disk waits a moment for more rather than seek away
//! (anticipation). It does not for one short request alone, such as a reader's checksums. Then the
//! next stream of the chosen class is served, in order of its number, wrapping round at the end. An
//! inode's number follows its place on the device.
//!
//! **Classes** share by weight, in bytes; one that was idle does not save up. A request that waited
//! longer than the deadline of its class goes first. Every second choice stays with the weights: a
//! heap of late scans cannot hold clients up. Background classes have one
//! request under way while a client wants something, else [`Policy::background_max`]; they always
//! have some, so that they finish.

mod request;
mod rotating;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use crate::class::IoClass;
use crate::disk::media::Media;
use request::{DEADLINES, WEIGHTS};
pub(crate) use request::{Next, Policy, Request, Stream, Ticket};
use rotating::{Current, LATELY};

/// What one request costs besides its bytes, in bytes: small ones are not free.
const OVERHEAD: u64 = 64 * 1024;

#[derive(Debug)]
struct Queued<T> {
    request: Request,
    queued: Instant,
    item: T,
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

    /// Whether a request to the page cache would start at once: there is a place, and none waits.
    /// What waits for the device does not hold it up.
    pub(crate) fn has_cached_place(&self) -> bool {
        self.cached_in_flight < self.policy.cached_max && self.cached.iter().all(VecDeque::is_empty)
    }

    /// As [`waiting`](Self::waiting), by class.
    pub(crate) fn waiting_by_class(&self) -> [usize; IoClass::COUNT] {
        std::array::from_fn(|class| self.cached[class].len() + self.device[class].len())
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
        self.stream_ended(now, (class, stream), (bytes, more));
    }
}
