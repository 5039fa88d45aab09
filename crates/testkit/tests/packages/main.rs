//! The packages, as a fresh Debian takes them, and `hayloft swap` there: data that Apache's node
//! wrote is read from ours and the reverse, and a host is not left without a node. And the image
//! that is made of them; [`stackable`]: Hadoop's images, changed to have ours in them.
//! [`services`], [`bad_input`], [`many`]: `hayloft swap` without them, on this host.
//! [`step_back`]: an earlier package, a later one and back.
//!
//! Hadoop's shell is that of an installation that `HAYLOFT_HADOOP_SHELL` names, else `hdfs.sh`
//! beside this file, which keeps to its contract.

mod bad_input;
mod files;
mod hadoop_shell;
mod host;
mod image;
mod many;
mod services;
mod shell_host;
mod stackable;
mod step_back;
mod systemd;

use files::PackedFile;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, mounts};
use host::{DebianHost, Packages};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Calls what the profile, the first argument, has for a start; `hdfs --workers` sets the second.
const CALL: &str = "hadoop_deprecate_envvar() { :; }; hadoop_error() { echo \"$*\" >&2; }
HAYLOFT=/opt/none HADOOP_DAEMON_MODE=start HADOOP_WORKER_MODE=$2
. \"$1\"; hdfs_subcommand_datanode";
/// When `swap in` is killed, in tenths of a second after it began.
const KILLED_AT: [u64; 5] = [1, 5, 15, 40, 80];

fn main() -> ExitCode {
    Suite::run("packages", |suite| {
        files::cases(suite);
        let no_image = missing(&["--image"]);
        image::cases(suite, no_image.clone());
        stackable::cases(suite, no_image.or_else(|| missing(&[])));
        services::cases(suite);
        bad_input::cases(suite);
        many::cases(suite);
        if let Some(why) = missing(&[]) {
            suite.case("a_fresh_debian", move || Ok(Outcome::Skipped(why)));
            return Ok(());
        }
        let mut on = suite.group(|| start_on("target/debian/root.tar"), Lab::end);
        on.case("files_of_the_package", |lab| lab.files());
        on.case("apache_writes", |lab| lab.apache_writes());
        on.case("a_dry_run_changes_nothing", |lab| lab.dry_run());
        on.case("no_swap_in_safe_mode", |lab| lab.safe_mode());
        on.case("swap_in", |lab| lab.swap_in());
        on.case("hadoops_shell_means_ours", |lab| lab.under_the_profile());
        on.case("a_stop_takes_its_time", |lab| lab.slow_stop());
        on.case("a_program_that_is_gone", |lab| lab.gone());
        on.case("swap_out", |lab| lab.swap_out());
        on.case("one_that_does_not_start", |lab| {
            lab.goes_back("HAYLOFT=/bin/false", false)
        });
        on.case("one_that_never_serves", |lab| {
            lab.goes_back("HAYLOFT=/opt/sleeper", true)
        });
        on.case("a_swap_that_is_killed", |lab| lab.killed());
        step_back::cases(suite);
        systemd::cases(suite, missing(&["--systemd"]));
        Ok(())
    })
}

/// What a small Debian of this kind needs and is not here.
fn missing(kind: &[&str]) -> Option<String> {
    if !mounts::may_mount() {
        return Some("only root makes a Debian to change into".into());
    }
    let mut command = Command::new(repository_root().join("scripts/fetch-debian-root"));
    let made = mounts::run(command.args(kind));
    made.err().map(|error| error.to_string())
}

/// A cluster whose only node is on a host made of this Debian, and does not run yet.
fn start_on(debian: &str) -> Result<Lab> {
    start_with(debian, &Packages::ready()?.file(".deb")?)
}

/// The same with this package.
fn start_with(debian: &str, deb: &Path) -> Result<Lab> {
    let mut cluster = Cluster::builder("packages")
        .nodes(1, Kind::Apache)
        .conf("dfs.replication", 1)
        .conf("dfs.blocksize", BLOCK)
        // As most clusters have it: the user of DataNodes is a superuser.
        .conf(
            "hadoop.user.group.static.mapping.overrides",
            "hdfs=supergroup;root=supergroup",
        )
        .start()?;
    let fs = cluster.driver()?;
    // From here on Hadoop's shell starts it, on the host.
    cluster.node(0).stop()?;
    let conf = cluster.node(0).conf_dir();
    let tar = repository_root().join(debian);
    let host = DebianHost::make(&tar, deb, &cluster, &conf)?;
    Ok(Lab { cluster, fs, host })
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    host: DebianHost,
}

impl Lab {
    fn end(self, failed: bool) {
        if failed {
            let entries = fs::read_dir(&self.host.logs)
                .into_iter()
                .flatten()
                .flatten();
            for log in entries {
                let text = fs::read_to_string(log.path()).unwrap_or_default();
                let from = text.len().saturating_sub(4000);
                println!(
                    "{}:\n{}",
                    log.path().display(),
                    text.get(from..).unwrap_or(&text)
                );
            }
            let journal = "command -v journalctl >/dev/null && journalctl -n 60 --no-pager || :";
            println!(
                "{}",
                self.host.run(&["sh", "-c", journal]).unwrap_or_default()
            );
        }
        if let Err(error) = self.host.daemon("stop") {
            println!("the host's node was not stopped: {error}");
        }
        self.cluster.conclude(failed);
    }

    /// What the package brings belongs to root, who alone may write it.
    fn files(&mut self) -> Result<Outcome> {
        let said = self.host.run(&["hayloft", "--version"])?;
        expect(said.starts_with("hayloft "), || said.clone())?;
        let list = "dpkg --listfiles hayloft | xargs -d '\\n' stat -c '%A %U/%G %n'";
        let list = self.host.run(&["sh", "-c", list])?;
        let entries = list.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (mode, owners, path) = (words.next()?, words.next()?, words.next()?);
            let slash = if mode.starts_with('d') { "/" } else { "" };
            Some(PackedFile {
                path: format!("{path}{slash}"),
                owners: owners.to_owned(),
                mode: mode.to_owned(),
            })
        });
        let installed = entries.filter(|of| of.path != "/./");
        files::compare("the host", &installed.collect::<Vec<_>>())?;
        let needed = self.host.run(&["ldd", "/usr/bin/hayloft"])?;
        expect(!needed.contains("not found"), || needed.clone())?;
        let raw = "/usr/lib/hayloft/raw.so";
        let listed = self.host.run(&["hayloft", "engine", "list", raw])?;
        expect(listed.contains(raw), || listed.clone())?;
        passed()
    }

    /// Hadoop's shell started it, and not the cluster.
    fn wait_live(&mut self) -> Result<()> {
        self.cluster.namenode(0).wait_live(1, seconds(120))
    }

    fn put(&self, path: &str, seed: u64) -> Result<()> {
        self.fs
            .put(path, 30 * BLOCK + 777, seed, serde_json::json!({}))
    }

    fn check(&self, paths: &[(&str, u64)]) -> Result<()> {
        paths
            .iter()
            .try_for_each(|(path, seed)| self.fs.check(path, 30 * BLOCK + 777, *seed))
    }

    fn apache_writes(&mut self) -> Result<Outcome> {
        expect_eq("no node", self.host.daemon("status")?, 3)?;
        expect_eq("a start", self.host.daemon("start")?, 0)?;
        self.host.wait_runs(Some("apache"), seconds(60))?;
        self.wait_live()?;
        self.put("/by-apache", 1)?;
        self.check(&[("/by-apache", 1)])?;
        passed()
    }

    fn dry_run(&mut self) -> Result<Outcome> {
        let (code, report) = self.host.swap(&["in", "--dry-run"])?;
        expect_eq("exit code", code, 0)?;
        expect(report["runs"]["node"] == "apache", || report.to_string())?;
        expect(report["starts_next"] == "apache", || report.to_string())?;
        let would = report["steps"].to_string();
        for part in [
            "--daemon stop datanode",
            "--daemon start datanode",
            "hayloft.sh",
        ] {
            expect(would.contains(part), || format!("no {part:?} in {would}"))?;
        }
        expect(!self.host.conf.join("shellprofile.d").exists(), || {
            "a dry run wrote a profile".into()
        })?;
        passed()
    }

    fn safe_mode(&mut self) -> Result<Outcome> {
        self.fs.dfsadmin(&["-safemode", "enter"])?;
        let asked = self.host.swap(&["in"]);
        self.fs.dfsadmin(&["-safemode", "leave"])?;
        let (code, report) = asked?;
        expect_eq("exit code", code, 1)?;
        expect(report["steps"].to_string().contains("safe mode"), || {
            report.to_string()
        })?;
        expect(report["runs"]["node"] == "apache", || report.to_string())?;
        passed()
    }

    fn swap_in(&mut self) -> Result<Outcome> {
        let (code, report) = self.host.swap(&["in"])?;
        expect(code == 0, || report.to_string())?;
        expect(report["runs"]["node"] == "hayloft", || report.to_string())?;
        expect(report["starts_next"] == "hayloft", || report.to_string())?;
        expect_eq("blocks", &report["blocks_after"], &report["blocks_before"])?;
        expect(
            report["steps"].to_string().contains("20 old blocks"),
            || report.to_string(),
        )?;
        self.check(&[("/by-apache", 1)])?;
        self.put("/by-ours", 2)?;
        let (code, again) = self.host.swap(&["in"])?;
        expect_eq("a second one has nothing to do", code, 0)?;
        expect_eq("the process", &again["runs"], &report["runs"])?;
        passed()
    }

    /// Hadoop's commands, its pid file, and its names of logs.
    fn under_the_profile(&mut self) -> Result<Outcome> {
        expect_eq("status", self.host.daemon("status")?, 0)?;
        expect_eq("a second start", self.host.daemon("start")?, 1)?;
        expect_eq("a stop", self.host.daemon("stop")?, 0)?;
        expect_eq("status behind it", self.host.daemon("status")?, 3)?;
        let (code, report) = self.host.swap(&["status"])?;
        expect_eq("no node runs", code, 3)?;
        expect(report["runs"].is_null(), || report.to_string())?;
        expect_eq("a start", self.host.daemon("start")?, 0)?;
        self.host.wait_runs(Some("hayloft"), seconds(60))?;
        self.wait_live()?;
        let entries = fs::read_dir(&self.host.logs)
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.filter_map(|of| of.file_name().into_string().ok());
        let ends =
            |name: &String| name.starts_with("hadoop-root-datanode-") && name.ends_with(".log");
        let logs: Vec<String> = names.filter(ends).collect();
        let text = logs
            .iter()
            .map(|name| fs::read_to_string(self.host.logs.join(name)));
        let text: String = text.filter_map(std::result::Result::ok).collect();
        expect(text.contains("SIGTERM received"), || {
            format!("{logs:?}: {text}")
        })?;
        self.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
        passed()
    }

    /// The node of the profile is started again, by its own program.
    fn starts_again(&mut self) -> Result<()> {
        expect_eq("a start", self.host.daemon("start")?, 0)?;
        self.host.wait_runs(Some("hayloft"), seconds(60))?;
        self.wait_live()
    }

    /// Hadoop's shell kills what has not stopped in 5 s, and a node may take 10.
    fn slow_stop(&mut self) -> Result<Outcome> {
        let slow = "#!/bin/bash\ntrap 'sleep 8; : >/opt/stopped; exit' TERM\n\
                    while :; do sleep 0.2; done\n";
        hadoop_shell::put_program(&self.host.at("/opt/slow"), slow)?;
        expect_eq("a stop", self.host.daemon("stop")?, 0)?;
        let lines = "HAYLOFT=/opt/slow\nHADOOP_STOP_TIMEOUT=5";
        let was = self.host.add_to_environment(lines)?;
        let began = self.host.daemon("start");
        let ended = self.host.daemon("stop");
        self.host
            .write(&self.host.conf.join("hadoop-env.sh"), &was)?;
        expect_eq("a slow one", (began?, ended?), (0, 0))?;
        expect(self.host.at("/opt/stopped").exists(), || {
            "it was killed".into()
        })?;
        self.starts_again()?;
        passed()
    }

    /// A node whose program was removed is stopped, and none is started; others may be by `ssh`.
    fn gone(&mut self) -> Result<Outcome> {
        let was = self.host.add_to_environment("HAYLOFT=/opt/none")?;
        let codes = ["status", "stop", "start"].map(|action| self.host.daemon(action));
        self.host
            .write(&self.host.conf.join("hadoop-env.sh"), &was)?;
        let codes: Result<Vec<_>> = codes.into_iter().collect();
        expect_eq("status, stop and start", codes?, vec![0, 0, 1])?;
        let profile = self.host.conf.join("shellprofile.d/hayloft.sh");
        let profile = profile.display().to_string();
        let call = |workers| {
            self.host
                .run(&["bash", "-c", CALL, "bash", &profile, workers])
        };
        call("true")?;
        expect(call("false").is_err(), || "it goes on".into())?;
        self.starts_again()?;
        passed()
    }

    fn swap_out(&mut self) -> Result<Outcome> {
        let (code, report) = self.host.swap(&["out"])?;
        expect(code == 0, || report.to_string())?;
        expect(report["runs"]["node"] == "apache", || report.to_string())?;
        expect(report["starts_next"] == "apache", || report.to_string())?;
        expect(!self.host.conf.join("shellprofile.d").exists(), || {
            "the profile is left".into()
        })?;
        self.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
        passed()
    }

    /// `line` in hadoop-env.sh has another program in the place of the node.
    fn goes_back(&mut self, line: &str, sleeps: bool) -> Result<Outcome> {
        if sleeps {
            let sleeper = self.host.at("/opt/sleeper");
            self.host.write(&sleeper, "#!/bin/sh\nexec sleep 300\n")?;
            self.host.run(&["chmod", "755", "/opt/sleeper"])?;
        }
        let was = self.host.add_to_environment(line)?;
        let asked = self.host.swap(&["in", "--within", "15"]);
        self.host
            .write(&self.host.conf.join("hadoop-env.sh"), &was)?;
        let (code, report) = asked?;
        expect(code == 1, || report.to_string())?;
        expect(report["runs"]["node"] == "apache", || report.to_string())?;
        expect(report["starts_next"] == "apache", || report.to_string())?;
        expect(report["went_back"] == sleeps, || report.to_string())?;
        self.wait_live()?;
        self.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
        passed()
    }

    fn killed(&mut self) -> Result<Outcome> {
        for tenths in KILLED_AT {
            let mut swap = self.host.begin_swap(&["in"])?;
            std::thread::sleep(Duration::from_millis(tenths * 100));
            // It may have ended.
            let _ = swap.kill();
            let _ = swap.wait();
            let runs = self.host.wait_runs(None, seconds(90))?;
            println!("killed after {tenths} tenths of a second: {runs} runs");
            // What it began is at its end once the other node comes no more.
            std::thread::sleep(seconds(12));
            self.host.wait_runs(None, seconds(90))?;
            self.wait_live()?;
            self.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
            let (code, report) = self.host.swap(&["out"])?;
            expect(code == 0, || report.to_string())?;
        }
        passed()
    }
}
