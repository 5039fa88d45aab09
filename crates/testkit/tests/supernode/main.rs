//! Two processes of four virtual nodes each: eight DataNodes to a stock NameNode, two hosts to our
//! placement plug-in.

mod changes;
mod parity;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{class, hayloft_binary, placement_jar, scratch};
use hayloft_testkit::mounts::{TestMount, in_own_namespace};
use hayloft_testkit::node::{Kind, VirtualSite};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
const HOSTS: usize = 2;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Size of the disk of a host, MiB.
const DISK_MIB: u32 = 800;
/// Files of one block with a replica in each host.
const FILES: u64 = 40;

fn main() -> ExitCode {
    in_own_namespace();
    Suite::run("supernode", |suite| {
        if !suite.may_mount_disks("everything") {
            return Ok(());
        }
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("each_is_live_with_its_part_of_the_space", |lab| lab.live());
        on.case("writes_reads_and_appends_go_through_all", |lab| lab.files());
        on.case("no_block_is_twice_in_a_host", |lab| lab.hosts_apart());
        on.case("balancer_between_siblings_copies_nothing", |lab| {
            lab.balanced()
        });
        on.case("killed_and_started_again", |lab| lab.killed());
        on.case(
            "stock_nodes_start_on_the_same_directories_and_back",
            |lab| lab.swapped(),
        );
        on.case("a_new_directory_joins_each_of_them", |lab| {
            lab.reconfigured()
        });
        on.case("one_that_ends_leaves_the_others_alone", |lab| {
            lab.one_ends()
        });
        on.case("configurations_that_cannot_work_are_refused", |lab| {
            lab.refused()
        });
        let mut on = suite.group(
            || parity::start_of(Cluster::builder("supernode-parity")),
            |lab, failed| lab.cluster.conclude(failed),
        );
        on.case("one_that_ends_stops_no_parity_of_the_others", |lab| {
            lab.one_ends()
        });
        on.case("what_a_scrub_cannot_mend_is_told", |lab| lab.damaged());
        Ok(())
    })
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
    domains: PathBuf,
    // Dropped after the nodes have ended.
    _disks: Vec<TestMount>,
    _base: tempfile::TempDir,
}

/// The address of the `node`th virtual node of a host: each has one of its own.
fn address(host: usize, node: usize) -> Result<Ipv4Addr> {
    let part = |n: usize| u8::try_from(n + 1).map_err(|e| TestkitError::Talk(e.to_string()));
    Ok(Ipv4Addr::new(127, 0, part(host)?, part(node)?))
}

/// The host that a node is in, by `address:port`.
fn host_of(xfer: &str) -> Option<&str> {
    xfer.split('.').nth(2)
}

fn start() -> Result<Lab> {
    let base = scratch("supernode-")?;
    let domains = base.path().join("domains");
    let written = std::fs::write(&domains, "# to come\n");
    written.map_err(TestkitError::file("writing", &domains))?;
    let mut builder = Cluster::builder("supernode")
        .jar(placement_jar()?)
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", HOSTS)
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        )
        .conf("dfs.balancer.getBlocks.min-block-size", 1)
        .conf(
            "dfs.block.replicator.classname",
            "io.hayloft.placement.HayloftPlacementPolicy",
        )
        .conf("hayloft.placement.domains.file", domains.display())
        .conf("hayloft.placement.balance.interval", "200ms");
    let mut disks = Vec::new();
    for host in 0..HOSTS {
        let (disk, image) = (format!("disk-{host}"), format!("image-{host}"));
        let at = base.path().join(disk);
        disks.push(TestMount::ext4(&base.path().join(image), &at, DISK_MIB)?);
        let site = |(node, name): (usize, &&str)| VirtualSite::free(*name, address(host, node)?);
        let sites = NAMES.iter().enumerate().map(site);
        let spec = NodeSpec::new(Kind::Hayloft)
            .volumes(vec![VolumeSpec::at(at.join("data"))])
            .virtual_nodes(sites.collect::<Result<_>>()?);
        builder = builder.node(spec);
    }
    let cluster = builder.start()?;
    let fs = cluster.driver()?;
    Ok(Lab {
        fs,
        cluster,
        domains,
        _disks: disks,
        _base: base,
    })
}

/// Data files of finalized replicas below a directory, by block id.
fn replicas(dir: &Path, found: &mut BTreeMap<String, (PathBuf, u64)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if path.is_dir() {
            replicas(&path, found)?;
        } else if name.starts_with("blk_") && !name.ends_with(".meta") {
            found.insert(name, (path, entry.metadata()?.ino()));
        }
    }
    Ok(())
}

impl Lab {
    fn sites(&self, host: usize) -> Vec<VirtualSite> {
        let node = self.cluster.nodes().nth(host);
        node.map_or_else(Vec::new, |node| node.virtual_nodes().to_vec())
    }

    fn data_dir(&self, host: usize) -> PathBuf {
        let node = self.cluster.nodes().nth(host);
        let volume = node.and_then(|node| node.volumes().next());
        volume.map_or_else(PathBuf::new, Path::to_path_buf)
    }

    /// What the NameNode knows of its live nodes, by `address:port` of data transfer.
    fn live_nodes(&self) -> Result<BTreeMap<String, Value>> {
        let info = self.cluster.namenode_bean(0, "NameNodeInfo")?;
        let text = info["LiveNodes"].as_str().unwrap_or("{}");
        let nodes: BTreeMap<String, Value> = serde_json::from_str(text)
            .map_err(|e| TestkitError::Talk(format!("LiveNodes: {e}: {text}")))?;
        let by_address = |node: Value| Some((node["xferaddr"].as_str()?.to_owned(), node));
        Ok(nodes.into_values().filter_map(by_address).collect())
    }

    /// The NameNode sees each at its own address, and the capacities of a host add up to what its
    /// file system has for them.
    fn live(&mut self) -> Result<Outcome> {
        for host in 0..HOSTS {
            let sites = self.sites(host);
            let disk = rustix::fs::statvfs(self.data_dir(host));
            let disk = disk.map_err(|e| TestkitError::Talk(format!("statvfs: {e}")))?;
            let whole = disk.f_blocks * disk.f_frsize;
            wait::until("the parts of a host", seconds(30), || {
                let live = self.live_nodes()?;
                let of_site = |site: &VirtualSite| live.get(&site.xfer().to_string());
                let capacity = |node: &Value| node["capacity"].as_u64().unwrap_or(0);
                let parts: Vec<u64> = sites.iter().filter_map(of_site).map(capacity).collect();
                let sum: u64 = parts.iter().sum();
                let all = parts.len() == NAMES.len() && parts.iter().all(|part| *part > 0);
                Ok(
                    if all && (whole - 2 * NAMES.len() as u64..=whole).contains(&sum) {
                        Seen::Done(())
                    } else {
                        Seen::NotYet(format!("{parts:?} of {whole}: {:?}", live.keys()))
                    },
                )
            })?;
        }
        expect_eq("nodes", self.live_nodes()?.len(), HOSTS * NAMES.len())?;
        passed()
    }

    fn files(&mut self) -> Result<Outcome> {
        self.tell_domains()?;
        let mut holders = BTreeSet::new();
        for n in 0..FILES {
            let path = format!("/f{n}");
            self.fs.put(&path, BLOCK, n, json!({}))?;
            let blocks = self.fs.blocks(&path)?;
            holders.extend(blocks.into_iter().flat_map(|block| block.nodes));
        }
        expect_eq("nodes with replicas", holders.len(), HOSTS * NAMES.len())?;
        // As many appends: each meets both hosts.
        for n in 0..8 {
            let path = format!("/f{n}");
            self.fs.append("more", &path, n, json!({}))?;
            self.fs.write("more", BLOCK / 2)?;
            self.fs.handle("close", "more")?;
            self.fs.check(&path, BLOCK + BLOCK / 2, n)?;
        }
        self.check_files()?;
        passed()
    }

    fn check_files(&self) -> Result<()> {
        for n in 0..FILES {
            let more = if n < 8 { BLOCK / 2 } else { 0 };
            self.fs.check(&format!("/f{n}"), BLOCK + more, n)?;
        }
        Ok(())
    }

    /// Has the NameNode read what `hayloft super topology` says of each host.
    fn tell_domains(&self) -> Result<()> {
        let binary = hayloft_binary()?;
        let mut lines = String::new();
        for (host, node) in self.cluster.nodes().enumerate() {
            let mut command = Command::new(&binary);
            command.args([
                "super",
                "topology",
                "--host",
                &format!("box{host}"),
                "--conf",
            ]);
            let ran = command.arg(node.conf_dir()).output();
            let ran = ran.map_err(TestkitError::file("running", &binary))?;
            expect(ran.status.success(), || format!("{ran:?}"))?;
            lines += &String::from_utf8_lossy(&ran.stdout);
        }
        let count = HOSTS * NAMES.len();
        expect_eq("lines", lines.lines().count(), count)?;
        let written = std::fs::write(&self.domains, lines);
        written.map_err(TestkitError::file("writing", &self.domains))?;
        // The plug-in looks for changes every 200 ms.
        std::thread::sleep(seconds(2));
        Ok(())
    }

    fn hosts_apart(&mut self) -> Result<Outcome> {
        for n in 0..FILES {
            for block in self.fs.blocks(&format!("/f{n}"))? {
                let hosts: BTreeSet<_> = block.nodes.iter().map(|node| host_of(node)).collect();
                expect_eq("hosts of a block", hosts.len(), block.nodes.len())?;
            }
        }
        let binary = hayloft_binary()?;
        let mut command = Command::new(&binary);
        command.args(["placement", "check", "/", "--json", "--conf"]);
        let ran = command.arg(self.cluster.client_conf_dir()).output();
        let ran = ran.map_err(TestkitError::file("running", &binary))?;
        let answer: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        expect_eq("misplaced", answer["misplaced"].as_u64(), Some(0))?;
        passed()
    }

    /// Inodes of the data files of a host, by block.
    fn inodes(&self, host: usize) -> Result<BTreeMap<String, (PathBuf, u64)>> {
        let mut found = BTreeMap::new();
        for site in self.sites(host) {
            let dir = site.part_of(&self.data_dir(host)).join("current");
            replicas(&dir, &mut found).map_err(TestkitError::file("listing", &dir))?;
        }
        Ok(found)
    }

    /// The balancer spreads a file that lies on one virtual node over its siblings: afterwards the
    /// files are the same inodes in other directories.
    fn balanced(&mut self) -> Result<Outcome> {
        const BLOCKS: u64 = 60;
        self.fs
            .put("/lopsided", BLOCKS * BLOCK, 7, json!({"replication": 1}))?;
        let blocks = self.fs.blocks("/lopsided")?;
        let holders: BTreeSet<String> = blocks.iter().flat_map(|b| b.nodes.clone()).collect();
        expect_eq("nodes that hold the file", holders.len(), 1)?;
        let holder = holders.iter().next().cloned().unwrap_or_default();
        let of_holder = |host: &usize| {
            self.sites(*host)
                .iter()
                .any(|s| s.xfer().to_string() == holder)
        };
        let host = (0..HOSTS).find(of_holder).unwrap_or(0);
        let before = self.inodes(host)?;
        let siblings: Vec<_> = self
            .sites(host)
            .iter()
            .map(|s| s.address.to_string())
            .collect();
        let siblings = siblings.join(",");
        let holders = wait::until("the file on several siblings", seconds(90), || {
            let words = ["-threshold", "2", "-include", siblings.as_str()];
            let run = self.fs.tool(class::BALANCER, &words)?;
            expect(run.code == 0, || {
                format!("balancer: {} {}{}", run.code, run.out, run.err)
            })?;
            let blocks = self.fs.blocks("/lopsided")?;
            let moved: BTreeSet<String> = blocks.into_iter().flat_map(|b| b.nodes).collect();
            Ok(match moved.len() {
                3.. => Seen::Done(moved),
                _ => Seen::NotYet(format!("{moved:?}: {}", run.out)),
            })
        })?;
        let there = |node: &String| host_of(node) == host_of(&holder);
        expect(holders.iter().all(there), || format!("{holders:?}"))?;
        // The source's names go by the NameNode's order.
        wait::until("one replica of each block", seconds(60), || {
            let blocks = self.fs.blocks("/lopsided")?;
            let more = blocks.iter().filter(|block| block.nodes.len() != 1).count();
            Ok(match more {
                0 => Seen::Done(()),
                more => Seen::NotYet(format!("{more} have more")),
            })
        })?;
        let after = self.inodes(host)?;
        let inode = |all: &BTreeMap<String, (PathBuf, u64)>, name: &str| all.get(name).map(|f| f.1);
        let mut moved = 0;
        for block in &blocks {
            let name = format!("blk_{}", block.id);
            expect_eq(&name, inode(&after, &name), inode(&before, &name))?;
            let path = |all: &BTreeMap<String, (PathBuf, u64)>| all.get(&name).map(|f| f.0.clone());
            moved += u64::from(path(&after) != path(&before));
        }
        expect(moved >= 10, || format!("only {moved} blocks have moved"))?;
        self.fs.check("/lopsided", BLOCKS * BLOCK, 7)?;
        self.fs.fs(&["-rm", "-skipTrash", "/lopsided"])?;
        passed()
    }

    fn killed(&mut self) -> Result<Outcome> {
        self.cluster.node(0).kill()?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        self.check_files()?;
        self.fs.put("/after", 3 * BLOCK, 3, json!({}))?;
        self.fs.check("/after", 3 * BLOCK, 3)?;
        self.fs.wait_healthy("/", seconds(60))?;
        passed()
    }
}
