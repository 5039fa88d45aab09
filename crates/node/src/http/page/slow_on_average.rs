//! Classes of transfers that take long on average, and why.
//!
//! The averages are those of the last ten seconds or more, since the page was asked before.

use std::time::Duration;

use hayloft_io::IoClass;
use hayloft_io::disk::DiskStats;
use hdrhistogram::Histogram;

use super::super::Periods;
use super::finding::{Finding, Gravity};
use super::units::{bytes, time};

/// An average transfer that takes longer is worth a word, microseconds.
const SLOW_US: f64 = 50_000.0;
/// One that takes longer than this is a trouble, microseconds.
const VERY_SLOW_US: f64 = 500_000.0;
/// Runs shorter than this make a hard disk seek more than it transfers, bytes.
const SHORT_RUN: f64 = (1 << 20) as f64;

/// A class of transfers on a disk, on average.
#[derive(Clone, Copy, Debug)]
struct ClassAverage {
    class: IoClass,
    /// Wait of a transfer for its turn, microseconds.
    wait: f64,
    /// From a transfer's turn to its end, microseconds.
    service: f64,
    /// Microseconds of service in each millisecond.
    busy: f64,
}

/// What is slow on a disk, class by class. `up` is the time since the node started.
pub(super) fn slow_classes(
    periods: &Periods,
    up: Duration,
    disk: &str,
    stats: &DiskStats,
) -> Vec<Finding> {
    let up = crate::activity::millis(up);
    let mean = |what: &str, of| periods.mean(&format!("disk {disk} {what}"), of);
    let used = IoClass::ALL.into_iter().filter_map(|class| {
        let of = stats.class(class);
        let service = sum(&of.service_us);
        (!of.service_us.is_empty()).then(|| ClassAverage {
            class,
            wait: mean(
                &format!("{class} wait"),
                (of.queue_us.len(), sum(&of.queue_us)),
            ),
            service: mean(&format!("{class} service"), (of.service_us.len(), service)),
            busy: mean(&format!("{class} busy"), (up, service)),
        })
    });
    let classes: Vec<ClassAverage> = used.collect();
    let run = mean("runs", (stats.runs.len(), sum(&stats.runs)));
    let slow = classes
        .iter()
        .filter_map(|of| judge(disk, of, &classes, run));
    slow.collect()
}

/// Everything that a histogram counted, added up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum for a mean, and no less than 0"
)]
pub fn sum(of: &Histogram<u64>) -> u64 {
    (of.mean() * of.len() as f64).round() as u64
}

/// Why transfers of a class take long, when they do. `run` is the mean length of runs, 0 when none
/// ended.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times and sizes for people, no less than 0"
)]
fn judge(disk: &str, of: &ClassAverage, all: &[ClassAverage], run: f64) -> Option<Finding> {
    let took = of.wait + of.service;
    if took < SLOW_US {
        return None;
    }
    let why = if of.wait > of.service {
        let busiest = all.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        let busiest = busiest.filter(|other| other.class != of.class && other.busy > of.busy);
        let behind = busiest.map_or(String::new(), |other| format!(" behind {}", other.class));
        format!(
            "{} of it is the wait for its turn{behind}",
            time(of.wait as u64)
        )
    } else if run > 0.0 && run < SHORT_RUN {
        format!("the disk seeks, with runs of {}", bytes(run as u64))
    } else {
        "the disk itself is slow".to_owned()
    };
    let class = of.class;
    let text = format!(
        "On the disk {disk}, a {class} takes {} on average: {why}.",
        time(took as u64)
    );
    let gravity = match took >= VERY_SLOW_US {
        true => Gravity::Trouble,
        false => Gravity::Slow,
    };
    let found = Finding {
        gravity,
        ..Finding::slow(text)
    };
    Some(found.of_disk(disk, Some(class)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn average(class: IoClass, busy: f64, wait_ms: f64, service_ms: f64) -> ClassAverage {
        ClassAverage {
            class,
            wait: wait_ms * 1e3,
            service: service_ms * 1e3,
            busy,
        }
    }

    fn found(all: &[ClassAverage], run: f64) -> Vec<Finding> {
        all.iter()
            .filter_map(|of| judge("sda", of, all, run))
            .collect()
    }

    #[test]
    fn the_reason_is_the_queue_the_seeks_or_the_disk() {
        let (far, read) = (64e6, IoClass::ClientRead);
        assert!(found(&[average(read, 1.0, 1.0, 10.0)], far).is_empty());
        let queue = [
            average(read, 1.0, 300.0, 10.0),
            average(IoClass::ClientWrite, 90.0, 0.0, 10.0),
        ];
        let told = found(&queue, far);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            told[0].text,
            "On the disk sda, a client-read takes 310.0 ms on average: 300.0 ms of it is the wait \
             for its turn behind client-write."
        );
        assert_eq!(told[0].class, Some(read));
        let seeks = found(&[average(read, 9.0, 0.0, 80.0)], 65536.0);
        let wanted = "80.0 ms on average: the disk seeks, with runs of 64.0 KiB.";
        assert!(seeks[0].text.ends_with(wanted), "{seeks:?}");
        let slow = found(&[average(IoClass::Scan, 9.0, 0.0, 900.0)], 0.0);
        assert!(
            slow[0].text.ends_with("the disk itself is slow."),
            "{slow:?}"
        );
        assert_eq!(
            (seeks[0].gravity, slow[0].gravity),
            (Gravity::Slow, Gravity::Trouble)
        );
    }

    #[test]
    fn averages_are_those_of_what_the_disk_did() {
        let (periods, mut stats) = (Periods::default(), DiskStats::default());
        let up = Duration::from_secs(60);
        assert!(slow_classes(&periods, up, "sda", &stats).is_empty());
        let reads = &mut stats.classes[IoClass::ClientRead.index()];
        for _ in 0..4 {
            reads.queue_us.saturating_record(200_000);
            reads.service_us.saturating_record(1000);
        }
        let writes = &mut stats.classes[IoClass::ClientWrite.index()];
        for _ in 0..99 {
            writes.queue_us.saturating_record(1);
            writes.service_us.saturating_record(10_000);
        }
        let told = slow_classes(&periods, up, "sda", &stats);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].text.contains("behind client-write"), "{told:?}");
    }
}
