//! Clients that write and read over HDFS, `pfs://` and `file://`, each request timed and watched.

use serde::Serialize;
use serde_json::{Value, json};

use super::moosefs::MooseFs;
use crate::report::spread;
use crate::sample::Watch;
use crate::up::Testbed;
use crate::workload::{self, WorkloadPhase};
use hayloft_testkit::conf::Conf;
use hayloft_testkit::driver::{Driver, PendingCall};
use hayloft_testkit::error::Result;

/// Block size of HDFS, MiB: files are shorter than those of the paper.
const BLOCK_MIB: u64 = 16;

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
    pub(super) const STOCK: &'static str = "HDFS, stock";
    pub(super) const HAYLOFT: &'static str = "HDFS, Hayloft";

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hdfs(name, _)
            | Self::Copies(name, _)
            | Self::Plain(name, ..)
            | Self::File(name, _) => name,
        }
    }

    /// What a client on `host` asks with, for the directory `below`.
    pub(super) fn request(self, moose: &MooseFs, host: &str, below: &str) -> Value {
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
            "blockSize": BLOCK_MIB << 20,
        })
    }
}

/// What a way gave; medians with the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PfsRow {
    /// Of the paper.
    pub figure: &'static str,
    /// Servers, and unless it says otherwise as many clients.
    pub servers: usize,
    /// Over what.
    pub way: &'static str,
    /// What was done.
    pub what: &'static str,
    /// MB/s of all clients together.
    pub mbs: (f64, f64, f64),
    /// Share of the time in which clients and servers could have gone on and had no processor.
    pub waited: f64,
    /// Share of the time in which modelled disks served a request.
    pub disk_busy: f64,
    /// Requests that modelled disks answered late.
    pub late: u64,
}

/// Measurements on a testbed, one after the other.
pub(super) struct Session<'a> {
    pub testbed: &'a Testbed,
    pub moose: &'a MooseFs,
    /// Clients with their hosts.
    pub clients: &'a [(String, Driver)],
    figure: &'static str,
    watch: Watch,
    keys: Vec<(&'static str, &'static str)>,
    phases: Vec<WorkloadPhase>,
}

impl<'a> Session<'a> {
    pub(super) fn begin(
        figure: &'static str,
        (testbed, moose): (&'a Testbed, &'a MooseFs),
        clients: &'a [(String, Driver)],
    ) -> Result<Self> {
        Ok(Self {
            testbed,
            moose,
            clients,
            figure,
            watch: Watch::begin(testbed)?,
            keys: Vec::new(),
            phases: Vec::new(),
        })
    }

    /// Every client does `operation`, in a directory and with more arguments for each; what it took
    /// counts unless `round` is none. Gives the bytes of all.
    pub(super) fn all(
        &mut self,
        (way, what): (Way, &'static str),
        round: Option<usize>,
        operation: &str,
        arguments: impl Fn(usize) -> (String, Value),
    ) -> Result<u64> {
        if operation == "readStreams" {
            workload::empty_page_cache()?;
        }
        let begin = |(at, (host, client)): (usize, &(String, Driver))| {
            let (below, more) = arguments(at);
            let mut request = way.request(self.moose, host, &below);
            if let (Some(into), Value::Object(more)) = (request.as_object_mut(), more) {
                into.extend(more);
            }
            client.begin(operation, request)
        };
        let work = || {
            let begun: Result<Vec<PendingCall>> =
                self.clients.iter().enumerate().map(begin).collect();
            workload::moved(begun)
        };
        let phase = workload::observe(
            self.testbed,
            (what, round.unwrap_or_default()),
            &self.watch,
            work,
        )?;
        let bytes = phase.bytes;
        if round.is_some() {
            self.keys.push((way.name(), what));
            self.phases.push(phase);
        }
        Ok(bytes)
    }

    /// Removes a directory of a way.
    pub(super) fn remove(&self, way: Way, below: &str) -> Result<()> {
        let (host, client) = &self.clients[0];
        let request = way.request(self.moose, host, below);
        client.call("delete", request).map(drop)
    }

    /// What was measured, a row for each way and thing done.
    pub(super) fn end(self) -> Vec<PfsRow> {
        let servers = self.testbed.nodes().len();
        let phases = workload::outcome(self.watch, self.phases).phases;
        let mut kinds: Vec<(&str, &str)> = Vec::new();
        for key in &self.keys {
            if !kinds.contains(key) {
                kinds.push(*key);
            }
        }
        let row = |key: (&'static str, &'static str)| {
            let of = self.keys.iter().zip(&phases).filter(|(k, _)| **k == key);
            let all: Vec<&WorkloadPhase> = of.map(|(_, phase)| phase).collect();
            let over =
                |f: &dyn Fn(&WorkloadPhase) -> f64| spread(all.iter().map(|p| f(p)).collect());
            let disks = || all.iter().flat_map(|phase| &phase.model);
            PfsRow {
                figure: self.figure,
                servers,
                way: key.0,
                what: key.1,
                mbs: over(&|phase| phase.mbs),
                waited: over(&WorkloadPhase::waited).0,
                disk_busy: spread(disks().map(|disk| disk.utilisation).collect()).0,
                late: disks().map(|disk| disk.late).sum(),
            }
        };
        kinds.into_iter().map(row).collect()
    }
}

/// A client on each of these hosts.
pub(super) fn clients(testbed: &Testbed, hosts: &[String]) -> Result<Vec<(String, Driver)>> {
    let jar = [super::moosefs::jar()?];
    let start = |host: &String| Ok((host.clone(), testbed.client_with(host, &Conf::new(), &jar)?));
    hosts.iter().map(start).collect()
}
