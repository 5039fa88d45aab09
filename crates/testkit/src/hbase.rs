//! HBase's jars, and the lab's client on them.

use crate::cluster::Cluster;
use crate::driver::Driver;
use crate::error::{Result, TestkitError};
use crate::hadoop::{Hadoop, Jvm, repository_root};
use crate::where_processes_run::Place;
use std::path::PathBuf;
use std::process::Command;

/// What HBase's own script opens to it on Java 17, beside what Hadoop needs.
pub const FLAGS: [&str; 7] = [
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "-Dzookeeper.admin.enableServer=false",
];

/// The directory with HBase's jars, fetched where it is not there yet.
///
/// # Errors
/// Why there is none.
pub fn fetched() -> std::result::Result<PathBuf, String> {
    let script = repository_root().join("scripts/fetch-hbase");
    let output = Command::new(&script).output();
    let output = output.map_err(|e| format!("{}: {e}", script.display()))?;
    if output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return Ok(PathBuf::from(said.trim_end()));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().last().unwrap_or("failed").to_owned())
}

/// The directory with HBase's jars, if it has been fetched.
///
/// # Errors
/// That it is not there, and how to get it.
pub fn installed() -> std::result::Result<PathBuf, String> {
    let dir = repository_root().join("target/hbase");
    if dir.join("stamp").is_file() {
        return Ok(dir);
    }
    Err("there is no HBase: run scripts/fetch-hbase".into())
}

/// The lab's client on HBase's class path, with the operation that writes HBase's log, in a JVM
/// with `flags` and [`FLAGS`].
///
/// # Errors
/// As [`installed`], and those of [`Driver::start_program`].
pub fn driver(cluster: &Cluster, flags: Vec<String>) -> Result<Driver> {
    let home = installed().map_err(TestkitError::Talk)?;
    let hadoop = Hadoop::locate_in(Some(&home))?;
    let jvm = Jvm {
        conf_dir: cluster.client_conf_dir(),
        log_dir: cluster.dir().to_owned(),
        flags: [flags, FLAGS.map(String::from).to_vec()].concat(),
    };
    let source = repository_root().join("hadoop/hbase/Wal.java");
    let source = source.display().to_string();
    Driver::start_program(&hadoop, &jvm, &Place::local(), &source)
}
