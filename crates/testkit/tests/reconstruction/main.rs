//! Lost blocks of erasure-coded files come back: every policy that Hadoop ships, several at once,
//! and with nodes of both kinds as sources and targets.

mod cost;

use cost::Cost;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::striped::{EC_CELL, EcPolicy};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// RS-10-4 needs 14 nodes, and two may be lost.
const NODES: usize = 16;

/// In the mixed cluster.
const OURS: usize = 4;
const STOCK: usize = 4;

fn main() -> ExitCode {
    Suite::run("reconstruction", |suite| {
        let mut on = suite.group(
            || Lab::start(&[(NODES, Kind::under_test())], &EcPolicy::SHIPPED),
            |lab, failed| lab.cluster.conclude(failed),
        );
        on.case("a_node_lost_with_every_policy", |lab| lab.one_lost());
        on.case("two_blocks_of_a_group_lost_at_once", |lab| lab.two_lost());
        on.case("rebuilt_replicas_verify", |lab| lab.verify());
        let mixed = || {
            let kinds = [(OURS, Kind::Hayloft), (STOCK, Kind::Apache)];
            Lab::start(&kinds, &[EcPolicy::RS_3_2])
        };
        let mut on = suite.group(mixed, |lab, failed| lab.cluster.conclude(failed));
        on.case("mixed_nodes_rebuild_for_each_other", |lab| lab.mixed());
        on.case("mixed_a_corrupt_source_is_reported_and_rebuilt", |lab| {
            lab.corrupt_source()
        });
        suite
            .group(Cost::start, Cost::end)
            .case("cost_beside_the_stock_node", |cost| cost.beside_stock());
        Ok(())
    })
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    /// Length and policy of each file; the length is the seed of its data.
    files: BTreeMap<String, (u64, EcPolicy)>,
    sums: BTreeMap<String, String>,
}

impl Lab {
    fn start(kinds: &[(usize, Kind)], policies: &[EcPolicy]) -> Result<Self> {
        let mut builder = Cluster::builder("reconstruction")
            .conf("dfs.blocksize", 4 * EC_CELL)
            .conf("dfs.client.socket-timeout", 10_000);
        for &(count, kind) in kinds {
            builder = builder.nodes(count, kind);
        }
        let cluster = builder.start()?;
        let fs = cluster.driver()?;
        let mut lab = Self {
            cluster,
            fs,
            files: BTreeMap::new(),
            sums: BTreeMap::new(),
        };
        for policy in policies {
            lab.fill(*policy)?;
        }
        Ok(lab)
    }

    /// Files of less than a cell, of part of a stripe, and of more than a group.
    fn fill(&mut self, policy: EcPolicy) -> Result<()> {
        let dir = format!("/{}", policy.name);
        let enable = ["-enablePolicy", "-policy", policy.name];
        self.fs.tool(class::EC, &enable)?.ok()?;
        self.fs.fs(&["-mkdir", &dir])?;
        let set = ["-setPolicy", "-path", &dir, "-policy", policy.name];
        self.fs.tool(class::EC, &set)?.ok()?;
        let stripe = policy.data * EC_CELL;
        for bytes in [1000, EC_CELL + 5, stripe + 777, 4 * stripe + EC_CELL / 2] {
            let path = format!("{dir}/{bytes}");
            self.fs.put(&path, bytes, bytes, json!({}))?;
            self.sums.insert(path.clone(), self.sum_of(&path)?);
            self.files.insert(path, (bytes, policy));
        }
        Ok(())
    }

    fn sum_of(&self, path: &str) -> Result<String> {
        let answer = self.fs.call("checksum", json!({ "path": path }))?;
        Ok(format!("{}:{}", answer["algorithm"], answer["hex"]))
    }

    fn check_all(&self) -> Result<()> {
        for (path, (bytes, _)) in &self.files {
            self.fs.check(path, *bytes, *bytes)?;
            expect_eq(path, &self.sum_of(path)?, &self.sums[path])?;
        }
        Ok(())
    }

    /// Waits until every file has all of its blocks on nodes that are not among `gone`.
    fn wait_whole(&self, gone: &[usize]) -> Result<()> {
        let nodes: Vec<_> = self.cluster.nodes().collect();
        let gone: Vec<String> = gone.iter().map(|&node| nodes[node].xfer()).collect();
        for policy in EcPolicy::SHIPPED {
            let of_policy = self.files.iter().filter(|(_, (_, p))| *p == policy);
            let paths: Vec<String> = of_policy.map(|(path, _)| path.clone()).collect();
            self.fs.wait_striped(&paths, policy, &gone, seconds(180))?;
        }
        Ok(())
    }

    /// How many groups our nodes have rebuilt blocks of, by their logs.
    fn rebuilt_by_ours(&self) -> usize {
        let ours = self.cluster.nodes().filter(|n| n.kind() == Kind::Hayloft);
        let logs = ours.filter_map(|node| std::fs::read_to_string(node.log()).ok());
        logs.map(|log| log.matches(": reconstructed").count()).sum()
    }

    fn one_lost(&mut self) -> Result<Outcome> {
        let (path, policy) = self.largest("XOR");
        let group = self.fs.groups(&path)?.remove(0);
        let node = self.node_of(&group.nodes[&(policy.data - 1)][0])?;
        self.cluster.node(node).kill()?;
        self.wait_whole(&[node])?;
        if Kind::under_test() == Kind::Hayloft {
            let rebuilt = self.rebuilt_by_ours();
            println!("reconstruction:   {rebuilt} groups had a block rebuilt");
            expect(rebuilt > 0, || {
                "no node says that it rebuilt a block".into()
            })?;
        }
        self.check_all()?;
        self.cluster.heal()?;
        passed()
    }

    /// The largest file of the policies whose name begins so.
    fn largest(&self, name: &str) -> (String, EcPolicy) {
        let named = self
            .files
            .iter()
            .filter(|(_, (_, p))| p.name.starts_with(name));
        let (path, (_, policy)) = named.max_by_key(|(_, (bytes, _))| *bytes).expect("filled");
        (path.clone(), *policy)
    }

    fn node_of(&self, xfer: &str) -> Result<usize> {
        let node = self.cluster.node_at(xfer);
        node.ok_or_else(|| TestkitError::Expectation(format!("no node is at {xfer}")))
    }

    /// Two nodes of one RS-10-4 group die together: a data and a parity block.
    fn two_lost(&mut self) -> Result<Outcome> {
        // A code that stands one loss only could lose a file.
        self.files.retain(|_, (_, policy)| policy.parity > 1);
        self.fs.fs(&["-rm", "-r", "-skipTrash", "/XOR-2-1-1024k"])?;
        let (path, policy) = self.largest("RS-10");
        let group = self.fs.groups(&path)?.remove(0);
        let mut victims = Vec::new();
        for index in [0, policy.data] {
            victims.push(self.node_of(&group.nodes[&index][0])?);
        }
        for &victim in &victims {
            self.cluster.node(victim).kill()?;
        }
        self.wait_whole(&victims)?;
        self.check_all()?;
        passed()
    }

    fn verify(&mut self) -> Result<Outcome> {
        let mut verified = 0;
        for node in self.cluster.nodes().filter(|node| node.is_started()) {
            verified += self.fs.verify_metas(node)?;
        }
        println!("reconstruction:   {verified} replicas verified");
        passed()
    }

    /// One node of each kind is lost at once.
    fn mixed(&mut self) -> Result<Outcome> {
        let victims = [0, OURS];
        for victim in victims {
            self.cluster.node(victim).kill()?;
        }
        self.wait_whole(&victims)?;
        self.check_all()?;
        self.cluster.heal()?;
        self.wait_whole(&[])?;
        passed()
    }

    /// Of a file, block 0 is damaged at a stock node and block 3 is lost. Only nodes of ours are
    /// free to make up block 3, so one of them meets the damage.
    fn corrupt_source(&mut self) -> Result<Outcome> {
        let before = self.rebuilt_by_ours();
        for seed in 0..20u64 {
            let path = format!("/RS-3-2-1024k/corrupt-{seed}");
            let bytes = 3 * EC_CELL;
            self.fs.put(&path, bytes, bytes, json!({}))?;
            let group = self.fs.groups(&path)?.remove(0);
            let at = |index: u64| self.node_of(&group.nodes[&index][0]);
            let (damaged, lost) = (at(0)?, at(3)?);
            let holders = (0..5).map(at).collect::<Result<Vec<usize>>>()?;
            let free: Vec<usize> = (0..OURS + STOCK).filter(|n| !holders.contains(n)).collect();
            let (ours, stock): (Vec<_>, Vec<_>) = free.into_iter().partition(|&n| n < OURS);
            if damaged < OURS || ours.len() < 2 {
                continue;
            }
            self.sums.insert(path.clone(), self.sum_of(&path)?);
            self.files.insert(path.clone(), (bytes, EcPolicy::RS_3_2));
            self.flip(damaged, group.id)?;
            for &node in &stock {
                self.cluster.node(node).kill()?;
            }
            self.cluster.node(lost).kill()?;
            let gone = [&stock[..], &[lost]].concat();
            let xfers: Vec<String> = gone.iter().map(|&n| self.cluster.node(n).xfer()).collect();
            let paths = [path.clone()];
            self.fs
                .wait_striped(&paths, EcPolicy::RS_3_2, &xfers, seconds(180))?;
            self.fs.check(&path, bytes, bytes)?;
            expect(self.rebuilt_by_ours() > before, || {
                "no node of ours rebuilt a block".into()
            })?;
            self.wait_reported(damaged, group.id)?;
            self.cluster.heal()?;
            self.wait_whole(&[])?;
            self.check_all()?;
            return passed();
        }
        Ok(Outcome::Skipped("no file of twenty was placed so".into()))
    }

    /// Flips a byte of a data file.
    fn flip(&mut self, node: usize, block: i64) -> Result<()> {
        let files = self.cluster.node(node).block_files(block);
        let data = files.iter().find(|path| path.extension().is_none());
        let data = data.ok_or_else(|| TestkitError::Expectation(format!("no file of {block}")))?;
        let mut bytes = std::fs::read(data).map_err(TestkitError::file("reading", data))?;
        bytes[700_000] ^= 1;
        std::fs::write(data, bytes).map_err(TestkitError::file("writing", data))
    }

    /// A node of ours named the damaged block, and it is deleted.
    fn wait_reported(&mut self, node: usize, block: i64) -> Result<()> {
        let said = self.cluster.nodes().any(|node| {
            let log = std::fs::read_to_string(node.log()).unwrap_or_default();
            log.lines().any(|line| {
                line.contains("a source of a reconstruction failed")
                    && line.contains("checksum mismatch")
                    && line.contains(&block.to_string())
            })
        });
        expect(said, || {
            format!("no node of ours met the damage of {block}")
        })?;
        let files = self.cluster.node(node).block_files(block);
        println!("reconstruction:   damaged replica: {files:?}");
        Ok(())
    }
}
