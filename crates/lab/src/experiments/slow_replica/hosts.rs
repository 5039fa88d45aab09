//! A dozen storage hosts of which the first becomes slow, and clients in hosts of their own.

use super::super::testbeds::{one_rack, storage_host};
use crate::describe::{Description, DiskSpec, HostSpec};
use crate::net;
use crate::runner::options::ExperimentOptions;

/// Storage hosts: a node needs ten known peers before it names one.
pub(super) const NODES: usize = 12;
/// Position of the one that becomes slow.
pub(super) const SLOW: usize = 0;
/// Its disks: a node compares its disks with each other.
pub(super) const SLOW_DISKS: usize = 4;
/// How many times slower.
pub(super) const SLOWER: u32 = 10;
/// The least rate of links, Mbit/s, so that a slow one has a rate in whole Mbit/s.
pub(super) const LINK_LEAST: u32 = SLOWER;
/// The hosts of clients; the second one's asks two nodes.
pub(super) const CLIENTS: [&str; 2] = ["c0", "c1"];
/// Rate of their links, Mbit/s: never the limit.
pub(super) const CLIENT_MBIT: u32 = 1000;
/// Packets that a peer must have taken before it is judged: more than what it takes of the small
/// blocks of files, which say little, and fewer than a block of the load has.
pub(super) const SAMPLES: u32 = 100;
/// Seconds between two searches for what is slow.
pub(super) const SEARCH_S: u32 = 3;
/// Whether readers are sent away from slow nodes.
pub(super) const AVOID: &str = "dfs.namenode.avoid.read.slow.datanode";
/// How many of a node's slow disks get no new replicas.
pub(super) const EXCLUDE: &str = "dfs.datanode.max.slowdisks.to.exclude";

/// The name of a storage host.
pub(super) fn host(at: usize) -> String {
    format!("s{at}")
}

/// The address of the one that becomes slow.
pub(super) fn slow_address() -> String {
    net::address(Some(SLOW)).to_string()
}

/// All hosts, with nodes of a testbed's `kind`.
pub(super) fn described(kind: &str, options: &ExperimentOptions) -> Description {
    let options = ExperimentOptions {
        kind: kind.into(),
        ..options.clone()
    };
    let mut hosts: Vec<HostSpec> = (0..NODES)
        .map(|at| storage_host(at, false, &options))
        .collect();
    let disks = &mut hosts[SLOW].nodes[0].disks;
    *disks = vec![disks[0].clone(); SLOW_DISKS];
    hosts.extend(CLIENTS.map(|name| HostSpec {
        link_mbit: Some(CLIENT_MBIT),
        ..HostSpec::client(name)
    }));
    let own = [
        ("dfs.datanode.peer.stats.enabled", "true".to_owned()),
        (
            "dfs.datanode.peer.metrics.min.outlier.detection.samples",
            SAMPLES.to_string(),
        ),
        (
            "dfs.datanode.outliers.report.interval",
            format!("{SEARCH_S}s"),
        ),
        ("dfs.namenode.slowpeer.collect.interval", "1s".into()),
        (
            "dfs.datanode.fileio.profiling.sampling.percentage",
            "100".into(),
        ),
        (
            "dfs.datanode.min.outlier.detection.disks",
            SLOW_DISKS.to_string(),
        ),
        (AVOID, "false".into()),
    ];
    let mut described = one_rack(&options, "stock", hosts, "none");
    for (key, value) in own {
        described.conf.entry(key.into()).or_insert(value);
    }
    described
}

/// A disk that is slower than `disk`: its rates, seeks and turns.
pub(super) fn slower(disk: &DiskSpec) -> DiskSpec {
    DiskSpec {
        read_mbs: (disk.read_mbs / SLOWER).max(1),
        write_mbs: (disk.write_mbs / SLOWER).max(1),
        seek_percent: disk.seek_percent * SLOWER,
        ..disk.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testbeds::tests::is_right;
    use super::super::SLOW_REPLICA;
    use super::*;

    #[test]
    fn a_dozen_nodes_and_only_the_slow_one_has_disks_to_compare() {
        for kind in ["hayloft", "apache"] {
            let described = described(kind, &(SLOW_REPLICA.options)());
            is_right(&described);
            let disks: Vec<usize> = described
                .hosts()
                .flat_map(|(_, host)| &host.nodes)
                .map(|node| node.disks.len())
                .collect();
            assert_eq!(disks.len(), NODES);
            assert_eq!(disks.iter().sum::<usize>(), NODES + SLOW_DISKS - 1);
            assert_eq!(disks[SLOW], SLOW_DISKS);
            assert_eq!(described.conf[AVOID], "false");
        }
        assert_eq!(slow_address(), "10.77.0.1");
    }

    #[test]
    fn a_slow_disk_is_ten_times_slower_in_all() {
        let options = (SLOW_REPLICA.options)();
        let described = described("hayloft", &options);
        let (_, host) = described.hosts().next().expect("the slow one");
        let disk = &host.nodes[0].disks[0];
        let slow = slower(disk);
        assert_eq!(slow.read_mbs * SLOWER, disk.read_mbs);
        assert_eq!(slow.write_mbs * SLOWER, disk.write_mbs);
        assert_eq!(slow.seek_percent, disk.seek_percent * SLOWER);
        assert!(slow.seek_percent <= 10_000);
    }

    #[test]
    fn given_properties_are_over_its_own() {
        let mut options = (SLOW_REPLICA.options)();
        let key = "dfs.datanode.outliers.report.interval";
        options.conf.insert(key.into(), "9s".into());
        assert_eq!(described("hayloft", &options).conf[key], "9s");
    }
}
