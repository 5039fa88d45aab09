//! `/live`: what the page draws, as JSON. Counts go up from the node's start; the page looks at
//! differences. Histograms are lists of `[bucket, count]`, four buckets to a doubling: bucket `n`
//! ends at 2^(n/4). Beside each histogram are its count, its sum and two quantiles.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use hayloft_io::IoClass;
use hayloft_io::disk::{ClassStats, DiskStats, SlowTransfer};
use hayloft_store::HeldByUpgrades;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::super::prom_state::parity_states;
use super::super::{WebHost, jmx_state_beans};
use super::finding::Finding;
use super::slow_on_average::sum;
use super::what_is_wrong::findings;
use crate::activity::millis;
use crate::memory::resident_bytes;
use crate::namenode::ActorInfo;
use crate::snapshots::SnapshotState;
use crate::xceiver::Activity;

/// Everything as of now.
pub fn live(host: &dyn WebHost) -> Value {
    let (identity, stats) = (host.identity(), host.stats());
    let (capacity, used, remaining) = jmx_state_beans::space(host);
    let (told, actors) = (host.disks(), host.actors());
    let (disks, now) = (&told.what, told.at);
    let (report, held) = (host.volumes(), host.store().held_by_upgrades());
    let all = |path: &Path, of: fn(&HeldByUpgrades) -> u64| -> u64 {
        let here = held.iter().filter(|held| held.volume == path);
        here.map(of).fold(0, u64::saturating_add)
    };
    let volumes = report.what.iter().map(|volume| {
        json!({
            "path": volume.path.display().to_string(),
            "type": volume.storage.storage_type.to_string(),
            "used": volume.used,
            "free": volume.free,
            "replicas": volume.blocks,
            "trash": all(&volume.path, |held| held.trash),
            "previous": all(&volume.path, |held| held.previous),
            "error_files": volume.errors.places,
        })
    });
    let parity = host.parity();
    let findings = findings(host, disks, &actors, parity.as_ref());
    let states = |status| BTreeMap::from(parity_states(status));
    json!({
        "name": format!("{}:{}", identity.host_name, identity.xfer_port),
        // The page reckons with the time of what the disks had done.
        "up_ms": millis(host.uptime().saturating_sub(now.elapsed())),
        "capacity": capacity,
        "used": used,
        "remaining": remaining,
        "connections": stats.now(Activity::Connection),
        "reading": stats.now(Activity::Reader),
        "writing": stats.now(Activity::Writer),
        "transfers": stats.now(Activity::Xmit),
        "read_bytes": stats.bytes_read.get(),
        "cached_bytes": stats.bytes_read_by_descriptor.get(),
        "written_bytes": stats.bytes_written.get(),
        "resident": resident_bytes(),
        "failed_volumes": host.store().failure_summary().failed_locations.len(),
        "parity": parity.as_ref().map(states),
        "snapshots": host.snapshots().map(snapshots),
        "findings": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
        "volumes": volumes.collect::<Vec<_>>(),
        "namenodes": actors.iter().map(namenode).collect::<Vec<_>>(),
        "disks": disks.iter().map(|(name, stats)| disk(name, stats, now)).collect::<Vec<_>>(),
    })
}

fn snapshots(state: SnapshotState) -> Value {
    json!({
        "to": state.to,
        "restoring": state.restoring,
        "restored": state.restored,
        "restore_broken": state.restore_broken,
        "running": state.running.map(|(done, of)| json!({"bytes": done, "of": of})),
        "last": state.last,
        "last_ms": state.last_ms,
        "replicas": state.replicas,
        "left_out": state.left_out,
        "lag_s": state.lag_s,
        "uploaded_bytes": state.uploaded_bytes,
        "failures": state.failures,
        "error": state.error,
    })
}

fn micros(of: Duration) -> u64 {
    u64::try_from(of.as_micros()).unwrap_or(u64::MAX)
}

fn namenode(actor: &ActorInfo) -> Value {
    json!({
        "address": actor.address,
        "service": actor.nameservice,
        "pool": actor.pool.as_ref().map(ToString::to_string),
        "state": actor.phase.name(),
        "active": actor.active,
        "heartbeat_s": actor.last_heartbeat.map(|ago| ago.as_secs()),
        "report_s": actor.last_report.map(|ago| ago.as_secs()),
        "pending": actor.pending_reports,
    })
}

/// One disk; classes that have done nothing and have nothing to do are left out.
fn disk(name: &str, stats: &DiskStats, now: Instant) -> Value {
    let load = &stats.load;
    let classes = IoClass::ALL.into_iter().filter_map(|class| {
        let (at, of): (usize, &ClassStats) = (class.index(), stats.class(class));
        let (waiting, running) = (load.waiting[at], load.running[at]);
        (of.ops > 0 || waiting + running > 0).then(|| {
            json!({
                "class": class.name(),
                "ops": of.ops,
                "bytes": of.bytes,
                "waiting": waiting,
                "running": running,
                "queue_us": buckets(&of.queue_us),
                "service_us": buckets(&of.service_us),
                "queue": summary(&of.queue_us),
                "service": summary(&of.service_us),
            })
        })
    });
    let slowest = stats.slowest.last_minute(now);
    json!({
        "name": name,
        "classes": classes.collect::<Vec<_>>(),
        "run_bytes": buckets(&stats.runs),
        "run": summary(&stats.runs),
        "slowest": slowest.iter().map(|slow| transfer(slow, now)).collect::<Vec<_>>(),
    })
}

fn transfer(slow: &SlowTransfer, now: Instant) -> Value {
    let ago = now.saturating_duration_since(slow.ended);
    json!({
        "class": slow.class.name(),
        "ago_ms": millis(ago),
        "wait_us": micros(slow.waited),
        "service_us": micros(slow.served),
        "bytes": slow.bytes,
        "file": slow.place.map(|(file, _)| file.to_string()),
        "offset": slow.place.map(|(_, offset)| offset),
    })
}

/// What a histogram counted, in its unit.
fn summary(histogram: &Histogram<u64>) -> Value {
    json!({
        "count": histogram.len(),
        "sum": sum(histogram),
        "p50": histogram.value_at_quantile(0.5),
        "p99": histogram.value_at_quantile(0.99),
    })
}

/// The bucket that `value` is in: the least `n` for which 2^(n/4) is no less.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 256, and no less than 0"
)]
fn bucket(value: u64) -> u64 {
    ((value.max(1) as f64).log2() * 4.0).ceil() as u64
}

/// `[bucket, count]`, in order of the buckets.
fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut list: Vec<(u64, u64)> = Vec::new();
    for part in histogram.iter_recorded() {
        let at = bucket(part.value_iterated_to());
        match list.last_mut() {
            Some((last, count)) if *last == at => *count += part.count_at_value(),
            _ => list.push((at, part.count_at_value())),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_few_and_lose_nothing() {
        assert_eq!([0, 1, 2, 3, 4, 1024].map(bucket), [0, 0, 4, 7, 8, 40]);
        let mut all = Histogram::new_with_bounds(1, 1 << 32, 1).expect("valid");
        assert!(buckets(&all).is_empty());
        for value in 0..200_000 {
            all.saturating_record(value);
        }
        let list = buckets(&all);
        assert!(list.len() < 80 && list.is_sorted(), "{list:?}");
        assert_eq!(list.iter().map(|(_, count)| count).sum::<u64>(), 200_000);
    }

    #[test]
    fn a_disk_tells_what_it_did_and_has_to_do() {
        let mut stats = DiskStats::default();
        let reads = IoClass::ClientRead.index();
        stats.classes[reads].ops = 2;
        stats.classes[reads].bytes = 4096;
        stats.classes[reads].service_us.saturating_record(1000);
        stats.load.waiting[IoClass::Scan.index()] = 3;
        stats.runs.saturating_record(1 << 20);
        let told = disk("<sda>", &stats, Instant::now());
        assert_eq!(told["name"], "<sda>", "the page takes it as text");
        assert_eq!(told["classes"].as_array().map(Vec::len), Some(2));
        let first = &told["classes"][0];
        assert_eq!(
            (&first["class"], &first["ops"]),
            (&json!("client-read"), &json!(2))
        );
        assert_eq!(first["service_us"][0][1], 1);
        assert_eq!(told["classes"][1]["waiting"], 3);
        assert_eq!(told["run_bytes"][0][1], 1);
        assert_eq!(
            (&first["service"]["count"], &first["queue"]["sum"]),
            (&json!(1), &json!(0))
        );
        assert_eq!(told["slowest"], json!([]));
    }

    #[test]
    fn a_slow_transfer_tells_why() {
        let now = Instant::now();
        let slow = SlowTransfer {
            class: IoClass::ClientWrite,
            place: Some((1 << 60, 512)),
            bytes: 9,
            waited: Duration::from_millis(3),
            served: Duration::from_micros(7),
            ended: now,
        };
        let told = transfer(&slow, now + Duration::from_secs(2));
        assert_eq!(told["ago_ms"], 2000);
        assert_eq!(
            (&told["wait_us"], &told["service_us"]),
            (&json!(3000), &json!(7))
        );
        // Larger than what a script's numbers keep.
        assert_eq!(told["file"], "1152921504606846976");
        let cached = SlowTransfer {
            place: None,
            ..slow
        };
        assert_eq!(transfer(&cached, now)["file"], Value::Null);
    }
}
