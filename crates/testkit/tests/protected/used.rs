//! What operators and clients do with a protected cluster: pipelines over nodes of both kinds, the
//! balancer, striped files, reconfiguration, and the commands of `hayloft`.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{class, hayloft_binary, scratch};
use hayloft_testkit::http;
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::shared_work::SharedWork;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec, ports};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::secrets::{self, Secret};
use crate::{BLOCK, encrypted, realm};

/// Nodes of ours; one of Apache's comes behind them. All five have a block of a striped file.
const OURS: usize = 4;
/// The nodes of a pipeline.
const PAIR: [usize; 2] = [0, OURS];
/// Files of two blocks in pipelines of two nodes, at most: who is first is left to chance.
const FILES: u64 = 40;
/// Size of the disk of each, MiB: the balancer goes by how full nodes are.
const DISK_MIB: u32 = 256;
/// What counts acknowledgements of a next node.
const ACTIVITY: &str = "/jmx?qry=Hadoop:service=DataNode,name=DataNodeActivity*";
/// What pages of a node say, and words that are there.
const PAGES: [(&str, &str); 6] = [
    ("/", "<html"),
    ("/live", "up_ms"),
    ("/conf", "dfs.datanode.keytab.file"),
    ("/stacks", "active threads"),
    ("/jmx", "DataNodeInfo"),
    ("/prom", "hayloft_"),
];
/// The node with more secrets than the others.
const WITH_SECRETS: usize = 0;
/// A key that is reread.
const MOVES: &str = "dfs.datanode.balance.max.concurrent.moves";

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Lab::start, |lab, failed| lab.cluster.conclude(failed));
    on.case("protected_striped_files_are_rebuilt", |lab| {
        lab.work().passes(|work| work.striped(2, &[1, OURS]))
    });
    on.case("protected_blocks_are_moved_between_types", |lab| {
        // REPLACE_BLOCK and COPY_BLOCK, within and between nodes of both kinds.
        lab.work()
            .passes(|work| work.moves(6, &[("COLD", "ARCHIVE"), ("HOT", "DISK")]))
    });
    on.case("protected_pipelines_of_both_orders", Lab::pipelines);
    on.case("protected_blocks_are_balanced", Lab::balanced);
    on.case(
        "protected_nodes_are_reconfigured_by_administrators",
        |lab| lab.reconfigured(),
    );
    on.case("protected_nodes_are_seen_by_commands", Lab::commands);
    on.case("protected_blocks_go_to_a_snapshot", Lab::snapshot);
    on.case("protected_nodes_say_nothing_odd", Lab::nothing_odd);
    on.case("protected_nodes_say_nothing_secret", Lab::nothing_secret);
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    realm: Realm,
    // Dropped after the nodes have ended.
    _disks: Vec<TestMount>,
    _base: tempfile::TempDir,
}

impl Lab {
    fn start() -> Result<Self> {
        let realm = realm()?;
        let base = scratch("protected-disks-")?;
        let mut builder = encrypted(&realm)?;
        let mut disks = Vec::new();
        for node in 0..=OURS {
            let image = base.path().join(format!("image-{node}"));
            let at = base.path().join(format!("disk-{node}"));
            let disk = TestMount::ext4(&image, &at, DISK_MIB)?;
            let mut volumes = vec![VolumeSpec::at(disk.path().join("data"))];
            // One node of each kind.
            if node + 1 >= OURS {
                volumes.push(VolumeSpec::typed("ARCHIVE"));
            }
            let kind = if node < OURS {
                Kind::Hayloft
            } else {
                Kind::Apache
            };
            let mut spec = NodeSpec::new(kind).volumes(volumes);
            if node == WITH_SECRETS {
                spec = secrets::given_to(spec, &realm)?;
            }
            builder = builder.node(spec);
            disks.push(disk);
        }
        let cluster = builder
            .conf("dfs.client.socket-timeout", 10_000)
            .conf("dfs.balancer.getBlocks.min-block-size", 1)
            .conf(
                "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
                0,
            )
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self {
            cluster,
            fs,
            realm,
            _disks: disks,
            _base: base,
        })
    }

    fn work(&mut self) -> SharedWork<'_> {
        SharedWork {
            cluster: &mut self.cluster,
            fs: &self.fs,
            block: BLOCK,
        }
    }

    /// How many acknowledgements of a next node this node has had: more than before where it was
    /// the first of two.
    fn acks_of_next(&mut self, node: usize) -> Result<u64> {
        let port = ports::local(self.cluster.node(node).http_port());
        let text = http::get(port, ACTIVITY)?;
        let beans: Value = serde_json::from_str(&text).unwrap_or_default();
        let count = &beans["beans"][0]["PacketAckRoundTripTimeNanosNumOps"];
        count
            .as_u64()
            .ok_or_else(|| TestkitError::Expectation(text.clone()))
    }

    /// A node of each kind, and none beside them.
    fn pipelines(&mut self) -> Result<Outcome> {
        for node in 1..OURS {
            self.cluster.node(node).stop()?;
        }
        self.cluster.namenode(0).wait_live(2, seconds(60))?;
        // It counts a node as dead by the clock, and stops choosing it some seconds later.
        std::thread::sleep(seconds(8));
        let [ours, stock] = PAIR;
        let before = [self.acks_of_next(ours)?, self.acks_of_next(stock)?];
        let two = json!({"replication": 2});
        let mut seen = [false; 2];
        for seed in 0..FILES {
            let path = format!("/pair/{seed}");
            self.fs.put(&path, 2 * BLOCK, seed, two.clone())?;
            self.fs.wait_replicas(&path, 2, seconds(60))?;
            self.fs.check(&path, 2 * BLOCK, seed)?;
            for (seen, (node, before)) in seen.iter_mut().zip(PAIR.iter().zip(before)) {
                *seen |= self.acks_of_next(*node)? > before;
            }
            if seed >= FILES / 4 && seen == [true, true] {
                return passed();
            }
        }
        Err(TestkitError::Expectation(format!(
            "ours first: {}, the stock node first: {}",
            seen[0], seen[1]
        )))
    }

    fn holders(&self, dir: &str, files: u64) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for seed in 0..files {
            let blocks = self.fs.blocks(&format!("{dir}/{seed}"))?;
            all.extend(blocks.into_iter().flat_map(|block| block.nodes));
        }
        Ok(all)
    }

    /// All of that went to two nodes: it comes to the others.
    fn balanced(&mut self) -> Result<Outcome> {
        let files = FILES / 4;
        self.cluster.heal()?;
        for seed in 0..files {
            let path = format!("/pair/{seed}");
            if self.fs.length(&path).is_err() {
                self.fs
                    .put(&path, 2 * BLOCK, seed, json!({"replication": 2}))?;
            }
        }
        let before = self.holders("/pair", files)?;
        wait::until("blocks on more nodes", seconds(120), || {
            let run = self.fs.tool(class::BALANCER, &["-threshold", "1"])?;
            expect(run.code == 0, || {
                format!("balancer: {} {}{}", run.code, run.out, run.err)
            })?;
            let now = self.holders("/pair", files)?;
            Ok(match now.len() > before.len().max(2) {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{now:?}: {}", run.out)),
            })
        })?;
        (0..files).try_for_each(|seed| self.fs.check(&format!("/pair/{seed}"), 2 * BLOCK, seed))?;
        passed()
    }

    /// `dfsadmin -reconfig`: carried out for the superuser, refused to others, as by Apache's node.
    fn reconfigured(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        let mut ipcs = Vec::new();
        for node in PAIR {
            self.cluster.node(node).conf_mut().set(MOVES, 7);
            self.cluster.rewrite_node_conf(node)?;
            ipcs.push(self.cluster.node(node).ipc());
        }
        let ann = self.realm.keytab("protected-ann.keytab", &["ann"])?;
        self.realm.kinit("ann", &ann)?;
        let told = self.refused_reconfiguration(&ipcs);
        let services = self.realm.dir().join("services.keytab");
        self.realm.kinit("hdfs", &services)?;
        for said in told? {
            expect(said.contains("Permission denied"), || said.clone())?;
        }
        for ipc in &ipcs {
            let words = ["-reconfig", "datanode", ipc, "status"];
            let run = self.fs.tool(class::DFSADMIN, &words)?.ok()?;
            expect(run.out.contains("no task was found"), || run.out.clone())?;
            let done = self.fs.reconfigure(ipc, seconds(60))?;
            expect(done.contains("SUCCESS") && done.contains(MOVES), || {
                done.clone()
            })?;
        }
        passed()
    }

    /// What clients with the ticket of now hear.
    fn refused_reconfiguration(&self, ipcs: &[String]) -> Result<Vec<String>> {
        let other = self.cluster.driver()?;
        let mut told = Vec::new();
        for ipc in ipcs {
            for command in ["start", "status", "properties"] {
                let words = ["-reconfig", "datanode", ipc, command];
                let run = other.tool(class::DFSADMIN, &words)?;
                told.push(format!("{command} of {ipc}: {}{}", run.out, run.err));
            }
        }
        Ok(told)
    }

    /// A command of ours: its exit code and what it prints.
    fn command(&self, words: &[&str], conf: &Path) -> Result<(Option<i32>, String, String)> {
        let binary = hayloft_binary()?;
        let mut command = Command::new(&binary);
        command.args(words).arg("--conf").arg(conf);
        let ran = command
            .output()
            .map_err(TestkitError::file("running", &binary))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((ran.status.code(), said(&ran.stdout), said(&ran.stderr)))
    }

    /// With the ticket of the superuser.
    fn commands(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.put("/aged/file", BLOCK, 1, json!({}))?;
        self.fs
            .fs(&["-touch", "-c", "-t", "20200101:000000", "/aged/file"])?;
        let clients = self.cluster.client_conf_dir();
        let ours = self.cluster.node(0).conf_dir();
        let (code, out, told) = self.command(&["top", "--once", "--json"], &clients)?;
        let nodes = serde_json::from_str::<Value>(&out).unwrap_or_default();
        let nodes = nodes["nodes"].as_array().into_iter().flatten();
        let answer = nodes.filter(|node| node["error"].is_null()).count();
        // The stock node has no page for it, which is told and no fault.
        expect(code == Some(0) && answer == OURS, || {
            format!("top: {code:?} {out}{told}")
        })?;
        let cold = [
            "cold",
            "scan",
            "/aged",
            "--live",
            "--older-than",
            "180d",
            "--json",
        ];
        let (code, out, told) = self.command(&cold, &clients)?;
        expect(code == Some(0), || format!("cold: {code:?} {out}{told}"))?;
        let found = serde_json::from_str::<Value>(&out).unwrap_or_default();
        let cold = found["found"]["total"]["cold_files"].as_u64();
        expect_eq("cold files", cold, Some(1))?;
        self.placement()?;
        // The machine itself may have faults, which are findings: 1, and 3 for bad ones.
        let doctor = ["doctor", "--json", "--no-write"];
        let (code, out, told) = self.command(&doctor, &ours)?;
        expect(matches!(code, Some(0 | 1 | 3)), || {
            format!("doctor: {code:?} {out}{told}")
        })?;
        let findings = serde_json::from_str::<Value>(&out).unwrap_or_default();
        expect(findings.is_object() || findings.is_array(), || out.clone())?;
        passed()
    }

    /// By `fsck`, whose page asks for a ticket for the NameNode's host by its name.
    fn placement(&mut self) -> Result<()> {
        let page = format!("localhost:{}", self.cluster.namenode(0).http_port());
        let mut conf = self.cluster.conf().clone();
        conf.set("dfs.namenode.http-address", page);
        let named = self.cluster.dir().join("conf-by-name");
        conf.write_dir(&named)?;
        let check = ["placement", "check", "/", "--json"];
        let (code, out, told) = self.command(&check, &named)?;
        let found = serde_json::from_str::<Value>(&out).unwrap_or_default();
        let blocks = found["blocks"].as_u64();
        expect(code == Some(0) && blocks > Some(0), || {
            format!("placement: {code:?} {out}{told}")
        })
    }

    /// A running node's blocks.
    fn snapshot(&mut self) -> Result<Outcome> {
        let store = self.cluster.dir().join("snapshots");
        std::fs::create_dir_all(&store).map_err(TestkitError::file("making", &store))?;
        let to = format!("file://{}", store.display());
        let conf = self.cluster.node(0).conf_dir();
        for command in ["create", "verify"] {
            let words = ["snapshot", command, "--json", "--to", &to];
            let (code, out, told) = self.command(&words, &conf)?;
            if told.contains("without the feature") || told.contains("unrecognized subcommand") {
                return Ok(Outcome::Skipped("this hayloft has no snapshots".into()));
            }
            expect(code == Some(0), || {
                format!("{command}: {code:?} {out}{told}")
            })?;
        }
        passed()
    }

    /// What a node of ours says: its name, words that are there, and all of it.
    fn said(&mut self, node: usize) -> Result<Vec<(String, &'static str, Vec<u8>)>> {
        let place = self.cluster.node(node);
        let (log, port) = (place.log(), ports::local(place.http_port()));
        let conf = place.conf_dir();
        let text = std::fs::read(&log).map_err(TestkitError::file("reading", &log))?;
        let mut all = vec![("its log".to_owned(), "logged in with Kerberos", text)];
        for (page, words) in PAGES {
            all.push((page.to_owned(), words, http::get(port, page)?.into_bytes()));
        }
        for more in [&[][..], &["--json"]] {
            let print = [&["node", "--print-config"][..], more].concat();
            let (code, out, told) = self.command(&print, &conf)?;
            expect(code == Some(0), || format!("{print:?}: {code:?} {told}"))?;
            let words = "dfs.datanode.keytab.file";
            all.push((format!("{print:?}"), words, (out + &told).into_bytes()));
        }
        Ok(all)
    }

    /// Nodes at work say much, and no secret in any form.
    fn nothing_secret(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.put("/with-tokens", 2 * BLOCK, 3, json!({}))?;
        self.fs.check("/with-tokens", 2 * BLOCK, 3)?;
        let secrets = secrets::of(&mut self.cluster, WITH_SECRETS, &self.realm)?;
        let blind = secrets.iter().find(|secret| !secret.would_be_found());
        expect(blind.is_none(), || "a secret would not be found".into())?;
        for node in 0..OURS {
            for (what, words, text) in self.said(node)? {
                let is_there = String::from_utf8_lossy(&text).contains(words);
                expect(is_there, || format!("{what} has no {words}"))?;
                let found = secrets.iter().find(|one| one.is_in(&text));
                let told = |found: &Secret| format!("{what} of node {node} has {}", found.what);
                expect(found.is_none(), || found.map(told).unwrap_or_default())?;
            }
        }
        passed()
    }

    /// Logs of all that: no refused token, no error.
    fn nothing_odd(&mut self) -> Result<Outcome> {
        let ours = self.cluster.nodes().filter(|n| n.kind() == Kind::Hayloft);
        for node in ours {
            let log = std::fs::read_to_string(node.log()).unwrap_or_default();
            expect(log.contains("logged in with Kerberos"), || {
                format!("{} has no log", node.name())
            })?;
            let odd = log.lines().find(|line| {
                line.contains("block token verification failed")
                    || line.contains(" ERROR ")
                    || line.contains("panicked")
            });
            expect(odd.is_none(), || format!("{odd:?}"))?;
        }
        passed()
    }
}
