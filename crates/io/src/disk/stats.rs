//! What a disk did: bytes, operations, times and run lengths by class. Kept under the lock that
//! the scheduler needs anyway, so that counting costs a few additions.

use std::fmt;
use std::time::{Duration, Instant};

use super::schedule::Ticket;
use crate::class::IoClass;

/// Buckets of a [`Histogram`]; the last holds everything above.
const BUCKETS: usize = 40;

/// Counts by powers of two: bucket `i` holds values below 2^i that are not in an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
        }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        let bucket = usize::try_from(u64::BITS - value.leading_zeros()).expect("at most 64");
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
    }

    /// The counts; bucket `i` is of values below 2^i.
    #[must_use]
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// A bound, within a factor of two, that `percent` of the values stay below; 0 without values.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = self.count().saturating_mul(percent.min(100)).div_ceil(100);
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= rank.max(1) {
                return 1 << i;
            }
        }
        0
    }
}

/// What one class did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Reads and writes that ended.
    pub ops: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// From submission to service, microseconds.
    pub queue_us: Histogram,
    /// From service to the end, microseconds.
    pub service_us: Histogram,
}

/// What a disk did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// By [`IoClass::index`].
    pub classes: [ClassStats; IoClass::COUNT],
    /// Lengths in bytes of runs: what was asked of the device in one file, in sequence, before
    /// something else was. Requests through the page cache are not in it.
    pub runs: Histogram,
    /// The run that goes on: file and where it ends, and its length so far.
    run: Option<(u64, u64, u64)>,
}

impl DiskStats {
    /// The numbers of one class.
    #[must_use]
    pub fn class(&self, class: IoClass) -> &ClassStats {
        &self.classes[class.index()]
    }

    pub(super) fn served(&mut self, ticket: &Ticket) {
        let waited = ticket.served.saturating_duration_since(ticket.queued);
        let class = &mut self.classes[ticket.request.class.index()];
        class.queue_us.add(micros(waited));
        let Some(stream) = ticket.request.stream else {
            return;
        };
        let bytes = ticket.request.bytes;
        let end = stream.offset.saturating_add(bytes);
        let length = match self.run {
            Some((id, at, length)) if (id, at) == (stream.id, stream.offset) => {
                length.saturating_add(bytes)
            }
            Some((_, _, length)) => {
                self.runs.add(length);
                bytes
            }
            None => bytes,
        };
        self.run = Some((stream.id, end, length));
    }

    pub(super) fn finished(&mut self, now: Instant, ticket: &Ticket, bytes: u64) {
        let class = &mut self.classes[ticket.request.class.index()];
        class.ops += 1;
        class.bytes = class.bytes.saturating_add(bytes);
        class
            .service_us
            .add(micros(now.saturating_duration_since(ticket.served)));
    }
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// One line: the classes that did something, and the runs.
impl fmt::Display for DiskStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in IoClass::ALL {
            let c = self.class(class);
            if c.ops == 0 {
                continue;
            }
            write!(
                f,
                "{class}: {} operations, {} MiB, queue p50/p99 < {}/{} us, service p50/p99 < \
                    {}/{} us; ",
                c.ops,
                c.bytes >> 20,
                c.queue_us.percentile(50),
                c.queue_us.percentile(99),
                c.service_us.percentile(50),
                c.service_us.percentile(99),
            )?;
        }
        let runs = &self.runs;
        write!(
            f,
            "runs: {}, p50 < {} KiB",
            runs.count(),
            runs.percentile(50) >> 10
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::schedule::{Request, Stream};

    fn ticket(id: u64, offset: u64, bytes: u64) -> Ticket {
        let now = Instant::now();
        Ticket {
            request: Request {
                class: IoClass::ClientRead,
                stream: Some(Stream { id, offset }),
                bytes,
            },
            queued: now,
            served: now + Duration::from_micros(100),
        }
    }

    #[test]
    fn runs_end_where_the_next_request_is_elsewhere() {
        let mut stats = DiskStats::default();
        for t in [
            ticket(1, 0, 100),
            ticket(1, 100, 200),
            ticket(2, 300, 50),
            ticket(1, 300, 9),
        ] {
            stats.served(&t);
            stats.finished(t.served + Duration::from_millis(3), &t, t.request.bytes);
        }
        assert_eq!(stats.runs.count(), 2, "the last one goes on");
        assert_eq!(
            (stats.runs.buckets()[9], stats.runs.buckets()[6]),
            (1, 1),
            "300 and 50"
        );
        let class = stats.class(IoClass::ClientRead);
        assert_eq!((class.ops, class.bytes), (4, 359));
        assert_eq!(class.queue_us.percentile(50), 128);
        assert_eq!(class.service_us.percentile(99), 4096);
        assert!(
            stats.to_string().contains("client-read: 4 operations"),
            "{stats}"
        );
    }
}
