//! A host on which systemd runs: process 1 of namespaces of its own, over the same Debian. Bigtop's
//! way of starting a DataNode, `hayloft swap` through it, and the unit of the package.

use crate::host::DebianHost;
use crate::{Lab, hadoop_shell};
use hayloft_testkit::error::Result;
use hayloft_testkit::process::{Process, Spawn};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{Seen, until};
use hayloft_testkit::{Outcome, Suite, TestkitError};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A unit that starts and stops the node, and ends it, as Bigtop's does: nothing else of it counts.
const UNIT: &str = "[Service]
Type=forking
User=hdfs
Group=hdfs
Restart=no
KillMode=process
ExecStart=/usr/bin/hdfs --config /etc/hadoop/conf --daemon start datanode
ExecStop=/usr/bin/hdfs --config /etc/hadoop/conf --daemon stop datanode
";
const BIGTOPS: &str = "hadoop-hdfs-datanode";
const ANOTHERS: &str = "dn";
const OURS: &str = "hayloft-node";
/// For a JVM that starts on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(240);

/// Enters a control group, the first argument, and becomes process 1 of new namespaces. The
/// directories that the second lists, a line each, are seen below the root, the third. What is
/// the kernel's own stays as it is: the host's settings are read only.
const BOOT: &str = r#"
set -e
echo 0 >"$1/cgroup.procs"
exec unshare --mount --propagation private --pid --fork --kill-child --cgroup --uts --ipc \
    sh -c '
set -e
root=$2
mount --bind "$root" "$root"
printf "%s\n" "$1" | while read -r dir; do mount --rbind "$dir" "$root$dir"; done
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount --bind /sys "$root/sys"
mount -o remount,bind,ro "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    : >"$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
exec env -i container=hayloft PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$root" /lib/systemd/systemd --unit=multi-user.target
' sh "$2" "$3"
"#;

/// Makes the user of the units. The configuration, the first argument, gets its usual place; that
/// user comes to the cluster's directory, the second, and owns the volumes, the others.
pub const OF_HDFS: &str = r#"
set -e
useradd --system hdfs
mkdir -p /etc/hadoop
ln -s "$1" /etc/hadoop/conf
dir=$2
shift 2
chmod 755 / /root
chmod 711 "$dir"
for volume; do
    at=$volume
    while [ "$at" != "$dir" ]; do chmod a+x "$at"; at=${at%/*}; done
done
chown -R hdfs: "$dir"/host-* "$@"
"#;

/// Adds the cases; `missing` is why there is no Debian with systemd in it.
pub fn cases(suite: &mut Suite, missing: Option<String>) {
    let why = missing.or_else(|| match control_groups() {
        Some(_) => None,
        None => Some("no hierarchy of control groups (cgroup2) is mounted here".into()),
    });
    if let Some(why) = why {
        suite.case("under_systemd", move || Ok(Outcome::Skipped(why)));
        return;
    }
    let mut on = suite.group(UnderSystemd::start, |of, failed| of.lab.end(failed));
    on.case("systemd_boots", |of| of.boots());
    on.case("systemd_finds_no_fault_with_our_unit", |of| of.sound());
    on.case("systemd_starts_apaches_node", |of| of.apache_writes());
    on.case("systemd_swap_in", |of| of.swap_in());
    on.case("systemd_stops_and_starts_it", |of| of.stopped());
    on.case("systemd_sees_a_killed_node_fail", |of| of.killed());
    on.case("systemd_swap_out", |of| of.swap_out());
    on.case("systemd_unit_of_another_name", |of| of.another_name());
    on.case("systemd_runs_our_unit", |of| of.own_unit());
    on.case("systemd_starts_a_killed_node_again", |of| of.own_killed());
    on.case("systemd_swaps_no_unit_of_ours", |of| of.own_swap());
}

/// This process's control group of version 2.
fn control_groups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut fields = mounts.lines().map(|line| line.split(' '));
    let at = fields.find_map(|mut of| {
        let (_, at, kind) = (of.next()?, of.next()?, of.next()?);
        (kind == "cgroup2").then(|| at.to_owned())
    })?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(&at).join(own))
}

/// A systemd that runs; it and all that it started end with this.
pub struct Systemd {
    /// `unshare`, its parent.
    process: Process,
    pid: String,
    group: PathBuf,
}

impl Systemd {
    /// Boots the Debian in `root`.
    pub fn boot(root: &Path, shared: &[PathBuf], log: &Path) -> Result<Self> {
        let mark = format!("hayloft-packages-{}", std::process::id());
        let group = control_groups().unwrap_or_default().join(mark);
        fs::create_dir(&group).map_err(TestkitError::file("making", &group))?;
        let own_dev = Path::new("/dev");
        let shared = shared.iter().filter(|dir| *dir != own_dev);
        let shared: Vec<_> = shared.map(|dir| dir.display().to_string()).collect();
        let place = [&group, root].map(|of| of.display().to_string());
        let words = [
            "sh",
            "-c",
            BOOT,
            "sh",
            &place[0],
            &shared.join("\n"),
            &place[1],
        ];
        let argv = words.map(str::to_owned).to_vec();
        let process = Spawn::new("systemd", argv, log).start()?;
        let mut booted = Self {
            process,
            pid: String::new(),
            group,
        };
        booted.pid = until("systemd as process 1", seconds(60), || {
            booted.process.check_alive()?;
            let parent = booted.process.pid();
            let children = format!("/proc/{parent}/task/{parent}/children");
            let pid = fs::read_to_string(children).unwrap_or_default();
            let pid = pid.trim().to_owned();
            let is = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            Ok(match is.trim() {
                "systemd" => Seen::Done(pid),
                other => Seen::NotYet(other.to_owned()),
            })
        })?;
        Ok(booted)
    }

    /// A command that runs what follows beside it.
    pub fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid, "--mount", "--pid", "--cgroup"]);
        command.args(["--uts", "--ipc", "--root", "--wd", "--"]);
        command
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        // Process 1 takes all of its namespace with it.
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status();
        let _ = self.process.wait(seconds(20));
        remove_groups(&self.group);
    }
}

/// Control groups are removed from the leaves; what is in them has no other names.
fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|of| of.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

struct UnderSystemd {
    lab: Lab,
}

impl UnderSystemd {
    fn start() -> Result<Self> {
        let mut lab = crate::start_on("target/debian/systemd.tar")?;
        let host = &lab.host;
        let units = host.at("/etc/systemd/system");
        host.write(&units.join(format!("{BIGTOPS}.service")), UNIT)?;
        let hdfs = format!("exec {}/bin/hdfs \"$@\"\n", crate::host::HADOOP_HOME);
        hadoop_shell::put_program(&host.at("/usr/bin/hdfs"), &format!("#!/bin/sh\n{hdfs}"))?;
        let conf = host.conf.display().to_string();
        let volumes: Vec<_> = lab
            .cluster
            .nodes()
            .flat_map(|node| node.volumes())
            .collect();
        let of_hdfs = volumes.iter().map(|dir| dir.display().to_string());
        let dir = lab.cluster.dir().display().to_string();
        let mut words = ["sh", "-c", OF_HDFS, "sh"].map(str::to_owned).to_vec();
        words.extend([conf, dir]);
        words.extend(of_hdfs);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        host.run(&words)?;
        lab.host.boot(lab.cluster.dir())?;
        Ok(Self { lab })
    }

    fn host(&self) -> &DebianHost {
        &self.lab.host
    }

    fn systemctl(&self, words: &[&str]) -> Result<String> {
        let said = self.host().run(&[&["systemctl"], words].concat())?;
        Ok(said.trim().to_owned())
    }

    fn property(&self, unit: &str, name: &str) -> Result<String> {
        self.systemctl(&["show", "--property", name, "--value", unit])
    }

    /// The node is the unit's main process, of the user hdfs; gives its process id.
    fn is_of(&self, unit: &str, node: &str) -> Result<String> {
        self.host().wait_runs(Some(node), START_LIMIT)?;
        expect_eq(
            "state",
            self.property(unit, "ActiveState")?,
            "active".into(),
        )?;
        let (_, report) = self.host().swap(&["status"])?;
        let pid = self.property(unit, "MainPID")?;
        expect_eq(
            "main process",
            report["runs"]["pid"].to_string(),
            pid.clone(),
        )?;
        let user = self.host().run(&["ps", "-o", "user=", "-p", &pid])?;
        expect_eq("user", user.trim(), "hdfs")?;
        Ok(pid)
    }

    fn wait_state(&self, unit: &str, wanted: &str) -> Result<()> {
        until("the state of a unit", START_LIMIT, || {
            let state = self.property(unit, "ActiveState")?;
            Ok(if state == wanted {
                Seen::Done(())
            } else {
                Seen::NotYet(state)
            })
        })
    }

    fn kill(&self, pid: &str) -> Result<()> {
        self.host().run(&["kill", "-KILL", pid]).map(drop)
    }

    fn boots(&mut self) -> Result<Outcome> {
        until("systemd", seconds(120), || {
            let state = "systemctl is-system-running || systemctl --failed --no-pager || :";
            let said = self.host().run(&["sh", "-c", state])?;
            Ok(match said.trim() {
                "running" => Seen::Done(()),
                other => Seen::NotYet(other.to_owned()),
            })
        })?;
        expect_eq(
            "process 1",
            self.host().run(&["cat", "/proc/1/comm"])?.trim(),
            "systemd",
        )?;
        passed()
    }

    /// systemd itself finds no fault with the unit of the package.
    fn sound(&mut self) -> Result<Outcome> {
        let verify = "systemd-analyze verify --man=no \"$1\" 2>&1";
        let unit = format!("/usr/lib/systemd/system/{OURS}.service");
        let said = self.host().run(&["sh", "-c", verify, "sh", &unit])?;
        let ours: Vec<_> = said.lines().filter(|of| of.contains(OURS)).collect();
        expect(ours.is_empty(), || said.clone())?;
        passed()
    }

    fn apache_writes(&mut self) -> Result<Outcome> {
        self.systemctl(&["start", BIGTOPS])?;
        self.is_of(BIGTOPS, "apache")?;
        self.lab.wait_live()?;
        self.lab.put("/by-apache", 1)?;
        self.lab.check(&[("/by-apache", 1)])?;
        passed()
    }

    fn swap_in(&mut self) -> Result<Outcome> {
        let (code, report) = self.host().swap(&["in", "--dry-run"])?;
        expect_eq("exit code", code, 0)?;
        for action in ["stop", "start"] {
            let part = format!("systemctl {action} {BIGTOPS}");
            let would = report["steps"].to_string();
            expect(would.contains(&part), || format!("no {part:?} in {would}"))?;
        }
        let (code, report) = self.host().swap(&["in"])?;
        expect(code == 0, || report.to_string())?;
        expect_eq("blocks", &report["blocks_after"], &report["blocks_before"])?;
        self.is_of(BIGTOPS, "hayloft")?;
        self.lab.check(&[("/by-apache", 1)])?;
        self.lab.put("/by-ours", 2)?;
        passed()
    }

    fn stopped(&mut self) -> Result<Outcome> {
        let before = self.is_of(BIGTOPS, "hayloft")?;
        self.systemctl(&["stop", BIGTOPS])?;
        self.wait_state(BIGTOPS, "inactive")?;
        let (code, report) = self.host().swap(&["status"])?;
        expect(code == 3, || report.to_string())?;
        self.systemctl(&["start", BIGTOPS])?;
        let after = self.is_of(BIGTOPS, "hayloft")?;
        expect(before != after, || format!("{before} was never stopped"))?;
        self.systemctl(&["restart", BIGTOPS])?;
        let again = self.is_of(BIGTOPS, "hayloft")?;
        expect(after != again, || format!("{after} was never stopped"))?;
        self.lab.wait_live()?;
        self.lab.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
        passed()
    }

    /// That unit starts nothing again by itself: it says that it failed.
    fn killed(&mut self) -> Result<Outcome> {
        let pid = self.is_of(BIGTOPS, "hayloft")?;
        self.kill(&pid)?;
        self.wait_state(BIGTOPS, "failed")?;
        self.systemctl(&["restart", BIGTOPS])?;
        self.is_of(BIGTOPS, "hayloft")?;
        self.lab.wait_live()?;
        self.lab.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
        passed()
    }

    fn swap_out(&mut self) -> Result<Outcome> {
        let (code, report) = self.host().swap(&["out"])?;
        expect(code == 0, || report.to_string())?;
        self.is_of(BIGTOPS, "apache")?;
        self.lab.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
        passed()
    }

    /// The unit whose node runs is found, whatever its name.
    fn another_name(&mut self) -> Result<Outcome> {
        let unit = format!("/etc/systemd/system/{ANOTHERS}.service");
        self.host().write(&self.host().at(&unit), UNIT)?;
        self.systemctl(&["daemon-reload"])?;
        self.systemctl(&["stop", BIGTOPS])?;
        self.systemctl(&["start", ANOTHERS])?;
        self.is_of(ANOTHERS, "apache")?;
        self.lab.wait_live()?;
        let (code, report) = self.host().swap(&["in", "--dry-run"])?;
        expect_eq("exit code", code, 0)?;
        let would = report["steps"].to_string();
        let part = format!("systemctl stop {ANOTHERS}");
        expect(would.contains(&part), || format!("no {part:?} in {would}"))?;
        self.systemctl(&["stop", ANOTHERS])?;
        self.systemctl(&["start", BIGTOPS])?;
        self.is_of(BIGTOPS, "apache")?;
        passed()
    }

    /// It takes the place of the other unit, whose node is stopped first.
    fn own_unit(&mut self) -> Result<Outcome> {
        self.systemctl(&["start", OURS])?;
        // systemd takes the exit code of a JVM that it stopped, 143, for a failure.
        self.wait_state(BIGTOPS, "failed")?;
        let before = self.is_of(OURS, "hayloft")?;
        self.lab.wait_live()?;
        self.lab.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
        self.systemctl(&["restart", OURS])?;
        let after = self.is_of(OURS, "hayloft")?;
        expect(before != after, || format!("{before} was never stopped"))?;
        self.systemctl(&["stop", OURS])?;
        self.wait_state(OURS, "inactive")?;
        expect_eq("its end", self.property(OURS, "Result")?, "success".into())?;
        passed()
    }

    /// systemd starts it again.
    fn own_killed(&mut self) -> Result<Outcome> {
        self.systemctl(&["start", OURS])?;
        let pid = self.is_of(OURS, "hayloft")?;
        self.kill(&pid)?;
        until("another process of the unit", START_LIMIT, || {
            let restarts = self.property(OURS, "NRestarts")?;
            Ok(match &*restarts {
                "0" => Seen::NotYet(restarts),
                _ => Seen::Done(()),
            })
        })?;
        let again = self.is_of(OURS, "hayloft")?;
        expect(pid != again, || format!("{pid} was not killed"))?;
        self.lab.wait_live()?;
        self.lab.check(&[("/by-apache", 1), ("/by-ours", 2)])?;
        passed()
    }

    /// Hadoop's shell has no part in it, so a profile there would change nothing.
    fn own_swap(&mut self) -> Result<Outcome> {
        let before = self.is_of(OURS, "hayloft")?;
        let mut swap = self.host().swap_command(&["out", "--unit", OURS]);
        let ran = swap
            .output()
            .map_err(TestkitError::file("running", "hayloft swap"))?;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        expect_eq("exit code", ran.status.code(), Some(2))?;
        expect(
            said.contains("does not start its node by Hadoop's hdfs"),
            || said.clone(),
        )?;
        expect_eq("the process", self.is_of(OURS, "hayloft")?, before)?;
        passed()
    }
}
