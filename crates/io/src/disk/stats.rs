//! What a disk did: bytes, operations, times and run lengths by class. Kept under the lock that
//! the scheduler needs anyway, so that counting costs a few additions.

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::schedule::Ticket;
use super::slowest::Slowest;
use crate::class::IoClass;
use crate::latency::{histogram, record, up_to};

/// A longer run counts as this many bytes.
const LONGEST_RUN: u64 = 1 << 40;

/// What one class did.
#[derive(Clone, Debug)]
pub struct ClassStats {
    /// Reads and writes that ended.
    pub ops: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// From submission to service, microseconds.
    pub queue_us: Histogram<u64>,
    /// From service to the end, microseconds.
    pub service_us: Histogram<u64>,
}

impl Default for ClassStats {
    fn default() -> Self {
        Self {
            ops: 0,
            bytes: 0,
            queue_us: histogram(),
            service_us: histogram(),
        }
    }
}

/// What a disk has to do now.
#[derive(Clone, Debug, Default)]
pub struct DiskLoad {
    /// Reads and writes that wait for their turn, by [`IoClass::index`].
    pub waiting: [usize; IoClass::COUNT],
    /// Those under way, likewise.
    pub running: [usize; IoClass::COUNT],
    /// How long the one that has been under way longest has been so.
    pub longest: Option<Duration>,
}

/// What a disk did since it was opened.
#[derive(Clone, Debug)]
pub struct DiskStats {
    /// By [`IoClass::index`].
    pub classes: [ClassStats; IoClass::COUNT],
    /// Lengths in bytes of runs: what was asked of the device in one file, in sequence, before
    /// something else was. Requests through the page cache are not in it.
    pub runs: Histogram<u64>,
    /// The slowest transfers of late.
    pub slowest: Slowest,
    /// What it has to do now.
    pub load: DiskLoad,
    /// The run that goes on: file and where it ends, and its length so far.
    run: Option<(u64, u64, u64)>,
}

impl Default for DiskStats {
    fn default() -> Self {
        Self {
            classes: std::array::from_fn(|_| ClassStats::default()),
            runs: up_to(LONGEST_RUN),
            slowest: Slowest::default(),
            load: DiskLoad::default(),
            run: None,
        }
    }
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
        record(&mut class.queue_us, waited);
        let bytes = ticket.request.bytes;
        // What moves no bytes, such as an allocation, is no part of a run and ends none.
        let Some(stream) = ticket.request.stream.filter(|_| bytes > 0) else {
            return;
        };
        let end = stream.offset.saturating_add(bytes);
        let length = match self.run {
            Some((id, at, length)) if (id, at) == (stream.id, stream.offset) => {
                length.saturating_add(bytes)
            }
            Some((_, _, length)) => {
                self.runs.saturating_record(length);
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
        let took = now.saturating_duration_since(ticket.served);
        record(&mut class.service_us, took);
        self.slowest.finished(now, ticket, bytes);
    }
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
                "{class}: {} operations, {} MiB, queue p50/p99 {}/{} us, service p50/p99 \
                    {}/{} us; ",
                c.ops,
                c.bytes >> 20,
                c.queue_us.value_at_quantile(0.50),
                c.queue_us.value_at_quantile(0.99),
                c.service_us.value_at_quantile(0.50),
                c.service_us.value_at_quantile(0.99),
            )?;
        }
        let runs = &self.runs;
        write!(
            f,
            "runs: {}, p50 {} KiB",
            runs.len(),
            runs.value_at_quantile(0.50) >> 10
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
            ticket(3, 0, 0),
            ticket(2, 300, 50),
            ticket(1, 300, 9),
        ] {
            stats.served(&t);
            stats.finished(t.served + Duration::from_millis(3), &t, t.request.bytes);
        }
        assert_eq!(stats.runs.len(), 2, "the last one goes on");
        assert_eq!((stats.runs.count_at(300), stats.runs.count_at(50)), (1, 1));
        let class = stats.class(IoClass::ClientRead);
        assert_eq!((class.ops, class.bytes), (5, 359));
        assert!((100..107).contains(&class.queue_us.value_at_quantile(0.50)));
        assert!((3000..3200).contains(&class.service_us.value_at_quantile(0.99)));
        assert!(
            stats.to_string().contains("client-read: 5 operations"),
            "{stats}"
        );
    }
}
