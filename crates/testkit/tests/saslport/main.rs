//! Encrypted data transfer with the keys of a stock NameNode: stock clients, nodes of ours and of
//! Apache's, each cipher. [`attacks`]: connections that prove nothing. What block tokens protect,
//! with Kerberos, is in the suite `kerberos`.

mod attacks;
mod by_curl;

use by_curl::NodeByCurl;
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::shared_work::{SharedWork, with_archive};
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite};
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
            on.case(
                name("no_cipher_is_offered_that_is_weaker_than_asked_for"),
                move |lab| lab.offers(cipher),
            );
            on.case(name("files_are_written_read_and_appended_to"), |lab| {
                lab.work().passes(|work| work.files(6, 3))
            });
            // Java's own 3DES is what these would wait for.
            let blocks = if cipher == "aes" { 24 } else { 6 };
            on.case(name("large_files_come_through"), move |lab| {
                lab.large(blocks)
            });
            on.case(name("webhdfs_writes_and_reads"), |lab| lab.webhdfs());
            if cipher == "aes" {
                on.case("connections_that_prove_nothing", |lab| lab.attacks());
            }
            on.case(name("blocks_of_a_dead_node_are_copied"), |lab| {
                lab.work().passes(|work| work.deaths(&[1, OURS]))
            });
            if cipher == "aes" {
                on.case("striped_files_are_rebuilt", |lab| {
                    lab.work().passes(|work| work.striped(1, &[OURS, 1]))
                });
                on.case("the_mover_moves_blocks", |lab| {
                    // One node of each kind has ARCHIVE: REPLACE_BLOCK between nodes.
                    lab.work()
                        .passes(|work| work.moves(6, &[("COLD", "ARCHIVE")]))
                });
                on.case("a_node_killed_mid_write_is_replaced", |lab| {
                    lab.work().passes(|work| work.deaths_mid_write(&[0, 2]))
                });
            }
        }
        Ok(())
    })
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

    fn work(&mut self) -> SharedWork<'_> {
        SharedWork {
            cluster: &mut self.cluster,
            fs: &self.fs,
            block: BLOCK,
        }
    }

    /// Java's SASL offers all that it has, whatever the configuration of its node names.
    fn offers(&mut self, cipher: &str) -> Result<Outcome> {
        let wanted = match cipher {
            "3des" => "3des",
            _ => "3des,rc4",
        };
        for node in 0..=OURS {
            let wanted = match node {
                OURS => "3des,rc4,des,rc4-56,rc4-40",
                _ => wanted,
            };
            let offered = attacks::offered_ciphers(&self.cluster.node(node).xfer())?;
            expect(offered == wanted, || format!("node {node}: {offered}"))?;
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

    /// Each node asks the NameNode for a key as the caller, and proves with it that it has one.
    fn webhdfs(&mut self) -> Result<Outcome> {
        for node in 0..=OURS {
            let asked = NodeByCurl::new(&mut self.cluster, node, "user.name=root");
            asked.works(&self.fs, &format!("/web-{node}"), BLOCK)?;
            asked.reads_open(&self.fs, &format!("/web-open-{node}"), BLOCK)?;
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
