//! Disks, nodes and clients of the suite.

use crate::below;
use crate::ledger::{Ledger, Written};
use hayloft_testkit::error::{Result, TestkitError, expect};
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::modelled::{self, HostedFileSystem, ModelledDisk};
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::node::{Kind, Node, NodeSite, VirtualSite};
use hayloft_testkit::power::writers::Dice;
use hayloft_testkit::suite::seconds;
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::where_processes_run::Place;
use hayloft_testkit::{Cluster, Driver, NodeSpec, VolumeSpec, parity};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// One more than the units of a group.
pub const DISKS: usize = 6;
pub const SHAPE: &str = "4+1";
const BLOCK: u64 = 1 << 20;
const DISK_MIB: u32 = 128;
/// Files at a time: what is beyond is deleted first.
const FILES_MAX: usize = 90;
const PROTECTED_WITHIN: Duration = Duration::from_secs(300);

/// A disk of the host.
pub enum Disk {
    /// It can die, be full, refuse, be taken out.
    Mount(TestMount),
    /// It can hang.
    Modelled(ModelledDisk),
    /// It is taken out: its place is an empty directory.
    Out,
}

pub struct Lab {
    pub fs: Driver,
    pub cluster: Cluster,
    pub disks: Vec<Disk>,
    pub ledger: Ledger,
    /// Exchanged disks so far.
    exchanged: u32,
    // Dropped after the nodes have ended.
    base: tempfile::TempDir,
}

impl Lab {
    pub fn start() -> Result<Self> {
        let base = scratch("mishaps-")?;
        let mut disks = Vec::new();
        for disk in 0..DISKS {
            let at = base.path().join(format!("disk-{disk}"));
            let file_system = HostedFileSystem::Ext4;
            disks.push(
                match disk + 1 == DISKS && modelled::missing(file_system).is_none() {
                    true => Disk::Modelled(ModelledDisk::mount_small(at, file_system)?),
                    false => Disk::Mount(TestMount::ext4(
                        &image(base.path(), disk, 0),
                        &at,
                        DISK_MIB,
                    )?),
                },
            );
        }
        let volumes = (0..DISKS).map(|disk| VolumeSpec::at(data_dir(base.path(), disk)));
        let site =
            |(at, name): (u8, &&str)| VirtualSite::free(*name, Ipv4Addr::new(127, 0, 1, at + 1));
        let sites = (0..).zip(NAMES.iter()).map(site).collect::<Result<_>>()?;
        let spec = NodeSpec::new(Kind::Hayloft)
            .volumes(volumes.collect())
            .conf("dfs.datanode.disk.check.timeout", "5s")
            .conf("hayloft.parity", SHAPE)
            .conf("hayloft.parity.patience", "10s")
            .virtual_nodes(sites);
        let cluster = Cluster::builder("mishaps")
            .conf("dfs.blocksize", BLOCK)
            .conf("dfs.replication", 1)
            .conf("dfs.client.socket-timeout", 10_000)
            .conf("dfs.namenode.heartbeat.recheck-interval", 2000)
            .conf(
                "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
                0,
            )
            .node(spec)
            .start()?;
        Ok(Self {
            fs: cluster.driver()?,
            cluster,
            disks,
            ledger: Ledger::default(),
            exchanged: 0,
            base,
        })
    }

    /// The node's directory on a disk.
    pub fn data(&self, disk: usize) -> PathBuf {
        data_dir(self.base.path(), disk)
    }

    pub fn mount(&self, disk: usize) -> Result<&TestMount> {
        match &self.disks[disk] {
            Disk::Mount(mount) => Ok(mount),
            _ => Err(TestkitError::Expectation(format!(
                "disk {disk} is not on a mount"
            ))),
        }
    }

    /// A disk of those that can die.
    pub fn any_mount(&self, dice: &mut Dice) -> usize {
        let mounts = self.disks.iter().enumerate();
        let mounts = mounts.filter(|(_, disk)| matches!(disk, Disk::Mount(_)));
        let mounts: Vec<usize> = mounts.map(|(at, _)| at).collect();
        mounts[below(dice, mounts.len())]
    }

    /// Puts an empty disk of the same size in the place of one.
    pub fn exchange(&mut self, disk: usize) -> Result<()> {
        self.exchanged += 1;
        // Unmounted before the new one comes: both want the same place.
        self.disks[disk] = Disk::Out;
        let image = image(self.base.path(), disk, self.exchanged);
        let at = self.base.path().join(format!("disk-{disk}"));
        self.disks[disk] = Disk::Mount(TestMount::ext4(&image, &at, DISK_MIB)?);
        Ok(())
    }

    /// Mounts a disk again that was only unmounted.
    pub fn remount(&mut self, disk: usize) -> Result<()> {
        let mount = self.mount(disk)?;
        mount.mount_again()
    }

    pub fn sites(&self) -> Vec<VirtualSite> {
        let node = self.cluster.nodes().next();
        node.map_or_else(Vec::new, |node| node.virtual_nodes().to_vec())
    }

    pub fn restart(&mut self, kill: bool) -> Result<()> {
        match kill {
            true => self.cluster.node(0).kill()?,
            false => self.cluster.node(0).stop()?,
        }
        self.start_again()
    }

    pub fn start_again(&mut self) -> Result<()> {
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()
    }

    /// A stock DataNode on the directories of each virtual node.
    pub fn stock_nodes(&self) -> Result<Vec<Node>> {
        let base = self.cluster.dir().join("stock");
        let node = |site: VirtualSite| {
            let volumes = (0..DISKS).map(|disk| VolumeSpec::at(site.part_of(&self.data(disk))));
            let spec = NodeSpec::new(Kind::Apache).volumes(volumes.collect());
            let place = NodeSite {
                name: format!("stock-{}", site.name),
                dir: base.join(&site.name),
                place: Place::local(),
                xfer_port: site.xfer_port,
                ipc_port: site.ipc_port,
                http_port: site.http_port,
                log: None,
            };
            Node::new(self.cluster.hadoop(), place, spec)
        };
        self.sites().into_iter().map(node).collect()
    }

    /// What `hayloft parity` says: exit code and answer.
    pub fn parity(&self, arguments: &[&str]) -> Result<(Option<i32>, Value)> {
        let node = self.cluster.nodes().next();
        let node = node.ok_or_else(|| TestkitError::Expectation("no node".into()))?;
        parity::said(node, arguments)
    }

    /// Waits until all files have parity, as the node says, and takes note of it.
    pub fn settle(&mut self) -> Result<()> {
        let wanted = self.ledger.total();
        wait::until("all files protected", PROTECTED_WITHIN, || {
            let (code, now) = self.parity(&["status"])?;
            let of = |name: &str| now[name].as_u64().unwrap_or(u64::MAX);
            let well = code == Some(0)
                && of("unprotected_bytes") == 0
                && of("degraded_bytes") == 0
                && of("rebuild_remaining_bytes") == 0
                && of("protected_bytes") >= wanted;
            std::thread::sleep(seconds(1));
            Ok(match well {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{wanted} bytes wanted; exit code {code:?}, {now}")),
            })
        })?;
        self.ledger.all_safe();
        Ok(())
    }

    /// Clients write, append and delete.
    pub fn work(&mut self, dice: &mut Dice) -> Result<()> {
        let new = 4 + below(dice, 16);
        let too_many = (self.ledger.files.len() + new).saturating_sub(FILES_MAX);
        let gone = too_many + below(dice, 8);
        for _ in 0..gone.min(self.ledger.files.len()) {
            self.delete(dice)?;
        }
        for _ in 0..new {
            self.write(dice)?;
        }
        for _ in 0..below(dice, 5) {
            self.append(dice)?;
        }
        Ok(())
    }

    pub fn write(&mut self, dice: &mut Dice) -> Result<()> {
        self.ledger.written += 1;
        let seed = self.ledger.written;
        let file = Written {
            path: format!("/f{seed}"),
            bytes: 1 + dice.below(2 * BLOCK),
            seed,
            safe: false,
        };
        self.fs.put(&file.path, file.bytes, seed, json!({}))?;
        self.ledger.files.push(file);
        Ok(())
    }

    /// Writes a file that a full disk may refuse; whether it is there.
    pub fn write_if_room(&mut self, dice: &mut Dice) -> Result<bool> {
        match self.write(dice) {
            Err(TestkitError::Client { .. }) => {
                let path = format!("/f{}", self.ledger.written);
                self.fs.fs(&["-rm", "-f", "-skipTrash", &path])?;
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }

    pub fn append(&mut self, dice: &mut Dice) -> Result<()> {
        let Some(at) = self.any_file(dice) else {
            return Ok(());
        };
        let file = &mut self.ledger.files[at];
        let more = 1 + dice.below(300_000);
        self.fs.append("more", &file.path, file.seed, json!({}))?;
        self.fs.write("more", more)?;
        self.fs.handle("close", "more")?;
        file.bytes += more;
        file.safe = false;
        self.ledger.appended += 1;
        Ok(())
    }

    pub fn delete(&mut self, dice: &mut Dice) -> Result<()> {
        let Some(at) = self.any_file(dice) else {
            return Ok(());
        };
        let file = self.ledger.files.swap_remove(at);
        self.fs.fs(&["-rm", "-skipTrash", &file.path])?;
        self.ledger.deleted += 1;
        Ok(())
    }

    fn any_file(&self, dice: &mut Dice) -> Option<usize> {
        let count = self.ledger.files.len();
        (count > 0).then(|| below(dice, count))
    }

    /// Files of groups or replicas on a disk, whose names `is` wants.
    pub fn files_on(&self, disk: usize, is: impl Fn(&Path) -> bool + Copy) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(&self.data(disk), &mut |path| {
            if is(&path) {
                found.push(path);
            }
        });
        found.sort();
        found
    }

    /// Runs a program on the directories of parity of all nodes on a disk.
    pub fn on_parity_dirs(&self, disk: usize, program: &str, flag: &str) -> Result<()> {
        for name in NAMES {
            let dir = self.data(disk).join(name).join("hayloft-parity");
            if dir.is_dir() {
                let ran = Command::new(program).arg(flag).arg(&dir).output();
                let ran = ran.map_err(TestkitError::file("running", program))?;
                expect(ran.status.success(), || {
                    format!("{program} {flag}: {ran:?}")
                })?;
            }
        }
        Ok(())
    }
}

fn data_dir(base: &Path, disk: usize) -> PathBuf {
    base.join(format!("disk-{disk}")).join("data")
}

fn image(base: &Path, disk: usize, exchanged: u32) -> PathBuf {
    base.join(format!("image-{disk}-{exchanged}"))
}

/// Walks a directory that may change meanwhile.
fn collect(dir: &Path, each: &mut impl FnMut(PathBuf)) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => collect(&path, each),
            false => each(path),
        }
    }
}
