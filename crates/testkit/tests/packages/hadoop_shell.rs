//! Hadoop's shell on a host: `bin/hdfs`, and the `hadoop-env.sh` by which it starts a node.
//!
//! It is that of the installation which `HAYLOFT_HADOOP_SHELL` names, without its jars: the classes
//! are those of the suite. Else `hdfs.sh` stands for it.

use hayloft_testkit::error::Result;
use hayloft_testkit::files::merge;
use hayloft_testkit::hadoop::Hadoop;
use hayloft_testkit::suite::expect;
use hayloft_testkit::{TestkitError, mounts};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands for Hadoop's own.
const HDFS: &str = include_str!("hdfs.sh");

/// The text of `hadoop-env.sh`.
pub fn environment(hadoop: &Hadoop, java: &Path, logs: &Path, pids: &Path) -> String {
    let class_path = hadoop.jars().iter().map(|jar| jar.display().to_string());
    let class_path: Vec<_> = class_path.collect();
    format!(
        "export JAVA_HOME={}\nHADOOP_LOG_DIR={}\nHADOOP_PID_DIR={}\nHADOOP_CLASSPATH={}\n\
         HADOOP_OPTS=-Xmx192m\nHADOOP_STOP_TIMEOUT=30\n",
        java.display(),
        logs.display(),
        pids.display(),
        class_path.join(":")
    )
}

/// Makes a directory Hadoop's home: `bin/hdfs`, and the scripts that it sources.
pub fn put_shell(home: &Path) -> Result<()> {
    let (bin, libexec) = (home.join("bin"), home.join("libexec"));
    for dir in [&bin, &libexec] {
        fs::create_dir_all(dir).map_err(TestkitError::file("making", dir))?;
    }
    let Some(real) = std::env::var_os("HAYLOFT_HADOOP_SHELL").map(PathBuf::from) else {
        return put_program(&bin.join("hdfs"), HDFS);
    };
    // It refuses to start where these folders of jars are missing.
    for part in ["common", "hdfs", "mapreduce", "yarn"] {
        let dir = home.join("share/hadoop").join(part);
        fs::create_dir_all(&dir).map_err(TestkitError::file("making", &dir))?;
    }
    for (from, into) in [("bin/hdfs", &bin), ("libexec/.", &libexec)] {
        let mut copy = Command::new("cp");
        copy.args(["-rL", "--preserve=mode"]);
        mounts::run(copy.arg(real.join(from)).arg(into))?;
    }
    Ok(())
}

/// Writes a script that may be run.
pub fn put_program(at: &Path, text: &str) -> Result<()> {
    fs::write(at, text).map_err(TestkitError::file("writing", at))?;
    fs::set_permissions(at, fs::Permissions::from_mode(0o755))
        .map_err(TestkitError::file("changing", at))
}

/// The JDK.
pub fn java_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("JAVA_HOME") {
        return Ok(home.into());
    }
    let found = mounts::run(Command::new("sh").args(["-c", "readlink -f \"$(command -v java)\""]))?;
    let java = PathBuf::from(found.trim());
    let home = java.ancestors().nth(2).map(Path::to_owned);
    expect(home.is_some(), || format!("{found} is in no JDK"))?;
    Ok(home.unwrap_or_default())
}

/// Runs a `hayloft swap ... --json`; its exit code, and its report with what else it said.
pub fn report_of(swap: &mut Command) -> Result<(i32, Value)> {
    let ran = swap.output();
    let ran = ran.map_err(TestkitError::file("running", "hayloft swap"))?;
    let text = String::from_utf8_lossy(&ran.stdout);
    let said = String::from_utf8_lossy(&ran.stderr);
    let report = serde_json::from_str(&text)
        .map_err(|error| TestkitError::Expectation(format!("{swap:?}: {error}: {text}{said}")))?;
    let code = json!({"code": ran.status.code(), "stderr": said});
    Ok((ran.status.code().unwrap_or(-1), merge(report, code)))
}
