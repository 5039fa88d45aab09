//! Files of the policy LAZY_PERSIST: in memory first, on disk later, at a stock NameNode.
//!
//! The stock node sets no memory aside without Apache's native library. It takes over what ours
//! leaves, and the reverse.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::http;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect_eq, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Room in memory.
const MEMORY: u64 = 4 * BLOCK;
const LOCKED: &str = "dfs.datanode.max.locked.memory";
/// Reports and orders take seconds.
const SOON: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    Suite::run("lazypersist", |suite| {
        if Kind::under_test() == Kind::Apache {
            println!("skipped: the stock node locks nothing without Apache's native library");
            return Ok(());
        }
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("a_file_is_in_memory_and_on_disk_later", Lab::in_memory)
            .case("what_was_used_longest_ago_leaves_memory", Lab::evicted)
            .case("a_deleted_file_leaves_nothing", Lab::deleted)
            .case("the_stock_node_takes_over_and_ours_back", Lab::swapped)
            .case("memory_that_is_empty_at_a_start", Lab::emptied);
        Ok(())
    })
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
}

fn start() -> Result<Lab> {
    let volumes = vec![VolumeSpec::typed("DISK"), VolumeSpec::typed("RAM_DISK")];
    let node = NodeSpec::new(Kind::under_test()).volumes(volumes);
    let cluster = Cluster::builder("lazypersist")
        .node(node.conf(LOCKED, MEMORY))
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .conf("dfs.datanode.lazywriter.interval.sec", 1)
        // Files that lose a block stay, to be looked at.
        .conf("dfs.namenode.lazypersist.file.scrub.interval.sec", 0)
        .start()?;
    let fs = cluster.driver()?;
    fs.fs(&["-mkdir", "/lazy"])?;
    let args = ["-setStoragePolicy", "-path", "/lazy"];
    let policy = ["-policy", "LAZY_PERSIST"];
    let args = [&args[..], &policy[..]].concat();
    fs.tool(class::STORAGE_POLICIES, &args)?.ok()?;
    Ok(Lab { fs, cluster })
}

impl Lab {
    /// A number of the node's bean about replicas in memory.
    fn count(&mut self, name: &str) -> Result<u64> {
        let web = SocketAddr::from(([127, 0, 0, 1], self.cluster.node(0).http_port()));
        let port = self.cluster.node(0).xfer();
        let port = port.rsplit(':').next().unwrap_or_default().to_owned();
        let bean = format!("Hadoop:service=DataNode,name=DataNodeActivity-*-{port}");
        let bean = http::jmx(web, &bean)?;
        let number = bean[name].as_u64();
        number.ok_or_else(|| TestkitError::Expectation(format!("no {name} in {bean}")))
    }

    fn wait_count(&mut self, name: &str, wanted: u64) -> Result<()> {
        wait::until(&format!("{name} {wanted}"), SOON, || {
            let now = self.count(name)?;
            Ok(match now == wanted {
                true => Seen::Done(()),
                false => Seen::NotYet(now.to_string()),
            })
        })
    }

    /// Waits until the NameNode says this of the storage of a file of one block.
    fn wait_type(&self, path: &str, wanted: &str) -> Result<()> {
        wait::until(&format!("{path} on {wanted}"), SOON, || {
            let blocks = self.fs.blocks(path)?;
            let types: Vec<String> = blocks.into_iter().flat_map(|b| b.types).collect();
            Ok(match types.iter().map(String::as_str).eq([wanted]) {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{types:?}")),
            })
        })
    }

    fn volume(&mut self, number: usize) -> PathBuf {
        let mut volumes = self.cluster.node(0).volumes();
        volumes.nth(number).expect("has two").to_owned()
    }

    fn in_memory(&mut self) -> Result<Outcome> {
        self.fs.put("/lazy/first", BLOCK, 1, json!({}))?;
        self.wait_type("/lazy/first", "RAM_DISK")?;
        self.fs.check("/lazy/first", BLOCK, 1)?;
        self.wait_count("RamDiskBlocksLazyPersisted", 1)?;
        expect_eq("written", self.count("RamDiskBytesWrite")?, BLOCK)?;
        self.wait_type("/lazy/first", "RAM_DISK")?;
        passed()
    }

    fn evicted(&mut self) -> Result<Outcome> {
        for n in 2..=4 {
            self.fs.put(&format!("/lazy/{n}"), BLOCK, n, json!({}))?;
        }
        self.wait_count("RamDiskBlocksLazyPersisted", 4)?;
        self.fs.check("/lazy/first", BLOCK, 1)?;
        self.fs.put("/lazy/5", BLOCK, 5, json!({}))?;
        self.wait_type("/lazy/2", "DISK")?;
        self.wait_type("/lazy/first", "RAM_DISK")?;
        self.wait_type("/lazy/5", "RAM_DISK")?;
        expect_eq("evicted", self.count("RamDiskBlocksEvicted")?, 1)?;
        for n in 2..=5 {
            self.fs.check(&format!("/lazy/{n}"), BLOCK, n)?;
        }
        passed()
    }

    fn deleted(&mut self) -> Result<Outcome> {
        self.wait_count("RamDiskBlocksLazyPersisted", 5)?;
        let before = self.cluster.node(0).all_block_files().len();
        self.fs.fs(&["-rm", "-skipTrash", "/lazy/5"])?;
        wait::until("both copies are gone", SOON, || {
            let now = self.cluster.node(0).all_block_files().len();
            // Of data and of checksums: two files a copy.
            Ok(match now + 4 == before {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{before} -> {now} files")),
            })
        })?;
        passed()
    }

    /// The stock node finds the copies; its directories know no memory that is set aside.
    fn swapped(&mut self) -> Result<Outcome> {
        self.cluster.node(0).kill()?;
        self.cluster.node(0).conf_mut().set(LOCKED, 0);
        self.cluster.swap_node(0, Kind::Apache)?;
        self.cluster.wait_all_live()?;
        self.whole("DISK")?;
        self.cluster.node(0).conf_mut().set(LOCKED, MEMORY);
        self.cluster.swap_node(0, Kind::under_test())?;
        self.cluster.wait_all_live()?;
        self.whole("DISK")?;
        self.fs.put("/lazy/6", BLOCK, 6, json!({}))?;
        self.wait_type("/lazy/6", "RAM_DISK")?;
        passed()
    }

    fn whole(&mut self, storage: &str) -> Result<()> {
        for (path, seed) in [("first", 1), ("2", 2), ("3", 3), ("4", 4)] {
            let path = format!("/lazy/{path}");
            self.wait_type(&path, storage)?;
            self.fs.check(&path, BLOCK, seed)?;
        }
        Ok(())
    }

    fn emptied(&mut self) -> Result<Outcome> {
        self.wait_count("RamDiskBlocksLazyPersisted", 1)?;
        self.cluster.node(0).kill()?;
        let memory = self.volume(1);
        std::fs::remove_dir_all(&memory).map_err(TestkitError::file("removing", &memory))?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        self.whole("DISK")?;
        self.wait_type("/lazy/6", "DISK")?;
        self.fs.check("/lazy/6", BLOCK, 6)?;
        passed()
    }
}
