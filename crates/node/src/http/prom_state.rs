//! `/prom`: this node's numbers in Prometheus' text format.

use std::collections::BTreeMap;

use hayloft_conf::keys;
use hayloft_io::disk::ClassStats;
use hayloft_io::{IoClass, Means, services_broken};
use hayloft_protection::ParityStatus;
use hayloft_store::{HeldByUpgrades, VolumeReport};

use super::prom_text::Exposition;
use super::{WebHost, jmx_state_beans, prom_beans, prom_counts, records};
use crate::memory::resident_bytes;
use crate::xceiver::Activity;

/// Everything, as of now.
pub fn exposition(host: &dyn WebHost) -> String {
    let mut text = Exposition::default();
    node(&mut text, host);
    prom_counts::add(&mut text, host);
    volumes(&mut text, host);
    upgrades(&mut text, host);
    volume_errors(&mut text, host);
    disks(&mut text, host);
    parity(&mut text, host);
    snapshots(&mut text, host);
    namenodes(&mut text, host);
    let mut text = text.into_text();
    if host.config().current().get(&keys::PROMETHEUS_ENABLED) {
        text += &prom_beans::exposition(&records::records(host));
    }
    text
}

fn node(text: &mut Exposition, host: &dyn WebHost) {
    let stats = host.stats();
    let uptime = host.uptime().as_secs();
    text.one(
        ("uptime_seconds", "gauge"),
        "Time since the node started.",
        uptime,
    );
    let resident = resident_bytes();
    text.one(
        ("resident_memory_bytes", "gauge"),
        "Memory of the process in RAM.",
        resident,
    );
    let (capacity, used, remaining) = jmx_state_beans::space(host);
    text.one(
        ("capacity_bytes", "gauge"),
        "Capacity as NameNodes hear it.",
        capacity,
    );
    text.one(("used_bytes", "gauge"), "Bytes of replicas.", used);
    text.one(
        ("remaining_bytes", "gauge"),
        "Bytes that replicas may still take.",
        remaining,
    );
    let failed = host.store().failure_summary();
    let count = failed.failed_locations.len();
    text.one(
        ("failed_volumes", "gauge"),
        "Volumes that have failed.",
        count,
    );
    text.family(
        "shortages_total",
        "counter",
        "How often the process lacked something, and work waited or was refused.",
    );
    for means in Means::ALL {
        text.sample("shortages_total", &[("what", means.name())], means.met());
    }
    text.one(
        ("services_broken_total", "counter"),
        "How often a defect of Hayloft ended a service, which began again.",
        services_broken(),
    );
    text.family("active", "gauge", "What the data transfer port does now.");
    for (name, activity) in [
        ("connections", Activity::Connection),
        ("readers", Activity::Reader),
        ("writers", Activity::Writer),
        ("transfers", Activity::Xmit),
    ] {
        text.sample("active", &[("what", name)], stats.now(activity));
    }
    for (name, help, value) in [
        (
            "read_bytes_total",
            "Block bytes sent.",
            stats.bytes_read.get(),
        ),
        (
            "read_from_page_cache_bytes_total",
            "Block bytes that the kernel sent from its page cache.",
            stats.bytes_read_by_descriptor.get(),
        ),
        (
            "written_bytes_total",
            "Block bytes received.",
            stats.bytes_written.get(),
        ),
        (
            "blocks_read_total",
            "Reads of blocks.",
            stats.blocks_read.get(),
        ),
        (
            "blocks_written_total",
            "Blocks received.",
            stats.blocks_written.get(),
        ),
        (
            "rejected_connections_total",
            "Connections closed because too many were open.",
            stats.rejected.get(),
        ),
    ] {
        text.one((name, "counter"), help, value);
    }
}

fn volumes(text: &mut Exposition, host: &dyn WebHost) {
    let report = host.volumes();
    type Of = fn(&VolumeReport) -> u64;
    let families: [(&str, &str, Of); 5] = [
        ("volume_used_bytes", "Bytes of replicas on a volume.", |v| {
            v.used
        }),
        (
            "volume_free_bytes",
            "Bytes free for replicas on a volume.",
            |v| v.free,
        ),
        ("volume_replicas", "Replicas on a volume.", |v| v.blocks),
        (
            "volume_error_files",
            "Files of a volume with an error of its disk within hayloft.disk.errors.window.",
            |v| v.errors.places as u64,
        ),
        (
            "volume_searched",
            "Whether all replicas of a volume are being read because of errors.",
            |v| v.errors.searching.into(),
        ),
    ];
    for (name, help, of) in families {
        text.family(name, "gauge", help);
        for volume in &report.what {
            let path = volume.path.display().to_string();
            text.sample(name, &[("volume", &path)], of(volume));
        }
    }
}

fn upgrades(text: &mut Exposition, host: &dyn WebHost) {
    let held = host.store().held_by_upgrades();
    text.family(
        "rolling_upgrade",
        "gauge",
        "Whether the pool's NameNode says that a rolling upgrade runs.",
    );
    let pools: BTreeMap<String, bool> = held
        .iter()
        .map(|of| (of.pool.to_string(), of.runs))
        .collect();
    for (pool, runs) in &pools {
        text.sample("rolling_upgrade", &[("pool", pool)], u8::from(*runs));
    }
    type Of = fn(&HeldByUpgrades) -> u64;
    let families: [(&str, &str, Of); 2] = [
        (
            "trash_bytes",
            "Bytes of deleted replicas in trash.",
            |held| held.trash,
        ),
        (
            "previous_bytes",
            "Bytes that only previous has, where an upgrade was not finalized.",
            |held| held.previous,
        ),
    ];
    for (name, help, of) in families {
        text.family(name, "gauge", help);
        for held in &held {
            let (volume, pool) = (held.volume.display().to_string(), held.pool.to_string());
            text.sample(name, &[("volume", &volume), ("pool", &pool)], of(held));
        }
    }
}

/// Errors of the disks under volumes, since the start.
fn volume_errors(text: &mut Exposition, host: &dyn WebHost) {
    let help = "Errors of the disk under a volume since the start.";
    text.family("volume_errors_total", "counter", help);
    for volume in &host.volumes().what {
        let path = volume.path.display().to_string();
        text.sample(
            "volume_errors_total",
            &[("volume", &path)],
            volume.errors.total,
        );
    }
}

/// Quantiles that are told of each class on each disk.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 1.0];

#[expect(clippy::cast_precision_loss, reason = "microseconds as seconds")]
fn disks(text: &mut Exposition, host: &dyn WebHost) {
    let told = host.disks();
    let stats = &told.what;
    type Of = fn(&ClassStats) -> u64;
    let families: [(&str, &str, Of); 2] = [
        (
            "disk_operations_total",
            "Transfers by disk and class.",
            |of| of.ops,
        ),
        (
            "disk_bytes_total",
            "Bytes of transfers by disk and class.",
            |of| of.bytes,
        ),
    ];
    for (name, help, of) in families {
        text.family(name, "counter", help);
        for (disk, stats) in stats {
            for class in IoClass::ALL {
                let labels = [("disk", &**disk), ("class", class.name())];
                text.sample(name, &labels, of(stats.class(class)));
            }
        }
    }
    for (name, help, queue) in [
        (
            "disk_queue_seconds",
            "Wait of transfers for their turn, since the start.",
            true,
        ),
        (
            "disk_service_seconds",
            "Transfers from their turn to their end, since the start.",
            false,
        ),
    ] {
        text.family(name, "summary", help);
        for (disk, stats) in stats {
            for class in IoClass::ALL {
                let of = stats.class(class);
                let times = if queue { &of.queue_us } else { &of.service_us };
                if times.is_empty() {
                    continue;
                }
                let class = class.to_string();
                for quantile in QUANTILES {
                    let labels = [
                        ("disk", &**disk),
                        ("class", &*class),
                        ("quantile", &*quantile.to_string()),
                    ];
                    let us = times.value_at_quantile(quantile);
                    text.sample(name, &labels, us as f64 / 1e6);
                }
                let labels = [("disk", &**disk), ("class", &*class)];
                let sum = times.mean() * times.len() as f64 / 1e6;
                text.sample(&format!("{name}_sum"), &labels, sum);
                text.sample(&format!("{name}_count"), &labels, times.len());
            }
        }
    }
    let help = "Bytes asked of a disk in one file in sequence, since the start.";
    text.family("disk_run_bytes", "summary", help);
    for (disk, stats) in stats {
        if stats.runs.is_empty() {
            continue;
        }
        for quantile in QUANTILES {
            let labels = [("disk", &**disk), ("quantile", &*quantile.to_string())];
            text.sample(
                "disk_run_bytes",
                &labels,
                stats.runs.value_at_quantile(quantile),
            );
        }
        let labels = [("disk", &**disk)];
        let sum = stats.runs.mean() * stats.runs.len() as f64;
        text.sample("disk_run_bytes_sum", &labels, sum);
        text.sample("disk_run_bytes_count", &labels, stats.runs.len());
    }
}

fn snapshots(text: &mut Exposition, host: &dyn WebHost) {
    let Some(state) = host.snapshots() else {
        return;
    };
    if let Some(lag) = state.lag_s {
        text.one(
            ("snapshot_lag_seconds", "gauge"),
            "Age of the oldest closed replica that no snapshot has.",
            lag,
        );
    }
    text.one(
        ("snapshot_failing", "gauge"),
        "Whether the last snapshot failed.",
        u64::from(state.error.is_some()),
    );
    text.one(
        ("snapshot_left_out", "gauge"),
        "Damaged replicas, and volumes and pools not looked at, that the last snapshot lacks.",
        state.left_out,
    );
    text.one(
        ("snapshot_failures_total", "counter"),
        "Snapshots that failed.",
        state.failures,
    );
    text.one(
        ("snapshot_uploaded_bytes_total", "counter"),
        "Bytes of replicas written to the store of snapshots.",
        state.uploaded_bytes,
    );
}

/// Bytes by the state of their parity.
pub(super) fn parity_states(status: &ParityStatus) -> [(&'static str, u64); 10] {
    [
        ("protected", status.protected_bytes),
        ("unprotected", status.unprotected_bytes),
        ("degraded", status.degraded_bytes),
        ("lost", status.lost_bytes),
        ("damaged", status.damaged_bytes),
        ("overdue", status.overdue_bytes),
        ("to_rebuild", status.rebuild_remaining_bytes),
        ("parity", status.parity_bytes),
        ("kept", status.kept_bytes),
        ("in_memory", status.memory_bytes),
    ]
}

fn parity(text: &mut Exposition, host: &dyn WebHost) {
    let Some(status) = host.parity() else {
        return;
    };
    text.family(
        "parity_bytes",
        "gauge",
        "Bytes of replicas by their state; parity files.",
    );
    for (state, bytes) in parity_states(&status) {
        text.sample("parity_bytes", &[("state", state)], bytes);
    }
    text.family(
        "parity_volume_refuses",
        "gauge",
        "Whether a volume takes no files of parity groups for now.",
    );
    for volume in status.volumes.iter().filter(|volume| volume.in_use) {
        let labels = [("volume", &*volume.directory)];
        let refuses = u8::from(volume.refuses.is_some());
        text.sample("parity_volume_refuses", &labels, refuses);
    }
    text.one(("parity_groups", "gauge"), "Parity groups.", status.groups);
    let encoded = status.encoded_bytes;
    text.one(
        ("parity_encoded_bytes_total", "counter"),
        "Bytes of replicas encoded.",
        encoded,
    );
}

fn namenodes(text: &mut Exposition, host: &dyn WebHost) {
    let actors = host.actors();
    text.family(
        "namenode_registered",
        "gauge",
        "Whether the node is registered there.",
    );
    for actor in &actors {
        let labels = [("namenode", &*actor.address)];
        let up = actor.phase == crate::namenode::Phase::Running;
        text.sample("namenode_registered", &labels, u8::from(up));
    }
    text.family(
        "namenode_heartbeat_age_seconds",
        "gauge",
        "Time since it answered last.",
    );
    for actor in &actors {
        if let Some(age) = actor.last_heartbeat {
            let labels = [("namenode", &*actor.address)];
            text.sample("namenode_heartbeat_age_seconds", &labels, age.as_secs_f64());
        }
    }
}
