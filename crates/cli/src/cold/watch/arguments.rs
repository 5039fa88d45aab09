//! The command line of the watch.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hayloft_console::size;

use super::super::age::{self, TimesAsked};
use super::super::ask_namenode::hdfs_path;
use super::super::directory_uses::lies_in;
use crate::error::CliError;

/// `hayloft cold watch`.
#[derive(Debug, Args)]
pub struct ColdWatchArgs {
    /// The directories to look at.
    #[arg(default_value = "/", value_parser = hdfs_path)]
    pub paths: Vec<String>,
    /// How long ago a file was last used: 180d, 26w, 36h, 2y.
    #[arg(long, value_name = "TIME", required_unless_present = "status", value_parser = age::parse)]
    pub older_than: Option<Duration>,
    /// Where the state and the undo files are. One watch at a time uses it.
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// Set policies; without it the watch only says what it would do.
    #[arg(long)]
    pub apply: bool,
    /// How long from the beginning of a pass to that of the next: 24h, 1w.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = age::parse)]
    pub every: Duration,
    /// Make one pass now, and end: for cron.
    #[arg(long)]
    pub once: bool,
    /// In how many passes running a path is cold before it is set.
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub after_passes: u32,
    /// In how many passes a path that was set is used anew before it gets back what it had.
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub back_after: u32,
    /// Most files that a pass sets, so that the mover is not flooded.
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub files_per_pass: u64,
    /// Most bytes of those, each counted once however many replicas it has.
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = size::parse)]
    pub bytes_per_pass: u64,
    /// Look at an image of the namespace in place of listings; each pass reads the file anew.
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Take reads from the NameNode's audit log, where access times are off. Give it for each
    /// NameNode.
    ///
    /// A file counts as read when one of its directory was, and as read when the log began.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["image", "times"])]
    pub audit_log: Vec<PathBuf>,
    /// Which times decide whether a file is cold.
    #[arg(long, value_enum, default_value_t = TimesAsked::Auto)]
    pub times: TimesAsked,
    /// Say what the watch of that state directory did last and does next.
    #[arg(long, conflicts_with_all = ["apply", "once", "older_than", "image", "audit_log"])]
    pub status: bool,
    /// Directory of core-site.xml and hdfs-site.xml
    /// [default: $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    pub conf: Option<PathBuf>,
    /// Which of several name services to look at.
    #[arg(long, value_name = "ID")]
    pub nameservice: Option<String>,
    /// A line of JSON on stdout for each pass.
    #[arg(long)]
    pub json: bool,
}

impl ColdWatchArgs {
    /// How long ago a file was last used.
    pub fn age(&self) -> Duration {
        self.older_than.unwrap_or_default()
    }

    /// Refuses fewer audit logs than the name service has NameNodes: each logs the reads that it
    /// served while it was active.
    ///
    /// # Errors
    /// How many there are.
    pub fn check_logs(&self, namenodes: usize) -> Result<(), CliError> {
        let logs = self.audit_log.len();
        if logs == 0 || logs >= namenodes {
            return Ok(());
        }
        let what = format!("{logs} audit logs are given, and there are {namenodes} NameNodes");
        let advice = "give --audit-log for each: a read is in the log of the one that was active";
        Err(CliError::new(what, "", advice).lasting())
    }

    /// Refuses paths of which one lies in another: its files would count twice.
    ///
    /// # Errors
    /// Which two.
    pub fn check_paths(&self) -> Result<(), CliError> {
        for (at, path) in self.paths.iter().enumerate() {
            let mut others = self
                .paths
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at);
            if let Some((_, dir)) = others.find(|(_, dir)| lies_in(path, dir)) {
                let what = format!("{path} lies in {dir}");
                return Err(CliError::new(what, "", "give only one of them"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ColdWatchArgs,
    }

    #[test]
    fn each_namenode_needs_its_audit_log() {
        let of = |logs: &[&str]| {
            let usual = ["watch", "--older-than=1d", "--state=s"];
            let line = Line::try_parse_from([&usual[..], logs].concat());
            line.map(|line| line.args).expect("read")
        };
        assert!(of(&[]).check_logs(2).is_ok());
        let both = ["--audit-log=a", "--audit-log=b"];
        assert!(of(&both).check_logs(2).is_ok() && of(&both[1..]).check_logs(1).is_ok());
        let few = of(&both[1..]).check_logs(2).expect_err("one is missing");
        assert!(
            few.is_lasting() && few.to_string().contains("2 NameNodes"),
            "{few}"
        );
    }
}
