//! Encrypted data transfer with the keys of a stock NameNode: stock clients, nodes of ours and of
//! Apache's, each cipher. [`attacks`]: connections that prove nothing. What block tokens protect,
//! with Kerberos, is in the suite `kerberos`.

mod attacks;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::{Kind, NodeSpec, VolumeSpec};
use hayloft_testkit::striped::{EC_CELL, EcPolicy};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 2 << 20;

/// Nodes of ours; one of Apache's comes behind them.
const OURS: usize = 4;

/// A cipher's name here, and the keys that ask for it.
const CIPHERS: [(&str, &[(&str, &str)]); 3] = [
    (
        "aes",
        &[(
            "dfs.encrypt.data.transfer.cipher.suites",
            "AES/CTR/NoPadding",
        )],
    ),
    ("3des", &[("dfs.encrypt.data.transfer.algorithm", "3des")]),
    ("rc4", &[("dfs.encrypt.data.transfer.algorithm", "rc4")]),
];

fn main() -> ExitCode {
    Suite::run("saslport", |suite| {
        for (cipher, keys) in CIPHERS {
            let name = |what: &str| format!("{what}_{cipher}");
            let mut on = suite.group(
                move || Lab::start(keys),
                |lab, failed| lab.cluster.conclude(failed),
            );
            on.case(name("files_are_written_read_and_appended_to"), |lab| {
                lab.files()
            });
            // Java's own 3DES is what these would wait for.
            let blocks = if cipher == "aes" { 24 } else { 6 };
            on.case(name("large_files_come_through"), move |lab| {
                lab.large(blocks)
            });
            if cipher == "aes" {
                on.case("connections_that_prove_nothing", |lab| lab.attacks());
            }
            on.case(name("blocks_of_a_dead_node_are_copied"), |lab| {
                lab.re_replication()
            });
            if cipher == "aes" {
                on.case("striped_files_are_rebuilt", |lab| lab.striped());
                on.case("the_mover_moves_blocks", |lab| lab.mover());
                on.case("a_node_killed_mid_write_is_replaced", |lab| {
                    lab.killed_mid_write()
                });
            }
        }
        Ok(())
    })
}

fn with_archive(kind: Kind) -> NodeSpec {
    let archive = VolumeSpec::typed("ARCHIVE");
    NodeSpec::new(kind).volumes(vec![VolumeSpec::default(), archive])
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
}

impl Lab {
    fn start(keys: &[(&str, &str)]) -> Result<Self> {
        let mut builder = Cluster::builder("saslport")
            .nodes(OURS - 1, Kind::Hayloft)
            .node(with_archive(Kind::Hayloft))
            .node(with_archive(Kind::Apache))
            .conf("dfs.blocksize", BLOCK)
            .conf("dfs.client.socket-timeout", 30_000)
            .conf("dfs.block.access.token.enable", true)
            .conf("dfs.encrypt.data.transfer", true);
        for (key, value) in keys {
            builder = builder.conf(key, value);
        }
        let cluster = builder.start()?;
        let fs = cluster.driver()?;
        Ok(Self { cluster, fs })
    }

    fn files(&mut self) -> Result<Outcome> {
        for seed in 0..6 {
            let path = format!("/file-{seed}");
            self.fs.put(&path, 3 * BLOCK + 777, seed, json!({}))?;
            self.fs.check(&path, 3 * BLOCK + 777, seed)?;
            self.fs.put(&path, BLOCK, seed, json!({"appendTo": true}))?;
            self.fs.wait_replicas(&path, 3, seconds(60))?;
            self.fs.check(&path, 4 * BLOCK + 777, seed)?;
            self.fs.call("checksum", json!({ "path": path }))?;
        }
        passed()
    }

    fn large(&mut self, blocks: u64) -> Result<Outcome> {
        let bytes = blocks * BLOCK + 1;
        for replication in [1, 3] {
            let path = format!("/large-{replication}");
            self.fs
                .put(&path, bytes, 5, json!({ "replication": replication }))?;
            self.fs.check(&path, bytes, 5)?;
        }
        passed()
    }

    fn re_replication(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.put("/copied", 4 * BLOCK, 31, json!({}))?;
        self.fs.wait_replicas("/copied", 3, seconds(60))?;
        for victim in [1, OURS] {
            self.cluster.node(victim).kill()?;
            self.cluster.namenode(0).wait_live(OURS, seconds(60))?;
            self.fs.wait_replicas("/copied", 3, seconds(120))?;
            self.fs.check("/copied", 4 * BLOCK, 31)?;
            self.cluster.heal()?;
        }
        passed()
    }

    fn striped(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        let policy = EcPolicy::RS_3_2;
        let enable = ["-enablePolicy", "-policy", policy.name];
        self.fs.tool(class::EC, &enable)?.ok()?;
        self.fs.fs(&["-mkdir", "/striped"])?;
        let set = ["-setPolicy", "-path", "/striped", "-policy", policy.name];
        self.fs.tool(class::EC, &set)?.ok()?;
        let bytes = 6 * EC_CELL + 777;
        let paths = ["/striped/f".to_owned()];
        self.fs.put(&paths[0], bytes, 21, json!({}))?;
        let sum = self.fs.call("checksum", json!({ "path": paths[0] }))?;
        for victim in [OURS, 1] {
            self.cluster.node(victim).kill()?;
            self.fs.check(&paths[0], bytes, 21)?;
            let now = self.fs.call("checksum", json!({ "path": paths[0] }))?;
            expect_eq(&paths[0], &now["hex"], &sum["hex"])?;
            self.cluster.namenode(0).wait_live(OURS, seconds(60))?;
            for file in self.cluster.node(victim).all_block_files() {
                std::fs::remove_file(&file).map_err(TestkitError::file("removing", &file))?;
            }
            self.cluster.start_node(victim)?;
            self.cluster.wait_all_live()?;
            self.fs.wait_striped(&paths, policy, &[], seconds(120))?;
        }
        self.fs.check(&paths[0], bytes, 21)?;
        passed()
    }

    /// Down to ARCHIVE, which one node of each kind has: REPLACE_BLOCK between nodes.
    fn mover(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs.fs(&["-mkdir", "/moved"])?;
        let bytes = 6 * BLOCK + 123;
        self.fs
            .put("/moved/f", bytes, 3, json!({"replication": 1}))?;
        let args = ["-setStoragePolicy", "-path", "/moved", "-policy", "COLD"];
        self.fs.tool(class::STORAGE_POLICIES, &args)?.ok()?;
        let run = self.fs.tool(class::MOVER, &["-p", "/moved"])?;
        expect(run.code == 0, || {
            format!("mover: {} {}{}", run.code, run.out, run.err)
        })?;
        wait::until("ARCHIVE", seconds(60), || {
            let blocks = self.fs.blocks("/moved/f")?;
            let mut types = blocks.iter().flat_map(|block| &block.types);
            Ok(match types.all(|on| on == "ARCHIVE") {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{blocks:?}")),
            })
        })?;
        self.fs.check("/moved/f", bytes, 3)?;
        passed()
    }

    /// The client asks for another node, and one of the others copies to it.
    fn killed_mid_write(&mut self) -> Result<Outcome> {
        for place in [0, 2] {
            self.cluster.heal()?;
            let path = format!("/killed-{place}");
            let total = 3 * BLOCK;
            self.fs.create("w", &path, 11, json!({}))?;
            let request =
                json!({"handle": "w", "bytes": total, "chunk": 65_536, "pauseMillis": 10});
            let writing = self.fs.begin("loop", request)?;
            self.fs.wait_acked("w", BLOCK + BLOCK / 2)?;
            let last = self.fs.blocks(&path)?.pop();
            let nodes = last.map(|block| block.nodes).unwrap_or_default();
            let victim = self
                .cluster
                .node_at(nodes.get(place).map_or("", String::as_str));
            let victim = victim.ok_or_else(|| TestkitError::Expectation(format!("{nodes:?}")))?;
            self.cluster.node(victim).kill()?;
            let end = writing.wait()?;
            expect(end["failure"].is_null() && end["acked"] == total, || {
                format!("the writer failed: {end}")
            })?;
            self.fs.handle("close", "w")?;
            self.fs.check(&path, total, 11)?;
        }
        passed()
    }

    fn attacks(&mut self) -> Result<Outcome> {
        let port = self.cluster.node(0).xfer();
        attacks::refused(&port)?;
        let stopped = attacks::a_thousand_stopped(&port)?;
        // Meanwhile others are served.
        self.fs.put("/beside", BLOCK, 71, json!({}))?;
        self.fs.check("/beside", BLOCK, 71)?;
        attacks::all_closed(stopped)?;
        passed()
    }
}
