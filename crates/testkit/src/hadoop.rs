//! Hadoop as the launcher finds it, with what only tests and experiments start, and where the
//! programs of this repository are.

use crate::error::{Result, TestkitError};
pub use hayloft_cluster::hadoop::*;
use std::path::{Path, PathBuf};

/// Main classes of the stock daemons and tools.
pub mod class {
    pub use hayloft_cluster::hadoop::class::*;

    /// YARN's ResourceManager.
    pub const RESOURCE_MANAGER: &str =
        "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager";
    /// YARN's NodeManager.
    pub const NODE_MANAGER: &str = "org.apache.hadoop.yarn.server.nodemanager.NodeManager";
    /// `hdfs dfsadmin`.
    pub const DFSADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSAdmin";
    /// `hdfs haadmin`.
    pub const HAADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSHAAdmin";
    /// `hadoop distcp`.
    pub const DISTCP: &str = "org.apache.hadoop.tools.DistCp";
    /// `hadoop daemonlog`.
    pub const DAEMONLOG: &str = "org.apache.hadoop.log.LogLevel$CLI";
    /// `hdfs debug`.
    pub const DEBUG: &str = "org.apache.hadoop.hdfs.tools.DebugAdmin";
    /// `hdfs storagepolicies`.
    pub const STORAGE_POLICIES: &str = "org.apache.hadoop.hdfs.tools.StoragePolicyAdmin";
    /// `hdfs cacheadmin`.
    pub const CACHE_ADMIN: &str = "org.apache.hadoop.hdfs.tools.CacheAdmin";
    /// `hdfs ec`.
    pub const EC: &str = "org.apache.hadoop.hdfs.tools.ECAdmin";
    /// `hdfs balancer`.
    pub const BALANCER: &str = "org.apache.hadoop.hdfs.server.balancer.Balancer";
    /// `hdfs diskbalancer`.
    pub const DISK_BALANCER: &str = "org.apache.hadoop.hdfs.tools.DiskBalancerCLI";
    /// `hdfs oiv`.
    pub const IMAGE_VIEWER: &str =
        "org.apache.hadoop.hdfs.tools.offlineImageViewer.OfflineImageViewerPB";
    /// `hdfs mover`.
    pub const MOVER: &str = "org.apache.hadoop.hdfs.server.mover.Mover";
    /// TestDFSIO, the benchmark of the tests jar of MapReduce's job client.
    pub const TEST_DFSIO: &str = "org.apache.hadoop.fs.TestDFSIO";
    /// Writes random records, each map task a file.
    pub const RANDOM_WRITER: &str = "org.apache.hadoop.examples.RandomWriter";
    /// Sorts such records.
    pub const SORT: &str = "org.apache.hadoop.examples.Sort";
    /// Counts what an expression finds.
    pub const GREP: &str = "org.apache.hadoop.examples.Grep";
    /// Tasks that sleep.
    pub const SLEEP: &str = "org.apache.hadoop.mapreduce.SleepJob";
    /// The tests' own resident client.
    pub const LAB_DRIVER: &str = "io.hayloft.lab.LabDriver";
}

/// Name of the program that measures and carries modelled disks.
const LAB: &str = "hayloft-lab";

/// Makes the `hayloft` beside this program the binary of clusters to come, where one is there,
/// unless `HAYLOFT_BIN` names another.
pub fn use_binary_beside() {
    let own = std::env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name("hayloft"));
    if let Some(path) = beside.filter(|path| path.is_file()) {
        use_binary(path);
    }
}

/// The binary `hayloft-lab`: `HAYLOFT_LAB_BIN`, else the one beside the node binary that
/// `HAYLOFT_BIN` names, else the one beside this program or, for a test, in the directory above.
///
/// # Errors
/// [`TestkitError::Missing`] saying how to build it.
pub fn lab_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HAYLOFT_LAB_BIN") {
        return Ok(PathBuf::from(path));
    }
    let node = std::env::var_os("HAYLOFT_BIN").map(PathBuf::from);
    let own = std::env::current_exe().ok();
    let mut dirs: Vec<&Path> = node.as_deref().and_then(Path::parent).into_iter().collect();
    dirs.extend(own.iter().flat_map(|own| own.ancestors().skip(1).take(2)));
    let found = dirs
        .iter()
        .map(|dir| dir.join(LAB))
        .find(|path| path.is_file());
    found.ok_or_else(|| TestkitError::Missing {
        what: format!("the program {LAB}, which carries modelled disks"),
        todo: "run `cargo build --release -p hayloft-lab`, or set HAYLOFT_LAB_BIN".into(),
    })
}

/// The jar of the resident client: `HAYLOFT_LAB_DRIVER`, else the one that Maven made.
///
/// # Errors
/// [`TestkitError::Missing`] when it has not been built.
pub fn driver_jar() -> Result<PathBuf> {
    made_by_maven(
        "HAYLOFT_LAB_DRIVER",
        "hadoop/driver/target/hayloft-lab-driver.jar",
        "the lab's client",
    )
}

/// The jar of the placement plug-in: `HAYLOFT_PLACEMENT_JAR`, else the one that Maven made.
///
/// # Errors
/// [`TestkitError::Missing`] saying how to build it.
pub fn placement_jar() -> Result<PathBuf> {
    made_by_maven(
        "HAYLOFT_PLACEMENT_JAR",
        "hadoop/placement/target/hayloft-placement.jar",
        "the placement plug-in",
    )
}

fn made_by_maven(variable: &str, made: &str, what: &str) -> Result<PathBuf> {
    let usual = || repository_root().join(made);
    let path = std::env::var_os(variable).map_or_else(usual, PathBuf::from);
    if path.is_file() {
        return Ok(path);
    }
    Err(TestkitError::Missing {
        what: format!("{what} {}", path.display()),
        todo: format!("run `mvn -q -f hadoop/pom.xml package`, or set {variable}"),
    })
}

/// A new directory for what a run needs, under `target/lab` of the repository; removed when it is
/// dropped.
///
/// # Errors
/// [`TestkitError::File`] when it cannot be made.
pub fn scratch(prefix: &str) -> Result<tempfile::TempDir> {
    let base = repository_root().join("target/lab");
    std::fs::create_dir_all(&base).map_err(TestkitError::file("creating", &base))?;
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(&base)
        .map_err(TestkitError::file("creating a directory in", &base))
}
