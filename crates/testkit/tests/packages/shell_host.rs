//! A node of a cluster that Hadoop's shell starts and stops on this host, and `hayloft swap` there.

use crate::hadoop_shell;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::suite::expect;
use hayloft_testkit::{Cluster, TestkitError};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub struct ShellHost {
    pub conf: PathBuf,
    pub home: PathBuf,
    pub logs: PathBuf,
}

/// Where pid files are, beside the logs.
pub const PIDS: &str = "host-pids";

impl ShellHost {
    /// Stops that node of the cluster: from here on the shell starts it.
    pub fn of(cluster: &mut Cluster, node: usize) -> Result<Self> {
        cluster.node(node).stop()?;
        let conf = cluster.node(node).conf_dir();
        let [home, logs, pids] = ["home", "host-logs", PIDS].map(|name| cluster.dir().join(name));
        for dir in [&logs, &pids] {
            fs::create_dir_all(dir).map_err(TestkitError::file("making", dir))?;
        }
        hadoop_shell::put_shell(&home)?;
        let java = hadoop_shell::java_home()?;
        let text = hadoop_shell::environment(cluster.hadoop(), &java, &logs, &pids);
        let path = conf.join("hadoop-env.sh");
        fs::write(&path, text).map_err(TestkitError::file("writing", &path))?;
        Ok(Self { conf, home, logs })
    }

    /// Stops the node; of a case that failed its logs are shown.
    pub fn end(&self, failed: bool) {
        if failed {
            let logs = fs::read_dir(&self.logs).into_iter().flatten().flatten();
            for log in logs {
                let text = fs::read_to_string(log.path()).unwrap_or_default();
                let from = text.len().saturating_sub(4000);
                let tail = text.get(from..).unwrap_or(&text);
                println!("{}:\n{tail}", log.path().display());
            }
        }
        if let Err(error) = self.daemon("stop") {
            println!("the host's node was not stopped: {error}");
        }
    }

    /// `hdfs --daemon ACTION datanode`, which has to succeed.
    pub fn daemon(&self, action: &str) -> Result<()> {
        let code = self.daemon_code(action)?;
        expect(code == 0, || format!("hdfs {action}: exit code {code}"))
    }

    /// The same; its exit code.
    pub fn daemon_code(&self, action: &str) -> Result<i32> {
        let hdfs = self.home.join("bin/hdfs");
        let mut command = Command::new(&hdfs);
        command.arg("--config").arg(&self.conf);
        command.args(["--daemon", action, "datanode"]);
        // The one of the suite's jars has no scripts.
        command.env_remove("HADOOP_HOME");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.stderr(Stdio::null()).status();
        let status = status.map_err(TestkitError::file("running", &hdfs))?;
        Ok(status.code().unwrap_or(-1))
    }

    /// `hayloft swap`; its exit code, and its report with what else it said.
    pub fn swap(&self, words: &[&str], environment: &[(&str, &str)]) -> Result<(i32, Value)> {
        let mut command = Command::new(hayloft_binary()?);
        command.arg("swap").args(words).arg("--json");
        command.arg("--conf").arg(&self.conf);
        command.arg("--hadoop-home").arg(&self.home);
        command.envs(environment.iter().copied());
        hadoop_shell::report_of(&mut command)
    }

    /// Which node it says, in any order of the keys.
    pub fn runs(report: &Value, node: &str, next: &str) -> Result<()> {
        let right = report["runs"]["node"] == node && report["starts_next"] == next;
        expect(right, || report.to_string())
    }
}
