//! Those who write and read a disk: files of its file system, or clients of HDFS through nodes that
//! have their directories on it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hayloft_bench::fair::stock::{Medium, Stock, client_flags, ours};
use serde_json::json;

use super::WatchedDisk;
use super::files::Calls;
use crate::runner::OURS;
use crate::runner::options::ExperimentOptions;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::node::{Kind, Node, NodeSpec, VolumeSpec};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, process_usage};

/// No phase takes longer.
const PHASE_LIMIT: Duration = Duration::from_secs(1800);
/// Until nodes have removed the blocks of removed files.
const REMOVED_LIMIT: Duration = Duration::from_secs(120);
/// Where clients put their files.
const PATH: &str = "/streams";

/// How streams come to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiments) enum StreamAccess {
    /// As files of its file system.
    Files,
    /// Through the stock DataNode.
    Stock(Stock),
    /// Through ours.
    Hayloft,
    /// Through ours without its scheduler of rotating disks: requests go to the disk as they come.
    Unscheduled,
}

impl StreamAccess {
    /// Those through nodes.
    pub fn nodes() -> Vec<Self> {
        let best = Stock::at_best(Medium::Rotating, false).iter();
        best.map(|stock| Self::Stock(*stock))
            .chain([Self::Hayloft])
            .collect()
    }

    /// All of them, files first.
    pub fn all() -> Vec<Self> {
        std::iter::once(Self::Files).chain(Self::nodes()).collect()
    }

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => FILES,
            Self::Stock(stock) => stock.name(),
            Self::Hayloft => OURS,
            Self::Unscheduled => UNSCHEDULED,
        }
    }

    /// What the names mean, for a page.
    pub fn explained(options: &ExperimentOptions) -> String {
        format!(
            "{} Hayloft: its default engine, told that the disk rotates. The client is the stock \
             Java client, blocks have {} MiB.",
            Stock::EXPLAINED,
            options.block_mib
        )
    }

    fn spec(self, volume: PathBuf) -> NodeSpec {
        let volume = VolumeSpec::at(volume);
        if let Self::Stock(stock) = self {
            return stock.node(volume);
        }
        let mut spec = NodeSpec::new(Kind::Hayloft).volumes(vec![volume]);
        spec.conf = ours(Medium::Rotating, false);
        if self == Self::Unscheduled {
            // A flash disk has no turns. All else stays as on a rotating one: what is handed in at
            // once, and that writes go through the page cache.
            spec.conf
                .set("hayloft.io.media", "flash")
                .set("hayloft.io.engine", "posix")
                .set("hayloft.io.quantum", "32m");
        }
        spec
    }
}

/// Name of our node without turns.
pub(in crate::experiments) const UNSCHEDULED: &str = "Hayloft, unscheduled";
/// Name of streams without HDFS.
pub(in crate::experiments) const FILES: &str = "file system";
/// Block size: the thesis', MiB.
pub(in crate::experiments) const THESIS_BLOCK_MIB: u32 = 64;

/// Streams that write and read at the same time, each a file of its own.
pub(in crate::experiments) trait StreamSource {
    /// So many streams write so many bytes each. What the call has not sent to the disk is sent by
    /// a sync of its file system.
    fn write(&self, streams: usize, each: u64) -> Result<()>;
    /// The first so many of them read so many bytes each of what they wrote.
    fn read(&self, streams: usize, each: u64) -> Result<()>;
    /// Removes all that was written.
    fn remove(&self) -> Result<()>;
}

/// Files in a directory.
#[derive(Debug)]
pub(in crate::experiments) struct FileStreams(pub PathBuf);

impl FileStreams {
    fn each(&self, streams: usize, work: impl Fn(&Path) -> Result<()> + Sync) -> Result<()> {
        let file = |stream| self.0.join(format!("s{stream}"));
        std::thread::scope(|scope| {
            let start = |stream| {
                let (work, file) = (&work, file(stream));
                scope.spawn(move || work(&file))
            };
            let begun: Vec<_> = (0..streams).map(start).collect();
            begun.into_iter().try_for_each(|stream| {
                let ended = stream.join();
                ended.unwrap_or_else(|_| Err(TestkitError::Talk("a stream panicked".into())))
            })
        })
    }
}

impl StreamSource for FileStreams {
    fn write(&self, streams: usize, each: u64) -> Result<()> {
        std::fs::create_dir_all(&self.0).map_err(TestkitError::file("creating", &self.0))?;
        self.each(streams, |file| Calls::BUFFERED.write(file, each))
    }

    fn read(&self, streams: usize, each: u64) -> Result<()> {
        self.each(streams, |file| Calls::BUFFERED.read(file, each))
    }

    fn remove(&self) -> Result<()> {
        std::fs::remove_dir_all(&self.0).map_err(TestkitError::file("removing", &self.0))
    }
}

/// Stock clients of a cluster whose nodes share the disk.
#[derive(Debug)]
pub(in crate::experiments) struct HdfsStreams {
    // Dropped first to last: the client ends before its cluster.
    client: Driver,
    cluster: Cluster,
    pids: Vec<u32>,
    replicas: usize,
    block_bytes: u64,
}

impl HdfsStreams {
    /// Starts as many nodes as replicas, each with a directory on `disk`.
    ///
    /// # Errors
    /// When the cluster does not start.
    pub fn start(
        disk: &WatchedDisk,
        access: StreamAccess,
        replicas: usize,
        options: &ExperimentOptions,
    ) -> Result<Self> {
        let block_bytes = u64::from(options.block_mib) << 20;
        let mut builder = Cluster::builder("one-disk")
            .names_in_memory()
            .conf("dfs.replication", replicas)
            .conf("dfs.blocksize", block_bytes)
            .conf("dfs.datanode.du.reserved.pct", 0)
            // A node that waits for a busy disk is slow, not gone.
            .conf("dfs.client.socket-timeout", 120_000);
        for (key, value) in &options.conf {
            builder = builder.conf(key, value);
        }
        for node in 0..replicas {
            builder = builder.node(access.spec(disk.volume(node)));
        }
        let mut cluster = builder.start()?;
        let pid = |node| -> Result<u32> { Ok(cluster.node(node).process()?.pid()) };
        Ok(Self {
            pids: (0..replicas).map(pid).collect::<Result<_>>()?,
            client: cluster.driver_with_flags(client_flags())?,
            cluster,
            replicas,
            block_bytes,
        })
    }

    /// The processes of its nodes.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Ends it and leaves nothing of it.
    pub fn end(self) {
        let Self {
            client, cluster, ..
        } = self;
        drop(client);
        cluster.succeed();
    }

    fn call(&self, operation: &str, arguments: serde_json::Value, bytes: u64) -> Result<()> {
        let pending = self.client.begin(operation, arguments)?;
        let answer = pending.wait_at_most(PHASE_LIMIT)?;
        let wrong = answer["equal"].as_bool() == Some(false);
        if wrong || answer["bytes"].as_u64() != Some(bytes) {
            return Err(TestkitError::Expectation(format!(
                "{operation} moved something else than the {bytes} bytes that were written"
            )));
        }
        Ok(())
    }
}

/// Processor seconds of these processes so far.
///
/// # Errors
/// When one has ended.
pub(in crate::experiments) fn cpu_s(pids: &[u32]) -> Result<f64> {
    let of = |pid: &u32| process_usage::usage(*pid).map(|used| used.user_s + used.system_s);
    pids.iter().map(of).sum()
}

/// Bytes of all streams.
fn all(streams: usize, each: u64) -> u64 {
    each * u64::try_from(streams).unwrap_or(u64::MAX)
}

impl StreamSource for HdfsStreams {
    fn write(&self, streams: usize, each: u64) -> Result<()> {
        let arguments = json!({
            "path": PATH,
            "streams": streams,
            "bytes": each,
            "replication": self.replicas,
            "blockSize": self.block_bytes,
        });
        self.call("writeStreams", arguments, all(streams, each))
    }

    fn read(&self, streams: usize, each: u64) -> Result<()> {
        let arguments = json!({"path": PATH, "streams": streams});
        self.call("readStreams", arguments, all(streams, each))
    }

    fn remove(&self) -> Result<()> {
        self.client.fs(&["-rm", "-r", "-skipTrash", PATH])?;
        wait::until("the removal of all blocks", REMOVED_LIMIT, || {
            let files = self.cluster.nodes().map(Node::all_block_files);
            let left: usize = files.map(|files| files.len()).sum();
            Ok(match left {
                0 => Seen::Done(()),
                some => Seen::NotYet(format!("{some} files of blocks")),
            })
        })
    }
}

/// Starts what `access` stands for on `disk`, hands it to `work`, and ends it.
///
/// # Errors
/// When it does not start, and those of `work`.
pub(in crate::experiments) fn with_source<T>(
    disk: &WatchedDisk,
    (access, replicas): (StreamAccess, usize),
    options: &ExperimentOptions,
    work: impl FnOnce(&dyn StreamSource) -> Result<T>,
) -> Result<T> {
    if access == StreamAccess::Files {
        return work(&FileStreams(disk.dir().join("files")));
    }
    let hdfs = HdfsStreams::start(disk, access, replicas, options)?;
    let done = work(&hdfs)?;
    hdfs.end();
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_read_and_removed_by_all_streams() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = FileStreams(dir.path().join("files"));
        files.write(3, 100_000).expect("writes");
        assert_eq!(std::fs::read_dir(&files.0).expect("it is there").count(), 3);
        files.read(3, 100_000).expect("reads all");
        files.read(4, 100_000).expect_err("there is no fourth");
        files.remove().expect("removes");
        assert!(!files.0.exists());
    }

    #[test]
    fn every_way_through_nodes_is_a_node_of_its_kind() {
        let names: Vec<&str> = StreamAccess::all().iter().map(|one| one.name()).collect();
        assert_eq!(names, [FILES, "stock", "stock-drop", OURS]);
        for access in StreamAccess::nodes() {
            let stock = matches!(access, StreamAccess::Stock(_));
            assert_eq!(access.spec("/d".into()).kind == Kind::Apache, stock);
        }
    }
}
