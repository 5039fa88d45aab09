//! Latencies of operations, by the part that took them: waiting for a turn, the disk, the network.

use std::time::Duration;

use super::{Counter, nanos};

/// Upper bounds of a histogram's buckets; what is longer is in one more.
pub const BOUNDS_NANOS: [u64; 12] = [
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// Times by how long they were.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS_NANOS.len() + 1],
    total: Counter,
}

impl Histogram {
    fn add(&self, took: Duration) {
        let took = nanos(took);
        let at = BOUNDS_NANOS.partition_point(|bound| *bound < took);
        self.buckets[at].add(1);
        self.total.add(took);
    }

    /// How many were at most as long as each bound, the last of which is any length, and
    /// nanoseconds of all.
    #[must_use]
    pub fn cumulative(&self) -> ([u64; BOUNDS_NANOS.len() + 1], u64) {
        let mut up_to = [0; BOUNDS_NANOS.len() + 1];
        let mut sum = 0;
        for (out, bucket) in up_to.iter_mut().zip(&self.buckets) {
            sum += bucket.get();
            *out = sum;
        }
        (up_to, self.total.get())
    }
}

/// Kinds of operations whose latencies are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Serving a read.
    Read,
    /// Receiving a block.
    Write,
    /// Sending a replica to another node.
    Copy,
}

impl OpKind {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Copy];

    /// In metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
        }
    }
}

/// What an operation's time went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A place, a replica that grows, a limit on bandwidth.
    Waiting,
    /// Opening, reading, writing, syncing, finalizing.
    Disk,
    /// The other end.
    Network,
}

impl Part {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Disk, Self::Network];

    /// In metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Disk => "disk",
            Self::Network => "network",
        }
    }
}

/// How long the parts of one operation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpParts {
    /// See [`Part::Waiting`].
    pub waiting: Duration,
    /// See [`Part::Disk`].
    pub disk: Duration,
    /// See [`Part::Network`].
    pub network: Duration,
}

impl OpParts {
    /// Of an operation of this length: what neither waited nor kept the disk busy was the network.
    #[must_use]
    pub fn of(whole: Duration, waiting: Duration, disk: Duration) -> Self {
        let waiting = waiting.min(whole);
        let disk = disk.min(whole - waiting);
        Self {
            waiting,
            disk,
            network: whole - waiting - disk,
        }
    }

    fn part(&self, part: Part) -> Duration {
        match part {
            Part::Waiting => self.waiting,
            Part::Disk => self.disk,
            Part::Network => self.network,
        }
    }
}

/// Latencies by kind of operation and part.
#[derive(Debug, Default)]
pub struct Latencies([[Histogram; Part::ALL.len()]; OpKind::ALL.len()]);

impl Latencies {
    /// An operation ended.
    pub fn add(&self, kind: OpKind, parts: &OpParts) {
        for part in Part::ALL {
            self.of(kind, part).add(parts.part(part));
        }
    }

    /// One histogram.
    #[must_use]
    pub fn of(&self, kind: OpKind, part: Part) -> &Histogram {
        &self.0[kind as usize][part as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_their_buckets() {
        let histogram = Histogram::default();
        for took in [50, 100, 101, 40_000_000] {
            histogram.add(Duration::from_micros(took));
        }
        let (up_to, total) = histogram.cumulative();
        assert_eq!(up_to[..3], [2, 3, 3]);
        assert_eq!(up_to[11..], [3, 4], "the longest is beyond every bound");
        assert_eq!(total, 40_000_251_000);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let ms = Duration::from_millis;
        let parts = OpParts::of(ms(10), ms(2), ms(3));
        assert_eq!(
            (parts.waiting, parts.disk, parts.network),
            (ms(2), ms(3), ms(5))
        );
        // Clocks that were read at different moments give no negative time.
        let odd = OpParts::of(ms(10), ms(4), ms(20));
        assert_eq!((odd.disk, odd.network), (ms(6), ms(0)));
        let latencies = Latencies::default();
        latencies.add(OpKind::Write, &parts);
        let (up_to, total) = latencies.of(OpKind::Write, Part::Network).cumulative();
        assert_eq!((up_to[12], total), (1, 5_000_000));
        assert_eq!(latencies.of(OpKind::Read, Part::Disk).cumulative().0[12], 0);
    }
}
