//! What is slow or wrong, and why, in words: one sentence each.

use std::time::{Duration, Instant};

use hayloft_conf::keys;
use hayloft_io::disk::{DiskStats, Slowest};
use hayloft_protection::ParityStatus;
use hayloft_store::{HeldByUpgrades, VolumeReport};

use super::super::{WebHost, jmx_state_beans};
use super::finding::Finding;
use super::slow_on_average::slow_classes;
use super::units::bytes;
use crate::namenode::{ActorInfo, Phase};
use crate::outliers::OutlierReports;
use crate::security::BlockTokens;
use crate::snapshots::SnapshotState;

/// A NameNode that has been silent for so long is told of.
const SILENT: Duration = Duration::from_secs(30);
/// A transfer that has been under way for so long is told of.
const HANGS: Duration = Duration::from_secs(1);
/// A transfer that took so long within the last minute is told of.
const SLOW: Duration = Duration::from_secs(1);

/// Of a hundred parts of the capacity, fewer than these free make a node nearly full.
const SPACE_LOW: u64 = 5;

/// Everything there is to say, the gravest first; empty when all is well. It is the one judgement
/// of a node: its page and `hayloft top` show this.
pub(super) fn findings(
    host: &dyn WebHost,
    disks: &[(String, DiskStats)],
    actors: &[ActorInfo],
    parity: Option<&ParityStatus>,
) -> Vec<Finding> {
    let failures = host.store().failure_summary();
    let failed = failures.failed_locations.iter().zip(&failures.reasons);
    let mut troubles: Vec<String> = failed
        .map(|(dir, reason)| format!("The volume {} has failed: {reason}.", dir.display()))
        .collect();
    let volumes = host.volumes();
    troubles.extend(volumes.what.iter().filter_map(of_volume));
    troubles.extend(volumes.what.iter().filter_map(of_device));
    troubles.extend(actors.iter().filter_map(of_namenode));
    let tokens_wanted = host.config().get(&keys::BLOCK_ACCESS_TOKEN_ENABLE);
    troubles.extend(of_tokens(tokens_wanted, host.block_tokens()));
    troubles.extend(parity.into_iter().flat_map(of_parity));
    troubles.extend(host.snapshots().iter().filter_map(of_snapshots));
    let mut all: Vec<Finding> = troubles.into_iter().map(Finding::trouble).collect();
    let now = Instant::now();
    for (name, stats) in disks {
        all.extend(of_disk(name, stats, now));
        all.extend(slow_classes(host.periods(), host.uptime(), name, stats));
    }
    let mut slow = of_outliers(&host.slow());
    slow.extend(of_space(jmx_state_beans::space(host)));
    slow.extend(of_trash(&host.store().held_by_upgrades()));
    all.extend(slow.into_iter().map(Finding::slow));
    all.sort_by_key(|finding| std::cmp::Reverse(finding.gravity));
    all
}

fn of_space((capacity, _, remaining): (u64, u64, u64)) -> Option<String> {
    let low = capacity / 100 * SPACE_LOW;
    (remaining < low).then(|| {
        format!(
            "The node is nearly full: {} of {} are left.",
            bytes(remaining),
            bytes(capacity)
        )
    })
}

fn of_parity(status: &ParityStatus) -> Vec<String> {
    let states = [
        (status.lost_bytes, "are lost, with their parity"),
        (status.damaged_bytes, "are damaged, and not mended yet"),
        (status.degraded_bytes, "are in groups that lack a unit"),
        (status.overdue_bytes, "have waited too long for parity"),
    ];
    let some = states.into_iter().filter(|(held, _)| *held > 0);
    some.map(|(held, what)| {
        format!(
            "{} of replicas {what}: see hayloft parity status.",
            bytes(held)
        )
    })
    .collect()
}

fn of_snapshots(state: &SnapshotState) -> Option<String> {
    let to = state.restoring.as_ref().unwrap_or(&state.to);
    if state.restore_broken > 0 {
        let broken = state.restore_broken;
        return Some(format!(
            "{broken} replicas of the snapshot that was put back are missing or altered there: \
             the log says which."
        ));
    }
    match (&state.error, state.left_out) {
        (Some(error), _) => Some(format!(
            "The last work on snapshots in {to} failed: {error}."
        )),
        (None, 0) => None,
        (None, left_out) => Some(format!(
            "The last snapshot to {to} lacks {left_out} replicas, volumes or pools: the log says \
             which."
        )),
    }
}

fn of_trash(held: &[HeldByUpgrades]) -> Option<String> {
    let kept = held.iter().filter(|held| !held.runs).map(|held| held.trash);
    let bytes = kept.fold(0, u64::saturating_add);
    (bytes > 0).then(|| {
        format!(
            "No rolling upgrade runs, and {bytes} bytes of deleted replicas are kept in trash: \
             hayloft trash list says which."
        )
    })
}

fn of_volume(volume: &VolumeReport) -> Option<String> {
    let errors = volume.errors;
    if errors.places == 0 {
        return None;
    }
    let searching = if errors.searching {
        " All its replicas are being read."
    } else {
        ""
    };
    Some(format!(
        "The disk of the volume {} had errors in {} files lately: exchange it.{searching}",
        volume.path.display(),
        errors.places
    ))
}

fn of_device(volume: &VolumeReport) -> Option<String> {
    let damage = volume.damage.as_ref()?;
    let path = volume.path.display();
    Some(format!(
        "The volume {path} works, but {damage}: exchange its disk."
    ))
}

fn of_namenode(actor: &ActorInfo) -> Option<String> {
    let address = &actor.address;
    if actor.phase != Phase::Running {
        return Some(format!(
            "Not registered with the NameNode {address}: {}.",
            actor.phase.name()
        ));
    }
    let silent = actor.last_heartbeat.filter(|ago| *ago > SILENT)?;
    Some(format!(
        "The NameNode {address} has not answered for {} s.",
        silent.as_secs()
    ))
}

/// Apache's node goes by what NameNodes say, too.
fn of_tokens(wanted: bool, tokens: &BlockTokens) -> Option<String> {
    (wanted && tokens.are_off()).then(|| {
        format!(
            "{} is true here and off at the NameNode: everyone who reaches the data port may read \
             and write blocks. Turn it on there.",
            keys::BLOCK_ACCESS_TOKEN_ENABLE.name()
        )
    })
}

fn of_disk(name: &str, stats: &DiskStats, now: Instant) -> Vec<Finding> {
    let mut all = Vec::new();
    let queued: usize = stats.load.waiting.iter().sum();
    if let Some(longest) = stats.load.longest.filter(|longest| *longest > HANGS) {
        let text = format!(
            "The disk {name} has not finished a transfer for {:.1} s; {queued} wait behind it.",
            longest.as_secs_f64()
        );
        all.push(Finding::trouble(text).of_disk(name, None));
    }
    let recent = stats.slowest.last_minute(now);
    let count = recent.partition_point(|transfer| transfer.took() > SLOW);
    if let Some(worst) = recent[..count].first() {
        let why = if worst.waited > worst.served {
            "it waited for its turn behind others"
        } else {
            "the device took that long"
        };
        let more = if count == Slowest::TOLD {
            " or more"
        } else {
            ""
        };
        let text = format!(
            "On the disk {name}, transfers that took over a second within the last minute: \
             {count}{more}. The slowest, a {}, took {:.1} s: {why}.",
            worst.class,
            worst.took().as_secs_f64()
        );
        all.push(Finding::slow(text).of_disk(name, Some(worst.class)));
    }
    all
}

fn of_outliers(reports: &OutlierReports) -> Vec<String> {
    let peers = reports.slow_peers.iter().map(|peer| {
        format!(
            "The node {} takes packets slowly: {:.1} ms each, the middle of all is {:.1} ms.",
            peer.data_node_id.as_deref().unwrap_or("of no name"),
            peer.aggregate_latency.unwrap_or_default(),
            peer.median.unwrap_or_default()
        )
    });
    let disks = reports.slow_disks.iter().map(|disk| {
        let times = [
            ("reads", disk.mean_read_io_latency),
            ("writes", disk.mean_write_io_latency),
            ("names", disk.mean_metadata_op_latency),
        ];
        let told = times
            .iter()
            .filter_map(|(what, ms)| Some(format!("{what} {:.1} ms", (*ms)?)));
        format!(
            "The volume {} is slower than the others: {}.",
            disk.base_path.as_deref().unwrap_or("of no name"),
            told.collect::<Vec<_>>().join(", ")
        )
    });
    peers.chain(disks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayloft_wire::proto::datanode::{SlowDiskReport, SlowPeerReport};

    #[test]
    fn a_disk_that_hangs_is_told_of() {
        let mut stats = DiskStats::default();
        assert!(of_disk("sda", &stats, Instant::now()).is_empty());
        stats.load.longest = Some(Duration::from_millis(2500));
        stats.load.waiting[0] = 4;
        let told = of_disk("sda", &stats, Instant::now());
        let wanted = "The disk sda has not finished a transfer for 2.5 s; 4 wait behind it.";
        let wanted = Finding::trouble(wanted.to_owned()).of_disk("sda", None);
        assert_eq!(told, [wanted]);
    }

    #[test]
    fn block_tokens_that_are_wanted_and_off_are_told_of() {
        let of = |wanted, said: Option<bool>| {
            let config = hayloft_conf::Configuration::from_properties([("a", "b")]);
            let settings = crate::security::TokenSettings::from_config(&config.expect("valid"));
            let tokens = BlockTokens::new(settings);
            if let Some(on) = said {
                tokens.agree(on).expect("the first to say");
            }
            of_tokens(wanted, &tokens)
        };
        for (wanted, said) in [(true, Some(true)), (true, None), (false, Some(false))] {
            assert_eq!(of(wanted, said), None, "{wanted}, {said:?}");
        }
        let told = of(true, Some(false)).unwrap_or_default();
        assert!(
            told.starts_with("dfs.block.access.token.enable is true here and off"),
            "{told}"
        );
    }

    #[test]
    fn little_space_is_told_of() {
        assert_eq!(of_space((0, 0, 0)), None, "no volume is there yet");
        assert_eq!(of_space((1 << 40, 0, 1 << 39)), None);
        let told = of_space((1 << 40, 1 << 39, 1));
        let wanted = "The node is nearly full: 1 B of 1.0 TiB are left.";
        assert_eq!(told.as_deref(), Some(wanted));
    }

    #[test]
    fn parity_that_lacks_something_is_told_of() {
        let status = ParityStatus {
            protected_bytes: 9,
            degraded_bytes: 4096,
            lost_bytes: 1,
            ..ParityStatus::default()
        };
        let told = of_parity(&status);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("1 B of replicas are lost, "),
            "{told:?}"
        );
        let wanted = "4.0 KiB of replicas are in groups that lack a unit: \
                      see hayloft parity status.";
        assert_eq!(told[1], wanted);
    }

    #[test]
    fn trash_is_told_of_when_no_upgrade_runs() {
        let held = |trash, runs| HeldByUpgrades {
            volume: "/data/1".into(),
            pool: hayloft_wire::ids::PoolId::new("BP-1-127.0.0.1-1").expect("valid"),
            trash,
            previous: 9,
            runs,
        };
        assert_eq!(of_trash(&[held(0, false), held(7, true)]), None);
        let told = of_trash(&[held(5, false), held(7, true), held(6, false)]);
        assert!(
            told.as_ref().is_some_and(|told| told.contains(" 11 bytes")),
            "{told:?}"
        );
    }

    #[test]
    fn a_disk_that_fails_by_halves_is_told_of() {
        let mut volume = VolumeReport {
            path: "/data/3".into(),
            storage: hayloft_store::StorageInfo {
                id: "DS-1".into(),
                storage_type: hayloft_wire::ids::StorageType::Disk,
            },
            used: 0,
            free: 0,
            reserved: 0,
            reserved_for_replicas: 0,
            blocks: 0,
            errors: hayloft_store::DiskErrors::default(),
            damage: None,
        };
        assert_eq!((of_volume(&volume), of_device(&volume)), (None, None));
        volume.errors.places = 7;
        volume.errors.searching = true;
        let wanted = "The disk of the volume /data/3 had errors in 7 files lately: exchange it. \
                      All its replicas are being read.";
        assert_eq!(of_volume(&volume).as_deref(), Some(wanted));
        volume.damage = Some("a header is lost".into());
        let wanted = "The volume /data/3 works, but a header is lost: exchange its disk.";
        assert_eq!(of_device(&volume).as_deref(), Some(wanted));
    }

    #[test]
    fn outliers_are_told_with_their_times() {
        let reports = OutlierReports {
            slow_peers: vec![SlowPeerReport {
                data_node_id: Some("10.0.0.9:9866".into()),
                aggregate_latency: Some(41.25),
                median: Some(2.0),
                ..SlowPeerReport::default()
            }],
            slow_disks: vec![SlowDiskReport {
                base_path: Some("/data/3".into()),
                mean_read_io_latency: Some(90.0),
                ..SlowDiskReport::default()
            }],
        };
        let told = of_outliers(&reports);
        assert!(
            told[0].contains("10.0.0.9:9866") && told[0].contains("41.2 ms"),
            "{told:?}"
        );
        assert_eq!(
            told[1],
            "The volume /data/3 is slower than the others: reads 90.0 ms."
        );
    }
}
