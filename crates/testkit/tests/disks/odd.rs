//! One directory of several that cannot be used, at a start: a failed volume of a running node
//! where that is tolerated, a node that does not start where it is not. And a disk that is not
//! mounted.

use crate::BLOCK;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::mounts::{TestMount, run};
use hayloft_testkit::node::{Kind, VirtualSite};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, TestkitError, VolumeSpec};
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE: &str = "/odd";
const BYTES: u64 = 18 * BLOCK;
const TOLERATED: &str = "dfs.datanode.failed.volumes.tolerated";
/// A node of its own, and a process of two virtual nodes, with three directories each.
const PLAIN: usize = 0;
const VIRTUAL: usize = 1;
const POOL_IS_A_FILE: &str = "its pool's directory a file";

/// What is done to a directory; what the node says, or nothing when it mends it.
struct Row {
    name: &'static str,
    spoil: fn(&Path) -> std::io::Result<()>,
    says: Option<&'static str>,
}

fn edit(path: &Path, change: impl FnOnce(&str) -> String) -> std::io::Result<()> {
    let text = std::fs::read_to_string(path)?;
    std::fs::write(path, change(&text))
}

fn version(root: &Path) -> PathBuf {
    root.join("current/VERSION")
}

fn pool(root: &Path) -> std::io::Result<PathBuf> {
    for entry in std::fs::read_dir(root.join("current"))? {
        let path = entry?.path();
        if path.is_dir() {
            return Ok(path);
        }
    }
    Err(std::io::ErrorKind::NotFound.into())
}

const ROWS: &[Row] = &[
    Row {
        name: "VERSION empty",
        spoil: |root| edit(&version(root), |_| String::new()),
        says: Some("VERSION is empty"),
    },
    Row {
        name: "VERSION of its pool empty",
        spoil: |root| edit(&version(&pool(root)?), |_| String::new()),
        says: None,
    },
    Row {
        name: "of another node",
        spoil: |root| {
            edit(&version(root), |t| {
                t.replace("datanodeUuid=", "datanodeUuid=x")
            })
        },
        says: Some("datanodeUuid"),
    },
    Row {
        name: "of another cluster",
        spoil: |root| edit(&version(root), |t| t.replace("clusterID=", "clusterID=x")),
        says: Some("clusterID"),
    },
    Row {
        name: "of a later layout",
        spoil: |root| edit(&version(root), |t| t.replace("Version=-57", "Version=-58")),
        says: Some("layoutVersion is -58"),
    },
    Row {
        name: "a copy of another",
        spoil: |root| {
            let other = root.display().to_string().replace("data-0", "data-1");
            std::fs::remove_dir_all(root)?;
            let copied = run(Command::new("cp").args(["-a", &other]).arg(root));
            copied.map(drop).map_err(std::io::Error::other)
        },
        says: Some("one is a copy of the other"),
    },
    Row {
        name: POOL_IS_A_FILE,
        spoil: |root| {
            let pool = pool(root)?;
            std::fs::remove_dir_all(&pool)?;
            std::fs::write(pool, "")
        },
        says: Some("BP-"),
    },
];

pub struct OddLab {
    // Dropped first to last: the nodes end before their disk goes.
    fs: Driver,
    pub cluster: Cluster,
    disk: TestMount,
    base: tempfile::TempDir,
}

pub fn start() -> Result<OddLab> {
    let base = scratch("odd-directories-")?;
    let disk = TestMount::ext4(&base.path().join("image"), &base.path().join("disk"), 256)?;
    let at = |node: usize, n: usize| base.path().join(format!("node-{node}/data-{n}"));
    let volumes = |node| {
        (0..3)
            .map(|n| VolumeSpec::at(at(node, n)))
            .collect::<Vec<_>>()
    };
    let site = |(name, n)| VirtualSite::free(name, Ipv4Addr::new(127, 0, 9, n));
    let sites = [("a", 1), ("b", 2)].into_iter().map(site);
    let mut plain = volumes(PLAIN);
    plain.push(VolumeSpec::at(disk.path().join("data")));
    let plain = NodeSpec::new(Kind::Hayloft).volumes(plain);
    let sites = sites.collect::<Result<_>>()?;
    let virtual_nodes = NodeSpec::new(Kind::Hayloft).volumes(volumes(VIRTUAL));
    let cluster = Cluster::builder("odd-directories")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 2)
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        )
        .node(plain.conf(TOLERATED, 1))
        .node(virtual_nodes.virtual_nodes(sites).conf(TOLERATED, 1))
        .start()?;
    let fs = cluster.driver()?;
    fs.put(FILE, BYTES, 3, json!({}))?;
    Ok(OddLab {
        fs,
        cluster,
        disk,
        base,
    })
}

impl OddLab {
    fn data(&self, node: usize) -> PathBuf {
        self.base.path().join(format!("node-{node}/data-0"))
    }

    /// Waits until the NameNode knows of so many failed volumes, all nodes are live, and the file
    /// is whole.
    fn wait_failed(&mut self, failed: u64) -> Result<()> {
        self.cluster.wait_all_live()?;
        let namenode = self.cluster.namenode(0);
        namenode.wait_bean("failed volumes", "FSNamesystemState", seconds(60), |bean| {
            let seen = bean["VolumeFailuresTotal"].as_u64();
            (
                seen == Some(failed),
                format!("{seen:?} instead of {failed}"),
            )
        })?;
        self.fs.check(FILE, BYTES, 3)
    }

    fn log(&mut self, node: usize) -> Result<String> {
        let log = self.cluster.node(node).log();
        std::fs::read_to_string(&log).map_err(TestkitError::file("reading", log))
    }

    /// Each row in a directory of `node`, `part` of it: with one failed volume tolerated, and none.
    fn rows(&mut self, node: usize, part: &str) -> Result<()> {
        let root = self.data(node);
        let kept = root.with_extension("kept");
        let spoiled = root.join(part);
        let io = |e| TestkitError::file("spoiling", &spoiled)(e);
        for row in ROWS {
            println!("disks: {} in {}", row.name, spoiled.display());
            self.cluster.node(node).stop()?;
            run(Command::new("cp").arg("-a").arg(&root).arg(&kept))?;
            (row.spoil)(&spoiled).map_err(io)?;
            self.refused_without_tolerance(node, row)?;
            self.cluster.start_node(node)?;
            self.wait_failed(u64::from(row.says.is_some()))?;
            self.cluster.node(node).stop()?;
            std::fs::remove_dir_all(&root).map_err(io)?;
            std::fs::rename(&kept, &root).map_err(io)?;
            self.cluster.start_node(node)?;
            self.wait_failed(0)?;
        }
        passed().map(drop)
    }

    /// By default the node does not start, and its last words name the directory and what is wrong.
    fn refused_without_tolerance(&mut self, node: usize, row: &Row) -> Result<()> {
        let Some(says) = row.says else {
            return Ok(());
        };
        let before = self.log(node)?.len();
        self.cluster.node(node).conf_mut().set(TOLERATED, 0);
        self.cluster.start_node_without_waiting(node)?;
        // What is wrong with a pool is known when the nodes run: then one ends and the others stay.
        let one_ends = node == VIRTUAL && row.name == POOL_IS_A_FILE;
        let ended = match one_ends {
            true => self.virtual_node_ended(node, before)?,
            false => {
                let status = self.cluster.node(node).process()?.wait(seconds(60))?;
                self.cluster.node(node).wait_ended(seconds(10))?;
                !status.success()
            }
        };
        self.cluster.node(node).stop()?;
        self.cluster.node(node).conf_mut().set(TOLERATED, 1);
        let log = self.log(node)?;
        let said = log.get(before..).unwrap_or(&log);
        let line = |line: &str| line.contains("data-0") && line.contains(says);
        expect(ended && said.lines().any(line), || {
            format!("{}: {ended}: {said}", row.name)
        })
    }

    /// Waits until the log says behind `before` that a virtual node has ended.
    fn virtual_node_ended(&mut self, node: usize, before: usize) -> Result<bool> {
        wait::until("the end of a virtual node", seconds(60), || {
            let log = self.log(node)?;
            let said = log.get(before..).unwrap_or(&log);
            Ok(
                match said.contains("this virtual node has ended, the others go on") {
                    true => Seen::Done(true),
                    false => Seen::NotYet(said.lines().last().unwrap_or_default().to_owned()),
                },
            )
        })
    }

    pub fn plain_rows(&mut self) -> Result<Outcome> {
        self.rows(PLAIN, "")?;
        passed()
    }

    pub fn virtual_rows(&mut self) -> Result<Outcome> {
        self.rows(VIRTUAL, "b")?;
        passed()
    }

    /// A disk that is not mounted is a failed volume: nothing is made on the disk above. With the
    /// disk, or an empty one, the directory is in use again.
    pub fn not_mounted(&mut self) -> Result<Outcome> {
        let at = self.disk.path().to_owned();
        let image = self.base.path().join("image");
        let umount = || run(Command::new("umount").arg(&at)).map(drop);
        // The directory itself is made before each start, as its owner would.
        let data = at.join("data");
        let is_empty = || std::fs::read_dir(&data).is_ok_and(|mut all| all.next().is_none());
        self.cluster.node(PLAIN).stop()?;
        umount()?;
        self.cluster.start_node(PLAIN)?;
        self.wait_failed(1)?;
        expect(is_empty(), || {
            format!("something was made in {}", at.display())
        })?;
        let said = self.log(PLAIN)?;
        expect(said.contains("nothing is mounted on"), || said.clone())?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&at))?;
        self.cluster.node(PLAIN).stop()?;
        self.cluster.start_node(PLAIN)?;
        self.wait_failed(0)?;
        // An empty file system is a disk that was replaced.
        self.cluster.node(PLAIN).stop()?;
        umount()?;
        let empty = TestMount::tmpfs(&at, 64)?;
        self.cluster.start_node(PLAIN)?;
        self.wait_failed(0)?;
        let formatted = version(&at.join("data")).is_file();
        expect_eq("formatted", formatted, true)?;
        self.cluster.node(PLAIN).stop()?;
        drop(empty);
        self.cluster.start_node(PLAIN)?;
        self.wait_failed(1)?;
        expect(is_empty(), || {
            format!("something was made in {}", at.display())
        })?;
        passed()
    }
}
