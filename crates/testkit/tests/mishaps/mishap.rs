//! What happens to nodes and disks, and how each is repaired.

use crate::below;
use crate::lab::{DISKS, Disk, Lab, NAMES, SHAPE};
use hayloft_testkit::error::{Result, TestkitError, expect};
use hayloft_testkit::files::flip_byte;
use hayloft_testkit::mounts::run;
use hayloft_testkit::power::writers::Dice;
use hayloft_testkit::suite::seconds;
use hayloft_testkit::wait::{self, Seen};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A disk's units are rebuilt within this time.
const REBUILT_WITHIN: Duration = Duration::from_secs(240);
/// Shapes that six disks can have.
const SHAPES: [&str; 3] = ["3+1", "3+2", "2+1"];

/// Something that happens to the node or its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// `kill -9`, while clients have just written.
    Killed,
    /// `dfsadmin -shutdownDatanode` of one virtual node, then a disk dies.
    NodeEnded,
    /// A disk dies; protected files are read all the time.
    DiskDied,
    /// A disk dies, is rebuilt, and then another dies before it is exchanged.
    TwoDiedInTurn,
    /// A disk dies while new files have no parity yet.
    DiskDiedEarly,
    /// A disk is full.
    Full,
    /// A disk's directories of parity take no file.
    ParityRefused,
    /// A file system has become read-only.
    ReadOnly,
    /// A disk gives no answer.
    Hung,
    /// Bytes of replicas, checksums and parity on one disk have flipped.
    Damaged,
    /// Another K+M, there and back.
    Reshaped,
    /// Apache's node uses the directories for a while.
    StockBetween,
    /// A disk is not mounted at a start.
    NotMounted,
}

impl Mishap {
    pub const ALL: [Self; 13] = [
        Self::Killed,
        Self::NodeEnded,
        Self::DiskDied,
        Self::TwoDiedInTurn,
        Self::DiskDiedEarly,
        Self::Full,
        Self::ParityRefused,
        Self::ReadOnly,
        Self::Hung,
        Self::Damaged,
        Self::Reshaped,
        Self::StockBetween,
        Self::NotMounted,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::NodeEnded => "node-ended",
            Self::DiskDied => "disk-died",
            Self::TwoDiedInTurn => "two-died-in-turn",
            Self::DiskDiedEarly => "disk-died-early",
            Self::Full => "full",
            Self::ParityRefused => "parity-refused",
            Self::ReadOnly => "read-only",
            Self::Hung => "hung",
            Self::Damaged => "damaged",
            Self::Reshaped => "reshaped",
            Self::StockBetween => "stock-between",
            Self::NotMounted => "not-mounted",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mishap| mishap.name() == name)
    }
}

impl Lab {
    /// Lets clients work, lets the mishap happen, repairs it, and asks for the truth in between.
    pub fn step(&mut self, mishap: Mishap, dice: &mut Dice) -> Result<()> {
        self.work(dice)?;
        match mishap {
            Mishap::Killed => self.killed(dice)?,
            Mishap::NodeEnded => self.node_ended(dice)?,
            Mishap::DiskDied => self.disk_died(dice, false)?,
            Mishap::TwoDiedInTurn => self.disk_died(dice, true)?,
            Mishap::DiskDiedEarly => self.disk_died_early(dice)?,
            Mishap::Full => self.full(dice)?,
            Mishap::ParityRefused => self.parity_refused(dice)?,
            Mishap::ReadOnly => self.read_only(dice)?,
            Mishap::Hung => self.hung(dice)?,
            Mishap::Damaged => self.damaged(dice)?,
            Mishap::Reshaped => self.reshaped(dice)?,
            Mishap::StockBetween => self.stock_between(dice)?,
            Mishap::NotMounted => self.not_mounted(dice)?,
        }
        self.check_all(&[], false)?;
        self.settle()?;
        self.check_status()
    }

    fn killed(&mut self, dice: &mut Dice) -> Result<()> {
        std::thread::sleep(Duration::from_millis(dice.below(8000)));
        self.restart(true)
    }

    fn node_ended(&mut self, dice: &mut Dice) -> Result<()> {
        self.settle()?;
        let site = self.sites().remove(below(dice, NAMES.len()));
        self.fs
            .dfsadmin(&["-shutdownDatanode", &site.ipc().to_string()])?;
        let away = [site.xfer().to_string()];
        self.cluster
            .namenode(0)
            .wait_live(NAMES.len() - 1, seconds(60))?;
        for _ in 0..10 {
            // Hadoop's client may fail a close while it asks for another node: its own race.
            let mut failed = 0;
            while !self.write_if_room(dice)? {
                failed += 1;
                expect(failed < 3, || "no client can write".into())?;
            }
        }
        // The others go on: what is new gets parity.
        self.wait_status("the others protect what is new", |now| {
            now["unprotected_bytes"].as_u64() == Some(0)
        })?;
        self.check_all(&away, false)?;
        let disk = self.any_mount(dice);
        self.ledger.all_safe();
        self.mount(disk)?.break_disk()?;
        self.check_all(&away, false)?;
        self.cluster.node(0).process()?.check_alive()?;
        self.cluster.node(0).stop()?;
        // Those of the ended node that were on the dead disk are decoded by the next process.
        self.start_again()?;
        self.check_all(&[], false)?;
        self.rebuilt(disk)?;
        self.put_in(disk, dice)
    }

    fn disk_died(&mut self, dice: &mut Dice, again: bool) -> Result<()> {
        self.settle()?;
        let disk = self.any_mount(dice);
        self.mount(disk)?.break_disk()?;
        self.check_all(&[], false)?;
        self.rebuilt(disk)?;
        self.check_status()?;
        let mut dead = vec![disk];
        if again {
            self.settle()?;
            let other = (0..DISKS).filter(|other| *other != disk);
            let other: Vec<_> = other.filter(|other| self.mount(*other).is_ok()).collect();
            let other = other[below(dice, other.len())];
            self.mount(other)?.break_disk()?;
            self.check_all(&[], false)?;
            self.cluster.node(0).process()?.check_alive()?;
            self.rebuilt(other)?;
            dead.push(other);
        }
        self.work(dice)?;
        self.check_all(&[], false)?;
        for disk in dead {
            self.put_in(disk, dice)?;
        }
        Ok(())
    }

    fn disk_died_early(&mut self, dice: &mut Dice) -> Result<()> {
        self.settle()?;
        for _ in 0..12 {
            self.write(dice)?;
        }
        std::thread::sleep(Duration::from_millis(dice.below(40_000)));
        let disk = self.any_mount(dice);
        self.mount(disk)?.break_disk()?;
        self.check_all(&[], true)?;
        self.rebuilt(disk)?;
        self.put_in(disk, dice)
    }

    fn full(&mut self, dice: &mut Dice) -> Result<()> {
        let disk = self.any_mount(dice);
        let filler = self.mount(disk)?.fill()?;
        // With one replica a client gives up where the disk has just become full.
        let mut taken = 0;
        for _ in 0..12 {
            taken += usize::from(self.write_if_room(dice)?);
        }
        expect(taken > 6, || format!("five disks took {taken} of 12 files"))?;
        self.settle()?;
        self.check_all(&[], false)?;
        std::fs::remove_file(&filler).map_err(TestkitError::file("removing", &filler))
    }

    fn parity_refused(&mut self, dice: &mut Dice) -> Result<()> {
        self.settle()?;
        let disk = self.any_mount(dice);
        self.on_parity_dirs(disk, "chattr", "+i")?;
        let outcome = (|| {
            self.work(dice)?;
            self.wait_status("new files protected on the other disks", |now| {
                now["unprotected_bytes"].as_u64() == Some(0)
            })?;
            self.check_all(&[], false)
        })();
        self.on_parity_dirs(disk, "chattr", "-i")?;
        outcome
    }

    fn read_only(&mut self, dice: &mut Dice) -> Result<()> {
        self.settle()?;
        let disk = self.any_mount(dice);
        self.mount(disk)?.abort()?;
        self.work(dice)?;
        self.check_all(&[], true)?;
        self.rebuilt(disk)?;
        self.put_in(disk, dice)
    }

    fn hung(&mut self, dice: &mut Dice) -> Result<()> {
        let modelled = self.disks.iter().find_map(|disk| match disk {
            Disk::Modelled(disk) => Some(disk),
            _ => None,
        });
        if modelled.is_none() {
            println!("mishaps: no modelled disk can be mounted here: nothing hangs");
            return Ok(());
        }
        self.settle()?;
        // What is in the page cache needs no disk.
        let caches = Path::new("/proc/sys/vm/drop_caches");
        std::fs::write(caches, "3").map_err(TestkitError::file("writing", caches))?;
        let modelled = self.disks.iter().find_map(|disk| match disk {
            Disk::Modelled(disk) => Some(disk),
            _ => None,
        });
        let hung = modelled
            .map(hayloft_testkit::modelled::ModelledDisk::hang)
            .transpose()?;
        self.check_all(&[], false)?;
        self.work(dice)?;
        self.rebuilt(DISKS - 1)?;
        drop(hung);
        self.restart(dice.below(2) == 0)
    }

    fn damaged(&mut self, dice: &mut Dice) -> Result<()> {
        self.settle()?;
        let disk = below(dice, DISKS);
        let is_unit = |path: &Path| {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            let finalized = path
                .components()
                .any(|part| part.as_os_str() == "finalized");
            (name.starts_with("blk_") && finalized) || name.ends_with(".p0")
        };
        let files = self.files_on(disk, is_unit);
        for _ in 0..6.min(files.len()) {
            let path = &files[below(dice, files.len())];
            let len = std::fs::metadata(path).map_or(0, |meta| meta.len());
            // A checksum file's header is seven bytes: damage it too, sometimes.
            let at = below(dice, usize::try_from(len).unwrap_or(0));
            flip_byte(path, at)?;
        }
        // What was read before is not what a disk would give now.
        let caches = Path::new("/proc/sys/vm/drop_caches");
        std::fs::write(caches, "3").map_err(TestkitError::file("writing", caches))?;
        self.check_all(&[], false)?;
        let (code, answer) = self.parity(&["scrub", "--wait", "120"])?;
        expect(code == Some(0), || format!("scrub: {code:?}, {answer}"))?;
        self.expect_none_told()
    }

    fn reshaped(&mut self, dice: &mut Dice) -> Result<()> {
        let other = SHAPES[below(dice, SHAPES.len())];
        for shape in [other, SHAPE] {
            self.cluster.node(0).stop()?;
            self.cluster.node(0).conf_mut().set("hayloft.parity", shape);
            self.start_again()?;
            self.check_all(&[], false)?;
            self.work(dice)?;
            if dice.below(2) == 0 {
                self.settle()?;
            }
        }
        Ok(())
    }

    fn stock_between(&mut self, dice: &mut Dice) -> Result<()> {
        self.cluster.node(0).stop()?;
        let mut stock = self.stock_nodes()?;
        let conf = self.cluster.conf().clone();
        for node in &mut stock {
            node.start(&conf)?;
        }
        self.cluster
            .namenode(0)
            .wait_live(NAMES.len(), seconds(60))?;
        self.wait_known()?;
        self.check_all(&[], false)?;
        self.work(dice)?;
        for node in &mut stock {
            node.stop()?;
        }
        self.start_again()
    }

    fn not_mounted(&mut self, dice: &mut Dice) -> Result<()> {
        self.settle()?;
        let disk = self.any_mount(dice);
        self.cluster.node(0).stop()?;
        let at = self.mount(disk)?.path().to_owned();
        run(Command::new("umount").arg(&at))?;
        let outcome = (|| {
            self.start_again()?;
            self.check_all(&[], false)?;
            let used = self.files_on(disk, |path| path.ends_with("VERSION"));
            expect(used.is_empty(), || {
                format!("the empty mount point has become a volume: {used:?}")
            })
        })();
        self.cluster.node(0).stop()?;
        self.remount(disk)?;
        outcome?;
        self.start_again()
    }

    /// Waits until the NameNode lists no file as corrupt or missing.
    fn expect_none_told(&self) -> Result<()> {
        wait::until("no file listed as corrupt", seconds(60), || {
            let bean = self.cluster.namenode_bean(0, "FSNamesystem")?;
            let counts = ["CorruptBlocks", "MissingBlocks"].map(|name| bean[name].as_u64());
            Ok(match counts.iter().all(|count| *count == Some(0)) {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{counts:?}")),
            })
        })
    }

    /// Waits until the NameNode knows a place of every block.
    fn wait_known(&self) -> Result<()> {
        wait::until("every block known", seconds(60), || {
            for file in &self.ledger.files {
                let blocks = self.fs.blocks(&file.path)?;
                if blocks.iter().any(|block| block.nodes.is_empty()) {
                    return Ok(Seen::NotYet(format!("{}: {blocks:?}", file.path)));
                }
            }
            Ok(Seen::Done(()))
        })
    }

    fn wait_status(&self, what: &str, is: impl Fn(&serde_json::Value) -> bool) -> Result<()> {
        wait::until(what, REBUILT_WITHIN, || {
            std::thread::sleep(seconds(1));
            let (_, now) = self.parity(&["status"])?;
            Ok(match is(&now) {
                true => Seen::Done(()),
                false => Seen::NotYet(now.to_string()),
            })
        })
    }

    /// Waits until no node uses its directory on a disk, and nothing is left to rebuild.
    fn rebuilt(&self, disk: usize) -> Result<()> {
        let data = self.data(disk).display().to_string();
        self.wait_status("a dead disk's units rebuilt", |now| {
            let on_disk = |volume: &&serde_json::Value| {
                let directory = volume["directory"].as_str();
                directory.is_some_and(|directory| directory.starts_with(&data))
            };
            let volumes = now["volumes"].as_array().into_iter().flatten();
            if volumes
                .filter(on_disk)
                .any(|volume| volume["in_use"] == true)
            {
                return false;
            }
            let of = |name: &str| now[name].as_u64().unwrap_or(u64::MAX);
            let gone = now["volumes"].as_array().into_iter().flatten();
            let still = gone
                .filter(|volume| volume["in_use"] != true)
                .any(|volume| {
                    let units = ["protected_bytes", "degraded_bytes", "parity_bytes"];
                    units.iter().any(|name| volume[*name].as_u64() != Some(0))
                });
            of("degraded_bytes") == 0 && of("rebuild_remaining_bytes") == 0 && !still
        })
    }

    /// Exchanges a dead disk for an empty one, and has the node take it: by a start, or while it
    /// runs.
    fn put_in(&mut self, disk: usize, dice: &mut Dice) -> Result<()> {
        if dice.below(2) == 0 {
            self.cluster.node(0).stop()?;
            self.exchange(disk)?;
            return self.start_again();
        }
        let data = self.data(disk);
        self.cluster.node(0).remove_volume(&data);
        self.reconfigure()?;
        self.exchange(disk)?;
        std::fs::create_dir_all(&data).map_err(TestkitError::file("creating", &data))?;
        self.cluster.node(0).add_volume(None, &data);
        let said = self.reconfigure()?;
        for site in self.sites() {
            let version = site.part_of(&data).join("current/VERSION");
            expect(version.is_file(), || {
                format!("{}: {said}", version.display())
            })?;
        }
        Ok(())
    }

    /// Has each virtual node read its configuration again; what they said.
    fn reconfigure(&mut self) -> Result<String> {
        self.cluster.rewrite_node_conf(0)?;
        let mut said = String::new();
        for site in self.sites() {
            said += &self.fs.reconfigure(&site.ipc().to_string(), seconds(60))?;
        }
        Ok(said)
    }
}
