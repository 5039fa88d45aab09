//! Clients that write and read over HDFS, `pfs://` and `file://`, each request timed and watched.

use std::path::Path;

use serde_json::{Value, json};

use super::moosefs::MooseFs;
use crate::describe::Description;
use crate::runner::PeerTurn;
use crate::runner::record::{PeerFigures, WARM};
use crate::sample::Watch;
use crate::up::Testbed;
use crate::workload::{self, WorkloadPhase};
use hayloft_testkit::driver::{Driver, PendingCall};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop_conf::Conf;

/// Most that a client writes and reads in a round that warms up, MiB.
const WARM_UP_MIB: u32 = 32;

/// Over what a client writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// HDFS, with this many replicas; the name of its nodes.
    Hdfs(&'static str, usize),
    /// `pfs://` with copies in this layout.
    Copies(&'static str, usize),
    /// `pfs://` without copies; the read policy, and whether the mount has no page cache.
    Plain(&'static str, &'static str, bool),
    /// `file://` on the same mount; its name, and whether the mount has no page cache.
    File(&'static str, bool),
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hdfs(name, _)
            | Self::Copies(name, _)
            | Self::Plain(name, ..)
            | Self::File(name, _) => name,
        }
    }

    /// What a client on `host` asks with, for the directory `below`.
    pub(super) fn request(self, of: &Hosts, host: &str, below: &str) -> Value {
        let moose = &of.moose;
        let pfs = |copies, layout: &str, direct| moose.conf(host, copies, layout, direct);
        let (path, conf, policy) = match self {
            Self::Hdfs(..) => (format!("/{below}"), Conf::new(), ""),
            Self::Copies(layout, copies) => {
                (format!("pfs:///{below}"), pfs(copies, layout, false), "")
            }
            Self::Plain(_, policy, direct) => {
                let conf = pfs(1, "hybrid", direct).with("fs.pfs.targets", "");
                (format!("pfs:///{below}"), conf, policy)
            }
            Self::File(_, direct) => {
                let root = moose.root(host, direct);
                (
                    format!("file://{}/{below}", root.display()),
                    Conf::new(),
                    "",
                )
            }
        };
        let conf: Value = conf.iter().map(|(k, v)| (k.to_owned(), json!(v))).collect();
        let replication = if let Self::Hdfs(_, n) = self { n } else { 1 };
        json!({
            "path": path, "conf": conf, "policy": policy, "replication": replication,
            "blockSize": of.block_bytes,
        })
    }
}

/// A testbed whose nodes are of one kind at a time, with MooseFS beside them, and clients.
pub(super) struct Hosts {
    // Dropped first to last: clients and mounts before their hosts.
    /// Clients with their hosts.
    pub clients: Vec<(String, Driver)>,
    pub moose: MooseFs,
    pub testbed: Testbed,
    kind: String,
    /// Ways for which nodes and clients have been warmed, with whether they are warm (1, else 0).
    warmed: Vec<(Way, f64)>,
    pub block_bytes: u64,
}

impl Hosts {
    /// Brings all up in `dir`, with a client on each of these hosts.
    ///
    /// # Errors
    /// When something does not come up.
    pub(super) fn start(
        described: Description,
        hosts: &[String],
        dir: &Path,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        crate::up::down(&described.name, dir)?;
        let block_bytes = u64::from(described.workload.block_mib) << 20;
        let kinds = described.hosts().flat_map(|(_, host)| &host.nodes);
        let kind = kinds
            .map(|node| node.kind.clone())
            .next()
            .unwrap_or_default();
        let testbed = Testbed::up(described, dir, false, tell)?;
        let moose = MooseFs::start(&testbed)?;
        let jar = [super::moosefs::jar()?];
        let start =
            |host: &String| Ok((host.clone(), testbed.client_with(host, &Conf::new(), &jar)?));
        Ok(Self {
            clients: hosts.iter().map(start).collect::<Result<_>>()?,
            moose,
            testbed,
            kind,
            warmed: Vec::new(),
            block_bytes,
        })
    }

    /// Has nodes of this kind, if one is named, on what others left on the disks.
    ///
    /// # Errors
    /// When they do not come up.
    pub(super) fn be(&mut self, kind: Option<&str>, turn: &mut PeerTurn<'_>) -> Result<()> {
        let Some(kind) = kind.filter(|kind| *kind != self.kind) else {
            return Ok(());
        };
        turn.tell(&format!("nodes of the kind {kind}"));
        self.testbed.exchange_nodes(kind)?;
        kind.clone_into(&mut self.kind);
        self.warmed.retain(|(way, _)| !matches!(way, Way::Hdfs(..)));
        Ok(())
    }

    /// Warms clients and nodes for a way, unless they have been since these nodes came up; 1 when
    /// they are warm, else 0.
    ///
    /// # Errors
    /// When a client fails.
    pub(super) fn warm(&mut self, way: Way, turn: &mut PeerTurn<'_>) -> Result<f64> {
        let warmed = self.warmed.iter().find(|(warmed, _)| *warmed == way);
        if let Some((_, warm)) = warmed {
            return Ok(*warm);
        }
        let mut session = Session::begin(self)?;
        let bytes = u64::from(turn.mib().min(WARM_UP_MIB)) << 20;
        let warm = turn.warm_up(|_| {
            let more = || json!({ "bytes": bytes });
            let of = |at: usize| (format!("warm-up/c{at}"), more());
            session.all((way, "write"), "writeStreams", of)?;
            session.all((way, "read"), "readStreams", of)?;
            session.remove(way, "warm-up")?;
            Ok(session
                .phases
                .iter()
                .rev()
                .take(2)
                .map(WorkloadPhase::cpu_s)
                .sum())
        })?;
        if turn.counts {
            self.warmed.push((way, warm));
        }
        Ok(warm)
    }
}

/// What clients do in a turn, each thing timed and watched.
pub(super) struct Session<'a> {
    hosts: &'a Hosts,
    watch: Watch,
    phases: Vec<WorkloadPhase>,
}

impl<'a> Session<'a> {
    pub(super) fn begin(hosts: &'a Hosts) -> Result<Self> {
        Ok(Self {
            hosts,
            watch: Watch::begin(&hosts.testbed)?,
            phases: Vec::new(),
        })
    }

    /// Every client does `operation`, in a directory and with more arguments for each. Gives the
    /// bytes of all.
    pub(super) fn all(
        &mut self,
        (way, what): (Way, &'static str),
        operation: &str,
        arguments: impl Fn(usize) -> (String, Value),
    ) -> Result<u64> {
        if operation == "readStreams" {
            workload::empty_page_cache()?;
        }
        let hosts = self.hosts;
        let begin = |(at, (host, client)): (usize, &(String, Driver))| {
            let (below, more) = arguments(at);
            let mut request = way.request(hosts, host, &below);
            if let (Some(into), Value::Object(more)) = (request.as_object_mut(), more) {
                into.extend(more);
            }
            client.begin(operation, request)
        };
        let clients = hosts.clients.iter().enumerate();
        self.watched(what, || {
            workload::moved(clients.map(begin).collect::<Result<Vec<PendingCall>>>())
        })
    }

    /// Watches something that is done.
    pub(super) fn watched(
        &mut self,
        what: &'static str,
        work: impl FnOnce() -> Result<Vec<workload::Moved>>,
    ) -> Result<u64> {
        let phase = workload::observe(&self.hosts.testbed, (what, 0), &self.watch, work)?;
        let bytes = phase.bytes;
        self.phases.push(phase);
        Ok(bytes)
    }

    /// Removes a directory of a way.
    pub(super) fn remove(&self, way: Way, below: &str) -> Result<()> {
        let (host, client) = &self.hosts.clients[0];
        let request = way.request(self.hosts, host, below);
        client.call("delete", request).map(drop)
    }

    /// Gives all that was done, but the first `skipped` things.
    pub(super) fn give(self, turn: &mut PeerTurn<'_>, warm: f64, skipped: usize) {
        let phases = workload::outcome(self.watch, self.phases).phases;
        for phase in phases.iter().skip(skipped) {
            let figures: PeerFigures = phase.figures(self.hosts.testbed.described());
            turn.give(phase.what, figures.with(WARM, warm));
        }
    }
}
