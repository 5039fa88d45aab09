//! A cluster of nodes on disks whose power can be cut, and its rounds: writers, an event, a new
//! start, a look at what is left.
//!
//! There is one replica of everything, so a loss shows. Which node a file is on, its directory
//! says: each node has a storage type of its own, and each directory the policy for it.

use super::check::{self, Findings};
use super::disk::PowerDisk;
use super::writers::{self, Acked, BLOCK, Syncs, WriterPhase};
use crate::error::{Result, TestkitError};
use crate::modelled::Lost;
use crate::node::{Kind, Node, NodeSpec, VolumeSpec};
use crate::process::Signal;
use crate::wait::{self, Seen};
use crate::{Cluster, Driver};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Rounds after which a new client process takes over: writers that a cut left behind stay in the
/// memory of the old one.
const ROUNDS_A_CLIENT: u64 = 8;

/// Storage types and the policies whose files go to no other.
const TYPES: [(&str, &str); 4] = [
    ("DISK", "HOT"),
    ("SSD", "ALL_SSD"),
    ("ARCHIVE", "COLD"),
    ("NVDIMM", "ALL_NVDIMM"),
];
/// Nodes of a rig at most.
pub const NODES_MAX: usize = TYPES.len();
/// How long a node may take until the NameNode has its report.
const REPORT_LIMIT: Duration = Duration::from_secs(90);
/// Before the event no client pauses for so long.
const HURRY: Duration = Duration::from_secs(2);
/// What the NameNode does about a report takes this long at most.
const SETTLED: Duration = Duration::from_secs(2);

/// What happens to all nodes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `kill -9`.
    Killed,
    /// `kill -9`, and what the node had in shared memory is gone.
    ContainerGone,
    /// The power: `kill -9`, memory gone, and what the file system had not sent to its device.
    PowerCut,
    /// Half-way the disk is full; at the end `kill -9`, and there is space again.
    DiskFull,
    /// Half-way the disk begins to answer with EIO; at the end `kill -9`, and it works again.
    DiskFails,
}

/// One round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// What happens at its end.
    pub event: Event,
    /// Whose nodes start on the directories then; `None`: the same.
    pub next: Option<Kind>,
    /// What clients ask for.
    pub syncs: Syncs,
    /// How long they write.
    pub writing: Duration,
    /// Of file sizes, bytes, and what a volatile device loses.
    pub seed: u64,
}

/// The cluster.
#[derive(Debug)]
pub struct Rig {
    // Dropped first to last: the nodes end before their disks go.
    fs: Driver,
    cluster: Cluster,
    disks: Vec<PowerDisk>,
    kinds: Vec<Kind>,
    rounds: u64,
    /// What each volatile device lost at the last cut.
    lost: Vec<Lost>,
}

impl Rig {
    /// Starts one node of each kind on each of these disks.
    ///
    /// # Errors
    /// When there are more than [`NODES_MAX`], or the cluster does not start.
    pub fn start(name: &str, nodes: Vec<(Kind, PowerDisk)>) -> Result<Self> {
        Self::start_with(name, nodes, |_| Ok(None))
    }

    /// As [`Rig::start`], with what `engine` says of each disk as the I/O engine of its node.
    ///
    /// # Errors
    /// As [`Rig::start`], and when `engine` fails.
    pub fn start_with(
        name: &str,
        nodes: Vec<(Kind, PowerDisk)>,
        engine: impl Fn(&PowerDisk) -> Result<Option<String>>,
    ) -> Result<Self> {
        let spec = |(kind, disk): (Kind, PowerDisk)| {
            let mut node = NodeSpec::new(kind);
            if let Some(engine) = engine(&disk)? {
                node = node.conf("hayloft.io.engine", engine);
            }
            Ok((node, disk))
        };
        let nodes = nodes.into_iter().map(spec).collect::<Result<_>>()?;
        Self::start_nodes(name, nodes)
    }

    /// As [`Rig::start`], with nodes that have a configuration of their own; their volumes are the
    /// disks.
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub fn start_nodes(name: &str, nodes: Vec<(NodeSpec, PowerDisk)>) -> Result<Self> {
        if nodes.len() > NODES_MAX {
            return Err(TestkitError::Talk(format!("at most {NODES_MAX} nodes")));
        }
        let mut builder = Cluster::builder(name)
            .names_in_memory()
            .conf("dfs.replication", 1)
            .conf("dfs.blocksize", BLOCK);
        let kinds = nodes.iter().map(|(node, _)| node.kind).collect();
        let mut disks = Vec::new();
        for ((node, disk), (storage, _)) in nodes.into_iter().zip(TYPES) {
            let mut volume = VolumeSpec::typed(storage);
            volume.path = Some(disk.path().join("data"));
            builder = builder.node(node.volumes(vec![volume]));
            disks.push(disk);
        }
        let cluster = builder.start()?;
        let fs = cluster.driver()?;
        for (_, (storage, policy)) in disks.iter().zip(TYPES) {
            let dir = format!("/{storage}");
            fs.fs(&["-mkdir", &dir])?;
            fs.set_policy(&dir, policy)?;
        }
        // An operator formats directories long before anything is written to them.
        disks.iter().try_for_each(PowerDisk::sync)?;
        Ok(Self {
            fs,
            cluster,
            disks,
            kinds,
            rounds: 0,
            lost: Vec::new(),
        })
    }

    /// Disks, one a node.
    #[must_use]
    pub fn disks(&self) -> &[PowerDisk] {
        &self.disks
    }

    /// What each volatile device lost at the last cut, of what no flush had followed.
    #[must_use]
    pub fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The cluster, to end it.
    #[must_use]
    pub fn into_cluster(self) -> (Cluster, Vec<PowerDisk>) {
        (self.cluster, self.disks)
    }

    /// Carries out a round; what is left on each node. Afterwards nothing of it is in the way of
    /// the next, and the nodes are those of the start.
    ///
    /// # Errors
    /// When a node does not start afterwards, a disk does not come back, or the lab itself fails.
    pub fn run(&mut self, round: &Round) -> Result<Vec<Findings>> {
        if self.rounds > 0 && self.rounds.is_multiple_of(ROUNDS_A_CLIENT) {
            self.fs = self.cluster.driver()?;
        }
        self.rounds += 1;
        let dirs: Vec<String> = (0..self.disks.len())
            .map(|node| format!("/{}/round-{}", TYPES[node].0, self.rounds))
            .collect();
        for dir in &dirs {
            self.fs.fs(&["-mkdir", dir])?;
        }
        let (acked, event) = self.write_until_event(round, &dirs)?;
        self.come_back(round)?;
        let mut found = Vec::new();
        for (node, acked) in acked.into_iter().enumerate() {
            let mut one = check::look(&self.fs, acked, event)?;
            let node = self.cluster.node(node);
            one.explain(|block| on_disk(node, block));
            found.push(one);
        }
        for dir in &dirs {
            self.fs.fs(&["-rm", "-r", "-skipTrash", dir])?;
        }
        self.be_as_before()?;
        Ok(found)
    }

    fn write_until_event(
        &mut self,
        round: &Round,
        dirs: &[String],
    ) -> Result<(Vec<Acked>, Instant)> {
        let phase = WriterPhase::default();
        let Self {
            fs,
            cluster,
            disks,
            lost,
            ..
        } = self;
        lost.clear();
        let (fs, phase) = (&*fs, &phase);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0_u64..)
                .zip(dirs)
                .map(|(node, dir)| {
                    let seed = round.seed.wrapping_add(node << 16);
                    scope.spawn(move || writers::write(fs, dir, round.syncs, seed, phase))
                })
                .collect();
            let happened = happen(round, cluster, disks, (phase, lost));
            phase.end();
            let mut acked = Vec::new();
            for writer in writers {
                let one = writer.join();
                acked.push(one.map_err(|_| TestkitError::Talk("a writer panicked".into()))??);
            }
            Ok((acked, happened?))
        })
    }

    /// Disks are there again, and nodes are started on them.
    fn come_back(&mut self, round: &Round) -> Result<()> {
        for disk in &self.disks {
            match round.event {
                Event::PowerCut => disk.power_on()?,
                Event::DiskFull => disk.empty()?,
                Event::DiskFails => disk.repair()?,
                Event::Killed | Event::ContainerGone => {}
            }
        }
        let kinds: Vec<Kind> = self.kinds.clone();
        for (node, kind) in kinds.into_iter().enumerate() {
            let kind = round.next.unwrap_or(kind);
            self.cluster.node(node).become_kind(kind)?;
        }
        self.start_all()
    }

    /// Nodes of the start again, after those of another kind were looked at.
    fn be_as_before(&mut self) -> Result<()> {
        let kinds: Vec<Kind> = self.cluster.nodes().map(|node| node.kind()).collect();
        if kinds == self.kinds {
            return Ok(());
        }
        for node in 0..self.kinds.len() {
            self.cluster.node(node).stop()?;
            let kind = self.kinds[node];
            self.cluster.node(node).become_kind(kind)?;
        }
        self.start_all()
    }

    /// Starts all nodes and waits until the NameNode has a full report of each: until then it goes
    /// on with what it knew before.
    fn start_all(&mut self) -> Result<()> {
        let log = self.cluster.namenode(0).log();
        let from = std::fs::metadata(&log)
            .map_err(TestkitError::file("looking at", &log))?
            .len();
        for node in 0..self.kinds.len() {
            self.cluster.start_node_without_waiting(node)?;
        }
        for node in 0..self.kinds.len() {
            let node = self.cluster.node(node);
            let sender = format!("DatanodeRegistration({},", node.xfer());
            let what = format!("a full report of {}", node.name());
            wait::until(&what, REPORT_LIMIT, || {
                node.process()?.check_alive()?;
                let said = read_from(&log, from)?;
                let report = |line: &str| line.contains("processReport") && line.contains(&sender);
                Ok(if said.lines().any(report) {
                    Seen::Done(())
                } else {
                    Seen::NotYet("none".into())
                })
            })?;
        }
        self.cluster.wait_all_live()?;
        sleep(SETTLED);
        Ok(())
    }
}

/// The files of a block and their sizes, in words.
fn on_disk(node: &Node, block: i64) -> String {
    let files = node.block_files(block).into_iter().map(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = std::fs::metadata(&path).map_or(0, |found| found.len());
        format!("{name} has {bytes} bytes")
    });
    files.collect::<Vec<_>>().join(", ")
}

fn read_from(log: &PathBuf, from: u64) -> Result<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(log)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(TestkitError::file("reading", log))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits while clients write, then lets it happen; when that was.
fn happen(
    round: &Round,
    cluster: &mut Cluster,
    disks: &[PowerDisk],
    (phase, lost): (&WriterPhase, &mut Vec<Lost>),
) -> Result<Instant> {
    sleep(round.writing / 2);
    let mut event = None;
    match round.event {
        Event::DiskFull => {
            event = Some(Instant::now());
            disks.iter().try_for_each(PowerDisk::fill)?;
        }
        Event::DiskFails => {
            event = Some(Instant::now());
            disks.iter().try_for_each(PowerDisk::fail)?;
        }
        Event::Killed | Event::ContainerGone | Event::PowerCut => {}
    }
    sleep((round.writing / 2).saturating_sub(HURRY));
    phase.hurry();
    sleep(HURRY);
    let nodes = 0..disks.len();
    let killed = Instant::now();
    for node in nodes.clone() {
        let disk = &disks[node];
        let seed = round.seed.wrapping_add(node as u64);
        let cut = round.event == Event::PowerCut;
        // Such a device chooses the moment: in the midst of writes. The node must not believe in
        // what fails between that and its own end.
        if cut && disk.is_volatile() {
            lost.push(disk.cut(seed)?);
        }
        // One that ended by itself, for its disk's sake, needs no signal.
        cluster.node(node).signal(Signal::KILL)?;
        // A moment after the node: it shall not see errors.
        if cut && !disk.is_volatile() {
            disk.cut(seed)?;
        }
    }
    for node in nodes {
        cluster.node(node).kill()?;
    }
    Ok(event.unwrap_or(killed))
}
