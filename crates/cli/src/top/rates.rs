//! What happened between two samples of a node.

use serde::Serialize;

use super::parse_live::{ClassFigures, DiskFigures, NodeFigures, Summary};

/// Microseconds, which nodes tell, in a second.
const MICROS: f64 = 1e6;

fn seconds(micros: f64) -> f64 {
    micros / MICROS
}

/// A class of I/O on a disk, over an interval. Times are seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassRates {
    /// The class.
    pub class: String,
    /// Transfers a second.
    pub ops_per_second: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Transfers that waited for their turn, on average.
    pub queue: f64,
    /// Mean wait for their turn; none when nothing was done.
    pub queue_mean: Option<f64>,
    /// Mean time from their turn to their end.
    pub service_mean: Option<f64>,
    /// Of 99 in 100 transfers since the node started.
    pub queue_p99: f64,
    /// Of 99 in 100 transfers since the node started.
    pub service_p99: f64,
}

/// A disk, over an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiskRates {
    /// Its name.
    pub disk: String,
    /// In the node's order.
    pub classes: Vec<ClassRates>,
    /// Mean bytes in sequence in one file; none when no run ended.
    pub run_mean: Option<f64>,
    /// Half of the runs since the start are at most so long, bytes.
    pub run_p50: f64,
}

/// A node, over an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeRates {
    /// Length of the interval, seconds; none for a first sample, or when the node has started anew.
    pub seconds: Option<f64>,
    /// Block bytes sent a second.
    pub read_per_second: f64,
    /// Of those, from the page cache.
    pub cached_per_second: f64,
    /// Block bytes received a second.
    pub written_per_second: f64,
    /// In the node's order.
    pub disks: Vec<DiskRates>,
}

impl ClassRates {
    /// Mean time of a transfer, its wait included.
    pub fn latency(&self) -> Option<f64> {
        Some(self.service_mean? + self.queue_mean.unwrap_or(0.0))
    }
}

impl DiskRates {
    /// Mean time of the class whose transfers took longest; 0 when nothing was done.
    pub fn latency(&self) -> f64 {
        let times = self.classes.iter().filter_map(ClassRates::latency);
        times.fold(0.0, f64::max)
    }
}

impl NodeRates {
    /// The disk whose transfers took longest.
    pub fn slowest(&self) -> Option<&DiskRates> {
        let timed = self.disks.iter().filter(|d| d.latency() > 0.0);
        timed.max_by(|a, b| a.latency().total_cmp(&b.latency()))
    }
}

/// Rates from `before` to `now`, `seconds` later. A node that has started anew meanwhile counts
/// from 0 again: then, and without `before`, there are no rates but what holds since the start.
pub fn between(before: Option<&NodeFigures>, now: &NodeFigures, seconds: f64) -> NodeRates {
    let usable = |before: &&NodeFigures| seconds > 0.0 && before.up_ms <= now.up_ms;
    let before = before.filter(usable);
    let nothing = NodeFigures::default();
    let span = Span {
        seconds: before.map(|_| seconds),
    };
    let old = before.unwrap_or(&nothing);
    let disks = now.disks.iter().map(|disk| {
        let old = old.disks.iter().find(|old| old.name == disk.name);
        span.disk(old, disk)
    });
    NodeRates {
        seconds: span.seconds,
        read_per_second: span.rate(old.read_bytes, now.read_bytes),
        cached_per_second: span.rate(old.cached_bytes, now.cached_bytes),
        written_per_second: span.rate(old.written_bytes, now.written_bytes),
        disks: disks.collect(),
    }
}

/// The time between two samples; none when there is no earlier one to compare with.
#[derive(Clone, Copy)]
struct Span {
    seconds: Option<f64>,
}

impl Span {
    /// What was added a second. A counter that went back tells nothing about the interval.
    fn rate(self, before: f64, now: f64) -> f64 {
        let added = (now - before).max(0.0);
        self.seconds.map_or(0.0, |seconds| added / seconds)
    }

    /// Mean of what was added.
    fn mean(self, before: &Summary, now: &Summary) -> Option<f64> {
        self.seconds?;
        let (sum, count) = (now.sum - before.sum, now.count - before.count);
        (count > 0.0 && sum >= 0.0).then(|| sum / count)
    }

    fn class(self, before: Option<&ClassFigures>, now: &ClassFigures) -> ClassRates {
        let nothing = ClassFigures::default();
        let before = before.unwrap_or(&nothing);
        ClassRates {
            class: now.name.clone(),
            ops_per_second: self.rate(before.ops, now.ops),
            bytes_per_second: self.rate(before.bytes, now.bytes),
            // Waiting time a second is the number that waits (Little's law).
            queue: self.rate(before.queue.sum, now.queue.sum) / MICROS,
            queue_mean: self.mean(&before.queue, &now.queue).map(seconds),
            service_mean: self.mean(&before.service, &now.service).map(seconds),
            queue_p99: seconds(now.queue.p99),
            service_p99: seconds(now.service.p99),
        }
    }

    fn disk(self, before: Option<&DiskFigures>, now: &DiskFigures) -> DiskRates {
        // A disk that was not there before: its counters may be older than the interval.
        let seconds = self.seconds.filter(|_| before.is_some());
        let (span, nothing) = (Self { seconds }, DiskFigures::default());
        let before = before.unwrap_or(&nothing);
        let classes = now.classes.iter().map(|class| {
            let old = before.classes.iter().find(|old| old.name == class.name);
            span.class(old, class)
        });
        DiskRates {
            disk: now.name.clone(),
            classes: classes.collect(),
            run_mean: span.mean(&before.run, &now.run),
            run_p50: now.run.p50,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_live::{parse, tests::RECORDED};
    use super::*;

    fn later() -> NodeFigures {
        let mut node = parse(RECORDED).expect("read");
        node.up_ms += 2000.0;
        node.written_bytes += 1e7;
        let disk = &mut node.disks[0];
        (disk.run.sum, disk.run.count) = (disk.run.sum + 4e6, disk.run.count + 4.0);
        let write = &mut disk.classes[0];
        (write.bytes, write.ops) = (write.bytes + 4e6, write.ops + 20.0);
        for (of, micros) in [(&mut write.queue, 1e6), (&mut write.service, 2e5)] {
            (of.sum, of.count) = (of.sum + micros, of.count + 20.0);
        }
        node
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn rates_are_what_was_added() {
        let (before, now) = (parse(RECORDED).expect("read"), later());
        let rates = between(Some(&before), &now, 2.0);
        close(rates.written_per_second, 5e6);
        close(rates.read_per_second, 0.0);
        let write = &rates.disks[0].classes[0];
        close(write.bytes_per_second, 2e6);
        close(write.ops_per_second, 10.0);
        close(write.queue, 0.5);
        close(write.queue_mean.expect("done"), 0.05);
        close(write.service_mean.expect("done"), 0.01);
        close(write.latency().expect("done"), 0.06);
        close(rates.disks[0].run_mean.expect("ended"), 1e6);
        assert_eq!(
            rates.disks[0].classes[1].latency(),
            None,
            "nothing was read"
        );
        assert_eq!(rates.slowest().expect("one").disk, "sda");
    }

    #[test]
    fn a_node_that_started_anew_has_no_rates() {
        let (before, now) = (later(), parse(RECORDED).expect("read"));
        for rates in [between(Some(&before), &now, 2.0), between(None, &now, 2.0)] {
            assert_eq!((rates.seconds, rates.written_per_second), (None, 0.0));
            assert_eq!(rates.disks[0].classes[0].service_mean, None);
            close(rates.disks[0].classes[0].service_p99, 0.012);
        }
        // One counter alone goes back: a disk that was taken out and put in again.
        let mut odd = before.clone();
        odd.disks[0].classes[0].ops = 1e9;
        odd.disks[0].classes[0].service.sum = 1e9;
        odd.up_ms = 1.0;
        let rates = between(Some(&odd), &now, 0.5);
        close(rates.disks[0].classes[0].ops_per_second, 0.0);
        assert_eq!(rates.disks[0].classes[0].service_mean, None);
        assert_eq!(between(Some(&before), &before, 0.0).seconds, None);
    }

    #[test]
    fn a_new_disk_begins_with_its_next_sample() {
        let now = later();
        let mut before = now.clone();
        before.disks.remove(0);
        let rates = between(Some(&before), &now, 1.0);
        close(rates.disks[0].classes[0].bytes_per_second, 0.0);
    }
}
