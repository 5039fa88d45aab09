//! The slowest transfers of a disk within the last minute. Bounded, and kept under the lock that
//! the scheduler needs anyway: a transfer that is not among the slowest costs one comparison.

use std::time::{Duration, Instant};

use super::schedule::Ticket;
use crate::class::IoClass;

/// How long one is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Each span of this length has its own list, so that forgetting is cheap.
const SPAN: Duration = Duration::from_secs(10);
/// Enough spans to cover what is remembered, however the last one lies.
const SPANS: usize = 7;

/// One transfer that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowTransfer {
    /// On whose behalf.
    pub class: IoClass,
    /// The file's number and where in it; `None` when it went through the page cache.
    pub place: Option<(u64, u64)>,
    /// What it moved.
    pub bytes: u64,
    /// From submission to service.
    pub waited: Duration,
    /// From service to the end.
    pub served: Duration,
    /// When it ended.
    pub ended: Instant,
}

impl SlowTransfer {
    /// From submission to the end.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.waited + self.served
    }
}

/// The slowest of one span.
#[derive(Clone, Debug)]
struct Span {
    began: Instant,
    /// The slowest first, at most [`Slowest::TOLD`].
    slowest: Vec<SlowTransfer>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Slowest {
    /// A ring; at most [`SPANS`].
    spans: Vec<Span>,
    /// Where the span that goes on is.
    current: usize,
}

impl Slowest {
    /// How many are told at most.
    pub const TOLD: usize = 10;

    /// Counts a transfer that ended at `now`.
    pub(super) fn finished(&mut self, now: Instant, ticket: &Ticket, bytes: u64) {
        let waited = ticket.served.saturating_duration_since(ticket.queued);
        let served = now.saturating_duration_since(ticket.served);
        let list = &mut self.span(now).slowest;
        let took = waited + served;
        if list.len() == Self::TOLD && list.last().is_some_and(|least| least.took() >= took) {
            return;
        }
        list.truncate(Self::TOLD - 1);
        let at = list.partition_point(|other| other.took() >= took);
        let place = ticket.request.stream.map(|s| (s.id, s.offset));
        let class = ticket.request.class;
        let slow = SlowTransfer {
            class,
            place,
            bytes,
            waited,
            served,
            ended: now,
        };
        list.insert(at, slow);
    }

    /// The span that `now` is in; a new one takes the place of the oldest.
    fn span(&mut self, now: Instant) -> &mut Span {
        let goes_on = |span: &Span| now.saturating_duration_since(span.began) < SPAN;
        if !self.spans.get(self.current).is_some_and(goes_on) {
            if self.spans.len() < SPANS {
                self.current = self.spans.len();
                self.spans.push(Span {
                    began: now,
                    slowest: Vec::with_capacity(Self::TOLD),
                });
            } else {
                self.current = (self.current + 1) % SPANS;
                let span = &mut self.spans[self.current];
                span.began = now;
                span.slowest.clear();
            }
        }
        &mut self.spans[self.current]
    }

    /// The slowest of the minute before `now`, at most [`TOLD`](Self::TOLD), the slowest first.
    #[must_use]
    pub fn last_minute(&self, now: Instant) -> Vec<SlowTransfer> {
        let all = self.spans.iter().flat_map(|span| &span.slowest);
        let recent = |t: &&SlowTransfer| now.saturating_duration_since(t.ended) <= REMEMBERED;
        let mut slowest: Vec<SlowTransfer> = all.filter(recent).copied().collect();
        slowest.sort_by_key(|t| std::cmp::Reverse(t.took()));
        slowest.truncate(Self::TOLD);
        slowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::schedule::{Request, Stream};

    fn finish(slowest: &mut Slowest, at: Instant, ms: u64) {
        let ticket = Ticket {
            request: Request {
                class: IoClass::ClientRead,
                stream: Some(Stream { id: 7, offset: ms }),
                bytes: 1,
            },
            queued: at.checked_sub(Duration::from_millis(ms)).expect("early"),
            served: at,
        };
        slowest.finished(at, &ticket, 4096);
    }

    fn told(slowest: &Slowest, now: Instant) -> Vec<u128> {
        let told = slowest.last_minute(now).into_iter();
        told.map(|slow| slow.took().as_millis()).collect()
    }

    #[test]
    fn the_slowest_ten_are_told_in_order() {
        let (mut slowest, start) = (Slowest::default(), Instant::now() + SPAN);
        assert!(told(&slowest, start).is_empty());
        for ms in [5, 300, 1, 20] {
            finish(&mut slowest, start, ms);
        }
        assert_eq!(told(&slowest, start), [300, 20, 5, 1]);
        for ms in 100..200 {
            finish(&mut slowest, start, ms);
        }
        let wanted: Vec<u128> = [300].into_iter().chain((191..200).rev()).collect();
        assert_eq!(told(&slowest, start), wanted);
        let first = slowest.last_minute(start)[0];
        assert_eq!((first.place, first.bytes), (Some((7, 300)), 4096));
        assert_eq!(first.served, Duration::ZERO);
    }

    #[test]
    fn a_minute_later_they_are_forgotten_and_memory_is_bounded() {
        let (mut slowest, start) = (Slowest::default(), Instant::now() + SPAN);
        finish(&mut slowest, start, 5000);
        for second in 1..=600 {
            let now = start + Duration::from_secs(second);
            for ms in 1..30 {
                finish(&mut slowest, now, ms);
            }
            let told = told(&slowest, now);
            assert_eq!(told.len(), 10, "after {second} s");
            assert_eq!(told[0] == 5000, second <= 60, "after {second} s");
        }
        assert_eq!(slowest.spans.len(), SPANS);
        assert!(
            slowest
                .spans
                .iter()
                .all(|s| s.slowest.capacity() == Slowest::TOLD)
        );
    }
}
