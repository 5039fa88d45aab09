//! Slow peers and slow disks: what heartbeats say about them, so that the NameNode places blocks
//! elsewhere.
//!
//! - `detector`: which of several like things is far slower than the others
//! - `disks`: which volumes are much slower than the others
//! - `peers`: how long other nodes make this one wait when it passes packets on to them
//! - `rolling`: averages over the last three hours, in five-minute windows
//!
//! Peers are judged by how long they make this node wait when it passes packets on as the last but
//! one of a pipeline. Disks are judged by how long their operations take. Facts from the stock
//! DataNode's metrics classes.

mod detector;
mod disks;
mod peers;
mod rolling;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hayloft_io::locks::lock;
use hayloft_store::Store;
use hayloft_wire::proto::datanode::{SlowDiskReport, SlowPeerReport};
use tokio::time::Instant;

use self::disks::{DiskRules, SlowDisks};
use self::peers::PeerRules;
use hayloft_conf::{Configuration, keys};

pub use self::peers::{PeerClock, PeerTimes};

/// What a heartbeat says about outliers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutlierReports {
    /// Other nodes that are slow to take packets.
    pub slow_peers: Vec<SlowPeerReport>,
    /// Slow volumes of this node.
    pub slow_disks: Vec<SlowDiskReport>,
}

/// The watch over peers and disks of one node.
#[derive(Debug, Default)]
pub struct Outliers {
    disks: Mutex<SlowDisks>,
}

impl Outliers {
    /// Takes over what `config` says is to be measured.
    pub fn configure(config: &Configuration, peers: &PeerTimes, store: &Store) {
        store.sample_volumes(config.get(&keys::FILEIO_PROFILING_PERCENTAGE));
        if !config.get(&keys::PEER_STATS_ENABLED) {
            peers.clear();
        }
    }

    /// What is slow now. Disks are searched once an interval, however many NameNodes ask. The
    /// slowest of them get no new replicas until the next search, if `config` says so.
    #[must_use]
    pub fn reports(
        &self,
        config: &Configuration,
        peers: &PeerTimes,
        store: &Store,
        now: Instant,
    ) -> OutlierReports {
        let mut reports = OutlierReports::default();
        if config.get(&keys::PEER_STATS_ENABLED) {
            reports.slow_peers = peers.slow(peer_rules(config), now);
        }
        let mut disks = lock(&self.disks);
        if config.get(&keys::FILEIO_PROFILING_PERCENTAGE) == 0 {
            *disks = SlowDisks::default();
            store.avoid_volumes(&[]);
            return reports;
        }
        let rules = disk_rules(config);
        if disks.is_due(rules, now) {
            disks.search(rules, store.volume_times(), now);
            let most = config.get(&keys::MAX_SLOW_DISKS_TO_EXCLUDE);
            let slowest = disks.slowest(usize::try_from(most).unwrap_or(usize::MAX));
            let slowest: Vec<&Path> = slowest.iter().map(PathBuf::as_path).collect();
            store.avoid_volumes(&slowest);
        }
        reports.slow_disks = disks.reports();
        reports
    }
}

fn peer_rules(config: &Configuration) -> PeerRules {
    PeerRules {
        nodes: config.get(&keys::MIN_OUTLIER_DETECTION_NODES),
        samples: config.get(&keys::PEER_OUTLIER_MIN_SAMPLES),
        low: config.get(&keys::SLOW_PEER_LOW_THRESHOLD),
    }
}

fn disk_rules(config: &Configuration) -> DiskRules {
    DiskRules {
        disks: config.get(&keys::MIN_OUTLIER_DETECTION_DISKS),
        low: config.get(&keys::SLOW_DISK_LOW_THRESHOLD),
        interval: config.get(&keys::OUTLIERS_REPORT_INTERVAL),
    }
}
