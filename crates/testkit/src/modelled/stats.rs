//! What a modelled disk did: requests, runs, seeks, and how busy it was over time.

use serde::{Deserialize, Serialize};

use super::model::{MediaKind, Params, Request, ServiceTime};

/// Buckets of the utilisation over time; when they are full, two become one.
const BUCKETS_MAX: usize = 1024;
/// Width of a bucket at first, nanoseconds.
const BUCKET: u64 = 250_000_000;
/// A request answered later than this after its time was held up by this machine, nanoseconds.
const LATE: u64 = 2_000_000;

/// Classes of a [`LatencyCounts`].
pub const LATENCY_CLASSES: usize = 24;

/// Requests by the time from their arrival to the end of their service. Class `n` has those that
/// took less than 2^n hundredths of a millisecond, and no class before it has.
pub type LatencyCounts = [u64; LATENCY_CLASSES];

/// The class of a request that took so long, nanoseconds; the last one has all that took longer.
fn latency_class(nanoseconds: u64) -> usize {
    let hundredths = nanoseconds / 10_000;
    let class = usize::try_from(u64::BITS - hundredths.leading_zeros()).unwrap_or(usize::MAX);
    class.min(LATENCY_CLASSES - 1)
}

/// Requests of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionStats {
    /// How many.
    pub requests: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Mean bytes of one.
    pub mean_bytes: u64,
    /// How long they took.
    #[serde(default)]
    pub latency: LatencyCounts,
}

/// What a modelled disk did since it was mounted, or since its statistics were reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Always true: none of this was measured on a disk.
    pub modelled: bool,
    /// The disk.
    pub params: Params,
    /// Size of the disk, bytes.
    pub capacity: u64,
    /// Seconds covered.
    pub seconds: f64,
    /// Reads.
    pub read: DirectionStats,
    /// Writes.
    pub write: DirectionStats,
    /// Maximal sequences of requests of which each began where the last one ended.
    pub runs: u64,
    /// Mean bytes of a run.
    pub run_mean_bytes: u64,
    /// Requests for which the head was positioned anew.
    pub seeks: u64,
    /// Seconds of seeking.
    pub seek_s: f64,
    /// Seconds of waiting for the platter to turn, or for gaps to pass.
    pub rotation_s: f64,
    /// Seconds of transfer.
    pub transfer_s: f64,
    /// Share of the time in which a request was being served, 0 to 1.
    pub utilisation: f64,
    /// The same, in buckets of `bucket_s` from the beginning on.
    pub utilisation_over_time: Vec<f64>,
    /// Width of a bucket, seconds.
    pub bucket_s: f64,
    /// Requests waiting when one was chosen, on average.
    pub queue_mean: f64,
    /// Flushes of the host; they cost nothing, because writes are answered from the platter.
    pub flushes: u64,
    /// Requests answered more than 2 ms after their time, because this machine was busy or the
    /// backing file slow. More than a few mean that the model was not what was measured.
    pub late: u64,
    /// The latest of them, milliseconds.
    pub late_worst_ms: f64,
    /// Processor seconds of the process that models the disk.
    pub cpu_s: f64,
}

/// Collects [`Stats`].
#[derive(Debug, Default)]
pub struct Recorder {
    since: u64,
    read: DirectionStats,
    write: DirectionStats,
    runs: u64,
    seeks: u64,
    seek: u64,
    rotation: u64,
    transfer: u64,
    queued: u64,
    flushes: u64,
    late: u64,
    late_worst: u64,
    bucket: u64,
    busy: Vec<u64>,
}

impl Recorder {
    /// Begins at `now`.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self {
            since: now,
            bucket: BUCKET,
            ..Self::default()
        }
    }

    /// A request was served; `queued` were waiting when it was chosen, itself included.
    pub fn served(&mut self, request: &Request, service: &ServiceTime, queued: usize) {
        let direction = match request.kind {
            MediaKind::Read => &mut self.read,
            MediaKind::Write => &mut self.write,
        };
        direction.requests += 1;
        direction.bytes += request.length;
        let took = service.end.saturating_sub(request.arrived);
        direction.latency[latency_class(took)] += 1;
        if !service.sequential || self.runs == 0 {
            self.runs += 1;
        }
        self.seeks += u64::from(service.positioned);
        self.seek += service.seek;
        self.rotation += service.rotation;
        self.transfer += service.transfer;
        self.queued += u64::try_from(queued).unwrap_or(0);
        self.busy_between(service.start, service.end);
    }

    /// A request that should have been answered at `due` was answered at `now`.
    pub fn answered(&mut self, due: u64, now: u64) {
        let late = now.saturating_sub(due);
        if late > LATE {
            self.late += 1;
            self.late_worst = self.late_worst.max(late);
        }
    }

    /// The host flushed.
    pub fn flushed(&mut self) {
        self.flushes += 1;
    }

    fn busy_between(&mut self, start: u64, end: u64) {
        let (mut at, end) = (
            start.saturating_sub(self.since),
            end.saturating_sub(self.since),
        );
        while at < end {
            let mut index = usize::try_from(at / self.bucket).unwrap_or(usize::MAX);
            while index >= BUCKETS_MAX {
                self.busy = self.busy.chunks(2).map(|two| two.iter().sum()).collect();
                self.bucket *= 2;
                index = usize::try_from(at / self.bucket).unwrap_or(usize::MAX);
            }
            if self.busy.len() <= index {
                self.busy.resize(index + 1, 0);
            }
            let until = end.min((at / self.bucket + 1) * self.bucket);
            self.busy[index] += until - at;
            at = until;
        }
    }

    /// What there is so far.
    #[must_use]
    pub fn stats(&self, params: &Params, capacity: u64, now: u64, cpu_s: f64) -> Stats {
        let mean = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
        let direction = |d: &DirectionStats| DirectionStats {
            mean_bytes: mean(d.bytes, d.requests),
            ..*d
        };
        let requests = self.read.requests + self.write.requests;
        let elapsed = now.saturating_sub(self.since).max(1);
        let busy: u64 = self.busy.iter().sum();
        Stats {
            modelled: true,
            params: *params,
            capacity,
            seconds: seconds(elapsed),
            read: direction(&self.read),
            write: direction(&self.write),
            runs: self.runs,
            run_mean_bytes: mean(self.read.bytes + self.write.bytes, self.runs),
            seeks: self.seeks,
            seek_s: seconds(self.seek),
            rotation_s: seconds(self.rotation),
            transfer_s: seconds(self.transfer),
            utilisation: (seconds(busy) / seconds(elapsed)).min(1.0),
            utilisation_over_time: self
                .busy
                .iter()
                .map(|&b| rounded(seconds(b) / seconds(self.bucket)))
                .collect(),
            bucket_s: seconds(self.bucket),
            queue_mean: rounded(seconds(self.queued) / seconds(requests.max(1))),
            flushes: self.flushes,
            late: self.late,
            late_worst_ms: seconds(self.late_worst) * 1e3,
            cpu_s,
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53 ns, 104 days; beyond that nanoseconds do not matter"
)]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::super::model::Model;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn request(offset: u64, arrived: u64) -> Request {
        Request {
            kind: MediaKind::Write,
            offset,
            length: MIB,
            arrived,
        }
    }

    fn recorded(offsets: &[u64]) -> Stats {
        let params = Params::default();
        let mut model = Model::new(params, 1 << 30);
        let mut recorder = Recorder::new(0);
        for offset in offsets {
            let request = request(offset * MIB, 0);
            let service = model.serve(&request);
            recorder.served(&request, &service, 1);
        }
        recorder.stats(&params, 1 << 30, model.free_at(), 0.5)
    }

    #[test]
    fn runs_and_seeks_are_counted() {
        let stats = recorded(&[0, 1, 2, 100, 101, 3]);
        assert_eq!((stats.runs, stats.seeks), (3, 2));
        assert_eq!(stats.write.requests, 6);
        assert_eq!(stats.write.mean_bytes, MIB);
        assert_eq!(stats.run_mean_bytes, 2 * MIB);
        assert_eq!(stats.write.latency.iter().sum::<u64>(), 6);
        assert_eq!(stats.read.latency.iter().sum::<u64>(), 0);
        assert!(stats.utilisation > 0.99, "{stats:?}");
        let parts = stats.seek_s + stats.rotation_s + stats.transfer_s;
        assert!((parts - stats.seconds).abs() < 1e-6, "{stats:?}");
    }

    #[test]
    fn utilisation_over_time_shows_the_pause_and_stays_bounded() {
        let mut recorder = Recorder::new(0);
        recorder.busy_between(0, BUCKET / 2);
        recorder.busy_between(2 * BUCKET, 3 * BUCKET);
        let stats = recorder.stats(&Params::default(), 1, 4 * BUCKET, 0.0);
        assert_eq!(stats.utilisation_over_time, [0.5, 0.0, 1.0]);
        assert!((stats.utilisation - 0.375).abs() < 1e-9);
        recorder.busy_between(5000 * BUCKET, 5001 * BUCKET);
        assert!(recorder.busy.len() <= BUCKETS_MAX);
        assert_eq!(recorder.busy.iter().sum::<u64>(), 5 * BUCKET / 2);
    }

    #[test]
    fn a_class_of_latency_ends_at_a_power_of_two() {
        let class = |micros: u64| latency_class(micros * 1000);
        assert_eq!([0, 9, 10, 19, 20, 39, 40].map(class), [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(latency_class(u64::MAX), LATENCY_CLASSES - 1);
    }

    #[test]
    fn late_answers_are_told() {
        let mut recorder = Recorder::new(0);
        recorder.answered(10, 11);
        recorder.answered(10, 5_000_010);
        let stats = recorder.stats(&Params::default(), 1, 1, 0.0);
        assert_eq!(stats.late, 1);
        assert!((stats.late_worst_ms - 5.0).abs() < 1e-9);
    }
}
