//! The power is cut while replicas move from one disk to another, and while they are copied out of
//! memory and leave it. What was durable before is there once, and every byte of it.

use crate::Cut;
use hayloft_node::disk_balancer::plan_id;
use hayloft_rpc::{CLIENT_DATANODE_PROTOCOL, RpcOptions, current_user};
use hayloft_testkit::blocking_rpc::BlockingRpc;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::http;
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::node::Kind;
use hayloft_testkit::power::writers::Dice;
use hayloft_testkit::power::{FileSystem, PowerDisk};
use hayloft_testkit::process::Signal;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, VolumeSpec};
use hayloft_wire::proto::clientdatanode::{
    SubmitDiskBalancerPlanRequest, SubmitDiskBalancerPlanResponse,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Replicas that move, and their length in bytes.
const FILES: u64 = 12;
const FILE_BYTES: u64 = 8 << 20;
/// A move of all of them takes about so long.
const MOVES_MS: u64 = 900;
/// Length of a replica in memory, bytes, and how many fit there.
const IN_MEMORY_BYTES: u64 = 1 << 20;
const FIT: u64 = 4;
const MEMORY_MIB: u32 = 8;
/// A replica is copied within a second or two.
const COPIES_MS: u64 = 2500;
const SOON: Duration = Duration::from_secs(60);

/// Adds the cases of both, on disks of that sort.
pub fn cases(suite: &mut Suite, what: Cut, on: FileSystem, (seed, cuts): (u64, u64)) {
    let suffix = what.suffix();
    suite.case(format!("cuts_in_moves{suffix}"), move || {
        unless_apaches(|| {
            let lab = Moves::start(what, on, seed)?;
            lab.run(cuts)
        })
    });
    suite.case(format!("cuts_in_copies_of_memory{suffix}"), move || {
        unless_apaches(|| {
            let lab = Lazy::start(what, on, seed)?;
            lab.run(cuts)
        })
    });
}

fn unless_apaches(run: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    if Kind::under_test() == Kind::Apache {
        let why = "Apache's node syncs none of its copies";
        return Ok(Outcome::Skipped(why.into()));
    }
    run()
}

/// The power of all disks goes at once, in the order of `disks`.
fn cut(cluster: &mut Cluster, disks: &[&PowerDisk], seed: u64) -> Result<()> {
    for disk in disks.iter().filter(|disk| disk.is_volatile()) {
        let lost = disk.cut(seed)?;
        println!(
            "power:     lost {} of {} sectors",
            lost.lost, lost.unflushed
        );
    }
    cluster.node(0).signal(Signal::KILL)?;
    for disk in disks.iter().filter(|disk| !disk.is_volatile()) {
        disk.cut(seed)?;
    }
    cluster.node(0).kill()?;
    disks.iter().try_for_each(|disk| disk.power_on())
}

/// The data files of blocks on the node, but those that are being deleted.
fn data_files(cluster: &Cluster) -> Vec<PathBuf> {
    let files = cluster.nodes().flat_map(|node| node.all_block_files());
    let is_data = |path: &PathBuf| path.extension().is_none();
    files.filter(is_data).collect()
}

/// Waits until so many blocks are there, each once, and nothing is left of a copy.
fn each_once(cluster: &Cluster, blocks: usize) -> Result<()> {
    wait::until("each block once", SOON, || {
        let files = data_files(cluster);
        let names: BTreeSet<_> = files.iter().map(|path| path.file_name()).collect();
        let in_tmp = |path: &&PathBuf| {
            let mut inside = path.iter().skip_while(|part| *part != "current");
            inside.any(|part| part == "tmp")
        };
        let copies = files.iter().filter(in_tmp).count();
        Ok(
            if names.len() == blocks && files.len() == blocks && copies == 0 {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{files:?}"))
            },
        )
    })
}

/// Replicas between two disks.
struct Moves {
    // Dropped first to last: the node ends before its disks go.
    fs: Driver,
    cluster: Cluster,
    disks: [PowerDisk; 2],
    dice: Dice,
    _base: tempfile::TempDir,
}

impl Moves {
    fn start(what: Cut, on: FileSystem, seed: u64) -> Result<Self> {
        let base = scratch("power-moves-")?;
        let disk = |name: &str| {
            let dir = base.path().join(name);
            std::fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
            what.disk(&dir, on)
        };
        let disks = [disk("first")?, disk("second")?];
        let volumes = disks
            .iter()
            .map(|disk| VolumeSpec::at(disk.path().join("data")));
        let node = NodeSpec::new(Kind::under_test()).volumes(volumes.collect());
        let cluster = Cluster::builder("power-moves")
            .names_in_memory()
            .node(node)
            .conf("dfs.replication", 1)
            .conf("dfs.blocksize", FILE_BYTES)
            .start()?;
        let fs = cluster.driver()?;
        for file in 0..FILES {
            let more = json!({"syncBlock": true});
            fs.put(&format!("/files/{file}"), FILE_BYTES, file, more)?;
        }
        Ok(Self {
            fs,
            cluster,
            disks,
            dice: Dice::new(seed),
            _base: base,
        })
    }

    /// Data files of blocks on each disk.
    fn counts(&self) -> [usize; 2] {
        let files = data_files(&self.cluster);
        [0, 1].map(|disk| {
            let at = self.disks[disk].path();
            files.iter().filter(|file| file.starts_with(at)).count()
        })
    }

    fn run(mut self, cuts: u64) -> Result<Outcome> {
        let mut in_the_midst = 0;
        for number in 0..cuts {
            let counts = self.counts();
            let source = usize::from(counts[1] > counts[0]);
            self.submit(source)?;
            let wait = Duration::from_millis(self.dice.below(MOVES_MS));
            sleep(wait);
            let first = usize::from(self.dice.below(2) == 1);
            let order = [&self.disks[first], &self.disks[1 - first]];
            cut(&mut self.cluster, &order, self.dice.below(u64::MAX))?;
            let left = self.counts();
            println!("power:   cut {number} after {wait:?}: {left:?} of {counts:?} on both disks");
            in_the_midst += u64::from(left.iter().all(|count| *count > 0));
            self.cluster.start_node(0)?;
            self.cluster.wait_all_live()?;
            self.fs.wait_takes_blocks(SOON)?;
            each_once(&self.cluster, usize::try_from(FILES).unwrap_or(0))?;
            for file in 0..FILES {
                let path = format!("/files/{file}");
                self.fs.wait_replicas(&path, 1, SOON)?;
                self.fs.check(&path, FILE_BYTES, file)?;
            }
            self.fs.verify_metas(self.cluster.node(0))?;
        }
        expect(in_the_midst > 0, || {
            "no cut came in the midst of a move".into()
        })?;
        self.cluster.succeed();
        passed()
    }

    /// One value of a file VERSION of the node.
    fn version_of(&self, disk: usize, name: &str) -> Result<String> {
        let path = self.disks[disk].path().join("data/current/VERSION");
        let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        let found = text.lines().find_map(value);
        found.ok_or_else(|| TestkitError::Expectation(format!("no {name} in {text}")))
    }

    /// Has the node move all that it has on one disk to the other.
    fn submit(&mut self, source: usize) -> Result<()> {
        let volume = |disk| -> Result<Value> {
            Ok(json!({"path": "/disk", "uuid": self.version_of(disk, "storageID")?}))
        };
        let plan = json!({
            "volumeSetPlans": [{
                "@class": "org.apache.hadoop.hdfs.server.diskbalancer.planner.MoveStep",
                "sourceVolume": volume(source)?, "destinationVolume": volume(1 - source)?,
                "bytesToMove": FILES * FILE_BYTES, "bandwidth": 100_000,
            }],
            "nodeUUID": self.version_of(source, "datanodeUuid")?,
        });
        let plan = plan.to_string();
        let request = SubmitDiskBalancerPlanRequest {
            plan_id: plan_id(&plan),
            plan,
            plan_version: Some(1),
            ignore_date_check: Some(true),
            plan_file: "/plans/none".to_owned(),
        };
        let options = RpcOptions {
            user: current_user(),
            ..RpcOptions::default()
        };
        let ipc = self.cluster.node(0).ipc();
        let rpc = BlockingRpc::new("DataNode", &ipc, CLIENT_DATANODE_PROTOCOL, options)?;
        let _: SubmitDiskBalancerPlanResponse = rpc.call("submitDiskBalancerPlan", &request)?;
        Ok(())
    }
}

/// Replicas that are in memory first.
struct Lazy {
    // Dropped first to last: the node ends before its disk and its memory go.
    fs: Driver,
    cluster: Cluster,
    disk: PowerDisk,
    memory: Option<TestMount>,
    at: PathBuf,
    dice: Dice,
    _base: tempfile::TempDir,
}

impl Lazy {
    fn start(what: Cut, on: FileSystem, seed: u64) -> Result<Self> {
        let base = scratch("power-lazy-")?;
        let disk = what.disk(base.path(), on)?;
        let at = base.path().join("memory");
        let memory = Some(TestMount::tmpfs(&at, MEMORY_MIB)?);
        let typed = |storage, at: &Path| VolumeSpec {
            storage_type: Some(storage),
            path: Some(at.join("data")),
        };
        let volumes = vec![typed("DISK", disk.path()), typed("RAM_DISK", &at)];
        let node = NodeSpec::new(Kind::under_test()).volumes(volumes);
        let cluster = Cluster::builder("power-lazy")
            .names_in_memory()
            .node(node.conf("dfs.datanode.max.locked.memory", FIT * IN_MEMORY_BYTES))
            .conf("dfs.replication", 1)
            .conf("dfs.blocksize", IN_MEMORY_BYTES)
            .conf("dfs.datanode.lazywriter.interval.sec", 1)
            // Files that lose a block stay, to be looked at.
            .conf("dfs.namenode.lazypersist.file.scrub.interval.sec", 0)
            .start()?;
        let fs = cluster.driver()?;
        fs.fs(&["-mkdir", "/lazy"])?;
        fs.set_policy("/lazy", "LAZY_PERSIST")?;
        Ok(Self {
            fs,
            cluster,
            disk,
            memory,
            at,
            dice: Dice::new(seed ^ 3),
            _base: base,
        })
    }

    /// How many copies the node has reported since it was started.
    fn copied(&mut self) -> Result<u64> {
        let web = SocketAddr::from(([127, 0, 0, 1], self.cluster.node(0).http_port()));
        let xfer = self.cluster.node(0).xfer();
        let port = xfer.rsplit(':').next().unwrap_or_default();
        let bean = format!("Hadoop:service=DataNode,name=DataNodeActivity-*-{port}");
        let bean = http::jmx(web, &bean)?;
        Ok(bean["RamDiskBlocksLazyPersisted"].as_u64().unwrap_or(0))
    }

    fn run(mut self, cuts: u64) -> Result<Outcome> {
        let (mut lost, mut kept) = (0, 0);
        for number in 0..cuts {
            let name = |file: u64| format!("/lazy/{number}/{file}");
            // As many as memory has room for: copied, says the node, so that they outlive all.
            for file in 0..FIT {
                self.fs.put(&name(file), IN_MEMORY_BYTES, file, json!({}))?;
            }
            wait::until("copies on disk", SOON, || {
                let copied = self.copied()?;
                Ok(if copied >= FIT {
                    Seen::Done(())
                } else {
                    Seen::NotYet(copied.to_string())
                })
            })?;
            // Others take their room, and are copied in their turn, until the power goes.
            let wait = Duration::from_millis(self.dice.below(COPIES_MS));
            let (began, mut files) = (Instant::now(), FIT);
            while began.elapsed() < wait || files == FIT {
                self.fs
                    .put(&name(files), IN_MEMORY_BYTES, files, json!({}))?;
                files += 1;
            }
            let seed = self.dice.below(u64::MAX);
            cut(&mut self.cluster, &[&self.disk], seed)?;
            self.memory = None;
            self.memory = Some(TestMount::tmpfs(&self.at, MEMORY_MIB)?);
            self.cluster.start_node(0)?;
            self.cluster.wait_all_live()?;
            self.fs.wait_takes_blocks(SOON)?;
            for file in 0..FIT {
                self.on_disk(&name(file))?;
                self.fs.check(&name(file), IN_MEMORY_BYTES, file)?;
            }
            let mut there = FIT;
            for file in FIT..files {
                if self.is_counted_on(&name(file))? {
                    self.fs.check(&name(file), IN_MEMORY_BYTES, file)?;
                    there += 1;
                }
            }
            println!("power:   cut {number} after {wait:?}: {there} of {files} replicas are there");
            (lost, kept) = (lost + files - there, kept + there - FIT);
            each_once(&self.cluster, usize::try_from(there).unwrap_or(0))?;
            self.fs.verify_metas(self.cluster.node(0))?;
            let dir = format!("/lazy/{number}");
            self.fs.fs(&["-rm", "-r", "-skipTrash", &dir])?;
            each_once(&self.cluster, 0)?;
        }
        println!("power: of those that came last {kept} were copied, {lost} were in memory only");
        expect(lost > 0, || {
            "memory lost nothing: this shows nothing".into()
        })?;
        self.cluster.succeed();
        passed()
    }

    /// Waits until the NameNode says that the replica is on the disk.
    fn on_disk(&self, path: &str) -> Result<()> {
        wait::until(&format!("{path} on disk"), SOON, || {
            let blocks = self.fs.blocks(path)?.into_iter();
            let types: Vec<String> = blocks.flat_map(|block| block.types).collect();
            Ok(if types == ["DISK"] {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{types:?}"))
            })
        })
    }

    /// Whether the NameNode counts on a replica. What it has of one that is gone is of memory.
    fn is_counted_on(&self, path: &str) -> Result<bool> {
        let wanted = format!("the NameNode knows of {path}");
        wait::until(&wanted, SOON, || {
            let blocks = self.fs.blocks(path)?.into_iter();
            let types: Vec<String> = blocks.flat_map(|block| block.types).collect();
            Ok(
                match types.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                    [] => Seen::Done(false),
                    ["DISK"] => Seen::Done(true),
                    _ => Seen::NotYet(format!("{types:?}")),
                },
            )
        })
    }
}
