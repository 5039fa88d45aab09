//! `hayloft swap` on hosts that are not as it needs them, and one whose `swap change` is killed: a
//! node is stopped only for one that starts, and a kill leaves one of the two, which is told.

use crate::BLOCK;
use crate::hadoop_shell::put_program;
use crate::shell_host::ShellHost;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::mounts::{TestMount, may_mount};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Stands before `hdfs`. At the moment that the file `kill-at` names it kills `swap change`, which
/// has `timeout` run it: the first one of a swap.
const KILLER: &str = r#"#!/bin/bash
dir=${0%/*}
at() {
    [ "$(cat "$dir/kill-at" 2>/dev/null)" = "$1" ] || return
    rm "$dir/kill-at"
    read -r _ _ _ change _ <"/proc/$PPID/stat"
    kill -KILL "$change"
}
if at "before $4"; then exit 1; fi
"$dir/hdfs-itself" "$@"
code=$?
at "after $4"
exit "$code"
"#;

/// MiB of the file system that is filled up: blocks of the cluster have to fit in.
const SMALL_MIB: u32 = 128;

/// Where it is killed, the node that runs in the end, what it is called, and the swap that follows.
const KILLED: [(&str, &str, &str, &str); 5] = [
    ("before stop", "apache", "Apache's DataNode", "in"),
    ("after stop", "apache", "Apache's DataNode", "in"),
    ("after stop", "apache", "Apache's DataNode", "out"),
    ("before start", "hayloft", "Hayloft", "out"),
    ("after start", "hayloft", "Hayloft", "in"),
];

/// What is changed in VERSION of a directory, and what is said of it.
const OTHERS: [(&str, &str, &str); 3] = [
    ("clusterID=", "clusterID=CID-other-", "clusterID"),
    ("layoutVersion=-57", "layoutVersion=-58", "is -58"),
    ("storageID=", "storage=", "storageID is missing"),
];

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(BadInput::start, BadInput::end);
    on.case("a_host_that_is_half_configured", |lab| lab.half());
    on.case("a_wrong_user_and_scripts_of_others", |lab| lab.others_may());
    on.case("a_directory_of_another_cluster", |lab| lab.others());
    on.case("no_room_for_the_profile", |lab| lab.full());
    on.case("a_data_directory_that_is_full", |lab| lab.full_volume());
    on.case("a_change_that_is_killed", |lab| lab.killed());
}

/// Waits until `swap status` tells of a live node.
fn await_live(shell: &ShellHost) -> Result<()> {
    wait::until("a node of the host", seconds(60), || {
        let (code, report) = shell.swap(&["status"], &[])?;
        Ok(match code {
            0 => Seen::Done(()),
            _ => Seen::NotYet(report.to_string()),
        })
    })
}

struct BadInput {
    cluster: Cluster,
    fs: Driver,
    shell: ShellHost,
    /// The second directory of the node, where this user mounts one.
    small: Option<TestMount>,
    _dir: tempfile::TempDir,
}

impl BadInput {
    fn start() -> Result<Self> {
        let dir = hayloft_testkit::hadoop::scratch("small-")?;
        let small = match may_mount() {
            true => Some(TestMount::tmpfs(&dir.path().join("data"), SMALL_MIB)?),
            false => None,
        };
        let second = small.as_ref().map(|of| VolumeSpec::at(of.path()));
        let two = vec![VolumeSpec::default(), second.unwrap_or_default()];
        let mut cluster = Cluster::builder("bad-input")
            .node(NodeSpec::new(Kind::Apache).volumes(two))
            .conf("dfs.replication", 1)
            .conf("dfs.blocksize", BLOCK)
            .start()?;
        let fs = cluster.driver()?;
        let shell = ShellHost::of(&mut cluster, 0)?;
        shell.daemon("start")?;
        await_live(&shell)?;
        fs.put("/before", 30 * BLOCK, 1, json!({}))?;
        Ok(Self {
            cluster,
            fs,
            shell,
            small,
            _dir: dir,
        })
    }

    fn end(self, failed: bool) {
        self.shell.end(failed);
        self.cluster.conclude(failed);
    }

    /// A swap that ends before it has a report says why, with exit code 2. The script has the
    /// program as $0, the configuration, Hadoop's home and the cluster's directory.
    fn refused(&self, script: &str, why: &str) -> Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(hayloft_binary()?);
        shell.args([&self.shell.conf, &self.shell.home]);
        let ran = shell.arg(self.cluster.dir()).output();
        let ran = ran.map_err(TestkitError::file("running", "sh"))?;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let right = ran.status.code() == Some(2) && said.contains(why);
        expect(right, || format!("no {why:?}: {:?}: {said}", ran.status))
    }

    /// Apache's node is still the same process where `swap in` refuses.
    fn stays(&self, why: &str) -> Result<()> {
        let (_, before) = self.shell.swap(&["status"], &[])?;
        let (code, report) = self.shell.swap(&["in"], &[])?;
        ShellHost::runs(&report, "apache", "apache")?;
        expect_eq("process", &report["runs"]["pid"], &before["runs"]["pid"])?;
        let said = report["steps"].to_string();
        expect(code == 1 && said.contains(why), || {
            format!("no {why:?}: {report}")
        })
    }

    fn half(&mut self) -> Result<Outcome> {
        self.refused("\"$0\" swap in --conf /none", "/none")?;
        let home = "export HADOOP_HOME=/none; unset HADOOP_CONF_DIR; \"$0\" swap in";
        if !Path::new("/etc/hadoop/conf/hdfs-site.xml").is_file() {
            self.refused(home, "no configuration")?;
        }
        self.refused(&format!("{home} --conf \"$1\""), "no hdfs found")?;
        let gone = self.cluster.dir().join("not-mounted");
        self.cluster.node(0).add_volume(None, &gone);
        self.cluster.rewrite_node_conf(0)?;
        let stays = self.stays("not-mounted");
        self.cluster.node(0).remove_volume(&gone);
        self.cluster.rewrite_node_conf(0)?;
        stays?;
        expect(!gone.exists(), || "it was made".into())?;
        passed()
    }

    fn others_may(&mut self) -> Result<Outcome> {
        if !may_mount() {
            return Ok(Outcome::Skipped("only root becomes another user".into()));
        }
        let swap = "\"$0\" swap status --conf \"$1\" --hadoop-home \"$2\"";
        let script = format!("chmod a+rx \"$3\"; runuser -u daemon -- {swap}");
        self.refused(&script, "this user may not stop and start the node")?;
        let env = self.shell.conf.join("hadoop-env.sh");
        let mode = |mode| {
            let set = fs::set_permissions(&env, fs::Permissions::from_mode(mode));
            set.map_err(TestkitError::file("changing", &env))
        };
        mode(0o666)?;
        let stays = self.stays("others than root may change");
        mode(0o644)?;
        stays?;
        passed()
    }

    fn others(&mut self) -> Result<Outcome> {
        let volume = self.cluster.node(0).volumes().next();
        let version = volume.map(|of| of.join("current/VERSION"));
        let version = version.unwrap_or_default();
        let was = fs::read_to_string(&version).map_err(TestkitError::file("reading", &version))?;
        let write =
            |text: &str| fs::write(&version, text).map_err(TestkitError::file("w", &version));
        for (from, to, why) in OTHERS {
            expect(was.contains(from), || format!("no {from}: {was}"))?;
            write(&was.replace(from, to))?;
            let stays = self.stays(why);
            write(&was)?;
            stays?;
        }
        passed()
    }

    /// The file system of the configuration is full: Apache's node comes back.
    fn full(&mut self) -> Result<Outcome> {
        if !may_mount() {
            return Ok(Outcome::Skipped("only root mounts a file system".into()));
        }
        let mount = TestMount::tmpfs(&self.shell.conf.join("shellprofile.d"), 1)?;
        mount.fill()?;
        let (code, report) = self.shell.swap(&["in"], &[])?;
        drop(mount);
        ShellHost::runs(&report, "apache", "apache")?;
        let said = report["steps"].to_string();
        let right = said.contains("No space left") && said.contains("DataNode was started");
        expect(code == 1 && right, || report.to_string())?;
        await_live(&self.shell)?;
        passed()
    }

    /// Neither node is stopped where the other would find no room for what it writes at its start.
    fn full_volume(&mut self) -> Result<Outcome> {
        let Some(small) = &self.small else {
            return Ok(Outcome::Skipped("only root mounts a file system".into()));
        };
        let why = format!("{} is full: free 16 MiB", small.path().display());
        let filler = small.fill_but(8 << 20)?;
        let almost = self.stays(&why);
        // To the last byte.
        let fully = small.fill().and_then(|_| self.stays(&why));
        fs::remove_file(&filler).map_err(TestkitError::file("removing", &filler))?;
        almost.and(fully)?;
        self.fs.check("/before", 30 * BLOCK, 1)?;
        self.swaps("in")?;
        let filler = small.fill_but(8 << 20)?;
        let (code, report) = self.shell.swap(&["out"], &[])?;
        fs::remove_file(&filler).map_err(TestkitError::file("removing", &filler))?;
        let told = report["steps"].to_string().contains(&why);
        expect(code == 1 && told, || report.to_string())?;
        ShellHost::runs(&report, "hayloft", "hayloft")?;
        self.swaps("out")?;
        passed()
    }

    fn killed(&mut self) -> Result<Outcome> {
        let bin = self.shell.home.join("bin");
        let (hdfs, itself) = (bin.join("hdfs"), bin.join("hdfs-itself"));
        fs::rename(&hdfs, &itself).map_err(TestkitError::file("renaming", &hdfs))?;
        put_program(&hdfs, KILLER)?;
        for (at, runs, name, follows) in KILLED {
            let file = bin.join("kill-at");
            fs::write(&file, at).map_err(TestkitError::file("writing", &file))?;
            let (code, report) = self.shell.swap(&["in"], &[])?;
            ShellHost::runs(&report, runs, runs)?;
            let said = report["steps"].to_string();
            let told = said.contains(&format!("(SIGKILL); {name} was started"));
            expect(told && code == 1 && !file.exists(), || {
                format!("killed {at}: {report}")
            })?;
            await_live(&self.shell)?;
            self.swaps(follows)?;
            self.swaps("out")?;
        }
        passed()
    }

    /// Blocks are missing until the node has reported them. An installation that is named counts,
    /// and not the one of the environment.
    fn swaps(&self, way: &str) -> Result<()> {
        let other = [
            ("HADOOP_HOME", "/none"),
            ("HADOOP_LIBEXEC_DIR", "/none/libexec"),
        ];
        let (code, report) = self.shell.swap(&[way, "--although-missing"], &other)?;
        let node = if way == "in" { "hayloft" } else { "apache" };
        expect(code == 0, || report.to_string())?;
        ShellHost::runs(&report, node, node)?;
        self.fs.check("/before", 30 * BLOCK, 1)
    }
}
