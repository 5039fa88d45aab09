//! The stage of a run: one NameNode, every peer's nodes beside each other, both clients.

use super::BenchOptions;
use super::disk_balancer;
use super::encryption::BenchCipher;
use super::fair::stock::{BLOCK_MIB, client_flags, client_flags_without_native, jvm_flags};
use super::local_read::nodes_conf;
use super::names::NameNodeClient;
use super::peers::{BEFORE, Peer};
use super::rows::{BenchRow, BenchWorkload, Client};
use super::trace::Tracer;
use hayloft_testkit::cluster::Cluster;
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::hbase;
use hayloft_testkit::load::Data;
use hayloft_testkit::machine;
use hayloft_testkit::machine::{Device, ReadaheadGuard};
use hayloft_testkit::node::{NodeSpec, VolumeSpec};
use hayloft_testkit::ports;
use hayloft_testkit::wait::{self, Seen};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Block size of the files, bytes.
pub(super) const BLOCK_BYTES: u64 = (BLOCK_MIB as u64) << 20;
/// Read-ahead of the device, KiB, at least: what Hadoop's tuning guides ask for.
const READAHEAD_KIB: u64 = 4096;

/// A peer and its nodes.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) peer: Peer,
    /// Indices into the cluster's nodes; the first serves everything but pipelines.
    pub(super) nodes: Vec<usize>,
}

/// What all nodes and clients of a rig are configured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RigKind {
    /// What encrypts their data: a NameNode encrypts all or none.
    pub(super) cipher: Option<BenchCipher>,
    /// Whether nodes have domain sockets, so that a client can read by itself.
    pub(super) local: bool,
    /// Whether nodes have volumes to balance.
    pub(super) balances: bool,
}

impl RigKind {
    /// Of the rig that a row is done in.
    pub(super) fn of(row: &BenchRow) -> Self {
        Self {
            cipher: row.cipher,
            local: row.workload.needs_libhadoop(),
            balances: matches!(row.workload, BenchWorkload::DiskBalancer(_)),
        }
    }

    /// Configuration of all, with the directory of the nodes' sockets if they have some.
    fn conf(self, sockets: Option<&tempfile::TempDir>) -> Vec<(&'static str, String)> {
        let encrypted = self.cipher.iter().flat_map(|cipher| cipher.conf());
        let encrypted = encrypted.map(|(key, value)| (key, value.to_owned()));
        let local = sockets.iter().flat_map(|dir| nodes_conf(dir.path()));
        let balanced = self.balances.then(disk_balancer::nodes_conf);
        encrypted.chain(local).chain(balanced).collect()
    }

    /// Volumes of each node.
    fn volumes(self) -> usize {
        if self.balances {
            disk_balancer::VOLUMES
        } else {
            1
        }
    }

    /// In a word or two.
    pub(super) fn name(self) -> &'static str {
        match (self.cipher, self.local) {
            (Some(cipher), _) => cipher.name(),
            (None, true) => "by itself",
            (None, false) if self.balances => "two volumes",
            (None, false) => "clear",
        }
    }
}

/// Everything that runs. Dropping it ends all of it and removes its files.
#[derive(Debug)]
pub(super) struct Rig {
    // Dropped in this order: processes before their directories.
    pub(super) driver: Option<Driver>,
    /// The JVM in which HBase writes its logs.
    pub(super) hbase: Option<Driver>,
    pub(super) kind: RigKind,
    namenode: String,
    pub(super) names: NameNodeClient,
    cluster: Option<Cluster>,
    pub(super) seats: Vec<Seat>,
    pub(super) data: Data,
    disk: tempfile::TempDir,
    _sockets: Option<tempfile::TempDir>,
}

/// The device below all nodes of a run: one for all rigs, because the kernel traces it once.
pub(super) struct RunDevice {
    pub(super) tracer: Option<Tracer>,
    /// Why the device is not traced, or nothing.
    pub(super) untraced: String,
    /// What the device's read-ahead is now, for the record.
    pub(super) readahead_kib: Option<u64>,
    _readahead: Option<ReadaheadGuard>,
}

impl RunDevice {
    /// The device that `base` is on, with read-ahead raised until this is dropped.
    pub(super) fn under(base: &Path) -> Self {
        let device = Device::under(base).ok();
        let guard = device
            .as_ref()
            .map(|device| device.raise_readahead(READAHEAD_KIB));
        let (tracer, untraced) = tracer(device.as_ref());
        Self {
            tracer,
            untraced,
            readahead_kib: device.as_ref().and_then(Device::readahead_kib),
            _readahead: guard,
        }
    }
}

impl Rig {
    /// Starts a NameNode and the nodes of all peers on `base`, waits for them, starts the clients.
    ///
    /// # Errors
    /// When something does not come up, or `base` has too little room.
    pub(super) fn start(options: &BenchOptions, base: &Path, kind: RigKind) -> Result<Self> {
        let disk = directory_in(base)?;
        let rows = || {
            let all = options.rows.iter();
            all.filter(move |row| RigKind::of(row) == kind)
        };
        // Copies of each peer for pipelines.
        let copies = rows().map(|row| row.workload.nodes()).max().unwrap_or(1);
        // A balancer has twice the data, and a copy of what moves.
        room(options, disk.path(), copies * (2 * kind.volumes() - 1))?;
        let mut builder = Cluster::builder("bench")
            .names_in_memory()
            .conf("dfs.blocksize", BLOCK_BYTES)
            .conf("dfs.replication", 1)
            // One peer at a time works: its load is above average by design.
            .conf("dfs.namenode.redundancy.considerLoad", false)
            .conf("dfs.namenode.fs-limits.min-block-size", 512);
        // Below no directory that others may write: nodes refuse to have a socket there.
        let sockets = kind.local.then(|| scratch("sc-")).transpose()?;
        for (key, value) in kind.conf(sockets.as_ref()) {
            builder = builder.conf(key, value);
        }
        let mut seats = Vec::new();
        let mut index = 0;
        for name in &options.peers {
            let peer = super::peers::peer(name, &options.define)?;
            for copy in 0..copies {
                let at = |volume| disk.path().join(format!("{name}-{copy}-{volume}"));
                let volumes = (0..kind.volumes()).map(|volume| VolumeSpec::at(at(volume)));
                let mut spec = NodeSpec::new(peer.kind).volumes(volumes.collect());
                spec.conf = peer.conf.clone();
                spec.jvm_flags = Some([jvm_flags(), options.jvm_flags.clone()].concat());
                if name == BEFORE {
                    spec.binary.clone_from(&options.before);
                }
                builder = builder.node(spec);
            }
            let nodes = (index..index + copies).collect();
            index += copies;
            seats.push(Seat { peer, nodes });
        }
        let mut cluster = builder.start()?;
        let namenode = cluster.namenode(0).rpc();
        let names = NameNodeClient::new(&namenode)?;
        let is_hbase = |row: &BenchRow| row.workload.needs_hbase();
        let driver = rows()
            .any(|row| row.client == Client::Java && !is_hbase(row))
            .then(|| cluster.driver_with_flags(client_flags()))
            .transpose()?;
        let hbase = rows()
            .any(is_hbase)
            .then(|| hbase::driver(&cluster, client_flags_without_native()))
            .transpose()?;
        Ok(Self {
            driver,
            hbase,
            kind,
            namenode,
            names,
            cluster: Some(cluster),
            seats,
            data: Data::new(),
            disk,
            _sockets: sockets,
        })
    }

    /// Where the nodes' directories are.
    pub(super) fn disk(&self) -> PathBuf {
        self.disk.path().to_owned()
    }

    /// `host:port` of the NameNode.
    pub(super) fn namenode(&self) -> &str {
        &self.namenode
    }

    /// Whether the NameNode's edits stay off the disks.
    pub(super) fn has_names_in_memory(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(Cluster::has_names_in_memory)
    }

    pub(super) fn cluster(&mut self) -> &mut Cluster {
        self.cluster.as_mut().expect("it is taken only by drop")
    }

    /// `host:port` of the first `count` nodes of a seat.
    pub(super) fn addresses(&mut self, seat: usize, count: usize) -> Vec<String> {
        let nodes: Vec<usize> = self.seats[seat].nodes.iter().copied().take(count).collect();
        nodes
            .iter()
            .map(|&index| self.cluster().node(index).xfer())
            .collect()
    }

    /// Web ports of the first `count` nodes of a seat.
    pub(super) fn web_ports(&mut self, seat: usize, count: usize) -> Vec<SocketAddr> {
        let nodes: Vec<usize> = self.seats[seat].nodes.iter().copied().take(count).collect();
        let port = |&index: &usize| ports::local(self.cluster().node(index).http_port());
        nodes.iter().map(port).collect()
    }

    /// Process ids of the first `count` nodes of a seat.
    pub(super) fn pids(&mut self, seat: usize, count: usize) -> Result<Vec<u32>> {
        let nodes: Vec<usize> = self.seats[seat].nodes.iter().copied().take(count).collect();
        let pid = |&index: &usize| Ok(self.cluster().node(index).process()?.pid());
        nodes.iter().map(pid).collect()
    }

    /// Starts nodes of a seat again that have ended; the ends of their logs.
    pub(super) fn revive(&mut self, seat: usize) -> Result<String> {
        let nodes = self.seats[seat].nodes.clone();
        let mut logs = String::new();
        for index in nodes {
            let node = self.cluster().node(index);
            if node
                .process()
                .and_then(|process| process.check_alive())
                .is_ok()
            {
                continue;
            }
            logs.push_str(&hayloft_testkit::process::tail(&node.log()));
            let _ = node.kill();
            self.cluster().start_node(index)?;
        }
        if !logs.is_empty() {
            self.cluster().wait_all_live()?;
        }
        Ok(logs)
    }

    /// Mean number of extents of the block files of a seat's first node; `None` when the file
    /// system does not tell or there are none.
    pub(super) fn extents_per_block(&mut self, seat: usize) -> Option<f64> {
        let first = *self.seats[seat].nodes.first()?;
        let files = self.cluster().node(first).all_block_files();
        let blocks = files.iter().filter(|path| path.extension().is_none());
        let counts: Vec<usize> = blocks
            .filter_map(|path| hayloft_io::extents(&std::fs::File::open(path).ok()?).ok())
            .map(|extents| extents.len())
            .collect();
        let sum: usize = counts.iter().sum();
        let as_f64 = |n: usize| super::measure::as_f64(n as u64);
        (!counts.is_empty()).then(|| as_f64(sum) / as_f64(counts.len()))
    }

    /// Deletes the files below `path` and waits until the blocks of `seats` are off the disk: they
    /// have none elsewhere.
    ///
    /// # Errors
    /// When the NameNode refuses; blocks that stay for a minute are none.
    pub(super) fn clear(&mut self, path: &str, seats: Range<usize>) -> Result<()> {
        self.names.delete(path)?;
        let limit = Duration::from_secs(60);
        let gone = wait::until("the blocks to be deleted", limit, || {
            let nodes = self.seats[seats.clone()]
                .iter()
                .flat_map(|seat| seat.nodes.clone());
            let nodes: Vec<usize> = nodes.collect();
            let left = |index: usize| self.cluster().node(index).all_block_files().len();
            let left: usize = nodes.into_iter().map(left).sum();
            Ok(if left == 0 {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{left} files"))
            })
        });
        if let Err(error) = gone {
            eprintln!("hayloft: warning: {error}");
        }
        machine::settle(self.disk.path())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // What failed is in the record; gigabytes of blocks tell nothing more.
        if let Some(cluster) = self.cluster.take() {
            cluster.succeed();
        }
    }
}

/// A directory for nodes in `base`, which goes when it is dropped.
///
/// # Errors
/// When it cannot be made.
pub(super) fn directory_in(base: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("hayloft-bench-")
        .tempdir_in(base)
        .map_err(TestkitError::file("creating a directory in", base))
}

fn tracer(device: Option<&Device>) -> (Option<Tracer>, String) {
    let Some(device) = device else {
        return (None, "the directory is not on a block device".into());
    };
    match Tracer::new(device.number) {
        Ok(tracer) => (Some(tracer), String::new()),
        Err(error) => (None, error.to_string()),
    }
}

/// Whether all peers' files of a stage fit, with room to spare.
fn room(options: &BenchOptions, dir: &Path, copies: usize) -> Result<()> {
    let space =
        rustix::fs::statvfs(dir).map_err(|e| TestkitError::file("looking at", dir)(e.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let per_peer = (options.mib << 20).saturating_mul(copies as u64);
    let keeping = options.peers.len() as u64 + 1;
    // Nodes keep a GiB free by default, and refuse blocks below that.
    let wanted = per_peer.saturating_mul(keeping).saturating_add(2 << 30);
    if free >= wanted {
        return Ok(());
    }
    Err(TestkitError::Talk(format!(
        "{} has {} GiB free and {} are needed: give another directory with --disk DIR, fewer \
            peers or less --mib",
        dir.display(),
        free >> 30,
        (wanted >> 30) + 1
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_rows_get_sockets() {
        let kind = |name| RigKind::of(&BenchRow::named(name, Client::Java).expect("a row"));
        let (clear, local) = (kind("warm-1"), kind("local-warm-1"));
        assert_eq!((kind("descriptors"), kind("tcp-warm-1")), (local, local));
        assert!(clear != local && kind("warm-1-aes") != clear && !kind("warm-1-aes").local);
        assert_eq!(clear.conf(None), []);
        let sockets = tempfile::tempdir().expect("a directory");
        let conf = local.conf(Some(&sockets));
        let path = sockets.path().join("dn._PORT").display().to_string();
        assert!(conf.contains(&("dfs.domain.socket.path", path)), "{conf:?}");
        assert!(conf.contains(&("dfs.client.read.shortcircuit", "true".into())));
        let row = BenchRow::named("disk-balancer-idle", Client::Load).expect("a row");
        let two = RigKind::of(&row);
        assert_eq!((two.volumes(), clear.volumes(), local.volumes()), (2, 1, 1));
        assert_eq!(two.conf(None).len(), 1);
    }
}
